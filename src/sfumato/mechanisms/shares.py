"""How the budget of a mechanism of several looks is split into prices of choices and of measurements, exactly."""

from __future__ import annotations

from fractions import Fraction

from sfumato.privacy import conversions
from sfumato.privacy.accountant import Account, BoundedRangeEvent, Event, GaussianEvent, PureEvent, ZcdpEvent, price
from sfumato.privacy.budget import Budget, Currency
from sfumato.privacy.noise import DiscreteLaplace, NoiseLaw, RoundedGaussian

__all__ = ["UNPROMISED", "course_price", "free", "measured_at", "noise_at", "selections_at", "spent_on"]

UNPROMISED = (
    "no usable promise: of boosting nothing is proved, and of mwem never less than .17 of the records at any size that "
    "was tried; one for the largest error has mechanism=sf.mechanisms.pmw(alpha='least'), and all errors are "
    "known with mechanism='auto'"
)
"""What plans of several looks say of their errors."""

_LEAST_NOISE = Fraction(1, 2**10)


def course_price(budget: Budget) -> Event:
    """The whole budget as one event whose parts add up: epsilon, rho, or the mu^2 of Gaussian noise."""
    if budget.kind == "pure":
        return PureEvent(budget.parameter)
    return ZcdpEvent(budget.rho) if budget.kind == "zcdp" else GaussianEvent(budget.mu_squared)


def selections_at(whole: Event, share: Fraction, count: int) -> BoundedRangeEvent:
    """The dearest selection of which `count` cost at most that share of the whole."""
    account = Account(whole)
    each = account.remaining * share / count
    if account.currency is Currency.EPSILON:
        return BoundedRangeEvent(each)
    if account.currency is Currency.RHO:
        return BoundedRangeEvent(conversions.round_down(conversions.sqrt_down(8 * each)))
    # an epsilon-bounded range costs what (epsilon/2)-DP does
    return BoundedRangeEvent(2 * conversions.pure_of_mu(conversions.round_down(conversions.sqrt_down(each))))


def measured_at(whole: Event, spent: Fraction, count: int) -> Event:
    """The price of each of `count` measurements that cost together, exactly, what is left of the whole."""
    account = Account(whole)
    each = (account.remaining - spent) / count
    if account.currency is Currency.EPSILON:
        return PureEvent(each)
    return GaussianEvent(2 * each if account.currency is Currency.RHO else each)


def free(like: Event) -> Event:
    """What learning nothing costs, as an event of the same kind."""
    return PureEvent(Fraction(0)) if isinstance(like, PureEvent) else GaussianEvent(Fraction(0))


def noise_at(price_of_one: Event, sensitivity: int) -> NoiseLaw:
    """The least noise, rounded up, with which that sensitivity (L1 for pure prices, squared L2 else) costs the price.

    A sensitivity of 0 takes the least noise there is.
    """
    if isinstance(price_of_one, PureEvent):
        scale = sensitivity / price_of_one.epsilon if sensitivity else _LEAST_NOISE
        return DiscreteLaplace(max(scale, _LEAST_NOISE))
    assert isinstance(price_of_one, GaussianEvent)
    squared = sensitivity / price_of_one.mu_squared if sensitivity else _LEAST_NOISE**2
    return RoundedGaussian(max(conversions.round_up(conversions.sqrt_up(squared)), _LEAST_NOISE))


def spent_on(whole: Event, parts: Event, count: int) -> Fraction:
    """What `count` looks at that price cost, in the currency of the whole."""
    return count * price(parts, Account(whole).currency)
