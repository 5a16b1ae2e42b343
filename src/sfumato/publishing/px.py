"""A release as PX files, as PC-Axis and PX-Web read them: one for each table."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from decimal import Decimal

import numpy as np

from sfumato._util.catalogue import say_words
from sfumato._util.frames import safe_text
from sfumato.publishing.office_tables import OfficeFiles, WrittenTable, write_office_text
from sfumato.publishing.workbook import NUMBERS, as_sentence, error_decimals
from sfumato.releases.ends import told_order
from sfumato.releases.measure_tables import MeasureTable
from sfumato.releases.methods import method_paragraph
from sfumato.releases.reliability import SUPPRESS, read_reliability

_PX_LINE = 200  # characters of a line: readers take 256
_MOST_SHOWN, _MOST_STORED = 6, 15  # decimals that the format allows
_UNKNOWN = '".."'


def write_px(files: OfficeFiles) -> None:
    """PX files: the attributes down, and across the answer, its standard error and the ends of its interval."""
    for t in files.tables:
        write_office_text(files, f"px/{t.stem}.px", _px_text(files, t))


def _px_text(files: OfficeFiles, t: WrittenTable) -> str:
    told, made = files.publication, files.release.provenance.created
    figure = say_words("Figure")
    heads = _px_distinct([*t.headings, figure])
    shown = [say_words(w) for w in ("Answer", "Standard error", "95 % from", "95 % to")]
    # values stand in the order in which readers see them, statistics before groups
    orders = [
        told_order(labels, told.category_texts(n)) for n, labels in zip(t.table.attributes, t.table.labels, strict=True)
    ]
    codes, texts = (
        [[axis[i] for i in order] for axis, order in zip(all_axes, orders, strict=True)]
        for all_axes in (t.table.labels, t.texts)
    )
    places = np.arange(t.table.values.size).reshape(t.table.values.shape)[np.ix_(*orders)].reshape(-1)
    frame_rows = t.frame.rows()
    rows = [frame_rows[i] for i in places.tolist()]
    numbers = [[_px_number(row[n]) for n in NUMBERS[:4]] for row in rows]
    least, precisions = _shown_decimals(t)
    stored = max((len(text.partition(".")[2]) for line in numbers for text in line if text != _UNKNOWN), default=0)
    title = f"{files.title}: {t.title}"
    stamp = f"{made[:4]}{made[5:7]}{made[8:10]} {made[11:16]}"
    words: list[tuple[str, str]] = [
        ("CHARSET", '"ANSI"'),
        ("AXIS-VERSION", '"2013"'),
        ("CODEPAGE", '"utf-8"'),
        ("LANGUAGE", _px_quoted(told.language)),
        ("CREATION-DATE", _px_quoted(stamp)),
        ("DECIMALS", str(max(stored, least, *precisions.values(), 0))),
        ("SHOWDECIMALS", str(least)),
        ("MATRIX", _px_quoted(t.stem[:20])),
        ("SUBJECT-CODE", '"0"'),
        ("SUBJECT-AREA", _px_quoted(files.title)),
        ("TITLE", _px_quoted(title)),
        ("CONTENTS", _px_quoted(t.title)),
        ("UNITS", _px_quoted(say_words(t.of))),
        ("STUB", _px_list(heads[:-1])),
        ("HEADING", _px_list(heads[-1:])),
    ]
    distinct = [_px_distinct(told_cells) for told_cells in (*texts, shown)]
    for head, values in zip(heads, distinct, strict=True):
        words.append((f"VALUES({_px_quoted(head)})", _px_list(values)))
    for head, labels in zip(heads, codes, strict=False):
        words.append((f"CODES({_px_quoted(head)})", _px_list(_px_distinct(labels))))
    words.append((f"CODES({_px_quoted(heads[-1])})", _px_list(NUMBERS[:4])))
    words.append(("LAST-UPDATED", _px_quoted(stamp)))
    for key, name in (("CONTACT", "contact"), ("SOURCE", "institution"), ("REFPERIOD", "period"), ("COPYRIGHT", "")):
        text = "YES" if not name and told.text("licence") else told.text(name) if name else ""
        words += [(key, text if not name else _px_quoted(text))] if text else []
    marks = read_reliability(told.flags)
    notes = [as_sentence(t.note), method_paragraph(files.release), told.text("notes"), told.text("licence")]
    notes += [marks.statement(left_out=files.leave_out)] if marks.classes else []
    words += [("NOTE", _px_quoted(" ".join(n for n in notes if n)))]
    for (axis, place), decimals in precisions.items():
        value = distinct[axis][place]
        words.append((f"PRECISION({_px_quoted(heads[axis])},{_px_quoted(value)})", str(decimals)))
    cells = itertools.product(*distinct[:-1])
    flagged = [(cell, row["flag"]) for cell, row in zip(cells, rows, strict=True) if row.get("flag")]
    for cell, flag in flagged:
        place = ",".join(_px_quoted(x) for x in (*cell, shown[0]))
        words.append((f"DATANOTECELL({place})", _px_quoted("··" if flag == SUPPRESS else flag)))
    lines = "\n".join(map(" ".join, numbers))
    return "\n".join(f"{key}={text};" for key, text in words) + f"\nDATA=\n{lines};\n"


def _shown_decimals(t: WrittenTable) -> tuple[int, dict[tuple[int, int], int]]:
    """The decimals of a table, and by axis and place those of statistics and figures that are shown with more.

    As many as show two figures of the standard error: none of a sum in thousands, two of a mean near its error of .1.
    Counts that are whole have none, and their errors have them.
    """
    errors, answers = t.table.noise_errors(), t.table.values
    if isinstance(t.table, MeasureTable):
        each = [min(_MOST_SHOWN, error_decimals(e)) for e in errors]
        return min(each), {(0, i): d for i, d in enumerate(each) if d > min(each)}
    decimals = min(_MOST_SHOWN, error_decimals(errors))
    whole = bool((answers == np.rint(answers)).all()) and decimals > 0
    return (0, {(len(t.headings), i): decimals for i in (1, 2, 3)}) if whole else (decimals, {})


def _px_distinct(texts: Sequence[str]) -> list[str]:
    """Texts as PX has them, no two alike."""
    found: dict[str, None] = {}  # in their order
    for text in texts:
        made = re.sub(r"\s+", " ", safe_text(text).replace('"', "'")).strip() or "-"
        while made in found:
            made += "'"
        found[made] = None
    return list(found)


def _px_quoted(text: str) -> str:
    """A text in quotes, in pieces where it is longer than a line."""
    clean = re.sub(r"\s+", " ", safe_text(text).replace('"', "'")).strip()
    pieces = [clean[i : i + _PX_LINE] for i in range(0, len(clean), _PX_LINE)] or [""]
    return "\n".join(f'"{p}"' for p in pieces)


def _px_list(texts: Sequence[str]) -> str:
    return ",\n".join(f'"{t}"' for t in texts)


def _px_number(value: float | None) -> str:
    """A number with all its decimals, up to twelve figures; two dots for what is not known or left out."""
    if value is None or not math.isfinite(value):
        return _UNKNOWN
    text = f"{Decimal(f'{value:.12g}'):.{_MOST_STORED}f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text
