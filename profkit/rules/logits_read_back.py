"""PK308 logits read back whole.

What it finds
    Decode steps that each copy a row of logits for each of their sequences to the host: 60 kB to 1.3 MB (a vocabulary
    of 30,000 to 320,000 entries of 2 or 4 bytes). At least 90 % of the decode steps do so, with the same bytes for
    each sequence. Where batches are of several sizes that is proof enough; where all are of one size the bytes have
    to be those of a vocabulary that models have, such as 32,000, 128,256 or 151,936 entries.

Why it costs time
    The next token is one number. To choose it on the host, the whole row crosses the link, the host goes over it, and
    the GPU waits for both.

How the cost is computed
    cost: the time of these copies. saving: the part of it in which no kernel of the GPU runs, a ceiling. What the host
    then takes to sample, and the wait itself, are in the prices of PK303 and of the gaps.

What to do
    Sample on the GPU (argmax, top-k, top-p, multinomial), and read back the token ids: 4 or 8 bytes a sequence.

When it is wrong
    What is read back may be something else of this size: log probabilities that were asked for, hidden states of
    several layers, blocks of the KV cache that are moved out.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from profkit import text
from profkit.analysis.context import Analysis
from profkit.analysis.intervals import percentile
from profkit.analysis.steps import DECODE
from profkit.model import Finding, Ints, Mask, Trace
from profkit.rules import Rule, needs_all, needs_copies, needs_gpu_rows, needs_joined_work, needs_steps
from profkit.rules._copies import alone, column, copies_of_kinds, kernel_time, step_of
from profkit.rules._evidence import of_work
from profkit.rules._price import priced
from profkit.testing import build_trace, call, copy, launch, span

SMALLEST_ROW, LARGEST_ROW = 60_000, 1_300_000
"""Bytes of a row of logits: 30,000 entries of 2 bytes to 320,000 of 4."""
MOSTLY = 0.9
FEWEST_STEPS = 3
VOCABULARIES = (
    30_522, 32_000, 32_001, 32_064, 32_128, 32_768, 49_152, 50_257, 50_272, 50_304, 50_432, 51_200, 64_000, 65_024,
    65_536, 73_448, 92_416, 92_544, 100_277, 100_352, 102_400, 122_753, 125_696, 128_000, 128_256, 129_280, 131_072,
    151_552, 151_936, 152_064, 163_840, 200_064, 201_088, 202_048, 250_880, 256_000, 262_144, 262_208, 262_400,
)  # fmt: skip
"""Entries of the output layers of published models: BERT, GPT, Llama, Mistral, Qwen, DeepSeek, Phi, GLM, Gemma, ..."""
ENTRY_BYTES = (2, 4)


def check(analysis: Analysis) -> Iterator[Finding]:
    known = _known_batch(analysis)
    rows = copies_of_kinds(analysis, "d2h")
    step = step_of(analysis, rows)
    size = column(analysis, "bytes", rows)
    fits = (step >= 0) & known[np.maximum(step, 0)]
    rows, step, size = rows[fits], step[fits], size[fits]
    batch = analysis.steps.batch[step]
    fits = (size >= SMALLEST_ROW * batch) & (size <= LARGEST_ROW * batch)
    rows, step, size, batch = rows[fits], step[fits], size[fits], batch[fits]
    for device in np.unique(analysis.work.device[rows]).tolist():
        mine = analysis.work.device[rows] == device
        on_device = known & np.isin(analysis.steps.process, analysis.processes_of(int(device)))
        with_it = len(np.unique(step[mine]))
        if with_it < max(MOSTLY * int(on_device.sum()), FEWEST_STEPS):
            continue
        if _are_logits(size[mine], batch[mine]):
            yield _finding(analysis, int(device), rows[mine], with_it, int(on_device.sum()))


def _are_logits(size: Ints, batch: Ints) -> bool:
    """Whether nearly all have the same bytes for each sequence, and whether that is a row of logits."""
    row, count = np.unique(np.where(size % batch == 0, size // batch, -1), return_counts=True)
    most = int(row[np.argmax(count)])
    if most < 0 or int(count.max()) < MOSTLY * len(size):
        return False
    several = len(np.unique(batch[size == most * batch])) > 1
    return several or any(most == entries * each for entries in VOCABULARIES for each in ENTRY_BYTES)


def _known_batch(analysis: Analysis) -> Mask:
    """Whole decode steps of which the number of sequences is known."""
    steps = analysis.steps
    mask: Mask = (steps.kind == DECODE) & (steps.batch > 0) & (steps.batch < 1 << 20) & steps.complete
    return mask


def _finding(analysis: Analysis, device: int, rows: Ints, with_it: int, of_steps: int) -> Finding:
    work = analysis.work
    step, size = step_of(analysis, rows), column(analysis, "bytes", rows)
    length = work.end[rows] - work.start[rows]
    each_step, each_sequence = int(size.sum()) // with_it, percentile(size // analysis.steps.batch[step], 50) or 0
    saving = np.minimum(alone(analysis, rows, kernel_time(analysis, device)), length)
    return priced(
        analysis,
        device=device,
        cost=length,
        saving=saving,
        step=step,
        code=RULE.code,
        title=RULE.title,
        key=f"{RULE.code}:{device}:decode:",
        message=(
            f"{text.count(with_it, 'decode step')} of {of_steps:,} read back {text.size(each_step)} each from "
            f"{analysis.device_name(device)}, {text.size(each_sequence)} a sequence (median): as much as whole rows of "
            f"logits; {text.ns(int(length.sum()) // with_it)} of copying a step"
        ),
        cause="the next token is chosen on the host",
        advice=RULE.advice,
        facts={
            "copies": len(rows),
            "steps_with_it": with_it,
            "decode_steps": of_steps,
            "bytes_per_step": each_step,
            "bytes_per_sequence": each_sequence,
            "copy_ns": int(length.sum()),
            "while_idle_ns": int(saving.sum()),
        },
        evidence=of_work(analysis, rows),
    )


def _judged(analysis: Analysis) -> str:
    if int(_known_batch(analysis).sum()) >= FEWEST_STEPS:
        return ""
    return "no decode steps with a known number of sequences"


def _steps(size: int, dur: int) -> Trace:
    rows = []
    for i in range(6):
        t = i * 1_000_000
        rows.append(span("decode", t, 990_000, payload=4))
        rows += launch("gemm", at=t + 5_000, start=t + 20_000, dur=600_000)
        rows.append(call(t + 15_000, 700_000, "cudaMemcpyAsync", correlation=i + 1))
        rows.append(copy(t + 621_000, dur, "d2h", size, "device", "pinned", correlation=i + 1))
    return build_trace(*rows)


def fires() -> Trace:
    """Six decode steps of four sequences that read back 128,256 numbers of 2 bytes for each of them."""
    return _steps(4 * 128_256 * 2, 80_000)


def quiet() -> Trace:
    """The same steps, which read back four tokens."""
    return _steps(4 * 8, 2_000)


RULE = Rule(
    code="PK308",
    title="Logits read back whole",
    unmet=needs_all(needs_copies, needs_gpu_rows, needs_steps, needs_joined_work, _judged),
    check=check,
    advice="Sample on the GPU and read back the token ids only.",
    fires=fires,
    quiet=quiet,
    record="Give decode steps their number of sequences: profkit.stage('decode', payload=sequences).",
)
