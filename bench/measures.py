"""Sums of measures: prices against brute force, plans against the bound of the curve, intervals, regression.

    OPENBLAS_NUM_THREADS=1 python bench/measures.py price [10000] | plans | coverage [2000] | counting [10000000] |
        regression [500] | adassp [200] | clip [20] | lorenz [1000] | drawn [400] [FIRST] |
        knots | joint [100] | joint-errors [30] | joint-coverage [50] | laplace

Foreign tables are in measures_foreign.py. Seeds are those printed. CPU seconds are `time.process_time`, one thread,
modules loaded.
"""

from __future__ import annotations

import math
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import numpy as np
import pandas as pd

import sfumato as sf
from sfumato.curator.rows import readers
from sfumato.curator.rows.sources import open_source
from sfumato.curator.rows.sums import asked_sums
from sfumato.operators import Block, Dense

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.drawn_measures import wrongs
from support.same_column import drawn_price
from support.shares import errs

T = TypeVar("T")


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


def _whole_sums(path: Path, ranges: dict[str, tuple[float, float]], pairs: Sequence[str]) -> str:
    """SQL of nine sums of whole numbers by group: places of 2^30 and their products, as no plan counts them."""
    places = ", ".join(
        f"CASE WHEN {v} > {low} AND {v} < {high} THEN CAST(floor(({v} - ({low})) * {2**30 / (high - low)!r} + 0.5) AS "
        f"BIGINT) WHEN {v} >= {high} THEN {2**30} ELSE 0 END AS t{v}"
        for v, (low, high) in ranges.items()
    )
    sums = [f"sum(t{v})" for v in ranges] + [f"sum((t{v} * t{w} + {2**29}) >> 30)" for v, w in pairs]
    return f"SELECT g, count(*), {', '.join(sums)} FROM (SELECT g, {places} FROM '{path}') GROUP BY g"


def _apply(domain: sf.Domain, block: Any, tables: dict[tuple[int, ...], Any]) -> Any:
    axes = [domain.grid.axis(a) for a in block.attributes]
    own = tuple(sorted(axes))
    return block.apply(np.ascontiguousarray(tables[own].transpose([own.index(a) for a in axes])))


def counting(rows: int) -> None:
    """Three measures by 500 groups from a Parquet file of so many rows: what sf.moments counts, as rows are read and of
    records that are kept, and the same sums by DuckDB's own GROUP BY, in doubles and in whole numbers. One thread each;
    the least of five runs that take turns."""
    rng = np.random.default_rng([153, rows])
    numbers = {"x": rng.gamma(2, 1e4, rows).round(2), "y": rng.normal(50, 20, rows).round(1), "z": rng.random(rows)}
    frame = pd.DataFrame({"g": rng.integers(1, 501, rows), **numbers})
    domain = sf.Domain(
        {"g": sf.Integers(1, 500, outside="clamp", missing="other")},
        measures={"x": sf.Measure(0, 1e5), "y": sf.Measure(-50, 150), "z": sf.Measure(0, 1)},
    )
    plan = sf.plan(sf.moments(domain, list("xyz"), by="g"), sf.gdp(1), neighbours="add-remove")
    sets = sorted({tuple(sorted(map(domain.grid.axis, b.attributes))) for b in plan.strategy.blocks})
    maps = [b.lowered() for b in plan.strategy.blocks]
    asked = asked_sums(domain.grid, maps)
    readers.SETTINGS["threads"] = "1"
    plain = [f"sum({v})" for v in "xyz"] + [f"sum({v} * {w})" for v, w in ("xx", "yy", "zz", "xy", "xz", "yz")]
    known = " AND ".join(f"{v} IS NOT NULL" for v in "xyz")
    counts = [f"count({v})" for v in "xyz"] + [f"count(*) FILTER ({known})"]
    least: dict[str, list[float]] = {}

    def timed(what: str, action: Callable[[], T]) -> T:
        clocks = (time.process_time, time.perf_counter)
        start = [clock() for clock in clocks]
        found = action()
        took = [clock() - began for clock, began in zip(clocks, start, strict=True)]
        least[what] = [min(pair) for pair in zip(took, least.get(what, took), strict=True)]
        return found

    with tempfile.TemporaryDirectory() as folder, duckdb.connect(config={"threads": "1"}) as connection:
        path = Path(folder) / "t.parquet"
        frame.to_parquet(path, index=False)
        del frame, numbers
        ask = f"SELECT g, count(*), {{}} FROM '{path}' GROUP BY g"
        whole = _whole_sums(path, {"x": (0, 1e5), "y": (-50, 150), "z": (0, 1)}, ("xx", "yy", "zz", "xy", "xz", "yz"))
        for _ in range(5):
            timed("sums", lambda: connection.execute(ask.format(", ".join(plain))).fetchall())
            timed("whole sums", lambda: connection.execute(whole).fetchall())
            timed("sums and counts", lambda: connection.execute(ask.format(", ".join(plain + counts))).fetchall())
            opened = timed("read and encoded", lambda: open_source(path, domain))
            found = timed("counted", lambda held=opened: dict(held.shared(sets)))
            assert found.keys() == set(sets)
            del opened
            summed = timed("summed as read", lambda: dict(open_source(path, domain, asked=asked).shared(sets)))
            assert all((_apply(domain, m, found) == _apply(domain, m, summed)).all() for m in maps), (
                "the two ways differ"
            )
    least["kept and counted"] = [sum(both) for both in zip(least["read and encoded"], least["counted"], strict=True)]
    print(f"{rows:,} rows; one thread, least of five: CPU-s, seconds")
    for what, took in least.items():
        of = " ".join(f"{a / b:5.2f}" for a, b in zip(took, least["sums"], strict=True))
        print(f"{what:16} {took[0]:7.3f} {took[1]:7.3f}   {of} of DuckDB's sums", flush=True)


def _drawn(law: str) -> tuple[pd.DataFrame, sf.Domain]:
    """A table in groups of 30 to 2,000 records, of three measures that go with each other."""
    rng = np.random.default_rng(151)
    sizes = [30, 100, 400, 2_000]
    group = np.repeat(np.arange(len(sizes)), sizes)
    n = len(group)
    a = rng.gamma(2, 10_000, n) if law == "gamma" else np.exp(rng.normal(9, 1.2, n))
    b = a / 3_000 + rng.normal(20, 8, n)
    y = 0.5 * a - 200 * b + (rng.normal(0, 8_000, n) if law == "gamma" else 5_000 * rng.standard_t(2, n))
    domain = sf.Domain(
        {"g": sf.Integers(0, len(sizes) - 1, outside="drop", missing="drop")},
        measures={"a": sf.Measure(0, 100_000), "b": sf.Measure(-20, 80), "y": sf.Measure(-50_000, 100_000)},
    )
    return pd.DataFrame({"g": group, "a": a, "b": b, "y": y}), domain


def _least_squares(frame: pd.DataFrame, domain: sf.Domain, xs: list[str]) -> list[float]:
    """Coefficients and R² of the numbers, cut to the declared ranges."""
    ranges = {n: (float(m.low), float(m.high)) for n in ("y", *xs) if isinstance(m := domain[n], sf.Measure)}
    kept = {n: frame[n].clip(*ends).to_numpy() for n, ends in ranges.items()}
    x = np.column_stack([np.ones(len(frame)), *(kept[n] for n in xs)])
    beta = np.linalg.lstsq(x, kept["y"], rcond=None)[0]
    return [*beta.tolist(), 1 - float(np.var(kept["y"] - x @ beta) / np.var(kept["y"]))]


def regression(count: int) -> None:
    """How often intervals of coefficients and R² hold, by group; two laws, one heavy-tailed.

    An interval without bounds, or from 0 to 1 of R², holds; beside it, of those with bounds how many hold, of how many.
    """
    for law in ("gamma", "heavy"):
        frame, domain = _drawn(law)
        for budget in (sf.gdp(3),):
            plan = sf.plan(sf.moments(domain, ["y", "a", "b"], by="g"), budget, neighbours="add-remove")
            for xs in (["a"], ["a", "b"]):
                truth = [v for _, own in frame.groupby("g") for v in _least_squares(own, domain, xs)]
                terms = ["constant", *xs, "R2"]
                held = np.zeros((len(truth), 3), dtype=int)
                start = time.process_time()
                for _ in range(count):
                    found = sf.release(plan, frame, ledger=None).regression("y", xs, by="g")
                    for i, (low, high) in enumerate(zip(found["low"], found["high"], strict=True)):
                        if "too few" not in found["note"][i]:
                            bounds = found["value"][i] is not None
                            held[i] += (1, not bounds or low <= truth[i] <= high, bounds)
                seconds = (time.process_time() - start) / count
                for i, term in enumerate(terms):
                    told = " ".join(
                        f"{b / a:.3f} ({1 - (a - b) / max(c, 1):.3f} of {c})" if a else "-"
                        for a, b, c in held[i :: len(terms)].tolist()
                    )
                    print(f"{law:6} {budget!r:.12} y on {len(xs)}: {term:9} groups of 30, 100, 400, 2,000: {told}")
                print(
                    f"  pooled {held[:, 1].sum() / held[:, 0].sum():.4f} of {held[:, 0].sum():,}; {seconds:.2f} CPU-s",
                    flush=True,
                )


def _adassp(x: Any, y: Any, epsilon: float, delta: float, rng: np.random.Generator) -> Any:
    """Sufficient statistics with a ridge that is chosen by a third of the budget [Wang, UAI 2018, algorithm 2].

    x: (n, d) with rows of a length of at most root d; y: (n,) between -1 and 1. Failure probability .05.
    """
    d = x.shape[1]
    largest, log = float(d), np.log(6 / delta)
    third = epsilon / 3
    least = np.linalg.eigvalsh(x.T @ x)[0]
    least = max(least + np.sqrt(log) / third * largest * rng.standard_normal() - log / third * largest, 0.0)
    ridge = max(0.0, np.sqrt(d * log * np.log(2 * d**2 / 0.05)) * largest / third - least)
    upper = np.triu(rng.standard_normal((d, d)))
    noise = upper + np.triu(upper, 1).T
    squares = x.T @ x + np.sqrt(log) * largest / third * noise
    products = x.T @ y + np.sqrt(log) * np.sqrt(largest) / third * rng.standard_normal(d)
    return np.linalg.solve(squares + ridge * np.eye(d), products)


def _split_statistics(x: Any, y: Any, multiplier: float, rng: np.random.Generator) -> Any:
    """Sufficient statistics, each with an equal share of the budget; the first column of x is ones, the rest within 1.

    Every count, sum, square and product of numbers within 1 changes by 1 at most, so each has the noise of all of them.
    """
    whole = np.column_stack([x, y])
    size = whole.shape[1]
    places = [(i, j) for i in range(size) for j in range(i + 1)]
    moments = whole.T @ whole
    for i, j in places:
        moments[i, j] += multiplier * math.sqrt(len(places)) * rng.standard_normal()
        moments[j, i] = moments[i, j]
    return np.linalg.solve(moments[:-1, :-1], moments[:-1, -1])


def adassp(count: int) -> None:
    """Errors of coefficients of three measures of 10,000 records at epsilon 1, delta 1e-6, beside AdaSSP's and those of
    sufficient statistics with equal shares of the budget, at the same Gaussian noise multiplier.

    In units of half a range: the root of the mean of all coefficients' squared errors, and of the median.
    """
    rng = np.random.default_rng(152)
    frame, domain = _drawn("gamma")
    frame = pd.concat([frame] * 4).sample(10_000, random_state=1, replace=True).drop(columns="g")
    domain = sf.Domain({}, measures={n: domain[n] for n in ("a", "b", "y")})  # type: ignore[arg-type]
    measures = {n: m for n in ("a", "b", "y") if isinstance(m := domain[n], sf.Measure)}
    middle = {n: (float(m.low) + float(m.high)) / 2 for n, m in measures.items()}
    half = {n: (float(m.high) - float(m.low)) / 2 for n, m in measures.items()}
    unit = {n: ((frame[n] - middle[n]) / half[n]).clip(-1, 1).to_numpy() for n in measures}
    x = np.column_stack([np.ones(len(frame)), unit["a"], unit["b"]])
    truth = np.linalg.lstsq(x, unit["y"], rcond=None)[0]
    plan = sf.plan(sf.moments(domain, ["y", "a", "b"]), sf.approx(1, "1e-6"), neighbours="add-remove")
    ours: list[Any] = []
    for _ in range(count):
        found = sf.release(plan, frame, ledger=None).regression("y", ["a", "b"])
        constant, *slopes = (np.nan if v is None else v for v in found["value"][:3])
        own = [v * half[n] / half["y"] for n, v in zip("ab", slopes, strict=True)]
        level = constant + sum(v * middle[n] for n, v in zip("ab", slopes, strict=True)) - middle["y"]
        ours.append([level / half["y"], *own])
    theirs = [_adassp(x, unit["y"], 1.0, 1e-6, rng) for _ in range(count)]
    multiplier = math.sqrt(float(plan.noise.variance) / float(plan.sensitivity.value))
    shared = [_split_statistics(x, unit["y"], multiplier, rng) for _ in range(10 * count)]
    for name, found in (("moments", ours), ("split", shared), ("AdaSSP", theirs), ("zero", [np.zeros(3)])):
        off = ((np.array(found) - truth) ** 2).sum(axis=1)
        lost = np.isnan(off).sum()
        print(f"{name:8} rms {np.sqrt(np.nanmean(off)):.4f}, median {np.sqrt(np.nanmedian(off)):.4f}, not told {lost}")


def erring(plan: sf.Plan, row: Any, n: int) -> float:
    """The variance of noise on the sum of a row over the cells of x, over n^2."""
    block = Block((("x",),), (Dense(np.append(row, 0.0)[None, :]),))
    return float(plan.strategy.row_powers(block, 2).max() * plan.noise.variance) / n**2


def best_in_hindsight(x: np.ndarray[Any, Any], unit: sf.Plan) -> float:
    """The root mean square error of the best fixed cut, of cuts an eighth of an octave apart, each with all of a plan
    for a range of 1."""
    cuts = 2.0 ** np.arange(math.log2(x.max()) - 16, math.log2(x.max()) + 1 / 8, 1 / 8)
    means = [float(np.minimum(x, z).mean()) for z in cuts]
    rows = [np.array([0.0, 0.5, 1.0]) - m / z for z, m in zip(cuts, means, strict=True)]
    off = [float(x.mean()) - m for m in means]
    return min(math.sqrt(erring(unit, r, len(x)) * z**2 + b**2) for z, r, b in zip(cuts, rows, off, strict=True))


def _best_knot(x: np.ndarray[Any, Any], plan: sf.Plan, measure: sf.Measure) -> float:
    """The same of the best knot, had it been known, from the sums of a plan for all of them."""
    found: list[float] = []
    for z in (*measure.knots, measure.high):
        m = float(np.minimum(x, float(z)).mean())
        noise = erring(plan, np.array(measure.clipped(float(z))) - m, len(x))
        found.append(math.sqrt(noise + (float(x.mean()) - m) ** 2))
    return min(found)


_TAILS: dict[str, Callable[[np.random.Generator, int], Any]] = {
    "log-normal": lambda rng, n: np.exp(rng.normal(10, 1.5, n)),
    "Pareto 1.5": lambda rng, n: 5_000 * (1 - rng.random(n)) ** (-1 / 1.5),
}


def clip(count: int) -> None:
    """The cut that is chosen after the release against the best fixed one, knots doubling; how often intervals hold.

    So many tables of each law and size, 15 releases of each; the root of the mean over tables of squared ratios.
    """
    measure = sf.Measure(0, 2**24, knots=[2**k for k in range(9, 24)])
    domain = sf.Domain({}, measures={"x": measure})
    ratios: list[float] = []
    held, total = 0, 0
    for mu in ("0.2", "0.5", "1"):
        budget = sf.gdp(mu)
        unit = sf.plan(sf.means(sf.Domain({}, measures={"x": sf.Measure(0, 1)}), "x"), budget, neighbours="add-remove")
        plan = sf.plan(sf.means(domain, "x", clip="best"), budget, neighbours="add-remove")
        for name, law in _TAILS.items():
            for n in (2_000, 5_000, 20_000, 100_000):
                squares, known, inside = [], [], 0
                for table in range(count):
                    x = np.minimum(law(np.random.default_rng([152, n, table]), n), 2.0**24)
                    best = best_in_hindsight(x, unit)
                    known.append((_best_knot(x, plan, measure) / best) ** 2)
                    for _ in range(15):
                        release = sf.release(plan, pd.DataFrame({"x": x}), ledger=None)
                        row = release.mean("x", clip="best").rows()[0]
                        squares.append(((float(row["mean x"]) - float(x.mean())) / best) ** 2)
                        inside += row["low"] <= x.mean() <= row["high"]
                ratios.append(math.sqrt(np.mean(squares)))
                held, total = held + inside, total + len(squares)
                print(
                    f"{name:10} n {n:7,} gdp {mu:3}: {ratios[-1]:.2f} times the best cut in hindsight, the best knot "
                    f"{math.sqrt(np.mean(known)):.2f}; {inside / len(squares):.3f} of intervals hold",
                    flush=True,
                )
    print(f"mean {np.mean(ratios):.3f}, at most {max(ratios):.2f}; {held / total:.4f} of {total:,} intervals hold")


_KNOTS = [1_000 * 2**k for k in range(9)]
_TOP = 1_000 * 2**9


def _spread(rng: np.random.Generator, n: int) -> dict[str, Any]:
    """Numbers of several laws; "at knots" and "at bends" are at the ends of what sums at the knots leave possible."""
    x = np.exp(rng.normal(10, 0.9, n))
    ends = np.array([0, *_KNOTS, _TOP], dtype=float)
    kept = x.clip(0, _TOP - 1)
    at = np.searchsorted(ends, kept, side="right") - 1
    share = (kept - ends[at]) / (ends[at + 1] - ends[at])
    odd = at + 1 - at % 2  # every second piece, in the middle of which all numbers lie
    return {
        "log-normal": x,
        "Pareto 1.5": 8_000 * (1 - rng.random(n)) ** (-1 / 1.5),
        "zeros": np.where(rng.random(n) < 0.6, 0, x),
        "equal": np.full(n, 20_500.0),
        "at knots": ends[at + (rng.random(n) < share)],
        "at bends": (ends[np.minimum(odd, len(ends) - 2)] + ends[np.minimum(odd + 1, len(ends) - 1)]) / 2,
    }


def gini(x: Any) -> float:
    ranks = 2 * np.arange(1, len(x) + 1) - len(x) - 1
    return float(ranks @ np.sort(x) / (len(x) * x.sum()))


def share_of(x: Any, p: float) -> float:
    whole = np.append(0, np.cumsum(np.sort(x)))
    return float(np.interp(p * len(x), np.arange(len(x) + 1), whole) / whole[-1])


def lorenz(count: int) -> None:
    """How often intervals of Gini indices and Lorenz curves hold, of six laws by 100, 1,000 and 10,000 records.

    Seed [161]; noise by no seed. Beside it the mean width, and between what exact sums would leave the index.
    """
    rng = np.random.default_rng([161])
    sizes, places = [100, 1_000, 10_000], (0.1, 0.5, 0.9, 0.99)
    frames = [pd.DataFrame({"law": law, "size": str(n), "x": x}) for n in sizes for law, x in _spread(rng, n).items()]
    frame = pd.concat(frames)
    laws = list(_spread(rng, 10))
    domain = sf.Domain(
        {
            "law": sf.Categories(laws, outside="drop", missing="drop"),
            "size": sf.Categories(list(map(str, sizes)), outside="drop", missing="drop"),
        },
        measures={"x": sf.Measure(0, _TOP, knots=_KNOTS)},
    )
    cut = frame.assign(x=frame.x.clip(0, _TOP))
    exact: dict[Any, dict[Any, float]] = {
        key: {"gini": gini(own.x.to_numpy())} | {p: share_of(own.x.to_numpy(), p) for p in places}
        for key, own in cut.groupby(["law", "size"])
    }
    total, inside = 0, 0
    for mu in ("0.1", "0.5", "2"):
        plan = sf.plan(sf.means(domain, "x", clip="best", by=["law", "size"]), sf.gdp(mu), neighbours="add-remove")
        held: dict[tuple[str, str, str], list[float]] = {}

        def judge(row: dict[str, Any], what: str, true: float) -> None:
            if row["low"] is not None:
                own = held.setdefault((row["law"], row["size"], what), [0, 0, 0])  # noqa: B023
                inside = row["low"] - 1e-12 <= true <= row["high"] + 1e-12  # of indices that are exactly 0
                own[:] = own[0] + 1, own[1] + inside, own[2] + row["high"] - row["low"]

        for _ in range(count):
            release = sf.release(plan, frame, ledger=None)
            for row in release.gini("x", by=["law", "size"]).rows():
                judge(row, "gini", exact[row["law"], row["size"]]["gini"])
            for row in release.lorenz("x", places, by=["law", "size"]).rows():
                judge(row, f"lorenz {row['probability']}", exact[row["law"], row["size"]][row["probability"]])
        for law in laws:
            for n in sizes:
                told = "  ".join(
                    f"{what}: {b / a:.4f}, width {c / a:.3f}"
                    for (one, two, what), (a, b, c) in held.items()
                    if (one, two) == (law, str(n))
                )
                print(f"gdp {mu:4} {law:10} {n:6,}: {told or '-'}", flush=True)
        total, inside = total + sum(v[0] for v in held.values()), inside + sum(v[1] for v in held.values())
        worst = min((v[1] / v[0], k) for k, v in held.items() if v[0] >= count / 2)
        print(f"gdp {mu}: lowest {worst}", flush=True)
    print(f"{inside / total:.4f} of {total:,.0f} hold", flush=True)


def knots() -> None:
    """Plans of measures whose knots lie at no simple fractions of the range: over the bound of the curve, CPU-s."""
    x = sf.Measure(0, 200_000, knots=[7_301, 20_011, 51_007])
    y = sf.Measure(0, 1, knots=[0.1003, 0.3001, 0.6507])
    z = sf.Measure(0, 8_000_000, knots=[1_000 * 2**k + 7 for k in range(12)])

    def by(groups: int, **measures: sf.Measure) -> sf.Domain:
        return sf.Domain({"g": sf.Integers(1, groups, outside="clamp", missing="other")}, measures=measures)

    sf.plan(sf.means(by(3, x=sf.Measure(0, 1)), "x"), sf.gdp(1), neighbours="add-remove")  # modules are loaded
    pair, wide = by(3, x=x, y=y), by(3, z=z)
    best = sf.means(wide, "z", by="g", clip="best")
    for what, work, relation in (
        ("moments of two, three knots each, by 3 groups", sf.moments(pair, ["x", "y"], by="g"), "add-remove"),
        ("the same without groups", sf.moments(pair, ["x", "y"]), "add-remove"),
        ("twelve knots, clip best, by 3", best, "add-remove"),
        ("the same and moments", sf.stack(sf.moments(wide, ["z"], by="g"), best), "add-remove"),
        (
            "gaps of one, moments of two",
            sf.stack(sf.gaps(pair, "x", at=7301), sf.moments(pair, ["x", "y"])),
            "add-remove",
        ),
        ("twelve knots, clip best, by 3", best, "replace-one"),
        ("moments of one, three knots, by 50", sf.moments(by(50, x=x), ["x"], by="g"), "replace-one"),
    ):
        start = time.process_time()
        plan = sf.plan(work, sf.gdp(1), neighbours=relation)
        took = time.process_time() - start
        ratio = f"{plan.objective_value / plan.lower_bound:.5f}" if plan.lower_bound else "no bound"
        print(f"{what}, {relation}: {ratio}, {took:.2f} CPU-s", flush=True)


def drawn(count: int, first: int = 0) -> None:
    """Drawn declarations from plan to every answer, seeds [189, first] and on: what is wrong, and what was refused."""
    start = time.process_time()
    found, told = wrongs(int(first), count, lambda line: print(line[:300], flush=True))
    for what, times in told.most_common():
        print(f"{times:6,} {what}")
    print(f"{len(found)} wrong in {count:,} draws; {(time.process_time() - start) / count:.2f} CPU-s each")


def joint(count: int) -> None:
    """Prices of drawn plans of a column that is counted in classes and summed."""
    low, most, over = 0, 0.0, 0.0
    for seed in range(count):
        stated, found, above = drawn_price(1_000 + seed)
        low, most, over = low + (stated < found), max(most, stated / found), max(over, above)
    print(
        f"{count} drawn plans, seeds [186, 1000] and on: {low} priced too low, at most {most:.4f} times what a record "
        f"adds, at most {over:.4f} times the bound",
        flush=True,
    )


def joint_errors(most: int) -> None:
    """Their errors, up to so many classes, beside those of a copy of the column, of which the plan knows nothing."""
    shapes: dict[str, Callable[[sf.Domain], sf.Workload]] = {
        "means by class": lambda d: sf.means(d, "amount", by="pay"),
        "moments by class": lambda d: sf.moments(d, "amount", by="pay"),
        "prefix and sum": lambda d: sf.stack(sf.prefix(d, "pay"), sf.sums(d, "amount")),
        "prefix and means by class": lambda d: sf.stack(sf.prefix(d, "pay"), sf.means(d, "amount", by="pay")),
        "histogram and moments": lambda d: sf.stack(sf.identity(d, "pay"), sf.moments(d, "amount")),
    }
    for classes in (n for n in (3, 10, 30) if n <= most):
        rng = np.random.default_rng([186, classes])
        uneven = [0.0, *np.sort(rng.uniform(0, 100, classes - 1)).round(4).tolist(), 100.0]
        for what, edges in (("even", np.linspace(0, 100, classes + 1).tolist()), ("drawn", uneven)):
            bins = sf.Bins(edges, outside="clamp", missing="other")
            one = sf.Domain({"pay": bins}, measures={"amount": sf.Measure(0, 100, column="pay", knots=edges[1:-1])})
            plain = sf.Domain({"pay": bins}, measures={"amount": sf.Measure(0, 100, column="pay")})
            two = sf.Domain({"pay": bins}, measures={"amount": sf.Measure(0, 100)})
            for name, make in shapes.items():
                for relation in ("add-remove", "replace-one") if classes < 30 else ("add-remove",):
                    start = time.process_time()
                    plan = sf.plan(make(one), sf.gdp(1), neighbours=relation)  # type: ignore[call-overload]
                    seconds = time.process_time() - start
                    others = [sf.plan(make(d), sf.gdp(1), neighbours=relation) for d in (two, plain)]  # type: ignore[call-overload]
                    bound = f"{plan.objective_value / plan.lower_bound:.4f}" if plan.lower_bound else "none"
                    print(
                        f"{name}, {classes} {what} classes, {relation}: {plan.objective_value:.3f}, without knots "
                        f"{others[1].objective_value:.3f}, a copy {others[0].objective_value:.3f} "
                        f"({others[0].objective_value / plan.objective_value:.2f}); over its bound {bound}; "
                        f"{seconds:.1f} CPU-s",
                        flush=True,
                    )


def joint_coverage(count: int) -> None:
    """How often intervals of means by class hold, in so many releases of each of 20 drawn tables."""
    held = [0, 0]
    for seed in range(20):
        rng = np.random.default_rng([186, 1, seed])
        n = int(rng.integers(300, 3_000))
        pay = np.where(rng.random(n) < 0.1, np.nan, np.exp(rng.normal(3, float(rng.choice([0.5, 1.2])), n)))
        frame = pd.DataFrame({"pay": pay, "sex": rng.integers(0, 2, n)})
        edges = [0, 10, 20, 40, 100]
        sex = sf.Integers(0, 1, outside="clamp", missing="other")
        domain = sf.Domain(
            {"pay": sf.Bins(edges, outside="clamp", missing="other"), "sex": sex},
            measures={"amount": sf.Measure(0, 100, column="pay", knots=edges[1:-1])},
        )
        work = sf.stack(sf.means(domain, "amount", by=["pay", "sex"]), sf.prefix(domain, "pay"))
        plan = sf.plan(work, sf.gdp("0.5"), neighbours="add-remove" if seed % 2 else "replace-one")
        cut = frame.assign(pay=frame.pay.clip(0, 100))
        cut["cell"] = np.minimum(np.searchsorted(edges, cut.pay, side="right") - 1, 3)
        truth = cut[cut.pay.notna()].groupby(["cell", "sex"]).pay.agg(["mean", "size"])
        for _ in range(count):
            found = sf.release(plan, frame, ledger=None).mean("amount", by=["pay", "sex"])
            for i, (low_end, high_end) in enumerate(zip(found["low"], found["high"], strict=True)):
                at = (i // 3, i % 3)
                if at in truth.index and truth["size"][at] >= 30 and low_end is not None:
                    held[0] += 1
                    held[1] += bool(low_end - 1e-9 <= truth["mean"][at] <= high_end + 1e-9)
    print(f"{held[0]:,} intervals of means by class and sex, seeds [186, 1, 0 to 19]: {held[1] / held[0]:.4f} hold")


RUNS: dict[str, tuple[Callable[..., None], int]] = {
    "drawn": (drawn, 400),
    "joint": (joint, 100),
    "joint-errors": (joint_errors, 30),
    "joint-coverage": (joint_coverage, 50),
    "lorenz": (lorenz, 1_000),
    "price": (price, 10_000),
    "coverage": (coverage, 2_000),
    "counting": (counting, 10_000_000),
    "clip": (clip, 20),
    "regression": (regression, 500),
    "adassp": (adassp, 200),
}


def _over_all_cells(block: Any, sizes: dict[str, int]) -> Any:
    """(rows, all cells) of a block, with the attributes in the order of the domain."""
    given = [a for group in block.groups for a in group]
    table = np.asarray(block.operator.dense(), dtype=np.float64).reshape(-1, *(sizes[a] for a in given))
    beside = [a for a in sizes if a not in given]
    table = table.reshape(*table.shape, *(1 for _ in beside))
    table = table.transpose([0, *(1 + [*given, *beside].index(a) for a in sizes)])
    return np.broadcast_to(table, (len(table), *sizes.values())).reshape(len(table), -1)


def laplace() -> None:
    """Standard errors by least squares over all tables of sums under Laplace noise, over those of one table."""
    domain = sf.Domain({"g": 5, "s": 4, "h": 3}, measures={"x": sf.Measure(0, 1)})
    sizes = dict(domain.grid.sizes())

    def by(*groups: list[str]) -> sf.Workload:
        return sf.stack(*(sf.means(domain, "x", by=g) for g in groups))

    mixed = sf.stack(sf.moments(domain, "x", by="g"), by(["s", "h"]))
    for work in (by([], ["g"], ["s"]), by(["g", "s"], ["g", "h"], ["s", "h"]), by(["g"], ["s"], ["h"]), mixed):
        plan = sf.plan(work, sf.pure(1), neighbours="add-remove")
        back = np.linalg.pinv(np.concatenate([_over_all_cells(b, sizes) for b in plan.strategy.blocks]) * 2**24)
        for entry in plan.entries:
            rows = _over_all_cells(entry.item.block, sizes) @ back
            ratio = math.sqrt(float((rows**2).sum(axis=1).mean()) / float(entry.powers.mean()))
            print(f"{len(plan.strategy.parts)} tables: {entry.item.part:28} {ratio:.3f}")


def main() -> None:
    """One of the benches."""
    what, *rest = sys.argv[1:] or ["plans"]
    if what in ("plans", "knots", "laplace"):
        {"plans": plans, "knots": knots, "laplace": laplace}[what]()
        return
    run, count = RUNS[what]
    run(int(rest[0]) if rest else count, *rest[1:])


if __name__ == "__main__":
    main()
