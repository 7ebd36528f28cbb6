"""Damage traces and see that profkit stays honest: ``python -m scripts.fuzz 10000`` (``make fuzz N=10000``).

Each case is a number: it draws a trace (made here, or of the corpus in PROFKIT_CORPUS), damages it, and asks the
command line about it. It must hold that no command ends in a traceback or hangs; an error is one line; JSON is strict;
busy + idle is the window and the causes of idle time add up; no length is negative and no share outside 0..1; damage
that cannot be missed is said. Cases run in processes of their own: one that hangs or kills its process failed, too.
Prints progress and each kind of failure once with its number, keeps its input, and prints one JSON line last.
``--only NUMBER`` repeats one case.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scripts.fuzz_mutations import Mutant, mutate
from scripts.fuzz_properties import BrokenPropertyError, Seen, examine
from scripts.fuzz_sources import Seed, make_seeds

PROGRESS_SECONDS = 10.0


@dataclass
class Fuzzer:
    """Runs cases over fixed sources. ``folder`` is scratch space; the input of the last case stays in it."""

    folder: Path
    corpus: Path | None = None
    _seeds: list[Seed] = field(default_factory=list)
    _sound: dict[Path, frozenset[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._seeds = make_seeds(self.folder, self.corpus)

    def case(self, number: int) -> tuple[Mutant, Seen]:
        """Run one case. Raises BrokenPropertyError, with the mutant as its last argument."""
        rng = random.Random(number)
        # Half of the cases go to the traces made here: they are small, and every table of them is read.
        seed = rng.choice(self._seeds[:4] if rng.random() < 0.5 else self._seeds)
        scratch = self.folder / "case"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        mutant = mutate(seed, scratch, rng)
        try:
            seen = examine(mutant.path, scratch, rng)
            if mutant.loud and seen.read and seen.remarks <= self._remarks_of(seed):
                raise BrokenPropertyError("damage is not said", "no error and no new remark")
        except BrokenPropertyError as error:
            error.args = (*error.args, f"{seed.path.name}: {mutant.what}", str(mutant.path))
            raise
        return mutant, seen

    def _remarks_of(self, seed: Seed) -> frozenset[str]:
        if seed.path not in self._sound:
            scratch = self.folder / "sound"
            scratch.mkdir(exist_ok=True)
            self._sound[seed.path] = examine(seed.path, scratch, random.Random(0)).remarks
        return self._sound[seed.path]


def work(first: int, count: int, step: int, folder: Path, corpus: Path | None) -> Iterator[str]:
    """Run cases and yield one JSON line before and one after each: what the parent process watches."""
    fuzzer = Fuzzer(folder, corpus)
    for number in range(first, first + count * step, step):
        yield json.dumps({"start": number})
        try:
            _, seen = fuzzer.case(number)
            yield json.dumps({"done": number, "read": seen.read})
        except BrokenPropertyError as error:
            what, path = error.args[-2:]
            # The next case clears the folder of this one.
            kept = folder / f"failed-{number}" / Path(path).name
            kept.parent.mkdir()
            Path(path).rename(kept)
            yield json.dumps(
                {
                    "done": number,
                    "kind": error.kind,
                    "detail": str(error.args[0])[:400],
                    "what": what,
                    "path": str(kept),
                }
            )


@dataclass
class Worker:
    """A process that runs cases; ``next`` is the case it will start or has started."""

    slot: int
    process: subprocess.Popen[bytes]
    next: int
    since: float
    rest: bytes = b""


class Run:
    """The parent's side: starts workers, watches them, collects failures."""

    def __init__(self, arguments: argparse.Namespace, scratch: Path) -> None:
        self.arguments = arguments
        self.scratch = scratch
        self.kinds: Counter[str] = Counter()
        self.first: dict[str, int] = {}
        self.done = self.read = 0
        self._end = arguments.seed + arguments.cases
        self._selector = selectors.DefaultSelector()

    def run(self) -> None:
        for slot in range(self.arguments.jobs):
            self._start(slot, self.arguments.seed + slot)
        began = said = time.monotonic()
        while self._selector.get_map():
            for key, _ in self._selector.select(timeout=1.0):
                self._hear(key.data)
            now = time.monotonic()
            for key in list(self._selector.get_map().values()):
                if now - key.data.since > self.arguments.limit:
                    key.data.process.kill()
                    self._lost(key.data, f"hang: over {self.arguments.limit} s")
            if now - said > PROGRESS_SECONDS:
                said = now
                rate = self.done / (now - began)
                print(
                    f"{self.done} of {self.arguments.cases} cases, {rate:.1f}/s, {self.kinds.total()} failures",
                    flush=True,
                )

    def _start(self, slot: int, first: int) -> None:
        if first >= self._end:
            return
        count = -(-(self._end - first) // self.arguments.jobs)
        command = [sys.executable, "-m", "scripts.fuzz", "--worker", str(first), str(count), str(self.arguments.jobs)]
        command += ["--scratch", str(self.scratch / str(slot))]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0)
        worker = Worker(slot, process, first, time.monotonic())
        self._selector.register(process.stdout, selectors.EVENT_READ, worker)  # type: ignore[arg-type]

    def _hear(self, worker: Worker) -> None:
        assert worker.process.stdout is not None
        heard = os.read(worker.process.stdout.fileno(), 1 << 16)
        worker.since = time.monotonic()
        *lines, worker.rest = (worker.rest + heard).split(b"\n")
        for line in lines:
            self._take(worker, json.loads(line))
        if not heard:
            code = worker.process.wait()
            if code:
                self._lost(worker, f"the process died: exit {code}")
            else:
                self._selector.unregister(worker.process.stdout)

    def _take(self, worker: Worker, message: dict[str, Any]) -> None:
        if "start" in message:
            worker.next = message["start"]
            return
        self.done += 1
        self.read += bool(message.get("read"))
        worker.next = message["done"] + self.arguments.jobs
        if "kind" in message:
            self._fail(message["done"], message["kind"], message["detail"], message["what"], Path(message["path"]))

    def _lost(self, worker: Worker, why: str) -> None:
        """The process is gone: its case failed, a new process goes on behind it."""
        self._selector.unregister(worker.process.stdout)  # type: ignore[arg-type]
        worker.process.wait()
        found = sorted((self.scratch / str(worker.slot) / "case").glob("t*"))
        self._fail(worker.next, why, "", "", found[0] if found else Path())
        self.done += 1
        self._start(worker.slot, worker.next + self.arguments.jobs)

    def _fail(self, number: int, kind: str, detail: str, what: str, path: Path) -> None:
        self.kinds[kind] += 1
        if kind in self.first:
            shutil.rmtree(path.parent, ignore_errors=True)
            return
        self.first[kind] = number
        kept = self.arguments.keep / f"case-{number}{''.join(path.suffixes)}"
        self.arguments.keep.mkdir(parents=True, exist_ok=True)
        if path.is_dir() and path.name:
            shutil.copytree(path, kept, dirs_exist_ok=True)
        elif path.is_file():
            shutil.copyfile(path, kept)
        print(f"case {number}: {detail or kind}\n  {what}\n  kept: {kept}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="?", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0, help="Number of the first case.")
    parser.add_argument("--jobs", type=int, default=max((os.cpu_count() or 2) // 2, 1), help="Processes at a time.")
    parser.add_argument("--limit", type=float, default=60.0, help="A case that takes more seconds hangs.")
    parser.add_argument(
        "--keep", type=Path, default=Path(tempfile.gettempdir()) / "profkit-fuzz", help="For inputs that fail."
    )
    parser.add_argument("--only", type=int, help="Run one case here, with its traceback.")
    parser.add_argument("--worker", type=int, nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--scratch", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    corpus = Path(os.environ["PROFKIT_CORPUS"]) if os.environ.get("PROFKIT_CORPUS") else None
    if arguments.worker:
        for line in work(*arguments.worker, arguments.scratch, corpus):
            print(line, flush=True)
        return 0
    with tempfile.TemporaryDirectory(prefix="profkit-fuzz-") as scratch:
        if arguments.only is not None:
            mutant, seen = Fuzzer(Path(scratch), corpus).case(arguments.only)
            print(mutant.what, "read" if seen.read else "refused", *sorted(seen.remarks), sep="\n  ")
            return 0
        began = time.monotonic()
        run = Run(arguments, Path(scratch))
        run.run()
    record = {
        "bench": "fuzz",
        "cases": run.done,
        "first": arguments.seed,
        "corpus": corpus is not None,
        "read": run.read,
    }
    record |= {"failures": run.kinds.total(), "kinds": run.kinds, "seconds": round(time.monotonic() - began, 1)}
    print(json.dumps(record))
    return int(run.kinds.total() > 0)


if __name__ == "__main__":
    sys.exit(main())
