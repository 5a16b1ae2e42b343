"""Opening a session, going on with one, and looking at one before it is opened."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, overload

from sfumato.designs.spending import price_of
from sfumato.domain import Domain
from sfumato.errors import InvalidInput, PlanError
from sfumato.mechanisms.run import carry_out, opened
from sfumato.operators import Block
from sfumato.plans.packing import pack
from sfumato.privacy.accountant import PureEvent
from sfumato.privacy.budget import Budget
from sfumato.privacy.ledger import Ledger
from sfumato.privacy.noise import DiscreteLaplace
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.releases import Release, load_release
from sfumato.sessions.asking import describe_steps
from sfumato.sessions.core import KeySession, QuerySession, Session
from sfumato.sessions.histogram import HistogramSession, histogram_plan
from sfumato.sessions.keyed import describe_shown
from sfumato.sessions.keyopening import open_key_histogram, open_sparse, resume_histogram, resume_sparse
from sfumato.sessions.keyplans import HistogramPlan, SparsePlan, plan_histogram, plan_sparse
from sfumato.sessions.online import OnlineSession
from sfumato.sessions.plans import BETA, QUESTIONS, SessionPlan, check_options, check_shape, make_plan
from sfumato.sessions.requests import Request, begun, check_keys, refuse_idle
from sfumato.sketches import Keys
from sfumato.wall import Curator
from sfumato.wall.keys import HistogramMinutes, histogram_minutes, is_histogram
from sfumato.wall.talk import Minutes, converse, minutes, resume

__all__ = ["OPENERS", "resume_session", "session", "session_plan", "session_status"]

Place = str | os.PathLike[str]

_LONGEST = 100  # what is left of a name when words are added to it


@overload
def session(source: Any, domain: Domain, budget: Budget, **options: Any) -> QuerySession: ...
@overload
def session(source: Any, domain: Keys, budget: Budget, **options: Any) -> KeySession: ...
def session(  # type: ignore[reportInconsistentOverload]  (the options are those named here)
    source: Any,
    domain: Domain | Keys,
    budget: Budget,
    *,
    neighbours: str | Neighbours,
    ledger: Place | Ledger | None,
    records: int | None = None,
    mechanism: str = "pmw",
    table: str | None = None,
    name: str = "session",
    store: Place | None = None,
    person: str | None = None,
    rows_per_person: int = 1,
    updates: int | None = None,
    threshold: int | None = None,
    alpha: float | str | None = None,
    beta: float | None = None,
    questions: int | None = None,
    span: int | None = None,
    size: int | None = None,
) -> Session:
    """Open a session for questions that are not known in advance; the whole budget is debited now.

    mechanism "pmw": a public hypothesis answers while it is near enough, and `updates` hard questions are measured.
    `threshold` (records) is the error from which a question is hard; both have usual values that follow from cells,
    records and budget. With `alpha`, a fraction of the records or "least", they are set such that the updates last for
    the first `questions` questions (10,000) with probability 1 - `beta` (.95), and every answer is within alpha.
    mechanism "histogram": all cells are measured now; every question is then free. Over sf.Keys, a universe too large
    to list, each key has its noise drawn when it is first asked for, once.
    mechanism "sparse-mw", over sf.Keys: as "pmw", for questions of at most `size` keys; errs more than a histogram.

    `records` is a public number near that of the records; under replace-one, where it is public, it may be left out.
    `span` bounds how far apart a question's coefficients are (1). Options of another mechanism are refused. With
    `store`, a path at which nothing is, the session is kept and `sf.resume_session` goes on with it, from any process;
    a file of "pmw" holds secret noise and is for the custodian alone. `ledger` is required; None is an
    explicit one-shot account. `table` is the public name of the table, which the ledger fixes with the privacy unit at
    its first spend; LedgerMismatch for another.

    Guarantee: everything the session ever gives out satisfies the budget, for the stated neighbours.

    Raises InvalidInput or SourceError (nothing spent), BudgetExceeded or NameTaken (ledger untouched), NotWritten
    (spent, but not stored).
    """
    kind = (type(domain), mechanism)
    if kind not in OPENERS:
        known = ", ".join(repr(m) for d, m in OPENERS if d is type(domain)) or "none for such a domain"
        raise PlanError(f"mechanism of a session over {type(domain).__name__} is one of {known}, not {mechanism!r}")
    if not isinstance(budget, Budget):
        raise PlanError("session needs a budget: sf.pure(1), sf.approx(1, '1e-6'), sf.zcdp('0.5') or sf.gdp(1)")
    about = {"source": _text(source)}
    unit = PrivacyUnit(Neighbours.parse(neighbours), person, rows_per_person)
    account = opened(ledger)
    limits = (records, beta, questions, span, updates, threshold, alpha, size)
    return OPENERS[kind](Request(source, domain, budget, unit, account, table, name, store, *limits, about))


@overload
def session_plan(domain: Domain, budget: Budget, **options: Any) -> SessionPlan: ...
@overload
def session_plan(domain: Keys, budget: Budget, **options: Any) -> HistogramPlan | SparsePlan: ...
def session_plan(  # type: ignore[reportInconsistentOverload]  (the options are those named here)
    domain: Domain | Keys,
    budget: Budget,
    *,
    neighbours: str | Neighbours,
    records: int | None = None,
    person: str | None = None,
    rows_per_person: int = 1,
    updates: int | None = None,
    threshold: int | None = None,
    alpha: float | str | None = None,
    beta: float | None = None,
    questions: int | None = None,
    span: int | None = None,
    size: int | None = None,
    ledger: Place | Ledger | None = None,
) -> SessionPlan | HistogramPlan | SparsePlan:
    """What a session of private multiplicative weights would promise, beside a histogram; no data are read.

    Over sf.Keys: a histogram, or with `size`, the most keys of a question, sparse multiplicative weights. `ledger`, if
    given, says in which currency the budget would be spent. Raises PlanError.
    """
    if not isinstance(budget, Budget):
        raise PlanError("session_plan needs a budget: sf.pure(1), sf.approx(1, '1e-6'), sf.zcdp('0.5') or sf.gdp(1)")
    unit = PrivacyUnit(Neighbours.parse(neighbours), person, rows_per_person)
    account = opened(ledger)
    currency = None if account is None else account.currency
    options: dict[str, Any] = {"currency": currency, "updates": updates, "threshold": threshold, "alpha": alpha}
    if isinstance(domain, Keys):
        check_keys(span)
        if size is None:
            idle = {"updates": updates, "threshold": threshold, "alpha": alpha, "questions": questions, "beta": beta}
            idle |= {"records": records}
            given = [name for name, value in idle.items() if value is not None]
            if given:
                raise PlanError(
                    f"{', '.join(given)} belong to sparse multiplicative weights, planned with size=, the most keys of "
                    "a question; a histogram answers everything and has none"
                )
            return plan_histogram(domain, budget, unit, currency=currency)
        asked, sure, _ = _usual(questions, beta, None)
        return plan_sparse(domain, budget, unit, records=records, size=size, questions=asked, beta=sure, **options)
    _check_domain(size)
    shape = check_shape(domain, records, *_usual(questions, beta, span), unit)
    return make_plan(domain, budget, unit, shape, **options)


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
        return _histogram(load_release(store))
    account = opened(ledger)
    if account is None:
        raise InvalidInput(
            f"which ledger paid for {store}? Name it (ledger=, --ledger): the file answers from your table, and is not "
            "believed about who paid, for whoever made it could name a ledger of their own"
        )
    # looked at twice, here and by the curator: with an anchor both are of one file
    _, about = _kept(store, anchor)
    table = about.get("source") if source is None else source
    if table is None:
        raise InvalidInput(f"{store} does not remember its table; name it")
    plan = about["plan"]
    return KEPT[type(plan)].resume(Path(store), table, account, plan, anchor)


def session_status(store: Place) -> dict[str, Any]:
    """How a stored session stands; neither table nor ledger is touched. Raises LedgerError, InvalidInput."""
    if Path(store).is_dir():
        return _histogram(load_release(store)).status()
    found, about = _kept(store)
    own = {"name": found.name, "ledger_id": found.ledger_id, "anchor": found.anchor}
    plan = about["plan"]
    return KEPT[type(plan)].describe(plan, found) | own | {"source": about.get("source")}


def _kept(store: Place, anchor: str | None = None) -> tuple[Minutes | HistogramMinutes, dict[str, Any]]:
    """What a stored session shows, and what it remembers of its opening."""
    found = histogram_minutes(Path(store), anchor) if is_histogram(Path(store)) else minutes(store, anchor)
    if not isinstance(found.about, dict) or type(found.about.get("plan")) not in KEPT:
        raise InvalidInput(f"{store} is a conversation, but no session of this kind")
    return found, found.about


def _resume_online(store: Path, source: Any, account: Ledger, plan: SessionPlan, anchor: str | None) -> Session:
    return OnlineSession(
        plan, resume(Curator(source, plan.domain, plan.unit, account, packing=pack), store, anchor=anchor)
    )


def _open_online(asked: Request) -> Session:
    """Read the public number of records where there is one, then debit and begin."""
    _check_domain(asked.size)
    unit, account = asked.unit, Ledger.in_memory(asked.budget) if asked.ledger is None else asked.ledger
    public, records = unit.total_is_public, asked.records
    limits = (*_usual(asked.questions, asked.beta, asked.span), unit)
    # what follows from public input and the ledger alone is refused before the table is read
    shape = check_shape(asked.domain, 1 if public and records is None else records, *limits)
    check_options(asked.updates, asked.threshold, asked.alpha)
    store = None if asked.store is None else Path(asked.store)
    if store is not None and store.exists():
        raise InvalidInput(f"{store} exists; choose another path, or go on with it by sf.resume_session")
    account.expect(asked.name, "0" * 64, price_of(asked.budget, account.currency), unit, asked.table)
    curator = Curator(asked.source, asked.domain, unit, account, table=asked.table, packing=pack)
    if public:
        found = _public_total(curator, account, asked)
        if records not in (None, found):
            raise PlanError(
                f"records= says {records:,}, and the table has {found:,}, public under replace-one; leave it out"
            )
        shape = check_shape(asked.domain, max(found, 1), *limits)
    options: dict[str, Any] = {"updates": asked.updates, "threshold": asked.threshold, "alpha": asked.alpha}
    plan = make_plan(asked.domain, asked.budget, unit, shape, currency=account.currency, **options)
    return OnlineSession(plan, begun(asked, account, plan, partial(converse, curator), plan.terms))


def _check_domain(size: object) -> None:
    if size is not None:
        raise PlanError("size= is the most keys of a question: it belongs to sessions over sf.Keys, not to a domain")


def _usual(questions: int | None, beta: float | None, span: int | None) -> tuple[int, float, int]:
    """(questions, beta, span), those not given as usual."""
    return QUESTIONS if questions is None else questions, BETA if beta is None else beta, 1 if span is None else span


def _public_total(curator: Curator, account: Ledger, asked: Request) -> int:
    """The number of records of a table under replace-one: the same for all neighbours, so that it costs nothing."""
    name, total = _unused(account, asked.name), Block((), ())
    noise, free = DiscreteLaplace(Fraction(1)), PureEvent(Fraction(0))
    measured, receipt = curator.measure((total,), noise, free, name=name, plan_hash="records")
    account.mark_released(receipt, "records")
    if measured.total is None:
        raise PlanError("the number of records is not public here")
    return measured.total


def _unused(account: Ledger, name: str) -> str:
    """A name beside the session's, for the entry of price 0 under which the number of records is read."""
    number = 1
    while account.find(free := f"{name[:_LONGEST].rstrip()} (records {number})") is not None:
        number += 1
    return free


def _open_histogram(asked: Request) -> Session:
    """Measure every cell now."""
    idle = ("updates", "threshold", "alpha", "size", "questions", "span")
    refuse_idle(asked, idle, "mechanism='pmw'; a histogram answers any number of any questions")
    plan = histogram_plan(asked.domain, asked.budget, asked.unit, asked.ledger, asked.records)
    made = carry_out(plan, asked.source, ledger=asked.ledger, name=asked.name, out=asked.store, table=asked.table)
    return _histogram(made, BETA if asked.beta is None else asked.beta)


def _histogram(made: object, beta: float = BETA) -> HistogramSession:
    if not isinstance(made, Release):
        raise InvalidInput("the folder holds a release of another kind than a histogram session")
    return HistogramSession(made, beta)


def _text(place: Any) -> str | None:
    """A path or an address as text that means the same elsewhere; None for what lives in memory."""
    if isinstance(place, os.PathLike):
        place = os.fspath(place)
    if not isinstance(place, str):
        return None
    return place if "://" in place else os.path.abspath(place)


OPENERS: dict[tuple[type, str], Callable[[Request], Session]] = {
    (Domain, "pmw"): _open_online,
    (Domain, "histogram"): _open_histogram,
    (Keys, "histogram"): open_key_histogram,
    (Keys, "sparse-mw"): open_sparse,
}
"""Who opens a session, by the kind of its domain and its mechanism."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """How a session kept in a file goes on, from (file, source, ledger, plan, anchor), and how it stands, from
    its minutes."""

    resume: Callable[[Path, Any, Ledger, Any, str | None], Session]
    describe: Callable[[Any, Any], dict[str, Any]]


KEPT: dict[type, _Kind] = {
    SessionPlan: _Kind(_resume_online, lambda plan, found: describe_steps(plan, found.steps, found.remaining)),
    SparsePlan: _Kind(resume_sparse, lambda plan, found: describe_steps(plan, found.steps, found.remaining)),
    HistogramPlan: _Kind(resume_histogram, lambda plan, found: describe_shown(plan, found.shown.elements.size)),
}
"""Sessions that are kept in a file, by their plan."""
