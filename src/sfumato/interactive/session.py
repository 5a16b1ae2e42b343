"""What every session is: questions, how it stands, and words about both."""

from __future__ import annotations

import math
import os
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike

from sfumato._util.description import Describable, Description, Facts
from sfumato._util.frames import safe_text
from sfumato.curator.conversations import Conversation
from sfumato.curator.rows.written import Source
from sfumato.domain import Domain
from sfumato.errors import BudgetExceeded, NotWritten, PlanError, SfumatoError, WorkloadError
from sfumato.interactive.key_plans import HistogramPlan, SparsePlan
from sfumato.interactive.plan import ConversationPlan
from sfumato.operators import Block, Dense
from sfumato.operators.base import FloatArray
from sfumato.plans.planned import Planned
from sfumato.plans.predictions import check_domain
from sfumato.postprocess.weights import Hypothesis
from sfumato.privacy.conversation_price import Step
from sfumato.privacy.ledger import Ledger, Receipt
from sfumato.workloads import RECORDS, Workload, predicates


@dataclass(frozen=True, slots=True)
class SessionAnswer:
    """One answer of a session, in records, and where it comes from.

    Args:
        value: The answer.
        how: "hypothesis" (easy: what was known already is near enough), "measured" (hard: measured with noise, one
            update), "histogram" (summed from cells or keys that were measured), or "exhausted" (from a hypothesis that
            nothing vouches for).
        guaranteed: Whether [low, high] is promised to hold the exact answer, at the session's confidence.
        bound: The half-width of that interval; None where there is none.
        standard_error: The standard error of a measured or summed answer, or None.
        label: The question in words.
    """

    value: float
    how: str
    guaranteed: bool
    bound: float | None
    standard_error: float | None = None
    label: str = ""

    @property
    def low(self) -> float | None:
        """The lower end of the interval, or None."""
        return None if self.bound is None else self.value - self.bound

    @property
    def high(self) -> float | None:
        """The upper end of the interval, or None."""
        return None if self.bound is None else self.value + self.bound

    def __str__(self) -> str:
        if self.bound is None:
            return f"{self.value:,.6g} ({self.how}, no guarantee)"
        promise = "" if self.guaranteed else ", no guarantee"
        return f"{self.value:,.6g} ± {self.bound:,.4g} ({self.how}{promise})"


Asked = ArrayLike | Iterable[str]
"""Keys, as whole numbers or as texts."""

_MOST_ROWS = 100_000  # each is a question of its own, kept in the transcript: minutes


class Session(Describable):
    """Questions one by one under one budget, paid in full when the session was opened. Also a context manager.

    Leaving the `with` block ends nothing: a session that is kept in a store goes on by the same call of `sf.open`.

    >>> made = sf.plan(sf.Keys(), sf.pure(1), neighbours="add-remove", mechanism="histogram")
    >>> with sf.open(made, sf.KeyCounts([3, 3, 7]), ledger=None) as asked:
    ...     asked.plan.mechanism, asked.ask([3, 8]).how
    ('histogram', 'histogram')
    """

    __slots__ = ()

    @property
    @abstractmethod
    def plan(self) -> Planned:
        """The plan, which was decided before any data."""

    @property
    def anchor(self) -> str | None:
        """A short text that stands for the present state of the store; None where nothing that changes is stored.

        Keep it elsewhere and give it to `sf.open` or `sf.load`: a store that was put back to a state before it is then
        refused.
        """
        return None

    @abstractmethod
    def status(self) -> dict[str, Any]:
        """How the session stands. All of it is public.

        Returns:
            Plain values by name.
        """

    @abstractmethod
    def ask(self, *question: Any, **options: Any) -> Any:
        """Answer a question.

        Args:
            *question: The question, as the kind of session takes it.
            **options: Options of the kind of session.

        Returns:
            The answer.
        """

    @abstractmethod
    def _headline(self) -> str:
        """How it stands, in one line."""

    def describe(self) -> Description:
        return Description(self._headline(), [status_facts(self.status()), self.plan.describe()])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


def status_facts(status: Mapping[str, Any]) -> Facts:
    """How a session or a stream stands, for people.

    Args:
        status: Plain values by their names, as `status()` has them.

    Returns:
        A fact for each.
    """
    return Facts([(k.replace("_", " "), "-" if v is None else safe_text(str(v))) for k, v in status.items()])


class QuerySession(Session):
    """Questions over a declared domain: predicates and workloads."""

    __slots__ = ()
    # whether coefficients must be whole numbers
    whole = True

    @property
    @abstractmethod
    def domain(self) -> Domain:
        """The declared domain."""

    @abstractmethod
    def _ask(self, block: Block, label: str) -> SessionAnswer:
        """The answer to a block of one row."""

    @overload
    def ask(self, query: str) -> SessionAnswer: ...
    @overload
    def ask(self, query: Workload) -> tuple[SessionAnswer, ...]: ...
    def ask(self, query: str | Workload) -> SessionAnswer | tuple[SessionAnswer, ...]:
        """Answer a predicate, or every query of a workload.

        Args:
            query: A predicate such as "age >= 65", or a workload, each query of which is a question of its own.

        Returns:
            One answer to a predicate; for a workload one answer per query, in order.

        Raises:
            WorkloadError: The question is outside the domain, or has coefficients that are no whole numbers or span
                more than the session was opened for. Nothing is spent, and no question of the workload is asked.
            PlanError: The workload is over another domain.
        """
        several = isinstance(query, Workload)
        work = query if several else predicates(self.domain, [query])
        asked = question_rows(self.domain, work, whole=self.whole or not several)
        for block, _ in asked:
            self._check(block)
        answers = tuple(self._ask(block, label) for block, label in asked)
        return answers if several else answers[0]

    @abstractmethod
    def _check(self, block: Block) -> None:
        """Refuse with WorkloadError what this session cannot answer."""


class KeySession(Session):
    """Questions over a universe of keys: a set of keys, with weights where the mechanism takes them."""

    __slots__ = ()

    @property
    @abstractmethod
    def plan(self) -> HistogramPlan | SparsePlan: ...

    @abstractmethod
    def ask(self, keys: Asked, weights: ArrayLike | None = None) -> SessionAnswer:
        """The sum of weights times counts of some keys, in records.

        Args:
            keys: The keys, each once.
            weights: One number per key, where the mechanism takes weights; None takes 1 each.

        Returns:
            The answer.

        Raises:
            WorkloadError: A key is outside the universe or given twice, there are too many keys, or the weights are not
                allowed.
        """


def question_rows(domain: Domain, work: Workload, *, whole: bool) -> list[tuple[Block, str]]:
    """Every query of a workload as a block of one row with small factors, and its label.

    Raises WorkloadError for another domain, for more than 100,000 queries, and with `whole` for sums of other units and
    for coefficients that are not whole.
    """
    check_domain(domain, work)
    if len(work) > _MOST_ROWS:
        raise WorkloadError(f"a session takes up to {_MOST_ROWS:,} questions at once, not {len(work):,}")
    rows: list[tuple[Block, str]] = []
    for query in work.blocks:
        if whole and (query.unit != RECORDS or not query.block.operator.integral):
            raise WorkloadError(
                f"this session counts records: the queries of {query.part!r} are sums of values, or have fractions as "
                "coefficients. Ask with whole coefficients (sf.queries of values in whole units, with span=)"
            )
        factors = query.block.factors
        for place, label in zip(np.ndindex(*(f.shape[0] for f in factors)), work.block_labels(query), strict=True):
            picked = [Dense(f.rows(i, i + 1)) for f, i in zip(factors, place, strict=True)]
            rows.append((Block(query.block.groups, tuple(picked)), label))
    return rows


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
        return _updates_left(self._plan, self._conversation.steps, self._conversation.remaining)

    @property
    def asked(self) -> int:
        """Questions put to the conversation; those after exhaustion are not counted, for they touch nothing."""
        return max(self._conversation.asked - self._plan.buys, 0)

    def status(self) -> dict[str, Any]:
        return describe_steps(self._plan, self._conversation.steps, self._conversation.remaining)

    def _headline(self) -> str:
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


def _updates_left(plan: ConversationPlan, steps: Sequence[Step], remaining: int) -> int:
    """Updates left, but for the one that buys the number of records."""
    return max(remaining - (plan.buys and not steps), 0)


def describe_steps(plan: ConversationPlan, steps: Sequence[Step], remaining: int) -> dict[str, Any]:
    """How a session stands that has come so far."""
    own, left = steps[plan.buys :], _updates_left(plan, steps, remaining)
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


_PASSES = 50  # over all that was measured: most models are still long before
_WORK = 2**25  # cells touched for one question, which somebody waits for: a second or so
_MOVES = 2**12  # moves for one question, for the same reason where cells are few


def span_of(block: Block) -> tuple[float, float]:
    """The least and the largest coefficient of a block of one row, 0 among them."""
    low = high = 1.0
    for factor in block.factors:
        row = factor.rows(0, 1)
        ends = [low * row.min(), low * row.max(), high * row.min(), high * row.max()]
        low, high = float(min(ends)), float(max(ends))
    return min(low, 0.0), max(high, 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredQuestion:
    """A question with a noisy answer: its row over the cells of some axes, between `low` and `high`."""

    axes: tuple[int, ...]
    row: FloatArray
    low: float
    high: float
    answer: float

    def move(self, hypothesis: Hypothesis, least: float) -> bool:
        """One multiplicative step toward the answer, if the hypothesis is farther than `least` from it.

        The step is 4 d for the gap d in fractions of what the answer can be, which is all that Hoeffding's lemma can
        promise to be of use [HR10]. An answer that no table of this total has is taken to be the nearest that one has.
        """
        possible = min(max(self.answer, self.low * hypothesis.total), self.high * hypothesis.total)
        width = (self.high - self.low) * hypothesis.total
        gap = possible - float(hypothesis.answer(self.row[None], self.axes)[0])
        if not width or abs(gap) <= least:
            return False
        top = max(-self.low, self.high)
        hypothesis.update(self.row / top, 4 * gap * top / (width * (self.high - self.low)), self.axes)
        return True


class Belief:
    """The hypothesis after some steps. The same steps give the same cells bit for bit, on whatever way they came.

    `least` is the gap from which an earlier answer is fitted again: after each update, answers that the hypothesis has
    left by more are revisited, at most 50 times over, or as often as large domains allow. That is public work. `hard`
    counts the hard questions so far.
    """

    __slots__ = ("_domain", "_followed", "_least", "_measured", "hard", "hypothesis")

    def __init__(self, domain: Domain, total: float, least: float) -> None:
        self._domain, self._least, self._followed = domain, least, 0
        self._measured: list[MeasuredQuestion] = []
        self.hard = 0
        self.hypothesis = Hypothesis(domain.shape, total, domain.possible(domain.names))

    def follow(self, steps: Sequence[Step]) -> None:
        """Take in the steps that are new; `steps` begin with those taken in before."""
        for step in steps[self._followed :]:
            self.hard += step.above
            if step.answer is not None:
                self._learn(step)
        self._followed = max(self._followed, len(steps))

    def estimate(self, block: Block) -> int:
        """What the hypothesis answers to a block of one row, rounded."""
        axes = [self._domain.axis(a) for a in block.attributes]
        return round(float(self.hypothesis.answer(block.operator, axes)[0]))

    def _learn(self, step: Step) -> None:
        (block,) = step.question.blocks
        axes = tuple(self._domain.axis(a) for a in block.attributes)
        row = np.asarray(block.operator.rows(0, 1)[0], dtype=np.float64)
        new = MeasuredQuestion(axes, row, *span_of(block), float(step.answer or 0))
        self._measured.append(new)
        new.move(self.hypothesis, 0.0)
        count = len(self._measured)
        passes = min(_PASSES, _WORK // (self._domain.size * count), _MOVES // count)
        for _ in range(passes):
            moved = [m.move(self.hypothesis, self._least) for m in self._measured]
            if not any(moved):
                return


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SessionOpening:
    """What a session is opened with. `counted`: the public number of records was read already, and is the plan's."""

    plan: Any
    source: Any
    ledger: Ledger | None
    name: str = "session"
    store: Path | None = None
    table: str | None = None
    counted: bool = False

    @property
    def about(self) -> dict[str, Any]:
        """What a store remembers of it."""
        return {"source": _portable_place_text(self.source), "plan": self.plan}


def begin_session(asked: SessionOpening, account: Ledger, door: Callable[..., tuple[T, Receipt]], what: object) -> T:
    """What a door of the curator opens once the whole price is debited, kept in the session's store if it has one.

    Raises NotWritten where it is kept, but the ledger could not be told so.
    """
    plan = asked.plan
    made, receipt = door(
        what, plan.price, name=asked.name, plan_hash=plan.fingerprint, store=asked.store, about=asked.about
    )
    if asked.store is not None:
        mark_kept(account, receipt, plan.fingerprint, f"the session is paid for and kept in {asked.store}")
    return made


def mark_kept(account: Ledger, receipt: Receipt, fingerprint: str, kept: str) -> None:
    """Have the ledger say that what a receipt paid for is kept. Raises NotWritten where it could not."""
    try:
        account.mark_released(receipt, fingerprint)
    except SfumatoError as error:
        raise NotWritten(
            f"{kept}, but the ledger could not be told so ({error}); the same call of sf.open goes on with it"
        ) from error


def mark_opened(account: Ledger, name: str, fingerprint: str) -> None:
    """Have the ledger say that a session that is kept was opened, where the process that opened it could not."""
    entry = account.find(name)
    if entry is None or entry.released:
        return
    receipt = account.paid(name, entry.plan_hash)
    if receipt is not None:
        with suppress(SfumatoError):  # another process was faster, or the ledger is read alone
            account.mark_released(receipt, fingerprint)


def _portable_place_text(place: Any) -> str | Source | None:
    """A path or an address as text that means the same elsewhere, with how its table is written; None for what lives
    in memory."""
    if isinstance(place, Source):
        kept = _portable_place_text(place.table)
        return None if kept is None else replace(place, table=kept)
    if isinstance(place, os.PathLike):
        place = os.fspath(place)
    if not isinstance(place, str):
        return None
    return place if "://" in place else os.path.abspath(place)
