"""The low rungs: the total, every attribute by itself, and tables in which more than cells was asked.

Each is fitted to what was said of it, by its own noise, and held from then on. What is no cell (cumulative counts,
named counts, sums, levels) counts a hundred times its precision: it is what people read, and clipped cells would
otherwise move it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from sfumato.estimate.hull import hull
from sfumato.estimate.ladder.raking import Sums, independent, rake
from sfumato.estimate.ladder.told import Asked, Axes, Told, below
from sfumato.estimate.simplex import onto_simplex
from sfumato.operators import Dense, Identity, Kronecker, Total
from sfumato.operators.base import FloatArray

__all__ = ["LISTED", "held_tables", "total_of"]

LISTED = 2048
"""Cells of a table up to which queries over it are a rung of their own."""
_FIRST = 100.0  # how much more than cells the queries weigh
_MARGIN = 1e3  # and how much more than these what is held already
_CERTAIN = 1e-6  # of the largest variance: what is known exactly weighs a million times, and the system stays sound
_TOUCH = 1e-9  # of the independent table: no cell starts at zero, where raking could not move it
_NOTHING = 1e-100  # positive, where all variances are 0; squares of it do not matter


def total_of(told: Told) -> float:
    """The total that everything is held to: the public one, or the unbiased one where that is positive."""
    return max(float(told.tables[()]), 0.0) if told.total is None else told.total


def held_tables(told: Told, total: float) -> dict[Axes, FloatArray]:
    """Tables that are held: of every attribute, and those in which cumulative counts or sums were asked."""
    held: dict[Axes, FloatArray] = {(): np.array(total)}
    for i in range(len(told.sizes)):
        held[i,] = _fitted(told, (i,), [a for a in told.asked if a.axes == (i,)], held, total)
    wider = {a.axes for a in told.asked if len(a.axes) > 1 and not a.groups}
    known = {s for s, v in told.variances.items() if v == 0 and len(s) > 1 and s in told.tables}
    for axes in sorted(wider | known, key=lambda s: (len(s), s)):
        if axes in known:
            held[axes] = _with_margins(axes, np.maximum(told.tables[axes], 0.0), held, told.possible(axes))
        elif axes in told.tables and math.prod(told.sizes[i] for i in axes) <= LISTED:
            inside = [a for a in told.asked if a.axes == axes]
            held[axes] = _fitted(told, axes, inside, held, total)
    return held


def _fitted(
    told: Told, axes: Axes, asked: Sequence[Asked], held: Mapping[Axes, FloatArray], total: float
) -> FloatArray:
    """A table nearest to its cells and to the queries asked of it, with the margins that are held."""
    cells, possible = told.tables.get(axes), told.possible(axes)
    shape = tuple(told.sizes[i] for i in axes)
    if cells is not None and not asked and len(axes) == 1:
        return onto_simplex(cells, total, possible=possible)
    margins = [s for s in below(axes) if s in held]
    rows, values = [], []
    if cells is not None:
        weight = 1 / math.sqrt(told.variances[axes] or 1.0)
        rows.append(np.eye(cells.size) * weight)
        values.append(cells.reshape(-1) * weight)
    for a in asked:
        # what is public has no noise: it counts as all but certain
        least = max(_CERTAIN * float(a.variances.max(initial=0.0)), _NOTHING)
        each = math.sqrt(_FIRST) / np.sqrt(np.maximum(a.variances, least))
        rows.append(a.rows.reshape(len(a.rows), -1) * each[:, None])
        values.append(a.values * each)
    top = max((float(np.abs(r).max(initial=0.0)) for r in rows), default=1.0) or 1.0
    for s in margins:
        summing = Kronecker(tuple(Identity(n) if i in s else Total(n) for i, n in zip(axes, shape, strict=True)))
        rows.append(summing.dense() * (math.sqrt(_MARGIN) * top))
        values.append(held[s].reshape(-1) * (math.sqrt(_MARGIN) * top))
    kept = np.ones(math.prod(shape), dtype=bool) if possible is None else possible.reshape(-1)
    found = np.zeros(len(kept))
    if not rows:
        found[kept] = total / kept.sum()
        return found.reshape(shape)
    found[kept] = hull(Dense(np.vstack(rows)[:, kept]), np.concatenate(values), total).cells
    return _with_margins(axes, found.reshape(shape), held, possible)


def _with_margins(
    axes: Axes, cells: FloatArray, held: Mapping[Axes, FloatArray], possible: NDArray[np.bool_] | None
) -> FloatArray:
    """Nonnegative cells, raked to all tables below that are held."""
    margins = [s for s in below(axes) if s in held]
    if possible is not None:
        cells = np.where(possible, cells, 0.0)
    if not margins:
        return cells
    # a touch of independence, so that no margin is out of reach
    return rake(
        cells + _TOUCH * independent(axes, held, possible),
        [Sums(tuple(axes.index(i) for i in s), held[s]) for s in margins],
    )
