"""Products of basis vectors: errors, answers and the price against dense matrices, and what the search is worth."""

from __future__ import annotations

import functools
import itertools
import math
from functools import reduce

import numpy as np
import pytest

from sfumato.errors import NotAnswerable, PlanError
from sfumato.operators import Block, Identity, Prefix
from sfumato.plans.plan import price_design
from sfumato.strategies import spectral_search as planning
from sfumato.strategies.certificates import exact_sensitivity
from sfumato.strategies.dense_optimal import optimize_dense
from sfumato.strategies.spectral import Spectral
from sfumato.strategies.spectral_search import (
    AxisProducts,
    GramAxis,
    ProductLevels,
    bin_levels,
    descend_levels,
    initial_levels,
)
from sfumato.strategies.strategy import marginalise
from sfumato.workloads import Workload
from sfumato.workloads.core import block_on_domain
from support.products import UNIT, mean_problem, on_domain, union_of

SIZES = {"a": 5, "b": 4, "c": 3, "d": 1}


@functools.cache
def _mixed() -> Workload:
    """One attribute in all products, one summed out in some, a plain one, one of a single cell."""
    return union_of(
        [
            {"a": Prefix(5), "b": Identity(4), "c": Identity(3)},
            {"b": Prefix(4), "a": Identity(5)},
            {"c": Identity(3), "a": Prefix(5), "d": Identity(1)},
        ],
        SIZES,
    )


@functools.cache
def _strategy(work: Workload) -> Spectral:
    design = planning.design_spectral(mean_problem(work), math.inf)
    assert design is not None
    built = design.build(design.fine)
    assert isinstance(built, Spectral)
    return built


def test_errors_and_covariances_are_those_of_dense_matrices() -> None:
    """Mutants seen: a level taken once where its square counts; bins in another order; axes not in the query's."""
    work = _mixed()
    strategy = _strategy(work)
    measured = np.concatenate([on_domain(work, b) for b in strategy.blocks])
    inverse = np.linalg.pinv(measured)
    reads = [on_domain(work, q.block) @ inverse for q in work.blocks]
    for q, dense in zip(work.blocks, reads, strict=True):
        for power in (2, 4):
            found = np.broadcast_to(strategy.row_powers(q.block, power), [f.shape[0] for f in q.block.factors])
            # least squares is the only way back where as many rows are measured as cells are told apart
            np.testing.assert_allclose(found.reshape(-1), (dense**power).sum(axis=1), rtol=1e-6)
    for (p, one), (q, other) in itertools.product(zip(work.blocks, reads, strict=True), repeat=2):
        np.testing.assert_allclose(
            strategy.covariance(p.block, q.block), one @ other.T, atol=1e-6 * np.abs(one @ one.T).max()
        )


def test_answers_without_noise_are_exact_and_the_price_is_that_of_the_largest_column() -> None:
    """Mutant seen: values not divided by their multiple."""
    work = _mixed()
    strategy = _strategy(work)
    table = np.random.default_rng(1).integers(0, 50, list(SIZES.values()))
    values = [np.asarray(marginalise(table, work.domain.names, b)) for b in strategy.blocks]
    estimate = strategy.estimate(values, None)
    for q in work.blocks:
        exact = marginalise(table, work.domain.names, q.block)
        np.testing.assert_allclose(strategy.answer(estimate, q.block), exact, atol=1e-6)
    whole = np.concatenate(
        [np.asarray(block_on_domain(work.domain, b).dense()).astype(object) for b in strategy.blocks]
    )
    assert exact_sensitivity(strategy.blocks, SIZES, UNIT, 2).value == (whole**2).sum(axis=0).max()


def test_what_was_not_measured_is_refused() -> None:
    """Mutant seen: products that are not measured are left out unasked."""
    work = _mixed()
    whole = _strategy(work)
    whole.check(Block((("a",), ("b",), ("c",)), (Identity(5), Prefix(4), Prefix(3))))  # the first product spans it
    for block in (
        Block((("b",), ("x",)), (Identity(4), Identity(2))),
        Block((("a", "b"),), (Identity(20),)),
    ):
        with pytest.raises(NotAnswerable):
            whole.check(block)
    sizes = {"a": 5, "b": 4, "c": 3}
    narrow = _strategy(union_of([{"a": Prefix(5), "b": Identity(4)}, {"b": Prefix(4), "c": Identity(3)}], sizes))
    with pytest.raises(NotAnswerable, match="as a whole"):
        narrow.check(Block((("a",), ("c",)), (Identity(5), Identity(3))))


def test_bins_that_do_not_part_the_rows_are_refused() -> None:
    rows, one = np.eye(3, dtype=np.int64), np.ones((1, 1), dtype=np.int64)
    Spectral(("a",), (rows,), ((1, 3),), np.array([1, 2]))
    for ends, multiples in (
        ((1, 2), np.array([1, 2])),
        ((3, 3), np.array([1, 2])),
        ((3,), np.array([-1])),
        ((3,), one),
    ):
        with pytest.raises(PlanError):
            Spectral(("a",), (rows,), (ends,), multiples)


def test_the_search_ends_above_the_optimum_and_its_error_is_that_of_what_it_found() -> None:
    """Mutants seen: costs not squared; the price of the largest cell left out."""
    work = _mixed()
    asked = AxisProducts(
        (
            GramAxis(
                tuple(np.asarray(f(5).gram().dense(), dtype=np.float64) for f in (Prefix, Identity)), False, False, 5
            ),
            GramAxis(
                tuple(np.asarray(f(4).gram().dense(), dtype=np.float64) for f in (Identity, Prefix)), False, True, 4
            ),
            GramAxis((np.array([1 / 3 * 1.0, 4 / 3]),), True, True, 3),
        ),
        ((1.0, (0, 0, 0)), (1.0, (1, 1, -1)), (1.0, (0, -1, 0))),
    )
    gram = functools.reduce(np.add, [on_domain(work, q.block).T @ on_domain(work, q.block) for q in work.blocks])
    least = optimize_dense(gram, tolerance=1e-6).lower_bound
    turned = np.linalg.qr(np.random.default_rng(3).normal(size=(4, 4)))[0]
    turned[:, 0] = 1.0
    start = initial_levels(asked, (np.eye(5), turned, np.ones((1, 2))))
    assert start.error == pytest.approx(_error(asked, start, gram), rel=1e-2)
    every = tuple(np.arange(n) for n in start.levels.shape)
    found = descend_levels(asked, start, every, ((50.0, 60), (400.0, 100)))
    assert least <= found.error <= 1.015 * least
    assert found.error == pytest.approx(_error(asked, found, gram), rel=1e-3)
    np.testing.assert_array_equal(found.bases[1][:, 0], 1.0)


def _error(asked: AxisProducts, found: ProductLevels, gram: np.ndarray) -> float:
    """The root of the error of X, with the plain attribute's contrasts written out."""
    bases = list(found.bases)
    for i, axis in enumerate(asked.axes):
        if axis.plain:
            spread = np.linalg.svd(np.eye(axis.cells) - 1 / axis.cells)[0][:, : axis.cells - 1]
            bases[i] = np.concatenate(
                [np.ones((axis.cells, 1)), spread * math.sqrt(axis.cells / (axis.cells - 1))], axis=1
            )
    levels = found.levels
    levels = np.concatenate([levels[:, :, :1], np.repeat(levels[:, :, 1:], 2, axis=2)], axis=2)
    whole = reduce(np.kron, bases)
    x = (whole * levels.reshape(-1)) @ whole.T
    return math.sqrt(float(np.trace(np.linalg.pinv(x, rcond=1e-12) @ gram)) * float(np.diagonal(x).max()))


def test_a_plan_undercuts_tilted_residuals_of_ordered_attributes() -> None:
    """What is predicted by the search is what the plan says, and nothing is proposed that would gain nothing."""
    sizes = {"a": 12, "b": 5, "c": 12}
    work = union_of([{n: (Prefix if n == m else Identity)(k) for n, k in sizes.items()} for m in sizes], sizes)
    problem = mean_problem(work)
    gram = functools.reduce(np.add, [on_domain(work, q.block).T @ on_domain(work, q.block) for q in work.blocks])
    least = optimize_dense(gram, tolerance=1e-4).lower_bound
    design = planning.design_spectral(problem, 1.03 * least)
    plan = price_design(design, problem)
    assert 1.0 <= plan.objective_value * math.sqrt(len(work)) / least <= 1.02  # tilted residuals: 1.026
    with pytest.raises(PlanError, match="did not undercut"):
        planning.design_spectral(problem, 0.9 * least)


def test_rounding_leaves_columns_nearly_as_long_as_they_were() -> None:
    """Mutants: every entry rounded to the nearest; one rounded the other way twice."""
    rng = np.random.default_rng(5)
    for count, top in ((1, 100.0), (4, 30.0), (12, 200.0)):
        rows = rng.normal(size=(count, 40)) * top
        found, nearest = planning._round_preserving_columns(rows), np.rint(rows)
        assert np.abs(found - rows).max() <= 1.0
        ours, plain = (np.abs((r**2 - rows**2).sum(axis=0)) for r in (found, nearest))
        assert (ours <= plain).all()
        assert ours.mean() <= plain.mean() * (1.0 if count == 1 else 0.5)
    whole = np.array([[3.0, -2.0], [0.0, 5.0]])
    np.testing.assert_array_equal(planning._round_preserving_columns(whole), whole)


def test_bins_are_as_many_on_all_axes_or_more_and_make_few_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutants: more bins without a look at the blocks; no more than as many on all axes."""
    sizes = {"a": 24, "b": 6, "c": 12}
    work = union_of([{"a": Prefix(24), "b": Identity(6)}, {"a": Identity(24), "c": Prefix(12), "b": Prefix(6)}], sizes)
    union = planning.Union(planning.applicable_products(mean_problem(work)) or [], sizes)
    asked = planning.products_on_axes(union, mean_problem(work).products or [])
    found = planning._sort_basis_vectors(asked, initial_levels(asked, planning.initial_bases(union)))

    def off(bins: planning.Bins) -> tuple[float, int]:
        merged, short = bin_levels(found, bins)
        return descend_levels(asked, merged, bins, ()).error, np.count_nonzero(short)

    gained = 0
    for most in (60, 150, 500):
        monkeypatch.setattr(planning, "_MOST_BLOCKS", most)
        error, blocks = off(planning._choose_bins(asked, found))
        assert blocks <= most
        alike = [
            off(tuple(planning._axis_bins(*x, n) for x in zip(asked.axes, found.bases, strict=True)))
            for n in range(1, 11)
        ]
        last = [e for e, count in alike if count <= most][-1]
        assert error <= last
        gained += error < last * 0.995
    assert gained >= 2
