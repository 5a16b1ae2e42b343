"""What a session pays and promises: exact prices, the arithmetic of the promise, and what S11.2 of the sources has."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.interactive.parameters import (
    SessionShape,
    farthest_draw,
    largest_sum,
    noise_energy_bound,
    practical_terms,
    promised_bounds,
    search_least_alpha,
    session_bounds,
    session_terms,
)
from sfumato.privacy.accounting import Event, GaussianEvent, PureEvent, ZcdpEvent
from sfumato.privacy.amounts import Currency
from sfumato.privacy.conversation_price import mu_squared_of_pures
from sfumato.privacy.noise import DiscreteGaussian, DiscreteLaplace, RoundedGaussian
from sfumato.strategies.calibration import price_of

BUDGETS = {"pure": sf.pure(1), "approx": sf.approx(1, "1e-6"), "zcdp": sf.zcdp("0.5"), "gdp": sf.gdp("0.7")}
SHAPE = SessionShape(cells=256, questions=500, records=20_000, beta=0.05, buys=False)


@given(
    kind=st.sampled_from(sorted(BUDGETS)),
    updates=st.integers(1, 300),
    move=st.integers(1, 5),
    share=st.fractions(Fraction(1, 10), Fraction(99, 100), max_denominator=1000),
)
@settings(max_examples=60, deadline=None)
def test_the_parts_of_a_session_add_up_to_its_price(kind: str, updates: int, move: int, share: Fraction) -> None:
    """Mutants: a price below the sum of its parts; epochs of count - 1; answers unpaid."""
    price = price_of(BUDGETS[kind])
    terms = session_terms(price, updates, move, share)
    assert terms.fits(price)
    epsilon, answer = terms.epochs.epsilon, terms.answer
    match price, answer:
        case PureEvent(epsilon=total), DiscreteLaplace(scale=scale):
            parts = updates * (epsilon + move / scale)
            assert parts == total
        case ZcdpEvent(rho=total), DiscreteGaussian(sigma=sigma):
            parts = updates * (epsilon**2 / 2 + move**2 / (2 * sigma**2))
        case GaussianEvent(mu_squared=total), RoundedGaussian(sigma=sigma):
            parts = mu_squared_of_pures(epsilon, updates) + updates * move**2 / sigma**2
        case _:
            pytest.fail("price and noise do not go together")
    assert total * (1 - Fraction(1, 10**12)) <= parts <= total


@pytest.mark.parametrize(
    ("kind", "currency", "event"),
    [
        ("pure", Currency.RHO, PureEvent),
        ("pure", Currency.EPSILON, PureEvent),
        ("approx", None, GaussianEvent),
        ("approx", Currency.RHO, ZcdpEvent),
        ("approx", Currency.EPSILON, PureEvent),
        ("zcdp", None, ZcdpEvent),
        ("zcdp", Currency.MU_SQUARED, GaussianEvent),
        ("gdp", Currency.RHO, GaussianEvent),
    ],
)
def test_a_price_fits_the_ledgers_currency_and_keeps_the_budget(
    kind: str, currency: Currency | None, event: type[Event]
) -> None:
    assert type(price_of(BUDGETS[kind], currency)) is event


def test_the_promise_follows_from_its_terms_alone() -> None:
    """Mutants: the records left out; the noises' squares left out; one side of v."""
    terms = session_terms(price_of(BUDGETS["approx"]), 60, 1)
    alpha, threshold, bounds = promised_bounds(SHAPE, terms)
    assert alpha == threshold + bounds.v
    assert terms.answer is not None
    # potential: the 60th update would leave no divergence to lose
    gained = 60 * (threshold - bounds.v - 0.5) ** 2 - noise_energy_bound(terms.answer, 60, SHAPE.beta / 4)
    assert gained > SHAPE.records**2 * math.log(SHAPE.cells) / 2
    less = 60 * (threshold - 3 - bounds.v - 0.5) ** 2 - noise_energy_bound(terms.answer, 60, SHAPE.beta / 4)
    assert less < SHAPE.records**2 * math.log(SHAPE.cells) / 2
    # wider, rarer, and private totals promise less
    for other in (
        SessionShape(256, 500, 40_000, 0.05, buys=False),
        SessionShape(2**20, 500, 20_000, 0.05, buys=False),
        SessionShape(256, 50_000, 20_000, 0.05, buys=False),
        SessionShape(256, 500, 20_000, 0.001, buys=False),
        SessionShape(256, 500, 20_000, 0.05, buys=True),
        SessionShape(256, 500, 20_000, 0.05, buys=False, span=2),
    ):
        assert promised_bounds(other, terms)[0] > alpha


def test_the_conditional_bounds_are_tighter_than_those_of_the_promise() -> None:
    terms = session_terms(price_of(BUDGETS["approx"]), 60, 1)
    some, all_of_it = session_bounds(terms, 500, 0.05), promised_bounds(SHAPE, terms)[2]
    epochs = terms.epochs
    assert some.v == largest_sum(epochs.threshold_noise, 60, epochs.query_noise, 500, 0.025)
    assert all_of_it.v == largest_sum(epochs.threshold_noise, 60, epochs.query_noise, 500, 0.0125)
    assert terms.answer is not None
    assert some.g == farthest_draw(terms.answer, 60, 0.025)
    assert all_of_it.g == farthest_draw(terms.answer, 60, 0.0125)
    assert some.v < all_of_it.v
    assert some.g < all_of_it.g


def test_the_least_alpha_is_below_that_of_the_textbooks_parameters() -> None:
    """The textbook's choice promises .686 here."""
    shape = SessionShape(1024, 2000, 10**4, 0.05, buys=False)
    found = sf.mechanisms.pmw.least_alpha(1024, 2000, 10**4, BUDGETS["approx"])
    assert 0.5 < found < 0.57
    alpha, terms, threshold = search_least_alpha(shape, price_of(BUDGETS["approx"]))
    assert found == alpha / 10**4
    assert promised_bounds(shape, terms)[:2] == (alpha, threshold)
    # no other number of updates promises less
    for updates in (10, 20, 30, 50, 80, 160):
        assert promised_bounds(shape, session_terms(price_of(BUDGETS["approx"]), updates, 1))[0] >= alpha
    assert sf.mechanisms.pmw.least_alpha(1024, 2000, 10**4, BUDGETS["approx"], neighbours="add-remove") > found


def test_usual_parameters_follow_from_public_numbers() -> None:
    price = price_of(BUDGETS["approx"])
    few, _ = practical_terms(SHAPE, price, None, None)
    many, lower = practical_terms(SessionShape(256, 500, 200_000, 0.05, buys=False), price, None, None)
    assert 5 <= few.epochs.count < many.epochs.count <= 256
    assert lower < 200_000 * 0.05
    terms, threshold = practical_terms(SHAPE, price, 33, 77)
    assert (terms.epochs.count, threshold) == (33, 77)


@pytest.mark.parametrize(
    ("m", "k", "n", "beta"), [(1, 10, 10, 0.05), (10, 0, 10, 0.05), (10, 10, 0, 0.05), (10, 10, 10, 0), (10, 10, 10, 1)]
)
def test_what_cannot_be_promised_is_refused(m: int, k: int, n: int, beta: float) -> None:
    with pytest.raises(sf.errors.PlanError):
        sf.mechanisms.pmw.least_alpha(m, k, n, BUDGETS["approx"], beta)
