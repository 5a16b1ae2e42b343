"""The inverse of planning: from the accuracy that is needed to the least budget, and to the plan that has it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from sfumato._util.display import Progress
from sfumato.domain import Domain
from sfumato.errors import PlanError
from sfumato.mechanisms.registry import LOCAL, TABLES, Mechanism, check_groups, make_mechanism, refuse_discovery
from sfumato.mechanisms.registry import make_mechanism as value_of
from sfumato.mechanisms.tables import Need
from sfumato.operators import Family
from sfumato.operators.base import FloatArray
from sfumato.planner.planning import Name, Objective, Relation, Trust, make_request, plan
from sfumato.plans.plan import Plan
from sfumato.plans.predictions import ErrorEntry
from sfumato.privacy.budget import Budget
from sfumato.privacy.unit import Neighbours
from sfumato.strategies.design import DEFAULT_OBJECTIVE
from sfumato.workloads import RECORDS, QueryBlock, QueryFamily, Workload

Margins = float | Mapping[Any, float]

_LEAST_SIZE = Fraction(1, 10**6)  # of a budget: whoever needs less has asked for no accuracy
_KINDS = ("approx", "zcdp", "gdp", "pure")
_SLACK = 20  # what has no margin keeps to so many times the widest one: next to nothing in budget, and no ruin


def budget_for(
    workload: Workload,
    *,
    margin: Margins,
    confidence: float = 0.95,
    target: str = "worst",
    kind: str = "approx",
    delta: Any = None,
    neighbours: Relation | Neighbours,
    simultaneous: bool = False,
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
    progress: Progress | None = None,
) -> Budget:
    """The least budget under which `sf.plan` with the same options keeps to margins.

    A margin is the half-width of an interval. Errors scale with the budget, so one plan is enough; the budget is
    rounded up to six digits, and verified by planning with it.

    Args:
        workload: The queries.
        margin: One number, in records; or a mapping to numbers: from the name of a part, in the part's unit, or from a
            set of attributes (a tuple) or a number of attributes, in records. A set goes before its number of
            attributes, and that before its part. Levels are named like attributes. What is left out is not bounded.
        confidence: The probability, strictly between 0 and 1, of the intervals.
        target: "worst" bounds the margin of every query, "rmse" that of a query of each part's root-mean-square
            standard error.
        kind: The kind of budget: "approx", "zcdp", "gdp" or "pure".
        delta: The delta of an "approx" budget, which needs one.
        neighbours: As for `sf.plan`.
        simultaneous: Whether all answers to the workload are within their margins together with that confidence;
            otherwise each one is.
        person: As for `sf.plan`.
        rows_per_person: As for `sf.plan`.
        once_per: As for `sf.plan`.
        rows_per_group: As for `sf.plan`.
        mechanism: As for `sf.plan`, of the mechanisms whose margins follow from the budget alone.
        objective: As for `sf.plan`.
        records: As for `sf.plan`.
        public: As for `sf.plan`.
        strategy: As for `sf.plan`.
        reconstruction: As for `sf.plan`.
        progress: As for `sf.plan`.

    Returns:
        The budget.

    Raises:
        PlanError: A margin is not positive or is of tables that are not asked, one margin would mix units, an option is
            not allowed or does not apply, or no budget of this kind reaches the margins.

    >>> work = sf.identity(sf.Domain({"age": 100}))
    >>> enough = sf.budget_for(work, margin=50, kind="zcdp", neighbours="add-remove")
    >>> sf.plan(work, enough, neighbours="add-remove").errors()["margin"][0] <= 50
    True
    """
    if target not in ("worst", "rmse"):
        raise PlanError(f"target must be 'worst' or 'rmse', not {target!r}")
    if target == "rmse" and simultaneous:
        raise PlanError("simultaneous= is about all answers, so about the worst of them; leave out target='rmse'")
    _refuse_idle(kind, delta, target, mechanism)
    wanted = _WantedMargins(workload, margin, confidence, simultaneous=simultaneous)
    options: dict[str, Any] = {
        "neighbours": neighbours,
        "person": person,
        "rows_per_person": rows_per_person,
        "once_per": once_per,
        "rows_per_group": rows_per_group,
        "mechanism": mechanism,
        "objective": objective,
        "records": records,
        "public": public,
        "strategy": strategy,
        "reconstruction": reconstruction,
        "progress": progress,
    }

    def found(budget: Budget) -> tuple[Plan, float]:
        made = plan(workload, budget, **options)
        return made, wanted.excess(made, target)

    return _least_budget_plan(kind, delta, found).budget


def plan_for(
    workload: Workload,
    *,
    margin: Margins,
    confidence: float = 0.95,
    kind: str = "approx",
    delta: Any = None,
    neighbours: str | Neighbours,
    simultaneous: bool = False,
    **options: Any,
) -> Plan:
    """The plan that keeps to margins at the least budget: noise goes where the margins are wide.

    `margin`, `simultaneous` and the rest as for `budget_for`, target "worst"; what has no margin keeps to twenty times
    the widest one, and the plan says so. The plan minimises the largest weighted standard error of its workload, whose
    weights become 1 / margin^2; `plan.budget` is what it costs and `plan.lower_bound` says how far that is from the
    least possible with Gaussian noise. Raises PlanError.
    """
    if "objective" in options:
        raise PlanError("plan_for minimises the largest margin relative to what is wanted; it takes no objective=")
    _refuse_idle(kind, delta, "worst", options.get("mechanism", "auto"))
    wanted = _WantedMargins(workload, margin, confidence, simultaneous=simultaneous)
    weighted = wanted.weighted()

    def found(budget: Budget) -> tuple[Plan, float]:
        made = plan(weighted, budget, neighbours=neighbours, objective="max", **options)
        return made, wanted.excess(made, "worst")

    made = _least_budget_plan(kind, delta, found)
    if all(np.isfinite(wanted.limits(i)).all() for i in workload.items):
        return made
    note = f"queries without a margin keep to {_SLACK} times the widest one; sf.budget_for leaves them to the objective"
    return replace(made, notes=(*made.notes, note))


def _refuse_idle(kind: str, delta: Any, target: str, mechanism: object) -> None:
    """Refuse what does not scale with the budget, and options that would do nothing here."""
    if kind != "approx" and delta is not None:
        raise PlanError(f"delta= belongs to kind='approx', not to {kind!r}; leave it out")
    value = value_of(mechanism)
    if reason := value.unscaled or (value.unscaled_rmse if target == "rmse" else ""):
        raise PlanError(reason)


def _least_budget_plan(kind: str, delta: Any, found: Callable[[Budget], tuple[Plan, float]]) -> Plan:
    """The plan of the least budget whose margins exceed the wanted ones at most by a factor of 1."""
    if kind not in _KINDS:
        raise PlanError(f"kind must be {', '.join(_KINDS[:-1])} or {_KINDS[-1]}, not {kind!r}")
    _, excess = found(Budget.pure(1) if kind == "pure" else Budget.gdp(1))
    size = Fraction(str(excess))
    if size < _LEAST_SIZE:
        raise PlanError("the margins are so wide that hardly any budget is needed; ask for narrower ones")
    for attempt in range(40):
        made, excess = found(_budget_of_size(kind, size * (1 + Fraction(2**attempt - 1, 10**7)), delta))
        if excess <= 1:
            return made
    raise PlanError("no budget was found that reaches this margin")


class _WantedMargins:
    """The margin of every table, and how a plan compares with it."""

    def __init__(self, workload: Workload, margin: Margins, confidence: float, *, simultaneous: bool) -> None:
        if workload.domain.discovered:
            raise PlanError(
                "budgets are found from margins of tables whose cells are declared; where labels are to be found, "
                "errors hang on how many are shown: plan with the budget you have in mind"
            )
        self._workload, self._confidence, self._together = workload, confidence, simultaneous
        given: dict[Any, float] = dict(margin) if isinstance(margin, Mapping) else {}
        parts = list(workload.parts)
        if not isinstance(margin, Mapping):
            self._refuse_units(parts)
            given = dict.fromkeys(parts, margin)
        if not given:
            raise PlanError("no margin is given; name a part, a number of attributes, or a set of them")
        for key, value in given.items():
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
                raise PlanError(f"a margin must be a positive number of records, not {value!r}")
            if isinstance(key, str) and key not in parts:
                raise PlanError(f"margin names {key!r}; the parts are {', '.join(parts)}")
        self._parts = {k: float(v) for k, v in given.items() if isinstance(k, str)}
        self._orders = {k: float(v) for k, v in given.items() if type(k) is int}
        named = {k: float(v) for k, v in given.items() if not isinstance(k, (str, int))}
        self._sets = {frozenset(workload.domain.columns(k)): v for k, v in named.items()}
        tables = (
            {(len(n), frozenset(n)) for i in workload.items for n in _entry_names(workload.domain, i)}
            if self._sets
            else set()
        )
        unknown = [s for s in self._sets if (len(s), s) not in tables]
        unknown_orders = set(self._orders) - {i.order for i in workload.items}
        if unknown or unknown_orders:
            what = ", ".join(sorted(unknown[0])) if unknown else f"{min(unknown_orders)} attributes"
            raise PlanError(f"margin names tables of {what}, which this workload does not ask")

    def _refuse_units(self, parts: list[str]) -> None:
        other = {n: w.units for n, w in self._workload.parts.items() if w.units != (RECORDS,)}
        if other:
            listed = ", ".join(f"{n!r} is in {' and '.join(u)}" for n, u in other.items())
            raise PlanError(
                f"one margin for all parts would mix units: {listed}. Give a margin per part, such as "
                f"margin={{{', '.join(f'{n!r}: …' for n in parts)}}}; a part left out is not bounded"
            )

    def limits(self, item: QueryBlock | QueryFamily) -> FloatArray:
        """(tables,) margins of an item's tables, infinite where there is none."""
        usual = self._orders.get(item.order, self._parts.get(item.part, math.inf))
        if not self._sets:
            return np.full(len(item.rows_each), usual)
        return np.array(
            [self._sets.get(frozenset(names), usual) for names in _entry_names(self._workload.domain, item)]
        )

    def excess(self, made: Plan, target: str) -> float:
        """The largest ratio of a predicted margin to the wanted one."""
        worst = 0.0
        sums: dict[str, tuple[int, float, float, float]] = {}
        margins = made.entry_margins(self._confidence, simultaneous=self._together)
        for e, margin in zip(made.entries, margins, strict=True):
            limits = self.limits(e.item)
            _, widest = e.by_table(margin)
            if target == "worst":
                worst = max(worst, float((widest / limits).max()))
                continue
            # one ratio of margin to deviation serves a part: the widest query's
            ratio = float(widest.max()) / math.sqrt(float(e.powers.max()))
            queries, squares, least, largest = sums.get(e.item.part, (0, 0.0, math.inf, 0.0))
            limit = min(least, float(limits.min()))
            sums[e.item.part] = queries + e.item.rows, squares + e.sum(), limit, max(largest, ratio)
        means = [math.sqrt(s / q) * r / limit for q, s, limit, r in sums.values()]
        return max([worst, *means])

    def weighted(self) -> Workload:
        """The same queries, each weighted by 1 / margin^2."""
        items = [(i, self.limits(i)) for i in self._workload.items]
        finite = [float(m[np.isfinite(m)].max()) for _, m in items if np.isfinite(m).any()]
        largest = max(finite, default=1.0)
        out: list[QueryBlock | QueryFamily] = []
        for item, limits in items:
            out += _reweight_by_margin(item, limits, largest)
        return Workload(self._workload.domain, tuple(out))


def _entry_names(domain: Domain, item: QueryBlock | QueryFamily) -> list[tuple[str, ...]]:
    return ErrorEntry(item, np.ones(1)).names(domain)


def _reweight_by_margin(
    item: QueryBlock | QueryFamily, limits: FloatArray, largest: float
) -> Iterator[QueryBlock | QueryFamily]:
    """An item cut where the margin changes, with weights relative to the widest margin."""

    def weight(limit: float) -> Fraction:
        return Fraction(largest / limit) ** 2 if math.isfinite(limit) else Fraction(1, _SLACK**2)

    if isinstance(item, QueryBlock):
        scale = 1.0 if item.unit == RECORDS else max(item.block.operator.max_abs, 1e-300)
        # sums are weighted in their largest value
        yield replace(item, weight=weight(float(limits[0]) / scale))
        return
    # the order of the queries stays
    cuts = np.flatnonzero(limits[1:] != limits[:-1]) + 1
    for chosen in np.split(np.arange(len(limits)), cuts):
        part = Family(item.family.names, item.family.factors, item.family.sets[chosen])
        yield replace(item, family=part, weight=weight(float(limits[chosen[0]])))


def _budget_of_size(kind: str, size: Fraction, delta: Any) -> Budget:
    """A budget whose noise is 1/size of the reference's, rounded up to six digits."""
    if kind == "pure":
        return Budget.pure(_round_up_six_digits(size))
    if kind == "gdp":
        return Budget.gdp(_round_up_six_digits(size))
    if kind == "zcdp":
        return Budget.zcdp(_round_up_six_digits(size**2 / 2))
    if delta is None:
        raise PlanError("kind='approx' needs delta=, such as '1e-6'")
    return Budget.approx(_round_up_six_digits(Budget.gdp(size).epsilon(delta)), delta)


def _round_up_six_digits(value: Fraction) -> Fraction:
    """Rounded up to six significant decimal digits."""
    exponent = math.floor(math.log10(float(value))) - 5
    step = Fraction(10) ** exponent
    return -(-value // step) * step


_BETA = 0.05  # the failure probability where none is given, as that of 95 % intervals


def records_for(
    workload: Workload,
    budget: Budget,
    *,
    neighbours: Relation | Neighbours,
    error: float,
    kind: str = "rmse",
    beta: float | None = None,
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
    trust: Trust = "curator",
    progress: Progress | None = None,
) -> int:
    """The least number of records from which on errors are at most a share of them, whatever the records are.

    Unbiased answers err by the same number of records whatever n is, so n is that error over the share. Answers of
    "projection" err by at most sqrt(n W / k), W the width of the body against the noise, so n = W / (k error^2) where
    that is less: it hardly depends on the number of queries k. "approximate" is planned for every n that is tried.
    Errors of "local", without a curator, grow as sqrt(n).

    Args:
        workload: Queries that count records.
        budget: What may be spent on them.
        neighbours: As for `sf.plan`.
        error: The share of the records, between 0 and 1.
        kind: "rmse": the expected root mean squared error over the queries, as `sf.plan` predicts or bounds it. "max":
            all answers are within that share together, except with probability `beta`.
        beta: For "max", that probability; 0.05 unless given.
        person: As for `sf.plan`.
        rows_per_person: As for `sf.plan`.
        once_per: As for `sf.plan`.
        rows_per_group: As for `sf.plan`.
        mechanism: "auto" and the other mechanisms of `sf.plan` whose errors are known before data; "projection" and
            "approximate", for "rmse"; "pmw", for "max": a session that answers the queries one by one within the share,
            without ever running out of updates; "local", for "rmse" under pure epsilon and replace-one.
        objective: As for `sf.plan`.
        records: Leave it out: the number of records is what is found.
        public: As for `sf.plan`.
        strategy: As for `sf.plan`.
        reconstruction: As for `sf.plan`.
        trust: As for `sf.plan`; "local" goes with mechanism "local".
        progress: As for `sf.plan`.

    Returns:
        The smallest such number, to a thousandth of it for "pmw" and "approximate", which are searched.

    Raises:
        PlanError: The errors of the mechanism are not known before data, an option is not allowed or does not apply, or
            no number up to 2^52 is enough.

    Source:
        [NTZ13] for "projection", [HR10] for "pmw"

    >>> sf.records_for(sf.identity(sf.Domain({"age": 100})), sf.pure(1), neighbours="add-remove", error=0.01)
    142
    """
    share = _read_error_share(workload, error)
    if kind not in ("rmse", "max"):
        raise PlanError(f"kind must be 'rmse', the average over queries, or 'max', all of them together, not {kind!r}")
    if kind == "rmse" and beta is not None:
        raise PlanError(
            "beta= is the probability that some answer is farther off: of kind='max'; an rmse is an expectation"
        )
    sure = _BETA if beta is None else beta
    if isinstance(sure, bool) or not isinstance(sure, (int, float)) or not 0 < sure < 1:
        raise PlanError(f"beta is a probability, between 0 and 1, not {sure!r}")
    if records:
        raise PlanError("records_for finds the number of records, by errors of one look; leave out records=")
    value = make_mechanism(mechanism)
    if not {TABLES, LOCAL} & set(value.serves):
        raise PlanError(f"no number of records is known for mechanism={value.name!r}: {value.unknown}")
    asked = make_request(
        workload,
        budget,
        neighbours=neighbours,
        person=person,
        rows_per_person=rows_per_person,
        once_per=once_per,
        rows_per_group=rows_per_group,
        trust=trust,
        objective=objective,
        public=public,
        strategy=strategy,
        reconstruction=reconstruction,
        progress=progress,
    )
    refuse_discovery(value, asked)
    check_groups(value, asked)
    return value.records_for(Need(asked, share, kind == "max", float(sure)))


def _read_error_share(workload: object, error: object) -> float:
    if not isinstance(workload, Workload):
        raise PlanError("records_for needs a workload, made by sf.marginals, sf.prefix, sf.queries and the like")
    if workload.units != (RECORDS,):
        raise PlanError(
            f"error= is a share of the records, and some queries are in {' and '.join(workload.units)}; ask for the "
            "parts that count records"
        )
    if isinstance(error, bool) or not isinstance(error, (int, float)) or not 0 < error < 1:
        raise PlanError(f"error is a share of the records between 0 and 1, such as 0.01, not {error!r}")
    return float(error)
