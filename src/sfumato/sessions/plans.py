"""Everything a session decides before data: price, noises, threshold, what is promised, and what would do better."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from sfumato.domain import Domain
from sfumato.errors import PlanError
from sfumato.ground.checks import show_count
from sfumato.ground.codec import fingerprint, storable
from sfumato.ground.frames import Frame
from sfumato.privacy.accountant import Event, GaussianEvent, PureEvent, ZcdpEvent
from sfumato.privacy.budget import Budget, Currency, readable
from sfumato.privacy.conversing import Terms
from sfumato.privacy.conversions import sqrt_up
from sfumato.privacy.noise import DiscreteLaplace, NoiseLaw, RoundedGaussian
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.sessions.parameters import (
    Bounds,
    Shape,
    bounds_of,
    least_alpha,
    noise_of,
    practical,
    price_of,
    promised,
)
from sfumato.sessions.tails import farthest

__all__ = ["BETA", "QUESTIONS", "SessionPlan", "check_shape", "make_plan", "price_text"]

QUESTIONS = 10_000
BETA = 0.05
_MAX_CELLS = 10**7


@storable
@dataclass(frozen=True, eq=False, repr=False)
class SessionPlan:
    """A session of private multiplicative weights before it is opened. Holds nothing private.

    `records` is the number of records (replace-one) or a public number near it (add-remove, where the first update buys
    the number itself; for a promise the most there may be). `threshold` and `alpha` are in records; with `alpha` the
    updates are promised to last for the first `questions` questions of coefficients that span at most `span`. With
    `growing` the threshold rises once half of the updates are used up, so that the rest lasts longer.
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

    def __post_init__(self) -> None:
        if type(self.threshold) is not int or not 1 <= self.threshold < 2**53:
            raise PlanError(f"threshold must be a whole number of records from 1 up, not {self.threshold!r}")
        if self.terms.answer is None or self.terms.move != self.shape.move:
            raise PlanError("the terms of this session are not for questions of its span")
        if self.alpha is not None:
            if self.growing:
                raise PlanError("updates that are promised to last need no growing threshold")
            if promised(self.shape, self.terms)[:2] != (self.alpha, self.threshold):
                raise PlanError("these terms do not promise what the plan states; plan again")

    @property
    def mechanism(self) -> str:
        """How questions are answered."""
        return "pmw"

    @property
    def buys(self) -> bool:
        """Whether the number of records is private, so that the first update buys it."""
        return not self.unit.total_is_public

    @property
    def updates(self) -> int:
        """Hard questions that are paid for."""
        return self.terms.epochs.count - self.buys

    @property
    def shape(self) -> Shape:
        """What bounds follow from."""
        rows, beta = self.unit.rows_per_person, self.beta
        return Shape(self.domain.size, self.questions, self.records, beta, self.buys, self.span, rows)

    @functools.cached_property
    def bounds(self) -> Bounds:
        """v and g: with probability 1 - beta no easy answer errs by more than threshold + v, no hard one by more."""
        if self.alpha is not None:
            return promised(self.shape, self.terms)[2]
        return bounds_of(self.terms, self.shape.asked, self.beta)

    def threshold_after(self, used: int) -> int:
        """The threshold once so many updates are used up: from half of them on it grows, up to fourfold."""
        if not self.growing or 2 * used <= self.updates:
            return self.threshold
        return round(self.threshold * 4.0 ** (2 * used / self.updates - 1))

    @property
    def easy_bound(self) -> int:
        """How far an easy answer may be off, as long as the threshold has not grown."""
        return self.threshold + self.bounds.v

    @property
    def hard_bound(self) -> int:
        """How far a hard answer may be off."""
        return self.bounds.g

    @property
    def answer_noise(self) -> NoiseLaw:
        """The noise of hard answers."""
        if self.terms.answer is None:
            raise PlanError("these terms answer with bits alone")
        return self.terms.answer

    @property
    def refit(self) -> float:
        """The gap from which an earlier answer is fitted again.

        With a promise twice what its noise can be: no such step leads away from the table. Else its standard deviation.
        """
        if self.alpha is None:
            return math.sqrt(self.answer_noise.variance)
        return 2.0 * (self.bounds.g * (1 + self.span * self.buys) + 1)

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all that decides what is looked at."""
        return fingerprint(self)

    @functools.cached_property
    def compared(self) -> Frame:
        """Errors side by side, in records: this session, all cells measured once, every question measured by itself."""
        half = self.domain.size / 2
        pure = isinstance(self.price, PureEvent)
        cell, _ = cell_noise(self.budget, self.unit, Currency.EPSILON if pure else Currency.MU_SQUARED)
        each = math.sqrt(half) * math.sqrt(cell.variance)
        far = math.sqrt(2 * math.log(2 * self.questions / self.beta))
        single = noise_of(self.price, self.questions, self.shape.move)
        sole = float(farthest(single, self.questions, self.beta))
        return Frame(
            {
                "mechanism": ["pmw", "histogram", "each question by itself"],
                "standard_error": [None, each, math.sqrt(single.variance)],
                "bound": [float(max(self.easy_bound, self.hard_bound)), each * far, sole],
                "questions": [self.questions, None, self.questions],
                "note": [
                    "promised to last" if self.alpha is not None else self._lasting,
                    "of a question over half of all cells; any number of questions, no update ever",
                    "stops after so many",
                ],
            }
        )

    @property
    def _lasting(self) -> str:
        growing = ", growing up to fourfold with T from half of them on" if self.growing else ""
        return f"until {self.updates:,} updates are used up{growing}"

    @property
    def advice(self) -> str:
        """Which of them to take."""
        _, histogram, single = self.compared["bound"]
        ours = max(self.easy_bound, self.hard_bound)
        if min(histogram, single) <= ours:
            best = 'mechanism="histogram" errs' if histogram <= single else "a release of as many queries would err"
            return f"{best} less here, and lasts; pmw is for domains of far more cells than records allow"
        if ours >= self.records:
            return "the bound is above the number of records: this budget is too small for so few records"
        return "pmw errs least in the worst case; questions known in advance are far better released together"

    def explain(self) -> str:
        """The plan in words."""
        e, deviation = self.terms.epochs, math.sqrt(self.answer_noise.variance)
        number = "the first update buys the number of records" if self.buys else "the number of records is public"
        last = (
            f"and the updates last for the first {self.questions:,} questions"
            + (f", where there are at most {self.records:,} records" if self.buys else "")
            if self.alpha is not None
            else f"for the first {self.questions:,} questions, {self._lasting}"
        )
        lines = [
            f"Session: private multiplicative weights, {show_count(self.domain.size)} cells, {self.updates:,} updates",
            f"  protects   {self.unit.describe()}",
            f"  price      {price_text(self.price)}, debited at the opening ({self.budget})",
            f"  asks       whether the hypothesis errs by T = {self.threshold:,}; epsilon {float(e.epsilon):.4g} each",
            f"  answers    where it does, with noise of standard deviation {deviation:,.4g}",
            f"  promises   with probability {1 - self.beta:g}: easy answers within {self.easy_bound:,} records "
            f"({self.easy_bound / self.records:.3g} of {self.records:,}), hard ones within {self.hard_bound:,}, {last}",
            f"  total      {number}",
            f"  advice     {self.advice}",
            "",
            "Errors in records:",
            str(self.compared),
        ]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.explain()

    def __repr__(self) -> str:
        return f"<SessionPlan pmw: {self.updates:,} updates, threshold {self.threshold:,}>"


def price_text(event: Event) -> str:
    """A price in words."""
    match event:
        case PureEvent(epsilon=epsilon):
            return f"epsilon {readable(epsilon)}"
        case ZcdpEvent(rho=rho):
            return f"rho {readable(rho)}"
        case GaussianEvent(mu_squared=mu_squared):
            return f"mu^2 {readable(mu_squared)}"
        case _:
            return str(event)


def cell_noise(budget: Budget, unit: PrivacyUnit, currency: Currency | None = None) -> tuple[NoiseLaw, Event]:
    """The noise of less variance on all cells at once, and its price; with `currency` one that such a ledger takes."""
    both = 2 if unit.neighbours is Neighbours.REPLACE_ONE else 1
    epsilon, rows = budget.laplace_epsilon, unit.rows_per_person
    laws: list[tuple[NoiseLaw, Event]] = []
    if currency in (None, Currency.EPSILON) or budget.kind == "pure":
        laws.append((DiscreteLaplace(both * rows / epsilon), PureEvent(epsilon)))
    if budget.kind != "pure" and currency is not Currency.EPSILON:
        squared = both * rows**2 / budget.mu_squared
        laws.append((RoundedGaussian(sqrt_up(squared)), GaussianEvent(budget.mu_squared)))
    return min(laws, key=lambda law: law[0].variance)


def check_shape(
    domain: Domain, records: object, questions: object, beta: object, span: object, unit: PrivacyUnit
) -> Shape:
    """Public numbers of a session, refused with what is allowed."""
    if not isinstance(domain, Domain) or domain.size > _MAX_CELLS or domain.size < 2:
        raise PlanError(f"private multiplicative weights hold from 2 to {_MAX_CELLS:,} cells; declare a smaller domain")
    if records is None:
        raise PlanError("give records=, a public (approximate) number of records: thresholds follow from it")
    number, asked = _whole("records", records, 2**53 - 1), _whole("questions", questions, 10**9)
    wide = _whole("span", span, 2046)
    if isinstance(beta, bool) or not isinstance(beta, (int, float)) or not 1e-12 <= beta < 1:
        raise PlanError(f"beta is the probability that a bound fails, between 1e-12 and 1, not {beta!r}")
    if unit.neighbours is Neighbours.REPLACE_ONE and domain.drops:
        raise PlanError("replace-one needs every record to be counted; an attribute of this domain drops rows")
    return Shape(domain.size, asked, number, float(beta), not unit.total_is_public, wide, unit.rows_per_person)


def _whole(name: str, given: object, most: int) -> int:
    if type(given) is not int or not 1 <= given <= most:
        raise PlanError(f"{name} must be a whole number from 1 to {most:,}, not {given!r}")
    return given


def make_plan(
    domain: Domain,
    budget: Budget,
    unit: PrivacyUnit,
    shape: Shape,
    *,
    currency: Currency | None = None,
    updates: int | None = None,
    threshold: int | None = None,
    alpha: float | str | None = None,
) -> SessionPlan:
    """A plan by a promise (`alpha`, a fraction of the records, or "least") or by updates and threshold, given or usual.

    Raises PlanError for an alpha below the least that can be promised, and for one beside updates or threshold.
    """
    price = price_of(budget, currency)
    own = (domain, budget, unit, price)
    rest = (shape.records, shape.questions, shape.beta, shape.span)
    wanted = check_options(updates, threshold, alpha)
    if alpha is None:
        more = None if updates is None else updates + shape.buys
        terms, found = practical(shape, price, more, threshold)
        return SessionPlan(*own, terms, found, *rest, growing=threshold is None)
    least, terms, found = least_alpha(shape, price)
    if wanted is not None and wanted * shape.records < least:
        raise PlanError(
            f"alpha = {wanted:g} cannot be promised: the least for these cells, questions, records and budget is "
            f"{least / shape.records:.4g} (mechanisms.pmw.least_alpha); ask for 'least', or leave alpha out, and with "
            "it the promise that updates last"
        )
    return SessionPlan(*own, terms, found, *rest, least)


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
