"""The engine: one step at a time, a prefill of one sequence or a decoding step of all, each stage in its range.

A step is ``schedule``, then ``prefill`` (with h2d, kv_update, sample) or ``decode`` (with kv_update, sample), then
``detokenize``. The sampled tokens stay on the device for the next step; the host reads them once per step.
"""

from __future__ import annotations

from collections.abc import Iterable
from time import perf_counter_ns

import torch
from torch import Tensor

from profkit.capture.stage import Stage, request
from profkit.errors import UsageError
from profkit.loop.backend import Backend
from profkit.loop.config import PRESETS, Settings
from profkit.loop.copies import Uploader
from profkit.loop.graphs import Step, capture_step
from profkit.loop.kv import StaticKV
from profkit.loop.model import make_model
from profkit.loop.scheduler import Scheduler, Sequence
from profkit.loop.tokenizer import Prompt, encode

SCHEDULE = Stage("schedule")
TOKENIZE = Stage("tokenize")
PREFILL = Stage("prefill")
DECODE = Stage("decode")
SAMPLE = Stage("sample")
DETOKENIZE = Stage("detokenize")


class Engine:
    """Continuous batching over a static cache: all slots are computed at every decoding step, in use or not.

    That keeps every shape the same, so that a step can be a CUDA graph and a sequence's tokens do not depend on who
    else is running.
    """

    def __init__(self, settings: Settings, backend: Backend, longest_prompt: int) -> None:
        """Raises UsageError for settings that the backend cannot follow."""
        if settings.cuda_graphs and not backend.has_graphs:
            raise UsageError(f"--cuda-graphs needs a GPU, this runs on {backend.device.type}")
        if settings.copy_mode == "async" and backend.device.type == "cpu":
            raise UsageError("--copy-mode async needs a GPU: on the CPU a copy is done when its call returns")
        config, dtype, device = PRESETS[settings.preset], getattr(torch, settings.dtype), backend.device
        self.scheduler = Scheduler(settings.batch)
        self.model = make_model(config, settings.seed, dtype, device)
        self.cache = StaticKV(config, settings.batch, longest_prompt + settings.max_new, dtype, device)
        self._uploader = Uploader(backend, longest_prompt, settings.copies == "pinned", settings.copy_mode == "sync")
        self._max_new = settings.max_new
        # Per slot: the token sampled last, and the position where it belongs.
        self._tokens = torch.zeros(settings.batch, dtype=torch.int64, device=device)
        self._positions = torch.zeros(settings.batch, dtype=torch.int64, device=device)
        self._step: Step = self._forward_step
        if settings.cuda_graphs:
            with torch.inference_mode():
                self._step = capture_step(self._forward_step, self._tokens, self._positions)

    def submit(self, request_id: int, prompt: Prompt) -> Sequence:
        """A request arrives: its range begins, its prompt becomes tokens, and it waits."""
        arrival_ns = perf_counter_ns()
        life = request(request_id, prompt_tokens=prompt.tokens).start()
        with TOKENIZE.of(prompt.tokens):
            ids = encode(prompt.text)
        sequence = Sequence(life, ids, self._max_new, arrival_ns)
        self.scheduler.add(sequence)
        return sequence

    @torch.inference_mode()
    def step(self) -> bool:
        """One step; False when there was nothing to do."""
        if len(self.scheduler) == 0:
            return False
        with SCHEDULE.of(len(self.scheduler)):
            admitted = self.scheduler.admit()
            sequences = [admitted] if admitted else list(self.scheduler.running.values())
        new_tokens = self._prefill(admitted) if admitted else self._decode(sequences)
        self._deliver(sequences, new_tokens)
        return True

    def _prefill(self, sequence: Sequence) -> list[int]:
        slot, length = sequence.slot, len(sequence.prompt)
        with PREFILL.of(length):
            tokens = self._uploader.upload(sequence.prompt)[None]
            positions = torch.arange(length, device=tokens.device)[None]
            logits = self.model(tokens, positions, self.cache.prompt(slot))
            with SAMPLE.of(1):
                sampled = logits.argmax(-1)
                self._tokens[slot] = sampled[0]
                self._positions[slot] = length
                return sampled.tolist()  # type: ignore[no-any-return]

    def _decode(self, sequences: list[Sequence]) -> list[int]:
        with DECODE.of(len(sequences)):
            logits = self._step(self._tokens, self._positions)
            with SAMPLE.of(len(sequences)):
                self._tokens = logits.argmax(-1)
                # A slot that nobody uses goes on past the end of its row: it stays at the last position.
                self._positions = (self._positions + 1).clamp_(max=self.cache.k.shape[3] - 1)
                sampled = self._tokens.tolist()
        return [sampled[sequence.slot] for sequence in sequences]

    def _forward_step(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Logits [slots, vocabulary] after ``tokens`` [slots] at ``positions`` [slots]."""
        return self.model(tokens[:, None], positions[:, None], self.cache.step(positions))  # type: ignore[no-any-return]

    def _deliver(self, sequences: list[Sequence], new_tokens: list[int]) -> None:
        """Hand each sequence its new token, and let those go that are done."""
        now = perf_counter_ns()
        for sequence, token in zip(sequences, new_tokens, strict=True):
            if not sequence.output:
                sequence.first_token_ns = now
                sequence.request.first_token()
            sequence.output.append(token)
        with DETOKENIZE.of(len(sequences)):
            for sequence, token in zip(sequences, new_tokens, strict=True):
                sequence.text += sequence.stream.push(token)
        for sequence in sequences:
            if sequence.done:
                self._finish(sequence, now)

    def _finish(self, sequence: Sequence, now_ns: int) -> None:
        sequence.text += sequence.stream.flush()
        sequence.end_ns = now_ns
        self.scheduler.release(sequence)
        sequence.request.end(output_tokens=len(sequence.output))


def run_to_end(engine: Engine, prompts: Iterable[Prompt], first_id: int = 0, steps: int = 0) -> list[Sequence]:
    """Submit all prompts at once and step until they are answered, or ``steps`` times where that is not 0.

    What is unfinished then ends where it is: its ``end_ns`` stays -1.
    """
    sequences = [engine.submit(first_id + i, prompt) for i, prompt in enumerate(prompts)]
    taken = 0
    while (steps == 0 or taken < steps) and engine.step():
        taken += 1
    for sequence in sequences:
        if not sequence.done:
            sequence.request.end(output_tokens=len(sequence.output))
    return sequences
