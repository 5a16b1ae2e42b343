"""Exact counts of marginals over records that are already encoded as cell numbers.

Asked sets of attributes are packed into few larger ones (blocks): one pass over the records counts a
block, and every asked set inside it follows by summation. Fifteen attributes of eight cells have 455
three-way marginals; for a million records they need 65 passes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Domain
from sfumato.errors import PlanError, SourceError

__all__ = ["ColumnCounts", "Counts", "TableCounts", "TensorCounts", "check_countable"]

AttributeSet = tuple[str, ...]
Axes = tuple[int, ...]
Table = NDArray[np.int64]

MAX_CELLS = 50_000_000
_CHUNK_ROWS = 131_072
# Two million bytes of counts fit a core's second-level cache.
_MAX_BLOCK_CELLS = 2**18
# What a cell of a block costs per set that is summed from it, in records counted (measured by bench/counting.py).
_CELL_COST = 4


class Counts(Protocol):
    """What the curator asks of an opened source; `rows` (the number of records) may be private."""

    @property
    def rows(self) -> int:
        """Number of encoded records."""
        ...

    def count(self, sets: Sequence[AttributeSet]) -> dict[AttributeSet, Table]:
        """Exact marginal counts, each array shaped by its attributes in the order given; () is the total."""
        ...


def check_countable(domain: Domain, sets: Iterable[AttributeSet]) -> None:
    """Refuse sets that cannot be counted; it looks at no data, so it can be asked before a budget is charged.

    Raises DomainError for unknown or repeated attributes, PlanError for a table of more than 50,000,000 cells.
    """
    sizes = dict(zip(domain.names, domain.shape, strict=True))
    for names in sets:
        cells = math.prod(sizes[n] for n in domain.check_names(names))
        if cells > MAX_CELLS:
            raise PlanError(
                f"the table of {', '.join(names)} has {cells:,} cells; at most {MAX_CELLS:,} can be counted at once: "
                "ask smaller sets of attributes or declare wider cells"
            )


@dataclass(frozen=True, slots=True, eq=False)
class _Counted(ABC):
    """The part that all sources share: packing, summing down, and the check against `rows`."""

    domain: Domain
    rows: int = field(repr=False)

    @abstractmethod
    def _table(self, axes: Axes, sizes: Axes) -> Table:
        """Counts over the attributes at `axes` (ascending, not empty), shaped by their `sizes`."""

    def _effort(self) -> int:
        """Elements read to count one block."""
        return self.rows

    def count(self, sets: Sequence[AttributeSet]) -> dict[AttributeSet, Table]:
        """Exact marginal counts of each set of attributes.

        Returns int64 arrays shaped by the attributes of the set, in the order given; `()` is a 0-d total.
        Raises what `check_countable` raises, and SourceError when a table does not sum to `rows`.
        """
        check_countable(self.domain, sets)
        names = self.domain.names
        asked = {s: tuple(sorted(map(names.index, s))) for s in map(tuple, sets)}
        shape = self.domain.shape
        tables: dict[Axes, Table] = {}
        for block, members in _pack(shape, sorted(set(asked.values())), self._effort()):
            sizes = tuple(shape[a] for a in block)
            table = self._table(block, sizes) if block else np.array(self.rows, dtype=np.int64)
            if table.shape != sizes or int(table.sum()) != self.rows:
                raise SourceError(
                    f"the table of {', '.join(names[a] for a in block)} does not add up to the number of records: "
                    "the source changed while it was read, or its encoding is wrong"
                )
            tables.update(_sum_down(block, table, members, len(shape)))
        return {s: _reorder(tables[axes], [names[a] for a in axes], s) for s, axes in asked.items()}


@dataclass(frozen=True, slots=True, eq=False)
class ColumnCounts(_Counted):
    """Encoded records in memory: one array of cell numbers (uint8, uint16 or uint32) per attribute."""

    columns: tuple[NDArray[Any], ...] = field(repr=False)

    def _table(self, axes: Axes, sizes: Axes) -> Table:
        cells = math.prod(sizes)
        # Narrow keys: sixteen bits where they suffice are twice as fast to build as thirty-two.
        kind = np.uint16 if cells <= 2**16 else np.uint32
        total = np.zeros(cells, dtype=np.int64)
        for start in range(0, self.rows, _CHUNK_ROWS):
            key = self.columns[axes[0]][start : start + _CHUNK_ROWS].astype(kind)
            for a, size in zip(axes[1:], sizes[1:], strict=True):
                np.multiply(key, kind(size), out=key)
                np.add(key, self.columns[a][start : start + _CHUNK_ROWS], out=key)
            total += np.bincount(key, minlength=cells)
        return total.reshape(sizes)


@dataclass(frozen=True, slots=True, eq=False)
class TableCounts(_Counted):
    """Encoded records that stay in a database: `group` runs GROUP BY over the attributes at the given axes.

    `group` returns the cell numbers of each attribute, one array each, and last the counts.
    """

    group: Callable[[Axes], Sequence[NDArray[Any]]] = field(repr=False)

    def _table(self, axes: Axes, sizes: Axes) -> Table:
        total = np.zeros(math.prod(sizes), dtype=np.int64)
        *cells, counts = self.group(axes)
        if counts.size:
            total[np.ravel_multi_index([c.astype(np.int64) for c in cells], sizes)] = counts
        return total.reshape(sizes)


@dataclass(frozen=True, slots=True, eq=False)
class TensorCounts(_Counted):
    """Counts already tabulated over the whole domain, shaped by it."""

    tensor: Table = field(repr=False)

    def _effort(self) -> int:
        return self.tensor.size

    def _table(self, axes: Axes, sizes: Axes) -> Table:
        others = tuple(a for a in range(self.tensor.ndim) if a not in axes)
        return self.tensor.sum(axis=others, dtype=np.int64)


def _pack(shape: Sequence[int], sets: Sequence[Axes], effort: int) -> Iterator[tuple[Axes, list[Axes]]]:
    """Blocks of attributes and the sets each one answers, so that every set is answered once.

    A block starts as the largest set not yet answered. It grows by the attribute that pays best: each
    further set it answers saves reading `effort` elements, and all its sets are summed from more cells.
    """
    ranked = sorted(sets, key=lambda s: (len(s), math.prod(shape[a] for a in s)), reverse=True)
    words = _bit_sets(ranked, len(shape))
    units = _bit_sets([(a,) for a in range(len(shape))], len(shape))
    sizes = np.array(shape, dtype=np.float64)
    waiting = np.arange(len(ranked))
    while waiting.size:
        members = list(ranked[waiting[0]])
        inside = words[waiting[0]].copy()
        while True:
            lacking = words[waiting] & ~inside
            number = np.bitwise_count(lacking).sum(axis=1)
            answered = int((number == 0).sum())
            more = _positions(lacking[number == 1], len(shape))
            cells = math.prod(sizes[a] for a in members)
            cost = _CELL_COST * cells * (sizes * (answered + more) - answered)
            saved = np.where((more > 0) & (cells * sizes <= _MAX_BLOCK_CELLS), more * effort - cost, 0)
            best = int(saved.argmax())
            if saved[best] <= 0:
                break
            members.append(best)
            inside |= units[best]
        yield tuple(sorted(members)), [ranked[i] for i in waiting[number == 0]]
        waiting = waiting[number > 0]


def _bit_sets(sets: Sequence[Axes], count: int) -> NDArray[np.uint64]:
    """One row of 64-bit words per set, one bit per attribute."""
    words = np.zeros((len(sets), count // 64 + 1), dtype=np.uint64)
    for row, axes in enumerate(sets):
        for a in axes:
            words[row, a // 64] |= np.uint64(1 << a % 64)
    return words


def _positions(single: NDArray[np.uint64], count: int) -> NDArray[np.int64]:
    """How often each bit is the one that is set, over rows with one bit each."""
    row, word = np.nonzero(single)
    bit = np.bitwise_count(single[row, word] - np.uint64(1)).astype(np.int64)
    return np.bincount(word * 64 + bit, minlength=count)


def _sum_down(block: Axes, table: Table, sets: Sequence[Axes], count: int) -> dict[Axes, Table]:
    """The tables of the sets inside a block, each summed from the smallest table that holds it."""
    order = [block, *sorted(sets, key=len, reverse=True)]
    words = _bit_sets(order, count)
    cells = np.full(len(order), np.inf)
    cells[0] = table.size
    tables = [table]
    for i, axes in enumerate(order[1:], start=1):
        holds = ~(words[i] & ~words[:i]).any(axis=1)
        best = int(np.where(holds, cells[:i], np.inf).argmin())
        others = tuple(j for j, a in enumerate(order[best]) if a not in axes)
        tables.append(np.asarray(tables[best].sum(axis=others, dtype=np.int64)))
        cells[i] = tables[i].size
    return dict(zip(order[1:], tables[1:], strict=True))


def _reorder(table: Table, stored: Sequence[str], asked: AttributeSet) -> Table:
    return np.asarray(table.transpose([stored.index(n) for n in asked]), order="C")
