"""Exact counts of marginals over records that are already encoded as cell numbers.

A hundred attributes have 161,700 three-way tables and more cells than memory should hold, so tables are
counted and handed out a batch at a time. Fewer and larger blocks may be counted than are asked (clusters.py):
what lies inside a block follows by summation.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato.cells import Grid
from sfumato.errors import PlanError, SourceError
from sfumato.wall.rows.clusters import Cluster, Packing, Sets, alone, clusters
from sfumato.wall.rows.summing import Batch, Outbox, sum_down

__all__ = ["ColumnCounts", "Counts", "PackedCounts", "TableCounts", "TensorCounts", "check_countable", "tally"]

AttributeSet = tuple[str, ...]
Table = NDArray[np.int64]
Columns = NDArray[Any] | Mapping[int, NDArray[Any]]
"""Cell numbers of some records: attributes by records, or the column of each attribute."""

MAX_CELLS = 2**26  # 512 MB for the one table that is counted at a time: 25,000 blocks by 2,016 cells are 50,400,000
_MAX_ORDER = 32  # of two cells or more each these are more than MAX_CELLS already
# Records whose keys are built at once stay in the caches; more are read at once from a database.
_CHUNK_ROWS = 2**16
_READ_ROWS = 2**18  # a few megabytes of every attribute
# Cells of the blocks that are summed down together, unless one has more.
_PART_CELLS = 2**18


def check_countable(grid: Grid, sets: Sets) -> None:
    """Refuse sets that cannot be counted; it looks at no data, so it can be asked before a budget is charged.

    sets: arrays (count, order) of ascending positions in the domain. Raises PlanError for a table of more
    than 67,108,864 cells or 32 attributes.
    """
    sizes = np.array(grid.shape, dtype=np.float64)
    for family in sets:
        if family.shape[1] > _MAX_ORDER:
            raise PlanError(f"a table of {family.shape[1]} attributes is asked; at most {_MAX_ORDER} can be counted")
        cells = sizes[family].prod(axis=1)
        if cells.max(initial=0) > MAX_CELLS:
            axes = family[int(cells.argmax())].tolist()
            raise PlanError(
                f"the table of {_listed(grid, axes)} has {math.prod(grid.shape[a] for a in axes):,} cells; at most "
                f"{MAX_CELLS:,} can be counted at once: ask smaller sets of attributes or declare wider cells"
            )


def _listed(grid: Grid, axes: Sequence[int]) -> str:
    return ", ".join(grid.names[a] for a in axes) or "the total"


@dataclass(frozen=True, slots=True, eq=False)
class Counts(ABC):
    """What the curator asks of an opened source; `rows`, the number of encoded records, may be private.

    `cut` is the number of persons who had more rows than are counted. All sources share the check against `rows`,
    summing down, and handing out in batches.
    """

    grid: Grid
    rows: int = field(repr=False)
    cut: int = field(default=0, repr=False, kw_only=True)

    @abstractmethod
    def _tables(self, sets: Sets) -> Iterator[tuple[Cluster, Table]]:
        """Counted blocks and what each has to answer, flat: (blocks, cells)."""

    def stream(self, sets: Sets) -> Iterator[Batch]:
        """Exact marginal counts of every set of every family, a batch at a time, in an order of its own.

        sets: one array (count, order) per family, of ascending positions in the domain, no row twice.
        Yields the family, positions in it, and their tables (len(positions), n_1, ..., n_order), int64 and
        the receiver's to keep. A batch has at most about a million cells, or is one larger table.
        Raises what `check_countable` raises, and SourceError when a table does not sum to `rows`.
        """
        check_countable(self.grid, sets)
        return self._stream(sets)

    def _stream(self, sets: Sets) -> Iterator[Batch]:
        outbox = Outbox()
        for cluster, tables in self._tables(sets):
            wrong = np.flatnonzero(tables.sum(axis=1) != self.rows)
            if wrong.size:
                raise SourceError(
                    f"the table of {_listed(self.grid, cluster.blocks[wrong[0]].tolist())} does not add up to the "
                    "number of records: the source changed while it was read, or its encoding is wrong"
                )
            for column, table in sum_down(cluster, tables):
                yield from outbox.put(cluster.answers[column][0], cluster.positions[:, column], table)
        yield from outbox.rest()

    def count(self, sets: Sequence[AttributeSet]) -> dict[AttributeSet, Table]:
        """Exact marginal counts of each set of attributes, all at once.

        Returns int64 arrays shaped by the attributes of the set, in the order given; `()` is a 0-d total.
        Raises DomainError for unknown or repeated attributes, and what `stream` raises.
        """
        given = {s: tuple(map(self.grid.axis, self.grid.check_names(s))) for s in map(tuple, sets)}
        orders = sorted({len(axes) for axes in given.values()})
        families = [sorted({tuple(sorted(axes)) for axes in given.values() if len(axes) == k}) for k in orders]
        arrays = [np.array(f, dtype=np.int32).reshape(len(f), k) for f, k in zip(families, orders, strict=True)]
        found = {
            families[f][i]: table
            for f, positions, tables in self.stream(arrays)
            for i, table in zip(positions.tolist(), tables, strict=True)
        }
        return {
            s: np.array(found[tuple(sorted(axes))].transpose(np.argsort(np.argsort(axes))), order="C")
            for s, axes in given.items()
        }


@dataclass(frozen=True, slots=True, eq=False)
class PackedCounts(Counts):
    """Sources that hold records; as many blocks are counted in one pass over them as memory may hold.

    `packing` proposes which blocks. It is not trusted, so it is asked for the same few numbers of records whatever
    theirs is, and the nearest proposal is taken. What it raises, or a proposal that does not hold, is not worth a
    budget that is spent: every set is counted by itself then.
    """

    _PASS_CELLS: ClassVar[int] = 2**24
    # Numbers of records that are proposed for: what is packed changes by a sixth between neighbours, and not beyond.
    _SIZES: ClassVar[tuple[int, ...]] = (2**10, 2**13, 2**16, 2**20)
    packing: Packing = field(default=alone, repr=False, kw_only=True)

    @abstractmethod
    def _pass(self, parts: list[Cluster]) -> Iterator[tuple[Cluster, Table]]:
        """Counted blocks of one pass."""

    def _packed(self, sets: Sets) -> list[Cluster]:
        shape = self.grid.shape
        with suppress(Exception):
            offers = [self.packing(shape, sets, size) for size in self._SIZES]
            nearest = min(range(len(offers)), key=lambda i: abs(math.log(self._SIZES[i] / max(self.rows, 1))))
            found = clusters(shape, sets, *offers[nearest])
            if all(math.prod(c.sizes) <= MAX_CELLS for c in found):
                return found
        return clusters(shape, sets, *alone(shape, sets, self._SIZES[0]))

    def _tables(self, sets: Sets) -> Iterator[tuple[Cluster, Table]]:
        for parts in passes(self._packed(sets), self._PASS_CELLS):
            yield from self._pass(parts)


@dataclass(frozen=True, slots=True, eq=False)
class ColumnCounts(PackedCounts):
    """Encoded records in memory: one array of cell numbers (uint8, uint16 or uint32) per attribute."""

    _PASS_CELLS = _PART_CELLS
    columns: tuple[NDArray[Any], ...] = field(repr=False)

    def _pass(self, parts: list[Cluster]) -> Iterator[tuple[Cluster, Table]]:
        # A matrix lets the keys of several blocks be built at once, which pays for few records.
        columns = np.stack(self.columns) if self.rows <= _CHUNK_ROWS // 2 else dict(enumerate(self.columns))
        return _handed_out(parts, tally(parts, lambda _: iter([columns])), self.rows)


@dataclass(frozen=True, slots=True, eq=False)
class TableCounts(PackedCounts):
    """Encoded records that stay in a database, larger than memory.

    `read` returns the cell numbers of the attributes at the given axes, one array each, of the records
    from `start` to below `stop`, always the same records for the same numbers.
    """

    read: Callable[[Sequence[int], int, int], Sequence[NDArray[Any]]] = field(repr=False)

    def _pass(self, parts: list[Cluster]) -> Iterator[tuple[Cluster, Table]]:
        def chunks(needed: NDArray[np.int64]) -> Iterator[Columns]:
            axes = needed.tolist()
            for start in range(0, self.rows, _READ_ROWS):
                found = self.read(axes, start, min(start + _READ_ROWS, self.rows))
                yield dict(zip(axes, found, strict=True))

        return _handed_out(parts, tally(parts, chunks), self.rows)


@dataclass(frozen=True, slots=True, eq=False)
class TensorCounts(Counts):
    """Counts already tabulated over the whole domain, shaped by it."""

    tensor: Table = field(repr=False)

    def _tables(self, sets: Sets) -> Iterator[tuple[Cluster, Table]]:
        whole = np.arange(self.tensor.ndim)[None]
        for cluster in clusters(self.tensor.shape, sets, whole, [np.zeros(len(s), dtype=np.int64) for s in sets]):
            # handed out as it is, the tensor would no longer be this object's own
            asked = any(len(kept) == self.tensor.ndim for _, kept in cluster.answers)
            yield cluster, (self.tensor.copy() if asked else self.tensor).reshape(1, -1)


def passes(packed: Sequence[Cluster], most: int) -> Iterator[list[Cluster]]:
    """Lists of clusters, or parts of them, of at most `most` cells unless one block has more."""
    parts: list[Cluster] = []
    room = most
    for cluster in packed:
        cells = math.prod(cluster.sizes)
        start = 0
        while start < len(cluster.blocks):
            if parts and cells > room:
                yield parts
                parts, room = [], most
            stop = min(start + max(1, min(room, _PART_CELLS) // cells), len(cluster.blocks))
            parts.append(cluster.part(start, stop))
            room -= cells * (stop - start)
            start = stop
    if parts:
        yield parts


def _handed_out(parts: list[Cluster], tables: list[Table], rows: int) -> Iterator[tuple[Cluster, Table]]:
    """One after the other, and not held here any longer."""
    while parts:
        part, table = parts.pop(), tables.pop()
        yield part, table if part.sizes else table + rows


def tally(parts: Sequence[Cluster], read: Callable[[NDArray[np.int64]], Iterator[Columns]]) -> list[Table]:
    """Counts of the blocks of every part (blocks, cells), all in one pass; zeros for blocks of no attribute.

    read: the columns of some attributes, chunk by chunk, from the first record to the last.
    """
    tables = [np.zeros((len(p.blocks), math.prod(p.sizes)), dtype=np.int64) for p in parts]
    needed = np.unique(np.concatenate([p.blocks.reshape(-1) for p in parts]))
    for columns in read(needed) if len(needed) else ():
        for part, table in zip(parts, tables, strict=True):
            _add(columns, part, table)
    return tables


def _add(columns: Columns, part: Cluster, tables: Table) -> None:
    """Add the records in `columns` to the tables of some blocks."""
    sizes, cells = part.sizes, tables.shape[1]
    if not sizes:
        return
    # Narrow keys: sixteen bits where they suffice are twice as fast to build as thirty-two.
    kind = np.uint16 if cells < 2**16 else np.uint32
    several = isinstance(columns, np.ndarray)
    rows = columns.shape[1] if several else len(next(iter(columns.values())))
    together = max(1, _CHUNK_ROWS // max(1, rows)) if several else 1
    for first in range(0, len(tables), together):
        blocks = part.blocks[first : first + together].T
        given = [columns[axes] if several else columns[axes[0]][None] for axes in blocks]
        offsets = np.arange(blocks.shape[1])[:, None] * cells
        flat = tables[first : first + together].reshape(-1)
        for start in range(0, rows, _CHUNK_ROWS):
            key = given[0][:, start : start + _CHUNK_ROWS].astype(kind)
            for column, size in zip(given[1:], sizes[1:], strict=True):
                np.multiply(key, kind(size), out=key)
                np.add(key, column[:, start : start + _CHUNK_ROWS], out=key)
            index = key.astype(np.intp)
            index += offsets
            try:
                np.add.at(flat, index.reshape(-1), 1)
            except IndexError:  # no such cell; its text would quote the data, so the check against rows refuses
                flat[:] = -1
