"""Streamed counting: CPU seconds, rows x tables per CPU second, and peak memory above the encoded columns.

Run: python bench/counting.py [part of a case's name]
"""

from __future__ import annotations

import itertools
import sys
import time
import tracemalloc

import numpy as np

from sfumato.curator.rows.counting import ColumnCounts
from sfumato.domain import Domain
from sfumato.plans.packing import pack_tables

MIXED = [21, 32, 10, 7, 3, 52, 6, 6, 15, 3, 2, 5, 9, 12, 4]
ADULT = [85, 9, 100, 16, 7, 15, 6, 5, 2, 100, 100, 99, 42, 2]
LOANS = [101, 101, 101, 101, 3, 8, 36, 6, 51, 4, 5, 15]
SMALL = [2, 3, 5, 10, 4, 7, 2, 20, 12, 6]
CASES: dict[str, tuple[list[int], int, tuple[int, ...]]] = {
    "Adult, 3-way": (ADULT, 48_842, (3,)),
    "Adult, up to 3-way": (ADULT, 48_842, (3, 2, 1, 0)),
    "Loans, 3-way": (LOANS, 2_000, (3,)),
    "15 of mixed size, 3-way": (MIXED, 1_000_000, (3,)),
    "15 of 8 cells, 3-way": ([8] * 15, 1_000_000, (3,)),
    "15 of 10 cells, 3-way": ([10] * 15, 1_000_000, (3,)),
    "15 of 20 cells, 3-way": ([20] * 15, 1_000_000, (3,)),
    "30 of 10 cells, up to 3-way": ([10] * 30, 100_000, (3, 2, 1, 0)),
    "50 of 10 cells, up to 3-way": ([10] * 50, 10_000, (3, 2, 1, 0)),
    "50 of 10 cells, up to 3-way, many rows": ([10] * 50, 100_000, (3, 2, 1, 0)),
    "100 of 10 cells, up to 3-way, few rows": ([10] * 100, 1_000, (3, 2, 1, 0)),
    "100 of 10 cells, up to 3-way": ([10] * 100, 10_000, (3, 2, 1, 0)),
    "100 of 10 cells, up to 3-way, many rows": ([10] * 100, 100_000, (3, 2, 1, 0)),
    "100 of 2 to 20 cells, up to 3-way": (SMALL * 10, 10_000, (3, 2, 1, 0)),
    "200 of 2 cells, up to 3-way": ([2] * 200, 10_000, (3, 2, 1, 0)),
    "20 of 10 cells, 4-way": ([10] * 20, 100_000, (4,)),
    "1000 of 4 cells, up to 2-way": ([4] * 1000, 10_000, (2, 1)),
}


def combinations(count: int, order: int) -> np.ndarray:
    chosen = list(itertools.combinations(range(count), order))
    return np.array(chosen, dtype=np.int32).reshape(len(chosen), order)


def main() -> None:
    chosen = {name: case for name, case in CASES.items() if all(word in name for word in sys.argv[1:])}
    print(f"{'attributes and tables':40} {'rows':>9} {'tables':>9} {'cells':>11} {'CPU s':>6} {'G/s':>5} {'MB':>4}")
    for name, (shape, rows, orders) in chosen.items():
        domain = Domain({f"a{i}": size for i, size in enumerate(shape)})
        rng = np.random.default_rng(1)
        # Squares: real columns are skewed, and repeated cells are the slow case of counting.
        columns = tuple((rng.random(rows) ** 2 * size).astype(np.uint8) for size in shape)
        counts = ColumnCounts(domain.grid, rows, (columns,), packing=pack_tables)
        sets = [combinations(len(shape), k) for k in orders]
        seconds: list[float] = []
        cells = 0
        for _ in range(3):
            start = time.process_time()
            cells = sum(tables.size for _, _, tables in counts.stream(sets))
            seconds.append(time.process_time() - start)
        tracemalloc.start()
        for _ in counts.stream(sets):
            pass
        peak = tracemalloc.get_traced_memory()[1] / 2**20
        tracemalloc.stop()
        tables = sum(map(len, sets))
        speed = rows * tables / min(seconds) / 1e9
        print(f"{name:40} {rows:9,} {tables:9,} {cells:11,} {min(seconds):6.3f} {speed:5.2f} {peak:4.0f}", flush=True)


if __name__ == "__main__":
    main()
