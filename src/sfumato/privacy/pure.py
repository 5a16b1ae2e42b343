"""What pure epsilon costs in mu^2, certified: the one conversion that a debit may need.

Candidates are decimals of 16 significant digits. A candidate is taken only if exact rational bounds prove it.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

from sfumato.errors import BudgetError
from sfumato.privacy.certified import exp_bounds, normal_cdf_bounds

__all__ = ["EXP_CAP", "decimal_edge", "implies_gdp", "mu_of_pure", "precision_for"]

DIGITS = 16  # about those of a double: more would buy nothing, and prices stay short
GUARD_BITS = 128  # bits beyond those that the numbers compared have; a few are lost on the way

# Above this exponent exp(epsilon) has too many digits; a bound that does without it is used instead.
EXP_CAP = 1 << 16
# Powers of ten between which every conversion of an accepted budget lies.
_SMALLEST, _LARGEST = -1300, 30


def decimal_edge(holds: Callable[[Fraction], bool]) -> tuple[Fraction, Fraction]:
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


def implies_gdp(epsilon: Fraction, mu: Fraction) -> bool:
    """Whether epsilon-DP is proved to imply mu-GDP: Phi(-mu/2) <= 1/(1 + e^epsilon) [DRS22].

    mu^2 >= 8 epsilon always suffices, since Phi(-x) <= exp(-x^2/2)/2; it is what decides for huge epsilon.
    """
    if mu**2 >= 8 * epsilon:
        return True
    if epsilon > EXP_CAP:
        return False
    bits = precision_for(epsilon)
    return normal_cdf_bounds(-mu / 2, bits)[1] * (1 + exp_bounds(epsilon, bits)[1]) <= 1


@lru_cache(maxsize=1024)
def mu_of_pure(epsilon: Fraction) -> Fraction:
    """The smallest mu such that epsilon-DP implies mu-GDP, 2 Phi^-1(e^epsilon/(1 + e^epsilon)), rounded up [DRS22]."""
    return decimal_edge(lambda mu: not implies_gdp(epsilon, mu))[1] if epsilon else Fraction(0)


def precision_for(scale: Fraction) -> int:
    """Precision that resolves differences of the size of `scale` to more than 100 bits."""
    return GUARD_BITS + max(0, scale.denominator.bit_length() - scale.numerator.bit_length())
