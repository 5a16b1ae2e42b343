"""The projection of [BR11]: signed sums of all keys, with Gaussian noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sfumato.errors import PlanError
from sfumato.interactive.key_plans import SparsePlan, plan_sparse
from sfumato.interactive.plan import BETA, QUESTIONS, check_options
from sfumato.mechanisms.registry import KEYS, Mechanism, Request, read_currency
from sfumato.mechanisms.sketches import (
    INDEPENDENCE,
    KeyRequest,
    Sketched,
    check_independence,
    dimension_for,
    gaussian_key_noise,
)
from sfumato.plans.keys import KeyPlan
from sfumato.sketches import Keys, Signs


@dataclass(frozen=True, repr=False, kw_only=True)
class SparseProject(Sketched):
    """Signed sums of all keys with Gaussian noise, which answer any later query about keys.

    Args:
        dimension: The number of sums; None takes as many as balance noise and projection.
        independence: The independence of the hash, from 4 on; it changes accuracy alone, never privacy.

    Raises:
        PlanError: The independence is not allowed.

    Source:
        [BR11]
    """

    dimension: int | None = None
    independence: int = INDEPENDENCE

    name: ClassVar[str] = "sparse-project"

    def __post_init__(self) -> None:
        check_independence(self.independence)

    def sketch(self, stated: KeyRequest) -> KeyPlan:
        size = self.dimension
        if size is None:
            size = dimension_for(stated.budget, stated.unit, stated.records)
        signs = Signs.draw(size, self.independence)
        noise, event = gaussian_key_noise(signs, stated.budget, stated.unit)
        return KeyPlan(stated.keys, stated.budget, stated.unit, self.name, signs, noise, event, None, stated.records)


@dataclass(frozen=True, repr=False, kw_only=True)
class SparseMw(Mechanism[SparsePlan]):
    """Multiplicative weights for questions to come of at most `size` keys; a histogram errs less.

    Args:
        size: The largest number of keys of a question.
        alpha: As for `pmw`.
        updates: As for `pmw`.
        threshold: As for `pmw`.
        beta: As for `pmw`.
        questions: As for `pmw`.
        currency: As for `pmw`.

    Raises:
        PlanError: An option is not allowed, or options contradict each other.

    Source:
        [BR11]
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
