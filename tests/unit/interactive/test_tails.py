"""Reaches of noises against sums over their exact laws."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chi2

from sfumato.interactive.parameters import farthest_draw, largest_sum, noise_energy_bound
from sfumato.plans.predictions import noise_cdf
from sfumato.privacy.noise import DiscreteGaussian, DiscreteLaplace, NoiseLaw, RoundedGaussian


def _law(scale: float, reach: int) -> tuple[np.ndarray, np.ndarray]:
    k = np.arange(-reach, reach + 1)
    masses = np.exp(-np.abs(k) / scale)
    return k, masses / masses.sum()


def _law_of_largest(scale: float, count: int, reach: int) -> np.ndarray:
    _, masses = _law(scale, reach)
    return np.diff(np.cumsum(masses) ** count, prepend=0.0)


@pytest.mark.parametrize(("first", "count", "second", "times"), [(2, 1, 3, 1), (5, 4, 9, 100), (1, 40, 7, 2000)])
@pytest.mark.parametrize("probability", [0.3, 0.025, 1e-6])
def test_the_reach_is_the_quantile_of_the_sum_of_both_largest(
    first: int, count: int, second: int, times: int, probability: float
) -> None:
    reach = 60 * second
    a, b = _law_of_largest(first, count, reach), _law_of_largest(second, times, reach)
    beyond = 1 - np.cumsum(np.convolve(a, b))
    least = int(np.argmax(beyond <= probability)) - 2 * reach
    laws = DiscreteLaplace(Fraction(first)), DiscreteLaplace(Fraction(second))
    assert largest_sum(laws[0], count, laws[1], times, probability) == least


def test_a_coarse_grid_errs_outwards_and_by_little() -> None:
    fine = largest_sum(DiscreteLaplace(Fraction(100)), 20, DiscreteLaplace(Fraction(130)), 500, 0.01)
    wide = largest_sum(DiscreteLaplace(Fraction(10**6)), 20, DiscreteLaplace(Fraction(13 * 10**5)), 500, 0.01)
    assert fine * 10**4 <= wide <= fine * 10**4 * 1.003


@pytest.mark.parametrize(
    "law", [DiscreteLaplace(Fraction(5)), RoundedGaussian(Fraction(7)), DiscreteGaussian(Fraction(7))]
)
def test_no_draw_of_many_is_farther(law: NoiseLaw) -> None:
    found = farthest_draw(law, 50, 0.01)
    outside = 2 * (1 - noise_cdf(law, found))
    assert 1 - (1 - outside) ** 50 <= 0.01
    # one less would not do
    assert 50 * 2 * (1 - noise_cdf(law, found - 1)) > 0.01


@pytest.mark.parametrize("count", [1, 5, 40, 1000])
@pytest.mark.parametrize("probability", [0.1, 1e-3])
def test_the_energy_of_gaussian_noise_is_that_of_a_chi_square_and_never_less(count: int, probability: float) -> None:
    exact = float(chi2.isf(probability, count)) * 30**2
    for law in (DiscreteGaussian(Fraction(30)), RoundedGaussian(Fraction(30))):
        # of a single draw the lattice's own quantile is exact, and may lie a step below
        assert 0.98 * exact <= noise_energy_bound(law, count, probability) <= exact * (2 if count < 40 else 1.3)


def test_the_energy_of_laplace_noise_is_bounded_draw_by_draw() -> None:
    law = DiscreteLaplace(Fraction(4))
    assert noise_energy_bound(law, 10, 0.05) == 10 * farthest_draw(law, 10, 0.05) ** 2
    assert math.isfinite(noise_energy_bound(law, 10, 0.05))
