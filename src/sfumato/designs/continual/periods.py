"""How long a stream goes on, and in how many of its periods one person may be."""

from __future__ import annotations

from dataclasses import dataclass

from sfumato.errors import PlanError
from sfumato.ground.codec import storable
from sfumato.ground.later import later
from sfumato.privacy.filters import MOST_PERIODS

__all__ = ["Periods", "periods"]


@storable
@dataclass(frozen=True, slots=True)
class Periods:
    """`count` periods; a person is in at most `per_person` of them, each at least `apart` after the one before.

    `promised`: by the custodian; otherwise the stream sees to it, where a column says whose record a row is.
    """

    count: int
    per_person: int = 1
    apart: int = 1
    promised: bool = later(False)

    def __post_init__(self) -> None:
        for name, most in (("count", MOST_PERIODS), ("per_person", self.count), ("apart", self.count)):
            given = getattr(self, name)
            if type(given) is not int or not 1 <= given <= most:
                raise PlanError(f"{name} of periods must be a whole number from 1 to {most:,}, not {given!r}")
        if type(self.promised) is not bool:
            raise PlanError(f"promised is True or False, not {self.promised!r}")
        if self.per_person == 1 and self.apart != 1:
            raise PlanError(
                "apart= says how far apart a person's periods are, and per_person=1 allows one; leave it out"
            )
        if (self.per_person - 1) * self.apart >= self.count:
            raise PlanError(
                f"nobody can be in {self.per_person:,} of {self.count:,} periods, {self.apart:,} apart; give fewer"
            )

    def describe(self) -> str:
        """One line for people."""
        if self.per_person == 1:
            return f"{self.count:,} periods, each person's rows in one of them"
        apart = "" if self.apart == 1 else f" at least {self.apart:,} apart"
        return f"{self.count:,} periods, each person's rows in at most {self.per_person:,} of them{apart}"


def periods(count: int, *, per_person: int = 1, apart: int = 1, promised: bool = False) -> Periods:
    """The periods of a stream, for `sf.plan(work, budget, periods=...)`; a number alone stands for `periods(number)`.

    Where `person=` says whose record a row is, that is enforced: rows of a person in more periods, or in nearer ones,
    are left out. `promised=True` leaves it to whoever appends, and keeps nothing of who was in which period; a person
    in more periods, or in nearer ones, then has less privacy than the plan says. Raises PlanError.

    >>> sf.periods(365, per_person=12, apart=30).describe()
    "365 periods, each person's rows in at most 12 of them at least 30 apart"
    """
    return Periods(count, per_person, apart, promised)
