"""The rules of reading fields, written a second time in plain Python, one field at a time."""

from __future__ import annotations

import csv
import math
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Attribute, Bins, Booleans, Categories, Dates, Domain, Hierarchy, Integers

BLANKS = " \t\n\v\f\r"


def number(text: str | None) -> float | None:
    """The double that a text writes, None where it writes none."""
    if text is None or not text.isascii() or "_" in text:
        return None
    try:
        value = float(text.strip(BLANKS))
    except ValueError:
        return None
    return None if math.isnan(value) else value


def whole(text: str) -> str:
    """A whole number written with zero decimals, without them; any other text unchanged."""
    digits, point, zeros = text.partition(".")
    plain = digits.removeprefix("-")
    if not point or not zeros or zeros.strip("0") or not (plain.isascii() and plain.isdigit()):
        return text
    if plain.startswith("0") and plain != "0":
        return text
    return str(int(digits))


def _position(codes: Sequence[str], text: str) -> int | None:
    return next((codes.index(t) for t in (text, whole(text)) if t in codes), None)


def _found(attribute: Attribute, text: str | None) -> int | str:
    """A declared cell, "missing", "below", "above" or "outside"."""
    if isinstance(attribute, (Integers, Bins)):
        value = number(text)
        if value is None:
            return "missing"
        if isinstance(attribute, Integers):
            if value < attribute.low or value > attribute.high:
                # A fraction just above the highest number rounds down into its cell.
                return "below" if value < attribute.low else "above"
            # a fraction between is in the cell of the whole number below it
            return (math.floor(value) - attribute.low) // attribute.width
        exact = [Fraction(e) for e in attribute.edges]
        if math.isinf(value) or not exact[0] <= Fraction(value) <= exact[-1]:
            return "below" if value < exact[0] else "above"
        return min(bisect_right(exact, Fraction(value)), len(exact) - 1) - 1
    if isinstance(attribute, Dates):
        number_of_day = day(text or "", attribute.format)
        if number_of_day is None:
            return "missing"
        if not attribute.edges[0] <= number_of_day < attribute.edges[-1]:
            return "below" if number_of_day < attribute.edges[0] else "above"
        return bisect_right(attribute.edges, number_of_day) - 1
    if text and isinstance(attribute, (Categories, Hierarchy)):
        text = unicodedata.normalize("NFC", text)
    if not text:
        return "missing"
    if isinstance(attribute, Booleans):
        text = text.strip(" ").lower()
        if not text:
            return "missing"
        position = _position(["0", "f", "false", "n", "no", "1", "t", "true", "y", "yes"], text)
        return "outside" if position is None else position // 5
    assert isinstance(attribute, (Categories, Hierarchy))
    return _labelled(attribute, text)


def _labelled(attribute: Categories | Hierarchy, text: str) -> int | str:
    """The cell of a text among spellings, each of which is tried by itself."""
    spellings = attribute.values if isinstance(attribute, Categories) else {c: c for c in attribute.codes}
    trim = isinstance(attribute, Categories) and attribute.trim
    folded = isinstance(attribute, Categories) and attribute.case == "ignore"

    def read(given: str) -> str:
        # letter by letter, so that no letter becomes two, but for the one whose capitals are two
        small = {c: min(c.casefold(), c.lower(), key=len) for c in given}
        small |= dict.fromkeys("ßẞ", "ss")
        shown = (
            "".join(s if len(s) == 1 or s == "ss" else c for c, s in ((c, small[c]) for c in given))
            if folded
            else given
        )
        shown = unicodedata.normalize("NFC", shown)
        return shown.strip(BLANKS + "\u00a0") if trim else shown

    if not read(text):
        return "missing"
    known: dict[str, str] = {read(unicodedata.normalize("NFC", c)): label for c, label in dict(spellings).items()}  # type: ignore[call-overload]
    for tried in (read(text), whole(read(text))):
        if tried in known:
            return list(dict.fromkeys(known.values())).index(known[tried])
    return "outside"


def day(text: str, form: str = "") -> int | None:
    """The number of the day that a text writes, by Python's own readers."""
    text = text.strip(BLANKS + "\u00a0")
    if not text.isascii() or text[-1:] in ("t", "T"):
        return None
    found = None
    if len(text) >= 10 and text[4] + text[7] == "--":
        try:
            found = datetime.fromisoformat(text)
        except ValueError:
            return None
    elif form:
        with suppress(ValueError):
            written, _, time = text.partition(" ")
            at = datetime.fromisoformat(f"2000-01-01 {time}") if time else datetime(2000, 1, 1)
            found = datetime.combine(datetime.strptime(written, form), at.timetz())
    if found is None:
        return None
    ahead = timedelta(0) if found.tzinfo is None else found.utcoffset()
    try:
        return (found.replace(tzinfo=None) - (ahead or timedelta(0))).toordinal()
    except OverflowError:
        return None


def cell(attribute: Attribute, text: str | None) -> int | None:
    """The cell of a field, None where its row is dropped."""
    found = _found(attribute, text)
    if isinstance(found, int):
        return found
    last = len(attribute.declared_labels) - 1
    policy = attribute.missing if found == "missing" else attribute.outside
    if policy == "clamp":
        return 0 if found == "below" else last
    return last + 1 if policy == "other" else None


def joint(domain: Domain, rows: Iterable[Sequence[str | None]]) -> NDArray[np.int64]:
    """Counts over the whole domain of rows with one text per attribute."""
    counts = np.zeros(domain.shape, dtype=np.int64)
    for row in rows:
        cells = [cell(a, t) for a, t in zip(domain.attributes.values(), row, strict=True)]
        if None not in cells:
            counts[tuple(cells)] += 1
    return counts


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[str | None]]) -> Path:
    """A CSV file with every field quoted, so that any text survives."""
    with path.open("w", newline="", encoding="utf-8") as handle:
        writer = csv.writer(handle, quoting=csv.QUOTE_ALL)
        writer.writerow(header)
        writer.writerows(rows)
    return path
