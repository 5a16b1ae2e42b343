"""Where docs/errata.md says that a printed formula is wrong and a number can show it, the number is made here."""

from __future__ import annotations

import itertools
import math
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.operators import Block, Dense, Tree
from sfumato.privacy.budget import mu_of_approx, rho_of_approx
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.sketches.predict import paper_parameters
from sfumato.strategies.certificates import exact_sensitivity

HERE = Path(__file__)
PAGE = (HERE.parents[2] / "docs" / "errata.md").read_text(encoding="utf-8")
SWAP = PrivacyUnit(Neighbours.REPLACE_ONE)
PLAIN: dict[str, Any] = {"neighbours": "replace-one", "strategy": "queries"}


def moved(F: Any) -> float:
    """The largest change of F x in L2 when one record is replaced, as the curator prices it."""
    operator = Dense(np.asarray(F))
    found = exact_sensitivity([Block((("t",),), (operator,))], {"t": operator.shape[1]}, SWAP, 2)
    assert found.exact
    return math.sqrt(float(found.value))


def rows() -> list[list[str]]:
    lines = [x for x in PAGE.splitlines() if re.match(r"\| \d+ \|", x)]
    return [[c.strip() for c in re.split(r"(?<!\\)\|", x)[1:-1]] for x in lines]


def test_the_page_is_numbered_and_what_it_calls_checked_is_checked() -> None:
    assert [int(r[0]) for r in rows()] == list(range(1, len(rows()) + 1))
    own = HERE.read_text(encoding="utf-8")
    other = (HERE.parent / "test_sources.py").read_text(encoding="utf-8")
    checked = {r[-1] for r in rows()} - {""}
    for name in checked:
        found = f"def test_{name}_" in own if name.isdigit() else re.search(rf"def test_\w*{name}", other)
        assert found, name
    assert set(re.findall(r"def test_(\d+)_", own)) == {n for n in checked if n.isdigit()}


def test_1_a_sum_over_records_counts_repeated_ones_by_their_square() -> None:
    dataset, f = [0, 1, 1, 2], np.array([1.0, 1.0, 0.0])
    shares = np.bincount(dataset) / 4
    assert f @ shares == sum(f[x] for x in dataset) / 4 == 3 / 4
    assert sum(f[x] * shares[x] for x in dataset) == 5 / 4


def test_3_the_sensitivity_enters_once() -> None:
    """On k equal queries Delta_2 ||F||_{1->2} / n is k / n^2, where c sqrt(k) / n is needed."""
    k, n = 25, 1000
    made = sf.plan(sf.queries(np.tile([1, 0], (k, 1))), sf.approx(1, "1e-6"), **PLAIN)
    assert made.rmse / n == pytest.approx(4.2246789 * math.sqrt(k) / n, rel=1e-6)
    printed = math.sqrt(k) / n * math.sqrt(k) / n
    assert printed < made.rmse / n / 100


def test_8_dividing_by_a_share_of_the_root_grows_with_the_queries() -> None:
    for k in (4, 100):
        error = np.full(k, 0.1)
        assert np.linalg.norm(error) / math.sqrt(k) == pytest.approx(0.1)
        assert np.linalg.norm(error) / (1 / math.sqrt(k)) == pytest.approx(0.1 * k)


@pytest.mark.parametrize("n", [10, 1000])
def test_11_the_variance_falls_as_the_square_of_the_records(n: int) -> None:
    """The exact one is c^2 diam^2 / n^2, at most c^2 (2 / n)^2 ||F||^2 and neither c^2 ||F||^2 nor that over n."""
    F = np.array([[1, -1, 0], [1, 0, 1]])
    norm = np.linalg.norm(F, axis=0).max() ** 2
    made = sf.plan(sf.queries(F), sf.gdp(1), **PLAIN)
    variance = made.rmse**2 / n**2
    assert variance == pytest.approx(moved(F) ** 2 / n**2, rel=1e-6)
    assert variance <= (2 / n) ** 2 * norm < norm / n < norm


def test_14_the_frobenius_norm_sums_squares() -> None:
    R = np.array([[1.0, -1.0], [2.0, 0.5]])
    assert np.linalg.norm(R) ** 2 == pytest.approx((R**2).sum())
    assert abs(np.linalg.norm(R) ** 2 - R.sum()) > 1


def test_15_a_histogram_of_two_cells_errs_more_than_the_printed_bound() -> None:
    """(29) without its factor 2 says c / n for R = M = I; the noise that is needed has c sqrt(2) / n."""
    made = sf.plan(sf.queries([[1, 0], [0, 1]]), sf.gdp(1), **PLAIN)
    assert made.rmse == pytest.approx(math.sqrt(2), rel=1e-6)
    signs = sf.plan(sf.queries([[1, -1]]), sf.gdp(1), **PLAIN)
    assert signs.rmse == pytest.approx(2, rel=1e-6)  # all of the factor


def test_17_the_nearly_equal_queries_are_near_a_row_of_ones() -> None:
    rng = np.random.default_rng(17)
    alpha, R = 0.1, np.ones((3, 1))
    F = 1 + alpha * rng.choice([-1, 1], (3, 5))
    assert np.abs(R @ np.ones((1, 5)) - F).max() <= alpha + 1e-12
    assert np.abs(R @ np.array([[1, 1, 0, 0, 1]]) - F).max() >= 1 - alpha


def test_18_without_its_sign_the_set_of_consistent_answers_is_not_convex() -> None:
    """For F = I it is {h: |h|_1 = 1}: the middle of two points is outside, and projecting may lead away."""
    first, second = np.array([1.0, 0.0]), np.array([-1.0, 0.0])
    assert np.abs((first + second) / 2).sum() < 1
    truth, noisy = np.array([1.0, 0.0]), np.array([-0.1, -0.2])
    corners = np.array([[1, 0], [0, 1], [-1, 0], [0, -1]], dtype=float)
    t = np.linspace(0, 1, 10_001)[:, None]
    edges = [corners[i] * (1 - t) + corners[(i + 1) % 4] * t for i in range(4)]
    points = np.concatenate(edges)
    nearest = points[np.linalg.norm(points - noisy, axis=1).argmin()]
    assert np.linalg.norm(nearest - truth) > 1.3 * np.linalg.norm(noisy - truth)
    # with the sign it is the simplex, where that cannot happen
    projected = sf.project(noisy, sf.queries(np.eye(2)), total=1).answers
    assert np.linalg.norm(projected - truth) <= np.linalg.norm(noisy - truth)


@pytest.mark.parametrize("k", [1, 9])
def test_19_entries_of_both_signs_move_twice_as_far(k: int) -> None:
    assert moved(np.tile([1, -1], (k, 1))) == pytest.approx(2 * math.sqrt(k))
    assert moved(np.tile([1, 0], (k, 1))) == pytest.approx(math.sqrt(k))


def test_21_the_bound_of_the_projection_needs_neither_the_two_nor_the_absolute_value() -> None:
    """Mean squared error of the projection onto the hull, against E max <c_j, Z> and 2 E max |<c_j, Z>|."""
    rng = np.random.default_rng(21)
    F, sigma, runs = rng.integers(0, 2, (20, 12)).astype(float), 0.3, 300
    truth = F @ np.full(12, 1 / 12)
    work = sf.queries(F)
    noise = rng.normal(0, sigma, (runs, 20))
    errors = [((sf.project(truth + z, work, total=1).answers - truth) ** 2).sum() for z in noise]
    pulls = noise @ F
    needed, printed = pulls.max(axis=1).mean(), 2 * np.abs(pulls).max(axis=1).mean()
    assert np.mean(errors) < needed < printed / 2


def test_22_the_order_of_magnitude_of_c_is_too_little_noise() -> None:
    """sqrt(log(1/delta)) / epsilon, taken as a multiplier, is below the exact one wherever delta is small enough."""
    for epsilon, delta in itertools.product(("0.5", "1", "5", "10"), ("1e-6", "1e-9")):
        exact = 1 / float(mu_of_approx(Fraction(epsilon), Fraction(delta)))
        assert math.sqrt(math.log(1 / float(delta))) / float(epsilon) < exact
    assert math.sqrt(math.log(1e6)) == pytest.approx(3.717, abs=1e-3)
    assert 1 / float(mu_of_approx(Fraction(1), Fraction(1, 10**6))) == pytest.approx(4.225, abs=1e-3)


def test_23_a_factorization_can_hurt() -> None:
    work = sf.queries(np.eye(8, dtype=int))
    tree = sf.plan(work, sf.gdp(1), neighbours="add-remove", strategy=Tree(8).dense())
    itself = sf.plan(work, sf.gdp(1), neighbours="add-remove", strategy="queries")
    assert itself.rmse == pytest.approx(1, rel=1e-6)
    assert tree.rmse > 1.2


def test_27_no_mechanism_has_the_printed_privacy() -> None:
    for epsilon, delta in ((0.1, 0.0), (1.0, 1e-6)):
        everything = 1.0
        assert everything < math.exp(epsilon) * everything + delta


def test_30_a_field_of_a_power_of_two_holds_all_indices() -> None:
    signs, universe = 897, 2**20
    printed = next(s for s in range(64) if 2**s <= signs * universe)
    needed = next(s for s in range(64) if 2**s >= signs * universe)
    assert (printed, needed) == (0, 30)


def test_32_the_sigma_of_sparse_project_is_an_inverse_scale() -> None:
    found = paper_parameters(64, 100_000, 1000, 1, 1e-6).laplace_scale
    assert found == pytest.approx(10.513, abs=1e-3)
    assert found * math.sqrt(2) == pytest.approx(14.87, abs=5e-3)


def test_35_the_rho_of_the_projection_lecture_is_twice_that_of_zcdp() -> None:
    """Variance Delta^2 / rho there: rho-zCDP of Gaussian noise is half of it, and so are budgets and plans here."""
    made = sf.plan(sf.queries([[1, 0]]), sf.zcdp("0.25"), **PLAIN)
    assert 1 / made.rmse**2 == pytest.approx(2 * 0.25, rel=1e-6)
    exact = float(sf.approx(1, "1e-6").mu_squared)
    assert exact == pytest.approx(0.05603, abs=1e-5)
    assert 2 * float(rho_of_approx(Fraction(1), Fraction(1, 10**6))) < exact < 1 / math.log(1e6)


def test_38_the_records_needed_go_as_the_root_of_rho() -> None:
    """alpha^2 = l*(K) / (n sqrt(k rho)) of the last line of section 3, solved for n, as theorem 8 has it."""
    k, width, alpha, rho = 50, 7.0, 0.1, 0.056

    def bound(n: float) -> float:
        return width / (n * math.sqrt(k * rho))

    assert bound(width / (math.sqrt(k * rho) * alpha**2)) == pytest.approx(alpha**2)
    assert bound(width / (math.sqrt(k) * alpha**2 * rho)) == pytest.approx(alpha**2 * math.sqrt(rho))


def test_41_a_smaller_copy_of_the_relaxation_is_not_within_the_polytope() -> None:
    """The four answers of a pair of attributes add up to 1 for every table, and to 1 / C after dividing by C."""
    work = sf.marginals(sf.Domain({"a": 2, "b": 2, "c": 2}), order=2)
    corners = np.asarray(work.operator.dense())
    assert (corners.reshape(3, 4, 8).sum(axis=1) == 1).all()
    answers = corners.mean(axis=1)  # in K, and in L
    shrunk = answers / 1.5
    inside = sf.project(shrunk, work, total=1, body="hull").answers
    assert np.linalg.norm(inside - shrunk) > 0.1
