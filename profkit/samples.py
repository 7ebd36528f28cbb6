"""Traces that are built, not recorded, to show what a finding looks like where there is no GPU."""

from __future__ import annotations

from profkit.model import Trace
from profkit.testing import Row, build_trace, call, copy, launch, span

STEPS = 20
KERNELS = 60
_LAUNCH_EVERY_NS, _CALL_NS, _LATENCY_NS, _KERNEL_NS = 9_000, 5_000, 2_000, 4_000
_SAMPLE_NS, _SCHEDULE_NS = 30_000, 20_000


def launch_bound_decode() -> Trace:
    """20 decode steps of 60 small kernels, launched one by one, each with a pageable read-back of its token."""
    rows: list[Row | list[Row]] = []
    time = 0
    for step in range(STEPS):
        begin = time
        rows.append(span("schedule", time, _SCHEDULE_NS, payload=1))
        time += _SCHEDULE_NS
        for number in range(KERNELS):
            name = ("rms_norm_kernel", "gemm_bf16", "flash_fwd_splitkv_kernel")[number % 3]
            start = time + _CALL_NS + _LATENCY_NS
            rows.append(launch(name, at=time, start=start, dur=_KERNEL_NS, call_dur=_CALL_NS))
            time += _LAUNCH_EVERY_NS
        begin_sample, time = time, time + 1_000
        rows.append(copy(time + 4_000, 1_700, "d2h", 64, "device", "pageable", correlation=step + 1))
        rows.append(call(time, 8_000, "cudaMemcpyAsync", correlation=step + 1))
        rows.append(call(time + 8_500, 3_000, "cudaStreamSynchronize"))
        time += 11_500 + _SAMPLE_NS
        rows.append(span("sample", begin_sample, time - begin_sample, payload=1))
        rows.append(span("decode", begin, time - begin, payload=1))
    return build_trace(*rows, simulated=True)
