"""Numbers and guarantees for readers who do not know the theory."""

from __future__ import annotations

import math
from fractions import Fraction

from sfumato.privacy.accountant import ApproxEvent, BoundedRangeEvent, Event, GaussianEvent, PureEvent, ZcdpEvent
from sfumato.privacy.amounts import readable
from sfumato.privacy.budget import Budget
from sfumato.privacy.unit import Neighbours, PrivacyUnit

__all__ = [
    "attack_success",
    "guarantee",
    "parameter",
    "percent_up",
    "price_text",
    "rounded",
    "scientific",
    "secret",
    "share",
    "show",
    "statement",
]

_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def show(value: float | None, figures: int = 3) -> str:
    """An error or another size for people: three figures unless more are asked, thousands apart."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return _signed(value, "∞")
    size = abs(value)
    if size == 0 or size >= 1e-3:
        return _signed(value, f"{size:,.{_decimals(size, figures)}f}")
    return _signed(value, scientific(f"{size:.2e}"))


def _decimals(size: float, figures: int) -> int:
    """Decimals that show so many figures of a size."""
    return 0 if size == 0 else max(0, figures - 1 - math.floor(math.log10(size)))


def _signed(value: float, text: str) -> str:
    return f"−{text}" if value < 0 and text.strip("0.,") else text


def rounded(value: float, error: float) -> str:
    """An answer with as many decimals as show two figures of its standard error."""
    if not math.isfinite(value) or not 0 < error < math.inf:
        return show(value) if not float(value).is_integer() else _signed(value, f"{abs(value):,.0f}")
    return _signed(value, f"{abs(value):,.{min(9, _decimals(error, 2))}f}")


def scientific(text: str) -> str:
    """Computer notation such as 1e-6 as 10⁻⁶."""
    head, mark, tail = text.partition("e")
    if not mark:
        return text
    power = "10" + str(int(tail)).translate(_RAISED)
    return power if head == "1" else f"{head}·{power}"


def parameter(value: Fraction) -> str:
    """A privacy parameter for people."""
    return scientific(readable(value))


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


def statement(budget: Budget) -> str:
    """The definition's name with its parameters."""
    value = parameter(budget.parameter)
    if budget.delta is not None:
        return f"({value}, {parameter(budget.delta)})-differential privacy"
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
            f"variable from one of the same variable shifted by {parameter(budget.parameter)}"
        )
    if budget.kind == "zcdp":
        return (
            f"the Rényi divergence of order α between the two cases is at most {parameter(budget.parameter)} α, for "
            "every α above 1"
        )
    factor = math.exp(min(700.0, float(budget.parameter)))
    text = f"no result is more than {show(factor)} times as likely in one case as in the other"
    if budget.delta is None:
        return text
    return f"{text}, apart from an excess of probability of at most {parameter(budget.delta)}"


def price_text(price: Event) -> str:
    """A price in its own currency."""
    match price:
        case GaussianEvent(mu_squared=mu_squared):
            return f"μ² = {parameter(mu_squared)} of Gaussian differential privacy"
        case PureEvent(epsilon=epsilon) | BoundedRangeEvent(epsilon=epsilon):
            return f"ε = {parameter(epsilon)}"
        case ApproxEvent(epsilon=epsilon, delta=delta):
            return f"ε = {parameter(epsilon)} and δ = {parameter(delta)}"
        case ZcdpEvent(rho=rho):
            return f"ρ = {parameter(rho)}"
