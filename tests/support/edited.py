"""Files of lines as someone with a database tool would change them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from sfumato.privacy.chain import SCHEMA

__all__ = ["edited", "put"]


def edited(store: Path, *statements: str, breaks: int) -> None:
    """Change the file, whose lines have so many breaks that part them, and put the triggers back."""

    def other(body: bytes, part: int, text: str) -> bytes:
        parts = body.split(b"\n", breaks)
        parts[part] = text.encode()
        return b"\n".join(parts)

    with closing(sqlite3.connect(store, isolation_level=None)) as connection:
        connection.create_function("other", 3, other)
        for name in SCHEMA:
            connection.execute(f"DROP TRIGGER IF EXISTS {name}")
        for statement in statements:
            connection.execute(statement)
        for sql in SCHEMA.values():
            if sql.startswith("CREATE TRIGGER"):
                connection.execute(sql)


def put(line: int, part: int, text: str) -> str:
    """Other bytes for one part of a line, of those that a line break follows, or the last."""
    return f"UPDATE lines SET body = other(body, {part}, '{text}') WHERE sequence = {line}"
