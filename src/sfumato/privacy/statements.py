"""What was paid, what is left and what that keeps, told to people and accountants. No guarantee rests on it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import fields
from fractions import Fraction

from sfumato.errors import BudgetError
from sfumato.privacy.accountant import (
    ApproxEvent,
    BoundedRangeEvent,
    Event,
    GaussianEvent,
    PureEvent,
    ZcdpEvent,
    event_to_text,
    price,
)
from sfumato.privacy.amounts import Currency, Number, exact, readable
from sfumato.privacy.budget import Budget
from sfumato.privacy.conversions import epsilon_of_mu, epsilon_of_rho
from sfumato.privacy.rounding import round_down, sqrt_down, sqrt_up
from sfumato.privacy.unit import Neighbours, PrivacyUnit

__all__ = ["attack_success", "compose", "epsilon_left", "events_export", "percent_up", "secret", "told_apart"]


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


def percent_up(value: float) -> str:
    """A probability as a percentage with one decimal, rounded up and never above 100 %."""
    return f"{min(1000, math.ceil(value * 1000 - 1e-9)) / 10:.1f} %"


def attack_success(event: Event) -> float:
    """How often the best attack guesses right which of two equally likely neighbouring tables was used.

    Equals (1 + t) / 2 with t a bound on the total variation distance: exact for the Gaussian
    mechanism (Phi(mu / 2)) [DRS22] and for pure epsilon; for rho-zCDP from the smaller of the bounds of
    Pinsker and of Bretagnolle and Huber on a divergence of rho. A float for display.
    """
    match event:
        case GaussianEvent(mu_squared=mu_squared):
            return 0.5 * (1 + math.erf(math.sqrt(float(mu_squared)) / (2 * math.sqrt(2))))
        case PureEvent(epsilon=epsilon):
            return 1 / (1 + math.exp(-float(epsilon)))
        case ApproxEvent(epsilon=epsilon, delta=delta):
            # total variation at most (e^epsilon - 1 + 2 delta) / (e^epsilon + 1) [KOV15]
            return (1 + float(delta) * math.exp(-float(epsilon))) / (1 + math.exp(-float(epsilon)))
        case BoundedRangeEvent(epsilon=epsilon):
            return 1 / (1 + math.exp(-float(epsilon) / 2))
        case ZcdpEvent(rho=rho):
            size = float(rho)
            return 0.5 * (1 + min(math.sqrt(size / 2), math.sqrt(-math.expm1(-size))))


def secret(unit: PrivacyUnit) -> str:
    """What an attacker cannot tell, as a clause after 'wants to tell'."""
    if unit.person is None:
        same = f" of the same {unit.within.name}" if unit.within else ""
        one, many = "one given record", f"two records{same} a given person has"
    else:
        rows = "record is" if unit.rows_per_person == 1 else f"records (up to {unit.rows_per_person:,} of them) are"
        one, many = f"one given person's {rows}", "two versions of a given person's records"
        if unit.neighbours is Neighbours.ADD_REMOVE:
            return f"whether {one} in the table"
    return f"whether {one} is in the table" if unit.neighbours is Neighbours.ADD_REMOVE else f"which of {many}"


def told_apart(unit: PrivacyUnit, event: Event) -> str:
    """What a price keeps from whoever looks, in one sentence."""
    right = percent_up(attack_success(event))
    return f"Whoever wants to tell {secret(unit)} is right at most {right} of the time; guessing is right 50 % of it."
