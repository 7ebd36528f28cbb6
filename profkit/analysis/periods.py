"""The period of a sequence of codes, and where its repetitions begin: for kernels of a stream, for graph launches.

A lag at which nearly all codes agree is a candidate. Layers repeat inside a step, so the shortest one is not always the
period: a longer lag takes its place where it explains what the shorter one leaves over (the kernels between the last
layer of a step and the first of the next). All vectorised; the search looks at the middle of a long sequence.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from profkit.model import Array, Ints, Mask

_Hashes = npt.NDArray[np.uint64]

FEWEST_REPETITIONS = 3
SEARCHED = 1 << 18
"""Codes that the search looks at, from the middle: a period is at most a third of them."""

AGREES = 0.6
"""Agreement at a lag, with what chance gives taken off (Cohen's kappa), from which it may be a period."""
_REPAIRED = 0.8
"""Part of a shorter lag's exceptions that a longer one must explain to take its place..."""
_FEWER = 0.67
"""... or it has less than this part of them: a start that repeats at no lag counts for both."""
_EVERY = 0.9
"""Part of the longer lag's repetitions that must have such exceptions."""
_FEW = 1
"""An exception of that many codes in a repetition is a deviation, and makes no longer period."""
_ENOUGH = 0.8
"""Part of the sequence that repetitions cover before another beginning is tried, and how many are tried."""
_TRIED = 8
_CANDIDATES = 256
_MAPS = 4
_MOST = 0.5
"""Part of the sequence that whole repetitions must cover."""
_RATE = 1_000_003


@dataclass(frozen=True)
class Repetitions:
    """Where a pattern of ``length`` codes begins; ``whole`` are those that are as long as it, within a quarter.

    ``ends`` is the position behind the last code of each: the next start, for the last one at most ``length`` on.
    """

    length: int
    starts: Ints
    ends: Ints
    whole: Mask

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def covered(self) -> int:
        """Codes inside whole repetitions."""
        return int((self.ends - self.starts)[self.whole].sum())


def find_repetitions(codes: Array, pause: Ints, fewest_codes: int = 1) -> Repetitions | None:
    """The repetitions of a sequence; None where nothing repeats three times over most of it.

    ``pause`` is the time in front of each code, ns; a pattern of less than ``fewest_codes`` is none. A sequence of one
    code only has no repetitions: nothing tells where one begins.
    """
    for period in find_periods(codes):
        if period >= fewest_codes:
            found = _repetitions(codes, period, pause)
            if int(found.whole.sum()) >= FEWEST_REPETITIONS and found.covered >= _MOST * len(codes):
                return found
    return None


def find_periods(codes: Array) -> list[int]:
    """Periods of a sequence, in codes, the likeliest first: the last is the shortest lag at which codes agree."""
    middle = max((len(codes) - SEARCHED) // 2, 0)
    sample = _by_appearance(codes[middle : middle + SEARCHED])
    longest = len(sample) // FEWEST_REPETITIONS
    share = np.bincount(sample) / max(len(sample), 1)
    chance = float((share**2).sum())
    if longest < 1 or len(share) < 2:
        return []
    lags = _candidates(sample, len(share), longest)
    agreed = np.asarray([float((sample[:-lag] == sample[lag:]).mean()) for lag in lags.tolist()])
    lags = lags[(agreed - chance) >= AGREES * (1 - chance)]
    found: list[int] = lags[:1].tolist()
    while found:
        longer = next((lag for lag in lags[lags > found[0]].tolist() if _explains(sample, found[0], lag)), 0)
        if not longer:
            break
        found.insert(0, longer)
    return found


def _by_appearance(codes: Array) -> Array:
    """Codes numbered by which comes first: what is found does not depend on how a source numbers its names."""
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    place = np.empty(len(first), np.int32)
    place[np.argsort(first)] = np.arange(len(first), dtype=np.int32)
    return place[inverse]


def _candidates(sample: Array, distinct: int, longest: int) -> Ints:
    """Lags worth a look, ascending: the peaks of the autocorrelation of random numbers that stand for the codes."""
    size = 1 << int(2 * len(sample) - 1).bit_length()
    random = np.random.default_rng(0)
    total = np.zeros(longest + 1)
    for _ in range(_MAPS):
        spectrum = np.fft.rfft(random.standard_normal(distinct)[sample], size)
        total += np.fft.irfft(np.abs(spectrum) ** 2, size)[: longest + 1]
    raw = total[1:]
    scaled = raw / (len(sample) - np.arange(1, longest + 1))
    # The sum prefers short lags, the mean treats long ones alike: a period is high in one of them.
    most = min(_CANDIDATES, longest)
    found = [np.argpartition(-values, most - 1)[:most] + 1 for values in (raw, scaled)]
    return np.unique(np.concatenate([np.arange(1, min(longest, _CANDIDATES) + 1), *found]))


def _explains(sample: Array, shorter: int, longer: int) -> bool:
    """Whether a longer lag agrees where a shorter one does not, and more than a deviation is the reason."""
    n = len(sample) - longer
    differs = sample[:n] != sample[shorter : shorter + n]
    still = sample[:n] != sample[longer:]
    left = int(differs.sum())
    repaired = left - int((differs & still).sum()) >= _REPAIRED * left or int(still.sum()) <= _FEWER * left
    if not left or not repaired:
        return False
    # What belongs to a repetition is in every one; deviations fall where they fall.
    in_block = np.add.reduceat(differs, np.arange(0, n, longer)) > 0
    if in_block[: max(n // longer, 1)].mean() < _EVERY:
        return False
    # One more code shifts a whole repetition; one that is another differs twice.
    extra = min(longer % shorter, -longer % shorter)
    by_deviation = shorter + _FEW if extra else 2 * _FEW
    return extra > _FEW or left * longer > by_deviation * n


def _repetitions(codes: Array, period: int, pause: Ints) -> Repetitions:
    """Every repetition of a sequence with that period.

    The pattern is what repeats best for the first time. It begins behind its longest pause where that is clearly the
    longest, else with the first code of the repetition. A repetition is recognised by its first codes, as few of them
    as tell it from every other place in the pattern, so that a deviation behind them does not hide it. Where these
    themselves deviate too often, the repetition begins with another code of the pattern.
    """
    first = _first_repetition(codes, period)
    best = _beginning_at(codes, first + _rotation(codes, period, pause, first), period)
    if best.covered >= _ENOUGH * len(codes):
        return best
    for offset in _unique_codes(codes[first : first + period]).tolist():
        other = _beginning_at(codes, first + offset, period)
        best = other if other.covered > best.covered else best
    return best


def _unique_codes(pattern: Array) -> Ints:
    """Places in a pattern of codes that it holds once, at most as many as are worth trying."""
    _, inverse, count = np.unique(pattern, return_inverse=True, return_counts=True)
    places = np.flatnonzero(count[inverse] == 1)
    return places[np.linspace(0, len(places) - 1, min(len(places), _TRIED)).astype(np.int64)] if len(places) else places


def _beginning_at(codes: Array, first: int, period: int) -> Repetitions:
    """Repetitions of the pattern at ``first``, from the first to the last that follow each other regularly."""
    none = Repetitions(period, np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, bool))
    if first + period > len(codes):
        return none
    starts = _occurrences(codes, first, period)
    spacing = np.diff(starts)
    regular = np.append(np.abs(spacing - period) <= max(period // 4, 1), len(codes) - starts[-1:] >= period)
    at = np.flatnonzero(regular[:-1])  # what the last one is like says nothing by itself
    if not len(at):
        return none
    kept = slice(int(at[0]), int(at[-1]) + 2)
    starts, whole = starts[kept], regular[kept]
    last = min(int(starts[-1]) + period, len(codes))
    whole[-1] &= int(starts[-1]) + period <= len(codes)
    return Repetitions(period, starts, np.append(starts[1:], last), whole)


def _first_repetition(codes: Array, period: int) -> int:
    """First position from which a whole pattern agrees best with the one behind it."""
    agrees = np.concatenate(([0], np.cumsum(codes[:-period] == codes[period:])))
    return int(np.argmax(agrees[period:] - agrees[:-period]))


def _rotation(codes: Array, period: int, pause: Ints, first: int) -> int:
    """By how many codes the pattern begins behind ``first``: in front of its longest pause, if that one stands out."""
    agrees = codes[first:-period] == codes[first + period :]
    run = int(np.argmin(agrees)) if not agrees.all() else len(agrees)
    n = max(run // period, 1) * period
    total = pause[first : first + n].reshape(-1, period)[1:].sum(axis=0) if n > period else pause[first : first + n]
    longest = int(np.argmax(total))
    return longest if first + longest + period <= len(codes) and int(total[longest]) > 2 * int(total[0]) else 0


def _occurrences(codes: Array, first: int, period: int) -> Ints:
    """Positions at which the first codes of the pattern at ``first`` occur, as few as occur once in the pattern."""
    pattern = codes[first : first + period]
    around = np.concatenate((pattern, pattern))
    width = 1
    while width < period and int((_grams(around, width)[:period] == _grams(pattern, width)[0]).sum()) > 1:
        width = min(2 * width, period)
    return np.flatnonzero(_grams(codes, width) == _grams(pattern, width)[0])


def _grams(codes: Array, width: int) -> _Hashes:
    """A hash of each ``width`` codes in a row, by doubling."""
    hashes = codes.astype(np.uint64) + np.uint64(1)
    hashes *= np.uint64(0x9E3779B97F4A7C15)
    hashes ^= hashes >> np.uint64(29)
    done, rate = 1, _RATE
    while 2 * done <= width:
        hashes = hashes[:-done] * np.uint64(rate) + hashes[done:]
        rate = pow(rate, 2, 1 << 64) | 1
        done *= 2
    if done < width:  # two that overlap cover the width
        rest = width - done
        hashes = hashes[:-rest] * np.uint64(rate) + hashes[rest:]
    return hashes
