"""Events, their prices, and the filter that refuses to overspend.

An event is what one access to the data guarantees. Its price in a currency is exact or rounded up, so that
sums of prices are a proof. Floats take no part.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, NoReturn

from sfumato._util.codec import storable
from sfumato.errors import BudgetError, BudgetExceeded
from sfumato.privacy.amounts import Currency, exp_bounds, normal_cdf_bounds, read_exact, readable_number

if TYPE_CHECKING:
    from sfumato.privacy.budget import Budget

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


@lru_cache(maxsize=1024, typed=True)
def mu_of_pure(epsilon: Fraction) -> Fraction:
    """The smallest mu such that epsilon-DP implies mu-GDP, 2 Phi^-1(e^epsilon/(1 + e^epsilon)), rounded up [DRS22]."""
    return decimal_edge(lambda mu: not implies_gdp(epsilon, mu))[1] if epsilon else Fraction(0)


def precision_for(scale: Fraction) -> int:
    """Precision that resolves differences of the size of `scale` to more than 100 bits."""
    return GUARD_BITS + max(0, scale.denominator.bit_length() - scale.numerator.bit_length())


_LARGEST_ACCOUNTANT = 10**18  # far above the cost of any guarantee worth its name; keeps sums of prices short


def _read_event_parameter(value: object, name: str) -> Fraction:
    """The exact parameter of an event: 0 is allowed (nothing was learnt), numbers above 1e18 are not."""
    number = read_exact(value, name)
    if number > _LARGEST_ACCOUNTANT:
        raise BudgetError(f"{name} of an event must be at most 1e18; got {readable_number(number)}")
    return number


@storable
@dataclass(frozen=True, slots=True)
class GaussianEvent:
    """Continuous Gaussian noise or any post-processing of it (the rounded Gaussian): mu-GDP with mu = D/sigma."""

    mu_squared: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "mu_squared", _read_event_parameter(self.mu_squared, "mu_squared"))


@storable
@dataclass(frozen=True, slots=True)
class PureEvent:
    """Any epsilon-DP mechanism, such as discrete Laplace noise."""

    epsilon: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", _read_event_parameter(self.epsilon, "epsilon"))


@storable
@dataclass(frozen=True, slots=True)
class ZcdpEvent:
    """A mechanism known to be rho-zCDP and nothing more, such as the discrete Gaussian."""

    rho: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "rho", _read_event_parameter(self.rho, "rho"))


@storable
@dataclass(frozen=True, slots=True)
class BoundedRangeEvent:
    """An epsilon-bounded-range mechanism: the exponential mechanism exp(epsilon score / (2 sensitivity))."""

    epsilon: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", _read_event_parameter(self.epsilon, "epsilon"))


@storable
@dataclass(frozen=True, slots=True)
class ApproxEvent:
    """An (epsilon, delta)-DP mechanism that has a delta of its own, such as a stability histogram [KKMN09].

    It behaves as an epsilon-DP mechanism but with probability delta [KOV15], so a ledger adds its delta beside the
    price of that mechanism, and pays only where its total has a delta to add to.
    """

    epsilon: Fraction
    delta: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", _read_event_parameter(self.epsilon, "epsilon"))
        object.__setattr__(self, "delta", _read_event_parameter(self.delta, "delta"))
        if not 0 < self.delta < 1:
            raise BudgetError(f"delta of an event must lie between 0 and 1; got {readable_number(self.delta)}")


@storable
@dataclass(frozen=True, slots=True)
class ApproxGaussianEvent:
    """mu-GDP but with probability delta, such as labels that are shown from a threshold on; decision 0163.

    Each law is 1 - delta of one of two laws that are as hard to tell apart as mu-GDP asks, and delta of any law. Both
    mu^2 and delta add up, also where each part is chosen after earlier results.
    """

    mu_squared: Fraction
    delta: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "mu_squared", _read_event_parameter(self.mu_squared, "mu_squared"))
        object.__setattr__(self, "delta", _read_event_parameter(self.delta, "delta"))
        if not 0 < self.delta < 1:
            raise BudgetError(f"delta of an event must lie between 0 and 1; got {readable_number(self.delta)}")


Event = GaussianEvent | PureEvent | ZcdpEvent | BoundedRangeEvent | ApproxEvent | ApproxGaussianEvent

# events whose parameters add up over parts that are events of any kind with a price in that currency
_ADDS_UP: dict[type, Currency] = {
    PureEvent: Currency.EPSILON,
    ZcdpEvent: Currency.RHO,
    GaussianEvent: Currency.MU_SQUARED,
    ApproxGaussianEvent: Currency.MU_SQUARED,
}

_TAGS: dict[str, type[Event]] = {
    "gaussian": GaussianEvent,
    "pure": PureEvent,
    "zcdp": ZcdpEvent,
    "bounded-range": BoundedRangeEvent,
    "approx": ApproxEvent,
    "approx-gaussian": ApproxGaussianEvent,
}
_TAG_OF = {cls: tag for tag, cls in _TAGS.items()}


def event_price(event: Event, currency: Currency) -> Fraction:
    """What the event costs in the currency, exact or rounded up.

    pure epsilon: epsilon for pure, bounded-range and approximate events (whose delta `event_delta` has). rho: mu^2/2,
    epsilon^2/2 [BS16], rho, epsilon^2/8 [CR21]. mu^2: mu^2; (2 Phi^-1(e^s/(1 + e^s)))^2 with s = epsilon for pure
    [DRS22] and s = epsilon/2 for bounded-range events [DDR20]. An approximate Gaussian event costs what its mu^2 does,
    and its delta besides. All else has no conversion and raises BudgetError.
    """
    match currency, event:
        case (Currency.EPSILON, PureEvent() | BoundedRangeEvent() | ApproxEvent()):
            return event.epsilon
        case (Currency.RHO, GaussianEvent(mu_squared=mu_squared) | ApproxGaussianEvent(mu_squared=mu_squared)):
            return mu_squared / 2
        case (Currency.RHO, PureEvent(epsilon=epsilon)):
            return epsilon**2 / 2
        case (Currency.RHO, ZcdpEvent(rho=rho)):
            return rho
        case (Currency.RHO, BoundedRangeEvent(epsilon=epsilon)):
            return epsilon**2 / 8
        case (Currency.MU_SQUARED, GaussianEvent(mu_squared=mu_squared) | ApproxGaussianEvent(mu_squared=mu_squared)):
            return mu_squared
        case (Currency.MU_SQUARED, PureEvent(epsilon=epsilon)):
            return mu_of_pure(epsilon) ** 2
        case (Currency.MU_SQUARED, BoundedRangeEvent(epsilon=epsilon)):
            return mu_of_pure(epsilon / 2) ** 2
        case _:
            raise BudgetError(_no_price_message(event, currency))


_NONE = Fraction(0)  # the delta of most events, made once


def event_delta(event: Event) -> Fraction:
    """What the event adds to the sum of deltas that a ledger keeps beside its currency."""
    return event.delta if isinstance(event, ApproxEvent | ApproxGaussianEvent) else _NONE


def refuse_delta(event: Event, remaining: Fraction) -> None:
    """Raise BudgetExceeded unless the delta of an event fits what is left of that set aside; equality fits."""
    found = event_delta(event)
    if not found:
        return
    if found > remaining == 0 and isinstance(event, ApproxGaussianEvent):
        raise BudgetExceeded(
            f"finding labels needs {readable_number(found)} of a delta for thresholds, and this ledger has none left, "
            "or set none aside when it was made; nothing was spent. A ledger that sets some aside is made by "
            "Ledger.create(path, total=sf.approx(1, '1e-6', thresholds='5e-7')), or by sfumato ledger create PATH "
            "--epsilon 1 --delta 1e-6 --thresholds 5e-7",
            found,
            remaining,
        )
    refuse_overspending(found, remaining, "delta")


def _no_price_message(event: object, currency: object) -> str:
    if not isinstance(event, Event) or not isinstance(currency, Currency):
        return f"an event and a currency are needed; got {type(event).__name__} and {type(currency).__name__}"
    need = {
        Currency.EPSILON: "it takes pure mechanisms only; plan with sf.pure, or take a ledger with a delta",
        Currency.MU_SQUARED: "an (epsilon, delta) or GDP ledger takes rounded Gaussian noise; a zcdp ledger takes all",
    }
    if isinstance(event, ApproxEvent):
        return (
            f"a mechanism with a delta of its own has no price in {currency}: it needs a ledger that adds epsilons and "
            "deltas, Ledger.create(path, total=sf.approx(1, '1e-6'), currency='epsilon')"
        )
    return f"{type(event).__name__[:-5]} noise has no price in {currency}: {need.get(currency, 'use another ledger')}"


def refuse_overspending(requested: Fraction, remaining: Fraction, currency: Currency | str) -> None:
    """Raise BudgetExceeded unless the request fits; equality fits. `currency` may also be "delta"."""
    if requested > remaining:
        raise overspending_error(requested, remaining, currency)


def overspending_error(requested: Fraction, remaining: Fraction, currency: Currency | str) -> BudgetExceeded:
    """The refusal of a request above what remains."""
    return BudgetExceeded(
        f"requested {readable_number(requested)} of {currency}, remaining {readable_number(remaining)}, "
        f"difference {readable_number(requested - remaining)}; nothing was spent: plan with a smaller budget",
        requested,
        remaining,
    )


class Account:
    """A budget in memory that refuses to be overspent, exactly and for any number of threads.

    Its total is a budget, or what one event already paid for: then in the currency in which parts of it add up.
    It lives in one process; a forked copy refuses to spend, because two copies would spend twice.
    """

    def __init__(self, total: Budget | Event) -> None:
        currency = _ADDS_UP[type(total)] if type(total) in _ADDS_UP else getattr(total, "currency", None)
        if not isinstance(currency, Currency):
            raise BudgetError(f"an account needs a Budget, or an event whose parts add up; got {type(total).__name__}")
        self.total = total
        self.currency = currency
        self._amount = self._remaining = event_price(total, currency) if isinstance(total, Event) else total.total
        self._delta = event_delta(total) if isinstance(total, Event) else Fraction(0)
        self._lock = threading.Lock()
        self._process = os.getpid()

    @property
    def remaining(self) -> Fraction:
        """What is left, in the account's currency."""
        return self._remaining

    @property
    def spent(self) -> Fraction:
        """What is spent, in the account's currency."""
        return self._amount - self._remaining

    def check(self, event: Event) -> Fraction:
        """The event's price. Raises what `spend` would raise now; spends nothing."""
        cost = event_price(event, self.currency)
        refuse_delta(event, self._delta)
        # before any lock, which a fork may have left closed
        if os.getpid() != self._process:
            raise BudgetError("this account belongs to the process that made it; use a Ledger file to share a budget")
        refuse_overspending(cost, self._remaining, self.currency)
        return cost

    def spend(self, event: Event) -> Fraction:
        """Debit the event's price and return it; raise BudgetExceeded, with nothing spent, if it does not fit."""
        cost = self.check(event)
        with self._lock:
            refuse_overspending(cost, self._remaining, self.currency)
            refuse_delta(event, self._delta)
            self._remaining -= cost
            if delta := event_delta(event):  # most have none, and sums of fractions take long
                self._delta -= delta
        return cost

    def __reduce__(self) -> NoReturn:
        raise BudgetError("an account can be neither copied nor pickled: two copies would spend twice")

    def __repr__(self) -> str:
        return f"<Account {self.total}: {readable_number(self._remaining)} of {self.currency} left>"


def event_to_text(event: Event) -> str:
    """One line that `event_from_text` reads back exactly, e.g. "gaussian 1/4" or "approx 1/2 1/1000000"."""
    return " ".join([_TAG_OF[type(event)], *(str(getattr(event, f.name)) for f in fields(event))])


def event_from_text(text: str) -> Event:
    """The event that was written. Raises BudgetError for anything else."""
    match = re.fullmatch(r"([a-z-]+)((?: \d+(?:/\d+)?){1,2})", text, re.ASCII)
    kind = None if match is None else _TAGS.get(match[1])
    if match is None or kind is None or len(fields(kind)) != len(match[2].split()):
        raise BudgetError(f"not an event: {text[:60]!r}")
    return kind(*(read_exact(number, match[1]) for number in match[2].split()))
