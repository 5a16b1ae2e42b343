"""Opening a session over keys, and going on with one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sfumato.errors import LedgerError
from sfumato.mechanisms.run import one_shot
from sfumato.privacy.ledger import Ledger
from sfumato.releases.provenance import Provenance, provenance, receipt_of, versions
from sfumato.sessions.core import KeySession
from sfumato.sessions.keyed import LazyHistogramSession, SparseSession
from sfumato.sessions.keyplans import HistogramPlan, SparsePlan, plan_histogram, plan_sparse
from sfumato.sessions.plans import BETA, QUESTIONS
from sfumato.sessions.requests import Request, begun, check_keys, refuse_idle
from sfumato.wall.keys import KeyCurator
from sfumato.wall.keys.minutes import histogram_minutes

__all__ = ["open_key_histogram", "open_sparse", "resume_histogram", "resume_sparse"]


def open_key_histogram(asked: Request) -> KeySession:
    """A lazy histogram: the whole price is debited, nothing is drawn yet."""
    idle = ("updates", "threshold", "alpha", "size", "questions", "span", "records", "beta")
    refuse_idle(asked, idle, "mechanism='sparse-mw'; a histogram answers everything and has none")
    currency = None if asked.ledger is None else asked.ledger.currency
    plan = plan_histogram(asked.domain, asked.budget, asked.unit, currency=currency)
    account = one_shot(plan.price, asked.budget) if asked.ledger is None else asked.ledger
    curator = KeyCurator(asked.source, plan.keys, plan.unit, account, table=asked.table)
    histogram = begun(asked, account, plan, curator.histogram, plan.noise)
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
    curator = KeyCurator(asked.source, plan.keys, plan.unit, account, table=asked.table)
    return SparseSession(plan, begun(asked, account, plan, curator.converse, plan.terms))


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
