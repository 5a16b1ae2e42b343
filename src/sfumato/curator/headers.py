"""The names of a table's columns, for a specification that a person then fills in. No record is read out."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from sfumato.curator.readers import attempt, open_table
from sfumato.errors import SourceError

__all__ = ["column_names"]

_DELIMITERS = (",", ";", "\t", "|")
_HEADER_CHARACTERS = 2**20


def column_names(source: Any) -> tuple[str, ...]:
    """Names of the columns of a source, in order: of JSON, the fields of the first record.

    They are taken for public. A text file must begin with a line of names: without one its first record
    would be taken for names, so what comes back is for the custodian to read over. Raises InvalidInput
    for what is no source, SourceError for a table that cannot be opened.
    """
    opened = open_table(source, ())
    try:
        names = list(opened.columns)
        suffix = Path(source).suffix if isinstance(source, (str, Path)) else ""
        if suffix == ".csv":
            names = _of_text(Path(source))
        elif not names:
            message = f"{opened.label} holds no record whose fields could be named"
            found = attempt(message, lambda: opened.session.rows(f"SELECT json_keys(json) FROM {opened.sql} LIMIT 1"))
            names = list(found[0][0]) if found else []
        if not names:
            raise SourceError(f"{opened.label} has no columns to name")
        return tuple(names)
    finally:
        opened.session.close()


def _of_text(path: Path) -> list[str]:
    """The first line split at the delimiter that gives the most columns; the file was checked to be UTF-8."""
    with path.open(encoding="utf-8-sig", newline="") as handle:
        beginning = handle.read(_HEADER_CHARACTERS)
    found: list[list[str]] = []
    for delimiter in _DELIMITERS:
        try:
            found.append(next(csv.reader(io.StringIO(beginning, newline=""), delimiter=delimiter, strict=True), []))
        except csv.Error:
            continue
    return max(found, key=len, default=[])
