"""Queries over very many distinct columns of few entries: the same optimum as the dense search finds, and its proof."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import sfumato as sf
from sfumato.operators import Block
from sfumato.strategies import merged_planning as planning
from sfumato.strategies import union_planning
from sfumato.strategies.dense_optimal import optimize_dense
from sfumato.strategies.merged_rows import independent_row_basis, optimize_sparse, sparse_search_fits
from sfumato.strategies.stacked import Stacked
from sfumato.strategies.strategy import Strategy
from sfumato.workloads import QueryFamily


def _sets(rng: np.random.Generator) -> np.ndarray:
    """Disjoint sets of the cells of pairs of three attributes, (rows, 6 x 7 x 8)."""
    cells = np.indices((6, 7, 8)).reshape(3, -1)
    rows = []
    for pair in itertools.combinations(range(3), 2):
        places = [rng.integers(0, 3, n)[cells[i]] for i, n in enumerate((6, 7, 8)) if i in pair]
        rows.append(np.arange(9)[:, None] == places[0] * 3 + places[1])
    return np.unique(np.concatenate(rows).astype(np.int64), axis=1)


@pytest.mark.parametrize("seed", range(4))
def test_the_search_reaches_the_dense_optimum_and_proves_it(seed: int) -> None:
    """Mutants: the bound taken from the column of least length; steps that go down kept; weights not under a root."""
    rng = np.random.default_rng(seed)
    columns = _sets(rng)
    weights = rng.uniform(0.5, 20.0, len(columns))
    best = optimize_dense(matrix=columns * np.sqrt(weights)[:, None], tolerance=1e-6)
    found = optimize_sparse(columns, np.sqrt(weights), tolerance=2e-3)
    assert found.lower_bound <= best.upper_bound
    assert best.lower_bound <= found.upper_bound
    assert found.gap <= 2e-3
    # what is stated is attained: no column is longer than 1, and the rows are read back at the stated error
    strategy = found.coefficients @ columns
    assert (strategy**2).sum(axis=0).max() <= 1 + 1e-9
    rows = columns * np.sqrt(weights)[:, None]
    back = np.linalg.lstsq(strategy.T, rows.T, rcond=None)[0].T
    assert np.abs(back @ strategy - rows).max() < 1e-8
    assert np.linalg.norm(back) <= found.upper_bound * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_independent_rows_span_all(seed: int) -> None:
    """Mutants: one row too few; the pivots' order kept."""
    columns = _sets(np.random.default_rng(seed))
    kept, back = independent_row_basis(columns)
    assert len(kept) == np.linalg.matrix_rank(columns)
    assert (np.diff(kept) > 0).all()
    assert np.abs(back @ columns[kept] - columns).max() < 1e-9


def test_what_takes_too_long_is_not_searched() -> None:
    assert sparse_search_fits(np.eye(8, dtype=np.int64))
    assert not sparse_search_fits(np.ones((1_537, 2), dtype=np.int64))


def _union() -> sf.Workload:
    domain = sf.Domain({f"a{i}": sf.Categories([str(j) for j in range(n)]) for i, n in enumerate((4, 5, 6))})
    counts = sf.predicates(domain, ["a0 in ('1', '2') and a1 == '3'", "a1 == '0' and a2 in ('2', '4')"])
    return sf.stack(tables=sf.marginals(domain, order=2), counts=counts, weights={"counts": 50})


def test_a_plan_by_it_errs_as_one_by_the_dense_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: coefficients of all rows taken for those of the independent ones."""
    work = _union()
    dense = sf.plan(work, sf.gdp(1), neighbours="add-remove", mechanism="factorization")
    monkeypatch.setattr(planning, "MAX_COLUMNS", 1)
    monkeypatch.setattr(planning, "MAX_WORK", 1)
    monkeypatch.setattr("sfumato.strategies.dense_planning.MAX_DENSE", 1)
    monkeypatch.setattr(union_planning, "QUICK", union_planning.QUICK._replace(orbits=1))
    found = sf.plan(work, sf.gdp(1), neighbours="add-remove", mechanism="factorization")
    assert "distinct columns" in found.strategy.summary
    assert found.lower_bound is not None
    assert dense.lower_bound is not None
    assert found.lower_bound <= dense.objective_value
    assert dense.lower_bound <= found.objective_value <= found.lower_bound * (1 + 2e-3)
    assert found.sensitivity.exact


def test_families_of_stacks_are_answered_as_their_tables_are() -> None:
    """Mutants: a table that another piece knows better left to the piece of its family; the piece of a query that was
    asked before given for another one."""
    domain = sf.Domain({"a": 5, "b": 4, "c": 3, "d": 3})
    tables, cdf = sf.marginals(domain, upto=2), sf.prefix(domain, "a", by=["b"])
    pieces = [sf.plan(w, sf.gdp(1), neighbours="add-remove").strategy for w in (tables, cdf)]
    whole, some = Stacked(tuple(pieces)), 0
    for item in tables.items:
        assert isinstance(item, QueryFamily)
        each = [whole.row_powers(b, 2) for b in item.family.blocks()]
        best = [min(p.row_powers(b, 2).mean() for p in _holding(pieces, b)) for b in item.family.blocks()]
        np.testing.assert_allclose([e.mean() for e in each], best, rtol=1e-12)
        powers = whole.family_powers(item.family, 2)
        some += powers is None
        if powers is not None:
            np.testing.assert_allclose(powers, best, rtol=1e-12)
    assert some


def _holding(pieces: list[Strategy], block: Block) -> list[Strategy]:
    return [p for p in pieces if set(block.attributes) <= {a for b in p.blocks for a in b.attributes}]
