"""Pairs measured once, then denoised by the models the data bear out: errors, time and memory.

    OPENBLAS_NUM_THREADS=1 python bench/adaptive.py /path/to/adult.csv [runs] [table ...]

adult.csv: 14 integer columns, those of more than 42 values cut into 32 equal bins (91 pairs, 364 triples). Tables:
"adult"; "tree" and "independent", drawn with the same sizes along Adult's tree of most information and with every
column shuffled; "small", 5,000 rows of it. delta = 1e-9, add-remove, through sf.release with its exact noise.
e2, e3: mean over the pairs and triples of sum |answer - truth| / n. "records": e2 of n whole records. "alone":
independence from one-way tables with the whole budget; "local": all pairs by the plan of least squared error,
projected; the bar of tables other than Adult is 3 % above the better of these. CPU seconds of `adapt`, then of all
triples. One rule throughout, from noise levels and sizes alone: `weights`.
"""

from __future__ import annotations

import itertools
import math
import resource
import sys
import time
from collections.abc import Mapping

import duckdb
import numpy as np
from numpy.typing import NDArray
from projection_local import coarsened

import sfumato as sf
from sfumato.estimate.local import ResidualNoise, local
from sfumato.estimate.mixtures import adapt
from sfumato.estimate.simplex import onto_simplex
from sfumato.estimate.spanning import spanning_records
from sfumato.strategies.residual.residuals import Residuals

RHO = {0.1: "0.000177", 1: "0.01497", 10: "1.0908"}
BARS = {0.1: (0.136, 0.25), 1: (0.038, 0.091), 10: (0.0100, 0.0445)}
Axes = tuple[int, ...]
Rows = NDArray[np.int64]
Floats = NDArray[np.float64]


def table(rows: Rows, sizes: list[int], axes: Axes, counts: Rows | None = None) -> Floats:
    shape = tuple(sizes[a] for a in axes)
    places = np.ravel_multi_index(tuple(rows[:, a] for a in axes), shape)
    return np.bincount(places, counts, minlength=math.prod(shape)).reshape(shape).astype(np.float64)


def drawn(name: str, rows: Rows, sizes: list[int]) -> Rows:
    random = np.random.default_rng(0)
    if name == "small":
        return rows[random.choice(len(rows), 5000, replace=False)]
    if name == "independent":
        return np.stack([random.permutation(c) for c in rows.T], axis=1)
    if name == "tree":
        pairs = list(itertools.combinations(range(len(sizes)), 2))
        tables = [table(rows, sizes, p) for p in pairs]
        return spanning_records(sizes, pairs, tables, len(rows), 0).astype(np.int64)
    return rows


def weights(names: list[str], sizes: list[int], rho: float, n: int) -> dict[tuple[str, ...], float]:
    """Of a workload whose optimum has the wanted precisions: of pairs as cells^.2, of attributes as cells^.3.

    The attributes' part of the budget is E^2 / (E^2 + .136^2), at least .08, with E the error of independence from
    one-way tables that have the whole of it.
    """
    s = np.array(sizes, dtype=np.float64)
    d = len(s)
    err = 2 * 0.8 * math.sqrt(d / (2 * rho)) * float(s.mean()) / n
    share = max(err**2 / (err**2 + 0.136**2), 0.08)
    pairs = list(itertools.combinations(range(d), 2))
    one, both = s**0.3, np.multiply.outer(s, s) ** 0.2
    price = 1 - 1 / s
    one *= share / float(one @ price)
    both *= (1 - share) / sum(float(both[p] * price[p[0]] * price[p[1]]) for p in pairs)
    # at the optimum a residual's value is its price times the square of its precision
    value = both**2 / np.multiply.outer(s, s)
    np.fill_diagonal(value, 0.0)
    rest = one**2 * price / (s - 1) - value @ (1 / s)
    out = {(names[a], names[b]): float(value[a, b]) for a, b in pairs}
    out |= {(names[a],): max(float(rest[a]), 1e-12) for a in range(d)}
    top = min(out.values())
    return {k: v / top for k, v in out.items()}


class Case:
    """A table, its truths, and what is measured of it."""

    def __init__(self, name: str, path: str) -> None:
        every, self.sizes = coarsened(path)
        self.rows = drawn(name, every, self.sizes)
        self.n, self.d = len(self.rows), len(self.sizes)
        self.names = [f"a{i:02}" for i in range(self.d)]
        self.pairs = list(itertools.combinations(range(self.d), 2))
        self.exact = {p: table(self.rows, self.sizes, p) for p in self.pairs}
        some = {
            a: sf.Integers(0, k - 1, outside="clamp", missing="drop")
            for a, k in zip(self.names, self.sizes, strict=True)
        }
        self.domain = sf.Domain(some)
        self.connection = duckdb.connect()
        self.connection.register("people", {a: self.rows[:, i] for i, a in enumerate(self.names)})

    def plan(self, rho: str, **asked: object) -> sf.Plan:
        work = sf.marginals(self.domain, **asked)  # pyright: ignore[reportArgumentType]
        return sf.plan(work, sf.zcdp(rho), neighbours="add-remove", mechanism="marginals")

    def measured(self, plan: sf.Plan) -> dict[Axes, Floats]:
        found = sf.release(plan, self.connection.sql("SELECT * FROM people"), ledger=None)
        out: dict[Axes, Floats] = {}
        start = 0
        for q in plan.workload.blocks:
            axes = tuple(self.names.index(a) for a in q.attributes)
            shape = [self.sizes[a] for a in axes]
            out[axes] = np.asarray(found.answers[start : start + q.rows], dtype=np.float64).reshape(shape)
            start += q.rows
        return out

    def error(self, tables: Mapping[Axes, Floats]) -> float:
        return float(np.mean([np.abs(tables[p] - t).sum() for p, t in self.exact.items()])) / self.n


def residual_noise(plan: sf.Plan) -> ResidualNoise:
    assert isinstance(plan.strategy, Residuals)
    return ResidualNoise(plan.strategy.sets, tuple(plan.noise.variance / d**2 for d in plan.strategy.divisors))


def alone(case: Case, plan: sf.Plan) -> float:
    tables = case.measured(plan)
    total = float(np.mean([t.sum() for t in tables.values()]))
    ones = [onto_simplex(tables[(i,)], total) for i in range(case.d)]
    return case.error({(a, b): np.outer(ones[a], ones[b]) / total for a, b in case.pairs})


def of_local(case: Case, plan: sf.Plan) -> float:
    tables = case.measured(plan)
    total = float(tables[case.pairs[0]].sum())
    done = local(case.sizes, case.pairs, [tables[p] for p in case.pairs], plan.rmse**2, total)
    return case.error(dict(zip(case.pairs, done.tables, strict=True)))


def main(path: str, runs: int, tables: list[str]) -> None:
    print(f"{'table':12}{'eps':>5}{'e2':>9}{'bar':>8}{'e3':>9}{'bar':>8}{'records':>9}{'alone':>9}{'local':>9}", end="")
    print(f"{'CPU-s':>7}{'CPU-s':>7}  blend")
    for name in tables:
        case = Case(name, path)
        triples = {t: table(case.rows, case.sizes, t) for t in itertools.combinations(range(case.d), 3)}
        for eps, rho in RHO.items():
            plan = case.plan(rho, upto=2, weights=weights(case.names, case.sizes, float(rho), case.n))
            ones, twos = case.plan(rho, order=1), case.plan(rho, order=2)
            done: list[tuple[float, ...]] = []
            for _ in range(runs):
                given = case.measured(plan)
                sets = [s for s in given if len(s) == 2]
                start = time.process_time()
                found = adapt(case.sizes, sets, [given[s] for s in sets], residual_noise(plan))
                took = time.process_time() - start
                start = time.process_time()
                threes = [np.abs(found.table(t) - exact).sum() / case.n for t, exact in triples.items()]
                again = time.process_time() - start
                codes, counts = found.records(round(found.total))
                made = case.error({p: table(codes.astype(np.int64), case.sizes, p, counts) for p in case.pairs})
                peers = alone(case, ones), of_local(case, twos)
                errors = case.error(found.pairs), float(np.mean(threes)), made
                done.append((*errors, *peers, took, again, *found.weights.values()))
            e2, e3, made, first, second, took, again, *blend = np.mean(done, axis=0).tolist()
            bars = BARS[eps] if name == "adult" else (1.03 * min(first, second), math.nan)
            print(f"{name:12}{eps:5}{e2:9.4f}{bars[0]:8.4f}{e3:9.4f}{bars[1]:8.4f}{made:9.4f}{first:9.4f}", end="")
            print(f"{second:9.4f}{took:7.2f}{again:7.2f}  " + " ".join(f"{w:.2f}" for w in blend), flush=True)
    print(f"peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    main(sys.argv[1], int((*sys.argv, "5")[2]), sys.argv[3:] or ["adult", "tree", "independent", "small"])
