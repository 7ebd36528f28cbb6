"""Fixes after which kernels are not run: cost and saving of each, computed by hand."""

from typing import Any

import pytest

from profkit.testing import Row, call, kernel, launch

DEQUANTISES = "void dequantize_int8_kernel<__nv_bfloat16>(const signed char*, T1*)"
ATTENTION = ("gemm_qk", "elementwise_kernel", "softmax_warp_forward", "gemm_pv")


def _launched_slowly(*names: str) -> Any:
    """Kernels of 2,000, each launched by a call of 5,000 with a pause of 5,000 before it."""

    def step(t: int) -> list[list[Row]]:
        times = [t + i * 10_000 for i in range(len(names))]
        return [launch(name, at=at, start=at + 9_000, dur=2_000) for name, at in zip(names, times, strict=True)]

    return step


def _queued(*names: str) -> Any:
    """Kernels of 20,000, 1,000 apart, launched one behind the other by calls of 3,000; then the host waits for them."""

    def step(t: int) -> list[Row | list[Row]]:
        end = t + 15_000 + len(names) * 21_000
        return [
            *(
                launch(name, at=t + i * 3_000, start=t + 15_000 + i * 21_000, dur=20_000, call_dur=3_000)
                for i, name in enumerate(names)
            ),
            call(t + 16_000, end + 3_000 - t - 16_000, "cudaStreamSynchronize"),
        ]

    return step


@pytest.mark.parametrize(
    ("fix", "names", "gone"),
    [
        ("fused-dequantisation", ("gemm", DEQUANTISES, "gemm", DEQUANTISES, "gemm"), 2),
        ("fused-attention", (*ATTENTION, "norm"), 2),
    ],
)
def test_kernels_that_fill_the_device(
    price_of: Any, steps_of: Any, fix: str, names: tuple[str, ...], gone: int
) -> None:
    found = price_of(fix, *steps_of(5, 130_000, _queued(*names)))
    assert found.count == 5 * gone
    # Each takes 20,000 and the 1,000 up to the next one.
    assert found.cost == found.saving
    assert found.saving[1] == gone * 21_000
    assert found.assumed


@pytest.mark.parametrize(
    ("fix", "names", "gone"),
    [
        ("fused-dequantisation", ("gemm", DEQUANTISES, "gemm", DEQUANTISES, "gemm"), 2),
        ("fused-attention", (*ATTENTION, "norm"), 2),
    ],
)
def test_kernels_that_the_host_launches_slowly(
    price_of: Any, steps_of: Any, fix: str, names: tuple[str, ...], gone: int
) -> None:
    found = price_of(fix, *steps_of(5, 100_000, _launched_slowly(*names)))
    # The call of 5,000 and the 5,000 of the host before it.
    assert found.saving[1] == gone * 10_000


def test_nodes_of_a_graph_go_without_their_launch(price_of: Any, steps_of: Any) -> None:
    def step(t: int) -> list[Row]:
        names = ("gemm", DEQUANTISES, "gemm")
        nodes = [
            kernel(t + 13_000 + 21_000 * i, 20_000, name, correlation=t + 1, graph_node=i + 1)
            for i, name in enumerate(names)
        ]
        return [call(t, 8_000, "cudaGraphLaunch", correlation=t + 1), *nodes]

    found = price_of("fused-dequantisation", *steps_of(5, 90_000, step))
    assert found.count == 5
    assert found.cost[0] == found.saving[0] == 21_000  # the host sets the pace: only the end is sooner
    assert found.saving[1] == 0


@pytest.mark.parametrize(
    ("fix", "names"),
    [
        ("fused-dequantisation", ("gemm", "void cutlass::fused_dequant_gemm<1>(Params)")),
        ("fused-attention", (*ATTENTION, "flash_fwd_kernel")),
        ("fused-attention", ("gemm", "softmax_warp_forward", "index_kernel", "norm_kernel", "gemm")),
    ],
)
def test_nothing_of_the_kind(price_of: Any, steps_of: Any, fix: str, names: tuple[str, ...]) -> None:
    assert price_of(fix, *steps_of(5, 130_000, _queued(*names))) is None
