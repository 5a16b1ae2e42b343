"""A strategy is called the optimum where that is proved of it, and nowhere else."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.strategies import dense_planning as matrix
from sfumato.strategies import dense_swap as swap
from sfumato.strategies import union_planning as unions
from sfumato.strategies.dense_dual import optimality_title
from sfumato.strategies.dense_swap import swap_optimum
from sfumato.strategies.union import QUICK
from support.words import plan_with

DOMAIN = sf.Domain({"a": 12, "b": 4, "c": 4})
SINGLE = sf.queries(np.tril(np.ones((12, 12), dtype=np.int64)) * np.arange(1, 13) ** 2)
UNION = sf.stack(sf.prefix(DOMAIN, "a", by="b"), sf.marginals(DOMAIN, sets=[("a", "c"), ("b", "c")]))


def title(work: sf.Workload, **options: Any) -> str:
    given: dict[str, Any] = {"neighbours": "add-remove", "mechanism": "factorization"} | options
    budget = given.pop("budget", sf.gdp(1))
    return str(plan_with(work, budget, **given).strategy.summary)


def hurried(solver: Any, **options: Any) -> Any:
    """The solver, stopped before it is there."""
    return functools.partial(solver, **options)


def test_words_by_the_gap() -> None:
    assert optimality_title("factorization", 1e-7) == "the optimal factorization"
    assert optimality_title("factorization", 0.072) == "a factorization within 7.2% of the optimal one"
    assert optimality_title("factorization", math.inf) == "a factorization"


def test_the_optimum_is_called_so_where_it_is_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutants: a name whatever the gap; the optimum under add-remove called the optimum where the total is known."""
    assert title(SINGLE).startswith("the optimal factorization over ")
    assert "optimal" not in title(SINGLE, budget=sf.pure(1))
    monkeypatch.setattr(matrix, "optimize_dense", hurried(matrix.optimize_dense, max_iterations=1))
    assert title(SINGLE).startswith("a factorization within ")


def test_the_optimum_of_the_mean_is_not_called_that_of_the_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    assert title(SINGLE, objective="max").startswith("the optimal factorization over ")
    monkeypatch.setattr(matrix, "MAX_LARGEST", 0)
    assert title(SINGLE, objective="max").startswith("a factorization over ")


def test_where_the_total_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"neighbours": "replace-one"}
    assert title(SINGLE, **options).startswith("the optimal factorization over ")
    assert title(SINGLE, **options).endswith("for a known total")
    monkeypatch.setattr(swap, "swap_optimum", hurried(swap_optimum, max_iterations=1))
    monkeypatch.setattr(swap, "_GAP", math.inf)
    assert title(SINGLE, **options).startswith("a factorization within ")
    monkeypatch.setattr(swap, "_joint_table_attributes", lambda _: None)
    assert title(SINGLE, **options).startswith("a factorization over ")


def test_unions_of_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    assert title(UNION).startswith("the optimal strategy in ")
    monkeypatch.setattr(unions, "QUICK", QUICK._replace(tolerance=0.5))
    monkeypatch.setattr(
        "sfumato.strategies.merged_planning._MAX_BLOCKS", 0
    )  # all queries together would be the optimum
    monkeypatch.setattr(unions, "_MOST_SIDE", 0)  # as would be that over few rows
    assert title(UNION).startswith("a strategy within ")
