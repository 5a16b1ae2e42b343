"""What all formats of an office are made from: the tables of a release, with texts for readers and names for files."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sfumato._util.catalogue import say_note
from sfumato._util.frames import Frame
from sfumato.publishing.site import tables_to_publish
from sfumato.publishing.workbook import NUMBERS
from sfumato.releases import Release, Table
from sfumato.releases.ends import column_heading
from sfumato.releases.measure_tables import MeasureTable, measure_tables
from sfumato.releases.publication import Publication
from sfumato.releases.reliability import SUPPRESS

CODES = "codes"
"""The file beside the tables that says what readers call their cells."""
OFFICE_CONFIDENCE = 0.95  # of the intervals, as on pages
_MOST_TABLES, _MOST_ROWS = 500, 1_000_000  # files that a folder can be looked through, lines that a spreadsheet takes


@dataclass(frozen=True, slots=True)
class WrittenTable:
    """A table as it is written: its rows with flags, its texts for readers, and a name for its files."""

    table: Table
    frame: Frame
    stem: str
    headings: tuple[str, ...]
    texts: tuple[tuple[str, ...], ...]
    title: str
    of: str
    note: str = ""

    @property
    def columns(self) -> list[str]:
        """The heads of its columns that hold labels."""
        return [column_heading(a) for a in self.table.attributes]


@dataclass(frozen=True, slots=True)
class OfficeFiles:
    """What all formats are made from."""

    release: Release
    publication: Publication
    tables: tuple[WrittenTable, ...]
    folder: Path
    leave_out: bool

    @property
    def title(self) -> str:
        """What the publication is called."""
        return self.publication.text("title") or self.release.provenance.name


def written_tables(release: Release, told: Publication, *, leave_out: bool) -> Iterator[WrittenTable]:
    rows, used = 0, {CODES}
    for table in _all_tables(release):
        rows += table.values.size
        if rows > _MOST_ROWS:
            return
        frame = table.frame(told.flags)
        if not told.flags:
            frame = Frame({n: c for n, c in frame.columns.items() if n != "flag"})
        shown = table.labelled(told)
        if leave_out:
            frame = _without_suppressed(frame)
        names: tuple[str, ...] = table.attributes
        note = ""
        if isinstance(table, MeasureTable):
            names, note = (table.measure, *(("by",) if names[1:] else ()), *names[1:]), say_note(table.note)
        stem = _file_stem(names, used)
        yield WrittenTable(table, frame, stem, shown.attributes, shown.labels, shown.title(), shown.of, note)


def _all_tables(release: Release) -> Iterator[Table]:
    """Statistics of measures, and as many tables of counts as are written."""
    yield from measure_tables(release, OFFICE_CONFIDENCE)
    for names in tables_to_publish(release)[:_MOST_TABLES]:
        yield release.table(*names, confidence=OFFICE_CONFIDENCE)


def _without_suppressed(frame: Frame) -> Frame:
    """The same rows, without the numbers of those that are flagged to be left out."""
    flags = frame.columns.get("flag", ())
    blank = {n: [None if f == SUPPRESS else v for f, v in zip(flags, frame[n], strict=True)] for n in NUMBERS}
    return Frame({**frame.columns, **blank}) if flags else frame


def _file_stem(names: Sequence[str], used: set[str]) -> str:
    """A name for a table's files: letters, digits and dots, each once whatever the case."""
    clean = ".".join(re.sub(r"[^A-Za-z0-9_-]+", "_", n) for n in names)[:60].strip("._") or "table"
    stem, number = clean, 1
    while stem.casefold() in used:
        number += 1
        stem = f"{clean}-{number}"
    used.add(stem.casefold())
    return stem


def write_office_text(files: OfficeFiles, place: str, text: str) -> None:
    path = files.folder / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")


def csv_text(rows: Iterator[Sequence[Any]] | Sequence[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
