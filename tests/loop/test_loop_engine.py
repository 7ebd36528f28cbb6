"""The loop's tokens do not depend on the cache, on the batch, or on who else runs; and every stage has its range."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from profkit.errors import ProfkitError, UsageError
from profkit.loop.backend import CpuBackend, open_backend
from profkit.loop.config import PRESETS, VOCABULARY_SIZE, Settings
from profkit.loop.copies import Uploader
from profkit.loop.engine import Engine, run_to_end
from profkit.loop.kv import NoCache, StaticKV
from profkit.loop.measure import percentiles, run, time_per_token
from profkit.loop.model import Decoder, attend, make_model, rope_frequencies, rotate
from profkit.loop.scheduler import Sequence
from profkit.loop.tokenizer import Prompt, encode, random_prompts


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def small(**changes: Any) -> Settings:
    return Settings(**({"preset": "tiny", "device": "cpu", "batch": 3, "requests": 5, "max_new": 10} | changes))


def answers(settings: Settings, prompts: list[Prompt]) -> list[list[int]]:
    engine = Engine(settings, CpuBackend(), max(prompt.tokens for prompt in prompts))
    return [sequence.output for sequence in run_to_end(engine, prompts)]


def mixed_prompts() -> list[Prompt]:
    return [random_prompts(1, tokens, seed=tokens)[0] for tokens in (1, 5, 17, 3, 40)]


@torch.inference_mode()
def recompute(model: Decoder, prompt: Prompt, max_new: int) -> list[int]:
    """Greedy decoding that keeps nothing: each token from a pass over everything before it."""
    ids = encode(prompt.text)
    for _ in range(max_new):
        tokens = torch.tensor([ids])
        ids.append(int(model(tokens, torch.arange(len(ids))[None], NoCache()).argmax()))
    return ids[prompt.tokens :]


@pytest.mark.parametrize("preset", PRESETS)
def test_the_cache_changes_no_token(preset: str) -> None:
    settings = small(preset=preset)
    prompts = mixed_prompts()
    model = make_model(PRESETS[preset], settings.seed, torch.float32, torch.device("cpu"))
    assert answers(settings, prompts) == [recompute(model, prompt, settings.max_new) for prompt in prompts]


@pytest.mark.parametrize("batch", [2, 3, 8])
def test_the_batch_changes_no_token(batch: int) -> None:
    prompts = mixed_prompts()
    assert answers(small(batch=batch), prompts) == answers(small(batch=1), prompts)


def test_the_seed_decides_the_tokens() -> None:
    first, again, other = (run(small(seed=seed)) for seed in (1, 1, 2))
    outputs = [[sequence.output for sequence in result.sequences] for result in (first, again, other)]
    assert outputs[0] == outputs[1] != outputs[2]
    assert len({tuple(output) for output in outputs[0]}) == 5, "the model answers to the prompt"


def test_presets_have_the_size_they_are_named_after() -> None:
    def parameters(preset: str) -> int:
        model = make_model(PRESETS[preset], 0, torch.float32, torch.device("cpu"))
        return sum(parameter.numel() for parameter in model.parameters())

    assert 0.15e6 < parameters("tiny") < 0.17e6
    assert 4.9e6 < parameters("nano") < 5.1e6


def test_attention_equals_its_definition() -> None:
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(2, 4, 1, 8, generator=generator, dtype=torch.float64)
    k, v = (torch.randn(2, 2, 6, 8, generator=generator, dtype=torch.float64) for _ in range(2))
    seen = torch.tensor([3, 6])
    mask = (torch.arange(6) < seen[:, None])[:, None, None, :]
    for row, length in enumerate(seen.tolist()):
        for head in range(4):
            keys, values = k[row, head // 2, :length], v[row, head // 2, :length]
            weights = torch.softmax(q[row, head] @ keys.T / 8**0.5, dim=-1)
            torch.testing.assert_close(attend(q, k, v, mask)[row, head], weights @ values)


def test_rotary_scores_depend_on_the_distance_only() -> None:
    frequencies = rope_frequencies(PRESETS["tiny"]).double()
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(8, generator=generator, dtype=torch.float64) for _ in range(2))

    def at(x: Any, position: int) -> Any:
        return rotate(x, (position * frequencies).cos(), (position * frequencies).sin())

    torch.testing.assert_close(at(q, 9) @ at(k, 4), at(q, 105) @ at(k, 100))


def test_rotary_angles_stay_float32_in_a_bfloat16_model() -> None:
    model = make_model(PRESETS["tiny"], 0, torch.bfloat16, torch.device("cpu"))
    assert model.frequencies.dtype == torch.float32
    assert model.embedding.weight.dtype == torch.bfloat16


def test_the_cache_knows_its_size() -> None:
    config = PRESETS["tiny"]
    cache = StaticKV(config, slots=3, positions=10, dtype=torch.bfloat16, device=torch.device("cpu"))
    assert cache.bytes == 2 * config.layers * 3 * config.kv_heads * 10 * config.head_dim * 2


def test_what_only_a_gpu_has_is_refused_on_a_cpu() -> None:
    with pytest.raises(UsageError, match="--copies pinned needs a GPU"):
        Engine(small(copies="pinned"), CpuBackend(), 8)
    with pytest.raises(UsageError, match="--copy-mode async needs a GPU"):
        Engine(small(copy_mode="async"), CpuBackend(), 8)
    with pytest.raises(UsageError, match="--cuda-graphs needs a GPU"):
        Engine(small(cuda_graphs=True), CpuBackend(), 8)
    if not torch.cuda.is_available():
        with pytest.raises(ProfkitError, match="--device cuda: torch"):
            open_backend("cuda")


@pytest.mark.parametrize("change", [{"preset": "huge"}, {"batch": 0}, {"warm_up": -1}, {"copy_mode": "later"}])
def test_settings_that_make_no_sense_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="--"):
        Settings(**change)


class _Waits:
    """A backend whose pinned memory is plain memory and whose events count who waits for them."""

    has_graphs = False

    def __init__(self) -> None:
        self.device = torch.device("cpu")
        self.waited = 0

    def pin(self, tensor: Any) -> Any:
        return tensor

    def record_event(self) -> _Waits:
        return self

    def synchronize(self) -> None:
        self.waited += 1


def test_a_pinned_buffer_is_not_overwritten_before_its_copy_is_done() -> None:
    backend = _Waits()
    uploader = Uploader(backend, capacity=4, pinned=True, wait=False)  # type: ignore[arg-type]
    assert uploader.upload([1, 2]).tolist() == [1, 2]
    assert backend.waited == 0
    assert uploader.upload([3, 4, 5]).tolist() == [3, 4, 5]
    assert backend.waited == 1


# Measures


def test_percentiles_are_nearest_rank() -> None:
    found = percentiles(list(range(1, 201)))
    assert found is not None
    assert (found.p50, found.p90, found.p99, found.n) == (100, 180, 198, 200)
    one = percentiles([7])
    assert one is not None
    assert (one.p50, one.p90, one.p99, one.n) == (7, 7, 7, 1)
    assert percentiles([]) is None


@pytest.mark.parametrize(("dur_ns", "tokens", "expected"), [(10, 3, 5), (11, 3, 6), (10, 4, 3), (11, 4, 4)])
def test_time_per_token_rounds_half_up(dur_ns: int, tokens: int, expected: int) -> None:
    sequence = Sequence(request=None, prompt=[], max_new=tokens, arrival_ns=0)  # type: ignore[arg-type]
    sequence.output, sequence.first_token_ns, sequence.end_ns = [0] * tokens, 100, 100 + dur_ns
    assert time_per_token(sequence) == expected


def test_a_run_counts_what_was_measured_and_no_warm_up() -> None:
    result = run(small(warm_up=2))
    assert (result.requests_done, result.output_tokens) == (5, 50)
    assert result.ttft_ns is not None
    assert result.tpot_ns is not None
    assert result.ttft_ns.n == result.tpot_ns.n == 5
    assert result.wall_ns >= max(sequence.end_ns - sequence.arrival_ns for sequence in result.sequences)
    assert result.memory.kind == "process_rss"


def test_steps_end_a_run_early() -> None:
    result = run(small(steps=4, batch=2))
    assert (result.requests_done, result.output_tokens) == (0, 2 + 2 * 2)
    assert result.tpot_ns is None
    assert result.ttft_ns is not None
    assert result.ttft_ns.n == 2


def test_texts_of_the_user_are_answered_in_turn() -> None:
    result = run(small(requests=3, warm_up=2), ("import os\n", "Grüße, 世界"))
    assert [sequence.prompt for sequence in result.sequences] == [
        encode("import os\n"),
        encode("Grüße, 世界"),
        encode("import os\n"),
    ]
    with pytest.raises(UsageError, match="--prompt is empty"):
        run(small(), ("",))


# Ranges


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The annotations of a run of three requests of 6 tokens, two at a time, four tokens each, by start."""
    from torch.profiler import ProfilerActivity, profile

    prompts = random_prompts(3, 6, seed=0)
    engine = Engine(small(batch=2, max_new=4), CpuBackend(), 6)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        run_to_end(engine, prompts)
    path = tmp_path_factory.mktemp("profile") / "trace.json"
    profiler.export_chrome_trace(str(path))
    events = json.loads(path.read_text())["traceEvents"]
    found = [event for event in events if event.get("cat") == "user_annotation"]
    return sorted(found, key=lambda event: (event["ts"], -event["dur"]))


def nesting(events: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """For each stage range the names of the stages around it and its own; requests and marks left out."""
    stack: list[tuple[float, str]] = []
    found = []
    for event in events:
        name = event["name"].removeprefix("profkit::")
        if name.startswith("request#"):
            continue
        while stack and stack[-1][0] <= event["ts"]:
            stack.pop()
        stack.append((event["ts"] + event["dur"], name))
        found.append(tuple(entry[1] for entry in stack))
    return found


def test_stages_nest_and_carry_their_units(profiled: list[dict[str, Any]]) -> None:
    config = PRESETS["tiny"]
    bytes_per_token = 2 * config.kv_heads * config.head_dim * 4
    counted = Counter(nesting(profiled))
    # Two prefills, three steps of both, a prefill for the slots that came free, three steps alone.
    prompt_update, step_update = f"kv_update#{6 * bytes_per_token}", f"kv_update#{2 * bytes_per_token}"
    assert counted == {
        ("tokenize#6",): 3,
        ("schedule#3",): 5,
        ("schedule#1",): 4,
        ("prefill#6",): 3,
        ("prefill#6", "h2d#48"): 3,
        ("prefill#6", prompt_update): 3 * config.layers,
        ("prefill#6", "sample#1"): 3,
        ("decode#2",): 3,
        ("decode#2", step_update): 3 * config.layers,
        ("decode#2", "sample#2"): 3,
        ("decode#1",): 3,
        ("decode#1", step_update): 3 * config.layers,
        ("decode#1", "sample#1"): 3,
        ("detokenize#1",): 6,
        ("detokenize#2",): 3,
    }


def test_requests_overlap_and_say_their_tokens(profiled: list[dict[str, Any]]) -> None:
    requests = [event for event in profiled if event["name"].startswith("profkit::request#")]
    names = Counter(event["name"].removeprefix("profkit::") for event in requests)
    assert names == {
        f"request#{i}{what}": 1
        for i in range(3)
        for what in ("", " prompt_tokens=6", " first_token", " output_tokens=4")
    }
    spans = {event["name"]: event for event in requests}
    first, last = spans["profkit::request#0"], spans["profkit::request#2"]
    assert first["ts"] < last["ts"] < first["ts"] + first["dur"] < last["ts"] + last["dur"]


def test_a_request_ends_after_its_last_token_is_text(profiled: list[dict[str, Any]]) -> None:
    spans = {event["name"]: event for event in profiled}
    end = spans["profkit::request#2"]["ts"] + spans["profkit::request#2"]["dur"]
    assert all(event["ts"] + event["dur"] <= end for event in profiled)


def test_every_logit_has_a_token() -> None:
    model = make_model(PRESETS["tiny"], 0, torch.float32, torch.device("cpu"))
    logits = model(torch.zeros(2, 3, dtype=torch.int64), torch.arange(3)[None], NoCache())
    assert logits.shape == (2, VOCABULARY_SIZE)


def test_the_repository_ships_its_vocabulary() -> None:
    assert (Path(__file__).resolve().parents[2] / "profkit" / "loop" / "vocabulary.json").stat().st_size < 300_000
