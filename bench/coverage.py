"""How often the intervals of means, sums and quantiles of binned numbers hold the truth of the values themselves.

Three tables: incomes drawn log-normal with a Pareto tail in bins that widen, ages of whole years drawn as a pyramid,
durations drawn exponential with many short ones; by groups of 20,000, 5,000 and 1,000 records. Each in 13 and in 40
cells. Values are drawn once (seed 1); every release is a whole one, with noise of its own, at (1, 1e-6).

    python bench/coverage.py [releases]
"""

from __future__ import annotations

import sys
from collections import defaultdict
from typing import Any

import numpy as np

import sfumato as sf

SIZES = (20_000, 5_000, 1_000)
PROBABILITIES = (0.1, 0.5, 0.9)


def tables(rng: np.random.Generator) -> dict[str, tuple[Any, Any]]:
    """Per table the values of every record, and what declares a number of cells."""
    count = sum(SIZES)
    incomes = np.where(rng.random(count) < 0.95, rng.lognormal(10.2, 0.6, count), 80_000 * (1 + rng.pareto(1.8, count)))
    ages = np.floor(np.clip(100 * rng.beta(1.3, 2.0, count), 0, 99))
    durations = rng.exponential(rng.choice([3.0, 40.0, 400.0], count, p=[0.6, 0.3, 0.1]))

    def income_bins(cells: int) -> sf.Bins:
        return sf.Bins([0, *np.geomspace(5_000, 1_000_000, cells).round().tolist()], outside="clamp", missing="drop")

    def age_bins(cells: int) -> sf.Integers:
        return sf.Integers(0, 99, width=-(-100 // cells), outside="other", missing="other")

    def duration_bins(cells: int) -> sf.Bins:
        return sf.Bins([0, *np.geomspace(1, 2_000, cells).round(2).tolist()], outside="other", missing="drop")

    return {"incomes": (incomes, income_bins), "ages": (ages, age_bins), "durations": (durations, duration_bins)}


def counted(values: Any, attribute: Any) -> tuple[Any, Any]:
    """The cell of every value, the extra one last, and the values as their interval speaks of them."""
    edges = np.array([a for a, _ in attribute.intervals] + [attribute.intervals[-1][1]], dtype=np.float64)
    if attribute.outside == "clamp":
        values = np.clip(values, edges[0], edges[-1])
        return np.clip(np.searchsorted(edges, values, "right") - 1, 0, len(edges) - 2), values
    cells = np.searchsorted(edges, values, "right") - 1
    return np.where((cells < 0) | (cells >= len(edges) - 1), len(edges) - 1, cells), values


def coverage(values: Any, attribute: Any, releases: int) -> dict[str, list[int]]:
    """By statistic [held, told] over releases and groups."""
    groups = np.repeat(np.arange(len(SIZES)), SIZES)
    cells, told = counted(values, attribute)
    domain = sf.Domain({"x": attribute, "g": len(SIZES)})
    counts = np.zeros(domain.shape, dtype=np.int64)
    np.add.at(counts, (cells, groups), 1)
    work = sf.stack(
        cells=sf.marginals(domain, sets=[("x", "g")]), sums=sf.sums(domain, "x", by="g"), whole=sf.sums(domain, "x")
    )
    plan = sf.plan(work, sf.approx(1, 1e-6), neighbours="add-remove")
    inside = [told[(groups == g) & (cells < len(attribute.intervals))] for g in range(len(SIZES))]
    truth: dict[str, list[float]] = {"mean": [float(v.mean()) for v in inside]}
    truth["sum"] = [*(float(v.sum()) for v in inside), float(np.concatenate(inside).sum())]
    for p in PROBABILITIES:
        truth[f"quantile {p}"] = [float(np.quantile(v, p, method="inverted_cdf")) for v in inside]
    held: dict[str, list[int]] = defaultdict(lambda: [0, 0])

    def add(name: str, low: Any, high: Any) -> None:
        for a, b, t in zip(low, high, truth[name], strict=True):
            if a is not None:
                held[name][0] += a - 1e-9 * abs(t) <= t <= b + 1e-9 * abs(t)
                held[name][1] += 1

    for _ in range(releases):
        release = sf.release(plan, sf.Histogram(counts), ledger=None)
        means = release.mean("x", by="g")
        add("mean", means["low"], means["high"])
        ends = release.intervals()
        add("sum", ends.low[-len(SIZES) - 1 :], ends.high[-len(SIZES) - 1 :])
        found = release.quantiles("x", PROBABILITIES, by="g")
        for i, p in enumerate(PROBABILITIES):
            add(f"quantile {p}", found["low"][i :: len(PROBABILITIES)], found["high"][i :: len(PROBABILITIES)])
    return dict(held)


def main(releases: int) -> None:
    rng = np.random.default_rng(1)
    for name, (values, declare) in tables(rng).items():
        for cells in (13, 40):
            for what, (good, all_) in coverage(values, declare(cells), releases).items():
                print(f"{name:10} {cells:3} cells  {what:14} {good / max(all_, 1):.3f} of {all_:,}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500)
