"""Opening a session over keys, and going on with one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sfumato.errors import LedgerError
from sfumato.privacy.ledger import Ledger
from sfumato.releases.accounts import one_shot
from sfumato.releases.provenance import Provenance, provenance, receipt_of, versions
from sfumato.sessions.core import KeySession
from sfumato.sessions.keyed import LazyHistogramSession, SparseSession
from sfumato.sessions.keyplans import HistogramPlan, SparsePlan
from sfumato.sessions.requests import Opening, begun
from sfumato.wall.keys import KeyCurator
from sfumato.wall.keys.stored import read_histogram

__all__ = ["open_key_histogram", "open_sparse", "resume_histogram", "resume_sparse"]


def open_key_histogram(asked: Opening) -> KeySession:
    """A lazy histogram: the whole price is debited, nothing is drawn yet."""
    plan = asked.plan
    account = one_shot(plan.price, plan.budget) if asked.ledger is None else asked.ledger
    curator = KeyCurator(asked.source, plan.keys, plan.unit, account, table=asked.table)
    return LazyHistogramSession(
        plan, begun(asked, account, curator.histogram, plan.noise), _provenance(account, asked.name)
    )


def open_sparse(asked: Opening) -> KeySession:
    """Sparse multiplicative weights: the whole price is debited."""
    plan = asked.plan
    account = Ledger.in_memory(plan.budget) if asked.ledger is None else asked.ledger
    curator = KeyCurator(asked.source, plan.keys, plan.unit, account, table=asked.table)
    return SparseSession(plan, begun(asked, account, curator.converse, plan.terms))


def resume_histogram(store: Path, source: Any, account: Ledger, plan: HistogramPlan, anchor: str | None) -> KeySession:
    """Go on with a stored lazy histogram."""
    histogram = KeyCurator(source, plan.keys, plan.unit, account).resume_histogram(store, anchor)
    return LazyHistogramSession(plan, histogram, _provenance(account, read_histogram(store, anchor).name))


def resume_sparse(store: Path, source: Any, account: Ledger, plan: SparsePlan, anchor: str | None) -> KeySession:
    """Go on with stored sparse multiplicative weights."""
    return SparseSession(plan, KeyCurator(source, plan.keys, plan.unit, account).resume(store, anchor=anchor))


def _provenance(account: Ledger, name: str) -> Provenance:
    """Where what a histogram shows stands."""
    entry = account.find(name)
    if entry is None:
        raise LedgerError(f"the ledger has no entry {name!r}; give the one that the session was opened with")
    return provenance(receipt_of(account, entry, account.anchor), account, versions(), created=entry.time)
