"""Tilted residuals for unions of products: error and planning time against the published and the split optima.

    OPENBLAS_NUM_THREADS=1 python bench/tilted.py [DIRECTORY OF JSON WORKLOADS]

CPU seconds of one process. Columns: sizes of the problem; the least rmse (largest variance, in the second table)
with t = 1/n ("split") and with tilts, before rounding to integers; the seconds of that optimisation; the same of
the plan on the lattice, the proved bound and the seconds of planning both; what was published; how many bits of
records the integers leave. Prefixes on numeric attributes, cells of the others.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import sfumato as sf
from sfumato.operators import Block, Dense, Identity, LinearOperator, Prefix, Sparse
from sfumato.plans.plan import Plan
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.strategies.design import Problem
from sfumato.strategies.tilted import Product, Union, optimise_shapes
from sfumato.strategies.tilted_bounds import LargestErrorUnion, optimise_largest
from sfumato.workloads import QueryBlock, Workload

TABLES = {
    "CPS": ([50, 100, 7, 4, 2], 2),
    "Adult": ([100, 100, 100, 99, 85, 42, 16, 15, 9, 7, 6, 5, 2, 2], 5),
    "Loans": ([101, 101, 101, 101, 51, 36, 15, 8, 6, 5, 4, 3], 4),
}
SPLIT = {
    "CPS": {"1": 3.135, "2": 6.192, "3": 7.886, "<=3": 8.140},
    "Adult": {"1": 5.047, "2": 17.190, "3": 45.552, "<=3": 45.465},
    "Loans": {"1": 4.670, "2": 14.575, "3": 34.991, "<=3": 34.927},
}
COLUMNS = (
    ("queries", 13), ("sets", 6), ("split", 10), ("tilted", 10), ("CPU-s", 7), ("plan", 10),
    ("bound", 10), ("CPU-s", 7), ("known", 10), ("bits", 6),
)  # fmt: skip
# the largest variances of table 9 of RP+, which its code does not reproduce
LARGEST = {"CPS": {"1": 10.270}, "Adult": {"1": 28.658}, "Loans": dict[str, float]()}
FILES = {"adult-2": 24.9534, "loans-2": 23.6048, "sf1": 2.3212, "cps-1": None, "cps-2": None}


def read_workload(path: Path) -> Workload:
    """A union of Kronecker products from a JSON file; its weights multiply queries, so errors by their squares."""
    given = json.loads(path.read_text())
    domain = sf.Domain({f"a{i}": sf.Integers(0, n - 1) for i, n in enumerate(given["sizes"])})
    known: dict[str, LinearOperator] = {}
    blocks: list[QueryBlock] = []
    for number, product in enumerate(given["products"]):
        groups: list[tuple[str, ...]] = []
        factors: list[LinearOperator] = []
        for name, spec in zip(domain.names, product["factors"], strict=True):
            if "total" not in spec:
                key = json.dumps(spec)
                known[key] = known.get(key) or _operator(spec)
                groups.append((name,))
                factors.append(known[key])
        assert product["weight"] == 1
        blocks.append(QueryBlock(f"product {number}", Block(tuple(groups), tuple(factors))))
    return Workload(domain, tuple(blocks))


def _operator(spec: dict[str, Any]) -> LinearOperator:
    if "identity" in spec:
        return Identity(spec["identity"])
    if "prefix" in spec:
        return Prefix(spec["prefix"])
    if "rows_of_cells" in spec:
        return Sparse.from_cells(spec["rows_of_cells"], spec["size"])
    return Dense(np.array(spec["dense"]))


def prefixes(sizes: list[int], numeric: int, orders: list[int]) -> Workload:
    """All tables of some orders, cumulative along the first `numeric` attributes."""
    domain = sf.Domain({f"a{i}": sf.Integers(0, n - 1) for i, n in enumerate(sizes)})
    factors = [Prefix(n) if i < numeric else Identity(n) for i, n in enumerate(sizes)]
    chosen = [c for r in orders for c in itertools.combinations(range(len(sizes)), r)]
    return Workload(
        domain,
        tuple(
            QueryBlock("tables", Block(tuple((domain.names[i],) for i in c), tuple(factors[i] for i in c)))
            for c in chosen
        ),
    )


def line(name: str, work: Workload, known: float | None) -> None:
    """Least mean: rmse."""
    problem = Problem(work, sf.gdp(1), PrivacyUnit(Neighbours.ADD_REMOVE), "gaussian", "cells")
    start = time.process_time()
    union = Union(_products(problem), problem.sizes)
    found = optimise_shapes(union)
    took = time.process_time() - start
    tilted, split = (math.sqrt(union.error(s) / len(work)) for s in (found, optimise_shapes(union, tilt=False)))
    best, planned = _planned(problem)
    _show(name, problem, len(union.sets), split, tilted, took, best, best.rmse, best.lower_bound, planned, known)


def line_max(name: str, work: Workload, known: float | None) -> None:
    """Least largest: variances."""
    problem = Problem(work, sf.gdp(1), PrivacyUnit(Neighbours.ADD_REMOVE), "gaussian", "max")
    start = time.process_time()
    union = LargestErrorUnion(_products(problem), problem.sizes)
    tilted = union.error(optimise_largest(union))
    took = time.process_time() - start
    union = LargestErrorUnion(_products(problem), problem.sizes)
    split = union.error(optimise_largest(union, tilt=False))
    best, planned = _planned(problem)
    bound = best.lower_bound and best.lower_bound**2
    _show(name, problem, len(union.sets), split, tilted, took, best, best.objective_value**2, bound, planned, known)


def _products(problem: Problem) -> list[Product]:
    return [(problem.objective_weight(q), q.block.by_attribute() or {}) for q in problem.workload.blocks]


def _planned(problem: Problem) -> tuple[Plan, float]:
    start = time.process_time()
    best = sf.plan(
        problem.workload,
        sf.gdp(1),
        neighbours="add-remove",
        mechanism="marginals",
        objective=problem.objective,
    )
    return best, time.process_time() - start


def _show(
    name: str,
    problem: Problem,
    sets: int,
    split: float,
    tilted: float,
    took: float,
    best: Plan,
    reached: float,
    bound: float | None,
    planned: float,
    known: float | None,
) -> None:
    print(
        f"{name:12}{len(problem.workload):>14,}{sets:>6}{split:10.3f}{tilted:10.3f}{took:7.2f}{reached:10.3f}"
        f"{bound or math.nan:10.3f}{planned:7.2f}{known or math.nan:10.3f}{math.log2(best.record_limit):6.0f}"
    )


def main() -> None:
    head = "".join(f"{h:>{w}}" for h, w in COLUMNS)
    for title, each, published in (("mean: rmse", line, SPLIT), ("max: variance", line_max, LARGEST)):
        print(f"{title:13}{head}")
        for name, (sizes, numeric) in TABLES.items():
            for label in SPLIT[name]:
                top = int(label[-1])
                orders = list(range(top + 1)) if label.startswith("<=") else [top]
                each(f"{name} {label}", prefixes(sizes, numeric, orders), published[name].get(label))
    if len(sys.argv) > 1:
        for name, published in FILES.items():
            line(name, read_workload(Path(sys.argv[1]) / f"{name}.json"), published)


if __name__ == "__main__":
    main()
