"""Opening a session from its plan, going on with one, and looking at one."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sfumato._util.description import Description
from sfumato.curator import Curator
from sfumato.curator.conversations import Conversation, open_conversation, resume_conversation
from sfumato.curator.conversations.stored import StoredTranscript, is_conversation, read_transcript
from sfumato.curator.keys.stored import StoredHistogram, is_histogram, read_histogram
from sfumato.domain import Domain
from sfumato.errors import InvalidInput, PlanError, WorkloadError
from sfumato.interactive.key_plans import HistogramPlan, SparsePlan
from sfumato.interactive.keys import (
    describe_shown,
    open_key_histogram,
    open_sparse,
    resume_key_histogram,
    resume_sparse,
)
from sfumato.interactive.plan import SessionPlan
from sfumato.interactive.session import (
    Belief,
    ConversingSession,
    QuerySession,
    Session,
    SessionAnswer,
    SessionOpening,
    begin_session,
    describe_steps,
    mark_opened,
    span_of,
    status_facts,
)
from sfumato.operators import Block
from sfumato.operators.base import FloatArray
from sfumato.plans.packing import pack_tables
from sfumato.plans.plan import Plan
from sfumato.privacy.accounting import Event, PureEvent
from sfumato.privacy.conversation_price import Step
from sfumato.privacy.ledger import Ledger
from sfumato.privacy.noise import DiscreteLaplace
from sfumato.privacy.selection import Candidates
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.releases import Release, load_release
from sfumato.releases.released import as_ledger


@dataclass(frozen=True, slots=True, repr=False)
class HistogramSession(QuerySession):
    """A session whose cells were all measured at its opening. Made by `sf.open`.

    `release` holds them. Every interval is of its own: it holds with probability 1 - beta for any one question.
    """

    release: Release
    beta: float = 0.05

    whole = False

    @property
    def domain(self) -> Domain:
        return self.release.plan.workload.domain

    @property
    def plan(self) -> Plan:
        return self.release.plan

    def status(self) -> dict[str, Any]:
        return {
            "mechanism": "histogram",
            "questions": None,
            "updates_left": None,
            "exhausted": False,
            "confidence": 1 - self.beta,
            "standard_error_of_a_cell": self.plan.mean_error,
        }

    def _headline(self) -> str:
        return "Session: every cell was measured at the opening; questions are free and any number may be asked"

    def describe(self) -> Description:
        return Description(self._headline(), [status_facts(self.status()), self.release.describe()])

    def _check(self, block: Block) -> None:
        """Every question over the domain is a sum of cells."""

    def _ask(self, block: Block, label: str) -> SessionAnswer:
        value = float(self.release.answer_block(block)[0])
        error = math.sqrt(float(self.release.variances(block).reshape(-1)[0]))
        bound = float(self.release.margins(block, 1 - self.beta).reshape(-1)[0])
        return SessionAnswer(value, "histogram", guaranteed=True, bound=bound, standard_error=error, label=label)

    def brief(self) -> str:
        return f"{self.domain.size:,} cells measured once"


# Below this the noise of a score cannot get: a question with this penalty is positive for all but a 2^-1000 of draws.
_SURE = -(2**50)


class _RecordsKnown(Exception):
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
            return _total_question(block, belief.estimate(block), threshold)

        return self._put(form, lambda steps: self._follow(steps).estimate(block), label)

    def _said(self, question: Candidates) -> tuple[int, int]:
        return int(question.estimates[0]), int(question.penalties[0])

    def _follow(self, steps: Sequence[Step]) -> Belief:
        """The hypothesis after these steps."""
        if self._belief is None:
            self._belief = Belief(self._plan.domain, _hypothesis_total(self._plan, steps), self._plan.refit)
        self._belief.follow(steps)
        return self._belief

    def _buy(self) -> tuple[Step, ...]:
        """Have the number of records bought, where it is private: the first question, always a hard one."""
        steps = self._conversation.steps
        if not self._plan.buys or steps or not self._conversation.remaining:
            return steps

        def form(before: Sequence[Step]) -> Candidates:
            if before:
                raise _RecordsKnown
            return _total_question(Block((), ()), 0, _SURE)

        with suppress(_RecordsKnown):
            self._conversation.ask(form)
        return self._conversation.steps


def _total_question(block: Block, estimate: int, penalty: int) -> Candidates:
    numbers = ([estimate], [1], [penalty])
    return Candidates((block,), *(np.array(n, dtype=np.int64) for n in numbers))


def _hypothesis_total(plan: SessionPlan, steps: Sequence[Step]) -> float:
    """The number of records that the hypothesis has: public, or as bought."""
    if not plan.buys or not steps or steps[0].answer is None:
        return float(plan.records)
    return float(max(steps[0].answer, 0))


Place = str | os.PathLike[str]

_LONGEST = 100  # what is left of a name when words are added to it


def open_session(asked: SessionOpening) -> Session:
    """Debit the whole price of a session and begin it. Raises PlanError for a plan of another kind."""
    return KEPT[type(asked.plan)].open(asked)


def resume_session(
    store: Place, ledger: Place | Ledger | None, source: Any = None, *, anchor: str | None = None
) -> Session:
    """Go on with a session that was kept in a store; nothing is spent.

    `ledger` is the one that paid, and is required: a file cannot be believed about who paid for it. None is for the
    folder of a histogram over cells alone, which is public and looks at nothing more. `source` defaults to the path it
    was opened with. With an `anchor` kept from earlier, a file that was put back to a state before it is refused.

    Raises InvalidInput, LedgerError or LedgerCorrupted for a store or ledger that do not fit, SourceError for a table
    that cannot be loaded or that changed.
    """
    if Path(store).is_dir():
        if anchor is not None:
            raise InvalidInput(f"{store} is a release, which never changes, and has no anchor; leave anchor out")
        return histogram_session(load_release(store))
    account = as_ledger(ledger)
    if account is None:
        raise InvalidInput(
            f"which ledger paid for {store}? Name it with ledger=: the file answers from your table, and is not "
            "believed about who paid, for whoever made it could name a ledger of their own"
        )
    # looked at twice, here and by the curator: with an anchor both are of one file
    found, about = read_kept_session(store, anchor, begun=True)
    table = about.get("source") if source is None else source
    if table is None:
        raise InvalidInput(f"{store} does not remember its table; name it")
    plan = about["plan"]
    opened_again = KEPT[type(plan)].resume(Path(store), table, account, plan, anchor)
    mark_opened(account, found.name, plan.fingerprint)
    return opened_again


def session_status(store: Place) -> dict[str, Any]:
    """How a stored session stands; neither table nor ledger is touched. Raises LedgerError, InvalidInput."""
    if Path(store).is_dir():
        return histogram_session(load_release(store)).status()
    found, about = read_kept_session(store)
    own = {"name": found.name, "ledger_id": found.ledger_id, "anchor": found.anchor}
    plan = about["plan"]
    table = about.get("source")
    return KEPT[type(plan)].describe(plan, found) | own | {"source": None if table is None else str(table)}


def keeps_session(path: Path) -> bool:
    """Whether a file says of itself that it keeps a session; nothing else is checked."""
    return is_conversation(path) or is_histogram(path)


def read_kept_session(
    store: Place, anchor: str | None = None, *, begun: bool = False
) -> tuple[StoredTranscript | StoredHistogram, dict[str, Any]]:
    """What a stored session shows, and what it remembers of its opening, which need only be `begun`."""
    if is_histogram(Path(store)):
        found = read_histogram(Path(store), anchor)
    else:
        found = read_transcript(store, anchor, begun=begun)
    if not isinstance(found.about, dict) or type(found.about.get("plan")) not in KEPT:
        raise InvalidInput(f"{store} is a conversation, but no session of this kind")
    return found, found.about


def _resume_online(store: Path, source: Any, account: Ledger, plan: SessionPlan, anchor: str | None) -> Session:
    curator = Curator(source, plan.domain, plan.unit, account, packing=pack_tables)
    return OnlineSession(plan, resume_conversation(curator, store, anchor=anchor))


def _open_online(asked: SessionOpening) -> Session:
    """Check the public number of records where there is one, then debit and begin."""
    plan = asked.plan
    account = Ledger.in_memory(plan.budget) if asked.ledger is None else asked.ledger
    # what follows from public input and the ledger alone is refused before the table is read
    account.expect(asked.name, "0" * 64, plan.price, plan.unit, asked.table)
    curator = Curator(asked.source, plan.domain, plan.unit, account, table=asked.table, packing=pack_tables)
    if plan.unit.total_is_public and not asked.counted:
        found = _public_total(curator, account, asked.name)
        if max(found, 1) != plan.records:
            raise PlanError(
                f"records= says {plan.records:,}, and the table has {found:,}, public under replace-one; plan with that"
            )
    return OnlineSession(plan, begin_session(asked, account, partial(open_conversation, curator), plan.terms))


def public_records(
    source: Any, domain: Domain, unit: PrivacyUnit, account: Ledger, name: str, price: Event, table: str | None
) -> int:
    """The number of records that a session under replace-one is to be planned for; free, as it is public.

    Refuses before the table is read what the ledger would refuse of a session at that price.
    """
    account.expect(name, "0" * 64, price, unit, table)
    return _public_total(Curator(source, domain, unit, account, table=table, packing=pack_tables), account, name)


def _public_total(curator: Curator, account: Ledger, name: str) -> int:
    """The number of records of a table under replace-one: the same for all neighbours, so that it costs nothing."""
    noise, free = DiscreteLaplace(Fraction(1)), PureEvent(Fraction(0))
    measured, receipt = curator.measure(
        (Block((), ()),), noise, free, name=_unused_entry_name(account, name), plan_hash="records"
    )
    account.mark_released(receipt, "records")
    if measured.total is None:
        raise PlanError("the number of records is not public here")
    return measured.total


def _unused_entry_name(account: Ledger, name: str) -> str:
    """A name beside the session's, for the entry of price 0 under which the number of records is read."""
    number = 1
    while account.find(free := f"{name[:_LONGEST].rstrip()} (records {number})") is not None:
        number += 1
    return free


def histogram_session(made: object) -> HistogramSession:
    """A session over a release that measured everything it will be asked. Raises InvalidInput for another kind."""
    if not isinstance(made, Release):
        raise InvalidInput("the folder holds a release of another kind than a histogram session")
    return HistogramSession(made)


@dataclass(frozen=True, slots=True)
class _SessionKind:
    """How a session is opened; how one kept in a file goes on, from (file, source, ledger, plan, anchor), and how it
    stands, from what its file shows."""

    open: Callable[[SessionOpening], Session]
    resume: Callable[[Path, Any, Ledger, Any, str | None], Session]
    describe: Callable[[Any, Any], dict[str, Any]]


KEPT: dict[type, _SessionKind] = {
    SessionPlan: _SessionKind(
        _open_online, _resume_online, lambda plan, found: describe_steps(plan, found.steps, found.remaining)
    ),
    SparsePlan: _SessionKind(
        open_sparse, resume_sparse, lambda plan, found: describe_steps(plan, found.steps, found.remaining)
    ),
    HistogramPlan: _SessionKind(
        open_key_histogram,
        resume_key_histogram,
        lambda plan, found: describe_shown(plan, found.shown.elements.size),
    ),
}
"""Sessions by their plans."""
