"""The command: which file it writes, what it refuses, what it prints."""

from collections.abc import Callable
from pathlib import Path

import pytest

from profkit.cli import main
from profkit.errors import ProfkitError
from profkit.report import default_name, write_page

TRACE = Path(__file__).resolve().parents[2] / "traces" / "loop-cpu-nano.json.gz"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs profkit in an empty folder; gives (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def call(*args: object) -> tuple[int, str, str]:
        code = main([str(arg) for arg in args])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


def test_writes_into_the_current_folder_and_prints_the_path(run: Run, tmp_path: Path) -> None:
    assert run("report", TRACE) == (0, "loop-cpu-nano.html\n", "")
    assert [path.name for path in tmp_path.iterdir()] == ["loop-cpu-nano.html"]
    page = (tmp_path / "loop-cpu-nano.html").read_text("utf-8")
    assert page.startswith("<!doctype html>")
    assert "TTFT" in page
    assert str(TRACE.parent) not in page


def test_does_not_overwrite_unless_told_to(run: Run, tmp_path: Path) -> None:
    target = tmp_path / "mine.html"
    target.write_text("mine")
    code, out, err = run("report", TRACE, "-o", target)
    assert (code, out) == (1, "")
    assert "--force" in err
    assert target.read_text() == "mine"
    assert run("report", TRACE, "-o", target, "--force") == (0, f"{target}\n", "")
    assert target.read_text("utf-8").startswith("<!doctype html>")


def test_never_writes_over_the_trace(run: Run, tmp_path: Path) -> None:
    trace = tmp_path / "t.json.gz"
    trace.write_bytes(TRACE.read_bytes())
    (tmp_path / "link.html").symlink_to(trace)
    for target in (trace, tmp_path / "link.html"):
        code, _, err = run("report", trace, "-o", target, "--force")
        assert code == 1
        assert "the trace itself" in err
    assert trace.read_bytes() == TRACE.read_bytes()


def test_refuses_what_cannot_be_written_in_one_line(run: Run, tmp_path: Path) -> None:
    for target, word in ((tmp_path, "folder"), (tmp_path / "no" / "r.html", "no folder")):
        code, out, err = run("report", TRACE, "-o", target)
        assert (code, out) == (1, "")
        assert word in err
        assert err.count("\n") == 1
    code, _, err = run("report", tmp_path / "missing.sqlite")
    assert code == 1
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_window_is_taken_and_said(run: Run, tmp_path: Path) -> None:
    assert run("report", TRACE, "--window", "10ms:20ms")[0] == 0
    page = (tmp_path / "loop-cpu-nano.html").read_text("utf-8")
    assert "10.0 ms, selected: 0.010000000 s to 0.020000000 s" in page
    assert run("report", TRACE, "--window", "nonsense", "--force")[0] == 2


@pytest.mark.parametrize(
    ("trace", "name"),
    [
        ("run.sqlite", "run.html"),
        ("a/run.json.gz", "run.html"),
        ("x.pt.trace.json.gz", "x.html"),
        ("run.nsys-rep", "run.html"),
        ("v1.2", "v1.2.html"),
        (".json", ".json.html"),
    ],
)
def test_the_name_of_the_report(trace: str, name: str) -> None:
    assert default_name(Path(trace)) == name


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "r.html"
    target.write_text("old")

    def fail(self: Path, target: Path) -> Path:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(ProfkitError, match="Permission denied"):
        write_page("new", target)
    assert [path.name for path in tmp_path.iterdir()] == ["r.html"]
    assert target.read_text() == "old"
