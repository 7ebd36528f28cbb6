"""The launch queue: a device takes 1,024 operations ahead. Times are those of a program that has such a queue."""

from typing import Any

import pytest

from profkit.analysis.replay.launch_queue import _EVERY
from profkit.testing import Row, call, kernel

AHEAD, COUNT = 1_024, 1_300
CALL, PAUSE, GAP = 2_000, 1_000, 1_000
"""What a launch call takes, what the host does before the next one, and from kernel to kernel, ns."""


def program(kernel_ns: int, count: int = COUNT) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """(calls, kernels) of a host that only launches; a call that finds the queue full returns GAP behind a start."""
    calls: list[tuple[int, int]] = []
    kernels: list[tuple[int, int]] = []
    free, device = 0, 0
    for i in range(count):
        start, end = free, free + CALL
        if i >= AHEAD:
            end = max(end, kernels[i - AHEAD][0] + GAP)
        begin = max(end + 4_000, device + GAP)
        calls.append((start, end))
        kernels.append((begin, begin + kernel_ns))
        free, device = end + PAUSE, begin + kernel_ns
    return calls, kernels


def rows_of(calls: list[tuple[int, int]], kernels: list[tuple[int, int]]) -> list[Row]:
    rows = [call(start, end - start, correlation=i) for i, (start, end) in enumerate(calls)]
    return rows + [kernel(start, end - start, correlation=i) for i, (start, end) in enumerate(kernels)]


def test_a_full_queue_holds_the_host(model_of: Any) -> None:
    calls, kernels = program(30_100)
    found = model_of(*rows_of(calls, kernels))
    full = [i for i, (start, end) in enumerate(calls) if end - start > CALL]
    # A launch takes the host 3,000, the device 31,100: 1,024 are outstanding from the 1,134th on.
    assert full == list(range(1_134, COUNT))
    # The call returns 1,000 behind the start of the operation 1,024 before it.
    waits = found.edges("queue")
    assert {(f"op {i - AHEAD} start", f"call {i} end", GAP) for i in full} <= set(waits)
    for length in (20_000, 10_000, 1_000):
        changed = found.length(dict.fromkeys(range(COUNT), length))
        assert (found.calls(changed), found.ops(changed)) == program(length)


def test_a_queue_that_was_never_full_is_kept_to_its_limit(model_of: Any) -> None:
    """Kernels of a hundred times their length: the limit is kept at some submissions, and others follow these."""
    calls, kernels = program(1_500)
    held = list(range(AHEAD, COUNT, _EVERY))
    found = model_of(*rows_of(calls, kernels))
    assert sorted(row[1] for row in found.edges("queue")) == sorted(f"call {i} end" for i in held)
    changed = found.length(dict.fromkeys(range(COUNT), 150_000))
    starts = [start for start, _ in found.ops(changed)]
    # A kernel each 151,000; a call that is held returns a usual call (2,000) behind the start that frees its place.
    assert starts == [6_000 + 151_000 * i for i in range(COUNT)]
    ends = [end for _, end in found.calls(changed)]
    assert [ends[i] for i in held[1:]] == [starts[i - AHEAD] + CALL for i in held[1:]]


@pytest.mark.parametrize("count", [255, 256])
def test_a_long_call_with_few_operations_outstanding_waited_for_something_else(model_of: Any, count: int) -> None:
    """With 256 outstanding a queue that is shorter than 1,024 may be full (other contexts use it, too)."""
    calls, kernels = program(30_000, count)
    late = calls[-1][1] + PAUSE
    begun = sum(start <= late + 90_000 for start, _ in kernels)
    calls.append((late, late + 90_000))
    kernels.append((kernels[-1][1] + GAP, kernels[-1][1] + GAP + 30_000))
    found = model_of(*rows_of(calls, kernels))
    outstanding = count - begun
    assert len(found.edges("queue")) == (outstanding >= 256)
