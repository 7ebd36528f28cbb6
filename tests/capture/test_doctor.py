"""``profkit doctor``: the real command on this machine, and the checks on machines made of folders and fakes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from profkit.capture.doctor import Check, diagnose

PATH = {"PATH": "/nowhere"}


def doctor(*flags: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error::FutureWarning", "-m", "profkit", "doctor", *flags],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=True,
    )


def checks(root: Path, nvml: object = None, **env: str) -> dict[str, Check]:
    return {check.name: check for check in diagnose({**PATH, **env}, nvml, root).checks}


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_table() -> None:
    done = doctor()
    assert done.stderr == ""
    lines = {line.split()[1]: line for line in done.stdout.splitlines()}
    assert lines["python"].startswith("ok")
    assert {"nsys", "torch", "nvtx", "tokenizers", "CUDA_VISIBLE_DEVICES"} <= set(lines)


def test_n07_json_is_strict_and_flat() -> None:
    done = doctor("--json", CUDA_VISIBLE_DEVICES="0,,1")
    assert done.stderr == ""
    document = json.loads(done.stdout, parse_constant=lambda word: pytest.fail(word))
    assert document["schema"] == "profkit.doctor/1"
    assert {"profkit_version", "python", "nsys_path", "driver", "gpus", "packages", "checks"} <= set(document)
    assert document["cuda_visible_devices"]["entries"] == ["0"]
    assert all(set(check) == {"name", "state", "found", "advice"} for check in document["checks"])


def test_doctor_does_not_import_torch(tmp_path: Path) -> None:
    code = "import sys; from profkit.capture.doctor import diagnose; diagnose(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_n01_no_driver(tmp_path: Path) -> None:
    def fails() -> None:
        raise OSError("libnvidia-ml.so.1: cannot open shared object file")

    found = checks(tmp_path, SimpleNamespace(nvmlInit=fails))["driver"]
    assert found.state == "missing"
    assert "not available" in found.found
    assert "reading, checking and reporting files all work" in found.advice


def test_n03_utilisation_is_not_zero_when_it_is_unknown(tmp_path: Path) -> None:
    nvml = SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetName=lambda handle: b"NVIDIA RTX 4090",
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(total=24 << 30, used=0),
    )
    found = checks(tmp_path, nvml)["gpu 0"]
    assert (found.state, found.found) == ("ok", "NVIDIA RTX 4090, 24.0 GiB, utilisation n/a, compute n/a")


@pytest.mark.parametrize(("value", "state"), [("", "note"), ("-1", "note"), ("2,0", "ok")])
def test_e09_visible_devices(tmp_path: Path, value: str, state: str) -> None:
    found = checks(tmp_path, CUDA_VISIBLE_DEVICES=value)["CUDA_VISIBLE_DEVICES"]
    assert found.state == state
    assert ("no GPU visible" in found.found) == (state == "note")


@pytest.mark.parametrize(
    ("release", "state"), [("2025.3.1.90-253135822126v0", "ok"), ("2021.3.3.2-b99c4d6", "note"), ("", "ok")]
)
def test_nsys_and_its_age(tmp_path: Path, release: str, state: str) -> None:
    write(tmp_path / "nsys", f"#!/bin/sh\necho NVIDIA Nsight Systems version {release}\n")
    (tmp_path / "nsys").chmod(0o755)
    found = checks(tmp_path, NSYS_DIR=str(tmp_path))["nsys"]
    assert found.state == state
    assert ("older than 2022.1" in found.advice) == (state == "note")


def test_m07_sampling_not_permitted_says_that_cuda_is_not_affected(tmp_path: Path) -> None:
    write(tmp_path / "proc/sys/kernel/perf_event_paranoid", "4\n")
    found = checks(tmp_path)["CPU sampling"]
    assert found.state == "note"
    assert "CUDA tracing is not affected" in found.advice


def test_gpu_counters_for_administrators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "proc/driver/nvidia/params", "ResmanDebugLevel: 4\nRmProfilingAdminOnly: 1\n")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "NVreg_RestrictProfilingToAdminUsers=0" in checks(tmp_path)["GPU counters"].advice
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert checks(tmp_path)["GPU counters"].state == "ok"


def test_surroundings(tmp_path: Path) -> None:
    assert checks(tmp_path)["surroundings"].state == "ok"
    write(tmp_path / "proc/version", "Linux version 5.15.167.4-microsoft-standard-WSL2")
    write(tmp_path / ".dockerenv", "")
    assert checks(tmp_path)["surroundings"].found == "WSL, Docker container"
