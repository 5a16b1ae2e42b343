"""What a plan accepts, a release answers: nothing fails after the debit for what the plan knew."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import sfumato as sf
from sfumato.designs.factors import Contrasts, Matrix
from sfumato.operators import Dense, Identity

BUDGETS = {"gdp": sf.gdp(1), "approx": sf.approx(1, "1e-6"), "pure": sf.pure(1)}


@pytest.mark.parametrize("kind", [Matrix, Contrasts])
@pytest.mark.parametrize("rank", [4, 3])
def test_least_squares_over_few_rows_are_those_over_the_cells(kind: type[Matrix], rank: int) -> None:
    """Mutants: (AAᵀ)^+ applied once in `cells_of_rows`; the known total left out of the rows of contrasts."""
    rng = np.random.default_rng(5)
    rows = rng.integers(-9, 10, (4, 2_100))
    rows[rank:] = rows[0] - rows[1]
    made = kind(Dense(rows), 2.0)
    scaled = rows / 2.0
    known = np.sqrt((scaled**2).sum()) / 2_100 * np.ones((1, 2_100))
    whole = np.vstack([scaled, known]) if kind is Contrasts else scaled
    inverse = np.linalg.pinv(whole)
    asked = rng.integers(-2, 3, (3, 4)) @ rows
    noise = rng.normal(size=(4, 2))
    np.testing.assert_allclose(made.cells(noise), inverse[:, :4] @ noise, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(made.row_powers(Dense(asked), 2), ((asked @ inverse) ** 2).sum(axis=1), rtol=1e-8)
    fourth = ((asked @ inverse[:, :4]) ** 4).sum(axis=1)
    np.testing.assert_allclose(made.row_powers(Dense(asked), 4), fourth, rtol=1e-8)
    np.testing.assert_allclose(made.cells_of_rows(asked), asked @ inverse @ inverse.T, rtol=1e-8, atol=1e-11)
    made.check(Dense(asked), "x")
    with pytest.raises(sf.NotAnswerable, match="outside the span"):
        made.check(Dense(np.vstack([asked, rng.integers(0, 2, 2_100)])), "x")
    if kind is Contrasts:
        found = made.spread_ones()
        assert found is not None
        np.testing.assert_allclose(found, inverse @ inverse.T @ np.ones(2_100), rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("asked", ["sum", "predicate"])
def test_one_query_over_many_cells_is_answered(asked: str, budget: str, relation: str) -> None:
    """Mutant: the least-squares cells of what is answered by itself worked out at once, cells by cells."""
    domain = sf.Domain({"x": sf.Integers(0, 10_000)})
    work = sf.sums(domain, "x") if asked == "sum" else sf.predicates(domain, ["x >= 2 and x < 7000"])
    plan = sf.plan(work, BUDGETS[budget], neighbours=relation)
    counts = np.zeros(10_001, dtype=np.int64)
    counts[[1, 5_000]] = 10**3, 10**6
    found = sf.release(plan, sf.Histogram(counts), ledger=None)
    exact = float(Fraction(5_000 * 10**6 + 10**3) if asked == "sum" else 10**6)
    low, high = found.intervals(1 - 1e-9).low[0], found.intervals(1 - 1e-9).high[0]
    assert low <= exact <= high < 1.01 * exact
    assert found.standard_errors() == pytest.approx([plan.rmse])


def test_what_is_not_answered_by_few_rows_is_refused_in_words() -> None:
    """Mutant: rows outside the span answered by their projection."""
    domain = sf.Domain({"x": sf.Integers(0, 10_000)})
    found = sf.release(sf.plan(sf.sums(domain, "x"), sf.gdp(1), neighbours="add-remove"), _one(10_001), ledger=None)
    with pytest.raises(sf.NotAnswerable, match="outside the span"):
        found.ask("x < 5")
    assert Matrix(Identity(3)).spread_ones() is not None


def _one(cells: int) -> sf.Histogram:
    return sf.Histogram(np.ones(cells, dtype=np.int64))
