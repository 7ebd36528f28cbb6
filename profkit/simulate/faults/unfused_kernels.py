"""PK406: weights or keys and values are dequantised by kernels of their own."""

from __future__ import annotations

from profkit.simulate.engine import DEQUANTISE, Work
from profkit.simulate.plan import Fault, Planted


def add_kernels(planted: Planted, kernels: list[Work]) -> list[Work]:
    """One or two more kernels a layer, before the one that needs their output."""
    if not planted.planted:
        return kernels
    usual = sum(work.dur for work in kernels) // len(kernels)
    dur = max(int(usual * planted.chance.uniform("length", 0.6, 1.8) * planted.scale), 800)
    before = ("nvjet_qkv", "flash_fwd_splitkv_kernel")[: planted.chance.integer("a layer", 1, 2)]
    out: list[Work] = []
    for work in kernels:
        if work.kernel.short in before:
            out.append(Work(DEQUANTISE, dur, 10_000 + work.key, work.layer))
        out.append(work)
    return out


FAULT = Fault(
    name="unfused_kernels",
    code="PK406",
    what="dequantisation as separate kernels; fix: inside the kernels that need the values",
    needs=frozenset({"kernels"}),
    instead={"kernels": add_kernels},
)
