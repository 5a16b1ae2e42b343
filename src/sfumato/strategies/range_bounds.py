"""Ranges of an ordered attribute: their errors all together, and a proved bound on the largest.

The errors of all ranges are summed without listing them. The bound comes from the covariances of prefixes that lie some
length apart. With r the response, s2_i the noise of row i and v_t the variance of prefix t, the answers of the prefixes
s and s + L have the covariance C(s, L) = sum_k r_k r_(L + k) s2_(s - 1 - k), for all s one convolution. Where r is not
negative, C with r_(L + k) replaced by m_(b + k), m_j = min(r_0, ..., r_j), is at most C(s, L) for every L <= b. So

    v_s + max v_(s + L) - 2 C'(s, b)

bounds the variances of all ranges from s on of lengths a < L <= b; ranges that would end beyond the last prefix n
take their covariance with that prefix. Intervals of lengths are halved where their bound is highest.

A proved bound on the largest error over all ranges that a tree of block sums answers by least squares.

Let e_v be the error of the final estimate of node v, of variance V_v, and u_c, s as in `trees`. A child's is

    e_c = eta_c + (u_c / s) e_v,    Cov(eta) = diag(u) - u uᵀ / s,    eta independent of e_v,

and what its own children add is independent of both. So the prefix of a node up to a boundary has the error p e_v + xi
with xi independent of e_v and of all outside, of variance l: with U the sum of u of the children before child c, in
which the boundary lies at (p', l'),

    x = U + p' u_c,    p = x / s,    l = l' + U + p'^2 u_c - x^2 / s;

its suffix has (1 - p, l). A range has its ends in two children a and b of one node: at shares p and q of theirs, with
U between them, its variance is

    (l_a + p^2 u_a) + (l_b + q^2 u_b) + U - (s - V) ((p u_a + U + q u_b) / s)^2.

Nodes of a level are alike but for the last, and V is bounded by its largest; shares are put into bins, of each of which
the largest term in brackets and the least share count. That is a bound for all ranges, the nearer the finer the bins.

A proved bound on the largest error over all ranges, where the covariance of two prefixes is a sum of exponentials.

With v the variances of prefixes and cov(s, t) = P(s) + sum_j C_j(t) b_j^(t - s) D_j(s) for s <= t, C and D at least 0,
all ranges that begin in one block of prefixes and end in another, at most m apart, have variances of at most

    max v_t + max (v_s - 2 P(s)) - 2 sum_j min C_j(t) b_j^m min D_j(s).

Blocks are halved, both at once, where that is above what was found.
"""

from __future__ import annotations

import heapq
import itertools
import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from sfumato.errors import NotAnswerable
from sfumato.operators import AllRange, Identity, LinearOperator, Padded, Prefix, Total, Window
from sfumato.operators.base import DENSE_LIMIT, FloatArray, Numbers
from sfumato.operators.structured import Contiguous, causal_convolution
from sfumato.strategies.factors import StrategyFactor

_CLOSE = 1.02  # two percent above what was found: the bound is said as such
_SPLITS = 24  # each splits the interval of ends of largest bound; what stays is a bound, a looser one
_LONG = 2**21  # cells: beyond, half as many splits, each of them convolutions of that length
_ROUNDING = 1 + 1e-9  # relative, added to a bound made by FFT: those round far less


@dataclass(frozen=True, slots=True)
class _PrefixVariances:
    """response and noise (n,), variances and known (n + 1,) from the empty prefix on; `last` covariances with n."""

    response: FloatArray
    least: FloatArray
    noise: FloatArray
    variances: FloatArray
    known: FloatArray
    last: FloatArray

    def bound(self, a: int, b: int) -> float:
        """For all ranges of more than a and at most b cells."""
        n = len(self.response)
        covariance = self.last.copy()
        inside = n - b
        if inside > 0:
            covariance[1 : inside + 1] = causal_convolution(
                self.response[:inside] * self.least[b : b + inside], self.noise[:inside]
            )
        starts = n - a
        tops = _sliding_maximum(self.variances[a + 1 :], b - a)
        known = self.known[a + 1 :] - self.known[:starts]
        found = self.variances[:starts] + tops - 2 * covariance[:starts] - known**2
        return float(found.max())


def largest_bound(
    response: FloatArray, noise: FloatArray, variances: FloatArray, known: FloatArray, found: float
) -> float:
    """An upper bound on the largest variance of a range of the first n cells, at least `found`.

    response and noise (n,); variances (n + 1,) of the prefixes from the empty one on; of each, known (n + 1,)
    times a unit is known: ranges err by the squared difference less. The bound is within two percent of `found`
    unless too many splits were needed; infinite where the response has negative entries.
    """
    n = len(response)
    if response.min() < 0:
        return math.inf
    steady = known if (np.diff(known) >= 0).all() else np.zeros(n + 1)
    least = np.minimum.accumulate(response)
    last = np.append(0.0, causal_convolution(response, least[::-1] * noise))
    prefixes = _PrefixVariances(response, least, noise, variances, steady, last)
    intervals = [(-prefixes.bound(0, n), 0, n)]
    for _ in range(_SPLITS if n <= _LONG else _SPLITS // 2):
        top, a, b = intervals[0]
        if -top <= found * _CLOSE or b == a + 1:
            break
        middle = min(b - 1, max(a + 1, round(math.sqrt((a + 1) * b))))
        heapq.heapreplace(intervals, (-prefixes.bound(a, middle), a, middle))
        heapq.heappush(intervals, (-prefixes.bound(middle, b), middle, b))
    return max(found, -intervals[0][0] * _ROUNDING)


def _sliding_maximum(values: FloatArray, width: int) -> FloatArray:
    """The largest of values i to i + width - 1, as far as there are, for every i."""
    n = len(values)
    blocks = np.full(-(-(n + width) // width) * width, -np.inf)
    blocks[:n] = values
    table = blocks.reshape(-1, width)
    before = np.maximum.accumulate(table, axis=1).reshape(-1)
    after = np.maximum.accumulate(table[:, ::-1], axis=1)[:, ::-1].reshape(-1)
    return np.maximum(after[:n], before[width - 1 : width - 1 + n])


_CLOSE_PAIRS = 1.005  # half a percent above what was found: the bound is said as such
_BLOCKS = 64  # of prefixes to begin with: two thousand pairs
_FINEST = 2**17  # blocks at most, as there are d minima of each: what stays is a bound, a looser one
_PAIRS = 2**20  # at a time: some MB for each buffer
_MOST = 2**22  # pairs whose halves are looked at: some seconds; beyond, their own bounds stay
_ROUNDING_PAIRS = 1 + 1e-9  # relative, of sums of few products


def largest_pair(
    variances: FloatArray,
    steady: FloatArray,
    ahead: FloatArray,
    behind: FloatArray,
    zeros: FloatArray,
    known: FloatArray,
    found: float,
) -> float:
    """An upper bound on the largest variance of a range of the first n cells, at least `found`.

    variances and steady, P, (n,); ahead and behind, C and D, (d, n); zeros (d,) the distances of b from 1; of each
    prefix known (n + 1,) times a unit is known, from the empty one on: ranges err by the squared difference less.
    """
    n = len(variances)
    top = 4.0 * float(variances.max())
    if float(ahead.min()) < 0 or float(behind.min()) < 0:
        return top
    size = 1 << max(0, n.bit_length() - _FINEST.bit_length() + 1)
    rates = np.log1p(-zeros)
    levels = [_PrefixBlocks.of(variances, steady, ahead, behind, known, size)]
    while len(levels[-1].high) > _BLOCKS:
        levels.append(levels[-1].halved())
    level = levels.pop()
    first, last = (p.astype(np.int64) for p in np.triu_indices(len(level.high)))
    proved = found
    while True:
        bounds = np.concatenate(
            [level.bounds(first[a : a + _PAIRS], last[a : a + _PAIRS], rates) for a in range(0, len(first), _PAIRS)]
        )
        open_ = bounds > found * _CLOSE_PAIRS
        proved = max(proved, float(bounds[~open_].max(initial=0.0)))
        if not open_.any():
            return min(top, proved * _ROUNDING_PAIRS)
        if not levels or int(open_.sum()) > _MOST:
            return min(top, max(proved, float(bounds.max())) * _ROUNDING_PAIRS)
        level = levels.pop()
        first, last = _halve_block_pairs(first[open_], last[open_], len(level.high))


def _halve_block_pairs(first: Numbers, last: Numbers, count: int) -> tuple[Numbers, Numbers]:
    """The pairs of halves of pairs of blocks, each once."""
    low = (2 * first[:, None] + np.array([0, 0, 1, 1])).reshape(-1)
    high = (2 * last[:, None] + np.array([0, 1, 0, 1])).reshape(-1)
    kept = (low <= high) & (high < count)
    return low[kept], high[kept]


@dataclass(frozen=True, slots=True)
class _PrefixBlocks:
    """Blocks of `size` prefixes, the empty one first: extremes in a block of what bounds are made of."""

    size: int
    high: FloatArray  # of v
    low: FloatArray  # the largest of v - 2 P
    ahead: FloatArray  # the least C, (d, blocks)
    behind: FloatArray  # the least D
    least: FloatArray  # of what is known
    most: FloatArray

    @classmethod
    def of(
        cls,
        variances: FloatArray,
        steady: FloatArray,
        ahead: FloatArray,
        behind: FloatArray,
        known: FloatArray,
        size: int,
    ) -> _PrefixBlocks:
        starts = np.arange(0, len(known), size)
        least = [np.minimum.reduceat(np.append(0.0, row), starts) for part in (ahead, behind) for row in part]
        return cls(
            size,
            np.maximum.reduceat(np.append(0.0, variances), starts),
            np.maximum.reduceat(np.append(0.0, variances - 2 * steady), starts),
            np.stack(least[: len(ahead)]),
            np.stack(least[len(ahead) :]),
            np.minimum.reduceat(known, starts),
            np.maximum.reduceat(known, starts),
        )

    def halved(self) -> _PrefixBlocks:
        """Half as many blocks."""
        starts = np.arange(0, len(self.high), 2)
        return _PrefixBlocks(
            2 * self.size,
            np.maximum.reduceat(self.high, starts),
            np.maximum.reduceat(self.low, starts),
            np.minimum.reduceat(self.ahead, starts, axis=1),
            np.minimum.reduceat(self.behind, starts, axis=1),
            np.minimum.reduceat(self.least, starts),
            np.maximum.reduceat(self.most, starts),
        )

    def bounds(self, first: Numbers, last: Numbers, rates: FloatArray) -> FloatArray:
        """Of all ranges from a prefix in block `first` to one in block `last`."""
        out = self.high[last] + self.low[first]
        longest = (last - first + 1) * self.size - 1
        for ahead, behind, rate in zip(self.ahead, self.behind, rates.tolist(), strict=True):
            out -= 2 * ahead[last] * behind[first] * np.exp(longest * rate)
        apart = np.maximum(self.least[last] - self.most[first], self.least[first] - self.most[last])
        return np.asarray(out - np.maximum(apart, 0.0) ** 2)


_CLOSE_WORST_IN_TREE = 1.001  # a thousandth above what was found: the bound is said as such
_BINS = (64, 256, 1_024)  # each takes sixteen times as long as the one before, a second at the most
_LISTED = 64  # children of a node up to which every number of them between two is tried; beyond, any sum between
_ROUNDING_WORST_IN_TREE = 1 + 1e-9  # relative, of sums of few products on every level


class TreeLevel(Protocol):
    """What is read of a level of a tree: u and s of its nodes."""

    @property
    def variance(self) -> FloatArray: ...

    @property
    def below(self) -> FloatArray: ...


@dataclass(frozen=True, slots=True)
class _RangeEnds:
    """Of one child the bins of where a range may end in it: the least share, and the largest l + share^2 u."""

    least: FloatArray
    most: FloatArray

    @classmethod
    def of(cls, shares: FloatArray, spread: FloatArray, variance: float, bins: int) -> _RangeEnds:
        place = np.minimum((shares * bins).astype(np.int64), bins - 1)
        least, most = np.full(bins, np.inf), np.full(bins, -np.inf)
        np.minimum.at(least, place, shares)
        np.maximum.at(most, place, spread + shares**2 * variance)
        kept = most > -np.inf
        return cls(least[kept], most[kept])


@dataclass(frozen=True, slots=True)
class _Boundaries:
    """Shares p and variances l of the boundaries before every cell, each in its own node of `width` cells."""

    width: int
    shares: FloatArray
    spread: FloatArray

    def suffixes(self, node: int, variance: float, bins: int) -> _RangeEnds:
        """Where ranges may begin in a node that ends before they do."""
        inside = slice(node * self.width, (node + 1) * self.width)
        return _RangeEnds.of(1 - self.shares[inside], self.spread[inside], variance, bins)

    def prefixes(self, node: int, count: int, variance: float, bins: int) -> _RangeEnds:
        """Where ranges of the first `count` cells may end in a node that begins after they do."""
        end = (node + 1) * self.width
        inside = slice(node * self.width + 1, min(end, count + 1, len(self.shares)))
        whole = count >= min(end, len(self.shares))
        shares, spread = (
            np.append(a[inside], np.full(int(whole), w)) for a, w in ((self.shares, 1.0), (self.spread, 0.0))
        )
        return _RangeEnds.of(shares, spread, variance, bins)

    def above(self, child: TreeLevel, level: TreeLevel, branching: int) -> _Boundaries:
        """The same in the parents of the nodes."""
        u = child.variance
        node = np.arange(len(self.shares)) // self.width
        parent = node // branching
        sums = np.append(0.0, np.cumsum(u))
        before = sums[node] - sums[parent * branching]
        x = before + self.shares * u[node]
        below = level.below[parent]
        spread = self.spread + before + self.shares**2 * u[node] - x**2 / below
        return _Boundaries(self.width * branching, x / below, spread)


def largest_in_tree(
    levels: Sequence[TreeLevel], branching: int, count: int, found: float, *, total_known: bool
) -> float:
    """An upper bound on the largest variance of a range of the first `count` cells, at least `found`.

    It is within a thousandth of what was found where bins suffice. levels: upwards from the leaves to one node over all
    cells; every node but the last of a level has `branching` children. `total_known` says that the total is exact from
    elsewhere.
    """
    final = _final_node_variances(levels, branching, total_known=total_known)
    proved = np.inf
    for bins in _BINS:
        proved = max([float(final[0][:count].max()), *_bounds_by_level(levels, branching, count, final, bins)])
        if proved <= found * _CLOSE_WORST_IN_TREE:
            break
    return max(found, proved * _ROUNDING_WORST_IN_TREE)


def _final_node_variances(levels: Sequence[TreeLevel], branching: int, *, total_known: bool) -> list[FloatArray]:
    """V of every node, by level upwards."""
    out = [np.zeros(1) if total_known else levels[-1].variance]
    for child, level in zip(levels[-2::-1], levels[:0:-1], strict=True):
        parent = np.arange(len(child.variance)) // branching
        share = child.variance / level.below[parent]
        out.append(child.variance - child.variance * share + share**2 * out[-1][parent])
    return out[::-1]


def _bounds_by_level(
    levels: Sequence[TreeLevel], branching: int, count: int, final: Sequence[FloatArray], bins: int
) -> Iterator[float]:
    """For every level but the leaves a bound of the ranges whose ends lie in two children of one of its nodes."""
    cells = len(levels[0].variance)
    at = _Boundaries(1, np.zeros(cells), np.zeros(cells))
    for child, level, variance in zip(levels[:-1], levels[1:], final[1:], strict=True):
        u, below, first = child.variance, level.below, float(child.variance[0])
        # the child and the parent in which the last of the cells lie; all before them are like the first
        last = (count - 1) // at.width
        top = last // branching
        few = last - top * branching  # its children before that
        if last:
            left, right = at.suffixes(0, first, bins), at.prefixes(0, count, first, bins)
            if top:
                slope = max(float(below[0] - variance[:top].max()), 0.0) / float(below[0]) ** 2
                yield _largest_over_bins(left, right, _middle_sums(first, branching - 1), first, first, slope)
            slope = max(float(below[top] - variance[top]), 0.0) / float(below[top]) ** 2
            if few > 1:
                yield _largest_over_bins(left, right, _middle_sums(first, few - 1), first, first, slope)
            if few:
                right = at.prefixes(last, count, float(u[last]), bins)
                yield _largest_over_bins(left, right, _middle_sums(first, few), first, float(u[last]), slope)
        at = at.above(child, level, branching)


def _middle_sums(u: float, most: int) -> FloatArray | float:
    """The sums of u of 0 to `most` - 1 children between two; their largest where these are too many to be tried."""
    return u * np.arange(most, dtype=np.float64) if most <= _LISTED else u * (most - 1)


def _largest_over_bins(
    left: _RangeEnds, right: _RangeEnds, between: FloatArray | float, first: float, last: float, slope: float
) -> float:
    """The largest of the module's bound over two bins and what lies between; slope is (s - V) / s^2."""
    shared = first * left.least[:, None] + last * right.least
    top = left.most[:, None] + right.most
    if isinstance(between, np.ndarray):
        return max(float((top + middle - slope * (shared + middle) ** 2).max()) for middle in between.tolist())
    # any sum between: the best is where the slope is one
    best = np.clip(0.5 / max(slope, 1e-300) - shared, 0.0, between)
    return float((top + best - slope * (shared + best) ** 2).max())


_GRID = 16  # a start for steps that climb; all ranges among some thirty ends are five hundred


def as_contiguous_ranges(operator: LinearOperator) -> Contiguous | None:
    """The ranges of cells that the rows are, where they are; cells that no row counts may follow."""
    inner = operator.operator if isinstance(operator, Padded) else operator
    if isinstance(inner, (Identity, Total)):
        return Window(inner.n, 1 if isinstance(inner, Identity) else inner.n)
    return inner if isinstance(inner, Contiguous) else None


class OrderedStrategy(StrategyFactor):
    """A strategy over an ordered attribute that answers every query about it."""

    @abstractmethod
    def span_powers(self, first: Numbers, last: Numbers, power: int) -> FloatArray:
        """Sums of |entry|^power over the rows of R for the ranges of cells first[i] to last[i] - 1."""

    @abstractmethod
    def prefix_powers(self, count: int, power: int) -> FloatArray:
        """(count,) the same for the first `count` prefixes."""

    def check(self, query: LinearOperator, what: str) -> None:
        return None

    def row_powers(self, query: LinearOperator, power: int) -> FloatArray:
        inner = as_contiguous_ranges(query)
        if isinstance(inner, Prefix):
            return self.prefix_powers(inner.n, power)
        if inner is not None and 2 * inner.shape[0] <= DENSE_LIMIT:
            return self.span_powers(*inner.spans(), power)
        out = np.empty(query.shape[0])
        for a, b in query.row_chunks():
            out[a:b] = self._row_sums(query.rows(a, b), power)
        return out

    def _row_sums(self, rows: FloatArray, power: int) -> FloatArray:
        return (self.spread(rows) ** power).sum(axis=1)

    def range_errors(self, query: LinearOperator, ones: FloatArray | None = None) -> tuple[float, float]:
        """(mean, largest) sum of squares of the rows of R over all ranges of the first n cells.

        With P_t the answer to prefix t and v_t its variance, the variances of P_t - P_s over all pairs t > s of
        n + 1 prefixes, the empty one among them, sum to (n + 1) sum_t v_t - Var(sum_t P_t): exact. Of the largest
        see `range_bound`.
        `ones` (AᵀA)^-1 1 says that the total is known: it takes the square of what each row has of it.
        """
        inner = as_contiguous_ranges(query)
        if not isinstance(inner, AllRange):
            raise NotAnswerable("only all ranges of an attribute are summed up without listing them")
        n, cells = inner.n, self.measured.shape[1]
        row = np.maximum(n - np.arange(cells), 0).astype(np.float64)
        variances, whole = self.prefix_powers(n, 2), float(self._row_sums(row[None], 2)[0])
        known = np.zeros(cells + 1)
        if ones is not None:
            known[1:] = np.cumsum(ones) / np.sqrt(ones.sum())
            variances = variances - known[1 : n + 1] ** 2
            whole -= float(known[1 : n + 1].sum()) ** 2

        def errors(first: Numbers, last: Numbers) -> FloatArray:
            return self.span_powers(first, last, 2) - (known[last] - known[first]) ** 2

        mean = ((n + 1) * float(variances.sum()) - whole) / (n * (n + 1) / 2)
        return mean, self.range_bound(known[: n + 1], _largest_range_error(n, np.append(0.0, variances), errors))

    @abstractmethod
    def range_bound(self, known: FloatArray, found: float) -> float:
        """The largest error of a range of the first n cells, proved from above, at least `found`.

        `found` is the largest that a search over both ends came upon, of which it may miss a few percent;
        `known` (n + 1,) is as in `range_errors`, for the prefixes from the empty one on.
        """


def _largest_range_error(n: int, variances: FloatArray, errors: Callable[[Numbers, Numbers], FloatArray]) -> float:
    """The largest error over ranges, from the prefixes' variances (n + 1,): all ranges of a few ends, then steps.

    The ends lie closer together at the ends of the domain; with them the worst prefix of every part of it.
    """
    half = np.unique(np.rint(np.geomspace(1, max(1, n // 2), _GRID // 2)).astype(np.int64)) - 1
    cut = np.unique(np.linspace(0, n + 1, _GRID + 1).astype(np.int64))
    worst = np.array([a + int(variances[a:b].argmax()) for a, b in itertools.pairwise(cut.tolist())])
    ends = np.unique(np.concatenate([half, n - half, worst]))
    i, j = np.triu_indices(len(ends), 1)
    first, last = ends[i], ends[j]
    found = errors(first, last)
    best = int(found.argmax())
    value, s, t = float(found[best]), int(first[best]), int(last[best])
    step = max(1, n // 8)
    while True:
        near = [(s + a * step, t + b * step) for a in (-1, 0, 1) for b in (-1, 0, 1) if a or b]
        near = [(a, b) for a, b in near if 0 <= a < b <= n]
        tried = errors(np.array([a for a, _ in near]), np.array([b for _, b in near])) if near else np.zeros(0)
        if len(tried) and tried.max() > value:
            value, (s, t) = float(tried.max()), near[int(tried.argmax())]
        elif step == 1:
            return value
        else:
            step //= 2
