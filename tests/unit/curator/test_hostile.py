"""Hostile input is refused without a word of it, or read by a rule that never raises; and nothing is left behind.

Classes of the corpus: C an error of loading for the custodian (SourceError), T a row that gets a cell
as declared, never an error.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sfumato.curator.rows import readers
from sfumato.curator.rows.sources import open_source
from sfumato.domain import Categories, Domain, Integers
from sfumato.errors import SfumatoError, SourceError
from support.reading import write_csv

OTHER = {"outside": "other", "missing": "other"}
SMALL = Domain({"x": Integers(0, 9, **OTHER), "y": Categories(["a", "b"], **OTHER)})
SECRET = "Zebra77"

# Class C: errors of loading. Each pair differs in one record, and the two messages not in one byte.

BROKEN: dict[str, tuple[str, bytes]] = {
    "no bytes": ("t.csv", b""),
    "UTF-16": ("t.csv", "x,y\n1,a\n2,Zebra77\n".encode("utf-16")),
    "a quote never closed": ("t.csv", b'x,y\n1,a\n2,"Zebra77\n3,a\n'),
    "a quote that closes within a field of another line": ("t.csv", b'x,y\n1,a\n2,"Zebra77\n3,"a"\n'),
    "a blank first line": ("t.csv", b"\nx,y\n1,Zebra77\n"),
    "gzip called csv": ("t.csv", b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xffZebra77"),
    "JSON cut short": ("t.json", b'[{"x":1,"y":"a"},{"x":2,"y":"Zebra77'),
    "JSON without its last bracket": ("t.json", b'[{"x":1,"y":"a"},{"x":2,"y":"Zebra77"}'),
    "JSON of nothing": ("t.json", b" \n"),
    "JSON that is a text": ("t.json", b'"Zebra77"'),
    "JSON with junk after": ("t.json", b'[{"x":1,"y":"a"}] Zebra77'),
    "text called parquet": ("t.parquet", b"x,y\n1,Zebra77\n"),
}

# Class T: what stood in the table before, and a record that cannot be read as it stands: the cells of all.
MENDED: dict[str, tuple[str, bytes, list[tuple[int, int]]]] = {
    "a NUL": ("t.csv", b"x,y\n1,a\n2,Zebra77\x00\n\x003,b\n", [(1, 0), (2, 2), (10, 1)]),
    "Latin-1": ("t.csv", b"x,y\n1,a\n2,Zebra77\xe9\n3\xe9,b\n", [(1, 0), (2, 2), (10, 1)]),
    "a character cut short at the end": ("t.csv", b"x,y\n1,a\n2,Zebra77\xc3", [(1, 0), (2, 2)]),
    "a quote within a field": ("t.csv", b'x,y\n1,a\n2,Zebra77"\n3,a\n', [(1, 0), (2, 2), (3, 0)]),
    "text after a quote": ("t.csv", b'x,y\n1,a\n2,"a"7\n3,a\n', [(1, 0), (2, 2), (3, 0)]),
    "too many fields": ("t.csv", b"x,y\n1,a\n2,a,Zebra77\n", [(1, 0), (10, 2)]),
    "too few fields": ("t.csv", b"x,y\n1,a\n2\n", [(1, 0), (2, 2)]),
    "a remark": ("t.csv", b"x,y\n# Zebra77\n1,a\n2,b\n# Zebra77\n3,b\n", [(10, 2), (1, 0), (2, 1), (10, 2), (3, 1)]),
    "mixed line ends": ("t.csv", b"x,y\r\n1,a\r\n2,b\n3,a\r\n", [(1, 0), (2, 1), (3, 0)]),
    "a return within a line": ("t.csv", b"x,y\n1,a\r2,b\n3,a\n", [(10, 2), (3, 0)]),
    "a line of three megabytes": (
        "t.csv",
        b"x,y\n1,a\n2," + b"Zebra77" * 430_000 + b"\n3,b\n",
        [(1, 0), (10, 2), (3, 1)],
    ),
    "JSON with a comma too many": ("t.json", b'[{"x":1,"y":"Zebra77"},]', [(1, 2)]),
    "JSON of numbers": ("t.json", b"[1, 2, 77]", [(10, 2)] * 3),
    "JSON with a null record": ("t.json", b'[{"x":1,"y":"Zebra77"}, null]', [(1, 2), (10, 2)]),
    "JSON with a list in a field": ("t.json", b'[{"x":1,"y":["a"]}, {"x":{},"y":"a"}]', [(1, 2), (10, 0)]),
    "JSON that lacks a column": ("t.json", b'[{"x":1,"z":"Zebra77"}]', [(1, 2)]),
    "JSON in Latin-1": ("t.json", b'[{"x":1,"y":"Zebra77\xe9"},{"x":1,"y":"a"}]', [(10, 2), (1, 0)]),
    "JSON with a number of its own": ("t.json", b'[{"x":01,"y":"a"},{"x":2,"y":"a"}]', [(10, 2), (2, 0)]),
    "JSON with a line end in a text": ("t.json", b'[{"x":1,"y":"a\n"},{"x":2,"y":"a"}]', [(10, 2), (2, 0)]),
    "objects with a broken one": (
        "t.json",
        b'{"x":1,"y":"a"} {"x":2,"y":Zebra77} zz\n{"x":3}',
        [(1, 0), (10, 2), (10, 2), (3, 2)],
    ),
    "JSON lines with a broken one": (
        "t.ndjson",
        b'{"x":1,"y":"a"}\n{"x":2,"y":"Zebra77}\n{"x":3}\n',
        [(1, 0), (10, 2), (3, 2)],
    ),
    "JSON lines with two on a line": ("t.jsonl", b'{"x":1}{"x":2}\r\n{"x":3}\r\n[\r\n', [(10, 2), (3, 2), (10, 2)]),
    "no JSON lines": ("t.jsonl", b"", []),
    "a long JSON line": ("t.ndjson", b'{"x":"' + b"1" * 2**22 + b'"}\n{"x":3}\n', [(10, 2), (3, 2)]),
    "a deep JSON line": (
        "t.ndjson",
        b'{"x":' + b"[" * 10**6 + b"]" * 10**6 + b',"y":"a"}\n{"x":3}\n',
        [(10, 0), (3, 2)],
    ),
}


@pytest.mark.parametrize("case", MENDED)
def test_records_that_are_not_well_formed_are_read_as_declared(tmp_path: Path, case: str) -> None:
    """Mutants: a file refused for one of its records; a record that is left out; a neighbour read along with it."""
    name, data, expected = MENDED[case]
    (tmp_path / name).write_bytes(data)
    found = open_source(tmp_path / name, SMALL).count([("x", "y")])[("x", "y")]
    assert [tuple(at) for at in np.argwhere(found) for _ in range(found[tuple(at)])] == sorted(expected)


def refusal_of(source: object, domain: Domain = SMALL, **options: Any) -> SfumatoError:
    with pytest.raises(SfumatoError) as refusal:
        open_source(source, domain, **options)
    return refusal.value


@pytest.mark.parametrize("case", BROKEN)
def test_broken_files_are_refused_without_a_value(tmp_path: Path, case: str) -> None:
    name, data = BROKEN[case]
    path = tmp_path / name
    messages = set()
    for neighbour in (
        data,
        data.replace(b"Zebra77", b"q"),
        data.replace(b"1,a\n", b""),
        data.replace(b'{"x":1,"y":"a"},', b""),
    ):
        if case == "a line of three megabytes" and len(neighbour) < 2**21:
            continue
        path.write_bytes(neighbour)
        error = refusal_of(path)
        assert isinstance(error, SourceError)
        assert error.__context__ is None
        assert error.__cause__ is None
        messages.add(str(error))
    assert len(messages) == 1
    assert SECRET not in messages.pop()


def test_damaged_parquet_is_refused(tmp_path: Path) -> None:
    table = pa.table({"x": [1] * 1000, "y": [SECRET] * 1000})
    pq.write_table(table, tmp_path / "t.parquet", compression="none", use_dictionary=False)
    good = (tmp_path / "t.parquet").read_bytes()
    assert open_source(tmp_path / "t.parquet", SMALL).rows == 1000
    for damaged in (good[:-5], good[:1000], good[8:], good.replace(SECRET.encode(), b"\xff" * 7)):
        (tmp_path / "t.parquet").write_bytes(damaged)
        error = refusal_of(tmp_path / "t.parquet")
        assert isinstance(error, SourceError)
        assert SECRET not in str(error)


def test_a_failing_relation_is_refused_without_its_values() -> None:
    relation = duckdb.connect().sql(f"SELECT CAST('{SECRET}' AS INTEGER) AS x, 'a' AS y FROM range(3)")
    error = refusal_of(relation)
    assert isinstance(error, SourceError)
    assert SECRET not in str(error)
    assert error.__context__ is None


def test_frames_with_types_that_cannot_be_read_are_refused() -> None:
    if not hasattr(pl, "Int128"):
        pytest.skip("polars has no type before 1.18 that DuckDB does not know")
    frame = pl.DataFrame({"x": [1], "y": ["a"], "z": pl.Series([1], dtype=pl.Int128)})
    assert "the polars table" in str(refusal_of(frame))


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "device.csv").symlink_to("/dev/zero")
    for name in ("folder.csv", "pipe.csv", "device.csv"):
        assert "is not a regular file" in str(refusal_of(tmp_path / name))
    (tmp_path / "nowhere.csv").symlink_to(tmp_path / "absent")
    for name in ("absent.csv", "nowhere.csv", "folder.csv/t.csv", "nul\0.csv", "x" * 5000 + ".csv"):
        assert "cannot be found or read" in str(refusal_of(tmp_path / name))


@pytest.mark.parametrize("name", ["t.csv", "t.json", "t.parquet"])
def test_an_empty_file_is_not_a_table_without_rows(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"")
    assert "is empty; a table without rows still has a header" in str(refusal_of(tmp_path / name))


def test_a_session_reaches_nothing_but_its_file(tmp_path: Path) -> None:
    allowed, other = (write_csv(tmp_path / n, ["x"], [("1",)]) for n in ("allowed.csv", "other.csv"))
    session = readers.DuckDBSession([str(allowed)])
    assert session.rows(f"FROM read_csv('{allowed}')") == [(1,)]
    for refused in (
        f"FROM read_csv('{other}')",
        f"COPY (SELECT 1) TO '{tmp_path / 'written.csv'}'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "FROM 'http://localhost/t.csv'",
        f"ATTACH '{tmp_path / 'new.db'}'",
        "SET enable_external_access = true",
        "SET allowed_directories = ['/']",
    ):
        with pytest.raises(duckdb.Error):
            session.rows(refused)
    assert sorted(os.listdir(tmp_path)) == ["allowed.csv", "other.csv"]
    ((spill,),) = session.rows("SELECT current_setting('temp_directory')")
    assert os.path.isdir(os.path.dirname(spill))
    assert os.stat(os.path.dirname(spill)).st_mode & 0o077 == 0
    session.close()
    assert not os.path.exists(os.path.dirname(spill))


def test_more_than_the_limit_is_taken_for_a_bomb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"x": np.zeros(200_000, dtype=np.int64), "y": ["a"] * 200_000})
    pq.write_table(table, tmp_path / "t.parquet", compression="zstd")
    text = write_csv(tmp_path / "t.csv", ["x", "y"], [("1", "a")] * 1000)
    assert (tmp_path / "t.parquet").stat().st_size < 5000
    with monkeypatch.context() as patch:
        patch.setattr(readers, "MAX_ROWS", 100_000)
        assert "holds more than" in str(refusal_of(tmp_path / "t.parquet"))
        patch.setattr("sfumato.curator.rows.loading.MAX_ROWS", 100_000)
        assert "more than 100,000 rows" in str(refusal_of(table))
    monkeypatch.setattr(readers, "MAX_BYTES", 5000)
    assert "holds more than" in str(refusal_of(text))


def test_a_table_that_reaches_for_other_files_is_refused(tmp_path: Path) -> None:
    other = write_csv(tmp_path / "other.csv", ["x", "y"], [("1", "a")])
    connection = duckdb.connect(str(tmp_path / "f.db"))
    connection.execute(f"CREATE VIEW people AS SELECT * FROM read_csv('{other}')")
    connection.close()
    assert "that can be read by itself" in str(refusal_of(f"duckdb:///{tmp_path}/f.db?table=people"))
    assert "that can be read by itself" in str(refusal_of(f"duckdb:///{tmp_path}/f.db?table=absent"))
    assert "cannot be opened" in str(refusal_of(f"duckdb:///{other}?table=people"))


# Class T: rows without an error


@pytest.mark.parametrize(
    ("data", "rows"),
    [
        (b"x,y\n", 0),
        (b"x,y", 0),
        (b"\xef\xbb\xbfx,y\r\n1,a\r\n", 1),
        (b"x,y\r1,a\r2,b\r", 2),
        (b"x,y\n1,a\n\n\n2,b", 2),
        (b'"x","y"\n"1","a\nb\r\n,"""\n', 1),
        (b"x\ty\n1\ta\n", 1),
        (b"x|y\n1|a\n", 1),
        (b"#c,y,x\n#1,a,b\n", 1),
        (b"y,'x',x\n1,2,3\n'1,2',3\n", 2),
    ],
)
def test_plain_variations_of_csv_are_read(tmp_path: Path, data: bytes, rows: int) -> None:
    (tmp_path / "t.csv").write_bytes(data)
    assert open_source(tmp_path / "t.csv", SMALL).rows == rows


def test_a_blank_line_of_a_one_column_file_is_a_missing_field(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"x\n1\n\n3\n")
    counts = open_source(tmp_path / "t.csv", Domain({"x": Integers(0, 3, **OTHER)})).count([("x",)])
    assert counts[("x",)].tolist() == [0, 1, 0, 1, 1]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("t.json", b"[]"),
        ("t.json", b'\xef\xbb\xbf[{"x":1,"y":null}]'),
        ("t.json", b'{"x":1,"y":"a"}{"x":2,\r\n"y":"a"}'),
        ("t.jsonl", b'{"x":1,"y":"a"}\r\n\r\n{"x":1,"y":"a"}'),
    ],
)
def test_plain_variations_of_json_are_read(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    assert open_source(tmp_path / name, SMALL).rows == data.count(b"{")


def test_json_numbers_that_are_odd(tmp_path: Path) -> None:
    fields = ["1e400", "-1e400", "NaN", "Infinity", "1.0", "1e0", "true", "null", '"3"', "-0.0", "1.5", str(2**70)]
    (tmp_path / "t.json").write_text("[" + ",".join(f'{{"x":{f},"y":"a"}}' for f in fields) + "]")
    domain = Domain({"x": Integers(0, 9, outside="clamp", missing="other")})
    counts = open_source(tmp_path / "t.json", domain).count([("x",)])[("x",)]
    assert counts.tolist() == [2, 3, 0, 1, 0, 0, 0, 0, 0, 3, 3]


@pytest.mark.parametrize("place", [0, 12_345, 49_999])
def test_types_are_never_guessed_from_the_data(tmp_path: Path, place: int) -> None:
    """A text, wherever it stands among numbers: guessing from a sample would raise, or change the result."""
    values: list[Any] = [1] * 50_000
    values[place] = SECRET
    path = write_csv(tmp_path / "t.csv", ["x", "y"], [(str(v), "a") for v in values])
    frame = pd.DataFrame({"x": pd.Series(values, dtype=object), "y": "a"})
    for source in (path, frame):
        assert open_source(source, SMALL).count([("x",)])[("x",)].tolist() == [0, 49_999, *[0] * 8, 1]


# Traces


def test_nothing_is_printed_or_left_behind(tmp_path: Path) -> None:
    """Also when the records stay in DuckDB, and when loading fails."""
    work, temporary = tmp_path / "work", tmp_path / "temporary"
    work.mkdir()
    temporary.mkdir()
    write_csv(tmp_path / "t.csv", ["x", "y"], [(str(i % 11), "a") for i in range(20_000)])
    (tmp_path / "u.csv").write_bytes(b'x,y\n1,"ab\n')
    (tmp_path / "v.csv").write_bytes(b"x,y\n1,a,b\n2,b\n")
    script = f"""
import sys
from sfumato.curator.rows import loading, sources
from sfumato.domain import Categories, Domain, Integers
from sfumato.errors import SourceError
domain = Domain({{"x": Integers(0, 9, outside="other", missing="other")}})
assert sources.open_source({str(tmp_path / "t.csv")!r}, domain).rows == 20000
assert loading.MEMORY_LIMIT > 0
loading.MEMORY_LIMIT = 0
kept = sources.open_source({str(tmp_path / "t.csv")!r}, domain)
assert kept.count([("x",)])[("x",)].sum() == 20000
mended = sources.open_source({str(tmp_path / "v.csv")!r}, domain)
assert mended.count([("x",)])[("x",)].tolist() == [0, 0, 1, *[0] * 7, 1]
try:
    sources.open_source({str(tmp_path / "u.csv")!r}, domain)
except SourceError:
    pass
else:
    raise AssertionError
assert not {{"pandas", "polars", "pyarrow", "sqlglot"}} & set(sys.modules)
"""
    environment = {**os.environ, "TMPDIR": str(temporary), "HOME": str(work)}
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], cwd=work, env=environment, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert list(work.iterdir()) == []
    assert list(temporary.iterdir()) == []


def test_frames_need_no_pyarrow() -> None:
    script = """
import sys
sys.modules["pyarrow"] = None
import duckdb, pandas, polars
from sfumato.curator.rows.sources import open_source
from sfumato.domain import Categories, Domain, Integers
both = dict(outside="other", missing="other")
domain = Domain({"x": Integers(0, 1, **both), "y": Categories(["a"], **both)})
rows = {"x": [0, 1, 5], "y": ["a", None, "b"]}
for source in (pandas.DataFrame(rows), polars.DataFrame(rows), duckdb.sql("SELECT unnest([0, 1, 5]) AS x, 'a' AS y")):
    assert open_source(source, domain).count([("x",)])[("x",)].tolist() == [1, 1, 1]
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_importing_the_curator_does_not_import_a_database() -> None:
    heavy = "{'duckdb', 'pandas', 'polars', 'pyarrow'}"
    script = f"import sys, sfumato.curator.rows.loading; assert not {heavy} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)
