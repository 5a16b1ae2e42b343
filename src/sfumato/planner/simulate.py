"""What a plan would do on a public table, many times: for researchers. Arrays only; nothing here is a release."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from sfumato.errors import PlanError
from sfumato.measurements import Measurement
from sfumato.mechanisms.carry_out import projected_release
from sfumato.operators.base import FloatArray, Numbers
from sfumato.plans.plan import Plan
from sfumato.plans.predictions import check_confidence
from sfumato.privacy.noise import DiscreteLaplace
from sfumato.releases import Provenance, Release
from sfumato.strategies.strategy import marginalise

_NOWHERE = Provenance("simulation", "", 0, "", one_shot=True, created="", versions=())
_ROUNDING = 1e-9  # records: what an interval's end may be off by in floats


@dataclass(frozen=True, slots=True, repr=False)
class Simulation:
    """Errors of simulated releases against the exact answers. `sf.simulate` makes it.

    `rmse` and `max_error` are over the queries that count records (over all, where none does), as in a plan.

    Args:
        rmse: The root mean squared error over queries and repetitions.
        per_query_rmse: (k,) root mean squared errors over repetitions.
        max_error: The mean over repetitions of the largest error.
        mean_error: (k,) mean errors over repetitions.
        coverage: The share of pointwise intervals that hold the exact answer.
        confidence: The confidence of the intervals.
        repetitions: The number of repetitions.
    """

    rmse: float
    per_query_rmse: FloatArray
    max_error: float
    mean_error: FloatArray
    coverage: float
    confidence: float
    repetitions: int

    def __repr__(self) -> str:
        return (
            f"<Simulation of {self.repetitions:,} releases: rmse {self.rmse:.5g}, largest error {self.max_error:.5g} "
            f"on average, {self.coverage:.2%} of {self.confidence:.0%} intervals hold>"
        )


def simulate(
    plan: Plan, x: ArrayLike, repetitions: int = 1000, rng: int | np.random.Generator = 0, confidence: float = 0.95
) -> Simulation:
    """Repeat measurement and reconstruction on public counts, with reproducible noise of the plan's law.

    The noise comes from an ordinary generator and protects nobody: the counts must be public. Where the plan projects,
    so does every repetition.

    Args:
        plan: A plan of one look.
        x: Whole counts, of shape (m,) or `domain.shape`.
        repetitions: How often it is repeated.
        rng: A seed, or a generator of numpy.
        confidence: The probability, strictly between 0 and 1, of the intervals.

    Returns:
        `rmse` over queries and repetitions, `per_query_rmse` (k,), `max_error`, the mean over repetitions of the
        largest error, `mean_error` (k,), and `coverage`, the share of pointwise intervals that hold the exact answer.

    Raises:
        PlanError: The plan is of several looks, the counts are not whole or of another shape, or an option is not
            allowed.

    >>> made = sf.plan(sf.identity(sf.Domain({"age": 4})), sf.gdp(1), neighbours="add-remove")
    >>> found = sf.simulate(made, [30, 20, 10, 0], repetitions=400)
    >>> abs(found.rmse - made.rmse) < 0.2, found.coverage > 0.9
    (True, True)
    """
    if not isinstance(plan, Plan):
        raise PlanError("simulate repeats plans of one look; release a plan of several looks as often as you need")
    if measures := ", ".join(plan.workload.measures):
        raise PlanError(f"simulate takes counts of cells; sums of measures ({measures}) need rows: release")
    level = check_confidence(confidence)
    counts = np.asarray(x)
    domain = plan.workload.domain
    if counts.shape not in ((domain.size,), domain.shape) or counts.dtype.kind not in "iu":
        raise PlanError(
            f"x must hold whole counts of an integer type and of shape ({domain.size},) or {domain.shape}, "
            + (f"not {counts.dtype} of shape {counts.shape}" if counts.dtype != object else f"not a {type(x).__name__}")
        )
    if isinstance(repetitions, bool) or not isinstance(repetitions, int) or repetitions < 1:
        raise PlanError(f"repetitions must be a positive whole number, not {repetitions!r}")
    generator = np.random.default_rng(rng)
    table = domain.grid.mended(counts.reshape(domain.shape).astype(np.int64))
    exact = [marginalise(table, domain.names, b) for b in plan.strategy.blocks]
    truth = np.concatenate([marginalise(table, domain.names, q.block) for q in plan.workload.blocks]).astype(float)
    width = plan.half_widths(level)
    counted = np.concatenate([np.full(q.rows, q.unit == plan.main_unit) for q in plan.workload.blocks])
    squares, sums, covered, worst = np.zeros(len(truth)), np.zeros(len(truth)), 0.0, 0.0
    total = int(table.sum()) if plan.unit.total_is_public else None
    for _ in range(repetitions):
        values = [e + draw_float_noise(plan, e.shape[0], generator) for e in exact]
        if plan.body is not None:
            made = _project_simulated(plan, values, total)
            error, (low, high, *_) = made.answers - truth, made.intervals(level)
            covered += float(((low <= truth + _ROUNDING) & (truth <= high + _ROUNDING)).mean())
        else:
            estimate = plan.strategy.estimate(values, total)
            answers = np.concatenate([plan.strategy.answer(estimate, q.block) for q in plan.workload.blocks])
            error = answers - truth
            covered += float((np.abs(error) <= width * (1 + 1e-12)).mean())
        squares += error**2
        sums += error
        worst += float(np.abs(error[counted]).max())
    per_query = np.sqrt(squares / repetitions)
    return Simulation(
        float(np.sqrt((per_query[counted] ** 2).mean())),
        per_query,
        worst / repetitions,
        sums / repetitions,
        covered / repetitions,
        level,
        repetitions,
    )


def _project_simulated(plan: Plan, values: list[Numbers], total: int | None) -> Release:
    """What a release of these values would answer."""
    whole = tuple(np.ascontiguousarray(v, dtype=np.int64) for v in values)
    measured = Measurement(tuple(plan.strategy.blocks), whole, plan.noise, total)
    return projected_release(Release(plan, measured, _NOWHERE), plan)


def draw_float_noise(plan: Plan, size: int, generator: np.random.Generator) -> Numbers:
    """Noise of the plan's law up to floating point."""
    if isinstance(plan.noise, DiscreteLaplace):
        p = -np.expm1(-1.0 / float(plan.noise.scale))
        return generator.geometric(p, size) - generator.geometric(p, size)
    return np.rint(generator.normal(0.0, float(np.sqrt(plan.noise.variance)), size)).astype(np.int64)
