"""Types of the events that profkit reads, and the decoder that builds them.

The phase ``ph`` selects the type while decoding: flow arrows, two of five events of a trace, cost an empty object. The
types are strict, so that columns are taken from them without a look at each value; what does not fit them goes through
:mod:`profkit.ingest.kineto.mend`.
"""

from __future__ import annotations

from typing import Any

import msgspec

NO_DIGITS = msgspec.Raw(b"")


class Args(msgspec.Struct, gc=False, frozen=True, rename={
    "smem": "shared memory",
    "registers": "registers per thread",
    "graph": "graph id",
    "graph_node": "graph node id",
    "sync_kind": "cuda_sync_kind",
    "sync_event": "wait_on_cuda_event_id",
    "collective": "Collective name",
    "elements_in": "In msg nelems",
    "elements_out": "Out msg nelems",
    "group": "Process Group Name",
    "communicator": "Comms Id",
    "rank": "Rank",
    "peer": "Src Rank",
    "peer_to": "Dst Rank",
}):  # fmt: skip
    """The properties that profkit reads; others are skipped without being built. -1 and "" are absent."""

    correlation: int = -1
    device: int = -1
    context: int = -1
    stream: int = -1
    bytes: int = -1
    registers: int = -1
    smem: int = -1
    grid: tuple[int, int, int] = (-1, -1, -1)
    block: tuple[int, int, int] = (-1, -1, -1)
    graph: int = -1
    graph_node: int = -1
    sync_kind: str = ""
    sync_event: int = -1
    collective: str = ""
    elements_in: int = -1
    elements_out: int = -1
    dtype: str = ""
    group: str = ""
    communicator: msgspec.Raw = NO_DIGITS
    rank: int = -1
    peer: int = -1
    peer_to: int = -1


class MetaArgs(msgspec.Struct, gc=False, frozen=True):
    name: Any = None
    labels: Any = None


class MemoryArgs(msgspec.Struct, gc=False, frozen=True, rename={
    "address": "Addr", "bytes": "Bytes", "device": "Device Id", "device_type": "Device Type",
    "allocated": "Total Allocated", "reserved": "Total Reserved",
}):  # fmt: skip
    address: int = -1
    bytes: int = 0
    device: int = -1
    device_type: int = 0
    allocated: int = -1
    reserved: int = -1


NO_ARGS, NO_META, NO_MEMORY = Args(), MetaArgs(), MemoryArgs()


class Complete(msgspec.Struct, gc=False, tag_field="ph", tag="X"):
    """An event with a start and a length; times stay as they are written, for their digits."""

    cat: str = ""
    name: str = ""
    pid: int | str = -1
    tid: int | str = -1
    ts: msgspec.Raw = NO_DIGITS
    dur: msgspec.Raw = NO_DIGITS
    args: Args = NO_ARGS


class Half(msgspec.Struct, gc=False, tag_field="ph", tag="B"):
    """The begin or the end of a range: of a thread (B, E), or of any (b, e) by its ``id``."""

    cat: str = ""
    name: str = ""
    pid: int | str = -1
    tid: int | str = -1
    ts: msgspec.Raw = NO_DIGITS
    id: int | str = -1
    args: Args = NO_ARGS


class End(Half, tag="E"):
    pass


class AsyncBegin(Half, tag="b"):
    pass


class AsyncEnd(Half, tag="e"):
    pass


class Instant(msgspec.Struct, gc=False, tag_field="ph", tag="i"):
    """A point in time: allocations of memory are written so."""

    name: str = ""
    pid: int | str = -1
    tid: int | str = -1
    ts: msgspec.Raw = NO_DIGITS
    args: MemoryArgs = NO_MEMORY


class Meta(msgspec.Struct, gc=False, tag_field="ph", tag="M"):
    """The name of a process or a thread."""

    name: str = ""
    pid: int | str = -1
    tid: int | str = -1
    args: MetaArgs = NO_META


# What carries no time of its own: flow arrows, counters, samples, object snapshots.
SKIPPED = tuple(
    msgspec.defstruct(f"Skipped_{i}", [], gc=False, tag_field="ph", tag=phase)
    for i, phase in enumerate(("s", "t", "f", "C", "N", "O", "D", "P", "c", "n", "R", "v", "V", "(", ")", "I"))
)
TYPES: dict[str, Any] = {
    "X": Complete, "B": Half, "E": End, "b": AsyncBegin, "e": AsyncEnd, "i": Instant, "M": Meta,
}  # fmt: skip
Record = Any
"""One of TYPES or SKIPPED: told apart by their type."""

_UNION: Any = Complete
for _type in (*list(TYPES.values())[1:], *SKIPPED):
    _UNION = _UNION | _type
# ROCm writes some numbers as texts: only the second decoder takes "7" for 7.
_DECODERS = (msgspec.json.Decoder(list[_UNION]), msgspec.json.Decoder(list[_UNION], strict=False))


def decode(content: bytes) -> list[Record] | None:
    """Records of a JSON list of events; None where it is no JSON or does not fit the types."""
    for decoder in _DECODERS:
        try:
            records: list[Record] = decoder.decode(content)
        except msgspec.ValidationError:
            continue
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        return records
    return None
