"""``profkit loop``: run the reference inference loop and print its speed."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import typer

from profkit.cli import Command
from profkit.errors import MissingExtra

if TYPE_CHECKING:
    from profkit.loop.config import Settings
    from profkit.loop.measure import Percentiles, Result


def loop(
    preset: str = typer.Option("nano", help="The model: tiny (0.16 M parameters) or nano (5.0 M)."),
    device: str = typer.Option("auto", help="auto, cpu or cuda."),
    dtype: str = typer.Option("float32", help="float32, bfloat16 or float16."),
    batch: int = typer.Option(4, help="Sequences decoded together at most."),
    requests: int = typer.Option(8, help="Requests, all there at once."),
    prompt_tokens: int = typer.Option(64, help="Tokens of each random prompt."),
    prompt: list[str] = typer.Option([], help="A text to answer, in place of random ones; may be repeated."),
    max_new: int = typer.Option(32, help="Tokens answered to each request."),
    seed: int = typer.Option(0, help="Of the weights and the prompts: the same seed gives the same tokens."),
    warm_up: int = typer.Option(1, help="Requests before the clock starts."),
    steps: int = typer.Option(0, help="Stop after so many measured steps; 0: when all is answered."),
    threads: int = typer.Option(1, help="CPU threads of torch."),
    copies: str = typer.Option("pageable", help="Where prompts are copied from: pageable or pinned memory."),
    copy_mode: str = typer.Option("sync", help="Whether the host waits for a copy: sync or async."),
    cuda_graphs: bool = typer.Option(False, "--cuda-graphs", help="Replay the decoding step as a CUDA graph."),
    as_json: bool = typer.Option(False, "--json", help="Print the JSON line only."),
) -> None:
    """Run the reference inference loop.

    A compact Llama-style decoder with random weights, each stage inside its profkit range. The last line of
    stdout is one line of JSON.
    """
    _require_torch()
    from profkit.loop.config import Settings
    from profkit.loop.measure import run

    settings = Settings(
        preset=preset,
        device=device,
        dtype=dtype,
        batch=batch,
        requests=requests,
        prompt_tokens=prompt_tokens,
        max_new=max_new,
        seed=seed,
        warm_up=warm_up,
        steps=steps,
        threads=threads,
        copies=copies,
        copy_mode=copy_mode,
        cuda_graphs=cuda_graphs,
    )
    result = run(settings, tuple(prompt))
    if not as_json:
        print("\n".join(_lines(settings, result)))
    print(json.dumps(_record(settings, result), allow_nan=False))


def _require_torch() -> None:
    try:
        import tokenizers  # noqa: F401
        import torch  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name not in ("tokenizers", "torch"):
            raise
        raise MissingExtra("profkit loop", "loop") from None


def _lines(settings: Settings, result: Result) -> list[str]:
    """The result for a person."""
    from profkit import text

    def times(found: Percentiles | None) -> str:
        if found is None:
            return "n/a"
        return f"p50 {text.ns(found.p50)}, p90 {text.ns(found.p90)}, p99 {text.ns(found.p99)} (n = {found.n})"

    counted = {"process_rss": "resident memory of the process", "cuda_allocated": "allocated by torch on the GPU"}
    return [
        f"model    {settings.preset}, {result.parameters:,} parameters, {settings.dtype}, on {result.device}",
        f"load     {text.count(settings.requests, 'request')}, {settings.batch} at a time",
        f"TTFT     {times(result.ttft_ns)}",
        f"TPOT     {times(result.tpot_ns)}",
        f"tokens   {result.output_tokens:,} in {text.ns(result.wall_ns)}: {result.tokens_per_s:,.1f} per second",
        f"memory   {text.size(result.memory.peak_bytes)} at most: {counted[result.memory.kind]}",
        f"KV cache {text.size(result.kv_cache_bytes)}",
    ]


def _record(settings: Settings, result: Result) -> dict[str, Any]:
    """The result for a program."""
    import torch

    return {
        "schema": "profkit.loop/1",
        "profkit_version": version("profkit"),
        "torch_version": torch.__version__,
        "python_version": ".".join(map(str, sys.version_info[:3])),
        **asdict(settings),
        "device": result.device,
        "parameters": result.parameters,
        "kv_cache_bytes": result.kv_cache_bytes,
        "requests_done": result.requests_done,
        "output_tokens": result.output_tokens,
        "wall_ns": result.wall_ns,
        "tokens_per_s": round(result.tokens_per_s, 1),
        "ttft_ns": asdict(result.ttft_ns) if result.ttft_ns else None,
        "tpot_ns": asdict(result.tpot_ns) if result.tpot_ns else None,
        "peak_memory_bytes": result.memory.peak_bytes,
        "peak_memory_kind": result.memory.kind,
    }


COMMAND = Command(name="loop", run=loop, example="profkit loop --preset tiny --requests 4 --max-new 16")
