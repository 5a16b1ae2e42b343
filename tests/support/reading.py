"""The rules of reading fields, written a second time in plain Python, one field at a time."""

from __future__ import annotations

import csv
import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Attribute, Bins, Booleans, Categories, Domain, Hierarchy, Integers

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
            cell = (math.floor(value) - attribute.low) // attribute.width
            return cell if value == math.floor(value) else f"between {cell}"
        exact = [Fraction(e) for e in attribute.edges]
        if math.isinf(value) or not exact[0] <= Fraction(value) < exact[-1]:
            return "below" if value < exact[0] else "above"
        return bisect_right(exact, Fraction(value)) - 1
    if not text:
        return "missing"
    if isinstance(attribute, Booleans):
        text = text.strip(" ").lower()
        if not text:
            return "missing"
        position = _position(["0", "f", "false", "n", "no", "1", "t", "true", "y", "yes"], text)
        return "outside" if position is None else position // 5
    assert isinstance(attribute, (Categories, Hierarchy))
    position = _position(attribute.codes, text)
    return "outside" if position is None else position


def cell(attribute: Attribute, text: str | None) -> int | None:
    """The cell of a field, None where its row is dropped."""
    found = _found(attribute, text)
    if isinstance(found, int):
        return found
    last = len(attribute.declared_labels) - 1
    policy = attribute.missing if found == "missing" else attribute.outside
    if policy == "clamp":
        return int(found.removeprefix("between ")) if "between" in found else 0 if found == "below" else last
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
