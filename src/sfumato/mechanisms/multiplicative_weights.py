"""Private multiplicative weights: a public hypothesis answers while it is near enough, else a measurement does."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from sfumato.errors import PlanError
from sfumato.interactive.parameters import Shape, least_alpha, pmw_min_alpha
from sfumato.interactive.plan import BETA, SessionPlan, check_options, check_shape, make_plan
from sfumato.interactive.plan import QUESTIONS as USUAL
from sfumato.mechanisms.mechanism import QUESTIONS, TABLES, Mechanism, Request, read_currency
from sfumato.privacy.budget import Budget
from sfumato.privacy.unit import Neighbours
from sfumato.strategies.calibration import price_of

if TYPE_CHECKING:
    from sfumato.mechanisms.tables import Need

__all__ = ["Pmw"]


_NEAR = 1e-3  # of the least number of records, where it is searched for


@dataclass(frozen=True, repr=False, kw_only=True)
class Pmw(Mechanism[SessionPlan]):
    """Questions to come over a domain, or those of a workload, one by one. [HR10]

    updates: hard questions that are paid for, threshold: the error in records from which a question is hard; usual
    values follow from cells, records and budget. With alpha, a fraction of the records or "least", both are set such
    that the updates last for the first `questions` questions (10,000, or the workload's) with probability 1 - beta
    (.95), and every answer is within alpha. span: how far apart a question's coefficients are (1, or the workload's).
    currency: in which the ledger that pays adds up, where that is not the budget's own.
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

    def shape(self, asked: Request, records: int | None = None) -> Shape:
        """What bounds follow from; `records` in place of those asked for. Raises PlanError."""
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
        return need.least(lambda n: least_alpha(sure.shape(asked, n), price)[0] <= need.share * n, _NEAR)

    @staticmethod
    def least_alpha(
        m: int, k: int, n: int, budget: Budget, beta: float = BETA, neighbours: str | Neighbours = "replace-one"
    ) -> float:
        """The least alpha, as a fraction of n records, that can be promised online.

        For k counting questions over m cells, chosen one by one, with probability 1 - beta, and without ever running
        out of updates. Under add-remove n is the most records there may be, and the session buys the number itself.
        Above 1 nothing is promised. Raises PlanError for what is not a whole number of at least 2 cells, 1 question
        and 1 record.
        """
        return pmw_min_alpha(m, k, n, budget, beta, neighbours)
