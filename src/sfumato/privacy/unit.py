"""Whose privacy is protected: the neighbour relation and what one person can contribute."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from sfumato.errors import PlanError
from sfumato.ground.codec import storable

__all__ = ["Neighbours", "PrivacyUnit"]


@storable
class Neighbours(Enum):
    """Which two tables must be hard to tell apart.

    >>> sf.Neighbours("add-remove")
    <Neighbours.ADD_REMOVE: 'add-remove'>
    >>> sf.Neighbours.parse("replace")
    Traceback (most recent call last):
        ...
    sfumato.errors.PlanError: neighbours must be 'add-remove' or 'replace-one', not 'replace'
    """

    ADD_REMOVE = "add-remove"
    REPLACE_ONE = "replace-one"

    @classmethod
    def parse(cls, given: object) -> Neighbours:
        """From its text, refused with what is allowed."""
        if isinstance(given, Neighbours):
            return given
        for member in cls:
            if given == member.value:
                return member
        raise PlanError(f"neighbours must be 'add-remove' or 'replace-one', not {given!r}")


@storable
@dataclass(frozen=True, slots=True)
class PrivacyUnit:
    """The neighbour relation, the column that names a person, and how many rows of one person are counted."""

    neighbours: Neighbours
    person: str | None = None
    rows_per_person: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "neighbours", Neighbours.parse(self.neighbours))
        c = self.rows_per_person
        if isinstance(c, bool) or not isinstance(c, int) or not 1 <= c <= 10**6:
            raise PlanError(f"rows_per_person must be a whole number from 1 to 1,000,000, not {c!r}")
        if self.person is not None and (not isinstance(self.person, str) or not self.person):
            raise PlanError(f"person must name a column, not {self.person!r}")
        if c > 1 and self.person is None:
            raise PlanError("rows_per_person above 1 needs person=, the column that says whose record a row is")

    @property
    def total_is_public(self) -> bool:
        """Whether the number of counted rows is the same for all neighbours.

        True under replace-one where the unit is a record, for every record is counted. With a person column it is not:
        any number of rows up to the limit is counted of a person, and rows that name nobody are not counted. (Rows
        that the domain drops would change it too; a plan refuses such domains.)
        """
        return self.neighbours is Neighbours.REPLACE_ONE and self.person is None

    def describe(self) -> str:
        """One line for people."""
        who = "one record" if self.person is None else f"one person (column {self.person!r})"
        rows = "" if self.rows_per_person == 1 else f" with at most {self.rows_per_person} rows"
        verb = "added or removed" if self.neighbours is Neighbours.ADD_REMOVE else "replaced by another"
        return f"{who}{rows} {verb}"
