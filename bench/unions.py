"""Unions of Kronecker products from plan to release: errors, bounds, seconds, and variances that were measured.

    OPENBLAS_NUM_THREADS=1 python bench/unions.py DIRECTORY [RELEASES]

DIRECTORY holds the JSON workloads. Columns: rmse of the plan and its proved bound under add-remove at GDP 1 (sums of
squares at unit noise); CPU seconds of one process around sf.plan and around a first sf.release of the rows, with its
answers; over RELEASES releases the sum of all squared errors over the sum of their predicted variances, and how many
standard deviations that lies from 1 (by the spread of the releases); the largest and the root mean square of the
z-scores of single queries in the last release. Rows: 20,000, drawn uniformly. HDMM: the best published.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from tilted import read_workload

import sfumato as sf
from sfumato.operators import Block
from sfumato.operators.base import FloatArray

ROWS = 20_000
NAMES = ("sf1", "sf1-with-states", "adult-2", "loans-2", "cps-1", "cps-2")
HDMM = {"sf1": 2.3212, "sf1-with-states": 2.5788, "adult-2": 24.9534, "loans-2": 23.6048}
COLUMNS = (("", 16), ("queries", 9), ("rmse", 11), ("bound", 11), ("HDMM", 9), ("plan", 7), ("release", 9),
    ("measured", 10), ("off", 7), ("largest", 9), ("all", 8))  # fmt: skip


def exact(block: Block, columns: dict[str, NDArray[np.int64]], sizes: dict[str, int]) -> FloatArray:
    """The answers of a block of queries over rows, by counting its table."""
    shape = [sizes[a] for a in block.attributes]
    index = np.ravel_multi_index([columns[a] for a in block.attributes], shape) if shape else np.zeros(ROWS, dtype=int)
    counts = np.bincount(index, minlength=int(np.prod(shape, dtype=np.int64)))
    return block.operator.matvec(counts).astype(np.float64)


def line(folder: Path, name: str, releases: int) -> None:
    given = read_workload(folder / f"{name}.json")
    sizes = {n: a.size for n, a in given.domain.attributes.items()}
    domain = sf.Domain({n: sf.Integers(0, k - 1, outside="drop", missing="drop") for n, k in sizes.items()})
    workload = type(given)(domain, given.items)
    rng = np.random.default_rng(0)
    columns = {n: rng.integers(0, k, ROWS) for n, k in sizes.items()}
    truth = np.concatenate([exact(q.block, columns, sizes) for q in workload.blocks])
    table = pd.DataFrame(columns)

    start = time.process_time()
    plan = sf.plan(workload, sf.gdp(1), neighbours="add-remove", objective="cells")
    planned = time.process_time() - start
    errors = plan.standard_errors()
    means: list[float] = []
    took = 0.0
    z = np.zeros(len(truth))
    for i in range(releases):
        start = time.process_time()
        answers = sf.release(plan, table, ledger=None).answers
        took = took if i else time.process_time() - start
        z = (answers - truth) / errors
        means.append(float(((answers - truth) ** 2).sum() / (errors**2).sum()))
    spread = float(np.std(means, ddof=1)) / len(means) ** 0.5
    print(
        f"{name:16}{len(workload):>9,}{plan.rmse:11.6f}{plan.lower_bound or float('nan'):11.6f}"
        f"{HDMM.get(name, float('nan')):9.4f}{planned:7.2f}{took:9.2f}{np.mean(means):10.4f}"
        f"{(np.mean(means) - 1) / spread:7.2f}{np.abs(z).max():9.2f}{float((z**2).mean()) ** 0.5:8.4f}",
        flush=True,
    )


def main() -> None:
    print("".join(f"{h:>{w}}" for h, w in COLUMNS))
    for name in NAMES:
        line(Path(sys.argv[1]), name, int(sys.argv[2]) if len(sys.argv) > 2 else 20)


if __name__ == "__main__":
    main()
