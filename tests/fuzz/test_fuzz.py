"""A bounded number of fuzzing cases, always the same ones; any number by hand with ``make fuzz N=10000``."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from scripts import fuzz, fuzz_mutations, fuzz_properties, fuzz_sources  # noqa: E402

CASES, IN_ONE, CORPUS_CASES = 80, 10, 30
HANG_SECONDS = 120
CORPUS = os.environ.get("PROFKIT_CORPUS", "")


@contextmanager
def no_hang() -> Iterator[None]:
    """Ends a case that does not end by itself."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"no end within {HANG_SECONDS} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(HANG_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory: pytest.TempPathFactory) -> fuzz.Fuzzer:
    return fuzz.Fuzzer(tmp_path_factory.mktemp("fuzz"))


@pytest.fixture(scope="module")
def corpus_fuzzer(tmp_path_factory: pytest.TempPathFactory) -> fuzz.Fuzzer:
    if not CORPUS:
        pytest.skip("PROFKIT_CORPUS names no folder of real exports")
    return fuzz.Fuzzer(tmp_path_factory.mktemp("fuzz-corpus"), Path(CORPUS))


@pytest.mark.parametrize("first", range(0, CASES, IN_ONE))
def test_damage_is_met_with_honesty(fuzzer: fuzz.Fuzzer, first: int) -> None:
    for number in range(first, first + IN_ONE):
        with no_hang():
            fuzzer.case(number)


@pytest.mark.parametrize("first", range(0, CORPUS_CASES, IN_ONE))
def test_damage_to_real_traces_is_met_with_honesty(corpus_fuzzer: fuzz.Fuzzer, first: int) -> None:
    for number in range(first, first + IN_ONE):
        with no_hang():
            corpus_fuzzer.case(number)


def test_the_sources_are_sound(fuzzer: fuzz.Fuzzer, tmp_path: Path) -> None:
    for seed in fuzz_sources.make_seeds(tmp_path):
        (tmp_path / "scratch").mkdir(exist_ok=True)
        seen = fuzz_properties.examine(seed.path, tmp_path / "scratch", random.Random(0))
        assert seen.read, seen.remarks


def test_a_number_is_a_case(tmp_path: Path) -> None:
    """The same number gives the same damage, another one another."""
    (seed, *_) = fuzz_sources.make_seeds(tmp_path)
    made = []
    for number in (7, 7, 8):
        folder = tmp_path / f"{len(made)}"
        folder.mkdir()
        mutant = fuzz_mutations.mutate(seed, folder, random.Random(number))
        made.append((mutant.what, mutant.path.read_bytes()))
    assert made[0] == made[1] != made[2]


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [
        ("idle_ns", 41, "busy + idle is not the window"),
        ("kernel_ns", -1, "negative kernel_ns"),
        ("busy_share", 1.01, "busy_share outside 0..1"),
    ],
)
def test_impossible_numbers_are_found(key: str, value: float, kind: str) -> None:
    device = {"busy_ns": 60, "idle_ns": 40, "kernel_ns": 60, "busy_share": 0.6}
    summary = {"window_ns": 100, "devices": [device], "idle_by_cause": {"sync": 40}}
    fuzz_properties.check_document({"summary": summary})
    device[key] = value
    with pytest.raises(fuzz_properties.BrokenPropertyError) as caught:
        fuzz_properties.check_document({"summary": summary})
    assert caught.value.kind == kind


def test_causes_that_do_not_add_up_are_found() -> None:
    summary = {"window_ns": 100, "devices": [{"busy_ns": 60, "idle_ns": 40}], "idle_by_cause": {"sync": 39}}
    with pytest.raises(fuzz_properties.BrokenPropertyError, match="do not add up"):
        fuzz_properties.check_document({"summary": summary})


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (fuzz_properties.Said(1, "", "profkit: /x: damaged\n"), ""),
        (fuzz_properties.Said(1, "", "profkit: /x: damaged\nand more\n"), "a refusal is no single line"),
        (fuzz_properties.Said(2, "", "profkit: /x: damaged\n"), "a refusal is no single line"),
        (fuzz_properties.Said(1, "{}", "profkit: /x: damaged\n"), "a refusal is no single line"),
        (fuzz_properties.Said(1, "", "profkit: /x: or a fault of profkit (A: 'a7')"), "unforeseen (A: 'aN')"),
    ],
)  # fmt: skip
def test_refusals(said: fuzz_properties.Said, kind: str) -> None:
    try:
        fuzz_properties.check_refusal(said, Path("/x"))
        found = ""
    except fuzz_properties.BrokenPropertyError as error:
        found = error.kind
    assert found == kind


def test_words_with_impossible_numbers_are_found() -> None:
    for line in ("busy -3 ms", "copied -1.50 kB", "share nan"):
        with pytest.raises(fuzz_properties.BrokenPropertyError):
            fuzz_properties.check_words("check", fuzz_properties.Said(0, f"{line}\n", ""), [])
    fuzz_properties.check_words("check", fuzz_properties.Said(0, "step 1-3 ms, infer 5 ms, warning\n", ""), [])


def test_the_program_prints_one_json_line_last(tmp_path: Path) -> None:
    environment = {**os.environ, "PROFKIT_CORPUS": ""}
    command = [sys.executable, "-m", "scripts.fuzz", "6", "--jobs", "2", "--keep", str(tmp_path / "kept")]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    record = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, record["cases"], record["failures"], record["kinds"]) == (0, 6, 0, {})
    assert not (tmp_path / "kept").exists()


def test_damage_that_no_reader_can_miss_is_marked(tmp_path: Path) -> None:
    """A table of kernels that is gone and a time that is none are loud; a sound number in its place is not."""
    with closing(sqlite3.connect(fuzz_sources.write_nsys(tmp_path / "run.sqlite"))) as db:
        script = "\n".join(db.iterdump())
    marks: dict[str, bool] = {}
    for number in range(300):
        with closing(sqlite3.connect(":memory:")) as db:
            db.executescript(script)
            db.text_factory = bytes
            what, loud = fuzz_mutations.damage_table(db, fuzz_sources.KERNEL, random.Random(number))
            marks[what.replace(fuzz_sources.KERNEL, "")] = loud
    assert all(loud for what, loud in marks.items() if what.startswith("drop ."))
    starts = {what: loud for what, loud in marks.items() if what.startswith("value .start = ")}
    assert {what.split(" = ")[1].split(" every")[0] for what, loud in starts.items() if not loud} <= {
        "0",
        "1",
        "'12'",
        "2147483648",
        "4294967295",
    }
    assert any(starts.values())
    assert not any(loud for what, loud in marks.items() if what.startswith(("delete .", "double .")))
