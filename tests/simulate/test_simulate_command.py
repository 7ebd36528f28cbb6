"""``profkit simulate`` as it is typed."""

import json
from pathlib import Path

import pytest

from profkit.cli import main


def run(*words: str | Path) -> int:
    return main(["simulate", *map(str, words)])


def test_it_writes_the_trace_and_the_truth_and_says_so_on_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, truth = tmp_path / "s.sqlite", tmp_path / "s.json"
    words = ("--scenario", "eager_decode", "--fault", "implicit_sync", "--seed", "3", "--steps", "4")
    assert run(*words, "-o", trace, "--truth", truth) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("SIMULATED: scenario eager_decode, faults: implicit_sync, seed 3\n")
    content = json.loads(truth.read_text("utf-8"))
    assert set(content) >= {
        "simulated",
        "seed",
        "scenario",
        "profkit_version",
        "window_ns",
        "step_ns",
        "idle",
        "faults",
    }
    assert set(content["faults"][0]) == {
        "fault", "code", "cost_ns", "saving_ns", "cost_ns_per_step", "saving_ns_per_step"
    }  # fmt: skip
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s.json", "s.sqlite"]
    assert main(["check", str(trace)]) == 0
    assert capsys.readouterr().out.startswith("SIMULATED")


def test_it_lists_scenarios_and_faults(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--list") == 0
    out = capsys.readouterr().out
    assert "eager_decode" in out
    assert "pageable_upload        PK301" in out


def test_it_overwrites_only_when_told_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "s.sqlite"
    trace.write_text("mine")
    words = ("--scenario", "queue_full", "--fault", "none", "--steps", "3", "-o", trace)
    assert run(*words) == 1
    assert capsys.readouterr().err == f"profkit: {trace} exists: give another name, or --force to overwrite it\n"
    assert trace.read_text() == "mine"
    assert run(*words, "--force") == 0
    assert trace.read_bytes().startswith(b"SQLite format 3\0")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--scenario", "nothing"), "no scenario 'nothing': there are async_scheduling, "),
        (("--fault", "nothing"), "no fault 'nothing': there are allocator_in_step, "),
        (
            ("--scenario", "eager_decode", "--fault", "straggler"),
            "scenario eager_decode cannot have straggler: it fits tensor_parallel",
        ),
    ],
)
def test_a_name_that_is_not_there_or_does_not_fit_is_one_line(
    words: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words, "-o", tmp_path / "s.sqlite") == 2
    err = capsys.readouterr().err
    assert err.startswith(f"profkit: {said}")
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_it_needs_a_file_to_write(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--seed", "1") == 2
    assert capsys.readouterr().err == "profkit: -o FILE is missing: where to write the trace\n"


def test_one_file_cannot_be_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x"
    assert run("--fault", "none", "--steps", "3", "-o", path, "--truth", path) == 2
    assert capsys.readouterr().err == "profkit: the files to write must differ\n"


def test_a_folder_that_is_not_there_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "no" / "s.sqlite"
    assert run("--fault", "none", "--steps", "3", "-o", target) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"profkit: {target}: cannot be written: ")
    assert err.count("\n") == 1
