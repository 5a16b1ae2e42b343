"""From counted blocks to the tables that were asked: summing down, and handing out in batches."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from sfumato.wall.rows.clusters import Cluster

__all__ = ["Batch", "Outbox", "sum_down"]

Table = NDArray[np.int64]
Batch = tuple[int, NDArray[np.intp], Table]
"""A family, positions in it, and the tables of these sets, stacked."""

# Cells of a batch: at least, where as many have one shape, and at most, unless a single table has more.
_LEAST_CELLS = 2**17
_MOST_CELLS = 2**20  # 8 MB: batches stay near the caches, and their overhead is small
# Shorter runs than this are summed faster by einsum than by sum.
_SHORT = 64


def sum_down(cluster: Cluster, tables: Table) -> Iterator[tuple[int, Table]]:
    """Every answer of a cluster's blocks: its column, and the tables of all blocks (blocks, n_1, ..., n_order).

    tables: (blocks, cells), the receiver's to keep. Nothing that was handed out is looked at again.
    """
    wanted = [(column, frozenset(kept)) for column, (_, kept) in enumerate(cluster.answers)]
    for column, table in _descend(tables, len(cluster.blocks), cluster.sizes, 0, wanted):
        sizes = (cluster.sizes[axis] for axis in cluster.answers[column][1])
        yield column, table.reshape(len(cluster.blocks), *sizes)


def _descend(
    table: Table, before: int, sizes: Sequence[int], axis: int, wanted: Sequence[tuple[int, frozenset[int]]]
) -> Iterator[tuple[int, Table]]:
    """Axis by axis: sum it away for those that lack it, then keep it for the others; partial sums are shared.

    before: cells of `table` before this axis.
    """
    if axis == len(sizes):
        for column, _ in wanted[:-1]:
            yield column, table.copy()
        yield wanted[-1][0], table
        return
    lacking = [w for w in wanted if axis not in w[1]]
    if lacking:
        stop = axis + 1
        while stop < len(sizes) and not any(stop in kept for _, kept in lacking):
            stop += 1
        yield from _descend(_sum_away(table, before, math.prod(sizes[axis:stop])), before, sizes, stop, lacking)
    having = [w for w in wanted if axis in w[1]]
    if having:
        yield from _descend(table, before * sizes[axis], sizes, axis + 1, having)


def _sum_away(table: Table, before: int, length: int) -> Table:
    """The axis of `length` cells after `before` others summed away."""
    split = table.reshape(before, length, -1)
    if split.shape[2] >= _SHORT:
        return split.sum(axis=1)
    return np.einsum("ijk->ik", split)


class Outbox:
    """Gathers tables of one shape into batches, and never holds more than a million cells."""

    def __init__(self) -> None:
        self._held: dict[tuple[int, tuple[int, ...]], list[tuple[NDArray[np.intp], Table]]] = {}
        self._cells: dict[tuple[int, tuple[int, ...]], int] = {}

    def put(self, family: int, positions: NDArray[np.intp], tables: Table) -> Iterator[Batch]:
        """Take the tables of some sets of a family; yields the batches that are then full."""
        key = family, tables.shape[1:]
        cells = self._cells.get(key, 0) + tables.size
        if cells > _MOST_CELLS and key in self._held:
            yield self._take(key)
            cells = tables.size
        self._held.setdefault(key, []).append((positions, tables))
        self._cells[key] = cells
        if cells >= _LEAST_CELLS:
            yield self._take(key)
        elif sum(self._cells.values()) > _MOST_CELLS:
            yield from self.rest()

    def rest(self) -> Iterator[Batch]:
        """All that is still held."""
        for key in list(self._held):
            yield self._take(key)

    def _take(self, key: tuple[int, tuple[int, ...]]) -> Batch:
        del self._cells[key]
        positions, tables = zip(*self._held.pop(key), strict=True)
        if len(tables) == 1:
            return key[0], positions[0], tables[0]
        return key[0], np.concatenate(positions), np.concatenate(tables)
