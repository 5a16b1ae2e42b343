"""The names of a table's columns, for a specification that a person then fills in. No record is read out."""

from __future__ import annotations

import json
import os
import re
import stat
import zipfile
from pathlib import Path
from typing import Any, cast

from sfumato.errors import SourceError
from sfumato.wall.rows import csvfile
from sfumato.wall.rows.csvfile import OtherEncoding
from sfumato.wall.rows.kinds import delimiter_of, kind_of
from sfumato.wall.rows.readers import open_table
from sfumato.wall.rows.session import attempt
from sfumato.wall.rows.written import source_of

__all__ = ["OtherEncoding", "column_names", "doubt"]

_BEGINNING = 2**20  # the first object
_PAGE = re.compile(r"/?xl/worksheets/[^/]+\.xml")


def column_names(source: Any) -> tuple[str, ...]:
    """Names of the columns of a source, in order: of JSON, the fields of the first record.

    They are taken for public. A text file must begin with a line of names: without one its first record
    would be taken for names, so what comes back is for the custodian to read over. Raises InvalidInput
    for what is no source, SourceError for a table that cannot be opened.
    """
    given = source_of(source)
    path = Path(given.table) if isinstance(given.table, (str, Path)) else Path()
    kind = "" if "://" in str(given.table) else kind_of(path)
    if kind.removesuffix(".gz") in (".csv", ".tsv"):
        _check_regular(path)
        message = f"{str(path)!r} cannot be read"
        mark = delimiter_of(str(path), given)
        found = attempt(message, lambda: csvfile.layout(str(path), (), given.encoding, mark))
        names, label = [csvfile.public_name(n, path.name, given.encoding) for n in found.names], path.name
        names = [] if names == [""] else names
    elif kind in (".json", ".ndjson", ".jsonl"):
        _check_regular(path)
        text = attempt(f"{str(path)!r} cannot be read, or is no text file in UTF-8", lambda: _beginning(path))
        names, label = _of_json(text), path.name
    else:
        opened = open_table(source, ())
        opened.session.close()
        names, label = list(opened.columns), opened.label
    if not names:
        raise SourceError(f"{label} has no column that could be named")
    return tuple(names)


def doubt(source: Any) -> str:
    """What nobody declared of a table, and its beginning gives reason to: "decimal", "sheet", or "" for neither.

    Names between semicolons stand where numbers have decimal commas; a workbook with several sheets is read at its
    first. Both can be seen without a record. For tables whose names were read.
    """
    given = source_of(source)
    if not isinstance(given.table, (str, Path)) or "://" in str(given.table):
        return ""
    path, kind = str(given.table), kind_of(given.table)
    if kind.removesuffix(".gz") == ".csv" and given.decimal == "." and not given.thousands:
        found = csvfile.layout(path, (), given.encoding, delimiter_of(path, given))
        return "decimal" if found.delimiter == b";" else ""
    if kind == ".xlsx" and given.sheet is None:
        with zipfile.ZipFile(path) as packed:
            pages = [name for name in packed.namelist() if _PAGE.fullmatch(name)]
        return "sheet" if len(pages) > 1 else ""
    return ""


def _check_regular(path: Path) -> None:
    status = attempt(f"{str(path)!r} cannot be found or read", lambda: os.stat(path))
    if not stat.S_ISREG(status.st_mode):
        raise SourceError(f"{path.name} is not a regular file; folders, pipes and devices are not read")


def _beginning(path: Path) -> str:
    with path.open(encoding="utf-8-sig", newline="") as handle:
        return handle.read(_BEGINNING)


def _of_json(text: str) -> list[str]:
    """The fields of the first object, in an array or by itself."""
    try:
        record, _ = json.JSONDecoder().raw_decode(text.lstrip().removeprefix("[").lstrip())
    except (ValueError, RecursionError):
        return []
    return list(cast("dict[str, Any]", record)) if isinstance(record, dict) else []
