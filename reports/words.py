"""What the report calls things: causes of idle time, categories of the timeline, facts of findings."""

from __future__ import annotations

from profkit import text

CAUSES = {
    "python": "host code",
    "stage_schedule": "schedule (host)",
    "stage_tokenize": "tokenize (host)",
    "stage_sample": "sample (host)",
    "stage_detokenize": "detokenize (host)",
    "os_wait": "wait in the OS",
    "off_cpu": "off the CPU",
    "gil": "waiting for the GIL",
    "launch_call": "in a launch call",
    "copy_call": "in a copy call",
    "sync": "in a synchronisation",
    "allocator": "in the allocator",
    "module_load": "loading a module",
    "profiler": "profiler overhead",
    "event_wait": "waiting for another stream",
    "launch_latency": "launch latency",
    "graph_startup": "graph start-up",
    "launch_paced": "waiting for the next launch",
    "unknown": "not recorded",
    "not_collected": "outside of collection",
    "startup": "before the first GPU row",
    "tail": "after the last GPU row",
}
_CATEGORIES = {
    "gemm": "GEMM kernels",
    "copy": "copy kernels",
    "kv_cache": "KV cache kernels",
    "moe": "MoE kernels",
    "other": "other kernels",
    "copy_h2d": "H2D copy",
    "copy_d2h": "D2H copy",
    "copy_other": "other copy",
    "memset": "memset",
    "graph": "CUDA graph (recorded whole)",
    "stage_mixed": "mixed step",
    "stage_other": "other step",
    "range": "range",
    "op": "operator",
    "call_launch": "launch call",
    "call_graph_launch": "graph launch call",
    "call_copy": "copy call",
    "call_memset": "memset call",
    "call_sync": "synchronisation",
    "call_allocator": "allocator call",
    "call_module_load": "module loading",
    "call_other": "other CUDA call",
}


def cause(key: str) -> str:
    """What the host did while the GPU was idle."""
    return CAUSES.get(key, key.replace("_", " "))


def category(key: str) -> str:
    """What a colour of the timeline stands for."""
    if key.startswith("idle_"):
        return f"idle: {cause(key.removeprefix('idle_'))}"
    if key in _CATEGORIES:
        return _CATEGORIES[key]
    return key.removeprefix("stage_") if key.startswith("stage_") else f"{key} kernels"


def fact(key: str, value: int | float | str) -> tuple[str, str]:
    """(label, value with its unit) of one fact of a finding; the unit is the end of its key, -1 is not known."""
    if isinstance(value, str):
        return key.replace("_", " "), text.clip(value, 160)
    for suffix, words in (("_ns_per_step", text.ns), ("_ns", text.ns), ("_bytes", text.size)):
        if key.endswith(suffix):
            label = key.removesuffix(suffix) + (" a step" if suffix == "_ns_per_step" else "")
            return label.replace("_", " "), words(round(value))
    if key.endswith("_bytes_per_s"):
        return key.removesuffix("_bytes_per_s").replace("_", " "), text.rate(round(value), 1_000_000_000)
    if key.endswith("_share"):
        return key.replace("_", " "), text.percent(value) if value >= 0 else "n/a"
    if value == -1:
        return key.replace("_", " "), "n/a"
    return key.replace("_", " "), f"{value:,}" if isinstance(value, int) else f"{value:,.3g}"
