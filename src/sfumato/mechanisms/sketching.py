"""Carry a plan for keys out: validate, open the source, pay, measure, store."""

from __future__ import annotations

import datetime
import os
import platform
import secrets
from importlib import metadata
from pathlib import Path
from typing import Any

from sfumato.errors import InvalidInput, NameTaken, NotWritten, PlanError
from sfumato.ground.checks import check_text
from sfumato.ground.codec import encode, fingerprint
from sfumato.plans.keys import KeyPlan
from sfumato.privacy.accountant import ApproxEvent, PureEvent
from sfumato.privacy.budget import Budget
from sfumato.privacy.ledger import Ledger, Receipt
from sfumato.privacy.pricing import keeps
from sfumato.releases.core import Provenance
from sfumato.releases.sketched import SketchRelease, load_sketch
from sfumato.wall.keys import KeyCurator

__all__ = ["sketch"]


def sketch(
    plan: KeyPlan,
    source: Any,
    *,
    ledger: str | os.PathLike[str] | Ledger | None,
    name: str = "sketch",
    out: str | os.PathLike[str] | None = None,
    table: str | None = None,
    snapshot: str | None = None,
) -> SketchRelease:
    """Pay for a plan of keys, measure once, and return what answers later queries; with `out` it is in that file first.

    `source` is sf.KeyCounts, or a table with the plan's column as for sf.release: a path, a DuckDB URL or relation, a
    pandas, polars or arrow frame. `ledger` is required; None is an explicit one-shot account, and the release says so.
    The same name with the same plan and `out` returns the stored sketch, free; otherwise a taken name raises NameTaken.
    `table` is the public name of the table, which the ledger fixes at its first spend; LedgerMismatch for another.

    Guarantee: the release satisfies the plan's budget for the plan's privacy unit, and the price is debited durably
    before noise is drawn or the records are looked at.

    Raises InvalidInput or SourceError (nothing spent), BudgetExceeded (ledger untouched), NotWritten (spent, but the
    sketch could not be stored).
    """
    if type(plan) is not KeyPlan:
        raise PlanError("sketch needs a plan of keys, made by sf.plan of sf.Keys or read by sf.load")
    if snapshot is not None:
        check_text(snapshot, "snapshot")
    _check(plan)
    account = _account(plan, ledger)
    account.admit(plan.unit, table)
    place = None if out is None else _place(out)
    stored = _stored(plan, account, name, place)
    if stored is not None:
        if snapshot not in (None, stored.provenance.snapshot):
            raise NameTaken(f"{name!r} was released from snapshot {stored.provenance.snapshot!r}; choose another name")
        return stored
    if place is not None:
        _try_writing(place)
    versions = (("python", platform.python_version()), *((p, metadata.version(p)) for p in ("sfumato", "numpy")))
    curator = KeyCurator(source, plan.keys, plan.unit, account, table=table)
    measured, receipt = curator.measure(
        plan.map, plan.noise, plan.price, plan.stability, name=name, plan_hash=plan.fingerprint
    )
    try:
        created = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        provenance = Provenance(
            name,
            receipt.ledger_id,
            receipt.sequence,
            receipt.anchor,
            not account.durable,
            created,
            versions,
            snapshot,
            table,
        )
        result = SketchRelease(plan, measured, provenance)
        if place is not None:
            result.save(place)
        account.mark_released(receipt, fingerprint(measured))
    except Exception as error:
        raise NotWritten(
            f"the budget is spent (entry {receipt.sequence}) but the sketch could not be stored: {error}. "
            "The ledger lists it as unreleased; there is no refund once noise was drawn"
        ) from error
    return result


def _check(plan: KeyPlan) -> None:
    """Try without data all that could fail without data. Raises PlanError for a plan above the budget it states."""
    try:
        _ = encode(plan), plan.fingerprint
        if isinstance(plan.price, ApproxEvent):
            delta = plan.budget.delta if plan.budget.kind == "approx" else None
            honest = delta is not None and plan.price.delta <= delta and plan.price.epsilon <= plan.budget.parameter
        else:
            honest = keeps(plan.price, plan.budget)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # what a damaged file holds fails in its own ways
        raise PlanError(f"the plan cannot be carried out ({error}); plan again") from error
    if not honest:
        raise PlanError(f"the plan's price is above the budget that it states, {plan.budget}; plan again")


def _account(plan: KeyPlan, ledger: str | os.PathLike[str] | Ledger | None) -> Ledger:
    if ledger is None:
        if isinstance(plan.price, ApproxEvent):
            return Ledger.in_memory(plan.budget, "epsilon")
        return Ledger.in_memory(Budget.pure(plan.price.epsilon) if isinstance(plan.price, PureEvent) else plan.budget)
    if isinstance(ledger, (str, os.PathLike)):
        return Ledger(ledger)
    if not isinstance(ledger, Ledger):
        raise InvalidInput(f"ledger is a path, an sf.Ledger, or None for an explicit one-shot account, not {ledger!r}")
    return ledger


def _place(out: str | os.PathLike[str]) -> Path:
    """The file a sketch goes to. Raises InvalidInput for a link, a folder, or a path that climbs."""
    try:
        path = Path(out)
        if ".." in path.parts or not path.name:
            raise InvalidInput(f"{path}: an output file has a name of its own and must not climb with '..'")
        if path.is_symlink() or path.is_dir():
            raise InvalidInput(f"{path} is a symbolic link or a folder; name a file")
    except (OSError, TypeError, ValueError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"a sketch cannot be written to {out!r}: {error}") from error
    return path


def _try_writing(path: Path) -> None:
    """Prove before a budget is spent that the file can be made. Raises InvalidInput."""
    trial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        exists = path.exists()
        trial.touch(exist_ok=False)
        trial.unlink()
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path} cannot be written: {error}; its folder must exist") from error
    if exists:
        raise InvalidInput(f"{path} exists; choose another name")


def _stored(plan: KeyPlan, account: Ledger, name: str, place: Path | None) -> SketchRelease | None:
    """The sketch already made under this name, if there is one."""
    entry = account.find(name)
    if entry is None:
        return None
    if entry.plan_hash != plan.fingerprint:
        raise NameTaken(f"the ledger already holds a release called {name!r}, made from another plan; choose another")
    if place is None or not place.exists():
        raise NameTaken(
            f"{name!r} was already paid for{'' if entry.released else ', though never stored'}. Its sketch is free to "
            "read where it was stored: give out=, its file, or sf.load. Measuring again is new noise and a new "
            "debit: choose another name"
        )
    found = load_sketch(place)
    digest = fingerprint(found.measurement)
    ours = (account.ledger_id, entry.sequence, plan.fingerprint, entry.result_hash or digest)
    theirs = found.provenance
    if (theirs.ledger_id, theirs.sequence, found.plan.fingerprint, digest) != ours:
        raise InvalidInput(f"{place} holds another release than {name!r}; choose another file")
    if not entry.released:
        # the process that stored it ended before it could say so
        account.mark_released(
            Receipt(entry.sequence, theirs.anchor, account.ledger_id, name, entry.price, account.currency), digest
        )
    return found
