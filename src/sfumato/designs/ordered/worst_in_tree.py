"""A proved bound on the largest error over all ranges that a tree of block sums answers by least squares.

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
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from sfumato.operators.base import FloatArray

__all__ = ["TreeLevel", "largest_in_tree"]

_CLOSE = 1.001  # a thousandth above what was found: the bound is said as such
_BINS = (64, 256, 1_024)  # each takes sixteen times as long as the one before, a second at the most
_LISTED = 64  # children of a node up to which every number of them between two is tried; beyond, any sum between
_ROUNDING = 1 + 1e-9  # relative, of sums of few products on every level


class TreeLevel(Protocol):
    """What is read of a level of a tree: u and s of its nodes."""

    @property
    def variance(self) -> FloatArray: ...

    @property
    def below(self) -> FloatArray: ...


@dataclass(frozen=True, slots=True)
class _Ends:
    """Of one child the bins of where a range may end in it: the least share, and the largest l + share^2 u."""

    least: FloatArray
    most: FloatArray

    @classmethod
    def of(cls, shares: FloatArray, spread: FloatArray, variance: float, bins: int) -> _Ends:
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

    def suffixes(self, node: int, variance: float, bins: int) -> _Ends:
        """Where ranges may begin in a node that ends before they do."""
        inside = slice(node * self.width, (node + 1) * self.width)
        return _Ends.of(1 - self.shares[inside], self.spread[inside], variance, bins)

    def prefixes(self, node: int, count: int, variance: float, bins: int) -> _Ends:
        """Where ranges of the first `count` cells may end in a node that begins after they do."""
        end = (node + 1) * self.width
        inside = slice(node * self.width + 1, min(end, count + 1, len(self.shares)))
        whole = count >= min(end, len(self.shares))
        shares, spread = (
            np.append(a[inside], np.full(int(whole), w)) for a, w in ((self.shares, 1.0), (self.spread, 0.0))
        )
        return _Ends.of(shares, spread, variance, bins)

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
    final = _final(levels, branching, total_known=total_known)
    proved = np.inf
    for bins in _BINS:
        proved = max([float(final[0][:count].max()), *_of_levels(levels, branching, count, final, bins)])
        if proved <= found * _CLOSE:
            break
    return max(found, proved * _ROUNDING)


def _final(levels: Sequence[TreeLevel], branching: int, *, total_known: bool) -> list[FloatArray]:
    """V of every node, by level upwards."""
    out = [np.zeros(1) if total_known else levels[-1].variance]
    for child, level in zip(levels[-2::-1], levels[:0:-1], strict=True):
        parent = np.arange(len(child.variance)) // branching
        share = child.variance / level.below[parent]
        out.append(child.variance - child.variance * share + share**2 * out[-1][parent])
    return out[::-1]


def _of_levels(
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
                yield _largest(left, right, _between(first, branching - 1), first, first, slope)
            slope = max(float(below[top] - variance[top]), 0.0) / float(below[top]) ** 2
            if few > 1:
                yield _largest(left, right, _between(first, few - 1), first, first, slope)
            if few:
                right = at.prefixes(last, count, float(u[last]), bins)
                yield _largest(left, right, _between(first, few), first, float(u[last]), slope)
        at = at.above(child, level, branching)


def _between(u: float, most: int) -> FloatArray | float:
    """The sums of u of 0 to `most` - 1 children between two; their largest where these are too many to be tried."""
    return u * np.arange(most, dtype=np.float64) if most <= _LISTED else u * (most - 1)


def _largest(left: _Ends, right: _Ends, between: FloatArray | float, first: float, last: float, slope: float) -> float:
    """The largest of the module's bound over two bins and what lies between; slope is (s - V) / s^2."""
    shared = first * left.least[:, None] + last * right.least
    top = left.most[:, None] + right.most
    if isinstance(between, np.ndarray):
        return max(float((top + middle - slope * (shared + middle) ** 2).max()) for middle in between.tolist())
    # any sum between: the best is where the slope is one
    best = np.clip(0.5 / max(slope, 1e-300) - shared, 0.0, between)
    return float((top + best - slope * (shared + best) ** 2).max())
