"""All 91 noisy pairs of Adult, 14 attributes coarsened to 42 cells at most, projected onto weighted records.

    python bench/projection_exact.py adult.csv [RUNS]

Equal Gaussian noise of deviation sqrt(91 / (2 rho)) on every table; the error is the mean over the tables of
sum |table - truth| / n. Prints raw, local and exact errors, the gap (proved, as a share of the squared distance
moved), records and CPU seconds.
"""

from __future__ import annotations

import itertools
import sys
import time

import numpy as np

import sfumato as sf

LARGEST, BINS = 42, 32


def adult(path: str) -> tuple[sf.Domain, np.ndarray]:
    """The coarsened rows with their domain."""
    with open(path, encoding="utf-8") as handle:
        names = handle.readline().strip().split(",")
    rows = np.loadtxt(path, delimiter=",", skiprows=1, dtype=np.int64)
    # the declared sizes of the file's own description
    sizes = [85, 9, 100, 16, 7, 15, 6, 5, 2, 100, 100, 99, 42, 2]
    for i, size in enumerate(sizes):
        if size > LARGEST:
            rows[:, i] = rows[:, i] * BINS // size
            sizes[i] = BINS
    return sf.Domain({n: sf.Integers(0, s - 1) for n, s in zip(names, sizes, strict=True)}), rows


def main(path: str, runs: int) -> None:
    domain, rows = adult(path)
    n, work = len(rows), sf.marginals(domain, order=2)
    truth, ends = [], [0]
    for q in work.blocks:
        a, b = (domain.axis(x) for x in q.attributes)
        truth.append(np.bincount(rows[:, a] * domain.shape[b] + rows[:, b], minlength=q.rows).astype(float))
        ends.append(ends[-1] + q.rows)
    exact = np.concatenate(truth)

    def error(answers: np.ndarray) -> float:
        away = np.abs(answers - exact)
        return float(np.mean([away[a:b].sum() / n for a, b in itertools.pairwise(ends)]))

    print(f"{'rho':>6} {'raw':>7} {'local':>7} {'exact':>7} {'gap':>6} {'records':>8} {'CPU-s':>6}")
    for rho in (0.005, 0.01497, 0.05):
        sigma, found = np.sqrt(len(work.blocks) / (2 * rho)), []
        for run in range(runs):
            noisy = exact + np.random.default_rng(run).normal(0, sigma, len(exact))
            local = sf.project(noisy, work, body="local", total=n)
            start = time.process_time()
            made = sf.project(noisy, work, body="exact", total=n)
            spent = time.process_time() - start
            share = made.gap / made.moved**2
            found.append(
                (
                    error(noisy),
                    error(local.answers),
                    error(made.answers),
                    share,
                    0 if made.weights is None else len(made.weights),
                    spent,
                )
            )
        raw, near, best, gap, records, spent = np.mean(found, axis=0)
        print(f"{rho:6.4g} {raw:7.4f} {near:7.4f} {best:7.4f} {gap:6.3f} {records:8,.0f} {spent:6.2f}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 5)
