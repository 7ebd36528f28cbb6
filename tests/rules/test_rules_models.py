"""PK405: MBU and MFU of models that are known, by hand, and where they are refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from profkit.analysis.context import Analysis
from profkit.analysis.gpu_peaks import peaks_of
from profkit.analysis.llm import Llm, presets, read_llm
from profkit.cli import main
from profkit.errors import UsageError
from profkit.judge import judged
from profkit.model import Finding, Trace
from profkit.rules import all_rules
from profkit.testing import build_trace, kernel, launch, span

H100 = {"name": "NVIDIA H100 80GB HBM3"}
RULE = all_rules()["PK405"]


def found(trace: Trace, llm: Llm | None = None) -> list[Finding]:
    analysis = Analysis(trace, llm=llm)
    assert RULE.unmet(analysis) == ""
    return [item.finding for item in judged(RULE, analysis)]


def unmet(trace: Trace, llm: Llm | None = None) -> str:
    return RULE.unmet(Analysis(trace, llm=llm))


@pytest.mark.parametrize("name", sorted(presets()))
def test_the_counted_parameters_are_those_published(name: str) -> None:
    llm = read_llm(name)
    assert llm.parameters == presets()[name]["published_parameters"]
    assert 0 < llm.multiplied < llm.active <= llm.parameters


def test_what_a_model_reads() -> None:
    llm = read_llm("Llama-3-8B")
    table = 128_256 * 4_096
    assert llm.read_bytes == 2 * (llm.parameters - table)
    assert llm.multiplied == llm.parameters - 2 * table - (2 * 32 + 1) * 4_096
    assert llm.kv_bytes_per_token == 2 * 32 * 8 * 128 * 2
    mixtral = read_llm("mixtral-8x7b")
    assert mixtral.parameters - mixtral.active == 32 * 6 * 3 * 4_096 * 14_336


def _config(tmp_path: Path, **values: Any) -> str:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(values))
    return str(path)


SMALL = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "vocab_size": 1_000, "torch_dtype": "bfloat16",
}  # fmt: skip


def test_a_config_file(tmp_path: Path) -> None:
    linear = 2 * (4 * 64 * 64 + 3 * 64 * 128)
    llm = read_llm(_config(tmp_path, **SMALL))
    assert llm.parameters == linear + 5 * 64 + 2 * 64_000
    assert llm.arithmetic == "16bit"
    awq = {"quant_method": "awq", "bits": 4, "group_size": 128}
    llm = read_llm(_config(tmp_path, **SMALL, quantization_config=awq))
    assert llm.read_bytes == round(linear * (0.5 + 2.5 / 128) + 2 * (5 * 64 + 64_000))
    llm = read_llm(_config(tmp_path, **SMALL, quantization_config={"quant_method": "fp8"}))
    assert (llm.read_bytes, llm.arithmetic) == (linear + 2 * (5 * 64 + 64_000), "fp8")
    llm = read_llm(_config(tmp_path, parameters=1_000, active_parameters=600, bytes_per_parameter=0.5))
    assert (llm.read_bytes, llm.multiplied, llm.kv_bytes_per_token, llm.arithmetic) == (300, 600, -1, "")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (SMALL | {"model_type": "deepseek_v3"}, "deepseek_v3"),
        (SMALL | {"torch_dtype": "float8"}, "torch_dtype"),
        (SMALL | {"hidden_size": "64"}, "hidden_size"),
        (SMALL | {"vocab_size": -1}, "vocab_size"),
        (SMALL | {"quantization_config": {"quant_method": "bitsandbytes"}}, "bitsandbytes"),
        ({"parameters": 7, "bytes_per_parameter": True}, "bytes_per_parameter"),
    ],
)
def test_a_config_that_does_not_tell(tmp_path: Path, values: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        read_llm(_config(tmp_path, **values))


def test_what_is_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for content in ("{", "[]"):
        (tmp_path / "a.json").write_text(content)
        with pytest.raises(UsageError):
            read_llm(str(tmp_path / "a.json"))
    assert main(["check", "any.sqlite", "--model", "gpt-5"]) == 2
    assert "llama-3-8b" in capsys.readouterr().err


def _served(count: int = 11, *, gpu: dict[str, Any] | None = None, requests: bool = False) -> Trace:
    """A prefill of 1,024 tokens in 50 ms, then decode steps of 2 sequences: 10 ms of work every 12 ms."""
    rows = [span("prefill", 0, 59_000_000, payload=1_024), *launch("gemm", at=0, start=10_000, dur=50_000_000)]
    for i in range(count):
        t = 60_000_000 + i * 12_000_000
        rows.append(span("decode", t, 11_900_000, payload=2))
        rows += launch("gemm", at=t, start=t + 10_000, dur=10_000_000)
    if requests:
        for number in (1, 2):
            rows.append(span("request", 0, 400_000_000, kind="start_end", payload=number))
            rows.append(span(f"request#{number} prompt_tokens=512", 100, 0, kind="mark"))
            rows.append(span(f"request#{number} first_token", 59_500_000, 0, kind="mark"))
    return build_trace(*rows, gpu=H100 if gpu is None else gpu)


def test_mbu_and_mfu_by_hand() -> None:
    llm = read_llm("llama-3-8b")
    decode, prefill = found(_served(), llm)
    assert decode.facts["steps"] == 11
    assert decode.facts["busy_use_share"] == round(llm.read_bytes / 0.010 / 3.352e12, 4)
    assert decode.facts["kv_read_bytes"] == -1
    assert "contexts not known" in decode.message
    assert prefill.facts["busy_use_share"] == round(2 * llm.multiplied * 1_024 / 0.050 / 989.4e12, 4)
    assert (decode.severity, decode.saving_ns) == ("info", -1)


def test_the_kv_cache_counts_where_requests_tell_its_contexts() -> None:
    llm = read_llm("llama-3-8b")
    decode, _ = found(_served(requests=True), llm)
    # Two prompts of 512; in step i they have i + 1 tokens more.
    contexts = sum(2 * (512 + i + 1) for i in range(11))
    assert decode.facts["kv_read_bytes"] == contexts * llm.kv_bytes_per_token
    assert decode.facts["read_bytes"] == 11 * llm.read_bytes + contexts * llm.kv_bytes_per_token


def test_over_100_percent_is_refused() -> None:
    # 139.0 GB in 10 ms, of 3.352 TB/s.
    assert "MBU of decode would be 415 %" in unmet(_served(), read_llm("llama-3-70b"))
    assert "not known" in unmet(_served())


def test_a_split_model_needs_its_world_size() -> None:
    rows = [
        row
        for rank in (0, 1)
        for i in range(5)
        for row in [
            span("decode", i * 12_000_000, 11_900_000, payload=1, pid=rank, tid=rank),
            *launch("gemm", at=i * 12_000_000, start=i * 12_000_000 + 10_000, dur=10_000_000, pid=rank, tid=rank,
                    device=rank),
        ]
    ]  # fmt: skip
    trace, llm = build_trace(*rows, gpu=H100), read_llm("llama-3-8b")
    assert "world size" in unmet(trace, llm)
    processes = trace.tables["processes"]
    place = processes.schema.get_field_index("world_size")
    split = processes.set_column(place, processes.schema.field(place), pa.array([2, 2], pa.int32()))
    first, second = found(replace(trace, tables={**trace.tables, "processes": split}), llm)
    assert first.facts["read_bytes"] == 5 * llm.read_bytes // 2
    assert second.facts["gpus_of_the_model"] == 2
    assert "split over 2 GPUs" in first.message


def test_peaks_of_gpus() -> None:
    def peaks(name: str, arithmetic: str = "16bit", **more: Any) -> tuple[int, int]:
        found = peaks_of(build_trace(kernel(0, 10), gpu={"name": name, **more}), 0, arithmetic)
        return found.memory_bytes_per_s, found.flops_per_s

    assert peaks("NVIDIA L4") == (300_000_000_000, 121_000_000_000_000)
    assert peaks("NVIDIA L40S", "fp8") == (864_000_000_000, 733_000_000_000_000)
    assert peaks("NVIDIA A100-SXM4-80GB", "fp8") == (2_039_000_000_000, -1)
    assert peaks("NVIDIA H100 80GB HBM3 MIG 1g.10gb", mig="1g.10gb") == (-1, -1)
    assert peaks("Some GPU", memory_bytes_per_s=5) == (5, -1)
    assert peaks("", "") == (-1, -1)
