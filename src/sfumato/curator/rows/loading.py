"""A table of rows: read once, encoded, and kept for counting in memory or in files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sfumato._util import elsewhere
from sfumato.cells import Grid
from sfumato.curator.rows.counting import ColumnCounts, Counts, Packing
from sfumato.curator.rows.encoding import Truncation, check_declared, encoding_statements, record_bytes
from sfumato.curator.rows.readers import MAX_ROWS, OpenedTable, attempt, column_chunks, open_table
from sfumato.curator.rows.written import source_of
from sfumato.errors import SourceError

if TYPE_CHECKING:
    from sfumato.curator.rows.sums import AskedSums

# Above this many bytes the encoded records lie in files.
MEMORY_LIMIT = 2 * 2**30
_READ_ROWS = 2**18  # a few megabytes of every attribute


def open_rows(
    source: object,
    grid: Grid,
    person: str | None,
    kept: tuple[int, tuple[int, ...], int],
    packing: Packing,
    asked: AskedSums | None = None,
) -> Counts:
    """What `open_source` does of a source that is no histogram; `kept` are the rows of a person, as in `Truncation`.

    Records of a source that can be read once are kept whatever is asked.
    """
    how = Truncation(*kept)
    check_declared(grid)
    engine = elsewhere.find_engine(source)
    if (counts := engine and engine.counts(grid, person, how, packing)) is not None:
        return counts  # of rows that stay where they are
    asked = None if asked is None or _can_be_read_once(source, engine) else asked
    needed = [*dict.fromkeys(grid.read_columns if person is None else (*grid.read_columns, person))]
    opened = open_table(source, needed)
    try:
        connection = opened.session.connection
        statements = encoding_statements(grid, opened.columns, opened.sql, person, how)
        message = (
            f"{opened.label} could not be read for its columns {', '.join(needed)}: "
            "it is damaged or was cut short, or memory or disk ran out"
        )

        def read() -> Counts | None:
            for statement in statements:
                connection.execute(*statement)
            if asked is not None:
                from sfumato.curator.rows.sums import sum_encoded  # noqa: PLC0415

                return sum_encoded(opened, grid, asked, persons=person is not None)
            return collect_encoded(opened, grid, packing, persons=person is not None)

        found = attempt(message, read)
    except BaseException:
        opened.session.close()
        raise
    if found is None:  # too many rows to be summed; the stream of a frame has come to its end
        opened.session.close()
        return open_rows(source, grid, person, kept, packing)
    return found


def _can_be_read_once(source: object, engine: Any) -> bool:
    """Whether a stream of rows is among what a source reads."""
    tables = (source_of(table).table for table in getattr(engine, "sources", None) or [source])
    return any(hasattr(t, "__arrow_c_stream__") and not hasattr(t, "__len__") for t in tables)


def collect_encoded(opened: OpenedTable, grid: Grid, packing: Packing, *, persons: bool) -> Counts:
    """Take the encoded table to memory, or to files where it is too large, and check it.

    `persons`: whether it says of whom more rows were there than are kept.
    """
    session, states = opened.session, grid.states
    names = [f"a{i}" for i in range(len(states))]
    sql = f"SELECT {', '.join(names)}, CAST({'cut' if persons else 'false'} AS UTINYINT) FROM encoded"
    chunks: list[list[NDArray[Any]]] = []
    rows = cut = stored = 0
    for *found, marks in column_chunks(session, sql):
        rows, cut = rows + len(marks), cut + int(marks.sum())
        if rows > MAX_ROWS:
            raise SourceError(f"{opened.label} has more than {MAX_ROWS:,} rows")
        if any(column.max(initial=0) >= n for column, n in zip(found, states, strict=True)):
            raise SourceError(
                f"{opened.label} was not encoded as declared; please report this as an error of the library"
            )
        chunks.append([*grid.moved(dict(enumerate(found))).values()])
        if stored or rows * record_bytes(states) > min(MEMORY_LIMIT, opened.records):
            stored = rows
            for i, columns in enumerate(zip(*chunks, strict=True)):
                with open(f"{session.codes}{i}", "ab") as out:
                    out.writelines(columns)
            chunks.clear()
    if stored:
        files = [np.memmap(f"{session.codes}{i}", f"u{record_bytes([n])}", "r") for i, n in enumerate(states)]
        chunks = [[f[start : start + _READ_ROWS] for f in files] for start in range(0, rows, _READ_ROWS)]
    session.close()  # files that are mapped have no need of their names
    return (FileCounts if stored else ColumnCounts)(grid, rows, chunks, packing=packing, cut=cut)


class FileCounts(ColumnCounts):
    """Encoded records in files, larger than memory: as many tables as there is room for are counted in one pass."""

    __slots__ = ()
    _PASS_CELLS = 2**24  # 128 MB
