"""Numbers and guarantees for readers who do not know the theory."""

from __future__ import annotations

import math

from sfumato.plans import Plan
from sfumato.privacy.accountant import BoundedRangeEvent, Event, GaussianEvent, PureEvent, ZcdpEvent
from sfumato.privacy.budget import Budget, readable
from sfumato.privacy.unit import Neighbours, PrivacyUnit

__all__ = ["attack_success", "guarantee", "percent_up", "price_text", "secret", "share", "show", "statement"]


def show(value: float | None) -> str:
    """A number for people: four figures, thousands apart, a true minus sign."""
    if value is None or not math.isfinite(value):
        return "–" if value is None or math.isnan(value) else ("∞" if value > 0 else "−∞")
    size = abs(value)
    if size >= 1000 or value == int(value):
        text = f"{size:,.0f}"
    elif size >= 1e-3:
        text = f"{size:,.{max(0, 3 - math.floor(math.log10(size)))}f}".rstrip("0").rstrip(".")
    else:
        text = f"{size:.2e}"
    return f"−{text}" if value < 0 and text.strip("0.,") else text


def share(value: float) -> str:
    """A share as a percentage."""
    if value == 0:
        return "0 %"
    return f"{value:.2%}".replace("%", " %") if value >= 0.0001 else "less than 0.01 %"


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
        case BoundedRangeEvent(epsilon=epsilon):
            return 1 / (1 + math.exp(-float(epsilon) / 2))
        case ZcdpEvent(rho=rho):
            size = float(rho)
            return 0.5 * (1 + min(math.sqrt(size / 2), math.sqrt(-math.expm1(-size))))


def secret(unit: PrivacyUnit) -> str:
    """What an attacker cannot tell, as a clause after 'wants to tell'."""
    if unit.person is None:
        one, many = "one given record", "two records a given person has"
    else:
        rows = "record is" if unit.rows_per_person == 1 else f"records (up to {unit.rows_per_person:,} of them) are"
        one, many = f"one given person's {rows}", "two versions of a given person's records"
        if unit.neighbours is Neighbours.ADD_REMOVE:
            return f"whether {one} in the table"
    return f"whether {one} is in the table" if unit.neighbours is Neighbours.ADD_REMOVE else f"which of {many}"


def statement(budget: Budget) -> str:
    """The definition's name with its parameters."""
    value = readable(budget.parameter)
    if budget.delta is not None:
        return f"({value}, {readable(budget.delta)})-differential privacy"
    return {
        "pure": f"{value}-differential privacy (pure)",
        "zcdp": f"{value}-zero-concentrated differential privacy",
        "gdp": f"{value}-Gaussian differential privacy",
    }[budget.kind]


def guarantee(budget: Budget) -> str:
    """What the definition says, in one sentence."""
    if budget.kind == "gdp":
        return (
            "to tell the two cases apart is at least as hard as to tell one draw of a standard normal "
            f"variable from one of the same variable shifted by {readable(budget.parameter)}"
        )
    if budget.kind == "zcdp":
        return (
            f"the Rényi divergence of order α between the two cases is at most {readable(budget.parameter)} α, for "
            "every α above 1"
        )
    factor = math.exp(min(700.0, float(budget.parameter)))
    text = f"no result is more than {show(factor)} times as likely in one case as in the other"
    if budget.delta is None:
        return text
    return f"{text}, apart from an excess of probability of at most {readable(budget.delta)}"


def price_text(plan: Plan) -> str:
    """The price in its own currency."""
    match plan.price:
        case GaussianEvent(mu_squared=mu_squared):
            return f"μ² = {readable(mu_squared)} of Gaussian differential privacy"
        case PureEvent(epsilon=epsilon) | BoundedRangeEvent(epsilon=epsilon):
            return f"ε = {readable(epsilon)}"
        case ZcdpEvent(rho=rho):
            return f"ρ = {readable(rho)}"
