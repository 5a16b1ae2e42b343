"""Sparse multiplicative weights: counts of the records of a few keys, asked one by one. [BR11]"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sfumato.errors import PlanError
from sfumato.mechanisms.mechanism import KEYS, Mechanism, Request, read_currency
from sfumato.sessions.keyplans import SparsePlan, plan_sparse
from sfumato.sessions.plans import BETA, QUESTIONS, check_options
from sfumato.sketches import Keys

__all__ = ["SparseMw"]


@dataclass(frozen=True, repr=False, kw_only=True)
class SparseMw(Mechanism[SparsePlan]):
    """Questions to come of at most `size` keys; a histogram errs less.

    alpha, updates, threshold, beta, questions and currency as of "pmw".
    """

    size: int | None = None
    alpha: float | str | None = None
    updates: int | None = None
    threshold: int | None = None
    beta: float = BETA
    questions: int = QUESTIONS
    currency: str | None = None

    name: ClassVar[str] = "sparse-mw"
    serves: ClassVar[tuple[str, ...]] = (KEYS,)
    takes: ClassVar[tuple[str, ...]] = ("records",)
    unknown: ClassVar[str] = "a promise for queries over keys follows from their number of keys too"

    def __post_init__(self) -> None:
        check_options(self.updates, self.threshold, self.alpha)
        read_currency(self.currency)

    def plan(self, asked: Request) -> SparsePlan:
        if not isinstance(asked.what, Keys):
            raise PlanError("mechanism='sparse-mw' is for questions to come; plan the sf.Keys themselves")
        return plan_sparse(
            asked.what,
            asked.budget,
            asked.unit,
            records=asked.records,
            size=self.size,
            questions=self.questions,
            beta=self.beta,
            currency=read_currency(self.currency),
            updates=self.updates,
            threshold=self.threshold,
            alpha=self.alpha,
        )
