"""From a budget to the event that spends it whole, and from a price to the noise that it pays for."""

from __future__ import annotations

from fractions import Fraction

from sfumato.errors import PlanError
from sfumato.privacy.accountant import Event, GaussianEvent, PureEvent, ZcdpEvent
from sfumato.privacy.amounts import Currency
from sfumato.privacy.budget import Budget
from sfumato.privacy.noise import DiscreteGaussian, DiscreteLaplace, NoiseLaw, RoundedGaussian
from sfumato.privacy.rounding import sqrt_up

__all__ = ["cheapest", "noise_of", "price_of", "spend_in"]


def spend_in(budget: Budget, currency: Currency) -> Event:
    """The dearest event that adds up exactly in a currency and keeps the budget.

    Raises BudgetError where none does: Gaussian noise under a pure budget, zCDP under another that it does not imply.
    """
    if currency is Currency.EPSILON:
        return PureEvent(budget.laplace_epsilon)
    return ZcdpEvent(budget.rho) if currency is Currency.RHO else GaussianEvent(budget.mu_squared)


def price_of(budget: Budget, currency: Currency | None = None) -> Event:
    """The whole budget as one event that a ledger of this currency (by default the budget's own) can pay."""
    wanted = Currency.EPSILON if budget.kind == "pure" else currency or budget.currency
    return spend_in(budget, Currency.MU_SQUARED if wanted is Currency.RHO and budget.kind == "gdp" else wanted)


def noise_of(price: Event, sensitivity: Fraction | int, least: Fraction = Fraction(0)) -> NoiseLaw:
    """The least noise, of scale `least` at least, that a price pays for at a sensitivity: L1 for a PureEvent, squared
    L2 for the others.

    Discrete Laplace for a PureEvent, the discrete Gaussian for a ZcdpEvent, the rounded one for a GaussianEvent; sigmas
    are rounded up. Raises PlanError for prices of other kinds.
    """
    match price:
        case PureEvent(epsilon=total):
            return DiscreteLaplace(max(_per(sensitivity, total), least))
        case ZcdpEvent(rho=total):
            return DiscreteGaussian(max(sqrt_up(_per(sensitivity, 2 * total)), least))
        case GaussianEvent(mu_squared=total):
            return RoundedGaussian(max(sqrt_up(_per(sensitivity, total)), least))
        case _:
            raise PlanError("noise is priced as a PureEvent, ZcdpEvent or GaussianEvent")


def _per(sensitivity: Fraction | int, total: Fraction) -> Fraction:
    """What does not change needs no noise, and may be free."""
    return sensitivity / total if sensitivity else Fraction(0)


def cheapest(
    budget: Budget, laplace: Fraction | int, squared: Fraction | int, currency: Currency | None = None
) -> tuple[NoiseLaw, Event]:
    """The noise of less variance that spends a budget, and its price: Laplace at an L1 sensitivity, or Gaussian at a
    squared L2 one where the budget has any; with `currency` one that such a ledger takes."""
    prices: list[tuple[Event, Fraction | int]] = []
    if currency in (None, Currency.EPSILON) or budget.kind == "pure":
        prices.append((spend_in(budget, Currency.EPSILON), laplace))
    if currency is not Currency.EPSILON and budget.kind != "pure":
        prices.append((spend_in(budget, Currency.MU_SQUARED), squared))
    return min(((noise_of(price, change), price) for price, change in prices), key=lambda found: found[0].variance)
