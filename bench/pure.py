"""L1 strategies for pure epsilon: error at unit-variance noise and unit L1 sensitivity, and CPU seconds.

Run: OPENBLAS_NUM_THREADS=1 python bench/pure.py
"""

from __future__ import annotations

import time

import numpy as np

from sfumato.operators import AllRange, Prefix
from sfumato.strategies.optimum.pure import optimize_pure

BARS = {("prefix", 256): 5.1802, ("prefix", 1024): 6.834, ("ranges", 256): 5.714, ("ranges", 1024): 7.851}


def main() -> None:
    optimize_pure(np.eye(3))  # imports
    for n in (64, 256, 512, 1024):
        for name, workload in (("prefix", Prefix(n)), ("ranges", AllRange(n))):
            gram = np.asarray(workload.gram().dense(), dtype=np.float64)
            start = time.process_time()
            found = optimize_pure(gram, ordered=True)
            spent = time.process_time() - start
            rmse = found.value / np.sqrt(workload.shape[0])
            bar = BARS.get((name, n))
            print(f"{name:7} {n:5}  rmse {rmse:.5f}  (bar {bar})  {found.iterations} steps  {spent:.2f} CPU-s")


if __name__ == "__main__":
    main()
