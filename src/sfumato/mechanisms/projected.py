"""The projection mechanism: noisy answers, then the nearest that some table could have given. [NTZ13, DNT15]

Any other mechanism's plan is measured; projecting its answers is free. In the norm that is projected in the result is
never farther from the truth than they were: the plain one over the answers, or, for many tables, one that weighs
each by its noise. Its expected error in the plain norm is at most what the width of the body says, however many
queries there are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from sfumato.errors import InvalidInput, PlanError, SfumatoError
from sfumato.mechanisms.searches import PARTS, SEARCHES, Search
from sfumato.mechanisms.tables import Tables, make_problem, price_given_strategy
from sfumato.operators.base import FloatArray, single_thread
from sfumato.plans.plan import Plan
from sfumato.plans.predictions import answer_item
from sfumato.postprocess.bodies import BODIES, automatic_body
from sfumato.postprocess.correlation import product_scale
from sfumato.postprocess.parities import parity_matrix
from sfumato.postprocess.projection import joint_attributes, possible_operator
from sfumato.postprocess.width import Forecast, HullCells, LargestProduct, forecast_of_hull
from sfumato.strategies.design import Problem

if TYPE_CHECKING:
    from sfumato.mechanisms.tables import Need

_BODIES = tuple(b for b in BODIES if b != "mixtures")  # a model, no body
_DRAWS, _DRAWS_PAIRS, _SCALED = 256, 48, 16  # widths hardly vary from draw to draw; each of pairs is an eigenvalue
_MOST_ANSWERS, _MOST_CELLS = 2**20, 2**20  # draws of so many are 2 GB; beyond it nothing is forecast
_ROOT_ANSWERS, _ROOT_BLOCKS = 2**11, 24  # up to which the root of the answers' covariance is cheaper than releases


@dataclass(frozen=True, repr=False, kw_only=True)
class Projection(Tables):
    """The plan whose projected answers are predicted to err least, of those of mechanism "auto" or of a strategy.

    Args:
        body: What answers must lie in, as in `sf.project`; "auto" takes the one that fits.
        noise: "gaussian", "laplace" or "discrete-gaussian"; None takes what the budget is best spent on.
        lattice: "fine", or "unit", which measures plain integer counts.

    Raises:
        PlanError: An option is not allowed.

    Guarantee:
        In the norm that is projected in, the result is never farther from the truth than the noisy answers were.

    Source:
        [NTZ13], [DNT15]
    """

    body: str = "auto"

    name: ClassVar[str] = "projection"
    measures: ClassVar[Literal["refused", "beside", "summed"]] = "beside"
    takes_strategy: ClassVar[bool] = True
    considers: ClassVar[tuple[str, ...]] = ("direct", "tree", "factorization", "marginals")
    unscaled_rmse: ClassVar[str] = (
        "margins are those of the answers before projection; what projection leaves of their average depends on "
        "the records: sf.plan says it for a number of them, sf.records_for the number for an error"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.body not in _BODIES:
            raise PlanError(f"body must be one of {', '.join(_BODIES)}, not {self.body!r}")

    def check_problem(self, problem: Problem) -> None:
        if problem.largest:
            raise PlanError(
                "what is proved of mechanism='projection' is an average error, so objective='max' would decide "
                "nothing; for the largest error take mechanism='auto' with objective='max', whose release can be "
                "projected for free"
            )

    @property
    def searches(self) -> tuple[Search, ...]:
        return (*SEARCHES, PARTS)

    def chosen(self, problem: Problem, plans: Sequence[Plan]) -> Plan:
        return plan_projected(plans, self.body)

    def records_for(self, need: Need) -> int:
        asked = need.asked
        if need.largest:
            raise PlanError(
                "what is proved of mechanism='projection' is an average error; for kind='max' take 'pmw', or 'auto': "
                "its answers can be projected for free, and are possible then"
            )
        if asked.objective == "max" or asked.public:
            raise PlanError(
                "mechanism='projection' is judged by the average error; leave out objective='max' and public="
            )
        problem = make_problem(asked, self.noise, self.lattice, takes_public=False, name=self.name)
        if asked.strategy is not None or asked.reconstruction is not None:
            plans = [price_given_strategy(problem, asked.strategy, asked.reconstruction)]
        else:
            plans = self.found(problem, None).plans
        known = [p.forecast for p in forecast_plans(plans, self.body) if p.forecast is not None]
        return min(need.least(lambda n, f=f: f.at(n).rmse <= need.share * n, 0.0) for f in known)


def plan_projected(plans: Sequence[Plan], body: str = "auto") -> Plan:
    """The plan whose projected answers are predicted to err least, its release projected at once.

    Raises PlanError where no body takes the workload.
    """
    return min(forecast_plans(plans, body), key=lambda p: (p.mean_error, p.objective_value))


def forecast_plans(plans: Sequence[Plan], body: str = "auto") -> list[Plan]:
    """The same plans with their releases projected, and what is known of that before data.

    Raises PlanError where no body takes the workload.
    """
    total = 1.0 if plans[0].unit.total_is_public else None
    try:
        chosen = automatic_body(plans[0].workload, total) if body == "auto" else body
    except InvalidInput as reason:
        raise PlanError(f"mechanism='projection': {reason}") from reason
    if chosen == "hull" and total is None:
        chosen = "cone"
    work = plans[0].workload
    if chosen in ("sdp", "sdp+local") and work.domain.possible(joint_attributes(work)) is not None:
        raise PlanError(f"body={chosen!r} does not know of cells that are declared impossible; take 'hull' or 'local'")
    cells = _body_cells(plans[0], chosen)
    return [
        replace(p, mechanism="projection", body=chosen, forecast=forecast_plan(p, chosen, cells), bound=None)
        for p in plans
    ]


def _body_cells(plan: Plan, body: str) -> HullCells | None:
    """The cells that a body of one table is the hull (or cone) of; None for other bodies, and above the limits."""
    rows = len(plan.workload)
    if body not in ("simplex", "isotonic", "hull", "cone", "exact") or rows > _MOST_ANSWERS or rows * _DRAWS > 2**28:
        return None
    try:
        operator, _ = possible_operator(plan.workload)
        return None if operator.shape[1] > _MOST_CELLS else HullCells(operator, total_known=plan.unit.total_is_public)
    except SfumatoError:
        return None


def forecast_plan(plan: Plan, body: str, cells: HullCells | None = None) -> Forecast:
    """What is known before data of projecting a plan's answers; only their own error where that is costly.

    `cells` are those of the body, where plans of one workload share them.
    """
    rows = len(plan.workload)
    raw = math.sqrt(sum(e.sum() for e in plan.entries) * plan.noise.variance / rows)
    known = Forecast(body, rows, raw, records=plan.records)
    if rows > _MOST_ANSWERS or any(e.mean is not None for e in plan.entries):
        return known
    try:
        cells = _body_cells(plan, body) if cells is None else cells
        if cells is not None:
            return forecast_of_hull(body, cells, _error_sampler(plan), raw, plan.records, count=_DRAWS)
        if body in ("sdp", "sdp+local") and plan.unit.total_is_public:
            width = _pairs_width(plan)
            return replace(known, width=width.mean, square=width.square)
    except SfumatoError:
        # a bound that cannot be computed is none
        return known
    return known


def _error_sampler(plan: Plan) -> Callable[[int], FloatArray]:
    """Draws of the errors (k, count) of the plan's answers, as Gaussian noise; each call has new ones.

    From a root of their exact covariance where that is small: to make releases takes many times as long.
    """
    random = np.random.default_rng(0)
    root = (
        _covariance_root(plan) if len(plan.workload) <= _ROOT_ANSWERS and plan.workload.tables <= _ROOT_BLOCKS else None
    )
    if root is None:
        return lambda count: _sample_answer_errors(plan, count, random)
    return lambda count: root @ random.standard_normal((root.shape[1], count))


def _covariance_root(plan: Plan) -> FloatArray | None:
    """L (k, r) with L L^T the covariance of the plan's answers; None where the strategy tells none of some pair."""
    blocks = [q.block for q in plan.workload.blocks]
    ends = np.cumsum([0, *(b.rows for b in blocks)])
    spread = np.empty((int(ends[-1]),) * 2)
    try:
        for i, first in enumerate(blocks):
            for j, second in enumerate(blocks[: i + 1]):
                found = plan.strategy.covariance(first, second)
                spread[ends[i] : ends[i + 1], ends[j] : ends[j + 1]] = found
                spread[ends[j] : ends[j + 1], ends[i] : ends[i + 1]] = found.T
    except SfumatoError:
        return None
    return _semidefinite_root(spread * plan.noise.variance)


def _semidefinite_root(matrix: FloatArray) -> FloatArray:
    """L (k, r) with L L^T = matrix, positive semidefinite of rank r: Cholesky with pivots."""
    from scipy.linalg.lapack import dpstrf  # noqa: PLC0415  (heavy)

    if not np.any(matrix - np.diag(np.diag(matrix))):
        return np.diag(np.sqrt(np.maximum(np.diag(matrix), 0.0)))
    with single_thread():
        factor, pivots, rank, _ = dpstrf(matrix, lower=1)
    out = np.zeros((len(matrix), rank))
    out[pivots - 1] = np.tril(factor)[:, :rank]
    return out


def _sample_answer_errors(plan: Plan, count: int, random: np.random.Generator) -> FloatArray:
    """(k, count) errors of the plan's answers, with Gaussian noise of its variance in place of its own law."""
    deviation = math.sqrt(plan.noise.variance)
    sizes = [b.rows for b in plan.strategy.blocks]
    out = np.empty((count, len(plan.workload)))
    total = 0 if plan.unit.total_is_public else None
    for answers in out:
        values = [np.rint(random.normal(0.0, deviation, n)).astype(np.int64) for n in sizes]
        estimate = plan.strategy.estimate(values, total)
        start = 0
        for item in plan.workload.items:
            answer_item(plan.strategy, estimate, item, answers[start : start + item.rows])
            start += item.rows
    return np.ascontiguousarray(out.T)


def _pairs_width(plan: Plan) -> LargestProduct:
    """E max of <noise, Y> over correlation matrices: at most half the largest eigenvalue times sum s_i^2, scaled."""
    work = plan.workload
    zero, weight = parity_matrix(work, np.zeros(len(work)), 1.0)
    draws = _error_sampler(plan)(_DRAWS_PAIRS)
    pulls = np.stack([(parity_matrix(work, z, 1.0)[0] - zero) * weight for z in draws.T])
    # the scale may be any, but not that of the draws it is used on
    first, rest = pulls[:_SCALED], pulls[_SCALED:]
    scale, _ = product_scale(_smooth_deviations((first**2).mean(axis=0), weight))
    tops = [float(np.linalg.eigvalsh(p / np.multiply.outer(scale, scale))[-1]) for p in rest]
    return LargestProduct.of(np.array(tops) * float(scale @ scale) / 2)


def _smooth_deviations(squares: FloatArray, weight: FloatArray) -> FloatArray:
    """Deviations from mean squares: one for all means of single attributes, one for all pairs."""
    means = np.zeros(len(weight), dtype=bool)
    means[0] = True
    of_means = np.logical_xor.outer(means, means)
    out = np.zeros_like(squares)
    for chosen in ((weight > 0) & of_means, (weight > 0) & ~of_means):
        if chosen.any():
            out[chosen] = math.sqrt(float(squares[chosen].mean()))
    return out
