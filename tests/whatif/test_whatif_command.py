"""``profkit whatif``: what it prints, as text and as JSON, and what it refuses before it reads a trace."""

from typing import Any

import pytest

from profkit.analysis.fixes import all_fixes, parse_fix
from profkit.errors import UsageError
from profkit.testing import call, kernel, launch, span

NOT_THERE = "/nonexistent/trace.sqlite"


def test_every_fix_by_itself(run: Any, stored: Any, waiting: Any) -> None:
    found = run("whatif", stored(*waiting))
    assert (found.code, found.err) == (0, "")
    assert found.out.splitlines() == [
        "The replay explains 100.0 % of the recorded window (450 µs)",
        "",
        "each fix by itself    rule   concerns   costs  saves up to   a step   of it",
        "no-step-sync          PK303         5  196 µs       196 µs  49.0 µs  49.0 %",
        # Of 35,000 on the host between the wait and the next launch nothing is left, in four gaps.
        "overlapped-host-work  PK101         4  140 µs       140 µs  35.0 µs  35.0 %",
        "a step: 100 µs, the median of decode steps",
        "",
        "assumed:",
        "  nothing needs what these synchronisations wait for",
        "  this host work is done while the GPU works",
    ]


def test_a_fix_that_was_asked_for_is_applied(run: Any, stored: Any, waiting: Any) -> None:
    found = run("whatif", stored(*waiting), "--fix", "no-step-sync", "--fix", "pinned-copies")
    assert found.code == 0
    assert "pinned-copies: nothing of the kind in this trace" in found.out.splitlines()
    # 51,000 a step: the kernel and 1,000 behind it, the usual pause of two kernels of a stream.
    assert found.row("all fixes together") == ["all fixes together", "recorded", "predicted", "change"]
    assert found.row("window") == ["window", "450 µs", "254 µs", "-43.6 %"]
    assert found.row("decode step") == ["decode step, median", "100 µs", "51.0 µs", "-49.0 %"]
    assert found.row("GPU idle") == ["GPU idle, all devices", "200 µs", "4.00 µs", "-98.0 %"]
    assert found.row("sync") == ["sync", "24.0 µs", "0 ns", "-100.0 %"]


def test_json_of_every_fix(run: Any, stored: Any, waiting: Any) -> None:
    document = run("whatif", stored(*waiting), "--json").json
    assert document["schema"] == "profkit.whatif/1"
    assert document["replay"] == {
        "holds": True,
        "why_not": None,
        "error_ns": 0,
        "error_share": 0.0,
        "replayed_window_ns": 450_000,
        "sampled": None,
    }
    fix, other = document["fixes"]
    assert (other["fix"], other["saving_ns"], other["facts"]) == (
        "overlapped-host-work",
        140_000,
        {"host_work_ns": 140_000},
    )
    assert fix == {
        "fix": "no-step-sync",
        "code": "PK303",
        "title": "Do not wait for the device in each step",
        "count": 5,
        "cost_ns": 196_000,
        "saving_ns": 196_000,
        "cost_ns_per_step": 49_000,
        "saving_ns_per_step": 49_000,
        "assumed": ["nothing needs what these synchronisations wait for"],
        "facts": {},
    }
    assert document["predicted"] is None
    assert sorted([fix["fix"], other["fix"], *document["not_found"]]) == sorted(
        f.name for f in all_fixes().values() if not f.argument
    )


def test_json_of_a_prediction(run: Any, stored: Any, waiting: Any) -> None:
    document = run("whatif", stored(*waiting), "--fix", "no-step-sync", "--json").json
    recorded, predicted = document["recorded"], document["predicted"]
    assert recorded.keys() == predicted.keys()
    assert (recorded["window_ns"], predicted["window_ns"]) == (450_000, 254_000)
    assert predicted["steps"]["decode"]["period_p50_ns"] == 51_000
    assert recorded["ttft_ns"] is predicted["ttft_ns"] is None
    for numbers in (recorded, predicted):
        (device,) = numbers["devices"]
        assert device["busy_ns"] == 250_000
        assert device["busy_ns"] + device["idle_ns"] == numbers["window_ns"]
        assert sum(numbers["idle_by_cause"].values()) == device["idle_ns"]


def test_several_fixes_are_applied_together(run: Any, stored: Any, waiting: Any) -> None:
    """No waits, and kernels of a tenth: 5,000 and 1,000 behind each other are less than the 40,000 of the host."""
    fixes = ("--fix", "no-step-sync", "--fix", "kernel:k=0.1x")
    path = stored(*waiting)
    document = run("whatif", path, *fixes, "--json").json
    assert document["predicted"]["steps"]["decode"]["period_p50_ns"] == 40_000
    assert document["predicted"]["window_ns"] == 4 * 40_000 + 5_000
    assert [fix["fix"] for fix in document["fixes"]] == ["no-step-sync", "kernel:k=0.1x"]
    # The order in which they are named changes nothing.
    again = run("whatif", path, *fixes[2:], *fixes[:2], "--json").json
    assert again["predicted"] == document["predicted"]


@pytest.mark.parametrize(
    ("fix", "says"),
    [
        ("no-such-fix", "no fix is called 'no-such-fix'; there are: async-copies, async-memset,"),
        ("kernel", "kernel needs an argument: kernel:NAME=0.7x"),
        ("pinned-copies:x", "pinned-copies takes no argument"),
    ],
)
def test_a_wrong_fix_is_told_before_the_trace_is_read(run: Any, fix: str, says: str) -> None:
    found = run("whatif", NOT_THERE, "--fix", fix)
    assert (found.code, found.out) == (2, "")
    assert found.err.count("\n") == 1
    assert says in found.err


@pytest.mark.parametrize("argument", ["k", "k=", "k=fast", "k=-1x", "k=nan", "k=infx", "=0.5x"])
def test_a_wrong_factor_is_told_before_the_trace_is_read(run: Any, argument: str) -> None:
    found = run("whatif", NOT_THERE, "--fix", f"kernel:{argument}")
    assert (found.code, found.out) == (2, "")
    assert found.err.count("\n") == 1


def test_no_trace(run: Any) -> None:
    found = run("whatif")
    assert (found.code, found.out) == (2, "")
    assert run("whatif", NOT_THERE).code == 1


def test_the_list_needs_no_trace(run: Any) -> None:
    found = run("whatif", "--list")
    assert (found.code, found.err) == (0, "")
    words = [line.split()[0] for line in found.out.splitlines()]
    assert words == sorted(f.name if not f.argument else f"{f.name}:{f.argument}" for f in all_fixes().values())


def test_names_of_kernels_may_hold_what_separates(run: Any, stored: Any) -> None:
    names = ("ns::gemm<a=1>", "ns::gemm<a=2>", "gemm")
    rows = [launch(name, at=i * 100_000, start=i * 100_000 + 9_000, dur=40_000) for i, name in enumerate(names)]
    path = stored(*rows)
    for name, count in (("ns::gemm<a=1>", 1), ("::", 2), ("GEMM", 3), ("a=", 2), ("=2>", 1)):
        (fix,) = run("whatif", path, "--fix", f"kernel:{name}=0.5x", "--json").json["fixes"]
        assert (fix["fix"], fix["count"]) == (f"kernel:{name}=0.5x", count)


def test_the_argument_is_all_behind_the_first_colon() -> None:
    assert parse_fix("kernel:a::b=c=0.5x")[1] == "a::b=c=0.5x"
    assert parse_fix("no-step-sync") == (all_fixes()["no-step-sync"], "")
    with pytest.raises(UsageError):
        parse_fix("")


def test_a_trace_without_gpu_rows(run: Any, stored: Any) -> None:
    path = stored(span("decode", 0, 100), call(0, 50, "cudaFree"), missing={"kernels": "kernels were not traced"})
    found = run("whatif", path)
    assert (found.code, found.err) == (0, "")
    assert found.out.splitlines()[0] == "Nothing is predicted: kernels were not traced"
    document = run("whatif", path, "--fix", "no-implicit-sync", "--json").json
    assert document["replay"]["holds"] is False
    assert document["replay"]["why_not"] == "kernels were not traced"
    assert document["predicted"] is None
    assert document["recorded"]["window_ns"] is None
    for fix in document["fixes"]:
        assert fix["cost_ns"] is fix["saving_ns"] is fix["saving_ns_per_step"] is None


def test_a_trace_that_the_model_does_not_explain(run: Any, stored: Any, waiting: Any) -> None:
    """A kernel that starts a second after its launch, for no recorded reason."""
    path = stored(*waiting, launch("k", at=600_000, start=1_600_000_000, dur=1_000))
    found = run("whatif", path, "--fix", "no-step-sync")
    assert (found.code, found.err) == (0, "")
    assert found.out.startswith("Nothing is predicted: the replay explains ")
    assert "1 start of device work has no recorded cause" in found.out
    assert found.row("no-step-sync")[2:] == ["5", "not known", "not known", "not known", "n/a"]
    document = run("whatif", path, "--fix", "no-step-sync", "--json").json
    assert document["replay"]["holds"] is False
    assert document["replay"]["error_share"] > 0.9
    assert document["predicted"] is None
    (fix,) = document["fixes"]
    assert fix["cost_ns"] is fix["saving_ns"] is fix["cost_ns_per_step"] is None


def test_device_work_without_calls_has_no_prices(run: Any, stored: Any) -> None:
    path = stored(*(kernel(i * 1_000, 500) for i in range(20)))
    document = run("whatif", path, "--fix", "kernel:gemm=0.5x", "--json").json
    assert document["replay"]["why_not"] == "100.0 % of the device operations have no recorded call"
    assert document["fixes"][0]["saving_ns"] is None


def test_simulated_traces_say_so(run: Any, stored: Any, waiting: Any) -> None:
    path = stored(*waiting, simulated=True)
    assert run("whatif", path).out.startswith("SIMULATED: The replay explains")
    assert run("whatif", path, "--json").json["trace"]["simulated"] is True


def test_hostile_names_are_printed_as_text(run: Any, stored: Any) -> None:
    path = stored(launch("\x1b[31mk\nwindow", at=0, start=9_000, dur=40_000))
    found = run("whatif", path, "--fix", "kernel:\x1b[31mk\nwindow=0.5x")
    assert found.code == 0
    assert "\x1b" not in found.out
