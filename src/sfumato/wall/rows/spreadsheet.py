"""A sheet of an .xlsx file as a text file: its first row has the names, every cell is read by itself.

A number is its text, a date its day, with the time of day where it is not midnight: spreadsheets have one kind of cell
for both. Of formulas what was last computed is read; an error is a text like any other. A row without anything is no
record.
"""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Iterable, Iterator
from datetime import datetime, time
from pathlib import Path
from typing import Any, cast

from sfumato.errors import MissingExtra, SourceError
from sfumato.wall.rows.elements import text_of

__all__ = ["as_text"]

# What a workbook may hold, unpacked: its texts lie in memory, and more is taken for a bomb.
MAX_UNPACKED = 2**31


def as_text(path: str, copy: str, sheet: str | None, decimal: str) -> None:
    """Write a sheet to `copy` as CSV with every field quoted. Raises MissingExtra or SourceError."""
    try:
        import openpyxl as package  # noqa: PLC0415  # pyright: ignore
    except ImportError:
        raise MissingExtra(
            "openpyxl is not installed, and spreadsheets are read by it: pip install openpyxl, or save the sheet as CSV"
        ) from None
    openpyxl, label = cast(Any, package), Path(path).name
    with zipfile.ZipFile(path) as packed:
        if sum(entry.file_size for entry in packed.infolist()) > MAX_UNPACKED:
            raise SourceError(f"{label} holds more than {MAX_UNPACKED:,} bytes, unpacked: save the sheet as CSV")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they quote cells
        book = openpyxl.load_workbook(path, read_only=True, data_only=True, keep_links=False)
        try:
            pages = [page for page in book.worksheets if sheet is None or page.title == sheet]
            if not pages:
                what = "no sheet" if sheet is None else f"no sheet called {sheet!r}"
                raise SourceError(f"{label} has {what} (names are matched exactly, capitals included)")
            pages[0].reset_dimensions()  # what a file says of its own size may be wrong
            with open(copy, "x", encoding="utf-8", errors="replace", newline="") as out:
                out.writelines(_lines(pages[0].iter_rows(values_only=True), decimal))
        finally:
            book.close()


def _lines(rows: Iterable[tuple[Any, ...]], decimal: str) -> Iterator[str]:
    width = None
    for row in rows:
        fields = ["" if v is None else text_of(_day(v), decimal) or "" for v in row]
        if width is None:
            while fields and not fields[-1]:
                fields.pop()
            width = len(fields)
        elif not any(fields):
            continue
        cells = (fields + [""] * width)[:width]  # beyond the names stand remarks
        yield ",".join('"' + field.replace('"', '""') + '"' for field in cells) + "\n"


def _day(value: Any) -> Any:
    return value.date() if isinstance(value, datetime) and value.time() == time() else value
