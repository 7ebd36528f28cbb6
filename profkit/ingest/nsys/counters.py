"""Sampled GPU metrics of an nsys export."""

from __future__ import annotations

import re

import numpy as np

from profkit.arrays import key_of, numbered
from profkit.builder import Builder
from profkit.ingest.nsys.identity import Identity, whole
from profkit.ingest.nsys.rows import LATEST_NS
from profkit.ingest.nsys.source import Source, floats, ints, small, times
from profkit.model import Array

GPU_METRICS = "GPU_METRICS"
METRIC_NAMES = "TARGET_INFO_GPU_METRICS"
_COLUMNS = {
    "time": times("timestamp", "start", required=True),
    "type": ints("typeId"),
    "metric": small("metricId", required=True),
    "value": floats("value", required=True),
}
_FASTEST_CLOCK_MHZ = 100_000
"""No GPU clock: rows labelled MHz beyond it are in Hz."""


def read_gpu_metrics(source: Source, builder: Builder, identity: Identity) -> None:
    """One counter a metric name, one track a GPU. Metric ids differ between GPUs and versions: names do not."""
    rows = source.fetch(GPU_METRICS, _COLUMNS)
    if rows is None or not len(rows["time"]):
        return
    sound = (np.abs(rows["time"]) < LATEST_NS) & np.isfinite(rows["value"])
    if not sound.all():
        source.warnings.append(f"{GPU_METRICS}: {int((~sound).sum())} rows without a time or a value were left out")
        rows = {key: values[sound] for key, values in rows.items()}
    names = {
        (whole(row.get("typeId")), whole(row.get("metricId"))): str(row.get("metricName") or "")
        for row in source.small_table(METRIC_NAMES)
    }
    kind = rows.get("type", np.full(len(rows["time"]), -1, np.int64))
    _, first, inverse = numbered(key_of(kind, rows["metric"]))
    counter = np.empty(len(first), np.int64)
    track = np.empty(len(first), np.int64)
    for i, row in enumerate(first.tolist()):
        type_id, metric = int(kind[row]), int(rows["metric"][row])
        name = names.get((type_id, metric)) or f"metric {metric}"
        counter[i] = _counter(builder, name, rows["value"][inverse == i])
        track[i] = identity.counter_track(type_id & 0xFF)
    order = np.lexsort((rows["time"], inverse))
    inverse = inverse[order]
    builder.add(
        "counters",
        counter=counter[inverse],
        track=track[inverse],
        time_ns=rows["time"][order],
        value=rows["value"][order],
    )


def _counter(builder: Builder, name: str, values: Array) -> int:
    return builder.dimension(
        "counter_names", name, name=name, unit=_unit(name, values), scope="device", source="nsys GPU metrics"
    )


def _unit(name: str, values: Array) -> str:
    """What stands in brackets behind the name: ``SMs Active [Throughput %]`` is in %."""
    match = re.search(r"\[(?:[A-Za-z ]+ )?([^\s\]]+)\]\s*$", name)
    unit = match[1] if match else ""
    return "Hz" if unit == "MHz" and len(values) and float(values.max()) > _FASTEST_CLOCK_MHZ else unit
