"""Laws of the noise allocation of marginal tables: dense linear algebra, a general optimiser, published optima."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import reduce
from typing import Literal

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize

from sfumato.errors import NotAnswerable, PlanError
from sfumato.strategies import residual_tables as module
from sfumato.strategies.attribute_sets import Sets, subset_columns
from sfumato.strategies.residual_allocation import Effect, MatrixSide, least_largest, max_objective, sum_objective
from sfumato.strategies.residual_tables import ResidualAllocation, allocate_residuals
from support.allocation import variances

Vector = NDArray[np.float64]
Tables = list[tuple[Sets, Vector]]

DATA = {
    "CPS": [50, 100, 7, 4, 2],
    "Adult": [85, 9, 100, 16, 7, 15, 6, 5, 2, 100, 100, 99, 42, 2],
    "Loans": [101, 101, 101, 101, 3, 8, 36, 6, 51, 4, 5, 15],
}
LABELS = ("1", "2", "3", "4", "5", "<=3", "small")
# root mean squared error, largest variance: the optima of the design's table of figures
OPTIMA = {
    "CPS": (
        (1.744, 2.035, 2.048, 1.627, 1.000, 2.276, 2.525),
        (4.346, 7.897, 7.706, 4.141, 1.000, 13.216, 11.774),
    ),
    "Adult": (
        (3.047, 6.359, 10.515, 14.656, 17.844, 10.665, 9.945),
        (12.047, 67.802, 236.843, 575.213, 1030.948, 253.605, 126.902),
    ),
    "Loans": (
        (2.875, 5.634, 8.702, 11.267, 12.678, 8.876, 8.206),
        (10.640, 52.217, 156.638, 320.778, 474.243, 180.817, 89.873),
    ),
}
TEN_CELLS = {
    2: (1.379, 3.306),
    6: (4.275, 26.904),
    10: (9.348, 105.031),
    12: (12.359, 175.496),
    14: (15.642, 272.738),
    15: (17.378, 332.769),
    20: (26.916, 768.94),
    30: (49.713, 2540.44),
    50: (107.258, 11597.0),
    100: (303.216, 91960.9),
}


def _combinations(attributes: int, order: int) -> Sets:
    rows = list(itertools.combinations(range(attributes), order))
    return np.array(rows, dtype=np.int32).reshape(len(rows), order)


def _upto(attributes: int, top: int) -> Tables:
    out = [_combinations(attributes, k) for k in range(top + 1)]
    return [(s, np.ones(len(s))) for s in out if len(s)]


def _named(sizes: Sequence[int], label: str) -> Tables:
    n = np.array(sizes, dtype=np.float64)
    if label.startswith("<="):
        return _upto(len(sizes), int(label[2:]))
    if label != "small":
        return [t for t in _upto(len(sizes), int(label)) if t[0].shape[1] == int(label)]
    kept = [(s[n[s].prod(axis=1) <= 5000], w) for s, w in _upto(len(sizes), len(sizes))]
    return [(s, w[: len(s)]) for s, w in kept if len(s)]


def _random_tables(rng: np.random.Generator, sizes: Sequence[int], decades: float = 2, share: float = 0.6) -> Tables:
    out: Tables = []
    for order in range(len(sizes) + 1):
        s = _combinations(len(sizes), order)
        s = s[rng.random(len(s)) < share]
        out.append((s, 10.0 ** rng.uniform(-decades, 0, len(s))))
    return out if any(len(s) for s, _ in out) else [(_combinations(len(sizes), 1), np.ones(len(sizes)))]


def _flat(values: Sequence[Vector]) -> Vector:
    return np.concatenate(values)


def _log_norm(logs: Vector, effects: Vector, price: Vector, weight: Vector, power: Literal[1, 2], norm: int) -> float:
    """log of the norm of the weighted variances when the precisions exp(logs) are scaled to unit price."""
    scaled = np.exp(logs) / float(price @ np.exp(power * logs)) ** (1 / power)
    return math.log(float(((weight * (effects @ scaled**-2.0)) ** norm).sum())) / norm


def _dense(tables: Tables, sets: Sequence[Sets], sizes: Sequence[int]) -> tuple[Vector, ...]:
    """(effect of every residual's variance on every table's, L1 prices, L2 prices), from the matrices themselves.

    The residual's values are (x_i C) v + noise on the cells of its set; a table is the sum over its subsets.
    """
    effects: list[list[float]] = []
    asked = [row for s, _ in tables for row in s.tolist()]
    every = [row for s in sets for row in s.tolist()]
    centre = [np.eye(n) - 1 / n for n in sizes]
    for table in asked:
        line: list[float] = []
        for residual in every:
            if not set(residual) <= set(table):
                line.append(0.0)
                continue
            factors = [centre[i] if i in residual else np.full((sizes[i], 1), 1 / sizes[i]) for i in table]
            spread = reduce(np.kron, factors, np.ones((1, 1)))
            (value,) = {round(v, 12) for v in (spread**2).sum(axis=1).tolist()}
            line.append(value)
        effects.append(line)
    prices: list[Vector] = []
    for power in (1, 2):
        columns = [np.abs(reduce(np.kron, [centre[i] for i in s], np.ones((1, 1)))) ** power for s in every]
        prices.append(np.array([c.sum(axis=0).max() for c in columns]))
    return np.array(effects), prices[0], prices[1]


@pytest.mark.parametrize("free_total", [False, True])
@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_allocation_against_dense_matrices_and_a_general_optimiser(
    seed: int, power: Literal[1, 2], free_total: bool
) -> None:
    """Price 1, the variances of the reconstruction's matrix, and no better point found by another method.

    Mutants: the price of the other power; weights lost; cells per table forgotten in the mean.
    """
    rng = np.random.default_rng(seed)
    sizes = [[3, 2, 4], [2, 5], [3, 3, 2], [4, 2, 2, 3]][seed]
    tables = [*_random_tables(rng, sizes), (_combinations(len(sizes), 2), np.full(math.comb(len(sizes), 2), 0.3))]
    weight = _flat([w for _, w in tables])
    cells = np.array([math.prod(sizes[i] for i in row) for s, _ in tables for row in s.tolist()])
    objectives: tuple[Literal["mean", "max"], ...] = ("mean", "max")
    for objective in objectives:
        found = allocate_residuals(tables, sizes, objective=objective, power=power, free_total=free_total)
        effects, *prices = _dense(tables, found.sets, sizes)
        price, precision = prices[power - 1], _flat(found.precision)
        assert float(price @ precision**power) == pytest.approx(1, rel=1e-12)
        squares = [p**-2.0 for p in found.precision]
        each = _flat([variances(s, found.sets, squares, sizes) for s, _ in tables])
        np.testing.assert_allclose(each, effects @ precision**-2.0, rtol=1e-9)
        per_cell = weight * cells if objective == "mean" else weight

        norm = 1 if objective == "mean" else 60
        reached = math.log(found.value**2)
        # the norm of m numbers is at most m^(1/norm) times the largest
        slack = 0.0 if objective == "mean" else math.log(len(weight)) / norm
        rest = (effects, price, per_cell, power, norm)
        starts = (np.log(precision), rng.normal(size=len(precision)))
        best = min(float(minimize(_log_norm, start, rest, method="BFGS").fun) for start in starts)
        assert reached <= best + 1e-6
        assert best <= reached + slack + 1e-5
        assert found.bound <= found.value * (1 + 1e-12)
        assert (found.value / found.bound) ** 2 - 1 <= 2e-7


@pytest.mark.parametrize("seed", range(4))
def test_the_mean_reaches_the_nuclear_norm_of_the_workload(seed: int) -> None:
    """No unbiased Gaussian mechanism does better: the singular value bound, from the workload's matrix."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 5, 4).tolist()
    tables = _random_tables(rng, sizes)
    rows = [
        math.sqrt(w) * reduce(np.kron, [np.eye(n) if i in row else np.ones((1, n)) for i, n in enumerate(sizes)])
        for s, weights in tables
        for row, w in zip(s.tolist(), weights, strict=True)
    ]
    nuclear = np.linalg.svd(np.concatenate(rows), compute_uv=False).sum() / math.sqrt(math.prod(sizes))
    found = allocate_residuals(tables, sizes, objective="mean", power=2, free_total=False)
    assert found.value == pytest.approx(nuclear, rel=1e-10)
    assert found.bound == found.value


def _nuclear(tables: Tables, sizes: Sequence[int]) -> float:
    """The singular value bound in logarithms: the Gram matrix has one eigenvalue on each residual space."""
    n = np.array(sizes, dtype=np.float64)
    values: dict[tuple[int, ...], list[float]] = {}
    for s, weight in tables:
        shares = weight / n[s].prod(axis=1)
        for row, share in zip(s.tolist(), shares.tolist(), strict=True):
            for pattern in subset_columns(len(row)):
                values.setdefault(tuple(row[c] for c in pattern), []).append(share)
    return math.fsum(
        math.exp(0.5 * math.log(math.fsum(v)) + math.fsum(math.log(n[i] - 1) for i in s)) for s, v in values.items()
    )


def _queries(tables: Tables, sizes: Sequence[int]) -> float:
    n = np.array(sizes, dtype=np.float64)
    return float(sum(n[s].prod(axis=1).sum() for s, _ in tables))


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("name", list(DATA))
def test_published_optima_of_real_shapes(name: str, label: str) -> None:
    sizes = DATA[name]
    tables = _named(sizes, label)
    rmse, largest = (column[LABELS.index(label)] for column in OPTIMA[name])
    mean = allocate_residuals(tables, sizes, objective="mean", power=2, free_total=False)
    assert mean.value == pytest.approx(_nuclear(tables, sizes), rel=1e-9)
    assert mean.value / math.sqrt(_queries(tables, sizes)) == pytest.approx(rmse, abs=6e-4)
    best = allocate_residuals(tables, sizes, objective="max", power=2, free_total=False)
    assert best.value**2 == pytest.approx(largest, abs=1.2e-3)
    assert (best.value / best.bound) ** 2 - 1 <= 1.1e-7


@pytest.mark.parametrize("attributes", list(TEN_CELLS))
def test_published_optima_of_many_attributes_of_ten_cells(attributes: int) -> None:
    """The bound of the mean by symmetric polynomials, no set of attributes written down."""
    sizes, tables = [10] * attributes, _upto(attributes, 3)
    rmse, largest = TEN_CELLS[attributes]
    mean = allocate_residuals(tables, sizes, objective="mean", power=2, free_total=False)
    nuclear = math.fsum(
        math.comb(attributes, k)
        * 9**k
        * math.sqrt(math.fsum(math.comb(attributes - k, m) * 10.0 ** -(k + m) for m in range(4 - k)))
        for k in range(min(attributes, 3) + 1)
    )
    assert mean.value == pytest.approx(nuclear, rel=1e-9)
    assert mean.value / math.sqrt(_queries(tables, sizes)) == pytest.approx(rmse, abs=1.1e-3)
    best = allocate_residuals(tables, sizes, objective="max", power=2, free_total=False)
    assert best.value**2 == pytest.approx(largest, rel=4e-6, abs=1e-3)
    assert (best.value / best.bound) ** 2 - 1 <= 1.1e-7


def _symmetric_cases() -> dict[str, tuple[Tables, list[int]]]:
    mixed = [4, 2, 4, 3, 2, 4, 4]
    every = _upto(7, 3)
    one_less = [(s[1:], w[1:]) if s.shape[1] == 2 else (s, w) for s, w in every]
    heavier = [(s, np.where((s == 0).any(axis=1), 3.0, w)) for s, w in every]
    split = _combinations(8, 2)
    halves = [(split[(split[:, 0] < 4) == (split[:, 1] < 4)], np.ones(12))]
    ring = [(np.array([[0, 1], [1, 2], [2, 3], [3, 4], [0, 4]], dtype=np.int32), np.ones(5))]
    return {
        "all": (every, mixed),
        "all but one": (one_less, mixed),
        "one attribute heavier": (heavier, mixed),
        "two groups": (halves, [3] * 8),
        "a ring": (ring, [3] * 5),
        "unused attributes": ([(_combinations(4, 2), np.ones(6))], [3] * 6),
    }


@pytest.mark.parametrize("free_total", [False, True])
@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("objective", ["mean", "max"])
@pytest.mark.parametrize("name", list(_symmetric_cases()))
def test_one_unknown_per_kind_gives_what_one_per_set_gives(
    name: str,
    objective: Literal["mean", "max"],
    power: Literal[1, 2],
    free_total: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Mutants: kinds by size alone; multisets counted with repetition; one weight of a kind for all."""
    tables, sizes = _symmetric_cases()[name]

    def run() -> ResidualAllocation:
        return allocate_residuals(tables, sizes, objective=objective, power=power, free_total=free_total)

    def one_each(*_: object) -> NDArray[np.int32]:
        return np.arange(len(sizes), dtype=np.int32)

    few = run()
    monkeypatch.setattr(module, "exchangeable_kinds", one_each)
    many = run()
    assert few.value == pytest.approx(many.value, rel=1e-12 if objective == "mean" else 1.1e-7)
    assert few.bound <= many.value * (1 + 1e-12)
    for a, b, c, d in zip(few.sets, many.sets, few.precision, many.precision, strict=True):
        np.testing.assert_array_equal(a, b)
        # the largest variance determines the noise only to the root of the gap
        np.testing.assert_allclose(c, d, rtol=1e-10 if objective == "mean" else 3e-3)


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("decades", [0, 4, 8])
@pytest.mark.parametrize("seed", range(5))
def test_no_symmetry_no_closed_workload_still_certified(seed: int, decades: float, power: Literal[1, 2]) -> None:
    """The two sides meet, whatever the sizes, the weights and the gaps in the workload."""
    rng = np.random.default_rng(seed)
    attributes = int(rng.integers(8, 25))
    sizes = [int(2 * 10 ** rng.uniform(0, 2.7)) for _ in range(attributes)]
    tables = [t for t in _upto(attributes, 3) if t[0].shape[1]]
    tables = [(s[rng.random(len(s)) < rng.uniform(0.05, 0.6)], w) for s, w in tables]
    tables = [(s, 10.0 ** rng.uniform(-decades, 0, len(s))) for s, _ in tables]
    found = allocate_residuals(tables, sizes, objective="max", power=power, free_total=seed % 2 == 0)
    assert (found.value / found.bound) ** 2 - 1 <= 1.1e-7
    squares = [p**-2.0 for p in found.precision]
    largest = max((w * variances(s, found.sets, squares, sizes)).max() for s, w in tables if len(s))
    assert math.sqrt(largest) == pytest.approx(found.value, rel=1e-10)


@pytest.mark.parametrize("power", [1, 2])
def test_both_sides_hold_from_the_first_round(power: Literal[1, 2]) -> None:
    """The bound is proved at every round, not only where the two meet. Mutants: the value for the bound."""
    rng = np.random.default_rng(power)
    for _ in range(20):
        effects = rng.uniform(0, 1, (5, 4)) * (rng.random((5, 4)) < 0.7) + 0.01
        price = rng.uniform(0.1, 1, 4)
        found = [least_largest(MatrixSide(effects), MatrixSide(price[None]), power, t) for t in (10.0, 0.1, 0.01, 1e-9)]
        sides = [(f.lower, f.upper) for f in found]
        lower, upper = sides[-1]
        assert upper / lower - 1 < 2e-9
        for below, above in sides:
            assert below <= lower * (1 + 1e-9)
            assert above >= upper * (1 - 1e-9)
        assert sides[0][1] / sides[0][0] > 1.001


@pytest.mark.parametrize("power", [1, 2])
def test_the_general_path_finds_the_same_noise(power: Literal[1, 2]) -> None:
    sizes, rng = [3, 4, 2, 5], np.random.default_rng(3)
    tables = _random_tables(rng, sizes)
    effects: list[Effect] = []
    sums: dict[frozenset[str], float] = {}
    for s, weights in tables:
        for row, w in zip(s.tolist(), weights.tolist(), strict=True):
            below: dict[frozenset[str], tuple[Vector, ...]] = {}
            for pattern in subset_columns(len(row)):
                inside = {row[c] for c in pattern}
                parts = [(n - 1) / n if i in inside else n**-2.0 for i, n in ((i, sizes[i]) for i in row)]
                key = frozenset(str(i) for i in inside)
                below[key] = tuple(np.array([p]) for p in parts)
                sums[key] = sums.get(key, 0.0) + w * math.prod(parts) * math.prod(sizes[i] for i in row)
            effects.append(Effect(w, tuple(sizes[i] for i in row), below))
    single = {str(i): (3 - power) * (n - 1) / n for i, n in enumerate(sizes)}
    mean = allocate_residuals(tables, sizes, objective="mean", power=power, free_total=False)
    other = sum_objective(sums, single, power)
    for s, precision in zip(mean.sets, mean.precision, strict=True):
        np.testing.assert_allclose(precision, [other[frozenset(map(str, r))] for r in s.tolist()], rtol=1e-11)
    largest = allocate_residuals(tables, sizes, objective="max", power=power, free_total=False)
    precisions, bound = max_objective(effects, single, power)
    squares = [np.array([precisions[frozenset(map(str, r))] ** -2.0 for r in s.tolist()]) for s in largest.sets]
    reached = max((w * variances(s, largest.sets, squares, sizes)).max(initial=0) for s, w in tables)
    assert bound == pytest.approx(largest.bound, rel=1e-7)
    assert bound <= math.sqrt(reached) <= bound * (1 + 6e-8)


def test_attributes_of_one_cell_and_tables_asked_twice() -> None:
    """One cell adds nothing to a table. Mutant: the weights of a table asked twice, the last alone."""
    sizes = [3, 1, 4]
    twice: Tables = [(_combinations(3, 2), np.array([1.0, 2.0, 5.0])), (np.array([[0], [2]]), np.array([7.0, 1.0]))]
    cases: list[tuple[Literal["mean", "max"], list[float]]] = [("mean", [8.0, 6.0, 2.0]), ("max", [7.0, 5.0, 2.0])]
    for objective, weights in cases:
        once: Tables = [(np.array([[0], [1]]), np.array(weights[:2])), (np.array([[0, 1]]), np.array(weights[2:]))]
        found = allocate_residuals(twice, sizes, objective=objective, power=2, free_total=False)
        same = allocate_residuals(once, [3, 4], objective=objective, power=2, free_total=False)
        assert [s.tolist() for s in found.sets] == [[[]], [[0], [2]], [[0, 2]]]
        assert found.value == pytest.approx(same.value, rel=1e-12)
        np.testing.assert_allclose(_flat(found.precision), _flat(same.precision), rtol=1e-12)
        squares = [p**-2.0 for p in found.precision]
        wide = variances(np.array([[0, 1], [1, 2]], dtype=np.int32), found.sets, squares, sizes)
        narrow = variances(np.array([[0], [2]], dtype=np.int32), found.sets, squares, sizes)
        np.testing.assert_array_equal(wide, narrow)


def test_what_cannot_be_allocated_is_refused() -> None:
    pair = _combinations(2, 2)

    def ask(tables: Tables, sizes: list[int]) -> ResidualAllocation:
        return allocate_residuals(tables, sizes, objective="mean", power=2, free_total=False)

    for weight in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(PlanError, match="positive and finite"):
            ask([(pair, np.array([weight]))], [2, 2])
    with pytest.raises(PlanError, match="only the public total is asked"):
        allocate_residuals([(_combinations(2, 1), np.ones(2))], [1, 1], objective="max", power=2, free_total=True)
    with pytest.raises(PlanError, match="no table is asked"):
        ask([(pair[:0], np.ones(0))], [2, 2])
    with pytest.raises(PlanError, match=r"more than 10\^140 cells"):
        ask([(_combinations(20, 20), np.ones(1))], [10**8] * 20)
    found = ask([(_combinations(2, 1), np.ones(2))], [2, 3])
    with pytest.raises(NotAnswerable, match=r"\[0, 1\] was not measured"):
        variances(pair, found.sets, [p**-2.0 for p in found.precision], [2, 3])
    assert variances(pair[:0], found.sets, found.precision, [2, 3]).shape == (0,)
