"""Exact numbers as people write and read them, and the currencies in which a ledger adds up."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Context, Decimal
from enum import StrEnum
from fractions import Fraction
from numbers import Integral
from operator import index
from typing import TYPE_CHECKING

from sfumato.errors import BudgetError, InvalidInput

if TYPE_CHECKING:
    from flint import arb

Number = int | float | str | Decimal | Fraction

SMALLEST = Fraction(1, 10**300)  # a double holds it: conversions and predicted errors do not underflow
_MAX_TEXT = 2600  # two numbers of _MAX_BITS in decimal digits, 1,234 each, and room
_MAX_BITS = 4096  # exact arithmetic stays instant; no decimal with three digits of exponent needs more
_DECIMAL = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?", re.ASCII)
_RATIO = re.compile(r"[+-]?\d+/\d+", re.ASCII)
_ALLOWED = 'an int, a Fraction, a Decimal or text such as "0.5", "1e-6", "1/3"'


class Currency(StrEnum):
    """What a ledger adds up. Prices in one currency sum over adaptively chosen releases.

    Args:
        value: "epsilon", "rho" or "mu^2".

    Source:
        [RRUV16], [FZ21], [ST22]
    """

    EPSILON = "epsilon"
    RHO = "rho"
    MU_SQUARED = "mu^2"


def read_exact(value: object, name: str) -> Fraction:
    """The rational number that the caller wrote; a float counts as its shortest decimal text.

    Raises BudgetError for anything that is not a finite number >= 0, and for numbers of absurd length.
    """
    number = _parse_exact(value)
    if number is None:
        raise BudgetError(f"{name} must be {_ALLOWED}; got {type(value).__name__} {refused_text(value)}")
    if number < 0:
        raise BudgetError(f"{name} must not be negative; got {refused_text(value)}")
    return number


def _parse_exact(value: object) -> Fraction | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, Fraction):
        # of this very class: one that derives may compare as it likes, also for those who ask for an equal number later
        number = value if type(value) is Fraction else Fraction(index(value.numerator), index(value.denominator))
    elif isinstance(value, Integral):
        number = Fraction(int(value))
    elif isinstance(value, (float, Decimal, str)):
        # float.__repr__ is the shortest text that reads back as the same double, for subclasses too.
        text = float.__repr__(value) if isinstance(value, float) else str(value).strip(" \t\r\n")
        if len(text) > _MAX_TEXT or not (_DECIMAL.fullmatch(text) or _RATIO.fullmatch(text)):
            return None
        try:
            number = Fraction(text)
        except ZeroDivisionError:
            return None
    else:
        return None
    if max(number.numerator.bit_length(), number.denominator.bit_length()) > _MAX_BITS:
        return None
    return number


def refused_text(value: object) -> str:
    """Bounded text of a refused value; huge integers have no affordable decimal text."""
    whole = value.numerator if isinstance(value, (int, Fraction)) else 0
    if isinstance(whole, int) and whole.bit_length() > _MAX_BITS:
        return "of thousands of digits"
    try:
        text = repr(value)
    except ValueError:
        return "of thousands of digits"
    return text if len(text) <= 60 else text[:57] + "..."


def readable_number(x: Fraction, digits: int = 8) -> str:
    """Short text for people: exact where that takes at most 40 digits, else rounded and marked by '~'."""
    if x.denominator < 1000 and _other_factors(x.denominator):
        return str(x) if abs(x.numerator) < 1000 else "~" + compact_text(round_to_decimal(x, digits))
    if x == 0 or abs(x) >= SMALLEST:
        precise = round_to_decimal(x, 40)
        if Fraction(precise) == x:
            return compact_text(precise)
    return "~" + compact_text(round_to_decimal(x, digits))


def _other_factors(n: int) -> bool:
    """Whether n has a prime factor other than 2 and 5, so that 1/n is no finite decimal."""
    n >>= (n & -n).bit_length() - 1
    while n % 5 == 0:
        n //= 5
    return n != 1


def round_to_decimal(x: Fraction, digits: int) -> Decimal:
    context = Context(prec=digits, Emin=-(10**6), Emax=10**6)
    return context.divide(Decimal(x.numerator), Decimal(x.denominator))


def compact_text(x: Decimal) -> str:
    normal = x.normalize(Context(prec=60, Emin=-(10**6), Emax=10**6))
    text = f"{normal:f}" if -5 <= normal.adjusted() < 12 else f"{normal:e}"
    return text.replace("e+", "e")


Bounds = tuple[Fraction, Fraction]

# Beyond these arguments the exact fractions would have millions of digits.
EXP_LIMIT = 1 << 20
NORMAL_LIMIT = 1 << 10  # the tail there is below 2^-(2^19), and no comparison needs to tell it from 0


def exp_bounds(x: Fraction, bits: int = 128) -> Bounds:
    """Enclose exp(x), with relative width at most 2^-bits.

    For x < -2^20 the lower bound is 0. Raises InvalidInput for x > 2^20 and for a float.
    """
    x = to_fraction(x, bits)
    if x > EXP_LIMIT:
        raise InvalidInput(f"exp of a number above {EXP_LIMIT} has no affordable exact bounds; got {x}")
    if x < -EXP_LIMIT:
        return Fraction(0), exp_bounds(Fraction(-EXP_LIMIT), bits)[1]
    return enclose_value(lambda: arb_ball(x).exp(), bits)


def normal_cdf_bounds(x: Fraction, bits: int = 128) -> Bounds:
    """Enclose Phi(x) = P(N(0, 1) <= x), with relative width at most 2^-bits, inside [0, 1].

    For x < -2^10 the lower bound is 0; for x > 2^10 the upper bound is 1. Raises InvalidInput for a float.
    """
    x = to_fraction(x, bits)
    if x > NORMAL_LIMIT:
        return normal_cdf_bounds(Fraction(NORMAL_LIMIT), bits)[0], Fraction(1)
    if x < -NORMAL_LIMIT:
        return Fraction(0), normal_cdf_bounds(Fraction(-NORMAL_LIMIT), bits)[1]
    lower, upper = enclose_value(lambda: (-arb_ball(x) / arb_ball(Fraction(2)).sqrt()).erfc() / 2, bits)
    return lower, min(upper, Fraction(1))


def enclose_value(evaluate: Callable[[], arb], bits: int) -> Bounds:
    """Bounds of a nonzero value from `evaluate`, at rising precision until they are narrow enough."""
    from flint import ctx  # noqa: PLC0415

    precision = bits + 32
    while True:
        with ctx.workprec(precision):
            value = evaluate()
            if value.is_finite() and value.rel_accuracy_bits() > bits + 1:
                return exact_rational(value.lower()), exact_rational(value.upper())
        precision *= 2


def arb_ball(x: Fraction) -> arb:
    """The ball around a rational at the current precision."""
    from flint import arb, fmpq  # noqa: PLC0415

    return arb(fmpq(x.numerator, x.denominator))


def certain_floor(x: arb) -> int:
    """The greatest integer certainly at most x."""
    return int(x.lower().floor().fmpz())


def certain_ceiling(x: arb) -> int:
    """The least integer certainly at least x."""
    return int(x.upper().ceil().fmpz())


def exact_rational(endpoint: arb) -> Fraction:
    """The dyadic rational that an endpoint is, without rounding."""
    mantissa, exponent = (int(part) for part in endpoint.man_exp())
    return Fraction(mantissa << exponent) if exponent >= 0 else Fraction(mantissa, 1 << -exponent)


def to_fraction(x: Fraction, bits: int) -> Fraction:
    """x as a Fraction; a float would carry a rounding nobody chose."""
    if isinstance(x, bool) or not isinstance(x, (int, Fraction)):
        raise InvalidInput(f"exact bounds need an int or a Fraction, got {type(x).__name__} {x!r}")
    if bits < 1:
        raise InvalidInput(f"bits must be at least 1, got {bits}")
    return Fraction(x)
