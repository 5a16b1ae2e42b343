"""Privacy budgets as exact numbers, and what each allows.

A budget is stated in one of four definitions: pure epsilon, (epsilon, delta) [DMNS06, DKMMN06], rho-zCDP [BS16],
mu-GDP [DRS22]. Parameters are exact fractions of the text given; everything derived is rounded to the safe side.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal

from sfumato._util.codec import deferred_field, storable
from sfumato.errors import BudgetError, InvalidInput
from sfumato.privacy.accounting import (
    EXP_CAP,
    ApproxGaussianEvent,
    Event,
    GaussianEvent,
    PureEvent,
    ZcdpEvent,
    decimal_edge,
    implies_gdp,
    precision_for,
)
from sfumato.privacy.amounts import (
    SMALLEST,
    Bounds,
    Currency,
    Number,
    arb_ball,
    compact_text,
    enclose_value,
    exp_bounds,
    normal_cdf_bounds,
    read_exact,
    readable_number,
    refused_text,
    round_to_decimal,
    to_fraction,
)
from sfumato.privacy.rounding import round_down, round_up, sqrt_down

# Gaussian noise ------------------------------------------------------------------------------------------------------


def _gaussian_fits(epsilon: Fraction, delta: Fraction, mu: Fraction) -> bool:
    """Whether mu-GDP is proved to imply (epsilon, delta)-DP, by the analytic formula [BW18]."""
    bits = precision_for(delta)
    spent = normal_cdf_bounds(mu / 2 - epsilon / mu, bits)[1]
    if spent > delta and epsilon <= EXP_CAP:
        spent -= exp_bounds(epsilon, bits)[0] * normal_cdf_bounds(-mu / 2 - epsilon / mu, bits)[0]
    return spent <= delta


@lru_cache(maxsize=1024, typed=True)
def mu_of_approx(epsilon: Fraction, delta: Fraction) -> Fraction:
    """The largest mu such that mu-GDP implies (epsilon, delta)-DP, rounded down [BW18]."""
    return decimal_edge(lambda mu: _gaussian_fits(epsilon, delta, mu))[0]


@lru_cache(maxsize=1024, typed=True)
def epsilon_of_mu(mu: Fraction, delta: Fraction) -> Fraction:
    """The smallest epsilon such that mu-GDP implies (epsilon, delta)-DP, rounded up; 0 where delta alone suffices."""
    if mu == 0 or _gaussian_fits(Fraction(0), delta, mu):
        return Fraction(0)
    return decimal_edge(lambda epsilon: not _gaussian_fits(epsilon, delta, mu))[1]


# zCDP ----------------------------------------------------------------------------------------------------------------


def _renyi_order_guess(value: Callable[[float], float], widest: float) -> Fraction:
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
    x = to_fraction(x, bits)
    if x <= 0:
        raise InvalidInput(f"log needs a positive argument, got {x}")
    if x == 1:
        return Fraction(0), Fraction(0)
    return enclose_value(lambda: arb_ball(x).log(), bits)


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


@lru_cache(maxsize=1024, typed=True)
def rho_of_approx(epsilon: Fraction, delta: Fraction) -> Fraction:
    """The largest rho such that rho-zCDP implies (epsilon, delta)-DP by [CKS20, Proposition 12], rounded down."""
    log_delta, target = -_log_float(1 / delta), float(epsilon)

    def rho(t: float) -> float:
        return (_renyi_slack_guess(t, log_delta) + target) / (1 + math.exp(t))

    a = _renyi_order_guess(rho, 10 - log_delta)
    bound = (_renyi_slack(a, delta, precision_for(delta)) + epsilon) / a
    if bound <= 0:
        raise BudgetError(
            "this (epsilon, delta) is too small to be derived from zCDP; raise delta or use Gaussian noise"
        )
    return round_down(bound)


@lru_cache(maxsize=1024, typed=True)
def epsilon_of_rho(rho: Fraction, delta: Fraction) -> Fraction:
    """The smallest epsilon such that rho-zCDP implies (epsilon, delta)-DP by [CKS20, Proposition 12], rounded up."""
    if rho == 0:
        return Fraction(0)
    log_delta, cost = -_log_float(1 / delta), float(rho)

    def negative_epsilon(t: float) -> float:
        return _renyi_slack_guess(t, log_delta) - cost * (1 + math.exp(t))

    a = _renyi_order_guess(negative_epsilon, 10 - log_delta)
    bound = a * rho - _renyi_slack(a, delta, precision_for(delta))
    if bound <= 0:
        return Fraction(0)
    return round_up(bound)


# Pure epsilon --------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1024, typed=True)
def pure_of_mu(mu: Fraction) -> Fraction:
    """The largest epsilon such that epsilon-DP implies mu-GDP, rounded down [DRS22]."""
    return decimal_edge(lambda epsilon: implies_gdp(epsilon, mu))[0]


def _log_float(x: Fraction) -> float:
    """log(x) of a rational that may be outside the range of a double."""
    return math.log(x.numerator) - math.log(x.denominator)


Kind = Literal["pure", "approx", "zcdp", "gdp"]
LARGEST = Fraction(10) ** 9  # no guarantee at all: what is above is a slip of the pen
_PARAMETERS = {"pure": "epsilon", "approx": "epsilon", "zcdp": "rho", "gdp": "mu"}
_DISPLAY_DELTA = Fraction(1, 10**6)  # a common choice, and printed beside epsilon; nothing is paid by it


@storable
@dataclass(frozen=True, slots=True, repr=False)
class Budget:
    """A total privacy guarantee, stated exactly. Make one with `pure`, `approx`, `zcdp` or `gdp`.

    Args:
        kind: The definition: "pure", "approx", "zcdp" or "gdp".
        parameter: epsilon for "pure" and "approx", rho for "zcdp", mu for "gdp"; from 1e-300 to 1e9.
        delta: For "approx" a number in (0, 1), at least 1e-300; None otherwise.
        thresholds: For "approx" the part of delta that is set aside for labels that are shown from a threshold on, or
            None. The rest is that of Gaussian noise.

    Raises:
        BudgetError: The kind is unknown, a parameter is out of its range, or delta is missing or does not belong there.

    Guarantee:
        Parameters are exact fractions of the numbers or texts given; what is derived from them is rounded to the safe
        side.

    Source:
        [DMNS06], [DKMMN06], [BS16], [DRS22]

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
    thresholds: Fraction | None = deferred_field(None)  # noqa: RUF009  (as dataclasses.field is)

    def __post_init__(self) -> None:
        if self.kind not in _PARAMETERS:
            raise BudgetError(f"a budget is one of {', '.join(_PARAMETERS)}; got {refused_text(self.kind)}")
        name = _PARAMETERS[self.kind]
        parameter = read_exact(self.parameter, name)
        if not SMALLEST <= parameter <= LARGEST:
            raise BudgetError(f"{name} must be between 1e-300 and 1e9; got {readable_number(parameter)}")
        object.__setattr__(self, "parameter", parameter)
        if (self.delta is None) == (self.kind == "approx"):
            raise BudgetError("delta belongs to (epsilon, delta) budgets and to no other")
        if self.delta is not None:
            object.__setattr__(self, "delta", _read_delta(self.delta))
        if self.thresholds is not None:
            object.__setattr__(self, "thresholds", _read_delta(self.thresholds, "thresholds"))
            if self.delta is None or not self.thresholds < self.delta:
                raise BudgetError(
                    "thresholds= sets a part of delta aside, so it belongs to (epsilon, delta) budgets and is below "
                    f"delta; got {readable_number(self.thresholds)}: half of delta is a good choice"
                )

    @classmethod
    def pure(cls, epsilon: Number) -> Budget:
        """A budget of epsilon-differential privacy.

        Args:
            epsilon: From 1e-300 to 1e9. A text such as "0.1" or "1/3" is taken exactly.

        Returns:
            The budget.

        Raises:
            BudgetError: epsilon is no such number.

        Source:
            [DMNS06]

        >>> print(sf.pure(1))
        1-DP (pure epsilon); Laplace scale 1 per unit of L1 sensitivity
        """
        return cls("pure", read_exact(epsilon, "epsilon"))

    @classmethod
    def approx(cls, epsilon: Number, delta: Number, *, thresholds: Number | None = None) -> Budget:
        """A budget of (epsilon, delta)-differential privacy.

        Args:
            epsilon: From 1e-300 to 1e9. A text such as "0.1" or "1/3" is taken exactly.
            delta: Above 0 (at least 1e-300) and below 1.
            thresholds: How much of delta is set aside for finding labels (`sf.Categories(discover=...)`), above 0 and
                below delta; None sets nothing aside. The rest of delta is that of Gaussian noise: of (1, 1e-6) half set
                aside makes noise larger by 3.3 %, a tenth by .5 %.

        Returns:
            The budget.

        Raises:
            BudgetError: epsilon, delta or thresholds is no such number.

        Source:
            [DKMMN06]

        >>> print(sf.approx(1, "1e-6"))
        (1, 1e-6)-DP; Gaussian noise multiplier 4.2247; mu = 0.2367
        >>> sf.approx(1, 0)
        Traceback (most recent call last):
            ...
        sfumato.errors.BudgetError: delta must be above 0 (at least 1e-300) and below 1; got 0
        >>> print(sf.approx(1, "1e-6", thresholds="5e-7"))
        (1, 1e-6)-DP; Gaussian noise multiplier 4.3652; mu = 0.22909; 5e-7 of delta set aside for thresholds
        """
        aside = None if thresholds is None else read_exact(thresholds, "thresholds")
        return cls("approx", read_exact(epsilon, "epsilon"), read_exact(delta, "delta"), aside)

    @classmethod
    def zcdp(cls, rho: Number) -> Budget:
        """A budget of rho-zero-concentrated differential privacy.

        Args:
            rho: From 1e-300 to 1e9. A text such as "0.5" or "1/3" is taken exactly.

        Returns:
            The budget.

        Raises:
            BudgetError: rho is no such number.

        Source:
            [BS16]

        >>> print(sf.zcdp("0.5"))
        0.5-zCDP; Gaussian noise multiplier 1; (5.2215, 1e-6)-DP
        """
        return cls("zcdp", read_exact(rho, "rho"))

    @classmethod
    def gdp(cls, mu: Number) -> Budget:
        """A budget of mu-Gaussian differential privacy.

        Args:
            mu: From 1e-300 to 1e9. A text such as "0.5" or "1/3" is taken exactly.

        Returns:
            The budget.

        Raises:
            BudgetError: mu is no such number.

        Source:
            [DRS22]

        >>> print(sf.gdp(1))
        1-GDP; Gaussian noise multiplier 1; (4.8866, 1e-6)-DP
        """
        return cls("gdp", read_exact(mu, "mu"))

    @classmethod
    def from_json(cls, document: Mapping[str, object]) -> Budget:
        """The budget with the parameters of a document.

        Args:
            document: A mapping with exactly one of these sets of keys: epsilon; epsilon and delta, and maybe
                thresholds; rho; mu. The values are what `to_json` gives, or numbers typed by people.

        Returns:
            The budget.

        Raises:
            BudgetError: The keys are others, or a value is out of its range.
        """
        kinds: dict[frozenset[str], Kind] = {
            frozenset({"epsilon"}): "pure",
            frozenset({"epsilon", "delta"}): "approx",
            frozenset({"epsilon", "delta", "thresholds"}): "approx",
            frozenset({"rho"}): "zcdp",
            frozenset({"mu"}): "gdp",
        }
        kind = kinds.get(frozenset(document))
        if kind is None:
            given = ", ".join(sorted(map(str, document))) or "nothing"
            raise BudgetError(f"give epsilon, or epsilon and delta, or rho, or mu; got {refused_text(given)}")
        delta, aside = (read_exact(document[k], k) if k in document else None for k in ("delta", "thresholds"))
        return cls(kind, read_exact(document[_PARAMETERS[kind]], _PARAMETERS[kind]), delta, aside)

    def to_json(self) -> dict[str, str]:
        """The parameters as exact text, ready for a JSON file.

        Returns:
            A mapping from names to texts, such as {"epsilon": "1", "delta": "1/1000000"}.

        >>> sf.approx(1, "1e-6").to_json()
        {'epsilon': '1', 'delta': '1/1000000'}
        """
        more = {"delta": self.delta, "thresholds": self.thresholds}
        return {_PARAMETERS[self.kind]: str(self.parameter)} | {k: str(v) for k, v in more.items() if v is not None}

    @property
    def currency(self) -> Currency:
        """The currency in which a ledger with this total adds up."""
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
    def noise_delta(self) -> Fraction | None:
        """What is left of delta for noise: without the part that is set aside for thresholds. None without a delta."""
        return None if self.delta is None else self.delta - (self.thresholds or 0)

    @property
    def mu_squared(self) -> Fraction:
        """The largest total mu^2 of Gaussian noise that keeps the budget: gdp mu^2, zcdp 2 rho, approx rounded down.

        For (epsilon, delta) by the analytic Gaussian [BW18], certified after rounding, within 1e-12 of the optimum.

        Raises:
            BudgetError: The budget is pure epsilon, which no Gaussian noise satisfies.
        """
        if self.kind == "gdp":
            return self.parameter**2
        if self.kind == "zcdp":
            return 2 * self.parameter
        if self.noise_delta is None:
            raise BudgetError("Gaussian noise has no pure epsilon; use Laplace noise or a budget with delta, rho or mu")
        return mu_of_approx(self.parameter, self.noise_delta) ** 2

    @property
    def laplace_epsilon(self) -> Fraction:
        """The largest epsilon of a pure mechanism that keeps the budget, rounded down; delta stays unspent."""
        if self.kind == "zcdp":
            return sqrt_down(2 * self.parameter)
        if self.kind == "gdp":
            return pure_of_mu(self.parameter)
        return self.parameter

    @property
    def rho(self) -> Fraction:
        """The largest rho of a mechanism known only to be zCDP (the discrete Gaussian), rounded down [CKS20].

        Raises:
            BudgetError: The budget is pure or gdp, which zCDP does not imply.
        """
        if self.kind == "zcdp":
            return self.parameter
        if self.noise_delta is None:
            raise BudgetError(f"zCDP implies no {self.kind} guarantee; use rounded Gaussian noise or a zcdp budget")
        return rho_of_approx(self.parameter, self.noise_delta)

    def epsilon(self, delta: Number | None = None) -> Fraction:
        """The epsilon of the (epsilon, delta)-differential privacy that the budget implies, rounded up.

        Args:
            delta: A number in (0, 1), which zcdp and gdp budgets need. An (epsilon, delta) budget has its own; a larger
                one changes nothing.

        Returns:
            The exact epsilon, or a rational bound rounded up.

        Raises:
            BudgetError: delta is missing, out of its range, or smaller than the budget's own delta.

        Source:
            [CKS20] for zcdp, [BW18] for gdp

        >>> round(float(sf.zcdp("0.5").epsilon(delta="1e-6")), 3)
        5.222
        >>> sf.zcdp("0.5").epsilon()
        Traceback (most recent call last):
            ...
        sfumato.errors.BudgetError: a zcdp budget has an epsilon only at a delta; call epsilon(delta=...)
        """
        target = self.delta if delta is None else _read_delta(delta)
        if self.kind == "pure":
            return self.parameter
        if target is None:
            raise BudgetError(f"a {self.kind} budget has an epsilon only at a delta; call epsilon(delta=...)")
        if self.delta is None:
            convert = epsilon_of_rho if self.kind == "zcdp" else epsilon_of_mu
            return convert(self.parameter, target)
        if target < self.delta:
            raise BudgetError(
                f"delta is {readable_number(self.delta)} and cannot be lowered to {readable_number(target)} afterwards"
            )
        return self.parameter

    def __str__(self) -> str:
        value = readable_number(self.parameter)
        if self.kind == "pure":
            return (
                f"{value}-DP (pure epsilon); Laplace scale {_short_text(1 / self.parameter)} per unit of L1 sensitivity"
            )
        mu = sqrt_down(self.mu_squared)
        noise = f"Gaussian noise multiplier {_short_text(1 / mu)}"
        if self.delta is not None:
            aside = self.thresholds and f"; {readable_number(self.thresholds)} of delta set aside for thresholds"
            return f"({value}, {readable_number(self.delta)})-DP; {noise}; mu = {_short_text(mu)}{aside or ''}"
        name = {"zcdp": f"{value}-zCDP", "gdp": f"{value}-GDP"}[self.kind]
        at = _DISPLAY_DELTA
        return f"{name}; {noise}; ({_short_text(self.epsilon(at))}, {readable_number(at)})-DP"

    def __repr__(self) -> str:
        return f"<Budget {self}>"


def _read_delta(value: object, name: str = "delta") -> Fraction:
    delta = read_exact(value, name)
    if not SMALLEST <= delta < 1:
        raise BudgetError(f"{name} must be above 0 (at least 1e-300) and below 1; got {readable_number(delta)}")
    return delta


def _short_text(x: Fraction) -> str:
    return compact_text(round_to_decimal(x, 5))


def price_keeps_budget(price: Event, budget: Budget) -> bool:
    """Whether one access at this price keeps the promise that a budget states.

    Raises BudgetError where no price of its kind could.
    """
    if type(price) is GaussianEvent:
        return price.mu_squared <= budget.mu_squared
    if type(price) is ApproxGaussianEvent:
        return price.mu_squared <= budget.mu_squared and price.delta <= (budget.thresholds or 0)
    if type(price) is ZcdpEvent:
        return price.rho <= budget.rho
    return type(price) is PureEvent and price.epsilon <= budget.laplace_epsilon
