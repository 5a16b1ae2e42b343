"""The file under a ledger: an SQLite database that only grows, opened anew for every operation.

A connection lives as long as one transaction. So a fork inherits none, threads share none, and no open
file descriptor of this process is ever closed under another transaction's lock.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Generator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import Protocol

from sfumato.errors import LedgerCorrupted, LedgerError

__all__ = ["ENTRY_FIELDS", "FileStore", "MemoryStore", "Row", "Store", "append", "create_tables", "read_tables"]

Row = tuple[object, ...]

APPLICATION_ID = 0x53464D54
VERSION = 1
BUSY_SECONDS = 30
_OLDEST = (3, 37, 0)

# Rollback journal, not WAL: the SQLite linked by many Pythons can lose WAL commits after a crash.
_DURABLE = ("PRAGMA synchronous=EXTRA", "PRAGMA fullfsync=ON")
_GUARDED = ("PRAGMA trusted_schema=OFF", "PRAGMA cell_size_check=ON")

GENESIS_FIELDS = ("ledger_id", "budget", "currency", "total", "created")
ENTRY_FIELDS = (
    "sequence",
    "kind",
    "name",
    "plan_hash",
    "event",
    "price",
    "cumulative",
    "time",
    "spend",
    "result_hash",
    "previous",
    "hash",
)


def _columns(names: tuple[str, ...]) -> str:
    return ", ".join(f"{name} {'INTEGER' if name == 'spend' else 'TEXT'} NOT NULL" for name in names)


def _refusal(table: str, action: str, condition: str = "") -> tuple[str, str]:
    name = f"{table}_{action.lower()}"
    body = f"SELECT RAISE(ABORT, 'a ledger only grows: {action} of {table} is refused')"
    return name, f"CREATE TRIGGER {name} BEFORE {action} ON {table} {condition}BEGIN {body}; END"


# The whole schema by name, compared word for word at every reading. REPLACE would delete without firing a
# delete trigger, so inserts are refused unless they extend the table by one.
SCHEMA: dict[str, str] = {
    "genesis": f"CREATE TABLE genesis (one INTEGER PRIMARY KEY, {_columns((*GENESIS_FIELDS, 'hash'))}) STRICT",
    "entries": f"CREATE TABLE entries (sequence INTEGER PRIMARY KEY, {_columns(ENTRY_FIELDS[1:])}) STRICT",
    **dict(_refusal(table, action) for table in ("genesis", "entries") for action in ("UPDATE", "DELETE")),
    **dict(
        (
            _refusal("genesis", "INSERT", "WHEN NEW.one IS NOT 1 OR EXISTS (SELECT 1 FROM genesis) "),
            _refusal(
                "entries", "INSERT", "WHEN NEW.sequence IS NOT (SELECT coalesce(max(sequence), 0) + 1 FROM entries) "
            ),
        )
    ),
}

_TOUCH = "SELECT count(*) FROM sqlite_schema"
_SELECT_GENESIS = f"SELECT {', '.join(GENESIS_FIELDS)}, hash FROM genesis"
_SELECT_ENTRIES = f"SELECT {', '.join(ENTRY_FIELDS)} FROM entries ORDER BY sequence"
_INSERT_GENESIS = f"INSERT INTO genesis VALUES (1, {', '.join('?' * (len(GENESIS_FIELDS) + 1))})"
_INSERT_ENTRY = f"INSERT INTO entries VALUES ({', '.join('?' * len(ENTRY_FIELDS))})"

# Held during every transaction, and by a fork while it happens: no child is born inside a transaction.
_LOCK = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)


class Store(Protocol):
    """Where the tables are. A transaction commits at the end of its block and is undone by any exception."""

    @property
    def durable(self) -> bool: ...

    def transaction(self, write: bool) -> AbstractContextManager[sqlite3.Connection]: ...


class FileStore:
    """One existing file. Raises LedgerError where it cannot be one."""

    durable = True

    def __init__(self, path: Path) -> None:
        _require_sqlite()
        try:
            self.path = path.resolve(strict=True)
        except (OSError, RuntimeError, ValueError) as error:
            raise LedgerError(f"{path}: no ledger is there ({_reason(error)}); make one with Ledger.create") from error
        if not self.path.is_file():
            raise LedgerError(f"{path} is a folder or a device; a ledger is a file")

    @classmethod
    def create(cls, path: Path, genesis: Row) -> FileStore:
        """Make the file, which must not exist, with its tables and first row in one transaction."""
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644))
        except FileExistsError as error:
            raise LedgerError(f"{path} exists; open it with Ledger(path), or choose another path") from error
        except (OSError, ValueError) as error:
            raise LedgerError(f"{path} cannot be made ({_reason(error)}); choose a folder you can write to") from error
        store = cls(path)
        try:
            with store.transaction(write=True) as connection:
                create_tables(connection, genesis)
            folder = os.open(store.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except BaseException:
            # The file is this call's own, and nobody can have spent from a ledger that was never made.
            for leftover in (store.path, store.path.with_name(store.path.name + "-journal")):
                leftover.unlink(missing_ok=True)
            raise
        return store

    @contextmanager
    def transaction(self, write: bool) -> Generator[sqlite3.Connection]:
        with _LOCK, _translated(self.path), closing(self._connect(write)) as connection, _run(connection, write):
            yield connection

    def _connect(self, write: bool) -> sqlite3.Connection:
        if write and self.path.stat().st_nlink > 1:
            raise LedgerError(f"{self.path} has several names (hard links), so a crash could not be undone; keep one")
        connection = self._open("rw" if write else "ro")
        try:
            connection.execute(_TOUCH)
        except sqlite3.Error as error:
            connection.close()
            if write or getattr(error, "sqlite_errorname", "") != "SQLITE_READONLY_ROLLBACK":
                raise
            # A crash left an unfinished transaction. Undoing it is the one write that reading may cause.
            with closing(self._open("rw")) as recovery:
                recovery.execute(_TOUCH)
            return self._open("ro")
        except BaseException:
            connection.close()
            raise
        return connection

    def _open(self, mode: str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"{self.path.as_uri()}?mode={mode}", uri=True, timeout=BUSY_SECONDS, isolation_level=None
        )
        for pragma in _GUARDED if mode == "ro" else (*_GUARDED, *_DURABLE):
            connection.execute(pragma)
        return connection


class MemoryStore:
    """Tables in this process alone, for an account that ends with it."""

    durable = False

    def __init__(self, genesis: Row) -> None:
        _require_sqlite()
        self._process = os.getpid()
        self._connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        with self.transaction(write=True) as connection:
            create_tables(connection, genesis)

    @contextmanager
    def transaction(self, write: bool) -> Generator[sqlite3.Connection]:
        if os.getpid() != self._process:
            raise LedgerError("an in-memory ledger belongs to the process that made it; share a budget through a file")
        with _LOCK, _translated(Path("in memory")), _run(self._connection, write):
            yield self._connection


def _require_sqlite() -> None:
    if sqlite3.sqlite_version_info < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        raise LedgerError(f"a ledger needs SQLite {oldest} or newer; this Python links {sqlite3.sqlite_version}")


@contextmanager
def _run(connection: sqlite3.Connection, write: bool) -> Generator[None]:
    """One transaction: everything is read under the lock that the write needs."""
    connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")


def create_tables(connection: sqlite3.Connection, genesis: Row) -> None:
    """Write the schema and the first row into an empty database."""
    connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version={VERSION}")
    for statement in SCHEMA.values():
        connection.execute(statement)
    connection.execute(_INSERT_GENESIS, genesis)


def append(connection: sqlite3.Connection, entry: Row) -> None:
    """Add one row of `ENTRY_FIELDS`, which must continue the sequence."""
    connection.execute(_INSERT_ENTRY, entry)


def read_tables(connection: sqlite3.Connection) -> tuple[Row, list[Row]]:
    """The first row and all entries, after checking that the file is a whole and untouched ledger of this version.

    Raises LedgerError for a foreign or newer file and LedgerCorrupted for a damaged one.
    """

    def pragma(name: str) -> object:
        return connection.execute(f"PRAGMA {name}").fetchone()[0]

    if pragma("application_id") != APPLICATION_ID:
        raise LedgerError("this file is not a sfumato ledger, or its header is damaged; restore it or check the path")
    if pragma("user_version") != VERSION:
        raise LedgerError(
            f"this ledger has format {pragma('user_version')} and this version of sfumato reads format {VERSION}; "
            "upgrade sfumato, or restore the file if it was damaged"
        )
    if pragma("encoding") != "UTF-8" or pragma("journal_mode") not in ("delete", "memory"):
        raise LedgerCorrupted("the header of the ledger was changed; restore the file")
    if dict(connection.execute("SELECT name, sql FROM sqlite_schema").fetchall()) != SCHEMA:
        raise LedgerCorrupted("the tables or triggers of the ledger were changed; restore the file")
    problems = connection.execute("PRAGMA integrity_check(1)").fetchall()
    if problems != [("ok",)]:
        raise LedgerCorrupted(f"the ledger's file is damaged ({problems[0][0]}); restore it")
    genesis = connection.execute(_SELECT_GENESIS).fetchall()
    if len(genesis) != 1:
        raise LedgerCorrupted("the ledger's first row is missing; restore the file")
    return genesis[0], connection.execute(_SELECT_ENTRIES).fetchall()


_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_ENVIRONMENT = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_IOERR: "the disk is full or failing",
    sqlite3.SQLITE_READONLY: "the file or its folder is read-only, and a debit or the repair after a crash must write",
    sqlite3.SQLITE_CANTOPEN: "the file or its folder cannot be opened",
    sqlite3.SQLITE_PERM: "access is denied",
    sqlite3.SQLITE_NOMEM: "memory is exhausted",
}


@contextmanager
def _translated(path: Path) -> Generator[None]:
    """Turn what SQLite raises into ledger errors that say what to do."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in _BUSY:
            text = f"{path}: another process kept the ledger busy for {BUSY_SECONDS} s; nothing was spent, try again"
            raise LedgerError(text) from error
        if code in _ENVIRONMENT:
            raise LedgerError(
                f"{path}: {_ENVIRONMENT[code]} ({error}); nothing was released: make room or access, then look at "
                "the ledger's unreleased entries"
            ) from error
        raise LedgerCorrupted(f"{path} is damaged or not a ledger ({error}); restore it from a copy") from error
    except UnicodeDecodeError as error:
        # SQLite quotes the damage in a message that is no text either.
        raise LedgerCorrupted(f"{path} is damaged or not a ledger; restore it from a copy") from error
    except OSError as error:
        raise LedgerError(f"{path}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
