"""One person's record as a cell number, on the person's own device. The rules are those of docs/data.md."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from sfumato.cells import Codes
from sfumato.domain import Attribute, Bins, Booleans, Categories, Dates, Domain, Hierarchy, Integers
from sfumato.errors import InvalidInput
from sfumato.ground.texts import BLANKS, day_of, plain

__all__ = ["cell_of"]

_ZEROS = re.compile(r"-?(0|[1-9][0-9]*)[.]0+", re.ASCII)
_FALSE = ("0", "f", "false", "n", "no")
_TRUE = ("1", "t", "true", "y", "yes")


def cell_of(domain: Domain, names: Sequence[str], record: Any) -> int:
    """The cell, in C order, of a record over some attributes: a mapping of names to values.

    Values are read as the curator reads a table's: numbers for `Integers` and `Bins`, codes for categories, None for
    missing. Raises InvalidInput where an attribute is not in the record, or its value has no cell. The error names
    attributes alone, and stays on the device; a report that is not sent may still tell the server something. A record
    that cannot be is moved to the nearest cell that can, silently.
    """
    if not isinstance(record, Mapping):
        raise InvalidInput(f"a record is a mapping of {', '.join(names)} to values")
    lacking = [n for n in names if n not in record]
    if lacking:
        raise InvalidInput(f"the record lacks {', '.join(map(repr, lacking))}; None stands for a missing value")
    cells: list[int] = []
    for name in names:
        attribute = domain.attributes[name]
        own = _cell(attribute, record[name])
        if own is None:
            raise InvalidInput(
                f"the record has no cell of {name!r}: its value is missing or outside, and the attribute does not "
                "declare 'other' for that; declare it, so that every person can report"
            )
        cells.append(own)
    for m in domain.moves(names):
        sizes = [domain.attributes[names[a]].size for a in m.axes]
        moved = np.unravel_index(m.cells[np.ravel_multi_index(tuple(cells[a] for a in m.axes), sizes)], sizes)
        for axis, own in zip(m.axes, moved, strict=True):
            cells[axis] = int(own)
    cell = 0
    for name, own in zip(names, cells, strict=True):
        cell = cell * domain.attributes[name].size + own
    return cell


def _cell(attribute: Attribute, value: Any) -> int | None:
    """The cell of one value; None where it has none."""
    text, extra = _text(value), attribute.size - 1
    if isinstance(attribute, (Integers, Bins)):
        number = _number(text)
        absent, found = number is None, None if number is None else _interval(attribute, number)
    elif isinstance(attribute, Booleans):
        text = text.strip(" ").lower()
        place = _position(_FALSE + _TRUE, text)
        absent, found = not text, None if place is None else place // len(_FALSE)
    elif isinstance(attribute, Dates):
        day = day_of(text.strip(BLANKS), attribute.format)
        absent, found = day is None, None if day is None else _nearest(attribute, attribute.edges, day)
    elif isinstance(attribute, (Categories, Hierarchy)):
        rule = cast(Codes, attribute.rule)
        if rule.edition > 1:
            text = plain(text, trim=rule.trim, ignore_case=rule.ignore_case)
        place = _position(rule.codes, text)
        absent, found = not text, rule.cells[place] if rule.cells and place is not None else place
    else:
        raise InvalidInput(f"records cannot be read as an attribute of type {attribute.kind!r}")
    if found is None and (attribute.missing if absent else attribute.outside) == "other":
        return extra
    return found


def _text(value: Any) -> str:
    """A value as a table of texts holds it, empty where it is missing."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(float(value))
    return str(value)


def _position(codes: Sequence[str], text: str) -> int | None:
    """Where a code stands; "1.0" is code 1."""
    if text in codes:
        return codes.index(text)
    whole = text.partition(".")[0] if _ZEROS.fullmatch(text) else ""
    whole = "0" if whole == "-0" else whole
    return codes.index(whole) if whole in codes else None


def _number(text: str) -> float | None:
    """The double that a text writes; None where it writes none."""
    if not text.isascii() or "_" in text:
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    return None if math.isnan(number) else number


def _nearest(attribute: Dates, edges: Sequence[int], day: int) -> int | None:
    """The cell of a day, the nearest one where the attribute clamps."""
    inside = edges[0] <= day < edges[-1]
    return _among(edges[:-1], day) if inside or attribute.outside == "clamp" else None


def _interval(attribute: Integers | Bins, number: float) -> int | None:
    """The cell of a number, the nearest one where the attribute clamps."""
    intervals = attribute.intervals
    low, end = intervals[0][0], intervals[-1][1]
    if isinstance(attribute, Integers):
        # in edition 1 fractions were outside
        inside = attribute.low <= number <= attribute.high
        if attribute.edition == 1 and attribute.outside in ("other", "drop"):
            inside = inside and number == math.floor(number)
    else:
        inside = low <= number < end or (number == end and attribute.holds_last)
    if not inside and attribute.outside != "clamp":
        return None
    return _among([a for a, _ in intervals], number)


def _among(starts: Sequence[float], number: float) -> int:
    """The cell of a number by where cells start; of what is below all, the first."""
    return max(bisect_right(starts, number) - 1, 0)
