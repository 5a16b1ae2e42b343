"""Least squares on a tree of block sums in two passes over its nodes, at any size. [HRMS10]

Let z_v be the best estimate of node v from the measurements below it, in units of the noise, with variance u_v.
A leaf has u = 1. The children of a node sum to S with variance s = sum u_c; a node that is measured itself as y
has z = (s y + S) / (s + 1) and u = s / (s + 1), any other has z = S and u = s. Downwards, the final estimate of
a child is x_c = z_c + (u_c / s) (x_parent - S): the residual of the parent is shared by variance.

A query with weight a_c on node c puts a_v = sum a_c u_c / s on its parent, and what is left, a_c - a_v, on z_c
itself. So the entries of R follow downwards: z_v has the coefficient k_v = a_v - a_p + k_p g_p with g = 1 / (s + 1)
where the parent is measured, else 1, and the measurement y_v has k_v s / (s + 1). Below a node of which the query
takes all or nothing no such differences are left, so only the nodes at a range's two ends are walked.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass

import numpy as np

from sfumato.designs.ordered.worst_in_tree import largest_in_tree
from sfumato.designs.ranges import Ordered
from sfumato.ground.codec import storable
from sfumato.operators import LinearOperator, Tree
from sfumato.operators.base import FloatArray, Numbers

__all__ = ["TreeSums"]

_ROWS = 2**16  # ranges at a time: 512 kB a level stay in the cache of a core


@dataclass(frozen=True, slots=True)
class _Level:
    """One level over `cut` of the nodes below: which nodes are measured, s, u, g and the share of a measurement."""

    cut: Numbers
    measured: Numbers
    below: FloatArray
    variance: FloatArray
    gain: FloatArray
    own: FloatArray


@storable
@dataclass(frozen=True, eq=False)
class TreeSums(Ordered):
    """A tree of block sums, reconstructed by least squares in time proportional to its nodes."""

    tree: Tree

    @property
    def measured(self) -> LinearOperator:
        return self.tree

    @functools.cached_property
    def _levels(self) -> list[_Level]:
        """Upwards from the leaves to the one node over all cells, measured or not."""
        n, b = self.tree.n, self.tree.branching
        kept = {width: starts // width for width, starts in self.tree.levels()}
        ones = np.ones(n)
        out = [_Level(np.arange(n), np.ones(n, dtype=bool), np.full(n, np.inf), ones, 0 * ones, ones)]
        width = 1
        while len(out[-1].variance) > 1:
            width *= b
            cut = np.arange(0, len(out[-1].variance), b)
            below = np.add.reduceat(out[-1].variance, cut)
            measured = np.zeros(len(cut), dtype=bool)
            measured[kept.get(width, np.zeros(0, dtype=np.int64))] = True
            gain = np.where(measured, 1 / (below + 1), 1.0)
            out.append(_Level(cut, measured, below, below * gain, gain, np.where(measured, 1 - gain, 0.0)))
        return out

    def _values(self, values: FloatArray) -> list[FloatArray]:
        """(l, c) measured values by level upwards, 0 for nodes that are not measured."""
        out: list[FloatArray] = []
        end = len(values)
        for level in self._levels:
            own = np.zeros((len(level.measured), values.shape[1]))
            start = end - int(level.measured.sum())
            own[level.measured] = values[start:end]
            out.append(own)
            end = start
        return out

    def cells(self, values: FloatArray) -> FloatArray:
        levels, given = self._levels, self._values(values)
        best, sums = [given[0]], [given[0]]
        for level, own in zip(levels[1:], given[1:], strict=True):
            total = np.add.reduceat(best[-1], level.cut, axis=0)
            sums.append(total)
            best.append(level.own[:, None] * own + level.gain[:, None] * total)
        final = best[-1]
        for i in range(len(levels) - 1, 0, -1):
            residual = (final - sums[i]) / levels[i].below[:, None]
            parent = np.arange(len(levels[i - 1].variance)) // self.tree.branching
            final = best[i - 1] + levels[i - 1].variance[:, None] * residual[parent]
        return final

    def spread(self, rows: FloatArray) -> FloatArray:
        levels = self._levels
        weights = [rows]
        for below, level in itertools.pairwise(levels):
            weights.append(np.add.reduceat(weights[-1] * below.variance, level.cut, axis=1) / level.below)
        held = weights[-1]
        out = [(held * levels[-1].own)[:, levels[-1].measured]]
        for i in range(len(levels) - 2, -1, -1):
            parent = np.arange(rows.shape[1] if i == 0 else len(levels[i].variance)) // self.tree.branching
            held = weights[i] + (held * levels[i + 1].gain - weights[i + 1])[:, parent]
            out.append((held * levels[i].own)[:, levels[i].measured])
        return np.concatenate(out, axis=1)

    def cells_of_rows(self, rows: FloatArray) -> FloatArray:
        return self.cells(self.spread(rows).T).T

    def spread_ones(self) -> FloatArray:
        return self.cells_of_rows(np.ones((1, self.tree.n)))[0]

    def prefix_powers(self, count: int, power: int) -> FloatArray:
        return self.span_powers(np.zeros(count, dtype=np.int64), np.arange(1, count + 1), power)

    def range_bound(self, known: FloatArray, found: float) -> float:
        return largest_in_tree(self._levels, self.tree.branching, len(known) - 1, found, total_known=bool(known.any()))

    def span_powers(self, first: Numbers, last: Numbers, power: int) -> FloatArray:
        sums = self._sums(power)
        chunks = range(0, len(first), _ROWS)
        parts = [self._walk(first[a : a + _ROWS], last[a : a + _ROWS] - 1, sums, power) for a in chunks]
        return np.concatenate(parts) if parts else np.zeros(0)

    def _sums(self, power: int) -> list[tuple[FloatArray, FloatArray]]:
        """Per level sums from the left, one longer than its nodes: of u, and of sum |entry|^power below z_v."""
        out: list[tuple[FloatArray, FloatArray]] = []
        below = np.zeros(0)
        for i, level in enumerate(self._levels):
            inner = np.add.reduceat(below, level.cut) if i else np.zeros(len(level.own))
            below = level.own**power + level.gain**power * inner
            pair = (np.cumsum(level.variance), np.cumsum(below))
            out.append((np.append(0.0, pair[0]), np.append(0.0, pair[1])))
        return out

    def _walk(self, left: Numbers, right: Numbers, sums: list[tuple[FloatArray, FloatArray]], power: int) -> FloatArray:
        """The same for ranges from cell `left` to cell `right`, along the nodes above these two."""
        levels, b = self._levels, self.tree.branching
        ends = [(left, right)]
        weights = [(np.ones(len(left)), np.ones(len(left)))]
        for i in range(1, len(levels)):
            (low, high), (a, c) = ends[-1], weights[-1]
            u, total = levels[i - 1].variance, sums[i - 1][0]
            up, over = low // b, high // b
            one = up == over
            stop = np.where(one, high, np.minimum((up + 1) * b, len(u)))
            start = np.where(one, low + 1, over * b)
            # what both ends hold where they are under one parent, else each by itself
            mine = a * u[low] + total[np.maximum(stop, low + 1)] - total[low + 1]
            mine += np.where(one & (low < high), c * u[high], 0.0)
            theirs = np.where(one, mine, c * u[high] + total[np.maximum(high, start)] - total[start])
            ends.append((up, over))
            weights.append((mine / levels[i].below[up], theirs / levels[i].below[over]))
        held = weights[-1]
        top = levels[-1]
        out = np.abs(held[0] * top.own[0]) ** power
        for i in range(len(levels) - 2, -1, -1):
            out += self._step(i, ends, weights, held, sums[i][1], power)
            held = self._down(i, ends, weights, held)
            low, high = ends[i]
            out += np.abs(held[0] * levels[i].own[low]) ** power
            out += np.where(low < high, np.abs(held[1] * levels[i].own[high]) ** power, 0.0)
        return out

    def _down(
        self,
        i: int,
        ends: list[tuple[Numbers, Numbers]],
        weights: list[tuple[FloatArray, FloatArray]],
        held: tuple[FloatArray, FloatArray],
    ) -> tuple[FloatArray, FloatArray]:
        """Coefficients of the two end nodes of level i from those of level i + 1."""
        gain, above = self._levels[i + 1].gain, ends[i + 1]
        found = [weights[i][e] - weights[i + 1][e] + held[e] * gain[above[e]] for e in (0, 1)]
        return found[0], found[1]

    def _step(
        self,
        i: int,
        ends: list[tuple[Numbers, Numbers]],
        weights: list[tuple[FloatArray, FloatArray]],
        held: tuple[FloatArray, FloatArray],
        total: FloatArray,
        power: int,
    ) -> FloatArray:
        """What the children of the two end nodes of level i + 1 add that hold all or nothing of the range."""
        gain, b = self._levels[i + 1].gain, self.tree.branching
        (low, high), (up, over) = ends[i], ends[i + 1]
        one = up == over
        base = [held[e] * gain[(up, over)[e]] - weights[i + 1][e] for e in (0, 1)]
        none, every = (np.abs(base[0]) ** power, np.abs(base[0] + 1) ** power)
        end = np.minimum((up + 1) * b, len(total) - 1)
        stop = np.maximum(np.where(one, high, end), low + 1)
        out = none * (total[low] - total[up * b]) + every * (total[stop] - total[low + 1])
        out += np.where(one, none * (total[end] - total[np.maximum(high, low) + 1]), 0.0)
        none, every = (np.abs(base[1]) ** power, np.abs(base[1] + 1) ** power)
        final = np.minimum((over + 1) * b, len(total) - 1)
        theirs = every * (total[high] - total[np.minimum(over * b, high)]) + none * (total[final] - total[high + 1])
        return out + np.where(one, 0.0, theirs)
