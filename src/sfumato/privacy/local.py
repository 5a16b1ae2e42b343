"""Randomized response on the person's own device, exact: the one step of the local model that privacy rests on.

A person knows a label t among 0 to g - 1 and says c with probability

    P(c = t) = e^epsilon / (e^epsilon + g - 1),        P(c) = 1 / (e^epsilon + g - 1) for every other c.

Guarantee [War65, KLNRS11]: for any two labels the probabilities of any c have a ratio of exactly e^epsilon,
e^-epsilon or 1. What the label means (which public question about the person's record it answers) plays no part, so
no choice of questions, good or bad, costs privacy; a question drawn independently of the record and reported
with the answer multiplies both probabilities alike. Every report spends epsilon again: two reports of one
person cost 2 epsilon.

Nothing here is a float. A lie has probability (g - 1) / (e^epsilon + g - 1), irrational, whose binary digits are
certified by ball arithmetic [Joh17]; a uniform number is drawn 64 bits at a time until it differs from them.
The same words are drawn whatever the label is, so neither is the time that this takes a function of it.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import PlanError
from sfumato.privacy.amounts import arb_ball, certain_ceiling, certain_floor
from sfumato.privacy.noise import BitSource, SystemBits

Integers = NDArray[np.int64]

MAX_LABELS = 2**16  # a device draws one label of so many in no time
# Below, a report tells nothing; above, it hides nothing. Between, the digits of a lie are few.
_LEAST, _MOST = Fraction(1, 2**10), Fraction(64)


def check_epsilon(epsilon: Any) -> Fraction:
    """The epsilon of one report as a Fraction. Raises PlanError for anything but exact numbers from 1/1024 to 64."""
    if isinstance(epsilon, (int, Fraction)) and not isinstance(epsilon, bool) and _LEAST <= epsilon <= _MOST:
        return Fraction(epsilon)
    raise PlanError(f"epsilon of a report must be an int or a Fraction from 1/1024 to 64, not {epsilon!r}")


def randomized_response(truths: Integers, labels: int, epsilon: Fraction, source: BitSource | None = None) -> Integers:
    """What persons say whose true labels are `truths`, int64, each 0 to labels - 1; independent of each other.

    Raises PlanError for other truths, fewer than 2 or more than 65,536 labels and an epsilon that is not allowed.
    """
    epsilon = check_epsilon(epsilon)
    if type(labels) is not int or not 2 <= labels <= MAX_LABELS:
        raise PlanError(f"an answer is one of 2 to {MAX_LABELS:,} labels, not of {labels!r}")
    if truths.dtype != np.int64 or truths.ndim != 1 or (truths.size and not 0 <= truths.min() <= truths.max() < labels):
        raise PlanError(f"true labels are a list of int64 from 0 to {labels - 1}")
    if not truths.size:
        return truths.copy()
    bits = SystemBits() if source is None else source
    lies = _draw_lies(truths.size, labels, epsilon, bits)
    other = 1 + _uniform_below(labels - 1, truths.size, bits)
    return (truths + lies * other) % labels


def draw_questions(counts: Integers, persons: int, source: BitSource | None = None) -> Integers:
    """(persons,) numbers of questions, question s with probability counts_s / sum of counts, a power of two.

    Public randomness that the record plays no part in: it is reported with the answer.
    """
    bits = SystemBits() if source is None else source
    edges = np.cumsum(counts)
    return np.searchsorted(edges, _uniform_below(int(edges[-1]), persons, bits), side="right").astype(np.int64)


def _uniform_below(count: int, size: int, source: BitSource) -> Integers:
    """(size,) uniform on 0 to count - 1: as many bits as that takes, drawn again where they are too many."""
    mask = np.uint64((1 << (count - 1).bit_length()) - 1)
    found = source.words(size) & mask
    while (over := np.flatnonzero(found >= count)).size:
        found[over] = source.words(over.size) & mask
    return found.astype(np.int64)


def _draw_lies(size: int, labels: int, epsilon: Fraction, source: BitSource) -> Integers:
    """(size,) 1 with probability (labels - 1) / (e^epsilon + labels - 1), else 0."""
    drawn = source.words(size)
    edge = np.uint64(lie_digits(labels, epsilon, 1))
    out = (drawn < edge).astype(np.int64)
    for i in np.flatnonzero(drawn == edge).tolist():
        prefix, words = int(drawn[i]), 1
        while prefix == (known := lie_digits(labels, epsilon, words)):
            prefix, words = prefix << 64 | int(source.words(1)[0]), words + 1
        out[i] = prefix < known
    return out


@lru_cache(maxsize=64, typed=True)
def lie_digits(labels: int, epsilon: Fraction, words: int) -> int:
    """The first 64 words binary digits of (labels - 1) / (e^epsilon + labels - 1), as an integer."""
    from flint import ctx  # noqa: PLC0415  (heavy)

    precision = 64 * words + 64
    while True:
        with ctx.workprec(precision):
            chance = (labels - 1) / (arb_ball(epsilon).exp() + (labels - 1)) * (1 << 64 * words)
            low, above = certain_floor(chance), certain_ceiling(chance)
        # e^epsilon is transcendental, so the number is never an integer and its ball ends up between two
        if above == low + 1:
            return low
        precision *= 2
