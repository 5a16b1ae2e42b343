"""How the budget of a mechanism of several looks is split into prices of choices and of measurements, exactly."""

from __future__ import annotations

from fractions import Fraction

from sfumato.designs.spending import noise_of
from sfumato.privacy.accountant import Account, BoundedRangeEvent, Event, GaussianEvent, PureEvent, price
from sfumato.privacy.amounts import Currency
from sfumato.privacy.conversions import pure_of_mu
from sfumato.privacy.noise import LEAST_SCALE, NoiseLaw, RoundedGaussian
from sfumato.privacy.rounding import round_down, round_up, sqrt_down

__all__ = ["UNPROMISED", "free", "measured_at", "noise_at", "selections_at", "spent_on"]

UNPROMISED = (
    "no usable promise: of boosting nothing is proved, and of mwem never less than .17 of the records at any size that "
    "was tried; one for the largest error has mechanism=sf.mechanisms.pmw(alpha='least'), and all errors are "
    "known with mechanism='auto'"
)
"""What plans of several looks say of their errors."""


def selections_at(whole: Event, share: Fraction, count: int) -> BoundedRangeEvent:
    """The dearest selection of which `count` cost at most that share of the whole."""
    account = Account(whole)
    each = account.remaining * share / count
    if account.currency is Currency.EPSILON:
        return BoundedRangeEvent(each)
    if account.currency is Currency.RHO:
        return BoundedRangeEvent(round_down(sqrt_down(8 * each)))
    # an epsilon-bounded range costs what (epsilon/2)-DP does
    return BoundedRangeEvent(2 * pure_of_mu(round_down(sqrt_down(each))))


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
    law = noise_of(price_of_one, sensitivity, LEAST_SCALE)
    return RoundedGaussian(round_up(law.sigma)) if isinstance(law, RoundedGaussian) else law


def spent_on(whole: Event, parts: Event, count: int) -> Fraction:
    """What `count` looks at that price cost, in the currency of the whole."""
    return count * price(parts, Account(whole).currency)
