"""Numbers and guarantees for readers who do not know the theory."""

from __future__ import annotations

import math
from fractions import Fraction

from sfumato.privacy.accountant import ApproxEvent, BoundedRangeEvent, Event, GaussianEvent, PureEvent, ZcdpEvent
from sfumato.privacy.amounts import readable
from sfumato.privacy.budget import Budget

__all__ = [
    "guarantee",
    "parameter",
    "price_text",
    "rounded",
    "scientific",
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
    """An answer with as many decimals as show two figures of its standard error; a dash where none is known."""
    if math.isnan(value):
        return "–"
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
