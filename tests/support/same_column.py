"""Attributes and measures of one column: drawn maps, what drawn records add, and whether they are priced too low."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

import sfumato as sf
from sfumato.cells import POINTS
from sfumato.curator.rows.shares import shares
from sfumato.maps import BlockMap, DenseMap, Map
from sfumato.privacy.same_column import SameColumn, same_columns
from sfumato.privacy.sensitivity import certified_bound
from support.shares import ADD, REPLACE

__all__ = ["EDGES", "WAYS", "declared", "joint_errs"]

STEPS = SameColumn.steps.func  # type: ignore[attr-defined]  # as it is, whatever tests make of it

EDGES = [0, 10, 12.5, 40, 1e3]
CELLS = [
    lambda outside, missing: sf.Bins(EDGES, outside=outside, missing=missing),
    lambda outside, missing: sf.Bins([0.1, 0.3, 0.7, 2**53 + 1], outside=outside, missing=missing),
    lambda outside, missing: sf.Integers(3, 29, width=7, outside=outside, missing=missing),
]
MEASURES = [
    lambda outside, column: sf.Measure(0, 1e3, knots=[10, 12.5, 40], outside=outside, column=column),
    lambda outside, column: sf.Measure(0.1, 31, knots=[0.3, 10, 17], outside=outside, column=column),
    lambda outside, column: sf.Measure(-5, 8, outside=outside, column=column),
]
WAYS = list(itertools.product(CELLS, MEASURES, ("clamp", "other"), ("clamp", "absent")))


def declared(ways: Any) -> sf.Domain:
    """Each way reads a column of its own."""
    attributes = {f"c{i}": cells(outside, "other") for i, (cells, _, outside, _) in enumerate(ways)}
    measures = {f"m{i}": amounts(absent, f"c{i}") for i, (_, amounts, _, absent) in enumerate(ways)}
    return sf.Domain({"row": sf.Integers(0, 9_999, outside="drop", missing="drop"), **attributes}, measures=measures)


def _drawn(rng: np.random.Generator, same: SameColumn, hats: bool) -> tuple[list[BlockMap], dict[str, int]]:
    """Blocks over an attribute, a measure of its column and others; with hats all maps are linear on each piece."""
    cells = 2 * len(same.amounts.ends)
    sizes = {"a": 2, same.attribute: len(same.steps), same.measure: cells, "k": 4}
    blocks: list[BlockMap] = []
    for _ in range(int(rng.integers(1, 4))):
        names = [n for n in sizes if rng.random() < 0.6 and not (hats and n == "k")]
        groups = [(n,) for n in names]
        if {same.attribute, same.measure} <= {*names} and rng.random() < 0.5:
            groups = [*((n,) for n in names if n not in (same.attribute, same.measure)), (same.measure, same.attribute)]
        factors: list[Map] = []
        for group in groups:
            table = rng.integers(-9, 10, (int(rng.integers(1, 4)), *(sizes[n] for n in group)))
            if same.measure in group and hats:
                table = np.moveaxis(table, 1, -1) * 2
                table[..., 1:-1:2] = (table[..., 0:-2:2] + table[..., 2:-1:2]) // 2
                table = np.moveaxis(table, -1, 1)
            factors.append(DenseMap(table.reshape(len(table), -1)))
        blocks.append(BlockMap(tuple(groups), tuple(factors)))
    return blocks, sizes


def _records(rng: np.random.Generator, same: SameColumn) -> Iterator[tuple[int, int]]:
    """(cell, code) at both ends of what a cell reaches, at ends of pieces and at any place between."""
    for cell, some in enumerate(STEPS(same)):
        for low, high in some:
            inside = [e for e in same.amounts.ends if low <= e <= high]
            yield from ((cell, int(c)) for c in {low, high, *inside, *rng.integers(low, high + 1, 4)})


def _added(blocks: list[BlockMap], sizes: dict[str, int], same: SameColumn, rng: np.random.Generator) -> Any:
    """(records, rows): what records add to all rows, as they are counted."""
    here = any(n in b.attributes for b in blocks for n in (same.measure, "k"))
    out: list[list[int]] = []
    for cell, code in _records(rng, same):
        codes = {same.measure: code, "k": int(rng.choice([0, POINTS, POINTS + 1, int(rng.integers(POINTS))]))}
        ends = {same.measure: same.amounts.ends, "k": (0, POINTS)}
        for a in range(sizes["a"]):
            row: list[int] = []
            for block in blocks:
                mine = [n for n in block.attributes if n in codes]
                part = np.array([2**24 if here and not mine else 1])
                if mine:
                    given = [np.array([codes[n]], dtype=np.uint32) for n in mine]
                    part = shares(given, [sizes[n] for n in mine], [ends[n] for n in mine])[:, 0]
                full = np.zeros([sizes[n] for n in block.attributes], dtype=np.int64)
                at = {"a": a, same.attribute: cell}
                full[tuple(at.get(n, slice(None)) for n in block.attributes)] = part.reshape([sizes[n] for n in mine])
                row += block.apply(full).tolist()
            out.append(row)
    return np.array(out, dtype=object)


def joint_errs(count: int, *, hats: bool = False, enough: float = math.inf) -> tuple[int, float]:
    """(how many prices are too low, the largest price over what is found where records come or go).

    hats: of maps that are linear on each piece, where each cell ends at a knot.
    """
    low, most = 0, 0.0
    every = [s for s in same_columns(declared(WAYS).grid) if s.is_exact or not hats]
    for seed in range(count):
        if low >= enough:
            break
        rng = np.random.default_rng([186, seed])
        same = every[int(rng.integers(len(every)))]
        blocks, sizes = _drawn(rng, same, hats)
        added = _added(blocks, sizes, same, rng)
        named = [m for m in (same.measure, "k") if any(m in b.attributes for b in blocks)]
        for power, unit in itertools.product((1, 2), (ADD, REPLACE)):
            price = certified_bound(blocks, sizes, unit, power, None, named, [same])
            others = added if unit is REPLACE else [added[0] * 0]
            found = max(int((np.abs(added - row) ** power).sum(axis=1).max()) for row in others)
            low += price < found
            if unit is ADD and found:
                most = max(most, price / found)
    return low, most
