"""Drawn tables and one neighbour of each, through `Curator.measure` without noise: no value moves further than is paid.

What other laws hold apart is drawn together here: policies for what is outside or missing, cells that are impossible,
merged cells, measures with knots and of a column that is counted too, rows of a person in all and in each group, groups
within which a record is replaced, families and combinations beside blocks, and frames of three kinds.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import sfumato as sf
from sfumato.cells import Amounts, Codes, Edges, Grid, Moves, Rule, Truths, Wholes
from sfumato.curator import Curator
from sfumato.maps import AlikeMap, BlockMap, CombinationMap, DenseMap, FamilyMap, Map, MergedMap, MultipleMap, TotalMap
from sfumato.privacy.accounting import GaussianEvent
from sfumato.privacy.noise import NoiseLaw, RoundedGaussian
from sfumato.privacy.sensitivity import certified_bound
from sfumato.privacy.unit import PrivacyUnit, Within

SIGMA = 2**40
CASES, PAIRS = 12, 3
Row = dict[str, Any]


class Declared:
    """A domain, as much of it as the wall asks for."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid


def _rule(rng: np.random.Generator, *, drop: bool) -> Rule:
    kept = ["other", "drop"] if drop else ["other"]
    numeric, plain, missing = (str(rng.choice(k)) for k in ([*kept, "clamp"], kept, kept))
    made: list[Rule] = [
        Codes(kind="category", codes=("x", "y", "z"), outside=plain, missing=missing),
        Wholes(kind="integer", low=0, high=3, width=int(rng.integers(1, 3)), outside=numeric, missing=missing),
        Edges(kind="bins", edges=(0, 1, 2.5), outside=numeric, missing=missing),
        Truths(kind="boolean", outside=plain, missing=missing),
    ]
    return made[int(rng.integers(4))]


def _amounts(rng: np.random.Generator, columns: list[str]) -> Amounts:
    low = float(rng.choice([0, -5, 1, -1e6, 0.1]))
    high = low + float(rng.choice([1, 3, 100, 1e7]))
    knots = tuple(map(float, np.sort(rng.uniform(low, high, int(rng.choice([0, 0, 1, 2]))))))
    column = str(rng.choice(columns)) if columns and rng.random() < 0.3 else None
    outside = str(rng.choice(["clamp", "other"]))
    return Amounts(kind="measure", low=low, high=high, knots=knots, outside=outside, missing="other", column=column)


def _value(rng: np.random.Generator, rule: Rule) -> Any:
    if rng.random() < 0.1:
        return None
    if isinstance(rule, Amounts):
        ends = [rule.low, rule.high, *rule.knots, rule.low - 1, rule.high + 1, math.inf, -math.inf, math.nan]
        return float(rng.choice([*ends, *rng.uniform(rule.low, rule.high, 12)]))
    if rule.numeric:
        return float(rng.choice([-1, 0, 0.5, 1, 2, 2.5, 3, 4, 1e300, math.inf]))
    return str(rng.choice(["x", "y", "z", "w"] if isinstance(rule, Codes) else ["true", "false", "no", "odd"]))


def _factor(rng: np.random.Generator, n: int) -> Map:
    m = int(rng.integers(1, n + 1))
    codes = np.concatenate([rng.permutation(m), rng.integers(-1, m, n - m)]).astype(np.int64)
    dense = DenseMap(rng.integers(-5, 6, (int(rng.integers(1, 4)), n)))
    made: list[Map] = [
        AlikeMap(n),
        AlikeMap(n, n, -1),
        TotalMap(n),
        dense,
        MultipleMap(dense, int(rng.choice([-2, 3]))),
    ]
    made += [MergedMap(AlikeMap(m), codes), MergedMap(AlikeMap(m, m, -1), codes)]
    return made[int(rng.integers(len(made)))]


def _block(rng: np.random.Generator, grid: Grid) -> BlockMap:
    at = [n for n in rng.permutation(grid.names).tolist() if rng.random() < 0.6]
    sizes, groups = grid.sizes(), list[tuple[str, ...]]()
    while at:
        some = tuple(at[: 1 + int(rng.random() < 0.3)])
        some = some if math.prod(sizes[a] for a in some) <= 40 else some[:1]
        groups.append(some)
        at = at[len(some) :]
    factors = [_factor(rng, math.prod(sizes[a] for a in g)) for g in groups]
    return BlockMap((*groups, ()), (*factors, DenseMap(np.array([[int(rng.integers(1, 4))]]))))


def _grid(rng: np.random.Generator, *, drop: bool) -> Grid:
    rules = {f"a{i}": _rule(rng, drop=drop) for i in range(int(rng.integers(1, 4)))}
    numbers = [n for n, r in rules.items() if r.numeric]
    rules |= {f"m{i}": _amounts(rng, numbers) for i in range(int(rng.choice([0, 1, 2, 3], p=[0.3, 0.3, 0.3, 0.1])))}
    names = rng.permutation([*rules]).tolist()
    return Grid(tuple(names), tuple(rules[n] for n in names))


def _moved(rng: np.random.Generator, grid: Grid, plain: list[str]) -> Grid:
    axes = tuple(sorted(int(grid.axis(a)) for a in rng.permutation(plain)[:2].tolist()))
    cells = math.prod(grid.shape[a] for a in axes)
    return Grid(grid.names, grid.rules, (Moves(axes, rng.integers(0, cells, cells)),))


def _case(rng: np.random.Generator, relation: str, *, persons: bool) -> tuple[Grid, PrivacyUnit, list[Any]]:
    grid = _grid(rng, drop=relation == "add-remove")
    plain = [n for n in grid.names if n not in grid.measures]
    rows, once, each, within = int(rng.integers(1, 4)) if persons else 1, tuple[str, ...](), 1, None
    if rows > 1 and rng.random() < 0.5:
        once, each = tuple(plain[: int(rng.integers(1, 3))]), int(rng.integers(1, rows))
    elif relation == "replace-one" and not persons and rng.random() < 0.3:
        codes = rng.integers(0, 2, grid.sizes()[plain[0]])
        within = Within.of("w", plain[0], codes, grid.rules[grid.axis(plain[0])])
    elif rng.random() < 0.4:
        grid = _moved(rng, grid, plain)
    unit = PrivacyUnit(relation, "id" if persons else None, rows, within, once, each)  # type: ignore[arg-type]
    blocks: list[Any] = [_block(rng, grid) for _ in range(int(rng.integers(1, 4)))]
    if rng.random() < 0.4:
        factors = [_factor(rng, n) for n in grid.shape]
        chosen = itertools.combinations(sorted(map(grid.axis, plain)), min(len(plain), int(rng.integers(1, 3))))
        sets = np.array([*chosen], dtype=np.int32)
        blocks.append(FamilyMap(grid.names, tuple(factors), sets, rng.integers(1, 4, len(sets))))
    elif not grid.measures and rng.random() < 0.4:
        blocks.append(CombinationMap(tuple(blocks), rng.integers(-3, 4, (2, sum(b.rows for b in blocks)))))
    return grid, unit, blocks


def _rows(rng: np.random.Generator, grid: Grid, who: str, count: int) -> list[Row]:
    """Some rows of one person: in half of all cases one row again and again, which costs most."""
    read = {c: rule for names, rule in zip(grid.columns, grid.rules, strict=True) for c in names}
    alike = bool(rng.integers(2))
    first = {c: _value(rng, rule) for c, rule in read.items()}
    drawn = [first if alike else {c: _value(rng, rule) for c, rule in read.items()} for _ in range(count)]
    return [row | {"id": who} for row in drawn]


def _frame(rng: np.random.Generator, rows: list[Row], grid: Grid) -> Any:
    rules = {c: rule for names, rule in zip(grid.columns, grid.rules, strict=True) for c in names}
    order = rng.permutation(len(rows)).tolist()
    columns = {c: [rows[i][c] for i in order] for c in [*rules, "id"]}
    text = {c: c == "id" or not rules[c].numeric for c in columns}
    kind = int(rng.integers(3))
    if kind == 0:
        return pd.DataFrame({c: pd.Series(v, dtype=object if text[c] else float) for c, v in columns.items()})
    if kind == 1:
        return pa.table({c: pa.array(v, pa.string() if text[c] else pa.float64()) for c, v in columns.items()})
    kinds = {c: pl.String if text[c] else pl.Float64 for c in columns}
    return pl.DataFrame(columns, schema=kinds)


def _neighbours(rng: np.random.Generator, grid: Grid, unit: PrivacyUnit) -> tuple[list[Row], list[Row]]:
    others = [row for i in range(int(rng.integers(3))) for row in _rows(rng, grid, f"o{i}", int(rng.integers(1, 6)))]
    most = 1 if unit.person is None else unit.rows_per_person + int(rng.integers(4))
    own, another = _rows(rng, grid, "one", most), list[Row]()
    if unit.neighbours is sf.Neighbours.REPLACE_ONE:
        another = _rows(rng, grid, "one", most if unit.person is None else int(rng.integers(most + 1)))
    if unit.within is not None:
        for column in grid.columns[grid.axis(unit.within.attribute)]:
            another[0][column] = own[0][column]
    return [*others, *own], [*others, *another]


@pytest.mark.parametrize("persons", [False, True])
@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_a_neighbour_moves_no_value_further_than_is_paid(
    relation: str, *, persons: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """144 pairs, seed 204. The price that `measure` takes is the bound of squared L2; L1 is held against its own.

    Mutants: all rows of a person are kept; rows kept of all groups together; a person priced as one row; a record
    replaced priced as one that comes.
    """
    monkeypatch.setattr(NoiseLaw, "sample", lambda _, size, source=None: np.zeros(size, dtype=np.int64))
    largest = 0.0
    for i in range(CASES):
        rng = np.random.default_rng([204, len(relation), persons, i])
        grid, unit, blocks = _case(rng, relation, persons=persons)
        bounds = [certified_bound(blocks, grid.sizes(), unit, p, measures=grid.measures) for p in (1, 2)]
        price = GaussianEvent(Fraction(bounds[1], SIGMA**2))
        for _ in range(PAIRS if bounds[1] else 0):
            found: list[Any] = []
            for rows in _neighbours(rng, grid, unit):
                ledger = sf.Ledger.in_memory(sf.gdp(10**9))
                door = Curator(_frame(rng, rows, grid), Declared(grid), unit, ledger)
                cut = 0 if unit.person is None else 1
                bounded = price if not cut else GaussianEvent(Fraction(bounds[1] + 1, SIGMA**2))
                given, _ = door.measure(
                    blocks, RoundedGaussian(Fraction(SIGMA)), bounded, name="n", plan_hash="0" * 64, cut=cut
                )
                found.append((np.concatenate(given.values), given.cut, given.total))
            (one, cut_one, total_one), (other, cut_other, total_other) = found
            assert total_one == total_other
            assert cut_one is None or abs(cut_one - cut_other) <= 1
            moved = np.abs((one - other).astype(object))  # what wraps is moved by what it is modulo 2^64
            for power, bound in enumerate(bounds, 1):
                assert (moved**power).sum() <= bound, (i, unit, blocks)
                largest = max(largest, int((moved**power).sum()) / bound)
    assert largest > 0.9
