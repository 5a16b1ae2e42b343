"""Counting marginals: CPU seconds, and rows x marginals per CPU second. Run: python bench/counting.py"""

from __future__ import annotations

import itertools
import time

import numpy as np

from sfumato.curator.counting import ColumnCounts
from sfumato.domain import Domain

MIXED = [21, 32, 10, 7, 3, 52, 6, 6, 15, 3, 2, 5, 9, 12, 4]
ADULT = [85, 9, 100, 16, 7, 15, 6, 5, 2, 100, 100, 99, 42, 2]
CASES = {
    "15 attributes of mixed size": (MIXED, 1_000_000),
    "15 attributes of 8 cells": ([8] * 15, 1_000_000),
    "15 attributes of 20 cells": ([20] * 15, 1_000_000),
    "14 attributes of the Adult table": (ADULT, 48_842),
    "50 attributes of 10 cells": ([10] * 50, 100_000),
}


def main() -> None:
    rng = np.random.default_rng(1)
    print(f"{'three-way marginals of':34} {'rows':>9} {'sets':>6} {'cells':>11} {'CPU s':>6} {'G/s':>5}")
    for name, (shape, rows) in CASES.items():
        domain = Domain({f"a{i}": size for i, size in enumerate(shape)})
        # Squares: real columns are skewed, and repeated cells are the slow case of counting.
        columns = tuple((rng.random(rows) ** 2 * size).astype(np.uint8) for size in shape)
        counts = ColumnCounts(domain, rows, columns)
        triples = list(itertools.combinations(domain.names, 3))
        seconds = []
        for _ in range(3):
            start = time.process_time()
            tables = counts.count(triples)
            seconds.append(time.process_time() - start)
        cells = sum(t.size for t in tables.values())
        speed = rows * len(triples) / min(seconds) / 1e9
        print(f"{name:34} {rows:9,} {len(triples):6,} {cells:11,} {min(seconds):6.3f} {speed:5.2f}")


if __name__ == "__main__":
    main()
