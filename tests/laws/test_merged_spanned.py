"""Few rows that very many queries are combinations of: the optimum, every query answered exactly, and tables that go
over to queries which nearly tell them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import sfumato as sf
from sfumato.mechanisms.searches import SEARCHED, Found, labelled, run
from sfumato.mechanisms.separate_parts import parted
from sfumato.operators import Block, Combination, Dense, Identity, LinearOperator, Prefix
from sfumato.operators.structured import AllRange
from sfumato.plans.plan import price_design
from sfumato.privacy.columns import distinct_columns
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.strategies.dense_optimal import optimize_dense
from sfumato.strategies.design import Problem
from sfumato.strategies.merged import Merged, columns_by_class
from sfumato.strategies.merged_planning import least_error
from sfumato.strategies.merged_rows import independent_rows, nearly_known
from sfumato.strategies.strategy import marginalise
from sfumato.strategies.union_planning import few_rows
from sfumato.workloads import QueryBlock, Workload
from sfumato.workloads.core import block_on_domain

SIZES = {"a": 5, "b": 4, "c": 6}


def _union(seed: int) -> Workload:
    """Products of cells, prefixes, ranges, sets and single counts; one block lies within another, one is turned."""
    rng = np.random.default_rng(seed)
    domain = sf.Domain({n: sf.Categories([str(j) for j in range(k)]) for n, k in SIZES.items()})

    def one(cells: int) -> LinearOperator:
        some = rng.integers(0, 2, cells)
        some[:2] = 1, 0
        return Dense(some[None])

    sets = Dense((np.array([0, 0, 1, 2, 2, 1])[None] == np.arange(3)[:, None]).astype(np.int64))
    made: list[dict[str, LinearOperator]] = [
        {"a": AllRange(5), "b": one(4)},
        {"c": sets, "b": Prefix(4)},
        {"b": Identity(4), "c": sets},
        {"a": one(5), "c": one(6), "b": Identity(4)},
        {"a": one(5), "b": one(4), "c": one(6)},
    ]
    blocks = [
        QueryBlock("part", Block(tuple((n,) for n in f), tuple(f.values())), Fraction(k + 1))
        for k, f in enumerate(made)
    ]
    return Workload(domain, tuple(blocks))


def _problem(work: Workload) -> Problem:
    return Problem(work, sf.gdp(1), PrivacyUnit(Neighbours.ADD_REMOVE), "gaussian", "cells")


def _gram(problem: Problem) -> np.ndarray:
    work = problem.workload
    each = [problem.objective_weight(q) * block_on_domain(work.domain, q.block).gram().dense() for q in work.blocks]
    return np.sum(each, axis=0)


@pytest.mark.parametrize("seed", range(3))
def test_columns_by_class_are_all_columns(seed: int) -> None:
    """Mutant: one wave for all rows, by which columns that differ are one."""
    blocks = [q.block for q in _union(seed).blocks]
    found = columns_by_class(blocks, SIZES)
    every = distinct_columns([b.lowered() for b in blocks], SIZES)
    assert set(map(tuple, found.T.tolist())) == set(map(tuple, every.T.tolist()))
    assert found.shape == every.shape


@pytest.mark.parametrize("beside", [0.0, 1e-9, 1e-5, 1e-2])
def test_rows_are_independent_however_near_they_lie(beside: float) -> None:
    """Mutant: rows in the span of others by their inner products alone, which say nothing of a billionth."""
    rows = np.tri(8, 20)
    near = rows[:5].sum(axis=0) + beside * np.arange(20.0)
    stacked = np.vstack([rows, rows[2] + rows[6], near])
    kept = independent_rows(stacked)
    assert len(kept) == 8 + (beside > 0)
    assert np.linalg.matrix_rank(stacked[kept], tol=1e-12) == len(kept)


@pytest.mark.parametrize("seed", range(2))
def test_the_plan_is_the_dense_optimum_and_answers_every_query(seed: int) -> None:
    """Mutants: rows that are not combined read as zero; factors in the block's order for a query that is turned."""
    problem = _problem(_union(seed))
    plan = price_design(few_rows(problem), problem)
    best = optimize_dense(_gram(problem), tolerance=1e-6)
    scale = np.sqrt(problem.total_weight)
    assert best.lower_bound / scale <= plan.objective_value * (1 + 1e-6)
    assert plan.objective_value <= best.upper_bound / scale * (1 + 2e-3)
    assert plan.bound is not None
    assert plan.bound <= best.upper_bound / scale
    x = np.random.default_rng(seed).integers(0, 50, tuple(SIZES.values()))
    strategy = plan.strategy
    exact = strategy.estimate([marginalise(x, tuple(SIZES), b) for b in strategy.blocks], None)
    for query in problem.workload.blocks:
        wanted = marginalise(x, tuple(SIZES), query.block)
        np.testing.assert_allclose(strategy.answer(exact, query.block), wanted, rtol=1e-6, atol=1e-5)


def test_tables_that_a_cumulative_table_nearly_tells() -> None:
    """A set of several cells tells none of its attribute's tables, a cumulative table all but a cell."""
    over = Block((("a",), ("b",)), (Prefix(5), Identity(4)))
    assert nearly_known([over]) == {frozenset(), frozenset("a"), frozenset("b"), frozenset("ab")}
    assert nearly_known([Block((("a",),), (Dense(np.array([[1, 1, 0, 0, 0]])),))]) == {frozenset()}


def _soon(part: Problem) -> Found:
    """Residuals first, and factorizations where these are not proved the best."""
    return run(part, (*labelled("marginals"), *labelled("factorization")), first="marginals", most=SEARCHED)


def _nothing(blocks: Sequence[Block]) -> set[frozenset[str]]:
    del blocks
    return set()


def _offered() -> Problem:
    """Tables beside a cumulative table that tells some of them but for a cell, and a total."""
    domain = sf.Domain({"age": 20, "a": 3, "b": 4, "c": 5})
    work = sf.stack(tables=sf.marginals(domain, upto=2), cdf=sf.prefix(domain, "age", by=["a"]), total=sf.total(domain))
    return replace(_problem(work), objective="tables")


@pytest.mark.parametrize("rows", [1, 3])
def test_the_least_error_of_some_queries_is_not_reached_and_nearly(rows: int) -> None:
    """Mutants: the error that a rough strategy has in place of the bound; rows of a person left out; weights as if the
    other parts were not there."""
    problem = _offered()
    person = PrivacyUnit(Neighbours.ADD_REMOVE, person="age", rows_per_person=rows) if rows > 1 else problem.unit
    problem = replace(problem, unit=person)
    few = [q for q in problem.workload.blocks if q.part != "tables"]
    found = least_error(problem, few)
    columns = columns_by_class([q.block for q in few], problem.sizes)
    weights = np.repeat([problem.objective_weight(q) for q in few], [q.rows for q in few])
    best = optimize_dense(matrix=columns * np.sqrt(weights)[:, None])
    assert found is not None
    assert 0.97 * rows * best.lower_bound < found <= rows * best.upper_bound
    # a bound that is found at once is one, too, and is taken where it is enough
    soon = least_error(problem, few, 0.0)
    assert soon is not None
    assert 0.8 * rows * best.lower_bound < soon < found
    assert least_error(problem, few, soon) == found
    assert least_error(replace(problem, noise="laplace"), few) is None
    assert least_error(replace(problem, unit=PrivacyUnit(Neighbours.REPLACE_ONE)), few) is None


def test_queries_that_take_tables_over_are_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same plan with a search for these queries alone, and without. Mutant: the bound never asked for."""
    problem, searches = _offered(), list[int]()

    def counted(part: Problem) -> Found:
        searches.append(len(part.workload.items))
        return _soon(part)

    def found() -> float:
        design = parted(problem, lambda part, _: counted(part))
        assert design is not None
        return price_design(design, problem).objective_value

    least, number = found(), len(searches)
    monkeypatch.setattr("sfumato.mechanisms.separate_parts.least_error", lambda *_: None)
    assert found() == least
    assert number == len(searches) - number - 1


def test_cells_that_are_looked_at_move_along_every_attribute() -> None:
    """Mutant: multiples of the root of a square, which stand still."""
    sizes = (2, 3, 5, 2, 7, 4, 6, 2, 3)
    block = Block(tuple((n,) for n in "abcdefghi"), tuple(Dense(np.ones((1, k), dtype=np.int64)) for k in sizes))
    held = Merged(Combination((block,), np.ones((1, 1), dtype=np.int64)), sizes)
    cells = held._some[0]
    assert [len(np.unique(c)) for c in cells.values()] == list(sizes)
    codes = np.stack(list(cells.values()))
    assert np.abs(np.corrcoef(codes) - np.eye(len(sizes))).max() < 0.5


def test_tables_go_over_to_the_queries_that_nearly_tell_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: the tables left where they were."""
    problem = _offered()

    def shared() -> float:
        design = parted(problem, lambda part, _: _soon(part))
        assert design is not None
        return price_design(design, problem).objective_value

    found = shared()
    monkeypatch.setattr("sfumato.mechanisms.separate_parts.nearly_known", _nothing)
    assert found < shared() * (1 - 1e-3)
