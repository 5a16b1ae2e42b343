"""How long a stream goes on, what is asked over time, and in how many of its periods one person may be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from sfumato._util.codec import deferred_field, storable
from sfumato.errors import PlanError
from sfumato.operators.base import FloatArray
from sfumato.privacy.stream_price import MOST_PERIODS
from sfumato.privacy.unit import PrivacyUnit
from sfumato.workloads.reading import Section

Asked = str | Sequence[str] | Mapping[str, float]
_MOST_WEIGHT = 10**9  # of a question; far apart as these are, the lesser has no influence


@dataclass(frozen=True, slots=True)
class TimeQuestion:
    """The sum of all periods so far, each `rate` times less than the one after it, or of the `last` alone.

    With `ranges` the sums of all runs of periods that end there.

    Args:
        rate: What each period counts of the one after it, from 0 to 1.
        last: How many periods are summed; all if None.
        ranges: Whether all runs of periods are asked.
    """

    rate: float = 1.0
    last: int | None = None
    ranges: bool = False

    def weights(self, periods: int) -> FloatArray:
        """How the periods count at the last of them.

        Args:
            periods: Their number.

        Returns:
            (periods,) weights, the oldest first.

        Raises:
            PlanError: Ranges are asked, which are several questions.
        """
        if self.ranges:
            raise PlanError("ranges are many questions; say one by plan.between(first, last)")
        lags = np.arange(periods)[::-1]
        return np.where(lags < (self.last or periods), self.rate**lags, 0.0)

    def matrix(self, n: int) -> FloatArray:
        """The question at every period.

        Args:
            n: The number of periods.

        Returns:
            (n, n) in every row the weights of the periods up to one, and 0 after it.

        Raises:
            PlanError: Ranges are asked, which are several questions.
        """
        lags = np.subtract.outer(np.arange(n), np.arange(n))
        return np.where(lags >= 0, self.weights(n)[::-1][np.maximum(lags, 0)], 0.0)

    def gram(self, n: int) -> FloatArray:
        """The mean over all its questions q of q' q.

        Args:
            n: The number of periods.

        Returns:
            (n, n) a symmetric matrix.
        """
        first, second = np.indices((n, n))
        low, high = np.minimum(first, second), np.maximum(first, second)
        if self.ranges:
            return 2.0 * (low + 1) * (n - high) / (n * (n + 1))
        if self.last is not None:
            return np.maximum(0, np.minimum(low + self.last, n) - high) / n
        if self.rate == 1.0:
            return (n - high) / n
        # sum_(t >= high) rate^(2 t - low - high)
        every = (1 - self.rate ** (2.0 * (n - high))) / (1 - self.rate**2)
        return self.rate ** (high - low) * every / n


def parse_question(text: str, periods: int) -> TimeQuestion:
    """From words; raises PlanError for others, and for more periods than there are."""
    match text.split() if isinstance(text, str) else []:
        case ["totals"]:
            return TimeQuestion()
        case ["increments"]:
            return TimeQuestion(rate=0.0)
        case ["ranges"]:
            return TimeQuestion(ranges=True)
        case ["last", many] if many.isdecimal() and 1 <= int(many) <= periods:
            return TimeQuestion(last=int(many))
        case ["decayed", rate] if _is_rate_between(rate):
            return TimeQuestion(rate=float(rate))
        case _:
            raise PlanError(
                f"a question over time is 'totals', 'increments', 'ranges', 'last 12' (up to {periods:,} periods) or "
                f"'decayed 0.99' (each period that much less than the one after it), not {text!r}"
            )


def _is_rate_between(rate: str) -> bool:
    try:
        return 0 < Fraction(rate) < 1
    except (ValueError, ZeroDivisionError):
        return False


def read_questions(given: Asked, periods: int) -> tuple[tuple[str, float], ...]:
    """Questions with the weights of their mean variances, from one, several or a mapping. Raises PlanError."""
    if not isinstance(given, str | Sequence | Mapping):
        raise PlanError(f"ask= has one question over time or several, or weights by question, not {given!r}")
    weighed = {given: 1.0} if isinstance(given, str) else given
    pairs = list(weighed.items()) if isinstance(weighed, Mapping) else [(text, 1.0) for text in weighed]
    if not pairs or len({text for text, _ in pairs}) < len(pairs):
        raise PlanError("ask= has one question over time or several, each once")
    for text, weight in pairs:
        parse_question(text, periods)
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight <= _MOST_WEIGHT:
            raise PlanError(f"the weight of {text!r} is above 0 and at most {_MOST_WEIGHT:,}, not {weight!r}")
    return tuple((text, float(weight)) for text, weight in pairs)


_TOTALS = (("totals", 1.0),)


@storable
@dataclass(frozen=True, slots=True)
class Periods:
    """The periods of a stream, what is asked over time, and in how many of its periods one person may be.

    `sf.periods` makes them.

    Args:
        count: How many periods there are.
        per_person: In how many periods the rows of one person may be.
        apart: The least distance between two periods of one person.
        ask: The questions over time that are to err little, with their weights.
        objective: "worst" or "mean", over periods.
        anytime: Whether the stream may end at any time: it is planned for totals, each beside what it would err if it
            were known to be the last.
        promised: Whether whoever appends sees to it how often a person is counted; otherwise the stream does, where a
            column says whose row it is.

    Raises:
        PlanError: A number or a question is not allowed, or options contradict each other.
    """

    count: int
    per_person: int = 1
    apart: int = 1
    ask: tuple[tuple[str, float], ...] = deferred_field(_TOTALS)
    objective: str = deferred_field("worst")
    anytime: bool = deferred_field(False)
    promised: bool = deferred_field(False)

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
        if read_questions(dict(self.ask), self.count) != self.ask:
            raise PlanError("every question over time is asked once, with its weight")
        if self.objective not in ("worst", "mean"):
            raise PlanError(f"over time the objective is 'worst' (period) or 'mean', not {self.objective!r}")
        plain = (MOST_PERIODS, 1, _TOTALS, "worst")
        if self.anytime and (self.count, self.per_person, self.ask, self.objective) != plain:
            raise PlanError(
                "periods(None), which may end at any time, is for totals and for people in one period; give a number"
            )

    @property
    def questions(self) -> tuple[tuple[TimeQuestion, float], ...]:
        """The questions over time, with weights that sum to 1."""
        every = sum(weight for _, weight in self.ask)
        return tuple((parse_question(text, self.count), weight / every) for text, weight in self.ask)

    @property
    def asked(self) -> str:
        """The questions, in words."""
        if len({weight for _, weight in self.ask}) == 1:
            return ", ".join(text for text, _ in self.ask)
        return ", ".join(f"{text} (weight {weight:g})" for text, weight in self.ask)

    def describe(self) -> str:
        """The declaration in words.

        Returns:
            One line for people.
        """
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

    Args:
        count: How many periods there are, up to 2^20. None where nobody knows: every total then errs at most 1.27 times
            as much as if it were known to be the last, and after 2^20 periods another stream begins, whose totals add
            to those of this one.
        ask: Which answers over time are to err little: "totals" (so far), "increments" (single periods), "last 12",
            "decayed 0.99" (each period counts that much less than the one after it), "ranges" (all runs of periods),
            several of these, or a mapping to weights of their mean variances. All others are answered too.
        objective: "worst" minimises the largest error of any period (of ranges, the mean of those that end there),
            "mean" that of all periods together.
        per_person: In how many periods the rows of one person may be. Above 1 the plan needs `person`.
        apart: The least distance between two periods of one person.
        promised: False: the stream itself leaves out rows of a person in more periods, or in nearer ones, wherever
            `person` says whose record a row is. True: whoever appends sees to it, and nothing is kept of who was in
            which period; a person in more periods, or in nearer ones, then has less privacy than the plan says.

    Returns:
        The declaration, which `sf.plan` takes.

    Raises:
        PlanError: An option is not allowed, or options contradict each other.

    >>> sf.periods(365, per_person=12, apart=30).describe()
    "365 periods, each person's rows in at most 12 of them at least 30 apart"
    >>> sf.periods(520, ask={"totals": 2, "last 12": 1}, objective="mean").asked
    'totals (weight 2), last 12 (weight 1)'
    """
    many = MOST_PERIODS if count is None else count
    asked = read_questions(ask, many) if type(many) is int else _TOTALS
    return Periods(many, per_person, apart, asked, objective, count is None, promised)


_KEYS = ("periods", "ask", "objective", "periods_per_person", "apart", "promised")


def read_stream_section(root: Section, unit: PrivacyUnit) -> Periods | None:
    """What stands under [stream], or None where nothing does. Raises SpecError with the line."""
    if "stream" not in root:
        return None
    given = root.section("stream")
    given.allow(*_KEYS)
    given.need("periods", 'it is how many are paid for, such as 104 for two years of weeks, or "unknown"')
    unknown = given.raw("periods") == "unknown"
    count = None if unknown else given.whole("periods") or 0
    each, apart, objective = given.whole("periods_per_person"), given.whole("apart"), given.text("objective")
    if each is not None and each > 1 and unit.person is None:
        raise given.refuse(
            "whoever is in several periods is a person: name the column that says whose record a row is, as person "
            "under [privacy]",
            "periods_per_person",
        )
    promised, ask = given.raw("promised"), given.raw("ask")
    if isinstance(ask, dict):
        ask = {text: float(weight) if isinstance(weight, Decimal) else weight for text, weight in ask.items()}
    options = {"per_person": each, "apart": apart, "objective": objective, "promised": promised, "ask": ask}
    chosen: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    # a refusal is of the last key that is there, of those that it may be about
    at = [key for key in ("ask", "objective", "apart", "periods_per_person", "periods") if key in given]
    with given.guard(at[0]):
        return periods(count, **chosen)
