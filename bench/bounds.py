"""Proved lower bounds for unions of products beside the error of tilted residuals.

    OPENBLAS_NUM_THREADS=1 python bench/bounds.py [DIRECTORY OF JSON WORKLOADS]

CPU seconds of one process. Columns: the least rmse found with tilts and the seconds of that search; the bound at
its dual weights, the seconds of the bound, and by how much the rmse may still exceed the least possible one.
"""

from __future__ import annotations

import math
import sys
import time
from pathlib import Path

from tilted import FILES, SPLIT, TABLES, prefixes, read_workload

from sfumato.strategies.tilted import Union, optimise_shapes
from sfumato.strategies.tilted_bounds import union_bound
from sfumato.workloads import Workload


def line(name: str, work: Workload) -> None:
    products = [(1.0, q.block.by_attribute() or {}) for q in work.blocks]
    sizes = dict(zip(work.domain.names, work.domain.sizes(work.domain.names), strict=True))
    start = time.process_time()
    union = Union(products, sizes)
    shapes = optimise_shapes(union)
    rmse = math.sqrt(union.error(shapes) / len(work))
    middle = time.process_time()
    bound = union_bound(products, sizes, weights={union.names[i]: s.dual for i, s in shapes.items()})
    end = time.process_time()
    proved = math.nan if bound is None else bound / math.sqrt(len(work))
    print(
        f"{name:12}{len(work):>14,}{rmse:10.4f}{middle - start:7.2f}{proved:10.4f}{end - middle:7.2f}"
        f"{100 * (rmse / proved - 1):8.3f} %"
    )


def main() -> None:
    print(f"{'workload':12}{'queries':>14}{'tilted':>10}{'CPU-s':>7}{'bound':>10}{'CPU-s':>7}{'gap':>10}")
    for name, (sizes, numeric) in TABLES.items():
        for label in SPLIT[name]:
            top = int(label[-1])
            orders = list(range(top + 1)) if label.startswith("<=") else [top]
            line(f"{name} {label}", prefixes(sizes, numeric, orders))
    if len(sys.argv) > 1:
        for name in FILES:
            line(name, read_workload(Path(sys.argv[1]) / f"{name}.json"))


if __name__ == "__main__":
    main()
