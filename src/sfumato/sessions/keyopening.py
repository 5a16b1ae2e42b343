"""Opening a session over keys, and going on with one."""

from __future__ import annotations

import platform
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato.errors import LedgerError
from sfumato.privacy.accountant import PureEvent
from sfumato.privacy.budget import Budget
from sfumato.privacy.ledger import Ledger
from sfumato.releases.core import Provenance
from sfumato.sessions.keyed import HistogramSession, KeySession, SparseSession
from sfumato.sessions.keyplans import HistogramPlan, SparsePlan
from sfumato.wall.keys import KeyCurator, histogram_minutes

if TYPE_CHECKING:
    from sfumato.sessions.opening import Opening

__all__ = ["open_key_histogram", "open_sparse", "resume_histogram", "resume_sparse"]


def open_key_histogram(asked: Opening) -> KeySession:
    """A lazy histogram: the whole price is debited, nothing is drawn yet."""
    plan, account = asked.plan, asked.ledger
    if account is None:
        price = plan.price
        account = Ledger.in_memory(Budget.pure(price.epsilon) if isinstance(price, PureEvent) else plan.budget)
    histogram, receipt = KeyCurator(asked.source, plan.keys, plan.unit, account, table=asked.table).histogram(
        plan.noise, plan.price, name=asked.name, plan_hash=plan.fingerprint, store=asked.store, about=asked.about
    )
    if asked.store is not None:
        account.mark_released(receipt, plan.fingerprint)
    return HistogramSession(plan, histogram, _provenance(account, asked.name))


def open_sparse(asked: Opening) -> KeySession:
    """Sparse multiplicative weights: the whole price is debited."""
    plan = asked.plan
    account = Ledger.in_memory(plan.budget) if asked.ledger is None else asked.ledger
    conversation, receipt = KeyCurator(asked.source, plan.keys, plan.unit, account, table=asked.table).converse(
        plan.terms, plan.price, name=asked.name, plan_hash=plan.fingerprint, store=asked.store, about=asked.about
    )
    if asked.store is not None:
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
