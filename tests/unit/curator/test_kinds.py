"""The kinds of values: each value has exactly one, which is what the rules of numbers and of dates say of it."""

from __future__ import annotations

import datetime
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from sfumato.cells import Days, Edges, Grid, Kinds, Rule
from sfumato.curator.rows.encoding import check_type, plain_column
from sfumato.curator.rows.readers import open_table
from sfumato.curator.rows.samples import column_types
from sfumato.curator.rows.sources import open_source
from sfumato.curator.rows.written import Source
from sfumato.errors import DomainError, InvalidInput, SourceError
from support.elements import OBJECTS
from support.reading import write_csv

KINDS = Kinds(kind="any", outside="other", missing="other")
NUMBER = Edges(kind="number", outside="clamp", missing="drop", edges=(0, 1))
DAY = Days(kind="date", outside="clamp", missing="drop", edges=(1, 2))
TEXTS = [
    *("", " ", "1", "1.5", "-3e4", "inf", "nan", "NaN", "NULL", "NA", "?", "1,5", "1.234,5", "1_000", "0x10", "12:30"),
    *(
        "2024-01-31",
        "2024-13-45",
        "2024-1-31",
        " 2024-01-31 ",
        "2024-01-31T10:00:00Z",
        "31.01.2024",
        "20240131",
        "2024",
    ),
    *("0001-01-01", "9999-12-31", "10000-01-01", "infinity", "today", "now", "epoch", "1 ", "\t7\n", "é", "abc", "--1"),
    *("1e400", "-0", "١", "1e", "2024-01-31 25:00", "2024-01-31 24:00:00", "\uffff", "a" * 4000, "1" * 400, "'; --"),
]


def counted(source: Any, rule: Rule) -> np.ndarray:
    return open_source(source, Grid(("x",), (rule,))).count([("x",)])[("x",)]


def each(path: Path, rule: Rule, columns: int) -> np.ndarray:
    """The cells of columns of one record each."""
    names = [f"x{i}" for i in range(columns)]
    found = open_source(path, Grid(tuple(names), (replace(rule, outside="other", missing="other"),) * columns))
    return np.array([int(np.argmax(found.count([(n,)])[(n,)])) for n in names])


def test_a_text_is_a_number_else_a_day_else_a_text(tmp_path: Path) -> None:
    """Mutants: days that are not looked for; an empty text that is a text; numbers that are texts."""
    path = write_csv(tmp_path / "t.csv", [f"x{i}" for i in range(len(TEXTS))], [TEXTS])
    # a number is one cell of two that are declared, or outside: missing is told by a rule with wide edges
    wide = replace(NUMBER, edges=(-1.7e308, 1.7e308)), replace(DAY, edges=(1, 3_652_060))
    number, day = (each(path, rule, len(TEXTS)) == 0 for rule in wide)
    number |= np.array([t.strip().lower() in ("inf", "infinity") for t in TEXTS])
    # what no double holds is an infinity, or no number: either way not a day
    blank = np.array([t == "" for t in TEXTS])
    expected = np.select([number, day, blank], [0, 1, 3], 2)
    found = each(path, KINDS, len(TEXTS))
    unsure = np.array([t in ("1e400", "1" * 400) for t in TEXTS])
    np.testing.assert_array_equal(found[~unsure], expected[~unsure])
    assert set(found[unsure]) <= {0, 2}
    assert sorted(set(found)) == [0, 1, 2, 3]


def test_every_record_has_one_kind(tmp_path: Path) -> None:
    """So kinds cost one count, not three. Mutant: a record without a cell."""
    path = write_csv(tmp_path / "t.csv", ["x", "y"], [[t, "1"] for t in TEXTS])
    whole = counted(path, KINDS)
    assert whole.sum() == len(TEXTS)
    beside = each(write_csv(tmp_path / "w.csv", [f"x{i}" for i in range(len(TEXTS))], [TEXTS]), KINDS, len(TEXTS))
    np.testing.assert_array_equal(whole, np.bincount(beside, minlength=4))


def test_an_element_of_a_frame_has_one_kind_whatever_it_is() -> None:
    """Mutant: an element whose kind hangs on the others, or that raises."""
    names = [f"x{i}" for i in range(len(OBJECTS))]
    frame = pd.DataFrame({n: pd.Series([value, "a"], dtype=object) for n, value in zip(names, OBJECTS, strict=True)})
    found = open_source(frame, Grid(tuple(names), (KINDS,) * len(names)))
    for name in names:
        counts = found.count([(name,)])[(name,)]
        assert counts.sum() == 2
        assert counts[2] >= 1


@pytest.mark.parametrize(
    ("values", "kind", "told", "counts"),
    [
        ([1, 2, None], pa.int32(), "integer", [2, 0, 0, 1]),
        ([1.5, float("nan"), float("inf"), None], pa.float64(), "number", [2, 0, 0, 2]),
        ([Decimal("1.50"), None], pa.decimal128(10, 2), "number", [1, 0, 0, 1]),
        ([datetime.date(2024, 1, 31), None], pa.date32(), "date", [0, 1, 0, 1]),
        ([datetime.datetime(2024, 1, 31), None], pa.timestamp("us"), "date", [0, 1, 0, 1]),
        ([datetime.datetime(2024, 1, 31), None], pa.timestamp("us", "UTC"), "date", [0, 1, 0, 1]),
        ([True, False, None], pa.bool_(), "boolean", [0, 0, 2, 1]),
        (["1", "2024-01-31", "a", "", None], pa.string(), "", [1, 1, 1, 2]),
    ],
)
def test_a_type_says_the_kind(values: list[Any], kind: pa.DataType, told: str, counts: list[int]) -> None:
    """Mutant: the texts of a typed column looked at, where a number as text could be a day."""
    table = pa.table({"x": pa.array(values, type=kind)})
    assert column_types(table) == {"x": told}
    assert counted(table, KINDS).tolist() == counts


def test_types_are_read_from_every_source_without_a_row(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [1], "b": [1.5], "c": ["x"], "d": pd.to_datetime(["2024-01-31"]), "e": [True]})
    frame.to_parquet(tmp_path / "t.parquet")
    (tmp_path / "t.csv").write_text("a,b\n")
    with duckdb.connect(str(tmp_path / "t.db")) as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS a, 1.5 AS b, 'x' AS c, DATE '2024-01-31' AS d, true AS e")
        connection.execute("ALTER TABLE t ADD COLUMN f UUID")
        connection.execute("ALTER TABLE t ADD COLUMN g INTEGER[]")
    typed = {"a": "integer", "b": "number", "c": "", "d": "date", "e": "boolean"}
    assert column_types(tmp_path / "t.parquet") == typed
    assert column_types(f"duckdb:///{tmp_path}/t.db?table=t") == typed | {"f": ""}
    assert column_types(pa.Table.from_pandas(frame)) == typed
    # pandas says of dates and booleans that they are objects, or what they hold: both are looked at
    assert column_types(frame) == {"a": "integer", "b": "number", "c": "", "d": "", "e": ""}
    assert column_types(tmp_path / "t.csv") == {"a": "", "b": ""}
    assert column_types(Source(tmp_path / "t.csv", decimal=","), ["b"]) == {"b": ""}
    with pytest.raises(SourceError, match="no column called 'z'"):
        column_types(tmp_path / "t.csv", ["z"])
    with pytest.raises(SourceError, match="no column called 'z'"):
        column_types(tmp_path / "t.parquet", ["z"])
    with pytest.raises(InvalidInput, match="'g' is of a type that is not read"):
        column_types(f"duckdb:///{tmp_path}/t.db?table=t", ["g"])


def test_the_notation_says_what_a_number_is(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("x;y\n1,5;1\n1.5;1\n1.234,5;1\n", encoding="utf-8")
    assert counted(Source(path, decimal=",", thousands="."), KINDS).tolist() == [2, 0, 1, 0]


def test_kinds_are_counted_where_all_can_be() -> None:
    assert KINDS.size == 4
    with pytest.raises(DomainError, match="what is missing"):
        Kinds(kind="any", outside="other", missing="drop")
    nested = open_table(pa.table({"x": pa.array([[1]])}), ["x"])
    with pytest.raises(SourceError, match="convert the column"):
        check_type("x", KINDS, nested.columns["x"])
    uuids = pa.table({"x": pa.array([UUID(int=1).bytes], type=pa.binary(16)).cast(pa.binary())})
    with pytest.raises(SourceError):
        check_type("x", KINDS, open_table(uuids, ["x"]).columns["x"])
    assert plain_column(pd.Series([1, 2]))[1] is None


@pytest.mark.parametrize("rule", [KINDS, NUMBER, DAY])
def test_columns_of_spans_are_refused_by_their_type(rule: Rule) -> None:
    """All of them would count as neither number, date nor text, after they were paid for. Mutants: one of the three
    types left out; columns that nobody reads refused as well."""
    days = pd.Series(pd.date_range("2026-01-01", periods=3))
    alone = pd.DataFrame({"x": [1.0] * 3})
    for spans in (days.dt.to_period("M"), days - days[0], pd.Series(pd.arrays.IntervalArray.from_breaks([0, 1, 2, 3]))):
        with pytest.raises(SourceError, match=r"column 'x' is of type .*; convert the column"):
            counted(pd.DataFrame({"x": spans}), rule)
        np.testing.assert_array_equal(counted(alone.assign(beside=spans), rule), counted(alone, rule))
