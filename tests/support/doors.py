"""Exact laws of the doors, in rationals, by enumeration: what their samplers and their prices are held against.

A law exp(-|k|/scale) is written by its base q = exp(-1/scale), which may be any rational in (0, 1): then e^epsilon
is a power of bases and every probability and every ratio is a rational number.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from scipy.stats import chi2

from sfumato.privacy.int128 import UInt128Array

__all__ = ["above_chance", "above_law", "behind", "differs", "exponential_law", "neighbours", "tables"]

ALPHA = 1e-10


def exponential_law(scores: Sequence[int], base: Fraction) -> list[Fraction]:
    """P(i) proportional to base^-score_i."""
    weights = [base ** (max(scores) - s) for s in scores]
    return [w / sum(weights) for w in weights]


def behind(scores: Sequence[int]) -> UInt128Array:
    """How far each score is behind the best, in Python integers."""
    return UInt128Array.of([max(scores) - s for s in scores])


def tables(cells: int, most: int) -> list[tuple[int, ...]]:
    """All histograms over some cells with at most so many records."""
    return [t for t in itertools.product(range(most + 1), repeat=cells) if sum(t) <= most]


def neighbours(cells: int, most: int, replace: bool) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Ordered pairs of histograms that differ in one record."""
    for x, y in itertools.permutations(tables(cells, most), 2):
        change = sorted(b - a for a, b in zip(x, y, strict=True) if a != b)
        if change == [-1, 1] if replace else change in ([-1], [1]):
            yield x, y


def above_law(
    scores: Sequence[int], count: int, t_base: Fraction, v_base: Fraction, *, redrawn: bool = True
) -> dict[tuple[bool, ...], Fraction]:
    """Probability of every sequence of bits: threshold noise of base t_base, question noise of base v_base (0: none).

    `redrawn` False keeps the first threshold for all epochs. Sequences end with the last positive that is paid.
    """
    law: dict[tuple[bool, ...], Fraction] = {}
    for bits in itertools.product((False, True), repeat=len(scores)):
        ends = [i + 1 for i, b in enumerate(bits) if b]
        stop = ends[count - 1] if len(ends) >= count else len(scores)
        if bits[:stop] not in law:
            law[bits[:stop]] = above_chance(scores[:stop], bits[:stop], t_base, v_base, redrawn=redrawn)
    return law


def above_chance(
    scores: Sequence[int], bits: Sequence[bool], t_base: Fraction, v_base: Fraction, *, redrawn: bool = True
) -> Fraction:
    """Probability of one sequence of bits; each positive ends an epoch."""
    cuts = sorted({0, len(bits), *(i + 1 for i, b in enumerate(bits) if b and redrawn)})
    found = Fraction(1)
    for a, b in itertools.pairwise(cuts):
        found *= _epoch(scores[a:b], bits[a:b], t_base, v_base)
    return found


def _epoch(scores: Sequence[int], bits: Sequence[bool], r: Fraction, s: Fraction) -> Fraction:
    """Sum over t of P(t) prod_j P(score_j + v_j >= t, or < t): by term between the scores, closed beyond."""
    low, high = min(0, *scores) - 1, max(0, *scores) + 1
    inside = sum((r ** abs(t) * _all(scores, bits, s, t) for t in range(low + 1, high)), start=Fraction(0))
    return (1 - r) / (1 + r) * (inside + _beyond(scores, bits, r, s, high) + _beyond(scores, bits, r, s, low))


def _tail(s: Fraction, k: int) -> Fraction:
    """P(v >= k)."""
    if not s:
        return Fraction(k <= 0)
    return s**k / (1 + s) if k > 0 else 1 - s ** (1 - k) / (1 + s)


def _all(scores: Sequence[int], bits: Sequence[bool], s: Fraction, t: int) -> Fraction:
    out = Fraction(1)
    for score, bit in zip(scores, bits, strict=True):
        p = _tail(s, t - score)
        out *= p if bit else 1 - p
    return out


def _beyond(scores: Sequence[int], bits: Sequence[bool], r: Fraction, s: Fraction, edge: int) -> Fraction:
    """Sum over t from `edge` outward: there each factor is p or 1 - p with p falling by s a step."""
    terms = {0: Fraction(1)}  # the power of s a step -> its coefficient
    for score, bit in zip(scores, bits, strict=True):
        p = _tail(s, edge - score)
        small = p if edge > 0 else 1 - p
        taken: dict[int, Fraction] = {}
        for power, c in terms.items():
            sign = 1 if bit == (edge > 0) else -1
            taken[power + 1] = taken.get(power + 1, Fraction(0)) + sign * c * small
            if sign < 0:
                taken[power] = taken.get(power, Fraction(0)) + c
        terms = taken
    return sum((c * r ** abs(edge) / (1 - r * s**power) for power, c in terms.items()), start=Fraction(0))


def differs(drawn: Mapping[Any, int], law: Mapping[Any, Fraction]) -> bool:
    """Whether chi-square at ALPHA tells the draws from the law."""
    total = sum(drawn.values())
    assert set(drawn) <= set(law)
    rare = [k for k in law if law[k] * total < 20]
    kept = [k for k in law if k not in rare]
    pairs = [(drawn.get(k, 0), float(law[k]) * total) for k in kept]
    statistic = sum((o - e) ** 2 / e for o, e in pairs)
    seen, expected = sum(drawn.get(k, 0) for k in rare), sum(float(law[k]) for k in rare) * total
    return bool(statistic > chi2.isf(ALPHA, len(pairs) - 1)) or seen > 10 * expected + 60
