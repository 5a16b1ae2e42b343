"""A table on a Postgres server: what is read from it is what would be read from a file, of one moment, or nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from sfumato.curator.engines.postgres import Postgres, Snapshot
from sfumato.curator.keys.counts import open_keys
from sfumato.curator.rows.loading import FileCounts
from sfumato.curator.rows.samples import column_names
from sfumato.curator.rows.sources import open_source
from sfumato.domain import Attribute, Bins, Booleans, Categories, Dates, Domain, Hierarchy, Integers
from sfumato.errors import InvalidInput, MissingExtra, SourceError
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.sketches import Keys
from support.hostile import CODES, DAYS, DECIMALS, FLOATS, LONG, MOMENTS, ODD_NAMES, SINGLES, TEXTS, UUIDS, WHOLES
from support.postgres import Server

OTHER = {"outside": "other", "missing": "other"}
X = Domain({"x": Integers(0, 9, **OTHER)})
SECRET = "Zebra77"

# -- the same content -------------------------------------------------------------------------------------

# type of the server: the type of a DuckDB database that holds the same, and the values of both
SAME: dict[str, tuple[str, list[str | None]]] = {
    "text": ("VARCHAR", TEXTS),
    "varchar": ("VARCHAR", TEXTS),
    "varchar(3000)": ("VARCHAR", TEXTS),
    'text COLLATE "und-x-icu"': ("VARCHAR", TEXTS),
    "text COLLATE odd.folding": ("VARCHAR", TEXTS),
    "odd.citext": ("VARCHAR", TEXTS),
    "odd.word": ("VARCHAR", TEXTS),
    "odd.int4": ("VARCHAR", TEXTS),
    "odd.mood": ("ENUM('a', 'A', 'it''s', '1.0')", [None, "a", "A", "it's", "1.0"]),
    "char(5)": ("VARCHAR", [None, "a", "A", "1", "", "true"]),
    "name": ("VARCHAR", [None, "a", "A", "1", LONG]),
    "int2": ("SMALLINT", WHOLES),
    "int4": ("INTEGER", [*WHOLES, "2147483647", "-2147483648"]),
    "int8": ("BIGINT", [*WHOLES, "9223372036854775807", "-9223372036854775808", "9007199254740993"]),
    "odd.small": ("INTEGER", WHOLES),
    "float4": ("FLOAT", SINGLES),
    "float8": ("DOUBLE", FLOATS),
    "bool": ("BOOLEAN", [None, "true", "false", "true"]),
    "numeric(38,10)": ("DECIMAL(38,10)", DECIMALS),
    "numeric": ("DECIMAL(38,10)", DECIMALS),
    "date": ("DATE", DAYS),
    "timestamp": ("TIMESTAMP", [None, *MOMENTS, "0001-01-01", "infinity", "-infinity", "0044-03-15 (BC) 10:00:00"]),
    "timestamptz": (
        "TIMESTAMPTZ",
        [None, *(f"{m}+00" for m in MOMENTS), "2024-03-01 00:30:00+02", "infinity", "-infinity"],
    ),
    "uuid": ("UUID", UUIDS),
}
KINDS: list[Attribute] = [
    Categories(CODES, **OTHER),
    Integers(-3, 9, 3, outside="clamp", missing="drop"),
    Bins([-10, 0, 0.1, 1, 7.5, 2**60], **OTHER),
    Booleans(**OTHER),
    Hierarchy({"1": ["a", "01", "1.5"], "2": ["7", "2001-02-03"]}, ["state", "block"], outside="drop", missing="other"),
    Categories({"A": "a", "é": "accented", "TRUE": "yes", "1": "yes"}, "ignore", True, **OTHER),
    Dates("1969-12-01", "2026-12-31", "week", outside="clamp", missing="other"),
]
# of the same column, one of several names: those that drop no record are counted of one look
LOOKS = [{f"v{i}": k for i, k in enumerate(KINDS) if i not in (1, 4)}, {"v1": KINDS[1]}, {"v4": KINDS[4]}]
COLUMNS = ["v", *(f"v{i}" for i in range(len(KINDS)))]


def quoted(value: str | None) -> str:
    return "NULL" if value is None else "'" + value.replace("'", "''") + "'"


@pytest.fixture(scope="session")
def furnished(postgres: Server) -> Server:
    """Types of a stranger's own: a folding collation, citext, an enum, and domains, one called like another type."""
    postgres.run(
        "CREATE SCHEMA odd",
        "CREATE EXTENSION citext SCHEMA odd",
        "CREATE COLLATION odd.folding (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
        "CREATE DOMAIN odd.word AS text CHECK (length(value) < 10000)",
        "CREATE DOMAIN odd.int4 AS odd.word",
        "CREATE DOMAIN odd.small AS pg_catalog.int4",
        "CREATE TYPE odd.mood AS ENUM ('a', 'A', 'it''s', '1.0')",
        "CREATE TYPE odd.pair AS (a int, b int)",
        "CREATE TYPE odd.uuid AS (a int, b int)",
        "CREATE TABLE plain (x int, who text)",
        "INSERT INTO plain SELECT i % 10, 'p' || (i % 7) FROM generate_series(1, 200) i",
    )
    return postgres


def both(of: Server, folder: Path, kind: str) -> tuple[str, str]:
    """Addresses of a table of hostile values, each one to three times, in all of COLUMNS: on the server, and in a
    database."""
    own, values = SAME[kind]
    rows = [(quoted(v), i) for i, v in enumerate(values) for _ in range(1 + i % 3)]
    name = f"same_{list(SAME).index(kind)}"
    put = ", ".join(f"({', '.join([_bc(v)] * len(COLUMNS))}, {i})" for v, i in rows)
    columns = ", ".join(f"{c} {kind}" for c in COLUMNS)
    of.run(
        f"DROP TABLE IF EXISTS {name}", f"CREATE TABLE {name} ({columns}, n int)", f"INSERT INTO {name} VALUES {put}"
    )
    path = folder / "same.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"CREATE OR REPLACE TABLE same ({', '.join(f'{c} {own}' for c in COLUMNS)}, n INTEGER)")
        local = ", ".join(f"({', '.join([f'CAST({v} AS {own})'] * len(COLUMNS))}, {i})" for v, i in rows)
        connection.execute(f"INSERT INTO same VALUES {local}")
    return of.address(name), f"duckdb:///{path}?table=same"


def _bc(value: str) -> str:
    """A date before our era as the server writes it: 0044-03-15 10:00:00 BC."""
    return value.replace(" (BC)", "")[:-1] + " BC'" if "(BC)" in value else value


def outcome(action: Callable[[], Any]) -> Any:
    """What comes of it, or the words of its refusal after the name of the table."""
    try:
        return action()
    except SourceError as error:
        return str(error)


@pytest.mark.parametrize("kind", SAME)
def test_every_value_means_what_it_means_in_a_file(furnished: Server, tmp_path: Path, kind: str) -> None:
    """Counts of every kind of attribute, of persons and of keys are those of a DuckDB database of the same values.

    Mutants: texts compared by the server (citext, a folding collation); numbers sent as texts; an infinite date that
    overflows; numeric with the zeros it was typed with, so that one person has two names; a type taken by its name.
    """
    there, here = both(furnished, tmp_path, kind)

    def read(source: str, attributes: dict[str, Attribute]) -> dict[tuple[str, ...], list[int]]:
        found = open_source(source, Domain(attributes)).count([(name,) for name in attributes])
        return {k: v.tolist() for k, v in found.items()}

    for attributes in LOOKS:
        found, expected = (outcome(lambda s=source, a=attributes: read(s, a)) for source in (there, here))
        if isinstance(found, str) and len(attributes) > 1:  # a refusal is of the first that cannot be read
            for one in attributes.items():
                found, expected = (outcome(lambda s=source, a=one: read(s, dict([a]))) for source in (there, here))
                assert found == expected, one
        assert found == expected, attributes
    counted = [
        outcome(lambda s=source: open_source(s, Domain({"n": Integers(0, 99, **OTHER)}), person="v").count([("n",)]))
        for source in (there, here)
    ]
    if kind == "timestamptz":  # a moment names nobody, and is no key
        assert counted[0] == counted[1]
        assert "cannot be read as names of persons" in counted[0]
        return
    np.testing.assert_array_equal(counted[0][("n",)], counted[1][("n",)])
    unit = PrivacyUnit(Neighbours.ADD_REMOVE)
    for universe in ("text", "integer"):
        keys = Keys("v", universe)  # type: ignore[arg-type]
        tables = [outcome(lambda s=source, k=keys: open_keys(s, k, unit).digest("")) for source in (there, here)]
        assert tables[0] == tables[1], universe


def test_a_number_has_one_text_however_many_zeros_it_was_typed_with(furnished: Server) -> None:
    """Mutant: numeric as its text, by which 1.0 and 1.00 are two persons, each with places of their own; NaN a name."""
    values = ["1", "1.0", "1.00", "NaN", "Infinity", "1e30", "1" + "0" * 30, "1e-30", "NULL"]
    furnished.run(
        "DROP TABLE IF EXISTS typed",
        "CREATE TABLE typed (x int, who numeric)",
        *(f"INSERT INTO typed VALUES ({i}, '{v}')" for i, v in enumerate(values[:-1])),
        "INSERT INTO typed VALUES (8, NULL)",
    )
    people = open_source(furnished.address("typed"), X, person="who")
    assert people.rows == 4  # 1, infinity, 1e30, 1e-30
    codes = Domain({"who": Categories(["1", "0.1"], outside="drop", missing="other")})
    assert open_source(furnished.address("typed"), codes).count([("who",)])[("who",)].tolist() == [3, 0, 2]


def test_one_long_value_refuses_no_table(furnished: Server) -> None:
    """It is cut where a file's would be: it is no code, and the name of somebody. Mutant: sent as it is, so that one
    record decides whether there is a release."""
    furnished.run("DROP TABLE IF EXISTS long", "CREATE TABLE long (x text, who text)")
    furnished.run("INSERT INTO long VALUES ('a', repeat('y', 80000000)), (repeat('a', 3000000), 'me'), ('a', 'me')")
    codes = Domain({"x": Categories(["a"], outside="other", missing="drop")})
    assert open_source(furnished.address("long"), codes, person="who").rows == 2
    assert open_source(furnished.address("long"), codes).count([("x",)])[("x",)].tolist() == [2, 1]


def test_a_moment_beyond_any_clock_is_there_and_no_code(furnished: Server) -> None:
    """The server's last years are none of DuckDB's. Mutant: what cannot be read as a moment taken for missing."""
    furnished.run("DROP TABLE IF EXISTS far", "CREATE TABLE far (x timestamp)")
    furnished.run("INSERT INTO far VALUES ('294276-12-31 23:59:59'), ('-infinity'), (NULL), ('2001-02-03')")
    codes = Domain({"x": Categories(["2001-02-03 00:00:00"], outside="other", missing="drop")})
    assert open_source(furnished.address("far"), codes).count([("x",)])[("x",)].tolist() == [1, 2]


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1", "LATIN2"])
def test_every_text_of_a_database_arrives_or_none_is_read(furnished: Server, encoding: str) -> None:
    """Mutants: texts converted on their way, of which one that cannot be, decides that nothing is read; bytes that are
    no text as names of persons."""
    name = encoding.lower()
    made = f"CREATE DATABASE {name} ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    furnished.run(f"DROP DATABASE IF EXISTS {name}", made)
    row = "convert_from(v, current_setting('server_encoding')) AS x, 1 AS n"
    furnished.run(
        rf"CREATE TABLE t AS SELECT {row} FROM (VALUES ('\x61'::bytea), ('\xe9'), ('\xff')) _(v)", database=name
    )
    domain = Domain({"x": Categories(["a", "é"], **OTHER)})
    address = furnished.address("t", database=name)
    if encoding == "LATIN2":
        with pytest.raises(SourceError, match=r"with the encoding LATIN2 .*; read are"):
            open_source(address, domain)
        return
    expected = [1, 1, 1] if encoding == "LATIN1" else [1, 0, 2]
    assert open_source(address, domain).count([("x",)])[("x",)].tolist() == expected
    people = open_source(address, Domain({"n": Integers(0, 9, **OTHER)}), person="x")
    assert people.rows == (3 if encoding == "LATIN1" else 1)


def test_names_are_quoted_wherever_they_stand(furnished: Server) -> None:
    """Schemas, tables, columns and persons called whatever they are. Mutants: a name put in bare; capitals folded; a
    name too long for the server cut to that of another table."""
    q = [name.replace('"', '""') for name in ODD_NAMES]
    for i, (name, bare) in enumerate(zip(q, ODD_NAMES, strict=True)):
        furnished.run(
            f'DROP SCHEMA IF EXISTS "{name}" CASCADE',
            f'CREATE SCHEMA "{name}"',
            f'CREATE TABLE "{name}"."{name}" ("{name}" int, "who{i}" text)',
            f"INSERT INTO \"{name}\".\"{name}\" VALUES ({i % 10}, 'a'), ({i % 10}, 'a'), (3, NULL)",
        )
        address = furnished.address(f'"{name}"."{name}"')
        assert column_names(address) == (bare, f"who{i}")
        counts = open_source(address, Domain({bare: Integers(0, 9, **OTHER)}), person=f"who{i}")
        assert np.flatnonzero(counts.count([(bare,)])[(bare,)]).tolist() == [i % 10]
        assert counts.rows == 1
    with pytest.raises(SourceError, match="capitals included"):
        open_source(furnished.address("Plain"), X)
    furnished.run("DROP TABLE IF EXISTS " + "t" * 63, f"CREATE TABLE {'t' * 63} (x int)")
    with pytest.raises(SourceError, match="there is no table"):
        open_source(furnished.address("t" * 64), X)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        *(("money", "1"), ("bytea", "a"), ("json", "1"), ("jsonb", "1"), ("int[]", "{1}"), ("interval", "1 day")),
        *(("timestamptz", "2001-02-03"), ("time", "1:00"), ("timetz", "1:00"), ("point", "(1,2)"), ("inet", "::1")),
        *(
            ("int4range", "[1,2)"),
            ("odd.pair", "(1,2)"),
            ("odd.uuid", "(1,2)"),
            ("xml", "<a/>"),
            ("oid", "1"),
            ("bit(1)", "1"),
        ),
    ],
)
def test_a_type_that_is_not_known_is_not_read(furnished: Server, kind: str, value: str) -> None:
    """Mutant: whatever has a text is read by it: money arrives as cents, a bytea in one of two ways."""
    furnished.run("DROP TABLE IF EXISTS odd_type", f"CREATE TABLE odd_type (x {kind}, n int)")
    furnished.run(f"INSERT INTO odd_type VALUES ('{value}', 1)")
    for domain, person in ((X, None), (Domain({"n": Integers(0, 9, **OTHER)}), "x")):
        with pytest.raises(
            SourceError, match=r"column 'x' is of type .*, which cannot be read as .*convert the column"
        ):
            open_source(furnished.address("odd_type"), domain, person=person)
    assert open_source(furnished.address("odd_type"), Domain({"n": Integers(0, 9, **OTHER)})).rows == 1
    assert furnished.connections() == 0


def test_many_rows_and_persons_are_those_of_a_file(furnished: Server, tmp_path: Path) -> None:
    """Also where the encoded records lie in files for want of room."""
    domain = Domain({"x": Integers(0, 9, **OTHER), "y": Categories(["a", "b"], outside="drop", missing="other")})
    furnished.run(
        "DROP TABLE IF EXISTS many",
        "CREATE TABLE many AS SELECT hashint4(i) % 12 AS x, "
        "(ARRAY['a', 'b', 'c', NULL])[1 + abs(hashint4(i + 9) % 4)] AS y, "
        "nullif('p' || abs(hashint4(i * 3) % 9000), 'p7') AS who FROM generate_series(1, 50000) i",
    )
    import adbc_driver_postgresql.dbapi as driver
    import pyarrow.parquet as pq

    with driver.connect(furnished.uri()) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT * FROM many")
        pq.write_table(cursor.fetch_arrow_table(), tmp_path / "many.parquet")
        for person, most in ((None, 1), ("who", 1), ("who", 3)):
            cursor.execute("SELECT * FROM many")
            handed = cursor.fetch_record_batch()  # of any server that has a driver: a stream that is read once
            counts = [
                open_source(source, domain, person=person, rows_per_person=most).count([("x", "y")])[("x", "y")]
                for source in (tmp_path / "many.parquet", furnished.address("many"), handed)
            ]
            np.testing.assert_array_equal(counts[0], counts[1])
            np.testing.assert_array_equal(counts[0], counts[2])


def test_records_beyond_their_room_lie_in_files(furnished: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sfumato.curator.engines.streams._RECORDS", 100)
    counts = open_source(furnished.address("plain"), X)
    assert isinstance(counts, FileCounts)
    assert counts.count([("x",)])[("x",)].tolist() == [20] * 10 + [0]
    assert furnished.connections() == 0


# -- one snapshot -----------------------------------------------------------------------------------------


@pytest.fixture
def meanwhile(furnished: Server, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Server]:
    """Run statements of somebody else's right before the first of ours that begins with some words."""

    def set_up(words: str, *statements: str) -> Server:
        furnished.run("DROP TABLE IF EXISTS moving CASCADE", "CREATE TABLE moving (x int, y int)")
        furnished.run("INSERT INTO moving SELECT i % 10, 0 FROM generate_series(1, 100) i")
        own, done = Snapshot._statement, []

        def instead(self: Snapshot, sql: str) -> Any:
            if sql.startswith(words) and not done:
                done.append(sql)
                furnished.run("SET lock_timeout = '200ms'", *statements)
            return own(self, sql)

        monkeypatch.setattr(Snapshot, "_statement", instead)
        return furnished

    return set_up


def test_rows_that_come_and_go_meanwhile_are_not_seen(meanwhile: Callable[..., Server]) -> None:
    """Mutant: READ COMMITTED, in which each statement sees another table."""
    of = meanwhile('SELECT "x" AS c0', "INSERT INTO moving VALUES (1, 1)")
    assert open_source(of.address("moving"), X).count([("x",)])[("x",)].tolist() == [10] * 10 + [0]


def test_a_table_rewritten_before_the_snapshot_is_whole(meanwhile: Callable[..., Server]) -> None:
    """Mutant: the first look, which fixes the snapshot, before the lock: a table rewritten between them seems empty."""
    of = meanwhile("LOCK TABLE", "ALTER TABLE moving ALTER x TYPE int8")
    assert open_source(of.address("moving"), X).count([("x",)])[("x",)].tolist() == [10] * 10 + [0]


def test_no_type_changes_after_it_was_looked_at(meanwhile: Callable[..., Server]) -> None:
    """Mutant: no lock; the column is then asked for as what it no longer is."""
    of = meanwhile("SELECT count", "ALTER TABLE moving ALTER x TYPE text")
    with pytest.raises(Exception, match="lock timeout"):
        open_source(of.address("moving"), X)


def test_operators_of_a_stranger_are_not_used(furnished: Server) -> None:
    """Mutant: the path of the database kept, on which a schema that others may fill stands before the server's own."""
    furnished.run(
        "DROP DATABASE IF EXISTS lies",
        "CREATE DATABASE lies",
        "ALTER DATABASE lies SET search_path = public, pg_catalog",
    )
    furnished.run(
        "CREATE FUNCTION same(numeric, numeric) RETURNS bool LANGUAGE sql AS 'SELECT true'",
        "CREATE OPERATOR = (LEFTARG = numeric, RIGHTARG = numeric, FUNCTION = same)",
        "CREATE FUNCTION count(int) RETURNS int LANGUAGE sql AS 'SELECT 0'",
        "CREATE FUNCTION trim_scale(numeric) RETURNS numeric LANGUAGE sql AS 'SELECT 1.0'",
        "CREATE TABLE t AS SELECT i::numeric AS x FROM generate_series(0, 9) i",
        database="lies",
    )
    address = furnished.address("t", database="lies")
    assert open_source(address, X).count([("x",)])[("x",)].tolist() == [1] * 10 + [0]


def test_a_server_that_holds_no_snapshot_is_refused(furnished: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: what was said is taken for done; some servers take the words and do nothing."""
    own = Snapshot._run
    for words, instead in {
        "BEGIN": "BEGIN READ ONLY",
        "BEGIN ISO": "BEGIN ISOLATION LEVEL REPEATABLE READ",
        "SET LOCAL row": "SET LOCAL row_security = on",
    }.items():

        def run(self: Snapshot, sql: str, words: str = words, instead: str = instead) -> None:
            own(self, instead if sql.startswith(words) else sql)

        monkeypatch.setattr(Snapshot, "_run", run)
        with pytest.raises(SourceError, match="holds no read-only snapshot"):
            open_source(furnished.address("plain"), X)
    assert furnished.connections() == 0


def test_rows_that_a_policy_would_hide_are_refused(furnished: Server) -> None:
    """Mutant: row_security left on, which hides rows without a word, or leaves them to who asks."""
    furnished.run(
        "DROP TABLE IF EXISTS guarded",
        "CREATE TABLE guarded (x int)",
        "INSERT INTO guarded SELECT i % 10 FROM generate_series(1, 100) i",
        "ALTER TABLE guarded ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY few ON guarded USING (x < 3)",
        "DROP ROLE IF EXISTS reader",
        "CREATE ROLE reader LOGIN",
        "GRANT SELECT ON guarded TO reader",
    )
    with pytest.raises(SourceError, match=r"a policy for rows \(row-level security\) would hide some of it"):
        open_source(furnished.address("guarded", user="reader"), X)
    assert open_source(furnished.address("guarded"), X).rows == 100
    furnished.run("DROP TABLE guarded")
    with pytest.raises(SourceError, match="this user may not read it"):
        open_source(furnished.address("plain", user="reader"), X)
    furnished.run("GRANT SELECT (x) ON plain TO reader")
    assert open_source(furnished.address("plain", user="reader"), X).rows == 200
    furnished.run("REVOKE ALL (x) ON plain FROM reader", "DROP ROLE reader")


def test_views_and_partitions_are_read_and_what_holds_no_rows_is_not(furnished: Server) -> None:
    furnished.run(
        "DROP TABLE IF EXISTS parts CASCADE",
        "CREATE TABLE parts (x int) PARTITION BY LIST (x)",
        "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (1)",
        "CREATE TABLE parts_2 PARTITION OF parts FOR VALUES IN (2)",
        "INSERT INTO parts VALUES (1), (1), (2)",
        "CREATE VIEW seen AS SELECT x FROM parts",
        "CREATE MATERIALIZED VIEW kept AS SELECT x FROM parts",
        "CREATE SEQUENCE IF NOT EXISTS numbers",
    )
    for name in ("parts", "seen", "kept"):
        assert open_source(furnished.address(name), X).count([("x",)])[("x",)].tolist()[:3] == [0, 2, 1]
        assert furnished.connections() == 0
    with pytest.raises(SourceError, match="there is no table"):
        open_source(furnished.address("numbers"), X)


# -- every row exactly once -------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["doubled", "lost", "cut", "none"])
def test_a_row_lost_or_doubled_on_its_way_is_refused(
    furnished: Server, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Mutant: what comes is counted as it comes; rows twice double the sensitivity."""
    own = Snapshot._asked
    monkeypatch.setattr("sfumato.curator.engines.postgres._BATCH", 256)

    class Wrong:
        def __init__(self, reader: Any) -> None:
            self.schema, self.close, self.batches = reader.schema, reader.close, list(reader)

        def __iter__(self) -> Iterator[Any]:
            assert len(self.batches) > 3
            yield from {"doubled": [*self.batches, self.batches[1]], "none": [], "cut": self.batches[:-1]}.get(
                how, [b for i, b in enumerate(self.batches) if i != 1]
            )

    def instead(self: Snapshot, sql: str) -> Any:
        found = own(self, sql)
        return Wrong(found) if " AS c0" in sql else found

    monkeypatch.setattr(Snapshot, "_asked", instead)
    with pytest.raises(SourceError, match="it is damaged or was cut short"):
        open_source(furnished.address("plain"), X)
    assert furnished.connections() == 0


def test_a_view_that_gives_other_rows_each_time_is_refused(furnished: Server) -> None:
    furnished.run("CREATE OR REPLACE VIEW fickle AS SELECT x FROM plain, generate_series(1, 100) WHERE random() < .5")
    with pytest.raises(SourceError, match="cut short"):
        open_source(furnished.address("fickle"), X)


# -- what fails says nothing of rows ----------------------------------------------------------------------


def texts(error: BaseException | None) -> Iterator[str]:
    """Everything an exception and those behind it say."""
    while error is not None:
        yield from map(repr, (error, error.args, getattr(error, "__notes__", ())))
        error = error.__cause__ or error.__context__


TRAPS = {
    "cast": "SELECT x::text AS t, (who || 'Zebra77')::int AS x, who FROM plain",
    "raised": "SELECT cry(who || 'Zebra77', 'EXCEPTION') AS x, who FROM plain",
    "late": "SELECT CASE WHEN n > 150 THEN ('Zebra77' || n)::int ELSE 1 END AS x, 'Zebra77' AS who "
    "FROM generate_series(1, 200) n",
    "divided": "SELECT 1 / (x - x) AS x, who FROM plain",
    "slow": "SELECT x, who || pg_sleep(9) AS who FROM plain",
}


@pytest.fixture
def crying(furnished: Server) -> Server:
    for level in ("EXCEPTION", "NOTICE", "WARNING", "INFO"):
        body = f"BEGIN RAISE {level} 'Zebra77 %', v USING DETAIL = v, HINT = v; RETURN 1; END"
        name = "cry" if level == "EXCEPTION" else level.lower()
        more = ", l text" if level == "EXCEPTION" else ""
        furnished.run(f"CREATE OR REPLACE FUNCTION {name}(v text{more}) RETURNS int LANGUAGE plpgsql AS $${body}$$")
    return furnished


@pytest.mark.parametrize("trap", TRAPS)
def test_errors_of_the_server_are_not_passed_on(crying: Server, trap: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Mutant: the server's text in a message, or kept as the context of one."""
    crying.run(f"CREATE OR REPLACE VIEW trap_{trap} AS {TRAPS[trap]}")
    if trap == "slow":
        crying.run("ALTER DATABASE postgres SET statement_timeout = '300ms'")
    try:
        with pytest.raises(SourceError) as caught:
            open_source(crying.address(f"trap_{trap}"), X, person="who")
    finally:
        crying.run("ALTER DATABASE postgres RESET statement_timeout")
    assert not [t for t in texts(caught.value) if SECRET in t]
    assert capfd.readouterr() == ("", "")
    assert crying.connections() == 0


def test_what_a_view_says_goes_to_no_terminal(crying: Server, capfd: pytest.CaptureFixture[str]) -> None:
    """The client library prints what a server notes, unless whoever uses it takes that: the driver does."""
    crying.run("CREATE OR REPLACE VIEW noticing AS SELECT notice(who) + warning(who) + info(who) AS x FROM plain")
    assert open_source(crying.address("noticing"), X).rows == 200
    assert capfd.readouterr() == ("", "")


def test_a_connection_that_is_cut_leaves_nothing_behind(
    furnished: Server, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Mutant: a cut stream taken for one that ended."""
    furnished.run(
        "CREATE OR REPLACE VIEW cut_off AS SELECT n % 10 AS x, repeat('Zebra77', 99) AS who "
        "FROM generate_series(1, 99999) n"
    )
    own = Snapshot._all

    def cut(self: Snapshot, reader: Any, expected: int) -> Iterator[Any]:
        for i, batch in enumerate(own(self, reader, expected)):
            if i == 1:
                told = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'sfumato'"
                furnished.run(told)
            yield batch

    monkeypatch.setattr(Snapshot, "_all", cut)
    with pytest.raises(SourceError) as caught:
        open_source(furnished.address("cut_off"), X, person="who")
    assert not [t for t in texts(caught.value) if SECRET in t]
    assert capfd.readouterr() == ("", "")
    assert furnished.connections() == 0


def test_an_interrupt_ends_the_connection(furnished: Server) -> None:
    """Before the last row. Mutant: two threads, of which the one that hears interrupts is not asked till the end."""
    furnished.run("CREATE OR REPLACE VIEW endless AS SELECT generate_series(1, 1000000000) % 10 AS x")
    script = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from sfumato.domain import Domain, Integers
from sfumato.curator.engines.postgres import Snapshot
from sfumato.curator.rows.sources import open_source
Snapshot._count = lambda self: 10**9
own = Snapshot._asked
class Said:
    def __init__(self, reader):
        self.reader, self.schema, self.close = reader, reader.schema, reader.close
    def __iter__(self):
        for i, batch in enumerate(self.reader):
            if i == 2:
                print("reading", flush=True)
            yield batch
Snapshot._asked = lambda self, sql: Said(own(self, sql)) if " AS c0" in sql else own(self, sql)
open_source({furnished.address("endless")!r}, Domain({{"x": Integers(0, 9, outside="other", missing="other")}}))
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"reading\n"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode != 0
    # DuckDB tells an interrupt from a failure by a text alone: either ends it, and nothing is spent
    assert b"KeyboardInterrupt" in said or b"cut short" in said
    assert furnished.connections() == 0


# -- addresses --------------------------------------------------------------------------------------------

PASSWORDS = [
    "postgresql://u:Zebra77@h/d?table=t",
    "postgres://u:Zebra77@h:5432/d?table=t",
    "postgresql://u:@h/d?table=t",
    "postgresql://h/d?table=t&password=Zebra77",
    "postgresql://h/d?table=t&sslpassword=Zebra77",
    "postgresql://u:Zeb@ra77@h/d?table=t",
]
MALFORMED = [
    "postgresql://u:Zebra77/d?table=t",
    "postgresql://u:Zeb/ra77@h/d?table=t",
    "postgresql://u:12/Zebra77@h/d?table=t",
    "postgresql://u:12?Zebra77@h/d&table=t",
    "postgresql://u:12#Zebra77@h/d?table=t",
    "postgresql://h/d?table=t&options=-cZebra77",
    "postgresql://h/d?table=t&Zebra77=1",
    "postgresql://h/d?table=t&table=Zebra77",
    "postgresql://h/d?Zebra77",
    "postgresql://h/d",
    "postgresql://h/d?table=",
    "postgresql://h/d?table=Zebra77.b.c",
    "postgresql://h/d?table=SELECT+1%3B%22Zebra77",
    "postgresql://h/d/Zebra77?table=t",
    "postgresql://h/d?table=Zebra77%00",
    "postgresql://[Zebra-77/d?table=t",
    "postgresql:Zebra77",
    "POSTGRESQL://h/d?Zebra77",
    "mysql://u:Zebra77@h/d.csv?table=t",
    "postgresq://u:Zebra77@h/d",
]


@pytest.mark.parametrize("address", PASSWORDS + MALFORMED)
def test_an_address_is_refused_without_being_shown(address: str) -> None:
    """Mutants: an address quoted in its refusal; a password that stands in a place where none is looked for."""
    with pytest.raises(InvalidInput) as caught:
        open_source(address, X)
    assert not [t for t in texts(caught.value) if "Zeb" in t or "ra77" in t]
    if address in PASSWORDS:
        assert ".pgpass" in str(caught.value)


def test_an_address_says_what_it_names() -> None:
    for address, label in {
        "postgresql://me@h:5433/d?table=people": ("d", "public", "people"),
        "postgres:///d?table=s.people&host=/tmp": ("d", "s", "people"),
        'postgresql://h/a%20b?table="a.b"."c""d"': ("a b", "a.b", 'c"d'),
        "postgresql://[::1]:5432,h:1/d?table=People&sslmode=require": ("d", "public", "People"),
    }.items():
        made = Postgres(address)
        assert made.table == label
        assert "table=" not in made.uri
        assert "5433" not in made.label


def test_a_password_comes_from_the_clients_own_files(
    furnished: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    furnished.run("DROP ROLE IF EXISTS locked", "CREATE ROLE locked LOGIN SUPERUSER PASSWORD 'Zebra77'")
    address = furnished.address("plain", user="locked")
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "none"))
    with pytest.raises(SourceError, match=r"does not let this user in \(passwords come from the client's own files"):
        open_source(address, X)
    (tmp_path / "pass").write_text("*:*:*:locked:Zebra77\n")
    (tmp_path / "pass").chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "pass"))
    assert open_source(address, X).rows == 200
    monkeypatch.delenv("PGPASSFILE")
    monkeypatch.setenv("PGPASSWORD", "Zebra77")
    assert open_source(address, X).rows == 200


def test_a_server_that_is_not_there(tmp_path: Path, furnished: Server) -> None:
    for address in (f"postgresql:///d?table=t&host={tmp_path}", furnished.address("t", database="none")):
        with pytest.raises(SourceError, match="the server cannot be reached, has no such database"):
            open_source(address, X)


@pytest.mark.parametrize("module", ["adbc_driver_postgresql", "adbc_driver_manager", "pyarrow"])
def test_what_is_not_installed_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=r"pip install -e '.\[postgres\]'"):
        open_source("postgresql://h/d?table=t", X)


def test_an_engine_is_loaded_when_it_is_asked_for(tmp_path: Path) -> None:
    """Mutant: an import at the head of what every release loads."""
    (tmp_path / "t.csv").write_text("x\n1\n")
    script = f"""
import sys
from sfumato.domain import Domain, Integers
from sfumato.curator.rows.sources import open_source
open_source({str(tmp_path / "t.csv")!r}, Domain({{"x": Integers(0, 9, outside="other", missing="other")}}))
print([m for m in sys.modules if m.startswith(("adbc", "pyarrow", "sfumato.curator.engines.postgres"))])
"""
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "[]\n"
