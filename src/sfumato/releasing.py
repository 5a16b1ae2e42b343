"""From a spec to a plan, and from a plan to a release with its page: what `sf.release` and the commands call."""

from __future__ import annotations

import functools
import itertools
import json
import math
import os
import warnings
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Required, TypedDict, Unpack, cast, overload

from sfumato._util.display import Progress, show_progress
from sfumato._util.documents import write_text_atomically
from sfumato.curator.people import Joined, PerPerson
from sfumato.curator.rows.written import Source, source_of
from sfumato.errors import InvalidInput
from sfumato.mechanisms import carry_out
from sfumato.mechanisms.profiles import plan_profile
from sfumato.mechanisms.registry import make_mechanism
from sfumato.mechanisms.steps import looks_beside
from sfumato.planner.inverse import budget_for, plan_for
from sfumato.planner.opening import read_stored
from sfumato.planner.planning import compared, plan
from sfumato.plans.iterative import IterativePlan
from sfumato.plans.keys import KeyPlan
from sfumato.plans.labels import LabelPlan
from sfumato.plans.plan import Plan
from sfumato.plans.planned import WorkloadPlan
from sfumato.plans.profiles import ProfilePlan
from sfumato.plans.streams import StreamPlan
from sfumato.present import write_report
from sfumato.present.profiles import profile_page, profile_spec
from sfumato.privacy.budget import Budget
from sfumato.privacy.ledger import Ledger
from sfumato.releases import ModelRelease, Release
from sfumato.releases.profiles import PROFILE, Profile
from sfumato.releases.publication import Publication, write_publication
from sfumato.releases.released import WorkloadRelease
from sfumato.releases.sketches import SketchRelease
from sfumato.specs import Spec, read_spec
from sfumato.strategies.design import DEFAULT_OBJECTIVE
from sfumato.workloads.core import exact_weight

REPORT = "report.html"
"""The page's name in a release's folder."""
_MAX_VARIANTS = 24  # more columns of margins than a screen is wide


class PageWarning(UserWarning):
    """A release is complete but its page is not."""


class _ReleaseOptions(TypedDict, total=False):
    """What `release` takes by name."""

    ledger: Required[str | os.PathLike[str] | Ledger | None]
    name: str
    out: str | os.PathLike[str] | None
    table: str | None
    snapshot: str | None
    publication: Publication | None
    progress: Progress | None


@overload
def release(plan: Plan | LabelPlan, source: Any, **terms: Unpack[_ReleaseOptions]) -> Release: ...
@overload
def release(plan: IterativePlan, source: Any, **terms: Unpack[_ReleaseOptions]) -> ModelRelease: ...
@overload
def release(plan: ProfilePlan, source: Any, **terms: Unpack[_ReleaseOptions]) -> Profile: ...
@overload
def release(plan: KeyPlan, source: Any, **terms: Unpack[_ReleaseOptions]) -> SketchRelease: ...
def release(
    plan: Plan | LabelPlan | IterativePlan | ProfilePlan | KeyPlan,
    source: Any,
    *,
    ledger: str | os.PathLike[str] | Ledger | None,
    name: str = "release",
    out: str | os.PathLike[str] | None = None,
    table: str | None = None,
    snapshot: str | None = None,
    publication: Publication | None = None,
    progress: Progress | None = None,
) -> Release | ModelRelease | Profile | SketchRelease:
    """Pay for a plan, measure, and return the release; with `out` it is stored before the call returns.

    A plan of several looks debits its whole price before the first, and its release answers from a model. So does a
    plan that finds labels, whose release answers as one of a single look, over the labels that were shown; with `out`
    they are kept in OUT.labels until it is stored, so that the same call goes on where a process was killed. A plan of
    keys gives a release that answers later queries about them. Plans for questions to come are opened by `sf.open`;
    plans of the local model collect reports by `plan.collect`.

    A page that could not be written is a warning only: the release is complete, and `sfumato report FOLDER` makes the
    page.

    Args:
        plan: A plan of a workload or of known queries about keys.
        source: The table: a path, a DuckDB, Postgres or Spark URL, a DuckDB relation, a pandas, polars, arrow or Spark
            frame, any of these in sf.Source, which says how it is written, what sf.per_person or sf.joined makes of
            several, sf.Histogram or sf.KeyCounts.
        ledger: The ledger that pays, or its path; None for an explicit one-shot account, and the release says so.
        name: The name under which the price is debited. The same name, plan and `out` return the stored release, free.
        out: The folder that is written, with report.html, a page for people; for keys one file. None stores nothing.
        table: The public name of the table, which stays when its file moves, or of the database whose tables name the
            same persons. The ledger fixes it, with the plan's privacy unit, at its first spend and refuses another.
        snapshot: The name of a state of the table; releases of one snapshot can be pooled.
        publication: What readers are told besides: title, institution, labels. With `out` it is kept in the folder as
            publication.toml, which may be changed later.
        progress: Called while a planned projection is computed, after all is measured; None shows it in notebooks
            alone.

    Returns:
        The release: `sf.Release` for a plan of one look, or for one that finds labels first; others for several looks
        and for keys.

    Raises:
        PlanError: The plan is not of a kind that is released, or cannot be carried out. Nothing is spent.
        InvalidInput: An argument cannot be used. Nothing is spent.
        SourceError: The table cannot be read. Nothing is spent.
        BudgetExceeded: The price is above what is left in the ledger, which is untouched.
        LedgerMismatch: The ledger is of another unit or table, and is untouched.
        LedgerError: The ledger cannot be used. Nothing is spent.
        NameTaken: The name was paid for before, for another plan or without a stored release; the ledger is untouched.
        NotWritten: The price is spent, but the release could not be stored.
        KeyboardInterrupt: The call was interrupted after the release was complete; the message says where it is.

    Guarantee:
        The release satisfies the plan's budget for the plan's privacy unit, and the price is debited durably before
        noise is drawn or the table is counted.

    >>> work = sf.identity(sf.Domain({"age": 4}))
    >>> found = sf.release(sf.plan(work, sf.pure(1), neighbours="add-remove"), sf.Histogram([5, 0, 9, 2]), ledger=None)
    >>> found.answers.shape, found.standard_errors().round(2).tolist()
    ((4,), [1.41, 1.41, 1.41, 1.41])
    """
    if publication is not None and isinstance(plan, WorkloadPlan):
        publication.check_names(plan.workload.domain)
    with show_progress("releasing", progress) as told:
        result = carry_out.carry_out(
            plan, source, ledger=ledger, name=name, out=out, table=table, snapshot=snapshot, progress=told
        )
    if out is not None and isinstance(result, WorkloadRelease) and not (Path(out) / REPORT).exists():
        try:
            if publication is not None:
                write_publication(publication, out)
            write_report(result, Path(out) / REPORT, publication=publication)
        except KeyboardInterrupt as ended:
            raise KeyboardInterrupt(
                f"interrupted, but the release is complete in {out}; make its page with: sfumato report FOLDER"
            ) from ended
        except Exception as error:
            # the budget is spent and the release is stored: nothing about its page may hide that
            warnings.warn(
                f"the release is complete in {out}, but its page could not be written ({error}); "
                "make it with: sfumato report FOLDER",
                PageWarning,
                stacklevel=2,
            )
    return result


def describe(
    source: Any,
    budget: Budget,
    *,
    ledger: str | os.PathLike[str] | Ledger | None,
    name: str = "describe",
    out: str | os.PathLike[str] | None = None,
    neighbours: str = "add-remove",
    person: str | None = None,
    rows_per_person: int = 1,
    columns: Sequence[str] | None = None,
    records: int = 10_000,
    date_formats: Mapping[str, str] | None = None,
    pairs: float | str | Fraction = 0,
    table: str | None = None,
) -> Profile:
    """Describe all columns of a table that nobody described, in a few looks that one price pays for.

    Of each column: the kind of its values, how many are missing, quartiles, mean and histogram of numbers, the span of
    dates, the labels of texts that many records have. `sf.plan_profile` says before the price how well they will be
    known.

    Args:
        source: The table, as `sf.release` takes it. It is read three times or more.
        budget: What may be spent. Labels of texts are looked for under `sf.approx` with `thresholds=`.
        ledger: The ledger that pays, or its path; None for an explicit one-shot account.
        name: The name under which the price is debited. The same name, table and `out` return what is stored, free.
        out: The folder that is written: profile.html, a page for people; profile.json; spec.toml, the spec to go on
            with; and profile.sfumato, which `sf.load` reads. None stores nothing.
        neighbours: Which two tables must be hard to tell apart: "add-remove" or "replace-one".
        person: The column that says whose record a row is, which is not described; None where every person has one row.
        rows_per_person: How many rows of each person are counted at most.
        columns: The columns to describe; None takes all whose type can be read.
        records: About how many records there are, as far as is public.
        date_formats: How texts write a day besides year-month-day, by the name of the column: {"born": "%d.%m.%Y"}.
        pairs: The share of the budget for a look at all pairs of columns, which tells how much they depend on each
            other; 0 for none.
        table: The public name of the table, as for `sf.release`.

    Returns:
        The description, which can be printed and published; `columns` has what is told of each.

    Raises:
        PlanError: There is no column to describe, an option is not allowed, or pairs are out of reach. Nothing is
            spent.
        BudgetError: The ledger cannot pay with this budget. Nothing is spent.
        InvalidInput: The source or the folder cannot be used. Nothing is spent.
        SourceError: The table cannot be read. Nothing is spent.
        BudgetExceeded: The price is above what is left in the ledger, which is untouched.
        NameTaken: The name was paid for before, for something else.
        NotWritten: The price is spent, but a look failed; the message says whether the same call goes on, free.

    Guarantee:
        All looks together satisfy the budget for the unit that is protected. Its price is debited durably before the
        first; what a later look counts follows from the noisy counts of those before.

    >>> import pandas as pd
    >>> people = pd.DataFrame({"age": [20, 30, 40] * 900, "city": ["Bonn", "Bonn", "Ulm"] * 900})
    >>> found = sf.describe(people, sf.approx(1, "1e-6", thresholds="5e-7"), ledger=None)
    >>> [c.kind for c in found.columns.values()], sorted(t for t, _ in found.columns["city"].labels)
    (['number', 'text'], ['Bonn', 'Ulm'])
    """
    plan = plan_profile(
        source,
        budget,
        neighbours=neighbours,
        person=person,
        rows_per_person=rows_per_person,
        columns=columns,
        records=records,
        date_formats=date_formats,
        pairs=pairs,
    )
    if out is None:
        return carry_out.carry_out(plan, source, ledger=ledger, name=name, table=table)
    folder = _profile_folder(Path(out))
    try:
        found = carry_out.carry_out(plan, source, ledger=ledger, name=name, out=folder / PROFILE, table=table)
    finally:
        with suppress(OSError):  # not empty: something is kept there
            folder.rmdir()
    given = source_of(source)
    place = str(given.table) if isinstance(given.table, (str, os.PathLike)) else ""
    if place and "://" not in place:
        place = os.path.relpath(place, folder)
    write_profile(found, folder, place, given.declared())
    return found


def _profile_folder(folder: Path) -> Path:
    """The folder for a description, made where it is not there. Raises InvalidInput where something else lies in it."""
    ours = {PROFILE, looks_beside(PROFILE).name}
    try:
        there = [p.name for p in folder.iterdir()] if folder.is_dir() else []
        if there and not ours & set(there):
            raise InvalidInput(f"{folder} exists and is not an empty folder; choose another name")
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"{folder} cannot be written: {error.strerror or error}") from error
    return folder


def write_profile(profile: Profile, folder: Path, source: str, written: Mapping[str, str]) -> None:
    """The page, the JSON and the spec of a description; what is there stays. A file that fails is a warning alone."""
    made: dict[str, Callable[[], str]] = {
        "profile.html": lambda: profile_page(profile),
        "profile.json": lambda: json.dumps(profile.facts(), indent=2, ensure_ascii=True) + "\n",
        "spec.toml": lambda: profile_spec(profile, source, written),
    }
    for file, make in made.items():
        try:
            if not (folder / file).exists():
                write_text_atomically(folder / file, make())
        except Exception as error:
            # the budget is spent and the description is stored: nothing about its page may hide that
            warnings.warn(
                f"the description is complete in {folder / PROFILE}, but {file} could not be written ({error}); the "
                "same call again writes it, free",
                PageWarning,
                stacklevel=3,
            )


def _spec_plan_options(spec: Spec) -> dict[str, Any]:
    return {
        "neighbours": spec.neighbours,
        "person": spec.person,
        "rows_per_person": spec.rows_per_person,
        **({"once_per": spec.once_per, "rows_per_group": spec.rows_per_group} if spec.once_per else {}),
        "mechanism": spec.mechanism,
        "objective": spec.objective,
        "records": spec.records,
        "public": spec.public or None,
    }


def plan_from_spec(
    spec: Spec, progress: Progress | None = None, *, compare: bool = False
) -> Plan | IterativePlan | LabelPlan | StreamPlan:
    """The plan that a spec asks for, compared with every mechanism or with those that may be best.

    No data are read. Raises PlanError or BudgetError.
    """
    if spec.periods is not None:
        if compare:
            raise _refuse_stream_option(spec, "plans are compared")
        return plan(spec.workload, spec.budget, progress=progress, periods=spec.periods, **_spec_plan_options(spec))
    make = compared if compare else plan
    return make(spec.workload, spec.budget, progress=progress, **_spec_plan_options(spec))


def budget_of_margin(spec: Spec, margin: float) -> Budget:
    """The least budget of the spec's kind (and delta) whose 95 % intervals reach at most `margin` either way."""
    if spec.periods is not None:
        raise _refuse_stream_option(spec, "the budget of a margin is found")
    kind, delta = spec.budget.kind, spec.budget.delta
    return budget_for(spec.workload, margin=margin, kind=kind, delta=delta, **_spec_plan_options(spec))


def plan_of_margins(spec: Spec) -> Plan:
    """The plan that keeps to the margins of a spec's queries at the least budget of the spec's kind (and delta).

    Raises InvalidInput where the spec states none, PlanError as `planner.inverse.plan_for`.
    """
    if not spec.margins:
        raise InvalidInput(f"{spec.path} states no margin; add margin = 50 to the [[queries]] that need one")
    if spec.objective != DEFAULT_OBJECTIVE:
        raise InvalidInput(
            f"{spec.path} asks for the objective {spec.objective!r}, but a plan that keeps to margins minimises the "
            "largest of them relative to what is wanted; take the objective out"
        )
    kind, delta = spec.budget.kind, spec.budget.delta
    options = {k: v for k, v in _spec_plan_options(spec).items() if k != "objective"}
    return plan_for(spec.workload, margin=spec.margins, kind=kind, delta=delta, **options)


def _refuse_stream_option(spec: Spec, what: str) -> InvalidInput:
    return InvalidInput(
        f"{spec.path} declares a stream, and {what} for tables that are released once; the errors of a stream are "
        "proportional to 1/mu: plan it with the budget you have in mind, without this option"
    )


@dataclass(frozen=True, slots=True)
class Variant:
    """A spec with some settings changed, and what each was changed to, as given."""

    settings: Mapping[str, str]
    spec: Spec

    @property
    def name(self) -> str:
        """The changes as they are typed."""
        return " ".join(f"{key}={value}" for key, value in self.settings.items())


def spec_variants(spec: Spec, changes: Sequence[str]) -> list[Variant]:
    """A spec with every combination of changes such as "epsilon=0.5,1,2" and "weight.tables=1,10".

    A change names a number of the spec's budget, `weight.PART`, `mechanism` or `objective`. At most 24 combinations.
    Raises InvalidInput for what is none, and as a spec would for values that are not allowed.
    """
    if spec.periods is not None:
        raise _refuse_stream_option(spec, "plans stand side by side")
    lists: dict[str, list[str]] = {}
    for change in changes:
        key, equal, values = (t.strip() for t in change.partition("="))
        lists[key] = [v.strip() for v in values.split(",")]
        if not equal or not all(lists[key]):
            raise InvalidInput(f"a change is a name and values, such as epsilon=0.5,1,2, not {change!r}")
    if len(lists) < len(changes):
        raise InvalidInput("each setting is changed once; list its values with commas")
    if math.prod(map(len, lists.values())) > _MAX_VARIANTS:
        raise InvalidInput(f"at most {_MAX_VARIANTS} combinations are planned at once; give fewer values")
    out: list[Variant] = []
    for values in itertools.product(*lists.values()):
        settings = dict(zip(lists, values, strict=True))
        out.append(Variant(settings, functools.reduce(_change_setting, settings.items(), spec)))
    return out


def _change_setting(spec: Spec, setting: tuple[str, str]) -> Spec:
    key, value = setting
    numbers, parts = spec.budget.to_json(), spec.workload.parts
    if key in numbers:
        return replace(spec, budget=Budget.from_json({**numbers, key: value}))
    if key.startswith("weight.") and (name := key.removeprefix("weight.")) in parts:
        # proportions within the part stay; most parts have one weight
        factor = exact_weight(value) / min(i.weight for i in parts[name].items)
        items = tuple(replace(i, weight=i.weight * factor) if i.part == name else i for i in spec.workload.items)
        return replace(spec, workload=replace(spec.workload, items=items))
    if key == "mechanism":
        return replace(spec, mechanism=make_mechanism(value))
    if key == "objective":
        return replace(spec, objective=cast(Any, value))
    known = ", ".join([*numbers, *(f"weight.{name}" for name in parts), "mechanism", "objective"])
    raise InvalidInput(f"{key!r} is nothing that could be changed; this spec has {known}")


def plan_or_spec(
    path: str | os.PathLike[str], progress: Progress | None = None
) -> tuple[Plan | IterativePlan | LabelPlan, str | Source | PerPerson | Joined | None, str | None]:
    """A saved plan, or the plan of a spec, with its source and its table's public name. Raises InvalidInput."""
    if not Path(path).is_file():
        raise InvalidInput(f"{str(path)!r} is no file; name a spec or a saved plan")
    if zipfile.is_zipfile(path):
        found = read_stored(path, Plan, IterativePlan, LabelPlan, StreamPlan)
        if isinstance(found, StreamPlan):
            raise InvalidInput(
                f"{path} plans a stream, whose tables come one by one. Open it with: sfumato stream open {path} "
                "--ledger L --name N --store F"
            )
        return found, None, None
    spec = read_spec(path)
    if spec.periods is not None:
        raise InvalidInput(
            f"{path} declares a stream, whose tables come one by one. Open it with: sfumato stream open {path} "
            "--ledger L --name N --store F; or take [stream] out"
        )
    if spec.margins:
        raise InvalidInput(
            f"{path} states margins, which a release from its budget would ignore. Make the plan that keeps to them "
            f"with: sfumato plan {path} --margins -o PLAN, and release PLAN; or take the margins out"
        )
    made = plan_from_spec(spec, progress)
    assert not isinstance(made, StreamPlan)
    return made, spec.source, spec.table
