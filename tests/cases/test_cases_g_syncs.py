"""Cases G06, G10 and G12: copies between GPUs, waits for each token, and calls that drain the device.

The other cases G are in ``test_cases_graphs_copies.py``.
"""

from __future__ import annotations

from typing import Any

import pytest

US, MS = 1_000, 1_000_000
D2D, P2P, DEVICE = 8, 10, 2


def test_G06_copies_from_gpu_to_gpu(nsys: Any, check: Any, page: Any) -> None:
    """Two copies of 1 ms: one that nsys calls a peer copy, one from device to device with two devices."""
    sides = {"srcDeviceId": 0, "dstDeviceId": 1}
    for i, kind in enumerate((P2P, D2D)):
        at = 2 * i * MS
        nsys.call(at, at + 5 * US, "cudaMemcpyPeerAsync_v4000", correlation=i + 1)
        nsys.memcpy(at + 10 * US, at + MS + 10 * US, kind, 256_000_000, DEVICE, DEVICE, correlation=i + 1, **sides)
    path = nsys.write()

    seen = check(path)

    assert seen.copies() == {("p2p", "device", "device"): (2, 512_000_000, 2 * MS)}
    (peer,) = seen.summary["peer_copies"]
    assert (peer["src_number"], peer["dst_number"]) == (0, 1)
    assert (peer["count"], peer["bytes"], peer["sum_ns"]) == (2, 512_000_000, 2 * MS)
    assert seen.line("from GPU 0 to GPU 1") == "from GPU 0 to GPU 1: 2 copies, 512 MB in 2.00 ms, 256 GB/s"
    # Busy time of the GPU that issued them, once.
    assert [(d["number"], d["busy_ns"]) for d in seen.summary["devices"]] == [(0, 2 * MS)]
    for code in ("PK301", "PK302", "PK310", "PK311"):
        assert seen.findings(code) == []
    assert "H2D" not in seen.text
    assert "PCIe" not in seen.everything.split("not evaluated")[0]
    assert "256 GB/s" in page(path)


def token_steps(kineto: Any) -> Any:
    """64 tokens of 10 ms: three reads by aten::nonzero each, one more by aten::item in each fourth; two behind all."""
    correlation = 0

    def read(at: int, operator: str) -> None:
        nonlocal correlation
        correlation += 2
        if operator:
            kineto.event("cpu_op", operator, at, 400)
        kineto.call("cudaMemcpyAsync", at + 10, 10, correlation)
        kineto.on_device("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", at + 290, 2, correlation, bytes=8)
        kineto.call("cudaStreamSynchronize", at + 30, 300, correlation + 1)

    for token in range(64):
        at = 10_000 * token
        kineto.event("user_annotation", "decode", at, 9_900)
        for i in range(4):
            correlation += 2
            kineto.launch(at + 100 + 2_000 * i, 5, correlation)
            kineto.kernel(at + 150 + 2_000 * i, 1_400, correlation)
        for i in range(3):
            read(at + 2_200 * i + 1_600, "aten::nonzero")
        if token % 4 == 0:
            read(at + 8_500, "aten::item")
    for at in (645_000, 650_000):
        read(at, "")
    return kineto.write()


def test_G10_several_synchronisations_per_token(kineto: Any, check: Any) -> None:
    seen = check(token_steps(kineto))

    (wait,) = seen.findings("PK303")
    facts = wait["facts"]
    assert seen.summary["steps"]["decode"]["count"] == 64
    assert (facts["syncs"], facts["steps"], facts["steps_with_wait"]) == (208, 64, 64)
    assert facts["read_backs"] == 208
    # 3 x 64 + 16 = 208 of the 210 are inside a token's range.
    assert "3.25 a step" in wait["message"]
    assert "aten::nonzero" in wait["message"]
    calls = {c["name"]: c["count"] for c in seen.summary["calls"]}
    assert calls["cudaStreamSynchronize"] == 210
    # The two outside are those of their own.
    (outside,) = seen.findings("PK301")
    assert outside["facts"]["copies"] == 2


@pytest.mark.parametrize("source", ["nsys", "kineto"])
def test_G12_a_free_drains_the_device(request: Any, check: Any, source: str) -> None:
    """Ten steps of 20 ms: a malloc of 1 ms, a kernel, a free of 3 ms that waits for it; five frees at the end."""
    export = request.getfixturevalue(source)

    def step(at: int, length: int) -> None:
        if source == "nsys":
            export.nvtx(at, at + length, text="decode")
        else:
            export.event("user_annotation", "decode", at // US, length // US)

    def call(name: str, at: int, length: int, number: int) -> None:
        if source == "nsys":
            export.call(at, at + length, name + "_v3020", correlation=number)
        else:
            export.call(name, at // US, length // US, number)

    def kernel(at: int, length: int, number: int) -> None:
        if source == "nsys":
            export.kernel(at, at + length, correlation=number)
        else:
            export.kernel(at // US, length // US, number)

    for i in range(10):
        t, number = 20 * i * MS, 10 * i + 10
        step(t, 19 * MS)
        call("cudaMalloc", t + 100 * US, 1 * MS, number)
        call("cudaLaunchKernel", t + 1_200 * US, 10 * US, number + 1)
        kernel(t + 1_220 * US, 3_000 * US, number + 1)
        call("cudaFree", t + 1_230 * US, 3 * MS, number + 2)
        call("cudaLaunchKernel", t + 4_300 * US, 10 * US, number + 3)
        kernel(t + 4_320 * US, 14 * MS, number + 3)
    for i in range(5):
        call("cudaFree", (210 + 4 * i) * MS, 3 * MS, 1_000 + i)

    path = export.write()

    seen = check(path)

    calls = {c["name"]: (c["count"], c["total_ns"]) for c in seen.summary["calls"]}
    assert (calls["cudaMalloc"], calls["cudaFree"]) == ((10, 10 * MS), (15, 45 * MS))
    (drain,) = seen.findings("PK304")
    # Those at the exit, behind the last step, are not counted.
    assert "10 calls of cudaFree, 1.00 a step in 10 of 10 steps, 30.0 ms" in drain["message"]
    assert "cudaMalloc" not in drain["message"]
    assert seen.codes[0] == "PK304"
    # An allocation is a cost of its own, also where it vanishes with the other one, and no synchronisation.
    assert "PK210 Device memory allocated in steady state" in seen.text
    (allocated,) = check(path, "--select", "PK210").findings("PK210")
    assert "10 calls of cudaMalloc, 1.00 a step in 10 of 10 steps, 10.0 ms" in allocated["message"]
    assert "(that is no synchronisation)" in allocated["message"]
    assert "cudaFree" not in allocated["message"]
