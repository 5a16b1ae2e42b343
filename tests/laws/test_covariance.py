"""Laws of covariances: R_1 R_2ᵀ for any two blocks, and agreement alone where all cells are alike."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.errors import NotAnswerable, PlanError
from sfumato.operators import (
    AllRange,
    Block,
    Dense,
    Grouping,
    Identity,
    LinearOperator,
    Padded,
    Prefix,
    Stack,
    Total,
    Tree,
    Window,
)
from sfumato.strategies.attribute_sets import downward_closure
from sfumato.strategies.covariance import Lift
from sfumato.strategies.factors import Cells, Matrix, StrategyFactor, TotalOnly
from sfumato.strategies.product import Product
from sfumato.strategies.residuals import Residuals
from sfumato.strategies.stacked import Stacked
from sfumato.strategies.strategy import Known, Strategy
from support.reconstructions import check_covariances, reconstructions

SIZES = {"a": 5, "b": 4, "c": 3, "d": 1, "e": 2}
NAMES = tuple(SIZES)
SHAPE = tuple(SIZES.values())


def _factor(n: int, rng: np.random.Generator) -> LinearOperator:
    options: list[LinearOperator] = [Identity(n), Prefix(n), AllRange(n), Total(n), Dense(rng.normal(size=(2, n)))]
    options += [Window(n, 2), Padded(Prefix(n - 1), 1)] if n > 1 else []
    groups = Grouping(np.arange(n) // 2, (n + 1) // 2)
    return [*options, groups, Stack((groups, Identity(n)))][rng.integers(len(options) + 2)]


def _block(rng: np.random.Generator, most: int = 3) -> Block:
    """Some attributes in any order, each with a factor of its own or joined with others."""
    names = [NAMES[i] for i in rng.permutation(len(NAMES))[: rng.integers(0, most + 1)]]
    groups: list[tuple[str, ...]] = (
        [
            (),
        ]
        if rng.random() < 0.1
        else []
    )
    while names:
        count = 1 + int(rng.random() < 0.3)
        groups.append(tuple(names[:count]))
        names = names[count:]
    factors: list[LinearOperator] = []
    for group in groups:
        cells = math.prod(SIZES[n] for n in group)
        joined = Dense(rng.integers(-2, 3, (3, cells)))
        factors.append(_factor(cells, rng) if len(group) == 1 else [Identity(cells), joined][rng.integers(2)])
    return Block(tuple(groups), tuple(factors))


def _residuals(rng: np.random.Generator, tilted: tuple[str, ...], known: tuple[Known, ...]) -> Residuals:
    """All sets of three attributes and below, noise of any size, some of them public."""
    triples = np.array(list(itertools.combinations(range(len(NAMES)), 3)), dtype=np.int32)
    sets = downward_closure([triples], len(NAMES))
    multiples = [rng.integers(1, 9, len(s)) for s in sets]
    for order, rows in enumerate(sets):
        for i, row in enumerate(rows.tolist()):
            if any(set(row) <= set(k.axes) for k in known):
                multiples[order][i] = 0
    contrasts = tuple(Dense(rng.integers(-40, 40, (n - 1, n))) if a in tilted else None for a, n in SIZES.items())
    return Residuals(NAMES, SHAPE, sets, tuple(multiples), contrasts if tilted else (), known)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([(), ("a",), ("a", "c")]), st.booleans())
def test_covariances_of_residuals_are_those_of_the_reconstruction(
    seed: int, tilted: tuple[str, ...], public: bool
) -> None:
    """Mutants: n^-1 for n^-2 outside the set, sets beyond those of common attributes, 1/n added, tilts of 1/n,
    rows of the second block first."""
    rng = np.random.default_rng(seed)
    known = (Known((0, 2), rng.integers(0, 9, (5, 3))), Known((1,), rng.integers(0, 9, 4))) if public else ()
    try:
        strategy = _residuals(rng, tilted, known)
        assert len(strategy.lifts) == len(NAMES)
    except PlanError:
        return  # contrasts that do not determine the cells
    blocks = [_block(rng), _block(rng)]
    check_covariances(strategy, blocks, reconstructions(strategy, blocks))


@pytest.mark.parametrize("tilted", [(), ("a",), ("b", "c")])
def test_joined_factors_may_name_their_attributes_in_any_order(tilted: tuple[str, ...]) -> None:
    """Mutant: the axes of a joined factor in the order of the other block."""
    rng = np.random.default_rng(3)
    strategy = _residuals(rng, tilted, ())
    orders = [("a", "b"), ("b", "a"), ("a", "b", "c"), ("c", "a", "b"), ("b", "c", "a")]
    blocks = [Block((n,), (Dense(rng.integers(-2, 3, (4, math.prod(SIZES[a] for a in n)))),)) for n in orders]
    blocks += [Block((("c", "a"), ("b",)), (Dense(rng.integers(-2, 3, (2, 15))), Prefix(4))), _tables("b", "a")]
    check_covariances(strategy, blocks, reconstructions(strategy, blocks))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.booleans())
def test_covariances_of_products_are_those_of_the_reconstruction(seed: int, public_total: bool) -> None:
    """Mutants: the square root of the divisor, the correction of the public total with the wrong sign or once too
    often, components of one query without those that the other joins."""
    rng = np.random.default_rng(seed)
    groups: tuple[tuple[str, ...], ...] = (("b",), ("c", "a"), ("e",))
    tree = Matrix(Tree(4, 2))
    joint = Matrix(Dense(np.concatenate([4 * np.eye(15, dtype=int), rng.integers(-3, 4, (2, 15))])), 4.0)
    options: list[tuple[StrategyFactor, ...]] = [(tree, joint, Cells(2)), (Cells(4), Cells(15), TotalOnly(2))]
    factors = options[rng.integers(2)]
    sizes = ((4,), (3, 5), (2,))
    raw = Block(groups, tuple(f.measured for f in factors)) if rng.random() < 0.5 else None
    recon = rng.normal(size=(raw.rows, raw.rows)) if raw is not None and rng.random() < 0.5 else None
    strategy = Product(groups, sizes, factors, 3, public_total=public_total, raw=raw, reconstruction=recon)
    blocks = [b for b in (_block(rng) for _ in range(8)) if "d" not in b.attributes and () not in b.groups]
    blocks = [b for b in blocks if _answerable(strategy, b)][:3]
    blocks += [Block((), ()), *([] if raw is None else [raw])]
    check_covariances(strategy, blocks, reconstructions(strategy, blocks))


def _answerable(strategy: Strategy, block: Block) -> bool:
    try:
        strategy.check(block)
    except NotAnswerable:
        return False
    return True


def _tables(*names: str) -> Block:
    return Block(tuple((n,) for n in names), tuple(Identity(SIZES[n]) for n in names))


def _cells(multiple: int, *names: str, public_total: bool = False) -> Product:
    groups = tuple((n,) for n in names)
    sizes = tuple((SIZES[n],) for n in names)
    return Product(groups, sizes, tuple(Cells(SIZES[n]) for n in names), multiple, public_total=public_total)


def test_different_pieces_are_independent() -> None:
    """Each query is answered by its best piece. Mutant: the covariance of the first query's piece for both."""
    strategy = Stacked((_cells(200, "a", "b"), _cells(900, "a"), _residuals(np.random.default_rng(1), ("a",), ())))
    blocks = [_tables("a"), _tables("b"), _tables("b", "a"), _tables("c", "a"), Block((("a",),), (Prefix(5),))]
    assert len({id(strategy.source(b)) for b in blocks}) == 3
    check_covariances(strategy, blocks, reconstructions(strategy, blocks))
    assert not strategy.covariance(blocks[0], blocks[1]).any()
    between = strategy.table_covariance(blocks[0], blocks[2])
    assert between is not None
    assert between.tolist() == [0.0, 0.0]


def test_sums_of_squares_that_are_kept_are_those_of_the_piece() -> None:
    """Mutants: squares for fourth powers; an array that whoever asks may change for all who ask later."""
    strategy = Stacked((_cells(200, "a", "b"), _cells(900, "a"), _residuals(np.random.default_rng(1), ("a",), ())))
    for block in [_tables("a"), _tables("b", "a"), Block((("a",),), (Prefix(5),))]:
        for power in (2, 4, 2):
            found = strategy.row_powers(block, power)
            assert np.array_equal(found, strategy.source(block).row_powers(block, power))
        with pytest.raises(ValueError, match="read-only"):
            strategy.row_powers(block, 2)[...] = 0.0


PAIRS = [
    (("a", "b", "c"), ("c", "a", "e")),
    (("b", "a"), ("a", "b")),
    (("a", "d"), ("d", "c", "a")),
    (("a",), ("b", "e")),
    ((), ("a", "b")),
    (("e", "a"), ("e", "a")),
]


@pytest.mark.parametrize(("first", "second"), PAIRS)
@pytest.mark.parametrize("kind", ["residuals", "public", "cells", "cells and a public total"])
def test_tables_have_one_covariance_per_pattern_of_agreement(
    kind: str, first: tuple[str, ...], second: tuple[str, ...]
) -> None:
    """Mutant: agreement in the order of the second table."""
    rng = np.random.default_rng(4)
    known = (Known((0, 1), np.ones((5, 4))),)
    strategies: dict[str, Strategy] = {
        "residuals": _residuals(rng, ("b",) if "b" not in first + second else (), ()),
        "public": _residuals(rng, (), known),
        "cells": _cells(2, *NAMES),
        "cells and a public total": _cells(2, *NAMES, public_total=True),
    }
    strategy = strategies[kind]
    compact = strategy.table_covariance(_tables(*first), _tables(*second))
    full = strategy.covariance(_tables(*first), _tables(*second))
    assert compact is not None
    common = [n for n in first if n in second]
    assert compact.shape == tuple(min(2, SIZES[n]) for n in common)
    for i, t in enumerate(np.ndindex(*(SIZES[n] for n in first))):
        for j, u in enumerate(np.ndindex(*(SIZES[n] for n in second))):
            differs = tuple(int(t[first.index(n)] != u[second.index(n)]) for n in common)
            assert full[i, j] == pytest.approx(float(compact[differs]), rel=1e-9, abs=1e-15)


def test_the_closed_form_for_two_tables() -> None:
    """sum_S s_S ∏_S (1[same] - 1/n) ∏_rest of both 1/n, over the sets of common attributes."""
    strategy = _residuals(np.random.default_rng(8), (), ())
    first, second = ("a", "b", "c"), ("b", "e", "a")
    full = strategy.covariance(_tables(*first), _tables(*second)).reshape(5, 4, 3, 4, 2, 5)
    for a, b, c, v, e, u in [(0, 1, 2, 1, 0, 0), (0, 1, 2, 3, 1, 0), (4, 0, 0, 2, 1, 2), (3, 2, 1, 2, 0, 1)]:
        same = {"a": a == u, "b": b == v}
        wanted = 0.0
        for s in ((), ("a",), ("b",), ("a", "b")):
            order, axes = len(s), [NAMES.index(n) for n in s]
            row = [r.tolist() for r in strategy.sets[order]].index(axes)
            multiple = int(strategy.multiples[order][row])
            term = (multiple * math.prod(SIZES[n] for n in s)) ** -2.0
            term *= math.prod(same[n] - 1 / SIZES[n] for n in s)
            wanted += term / math.prod(SIZES[n] for names in (first, second) for n in names if n not in s)
        assert full[a, b, c, v, e, u] == pytest.approx(wanted, rel=1e-12)


def test_tilted_cells_are_not_alike() -> None:
    strategy = _residuals(np.random.default_rng(1), ("a",), ())
    assert any(lift is not None for lift in strategy.lifts)
    assert isinstance(strategy.lifts[0], Lift)
    assert strategy.table_covariance(_tables("a", "b"), _tables("b")) is None
    assert strategy.table_covariance(_tables("c", "b"), _tables("b")) is not None
    assert Product((("a",),), ((5,),), (Matrix(Tree(5, 2)),)).table_covariance(_tables("a"), _tables("a")) is None


def test_too_many_are_refused_and_the_way_out_is_named() -> None:
    strategy = _cells(1, "a")
    large = Block((("a",),), (Dense(np.ones((6_000, 5))),))
    with pytest.raises(PlanError, match=r"6,000 answers with 6,000 .* table_covariances"):
        strategy.covariance(large, large)


def test_memory_stays_bounded_where_many_rows_meet_one() -> None:
    """One row over a million cells against all of them: no dense matrix of a million squared."""
    n = 1_000_000
    empty = np.empty((1, 0), dtype=np.int32), np.array([[0]], dtype=np.int32)
    strategy = Residuals(("x",), (n,), empty, (np.array([3]), np.array([2])))
    row, cells = Block((("x",),), (Dense((np.arange(n) < 10)[None].astype(int)),)), Block((("x",),), (Identity(n),))
    found = strategy.covariance(row, cells)
    assert found.shape == (1, n)
    total, contrast = 1 / 9, 1 / (2 * n) ** 2
    assert found[0, 0] == pytest.approx(total * 10 / n / n + contrast * (1 - 10 / n))
    assert found[0, -1] == pytest.approx(total * 10 / n / n - contrast * 10 / n)
    np.testing.assert_allclose(strategy.covariance(cells, row).T, found, rtol=1e-9)
