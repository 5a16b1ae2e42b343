"""A session that holds a conversation with the curator: a hypothesis answers while it is near enough [HR10, BR11].

The conversation pays for L hard questions; the hypothesis follows from its steps and from nothing else. A question is
asked as "does the hypothesis err by T?"; a noisy no leaves the hypothesis' answer, a noisy yes brings a noisy answer
and an update.
"""

from __future__ import annotations

import math
import threading
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from sfumato.errors import BudgetExceeded, PlanError
from sfumato.privacy.conversing import Step
from sfumato.sessions.answers import SessionAnswer
from sfumato.sessions.core import Session
from sfumato.sessions.plans import ConversationPlan
from sfumato.wall.talk import Conversation

__all__ = ["ConversingSession", "describe_steps"]


class ConversingSession(Session):
    """Guarantee: everything it ever hands out satisfies together the budget of its plan, for the plan's privacy unit:
    answers are the replies of one conversation, and public work on them.
    """

    __slots__ = ("_conversation", "_lock", "_plan")

    def __init__(self, plan: ConversationPlan, conversation: Conversation) -> None:
        if conversation.terms != plan.terms:
            raise PlanError("this conversation was opened on other terms than its plan states")
        self._plan, self._conversation = plan, conversation
        self._lock = threading.Lock()

    @property
    def plan(self) -> ConversationPlan:
        return self._plan

    @property
    def anchor(self) -> str | None:
        return self._conversation.anchor

    @property
    def remaining(self) -> int:
        """Hard questions that can still be answered."""
        return _left(self._plan, self._conversation.steps, self._conversation.remaining)

    @property
    def asked(self) -> int:
        """Questions put to the conversation; those after exhaustion are not counted, for they touch nothing."""
        return max(self._conversation.asked - self._plan.buys, 0)

    def status(self) -> dict[str, Any]:
        return describe_steps(self._plan, self._conversation.steps, self._conversation.remaining)

    def headline(self) -> str:
        found = self.status()
        spent = "" if found["updates_left"] else "; exhausted: answers come from the hypothesis, without any guarantee"
        used = f"{found['updates_used']:,} of {self._plan.updates:,} updates used{spent}"
        return f"{found['questions']:,} questions answered, {used}"

    def brief(self) -> str:
        left = f"{self.remaining:,} of {self._plan.updates:,} updates left"
        return f"{self._plan.mechanism}: {self.asked:,} questions asked, {left}"

    @abstractmethod
    def _said(self, question: Any) -> tuple[int, int]:
        """What a question took the hypothesis to answer, and the threshold it was asked with."""

    def _put(
        self, form: Callable[[Sequence[Step]], Any], estimate: Callable[[Sequence[Step]], int], label: str = ""
    ) -> SessionAnswer:
        """Put a question, formed from the steps before it, or answer by the hypothesis once updates are used up."""
        plan, place = self._plan, 0

        def formed(steps: Sequence[Step]) -> Any:
            nonlocal place
            place = len(steps) - plan.buys
            with self._lock:
                return form(steps)

        if self._conversation.remaining:
            # another process may use up the last update between the two
            with suppress(BudgetExceeded):
                step = self._conversation.ask(formed)
                within = place < plan.questions
                if step.answer is not None:
                    error, bound = math.sqrt(plan.answer_noise.variance), float(plan.hard_bound)
                    return SessionAnswer(float(step.answer), "measured", within, bound, error, label)
                value, threshold = self._said(step.question)
                bound = float(threshold + plan.bounds.v)
                return SessionAnswer(float(value), "hypothesis", within, bound, None, label)
        with self._lock:
            value = estimate(self._conversation.steps)
        return SessionAnswer(float(value), "exhausted", guaranteed=False, bound=None, label=label)


def _left(plan: ConversationPlan, steps: Sequence[Step], remaining: int) -> int:
    """Updates left, but for the one that buys the number of records."""
    return max(remaining - (plan.buys and not steps), 0)


def describe_steps(plan: ConversationPlan, steps: Sequence[Step], remaining: int) -> dict[str, Any]:
    """How a session stands that has come so far."""
    own, left = steps[plan.buys :], _left(plan, steps, remaining)
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
