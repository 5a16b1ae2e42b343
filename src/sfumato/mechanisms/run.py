"""Carry a plan out: validate, open the table, pay, measure, reconstruct, store."""

from __future__ import annotations

import datetime
import os
import platform
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from sfumato.designs.design import DEFAULT_OBJECTIVE
from sfumato.designs.strategy import Strategy
from sfumato.errors import InvalidInput, NameTaken, NotWritten, PlanError, SfumatoError
from sfumato.estimate.widths import Forecast
from sfumato.ground.checks import check_text
from sfumato.ground.codec import encode, fingerprint
from sfumato.ground.progress import Progress
from sfumato.measurements import Measurement
from sfumato.mechanisms.courses import check_course, run_course
from sfumato.operators import Block, Family
from sfumato.plans.courses import CoursePlan
from sfumato.plans.plan import Plan
from sfumato.privacy.accountant import Event, PureEvent, ZcdpEvent
from sfumato.privacy.budget import Budget
from sfumato.privacy.ledger import Ledger, Receipt
from sfumato.privacy.noise import NoiseLaw
from sfumato.privacy.pricing import keeps
from sfumato.privacy.sensitivity import Sensitivity
from sfumato.privacy.unit import PrivacyUnit
from sfumato.releases import Provenance, Release, load_release
from sfumato.releases.files import Draft, result_hash, write_release
from sfumato.releases.modelled import ModelRelease, write_model
from sfumato.wall import Curator
from sfumato.workloads import Workload

__all__ = ["projected_release", "release"]


_PARTS: dict[str, Any] = {
    "workload": Workload,
    "budget": Budget,
    "unit": PrivacyUnit,
    "strategy": Strategy,
    "noise": NoiseLaw,
    "price": Event,
    "sensitivity": Sensitivity,
    "mechanism": str,
    "objective": str,
    "bound": float | int | None,
    "records": int | None,
    "body": str | None,
    "forecast": Forecast | None,
}


def release(
    plan: Plan | CoursePlan,
    source: Any,
    *,
    ledger: str | os.PathLike[str] | Ledger | None,
    name: str = "release",
    out: str | os.PathLike[str] | None = None,
    table: str | None = None,
    snapshot: str | None = None,
    progress: Progress | None = None,
) -> Release | ModelRelease:
    """Pay for a plan, measure, and return the release; with `out` it is on disk before the call returns.

    `source` is a path, a DuckDB URL or relation, a pandas, polars or arrow frame, or sf.Histogram.
    `ledger` is required; None is an explicit one-shot account, and the release says so. The same name
    with the same plan returns the stored release, free; with another plan it raises NameTaken. `table` is the public
    name of the table, which the ledger fixes at its first spend; LedgerMismatch for another.
    Raises InvalidInput or SourceError (nothing spent), BudgetExceeded (ledger untouched), NotWritten
    (spent, but the release could not be stored).
    """
    if not isinstance(plan, (Plan, CoursePlan)):
        raise PlanError(
            "release needs a plan, made by sf.plan or read by sf.load; one for questions to come is opened by sf.open, "
            "and one of the local model collects reports by plan.collect"
        )
    if snapshot is not None:
        check_text(snapshot, "snapshot")
    blocks = _check(plan)
    account = _account(plan, ledger)
    account.admit(plan.unit, table)
    stored = _stored(plan, account, name, out)
    if stored is not None:
        if snapshot not in (None, stored.provenance.snapshot):
            raise NameTaken(f"{name!r} was released from snapshot {stored.provenance.snapshot!r}; choose another name")
        return stored
    versions = _versions()
    with nullcontext() if out is None else Draft(out) as draft:
        curator = Curator(source, plan.workload.domain, plan.unit, account, table=table)
        made: Callable[[Provenance], Release | ModelRelease]
        if isinstance(plan, CoursePlan):
            paid, receipt = curator.prepaid(plan.price, name=name, plan_hash=plan.fingerprint)
            made = partial(run_course, plan, paid)
        else:
            measured, receipt = curator.measure(
                blocks,
                plan.noise,
                plan.price,
                name=name,
                plan_hash=plan.fingerprint,
                stated=plan.sensitivity,
                folder=None if draft is None else draft.partial,
            )
            made = partial(_made, plan, measured, progress)
        try:
            result = made(_provenance(receipt, snapshot, table, versions, one_shot=not account.durable))
            if draft is not None:
                _write(result, draft.partial)
                draft.publish()
            account.mark_released(receipt, result_hash(result))
        except Exception as error:
            raise NotWritten(
                f"the budget is spent (entry {receipt.sequence}) but the release could not be stored: {error}. "
                "The ledger lists it as unreleased; there is no refund once noise was drawn"
            ) from error
        return result


def _made(plan: Plan, measured: Measurement, progress: Progress | None, provenance: Provenance) -> Release:
    return projected_release(Release(plan, measured, provenance), plan, progress)


def _write(result: Release | ModelRelease, folder: Path) -> None:
    if isinstance(result, ModelRelease):
        write_model(result, folder)
    else:
        write_release(result, folder)


def _check(plan: Plan | CoursePlan) -> tuple[Block | Family, ...]:
    """What is to be measured (if known now), once all that could fail without data was tried without data.

    Raises PlanError for a plan that does not hold together, or whose price is above the budget it states.
    """
    try:
        if isinstance(plan, CoursePlan):
            check_course(plan)
            blocks = ()
        else:
            _check_parts(plan)
            blocks = tuple(plan.strategy.blocks)
            _ = plan.rmse, plan.max_standard_error
        _ = encode(plan), plan.fingerprint
        honest = keeps(plan.price, plan.budget)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # what a damaged file holds fails in its own ways
        raise PlanError(f"the plan cannot be carried out ({error}); plan again") from error
    if not honest:
        raise PlanError(f"the plan's price is above the budget that it states, {plan.budget}; plan again")
    return blocks


def _check_parts(plan: Plan) -> None:
    for name, kind in _PARTS.items():
        if not isinstance(getattr(plan, name), kind):
            raise PlanError(f"the plan's {name} is a {type(getattr(plan, name)).__name__}: it is damaged, plan again")


def projected_release(result: Release, plan: Plan, progress: Progress | None = None) -> Release:
    """The release with its answers projected, where the plan says so."""
    if plan.body is None:
        return result
    try:
        space = None if plan.body in ("local", "mixtures") else "answers"
        # the plain norm over the answers is that in which a width bounds the error; of many tables none is known
        return result.project(plan.body, space=space, progress=progress)
    except (SfumatoError, ArithmeticError, MemoryError, ValueError):
        # what was paid for is kept as it is; it can be projected at any time
        return result


def _account(plan: Plan | CoursePlan, ledger: str | os.PathLike[str] | Ledger | None) -> Ledger:
    if ledger is None:
        return Ledger.in_memory(_total_for(plan))
    if isinstance(ledger, (str, os.PathLike)):
        return Ledger(ledger)
    if not isinstance(ledger, Ledger):
        raise InvalidInput(f"ledger is a path, an sf.Ledger, or None for an explicit one-shot account, not {ledger!r}")
    return ledger


def _total_for(plan: Plan | CoursePlan) -> Budget:
    """A total that the plan's price just fits, in the price's own currency."""
    match plan.price:
        case PureEvent(epsilon=epsilon):
            return Budget.pure(epsilon)
        case ZcdpEvent(rho=rho):
            return Budget.zcdp(rho)
        case _:
            return plan.budget


def _stored(
    plan: Plan | CoursePlan, account: Ledger, name: str, out: str | os.PathLike[str] | None
) -> Release | ModelRelease | None:
    """The release already made under this name, if there is one."""
    entry = account.find(name)
    if entry is None:
        return None
    older: Release | None = None
    if entry.plan_hash != plan.fingerprint:
        older = _of_older_default(plan, entry.plan_hash, out)
        if older is None:
            raise NameTaken(
                f"the ledger already holds a release called {name!r}, made from another plan; choose another name"
            )
    if out is None or not _is_stored(out):
        raise NameTaken(
            f"{name!r} was already paid for{'' if entry.released else ', though never stored'}. Its release is free to "
            "read where it was stored: give out=, its folder, or sf.load. Measuring again is new noise and a "
            "new debit: choose another name"
        )
    found = load_release(out) if older is None else older
    theirs = found.provenance
    ours = (account.ledger_id, entry.sequence, entry.plan_hash, entry.result_hash or result_hash(found))
    if (theirs.ledger_id, theirs.sequence, found.plan.fingerprint, result_hash(found)) != ours:
        raise InvalidInput(f"{out} holds another release than {name!r}; choose another folder")
    if not entry.released:
        # the process that stored it ended before it could say so
        receipt = Receipt(entry.sequence, theirs.anchor, account.ledger_id, name, entry.price, account.currency)
        account.mark_released(receipt, result_hash(found))
    return found


def _of_older_default(plan: Plan | CoursePlan, paid: str, out: str | os.PathLike[str] | None) -> Release | None:
    """The release that 0.1 made of the same questions, budget and unit under its own default objective, if it was paid.

    A script that is run again gets what it paid for, though it would be planned otherwise today; reading is free.
    """
    if not isinstance(plan, Plan) or plan.objective != DEFAULT_OBJECTIVE or out is None or not _is_stored(out):
        return None
    found = load_release(out)
    if not isinstance(found, Release) or found.plan.fingerprint != paid or found.plan.objective != "cells":
        return None
    written = dict(found.provenance.versions).get("sfumato", "")
    ours, theirs = ((p.workload, p.budget, p.unit) for p in (plan, found.plan))
    if not written.startswith("0.1.") or fingerprint(ours) != fingerprint(theirs):
        return None
    warnings.warn(
        f"the release in {out} was stored by sfumato {written}, whose objective was 'cells' (every cell alike); it is "
        f"returned as it is. Under another name it would be planned with {DEFAULT_OBJECTIVE!r}",
        UserWarning,
        stacklevel=4,
    )
    return found


def _is_stored(out: str | os.PathLike[str]) -> bool:
    try:
        return (Path(out) / "release.json").exists()
    except (OSError, TypeError, ValueError):
        return False


def _versions() -> tuple[tuple[str, str], ...]:
    packages = ("sfumato", "numpy", "scipy", "duckdb")
    return (("python", platform.python_version()), *((p, metadata.version(p)) for p in packages))


def _provenance(
    receipt: Receipt,
    snapshot: str | None,
    table: str | None,
    versions: tuple[tuple[str, str], ...],
    *,
    one_shot: bool,
) -> Provenance:
    created = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return Provenance(
        receipt.name, receipt.ledger_id, receipt.sequence, receipt.anchor, one_shot, created, versions, snapshot, table
    )
