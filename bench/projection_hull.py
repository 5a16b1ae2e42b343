"""The error of projected answers does not grow with the number of queries: random +-1 queries over 2,048 cells.

    OPENBLAS_NUM_THREADS=1 python bench/projection_hull.py [RUNS]

n = 400 records on 5 cells (weights drawn from Dirichlet(1)), (1, 1e-6), replace-one: the price of the mechanism is the
exact largest distance between two columns. Every run draws new queries and records, plans, releases and projects
through the public interface; errors are divided by n. Columns: "noise" is the predicted error of noise on every query,
"raw" that of the release, least squares over what was measured; "projected" and the largest of the runs; "bound" the
root of E max_j <F_j, Z> n / k, simulated, and in how many runs the projected error is below it; then the largest
sqrt(gap / k) / n, what is proved of the distance to the true projection; CPU seconds of one process around project(),
mean and largest; those of planning and of the release, means.
"""

from __future__ import annotations

import math
import sys
import time

import numpy as np
from numpy.typing import NDArray

import sfumato as sf
from sfumato.privacy.accounting import GaussianEvent

CELLS, RECORDS, ATOMS = 2048, 400, 5
HEAD = "    k   noise     raw  projected  largest  bound  below   proved  CPU-s  most   plan  release"


def run(k: int, seed: int) -> list[float]:
    rng = np.random.default_rng(seed)
    matrix = rng.choice(np.array([-1, 1]), size=(k, CELLS))
    counts = np.zeros(CELLS, dtype=np.int64)
    counts[rng.choice(CELLS, ATOMS, replace=False)] = rng.multinomial(RECORDS, rng.dirichlet(np.ones(ATOMS)))
    truth = matrix @ counts

    def error(answers: NDArray[np.float64]) -> float:
        return float(np.sqrt(np.mean((answers - truth) ** 2))) / RECORDS

    clock = [time.process_time()]
    plan = sf.plan(sf.queries(matrix), sf.approx(1, "1e-6"), neighbours="replace-one", strategy="queries")
    clock.append(time.process_time())
    release = sf.release(plan, sf.Histogram(counts), ledger=None)
    raw = error(release.answers)
    clock.append(time.process_time())
    projected = release.project()
    clock.append(time.process_time())
    found = projected.projection
    assert found is not None
    assert found.certified
    # columns of entries +-1: |F_i - F_j|^2 = 2 k - 2 <F_i, F_j>
    columns = matrix.T.astype(np.float32)
    diameter = math.sqrt(2 * (k - int((columns @ columns.T).min())))
    assert isinstance(plan.price, GaussianEvent)
    sigma = diameter / math.sqrt(plan.price.mu_squared)
    width = sigma * float((columns @ rng.standard_normal((k, 200), dtype=np.float32)).max(axis=0).mean())
    bound = math.sqrt(width * RECORDS / k) / RECORDS
    proved = math.sqrt(found.gap / k) / RECORDS
    spent = np.diff(clock).tolist()
    return [sigma / RECORDS, raw, error(projected.answers), bound, proved, spent[2], spent[0], spent[1]]


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    print(HEAD)
    for k in (64, 256, 1024, 4096):
        found = np.array([run(k, seed) for seed in range(runs)])
        noise, raw, projected, bound, _, cpu, planned, released = found.mean(axis=0)
        most, proved, slow = found[:, 2].max(), found[:, 4].max(), found[:, 5].max()
        below = int((found[:, 2] <= found[:, 3]).sum())
        print(
            f"{k:5}  {noise:6.3f}  {raw:6.3f}     {projected:6.4f}   {most:6.4f} {bound:6.3f}  {below:2}/{runs}  "
            f"{proved:.1e} {cpu:6.2f} {slow:5.2f} {planned:6.2f}   {released:6.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
