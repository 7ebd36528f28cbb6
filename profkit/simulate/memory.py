"""CUDA calls that move, set and allocate memory.

How a copy behaves follows the CUDA Runtime API page "API synchronization behavior": it depends on where the memory
lies, on its size and on the call. Kinds of memory are the codes of an nsys export.
"""

from __future__ import annotations

from profkit.simulate import causes
from profkit.simulate.events import behind, outstanding, wait_for
from profkit.simulate.hardware import SMALL_COPY_BYTES, STAGING_BUFFERS, Hardware
from profkit.simulate.host import Host, Instruction
from profkit.simulate.ops import COPY_IN, COPY_OUT, MEMSET, Copy, Op, Stream, Waiter

PAGEABLE, PINNED, DEVICE = 0, 1, 2
H2D, D2H, D2D, P2P = 1, 2, 8, 10
MEMCPY, MEMCPY_ASYNC = "cudaMemcpy_v3020", "cudaMemcpyAsync_v3020"
MEMSET_CALL, MEMSET_ASYNC = "cudaMemset_v3020", "cudaMemsetAsync_v3020"
MALLOC, FREE, HOST_ALLOC = "cudaMalloc_v3020", "cudaFree_v3020", "cudaHostAlloc_v3020"
HOST_FREE, HOST_REGISTER = "cudaFreeHost_v3020", "cudaHostRegister_v4000"

_KERNEL_SHARE = 50
"""Of the multiprocessors, for copies inside a device and memsets."""


def copy_async(
    stream: Stream, kind: int, size: int, memory: int = PINNED, after: int = 0, peer: int = -1
) -> Instruction:
    """cudaMemcpyAsync of ``size`` bytes; ``memory``: kind of the host side, ``peer``: where a P2P copy goes to."""
    return (after, _copy, stream, kind, size, memory, False, peer)


def copy(stream: Stream, kind: int, size: int, memory: int = PINNED, after: int = 0) -> Instruction:
    """cudaMemcpy, which works on the null stream: ``stream`` must be that of the process."""
    return (after, _copy, stream, kind, size, memory, True, -1)


def _copy(host: Host, instruction: Instruction) -> bool:
    _, _, stream, kind, size, memory, synchronous, peer = instruction
    row = _row(stream, kind, size, memory, peer)
    if memory == PAGEABLE and kind == H2D and size > SMALL_COPY_BYTES:
        _upload_staged(host, stream, row, synchronous)
        return True
    hardware = host.hardware
    name = MEMCPY if synchronous else MEMCPY_ASYNC
    start = host.now
    cost = host.cost(hardware.memcpy_ns if synchronous else hardware.memcpy_async_ns)
    if memory == PAGEABLE and kind == H2D:
        cost += 0 if host.free else size * 1000 // hardware.staging_bytes_per_us
    blocks = (kind == D2H and memory == PAGEABLE) or (synchronous and (kind == D2H or memory == PINNED) and kind != D2D)
    if not blocks:
        correlation = host.called(name, start, start + cost, causes.COPY_CALL)
        op = _copy_op(host, stream, row, correlation, start + (cost * 3 >> 2) + hardware.launch_latency_ns)
        op.call_end = start + cost
        stream.device.submit(op)
        return False
    correlation = host.opened(causes.COPY_CALL)
    op = _copy_op(host, stream, row, correlation, start + (cost * 3 >> 2) + hardware.launch_latency_ns)
    if memory == PAGEABLE:
        _download_staged(host, op, name, start + cost)
    else:
        _return_at_end(host, op, name, start + cost)
    stream.device.submit(op)
    return True


def _row(stream: Stream, kind: int, size: int, memory: int, peer: int) -> Copy:
    here = stream.device.ordinal
    if kind == H2D:
        return Copy(size, kind, memory, DEVICE)
    if kind == D2H:
        return Copy(size, kind, DEVICE, memory)
    return Copy(size, kind, DEVICE, DEVICE, here, peer if kind == P2P else here)


def _copy_op(host: Host, stream: Stream, row: Copy, correlation: int, arrival: int) -> Op:
    hardware = host.hardware
    engine, rate = {
        H2D: (COPY_IN, hardware.pinned_h2d_bytes_per_us),
        D2H: (COPY_OUT, hardware.pinned_d2h_bytes_per_us),
        D2D: (MEMSET, hardware.d2d_bytes_per_us),
        P2P: (COPY_OUT, hardware.p2p_bytes_per_us),
    }[row.kind]
    op = Op(engine, stream, host, correlation, arrival, hardware.transfer_ns(row.size, rate))
    op.copy = row
    op.share = _KERNEL_SHARE
    return op


def _return_at_end(host: Host, op: Op, name: str, least: int) -> None:
    """The call returns when the copy is done."""

    def wake(now: int) -> None:
        end = max(now + host.hardware.wake_up_ns, least)
        op.call_end = end
        host.closed(name, op.correlation, end)
        host.resume(end)

    op.waiters = [Waiter(1, wake)]


def _upload_staged(host: Host, stream: Stream, row: Copy, synchronous: bool) -> None:
    """Pageable memory to the device: wait for the stream, then fill one staging buffer after the other.

    The call returns when the last one is filled; its transfer may be outstanding.
    """
    hardware = host.hardware
    start = host.now
    name = MEMCPY if synchronous else MEMCPY_ASYNC
    cost = host.cost(hardware.memcpy_ns if synchronous else hardware.memcpy_async_ns)
    correlation = host.opened(causes.COPY_CALL)

    def stage(now: int) -> None:
        begin = max(now + hardware.wake_up_ns, start + cost) if waited else start + cost
        chunks = _chunks(row.size, hardware)
        staged = begin + _staging_ns(chunks[0], hardware)
        op = _copy_op(host, stream, row, correlation, staged + hardware.launch_latency_ns)

        def give_back(filled: int) -> None:
            op.call_end = filled
            host.closed(name, correlation, filled)
            host.resume(filled)

        def taken(op: Op) -> None:
            op.dur, filled = _upload_times(op.start, staged, chunks, hardware)
            if len(chunks) > STAGING_BUFFERS:
                give_back(filled)

        op.on_start = taken
        host.simulation.at(staged, stream.device.submit, op)
        if len(chunks) <= STAGING_BUFFERS:
            give_back(begin + sum(_staging_ns(size, hardware) for size in chunks))

    waited = outstanding(behind(host, stream))
    wait_for(waited, stage, start)


def _upload_times(dma: int, staged: int, chunks: list[int], hardware: Hardware) -> tuple[int, int]:
    """(length of the transfer from its start ``dma``, when the last buffer is filled); the first is ``staged`` then."""
    ends: list[int] = []
    for i, size in enumerate(chunks):
        if i:
            free = ends[i - STAGING_BUFFERS] if i >= STAGING_BUFFERS else staged
            staged = max(staged, free) + _staging_ns(size, hardware)
        begin = dma if not i else max(ends[-1], staged)
        ends.append(begin + _dma_ns(size, hardware.pinned_h2d_bytes_per_us))
    return ends[-1] + hardware.copy_latency_ns - dma, staged


def _download_staged(host: Host, op: Op, name: str, least: int) -> None:
    """The device to pageable memory: through staging buffers that the host empties; returns when all is there."""
    hardware = host.hardware
    assert op.copy is not None
    chunks = _chunks(op.copy.size, hardware)

    def taken(op: Op) -> None:
        moved, emptied = op.start + hardware.copy_latency_ns, 0
        done: list[int] = []
        for i, size in enumerate(chunks):
            free = done[i - STAGING_BUFFERS] if i >= STAGING_BUFFERS else 0
            moved = max(moved, free) + _dma_ns(size, hardware.pinned_d2h_bytes_per_us)
            emptied = max(moved, emptied) + _staging_ns(size, hardware)
            done.append(emptied)
        op.dur = moved - op.start
        end = max(emptied + hardware.wake_up_ns, least)
        op.call_end = end
        host.closed(name, op.correlation, end)
        host.resume(end)

    op.on_start = taken


def _chunks(size: int, hardware: Hardware) -> list[int]:
    chunk = hardware.staging_chunk_bytes
    return [chunk] * (size // chunk) + ([size % chunk] if size % chunk else []) or [0]


def _staging_ns(size: int, hardware: Hardware) -> int:
    return size * 1000 // hardware.staging_bytes_per_us


def _dma_ns(size: int, bytes_per_us: int) -> int:
    return max(size * 1000 // bytes_per_us, 1)


# Memsets


def memset_async(stream: Stream, size: int, memory: int = DEVICE, after: int = 0) -> Instruction:
    """cudaMemsetAsync of device memory, or of pinned host memory: waits for nothing."""
    return (after, _memset, stream, size, memory, False)


def memset(stream: Stream, size: int, memory: int = DEVICE, after: int = 0) -> Instruction:
    """cudaMemset on the null stream: it waits for its end only where the memory is pinned host memory."""
    return (after, _memset, stream, size, memory, True)


def _memset(host: Host, instruction: Instruction) -> bool:
    _, _, stream, size, memory, synchronous = instruction
    hardware = host.hardware
    start, cost = host.now, host.cost(hardware.memset_ns)
    name = MEMSET_CALL if synchronous else MEMSET_ASYNC
    blocks = bool(synchronous and memory == PINNED)
    rate = hardware.pinned_d2h_bytes_per_us if memory == PINNED else hardware.memset_bytes_per_us
    correlation = host.opened(causes.COPY_CALL) if blocks else host.called(name, start, start + cost, causes.COPY_CALL)
    arrival = start + (cost * 3 >> 2) + hardware.launch_latency_ns
    op = Op(MEMSET, stream, host, correlation, arrival, hardware.transfer_ns(size, rate))
    op.copy = Copy(size, -1, memory, memory)
    op.share = _KERNEL_SHARE
    if blocks:
        _return_at_end(host, op, name, start + cost)
    else:
        op.call_end = start + cost
    stream.device.submit(op)
    return blocks


# Allocation


def malloc(size: int, after: int = 0) -> Instruction:
    """cudaMalloc: costs time, waits for nothing."""
    return (after, _allocate, MALLOC, size)


def free(after: int = 0) -> Instruction:
    """cudaFree: waits for all streams of the process first."""
    return (after, _allocate, FREE, 0)


def host_alloc(size: int, after: int = 0) -> Instruction:
    """cudaHostAlloc: waits for all streams of the process, then locks the pages."""
    return (after, _allocate, HOST_ALLOC, size)


def host_register(size: int, after: int = 0) -> Instruction:
    """cudaHostRegister: as :func:`host_alloc`."""
    return (after, _allocate, HOST_REGISTER, size)


def host_free(after: int = 0) -> Instruction:
    """cudaFreeHost: waits for all streams of the process first."""
    return (after, _allocate, HOST_FREE, 0)


def _allocate(host: Host, instruction: Instruction) -> bool:
    _, _, name, size = instruction
    hardware = host.hardware
    start = host.now
    nominal = {
        MALLOC: hardware.malloc_ns,
        FREE: hardware.free_ns,
        HOST_FREE: hardware.host_free_ns,
    }.get(name, hardware.host_alloc_ns + hardware.host_alloc_ns_per_mib * size // (1 << 20))
    cost = host.cost(nominal)
    ops = [] if name == MALLOC else outstanding(host.process.streams)
    if not ops:
        host.called(name, start, start + cost, causes.ALLOCATOR)
        return False
    correlation = host.opened(causes.ALLOCATOR)

    def go_on(now: int) -> None:
        end = now + hardware.wake_up_ns + cost
        host.closed(name, correlation, end)
        host.resume(end)

    wait_for(ops, go_on, start)
    return True
