"""Privacy budgets as exact numbers, and what each allows.

A budget is stated in one of four definitions: pure epsilon, (epsilon, delta) [DMNS06, DKMMN06], rho-zCDP [BS16],
mu-GDP [DRS22]. Parameters are exact fractions of the text given; everything derived is rounded to the safe side.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from sfumato.errors import BudgetError
from sfumato.ground.codec import storable
from sfumato.privacy import conversions
from sfumato.privacy.accountant import Event, GaussianEvent, PureEvent, ZcdpEvent
from sfumato.privacy.amounts import SMALLEST, Currency, Number, compact, decimal, exact, readable, shown
from sfumato.privacy.rounding import sqrt_down

__all__ = ["Budget", "keeps"]

Kind = Literal["pure", "approx", "zcdp", "gdp"]
LARGEST = Fraction(10) ** 9  # no guarantee at all: what is above is a slip of the pen
_PARAMETERS = {"pure": "epsilon", "approx": "epsilon", "zcdp": "rho", "gdp": "mu"}
_DISPLAY_DELTA = Fraction(1, 10**6)  # a common choice, and printed beside epsilon; nothing is paid by it


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
            raise BudgetError(f"a budget is one of {', '.join(_PARAMETERS)}; got {shown(self.kind)}")
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
            raise BudgetError(f"give epsilon, or epsilon and delta, or rho, or mu; got {shown(given)}")
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
            return sqrt_down(2 * self.parameter)
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
        mu = sqrt_down(self.mu_squared)
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
    return compact(decimal(x, 5))


def keeps(price: Event, budget: Budget) -> bool:
    """Whether one access at this price keeps the promise that a budget states.

    Raises BudgetError where no price of its kind could.
    """
    if type(price) is GaussianEvent:
        return price.mu_squared <= budget.mu_squared
    if type(price) is ZcdpEvent:
        return price.rho <= budget.rho
    return type(price) is PureEvent and price.epsilon <= budget.laplace_epsilon
