"""What was paid and what is left, told to people and to outside accountants. No guarantee rests on it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from fractions import Fraction

from sfumato.errors import BudgetError
from sfumato.privacy.accountant import ApproxEvent, Event, GaussianEvent, ZcdpEvent, event_to_text, price
from sfumato.privacy.amounts import Currency, Number, exact, readable
from sfumato.privacy.budget import Budget
from sfumato.privacy.conversions import epsilon_of_mu, epsilon_of_rho
from sfumato.privacy.rounding import round_down, sqrt_down, sqrt_up

__all__ = ["compose", "epsilon_left", "events_export"]


def compose(events: Iterable[Event], currency: Currency) -> Fraction:
    """The price of all events together, also when each is chosen after seeing the earlier results."""
    return sum((price(event, currency) for event in events), start=Fraction(0))


def epsilon_left(
    total: Budget, remaining: Fraction, delta: Number | None = None, currency: Currency | None = None
) -> Fraction:
    """What is left, shown as an epsilon at `delta` (the budget's own if it has one). For reading: no guarantee.

    `currency` is that of `remaining`, by default the total's own. Raises BudgetError for a delta needed and missing.
    """
    target, kept = total.delta if delta is None else exact(delta, "delta"), currency or total.currency
    if kept is Currency.EPSILON:
        return remaining
    if target is None or not 0 < target < 1:
        raise BudgetError("the epsilon left is defined at a delta; give one in (0, 1)")
    if kept is Currency.RHO:
        return epsilon_of_rho(remaining, target)
    return epsilon_of_mu(sqrt_up(remaining), target)


def events_export(events: Iterable[Event]) -> tuple[dict[str, str], ...]:
    """Events as plain text fields for an outside accountant.

    `mechanism` is gaussian, pure, zcdp or bounded-range; `sensitivity` is 1 and `scale` is the noise for it, rounded
    down: sigma = 1/mu, 1/epsilon of a Laplace mechanism with that guarantee, or sigma = 1/sqrt(2 rho). `guarantee`
    is the exact parameter (mu^2, epsilon, rho, epsilon); "pure" stands for any pure mechanism, not only Laplace.
    An event without cost has the scale "inf"; an approximate one has its `delta` besides.
    """
    return tuple(_export(event) for event in events)


def _export(event: Event) -> dict[str, str]:
    guarantee = _guarantee(event)
    if not guarantee:
        scale = "inf"
    elif isinstance(event, GaussianEvent | ZcdpEvent):
        mu_squared = price(event, Currency.RHO) * 2
        scale = readable(round_down(sqrt_down(1 / mu_squared)))
    else:
        scale = readable(round_down(1 / guarantee))
    fields_of = {
        "mechanism": event_to_text(event).split()[0],
        "sensitivity": "1",
        "scale": scale,
        "guarantee": str(guarantee),
    }
    return fields_of | ({"delta": str(event.delta)} if isinstance(event, ApproxEvent) else {})


def _guarantee(event: Event) -> Fraction:
    return getattr(event, fields(event)[0].name)
