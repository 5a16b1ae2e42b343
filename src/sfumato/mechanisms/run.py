"""Carry a plan out: validate, open the table, pay, measure, reconstruct, store. [privacy.md, order of steps]"""

from __future__ import annotations

import datetime
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

from sfumato.curator import Curator
from sfumato.errors import InvalidInput, NameTaken, NotWritten, PlanError, SfumatoError
from sfumato.plans import Plan
from sfumato.privacy.accountant import PureEvent, ZcdpEvent
from sfumato.privacy.budget import Budget
from sfumato.privacy.ledger import Ledger, Receipt
from sfumato.releases import Provenance, Release, load_release, save_release
from sfumato.releases.files import check_folder, result_hash

__all__ = ["release"]


def release(
    plan: Plan,
    source: Any,
    *,
    ledger: str | os.PathLike[str] | Ledger | None,
    name: str = "release",
    out: str | os.PathLike[str] | None = None,
    snapshot: str | None = None,
) -> Release:
    """Pay for a plan, measure once, and return the release; with `out` it is on disk before the call returns.

    `source` is a path, a DuckDB URL or relation, a pandas, polars or arrow frame, or sf.Histogram.
    `ledger` is required; None is an explicit one-shot account, and the release says so. The same name
    with the same plan returns the stored release, free; with another plan it raises NameTaken.
    Raises InvalidInput or SourceError (nothing spent), BudgetExceeded (ledger untouched), NotWritten
    (spent, but the release could not be stored).
    """
    if not isinstance(plan, Plan):
        raise PlanError("release needs a plan, made by sf.plan or read by sf.load_plan")
    if snapshot is not None and (not isinstance(snapshot, str) or not snapshot):
        raise PlanError(f"snapshot must be a text that names the state of the table, not {snapshot!r}")
    account = _account(plan, ledger)
    stored = _stored(plan, account, name, out)
    if stored is not None:
        return stored
    folder = None if out is None else check_folder(out)
    quote = account.quote(plan)
    if not quote.fits:
        # refused before the table is opened; the debit checks again under the ledger's lock
        account.debit(name, plan.fingerprint, plan.price)
    curator = Curator(source, plan.workload.domain, plan.unit, account)
    measured, receipt = curator.measure(
        plan.strategy.blocks, plan.noise, plan.price, name=name, plan_hash=plan.fingerprint
    )
    result = Release(plan, measured, _provenance(receipt, snapshot, one_shot=ledger is None))
    if folder is not None:
        _store(result, folder, receipt)
    account.mark_released(receipt, result_hash(result))
    return result


def _account(plan: Plan, ledger: str | os.PathLike[str] | Ledger | None) -> Ledger:
    if ledger is None:
        return Ledger.in_memory(_total_for(plan))
    return ledger if isinstance(ledger, Ledger) else Ledger(ledger)


def _total_for(plan: Plan) -> Budget:
    """A total that the plan's price just fits, in the price's own currency."""
    match plan.price:
        case PureEvent(epsilon=epsilon):
            return Budget.pure(epsilon)
        case ZcdpEvent(rho=rho):
            return Budget.zcdp(rho)
        case _:
            return plan.budget


def _stored(plan: Plan, account: Ledger, name: str, out: str | os.PathLike[str] | None) -> Release | None:
    """The release already made under this name, if there is one."""
    entry = account.find(name)
    if entry is None:
        return None
    if entry.plan_hash != plan.fingerprint:
        raise NameTaken(
            f"the ledger already holds a release called {name!r}, made from another plan; choose another name"
        )
    if out is None or not (Path(out) / "release.json").exists():
        raise NameTaken(
            f"{name!r} was already paid for. Its release is free to read where it was stored: give out=, its folder, "
            "or sf.load_release. Measuring again is new noise and a new debit: choose another name"
        )
    found = load_release(out)
    if found.plan.fingerprint != plan.fingerprint or found.provenance.sequence != entry.sequence:
        raise InvalidInput(f"{out} holds another release than {name!r}; choose another folder")
    return found


def _provenance(receipt: Receipt, snapshot: str | None, *, one_shot: bool) -> Provenance:
    packages = ("sfumato", "numpy", "scipy", "duckdb")
    versions = (("python", platform.python_version()), *((p, metadata.version(p)) for p in packages))
    created = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return Provenance(
        receipt.name, receipt.ledger_id, receipt.sequence, receipt.anchor, one_shot, created, versions, snapshot
    )


def _store(result: Release, folder: Path, receipt: Receipt) -> None:
    try:
        save_release(result, folder)
    except (OSError, SfumatoError) as error:
        raise NotWritten(
            f"the budget is spent (entry {receipt.sequence}), but writing the release to {folder} failed: {error}. "
            "The ledger lists it as unreleased; there is no refund once noise was drawn"
        ) from error
