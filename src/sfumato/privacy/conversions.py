"""Conversions between privacy definitions, certified: every result is on the safe side of the true value.

Candidates are decimals of 16 significant digits. A candidate is taken only if exact rational bounds
prove it; floats appear once, as a guess at a parameter for which every value gives a valid bound.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

from sfumato.errors import BudgetError
from sfumato.privacy.certified import ball, exact, exp_bounds, log_bounds, normal_cdf_bounds

__all__ = [
    "epsilon_of_mu",
    "epsilon_of_rho",
    "mu_of_approx",
    "mu_of_pure",
    "mu_squared_of_pures",
    "pure_of_mu",
    "rho_of_approx",
    "round_down",
    "round_up",
    "sqrt_down",
    "sqrt_up",
]

DIGITS = 16
GUARD_BITS = 128

# Above this exponent exp(epsilon) has too many digits; a bound that does without it is used instead.
_EXP_CAP = 1 << 16
# Mechanisms whose binomial law is summed at once, up to an epsilon at which that gains nothing.
_TOGETHER = 256
_LARGEST_TOGETHER = 4
# Powers of ten between which every conversion of an accepted budget lies.
_SMALLEST, _LARGEST = -1300, 30


def _decimal_edge(holds: Callable[[Fraction], bool]) -> tuple[Fraction, Fraction]:
    """Neighbouring 16-digit decimals `(low, high)`: `holds(low)` is true and `holds(high)` is false.

    `holds` is true for small and false for large arguments.
    """
    low, high = _SMALLEST, _LARGEST
    if not holds(Fraction(10) ** low) or holds(Fraction(10) ** high):
        raise BudgetError("this budget is too extreme to convert; give it in the definition that the mechanism needs")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(Fraction(10) ** middle) else (low, middle)
    unit = Fraction(10) ** (low - DIGITS + 1)
    first, last = 10 ** (DIGITS - 1), 10**DIGITS
    while last - first > 1:
        middle = (first + last) // 2
        first, last = (middle, last) if holds(middle * unit) else (first, middle)
    return first * unit, last * unit


def round_down(x: Fraction) -> Fraction:
    """The largest decimal of 16 significant digits that is at most x > 0."""
    unit = _last_digit(x)
    return math.floor(x / unit) * unit


def round_up(x: Fraction) -> Fraction:
    """The smallest decimal of 16 significant digits that is at least x > 0."""
    unit = _last_digit(x)
    return math.ceil(x / unit) * unit


def _last_digit(x: Fraction) -> Fraction:
    """The power of ten that is one unit in the 16th significant digit of x > 0."""
    magnitude = math.floor((x.numerator.bit_length() - x.denominator.bit_length()) * math.log10(2))
    unit = Fraction(10) ** (magnitude - DIGITS)
    while x >= unit * 10**DIGITS:
        unit *= 10
    return unit


def sqrt_down(x: Fraction) -> Fraction:
    """A rational at most sqrt(x), within 1e-15 of it relatively."""
    return _isqrt(x, 0)


def sqrt_up(x: Fraction) -> Fraction:
    """A rational at least sqrt(x), within 1e-15 of it relatively."""
    return _isqrt(x, 1)


def _isqrt(x: Fraction, up: int) -> Fraction:
    exact = Fraction(math.isqrt(x.numerator), math.isqrt(x.denominator))
    if exact**2 == x:
        return exact
    magnitude = (x.denominator.bit_length() - x.numerator.bit_length() + 120) * 302 // 1000
    unit = Fraction(10) ** (magnitude // 2)
    return (math.isqrt(math.floor(x * unit**2)) + up) / unit


# Gaussian noise ------------------------------------------------------------------------------------------------------


def _gaussian_fits(epsilon: Fraction, delta: Fraction, mu: Fraction) -> bool:
    """Whether mu-GDP is proved to imply (epsilon, delta)-DP, by the analytic formula [BW18]."""
    bits = _bits(delta)
    spent = normal_cdf_bounds(mu / 2 - epsilon / mu, bits)[1]
    if spent > delta and epsilon <= _EXP_CAP:
        spent -= exp_bounds(epsilon, bits)[0] * normal_cdf_bounds(-mu / 2 - epsilon / mu, bits)[0]
    return spent <= delta


@lru_cache(maxsize=1024)
def mu_of_approx(epsilon: Fraction, delta: Fraction) -> Fraction:
    """The largest mu such that mu-GDP implies (epsilon, delta)-DP, rounded down [BW18]."""
    return _decimal_edge(lambda mu: _gaussian_fits(epsilon, delta, mu))[0]


@lru_cache(maxsize=1024)
def epsilon_of_mu(mu: Fraction, delta: Fraction) -> Fraction:
    """The smallest epsilon such that mu-GDP implies (epsilon, delta)-DP, rounded up; 0 where delta alone suffices."""
    if mu == 0 or _gaussian_fits(Fraction(0), delta, mu):
        return Fraction(0)
    return _decimal_edge(lambda epsilon: not _gaussian_fits(epsilon, delta, mu))[1]


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
    bound = (_renyi_slack(a, delta, _bits(delta)) + epsilon) / a
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
    bound = a * rho - _renyi_slack(a, delta, _bits(delta))
    if bound <= 0:
        return Fraction(0)
    return round_up(bound)


# Pure epsilon --------------------------------------------------------------------------------------------------------


def _pure_fits(epsilon: Fraction, mu: Fraction) -> bool:
    """Whether epsilon-DP is proved to imply mu-GDP: Phi(-mu/2) <= 1/(1 + e^epsilon) [DRS22].

    mu^2 >= 8 epsilon always suffices, since Phi(-x) <= exp(-x^2/2)/2; it is what decides for huge epsilon.
    """
    if mu**2 >= 8 * epsilon:
        return True
    if epsilon > _EXP_CAP:
        return False
    bits = _bits(epsilon)
    return normal_cdf_bounds(-mu / 2, bits)[1] * (1 + exp_bounds(epsilon, bits)[1]) <= 1


@lru_cache(maxsize=1024)
def mu_of_pure(epsilon: Fraction) -> Fraction:
    """The smallest mu such that epsilon-DP implies mu-GDP, 2 Phi^-1(e^epsilon/(1 + e^epsilon)), rounded up [DRS22]."""
    return _decimal_edge(lambda mu: not _pure_fits(epsilon, mu))[1] if epsilon else Fraction(0)


@lru_cache(maxsize=1024)
def pure_of_mu(mu: Fraction) -> Fraction:
    """The largest epsilon such that epsilon-DP implies mu-GDP, rounded down [DRS22]."""
    return _decimal_edge(lambda epsilon: _pure_fits(epsilon, mu))[0]


def mu_squared_of_pures(epsilon: Fraction, count: int) -> Fraction:
    """A mu^2 that `count` epsilon-DP mechanisms, each chosen after earlier results, imply together; rounded up.

    Together they are at least as private as `count` randomised responses [KOV15, DRS22]: telling Bin(count, p) from
    Bin(count, 1 - p), p = 1/(1 + e^epsilon). Its trade-off curve is a chain of chords; the convex curve of mu-GDP lies
    below all of it if it lies below the vertices (a_i, b_i), so the least mu is the largest of
    Phi^-1(1 - a_i) - Phi^-1(b_i). For 40 mechanisms that is two thirds of the sum of their mu^2 one by one. More than
    256 are taken by groups, whose mu^2 add up.
    """
    groups, rest = divmod(count, _TOGETHER)
    whole = groups * _mu_together(epsilon, _TOGETHER) ** 2 if groups else Fraction(0)
    return whole + (_mu_together(epsilon, rest) ** 2 if rest else 0)


@lru_cache(maxsize=1024)
def _mu_together(epsilon: Fraction, count: int) -> Fraction:
    """The least mu of `count` mechanisms, rounded up."""
    if count == 1 or not epsilon or epsilon > _LARGEST_TOGETHER:
        return sqrt_up(count * mu_of_pure(epsilon) ** 2)
    from flint import arb, ctx  # noqa: PLC0415  (heavy)

    bits = _bits(epsilon) + count
    while True:
        with ctx.workprec(bits):
            odds = ball(-epsilon).exp()
            terms = [math.comb(count, j) * odds**j / (1 + odds) ** count for j in range(count + 1)]
            # under Bin(count, p): P(X >= j) and P(X <= j), each a sum of positive terms
            upper = list(itertools.accumulate(reversed(terms)))[::-1]
            lower = list(itertools.accumulate(terms))
            found = arb(0)
            # the vertices i and count + 1 - i mirror each other
            for i in range(1, count // 2 + 2):
                first, kept = upper[i], lower[count - i]
                # Phi^-1(b) of b = P(X > count - i), which may be next to 1, from 1 - b
                found = found.max((2 * first).erfcinv() - (2 * kept).erfcinv())
            found = found * ball(Fraction(2)).sqrt()
            if found.is_finite() and found.rel_accuracy_bits() > 64:
                return round_up(exact(found.upper()))
        bits *= 2


def _bits(scale: Fraction) -> int:
    """Precision that resolves differences of the size of `scale` to more than 100 bits."""
    return GUARD_BITS + max(0, scale.denominator.bit_length() - scale.numerator.bit_length())


def _log_float(x: Fraction) -> float:
    """log(x) of a rational that may be outside the range of a double."""
    return math.log(x.numerator) - math.log(x.denominator)
