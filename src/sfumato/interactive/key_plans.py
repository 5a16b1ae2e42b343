"""Sessions over universes of keys before they are opened: the lazy histogram, and sparse multiplicative weights."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sfumato._util.codec import storable
from sfumato._util.description import Description, Facts
from sfumato.errors import BudgetError, PlanError
from sfumato.interactive.parameters import SessionShape
from sfumato.interactive.plan import (
    BETA,
    QUESTIONS,
    ConversationPlan,
    cell_noise,
    check_beta,
    check_whole,
    settle_terms,
)
from sfumato.plans.keys import law_name
from sfumato.plans.planned import Planned, event_price_text, protection_lines
from sfumato.privacy.accounting import Event
from sfumato.privacy.amounts import Currency
from sfumato.privacy.budget import Budget
from sfumato.privacy.conversation_price import Terms
from sfumato.privacy.noise import NoiseLaw
from sfumato.privacy.unit import PrivacyUnit
from sfumato.sketches import Keys
from sfumato.strategies.calibration import price_of

_MOST_UPDATES = 10**5  # that a session may be promised for, as in `parameters`


@storable
@dataclass(frozen=True, eq=False, repr=False)
class HistogramPlan(Planned):
    """A session that gives every key noise once, when it is first asked for. Holds nothing private.

    Args:
        keys: Which keys there are.
        budget: The budget that all answers together keep.
        unit: Whose privacy is protected.
        price: What a ledger is charged at the opening.
        noise: The law of the noise of a key.
    """

    keys: Keys
    budget: Budget
    unit: PrivacyUnit
    price: Event
    noise: NoiseLaw

    mechanism = "histogram"

    def error(self, size: float) -> float:
        """The standard error of a question.

        Args:
            size: The number of its keys, each of weight 1; with weights the sum of their squares.

        Returns:
            The standard error, in records.
        """
        return math.sqrt(size * self.noise.variance)

    def describe(self) -> Description:
        return Description(f"Session: lazy histogram over {self.keys.describe()}", [Facts(tuple(self._lines()))])

    def _lines(self) -> Iterator[tuple[str, str]]:
        errors = ", ".join(f"{self.error(m):,.4g} ({m:,})" for m in (1, 16, 256))
        noise = f"{law_name(self.noise)} noise of standard deviation {self.error(1):,.4g} on each key, drawn once"
        yield from protection_lines(self.unit, self.price)
        yield "price", f"{event_price_text(self.price)}, debited at the opening ({self.budget})"
        yield "answers", f"any number of questions; {noise}"
        yield "error", f"{errors}: standard error in records, of questions of so many keys"

    def brief(self) -> str:
        return f"{self.mechanism}: {self.error(1):,.4g} records a key"


@storable
@dataclass(frozen=True, eq=False, repr=False)
class SparsePlan(ConversationPlan):
    """A session of sparse multiplicative weights before it is opened. Holds nothing private.

    Args:
        keys: Which keys there are.
        budget: The budget that all answers together keep.
        unit: Whose privacy is protected.
        price: What a ledger is charged at the opening.
        terms: What is paid for every question, and the noise.
        threshold: The error, in records, from which a question is hard.
        records: A public number that the records do not exceed; what is missing counts as records without a key.
        size: The largest number of keys of a question.
        questions: For how many questions bounds hold.
        beta: The probability that a bound fails.
        alpha: The promised error in records, or None. With it the updates last for the first `questions` questions.

    Source:
        [BR11]
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

    mechanism = "sparse-mw"

    @property
    def shape(self) -> SessionShape:
        return _key_session_shape(self.size, self.records, self.questions, self.beta, self.unit)

    @property
    def slots(self) -> int:
        """The number of keys that updates can name."""
        return self.size * self.updates

    @property
    def off(self) -> float:
        return self.bounds.g + 0.5

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

    def describe(self) -> Description:
        headline = f"Session: sparse multiplicative weights over {self.keys.describe()}"
        return Description(headline, [Facts(tuple(self._lines()))])

    def _lines(self) -> Iterator[tuple[str, str]]:
        last = "and the updates last" if self.alpha is not None else self.lasting
        yield from self.opening()
        yield "asks", f"whether the hypothesis errs by {self.threshold:,} records, of up to {self.size:,} keys"
        yield "promises", f"{self.promise()}, for the first {self.questions:,} questions, {last}"
        yield "advice", self.advice


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
    beta: float = BETA,
    currency: Currency | None = None,
    **options: Any,
) -> SparsePlan:
    """A plan by a promise (`alpha`, a fraction of the records, or "least") or by updates and threshold, given or usual.

    Raises PlanError for numbers out of range and for an alpha below the least that can be promised.
    """
    known = _check_needed_option("records", records, 2**53 - 1, "a public number that the records do not exceed")
    most = _check_needed_option("size", size, 2**22, "the most keys of a question")
    asked, sure = check_whole("questions", questions, 10**9), check_beta(beta)
    try:
        price = price_of(budget, currency)
    except BudgetError as error:
        raise PlanError(f"this ledger cannot pay for a session from {budget}: {error}") from None
    terms, threshold, alpha = settle_terms(_key_session_shape(most, known, asked, sure, unit), price, **options)
    return SparsePlan(keys, budget, unit, price, terms, threshold, known, most, asked, sure, alpha)


def _key_session_shape(size: int, records: int, questions: int, beta: float, unit: PrivacyUnit) -> SessionShape:
    """What bounds follow from: 2 s L virtual cells, whatever the number of updates L will be."""
    return SessionShape(2 * size * _MOST_UPDATES, questions, records, beta, buys=False, rows=unit.rows_per_person)


def _check_needed_option(name: str, given: object, most: int, what: str) -> int:
    if type(given) is int and 1 <= given <= most:
        return given
    raise PlanError(
        f"sparse-mw needs {name}=, {what}: a whole number from 1 to {most:,}, not {given!r}. mechanism='histogram' "
        "needs none, and errs less"
    )
