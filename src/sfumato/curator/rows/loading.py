"""A table of rows: read once, encoded, and kept for counting in memory or in DuckDB."""

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
from sfumato.curator.rows.readers import MAX_ROWS, OpenedTable, attempt, open_table
from sfumato.errors import SourceError

# Above this many bytes the encoded records stay in DuckDB, which can spill to disk.
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
        attempt(message, lambda: [connection.execute(*statement) for statement in statements])
        return collect_encoded(opened, grid, packing, persons=person is not None)
    except BaseException:
        opened.session.close()
        raise


def collect_encoded(opened: OpenedTable, grid: Grid, packing: Packing, *, persons: bool) -> Counts:
    """Check the encoded table and take it to memory, or leave it in DuckDB where it is too large.

    `persons`: whether it says of whom more rows were there than are kept.
    """
    session, shape = opened.session, grid.states
    names = [f"a{i}" for i in range(len(shape))]
    checks = ", ".join(f"count({a}), coalesce(max({a}), 0)" for a in names)
    many = "count(*) FILTER (cut)" if persons else "0"
    (rows, cut, *found), *_ = session.rows(f"SELECT count(*), {many}, {checks} FROM encoded")
    if rows > MAX_ROWS:
        raise SourceError(f"{opened.label} has more than {MAX_ROWS:,} rows")
    fits = all(n == rows and top < size for n, top, size in zip(found[::2], found[1::2], shape, strict=True))
    if not fits:
        raise SourceError(f"{opened.label} was not encoded as declared; please report this as an error of the library")
    if rows * record_bytes(shape) > min(MEMORY_LIMIT, opened.records):
        (beyond,), *_ = session.rows("SELECT coalesce(max(rowid) + 1, 0) FROM encoded")
        if beyond != rows:
            raise SourceError(f"{opened.label} was not numbered as expected; please report this as an error")

        def read(axes: Sequence[int], start: int, stop: int) -> list[NDArray[Any]]:
            chosen = {i: names[i] for i in grid.moving(axes)}
            query = f"SELECT {', '.join(chosen.values())} FROM encoded WHERE rowid >= {start} AND rowid < {stop}"
            fetched = session.connection.execute(query).fetchnumpy()
            found = grid.moved({i: np.asarray(fetched[column]) for i, column in chosen.items()})
            return [found[i] for i in axes]

        return DatabaseCounts(grid, rows, read, packing=packing, cut=cut)
    fetched = session.connection.execute(f"SELECT {', '.join(names)} FROM encoded").fetchnumpy()
    session.close()
    columns = grid.moved({i: np.asarray(fetched[a]) for i, a in enumerate(names)})
    return ColumnCounts(grid, rows, tuple(columns.values()), packing=packing, cut=cut)


@dataclass(frozen=True, slots=True, eq=False)
class DatabaseCounts(PackedCounts):
    """Encoded records that stay in a database, larger than memory.

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
