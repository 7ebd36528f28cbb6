"""CUDA calls that launch work and load code: kernels, collectives, modules.

Each function returns an instruction for a host's program. A call submits its work when three quarters of its own time
have passed; ``after`` is the thread's own work before the call, ns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from profkit.simulate import causes
from profkit.simulate.hardware import QUEUE_ENTRIES
from profkit.simulate.host import Host, Instruction
from profkit.simulate.ops import COLLECTIVE, KERNEL, GraphRun, Kernel, Meeting, Op, Stream

LAUNCH_KERNEL = "cudaLaunchKernel_v7000"
LAUNCH_KERNEL_EX = "cudaLaunchKernelExC_v11060"
MODULE_LOAD = "cuModuleLoadData"
LIBRARY_LOAD = "cuLibraryLoadData"


@dataclass(frozen=True)
class Node:
    """A kernel of a graph, with its id as created during the capture."""

    kernel: Kernel
    dur: int
    original: int


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
    name = LAUNCH_KERNEL_EX if instruction[5] else LAUNCH_KERNEL
    nominal = host.hardware.launch_kernel_ns
    if stream.depth >= QUEUE_ENTRIES:
        block_on_queue(host, stream, name, nominal, partial(_submit_kernel, host, instruction))
        return True
    start = host.now
    cost = host.cost(nominal)
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


def block_on_queue(
    host: Host, stream: Stream, name: str, nominal: int, submit: Callable[[int, int, int], None]
) -> None:
    """A launch call waits for an entry of the launch queue, and then does its work and calls ``submit`` with its
    correlation id, the time from which on it works, and its cost."""
    correlation = host.opened(causes.LAUNCH)

    def go_on(now: int) -> None:
        cost = host.cost(nominal)
        host.closed(name, correlation, now + cost)
        submit(correlation, now, cost)
        host.resume(now + cost)

    stream.full.append(go_on)


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
        host.note(*piece)
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
