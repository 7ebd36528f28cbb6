"""Runs the PyTorch profiler inside the recorded program: from the import of torch to the first limit, or the end.

Kineto records one session a process, and a second one that starts beside the first crashes it (torch 2.13). The
program's own profiler therefore ends ours just before it starts.
"""

from __future__ import annotations

import _thread
import atexit
import ctypes
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

Note = Callable[..., None]
_STAGES = ("decode", "prefill")


class Recorder:
    """One recording in the process that made this object; a forked child leaves it alone."""

    def __init__(self, settings: dict[str, str], note: Note) -> None:
        self.settings = settings
        self.pid = os.getpid()
        self.limit = int(settings["STEPS"])
        self.seconds = float(settings["SECONDS"])
        self.steps = 0
        self.running = False
        self.profiler: Any = None
        self.signals: dict[int, Any] = {}
        self._note = note
        self._lock = threading.Lock()
        self._writer = 0
        self._late_signal = 0
        self._thread = threading.get_ident()
        self._all_threads = False

    def note(self, event: str, text: str = "") -> None:
        try:
            self._note(self.settings, event, text)
        except OSError:
            return

    def start(self) -> None:
        """Start recording, and watch for what ends it. Raises what torch raises."""
        import torch
        import torch.profiler

        self.note("torch", str(torch.__version__))
        activities = [torch.profiler.ProfilerActivity.CPU]
        if _gpu_available(torch):
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        options = self._all_thread_option(torch)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.profiler = torch.profiler.profile(activities=activities, **options)
            self.profiler.start()
        self.running = True
        self.note("started", "+".join(activity.name for activity in activities))
        self._watch_torch(torch)
        self._watch_exits()
        self._watch_clock()
        self._guard_forks(torch)

    def _all_thread_option(self, torch: Any) -> dict[str, Any]:
        """Have all threads recorded where torch can: without it, only the thread that imports torch is."""
        try:
            config = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
        except (AttributeError, TypeError):
            return {}
        self._all_threads = True
        return {"experimental_config": config}

    def _watch_torch(self, torch: Any) -> None:
        """Count steps, and give way to the program's own profiler."""
        inner = torch.autograd.profiler
        enter_range, prepare, step = (
            inner.record_function.__enter__,
            inner.profile._prepare_trace,
            torch.profiler.profile.step,
        )

        def counting_enter(range_: Any) -> Any:
            if self.running and _is_step(range_.name):
                self.count()
            return enter_range(range_)

        def yielding_prepare(profile: Any) -> Any:
            if self.running:
                self.finish("the program started its own PyTorch profiler")
            return prepare(profile)

        def counting_step(profile: Any) -> Any:
            if self.running:
                self.count()
            return step(profile)

        inner.record_function.__enter__ = counting_enter
        inner.profile._prepare_trace = yielding_prepare
        torch.profiler.profile.step = counting_step

    def count(self) -> None:
        """Count the start of a step: the one after the last ends the recording, so that the last is whole."""
        self.steps += 1
        if self.steps > self.limit:
            self.steps = self.limit
            self.finish(f"{self.limit} steps recorded")

    def _watch_exits(self) -> None:
        atexit.register(self.finish, "the program ended")
        leave = os._exit

        def leave_recorded(status: int) -> None:
            self.finish("the program called os._exit")
            leave(status)

        os._exit = leave_recorded  # type: ignore[assignment]
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGHUP):
                # A program that handles the signal, or ignores it, decides for itself; now or later.
                if signal.getsignal(number) is signal.SIG_DFL:
                    self.signals[number] = signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: object) -> None:
        if self._lock.locked():
            # The record is being written, perhaps by the very code that this handler interrupted: die after it.
            self._late_signal = number
            return
        self.finish(f"signal {number}")
        _die(number)

    def _watch_clock(self) -> None:
        """End the recording on the main thread when time is up: a session is best ended where operators run."""
        # Kept on the object: the interpreter calls it later, through a bare pointer.
        self._pending = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(self._on_deadline)
        deadline = time.monotonic() + self.seconds

        def wait() -> None:
            while self.running and time.monotonic() < deadline:
                time.sleep(min(0.2, max(0.0, deadline - time.monotonic())))
            if self.running:
                ctypes.pythonapi.Py_AddPendingCall(self._pending, None)

        # No threading.Thread: it would show in the program's threading.enumerate().
        _thread.start_new_thread(wait, ())

    def _on_deadline(self, _: object) -> int:
        self.finish(f"{self.seconds:g} s recorded")
        return 0

    def _guard_forks(self, torch: Any) -> None:
        """Keep forked children as they would be: not recorded, and able to exit.

        Kineto has a thread that a fork does not copy, and its static destructor waits for that thread: without this a
        child that calls exit() hangs (torch 2.13), for as long as this process lives, whether recording or not.
        """
        library = ctypes.CDLL(None)
        end_now, flush_all = library._exit, library.fflush

        def in_child() -> None:
            try:
                # C calls these in reverse: flush every C stream, then end with the status, without static destructors.
                library.on_exit(end_now, None)
                library.__cxa_atexit(flush_all, None, None)
                if self.running:
                    self.running = False
                    torch._C._autograd._disable_profiler()
                    torch.autograd.profiler._run_on_profiler_stop()
            except Exception:  # the child must run as if nobody watched
                return

        os.register_at_fork(after_in_child=in_child)

    def finish(self, reason: str) -> None:
        """End the recording and write it; later calls, and calls in a forked child, do nothing. Never raises."""
        if os.getpid() != self.pid or self._writer == threading.get_ident():
            return
        if not self._all_threads and threading.get_ident() != self._thread:
            return
        with self._lock:
            self._writer = threading.get_ident()
            try:
                if self.running:
                    self.running = False
                    self._write(reason)
            except Exception as error:  # the program must run as if nobody watched
                self.note("error", f"{type(error).__name__}: {error}")
            finally:
                self._writer = 0
        if self._late_signal:
            _die(self._late_signal)

    def _write(self, reason: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.profiler.stop()
            self.note("stopped", reason)
            self.note("steps", str(self.steps))
            self.profiler.export_chrome_trace(f"{self.settings['DIR']}/{self.pid}.json")
        self.profiler = None
        self.note("rank", os.environ.get("RANK", ""))
        self.note("written")
        if threading.current_thread() is threading.main_thread():
            for number, before in self.signals.items():
                if signal.getsignal(number) == self._on_signal:
                    signal.signal(number, before)


def _die(number: int) -> None:
    """End this process by the signal, as if it had never been caught."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _is_step(name: object) -> bool:
    """Whether a range starts a step: ``decode`` or ``prefill``, with or without ``profkit::`` and ``#payload``."""
    text = str(name).split("#", 1)[0]
    return (text[len("profkit::") :] if text.startswith("profkit::") else text) in _STAGES


def _gpu_available(torch: Any) -> bool:
    """``torch.cuda.is_available()``, asked through NVML: the other way starts CUDA, which breaks forked children."""
    key = "PYTORCH_NVML_BASED_CUDA_CHECK"
    before = os.environ.get(key)
    os.environ[key] = "1"
    try:
        return bool(torch.cuda.is_available())
    finally:
        if before is None:
            del os.environ[key]
        else:
            os.environ[key] = before
