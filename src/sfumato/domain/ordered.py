"""Attributes of numbers: whole numbers and bins, with coarser cells by name."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from fractions import Fraction
from typing import ClassVar, Literal, TypedDict, cast

import numpy as np
from numpy.typing import NDArray

from sfumato._util.bundles import check_text, shorten
from sfumato._util.checks import Number, check_distinct, read_number, show_number
from sfumato._util.codec import deferred_field, storable
from sfumato._util.text import date_format_fields, parse_day_number
from sfumato.cells import EDITION, Days, Edges, Rule, Wholes
from sfumato.domain.attributes import (
    MAX_CELLS,
    MAX_LEVELS,
    Attribute,
    Level,
    Missing,
    Outside,
    check_cell_limit,
    check_policies,
)
from sfumato.errors import DomainError

Levels = Mapping[str, Number | Sequence[Number]] | Sequence[tuple[str, Number | Sequence[Number]]]
"""Names of coarser cells with their width or their edges."""
_Declared = tuple[tuple[str, Number | tuple[Number, ...]], ...]


class _Policies(TypedDict):
    outside: Outside | None
    missing: Missing | None
    edition: int


def _read_level_widths(given: object) -> _Declared:
    """Declared levels as pairs of a name and a width or edges."""
    pairs = list(given.items()) if isinstance(given, Mapping) else given
    if not isinstance(pairs, (list, tuple)) or not all(isinstance(p, (list, tuple)) and len(p) == 2 for p in pairs):
        raise DomainError(f"levels are a mapping of names to widths or lists of edges, not {shorten(given)}")
    if len(pairs) > MAX_LEVELS:
        raise DomainError(f"an attribute has at most {MAX_LEVELS} levels, not {len(pairs):,}")
    read: list[tuple[str, Number | tuple[Number, ...]]] = []
    for name, value in pairs:
        check_text(name, "a level's name")
        edges = isinstance(value, Sequence) and not isinstance(value, (str, bytes))
        if edges:
            if len(value) > MAX_CELLS + 1:
                raise DomainError(f"level {name!r} has more than {MAX_CELLS:,} cells")
            read.append((name, tuple(read_number(e, f"an edge of level {name!r}") for e in value)))
        else:
            read.append((name, read_number(value, f"the width of level {name!r}")))
    check_distinct([n for n, _ in read], "levels")
    return tuple(read)


def _check_edges(name: str, edges: Sequence[Number], cells: Sequence[Number]) -> None:
    """Refuse a level that divides a cell or leaves some out."""
    strange = sorted(set(edges) - set(cells))
    if strange:
        raise DomainError(f"level {name!r} would divide a cell at {show_number(strange[0])}, which is no edge of it")
    if edges[0] != cells[0] or edges[-1] != cells[-1]:
        first, last = show_number(cells[0]), show_number(cells[-1])
        raise DomainError(f"level {name!r} must reach from {first} to {last}, as the cells do")


def _group_of_starts(edges: Sequence[Number], starts: Sequence[Number]) -> NDArray[np.int64]:
    """Between which edges every cell starts; compared in Python, where no edge is rounded."""
    return np.array([bisect_right(edges, s) - 1 for s in starts], dtype=np.int64)


def _check_levels(levels: Sequence[Level], cells: int) -> None:
    """Refuse levels that group nothing, or that group alike."""
    for i, level in enumerate(levels):
        if level.attribute.declared_size == cells:
            raise DomainError(f"level {level.name!r} groups no cells: it has {cells:,} of them, as the attribute has")
        for other in levels[:i]:
            if np.array_equal(level.groups, other.groups):
                raise DomainError(f"levels {other.name!r} and {level.name!r} group the cells alike; leave one out")


@storable
@dataclass(frozen=True, slots=True)
class Integers(Attribute):
    """Whole numbers in cells of equal width; the last cell may be narrower.

    A fraction is counted in the cell of the whole number below it.

    Args:
        low: The least number.
        high: The largest number, which is included.
        width: How many numbers a cell has.
        levels: Coarser cells by name: a width, which is a multiple of `width`, or a list of edges that ends with high +
            1.
        outside: What happens to a number outside the range: "clamp" counts it in the nearest cell, "other" in one
            extra, last cell, "drop" leaves the row out, None refuses a table of rows.
        missing: What happens to a missing value: "other", "drop" or None, in the same sense. One extra cell serves
            both.
        edition: By which rules values are read. Leave it out; attributes that version 0.2 stored keep its rules.

    Raises:
        DomainError: The range is reversed, a number is not whole or not below 2^53, there are too many cells, or a
            level divides a cell.

    >>> age = sf.Integers(0, 99, width=25)
    >>> age.labels
    ('0..24', '25..49', '50..74', '75..99')
    >>> age.midpoints
    (12.0, 37.0, 62.0, 87.0)
    >>> sf.Domain({"age": sf.Integers(0, 99, levels={"decade": 10})})["decade"].size
    10
    """

    kind: ClassVar[str] = "integer"
    ordered: ClassVar[bool] = True
    low: int
    high: int
    width: int = 1
    levels: Levels = ()

    def __post_init__(self) -> None:
        for name in ("low", "high", "width"):
            value = read_number(getattr(self, name), f"integer {name}")
            if not isinstance(value, int) or abs(value) >= 2**53:
                raise DomainError(f"integer {name} must be a whole number below 2^53, not {shorten(value)}")
            object.__setattr__(self, name, value)
        if self.high < self.low:
            raise DomainError(f"integers from {self.low} to {self.high}: the range is reversed")
        if self.width < 1:
            raise DomainError(f"width must be at least 1, not {self.width}")
        check_cell_limit(self.declared_size, f"integers from {self.low} to {self.high}")
        check_policies(self.outside, self.missing, numeric=True)
        self.settle(alike=self.outside in (None, "clamp"))
        object.__setattr__(self, "levels", _read_level_widths(self.levels))
        _check_levels(self.groupings, self.declared_size)

    @property
    def declared_levels(self) -> _Declared:
        """The names of the levels as declared, with their widths or edges."""
        return cast(_Declared, self.levels)

    @property
    def _policies(self) -> _Policies:
        return {"outside": self.outside, "missing": self.missing, "edition": self.edition}

    @property
    def groupings(self) -> tuple[Level, ...]:
        """The levels above the cells, coarsest first; none unless declared.

        Raises:
            DomainError: A level divides a cell, or its width is not a multiple of the cells'. Attributes are checked
                when they are made, so it is never raised later.
        """
        starts = [a for a, _ in self.intervals] if self.levels else []
        found: list[Level] = []
        for name, given in self.declared_levels:
            if isinstance(given, tuple):
                # the last edge is no value of the last cell, but the whole number after it
                coarse = Bins(given, outside=self.outside, missing=self.missing, edition=1)
                _check_edges(name, coarse.edges, [*starts, self.high + 1])
                groups = _group_of_starts(given, starts)
            else:
                if not isinstance(given, int) or given % self.width:
                    raise DomainError(f"level {name!r}: its width must be a multiple of {self.width}, not {given}")
                coarse = Integers(self.low, self.high, given, **self._policies)
                groups = np.arange(self.declared_size) // (given // self.width)
            found.append(Level.of(name, coarse, groups))
        return tuple(sorted(found, key=lambda level: level.attribute.size))

    @property
    def rule(self) -> Rule:
        return Wholes(kind=self.kind, low=self.low, high=self.high, width=self.width, **self._policies)

    @property
    def declared_size(self) -> int:
        return -(-(self.high - self.low + 1) // self.width)

    @property
    def intervals(self) -> tuple[tuple[Number, Number], ...]:
        starts = range(self.low, self.high + 1, self.width)
        return tuple(zip(starts, (*starts[1:], self.high + 1), strict=True))

    @property
    def declared_labels(self) -> tuple[str, ...]:
        return tuple(str(a) if b == a + 1 else f"{a}..{b - 1}" for a, b in self.intervals)

    @property
    def midpoints(self) -> tuple[float, ...]:
        if self.width == 1:
            return tuple(map(float, range(self.low, self.high + 1)))
        return tuple((a + b - 1) / 2 for a, b in self.intervals)


@storable
@dataclass(frozen=True, slots=True)
class Bins(Attribute):
    """Numbers in bins [edge, next edge), the last of which holds its upper edge too.

    `Bins.regular(low, high, width)` makes bins of equal width.

    Args:
        edges: The edges of the bins, in increasing order.
        levels: Coarser bins by name: a width, or a list of some of the edges with the first and the last.
        outside: What happens to a number outside the edges: "clamp" counts it in the nearest bin, "other" in one extra,
            last cell, "drop" leaves the row out, None refuses a table of rows.
        missing: What happens to a missing value: "other", "drop" or None, in the same sense. One extra cell serves
            both.
        edition: By which rules values are read. Leave it out; attributes that version 0.2 stored keep its rules.

    Raises:
        DomainError: The edges do not increase, there are too many bins, or a level divides a bin.

    >>> sf.Bins([0, 10_000, 25_000], outside="other", missing="other").labels
    ('[0, 10000)', '[10000, 25000]', '(other)')
    >>> sf.Bins.regular(0, 1, 0.25).edges
    (0, 0.25, 0.5, 0.75, 1)
    """

    kind: ClassVar[str] = "number"
    ordered: ClassVar[bool] = True
    edges: Sequence[Number]
    levels: Levels = ()

    def __post_init__(self) -> None:
        if isinstance(self.edges, (str, bytes)) or not hasattr(self.edges, "__iter__"):
            raise DomainError(f"edges must be a list of numbers, not {shorten(self.edges)}")
        # an endless list is cut where it is too long anyway
        edges = tuple(read_number(e, "a bin edge") for e in itertools.islice(self.edges, MAX_CELLS + 2))
        check_cell_limit(len(edges) - 1, "a list of bin edges")
        for a, b in itertools.pairwise(edges):
            if not a < b:
                raise DomainError(f"bin edges must increase: {show_number(a)} is followed by {show_number(b)}")
        check_policies(self.outside, self.missing, numeric=True)
        object.__setattr__(self, "edges", edges)
        object.__setattr__(self, "levels", _read_level_widths(self.levels))
        _check_levels(self.groupings, self.declared_size)

    @property
    def declared_levels(self) -> _Declared:
        """The names of the levels as declared, with their widths or edges."""
        return cast(_Declared, self.levels)

    @property
    def _policies(self) -> _Policies:
        return {"outside": self.outside, "missing": self.missing, "edition": self.edition}

    @property
    def groupings(self) -> tuple[Level, ...]:
        found: list[Level] = []
        for name, given in self.declared_levels:
            if isinstance(given, tuple):
                coarse = Bins(given, **self._policies)
            else:
                coarse = Bins.regular(self.edges[0], self.edges[-1], given, **self._policies)
            _check_edges(name, coarse.edges, self.edges)
            found.append(Level.of(name, coarse, _group_of_starts(coarse.edges, self.edges[:-1])))
        return tuple(sorted(found, key=lambda level: level.attribute.size))

    @property
    def rule(self) -> Rule:
        return Edges(kind=self.kind, edges=tuple(self.edges), **self._policies)

    @property
    def declared_size(self) -> int:
        return len(self.edges) - 1

    @classmethod
    def regular(
        cls,
        low: Number,
        high: Number,
        width: Number,
        outside: Outside | None = None,
        missing: Missing | None = None,
        levels: Levels = (),
        edition: int = EDITION,
    ) -> Bins:
        """Bins of equal width.

        Args:
            low: The first edge.
            high: The last edge.
            width: The width of every bin, which must divide the range.
            outside: As for `Bins`.
            missing: As for `Bins`.
            levels: As for `Bins`.
            edition: As for `Bins`.

        Returns:
            The bins.

        Raises:
            DomainError: The range is reversed, the width is not positive or does not divide the range, or there are too
                many bins.
        """
        start, stop, step = (Fraction(show_number(read_number(v, "a bin edge"))) for v in (low, high, width))
        if step <= 0 or stop <= start:
            raise DomainError(f"bins from {low} to {high} of width {width}: the range or the width is reversed")
        count = (stop - start) / step
        if count.denominator != 1:
            raise DomainError(f"width {width} does not divide the range from {low} to {high}")
        check_cell_limit(int(count), "a range of bins")
        edges = [start + step * i for i in range(int(count) + 1)]
        whole = [int(e) if e.denominator == 1 else float(e) for e in edges]
        return cls(whole, levels, outside=outside, missing=missing, edition=edition)

    @property
    def intervals(self) -> tuple[tuple[Number, Number], ...]:
        return tuple(itertools.pairwise(self.edges))

    @property
    def declared_labels(self) -> tuple[str, ...]:
        found = [f"[{show_number(a)}, {show_number(b)})" for a, b in self.intervals]
        return (*found[:-1], f"{found[-1][:-1]}]" if self.holds_last else found[-1])

    @property
    def holds_last(self) -> bool:
        """Whether the last edge is a value of the last bin: in edition 1 it was not."""
        return self.edition > 1

    @property
    def midpoints(self) -> tuple[float, ...]:
        return tuple((a + b) / 2 for a, b in self.intervals)


Period = Literal["day", "week", "month", "quarter", "year"]
PERIODS: tuple[Period, ...] = ("day", "week", "month", "quarter", "year")
_END = date.max.toordinal() + 1


@storable
@dataclass(frozen=True, slots=True)
class Dates(Attribute):
    """Days in cells of one period each, or from one given day to the next; the first and the last cell may be cut.

    Columns of days and of times are read, and texts that write them, with or without a time of day. A time with a
    distance from UTC counts on its day at UTC, one without on the day that it states. Whatever is not a day of the
    years 1 to 9999 is missing.

    Args:
        low: The first day, as 'year-month-day' or a `datetime.date`.
        high: The last day, which is included.
        by: The period of a cell: 'day', 'week' (of ISO 8601, from Monday on), 'month', 'quarter' or 'year'.
        format: How texts of the table write a day besides year-month-day, in %d, %m and %Y.
        starts: The first days of the second and all later cells, instead of a period: birthdays of those who turn 18
            on a day make groups by age of dates of birth.
        outside: What happens to a day outside the range: "clamp" counts it in the nearest cell, "other" in one extra,
            last cell, "drop" leaves the row out, None refuses a table of rows.
        missing: What happens to a missing value: "other", "drop" or None, in the same sense. One extra cell serves
            both.
        edition: By which rules values are read. Leave it out.

    Raises:
        DomainError: The range is reversed, a day, the period or the format cannot be read, there are too many cells, or
            starts do not increase within the range, or are given beside a period.

    >>> sf.Dates("2024-11-15", "2025-01-31", by="month").labels
    ('2024-11', '2024-12', '2025-01')
    >>> sf.Dates("2024-12-29", "2025-01-06", by="week", outside="other", missing="other").labels
    ('2024-W52', '2025-W01', '2025-W02', '(other)')
    >>> sf.Dates("1926-01-01", "2025-12-31", starts=["1961-01-01", "2008-01-01"]).labels
    ('1926-01-01..1960-12-31', '1961-01-01..2007-12-31', '2008-01-01..2025-12-31')
    """

    kind: ClassVar[str] = "date"
    ordered: ClassVar[bool] = True
    low: str | date
    high: str | date
    by: Period = "day"
    format: str = ""
    starts: Sequence[str | date] = deferred_field(())
    _edges: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            object.__setattr__(self, name, _read_day_text(getattr(self, name), name))
        first, last = (date.fromisoformat(str(d)).toordinal() for d in (self.low, self.high))
        if last < first:
            raise DomainError(f"days from {self.low} to {self.high}: the range is reversed")
        if self.by not in PERIODS:
            raise DomainError(f"by={shorten(self.by)} is no period; use one of {', '.join(PERIODS)}")
        date_format_fields(self.format)
        check_policies(self.outside, self.missing, numeric=True)
        self.settle(alike=True)
        edges = [first, *self._given_starts(first, last)]
        if len(edges) > 1:
            edges.append(last + 1)
        while edges[-1] <= last:
            edges.append(min(_next_period_start(edges[-1], self.by), last + 1))
        check_cell_limit(len(edges) - 1, f"days from {self.low} to {self.high}")
        object.__setattr__(self, "_edges", tuple(edges))

    def _given_starts(self, first: int, last: int) -> list[int]:
        """The numbers of the days in `starts`."""
        if isinstance(self.starts, (str, date)):
            raise DomainError(f"starts is a list of days, not {shorten(self.starts)}")
        if len(self.starts) > MAX_CELLS:
            raise DomainError(f"starts are at most {MAX_CELLS:,} days")
        object.__setattr__(self, "starts", tuple(_read_day_text(day, "a start") for day in self.starts))
        if self.starts and self.by != "day":
            raise DomainError(f"cells are those of a period or begin on given days: leave by={self.by!r} or starts out")
        days = [date.fromisoformat(str(day)).toordinal() for day in self.starts]
        if any(b <= a for a, b in itertools.pairwise([first, *days])) or max(days, default=first) > last:
            raise DomainError(
                f"starts are first days of the second and later cells: they increase, after {self.low} and up to "
                f"{self.high}, the last day"
            )
        return days

    @property
    def edges(self) -> tuple[int, ...]:
        """The number of each cell's first day, counted as `datetime.date.toordinal` does, and of the day after all."""
        return self._edges

    @property
    def rule(self) -> Rule:
        return Days(
            kind=self.kind,
            outside=self.outside,
            missing=self.missing,
            edition=self.edition,
            edges=self._edges,
            format=self.format,
        )

    @property
    def declared_size(self) -> int:
        return len(self._edges) - 1

    @property
    def declared_labels(self) -> tuple[str, ...]:
        if self.starts:
            return tuple(_span_label(a, b - 1) for a, b in itertools.pairwise(self._edges))
        return tuple(_period_label(day, self.by) for day in self._edges[:-1])

    def days(self, text: str) -> tuple[int, int] | None:
        """The days that a day or the label of a cell covers.

        Args:
            text: A day as 'year-month-day', or the label of a declared cell, such as '2024-11'.

        Returns:
            The numbers of the first day and of the day after the last, as `datetime.date.toordinal` counts them; None
            where the text is neither.
        """
        day = parse_day_number(text) if len(text) == len("2024-12-31") else None
        if day is not None:
            return day, day + 1
        labels = self.declared_labels
        return None if text not in labels else (self._edges[labels.index(text)], self._edges[labels.index(text) + 1])


def format_day(day: int) -> str:
    """A day by its number, as year-month-day."""
    return date.fromordinal(min(day, _END - 1)).isoformat()


def _read_day_text(given: object, name: str) -> str:
    """A declared day as year-month-day."""
    day = given.toordinal() if type(given) is date else parse_day_number(given) if type(given) is str else None
    if day is None or (type(given) is str and len(given) != len("2024-12-31")):
        raise DomainError(f"{name} must be a day such as '2024-12-31', not {shorten(given)}")
    return format_day(day)


def _next_period_start(day: int, by: Period) -> int:
    """The first day of the period after that of a day."""
    if by == "day":
        return day + 1
    if by == "week":
        return day + 7 - (day - 1) % 7  # the first day of all was a Monday
    at = date.fromordinal(day)
    months = {"month": 1, "quarter": 3, "year": 12}[by]
    year, month = divmod(at.year * 12 + (at.month - 1) // months * months + months, 12)
    return _END if year > date.max.year else date(year, month + 1, 1).toordinal()


def _span_label(first: int, last: int) -> str:
    return format_day(first) if first == last else f"{format_day(first)}..{format_day(last)}"


def _period_label(day: int, by: Period) -> str:
    at = date.fromordinal(day)
    if by == "week":
        year, week, _ = at.isocalendar()
        return f"{year:04}-W{week:02}"
    month = f"{at.year:04}-{at.month:02}"
    return {
        "day": at.isoformat(),
        "month": month,
        "quarter": f"{at.year:04}-Q{(at.month + 2) // 3}",
        "year": f"{at.year:04}",
    }[by]
