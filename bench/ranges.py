"""What a range costs: ``python -m bench.ranges``, ns per enter and exit with the cost of the loop taken off.

Measures with no tool attached, torch loaded and not, and beside it what others offer: nvtx push/pop, an empty Python
context manager (no ``with`` over a Python class can be cheaper), ``record_function``. Set NVTX_INJECTION64_PATH to
measure with an NVTX tool. Prints a table and, last, one JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import timeit
from collections.abc import Callable
from types import TracebackType
from typing import Any

import nvtx

import profkit

BUDGET_NS = {"@DECODE": 80, "with DECODE": 120, "with profkit.stage(name, payload=n)": 200}

# Each form is a statement over these names; the cost of the statement in the second column is taken off.
FORMS = {
    "@DECODE": ("decorated(1)", "plain(1)"),
    "@DECODE, no arguments": ("decorated_bare()", "bare()"),
    "with DECODE": ("with DECODE: pass", "pass"),
    "with DECODE.of(n)": ("with DECODE.of(8): pass", "pass"),
    "with profkit.stage(name)": ("with profkit.stage('decode'): pass", "pass"),
    "with profkit.stage(name, payload=n)": ("with profkit.stage('decode', payload=8): pass", "pass"),
    "with stage(name, payload=n)": ("with stage('decode', payload=8): pass", "pass"),
    "profkit.request(n, m).start().end()": ("profkit.request(7, 33).start().end()", "pass"),
    "empty context manager": ("with empty: pass", "pass"),
    "nvtx Domain.push_range / pop_range": ("push(attributes); pop()", "pass"),
    "nvtx.push_range / pop_range": ("nvtx.push_range('decode', domain='bench'); nvtx.pop_range('bench')", "pass"),
    "with nvtx.annotate(name, payload=n)": ("with nvtx.annotate('decode', domain='bench', payload=8): pass", "pass"),
}
TORCH_FORMS = {"with record_function(name)": ("with record_function('decode'): pass", "pass")}


class _Empty:
    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def names() -> dict[str, Any]:
    """What the statements of FORMS are made of."""

    def plain(x: int) -> int:
        return x

    def bare() -> None: ...

    decode = profkit.Stage("decode")
    domain = nvtx.get_domain("bench")
    return {
        "profkit": profkit,
        "stage": profkit.stage,
        "nvtx": nvtx,
        "DECODE": decode,
        "plain": plain,
        "decorated": decode(plain),
        "bare": bare,
        "decorated_bare": decode(bare),
        "empty": _Empty(),
        "push": domain.push_range,
        "pop": domain.pop_range,
        "attributes": domain.get_event_attributes("decode"),
    }


def cost_ns(statement: str, without: str, scope: dict[str, Any], repeats: int, number: int) -> float:
    """The least time of ``repeats`` runs of one statement, less that of another."""

    def least(code: str) -> float:
        return min(timeit.repeat(code, globals=scope, repeat=repeats, number=number)) / number * 1e9

    return least(statement) - least(without)


def measure(with_torch: bool, repeats: int, number: int) -> dict[str, float]:
    """Form -> ns, in this process."""
    scope, forms = names(), dict(FORMS)
    if with_torch:
        from torch.profiler import record_function

        scope["record_function"] = record_function
        forms |= TORCH_FORMS
    return {form: round(cost_ns(*pair, scope, repeats, number), 1) for form, pair in forms.items()}


def measure_apart(with_torch: bool, arguments: argparse.Namespace) -> dict[str, float]:
    """Like ``measure`` in a new process, since torch cannot be unloaded."""
    command = [sys.executable, "-m", "bench.ranges", "--only", "torch" if with_torch else "no-torch"]
    command += ["--repeats", str(arguments.repeats), "--number", str(arguments.number)]
    found: dict[str, float] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return found


def main(write: Callable[[str], object] = lambda line: sys.stdout.write(line + "\n")) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--number", type=int, default=200_000)
    parser.add_argument("--only", choices=("torch", "no-torch"), help="One of the two, as JSON alone.")
    arguments = parser.parse_args()
    if arguments.only:
        write(json.dumps(measure(arguments.only == "torch", arguments.repeats, arguments.number)))
        return
    without = measure_apart(False, arguments)
    loaded = measure_apart(True, arguments)
    tool = "an NVTX tool" if "NVTX_INJECTION64_PATH" in os.environ else "no tool"
    write(f"{f'ns per range, {tool} attached':38}{'no torch':>10}{'torch':>10}{'budget':>10}")
    for form in loaded:
        write(f"{form:38}{without.get(form, '-'):>10}{loaded[form]:>10}{BUDGET_NS.get(form, ''):>10}")
    record = {"bench": "ranges", "tool": tool, "python": platform.python_version(), "nvtx": nvtx_version()}
    write(json.dumps(record | {"budget_ns": BUDGET_NS, "no_torch_ns": without, "torch_ns": loaded}))


def nvtx_version() -> str:
    from importlib.metadata import version

    return version("nvtx")


if __name__ == "__main__":
    main()
