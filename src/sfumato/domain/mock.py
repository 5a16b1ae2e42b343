"""Rows drawn from a declaration alone: they show how a table's values have to be written."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

import numpy as np

from sfumato._util.checks import Number, show_number
from sfumato._util.text import date_format_fields
from sfumato.cells import BETWEEN
from sfumato.domain.attributes import Attribute, Categories
from sfumato.domain.core import Domain
from sfumato.domain.hierarchies import Hierarchy
from sfumato.domain.measures import Measure
from sfumato.domain.ordered import Dates
from sfumato.errors import DomainError

MAX_MOCK_ROWS = 1_000_000  # rows are Python values; to try a spec, thousands do
_LABELS = 5  # that stand for those nobody listed: enough to be told apart in a few rows
_STEPS = 10  # numbers of an interval that rows are drawn from: they only have to fall inside


def mock_columns(domain: Domain, rows: int, seed: int = 0) -> dict[str, list[str]]:
    """As many rows, one text per field: a cell of each attribute at random, and a value in it. No data are read.

    The same seed gives the same rows. Unlike in a real table, attributes are independent and all cells equally likely.
    """
    if not 1 <= rows <= MAX_MOCK_ROWS:
        raise DomainError(f"between 1 and {MAX_MOCK_ROWS:,} mock rows can be drawn, not {rows:,}")
    if seed < 0:
        raise DomainError(f"a seed is a whole number from 0 on, not {seed}")
    rng = np.random.default_rng(seed)
    given = dict(zip(domain.grid.columns, domain.attributes.values(), strict=True))
    # where a measure reads the column of an attribute, the attribute's cells say what is drawn
    given |= {(name,): a for name, a in domain.attributes.items() if (name,) in given}
    drawn: dict[str, list[str]] = {}
    for names, attribute in sorted(given.items(), key=lambda item: len(item[0])):
        fields = [_mock_field(attribute, rng) for _ in range(rows)]
        split = [fields]
        if len(names) > 1:  # a cell that stays empty has one text for all
            split = zip(*((text.split(BETWEEN) * len(names))[: len(names)] for text in fields), strict=True)
        # a column that an attribute has to itself keeps its values
        drawn = {name: list(column) for name, column in zip(names, split, strict=True)} | drawn
    return {name: drawn[name] for name in domain.grid.read_columns}


_GROUPED = 5  # digits from which on thousands stand apart: below, most tables leave a year or a size as it is


def number_in_notation(text: str, decimal: str, thousands: str) -> str:
    """A number of a mock row as a table writes it whose marks are these; any other text as it is."""
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    whole, _, rest = digits.partition(".")
    if not (whole.isdecimal() and (rest.isdecimal() or not rest)):
        return text
    apart = f"{int(whole):,}".replace(",", thousands) if len(whole) >= _GROUPED else whole
    return f"{sign}{apart}{decimal if rest else ''}{rest}"


def _mock_field(attribute: Attribute, rng: np.random.Generator) -> str:
    """A text that lies in a declared cell."""
    if isinstance(attribute, Dates):
        cell = int(rng.integers(attribute.declared_size))
        day = date.fromordinal(int(rng.integers(attribute.edges[cell], attribute.edges[cell + 1])))
        # not `strftime`, which leaves out the zeros of early years
        written = {"%Y": f"{day.year:04}", "%m": f"{day.month:02}", "%d": f"{day.day:02}"}
        return "".join(written.get(p, p) for p in date_format_fields(attribute.format or "%Y-%m-%d"))
    if isinstance(attribute, Categories) and attribute.discover is not None:
        return BETWEEN.join([f"label {int(rng.integers(1, _LABELS + 1))}" for _ in attribute.columns or ("",)])
    if isinstance(attribute, (Categories, Hierarchy)):
        codes: Sequence[str] = attribute.codes
        return codes[int(rng.integers(len(codes)))]
    if isinstance(attribute, Measure):
        return _mock_number(attribute.low, attribute.high, int(rng.integers(_STEPS)))
    if attribute.intervals is None:
        return attribute.declared_labels[int(rng.integers(attribute.declared_size))]
    low, high = attribute.intervals[int(rng.integers(attribute.declared_size))]
    if isinstance(low, int) and isinstance(high, int):
        return str(int(rng.integers(low, high)))
    return _mock_number(low, high, int(rng.integers(_STEPS)))


def _mock_number(low: Number, high: Number, step: int) -> str:
    """A number of [low, high) with few digits: the lower edge where rounding would leave the cell."""
    text = f"{float(low) + (float(high) - float(low)) * step / _STEPS:.9g}"
    return text if low <= float(text) < high else show_number(low)
