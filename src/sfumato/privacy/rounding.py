"""Decimals and square roots rounded to a stated side."""

from __future__ import annotations

import math
from fractions import Fraction

DIGITS = 16  # as in accounting.py: an amount loses less than one part in 10^15


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
    return _rounded_square_root(x, 0)


def sqrt_up(x: Fraction) -> Fraction:
    """A rational at least sqrt(x), within 1e-15 of it relatively."""
    return _rounded_square_root(x, 1)


def _rounded_square_root(x: Fraction, up: int) -> Fraction:
    exact = Fraction(math.isqrt(x.numerator), math.isqrt(x.denominator))
    if exact**2 == x:
        return exact
    magnitude = (x.denominator.bit_length() - x.numerator.bit_length() + 120) * 302 // 1000
    unit = Fraction(10) ** (magnitude // 2)
    return (math.isqrt(math.floor(x * unit**2)) + up) / unit
