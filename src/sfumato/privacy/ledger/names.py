"""Names that a ledger keeps, of releases and tables, and hashes it is given: refused before a line is written."""

from __future__ import annotations

import re
import unicodedata

from sfumato.errors import InvalidInput

__all__ = ["check_hash", "check_name", "read_table"]

_HASH = re.compile(r"[0-9A-Za-z:_.+=-]{1,128}", re.ASCII)
_MAX_NAME = 128
_FILES = (
    ".csv",
    ".tsv",
    ".txt",
    ".parquet",
    ".json",
    ".ndjson",
    ".jsonl",
    ".arrow",
    ".feather",
    ".db",
    ".duckdb",
    ".gz",
)


def check_name(name: str) -> None:
    """Names end up in paths and on screens: printable, of one spelling, and without a way out of a folder."""
    if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME or not name.isprintable():
        raise InvalidInput(f"a release's name is 1 to {_MAX_NAME} printable characters; got {str(name)[:40]!r}")
    if name != name.strip() or name.startswith(".") or "/" in name or "\\" in name:
        raise InvalidInput(f"a release's name has no slash, and no space or dot at its ends; got {name!r}")
    if unicodedata.normalize("NFC", name) != name:
        raise InvalidInput(f"a release's name must be in Unicode form NFC; got {name!r}")


def read_table(table: str | None) -> str | None:
    """A public name of a table: a label that stays when files move. Raises InvalidInput."""
    if table is None:
        return None
    if not isinstance(table, str) or not 0 < len(table) <= _MAX_NAME or not table.isprintable():
        raise InvalidInput(
            f"table is the public name of a table, 1 to {_MAX_NAME} printable characters, such as 'people'"
        )
    table = "".join((table,))  # a text of a class that derives from str may compare as it likes
    if table != table.strip() or any(part in table for part in "/\\") or table.lower().endswith(_FILES):
        raise InvalidInput(
            f"table={table!r} looks like a file; it is a public name that stays when files move, such as 'people'"
        )
    if unicodedata.normalize("NFC", table) != table:
        raise InvalidInput(f"the name of a table must be in Unicode form NFC; got {table!r}")
    return table


def check_hash(value: str, what: str) -> None:
    """A hash of the caller, kept as it is: short text that is safe on a line."""
    if not isinstance(value, str) or not _HASH.fullmatch(value):
        raise InvalidInput(f"{what} is 1 to 128 letters, digits or any of :_.+=-; got {str(value)[:40]!r}")
