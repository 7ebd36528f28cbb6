"""The easy generated trace: one run as an nsys export and as a PyTorch profiler trace, with known truth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

SAME = (
    "window_ns", "devices", "stages", "steps", "requests", "ttft_ns", "tpot_ns", "idle_by_cause", "copies", "launches",
    "calls",
)  # fmt: skip


@pytest.fixture(scope="session")
def made(generate: Callable[..., Any]) -> Any:
    return generate("make_llm_trace.py", "-k", "20000", "--decode-steps", "16", kineto=True)


@pytest.fixture
def both(made: Any, check: Callable[..., dict[str, Any]]) -> list[dict[str, Any]]:
    return [check(made.nsys), check(made.kineto)]


def test_both_sources_give_one_summary(both: list[dict[str, Any]]) -> None:
    nsys, kineto = both

    for key in SAME:
        assert nsys["summary"][key] == kineto["summary"][key], key
    for count in ("kernels", "copies", "graphs", "calls", "launch_calls", "unclosed_spans"):
        assert nsys["summary"]["counts"][count] == kineto["summary"]["counts"][count], count
    assert nsys["headline"] == kineto["headline"]
    prices = [[(f["key"], f["cost_ns"], f["saving_ns"], f["facts"]) for f in document["findings"]] for document in both]
    assert prices[0] == prices[1]


def test_the_counts_are_those_of_the_generator(made: Any, both: list[dict[str, Any]]) -> None:
    truth = made.truth
    assert truth["requests"] > 1
    for document in both:
        summary = document["summary"]
        assert summary["counts"]["kernels"] == summary["counts"]["launch_calls"] == truth["kernels"]
        assert summary["counts"]["copies"] == truth["memcpy"] + truth["memset"]
        assert summary["counts"]["calls"] == truth["runtime"]
        assert summary["steps"]["decode"]["count"] == truth["steps"]
        assert summary["steps"]["prefill"]["count"] == truth["requests"]
        assert summary["requests"] == truth["requests"]
        assert summary["ttft_ns"]["n"] == summary["tpot_ns"]["n"] == truth["requests"]
        stages = {stage["stage"]: stage["count"] for stage in summary["stages"]}
        assert stages == {
            "request": truth["requests"], "tokenize": truth["requests"], "h2d": truth["requests"],
            "prefill": truth["requests"], "schedule": truth["steps"], "decode": truth["steps"],
            "kv_update": truth["steps"], "sample": truth["steps"],
        }  # fmt: skip
        (device,) = summary["devices"]
        assert device["busy_ns"] + device["idle_ns"] == summary["window_ns"]
        assert sum(summary["idle_by_cause"].values()) == device["idle_ns"]
    assert both[0]["summary"]["counts"]["spans"] == truth["nvtx"]


def test_the_planted_faults_are_found(made: Any, both: list[dict[str, Any]]) -> None:
    steps, requests = made.truth["steps"], made.truth["requests"]
    for document in both:
        assert document["headline"].startswith("Decode is launch-bound: ")
        findings = {finding["code"]: finding for finding in (*document["findings"], *document["others"])}
        assert {"PK201", "PK303"} <= {finding["code"] for finding in document["findings"]}
        assert len(document["findings"]) <= 6
        assert findings["PK201"]["severity"] == "critical"
        assert findings["PK201"]["facts"]["launches_per_step"] == 356
        wait = findings["PK303"]
        assert wait["facts"]["read_backs"] == wait["facts"]["pageable_read_backs"] == steps
        assert wait["facts"]["read_back_bytes"] == 64 * steps
        # One synchronisation behind the read-back of each decode step, one at the end of each prefill.
        assert wait["facts"]["syncs"] == wait["facts"]["steps_with_wait"] == steps + requests
        assert f"{steps} pageable read-backs of 64 B each (D2H)" in wait["message"]
        assert "1.00 a step" in wait["message"]
        # The read-backs are that finding's; the uploads of the prompts are their own.
        assert findings["PK301"]["key"] == "PK301:0:h2d:"
        assert findings["PK301"]["facts"]["copies"] == requests
        assert {"PK501", "PK502"} <= set(document["clean"])
