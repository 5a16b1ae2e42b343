"""The planner of tables: one list of searches for designs, cheapest first, and the loop that runs them.

A search proposes designs; the loop scales each to the budget, prices it, and keeps all plans. It ends early once the
best plan meets a bound that is proved, as then no further search can err less by what anyone sees. A plan's
`candidates` say of every search what came of it, or why it was not run.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from sfumato._util.display import Progress
from sfumato.errors import PlanError, SfumatoError
from sfumato.mechanisms import separate_parts
from sfumato.plans.plan import Plan, bound_at_budget, price_design
from sfumato.privacy.unit import Neighbours
from sfumato.strategies import (
    dense_planning,
    dense_swap,
    direct,
    geography,
    geography_planning,
    moment_parts,
    residual_planning,
    sliced_search,
    spectral_search,
    trees,
    union_pairs,
    union_planning,
    weighted_planning,
)
from sfumato.strategies.design import Candidate, Design, Problem
from sfumato.strategies.factors import MAX_DENSE_CELLS
from sfumato.strategies.geography_tree import neighbour_relation
from sfumato.strategies.residuals import Residuals
from sfumato.strategies.stacked import join_problem_attributes

FORMULA, SEARCHED, LONG = 0, 1, 2
"""What a search costs: a closed form; a search of seconds; one that is run only where plans stand off their bound."""

_MANY = 500  # tables; below, every candidate is shown
_MET = 1e-3  # above a proved bound: what further designs could gain is less than anyone sees
_SAME = 1e-8  # likewise, where candidates are few enough to be shown: less than integers round away
_OFF = 5e-3  # of the best plan from its bound: what is left to gain is not worth half a minute
_REPLACED = 2e-2  # the same where pairs of cells have weights, which takes up to a quarter of a minute
_SLICED = 2e-2  # the same where all is measured in slices: parts by themselves were never that near
_START = 1.1  # times the best: residuals further off do not come down to it
_LONG_TABLE = 2**18  # queries of one table: a fifth of a second for every mechanism that is priced
_LISTED, _LINE = 2**17, 512  # queries, and cells of their attribute: a second for trees of ten branchings and more

_MET_ALREADY = "not tried: no unbiased answers with Gaussian noise err less than the chosen plan"


class Bound(NamedTuple):
    """What a search proved: no design has a smaller root of the summed weighted errors at unit price."""

    value: float


Finding = Design | Plan | Candidate | Bound
"""What a search may come up with: a design, which is priced; a plan; a line for the candidates; a better bound."""

Find = Callable[[Problem, "Found", Progress | None], Iterable[Finding]]
"""What looks for it: for a problem, from what was found before."""


@dataclass(frozen=True, slots=True, eq=False)
class Search:
    """A way to look for designs.

    Attributes:
        label: The mechanism that candidates name for it.
        title: What it looks for, said where it finds nothing; "" where that speaks for all of its label.
        cost: FORMULA, SEARCHED or LONG.
        find: From the problem and what was found before; raises PlanError with the reason where there is nothing.
        applies: "" where it is to be run, a reason why not, or None where the question does not arise.
        public: Whether it makes use of public tables; others are not run where there are some.
        bounded: Whether what is proved of Gaussian noise holds for what it finds.
        grouped: Whether it plans for persons whose rows are counted once per group; others are not run for these.
    """

    label: str
    title: str
    cost: int
    find: Find
    applies: Callable[[Problem, Found], str | None] = lambda _problem, _found: ""
    public: bool = False
    bounded: bool = True
    grouped: bool = False


@dataclass(slots=True, eq=False)
class Found:
    """What searches have found: plans with their designs, and lines for what did not apply."""

    problem: Problem
    plans: list[Plan] = field(default_factory=list)
    designs: list[Design | None] = field(default_factory=list)
    refused: list[Candidate] = field(default_factory=list)
    of: dict[str, list[Design]] = field(default_factory=dict)
    """The designs by the title of their search."""
    run: set[Search] = field(default_factory=set)
    """The searches that were run."""

    def add(self, search: Search, findings: Iterable[Finding]) -> None:
        """Price what a search found."""
        for finding in findings:
            if isinstance(finding, Candidate):
                self.refused.append(finding)
            elif isinstance(finding, Bound):
                self._prove(bound_at_budget(self.problem, finding.value))
            elif isinstance(finding, Plan):
                self.plans.append(finding)
                self.designs.append(None)
            else:
                self.of.setdefault(search.title, []).append(finding)
                try:
                    priced = price_design(finding, self.problem)
                    _ = priced.entries  # that all is answered
                except SfumatoError as error:
                    self.refuse(finding.mechanism, "", str(error))
                else:
                    self.plans.append(priced)
                    self.designs.append(finding)

    def refuse(self, label: str, title: str, reason: str) -> None:
        """A line that says why there is no plan, once."""
        line = Candidate(label, title, None, None, reason)
        if line not in self.refused:
            self.refused.append(line)

    def _prove(self, bound: float) -> None:
        if self.plans and bound > self.bound:
            place = min(range(len(self.plans)), key=lambda i: self.error(self.plans[i]))
            self.plans[place] = self.plans[place].annotated(bound=bound)

    def error(self, plan: Plan) -> float:
        """What plans are compared by."""
        return plan.objective_value if self.problem.whole is None else plan.error_in(self.problem)

    @property
    def bound(self) -> float:
        """The best of the bounds that the plans have; 0 where none is known."""
        return max((p.bound for p in self.plans if p.bound is not None), default=0.0)

    @property
    def off(self) -> float:
        """How far the best of the plans stands above the best of their bounds; infinity where none is known."""
        bound = self.bound
        return min(map(self.error, self.plans)) / bound - 1 if bound > 0.0 else math.inf

    @property
    def least(self) -> float:
        """The root of the summed errors of the best plan at unit price; infinity where no bound tells it."""
        bound = max((d.bound for d in self.designs if d is not None and d.bound is not None), default=0.0)
        if not bound > 0.0:
            return math.inf
        # what was proved since is none of the designs': the same bound on both sides
        return bound * min(map(self.error, self.plans)) / bound_at_budget(self.problem, bound)


def run(
    problem: Problem,
    searches: Sequence[Search],
    progress: Progress | None = None,
    *,
    first: str = "",
    most: int = LONG,
    everything: Found | None = None,
) -> Found:
    """Run searches in order of cost, until the best plan meets its bound.

    Args:
        problem: What is planned.
        searches: Those that may be run.
        progress: As for `sf.plan`.
        first: The label of what is run first, where nothing is wanted beside the best plan.
        most: The largest cost of what is run.
        everything: What was found before, to which all that was not run for a bound is added.

    Returns:
        What was found, perhaps nothing.
    """
    tall = (
        len({s.label for s in searches}) > 1
        and not problem.is_marginal
        and geography_planning.has_tall_attribute(problem)
    )
    many = tall or problem.workload.tables > _MANY
    enough = _MET if many or first or _is_long(problem) else _SAME
    ahead = "marginals" if many else first or ("factorization" if _is_long(problem) else "")
    found = Found(problem)
    if problem.measures:  # nothing else sums them
        searches = [_SUMS]
    if problem.unit.once_per:
        served = {s.label for s in searches if s.grouped}
        for label in {s.label: None for s in searches if s.label not in served}:
            found.refuse(label, "", "is not for persons whose rows are counted once per group (once_per=)")
        searches = [s for s in searches if s.grouped]
    if everything is not None:
        found, searches = everything, [s for s in searches if s not in everything.run]
        found.refused = [c for c in found.refused if c.note != _MET_ALREADY]
    for search in sorted(searches, key=lambda s: (s.cost == LONG, s.label != ahead, s.cost)):
        if search.cost > most:
            continue
        if search.bounded and found.off <= enough and (many or everything is None):
            if search.label not in {s.label for s in found.run}:
                found.refuse(search.label, "", _MET_ALREADY)
            continue
        try:
            # raises, too, of more tables than are listed one by one
            reason = search.applies(problem, found)
            if reason is None:
                continue
            if problem.known and not search.public:
                reason = "makes no use of public tables"
            elif search.bounded and tall and _LEVELS in found.of:
                reason = "not tried: the tree of groups is too tall for it"
            if reason:
                found.refuse(search.label, "", reason)
            else:
                found.run.add(search)
                found.add(search, search.find(problem, found, progress))
        except SfumatoError as error:
            found.refuse(search.label, search.title if search.cost else "", str(error))
    return found


def _is_long(problem: Problem) -> bool:
    """Whether to price what is worse takes long, as that goes through all queries, too."""
    work = problem.workload
    return work.tables == 1 and len(work) > _LONG_TABLE and not problem.is_marginal


# -- when searches apply ----------------------------------------------------------------------------------------------

_LEVELS, _RESIDUALS = "tables at the levels of a tree", "residuals"
_ORDERED, _SWAP, _COLUMNS = "ranges of one attribute", "the optimum of one table", dense_planning.OVER_COLUMNS
_SYMMETRY, _SLICES = dense_planning.BY_SYMMETRY, "slices along one attribute"
_FEW = "the optimum by symmetry over few rows"


def _fine(problem: Problem, found: Found) -> str | None:
    return "real coefficients need the fine lattice" if problem.unit_lattice else ""


def _tree(problem: Problem, found: Found) -> str | None:
    # to list the errors of that many takes as long as to find the optimum
    least = MAX_DENSE_CELLS if len(problem.workload) <= _LISTED else _LINE
    ordered = not problem.unit_lattice and trees.asks_long_ranges(problem, least)
    return "not tried: on so many cells the factorization errs less" if ordered else ""


def _leveled(problem: Problem, found: Found) -> str | None:
    if problem.unit.within is not None:
        return ""
    return None if problem.is_marginal or geography.level_attribute_position(problem.workload) is None else ""


def _residuals(problem: Problem, found: Found) -> str | None:
    """The rest of what serves marginal tables, beside the tree of groups."""
    alone = problem.unit.within is not None or (_LEVELS in found.of and geography_planning.has_tall_attribute(problem))
    return None if alone else ""


def _tilted(problem: Problem, found: Found) -> str | None:
    # of marginal tables plain residuals are the best, and of one block a product has the least mean error
    if _RESIDUALS not in found.of or problem.is_marginal:
        return None
    return "" if problem.largest or len(problem.workload.blocks) > 1 else None


def _weighted(problem: Problem, found: Found) -> str | None:
    return _residuals(problem, found) if problem.noise == "laplace" else None


def _unsolved(problem: Problem, found: Found) -> str | None:
    """Factorizations, where the optimum is not known from one table."""
    return None if {_ORDERED, _SWAP} & found.of.keys() else _fine(problem, found)


def _columns(first: bool) -> Callable[[Problem, Found], str | None]:
    def applies(problem: Problem, found: Found) -> str | None:
        reason = _unsolved(problem, found)
        solved = _SYMMETRY in found.of and not problem.unit.total_is_public
        if reason is None or solved or dense_planning.columns_first(problem) != first:
            return None
        return reason if dense_planning.asks_columns(problem) else None

    return applies


def _symmetry(problem: Problem, found: Found) -> str | None:
    reason = _unsolved(problem, found) if _COLUMNS not in found.of else None
    return None if reason is None or not dense_planning.several(problem) else reason


def _families(problem: Problem, found: Found) -> str | None:
    joint = found.of.get(_COLUMNS)
    best = joint is not None and problem.noise != "laplace" and joint[0].bound is not None
    if _SYMMETRY in found.of or (best and not dense_planning.near_alone(problem)):
        return None
    return _unsolved(problem, found)


def _far(problem: Problem, found: Found) -> str | None:
    return "" if found.off > _OFF and not problem.unit_lattice else None


def _few_orbit_rows(problem: Problem, found: Found) -> str | None:
    return None if problem.unit.total_is_public and found.off <= _REPLACED else _far(problem, found)


def _bases(problem: Problem, found: Found) -> str | None:
    """Products of basis vectors start from residuals, which must be near the best."""
    best = min(map(found.error, found.plans), default=0.0)
    near = any(isinstance(p.strategy, Residuals) and found.error(p) <= best * _START for p in found.plans)
    return _far(problem, found) if near else None


def _sliced(problem: Problem, found: Found) -> str | None:
    """Slices start from residuals, too, and are of a record more or less."""
    far = _far(problem, found)
    return far if far is not None and _RESIDUALS in found.of and not problem.unit.total_is_public else None


def _orbits(problem: Problem, found: Found) -> str | None:
    mean = problem.noise == "gaussian" and not problem.largest and not problem.known
    ours = problem.unit.total_is_public or problem.unit.neighbours is Neighbours.ADD_REMOVE
    if problem.unit.total_is_public and _FEW in found.of:  # which has weights on finer classes of pairs
        return None
    return _far(problem, found) if mean and ours and found.plans and not problem.is_marginal else None


def _apart(problem: Problem, found: Found) -> str | None:
    # to split the budget costs more than slices leave to be gained
    sliced = _SLICES in found.of and found.off <= _SLICED
    return None if sliced else separate_parts.applies(problem, found)


# -- the searches -----------------------------------------------------------------------------------------------------


def _listed(designs: Callable[[Problem], list[Design]]) -> Find:
    """The designs of a formula."""
    return lambda problem, _found, _progress: designs(problem)


def _one(design: Callable[[Problem, Progress | None], Design | None]) -> Find:
    """The design of a search that knows how far it is, if it finds one."""

    def find(problem: Problem, _found: Found, progress: Progress | None) -> list[Design]:
        found = design(problem, progress)
        return [] if found is None else [found]

    return find


def _rows(problem: Problem, progress: Progress | None) -> Design:
    replaced = problem.unit.total_is_public
    return (union_pairs.few_rows_replaced if replaced else union_planning.few_rows)(problem, progress)


def _levels(problem: Problem, found: Found, progress: Progress | None) -> list[Design]:
    made = geography_planning.design_geography(problem)
    if not made and problem.unit.within is not None:
        raise PlanError(
            f"neighbours={neighbour_relation(problem.unit)!r} is for tables of cells at levels of one attribute, "
            "factors={...: 'levels'}, with Gaussian noise and the mean error"
        )
    return made


def _ordered(problem: Problem, found: Found, progress: Progress | None) -> list[Design]:
    applies = trees.asks_long_ranges(problem, dense_planning.MAX_DENSE_ORDERED)
    return trees.design_toeplitz(problem) if applies else []


def _bounds(problem: Problem, found: Found, progress: Progress | None) -> list[Bound]:
    # raises where more tables than are listed one by one, or too many joint cells
    whole, _ = join_problem_attributes(problem)
    products = whole.products
    replaced = problem.unit.total_is_public
    proved = None if products is None else union_planning.orbit_bound(products, whole.sizes, replaced=replaced)
    return [] if proved is None else [Bound(proved)]


def _slice_bounds(problem: Problem, found: Found, progress: Progress | None) -> list[Bound]:
    proved = sliced_search.sliced_bound(problem)
    return [] if proved is None else [Bound(proved)]


def _parts(problem: Problem, _progress: Progress | None) -> Design | None:
    return separate_parts.parted(problem, lambda part, first: run(part, SEARCHES, first=first, most=SEARCHED))


_SUMS = Search(
    "factorization", "sums of measures", FORMULA, _listed(moment_parts.moment_designs), public=True, grouped=True
)
DIRECT = Search("direct", "", FORMULA, _listed(direct.design_direct), grouped=True)


def tree_search(branching: int | None) -> Search:
    """Trees of one branching, or of the best, run also where a factorization errs less."""
    return Search("tree", "", SEARCHED, _listed(lambda problem: trees.design_trees(problem, branching)), grouped=True)


_marginals = functools.partial(Search, "marginals", public=True, grouped=True)
_factorization = functools.partial(Search, "factorization")

SEARCHES: tuple[Search, ...] = (
    DIRECT,
    _marginals(_LEVELS, FORMULA, _levels, _leveled),
    _marginals(_RESIDUALS, FORMULA, _listed(residual_planning.design_residual_marginals), _residuals),
    _marginals("tilted residuals", SEARCHED, _listed(lambda p: [residual_planning.tilted_jointly(p)]), _tilted),
    _marginals("weighted tables", SEARCHED, _listed(weighted_planning.design_weighted_tables), _weighted),
    replace(tree_search(None), applies=_tree),
    _factorization(_ORDERED, SEARCHED, _ordered, _fine, grouped=True),
    _factorization(_SWAP, SEARCHED, _one(dense_swap.design_swap_optimum), _unsolved, grouped=True),
    _factorization(_COLUMNS, SEARCHED, _one(dense_planning.over_columns), _columns(first=True), grouped=True),
    _factorization(_SYMMETRY, SEARCHED, _one(union_planning.design_union), _symmetry, grouped=True),
    _factorization(_COLUMNS, SEARCHED, _one(dense_planning.over_columns), _columns(first=False), grouped=True),
    _factorization("", SEARCHED, lambda p, _, told: dense_planning.families_apart(p, told), _families, grouped=True),
    _factorization(_FEW, LONG, _one(_rows), _few_orbit_rows),
    _factorization("a bound sliced along one attribute", LONG, _slice_bounds, _sliced),
    _factorization(
        "products of basis vectors", LONG, lambda p, found, _: [spectral_search.design_spectral(p, found.least)], _bases
    ),
    _factorization(_SLICES, LONG, lambda p, found, _: [sliced_search.design_sliced(p, found.least)], _sliced),
    _factorization("a bound from weights constant on orbits", LONG, _bounds, _orbits),
)
"""Every search for tables that nobody has to ask for, in the order in which those of one cost are run."""

PARTS = _factorization("parts by themselves", LONG, _one(_parts), _apart, bounded=False, grouped=True)


def labelled(label: str) -> tuple[Search, ...]:
    """The searches of one mechanism."""
    return tuple(s for s in SEARCHES if s.label == label)
