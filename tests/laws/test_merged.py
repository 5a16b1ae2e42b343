"""Queries over different attributes together: columns, prices, answers and errors against the listed domain."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.curator.curator import Curator
from sfumato.errors import NotAnswerable, PlanError, WorkloadError
from sfumato.maps import AlikeMap, BlockMap, CombinationMap, DenseMap
from sfumato.mechanisms.searches import PARTS, SEARCHES, Found, run
from sfumato.mechanisms.separate_parts import parted
from sfumato.operators import Block, Combination, Dense, Identity
from sfumato.plans.plan import price_design
from sfumato.privacy import columns as columns_module
from sfumato.privacy.accounting import GaussianEvent
from sfumato.privacy.columns import distinct_columns
from sfumato.privacy.noise import RoundedGaussian
from sfumato.privacy.sensitivity import Sensitivity, certified_bound
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.strategies import merged_planning as planning
from sfumato.strategies.calibration import calibrate
from sfumato.strategies.certificates import exact_sensitivity, find_certificate
from sfumato.strategies.dense_largest import swap_largest
from sfumato.strategies.dense_optimal import optimize_dense
from sfumato.strategies.dense_swap import swap_optimum
from sfumato.strategies.design import Problem
from sfumato.strategies.merged import Merged
from sfumato.strategies.merged_planning import optimize_all_pairs, optimize_pairs
from sfumato.strategies.product import Product
from sfumato.strategies.stacked import Stacked
from sfumato.strategies.strategy import marginalise
from support.operators import operators
from support.searching import designs
from support.seeded import draws
from support.sensitivities import Case, brute_force, cases, columns_of

ADD, SWAP = PrivacyUnit(Neighbours.ADD_REMOVE), PrivacyUnit(Neighbours.REPLACE_ONE)
PERSON = PrivacyUnit(Neighbours.REPLACE_ONE, "id", 2)
laws = settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.too_slow])


def plain(n: int) -> Any:
    return operators(n, 1, real=False)


def listed(blocks: Any, sizes: dict[str, int]) -> set[tuple[int, ...]]:
    return {tuple(map(int, c)) for c in columns_of(blocks, sizes)}


def found_columns(blocks: Any, sizes: dict[str, int]) -> list[tuple[int, ...]]:
    return [tuple(c) for c in distinct_columns([b.lowered() for b in blocks], sizes).T.tolist()]


# ---- columns and prices -------------------------------------------------------------------------------------


@laws
@given(cases(plain, 24))
def test_the_distinct_columns_are_those_of_the_listed_domain(case: Case) -> None:
    """Mutants: the last column dropped; the zero column dropped; cells merged that one block alone has alike; a group
    joined by a factor taken attribute by attribute; a factor over no attribute left out."""
    blocks, sizes = case
    found = found_columns(blocks, sizes)
    assert len(found) == len(set(found))
    assert set(found) == listed(blocks, sizes)


@settings(laws, max_examples=draws(40))
@given(cases(plain, 12), st.data())
def test_a_combination_is_priced_as_on_the_listed_domain(case: Case, data: st.DataObject) -> None:
    """Mutants: a column forgotten; under replace-one the zero column forgotten; the matrix left out of the price; the
    multiple of a person's rows; another combination beside it not counted."""
    blocks, sizes = case
    rows = sum(b.rows for b in blocks)
    numbers = st.lists(st.integers(-3, 3), min_size=rows, max_size=rows)
    matrix = np.array(data.draw(st.lists(numbers, min_size=1, max_size=3)), dtype=np.int64)
    columns = [matrix.astype(object) @ c for c in columns_of(blocks, sizes)]
    for unit, power in itertools.product((ADD, SWAP, PERSON), (1, 2)):
        most, person = unit.rows_per_person, unit.person is not None
        wanted = brute_force(columns, unit.neighbours, most, power, person)
        found = exact_sensitivity([Combination(tuple(blocks), matrix)], sizes, unit, power)
        assert found.value >= wanted
        if found.exact:
            assert found == Sensitivity(power, wanted, exact=True)
        alone = exact_sensitivity(blocks, sizes, unit, power)
        every = [*blocks, Combination(tuple(blocks), matrix)]
        both = exact_sensitivity(every, sizes, unit, power)
        assert both == Sensitivity(power, found.value + alone.value, exact=False)
        # the wall proves the same, whatever else is measured
        lowered = [b.lowered() for b in every]
        assert certified_bound(lowered[-1:], sizes, unit, power) == found.value
        rest = certified_bound(lowered[:-1], sizes, unit, power, find_certificate(blocks, sizes, unit, power))
        assert (
            certified_bound(lowered, sizes, unit, power, find_certificate(every, sizes, unit, power))
            == found.value + rest
        )
    assert exact_sensitivity([Combination(tuple(blocks), matrix)], sizes, ADD, 2).exact


def test_four_disjoint_predicates_with_and_without_cells_beside_them() -> None:
    """Closed forms: the errors of four counts that add up to a known total, and of four of five.

    Mutant: the zero column forgotten where such cells exist, which prices the second as the first.
    """
    for beyond, wanted in ((0, 6.0), (1, 6.4)):
        domain = sf.Domain({"a": sf.Categories(list("uvwxyz"[: 4 + beyond])), "b": 700})
        work = sf.predicates(domain, [f"a == '{c}' and b >= 0" for c in "uvwx"])
        plan = sf.plan(work, sf.gdp(1), neighbours="replace-one", objective="cells", mechanism="factorization")
        assert isinstance(plan.strategy, Merged)
        queries = [q.block.lowered() for q in work.blocks]
        assert distinct_columns(queries, {"a": 4 + beyond, "b": 700}).shape == (4, 4 + beyond)
        assert plan.rmse is not None
        assert 4 * plan.rmse**2 == pytest.approx(wanted, rel=1e-4)
        assert plan.lower_bound == pytest.approx(plan.rmse, rel=2e-4)
        assert plan.sensitivity.exact


def test_too_many_columns_are_refused_and_never_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: the columns that fit are taken for all."""
    monkeypatch.setattr(columns_module, "MAX_ENTRIES", 5_000)
    identity = [BlockMap(((name,),), (AlikeMap(12),)) for name in "ab"]
    with pytest.raises(PlanError, match="too many cells apart"):
        distinct_columns([*identity, BlockMap((("a",), ("b",)), (AlikeMap(12), AlikeMap(12)))], {"a": 12, "b": 12})
    assert distinct_columns(identity, {"a": 12, "b": 12}).shape == (24, 144)


def test_combinations_are_refused_at_birth() -> None:
    """Mutants: real coefficients or blocks let through; a coefficient too few."""
    block = Block((("a",),), (Identity(3),))
    half = Block((("a",),), (Dense(np.array([[0.5, 1, 1]])),))
    given: list[tuple[Any, Any]] = [
        ((block,), np.full((1, 3), 0.5)),
        ((half,), np.ones((1, 1))),
        ((block,), np.ones((1, 2))),
        ((), np.ones((1, 1))),
        (("block",), np.ones((1, 1))),
    ]
    for blocks, matrix in given:
        with pytest.raises(WorkloadError):
            Combination(blocks, matrix)
    for large in (2**62, -(2**62)):
        wide = Block((("a",), ("b",)), (Dense(np.array([[large]])), Dense(np.array([[4]]))))
        with pytest.raises(PlanError, match="2\\^63"):
            distinct_columns([wide.lowered()], {"a": 1, "b": 1})


@pytest.mark.parametrize("unit", [ADD, SWAP, PERSON])
def test_a_combination_whose_entries_leave_int64_is_refused(unit: PrivacyUnit) -> None:
    """Mutant: C Q taken modulo 2^64, which prices 2^64 as 0 and what is just below 2^63 as what it is."""
    for top, fits in ((2**62, False), (2**61, True)):
        block = BlockMap((("a",),), (DenseMap(np.array([[0, 2], [0, 2]])),))
        made = CombinationMap((block,), np.array([[top // 2, top // 2]]))
        if fits:
            assert certified_bound([made], {"a": 2}, unit, 2) == (2 * top * unit.rows_per_person) ** 2
        else:
            with pytest.raises(PlanError, match="2\\^63"):
                certified_bound([made], {"a": 2}, unit, 2)


class Halved(DenseMap):
    """A map that says of its columns half of what it does."""

    def columns(self) -> Any:
        return super().columns() // 2


class Cheap(CombinationMap):
    """A combination of a class of its own."""


def combination(factor: Any) -> CombinationMap:
    return CombinationMap((BlockMap((("a",),), (factor,)),), np.array([[1, 1]]))


@pytest.mark.parametrize(
    "made",
    [
        lambda: combination(Halved(np.array([[2, 0], [0, 2]]))),
        lambda: CombinationMap((Block((("a",),), (Dense(np.array([[1, 0], [0, 1]])),)),), np.array([[1, 1]])),
        lambda: Cheap((BlockMap((("a",),), (AlikeMap(2),)),), np.array([[1, 1]])),
        lambda: None,
    ],
)
def test_what_a_combination_lowers_to_is_not_believed(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutants: a combination's blocks taken as they were handed over, not built anew; its blocks not looked at."""
    monkeypatch.setattr(Combination, "lowered", lambda _: made())
    domain, ledger = sf.Domain({"a": 2}), sf.Ledger.in_memory(sf.gdp(9))
    given = Combination((Block((("a",),), (Identity(2),)),), np.array([[1, 1]]))
    with pytest.raises(PlanError):
        Curator(sf.Histogram([1, 2]), domain, ADD, ledger).measure(
            [given], RoundedGaussian(1), GaussianEvent(Fraction(1)), name="n", plan_hash="0" * 64
        )
    assert ledger.entries() == ()


@laws
@given(cases(plain, 12), st.data())
def test_the_curator_combines_exact_sums_and_then_draws(case: Case, data: st.DataObject) -> None:
    """Mutants: noise added to the sums before they are combined; the sums of one block at the place of another; values
    without noise; sums that saturate where they do not fit."""
    blocks, sizes = case
    rows = sum(b.rows for b in blocks)
    matrix = np.array(data.draw(st.lists(st.integers(-(2**9), 2**9), min_size=rows, max_size=rows)), dtype=np.int64)
    domain = sf.Domain(sizes)
    cells = data.draw(st.lists(st.integers(0, 9), min_size=domain.size, max_size=domain.size))
    table = np.array(cells, dtype=np.int64).reshape(domain.shape)
    combined = Combination(tuple(blocks), np.stack([matrix, -3 * matrix]))
    beside = [Block((("a",),), (Identity(sizes["a"]),))] if data.draw(st.booleans()) else []
    exact = [marginalise(table, domain.names, b) for b in (*beside, combined)]
    value = max(1, exact_sensitivity([*beside, combined], sizes, ADD, 2).value)
    assume(value < 2**46)
    # a sixty-fourth of a record rounds to none
    for scale, near in ((Fraction(1, 64), True), (Fraction(2**40), False)):
        price, ledger = GaussianEvent(Fraction(value) / scale**2), sf.Ledger.in_memory(sf.gdp(10**9))
        curator = Curator(sf.Histogram(table), domain, ADD, ledger)
        measured, _ = curator.measure([*beside, combined], RoundedGaussian(scale), price, name="n", plan_hash="0" * 64)
        for found, wanted in zip(measured.values, exact, strict=True):
            assert (found == wanted).all() == near


def test_the_curator_refuses_a_combination_whose_price_is_that_of_its_blocks() -> None:
    """Mutant: the price of what is counted, not of what is measured, is compared with what was paid."""
    domain, block = sf.Domain({"a": 3}), Block((("a",),), (Identity(3),))
    curator = Curator(sf.Histogram([1, 2, 3]), domain, ADD, sf.Ledger.in_memory(sf.gdp(9)))
    combined = Combination((block,), np.array([[2, 1, 0]]))
    with pytest.raises(PlanError, match="costs more"):
        curator.measure([combined], RoundedGaussian(1), GaussianEvent(Fraction(1)), name="n", plan_hash="0" * 64)
    curator.measure([combined], RoundedGaussian(2), GaussianEvent(Fraction(1)), name="n", plan_hash="0" * 64)


# ---- plans ----------------------------------------------------------------------------------------------------

SIZES = (4, 5, 6, 7)


def conjunctions(seed: int, count: int = 7, order: int = 2) -> sf.Workload:
    """Random predicates over four attributes of 840 joint cells, some of them no conjunctions."""
    rng = np.random.default_rng(seed)
    domain = sf.Domain({f"a{i}": sf.Categories([str(j) for j in range(n)]) for i, n in enumerate(SIZES)})
    texts = []
    for k in range(count):
        tests = []
        for i in sorted(rng.choice(len(SIZES), order, replace=False).tolist()):
            some = sorted(rng.choice(SIZES[i], rng.integers(1, SIZES[i]), replace=False).tolist())
            tests.append(f"a{i} in ({', '.join(repr(str(j)) for j in some)})")
        texts.append((" or " if k % 3 == 2 else " and ").join(tests))
    return sf.predicates(domain, texts)


def joint(work: sf.Workload) -> np.ndarray[Any, Any]:
    """The queries over all cells of the domain."""
    return np.asarray(work.operator.dense(), dtype=np.float64)


def measured(plan: sf.Plan) -> np.ndarray[Any, Any]:
    """What is measured over all cells of the domain."""
    domain = plan.workload.domain
    units = np.eye(domain.size, dtype=np.int64).reshape(-1, *domain.shape)
    (combined,) = plan.strategy.blocks
    return np.stack([marginalise(u, domain.names, combined) for u in units], axis=1).astype(np.float64)


@pytest.mark.parametrize("seed", range(draws(2)))
@pytest.mark.parametrize("objective", ["cells", "max"])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_a_plan_is_the_optimum_of_the_listed_domain(seed: int, objective: str, neighbours: str) -> None:
    """Answers, errors and covariances are those of dense algebra, and nothing errs less by more than is said.

    Mutants: weights without their root; the basis of all rows where some are left out; the known total not used, or
    its price; `row_powers` of C in place of R; a bound of the centred queries for the others.
    """
    work = conjunctions(seed)
    plan = sf.plan(work, sf.gdp(1), neighbours=neighbours, objective=objective)
    assert isinstance(plan.strategy, Merged)
    queries, strategy = joint(work), measured(plan)
    squared = (strategy**2).sum(axis=0)
    norm = squared.max()
    if neighbours == "replace-one":
        gram = strategy.T @ strategy
        norm = (squared[:, None] + squared - 2 * gram).max()
        # a known total is a measurement without noise
        strategy = np.vstack([strategy, np.ones(strategy.shape[1]) * 1e6 * math.sqrt(norm)])
    assert plan.sensitivity.exact
    assert plan.sensitivity.value == pytest.approx(norm, rel=1e-12)
    back = queries @ np.linalg.pinv(strategy)
    wanted = back @ back.T * plan.noise.variance
    assert plan.covariance(work) == pytest.approx(wanted, rel=1e-5, abs=1e-5 * wanted.max())
    errors = plan.standard_errors()
    assert errors == pytest.approx(np.sqrt(np.diag(wanted)), rel=1e-5, abs=1e-5)
    value = errors.max() if objective == "max" else math.sqrt((errors**2).mean())
    assert plan.objective_value == pytest.approx(value, rel=1e-6)
    assert plan.lower_bound is not None
    assert plan.lower_bound <= value * (1 + 1e-9)
    assert value <= 1.001 * plan.lower_bound
    if objective == "cells":
        distinct = np.unique(queries, axis=1)
        best = swap_optimum(matrix=distinct) if neighbours == "replace-one" else optimize_dense(matrix=distinct)
        assert plan.lower_bound * math.sqrt(len(work)) <= best.upper_bound * (1 + 1e-9)
        assert value * math.sqrt(len(work)) >= best.lower_bound * (1 - 1e-9)


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("noise", ["gaussian", "laplace", "discrete-gaussian"])
def test_prediction_is_what_repeated_releases_do(neighbours: str, noise: str) -> None:
    """Mutants: the offset of the known total left out, so that answers are biased; powers of the wrong rows."""
    work = conjunctions(11, 6)
    plan = sf.plan(
        work, sf.approx(1, "1e-6"), neighbours=neighbours, mechanism=sf.mechanisms.factorization(noise=noise)
    )
    assert isinstance(plan.strategy, Merged)
    x = np.random.default_rng(3).integers(0, 20, work.domain.size)
    seen = sf.simulate(plan, x, 4_000, 5)
    assert seen.per_query_rmse == pytest.approx(plan.standard_errors(), rel=0.06)
    assert np.abs(seen.mean_error / plan.standard_errors()).max() < 5 / math.sqrt(4_000)
    assert seen.coverage == pytest.approx(0.95, abs=0.01)


def test_a_release_answers_what_lies_in_the_span_alone() -> None:
    """Mutants: the nearest combination given for an answer; the total of public records not used for a complement."""
    domain = sf.Domain({"a": sf.Categories(list("uvwx")), "b": sf.Categories(list("yz")), "c": 900})
    texts = ["a == 'u' and b == 'y'", "a == 'u' and b == 'z' and c >= 0", "a in ('u', 'v') or c < 30"]
    work = sf.predicates(domain, texts)
    x = np.random.default_rng(0).integers(0, 9, domain.shape)
    for neighbours in ("add-remove", "replace-one"):
        plan = sf.plan(work, sf.gdp(50), neighbours=neighbours, mechanism="factorization")
        # few rows over all cells together err as little where records are added, by the last digits less
        assert isinstance(plan.strategy, Merged if neighbours == "replace-one" else Product)
        release = sf.release(plan, sf.Histogram(x), ledger=None)
        assert release.answers == pytest.approx(work.answer(x), abs=1)
        both = release.ask("a == 'u'")
        assert both.value == pytest.approx(x[0].sum(), abs=1)
        assert both.standard_error == pytest.approx(
            math.sqrt(plan.covariance(sf.predicates(domain, texts[:2])).sum()), rel=1e-6
        )
        for outside in ("a == 'v'", "b == 'y'", "c < 30"):
            with pytest.raises(NotAnswerable):
                release.ask(outside)
        if neighbours == "replace-one":
            assert release.ask("a != 'u'").value == pytest.approx(x[1:].sum(), abs=1)
        else:
            with pytest.raises(NotAnswerable):
                release.ask("a != 'u'")


def test_weights_and_tables_beside_predicates() -> None:
    """Mutants: the weights of tables left out; tables answered from a piece of their own beside the predicates'."""
    few = conjunctions(5, 6)
    work = sf.stack(tables=sf.marginals(few.domain, order=2), counts=few, weights={"counts": 100})
    plan = sf.plan(work, sf.gdp(1), neighbours="add-remove")
    assert isinstance(plan.strategy, Merged)
    problem = Problem(work, sf.gdp(1), ADD, "gaussian")
    weights = np.concatenate([np.full(q.rows, problem.objective_weight(q)) for q in work.blocks])
    best = optimize_dense(matrix=joint(work) * np.sqrt(weights)[:, None])
    assert plan.objective_value == pytest.approx(best.upper_bound / math.sqrt(weights.sum()), rel=2e-4)


def test_matrices_of_few_queries_over_many_cells() -> None:
    """Mutant: the limit of cells of one table for matrices whose queries are few."""
    matrix = (np.random.default_rng(1).random((8, 3_000)) < 0.5).astype(np.int64)
    plan = sf.plan(sf.queries(matrix), sf.gdp(1), neighbours="add-remove")
    assert plan.lower_bound is not None
    assert plan.objective_value <= 1.001 * plan.lower_bound
    assert plan.lower_bound * math.sqrt(8) == pytest.approx(
        optimize_dense(matrix=np.unique(matrix, axis=1)).lower_bound, 1e-3
    )
    release = sf.release(plan, sf.Histogram(np.arange(3_000)), ledger=None)
    assert release.answers == pytest.approx(matrix @ np.arange(3_000), abs=8 * plan.max_standard_error)


def test_where_it_does_not_apply() -> None:
    """Mutants: real queries rounded to whole ones; a distance that is only bounded taken for the optimum."""

    def made(work: sf.Workload, unit: PrivacyUnit) -> Any:
        return planning.design_merged(Problem(work, sf.gdp(1), unit, "gaussian"))

    half = sf.queries(np.full((2, 9), 0.5))
    wide = sf.queries((np.random.default_rng(0).random((16, 5_400)) < 0.5).astype(np.int64))
    with pytest.raises(PlanError, match="no whole numbers"):
        made(half, ADD)
    with pytest.raises(PlanError, match="too many to compare all pairs"):
        made(wide, SWAP)
    found = made(wide, ADD)
    assert found.bound is not None
    persons = made(conjunctions(0), PERSON)
    assert persons.bound is None
    sizes = {f"a{i}": n for i, n in enumerate(SIZES)}
    done = calibrate(persons.build, persons.fine, sizes, PERSON, sf.gdp(1), "gaussian")
    assert done.sensitivity.exact


@pytest.mark.parametrize("shape", [(4, 6), (9, 60), (12, 200)])
@pytest.mark.parametrize("largest", [False, True])
def test_pairs_found_one_by_one_prove_what_all_pairs_prove(shape: tuple[int, int], largest: bool) -> None:
    """Mutants: a strategy whose farthest pair was never looked at; a bound of the pairs that were not solved for."""
    matrix = np.random.default_rng(shape[1]).integers(-2, 3, shape).astype(float)
    found = optimize_pairs(matrix, largest=largest, tolerance=1e-4)
    assert found is not None
    columns = found.strategy.T
    assert max(np.square(columns - c).sum(axis=1).max() for c in columns) <= 1 + 1e-9
    back = (matrix - matrix.mean(axis=1, keepdims=True)) @ np.linalg.pinv(found.strategy)
    rows = np.square(back).sum(axis=1)
    assert math.sqrt(rows.max() if largest else rows.sum()) == pytest.approx(found.upper_bound, rel=1e-6)
    best = swap_largest(matrix) if largest else swap_optimum(matrix=matrix)
    assert found.lower_bound <= best.upper_bound * (1 + 1e-9)
    assert found.upper_bound >= best.lower_bound * (1 - 1e-9)
    assert found.gap < 2e-3


@pytest.mark.parametrize("tolerance", [0.2, 1e-3])
def test_all_pairs_together_prove_what_the_search_over_cells_proves(tolerance: float) -> None:
    """Mutants: the longest distance of the other strategy; a bound of weights whose sum is not 1; no steps taken."""
    rng = np.random.default_rng(0)
    matrix = np.vstack([np.eye(40), 30.0 * (rng.random((4, 40)) < 0.5)])
    found = optimize_all_pairs(matrix, tolerance=tolerance)
    assert found is not None
    columns = found.strategy.T
    assert max(np.square(columns - c).sum(axis=1).max() for c in columns) <= 1 + 1e-9
    back = (matrix - matrix.mean(axis=1, keepdims=True)) @ np.linalg.pinv(found.strategy)
    assert np.linalg.norm(back) == pytest.approx(found.upper_bound, rel=1e-6)
    best = swap_optimum(matrix=matrix)
    assert found.lower_bound <= best.upper_bound * (1 + 1e-9)
    assert best.lower_bound * (1 - 1e-9) <= found.upper_bound <= best.upper_bound * (1 + 2 * tolerance)
    assert found.gap <= tolerance


def test_many_queries_where_a_record_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables and heavy counts over several attributes, of more queries than pairs are searched one by one for.

    Mutant: other designs not tried beside one that is only near its bound.
    """
    names = {"a": 6, "b": 5, "c": 4, "d": 5}
    domain = sf.Domain({n: sf.Categories([str(i) for i in range(k)]) for n, k in names.items()})
    counts = sf.predicates(domain, ["a in ('1', '2') or d in ('3', '4')", "b == '1' and c == '2' and a in ('0', '4')"])
    work = sf.stack(tables=sf.marginals(domain, order=2), counts=counts, weights={"counts": 1000})
    found: list[Any] = []
    search = planning.optimize_all_pairs

    def once(*given: Any, **options: Any) -> Any:
        if not found:
            found.append(search(*given, **options))
        return found[0]

    monkeypatch.setattr(planning, "optimize_all_pairs", once)
    plan = sf.plan(work, sf.gdp(1), neighbours="replace-one", objective="cells")
    assert plan.lower_bound is not None
    assert plan.objective_value <= 1.015 * plan.lower_bound
    assert plan.sensitivity.exact
    asked = Problem(work, sf.gdp(1), SWAP, "gaussian", "cells")
    assert len(designs(asked, "factorization")) > 1


# ---- parts apart ------------------------------------------------------------------------------------------------


def parts() -> sf.Workload:
    """Tables and a few counts of other attributes, and a distribution."""
    sizes = {"a": 9, "b": 5, "c": 7, "d": 60, "e": 8}
    domain = sf.Domain({n: sf.Categories([str(i) for i in range(k)]) for n, k in sizes.items()})
    counts = sf.predicates(domain, ["a in ('1', '2') and d in ('3', '4')", "b == '1' or e == '2'", "c == '0'"])
    return sf.stack(main=sf.marginals(domain, upto=3), cdf=sf.prefix(domain, "d"), counts=counts)


def automatic(part: Problem) -> Found:
    """What "auto" finds."""
    return run(part, (*SEARCHES, PARTS))


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@pytest.mark.parametrize("objective", ["tables", "max"])
def test_parts_share_the_budget_at_its_best(noise: str, objective: str) -> None:
    """What parts err apart is what is shared: (sum of the roots)² for Gaussian noise, of cube roots cubed for Laplace.

    Mutants: parts weighed by the workload of their own; one price for all; powers of the other noise.
    """
    work, budget = parts(), sf.approx(1, "1e-6")
    problem = Problem(work, budget, ADD, noise, objective)  # type: ignore[arg-type]
    design = parted(problem, lambda part, _: automatic(part))
    assert design is not None
    made = price_design(design, problem)
    assert isinstance(made.strategy, Stacked)
    prices = [
        exact_sensitivity(p.blocks, problem.sizes, ADD, 1 if noise == "laplace" else 2) for p in made.strategy.pieces
    ]
    assert 1 < len(prices) <= 3
    # together they change no more than each at its worst
    assert made.sensitivity.value <= sum(p.value for p in prices)
    alone = [automatic(replace(problem, workload=w)) for w in work.parts.values()]
    each = [min(p.objective_value for p in a.plans) for a in alone]
    if objective == "tables":
        power = 2 / 3 if noise == "laplace" else 1.0
        shared = sum(e**power for e in each) ** (1 / power) / math.sqrt(len(each))
    else:
        shared = sum(math.sqrt(e) for e in each) ** 2 if noise == "laplace" else math.hypot(*each)
    assert made.objective_value <= shared * (1 + 1e-3)


def test_auto_takes_parts_apart_where_that_errs_less(tmp_path: Path) -> None:
    """Mutants: the shared design not compared; its answers, errors or covariances those of one piece."""
    work = parts()
    plan = sf.plan(work, sf.gdp(1), neighbours="add-remove")
    assert isinstance(plan.strategy, Stacked)
    assert len(plan.strategy.pieces) == 2
    least = sf.plan(work, sf.gdp(1), neighbours="add-remove", mechanism="marginals")
    assert plan.objective_value < 0.97 * least.objective_value
    rng = np.random.default_rng(0)
    x = rng.integers(0, 3, work.domain.size)
    release = sf.release(plan, sf.Histogram(x.reshape(work.domain.shape)), ledger=None)
    exact = work.answer(x)
    errors = plan.standard_errors()
    assert np.sqrt(np.square((release.answers - exact) / errors).mean()) == pytest.approx(1, abs=0.35)
    assert np.abs(release.answers - exact).max() < 8 * errors.max()
    release.save(tmp_path / "r")
    assert np.array_equal(sf.load(tmp_path / "r").answers, release.answers)
    assert sf.load(tmp_path / "r").plan.fingerprint == plan.fingerprint
