"""What once let one record decide for others, each by itself; `tests/laws/test_stability.py` looks for more."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sfumato.curator.rows.sources import open_source
from sfumato.domain import Attribute, Bins, Booleans, Categories, Domain, Integers

OTHER = {"outside": "other", "missing": "other"}


def counted(source: Any, attribute: Attribute, **options: Any) -> list[int]:
    return open_source(source, Domain({"x": attribute}), **options).count([("x",)])[("x",)].tolist()


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
@pytest.mark.parametrize("policy", ["other", "drop"])
def test_a_nan_in_parquet_is_missing_beside_any_others(tmp_path: Path, kind: pa.DataType, policy: str) -> None:
    """Mutant: the optimizer trusts the statistics of the file, which leave NaN out."""
    attributes = [
        Integers(0, 1, outside="clamp", missing=policy),
        Bins([0, 5, 200], outside=policy, missing=policy),
        Categories(["1", "nan"], outside=policy, missing=policy),
    ]
    for others in ([], [0.0, 1.0], [0.0, 100.0], [math.inf]):
        for attribute in attributes:
            seen = []
            for more in ([], [math.nan]):
                pq.write_table(pa.table({"x": pa.array([*others, *more], kind)}), tmp_path / "t.parquet")
                seen.append(np.array(counted(tmp_path / "t.parquet", attribute)))
            moved = [0] * (attribute.size - 1) + [1] if policy == "other" else [0] * attribute.size
            assert (seen[1] - seen[0]).tolist() == moved


def test_a_timestamp_that_cannot_be_written_cannot_be_read() -> None:
    """Mutant: every timestamp cast to a text, which ends the database."""
    codes = Categories(["2001-02-03 00:00:00"], outside="drop", missing="other")
    moment = 981158400
    for unit, scale in (("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)):
        values = pa.array([moment * scale, -(2**63) + 1, 2**63 - 1, -(2**62), None], pa.int64())
        assert counted(pa.table({"x": values.view(pa.timestamp(unit))}), codes) == [1, 1]


def test_names_that_cannot_be_read_are_nobodys(tmp_path: Path) -> None:
    """Mutant: all such names taken for one person, who then has a place for one row only."""
    rows = [b"0,\xff", b"0,\xfe", b'1,"p"q', b"1,p,q", b"1,p", b"0,"]
    (tmp_path / "t.csv").write_bytes(b"x,who\n" + b"\n".join(rows))
    assert counted(tmp_path / "t.csv", Integers(0, 1, **OTHER), person="who") == [0, 1, 0]
    records = [b'{"x":0,"who":[1]}', b'{"x":0,"who":{}}', b'{"x":0,"who":NaN}', b"[]", b'{"x":1,"who":2}']
    (tmp_path / "t.ndjson").write_bytes(b"\n".join([*records, b'{"x":1,"who":2.0}', b'{"x":1,"who":"2"}']))
    assert counted(tmp_path / "t.ndjson", Integers(0, 1, **OTHER), person="who") == [0, 1, 0]


ODD = [None, math.nan, pd.NA, True, 7, 7.0, 0.1, "7", "zz", [1], b"7", pd.Timestamp(0), 1 + 1j, object()]
CODES = ["1", "2", "7", "0.1", "0.5", "true", "false", "nan", "1970-01-01 00:00:00"]
FOUR = Domain(
    {
        "c": Categories(CODES, **OTHER),
        "i": Integers(0, 9, **OTHER),
        "b": Bins([0, 0.2, 8], **OTHER),
        "f": Booleans(**OTHER),
    }
)


def tables(column: Any) -> np.ndarray:
    """The counts of one column read as four attributes, one after the other."""
    found = open_source(pd.DataFrame(dict.fromkeys("cibf", column)), FOUR).count([(name,) for name in "cibf"])
    return np.concatenate([found[(name,)] for name in "cibf"])


def test_pandas_decides_nothing() -> None:
    """Mutants: what a column is read as taken from its dtype; NaN as a text; a dtype refused."""
    alone = [tables(pd.Series([element], dtype=object)) for element in ODD]
    for column in ([1, 2, 7], [1.0, 0.5], [True, False], ["7", "a"], [pd.Timestamp(0)], [b"1"], [1j]):
        plain = tables(pd.Series(column))
        for element, one in zip(ODD, alone, strict=True):
            np.testing.assert_array_equal(tables(pd.Series([*column, element])) - plain, one, repr((column, element)))
    assert counted(pd.DataFrame({"x": [math.nan]}), Categories(["nan"], outside="drop", missing="other")) == [0, 1]
    assert counted(pd.DataFrame({"x": pd.Series(["\ud800", 1], dtype=object)}), Categories(["1"], **OTHER)) == [1, 1]


def test_a_line_end_within_quotes_is_no_record_wherever_it_lies(tmp_path: Path) -> None:
    """Mutant: a parallel reader, which starts at fixed bytes and takes the inner line end for that of a record."""
    row, middle = b"1," + b"p" * 97 + b"\n", 2**25  # where the second of the engine's buffers begins
    for before in (3, 6, 9, 12):
        whole, rest = divmod(middle - before - 4, len(row))
        lines = [
            b"x,b\n",
            row * (whole - 1),
            b"1," + b"p" * (97 + rest) + b"\n",
            b'0,"1 Main St\nLondon, UK"\n',
            row * 9000,
        ]
        (tmp_path / "t.csv").write_bytes(b"".join(lines))
        assert counted(tmp_path / "t.csv", Integers(0, 1, **OTHER)) == [1, whole + 9000, 0]


def test_a_file_is_read_under_its_own_name(tmp_path: Path) -> None:
    """Mutant: brackets and stars are left to the engine, which takes them for a pattern of other names."""
    folder = tmp_path / "of [2026]"
    folder.mkdir()
    (folder / "q1.csv").write_text("x\n0\n0\n0\n")
    for body, expected in (("x\n1\n", [0, 1, 0]), ("x\n1\n0,0\n", [0, 1, 1])):
        for name in ("q[1].csv", "q*.csv", "q?.csv"):
            (folder / name).write_text(body)
            assert counted(folder / name, Integers(0, 1, **OTHER)) == expected
    (folder / "q[1].ndjson").write_text('{"x":1}\n')
    assert counted(folder / "q[1].ndjson", Integers(0, 1, **OTHER)) == [0, 1, 0]
    pq.write_table(pa.table({"x": [1]}), folder / "q[1].parquet")
    assert counted(folder / "q[1].parquet", Integers(0, 1, **OTHER)) == [0, 1, 0]


@pytest.mark.parametrize("field", [b",", b'"",', b'a"b,', b'"a"b,', b'"a\nb",', b'"a""b" ,'])
def test_a_record_of_fields_too_many_is_one_record(tmp_path: Path, field: bytes) -> None:
    """Whatever its fields look like. Mutant: a field that is passed over ends the record."""
    for many in (1, 2, 5, 3_000):
        (tmp_path / "t.csv").write_bytes(b"x,y\n1,p\n" + field * (many + 1) + b"\n0,q\n")
        assert counted(tmp_path / "t.csv", Integers(0, 1, **OTHER)) == [1, 1, 1]
