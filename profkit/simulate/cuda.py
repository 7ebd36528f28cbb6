"""CUDA calls that launch, order and wait: kernels, graphs, events, synchronisation, collectives, module loading.

Each function returns an instruction for a host's program. A call submits its work when three quarters of its own time
have passed; ``after`` is the thread's own work before the call, ns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from profkit.simulate import causes
from profkit.simulate.device import (
    COLLECTIVE,
    KERNEL,
    MARK,
    WAIT,
    GraphRun,
    Kernel,
    Meeting,
    Op,
    Stream,
    Waiter,
    depend,
)
from profkit.simulate.hardware import QUEUE_ENTRIES
from profkit.simulate.host import Host, Instruction

LAUNCH_KERNEL = "cudaLaunchKernel_v7000"
LAUNCH_KERNEL_EX = "cudaLaunchKernelExC_v11060"
GRAPH_LAUNCH = "cudaGraphLaunch_v10000"
EVENT_RECORD = "cudaEventRecord_v3020"
EVENT_QUERY = "cudaEventQuery_v3020"
EVENT_SYNCHRONIZE = "cudaEventSynchronize_v3020"
STREAM_WAIT_EVENT = "cudaStreamWaitEvent_v3020"
STREAM_SYNCHRONIZE = "cudaStreamSynchronize_v3020"
DEVICE_SYNCHRONIZE = "cudaDeviceSynchronize_v3020"
BEGIN_CAPTURE = "cudaStreamBeginCapture_v10000"
END_CAPTURE = "cudaStreamEndCapture_v10000"
GRAPH_INSTANTIATE = "cudaGraphInstantiate_v12000"
MODULE_LOAD = "cuModuleLoadData"
LIBRARY_LOAD = "cuLibraryLoadData"

SYNC_EVENT, SYNC_STREAM_WAIT, SYNC_STREAM, SYNC_CONTEXT = 1, 2, 3, 4
"""syncType of an nsys export."""


class Event:
    """A CUDA event: it stands for the mark that was last recorded."""

    __slots__ = ("mark", "number")

    def __init__(self) -> None:
        self.mark: Op | None = None
        self.number = 0

    def numbered(self, host: Host) -> int:
        """The event's id in its process, given at first use."""
        if not self.number:
            host.process.event_ids += 1
            self.number = host.process.event_ids
        return self.number


@dataclass(frozen=True)
class Node:
    """A kernel of a graph, with its id as created during the capture."""

    kernel: Kernel
    dur: int
    original: int


@dataclass
class Graph:
    """An instantiated graph: a chain of kernels. ``whole``: its launches are recorded as one piece."""

    nodes: list[Node]
    graph: int
    exec_id: int = 0
    whole: bool = False
    node_ids: list[int] = field(default_factory=list)


def launch(stream: Stream, kernel: Kernel, dur: int, after: int = 0, pdl: bool = False) -> Instruction:
    """Launch a kernel of ``dur`` ns; ``pdl``: as a programmatic dependent of the one before it."""
    return (after, _launch, stream, kernel, dur, pdl)


def launch_free(stream: Stream, kernel: Kernel, dur: int, chain: GraphRun) -> Instruction:
    """A kernel without what its launch costs: no time of the host, and behind the one before as if in one graph.

    It prices launches and stands in no trace. ``chain`` is the same for all kernels that belong together.
    """
    return (0, _launch_free, stream, kernel, dur, chain)


def _launch_free(host: Host, instruction: Instruction) -> bool:
    _, _, stream, kernel, dur, chain = instruction
    op = Op(KERNEL, stream, host, 0, host.now, dur)
    op.call_end = host.now
    op.kernel = kernel
    op.share = kernel.share
    op.graph = chain
    op.entry = 0
    stream.device.submit(op)
    return False


def _launch(host: Host, instruction: Instruction) -> bool:
    stream: Stream = instruction[2]
    if stream.capture is not None:
        _capture_launch(host, stream, instruction[3], instruction[4])
        return False
    if stream.depth >= QUEUE_ENTRIES:
        _block_on_queue(host, instruction, stream)
        return True
    hardware = host.hardware
    start = host.now
    cost = host.cost(hardware.launch_kernel_ns)
    name = LAUNCH_KERNEL_EX if instruction[5] else LAUNCH_KERNEL
    correlation = host.called(name, start, start + cost, causes.LAUNCH)
    _submit_kernel(host, instruction, correlation, start, cost)
    return False


def _submit_kernel(host: Host, instruction: Instruction, correlation: int, start: int, cost: int) -> None:
    _, _, stream, kernel, dur, pdl = instruction
    op = Op(KERNEL, stream, host, correlation, start + (cost * 3 >> 2) + host.hardware.launch_latency_ns, dur)
    op.call_end = start + cost
    op.kernel = kernel
    op.share = kernel.share
    op.pdl = pdl
    stream.device.submit(op)


def _block_on_queue(host: Host, instruction: Instruction, stream: Stream) -> None:
    """The call waits for an entry of the launch queue and then does its work."""
    correlation = host.opened(causes.LAUNCH)
    is_graph = instruction[1] is _launch_graph

    def go_on(now: int) -> None:
        nodes = len(instruction[3].nodes) if is_graph else 0
        cost = host.cost(_graph_cost(host, nodes) if is_graph else host.hardware.launch_kernel_ns)
        name = GRAPH_LAUNCH if is_graph else LAUNCH_KERNEL_EX if instruction[5] else LAUNCH_KERNEL
        host.closed(name, correlation, now + cost)
        if is_graph:
            _submit_graph(host, instruction, correlation, now, cost)
        else:
            _submit_kernel(host, instruction, correlation, now, cost)
        host.resume(now + cost)

    stream.full.append(go_on)


# Graphs


def begin_capture(stream: Stream, after: int = 0) -> Instruction:
    """From here on launches on ``stream`` become nodes; nothing is executed."""
    return (after, _begin_capture, stream)


def _begin_capture(host: Host, instruction: Instruction) -> bool:
    instruction[2].capture = []
    host.called(BEGIN_CAPTURE, host.now, host.now + host.cost(host.hardware.capture_ns), causes.PYTHON)
    return False


def _capture_launch(host: Host, stream: Stream, kernel: Kernel, dur: int) -> None:
    start = host.now
    cost = host.cost(host.hardware.captured_launch_ns)
    host.called(LAUNCH_KERNEL, start, start + cost, causes.LAUNCH)
    process = host.process
    process.node_ids += 1
    assert stream.capture is not None
    stream.capture.append(Node(kernel, dur, process.node_ids))
    recorder = host.simulation.recorder
    if recorder is not None:
        recorder.nodes.append((start + cost // 2, start + cost // 2, host, process.node_ids, -1))


def end_capture(stream: Stream, after: int = 0) -> Instruction:
    """The captured nodes are then in ``host.value``, as a Graph that cannot be launched yet."""
    return (after, _end_capture, stream)


def _end_capture(host: Host, instruction: Instruction) -> bool:
    stream: Stream = instruction[2]
    host.process.graph_ids += 1
    host.value = Graph(stream.capture or [], host.process.graph_ids)
    stream.capture = None
    host.called(END_CAPTURE, host.now, host.now + host.cost(host.hardware.capture_ns), causes.PYTHON)
    return False


def instantiate(graph: Graph, whole: bool = False, after: int = 0) -> Instruction:
    """Make a captured graph executable. An instance has node ids of its own."""
    return (after, _instantiate, graph, whole)


def _instantiate(host: Host, instruction: Instruction) -> bool:
    graph: Graph = instruction[2]
    hardware, process, start = host.hardware, host.process, host.now
    cost = host.cost(hardware.graph_instantiate_ns + hardware.graph_instantiate_ns_per_node * len(graph.nodes))
    host.called(GRAPH_INSTANTIATE, start, start + cost, causes.MODULE_LOAD)
    process.graph_ids += 1
    graph.exec_id, graph.whole = process.graph_ids, instruction[3]
    first = process.node_ids + 1
    process.node_ids += len(graph.nodes)
    graph.node_ids = list(range(first, process.node_ids + 1))
    recorder = host.simulation.recorder
    if recorder is not None:
        at = start + cost // 2
        recorder.nodes += [
            (at, at, host, node, old.original) for node, old in zip(graph.node_ids, graph.nodes, strict=True)
        ]
    return False


def launch_graph(stream: Stream, graph: Graph, durs: Sequence[int] | None = None, after: int = 0) -> Instruction:
    """Launch an instantiated graph; ``durs`` are the lengths of its kernels this time, ns."""
    return (after, _launch_graph, stream, graph, durs)


def _graph_cost(host: Host, nodes: int) -> int:
    return host.hardware.graph_launch_ns + host.hardware.graph_launch_ns_per_node * nodes


def _launch_graph(host: Host, instruction: Instruction) -> bool:
    stream: Stream = instruction[2]
    if stream.depth >= QUEUE_ENTRIES:
        _block_on_queue(host, instruction, stream)
        return True
    start = host.now
    cost = host.cost(_graph_cost(host, len(instruction[3].nodes)))
    correlation = host.called(GRAPH_LAUNCH, start, start + cost, causes.LAUNCH)
    _submit_graph(host, instruction, correlation, start, cost)
    return False


def _submit_graph(host: Host, instruction: Instruction, correlation: int, start: int, cost: int) -> None:
    """All nodes at once: one entry of the queue, one correlation id."""
    _, _, stream, graph, durs = instruction
    arrival = start + (cost * 3 >> 2) + host.hardware.graph_startup_ns
    run = GraphRun(graph.graph, graph.exec_id, len(graph.nodes), graph.whole)
    submit = stream.device.submit
    for i, node in enumerate(graph.nodes):
        op = Op(KERNEL, stream, host, correlation, arrival, durs[i] if durs is not None else node.dur)
        op.call_end = start + cost
        op.kernel = node.kernel
        op.share = node.kernel.share
        op.graph = run
        op.node = graph.node_ids[i]
        if i:
            op.entry = 0
        else:
            op.startup = True
        submit(op)


# Events and synchronisation


def record_event(stream: Stream, event: Event, after: int = 0) -> Instruction:
    return (after, _record_event, stream, event)


def _record_event(host: Host, instruction: Instruction) -> bool:
    _, _, stream, event = instruction
    start = host.now
    cost = host.cost(host.hardware.event_record_ns)
    correlation = host.called(EVENT_RECORD, start, start + cost, causes.LAUNCH)
    event.mark = mark = Op(
        MARK, stream, host, correlation, start + (cost * 3 >> 2) + host.hardware.launch_latency_ns, 0
    )
    mark.call_end = start + cost
    stream.device.submit(mark)
    recorder = host.simulation.recorder
    if recorder is not None:
        recorder.events.append((stream, correlation, host, event.numbered(host)))
    return False


def wait_event(stream: Stream, event: Event, after: int = 0) -> Instruction:
    """cudaStreamWaitEvent: what is submitted to ``stream`` from here on waits for the event."""
    return (after, _wait_event, stream, event)


def _wait_event(host: Host, instruction: Instruction) -> bool:
    _, _, stream, event = instruction
    start = host.now
    cost = host.cost(host.hardware.stream_wait_event_ns)
    correlation = host.called(STREAM_WAIT_EVENT, start, start + cost, causes.LAUNCH)
    op = Op(WAIT, stream, host, correlation, start + (cost * 3 >> 2) + host.hardware.launch_latency_ns, 0)
    op.call_end = start + cost
    if event.mark is not None and event.mark.stream is not stream:
        depend(op, event.mark)
    stream.device.submit(op)
    _note_sync(host, start, start + cost, stream, correlation, SYNC_STREAM_WAIT, event)
    return False


def query_event(event: Event, after: int = 0) -> Instruction:
    """cudaEventQuery: whether the event has happened is then in ``host.value``."""
    return (after, _query_event, event)


def _query_event(host: Host, instruction: Instruction) -> bool:
    event: Event = instruction[2]
    start, cost = host.now, host.cost(host.hardware.event_query_ns)
    host.value = event.mark is None or event.mark.done
    host.called(EVENT_QUERY, start, start + cost, causes.SYNC)
    return False


def synchronize_event(event: Event, after: int = 0) -> Instruction:
    return (after, _synchronize_event, event)


def synchronize_stream(stream: Stream, after: int = 0) -> Instruction:
    return (after, _synchronize_stream, stream)


def synchronize_device(after: int = 0) -> Instruction:
    """Wait for all streams of the process on its device."""
    return (after, _synchronize_device)


def _synchronize_event(host: Host, instruction: Instruction) -> bool:
    event: Event = instruction[2]
    marks = [event.mark] if event.mark is not None else []
    stream = event.mark.stream if event.mark is not None else host.process.default
    return _synchronize(host, EVENT_SYNCHRONIZE, marks, stream, SYNC_EVENT, event)


def _synchronize_stream(host: Host, instruction: Instruction) -> bool:
    stream: Stream = instruction[2]
    return _synchronize(host, STREAM_SYNCHRONIZE, outstanding([stream]), stream, SYNC_STREAM)


def _synchronize_device(host: Host, instruction: Instruction) -> bool:
    return _synchronize(host, DEVICE_SYNCHRONIZE, outstanding(host.process.streams), None, SYNC_CONTEXT)


def outstanding(streams: Sequence[Stream]) -> list[Op]:
    """The last operation of each stream that has not ended."""
    return [stream.tail for stream in streams if stream.tail is not None and not stream.tail.done]


def _synchronize(
    host: Host, name: str, ops: list[Op], stream: Stream | None, kind: int, event: Event | None = None
) -> bool:
    start = host.now
    least = start + host.cost(host.hardware.synchronize_ns)
    ops = [op for op in ops if not op.done]
    correlation = host.opened(causes.SYNC)

    def wake(now: int) -> None:
        end = max(now + (0 if host.free else host.hardware.wake_up_ns), least) if ops else least
        host.closed(name, correlation, end)
        _note_sync(host, start, end, stream, correlation, kind, event)
        host.resume(end)

    wait_for(ops, wake, start)
    return True


def wait_for(ops: Sequence[Op], wake: Callable[[int], None], now: int) -> None:
    """Call ``wake`` with the time of the last end; at once where nothing is outstanding."""
    if not ops:
        wake(now)
        return
    waiter = Waiter(len(ops), wake)
    for op in ops:
        if op.waiters is None:
            op.waiters = []
        op.waiters.append(waiter)


def _note_sync(
    host: Host, start: int, end: int, stream: Stream | None, correlation: int, kind: int, event: Event | None
) -> None:
    recorder = host.simulation.recorder
    if recorder is not None:
        number = event.numbered(host) if event is not None else -1
        recorder.syncs.append((start, end, host, stream, correlation, kind, number))


# Others


def module_load(after: int = 0, share: float = 1.0) -> Instruction:
    """Load a module, or one kernel of it: ``share`` of the usual time. Nothing is waited for."""
    return (after, _module_load, share)


def _module_load(host: Host, instruction: Instruction) -> bool:
    start, cost = host.now, host.cost(int(host.hardware.module_load_ns * instruction[2]))
    host.called(MODULE_LOAD, start, start + cost, causes.MODULE_LOAD)
    return False


def launch_loading(stream: Stream, kernel: Kernel, dur: int, share: float = 1.0, after: int = 0) -> Instruction:
    """The first launch of a kernel whose module is loaded inside of the call: a driver call within the runtime's."""
    return (after, _launch_loading, stream, kernel, dur, share)


def _launch_loading(host: Host, instruction: Instruction) -> bool:
    _, _, stream, kernel, dur, share = instruction
    hardware = host.hardware
    start, cost = host.now, host.cost(hardware.launch_kernel_ns)
    loading = start + cost // 2
    loaded = loading + host.cost(int(hardware.module_load_ns * share))
    end = loaded + cost - cost // 2
    correlation = host.process.correlation + 1
    host.process.correlation += 2
    for piece in ((start, loading, causes.LAUNCH), (loading, loaded, causes.MODULE_LOAD), (loaded, end, causes.LAUNCH)):
        host.log.add(*piece)
    host.now = end
    if host.simulation.recorder is not None:
        host.simulation.recorder.calls.append((loading, loaded, host, correlation + 1, LIBRARY_LOAD))
        host.simulation.recorder.calls.append((start, end, host, correlation, LAUNCH_KERNEL))
    _submit_kernel(host, (0, None, stream, kernel, dur, False), correlation, loaded - cost // 2, cost)
    return False


def collective(stream: Stream, kernel: Kernel, meeting: Meeting, after: int = 0) -> Instruction:
    """Launch this rank's kernel of a collective."""
    return (after, _collective, stream, kernel, meeting)


def _collective(host: Host, instruction: Instruction) -> bool:
    _, _, stream, kernel, meeting = instruction
    start, cost = host.now, host.cost(host.hardware.launch_kernel_ns)
    correlation = host.called(LAUNCH_KERNEL_EX, start, start + cost, causes.LAUNCH)
    op = Op(COLLECTIVE, stream, host, correlation, start + (cost * 3 >> 2) + host.hardware.launch_latency_ns, 0)
    op.call_end = start + cost
    op.kernel = kernel
    op.share = kernel.share
    op.peers = meeting
    stream.device.submit(op)
    return False
