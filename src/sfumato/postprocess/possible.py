"""Counts that some table could have held, in each form that a projection finds; all of them answer further queries."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato._util.codec import storable
from sfumato.errors import NotAnswerable
from sfumato.operators import Block
from sfumato.operators.base import FloatArray
from sfumato.strategies.attribute_sets import Sets, distinct_sets, locate_sets, subset_columns
from sfumato.strategies.strategy import marginalise


class Possible(ABC):
    """Nonnegative counts from which marginal tables are read."""

    @abstractmethod
    def table(self, attributes: Sequence[str]) -> FloatArray:
        """Counts shaped by the attributes in that order. Raises NotAnswerable for a table that is not held."""

    def answer(self, block: Block) -> FloatArray:
        """(rows,) answers to a query block."""
        return np.asarray(marginalise(self.table(block.attributes), block.attributes, block), dtype=np.float64)


def _sum_to_attributes(table: FloatArray, held: Sequence[str], wanted: Sequence[str]) -> FloatArray:
    """A table over `held` summed to `wanted`, its axes in that order."""
    drop = tuple(i for i, a in enumerate(held) if a not in wanted)
    kept = [a for a in held if a in wanted]
    return table.sum(axis=drop).transpose([kept.index(a) for a in wanted])


@storable
@dataclass(frozen=True, slots=True, eq=False)
class CellCounts(Possible):
    """One table over some attributes: values shaped by them, none negative."""

    attributes: tuple[str, ...]
    values: FloatArray

    def table(self, attributes: Sequence[str]) -> FloatArray:
        _smallest_holding(attributes, [self.attributes])
        return _sum_to_attributes(self.values, self.attributes, attributes)


@storable
@dataclass(frozen=True, slots=True, eq=False)
class TableCounts(Possible):
    """Several nonnegative tables that agree wherever they overlap, which one table need not have given."""

    attributes: tuple[tuple[str, ...], ...]
    values: tuple[FloatArray, ...]

    def table(self, attributes: Sequence[str]) -> FloatArray:
        least = _smallest_holding(attributes, self.attributes, [v.size for v in self.values])
        return _sum_to_attributes(self.values[least], self.attributes[least], attributes)


@storable
@dataclass(frozen=True, slots=True, eq=False)
class RecordCounts(Possible):
    """Weighted records: `codes` (r, d) cells of the named attributes, `weights` (r,) how many of each."""

    attributes: tuple[str, ...]
    sizes: tuple[int, ...]
    codes: NDArray[np.int32]
    weights: FloatArray

    def table(self, attributes: Sequence[str]) -> FloatArray:
        _smallest_holding(attributes, [self.attributes])
        axes = [self.attributes.index(a) for a in attributes]
        shape = tuple(self.sizes[i] for i in axes)
        if not axes:
            return np.array(self.weights.sum())
        places = np.ravel_multi_index(tuple(self.codes[:, i] for i in axes), shape)
        counts = np.bincount(places, self.weights, minlength=math.prod(shape))
        return counts.astype(np.float64).reshape(shape)


@storable
@dataclass(frozen=True, slots=True, eq=False)
class Medians(Possible):
    """Several tables over the same attributes: every answer, and every cell, is the median of theirs.

    Answers are near one another as those of the tables are, but a sum of cells need not be the sum of their medians.
    """

    members: tuple[CellCounts, ...]

    def table(self, attributes: Sequence[str]) -> FloatArray:
        return np.asarray(np.median([m.table(attributes) for m in self.members], axis=0), dtype=np.float64)

    def answer(self, block: Block) -> FloatArray:
        """(rows,) the medians of the members' answers."""
        return np.asarray(np.median([m.answer(block) for m in self.members], axis=0), dtype=np.float64)


@storable
@dataclass(frozen=True, slots=True, eq=False)
class PairMoments(Possible):
    """Second moments of y = (1, x), x in {-1, 1}^d, times the total: a symmetric (d + 1, d + 1) array.

    The second cell of an attribute is x = 1. The tables of at most two attributes follow from them.
    """

    attributes: tuple[str, ...]
    values: FloatArray

    def table(self, attributes: Sequence[str]) -> FloatArray:
        _smallest_holding(attributes, [self.attributes])
        if len(attributes) > 2:
            raise NotAnswerable(f"pairs of attributes are held, not the table of {', '.join(attributes)}")
        total, signs = self.values[0, 0], np.array([-1.0, 1.0])
        axes = [1 + self.attributes.index(a) for a in attributes]
        if not axes:
            return np.array(total)
        first = signs * self.values[0, axes[0]]
        if len(axes) == 1:
            return (total + first) / 2
        second, both = signs * self.values[0, axes[1]], np.outer(signs, signs) * self.values[axes[0], axes[1]]
        return (total + first[:, None] + second + both) / 4


def _smallest_holding(
    wanted: Sequence[str], held: Sequence[tuple[str, ...]], cells: Sequence[int] | None = None
) -> int:
    """The position of the smallest table that holds all the attributes."""
    found = [i for i, names in enumerate(held) if set(wanted) <= set(names)]
    if not found:
        raise NotAnswerable(
            f"the projection holds no table with {', '.join(wanted)}; ask the unprojected release, or project a "
            "workload that asks for it"
        )
    return min(found, key=lambda i: 0 if cells is None else cells[i])


Columns = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Group:
    """Tables of one shape, (count, *shape), from `start` on."""

    start: int
    count: int
    shape: tuple[int, ...]

    def view(self, flat: FloatArray) -> FloatArray:
        """(count, *shape) of those tables."""
        size = self.count * math.prod(self.shape)
        return flat[self.start : self.start + size].reshape(self.count, *self.shape)


class TableLayout:
    """Where the tables of distinct attribute sets are in one flat array, order by order, alike ones together.

    sets: per order from 0 on (count, order) ascending positions. sizes: cells of the attributes, ascending, so
    that tables of the same sizes have the same shape.
    """

    def __init__(self, sizes: NDArray[np.int64], sets: Sequence[Sets]) -> None:
        self.sizes = sizes
        self.sets = [distinct_sets(s, len(sizes)) if len(s) else s for s in sets]
        self.starts: list[NDArray[np.int64]] = []
        self.orders: list[int] = []
        self.groups: list[_Group] = []
        self.numbers: list[NDArray[np.int64]] = []
        start = number = 0
        for rows in self.sets:
            self.orders.append(start)
            shapes = sizes[rows]
            order = np.lexsort(shapes.T[::-1]) if rows.shape[1] else np.arange(len(rows))
            cells = shapes.prod(axis=1, dtype=np.int64)
            places = np.empty(len(rows), dtype=np.int64)
            places[order] = start + np.cumsum(cells[order]) - cells[order]
            self.starts.append(places)
            self.numbers.append(number + np.arange(len(rows)))
            changes = np.flatnonzero(np.any(np.diff(shapes[order], axis=0) != 0, axis=1)) + 1
            for part in np.split(order, changes) if len(rows) else []:
                self.groups.append(_Group(int(places[part[0]]), len(part), tuple(shapes[part[0]].tolist())))
            start, number = start + int(cells.sum()), number + len(rows)
        self.size, self.count = start, number

    def each(self, values: FloatArray) -> FloatArray:
        """(size,) a value per set, in the order of `sets`, repeated for all its cells."""
        out = np.empty(self.size)
        for rows, starts, numbers in zip(self.sets, self.starts, self.numbers, strict=True):
            cells = self.sizes[rows].prod(axis=1, dtype=np.int64)
            order = np.argsort(starts, kind="stable")
            if len(rows):
                first = int(starts[order[0]])
                out[first : first + int(cells.sum())] = np.repeat(values[numbers[order]], cells[order])
        return out

    def centre(self, flat: FloatArray) -> None:
        """Take the means along every attribute away, in place; of the tables that `flat`, a beginning, holds."""
        for group in self.groups:
            if group.start >= len(flat):
                break
            table = group.view(flat)
            for axis in range(1, table.ndim):
                table -= table.mean(axis=axis, keepdims=True)


@dataclass(frozen=True, slots=True)
class _Share:
    """The tables below a group's tables along some of their axes: where they are among all shares."""

    columns: Columns
    held: Columns
    axis: int
    place: slice
    rest: int


class Incidence:
    """The tables of `tables` and all proper margins of theirs, within a larger layout `closure`.

    `shares` are the margins of every table in one flat array, the same margin as often as tables have it.
    """

    def __init__(self, tables: TableLayout, closure: TableLayout) -> None:
        self.tables, self.closure = tables, closure
        self.plans: list[tuple[_Group, list[_Share]]] = []
        index: list[NDArray[np.int64]] = []
        owner: list[NDArray[np.int64]] = []
        rest: list[FloatArray] = []
        sign: list[FloatArray] = []
        done = 0
        for group, rows, numbers in _group_members(tables):
            plan: list[_Share] = []
            order = len(group.shape)
            for columns in sorted(subset_columns(order), key=len, reverse=True)[1:]:
                shape = tuple(group.shape[a] for a in columns)
                cells, others = math.prod(shape), math.prod(group.shape) // math.prod(shape)
                held = next(c for c in subset_columns(order) if len(c) == len(columns) + 1 and set(columns) < set(c))
                axis = next(i for i, a in enumerate(held) if a not in columns)
                size = group.count * cells
                plan.append(_Share(columns, held, axis, slice(done, done + size), others))
                found = locate_sets(closure.sets[len(columns)], rows[:, list(columns)], len(tables.sizes))
                index.append((closure.starts[len(columns)][found][:, None] + np.arange(cells)).reshape(-1))
                owner.append(np.repeat(numbers, cells))
                rest.append(np.full(size, 1.0 / others))
                sign.append(np.full(size, 1.0 if (order - len(columns)) % 2 == 0 else -1.0))
                done += size
            self.plans.append((group, plan))
        empty = np.empty(0)
        self.index = np.concatenate([np.empty(0, dtype=np.int64), *index])
        self.owner = np.concatenate([np.empty(0, dtype=np.int64), *owner])
        self.rest, self.sign = np.concatenate([empty, *rest]), np.concatenate([empty, *sign])
        # where the tables themselves are among those of the closure
        self.own = np.empty(tables.size, dtype=np.int64)
        for group, rows, _ in _group_members(tables):
            order = len(group.shape)
            found = locate_sets(closure.sets[order], rows, len(tables.sizes))
            places = closure.starts[order][found][:, None] + np.arange(math.prod(group.shape))
            self.own[group.start : group.start + places.size] = places.reshape(-1)
        self.low = int(self.index.max()) + 1 if done else 0
        later = [g.start for g in closure.groups if g.start >= self.low]
        self.low = min(later, default=closure.size)

    def shares(self, flat: FloatArray) -> FloatArray:
        """All proper margins of the tables."""
        out = np.empty(len(self.index))
        for group, plan in self.plans:
            held: dict[Columns, FloatArray] = {tuple(range(len(group.shape))): group.view(flat)}
            for s in plan:
                table = held[s.held]
                target = out[s.place].reshape(table.shape[: s.axis + 1] + table.shape[s.axis + 2 :])
                if s.axis + 2 == table.ndim:
                    np.matmul(table, np.ones(table.shape[-1]), out=target)
                else:
                    np.add.reduce(table, axis=s.axis + 1, out=target)
                held[s.columns] = target
        return out

    def gather(self, shares: FloatArray) -> FloatArray:
        """(low,) the sums of equal shares, uncentred: 0 for the tables that are nobody's margin."""
        return np.bincount(self.index, shares, self.low).astype(np.float64, copy=False)

    def spread(self, shares: FloatArray, onto: FloatArray) -> None:
        """Add each share, cell by cell, to its table, in place; overwrites `shares`."""
        for group, plan in self.plans:
            whole = tuple(range(len(group.shape)))
            held: dict[Columns, tuple[FloatArray, Columns]] = {whole: (group.view(onto), whole)}
            for s in plan:
                shape = (group.count, *(group.shape[a] for a in s.columns))
                held[s.columns] = (shares[s.place].reshape(shape), s.columns)
            # small shares ride on larger ones, so that every cell is touched once per attribute
            for s in reversed(plan):
                below, _ = held[s.columns]
                above, names = held[s.held]
                shape = (group.count, *(group.shape[a] if a in s.columns else 1 for a in names))
                above += below.reshape(shape)


def lift_components(inc: Incidence, r: FloatArray) -> FloatArray:
    """The tables with components r, flat."""
    out = r[inc.own]
    inc.spread(r[inc.index] * inc.rest, out)
    return out


def collect_components(closure: TableLayout, inc: Incidence, tables: FloatArray) -> FloatArray:
    """The transpose of `lift`, centred."""
    out = np.zeros(closure.size)
    out[inc.own] = tables
    out[: inc.low] += inc.gather(inc.shares(tables) * inc.rest)
    closure.centre(out)
    return out


def _group_members(layout: TableLayout) -> list[tuple[_Group, Sets, NDArray[np.int64]]]:
    """Every group with its sets, as they follow each other, and their numbers."""
    out: list[tuple[_Group, Sets, NDArray[np.int64]]] = []
    for group in layout.groups:
        order = len(group.shape)
        starts = layout.starts[order]
        first, end = np.searchsorted(np.sort(starts), [group.start, group.start + group.count * math.prod(group.shape)])
        chosen = np.argsort(starts, kind="stable")[first:end]
        out.append((group, layout.sets[order][chosen], layout.numbers[order][chosen]))
    return out
