"""Sums of measures: prices against brute force, plans against the bound of the curve, coverage of intervals.

    OPENBLAS_NUM_THREADS=1 python bench/measures.py price [10000] | plans | coverage [2000] | counting [10000000]

Seeds are those printed. CPU seconds are `time.process_time`, one thread, modules loaded.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import numpy as np
import pandas as pd

import sfumato as sf
from sfumato.curator.rows import readers
from sfumato.curator.rows.sources import open_source

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.shares import errs

T = TypeVar("T")


def price(count: int) -> None:
    """Prices of drawn maps, held against records: how many are too low."""
    low, most = 0, 0.0
    for first in range(0, count, 100):
        found, largest = errs(100, 1_000 + first)
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


def counting(rows: int) -> None:
    """Three measures by 500 groups from a Parquet file of so many rows: what sf.moments counts, and the same sums by
    DuckDB's own GROUP BY, in doubles. One thread each; the least of three runs that take turns."""
    rng = np.random.default_rng([153, rows])
    numbers = {"x": rng.gamma(2, 1e4, rows).round(2), "y": rng.normal(50, 20, rows).round(1), "z": rng.random(rows)}
    frame = pd.DataFrame({"g": rng.integers(1, 501, rows), **numbers})
    domain = sf.Domain(
        {"g": sf.Integers(1, 500, outside="clamp", missing="other")},
        measures={"x": sf.Measure(0, 1e5), "y": sf.Measure(-50, 150), "z": sf.Measure(0, 1)},
    )
    plan = sf.plan(sf.moments(domain, list("xyz"), by="g"), sf.gdp(1), neighbours="add-remove")
    sets = sorted({tuple(sorted(map(domain.grid.axis, b.attributes))) for b in plan.strategy.blocks})
    readers.SETTINGS["threads"] = "1"
    plain = [f"sum({v})" for v in "xyz"] + [f"sum({v} * {w})" for v, w in ("xx", "yy", "zz", "xy", "xz", "yz")]
    known = " AND ".join(f"{v} IS NOT NULL" for v in "xyz")
    counts = [f"count({v})" for v in "xyz"] + [f"count(*) FILTER ({known})"]
    least: dict[str, float] = {}

    def timed(what: str, action: Callable[[], T]) -> T:
        start = time.process_time()
        found = action()
        least[what] = min(least.get(what, np.inf), time.process_time() - start)
        return found

    with tempfile.TemporaryDirectory() as folder, duckdb.connect(config={"threads": "1"}) as connection:
        path = Path(folder) / "t.parquet"
        frame.to_parquet(path, index=False)
        del frame, numbers
        ask = f"SELECT g, count(*), {{}} FROM '{path}' GROUP BY g"
        for _ in range(3):
            timed("sums", lambda: connection.execute(ask.format(", ".join(plain))).fetchall())
            timed("sums and counts", lambda: connection.execute(ask.format(", ".join(plain + counts))).fetchall())
            opened = timed("read and encoded", lambda: open_source(path, domain))
            found = timed("counted", lambda held=opened: dict(held.shared(sets)))
            assert found.keys() == set(sets)
            del opened
    print(f"{rows:,} rows; CPU-s, one thread, least of three")
    for what, took in least.items():
        print(f"{what:16} {took:7.3f}   {took / least['sums']:5.2f} of DuckDB's sums", flush=True)


def main() -> None:
    """One of the four."""
    what, *rest = sys.argv[1:] or ["plans"]
    if what == "plans":
        plans()
        return
    run, count = {"price": (price, 10_000), "coverage": (coverage, 2_000), "counting": (counting, 10_000_000)}[what]
    run(int(rest[0]) if rest else count)


if __name__ == "__main__":
    main()
