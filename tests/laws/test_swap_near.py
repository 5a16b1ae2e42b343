"""Replace-one above the sizes whose optimum is searched for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from sfumato.domain import Domain, Integers
from sfumato.planner.planning import plan
from sfumato.privacy.budget import Budget
from sfumato.strategies import dense_swap as swap
from sfumato.strategies import dense_swap as swap_mechanism
from sfumato.strategies.dense_swap import swap_levels, swap_near, swap_optimum
from sfumato.workloads import Workload, prefix, queries, ranges


@pytest.mark.parametrize("ask", [prefix, ranges])
def test_near_strategies_are_between_the_bound_and_a_few_percent(
    ask: Callable[[Domain, str], Workload], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What larger domains get, on one that has the optimum. Mutants: dual weights squared; the longest column."""
    domain = Domain({"a": Integers(0, 39)})
    work = ask(domain, "a")
    matrix = np.asarray(work.operator.dense(), dtype=np.float64)
    best, near = swap_optimum(matrix=matrix), swap_near(matrix.T @ matrix)
    assert near.lower_bound <= best.upper_bound
    assert best.lower_bound <= near.upper_bound <= 1.05 * best.upper_bound
    assert near.lower_bound >= 0.9 * best.lower_bound
    assert near.pairs[np.triu_indices(40, 1)].sum() == pytest.approx(1)
    centred = matrix - matrix.mean(axis=1)[:, None]
    attained = np.linalg.norm(centred @ np.linalg.pinv(near.strategy))
    columns = near.strategy.T
    longest = max(np.linalg.norm(a - b) for a in columns for b in columns)
    assert longest <= 1
    assert attained * longest == pytest.approx(near.upper_bound, rel=1e-6)
    monkeypatch.setattr(swap_mechanism, "MAX_ALONE", 16)
    monkeypatch.setattr(swap_mechanism, "MAX_SWAP", 16)
    # a matrix, of which no order of the cells is known
    work = queries(matrix, domain)
    made = plan(work, Budget.gdp(1), neighbours="replace-one", mechanism="factorization")
    assert made.rmse == pytest.approx(near.upper_bound / np.sqrt(len(work)), rel=1e-4)
    # another bound may prove more, never more than the optimum
    assert made.lower_bound is not None
    assert near.lower_bound * (1 - 1e-6) <= made.lower_bound * np.sqrt(len(work)) <= best.upper_bound


@pytest.mark.parametrize(("n", "most"), [(150, 2e-3), (151, 2e-3), (300, 2e-3)])
@pytest.mark.parametrize("ask", [prefix, ranges])
def test_levels_of_an_order_end_near_the_optimum(
    ask: Callable[[Domain, str], Workload], n: int, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutants: weights of the coarser cells shifted by one; the strategy of one level less."""
    domain = Domain({"a": Integers(0, n - 1)})
    work = ask(domain, "a")
    gram = np.asarray(work.operator.gram().dense(), dtype=np.float64)
    near = swap_levels(gram)
    assert near.gap <= most
    best = swap_optimum(gram, tolerance=1e-4)
    assert best.lower_bound <= near.upper_bound
    assert near.lower_bound <= best.upper_bound
    monkeypatch.setattr(swap, "_ONCE", 128)
    assert swap_levels(gram).gap <= 0.02
    monkeypatch.setattr(swap_mechanism, "MAX_ALONE", 128)
    monkeypatch.setattr(swap_mechanism, "MAX_SWAP", 128)
    made = plan(work, Budget.gdp(1), neighbours="replace-one", mechanism="factorization")
    assert made.lower_bound is not None
    assert 1.0 < made.rmse / made.lower_bound <= 1.02
