"""Steps from the annotations of engines: what their names say, and where an iteration begins and ends."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from profkit.analysis.context import Analysis
from profkit.analysis.steps import DECODE, MIXED, OTHER, PREFILL
from profkit.analysis.steps_engines import Iteration, engine_patterns, read_name
from profkit.ingest import open_trace
from profkit.schema import STEP_KINDS
from profkit.testing import build_trace, launch, span

NAMES = {
    "execute_8192_context_9(sq8155sk8430sqsq7475785sqsk7671310)_generation_37(sq37sk34489sqsq37sqsk34489)": (
        "vLLM", Iteration("mixed", 46, 8155, 37),
    ),
    "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)": (
        "vLLM", Iteration("decode", 32, 0, 32),
    ),
    "execute_context_1(888_788544)_generation_0(0)": ("vLLM", Iteration("prefill", 1, 888, 0)),
    "execute_context_3(128)_generation_2(50)": ("vLLM", Iteration("mixed", 5, 128, 50)),
    "execute_new_0_cached_4": ("vLLM", Iteration("other", -1, -1, -1)),
    "step[EXTEND bs=15 toks=15360]": ("SGLang", Iteration("prefill", 15, 15360, -1)),
    "step[DECODE bs=32]": ("SGLang", Iteration("decode", 32, -1, 32)),
    "step[MIXED bs=2]": ("SGLang", Iteration("mixed", 2, -1, -1)),
    "step[TARGET_VERIFY bs=4]": ("SGLang", Iteration("decode", 4, -1, -1)),
    "[Executor] _forward_step 60000: 0 ctx reqs, 0 ctx tokens, 32 gen reqs": (
        "TensorRT-LLM", Iteration("decode", 32, 0, -1),
    ),
    "[Executor] _forward_step 7: 2 ctx reqs, 3 gen reqs": ("TensorRT-LLM", Iteration("mixed", 5, -1, -1)),
    "[Executor] _forward_step: 2 ctx reqs, 0 gen reqs": ("TensorRT-LLM", Iteration("prefill", 2, -1, -1)),
    "decode[bs=64 tok=64 d=64 sqsq=64]": ("ATOM", Iteration("decode", 64, -1, 64)),
    "prefill[bs=1 tok=1024 ctx=1024]": ("ATOM", Iteration("prefill", 1, 1024, -1)),
    "gpu_model_runner: preprocess": ("vLLM", Iteration("other", -1, -1, -1)),
    "scheduler.run_batch": ("SGLang", Iteration("other", -1, -1, -1)),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_what_a_name_says(name: str) -> None:
    read = [(pattern.engine, said) for pattern in engine_patterns() if (said := read_name(pattern, name))]
    assert read == [NAMES[name]]


@pytest.mark.parametrize(
    "name",
    [
        "step[IDLE bs=0]", "step[", "my step[DECODE bs=1]", "execute_context_menu", "scheduler.run_batch_x",
        "gpu_model_runner: forward", "forward", "decode[",
    ],
)  # fmt: skip
def test_what_is_no_iteration(name: str) -> None:
    assert [read_name(pattern, name) for pattern in engine_patterns() if read_name(pattern, name)] == []


def test_every_pattern_says_where_it_is_from_and_its_kinds_exist() -> None:
    for pattern in engine_patterns():
        assert pattern.engine
        assert len(pattern.source) > 20
        assert set(pattern.modes.values()) <= set(STEP_KINDS)
        assert set(pattern.one_token) <= set(pattern.modes)


def test_a_number_that_no_engine_writes_is_not_known() -> None:
    pattern = next(p for p in engine_patterns() if p.engine == "SGLang")
    assert read_name(pattern, f"step[DECODE bs={10**30}]") == Iteration("decode", -1, -1, -1)


def _iteration(name: str, at: int, *, sampled: bool = True) -> list:
    """An annotation of 60 ns with a kernel in it and, behind it, one that samples."""
    rows = [span(name, at, 60, kind="annotation"), *launch("gemm", at=at + 5, start=at + 20, dur=50, call_dur=5)]
    return rows + launch("argmax", at=at + 70, start=at + 75, dur=15, call_dur=3) * sampled


def test_an_iteration_lasts_to_the_next_one_of_its_thread() -> None:
    names = ["step[EXTEND bs=2 toks=30]", *["step[DECODE bs=2]"] * 3]
    steps = Analysis(build_trace(*(_iteration(name, 100 * i) for i, name in enumerate(names)))).steps
    assert steps.source == "engine_annotations"
    assert steps.kind.tolist() == [PREFILL, DECODE, DECODE, DECODE]
    assert steps.host_start.tolist() == [0, 100, 200, 300]
    assert steps.host_end.tolist() == [100, 200, 300, 360]
    # The kernel that samples is launched behind the annotation, and belongs to the step.
    assert steps.gpu_end.tolist() == [90, 190, 290, 370]
    assert steps.period.tolist() == [-1, 100, 100, 80]
    assert (steps.batch.tolist(), steps.prefill_tokens.tolist()) == ([2] * 4, [30, -1, -1, -1])
    assert steps.decode_tokens.tolist() == [-1, 2, 2, 2]
    # Where the last one ended is not known: it may have sampled, too.
    assert steps.complete.tolist() == [True, True, True, False]


def test_an_annotation_around_all_work_ends_the_last_iteration() -> None:
    rows = [_iteration("execute_context_0(0)_generation_2(2)", 100 * i, sampled=False) for i in range(3)]
    steps = Analysis(build_trace(*rows)).steps
    assert steps.complete.all()
    assert steps.kind.tolist() == [DECODE] * 3


def test_chunked_prefill_makes_mixed_steps() -> None:
    names = ["execute_context_1(512)_generation_0(0)", "execute_context_1(512)_generation_3(3)"]
    names += ["execute_context_0(0)_generation_4(4)"]
    steps = Analysis(build_trace(*(_iteration(name, 100 * i) for i, name in enumerate(names)))).steps
    assert steps.kind.tolist() == [PREFILL, MIXED, DECODE]
    assert steps.prefill_tokens.tolist() == [512, 512, 0]
    assert steps.decode_tokens.tolist() == [0, 3, 4]


def test_an_annotation_inside_another_opens_no_step() -> None:
    rows = [[*_iteration("step[DECODE bs=1]", 100 * i), span("step[DECODE bs=1]", 100 * i + 10, 20)] for i in range(3)]
    assert len(Analysis(build_trace(*rows)).steps) == 3


def test_ranges_and_profiler_steps_come_first() -> None:
    engine = [_iteration("step[DECODE bs=1]", 100 * i) for i in range(3)]
    steps = Analysis(build_trace(*engine, span("ProfilerStep#1", 0, 300, kind="annotation"))).steps
    assert (steps.source, steps.kind.tolist()) == ("profiler_steps", [OTHER])
    steps = Analysis(build_trace(*engine, span("decode", 0, 300))).steps
    assert (steps.source, len(steps)) == ("stages", 1)


CORPUS = {
    "tl-sglang-qwen3-decode.json.gz": (DECODE, 32, 0, 32),
    "tl-sglang-qwen3-prefilldecode.json.gz": (PREFILL, 15, 15360, 0),
    "tl-vllm-decode-graph-exec.json.gz": (DECODE, 32, 0, 32),
    "tl-vllm-piecewise-graph-exec.json.gz": (MIXED, 46, 8155, 37),
    "tl-b200-eager.json.gz": (PREFILL, 1, 888, 0),
}


@pytest.mark.skipif("PROFKIT_CORPUS" not in os.environ, reason="the corpus is not at hand")
@pytest.mark.parametrize("name", CORPUS)
def test_real_traces_of_engines_own_all_of_their_work(name: str) -> None:
    steps = Analysis(open_trace(Path(os.environ["PROFKIT_CORPUS"]) / "kineto" / name)).steps
    assert steps.source == "engine_annotations"
    columns = (steps.kind, steps.batch, steps.prefill_tokens, steps.decode_tokens)
    assert tuple(column.tolist() for column in columns) == tuple([value] for value in CORPUS[name])
    assert (steps.of_work == 0).all()
