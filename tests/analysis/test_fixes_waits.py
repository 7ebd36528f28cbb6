"""Fixes of waits: cost and saving of each in five steps, computed by hand."""

from typing import Any

from profkit.testing import call, copy, kernel, launch


def test_no_step_sync(price_of: Any, steps_of: Any) -> None:
    """A kernel of 50,000 and a wait for it until 6,000 behind it; then 35,000 of host work."""

    def step(t: int) -> list[Any]:
        return [
            launch("k", at=t, start=t + 9_000, dur=50_000),
            call(t + 10_000, 55_000, "cudaStreamSynchronize"),
        ]

    found = price_of("no-step-sync", *steps_of(5, 100_000, step))
    # The host launches every 40,000, the device takes a kernel every 51,000: 50,000 and 1,000 between two.
    assert found.count == 5
    assert found.cost == found.saving == (4 * 49_000, 49_000)


def test_read_later(price_of: Any, steps_of: Any) -> None:
    """A read-back of 10,000 behind a kernel of 50,000; its call returns 5,000 behind it; then 35,000 of host work."""

    def step(t: int) -> list[Any]:
        return [
            launch("k", at=t, start=t + 9_000, dur=50_000),
            call(t + 10_000, 65_000, "cudaMemcpyAsync", correlation=t + 1),
            copy(t + 60_000, 10_000, "d2h", 8, "device", "pageable", correlation=t + 1),
        ]

    found = price_of("read-later", *steps_of(5, 110_000, step))
    assert found.count == 5
    # Without: a kernel every 51,000 (the host takes 45,000). The window also loses the last copy, and 1,000 before it.
    assert found.cost == (4 * 59_000 + 11_000, 59_000)
    # Looked at a step later: kernel, 1,000, copy, 1,000: 62,000. The host never waits as long as that.
    assert found.saving == (4 * 48_000, 48_000)
    assert found.facts == {"read_backs": 5, "syncs": 0}


def test_no_polling(price_of: Any, steps_of: Any) -> None:
    """The host asks every 20,000 and sees the end of the kernel 15,000 late."""

    def step(t: int) -> list[Any]:
        return [
            launch("k", at=t, start=t + 9_000, dur=76_000),
            [call(t + 20_000 + 20_000 * i, 20_000, "cudaEventQuery") for i in range(4)],
        ]

    found = price_of("no-polling", *steps_of(5, 120_000, step))
    assert found.count == 5
    # A wait returns 5,000 behind the end where a trace has none to measure.
    assert found.cost == (4 * 15_000, 15_000)
    assert found.saving == (4 * 10_000, 10_000)
    assert found.assumed == ("a synchronisation returns 5.00 µs after the work is done (assumed)",)


def test_no_polling_takes_the_wake_up_of_the_traces_own_waits(price_of: Any, steps_of: Any) -> None:
    def step(t: int) -> list[Any]:
        return [
            launch("k", at=t, start=t + 9_000, dur=76_000),
            [call(t + 20_000 + 20_000 * i, 20_000, "cudaEventQuery") for i in range(4)],
            launch("k", at=t + 120_000, start=t + 129_000, dur=20_000),
            call(t + 130_000, 26_000, "cudaStreamSynchronize"),
        ]

    found = price_of("no-polling", *steps_of(5, 200_000, step))
    # 156,000 is 7,000 behind the end of the second kernel.
    assert found.saving == (5 * 8_000, 8_000)


def _free(name: str) -> Any:
    def step(t: int) -> list[Any]:
        return [
            launch("k", at=t, start=t + 9_000, dur=50_000),
            call(t + 10_000, 69_000, name),
        ]

    return step


def test_no_implicit_sync(price_of: Any, steps_of: Any) -> None:
    """cudaFree drains the device and takes 20,000 more; 21,000 of host work behind it."""
    found = price_of("no-implicit-sync", *steps_of(5, 100_000, _free("cudaFree")))
    # The host launches every 31,000: the device is never idle for more than 1,000.
    assert found.count == 5
    assert found.cost == found.saving == (4 * 49_000, 49_000)
    assert price_of("no-implicit-sync", *steps_of(5, 100_000, _free("cudaFreeAsync"))) is None
    assert price_of("no-implicit-sync", *steps_of(5, 100_000, _free("cudaFreeHost"))) is None


def test_async_memset(price_of: Any, steps_of: Any) -> None:
    """A memset whose call returns 4,000 behind its end; one that waits for nothing takes 3,000."""

    def step(t: int) -> list[Any]:
        return [
            launch("k", at=t, start=t + 9_000, dur=50_000),
            call(t + 10_000, 60_000, "cudaMemset", correlation=t + 1),
            copy(t + 60_000, 6_000, "memset", 1_000, dst="device", correlation=t + 1),
        ]

    found = price_of("async-memset", *steps_of(5, 100_000, step))
    assert found.count == 5
    # Without: a kernel every 51,000 (the host takes 40,000); the last memset and 1,000 before it count for the window.
    assert found.cost == (4 * 49_000 + 7_000, 49_000)
    # Asynchronous: kernel, 1,000, memset, 1,000.
    assert found.saving == (4 * 42_000, 42_000)


def test_kernel(price_of: Any, steps_of: Any) -> None:
    def step(t: int) -> list[Any]:
        return [
            launch("my::gemm<float>", at=t, start=t + 9_000, dur=50_000),
            kernel(t + 60_000, 20_000, "softmax"),
            call(t + 10_000, 75_000, "cudaStreamSynchronize"),
        ]

    rows = steps_of(5, 100_000, step)
    found = price_of("kernel:gemm=0.7x", *rows)
    assert found.count == 5
    # Without it nothing launches it either: 4,000 and 1,000 to the other kernel, its 20,000, 5,000 until the wait is
    # over: 30,000 a step. The window begins with its start.
    assert found.cost == (471_000 - (4 * 30_000 + 21_000), 70_000)
    assert found.saving == (5 * 15_000, 15_000)
    # Slower, too. The name may hold what else the argument is made of.
    assert price_of("kernel:GEMM=1.5", *rows).saving == (-5 * 25_000, -25_000)
    assert price_of("kernel:my::gemm<float>=0", *rows).saving == found.cost
    assert price_of("kernel:relu=0.5", *rows) is None
