"""Real coefficients have the noise of their own sensitivity: rounding them to integers costs next to nothing."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import PlanError
from sfumato.plans.plan import Plan
from sfumato.privacy.sensitivity import noise_fits_price

MOST = 1 + 1e-4
RELATIONS = ("add-remove", "replace-one")


def drawn(rng: np.random.Generator) -> np.ndarray:
    """A real matrix: plain, of two decimals, sparse, of any scale, of a scale for each row, of heavy tails."""
    k, n = int(rng.integers(1, 7)), int(rng.integers(2, 9))
    matrix = rng.normal(size=(k, n))
    return [
        matrix,
        np.round(matrix, 2) + 0.5 * np.eye(k, n),
        rng.random((k, n)) * (rng.random((k, n)) < 0.5) + 0.5 * np.eye(k, n),
        matrix * 10.0 ** rng.integers(-6, 12),
        matrix * 10.0 ** rng.integers(-3, 4, size=(k, 1)),
        np.exp(3 * matrix),
    ][int(rng.integers(0, 6))]


def own(matrix: np.ndarray, relation: str, power: int) -> float:
    """The sensitivity of real queries, by brute force over all neighbours."""
    changes = matrix if relation == "add-remove" else (matrix[:, :, None] - matrix[:, None, :]).reshape(len(matrix), -1)
    return float((np.abs(changes) ** power).sum(axis=0).max() ** (1 / power))


def budgets(epsilon: float) -> list[tuple[sf.Budget, str]]:
    """Every currency at about one size, and a law of noise that it pays for."""
    rho = epsilon**2 / 8
    return [
        (sf.approx(epsilon, "1e-6"), "gaussian"),
        (sf.pure(epsilon), "laplace"),
        (sf.zcdp(rho), "gaussian"),
        (sf.zcdp(rho), "discrete-gaussian"),
        (sf.gdp(epsilon), "gaussian"),
        (sf.gdp(epsilon), "laplace"),
    ]


def needed(matrix: np.ndarray, relation: str, budget: sf.Budget, noise: str) -> float:
    """The standard error of answers with the noise of the matrix's own sensitivity."""
    if noise == "laplace":
        return math.sqrt(2) * own(matrix, relation, 1) / float(budget.laplace_epsilon)
    price = 2 * budget.rho if noise == "discrete-gaussian" else budget.mu_squared
    return own(matrix, relation, 2) / math.sqrt(float(price))


def direct(asked: object, budget: sf.Budget, noise: str, relation: str, lattice: str = "fine") -> Plan:
    work = asked if isinstance(asked, sf.Workload) else sf.queries(asked)
    auto = sf.mechanisms.auto(noise=noise, lattice=lattice)
    return sf.plan(work, budget, neighbours=relation, mechanism=auto, strategy="queries")


def test_drawn_matrices_have_the_noise_of_their_own_sensitivity() -> None:
    """Mutant: a row's multiple rounded to a whole number, its coefficients having been scaled to 2^20, under noise of
    the next power of two: 1.02 to 1.99 times the noise."""
    rng = np.random.default_rng(104)
    worst = 0.0
    for i in range(200):
        matrix, ways = drawn(rng), budgets(float(rng.uniform(0.1, 4)))
        for relation in RELATIONS:
            for budget, noise in (ways[i % 6], ways[(i + 3) % 6]):
                plan = direct(matrix, budget, noise, relation)
                assert noise_fits_price(plan.sensitivity, plan.noise, plan.price)
                errors = plan.standard_errors()
                assert np.ptp(errors) == 0.0
                worst = max(worst, float(errors[0]) / needed(matrix, relation, budget, noise))
    assert worst < MOST


def test_one_weighted_count_by_default() -> None:
    """8.000 where 4.2247 do, before. Mutant: as above."""
    for mechanism in ("auto", "gaussian"):
        plan = sf.plan(sf.queries([[0.5, 1]]), sf.approx(1, "1e-6"), neighbours="add-remove", mechanism=mechanism)
        assert plan.max_standard_error == pytest.approx(4.2246789, rel=1e-6)
    alone = sf.plan(sf.queries([[0.5, 1]]), sf.pure(1), neighbours="add-remove")
    assert alone.max_standard_error < math.sqrt(2) * MOST


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_real_factors_and_several_tables_spend_their_price(noise: str, relation: str) -> None:
    """Mutants: of two real factors both scaled; what a part weighs judged by its error without its price, which is of
    another unit (needs 2^63); whole numbers of 2^40 with a multiple of 2^22."""
    domain = sf.Domain({"a": 4, "b": 3})
    rng = np.random.default_rng(105)
    first, second = rng.normal(size=(3, 4)), rng.normal(size=(2, 3)) * 1e5
    budget = sf.gdp("0.3")
    both = sf.marginals(domain, order=2, factors={"a": first, "b": second})
    huge = sf.queries([[3 * 10**9, 1], [7, 2**40 + 1]])
    for work in (both, sf.stack(x=sf.queries(rng.normal(size=(2, 12)) * 1e-4, domain), y=both), huge):
        plan = direct(work, budget, noise, relation)
        power = plan.sensitivity.power
        scale = plan.noise.scale if power == 1 else plan.noise.sigma
        price = plan.price.epsilon if power == 1 else plan.price.mu_squared
        spent = Fraction(plan.sensitivity.value) / (price * scale**power)
        assert (1 / MOST) ** power < spent <= 1


def test_rounding_is_bounded_and_small() -> None:
    """Answers of noise that is never drawn are those of the real matrix, up to the stated bias per record.

    Mutants: a bias of 0 stated; the bias of another scale; rounding at 2^20 of the largest coefficient.
    """
    rng = np.random.default_rng(106)
    for _ in range(40):
        matrix = drawn(rng)
        plan = direct(matrix, sf.approx(1, "1e-6"), "gaussian", "add-remove")
        ((block,),) = (plan.strategy.blocks,)
        measured = np.asarray(block.operator.dense(), dtype=np.float64) / plan.strategy.divisor
        off = np.abs(measured - matrix).max()
        assert off <= plan.bias_bound * (1 + 1e-9) <= 1e-9 * np.abs(matrix).max()


def test_whole_counts_stay_whole() -> None:
    """On the unit lattice real coefficients keep the fine one: rounded to whole numbers they would be other queries.

    Mutant: coefficients multiplied by 1 and rounded.
    """
    plan = direct([[0.5, 1.0]], sf.gdp(1), "gaussian", "add-remove", "unit")
    assert 1 <= plan.max_standard_error < MOST
    assert plan.bias_bound < 1e-8


def test_what_does_not_fit_is_refused_in_words() -> None:
    """Mutant: four real factors rounded at the few bits that are left to each."""
    domain = sf.Domain(dict.fromkeys("abcd", 2))
    asked = sf.marginals(domain, order=4, factors={name: [[0.5, 1.0]] for name in "abcd"})
    with pytest.raises(PlanError, match="at most 3 attributes"):
        direct(asked, sf.gdp(1), "gaussian", "add-remove")
