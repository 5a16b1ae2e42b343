"""Exact counts of marginals over records that are already encoded as cell numbers.

A hundred attributes have 161,700 three-way tables and more cells than memory should hold, so tables are
counted and handed out a batch at a time. Fewer and larger blocks may be counted than are asked (`cluster_blocks`):
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

from sfumato._util.codec import distinct_rows
from sfumato.cells import MAX_MEASURES, Grid
from sfumato.errors import PlanError, SourceError

Sets = Sequence[NDArray[np.int32]]
Positions = NDArray[np.int64]
Proposal = tuple[Positions, Sequence[Positions]]
"""(blocks, width) ascending positions, filled up with the number of attributes; per family the block of every set."""
Packing = Callable[[Sequence[int], Sets, int], Proposal]
"""From the cells of every attribute, the sets asked and the number of records."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Blocks of one shape that answer the same subsets of theirs.

    blocks: (count, width) ascending positions of attributes, of `sizes` cells.
    answers: family and the kept axes of a block, one for every column of `positions`.
    positions: (count, answers) which sets of those families they are.
    """

    blocks: Positions
    sizes: tuple[int, ...]
    answers: tuple[tuple[int, tuple[int, ...]], ...]
    positions: Positions

    def part(self, start: int, stop: int) -> Cluster:
        """Some of the blocks."""
        return Cluster(self.blocks[start:stop], self.sizes, self.answers, self.positions[start:stop])


def one_block_per_set(shape: Sequence[int], sets: Sets, rows: int) -> Proposal:
    """Every set is a block of its own."""
    del rows
    width = max((s.shape[1] for s in sets), default=0)
    blocks = np.full((sum(map(len, sets)), width), len(shape))
    homes: list[Positions] = []
    end = 0
    for family in sets:
        homes.append(end + np.arange(len(family)))
        blocks[end : end + len(family), : family.shape[1]] = family
        end += len(family)
    return blocks, homes


def cluster_blocks(shape: Sequence[int], sets: Sets, blocks: Positions, homes: Sequence[Positions]) -> list[Cluster]:
    """Blocks sorted by what they have in common; `homes` tells the block of every set of every family.

    Raises PlanError for what does not answer every set: a set that does not lie in its block, or a block that is none.
    """
    if not any(map(len, sets)):
        return []
    count = len(shape)
    _check_block_list(count, sets, blocks, homes)
    filled = np.append(blocks, np.full((len(blocks), 1), count), axis=1)
    answers: list[tuple[int, tuple[int, ...]]] = []
    block, code, position = ([np.zeros(0, dtype=np.int64)] for _ in range(3))
    for f, (family, home) in enumerate(zip(sets, homes, strict=True)):
        axes = np.zeros(family.shape, dtype=np.int64)
        for column in blocks.T:
            axes += column[home, None] < family
        if not np.array_equal(filled[home[:, None], axes], family):
            raise PlanError("a set does not lie in the block that is to answer it")
        first, kind = distinct_rows(axes, count + 1)
        block.append(home)
        code.append(len(answers) + kind)
        position.append(np.arange(len(family)))
        answers += [(f, tuple(kept)) for kept in axes[first].tolist()]
    of, codes, positions = map(np.concatenate, (block, code, position))
    order = np.lexsort((codes, of))
    of, codes, positions = of[order], codes[order], positions[order]
    sizes = np.append(np.asarray(shape, dtype=np.int64), 0)[blocks]
    _, look = distinct_rows(sizes, max(shape, default=0) + 1)
    members = np.bincount(of, minlength=len(blocks))
    starts = np.cumsum(members) - members
    result: list[Cluster] = []
    for n in np.unique(members).tolist():
        alike = np.flatnonzero(members == n)
        entries = starts[alike, None] + np.arange(n)
        both = np.column_stack([look[alike], codes[entries]])
        first, kind = distinct_rows(both, max(len(blocks), len(answers)) + 1)
        by_kind = np.argsort(kind, kind="stable")
        for one, chosen in zip(first, np.split(by_kind, np.cumsum(np.bincount(kind))[:-1]), strict=True):
            width = int((blocks[alike[one]] < count).sum())
            result.append(
                Cluster(
                    blocks[alike[chosen], :width],
                    tuple(sizes[alike[one], :width].tolist()),
                    tuple(answers[c] for c in codes[entries[one]].tolist()),
                    positions[entries[chosen]],
                )
            )
    return result


def _check_block_list(count: int, sets: Sets, blocks: Positions, homes: Sequence[Positions]) -> None:
    """Refuse what is no list of blocks that can be counted, with one of them for each set."""
    below, after = blocks[:, :-1], blocks[:, 1:]
    ascending = ((below < after) | ((below == count) & (after == count))).all()
    if not ascending or blocks.min(initial=0) < 0 or blocks.max(initial=0) > count:
        raise PlanError("a block is a set of attributes, by ascending positions")
    for family, home in zip(sets, homes, strict=True):
        if home.shape != (len(family),) or (len(home) and not 0 <= home.min() <= home.max() < len(blocks)):
            raise PlanError("every set has one block that answers it")


Table = NDArray[np.int64]
Batch = tuple[int, NDArray[np.intp], Table]
"""A family, positions in it, and the tables of these sets, stacked."""

# Cells of a batch: at least, where as many have one shape, and at most, unless a single table has more.
_LEAST_CELLS = 2**17
_MOST_CELLS = 2**20  # 8 MB: batches stay near the caches, and their overhead is small
# Shorter runs than this are summed faster by einsum than by sum.
_SHORT = 64


def sum_to_answers(cluster: Cluster, tables: Table) -> Iterator[tuple[int, Table]]:
    """Every answer of a cluster's blocks: its column, and the tables of all blocks (blocks, n_1, ..., n_order).

    tables: (blocks, cells), the receiver's to keep. Nothing that was handed out is looked at again.
    """
    wanted = [(column, frozenset(kept)) for column, (_, kept) in enumerate(cluster.answers)]
    for column, table in _sum_axes(tables, len(cluster.blocks), cluster.sizes, 0, wanted):
        sizes = (cluster.sizes[axis] for axis in cluster.answers[column][1])
        yield column, table.reshape(len(cluster.blocks), *sizes)


def _sum_axes(
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
        yield from _sum_axes(_sum_axis_away(table, before, math.prod(sizes[axis:stop])), before, sizes, stop, lacking)
    having = [w for w in wanted if axis in w[1]]
    if having:
        yield from _sum_axes(table, before * sizes[axis], sizes, axis + 1, having)


def _sum_axis_away(table: Table, before: int, length: int) -> Table:
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


AttributeSet = tuple[str, ...]
Columns = NDArray[Any] | Mapping[int, NDArray[Any]]
"""Cell numbers of some records: attributes by records, or the column of each attribute."""

MAX_CELLS = 2**26  # 512 MB for the one table that is counted at a time: 25,000 blocks by 2,016 cells are 50,400,000
_MAX_ORDER = 32  # of two cells or more each these are more than MAX_CELLS already
# Records whose keys are built at once stay in the caches; more are read at once from a database.
_CHUNK_ROWS = 2**16
# Cells of the blocks that are summed down together, unless one has more.
_PART_CELLS = 2**18


def check_countable(grid: Grid, sets: Sets, *, measures: bool = False) -> None:
    """Refuse sets that cannot be counted; it looks at no data, so it can be asked before a budget is charged.

    sets: arrays (count, order) of ascending positions in the domain. `measures`: whether some may be among them, whose
    tables hold shares of records. Raises PlanError for a table of more than 67,108,864 cells, 32 attributes or three
    measures.
    """
    sizes = np.array(grid.shape, dtype=np.float64)
    summed = np.array([n in grid.measures for n in grid.names])
    for family in sets:
        if summed[family].sum(axis=1).max(initial=0) > (MAX_MEASURES if measures else 0):
            raise PlanError(f"one table sums up to {MAX_MEASURES} measures jointly, and only a release sums them")
        if family.shape[1] > _MAX_ORDER:
            raise PlanError(f"a table of {family.shape[1]} attributes is asked; at most {_MAX_ORDER} can be counted")
        cells = sizes[family].prod(axis=1)
        if cells.max(initial=0) > MAX_CELLS:
            axes = family[int(cells.argmax())].tolist()
            raise PlanError(
                f"the table of {_axes_names(grid, axes)} has {math.prod(grid.shape[a] for a in axes):,} cells; at most "
                f"{MAX_CELLS:,} can be counted at once: ask smaller sets of attributes or declare wider cells"
            )


def _axes_names(grid: Grid, axes: Sequence[int]) -> str:
    return ", ".join(grid.names[a] for a in axes) or "the total"


@dataclass(frozen=True, slots=True, eq=False)
class Counts(ABC):
    """What the curator asks of an opened source; `rows`, the number of encoded records, may be private.

    `cut` is the number of persons who had more rows than are counted. All sources share the check against `rows`,
    summing down, and handing out in batches.
    """

    kept: ClassVar[bool] = True  # what may be asked for any tables
    grid: Grid
    rows: int = field(repr=False)
    cut: int = field(default=0, repr=False, kw_only=True)

    @abstractmethod
    def _tables(self, sets: Sets) -> Iterator[tuple[Cluster, Table]]:
        """Counted blocks and what each has to answer, flat: (blocks, cells)."""

    def shared(self, sets: Sequence[Sequence[int]]) -> Iterator[tuple[tuple[int, ...], Table]]:
        """The tables of sets of attributes, measures among each, in an order of its own: how much of the records lies
        where.

        sets: ascending positions, no set twice. Yields the set and its table, shaped by it and the receiver's to keep.
        Numbers are of `SHARES` a record, see `shares`. Raises SourceError where shares do not add up to those of
        all records, and for counts, of which no record is known.
        """
        del sets
        raise SourceError("this source holds counts; measures are summed over the rows of a table")

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
                    f"the table of {_axes_names(self.grid, cluster.blocks[wrong[0]].tolist())} does not add up to the "
                    "number of records: the source changed while it was read, or its encoding is wrong"
                )
            for column, table in sum_to_answers(cluster, tables):
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
    packing: Packing = field(default=one_block_per_set, repr=False, kw_only=True)

    @abstractmethod
    def _pass(self, parts: list[Cluster]) -> Iterator[tuple[Cluster, Table]]:
        """Counted blocks of one pass."""

    def _packed(self, sets: Sets) -> list[Cluster]:
        shape = self.grid.shape
        with suppress(Exception):
            # copies, in and out: what is measured was priced with these very sets
            offers = [self.packing(shape, [s.copy() for s in sets], size) for size in self._SIZES]
            nearest = min(range(len(offers)), key=lambda i: abs(math.log(self._SIZES[i] / max(self.rows, 1))))
            blocks, homes = offers[nearest]
            found = cluster_blocks(shape, sets, np.array(blocks), [np.array(home) for home in homes])
            # a measure's codes are no cells, and are never counted
            summed = self.grid.summed_axes
            if all(math.prod(c.sizes) <= MAX_CELLS and not np.isin(c.blocks, summed).any() for c in found):
                return found
        return cluster_blocks(shape, sets, *one_block_per_set(shape, sets, self._SIZES[0]))

    def _tables(self, sets: Sets) -> Iterator[tuple[Cluster, Table]]:
        yield from self._passes(self._packed(sets))

    def _passes(self, packed: Sequence[Cluster]) -> Iterator[tuple[Cluster, Table]]:
        """Counted blocks, pass after pass."""
        for parts in counting_passes(packed, self._PASS_CELLS):
            yield from self._pass(parts)

    def shared(self, sets: Sequence[Sequence[int]]) -> Iterator[tuple[tuple[int, ...], Table]]:
        from sfumato.curator.rows.shares import SHARES, blocks_of_shares  # noqa: PLC0415

        families, blocks, homes = blocks_of_shares(self.grid, sets)
        for cluster, tables in self._passes(cluster_blocks(self.grid.shape, families, blocks, homes)):
            for axes, table in zip(cluster.blocks.tolist(), tables, strict=True):
                if int(table.sum()) != self.rows * SHARES:
                    raise SourceError(
                        f"the table of {_axes_names(self.grid, axes)} does not add up to the number of records"
                    )
            for column, found in sum_to_answers(cluster, tables):
                family, positions = cluster.answers[column][0], cluster.positions[:, column]
                for i, table in zip(positions.tolist(), found, strict=True):
                    yield tuple(families[family][i].tolist()), table


@dataclass(frozen=True, slots=True, eq=False)
class ColumnCounts(PackedCounts):
    """Encoded records in memory, some after the other: of each chunk one array of cell numbers (uint8, uint16 or
    uint32) per attribute."""

    _PASS_CELLS = _PART_CELLS
    chunks: Sequence[Sequence[NDArray[Any]]] = field(repr=False)

    def _pass(self, parts: list[Cluster]) -> Iterator[tuple[Cluster, Table]]:
        # A matrix lets the keys of several blocks be built at once, which pays for few records.
        few = self.rows <= _CHUNK_ROWS // 2
        columns = (np.stack(c) if few else dict(enumerate(c)) for c in self.chunks)
        return pop_each(parts, count_parts(self.grid, parts, lambda _: columns), self.rows)


@dataclass(frozen=True, slots=True, eq=False)
class TensorCounts(Counts):
    """Counts already tabulated over the whole domain, shaped by it."""

    tensor: Table = field(repr=False)

    def _tables(self, sets: Sets) -> Iterator[tuple[Cluster, Table]]:
        whole = np.arange(self.tensor.ndim)[None]
        for cluster in cluster_blocks(self.tensor.shape, sets, whole, [np.zeros(len(s), dtype=np.int64) for s in sets]):
            # handed out as it is, the tensor would no longer be this object's own
            asked = any(len(kept) == self.tensor.ndim for _, kept in cluster.answers)
            yield cluster, (self.tensor.copy() if asked else self.tensor).reshape(1, -1)


def counting_passes(packed: Sequence[Cluster], most: int) -> Iterator[list[Cluster]]:
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


def pop_each(parts: list[Cluster], tables: list[Table], rows: int) -> Iterator[tuple[Cluster, Table]]:
    """One after the other, and not held here any longer."""
    while parts:
        part, table = parts.pop(), tables.pop()
        yield part, table if part.sizes else table + rows


def count_parts(
    grid: Grid, parts: Sequence[Cluster], read: Callable[[NDArray[np.int64]], Iterator[Columns]]
) -> list[Table]:
    """Counts of the blocks of every part (blocks, cells), all in one pass; zeros for blocks of no attribute.

    Of a block with measures, shares of records.

    read: the columns of some attributes, chunk by chunk, from the first record to the last.
    """
    shared = [bool(np.isin(p.blocks, grid.summed_axes).any()) for p in parts]
    tables: list[Any] = []
    for part, own in zip(parts, shared, strict=True):
        if own:
            from sfumato.curator.rows.shares import feature_tables  # noqa: PLC0415

            tables.append(feature_tables(grid, part.blocks))
        else:
            tables.append(np.zeros((len(part.blocks), math.prod(part.sizes)), dtype=np.int64))
    needed = np.unique(np.concatenate([p.blocks.reshape(-1) for p in parts]))
    for columns in read(needed) if len(needed) else ():
        for part, table, own in zip(parts, tables, shared, strict=True):
            if not own:
                _add_records(columns, part, table)
                continue
            from sfumato.curator.rows.shares import add_features  # noqa: PLC0415

            add_features(grid, columns, part.blocks, table)
    for i, (part, own) in enumerate(zip(parts, shared, strict=True)):
        if own:
            from sfumato.curator.rows.shares import share_tables  # noqa: PLC0415

            tables[i] = share_tables(grid, part.blocks, tables[i])
    return tables


def _add_records(columns: Columns, part: Cluster, tables: Table) -> None:
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
