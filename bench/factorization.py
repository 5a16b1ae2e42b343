"""CPU seconds and certified gaps of the optimal dense factorization: python bench/factorization.py [rows ...]

Run with OPENBLAS_NUM_THREADS=1. CPU seconds are of one thread, by time.process_time, without building the Gram;
neighbours on the same machine can double them. `target` is the known optimum and the bar in CPU seconds.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from sfumato.strategies.dense_optimal import optimize_dense

Arguments = dict[str, Any]


def prefix(n: int) -> Arguments:
    cells = np.arange(n)
    return {"gram": n - np.maximum.outer(cells, cells), "ordered": True, "rows": n}


def all_ranges(n: int) -> Arguments:
    cells = np.arange(n)
    low, high = np.minimum.outer(cells, cells), np.maximum.outer(cells, cells)
    return {"gram": (low + 1) * (n - high), "ordered": True, "rows": n * (n + 1) // 2}


def windows(n: int, width: int = 32) -> Arguments:
    rows = n - width + 1
    matrix = np.array([(np.arange(n) >= i) & (np.arange(n) < i + width) for i in range(rows)], dtype=float)
    return {"matrix": matrix, "rows": rows}


def random_bits(k: int, m: int) -> Arguments:
    return {"matrix": np.random.default_rng(0).integers(0, 2, (k, m)).astype(float), "rows": k}


def subsets(d: int, conjunctions: bool) -> Arguments:
    sets = np.arange(2**d)
    common = np.bitwise_and.outer(sets, sets)
    return {"matrix": (common == sets[:, None] if conjunctions else common > 0).astype(float), "rows": 2**d}


CASES: dict[str, tuple[Callable[[], Arguments], float | None, float | None]] = {
    "prefix 256": (lambda: prefix(256), 2.5244144160, None),
    "prefix 1024": (lambda: prefix(1024), 2.9554519932, 3.5),
    "prefix 2048": (lambda: prefix(2048), 3.1723156, 25.0),
    "ranges 256": (lambda: all_ranges(256), 2.9014354573, None),
    "ranges 1024": (lambda: all_ranges(1024), 3.5150831899, 0.5),
    "ranges 2048": (lambda: all_ranges(2048), 3.8241327, 2.0),
    "ranges 4096": (lambda: all_ranges(4096), 4.1339381, 12.0),
    "width32 256": (lambda: windows(256), 2.3482934, 1.0),
    "width32 512": (lambda: windows(512), 2.3732061, None),
    "width32 1024": (lambda: windows(1024), None, None),
    "random 256x256": (lambda: random_bits(256, 256), None, 1.0),
    "random 1024x1024": (lambda: random_bits(1024, 1024), None, None),
    "random 32x256": (lambda: random_bits(32, 256), None, 0.3),
    "conjunctions 6": (lambda: subsets(6, True), None, None),
    "disjunctions 6": (lambda: subsets(6, False), None, None),
}


def main(names: list[str]) -> None:
    print(f"{'workload':18}{'rmse':>13}{'target':>14}{'gap':>10}{'eigh':>6}{'CPU-s':>8}{'bar':>7}")
    for name in names or list(CASES):
        build, target, bar = CASES[name]
        arguments = build()
        rows = arguments.pop("rows")
        start = time.process_time()
        optimum = optimize_dense(**arguments)
        seconds = time.process_time() - start
        print(
            f"{name:18}{optimum.upper_bound / rows**0.5:13.8f}{target or float('nan'):14.8f}{optimum.gap:10.1e}"
            f"{optimum.iterations:6d}{seconds:8.2f}{bar or float('nan'):7.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
