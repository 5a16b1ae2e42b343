"""Sessions over universes of keys before they are opened: the lazy histogram, and sparse multiplicative weights."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from sfumato.errors import BudgetError, PlanError
from sfumato.ground.codec import fingerprint, storable
from sfumato.privacy.accountant import Event
from sfumato.privacy.amounts import Currency
from sfumato.privacy.budget import Budget
from sfumato.privacy.conversing import Terms
from sfumato.privacy.noise import DiscreteLaplace, NoiseLaw
from sfumato.privacy.unit import PrivacyUnit
from sfumato.sessions.parameters import Bounds, Shape, bounds_of, least_alpha, practical, price_of, promised
from sfumato.sessions.plans import QUESTIONS, cell_noise, price_text
from sfumato.sketches import Keys

__all__ = ["HistogramPlan", "SparsePlan", "plan_histogram", "plan_sparse"]

_MOST_UPDATES = 10**5


@storable
@dataclass(frozen=True, eq=False, repr=False)
class HistogramPlan:
    """A session that gives every key noise once, when it is first asked for. Holds nothing private."""

    keys: Keys
    budget: Budget
    unit: PrivacyUnit
    price: Event
    noise: NoiseLaw

    @property
    def mechanism(self) -> str:
        """How questions are answered."""
        return "histogram"

    def error(self, size: float) -> float:
        """The standard error, in records, of a question of `size` keys of weight 1 (or that sum of squared weights)."""
        return math.sqrt(size * self.noise.variance)

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all that decides what is looked at."""
        return fingerprint(self)

    def explain(self) -> str:
        """The plan in words."""
        law = "discrete Laplace" if isinstance(self.noise, DiscreteLaplace) else "rounded Gaussian"
        errors = ", ".join(f"{self.error(m):,.4g} ({m:,})" for m in (1, 16, 256))
        return "\n".join(
            [
                f"Session: lazy histogram over {self.keys.describe()}",
                f"  protects   {self.unit.describe()}",
                f"  price      {price_text(self.price)}, debited at the opening ({self.budget})",
                f"  answers    any number of questions; {law} noise of standard deviation "
                f"{math.sqrt(self.noise.variance):,.4g} on each key, drawn once",
                f"  error      {errors}: standard error in records, of questions of so many keys",
            ]
        )

    def __str__(self) -> str:
        return self.explain()

    def __repr__(self) -> str:
        return f"<HistogramPlan: {math.sqrt(self.noise.variance):,.4g} records a key>"


@storable
@dataclass(frozen=True, eq=False, repr=False)
class SparsePlan:
    """A session of sparse multiplicative weights [BR11]. Holds nothing private.

    Questions have at most `size` keys. `records` is a public number that the records do not exceed; what is missing
    counts as records without a key. `threshold` and `alpha` are in records; with `alpha` the updates are promised to
    last.
    """

    keys: Keys
    budget: Budget
    unit: PrivacyUnit
    price: Event
    terms: Terms
    threshold: int
    records: int
    size: int
    questions: int
    beta: float
    alpha: int | None = None

    def __post_init__(self) -> None:
        if type(self.threshold) is not int or not 1 <= self.threshold < 2**53:
            raise PlanError(f"threshold must be a whole number of records from 1 up, not {self.threshold!r}")
        if self.terms.answer is None or self.terms.move != self.unit.rows_per_person:
            raise PlanError("the terms of this session are not for sets of keys")
        if self.alpha is not None:
            shape = _shape(self.size, self.records, self.questions, self.beta, self.unit)
            if promised(shape, self.terms)[:2] != (self.alpha, self.threshold):
                raise PlanError("these terms do not promise what the plan states; plan again")

    @property
    def mechanism(self) -> str:
        """How questions are answered."""
        return "sparse-mw"

    @property
    def updates(self) -> int:
        """Hard questions that are paid for."""
        return self.terms.epochs.count

    @property
    def slots(self) -> int:
        """Keys that updates can name."""
        return self.size * self.updates

    @functools.cached_property
    def bounds(self) -> Bounds:
        """v and g: with probability 1 - beta no easy answer errs by more than threshold + v, no hard one by over g."""
        if self.alpha is not None:
            return promised(_shape(self.size, self.records, self.questions, self.beta, self.unit), self.terms)[2]
        return bounds_of(self.terms, self.questions, self.beta)

    @property
    def easy_bound(self) -> int:
        """How far an easy answer may be off."""
        return self.threshold + self.bounds.v

    @property
    def hard_bound(self) -> int:
        """How far a hard answer may be off."""
        return self.bounds.g

    @property
    def refit(self) -> float:
        """The gap from which an earlier answer is fitted again.

        With a promise twice what its noise can be: no such step leads away from the table. Else its standard deviation.
        """
        noise = self.terms.answer
        return 0.0 if noise is None else math.sqrt(noise.variance) if self.alpha is None else 2.0 * self.bounds.g + 1

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all that decides what is looked at."""
        return fingerprint(self)

    @property
    def advice(self) -> str:
        """How it compares with the lazy histogram at the same budget."""
        noise, _ = cell_noise(self.budget, self.unit)
        other = math.sqrt(self.size * noise.variance)
        far = other * math.sqrt(2 * math.log(2 * self.questions / self.beta))
        if far < max(self.easy_bound, self.hard_bound):
            return (
                f'mechanism="histogram" errs less here: {other:,.4g} records as a standard error, about {far:,.4g} at '
                "worst over as many questions, and it never ends"
            )
        return f'mechanism="histogram" would err by about {far:,.4g} records at worst over as many questions'

    def explain(self) -> str:
        """The plan in words."""
        last = "and the updates last" if self.alpha is not None else f"until {self.updates:,} updates are used up"
        return "\n".join(
            [
                f"Session: sparse multiplicative weights over {self.keys.describe()}",
                f"  protects   {self.unit.describe()}",
                f"  price      {price_text(self.price)}, debited at the opening ({self.budget})",
                f"  asks       whether the hypothesis errs by {self.threshold:,} records, of up to {self.size:,} keys",
                f"  promises   with probability {1 - self.beta:g}: easy answers within {self.easy_bound:,} records "
                f"({self.easy_bound / self.records:.3g} of {self.records:,}), hard ones within {self.hard_bound:,}, "
                f"for the first {self.questions:,} questions, {last}",
                f"  advice     {self.advice}",
            ]
        )

    def __str__(self) -> str:
        return self.explain()

    def __repr__(self) -> str:
        return f"<SparsePlan: {self.updates:,} updates, threshold {self.threshold:,}>"


def plan_histogram(keys: Keys, budget: Budget, unit: PrivacyUnit, *, currency: Currency | None = None) -> HistogramPlan:
    """A plan of a lazy histogram; `currency` is that of the ledger that will pay."""
    noise, price = cell_noise(budget, unit, currency)
    return HistogramPlan(keys, budget, unit, price, noise)


def plan_sparse(
    keys: Keys,
    budget: Budget,
    unit: PrivacyUnit,
    *,
    records: int | None,
    size: int | None,
    questions: int = QUESTIONS,
    beta: float = 0.05,
    currency: Currency | None = None,
    updates: int | None = None,
    threshold: int | None = None,
    alpha: float | str | None = None,
) -> SparsePlan:
    """A plan by a promise (`alpha`, a fraction of the records, or "least") or by updates and threshold, given or usual.

    Raises PlanError for numbers out of range and for an alpha below the least that can be promised.
    """
    records, size = _whole("records", records, 2**53 - 1), _whole("size", size, 2**22)
    questions = _whole("questions", questions, 10**9)
    if isinstance(beta, bool) or not isinstance(beta, (int, float)) or not 1e-12 <= beta < 1:
        raise PlanError(f"beta is the probability that a bound fails, between 1e-12 and 1, not {beta!r}")
    try:
        price = price_of(budget, currency)
    except BudgetError as error:
        raise PlanError(f"this ledger cannot pay for a session from {budget}: {error}") from None
    shape = _shape(size, records, questions, float(beta), unit)
    own, rest = (keys, budget, unit, price), (records, size, questions, float(beta))
    if alpha is None:
        for name, given in (("updates", updates), ("threshold", threshold)):
            if given is not None and (type(given) is not int or not 1 <= given < 2**53):
                raise PlanError(f"{name} must be a whole number from 1 up, not {given!r}")
        terms, found = practical(shape, price, updates, threshold)
        return SparsePlan(*own, terms, found, *rest)
    if updates is not None or threshold is not None:
        raise PlanError("alpha sets the updates and the threshold: give alpha=, or updates= and threshold=")
    least, terms, found = least_alpha(shape, price)
    if alpha != "least":
        if isinstance(alpha, (bool, str)) or not isinstance(alpha, (int, float)) or not 0 < alpha < 1:
            raise PlanError(f"alpha is a fraction of the records between 0 and 1, or 'least', not {alpha!r}")
        if alpha * records < least:
            raise PlanError(
                f"alpha = {alpha:g} cannot be promised: the least for these questions, records and budget is "
                f"{least / records:.4g}; ask for 'least', or without alpha for no promise that updates last"
            )
    return SparsePlan(*own, terms, found, *rest, least)


def _shape(size: int, records: int, questions: int, beta: float, unit: PrivacyUnit) -> Shape:
    """What bounds follow from: 2 s L virtual cells, whatever the number of updates L will be."""
    return Shape(2 * size * _MOST_UPDATES, questions, records, beta, buys=False, rows=unit.rows_per_person)


def _whole(name: str, given: object, most: int) -> int:
    if type(given) is not int or not 1 <= given <= most:
        what = {
            "records": ", a public number that the records do not exceed",
            "size": ", the most keys of a question",
        }.get(name, "")
        raise PlanError(
            f"sparse-mw needs {name}={what}: a whole number from 1 to {most:,}, not {given!r}. "
            "mechanism='histogram' needs none, and errs less"
        )
    return given
