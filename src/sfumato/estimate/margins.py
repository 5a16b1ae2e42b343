"""Many tables at once, through their components on the sets below them: sums down, and tables back up.

A table over A is the sum over S in A of a component that varies along every attribute of S and is spread evenly
over the rest. Tables agree on their common attributes exactly where they have one component per set. [XZK23]
All arrays are flat, the tables of equal shape next to each other; nothing loops over tables.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.designs.marginals.incidence import Sets, distinct, locate, patterns
from sfumato.operators.base import FloatArray

__all__ = ["Incidence", "Layout", "collect", "lift"]

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


class Layout:
    """Where the tables of distinct attribute sets are in one flat array, order by order, alike ones together.

    sets: per order from 0 on (count, order) ascending positions. sizes: cells of the attributes, ascending, so
    that tables of the same sizes have the same shape.
    """

    def __init__(self, sizes: NDArray[np.int64], sets: Sequence[Sets]) -> None:
        self.sizes = sizes
        self.sets = [distinct(s, len(sizes)) if len(s) else s for s in sets]
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

    def __init__(self, tables: Layout, closure: Layout) -> None:
        self.tables, self.closure = tables, closure
        self.plans: list[tuple[_Group, list[_Share]]] = []
        index: list[NDArray[np.int64]] = []
        owner: list[NDArray[np.int64]] = []
        rest: list[FloatArray] = []
        sign: list[FloatArray] = []
        done = 0
        for group, rows, numbers in _members(tables):
            plan: list[_Share] = []
            order = len(group.shape)
            for columns in sorted(patterns(order), key=len, reverse=True)[1:]:
                shape = tuple(group.shape[a] for a in columns)
                cells, others = math.prod(shape), math.prod(group.shape) // math.prod(shape)
                held = next(c for c in patterns(order) if len(c) == len(columns) + 1 and set(columns) < set(c))
                axis = next(i for i, a in enumerate(held) if a not in columns)
                size = group.count * cells
                plan.append(_Share(columns, held, axis, slice(done, done + size), others))
                found = locate(closure.sets[len(columns)], rows[:, list(columns)], len(tables.sizes))
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
        for group, rows, _ in _members(tables):
            order = len(group.shape)
            found = locate(closure.sets[order], rows, len(tables.sizes))
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


def lift(inc: Incidence, r: FloatArray) -> FloatArray:
    """The tables with components r, flat."""
    out = r[inc.own]
    inc.spread(r[inc.index] * inc.rest, out)
    return out


def collect(closure: Layout, inc: Incidence, tables: FloatArray) -> FloatArray:
    """The transpose of `lift`, centred."""
    out = np.zeros(closure.size)
    out[inc.own] = tables
    out[: inc.low] += inc.gather(inc.shares(tables) * inc.rest)
    closure.centre(out)
    return out


def _members(layout: Layout) -> list[tuple[_Group, Sets, NDArray[np.int64]]]:
    """Every group with its sets, as they follow each other, and their numbers."""
    out: list[tuple[_Group, Sets, NDArray[np.int64]]] = []
    for group in layout.groups:
        order = len(group.shape)
        starts = layout.starts[order]
        first, end = np.searchsorted(np.sort(starts), [group.start, group.start + group.count * math.prod(group.shape)])
        chosen = np.argsort(starts, kind="stable")[first:end]
        out.append((group, layout.sets[order][chosen], layout.numbers[order][chosen]))
    return out
