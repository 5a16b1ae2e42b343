"""Private multiplicative weights over a declared domain, one question at a time [HR10]."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from sfumato.domain import Domain
from sfumato.errors import WorkloadError
from sfumato.operators import Block
from sfumato.operators.base import FloatArray
from sfumato.privacy.conversing import Step
from sfumato.privacy.selection import Candidates
from sfumato.privacy.unit import Neighbours
from sfumato.sessions.answers import SessionAnswer
from sfumato.sessions.asking import ConversingSession
from sfumato.sessions.belief import Belief, span_of
from sfumato.sessions.core import QuerySession
from sfumato.sessions.plans import SessionPlan
from sfumato.wall.talk import Conversation

__all__ = ["OnlineSession"]

# Below this the noise of a score cannot get: a question with this penalty is positive for all but a 2^-1000 of draws.
_SURE = -(2**50)


class _Known(Exception):
    """The number of records was bought meanwhile."""


class OnlineSession(ConversingSession, QuerySession):
    """A session of private multiplicative weights. Made by `sf.open`."""

    __slots__ = ("_belief",)
    _plan: SessionPlan

    def __init__(self, plan: SessionPlan, conversation: Conversation) -> None:
        super().__init__(plan, conversation)
        self._belief: Belief | None = None

    @property
    def domain(self) -> Domain:
        return self._plan.domain

    @property
    def plan(self) -> SessionPlan:
        return self._plan

    @property
    def hypothesis(self) -> FloatArray:
        """(m,) what the session believes of the cells, in records; public."""
        with self._lock:
            return self._follow(self._buy()).hypothesis.cells

    def _check(self, block: Block) -> None:
        low, high = span_of(block)
        limit = self._plan.span
        # without a promise that updates last, signs are free where they do not move an answer further
        free = self._plan.alpha is None and self._plan.unit.neighbours is Neighbours.ADD_REMOVE
        wide = max(-low, high) if free else high - low
        if wide > limit:
            raise WorkloadError(
                f"the coefficients of this question span {wide:g}, and the session was opened for {limit:g} (span=); "
                "nothing was asked"
            )

    def _ask(self, block: Block, label: str) -> SessionAnswer:
        self._buy()

        def form(steps: Sequence[Step]) -> Candidates:
            belief = self._follow(steps)
            threshold = self._plan.threshold_after(belief.hard - self._plan.buys)
            return _question(block, belief.estimate(block), threshold)

        return self._put(form, lambda steps: self._follow(steps).estimate(block), label)

    def _said(self, question: Candidates) -> tuple[int, int]:
        return int(question.estimates[0]), int(question.penalties[0])

    def _follow(self, steps: Sequence[Step]) -> Belief:
        """The hypothesis after these steps."""
        if self._belief is None:
            self._belief = Belief(self._plan.domain, _total(self._plan, steps), self._plan.refit)
        self._belief.follow(steps)
        return self._belief

    def _buy(self) -> tuple[Step, ...]:
        """Have the number of records bought, where it is private: the first question, always a hard one."""
        steps = self._conversation.steps
        if not self._plan.buys or steps or not self._conversation.remaining:
            return steps

        def form(before: Sequence[Step]) -> Candidates:
            if before:
                raise _Known
            return _question(Block((), ()), 0, _SURE)

        with suppress(_Known):
            self._conversation.ask(form)
        return self._conversation.steps


def _question(block: Block, estimate: int, penalty: int) -> Candidates:
    numbers = ([estimate], [1], [penalty])
    return Candidates((block,), *(np.array(n, dtype=np.int64) for n in numbers))


def _total(plan: SessionPlan, steps: Sequence[Step]) -> float:
    """The number of records that the hypothesis has: public, or as bought."""
    if not plan.buys or not steps or steps[0].answer is None:
        return float(plan.records)
    return float(max(steps[0].answer, 0))
