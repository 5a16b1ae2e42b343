"""Opening a session over keys, and going on with one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato.errors import LedgerError, NotWritten, PlanError, SfumatoError
from sfumato.mechanisms.run import one_shot
from sfumato.plans.planned import Planned
from sfumato.privacy.ledger import Ledger, Receipt
from sfumato.releases.provenance import Provenance, provenance, receipt_of, versions
from sfumato.sessions.core import KeySession
from sfumato.sessions.keyed import LazyHistogramSession, SparseSession
from sfumato.sessions.keyplans import HistogramPlan, SparsePlan, plan_histogram, plan_sparse
from sfumato.sessions.plans import BETA, QUESTIONS
from sfumato.wall.keys import KeyCurator, histogram_minutes

if TYPE_CHECKING:
    from sfumato.sessions.opening import Request

__all__ = [
    "check_keys",
    "hand_over",
    "open_key_histogram",
    "open_sparse",
    "refuse_idle",
    "resume_histogram",
    "resume_sparse",
]


def refuse_idle(asked: Request, names: Iterable[str], whose: str) -> None:
    """Raise PlanError for options that were given and belong to another mechanism."""
    for name in names:
        if getattr(asked, name) is not None:
            raise PlanError(f"{name} belongs to {whose}")


def check_keys(span: object) -> None:
    """Raise PlanError for a span of coefficients."""
    if span is not None:
        raise PlanError("span= is of questions over a domain; over keys every coefficient is 1")


def hand_over(account: Ledger, receipt: Receipt, plan: Planned, store: Path | None) -> None:
    """Tell the ledger that a session is kept in its store. Raises NotWritten."""
    if store is None:
        return
    try:
        account.mark_released(receipt, plan.fingerprint)
    except SfumatoError as error:
        raise NotWritten(
            f"the session is paid for and kept in {store}, but the ledger could not be told so ({error}); go on with "
            "it by sf.resume_session"
        ) from error


def open_key_histogram(asked: Request) -> KeySession:
    """A lazy histogram: the whole price is debited, nothing is drawn yet."""
    idle = ("updates", "threshold", "alpha", "size", "questions", "span", "records", "beta")
    refuse_idle(asked, idle, "mechanism='sparse-mw'; a histogram answers everything and has none")
    currency = None if asked.ledger is None else asked.ledger.currency
    plan = plan_histogram(asked.domain, asked.budget, asked.unit, currency=currency)
    account = one_shot(plan.price, asked.budget) if asked.ledger is None else asked.ledger
    store, about = None if asked.store is None else Path(asked.store), asked.about | {"plan": plan}
    curator = KeyCurator(asked.source, plan.keys, plan.unit, account, table=asked.table)
    histogram, receipt = curator.histogram(
        plan.noise, plan.price, name=asked.name, plan_hash=plan.fingerprint, store=store, about=about
    )
    hand_over(account, receipt, plan, store)
    return LazyHistogramSession(plan, histogram, _provenance(account, asked.name))


def open_sparse(asked: Request) -> KeySession:
    """Sparse multiplicative weights: the whole price is debited."""
    check_keys(asked.span)
    account = Ledger.in_memory(asked.budget) if asked.ledger is None else asked.ledger
    plan = plan_sparse(
        asked.domain,
        asked.budget,
        asked.unit,
        records=asked.records,
        size=asked.size,
        questions=QUESTIONS if asked.questions is None else asked.questions,
        beta=BETA if asked.beta is None else asked.beta,
        currency=account.currency,
        updates=asked.updates,
        threshold=asked.threshold,
        alpha=asked.alpha,
    )
    store, about = None if asked.store is None else Path(asked.store), asked.about | {"plan": plan}
    curator = KeyCurator(asked.source, plan.keys, plan.unit, account, table=asked.table)
    conversation, receipt = curator.converse(
        plan.terms, plan.price, name=asked.name, plan_hash=plan.fingerprint, store=store, about=about
    )
    hand_over(account, receipt, plan, store)
    return SparseSession(plan, conversation)


def resume_histogram(store: Path, source: Any, account: Ledger, plan: HistogramPlan, anchor: str | None) -> KeySession:
    """Go on with a stored lazy histogram."""
    histogram = KeyCurator(source, plan.keys, plan.unit, account).resume_histogram(store, anchor)
    return LazyHistogramSession(plan, histogram, _provenance(account, histogram_minutes(store, anchor).name))


def resume_sparse(store: Path, source: Any, account: Ledger, plan: SparsePlan, anchor: str | None) -> KeySession:
    """Go on with stored sparse multiplicative weights."""
    return SparseSession(plan, KeyCurator(source, plan.keys, plan.unit, account).resume(store, anchor=anchor))


def _provenance(account: Ledger, name: str) -> Provenance:
    """Where what a histogram shows stands."""
    entry = account.find(name)
    if entry is None:
        raise LedgerError(f"the ledger has no entry {name!r}; give the one that the session was opened with")
    return provenance(receipt_of(account, entry, account.anchor), account, versions(), created=entry.time)
