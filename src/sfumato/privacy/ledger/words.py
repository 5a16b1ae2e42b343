"""What a ledger says to people: what was paid, what is left, why a spend is refused. Nothing rests on it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import fields
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import lru_cache

from sfumato.errors import BudgetError, BudgetExceeded
from sfumato.privacy import budget as conversions
from sfumato.privacy.accounting import (
    ApproxEvent,
    ApproxGaussianEvent,
    BoundedRangeEvent,
    Event,
    GaussianEvent,
    PureEvent,
    ZcdpEvent,
    event_delta,
    event_price,
    event_to_text,
)
from sfumato.privacy.amounts import Currency, Number, read_exact, readable_number
from sfumato.privacy.budget import Budget, epsilon_of_mu, epsilon_of_rho
from sfumato.privacy.debits import Entry, State, unit_text
from sfumato.privacy.rounding import round_down, sqrt_down, sqrt_up
from sfumato.privacy.unit import Neighbours, PrivacyUnit


def compose_events(events: Iterable[Event], currency: Currency) -> Fraction:
    """The price of all events together, also when each is chosen after seeing the earlier results."""
    return sum((event_price(event, currency) for event in events), start=Fraction(0))


def remaining_epsilon(
    total: Budget, remaining: Fraction, delta: Number | None = None, currency: Currency | None = None
) -> Fraction:
    """What is left, shown as an epsilon at `delta` (that of the budget's noise if it has one). It guarantees nothing.

    `currency` is that of `remaining`, by default the total's own. Raises BudgetError for a delta needed and missing.
    """
    target, kept = total.noise_delta if delta is None else read_exact(delta, "delta"), currency or total.currency
    if kept is Currency.EPSILON:
        return remaining
    if target is None or not 0 < target < 1:
        raise BudgetError("the epsilon left is defined at a delta; give one in (0, 1)")
    if kept is Currency.RHO:
        return epsilon_of_rho(remaining, target)
    return epsilon_of_mu(sqrt_up(remaining), target)


def export_events(events: Iterable[Event]) -> tuple[dict[str, str], ...]:
    """Events as plain text fields for an outside accountant.

    `mechanism` is gaussian, pure, zcdp or bounded-range; `sensitivity` is 1 and `scale` is the noise for it, rounded
    down: sigma = 1/mu, 1/epsilon of a Laplace mechanism with that guarantee, or sigma = 1/sqrt(2 rho). `guarantee`
    is the exact parameter (mu^2, epsilon, rho, epsilon); "pure" stands for any pure mechanism, not only Laplace.
    An event without cost has the scale "inf"; an approximate one has its `delta` besides.
    """
    return tuple(_export_event_fields(event) for event in events)


def _export_event_fields(event: Event) -> dict[str, str]:
    guarantee = _event_guarantee(event)
    if not guarantee:
        scale = "inf"
    elif isinstance(event, GaussianEvent | ZcdpEvent | ApproxGaussianEvent):
        mu_squared = event_price(event, Currency.RHO) * 2
        scale = readable_number(round_down(sqrt_down(1 / mu_squared)))
    else:
        scale = readable_number(round_down(1 / guarantee))
    fields_of = {
        "mechanism": event_to_text(event).split()[0],
        "sensitivity": "1",
        "scale": scale,
        "guarantee": str(guarantee),
    }
    return fields_of | ({"delta": str(event_delta(event))} if event_delta(event) else {})


def _event_guarantee(event: Event) -> Fraction:
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
        case ApproxGaussianEvent(mu_squared=mu_squared, delta=delta):
            # total variation at most 1 - (1 - delta)(1 - that of mu-GDP)
            right = attack_success(GaussianEvent(mu_squared))
            return right + float(delta) * (1 - right)
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


def secrecy_clause(unit: PrivacyUnit) -> str:
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


def secrecy_sentence(unit: PrivacyUnit, event: Event) -> str:
    """What a price keeps from whoever looks, in one sentence."""
    right = percent_up(attack_success(event))
    return (
        f"Whoever wants to tell {secrecy_clause(unit)} is right at most {right} of the time; guessing "
        "is right 50 % of it."
    )


UNRELEASED = (
    "paid for, but no stored release is known: the process ended, or failed, between the debit and the end of writing. "
    "Noise may have been drawn, so there is no refund. If the release is on disk after all, the same command again "
    "reads it back, free, and marks it here"
)
_DISPLAY_DELTA = Fraction(1, 10**6)  # where a budget has no delta of its own; nothing is paid by it


@lru_cache(maxsize=256)
def _parse_promise(promise: str) -> Budget:
    return Budget.from_json(json.loads(promise))


def granted_budget(state: State) -> Budget:
    """The budget that a ledger was granted. Raises BudgetError where its first line holds none."""
    return _parse_promise(state.promise)


def spend_in_epsilon(event: Event, budget: Budget) -> str:
    """What a spend allows by itself, as an epsilon: at the ledger's delta, or at 1e-6 where the total has none."""
    if isinstance(event, ApproxEvent):
        return f"epsilon {_four_digits(event.epsilon)} and delta {readable_number(event.delta)}"
    if isinstance(event, PureEvent | BoundedRangeEvent):
        return f"epsilon {_four_digits(event.epsilon)}"
    delta = _display_delta(budget)
    return (
        f"epsilon {_four_digits(_epsilon_of_rho_or_mu(event, delta))} at delta "
        f"{readable_number(delta + event_delta(event))}"
    )


def remaining_text(state: State) -> str:
    """What is left in words, and the largest budget of a plan that the ledger still takes."""
    if not state.remaining:
        return f"nothing is left of {total_text(granted_budget(state))}"
    if state.currency is Currency.EPSILON:
        return (
            f"epsilon {_four_digits_below(state.remaining)} is left; a plan may cost up to "
            f"{_largest_budget_text(state)}"
        )
    delta = _display_delta(granted_budget(state))
    epsilon = _cached_epsilon_left(granted_budget(state), state.remaining, delta, state.currency)
    aside = granted_budget(state).thresholds
    labels = "" if aside is None else f"; {readable_number(state.delta_remaining)} of delta is left to find labels"
    return (
        f"epsilon {_four_digits(epsilon)} at delta {readable_number(delta)} is left; a plan may cost up "
        f"to {_largest_budget_text(state)}{labels}"
    )


def total_text(budget: Budget) -> str:
    """The total in one short text, such as "(1, 1e-6)-DP"."""
    return str(budget).split(";", maxsplit=1)[0]


def entry_unit_text(entry: Entry) -> str:
    """Whose privacy an entry protects; "" for a line that spends nothing."""
    return "" if entry.unit is None else entry.unit.describe()


def spend_entries(state: State) -> tuple[Entry, ...]:
    """The lines that spend."""
    return tuple(entry for entry in state.entries if entry.kind == "spend")


def protected_unit_text(state: State) -> tuple[str, str]:
    """Whose privacy all spends protect, and of which table, in words."""
    protects = (
        "fixed by the first spend" if state.unit is None else f"{unit_text(state.unit)}, fixed by the first spend"
    )
    if state.table is not None:
        return protects, repr(state.table)
    return protects, "no name was given" if state.unit is not None else "fixed by the next spend"


def overspent_error(event: Event, requested: Fraction, state: State) -> BudgetExceeded:
    """The refusal of a price above what is left."""
    share = f" ({_four_digits(100 * requested / state.total)} % of the total)"
    text = (
        f"requested {readable_number(requested)} of {state.currency}{share}, remaining "
        f"{readable_number(state.remaining)}, "
        f"difference {readable_number(requested - state.remaining)}; nothing was spent. In words: "
        f"{remaining_text(state)}; this needs "
        f"{spend_in_epsilon(event, granted_budget(state))}. "
    )
    if state.remaining:
        text += "Plan with a smaller budget"
    else:
        text += (
            "What was released before stays free to read; for more about this table its custodian must grant a "
            "further total, and what all its ledgers grant adds up"
        )
    return BudgetExceeded(text, requested, state.remaining)


def _largest_budget_text(state: State) -> str:
    """The largest budget, as it is written, whose plan the ledger still takes."""
    delta = granted_budget(state).noise_delta
    match state.currency:
        case Currency.EPSILON:
            return f"sf.pure({_four_digits_below(state.remaining)!r})"
        case Currency.RHO:
            return f"sf.zcdp({_four_digits_below(state.remaining)!r})"
        case Currency.MU_SQUARED if delta is not None:
            epsilon = _cached_epsilon_left(granted_budget(state), state.remaining, delta, state.currency)
            return f"sf.approx({_four_digits_below(epsilon)!r}, {readable_number(delta)!r})"
        case Currency.MU_SQUARED:
            return f"sf.gdp({_four_digits_below(sqrt_down(state.remaining))!r})"


def _display_delta(budget: Budget) -> Fraction:
    return budget.noise_delta or _DISPLAY_DELTA


@lru_cache(maxsize=4096)
def _cached_epsilon_left(budget: Budget, amount: Fraction, delta: Fraction, currency: Currency) -> Fraction:
    return remaining_epsilon(budget, amount, delta, currency)


@lru_cache(maxsize=4096)
def _epsilon_of_rho_or_mu(event: Event, delta: Fraction) -> Fraction:
    try:
        return conversions.epsilon_of_mu(sqrt_up(event_price(event, Currency.MU_SQUARED)), delta)
    except BudgetError:  # known to be zCDP and nothing more
        return conversions.epsilon_of_rho(event_price(event, Currency.RHO), delta)


def _four_digits(value: Fraction) -> str:
    """Four digits."""
    return f"{float(value):.4g}"


def _four_digits_below(value: Fraction) -> str:
    """Four digits, rounded down, so that what is advised fits."""
    down = Context(prec=4, rounding=ROUND_FLOOR, Emin=-(10**6), Emax=10**6)
    return str(down.divide(Decimal(value.numerator), Decimal(value.denominator)).normalize(down))
