"""Mechanisms for the tables of a workload, measured at one look: from a request to the plan that errs least."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from sfumato._util.display import Progress
from sfumato.errors import PlanError, SfumatoError
from sfumato.mechanisms.registry import LOCAL, TABLES, Mechanism, Request, mechanisms_serving
from sfumato.mechanisms.searches import FORMULA, SEARCHED, Found, Search, run
from sfumato.operators import Tree
from sfumato.plans.plan import Plan, price_design
from sfumato.plans.predictions import Alone
from sfumato.privacy.accounting import PureEvent, event_price
from sfumato.privacy.unit import Neighbours
from sfumato.strategies import direct, trees
from sfumato.strategies.calibration import NOISES, noise_for
from sfumato.strategies.design import Candidate, Design, Problem, read_objective
from sfumato.strategies.geography_tree import neighbour_relation, read_totals
from sfumato.strategies.impossible_cells import condition_on_impossible
from sfumato.strategies.residual_planning import read_public
from sfumato.strategies.stacked import FINE
from sfumato.strategies.strategy import Known, KnownGroups
from sfumato.strategies.trees import Canonical
from sfumato.workloads import QueryBlock, QueryFamily, Workload

NAMES = ("queries", "cells", "tree", "square-root", "normalised-square-root")
"""What `strategy=` accepts beside a matrix; "tree-4" and the like are trees of other branching than 2."""

_COMPARED: tuple[tuple[str, str], ...] = (
    ("queries", "least-squares"),
    ("cells", "least-squares"),
    ("cells", "canonical"),
    ("tree", "canonical"),
    ("tree", "least-squares"),
    ("tree-4", "least-squares"),
    ("tree-16", "least-squares"),
    ("square-root", "least-squares"),
    ("normalised-square-root", "least-squares"),
)
_RECONSTRUCTIONS = ("least-squares", "canonical")
_MOST_TABLES = 2_000  # above it pricing what is hardly ever chosen takes longer than planning the rest
_MOST_CELLS = 2**17  # of one attribute, for the same reason


def named_design(problem: Problem, strategy: str, reconstruction: object = None) -> Design:
    """The design of a name of NAMES; `reconstruction` is "least-squares" (the default) or "canonical".

    A canonical answer is the plain sum of as few measured values as possible, for cells and trees.
    Raises PlanError for other names, and where the workload is not one the strategy serves.
    """
    if problem.known:
        raise PlanError("makes no use of public tables")
    kind = "least-squares" if reconstruction is None else reconstruction
    if not isinstance(kind, str) or kind not in _RECONSTRUCTIONS:
        raise PlanError(f"reconstruction of a named strategy is 'least-squares' or 'canonical', not {kind!r}")
    found = re.fullmatch(r"tree(?:-([1-9][0-9]{0,6}))?", strategy)
    if strategy not in NAMES and found is None:
        raise PlanError(f"strategy is a matrix or one of {', '.join(NAMES)} and tree-4, tree-16 ..., not {strategy!r}")
    if found is not None:
        return _named_tree_design(problem, int(found[1] or 2), canonical=kind == "canonical")
    if strategy == "cells":
        return direct.design_cell_noise(problem, plain=kind == "canonical")
    if kind == "canonical":
        raise PlanError(f"reconstruction='canonical' sums cells or the nodes of a tree; {strategy!r} has none")
    if strategy == "queries":
        return direct.design_query_noise(problem)
    if problem.unit_lattice:
        raise PlanError("real coefficients need the fine lattice")
    if not trees.asks_long_ranges(problem, 0):
        raise PlanError("the square root serves ranges of one ordered attribute, under Gaussian noise")
    return trees.square_root(problem, normalised=strategy == "normalised-square-root")


def _named_tree_design(problem: Problem, branching: int, *, canonical: bool) -> Design:
    if not canonical:
        return trees.design_trees(problem, branching)[0]
    asked = {a for i in problem.workload.items for a in i.attributes}
    if len(asked) != 1:
        raise PlanError("sums of fewest nodes serve ranges of one ordered attribute")
    (name,) = asked
    nodes = Tree(problem.sizes[name], branching, root=not problem.unit.total_is_public)
    for query in problem.workload.blocks:
        Canonical(name, nodes).check(query.block)
    return Design("tree", lambda s: Canonical(name, nodes, max(1, round(s))), FINE)


def compare_textbooks(problem: Problem) -> Iterator[Plan | Candidate]:
    """The plan of every textbook mechanism, or a line with the reason why there is none."""
    for strategy, reconstruction in _COMPARED:
        if (strategy, reconstruction) == ("cells", "canonical") and not problem.unit.total_is_public:
            continue
        try:
            _check_comparable(problem)
            made = price_design(named_design(problem, strategy, reconstruction), problem)
            _ = made.rmse, made.max_standard_error
            yield made
        except SfumatoError as reason:
            what = strategy if reconstruction == "least-squares" else f"{strategy} ({reconstruction})"
            yield Candidate(what, "", None, None, str(reason))


def _check_comparable(problem: Problem) -> None:
    """Refuse what would take longer to compare than to plan well."""
    if problem.workload.tables > _MOST_TABLES:
        raise PlanError(f"not compared for more than {_MOST_TABLES:,} tables")
    largest = max((problem.sizes[a] for i in problem.workload.items for a in i.attributes), default=1)
    if largest > _MOST_CELLS:
        raise PlanError(f"not compared above {_MOST_CELLS:,} cells of an attribute; ask for it with strategy=")


_MOST = 2**52  # records: below it floats are exact whole numbers


@dataclass(frozen=True, slots=True)
class Need:
    """Errors of at most a share of the records: the rmse, or with `largest` all together but with probability beta."""

    asked: Request
    share: float
    largest: bool
    beta: float

    def planned(self, value: Tables, records: int | None) -> Plan:
        """The plan for so many records."""
        return value.plan(replace(self.asked, records=records))

    def error(self, made: Plan) -> float:
        """The error of a plan, in records."""
        if not self.largest:
            assert made.rmse is not None  # of one unit, as `sf.records_for` sees to
            return made.rmse
        return max(float(m.max()) for m in made.entry_margins(1 - self.beta, simultaneous=True))

    def least(self, holds: Callable[[int], bool], near: float) -> int:
        """The least n of which a property holds that large ones have, but for that share of it; by halving."""
        low, high = 0, 1
        while not holds(high):
            low, high = high, (8 if near else 2) * high
            if high > _MOST:
                raise PlanError(f"no number of records up to {_MOST:,} reaches this error under this budget")
        while high - low > max(1, int(near * high)):
            middle = math.isqrt(low * high) if 2 * low < high and low else (low + high) // 2
            low, high = (low, middle) if holds(middle) else (middle, high)
        return high


_ALIKE = 5e-4  # of a ratio that is told to three digits


@dataclass(frozen=True, repr=False, kw_only=True)
class Tables(Mechanism[Plan]):
    """A mechanism of one look at tables: what is measured is decided before the data, and so is every error.

    noise: "gaussian", "laplace" or "discrete-gaussian"; by default what the budget is best spent on. lattice: "fine",
    or "unit", which measures plain integer counts.
    """

    noise: str | None = None
    lattice: str = "fine"

    serves: ClassVar[tuple[str, ...]] = (TABLES,)
    takes: ClassVar[tuple[str, ...]] = ("objective", "records", "public", "strategy", "reconstruction")
    takes_strategy: ClassVar[bool] = False
    takes_public: ClassVar[bool] = False
    considers: ClassVar[tuple[str, ...]] = ()
    """The labels of the designs that are compared without being asked for."""
    remark: ClassVar[str] = ""
    """What is said of all lines of a comparison."""

    def __post_init__(self) -> None:
        if self.noise is not None and self.noise not in NOISES:
            raise PlanError(f"noise must be one of {', '.join(NOISES)}, not {self.noise!r}")
        if self.lattice not in ("fine", "unit"):
            raise PlanError(f"lattice must be 'fine' or 'unit', not {self.lattice!r}")

    def plan(self, asked: Request) -> Plan:
        return plan_table_mechanism(self, asked)

    def check_problem(self, problem: Problem) -> None:
        """Refuse options that would do nothing for a problem.

        Args:
            problem: What is planned for.

        Raises:
            PlanError: An option would be dropped.
        """

    @property
    def searches(self) -> tuple[Search, ...]:
        """The searches whose plans it chooses among."""
        return ()

    def found(self, problem: Problem, progress: Progress | None) -> Found:
        """What the searches find.

        Args:
            problem: What is planned for.
            progress: Called while strategies are searched, or None.

        Returns:
            The plans that apply, and lines for those that do not, with the reason.

        Raises:
            PlanError: No plan applies; the message has every reason.
        """
        found = run(problem, self.searches, progress)
        if not found.plans:
            reasons = "; ".join(f"{c.mechanism}: {c.note}" for c in found.refused)
            raise PlanError(f"no mechanism can answer this workload ({reasons})")
        return found

    def least(self, problem: Problem) -> Sequence[Plan]:
        """Plans that are found soon, of which the best errs about as little as the chosen one.

        Args:
            problem: What is planned for.

        Returns:
            The plans.
        """
        first = "marginals" if problem.is_marginal else "factorization"
        return run(problem, self.searches, first=first, most=SEARCHED).plans

    def chosen(self, problem: Problem, plans: Sequence[Plan]) -> Plan:
        """The plan to carry out.

        Args:
            problem: What is planned for.
            plans: The plans that were found, or that of a strategy that was given.

        Returns:
            The plan; that of least error, unless the mechanism chooses otherwise.
        """
        return min(plans, key=lambda p: p.objective_value)

    def beside(
        self, problem: Problem, best: Plan, plans: Sequence[Plan]
    ) -> tuple[tuple[str, ...], tuple[Candidate, ...]]:
        """Remarks on what else could be asked for.

        Args:
            problem: What is planned for.
            best: The plan that was chosen.
            plans: All plans that were found.

        Returns:
            Notes for the plan, and lines for its candidates.
        """
        return (), ()

    def records_for(self, need: Need) -> int:
        off = need.error(need.planned(self, None))
        return need.least(lambda n: off <= need.share * n, 0.0)


class Designed(Tables):
    """A mechanism that proposes designs, which are scaled to the budget and compared.

    `label` is what candidates call them. `automatic`: whether "auto" tries them, as `searches.SEARCHES` lists them;
    `textbook`: whether comparisons name them in more detail.
    """

    label: ClassVar[str]
    automatic: ClassVar[bool] = True
    textbook: ClassVar[bool] = False

    @property
    def searches(self) -> tuple[Search, ...]:
        return (Search(self.label, "", FORMULA, lambda p, _, told: self.designs(p, told), public=self.takes_public),)

    def designs(self, problem: Problem, progress: Progress | None) -> list[Design]:
        """Ways to answer, before they are scaled to the budget.

        Args:
            problem: What is planned for.
            progress: Called while strategies are searched, or None.

        Returns:
            The designs.

        Raises:
            PlanError: None applies.
        """
        raise PlanError(f"mechanism={self.name!r} has no designs of its own")


def make_problem(asked: Request, noise: str | None, lattice: str, *, takes_public: bool, name: str) -> Problem:
    """What designs are asked for. Raises PlanError or BudgetError."""
    workload, unit, records = asked.what, asked.unit, asked.records
    objective = read_objective(asked.objective)
    if unit.within is not None and not takes_public:
        raise PlanError(f"neighbours={neighbour_relation(unit)!r} is for mechanism='marginals' alone, not for {name!r}")
    within, domain = unit.within, workload.domain
    known: tuple[Known | KnownGroups, ...] = ()
    if within is not None:
        known = (read_totals(domain, within, asked.public),)
    elif asked.public is not None:
        known = read_public(domain, asked.public)
    if known and not takes_public:
        raise PlanError(f"public= values are used by mechanism='marginals' alone, not by {name!r}")
    if records is not None and (isinstance(records, bool) or not isinstance(records, int) or records < 1):
        raise PlanError(f"records must be a positive whole number, public and approximate, not {records!r}")
    if unit.neighbours is Neighbours.REPLACE_ONE and workload.domain.drops:
        dropping = [n for n, a in workload.domain.attributes.items() if a.drops]
        raise PlanError(
            f"replace-one needs every record to be counted, but {', '.join(dropping)} "
            f"{'drops' if len(dropping) == 1 else 'drop'} rows: a replaced record could vanish. "
            "Declare outside/missing as 'other' or 'clamp', or use neighbours='add-remove'"
        )
    law = noise_for(asked.budget, noise)
    return Problem(workload, asked.budget, unit, law, objective, records, lattice == "unit", known)


def plan_table_mechanism(value: Tables, asked: Request, *, compare: bool = False) -> Plan:
    """The plan of a mechanism of one look; with `compare`, its candidates are all plans of all mechanisms.

    The textbooks' are among these, each once; the choice is the same.
    """
    if asked.kind == LOCAL:
        raise PlanError(f"mechanism={value.name!r} needs a curator; leave out trust='local'")
    problem = make_problem(asked, value.noise, value.lattice, takes_public=value.takes_public, name=value.name)
    value.check_problem(problem)
    if asked.strategy is not None or asked.reconstruction is not None:
        return _add_cost_notes(_plan_given_strategy(value, asked, problem, compare=compare))
    found = value.found(problem, asked.progress)
    best = _choose_answerable(value, problem, found)
    plans, refused = list(found.plans), found.refused
    before = best
    if problem.workload.domain.impossible:
        best = _condition_plan(problem, best)
    # what is proved of Gaussian noise says nothing of other laws
    bounds = [p.bound for p in plans if p.bound is not None and type(p.noise) is type(best.noise)]
    said, other = value.beside(problem, best, plans)
    if compare:
        plans, refused = _try_all_for_comparison(problem, value, found, asked.progress)
    # those that have an error by it, then those that have none
    lines = [*_candidate_lines(value, plans, before), *other]
    lines.sort(key=lambda c: math.inf if c.value is None else c.value)
    if best.body is not None:
        # what is proved of unbiased answers says nothing of projected ones
        return best.annotated(considered=(_projected_line(best), *lines, *refused))
    notes = (*best.notes, *said)
    alone = _alone(problem, value)
    # what is proved of answers without zeros that are known says nothing of these
    bound = max(bounds) if bounds and best is before else None
    return _add_cost_notes(best.annotated(bound=bound, considered=(*lines, *refused), notes=notes, alone=alone))


_MOST_LINES = 24  # as many as a page shows
_MOST_CELLS_ALONE = 2**17  # of one factor, above which a plan takes longer than reading it


def _alone(problem: Problem, value: Tables) -> tuple[Alone, ...]:
    """What the tables of one part, order and unit would err if they had the whole budget, a line for each.

    None where there is one line, or more than a page shows. Lines that no search serves by itself, or not in good time,
    have no error.
    """
    lines: dict[tuple[str, int, str], list[QueryBlock | QueryFamily]] = {}
    for item in problem.workload.items:
        lines.setdefault((item.part, item.order, item.unit), []).append(item)
    if not 1 < len(lines) <= _MOST_LINES:
        return ()
    return tuple(Alone(*key, _error_alone(problem, items, value)) for key, items in lines.items())


def _error_alone(problem: Problem, items: Sequence[QueryBlock | QueryFamily], value: Tables) -> float | None:
    if any(f.shape[1] > _MOST_CELLS_ALONE for i in items for f in i.factors):
        return None
    try:
        found = value.least(replace(problem, workload=Workload(problem.workload.domain, tuple(items))))
        return min(found, key=lambda p: p.objective_value).mean_error if found else None
    except SfumatoError:
        return None


def _choose_answerable(value: Tables, problem: Problem, found: Found) -> Plan:
    """The plan to carry out whose answers were rehearsed; plans whose answers could not be given are taken out.

    Raises PlanError where no plan can be answered.
    """
    while True:
        best = value.chosen(problem, found.plans)
        try:
            best.rehearse()
        except PlanError as error:
            kept = [p for p in found.plans if p.strategy is not best.strategy]
            if not kept or len(kept) == len(found.plans):
                raise
            found.plans = kept
            found.refuse(best.mechanism, "", str(error))
        else:
            return best


def _condition_plan(problem: Problem, made: Plan) -> Plan:
    """The plan with answers that know of impossible cells."""
    from sfumato.postprocess.projection import largest_tables  # noqa: PLC0415  (heavy)

    work = problem.workload
    # what is measured to be denoised is conditioned on zeros with its noise, by the denoiser
    if made.strategy.records is not None or made.body == "mixtures":
        return made
    queries = [q.block for q in work.blocks]
    found = replace(
        made, strategy=condition_on_impossible(made.strategy, work.domain, largest_tables(work), queries), bound=None
    )
    if made.forecast is not None or not made.mean_error:
        return found
    lower = f"{1 - found.mean_error / made.mean_error:.1%}".replace("%", " %")
    note = f"impossible cells are known to be 0: errors are {lower} lower by that; those of candidates are without it"
    return replace(found, notes=(*found.notes, note))


def _plan_given_strategy(value: Tables, asked: Request, problem: Problem, *, compare: bool) -> Plan:
    """The plan of a strategy that was given, by name or as a matrix. Raises PlanError where it would be dropped."""
    if asked.strategy is not None and not value.takes_strategy:
        raise PlanError(
            f"mechanism={value.name!r} makes a strategy of its own, so strategy= would be dropped; leave one of "
            "them out. A strategy goes with mechanism='auto', 'laplace' and 'gaussian', which say its noise, and "
            "with 'projection', which projects its answers"
        )
    if asked.strategy is not None and problem.known:
        raise PlanError(
            "public= values are used by mechanism='marginals', which makes a strategy of its own; leave out "
            "strategy= or public="
        )
    measured = price_given_strategy(problem, asked.strategy, asked.reconstruction)
    best = value.chosen(problem, [measured])
    best.rehearse()
    if not compare:
        return best
    plans, refused = _try_all_for_comparison(problem, None, Found(problem, [measured]), asked.progress)
    lines = tuple(_candidate_line(p, measured) for p in sorted(plans, key=lambda p: p.objective_value))
    own = (_projected_line(best),) if best.body is not None else ()
    return best.annotated(considered=(*own, *lines, *refused))


def price_given_strategy(problem: Problem, strategy: object, reconstruction: Any) -> Plan:
    """The plan of a strategy, by name or as a matrix, scaled to the budget. Raises PlanError."""
    if strategy is None:
        raise PlanError("reconstruction= needs strategy=, the matrix that is measured")
    if isinstance(strategy, str):
        return price_design(named_design(problem, strategy, reconstruction), problem)
    return price_design(direct.design_given(problem, strategy, reconstruction), problem)


def _add_cost_notes(made: Plan) -> Plan:
    """With what a ledger takes for it where that is more than its budget, and what `records` says of its errors."""
    if isinstance(made.price, PureEvent) and made.budget.kind == "approx":
        # what keeps (epsilon, delta) by itself may cost more than the Gaussian noise that does
        cost, asked = float(event_price(made.price, made.budget.currency)), float(made.budget.mu_squared)
        if cost > asked:
            dear = f"a ledger of mu^2 takes {cost:.4g} for it, {asked:.4g} for Gaussian noise under this budget"
            made = made.annotated(notes=(*made.notes, f"{dear}; one of epsilon takes {float(made.price.epsilon):.6g}"))
    if made.records is None or made.forecast is not None or made.bias_records is not None:
        return made
    share = f"the largest standard error is {made.max_standard_error / made.records:.3g} of {made.records:,} records"
    return made.annotated(notes=(*made.notes, share))


def _try_all_for_comparison(
    problem: Problem, value: Tables | None, found: Found, progress: Progress | None
) -> tuple[list[Plan], list[Candidate]]:
    """The plans and reasons of all mechanisms, asked for or not, and of those of the textbooks, each once."""
    every = [cls() for cls in mechanisms_serving(TABLES) if issubclass(cls, Designed)]
    textbooks = {other.label for other in every if other.textbook}
    considered = value.considers if value else ()
    if value:
        found = run(problem, value.searches, progress, everything=found)
    plans = list(found.plans)
    # of these the textbooks' lines say more
    lines = [c for c in found.refused if c.mechanism not in textbooks]
    for other in every:
        if other.label not in textbooks and other.label not in considered:
            more = run(problem, other.searches, progress)
            plans += more.plans
            lines += more.refused
    seen = {p.strategy.summary for p in plans}
    for made in compare_textbooks(problem):
        if isinstance(made, Candidate):
            lines.append(made)
        elif made.strategy.summary not in seen:
            seen.add(made.strategy.summary)
            plans.append(made)
    return plans, lines


def _candidate_lines(value: Tables, plans: Sequence[Plan], best: Plan) -> list[Candidate]:
    lines = [_candidate_line(p, best) for p in sorted(plans, key=lambda p: p.objective_value)]
    return [replace(c, note=value.remark) for c in lines] if value.remark else lines


def _candidate_line(p: Plan, best: Plan) -> Candidate:
    note = "chosen"
    if p is not best:
        # the objective of a projected plan is that of its noisy answers; it was chosen by what is predicted after
        theirs, ours = p.objective_value, best.objective_value
        if best.body is not None:
            # what is predicted after it is over all queries alike
            theirs, ours = (p.rmse or p.mean_error), best.mean_error
        ratio = theirs / max(ours, 1e-300)
        note = f"errs {ratio:.3g} times as much" if ratio >= 1 else "errs less, but was not asked for"
        note = "errs as much" if abs(ratio - 1) < _ALIKE else note
    return Candidate(p.mechanism, p.strategy.summary, p.rmse, p.max_standard_error, note, p.objective_value)


def _projected_line(best: Plan) -> Candidate:
    value = best.mean_error
    return Candidate(best.mechanism, best.strategy.summary, value, best.max_standard_error, "asked for", value)
