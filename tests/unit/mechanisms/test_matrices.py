"""M and R of plans multiply to the queries; the law of the average error is that of draws and of chi-squares."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

import sfumato as sf
from sfumato.errors import PlanError
from sfumato.plans.matrices import law_of_squares, quantile_of_squares
from support.words import plan_with

LINE = sf.Domain({"t": 8})
TABLE = sf.Domain({"a": 3, "b": 2, "c": 2})
PAIR = sf.Domain({"a": 3, "b": 2})
WORKS = {
    "prefix": sf.prefix(LINE, "t"),
    "ranges": sf.ranges(LINE, "t"),
    "tables": sf.marginals(TABLE, upto=2),
    "by": sf.stack(sf.prefix(PAIR, "a", by=["b"]), sf.total(PAIR)),
}


def queries(work: sf.Workload) -> np.ndarray:
    """F over the cells of all attributes, each cell asked by itself."""
    shape = work.domain.shape
    return np.array([work.answer(cell.reshape(shape)) for cell in np.eye(math.prod(shape))]).T


@pytest.mark.parametrize("budget", [sf.gdp(1), sf.pure(1)], ids=["gaussian", "laplace"])
@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize("name", WORKS)
def test_r_times_m_is_f(name: str, relation: str, budget: sf.Budget) -> None:
    """And the errors of the plan are those of R. Mutants: the divisor on one side alone; the offset's sign; a name of
    another block's axis."""
    work = WORKS[name]
    plan = sf.plan(work, budget, neighbours=relation)
    found = plan.matrices()
    assert np.allclose(found.reconstruction @ found.measurement, queries(work) + found.offset[:, None], atol=1e-9)
    assert np.gcd.reduce(found.measurement, axis=None) == 1
    # R answers values of M with the plan's noise, divided as the values are
    spread = np.linalg.norm(found.reconstruction, axis=1)
    errors = plan.standard_errors()
    assert np.allclose(errors * spread.max(), spread * errors.max())
    assert (found.offset == 0).all() or relation == "replace-one"


@pytest.mark.parametrize(
    "options", [{"strategy": "tree"}, {"strategy": "cells"}, {"mechanism": "factorization"}], ids=str
)
def test_the_price_is_that_of_m(options: dict[str, Any]) -> None:
    """(29) of [SmithUllman]: the error at noise multiplier 1 is ||R||_F times the diameter of M over sqrt(k)."""
    for relation in ("add-remove", "replace-one"):
        plan = plan_with(WORKS["prefix"], sf.gdp(1), neighbours=relation, **options)
        M, R, _ = plan.matrices()
        pairs = [np.linalg.norm(a - b) for a in M.T for b in M.T]
        size = sf.queries(M).operator_norm(1, 2) if relation == "add-remove" else max(pairs)
        assert plan.rmse == pytest.approx(np.linalg.norm(R) * size / math.sqrt(8), rel=1e-4)


def test_answers_are_made_of_it_with_the_number_of_records() -> None:
    """R y - n offset answers, y the noisy M x."""
    plan = sf.plan(WORKS["prefix"], sf.gdp(10**9), neighbours="replace-one")
    M, R, offset = plan.matrices()
    counts = np.arange(8) * 7
    release = sf.release(plan, sf.Histogram(counts), ledger=None)
    assert np.allclose(R @ M @ counts - counts.sum() * offset, counts.cumsum())
    assert np.allclose(release.answers, counts.cumsum(), atol=0.01)


def test_cells_are_of_what_is_asked_about() -> None:
    """Mutant: all attributes of the domain."""
    assert sf.plan(sf.prefix(TABLE, "a"), sf.gdp(1), neighbours="add-remove").matrices().measurement.shape[1] == 3


def test_what_is_too_large_or_known_from_elsewhere_is_refused() -> None:
    wide = sf.plan(sf.prefix(sf.Domain({"t": 4_000}), "t"), sf.gdp(1), neighbours="add-remove", strategy="tree")
    with pytest.raises(PlanError, match=r"M of .* x 4,000 .*2,048"):
        wide.matrices()
    known = sf.plan(WORKS["tables"], sf.gdp(1), neighbours="replace-one", public={("a",): [1, 2, 3]})
    with pytest.raises(PlanError, match="public"):
        known.matrices()


@pytest.mark.parametrize("k", [1, 2, 9, 400])
@pytest.mark.parametrize("probability", [0.5, 0.8, 0.95, 0.999, 1 - 1e-6])
def test_equal_weights_are_chi_squares(k: int, probability: float) -> None:
    assert quantile_of_squares(np.full(k, 3.0), probability) == pytest.approx(3 * chi2.ppf(probability, k), rel=1e-8)


def test_two_pairs_of_weights_are_two_exponentials() -> None:
    """P(2 a E + 2 b E' > x) = (a e^(-x/2a) - b e^(-x/2b)) / (a - b), E and E' of mean 1."""
    for a, b, x in ((3.0, 1.0, 10.0), (3.0, 0.01, 30.0), (1.0, 0.999, 2.0)):
        exact = (a * math.exp(-x / 2 / a) - b * math.exp(-x / 2 / b)) / (a - b)
        assert law_of_squares(np.array([a, a, b, b]), x) == pytest.approx(exact, rel=1e-10)


@pytest.mark.parametrize("weights", [[50.0, *[1.0] * 200], [1.0, 0.1, 0.001], np.geomspace(1, 1e-6, 20)], ids=len)
def test_other_weights_are_as_drawn(weights: Any) -> None:
    w, runs = np.asarray(weights), 40_000
    drawn = (np.random.default_rng().standard_normal((runs, len(w))) ** 2) @ w
    for probability in (0.5, 0.9, 0.99):
        below = (drawn <= quantile_of_squares(w, probability)).mean()
        # 7.13 standard deviations: two-sided 1e-12
        assert abs(below - probability) < 7.13 * math.sqrt(probability * (1 - probability) / runs)


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_the_average_error_of_releases_is_below_its_quantile(relation: str) -> None:
    """Of simulated releases, as often as was said. Mutants: the mean square for its root; k forgotten."""
    plan, runs = sf.plan(WORKS["ranges"], sf.gdp("0.2"), neighbours=relation), 20_000
    covariance = plan.covariance(plan.workload)
    noise = np.linalg.cholesky(covariance + 1e-9 * np.eye(36)) @ np.random.default_rng().standard_normal((36, runs))
    rmse = np.sqrt((noise**2).mean(axis=0))
    for confidence in (0.5, 0.95):
        below = (rmse <= plan.rmse_quantile(confidence)).mean()
        assert abs(below - confidence) < 7.13 * math.sqrt(confidence * (1 - confidence) / runs)
    # one query: the interval's half-width
    total = sf.plan(sf.total(LINE), sf.gdp(1), neighbours="add-remove")
    assert total.rmse_quantile(0.95) == pytest.approx(float(total.half_widths(0.95)[0]), rel=1e-6)


@pytest.mark.parametrize(
    ("work", "budget", "options", "confidence"),
    [
        ("prefix", sf.pure(1), {}, 0.95),
        ("prefix", sf.gdp(1), {}, 0.4),
        ("prefix", sf.gdp(1), {}, 1.0),
        ("prefix", sf.gdp(1), {"mechanism": "approximate", "records": 20}, 0.95),
    ],
)
def test_laws_that_are_not_known_are_refused(
    work: str, budget: sf.Budget, options: dict[str, Any], confidence: float
) -> None:
    plan = plan_with(WORKS[work], budget, neighbours="add-remove", **options)
    with pytest.raises(PlanError, match="confidence"):
        plan.rmse_quantile(confidence)
