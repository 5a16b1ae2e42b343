"""The file under a ledger: its tables, and what of them is in memory for accounts that end with the process."""

from __future__ import annotations

import os
import sqlite3
import weakref
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from sfumato.errors import LedgerCorrupted, LedgerError
from sfumato.privacy.files import Format, Row, check_whole, make_tables, refusal, shared

__all__ = ["ENTRY_FIELDS", "FORMAT", "MemoryStore", "Row", "Store", "append", "begin", "read_tables"]

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


# The whole schema by name, compared word for word at every reading. REPLACE would delete without firing a
# delete trigger, so inserts are refused unless they extend the table by one.
SCHEMA: dict[str, str] = {
    "genesis": f"CREATE TABLE genesis (one INTEGER PRIMARY KEY, {_columns((*GENESIS_FIELDS, 'hash'))}) STRICT",
    "entries": f"CREATE TABLE entries (sequence INTEGER PRIMARY KEY, {_columns(ENTRY_FIELDS[1:])}) STRICT",
    **dict(refusal("ledger", table, action) for table in ("genesis", "entries") for action in ("UPDATE", "DELETE")),
    **dict(
        (
            refusal("ledger", "genesis", "INSERT", "WHEN NEW.one IS NOT 1 OR EXISTS (SELECT 1 FROM genesis) "),
            refusal(
                "ledger",
                "entries",
                "INSERT",
                "WHEN NEW.sequence IS NOT (SELECT coalesce(max(sequence), 0) + 1 FROM entries) ",
            ),
        )
    ),
}

_SELECT_GENESIS = f"SELECT {', '.join(GENESIS_FIELDS)}, hash FROM genesis"
_SELECT_ENTRIES = f"SELECT {', '.join(ENTRY_FIELDS)} FROM entries ORDER BY sequence"
_INSERT_GENESIS = f"INSERT INTO genesis VALUES (1, {', '.join('?' * (len(GENESIS_FIELDS) + 1))})"
_INSERT_ENTRY = f"INSERT INTO entries VALUES ({', '.join('?' * len(ENTRY_FIELDS))})"

FORMAT = Format(
    noun="ledger",
    application_id=0x53464D54,
    version=1,
    schema=SCHEMA,
    mode=0o644,
    make="make one with Ledger.create",
    undone="nothing was spent",
    advice="nothing was released: make room or access, then look at the ledger's unreleased entries",
)


class Store(Protocol):
    """Where the tables are. A transaction commits at the end of its block and is undone by any exception."""

    def transaction(self, write: bool) -> AbstractContextManager[sqlite3.Connection]: ...


class MemoryStore:
    """Tables in this process alone, for an account that ends with it."""

    def __init__(self, genesis: Row) -> None:
        self._process = os.getpid()
        self._connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        weakref.finalize(self, self._connection.close)  # from Python 3.13 on what is left open is warned of
        with self.transaction(write=True) as connection:
            make_tables(connection, FORMAT)
            begin(connection, genesis)

    @contextmanager
    def transaction(self, write: bool) -> Generator[sqlite3.Connection]:
        if os.getpid() != self._process:
            raise LedgerError("an in-memory ledger belongs to the process that made it; share a budget through a file")
        with shared(self._connection, FORMAT, write) as connection:
            yield connection


def begin(connection: sqlite3.Connection, genesis: Row) -> None:
    """Write the first row into new tables."""
    connection.execute(_INSERT_GENESIS, genesis)


def append(connection: sqlite3.Connection, entry: Row) -> None:
    """Add one row of `ENTRY_FIELDS`, which must continue the sequence."""
    connection.execute(_INSERT_ENTRY, entry)


def read_tables(connection: sqlite3.Connection) -> tuple[Row, list[Row]]:
    """The first row and all entries, after checking that the file is a whole and untouched ledger of this version.

    Raises LedgerError for a foreign or newer file and LedgerCorrupted for a damaged one.
    """
    check_whole(connection, FORMAT)
    genesis = connection.execute(_SELECT_GENESIS).fetchall()
    if len(genesis) != 1:
        raise LedgerCorrupted("the ledger's first row is missing; restore the file")
    return genesis[0], connection.execute(_SELECT_ENTRIES).fetchall()
