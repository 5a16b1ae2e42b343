"""People in places: what publishing a census costs, and how far counts are from the truth, beside top-down estimates.

    OPENBLAS_NUM_THREADS=1 python bench/places.py whole [--leaves 24700] [--seed 0] [--place DIR]
    OPENBLAS_NUM_THREADS=1 python bench/places.py beside [--trees 5] [--seed 0]
    OPENBLAS_NUM_THREADS=1 python bench/places.py before [--draws 25] [--seed 0]
    OPENBLAS_NUM_THREADS=1 python bench/places.py bias [--draws 25] [--seed 0]

The generator: nation > state > county > tract > group > block, every node with as many children as its level says,
times exp(.4 z); blocks of exp(1.1 z) people, three in ten empty; 8 x 2 x 2 x 63 = 2,016 cells (living arrangement,
voting age, Hispanic, race), whose shares are drawn for every node by Dirichlet around those of the node above.

"whole": from rows in a file to microdata, step by step: CPU seconds, peak memory, what is exact. "beside": mean L1
error of a unit by (level, table), at the shares by level that were published for 2020 (of 4,099: nation 104, state
1,440, county 447, tract 687, group 1,256, block 165), alike for the four tables of a level, rho 1.28 for adding or
removing one; beside our own writing of a top-down estimate with the same noise and the same whole numbers: "one pass"
fits all tables of a level at once, "several" the total, then each larger table with the smaller ones held.
"before": by (level, table) the root mean squared error after / before projection, by `auto`, on trees of the tests'
kind. "bias": what an office has to tell. By true size of a cell, how many there are, their mean as it is published in
whole numbers, and how often its interval holds; of Hispanic by race, on a tree with as many draws of the noise, at the
published shares by level.
"""

from __future__ import annotations

import argparse
import itertools
import math
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sfumato as sf
from sfumato.operators import Grouping, Identity, LinearOperator
from sfumato.postprocess.geography import NodeCounts, descend_tree
from sfumato.postprocess.geography_cells import (
    CellHalves,
    QuadraticForm,
    Sets,
    Simplices,
    nearest_in_norm,
    splitting_chain,
    whole_family,
    whole_parts,
)
from sfumato.postprocess.geography_estimates import PlacedCounts, Readings, TreeMeasurements
from sfumato.strategies.geography import Spine
from sfumato.strategies.geography_tree import GroupTree, Passes, variance_slopes

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
SHAPE = (8, 2, 2, 63)
NAMES = ("gq", "voting", "hispanic", "race")
LEVELS = ("state", "county", "tract", "group", "block")
TABLES: tuple[Sets, ...] = ((), (1,), (2, 3), (0, 1, 2, 3))
PUBLISHED = (104, 1440, 447, 687, 1256, 165)
AROUND = (2000.0, 300.0, 60.0, 200.0, 50.0)
RHO = 1.28
HELD = 300.0  # times its weight for what an earlier pass found
GAP = 1e-4


def nation() -> Floats:
    """Shares of the cells."""
    tail = np.exp(-0.12 * np.arange(57))
    race = np.concatenate([[0.60, 0.13, 0.06, 0.04, 0.01, 0.004], 0.156 * tail / tail.sum()])
    gq = np.array([0.973, 0.008, 0.007, 0.005, 0.003, 0.002, 0.0015, 0.0005])
    p = np.einsum("a,b,c,d->abcd", gq, [0.23, 0.77], [0.81, 0.19], race)
    p[:, :, 1, 1] *= 0.15
    p[:, :, 1, 3] *= 0.1
    p[:, :, 1, 5:] *= 1.3
    p[4:6, 0] *= 0.02
    p[1:3, 0] *= 0.1
    return (p / p.sum()).reshape(-1)


def grown(rng: np.random.Generator, fans: Sequence[float]) -> list[Ints]:
    """Per level the parent of every node."""
    parents: list[Ints] = []
    count = 1
    for fan in fans:
        kids = np.maximum(1, np.rint(fan * np.exp(0.4 * rng.standard_normal(count)))).astype(np.int64)
        kids[0] += int(kids.sum()) == count
        parents.append(np.repeat(np.arange(count), kids))
        count = len(parents[-1])
    return parents


def people(rng: np.random.Generator, parents: list[Ints], mean: float = 40.0) -> tuple[Ints, Ints, Ints]:
    """Block, cell and number, where there is anybody."""
    nodes = nation()[None]
    for around, parent in zip(AROUND, parents[:-1], strict=False):
        drawn = rng.gamma(np.maximum(around * nodes[parent], 1e-6))
        nodes = drawn / drawn.sum(axis=1, keepdims=True)
    leaves = len(parents[-1])
    size = np.rint(rng.lognormal(0, 1.1, leaves) * mean / math.exp(1.1**2 / 2) / 0.7).astype(np.int64)
    size[rng.random(leaves) < 0.3] = 0
    found: list[tuple[Ints, Ints, Ints]] = []
    for leaf in np.flatnonzero(size):
        drawn = rng.gamma(np.maximum(AROUND[-1] * nodes[parents[-1][leaf]], 1e-6))
        row = rng.multinomial(size[leaf], drawn / drawn.sum())
        where = np.flatnonzero(row)
        found.append((np.full(len(where), leaf), where, row[where]))
    block, cell, count = (np.concatenate(x) for x in zip(*found, strict=True))
    return block, cell, count


def codes_of(parents: list[Ints]) -> list[Ints]:
    """Per level below the root the group of every block."""
    codes = [np.arange(len(parents[-1]))]
    for parent in parents[:0:-1]:
        codes.insert(0, parent[codes[0]])
    return codes


def spent() -> float:
    return time.process_time()


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


# ---- from a table to microdata ----


def whole(leaves: int, seed: int, place: str | None) -> None:
    rng = np.random.default_rng(seed)
    groups = leaves / 27
    parents = grown(rng, (1, max(2.0, groups / 90), 18, 5, 25))
    kept = min(leaves, len(parents[-1]))
    parents[-1] = parents[-1][:kept]
    for i in range(len(parents) - 1, 0, -1):
        parents[i - 1] = parents[i - 1][: int(parents[i].max()) + 1]
    codes = codes_of(parents)[1:]  # one state is all records
    with tempfile.TemporaryDirectory(dir=place) as folder:
        home = Path(folder)
        # in a process of its own, so that memory is that of the library
        child = multiprocessing.get_context("fork").Process(target=written, args=(home, rng, parents, codes[-1]))
        child.start()
        child.join()
        rows = [tuple(f"{i}.{c}" for i, c in enumerate(row)) for row in zip(*(c.tolist() for c in codes), strict=True)]
        print(f"{kept:,} blocks by {math.prod(SHAPE):,} cells; seed {seed}")
        start = spent()
        geo = sf.Hierarchy(rows, levels=list(LEVELS[1:]), outside="drop", missing="drop")
        del rows
        others: dict[str, Any] = {
            n: sf.Integers(0, k - 1, outside="drop", missing="drop") for n, k in zip(NAMES, SHAPE, strict=True)
        }
        domain = sf.Domain({"geo": geo} | others)
        sets = [[NAMES[i] for i in s] for s in TABLES]
        start = said("codes read", start)
        work = sf.marginals(domain, sets=sets, factors={"geo": "levels"})
        plan = sf.plan(work, sf.zcdp(str(RHO)), neighbours="add-remove", mechanism="marginals")
        start = said("planned", start)
        release = sf.release(plan, str(home / "people.parquet"), ledger=None, out=home / "release")
        start = said("released", start)
        told: list[int] = []
        found = release.project(
            body="spine", integer=True, folder=home / "projected", progress=lambda done, _: told.append(done)
        )
        assert found.projection is not None
        said("projected in whole numbers, records written", start)
        held = found.projection.possible
        assert isinstance(held, PlacedCounts)
        county, total = found.table("county").values, int(held.count.sum())
        assert county.sum() == total == found.table().values
        print(f"  {total:,} records; {found.projection.describe()}; {told[-1]:,} families")
        for name in ("people.parquet", "release", "projected"):
            files = [home / name, *(home / name).rglob("*")]
            print(f"  {name}: {sum(f.stat().st_size for f in files if f.is_file()) / 2**30:.2f} GB of disk")


def written(home: Path, rng: np.random.Generator, parents: list[Ints], codes: Ints) -> None:
    """The people as a Parquet file, a row for each."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    block, cell, count = people(rng, parents)
    print(f"{int(count.sum()):,} people made in {spent():.1f} CPU-s", flush=True)
    labels = np.array([f"{len(LEVELS) - 2}.{c}" for c in codes.tolist()], dtype=object)
    schema = pa.schema([("geo", pa.string()), *((n, pa.int8()) for n in NAMES)])
    with pq.ParquetWriter(home / "people.parquet", schema) as writer:
        for first in range(0, len(block), 2**17):
            some = slice(first, first + 2**17)
            values = np.unravel_index(np.repeat(cell[some], count[some]), SHAPE)
            columns = {n: v.astype(np.int8) for n, v in zip(NAMES, values, strict=True)}
            places = labels[np.repeat(block[some], count[some])]
            writer.write_table(pa.table({"geo": places} | columns, schema=schema))


def said(what: str, start: float) -> float:
    now = spent()
    print(f"  {what}: {now - start:.1f} CPU-s, {now:.1f} in all; peak {peak():.2f} GB", flush=True)
    return now


# ---- beside top-down estimates ----


class TopDown:
    """Each level by what was measured of it alone, given the level above; no estimate from below, no second look."""

    def __init__(self, told: TreeMeasurements, own: Floats, several: bool) -> None:
        self.told, self.own, self.several, self.cells = told, own, several, told.cells
        self.steps = splitting_chain(told.cells, TABLES)

    def tables(self, level: int, first: int, last: int, where: Ints) -> list[tuple[Floats, Sets, Floats]]:
        """Per table its weight, its axes, and the noisy values as they enter on the cells of `where`."""
        return [
            (weight, axes, data[:, where])
            for weight, axes, data in zip(self.own[level], TABLES, self.told_tables(level, first, last), strict=True)
        ]

    def told_tables(self, level: int, first: int, last: int) -> list[Floats]:
        cells, made = self.cells, self.told
        nodes = made.places.order[level][first:last]
        out: list[Floats] = []
        for axes, values in zip(TABLES, VALUES[level], strict=True):
            shape = [n if i in axes else 1 for i, n in enumerate(cells.shape)]
            rows = values.reshape(-1, *shape)[nodes]
            out.append(np.broadcast_to(rows, (len(nodes), *cells.shape)).reshape(len(nodes), -1))
        return out

    def solve(self, level: int, first: int, last: int, where: Ints, allowed: Simplices) -> Floats:
        held = self.tables(level, first, last, where)
        point = np.maximum(held[-1][2], 0.0)
        if not self.several:
            return self.fit(held, where, allowed, point)
        done: list[tuple[Floats, Sets, Floats]] = []
        for weight, axes, noisy in held:
            point = self.fit([*done, (weight, axes, noisy)], where, allowed, point)
            number = self.cells.number(axes, where)
            sums = np.zeros((len(point), int(number.max()) + 1))
            np.add.at(sums.T, number, point.T)
            done.append((weight * HELD, axes, sums[:, number]))
        return point

    def fit(self, asked: list[tuple[Any, Sets, Floats]], where: Ints, allowed: Simplices, start: Floats) -> Floats:
        """Least squares of sums over tables: every table's weight before T'T."""
        cells = self.cells
        coefficients = np.zeros(len(cells.sets))
        given = np.zeros(start.shape)
        for weight, axes, values in asked:
            coefficients[cells.sets.index(axes)] += weight
            given += weight * values
        ridge = 1e-6 * float(coefficients.max()) if coefficients[-1] == 0 else 0.0
        form = QuadraticForm.of(cells, coefficients, where, ridge)
        tolerance = GAP * start.size
        return nearest_in_norm(form, given + ridge * start, allowed, start, tolerance, step=0.5).point

    def run(self) -> list[NodeCounts]:
        every = np.arange(self.cells.size)
        total = round(max(float(self.told_tables(0, 0, 1)[0][0, 0]), 0.0))
        root = self.solve(0, 0, 1, every, Simplices(np.array([float(total)]), together=True))
        row = whole_parts(root[0], total, CellHalves.of(self.cells, every, self.steps))
        levels = [NodeCounts([np.flatnonzero(row)], [row[row > 0].astype(float)])]
        for level in range(1, self.told.tree.depth + 1):
            own = NodeCounts([], [])
            for parent, (where, counts) in enumerate(zip(levels[-1].cells, levels[-1].counts, strict=True)):
                first, last = self.told.tree.run(level, parent)
                found = np.zeros((last - first, len(where)))
                if len(where):
                    found = self.solve(level, first, last, where, Simplices(counts))
                    halves = CellHalves.of(self.cells, where, self.steps)
                    found = whole_family(found, np.rint(counts).astype(np.int64), halves).astype(float)
                for row in found:
                    own.cells.append(where[row > 0])
                    own.counts.append(row[row > 0])
            levels.append(own)
        return levels


VALUES: list[list[Floats]] = []  # noisy tables by level, as they were measured


def margin(table: NDArray[Any], axes: Sets) -> NDArray[Any]:
    drop = tuple(1 + i for i in range(len(SHAPE)) if i not in axes)
    return table.reshape(len(table), *SHAPE).sum(axis=drop).reshape(len(table), -1)


def tree_of(seed: int, fans: Sequence[float]) -> tuple[list[LinearOperator], list[Ints], list[Floats]]:
    """Operators of the levels, codes from the root on, and every level's true table."""
    rng = np.random.default_rng(seed)
    parents = grown(rng, fans)
    block, cell, count = people(rng, parents)
    codes = codes_of(parents)
    n = len(codes[-1])
    tables: list[Floats] = [
        np.zeros((1 if i < 0 else int(codes[i].max()) + 1, math.prod(SHAPE))) for i in range(-1, len(codes))
    ]
    for i, t in enumerate(tables):
        np.add.at(t, (np.zeros(len(block), dtype=int) if i == 0 else codes[i - 1][block], cell), count)
    levels: list[LinearOperator] = [Grouping(c, int(c.max()) + 1) for c in codes[:-1]]
    return [*levels, Identity(n)], codes, tables


def beside(trees: int, seed: int) -> None:
    each: dict[str, list[Floats]] = {}
    counted: list[list[int]] = []
    cpu: dict[str, float] = {}
    for s in range(seed, seed + trees):
        levels, _, truth = tree_of(s, (2, 2.5, 5, 4, 25))
        rng = np.random.default_rng([s, 1])
        multiples = [max(1, round(1000 * math.sqrt(p / sum(PUBLISHED) / len(TABLES)))) for p in PUBLISHED]
        variance = len(TABLES) * sum(m**2 for m in multiples) / (2 * RHO)
        at = [level for level in range(6) for _ in TABLES]
        sets = [tuple(1 + i for i in t) for _ in range(6) for t in TABLES]
        values = [
            np.rint(m * margin(truth[level], t) + rng.normal(0, math.sqrt(variance), margin(truth[level], t).shape))
            for level, m in enumerate(multiples)
            for t in TABLES
        ]
        n = levels[-1].shape[0]
        made = Spine(
            ("geo", *NAMES), (n, *SHAPE), 0, tuple(levels), tuple(at), tuple(sets), tuple(multiples[a] for a in at)
        )
        VALUES[:] = [[values[4 * level + j] / multiples[level] for j in range(len(TABLES))] for level in range(6)]
        told = TreeMeasurements(
            Readings(made, [v.astype(np.int64).reshape(-1) for v in values], variance, (1, 2, 3, 4))
        )
        own = np.array([[m**2 / variance] * len(TABLES) for m in multiples])
        order = told.places.order
        for name in ("one pass", "several", "spine"):
            start = spent()
            if name == "spine":
                found = descend_tree(told, TABLES, None, None, whole=True).levels
            else:
                found = TopDown(told, own, several=name == "several").run()
            cpu[name] = cpu.get(name, 0.0) + spent() - start
            away = np.zeros((6, len(TABLES)))
            for level, (settled, exact) in enumerate(zip(found, truth, strict=True)):
                dense = np.zeros_like(exact)
                for i, (where, counts) in enumerate(zip(settled.cells, settled.counts, strict=True)):
                    dense[order[level][i], where] = counts
                away[level] = [np.abs(margin(dense, t) - margin(exact, t)).sum() for t in TABLES]
            each.setdefault(name, []).append(away)
        counted.append([len(t) for t in truth])
        print(f"  tree {s}: {[len(t) for t in truth]}, CPU-s so far {cpu}", flush=True)
    units = np.array(counted).sum(axis=0)
    told_of = {name: np.array(found) for name, found in each.items()}
    print("mean L1 a unit: spine / one pass / several (ratio to the better, and its standard error by the jackknife)")
    for level, name in enumerate(("nation", *LEVELS)):
        cells: list[str] = []
        for j in range(len(TABLES)):
            by_tree = np.array([told_of[k][:, level, j] for k in ("spine", "one pass", "several")])
            ours, one, several = by_tree.sum(axis=1) / units[level]
            cells.append(f"{ours:9.2f} / {one:9.2f} / {several:9.2f} ({_ratio(by_tree)})")
        print(f"  {name:7} {int(units[level]):6,}  " + "   ".join(cells), flush=True)


def _ratio(by_tree: Floats) -> str:
    """Of ours over the better of both, all trees pooled. by_tree: (3, trees) summed errors."""

    def ratio(sums: Floats) -> float:
        return float(sums[0] / max(sums[1:].min(), 1e-9))

    n = by_tree.shape[1]
    if n == 1:
        return f"{ratio(by_tree[:, 0]):.3f}"
    left_out = np.array([ratio(np.delete(by_tree, i, axis=1).sum(axis=1)) for i in range(n)])
    error = math.sqrt((n - 1) / n * float(((left_out - left_out.mean()) ** 2).sum()))
    return f"{ratio(by_tree.sum(axis=1)):.3f} +- {error:.3f}"


# ---- beside what was before ----


def before(draws: int, seed: int) -> None:
    for fans, sizes, rho, mean in (
        ((3, 5, 18), (3, 2), "0.05", 3.0),
        ((3, 5, 18), (3, 2), "0.5", 0.3),
        ((3, 5, 18), (3, 2), "5", 30.0),
        ((4, 9, 60), (8, 6), "0.5", 3.0),
    ):
        rng = np.random.default_rng(seed)
        codes = codes_of(grown(rng, fans))
        rows = [tuple(f"{i}.{c}" for i, c in enumerate(row)) for row in zip(*codes, strict=True)]
        names = {f"a{i}": n for i, n in enumerate(sizes)}
        domain = sf.Domain({"place": sf.Hierarchy(rows, levels=["L0", "L1", "L2"])} | names)
        work = sf.marginals(domain, sets=[[], ["a0"], ["a0", "a1"]], factors={"place": "levels"})
        x = rng.poisson(mean * rng.gamma(0.5, 2, (len(rows), 1, 1)) * rng.gamma(0.5, 2, (1, *sizes)))
        truth = work.answer(x)
        ends = np.cumsum([q.rows for q in work.blocks])[:-1]
        plan = sf.plan(work, sf.zcdp(rho), neighbours="add-remove", mechanism="marginals")
        found: list[list[list[float]]] = []
        for d in range(draws):
            release = sf.release(plan, sf.Histogram(x), ledger=None, name=str(d))
            three = (release, release.project(), release.project(integer=True))
            found.append([[float(np.mean(p**2)) for p in np.split(r.answers - truth, ends)] for r in three])
        raw, real, made = np.sqrt(np.mean(found, axis=0))
        print(f"{len(rows):,} units, cells {sizes}, rho {rho}, {x.sum():,} people, {draws} draws: real, whole / before")
        for i, q in enumerate(work.blocks):
            over = made[i] - 1.01 * raw[i]
            print(
                f"  {q.part:10} {', '.join(q.attributes) or 'total':15} {raw[i]:7.2f}: {real[i] / raw[i]:.3f} "
                f"{made[i] / raw[i]:.3f}; whole - 1.01 before {over:.2f}",
                flush=True,
            )


# ---- by true size ----


SIZES = (0, 1, 2, 4, 10, 30, 100, 10**9)


def weights_of(codes: list[Ints], shares: Sequence[float]) -> list[float]:
    """Of the part of every level, at which these shares of the budget by level are the best there are.

    What a unit of precision of a level lowers all errors by is the same for all levels at the optimum, and linear in
    the weights. Errors of a part are means over its queries, so weights are those of sums times the number of groups.
    """
    tree, _ = GroupTree.of_codes(codes)
    passes = Passes.of(tree, [np.array([[float(s)]]) for s in shares])
    levels = range(tree.depth + 1)
    falls = np.zeros((len(levels), len(levels)))
    for k in levels:
        ones = [np.full((1, 1), float(k == level)) for level in levels]
        falls[:, k] = [float(s.sum()) for s in variance_slopes(passes, ones)]
    found = np.linalg.solve(falls, np.ones(len(levels))) * [len(c) for c in tree.counts]
    assert (found > 0).all(), "no weights make these shares the best"
    return (found / found.sum()).tolist()


def bias(draws: int, seed: int) -> None:
    _, codes, truth = tree_of(seed, (2, 2.5, 5, 4, 25))
    rows = [tuple(f"{i}.{c}" for i, c in enumerate(row)) for row in zip(*codes, strict=True)]
    domain = sf.Domain({"geo": sf.Hierarchy(rows, levels=list(LEVELS))} | dict(zip(NAMES, SHAPE, strict=True)))
    sets = [[NAMES[i] for i in t] for t in TABLES]
    work = sf.marginals(domain, sets=sets, factors={"geo": "levels"})
    weights = dict(zip(work.parts, weights_of(codes, PUBLISHED), strict=True))
    plan = sf.plan(sf.stack(work, weights=weights), sf.zcdp(str(RHO)), neighbours="add-remove", mechanism="marginals")
    made = plan.strategy
    assert isinstance(made, Spine)
    each = zip(made.multiples, made.sets, strict=True)
    # what a block adds to the price: the square of a column of tables, or of residuals n I - J
    price = [
        float(m) ** 2 * (math.prod(n * (n - 1) for n in (made.shape[i] for i in s)) if made.residual else 1)
        for m, s in each
    ]
    spent_on = np.bincount(made.at, price)
    print("published shares of the budget by level, weights of parts that give them, and the plan's shares:")
    for name, share, own in zip(weights, PUBLISHED, spent_on / spent_on.sum(), strict=True):
        print(f"  {name:10} {share / sum(PUBLISHED):.4f}  {weights[name]:.5f}  {own:.4f}")
    x = truth[-1].reshape(-1, *SHAPE).astype(np.int64)
    told: dict[str, list[list[Floats]]] = {name: [] for name in ("county", "tract", "group", "geo")}
    for d in range(draws):
        raw = sf.release(plan, sf.Histogram(x), ledger=None, name=str(d))
        found = raw.project(body="spine", integer=True)
        for name, held in told.items():
            exact = margin(truth[{"county": 2, "tract": 3, "group": 4, "geo": 5}[name]], (2, 3)).reshape(-1)
            # the order of groups is that of the domain
            values = found.table(name, "hispanic", "race").values.reshape(-1)
            noisy = raw.table(name, "hispanic", "race")
            error = np.asarray(noisy.standard_errors).reshape(-1)
            middle = np.asarray(noisy.values).reshape(-1)
            low = np.minimum(np.maximum(middle - 1.959964 * error, 0.0), values)
            high = np.maximum(np.maximum(middle + 1.959964 * error, 0.0), values)
            held.append([exact, values, ((low <= exact) & (exact <= high)).astype(float)])
    print(f"{[len(t) for t in truth]} groups, {x.sum():,} people, {draws} draws, rho {RHO}; Hispanic by race")
    for name, held in told.items():
        exact, values, inside = (np.concatenate([h[i] for h in held]) for i in range(3))
        shown = inside[values > 0].mean()
        print(f"  {name}: intervals hold {inside.mean():.1%}; of those published above 0 {shown:.1%}")
        for low, high in itertools.pairwise(SIZES):
            own = (exact >= low) & (exact < high)
            if own.any():
                gone = (values[own] == 0).mean()
                means = f"mean {exact[own].mean():.2f}, published {values[own].mean():.2f}, none {gone:.1%}"
                kept = f"{own.sum() // draws:,} cells, {means}, intervals {inside[own].mean():.1%}"
                print(f"    true {low} to {high - 1}: {kept}", flush=True)


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("what", choices=["whole", "beside", "before", "bias"])
    reader.add_argument("--leaves", type=int, default=24_700)
    reader.add_argument("--place", help="a folder on a disk with room: 18 GB for a million blocks")
    reader.add_argument("--trees", type=int, default=5)
    reader.add_argument("--draws", type=int, default=25)
    reader.add_argument("--seed", type=int, default=0)
    given = reader.parse_args()
    if given.what == "whole":
        whole(given.leaves, given.seed, given.place)
    elif given.what == "beside":
        beside(given.trees, given.seed)
    elif given.what == "bias":
        bias(given.draws, given.seed)
    else:
        before(given.draws, given.seed)


if __name__ == "__main__":
    main()
