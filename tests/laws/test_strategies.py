"""Laws of every strategy: R B = W, and the predicted row powers are those of R itself, found by linearity."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.domain import Domain, Integers
from sfumato.errors import NotAnswerable, PlanError
from sfumato.operators import Block, Identity
from sfumato.privacy.budget import Budget
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.strategies import direct
from sfumato.strategies import trees as tree
from sfumato.strategies.design import Design, Problem
from sfumato.strategies.strategy import Strategy, marginalise
from sfumato.workloads import Workload, identity, prefix, queries, ranges, stack, sums, total, windows
from sfumato.workloads import marginals as marginal_workload
from support.reconstructions import check_covariances
from support.searching import designs

DOMAIN = Domain({"age": Integers(0, 5), "sex": Integers(0, 1), "place": Integers(0, 3, outside="other")})
MAKERS = {
    "direct": direct.design_direct,
    "tree": tree.design_trees,
    "matrix": partial(designs, label="factorization"),
    "marginals": partial(designs, label="marginals"),
}


def _random_queries(seed: int) -> Workload:
    rng = np.random.default_rng(seed)
    return queries(rng.integers(-2, 3, (7, 6)), DOMAIN, attribute="age")


WORKLOADS = {
    "prefix by": prefix(DOMAIN, "age", by=["sex"]),
    "ranges with an extra cell": ranges(DOMAIN, "place"),
    "windows": windows(DOMAIN, "age", width=3),
    "all pairs": marginal_workload(DOMAIN, order=2),
    "up to three": marginal_workload(DOMAIN, upto=3),
    "identity": identity(DOMAIN, "age", "place"),
    "sums": sums(DOMAIN, "age", by=["sex"]),
    "total": total(DOMAIN),
    "random": _random_queries(1),
    "joint": queries(np.random.default_rng(2).integers(0, 2, (9, 60)), DOMAIN),
    "real": queries(np.random.default_rng(3).normal(size=(4, 6)), DOMAIN, attribute="age"),
    "mixed": stack(
        cdf=prefix(DOMAIN, "age", by=["sex"]),
        tables=marginal_workload(DOMAIN, sets=[("sex", "place")]),
        n=total(DOMAIN),
    ),
    "weighted": stack(a=prefix(DOMAIN, "age"), b=identity(DOMAIN, "place"), weights={"a": 5}),
}


def _problem(work: Workload, relation: Neighbours, noise: str = "gaussian") -> Problem:
    budget = Budget.pure(1) if noise == "laplace" else Budget.gdp(1)
    return Problem(work, budget, PrivacyUnit(relation), noise)


def _reconstructions(strategy: Strategy, blocks: Sequence[Block]) -> list[np.ndarray]:
    """R of every block, by feeding unit vectors."""
    sizes = [b.rows for b in strategy.blocks]
    columns = []
    for unit in np.eye(sum(sizes)):
        estimate = strategy.estimate(np.split(unit, np.cumsum(sizes)[:-1]), 0)
        columns.append([strategy.answer(estimate, block) for block in blocks])
    return [np.stack([c[i] for c in columns], axis=1) for i in range(len(blocks))]


def _check(strategy: Strategy, work: Workload, rng: np.random.Generator, tolerance: float) -> None:
    x = rng.integers(0, 30, DOMAIN.shape)
    exact = [marginalise(x, DOMAIN.names, b) for b in strategy.blocks]
    estimate = strategy.estimate(exact, int(x.sum()))
    maps = _reconstructions(strategy, [q.block for q in work.blocks])
    for query, reconstruction in zip(work.blocks, maps, strict=True):
        truth = marginalise(x, DOMAIN.names, query.block)
        found = strategy.answer(estimate, query.block)
        slack = strategy.bias_bound(query.block) * x.sum()
        np.testing.assert_allclose(found, truth, atol=tolerance * (1 + np.abs(truth).max()) + slack)
        shape = tuple(f.shape[0] for f in query.block.factors)
        second = np.broadcast_to(strategy.row_powers(query.block, 2), shape).reshape(-1)
        brute = (reconstruction**2).sum(axis=1)
        # a known total has no error at all; by linearity it shows as rounding of the other rows
        least = 1e-12 / float(strategy.max_abs) ** 2
        np.testing.assert_allclose(second, brute, rtol=1e-6, atol=least)
    check_covariances(strategy, [q.block for q in work.blocks], maps)


@pytest.mark.parametrize("relation", list(Neighbours))
@pytest.mark.parametrize("maker", list(MAKERS))
@pytest.mark.parametrize("name", list(WORKLOADS))
def test_reconstruction_is_unbiased_and_its_errors_are_predicted(name: str, maker: str, relation: Neighbours) -> None:
    """Mutants: variance for deviation, a lost weight in the stack, the public total left out of the errors."""
    work = WORKLOADS[name]
    rng = np.random.default_rng(7)
    try:
        designs: list[Design] = MAKERS[maker](_problem(work, relation))
    except PlanError:
        assert maker in ("tree", "marginals")
        assert name in ("identity", "all pairs", "up to three", "total", "random", "joint", "real", "sums")
        return
    for design in designs:
        _check(design.build(design.fine), work, rng, 1e-6)


@pytest.mark.parametrize("maker", list(MAKERS))
@pytest.mark.parametrize("name", ["prefix by", "all pairs", "random", "mixed", "joint"])
def test_fourth_powers_are_those_of_the_reconstruction(name: str, maker: str) -> None:
    """The shape of Laplace intervals rests on them. Mutant: squares of the sums of squares."""
    work = WORKLOADS[name]
    try:
        designs = MAKERS[maker](_problem(work, Neighbours.ADD_REMOVE, "laplace"))
    except PlanError:
        assert maker == "tree"
        return
    for design in designs:
        strategy = design.build(design.fine)
        maps = _reconstructions(strategy, [q.block for q in work.blocks])
        for query, reconstruction in zip(work.blocks, maps, strict=True):
            shape = tuple(f.shape[0] for f in query.block.factors)
            fourth = np.broadcast_to(strategy.row_powers(query.block, 4), shape).reshape(-1)
            np.testing.assert_allclose(fourth, (reconstruction**4).sum(axis=1), rtol=1e-6)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["all pairs", "mixed", "prefix by"]), st.sampled_from(list(MAKERS)))
def test_further_questions_are_unbiased_or_refused(seed: int, name: str, maker: str) -> None:
    """A question outside the span must be refused, never answered with a bias."""
    rng = np.random.default_rng(seed)
    try:
        design = MAKERS[maker](_problem(WORKLOADS[name], Neighbours.ADD_REMOVE))[0]
    except PlanError:
        return
    strategy = design.build(design.fine)
    names = [n for n in DOMAIN.names if rng.random() < 0.6] or ["age"]
    cells = int(np.prod(DOMAIN.sizes(names)))
    asked = queries(rng.integers(-1, 2, (2, cells)), Domain({n: DOMAIN[n] for n in names}))
    block = asked.blocks[0].block
    x = rng.integers(0, 30, DOMAIN.shape)
    values = [marginalise(x, DOMAIN.names, b) for b in strategy.blocks]
    try:
        found = strategy.answer(strategy.estimate(values, None), block)
    except NotAnswerable:
        return
    np.testing.assert_allclose(found, marginalise(x, DOMAIN.names, block), atol=1e-4)


def test_a_table_that_was_not_measured_is_refused() -> None:
    """Pairs say nothing about the triple."""
    design = designs(_problem(WORKLOADS["all pairs"], Neighbours.ADD_REMOVE), "marginals")[0]
    strategy = design.build(design.fine)
    triple = Block((("age",), ("sex",), ("place",)), (Identity(6), Identity(2), Identity(5)))
    with pytest.raises(NotAnswerable, match="age, place, sex"):
        strategy.check(triple)
