"""What a source may be: the same content gives the same counts from any; what is none is refused before it is read."""

from __future__ import annotations

import datetime
import itertools
import math
import os
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sfumato.curator import Histogram
from sfumato.curator.rows.sources import open_source
from sfumato.domain import Bins, Booleans, Categories, Domain, Hierarchy, Integers
from sfumato.errors import InvalidInput, SourceError
from support.reading import joint, write_csv

OTHER = {"outside": "other", "missing": "other"}
SMALL = Domain({"x": Integers(0, 9, **OTHER), "y": Categories(["a", "b"], **OTHER)})
SECRET = "Zebra77"

# The same content everywhere

PEOPLE = Domain(
    {
        "age": Integers(0, 99, 5, outside="clamp", missing="other"),
        "wages": Bins([0, 0.1, 10, 1000.5, 50_000], outside="other", missing="drop"),
        "share": Bins([0, 0.1, 0.7, 1], **OTHER),
        "sex": Categories({"1": "female", "2": "male"}, **OTHER),
        "place name": Categories(["north", "the 'deep' south", 'say "x"', "é"], outside="drop", missing="other"),
        "works": Booleans(**OTHER),
        "born": Categories(["2001-02-03", "1999-12-31"], **OTHER),
        "big": Integers(0, 5, **OTHER),
    }
)
KINDS = {
    "age": pa.int16(),
    "wages": pa.decimal128(12, 2),
    "share": pa.float32(),
    "sex": pa.float64(),
    "place name": pa.string(),
    "works": pa.bool_(),
    "born": pa.date32(),
    "big": pa.uint64(),
    "ignored": pa.int64(),
}


def content() -> pa.Table:
    rng = np.random.default_rng(3)
    choices: dict[str, list[Any]] = {
        "age": [None, -3, 0, 4, 5, 17, 99, 100, 32767],
        "wages": [None, *map(Decimal, ("-0.01", "0.00", "0.10", "9.99", "10.00", "1000.50", "49999.99", "50000.00"))],
        "share": [None, 0.0, -0.0, 0.1, 0.7, 0.69, 1.0, math.nan, math.inf, -math.inf],
        "sex": [None, 1.0, 2.0, 3.0, 1.5, math.nan],
        "place name": [None, "", "north", "North", "north ", "the 'deep' south", 'say "x"', "é", "e\u0301", "a\nb,c"],
        "works": [None, True, False],
        "born": [None, datetime.date(2001, 2, 3), datetime.date(1999, 12, 31), datetime.date(1, 1, 1)],
        "big": [None, 0, 5, 6, 2**64 - 1],
        "ignored": [None, 1],
    }
    columns = {n: [c[i] for i in rng.integers(0, len(c), 500)] for n, c in choices.items()}
    return pa.table({n: pa.array(values, KINDS[n]) for n, values in columns.items()})


def texts(table: pa.Table) -> list[list[str | None]]:
    """The rows as a CSV writer would write them."""
    shown = {True: "True", False: "False", None: ""}
    columns = {n: table[n].to_pylist() for n in PEOPLE.names}
    columns["share"] = [None if v is None else np.float32(v) for v in columns["share"]]
    text = [[shown[v] if v is None or isinstance(v, bool) else str(v) for v in column] for column in columns.values()]
    return [list(row) for row in zip(*text, strict=True)]


def in_database(table: pa.Table, path: Path, suffix: str = "") -> str:
    connection = duckdb.connect(str(path))
    connection.register("given", table)
    connection.execute('CREATE TABLE "odd ""table" AS FROM given')
    connection.execute("CREATE SCHEMA s; CREATE TABLE s.people AS FROM given")
    connection.close()
    return f"duckdb:///{path}?table={suffix}"


@pytest.fixture(scope="module")
def forms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    table = content()
    folder = tmp_path_factory.mktemp("forms [1] * it's")
    names, rows = list(PEOPLE.names), texts(table)
    pq.write_table(table, folder / "p.parquet", row_group_size=100)
    url = in_database(table, folder / "f.db")
    keyed = [{n: t for n, t in zip(names, row, strict=True) if t != ""} for row in rows]
    frame = table.to_pandas()
    lines = pl.DataFrame(keyed, schema=dict.fromkeys(names, pl.String), orient="row")
    lines.write_ndjson(folder / "l.ndjson")
    lines.write_json(folder / "a.json")
    semicolons = folder / "semicolons.CSV"
    pl.DataFrame(lines).write_csv(semicolons, separator=";", include_bom=True, line_terminator="\r\n")
    connection = duckdb.connect()
    connection.register("given", table)
    yield {
        "csv": write_csv(folder / "p.csv", names, rows),
        "semicolons, BOM, CRLF": str(semicolons),
        "parquet": folder / "p.parquet",
        "json lines": folder / "l.ndjson",
        "json array": str(folder / "a.json"),
        "duckdb": url + "odd+%22table",
        "duckdb schema": url + "s.people",
        "pandas": frame,
        "pandas objects": frame.astype(dict.fromkeys(set(frame.columns) - {"share"}, object)),
        "pandas arrow": table.to_pandas(types_mapper=pd.ArrowDtype),
        "polars": pl.from_arrow(table),
        "arrow table": table,
        "arrow batch": table.combine_chunks().to_batches()[0],
        "arrow reader": pa.RecordBatchReader.from_batches(table.schema, iter(table.to_batches(max_chunksize=70))),
        "relation": connection.sql("FROM given WHERE true"),
    }
    connection.close()


FORMS = (
    *("csv", "semicolons, BOM, CRLF", "parquet", "json lines", "json array", "duckdb", "duckdb schema"),
    *("pandas", "pandas objects", "pandas arrow", "polars", "arrow table", "arrow batch", "arrow reader", "relation"),
)


@pytest.mark.parametrize("form", FORMS)
def test_the_same_content_gives_the_same_counts(forms: dict[str, Any], form: str) -> None:
    assert set(forms) == set(FORMS)
    sets = list(itertools.combinations(PEOPLE.names, 2))
    expected = joint(PEOPLE, texts(content()))
    counts = open_source(forms[form], PEOPLE)
    assert counts.rows == expected.sum()
    for names, table in counts.count(sets).items():
        others = tuple(i for i, n in enumerate(PEOPLE.names) if n not in names)
        np.testing.assert_array_equal(table, expected.sum(axis=others), err_msg=str(names))


def _placed(rng: np.random.Generator) -> pa.Table:
    """Codes of blocks as texts, and of tracts as whole numbers: of the file, of another vintage, of none."""
    blocks = ["01001", "01002", "02001", "1001", "01001 ", "01003", "99999", "O1001", "1e3", "", None]
    tracts = [6001, 36001, 6002, 0, -1, 2**53 + 1, None]
    return pa.table(
        {
            "block": pa.array([blocks[i] for i in rng.integers(0, len(blocks), 300)], pa.string()),
            "tract": pa.array([tracts[i] for i in rng.integers(0, len(tracts), 300)], pa.int64()),
        }
    )


@pytest.mark.parametrize("missing", ["other", "drop"])
@pytest.mark.parametrize("outside", ["other", "drop"])
def test_records_in_unknown_places_count_the_same_from_every_form(tmp_path: Path, outside: Any, missing: Any) -> None:
    """As plain Python places them; PostgreSQL and Spark beside DuckDB: test_postgres.py and test_spark.py.

    Mutants: an unknown code put into the last place, counted as missing, or given its zeros back.
    """
    how: dict[str, Any] = {"outside": outside, "missing": missing}
    domain = Domain(
        {
            "block": Hierarchy({"01": ["01001", "01002"], "02": ["02001", "1e3x"]}, ["state", "block"], **how),
            "tract": Hierarchy({"06": ["6001", "06003"], "36": ["36001"]}, ["region", "tract"], **how),
        }
    )
    table = _placed(np.random.default_rng(98))
    rows = [["" if v is None else str(v) for v in row.values()] for row in table.to_pylist()]
    frame, lines = table.to_pandas(), tmp_path / "l.ndjson"
    pq.write_table(table, tmp_path / "p.parquet", row_group_size=70)
    given = [{n: t for n, t in zip(domain.names, row, strict=True) if t != ""} for row in rows]
    pl.DataFrame(given, schema=dict.fromkeys(domain.names, pl.String), orient="row").write_ndjson(lines)
    forms: dict[str, Any] = {
        "csv": write_csv(tmp_path / "p.csv", domain.names, rows),
        "parquet": tmp_path / "p.parquet",
        "json lines": lines,
        "duckdb": in_database(table, tmp_path / "f.db") + "s.people",
        "pandas": frame.convert_dtypes(),
        "pandas floats": frame.assign(tract=frame["tract"].where(frame["tract"] != 2**53 + 1, 2**53 + 2)),
        "pandas objects": frame.convert_dtypes().astype(object),
        "pandas arrow": table.to_pandas(types_mapper=pd.ArrowDtype),
        "polars": pl.from_arrow(table),
        "polars categories": cast("pl.DataFrame", pl.from_arrow(table)).with_columns(
            pl.col("block").cast(pl.Categorical)
        ),
        "arrow": table,
    }
    expected = joint(domain, rows)
    assert 0 < expected[:-1, :-1].sum() < expected.sum()
    for form, source in forms.items():
        counts = open_source(source, domain)
        assert counts.rows == expected.sum(), form
        np.testing.assert_array_equal(counts.count([domain.names])[domain.names], expected, err_msg=form)


def test_a_relation_is_read_once_and_its_connection_stays_usable() -> None:
    connection = duckdb.connect()
    relation = connection.sql("SELECT i % 12 AS x, 'a' AS y FROM range(100000) AS t(i)")
    counts = open_source(relation, SMALL).count([("x",)])[("x",)]
    assert counts.tolist() == [8334, 8334, 8334, 8334, *[8333] * 6, 16666]
    assert connection.sql("SELECT 1").fetchall() == [(1,)]


def test_duckdb_urls_name_relative_and_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    connection = duckdb.connect("f.db")
    connection.execute("CREATE TABLE people AS SELECT 1 AS x, 'a' AS y")
    connection.close()
    for url in ("duckdb:///f.db?table=people", f"duckdb:///{tmp_path}/f.db?table=people"):
        assert open_source(url, SMALL).rows == 1
    assert sorted(os.listdir(tmp_path)) == ["f.db"]


# Names of columns


def test_names_are_matched_exactly(tmp_path: Path) -> None:
    table = pa.table({"X": [5, 5], "x": [1, 2], "y": ["a", "b"]})
    path = write_csv(tmp_path / "t.csv", ["X", "x", "y"], [("5", "1", "a"), ("5", "2", "b")])
    for source in (path, table.to_pandas()):
        assert open_source(source, SMALL).count([("x",)])[("x",)].tolist() == [0, 1, 1, *[0] * 8]
    with pytest.raises(SourceError, match="has no column called 'x'"):
        open_source(table.select(["X", "y"]), SMALL)


ODD_NAMES = ["it's", 'a "b"', "x; DROP TABLE encoded", "c0", "r0", "person", "é", "a/b~1c", "$.x", "encoded", " lead"]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_are_quoted(tmp_path: Path, name: str) -> None:
    domain = Domain({name: Integers(0, 2, **OTHER), "c1": Integers(0, 1, **OTHER)})
    table = pa.table({name: [0, 1, 1], "c1": [1, 1, 5]})
    pq.write_table(table, tmp_path / "t.parquet")
    pl.DataFrame(table.to_pylist()).write_ndjson(tmp_path / "t.jsonl")
    text = write_csv(tmp_path / "t.csv", [name, "c1"], [("0", "1"), ("1", "1"), ("1", "5")])
    for source in (text, tmp_path / "t.parquet", tmp_path / "t.jsonl", table, table.to_pandas()):
        counts = open_source(source, domain, person=name, rows_per_person=2).count([(name, "c1")])
        assert counts[(name, "c1")].tolist() == [[0, 1, 0], [0, 1, 1], [0, 0, 0], [0, 0, 0]]


def test_a_missing_column_is_named_and_those_present_are_not(tmp_path: Path) -> None:
    no_header = write_csv(tmp_path / "t.csv", ["1", SECRET], [("2", "b")])
    with pytest.raises(SourceError, match=r"t.csv has no column called 'x' \(names are matched exactly") as refusal:
        open_source(no_header, SMALL)
    assert SECRET not in str(refusal.value)
    whole = write_csv(tmp_path / "u.csv", ["x", "y"], [("2", "b")])
    with pytest.raises(SourceError, match=r"u\.csv has no column called 'who'"):
        open_source(whole, SMALL, person="who")


def test_repeated_columns_are_refused(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "t.csv", ["x", "y", "x"], [("1", "b", "2")])
    frame = pd.DataFrame([[1, "b", 2]], columns=["x", "y", "x"])
    for source in (path, frame):
        with pytest.raises(SourceError, match="more than one column called 'x'"):
            open_source(source, SMALL)


# Class R: refused before anything is read


@pytest.mark.parametrize(
    "source",
    [
        *("people.txt", "people.json.gz", "people", "", "mysql://h/d?table=t", "http://h/people", "people.CSV.zip"),
        *(Path("people.xls"), None, 5, b"people.csv", [1, 2], {"x": [1]}, np.zeros(22)),
    ],
)
def test_what_is_no_source_is_refused_with_what_is(source: object) -> None:
    with pytest.raises(InvalidInput, match=r"is not a source of data.*; allowed are .*\.parquet.*sf\.Histogram"):
        open_source(source, SMALL)


@pytest.mark.parametrize(
    "url",
    [
        "duckdb:",
        "duckdb://f.db?table=t",
        "duckdb:///f.db",
        "duckdb:///f.db?table=a&table=b",
        "duckdb:///f.db?table=a&x=1",
    ],
)
def test_odd_urls_are_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match=r"duckdb:///file.db\?table=people"):
        open_source(url, SMALL)


@pytest.mark.parametrize("rows", [0, -1, 1.0, True, "2", None])
def test_rows_per_person_must_be_a_positive_whole_number(rows: Any) -> None:
    with pytest.raises(InvalidInput, match="rows_per_person must be a whole number of at least 1"):
        open_source("absent.csv", SMALL, person="who", rows_per_person=rows)


@pytest.mark.parametrize("person", ["", 5, ["who"]])
def test_person_must_be_a_name(person: Any) -> None:
    with pytest.raises(InvalidInput, match="person must be the name of a column"):
        open_source("absent.csv", SMALL, person=person)


# Histograms


def test_histograms_are_copied_and_show_nothing() -> None:
    domain = Domain({"a": 2, "b": 3})
    given = np.array([[1, 2, 3], [4, 5, 4321]])
    for counts in (
        given,
        given.astype(float),
        given.ravel().tolist(),
        given.astype(np.uint64),
        pd.Series(given.ravel()),
    ):
        histogram = Histogram(counts)
        found = open_source(histogram, domain)
        assert found.rows == 4336
        assert found.count([("b", "a")])[("b", "a")].tolist() == [[1, 4], [2, 5], [3, 4321]]
        assert repr(histogram) == "Histogram(6 cells)"
        assert not histogram.counts.flags.writeable
    kept = Histogram(given)
    given[0, 0] = 99
    assert kept.counts[0, 0] == 1


@pytest.mark.parametrize(
    "counts",
    [
        *([1, -77], [1, 77.5], [1, math.nan], [1, math.inf], [2.0**53, 1], [2**52, 2**52], [2**64, 77], [True, False]),
        *(["77", "1"], [None, 77], [[1], [77, 2]], 77, [], "77", {"a": 77}, object(), [1 + 77j]),
        np.ma.masked_array([1, 77], [0, 1]),
        np.array([1, 77], dtype=object),
        np.array(["2020-01-01"], dtype="M8[D]"),
    ],
)
def test_what_does_not_count_records_is_refused_without_a_number(counts: Any) -> None:
    with pytest.raises(InvalidInput, match="a histogram") as refusal:
        Histogram(counts)
    assert "77" not in str(refusal.value)
    assert refusal.value.__context__ is None


@pytest.mark.parametrize("shape", [(5,), (7,), (3, 2), (1, 6), (2, 3, 1)])
def test_a_histogram_must_fit_the_domain(shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidInput, match=r"the histogram has shape .*, the domain \(2, 3\) with 6 cells"):
        open_source(Histogram(np.zeros(shape)), Domain({"a": 2, "b": 3}))


def test_a_histogram_has_no_persons() -> None:
    with pytest.raises(InvalidInput, match="a histogram has no column 'who'"):
        open_source(Histogram([1, 2]), Domain({"a": 2}), person="who")
