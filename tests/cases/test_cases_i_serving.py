"""Cases I: what people see who serve a model: bubbles, tokenization, first requests, memory, spikes."""

from __future__ import annotations

from typing import Any

import pytest

US, MS = 1_000, 1_000_000
TID = 100 * 0x1000000 + 100
MIB = 1 << 20
START_END, MARK = 60, 34


def work(nsys: Any, start: int, end: int, number: int, name: str = "gemm", thread: int = TID) -> None:
    """A kernel that starts with its launch call, and the wait for it."""
    nsys.call(start, start + 5 * US, "cudaLaunchKernel_v7000", correlation=2 * number)
    nsys.rows["CUPTI_ACTIVITY_KIND_RUNTIME"][-1]["globalTid"] = thread
    nsys.kernel(start, end, name, correlation=2 * number)
    nsys.call(start + 6 * US, end, "cudaStreamSynchronize_v3020", correlation=2 * number + 1)
    nsys.rows["CUPTI_ACTIVITY_KIND_RUNTIME"][-1]["globalTid"] = thread


def test_I01_a_bubble_after_every_decode_step(nsys: Any, check: Any, page: Any) -> None:
    for i in range(100):
        t = 20 * i * MS
        nsys.nvtx(t, t + 15 * MS, text="decode")
        work(nsys, t, t + 15 * MS, i + 1)
        nsys.nvtx(t + 15 * MS, t + 17 * MS, text="schedule")
        nsys.nvtx(t + 17 * MS, t + 19 * MS, text="detokenize")
        nsys.nvtx(t + 19 * MS, t + 20 * MS, text="sample")
    path = nsys.write()

    seen = check(path)

    window = 100 * 20 * MS - 5 * MS
    assert (seen.summary["window_ns"], seen.device["idle_ns"]) == (window, 495 * MS)
    idle = {cause: ns for cause, ns in seen.summary["idle_by_cause"].items() if ns}
    assert idle == {"stage_schedule": 198 * MS, "stage_detokenize": 198 * MS, "stage_sample": 99 * MS}
    assert seen.codes[0] == "PK102"
    (bubble,) = seen.findings("PK102")
    for words in (
        "Decode-step bubble", "495 ms (24.8 % of 2.00 s)", "99 gaps of 5.00 ms (median)", "schedule 198 ms",
        "detokenize 198 ms", "sample 99.0 ms",
    ):  # fmt: skip
        assert words in bubble["message"]
        assert words in seen.text
        assert words in page(path)
    assert bubble["saving_ns"] == pytest.approx(495 * MS, rel=0.001)
    assert bubble["saving_ns_per_step"] == pytest.approx(5 * MS, rel=0.001)
    assert not {"PK201", "PK202", "PK303"} & set(seen.codes)
    assert seen.headline.startswith("Bubble between steps: ")


@pytest.mark.parametrize("engine", ["own-thread", "same-thread"])
def test_I03_tokenising_is_the_bottleneck(nsys: Any, check: Any, engine: str) -> None:
    """Four requests at 0; one thread tokenizes them, 800 ms each, back to back; a prefill of 50 ms behind each."""
    launching = TID + 1 if engine == "own-thread" else TID
    for i in range(4):
        begin, end = 800 * i * MS, 800 * (i + 1) * MS
        nsys.nvtx(0, end + 50 * MS, text=f"request#{i}", eventType=START_END, rangeId=i + 1)
        nsys.nvtx(begin + (i > 0) * 20 * US, end, text="tokenize")
        if engine == "own-thread":
            nsys.nvtx(end, end + 50 * MS, text="prefill", globalTid=launching)
            work(nsys, end, end + 50 * MS, i + 1, "prefill_gemm", launching)
        else:
            nsys.nvtx(end, end + 10 * US, text="prefill")
            nsys.call(end, end + 5 * US, "cudaLaunchKernel_v7000", correlation=i + 1)
            nsys.kernel(end, end + 50 * MS, "prefill_gemm", correlation=i + 1)
            nsys.nvtx(end + 50 * MS, None, text=f"request#{i} first_token", eventType=MARK)

    seen = check(nsys.write())

    assert seen.summary["ttft_ns"] == {"p50": 1_650 * MS, "p90": 3_250 * MS, "p99": 3_250 * MS, "n": 4}
    assert seen.summary["request_facts"]["ttft_max_ns"] == 3_250 * MS
    assert seen.codes[0] == "PK208"
    (tokenize,) = seen.findings("PK208")
    assert "tokenize" in tokenize["message"]
    assert "3.20 s in all, on one thread" in tokenize["message"]
    # Of the 3.2 s the first 0.8 s are before the first kernel.
    assert "the GPU stood still for 2.25 s" in tokenize["message"]
    assert "tokeniz" in seen.headline.lower()
    assert "launch-bound" not in seen.text.lower().replace("pk201 launch-bound decode", "")


def requests(nsys: Any, ttft_ms: list[int], tokens: int = 4) -> Any:
    """Requests one after the other; of each the prefill takes its TTFT, and a token comes each 10 ms behind it."""
    t, number = 0, 0
    for i, ms in enumerate(ttft_ms):
        first = t + ms * MS
        end = first + 10 * MS * (tokens - 1)
        nsys.nvtx(t, end, text=f"request#{i}")
        nsys.nvtx(t, first, text="prefill")
        work(nsys, t, first, number := number + 1, "prefill_gemm")
        for k in range(1, tokens):
            nsys.nvtx(first + 10 * MS * (k - 1), first + 10 * MS * k, text="decode")
            work(nsys, first + 10 * MS * (k - 1), first + 10 * MS * k, number := number + 1)
        t = end + 1 * MS
    return nsys.write()


def test_I05_the_first_request_is_slow(nsys: Any, check: Any, page: Any) -> None:
    path = requests(nsys, [4_650, 80, 82, 79, 81])

    seen = check(path)

    assert seen.summary["ttft_ns"] == {"p50": 81 * MS, "p90": 4_650 * MS, "p99": 4_650 * MS, "n": 5}
    facts = seen.summary["request_facts"]
    assert (facts["ttft_p50_ns"], facts["ttft_max_ns"]) == (81 * MS, 4_650 * MS)
    assert facts["warm_up"] == [{"request": 0, "ttft_ns": 4_650 * MS}]
    line = "warm-up: the first request took 4.65 s to the first token, 57.4 times the median: compare medians"
    assert seen.line("warm-up: ") == line
    assert line in page(path)
    assert seen.line("TTFT ").startswith("TTFT p50 81.0 ms, ")
    assert "994" not in seen.everything


def test_I05_a_slow_request_behind_others_is_no_warm_up(nsys: Any, check: Any) -> None:
    seen = check(requests(nsys, [80, 82, 4_650, 79, 81]))

    assert seen.summary["request_facts"]["warm_up"] == []
    assert "warm-up:" not in seen.text


def test_I07_one_output_token_and_one_request(nsys: Any, check: Any, page: Any) -> None:
    path = requests(nsys, [80], tokens=1)

    seen = check(path)

    assert seen.summary["ttft_ns"] == {"p50": 80 * MS, "p90": 80 * MS, "p99": 80 * MS, "n": 1}
    assert seen.summary["tpot_ns"] is None
    assert seen.line("TTFT ") == "TTFT p50 80.0 ms, p90 80.0 ms, p99 80.0 ms (n=1)"
    assert seen.line("TPOT ") == "TPOT n/a: no complete request of two tokens or more"
    assert "TPOT" in page(path)


@pytest.mark.parametrize("prefilled", [False, True], ids=["never-run", "prefilled"])
def test_I07_a_cancelled_request_is_counted_apart(nsys: Any, check: Any, page: Any, prefilled: bool) -> None:
    """A request of four tokens, one of one token, and one that was cancelled: before its prefill, or behind it."""
    nsys.nvtx(0, 110 * MS, text="request#0")
    nsys.nvtx(0, 75 * MS, text="prefill")
    work(nsys, 0, 75 * MS, 1)
    for k in range(4):
        nsys.nvtx(76 * MS + 10 * k * MS, 80 * MS + 10 * k * MS, text="sample")
    nsys.nvtx(200 * MS, 290 * MS, text="request#1")
    nsys.nvtx(200 * MS, 285 * MS, text="prefill")
    work(nsys, 200 * MS, 285 * MS, 2)
    nsys.nvtx(285 * MS, 290 * MS, text="sample")
    nsys.nvtx(400 * MS, 450 * MS, text="request#2")
    if prefilled:
        nsys.nvtx(400 * MS, 440 * MS, text="prefill")
        work(nsys, 400 * MS, 440 * MS, 3)
        nsys.nvtx(445 * MS, None, text="request#2 output_tokens=0", eventType=MARK)
    path = nsys.write()

    seen = check(path)

    facts = seen.summary["request_facts"]
    assert (facts["of"], facts["cancelled"], facts["one_token"], facts["cut"]) == (3, 1, 1, 0)
    assert seen.summary["ttft_ns"] == {"p50": 80 * MS, "p90": 90 * MS, "p99": 90 * MS, "n": 2}
    assert seen.summary["tpot_ns"] == {"p50": 10 * MS, "p90": 10 * MS, "p99": 10 * MS, "n": 1}
    line = "1 of 3 requests ended without a token: cancelled, in no time"
    assert line in seen.text.splitlines()
    assert "1 of 3 requests of one token: no TPOT" in seen.text.splitlines()
    assert line in page(path)


def test_I08_memory_is_reserved_but_fragmented(kineto: Any, check: Any) -> None:
    """[memory] events, then three cudaMalloc of 5 ms, each with a cudaFree of 5 ms: the allocator tried again."""
    kineto.base()
    allocated, reserved = round(18_841.6 * MIB), round(19_243.9 * MIB)
    where = {"Device Type": 1, "Device Id": 0, "Addr": 4096, "Bytes": 512}
    for ts in (1_200, 1_300):
        kineto.events.append(
            {
                "ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 100, "tid": 100, "ts": ts,
                "args": {**where, "Total Allocated": allocated, "Total Reserved": reserved},
            }
        )  # fmt: skip
    for i in range(3):
        kineto.call("cudaMalloc", 2_000 + 11_000 * i, 5_000, 100 + 2 * i)
        kineto.call("cudaFree", 7_010 + 11_000 * i, 5_000, 101 + 2 * i)
    kineto.launch(40_000, 5, 50)
    kineto.kernel(40_010, 100, 50)

    seen = check(kineto.write())

    (memory,) = seen.findings("PK705")
    facts = memory["facts"]
    assert [key for key in facts if key.endswith("_bytes") and facts[key] == reserved - allocated]
    assert "2.1 %" in memory["message"]
    assert [key for key in facts if "retries" in key and facts[key] == 3]
    assert [key for key in facts if key.endswith("_ns") and facts[key] == 30 * MS]
    assert "30.0 ms" in memory["message"]
    assert "leak" not in seen.everything.lower()
    assert seen.summary["idle_by_cause"]["allocator"] == 30 * MS


def test_I09_occasional_latency_spikes(nsys: Any, check: Any, page: Any) -> None:
    t = 0
    starts = {}
    for i in range(200):
        length = 400 * MS if i in (50, 100, 150) else 20 * MS
        nsys.nvtx(t, t + length, text="decode")
        if length > 20 * MS:
            starts[i] = t
            nsys.call(t, t + 5 * US, "cudaLaunchKernel_v7000", correlation=2 * i + 1)
            nsys.kernel(t, t + 380 * MS, "prefill_flash_attention", correlation=2 * i + 1)
        nsys.call(t + 6 * US, t + 10 * US, "cudaLaunchKernel_v7000", correlation=2 * i + 2)
        nsys.kernel(t + length - 20 * MS + (length == 20 * MS) * 10 * US, t + length, "decode_gemm",
                    correlation=2 * i + 2)  # fmt: skip
        t += length
    path = nsys.write()

    seen = check(path)

    decode = seen.summary["steps"]["decode"]
    assert (decode["count"], decode["period_p50_ns"], decode["period_p99_ns"]) == (200, 20 * MS, 400 * MS)
    slow = seen.summary["slow_steps"]
    assert (slow["count"], slow["median_ns"]) == (3, 20 * MS)
    for step, index in zip(slow["listed"], (50, 100, 150), strict=True):
        assert (step["index"], step["start_ns"], step["period_ns"]) == (index, starts[index], 400 * MS)
        assert (step["kernel"], step["kernel_ns"]) == ("prefill_flash_attention", 380 * MS)
    words = page(path)
    for index, at in ((50, "1.000000000 s"), (100, "2.380000000 s"), (150, "3.760000000 s")):
        line = f"step {index} at {at}: 400 ms, 380 ms of it in prefill_flash_attention"
        assert seen.line(f"step {index} at") == line
        assert line in words
    assert "3 of 199 decode steps took 3 times the median (20.0 ms) or more:" in seen.text
