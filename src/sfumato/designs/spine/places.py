"""Factors over the cells of an attribute as what they are on its tree: the groups of a level, and rows over these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sfumato.designs.known import KnownGroups
from sfumato.designs.spine.passes import Passes
from sfumato.designs.spine.tree import IntArray, Tree
from sfumato.operators import Compose, Grouping, Identity, LinearOperator, Stack, Total
from sfumato.operators.base import DENSE_LIMIT, FloatArray

__all__ = ["Place"]

_TOGETHER = DENSE_LIMIT // 16  # numbers of rows over the tree that are passed through it at once: 16 MB

Factor = LinearOperator | None
"""Over the cells of the attribute with levels; None for all of them together."""


@dataclass(frozen=True, eq=False, slots=True)
class _Read:
    """A level, and rows over the groups there: all of them where `factor` is None; else the factor's, which stands over
    groups, or over cells of which `first` has one for every group."""

    level: int
    factor: Factor = None
    first: IntArray | None = None

    def rows(self, start: int, stop: int, groups: int) -> FloatArray:
        """(stop - start, groups)"""
        if self.factor is None:
            return np.eye(stop - start, groups, start)
        found = self.factor.rows(start, stop)
        return found if self.first is None else found[:, self.first]

    def apply(self, values: FloatArray) -> FloatArray:
        """(groups, c) -> (rows, c)"""
        if self.factor is None:
            return values
        if self.first is not None:
            spread = np.zeros((self.factor.shape[1], values.shape[1]))
            spread[self.first] = values
            values = spread
        return np.asarray(self.factor.matvec(values), dtype=np.float64)


@dataclass(frozen=True, eq=False, slots=True)
class Place:
    """order: per level the group that stands at each place of the tree, and whether that is its number (`plain`).

    codes: the group of every cell at every level below the root.
    """

    tree: Tree
    order: tuple[IntArray, ...]
    codes: tuple[IntArray, ...]
    cells: int
    plain: tuple[bool, ...]
    known: dict[int, tuple[Factor, _Read]]

    @classmethod
    def of(cls, codes: list[IntArray], cells: int) -> Place:
        """Raises PlanError for levels that do not lie in each other."""
        tree, order = Tree.of_codes(codes)
        plain = tuple(bool((np.diff(o) > 0).all()) for o in order)
        return cls(tree, tuple(order), tuple(codes), cells, plain, {})

    def sorted(self, level: int, rows: FloatArray) -> FloatArray:
        """Rows by group in the order of the tree."""
        return rows if self.plain[level] else rows[self.order[level]]

    def placed(self, level: int, rows: FloatArray) -> FloatArray:
        """Rows in the order of the tree by group."""
        if self.plain[level]:
            return rows
        out = np.empty_like(rows)
        out[self.order[level]] = rows
        return out

    def totals(self, known: Sequence[KnownGroups]) -> tuple[FloatArray, ...]:
        """The known totals of the groups of every level from the root down to that which has them, (groups, 1) in the
        order of the tree; none where nothing is known."""
        held = [(i, k) for k in known for i, c in enumerate(self.codes, 1) if k.settles(Grouping(c, int(c.max()) + 1))]
        if not held:
            return tuple(np.array([[k.counts.sum()]]) for k in known)
        level, found = max(held, key=lambda pair: pair[0])
        first = np.unique(found.codes, return_index=True)[1]
        sums = np.zeros(len(self.order[level]))
        np.add.at(sums, self.codes[level - 1][first], found.counts)
        out = [self.sorted(level, sums[:, None])]
        for above in range(level, 0, -1):
            out.insert(0, self.tree.sums(above, out[0]))
        return tuple(out)

    # -- reading factors ---------------------------------------------------------------------------------------

    def level_of(self, factor: Factor) -> int:
        """The level that has to be known; one more than there are for what is finer than all."""
        return max(self._read(part).level for part in _parts(factor))

    def _read(self, factor: Factor) -> _Read:
        """The coarsest level whose groups a factor does not tell apart inside, and its rows there."""
        if factor is None or isinstance(factor, Total):
            return _Read(0)
        if id(factor) not in self.known:
            # the factor is kept, so that no other gets its number
            self.known[id(factor)] = factor, self._found(factor)
        return self.known[id(factor)][1]

    def _found(self, factor: LinearOperator) -> _Read:
        right = factor.right if isinstance(factor, Compose) else factor
        if isinstance(right, Identity | Grouping):
            codes = right.codes if isinstance(right, Grouping) else np.arange(self.cells, dtype=np.int64)
            for level, own in enumerate(self.codes, 1):
                if len(self.order[level]) == right.shape[0] and np.array_equal(own, codes):
                    return _Read(level, factor.left if isinstance(factor, Compose) else None)
        for level in range(len(self.codes) + 1):
            codes = self.codes[level - 1] if level else np.zeros(self.cells, dtype=np.int64)
            first = np.unique(codes, return_index=True)[1]
            if len(first) == self.cells or _constant(factor, codes, first):
                return _Read(level, factor, first)
        return _Read(len(self.codes) + 1)

    # -- what they see -------------------------------------------------------------------------------------------

    def apply(self, factor: Factor, nodes: Callable[[int], FloatArray]) -> FloatArray:
        """(rows, c) of a factor, from (groups, c) of any level."""
        found = [read.apply(nodes(read.level)) for read in map(self._read, _parts(factor))]
        return found[0] if len(found) == 1 else np.concatenate(found)

    def variances(self, factor: Factor, passes: Passes) -> FloatArray:
        """(rows,) variances, w Cov wᵀ, of every row w of a factor."""
        out: list[FloatArray] = []
        for part in _parts(factor):
            read = self._read(part)
            if part is None or read.factor is None:
                out.append(self.placed(read.level, passes.variances[read.level][:, 0]))
                continue
            for a, b in self._chunks(part, read):
                rows = self._rows(read, a, b)
                out.append((rows * self._pass(read, rows, passes)[read.level]).sum(axis=0))
        return np.concatenate(out)

    def covariances(self, first: Factor, second: Factor, passes: Passes) -> FloatArray:
        """w Cov zᵀ of all rows w and z: (rows of first, rows of second)."""
        columns: list[FloatArray] = []
        for part in _parts(second):
            read = self._read(part)
            # the levels that the rows of the first stand on, from one pass of the second's
            needed = sorted({self._read(p).level for p in _parts(first)})
            for a, b in self._chunks(part, read):
                solved = self._pass(read, self._rows(read, a, b), passes)
                at = {level: self.placed(level, solved[level]) for level in needed}
                columns.append(self.apply(first, at.__getitem__))
        return np.concatenate(columns, axis=1)

    def _rows(self, read: _Read, start: int, stop: int) -> FloatArray:
        """(groups, rows) in the order of the tree."""
        return self.sorted(read.level, read.rows(start, stop, len(self.order[read.level])).T)

    @staticmethod
    def _pass(read: _Read, rows: FloatArray, passes: Passes) -> list[FloatArray]:
        given: list[FloatArray | None] = [None] * len(passes.within)
        given[read.level] = rows
        return passes.solve(given)

    def _chunks(self, part: Factor, read: _Read) -> list[tuple[int, int]]:
        count = len(self.order[read.level]) if part is None or read.factor is None else part.shape[0]
        step = max(1, _TOGETHER // max(self.cells, len(self.order[-1])))
        return [(a, min(a + step, count)) for a in range(0, count, step)]


def _parts(factor: Factor) -> list[Factor]:
    return [p for part in factor.parts for p in _parts(part)] if isinstance(factor, Stack) else [factor]


def _constant(factor: LinearOperator, codes: IntArray, first: IntArray) -> bool:
    """Whether the rows of a factor are alike on all cells of a group."""
    for a, b in factor.row_chunks():
        rows = factor.rows(a, b)
        if not np.array_equal(rows[:, first][:, codes], rows):
            return False
    return True
