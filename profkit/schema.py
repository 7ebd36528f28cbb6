"""Every table of a Trace: its columns, each with a dtype, a unit and a sentence.

Conventions (design: "The Trace"): no nulls, absent is -1 or ""; times are int64 ns since the origin of the trace; names
are int32 rows of ``names``; a code column is int8 and lists its words in ``labels``.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

STAGES = ("request", "schedule", "tokenize", "h2d", "prefill", "decode", "kv_update", "sample", "detokenize")
COPY_KINDS = (
    "h2d", "d2h", "d2d", "p2p", "h2h", "array", "um_h2d", "um_d2h", "um_d2d", "memset", "unknown",
)  # fmt: skip
MEMORY_KINDS = ("pageable", "pinned", "device", "array", "managed", "unknown")
SYNC_KINDS = ("event", "stream", "stream_wait", "context")
SPAN_KINDS = ("push_pop", "start_end", "mark", "op", "module", "python", "annotation")
PAYLOAD_KINDS = ("none", "int", "uint", "float", "text", "schema")
TRACK_KINDS = ("stream", "thread", "process", "device", "counter")
STREAM_KINDS = ("default", "non_blocking", "null")
LAUNCH_KINDS = ("regular", "cooperative")
APIS = ("runtime", "driver")
STEP_KINDS = ("prefill", "decode", "mixed", "other")

FLAG_OPEN_START = 1
FLAG_OPEN_END = 2
FLAG_CLIPPED = 4
FLAG_REPAIRED = 8
FLAG_BEFORE_ITS_LAUNCH = 16
FLAG_OVERLAPS_NEXT = 32
FLAG_SIMULATED = 64
FLAG_LATE_END = 128
FLAGS = {
    "open_start": FLAG_OPEN_START,
    "open_end": FLAG_OPEN_END,
    "clipped": FLAG_CLIPPED,
    "repaired": FLAG_REPAIRED,
    "before_its_launch": FLAG_BEFORE_ITS_LAUNCH,
    "overlaps_next": FLAG_OVERLAPS_NEXT,
    "simulated": FLAG_SIMULATED,
    "late_end": FLAG_LATE_END,
}
NOT_WHOLE = FLAG_OPEN_START | FLAG_OPEN_END | FLAG_CLIPPED
"""Rows with one of these flags have no length of their own: they are drawn, not counted."""


@dataclass(frozen=True)
class Column:
    """One column: its name carries the unit where it has one, ``doc`` says what it is."""

    name: str
    type: pa.DataType
    unit: str
    doc: str
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Table:
    """One table: ``kind`` is dimension, event, long or derived."""

    name: str
    kind: str
    doc: str
    columns: tuple[Column, ...]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(c.name, c.type, nullable=False) for c in self.columns])

    def column(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(f"table {self.name} has no column {name}")


def _text(name: str, doc: str) -> Column:
    return Column(name, pa.string(), "", doc)


def _ns(name: str, doc: str) -> Column:
    return Column(name, pa.int64(), "ns", doc)


def _bytes(name: str, doc: str) -> Column:
    return Column(name, pa.int64(), "bytes", doc)


def _int(name: str, doc: str, unit: str = "") -> Column:
    return Column(name, pa.int32(), unit, doc)


def _long(name: str, doc: str, unit: str = "") -> Column:
    return Column(name, pa.int64(), unit, doc)


def _float(name: str, doc: str, unit: str = "") -> Column:
    return Column(name, pa.float64(), unit, doc)


def _flag(name: str, doc: str) -> Column:
    return Column(name, pa.bool_(), "", doc)


def _code(name: str, labels: tuple[str, ...], doc: str) -> Column:
    return Column(name, pa.int8(), "code", doc, labels)


def _row(name: str, table: str, doc: str = "") -> Column:
    return Column(name, pa.int32(), f"row of {table}", doc or f"Row of {table}, -1 if not known.")


def _dimension(name: str, doc: str, *columns: Column) -> Table:
    return Table(name, "dimension", doc, columns)


def _event(name: str, doc: str, *columns: Column) -> Table:
    common = (
        _long("id", "Row number after the sort (start_ns, -dur_ns, track, source row); survives filters and windows."),
        _ns("start_ns", "Start."),
        _ns("dur_ns", "Length; never negative."),
        _row("track", "tracks", "The lane it is drawn on."),
        _int(
            "flags",
            "Bits, from 1: open_start, open_end, clipped, repaired, before_its_launch, overlaps_next, simulated, "
            "late_end.",
        ),
    )
    return Table(name, "event", doc, common + columns)


def _derived(name: str, doc: str, *columns: Column) -> Table:
    return Table(name, "derived", doc, columns)


_PROCESS = _row("process", "processes")
_NAME = _row("name", "names")
_CORRELATION = _long("correlation", "Joins a device row and its call, within one process; -1 if absent.")
_GRAPH = _long("graph", "CUDA graph id, -1 outside a graph or where the source has none.")
_GRAPH_NODE = _long("graph_node", "CUDA graph node id, -1 outside a graph.")

_ALL = (
    _dimension(
        "names",
        "A distinct text: kernel, call or range name.",
        _text("text", "The text as the source has it."),
        _text("base", "Without an API version suffix such as _v3020 or _ptsz."),
        _text("short", "Short form: a kernel without its template arguments and parameters; otherwise the base."),
        _text("mangled", "Mangled symbol where the source has one."),
        _text("family", "Kernel family: gemm, attention, norm, ...; empty for other names."),
    ),
    _dimension(
        "hosts",
        "A machine.",
        _text("hostname", "Host name; empty in captures that hold none."),
        _text("clock", "Clock of the timestamps: session, boottime, realtime or unknown."),
        _ns("offset_ns", "Added to the host's times to reach the first host's; 0 for one host."),
        _ns("offset_error_ns", "Uncertainty of offset_ns; 0 for one host, -1 if never aligned."),
    ),
    _dimension(
        "processes",
        "A process that has events.",
        _row("host", "hosts"),
        _long("pid", "Process id in its own namespace; the key is the row, never the pid."),
        _text("name", "Program name."),
        _int("rank", "Rank in the job, -1 if not known."),
        _int("local_rank", "Rank on the host, -1 if not known."),
        _int("world_size", "Ranks in the job, -1 if not known."),
        _flag("gpu_rows", "Whether any of its GPU work was recorded."),
    ),
    _dimension(
        "devices",
        "A GPU or a MIG instance.",
        _row("host", "hosts"),
        _text("uuid", "UUID without its prefix; empty if the source has none."),
        _text("mig", "MIG instance; empty for a whole GPU."),
        _text("name", "Product name; empty if the source has none."),
        _text("bus", "PCI bus location."),
        _int("sm_count", "Streaming multiprocessors, -1 if not known."),
        _bytes("memory_bytes", "Device memory, -1 if not known."),
        _long("memory_bytes_per_s", "Theoretical memory bandwidth, -1 if not known.", "bytes/s"),
        _long("clock_hz", "Boost clock, -1 if not known.", "1/s"),
    ),
    _dimension(
        "tracks",
        "A lane of the timeline.",
        _code("kind", TRACK_KINDS, "What the lane stands for."),
        _row("host", "hosts"),
        _PROCESS,
        _row("device", "devices", "Row of devices (never the ordinal), -1 for a host lane."),
        _int("ordinal", "CUDA device ordinal in its process, -1 for a host lane."),
        _int("context", "CUDA context id, -1 if none."),
        _int("green_context", "Green context id, -1 if none."),
        _long("stream", "CUDA stream id, -1 for a host lane."),
        _int("stream_priority", "Stream priority (lower runs first); see stream_priority_known."),
        _flag("stream_priority_known", "Whether stream_priority was recorded: -1 is a legal priority."),
        _code("stream_kind", STREAM_KINDS, "How the stream was made, -1 if not known."),
        _long("tid", "Thread id, -1 for a device lane."),
        _text("label", "What to write beside the lane."),
    ),
    _event(
        "kernels",
        "A kernel execution.",
        _NAME,
        _PROCESS,
        _CORRELATION,
        *(
            _int(f"{what}_{axis}", f"{what} size, {axis}; -1 if not known.")
            for what in ("grid", "block", "cluster")
            for axis in "xyz"
        ),
        _int("registers", "Registers a thread, -1 if not known."),
        _bytes("static_smem_bytes", "Static shared memory a block, -1 if not known."),
        _bytes("dynamic_smem_bytes", "Dynamic shared memory a block, -1 if not known."),
        _bytes("local_bytes", "Local memory in all, -1 if not known."),
        _code("launch_kind", LAUNCH_KINDS, "Kind of launch, -1 if not known."),
        _GRAPH,
        _GRAPH_NODE,
    ),
    _event(
        "copies",
        "A memory copy, a memset or a unified-memory migration.",
        _PROCESS,
        _code("kind", COPY_KINDS, "Direction."),
        _bytes("bytes", "Bytes moved or set, -1 if not known."),
        _code("src_kind", MEMORY_KINDS, "Memory it reads; unknown for a memset."),
        _code("dst_kind", MEMORY_KINDS, "Memory it writes."),
        _row("src_device", "devices"),
        _row("dst_device", "devices"),
        _CORRELATION,
        _GRAPH,
        _GRAPH_NODE,
        _int("cause", "Cause of a unified-memory migration as the source codes it, -1 if none."),
        _long("address", "Virtual base address of a unified-memory migration, -1 if none."),
    ),
    _event(
        "graphs",
        "A CUDA graph launch recorded as one piece: the kernels inside are not visible.",
        _PROCESS,
        _CORRELATION,
        _GRAPH,
        _long("graph_exec", "Executable graph id, -1 if not known."),
    ),
    _event(
        "calls",
        "A CUDA runtime or driver call on its host thread.",
        _NAME,
        _code("api", APIS, "Which API."),
        _PROCESS,
        _CORRELATION,
        _int("return_code", "0 is success; -1 if not known."),
        _long("stack", "Row of stacks, -1 if none."),
    ),
    _event(
        "syncs",
        "A synchronisation as the driver reports it, on its stream's lane; without a stream on its thread's.",
        _code("kind", SYNC_KINDS, "What was waited for, by the name of the call first and the source's code second."),
        _PROCESS,
        _CORRELATION,
        _row("thread_track", "tracks"),
        _row("stream_track", "tracks"),
        _long("event", "CUDA event id, -1 if none."),
        _long("event_sync", "Id of this record of the event, -1 if none."),
    ),
    _event(
        "spans",
        "A range or a mark on a host thread: NVTX, PyTorch operator, module, Python function, annotation.",
        _NAME,
        _code("kind", SPAN_KINDS, "What made it."),
        _row("domain", "names", "NVTX domain, -1 for the default one."),
        _row("category", "names", "NVTX category, -1 for none."),
        _row("end_track", "tracks", "Lane on which it ended."),
        _int("depth", "Number of spans of its thread around it; 0 for start_end ranges and marks."),
        _long("parent", "Row of the span around it on its thread, -1 for none."),
        _code("payload_kind", PAYLOAD_KINDS, "Which payload column holds a value."),
        _long("payload_int", "Integer payload; meaningful where payload_kind says so."),
        _float("payload_float", "Float payload."),
        _text("payload_text", "Text payload, or an unsigned integer over 2^63 in digits."),
        _code("stage", STAGES, "Stage of an inference step, -1 for none."),
    ),
    _event(
        "collectives",
        "A collective operation, from its range and its kernel.",
        _long("span", "Row of spans, -1 if none."),
        _long("kernel", "Row of kernels, -1 if none; operations of one NCCL group may share it."),
        _NAME,
        _text("operation", "all_reduce, all_gather, ...; empty if not known."),
        _bytes("bytes", "Message size, -1 if not known."),
        _text("communicator", "Communicator id in digits; empty if not known."),
        _int("rank", "Rank in the communicator, -1 if not known."),
        _int("peer", "Peer of a point-to-point operation, -1 if none."),
    ),
    _event(
        "os_calls",
        "An operating system call that took longer than the profiler's threshold.",
        _NAME,
        _int("event_class", "The source's own class: 27 is a call; others are zero-length bookkeeping."),
        _long("return_code", "Return value, -1 if not known."),
        _PROCESS,
    ),
    _event(
        "overheads",
        "Time that the profiler or the driver took for itself.",
        _NAME,
        _PROCESS,
        _text("kind", "What for: driver_jit, module_loading, buffer_flush, ...; otherwise profiler or driver."),
    ),
    _event(
        "gpu_events",
        "A CUDA event record.",
        _PROCESS,
        _CORRELATION,
        _long("event", "CUDA event id."),
        _long("event_sync", "Id of this record, -1 if none."),
        _flag(
            "device_time", "Whether start_ns was taken on the device; otherwise it is the start of the recording call."
        ),
    ),
    _event(
        "graph_events",
        "Creation, instantiation or cloning of a CUDA graph or of a node.",
        _PROCESS,
        _text("kind", "graph, exec, clone, node or update (of a node of an executable graph)."),
        _GRAPH,
        _long("graph_exec", "Executable graph id, -1 if none."),
        _GRAPH_NODE,
        _long("original_node", "Node that it was cloned from, -1 if none."),
        _long("original_graph", "Graph that it was cloned from, -1 if none."),
    ),
    _event(
        "allocs",
        "A device memory allocation or release.",
        _row("device", "devices"),
        _PROCESS,
        _long("address", "Address."),
        _bytes("bytes", "Size."),
        _text("operation", "alloc or free."),
        _text("pool", "Memory pool, empty if none."),
    ),
    Table(
        "counters",
        "long",
        "A sampled value.",
        (
            _row("counter", "counter_names"),
            _row("track", "tracks"),
            _ns("time_ns", "Sample time."),
            _float("value", "Value in the counter's unit."),
        ),
    ),
    _dimension(
        "counter_names",
        "A counter.",
        _text("name", "Name as the source has it."),
        _text("unit", "Unit, empty if not known."),
        _text("scope", "device, process or system."),
        _text("source", "Where it was sampled."),
    ),
    Table(
        "args",
        "long",
        "A further property of an event that few traces have.",
        (
            _text("table", "Event table."),
            _long("row", "Its row."),
            _text("key", "Property."),
            _text("value", "Value as text."),
        ),
    ),
    Table(
        "stacks",
        "long",
        "A frame of a call stack.",
        (_long("stack", "Stack id."), _int("depth", "0 is the leaf."), _NAME, _text("module", "Library or file.")),
    ),
    Table(
        "samples",
        "long",
        "A CPU sample.",
        (_ns("time_ns", "Sample time."), _row("track", "tracks"), _long("stack", "Row of stacks, -1 if none.")),
    ),
    Table(
        "sched",
        "long",
        "A thread put on a CPU or taken off it.",
        (
            _ns("time_ns", "When."),
            _row("track", "tracks"),
            _int("cpu", "CPU, -1 if not known."),
            _flag("running", "True when it starts to run."),
        ),
    ),
    _derived(
        "launches",
        "A device row and the call that caused it, joined on (process, correlation), one to many.",
        _text("table", "kernels, copies or graphs."),
        _long("row", "Row of that table."),
        _long("call", "Row of calls, -1 if the call was not recorded."),
        _ns(
            "queue_ns",
            "Start of the device row minus end of the call; negative where it began earlier; 0 without a call.",
        ),
    ),
    _derived(
        "steps",
        "One iteration of one engine process.",
        _PROCESS,
        _int("index", "Number of the step in its process, from 0."),
        _code("kind", STEP_KINDS, "What it ran."),
        _ns("host_start_ns", "Start of its range or of its first launch, -1 if not known."),
        _ns("host_end_ns", "End of its range, or the next start where steps were found; -1 if not known."),
        _ns("gpu_start_ns", "Start of the first device row it launched, -1 if none."),
        _ns("gpu_end_ns", "End of the last device row it launched, -1 if none."),
        _ns("period_ns", "gpu_end_ns minus the previous step's, -1 without one."),
        _long("batch", "Sequences, -1 if not known."),
        _long("prefill_tokens", "Tokens prefilled, -1 if not known."),
        _long("decode_tokens", "Tokens decoded, -1 if not known."),
        _flag("warm_up", "Left out of percentiles."),
        _flag("complete", "Whole, inside the capture."),
        _long("span", "Row of spans that opens it, -1 if none does."),
    ),
    _derived(
        "requests",
        "One request.",
        _PROCESS,
        _long("request", "Request id, -1 if not known."),
        _ns("arrival_ns", "Start of its range."),
        _ns("first_token_ns", "First token, -1 if not seen."),
        _ns("end_ns", "End of its range, -1 if still open."),
        _long("prompt_tokens", "Prompt length, -1 if not known."),
        _long("output_tokens", "Tokens generated, -1 if not known."),
        _ns("ttft_ns", "first_token_ns - arrival_ns, -1 if not known."),
        _ns("tpot_ns", "(end_ns - first_token_ns) / (output_tokens - 1), half up; -1 if not known."),
        _flag("complete", "Whole, inside the capture."),
    ),
    _derived(
        "step_requests",
        "Which step worked for which request.",
        _long("step", "Row of steps."),
        _long("request", "Row of requests."),
    ),
    _derived(
        "idle",
        "A piece of time in which a device did nothing, with its one cause.",
        _row("device", "devices"),
        _ns("start_ns", "Start."),
        _ns("dur_ns", "Length."),
        _text("cause", "Key of idle_by_cause."),
        _long("step", "Row of steps whose operation ends it, -1 if none."),
        _long("launch", "Row of launches that ends it, -1 if none."),
    ),
    _derived(
        "findings",
        "What the rules found.",
        _text("code", "Rule."),
        _text("key", "code:device:kind:name, stable between runs."),
        _text("severity", "info, warning or critical."),
        _ns("cost_ns", "Time it costs, -1 if not known."),
        _ns("saving_ns", "Time that a fix would give back, -1 if not known."),
        _text("message", "One sentence."),
    ),
)

TABLES: dict[str, Table] = {table.name: table for table in _ALL}
EVENT_TABLES = tuple(table.name for table in _ALL if table.kind == "event")
CAPTURE_TABLES = tuple(name for name in EVENT_TABLES if name != "graph_events")
"""Event tables whose rows lie inside the capture; a graph that is launched in it may have been made long before."""
OPTIONAL_TABLES = ("gpu_events", "allocs", "counters", "samples", "sched")
"""Tables that profilers fill only when asked to: most captures lack them."""
DEVICE_TABLES = ("kernels", "copies", "graphs")
"""Event tables whose rows are work of a device."""
