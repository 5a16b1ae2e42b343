"""A table of rows: read once, encoded, and kept for counting in memory or in files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato._util import elsewhere
from sfumato.cells import Grid
from sfumato.curator.rows.counting import (
    Cluster,
    ColumnCounts,
    Columns,
    Counts,
    PackedCounts,
    Packing,
    Table,
    count_parts,
    pop_each,
)
from sfumato.curator.rows.encoding import Truncation, check_declared, encoding_statements, record_bytes
from sfumato.curator.rows.readers import MAX_ROWS, OpenedTable, attempt, column_chunks, open_table
from sfumato.errors import SourceError

# Above this many bytes the encoded records lie in files.
MEMORY_LIMIT = 2 * 2**30
_READ_ROWS = 2**18  # a few megabytes of every attribute


def open_rows(
    source: object, grid: Grid, person: str | None, kept: tuple[int, tuple[int, ...], int], packing: Packing
) -> Counts:
    """What `open_source` does of a source that is no histogram; `kept` are the rows of a person, as in `Truncation`."""
    how = Truncation(*kept)
    check_declared(grid)
    engine = elsewhere.find_engine(source)
    if (counts := engine and engine.counts(grid, person, how, packing)) is not None:
        return counts  # of rows that stay where they are
    needed = [*dict.fromkeys(grid.read_columns if person is None else (*grid.read_columns, person))]
    opened = open_table(source, needed)
    try:
        connection = opened.session.connection
        statements = encoding_statements(grid, opened.columns, opened.sql, person, how)
        message = (
            f"{opened.label} could not be read for its columns {', '.join(needed)}: "
            "it is damaged or was cut short, or memory or disk ran out"
        )

        def read() -> Counts:
            for statement in statements:
                connection.execute(*statement)
            return collect_encoded(opened, grid, packing, persons=person is not None)

        return attempt(message, read)
    except BaseException:
        opened.session.close()
        raise


def collect_encoded(opened: OpenedTable, grid: Grid, packing: Packing, *, persons: bool) -> Counts:
    """Take the encoded table to memory, or to files where it is too large, and check it.

    `persons`: whether it says of whom more rows were there than are kept.
    """
    session, states = opened.session, grid.states
    widths = [record_bytes([n]) for n in states]
    names = [f"a{i}" for i in range(len(states))]
    marks = ["CAST(cut AS UTINYINT)"] if persons else []
    chunks: list[list[NDArray[Any]]] = []
    rows = cut = stored = 0
    for found in column_chunks(session, f"SELECT {', '.join(names + marks)} FROM encoded", widths + [1] * persons):
        rows += len(found[0])
        cut += sum(int(mark.sum()) for mark in found[len(names) :])
        if rows > MAX_ROWS:
            raise SourceError(f"{opened.label} has more than {MAX_ROWS:,} rows")
        if any(int(column.max()) >= n for column, n in zip(found, states, strict=False)):
            raise SourceError(
                f"{opened.label} was not encoded as declared; please report this as an error of the library"
            )
        chunks.append([*grid.moved(dict(enumerate(found[: len(names)]))).values()])
        if stored or rows * sum(widths) > min(MEMORY_LIMIT, opened.records):
            stored = rows
            for i, columns in enumerate(zip(*chunks, strict=True)):
                with open(f"{session.codes}{i}", "ab") as out:
                    out.writelines(map(memoryview, columns))
            chunks.clear()
    if not stored:
        session.close()
        return ColumnCounts(grid, rows, tuple(chunks), packing=packing, cut=cut)

    def read(axes: Sequence[int], start: int, stop: int) -> list[NDArray[Any]]:
        given = [(f"{session.codes}{i}", widths[i]) for i in axes]
        return [np.fromfile(path, f"u{w}", stop - start, offset=w * start) for path, w in given]

    return DatabaseCounts(grid, rows, read, packing=packing, cut=cut)


@dataclass(frozen=True, slots=True, eq=False)
class DatabaseCounts(PackedCounts):
    """Encoded records that stay in files, larger than memory.

    `read` returns the cell numbers of the attributes at the given axes, one array each, of the records
    from `start` to below `stop`, always the same records for the same numbers.
    """

    read: Callable[[Sequence[int], int, int], Sequence[NDArray[Any]]] = field(repr=False)

    def _columns(self, axes: Sequence[int]) -> Iterator[Columns]:
        """The codes of some attributes, chunk by chunk, from the first record to the last."""
        for start in range(0, self.rows, _READ_ROWS):
            found = self.read(axes, start, min(start + _READ_ROWS, self.rows))
            yield dict(zip(axes, found, strict=True))

    def _pass(self, parts: list[Cluster]) -> Iterator[tuple[Cluster, Table]]:
        return pop_each(parts, count_parts(self.grid, parts, lambda needed: self._columns(needed.tolist())), self.rows)
