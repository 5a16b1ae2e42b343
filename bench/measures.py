"""Sums of measures: prices against brute force, plans against the bound of the curve, coverage of intervals.

    OPENBLAS_NUM_THREADS=1 python bench/measures.py price [10000] | plans | coverage [2000] | clip [500]

Seeds are those printed. CPU seconds are `time.process_time`, one thread, modules loaded.
"""

from __future__ import annotations

import math
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import sfumato as sf
from sfumato.operators import Block, Dense

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.shares import errs


def price(count: int) -> None:
    """Prices of drawn maps, every second hundred with knots, held against records: how many are too low."""
    low, most = 0, 0.0
    for first in range(0, count, 100):
        found, largest = errs(100, 1_000 + first, knots=first % 200 >= 100)
        low, most = low + found, max(most, largest)
        print(
            f"maps {first + 100:6,}: {low} priced too low; at most {most:.6f} times what some record adds", flush=True
        )


def plans() -> None:
    """Counts, sums and sums of squares by groups of a million different values: plan, release, answers."""
    rng = np.random.default_rng(136)
    n = 1_000_000
    frame = pd.DataFrame({"g": rng.integers(1, 51, n), "x": rng.permutation(n) / n * 1e5, "y": rng.gamma(2, 1e4, n)})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.parquet"
        frame.to_parquet(path)
        for groups in (1, 50):
            domain = sf.Domain(
                {"g": sf.Integers(1, 50, outside="clamp", missing="other")}, measures={"x": sf.Measure(0, 1e5)}
            )
            for what, relation in (("moments", "add-remove"), ("means", "add-remove"), ("moments", "replace-one")):
                by = "g" if groups > 1 else ()
                make = sf.moments if what == "moments" else sf.means
                start = time.process_time()
                plan = sf.plan(make(domain, "x", by=by), sf.gdp(1), neighbours=relation)
                middle = time.process_time()
                release = sf.release(plan, path, ledger=None)
                print(release.mean("x", by=by).rows()[0])
                if what == "moments":
                    release.variance("x", by=by)
                end = time.process_time()
                ratio = f"{plan.objective_value / plan.lower_bound:.5f}" if plan.lower_bound else "no bound"
                peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
                print(
                    f"{what} by {groups} groups, {relation}: {ratio}; plan {middle - start:.2f}, release and answers "
                    f"{end - middle:.2f} CPU-s; peak {peak:,.0f} MB",
                    flush=True,
                )


def coverage(count: int) -> None:
    """How often intervals hold the truth, of groups from 30 records on, by statistic; three laws, one heavy-tailed."""
    rng = np.random.default_rng(137)
    sizes = [30, 100, 400, 2_000]
    group = np.repeat(np.arange(len(sizes)), sizes)
    n = len(group)
    laws = {
        "gamma": rng.gamma(2, 10_000, n),
        "log-normal": np.exp(rng.normal(9, 1.2, n)),
        "bimodal": np.where(rng.random(n) < 0.3, rng.normal(70_000, 4_000, n), rng.normal(12_000, 3_000, n)),
    }
    for name, x in laws.items():
        y = 0.5 * x + rng.normal(0, 12_000, n)
        frame = pd.DataFrame({"g": group, "x": x, "y": y})
        domain = sf.Domain(
            {"g": sf.Integers(0, len(sizes) - 1, outside="clamp", missing="other")},
            measures={"x": sf.Measure(0, 100_000), "y": sf.Measure(-50_000, 100_000)},
        )
        kept: Any = frame.assign(x=frame.x.clip(0, 100_000), y=frame.y.clip(-50_000, 100_000)).groupby("g")
        for budget in (sf.gdp("0.5"), sf.gdp(3)):
            plan = sf.plan(sf.moments(domain, ["x", "y"], by="g"), budget, neighbours="add-remove")
            truth = {
                "mean": kept.x.mean(),
                "variance": kept.x.var(ddof=0),
                "correlation": kept[["x", "y"]].corr().iloc[0::2, 1],
            }
            held = {s: [[0, 0] for _ in sizes] for s in truth}
            for i in range(count):
                release = sf.release(plan, frame, ledger=None)
                found = {"mean": release.mean("x", by="g"), "variance": release.variance("x", by="g")}
                if i % 10 == 0:
                    found["correlation"] = release.correlation("x", "y", by="g")
                for s, lines in found.items():
                    for k in range(len(sizes)):
                        low, high = lines["low"][k], lines["high"][k]
                        if low is not None:
                            held[s][k][0] += 1
                            held[s][k][1] += bool(low <= truth[s].iloc[k] <= high)
            for s, cells in held.items():
                told = " ".join(f"{b / a:.3f}/{a}" if a else "-" for a, b in cells)
                print(f"{name:10} {budget!r:.12} {s:12} groups of {sizes}: {told}", flush=True)


def _best_in_hindsight(x: np.ndarray[Any, Any], budget: sf.Budget) -> tuple[float, float]:
    """(root mean square error of the best fixed cut, that cut), of cuts an eighth of an octave apart."""
    unit = sf.plan(sf.means(sf.Domain({}, measures={"x": sf.Measure(0, 1)}), "x"), budget, neighbours="add-remove")
    n, best = len(x), (math.inf, 0.0)
    for z in 2.0 ** np.arange(8, 24.01, 1 / 8):
        mean = float(np.minimum(x, z).mean())
        row = Block((("x",),), (Dense(np.array([[0.0, 0.5, 1.0, 0.0]]) - mean / z * np.array([[1.0, 1.0, 1.0, 0.0]])),))
        noise = float(unit.strategy.row_powers(row, 2).max() * unit.noise.variance) * (z / n) ** 2
        best = min(best, (math.sqrt(noise + (float(x.mean()) - mean) ** 2), float(z)))
    return best


def clip(count: int) -> None:
    """The cut that is chosen after the release against the best fixed one, knots doubling; how often intervals hold."""
    worst, held, total = 0.0, 0, 0
    for name in ("log-normal", "Pareto 1.5"):
        for n in (2_000, 20_000):
            rng = np.random.default_rng([152, n])
            x = np.exp(rng.normal(10, 1.5, n)) if name == "log-normal" else 5_000 * (1 - rng.random(n)) ** (-1 / 1.5)
            x = np.minimum(x, 2.0**24)
            knots = [2**k for k in range(9, 24)]
            domain = sf.Domain({}, measures={"x": sf.Measure(0, 2**24, knots=knots)})
            for mu in ("0.2", "1"):
                budget = sf.gdp(mu)
                plan = sf.plan(sf.means(domain, "x", clip="best"), budget, neighbours="add-remove")
                frame = pd.DataFrame({"x": x})
                found = [sf.release(plan, frame, ledger=None).mean("x", clip="best").rows()[0] for _ in range(count)]
                errors = np.array([r["mean x"] for r in found], dtype=float) - x.mean()
                best, cut = _best_in_hindsight(x, budget)
                inside = sum(r["low"] <= x.mean() <= r["high"] for r in found)
                ratio = float(np.sqrt((errors**2).mean())) / best
                worst, held, total = max(worst, ratio), held + inside, total + count
                width = np.median([r["high"] - r["low"] for r in found]) / x.mean()
                print(
                    f"{name:10} n {n:6,} gdp {mu:3}: {ratio:.2f} times the best cut in hindsight ({cut:,.0f}, erring "
                    f"{best / x.mean():.4f} of the mean); {inside / count:.3f} of intervals hold; width {width:.3f}",
                    flush=True,
                )
    print(f"at most {worst:.2f} times; {held / total:.4f} of {total:,} intervals hold")


def main() -> None:
    """One of the four."""
    what, *rest = sys.argv[1:] or ["plans"]
    {"price": price, "coverage": coverage, "clip": clip}[what](
        int(rest[0]) if rest else {"price": 10_000, "coverage": 2_000, "clip": 500}[what]
    ) if (what != "plans") else plans()


if __name__ == "__main__":
    main()
