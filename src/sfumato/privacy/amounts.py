"""Exact numbers as people write and read them, and the currencies in which a ledger adds up."""

from __future__ import annotations

import re
from decimal import Context, Decimal
from enum import StrEnum
from fractions import Fraction
from numbers import Integral

from sfumato.errors import BudgetError

__all__ = ["SMALLEST", "Currency", "Number", "compact", "decimal", "exact", "readable", "shown"]

Number = int | float | str | Decimal | Fraction

SMALLEST = Fraction(1, 10**300)  # a double holds it: conversions and predicted errors do not underflow
_MAX_TEXT = 2600  # two numbers of _MAX_BITS in decimal digits, 1,234 each, and room
_MAX_BITS = 4096  # exact arithmetic stays instant; no decimal with three digits of exponent needs more
_DECIMAL = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?", re.ASCII)
_RATIO = re.compile(r"[+-]?\d+/\d+", re.ASCII)
_ALLOWED = 'an int, a Fraction, a Decimal or text such as "0.5", "1e-6", "1/3"'


class Currency(StrEnum):
    """What a ledger adds up. Prices in one currency sum over adaptively chosen releases [RRUV16, FZ21, ST22]."""

    EPSILON = "epsilon"
    RHO = "rho"
    MU_SQUARED = "mu^2"


def exact(value: object, name: str) -> Fraction:
    """The rational number that the caller wrote; a float counts as its shortest decimal text.

    Raises BudgetError for anything that is not a finite number >= 0, and for numbers of absurd length.
    """
    number = _parse(value)
    if number is None:
        raise BudgetError(f"{name} must be {_ALLOWED}; got {type(value).__name__} {shown(value)}")
    if number < 0:
        raise BudgetError(f"{name} must not be negative; got {shown(value)}")
    return number


def _parse(value: object) -> Fraction | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, Fraction):
        number = value
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


def shown(value: object) -> str:
    """Bounded text of a refused value; huge integers have no affordable decimal text."""
    whole = value.numerator if isinstance(value, (int, Fraction)) else 0
    if isinstance(whole, int) and whole.bit_length() > _MAX_BITS:
        return "of thousands of digits"
    try:
        text = repr(value)
    except ValueError:
        return "of thousands of digits"
    return text if len(text) <= 60 else text[:57] + "..."


def readable(x: Fraction, digits: int = 8) -> str:
    """Short text for people: exact where that takes at most 40 digits, else rounded and marked by '~'."""
    if x.denominator < 1000 and _other_factors(x.denominator):
        return str(x) if abs(x.numerator) < 1000 else "~" + compact(decimal(x, digits))
    if x == 0 or abs(x) >= SMALLEST:
        precise = decimal(x, 40)
        if Fraction(precise) == x:
            return compact(precise)
    return "~" + compact(decimal(x, digits))


def _other_factors(n: int) -> bool:
    """Whether n has a prime factor other than 2 and 5, so that 1/n is no finite decimal."""
    n >>= (n & -n).bit_length() - 1
    while n % 5 == 0:
        n //= 5
    return n != 1


def decimal(x: Fraction, digits: int) -> Decimal:
    context = Context(prec=digits, Emin=-(10**6), Emax=10**6)
    return context.divide(Decimal(x.numerator), Decimal(x.denominator))


def compact(x: Decimal) -> str:
    normal = x.normalize(Context(prec=60, Emin=-(10**6), Emax=10**6))
    text = f"{normal:f}" if -5 <= normal.adjusted() < 12 else f"{normal:e}"
    return text.replace("e+", "e")
