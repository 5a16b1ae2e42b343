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

from sfumato.estimate.spine.cells import Cells, IntArray, Sets
from sfumato.operators.base import FloatArray

__all__ = [
    "Halves",
    "chain",
    "nearest_real",
    "nearest_whole",
    "real_family",
    "real_totals",
    "whole_family",
    "whole_parts",
]

_HALVED = 60  # times: what doubles tell apart


def chain(cells: Cells, asked: Sequence[Sets]) -> tuple[Sets, ...]:
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
class Halves:
    """order: the cells as they stand beside each other; per depth the runs [first, last) that are split before
    `middle`."""

    order: IntArray
    splits: tuple[tuple[IntArray, IntArray, IntArray], ...]

    @classmethod
    def of(cls, cells: Cells, chosen: IntArray, steps: Sequence[Sets]) -> Halves:
        """Of some cells: first those of the first step's table apart, then within each those of the next one's."""
        keys = [cells.number(s, chosen) for s in steps]
        order = np.lexsort(keys[::-1]) if keys else np.arange(len(chosen))
        # the first step at which a cell differs from the one before it
        first = np.full(max(len(chosen) - 1, 0), len(keys))
        for j in range(len(keys) - 1, -1, -1):
            moved = np.diff(keys[j][order]) != 0
            first[moved] = j
        return cls(order, _halved(first, len(chosen)))


def _halved(first: IntArray, count: int) -> tuple[tuple[IntArray, IntArray, IntArray], ...]:
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


def real_totals(wanted: FloatArray, limits: FloatArray, total: float) -> FloatArray:
    """(n,) numbers within limits (n, 2), whose least add up to at most `total` and whose largest to at least that, with
    that sum and nearest to `wanted`."""
    low, high = limits[:, :1], np.minimum(limits[:, 1:], total)
    return (low + nearest_real(wanted[:, None] - low, high - low, np.array([total - low.sum()])))[:, 0]


def whole_family(values: FloatArray, sums: IntArray, halves: Halves, limits: FloatArray | None = None) -> IntArray:
    """(n, k) whole numbers near real ones, columns adding up to `sums` (k,) exactly; and rows to what is between the
    `limits` (n, 2) that totals have, as `real_totals` takes them."""
    every = int(sums.sum())
    within = np.array([[0.0, np.inf]]) if limits is None else limits
    low, high = np.rint(np.clip(np.broadcast_to(within, (len(values), 2)), 0, every)).astype(np.int64).T
    wanted = np.clip(values.sum(axis=1) - low, 0.0, high - low)
    totals = low + nearest_whole(wanted[:, None], (high - low)[:, None], np.array([every - low.sum()]))[:, 0]
    return _split(values, sums, halves, totals, nearest_whole)


def real_family(values: FloatArray, sums: FloatArray, halves: Halves, limits: FloatArray) -> FloatArray:
    """(n, k) counts near others, columns adding up to `sums` (k,) and rows within `limits` (n, 2)."""
    totals = real_totals(values.sum(axis=1), limits, float(sums.sum()))
    return _split(values, sums, halves, totals, nearest_real)


def _split(
    values: FloatArray,
    sums: NDArray[Any],
    halves: Halves,
    totals: NDArray[Any],
    near: Callable[[FloatArray, NDArray[Any], NDArray[Any]], NDArray[Any]],
) -> NDArray[Any]:
    n, k = values.shape
    real = np.concatenate([np.zeros((n, 1)), np.cumsum(values[:, halves.order], axis=1)], axis=1)
    total = np.concatenate([np.zeros(1, dtype=sums.dtype), np.cumsum(sums[halves.order])])
    held = np.zeros((n, k), dtype=totals.dtype)
    held[:, 0] = totals
    for first, middle, last in halves.splits:
        here = held[:, first]
        left, both = real[:, middle] - real[:, first], real[:, last] - real[:, first]
        parents = (total[middle] - total[first]) / (total[last] - total[first])
        share = np.divide(left, both, out=np.broadcast_to(parents, left.shape).copy(), where=both > 0)
        found = near(here * np.clip(share, 0.0, 1.0), here, total[middle] - total[first])
        held[:, first] = found
        held[:, middle] = here - found
    out = np.empty_like(held)
    out[:, halves.order] = held
    return out


def whole_parts(values: FloatArray, total: int, halves: Halves) -> IntArray:
    """(k,) whole numbers near real ones that add up to `total`."""
    real = np.concatenate([[0.0], np.cumsum(values[halves.order])])
    held = np.zeros(len(values), dtype=np.int64)
    held[:1] = total
    for first, middle, last in halves.splits:
        left, both = real[middle] - real[first], real[last] - real[first]
        share = np.divide(left, both, out=np.full(len(left), 0.5), where=both > 0)
        found = np.rint(held[first] * np.clip(share, 0.0, 1.0)).astype(np.int64)
        held[middle] = held[first] - found
        held[first] = found
    out = np.empty_like(held)
    out[halves.order] = held
    return out
