"""What kind of chain a file says it is, and files of format 1 written in today's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sfumato.errors import LedgerError
from sfumato.privacy.chain import FileChain, Format, make
from sfumato.privacy.files import FileStore

__all__ = ["says_it_is", "upgrade"]


def says_it_is(path: Path, form: Format) -> bool:
    """Whether a file says of itself that it is of a kind; nothing else is checked."""
    try:
        # by SQLite: to open and close it would give up the locks that this process has on it
        with FileStore(path, form.words).transaction(write=False) as connection:
            return connection.execute("PRAGMA application_id").fetchone()[0] == form.application_id
    except LedgerError:
        return False


def upgrade(chain: FileChain[Any]) -> bool:
    """Write a file of format 1 in this format, with the same hashes, in one transaction; False if it was done.

    Raises LedgerCorrupted for one that was changed.
    """
    with chain.file.transaction(write=True) as connection:
        found = chain.catch_up(connection, pages=True)
        older = chain.form.older
        if not found.old or older is None:
            return False
        rows = older.read(connection)
        for name, text in older.schema.items():
            if text.startswith("CREATE TABLE"):
                connection.execute(f"DROP TABLE {name}")  # and its triggers
        make(connection, chain.form, rows)
    return True
