"""A time beyond all microseconds ends DuckDB's reading of a table, so nobody's may be read where one could stand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sfumato.curator.rows.readers import open_table
from sfumato.errors import SourceError

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
FAR = 2**62


def times(unit: str, zone: str | None, value: int) -> Any:
    """A table with one time, and a text beside it."""
    moment = pa.array([value], pa.int64()).view(pa.timestamp(unit, tz=zone))
    return pa.table({"time": moment, "text": pa.array(["a"])})


def answer(source: Any, name: str) -> str:
    """What is read of a column, or which refusal comes."""
    try:
        opened = open_table(source, [name])
    except SourceError as error:
        return str(error)
    try:
        column = opened.columns[name]
        return repr(opened.session.rows(f"SELECT {column.day(column.sql, '')} IS NULL FROM {opened.sql}"))
    finally:
        opened.session.close()


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_a_time_far_away_does_not_decide_whether_a_table_is_read(unit: str, zone: str | None, tmp_path: Path):
    plain, far = times(unit, zone, 0), times(unit, zone, FAR)
    coarse = unit != "us" and zone is not None
    assert ("microseconds" in answer(plain, "time")) == ("microseconds" in answer(far, "time")) == coarse
    assert answer(plain, "text") == answer(far, "text") == "[(True,)]"
    # a column of milliseconds in a Parquet file is read, so a far time in it is one of the things that
    # docs/privacy.md says are left; whoever does not need it is not concerned
    for table in (plain, times(unit, zone, FAR if unit != "s" else FAR // 1000)):
        parquet.write_table(table, path := tmp_path / "times.parquet")
        assert answer(str(path), "text") == "[(True,)]"
        if unit == "us":
            assert "microseconds" not in answer(str(path), "time")


def test_the_least_and_the_largest_time_of_a_parquet_file_are_read(tmp_path: Path):
    for value in (-(2**63), -(2**63) + 1, 2**63 - 1):
        parquet.write_table(times("us", None, value), path := tmp_path / "times.parquet")
        assert answer(str(path), "time") == "[(True,)]"
        assert answer(str(path), "text") == "[(True,)]"


def test_a_time_that_no_text_writes_fails_no_table(tmp_path: Path):
    """All values of a dictionary of a Parquet file are cast at once, also where a condition leaves one out."""
    values = pa.array([-(2**63), 0], pa.int64()).view(pa.timestamp("us"))
    parquet.write_table(pa.table({"time": values}), path := tmp_path / "times.parquet")
    opened = open_table(str(path), ["time"])
    try:
        column = opened.columns["time"]
        found = opened.session.rows(f"SELECT {column.name('r')} FROM (SELECT {column.sql} AS r FROM {opened.sql})")
    finally:
        opened.session.close()
    assert sorted(map(str, found)) == ["('1970-01-01 00:00:00',)", "(None,)"]
