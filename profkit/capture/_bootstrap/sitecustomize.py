"""Arms the recorder in the interpreter of a recorded Python program, and leaves no other mark.

Python imports ``sitecustomize`` before the program. ``sys.argv``, ``__main__``, ``-m``, ``-c`` and tracebacks are
therefore the program's own. Only modules that are loaded by then are imported here: a program may have a ``json.py`` of
its own, and must get that one. (That rules out ``__future__`` too: what Python 3.8 cannot evaluate is quoted.)

PROFKIT_TRACE_DIR       where to put records and notes; without it nothing is armed
PROFKIT_TRACE_STEPS     steps after which recording ends
PROFKIT_TRACE_SECONDS   seconds after which recording ends
PROFKIT_TRACE_CHILDREN  "1": Python programs that this one starts are recorded too
PROFKIT_TRACE_PATH      PYTHONPATH as it was; absent if there was none
"""

import os
import sys

TYPE_CHECKING = False  # typing is not loaded yet
if TYPE_CHECKING:
    from typing import Any

_FOLDER = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib is not loaded yet
_PREFIX = "PROFKIT_TRACE_"


def _arm() -> None:
    settings = {key[len(_PREFIX) :]: value for key, value in os.environ.items() if key.startswith(_PREFIX)}
    sys.path[:] = [entry for entry in sys.path if entry != _FOLDER]
    sys.path_importer_cache.pop(_FOLDER, None)
    if settings.get("CHILDREN") != "1":
        _restore_environment(settings)
    # A process that outlives the recording has nowhere to write, and nobody who reads.
    if os.path.isdir(settings.get("DIR", "")):  # noqa: PTH112
        note(settings, "armed", " ".join(sys.version.split()[:1]))
        sys.meta_path.insert(0, _TorchWatch(settings))


def _restore_environment(settings: "dict[str, str]") -> None:
    for key in settings:
        del os.environ[_PREFIX + key]
    if "PATH" in settings:
        os.environ["PYTHONPATH"] = settings["PATH"]
    else:
        os.environ.pop("PYTHONPATH", None)


def note(settings: "dict[str, str]", event: str, text: str = "") -> None:
    """Append a line for the process that waits for this program; one file a process, so lines never mix."""
    with open(f"{settings['DIR']}/{os.getpid()}.notes", "a", encoding="utf-8") as file:  # noqa: PTH123
        file.write(f"{event}\t{' '.join(text.split())}\n")


class _TorchWatch:
    """A finder that finds nothing itself: when ``torch`` is asked for, it has the recorder start behind the import."""

    def __init__(self, settings: "dict[str, str]") -> None:
        self.settings = settings

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None, /) -> "Any":
        if name != "torch":
            return None
        for finder in [finder for finder in sys.meta_path if not isinstance(finder, _TorchWatch)]:
            spec = finder.find_spec(name, None, None)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    self._start_behind(spec.loader)
                return spec
        return None

    def _start_behind(self, loader: "Any") -> None:
        """Shadow ``exec_module`` on this one loader object for one call; its class and the spec stay as they are.

        Many programs only ask whether torch could be found: such a spec is never executed, and the watch goes on.
        """

        def exec_module(module: "Any") -> None:
            del loader.exec_module
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            quiet = _Quiet()
            try:
                loader.exec_module(module)
                _start_recorder(self.settings)
            finally:
                quiet.restore()

        loader.exec_module = exec_module


class _Quiet:
    """KINETO_LOG_LEVEL set until the profiler has started, which reads it once: progress lines would go to stderr."""

    _KEY = "KINETO_LOG_LEVEL"

    def __init__(self) -> None:
        self.mine = self._KEY not in os.environ
        if self.mine:
            os.environ[self._KEY] = "99"

    def restore(self) -> None:
        if self.mine:
            os.environ.pop(self._KEY, None)


def _start_recorder(settings: "dict[str, str]") -> None:
    try:
        import importlib.util

        spec = importlib.util.spec_from_file_location("_profkit_recorder", f"{_FOLDER}/recorder.py")
        assert spec is not None
        assert spec.loader is not None
        recorder = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(recorder)
        recorder.Recorder(settings, note).start()
    except Exception as error:  # the program must run as if nobody watched
        _note_error(settings, error)


def _note_error(settings: "dict[str, str]", error: Exception) -> None:
    try:
        note(settings, "error", f"{type(error).__name__}: {error}")
    except OSError:
        return


def _run_shadowed_sitecustomize() -> None:
    """Import the ``sitecustomize`` that this one hides, if there is one; its errors are its own."""
    mine = sys.modules.pop("sitecustomize")
    try:
        __import__("sitecustomize")
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        # The import system needs an entry under this name when the import that runs this file ends.
        sys.modules["sitecustomize"] = mine


if __name__ == "sitecustomize":
    try:
        _arm()
    except Exception as error:  # the program must run as if nobody watched
        sys.stderr.write(f"profkit: not recording: {type(error).__name__}: {error}\n")
    _run_shadowed_sitecustomize()
