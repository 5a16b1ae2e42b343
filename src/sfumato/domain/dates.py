"""Attributes of days: by day, week, month, quarter or year."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from typing import ClassVar, Literal

from sfumato.cells import Days, Rule
from sfumato.domain.attributes import Attribute, check_policies, check_size
from sfumato.errors import DomainError
from sfumato.ground.codec import storable
from sfumato.ground.names import shorten
from sfumato.ground.texts import day_of, fields_of

__all__ = ["PERIODS", "Dates", "shown"]

Period = Literal["day", "week", "month", "quarter", "year"]
PERIODS: tuple[Period, ...] = ("day", "week", "month", "quarter", "year")
_END = date.max.toordinal() + 1


@storable
@dataclass(frozen=True, slots=True)
class Dates(Attribute):
    """Days from `low` to `high`, both included, in cells of one period each; the first and the last may be cut.

    low, high: days as 'year-month-day', or `datetime.date`. by: 'day', 'week' (of ISO 8601, from Monday on), 'month',
    'quarter' or 'year'. format: how texts of the table write a day besides year-month-day, in %d, %m and %Y.

    A table's days and times are read, and texts that write them, maybe with a time of day. What has a distance from
    UTC counts on its day at UTC; what has none, on the day that it says. Whatever is no day of the years 1 to 9999 is
    missing. Raises DomainError.

    >>> sf.Dates("2024-11-15", "2025-01-31", by="month").labels
    ('2024-11', '2024-12', '2025-01')
    >>> sf.Dates("2024-12-29", "2025-01-06", by="week", outside="other", missing="other").labels
    ('2024-W52', '2025-W01', '2025-W02', '(other)')
    """

    kind: ClassVar[str] = "date"
    ordered: ClassVar[bool] = True
    low: str | date
    high: str | date
    by: Period = "day"
    format: str = ""
    _edges: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            object.__setattr__(self, name, _text(getattr(self, name), name))
        first, last = (date.fromisoformat(str(d)).toordinal() for d in (self.low, self.high))
        if last < first:
            raise DomainError(f"days from {self.low} to {self.high}: the range is reversed")
        if self.by not in PERIODS:
            raise DomainError(f"by={shorten(self.by)} is no period; use one of {', '.join(PERIODS)}")
        fields_of(self.format)
        check_policies(self.outside, self.missing, numeric=True)
        self.settle(alike=True)
        edges = [first]
        while edges[-1] <= last:
            edges.append(min(_next(edges[-1], self.by), last + 1))
        check_size(len(edges) - 1, f"days from {self.low} to {self.high}")
        object.__setattr__(self, "_edges", tuple(edges))

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
        return tuple(_label(day, self.by) for day in self._edges[:-1])

    def days(self, text: str) -> tuple[int, int] | None:
        """The first day of a day or of a cell's label, and the day after its last; None of what is neither."""
        day = day_of(text) if len(text) == len("2024-12-31") else None
        if day is not None:
            return day, day + 1
        labels = self.declared_labels
        return None if text not in labels else (self._edges[labels.index(text)], self._edges[labels.index(text) + 1])


def shown(day: int) -> str:
    """A day by its number, as year-month-day."""
    return date.fromordinal(min(day, _END - 1)).isoformat()


def _text(given: object, name: str) -> str:
    """A declared day as year-month-day."""
    day = given.toordinal() if type(given) is date else day_of(given) if type(given) is str else None
    if day is None or (type(given) is str and len(given) != len("2024-12-31")):
        raise DomainError(f"{name} must be a day such as '2024-12-31', not {shorten(given)}")
    return shown(day)


def _next(day: int, by: Period) -> int:
    """The first day of the period after that of a day."""
    if by == "day":
        return day + 1
    if by == "week":
        return day + 7 - (day - 1) % 7  # the first day of all was a Monday
    at = date.fromordinal(day)
    months = {"month": 1, "quarter": 3, "year": 12}[by]
    year, month = divmod(at.year * 12 + (at.month - 1) // months * months + months, 12)
    return _END if year > date.max.year else date(year, month + 1, 1).toordinal()


def _label(day: int, by: Period) -> str:
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
