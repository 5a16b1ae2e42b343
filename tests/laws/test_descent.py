"""Laws of one product for a union: never worse than its start, R B = W, exact errors, chosen where it errs least."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sfumato.designs.dense import descent
from sfumato.designs.dense.optimal import optimize
from sfumato.designs.design import Problem
from sfumato.designs.product import Product
from sfumato.domain import Domain, Integers
from sfumato.operators import Block, Dense, Grouping, Identity, LinearOperator, Prefix, Total
from sfumato.plans.plan import price_design
from sfumato.privacy.budget import Budget
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.recipes.choose import plan
from sfumato.workloads import QueryBlock, Workload
from support.reconstructions import reconstruction
from support.unions import SIZES, matrix_of, problem_of

UNIT = PrivacyUnit(Neighbours.ADD_REMOVE)
UNION: list[tuple[float, dict[str, LinearOperator]]] = [
    (1.0, {"a": Prefix(6), "b": Identity(4), "c": Identity(2)}),
    (3.0, {"a": Identity(6), "b": Prefix(4)}),
]


def test_one_product_answers_all_without_bias_at_the_predicted_error() -> None:
    """Mutants: weights left out; Grams of another attribute; attributes that a product lacks left out of its error."""
    problem = problem_of([*UNION], UNIT)
    design = descent.design(problem)
    assert design is not None
    made = price_design(design, problem)
    assert isinstance(made.strategy, Product)
    names = ["a", "b", "c"]
    measured = np.concatenate([matrix_of(b, names) for b in made.strategy.blocks]).astype(np.int64).astype(object)
    assert made.sensitivity.value == max((measured**2).sum(axis=0))
    total = 0.0
    for q in problem.workload.blocks:
        back = reconstruction(made.strategy, q.block)
        np.testing.assert_allclose(back @ measured.astype(np.float64), matrix_of(q.block, names), atol=1e-6)
        shown = np.broadcast_to(made.strategy.row_powers(q.block, 2), [f.shape[0] for f in q.block.factors])
        np.testing.assert_allclose(shown.reshape(-1), (back**2).sum(axis=1), rtol=1e-6)
        total += float(q.weight) * float((back**2).sum())
    # no factor by itself can be improved: each is the optimum of what the others leave
    value = total * made.sensitivity.value
    assert len(made.strategy.factors) == len(names)
    factors = [np.asarray(f.measured.dense(), dtype=np.float64) for f in made.strategy.factors]
    inverses = [np.linalg.inv(f.T @ f) * (f**2).sum(axis=0).max() for f in factors]
    for i in range(len(names)):
        gram = np.zeros_like(inverses[i])
        for q in problem.workload.blocks:
            own = q.block.by_attribute()
            assert own is not None
            grams = [np.asarray((own.get(a) or Total(SIZES[a])).gram().dense(), dtype=np.float64) for a in names]
            others = [float((g * x).sum()) for j, (g, x) in enumerate(zip(grams, inverses, strict=True)) if j != i]
            gram += float(q.weight) * math.prod(others) * grams[i]
        assert value <= optimize(gram).upper_bound ** 2 * (1 + 1e-4)


def test_it_is_chosen_where_tables_share_what_they_ask() -> None:
    domain = Domain({"a": Integers(0, 49), "b": Integers(0, 49)})
    ranges = np.array([[i <= j <= k for j in range(50)] for i in range(50) for k in range(i, 50, 3)], dtype=np.int64)
    parts = [
        Block((("a",), ("b",)), (Dense(ranges), Prefix(50))),
        Block((("a",), ("b",)), (Prefix(50), Dense(ranges))),
    ]
    workload = Workload(domain, tuple(QueryBlock(f"part {i}", b) for i, b in enumerate(parts)))
    made = plan(workload, Budget.gdp(1), neighbours="add-remove", mechanism="factorization")
    assert isinstance(made.strategy, Product)
    assert "one product" in made.strategy.summary
    apart = [c.rmse for c in made.considered if c.strategy == "optimal factorizations"]
    assert apart[0] is not None
    assert made.rmse <= 0.8 * apart[0]
    assert made.lower_bound is not None
    assert made.lower_bound <= made.rmse <= 1.1 * made.lower_bound


@pytest.mark.parametrize(
    "products",
    [
        UNION[:1],
        [(1.0, {"a": Grouping(np.arange(6) // 2, 3), "b": Total(4)}), (1.0, {"a": Total(6), "b": Prefix(4)})],
    ],
    ids=["one product", "cells never told apart"],
)
def test_what_it_does_not_serve_is_left_to_others(products: list[tuple[float, dict[str, LinearOperator]]]) -> None:
    assert descent.design(problem_of([*products], UNIT)) is None
    swap = PrivacyUnit(Neighbours.REPLACE_ONE)
    assert descent.design(problem_of([*UNION], swap)) is None
    problem = problem_of([*UNION], UNIT)
    for other in (
        Problem(problem.workload, problem.budget, UNIT, "laplace"),
        Problem(problem.workload, problem.budget, UNIT, "gaussian", "max"),
    ):
        assert descent.design(other) is None
