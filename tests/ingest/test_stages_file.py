"""``check --stages FILE``: further ranges that are stages, by patterns; bad files in one line."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from profkit.analysis.context import Analysis
from profkit.cli import main
from profkit.errors import InputError
from profkit.model import Trace
from profkit.schema import PAYLOAD_KINDS, STAGES
from profkit.stages import read_stage_file, with_stages
from profkit.testing import Row, build_trace, launch, span

ENGINE = r"""
[[stage]]
stage = "decode"
pattern = '^step bs=(?P<n>\d+|\?)$'
payload = "n"

[[stage]]
stage = "prefill"
pattern = 'prompt'
domain = "engine"
"""


def write(folder: Path, content: str) -> Path:
    path = folder / "stages.toml"
    path.write_text(content, "utf-8")
    return path


def ranges(*rows: Row) -> Trace:
    return build_trace(*rows, launch("gemm", at=0, start=10, dur=5))


def stages_of(trace: Trace) -> dict[str, tuple[str, int | None]]:
    """name -> (stage, integer payload)."""
    columns = [trace.array("spans", key).tolist() for key in ("name", "stage", "payload_kind", "payload_int")]
    is_int = PAYLOAD_KINDS.index("int")
    return {
        trace.name(name): (STAGES[stage] if stage >= 0 else "", value if kind == is_int else None)
        for name, stage, kind, value in zip(*columns, strict=True)
    }


def test_patterns_name_stages_and_payloads(tmp_path: Path) -> None:
    trace = ranges(
        span("step bs=8", 0, 10),
        span("step bs=?", 20, 10, payload=3),
        span("a prompt", 40, 10, domain="engine"),
        span("prompt of others", 60, 10),
        span("decode#4", 80, 10),
        span("step bs=9 ", 100, 10),
    )
    named = with_stages(trace, read_stage_file(write(tmp_path, ENGINE)))
    assert stages_of(named) == {
        "step bs=8": ("decode", 8),
        "step bs=?": ("decode", 3),
        "a prompt": ("prefill", None),
        "prompt of others": ("", None),
        "decode#4": ("decode", 4),
        "step bs=9 ": ("", None),
    }
    assert named.meta.notes[-2:] == (
        r"--stages: 2 ranges named like ^step bs=(?P<n>\d+|\?)$ (decode)",
        "--stages: 1 range named like prompt (prefill)",
    )
    assert stages_of(trace)["step bs=8"] == ("", None)


def test_the_first_entry_decides_also_over_a_name_that_is_a_stage(tmp_path: Path) -> None:
    content = "[[stage]]\nstage='sample'\npattern='^decode'\ndomain=''\n[[stage]]\nstage='prefill'\npattern='.'\n"
    named = with_stages(
        ranges(span("decode#4", 0, 10), span("decode_2", 20, 10, domain="x")), read_stage_file(write(tmp_path, content))
    )
    assert stages_of(named) == {"decode#4": ("sample", 4), "decode_2": ("prefill", None)}


def test_marks_are_no_stages_and_too_many_digits_no_payload(tmp_path: Path) -> None:
    trace = ranges(span("step bs=7", 0, 0, kind="mark"), span(f"step bs={'9' * 19}", 10, 5))
    named = with_stages(trace, read_stage_file(write(tmp_path, ENGINE)))
    assert list(stages_of(named).values()) == [("", None), ("decode", None)]


def test_a_trace_without_ranges_says_that_none_is_named(tmp_path: Path) -> None:
    named = with_stages(ranges(), read_stage_file(write(tmp_path, ENGINE)))
    assert "--stages: no range is named like prompt (prefill)" in named.meta.notes


def test_steps_follow_from_the_stages_of_a_file(tmp_path: Path) -> None:
    rows: list[Row | list[Row]] = []
    for i in range(6):
        rows += [
            span(f"step bs={i}", i * 1_000, 900),
            launch("gemm", at=i * 1_000 + 10, start=i * 1_000 + 100, dur=500),
        ]
    steps = Analysis(with_stages(build_trace(*rows), read_stage_file(write(tmp_path, ENGINE)))).steps
    assert (steps.source, len(steps), steps.word(int(steps.kind[0]))) == ("stages", 6, "decode")
    assert steps.batch.tolist() == list(range(6))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "a file of stages holds [[stage]] entries and nothing else"),
        ("stage = 'decode'", "a file of stages holds [[stage]] entries and nothing else"),
        ("[[stage]]\nstage='decode'\npattern='x'\n[other]\n", "a file of stages holds [[stage]] entries"),
        (
            "[[stage]]\nstage='decode'",
            "[[stage]] 1: needs stage and pattern, and may have domain and payload; it has stage",
        ),
        ("[[stage]]\nstage='decode'\npattern='x'\nnmae='y'", "it has stage, pattern, nmae"),
        ("[[stage]]\nstage='decode'\npattern=3", "is a text"),
        (
            "[[stage]]\nstage='decode'\npattern='x'\n[[stage]]\nstage='decoding'\npattern='x'",
            "[[stage]] 2: 'decoding' is no",
        ),
        ("[[stage]]\nstage='decode'\npattern='('", "'(' is no regular expression: "),
        ("[[stage]]\nstage='decode'\npattern='x'\npayload='n'", "the pattern has no group (?P<n>...) for the payload"),
        ("[[stage]\n", "no TOML: "),
        ("stage = [" * 5_000, "no TOML: "),
    ],
)
def test_a_bad_file_is_one_line(tmp_path: Path, content: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        read_stage_file(write(tmp_path, content))
    assert said in error.value.message
    assert "stages.toml: " in error.value.message
    assert "\n" not in error.value.message


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_stage_file(tmp_path / "none.toml")
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        read_stage_file(tmp_path)
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="no TOML: "):
        read_stage_file(tmp_path / "binary.toml")
    (tmp_path / "large.toml").write_bytes(b"#" * (2 << 20))
    with pytest.raises(InputError, match="too large"):
        read_stage_file(tmp_path / "large.toml")


def export(path: Path) -> Path:
    """An nsys export of six steps, each with a launch and a kernel."""
    with closing(sqlite3.connect(path)) as db:
        db.executescript(
            """
            CREATE TABLE StringIds(id INTEGER, value TEXT);
            INSERT INTO StringIds VALUES (1, 'gemm'), (2, 'cudaLaunchKernel_v7000');
            CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER,
                streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER);
            CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME(start INTEGER, end INTEGER, eventClass INTEGER, globalTid INTEGER,
                correlationId INTEGER, nameId INTEGER, returnValue INTEGER);
            CREATE TABLE NVTX_EVENTS(start INTEGER, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER,
                globalTid INTEGER, endGlobalTid INTEGER, domainId INTEGER);
            """
        )
        for i in range(6):
            t, pid = i * 100_000, 100 << 24
            kernel = (t + 20_000, t + 90_000, 0, 1, 7, i + 1, pid, 1, 1)
            db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?,?,?,?,?,?,?,?,?)", kernel)
            called = (t + 1_000, t + 6_000, 0, pid + 100, i + 1, 2, 0)
            db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?,?,?,?,?,?,?)", called)
            ranged = (t, t + 95_000, 59, f"step bs={i + 1}", None, pid + 100, None, 0)
            db.execute("INSERT INTO NVTX_EVENTS VALUES (?,?,?,?,?,?,?,?)", ranged)
        db.commit()
    return path


def test_the_command_takes_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = str(export(tmp_path / "run.sqlite"))
    assert main(["check", trace, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["summary"]["stages"] == []
    assert main(["check", trace, "--json", "--stages", str(write(tmp_path, ENGINE))]) == 0
    (stage,) = json.loads(capsys.readouterr().out)["summary"]["stages"]
    assert (stage["stage"], stage["count"]) == ("decode", 6)


def test_the_command_refuses_a_bad_file_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = str(export(tmp_path / "run.sqlite"))
    assert main(["check", trace, "--stages", str(write(tmp_path, "[[stage]]\nstage='x'\npattern='y'"))]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.splitlines()) == 1
    assert "'x' is no stage: there are request, schedule" in printed.err
