"""Quantiles, means, shares and distributions by group: do their intervals hold, and how wide are they?

    OPENBLAS_NUM_THREADS=1 python bench/ratios.py [tables] [draws] [seed]

Random tables (numpy generator of that seed, 7 unless given; the noise is the operating system's): 3 to 59 bins of
uneven width, 1 to 3 groups and their (other), Dirichlet shares of concentration .1, 1 or 10, group sizes over six
orders of magnitude, many empty; marginal tables with or without a CDF by group; add-remove or replace-one. Gaussian
noise at (eps, 1e-6) and Laplace noise at eps, for eps 0.1, 1 and 10.

"told": of how many groups numbers are given at all; "held": of those, how many 95 % intervals hold the exact value (for
quantiles the whole cell that it lies in); "wrong": of all, told and not held. By the exact size of the group in
standard errors of its noisy size. Then widths of intervals, as shares of what is possible, were every group told; and
how the noisy counts up to each cell are best made to rise: bias and root mean squared error of five quantiles, in
shares of the range, by the running maximum, by its mean with the least to come (what is used), by isotonic regression.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

import sfumato as sf
from sfumato.releases import quantiles

LEVEL = 0.95
LEVELS = (0.05, 0.25, 0.5, 0.9)
SIZES = ("empty", "below 2", "2 to 5", "5 to 10", "above 10")
Counts = NDArray[np.int64]
Row = tuple[str, bool, bool]


def random_case(rng: np.random.Generator, epsilon: str, noise: str) -> tuple[sf.Plan, Counts]:
    """A plan, and counts (cells, groups) with the (other) of both attributes last."""
    n, groups = int(rng.integers(3, 60)), int(rng.integers(1, 4))
    edges = np.cumsum(rng.integers(1, 20, n + 1)).tolist()
    domain = sf.Domain(
        {
            "x": sf.Bins(edges, outside="other", missing="other"),
            "g": sf.Integers(0, groups - 1, outside="other", missing="other"),
        }
    )
    shares = rng.dirichlet(np.full(n + 1, rng.choice([0.1, 1, 10])), size=groups + 1).T
    counts = rng.poisson(shares * 10 ** rng.uniform(0, 4) * 10 ** rng.uniform(-1, 1, size=groups + 1))
    work = sf.marginals(domain, order=2)
    if rng.random() < 0.5:
        work = sf.prefix(domain, "x", by=["g"]) + work
    budget = sf.pure(epsilon) if noise == "laplace" else sf.approx(epsilon, "1e-6")
    plan = sf.plan(work, budget, neighbours=str(rng.choice(["add-remove", "replace-one"])))
    assert isinstance(plan, sf.Plan)
    return plan, counts


def outcomes(release: sf.Release, counts: Counts, group: int, cell: int) -> Iterator[Row]:
    """(statistic, told, held) of one group: four quantiles, the mean, and one cell of distribution and shares."""
    domain = release.plan.workload.domain
    inside, size = counts[:-1, group], int(counts[:-1, group].sum())
    n, edges = len(inside), np.asarray(domain["x"].intervals)
    found = release.quantiles("x", LEVELS, by="g", confidence=LEVEL).rows()
    for i, p in enumerate(LEVELS):
        row = found[group * len(LEVELS) + i]
        at = int(np.argmax(inside.cumsum() >= p * size - 1e-9))
        yield "quantile", row["low"] is not None, _holds(row, edges[at, 0]) and _holds(row, edges[at, 1]) and size > 0
    row = release.mean("x", by="g", confidence=LEVEL).rows()[group]
    middle = float(np.asarray(domain["x"].midpoints) @ inside) / max(size, 1)
    yield "mean", row["low"] is not None, size > 0 and _holds(row, middle)
    row = release.cdf("x", by="g", confidence=LEVEL).rows()[group * n + cell]
    yield "cdf", row["low"] is not None, size > 0 and _holds(row, inside[: cell + 1].sum() / max(size, 1))
    row = release.share("x", within="g", confidence=LEVEL).rows()[group * (n + 1) + cell]
    every = int(counts[:, group].sum())
    yield "share", row["low"] is not None, every > 0 and _holds(row, inside[cell] / max(every, 1))


def _holds(row: dict[str, float | None], value: float) -> bool:
    low, high = row["low"], row["high"]
    return low is not None and high is not None and low - 1e-9 <= value <= high + 1e-9


def coverage(tables: int, draws: int, seed: int) -> None:
    """Print what holds, by statistic, noise, budget, and size."""
    seen: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for epsilon in ("0.1", "1", "10"):
        for noise in ("gaussian", "laplace"):
            rng = np.random.default_rng([seed, round(float(epsilon) * 10), len(noise)])
            for _ in range(tables):
                plan, counts = random_case(rng, epsilon, noise)
                for _ in range(draws):
                    release = sf.release(plan, sf.Histogram(counts), ledger=None)
                    group, cell = int(rng.integers(counts.shape[1])), int(rng.integers(len(counts) - 1))
                    error = float(np.asarray(release.table("g").standard_errors)[group])
                    size = int(counts[:-1, group].sum())
                    bin_ = 0 if size == 0 else 1 + int(np.searchsorted([2, 5, 10], size / max(error, 1e-9)))
                    for statistic, told, held in outcomes(release, counts, group, cell):
                        for key in ((statistic, SIZES[bin_]), (statistic, f"{noise} {epsilon}"), (statistic, "all")):
                            seen[key][0] += 1
                            seen[key][1] += told
                            seen[key][2] += told and held
    print(f"{'statistic':10}{'groups':16}{'cases':>8}{'told':>8}{'held':>8}{'wrong':>8}")
    for (statistic, which), (cases, told, held) in sorted(seen.items()):
        rate = f"{held / told:8.3f}" if told else f"{'-':>8}"
        print(f"{statistic:10}{which:16}{cases:8,}{told / cases:8.3f}{rate}{(told - held) / cases:8.3f}")


def widths(seed: int) -> None:
    """Print how wide intervals are by the size of the group, and how many say nothing."""
    quantiles.SIZE_ERRORS = 0.0
    rng = np.random.default_rng(seed)
    print(f"\n{'size in standard errors':26}{'median width: share':>20}{'mean':>8}{'median':>8}{'say nothing':>14}")
    for size in (2, 3, 4, 5, 6, 8, 10):
        found: dict[str, list[float]] = defaultdict(list)
        for _ in range(12):
            n = int(rng.integers(4, 40))
            domain = sf.Domain({"x": sf.Integers(0, n - 1), "g": sf.Integers(0, 1)})
            work = sf.prefix(domain, "x", by=["g"]) + sf.marginals(domain, order=2)
            plan = sf.plan(work, sf.approx("0.1", "1e-6"), neighbours="add-remove")
            shares = rng.dirichlet(np.full(n, rng.choice([0.3, 1, 5])), size=2).T
            counts = np.rint(shares * size * float(np.sqrt(plan.covariance(("g",))[0, 0]))).astype(np.int64)
            for _ in range(10):
                release = sf.release(plan, sf.Histogram(counts), ledger=None)
                frames = {"share": release.share("x", within="g"), "mean": release.mean("x", by="g")}
                frames["median"] = release.quantiles("x", [0.5], by="g")
                for name, frame in frames.items():
                    full = 1.0 if name == "share" else n - 1.0
                    found[name] += [1.0 if r["low"] is None else (r["high"] - r["low"]) / full for r in frame.rows()]
        every = np.concatenate([np.asarray(v) for v in found.values()])
        middle = [float(np.median(found[name])) for name in ("share", "mean", "median")]
        print(f"{size:<26}{middle[0]:20.2f}{middle[1]:8.2f}{middle[2]:8.2f}{float(np.mean(every > 0.95)):14.3f}")


def rising(seed: int) -> None:
    """Print how three ways to make noisy counts rise fare, by what is measured and by the size of the group."""
    rng = np.random.default_rng(seed)
    print(f"\n{'measured, size':26}{'running maximum':>24}{'mean of both':>24}{'isotonic':>24}")
    for what, size in ((w, s) for w in ("cells", "distribution") for s in (5, 10, 30)):
        misses: dict[int, list[float]] = defaultdict(list)
        for _ in range(60):
            n = int(rng.integers(5, 60))
            upto = sf.prefix(sf.Domain({"x": sf.Integers(0, n - 1)}), "x")
            asked = upto if what == "distribution" else sf.identity(upto.domain, "x")
            covariance = sf.plan(asked, sf.gdp(1), neighbours="add-remove").covariance(upto)
            shares = rng.dirichlet(np.full(n, rng.choice([0.1, 1, 10])))
            exact = (shares * size * np.sqrt(covariance[-1, -1])).cumsum()
            for noisy in rng.multivariate_normal(exact, covariance, size=30):
                if noisy[-1] <= 0:
                    continue
                highest = np.maximum.accumulate(noisy)
                ahead = np.minimum.accumulate(noisy[::-1])[::-1]
                ways = (highest, (highest + ahead) / 2, isotonic_regression(noisy).x)
                for p in (0.1, 0.25, 0.5, 0.75, 0.9):
                    truth = _reached(exact, p)
                    for i, way in enumerate(ways):
                        misses[i].append((_reached(np.clip(way, 0, noisy[-1]), p) - truth) / n)
        shown = (f"{np.mean(v):+10.4f} rmse {np.sqrt(np.mean(np.square(v))):.4f}" for v in misses.values())
        print(f"{f'{what}, {size}':<26}" + "".join(f"{text:>24}" for text in shown))


def _reached(upto: NDArray[np.float64], p: float) -> float:
    """Where counts up to each cell reach a share of the last, in cells."""
    cell = int(np.argmax(upto >= p * upto[-1]))
    before = float(upto[cell - 1]) if cell else 0.0
    return cell + (p * float(upto[-1]) - before) / max(float(upto[cell]) - before, 1e-12)


if __name__ == "__main__":
    given = [int(a) for a in sys.argv[1:]]
    tables_, draws_, seed_ = given + [30, 40, 7][len(given) :]
    coverage(tables_, draws_, seed_)
    widths(seed_)
    rising(seed_)
