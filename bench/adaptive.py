"""Pairs measured once, then denoised by the models the data bear out: errors, time and memory.

    OPENBLAS_NUM_THREADS=1 python bench/adaptive.py /path/to/adult.csv [runs] [table ...]

adult.csv: 14 integer columns, those of more than 42 values cut into 32 equal bins (91 pairs, 364 triples). Tables:
"adult"; "tree" and "independent", drawn with the same sizes along Adult's tree of most information and with every
column shuffled; "small", 5,000 rows of it. delta = 1e-9, add-remove, through sf.release with its exact noise.
e2, e3: mean over the pairs and triples of sum |answer - truth| / n. "records": e2 of n whole records. "alone":
independence from one-way tables with the whole budget; "local": all pairs by the plan of least squared error,
projected; the bar of tables other than Adult is 3 % above the better of these. A table may also be a CSV file of whole
numbers from 0. CPU seconds of the whole release (read, measure, denoise), of all triples, and of the records.
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
from sfumato.postprocess.cones import project_onto_simplex
from sfumato.postprocess.consistency import project_onto_local
from sfumato.postprocess.denoising import AdaptedTables
from sfumato.postprocess.records import spanning_records

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


class Case:
    """A table, its truths, and what is measured of it."""

    def __init__(self, name: str, path: str) -> None:
        if name.endswith(".csv"):
            self.rows = np.loadtxt(name, delimiter=",", skiprows=1, dtype=np.int64)
            self.sizes = [int(k) + 1 for k in self.rows.max(axis=0)]
        else:
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

    def plan(self, rho: str, order: int, mechanism: str = "marginals") -> sf.Plan:
        work = sf.marginals(self.domain, order=order)
        alike = {} if mechanism == "adaptive" else {"objective": "cells"}
        made = sf.plan(work, sf.zcdp(rho), neighbours="add-remove", mechanism=mechanism, records=self.n, **alike)
        assert isinstance(made, sf.Plan)
        return made

    def released(self, plan: sf.Plan) -> sf.Release:
        made = sf.release(plan, self.connection.sql("SELECT * FROM people"), ledger=None)
        assert isinstance(made, sf.Release)
        return made

    def measured(self, plan: sf.Plan) -> dict[Axes, Floats]:
        found = self.released(plan)
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


def alone(case: Case, plan: sf.Plan) -> float:
    tables = case.measured(plan)
    total = float(np.mean([t.sum() for t in tables.values()]))
    ones = [project_onto_simplex(tables[(i,)], total) for i in range(case.d)]
    return case.error({(a, b): np.outer(ones[a], ones[b]) / total for a, b in case.pairs})


def of_local(case: Case, plan: sf.Plan) -> float:
    tables = case.measured(plan)
    total = float(tables[case.pairs[0]].sum())
    done = project_onto_local(case.sizes, case.pairs, [tables[p] for p in case.pairs], plan.rmse**2, total)
    return case.error(dict(zip(case.pairs, done.tables, strict=True)))


def once(case: Case, plan: sf.Plan, triples: Mapping[Axes, Floats]) -> tuple[list[float], list[float]]:
    """((e2, e3, records' e2, CPU seconds of release, triples, records), weights of the blend)."""
    start = time.process_time()
    found = case.released(plan)
    took = time.process_time() - start
    assert found.projection is not None
    assert isinstance(found.projection.possible, AdaptedTables)
    held = found.projection.possible.adapted
    start = time.process_time()
    threes = [np.abs(held.table(t) - exact).sum() / case.n for t, exact in triples.items()]
    again = time.process_time() - start
    start = time.process_time()
    codes = found.synthetic().codes.astype(np.int64)
    drawing = time.process_time() - start
    made = case.error({p: table(codes, case.sizes, p) for p in case.pairs})
    errors = [case.error(held.pairs), float(np.mean(threes)), made, took, again, drawing]
    return errors, list(held.weights.values())


def main(path: str, runs: int, tables: list[str]) -> None:
    heads = f"{'e2':>9}{'sd':>8}{'bar':>8}{'e3':>9}{'bar':>8}{'records':>9}{'alone':>9}{'local':>9}{'CPU-s':>7}"
    print(f"{'table':12}{'eps':>5}{heads}{'CPU-s':>7}{'CPU-s':>7}  blend")
    for name in tables:
        case = Case(name, path)
        triples = {t: table(case.rows, case.sizes, t) for t in itertools.combinations(range(case.d), 3)}
        for eps, rho in RHO.items():
            plan, ones, twos = case.plan(rho, 2, "adaptive"), case.plan(rho, 1), case.plan(rho, 2)
            done, blends, peers = list[list[float]](), list[list[float]](), list[tuple[float, float]]()
            for _ in range(runs):
                errors, blend = once(case, plan, triples)
                done.append(errors)
                blends.append(blend)
                peers.append((alone(case, ones), of_local(case, twos)))
            e2, e3, made, took, again, drawing = np.mean(done, axis=0).tolist()
            spread = float(np.std(done, axis=0)[0])
            first, second = np.mean(peers, axis=0).tolist()
            bars = BARS[eps] if name == "adult" else (1.03 * min(first, second), math.nan)
            print(f"{name.split('/')[-1][:11]:12}{eps:5}{e2:9.4f}{spread:8.4f}{bars[0]:8.4f}{e3:9.4f}", end="")
            print(f"{bars[1]:8.4f}{made:9.4f}{first:9.4f}{second:9.4f}{took:7.2f}{again:7.2f}{drawing:7.2f}  ", end="")
            print(" ".join(f"{w:.2f}" for w in np.mean(blends, axis=0).tolist()), flush=True)
    print(f"peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    main(sys.argv[1], int((*sys.argv, "5")[2]), sys.argv[3:] or ["adult", "tree", "independent", "small"])
