"""L1 strategies for pure epsilon: error at unit-variance noise and unit L1 sensitivity, and CPU seconds.

Run: OPENBLAS_NUM_THREADS=1 python bench/pure.py [DIRECTORY of the JSON workloads]
"""

from __future__ import annotations

import itertools
import math
import sys
import time
from pathlib import Path

import numpy as np
from tilted import read_workload

import sfumato as sf
from sfumato.operators import AllRange, Prefix
from sfumato.strategies.optimum.pure import optimize_pure

BARS = {("prefix", 256): 5.1802, ("prefix", 1024): 6.834, ("ranges", 256): 5.714, ("ranges", 1024): 7.851}


ADULT, LOANS = (85, 9, 100, 16, 7, 15, 6, 5, 2, 100, 100, 99, 42, 2), (101, 101, 101, 101, 3, 8, 36, 6, 51, 4, 5, 15)
MARGINALS = (  # cells, orders, most cells of a table, HDMM
    ("3-way of 2^8", (2,) * 8, (3,), 10**9, 10.847),
    ("<=3-way of 2^8", (2,) * 8, (0, 1, 2, 3), 10**9, 12.034),
    ("3-way of 10^8", (10,) * 8, (3,), 10**9, 46.393),
    ("<=3-way of 2^10", (2,) * 10, (0, 1, 2, 3), 10**9, 20.946),
    ("adult 1", ADULT, (0, 1, 2, 3), 10**9, 159.35),
    ("loans 1", LOANS, tuple(range(13)), 5000, 71.363),
)
UNIONS = {"sf1": 5.16, "sf1-with-states": 7.2371, "cps-1": 3.4214, "cps-2": 28.7017, "adult-2": 342.29,
    "loans-2": 203.85}  # fmt: skip


def planned(name: str, workload: sf.Workload, bar: float) -> None:
    start = time.process_time()
    plan = sf.plan(workload, sf.pure(1), neighbours="add-remove", mechanism="marginals")
    spent = time.process_time() - start
    rmse = plan.rmse / math.sqrt(2)
    print(f"{name:16} rmse {rmse:.5f}  (HDMM {bar})  {plan.strategy.summary}  {spent:.2f} CPU-s", flush=True)


def tables() -> None:
    for name, sizes, orders, most, bar in MARGINALS:
        domain = sf.Domain({f"a{i}": sf.Integers(0, n - 1) for i, n in enumerate(sizes)})
        sets = [s for k in orders for s in itertools.combinations(range(len(sizes)), k)]
        sets = [s for s in sets if math.prod(sizes[i] for i in s) <= most]
        planned(name, sf.marginals(domain, sets=[tuple(domain.names[i] for i in s) for s in sets]), bar)
    for name, bar in UNIONS.items() if len(sys.argv) > 1 else ():
        planned(name, read_workload(Path(sys.argv[1]) / f"{name}.json"), bar)


def main() -> None:
    optimize_pure(np.eye(3))  # imports
    tables()
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
