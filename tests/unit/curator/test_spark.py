"""A table of Spark: what is counted in its partitions is what would be counted in a file, or nothing."""

from __future__ import annotations

import hashlib
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from sfumato.curator.engines import kernel
from sfumato.curator.engines import spark as engine
from sfumato.curator.engines import spark as native
from sfumato.curator.engines.kernel import RECEIPT, Encoding, PartitionRow
from sfumato.curator.engines.partitions import check_encoded_parts, check_joined_parts, check_lines
from sfumato.curator.engines.spark import Spark
from sfumato.curator.keys.counts import open_keys
from sfumato.curator.labels import open_labels
from sfumato.curator.rows.encoding import Column, Truncation
from sfumato.curator.rows.samples import column_names, place_sample
from sfumato.curator.rows.sources import open_source
from sfumato.domain import Attribute, Bins, Booleans, Categories, Dates, Domain, Hierarchy, Integers
from sfumato.errors import DomainError, InvalidInput, MissingExtra, SourceError
from sfumato.mechanisms.labels import select_labels
from sfumato.privacy.accounting import ApproxGaussianEvent
from sfumato.privacy.labels import LabelLook
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.sketches import Keys
from support.hostile import CODES, DAYS, DECIMALS, FLOATS, MOMENTS, ODD_NAMES, SINGLES, TEXTS, WHOLES
from support.postgres import Server, missing
from support.spark import Running

pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")

OTHER = {"outside": "other", "missing": "other"}
X = Domain({"x": Integers(0, 9, **OTHER)})
SECRET = "Zebra77"

# -- the same content -------------------------------------------------------------------------------------

FEW = [c for c in (*CODES[:14], "1", "0", "-3", "it's") if c.isascii()]  # others are placed by DuckDB
KINDS: dict[str, Attribute] = {
    "codes": Categories(list(dict.fromkeys(CODES)), **OTHER),
    "few": Categories(list(dict.fromkeys(FEW)), outside="drop", missing="other"),
    "zero": Categories(["0", "-5", "a"], outside="other", missing="drop"),
    "many": Categories([*dict.fromkeys(CODES), *(f"code {i}" for i in range(80))], **OTHER),
    "clamped": Integers(-3, 9, 3, outside="clamp", missing="drop"),
    "whole": Integers(-3, 7, 2, **OTHER),
    "wide": Integers(-(2**53) + 1, 2**53 - 1, 2**50, outside="other", missing="drop"),
    "bins": Bins([-10, 0, 0.1, 1, 7.5, 2**60], **OTHER),
    "fine": Bins([0.1, 0.3, 3.5, 1e10, 1e16], outside="clamp", missing="other"),
    "truth": Booleans(**OTHER),
    "spelt": Categories({"A": "a", "é": "accented", "TRUE": "yes", "1": "yes"}, "ignore", True, **OTHER),
    "several": Categories({"a": "a", "1": "one", "A": "a", "-3": "minus"}, outside="drop", missing="other"),
    "weeks": Dates("1969-12-01", "2026-12-31", "week", outside="clamp", missing="other"),
}


def columns() -> dict[str, Any]:
    """Columns of arrow of every type that is read, all of one length, each value at least once."""
    import pyarrow as pa

    def floats(values: list[str | None], kind: Any) -> Any:
        return pa.array([None if v is None else float(v) for v in values], kind)

    wholes = [None if v is None else int(v) for v in WHOLES]
    found = {
        "text": pa.array(TEXTS),
        "byte": pa.array([None, 0, 1, -3, 7, 127, -128], pa.int8()),
        "short": pa.array(wholes, pa.int16()),
        "int": pa.array([*wholes, 2**31 - 1, -(2**31)], pa.int32()),
        "long": pa.array([*wholes, 2**63 - 1, -(2**63), 2**53 + 1, 2**60, 2**60 - 1], pa.int64()),
        "single": floats([*SINGLES, "-10", "0.3", "7.5", "3e38"], pa.float32()),
        "double": floats(FLOATS, pa.float64()),
        "bool": pa.array([None, True, False, True]),
        "decimal": pa.array([None if v is None else Decimal(v) for v in DECIMALS], pa.decimal128(38, 10)),
        "exact": pa.array([None, Decimal(0), Decimal(7), Decimal(-3), Decimal(10**37)], pa.decimal128(38, 0)),
        "day": pa.array([None, *(int(np.datetime64(v).astype(int)) for v in DAYS[1:5])], pa.int32()).cast(pa.date32()),
        "moment": pa.array([None, *map(datetime.fromisoformat, MOMENTS)], pa.timestamp("us")),
        "zoned": pa.array([None, *map(datetime.fromisoformat, MOMENTS)], pa.timestamp("us", "UTC")),
    }
    most = 3 * max(map(len, found.values()))
    return {n: c.take(pa.array([i % len(c) for i in range(most)])) for n, c in found.items()}


# Of the same columns on a server.
ON_SERVER = {"text": "text", "byte": "int2", "short": "int2", "int": "int4", "long": "int8", "single": "float4"}
ON_SERVER |= {"bool": "bool", "decimal": "numeric(38, 10)", "exact": "numeric(38, 0)", "day": "date"}
ON_SERVER |= {"moment": "timestamp", "double": "float8", "zoned": "timestamptz"}


def readable(kind: str, attribute: Attribute) -> bool:
    if isinstance(attribute, Dates) or kind == "zoned":
        return isinstance(attribute, Dates) and kind != "bool"
    numeric = isinstance(attribute, (Integers, Bins))
    return not (numeric and kind in ("bool", "day", "moment")) and not (
        isinstance(attribute, Booleans) and kind in ("day", "moment")
    )


@pytest.fixture(scope="module")
def same(spark: Running, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """One table of hostile values, twice over: as Spark reads it, and the file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    found = columns()
    given = {f"{kind}_{a}": c for kind, c in found.items() for a, of in KINDS.items() if readable(kind, of)}
    rows = len(next(iter(found.values())))
    table = pa.table(given | {f"who_{k}": c for k, c in found.items()} | {"n": [i % 90 for i in range(rows)]})
    path = tmp_path_factory.mktemp("same") / "same.parquet"
    pq.write_table(table, path)
    spark.session.conf.set("spark.sql.parquet.inferTimestampNTZ.enabled", "true")
    return spark.session.read.parquet(str(path)), path


@pytest.fixture(scope="module")
def sources(same: tuple[Any, Path], request: pytest.FixtureRequest) -> dict[str, Any]:
    """The same table by engine; on a server too, where there is one."""
    frame, path = same
    found = {"DuckDB": path, "Spark": frame}
    if missing() and not os.environ.get("SFUMATO_TESTS_NEED_ENGINES"):
        return found
    server: Server = request.getfixturevalue("postgres")
    with duckdb.connect() as connection:
        texts = ", ".join(f"CAST(who_{kind} AS VARCHAR)" for kind in ON_SERVER)
        rows = connection.execute(f"SELECT {texts}, CAST(n AS VARCHAR) FROM '{path}'").fetchall()
    put = (", ".join("NULL" if v is None else "'" + v.replace("'", "''") + "'" for v in row) for row in rows)
    types = ", ".join(f"who_{kind} {own}" for kind, own in ON_SERVER.items())
    copies = (f"who_{kind} AS {kind}_{a}" for kind in ON_SERVER for a, of in KINDS.items() if readable(kind, of))
    server.run(
        "DROP TABLE IF EXISTS hostile CASCADE",
        f"CREATE TABLE hostile ({types}, n int)",
        f"INSERT INTO hostile VALUES {', '.join(f'({row})' for row in put)}",
        f"CREATE VIEW same AS SELECT *, {', '.join(copies)} FROM hostile",
    )
    return found | {"Postgres": server.address("same")}


def digest(tables: Iterable[Any]) -> str:
    """Of counts."""
    return hashlib.sha256(b"".join(np.ascontiguousarray(table).tobytes() for table in tables)).hexdigest()


def test_every_value_means_the_same_to_every_engine(sources: dict[str, Any]) -> None:
    """Counts of every kind of column and attribute are those of the file, digit for digit, and so are their digests.

    Mutants: NaN compared like a number; a 32-bit float compared by its value; "1.0\\n" taken for 1; an integer divided
    in floats; whole numbers beyond their range wrapped round; -0.0 below 0; a number sent by a server as a text.
    """
    dropping = [name for name, of in KINDS.items() if of.rule.drops]
    for drops in (None, *dropping):
        attributes = {
            f"{kind}_{a}": of
            for kind in columns()
            for a, of in KINDS.items()
            if readable(kind, of) and (a == drops if drops else a not in dropping)
        }
        for part in [attributes] if drops is None else [{n: of} for n, of in attributes.items()][::4]:
            domain = Domain(part)
            sets = [(name,) for name in part]
            found = {where: open_source(source, domain).count(sets) for where, source in sources.items()}
            for name, (where, tables) in itertools.product(sets, found.items()):
                assert tables[name].tolist() == found["DuckDB"][name].tolist(), (where, name)
            assert len({digest(tables[name] for name in sets) for tables in found.values()}) == 1


@pytest.mark.parametrize("outside", ["other", "drop"])
def test_unknown_places_mean_the_same_to_every_engine(sources: dict[str, Any], outside: Any) -> None:
    """Codes of another vintage, or with the zeros before them that a number has lost, follow the attribute's policy.

    Mutants: a code that is not in the file refused; one compared as a number.
    """
    known = list({c.casefold(): c for c in CODES}.values())
    for codes in ({"1": known, "2": ["01", "007", "0b"]}, {"1": ["a", "01"], "2": ["7", "45"]}):
        place = Hierarchy(codes, ["state", "block"], outside=outside, missing="other")
        for kind in sorted({"text", "long", "double", "exact"}.intersection(ON_SERVER)):
            name = f"who_{kind}"
            opened = (open_source(source, Domain({name: place})) for source in sources.values())
            tables = [s.count([(name,)])[(name,)].tolist() for s in opened]
            assert len({tuple(t) for t in tables}) == 1
            assert sum(tables[0]) > 0


@pytest.mark.parametrize("kind", ["text", "long", "double", "exact", "moment"])
def test_persons_are_told_apart_the_same_by_every_engine(sources: dict[str, Any], kind: str) -> None:
    """Mutants: persons compared by how they are stored; rows of nobody counted; NaN a name."""
    domain = Domain({"n": Integers(0, 99, **OTHER)})
    opened = (open_source(s, domain, person=f"who_{kind}", rows_per_person=2) for s in sources.values())
    assert len({digest(counts.count([("n",)]).values()) for counts in opened}) == 1


@pytest.mark.parametrize("per_person", [None, 1, 3])
def test_labels_are_found_the_same_by_every_engine(
    sources: dict[str, Any], per_person: int | None, spark: Running, request: pytest.FixtureRequest
) -> None:
    """Mutants: labels chosen in each partition first, by another digest, or of persons who have one number in two."""
    spark.session.conf.set("spark.sql.shuffle.partitions", "7")  # of two, both may be in one partition
    request.addfinalizer(lambda: spark.session.conf.set("spark.sql.shuffle.partitions", "2"))
    unit = PrivacyUnit(Neighbours.ADD_REMOVE, None if per_person is None else "who_byte", per_person or 1)
    law = select_labels(unit, Fraction(1), Fraction(1, 10**6))

    def had(source: Any, *columns: str) -> dict[tuple[str, int], int]:
        together = columns if len(columns) > 1 else ()
        look = LabelLook(columns[0], True, 100, law, ApproxGaussianEvent(1, "1e-6"), 0, together)
        table = open_labels(source, look, unit)
        found: dict[tuple[str, int], int] = {}
        for most in (1, 3):
            for place, many, persons in zip(*(x.tolist() for x in table.lines(most)), strict=True):
                key = (str(table.labels[place]), many + 10 * most)
                found[key] = found.get(key, 0) + persons
        return found

    pairs = [("text", "double"), ("decimal", "day", "bool")]
    for kinds in (*((kind,) for kind in ("text", "short", "double", "bool", "day")), *pairs):
        names = [f"who_{kind}" for kind in kinds]
        alike = {name: had(source, *names) for name, source in sources.items()}
        assert alike["DuckDB"]
        assert all(found == alike["DuckDB"] for found in alike.values()), kinds
        if len(names) > 1:  # and counted: the texts of several columns as one
            labels = sorted({label for label, _ in alike["DuckDB"]})[:40]
            domain = Domain({"n": Integers(0, 99, **OTHER), "all": Categories(labels, columns=names, **OTHER)})
            tables = [open_source(s, domain).count([("all",)])[("all",)].tolist() for s in sources.values()]
            assert sum(tables[0][:-1]) > 0
            assert all(table == tables[0] for table in tables), kinds
    assert not had(sources["Spark"].filter("1 = 0"), "who_text")


def test_a_float_of_32_bits_is_in_the_bin_of_its_text() -> None:
    """The 81 floats nearest to 3,000 edges, seed 75. Mutants: the float nearest to an edge; its value compared."""
    import pyarrow as pa

    rng = np.random.default_rng(75)
    floats = np.abs(rng.integers(0, 2**31 - 2**23, 1000, dtype=np.int32)).view(np.float32)
    drawn = [*floats[::2], *np.nextafter(floats[1::2], np.float32(np.inf)).astype(float) * (1 + 2**-26)]
    decimals = np.round(rng.uniform(-50, 50, 1000), 2).tolist()
    edges = [*map(float, drawn), *decimals, *(10.0 ** rng.uniform(-47, 40, 998)).tolist(), 3.5e38, -3.5e38]
    least = native._float_edges(edges)
    with np.errstate(over="ignore"):
        near = [np.array(edges, dtype=np.float32)]
        for to in (-np.inf, np.inf):
            for _ in range(40):
                near.append(np.nextafter(near[-1] if len(near) != 41 else near[0], np.float32(to)))
    given = np.stack(near)
    with duckdb.connect() as connection:
        connection.register("given", pa.table({"x": given.ravel()}))
        number = Column("", "FLOAT").number("x")
        read = connection.execute(f"SELECT {number} AS x FROM given").fetchnumpy()["x"].reshape(given.shape)
    np.testing.assert_array_equal(read >= np.array(edges), given.astype(float) >= np.array(least))


def test_whole_numbers_with_a_line_end_are_no_codes(spark: Running) -> None:
    """Mutant: a pattern that ends before a line end."""
    frame = spark.frame(
        "SELECT * FROM VALUES ('1.0'), ('1.0\\n'), ('-0.0'), ('1.00'), ('01.0'), ('1.'), ('.0') AS t(x)"
    )
    domain = Domain({"x": Categories(["1", "0"], **OTHER)})
    assert open_source(frame, domain).count([("x",)])[("x",)].tolist() == [2, 1, 4]


def test_texts_are_equal_when_their_bytes_are(spark: Running) -> None:
    """Mutants: the collation of a column believed; bytes that are no text taken for a code, or for a person."""
    frame = spark.frame(
        "SELECT collate(s, 'UTF8_LCASE') AS x, 1 AS n FROM VALUES ('a'), ('A'), (NULL) AS t(s) "
        "UNION ALL SELECT collate(CAST(unhex('61ff') AS STRING), 'UTF8_LCASE'), 1"
    )
    for codes in (["a", "A", "á"], [str(i) for i in range(80)] + ["a", "A"]):
        found = open_source(frame, Domain({"x": Categories(codes, **OTHER)})).count([("x",)])[("x",)]
        assert found[codes.index("a")] == found[codes.index("A")] == 1
        assert found[-1] == 2
    assert open_source(frame, Domain({"n": Integers(0, 9, **OTHER)}), person="x").rows == 2


def test_many_rows_and_persons_are_those_of_a_file(spark: Running, tmp_path: Path) -> None:
    """Persons in several partitions, with dropped rows. Mutants: cut in each partition alone; cut before dropping."""
    path = tmp_path / "many.parquet"
    duckdb.connect().execute(
        "COPY (SELECT CAST(hash(i) % 12 AS INT) AS x, "
        "(['a', 'b', 'c', NULL])[CAST(1 + hash(i + 9) % 4 AS BIGINT)] AS y, "
        "(hash(i * 7) % 30)::DOUBLE "
        "AS z, nullif('p' || hash(i * 3) % 900, 'p7') AS who FROM range(20000) t(i)) "
        f"TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE 2048)"
    )
    domain = Domain(
        {
            "x": Integers(0, 9, **OTHER),
            "y": Categories(["a", "b"], outside="drop", missing="other"),
            "z": Bins([0, 10, 20], **OTHER),
        }
    )
    sets = [s for k in (0, 1, 2, 3) for s in itertools.combinations(domain.names, k)]
    spark.session.conf.set("spark.sql.files.maxPartitionBytes", str(path.stat().st_size // 3))
    try:
        frame = spark.session.read.parquet(str(path))
        for person, most in ((None, 1), ("who", 1), ("who", 3)):
            there, here = (
                open_source(s, domain, person=person, rows_per_person=most).count(sets) for s in (frame, path)
            )
            for name in sets:
                np.testing.assert_array_equal(there[name], here[name])
    finally:
        spark.session.conf.unset("spark.sql.files.maxPartitionBytes")


def test_a_table_without_rows_counts_none(spark: Running) -> None:
    for sql in ("SELECT 1 AS x, 'p' AS who WHERE false", "SELECT CAST(id AS INT) AS x, 'p' AS who FROM range(0)"):
        for person in (None, "who"):
            counts = open_source(spark.frame(sql), X, person=person)
            assert counts.rows == 0
            assert counts.count([("x",), ()])[("x",)].tolist() == [0] * 11


def test_names_are_taken_as_they_are(spark: Running) -> None:
    """Mutants: a name with dots or backticks read as a path; capitals folded; a name that is there twice."""
    names = [*ODD_NAMES, "X", "we`ird"]
    frame = spark.session.range(6).selectExpr("CAST(id % 3 AS INT) AS x", *(["'p'"] * len(names))).toDF("x", *names)
    assert column_names(frame) == ("x", *names)
    assert open_source(frame, X).count([("x",)])[("x",)].tolist()[:4] == [2, 2, 2, 0]
    domain = Domain({n: Categories(["p"], **OTHER) for n in names[:4]})
    assert open_source(frame, domain, person=names[4], rows_per_person=6).rows == 6
    with pytest.raises(SourceError, match="capitals included"):
        open_source(frame, Domain({"Y": Integers(0, 9, **OTHER)}))
    with pytest.raises(SourceError, match="is of type two columns"):
        open_source(frame.toDF("x", *["x"] * len(names)), X)


@pytest.mark.parametrize(
    "value",
    [
        "CAST('a' AS BINARY)",
        "timestamp'2001-02-03'",
        "array(1)",
        "map(1, 2)",
        "named_struct('a', 1)",
        "interval '1' day",
    ],
)
def test_a_type_that_is_not_known_is_not_read(spark: Running, value: str) -> None:
    frame = spark.frame(f"SELECT {value} AS x, 1 AS n")
    for domain, person in ((X, None), (Domain({"n": Integers(0, 9, **OTHER)}), "x")):
        with pytest.raises(
            SourceError, match=r"column 'x' is of type .*, which cannot be read as .*convert the column"
        ):
            open_source(frame, domain, person=person)


def test_a_domain_that_leaves_something_open_asks_nothing() -> None:
    with pytest.raises(DomainError, match="must declare"):
        open_source("spark://nowhere.invalid:1?table=t", Domain({"x": Integers(0, 9)}))


# -- every row exactly once -------------------------------------------------------------------------------


def encoded(rows: int = 0) -> tuple[Encoding, list[PartitionRow]]:
    how = Encoding(X.grid)
    words = np.arange(rows, dtype=np.int64)[None] % 10
    return how, [kernel._chunk_part(how, words, part, chunk, rows) for part in (0, 1) for chunk in (0, 1)]


@pytest.mark.parametrize("how", ["lost", "doubled", "last", "renamed", "short"])
def test_a_part_lost_or_doubled_while_encoding_is_refused(how: str) -> None:
    """Mutants: what comes is counted as it comes; parts told by how many there are alone."""
    _, parts = encoded(7)
    assert check_encoded_parts("it", X.grid, parts, 28, None).rows == 28
    wrong = {
        "lost": parts[1:],
        "doubled": [*parts, parts[0]],
        "last": parts[:-2],
        "renamed": [parts[0], parts[0], *parts[2:]],
        "short": [p._replace(seen=6) for p in parts],
    }[how]
    with pytest.raises(SourceError, match="did not hand on each of its rows once"):
        check_encoded_parts("it", X.grid, wrong, 28, None)


def test_a_cell_that_is_none_is_refused() -> None:
    """Mutant: the largest cells not looked at."""
    how, parts = encoded(7)
    with pytest.raises(SourceError, match="not encoded as declared"):
        check_encoded_parts("it", X.grid, [*parts[:3], kernel._chunk_part(how, np.array([[11]]), 1, 1, 7)], 28, None)


@pytest.mark.parametrize("how", ["lost", "doubled", "swapped", "apart", "missing"])
def test_a_bucket_of_persons_lost_doubled_or_in_two_places_is_refused(how: str) -> None:
    """Mutants: a bucket in two partitions, where each keeps rows of one person; tables that were sent not compared."""
    _, chunks = encoded(7)
    chunks = [p._replace(seen=0) for p in chunks]
    receipts = [
        PartitionRow(part, RECEIPT, 7, 14 if bucket == 0 else 0, b"%d %d" % (bucket, bucket))
        for part in (0, 1)
        for bucket in (0, 1)
    ]
    assert check_encoded_parts("it", X.grid, chunks + receipts, 28, 2).rows == 28
    wrong = {
        "lost": receipts[:3],
        "doubled": [*receipts, receipts[3]],
        "swapped": [*receipts[:3], receipts[1]],
        "apart": [*receipts[:3], receipts[3]._replace(note=b"1 0")],
        "missing": receipts[:2],
    }[how]
    with pytest.raises(SourceError, match="did not hand on each of its rows once"):
        check_encoded_parts("it", X.grid, chunks + wrong, 28, 2)


@pytest.mark.parametrize("how", ["lost", "doubled", "apart", "another", "fewer", "table"])
def test_what_is_made_of_several_tables_is_made_of_each_row_once(how: str) -> None:
    """Mutants: rows of one table added to another's; a person's rows of two tables in two partitions; a table that came
    from nowhere."""
    _, chunks = encoded(7)
    chunks = [p._replace(seen=0) for p in chunks]
    came = [14, 20]  # parts 0 and 1 are of the first table, 2 of the second
    receipts = [
        PartitionRow(part, RECEIPT, 7, seen if bucket == 0 else 0, b"%d %d %d" % (bucket, bucket, table))
        for part, table, seen in ((0, 0, 9), (1, 0, 5), (2, 1, 20))
        for bucket in (0, 1)
    ]
    assert check_joined_parts("it", X.grid, chunks + receipts, came, 2).rows == 28
    wrong, counted = {
        "lost": (receipts[:-1], came),
        "doubled": ([*receipts, receipts[1]], came),
        "apart": ([*receipts[:4], receipts[4]._replace(note=b"0 1 1"), receipts[5]._replace(note=b"1 0 1")], came),
        "another": ([*receipts[:4], *(r._replace(note=r.note[:-1] + b"0") for r in receipts[4:])], came),
        "fewer": (receipts, [15, 19]),
        "table": ([*receipts, receipts[4]._replace(note=b"0 0 2"), receipts[5]._replace(note=b"1 1 2")], came),
    }[how]
    with pytest.raises(SourceError, match="was not made of each row once"):
        check_joined_parts("it", X.grid, chunks + wrong, counted, 2)


@pytest.mark.parametrize("how", ["lost", "doubled", "last lost", "receipt lost"])
def test_lines_of_labels_come_once(how: str) -> None:
    """Mutants: chunks believed that are not there once; the last of a part left out; a bucket that is lost."""
    receipts = [PartitionRow(0, RECEIPT, 4, 9 if b == 0 else 0, b"%d %d 0" % (b, b)) for b in (0, 1)]
    chunks = [PartitionRow(part, chunk, 2, note=b"4") for part in (0, 1) for chunk in (0, 1)]
    assert check_lines("it", chunks + receipts, [9], 2) == chunks
    wrong = {
        "lost": chunks[1:] + receipts,
        "doubled": [*chunks, chunks[0], *receipts],
        "last lost": chunks[:-1] + receipts,
        "receipt lost": chunks + receipts[:1],
    }[how]
    with pytest.raises(SourceError, match="once"):
        check_lines("it", wrong, [9], 2)


def test_a_partition_counts_the_rows_of_its_persons_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutants: more rows of a person than are allowed; a person in another bucket than its own."""
    import pyarrow as pa

    how = Encoding(X.grid, person="VARCHAR", truncation=Truncation(2), buckets=3)
    table = pa.table({"w0": np.arange(9) % 4, "r": ["a", "b", "a", "a", "b", "c", "a", "d", None]})
    sent = list(kernel.encode(table.to_batches(), how, 0))
    assert [p.chunk for p in sent] == [0, 1, 2]
    assert sum(p.rows for p in sent) == 7  # a person's equal rows travel as one, with their number
    gathered = [list(kernel.gather(kernel.part_batches([sent[bucket]]), how, 5)) for bucket in range(3)]
    assert [receipt.note for _, receipt in gathered] == [b"%d 5" % bucket for bucket in range(3)]
    assert sum(chunk.rows for chunk, _ in gathered) == 6
    # "a" alone has more than two rows
    assert sum(int(np.frombuffer(chunk.note[32:40], dtype="<i8")[0]) for chunk, _ in gathered) == 1
    moved = next(p for p in sent if p.rows)
    with pytest.raises(ValueError):
        list(kernel.gather(kernel.part_batches([moved._replace(chunk=(moved.chunk + 1) % 3)]), how, 5))
    monkeypatch.setattr(kernel, "truncation_sql", lambda kept, rows, most: f"SELECT *, false AS cut FROM ({rows})")
    with pytest.raises(ValueError):
        list(kernel.gather(kernel.part_batches(kernel.encode(table.to_batches(), how, 0)), how, 5))


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_what_is_kept_of_a_person_hangs_on_no_partition(seed: int, grouped: bool) -> None:
    """Where rows lie may hang on other persons' rows. Mutants: chosen, or numbered, in each partition first."""
    import pyarrow as pa

    rng = np.random.default_rng(seed)
    most, groups = 1 + seed + 3 * grouped, ("x",) if grouped else ()
    how = Encoding(X.grid, person="VARCHAR", truncation=Truncation(most, (0,) if grouped else (), 1 + seed))
    table = pa.table({"w0": (rng.integers(0, 100, 3000) ** 2) // 1000, "r": rng.integers(0, 40, 3000).astype(str)})
    here = pa.table({"x": table["w0"], "who": table["r"]})
    given: dict[str, Any] = {"person": "who", "rows_per_person": most, "once_per": groups, "rows_per_group": 1 + seed}
    expected = open_source(here, X, **given).count([("x",)])[("x",)]
    for parts in (1, 2, 7):
        where = rng.integers(0, parts, 3000)
        sent = [c for i in range(parts) for c in kernel.encode(table.filter(where == i).to_batches(), how, i)]
        chunk, *_ = kernel.gather(kernel.part_batches(sent), how, 0)
        words = np.frombuffer(chunk.data, dtype="<i8")
        np.testing.assert_array_equal(np.bincount(words, minlength=11), expected)


@pytest.mark.parametrize("how", ["doubled", "lost"])
def test_a_part_lost_or_doubled_in_a_pass_is_refused(spark: Running, how: str) -> None:
    """Mutant: sums believed, though the chunks that were counted are not those that were encoded."""
    counts: Any = open_source(spark.frame("SELECT CAST(id % 5 AS INT) AS x FROM range(0, 40, 1, 2)"), X)
    kept = counts.engine._kept
    own = kept[0]
    kept[0] = own.unionAll(own.filter("part = 0")) if how == "doubled" else own.filter("part = 0")
    with pytest.raises(SourceError, match="a part of it was lost or doubled"):
        counts.count([("x",)])
    kept[0] = own
    assert counts.count([("x",)])[("x",)].sum() == 40


def drawn(share: float = 1.0) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Other rows each time; of so many of them."""

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        import numpy
        import pyarrow

        for batch in batches:
            rng = numpy.random.default_rng()
            kept = batch.num_rows if share == 1 else rng.binomial(batch.num_rows, share)
            yield pyarrow.RecordBatch.from_arrays([pyarrow.array(rng.integers(0, 10, kept, dtype="i4"))], names=["x"])

    return run


def test_a_table_that_changes_between_passes_is_refused(spark: Running) -> None:
    """What was encoded is lost and made again, of other rows. Mutant: digests that are not compared; the same sums."""
    frame = spark.session.range(0, 400, 1, 2).mapInArrow(drawn(), "x int")
    counts: Any = open_source(frame, X)
    assert counts.count([("x",)])[("x",)].sum() == 400
    for kept in counts.engine._kept:
        kept.unpersist(True)
    with pytest.raises(SourceError, match="changed after it was encoded"):
        counts.count([("x",)])


def test_a_table_that_has_other_rows_each_time_is_refused(spark: Running) -> None:
    """Mutant: the engine's own count not compared."""
    with pytest.raises(SourceError, match="did not hand on each of its rows once"):
        open_source(spark.session.range(0, 4000, 1, 2).mapInArrow(drawn(0.5), "x int"), X)


# -- what fails says nothing of rows ----------------------------------------------------------------------


def texts(error: BaseException | None) -> Iterator[str]:
    """Everything an exception and those behind it say."""
    while error is not None:
        yield from map(repr, (error, error.args, getattr(error, "__notes__", ())))
        error = error.__cause__ or error.__context__


TRAPS = {
    "cast": "SELECT CAST(who AS INT) AS x, who FROM plain",
    "raised": "SELECT IF(n = 77, CAST(raise_error(who) AS INT), 1) AS x, who FROM plain",
    "divided": "SELECT assert_true(n < 5, who) AS v, 1 div (n - n) AS x, who FROM plain",
    "person": "SELECT 1 AS x, IF(n = 50, CAST(CAST(who AS DATE) AS STRING), who) AS who FROM plain",
}


@pytest.fixture
def plain(spark: Running) -> Running:
    spark.view("plain", "SELECT concat('Zebra77', id) AS who, CAST(id AS INT) AS n FROM range(0, 100, 1, 2)")
    return spark


def test_errors_of_spark_are_not_passed_on(plain: Running, capfd: pytest.CaptureFixture[str]) -> None:
    """Nor are they in the log that this process sees, in which a task that is killed later is quoted too.

    Mutants: Spark's text in a message or kept as its context; the log left on, or turned on again after a failure; the
    log of Spark's Python part left on.
    """
    context = plain.session.sparkContext
    context.setLogLevel("WARN")
    try:
        for trap in TRAPS.values():
            with pytest.raises(SourceError) as caught:
                open_source(plain.frame(trap), X, person="who")
            assert not [t for t in texts(caught.value) if SECRET in t]
        time.sleep(2)
        assert capfd.readouterr() == ("", "")
        assert SECRET not in plain.log.read_text(errors="replace")
    finally:
        context.setLogLevel("OFF")


def test_what_fails_in_a_partition_is_a_number(plain: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: the exception of a partition let through, with what it quotes."""
    monkeypatch.setattr(engine, "library_versions", lambda: ("python 2.7",))
    with pytest.raises(SourceError, match="run another Python, numpy, duckdb or sfumato than this program"):
        open_source(plain.frame("SELECT n AS x FROM plain"), X)
    monkeypatch.undo()
    frame = plain.frame("SELECT who AS x FROM plain")
    wrong = Encoding(X.grid, {0: ("BIGINT",)})  # a text arrives
    asked = frame.selectExpr("0L AS w0", "x AS r0")
    made = asked.mapInArrow(engine._partition_function("encode", wrong, numbered=True), engine._SCHEMA)
    assert {p.status for p in engine._collect_parts(made)} == {engine._FAILED}


def test_settings_of_the_session_are_left_as_they_were(plain: Running) -> None:
    """Mutants: a setting not put back; methods made that are longer than Java compiles."""
    settings = (engine._BATCH, "spark.sql.codegen.hugeMethodLimit")
    before = [plain.session.conf.get(name) for name in settings]
    plain.session.sparkContext.setLogLevel("ERROR")
    with engine._isolated_action(plain.session, 7):
        assert [plain.session.conf.get(name) for name in settings] == ["7", "8000"]
    open_source(plain.frame("SELECT n AS x FROM plain"), X)
    assert [plain.session.conf.get(name) for name in settings] == before
    logs = plain.session.sparkContext._jvm.org.apache.logging.log4j.LogManager
    assert logs.getRootLogger().getLevel().toString() == "ERROR"


def test_what_was_kept_is_given_up(plain: Running) -> None:
    """Mutants: every release leaves its records in the memory of the cluster; two of one table share what is kept, and
    the first that ends takes it from the other."""
    cached: Callable[[], int] = lambda: plain.session.sparkContext._jsc.sc().getPersistentRDDs().size()  # noqa: E731
    before = cached()
    frame = plain.frame("SELECT n AS x FROM plain")
    first, second = (open_source(frame, X) for _ in range(2))
    assert cached() == before + 2
    del first
    assert cached() == before + 1
    assert second.count([()])[()] == 100
    del second
    assert cached() == before


# -- sources ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        "spark://u:Zebra77@h:1?table=t",
        "spark://h?table=t",
        "spark://h:1/Zebra77?table=t",
        "spark://h:1?table=t&token=Zebra77",
        "spark://h:1?table=",
        "spark://h:1",
        "spark://h:1?table=t#Zebra77",
        "spark://h:1?table=a..b",
        "spark:Zebra77",
        "SPARK://h:1?Zebra77",
    ],
)
def test_an_address_is_refused_without_being_shown(address: str) -> None:
    with pytest.raises(InvalidInput, match="not of the form") as caught:
        open_source(address, X)
    assert not [t for t in texts(caught.value) if SECRET in t]


def test_a_table_is_named_by_its_address(plain: Running) -> None:
    address = plain.view("numbers", "SELECT 3 AS x")
    assert open_source(address, X).count([("x",)])[("x",)].tolist()[3] == 1
    assert column_names(address) == ("x",)
    with pytest.raises(SourceError, match="cannot be read"):
        open_source("spark://?table=nowhere", X)
    with pytest.raises(SourceError, match="another Spark"):  # mutant: whatever is there has a table of that name
        open_source("spark://h:1?table=numbers", X)
    assert engine._quote_table_name('a."b.c"."d""e`"') == '`a`.`b.c`.`d"e```'


def test_what_is_not_counted_there_is_said_at_once(plain: Running) -> None:
    """Keys and samples would bring rows here. Mutant: rows counted first."""
    frame = plain.frame("SELECT n AS x, who FROM plain")
    address = plain.view("sampled", "SELECT 3 AS x")
    with pytest.raises(InvalidInput, match="keys are not"):
        open_keys(frame, Keys("who", "text"), PrivacyUnit(Neighbours.ADD_REMOVE))
    with pytest.raises(InvalidInput, match="no sample"):
        place_sample(address, X, PrivacyUnit(Neighbours.ADD_REMOVE))
    for wrong in (frame.rdd, plain.session, frame.columns):
        with pytest.raises(InvalidInput):
            open_source(wrong, X)


@pytest.mark.parametrize("module", ["pyspark.sql.functions", "pyarrow"])
def test_what_is_not_installed_is_named_with_its_extra(
    plain: Running, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    frame = plain.frame("SELECT n AS x FROM plain")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=r"pip install -e '.\[spark\]'"):
        open_source(frame, X)
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(MissingExtra, match=r"pip install -e '.\[spark\]'"):
        open_source("spark://h:1?table=t", X)


def test_a_spark_table_has_a_name_and_no_rows(plain: Running) -> None:
    made = Spark(plain.frame("SELECT n AS x FROM plain"))
    assert repr(made) == "<the Spark table>"
    assert SECRET not in repr(open_source(plain.frame("SELECT n AS x FROM plain"), X))
