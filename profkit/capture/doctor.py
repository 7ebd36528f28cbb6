"""What works on this machine, and what each missing thing costs. Nothing here raises for what is absent."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from typing import Any

from profkit.capture import nsys
from profkit.capture.nvml import Nvml, query
from profkit.capture.visible import parse_visible_devices

OK, NOTE, MISSING = "ok", "note", "missing"
_ROOT = Path("/")


@dataclass(frozen=True)
class Check:
    """One line of the doctor's table."""

    name: str
    state: str
    """ok, note (works, with a remark) or missing."""
    found: str
    advice: str = ""
    """What its absence costs, and what to do."""


@dataclass(frozen=True)
class Diagnosis:
    """All lines, and the facts behind them for a program to read."""

    checks: tuple[Check, ...]
    facts: Mapping[str, Any]


def diagnose(env: Mapping[str, str] | None = None, nvml: Any = None, root: Path = _ROOT) -> Diagnosis:
    """Look at everything. ``nvml`` (a pynvml module) and ``root`` (where /proc and /dev are) replace this machine's."""
    env = os.environ if env is None else env
    driver = query(nvml)
    tool = nsys.find(env=env)
    tool_version = nsys.version(tool.path) if tool.path else ""
    checks = [
        Check("python", OK, f"{platform.python_version()}, profkit {version('profkit')}"),
        _nsys_check(tool, tool_version),
        *_driver_checks(driver),
        _visible_check(env, driver),
        _torch_check(root),
        *(_package_check(*row) for row in _PACKAGES),
        _sampling_check(root),
        _counters_check(root),
        _surroundings_check(env, root),
    ]
    facts = {
        "python": platform.python_version(),
        "nsys_path": str(tool.path) if tool.path else None,
        "nsys_version": tool_version or None,
        "driver": driver.driver,
        "driver_cuda": driver.cuda,
        "gpus": [asdict(gpu) for gpu in driver.gpus],
        "cuda_visible_devices": _visible_facts(env.get("CUDA_VISIBLE_DEVICES")),
        "packages": {name: _installed(name) for name in ("torch", *(row[0] for row in _PACKAGES))},
    }
    return Diagnosis(tuple(checks), facts)


_PACKAGES = (
    ("nvtx", "ranges do not reach Nsight Systems: pip install nvtx"),
    ("tokenizers", "profkit loop cannot tokenize: pip install 'profkit[loop]'"),
    ("triton", "Triton kernels of profkit are not available; it comes with torch's CUDA builds"),
    ("flash-attn", "the flash attention backend is not available; torch's own attention is used"),
)


def _nsys_check(tool: nsys.Found, tool_version: str) -> Check:
    if tool.path is None:
        cost = "trace uses the PyTorch profiler, for Python programs only; .nsys-rep files cannot be opened"
        return Check("nsys", MISSING, tool.why_not().split("; looked in")[0], f"{cost}; {nsys.INSTALL_HINT}")
    found = f"{tool_version or 'version unknown'}, {tool.path}"
    if nsys.is_too_old(tool_version):
        oldest = ".".join(map(str, nsys.OLDEST))
        return Check(
            "nsys", NOTE, found, f"older than {oldest}: no CUDA graph nodes, other file names; install a newer one"
        )
    return Check("nsys", OK, found)


def _driver_checks(driver: Nvml) -> list[Check]:
    if driver.problem:
        advice = "nothing can be recorded on a GPU here; reading, checking and reporting files all work"
        return [Check("driver", MISSING, f"GPU information not available: {driver.problem}", advice)]
    lines = [Check("driver", OK, f"{driver.driver or 'n/a'}, up to CUDA {driver.cuda or 'n/a'}")]
    for gpu in driver.gpus:
        memory = "memory n/a" if gpu.memory_bytes is None else f"{gpu.memory_bytes / 2**30:.1f} GiB"
        busy = "utilisation n/a" if gpu.busy_share is None else f"{gpu.busy_share:.0%} busy"
        capability = f"compute {gpu.compute_capability}" if gpu.compute_capability else "compute n/a"
        mig = ", MIG on" if gpu.mig else ""
        found = f"{gpu.name or 'name n/a'}, {memory}, {busy}, {capability}{mig}"
        advice = "hardware tracing needs a whole GPU: pass --trace=cuda-sw,nvtx,osrt on MIG" if gpu.mig else ""
        lines.append(Check(f"gpu {gpu.index}", NOTE if gpu.mig else OK, found, advice))
    if not driver.gpus:
        lines.append(Check("gpu", MISSING, "the driver shows no GPU", "in a container: start it with --gpus all"))
    return lines


def _visible_check(env: Mapping[str, str], driver: Nvml) -> Check:
    name = "CUDA_VISIBLE_DEVICES"
    value = env.get(name)
    visible = parse_visible_devices(value)
    if visible.entries is None:
        return Check(name, OK, "not set: every GPU is visible")
    if not visible.entries:
        return Check(name, NOTE, f"{value!r}: no GPU visible", visible.note)
    # CUDA numbers the fastest GPU first unless told otherwise, NVML goes by the bus: where that matters, no names.
    same_order = env.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" or len({gpu.name for gpu in driver.gpus}) == 1
    names = visible.names(driver.gpus if same_order else ())
    devices = ", ".join(f"cuda:{at} is {text}" for at, text in enumerate(names))
    return Check(name, NOTE if visible.note else OK, f"{value!r}: {devices}", visible.note)


def _visible_facts(value: str | None) -> dict[str, Any]:
    visible = parse_visible_devices(value)
    return {"value": value, "entries": None if visible.entries is None else list(visible.entries), "note": visible.note}


def _torch_check(root: Path) -> Check:
    found = _installed("torch")
    if found is None:
        cost = "profkit loop and recording by the PyTorch profiler need it, here or in the program's own environment"
        return Check("torch", MISSING, "not installed", f"{cost}: pip install 'profkit[loop]'")
    kind = _torch_build(found)
    if kind == "CPU build" and (root / "dev/nvidiactl").exists():
        return Check("torch", NOTE, f"{found} ({kind}, not imported)", "it sees no GPU: install a CUDA build")
    return Check("torch", OK, f"{found} ({kind}, not imported)")


def _torch_build(found: str) -> str:
    """Which kind of build, by version and requirements: to import torch and ask would take a second."""
    local = found.partition("+")[2]
    if local.startswith("cpu"):
        return "CPU build"
    if re.match(r"cu\d", local):
        return "CUDA build"
    if local.startswith("rocm"):
        return "ROCm build"
    needs = " ".join(distribution("torch").requires or ())
    return "CUDA build" if re.search(r"nvidia-|cuda-", needs) and platform.system() == "Linux" else "build unknown"


def _package_check(name: str, cost: str) -> Check:
    found = _installed(name)
    return Check(name, OK, found) if found else Check(name, MISSING, "not installed", cost)


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _sampling_check(root: Path) -> Check:
    text = _read(root / "proc/sys/kernel/perf_event_paranoid").strip()
    if not re.fullmatch(r"-?\d+", text):
        return Check("CPU sampling", NOTE, "perf_event_paranoid cannot be read", "matters for nsys --sample only")
    if int(text) <= 2:
        return Check("CPU sampling", OK, f"permitted (perf_event_paranoid {text})")
    advice = (
        "matters for nsys --sample only, CUDA tracing is not affected; sysctl kernel.perf_event_paranoid=2 permits it"
    )
    return Check("CPU sampling", NOTE, f"not permitted (perf_event_paranoid {text})", advice)


def _counters_check(root: Path) -> Check:
    text = _read(root / "proc/driver/nvidia/params")
    match = re.search(r"^\s*RmProfilingAdminOnly:\s*(\d)", text, re.MULTILINE)
    if match is None:
        return Check("GPU counters", NOTE, "unknown: no NVIDIA kernel driver here", "matters for GPU metrics only")
    if match[1] == "0" or _is_root():
        return Check("GPU counters", OK, "permitted")
    advice = "matters for nsys --gpu-metrics-devices only; load the driver with NVreg_RestrictProfilingToAdminUsers=0"
    return Check("GPU counters", NOTE, "for administrators only", advice)


def _surroundings_check(env: Mapping[str, str], root: Path) -> Check:
    found, advice = [], []
    if "microsoft" in _read(root / "proc/version").lower():
        found.append("WSL")
        advice.append("the GPU is reached through Windows: some NVML values and GPU metrics are missing")
    container = _container(env, root)
    if container:
        found.append(container)
        advice.append(
            "profile inside the container, not its client; it needs --gpus all, and SYS_ADMIN for CPU samples"
        )
    if (root / "etc/nv_tegra_release").exists():
        found.append("Jetson")
        advice.append("an integrated GPU shares the host's memory: memory and utilisation are not reported")
    if not found:
        return Check("surroundings", OK, "no container or virtual Linux recognised")
    return Check("surroundings", NOTE, ", ".join(found), "; ".join(advice))


def _container(env: Mapping[str, str], root: Path) -> str:
    if (root / ".dockerenv").exists():
        return "Docker container"
    if (root / "run/.containerenv").exists():
        return "Podman container"
    if env.get("KUBERNETES_SERVICE_HOST"):
        return "Kubernetes pod"
    if env.get("APPTAINER_CONTAINER") or env.get("SINGULARITY_CONTAINER"):
        return "Apptainer container"
    return ""


def _is_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
