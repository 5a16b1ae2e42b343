"""Carry a plan of any kind out: validate, open the source, pay, look, reconstruct, store."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from sfumato._util.bundles import check_text
from sfumato._util.codec import value_fingerprint
from sfumato._util.display import Progress
from sfumato._util.documents import ENDINGS, defer_signals
from sfumato.curator import Curator
from sfumato.curator.by_part import curator_for
from sfumato.curator.engines.partitions import report_jobs_to
from sfumato.curator.people.tables import feature_texts
from sfumato.errors import InvalidInput, NameTaken, NotWritten, PlanError, SfumatoError
from sfumato.mechanisms.iterative import check_rounds, run_rounds
from sfumato.mechanisms.registry import LOOKS, import_named
from sfumato.plans.iterative import IterativePlan
from sfumato.plans.packing import pack_tables
from sfumato.plans.plan import Plan
from sfumato.plans.planned import Planned
from sfumato.privacy.ledger import Entry, Ledger, Receipt
from sfumato.privacy.reserved_budget import ReservedBudget
from sfumato.releases import ModelRelease, Provenance, Release, load_release
from sfumato.releases.files import (
    BUNDLE,
    Draft,
    ReleaseFile,
    read_bundle,
    sweep_leftovers,
    unfinished_releases,
)
from sfumato.releases.released import as_ledger, earlier_receipt, make_provenance, one_shot_account, package_versions
from sfumato.strategies.certificates import find_certificate

if TYPE_CHECKING:
    from sfumato.plans.keys import KeyPlan
    from sfumato.plans.labels import LabelPlan
    from sfumato.plans.profiles import ProfilePlan
    from sfumato.releases.profiles import Profile
    from sfumato.releases.sketches import SketchRelease

Place = str | os.PathLike[str]
Made = Callable[[Provenance], Any]


@dataclass(frozen=True, slots=True)
class Access:
    """What a look is given: the source and the account that pays, the name to pay under, and where values may go."""

    source: Any
    account: Ledger
    name: str
    table: str | None
    folder: Path | None
    progress: Progress | None
    out: Place | None


def look_once(plan: Plan, at: Access, owed: ReservedBudget | None = None) -> tuple[Receipt, Made]:
    """One look, paid for by the account, or from what is owed."""
    blocks = plan.strategy.blocks
    opened_by = curator_for(blocks)
    pays = at.account if owed is None else owed
    curator = opened_by(at.source, plan.workload.domain, plan.unit, pays, table=at.table, packing=pack_tables)
    grid = plan.workload.domain.grid
    measured, receipt = curator.measure(
        blocks,
        plan.noise,
        plan.price,
        name=at.name,
        plan_hash=plan.fingerprint,
        stated=plan.sensitivity,
        certificate=find_certificate(blocks, grid.sizes(), plan.unit, plan.sensitivity.power, grid.measures),
        folder=at.folder,
        cut=plan.cut,
    )
    return receipt, lambda where: Release(plan, measured, where)


def _look_often(plan: IterativePlan, at: Access) -> tuple[Receipt, Made]:
    curator = Curator(at.source, plan.workload.domain, plan.unit, at.account, table=at.table, packing=pack_tables)
    paid, receipt = curator.prepaid(plan.price, name=at.name, plan_hash=plan.fingerprint)
    return receipt, lambda where: run_rounds(plan, paid, where)


@dataclass(frozen=True, slots=True)
class PlanKind:
    """What is peculiar to a kind of plan: its look, where its release is kept and how that is called and read.

    `look` pays, and returns the receipt with what makes the release of what came out, which `finish` may project.
    `bundle` names the file that holds all of a release, which `read` reads. `owed`: whether an entry paid for a look
    that was not taken yet, because the process was killed before; `stored` is told when a release is.
    """

    look: Callable[[Any, Access], tuple[Receipt, Made]]
    finish: Callable[[Any, Any, Progress | None], Any] = lambda result, _plan, _progress: result
    check: Callable[[Any], None] = methodcaller("check")
    what: str = "release"
    place: str = "folder"
    draft: Callable[..., Draft | ReleaseFile] = Draft
    bundle: Callable[[Path], str] = lambda _: BUNDLE
    read: Callable[[Path], Any] = read_bundle
    load: Callable[[Place], Any] = load_release
    holds: Callable[[Place], bool] = lambda out: (Path(out) / "release.json").exists()
    owed: Callable[[Any, Ledger, Entry, Place | None], bool] = lambda _plan, _account, _entry, _out: False
    stored: Callable[[Place | None], None] = lambda _out: None


_KINDS: dict[type[Planned], PlanKind] = {
    Plan: PlanKind(look_once, lambda result, plan, progress: projected_release(result, plan, progress)),
    IterativePlan: PlanKind(_look_often, check=check_rounds),
}
"""The plans of tables, and their looks; those of extensions are in `registry.LOOKS`."""


def _find_kind(plan: object) -> PlanKind | None:
    found = _KINDS.get(type(plan))  # pyright: ignore[reportArgumentType]  (anything may be asked)
    made_by = LOOKS.get(type(plan).__name__)
    return import_named(made_by)() if found is None and made_by is not None else found


@overload
def carry_out(plan: Plan | LabelPlan, source: Any, *, ledger: Place | Ledger | None, **options: Any) -> Release: ...
@overload
def carry_out(plan: IterativePlan, source: Any, *, ledger: Place | Ledger | None, **options: Any) -> ModelRelease: ...
@overload
def carry_out(plan: ProfilePlan, source: Any, *, ledger: Place | Ledger | None, **options: Any) -> Profile: ...
@overload
def carry_out(plan: KeyPlan, source: Any, *, ledger: Place | Ledger | None, **options: Any) -> SketchRelease: ...
def carry_out(  # type: ignore[reportInconsistentOverload]  (the options are those named here)
    plan: Planned,
    source: Any,
    *,
    ledger: Place | Ledger | None,
    name: str = "release",
    out: Place | None = None,
    table: str | None = None,
    snapshot: str | None = None,
    progress: Progress | None = None,
) -> Any:
    """Pay for a plan, look, and return the release; with `out` it is on disk before the call returns.

    `source` is a path, a DuckDB, Postgres or Spark URL, a DuckDB relation, a pandas, polars, arrow or Spark frame,
    or sf.Histogram (sf.KeyCounts).
    `ledger` is required; None is an explicit one-shot account, and the release says so. The same name, plan
    and `out` return the stored release, free; a name that was paid for otherwise raises NameTaken. `table` is the
    public name of the table, which the ledger fixes at its first spend; LedgerMismatch for another.
    Raises InvalidInput or SourceError (nothing spent), BudgetExceeded (ledger untouched), NotWritten
    (spent, but the release could not be stored).
    """
    kind = _find_kind(plan)
    if kind is None:
        raise PlanError(
            "release needs a plan, made by sf.plan or read by sf.load; one for questions to come is opened by sf.open, "
            "and one of the local model collects reports by plan.collect"
        )
    if snapshot is not None:
        check_text(snapshot, "snapshot")
    _check_plan_holds(plan, kind)
    found = as_ledger(ledger)
    account = one_shot_account(plan.price, plan.budget) if found is None else found
    account.admit(plan.unit, table)
    entry = account.find(name)
    if entry is not None and not kind.owed(plan, account, entry, out):
        stored = _find_stored_release(plan, kind, account, entry, out)
        kind.stored(out)
        if snapshot not in (None, stored.provenance.snapshot):
            raise NameTaken(f"{name!r} was released from snapshot {stored.provenance.snapshot!r}; choose another name")
        return stored
    made_by = package_versions()
    jobs = getattr(progress, "jobs", None)
    with (
        nullcontext() if out is None else kind.draft(out, paid=account.durable) as draft,
        nullcontext() if jobs is None else report_jobs_to(jobs),
    ):
        folder = None if draft is None else draft.partial
        try:
            receipt, made = kind.look(plan, Access(source, account, name, table, folder, progress, out))
        except ENDINGS as ended:
            paid = account.find(name)
            if paid is None:
                raise
            raise _lost_release_error(kind, paid.sequence, "it was interrupted") from ended
        late: BaseException | None = None
        result: Any = None
        try:
            # a source is looked at by nobody before it is paid for
            told = feature_texts(source)
            result = made(make_provenance(receipt, account, made_by, snapshot=snapshot, table=table, features=told))
            try:
                result = kind.finish(result, plan, progress)
            except ENDINGS as ended:
                if draft is None:
                    raise
                late = ended  # what was paid for is stored as it is: it can be projected at any time
            with nullcontext() if draft is None else defer_signals():
                if draft is not None:
                    draft.keep(result)
                account.mark_released(receipt, result.result_hash)
                kind.stored(out)
        except ENDINGS as ended:
            if out is None or not _holds_release(kind, out):
                raise _lost_release_error(kind, receipt.sequence, "it was interrupted") from ended
            late = ended
        except Exception as error:
            raise _lost_release_error(kind, receipt.sequence, str(error)) from error
        if late is None:
            return result
        if isinstance(late, SystemExit):
            raise late
        raise KeyboardInterrupt(
            f"interrupted, but the {kind.what} was paid for (entry {receipt.sequence}) and is complete in {out}; the "
            "same command again reads it back, free"
        ) from late


def _lost_release_error(kind: PlanKind, sequence: int, why: str) -> NotWritten:
    return NotWritten(
        f"the budget is spent (entry {sequence}) but the {kind.what} could not be stored: {why}. The ledger lists it "
        "as unreleased; there is no refund once noise was drawn. Where all that came out was written beside its place "
        "already, the same command again finishes it, free"
    )


def _check_plan_holds(plan: Planned, kind: PlanKind) -> None:
    """Try without data all that could fail without data.

    Raises PlanError for a plan that does not hold together, or whose price is above the budget it states.
    """
    try:
        kind.check(plan)
        honest = plan.honest
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # what a damaged file holds fails in its own ways
        raise PlanError(f"the plan cannot be carried out ({error}); plan again") from error
    if not honest:
        raise PlanError(f"the plan's price is above the budget that it states, {plan.budget}; plan again")


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


def _find_stored_release(plan: Planned, kind: PlanKind, account: Ledger, entry: Entry, out: Place | None) -> Any:
    """The release that an entry paid for. Raises NameTaken where there is none, or it is of another plan."""
    name = entry.name
    if entry.plan_hash != plan.fingerprint:
        raise NameTaken(
            f"the ledger already holds a release called {name!r} (entry {entry.sequence}), made from another plan: "
            f"{_plan_difference_text(plan, kind, entry, out)}. Choose another name, or give the plan that "
            "it was made from"
        )
    if out is not None and not _holds_release(kind, out) and not entry.released:
        _finish_interrupted(plan, kind, account, entry, Path(out))
    if out is None or not _holds_release(kind, out):
        raise _name_taken_error(kind, entry, out)
    found = kind.load(out)
    theirs = found.provenance
    ours = (account.ledger_id, entry.sequence, entry.plan_hash, entry.result_hash or found.result_hash)
    if (theirs.ledger_id, theirs.sequence, found.plan.paid_plan, found.result_hash) != ours:
        raise InvalidInput(
            f"{out} holds another release than {name!r}: it is {theirs.name!r}, "
            + ("of another ledger" if theirs.ledger_id != account.ledger_id else f"entry {theirs.sequence}")
            + f", and {name!r} is entry {entry.sequence} of this ledger; choose another {kind.place}"
        )
    if not entry.released:
        # the process that stored it ended before it could say so
        account.mark_released(earlier_receipt(account, entry, theirs.anchor), found.result_hash)
    sweep_leftovers(Path(out), kind.bundle(Path(out)))
    return found


def _finish_interrupted(plan: Planned, kind: PlanKind, account: Ledger, entry: Entry, out: Path) -> None:
    """Store the release that an entry paid for at `out`, if all of it lies beside, where writing it was interrupted."""
    with unfinished_releases(out, kind.bundle(out)) as found:
        for file, place in found.items():
            try:
                made = kind.read(file)
            except InvalidInput:
                continue
            where = made.provenance
            theirs = (where.ledger_id, where.name, where.sequence, made.plan.paid_plan)
            if theirs != (account.ledger_id, entry.name, entry.sequence, plan.fingerprint):
                continue
            account.check(where.anchor)
            try:
                with kind.draft(out, paid=True) as draft:
                    draft.keep(made)
            except InvalidInput:
                raise
            except Exception as error:
                raise NotWritten(
                    f"{entry.name!r} was paid for (entry {entry.sequence}) and all of it is in {place}, but it could "
                    f"not be stored in {out}: {error}. Make room or access, and give the same command again"
                ) from error
            shutil.rmtree(place, ignore_errors=True)
            return


def _name_taken_error(kind: PlanKind, entry: Entry, out: Place | None) -> NameTaken:
    """The refusal of a name that was paid for, and how to come by what it paid for."""
    if entry.released or out is None:
        return NameTaken(
            f"{entry.name!r} was already paid for{'' if entry.released else ', though never stored'}. Its {kind.what} "
            f"is free to read where it was stored: give out=, its {kind.place}, or sf.load. Measuring again is new "
            "noise and a new debit: choose another name"
        )
    return NameTaken(
        f"{entry.name!r} was already paid for (entry {entry.sequence}), though never stored at {out}: nothing of it "
        "was shown, unless another process is writing it now. If it was to be stored elsewhere, give that place as "
        f"out=, and what lies there is finished. Else it is lost, and there is no refund once noise was drawn: "
        "measuring again is a new debit, under another name"
    )


def _plan_difference_text(plan: Planned, kind: PlanKind, entry: Entry, out: Place | None) -> str:
    """In what a plan differs from the one that an entry paid for, as far as the entry and what is stored tell."""
    theirs: Any = None
    if out is not None and _holds_release(kind, out):
        with suppress(SfumatoError):
            theirs = kind.load(out).plan
    if theirs is None or theirs.paid_plan != entry.plan_hash:
        if entry.unit not in (None, plan.unit):
            return "whose records are protected differs"
        return "its price differs" if plan.price != entry.event else "at the same price, it measures otherwise"
    parts = {"workload": "the questions", "budget": "the budget", "unit": "whose records are protected"}
    parts |= {"mechanism": "the mechanism", "objective": "the objective", "noise": "the noise"}
    found = [
        said
        for name, said in parts.items()
        if value_fingerprint(getattr(plan, name, None)) != value_fingerprint(getattr(theirs, name, None))
    ]
    return f"{', '.join(found)} differ{'s' if len(found) == 1 else ''}" if found else "it measures otherwise"


def _holds_release(kind: PlanKind, out: Place) -> bool:
    try:
        return kind.holds(out)
    except InvalidInput:
        raise
    except (OSError, TypeError, ValueError):
        return False
