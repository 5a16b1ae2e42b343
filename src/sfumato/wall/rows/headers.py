"""The names of a table's columns, for a specification that a person then fills in. No record is read out."""

from __future__ import annotations

import csv
import io
import json
import os
import stat
from pathlib import Path
from typing import Any, cast

from sfumato.errors import SourceError
from sfumato.wall.rows.readers import attempt, open_table

__all__ = ["column_names"]

_DELIMITERS = (",", ";", "\t", "|")
_BEGINNING = 2**20  # names of ten thousand columns, or the first object


def column_names(source: Any) -> tuple[str, ...]:
    """Names of the columns of a source, in order: of JSON, the fields of the first record.

    They are taken for public. A text file must begin with a line of names: without one its first record
    would be taken for names, so what comes back is for the custodian to read over. Raises InvalidInput
    for what is no source, SourceError for a table that cannot be opened.
    """
    path = Path(source) if isinstance(source, (str, Path)) else Path()
    kind = path.suffix.lower()
    if kind in (".csv", ".json", ".ndjson", ".jsonl") and "://" not in str(source):
        text = attempt(f"{str(path)!r} cannot be found, or is no text file in UTF-8", lambda: _beginning(path))
        names = _of_csv(text) if kind == ".csv" else _of_json(text)
        label = path.name
    else:
        opened = open_table(source, ())
        opened.session.close()
        names, label = list(opened.columns), opened.label
    if not names:
        raise SourceError(f"{label} has no column that could be named")
    return tuple(names)


def _beginning(path: Path) -> str:
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise SourceError(f"{path.name} is not a regular file; folders, pipes and devices are not read")
    with path.open(encoding="utf-8-sig", newline="") as handle:
        return handle.read(_BEGINNING)


def _of_csv(text: str) -> list[str]:
    """The first line, split at the delimiter that gives the most columns."""
    found: list[list[str]] = []
    for delimiter in _DELIMITERS:
        try:
            found.append(next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True), []))
        except csv.Error:
            continue
    return max(found, key=len, default=[])


def _of_json(text: str) -> list[str]:
    """The fields of the first object, in an array or by itself."""
    try:
        record, _ = json.JSONDecoder().raw_decode(text.lstrip().removeprefix("[").lstrip())
    except (ValueError, RecursionError):
        return []
    return list(cast("dict[str, Any]", record)) if isinstance(record, dict) else []
