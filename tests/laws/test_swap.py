"""Laws of the certified optimum where one record is replaced: duality over pairs, constants, prices by brute force."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import flint
import numpy as np
import pytest
from flint import acb_mat, arb, fmpq, fmpq_mat
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.optimize import minimize

from sfumato import load
from sfumato.domain import Domain, Integers
from sfumato.errors import WorkloadError
from sfumato.planner.factorize import factorization
from sfumato.planner.planning import plan
from sfumato.planner.simulate import simulate
from sfumato.plans.plan import Plan
from sfumato.privacy.budget import Budget
from sfumato.strategies.dense_blocks import FactorBlock, PairChanges
from sfumato.strategies.dense_dual import pair_bound
from sfumato.strategies.dense_optimal import optimize_dense
from sfumato.strategies.dense_swap import PairBlock, SwapOptimum, swap_optimum
from sfumato.strategies.strategy import marginalise
from sfumato.workloads import Workload, identity, marginals, prefix, queries, ranges, stack, total

UNIT = Budget.gdp(1)


def workloads(limit: int = 6) -> st.SearchStrategy[np.ndarray]:
    """Small integer matrices: constant rows, repeated and dependent columns are all common."""
    entries = st.integers(-2, 2).map(float)
    shapes = st.tuples(st.integers(1, limit), st.integers(2, limit))
    return shapes.flatmap(lambda shape: hnp.arrays(np.float64, shape, elements=entries)).filter(
        lambda F: bool(np.ptp(F, axis=1).any())
    )


def differences(m: int) -> np.ndarray:
    """D, (m, pairs): a column e_i - e_j for every pair i < j."""
    eye = np.eye(m)
    return np.array([eye[i] - eye[j] for i, j in itertools.combinations(range(m), 2)]).T


def diameter(M: np.ndarray) -> float:
    pairs = itertools.combinations(range(M.shape[1]), 2)
    return max(float(np.linalg.norm(M[:, i] - M[:, j])) for i, j in pairs)


def centred(F: np.ndarray) -> np.ndarray:
    return F - F.mean(axis=1, keepdims=True)


def all_ranges(n: int) -> np.ndarray:
    return np.array([[float(s <= j <= t) for j in range(n)] for s in range(n) for t in range(s, n)])


def disjunctions(d: int) -> np.ndarray:
    sets = np.arange(2**d)
    return (np.bitwise_and.outer(sets, sets) > 0).astype(float)


def assert_certified(F: np.ndarray, found: SwapOptimum, tolerance: float = 1e-6) -> None:
    """Every field by other means."""
    m = F.shape[1]
    D = differences(m)
    weights = np.array([found.pairs[i, j] for i, j in itertools.combinations(range(m), 2)])
    assert weights.min() >= 0.0
    assert weights.sum() == pytest.approx(1, abs=1e-12)
    assert np.array_equal(found.pairs, found.pairs.T)
    nuclear = float(np.linalg.svd(F @ D * np.sqrt(weights), compute_uv=False).sum())
    assert nuclear * (1 - 1e-6) <= found.lower_bound <= nuclear * (1 + 1e-12)
    M = found.strategy
    assert len(M) == np.linalg.matrix_rank(centred(F))
    assert diameter(M) == pytest.approx(1, abs=1e-9)
    assert diameter(M) <= 1.0 + 1e-12
    assert np.abs(M.sum(axis=1)).max() <= 1e-9
    R = centred(F) @ np.linalg.pinv(M)
    assert np.abs(R @ M - centred(F)).max() <= 1e-9 * np.abs(F).max()
    assert found.upper_bound == pytest.approx(float(np.linalg.norm(R)) * diameter(M), rel=1e-8)
    assert 0.0 <= found.gap <= tolerance


@settings(max_examples=100, deadline=None)
@given(workloads())
def test_certificates_hold_for_any_small_workload(F: np.ndarray) -> None:
    assert_certified(F, swap_optimum(matrix=F))


@settings(max_examples=60, deadline=None)
@given(workloads(), st.data())
def test_no_weights_and_no_strategy_contradict_the_bounds(F: np.ndarray, data: st.DataObject) -> None:
    found = swap_optimum(matrix=F)
    m = F.shape[1]
    D = differences(m)
    raw = data.draw(hnp.arrays(np.float64, D.shape[1], elements=st.floats(0, 1)).filter(lambda v: v.sum() > 0.1))
    dual = np.linalg.svd(F @ D * np.sqrt(raw / raw.sum()), compute_uv=False).sum()
    assert dual <= found.upper_bound * (1 + 1e-12)
    other = np.vstack([data.draw(hnp.arrays(np.float64, (3, m), elements=st.floats(-1, 1))), np.eye(m)])
    offset = data.draw(hnp.arrays(np.float64, len(F), elements=st.floats(-3, 3)))
    error = np.linalg.norm((F + offset[:, None]) @ np.linalg.pinv(other)) * diameter(other)
    assert error >= found.lower_bound * (1 - 1e-12)


@settings(max_examples=40, deadline=None)
@given(workloads(5))
def test_it_is_the_factorization_norm_of_all_differences_of_columns(F: np.ndarray) -> None:
    plain = optimize_dense(matrix=F @ differences(F.shape[1]), tolerance=1e-6)
    found = swap_optimum(matrix=F)
    assert found.lower_bound <= plain.upper_bound * (1 + 1e-9)
    assert plain.lower_bound <= found.upper_bound * (1 + 1e-9)


@pytest.mark.parametrize("F", [np.eye(3), np.tri(3), np.tri(4), np.array([[1.0, 0, 2, 5], [0, 3, 1, 1]])])
def test_a_general_optimizer_finds_nothing_better_and_nearly_as_good(F: np.ndarray) -> None:
    """Over all M of the right row space, by a smooth maximum: knows nothing of duals or Laplacians."""
    rows = np.linalg.svd(centred(F))[2][: np.linalg.matrix_rank(centred(F))]
    rank, D = len(rows), differences(F.shape[1])
    found = swap_optimum(matrix=F)

    def error(flat: np.ndarray, sharp: float) -> float:
        M = flat.reshape(rank, rank) @ rows
        lengths = np.linalg.norm(M @ D, axis=0)
        size = lengths.max() * np.sum((lengths / lengths.max()) ** sharp) ** (1 / sharp)
        return float(np.linalg.norm(centred(F) @ rows.T @ np.linalg.inv(flat.reshape(rank, rank))) * size)

    best = np.inf
    for start in range(2):
        flat = np.random.default_rng(start).normal(size=rank * rank)
        for sharp in (8.0, 40.0, 200.0, 1000.0):
            flat = minimize(error, flat, args=(sharp,), method="BFGS", options={"maxiter": 100}).x
        best = min(best, error(flat, 1e9))
    assert best >= found.lower_bound * (1 - 1e-9)
    assert best <= found.upper_bound * 1.01


@pytest.mark.parametrize(
    ("F", "constant"),
    [
        (np.eye(8), 1.323),
        (np.tri(8), 1.478),
        (np.tri(16), 1.817),
        (all_ranges(8), 1.643),
        (disjunctions(3), 1.599),
        (disjunctions(4), 2.015),
    ],
)
def test_constants_of_replace_one(F: np.ndarray, constant: float) -> None:
    found = swap_optimum(matrix=F)
    assert_certified(F, found)
    assert found.upper_bound / math.sqrt(len(F)) == pytest.approx(constant, abs=1e-3)


@pytest.mark.parametrize("m", [2, 3, 8, 30])
def test_cells_asked_one_by_one(m: int) -> None:
    found = swap_optimum(np.eye(m))
    assert found.iterations == 1
    assert found.upper_bound == pytest.approx(math.sqrt(2 * (m - 1)), rel=1e-9)
    assert pair_bound(np.eye(m)) == pytest.approx(found.lower_bound, rel=1e-8)


@pytest.mark.parametrize(("n", "rmse"), [(64, 2.455698), (128, 2.767454), (256, 3.077432)])
def test_prefixes_of_more_cells(n: int, rmse: float) -> None:
    """Half the width is the plain norm's at best, and Jung's factor above that of the best offset."""
    F = np.tri(n)
    found = swap_optimum(F.T @ F)
    assert found.gap <= 1e-6
    assert found.upper_bound / math.sqrt(n) == pytest.approx(rmse, rel=2e-6)
    plain = optimize_dense(F.T @ F)
    assert found.upper_bound <= 2 * plain.upper_bound
    assert pair_bound(F.T @ F) <= found.upper_bound


@settings(max_examples=30, deadline=None)
@given(workloads(), st.data())
def test_what_changes_nothing(F: np.ndarray, data: st.DataObject) -> None:
    """The order of cells, repeated cells, a rotation of the queries, and a constant added to each."""
    found = swap_optimum(matrix=F)
    k, m = F.shape
    order = data.draw(st.permutations(range(m)))
    more = data.draw(st.lists(st.integers(0, m - 1), max_size=3))
    offset = data.draw(hnp.arrays(np.float64, k, elements=st.integers(-3, 3).map(float)))
    turn = np.linalg.qr(np.random.default_rng(k).normal(size=(k, k)))[0]
    other = turn @ (F[:, [*order, *more]] + offset[:, None])
    changed = swap_optimum(matrix=other)
    assert changed.gap <= 1e-6
    assert changed.lower_bound <= found.upper_bound * (1 + 1e-9)
    assert found.lower_bound <= changed.upper_bound * (1 + 1e-9)
    tripled = swap_optimum(matrix=3 * F)
    assert tripled.upper_bound == pytest.approx(3 * found.upper_bound, rel=3e-6)


@settings(max_examples=40, deadline=None)
@given(workloads())
def test_gram_alone_gives_the_same_optimum(F: np.ndarray) -> None:
    by_gram, by_matrix = swap_optimum(F.T @ F), swap_optimum(matrix=F)
    assert_certified(F, by_gram)
    assert swap_optimum(F.T @ F, matrix=F).upper_bound == pytest.approx(by_matrix.upper_bound, rel=3e-6)
    assert by_gram.upper_bound == pytest.approx(by_matrix.upper_bound, rel=3e-6)


@pytest.mark.parametrize("F", [np.tri(7), all_ranges(5), np.vander(np.arange(1.0, 7.0), 6)])
def test_the_lower_bound_holds_exactly(F: np.ndarray) -> None:
    found = swap_optimum(matrix=F, tolerance=0.0)
    assert found.iterations <= 100
    assert found.gap < 1e-6
    m = F.shape[1]
    # the Laplacian without the last cell, and columns of F less the last: the same eigenvalues but for a zero
    exact = fmpq_mat([[fmpq(int(x - row[-1])) for x in row[:-1]] for row in F])
    w = [[fmpq(*float(x).as_integer_ratio()) for x in row] for row in found.pairs]
    every = [sum(row, fmpq(0)) for row in w]
    graph = fmpq_mat([[every[i] if i == j else -w[i][j] for j in range(m - 1)] for i in range(m - 1)])
    with flint.ctx.workprec(400):
        eigenvalues = acb_mat(graph * (exact.transpose() * exact)).eig()
        nuclear = sum((e.real.sqrt() for e in eigenvalues), arb(0)) / (arb(sum(every, fmpq(0))) / 2).sqrt()
        assert arb(found.lower_bound) < nuclear
    assert found.lower_bound == pytest.approx(float(nuclear), rel=1e-6)


def test_products_with_the_long_vectors_are_those_of_small_matrices() -> None:
    """Spectrum, diagonal, bend and squares against the same block with all pairs written out."""
    rng = np.random.default_rng(5)
    F = centred(rng.normal(size=(9, 6)))
    _, roots, rows = np.linalg.svd(F, full_matrices=False)
    factor = roots[:5, None] * rows[:5]
    block = PairBlock(factor, PairChanges.of(6))
    written = FactorBlock(factor @ differences(6), np.arange(15))
    v = rng.uniform(0.1, 1, 15)
    v /= v.sum()
    ours, theirs = block.decompose(v), written.decompose(v)
    assert np.allclose(np.sort(ours.roots), np.sort(theirs.roots))
    assert ours.proved <= theirs.roots.sum()
    assert ours.proved == pytest.approx(theirs.proved, rel=1e-9)
    assert np.allclose(ours.diagonal(), theirs.diagonal())
    x = rng.normal(size=15)
    assert np.allclose(ours.bend(np.float64)(x), theirs.bend(np.float64)(x))
    assert np.allclose(block.squares, written.squares)
    assert block.cost(ours, 3 * v) == pytest.approx(written.cost(theirs, 3 * v), rel=1e-9)
    assert np.allclose(block.every_second().squares, written.squares[::2])
    # bend is the derivative of the diagonal along log v, beside its growth
    step = 1e-6
    ahead, behind = (block.decompose(v * np.exp(sign * step * x)).diagonal() for sign in (1, -1))
    expected = x * ours.diagonal() - ours.bend(np.float64)(x)
    assert np.allclose((ahead - behind) / (2 * step), expected, rtol=1e-5, atol=1e-8)


def test_an_early_end_is_a_field_and_progress_is_reported() -> None:
    calls: list[tuple[int, float]] = []
    found = swap_optimum(matrix=np.tri(12), max_iterations=2, progress=lambda count, gap: calls.append((count, gap)))
    assert found.iterations <= 2
    assert found.gap > 1e-6
    assert_certified(np.tri(12), found, tolerance=1.0)
    assert [count for count, _ in calls] == [1, 2]


@pytest.mark.parametrize("F", [np.zeros((2, 3)), np.full((2, 5), 0.1), np.ones((3, 1)), np.array([[7.0, 7, 7]])])
def test_what_the_total_answers_needs_no_measurement(F: np.ndarray) -> None:
    for found in (swap_optimum(matrix=F), swap_optimum(F.T @ F)):
        assert (found.strategy.shape, found.lower_bound, found.upper_bound) == ((0, F.shape[1]), 0.0, 0.0)
        assert found.gap == 0.0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "nothing to optimize"),
        ({"gram": [[1.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 3.0]]}, "not positive semidefinite"),
        ({"matrix": [[1.0, math.inf]]}, "NaN or infinite"),
        ({"matrix": np.eye(2), "tolerance": -1.0}, "tolerance"),
        ({"matrix": np.eye(2), "max_iterations": 0}, "max_iterations"),
    ],
)
def test_refusals_say_what_is_wrong(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(WorkloadError, match=words):
        swap_optimum(**arguments)  # pyright: ignore[reportArgumentType]


def test_the_factorization_of_researchers() -> None:
    for F in (np.tri(8), all_ranges(5), np.array([[1.0, 1, 0, 0], [0, 0, 1, 1]])):
        found = factorization(F, neighbours="replace-one")
        assert np.allclose(found.reconstruction @ found.strategy, F + found.offset[:, None])
        assert found.bias_bound <= 1e-12
        attained = math.sqrt(found.row_variances.sum() / len(F))
        assert attained == pytest.approx(found.upper_bound, rel=1e-8)
        assert np.allclose(found.row_variances, (found.reconstruction**2).sum(axis=1))
        assert diameter(found.strategy) == pytest.approx(1)
        assert found.gap <= 1e-6


# ---- the mechanism -----------------------------------------------------------------------------------------


def table(**sizes: int) -> Domain:
    return Domain({name: Integers(1, n) for name, n in sizes.items()})


LINE = table(cell=8)
PAIR = table(a=3, b=4)
CASES: dict[str, tuple[Workload, float | None]] = {
    "prefix": (prefix(LINE, "cell"), 1.4777),
    "ranges": (ranges(LINE, "cell"), 1.6434),
    "disjunctions": (queries(disjunctions(4)), 2.0151),
    "repeated cells": (queries(np.repeat(np.tri(5), 3, axis=1)), 1.2336),
    "few queries": (queries(np.random.default_rng(0).integers(0, 2, size=(5, 30))), 2.1054),
    "two tables": (stack(cells=identity(PAIR), first=prefix(PAIR, "a"), weights={"first": 5}), None),
    "a product": (prefix(PAIR, "b", by="a"), None),
    "with the total": (stack(all=total(LINE), sums=prefix(LINE, "cell")), None),
}


def measured(found: Plan) -> np.ndarray:
    """The integers that are measured, one column per cell of the whole domain."""
    domain = found.workload.domain
    cells = np.eye(domain.size, dtype=np.int64).reshape(domain.size, *domain.shape)
    return np.array([np.concatenate([marginalise(x, domain.names, b) for b in found.strategy.blocks]) for x in cells]).T


@pytest.mark.parametrize("name", CASES)
def test_plans_are_optimal_priced_exactly_and_answer_without_bias(name: str) -> None:
    """Mutants: the price of the longest column; a total that is not held; an offset that is forgotten."""
    work, rmse = CASES[name]
    found = plan(work, UNIT, neighbours="replace-one", mechanism="factorization")
    assert "for a known total" in found.strategy.summary
    assert found.lower_bound is not None
    assert found.lower_bound <= found.objective_value <= found.lower_bound * (1 + 2e-5)
    if rmse is not None:
        assert found.rmse == pytest.approx(rmse, abs=1e-4)
    B = measured(found)
    gram = B.T @ B
    price = max(int(gram[i, i] + gram[j, j] - 2 * gram[i, j]) for i, j in itertools.combinations(range(B.shape[1]), 2))
    assert (found.sensitivity.value, found.sensitivity.exact) == (price, True)
    assert found.noise.variance >= price * (1 - 1e-12)

    counts = np.random.default_rng(1).integers(0, 40, B.shape[1])
    exact = work.operator.matvec(counts)
    shape = work.domain.shape
    values = [marginalise(counts.reshape(shape), work.domain.names, b) for b in found.strategy.blocks]
    held = found.strategy.estimate(values, int(counts.sum()))
    answers = np.concatenate([found.strategy.answer(held, q.block) for q in work.blocks])
    assert np.allclose(answers, exact, rtol=0, atol=1e-6)
    assert found.bias_bound == 0.0

    # least squares from B x and the total, by the covariance of what is left once the total is known
    W = np.asarray(work.operator.dense(), dtype=np.float64)
    scaled = B / np.linalg.norm(B)
    contrasts = np.eye(B.shape[1]) - 1 / B.shape[1]
    covariance = W @ np.linalg.pinv(contrasts @ scaled.T @ scaled @ contrasts) @ W.T / np.linalg.norm(B) ** 2
    predicted = np.concatenate(
        [np.broadcast_to(found.strategy.row_powers(q.block, 2), [f.shape[0] for f in q.block.factors]).reshape(-1)
         for q in work.blocks]
    )  # fmt: skip
    assert np.allclose(predicted, np.diagonal(covariance), rtol=1e-6, atol=1e-6 * covariance.max())
    joint = np.block([[found.strategy.covariance(p.block, q.block) for q in work.blocks] for p in work.blocks])
    assert np.allclose(joint, covariance, rtol=0, atol=1e-6 * covariance.max())


def test_noise_is_as_predicted() -> None:
    found = plan(prefix(LINE, "cell"), UNIT, neighbours="replace-one")
    repetitions = 4000
    seen = simulate(found, np.array([5, 0, 9, 100, 3, 3, 0, 1]), repetitions)
    assert seen.rmse == pytest.approx(found.rmse, rel=6 / math.sqrt(repetitions))
    assert seen.rmse != pytest.approx(1.610, rel=0.02)


def test_a_plan_is_stored_whole(tmp_path: Path) -> None:
    found = plan(prefix(LINE, "cell"), UNIT, neighbours="replace-one")
    found.save(tmp_path / "p.plan")
    again = load(tmp_path / "p.plan")
    assert again.fingerprint == found.fingerprint
    assert again.rmse == found.rmse


def test_where_the_optimum_is_not_offered() -> None:
    """Elsewhere the earlier strategy serves: persons, cells one by one, Laplace, tables of many cells."""
    work = prefix(LINE, "cell")
    others = [
        plan(work, UNIT, neighbours="add-remove", mechanism="factorization"),
        plan(work, UNIT, neighbours="replace-one", person="who", mechanism="factorization"),
        plan(work, Budget.pure(1), neighbours="replace-one", mechanism="factorization"),
        plan(identity(LINE), UNIT, neighbours="replace-one", mechanism="factorization"),
        plan(marginals(table(a=9, b=9, c=9), order=1), UNIT, neighbours="replace-one", mechanism="factorization"),
    ]
    assert not any("for a known total" in found.strategy.summary for found in others)
