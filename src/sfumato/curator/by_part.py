"""Tables too long to be counted at once, measured in parts: a wing of `measure` that the core never imports.

The door is `Curator.measure` itself, with its order of steps. What is here is how a block is counted whose first factor
merely says in which row a cell counts: some rows after others, each part from the records that count in it alone. Every
row is counted once, gets one draw of noise, and is written once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sfumato._util.files import release_pages
from sfumato.cells import Grid, Wholes
from sfumato.curator.curator import Curator, Measured
from sfumato.curator.rows.counting import MAX_CELLS, ColumnCounts, Counts, TensorCounts, check_countable
from sfumato.errors import PlanError, SourceError
from sfumato.maps import AlikeMap, BlockMap, MergedMap
from sfumato.measurements import Measurement
from sfumato.privacy.noise import NoiseLaw
from sfumato.privacy.sensitivity import Sensitivity

if TYPE_CHECKING:
    from sfumato.privacy.accounting import Event
    from sfumato.privacy.replaced import Certificate

_PART = 2**24  # cells of the table that is counted at a time: 128 MB, and as much for each of its rows and its noise

Codes = NDArray[np.integer]


class ByPartCurator(Curator):
    """A curator that measures tables of any length by the first attribute of their blocks, of records or of a histogram
    in memory.

    Raises SourceError before the debit for a table whose records are not in memory. All else is as with `Curator`.
    """

    __slots__ = ()
    _MOST = 2**32  # values, 32 GB of files: a million blocks by 2,016 cells are 2,016 million

    def _single(self, maps: Sequence[Measured]) -> list[BlockMap]:
        return super()._single([b for b in maps if not _is_long(b)])

    def _check(
        self,
        maps: Sequence[Measured],
        noise: NoiseLaw,
        price: Event,
        stated: Sensitivity | None,
        certificate: Certificate | None,
        cut: int,
    ) -> None:
        super()._check(maps, noise, price, stated, certificate, cut)
        if self._summed(maps):  # in whose tables a record is more than 1, which parts are not counted by
            raise PlanError("sums of measures are not measured beside tables so long that they are counted in parts")
        for block in _long_blocks(maps):
            part, codes = next(_split_block(block))
            grid = _narrow_to_part(self._holding.grid, block, part)
            if len(codes) != self._holding.grid.sizes()[block.attributes[0]]:
                raise PlanError("internal error: a block is over another number of cells than its attribute has")
            check_countable(grid, [np.array([self._axes(part)], dtype=np.int32)])
            # a dry run, as of all others
            part.apply(np.zeros(part.cells, dtype=np.int64))

    def _rooms(self, counts: Counts, maps: Sequence[Measured], folder: Path | None) -> list[NDArray[np.int64]]:
        if any(map(_is_long, maps)) and type(counts) not in (ColumnCounts, TensorCounts):
            given = getattr(getattr(counts, "engine", None), "label", "a table whose records do not fit in memory")
            raise SourceError(
                f"a table of more than {MAX_CELLS:,} cells is counted in parts, of what is in memory: a frame, a file, "
                f"PostgreSQL, DuckDB or SQLite whose records fit there, or sf.Histogram, not {given}; write the "
                "columns that are asked to a Parquet file and give that, with more memory where it is too large"
            )
        return super()._rooms(counts, maps, folder)

    def _look(
        self,
        counts: Counts,
        maps: Sequence[Measured],
        noise: NoiseLaw,
        values: Sequence[NDArray[np.int64]],
        blocks: Sequence[Measured],
    ) -> Measurement:
        assert isinstance(counts, ColumnCounts | TensorCounts)
        for block, into in zip(maps, values, strict=True):
            end = 0
            if not (isinstance(block, BlockMap) and _is_long(block)):
                continue
            for part, codes in _split_block(block):
                few = _counts_within_part(counts, _narrow_to_part(counts.grid, block, part), block.attributes[0], codes)
                exact = part.apply(few.count([block.attributes])[block.attributes])
                into[end : end + len(exact)] = exact + noise.sample(len(exact), self._holding.bits)
                end += len(exact)
                release_pages(into)
            if end != len(into):
                raise SourceError("some rows were not counted")
        return super()._look(counts, maps, noise, values, blocks)


def curator_for(blocks: Sequence[Any]) -> type[Curator]:
    """Who measures these: the core alone, unless a table among them is too long for it."""
    return ByPartCurator if any(isinstance(b, BlockMap) and b.cells > MAX_CELLS for b in blocks) else Curator


def _long_blocks(maps: Sequence[Measured]) -> list[BlockMap]:
    return [b for b in maps if isinstance(b, BlockMap) and _is_long(b)]


def _is_long(block: Measured) -> bool:
    """Whether a block is on a table that is too long, and goes in parts."""
    if not isinstance(block, BlockMap) or block.cells <= MAX_CELLS or len(block.groups[0]) != 1:
        return False
    first = block.factors[0]
    inner = first.map if isinstance(first, MergedMap) else first
    return isinstance(inner, AlikeMap) and inner.binary and block.cells // first.shape[1] <= _PART


def _split_block(block: BlockMap) -> Iterator[tuple[BlockMap, Codes]]:
    """Some rows of the first factor after others, as a block over as many cells; and of every cell of its attribute
    which of these it counts in: none below 0, nor from their number on."""
    first, *rest = block.factors
    codes = first.codes if isinstance(first, MergedMap) else np.arange(first.shape[1])
    step = max(1, _PART // math.prod(f.shape[1] for f in rest))
    for start in range(0, first.shape[0], step):
        few = AlikeMap(min(step, first.shape[0] - start))
        yield BlockMap(block.groups, (few, *rest)), codes - start


def _narrow_to_part(grid: Grid, block: BlockMap, part: BlockMap) -> Grid:
    """The cells of the records of a part."""
    axis, rule = grid.axis(block.attributes[0]), Wholes(kind="part", low=0, high=part.factors[0].shape[1] - 1, width=1)
    return Grid(grid.names, (*grid.rules[:axis], rule, *grid.rules[axis + 1 :]))


def _counts_within_part(counts: ColumnCounts | TensorCounts, grid: Grid, name: str, codes: Codes) -> Counts:
    """The records that count in a part."""
    axis = grid.axis(name)
    if isinstance(counts, TensorCounts):
        held = np.flatnonzero((codes >= 0) & (codes < grid.shape[axis]))
        table = np.zeros(grid.shape, dtype=np.int64)
        np.add.at(np.moveaxis(table, axis, 0), codes[held], np.moveaxis(counts.tensor, axis, 0)[held])
        return TensorCounts(grid, int(table.sum()), table)
    chunks: list[list[NDArray[Any]]] = []
    for columns in counts.chunks:
        found = codes.astype(np.int32)[columns[axis]]
        kept = np.flatnonzero((found >= 0) & (found < grid.shape[axis]))
        chunks.append([found[kept].astype(np.uint32) if a == axis else c[kept] for a, c in enumerate(columns)])
    return ColumnCounts(grid, sum(len(c[0]) for c in chunks), chunks)
