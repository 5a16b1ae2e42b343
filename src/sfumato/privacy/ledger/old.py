"""Ledgers of 0.1 (format 1), read as the chain that they are: their hashes are those of the same lines today."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfumato.privacy.chain import Older, Row

if TYPE_CHECKING:
    from sqlite3 import Connection

__all__ = ["OLD"]

_GENESIS = ("ledger_id", "budget", "currency", "total", "created")
_ENTRY = ("kind", "name", "plan_hash", "event", "price", "cumulative", "time", "spend", "result_hash")


def _columns(names: tuple[str, ...]) -> str:
    return ", ".join(f"{name} {'INTEGER' if name == 'spend' else 'TEXT'} NOT NULL" for name in names)


def _refusal(table: str, action: str, condition: str = "") -> tuple[str, str]:
    name = f"{table}_{action.lower()}"
    body = f"SELECT RAISE(ABORT, 'a ledger only grows: {action} of {table} is refused')"
    return name, f"CREATE TRIGGER {name} BEFORE {action} ON {table} {condition}BEGIN {body}; END"


_NEXT = "WHEN NEW.sequence IS NOT (SELECT coalesce(max(sequence), 0) + 1 FROM entries) "
_SCHEMA = {
    "genesis": f"CREATE TABLE genesis (one INTEGER PRIMARY KEY, {_columns((*_GENESIS, 'hash'))}) STRICT",
    "entries": f"CREATE TABLE entries (sequence INTEGER PRIMARY KEY, {_columns((*_ENTRY, 'previous', 'hash'))}) STRICT",
    **dict(_refusal(table, action) for table in ("genesis", "entries") for action in ("UPDATE", "DELETE")),
    **dict((_refusal("genesis", "INSERT", "WHEN NEW.one IS NOT 1 OR EXISTS (SELECT 1 FROM genesis) "),)),
    **dict((_refusal("entries", "INSERT", _NEXT),)),
}
_SELECT_GENESIS = f"SELECT one - 1, {', '.join(_GENESIS)}, hash FROM genesis"
_SELECT_ENTRIES = f"SELECT sequence, sequence, {', '.join(_ENTRY)}, previous, hash FROM entries ORDER BY sequence"


def _read(connection: Connection) -> list[Row]:
    """The rows of a chain. What has another type than 0.1 gave it comes without a body, and is refused."""
    rows: list[Row] = [(n, _body(facts), digest) for n, *facts, digest in connection.execute(_SELECT_GENESIS)]
    for number, *facts, previous, digest in connection.execute(_SELECT_ENTRIES):
        rows.append((number, _body(facts) if rows and previous == rows[-1][2] else None, digest))
    return rows


def _body(facts: list[object]) -> bytes | None:
    """The facts of a line as they were hashed, numbers where numbers belong and texts elsewhere."""
    numbers = {0, 8} if len(facts) == len(_ENTRY) + 1 else set[int]()
    right = all(type(fact) is (int if i in numbers else str) for i, fact in enumerate(facts))
    return "\n".join(map(str, facts)).encode() if right else None


OLD = Older(_SCHEMA, _read)
