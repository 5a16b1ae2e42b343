"""Square-root Toeplitz and tree strategies against dense linear algebra, and exact convolutions against integers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.errors import WorkloadError
from sfumato.maps import toeplitz as convolution
from sfumato.maps.toeplitz import causal_exact
from sfumato.operators import AllRange, Block, Dense, Identity, LinearOperator, Padded, Prefix, Toeplitz, Tree, Window
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.strategies.certificates import exact_sensitivity
from sfumato.strategies.dense_dual import pair_bound
from sfumato.strategies.dense_optimal import optimize_dense
from sfumato.strategies.range_bounds import OrderedStrategy
from sfumato.strategies.toeplitz import (
    FINE_ROOT,
    Roots,
    all_range_bound,
    prefix_bound,
    replaced_prefix_bound,
    square_root_strategy,
    wide_bound,
    window_bound,
)
from sfumato.strategies.trees import TreeSums
from support.sensitivities import check_price

WORDS = st.integers(-(2**63), 2**63 - 1)


def modular(values: Any) -> list[int]:
    return [int(v) % 2**64 for v in np.asarray(values, dtype=object).reshape(-1)]


def roots(n: int, width: int | None = None) -> Roots:
    coefficients, weights = square_root_strategy(n, width)
    return Roots(Toeplitz(coefficients, np.floor(weights * FINE_ROOT).astype(np.int64)))


def asked(n: int) -> list[LinearOperator]:
    padded: list[LinearOperator] = [Padded(AllRange(n - 1)), Padded(Prefix(n - 1))] if n > 1 else []
    windows: list[LinearOperator] = [Window(n, 1), Window(n, (n + 1) // 2), Window(n, n)]
    return [Prefix(n), AllRange(n), Identity(n), Dense(np.arange(n)[None, :] - 1), *windows, *padded]


@settings(deadline=None, max_examples=30)
@given(st.data(), st.integers(1, 40))
def test_convolutions_are_exact_modulo_2_64(data: st.DataObject, n: int) -> None:
    kernel = data.draw(st.lists(st.integers(-(2**61), 2**61), min_size=n, max_size=n))
    given_ = data.draw(st.lists(WORDS, min_size=n, max_size=n))
    exact = [sum(kernel[j] * given_[i - j] for j in range(i + 1)) for i in range(n)]
    assert modular(causal_exact(np.array(kernel), np.array(given_))) == modular(exact)


@pytest.mark.parametrize("n", [3_000, 2**14 + 1])
def test_long_convolutions_of_extreme_words_are_exact(n: int) -> None:
    """All words at the ends of int64, against a sum modulo 2^64 that never leaves integers."""
    coefficients, _ = square_root_strategy(n)
    words = np.random.default_rng().choice(np.array([-(2**63), 2**63 - 1, -1, 2**62]), n)
    found = causal_exact(coefficients, words)
    for i in [*np.random.default_rng().integers(0, n, 20).tolist(), n - 1]:
        # int64 wraps around: exact modulo 2^64
        assert found[i] == np.dot(coefficients[: i + 1][::-1], words[: i + 1])


@pytest.mark.parametrize("top", [2**16, 2**61])
def test_digits_are_short_enough_for_the_proved_error(top: int) -> None:
    """At the length of 2^21: the bound of the module's docstring, written again, is at most 1/4 for any data."""
    module: Any = convolution
    n, size = 2**20, 2**21
    kernel = np.random.default_rng().integers(-top, top, n)
    limbs = module._kernel_limbs(kernel, size)
    width = module._largest_digit_width(limbs, n, size)
    longest = math.sqrt(n) * 2 ** (width - 1)
    for limb in limbs:
        peak = np.abs(limb.transform).max() + 21 * 2.0**-49 * math.sqrt(size) * limb.norm
        error = 21 * 2.0**-49 * (2 * peak + limb.norm) + 5 * 2.0**-53 * peak
        assert 1.01 * error * longest <= 0.25


@settings(deadline=None, max_examples=60)
@given(st.data(), st.integers(1, 24))
def test_toeplitz_operators_are_their_matrices(data: st.DataObject, n: int) -> None:
    """Mutants: sums of columns, or answers, without the columns' own multiples; these of the wrong end."""
    signed = st.lists(st.integers(-(2**12), 2**12), min_size=n, max_size=n)
    numbers = st.lists(st.integers(0, 2**12), min_size=n, max_size=n)
    columns = data.draw(st.none() | st.lists(st.integers(0, 2**20), min_size=n, max_size=n))
    own = None if columns is None else np.array(columns)
    operator = Toeplitz(np.array(data.draw(signed)), np.array(data.draw(numbers)), own)
    c, d, w = operator.coefficients.tolist(), operator.multiples.tolist(), columns or [1] * n
    written = [[d[i] * c[i - j] * w[j] if j <= i else 0 for j in range(n)] for i in range(n)]
    matrix = np.array(written, dtype=object)
    assert (operator.dense() == matrix).all()
    assert (operator.rows(0, n) == matrix.astype(float)).all()
    x = np.array(data.draw(st.lists(WORDS, min_size=2 * n, max_size=2 * n))).reshape(n, 2)
    assert modular(operator.matvec(x)) == modular(matrix @ x.astype(object))
    assert modular(operator.rmatvec(x)) == modular(matrix.T @ x.astype(object))
    for power in (1, 2):
        assert operator.column_sums(power).tolist() == (np.abs(matrix) ** power).sum(axis=0).tolist()
    assert operator.max_abs >= np.abs(matrix).max()
    assert not operator.nonnegative or matrix.min() >= 0
    real = matrix.astype(float) @ (x / 2**40)
    assert np.abs(operator.matvec(x / 2**40) - real).max() <= 1e-13 * n * 2.0**47 * max(w)


def test_toeplitz_operators_refuse_what_is_not_exact() -> None:
    one = np.ones(2, dtype=np.int64)
    for given_ in (
        (one, one[:1]),
        (one, -one),
        (one * -(2**63), one),
        (one.astype(float), one),
        (one * 2**31, one * 2**20),
        (one, one, one[:1]),
        (one, one, -one),
        (one, one, one.astype(float)),
        (one * 2**10, one * 2**10, one * 2**43),
    ):
        with pytest.raises(WorkloadError):
            Toeplitz(*given_)


def operators(n: int) -> list[LinearOperator]:
    """What the strategies over n cells measure."""
    found: list[LinearOperator] = [roots(n, w).operator for w in dict.fromkeys([None, 1, (n + 1) // 2, n])]
    return found + [Tree(n, b, root) for b in (2, 3) for root in (True, False)]


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("n", [1, 2, 3, 8, 50])
def test_the_sensitivity_of_each_strategy_is_that_of_its_matrix(n: int, power: int) -> None:
    for operator in operators(n):
        check_price(operator, power)


def test_a_large_root_is_bounded_by_twice_a_column_where_a_row_is_replaced() -> None:
    n = 5_500
    block = Block((("t",),), (roots(n).operator,))
    column = exact_sensitivity([block], {"t": n}, PrivacyUnit(Neighbours.ADD_REMOVE), 2).value
    found = exact_sensitivity([block], {"t": n}, PrivacyUnit(Neighbours.REPLACE_ONE), 2)
    dense = block.factors[0].dense()
    far = int(((dense[:, 0] - dense[:, -1]) ** 2).sum())
    assert far <= found.value <= 2 * column
    assert not found.exact


def test_a_large_root_of_windows_is_bounded_by_four_times_a_column() -> None:
    """Columns of entries of both signs may differ by more than twice a column."""
    n = 5_500
    operator = roots(n, 2).operator
    assert not operator.nonnegative
    column = int(max(operator.column_sums(2)))
    found = exact_sensitivity([Block((("t",),), (operator,))], {"t": n}, PrivacyUnit(Neighbours.REPLACE_ONE), 2)
    assert (found.value, found.exact) == (4 * column, False)


@pytest.mark.parametrize("n", [2, 3, 7, 64, 129])
def test_columns_of_the_root_have_one_length(n: int) -> None:
    sums = roots(n).operator.column_sums(2)
    assert max(sums) / min(sums) < 1.001


STRATEGIES: list[tuple[int, Any]] = [
    *[(n, "root") for n in (1, 2, 3, 7, 40, 101)],
    *[(1, 1), (2, 1), (7, 2), (40, 12), (101, 60)],
    *[(n, Tree(n, b, root)) for n in (1, 2, 3, 8, 9, 17, 30, 64, 100) for b in (2, 3, 4, 16) for root in (True, False)],
]


def made(n: int, given_: Any) -> tuple[OrderedStrategy, Any]:
    width = given_ if isinstance(given_, int) else None
    factor: OrderedStrategy = TreeSums(given_) if isinstance(given_, Tree) else roots(n, width)
    return factor, np.linalg.pinv(factor.measured.dense().astype(float))


@pytest.mark.parametrize(("n", "kind"), STRATEGIES, ids=lambda v: repr(v) if isinstance(v, int) else str(v))
def test_reconstruction_and_errors_are_those_of_the_pseudo_inverse(n: int, kind: Any) -> None:
    factor, inverse = made(n, kind)
    scale = np.abs(inverse).max()
    assert np.abs(factor.cells(np.eye(inverse.shape[1])) - inverse).max() <= 1e-10 * scale
    assert np.abs(factor.spread(np.eye(n)) - inverse).max() <= 1e-10 * scale
    assert np.abs(factor.cells_of_rows(np.eye(n)) - inverse @ inverse.T).max() <= 1e-9 * scale**2
    for query in asked(n):
        rows = query.dense() @ inverse
        for power in (2, 4):
            exact = (rows**power).sum(axis=1)
            np.testing.assert_allclose(factor.row_powers(query, power), exact, rtol=1e-9, atol=1e-12 * scale**power)


@pytest.mark.parametrize(("n", "kind"), STRATEGIES, ids=lambda v: repr(v) if isinstance(v, int) else str(v))
def test_errors_of_all_ranges_together_are_those_one_by_one(n: int, kind: Any) -> None:
    factor, inverse = made(n, kind)
    ones = factor.spread_ones()
    assert ones is not None
    cases: list[LinearOperator] = [AllRange(n), *([Padded(AllRange(n - 1))] if n > 1 else [])]
    for query in cases:
        variances = ((query.dense() @ inverse) ** 2).sum(axis=1)
        for known in (None, ones):
            exact = variances if known is None else variances - (query.dense() @ ones) ** 2 / ones.sum()
            mean, largest = factor.range_errors(query, known)
            assert math.isclose(mean, exact.mean(), rel_tol=1e-9, abs_tol=1e-9 * variances.max())
            rounding = 1e-8 * variances.max()
            if isinstance(kind, Tree):
                # proved, and nowhere above it where so few cells have bins of their own
                assert exact.max() - rounding <= largest <= 1.001 * exact.max() + rounding
                continue
            # proved from above, and closely for the root of the prefix sums
            assert exact.max() - rounding <= largest
            assert kind != "root" or largest <= 1.02 * exact.max() + rounding


def test_tree_least_squares_at_512_equals_the_pseudo_inverse() -> None:
    tree = Tree(512)
    inverse = np.linalg.pinv(tree.dense().astype(float))
    assert np.abs(TreeSums(tree).cells(np.eye(tree.shape[0])) - inverse).max() < 1e-10


@pytest.mark.parametrize("n", [1, 2, 5, 33])
@pytest.mark.parametrize(("kind", "bound"), [(Prefix, prefix_bound), (AllRange, all_range_bound)])
def test_bounds_are_the_diagonals_of_roots(kind: Any, bound: Any, n: int) -> None:
    """Between the singular values' and the optimum, to .6 % of it. Mutants: a cell too many; the diagonal unsquared."""
    matrix = kind(n).dense().astype(float)
    _, values, right = np.linalg.svd(matrix, full_matrices=False)
    assert math.isclose(np.linalg.norm(np.diag((right.T * values) @ right)), bound(n), rel_tol=1e-12)
    best = optimize_dense(matrix.T @ matrix, matrix=matrix).lower_bound
    most = 1.006 if kind is Prefix else 1.0006
    assert values.sum() / math.sqrt(n) * (1 - 1e-12) <= bound(n) <= best * (1 + 1e-9) <= most * bound(n)


@pytest.mark.parametrize("n", [2, 3, 7, 64])
def test_the_bound_of_prefixes_where_a_record_is_replaced_is_that_of_equal_weights(n: int) -> None:
    """Mutants: as many singular values as cells; the weights of pairs of one cell counted."""
    gram = np.asarray(Prefix(n).gram().dense(), dtype=float)
    assert math.isclose(replaced_prefix_bound(n), pair_bound(gram), rel_tol=1e-8)


@pytest.mark.parametrize(
    ("n", "width", "near"),
    [(1, 1, 1), (9, 1, 1), (9, 9, 1), (9, 7, 0.94), (12, 11, 0.97), (64, 4, 0.99), (64, 20, 0.95), (64, 30, 0.9),
     (64, 32, 0.94), (64, 33, 0.95), (64, 60, 0.93), (150, 76, 0.96), (500, 402, 0.96)],
)  # fmt: skip
def test_the_bound_for_windows_is_below_the_optimum_and_near(n: int, width: int, near: float) -> None:
    """Mutants: a wave and none of its conjugate among the slow ones; waves that turn no sign; the middle cell twice; 1
    on the slow waves forgotten."""
    matrix = Window(n, width).dense().astype(float)
    best = optimize_dense(matrix.T @ matrix, matrix=matrix).lower_bound
    assert near * (1 - 1e-9) <= window_bound(n, width) / best <= 1 + 1e-9


@pytest.mark.parametrize("rows", [2, 5, 75, 110])
def test_the_bound_for_wide_windows_is_that_of_a_contraction(rows: int) -> None:
    """P written out. Mutants: the sums of the second cells as those of the first; another sign of theirs."""
    matrix = Window(2 * rows - 1, rows).dense().astype(float)
    cell = np.arange(rows)
    negacyclic = np.where(cell[:, None] <= cell, 0.5, -0.5)
    waves = np.exp(1j * np.outer(cell, (2 * cell + 1) * np.pi / rows)) / np.sqrt(rows)
    few = min(24, rows // 2)
    slow = np.concatenate([waves[:, :few], waves[:, rows - few :]], axis=1)
    onto = (slow @ slow.conj().T).real
    left, _, right = np.linalg.svd(negacyclic)
    fast = (np.eye(rows) - onto) @ left @ right / np.sqrt(2)
    left, _, right = np.linalg.svd(onto @ matrix, full_matrices=False)
    contraction = left[:, : 2 * few] @ right[: 2 * few] + np.concatenate([fast, -fast[:, :-1]], axis=1)
    assert np.linalg.norm(contraction, 2) <= 1 + 1e-9
    assert np.linalg.norm((contraction * matrix).sum(axis=0)) == pytest.approx(wide_bound(rows), rel=1e-7)


@pytest.mark.parametrize(("n", "width", "most"), [(256, 2, 1.002), (256, 32, 1.02), (256, 64, 1.04), (256, 128, 1.12)])
def test_the_root_of_windows_is_close_to_their_optimum(n: int, width: int, most: float) -> None:
    matrix = Window(n, width).dense().astype(float)
    factor = roots(n, width)
    error = factor.row_powers(Window(n, width), 2).sum() * max(factor.operator.column_sums(2))
    best = optimize_dense(matrix.T @ matrix, matrix=matrix)
    assert 1.0 <= math.sqrt(float(error)) / best.upper_bound * (1 + 1e-6) < most


@pytest.mark.parametrize(("operator", "bound"), [(Prefix, prefix_bound), (AllRange, all_range_bound)])
def test_the_root_is_close_to_the_bound(operator: Any, bound: Any) -> None:
    """Errors of the rounded integers at their own price: 1.2 % above the bound for prefixes of 2^17 cells."""
    n = 2**17
    factor = roots(n)
    top = float(max(factor.operator.column_sums(2)))
    if operator is Prefix:
        total = float(factor.prefix_powers(n, 2).sum()) * top
    else:
        total = factor.range_errors(AllRange(n))[0] * top * (n * (n + 1) / 2)
    ratio = math.sqrt(total) / bound(n)
    assert 1.0 < ratio < (1.012 if operator is Prefix else 1.043)
