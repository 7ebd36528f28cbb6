"""Run the loop and say how fast it was: time to the first token, time per token after it, tokens per second, memory."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter_ns

import torch

from profkit.errors import UsageError
from profkit.loop.backend import Memory, open_backend
from profkit.loop.config import Settings
from profkit.loop.engine import Engine, run_to_end
from profkit.loop.scheduler import Sequence
from profkit.loop.tokenizer import Prompt, prompt_of, random_prompts

PERCENTS = (50, 90, 99)


@dataclass(frozen=True)
class Percentiles:
    """Nearest-rank percentiles of n values: each of them is one of the values."""

    p50: int
    p90: int
    p99: int
    n: int


@dataclass(frozen=True)
class Result:
    """What one run gave. Warm-up is counted nowhere."""

    device: str
    """cpu, or the name of the GPU."""
    parameters: int
    kv_cache_bytes: int
    wall_ns: int
    """From the first arrival until the device is done."""
    output_tokens: int
    requests_done: int
    ttft_ns: Percentiles | None
    """First token on the host minus arrival, queueing included; None without one."""
    tpot_ns: Percentiles | None
    """(end - first token) / (tokens - 1) of requests that ended with two tokens or more; None without one."""
    memory: Memory
    sequences: tuple[Sequence, ...]

    @property
    def tokens_per_s(self) -> float:
        return self.output_tokens * 1e9 / self.wall_ns


def run(settings: Settings, texts: tuple[str, ...] = ()) -> Result:
    """Answer ``settings.requests`` prompts: ``texts`` in turn, or random ones of ``settings.prompt_tokens`` tokens.

    Sets the number of torch's CPU threads. Raises UsageError and ProfkitError for what the device cannot do, UsageError
    for an empty text.
    """
    torch.set_num_threads(settings.threads)
    backend = open_backend(settings.device)
    warm_up, prompts = make_prompts(settings, texts)
    engine = Engine(settings, backend, max(prompt.tokens for prompt in prompts))
    run_to_end(engine, warm_up)
    backend.synchronize()
    backend.reset_peak_memory()
    start_ns = perf_counter_ns()
    sequences = run_to_end(engine, prompts, first_id=len(warm_up), steps=settings.steps)
    backend.synchronize()
    wall_ns = perf_counter_ns() - start_ns
    gpu = backend.device.type == "cuda"
    return Result(
        device=torch.cuda.get_device_name(backend.device) if gpu else backend.device.type,
        parameters=sum(parameter.numel() for parameter in engine.model.parameters()),
        kv_cache_bytes=engine.cache.bytes,
        wall_ns=wall_ns,
        output_tokens=sum(len(sequence.output) for sequence in sequences),
        requests_done=sum(sequence.done for sequence in sequences),
        ttft_ns=percentiles([s.first_token_ns - s.arrival_ns for s in sequences if s.output]),
        tpot_ns=percentiles([time_per_token(s) for s in sequences if s.done and len(s.output) > 1]),
        memory=backend.peak_memory(),
        sequences=tuple(sequences),
    )


def make_prompts(settings: Settings, texts: tuple[str, ...]) -> tuple[list[Prompt], list[Prompt]]:
    """(warm-up prompts, measured prompts). The warm-up takes prompts of its own, of the same length."""
    count = settings.warm_up + settings.requests
    if texts:
        chosen = [prompt_of(text) for text in texts]
        if any(prompt.tokens == 0 for prompt in chosen):
            raise UsageError("--prompt is empty: a prompt has one token at least")
        # The warm-up stands first, and the measured requests begin with the first text all the same.
        prompts = [chosen[(i - settings.warm_up) % len(chosen)] for i in range(count)]
    else:
        prompts = random_prompts(count, settings.prompt_tokens, settings.seed)
    return prompts[: settings.warm_up], prompts[settings.warm_up :]


def time_per_token(sequence: Sequence) -> int:
    """Mean ns between two tokens of an ended answer, rounded half up."""
    gaps = len(sequence.output) - 1
    return (2 * (sequence.end_ns - sequence.first_token_ns) + gaps) // (2 * gaps)


def percentiles(values: list[int]) -> Percentiles | None:
    """Nearest rank: the least value that at least p % of the values do not exceed; None of no values."""
    if not values:
        return None
    ordered = sorted(values)
    p50, p90, p99 = (ordered[-(-percent * len(ordered) // 100) - 1] for percent in PERCENTS)
    return Percentiles(p50, p90, p99, len(ordered))
