"""Ranges that say what an inference program is doing, for Nsight Systems and the PyTorch profiler at once.

A stage goes to NVTX (domain ``profkit``, one category per stage, the payload as int64) and, while a PyTorch profiler
runs, to ``record_function``, because Kineto never sees NVTX. With neither, a range costs little more than an empty
``with``; torch is looked for among the loaded modules and never imported.

    DECODE = profkit.Stage("decode")

    with DECODE: ...                                  # prepared: the cheapest ``with``
    with DECODE.of(8): ...                            # of 8 sequences
    with profkit.stage("prefill", payload=512): ...   # of 512 tokens

    @profkit.stage("tokenize")
    def encode(text): ...

    with profkit.request(7, prompt_tokens=33) as r: ...
    r = profkit.request(7).start(); r.first_token(); r.end(output_tokens=64)

A payload counts sequences for schedule and decode; tokens for tokenize, prefill, sample and detokenize; bytes for h2d
and kv_update. Whether an NVTX tool is attached is settled when this module is imported, as NVTX itself does; a PyTorch
profiler is seen whenever it starts.

Stages are stack entries of their thread: leave them in the reverse order of entering. Requests may overlap.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
from collections.abc import Callable
from operator import index
from types import ModuleType, TracebackType
from typing import Any, ParamSpec, TypeVar

import msgspec
import nvtx

STAGES = ("request", "schedule", "tokenize", "h2d", "prefill", "decode", "kv_update", "sample", "detokenize")

P = ParamSpec("P")
T = TypeVar("T")


_domain = nvtx.get_domain("profkit")
# NVTX hands out no attributes when no tool is attached.
_attributes = {name: _domain.get_event_attributes(name, category=name) for name in STAGES}
_nvtx_on = nvtx.enabled() and _attributes["request"] is not None

_TORCH = "torch.autograd.profiler"
_modules = sys.modules
# The fast path of every range reads the flag of _switch and, until torch is loaded, _waiting. Once torch is loaded
# _switch is its profiler module; a module stands in until then, because the interpreter reads modules fastest. With an
# NVTX tool the stand-in stays, always true. Both names change in _find_profiler only.
_switch: Any = ModuleType("switch")
_switch._is_profiler_enabled = _nvtx_on
_waiting = not _nvtx_on
# Whether any range was ever sent anywhere: until then, leaving a range has nothing to undo.
_sent = _nvtx_on


class Range(msgspec.Struct, frozen=True, eq=False, gc=False):
    """One stage, with its payload or without: a context manager and a decorator, reusable and re-entrant.

    Made by ``stage`` and ``Stage``, which check the name. A Struct because making one is a third of the cost of a
    range with a payload.
    """

    name: str
    payload: int | None = None

    def __enter__(self) -> None:
        if _switch._is_profiler_enabled or (_waiting and _TORCH in _modules):
            _enter(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if _sent:
            _leave(self)

    def __call__(self, function: Callable[P, T]) -> Callable[P, T]:
        """Decorate a plain function. Raises TypeError for one that is suspended in the middle."""
        if not callable(function):
            raise TypeError(f"{self.name!r} decorates functions; a payload is given with .of(n), not {function!r}")
        for suspended in (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction):
            if suspended(function):
                raise TypeError(
                    f"{getattr(function, '__name__', function)!r} is suspended while others of its thread run, a stage "
                    f"is not: put `with profkit.stage({self.name!r})` around the code between two suspensions"
                )

        @functools.wraps(function)
        def inside(*args: P.args, **kwargs: P.kwargs) -> T:
            if _switch._is_profiler_enabled or (_waiting and _TORCH in _modules):
                with self:
                    return function(*args, **kwargs)
            return function(*args, **kwargs)

        return inside

    def of(self, payload: int) -> Range:
        """The same stage with a payload. Raises TypeError for what is no integer."""
        return Range(self.name, payload if type(payload) is int else index(payload))


class Stage(Range, frozen=True, eq=False, gc=False):
    """A prepared stage. Raises ValueError for a name that is no stage."""

    def __post_init__(self) -> None:
        if self.name not in _attributes:
            raise ValueError(_unknown(self.name))
        if self.payload is not None:
            index(self.payload)


_PLAIN = {name: Range(name) for name in STAGES}


def stage(name: str, payload: int | None = None) -> Range:
    """The range of stage ``name``, with a payload in the stage's unit (see the module) or without.

    Raises ValueError for a name that is no stage, TypeError for a payload that is no integer.
    """
    if type(payload) is int and name in _attributes:
        return Range(name, payload)
    plain = _PLAIN.get(name)
    if plain is None:
        raise ValueError(_unknown(name))
    return plain if payload is None else plain.of(payload)


def request(request_id: int, prompt_tokens: int | None = None) -> Request:
    """The life of one request, not yet started: a context manager, or ``start`` and ``end`` by hand.

    ``prompt_tokens`` is recorded at the start where it is known. Raises TypeError for what is no integer.
    """
    return Request(request_id, prompt_tokens)


class Request:
    """The life of one request: from its arrival to its last token, overlapping with others.

    A PyTorch profiler records one thread: there, start and end a request on the thread that runs the model. A request
    that is open when the profiler stops shows as unfinished in that profile and not at all in the next.
    """

    __slots__ = ("_nvtx_id", "_record", "_running", "id", "prompt_tokens")

    def __init__(self, request_id: int, prompt_tokens: int | None = None) -> None:
        if not hasattr(request_id, "__index__"):
            raise TypeError(f"a request id is an integer, not {request_id!r}: number requests whose ids are text")
        self.id = index(request_id)
        self.prompt_tokens = None if prompt_tokens is None else index(prompt_tokens)
        self._running = False
        self._nvtx_id: int | None = None
        self._record: _Record | None = None

    def start(self) -> Request:
        """Begin the range; returns itself. Raises RuntimeError when it is running."""
        if self._running:
            raise RuntimeError(f"request {self.id} is running")
        self._running = True
        if _switch._is_profiler_enabled or (_waiting and _TORCH in _modules):
            if _nvtx_on:
                self._nvtx_id = _domain.start_range(_attributes_of("request", self.id))
            self._record = _open_record(f"profkit::request#{self.id}")
            if self.prompt_tokens is not None:
                self._mark(f"prompt_tokens={self.prompt_tokens}")
        return self

    def first_token(self) -> None:
        """Mark that the first token of the answer is known to the host."""
        self._mark("first_token")

    def end(self, output_tokens: int | None = None) -> None:
        """End the range, after a mark with the number of answered tokens where it is known. The first end counts."""
        if not self._running:
            return
        self._running = False
        if output_tokens is not None:
            self._mark(f"output_tokens={index(output_tokens)}")
        if self._nvtx_id is not None:
            _domain.end_range(self._nvtx_id)
            self._nvtx_id = None
        if self._record is not None:
            self._record.close()
            self._record = None

    def __enter__(self) -> Request:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def _mark(self, what: str) -> None:
        if not (_switch._is_profiler_enabled or (_waiting and _TORCH in _modules)):
            return
        text = f"request#{self.id} {what}"
        if _nvtx_on:
            _domain.mark(_domain.get_event_attributes(text, category="request", payload=self.id))
        record = _open_record(f"profkit::{text}")
        if record is not None:
            record.close()


class _Open(threading.local):
    """The ranges of this thread that have a record, innermost last."""

    def __init__(self) -> None:
        self.stack: list[tuple[Range, _Record]] = []


class _Session:
    """One run of a PyTorch profiler; see ``_open_record``."""

    __slots__ = ()


class _Record:
    """An open ``record_function`` and the profiler run it belongs to."""

    __slots__ = ("_range", "_session")

    def __init__(self, range_: Any, session: object) -> None:
        self._range = range_
        self._session = session
        range_.__enter__()

    def close(self) -> None:
        """End the record, unless another profiler run has begun: its own is over, and its memory is gone."""
        now = _modules[_TORCH]._is_profiler_enabled
        if now and now is not self._session:
            _stranded.append(self._range)
        else:
            self._range.__exit__(None, None, None)


_open = _Open()
_session_lock = threading.Lock()
# Records of ended profiler runs. To end one during a later run writes to freed memory, and so does its destructor
# (torch 2.13: "malloc(): invalid next size"), so they are kept; they are as many as were open at each stop.
_stranded: list[Any] = []


def _enter(range_: Range) -> None:
    if _nvtx_on:
        payload = range_.payload
        _domain.push_range(_attributes[range_.name] if payload is None else _attributes_of(range_.name, payload))
    label = f"profkit::{range_.name}" if range_.payload is None else f"profkit::{range_.name}#{range_.payload}"
    record = _open_record(label)
    if record is not None:
        _open.stack.append((range_, record))


def _leave(range_: Range) -> None:
    if _nvtx_on:
        _domain.pop_range()
    # A range entered before the profiler started has no record: the innermost one is then another's.
    stack = _open.stack
    if stack and stack[-1][0] is range_:
        stack.pop()[1].close()


def _attributes_of(name: str, payload: int) -> Any:
    # A new object each time: attributes are mutable, and a shared one would mix up the payloads of two threads.
    return _domain.get_event_attributes(name, category=name, payload=payload)


def _open_record(label: str) -> _Record | None:
    """Open a ``record_function`` if a PyTorch profiler runs.

    torch gives a profiler run no identity, and a record must not outlive its run (see ``_stranded``). So the flag that
    torch sets to True at each start is replaced by an object that is as true, and unique to the run.
    """
    global _sent
    profiler = _find_profiler()
    if profiler is None or not profiler._is_profiler_enabled:
        return None
    with _session_lock:
        session = profiler._is_profiler_enabled
        if session is True:
            session = profiler._is_profiler_enabled = _Session()
    _sent = True
    return _Record(profiler.record_function(label), session)


def _find_profiler() -> Any:
    """torch's profiler module if it is loaded to the end, else None; from then on the fast path reads its flag."""
    global _switch, _waiting
    profiler = _modules.get(_TORCH)
    if not (hasattr(profiler, "_is_profiler_enabled") and hasattr(profiler, "record_function")):
        return None
    if _waiting:
        _switch, _waiting = profiler, False
    return profiler


def _unknown(name: object) -> str:
    return f"{name!r} is no stage; the stages are {', '.join(STAGES)}"
