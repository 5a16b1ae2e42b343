"""`sf.plan`: everything decided before a row is read, for every kind of question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Required, TypedDict, TypeVar, Unpack, overload

from sfumato._util.display import Progress, show_progress
from sfumato.domain import Domain
from sfumato.errors import PlanError
from sfumato.mechanisms.labels import plan_labels
from sfumato.mechanisms.registry import (
    KEYS,
    LOCAL,
    QUESTIONS,
    STREAMS,
    TABLES,
    Mechanism,
    Request,
    check_groups,
    discovered_attributes,
    make_mechanism,
    plan_with_mechanism,
    refuse_discovery,
)
from sfumato.mechanisms.tables import Tables, plan_table_mechanism
from sfumato.plans.plan import Plan
from sfumato.privacy.budget import Budget
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.sketches import KeyQueries, Keys
from sfumato.strategies.design import DEFAULT_OBJECTIVE
from sfumato.strategies.geography_tree import WITHIN, read_unit
from sfumato.strategies.periods import Periods
from sfumato.workloads import Workload

if TYPE_CHECKING:
    # plans of other kinds than tables, each imported by the mechanism that makes it
    from sfumato.interactive.plan import SessionPlan
    from sfumato.local.plan import LocalPlan
    from sfumato.plans.iterative import IterativePlan
    from sfumato.plans.keys import KeyPlan
    from sfumato.plans.streams import StreamPlan

Made = TypeVar("Made")

Name = Literal[
    "auto",
    "laplace",
    "gaussian",
    "tree",
    "factorization",
    "marginals",
    "projection",
    "approximate",
    "adaptive",
    "mwem",
    "boosting",
    "hybrid",
    "count-sketch",
    "sparse-project",
    "histogram",
    "pmw",
    "sparse-mw",
    "local",
    "continual",
]
"""What `mechanism=` calls every mechanism: those of `mechanisms.registry.MECHANISMS`."""
Objective = Literal["tables", "cells", "max"]
Relation = Literal["add-remove", "replace-one"] | str
"""Also "replace-one within state", by the name of a level."""
Trust = Literal["curator", "local"]


class Options(TypedDict, total=False):
    """What `plan` takes by name, beside the mechanism."""

    neighbours: Required[Relation | Neighbours]
    person: str | None
    rows_per_person: int
    once_per: Sequence[str]
    rows_per_group: int
    objective: Objective
    records: int | None
    public: Mapping[Any, Any] | None
    strategy: object
    reconstruction: Any
    progress: Progress | None


@overload
def plan(
    what: Workload | Domain | Keys | KeyQueries,
    budget: Budget,
    *,
    mechanism: Mechanism[Made],
    trust: Trust = "curator",
    **options: Unpack[Options],
) -> Made: ...
@overload
def plan(  # pyright: ignore[reportOverlappingOverload]
    what: Workload, budget: Budget, *, mechanism: Literal["mwem", "boosting"], **options: Unpack[Options]
) -> IterativePlan: ...
@overload
def plan(
    what: Workload | Domain, budget: Budget, *, mechanism: Literal["pmw"], **options: Unpack[Options]
) -> SessionPlan: ...
@overload
def plan(
    what: Workload,
    budget: Budget,
    *,
    trust: Literal["local"],
    records: int,
    mechanism: Name = "auto",
    neighbours: Relation | Neighbours | None = None,
) -> LocalPlan: ...
@overload
def plan(
    what: Workload, budget: Budget, *, periods: int | Periods, mechanism: Name = "auto", **options: Unpack[Options]
) -> StreamPlan: ...
@overload
def plan(what: Workload, budget: Budget, *, mechanism: Name = "auto", **options: Unpack[Options]) -> Plan: ...
@overload
def plan(what: KeyQueries, budget: Budget, *, mechanism: Name = "auto", **options: Unpack[Options]) -> KeyPlan: ...
@overload
def plan(what: Domain | Keys, budget: Budget, *, mechanism: Name = "auto", **options: Unpack[Options]) -> Any: ...
def plan(
    what: Workload | Domain | Keys | KeyQueries,
    budget: Budget,
    *,
    neighbours: Relation | Neighbours | None = None,
    person: str | None = None,
    rows_per_person: int = 1,
    once_per: Sequence[str] = (),
    rows_per_group: int = 1,
    mechanism: Name | Mechanism[Any] = "auto",
    objective: Objective = DEFAULT_OBJECTIVE,
    records: int | None = None,
    public: Mapping[Any, Any] | None = None,
    strategy: object = None,
    reconstruction: Any = None,
    periods: int | Periods | None = None,
    trust: Trust = "curator",
    progress: Progress | None = None,
) -> Any:
    """Decide everything before a row is read: what to measure, with which noise, at which price and with what errors.

    No data and no budget is touched. An option that would do nothing is refused.

    Args:
        what: The questions: a workload, made by `sf.marginals`, `sf.prefix`, `sf.queries` and the like; an `sf.Domain`
            or `sf.Keys`, for questions to come; or `keys.queries([...])`, for known queries about keys.
        budget: What may be spent: `sf.pure(1)`, `sf.approx(1, "1e-6")`, `sf.zcdp("0.5")` or `sf.gdp(1)`.
        neighbours: Which two tables must be hard to tell apart: "add-remove", where one of them has one record more;
            "replace-one", where one record differs; or "replace-one within state", by the name of a level, where a
            record is replaced by one of the same state, so that the totals of the states are public. Only with
            `trust="local"` may it be left out: it is "replace-one" then.
        person: The name of the column that says whose record a row is; None where every person has one row. With it,
            the tables differ by all rows of one person.
        rows_per_person: How many rows of each person are counted at most, from 1 to 1,000,000. Above 1 it needs
            `person`.
        once_per: Attributes of whose joint cells each holds at most `rows_per_group` counted rows of a person, such as
            ["department"]. Tables over them then cost the root of what they cost without, and the total what it did.
            Missing values and (other) are one cell each. For tables of counts and sums of measures.
        rows_per_group: How many rows of a person are counted in each of these cells, fewer than `rows_per_person`.
        mechanism: A value such as `sf.mechanisms.mwem(rounds=8)`, or a name, which stands for its defaults. "auto"
            takes the least error that is known before data: among the plans for a workload; between private
            multiplicative weights and a histogram for a domain; among sketches for keys.
        objective: Which error of a workload is minimised. "tables": the mean over parts of the mean over their tables
            of the mean squared error of their queries, in each table's largest coefficient (1 for counts), so that
            small tables get their share. "cells": the mean squared error of all queries alike. "max": the largest
            standard error. Weights of a workload multiply squared errors.
        records: A public number of records, which may be approximate, for mechanisms and predictions that depend on it;
            with `trust="local"` the expected number of reports.
        public: Tables of counts that are known from elsewhere, by their sets of attributes, such as `{("sex",): [30,
            20]}`. They are used as exact, and neither measured nor protected. Totals of the groups of a level that the
            table itself has are public only under neighbours="replace-one within ...".
        strategy: What to measure, instead of searching for it: a matrix (l, m) of l queries over the m cells, or
            "queries", "cells", "tree" (of branching 2; "tree-4" of branching 4), "square-root" or
            "normalised-square-root". It goes with the mechanisms "auto", "laplace", "gaussian" and "projection"; of
            mwem, "queries" alone.
        reconstruction: How answers are computed from l measured values: a matrix (k, l), "least-squares", or
            "canonical", sums of the fewest values. It needs `strategy`.
        periods: For tables that come period after period, the number of periods, or `sf.periods(365, per_person=12,
            apart=30)`: totals, increments and sums of any periods are answered after each. None for one table.
        trust: "curator", where a curator holds the table; or "local", where nobody does: every person reports on the
            own record, with pure epsilon, and any two records are neighbours.
        progress: Called while strategies are searched, with the number of steps done and the relative gap to a proved
            bound; None shows it in notebooks alone.

    Returns:
        A plan, which holds nothing private and can be printed and stored. Where labels are to be found
        (`sf.Categories(discover=...)`) it takes two looks, whose errors it tells by the number of labels shown. Its
        class follows from `what` and
        `mechanism`: `sf.Plan` for a workload in one look, others for several looks, keys, questions to come, streams
        and reports. `sf.release` carries out plans of workloads and of known queries about keys; `sf.open` those for
        questions to come and for periods; a plan of reports has `respond` and `collect`.

    Raises:
        PlanError: An option is not allowed, does not apply or would do nothing; the message says what is allowed.
        BudgetError: The budget is of a kind that the mechanism cannot spend, or too small for its noise.

    Guarantee:
        None by itself: nothing is released. What `sf.release` or `sf.open` gives out under the plan satisfies `budget`
        for neighbours as stated here.

    >>> work = sf.marginals(sf.Domain({"age": 4, "sex": 2}), upto=2)
    >>> found = sf.plan(work, sf.gdp(1), neighbours="add-remove")
    >>> round(found.rmse, 2), round(found.objective_value / found.lower_bound, 3)
    (1.38, 1.0)
    """
    value = make_mechanism(mechanism)
    with show_progress("planning", progress) as told:
        asked = make_request(
            what,
            budget,
            neighbours=neighbours,
            person=person,
            rows_per_person=rows_per_person,
            once_per=once_per,
            rows_per_group=rows_per_group,
            objective=objective,
            records=records,
            public=public,
            strategy=strategy,
            reconstruction=reconstruction,
            periods=periods,
            trust=trust,
            progress=told,
        )
        if asked.kind == TABLES and discovered_attributes(asked):
            return plan_labels(value, asked)
        return plan_with_mechanism(value, asked)


def compared(workload: Workload, budget: Budget, *, mechanism: str | Mechanism[Any] = "auto", **options: Any) -> Plan:
    """The plan that `sf.plan` makes, its candidates all plans of all mechanisms, the textbooks' among them, each once.

    The choice is the same. Raises PlanError for mechanisms of several looks, whose errors are not known before data.
    """
    value, asked = make_mechanism(mechanism), make_request(workload, budget, **options)
    if asked.kind != TABLES or not isinstance(value, Tables):
        raise PlanError(
            f"plans of one look are compared, by errors known before data; mechanism={value.name!r} has none. Compare "
            "under mechanism='auto'"
        )
    refuse_discovery(value, asked)
    value.check(asked)
    check_groups(value, asked)
    return plan_table_mechanism(value, asked, compare=True)


def make_request(
    what: object,
    budget: object,
    *,
    neighbours: str | Neighbours | None,
    person: str | None = None,
    rows_per_person: int = 1,
    once_per: Sequence[str] = (),
    rows_per_group: int = 1,
    periods: int | Periods | None = None,
    trust: str = "curator",
    **options: Any,
) -> Request:
    """What was asked, checked as far as every mechanism needs it. Raises PlanError."""
    if trust not in ("curator", "local"):
        raise PlanError(f"trust is 'curator', who holds the table, or 'local', where nobody does, not {trust!r}")
    kind = next((kind for cls, kind in _KINDS if isinstance(what, cls)), None)
    if kind is None:
        raise PlanError(
            "plan needs a workload, made by sf.marginals, sf.prefix, sf.queries and the like; or an sf.Domain or "
            "sf.Keys, for questions to come"
        )
    if not isinstance(budget, Budget):
        raise PlanError("plan needs a budget: sf.pure(1), sf.approx(1, '1e-6'), sf.zcdp('0.5') or sf.gdp(1)")
    if trust == "local":
        if kind != TABLES:
            raise PlanError("the local model plans a workload; questions to come and keys need a curator")
        kind, neighbours = LOCAL, Neighbours.REPLACE_ONE if neighbours is None else neighbours
    over = None if periods is None else periods if isinstance(periods, Periods) else Periods(periods)
    if over is not None:
        if kind != TABLES:
            raise PlanError("periods= is of a workload of tables, held by a curator; leave it out")
        kind = STREAMS
    if neighbours is None:
        raise PlanError("give neighbours=: 'add-remove' or 'replace-one', whose records must be hard to tell apart")
    if isinstance(neighbours, str) and WITHIN in neighbours:
        domain = what.domain if isinstance(what, Workload) and kind == TABLES else None
        unit = read_unit(neighbours, person, rows_per_person, domain)
    else:
        unit = PrivacyUnit(Neighbours.parse(neighbours), person, rows_per_person)
    unit = replace(unit, once_per=once_per, rows_per_group=rows_per_group)
    return Request(kind, what, budget, unit, periods=over, **options)


_KINDS: tuple[tuple[type, str], ...] = (
    (Workload, TABLES),
    (Domain, QUESTIONS),
    (Keys, KEYS),
    (KeyQueries, KEYS),
)
