"""Record the capture ``traces/loop-cpu-nano.json.gz``: ``python -m scripts.record_loop_trace``.

Two requests of the nano model on one CPU thread under the PyTorch profiler, after a warm-up outside of it. What comes
out is Kineto's own JSON without host name and paths, compressed without a time stamp.
"""

from __future__ import annotations

import gzip
import platform
import socket
import tempfile
from importlib.metadata import version
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from profkit.capture.kineto import clean
from profkit.loop.backend import CpuBackend
from profkit.loop.config import Settings
from profkit.loop.engine import Engine, run_to_end
from profkit.loop.tokenizer import random_prompts

OUTPUT = Path(__file__).resolve().parents[1] / "traces" / "loop-cpu-nano.json.gz"
SETTINGS = Settings(preset="nano", device="cpu", batch=2, requests=2, prompt_tokens=64, max_new=8, warm_up=1)


def record(path: Path) -> None:
    """Write the raw trace of one run to ``path``."""
    torch.set_num_threads(SETTINGS.threads)
    prompts = random_prompts(SETTINGS.warm_up + SETTINGS.requests, SETTINGS.prompt_tokens, SETTINGS.seed)
    engine = Engine(SETTINGS, CpuBackend(), SETTINGS.prompt_tokens)
    run_to_end(engine, prompts[: SETTINGS.warm_up])
    with profile(activities=[ProfilerActivity.CPU], record_shapes=False, with_stack=False) as profiler:
        run_to_end(engine, prompts[SETTINGS.warm_up :], first_id=SETTINGS.warm_up)
    profiler.export_chrome_trace(str(path))


def main() -> None:
    versions = {
        "profkit": version("profkit"),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "trace.json"
        record(raw)
        lines = raw.read_text(encoding="utf-8").splitlines(keepends=True)
    text = "".join(clean(lines, OUTPUT.name, socket.gethostname(), versions))
    OUTPUT.write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))


if __name__ == "__main__":
    main()
