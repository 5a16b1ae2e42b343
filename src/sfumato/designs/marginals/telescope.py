"""Tables from noisy residuals by telescoping sums, many at a time and few in memory.

A table over A whose smaller tables q_S are known is z plus what brings its margins to theirs: with z the
noisy residual of A alone,

    q_A = z + sum_{S < A} (-1)^(|A| - |S| - 1) (q_S / n_{A - S} - mean of z over A - S),

which is the sum over all S of the centred residuals. For three attributes that is three additions a cell.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sfumato.designs.marginals.incidence import closure, locate, patterns
from sfumato.ground.spool import forget
from sfumato.operators.base import FloatArray, Numbers

if TYPE_CHECKING:
    from sfumato.designs.marginals.residuals import Residuals

__all__ = ["Measured", "tables"]

_BATCH_CELLS = 2**16  # 512 kB at a time stay in the cache of a core
_KEPT = 2**23  # values of a file that may stay in memory once read

Sets = NDArray[np.int32]
Columns = tuple[int, ...]
Batch = tuple[NDArray[np.intp], FloatArray]


@dataclass(frozen=True, slots=True)
class Measured:
    """The noisy integers of every order's residuals, one flat array each, and the total where it is public."""

    values: tuple[Numbers | None, ...]
    total: int | None


@dataclass(frozen=True, slots=True)
class _Level:
    """All tables of one order that larger ones rest on, in one flat array."""

    sets: Sets
    starts: NDArray[np.int64]
    values: FloatArray

    def take(self, chosen: NDArray[np.intp], cells: int) -> FloatArray:
        """(c, cells) the chosen tables."""
        return self.values[self.starts[chosen][:, None] + np.arange(cells)]


def tables(residuals: Residuals, measured: Measured, sets: Sets) -> Iterator[Batch]:
    """(positions, (c, cells) estimated tables) of attribute sets of one order, ascending as far as sizes are alike."""
    count = len(residuals.names)
    below = closure([sets], count)
    lower: list[_Level] = []
    for level in below[: sets.shape[1]]:
        cells = np.array(residuals.shape, dtype=np.int64)[level].prod(axis=1, dtype=np.int64)
        starts = np.concatenate([[0], np.cumsum(cells)])
        found = _Level(level, starts, np.empty(int(starts[-1])))
        for chosen, batch in _tables(residuals, measured, level, lower):
            rows = batch.reshape(len(chosen), -1)
            found.values[starts[chosen][:, None] + np.arange(rows.shape[1])] = rows
        lower.append(found)
    for chosen, batch in _tables(residuals, measured, sets, lower):
        yield chosen, batch.reshape(len(chosen), -1)


def _tables(residuals: Residuals, measured: Measured, sets: Sets, lower: Sequence[_Level]) -> Iterator[Batch]:
    order, count = sets.shape[1], len(residuals.names)
    smaller = [c for c in patterns(order) if len(c) < order]
    places = {c: locate(lower[len(c)].sets, sets[:, c], count) for c in smaller}
    read = _Reader(residuals, measured, sets)
    sizes = np.array(residuals.shape, dtype=np.int64)[sets]
    for group in _alike(sizes):
        shape = tuple(sizes[group[0]].tolist())
        step = max(1, _BATCH_CELLS // math.prod(shape))
        for start in range(0, len(group), step):
            chosen = group[start : start + step]
            z = read.take(chosen, math.prod(shape)).reshape(len(chosen), *shape)
            below = {c: lower[len(c)].take(places[c][chosen], math.prod(shape[a] for a in c)) for c in smaller}
            _complete(z, below)
            yield chosen, z
    forget(measured.values[order] if order < len(measured.values) else None)


def _alike(sizes: NDArray[np.int64]) -> list[NDArray[np.intp]]:
    """Positions of tables of equal shape, ascending."""
    if sizes.shape[1] == 0:
        return [np.arange(len(sizes))]
    _, group = np.unique(sizes, axis=0, return_inverse=True)
    order = np.argsort(group.reshape(-1), kind="stable")
    return np.split(order, np.flatnonzero(np.diff(group.reshape(-1)[order])) + 1)


class _Reader:
    """The noisy residuals of sets, scaled; zero where nothing was measured."""

    def __init__(self, residuals: Residuals, measured: Measured, sets: Sets) -> None:
        order = sets.shape[1]
        self._residuals, self._sets = residuals, sets
        self._values = measured.values[order] if order < len(measured.values) else None
        self._total, self._read = measured.total, 0
        found = np.full(len(sets), -1)
        if order < len(residuals.sets):
            found = locate(residuals.sets[order], sets, len(residuals.names))
        self._known = np.ones(len(sets), dtype=bool)
        family = residuals.families[order] if order < len(residuals.families) else None
        if family is not None:
            multiples = residuals.multiples[order]
            self._known = (found < 0) | (multiples[found] == 0)
            # where a set stands among those that are measured with noise
            noisy = np.cumsum(multiples > 0) - 1
            self._starts = family.starts[noisy[found]]
            self._scale = 1 / residuals.divisors[order][found]

    def take(self, chosen: NDArray[np.intp], cells: int) -> FloatArray:
        """(c, cells)"""
        if self._known[chosen].any():
            rows = [self._one(i, cells) for i in chosen.tolist()]
            return np.stack(rows)
        assert self._values is not None
        starts = self._starts[chosen]
        first, last = int(starts[0]), int(starts[-1])
        if last - first == (len(starts) - 1) * cells and np.all(np.diff(starts) == cells):
            values = np.asarray(self._values[first : last + cells]).reshape(len(chosen), cells)
        else:
            values = np.asarray(self._values)[starts[:, None] + np.arange(cells)]
        out = values * self._scale[chosen, None]
        self._read += out.size
        if self._read > _KEPT:
            forget(self._values)
            self._read = 0
        return out

    def _one(self, i: int, cells: int) -> FloatArray:
        if self._known[i]:
            axes = tuple(self._sets[i].tolist())
            return self._residuals.known_component(axes, self._total).reshape(cells)
        assert self._values is not None
        start = int(self._starts[i])
        return np.asarray(self._values[start : start + cells]) * self._scale[i]


def _complete(z: FloatArray, below: dict[Columns, FloatArray]) -> None:
    """Bring the margins of residuals z (c, n_1, ..., n_k) to those of the smaller tables, in place."""
    order, shape = z.ndim - 1, z.shape[1:]
    axes = range(order)
    margins: dict[Columns, FloatArray] = {tuple(axes): z}
    changes: dict[Columns, FloatArray] = {}
    for columns in sorted(below, key=len, reverse=True):
        rest = math.prod(shape[a] for a in axes if a not in columns)
        held = next(c for c in margins if len(c) == len(columns) + 1 and set(columns) < set(c))
        axis = next(i for i, a in enumerate(held) if a not in columns)
        margins[columns] = _sum(margins[held], axis + 1)
        sign = -1.0 if (order - len(columns)) % 2 == 0 else 1.0
        table = below[columns].reshape(margins[columns].shape)
        changes[columns] = (table - margins[columns]) * (sign / rest)
    for columns in sorted(changes, key=len):
        # small changes ride on larger ones, so that every cell is touched once per attribute
        if len(columns) == order - 1:
            target, names = z, tuple(axes)
        else:
            names = next(c for c in changes if len(c) == len(columns) + 1 and set(columns) < set(c))
            target = changes[names]
        target += changes[columns].reshape(len(z), *(shape[a] if a in columns else 1 for a in names))


def _sum(table: FloatArray, axis: int) -> FloatArray:
    if axis == table.ndim - 1:
        # short rows are summed faster by a product with ones
        return table @ np.ones(table.shape[-1])
    return table.sum(axis=axis)
