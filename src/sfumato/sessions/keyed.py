"""Sessions over universes of keys: a question is a set of keys, with weights where the mechanism takes them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from sfumato.errors import BudgetExceeded, PlanError, WorkloadError
from sfumato.estimate.sparse import SparseHypothesis
from sfumato.plans.intervals import check_confidence, margins
from sfumato.plans.keys import KeyMeasurement, KeyPlan
from sfumato.privacy.conversing import Step
from sfumato.privacy.keyed import KeyQuestion
from sfumato.releases.core import Provenance
from sfumato.releases.sketched import SketchRelease
from sfumato.sessions.answers import SessionAnswer
from sfumato.sessions.keyplans import HistogramPlan, SparsePlan
from sfumato.sketches import Listed
from sfumato.sketches.field import Words
from sfumato.wall.keys import LazyHistogram
from sfumato.wall.talk import Conversation

__all__ = ["HistogramSession", "KeyBelief", "KeySession", "SparseSession", "describe_key_steps", "describe_shown"]

Asked = ArrayLike | Iterable[str]

_PASSES = 50


class KeySession(ABC):
    """Questions about keys one by one under one budget, paid in full when the session was opened.

    Also a context manager. Leaving the `with` block ends nothing: a session that is kept in a store goes on with
    the same call of `sf.open`.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def plan(self) -> HistogramPlan | SparsePlan:
        """What was decided before any data."""

    @property
    def anchor(self) -> str | None:
        """How the store stands, in short: kept elsewhere and given to `sf.open` or `sf.load`, it finds one put back.

        None where nothing that changes is kept.
        """
        return None

    @abstractmethod
    def status(self) -> dict[str, Any]:
        """How the session stands, as plain values. All of it is public."""

    @abstractmethod
    def explain(self) -> str:
        """How the session stands and what it promises, in words."""

    @abstractmethod
    def ask(self, keys: Asked, weights: ArrayLike | None = None) -> SessionAnswer:
        """The sum of weights times counts of the keys (each once; weight 1 by default), in records."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def __str__(self) -> str:
        return self.explain()


class HistogramSession(KeySession):
    """A session over a lazy histogram: any keys and weights, any number of questions, exact standard errors.

    Guarantee: everything it ever hands out satisfies together the budget of its plan, for the plan's privacy unit: it
    is read off one noisy histogram of all keys.
    """

    __slots__ = ("_histogram", "_plan", "_provenance")

    def __init__(self, plan: HistogramPlan, histogram: LazyHistogram, provenance: Provenance) -> None:
        if histogram.noise != plan.noise:
            raise PlanError("this histogram was opened with other noise than its plan states")
        self._plan, self._histogram, self._provenance = plan, histogram, provenance

    @property
    def plan(self) -> HistogramPlan:
        return self._plan

    @property
    def anchor(self) -> str | None:
        return self._histogram.anchor

    def ask(self, keys: Asked, weights: ArrayLike | None = None, *, confidence: float = 0.95) -> SessionAnswer:
        """The sum of weights times counts of the keys (each once; weight 1 by default), in records.

        The interval holds with `confidence`, for this question alone; a key asked again has the same noise. Raises
        WorkloadError for keys outside the universe, repeated keys and weights that are no numbers.
        """
        level = check_confidence(confidence)
        elements, w = self._plan.keys.query(keys, weights)
        value = float(w @ self._histogram.counts(elements))
        second, fourth = float(w @ w), float((w * w) @ (w * w))
        reach = float(margins(level, np.array([second]), np.array([fourth]), self._plan.noise)[0])
        return SessionAnswer(value, "histogram", True, reach, math.sqrt(second * self._plan.noise.variance))

    def release(self) -> SketchRelease:
        """All keys asked for so far with their noisy counts, as one publishable value that answers about them; free.

        Raises WorkloadError where no key was asked for yet.
        """
        elements, noisy = self._histogram.shown
        if not elements.size:
            raise WorkloadError("no key was asked for yet; ask first")
        plan, none = self._plan, np.zeros(0, dtype=np.int64)
        found = KeyMeasurement(Listed(elements), noisy, plan.noise, none.view(np.uint64), none)
        known = KeyPlan(plan.keys, plan.budget, plan.unit, plan.mechanism, found.map, plan.noise, plan.price)
        return SketchRelease(known, found, self._provenance)

    def status(self) -> dict[str, Any]:
        return describe_shown(self._plan, self._histogram.shown[0].size)

    def explain(self) -> str:
        return f"{self.status()['keys']:,} keys shown; any number of questions left\n{self._plan.explain()}"

    def __repr__(self) -> str:
        return f"<KeySession histogram: {self.status()['keys']:,} keys shown>"


class KeyBelief:
    """The sparse hypothesis after some steps; the same steps give the same weights on whatever way they came.

    An answer moves the weights of its keys by exp(4 d) [HR10], d its gap as a fraction of the records. After each
    update, answers that the hypothesis has left by more than `plan.refit` are revisited, at most 50 times over.
    """

    __slots__ = ("_followed", "_measured", "_refit", "hypothesis")

    def __init__(self, plan: SparsePlan) -> None:
        self.hypothesis = SparseHypothesis(plan.slots, plan.records)
        self._refit, self._followed = plan.refit, 0
        self._measured: list[tuple[Words, float]] = []

    def follow(self, steps: Sequence[Step]) -> None:
        """Take in the steps that are new; `steps` begin with those taken in before."""
        for step in steps[self._followed :]:
            if step.answer is not None:
                # an answer that no table has is taken to be the nearest that one has
                possible = min(max(float(step.answer), 0.0), self.hypothesis.total)
                self._measured.append((step.question.elements, possible))
                self._move(*self._measured[-1], 0.0)
                for _ in range(_PASSES):
                    moved = [self._move(*measured, self._refit) for measured in self._measured]
                    if not any(moved):
                        break
        self._followed = len(steps)

    def _move(self, keys: Words, answer: float, least: float) -> bool:
        """One multiplicative step toward an answer, if the hypothesis is farther than `least` from it."""
        gap = answer - self.hypothesis.answer(keys)
        if abs(gap) <= least:
            return False
        self.hypothesis.update(keys, 4 * gap / self.hypothesis.total)
        return True


class SparseSession(KeySession):
    """A session of sparse multiplicative weights: how many records have one of some keys? [BR11]

    Guarantee: everything it ever hands out satisfies together the budget of its plan, for the plan's privacy unit:
    answers are the replies of one conversation, and public work on them.
    """

    __slots__ = ("_belief", "_conversation", "_plan")

    def __init__(self, plan: SparsePlan, conversation: Conversation) -> None:
        if conversation.terms != plan.terms:
            raise PlanError("this conversation was opened on other terms than its plan states")
        self._plan, self._conversation = plan, conversation
        self._belief = KeyBelief(plan)

    @property
    def plan(self) -> SparsePlan:
        return self._plan

    @property
    def anchor(self) -> str | None:
        return self._conversation.anchor

    @property
    def remaining(self) -> int:
        """Hard questions that can still be answered."""
        return self._conversation.remaining

    def ask(self, keys: Asked, weights: ArrayLike | None = None) -> SessionAnswer:
        """How many records have one of the keys, at most `plan.size` of them, each of weight 1.

        From the hypothesis where that is near enough, else measured, which is one update. Once the updates are used up,
        or after the questions that bounds were made for, answers carry no guarantee. Raises WorkloadError for keys
        outside the universe, repeated ones, too many, and for other weights.
        """
        elements, w = self._plan.keys.query(keys, weights)
        if (w != 1).any() or not 1 <= elements.size <= self._plan.size:
            raise WorkloadError(
                f"sparse-mw counts the records of 1 to {self._plan.size:,} keys, each with weight 1; "
                'mechanism="histogram" takes any keys and weights'
            )
        place = 0

        def form(steps: Sequence[Step]) -> KeyQuestion:
            nonlocal place
            place = len(steps)
            return KeyQuestion(elements, self._estimate(steps, elements), self._plan.threshold)

        with suppress(BudgetExceeded):
            step = self._conversation.ask(form)
            return self._told(step, within=place < self._plan.questions)
        value = float(self._estimate(self._conversation.steps, elements))
        return SessionAnswer(value, "exhausted", guaranteed=False, bound=None)

    def _estimate(self, steps: Sequence[Step], elements: Words) -> int:
        self._belief.follow(steps)
        return round(self._belief.hypothesis.answer(elements))

    def _told(self, step: Step, *, within: bool) -> SessionAnswer:
        if step.answer is None:
            return SessionAnswer(float(step.question.estimate), "hypothesis", within, float(self._plan.easy_bound))
        noise = self._conversation.terms.answer
        error = None if noise is None else math.sqrt(noise.variance)
        return SessionAnswer(float(step.answer), "measured", within, float(self._plan.hard_bound), error)

    def status(self) -> dict[str, Any]:
        return describe_key_steps(self._plan, self._conversation.steps, self._conversation.remaining)

    def explain(self) -> str:
        found = self.status()
        spent = "" if found["updates_left"] else "; exhausted: answers come from the hypothesis, without any guarantee"
        return (
            f"{found['questions']:,} questions answered, {found['updates_used']:,} of {self._plan.updates:,} updates "
            f"used{spent}\n{self._plan.explain()}"
        )

    def __repr__(self) -> str:
        return f"<KeySession sparse-mw: {self.remaining:,} of {self._plan.updates:,} updates left>"


def describe_key_steps(plan: SparsePlan, steps: Sequence[Step], remaining: int) -> dict[str, Any]:
    """How a session stands that has come so far."""
    return {
        "mechanism": plan.mechanism,
        "questions": len(steps),
        "easy": sum(not s.above for s in steps),
        "hard": sum(s.above for s in steps),
        "updates_used": plan.updates - remaining,
        "updates_left": remaining,
        "exhausted": not remaining,
        "guaranteed_questions": max(plan.questions - len(steps), 0) if remaining else 0,
        "confidence": 1 - plan.beta,
        "easy_bound": plan.easy_bound,
        "hard_bound": plan.hard_bound,
        "promised_to_last": plan.alpha is not None,
    }


def describe_shown(plan: HistogramPlan, keys: int) -> dict[str, Any]:
    """How a session stands that has shown so many keys."""
    return {
        "mechanism": plan.mechanism,
        "questions": None,
        "keys": keys,
        "updates_left": None,
        "exhausted": False,
        "standard_error_of_a_key": plan.error(1),
    }
