"""The exponential family member nearest to noisy answers, against its optimality conditions and brute force."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, minimize

import sfumato.postprocess.exponential_family as module
from sfumato.operators import Dense, Identity, Prefix
from sfumato.postprocess.exponential_family import ENOUGH, NoisyAnswers, fit_exponential_family

SIZES = (2, 3, 2)
PRIORS = (1e-6, 0.003, 0.1, 3.0)


def problem(seed: int) -> list[NoisyAnswers]:
    """Answers that no table has, to tables and queries over axes in any order."""
    draws = np.random.default_rng(seed)
    return [
        NoisyAnswers((2, 0), Identity(4), np.array([9.0, 11, 4, 30]), 4.0),
        NoisyAnswers((1,), Prefix(3), np.array([5.0, 20, 52]), 1.0),
        NoisyAnswers((0, 1, 2), Dense(draws.integers(-2, 3, (3, 12))), np.array([3.0, -8, 20]), 9.0),
    ]


def rows(given: list[NoisyAnswers]) -> np.ndarray:
    """All queries over all cells, built cell by cell."""
    out = []
    for g in given:
        matrix = g.operator.dense()
        for row in matrix:
            table = row.reshape([SIZES[a] for a in g.axes])
            out.append([table[tuple(cell[a] for a in g.axes)] for cell in np.ndindex(*SIZES)])
    return np.array(out, dtype=float)


def objective(given: list[NoisyAnswers], cells: np.ndarray, prior: float) -> float:
    total = cells.sum()
    misses = rows(given) @ cells - np.concatenate([g.values for g in given])
    spread = np.concatenate([np.full(len(g.values), g.variance) for g in given])
    logs = np.log(np.maximum(cells / total * 12, 1e-300))
    return float(misses @ (misses / spread)) / 2 + prior * float(cells @ logs)


@pytest.mark.parametrize("seed", [3, 4, 5])
@pytest.mark.parametrize("prior", PRIORS)
def test_no_other_cells_are_nearer_than_the_gap_says(prior: float, seed: int) -> None:
    """Mutants: a sign; axes taken in another order; the variance for its root; a search that stops where it stands."""
    given, draws = problem(seed), np.random.default_rng([seed, 1])
    found = fit_exponential_family(SIZES, 52.0, given, prior)
    assert found.cells.shape == SIZES
    assert found.cells.sum() == pytest.approx(52)
    assert found.certified
    assert found.gap <= ENOUGH
    flat = found.cells.reshape(-1)
    best = objective(given, flat, prior)
    rounding = 1e-12 * best
    for scale in (1e-3, 1e-2, 0.3):
        for _ in range(100):
            other = flat * np.exp(scale * draws.normal(size=12))
            assert objective(given, other * 52 / other.sum(), prior) >= best - found.gap - rounding
    # nor towards any table, also one with empty cells
    for other in [*(52 * draws.dirichlet(np.full(12, 0.1)) for _ in range(100)), *(52 * np.eye(12))]:
        for step in (1e-6, 1e-3, 0.1, 1.0):
            assert objective(given, (1 - step) * flat + step * other, prior) >= best - found.gap - rounding


@pytest.mark.filterwarnings("ignore:delta_grad == 0.0")  # said by scipy of its own last steps
@pytest.mark.parametrize("prior", [0.1, 3.0])
def test_the_same_cells_as_by_minimising_over_cells(prior: float) -> None:
    """Another method on the primal, by whose own tolerance alone the two differ."""
    given = problem(3)
    start = np.full(12, 52 / 12)
    whole = LinearConstraint(np.ones((1, 12)), 52, 52)  # type: ignore[call-arg]
    other = minimize(
        lambda cells: objective(given, cells, prior),
        start,
        method="trust-constr",
        bounds=[(1e-9, None)] * 12,
        constraints=[whole],
        options={"gtol": 1e-8, "xtol": 1e-12, "maxiter": 2000},
    )
    found = fit_exponential_family(SIZES, 52.0, given, prior)
    assert objective(given, found.cells.reshape(-1), prior) <= float(other.fun) + found.gap + 1e-9
    assert found.cells.reshape(-1) == pytest.approx(other.x, abs=0.02)


@pytest.mark.parametrize("steps", [1, 2, 4, 6])
@pytest.mark.parametrize("prior", PRIORS)
def test_a_search_cut_short_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch, prior: float, steps: int) -> None:
    """The gap bounds the distance in objective, in answers and in divergence, wherever the search stands.

    Mutants: a gap that leaves out the prior's part of the gradient, or half of it; one of the last step, not of these
    cells; `certified` that is always true.
    """
    given = problem(3)
    best = fit_exponential_family(SIZES, 52.0, given, prior)
    monkeypatch.setattr(module, "_STEPS", steps)
    found = fit_exponential_family(SIZES, 52.0, given, prior)
    assert found.certified == (found.gap <= ENOUGH)
    assert found.certified or found.steps == steps
    values = [objective(given, p.cells.reshape(-1), prior) for p in (found, best)]
    assert values[0] - values[1] <= found.gap + best.gap + 1e-12 * values[0]
    deviations = np.concatenate([np.full(len(g.values), math.sqrt(g.variance)) for g in given])
    apart = rows(given) @ (found.cells - best.cells).reshape(-1) / deviations
    ratio = np.maximum(found.cells, 1e-300) / np.maximum(best.cells, 1e-300)
    divergence = float((found.cells * np.log(ratio)).sum())
    assert float(apart @ apart) / 2 + prior * divergence <= found.gap + 1e-4 * math.sqrt(found.gap) + ENOUGH


def test_the_gap_is_what_the_primal_and_the_dual_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half the squared gradient is P(p(a)) + t D(a), computed term by term."""
    given, prior, total = problem(4), 0.1, 52.0
    monkeypatch.setattr(module, "_STEPS", 3)
    dual = module._Dual(SIZES, total, given, prior)
    deviations = np.concatenate([np.full(len(g.values), math.sqrt(g.variance)) for g in given])
    wanted = np.concatenate([g.values for g in given])
    for place in np.random.default_rng(6).normal(size=(20, 10)):
        point = dual.at(place)
        a = place / deviations
        mean = math.log(float(np.mean(np.exp(rows(given).T @ a))))
        lowest = total * mean - float(a @ wanted) + prior / 2 * float(place @ place)
        held = objective(given, point.cells.reshape(-1), prior)
        assert point.gap == pytest.approx(held + prior * lowest, rel=1e-9)


def test_it_is_uniform_where_nothing_is_known_and_exact_where_all_is() -> None:
    nothing = NoisyAnswers((1,), Dense(np.ones((1, 3))), np.array([99.0]), 1.0)  # of the total, which is held fixed
    assert fit_exponential_family(SIZES, 24.0, [nothing], 0.1).cells == pytest.approx(np.full(SIZES, 2.0))
    exact = np.random.default_rng(7).integers(1, 30, 12).astype(float)
    found = fit_exponential_family(SIZES, exact.sum(), [NoisyAnswers((0, 1, 2), Identity(12), exact, 1e-4)], 1e-4)
    assert found.certified
    assert found.cells.reshape(-1) == pytest.approx(exact, abs=1e-2)
    assert not fit_exponential_family(SIZES, 0.0, [nothing], 0.1).cells.any()


@pytest.mark.parametrize("total", [1.0, 1e4, 1e9])
def test_it_is_certified_at_any_size(total: float) -> None:
    """Noise of a tenth of a record, the least that mwem allows, under few and many records. Mutant: the value of the
    dual, whose digits end before those of its slope, decides where a step ends."""
    draws = np.random.default_rng(8)
    truth = total * draws.dirichlet(np.full(12, 0.2))
    given = [
        dataclasses.replace(
            g, values=g.operator.matvec(module._table_of_axes(truth.reshape(SIZES), g.axes)), variance=0.01
        )
        for g in problem(5)
    ]
    given = [dataclasses.replace(g, values=g.values + draws.normal(size=len(g.values)) * 0.1) for g in given]
    found = fit_exponential_family(SIZES, total, given, 0.01)
    assert found.gap <= 1e-6
    assert found.certified or total > 1e6
