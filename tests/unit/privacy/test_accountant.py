"""Prices against brute force over worst-case pairs, and the filter's exactness."""

from __future__ import annotations

import copy
import os
import pickle
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from sfumato._util import codec
from sfumato.errors import BudgetError, BudgetExceeded
from sfumato.privacy import accounting as accountant
from sfumato.privacy.accounting import (
    Account,
    BoundedRangeEvent,
    Event,
    GaussianEvent,
    PureEvent,
    ZcdpEvent,
    event_from_text,
    event_price,
    event_to_text,
    refuse_overspending,
)
from sfumato.privacy.amounts import Currency
from sfumato.privacy.budget import Budget
from sfumato.privacy.ledger.words import compose_events, export_events, remaining_epsilon

EVENTS: list[Callable[[object], Event]] = [GaussianEvent, PureEvent, ZcdpEvent, BoundedRangeEvent]  # type: ignore[list-item]
amounts = st.fractions(min_value=0, max_value=50, max_denominator=10**9)
events = st.builds(lambda make, x: make(x), st.sampled_from(EVENTS), amounts)


# Prices --------------------------------------------------------------------------------------------------------------


def test_exact_prices() -> None:
    x = Fraction(3, 7)
    table: list[tuple[Event, Currency, Fraction]] = [
        (PureEvent(x), Currency.EPSILON, x),
        (BoundedRangeEvent(x), Currency.EPSILON, x),
        (GaussianEvent(x), Currency.RHO, x / 2),
        (PureEvent(x), Currency.RHO, x**2 / 2),
        (ZcdpEvent(x), Currency.RHO, x),
        (BoundedRangeEvent(x), Currency.RHO, x**2 / 8),
        (GaussianEvent(x), Currency.MU_SQUARED, x),
    ]
    for event, currency, expected in table:
        assert event_price(event, currency) == expected


@pytest.mark.parametrize(
    ("event", "currency"),
    [
        (GaussianEvent(Fraction(1)), Currency.EPSILON),
        (ZcdpEvent(Fraction(1)), Currency.EPSILON),
        (ZcdpEvent(Fraction(1)), Currency.MU_SQUARED),
    ],
)
def test_what_has_no_conversion_is_refused(event: Event, currency: Currency) -> None:
    """Mutant: the discrete Gaussian priced as mu^2 = 2 rho in a GDP ledger."""
    with pytest.raises(BudgetError, match="has no price in"):
        event_price(event, currency)


def test_a_pure_ledger_says_what_to_do() -> None:
    with pytest.raises(
        BudgetError, match=r"^Gaussian noise has no price .* plan with sf\.pure, or take a ledger with a delta"
    ):
        event_price(GaussianEvent(Fraction(1)), Currency.EPSILON)


@pytest.mark.parametrize("arguments", [(1, Currency.RHO), (PureEvent(Fraction(1)), "sigma"), (None, None)])
def test_only_events_have_prices(arguments: tuple[Event, Currency]) -> None:
    with pytest.raises(BudgetError, match="are needed"):
        event_price(*arguments)


def bounded_range_pair(epsilon: float, t: float) -> tuple[float, float]:
    """Chances (p, q) of the one event that separates the worst pair whose log ratios are t and t - epsilon."""
    p = np.expm1(t - epsilon) / (np.exp(t - epsilon) - np.exp(t))
    return p, p * np.exp(t)


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 4.0])
def test_the_exponential_mechanism_in_gdp_covers_every_worst_pair(epsilon: float) -> None:
    """Mutants: mu^2 = epsilon^2/4; mu of a pure mechanism at epsilon/4."""
    worst = 0.0
    for t in np.linspace(0, epsilon, 1001)[1:-1]:
        p, q = bounded_range_pair(epsilon, t)
        worst = max(worst, special.ndtri(q) - special.ndtri(p))
    mu = float(event_price(BoundedRangeEvent(Fraction(str(epsilon))), Currency.MU_SQUARED)) ** 0.5
    assert worst <= mu * (1 + 1e-9)
    assert mu == pytest.approx(worst, rel=1e-4)


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 4.0])
def test_rho_prices_cover_every_order(epsilon: float) -> None:
    """Mutants: epsilon^2/16 for the exponential mechanism; epsilon^2/8 for a pure one."""

    def renyi(p: float, q: float, a: float) -> float:
        pairs = ((q, p), (1 - q, 1 - p))
        return special.logsumexp([a * np.log(x) + (1 - a) * np.log(y) for x, y in pairs]) / (a - 1)

    orders = 1 + np.logspace(-3, 3, 60)
    exponential = max(
        renyi(*bounded_range_pair(epsilon, t), a) / a for t in np.linspace(0, epsilon, 102)[1:-1] for a in orders
    )
    response = special.expit(epsilon)
    pure = max(renyi(1 - response, response, a) / a for a in orders)
    assert exponential <= float(event_price(BoundedRangeEvent(Fraction(str(epsilon))), Currency.RHO)) * (1 + 1e-6)
    assert pure <= float(event_price(PureEvent(Fraction(str(epsilon))), Currency.RHO)) * (1 + 1e-6)
    if epsilon < 0.1:
        assert exponential > 0.99 * epsilon**2 / 8
        assert pure > 0.99 * epsilon**2 / 2


@settings(deadline=None)
@given(events, st.integers(0, 30), st.sampled_from(Currency))
def test_composing_copies_is_n_fold(event: Event, n: int, currency: Currency) -> None:
    try:
        single = event_price(event, currency)
    except BudgetError:
        return
    assert compose_events([event] * n, currency) == n * single


@settings(deadline=None)
@given(events, events)
def test_prices_grow_with_the_parameter_and_order_does_not_matter(first: Event, second: Event) -> None:
    assert compose_events([first, second], Currency.RHO) == compose_events([second, first], Currency.RHO)
    doubled = event_from_text(event_to_text(first).split()[0] + f" {2 * Fraction(event_to_text(first).split()[1])}")
    assert event_price(doubled, Currency.RHO) >= event_price(first, Currency.RHO)


@pytest.mark.parametrize("make", EVENTS)
@pytest.mark.parametrize("value", [-1, "-1e-9", True, float("nan"), "x", 10**19, None])
def test_events_refuse_at_birth(make: Callable[[object], Event], value: object) -> None:
    with pytest.raises(BudgetError):
        make(value)


@settings(deadline=None)
@given(events)
def test_events_survive_text_and_codec(event: Event) -> None:
    assert event_from_text(event_to_text(event)) == event
    assert codec.decode_value(*codec.encode_value(event)) == event


@pytest.mark.parametrize(
    "text", ["", "gaussian", "gaussian -1", "laplace 1", "pure 1e-3", "pure 1/0", "pure 1\n", "pure ١"]
)
def test_other_texts_are_no_events(text: str) -> None:
    with pytest.raises(BudgetError):
        event_from_text(text)


def test_export_for_outside_accountants() -> None:
    exported = export_events(
        [GaussianEvent("1/3"), PureEvent("0.25"), ZcdpEvent("0.5"), BoundedRangeEvent(2), PureEvent(0)]
    )  # type: ignore[arg-type]
    assert exported[0] == {
        "mechanism": "gaussian",
        "sensitivity": "1",
        "scale": "1.732050807568877",
        "guarantee": "1/3",
    }
    assert [row["scale"] for row in exported[1:]] == ["4", "1", "0.5", "inf"]
    assert [row["mechanism"] for row in exported[1:]] == ["pure", "zcdp", "bounded-range", "pure"]


# Account -------------------------------------------------------------------------------------------------------------


def test_ten_tenths_fit_one_and_nothing_more() -> None:
    """Mutant: a float ledger, in which ten times 0.1 leaves 1e-16."""
    account = Account(Budget.pure(1))
    for _ in range(10):
        account.spend(PureEvent("0.1"))  # type: ignore[arg-type]
    assert account.remaining == 0
    for value in ("1e-300", "0.1"):
        with pytest.raises(BudgetExceeded):
            account.spend(PureEvent(value))  # type: ignore[arg-type]
    account.spend(PureEvent(0))  # type: ignore[arg-type]
    assert account.spent == 1


def test_a_refusal_names_the_numbers_and_harms_nothing() -> None:
    """Mutant: `>=` for `>`; a debit before the check."""
    account = Account(Budget.zcdp("0.5"))
    request = ZcdpEvent(Fraction(1, 2) + Fraction(1, 10**30))
    with pytest.raises(BudgetExceeded) as refusal:
        account.spend(request)
    assert refusal.value.requested == request.rho
    assert refusal.value.remaining == Fraction(1, 2)
    assert "remaining 0.5" in str(refusal.value)
    assert "difference 1e-30" in str(refusal.value)
    assert account.spend(ZcdpEvent(Fraction(1, 2))) == Fraction(1, 2)
    assert account.remaining == 0


def test_a_million_spends_reach_zero_exactly() -> None:
    """Mutant: a float ledger."""
    account, event = Account(Budget.zcdp(1)), ZcdpEvent(Fraction(1, 10**6))
    for _ in range(10**6):
        account.spend(event)
    assert account.remaining == 0
    with pytest.raises(BudgetExceeded):
        account.spend(ZcdpEvent(Fraction(1, 10**300)))


def test_threads_share_one_total(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: an account without its lock, so that every thread passes the check before any pays."""
    account, granted = Account(Budget.pure(3)), list[Fraction]()

    def check_slowly(requested: Fraction, remaining: Fraction, currency: Currency) -> None:
        refuse_overspending(requested, remaining, currency)
        time.sleep(0.01)

    def spend() -> None:
        with suppress(BudgetExceeded):
            granted.append(account.spend(PureEvent(Fraction(1))))

    monkeypatch.setattr(accountant, "refuse_overspending", check_slowly)
    threads = [threading.Thread(target=spend) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(granted) == 3
    assert account.remaining == 0


def test_a_copy_in_another_process_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: a forked account that spends the same budget twice."""
    account = Account(Budget.pure(1))
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(BudgetError, match="belongs to the process"):
        account.spend(PureEvent(Fraction(1)))


def test_an_account_is_neither_copied_nor_pickled() -> None:
    """Mutant: a shallow copy, which spends the same total again."""
    account = Account(PureEvent(Fraction(1)))
    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(BudgetError, match="copied"):
            duplicate(account)


def test_an_account_prints_and_refuses_what_is_no_budget() -> None:
    assert "1 of rho left" in repr(Account(Budget.zcdp(1)))
    with pytest.raises(BudgetError, match="needs a Budget"):
        Account("1")  # type: ignore[arg-type]


def test_epsilon_left() -> None:
    assert remaining_epsilon(Budget.pure(1), Fraction(1, 3)) == Fraction(1, 3)
    approx = Budget.approx(1, "1e-6")
    assert 1 <= remaining_epsilon(approx, approx.total) <= 1 + Fraction(1, 10**12)
    assert remaining_epsilon(approx, Fraction(0)) == 0
    assert remaining_epsilon(Budget.gdp(1), Fraction(1), "1e-6") == Budget.gdp(1).epsilon("1e-6")
    assert remaining_epsilon(Budget.zcdp(1), Fraction(1), "1e-6") == Budget.zcdp(1).epsilon("1e-6")
    for delta in (None, 0, 1):
        with pytest.raises(BudgetError, match="defined at a delta"):
            remaining_epsilon(Budget.zcdp(1), Fraction(1), delta)
