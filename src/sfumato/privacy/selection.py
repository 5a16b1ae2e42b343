"""Choosing by the data: public candidates, their exact sensitivity and rate, epochs of thresholds.

Scores are integers. A candidate is one query q with a public integer estimate e, weight w and penalty p; its score
on a table is w |q(table) - e| - p. Nothing here sees a table.

The exponential mechanism in one draw over all candidates, whose work does not depend on their scores.

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

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sfumato._util.codec import storable
from sfumato.errors import PlanError
from sfumato.maps import AlikeMap, BlockMap
from sfumato.maps.base import DENSE_LIMIT, LinearMap
from sfumato.privacy.accounting import BoundedRangeEvent, Event
from sfumato.privacy.amounts import arb_ball, certain_ceiling, certain_floor
from sfumato.privacy.int128 import UInt128Array, absolute_differences
from sfumato.privacy.noise import BitSource, DiscreteLaplace, SystemBits
from sfumato.privacy.unit import Neighbours, PrivacyUnit

_MAX_ENTRY = 2**10  # fewer than 2^53 records are counted: exact answers then fit int64
_MAX_WORK = 2**28  # their largest moves are found column by column, in seconds
_TOP = 2**63 - 1  # the largest int64
_CHUNK = 2**22  # entries written out at a time: 32 MB
_THRESHOLD_SHARE = Fraction(3865, 10000)  # of an epoch's epsilon; 1 / (1 + 2^(2/3)) is the best [LSL17]


def check_candidate_rows(blocks: Sequence[Any]) -> int:
    """How many candidates the rows of some blocks are. Raises PlanError where they cannot be candidates."""
    if not blocks or not all(isinstance(b, BlockMap) for b in blocks):
        raise PlanError("candidates are the rows of at least one block, and of blocks alone")
    rows = sum(b.rows for b in blocks)
    if not rows:
        raise PlanError("there must be a candidate")
    if not all(all(f.integral for f in b.factors) and _largest_entry(b) < _MAX_ENTRY for b in blocks):
        raise PlanError(f"the queries of candidates have whole coefficients below {_MAX_ENTRY:,} in size")
    return rows


def _largest_entry(block: BlockMap) -> float:
    return math.prod(f.max_abs for f in block.factors)


@storable
@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """The rows of some blocks, numbered through, each with an estimate, a weight and a penalty. All public.

    estimates, weights, penalties: int64, shape (rows of all blocks,); weights at least 1.
    Raises PlanError for anything else, and for queries that are not whole numbers below 1,024 in size.
    """

    blocks: tuple[BlockMap, ...]
    estimates: NDArray[np.int64]
    weights: NDArray[np.int64]
    penalties: NDArray[np.int64]

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", tuple(self.blocks))
        rows = check_candidate_rows(self.blocks)
        for name in ("estimates", "weights", "penalties"):
            given: Any = getattr(self, name)
            if not isinstance(given, np.ndarray) or given.dtype != np.int64 or given.shape != (rows,):
                raise PlanError(f"{name} of candidates are an int64 array of shape ({rows},), one entry per query")
            own = given.copy()
            own.flags.writeable = False
            object.__setattr__(self, name, own)
        if int(self.weights.min()) < 1:
            raise PlanError("weights of candidates are at least 1")

    def __len__(self) -> int:
        return len(self.estimates)

    def scores(self, answers: Sequence[int]) -> list[int]:
        """w |q - e| - p for exact answers q, in Python integers: nothing wraps around."""
        public = zip(self.estimates.tolist(), self.weights.tolist(), self.penalties.tolist(), strict=True)
        return [w * abs(q - e) - p for q, (e, w, p) in zip(answers, public, strict=True)]

    def lags(self, answers: NDArray[np.int64]) -> UInt128Array:
        """How far each of `scores` is behind the best; exact as they are, by work that does not depend on them."""
        misses = UInt128Array.products(self.weights.view(np.uint64), absolute_differences(answers, self.estimates))
        # every score raised by 2^63 - 1, so that none is negative
        return misses.plus((np.int64(_TOP) - self.penalties).view(np.uint64)).behind()

    def furthest(self, moves: Sequence[int]) -> int:
        """How far a score moves at most where answers move so far: |q - e| moves by no more than q."""
        return max(w * m for w, m in zip(self.weights.tolist(), moves, strict=True))


class ScoredCandidates(Protocol):
    """Public candidates: rows of blocks, with a score for each once their exact answers are known."""

    @property
    def blocks(self) -> tuple[BlockMap, ...]: ...

    def lags(self, answers: NDArray[np.int64]) -> UInt128Array: ...

    def furthest(self, moves: Sequence[int]) -> int: ...


def score_sensitivity(candidates: ScoredCandidates, sizes: Mapping[str, int], unit: PrivacyUnit) -> int:
    """The largest change of any score between neighbouring tables, an exact integer.

    A row with largest entry a and smallest b moves by max(|a|, |b|) for each row of a person (add-remove) or a - b
    (replace-one; an entry 0 joins where a record may vanish).
    Raises WorkloadError for blocks that do not fit `sizes`, PlanError for more than 2^28 coefficients.
    """
    for block in candidates.blocks:
        block.check(sizes)
    if sum(b.rows * b.cells for b in candidates.blocks) > _MAX_WORK:
        raise PlanError(f"the candidates have more than {_MAX_WORK:,} coefficients; ask fewer at once")
    moves = np.concatenate([_row_changes(b.lowered(), unit) for b in candidates.blocks]).tolist()
    return candidates.furthest([m * unit.rows_per_person for m in moves])


def _row_changes(block: BlockMap, unit: PrivacyUnit) -> NDArray[np.int64]:
    """(rows,) how far one record can move each row of a lowered block."""
    # the entries of a row are all products of one entry from a row of each factor
    high = low = np.ones(1, dtype=np.int64)
    for factor in block.factors:
        ends = [np.multiply.outer(a, b).reshape(-1) for a in (high, low) for b in _row_extremes(factor)]
        high, low = np.maximum.reduce(ends), np.minimum.reduce(ends)
    if unit.neighbours is Neighbours.ADD_REMOVE:
        return np.maximum(np.abs(high), np.abs(low))
    if unit.total_is_public:
        return high - low
    return np.maximum(high, 0) - np.minimum(low, 0)


def _row_extremes(factor: LinearMap) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(rows,) the largest and the smallest entry of each row, from its columns, of a large map some at a time."""
    rows, n = factor.shape
    if isinstance(factor, AlikeMap) and n > 1:
        ends = (factor.own + factor.other, factor.other)
        return np.full(n, max(ends)), np.full(n, min(ends))
    if rows * n <= DENSE_LIMIT:
        columns = factor.lowered().columns()
        return columns.max(axis=1), columns.min(axis=1)
    high, low = np.full(rows, -_TOP), np.full(rows, _TOP)
    step = max(1, _CHUNK // max(rows, n))
    for start in range(0, n, step):
        columns = factor.apply(np.eye(n, min(step, n - start), -start, dtype=np.int64))
        high, low = np.maximum(high, columns.max(axis=1)), np.minimum(low, columns.min(axis=1))
    return high, low


# ---- choosing ----------------------------------------------------------------------------------------------


def selection_rate(sensitivity: int, price: Event) -> Fraction:
    """epsilon / (2 sensitivity), at which `exponential.exponential` is an epsilon-bounded-range mechanism.

    Raises PlanError for a price that is not a BoundedRangeEvent, and where no score depends on any record.
    """
    if type(price) is not BoundedRangeEvent:
        raise PlanError("a selection is priced as a BoundedRangeEvent(epsilon)")
    if sensitivity < 1:
        raise PlanError("no candidate's answer depends on any one record; there is nothing to select by")
    return price.epsilon / (2 * sensitivity)


def draw_below(count: int, source: BitSource | None = None) -> int:
    """Uniform on 0 to count - 1."""
    bits = SystemBits() if source is None else source
    mask = (1 << (count - 1).bit_length()) - 1
    while True:
        found = int(bits.words(1)[0]) & mask
        if found < count:
            return found


# ---- thresholds -------------------------------------------------------------------------------------


@storable
@dataclass(frozen=True, slots=True)
class Epochs:
    """What the bits of a conversation may spend: `count` positive answers, each ending an epoch of `epsilon`.

    `sensitivity` bounds how far a score may move between neighbours. Raises PlanError for anything but positive
    whole numbers and an epsilon whose noise can be drawn.
    """

    count: int
    epsilon: Fraction
    sensitivity: int = 1

    def __post_init__(self) -> None:
        for name, top in (("count", 10**6), ("sensitivity", 2**40)):
            given: Any = getattr(self, name)
            if type(given) is not int or not 1 <= given <= top:
                raise PlanError(f"{name} of epochs must be a whole number from 1 to {top:,}, not {given!r}")
        given = self.epsilon
        if not isinstance(given, (int, Fraction)) or isinstance(given, bool) or not Fraction(1, 2**12) <= given <= 256:
            raise PlanError(f"epsilon of an epoch must be an int or a Fraction from 1/4096 to 256, not {given!r}")
        object.__setattr__(self, "epsilon", Fraction(given))

    @property
    def threshold_noise(self) -> DiscreteLaplace:
        """Drawn once per epoch: scale sensitivity / e1, e1 = .3865 epsilon."""
        return DiscreteLaplace(self.sensitivity / (self.epsilon * _THRESHOLD_SHARE))

    @property
    def query_noise(self) -> DiscreteLaplace:
        """Drawn for every question: scale 2 sensitivity / e2, e2 = epsilon - e1."""
        return DiscreteLaplace(2 * self.sensitivity / (self.epsilon * (1 - _THRESHOLD_SHARE)))


Words = NDArray[np.uint64]

BITS = 128  # of the first number drawn: fewer than n^2 in 2^119 draws need more
# BITS in limbs of half a word, so that their products fit a word and carries are seen.
_LIMBS = 4
_LIMB = np.uint64(32)  # bits of a limb
_MASK = np.uint64((1 << 32) - 1)  # a limb of ones
_BYTES = 16  # of a lag
_CHUNK_EXPONENTIAL = 1 << 14  # candidates weighed at once: their limbs stay in the cache

_FACTOR_ERROR = 2  # of a factor in the tables, in units of 2^-128
_PRODUCT_ERROR = 8  # what the limbs left out of one product come to
ERROR = _BYTES * (_FACTOR_ERROR + _PRODUCT_ERROR)
"""By how much a lower bound of a weight may be short, in units of 2^-128."""


def exponential_mechanism(
    lags: UInt128Array, rate: Fraction, source: BitSource | None = None, *, bits: int = BITS, guard: int = 0
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
    starts = range(0, len(lags), _CHUNK_EXPONENTIAL)
    ends = list(accumulate(_sum_limbs(lower_weights(lags, rate, a, a + _CHUNK_EXPONENTIAL)) for a in starts))

    def find(most: int) -> tuple[int, int]:
        at = bisect_right(ends, most)
        before = ends[at - 1] if at else 0
        limbs = lower_weights(lags, rate, starts[at], starts[at] + _CHUNK_EXPONENTIAL).cumsum(axis=1)
        inside = bisect_right(range(limbs.shape[1]), most - before, key=lambda j: _limbs_to_int(limbs[:, j]))
        return starts[at] + inside, before + _limbs_to_int(limbs[:, inside])

    found = _candidate_of_prefix(prefix, bits, len(lags), ends[-1], len(lags) * ERROR + guard, find)
    return _refine_choice(lags.integers(), rate, prefix, bits, drawn) if found is None else found


def lower_weights(lags: UInt128Array, rate: Fraction, start: int, stop: int) -> Words:
    """Lower bounds of 2^128 exp(-rate lag) for the candidates from `start` to below `stop`, short by at most ERROR.

    Returns limbs of 32 bits, the greatest first: uint64 (4, candidates).
    """
    tables = _exponential_tables(rate)
    digits = lags.bytes_of(start, stop, len(tables))
    out = tables[0][:, digits[0]]
    for table, digit in zip(tables[1:], digits[1:], strict=True):
        out = _multiply_limbs(out, table[:, digit])
    return out


@lru_cache(maxsize=64, typed=True)
def _exponential_tables(rate: Fraction) -> tuple[Words, ...]:
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
                scaled = arb_ball(-rate * (byte << 8 * place)).exp() * (1 << BITS)
                low = min(certain_floor(scaled), (1 << BITS) - 1)
                if not 0 <= low <= certain_ceiling(scaled) <= low + _FACTOR_ERROR:
                    raise ArithmeticError("a weight of the exponential mechanism is not bounded closely enough")
            for limb in range(_LIMBS):
                table[limb, byte] = (low >> 32 * (_LIMBS - 1 - limb)) & 0xFFFFFFFF
        table.flags.writeable = False
        out.append(table)
    return tuple(out)


def _multiply_limbs(one: Words, other: Words) -> Words:
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


def _limbs_to_int(limbs: Words) -> int:
    """The number that limbs, greatest first and of any size, stand for."""
    value = 0
    for limb in limbs.tolist():
        value = (value << 32) + limb
    return value


def _sum_limbs(limbs: Words) -> int:
    return _limbs_to_int(limbs.sum(axis=1))


def _candidate_of_prefix(
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


def _refine_choice(lags: Sequence[int], rate: Fraction, prefix: int, bits: int, source: BitSource) -> int:
    """The candidate of a U that begins with `prefix`, by as many more bits as that takes."""
    from flint import ctx  # noqa: PLC0415  (heavy)

    precision = max(bits, BITS)
    while True:
        prefix, bits = prefix << 64 | int(source.words(1)[0]), bits + 64
        precision += 64
        with ctx.workprec(2 * precision):
            # exp(-x) is below 2^-x
            sizes = [rate * lag for lag in lags]
            lower = [certain_floor(arb_ball(-x).exp() * (1 << precision)) if x < precision else 0 for x in sizes]
        ends = list(accumulate(max(0, w) for w in lower))
        found = _candidate_of_prefix(prefix, bits, len(lags), ends[-1], 2 * len(lags), _interval_finder(ends))
        if found is not None:
            return found


def _interval_finder(ends: Sequence[int]) -> Callable[[int], tuple[int, int]]:
    def find(most: int) -> tuple[int, int]:
        at = bisect_right(ends, most)
        return at, ends[at]

    return find
