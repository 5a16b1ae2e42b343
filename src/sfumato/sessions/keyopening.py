"""Opening a session over keys, and going on with one."""

from __future__ import annotations

import platform
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato.errors import LedgerError, PlanError
from sfumato.privacy.accountant import PureEvent
from sfumato.privacy.budget import Budget
from sfumato.privacy.ledger import Ledger
from sfumato.releases.core import Provenance
from sfumato.sessions.keyed import HistogramSession, KeySession, SparseSession
from sfumato.sessions.keyplans import HistogramPlan, SparsePlan, plan_histogram, plan_sparse
from sfumato.sessions.plans import BETA, QUESTIONS
from sfumato.wall.keys import KeyCurator
from sfumato.wall.keys.minutes import histogram_minutes

if TYPE_CHECKING:
    from sfumato.sessions.opening import Request

__all__ = ["open_key_histogram", "open_sparse", "resume_histogram", "resume_sparse"]


def open_key_histogram(asked: Request) -> KeySession:
    """A lazy histogram: the whole price is debited, nothing is drawn yet."""
    for name in ("updates", "threshold", "alpha", "size", "questions", "span", "records", "beta"):
        if getattr(asked, name) is not None:
            raise PlanError(f"{name} belongs to mechanism='sparse-mw'; a histogram answers everything and has none")
    currency = None if asked.ledger is None else asked.ledger.currency
    plan = plan_histogram(asked.domain, asked.budget, asked.unit, currency=currency)
    account = asked.ledger
    if account is None:
        price = plan.price
        account = Ledger.in_memory(Budget.pure(price.epsilon) if isinstance(price, PureEvent) else asked.budget)
    store = None if asked.store is None else Path(asked.store)
    histogram, receipt = KeyCurator(asked.source, plan.keys, plan.unit, account, table=asked.table).histogram(
        plan.noise,
        plan.price,
        name=asked.name,
        plan_hash=plan.fingerprint,
        store=store,
        about=asked.about | {"plan": plan},
    )
    if store is not None:
        account.mark_released(receipt, plan.fingerprint)
    return HistogramSession(plan, histogram, _provenance(account, asked.name))


def open_sparse(asked: Request) -> KeySession:
    """Sparse multiplicative weights: the whole price is debited."""
    if asked.span is not None:
        raise PlanError("span= is of questions over a domain; over keys every coefficient is 1")
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
    store = None if asked.store is None else Path(asked.store)
    conversation, receipt = KeyCurator(asked.source, plan.keys, plan.unit, account, table=asked.table).converse(
        plan.terms,
        plan.price,
        name=asked.name,
        plan_hash=plan.fingerprint,
        store=store,
        about=asked.about | {"plan": plan},
    )
    if store is not None:
        account.mark_released(receipt, plan.fingerprint)
    return SparseSession(plan, conversation)


def resume_histogram(store: Path, source: Any, account: Ledger, plan: HistogramPlan, anchor: str | None) -> KeySession:
    """Go on with a stored lazy histogram."""
    histogram = KeyCurator(source, plan.keys, plan.unit, account).resume_histogram(store, anchor)
    return HistogramSession(plan, histogram, _provenance(account, histogram_minutes(store, anchor).name))


def resume_sparse(store: Path, source: Any, account: Ledger, plan: SparsePlan, anchor: str | None) -> KeySession:
    """Go on with stored sparse multiplicative weights."""
    return SparseSession(plan, KeyCurator(source, plan.keys, plan.unit, account).resume(store, anchor=anchor))


def _provenance(account: Ledger, name: str) -> Provenance:
    """Where what a histogram shows stands."""
    entry = account.find(name)
    if entry is None:
        raise LedgerError(f"the ledger has no entry {name!r}; give the one that the session was opened with")
    versions = (("python", platform.python_version()), *((p, metadata.version(p)) for p in ("sfumato", "numpy")))
    return Provenance(
        name, account.ledger_id, entry.sequence, account.anchor, not account.durable, entry.time, versions
    )
