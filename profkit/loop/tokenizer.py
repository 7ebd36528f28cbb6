"""The byte-level BPE tokenizer of the loop: 4096 tokens, every string comes back the same."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from profkit.errors import UsageError

REPLACEMENT = "\ufffd"
# The longest a UTF-8 character can be, so the most tokens that can stand for an unfinished one.
LONGEST_CHARACTER = 4


@cache
def load_tokenizer() -> Any:
    """The ``tokenizers.Tokenizer`` of the shipped vocabulary (``scripts/train_tokenizer.py`` made it)."""
    from tokenizers import Tokenizer

    return Tokenizer.from_str(resources.files("profkit.loop").joinpath("vocabulary.json").read_text(encoding="utf-8"))


def encode(text: str) -> list[int]:
    """The token ids of a text."""
    ids: list[int] = load_tokenizer().encode(text).ids
    return ids


def decode(ids: list[int]) -> str:
    """The text of token ids; bytes that are no UTF-8 become U+FFFD."""
    text: str = load_tokenizer().decode(ids, skip_special_tokens=False)
    return text


class TextStream:
    """Turns tokens into text as they come: a character whose bytes span several tokens waits for its last."""

    def __init__(self) -> None:
        self._pending: list[int] = []

    def push(self, token: int) -> str:
        """The text that is complete with this token, "" when a character is unfinished."""
        self._pending.append(token)
        text = decode(self._pending)
        if text.endswith(REPLACEMENT) and len(self._pending) < LONGEST_CHARACTER:
            return ""
        self._pending.clear()
        return text

    def flush(self) -> str:
        """What was waiting when the answer ended."""
        text = decode(self._pending)
        self._pending.clear()
        return text


@dataclass(frozen=True)
class Prompt:
    """A text and the number of its tokens, so that its range can say so before the work is done."""

    text: str
    tokens: int


def prompt_of(text: str) -> Prompt:
    """A prompt from a text of the user's. Raises UsageError for bytes that are no UTF-8."""
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise UsageError("a prompt is UTF-8 text")
    return Prompt(text, len(encode(text)))


def random_prompts(count: int, tokens: int, seed: int) -> list[Prompt]:
    """``count`` prompts of exactly ``tokens`` tokens: words of the vocabulary, the same for the same seed."""
    words = [word for word in _single_token_words() if len(word) > 2]
    draw = random.Random(seed)
    return [Prompt("".join(draw.choices(words, k=tokens)), tokens) for _ in range(count)]


@cache
def _single_token_words() -> list[str]:
    """Words with their leading blank that are one token: a row of n of them has n tokens."""
    texts = (decode([token]) for token in range(load_tokenizer().get_vocab_size()))
    return sorted(text for text in texts if text.startswith(" ") and text[1:].isascii() and text[1:].isalpha())
