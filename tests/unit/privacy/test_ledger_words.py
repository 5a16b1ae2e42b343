"""What a ledger says to people: true, and to be acted on."""

from __future__ import annotations

import random
import re
from fractions import Fraction
from typing import Any

import pytest

import sfumato as sf
from sfumato.privacy.accounting import (
    ApproxEvent,
    BoundedRangeEvent,
    Event,
    GaussianEvent,
    PureEvent,
    ZcdpEvent,
    event_price,
)
from sfumato.privacy.budget import Budget
from sfumato.privacy.ledger import Ledger, words
from sfumato.privacy.unit import Neighbours, PrivacyUnit

PLAN = "a" * 64
UNIT = PrivacyUnit(Neighbours.ADD_REMOVE)
KINDS: dict[str, tuple[Budget, str | None, type[Any]]] = {
    "pure": (sf.pure("1.3"), None, PureEvent),
    "approx": (sf.approx("0.7", "1e-6"), None, GaussianEvent),
    "approx as rho": (sf.approx(3, "1e-9"), "rho", ZcdpEvent),
    "approx as sums": (sf.approx(2, "1e-6"), "epsilon", PureEvent),
    "zcdp": (sf.zcdp("0.01"), None, ZcdpEvent),
    "gdp": (sf.gdp(3), None, GaussianEvent),
}


def advised(text: str) -> Budget:
    """The budget that a message says may still be spent."""
    found = re.search(r"up to sf\.(pure|approx|zcdp|gdp)\(([^)]*)\)", text)
    assert found is not None, text
    return getattr(sf, found[1])(*(part.strip(" '") for part in found[2].split(",")))


def event_of(budget: Budget) -> Event:
    if budget.kind == "pure":
        return PureEvent(budget.parameter)
    return ZcdpEvent(budget.rho) if budget.kind == "zcdp" else GaussianEvent(budget.mu_squared)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_advised_fits_and_little_more_does(kind: str) -> None:
    """Mutants: digits rounded to the nearest, which may not fit; an epsilon advised for a ledger of rho."""
    budget, currency, make = KINDS[kind]
    rng = random.Random(kind)
    for _ in range(20):
        ledger = Ledger.in_memory(budget, currency)
        ledger.debit("a", PLAN, make(ledger.remaining * Fraction(rng.randrange(1, 10**6), 10**6)), UNIT)
        with pytest.raises(sf.BudgetExceeded) as refusal:
            ledger.debit("b", PLAN, make(2 * (ledger.spent + ledger.remaining)), UNIT)
        text = str(refusal.value)
        assert all(word in text for word in ("requested", "remaining", "difference", "nothing was spent", "Plan with"))
        event = event_of(advised(text))
        assert event_price(event, ledger.currency) * Fraction(102, 100) > ledger.remaining
        ledger.debit("c", PLAN, event, UNIT)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_left_says_so(kind: str) -> None:
    budget, currency, make = KINDS[kind]
    ledger = Ledger.in_memory(budget, currency)
    ledger.debit("a", PLAN, make(ledger.remaining), UNIT)
    with pytest.raises(sf.BudgetExceeded, match=r"100 % of the total.*remaining 0.*nothing is left of .*custodian"):
        ledger.debit("b", PLAN, make(ledger.spent), UNIT)


def test_what_a_spend_allows_by_itself() -> None:
    """Mutant: a pure release shown as the epsilon of its price in mu^2, which is several times its own."""
    total = sf.approx(1, "1e-6")
    own = sf.approx("0.25", "1e-6")
    assert words.spend_in_epsilon(GaussianEvent(own.mu_squared), total) == "epsilon 0.25 at delta 1e-6"
    assert words.spend_in_epsilon(GaussianEvent(own.mu_squared), sf.zcdp(1)) == "epsilon 0.25 at delta 1e-6"
    assert words.spend_in_epsilon(ZcdpEvent(own.rho), sf.zcdp(1)) == "epsilon 0.25 at delta 1e-6"
    assert (
        words.spend_in_epsilon(ZcdpEvent(sf.approx(2, "1e-9").rho), sf.approx(3, "1e-9")) == "epsilon 2 at delta 1e-9"
    )
    assert words.spend_in_epsilon(PureEvent(Fraction(1, 4)), total) == "epsilon 0.25"
    assert words.spend_in_epsilon(BoundedRangeEvent(Fraction(1, 4)), total) == "epsilon 0.25"
    assert (
        words.spend_in_epsilon(ApproxEvent(Fraction(1, 4), Fraction(1, 10**7)), total) == "epsilon 0.25 and delta 1e-7"
    )
    assert words.spend_in_epsilon(GaussianEvent(Fraction(0)), total) == "epsilon 0 at delta 1e-6"
