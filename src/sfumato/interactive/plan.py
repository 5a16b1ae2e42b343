"""Everything a session decides before data: price, noises, threshold, what is promised, and what would do better."""

from __future__ import annotations

import functools
import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sfumato._util.checks import show_count
from sfumato._util.codec import storable
from sfumato._util.description import Description, Facts, TitledTable
from sfumato._util.frames import Frame
from sfumato.domain import Domain
from sfumato.errors import PlanError
from sfumato.interactive.parameters import (
    SessionBounds,
    SessionShape,
    farthest_draw,
    noise_of_answers,
    practical_terms,
    promised_bounds,
    search_least_alpha,
    session_bounds,
)
from sfumato.plans.planned import Planned, event_price_text, protection_lines
from sfumato.privacy.accounting import Event, PureEvent
from sfumato.privacy.amounts import Currency
from sfumato.privacy.budget import Budget
from sfumato.privacy.conversation_price import Terms
from sfumato.privacy.noise import NoiseLaw
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.strategies.calibration import cheapest_noise, price_of

QUESTIONS = 10_000  # expected where none are stated; thresholds grow with its logarithm, so any near would do
BETA = 0.05  # the failure probability where none is given, as that of 95 % intervals
_MAX_CELLS = 10**7  # of the model, which every answer sums over: 80 MB, some hundredths of a second


class ConversationPlan(Planned):
    """A conversation under `terms` about a hypothesis, which answers where it errs by less than `threshold` records.

    `alpha` is in records, as `threshold` is: with it the updates are promised to last for the first `questions`
    questions, but with probability `beta`.
    """

    terms: Terms
    threshold: int
    records: int
    questions: int
    beta: float
    alpha: int | None

    def __post_init__(self) -> None:
        if type(self.threshold) is not int or not 1 <= self.threshold < 2**53:
            raise PlanError(f"threshold must be a whole number of records from 1 up, not {self.threshold!r}")
        if self.terms.answer is None or self.terms.move != self.shape.move:
            raise PlanError("the terms of this session are not for such questions")
        if self.alpha is not None and promised_bounds(self.shape, self.terms)[:2] != (self.alpha, self.threshold):
            raise PlanError("these terms do not promise what the plan states; plan again")

    @property
    @abstractmethod
    def shape(self) -> SessionShape:
        """The public numbers from which bounds follow."""

    @property
    def buys(self) -> bool:
        """Whether the number of records is private, so that the first update buys it."""
        return self.shape.buys

    @property
    def updates(self) -> int:
        """The number of hard questions that are paid for."""
        return self.terms.epochs.count - self.buys

    @functools.cached_property
    def bounds(self) -> SessionBounds:
        """v and g, from which the largest errors of answers follow.

        With probability 1 - beta no easy answer errs by more than threshold + v, and no hard one by more than g.
        """
        if self.alpha is not None:
            return promised_bounds(self.shape, self.terms)[2]
        return session_bounds(self.terms, self.shape.asked, self.beta)

    def threshold_after(self, used: int) -> int:
        """The threshold in a later state of the session.

        Args:
            used: How many updates are used up.

        Returns:
            The threshold, in records.
        """
        return self.threshold

    @property
    def easy_bound(self) -> int:
        """The largest error of an easy answer, in records, as long as the threshold has not grown."""
        return self.threshold + self.bounds.v

    @property
    def hard_bound(self) -> int:
        """The largest error of a hard answer, in records."""
        return self.bounds.g

    @property
    def answer_noise(self) -> NoiseLaw:
        """The noise of hard answers.

        Raises:
            PlanError: The terms answer with bits alone.
        """
        if self.terms.answer is None:
            raise PlanError("these terms answer with bits alone")
        return self.terms.answer

    @property
    @abstractmethod
    def off(self) -> float:
        """The largest error of what the hypothesis learns from a hard question, under a promise."""

    @property
    def refit(self) -> float:
        """The difference from which the hypothesis is fitted to an earlier answer again.

        Under a promise it is twice the largest error of that answer, so that no such step leads away from the table;
        otherwise the standard deviation of its noise.
        """
        return math.sqrt(self.answer_noise.variance) if self.alpha is None else 2.0 * self.off

    @property
    @abstractmethod
    def advice(self) -> str:
        """Another way to answer that would err less, in words, if there is one."""

    @property
    def lasting(self) -> str:
        """How long bounds hold where it is not promised that updates last, in words."""
        return f"until {self.updates:,} updates are used up"

    def promise(self) -> str:
        """What is promised of answers, in words.

        Returns:
            The bounds and their probability.
        """
        easy = f"easy answers within {self.easy_bound:,} records ({self.easy_bound / self.records:.3g} of "
        return f"with probability {1 - self.beta:g}: {easy}{self.records:,}), hard ones within {self.hard_bound:,}"

    def opening(self) -> Iterator[tuple[str, str]]:
        """What is protected, and the price, as lines of the explanation.

        Returns:
            Pairs of a heading and a text.
        """
        yield from protection_lines(self.unit, self.price)
        yield "price", f"{event_price_text(self.price)}, debited at the opening ({self.budget})"

    def brief(self) -> str:
        return f"{self.mechanism}: {self.updates:,} updates, threshold {self.threshold:,}"


@storable
@dataclass(frozen=True, eq=False, repr=False)
class SessionPlan(ConversationPlan):
    """A session of private multiplicative weights before it is opened. Holds nothing private.

    Args:
        domain: The attributes that questions are about.
        budget: The budget that all answers together keep.
        unit: Whose privacy is protected.
        price: What a ledger is charged at the opening.
        terms: What is paid for every question, and the noise.
        threshold: The error, in records, from which a question is hard.
        records: The number of records under replace-one; under add-remove a public number near it (the first update
            buys the number itself), and for a promise the most that there may be.
        questions: For how many questions bounds hold.
        beta: The probability that a bound fails.
        span: How far apart the coefficients of a question may be.
        alpha: The promised error in records, or None. With it the updates last for the first `questions` questions.
        growing: Whether the threshold rises once half of the updates are used up, so that the rest lasts longer.

    Raises:
        PlanError: The numbers contradict each other.

    Source:
        [HR10]
    """

    domain: Domain
    budget: Budget
    unit: PrivacyUnit
    price: Event
    terms: Terms
    threshold: int
    records: int
    questions: int
    beta: float
    span: int = 1
    alpha: int | None = None
    growing: bool = False

    mechanism = "pmw"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.alpha is not None and self.growing:
            raise PlanError("updates that are promised to last need no growing threshold")

    @property
    def shape(self) -> SessionShape:
        rows, buys = self.unit.rows_per_person, not self.unit.total_is_public
        return SessionShape(self.domain.size, self.questions, self.records, self.beta, buys, self.span, rows)

    def threshold_after(self, used: int) -> int:
        """The threshold in a later state of the session.

        With `growing` it rises from half of the updates on, up to fourfold.

        Args:
            used: How many updates are used up.

        Returns:
            The threshold, in records.
        """
        if not self.growing or 2 * used <= self.updates:
            return self.threshold
        return round(self.threshold * 4.0 ** (2 * used / self.updates - 1))

    @property
    def off(self) -> float:
        return self.bounds.g * (1 + self.span * self.buys) + 1

    @functools.cached_property
    def compared(self) -> Frame:
        """Errors side by side, in records: this session, all cells measured once, every question measured by itself."""
        half = self.domain.size / 2
        pure = isinstance(self.price, PureEvent)
        cell, _ = cell_noise(self.budget, self.unit, Currency.EPSILON if pure else Currency.MU_SQUARED)
        each = math.sqrt(half) * math.sqrt(cell.variance)
        far = math.sqrt(2 * math.log(2 * self.questions / self.beta))
        single = noise_of_answers(self.price, self.questions, self.shape.move)
        sole = float(farthest_draw(single, self.questions, self.beta))
        return Frame(
            {
                "mechanism": ["pmw", "histogram", "each question by itself"],
                "standard_error": [None, each, math.sqrt(single.variance)],
                "bound": [float(max(self.easy_bound, self.hard_bound)), each * far, sole],
                "questions": [self.questions, None, self.questions],
                "note": [
                    "promised to last" if self.alpha is not None else self.lasting,
                    "of a question over half of all cells; any number of questions, no update ever",
                    "stops after so many",
                ],
            }
        )

    @property
    def lasting(self) -> str:
        growing = ", growing up to fourfold with T from half of them on" if self.growing else ""
        return f"{super().lasting}{growing}"

    @property
    def advice(self) -> str:
        """Which mechanism errs least here, in words."""
        _, histogram, single = self.compared["bound"]
        ours = max(self.easy_bound, self.hard_bound)
        if min(histogram, single) <= ours:
            best = 'mechanism="histogram" errs' if histogram <= single else "a release of as many queries would err"
            return f"{best} less here, and lasts; pmw is for domains of far more cells than records allow"
        if ours >= self.records:
            return "the bound is above the number of records: this budget is too small for so few records"
        return "pmw errs least in the worst case; questions known in advance are far better released together"

    def describe(self) -> Description:
        cells = f"{show_count(self.domain.size)} cells, {self.updates:,} updates"
        headline = f"Session: private multiplicative weights, {cells}"
        return Description(headline, [Facts(tuple(self._lines())), TitledTable("Errors in records", self.compared)])

    def _lines(self) -> Iterator[tuple[str, str]]:
        e, deviation = self.terms.epochs, math.sqrt(self.answer_noise.variance)
        last = f"for the first {self.questions:,} questions, {self.lasting}"
        if self.alpha is not None:
            last = f"and the updates last for the first {self.questions:,} questions"
            last += f", where there are at most {self.records:,} records" if self.buys else ""
        yield from self.opening()
        yield from self.domain.told()
        yield "asks", f"whether the hypothesis errs by T = {self.threshold:,}; epsilon {float(e.epsilon):.4g} each"
        yield "answers", f"where it does, with noise of standard deviation {deviation:,.4g}"
        yield "promises", f"{self.promise()}, {last}"
        bought = "the first update buys the number of records"
        yield "total", bought if self.buys else "the number of records is public"
        yield "advice", self.advice


def cell_noise(budget: Budget, unit: PrivacyUnit, currency: Currency | None = None) -> tuple[NoiseLaw, Event]:
    """The noise of less variance on all cells at once, and its price; with `currency` one that such a ledger takes."""
    both = 2 if unit.neighbours is Neighbours.REPLACE_ONE else 1
    return cheapest_noise(budget, both * unit.rows_per_person, both * unit.rows_per_person**2, currency)


def check_shape(
    domain: Domain, records: object, questions: object, beta: object, span: object, unit: PrivacyUnit
) -> SessionShape:
    """Public numbers of a session, refused with what is allowed."""
    if not isinstance(domain, Domain) or domain.size > _MAX_CELLS or domain.size < 2:
        raise PlanError(f"private multiplicative weights hold from 2 to {_MAX_CELLS:,} cells; declare a smaller domain")
    if records is None:
        raise PlanError("give records=, a public (approximate) number of records: thresholds follow from it")
    number, asked = check_whole("records", records, 2**53 - 1), check_whole("questions", questions, 10**9)
    wide, sure = check_whole("span", span, 2046), check_beta(beta)
    if unit.neighbours is Neighbours.REPLACE_ONE and domain.drops:
        raise PlanError("replace-one needs every record to be counted; an attribute of this domain drops rows")
    return SessionShape(domain.size, asked, number, sure, not unit.total_is_public, wide, unit.rows_per_person)


def check_whole(name: str, given: object, most: int) -> int:
    """A whole number from 1 up. Raises PlanError."""
    if type(given) is not int or not 1 <= given <= most:
        raise PlanError(f"{name} must be a whole number from 1 to {most:,}, not {given!r}")
    return given


def check_beta(beta: object) -> float:
    """The probability that a bound fails. Raises PlanError."""
    if isinstance(beta, bool) or not isinstance(beta, (int, float)) or not 1e-12 <= beta < 1:
        raise PlanError(f"beta is the probability that a bound fails, between 1e-12 and 1, not {beta!r}")
    return float(beta)


def make_plan(
    domain: Domain,
    budget: Budget,
    unit: PrivacyUnit,
    shape: SessionShape,
    *,
    currency: Currency | None = None,
    **options: Any,
) -> SessionPlan:
    """A plan by a promise (`alpha`, a fraction of the records, or "least") or by updates and threshold, given or usual.

    Raises PlanError for an alpha below the least that can be promised, and for one beside updates or threshold.
    """
    price = price_of(budget, currency)
    terms, threshold, alpha = settle_terms(shape, price, **options)
    grows = alpha is None and options.get("threshold") is None
    own = (domain, budget, unit, price, terms, threshold)
    return SessionPlan(*own, shape.records, shape.questions, shape.beta, shape.span, alpha, grows)


def settle_terms(
    shape: SessionShape,
    price: Event,
    *,
    updates: int | None = None,
    threshold: int | None = None,
    alpha: float | str | None = None,
) -> tuple[Terms, int, int | None]:
    """(terms, threshold, alpha in records or None) by a promise, or by updates and threshold as given or usual."""
    wanted = check_options(updates, threshold, alpha)
    if alpha is None:
        return *practical_terms(shape, price, None if updates is None else updates + shape.buys, threshold), None
    least, terms, found = search_least_alpha(shape, price)
    if wanted is not None and wanted * shape.records < least:
        raise PlanError(
            f"alpha = {wanted:g} cannot be promised: the least for these cells, questions, records and budget is "
            f"{least / shape.records:.4g}; ask for 'least', or leave alpha out, and with it the promise that updates "
            "last"
        )
    return terms, found, least


def check_options(updates: object, threshold: object, alpha: object) -> float | None:
    """The fraction that `alpha` asks for, None for the least or for no promise. Raises PlanError for what cannot be."""
    for name, given in (("updates", updates), ("threshold", threshold)):
        if given is not None and (type(given) is not int or not 1 <= given < 2**53):
            raise PlanError(f"{name} must be a whole number from 1 up, not {given!r}")
    if alpha is not None and (updates is not None or threshold is not None):
        raise PlanError("alpha sets the updates and the threshold: give alpha=, or updates= and threshold=")
    if alpha in (None, "least"):
        return None
    if isinstance(alpha, bool) or not isinstance(alpha, (int, float)) or not 0 < alpha < 1:
        raise PlanError(f"alpha is a fraction of the records between 0 and 1, or 'least', not {alpha!r}")
    return float(alpha)
