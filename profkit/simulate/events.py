"""CUDA events and synchronisation. See :mod:`profkit.simulate.cuda` for what the functions return."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from profkit.simulate import causes
from profkit.simulate.host import Host, Instruction
from profkit.simulate.ops import MARK, NON_BLOCKING, NULL, WAIT, Op, Stream, Waiter, depend

EVENT_RECORD = "cudaEventRecord_v3020"
EVENT_QUERY = "cudaEventQuery_v3020"
EVENT_SYNCHRONIZE = "cudaEventSynchronize_v3020"
STREAM_WAIT_EVENT = "cudaStreamWaitEvent_v3020"
STREAM_SYNCHRONIZE = "cudaStreamSynchronize_v3020"
DEVICE_SYNCHRONIZE = "cudaDeviceSynchronize_v3020"

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
    return _synchronize(host, STREAM_SYNCHRONIZE, outstanding(behind(host, stream)), stream, SYNC_STREAM)


def _synchronize_device(host: Host, instruction: Instruction) -> bool:
    return _synchronize(host, DEVICE_SYNCHRONIZE, outstanding(host.process.streams), None, SYNC_CONTEXT)


def behind(host: Host, stream: Stream) -> list[Stream]:
    """Streams that a wait for ``stream`` waits for: with the null stream come the blocking ones."""
    if stream.kind == NULL:
        return [each for each in host.process.streams if each.kind != NON_BLOCKING]
    return [stream]


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
