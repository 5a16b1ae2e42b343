"""How often the intervals of means, sums and quantiles of binned numbers hold the truth of the values themselves.

Three tables of its own: incomes drawn log-normal with a Pareto tail in bins that widen, ages of whole years drawn as a
pyramid, durations drawn exponential with many short ones; by groups of 20,000, 5,000 and 1,000 records. Each in 13 and
in 40 cells. Values are drawn once (seed 1); every release is a whole one, with noise of its own.

    python bench/coverage.py [releases] [--epsilon E,E] [--csv FILE COLUMN GROUP LOW HIGH CELLS OUTSIDE]...

With --csv the tables are files instead: a column of numbers declared from LOW to HIGH, in cells that are "even",
"widening" (the finest around 0) or of "whole" numbers, within the groups of another column; OUTSIDE is "clamp" or
"other".

Of every statistic it prints the group that is held least often where it is told, in how many releases that was, and
which part of all groups and releases was told. "chance" is how likely so few would be of an interval that holds in
95 % of releases: of 500 the worst of twenty groups is by chance at .93. "right or blank" is the least share of releases
in which what is told of a group is right, or nothing is. A group that is told in few releases is one that noise made
large, so of these more are wrong. What is not told has a reason beside it, or the run ends.
"""

from __future__ import annotations

import argparse
import math
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import binom

import sfumato as sf

CELLS = (13, 40)
SIZES = (20_000, 5_000, 1_000)
PROBABILITIES = (0.1, 0.5, 0.9)


@dataclass(frozen=True)
class Table:
    """A value and a group of every record, and what declares a number of cells."""

    name: str
    values: Any
    groups: Any
    declare: Callable[[int], Any]


@dataclass
class Counted:
    """Of one statistic of one group: in how many releases it was told, and held the truth."""

    held: int = 0
    told: int = 0
    reasons: set[str] = field(default_factory=set)


def drawn() -> list[Table]:
    """The tables of its own."""
    rng = np.random.default_rng(1)
    count = sum(SIZES)
    groups = np.repeat(np.arange(len(SIZES)), SIZES)
    incomes = np.where(rng.random(count) < 0.95, rng.lognormal(10.2, 0.6, count), 80_000 * (1 + rng.pareto(1.8, count)))
    ages = np.floor(np.clip(100 * rng.beta(1.3, 2.0, count), 0, 99))
    durations = rng.exponential(rng.choice([3.0, 40.0, 400.0], count, p=[0.6, 0.3, 0.1]))

    def income_bins(cells: int) -> sf.Bins:
        return sf.Bins([0, *np.geomspace(5_000, 1_000_000, cells).round().tolist()], outside="clamp", missing="drop")

    def age_bins(cells: int) -> sf.Integers:
        return sf.Integers(0, 99, width=-(-100 // cells), outside="other", missing="other")

    def duration_bins(cells: int) -> sf.Bins:
        return sf.Bins([0, *np.geomspace(1, 2_000, cells).round(2).tolist()], outside="other", missing="drop")

    return [
        Table("incomes", incomes, groups, income_bins),
        Table("ages", ages, groups, age_bins),
        Table("durations", durations, groups, duration_bins),
    ]


def of_file(file: str, column: str, group: str, low: str, high: str, kind: str, outside: Any) -> Table:
    """A column of a file within the groups of another; rows that lack one of them are no rows."""
    found = pd.read_csv(file, usecols=[column, group]).dropna()
    least, most = float(low), float(high)

    def declare(cells: int) -> Any:
        if kind == "whole":
            width = math.ceil((most - least + 1) / cells)
            return sf.Integers(int(least), int(most), width=width, outside=outside, missing="drop")
        if kind == "even":
            edges = np.linspace(least, most, cells + 1)
        else:
            unit = (most - least) / 1_000
            edges = unit * np.sinh(np.linspace(np.arcsinh(least / unit), np.arcsinh(most / unit), cells + 1))
        return sf.Bins([least, *edges[1:-1].round(3).tolist(), most], outside=outside, missing="drop")

    values = found[column].to_numpy(dtype=np.float64)
    return Table(f"{column} by {group}", values, pd.factorize(found[group], sort=True)[0], declare)


def counted(values: Any, attribute: Any) -> tuple[Any, Any]:
    """The cell of every value, the extra one last, and the values as their interval speaks of them."""
    edges = np.array([a for a, _ in attribute.intervals] + [attribute.intervals[-1][1]], dtype=np.float64)
    last = edges[-1] - 1 if attribute.kind == "integer" else edges[-1]
    if attribute.outside == "clamp":
        values = np.clip(values, edges[0], last)
    cells = np.minimum(np.searchsorted(edges, values, "right") - 1, len(edges) - 2)
    return np.where((values < edges[0]) | (values > last), len(edges) - 1, cells), values


def coverage(table: Table, attribute: Any, epsilon: float, releases: int) -> dict[str, list[Counted]]:
    """By statistic what was held and told of every group."""
    groups = table.groups
    number = int(groups.max()) + 1
    cells, told = counted(table.values, attribute)
    domain = sf.Domain({"x": attribute, "g": number})
    counts = np.zeros(domain.shape, dtype=np.int64)
    np.add.at(counts, (cells, groups), 1)
    work = sf.stack(
        cells=sf.marginals(domain, sets=[("x", "g")]), sums=sf.sums(domain, "x", by="g"), whole=sf.sums(domain, "x")
    )
    plan = sf.plan(work, sf.approx(epsilon, 1e-6), neighbours="add-remove")
    inside = [told[(groups == g) & (cells < len(attribute.intervals))] for g in range(number)]
    truth: dict[str, list[float]] = {"mean": [float(v.mean()) if len(v) else math.nan for v in inside]}
    truth["sum"] = [*(float(v.sum()) for v in inside), float(np.concatenate(inside).sum())]
    for p in PROBABILITIES:
        truth[f"quantile {p}"] = [
            float(np.quantile(v, p, method="inverted_cdf")) if len(v) else math.nan for v in inside
        ]
    found: dict[str, list[Counted]] = defaultdict(lambda: [Counted() for _ in range(number + 1)])

    def add(name: str, low: Any, high: Any, notes: Any) -> None:
        for i, (a, b, t, note) in enumerate(zip(low, high, truth[name], notes, strict=True)):
            here = found[name][i]
            if a is None or not np.isfinite([a, b]).all():
                here.reasons.add(re.sub(r"-?[0-9][0-9,.]*", "#", str(note)))
                assert note, f"{name} of group {i} is not told, and nothing says why"
            else:
                here.held += bool(a - 1e-9 * abs(t) <= t <= b + 1e-9 * abs(t))
                here.told += 1

    for _ in range(releases):
        release = sf.release(plan, sf.Histogram(counts), ledger=None)
        means = release.mean("x", by="g")
        add("mean", means["low"], means["high"], means["note"])
        ends = release.intervals()
        add("sum", ends.low[-number - 1 :], ends.high[-number - 1 :], [""] * (number + 1))
        quantiles = release.quantiles("x", PROBABILITIES, by="g")
        for i, p in enumerate(PROBABILITIES):
            here = slice(i, None, len(PROBABILITIES))
            add(f"quantile {p}", quantiles["low"][here], quantiles["high"][here], quantiles["note"][here])
    return dict(found)


def main() -> None:
    read = argparse.ArgumentParser()
    read.add_argument("releases", nargs="?", type=int, default=500)
    read.add_argument("--epsilon", default="1")
    names = ("FILE", "COLUMN", "GROUP", "LOW", "HIGH", "CELLS", "OUTSIDE")
    read.add_argument("--csv", nargs=len(names), action="append", metavar=names)
    given = read.parse_args()
    print("table | cells | epsilon | statistic | worst group | chance | right or blank | groups | told | why not")
    for table in drawn() if given.csv is None else [of_file(*one) for one in given.csv]:
        for cells in CELLS:
            for epsilon in map(float, given.epsilon.split(",")):
                found = coverage(table, table.declare(cells), epsilon, given.releases)
                for what, groups in found.items():
                    every = [g for g in groups if g.told or g.reasons]
                    some = [g for g in every if g.told]
                    worst = min(some, key=lambda g: float(binom.cdf(g.held, g.told, 0.95)), default=Counted())
                    chance = float(binom.cdf(worst.held, worst.told, 0.95))
                    told = sum(g.told for g in every) / (len(every) * given.releases)
                    blank = min(1 - (g.told - g.held) / given.releases for g in every)
                    said = "; ".join(sorted({r for g in every for r in g.reasons}))
                    print(
                        f"{table.name} | {cells} | {epsilon:g} | {what} | {worst.held / max(worst.told, 1):.3f} of "
                        f"{worst.told} | {chance:.1e} | {blank:.3f} | {len(every)} | {told:.3f} | {said}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
