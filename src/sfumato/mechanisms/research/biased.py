"""Answers with a bias that a stated number of records bounds, where that saves more noise than it costs.

At n records the best factorization of answers near the workload has the least root of mean squared noise and worst
mean squared bias; no alpha is to be chosen. It pays for tiny n alone. [SmithUllman]
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from sfumato._util.display import Progress
from sfumato.errors import PlanError
from sfumato.mechanisms.searches import SEARCHED, labelled, run
from sfumato.mechanisms.tables import Designed
from sfumato.operators import OnMarginal
from sfumato.operators.base import FloatArray
from sfumato.privacy.unit import Neighbours
from sfumato.strategies.approximate import BalancedOptimum, Biased, balanced_optimum
from sfumato.strategies.design import Design, Problem
from sfumato.strategies.factors import quantise
from sfumato.strategies.product import Product
from sfumato.workloads import QueryBlock

if TYPE_CHECKING:
    from sfumato.mechanisms.tables import Need

MAX_APPROXIMATE = 512  # cells: its optimum is dense, and its steps grow with their third power
_MAX_ENTRIES = 2**22  # coefficients, of which the optimum holds several copies: 32 MB each
_FINE = 2.0**24  # from where rounding real coefficients to integers is far below any bias that is allowed


_NEAR = 1e-3  # of the least number of records, where it is searched for


@dataclass(frozen=True, repr=False, kw_only=True)
class Approximate(Designed):
    """Biased answers of least total error at a stated number of records; it pays for tiny numbers alone.

    Args:
        noise: "gaussian" or "discrete-gaussian"; None takes what the budget is best spent on.
        lattice: "fine".

    Raises:
        PlanError: An option is not allowed.

    Source:
        [SmithUllman]
    """

    name: ClassVar[str] = "approximate"
    label: ClassVar[str] = "approximate"
    automatic: ClassVar[bool] = False
    honours: ClassVar[bool] = False
    considers: ClassVar[tuple[str, ...]] = ("approximate",)
    unscaled: ClassVar[str] = (
        "margins of biased answers do not scale with the budget: sf.plan says them for a given one"
    )

    def designs(self, problem: Problem, progress: Progress | None) -> list[Design]:
        return design_biased(problem, progress)

    def records_for(self, need: Need) -> int:
        return need.least(lambda n: need.error(need.planned(self, n)) <= need.share * n, _NEAR)


def design_biased(problem: Problem, progress: Progress | None = None) -> list[Design]:
    """The one design: biased answers of least total error at `problem.records` records, over one joint table.

    Raises PlanError without a number of records, for another objective than the mean, for Laplace noise or plain
    counts, where a person's rows are replaced, and above MAX_APPROXIMATE cells.
    """
    records = _read_record_limit(problem)
    blocks = problem.workload.blocks
    names = problem.workload.domain.ordered(frozenset(a for q in blocks for a in q.attributes))
    sizes = tuple(problem.sizes[a] for a in names)
    cells, rows = math.prod(sizes), sum(q.rows for q in blocks)
    if not 1 < cells <= MAX_APPROXIMATE or rows * cells > _MAX_ENTRIES:
        raise PlanError(
            f"mechanism='approximate' serves 2 to {MAX_APPROXIMATE} cells and {_MAX_ENTRIES:,} coefficients, not "
            f"{rows:,} queries over {cells:,} cells"
        )
    weights = [math.sqrt(problem.objective_weight(q)) for q in blocks]
    dense = np.vstack([w * _dense_query_rows(names, sizes, q) for q, w in zip(blocks, weights, strict=True)])
    sigma = _unit_noise_deviation(problem)
    found = balanced_optimum(dense, records / sigma, pairs=problem.unit.total_is_public)
    build = functools.partial(_build_biased, problem, names, sizes, found, weights)
    root = math.sqrt(problem.total_weight)
    notes = [
        f"no linear answers from Gaussian noise, biased or not, are proved to total less than "
        f"{found.lower_bound * sigma / root * (1 - 1e-9):.5g} on the worst table of {records:,} records"
    ]
    unbiased = _unbiased_error(problem, progress)
    if unbiased is not None:
        notes.append(
            f"without any bias the error is {unbiased:.5g} (mechanism='factorization'), on tables of any size; "
            "projecting those answers on what a table can hold usually gains more than a bias does"
        )
    return [Design("approximate", build, _FINE, None, tuple(notes))]


def _read_record_limit(problem: Problem) -> int:
    if problem.records is None:
        raise PlanError(
            "mechanism='approximate' needs records=, a public number that the table's records do not exceed: its bias "
            "is bounded by it"
        )
    if problem.largest:
        raise PlanError("mechanism='approximate' minimises a mean squared error; use objective='tables' or 'cells'")
    if problem.noise == "laplace" or problem.unit_lattice:
        raise PlanError("mechanism='approximate' needs Gaussian noise on the fine lattice; use approx, zcdp or gdp")
    if problem.unit.neighbours is Neighbours.REPLACE_ONE and not problem.unit.total_is_public:
        raise PlanError("mechanism='approximate' serves replace-one of single records only; use add-remove of persons")
    return problem.records


def _dense_query_rows(names: tuple[str, ...], sizes: tuple[int, ...], query: QueryBlock) -> FloatArray:
    axes = tuple(names.index(a) for a in query.attributes)
    return np.asarray(OnMarginal(sizes, axes, query.block.operator).dense(), dtype=np.float64)


def _unit_noise_deviation(problem: Problem) -> float:
    """Standard deviation of the noise for a strategy that one record changes by at most 1."""
    budget = problem.budget
    squared = budget.mu_squared if problem.noise == "gaussian" else 2 * budget.rho
    return problem.unit.rows_per_person / math.sqrt(float(squared))


def _unbiased_error(problem: Problem, progress: Progress | None) -> float | None:
    """The error of the factorization mechanism, where it applies."""
    plans = run(problem, labelled("factorization"), progress, most=SEARCHED).plans
    return min((p.objective_value for p in plans), default=None)


def _build_biased(
    problem: Problem,
    names: tuple[str, ...],
    sizes: tuple[int, ...],
    found: BalancedOptimum,
    weights: list[float],
    s: float,
) -> Biased:
    known = problem.unit.total_is_public
    factor = quantise(found.strategy, None, s, known_total=known)
    title = f"an approximate factorization over {', '.join(names)}"
    measured = Product((names,), (sizes,), (factor,), 1, known, title=title)
    blocks = tuple(q.block for q in problem.workload.blocks)
    ends = np.cumsum([b.rows for b in blocks])[:-1]
    # a query of no weight has rows of zeros: its answer is 0, and its bias says so
    back = [r / max(w, 1e-300) for r, w in zip(np.split(found.reconstruction, ends), weights, strict=True)]
    offsets = [c / max(w, 1e-300) for c, w in zip(np.split(found.offset, ends), weights, strict=True)]
    assert problem.records is not None
    return Biased(measured, blocks, tuple(back), tuple(offsets), problem.records)
