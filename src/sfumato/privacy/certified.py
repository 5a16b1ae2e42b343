"""Exact rational bounds of exp, log and the normal distribution function.

Every function takes a rational and returns `(lower, upper)`, two exact fractions that enclose the
true value: a proof, not an estimate. The enclosures come from ball arithmetic [Joh17], whose balls
contain the true value at any working precision; precision only decides how narrow they are.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING

from sfumato.errors import InvalidInput

if TYPE_CHECKING:
    from flint import arb

__all__ = ["Bounds", "ball", "enclose", "exp_bounds", "normal_cdf_bounds", "rational"]

Bounds = tuple[Fraction, Fraction]

# Beyond these arguments the exact fractions would have millions of digits.
EXP_LIMIT = 1 << 20
NORMAL_LIMIT = 1 << 10  # the tail there is below 2^-(2^19), and no comparison needs to tell it from 0


def exp_bounds(x: Fraction, bits: int = 128) -> Bounds:
    """Enclose exp(x), with relative width at most 2^-bits.

    For x < -2^20 the lower bound is 0. Raises InvalidInput for x > 2^20 and for a float.
    """
    x = rational(x, bits)
    if x > EXP_LIMIT:
        raise InvalidInput(f"exp of a number above {EXP_LIMIT} has no affordable exact bounds; got {x}")
    if x < -EXP_LIMIT:
        return Fraction(0), exp_bounds(Fraction(-EXP_LIMIT), bits)[1]
    return enclose(lambda: ball(x).exp(), bits)


def normal_cdf_bounds(x: Fraction, bits: int = 128) -> Bounds:
    """Enclose Phi(x) = P(N(0, 1) <= x), with relative width at most 2^-bits, inside [0, 1].

    For x < -2^10 the lower bound is 0; for x > 2^10 the upper bound is 1. Raises InvalidInput for a float.
    """
    x = rational(x, bits)
    if x > NORMAL_LIMIT:
        return normal_cdf_bounds(Fraction(NORMAL_LIMIT), bits)[0], Fraction(1)
    if x < -NORMAL_LIMIT:
        return Fraction(0), normal_cdf_bounds(Fraction(-NORMAL_LIMIT), bits)[1]
    lower, upper = enclose(lambda: (-ball(x) / ball(Fraction(2)).sqrt()).erfc() / 2, bits)
    return lower, min(upper, Fraction(1))


def enclose(evaluate: Callable[[], arb], bits: int) -> Bounds:
    """Bounds of a nonzero value from `evaluate`, at rising precision until they are narrow enough."""
    from flint import ctx  # noqa: PLC0415

    precision = bits + 32
    while True:
        with ctx.workprec(precision):
            value = evaluate()
            if value.is_finite() and value.rel_accuracy_bits() > bits + 1:
                return exact(value.lower()), exact(value.upper())
        precision *= 2


def ball(x: Fraction) -> arb:
    """The ball around a rational at the current precision."""
    from flint import arb, fmpq  # noqa: PLC0415

    return arb(fmpq(x.numerator, x.denominator))


def floor(x: arb) -> int:
    """The greatest integer certainly at most x."""
    return int(x.lower().floor().fmpz())


def ceiling(x: arb) -> int:
    """The least integer certainly at least x."""
    return int(x.upper().ceil().fmpz())


def exact(endpoint: arb) -> Fraction:
    """The dyadic rational that an endpoint is, without rounding."""
    mantissa, exponent = (int(part) for part in endpoint.man_exp())
    return Fraction(mantissa << exponent) if exponent >= 0 else Fraction(mantissa, 1 << -exponent)


def rational(x: Fraction, bits: int) -> Fraction:
    """x as a Fraction; a float would carry a rounding nobody chose."""
    if isinstance(x, bool) or not isinstance(x, (int, Fraction)):
        raise InvalidInput(f"exact bounds need an int or a Fraction, got {type(x).__name__} {x!r}")
    if bits < 1:
        raise InvalidInput(f"bits must be at least 1, got {bits}")
    return Fraction(x)
