"""Privacy budgets as exact numbers, and what each allows.

A budget is stated in one of four definitions: pure epsilon, (epsilon, delta) [DMNS06, DKMMN06], rho-zCDP [BS16],
mu-GDP [DRS22]. Parameters are exact fractions of the text given; everything derived is rounded to the safe side.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from enum import StrEnum
from fractions import Fraction
from numbers import Integral
from typing import Literal

from sfumato.errors import BudgetError
from sfumato.ground.codec import storable
from sfumato.privacy import conversions

__all__ = ["Budget", "Currency", "Number", "exact", "readable"]

Number = int | float | str | Decimal | Fraction
Kind = Literal["pure", "approx", "zcdp", "gdp"]

LARGEST = Fraction(10) ** 9
SMALLEST = Fraction(1, 10**300)
_MAX_TEXT = 2600
_MAX_BITS = 4096
_DECIMAL = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?", re.ASCII)
_RATIO = re.compile(r"[+-]?\d+/\d+", re.ASCII)
_ALLOWED = 'an int, a Fraction, a Decimal or text such as "0.5", "1e-6", "1/3"'
_PARAMETERS = {"pure": "epsilon", "approx": "epsilon", "zcdp": "rho", "gdp": "mu"}
_DISPLAY_DELTA = Fraction(1, 10**6)


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
        raise BudgetError(f"{name} must be {_ALLOWED}; got {type(value).__name__} {_shown(value)}")
    if number < 0:
        raise BudgetError(f"{name} must not be negative; got {_shown(value)}")
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


def _shown(value: object) -> str:
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
        return str(x) if abs(x.numerator) < 1000 else "~" + _compact(_decimal(x, digits))
    if x == 0 or abs(x) >= SMALLEST:
        precise = _decimal(x, 40)
        if Fraction(precise) == x:
            return _compact(precise)
    return "~" + _compact(_decimal(x, digits))


def _other_factors(n: int) -> bool:
    """Whether n has a prime factor other than 2 and 5, so that 1/n is no finite decimal."""
    n >>= (n & -n).bit_length() - 1
    while n % 5 == 0:
        n //= 5
    return n != 1


def _decimal(x: Fraction, digits: int) -> Decimal:
    context = Context(prec=digits, Emin=-(10**6), Emax=10**6)
    return context.divide(Decimal(x.numerator), Decimal(x.denominator))


def _compact(x: Decimal) -> str:
    normal = x.normalize(Context(prec=60, Emin=-(10**6), Emax=10**6))
    text = f"{normal:f}" if -5 <= normal.adjusted() < 12 else f"{normal:e}"
    return text.replace("e+", "e")


@storable
@dataclass(frozen=True, slots=True, repr=False)
class Budget:
    """A total privacy guarantee, stated exactly. Make one with `pure`, `approx`, `zcdp` or `gdp`.

    `parameter` is epsilon, epsilon, rho or mu, between 1e-300 and 1e9; `delta` is in (0, 1) for "approx" and None
    otherwise. Raises BudgetError for anything else.

    >>> sf.approx(1, "1e-6")
    <Budget (1, 1e-6)-DP; Gaussian noise multiplier 4.2247; mu = 0.2367>
    >>> sf.zcdp("1/3").parameter
    Fraction(1, 3)
    >>> float(sf.gdp(1).mu_squared), float(sf.zcdp("0.5").mu_squared)
    (1.0, 1.0)
    >>> sf.Budget.from_json({"rho": "0.5"}) == sf.zcdp("0.5")
    True
    """

    kind: Kind
    parameter: Fraction
    delta: Fraction | None = None

    def __post_init__(self) -> None:
        if self.kind not in _PARAMETERS:
            raise BudgetError(f"a budget is one of {', '.join(_PARAMETERS)}; got {_shown(self.kind)}")
        name = _PARAMETERS[self.kind]
        parameter = exact(self.parameter, name)
        if not SMALLEST <= parameter <= LARGEST:
            raise BudgetError(f"{name} must be between 1e-300 and 1e9; got {readable(parameter)}")
        object.__setattr__(self, "parameter", parameter)
        if (self.delta is None) == (self.kind == "approx"):
            raise BudgetError("delta belongs to (epsilon, delta) budgets and to no other")
        if self.delta is not None:
            object.__setattr__(self, "delta", _delta(self.delta))

    @classmethod
    def pure(cls, epsilon: Number) -> Budget:
        """epsilon-differential privacy.

        >>> print(sf.pure(1))
        1-DP (pure epsilon); Laplace scale 1 per unit of L1 sensitivity
        """
        return cls("pure", exact(epsilon, "epsilon"))

    @classmethod
    def approx(cls, epsilon: Number, delta: Number) -> Budget:
        """(epsilon, delta)-differential privacy.

        >>> print(sf.approx(1, "1e-6"))
        (1, 1e-6)-DP; Gaussian noise multiplier 4.2247; mu = 0.2367
        >>> sf.approx(1, 0)
        Traceback (most recent call last):
            ...
        sfumato.errors.BudgetError: delta must be above 0 (at least 1e-300) and below 1; got 0
        """
        return cls("approx", exact(epsilon, "epsilon"), exact(delta, "delta"))

    @classmethod
    def zcdp(cls, rho: Number) -> Budget:
        """rho-zero-concentrated differential privacy.

        >>> print(sf.zcdp("0.5"))
        0.5-zCDP; Gaussian noise multiplier 1; (5.2215, 1e-6)-DP
        """
        return cls("zcdp", exact(rho, "rho"))

    @classmethod
    def gdp(cls, mu: Number) -> Budget:
        """mu-Gaussian differential privacy.

        >>> print(sf.gdp(1))
        1-GDP; Gaussian noise multiplier 1; (4.8866, 1e-6)-DP
        """
        return cls("gdp", exact(mu, "mu"))

    @classmethod
    def from_json(cls, document: Mapping[str, object]) -> Budget:
        """The budget with exactly these parameters: epsilon; epsilon and delta; rho; or mu.

        Reads what `to_json` gives, and numbers typed by people. Raises BudgetError for every other combination.
        """
        kinds: dict[frozenset[str], Kind] = {
            frozenset({"epsilon"}): "pure",
            frozenset({"epsilon", "delta"}): "approx",
            frozenset({"rho"}): "zcdp",
            frozenset({"mu"}): "gdp",
        }
        kind = kinds.get(frozenset(document))
        if kind is None:
            given = ", ".join(sorted(map(str, document))) or "nothing"
            raise BudgetError(f"give epsilon, or epsilon and delta, or rho, or mu; got {_shown(given)}")
        delta = exact(document["delta"], "delta") if kind == "approx" else None
        return cls(kind, exact(document[_PARAMETERS[kind]], _PARAMETERS[kind]), delta)

    def to_json(self) -> dict[str, str]:
        """Its parameters as exact text, e.g. {"epsilon": "1", "delta": "1/1000000"}; ready for a JSON file.

        >>> sf.approx(1, "1e-6").to_json()
        {'epsilon': '1', 'delta': '1/1000000'}
        """
        document = {_PARAMETERS[self.kind]: str(self.parameter)}
        return document if self.delta is None else document | {"delta": str(self.delta)}

    @property
    def currency(self) -> Currency:
        """What a ledger with this total adds up."""
        if self.kind == "pure":
            return Currency.EPSILON
        return Currency.RHO if self.kind == "zcdp" else Currency.MU_SQUARED

    @property
    def total(self) -> Fraction:
        """The budget in its currency, rounded down where it is not exact."""
        if self.kind in ("pure", "zcdp"):
            return self.parameter
        return self.mu_squared

    @property
    def mu_squared(self) -> Fraction:
        """The largest total mu^2 of Gaussian noise that keeps the budget: gdp mu^2, zcdp 2 rho, approx rounded down.

        For (epsilon, delta) by the analytic Gaussian [BW18], certified after rounding, within 1e-12 of the optimum.
        Raises BudgetError for pure epsilon, which no Gaussian noise satisfies.
        """
        if self.kind == "gdp":
            return self.parameter**2
        if self.kind == "zcdp":
            return 2 * self.parameter
        if self.delta is None:
            raise BudgetError("Gaussian noise has no pure epsilon; use Laplace noise or a budget with delta, rho or mu")
        return conversions.mu_of_approx(self.parameter, self.delta) ** 2

    @property
    def laplace_epsilon(self) -> Fraction:
        """The largest epsilon of a pure mechanism that keeps the budget, rounded down; delta stays unspent."""
        if self.kind == "zcdp":
            return conversions.sqrt_down(2 * self.parameter)
        if self.kind == "gdp":
            return conversions.pure_of_mu(self.parameter)
        return self.parameter

    @property
    def rho(self) -> Fraction:
        """The largest rho of a mechanism known only to be zCDP (the discrete Gaussian), rounded down [CKS20].

        Raises BudgetError for pure and gdp, which zCDP does not imply.
        """
        if self.kind == "zcdp":
            return self.parameter
        if self.delta is None:
            raise BudgetError(f"zCDP implies no {self.kind} guarantee; use rounded Gaussian noise or a zcdp budget")
        return conversions.rho_of_approx(self.parameter, self.delta)

    def epsilon(self, delta: Number | None = None) -> Fraction:
        """The epsilon of the (epsilon, delta)-DP it implies, rounded up. zcdp and gdp need `delta` in (0, 1).

        Raises BudgetError where delta is missing, or smaller than the budget's own delta.

        >>> round(float(sf.zcdp("0.5").epsilon(delta="1e-6")), 3)
        5.222
        >>> sf.zcdp("0.5").epsilon()
        Traceback (most recent call last):
            ...
        sfumato.errors.BudgetError: a zcdp budget has an epsilon only at a delta; call epsilon(delta=...)
        """
        target = self.delta if delta is None else _delta(delta)
        if self.kind == "pure":
            return self.parameter
        if target is None:
            raise BudgetError(f"a {self.kind} budget has an epsilon only at a delta; call epsilon(delta=...)")
        if self.delta is None:
            convert = conversions.epsilon_of_rho if self.kind == "zcdp" else conversions.epsilon_of_mu
            return convert(self.parameter, target)
        if target < self.delta:
            raise BudgetError(f"delta is {readable(self.delta)} and cannot be lowered to {readable(target)} afterwards")
        return self.parameter

    def __str__(self) -> str:
        value = readable(self.parameter)
        if self.kind == "pure":
            return f"{value}-DP (pure epsilon); Laplace scale {_short(1 / self.parameter)} per unit of L1 sensitivity"
        mu = conversions.sqrt_down(self.mu_squared)
        noise = f"Gaussian noise multiplier {_short(1 / mu)}"
        if self.delta is not None:
            return f"({value}, {readable(self.delta)})-DP; {noise}; mu = {_short(mu)}"
        name = {"zcdp": f"{value}-zCDP", "gdp": f"{value}-GDP"}[self.kind]
        at = _DISPLAY_DELTA
        return f"{name}; {noise}; ({_short(self.epsilon(at))}, {readable(at)})-DP"

    def __repr__(self) -> str:
        return f"<Budget {self}>"


def _delta(value: object) -> Fraction:
    delta = exact(value, "delta")
    if not SMALLEST <= delta < 1:
        raise BudgetError(f"delta must be above 0 (at least 1e-300) and below 1; got {readable(delta)}")
    return delta


def _short(x: Fraction) -> str:
    return _compact(_decimal(x, 5))
