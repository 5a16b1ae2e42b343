"""Bounds from weights constant on orbits: the dense nuclear norm at even weights, and never above the optimum."""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np
import pytest

from sfumato.operators import Dense, Identity, LinearOperator, Prefix, Total
from sfumato.strategies import union_planning as module
from sfumato.strategies.dense_optimal import optimize_dense
from sfumato.strategies.merged_planning import optimize_all_pairs
from sfumato.strategies.union_planning import orbit_bound

Products = list[tuple[float, dict[str, LinearOperator]]]
SIZES = ((5, 4, 3), (6, 3, 4), (7, 5), (4, 4, 2, 3))


def _drawn(sizes: tuple[int, ...], seed: int, *, ordered: bool = False) -> Products:
    """All tables of two attributes, and counts of sets of cells of large weight; a prefix where some are ordered."""
    rng = np.random.default_rng([72, seed])
    names = [f"a{i}" for i in range(len(sizes))]
    out: Products = [
        (float(rng.integers(1, 4)), {names[i]: Identity(sizes[i]) for i in pair})
        for pair in itertools.combinations(range(len(sizes)), 2)
    ]
    for _ in range(4):
        some = rng.choice(len(sizes), 2, replace=False).tolist()
        sets = {names[i]: Dense((rng.random((1, sizes[i])) < 0.5).astype(np.int64)) for i in some}
        out.append((50.0, dict(sets)))
    if ordered:
        out.append((2.0, {names[0]: Prefix(sizes[0])}))
    return [(w, f) for w, f in out if all(o.max_abs for o in f.values())]


def _dense(products: Products, sizes: tuple[int, ...]) -> np.ndarray:
    """The weighted queries over all joint cells."""
    rows = []
    for weight, factors in products:
        each = (factors.get(f"a{i}", Total(n)) for i, n in enumerate(sizes))
        whole = functools.reduce(np.kron, [np.asarray(f.dense(), dtype=np.float64) for f in each])
        rows.append(math.sqrt(weight) * whole)
    return np.concatenate(rows)


def _sizes(sizes: tuple[int, ...]) -> dict[str, int]:
    return {f"a{i}": n for i, n in enumerate(sizes)}


@pytest.mark.parametrize("seed", range(8))
def test_at_even_weights_it_is_the_nuclear_norm_of_all_cells(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutants seen: a multiplicity not squared; kinds of one row lost; pairs of a cell with itself; not centred."""
    monkeypatch.setattr(module, "_STEPS", 1)
    monkeypatch.setattr(module, "_PAIR_STEPS", 1)
    sizes = SIZES[seed % 4]
    products = _drawn(sizes, seed, ordered=seed % 2 == 1)
    dense, cells = _dense(products, sizes), math.prod(sizes)
    even = np.linalg.norm(dense, "nuc") / math.sqrt(cells)
    assert orbit_bound(products, _sizes(sizes)) == pytest.approx(even, rel=1e-5)
    centred = np.linalg.norm(dense - dense.mean(axis=1, keepdims=True), "nuc") / math.sqrt(cells)
    for steps in (0, 1):  # of weights of all pairs of orbits, which begin where those of groups are best
        monkeypatch.setattr(module, "_ORBIT_PAIR_STEPS", steps)
        replaced = orbit_bound(products, _sizes(sizes), replaced=True)
        assert replaced == pytest.approx(centred * math.sqrt(2 / (1 - 1 / cells)), rel=1e-5)


@pytest.mark.parametrize("seed", range(8))
def test_it_lies_below_the_optimum_and_near_it(seed: int) -> None:
    """Mutants seen: degrees that leave the weights of groups out; the sums of groups not weighed between them."""
    sizes = SIZES[seed % 4]
    products = _drawn(sizes, seed, ordered=seed % 2 == 1)
    dense = _dense(products, sizes)
    least = optimize_dense(dense.T @ dense, tolerance=1e-5)
    found = orbit_bound(products, _sizes(sizes))
    assert found is not None
    assert 0.995 * least.lower_bound <= found <= least.upper_bound * (1 + 1e-9)
    paired = optimize_all_pairs(dense, tolerance=1e-3)
    replaced = orbit_bound(products, _sizes(sizes), replaced=True)
    assert paired is not None
    assert replaced is not None
    assert 0.96 * paired.lower_bound <= replaced <= paired.upper_bound * (1 + 1e-9)


def test_what_is_too_much_has_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    products = _drawn(SIZES[0], 0)
    for limit in ("_MOST_SIDE", "_MOST_ORBITS", "_MOST_ROWS", "_MOST_KINDS", "_MOST_ENTRIES"):
        with monkeypatch.context() as patch:
            patch.setattr(module, limit, 2)
            assert orbit_bound(products, _sizes(SIZES[0])) is None
