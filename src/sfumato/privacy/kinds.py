"""What kind of chain a file says it is."""

from __future__ import annotations

from pathlib import Path

from sfumato.errors import LedgerError
from sfumato.privacy.chain import Format
from sfumato.privacy.files import FileStore

__all__ = ["is_file_of_kind"]


def is_file_of_kind(path: Path, form: Format) -> bool:
    """Whether a file says of itself that it is of a kind; nothing else is checked."""
    try:
        # by SQLite: to open and close it would give up the locks that this process has on it
        with FileStore(path, form.words).transaction(write=False) as connection:
            return connection.execute("PRAGMA application_id").fetchone()[0] == form.application_id
    except LedgerError:
        return False
