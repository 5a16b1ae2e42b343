"""Sessions over universes of keys: a question is a set of keys, with weights where the mechanism takes them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sfumato.curator.conversations import Conversation
from sfumato.curator.keys import KeyCurator, LazyHistogram
from sfumato.curator.keys.stored import read_histogram
from sfumato.errors import LedgerError, PlanError, WorkloadError
from sfumato.interactive.key_plans import HistogramPlan, SparsePlan
from sfumato.interactive.session import (
    Asked,
    ConversingSession,
    KeySession,
    SessionAnswer,
    SessionOpening,
    begin_session,
)
from sfumato.plans.keys import KeyPlan
from sfumato.plans.predictions import check_confidence, interval_margins
from sfumato.postprocess.weights import SparseHypothesis
from sfumato.privacy.conversation_price import Step
from sfumato.privacy.keyed import KeyMeasurement, KeyQuestion
from sfumato.privacy.ledger import Ledger
from sfumato.releases.released import Provenance, earlier_receipt, make_provenance, one_shot_account, package_versions
from sfumato.releases.sketches import SketchRelease
from sfumato.sketches import Listed
from sfumato.sketches.maps import Words

_PASSES = 50  # over all that was measured, as `sfumato.interactive.session` has it


class LazyHistogramSession(KeySession):
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
        reach = float(interval_margins(level, np.array([second]), np.array([fourth]), self._plan.noise)[0])
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

    def _headline(self) -> str:
        return f"{self.status()['keys']:,} keys shown; any number of questions left"

    def brief(self) -> str:
        return f"{self._plan.mechanism}: {self.status()['keys']:,} keys shown"


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


class SparseSession(ConversingSession, KeySession):
    """A session of sparse multiplicative weights: how many records have one of some keys? [BR11]"""

    __slots__ = ("_belief",)
    _plan: SparsePlan

    def __init__(self, plan: SparsePlan, conversation: Conversation) -> None:
        super().__init__(plan, conversation)
        self._belief = KeyBelief(plan)

    @property
    def plan(self) -> SparsePlan:
        return self._plan

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

        def estimate(steps: Sequence[Step]) -> int:
            self._belief.follow(steps)
            return round(self._belief.hypothesis.answer(elements))

        return self._put(lambda steps: KeyQuestion(elements, estimate(steps), self._plan.threshold), estimate)

    def _said(self, question: KeyQuestion) -> tuple[int, int]:
        return question.estimate, question.penalty


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


def open_key_histogram(asked: SessionOpening) -> KeySession:
    """A lazy histogram: the whole price is debited, nothing is drawn yet."""
    plan = asked.plan
    account = one_shot_account(plan.price, plan.budget) if asked.ledger is None else asked.ledger
    curator = KeyCurator(asked.source, plan.keys, plan.unit, account, table=asked.table)
    return LazyHistogramSession(
        plan, begin_session(asked, account, curator.histogram, plan.noise), _histogram_provenance(account, asked.name)
    )


def open_sparse(asked: SessionOpening) -> KeySession:
    """Sparse multiplicative weights: the whole price is debited."""
    plan = asked.plan
    account = Ledger.in_memory(plan.budget) if asked.ledger is None else asked.ledger
    curator = KeyCurator(asked.source, plan.keys, plan.unit, account, table=asked.table)
    return SparseSession(plan, begin_session(asked, account, curator.converse, plan.terms))


def resume_key_histogram(
    store: Path, source: Any, account: Ledger, plan: HistogramPlan, anchor: str | None
) -> KeySession:
    """Go on with a stored lazy histogram."""
    histogram = KeyCurator(source, plan.keys, plan.unit, account).resume_histogram(store, anchor)
    return LazyHistogramSession(plan, histogram, _histogram_provenance(account, read_histogram(store, anchor).name))


def resume_sparse(store: Path, source: Any, account: Ledger, plan: SparsePlan, anchor: str | None) -> KeySession:
    """Go on with stored sparse multiplicative weights."""
    return SparseSession(plan, KeyCurator(source, plan.keys, plan.unit, account).resume(store, anchor=anchor))


def _histogram_provenance(account: Ledger, name: str) -> Provenance:
    """Where what a histogram shows stands."""
    entry = account.find(name)
    if entry is None:
        raise LedgerError(f"the ledger has no entry {name!r}; give the one that the session was opened with")
    return make_provenance(
        earlier_receipt(account, entry, account.anchor), account, package_versions(), created=entry.time
    )
