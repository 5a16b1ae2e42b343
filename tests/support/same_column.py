"""Attributes and measures of one column: many ways to declare them, and what records really add to drawn plans."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

import sfumato as sf
from sfumato.curator.rows.shares import shares
from sfumato.strategies.same_column import SameColumn, same_columns

__all__ = ["EDGES", "WAYS", "declared", "drawn_price"]

EDGES = [0, 10, 12.5, 40, 1e3]
CELLS = [
    lambda outside: sf.Bins(EDGES, outside=outside, missing="other"),
    lambda outside: sf.Bins([0.1, 0.3, 0.7, 2**53 + 1], outside=outside, missing="other"),
    lambda outside: sf.Integers(3, 29, width=7, outside=outside, missing="other"),
]
MEASURES = [
    lambda outside, column: sf.Measure(0, 1e3, knots=[10, 12.5, 40], outside=outside, column=column),
    lambda outside, column: sf.Measure(0.1, 31, knots=[0.3, 10, 17], outside=outside, column=column),
    lambda outside, column: sf.Measure(-5, 8, outside=outside, column=column),
]
WAYS = list(itertools.product(CELLS, MEASURES, ("clamp", "other"), ("clamp", "absent")))


def declared(ways: Any) -> sf.Domain:
    """Each way reads a column of its own."""
    attributes = {f"c{i}": cells(outside) for i, (cells, _, outside, _) in enumerate(ways)}
    measures = {f"m{i}": amounts(absent, f"c{i}") for i, (_, amounts, _, absent) in enumerate(ways)}
    sex = sf.Integers(0, 9_999, outside="clamp", missing="other", width=5_000)
    return sf.Domain({"row": sex, **attributes}, measures=measures)


def _added(plan: sf.Plan, same: SameColumn, rng: np.random.Generator) -> Any:
    """(records, rows): what records at ends of pieces and between add to all that is measured, in any cell that can."""
    domain = plan.workload.domain
    out: list[list[int]] = []
    for cell, some in enumerate(same.steps):
        codes = {c for low, high in some for c in (low, high, *rng.integers(low, high + 1, 6).tolist())}
        codes |= {e for low, high in some for e in same.amounts.ends if low <= e <= high}
        for code, row in itertools.product(sorted(codes), range(2)):
            line: list[int] = []
            at = {same.attribute: cell, "row": row}
            part = shares([np.array([code], dtype=np.uint32)], [2 * len(same.amounts.ends)], [same.amounts.ends])[:, 0]
            for block in plan.strategy.blocks:
                names = block.attributes
                full = np.zeros([domain[n].size for n in names], dtype=np.int64)
                full[tuple(at.get(n, slice(None)) for n in names)] = part if same.measure in names else 2**24
                line += [int(v) for v in block.lowered().apply(full)]
            out.append(line)
    return np.array(out, dtype=object)


def drawn_price(seed: int) -> tuple[int, int, float]:
    """What a drawn plan says that a record changes, the most that any does of those looked at, and error over bound."""
    rng = np.random.default_rng([186, seed])
    domain = declared([WAYS[int(rng.integers(len(WAYS)))]])
    (same,) = same_columns(domain.grid)
    by = [n for n in ("c0", "row") if rng.random() < 0.7]
    sums = [sf.means, sf.moments][int(rng.integers(2))]
    counts = [sf.prefix, sf.identity][int(rng.integers(2))]
    replaced = rng.random() < 0.4
    work = sf.stack(sums(domain, "m0", by=by), counts(domain, "c0"))
    plan = sf.plan(work, sf.gdp(1), neighbours="replace-one" if replaced else "add-remove")
    assert getattr(plan.strategy, "cells", None) is not None, "the two are not joined"
    added = _added(plan, same, rng)
    others = added if replaced else [added[0] * 0]
    found = max(int(((added - other) ** 2).sum(axis=1).max()) for other in others)
    return plan.sensitivity.value, found, plan.objective_value / plan.lower_bound if plan.lower_bound else 1.0
