"""Conversions between privacy definitions, certified: every result is on the safe side of the true value.

Candidates are decimals of 16 significant digits. A candidate is taken only if exact rational bounds
prove it; floats appear once, as a guess at a parameter for which every value gives a valid bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

from sfumato.errors import BudgetError, InvalidInput
from sfumato.privacy.certified import Bounds, ball, enclose, exp_bounds, normal_cdf_bounds, rational
from sfumato.privacy.pure import EXP_CAP, decimal_edge, implies_gdp, precision_for
from sfumato.privacy.rounding import round_down, round_up

__all__ = ["epsilon_of_mu", "epsilon_of_rho", "log_bounds", "mu_of_approx", "pure_of_mu", "rho_of_approx"]


# Gaussian noise ------------------------------------------------------------------------------------------------------


def _gaussian_fits(epsilon: Fraction, delta: Fraction, mu: Fraction) -> bool:
    """Whether mu-GDP is proved to imply (epsilon, delta)-DP, by the analytic formula [BW18]."""
    bits = precision_for(delta)
    spent = normal_cdf_bounds(mu / 2 - epsilon / mu, bits)[1]
    if spent > delta and epsilon <= EXP_CAP:
        spent -= exp_bounds(epsilon, bits)[0] * normal_cdf_bounds(-mu / 2 - epsilon / mu, bits)[0]
    return spent <= delta


@lru_cache(maxsize=1024)
def mu_of_approx(epsilon: Fraction, delta: Fraction) -> Fraction:
    """The largest mu such that mu-GDP implies (epsilon, delta)-DP, rounded down [BW18]."""
    return decimal_edge(lambda mu: _gaussian_fits(epsilon, delta, mu))[0]


@lru_cache(maxsize=1024)
def epsilon_of_mu(mu: Fraction, delta: Fraction) -> Fraction:
    """The smallest epsilon such that mu-GDP implies (epsilon, delta)-DP, rounded up; 0 where delta alone suffices."""
    if mu == 0 or _gaussian_fits(Fraction(0), delta, mu):
        return Fraction(0)
    return decimal_edge(lambda epsilon: not _gaussian_fits(epsilon, delta, mu))[1]


# zCDP ----------------------------------------------------------------------------------------------------------------


def _order(value: Callable[[float], float], widest: float) -> Fraction:
    """A guess at the order a > 1 that maximises `value(log(a - 1))`; any order gives a valid bound."""
    grid = [-30 + (widest + 30) * i / 400 for i in range(401)]
    best = max(range(401), key=lambda i: value(grid[i]))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, 400)]
    for _ in range(60):
        left, right = low + (high - low) * 0.382, low + (high - low) * 0.618
        low, high = (left, high) if value(left) < value(right) else (low, right)
    return 1 + Fraction(math.exp((low + high) / 2))


def log_bounds(x: Fraction, bits: int = 128) -> Bounds:
    """Enclose the natural logarithm of x > 0, with relative width at most 2^-bits; (0, 0) at x = 1.

    Raises InvalidInput for x <= 0 and for a float.
    """
    x = rational(x, bits)
    if x <= 0:
        raise InvalidInput(f"log needs a positive argument, got {x}")
    if x == 1:
        return Fraction(0), Fraction(0)
    return enclose(lambda: ball(x).log(), bits)


def _renyi_slack(a: Fraction, delta: Fraction, bits: int) -> Fraction:
    """A lower bound of (log(delta) + log(a - 1) - a log(1 - 1/a)) / (a - 1) [CKS20, Proposition 12]."""
    logs = log_bounds(delta, bits)[0] + log_bounds(a - 1, bits)[0] - a * log_bounds(1 - 1 / a, bits)[1]
    return logs / (a - 1)


def _renyi_slack_guess(t: float, log_delta: float) -> float:
    """The same at a = 1 + exp(t) in floats, without cancellation on either side of t = 0."""
    excess = math.exp(t)
    if t < 0:
        return log_delta / excess - t + (1 + 1 / excess) * math.log1p(excess)
    a = 1 + excess
    return (log_delta + t - a * math.log1p(-1 / a)) / excess


@lru_cache(maxsize=1024)
def rho_of_approx(epsilon: Fraction, delta: Fraction) -> Fraction:
    """The largest rho such that rho-zCDP implies (epsilon, delta)-DP by [CKS20, Proposition 12], rounded down."""
    log_delta, target = -_log_float(1 / delta), float(epsilon)

    def rho(t: float) -> float:
        return (_renyi_slack_guess(t, log_delta) + target) / (1 + math.exp(t))

    a = _order(rho, 10 - log_delta)
    bound = (_renyi_slack(a, delta, precision_for(delta)) + epsilon) / a
    if bound <= 0:
        raise BudgetError(
            "this (epsilon, delta) is too small to be derived from zCDP; raise delta or use Gaussian noise"
        )
    return round_down(bound)


@lru_cache(maxsize=1024)
def epsilon_of_rho(rho: Fraction, delta: Fraction) -> Fraction:
    """The smallest epsilon such that rho-zCDP implies (epsilon, delta)-DP by [CKS20, Proposition 12], rounded up."""
    if rho == 0:
        return Fraction(0)
    log_delta, cost = -_log_float(1 / delta), float(rho)

    def negative_epsilon(t: float) -> float:
        return _renyi_slack_guess(t, log_delta) - cost * (1 + math.exp(t))

    a = _order(negative_epsilon, 10 - log_delta)
    bound = a * rho - _renyi_slack(a, delta, precision_for(delta))
    if bound <= 0:
        return Fraction(0)
    return round_up(bound)


# Pure epsilon --------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def pure_of_mu(mu: Fraction) -> Fraction:
    """The largest epsilon such that epsilon-DP implies mu-GDP, rounded down [DRS22]."""
    return decimal_edge(lambda epsilon: implies_gdp(epsilon, mu))[0]


def _log_float(x: Fraction) -> float:
    """log(x) of a rational that may be outside the range of a double."""
    return math.log(x.numerator) - math.log(x.denominator)
