"""Noise laws as values, and the certified bounds under them, against independent exact sums."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from flint import arb
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.errors import InvalidInput
from sfumato.plans.predictions import noise_cdf, noise_quantile
from sfumato.privacy import amounts as certified
from sfumato.privacy import noise
from sfumato.privacy import noise as sampling
from sfumato.privacy.amounts import exp_bounds, normal_cdf_bounds
from sfumato.privacy.budget import log_bounds
from sfumato.privacy.noise import DiscreteGaussian, DiscreteLaplace, NoiseLaw, RoundedGaussian
from support.moments import excess_kurtosis

LAWS = (RoundedGaussian, DiscreteGaussian, DiscreteLaplace)
scales = st.fractions(min_value=Fraction(1, 8), max_value=40, max_denominator=50)
laws = st.builds(lambda kind, scale: kind(scale), st.sampled_from(LAWS), scales)


def masses(law: NoiseLaw) -> dict[int, float]:
    """P(k), normalised, from exact rational bounds of exp and Phi; the mass left out is below 1e-16."""
    reach = 9 * law.sigma if isinstance(law, (RoundedGaussian, DiscreteGaussian)) else 38 * law.scale
    top = math.ceil(reach) + 2

    def mass(k: int) -> Fraction:
        if isinstance(law, RoundedGaussian):  # by the lower tails: there is no cancellation
            edges = (Fraction(-2 * k + side, 2) / law.sigma for side in (1, -1))
            upper, lower = (normal_cdf_bounds(edge, 100)[0] for edge in edges)
            return upper - lower
        exponent = Fraction(k * k, 2) / law.sigma**2 if isinstance(law, DiscreteGaussian) else Fraction(k) / law.scale
        return exp_bounds(-exponent, 100)[0]

    half = {k: mass(k) for k in range(top + 1)}
    total = 2 * sum(half.values()) - half[0]
    return {k: float(half[abs(k)] / total) for k in range(-top, top + 1)}


def taylor_exp(x: Fraction) -> tuple[Fraction, Fraction]:
    """Bounds of exp(x) for |x| <= 1 from the series, remainder at most twice the first term left out."""
    terms = [x**n / math.factorial(n) for n in range(40)]
    rest = 2 * abs(x**40) / math.factorial(40)
    return sum(terms, -rest), sum(terms, rest)


@given(st.fractions(min_value=-1, max_value=1, max_denominator=10**6))
def test_exp_bounds_enclose_the_series(x: Fraction) -> None:
    """Mutant: lower and upper endpoint taken from a rounded midpoint."""
    lower, upper = exp_bounds(x, 100)
    least, most = taylor_exp(x)
    assert lower <= most
    assert upper >= least
    assert 0 <= upper - lower <= upper / 2**100


@given(st.fractions(min_value=-500, max_value=500, max_denominator=1000), st.integers(10, 300))
def test_log_undoes_exp_and_bounds_are_tight(x: Fraction, bits: int) -> None:
    """Mutant: endpoints swapped."""
    lower, upper = exp_bounds(x, bits)
    assert log_bounds(lower, bits)[0] <= x <= log_bounds(upper, bits)[1]
    assert lower <= upper <= lower * (1 + Fraction(2, 2**bits))
    low, high = log_bounds(upper, bits)
    assert high - low <= abs(high) / 2**bits + abs(low) / 2**bits


@given(st.fractions(min_value=-30, max_value=30, max_denominator=1000))
def test_normal_cdf_bounds(x: Fraction) -> None:
    """Mutant: Phi(-x) for Phi(x); the factor 1/sqrt 2 left out."""
    lower, upper = normal_cdf_bounds(x)
    assert 0 <= lower < upper <= 1 or x == 0
    assert upper - lower <= upper / 2**128
    assert float(lower) == pytest.approx(math.erfc(-float(x) / math.sqrt(2)) / 2, rel=1e-12)
    other_lower, other_upper = normal_cdf_bounds(-x)
    assert lower + other_lower <= 1 <= upper + other_upper


def test_bounds_far_out_stay_true() -> None:
    """Mutant: a guard that returns 0 as the upper bound."""
    assert exp_bounds(Fraction(-(10**9)))[0] == 0 < exp_bounds(Fraction(-(10**9)))[1]
    assert normal_cdf_bounds(Fraction(-5000))[0] == 0 < normal_cdf_bounds(Fraction(-5000))[1] < Fraction(1, 10**9)
    assert normal_cdf_bounds(Fraction(5000))[1] == 1 > normal_cdf_bounds(Fraction(5000))[0] > 1 - Fraction(1, 10**9)
    assert log_bounds(Fraction(1)) == (0, 0)
    for refused in (lambda: exp_bounds(Fraction(2**20 + 1)), lambda: log_bounds(Fraction(0)), lambda: exp_bounds(0.5)):
        with pytest.raises(InvalidInput):
            refused()
    with pytest.raises(InvalidInput, match="bits"):
        log_bounds(Fraction(2), bits=0)


@settings(max_examples=60)
@given(laws)
def test_moments_are_those_of_the_law(law: NoiseLaw) -> None:
    """Mutants: sigma for variance; sigma^2 without 1/12; Laplace variance 2 scale^2; kurtosis not excess."""
    weights = masses(law)
    variance = math.fsum(p * k * k for k, p in weights.items())
    fourth = math.fsum(p * k**4 for k, p in weights.items())
    assert law.variance == pytest.approx(variance, rel=1e-11)
    assert excess_kurtosis(law) == pytest.approx(fourth / variance**2 - 3, rel=1e-8, abs=1e-9)


@settings(max_examples=60)
@given(laws)
def test_weight_is_the_mass_up_to_a_constant(law: NoiseLaw) -> None:
    """Mutants: the density at k for the integral around it; k^2 / sigma^2 without the 2."""
    at_zero = float(law.weight(0))
    weights = masses(law)
    for k in range(max(weights) + 1):
        assert float(law.weight(k)) / at_zero == pytest.approx(weights[k] / weights[0], rel=1e-9)
        assert float(law.weight(-k)) == float(law.weight(k))


@settings(max_examples=60)
@given(laws, st.floats(1e-12, 1 - 1e-12))
def test_cdf_and_quantile(law: NoiseLaw, probability: float) -> None:
    """Mutants: P(noise < k) for P(noise <= k); a quantile one too low."""
    below = 0.0
    for k, p in masses(law).items():
        below += p
        assert noise_cdf(law, k) == pytest.approx(below, rel=1e-9, abs=1e-14)
    k = noise_quantile(law, probability)
    assert k == round(k)
    assert noise_cdf(law, k) >= probability > noise_cdf(law, k - 1)


@pytest.mark.parametrize("scale", [Fraction(64), Fraction(100, 3), Fraction(2**24), Fraction(2**55)])
@pytest.mark.parametrize("kind", LAWS)
def test_large_scales(kind: type[NoiseLaw], scale: Fraction) -> None:
    """Mutants: a cdf that loses the lattice's half step; a quantile one too low."""
    law = kind(scale)
    unit = float(scale)
    tail = 0.025
    if kind is DiscreteLaplace:
        assert noise_quantile(law, tail) / unit == pytest.approx(math.log(2 * tail), rel=1e-14, abs=1 / unit)
        assert law.variance / unit**2 == pytest.approx(2 - 1 / (6 * unit**2), rel=1e-6)
    else:
        assert noise_quantile(law, tail) / unit == pytest.approx(-1.959963984540054, rel=1e-14, abs=1 / unit)
        assert law.variance == pytest.approx(unit**2 + (kind is RoundedGaussian) / 12, rel=1e-14)
    assert noise_quantile(law, 1 - tail) == pytest.approx(-noise_quantile(law, tail), rel=1e-14, abs=1)
    assert noise_cdf(law, 0) + noise_cdf(law, -1) == pytest.approx(1, abs=1e-12)


def test_a_law_of_another_class_leaves_equal_ones_as_they_are() -> None:
    """Samplers are kept. Mutant: for whatever compares as equal, so that one such law takes the noise from others."""

    class Quiet(RoundedGaussian):
        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return hash(RoundedGaussian(self.sigma))

        def weight(self, k: int) -> arb:
            return arb(2) ** (-1000 * abs(k))

        def reach(self, bits: int) -> int:
            return 1

    sigma = Fraction(229, 3)  # nobody else's: without the mend it would be quiet from now on
    assert not Quiet(sigma).sample(5).any()
    assert RoundedGaussian(sigma).sample(5).any()


def test_discrete_gaussian_cdf_agrees_where_its_formula_changes() -> None:
    """Mutant: the midpoint correction with the wrong sign."""
    law = DiscreteGaussian(64)
    below = 0.0
    for k, p in masses(law).items():
        below += p
        assert noise_cdf(law, k) == pytest.approx(below, abs=1e-10)


@pytest.mark.parametrize("kind", LAWS)
@pytest.mark.parametrize(
    "scale",
    [0, -1, Fraction(0), Fraction(1, 2000), 2**56, 1.0, "1", None, True, math.nan, math.inf, np.float64(2)],
    ids=repr,
)
def test_refused_at_birth(kind: type[NoiseLaw], scale: object) -> None:
    """Mutant: a float accepted and rounded unseen."""
    with pytest.raises(InvalidInput, match=r"must be"):
        kind(scale)  # type: ignore[call-arg]


@pytest.mark.parametrize("kind", LAWS)
def test_frozen_values(kind: type[NoiseLaw]) -> None:
    """Mutants: a dataclass that is not frozen, so a plan's noise could change after it was priced; no slots."""
    law = kind(3)
    assert law == kind(Fraction(3))
    assert hash(law) == hash(kind(Fraction(3)))
    (field,) = dataclasses.fields(law)
    assert isinstance(getattr(law, field.name), Fraction)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(law, field.name, Fraction(1))
    assert not hasattr(law, "__dict__")
    assert len({kind(3) for kind in LAWS}) == len(LAWS)


@pytest.mark.parametrize("kind", LAWS)
@pytest.mark.parametrize("scale", [Fraction(1, 1024), Fraction(5, 2), Fraction(10**12, 7)])
def test_draws_are_int64(kind: type[NoiseLaw], scale: Fraction) -> None:
    """Mutant: float draws."""
    draws = kind(scale).sample(1000)
    assert draws.dtype == np.int64
    assert draws.shape == (1000,)
    assert kind(scale).sample(0).shape == (0,)


@pytest.mark.parametrize("size", [-1, 1.5, True, "3", None])
def test_sizes_refused(size: object) -> None:
    """Mutant: the size not checked."""
    with pytest.raises(InvalidInput, match="number of draws"):
        RoundedGaussian(1).sample(size)  # type: ignore[arg-type]


@pytest.mark.parametrize("probability", [0, 1, -0.1, 1.1, math.nan, 95])
def test_probabilities_refused(probability: float) -> None:
    """Mutant: the probability not checked, so confidence 95 passes for 0.95."""
    with pytest.raises(InvalidInput, match="between 0 and 1"):
        noise_quantile(RoundedGaussian(1), probability)


def test_no_seed_in_the_release_path() -> None:
    """Mutants: a `seed` or `random_state` parameter; numpy's or the standard library's generator."""
    for module in (noise, sampling, certified):
        tree = ast.parse(Path(inspect.getfile(module)).read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            names: list[str] = []
            if isinstance(node, ast.arg):
                names = [node.arg]
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                names = [getattr(node, "module", None) or "", *(alias.name for alias in node.names)]
            elif isinstance(node, ast.Attribute):
                names = [node.attr]
            words = itertools.chain.from_iterable(name.lower().split(".") for name in names)
            assert not {"seed", "random_state", "rng", "random", "default_rng"} & set(words)
    assert list(inspect.signature(NoiseLaw.sample).parameters) == ["self", "size", "source"]
    assert inspect.signature(NoiseLaw.sample).parameters["source"].default is None
