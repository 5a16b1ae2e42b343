"""Quantiles of weighted sums of noise against exact laws and simulation."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from sfumato.errors import PlanError
from sfumato.plans.predictions import (
    check_confidence,
    interval_margins,
    noise_cdf,
    noise_quantile,
    simultaneous_confidence,
)
from sfumato.privacy.noise import DiscreteLaplace, RoundedGaussian

GAUSS, LAPLACE = RoundedGaussian(Fraction(2**20)), DiscreteLaplace(Fraction(2**20))
SCALE = 2.0**20


def test_one_laplace_draw_has_the_exponential_quantile() -> None:
    one = np.array([1.0 / SCALE**2])
    for level in (0.5, 0.9, 0.95, 0.999):
        found = interval_margins(level, one, one**2, LAPLACE)
        assert found[0] == pytest.approx(-math.log(1 - level), rel=1e-4)


def test_many_laplace_draws_are_nearly_normal() -> None:
    n = 10_000
    second, fourth = np.array([n / SCALE**2]), np.array([n / SCALE**4])
    found = interval_margins(0.95, second, fourth, LAPLACE)
    assert found[0] == pytest.approx(1.959964 * math.sqrt(2 * n), rel=1e-3)


def test_two_equal_draws_against_the_exact_law() -> None:
    """P(|L1 + L2| > x) = (1 + x/2) exp(-x) for unit Laplace variables."""
    x = interval_margins(0.95, np.array([2.0 / SCALE**2]), np.array([2.0 / SCALE**4]), LAPLACE)[0]
    assert (1 + x / 2) * math.exp(-x) == pytest.approx(0.05, rel=5e-3)


@pytest.mark.parametrize("weights", [[1, 0.5, 0.25], [1, 1, 1, 5], [3, 2, 2, 1, 1, 1, 1], list(range(1, 12))])
@pytest.mark.parametrize("level", [0.9, 0.95, 0.99])
def test_unequal_weights_against_simulation(weights: list[float], level: float) -> None:
    """Mutant: normal quantiles, which miss by up to 2 points at 99 %. Public randomness: nothing is protected here."""
    w = np.array(weights)
    width = interval_margins(level, np.array([(w**2).sum() / SCALE**2]), np.array([(w**4).sum() / SCALE**4]), LAPLACE)[
        0
    ]
    draws = np.random.default_rng(5).laplace(size=(400_000, len(w))) @ w
    assert (np.abs(draws) <= width).mean() == pytest.approx(level, abs=0.003)


def test_squares_may_be_alike_where_fourth_powers_are_not() -> None:
    """Squares that are all the same are said once, and the shapes of the noise differ all the same: a drawn plan of
    sums was paid for and could not be stored. Mutant: shapes written where there is room for one."""
    fourth = np.array([[[0.3, 0.5]], [[0.9, 0.1]]])
    found = interval_margins(0.95, np.ones((1, 1, 1)), fourth, DiscreteLaplace(Fraction(1000)))
    alone = [
        float(interval_margins(0.95, np.ones(1), np.array([f]), DiscreteLaplace(Fraction(1000)))[0])
        for f in fourth.flat
    ]
    assert found.shape == fourth.shape
    assert found.reshape(-1).tolist() == pytest.approx(alone)
    assert len(set(alone)) == 4


def test_gaussian_noise_is_normal() -> None:
    found = interval_margins(0.95, np.array([1.0 / SCALE**2]), None, GAUSS)
    assert found[0] == pytest.approx(1.959964, rel=1e-6)


def test_a_coarse_lattice_uses_its_own_quantiles() -> None:
    law = DiscreteLaplace(Fraction(1))
    width = interval_margins(0.95, np.array([1.0]), np.array([1.0]), law)[0]
    assert width == noise_quantile(law, 0.975)
    assert noise_cdf(law, width) - noise_cdf(law, -width - 1) >= 0.95


def test_simultaneous_levels() -> None:
    assert simultaneous_confidence(0.95, 1, GAUSS) == pytest.approx(0.95)
    assert simultaneous_confidence(0.95, 100, GAUSS) == pytest.approx(0.95 ** (1 / 100))
    assert simultaneous_confidence(0.95, 100, LAPLACE) == pytest.approx(1 - 0.0005)
    # extreme levels stay finite and ordered
    wide = [
        interval_margins(1 - 10.0**-e, np.array([3 / SCALE**2]), np.array([3 / SCALE**4]), LAPLACE)[0]
        for e in (3, 6, 9, 12)
    ]
    assert all(a < b < math.inf for a, b in itertools.pairwise(wide))


@pytest.mark.parametrize("given", [95, 0, 1, -0.5, True, "0.95", math.nan])
def test_a_confidence_is_a_share(given: object) -> None:
    with pytest.raises(PlanError, match="strictly between 0 and 1"):
        check_confidence(given)
