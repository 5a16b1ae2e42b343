"""What measurements say of the children of every parent, from the finest level up: one pass over what was measured.

In the norm of what is known from its own subtree a node is b with precision M = sum_S w_S P_S: what was measured of
it, and what its children say of their sum. Both are carried up, residual by residual; the leaves' own are read
family by family on the way down, so that no estimate of all leaves is ever held.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sfumato._util.codec import storable
from sfumato._util.files import release_pages
from sfumato.errors import NotAnswerable
from sfumato.operators import Block, Identity, LinearOperator
from sfumato.operators.base import FloatArray, Numbers
from sfumato.postprocess.geography_cells import LevelLimits, TableCells
from sfumato.postprocess.possible import Possible
from sfumato.strategies.geography import Spine, read_levels
from sfumato.strategies.geography_tree import GroupTree, PlaceOrder

_FITTED = 10  # rounds: tables that share no attribute are met in one, and a target need not be met to the last digit
_CHUNK = 2**22  # numbers of leaves that are added up at once: 32 MB


@dataclass(frozen=True, eq=False, slots=True)
class FamilyEstimates:
    """wanted: (n, cells) estimates of the children of one parent that add up to it; weights: (sets,) of their norm;
    limits: (n, 6) of each child as in `LevelLimits`, None where nothing is said of these."""

    wanted: FloatArray
    weights: FloatArray
    limits: FloatArray | None = None


class TreeEstimates(Protocol):
    """A tree, the cells of its tables, and what is said of the root and of every family."""

    @property
    def places(self) -> PlaceOrder: ...

    @property
    def tree(self) -> GroupTree: ...

    @property
    def cells(self) -> TableCells: ...

    @property
    def inside(self) -> NDArray[np.bool_] | None:
        """(cells,) the set of which floors and caps are kept beside those of totals, None where there is none."""
        ...

    def root(self) -> FamilyEstimates:
        """Of the root by itself: (1, cells)."""
        ...

    def family(self, level: int, parent: int, counts: FloatArray) -> FamilyEstimates:
        """Of the children at a level of one node above, whose counts (cells,) are settled."""
        ...


def _inverse_weights(weights: FloatArray) -> FloatArray:
    """1 / w, and zero for what nothing is known of."""
    return np.divide(1.0, weights, out=np.zeros_like(weights), where=weights > 0)


class Readings:
    """What was measured by a `Spine`, in records: `variance` is that of the noise on it.

    own: (levels, sets) what was measured at a level says of every residual of a group; infinite for known totals.
    """

    def __init__(
        self,
        made: Spine,
        values: Sequence[Numbers],
        variance: float,
        axes: Sequence[int],
        limits: LevelLimits | None = None,
    ) -> None:
        """axes: positions in the domain of the attributes whose cells are told apart; limits: of the groups, in the
        order of the tree."""
        self.places = made.places
        self.cells = TableCells(tuple(made.shape[i] for i in axes))
        self._made, self._values, self._variance = made, list(values), variance
        self.totals, self.limits = made.totals, () if limits is None else limits.levels
        self.inside = None if limits is None else limits.inside
        self._axes = [tuple(list(axes).index(i) for i in s) for s in made.sets]
        self.own = self._precisions(list(axes))
        self._count = 0

    def _precisions(self, axes: list[int]) -> FloatArray:
        out = np.zeros((self.places.tree.depth + 1, len(self.cells.sets)))
        for j, s in enumerate(self.cells.sets):
            own = self._made.precisions.get(tuple(axes[i] for i in s))
            if own is not None:
                # a residual of the table over s is spread over the cells of the other attributes
                out[:, j] = own * (self.cells.size / math.prod(self.cells.shape[i] for i in s)) / self._variance
        return out

    def data(self, level: int, first: int, last: int) -> FloatArray:
        """(nodes, cells) precision times value of what was measured of the nodes [first, last) of a level."""
        nodes = self.places.order[level][first:last]
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
        self._count += out.size
        if self._count > _CHUNK:
            # the memory that files take up here
            self._count = 0
            for values in self._values:
                release_pages(values)
        return out.reshape(last - first, self.cells.size)


class TreeMeasurements:
    """By what was measured, of a whole tree or of a part of it.

    tree: of the nodes of some levels, the first of which is number `level` of the whole tree's, where the nodes of each
    begin at `firsts`. below: what every node of the last level and all below it say, where the tree was cut there.
    """

    def __init__(
        self,
        read: Readings,
        tree: GroupTree | None = None,
        level: int = 0,
        firsts: Sequence[int] | None = None,
        below: FamilyEstimates | None = None,
    ) -> None:
        self.places, self.cells, self.inside = read.places, read.cells, read.inside
        self.tree = read.places.tree if tree is None else tree
        self._read, self._top, self._below = read, level, below
        self._firsts = [0] * (self.tree.depth + 1) if firsts is None else list(firsts)
        self._own = read.own[level:]
        self._climb()

    def _climb(self) -> None:
        tree, depth = self.tree, self.tree.depth
        self.weights: list[FloatArray] = [np.zeros((0, 0))] * (depth + 1)
        self.means: list[FloatArray] = [np.zeros((0, 0))] * (depth + 1)
        if self._below is None:
            self.weights[depth] = np.broadcast_to(self._own[depth], (len(tree.counts[depth]), self._own.shape[1]))
        else:
            self.weights[depth], self.means[depth] = self._below.weights, self._below.wanted
        for level in range(depth - 1, -1, -1):
            below = self.weights[level + 1]
            with np.errstate(divide="ignore"):
                joint = 1.0 / tree.sums(level + 1, 1.0 / below)
            self.weights[level] = self._own[level] + joint
            # what is known is kept to by itself
            finite, joint = (np.where(np.isfinite(w), w, 0.0) for w in (self.weights[level], joint))
            found = self._data(level, 0, len(joint)) + self.cells.weigh(joint, self._sums(level))
            self.means[level] = self.cells.weigh(_inverse_weights(finite), found)
            known = self._known(level, 0, len(joint))
            if known is not None:
                self.means[level] += known[:, None] / self.cells.size

    def _known(self, level: int, first: int, last: int) -> FloatArray | None:
        """(nodes,) the totals of the nodes [first, last) of a level, where they are known."""
        held, start = self._read.totals, self._firsts[level]
        return held[self._top + level][start + first : start + last, 0] if self._top + level < len(held) else None

    def _is_read(self, level: int) -> bool:
        """Whether the estimates of a level by themselves are made when they are asked for."""
        return level == self.tree.depth and self._below is None

    def _sums(self, level: int) -> FloatArray:
        """(nodes of a level, cells) what the children by themselves say of their sum."""
        tree = self.tree
        if not self._is_read(level + 1):
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
        return self.cells.weigh(_inverse_weights(self._own[tree.depth][None]), out)

    def _data(self, level: int, first: int, last: int) -> FloatArray:
        start = self._firsts[level]
        return self._read.data(self._top + level, start + first, start + last)

    # -- the way down ------------------------------------------------------------------------------------------

    def top(self) -> FamilyEstimates:
        """Of the first node alone, what it and all below it say: (1, cells) and (1, sets)."""
        return FamilyEstimates(self.means[0], self.weights[0])

    def root(self) -> FamilyEstimates:
        weights = self.weights[0][0]
        # a known total is kept to by itself
        finite = np.where(np.isfinite(weights), weights, 0.0)
        return FamilyEstimates(self.means[0], finite, self._read.limits[0] if self._read.limits else None)

    def family(self, level: int, parent: int, counts: FloatArray) -> FamilyEstimates:
        first, last = self.tree.run(level, parent)
        weights, known = self.weights[level][first:last], self.weights[level][first] > 0
        totals = self._known(level, first, last)
        if self._is_read(level):
            means = self.cells.weigh(_inverse_weights(self._own[level][None]), self._data(level, first, last))
            means += 0.0 if totals is None else totals[:, None] / self.cells.size
        else:
            means = self.means[level][first:last]
        spread = _inverse_weights(weights)
        total = spread.sum(axis=0)
        share = np.divide(spread, total, out=np.zeros_like(spread), where=total > 0)
        wanted = means + self.cells.weigh(share, np.repeat((counts - means.sum(axis=0))[None], last - first, axis=0))
        every, start = self._read.limits, self._firsts[level]
        limits = every[self._top + level] if every else None
        own = None if limits is None else limits[start + first : start + last]
        return FamilyEstimates(
            split_among_children(self.cells, wanted, counts, known), (last - first) * _inverse_weights(total), own
        )


def split_among_children(
    cells: TableCells, wanted: FloatArray, counts: FloatArray, known: NDArray[np.bool_]
) -> FloatArray:
    """(n, cells) with the residuals of which nothing is known: as the parent has them, within what is known of each
    child, and adding up to the parent's."""
    if known[cells.contrasts > 0].all():
        return wanted
    found = cells.project(~known, fit_proportions(cells, wanted, np.maximum(counts, 0.0), known))
    lack = cells.project(~known, counts[None]) - found.sum(axis=0)
    held = np.maximum(wanted.sum(axis=1), 0.0) if known[0] else np.ones(len(wanted))
    total = float(held.sum())
    share = held / total if total > 0 else np.full(len(held), 1 / len(held))
    return wanted + found + share[:, None] * lack


def fit_proportions(cells: TableCells, wanted: FloatArray, like: FloatArray, known: NDArray[np.bool_]) -> FloatArray:
    """(n, cells) nonnegative: cells in the proportions of `like` (cells,), fitted in turn to the tables of which all is
    known [DS40].

    Residuals that are nothing, or a parent's, would ask for negative cells beside tables far from even ones, and the
    tables would give way where no cell may be negative.
    """
    tables = [s for s in cells.sets if all(known[j] for j, b in enumerate(cells.sets) if set(b) <= set(s))]
    tables = [s for s in tables if not any(set(s) < set(other) for other in tables)]
    given = [np.maximum(cells.sums(s, wanted), 0.0) for s in tables]
    out = np.broadcast_to(like, wanted.shape)
    if not tables:
        return out / len(wanted)
    for _ in range(_FITTED if len(tables) > 1 else 1):
        for s, sums in zip(tables, given, strict=True):
            own = cells.sums(s, out)
            factor = np.divide(sums, own, out=np.zeros_like(own), where=own > 0)
            out = (out.reshape(-1, *cells.shape) * factor).reshape(wanted.shape)
    return out


@storable
@dataclass(frozen=True, eq=False)
class PlacedCounts(Possible):
    """Nonnegative counts of records by unit, the groups of the finest level that was asked, and by cell of a table.

    place: the attribute with levels, of `cells` cells; levels: their operators over these, coarse to fine. attributes,
    sizes: those of the table. unit, cell, count (r,): which unit, which cell of the table in C order, how many.
    """

    place: str
    cells: int
    levels: tuple[LinearOperator, ...]
    attributes: tuple[str, ...]
    sizes: tuple[int, ...]
    unit: NDArray[np.int32]
    cell: NDArray[np.int64]
    count: FloatArray

    @functools.cached_property
    def places(self) -> PlaceOrder:
        """The tree, and how it reads factors over its attribute."""
        return PlaceOrder.of(read_levels(self.levels), self.cells)

    @property
    def units(self) -> int:
        """How many groups the finest level has."""
        return self.levels[-1].shape[0]

    def table(self, attributes: Sequence[str]) -> FloatArray:
        factor = Identity(self.cells)
        sizes = dict(zip(self.attributes, self.sizes, strict=True))
        self._check(attributes)
        factors = [factor if a == self.place else Identity(sizes[a]) for a in attributes]
        shape = tuple(f.shape[0] for f in factors)
        return self.answer(Block(tuple((a,) for a in attributes), tuple(factors))).reshape(shape)

    def answer(self, block: Block) -> FloatArray:
        """(rows,) answers to a query block."""
        self._check(block.attributes)
        found = [i for i, g in enumerate(block.groups) if self.place in g]
        if found and len(block.groups[found[0]]) > 1:
            return super().answer(block)
        at = found[0] if found else None
        rest = [i for i in range(len(block.groups)) if i != at]
        names = [a for i in rest for a in block.groups[i]]
        factor = None if at is None else block.factors[at]
        if self.places.level_of(factor) > len(self.levels):
            raise NotAnswerable(f"the projection holds {self.units:,} groups of {self.place}, and nothing finer")
        out = self.places.apply(factor, functools.partial(self._nodes, names))
        out = out.reshape(len(out), *(block.factors[i].shape[1] for i in rest))
        for axis, i in enumerate(rest, 1):
            out = np.asarray(block.factors[i].along(out, axis), dtype=np.float64)
        return np.ascontiguousarray(out[0] if at is None else np.moveaxis(out, 0, at)).reshape(-1)

    def _nodes(self, names: Sequence[str], level: int) -> FloatArray:
        """(groups of a level, cells of the table over some attributes)"""
        groups = len(self.places.order[level])
        sizes = [self.sizes[self.attributes.index(a)] for a in names]
        where = self._group(level)[self.unit] * math.prod(sizes)
        if names:
            codes = np.unravel_index(self.cell, self.sizes)
            where = where + np.ravel_multi_index(tuple(codes[self.attributes.index(a)] for a in names), tuple(sizes))
        counts = np.bincount(where, self.count, minlength=groups * math.prod(sizes))
        return counts.astype(np.float64, copy=False).reshape(groups, -1)

    def _group(self, level: int) -> NDArray[np.int64]:
        """(units,) the group of every unit at a level."""
        out = np.zeros(self.units, dtype=np.int64)
        if level:
            out[self.places.codes[-1]] = self.places.codes[level - 1]
        return out

    def _check(self, wanted: Sequence[str]) -> None:
        strange = [a for a in wanted if a != self.place and a not in self.attributes]
        if strange:
            raise NotAnswerable(
                f"the projection holds no table with {', '.join(strange)}; ask the unprojected release, or project a "
                "workload that asks for it"
            )
