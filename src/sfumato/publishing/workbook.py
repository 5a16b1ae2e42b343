"""A release as a workbook that an office can send: a sheet to read first, then one for each table."""

from __future__ import annotations

import io
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sfumato._util.catalogue import say_note, say_text, say_words, speak
from sfumato._util.frames import Frame, optional_package, safe_text
from sfumato.errors import NotAnswerable
from sfumato.operators.base import FloatArray
from sfumato.present.answers import given_text, single_answers
from sfumato.present.sections import guarantee_sentences, reading_advice
from sfumato.publishing.site import tables_to_publish
from sfumato.releases import Release, Table
from sfumato.releases.crosstab import BASES, CrossTable
from sfumato.releases.ends import shown_places
from sfumato.releases.measure_tables import measure_tables
from sfumato.releases.methods import method_paragraph
from sfumato.releases.publication import Publication
from sfumato.releases.reliability import SUPPRESS, WITHHELD, read_reliability
from sfumato.releases.warnings import reader_lines

_MOST_SHEETS, _MOST_ROWS = 60, 200_000  # tabs that a person can leaf through, and a file that a mail takes
_CROSSED = 40  # columns of a cross-table, each with the ends of its interval: more is a list
NUMBERS = ("answer", "standard_error", "low", "high", "relative_standard_error")
"""The columns of a table that say something of a cell's answer."""
_WIDEST = 60  # characters of a column
_CONFIDENCE = 0.95  # as on pages


@dataclass(frozen=True, slots=True)
class _Styles:
    """The formats of a workbook, made once: number formats are made when they are first asked for."""

    book: Any
    made: dict[tuple[tuple[str, Any], ...], Any]

    def __call__(self, **told: Any) -> Any:
        key = tuple(sorted(told.items()))
        if key not in self.made:
            self.made[key] = self.book.add_format(told)
        return self.made[key]


def release_workbook(release: Release, publication: Publication | None = None, *, leave_out: bool = False) -> bytes:
    """The workbook as bytes; see `write_workbook`."""
    out, told = io.BytesIO(), publication or Publication()
    options = {"in_memory": True, "strings_to_formulas": False, "strings_to_urls": False, "nan_inf_to_errors": False}
    with speak(told.language, told.called()), optional_package("xlsxwriter", "excel").Workbook(out, options) as book:
        _fill_book(book, release, told, leave_out=leave_out)
    return out.getvalue()


def write_workbook(
    release: Release, path: Path, publication: Publication | None = None, *, leave_out: bool = False
) -> None:
    """Write a workbook: guarantee, cautions and method to read first, named counts, one sheet for each table.

    Tables of two attributes are cross-tables with per cents of the row; marks of an office stand behind the numbers,
    which stay numbers; with `leave_out` those that are flagged "suppress" are two dots, with their per cents. Raises
    MissingExtra where xlsxwriter is not installed.
    """
    path.write_bytes(release_workbook(release, publication, leave_out=leave_out))


def _fill_book(book: Any, release: Release, told: Publication, *, leave_out: bool) -> None:
    title = told.text("title") or release.provenance.name
    facts = {"title": title, "company": told.text("institution"), "comments": method_paragraph(release)}
    book.set_properties({name: safe_text(text) for name, text in facts.items()})
    styles, used = _Styles(book, {}), {say_words("read me").casefold()}
    first = book.add_worksheet(say_words("read me"))
    sheets: list[tuple[str, str]] = []
    marks = read_reliability(told.flags)

    def add_list(tab: str, heading: str, frame: Frame, note: str = "") -> None:
        sheet = book.add_worksheet(tab)
        said = [note, *([marks.statement(left_out=leave_out)] if marks.classes else [])]
        _list_sheet(sheet, styles, _in_words(frame, leave_out=leave_out), heading, told, [t for t in said if t])
        sheets.append((tab, heading))

    single, _ = single_answers(release)
    if single:
        names = {"label": "label", "value": "answer", "error": "standard_error", "low": "low", "high": "high"}
        frame = Frame({n: [getattr(s, k) for s in single] for k, n in names.items()})
        frame = Frame({**frame.columns, "label": [given_text(text) for text in frame["label"]]})
        if marks.classes:
            flags = marks.flags(frame["answer"], frame["standard_error"])
            frame = Frame({**frame.columns, "flag": flags})
        add_list(_tab_name(say_words("named counts"), used), say_words("Single queries"), frame)
    for held in measure_tables(release, _CONFIDENCE):
        shown = held.labelled(told)
        groups = " x ".join(held.attributes[1:])
        text = say_words("{measure} by {groups}", measure=held.measure, groups=groups) if groups else held.measure
        tab = _tab_name(text, used)
        add_list(
            tab, shown.title(), _with_texts(held.frame(told.flags or None), shown), as_sentence(say_note(held.note))
        )
    for names in _sheet_tables(release):
        table = release.table(*names, confidence=_CONFIDENCE)
        shown = table.labelled(told)
        tab = _tab_name(" x ".join(names), used)
        down, across = (
            sorted(names, key=lambda n: -release.plan.workload.domain[n].size)[:2] if len(names) == 2 else ("", "")
        )
        if down and release.plan.workload.domain[across].size <= _CROSSED:
            made = _crosstab_of(release, down, across, told)
            _cross_sheet(book.add_worksheet(tab), styles, made, shown.title(), told, leave_out=leave_out)
            sheets.append((tab, shown.title()))
        else:
            rows = _with_texts(table.frame(told.flags or None), shown)
            places = shown_places(release.plan.workload.domain, names)
            told_rows = Frame({head: [values[i] for i in places] for head, values in rows.columns.items()})
            add_list(tab, shown.title(), told_rows)
    _first_sheet(first, styles, release, told, sheets, leave_out=leave_out)


def _with_texts(frame: Frame, shown: Table) -> Frame:
    """The rows of a table with its attributes and cells as readers call them."""
    labels = dict(zip(shown.attributes, zip(*itertools.product(*shown.labels), strict=True), strict=True))
    return Frame({**labels, **dict(list(frame.columns.items())[len(labels) :])})


def _in_words(frame: Frame, *, leave_out: bool) -> Frame:
    """The same with heads for readers; of a cell that is flagged to be left out the dots alone, where that is asked."""
    flags = list(frame.columns.get("flag", [""] * len(frame)))
    found: dict[str, Sequence[Any]] = {}
    for name, values in frame.columns.items():
        if name == "flag":
            found[say_words("Flag")] = [WITHHELD if f == SUPPRESS else f for f in flags]
        elif name in NUMBERS:
            hidden = [leave_out and f == SUPPRESS for f in flags]
            blank = WITHHELD if name == "answer" else None
            found[say_words(name.replace("_", " ").capitalize())] = [
                blank if left else v for v, left in zip(values, hidden, strict=True)
            ]
        else:
            found[say_words("Query") if name == "label" else name] = values
    return Frame(found)


def as_sentence(note: str) -> str:
    """A note that stands by itself."""
    return f"{note[:1].upper()}{note[1:]}." if note else ""


def _sheet_tables(release: Release) -> Iterator[tuple[str, ...]]:
    """Tables that were asked, the small ones first, until a workbook is full."""
    left = _MOST_ROWS
    for names in tables_to_publish(release)[:_MOST_SHEETS]:
        left -= math.prod(release.plan.workload.domain.sizes(names))
        if left < 0:
            return
        yield names


def _crosstab_of(release: Release, down: str, across: str, told: Publication) -> CrossTable:
    table = release.table(down, across, confidence=_CONFIDENCE)
    try:
        made = table.crosstab(down, across, flags=told.flags)
    except NotAnswerable:
        made = table.crosstab(down, across, per=None, flags=told.flags)
    return made.labelled(told)


def _first_sheet(
    sheet: Any, styles: _Styles, release: Release, told: Publication, sheets: list[tuple[str, str]], *, leave_out: bool
) -> None:
    """What is to be read before the numbers."""
    sheet.set_column(0, 0, 22)
    sheet.set_column(1, 1, 100)
    plain, bold = styles(text_wrap=True, valign="top"), styles(bold=True, valign="top")
    row = 0

    def line(name: str, text: str, style: Any = plain) -> None:
        nonlocal row
        sheet.write_string(row, 0, safe_text(name), bold)
        sheet.write_string(row, 1, safe_text(text), style)
        row += 1

    line("", told.text("title") or release.provenance.name, styles(bold=True, font_size=16))
    if text := told.text("subtitle"):
        line("", text, styles(font_size=12))
    for name, text in told.facts():
        line(name, text)
    row += 1
    for text in reader_lines(release):
        line(say_words("Caution"), say_text(text))
    for caution in release.cautions:
        line(say_words("Caution"), say_text(caution.text))
    advice = reading_advice(release.plan, projected=release.projection is not None).texts
    guarantee = guarantee_sentences(release.plan, released=True).texts
    for heading, texts in ((say_words("How to read it"), advice), (say_words("What it protects"), guarantee)):
        for i, text in enumerate(texts):
            line(heading if i == 0 else "", text)
    marks = read_reliability(told.flags)
    if marks.classes:
        line(say_words("Marks"), marks.statement(left_out=leave_out))
    line(say_words("Method"), method_paragraph(release))
    row += 1
    for i, (tab, heading) in enumerate(sheets):
        sheet.write_string(row, 0, say_words("Sheets") if i == 0 else "", bold)
        sheet.write_url(row, 1, f"internal:'{tab}'!A1", string=safe_text(heading))
        row += 1
    _for_paper(sheet, told, landscape=False)


def _cross_sheet(
    sheet: Any, styles: _Styles, made: CrossTable, heading: str, told: Publication, *, leave_out: bool
) -> None:
    """A cross-table: answers and per cents beside each other, each with the ends of its interval."""
    head = styles(bold=True, align="center", valign="vcenter", text_wrap=True, bottom=1)
    left = styles(bold=True, align="left", bottom=1)
    total = safe_text(say_words("Total"))
    down = [*(" · ".join(made.told_labels(made.rows, r)) for r in made.row_labels), total]
    across = [*(" · ".join(made.told_labels(made.columns, c)) for c in made.column_labels), total]
    sheet.write_string(0, 0, safe_text(heading), styles(bold=True, font_size=14))
    hidden = np.zeros(made.numbers[0].shape, dtype=bool)
    blocks: list[tuple[str, Any, bool]] = [(say_words(made.of.capitalize()), made.numbers, False)]
    blocks += [(say_words(BASES[made.per]), made.shares, True)] if made.per and made.shares is not None else []
    sheet.merge_range(2, 0, 4, 0, safe_text(made.called(made.rows[0])), left)
    column, ends = 1, (say_words("Answer"), say_words("95 % from"), say_words("95 % to"))
    for told_block, numbers, share in blocks:
        width = 3 * len(across)
        sheet.merge_range(2, column, 2, column + width - 1, safe_text(told_block), head)
        flags = np.array(made.reliability.flags(*numbers[:2]), dtype=object).reshape(numbers[0].shape)
        if not share:
            hidden = leave_out & (flags == SUPPRESS)
        # the count would follow from its share of a total
        left_out = hidden | (leave_out & (flags == SUPPRESS))
        for j, name in enumerate(across):
            sheet.merge_range(3, column, 3, column + 2, name, head)
            for k, end in enumerate((ends[0] if not share else "%", *ends[1:])):
                sheet.write_string(4, column + k, end, head)
            for i in range(len(down)):
                for k, array in enumerate((numbers[0], numbers[2], numbers[3])):
                    mark = str(flags[i, j]) if k == 0 else ""
                    value = None if left_out[i, j] else float(array[i, j])
                    form, place = _form(numbers[1], share, mark), (5 + i, column + k)
                    _number(sheet, place, value, styles, form, i == len(down) - 1)
            column += 3
    for i, name in enumerate(down):
        sheet.write_string(5 + i, 0, name, styles(top=1, bold=True) if i == len(down) - 1 else styles())
    rule = [made.reliability.statement(left_out=leave_out)] if made.reliability.classes else []
    said = [*made.notes, *rule]
    for i, text in enumerate(said):
        sheet.write_string(6 + len(down) + i, 0, safe_text(text), styles(italic=True))
    sheet.set_column(0, 0, min(_WIDEST, max(len(t) for t in (*down, heading)) + 2))
    sheet.set_column(1, column - 1, 11)
    sheet.freeze_panes(5, 1)
    sheet.repeat_rows(2, 4)
    _for_paper(sheet, told, landscape=True)


def error_decimals(errors: FloatArray) -> int:
    """Decimals that show two figures of a table's typical standard error; none where it is exact."""
    known = errors[np.isfinite(errors) & (errors > 0)]
    return 0 if not known.size else max(0, 1 - math.floor(math.log10(float(np.median(known)))))


def _form(errors: FloatArray, share: bool, mark: str) -> str:
    """A number format with as many decimals as errors let be read, and the mark behind the number."""
    decimals = min(4, error_decimals(errors * (100 if share else 1)))
    text = f"#,##0{'.' * bool(decimals)}{'0' * decimals}" if not share else f"0{'.' * bool(decimals)}{'0' * decimals}%"
    shown = {SUPPRESS: f" {WITHHELD}"}.get(mark, mark).replace('"', "")
    return f'{text}"{shown}"' if shown else text


def _number(sheet: Any, place: tuple[int, int], value: float | None, styles: _Styles, form: str, last: bool) -> None:
    """A number; dots for None, which was left out, and a dash where nothing is known."""
    style = styles(num_format=form, **({"top": 1, "bold": True} if last else {}))
    if value is not None and math.isfinite(value):
        sheet.write_number(*place, value, style)
    else:
        sheet.write_string(*place, WITHHELD if value is None else "–", styles(align="right"))


def _list_sheet(
    sheet: Any, styles: _Styles, frame: Frame, heading: str, told: Publication, said: Sequence[str]
) -> None:
    """One line for each cell, and below what is said of all."""
    sheet.write_string(0, 0, safe_text(heading), styles(bold=True, font_size=14))
    for j, (name, values) in enumerate(frame.columns.items()):
        sheet.write_string(2, j, safe_text(name), styles(bold=True, bottom=1, text_wrap=True))
        numbers = [v for v in values if isinstance(v, (int, float)) and math.isfinite(v)]
        form = _list_form(max(map(abs, numbers), default=0))
        for i, value in enumerate(values, 3):
            if isinstance(value, str):
                sheet.write_string(i, j, safe_text(value))
            elif value is not None and math.isfinite(value):
                sheet.write_number(i, j, value, styles(num_format=form))
        widest = max([len(name), *(len(v) for v in values if isinstance(v, str)), 10])
        sheet.set_column(j, j, min(_WIDEST, widest + 2))
    for i, text in enumerate(said, 4 + len(frame)):
        sheet.write_string(i, 0, safe_text(text), styles(italic=True))
    sheet.freeze_panes(3, 0)
    sheet.repeat_rows(2)
    sheet.autofilter(2, 0, 2 + len(frame), max(len(frame.columns) - 1, 0))
    _for_paper(sheet, told, landscape=False)


def _list_form(largest: float) -> str:
    """A number format for a column: of money in thousands no decimals are read."""
    return "#,##0" if largest >= _WHOLE else "#,##0.0" if largest >= 10 else "#,##0.000"


_WHOLE = 100_000  # from here on a decimal is less than a hundred-thousandth


def _for_paper(sheet: Any, told: Publication, *, landscape: bool) -> None:
    if landscape:
        sheet.set_landscape()
    sheet.set_paper(9)  # A4
    sheet.fit_to_pages(1, 0)
    source = safe_text(told.text("institution")).replace("&", "&&")[:100]
    sheet.set_footer(f"&L{source}&R&P / &N")


def _tab_name(title: str, used: set[str]) -> str:
    """A tab's name as Excel takes them: at most 31 characters, some forbidden, each once whatever the case."""
    clean = "".join("-" if c in "[]:*?/\\'" else c for c in safe_text(title)).strip() or "table"
    name, number = clean[:31], 1
    while name.casefold() in used:
        number += 1
        name = f"{clean[: 31 - len(str(number)) - 1]} {number}"
    used.add(name.casefold())
    return name
