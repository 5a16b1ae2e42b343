"""A table or view of a Postgres server, read once by ADBC in one snapshot.

The server is asked for as little as it can be: raw columns of types that are known, texts as they are stored, numbers
as numbers, and nothing that could fail for a row or merge two values. Its own error texts quote rows, so what failed is
said by its SQLSTATE alone, where that is the same whatever the rows are.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, TypeVar
from urllib.parse import SplitResult, parse_qs, unquote, urlencode, urlsplit

from sfumato.curator.engines.streams import Field, ServerTable
from sfumato.curator.rows.encoding import sql_identifier, sql_literal
from sfumato.curator.rows.readers import MAX_ROWS
from sfumato.curator.rows.text_files import MAX_RECORD
from sfumato.errors import InvalidInput, MissingExtra, SourceError, how_to_install

T = TypeVar("T")

_FORM = "postgresql://user@host:port/database?table=schema.name"
_PART = '"(?:[^"]|"")+"|[^".]+'
_TABLE = re.compile(rf"(?:({_PART})\.)?({_PART})")
# Users, hosts and ports alone: a word that stands where none of them can may be a password.
_HOST = r"(?:[\w.%~-]*|\[[\da-fA-F:.]+\])(?::\d+)?"
_SERVER = re.compile(rf"(?:[\w.%~+-]*@)?{_HOST}(?:,{_HOST})*")
# What the client library is told besides. No password, and no options of the server's: they could change the snapshot.
_SETTINGS = {"host", "port", "user", "service", "connect_timeout", "target_session_attrs", "channel_binding"} | {
    "sslmode", "sslrootcert", "sslcert", "sslkey", "sslcrl", "gssencmode", "krbsrvname"
}  # fmt: skip
# Bytes of a batch: some of them are in memory at a time.
_BATCH = 2**22
# trim_scale, without which 1.0 and 1.00 are two names of persons, is of version 13.
_OLDEST = 130_000
# Of these every text arrives as it is stored, or as its UTF-8: the others have texts that cannot be converted.
_ENCODINGS = {"UTF8": "UTF8", "LATIN1": "UTF8", "SQL_ASCII": "SQL_ASCII"}
_NATIVE = {"int2": "SMALLINT", "int4": "INTEGER", "int8": "BIGINT"} | {
    "float4": "FLOAT", "float8": "DOUBLE", "bool": "BOOLEAN"
}  # fmt: skip
# By their texts: that of bpchar has no padding, and that of an enum or of citext is what is stored.
_TEXTS = {"text", "varchar", "bpchar", "name", "citext", "enum"}
_SETUP = (
    # first, for what follows holds texts
    "standard_conforming_strings = on",
    # operators and functions are the server's own; those of a stranger's schema may be called the same
    "search_path = pg_catalog",
    # rows that a policy would hide are refused, not left out
    "row_security = off",
    # what a view casts means the same for everybody
    "DateStyle = ISO",
    "TimeZone = 'UTC'",
)
# The same whatever the rows are; a state of class 22 or P0 would tell of one.
_STATES = {
    "None": "the server cannot be reached, has no such database, or does not let this user in (passwords come from "
    "the client's own files or environment)",
    "42501": "this user may not read it, or a policy for rows (row-level security) would hide some of it",
}


class Postgres(ServerTable):
    """The address of one table or view. Raises InvalidInput, and never shows what it was given."""

    def __init__(self, address: str) -> None:
        parts, given = _split_postgres_address(address)
        if ":" in parts.netloc.rpartition("@")[0] or given.keys() & {"password", "sslpassword", "passfile"}:
            raise InvalidInput(
                f"an address with a password is refused, for it would be kept and shown: write {_FORM}, and put the "
                "password into the client's own files (.pgpass, a service file) or PGPASSWORD"
            )
        table = _TABLE.fullmatch(given.get("table", [""])[-1])
        known = given.keys() <= _SETTINGS | {"table"} and all(len(v) == 1 for v in given.values())
        path = parts.path.removeprefix("/")
        whole = _SERVER.fullmatch(parts.netloc) and not re.search(r"[/@:]", path) and not parts.fragment
        if table is None or not known or not whole or "\0" in unquote(address):
            raise InvalidInput(
                f"the address is not of the form {_FORM}; besides table it may state {', '.join(sorted(_SETTINGS))}. "
                'Names are taken as they are stored; one with a dot stands in double quotes: table="a.b"."c"'
            )
        self.schema, self.name = (_unquote_name(part) for part in (table[1] or "public", table[2]))
        database = unquote(path)
        self.table = database, self.schema, self.name
        self.label = f"table {self.name!r} in schema {self.schema!r} of the Postgres database {database!r}"
        rest = {key: value for key, (value,) in given.items() if key != "table"}
        self.uri = f"postgresql://{parts.netloc}/{path}?{urlencode(rest | {'fallback_application_name': 'sfumato'})}"

    def read(self) -> Snapshot:
        """A snapshot of the table. Raises MissingExtra or SourceError."""
        return Snapshot(self)

    def __repr__(self) -> str:
        return f"<{self.label}>"


def _split_postgres_address(address: str) -> tuple[SplitResult, dict[str, list[str]]]:
    """An address and what it states after the question mark; what is none, without what an exception quotes of it."""
    with suppress(ValueError):
        parts = urlsplit(address)
        return parts, parse_qs(parts.query, keep_blank_values=True, strict_parsing=True)
    return urlsplit(""), {}


def _unquote_name(part: str) -> str:
    return part[1:-1].replace('""', '"') if part.startswith('"') else part


class Snapshot:
    """A table as it stands in one read-only transaction, which no change of rows or types reaches."""

    def __init__(self, of: Postgres) -> None:
        self._of = of
        self._sql = f"{sql_identifier(of.schema)}.{sql_identifier(of.name)}"
        self._open: list[Any] = []
        weakref.finalize(self, _close_connections, self._open)
        self._manager, self._driver, self._arrow = _import_drivers()
        try:
            self._connect()
            self._begin()
        except BaseException:
            self.close()
            raise

    def columns(self) -> Mapping[str, Field]:
        """Every column, by the catalogue of the transaction."""
        return {
            row["name"]: _postgres_field(row["name"], row["kind"]) for row in self._rows(_COLUMNS.format(self._oid))
        }

    def batches(self, asked: Sequence[str]) -> Any:
        """The rows as a stream that raises at its end where the server has counted another number of them."""
        rows = self._count()
        if rows > MAX_ROWS:
            raise SourceError(f"{self._of.label} has more than {MAX_ROWS:,} rows")
        reader = self._asked(f"SELECT {', '.join(f'{sql} AS c{i}' for i, sql in enumerate(asked))} FROM {self._sql}")
        return self._arrow.RecordBatchReader.from_batches(reader.schema, self._all(reader, rows))

    def close(self) -> None:
        """End the transaction."""
        _close_connections(self._open)

    def _count(self) -> int:
        (found,) = self._rows(f"SELECT count(*) AS n FROM {self._sql}")
        return found["n"]

    def _connect(self) -> None:
        database = self._told(lambda: self._driver.connect(self._of.uri))
        self._open.append(database)
        self._open.append(self._told(lambda: self._manager.AdbcConnection(database)))

    def _begin(self) -> None:
        """Everything in one transaction: behind a pool of connections, the next may be another."""
        self._run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        for setting in _SETUP:
            self._run(f"SET LOCAL {setting}")
        # Before the first look, which fixes the snapshot: a table rewritten between the two would seem to be empty.
        self._run("SAVEPOINT unlocked")
        try:
            self._run(f"LOCK TABLE {self._sql} IN ACCESS SHARE MODE")
        except SourceError:  # a materialized view, a foreign table, or columns of it that this user may read
            self._run("ROLLBACK TO unlocked")
        (state,) = self._rows(_STATE)
        version, encoding = state.pop("version"), state.pop("encoding")
        if version < _OLDEST or encoding not in _ENCODINGS or state != _HOLDS:
            raise SourceError(
                f"{self._of.label} is on a server of version {version // 10_000} with the encoding {encoding} that "
                f"{'holds a' if state == _HOLDS else 'holds no'} read-only snapshot; read are snapshots of version "
                f"{_OLDEST // 10_000} and newer with {', '.join(_ENCODINGS)}"
            )
        self.utf8 = _ENCODINGS[encoding] == "UTF8"
        self._run(f"SET LOCAL client_encoding = {sql_literal(_ENCODINGS[encoding])}")
        found = self._rows(_RELATION.format(sql_literal(self._of.schema), sql_literal(self._of.name)))
        if not found or found[0]["kind"] not in "rpvmf":
            raise SourceError(f"there is no {self._of.label} (names are matched exactly, capitals included)")
        self._oid = found[0]["oid"]

    def _statement(self, sql: str) -> Any:
        statement = self._manager.AdbcStatement(self._open[1])
        statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(_BATCH)})
        statement.set_sql_query(sql)
        return statement

    def _run(self, sql: str) -> None:
        statement = self._statement(sql)
        try:
            self._told(statement.execute_update)
        finally:
            statement.close()  # a connection is not closed over one that is open

    def _asked(self, sql: str) -> Any:
        """What a query gives, as a stream of batches."""
        statement = self._statement(sql)
        self._open.append(statement)
        handle, _ = self._told(statement.execute_query)
        return self._told(lambda: self._arrow.RecordBatchReader.from_stream(handle))

    def _rows(self, sql: str) -> list[dict[str, Any]]:
        reader = self._asked(sql)
        rows = self._told(lambda: reader.read_all().to_pylist())
        self._open.pop().close()
        return rows

    def _all(self, reader: Any, expected: int) -> Iterator[Any]:
        rows = 0
        try:
            for batch in reader:
                rows += batch.num_rows
                yield batch
        finally:
            self.close()
            reader.close()
        # Cut short, it would hold some records because of the others; with rows twice, each of them would weigh double.
        if rows != expected:
            raise SourceError(f"{self._of.label} sent another number of rows than it has")

    def _told(self, action: Callable[[], T]) -> T:
        """Run an action; what it raises is replaced, and not even kept as a context."""
        try:
            return action()
        except Exception as error:
            state = str(getattr(error, "sqlstate", None))
        raise SourceError(f"{self._of.label} cannot be read: {_STATES.get(state, 'its server refused or broke off')}")


def _close_connections(opened: list[Any]) -> None:
    while opened:
        with suppress(Exception):  # it may be cut, and its text may quote rows
            opened.pop().close()


def _import_drivers() -> Iterator[Any]:
    for name in ("adbc_driver_manager", "adbc_driver_postgresql", "pyarrow"):
        try:
            yield import_module(name)
        except ImportError:
            raise MissingExtra(
                f"{name} is not installed, and Postgres servers are read with it; {how_to_install('postgres')}"
            ) from None


def _postgres_field(name: str, kind: str) -> Field:
    """How a column of a type is asked for: an expression that has a value for every row, and no value for two."""
    column = sql_identifier(name)
    if kind in _NATIVE:
        return Field(column, _NATIVE[kind], _NATIVE[kind])
    text = f"{column}::text"
    if kind in _TEXTS:
        # longer ones are read of no file: they are no code, and one of them would refuse all records
        short = f"CASE WHEN octet_length({text}) > {MAX_RECORD} THEN left({text}, {MAX_RECORD // 4}) ELSE {text} END"
        return Field(short, "VARCHAR", "VARCHAR")
    if kind == "numeric":
        return Field(f"nullif(trim_scale({column}), 'NaN')::text", "VARCHAR", "VARCHAR", number=True)
    if kind in ("date", "timestamp"):
        return Field(f"replace({text}, ' BC', ' (BC)')", "VARCHAR", kind.upper())
    if kind == "timestamptz":  # at UTC, as is set: what is before our era is no day that counts, and can be any text
        return Field(text, "VARCHAR", "TIMESTAMP WITH TIME ZONE")
    return Field(text, "VARCHAR", "UUID") if kind == "uuid" else Field("", "", kind)


_STATE = (
    "SELECT current_setting('transaction_isolation') AS level, current_setting('transaction_read_only') AS reading, "
    "current_setting('row_security') AS hidden, current_setting('server_version_num')::int4 AS version, "
    "current_setting('server_encoding') AS encoding"
)
_HOLDS = {"level": "repeatable read", "reading": "on", "hidden": "off"}
# Compared as texts: a name that is too long for a name would be cut to another.
_RELATION = (
    "SELECT c.oid::int8 AS oid, c.relkind::text AS kind "
    "FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
    "WHERE n.nspname::text = {} AND c.relname::text = {}"
)
# A domain is what it is made of; a type of somebody else's is not what it is called.
_COLUMNS = (
    "WITH RECURSIVE kinds AS (SELECT attnum, attname, atttypid AS type FROM pg_catalog.pg_attribute "
    "WHERE attrelid = {} AND attnum > 0 AND NOT attisdropped UNION ALL SELECT attnum, attname, t.typbasetype "
    "FROM kinds JOIN pg_catalog.pg_type t ON t.oid = type AND t.typtype = 'd') "
    "SELECT attname::text AS name, CASE WHEN t.typtype = 'e' THEN 'enum' "
    "WHEN n.nspname = 'pg_catalog' OR t.typname = 'citext' THEN t.typname::text "
    "ELSE 'a type of its own' END AS kind "
    "FROM kinds JOIN pg_catalog.pg_type t ON t.oid = type JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace "
    "WHERE t.typtype <> 'd' ORDER BY attnum"
)
