"""Private multiplicative weights, one question at a time [HR10]: a hypothesis answers while it is near enough.

A session holds a conversation with the curator, which pays for L hard questions, and a hypothesis that follows from the
steps of that conversation and nothing else. A question is asked as "does the hypothesis err by T?"; a noisy no leaves
the hypothesis' answer, a noisy yes brings a noisy answer and an update.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from sfumato.domain import Domain
from sfumato.errors import BudgetExceeded, PlanError, WorkloadError
from sfumato.operators import Block
from sfumato.operators.base import FloatArray
from sfumato.privacy.conversing import Step
from sfumato.privacy.selection import Candidates
from sfumato.privacy.unit import Neighbours
from sfumato.sessions.answers import SessionAnswer
from sfumato.sessions.belief import Belief, span_of
from sfumato.sessions.core import Session
from sfumato.sessions.plans import SessionPlan
from sfumato.wall.talk import Conversation

__all__ = ["OnlineSession", "describe_steps"]

# Below this the noise of a score cannot get: a question with this penalty is positive for all but a 2^-1000 of draws.
_SURE = -(2**50)


class _Known(Exception):
    """The number of records was bought meanwhile."""


class OnlineSession(Session):
    """A session of private multiplicative weights. Made by `sf.open`.

    Guarantee: everything it ever hands out satisfies together the budget of its plan, for the plan's privacy unit:
    answers are the replies of one conversation, and public work on them.
    """

    __slots__ = ("_belief", "_conversation", "_lock", "_plan")

    def __init__(self, plan: SessionPlan, conversation: Conversation) -> None:
        if conversation.terms != plan.terms:
            raise PlanError("this conversation was opened on other terms than its plan states")
        self._plan, self._conversation = plan, conversation
        self._belief: Belief | None = None
        self._lock = threading.Lock()

    @property
    def domain(self) -> Domain:
        return self._plan.domain

    @property
    def plan(self) -> SessionPlan:
        return self._plan

    @property
    def anchor(self) -> str | None:
        return self._conversation.anchor

    @property
    def remaining(self) -> int:
        """Hard questions that can still be answered."""
        steps = self._conversation.steps
        return max(self._conversation.remaining - (self._plan.buys and not steps), 0)

    @property
    def asked(self) -> int:
        """Questions put to the conversation; those after exhaustion are not counted, for they touch nothing."""
        return max(self._conversation.asked - self._plan.buys, 0)

    @property
    def hypothesis(self) -> FloatArray:
        """(m,) what the session believes of the cells, in records; public."""
        with self._lock:
            return self._follow(self._buy()).hypothesis.cells

    def status(self) -> dict[str, Any]:
        return describe_steps(self._plan, self._conversation.steps, self._conversation.remaining)

    def explain(self) -> str:
        found = self.status()
        spent = "" if found["updates_left"] else "; exhausted: answers come from the hypothesis, without any guarantee"
        return (
            f"{found['questions']:,} questions answered, {found['updates_used']:,} of {self._plan.updates:,} updates "
            f"used{spent}\n{self._plan.explain()}"
        )

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
        place = 0

        def form(steps: Sequence[Step]) -> Candidates:
            nonlocal place
            place = len(steps) - self._plan.buys
            with self._lock:
                belief = self._follow(steps)
                threshold = self._plan.threshold_after(belief.hard - self._plan.buys)
                return _question(block, belief.estimate(block), threshold)

        if self._conversation.remaining:
            # another process may use up the last update between the two
            with suppress(BudgetExceeded):
                step = self._conversation.ask(form)
                return self._told(step, label, within=place < self._plan.questions)
        with self._lock:
            value = self._follow(self._conversation.steps).estimate(block)
        return SessionAnswer(float(value), "exhausted", guaranteed=False, bound=None, label=label)

    def _told(self, step: Step, label: str, *, within: bool) -> SessionAnswer:
        if step.answer is not None:
            error = float(np.sqrt(self._plan.answer_noise.variance))
            bound = float(self._plan.hard_bound)
            return SessionAnswer(float(step.answer), "measured", within, bound, error, label)
        value, threshold = float(step.question.estimates[0]), int(step.question.penalties[0])
        return SessionAnswer(value, "hypothesis", within, float(threshold + self._plan.bounds.v), None, label)

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

    def __repr__(self) -> str:
        left = f"{self.remaining:,} of {self._plan.updates:,} updates left"
        return f"<Session pmw: {self.asked:,} questions asked, {left}>"


def _question(block: Block, estimate: int, penalty: int) -> Candidates:
    numbers = ([estimate], [1], [penalty])
    return Candidates((block,), *(np.array(n, dtype=np.int64) for n in numbers))


def _total(plan: SessionPlan, steps: Sequence[Step]) -> float:
    """The number of records that the hypothesis has: public, or as bought."""
    if not plan.buys or not steps or steps[0].answer is None:
        return float(plan.records)
    return float(max(steps[0].answer, 0))


def describe_steps(plan: SessionPlan, steps: Sequence[Step], remaining: int) -> dict[str, Any]:
    """How a session stands that has come so far."""
    own = steps[plan.buys :]
    left = max(remaining - (plan.buys and not steps), 0)
    return {
        "mechanism": plan.mechanism,
        "questions": len(own),
        "easy": sum(not s.above for s in own),
        "hard": sum(s.above for s in own),
        "updates_used": plan.updates - left,
        "updates_left": left,
        "exhausted": not left,
        "guaranteed_questions": max(plan.questions - len(own), 0) if left else 0,
        "confidence": 1 - plan.beta,
        "easy_bound": plan.threshold_after(plan.updates - left) + plan.bounds.v,
        "hard_bound": plan.hard_bound,
        "promised_to_last": plan.alpha is not None,
    }
