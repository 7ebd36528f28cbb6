"""The tokenizer loses nothing, and streams whole characters."""

from __future__ import annotations

import random

import pytest

from profkit.errors import UsageError
from profkit.loop.config import VOCABULARY_SIZE
from profkit.loop.tokenizer import TextStream, decode, encode, load_tokenizer, prompt_of, random_prompts

# The end of each: ASCII, two bytes, three bytes, all of Unicode. Surrogates are no characters.
LIMITS = (0x80, 0x800, 0x10000, 0x110000)


def any_text(draw: random.Random) -> str:
    """Up to 60 characters of one or several UTF-8 lengths, controls and unassigned ones included."""
    limit = draw.choice(LIMITS)
    codes = (draw.randrange(limit) for _ in range(draw.randrange(60)))
    return "".join(chr(code) for code in codes if not 0xD800 <= code < 0xE000)


TEXTS = ["", " ", "\n\t \r\n", "<|end|>", "a\x00b", "e\u0301", *map(any_text, map(random.Random, range(300)))]


def test_every_text_comes_back_the_same() -> None:
    for text in TEXTS:
        ids = encode(text)
        assert decode(ids) == text
        assert all(0 <= token < VOCABULARY_SIZE for token in ids)


def test_a_stream_gives_the_text_of_its_tokens() -> None:
    for text in TEXTS:
        stream = TextStream()
        pieces = [stream.push(token) for token in encode(text)]
        assert "".join(pieces) + stream.flush() == text


def test_a_stream_holds_back_an_unfinished_character() -> None:
    ids = encode("\U0001f98a")
    assert len(ids) > 1
    stream = TextStream()
    assert [stream.push(token) for token in ids] == [*[""] * (len(ids) - 1), "\U0001f98a"]


def test_bytes_that_are_no_text_do_not_wait_for_ever() -> None:
    first_byte_of_two = encode("é")[0] if len(encode("é")) > 1 else encode("\U0001f98a")[0]
    stream = TextStream()
    pieces = [stream.push(first_byte_of_two) for _ in range(4)]
    assert pieces[:3] == ["", "", ""]
    assert pieces[3] != ""
    assert stream.flush() == ""


def test_random_prompts_have_exactly_their_tokens_and_follow_the_seed() -> None:
    prompts = random_prompts(5, 37, seed=3)
    assert [len(encode(prompt.text)) for prompt in prompts] == [37] * 5
    assert prompts == random_prompts(5, 37, seed=3)
    assert prompts != random_prompts(5, 37, seed=4)
    assert prompt_of("def f(x):\n    return x\n").tokens == len(encode("def f(x):\n    return x\n"))


def test_what_is_no_utf_8_is_no_prompt() -> None:
    with pytest.raises(UsageError, match="UTF-8"):
        prompt_of("from the command line: \udcff")


def test_the_vocabulary_has_the_size_of_the_model() -> None:
    assert load_tokenizer().get_vocab_size() == VOCABULARY_SIZE
