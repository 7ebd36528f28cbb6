"""``profkit trace`` over a stub of nsys: a shell script that takes nsys's arguments and does what a case says."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from profkit.capture import nsys, nsys_record
from profkit.errors import ProfkitError

STUB = r"""#!/bin/sh
case "$1" in
  --version) echo "NVIDIA Nsight Systems version ${STUB_VERSION:-2025.3.1.90-253135822126v0}"; exit 0 ;;
  profile | export) verb=$1; shift ;;
  *) echo "unknown: $1" >&2; exit 1 ;;
esac
for word in "$@"; do printf '%s\n' "$word"; done > "$STUB_LOG.$verb"
while [ $# -gt 0 ]; do
  case "$1" in
    -o) out=$2; shift 2 ;;
    --*=*) shift ;;
    -*) shift 2 ;;
    *) break ;;
  esac
done
echo "Collecting data..."
if [ "$verb" = export ]; then eval "${STUB_EXPORT:-cp \"\$STUB_SAMPLE\" \"\$out\"}"; exit $?; fi
eval "$STUB_PROFILE"
"""
FORWARD = '"$@"; code=$?; echo report > "$out.nsys-rep"; exit $code'


class Stub:
    """A folder with a stub nsys, and what ``profkit trace`` did with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cwd = folder / "work"
        self.bin = folder / "bin"
        self.cwd.mkdir()
        self.bin.mkdir()
        self.script("nsys", STUB)
        with sqlite3.connect(folder / "sample.sqlite") as db:
            db.execute("CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL)")

    def script(self, name: str, text: str) -> None:
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def env(self, **variables: str) -> dict[str, str]:
        own = {"STUB_LOG": str(self.folder / "log"), "STUB_SAMPLE": str(self.folder / "sample.sqlite")}
        path = f"{self.bin}{os.pathsep}{os.environ['PATH']}"
        # The stub is a shell, which corrects a PWD that is not its folder.
        return {**os.environ, "PWD": str(self.cwd), "PATH": path, "STUB_PROFILE": FORWARD, **own, **variables}

    def start(self, *arguments: str, **variables: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "profkit", "trace", *arguments],
            cwd=self.cwd,
            env=self.env(**variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def trace(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
        process = self.start(*arguments, **variables)
        stdout, stderr = process.communicate(timeout=30)
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)

    def arguments(self, verb: str) -> list[str]:
        return (self.folder / f"log.{verb}").read_text().splitlines()


@pytest.fixture
def stub(tmp_path: Path) -> Stub:
    return Stub(tmp_path)


def test_m01_program_fails_report_is_kept(stub: Stub) -> None:
    done = stub.trace("-o", "r", "--", "sh", "-c", "exit 42")
    assert done.returncode == 42
    assert (stub.cwd / "r.nsys-rep").exists()
    assert (stub.cwd / "r.sqlite").exists()
    assert b"exit code 42 is the program's own" in done.stderr


def test_m01_report_step_fails_after_a_program_that_did_not(stub: Stub) -> None:
    done = stub.trace("-o", "r", "--", "true", STUB_EXPORT="echo 'disk full' >&2; exit 1")
    assert done.returncode == 125
    assert b"exit code 125 is profkit's: the program itself succeeded" in done.stderr
    assert (stub.cwd / "r.nsys-rep").exists()


@pytest.mark.parametrize("profile", [FORWARD, 'echo report > "$out.nsys-rep"; exec "$@"'], ids=["forwards", "execs"])
def test_m01_program_killed(stub: Stub, profile: str) -> None:
    done = stub.trace("-o", "r", "--", "sh", "-c", "kill -9 $$", STUB_PROFILE=profile)
    assert done.returncode == 137
    assert b"exit code 137 is the program's own" in done.stderr


def test_a_good_run_is_opened_and_exits_0(stub: Stub) -> None:
    done = stub.trace("-o", "r", "--", "true")
    assert done.returncode == 0, done.stderr
    assert b"profkit: r.sqlite: " in done.stderr
    assert stub.arguments("export")[:4] == ["-t", "sqlite", "-o", "r.sqlite"]


def test_a_report_that_cannot_be_opened_fails_a_good_run(stub: Stub) -> None:
    done = stub.trace("-o", "r", "--", "true", STUB_EXPORT='echo rubbish > "$out"')
    assert done.returncode == 125
    assert b"could not be opened" in done.stderr
    assert b"Traceback" not in done.stderr


def test_nsys_fails_before_the_program_starts(stub: Stub) -> None:
    done = stub.trace("-o", "r", "--no-such-flag=1", "--", "true", STUB_PROFILE="echo 'bad flag' >&2; exit 1")
    assert done.returncode == 125
    assert b"bad flag" in done.stderr
    assert b"before the program started" in done.stderr


@pytest.mark.parametrize("suffix", [".qdrep", ".nsys-rep.qdrep"])
def test_a09_older_names_of_reports(stub: Stub, suffix: str) -> None:
    done = stub.trace(
        "-o", "run1", "--", "true", STUB_PROFILE=f'"$@"; echo r > "$out{suffix}"', STUB_VERSION="2021.3.3.2"
    )
    assert done.returncode == 0, done.stderr
    assert stub.arguments("export")[-1] == f"run1{suffix}"
    assert (stub.cwd / "run1.sqlite").exists()
    assert b"2021.3.3.2 is older than 2022.1" in done.stderr
    assert not any("cuda-graph-trace" in word for word in stub.arguments("profile"))


def test_a09_no_report_at_all(stub: Stub) -> None:
    done = stub.trace("-o", "run1", "--", "true", STUB_PROFILE='"$@"', STUB_VERSION="2021.3.3.2")
    assert done.returncode == 125
    assert b"nsys 2021.3.3.2 wrote no run1.nsys-rep" in done.stderr


@pytest.mark.parametrize("code", [0, 1])
def test_a10_only_a_stream_is_left(stub: Stub, code: int) -> None:
    profile = f'"$@"; echo "Importer error: wrong event order" >&2; head -c 1024 /dev/zero > "$out.qdstrm"; exit {code}'
    done = stub.trace("-o", "r", "--", "true", STUB_PROFILE=profile)
    assert done.returncode != 0
    assert b"the capture ran but its import failed: r.qdstrm is kept" in done.stderr
    assert b"newer nsys" in done.stderr
    assert b"is the program's own" not in done.stderr


def test_m03_signal_is_passed_on_and_the_report_gets_its_time(stub: Stub) -> None:
    profile = 'trap "sleep 1; echo report > $out.nsys-rep; exit 143" TERM; "$@" & wait; wait'
    program = 'trap "echo program got it >&2; exit 0" TERM; echo up; while :; do sleep 0.05; done'
    process = stub.start("-o", "r", "--", "sh", "-c", program, STUB_PROFILE=profile)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=20)
    assert process.returncode == 143
    assert b"SIGTERM passed on; up to 10 s" in stderr
    assert b"program got it" in stderr
    assert (stub.cwd / "r.sqlite").exists()


def test_m03_killed_after_the_grace_time_with_an_empty_report(stub: Stub) -> None:
    profile = ': > "$out.nsys-rep"; trap "" TERM; "$@" & sleep 30'
    process = stub.start("-o", "r", "--grace", "0.3", "--", "echo", "up", STUB_PROFILE=profile)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    begin = time.monotonic()
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=20)
    assert time.monotonic() - begin < 10
    assert process.returncode == 137
    assert b"grace time of 0.3 s: killed" in stderr
    assert b"r.nsys-rep is incomplete (0 bytes)" in stderr


def test_m07_default_flags_ask_for_no_samples(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert "--sample=none" in nsys_record.profile_flags([], Path("r"), force=False, version="")
    (tmp_path / "paranoid").write_text("4\n")
    monkeypatch.setattr(nsys_record, "_PARANOID", tmp_path / "paranoid")
    assert "CUDA trace is not affected" in nsys_record._sampling_remark(["-s", "process-tree"])
    assert nsys_record._sampling_remark([]) == ""


def test_m08_clients_that_start_programs_elsewhere(stub: Stub) -> None:
    stub.script("docker", "#!/bin/sh\necho started >&2\n")
    done = stub.trace("-o", "r", "--", "docker", "run", "img", "python", "x.py")
    warning = b"what docker starts is not its child and is not traced"
    assert 0 <= done.stderr.find(warning) < done.stderr.find(b"started\n")


def test_m08_which_clients_are_known() -> None:
    known = ["docker", "podman", "/usr/bin/kubectl", "srun", "ssh", "sudo"]
    assert all(nsys_record.foreign_launcher([client, "x"]) for client in known)
    assert nsys_record.foreign_launcher(["python", "docker"]) == ""


def test_m12_arguments_folder_and_environment_arrive_unchanged(stub: Stub) -> None:
    script = stub.cwd / "a.py"
    script.write_text("import json, os, sys\nprint(json.dumps([sys.argv, os.getcwd(), sorted(os.environ.items())]))\n")
    program = [sys.executable, "a.py", "--x", "a b", "--y=$HOME", "--", "-o", "z"]
    done = stub.trace("-o", "r", "--", *program)
    alone = subprocess.run(program, cwd=stub.cwd, env=stub.env(), capture_output=True, check=True)
    assert done.stdout == alone.stdout


@pytest.mark.parametrize(
    ("export", "says"),
    [
        ("echo 'first line' >&2; echo 'No space left on device' >&2; exit 1", "No space left on device"),
        ("true", "it wrote no r.sqlite"),
        (": > \"$out\"; echo 'ENOSPC' >&2; exit 1", "ENOSPC"),
    ],
    ids=["fails", "no file", "disk full"],
)
def test_m13_export_is_checked(stub: Stub, export: str, says: str) -> None:
    done = stub.trace("-o", "r", "--", "true", STUB_EXPORT=export)
    assert done.returncode == 125
    assert says in done.stderr.decode()
    assert b"r.nsys-rep is kept" in done.stderr
    assert b"Traceback" not in done.stderr
    assert not (stub.cwd / "r.sqlite").exists()


@pytest.mark.parametrize(
    "profile",
    [FORWARD, FORWARD.replace('"$@"', '"$@" 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-', 1)],
    ids=["descriptors inherited", "descriptors closed"],
)
def test_stdout_is_the_programs_alone(stub: Stub, profile: str) -> None:
    code = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 3)"
    done = stub.trace("-o", "r", "--", sys.executable, "-c", code, STUB_PROFILE=profile)
    assert done.stdout == bytes(range(256)) * 3
    assert b"Collecting data..." in done.stderr


def test_flags_of_the_user_win() -> None:
    def made(*flags: str) -> list[str]:
        return nsys_record.profile_flags(flags, Path("r"), force=False, version="2025.3.1")

    assert made() == [
        "--trace=cuda,nvtx,osrt",
        "--sample=none",
        "--cpuctxsw=none",
        "--cuda-graph-trace=node",
        "-o",
        "r",
    ]
    assert made("-t", "cuda")[:3] == ["--sample=none", "--cpuctxsw=none", "--cuda-graph-trace=node"]
    assert made("--trace=cuda")[-1] == "--trace=cuda"
    assert made("-tcuda")[0] == "--sample=none"
    assert made("-s", "process-tree") == [
        "--trace=cuda,nvtx,osrt",
        "--cuda-graph-trace=node",
        "-o",
        "r",
        "-s",
        "process-tree",
    ]
    assert "--cuda-graph-trace=node" not in made("--cuda-graph-trace", "graph")


def test_unknown_flags_reach_nsys_in_order(stub: Stub) -> None:
    stub.trace("--stats", "true", "-o", "r", "--gpu-metrics-devices=all", "-w", "true", "--", "true")
    words = stub.arguments("profile")
    at = words.index("-o") + 2
    assert words[at : at + 5] == ["--stats", "true", "--gpu-metrics-devices=all", "-w", "true"]


def test_an_o_in_another_flag_is_no_output(stub: Stub) -> None:
    stub.trace("-tcuda,osrt", "-or", "--", "true")
    words = stub.arguments("profile")
    assert words[words.index("-o") : words.index("-o") + 3] == ["-o", "r", "-tcuda,osrt"]


def test_program_ended_by_its_capture_range_counts_as_success(stub: Stub) -> None:
    profile = '"$@"; echo report > "$out.nsys-rep"; exit 143'
    done = stub.trace("-o", "r", "-c", "cudaProfilerApi", "--", "true", STUB_PROFILE=profile)
    assert done.returncode == 0, done.stderr
    assert b"counts as 0" in done.stderr
    kept = stub.trace(
        "-o", "s", "-c", "cudaProfilerApi", "--capture-range-end=stop", "--", "true", STUB_PROFILE=profile
    )
    assert kept.returncode == 143


def test_repeated_capture_ranges_give_several_reports(stub: Stub) -> None:
    profile = '"$@"; echo 1 > "$out.1.nsys-rep"; echo 2 > "$out.2.nsys-rep"'
    done = stub.trace("-o", "r", "--capture-range-end=repeat:2", "--", "true", STUB_PROFILE=profile)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in stub.cwd.glob("*.sqlite")} == {"r.1.sqlite", "r.2.sqlite"}


def test_no_output_is_overwritten_without_force(stub: Stub) -> None:
    (stub.cwd / "r.nsys-rep").write_text("precious")
    refused = stub.trace("-o", "r", "--", "touch", "started")
    assert refused.returncode == 125
    assert b"r.nsys-rep exists" in refused.stderr
    assert not (stub.cwd / "started").exists()
    assert stub.trace("-o", "r.nsys-rep", "--force", "--", "true").returncode == 0
    assert (stub.cwd / "r.nsys-rep").read_text() == "report\n"
    assert "--force-overwrite=true" in stub.arguments("profile")


def test_default_name(stub: Stub) -> None:
    (stub.cwd / "serve.py").write_text("")
    stub.trace("--", sys.executable, "serve.py")
    (report,) = stub.cwd.glob("*.nsys-rep")
    assert report.name.startswith("profkit-serve-20")


def test_program_that_cannot_run(stub: Stub) -> None:
    (stub.cwd / "plain").write_text("text")
    assert stub.trace("--", "no-such-program").returncode == 127
    assert stub.trace("--", "./plain").returncode == 126
    assert not list(stub.cwd.glob("*.nsys-rep"))


def test_m05_nsys_is_not_installed(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nsys, "_INSTALLS", ("/nowhere/*/nsys",))
    (stub.bin / "nsys").chmod(0o644)
    why = nsys.find(env={"PATH": str(stub.bin)}).why_not()
    for part in ("nsys not found", "cannot be executed", "looked in PATH, /nowhere/*", "install", "NSYS_DIR"):
        assert part in why
    assert nsys.find(env={"PATH": "", "NSYS_DIR": "/nowhere"}).path is None
    with pytest.raises(ProfkitError) as error:
        nsys.find(stub.bin / "nsys")
    assert error.value.exit_code == 127


def test_m05_nsys_asked_for_by_path(stub: Stub) -> None:
    done = stub.trace("--nsys", "/nowhere", "--", "touch", "started")
    assert done.returncode == 127
    assert not (stub.cwd / "started").exists()
    assert stub.trace("--nsys", str(stub.bin), "-o", "r", "--", "false", PATH="/usr/bin:/bin").returncode == 1
    assert (stub.cwd / "r.nsys-rep").exists()


def test_newest_installation_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for release in ("2023.4.1", "2024.10.2", "2024.9.1"):
        tool = tmp_path / release / "bin" / "nsys"
        tool.parent.mkdir(parents=True)
        tool.write_text("#!/bin/sh\n")
        tool.chmod(0o755)
    monkeypatch.setattr(nsys, "_INSTALLS", (f"{tmp_path}/*/bin/nsys",))
    assert nsys.find(env={"PATH": ""}).path == tmp_path / "2024.10.2" / "bin" / "nsys"
