"""The exponential mechanism in one draw over all candidates, whose work does not depend on their scores.

Candidate i has weight e_i = exp(-rate lag_i), its lag the best score less its own, a whole number. A uniform real U in
[0, 1) chooses the i with e_1 + ... + e_(i-1) <= U (e_1 + ... + e_n) < e_1 + ... + e_i. That is the law itself; what is
left is to read i off finitely many bits of U without an approximation.

Weights are known as integers: lower bounds L_i of 2^128 e_i that are short of it by at most ERROR, certified by ball
arithmetic [Joh17]. The lag is cut into bytes, exp(-rate lag) is the product of one factor for each byte, the factors
are looked up in tables made from `rate` alone, and products are cut off downwards in limbs of 32 bits. So every
candidate costs the same gathers and products, however many different scores there are; their number depends on `rate`,
which is public. The first 128 bits of U confine U (e_1 + ... + e_n) to an interval. If it lies, errors and all, between
the ends of one candidate, that is the one. If not, which has a probability below n^2 2^-119, U is continued by 64 bits
at a time and all weights are bounded more closely until it does. Nothing is ever rejected or drawn again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from sfumato.privacy.certified import ball, ceiling, floor
from sfumato.privacy.sampling import BitSource, SystemBits
from sfumato.privacy.wide import Wide

__all__ = ["ERROR", "exponential", "lower_weights"]

Words = NDArray[np.uint64]

BITS = 128  # of the first number drawn: fewer than n^2 in 2^119 draws need more
# BITS in limbs of half a word, so that their products fit a word and carries are seen.
_LIMBS = 4
_LIMB = np.uint64(32)  # bits of a limb
_MASK = np.uint64((1 << 32) - 1)  # a limb of ones
_BYTES = 16  # of a lag
_CHUNK = 1 << 14  # candidates weighed at once: their limbs stay in the cache

_FACTOR_ERROR = 2  # of a factor in the tables, in units of 2^-128
_PRODUCT_ERROR = 8  # what the limbs left out of one product come to
ERROR = _BYTES * (_FACTOR_ERROR + _PRODUCT_ERROR)
"""By how much a lower bound of a weight may be short, in units of 2^-128."""


def exponential(
    lags: Wide, rate: Fraction, source: BitSource | None = None, *, bits: int = BITS, guard: int = 0
) -> int:
    """The index i with probability proportional to exp(-rate lag_i), exactly [MT07]; rate > 0.

    Draws one number of `bits` bits; time and memory (a few MB beside the lags) depend on how many candidates there are
    and on `rate`, but for the draws, fewer than n^2 in 2^119, that need more bits. Tests use `bits`, and `guard`, which
    widens what is left undecided, to reach every path; the law depends on neither.

    Guarantee: with lag_i = best score - score_i, if no score moves by more than D between neighbours, log P(i) moves by
    rate (change of score i) less a term common to all i; its range over i is at most 2 rate D = epsilon. That is
    epsilon-bounded range [DR19], hence epsilon-DP and epsilon^2/8-zCDP [CR21].
    """
    drawn = SystemBits() if source is None else source
    prefix = 0
    for word in drawn.words(-(-bits // 64)).tolist():
        prefix = prefix << 64 | word
    prefix >>= -bits % 64
    starts = range(0, len(lags), _CHUNK)
    ends = list(accumulate(_sum(lower_weights(lags, rate, a, a + _CHUNK)) for a in starts))

    def find(most: int) -> tuple[int, int]:
        at = bisect_right(ends, most)
        before = ends[at - 1] if at else 0
        limbs = lower_weights(lags, rate, starts[at], starts[at] + _CHUNK).cumsum(axis=1)
        inside = bisect_right(range(limbs.shape[1]), most - before, key=lambda j: _value(limbs[:, j]))
        return starts[at] + inside, before + _value(limbs[:, inside])

    found = _settled(prefix, bits, len(lags), ends[-1], len(lags) * ERROR + guard, find)
    return _refined(lags.integers(), rate, prefix, bits, drawn) if found is None else found


def lower_weights(lags: Wide, rate: Fraction, start: int, stop: int) -> Words:
    """Lower bounds of 2^128 exp(-rate lag) for the candidates from `start` to below `stop`, short by at most ERROR.

    Returns limbs of 32 bits, the greatest first: uint64 (4, candidates).
    """
    tables = _tables(rate)
    digits = lags.bytes_of(start, stop, len(tables))
    out = tables[0][:, digits[0]]
    for table, digit in zip(tables[1:], digits[1:], strict=True):
        out = _products(out, table[:, digit])
    return out


@lru_cache(maxsize=64)
def _tables(rate: Fraction) -> tuple[Words, ...]:
    """For each byte of a lag the limbs of 2^128 exp(-rate byte 256^place), rounded down: (4, 256) each.

    As many places as lags need: what is behind by 256^places - 1 or more weighs less than 2^-128, or no lag is.
    """
    from flint import ctx  # noqa: PLC0415  (heavy)

    places = next((n for n in range(1, _BYTES) if rate * (256**n - 1) >= BITS), _BYTES)
    out: list[Words] = []
    for place in range(places):
        table = np.empty((_LIMBS, 256), dtype=np.uint64)
        for byte in range(256):
            # an exponent is below 2^16, so 64 bits more than the weight has are plenty
            with ctx.workprec(BITS + 64):
                scaled = ball(-rate * (byte << 8 * place)).exp() * (1 << BITS)
                low = min(floor(scaled), (1 << BITS) - 1)
                if not 0 <= low <= ceiling(scaled) <= low + _FACTOR_ERROR:
                    raise ArithmeticError("a weight of the exponential mechanism is not bounded closely enough")
            for limb in range(_LIMBS):
                table[limb, byte] = (low >> 32 * (_LIMBS - 1 - limb)) & 0xFFFFFFFF
        table.flags.writeable = False
        out.append(table)
    return tuple(out)


def _products(one: Words, other: Words) -> Words:
    """Limb by limb one * other / 2^128, rounded down by less than 8.

    Left out are the limbs below 2^-128: lower halves of four products, and six products further down.
    """
    columns: list[list[Words]] = [[] for _ in range(_LIMBS)]
    for i in range(_LIMBS):
        for j in range(_LIMBS - i):
            product = one[i] * other[j]
            columns[i + j].append(product >> _LIMB)
            if i + j + 1 < _LIMBS:
                columns[i + j + 1].append(product & _MASK)
    out = np.empty_like(one)
    carry: Words | None = None
    for limb in range(_LIMBS - 1, -1, -1):
        # at most eight numbers below 2^32
        summed = sum(columns[limb][1:], columns[limb][0])
        if carry is not None:
            summed = summed + carry
        out[limb], carry = summed & _MASK, summed >> _LIMB
    return out


def _value(limbs: Words) -> int:
    """The number that limbs, greatest first and of any size, stand for."""
    value = 0
    for limb in limbs.tolist():
        value = (value << 32) + limb
    return value


def _sum(limbs: Words) -> int:
    return _value(limbs.sum(axis=1))


def _settled(
    prefix: int, bits: int, count: int, total: int, error: int, find: Callable[[int], tuple[int, int]]
) -> int | None:
    """The one of `count` candidates in which U times the exact total lies for every U that begins with `prefix`.

    None where there is none, or none for sure.

    `total` adds up lower bounds of all weights; it, and the end of any candidate, are short by at most `error`.
    find(t): the first candidate whose end, in lower bounds, is above t, and that end.
    """
    # those before it end, errors included, at most where the interval begins: it is none of them
    found, end = find((prefix * total >> bits) - error)
    return found if found + 1 == count or (prefix + 1) * (total + error) <= end << bits else None


def _refined(lags: Sequence[int], rate: Fraction, prefix: int, bits: int, source: BitSource) -> int:
    """The candidate of a U that begins with `prefix`, by as many more bits as that takes."""
    from flint import ctx  # noqa: PLC0415  (heavy)

    precision = max(bits, BITS)
    while True:
        prefix, bits = prefix << 64 | int(source.words(1)[0]), bits + 64
        precision += 64
        with ctx.workprec(2 * precision):
            # exp(-x) is below 2^-x
            sizes = [rate * lag for lag in lags]
            lower = [floor(ball(-x).exp() * (1 << precision)) if x < precision else 0 for x in sizes]
        ends = list(accumulate(max(0, w) for w in lower))
        found = _settled(prefix, bits, len(lags), ends[-1], 2 * len(lags), _finder(ends))
        if found is not None:
            return found


def _finder(ends: Sequence[int]) -> Callable[[int], tuple[int, int]]:
    def find(most: int) -> tuple[int, int]:
        at = bisect_right(ends, most)
        return at, ends[at]

    return find
