"""What a ledger says to people: what was paid, what is left, why a spend is refused. Nothing rests on it."""

from __future__ import annotations

import json
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import lru_cache

from sfumato.errors import BudgetError, BudgetExceeded
from sfumato.privacy import conversions
from sfumato.privacy.accountant import ApproxEvent, BoundedRangeEvent, Event, PureEvent, price
from sfumato.privacy.amounts import Currency, readable
from sfumato.privacy.budget import Budget
from sfumato.privacy.debits import spelt
from sfumato.privacy.entries import Entry, State
from sfumato.privacy.rounding import sqrt_down, sqrt_up
from sfumato.privacy.statements import epsilon_left

__all__ = ["UNRELEASED", "left", "overspent", "paid", "promised", "total", "unit", "whom"]

UNRELEASED = (
    "paid for, but no stored release is known: the process ended, or failed, between the debit and the end of writing. "
    "Noise may have been drawn, so there is no refund. If the release is on disk after all, the same command again "
    "reads it back, free, and marks it here"
)
_DISPLAY_DELTA = Fraction(1, 10**6)  # where a budget has no delta of its own; nothing is paid by it


@lru_cache(maxsize=256)
def _budget(promise: str) -> Budget:
    return Budget.from_json(json.loads(promise))


def promised(state: State) -> Budget:
    """The budget that a ledger was granted. Raises BudgetError where its first line holds none."""
    return _budget(state.promise)


def paid(event: Event, budget: Budget) -> str:
    """What a spend allows by itself, as an epsilon: at the ledger's delta, or at 1e-6 where the total has none."""
    if isinstance(event, ApproxEvent):
        return f"epsilon {_near(event.epsilon)} and delta {readable(event.delta)}"
    if isinstance(event, PureEvent | BoundedRangeEvent):
        return f"epsilon {_near(event.epsilon)}"
    delta = _delta(budget)
    return f"epsilon {_near(_epsilon_of_rho_or_mu(event, delta))} at delta {readable(delta)}"


def left(state: State) -> str:
    """What is left in words, and the largest budget of a plan that the ledger still takes."""
    if not state.remaining:
        return f"nothing is left of {total(promised(state))}"
    if state.currency is Currency.EPSILON:
        return f"epsilon {_below(state.remaining)} is left; a plan may cost up to {_most(state)}"
    delta = _delta(promised(state))
    epsilon = _epsilon_left(promised(state), state.remaining, delta, state.currency)
    return f"epsilon {_near(epsilon)} at delta {readable(delta)} is left; a plan may cost up to {_most(state)}"


def total(budget: Budget) -> str:
    """The total in one short text, such as "(1, 1e-6)-DP"."""
    return str(budget).split(";", maxsplit=1)[0]


def unit(entry: Entry) -> str:
    """Whose privacy an entry protects; "" for a line that spends nothing."""
    return "" if entry.unit is None else entry.unit.describe()


def spends(state: State) -> tuple[Entry, ...]:
    """The lines that spend."""
    return tuple(entry for entry in state.entries if entry.kind == "spend")


def whom(state: State) -> tuple[str, str]:
    """Whose privacy all spends protect, and of which table, in words."""
    protects = "fixed by the first spend" if state.unit is None else f"{spelt(state.unit)}, fixed by the first spend"
    if state.table is not None:
        return protects, repr(state.table)
    return protects, "no name was given" if state.unit is not None else "fixed by the next spend"


def overspent(event: Event, requested: Fraction, state: State) -> BudgetExceeded:
    """The refusal of a price above what is left."""
    share = f" ({_near(100 * requested / state.total)} % of the total)"
    text = (
        f"requested {readable(requested)} of {state.currency}{share}, remaining {readable(state.remaining)}, "
        f"difference {readable(requested - state.remaining)}; nothing was spent. In words: {left(state)}; this needs "
        f"{paid(event, promised(state))}. "
    )
    if state.remaining:
        text += "Plan with a smaller budget"
    else:
        text += (
            "What was released before stays free to read; for more about this table its custodian must grant a "
            "further total, and what all its ledgers grant adds up"
        )
    return BudgetExceeded(text, requested, state.remaining)


def _most(state: State) -> str:
    """The largest budget, as it is written, whose plan the ledger still takes."""
    delta = promised(state).delta
    match state.currency:
        case Currency.EPSILON:
            return f"sf.pure({_below(state.remaining)!r})"
        case Currency.RHO:
            return f"sf.zcdp({_below(state.remaining)!r})"
        case Currency.MU_SQUARED if delta is not None:
            epsilon = _epsilon_left(promised(state), state.remaining, delta, state.currency)
            return f"sf.approx({_below(epsilon)!r}, {readable(delta)!r})"
        case Currency.MU_SQUARED:
            return f"sf.gdp({_below(sqrt_down(state.remaining))!r})"


def _delta(budget: Budget) -> Fraction:
    return budget.delta or _DISPLAY_DELTA


@lru_cache(maxsize=4096)
def _epsilon_left(budget: Budget, amount: Fraction, delta: Fraction, currency: Currency) -> Fraction:
    return epsilon_left(budget, amount, delta, currency)


@lru_cache(maxsize=4096)
def _epsilon_of_rho_or_mu(event: Event, delta: Fraction) -> Fraction:
    try:
        return conversions.epsilon_of_mu(sqrt_up(price(event, Currency.MU_SQUARED)), delta)
    except BudgetError:  # known to be zCDP and nothing more
        return conversions.epsilon_of_rho(price(event, Currency.RHO), delta)


def _near(value: Fraction) -> str:
    """Four digits."""
    return f"{float(value):.4g}"


def _below(value: Fraction) -> str:
    """Four digits, rounded down, so that what is advised fits."""
    down = Context(prec=4, rounding=ROUND_FLOOR, Emin=-(10**6), Emax=10**6)
    return str(down.divide(Decimal(value.numerator), Decimal(value.denominator)).normalize(down))
