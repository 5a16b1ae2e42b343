"""Numbers and guarantees in words."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.present.words import round_to_error, show_figures, superscript_exponent
from sfumato.privacy.accounting import ApproxEvent, BoundedRangeEvent, GaussianEvent, PureEvent, ZcdpEvent
from sfumato.privacy.ledger.words import attack_success, percent_up, secrecy_clause
from sfumato.privacy.unit import Neighbours, PrivacyUnit


def test_attack_success_of_gaussian_noise_is_its_total_variation() -> None:
    for mu in (Fraction(1, 4), Fraction(1), Fraction(3)):
        x = np.linspace(-12, 12 + float(mu), 400_001)
        a, b = (np.exp(-((x - m) ** 2) / 2) / math.sqrt(2 * math.pi) for m in (0.0, float(mu)))
        exact = 0.5 + np.abs(a - b).sum() * (x[1] - x[0]) / 4
        assert attack_success(GaussianEvent(mu**2)) == pytest.approx(exact, abs=1e-6)


def test_attack_success_bounds_what_it_must() -> None:
    for rho in (Fraction(1, 1000), Fraction(1, 8), Fraction(1), Fraction(5), Fraction(50)):
        # Gaussian noise is one zCDP mechanism among others: the bound must hold for it
        assert 0.5 < attack_success(GaussianEvent(2 * rho)) <= attack_success(ZcdpEvent(rho)) <= 1
    for epsilon in (Fraction(1, 100), Fraction(1), Fraction(6)):
        # randomised response attains the pure bound
        e = math.exp(float(epsilon))
        assert attack_success(PureEvent(epsilon)) == pytest.approx(e / (1 + e))
        assert attack_success(BoundedRangeEvent(epsilon)) <= attack_success(PureEvent(epsilon))


@given(st.floats(min_value=1e-12, max_value=1e12))
def test_numbers_are_shown_to_three_figures(value: float) -> None:
    shown = show_figures(value).replace(",", "")
    head, mark, power = shown.partition("·10")
    digits = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
    read = float(head) * 10.0 ** int(power.translate(digits)) if mark else float(shown)
    assert read == pytest.approx(value, rel=6e-3)
    assert show_figures(-value) == "−" + show_figures(value)


def test_numbers_that_are_no_numbers() -> None:
    assert [show_figures(v) for v in (None, math.nan, math.inf, -math.inf, 0.0)] == ["–", "–", "∞", "−∞", "0"]
    assert [round_to_error(v, e) for v, e in ((1234.567, 31.2), (1234.567, 3.12), (-0.04, 5.0), (7.0, 0.0))] == [
        "1,235",
        "1,234.6",
        "0.0",
        "7",
    ]
    assert [superscript_exponent(t) for t in ("1e-6", "2.5e7", "0.01")] == ["10⁻⁶", "2.5·10⁷", "0.01"]
    assert [percent_up(p) for p in (0.5, 0.54700001, 1.0)] == ["50.0 %", "54.8 %", "100.0 %"]


def test_what_an_attacker_wants_is_said_for_every_unit() -> None:
    units = [PrivacyUnit(n, p, c) for n, (p, c) in itertools.product(Neighbours, [(None, 1), ("id", 1), ("id", 3)])]
    texts = [secrecy_clause(u) for u in units]
    assert len(set(texts)) >= 5
    assert all(t.startswith(("whether one given", "which of two")) for t in texts)


def test_attack_success_of_a_mechanism_with_a_delta() -> None:
    """Against the extreme pair of laws: with probability delta the table is told, else randomised response."""
    epsilon, delta = 0.7, 0.05
    honest = (1 - delta) * math.exp(epsilon) / (1 + math.exp(epsilon))
    assert attack_success(ApproxEvent(Fraction(epsilon), Fraction(delta))) == pytest.approx(delta + honest)
    assert attack_success(ApproxEvent(Fraction(epsilon), Fraction(1, 10**12))) == pytest.approx(
        attack_success(PureEvent(Fraction(epsilon)))
    )
