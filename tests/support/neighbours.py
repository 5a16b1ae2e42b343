"""Tables of odd records in every kind of source, made so that any record can be put in or taken out by itself.

A `Form` draws records and makes a source of a list of them. A record is whatever stands by itself: a line of a
CSV file with the end of its line, an element of a JSON array as bytes, a row of values. Persons are told apart by a
number, so that two items never name one person.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from sfumato.curator.keys import KeyCounts
from sfumato.domain import Bins, Booleans, Categories, Domain, Hierarchy, Integers
from support.elements import OBJECTS, Odd

Rng = np.random.Generator
COLUMNS = ("x", "b", "c", "f", "h", "who")
CODES = ["a", "1", "0", "-3", "true", "0.1", "nan", "é", "7", "2001-02-03"]


def domain(outside: str, missing: str) -> Domain:
    """An attribute of every kind."""
    plain = "other" if outside == "clamp" else outside
    nested = {"06": ["06001", "06003"], "1": ["7", "true"]}
    return Domain(
        {
            "x": Integers(-2, 9, 3, outside=outside, missing=missing),
            "b": Bins([0, 0.1, 1, 7.5, 2**60], outside=outside, missing=missing),
            "c": Categories(CODES, outside=plain, missing=missing),
            "f": Booleans(outside=plain, missing=missing),
            "h": Hierarchy(nested, ["state", "county"], outside=plain, missing=missing),
        }
    )


@dataclass(frozen=True)
class Form:
    """`draw(rng, number)` is a record of the person of that number; `make(folder, records)` a source of them."""

    name: str
    draw: Callable[[Rng, int], Any]
    make: Callable[[Path, Sequence[Any]], Any]


def pick(rng: Rng, values: Sequence[Any]) -> Any:
    return values[int(rng.integers(len(values)))]


TEXTS = [
    *("1", "0", "-3", "7", "a", "true", "0.1", "é", "06001", "06003", "2001-02-03", "9", "no", "0.5", "1e0", "1.0"),
    *(
        "",
        " ",
        " 1",
        "1 ",
        "nan",
        "NaN",
        "NULL",
        "inf",
        "-inf",
        "1e400",
        "-0",
        "-0.0",
        "0.0",
        "007",
        "+7",
        "7.",
        "A",
        "E",
    ),
    *("\u0663", "\uff11", "1_0", "0x1", "1,5", "zz", "True", "yes", "e\u0301", "\u200b1", "\u00a01", "9" * 39),
    *(
        "9007199254740993",
        "18446744073709551616",
        "a\0",
        "\0",
        "1\0",
        "\uffff",
        "x" * 3000,
        "'",
        "--",
        "\x1b[0m",
        "\x01",
    ),
]
NAMES = ["p{}", "{}", " p{}", "p{}\0", "é{}", "{}.5", "'{}'", "p{}" + "y" * 40]


def name_of(number: int, more: Sequence[str] = ()) -> str:
    """One name for each number."""
    names = [*NAMES, *more]
    return names[number % len(names)].format(number)


# ---- CSV: lines as bytes ---------------------------------------------------------------------------------------------


def csv_form(name: str, delimiter: bytes, end: bytes, columns: Sequence[str] = COLUMNS) -> Form:
    ends = [end, b"\n", b"\r\n"] if end != b"\r" else [end]

    def field(rng: Rng, text: str) -> bytes:
        raw = text.encode()
        how = int(rng.integers(12))
        if how < 5 or any(c in raw for c in (delimiter, b'"', b"\r", b"\n")):
            raw = b'"' + raw.replace(b'"', b'""') + b'"'
        # text after a quote that closes on another line makes the file no table: what is left
        if how == 0 and not (b"\n" in raw or b"\r" in raw):
            raw += pick(rng, [b" ", b"junk", b"\xff", b"\t", b"\0", b'b"'])
        if how == 6 and raw and raw[:1] != b'"':
            raw += pick(rng, [b"\xff", b"\xc3", b"\0", b'"', b'"x"', b"\xed\xa0\x80"])
        return raw if rng.random() < 0.8 else raw.replace("é".encode(), b"\xe9").replace(b"z", b"\xff")

    def draw(rng: Rng, number: int) -> bytes:
        fields = [field(rng, pick(rng, [*TEXTS, "a\nb", 'say "x"', "a,b;c|d\te", "a\r\nb"])) for _ in columns]
        if "who" in columns:
            name = name_of(number, ["{}\n", 'p"{}']).replace('"', '""').encode()
            fields[-1] = pick(rng, [b'"%s"' % name] * 8 + [b"", b"\xff%d" % number, b'"%d"x' % number])
        how = rng.random()
        if how < 0.08:
            fields = fields[: int(rng.integers(len(fields) + 1))]
        elif how < 0.16:
            fields += [field(rng, "1")] * int(rng.integers(1, 4))
        elif how < 0.2:
            fields = [pick(rng, [b"", b" ", b"#", b"\0", b'""', b"\xef\xbb\xbf", b"\xff\xfe"])]
        return delimiter.join(fields) + pick(rng, ends)

    def make(folder: Path, records: Sequence[bytes]) -> Path:
        path = folder / "t.csv"
        path.write_bytes(delimiter.join(c.encode() for c in columns) + end + b"".join(records))
        return path

    return Form(name, draw, make)


# ---- JSON: elements as bytes -----------------------------------------------------------------------------------------

VALUES = [
    *(
        "1",
        "0",
        "-3",
        "7",
        "7.0",
        "1e0",
        "-0.0",
        "0.1",
        "0.10",
        "1e400",
        "NaN",
        "Infinity",
        "true",
        "false",
        "null",
        "12",
    ),
    *(
        "9007199254740993",
        "123456789012345678901",
        "1.5",
        "[]",
        "[1]",
        "{}",
        '{"x":1}',
        '"\\u0000"',
        '"1\\u0000"',
        '"\\n"',
    ),
    *('"a]"', '"{"', '"\\""', '"\\\\"', '"\\ud83d\\ude00"', "[[[[1]]]]"),
]
BROKEN_VALUES = ["01", "+1", ".5", "0x1", "tru", '"\\ud800"', '"\\q"', "", "'a'", "1 2", '"\t"', "\x01", "nul\0"]
BROKEN_RECORDS = [b"null", b"5", b'"x"', b"true", b"[1,[2]]", b"[]", b'{"x" 1}', b"{,}", b'{"x":1,}', b"{}", b"zz"]
NOT_PAIRED = [b'{"x":1', b'{"x":"1}', b"}", b'"', b"]", b"[{", b'{"x":1}{"x":2}', b'{"x":1} 7', b"\\", b"/*"]


def _object(rng: Rng, number: int) -> bytes:
    broken = rng.random() < 0.2
    pairs: list[str] = []
    for column in COLUMNS[:-1]:
        text = json.dumps(pick(rng, TEXTS), ensure_ascii=bool(rng.integers(2)))
        value = pick(rng, VALUES) if rng.random() < 0.5 else text
        if broken and rng.random() < 0.3:
            value = pick(rng, BROKEN_VALUES)
        if rng.random() < 0.9:
            pairs.append(f'"{column}":{value}')
    equal = [str(number), f"{number}.0", f'"{number}"', f"{number}e0"] if number % 2 else [json.dumps(name_of(number))]
    pairs.append(f'"who" : {pick(rng, equal) if rng.random() < 0.9 else pick(rng, ["null", "[1]", "NaN"])}')
    if rng.random() < 0.1:
        pairs.append('"x":3')
    text = pick(rng, ["{%s}", " { %s } ", "{%s\t}"]) % ", ".join(pairs)
    raw = text.encode()
    if rng.random() < 0.06:
        raw = raw.replace(b'"a"', b'"\xff"').replace(b"1", b"\xe9" if rng.random() < 0.3 else b"1")
    return raw


def json_form(name: str, suffix: str, opening: bytes, between: bytes, closing: bytes, broken: Sequence[bytes]) -> Form:
    def draw(rng: Rng, number: int) -> bytes:
        return pick(rng, broken) if rng.random() < 0.12 else _object(rng, number)

    def make(folder: Path, records: Sequence[bytes]) -> Path:
        path = folder / f"t.{suffix}"
        path.write_bytes(opening + between.join(records) + closing)
        return path

    return Form(name, draw, make)


# ---- typed columns: one schema, any value of it ----------------------------------------------------------------------

SECONDS = [0, 981158400, -62135596800, 253402300799, -(10**15), 10**15]
TYPED: dict[pa.DataType, list[Any]] = {
    pa.string(): list(TEXTS),
    pa.dictionary(pa.int32(), pa.string()): list(TEXTS),
    pa.int8(): [0, 1, 7, -3, -128],
    pa.int64(): [0, 1, 7, -3, 2**63 - 1, -(2**63), 2**53 + 1],
    pa.uint64(): [0, 1, 7, 2**64 - 1],
    pa.float32(): [0.1, 1.0, -0.0, math.nan, math.inf, 7.0, 1e30],
    pa.float64(): [0.1, 1.0, -0.0, math.nan, -math.inf, 7.0, 1e300, 5e-324, 2.0**62, -9.3e18],
    pa.decimal128(20, 3): [Decimal("0.100"), Decimal("1.000"), Decimal("-3.000"), Decimal("0.001"), Decimal(0)],
    pa.bool_(): [True, False],
    pa.date32(): [date(2001, 2, 3), date(1, 1, 1), date(9999, 12, 31)],
    pa.null(): [],
}
ARROW_ONLY: dict[pa.DataType, list[Any]] = {
    pa.timestamp("s"): [*SECONDS, 2**62, -(2**62)],
    pa.timestamp("us"): [s * 10**6 for s in SECONDS[:4]] + [2**63 - 2, -(2**63) + 1],
    pa.timestamp("ns"): [0, 981158400 * 10**9, 2**63 - 2, -(2**63) + 2],
}
NUMERIC = {pa.int8(), pa.int64(), pa.uint64(), pa.float32(), pa.float64(), pa.decimal128(20, 3), pa.string(), pa.null()}


def schema_of(rng: Rng, *, more: bool) -> dict[str, pa.DataType]:
    """A type for every column that can be read as its attribute."""
    kinds = [*TYPED, *(ARROW_ONLY if more else ())]
    numbers = [k for k in kinds if k in NUMERIC]
    chosen = {"x": numbers, "b": numbers, "c": kinds, "f": [*numbers, pa.bool_()], "h": kinds}
    chosen["who"] = [pa.string(), pa.int64(), pa.float64(), pa.uint64()]
    return {column: pick(rng, types) for column, types in chosen.items()}


def typed_form(name: str, make: Callable[[Path, pa.Table], Any], rng: Rng, *, more: bool = False) -> Form:
    schema = schema_of(rng, more=more)

    def draw(rng: Rng, number: int) -> tuple[Any, ...]:
        values = [pick(rng, (TYPED | ARROW_ONLY)[schema[c]] or [None]) for c in COLUMNS[:-1]]
        who = name_of(number) if schema["who"] == pa.string() else number
        return tuple(None if rng.random() < 0.1 else v for v in (*values, who))

    def build(folder: Path, records: Sequence[tuple[Any, ...]]) -> Any:
        columns = list(zip(*records, strict=True)) or [()] * len(COLUMNS)
        return make(folder, pa.table({c: _array(v, schema[c]) for c, v in zip(COLUMNS, columns, strict=True)}))

    return Form(name, draw, build)


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).view(kind)
    return pa.array(values, kind)


def to_parquet(folder: Path, table: pa.Table) -> Path:
    pq.write_table(table, folder / "t.parquet", row_group_size=7)
    return folder / "t.parquet"


@cache
def _engine() -> duckdb.DuckDBPyConnection:
    """One engine of this process, of which each table has a connection: an engine of its own takes longer than both."""
    return duckdb.connect()


def to_database(folder: Path, table: pa.Table) -> str:
    """Texts compared without capitals, as some databases are declared."""
    path = folder / "f.db"
    path.unlink(missing_ok=True)
    with _engine().cursor() as connection:
        connection.register("given", table)
        connection.execute(f"ATTACH '{path}' AS written")
        connection.execute("CREATE TABLE written.t AS FROM given")
        for column, kind, *_ in connection.execute("DESCRIBE written.t").fetchall():
            if kind == "VARCHAR":
                connection.execute(f'ALTER TABLE written.t ALTER "{column}" TYPE VARCHAR COLLATE nocase')
        connection.execute("DETACH written")
    return f"duckdb:///{path}?table=t"


_OPEN: deque[duckdb.DuckDBPyConnection] = deque(maxlen=8)  # a relation of DuckDB 1.4 does not keep its connection


def to_relation(_: Path, table: pa.Table) -> Any:
    connection = _engine().cursor()
    _OPEN.append(connection)
    connection.register("given", table)
    return connection.sql("FROM given")


def to_broken_arrow(_: Path, table: pa.Table) -> pa.Table:
    """The texts that hold "zz" as bytes that are no UTF-8, which arrow carries along."""
    for i, field in enumerate(table.schema):
        if field.type == pa.string():
            raw = [None if t is None else t.encode().replace(b"zz", b"\xff") for t in table[i].to_pylist()]
            blobs = pa.array(raw, pa.binary())
            broken = pa.StringArray.from_buffers(len(blobs), blobs.buffers()[1], blobs.buffers()[2], blobs.buffers()[0])
            table = table.set_column(i, field.name, broken)
    return table


# ---- pandas: columns of anything, whose types pandas chooses from the records ----------------------------------------


def key_form() -> Form:
    """A plain list of keys."""
    values = [*OBJECTS, *TEXTS, Odd(), "\ud800", np.float32(0.1), np.datetime64(1, "ns"), 2**60, 2**60 - 1]
    return Form("list", lambda rng, _: pick(rng, values) if rng.random() < 0.5 else 7, lambda _, r: KeyCounts(list(r)))


def pandas_form(name: str, finish: Callable[[pd.DataFrame], Any], *, odd: bool = False) -> Form:
    values = [*OBJECTS, *TEXTS] + ([Odd(), "\ud800", np.float32(0.1)] if odd else [])

    def draw(rng: Rng, number: int) -> tuple[Any, ...]:
        equal = [number, float(number), str(number), Decimal(number), np.int64(number), complex(number)]
        names = equal if number % 2 else [name_of(number)]
        if rng.random() < 0.1:
            names = [None, [number], b"p", math.nan]
        # a column of one kind but for a record here and there is what changes its type
        return (*(pick(rng, values) if rng.random() < 0.3 else 1 for _ in COLUMNS[:-1]), pick(rng, names))

    def make(_: Path, records: Sequence[tuple[Any, ...]]) -> Any:
        columns = list(zip(*records, strict=True)) or [()] * len(COLUMNS)
        held = {c: pd.Series(list(v), dtype=object if odd else None) for c, v in zip(COLUMNS, columns, strict=True)}
        return finish(pd.DataFrame(held))

    return Form(name, draw, make)


def forms(rng: Rng) -> dict[str, Form]:
    """Every kind of source, with types drawn where it has types."""
    table: dict[str, Callable[[Path, pa.Table], Any]] = {
        "parquet": to_parquet,
        "relation": to_relation,
        "polars": lambda _, t: pl.from_arrow(t),
        "pandas arrow": lambda _, t: t.to_pandas(types_mapper=pd.ArrowDtype),
        "pandas typed": lambda _, t: t.to_pandas(),
    }
    found = [
        csv_form("csv", b",", b"\n"),
        csv_form("csv of one column", b";", b"\r\n", ("c",)),
        csv_form("csv, tabs, CR LF", b"\t", b"\r\n"),
        csv_form("csv, bars, CR", b"|", b"\r"),
        json_form("json array", "json", b"[", b",\n", b"]\n", BROKEN_RECORDS),
        json_form("json objects", "json", b"{}\n", b" \n", b"", BROKEN_RECORDS),
        json_form("json lines", "ndjson", b"", b"\n", b"\n", [*BROKEN_RECORDS, *NOT_PAIRED]),
        json_form("json lines, CR LF", "jsonl", b"\xef\xbb\xbf", b"\r\n", b"", [*BROKEN_RECORDS, *NOT_PAIRED]),
        *(typed_form(name, make, rng) for name, make in table.items()),
        typed_form("database", to_database, rng, more=True),
        typed_form("arrow", to_broken_arrow, rng, more=True),
        pandas_form("pandas", lambda f: f),
        pandas_form("pandas of objects", lambda f: f, odd=True),
    ]
    return {form.name: form for form in found}
