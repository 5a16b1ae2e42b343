"""What measurements say of the children of every parent, from the finest level up: one pass over what was measured.

In the norm of what is known from its own subtree a node is b with precision M = sum_S w_S P_S: what was measured of
it, and what its children say of their sum. Both are carried up, residual by residual; the leaves' own are read
family by family on the way down, so that no estimate of all leaves is ever held.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sfumato.designs.spine.places import Place
from sfumato.designs.spine.strategy import Spine
from sfumato.designs.spine.tree import Tree
from sfumato.estimate.spine.cells import Cells
from sfumato.operators.base import FloatArray, Numbers

__all__ = ["Measured", "Said", "Told", "parted"]


_CHUNK = 2**22  # numbers of leaves that are added up at once: 32 MB


@dataclass(frozen=True, eq=False, slots=True)
class Said:
    """wanted: (n, cells) estimates of the children of one parent that add up to it; weights: (sets,) of their norm."""

    wanted: FloatArray
    weights: FloatArray


class Told(Protocol):
    """A tree, the cells of its tables, and what is said of the root and of every family."""

    @property
    def places(self) -> Place: ...

    @property
    def tree(self) -> Tree: ...

    @property
    def cells(self) -> Cells: ...

    def root(self) -> Said:
        """Of the root by itself: (1, cells)."""
        ...

    def family(self, level: int, parent: int, counts: FloatArray) -> Said:
        """Of the children at a level of one node above, whose counts (cells,) are settled."""
        ...


def _inverse(weights: FloatArray) -> FloatArray:
    """1 / w, and zero for what nothing is known of."""
    return np.divide(1.0, weights, out=np.zeros_like(weights), where=weights > 0)


class Measured:
    """By a `Spine`, in records: `variance` is that of the noise on what was measured."""

    def __init__(self, made: Spine, values: Sequence[Numbers], variance: float, axes: Sequence[int]) -> None:
        """axes: positions in the domain of the attributes whose cells are told apart."""
        self.places = made.places
        self.tree = made.places.tree
        self.cells = Cells(tuple(made.shape[i] for i in axes))
        self._made, self._values, self._variance = made, list(values), variance
        self._axes = [tuple(list(axes).index(i) for i in s) for s in made.sets]
        self._own = self._precisions(list(axes))
        self._climb()

    def _precisions(self, axes: list[int]) -> FloatArray:
        """(levels, sets) what was measured at a level says of every residual of a group; infinite for a known total."""
        out = np.zeros((self.tree.depth + 1, len(self.cells.sets)))
        for j, s in enumerate(self.cells.sets):
            own = self._made.precisions.get(tuple(axes[i] for i in s))
            if own is not None:
                # a residual of the table over s is spread over the cells of the other attributes
                out[:, j] = own * (self.cells.size / math.prod(self.cells.shape[i] for i in s)) / self._variance
        return out

    def _climb(self) -> None:
        tree, depth = self.tree, self.tree.depth
        self.weights: list[FloatArray] = [np.zeros((0, 0))] * (depth + 1)
        self.means: list[FloatArray] = [np.zeros((0, 0))] * (depth + 1)
        self.weights[depth] = np.repeat(self._own[depth][None], len(tree.counts[depth]), axis=0)
        for level in range(depth - 1, -1, -1):
            below = self.weights[level + 1]
            with np.errstate(divide="ignore"):
                joint = 1.0 / tree.sums(level + 1, 1.0 / below)
            self.weights[level] = self._own[level] + joint
            finite = np.where(np.isfinite(self.weights[level]), self.weights[level], 0.0)
            found = self._data(level, 0, len(joint)) + self.cells.weigh(joint, self._sums(level))
            self.means[level] = self.cells.weigh(_inverse(finite), found)

    def _sums(self, level: int) -> FloatArray:
        """(nodes of a level, cells) what the children by themselves say of their sum."""
        tree = self.tree
        if level + 1 < tree.depth:
            return tree.sums(level + 1, self.means[level + 1])
        starts = np.append(tree.starts[level], len(tree.parents[level]))
        out = np.zeros((len(starts) - 1, self.cells.size))
        step = max(1, _CHUNK // self.cells.size)
        first = 0
        while first < len(out):
            # as many families as there is room for
            last = max(int(np.searchsorted(starts, starts[first] + step, side="right")) - 1, first + 1)
            rows = self._data(level + 1, int(starts[first]), int(starts[last]))
            out[first:last] = np.add.reduceat(rows, starts[first:last] - starts[first], axis=0)
            first = last
        return self.cells.weigh(_inverse(self._own[tree.depth][None]), out)

    def _data(self, level: int, first: int, last: int) -> FloatArray:
        """(nodes, cells) precision times value of what was measured of the nodes [first, last) of a level."""
        nodes = self._made.places.order[level][first:last]
        out = np.zeros((last - first, *self.cells.shape))
        for at, axes, m, values in zip(self._made.at, self._axes, self._made.multiples, self._values, strict=True):
            if at != level:
                continue
            order = sorted(range(len(axes)), key=lambda i: axes[i])
            sizes = [self.cells.shape[i] for i in axes]
            table = np.asarray(values).reshape(-1, *sizes)[nodes].astype(np.float64)
            if self._made.residual:
                table *= math.prod(sizes)
                for axis in range(1, table.ndim):
                    table -= table.mean(axis=axis, keepdims=True)
            table = table.transpose(0, *(1 + i for i in order))
            table *= m / self._variance
            out += table.reshape(-1, *(n if i in axes else 1 for i, n in enumerate(self.cells.shape)))
        return out.reshape(last - first, self.cells.size)

    # -- the way down ------------------------------------------------------------------------------------------

    def root(self) -> Said:
        weights = self.weights[0][0]
        # a known total is kept to by itself
        return Said(self.means[0], np.where(np.isfinite(weights), weights, 0.0))

    def family(self, level: int, parent: int, counts: FloatArray) -> Said:
        first, last = self.tree.run(level, parent)
        weights, known = self.weights[level][first:last], self.weights[level][first] > 0
        if level == self.tree.depth:
            means = self.cells.weigh(_inverse(self._own[level][None]), self._data(level, first, last))
        else:
            means = self.means[level][first:last]
        spread = _inverse(weights)
        total = spread.sum(axis=0)
        share = np.divide(spread, total, out=np.zeros_like(spread), where=total > 0)
        wanted = means + self.cells.weigh(share, np.repeat((counts - means.sum(axis=0))[None], last - first, axis=0))
        return Said(parted(self.cells, wanted, counts, known), (last - first) * _inverse(total))


def parted(cells: Cells, wanted: FloatArray, counts: FloatArray, known: NDArray[np.bool_]) -> FloatArray:
    """(n, cells) with the residuals of which nothing is known: the parent's, by the children's totals."""
    if known[cells.contrasts > 0].all():
        return wanted
    rest = cells.project(~known, counts[None])
    held = np.maximum(wanted.sum(axis=1), 0.0) if known[0] else np.ones(len(wanted))
    total = float(held.sum())
    return wanted + (held / total if total > 0 else np.full(len(held), 1 / len(held)))[:, None] * rest
