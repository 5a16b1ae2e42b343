"""How a table is written: the same counts of one table in every notation, encoding and kind of source."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato._util import codec
from sfumato.curator.rows import text_files as textfile
from sfumato.curator.rows.samples import column_names, named_or_spec_table
from sfumato.curator.rows.sources import open_source
from sfumato.curator.rows.written import Source, source_of
from sfumato.domain import Bins, Categories, Domain, Integers
from sfumato.errors import InvalidInput, SourceError
from support.postgres import Server
from support.spark import Running

OTHER: dict[str, Any] = {"outside": "other", "missing": "other"}
EDGES = [-2e6, -1000, -1, 0, 0.5, 1, 1.5, 5, 7, 8, 12.5, 100, 1000, 1234.5, 1235, 1e5, 2e6]
NUMBER = Bins(EDGES, outside="other", missing="drop")
PLACES = ["Köln", "Zürich", "Łódź", "7", "1,5", "1.5"]
DOMAIN = Domain(
    {"x": NUMBER, "i": Integers(-5, 2000, 5, outside="clamp", missing="other"), "p": Categories(PLACES, **OTHER)}
)
SETS = [("x",), ("i",), ("p",), ("x", "p")]
# Numbers in some notation, and what is one in none
HOSTILE = ["1.234,56", "1,234.56", "1.234", "1,234", "1234,5", "1234.5", "12.34", "12,34", "1,2,3", "1.2.3", ",5", ".5"]
HOSTILE += ["5,", "5.", "-1.000", "-1,000", "+1,5e2", "+1.5E2", "1e3", "1,5e-1", "inf", "-Infinity", "nan", " 7 ", "7"]
HOSTILE += [
    "7,0",
    "7.0",
    "7,00",
    "１",
    "1 234,5",
    "1\u00a0234,5",
    "1\u202f234.5",
    "1'234.5",
    "1’234,5",
    "--1",
    "",
    "0x10",
]
HOSTILE += [
    "1_000",
    "€5",
    "9" * 400,
    "1.0000",
    "0,0001",
    "1.234.567,8",
    "1.23.456",
    "12.345.6",
    "abc",
    "1,5 ",
    "-",
    ",",
]
NOTATIONS = [(".", ""), (",", ""), (",", "."), (".", ","), (",", " "), (".", "'")]
GROUPS = {" ": " \u00a0\u2009\u202f", "'": "'’"}


def value(text: str | None, decimal: str, thousands: str) -> float | None:
    """A number in a notation, read by hand."""
    rest = (text or "").strip(" \t\n\f\r")
    sign = -1 if rest[:1] == "-" else 1
    rest = rest[1:] if rest[:1] in ("-", "+") else rest
    if rest.lower() in ("inf", "infinity"):
        return sign * math.inf
    mantissa, e, exponent = rest.replace("E", "e").partition("e")
    whole, point, part = mantissa.partition(decimal)
    marks = GROUPS.get(thousands, thousands)
    groups = "".join("|" if c in marks else c for c in whole).split("|") if marks else [whole]
    if len(groups) > 1 and (not 1 <= len(groups[0]) <= 3 or any(len(g) != 3 for g in groups[1:])):
        return None
    digits = "".join(groups)
    if not all(all(c in "0123456789" for c in t) for t in (digits, part)) or not (digits or (point and part)):
        return None
    power = exponent[1:] if exponent[:1] in ("-", "+") else exponent
    if e and not (power and all(c in "0123456789" for c in power)):
        return None
    return sign * float(f"{digits or 0}.{part or 0}e{exponent or 0}")


def counted(source: Any, domain: Domain = DOMAIN, **options: Any) -> list[list[int]]:
    found = open_source(source, domain, **options).count([s for s in SETS if set(s) <= set(domain.names)])
    return [t.tolist() for t in found.values()]


def by_hand(rows: list[dict[str, str | None]], decimal: str, thousands: str) -> list[int]:
    """Counts of "x", whose rows without a number are dropped."""
    cells = [0] * NUMBER.size
    for row in rows:
        number = value(row["x"], decimal, thousands)
        if number is not None:
            within = EDGES[0] <= number < EDGES[-1]
            cells[int(np.searchsorted(EDGES, number, side="right")) - 1 if within else -1] += 1
    return cells


def rows_of(texts: list[str]) -> list[dict[str, str | None]]:
    some = [*PLACES, "Rom", None]
    return [{"x": t or None, "i": texts[-1 - k] or None, "p": some[k % len(some)]} for k, t in enumerate(texts)]


def text(rows: list[dict[str, str | None]], delimiter: str, end: str = "\r\n") -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, ["x", "i", "p"], delimiter=delimiter, lineterminator=end)
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def forms(folder: Path, rows: list[dict[str, str | None]], decimal: str, thousands: str) -> Iterator[tuple[str, Any]]:
    """One table in every form that texts have."""
    how = {"decimal": decimal, "thousands": thousands}
    columns = {n: [row[n] for row in rows] for n in ("x", "i", "p")}
    for delimiter, name in ((",", "t.csv"), (";", "t.csv"), ("\t", "t.tsv"), ("|", "t.csv.gz"), ("\t", "t.tsv.gz")):
        path = folder / name
        data = text(rows, delimiter).encode()
        path.write_bytes(gzip.compress(data) if name.endswith("gz") else data)
        declared = {} if name.startswith("t.tsv") else {"delimiter": delimiter}
        yield f"{name} {delimiter}", sf.Source(str(path), **how, **declared)
    (folder / "t.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows))
    yield "ndjson", sf.Source(folder / "t.ndjson", **how)
    yield "pandas", sf.Source(pd.DataFrame(columns, dtype=object), **how)
    yield "polars", sf.Source(pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.String)), **how)
    table = pa.table(columns, pa.schema([(n, pa.string()) for n in columns]))
    yield "arrow", sf.Source(table, **how)
    pq.write_table(table, folder / "t.parquet")
    yield "parquet", sf.Source(folder / "t.parquet", **how)
    with duckdb.connect(str(folder / "t.db")) as connection:
        connection.register("given", table)
        connection.execute("CREATE OR REPLACE TABLE t AS SELECT * FROM given")
    yield "duckdb", sf.Source(f"duckdb:///{folder}/t.db?table=t", **how)


@pytest.mark.parametrize(("decimal", "thousands"), NOTATIONS)
def test_a_text_is_a_number_in_the_declared_notation_alone(tmp_path: Path, decimal: str, thousands: str) -> None:
    """By hand, and the same in all forms. Mutants: groups of other than three digits; a point taken for the decimal
    mark beside a comma; separators taken out first, so that "1.5" is 15; a notation that forms do not share."""
    rows = rows_of(HOSTILE)
    found = {name: counted(source) for name, source in forms(tmp_path, rows, decimal, thousands)}
    assert len(found) >= 11
    # the default reads what DuckDB does, which the house has tested elsewhere
    if (decimal, thousands) != (".", ""):
        alone = Domain({"x": NUMBER})
        source = next(forms(tmp_path, rows, decimal, thousands))[1]
        assert counted(source, alone)[0] == by_hand(rows, decimal, thousands)
    first = next(iter(found.values()))
    assert {name for name, tables in found.items() if tables != first} == set()


@pytest.mark.parametrize("encoding", ["cp1250", "cp1252", "iso8859-15", "mac-roman", "cp850", "koi8-r"])
def test_a_file_in_another_encoding_is_the_file_in_utf_8(tmp_path: Path, encoding: str) -> None:
    """Mutant: bytes that happen to be UTF-8 taken for it."""
    rows = [row for row in rows_of([*HOSTILE, *HOSTILE]) if within(row, encoding)]
    assert len(rows) > 40
    (tmp_path / "a.csv").write_text(text(rows, ";"), newline="", encoding="utf-8")
    (tmp_path / "b.csv").write_bytes(text(rows, ";").encode(encoding))
    how = {"decimal": ",", "thousands": " "}
    one = counted(sf.Source(tmp_path / "a.csv", **how))
    assert counted(sf.Source(tmp_path / "b.csv", **how, encoding=encoding)) == one


def within(row: dict[str, str | None], encoding: str) -> bool:
    return all((v or "").encode(encoding, "ignore").decode(encoding) == (v or "") for v in row.values())


@settings(max_examples=3)
@given(
    texts=st.lists(
        st.one_of(st.sampled_from(HOSTILE), st.text("0123456789.,' -+eE\u00a0", max_size=9)), min_size=1, max_size=12
    ),
    notation=st.sampled_from(NOTATIONS[1:]),
)
def test_drawn_texts_mean_the_same_in_all_forms(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], notation: tuple[str, str]
) -> None:
    rows = rows_of(texts)
    expected = by_hand(rows, *notation)
    for name, source in forms(tmp_path_factory.mktemp("drawn"), rows, *notation):
        assert counted(source, Domain({"x": NUMBER}))[0] == expected, name


def test_numbers_are_numbers_whatever_is_declared_of_texts(tmp_path: Path) -> None:
    """Columns of numbers, and numbers beside texts. Mutants: a number's own text read in the notation of texts; the
    numbers of a column of objects by the rule of its texts."""
    domain = Domain({"x": NUMBER})
    expected = counted(pd.DataFrame({"x": [1234.5, 0.5, 1.5, 7.0, 1e-7]}), domain)
    given: list[Any] = [1234.5, 0.5, 1.5, 7, 1e-7]
    (tmp_path / "n.ndjson").write_text("".join(json.dumps({"x": v}) + "\n" for v in given))
    pq.write_table(pa.table({"x": [*map(float, given)]}), tmp_path / "n.parquet")
    mixed = pd.DataFrame({"x": pd.Series(["1.234,5", 0.5, np.float32(1.5), 7, "1e-7"], dtype=object)})
    for table in (pd.DataFrame({"x": [*map(float, given)]}), tmp_path / "n.ndjson", tmp_path / "n.parquet", mixed):
        assert counted(sf.Source(table, decimal=",", thousands="."), domain) == expected


def test_ids_that_became_floats_in_a_file_with_decimal_commas_are_the_ids(tmp_path: Path) -> None:
    """Mutants: the declared mark not that of names and codes; "7.0" a name of its own where a comma is declared."""
    (tmp_path / "t.csv").write_text("x;who\n1;7\n1;7,0\n1;7.0\n1;8,00\n1;8\n")
    source = sf.Source(tmp_path / "t.csv", decimal=",")
    assert open_source(source, Domain({"x": NUMBER}), person="who", rows_per_person=1).rows == 2
    codes = Domain({"who": Categories(["7", "8,00", "8"], **OTHER)})
    assert open_source(source, codes).count([("who",)])[("who",)].tolist() == [3, 1, 1, 0]


def test_a_byte_that_is_no_character_makes_its_field_unreadable_and_nothing_else(tmp_path: Path) -> None:
    """Mutants: an error; a whole file read as another encoding; two such bytes that make a character of UTF-8 together;
    a delimiter or line end lost with it."""
    domain = Domain({"p": Categories(["Köln", "Ã", "\ufffd"], **OTHER), "x": NUMBER})
    for encoding, odd in (
        ("cp1252", b"\x81"),
        ("cp1253", b"\xd2"),
        ("iso8859-8", b"\xc3\xa1"),
        ("cp1255", b"\xd9\xda"),
    ):
        good = "Köln".encode(encoding, "ignore") if encoding == "cp1252" else b"Rom"
        rows = [
            b"1;" + good,
            b"1;K" + odd + b"ln",
            b"1;" + odd,
            odd + b';"' + odd + b'"',
            b"7;" + good,
            b"7;" + odd + b";9",
        ]
        (tmp_path / "t.csv").write_bytes(b"x;p\n" + b"\n".join(rows) + b"\n")
        source = sf.Source(tmp_path / "t.csv", encoding=encoding, delimiter=";")
        if encoding == "iso8859-8":
            odd.decode("utf-8")  # a character there, so that only the declared encoding knows
        found = open_source(source, domain)
        assert found.rows == 4  # a field too many, and no number, are dropped for "x"
        if encoding == "cp1252":
            assert found.count([("p",)])[("p",)].tolist() == [2, 0, 0, 2]
        else:
            assert found.count([("p",)])[("p",)].tolist() == [0, 0, 0, 4]
    (tmp_path / "t.csv").write_bytes("x;p\n".encode("utf-16"))
    with pytest.raises(SourceError, match="mark of UTF-16: save it as UTF-8"):
        counted(sf.Source(tmp_path / "t.csv"), domain)
    (tmp_path / "t.csv").write_bytes("x;p\n".encode("utf-8-sig"))
    with pytest.raises(SourceError, match="mark of UTF-8: leave encoding out"):
        counted(sf.Source(tmp_path / "t.csv", encoding="cp1252"), domain)


def test_large_files_in_another_encoding_are_read_across_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutants: what a block begins or ends with lost or read twice; quotes that reach over it."""
    monkeypatch.setattr(textfile, "_BLOCK", 777)
    rows: list[dict[str, str | None]] = [
        {"x": f"{k % 1300},{k % 10}", "i": str(k), "p": 'Kö"ln\n' if k % 3 else "Köln"} for k in range(2000)
    ]
    expected = None
    for encoding, name in (("utf-8", "a.csv"), ("cp1252", "b.csv"), ("utf-8", "c.csv.gz"), ("cp1252", "d.csv.gz")):
        data = text(rows, ";").encode(encoding)
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
        found = counted(sf.Source(tmp_path / name, decimal=",", encoding=encoding))
        expected = expected or found
        assert found == expected
        assert sum(found[0]) == 2000


def test_a_damaged_or_endless_packed_file_is_refused_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: a bomb unpacked to the end."""
    data = gzip.compress(b"x\n" + b"1\n" * 100_000)
    (tmp_path / "cut.csv.gz").write_bytes(data[: len(data) // 2])
    (tmp_path / "bad.csv.gz").write_bytes(b"\x1f\x8b" + b"a" * 100)
    (tmp_path / "t.csv.gz").write_bytes(data)
    domain = Domain({"x": NUMBER})
    for name in ("cut.csv.gz", "bad.csv.gz"):
        with pytest.raises(SourceError, match="cannot be read"):
            counted(tmp_path / name, domain)
    assert sum(counted(tmp_path / "t.csv.gz", domain)[0]) == 100_000
    monkeypatch.setattr(textfile, "MAX_UNPACKED", 50_000)
    with pytest.raises(SourceError, match="more than 50,000 bytes, unpacked: give it as Parquet"):
        counted(tmp_path / "t.csv.gz", domain)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"decimal": ";"}, "decimal=';' is not allowed; use one of '.', ','"),
        ({"decimal": ",", "thousands": ","}, "decimal and thousands are both ','"),
        ({"thousands": "."}, "decimal and thousands are both '.'"),
        ({"thousands": "x"}, "thousands='x' is not allowed"),
        ({"delimiter": '"'}, "delimiter='\"' is not allowed"),
        ({"encoding": "utf-16"}, "save the file as UTF-8"),
        ({"encoding": "shift_jis"}, "encoding='shift_jis' is not read"),
        ({"encoding": None}, "encoding=None is not read"),
        ({"sheet": 1}, "sheet is the name of a sheet"),
    ],
)
def test_a_notation_that_is_none_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said.replace(".", "[.]")):
        sf.Source("t.csv", **given)


def test_what_a_table_has_not_is_refused_before_it_is_read(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1.0]}), tmp_path / "t.parquet")
    ledger = sf.Ledger.in_memory(sf.gdp(1))
    plan = sf.plan(sf.identity(Domain({"x": NUMBER})), sf.gdp(1), neighbours="add-remove")
    frame = pd.DataFrame({"x": [1.0]})
    tables: list[tuple[Any, str]] = [(tmp_path / "t.parquet", "encoding"), (frame, "encoding"), (frame, "sheet")]
    tables += [
        (pa.table({"x": [1.0]}), "delimiter"),
        (str(tmp_path / "t.csv"), "sheet"),
        ("duckdb:///t.db?table=t", "sheet"),
    ]
    tables += [("postgresql:///nowhere?table=t", "encoding")]
    for table, name in tables:
        source = sf.Source(table, **{name: {"encoding": "cp1252", "delimiter": ";", "sheet": "a"}[name]})
        with pytest.raises(InvalidInput, match=f"{name} is of a .*: leave {name} out"):
            sf.release(plan, source, ledger=ledger)
    with pytest.raises(InvalidInput, match="not of another source"):
        sf.Source(sf.Source("t.csv"))
    with pytest.raises(InvalidInput, match="is not a source of data"):
        sf.release(plan, sf.Source(sf.Histogram([1] * NUMBER.size)), ledger=ledger)
    assert not ledger.entries()


def test_a_source_shows_no_table_and_is_kept_whole() -> None:
    assert "SECRET" not in repr(sf.Source(pd.DataFrame({"x": ["SECRET"]}), decimal=","))
    assert "pass" not in repr(sf.Source("postgresql://a:pass@b/c?table=t"))
    kept = sf.Source("t.csv", decimal=",", encoding="latin-1")
    assert repr(codec.rebuild(kept)) == repr(kept)


def test_names_in_a_header_are_read_as_it_is_written(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes("größe;p,q;z\n1;2;3\n".encode("cp1252"))
    assert column_names(sf.Source(tmp_path / "t.csv", encoding="cp1252")) == ("größe", "p,q", "z")
    for action in (column_names, lambda s: open_source(s, Domain({"größe": NUMBER}))):
        with pytest.raises(SourceError, match="not in utf-8: declare its encoding, such as cp1252"):
            action(str(tmp_path / "t.csv"))
    assert sum(counted(tmp_path / "t.csv", Domain({"z": NUMBER}))[0:0]) == 0  # what is not asked for may be anything


def test_a_server_and_spark_read_texts_by_the_notation(tmp_path: Path, postgres: Server, spark: Running) -> None:
    """Mutants: numeric, which arrives as its text, read by the notation; "7,0" no code where Spark places codes."""
    how = {"decimal": ",", "thousands": "."}
    (tmp_path / "t.csv").write_text("x;n;c\n1.234,5;1234,5;7,0\n0,5;0,5;7\n1.5;7;1\n")
    domain = Domain({"x": NUMBER, "n": NUMBER, "c": Categories(["7", "1"], **OTHER)})
    expected = counted_sets(sf.Source(tmp_path / "t.csv", **how), domain)
    assert expected == counted_sets(sf.Source(tmp_path / "t.csv", **how), domain)
    put = "('1.234,5', 1234.5, '7,0'), ('0,5', 0.5, '7'), ('1.5', 7, '1')"
    postgres.run(
        "DROP TABLE IF EXISTS noted",
        "CREATE TABLE noted (x text, n numeric, c text)",
        f"INSERT INTO noted VALUES {put}",
    )
    assert counted_sets(sf.Source(postgres.address("noted"), **how), domain) == expected
    frame = spark.frame(f"SELECT col1 AS x, CAST(col2 AS double) AS n, col3 AS c FROM VALUES {put}")
    assert counted_sets(sf.Source(frame, **how), domain) == expected


def counted_sets(source: Any, domain: Domain) -> dict[Any, list[int]]:
    return {k: v.tolist() for k, v in open_source(source, domain).count([(n,) for n in domain.names]).items()}


@pytest.mark.parametrize(
    ("declared", "table", "expected"),
    [
        ({"sheet": "A", "decimal": ","}, "b.csv", {"decimal": ","}),
        ({"sheet": "A", "decimal": ","}, "b.xlsx", {"decimal": ",", "sheet": "A"}),
        ({"encoding": "cp1252", "delimiter": ";"}, "b.tsv.gz", {"encoding": "cp1252", "delimiter": ";"}),
        ({"encoding": "cp1252", "delimiter": ";", "thousands": "'"}, "b.parquet", {"thousands": "'"}),
        ({"encoding": "cp1252"}, "duckdb:///b.db?table=t.csv", {}),
    ],
)
def test_of_a_spec_goes_for_another_table_what_its_kind_has(
    declared: dict[str, Any], table: str, expected: dict[str, str]
) -> None:
    """Mutants: all of it, so that a sample in another form is refused; nothing of it."""
    found = source_of(named_or_spec_table(Source("a", **declared), table))
    assert (found.table, found.declared()) == (table, expected)
    own = source_of(named_or_spec_table(Source("a", **declared), None))
    assert (own.table, own.declared()) == ("a", declared)
    assert source_of(named_or_spec_table(None, table, decimal=",")).declared() == {"decimal": ","}
