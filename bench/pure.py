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
from numpy.typing import NDArray
from tilted import read_workload

import sfumato as sf
from sfumato.operators import AllRange
from sfumato.strategies.dense_optimal import optimize_pure

HDMM = {  # the best of its random starts
    ("prefix", 64): 3.7639, ("prefix", 256): 5.1985, ("prefix", 1024): 6.8342,
    ("ranges", 64): 3.9272, ("ranges", 256): 5.7174, ("ranges", 1024): 7.8508,
    ("permuted", 64): 3.9266, ("permuted", 256): 5.7138,
    ("width 32", 64): 4.1669, ("width 32", 256): 4.4897, ("width 32", 1024): 4.5322,
    ("rand01", 64): 5.7009, ("rand01", 256): 11.3285,
}  # fmt: skip
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


def planned(name: str, workload: sf.Workload, bar: float | None, mechanism: str = "marginals") -> None:
    start = time.process_time()
    plan = sf.plan(workload, sf.pure(1), neighbours="add-remove", mechanism=mechanism, objective="cells")
    spent = time.process_time() - start
    rmse = plan.rmse / math.sqrt(2)
    print(f"{name:16} rmse {rmse:.5f}  (HDMM {bar})  {plan.strategy.summary}  {spent:.2f} CPU-s", flush=True)


def _bits(n: int) -> NDArray[np.int64]:
    """The 0/1 matrices of section 1b, which numpy's older generator drew."""
    return (np.random.RandomState(0).rand(n, n) < 0.5).astype(np.int64)


def one_attribute() -> None:
    """Section 1b of factorization.md: what a user gets, with `mechanism="auto"`."""
    for n in (64, 256, 1024):
        domain = sf.Domain({"cell": sf.Integers(0, n - 1)})
        rng = np.random.default_rng(0)
        mixed = np.asarray(AllRange(n).dense())[:, rng.permutation(n)] if n <= 256 else None
        works = {
            "prefix": sf.prefix(domain, "cell"),
            "ranges": sf.ranges(domain, "cell"),
            "permuted": None if mixed is None else sf.queries(mixed, domain),
            "width 32": sf.windows(domain, "cell", width=32),
            "rand01": sf.queries(_bits(n), domain) if n <= 256 else None,
        }
        for name, workload in works.items():
            if workload is not None:
                planned(f"{name} {n}", workload, HDMM[name, n], "auto")


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
    one_attribute()
    tables()


if __name__ == "__main__":
    main()
