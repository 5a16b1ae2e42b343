"""Spreadsheets, packed files, folders of Parquet, tables that are not read yet: the same counts of one table in all."""

from __future__ import annotations

import csv
import gzip
import sys
import warnings
import zipfile
from collections.abc import Iterator
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from sfumato.curator.rows import other_files as spreadsheet
from sfumato.curator.rows import written as kinds
from sfumato.curator.rows.samples import column_names
from sfumato.curator.rows.sources import open_source
from sfumato.domain import Bins, Booleans, Categories, Domain, Integers
from sfumato.errors import InvalidInput, MissingExtra, SourceError

openpyxl = pytest.importorskip("openpyxl")

OTHER: dict[str, Any] = {"outside": "other", "missing": "other"}
DOMAIN = Domain(
    {
        "age": Integers(0, 99, 10, outside="clamp", missing="other"),
        "pay": Bins([-10, 0, 0.5, 1000, 2e4], **OTHER),
        "town": Categories(["Köln", "=1+1", "7", '"', "#N/A"], **OTHER),
        "day": Categories(["2020-01-31", "2020-02-29 13:30:00"], **OTHER),
        "ok": Booleans(**OTHER),
    }
)
SETS = [(n,) for n in DOMAIN.names] + [("age", "town"), ("pay", "ok")]
HOSTILE: dict[str, list[Any]] = {
    "age": [17, 17.0, 17.5, "18", " 19 ", -3, 10**9, None, "abc", "1,5", 0],
    "pay": [1.5, -0.0, 2**60, "1234.5", "1.234,5", 0.1 + 0.2, None, "nan", 1e-300, 999.9999, "inf"],
    "town": ["Köln", "köln", "'=1+1", 7, 7.0, "7.0", '"', "a\nb", None, "x" * 30_000, "#N/A"],
    "day": [date(2020, 1, 31), datetime(2020, 1, 31), datetime(2020, 2, 29, 13, 30), "2020-01-31", None] + ["x"] * 6,
    "ok": [True, False, "yes", 0, 1, 1.0, "N", None, "?", "TRUE", 2],
}
ROWS = [dict(zip(HOSTILE, row, strict=True)) for row in zip(*HOSTILE.values(), strict=True)]


def counted(source: Any, **options: Any) -> list[list[int]]:
    found = open_source(source, DOMAIN, **options).count(SETS)
    return [found[s].tolist() for s in SETS]


def drawn(seed: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    return [{n: v[int(rng.integers(len(v)))] for n, v in HOSTILE.items()} for _ in range(int(rng.integers(1, 30)))]


def shown(value: Any) -> str:
    """As a person would write it in a text file."""
    if value is None:
        return ""
    if isinstance(value, datetime) and value.time() == time():
        return str(value.date())
    return repr(value) if isinstance(value, float) else str(value)


def workbook(path: Path, rows: list[dict[str, Any]], title: str = "Sheet") -> None:
    book = openpyxl.Workbook()
    book.active.title = title
    book.active.append([*HOSTILE])
    for row in rows:
        book.active.append([*row.values()])
    for cells in book.active.iter_rows(min_row=2):
        for cell in cells:
            if isinstance(cell.value, str):
                cell.data_type = "s"  # no formula, no error
    book.create_sheet("other").append(["age"])
    book.save(path)


def forms(folder: Path, rows: list[dict[str, Any]]) -> Iterator[tuple[str, Any]]:
    """A table of values of any kind, in every form that keeps them."""
    path = folder / "t.csv"
    with path.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerows([[*HOSTILE], *([shown(v) for v in row.values()] for row in rows)])
    yield "csv", path
    (folder / "t.csv.gz").write_bytes(gzip.compress(path.read_bytes()))
    yield "csv.gz", str(folder / "t.csv.gz")
    pd.read_csv(path, dtype=str, keep_default_na=False).to_csv(folder / "t.tsv", sep="\t", index=False)
    yield "tsv", folder / "t.tsv"
    workbook(folder / "t.xlsx", rows)
    yield "xlsx", folder / "t.xlsx"
    workbook(folder / "u.xlsx", rows, "Zeilen")
    yield "sheet", sf.Source(folder / "u.xlsx", sheet="Zeilen")
    texts = {n: [shown(row[n]) or None for row in rows] for n in HOSTILE}
    lazy = pl.LazyFrame(texts, schema=dict.fromkeys(texts, pl.String))
    yield "LazyFrame", lazy
    lazy.collect().write_parquet(folder / "t.parquet")
    table = pa.table(texts, pa.schema([(n, pa.string()) for n in texts]))
    (folder / "parts").mkdir(exist_ok=True)
    for k, start in enumerate(range(0, len(rows), 7)):
        pq.write_table(table.slice(start, 7), folder / "parts" / f"part-{k}.parquet")
    yield "folder", folder / "parts"
    yield "pattern", str(folder / "parts" / "part-*.parquet")
    yield "dataset", ds.dataset(folder / "parts", format="parquet")
    yield "reader", table.to_reader()
    yield "stream", _Stream(table)
    connection = duckdb.connect()
    connection.register("given", table)
    yield "relation", connection.sql("SELECT * FROM given")


class _Stream:
    """Any object that hands out a stream of arrow."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_one_table_has_the_same_counts_in_every_form(tmp_path: Path, seed: int | None) -> None:
    """Mutants: a day in a spreadsheet with a midnight; 7.0 another code than 7; a formula's text; a file of a folder
    left out; a lazy frame's first rows alone."""
    rows = ROWS if seed is None else drawn(seed)
    found = {name: counted(source) for name, source in forms(tmp_path, rows)}
    assert len(found) == 12
    assert {name for name, tables in found.items() if tables != found["csv"]} == set()
    assert sum(found["csv"][0]) == len(rows)


def test_a_spreadsheet_is_read_cell_by_cell(tmp_path: Path) -> None:
    """Rows without anything are no records, cells beyond the names no fields; a row cut short lacks some; numbers are
    numbers in any notation. Mutants: empty rows counted; a longer row an unreadable one; "1,5" of a number."""
    book = openpyxl.Workbook()
    for row in (
        ["age", "pay", "town", "day", "ok"],
        [18, 1.5, "7"],
        [],
        [None] * 9,
        [19, 1.5, 7, None, True, "remark"],
    ):
        book.active.append(row)
    book.active["A9"] = 20
    book.save(tmp_path / "t.xlsx")
    found = open_source(tmp_path / "t.xlsx", DOMAIN)
    assert found.rows == 3
    for source in (tmp_path / "t.xlsx", sf.Source(tmp_path / "t.xlsx", decimal=",", thousands=".")):
        assert counted(source)[1] == [0, 0, 2, 0, 1]
        assert counted(source)[2] == [0, 0, 2, 0, 0, 1]
    assert column_names(tmp_path / "t.xlsx") == ("age", "pay", "town", "day", "ok")
    assert open_source(tmp_path / "t.xlsx", Domain({"age": DOMAIN["age"]}), person="town").rows == 1  # "7" and 7


def test_records_as_long_as_can_be_are_no_reason_to_refuse_a_spreadsheet(tmp_path: Path) -> None:
    """A row beyond the longest record is one that cannot be read. Mutant: its mended copy in the place of the text."""
    book = openpyxl.Workbook()
    names = [f"c{i}" for i in range(80)]
    book.active.append(names)
    book.active.append(["1"] * 80)
    book.active.append(["x" * 32_000] * 80)
    book.save(tmp_path / "t.xlsx")
    found = open_source(tmp_path / "t.xlsx", Domain({"c0": Categories(["1"], **OTHER)}))
    assert found.count([("c0",)])[("c0",)].tolist() == [1, 1]


def test_odd_workbooks_are_refused_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutants: a bomb unpacked; the words of the package, which quote cells."""
    workbook(tmp_path / "t.xlsx", ROWS)
    (tmp_path / "no.xlsx").write_bytes(b"PK\x03\x04" + b"SECRET" * 9)
    for name in ("no.xlsx",):
        with pytest.raises(SourceError, match=r"is no [.]xlsx file, is damaged or locked by a password") as said:
            counted(tmp_path / name)
        assert "SECRET" not in str(said.value)
    with pytest.raises(SourceError, match="no sheet called 'sheet'"):
        counted(sf.Source(tmp_path / "t.xlsx", sheet="sheet"))
    with pytest.raises(SourceError, match="no column called 'pay'"):
        counted(sf.Source(tmp_path / "t.xlsx", sheet="other"))
    with pytest.raises(InvalidInput, match="encoding is of a text file"):
        counted(sf.Source(tmp_path / "t.xlsx", encoding="cp1252"))
    with monkeypatch.context() as patch:
        patch.setattr(spreadsheet, "MAX_UNPACKED", 1000)
        with pytest.raises(SourceError, match="more than 1,000 bytes, unpacked: save the sheet as CSV"):
            counted(tmp_path / "t.xlsx")
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(MissingExtra, match="pip install openpyxl, or save the sheet as CSV"):
        counted(tmp_path / "t.xlsx")


def test_a_day_beyond_the_calendar_and_other_warnings_say_nothing(tmp_path: Path) -> None:
    """Mutant: what the package warns of, which quotes a cell."""
    book = openpyxl.Workbook()
    book.active.append(["age", "pay", "town", "day", "ok"])
    book.active.append([1, 1, "7", date(2020, 1, 31), True])
    book.save(tmp_path / "t.xlsx")
    with zipfile.ZipFile(tmp_path / "t.xlsx") as read, zipfile.ZipFile(tmp_path / "u.xlsx", "w") as write:
        for entry in read.infolist():
            data = read.read(entry)
            write.writestr(entry, data.replace(b"<v>43861</v>", b"<v>99999999999</v>"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert counted(tmp_path / "u.xlsx")[3] == [0, 0, 1]
    assert not caught


def test_files_of_a_folder_are_one_table_or_none(tmp_path: Path) -> None:
    """Mutants: types of the first file cast onto all, which fails for some rows; partitions read without their names;
    a pattern that stands for a file of that very name."""
    folder = tmp_path / "t.parquet"
    folder.mkdir()
    domain = Domain({"x": Integers(0, 9, **OTHER)})
    with pytest.raises(SourceError, match="names 0 Parquet files"):
        open_source(folder, domain)
    pq.write_table(pa.table({"x": [1, 2], "y": ["a", "b"]}), folder / "a.parquet")
    pq.write_table(pa.table({"z": [7], "x": [3]}), folder / "b.parquet")
    assert open_source(folder, domain).rows == 3
    assert column_names(folder) == ("x", "y")
    pq.write_table(pa.table({"x": ["4"]}), folder / "c.parquet")
    with pytest.raises(SourceError, match="column 'x' is not of one type in all files"):
        open_source(folder, domain)
    (folder / "c.parquet").unlink()
    pq.write_table(pa.table({"y": ["4"]}), folder / "d.parquet")
    with pytest.raises(SourceError, match="column 'x' is not of one type in all files"):
        open_source(str(folder / "*.parquet"), domain)
    assert open_source(str(folder / "[ab].parquet"), domain).rows == 3
    pq.write_table(pa.table({"x": [5]}), folder / "[ab].parquet")
    assert open_source(str(folder / "[ab].parquet"), domain).rows == 1
    (folder / "year=2020").mkdir()
    with pytest.raises(SourceError, match="a folder with folders in it"):
        open_source(folder, domain)


def test_what_is_not_read_yet_is_asked_for_its_columns_alone() -> None:
    """Mutant: a column that nobody asked for decides."""
    domain = Domain({"x": Integers(0, 9, **OTHER)})
    lazy = pl.LazyFrame({"x": [1, 2], "odd": [object(), object()]})
    assert open_source(lazy, domain).rows == 2
    failing = pl.LazyFrame({"x": ["SECRET"]}).with_columns(pl.col("x").cast(pl.Int64))
    with pytest.raises(SourceError, match="collecting it failed") as said:
        open_source(failing, domain)
    assert "SECRET" not in str(said.value)
    assert said.value.__context__ is None
    for source in (pl.LazyFrame({"y": [1]}), ds.dataset(pa.table({"y": [1]}))):
        with pytest.raises(SourceError, match="no column called 'x'"):
            open_source(source, domain)
    price = pl.LazyFrame({"x": [Decimal("1.0"), Decimal("2.0")]})
    assert open_source(price, domain).rows == 2


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("t.xls", "save it as .xlsx or .csv"),
        ("t.duckdb", "duckdb:///FILE[?]table=NAME"),
        ("t.dta", "export it as CSV or Parquet"),
        ("t.feather", "pyarrow.feather.read_table"),
        ("t.parquet.gz", "unpack it"),
        ("t.zip", "unpack it"),
        ("t.txt", "call it .csv"),
        ("t", "call it .csv"),
        ("s3://user:SECRET@t.parquet", "copy the file here"),
    ],
)
def test_what_is_not_read_is_refused_with_what_to_do(name: str, said: str) -> None:
    """Before the ledger. Mutants: the list of what is read alone; an address shown whole."""
    ledger = sf.Ledger.in_memory(sf.gdp(1))
    plan = sf.plan(sf.identity(DOMAIN, "ok"), sf.gdp(1), neighbours="add-remove")
    with pytest.raises((InvalidInput, SourceError), match=said) as found:
        sf.release(plan, name, ledger=ledger)
    assert "SECRET" not in str(found.value)
    assert not ledger.entries()
    assert set(kinds._INSTEAD).isdisjoint({".csv", ".parquet", ".xlsx"})
