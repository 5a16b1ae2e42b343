"""Noise laws on the integers, as values: each samples, has a variance, and knows its scale.

The exact counts are integers, so integer noise leaks nothing through the spacing of floating-point numbers.
What a law costs is for the accountant to say; it reads `sigma` or `scale`.

Exact samplers of integer noise, from the operating system's randomness.

The law is given by weights f(k), unnormalised, symmetric, decreasing in |k| and log-concave. Its sampler
is one rejection scheme [Dev86] in integers. The line is cut into blocks of `width` integers (width 1 for
small scales) and two tails. Block b is proposed with probability h_b / 2^64, h_b an integer, and an offset
inside it uniformly; the proposal k is accepted with probability

    unit * f(k) * width / h_b <= 1,        so that each k leaves a round with probability unit * f(k) / 2^64.

`unit` is the same for all k, hence accepted draws have the law f exactly, whatever `unit` and the h_b are.
What must hold is only h_b >= unit * width * max f in the block, and that is certified by ball arithmetic
[Joh17]. No float takes part, and no decision rests on an approximation: a proposal is accepted or refused at
once when certified integer bounds of its acceptance probability allow no other outcome, and otherwise its
uniform number is extended bit by bit, and f(k) evaluated more and more precisely, until they part.

Width 1: the acceptance number is the position of the word inside its cell of h_b words. The first
`decided` of them, a rounded-down certified bound, are accepted at once; the last one or two wait for more bits.

Larger widths: a second word gives the offset and the acceptance number. By log-concavity f lies in a block
between two lines through the values at block edges (`_acceptance_lines`).

Tails: the words left over propose, with a fair sign, tail step t with probability 2^-(t+1) and a uniform
offset in its `tail_step` integers, without end: the support is all integers. It suffices that f halves over
the first step, since by log-concavity it then halves at least over each later one.

A round draws a fixed number of words, and its cost depends on the scale but not on the values, save for the
few draws that need more bits.
"""

from __future__ import annotations

import math
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from operator import index
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from sfumato._util.codec import storable
from sfumato.errors import InvalidInput
from sfumato.privacy.amounts import arb_ball, certain_ceiling, certain_floor, exact_rational

if TYPE_CHECKING:
    from flint import arb

Words = NDArray[np.uint64]
Integers = NDArray[np.int64]

ROUND = 1 << 16  # draws per round: its arrays stay in the cache
GUIDE_BITS = 16  # leading bits of a word that look up its block
BLOCK_BITS = 7  # a block is at most scale / 2^7 wide
POSITION_BITS = 16  # resolution of the place inside a block
LINE_BITS = 60  # lines hold acceptance probabilities in units of 2^-60
OPEN = np.iinfo(np.int32).min  # guide entry of words whose leading bits do not settle the block


INT64 = 1 << 63  # draws are int64, modulo 2^64


def _wrap_int64(value: int) -> int:
    """An integer modulo 2^64, in int64."""
    return (value + INT64) % (2 * INT64) - INT64


class BitSource(Protocol):
    """Independent fair bits."""

    def words(self, count: int) -> Words:
        """`count` >= 1 words of 64 fresh bits, shape (count,)."""
        ...


class SystemBits:
    """OpenSSL's generator, seeded by the operating system.

    It keeps no words of its own, so nothing is shared over a fork; OpenSSL itself reseeds in the child.
    """

    __slots__ = ()

    def words(self, count: int) -> Words:
        """`count` words of 64 bits."""
        return np.frombuffer(ssl.RAND_bytes(8 * count), dtype=np.uint64)


@dataclass(frozen=True, slots=True, eq=False)
class Sampler:
    """The blocks of a law and how to draw from them; made by `sampler`.

    Arrays are indexed by i = b + half; the last entry is the tail. `starts[i]` is the first word of block i,
    `decided[i]` how many words from there on need no more bits to settle (for width 1) the acceptance or
    (else) the block. `lines` has rows (lower, lower slope, upper, upper slope), see `_lines`.
    """

    law: NoiseLaw
    bits: int
    shift: int
    half: int
    unit: Fraction
    tail_shift: int
    starts: Words
    decided: Words
    guide: NDArray[np.int32]
    lines: Integers
    sure: int

    def draw(self, size: int, source: BitSource, fit: Callable[[int], int] = _wrap_int64) -> Integers:
        """`size` independent draws, int64, shape (size,).

        Values beyond int64 (probability below e^-256 at the largest scale) wrap modulo 2^64, or become what `fit` makes
        of them.
        """
        out = np.empty(size, dtype=np.int64)
        filled = 0
        while filled < size:
            filled += self._fill(out[filled : filled + ROUND], source, fit)
        return out

    def integer(self, source: BitSource) -> int:
        """One draw, whatever its size."""
        beyond: list[int] = []

        def keep(value: int) -> int:
            beyond.append(value)
            return 0

        found = self.draw(1, source, keep)
        return beyond[0] if beyond else int(found[0])

    def height(self, i: int) -> int:
        """h of block i (or of the tail), in words."""
        last = i + 1 == self.starts.size
        return (1 << self.bits if last else int(self.starts[i + 1])) - int(self.starts[i])

    def _fill(self, out: Integers, source: BitSource, fit: Callable[[int], int] = _wrap_int64) -> int:
        """One round: propose out.size draws, pack the accepted ones to the front, return their number."""
        words = source.words(out.size)
        if self.bits < 64:
            words = words >> np.uint64(64 - self.bits)
        blocks = self.guide[words >> np.uint64(self.bits - min(GUIDE_BITS, self.bits))]
        missed = np.flatnonzero(blocks == OPEN)
        found = np.searchsorted(self.starts, words[missed], side="right") - 1  # both uint64
        blocks[missed] = found - self.half
        inside = words[missed] - self.starts[found]
        refused: list[int] = []
        if self.shift:
            refused += self._offsets(out, blocks, source)
        else:
            out[:] = blocks
        late = np.flatnonzero(inside >= self.decided[found])
        for place, i, position in zip(missed[late].tolist(), found[late].tolist(), inside[late].tolist(), strict=True):
            if i == 2 * self.half:
                value = self._tail(source)
            else:
                value = i - self.half
                if not self._below(position, 0, self.unit, value, source):
                    value = None
            if value is None:
                refused.append(place)
            else:
                out[place] = value if -INT64 <= value < INT64 else fit(value)
        if not refused:
            return out.size
        kept = np.delete(out, refused)
        out[: kept.size] = kept
        return kept.size

    def _offsets(self, out: Integers, blocks: NDArray[np.int32], source: BitSource) -> list[int]:
        """Draw the offsets inside blocks into `out`; the places of refused draws."""
        words = source.words(out.size)
        offsets = words & np.uint64((1 << self.shift) - 1)
        np.left_shift(blocks, self.shift, out=out, dtype=np.int64)
        out += offsets.view(np.int64)
        heights = (words >> np.uint64(64 - LINE_BITS)).view(np.int64)
        near = np.flatnonzero(heights >= self.sure)
        at = blocks[near] + self.half
        position = ((offsets[near] << np.uint64(POSITION_BITS)) >> np.uint64(self.shift)).view(np.int64)
        lower, lower_slope, upper, upper_slope = self.lines[:, at]
        near_heights = heights[near]
        refuse = near_heights >= upper + upper_slope * position
        waits = np.flatnonzero(~refuse & (near_heights >= lower + lower_slope * position))
        refused: list[int] = near[refuse].tolist()
        for place, i in zip(near[waits].tolist(), at[waits].tolist(), strict=True):
            factor = self.unit * (1 << self.shift) / self.height(i)
            prefix = int(words[place]) >> self.shift
            if not self._below(prefix, 64 - self.shift, factor, int(out[place]), source):
                refused.append(place)
        return refused

    def _tail(self, source: BitSource) -> int | None:
        """One draw beyond the blocks, or None when it is refused."""
        zeros = 0
        while (word := int(source.words(1)[0])) == 0:
            zeros += 64
        step = zeros + (word & -word).bit_length() - 1  # t with probability 2^-(t+1)
        sign, offset = (int(word) for word in source.words(2))
        offset >>= 64 - self.tail_shift
        value = (self.half << self.shift) + (step << self.tail_shift) + offset
        if sign & 1:
            value = ~value
        # the proposal has probability height / 2^bits * 2^-(t+1) / 2 / tail_step
        factor = self.unit * (1 << (step + 2 + self.tail_shift)) / self.height(2 * self.half)
        if not self._below(0, 0, factor, value, source):
            return None
        return value

    def _below(self, prefix: int, bits: int, factor: Fraction, k: int, source: BitSource) -> bool:
        """Whether (prefix + V) / 2^bits < factor * f(k), V uniform in [0, 1) and drawn as far as needed."""
        from flint import ctx  # noqa: PLC0415

        precision = 128 + self.law.octave
        while True:
            with ctx.workprec(bits + precision):
                bound = self.law.weight(k) * arb_ball(factor * (1 << bits))
                # comparisons of a ball are true only if they hold for all of it
                if bound >= prefix + 1:
                    return True
                if bound <= prefix:
                    return False
            prefix = prefix << 64 | int(source.words(1)[0])
            bits += 64
            precision += 64


@lru_cache(maxsize=16, typed=True)  # a law of a class that derives is another, whatever it compares as
def sampler(law: NoiseLaw, bits: int = 64, guard: int = 0) -> Sampler:
    """The sampler of a law, built once.

    `bits` is the size of the words that choose a block, 64 in every release. `guard` <= 2^60 widens what is
    left undecided: in words for width 1, in units of 2^-60 of probability for larger widths. Tests use both
    to reach every path; the law of the draws depends on neither.
    """
    from flint import ctx  # noqa: PLC0415

    shift = max(0, law.octave - BLOCK_BITS)
    # beyond, proposals are one in 2^48 and cells of few words would be accepted rarely: left to the tail
    half = (law.reach(max(bits - 16, bits // 2)) >> shift) + 2
    with ctx.workprec(192 + law.octave):
        edges = [law.weight(b << shift) for b in range(half + 2)]
        tail_shift = _halving_step(law, half << shift, edges[half])
        # the largest weight of a block is at its inner edge; for b < 0 the inner edge of width 1 is b itself
        tops = [edges[b if b >= 0 else -b - (shift > 0)] * (1 << shift) for b in range(-half, half)]
        # the tail proposes step t with probability 2^-(t+1), sign 1/2: it needs this mass or more
        tail_mass = edges[half] * (4 << tail_shift)
        unit = _words_per_weight(tops, tail_mass, bits)
        words = arb_ball(unit)
        masses = [words * top for top in tops]
        heights = [certain_ceiling(mass) for mass in masses]
        if not words * tail_mass <= (1 << bits) - sum(heights):
            raise ArithmeticError("the tail of a noise table is not covered; this is a bug in its construction")
        if shift:
            decided = heights
            whole = arb_ball(unit * (1 << shift + LINE_BITS))
            lines = _acceptance_lines(edges, [whole / height for height in heights], shift, guard)
        else:
            decided = [max(0, certain_floor(mass) - guard) for mass in masses]
            lines = np.zeros((4, 0), dtype=np.int64)
    starts = np.array([0, *accumulate(heights)], dtype=np.uint64)
    settled = np.array([*decided, 0], dtype=np.uint64)
    low, low_slope = lines[0, :-1], lines[1, :-1]
    steepest = low + np.minimum(0, low_slope << POSITION_BITS)
    return Sampler(
        law=law,
        bits=bits,
        shift=shift,
        half=half,
        unit=unit,
        tail_shift=tail_shift,
        starts=starts,
        decided=settled,
        guide=_guide_table(starts, settled, half, bits),
        lines=lines,
        sure=int(steepest.min(initial=1 << LINE_BITS)),
    )


def _halving_step(law: NoiseLaw, start: int, weight: arb) -> int:
    """The least s such that f(start + 2^s) <= f(start) / 2 is certain."""
    step = 0
    while not 2 * law.weight(start + (1 << step)) <= weight:
        step += 1
    return step


def _words_per_weight(tops: list[arb], tail_mass: arb, bits: int) -> Fraction:
    """The words per unit of weight that fill 2^bits words, roundings up and the tail included."""
    total = sum(tops[1:], tops[0])
    room = (1 << bits) - 2 * len(tops) - certain_ceiling(tail_mass * (1 << bits) / total) - 1
    if room <= 0:
        raise InvalidInput(f"{bits} bits are too few for a table of {len(tops)} blocks")
    return exact_rational((room / total).lower())


def _guide_table(starts: Words, decided: Words, half: int, bits: int) -> NDArray[np.int32]:
    """For each leading part of a word: its block number b, or OPEN unless all its words are settled."""
    size = min(GUIDE_BITS, bits)
    below = bits - size
    first = np.arange(1 << size, dtype=np.uint64) << np.uint64(below)
    found = np.searchsorted(starts, first, side="right") - 1
    last_inside = first - starts[found] + np.uint64((1 << below) - 1)
    return np.where(last_inside < decided[found], found - half, OPEN).astype(np.int32)


def _acceptance_lines(edges: list[arb], scales: list[arb], shift: int, guard: int) -> Integers:
    """Certified lines below and above the acceptance probability in each block, shape (4, blocks + 1).

    Row 0 + row 1 * p <= probability <= row 2 + row 3 * p, in units of 2^-60, for offsets between p and p + 1
    parts in 2^16 of the block. With f = (before, left, right, after) at the edges around it and t in [0, 1]
    the place inside, log-concavity gives
        left^(1-t) right^t <= f(t) <= left (left / before)^t and right (right / after)^(1-t).
    Below, the geometric mean is at least the harmonic mean, which lies under the chord by at most
    (left - right)^2 / (4 min(left, right)). Above, r^t <= 1 + t (r - 1); the lower of the two lines is kept.
    The last column, for the tail, accepts: its draws are replaced.
    """
    half = len(scales) // 2
    # the acceptance number is known up to the offset's bits: one block width in 2^64
    slack = (1 << shift >> (64 - LINE_BITS)) + 2 + guard
    columns: list[tuple[int, int, int, int]] = []
    for b, scale in zip(range(-half, half), scales, strict=True):
        before, left, right, after = (scale * edges[abs(j)] for j in (b - 1, b, b + 1, b + 2))
        smaller = left if b < 0 else right
        low = left - (left - right) ** 2 / (4 * smaller)
        low_slope = certain_floor((right - left) / (1 << POSITION_BITS))
        over_left, over_right = left**2 / before, right**2 / after
        start, end = (left, over_left) if left + over_left < right + over_right else (over_right, right)
        high_slope = certain_ceiling((end - start) / (1 << POSITION_BITS))
        lower = certain_floor(low) + min(0, low_slope) - slack
        upper = certain_ceiling(start) + max(0, high_slope) + slack
        columns.append((lower, low_slope, upper, high_slope))
    columns.append((1 << (LINE_BITS + 1), 0, 1 << (LINE_BITS + 1), 0))
    return np.array(columns, dtype=np.int64).T.copy()


# Below, a draw other than 0 is rarer than 2^-1000, and samplers would have tables of one row.
LEAST_SCALE = Fraction(1, 1 << 10)
GREATEST_SCALE = Fraction(1 << 55)  # 2^8 deviations fit int64, so that what wraps modulo 2^64 is never seen
_END = 2**63 - 2**54  # counts below 2^53 added to it leave room in int64
# From here on lattice effects of Gaussian laws are below one double rounding: exp(-2 pi^2 sigma^2).
SMOOTH = 4


class NoiseLaw(ABC):
    """A symmetric, log-concave law on the integers.

    `sample` is exact: given ideal random bits each k comes with exactly its probability, draws are
    independent, and every integer is possible. The variance is a double, for predicted errors; no privacy rests
    on it. Distribution functions and quantiles are in `plans.predictions`.
    """

    __slots__ = ()

    def sample(self, size: int, source: BitSource | None = None) -> NDArray[np.int64]:
        """`size` independent draws, int64, shape (size,), with less than 20 MB above the result.

        `source` is for tests; by default the bits come from the operating system (OpenSSL). There is no seed.
        Raises InvalidInput for a size that is not a nonnegative int.
        """
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 0:
            raise InvalidInput(f"the number of draws must be a nonnegative int, got {size!r}")
        return sampler(self).draw(int(size), SystemBits() if source is None else source)

    def integer(self, source: BitSource | None = None) -> int:
        """One draw as a Python integer, also where int64 is too small for it: for numbers that are then compared."""
        return sampler(self).integer(SystemBits() if source is None else source)

    def saturated(self, size: int, source: BitSource | None = None) -> NDArray[np.int64]:
        """`sample`, but draws beyond +-(2^63 - 2^54) are those ends in place of what they are modulo 2^64.

        With counts below 2^53 added to them nothing wraps, and a sum is on the right side of any number below 2^62.
        """
        bits = SystemBits() if source is None else source
        found = sampler(self).draw(size, bits, lambda value: _END if value > 0 else -_END)
        return found.clip(-_END, _END)

    @property
    @abstractmethod
    def variance(self) -> float:
        """Variance of one draw."""

    @property
    @abstractmethod
    def octave(self) -> int:
        """floor(log2(scale)), at least 0."""

    @abstractmethod
    def weight(self, k: int) -> arb:
        """P(noise = k) up to a constant, as a ball at the current precision."""

    @abstractmethod
    def reach(self, bits: int) -> int:
        """About where the mass beyond is 2^-bits."""


class _Gaussian(NoiseLaw):
    """What the two Gaussian laws share; the class that derives has the field `sigma`."""

    __slots__ = ()
    sigma: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", _read_scale("sigma", self.sigma))

    @property
    def octave(self) -> int:
        """floor(log2(sigma)), at least 0."""
        return max(0, math.floor(self.sigma).bit_length() - 1)

    def reach(self, bits: int) -> int:
        """About where the mass beyond is 2^-bits."""
        return math.ceil(float(self.sigma) * math.sqrt(2 * math.log(2) * bits))


@storable
@dataclass(frozen=True, slots=True)
class RoundedGaussian(_Gaussian):
    """The law of round(sigma N), N standard normal.

    Formal guarantee: for an integer vector x, x + round(sigma N) = round(x + sigma N), so integer answers
    with this noise are post-processing of the continuous Gaussian mechanism and inherit its guarantee
    exactly: mu-GDP with mu = sensitivity / sigma [DRS22], in any dimension.

    `sigma` is an int or a Fraction from 2^-10 to 2^55. Raises InvalidInput for anything else.
    """

    sigma: Fraction

    @property
    def variance(self) -> float:
        """sigma^2 + 1/12, up to a term in exp(-2 pi^2 sigma^2) that counts for small sigma alone."""
        if self.sigma < SMOOTH:
            return _summed_variance(self)
        return float(self.sigma**2 + Fraction(1, 12))

    def weight(self, k: int) -> arb:
        """Twice P(noise = k)."""
        k = abs(k)  # both terms small in the tail, or their difference would cancel
        return _erfc(Fraction(2 * k - 1, 2) / self.sigma) - _erfc(Fraction(2 * k + 1, 2) / self.sigma)


@storable
@dataclass(frozen=True, slots=True)
class DiscreteGaussian(_Gaussian):
    """P(k) proportional to exp(-k^2 / (2 sigma^2)) [CKS20].

    Formal guarantee: rho-zCDP with rho = sensitivity^2 / (2 sigma^2) [CKS20, Theorem 14]. Its (epsilon, delta)
    curve is not that of the continuous Gaussian mechanism; RoundedGaussian's is.

    `sigma` is an int or a Fraction from 2^-10 to 2^55. Raises InvalidInput for anything else.
    """

    sigma: Fraction

    @property
    def variance(self) -> float:
        """sigma^2, up to a term in exp(-2 pi^2 sigma^2) that counts for small sigma alone."""
        return _summed_variance(self) if self.sigma < SMOOTH else float(self.sigma**2)

    def weight(self, k: int) -> arb:
        """exp(-k^2 / (2 sigma^2))."""
        return arb_ball(-Fraction(k * k, 2) / self.sigma**2).exp()


@storable
@dataclass(frozen=True, slots=True)
class DiscreteLaplace(NoiseLaw):
    """P(k) proportional to exp(-|k| / scale) [GRS12].

    Formal guarantee: integer answers of L1 sensitivity D with this noise are (D / scale)-differentially
    private, in any dimension.

    `scale` is an int or a Fraction from 2^-10 to 2^55. Raises InvalidInput for anything else.
    """

    scale: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", _read_scale("scale", self.scale))

    @property
    def variance(self) -> float:
        """2 q / (1 - q)^2 with q = exp(-1 / scale)."""
        rate = 1 / float(self.scale)
        return 2 * math.exp(-rate) / math.expm1(-rate) ** 2

    @property
    def octave(self) -> int:
        """floor(log2(scale)), at least 0."""
        return max(0, math.floor(self.scale).bit_length() - 1)

    def reach(self, bits: int) -> int:
        """About where the mass beyond is 2^-bits."""
        return math.ceil(float(self.scale) * math.log(2) * bits)

    def weight(self, k: int) -> arb:
        """exp(-|k| / scale)."""
        return arb_ball(-abs(k) / self.scale).exp()


def _read_scale(name: str, value: object) -> Fraction:
    """The scale of a law, exact and in range."""
    if isinstance(value, bool) or not isinstance(value, (int, Fraction)):
        raise InvalidInput(f"{name} must be an int or a Fraction, got {value!r}; write Fraction('0.5') for a decimal")
    if not LEAST_SCALE <= value <= GREATEST_SCALE:
        raise InvalidInput(f"{name} must be from 2^-10 to 2^55, got {value}; rescale the lattice")
    return Fraction(index(value.numerator), index(value.denominator))  # plain, whatever class it is of


def _erfc(x: Fraction) -> arb:
    """erfc(x / sqrt 2) = 2 P(N > x)."""
    from flint import ctx  # noqa: PLC0415

    return (arb_ball(x) / _root_of_two(ctx.prec)).erfc()


@lru_cache(maxsize=64)
def _root_of_two(precision: int) -> arb:
    """sqrt 2 at the current precision, which is given."""
    return arb_ball(Fraction(2)).sqrt()


@lru_cache(maxsize=64, typed=True)
def _summed_variance(law: NoiseLaw) -> float:
    """The variance as a sum over the integers."""
    weights = [float(law.weight(k)) for k in range(law.reach(160) + 3)]
    return 2 * math.fsum(w * k * k for k, w in enumerate(weights)) / (2 * math.fsum(weights) - weights[0])
