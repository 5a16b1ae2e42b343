"""Cells as people read them: "0 to under 5,000" for [0, 5000), and years without thousands marks."""

from __future__ import annotations

import re

from sfumato.domain.attributes import OTHER, Attribute
from sfumato.domain.core import Domain
from sfumato.domain.spans import spans
from sfumato.ground.checks import Number, show_number
from sfumato.ground.frames import safe_text

__all__ = ["cell_texts", "is_year", "range_text", "restricted", "unequal"]

_YEARS = (1800, 2200)  # whole numbers that all lie here are read as years
_YEAR = re.compile(r"(?<![^\W\d_])year(?![^\W\d_])", re.IGNORECASE)  # the word, also in birth_year; not in years
_NAMED = 1000  # a year of school has no thousands to mark, and its mean says something


def is_year(domain: Domain, name: str) -> bool:
    """Whether an attribute holds calendar years: all its cells are whole numbers from 1800 to 2200, or it is named so.

    Edges of a level of whole numbers are whole too.
    """
    attribute, owner = domain[name], domain.owner(name)
    ends = attribute.intervals
    if ends is None or domain[owner].kind != "integer":
        return False
    low, high = ends[0][0], ends[-1][1] - 1
    named = _YEAR.search(name) or _YEAR.search(owner)
    return (low >= _YEARS[0] and high <= _YEARS[1]) or (named is not None and high >= _NAMED)


def unequal(attribute: Attribute) -> bool:
    """Whether an attribute's cells are classes of numbers of several widths, which bars of counts would misstate."""
    ends = attribute.intervals
    return ends is not None and len({float(high - low) for low, high in ends}) > 1


def cell_texts(domain: Domain, name: str) -> list[str]:
    """One text for each cell, the extra one included: of numbers in words and with thousands marks, of others the
    declared labels."""
    attribute = domain[name]
    if attribute.intervals is None:
        return [safe_text(label) for label in attribute.labels]
    whole, year = domain[domain.owner(name)].kind == "integer", is_year(domain, name)
    found = [_text(low, high, whole=whole, year=year) for low, high in attribute.intervals]
    return found + [OTHER] * attribute.has_other


def range_text(domain: Domain, name: str) -> str:
    """The declared range of an attribute of numbers, from its first to its last."""
    ends = domain[name].intervals
    assert ends is not None
    year = is_year(domain, name)
    last = ends[-1][1] - (1 if domain[domain.owner(name)].kind == "integer" else 0)
    return " to ".join(str(x) if year else _number(x) for x in (ends[0][0], last))


def restricted(domain: Domain, name: str) -> str:
    """Of which records, or of which values, a mean or sum is, where some may lie outside the range; "" where none may.

    What is outside is cut to the range, counted as (other), or not counted: nothing measured says how far out it is.
    """
    attribute = domain[name]
    if spans(attribute) is None or attribute.outside is None:
        return ""
    if attribute.outside == "clamp":
        return f"of values cut to {range_text(domain, name)}"
    return f"of records from {range_text(domain, name)}"


def _text(low: Number, high: Number, *, whole: bool, year: bool) -> str:
    if not whole:
        return f"{_number(low)} to under {_number(high)}"
    first, last = (str(x) if year else _number(x) for x in (low, high - 1))
    return first if first == last else f"{first} to {last}"


def _number(value: Number) -> str:
    """As it is declared, to the last digit; thousands apart."""
    text = show_number(value)
    head, point, tail = text.lstrip("-").partition(".")
    marked = f"{int(head):,}" if head.isdecimal() else head
    return f"{'−' * text.startswith('-')}{marked}{point}{tail}"
