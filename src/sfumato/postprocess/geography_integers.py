"""Whole numbers for the children of a parent in whole numbers: by halves of the cells, each split exactly.

Cells are halved again and again, along a chain of tables from the coarsest on. When a part of the cells is split in
two, every child's count of the part is known and whole, and so is the parent's of either half: what is left to
choose is one number for each child between 0 and its count, and their sum. That is always possible, and the nearest
such numbers are found by giving one unit after the other where it costs least, which is optimal for separable convex
costs [Fox66]. So every table of the chain, and every cell, adds up to the parent's exactly, and nothing is ever
negative.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.operators.base import FloatArray
from sfumato.postprocess.geography_cells import IntArray, Sets, TableCells, tighten_limits

__all__ = [
    "CellHalves",
    "nearest_real",
    "nearest_whole",
    "real_family",
    "real_parts",
    "split_totals",
    "splitting_chain",
    "whole_family",
    "whole_parts",
]


Near = Callable[[FloatArray, NDArray[Any], NDArray[Any]], NDArray[Any]]
"""Numbers from 0 to a most whose columns have given sums, nearest to others."""
_HALVED = 60  # times: what doubles tell apart


def splitting_chain(cells: TableCells, asked: Sequence[Sets]) -> tuple[Sets, ...]:
    """Axes in the order in which tables are split: unions of the asked sets, smaller tables first; ends with all axes.

    Returns what each step adds, so that every asked set is a sum of few cells of a table that is kept to.
    """
    held: list[int] = []
    steps: list[Sets] = []
    order = sorted(set(asked), key=lambda s: (int(np.prod([cells.shape[i] for i in s])), s))
    for s in (*order, tuple(range(len(cells.shape)))):
        new = tuple(i for i in s if i not in held)
        if new:
            held.extend(new)
            steps.append(new)
    return tuple(steps)


@dataclass(frozen=True, eq=False)
class CellHalves:
    """order: the cells as they stand beside each other; per depth the runs [first, last) that are split before
    `middle`; inside: (cells,) which are in the bounded set, if there is one."""

    order: IntArray
    splits: tuple[tuple[IntArray, IntArray, IntArray], ...]
    inside: NDArray[np.bool_] | None = None

    @classmethod
    def of(
        cls, cells: TableCells, chosen: IntArray, steps: Sequence[Sets], inside: NDArray[np.bool_] | None = None
    ) -> CellHalves:
        """Of some cells: those inside of a bounded set before all others, then those of the first step's table apart,
        then within each those of the next one's.

        inside: (cells,) the set, None where there is none.
        """
        keys = [cells.number(s, chosen) for s in steps]
        held = None if inside is None else inside[chosen]
        if held is not None:
            keys.insert(0, (~held).astype(np.int64))
        order = np.lexsort(keys[::-1]) if keys else np.arange(len(chosen))
        # the first step at which a cell differs from the one before it
        first = np.full(max(len(chosen) - 1, 0), len(keys))
        for j in range(len(keys) - 1, -1, -1):
            moved = np.diff(keys[j][order]) != 0
            first[moved] = j
        return cls(order, _halve_runs(first, len(chosen)), held)

    def crossed(self) -> bool:
        """Whether cells inside of the set and others are told apart, which the first split does."""
        return self.inside is not None and bool(self.inside.any()) and not bool(self.inside.all())


def _halve_runs(first: IntArray, count: int) -> tuple[tuple[IntArray, IntArray, IntArray], ...]:
    """Runs of cells split where the earliest step differs, and there as near to the middle as can be."""
    out: list[tuple[IntArray, IntArray, IntArray]] = []
    runs = [(0, count)] if count > 1 else []
    while runs:
        middles: list[int] = []
        for a, b in runs:
            own = first[a : b - 1]
            places = np.flatnonzero(own == own.min())
            middles.append(a + 1 + int(places[len(places) // 2]))
        starts, ends = (np.array(x, dtype=np.int64) for x in zip(*runs, strict=True))
        middle = np.array(middles, dtype=np.int64)
        out.append((starts, middle, ends))
        halves = [r for (a, b), m in zip(runs, middles, strict=True) for r in ((a, m), (m, b))]
        runs = [(a, b) for a, b in halves if b - a > 1]
    return tuple(out)


def nearest_whole(wanted: FloatArray, most: IntArray, sums: IntArray) -> IntArray:
    """(n, s) whole numbers from 0 to `most` whose columns have these sums, nearest to `wanted` in squares.

    wanted: (n, s) within [0, most]; sums: (s,), at most those of `most`.
    """
    # else no unit could be given or taken, for ever
    assert ((most >= 0).all(0) & (sums >= 0) & (sums <= most.sum(axis=0))).all(), "no whole numbers have these sums"
    out = np.minimum(np.floor(wanted).astype(np.int64), most)
    while True:
        lack = sums - out.sum(axis=0)
        if not lack.any():
            return out
        up = lack > 0
        # the cost of a unit more, or less: the nearest first, and none where there is no room
        cost = np.where(up, out - wanted, wanted - out)
        cost[np.where(up, out >= most, out <= 0)] = np.inf
        order = np.argsort(cost, axis=0, kind="stable")
        rank = np.empty_like(order)
        np.put_along_axis(rank, order, np.arange(len(order))[:, None], axis=0)
        room = np.isfinite(cost)
        out += np.where((rank < np.abs(lack)) & room, np.sign(lack), 0)


def nearest_real(wanted: FloatArray, most: FloatArray, sums: FloatArray) -> FloatArray:
    """(n, s) numbers from 0 to `most` whose columns have these sums, nearest to `wanted` in squares.

    wanted: (n, s); sums: (s,), at most those of `most`. All that is inside moves alike: by how much is halved in.
    """
    low, high = (-wanted).min(axis=0), (most - wanted).max(axis=0)
    for _ in range(_HALVED):
        shift = (low + high) / 2
        less = np.clip(wanted + shift, 0.0, most).sum(axis=0) < sums
        low, high = np.where(less, shift, low), np.where(less, high, shift)
    out = np.clip(wanted + (low + high) / 2, 0.0, most)
    # rounding, to where there is room
    lack = sums - out.sum(axis=0)
    room = np.where(lack > 0, most - out, out)
    free = room.sum(axis=0)
    return out + room * np.divide(lack, free, out=np.zeros_like(free), where=free > 0)


def split_totals(
    values: FloatArray, sums: NDArray[Any], limits: FloatArray, inside: NDArray[np.bool_] | None, near: Near
) -> tuple[NDArray[Any], NDArray[Any]]:
    """(n,) totals of rows, and what of each is in the set, within limits (n, 6) that rows can meet whose columns add
    up to `sums` (k,); near: `nearest_whole` or `nearest_real`, of which both are near those of `values` (n, k).

    A total that asks for too much inside, or leaves too little, gives units to others until the sum inside is met:
    each is then at an end of what its own limits allow, and moves by one for one.
    """
    held = np.ones(len(sums), dtype=np.bool_) if inside is None else inside
    every, most1 = sums.sum(), sums[held].sum()
    # nobody has more of a cell than the parent
    ends = (every, every, every, every) if inside is None else (most1, most1, every - most1, every - most1)
    rows = np.clip(limits, 0, every) if inside is not None else np.clip(limits[:, [0, 1, 0, 1, 0, 1]], 0, every)
    if inside is None:
        rows[:, 2], rows[:, 4:] = 0, 0
    rows[:, 3], rows[:, 5] = np.minimum(rows[:, 3], ends[0]), np.minimum(rows[:, 5], ends[2])
    rows = tighten_limits(rows)
    rows = np.rint(rows).astype(np.int64) if near is nearest_whole else rows
    low, high, low1, high1, low2, high2 = rows.T
    real, real1 = values.sum(axis=1), values[:, held].sum(axis=1)
    total = low + _nearest_column(near, real - low, high - low, every - low.sum())

    def most_of(towards: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """How much every total can fall, and rise, on its way to a number."""
        return np.maximum(total - np.maximum(towards, low), 0), np.maximum(np.minimum(towards, high) - total, 0)

    # what must be inside is too much where totals are above all that may be outside; what may be, too little
    for towards, short in (
        (low1 + high2, np.maximum(low1, total - high2).sum() - most1),
        (high1 + low2, most1 - np.minimum(high1, total - low2).sum()),
    ):
        if short > 0:
            fall, rise = most_of(towards)
            short = min(short, fall.sum(), rise.sum())
            none = np.zeros(len(total))
            total = total - _nearest_column(near, none, fall, short) + _nearest_column(near, none, rise, short)
    least, largest = np.maximum(low1, total - high2), np.minimum(high1, total - low2)
    share = np.divide(real1, real, out=np.full(len(real), float(most1 / max(every, 1))), where=real > 0)
    within = least + _nearest_column(near, total * share - least, np.maximum(largest - least, 0), most1 - least.sum())
    return total, within


def _nearest_column(near: Near, wanted: FloatArray, most: NDArray[Any], total: Any) -> NDArray[Any]:
    """(n,) of one column; what is far from its sum comes near in real numbers first."""
    given, sums = most[:, None], np.array([total])
    if near is nearest_whole:
        real = nearest_real(wanted[:, None], given.astype(np.float64), sums.astype(np.float64))
        return nearest_whole(np.clip(real, 0, given), given, sums)[:, 0]
    return near(wanted[:, None], given, np.clip(sums, 0, given.sum()))[:, 0]


def whole_family(values: FloatArray, sums: IntArray, halves: CellHalves, limits: FloatArray | None = None) -> IntArray:
    """(n, k) whole numbers near real ones, columns adding up to `sums` (k,) exactly; and rows to what is between the
    `limits` (n, 6) that totals, and their records inside of the set, have."""
    if limits is not None:
        totals, within = split_totals(values, sums, limits, halves.inside, nearest_whole)
        return _split_cells(values, sums, halves, totals, nearest_whole, within)
    every = int(sums.sum())
    wanted = np.clip(values.sum(axis=1), 0.0, every)
    totals = nearest_whole(wanted[:, None], np.full((len(values), 1), every), np.array([every]))[:, 0]
    return _split_cells(values, sums, halves, totals, nearest_whole)


def real_family(values: FloatArray, sums: FloatArray, halves: CellHalves, limits: FloatArray) -> FloatArray:
    """(n, k) counts near others, columns adding up to `sums` (k,) and rows within `limits` (n, 6)."""
    totals, within = split_totals(values, sums, limits, halves.inside, nearest_real)
    return _split_cells(values, sums, halves, totals, nearest_real, within)


def _split_cells(
    values: FloatArray,
    sums: NDArray[Any],
    halves: CellHalves,
    totals: NDArray[Any],
    near: Near,
    within: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """within: (n,) of each row in the set."""
    n, k = values.shape
    real = np.concatenate([np.zeros((n, 1)), np.cumsum(values[:, halves.order], axis=1)], axis=1)
    total = np.concatenate([np.zeros(1, dtype=sums.dtype), np.cumsum(sums[halves.order])])
    held = np.zeros((n, k), dtype=totals.dtype)
    held[:, 0] = totals
    chosen = within if halves.crossed() else None
    for first, middle, last in halves.splits:
        here = held[:, first]
        if chosen is not None:
            held[:, first], held[:, middle] = chosen[:, None], here - chosen[:, None]
            chosen = None
            continue
        left, both = real[:, middle] - real[:, first], real[:, last] - real[:, first]
        parents = (total[middle] - total[first]) / (total[last] - total[first])
        share = np.divide(left, both, out=np.broadcast_to(parents, left.shape).copy(), where=both > 0)
        found = near(here * np.clip(share, 0.0, 1.0), here, total[middle] - total[first])
        held[:, first] = found
        held[:, middle] = here - found
    out = np.empty_like(held)
    out[:, halves.order] = held
    return out


def whole_parts(values: FloatArray, total: int, halves: CellHalves, limits: FloatArray | None = None) -> IntArray:
    """(k,) whole numbers near real ones that add up to `total`, and of these inside of the set within limits (6,)."""
    real = np.concatenate([[0.0], np.cumsum(values[halves.order])])
    held = np.zeros(len(values), dtype=np.int64)
    held[:1] = total
    for first, middle, last in halves.splits:
        left, both = real[middle] - real[first], real[last] - real[first]
        share = np.divide(left, both, out=np.full(len(left), 0.5), where=both > 0)
        found = np.rint(held[first] * np.clip(share, 0.0, 1.0)).astype(np.int64)
        if limits is not None and halves.crossed() and len(first) == 1 and last[0] - first[0] == len(values):
            found = np.clip(found, *_inside_bounds(limits, total)).astype(np.int64)
        held[middle] = held[first] - found
        held[first] = found
    out = np.empty_like(held)
    out[halves.order] = held
    return out


def _inside_bounds(limits: FloatArray, total: float) -> tuple[float, float]:
    """The least and the most inside of the set of a row of this total."""
    return max(float(limits[2]), total - float(limits[5])), min(float(limits[3]), total - float(limits[4]))


def real_parts(values: FloatArray, inside: NDArray[np.bool_] | None, limits: FloatArray) -> FloatArray:
    """(k,) counts with the total of others, of which as many are inside of the set as limits (6,) allow."""
    if inside is None:
        return values
    total, held = float(values.sum()), float(values[inside].sum())
    wanted = float(np.clip(held, *_inside_bounds(limits, total)))
    out = values.copy()
    for where, own, new in ((inside, held, wanted), (~inside, total - held, total - wanted)):
        if where.any():
            # where nothing was, all alike
            out[where] = out[where] * (new / own) if own > 0 else new / int(where.sum())
    return out
