"""Encoded columns as they come from DuckDB, some rows at a time, and where they are kept."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sfumato.curator.rows import loading
from sfumato.curator.rows.counting import ColumnCounts
from sfumato.curator.rows.loading import FileCounts
from sfumato.curator.rows.readers import DuckDBSession, column_chunks
from sfumato.curator.rows.sources import open_source
from sfumato.domain import Domain, Integers
from sfumato.errors import SourceError

OTHER: dict[str, Any] = {"outside": "other", "missing": "other"}
ROWS = "range(300000) t(i)"


def test_columns_come_in_chunks_and_outlive_what_gave_them() -> None:
    """Of one, two and four bytes. Mutants: what is given is kept and not copied; a chunk left out or given twice; the
    beginning of another column."""
    session = DuckDBSession()
    kinds = {"UTINYINT": 2**8, "USMALLINT": 2**16, "UINTEGER": 2**32}
    wanted = ", ".join(f"CAST(i * 7919 % {end} AS {kind})" for kind, end in kinds.items())
    chunks = list(column_chunks(session, f"SELECT {wanted}, CAST(i AS UINTEGER) FROM {ROWS}"))
    session.close()
    assert len(chunks) > 1
    *columns, i = (np.concatenate(parts) for parts in zip(*chunks, strict=True))
    order = np.argsort(i)
    assert (i[order] == np.arange(300_000)).all()
    for column, end in zip(columns, kinds.values(), strict=True):
        assert column.itemsize == (end.bit_length() - 1) // 8
        assert (column[order] == np.arange(300_000) * 7919 % end).all()
    session = DuckDBSession()
    assert list(column_chunks(session, f"SELECT CAST(i AS UTINYINT) FROM {ROWS} WHERE i < 0")) == []


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("SELECT CAST(NULLIF(i, 250000) % 9 AS UTINYINT)", ValueError),
        ("SELECT CAST(i % 9 AS INTEGER)", KeyError),
        ("SELECT CAST(i AS USMALLINT)", ValueError),  # fails where numbers are too large, in the middle
    ],
)
def test_what_is_no_encoded_column_is_refused(sql: str, error: type[Exception]) -> None:
    """Mutants: a missing number taken for whatever stands in its place; signed numbers; a stream that breaks off."""
    with pytest.raises(error):
        list(column_chunks(DuckDBSession(), f"{sql} FROM {ROWS}"))


@pytest.mark.parametrize("person", [None, "who"])
def test_records_in_files_are_those_in_memory(person: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts, rows, who was cut. Mutants: chunks before the limit forgotten; files removed before they are mapped."""
    rng = np.random.default_rng(184)
    n = 500_000
    table = pa.table({"x": rng.integers(0, 400, n), "y": rng.integers(0, 5, n), "who": rng.integers(0, 250_000, n)})
    domain = Domain({"x": Integers(0, 299, **OTHER), "y": Integers(0, 3, outside="drop", missing="drop")})
    memory = open_source(table, domain, person=person, rows_per_person=2)
    monkeypatch.setattr(loading, "MEMORY_LIMIT", 500_000)  # more than one chunk, less than two
    files = open_source(table, domain, person=person, rows_per_person=2)
    assert type(memory) is ColumnCounts
    assert type(files) is FileCounts
    assert (memory.rows, memory.cut) == (files.rows, files.cut)
    for names in (("x",), ("x", "y"), ()):
        np.testing.assert_array_equal(memory.count([names])[names], files.count([names])[names])


def test_a_file_that_breaks_off_is_refused_before_anything_is_kept(tmp_path: Path) -> None:
    """In words without values. Mutant: the rows before it are counted."""
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"x": np.random.default_rng(0).integers(0, 9, 400_000)}), path, row_group_size=100_000)
    whole = bytearray(path.read_bytes())
    middle = os.path.getsize(path) // 2
    whole[middle : middle + 4_000] = b"\xff" * 4_000
    path.write_bytes(whole)
    with pytest.raises(SourceError, match="could not be read for its columns x: it is damaged"):
        open_source(path, Domain({"x": Integers(0, 8, **OTHER)}))
