"""Prediction equals observation: what a plan says before the data is what releases show.

One attribute with many cells repeats the same small problem, so one release holds thousands of
independent repetitions. Bounds are at 7.13 standard deviations (two-sided 1e-12 a comparison).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from sfumato.curator import Histogram
from sfumato.domain import Domain, Integers
from sfumato.mechanisms.carry_out import carry_out
from sfumato.planner.planning import plan
from sfumato.planner.simulate import simulate
from sfumato.plans.plan import Plan
from sfumato.plans.predictions import expand_to_queries
from sfumato.privacy.budget import Budget
from sfumato.workloads import Workload, marginals, prefix, queries, ranges, stack, windows

REPEATS = 5_000
RELEASES = 4
Z = 7.13
DOMAIN = Domain({"cell": Integers(0, 5), "sex": Integers(0, 1), "copy": Integers(0, REPEATS - 1)})
COUNTS = (np.arange(DOMAIN.size).reshape(DOMAIN.shape) * 7919) % 23

Ask = Callable[[list[str]], Workload]


def _prefix(by: list[str]) -> Workload:
    return prefix(DOMAIN, "cell", by=["sex", *by])


def _ranges(by: list[str]) -> Workload:
    return ranges(DOMAIN, "cell", by=by)


def _windows(by: list[str]) -> Workload:
    return windows(DOMAIN, "cell", 3, by=by)


def _table(by: list[str]) -> Workload:
    return marginals(DOMAIN, sets=[("cell", "sex", *by)])


CASES: list[tuple[str, Ask, Budget]] = [
    ("gaussian", _prefix, Budget.gdp(1)),
    ("gaussian", _table, Budget.approx(1, "1e-6")),
    ("laplace", _table, Budget.pure(1)),
    ("laplace", _windows, Budget.zcdp("0.1")),
    ("tree", _prefix, Budget.gdp(1)),
    ("tree", _ranges, Budget.pure("0.5")),
    ("factorization", _ranges, Budget.zcdp("0.5")),
    ("factorization", _windows, Budget.gdp(1)),
    ("marginals", _table, Budget.gdp(1)),
    ("marginals", _prefix, Budget.pure(1)),
    ("auto", _prefix, Budget.approx(1, "1e-6")),
]


def _errors(found: Plan, work: Workload) -> np.ndarray:
    """(queries, repetitions) errors of one release, the copies apart."""
    table = Histogram(COUNTS)
    result = carry_out(found, table, ledger=None)
    error = result.answers - work.answer(COUNTS)
    return error.reshape(-1, REPEATS)


def _check(error: np.ndarray, deviation: np.ndarray, kurtosis: float, shares: np.ndarray, level: float) -> None:
    n = error.shape[1]
    ratio = (error**2).mean(axis=1) / deviation**2
    bound = Z * math.sqrt((2 + kurtosis) / n)
    assert np.abs(ratio - 1).max() < bound, "the variance is not the predicted one"
    # sums of unequal Laplace draws are matched to their fourth moment, not exact
    slack = 0.003 if kurtosis else 0.0
    assert np.abs(shares - level).max() < Z * math.sqrt(level * (1 - level) / n) + slack, "coverage is off"


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize(("mechanism", "ask", "budget"), CASES, ids=lambda v: getattr(v, "__name__", str(v))[:12])
def test_bias_variance_and_coverage(mechanism: str, ask: Ask, budget: Budget, relation: str) -> None:
    """Mutants: sigma for variance; sensitivity from the unquantised strategy; a lost multiple; 0.7 and 1.3 sigma."""
    work = ask(["copy"])
    found = plan(work, budget, neighbours=relation, mechanism=mechanism)
    error = np.concatenate([_errors(found, work) for _ in range(RELEASES)], axis=1)
    deviation = found.standard_errors().reshape(-1, REPEATS)[:, 0]
    width = found.half_widths(0.95).reshape(-1, REPEATS)[:, [0]]
    kurtosis = 3.0 if type(found.noise).__name__ == "DiscreteLaplace" else 0.0
    _check(error, deviation, kurtosis, (np.abs(error) <= width).mean(axis=1), 0.95)
    # the mean error over copies is the error of the query with the copies summed, which the plan knows too
    summed = ask([]).blocks[0]
    powers = expand_to_queries(found.strategy.row_powers(summed.block, 2), summed)
    spread = np.sqrt(powers * found.noise.variance / RELEASES) / REPEATS
    assert np.abs(error.mean(axis=1) / np.maximum(spread, 1e-12)).max() < Z, "the answers are biased"


def test_the_tolerances_reject_wrong_noise() -> None:
    """The bounds above must refuse 0.7 and 1.3 times the deviation, and accept the right one."""
    rng = np.random.default_rng(3)
    for factor, fine in ((0.7, False), (1.0, True), (1.3, False)):
        error = rng.normal(0, factor, (6, RELEASES * REPEATS))
        width = 1.959964
        try:
            _check(error, np.ones(6), 0.0, (np.abs(error) <= width).mean(axis=1), 0.95)
            assert fine
        except AssertionError:
            assert not fine


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize("mechanism", ["gaussian", "tree", "factorization", "marginals", "laplace"])
def test_simulation_agrees_with_the_plan(mechanism: str, relation: str) -> None:
    """sf.simulate is how researchers check us: it must see what the plan predicts."""
    small = Domain({"cell": Integers(0, 5), "sex": Integers(0, 1)})
    work = stack(a=prefix(small, "cell", by=["sex"]), b=marginals(small, upto=2))
    if mechanism == "factorization":
        work = queries(np.random.default_rng(1).integers(0, 2, (9, 12)), small)
    found = plan(work, Budget.gdp(1), neighbours=relation, mechanism=mechanism)
    x = np.arange(12).reshape(6, 2)
    seen = simulate(found, x, repetitions=3000, rng=11)
    predicted = math.sqrt((found.standard_errors() ** 2).mean())
    assert seen.rmse == pytest.approx(predicted, rel=0.06)
    keep = found.standard_errors() > 1e-6
    ratio = seen.per_query_rmse[keep] / found.standard_errors()[keep]
    assert np.abs(ratio - 1).max() < 0.12
    assert np.abs(seen.mean_error[keep] / found.standard_errors()[keep]).max() < 7.13 / math.sqrt(3000)
    assert seen.coverage == pytest.approx(0.95, abs=0.02) or not keep.all()
