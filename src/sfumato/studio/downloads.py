"""Files to take away: a table as CSV, all small tables as a workbook, and what the release's folder holds."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator
from pathlib import Path

import xlsxwriter

from sfumato.errors import InvalidInput, NotAnswerable
from sfumato.ground.frames import Frame, safe_text
from sfumato.releases import Release
from sfumato.releases.streamed import StreamRelease
from sfumato.report.answers import singles
from sfumato.report.sections import protects, reading
from sfumato.terminal import csv_text
from sfumato.workloads.levels import table_names

__all__ = ["FILES", "STREAM", "held", "stored_file", "stream_file", "table_csv", "workbook"]

STREAM = "stream.release"
"""What a page calls the public file of a stream."""

FILES = {
    "answers.parquet": "application/vnd.apache.parquet",
    "release.json": "application/json",
    "report.html": "text/html; charset=utf-8",
    "measurements.npz": "application/octet-stream",
}
"""Files of a release's folder that pages hand out."""
_MOST_ROWS = 200_000  # of a workbook: spreadsheets open that in seconds; the Parquet file has all
_MOST_SHEETS = 60  # tabs that still can be found


def stored_file(folder: Path, name: str) -> Path:
    """One of the files above. Raises InvalidInput for every other, and where it was not written."""
    place = folder / name
    if name not in FILES or place.is_symlink() or not place.is_file():
        raise InvalidInput("the release holds no such file: large ones hold their measurements alone")
    return place


def held(place: Path) -> list[str]:
    """Which of the files above are there; of a stream what may be published of it."""
    if not place.is_dir():
        return ["tables.xlsx", STREAM]
    return ["tables.xlsx", *(name for name in FILES if (place / name).is_file())]


def stream_file(found: object) -> bytes:
    """All that is public of a stream, as a file to be handed on. Raises InvalidInput for what is none."""
    if not isinstance(found, StreamRelease):
        raise InvalidInput("this is no stream")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "stream"
        found.save(place)
        return place.read_bytes()


def table_csv(release: Release, names: tuple[str, ...]) -> str:
    """A marginal table with every digit."""
    return csv_text(release.table(*names).frame())


def workbook(release: Release) -> bytes:
    """What was asked as an Excel workbook: words, single answers, one sheet for each table until it is large."""
    out = io.BytesIO()
    with xlsxwriter.Workbook(out, {"in_memory": True, "strings_to_formulas": False, "strings_to_urls": False}) as book:
        words = book.add_worksheet("read me")
        words.set_column(0, 0, 110)
        wrapped = book.add_format({"text_wrap": True, "valign": "top"})
        texts = [safe_text(release.provenance.name), *protects(release.plan, released=True), *reading(release.plan)]
        for i, text in enumerate(texts):
            words.write_string(i, 0, text, wrapped)
        found, _ = singles(release)
        names = ("part", "label", "value", "low", "high", "error")
        _sheet(book, "single answers", Frame({n: [getattr(s, n) for s in found] for n in names}))
        used: set[str] = {"read me", "single answers"}
        for title, frame in _tables(release):
            _sheet(book, _tab(title, used), frame)
    return out.getvalue()


def _tables(release: Release) -> Iterator[tuple[str, Frame]]:
    """Tables that were asked, the small ones first, until a workbook is full."""
    domain, left = release.plan.workload.domain, _MOST_ROWS
    asked: dict[tuple[str, ...], int] = {}
    for item in release.workload.items:
        for query in item.blocks():
            names = table_names(domain, query.block)
            if names:
                asked[names] = query.rows
    for names, rows in sorted(asked.items(), key=lambda t: (len(t[0]), t[1]))[: _MOST_SHEETS - 2]:
        if rows > left:
            return
        left -= rows
        try:
            yield " x ".join(names), release.table(*names).frame()
        except NotAnswerable:
            continue


def _sheet(book: xlsxwriter.Workbook, title: str, frame: Frame) -> None:
    sheet = book.add_worksheet(title)
    bold = book.add_format({"bold": True})
    for j, (name, column) in enumerate(frame.columns.items()):
        sheet.write_string(0, j, safe_text(name), bold)
        for i, value in enumerate(column, 1):
            if isinstance(value, str):
                sheet.write_string(i, j, safe_text(value))
            elif value is not None:
                sheet.write_number(i, j, value)
    sheet.freeze_panes(1, 0)


def _tab(title: str, used: set[str]) -> str:
    """A tab's name as Excel takes them: at most 31 characters, some forbidden, each once whatever the case."""
    clean = "".join("-" if c in "[]:*?/\\'" else c for c in safe_text(title)).strip() or "table"
    name, number = clean[:31], 1
    while name.casefold() in used:
        number += 1
        name = f"{clean[: 31 - len(str(number)) - 1]} {number}"
    used.add(name.casefold())
    return name
