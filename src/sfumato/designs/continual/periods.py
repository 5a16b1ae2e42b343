"""How long a stream goes on, what is asked over time, and in how many of its periods one person may be."""

from __future__ import annotations

from dataclasses import dataclass

from sfumato.designs.continual.questions import Asked, Question, asked_of, question
from sfumato.errors import PlanError
from sfumato.ground.codec import storable
from sfumato.ground.later import later
from sfumato.privacy.filters import MOST_PERIODS

__all__ = ["Periods", "periods"]

_TOTALS = (("totals", 1.0),)


@storable
@dataclass(frozen=True, slots=True)
class Periods:
    """`count` periods; a person is in at most `per_person` of them, each at least `apart` after the one before.

    What is to err little are the questions `ask`, by their weights, in the worst period or in the mean; of a stream
    that may end at any time totals, each beside what it would err if it were known to be the last. `promised`: by
    the custodian, how often a person is counted; otherwise the stream sees to it, where a column says whose row it is.
    """

    count: int
    per_person: int = 1
    apart: int = 1
    ask: tuple[tuple[str, float], ...] = later(_TOTALS)
    objective: str = later("worst")
    anytime: bool = later(False)
    promised: bool = later(False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ask", tuple((text, weight) for text, weight in self.ask))
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
        if asked_of(dict(self.ask), self.count) != self.ask:
            raise PlanError("every question over time is asked once, with its weight")
        if self.objective not in ("worst", "mean"):
            raise PlanError(f"over time the objective is 'worst' (period) or 'mean', not {self.objective!r}")
        plain = (MOST_PERIODS, 1, _TOTALS, "worst")
        if self.anytime and (self.count, self.per_person, self.ask, self.objective) != plain:
            raise PlanError(
                "periods(None), which may end at any time, is for totals and for people in one period; give a number"
            )

    @property
    def questions(self) -> tuple[tuple[Question, float], ...]:
        """What is asked, with weights that sum to 1."""
        every = sum(weight for _, weight in self.ask)
        return tuple((question(text, self.count), weight / every) for text, weight in self.ask)

    @property
    def asked(self) -> str:
        """The questions, in words."""
        if len({weight for _, weight in self.ask}) == 1:
            return ", ".join(text for text, _ in self.ask)
        return ", ".join(f"{text} (weight {weight:g})" for text, weight in self.ask)

    def describe(self) -> str:
        """One line for people."""
        if self.anytime:
            return f"as many periods as come, up to {self.count:,}, each person's rows in one of them"
        if self.per_person == 1:
            return f"{self.count:,} periods, each person's rows in one of them"
        apart = "" if self.apart == 1 else f" at least {self.apart:,} apart"
        return f"{self.count:,} periods, each person's rows in at most {self.per_person:,} of them{apart}"


def periods(
    count: int | None,
    *,
    ask: Asked = "totals",
    objective: str = "worst",
    per_person: int = 1,
    apart: int = 1,
    promised: bool = False,
) -> Periods:
    """The periods of a stream, for `sf.plan(work, budget, periods=...)`; a number alone stands for `periods(number)`.

    count: None where nobody knows how many will come: every total errs at most 1.27 times what it would if it were
    known to be the last, and after 2^20 periods another stream begins, whose totals add. ask: which answers over time
    are to err little: "totals" (so far), "increments" (single periods), "last 12", "decayed 0.99" (each period that
    much less than the one after it), "ranges" (all runs of periods), several of these, or a mapping to weights of their
    mean variances; all others are answered too. objective: "worst" is the largest error of any period (of ranges, the
    mean of those that end there), "mean" that of all of them together. Where `person=` says whose record a row is, how
    often a person is counted is enforced: rows in more periods, or in nearer ones, are left out. `promised=True` leaves
    it to whoever appends, and keeps nothing of who was in which period; a person in more periods, or in nearer ones,
    then has less privacy than the plan says. Raises PlanError.

    >>> sf.periods(365, per_person=12, apart=30).describe()
    "365 periods, each person's rows in at most 12 of them at least 30 apart"
    >>> sf.periods(520, ask={"totals": 2, "last 12": 1}, objective="mean").asked
    'totals (weight 2), last 12 (weight 1)'
    """
    many = MOST_PERIODS if count is None else count
    asked = asked_of(ask, many) if type(many) is int else _TOTALS
    return Periods(many, per_person, apart, asked, objective, count is None, promised)
