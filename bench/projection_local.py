"""Noisy marginal tables to the nearest consistent nonnegative ones: errors before and after, on adult32.

    OPENBLAS_NUM_THREADS=1 python bench/projection_local.py /path/to/adult.csv

adult.csv: 14 integer columns; those of more than 42 values are cut into 32 equal bins, which leaves 91 pairs with
31,066 cells. Error: mean over tables of sum |answer - truth| / n, mean of 5 runs. "equal": the same Gaussian noise on
every table, sigma = sqrt(91 / (2 rho)), n known. Then the optimal plan's release at the same rho (add-remove, n not
known): "held" in the plain norm of the tables with the total held at its noisy value, "free" with it free, "gls" in the
norm of the residual variances, where what
nonnegativity adds to many noisy cells moves the total. CPU seconds of one projection, reading and checking included.
"""

from __future__ import annotations

import itertools
import math
import sys
import time
from collections.abc import Sequence

import duckdb
import numpy as np
from numpy.typing import NDArray

import sfumato as sf
from sfumato.postprocess.consistency import LocalSolution, ResidualNoise, project_onto_local
from sfumato.strategies.residuals import Residuals

SIZES = (85, 9, 100, 16, 7, 15, 6, 5, 2, 100, 100, 99, 42, 2)
MOST, BINS, RUNS = 42, 32, 5
BARS = {0.005: 0.116, 0.05: 0.050, 0.5: 0.0202}
Tables = list[NDArray[np.float64]]


def coarsened(path: str) -> tuple[NDArray[np.int64], list[int]]:
    """(rows, cells of every attribute)"""
    rows = np.loadtxt(path, delimiter=",", skiprows=1, dtype=np.int64)
    sizes = [n if n <= MOST else BINS for n in SIZES]
    for i, n in enumerate(SIZES):
        if n > MOST:
            rows[:, i] = rows[:, i] * BINS // n
    return rows, sizes


def error(tables: Sequence[NDArray[np.float64]], exact: Tables, n: int) -> float:
    return float(np.mean([np.abs(a - b).sum() for a, b in zip(tables, exact, strict=True)])) / n


def line(kind: str, rho: float, runs: list[tuple[float, float, float, LocalSolution]]) -> None:
    raw, fitted, took = (float(np.mean([r[i] for r in runs])) for i in range(3))
    gap = max(math.sqrt(r[3].gap) / r[3].moved for r in runs)
    steps = max(r[3].iterations for r in runs)
    print(f"{kind:8}{rho:7}{raw:10.4f}{fitted:12.4f}{BARS[rho]:8}{took:10.3f}{steps:7}{gap:16.1e}")


def main(path: str) -> None:
    rows, sizes = coarsened(path)
    n = len(rows)
    pairs = list(itertools.combinations(range(len(sizes)), 2))
    exact: Tables = []
    for a, b in pairs:
        cells = np.bincount(rows[:, a] * sizes[b] + rows[:, b], minlength=sizes[a] * sizes[b])
        exact.append(cells.reshape(sizes[a], sizes[b]).astype(np.float64))
    print(f"{len(pairs)} tables, {sum(t.size for t in exact):,} cells, {n:,} rows")
    print(f"{'noise':8}{'rho':>7}{'raw':>10}{'projected':>12}{'bar':>8}{'CPU-s':>10}{'steps':>7}{'gap / moved':>16}")
    rng = np.random.default_rng(0)
    for rho in BARS:
        sigma = math.sqrt(len(pairs) / (2 * rho))
        runs: list[tuple[float, float, float, LocalSolution]] = []
        for _ in range(RUNS):
            noisy = [t + sigma * rng.standard_normal(t.shape) for t in exact]
            start = time.process_time()
            found = project_onto_local(sizes, pairs, noisy, sigma**2, float(n))
            took = time.process_time() - start
            runs.append((error(noisy, exact, n), error(found.tables, exact, n), took, found))
        line("equal", rho, runs)
    names = [f"a{i:02}" for i in range(len(sizes))]
    domain = sf.Domain(
        {a: sf.Integers(0, k - 1, outside="clamp", missing="drop") for a, k in zip(names, sizes, strict=True)}
    )
    people = {a: rows[:, i] for i, a in enumerate(names)}
    starts = np.cumsum([t.size for t in exact])[:-1]
    connection = duckdb.connect()
    connection.register("people", people)
    for rho in BARS:
        work = sf.marginals(domain, order=2)
        plan = sf.plan(work, sf.zcdp(str(rho)), neighbours="add-remove", mechanism="marginals", objective="cells")
        assert isinstance(plan.strategy, Residuals)
        noise = ResidualNoise(plan.strategy.sets, tuple(plan.noise.variance / d**2 for d in plan.strategy.divisors))
        kinds: dict[str, list[tuple[float, float, float, LocalSolution]]] = {"held": [], "free": [], "gls": []}
        for _ in range(RUNS):
            answers = sf.release(plan, connection.sql("SELECT * FROM people"), ledger=None).answers
            noisy = [a.reshape(t.shape) for a, t in zip(np.split(answers, starts), exact, strict=True)]
            for kind, done in kinds.items():
                total = float(noisy[0].sum()) if kind == "held" else None
                start = time.process_time()
                found = project_onto_local(sizes, pairs, noisy, noise if kind == "gls" else plan.rmse**2, total)
                took = time.process_time() - start
                done.append((error(noisy, exact, n), error(found.tables, exact, n), took, found))
        for kind, done in kinds.items():
            line(kind, rho, done)


if __name__ == "__main__":
    main(sys.argv[1])
