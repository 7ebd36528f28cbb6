"""CUDA graphs: capture, instantiation, launch. See :mod:`profkit.simulate.cuda` for what the functions return."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from profkit.simulate import causes
from profkit.simulate.cuda import Node, block_on_queue
from profkit.simulate.hardware import QUEUE_ENTRIES
from profkit.simulate.host import Host, Instruction
from profkit.simulate.ops import KERNEL, GraphRun, Op, Stream

GRAPH_LAUNCH = "cudaGraphLaunch_v10000"
BEGIN_CAPTURE = "cudaStreamBeginCapture_v10000"
END_CAPTURE = "cudaStreamEndCapture_v10000"
GRAPH_INSTANTIATE = "cudaGraphInstantiate_v12000"


@dataclass
class Graph:
    """An instantiated graph: a chain of kernels. ``whole``: its launches are recorded as one piece."""

    nodes: list[Node]
    graph: int
    exec_id: int = 0
    whole: bool = False
    node_ids: list[int] = field(default_factory=list)


def begin_capture(stream: Stream, after: int = 0) -> Instruction:
    """From here on launches on ``stream`` become nodes; nothing is executed."""
    return (after, _begin_capture, stream)


def _begin_capture(host: Host, instruction: Instruction) -> bool:
    instruction[2].capture = []
    host.called(BEGIN_CAPTURE, host.now, host.now + host.cost(host.hardware.capture_ns), causes.PYTHON)
    return False


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


def _launch_graph(host: Host, instruction: Instruction) -> bool:
    stream: Stream = instruction[2]
    nominal = host.hardware.graph_launch_ns + host.hardware.graph_launch_ns_per_node * len(instruction[3].nodes)
    if stream.depth >= QUEUE_ENTRIES:
        block_on_queue(host, stream, GRAPH_LAUNCH, nominal, partial(_submit_graph, host, instruction))
        return True
    start = host.now
    cost = host.cost(nominal)
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
