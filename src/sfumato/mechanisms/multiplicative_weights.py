"""Private multiplicative weights: a public hypothesis answers while it is near enough, else a measurement does."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from sfumato.errors import PlanError
from sfumato.interactive.parameters import SessionShape, pmw_min_alpha, search_least_alpha
from sfumato.interactive.plan import BETA, SessionPlan, check_options, check_shape, make_plan
from sfumato.interactive.plan import QUESTIONS as USUAL
from sfumato.mechanisms.registry import QUESTIONS, TABLES, Mechanism, Request, read_currency
from sfumato.privacy.budget import Budget
from sfumato.privacy.unit import Neighbours
from sfumato.strategies.calibration import price_of

if TYPE_CHECKING:
    from sfumato.mechanisms.tables import Need

_NEAR = 1e-3  # of the least number of records, where it is searched for


@dataclass(frozen=True, repr=False, kw_only=True)
class Pmw(Mechanism[SessionPlan]):
    """Private multiplicative weights: questions to come over a domain, or those of a workload, one by one.

    Usual values of `updates` and `threshold` follow from cells, records and budget.

    Args:
        alpha: The largest error of every answer, as a fraction of the records, or "least": `updates` and `threshold`
            are then set such that the updates last for the first `questions` questions and every answer is within
            alpha, with probability 1 - beta.
        updates: How many hard questions are paid for.
        threshold: The error in records from which a question is hard.
        beta: The probability that the promise of alpha fails.
        questions: For how many questions alpha is promised; None takes 10,000, or the workload's number.
        span: How far apart a question's coefficients may be; None takes 1, or the workload's span.
        currency: In which currency the ledger that pays adds up ("epsilon", "rho", "mu^2"), where that is not the
            budget's own.

    Raises:
        PlanError: An option is not allowed, or options contradict each other.

    Source:
        [HR10]
    """

    alpha: float | str | None = None
    updates: int | None = None
    threshold: int | None = None
    beta: float = BETA
    questions: int | None = None
    span: int | None = None
    currency: str | None = None

    name: ClassVar[str] = "pmw"
    serves: ClassVar[tuple[str, ...]] = (QUESTIONS, TABLES)
    takes: ClassVar[tuple[str, ...]] = ("records",)
    needs_records: ClassVar[bool] = True
    unscaled: ClassVar[str] = "a session's bounds follow from records and questions too: sf.records_for finds them"

    def __post_init__(self) -> None:
        check_options(self.updates, self.threshold, self.alpha)
        read_currency(self.currency)

    def plan(self, asked: Request) -> SessionPlan:
        domain = asked.what if asked.kind == QUESTIONS else asked.what.domain
        shape = self.shape(asked)
        currency = read_currency(self.currency)
        options: dict[str, Any] = {"updates": self.updates, "threshold": self.threshold, "alpha": self.alpha}
        return make_plan(domain, asked.budget, asked.unit, shape, currency=currency, **options)

    def shape(self, asked: Request, records: int | None = None) -> SessionShape:
        """The public numbers from which bounds follow.

        Args:
            asked: The request.
            records: The number of records, in place of that of the request.

        Returns:
            The numbers of cells, records and questions, the probability, the span and the relation.

        Raises:
            PlanError: A number is missing or not allowed.
        """
        questions, span = self.questions, self.span
        domain = asked.what
        if asked.kind != QUESTIONS:
            domain = asked.what.domain
            blocks = [q.block.operator for q in asked.what.blocks]
            questions = len(asked.what) if questions is None else questions
            wide = max(math.ceil(o.max_abs * (1 if o.nonnegative else 2)) for o in blocks)
            span = wide if span is None else span
        limits = (USUAL if questions is None else questions, self.beta, 1 if span is None else span)
        return check_shape(domain, asked.records if records is None else records, *limits, asked.unit)

    def records_for(self, need: Need) -> int:
        asked = need.asked
        if not need.largest:
            raise PlanError(
                "mechanism='pmw' promises that every answer is within a share of the records: ask for kind='max'"
            )
        if asked.given:
            raise PlanError(
                f"mechanism='pmw' is a session, which takes none of {', '.join(asked.given)} of sf.plan; leave it out"
            )
        if self.options:
            raise PlanError(f"the number of records follows from error= and beta=; leave out {', '.join(self.options)}")
        price = price_of(asked.budget)
        sure = Pmw(beta=need.beta)
        return need.least(lambda n: search_least_alpha(sure.shape(asked, n), price)[0] <= need.share * n, _NEAR)

    @staticmethod
    def least_alpha(
        m: int, k: int, n: int, budget: Budget, beta: float = BETA, neighbours: str | Neighbours = "replace-one"
    ) -> float:
        """The least alpha, as a fraction of n records, that can be promised online.

        It holds for k counting questions over m cells, chosen one by one, with probability 1 - beta, and without ever
        running out of updates. Under add-remove n is the most records that there may be, and the session buys the
        number itself.

        Args:
            m: The number of cells, at least 2.
            k: The number of questions, at least 1.
            n: The number of records, at least 1.
            budget: The budget of the session.
            beta: The probability that the promise fails.
            neighbours: "replace-one" or "add-remove".

        Returns:
            The fraction; above 1 nothing is promised.

        Raises:
            PlanError: A number is not allowed.

        Source:
            [HR10]
        """
        return pmw_min_alpha(m, k, n, budget, beta, neighbours)
