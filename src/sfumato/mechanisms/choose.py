"""The chooser: price every mechanism that applies, without data, and keep the one that errs least."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, overload

from sfumato.designs import direct, given, matrix
from sfumato.designs.calibrate import noise_for
from sfumato.designs.design import DEFAULT_OBJECTIVE, Candidate, Design, Problem, read_objective
from sfumato.designs.factors import MAX_DENSE_CELLS
from sfumato.designs.marginals import planning as marginals
from sfumato.designs.marginals.public import read_public
from sfumato.designs.ordered import hierarchical as tree
from sfumato.designs.ordered import planning as ordered
from sfumato.designs.weighted import planning as weighted
from sfumato.errors import PlanError, SfumatoError
from sfumato.ground.progress import Progress
from sfumato.mechanisms import adaptive, apart, approximate, classic, projection
from sfumato.mechanisms.courses import COURSES, CourseName, plan_course
from sfumato.mechanisms.options import refuse_idle
from sfumato.plans.courses import CoursePlan
from sfumato.plans.plan import Plan, price_design
from sfumato.privacy.budget import Budget
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.workloads import Workload

__all__ = ["MECHANISMS", "plan", "projections"]

_DESIGNS: dict[str, Callable[[Problem, Progress | None], list[Design]]] = {
    "direct": lambda problem, _: direct.designs(problem),
    "tree": lambda problem, _: tree.designs(problem),
    "factorization": matrix.designs,
    "marginals": lambda problem, _: [*marginals.designs(problem), *weighted.designs(problem)],
    "approximate": approximate.designs,
}
MECHANISMS = (
    "auto",
    "laplace",
    "gaussian",
    "tree",
    "factorization",
    "marginals",
    "projection",
    "approximate",
    "adaptive",
    *COURSES,
)
"""What `mechanism=` accepts."""

_MANY = 500  # tables; below, every candidate is shown
_MET = 1e-3
_ALIKE = 5e-4
_HINT_CELLS = 512  # up to which Laplace noise is tried beside Gaussian noise


@overload
def plan(  # pyright: ignore[reportOverlappingOverload]
    workload: Workload,
    budget: Budget,
    *,
    neighbours: str | Neighbours,
    person: str | None = None,
    rows_per_person: int = 1,
    mechanism: CourseName,
    records: int | None = None,
    strategy: object = None,
    rounds: int | None = None,
) -> CoursePlan: ...
@overload
def plan(
    workload: Workload,
    budget: Budget,
    *,
    neighbours: str | Neighbours,
    person: str | None = None,
    rows_per_person: int = 1,
    mechanism: str = "auto",
    objective: str = DEFAULT_OBJECTIVE,
    records: int | None = None,
    public: Mapping[Any, Any] | None = None,
    strategy: object = None,
    reconstruction: Any = None,
    noise: str | None = None,
    lattice: str = "fine",
    compare: bool = False,
    progress: Progress | None = None,
) -> Plan: ...
def plan(
    workload: Workload,
    budget: Budget,
    *,
    neighbours: str | Neighbours,
    person: str | None = None,
    rows_per_person: int = 1,
    mechanism: str = "auto",
    objective: str = DEFAULT_OBJECTIVE,
    records: int | None = None,
    public: Mapping[Any, Any] | None = None,
    strategy: object = None,
    reconstruction: Any = None,
    noise: str | None = None,
    lattice: str = "fine",
    rounds: int | None = None,
    compare: bool = False,
    progress: Progress | None = None,
) -> Plan | CoursePlan:
    """Everything decided before a row is read: what to measure, the noise, the price, the error of each query.

    `neighbours` is "add-remove" or "replace-one". `mechanism` is "auto" or one of MECHANISMS. The objective
    "tables" is the mean over parts of the mean over their tables of the mean squared error of their queries, in each
    table's largest coefficient (1 for counts), so that nothing starves for being small; "cells" the mean squared error
    of all queries alike; "max" the largest standard error. Weights multiply squared errors. `public` maps sets of
    attributes to tables of counts known from elsewhere: they are used as exact and not measured. `strategy` (l, m)
    and `reconstruction` (k, l) are a researcher's own, or names: "queries", "cells", "tree" (of branching 2, or
    "tree-4" and so on), "square-root" and "normalised-square-root", with "least-squares" or "canonical" sums of fewest
    values. They go with mechanism "auto", "laplace" and "gaussian" (which noise) and "projection", which as it is
    taught measures the queries themselves and projects that; an option that would do nothing is refused.
    `compare` lists the plans of all of these in `candidates`; the choice does not change. `noise` asks for
    "gaussian", "laplace" or "discrete-gaussian"; `lattice="unit"` measures plain integer counts. Mechanisms of several
    looks are chosen by name alone and give a CoursePlan; `rounds` is how often they look, by default by a rule from
    `records`. No data, no budget is touched. Raises PlanError (with what is allowed) or BudgetError.
    """
    problem = _problem(
        workload, budget, neighbours, person, rows_per_person, objective, records, public, mechanism, noise, lattice
    )
    refuse_idle(
        mechanism,
        objective=objective,
        strategy=strategy,
        public=problem.known,
        noise=noise,
        compare=compare,
        course=mechanism in COURSES,
    )
    if mechanism in COURSES:
        others = [n for n, given in (("reconstruction=", reconstruction), ("noise=", noise)) if given is not None]
        others += ["lattice="] * (lattice != "fine") + ["objective="] * (objective != DEFAULT_OBJECTIVE)
        return plan_course(mechanism, problem, rounds, strategy, ", ".join(others))
    if rounds is not None:
        raise PlanError(f"rounds= belongs to mechanisms of several looks ({', '.join(COURSES)}), not to {mechanism!r}")
    if strategy is not None or reconstruction is not None:
        measured = _measured(problem, strategy, reconstruction)
        best = projection.projected([measured]) if mechanism == "projection" else measured
        if compare:
            plans, considered = _compared(problem, "given", [measured], (), progress)
            lines = tuple(_line(p, measured) for p in sorted(plans, key=lambda p: p.objective_value))
            asked = (_projected_line(best),) if mechanism == "projection" else ()
            best = replace(best, considered=(*asked, *lines, *considered))
        return _told(best)
    if mechanism == "adaptive":
        denoised = adaptive.planned(problem)
        plans, considered = _compared(problem, mechanism, [], (), progress) if compare else ([], ())
        table = (_line(p, denoised) for p in sorted(plans, key=lambda p: p.objective_value))
        lines = (replace(c, note="all errors here are before denoising") for c in table)
        return replace(denoised, considered=(_projected_line(denoised), *lines, *considered))
    plans, considered = _some_candidates(problem, "auto" if mechanism == "projection" else mechanism, progress)
    best = projection.projected(plans) if mechanism == "projection" else min(plans, key=lambda p: p.objective_value)
    bounds = [p.bound for p in plans if p.bound is not None]
    if compare:
        plans, considered = _compared(problem, mechanism, plans, considered, progress)
    table = tuple(_line(p, best) for p in sorted(plans, key=lambda p: p.objective_value))
    if mechanism == "projection":
        # what is proved of unbiased answers says nothing of projected ones
        return replace(best, considered=(_projected_line(best), *table, *considered))
    notes = best.notes if noise is not None or mechanism != "auto" else (*best.notes, *_laplace_hint(problem, best))
    lines = apart.alone(problem, lambda part: _candidates(part, mechanism, None)[0])
    bound = max(bounds) if bounds else None
    return _told(replace(best, bound=bound, considered=table + considered, notes=notes, alone=lines))


def projections(
    workload: Workload,
    budget: Budget,
    *,
    neighbours: str | Neighbours,
    person: str | None = None,
    rows_per_person: int = 1,
    strategy: object = None,
    reconstruction: Any = None,
    noise: str | None = None,
    lattice: str = "fine",
) -> list[Plan]:
    """The plans that mechanism="projection" chooses among, each with its forecast. Raises as `plan`."""
    problem = _problem(
        workload,
        budget,
        neighbours,
        person,
        rows_per_person,
        DEFAULT_OBJECTIVE,
        None,
        None,
        "projection",
        noise,
        lattice,
    )
    if strategy is not None or reconstruction is not None:
        return projection.forecasts([_measured(problem, strategy, reconstruction)])
    return projection.forecasts(_some_candidates(problem, "auto", None)[0])


def _measured(problem: Problem, strategy: object, reconstruction: Any) -> Plan:
    """The plan of a strategy that was given, by name or as a matrix."""
    if strategy is None:
        raise PlanError("reconstruction= needs strategy=, the matrix that is measured")
    if isinstance(strategy, str):
        return price_design(classic.named(problem, strategy, reconstruction), problem)
    return price_design(given.design(problem, strategy, reconstruction), problem)


def _told(made: Plan) -> Plan:
    """With what `records` says of errors that do not depend on them."""
    if made.records is None or made.forecast is not None or made.bias_records is not None:
        return made
    share = f"the largest standard error is {made.max_standard_error / made.records:.3g} of {made.records:,} records"
    return replace(made, notes=(*made.notes, share))


def _laplace_hint(problem: Problem, best: Plan) -> tuple[str, ...]:
    """That Laplace noise on the queries, the cells or their trees, which take no search, errs less for the epsilon."""
    small = problem.workload.shape[1] <= _HINT_CELLS
    if problem.budget.kind != "approx" or problem.noise != "gaussian" or not small:
        return ()
    other = replace(problem, noise="laplace")
    plans = [p for name in ("direct", "tree") for p in _candidates(other, name, None)[0]]
    least = min((p.objective_value for p in plans), default=math.inf)
    if least >= best.objective_value:
        return ()
    what = "largest standard error" if problem.largest else "rmse"
    return (
        f"Laplace noise errs less here ({what} at most {least:,.5g}) and spends no delta: ask for noise='laplace', "
        f"or for pure epsilon by sf.pure({float(problem.budget.laplace_epsilon):.6g})",
    )


def _projected_line(best: Plan) -> Candidate:
    value = best.mean_error
    return Candidate(best.mechanism, best.strategy.summary, value, best.max_standard_error, "asked for", value)


def _compared(
    problem: Problem, mechanism: str, plans: list[Plan], considered: tuple[Candidate, ...], progress: Progress | None
) -> tuple[list[Plan], tuple[Candidate, ...]]:
    """The plans and reasons of all mechanisms, asked for or not, and of those of the textbooks, each once."""
    plans = list(plans)
    # of these the textbooks' lines say more
    lines = [c for c in considered if c.mechanism not in ("direct", "tree")]
    others = ("approximate",) if mechanism in ("auto", "projection") else ("factorization", "marginals", "approximate")
    for name in (n for n in others if n != mechanism):
        found, refused = _candidates(problem, name, progress)
        plans += found
        lines += refused
    seen = {p.strategy.summary for p in plans}
    for made in classic.compared(problem):
        if isinstance(made, Candidate):
            lines.append(made)
        elif made.strategy.summary not in seen:
            seen.add(made.strategy.summary)
            plans.append(made)
    return plans, tuple(lines)


def _line(p: Plan, best: Plan) -> Candidate:
    note = "chosen"
    if p is not best:
        # the objective of a projected plan is that of its noisy answers; it was chosen by what is predicted after
        theirs, ours = p.objective_value, best.objective_value
        if best.mechanism == "projection":
            # what is predicted after it is over all queries alike
            theirs, ours = (p.rmse or p.mean_error), best.mean_error
        ratio = theirs / max(ours, 1e-300)
        note = f"errs {ratio:.3g} times as much" if ratio >= 1 else "errs less, but was not asked for"
        note = "errs as much" if abs(ratio - 1) < _ALIKE else note
    return Candidate(p.mechanism, p.strategy.summary, p.rmse, p.max_standard_error, note, p.objective_value)


def _problem(
    workload: Workload,
    budget: Budget,
    neighbours: str | Neighbours,
    person: str | None,
    rows_per_person: int,
    objective: str,
    records: int | None,
    public: Mapping[Any, Any] | None,
    mechanism: str,
    noise: str | None,
    lattice: str,
) -> Problem:
    if not isinstance(workload, Workload):
        raise PlanError("plan needs a workload, made by sf.marginals, sf.prefix, sf.queries and the like")
    if not isinstance(budget, Budget):
        raise PlanError("plan needs a budget: sf.pure(1), sf.approx(1, '1e-6'), sf.zcdp('0.5') or sf.gdp(1)")
    if mechanism not in MECHANISMS:
        raise PlanError(f"mechanism must be one of {', '.join(MECHANISMS)}, not {mechanism!r}")
    if objective == "mean":
        warnings.warn(
            "objective='mean' is called 'cells' now: it counts all cells alike. The default, 'tables', counts parts "
            "alike, tables alike within a part and cells within a table",
            DeprecationWarning,
            stacklevel=3,
        )
    objective = read_objective(objective)
    if lattice not in ("fine", "unit"):
        raise PlanError(f"lattice must be 'fine' or 'unit', not {lattice!r}")
    known = read_public(workload.domain, public)
    if known and mechanism not in ("auto", "marginals"):
        raise PlanError(f"public= values are used by mechanism='marginals' alone, not by {mechanism!r}")
    if records is not None and (isinstance(records, bool) or not isinstance(records, int) or records < 1):
        raise PlanError(f"records must be a positive whole number, public and approximate, not {records!r}")
    unit = PrivacyUnit(Neighbours.parse(neighbours), person, rows_per_person)
    if unit.neighbours is Neighbours.REPLACE_ONE and workload.domain.drops:
        dropping = ", ".join(n for n, a in workload.domain.attributes.items() if a.drops)
        raise PlanError(
            f"replace-one needs every record to be counted, but {dropping} drops rows: a replaced record could "
            "vanish. Declare outside/missing as 'other' or 'clamp', or use neighbours='add-remove'"
        )
    if noise is None and mechanism == "laplace":
        noise = "laplace"
    if noise is None and mechanism == "gaussian":
        noise = "gaussian"
    return Problem(workload, budget, unit, noise_for(budget, noise), objective, records, lattice == "unit", known)


def _is_best(made: Plan) -> bool:
    """Whether a plan meets its proved bound, up to the rounding of its multiples."""
    return made.bound is not None and made.objective_value <= made.bound * (1 + _MET)


def _some_candidates(
    problem: Problem, mechanism: str, progress: Progress | None
) -> tuple[list[Plan], tuple[Candidate, ...]]:
    """As `_candidates`; raises PlanError, with every reason, where no plan applies."""
    plans, considered = _candidates(problem, mechanism, progress)
    if not plans:
        reasons = "; ".join(f"{c.mechanism}: {c.note}" for c in considered)
        raise PlanError(f"no mechanism can answer this workload ({reasons})")
    return plans, considered


def _candidates(
    problem: Problem, mechanism: str, progress: Progress | None
) -> tuple[list[Plan], tuple[Candidate, ...]]:
    """The plans that apply, and lines for those that do not with the reason."""
    asked = {"laplace": "direct", "gaussian": "direct"}.get(mechanism, mechanism)
    plans: list[Plan] = []
    refused: list[Candidate] = []
    many = problem.workload.tables > _MANY
    # of many tables residuals are likely the best, and proved to be so
    for name in sorted(_DESIGNS, key=lambda n: many and n != "marginals"):
        make = _DESIGNS[name]
        if asked != name and (asked != "auto" or name == "approximate"):
            continue
        if many and any(_is_best(p) for p in plans):
            refused.append(Candidate(name, "", None, None, "not tried: the chosen plan meets its proved lower bound"))
            continue
        if problem.known and name != "marginals":
            refused.append(Candidate(name, "", None, None, "makes no use of public tables"))
            continue
        wide = asked == "auto" and not problem.unit_lattice and ordered.applies(problem, MAX_DENSE_CELLS)
        if name == "tree" and wide:
            refused.append(Candidate(name, "", None, None, "not tried: on so many cells the factorization errs less"))
            continue
        if problem.unit_lattice and name == "factorization":
            refused.append(Candidate(name, "", None, None, "real coefficients need the fine lattice"))
            continue
        try:
            designs = make(problem, progress)
        except SfumatoError as reason:
            refused.append(Candidate(name, "", None, None, str(reason)))
            continue
        for design in designs:
            try:
                priced = price_design(design, problem)
                _ = priced.rmse
                plans.append(priced)
            except SfumatoError as reason:
                refused.append(Candidate(design.mechanism, "", None, None, str(reason)))
    return plans, tuple(refused)
