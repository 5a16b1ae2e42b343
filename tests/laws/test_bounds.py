"""Laws of the lower bound for unions of products: never above the dense nuclear norm, and equal where it claims so."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.errors import PlanError
from sfumato.operators import AllRange, Dense, Identity, LinearOperator, Prefix, Total, Window
from sfumato.operators.base import FloatArray
from sfumato.strategies import tilted_bounds as bounds
from sfumato.strategies.dense_optimal import optimize_dense
from sfumato.strategies.tilted import Product, Union, optimise_shapes
from sfumato.strategies.tilted_bounds import union_bound

Weights = dict[str, FloatArray]


def _matrix(products: list[Product], sizes: Mapping[str, int]) -> FloatArray:
    """W, every product on all cells."""
    rows = [
        math.sqrt(weight)
        * reduce(np.kron, [np.asarray(f[a].dense(), float) if a in f else np.ones((1, n)) for a, n in sizes.items()])
        for weight, f in products
    ]
    return np.concatenate(rows)


def _nuclear(products: list[Product], sizes: Mapping[str, int], weights: Mapping[str, FloatArray]) -> float:
    parts = [weights.get(a, np.ones(n)) for a, n in sizes.items()]
    v = reduce(np.kron, [p / p.sum() for p in parts])
    return float(np.linalg.norm(_matrix(products, sizes) * np.sqrt(v), "nuc"))


@st.composite
def factors(draw: st.DrawFn, n: int) -> LinearOperator:
    kind = draw(st.sampled_from(["cells", "prefix", "ranges", "total", "window", "constant", "any", "deficient"]))
    match kind:
        case "cells":
            return Identity(n)
        case "prefix":
            return Prefix(n)
        case "ranges":
            return AllRange(n)
        case "total":
            return Total(n)
        case "window":
            return Window(n, draw(st.integers(1, n)))
        case "constant":
            return Dense(np.full((2, n), 3))
        case _:
            rows = 1 if kind == "deficient" else n
            entries = st.lists(st.integers(-3, 3), min_size=n * rows, max_size=n * rows)
            return Dense(np.array(draw(entries), dtype=np.int64).reshape(rows, n))


@st.composite
def unions(draw: st.DrawFn, *, one_kind: bool = False) -> tuple[list[Product], dict[str, int], Weights]:
    sizes = {a: draw(st.integers(1, 5)) for a in "abc"}
    pool = {a: draw(st.lists(factors(n), min_size=1, max_size=1 if one_kind else 3)) for a, n in sizes.items()}
    products: list[Product] = [
        (
            draw(st.sampled_from([0.3, 1.0, 2.5])),
            {a: draw(st.sampled_from(pool[a])) for a in draw(st.permutations("abc")) if draw(st.booleans())},
        )
        for _ in range(draw(st.integers(1, 5)))
    ]
    given_ = [a for a in sizes if draw(st.booleans())]
    weights = {a: np.array(draw(st.lists(st.integers(0, 9), min_size=sizes[a], max_size=sizes[a]))) for a in given_}
    return products, sizes, {a: w.astype(float) if w.any() else np.ones(sizes[a]) for a, w in weights.items()}


def _heard(products: list[Product], weights: Weights) -> Weights:
    """The weights but those of attributes that stay uniform."""
    plain = {a for a in weights if all(bounds.is_plain(f[a]) for _, f in products if a in f)}
    used = {a for _, f in products for a in f}
    return {a: w for a, w in weights.items() if a not in plain and a in used}


@settings(max_examples=150)
@given(case=unions(), widths=st.sampled_from([(24,), (2,), (1,)]))
def test_never_above_the_nuclear_norm(
    case: tuple[list[Product], dict[str, int], Weights], widths: tuple[int, ...]
) -> None:
    products, sizes, weights = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounds, "_WIDTHS", widths)
        found = union_bound(products, sizes, weights=weights)
    assert found is not None
    assert 0.0 <= found <= _nuclear(products, sizes, _heard(products, weights)) * (1 + 1e-12)


@settings(max_examples=100)
@given(case=unions(one_kind=True))
def test_the_nuclear_norm_where_every_attribute_has_one_factor(
    case: tuple[list[Product], dict[str, int], Weights],
) -> None:
    products, sizes, weights = case
    found = union_bound(products, sizes, weights=weights)
    exact = _nuclear(products, sizes, _heard(products, weights))
    assert found == pytest.approx(exact, rel=3e-6, abs=1e-6)


@settings(max_examples=40)
@given(case=unions())
def test_never_above_the_optimum(case: tuple[list[Product], dict[str, int], Weights]) -> None:
    products, sizes, weights = case
    optimum = optimize_dense(matrix=_matrix(products, sizes), tolerance=1e-6)
    found = union_bound(products, sizes, weights=weights)
    assert found is not None
    assert found <= optimum.upper_bound


@settings(max_examples=100)
@given(case=unions(one_kind=True))
def test_a_record_replaced_is_bounded_by_weights_on_pairs(
    case: tuple[list[Product], dict[str, int], Weights],
) -> None:
    """The nuclear norm of W L^(1/2) by itself, L the Laplacian of the weights v_a v_b. Mutants: q left in; the first
    vector left out of every set; the weights of pairs of one cell counted; cells of one attribute alone."""
    products, sizes, weights = case
    found = union_bound(products, sizes, weights=weights, replaced=True)
    assert found is not None
    used = {a for _, f in products for a in f}
    heard = _heard(products, weights)
    each = [heard.get(a, np.ones(n)) if a in used else np.eye(n)[0] for a, n in sizes.items()]
    v = functools.reduce(np.multiply.outer, [w / w.sum() for w in each]).reshape(-1)
    if v @ v > 1 - 1e-12:
        assert found == 0.0
        return
    matrix = _matrix(products, sizes)
    laplacian = (np.diag(v) - np.outer(v, v)) * (2 / (1 - v @ v))
    squares = np.linalg.eigvalsh(matrix @ laplacian @ matrix.T)
    assert found == pytest.approx(float(np.sqrt(np.maximum(squares, 0)).sum()), rel=1e-5, abs=3e-5)


def _tables(sizes: Mapping[str, int], numeric: int, orders: list[int]) -> list[Product]:
    each = {a: Prefix(n) if i < numeric else Identity(n) for i, (a, n) in enumerate(sizes.items())}
    return [(1.0, {a: each[a] for a in s}) for r in orders for s in itertools.combinations(sizes, r)]


@pytest.mark.parametrize("orders", [[1], [2], [3], [0, 1, 2, 3]])
def test_close_below_tilted_residuals(orders: list[int]) -> None:
    sizes = {"a": 40, "b": 30, "c": 25, "d": 9, "e": 2}
    products = _tables(sizes, 3, orders)
    union = Union(products, sizes)
    shapes = optimise_shapes(union)
    weights = {union.names[i]: s.dual for i, s in shapes.items()}
    found = union_bound(products, sizes, weights=weights)
    uniform = union_bound(products, sizes)
    assert found is not None
    assert uniform is not None
    assert uniform < found <= math.sqrt(union.error(shapes)) <= found * 1.01


def test_any_width_is_nearly_the_nuclear_norm_for_prefixes() -> None:
    """Five vectors per attribute do, of 12 cells each and of 1,728 together."""
    sizes = {"a": 12, "b": 12, "c": 12}
    products = _tables(sizes, 3, [0, 1, 2])
    exact = _nuclear(products, sizes, {})
    found: list[float] = []
    for width in (0, 1, 2, 4, 24):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(bounds, "_WIDTHS", (max(width, 1),))
            patch.setattr(bounds, "_MAX_BLOCK_WORK", 0.0 if width == 0 else 4e9)
            found.append(union_bound(products, sizes) or 0.0)
    assert found == sorted(found)
    assert found[-1] == pytest.approx(exact, rel=1e-6)
    assert exact * (1 - 1e-4) < found[3] <= exact
    assert found[0] < exact * (1 - 1e-2)


def test_four_vectors_do_for_prefixes_of_any_length() -> None:
    sizes = {"a": 120, "b": 110, "c": 100, "d": 5}
    found: list[float] = []
    for width in (4, 9):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(bounds, "_WIDTHS", (width,))
            found.append(union_bound(_tables(sizes, 3, [1, 2, 3]), sizes) or 0.0)
    assert found[1] * (1 - 5e-5) < found[0] <= found[1]


def test_one_product_has_the_product_of_the_norms() -> None:
    """Three prefixes in one product, of 216,000 cells."""
    sizes = {"a": 60, "b": 60, "c": 60}
    found = union_bound([(4.0, {a: Prefix(n) for a, n in sizes.items()})], sizes)
    norm = np.linalg.norm(np.tril(np.ones((60, 60))) / math.sqrt(60), "nuc")
    assert found == pytest.approx(2 * norm**3, rel=1e-7)
    assert found is not None
    assert found <= 2 * norm**3


def test_marginals_have_their_closed_form() -> None:
    sizes = {f"a{i}": n for i, n in enumerate([7, 5, 4, 3, 1, 60])}
    products = [(1.0 + i, f) for i, (_, f) in enumerate(_tables(sizes, 0, [0, 2, 3]))]
    sums: dict[tuple[str, ...], float] = {}
    for weight, f in products:
        for s in (s for r in range(len(f) + 1) for s in itertools.combinations(f, r)):
            sums[s] = sums.get(s, 0.0) + weight / math.prod(sizes[a] for a in f)
    exact = sum(math.sqrt(v) * math.prod(sizes[a] - 1 for a in s) for s, v in sums.items())
    found = union_bound(products, sizes)
    assert found == pytest.approx(exact, rel=1e-9)
    assert found is not None
    assert found <= exact


def test_a_hundred_attributes() -> None:
    """4,951 tables, five attributes cumulative: no object per cell, and the blocks are small."""
    sizes = {f"a{i}": 10 for i in range(100)}
    products = _tables(sizes, 5, [0, 2])
    found = union_bound(products, sizes)
    split = Union(products, sizes)
    assert found is not None
    assert found**2 <= split.error(optimise_shapes(split, tilt=False)) <= 1.1 * found**2


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32 - 1))
def test_row_weights_bound_the_largest_variance(seed: int) -> None:
    """sum_q lambda_q Var_q <= max_q Var_q, for any strategy: here the one of least mean variance, and the cells."""
    public = np.random.default_rng(seed)
    sizes = {"a": 5, "b": 4}
    parts = [({"a": Prefix(5), "b": Identity(4)}, (5, 4)), ({"a": Prefix(5)}, (5,)), ({"b": AllRange(4)}, (10,))]
    rows: list[Product] = []
    total = 0.0
    for given_, lengths in parts:
        shares = [public.dirichlet(np.ones(n)) for n in lengths]
        scaled = [
            Dense(np.sqrt(s)[:, None] * np.asarray(f.dense())) for s, f in zip(shares, given_.values(), strict=True)
        ]
        weight = float(public.uniform(0.1, 1.0))
        total += weight
        rows.append((weight, dict(zip(given_, scaled, strict=True))))
    found = union_bound([(w / total, f) for w, f in rows], sizes)
    matrix = _matrix([(1.0, f) for f, _ in parts], sizes)
    best = optimize_dense(matrix=matrix).strategy
    assert found is not None
    for strategy in (best, np.eye(20)):
        answers = matrix @ np.linalg.pinv(strategy)
        price = (strategy**2).sum(axis=0).max()
        assert found**2 <= (answers**2).sum(axis=1).max() * price * (1 + 1e-9)


def test_rounding_never_raises_it() -> None:
    """Roots down to 1e-9 of the largest, whose squares are below what an eigendecomposition resolves."""
    scales = 10.0 ** -np.arange(12)
    turn, _ = np.linalg.qr(np.random.default_rng(3).normal(size=(12, 12)))
    products: list[Product] = [(1.0, {"a": Dense(np.diag(scales)), "b": Dense(scales[:, None] * turn)})]
    weights = {"a": np.ones(12), "b": np.ones(12)}
    found = union_bound(products, {"a": 12, "b": 12}, weights=weights)
    exact = (scales.sum() / math.sqrt(12)) ** 2
    assert found is not None
    assert exact * (1 - 1e-5) < found <= exact


def test_orders_do_not_matter() -> None:
    sizes = {"a": 6, "b": 5, "c": 4}
    products: list[Product] = [
        (1.0, {"a": Prefix(6), "b": Window(5, 2)}),
        (2.0, {"b": Prefix(5), "c": Identity(4)}),
        (0.5, {"a": AllRange(6), "c": Prefix(4)}),
    ]
    turned: list[Product] = [(w, {a: f[a] for a in reversed(list(f))}) for w, f in reversed(products)]
    found = union_bound(products, sizes)
    assert union_bound(turned, dict(reversed(sizes.items()))) == pytest.approx(found, rel=1e-9)
    once: Product = (3.0, {"a": Identity(6), "c": Identity(4)})
    twice: list[Product] = [(1.0, once[1]), (2.0, {"c": Identity(4), "a": Identity(6)})]
    assert union_bound(twice, sizes) == pytest.approx(union_bound([once], sizes), rel=1e-9)


@pytest.mark.parametrize("wrong", [np.ones(5), np.zeros(6), np.array([1, 1, 1, 1, 1, -1e-9]), np.full(6, np.nan)])
def test_weights_of_wrong_shape_or_sign_are_refused(wrong: FloatArray) -> None:
    with pytest.raises(PlanError, match="weights of a must be 6"):
        union_bound([(1.0, {"a": Prefix(6)})], {"a": 6}, weights={"a": wrong})


def test_what_would_take_too_long_has_none() -> None:
    assert union_bound([(1.0, {"a": Prefix(3_000)})], {"a": 3_000}) is None
    many = {f"a{i}": 2 for i in range(30)}
    assert union_bound([(1.0, {a: Identity(2) for a in many})], many) is None
    assert union_bound([], {"a": 3}) == 0.0
    assert union_bound([(4.0, {})], {"a": 3}) == pytest.approx(2.0)
