"""Budgets: exact at birth, certified when converted. Reference values come from other formulas at 2,000 bits."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import flint
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, special

from sfumato._util import codec
from sfumato.errors import BudgetError
from sfumato.privacy import accounting as pure
from sfumato.privacy import budget as conversions
from sfumato.privacy import rounding
from sfumato.privacy.amounts import Currency, read_exact, readable_number
from sfumato.privacy.budget import Budget

GRID = [("0.1", "1e-9"), ("1", "1e-6"), ("1", "0.3"), ("5", "1e-10"), ("20", "1e-3"), ("1e-6", "1e-5"), ("1", "1e-200")]
TINY = Fraction(1, 10**13)


def precise(x: Fraction) -> flint.arb:
    return flint.arb(flint.fmpq(x.numerator, x.denominator))


def at_2000_bits(evaluate: Callable[[], Any]) -> Any:
    with flint.ctx.workprec(2000):
        return evaluate()


def normal_tail(x: flint.arb) -> flint.arb:
    """P(N > x)."""
    return (x / flint.arb(2).sqrt()).erfc() / 2


def gaussian_delta(epsilon: Fraction, mu: Fraction) -> flint.arb:
    """delta of mu-GDP at epsilon [BW18], written independently of the source."""
    e, m = precise(epsilon), precise(mu)
    return normal_tail(e / m - m / 2) - e.exp() * normal_tail(e / m + m / 2)


# Birth ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_value", "expected"),
    [
        (1, Fraction(1)),
        ("0.5", Fraction(1, 2)),
        ("1e-6", Fraction(1, 10**6)),
        ("1/3", Fraction(1, 3)),
        (" 2. ", Fraction(2)),
        (".5", Fraction(1, 2)),
        (0.1, Fraction(1, 10)),
        (1e-6, Fraction(1, 10**6)),
        (Decimal("0.10"), Fraction(1, 10)),
        (Fraction(2, 7), Fraction(2, 7)),
        (np.float64(0.1), Fraction(1, 10)),
        (np.int64(3), Fraction(3)),
    ],
)
def test_a_parameter_is_the_number_that_was_written(given_value: Any, expected: Fraction) -> None:
    """Mutant: Fraction(0.1), which is not 1/10."""
    assert Budget.pure(given_value).parameter == expected


NO_NUMBERS: list[Any] = [
    *(0, -1, "-0.1", "-1/2", True, False, None, [], "", "one", "nan", "inf", "1e999", "1e-301", "1/0", "1_0", "0x1"),
    *("١", "１", "1e99999999999", "9" * 5000, "1/" + "3" * 2598, "1 2", "1/2/3", "1.5/2", 1e-320, 2e9, 1j, b"1"),
    *(float("nan"), float("inf"), Decimal("NaN"), Decimal("Infinity"), Decimal("1e999999999"), object()),
    *(10**5000, -(10**5000), Fraction(1, 10**5000), np.float32(0.1), np.True_, np.array([1.0])),
]


@pytest.mark.parametrize("value", NO_NUMBERS, ids=range(len(NO_NUMBERS)))
@pytest.mark.parametrize("make", [Budget.pure, Budget.zcdp, Budget.gdp, lambda v: Budget.approx(v, "1e-6")])
def test_what_is_no_positive_number_is_refused(make: Callable[[Any], Budget], value: Any) -> None:
    with pytest.raises(BudgetError) as refusal:
        make(value)
    assert len(str(refusal.value)) < 300


@pytest.mark.parametrize("delta", [0, 1, "1.0", 2, -1, "1e-301", True, None, float("nan"), "95%"])
def test_delta_outside_the_open_unit_interval_is_refused(delta: Any) -> None:
    with pytest.raises(BudgetError):
        Budget.approx(1, delta)
    with pytest.raises(BudgetError):
        Budget.from_json({"epsilon": 1, "delta": delta})


def test_the_constructor_refuses_what_the_named_ones_cannot_say() -> None:
    for arguments in (("pure", 1, "1e-6"), ("approx", 1), ("laplace", 1), ("zcdp", 1, "1e-6")):
        with pytest.raises(BudgetError):
            Budget(*arguments)  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        Budget.pure(1).parameter = Fraction(2)  # type: ignore[misc]


@settings(deadline=None)
@given(st.fractions(min_value=Fraction(1, 10**6), max_value=10**6))
def test_text_and_json_and_codec_are_exact(x: Fraction) -> None:
    for budget in (Budget.pure(x), Budget.zcdp(x), Budget.gdp(str(x)), Budget.approx(x, x / 10**7)):
        assert budget.parameter == x
        assert Budget.from_json(json.loads(json.dumps(budget.to_json()))) == budget
        assert codec.decode_value(*codec.encode_value(budget)) == budget


@pytest.mark.parametrize(
    "document", [{}, {"epsilon": 1, "rho": 1}, {"delta": "1e-6"}, {"rho": 1, "delta": "1e-6"}, {"sigma": 1}, {1: 1}]
)
def test_other_combinations_of_parameters_are_refused(document: dict[str, object]) -> None:
    with pytest.raises(BudgetError, match="give epsilon"):
        Budget.from_json(document)


@settings(deadline=None)
@given(st.floats(min_value=1e-12, max_value=1e8))
def test_floats_count_as_their_shortest_text(x: float) -> None:
    assert read_exact(x, "x") == Fraction(repr(x)) == read_exact(repr(x), "x")


# Gaussian ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "delta"), GRID)
def test_the_analytic_gaussian_is_tight_and_on_the_safe_side(epsilon: str, delta: str) -> None:
    """Mutants: mu rounded up; the classic calibration; the second term dropped."""
    eps, dlt = Fraction(epsilon), Fraction(delta)
    mu = conversions.mu_of_approx(eps, dlt)
    assert Budget.approx(eps, dlt).mu_squared == mu**2
    assert at_2000_bits(lambda: gaussian_delta(eps, mu) <= precise(dlt))
    assert at_2000_bits(lambda: gaussian_delta(eps, mu * (1 + TINY)) > precise(dlt))


def test_numbers_of_other_classes_change_nothing_for_equal_ones() -> None:
    """What a conversion found is kept for equal numbers. Mutant: numbers kept as they were given: noise for 10^6 times
    the budget then followed for everybody who asked for the same."""

    class Small(Fraction):
        def __rsub__(self, other: Any) -> Any:
            return Fraction(-(10**6))

        def __truediv__(self, other: Any) -> Any:
            return Fraction(10**6)

    lying = Budget.approx(Small("1.2345"), "1e-6")
    assert type(lying.parameter) is Fraction
    assert lying.mu_squared == Budget.approx("1.2345", "1e-6").mu_squared < 1


def test_known_noise_multiplier() -> None:
    budget = Budget.approx(1, "1e-6")
    assert 1 / float(budget.mu_squared) ** 0.5 == pytest.approx(4.2246789, abs=5e-8)
    assert "4.2247" in str(budget)


def test_beyond_the_range_of_exp_the_gaussian_is_still_valid() -> None:
    """Above epsilon = 65,536 the subtracted term is left out: safe, and within 1e-4 of the optimum."""
    mu = conversions.mu_of_approx(Fraction(70_000), Fraction(1, 10**6))
    assert at_2000_bits(lambda: gaussian_delta(Fraction(70_000), mu) <= precise(Fraction(1, 10**6)))
    assert at_2000_bits(
        lambda: gaussian_delta(Fraction(70_000), mu * Fraction(10_001, 10_000)) > precise(Fraction(1, 10**6))
    )


def test_mu_squared_of_the_other_kinds_is_exact() -> None:
    assert Budget.gdp("1/3").mu_squared == Fraction(1, 9)
    assert Budget.zcdp("0.1").mu_squared == Fraction(1, 5)
    with pytest.raises(BudgetError, match="Laplace"):
        _ = Budget.pure(1).mu_squared


@pytest.mark.parametrize(("epsilon", "delta"), GRID)
def test_gdp_back_to_epsilon(epsilon: str, delta: str) -> None:
    """Mutant: epsilon rounded down."""
    dlt = Fraction(delta)
    mu = conversions.mu_of_approx(Fraction(epsilon), dlt) * Fraction(999, 1000)
    back = Budget.gdp(mu).epsilon(delta)
    assert 0 < back < Fraction(epsilon)
    assert at_2000_bits(lambda: gaussian_delta(back, mu) <= precise(dlt))
    assert at_2000_bits(lambda: gaussian_delta(back * (1 - TINY), mu) > precise(dlt))


def test_an_epsilon_of_zero_where_delta_suffices() -> None:
    assert Budget.gdp("0.001").epsilon("0.5") == 0
    assert Budget.zcdp("1e-9").epsilon("0.5") == 0


# zCDP ----------------------------------------------------------------------------------------------------------------


def renyi_epsilon(rho: float, delta: float) -> float:
    """CKS20 Proposition 12, minimised by an independent search."""

    def at(t: float) -> float:
        a = 1 + np.exp(t)
        return float(a * rho + np.log1p(-1 / a) - (np.log(delta) + np.log(a)) / (a - 1))

    grid = np.linspace(-12, 40, 5000)
    best = grid[int(np.argmin([at(t) for t in grid]))]
    return float(optimize.minimize_scalar(at, bounds=(best - 0.1, best + 0.1), method="bounded").fun)


@pytest.mark.parametrize("rho", ["1e-4", "0.02", "0.5", "3", "100"])
@pytest.mark.parametrize("delta", ["1e-10", "1e-6", "0.1"])
def test_zcdp_to_epsilon_is_the_best_order_and_safe(rho: str, delta: str) -> None:
    """Mutants: rho + 2 sqrt(rho log(1/delta)); epsilon rounded down."""
    epsilon = Budget.zcdp(rho).epsilon(delta)
    expected = max(0.0, renyi_epsilon(float(rho), float(delta)))
    assert float(epsilon) == pytest.approx(expected, rel=1e-7, abs=1e-12)
    if epsilon:
        back = Budget.approx(epsilon, delta).rho
        assert Fraction(rho) <= back <= Fraction(rho) * (1 + Fraction(1, 10**11))
        assert Budget.approx(epsilon * (1 - Fraction(1, 10**9)), delta).rho < Fraction(rho)


def test_known_rho() -> None:
    rho = Budget.approx(1, "1e-6").rho
    assert float(rho) == pytest.approx(0.0243560, abs=5e-8)


@pytest.mark.parametrize(("epsilon", "delta"), GRID)
def test_rho_is_proved_by_one_order(epsilon: str, delta: str) -> None:
    """Mutant: rho rounded up. Some order must give at most delta, at 2,000 bits; no order may do so 1e-9 above."""
    eps, dlt = Fraction(epsilon), Fraction(delta)
    rho = Budget.approx(eps, dlt).rho

    def excess(t: float, cost: Fraction) -> float:
        """Log of CKS20's delta at order 1 + e^t, less log(delta)."""
        a = 1 + Fraction(float(np.exp(t)))

        def logs() -> flint.arb:
            order = precise(a)
            gain = precise((a - 1) * (a * cost - eps)) - precise(a - 1).log() + order * (1 - 1 / order).log()
            return gain - precise(dlt).log()

        return float(at_2000_bits(logs))

    def best(cost: Fraction) -> float:
        grid = np.linspace(-8, 470, 2000)
        start = grid[int(np.argmin([excess(t, cost) for t in grid]))]
        near = (start - 0.5, start + 0.5)
        return float(optimize.minimize_scalar(excess, near, args=(cost,), bounds=near, method="bounded").fun)

    assert best(rho * (1 - Fraction(1, 10**9))) <= 0
    assert best(rho * (1 + Fraction(1, 10**6))) > 0


@pytest.mark.parametrize("budget", [Budget.pure(1), Budget.gdp(1)])
def test_zcdp_implies_neither_pure_nor_gdp(budget: Budget) -> None:
    """Mutant: gdp priced at mu^2/2 for a mechanism that is only zCDP."""
    with pytest.raises(BudgetError, match="zCDP implies no"):
        _ = budget.rho


# Pure ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", ["1e-300", "1e-8", "0.1", "1", "3", "40", "1000", "70000", "1e9"])
def test_pure_and_gdp_bracket_each_other(epsilon: str) -> None:
    """Mutants: mu = epsilon; rounding to nearest in either direction."""
    eps = Fraction(epsilon)
    mu = pure.mu_of_pure(eps)
    back = Budget.gdp(mu).laplace_epsilon
    assert eps * (1 - TINY) <= back <= eps * (1 + TINY)
    assert Budget.gdp(mu * (1 - TINY)).laplace_epsilon < eps
    if eps <= 1000:

        def holds(m: Fraction, e: Fraction) -> bool:
            return bool(normal_tail(precise(m) / 2) <= 1 / (1 + precise(e).exp()))

        assert at_2000_bits(lambda: holds(mu, eps))
        assert not at_2000_bits(lambda: holds(mu * (1 - TINY), eps))
        assert at_2000_bits(lambda: holds(mu, back))
    if 0.01 < eps < 30:
        assert float(mu) == pytest.approx(2 * special.ndtri(special.expit(float(eps))), rel=1e-12)


def test_laplace_epsilon_of_each_kind() -> None:
    assert Budget.pure("1/3").laplace_epsilon == Fraction(1, 3)
    assert Budget.approx("0.7", "1e-6").laplace_epsilon == Fraction(7, 10)
    assert Budget.zcdp("0.5").laplace_epsilon == 1
    epsilon = Budget.zcdp("0.3").laplace_epsilon
    assert epsilon**2 / 2 <= Fraction(3, 10) < (epsilon * (1 + TINY)) ** 2 / 2


def test_epsilon_without_conversion() -> None:
    assert Budget.pure("0.5").epsilon() == Budget.pure("0.5").epsilon("1e-9") == Fraction(1, 2)
    assert Budget.approx("0.5", "1e-6").epsilon() == Budget.approx("0.5", "1e-6").epsilon("1e-5") == Fraction(1, 2)
    with pytest.raises(BudgetError, match="cannot be lowered"):
        Budget.approx("0.5", "1e-6").epsilon("1e-7")
    for budget in (Budget.zcdp(1), Budget.gdp(1)):
        with pytest.raises(BudgetError, match="only at a delta"):
            budget.epsilon()


# Laws and looks ------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.fractions(min_value=Fraction(1, 10**40), max_value=10**40))
def test_roots_and_roundings_enclose(x: Fraction) -> None:
    low, high = rounding.sqrt_down(x), rounding.sqrt_up(x)
    assert low**2 <= x <= high**2
    assert high - low <= high / 10**15
    assert rounding.sqrt_up(x**2) == x
    down, up = rounding.round_down(x), rounding.round_up(x)
    assert down <= x <= up
    assert up - down <= x / 10**15


@settings(deadline=None, max_examples=25)
@given(
    st.fractions(min_value=Fraction(1, 100), max_value=20), st.fractions(min_value=Fraction(1, 10**9), max_value="0.9")
)
def test_more_budget_allows_more(epsilon: Fraction, delta: Fraction) -> None:
    small, large = Budget.approx(epsilon, delta), Budget.approx(epsilon * 2, delta)
    assert small.mu_squared < large.mu_squared
    assert small.rho < large.rho
    assert small.rho < Budget.zcdp(small.mu_squared / 2).rho
    assert Budget.gdp(1).epsilon(delta) >= Budget.gdp(1).epsilon(delta + (1 - delta) / 2)


@pytest.mark.parametrize(
    ("budget", "currency", "words"),
    [
        (Budget.pure("0.5"), Currency.EPSILON, ["0.5-DP", "scale 2"]),
        (Budget.approx(1, "1e-6"), Currency.MU_SQUARED, ["(1, 1e-6)-DP", "multiplier 4.2247", "mu = 0.2367"]),
        (Budget.zcdp("0.5"), Currency.RHO, ["0.5-zCDP", "multiplier 1", "1e-6"]),
        (Budget.gdp("1/3"), Currency.MU_SQUARED, ["1/3-GDP", "multiplier 3"]),
    ],
)
def test_a_budget_prints_its_conversions(budget: Budget, currency: Currency, words: list[str]) -> None:
    assert budget.currency is currency
    assert all(word in str(budget) for word in words)
    assert str(budget) in repr(budget)
    assert budget.total > 0


@pytest.mark.parametrize("make", [Budget.pure, Budget.zcdp, Budget.gdp, lambda v: Budget.approx(v, "1e-300")])
@pytest.mark.parametrize("value", ["1e-300", "1e9", "1/3"])
def test_extreme_budgets_print_and_total(make: Callable[[str], Budget], value: str) -> None:
    budget = make(value)
    assert len(str(budget)) < 200
    assert budget.total > 0


@pytest.mark.parametrize(
    ("x", "text"),
    [
        (Fraction(0), "0"),
        (Fraction(1, 3), "1/3"),
        (Fraction(1, 10) + Fraction(1, 10**30), "0.100000000000000000000000000001"),
        (Fraction(-1, 10**30), "-1e-30"),
        (Fraction(10**20), "1e20"),
        (Fraction(1, 7**20), "~1.2532543e-17"),
        (Fraction(1, 10**700), "~1e-700"),
    ],
)
def test_numbers_for_people(x: Fraction, text: str) -> None:
    assert readable_number(x) == text


def test_what_cannot_be_converted_says_so() -> None:
    with pytest.raises(BudgetError, match="too small"):
        _ = Budget.approx("1e-300", "1e-300").rho
    with pytest.raises(BudgetError, match="too extreme"):
        pure.mu_of_pure(Fraction(10) ** 100)
