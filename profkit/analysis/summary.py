"""The summary of a trace as plain data: what ``check --json`` prints and the report shows. Absent is None."""

from __future__ import annotations

from typing import Any

import numpy as np

from profkit.analysis.calls import CALL_KINDS, GRAPH_LAUNCH
from profkit.analysis.collectives import collective_facts
from profkit.analysis.communication import communication_facts
from profkit.analysis.context import Analysis
from profkit.analysis.idle_table import idle_by_stage, idle_by_step
from profkit.analysis.intervals import percentiles
from profkit.analysis.range_work import kernel_launches, range_kernels
from profkit.analysis.request_facts import cancelled, request_facts, request_lines
from profkit.analysis.requests import Requests
from profkit.analysis.steps_summary import step_facts, step_rows
from profkit.analysis.trust import doubts
from profkit.model import Array, Trace
from profkit.schema import COPY_KINDS, EVENT_TABLES, FLAG_OPEN_END, MEMORY_KINDS

PERCENTS = (50, 90, 99)
_MOST_ROWS = 50
_P2P = COPY_KINDS.index("p2p")


def trace_facts(analysis: Analysis) -> dict[str, Any]:
    """What the capture is: source, GPUs, span, what it holds, what it lacks and why."""
    trace = analysis.trace
    extent = trace.extent
    return {
        "source": trace.meta.source,
        "source_version": trace.meta.source_version or None,
        "file": trace.meta.path or None,
        "simulated": trace.meta.simulated,
        "gpus": [analysis.device_name(row) for row in range(trace.rows("devices"))],
        "span_ns": extent.dur_ns if extent is not None else None,
        "resolution_ns": trace.meta.resolution_ns,
        "captured": [table for table in EVENT_TABLES if trace.rows(table)],
        "missing": {table: _reason(trace, table) for table in trace.missing if not trace.rows(table)},
        "warnings": [*trace.meta.warnings, *doubts(analysis)],
        "notes": list(trace.meta.notes),
    }


def _reason(trace: Trace, table: str) -> str:
    return trace.why_missing(table) or next(iter(trace.missing[table].values()))


def summarize(analysis: Analysis) -> dict[str, Any]:
    """All numbers of ``check``; those that need GPU rows are None or empty where there are none."""
    requests = analysis.requests
    facts = request_facts(requests)
    return {
        "window_ns": analysis.window.dur_ns if analysis.window else None,
        "window": _window(analysis),
        "devices": _devices(analysis),
        "busy_share_mean": _mean_busy_share(analysis),
        "stages": _stages(analysis),
        "steps": step_rows(analysis),
        **step_facts(analysis),
        "requests": len(requests),
        **token_times(requests),
        "request_facts": facts,
        "request_remarks": request_lines(facts),
        "counts": _counts(analysis),
        "launches": _launches(analysis),
        "calls": _calls(analysis),
        "copies": _copies(analysis),
        "ranges": _ranges(analysis),
        "peer_copies": _peer_copies(analysis),
        "collectives": collective_facts(analysis),
        "communication": communication_facts(analysis),
        **_idle(analysis),
    }


def token_times(requests: Requests) -> dict[str, dict[str, Any] | None]:
    """TTFT and TPOT of the complete requests that gave tokens; None without any."""
    timed = requests.complete & ~cancelled(requests)
    return {
        "ttft_ns": _spread(requests.ttft[timed & (requests.ttft >= 0)]),
        "tpot_ns": _spread(requests.tpot[timed & (requests.tpot >= 0)]),
    }


def _window(analysis: Analysis) -> dict[str, Any] | None:
    if analysis.window is None:
        return None
    return {
        "start_ns": analysis.window.start_ns,
        "end_ns": analysis.window.end_ns,
        "of": "selected" if analysis.selected else "first to last GPU row",
    }


def _devices(analysis: Analysis) -> list[dict[str, Any]]:
    return [
        {
            "device": device.device,
            "number": int(analysis.device_number[device.device]),
            "name": analysis.device_name(device.device),
            "busy_ns": device.busy_ns,
            "kernel_ns": device.kernel_ns,
            "copy_ns": device.copy_ns,
            "graph_ns": device.graph_ns,
            "idle_ns": device.idle_ns,
            "busy_share": device.busy_share,
            "kernel_sum_over_streams_ns": device.kernel_sum_ns,
        }
        for device in analysis.devices
    ]


def _mean_busy_share(analysis: Analysis) -> float | None:
    """Over the devices that have work; None without one."""
    shares = [device.busy_share for device in analysis.devices if device.busy_share is not None]
    return sum(shares) / len(shares) if shares else None


def _stages(analysis: Analysis) -> list[dict[str, Any]]:
    gpu = analysis.has_gpu_rows
    return [
        {
            "stage": stage.stage,
            "count": stage.count,
            "unclosed": stage.unclosed,
            **{f"host_p{p}_ns": stage.host(p) for p in PERCENTS},
            **{f"gpu_p{p}_ns": stage.gpu(p) for p in PERCENTS},
            "gpu_busy_ns": stage.gpu_busy_ns if gpu else None,
            "gpu_self_ns": stage.gpu_self_ns if gpu else None,
        }
        for stage in analysis.stages
    ]


def _spread(values: Array) -> dict[str, Any] | None:
    if not len(values):
        return None
    found = percentiles(values, PERCENTS)
    return {**{f"p{p}": value for p, value in zip(PERCENTS, found, strict=True)}, "n": len(values)}


def _counts(analysis: Analysis) -> dict[str, int]:
    inside = {table: analysis.begins_inside(table) for table in ("kernels", "copies", "graphs", "calls", "spans")}
    unclosed = (analysis.trace.array("spans", "flags") & FLAG_OPEN_END) != 0
    counts = {table: int(mask.sum()) for table, mask in inside.items()}
    counts["launch_calls"] = int((analysis.launch_calls & inside["calls"]).sum())
    return {**counts, "unclosed_spans": int((unclosed & inside["spans"]).sum())}


def _launches(analysis: Analysis) -> dict[str, Any]:
    """Launch calls and their kernels. A graph launch is one call for all of its kernels."""
    work = analysis.work
    length = analysis.call_end - analysis.trace.array("calls", "start_ns")
    inside = analysis.begins_inside("calls")
    graph = (analysis.call_kind == GRAPH_LAUNCH) & inside
    launched = np.flatnonzero((work.table == 0) & (work.call >= 0))
    by_graph = launched[graph[work.call[launched]]] if len(graph) else launched
    graph_host = int(length[graph].sum())
    single = (
        launched[analysis.launch_calls[work.call[launched]] & ~graph[work.call[launched]]] if len(graph) else launched
    )
    wait = work.start[single] - analysis.call_end[work.call[single]]
    return {
        "host_ns": int(length[analysis.launch_calls & inside].sum()) if len(length) else None,
        "graph_launches": int(graph.sum()),
        "graph_kernels": len(by_graph),
        "graph_host_ns": graph_host,
        "graph_host_ns_per_kernel": graph_host / len(by_graph) if len(by_graph) else None,
        "queue_wait_ns": _spread(wait[wait >= 0]),
        "kernels_without_call": int(((work.table == 0) & (work.call < 0)).sum()),
    }


def _calls(analysis: Analysis) -> list[dict[str, Any]]:
    """Calls by base name, most time first."""
    trace = analysis.trace
    rows_inside = analysis.begins_inside("calls") & (trace.array("calls", "name") >= 0)
    name = trace.array("calls", "name")[rows_inside]
    length = (analysis.call_end - trace.array("calls", "start_ns"))[rows_inside]
    call_kind = analysis.call_kind[rows_inside]
    groups: dict[str, list[int]] = {}
    for row in np.flatnonzero(np.bincount(name)) if len(name) else []:
        groups.setdefault(trace.name(int(row), "base"), []).append(int(row))
    total = np.bincount(name, length, minlength=trace.rows("names")) if len(name) else np.zeros(0)
    count = np.bincount(name, minlength=trace.rows("names")) if len(name) else np.zeros(0)
    kind = {base: CALL_KINDS[int(call_kind[np.argmax(name == rows[0])])] for base, rows in groups.items()}
    out: list[dict[str, Any]] = [
        {
            "name": base,
            "kind": kind[base],
            "count": int(sum(count[row] for row in rows)),
            "total_ns": int(sum(total[row] for row in rows)),
        }
        for base, rows in groups.items()
    ]
    return sorted(out, key=lambda item: (-item["total_ns"], item["name"]))[:_MOST_ROWS]


def _copies(analysis: Analysis) -> list[dict[str, Any]]:
    """Copies by direction and kind of memory. Host-to-host copies are listed here and are not GPU busy time."""
    trace = analysis.trace
    inside = analysis.begins_inside("copies")
    kind, src, dst = (trace.array("copies", c)[inside].astype(np.int64) for c in ("kind", "src_kind", "dst_kind"))
    key = (kind * 16 + src) * 16 + dst
    size, length = trace.array("copies", "bytes")[inside], trace.array("copies", "dur_ns")[inside]
    out = []
    for value in np.unique(key).tolist():
        rows = key == value
        out.append(
            {
                "kind": COPY_KINDS[value >> 8],
                "src": MEMORY_KINDS[(value >> 4) & 15],
                "dst": MEMORY_KINDS[value & 15],
                "count": int(rows.sum()),
                "bytes": int(size[rows & (size >= 0)].sum()) if (size[rows] >= 0).any() else None,
                "sum_ns": int(length[rows].sum()),
            }
        )
    return out


def _peer_copies(analysis: Analysis) -> list[dict[str, Any]]:
    """Copies from one GPU to another by the two; ``device`` is the row of devices, ``number`` as check prints it."""
    trace = analysis.trace
    rows = np.flatnonzero((trace.array("copies", "kind") == _P2P) & analysis.begins_inside("copies"))
    src, dst = (trace.array("copies", side)[rows].astype(np.int64) for side in ("src_device", "dst_device"))
    out = []
    for pair in np.unique((src + 1) << 32 | (dst + 1)).tolist():
        mine = rows[((src + 1) << 32 | (dst + 1)) == pair]
        size = trace.array("copies", "bytes")[mine]
        ends = ((pair >> 32) - 1, (pair & 0xFFFFFFFF) - 1)
        out.append(
            {
                **{f"{side}_device": row if row >= 0 else None for side, row in zip(("src", "dst"), ends, strict=True)},
                **{
                    f"{side}_number": int(analysis.device_number[row]) if row >= 0 else None
                    for side, row in zip(("src", "dst"), ends, strict=True)
                },
                "count": len(mine),
                "bytes": int(size[size >= 0].sum()) if (size >= 0).any() else None,
                "sum_ns": int(trace.array("copies", "dur_ns")[mine].sum()),
            }
        )
    return out


def _ranges(analysis: Analysis) -> list[dict[str, Any]]:
    """Ranges and annotations by domain and name, most time first; unclosed ones are not in the times."""
    trace = analysis.trace
    rows = np.flatnonzero(np.isin(trace.array("spans", "kind"), [0, 1, 6]) & analysis.begins_inside("spans"))
    if not len(rows):
        return []
    name = trace.array("spans", "name")[rows].astype(np.int64)
    domain = trace.array("spans", "domain")[rows].astype(np.int64)
    length = trace.array("spans", "dur_ns")[rows]
    closed = (trace.array("spans", "flags")[rows] & FLAG_OPEN_END) == 0
    keys, group = np.unique((domain + 1) * trace.rows("names") + name, return_inverse=True)
    total = np.zeros(len(keys), np.int64)
    np.add.at(total, group[closed], length[closed])
    whole, every = np.bincount(group[closed], minlength=len(keys)), np.bincount(group, minlength=len(keys))
    order = np.lexsort((keys, -total))[:_MOST_ROWS]
    launches = kernel_launches(trace, analysis.work)
    kernels = range_kernels(trace, launches, [rows[group == i] for i in order.tolist()])
    return [
        {
            "domain": trace.name(int(keys[i] // trace.rows("names")) - 1) or None,
            "name": trace.name(int(keys[i] % trace.rows("names"))),
            "count": int(whole[i]),
            "unclosed": int(every[i] - whole[i]),
            "total_ns": int(total[i]),
            "kernels": found.own if analysis.has_gpu_rows else None,
            "kernels_of_other_threads": found.others if analysis.has_gpu_rows else None,
            "other_threads": list(found.threads),
        }
        for i, found in zip(order.tolist(), kernels, strict=True)
    ]


def _idle(analysis: Analysis) -> dict[str, Any]:
    """Idle time of all devices by cause; by the stage of what ends it; and of a mean counted step of the main kind."""
    if not analysis.has_gpu_rows:
        return {"idle_by_cause": None, "idle_by_stage": None, "idle_per_step": None}
    steps = analysis.counted_steps()
    per_step = None
    if steps.count:
        sums = {cause: int(values[:-1][steps.mask].sum()) for cause, values in idle_by_step(analysis).items()}
        per_step = {cause: (2 * ns + steps.count) // (2 * steps.count) for cause, ns in sums.items() if ns}
    return {
        "idle_by_cause": analysis.idle.by_cause(),
        "idle_by_stage": {stage or "none": causes for stage, causes in idle_by_stage(analysis).items()},
        "idle_per_step": per_step,
    }
