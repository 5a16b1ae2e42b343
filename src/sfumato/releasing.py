"""From a spec to a plan, and from a plan to a release with its page: what `sf.release` and the commands call."""

from __future__ import annotations

import os
import warnings
import zipfile
from pathlib import Path
from typing import Any, overload

from sfumato.courseplans import CoursePlan
from sfumato.errors import InvalidInput
from sfumato.mechanisms import budget_for, choose, plan_for, run
from sfumato.plans import Plan, load_plan
from sfumato.privacy.budget import Budget
from sfumato.privacy.ledger import Ledger
from sfumato.releases import ModelRelease, Release
from sfumato.report import write_report
from sfumato.specs import Spec, read_spec

__all__ = ["REPORT", "PageWarning", "budget_of_margin", "plan_of", "plan_of_margins", "plan_or_spec", "release"]

REPORT = "report.html"
"""The page's name in a release's folder."""


class PageWarning(UserWarning):
    """A release is complete but its page is not."""


@overload
def release(
    plan: Plan,
    source: Any,
    *,
    ledger: str | os.PathLike[str] | Ledger | None,
    name: str = "release",
    out: str | os.PathLike[str] | None = None,
    table: str | None = None,
    snapshot: str | None = None,
    progress: choose.Progress | None = None,
) -> Release: ...
@overload
def release(
    plan: CoursePlan,
    source: Any,
    *,
    ledger: str | os.PathLike[str] | Ledger | None,
    name: str = "release",
    out: str | os.PathLike[str] | None = None,
    table: str | None = None,
    snapshot: str | None = None,
    progress: choose.Progress | None = None,
) -> ModelRelease: ...
def release(
    plan: Plan | CoursePlan,
    source: Any,
    *,
    ledger: str | os.PathLike[str] | Ledger | None,
    name: str = "release",
    out: str | os.PathLike[str] | None = None,
    table: str | None = None,
    snapshot: str | None = None,
    progress: choose.Progress | None = None,
) -> Release | ModelRelease:
    """Pay for a plan, measure, and return the release; with `out` it is on disk before the call returns.

    A CoursePlan looks several times, and its release is a ModelRelease; its whole price is debited before the first.
    `source` is a path, a DuckDB URL or relation, a pandas, polars or arrow frame, or sf.Histogram.
    `ledger` is required; None is an explicit one-shot account, and the release says so. The same name
    with the same plan returns the stored release, free; with another plan it raises NameTaken. `table` is the public
    name of the table, which stays when its file moves: the ledger fixes it, with the plan's privacy unit, at its first
    spend and refuses another. `snapshot` names a state of the table. `out` is a folder; besides the release it gets
    report.html, a page for people. `progress` is told of the steps of a projection that was planned, which is done
    after all is measured.

    Guarantee: the release satisfies the plan's budget for the plan's privacy unit, and the price is
    debited durably before noise is drawn or the table is counted.

    Raises InvalidInput or SourceError (nothing spent), BudgetExceeded or LedgerMismatch (ledger untouched), NotWritten
    (spent, but the release could not be stored). A page that could not be written is a warning only: the
    release is complete, and `sfumato report FOLDER` makes the page.
    """
    result = run.release(
        plan, source, ledger=ledger, name=name, out=out, table=table, snapshot=snapshot, progress=progress
    )
    if out is not None and not (Path(out) / REPORT).exists():
        try:
            write_report(result, Path(out) / REPORT)
        except Exception as error:
            # the budget is spent and the release is stored: nothing about its page may hide that
            warnings.warn(
                f"the release is complete in {out}, but its page could not be written ({error}); "
                "make it with: sfumato report FOLDER",
                PageWarning,
                stacklevel=2,
            )
    return result


def _options(spec: Spec) -> dict[str, Any]:
    return {
        "neighbours": spec.neighbours,
        "person": spec.person,
        "rows_per_person": spec.rows_per_person,
        "mechanism": spec.mechanism,
        "objective": spec.objective,
        "records": spec.records,
        "public": spec.public or None,
    }


def plan_of(spec: Spec, progress: choose.Progress | None = None, *, compare: bool = False) -> Plan | CoursePlan:
    """The plan that a spec asks for, compared with every mechanism or with those that may be best.

    No data are read. Raises PlanError or BudgetError.
    """
    options: dict[str, Any] = {**_options(spec), "rounds": spec.rounds}
    return choose.plan(spec.workload, spec.budget, compare=compare, progress=progress, **options)


def budget_of_margin(spec: Spec, margin: float) -> Budget:
    """The least budget of the spec's kind (and delta) whose 95 % intervals reach at most `margin` either way."""
    kind, delta = spec.budget.kind, spec.budget.delta
    return budget_for(spec.workload, margin=margin, kind=kind, delta=delta, **_options(spec))


def plan_of_margins(spec: Spec) -> Plan:
    """The plan that keeps to the margins of a spec's queries at the least budget of the spec's kind (and delta).

    Raises InvalidInput where the spec states none, PlanError as `sf.plan_for`.
    """
    if not spec.margins:
        raise InvalidInput(f"{spec.path} states no margin; add margin = 50 to the [[queries]] that need one")
    kind, delta = spec.budget.kind, spec.budget.delta
    options = {k: v for k, v in _options(spec).items() if k != "objective"}
    return plan_for(spec.workload, margin=spec.margins, kind=kind, delta=delta, **options)


def plan_or_spec(
    path: str | os.PathLike[str], progress: choose.Progress | None = None
) -> tuple[Plan | CoursePlan, str | None, str | None]:
    """A saved plan, or the plan of a spec, with its source and its table's public name. Raises InvalidInput."""
    if not Path(path).is_file():
        raise InvalidInput(f"{str(path)!r} is no file; name a spec or a saved plan")
    if zipfile.is_zipfile(path):
        return load_plan(path), None, None
    spec = read_spec(path)
    if spec.margins:
        raise InvalidInput(
            f"{path} states margins, which a release from its budget would ignore. Make the plan that keeps to them "
            f"with: sfumato plan {path} --margins -o PLAN, and release PLAN; or take the margins out"
        )
    return plan_of(spec, progress), spec.source, spec.table
