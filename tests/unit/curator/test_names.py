"""One rule for names of persons, codes and keys: ids that turned into floats are the ids that they were.

A matrix of forms: ids as texts, whole numbers and floats, in every kind of source, week after week.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from sfumato.cells import Grid, whole_text
from sfumato.curator import Curator
from sfumato.curator.keys.counts import KeyCounts, open_keys
from sfumato.curator.rows.counting import one_block_per_set
from sfumato.curator.rows.sources import open_source
from sfumato.curator.streams import curator as streaming
from sfumato.curator.streams import open_public_stream, resume_stream
from sfumato.curator.streams.state import StreamOpening, open_people
from sfumato.domain import Categories, Domain, Integers
from sfumato.errors import InvalidInput
from sfumato.privacy.unit import PrivacyUnit
from sfumato.sketches import Keys
from support.postgres import Server
from support.spark import Running
from support.streams import PERIODS, exact, price, terms

OTHER: dict[str, Any] = {"outside": "other", "missing": "other"}
X = Domain({"x": Integers(0, 9, **OTHER)})
CODES = Domain({"who": Categories(["7", "-12", "0"], **OTHER)})
UNIT = PrivacyUnit("add-remove", "who", 1)
KEY = bytes(range(32))
IDS = (7, -12, 0)  # and one row of nobody, which is what makes floats of them
X_OF = [1, 2, 3, 4]

# What tells persons apart in 0.2 and later, and what does not
SAME = {"7": ("7", "7.0", "7.00"), "0": ("0", "0.0", "-0.0"), "9" * 40: ("9" * 40, "9" * 40 + ".000")}
APART = ("01", "01.0", "1", "1e0", "+1", "1.", " 1.0", "1.0\n", "1,0", "1.5", "1.50", "-0", "１.0", "true", "True")
APART += ("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "9007199254740993")


def texts(decimals: str) -> list[str | None]:
    return [*(f"{i}{decimals}" for i in IDS), None]


def frames() -> Iterator[tuple[str, Any]]:
    """The ids in every column that a frame may have."""
    whole, floats = [*IDS, None], [*map(float, IDS), None]
    for name, values, kind in (
        ("texts", texts(""), "str"),
        ("texts of floats", texts(".0"), "str"),
        ("floats", floats, "float64"),
        ("single floats", floats, "float32"),
        ("nullable", whole, "Int64"),
        ("objects", [7, "-12.0", 0.0, None], object),
        ("decimals", [*map(Decimal, ("7.00", "-12.0", "-0.0")), None], object),
        ("numpy", [np.int8(7), np.float16(-12), np.uint64(0), np.nan], object),
    ):
        yield f"pandas {name}", pd.DataFrame({"x": X_OF, "who": pd.Series(values, dtype=kind)})
    for of in (pl.String, pl.Int32, pl.Float64, pl.Float32, pl.Decimal(10, 2)):
        values = {pl.String: texts(".0"), pl.Int32: whole}.get(of, floats)  # type: ignore[call-overload]
        yield f"polars {of}", pl.DataFrame({"x": X_OF, "who": pl.Series(values, dtype=of, strict=False)})
    for kind in (pa.string(), pa.int64(), pa.float64(), pa.float32(), pa.decimal128(10, 2)):
        of_texts = pa.array(texts(".0" if kind == pa.string() else ""))
        yield f"arrow {kind}", pa.table({"x": X_OF, "who": of_texts.cast(kind)})


def files(folder: Path) -> Iterator[tuple[str, str]]:
    """The ids in every file."""
    for decimals in ("", ".0", ".00"):
        rows = "".join(f"{x},{v or ''}\n" for x, v in zip(X_OF, texts(decimals), strict=True))
        (folder / f"t{decimals}.csv").write_text(f"x,who\n{rows}")
        yield f"CSV{decimals}", str(folder / f"t{decimals}.csv")
        for quote in ("", '"'):
            values = [v and f"{quote}{v}{quote}" for v in texts(decimals)]
            lines = (f'{{"x": {x}, "who": {v or "null"}}}\n' for x, v in zip(X_OF, values, strict=True))
            path = folder / f"t{decimals}{len(quote)}.ndjson"
            path.write_text("".join(lines))
            yield f"JSON {values[0]}", str(path)
    for name, table in frames():
        if name.startswith("arrow"):
            path = folder / f"{name}.parquet"
            pq.write_table(table, path)
            yield f"Parquet {name}", str(path)
    with duckdb.connect(str(folder / "d.db")) as connection:
        for kind in ("VARCHAR", "DOUBLE", "HUGEINT", "DECIMAL(9,3)"):
            name = kind.partition("(")[0]
            of = texts(".0" if kind == "VARCHAR" else "")
            connection.execute(f"CREATE TABLE {name} AS SELECT x, CAST(w AS {kind}) AS who FROM "
                               "(SELECT unnest(?) AS x, unnest(?) AS w)", [X_OF, of])  # fmt: skip
    for kind in ("VARCHAR", "DOUBLE", "HUGEINT", "DECIMAL"):
        yield f"DuckDB {kind}", f"duckdb:///{folder}/d.db?table={kind}"


def digests(source: Any) -> tuple[int, list[list[int]]]:
    """Rows that are counted, and the digests of whose they are."""
    counts, left, known = open_people(source, Grid.of(X), UNIT, one_block_per_set, KEY).admit(
        np.zeros((0, 4), np.int64), 0, 1, 1
    )
    assert left == 0
    return counts.rows, known[:, :2].tolist()


def of_names(*names: str) -> list[list[int]]:
    found = (hmac.digest(KEY, name.encode(), "sha256")[:16] for name in names)
    return sorted(np.frombuffer(d, dtype=">i8").tolist() for d in found)


def check(name: str, source: Any, *, whole: bool = True) -> None:
    """Persons, and of some sources codes and keys: each time a source is opened takes a while."""
    rows, known = digests(source)
    assert (rows, sorted(known)) == (3, of_names("7", "-12", "0")), name
    if not whole:
        return
    assert open_source(source, CODES).count([("who",)])[("who",)].tolist() == [1, 1, 1, 1], name
    for kind, expected in (("text", ("7", "-12", "0")), ("integer", ("7", "0"))):
        keys = Keys("who", kind, point=5 if kind == "text" else None)
        elements = keys.elements([*expected] if kind == "text" else [int(k) for k in expected])[0]
        found = open_keys(source, keys, PrivacyUnit("add-remove"))
        assert found.elements.tolist() == sorted(elements.tolist()), name


def test_an_id_is_one_name_one_code_and_one_key_in_every_frame_and_file(tmp_path: Path) -> None:
    """Mutants: the text "7.0" another name than 7 (everybody of an "enforced" stream counted again); -0.0 another than
    0; a key's text as it is written; the zeros of decimals."""
    forms = [*frames(), *files(tmp_path)]
    assert len(forms) > 35
    for i, (name, source) in enumerate(forms):
        check(name, source, whole=i % 6 == 1)


def test_an_id_is_one_name_on_a_server(postgres: Server) -> None:
    for kind in ("text", "varchar", "int4", "float8", "float4", "numeric", "numeric(10,3)"):
        put = ", ".join(f"({x}, {'NULL' if v is None else repr(v)})" for x, v in zip(X_OF, texts(".0"), strict=True))
        cast = "who::numeric::int4" if kind == "int4" else f"who::{kind}"
        postgres.run(
            "DROP TABLE IF EXISTS ids, given CASCADE",
            "CREATE TABLE given (x int, who text)",
            f"INSERT INTO given VALUES {put}",
            f"CREATE TABLE ids AS SELECT x, {cast} AS who FROM given",
        )
        check(kind, postgres.address("ids"))


def test_an_id_is_one_name_in_spark(spark: Running) -> None:
    given = "VALUES (1, '7'), (2, '7.0'), (3, '7.00'), (4, '07'), (5, NULL)"
    frame = spark.frame(f"SELECT col1 AS x, col2 AS who FROM {given}")
    assert open_source(frame, X, person="who", rows_per_person=1).rows == 2
    codes = Domain({"who": Categories(["7.0", "07"], **OTHER)})
    assert open_source(frame, codes).count([("who",)])[("who",)].tolist() == [3, 1, 1]
    for kind in ("int", "double", "decimal(9,2)"):
        frame = spark.frame(f"SELECT col1 AS x, CAST(CAST(col2 AS double) AS {kind}) AS who FROM {given}")
        assert open_source(frame, X, person="who", rows_per_person=1).rows == 1
        assert open_source(frame, codes).count([("who",)])[("who",)].tolist() == [4, 0, 1]


def test_only_zero_decimals_are_no_part_of_a_name(tmp_path: Path) -> None:
    """Mutants: names as numbers, by which "01", "1e0" or ids beyond 2^53 are those of others; trimmed; folded."""
    names = [*(s for same in SAME.values() for s in same), *APART]
    path = tmp_path / "t.ndjson"
    path.write_text("".join(json.dumps({"x": 1, "who": name}) + "\n" for name in names))
    rows, known = digests(str(path))
    assert rows == len(known) == len(SAME) + len(APART)
    assert sorted(known) == of_names(*SAME, *APART)
    assert [whole_text(s) for same in SAME.values() for s in same] == [k for k, same in SAME.items() for _ in same]
    assert [whole_text(s) for s in APART] == [*APART]


def test_nobody_is_counted_again_in_whatever_form_the_table_comes(tmp_path: Path) -> None:
    """A stream in which everybody is counted once: the first week's ids are texts, the others' what became of them.

    Mutants: the text "7.0" another name than 7; the column's type part of the name."""
    domain = Domain({"a": Categories(["x", "y"], **OTHER), "b": Categories(["p", "q"], **OTHER)})
    domain = Domain({n: replace(a, outside="drop", missing="drop") for n, a in domain.attributes.items()})
    domain = Domain({"a": domain["a"], "b": Categories(["p", "q", "r"], outside="drop", missing="drop")})
    of, unit = terms(enforced=True), PrivacyUnit("add-remove", "who", 3)
    account = sf.Ledger.in_memory(sf.gdp(10**9))
    made, _ = open_public_stream(
        Curator(None, domain, unit, account), of, price(of, unit), name="s", plan_hash="0" * 64
    )
    rest = {"a": ["x"] * 3, "b": ["p"] * 3}
    (tmp_path / "0.csv").write_text("who,a,b\n7,x,p\n-12,x,p\n0,x,p\n")
    (tmp_path / "1.csv").write_text("who,a,b\n7.0,x,p\n-12.0,x,p\n-0.0,x,p\n")
    weeks: list[Any] = [str(tmp_path / "0.csv"), str(tmp_path / "1.csv")]
    weeks += [pd.DataFrame({"who": [7.0, -12.0, 0.0], **rest}), pl.DataFrame({"who": [7, -12, 0], **rest})]
    weeks += [pa.table({"who": ["7.00", "-12", "0.0"], **rest}), pd.DataFrame({"who": [7, "-12.0", 0.0], **rest})]
    assert len(weeks) == PERIODS
    for t, week in enumerate(weeks):
        made.append(week, f"week {t}")
    counts = np.zeros((PERIODS, 2, 3), dtype=np.int64)
    counts[0, 0, 0] = 3
    for found, values in zip(made.published, exact(of, counts), strict=True):
        assert (np.concatenate(found.values) == values).all()


def test_of_a_person_of_0_2_few_rows_are_counted_whoever_else_is_there() -> None:
    """Names as they were written: "1" and "1.0" are two persons, of whom each has a row.

    Mutant: whose rows few are counted of told by today's rule, so that one person who leaves takes a row and gives the
    other one back."""
    domain = Domain({"v": Categories(["x", "y"], outside="drop", missing="drop")})
    given = pd.DataFrame({"who": [t for i in range(8) for t in (f"{i}", f"{i}.0")], "v": [*"xy"] * 8})
    for rows, as_written, counted in ((given, True, [8, 8]), (given[1:], True, [7, 8]), (given[1:], False, 8)):
        people = open_people(
            rows, Grid.of(domain), PrivacyUnit("add-remove", "who"), one_block_per_set, bytes(32), as_written=as_written
        )
        found = people.admit(np.zeros((0, 4), dtype=np.int64), 0, 1, 1)[0].count([("v",)])[("v",)]
        assert (found.tolist() if as_written else found.sum()) == counted


def test_a_stream_of_0_2_tells_persons_apart_as_it_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its digests are of the texts as they were written; by another rule nobody would be found again.

    Mutants: the new rule in old stores; a store that says nothing of its rule taken for a new one."""
    domain = Domain({n: Categories(list(v), outside="drop", missing="drop") for n, v in (("a", "xy"), ("b", "pqr"))})
    of, unit, seen = terms(enforced=True), PrivacyUnit("add-remove", "who", 3), list[bool]()
    (tmp_path / "t.csv").write_text("who,a,b\n7.0,x,p\n8,x,p\n")
    honest = streaming.open_people

    def watched(*given: Any, **how: Any) -> Any:
        seen.append(how["as_written"])
        return honest(*given, **how)

    monkeypatch.setattr(streaming, "open_people", watched)
    for old in (False, True):
        ledger = sf.Ledger.create(tmp_path / f"l{old}.db", total=sf.gdp(10**9))
        kept = tmp_path / f"s{old}.db"
        with monkeypatch.context() as patch:
            if old:
                patch.setattr(streaming, "NAMES", 0)  # neither stored nor hashed: what 0.2 wrote
            open_public_stream(
                Curator(None, domain, unit, ledger), of, price(of, unit), name="s", plan_hash="0" * 64, store=kept
            )
        made = resume_stream(Curator(None, domain, unit, ledger), kept)
        made.append(str(tmp_path / "t.csv"), "one")
        people = made._states.read(1, made._chain.read().state.digest).people
        key = made._chain.read().state.key
        names = ("7.0" if old else "7", "8")
        expected = sorted(np.frombuffer(hmac.digest(key, n.encode(), "sha256")[:16], ">i8").tolist() for n in names)
        assert sorted(people[:, :2].tolist()) == expected
    assert seen == [False, True]
    opening = made._chain.read().state.opening
    assert isinstance(opening, StreamOpening)
    with pytest.raises(InvalidInput, match="does not know"):
        replace(opening, names=2)


def test_codes_and_keys_that_are_declared_with_decimals_are_their_numbers() -> None:
    """Mutants: the code "1.0" not 1; two codes of one number told apart by nothing; a key asked for as "7.0"."""
    given = pd.DataFrame({"who": pd.Series(["1", "1.0", "1.00", 1, 1.0, "2", 2.0, "2.0", "3"], dtype=object)})
    for codes, expected in (
        (["1.0", "2"], [5, 3, 1]),
        (["1.0", "1.00", "2.0"], [4, 1, 3, 1]),
        (["1.0", "1", "3"], [1, 4, 1, 3]),
    ):
        domain = Domain({"who": Categories(codes, **OTHER)})
        assert open_source(given, domain).count([("who",)])[("who",)].tolist() == expected
    keys = Keys("who", "text", point=5)
    table = open_keys(KeyCounts(["7", "7.0", 7, 7.0, "8"]), keys, PrivacyUnit("add-remove"))
    assert table.counts_of(keys.query(["7.0"], None)[0]).tolist() == [4]
