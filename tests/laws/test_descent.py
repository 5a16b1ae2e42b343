"""Counts down a tree: exactness on random trees, families against brute force, and a gap that proves what it says."""

from __future__ import annotations

import itertools
import math
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import nnls

import sfumato as sf
from sfumato.errors import InvalidInput, NotAnswerable, PlanError
from sfumato.operators.base import FloatArray
from sfumato.postprocess.geography import Run, composition_strength
from sfumato.postprocess.geography_cells import (
    CellHalves,
    QuadraticForm,
    Simplices,
    TableCells,
    nearest_in_norm,
    nearest_whole,
    splitting_chain,
    whole_family,
    whole_parts,
)
from sfumato.postprocess.geography_estimates import FamilyEstimates, PlacedCounts
from sfumato.postprocess.projection import Projection
from support.places import grown, nested, tree_codes

SETS: list[list[list[str]]] = [[[], ["a0"], ["a0", "a1"]], [["a0"], ["a1"]], [["a0", "a1"]], [[], ["a1"]]]


def random_rows(rng: np.random.Generator) -> list[tuple[str, ...]]:
    """Rows of a hierarchy over some levels, groups of one among them."""
    while True:
        codes = tree_codes(rng, int(rng.integers(2, 5)), int(rng.integers(2, 30)))
        kept = list({int(c.max()): c for c in codes if int(c.max()) > 0}.values())
        if len(kept) >= 2 and int(kept[-1].max()) + 1 == len(kept[-1]):
            return [tuple(f"{i}.{c}" for i, c in enumerate(row)) for row in zip(*kept, strict=True)]


def released(work: sf.Workload, x: np.ndarray, neighbours: str, mechanism: str) -> sf.Release:
    plan = sf.plan(work, sf.zcdp("0.5"), neighbours=neighbours, mechanism=mechanism)
    return sf.release(plan, sf.Histogram(x), ledger=None)


def counts_of(whole: sf.Release) -> FloatArray:
    """A table over the domain with the counts that were settled; in the first cell of what was not asked."""
    assert whole.projection is not None
    held = whole.projection.possible
    assert isinstance(held, PlacedCounts)
    domain = whole.plan.workload.domain
    out = np.zeros(domain.shape)
    codes = dict(zip(held.attributes, np.unravel_index(held.cell, held.sizes), strict=True)) | {"place": held.unit}
    none = np.zeros(len(held.unit), dtype=np.int64)
    np.add.at(out, tuple(codes.get(a, none) for a in domain.names), held.count)
    return out


@pytest.mark.parametrize("seed", range(12))
def test_answers_are_those_of_one_table_of_records(seed: int) -> None:
    """Of random trees, tables and strategies: whole, nonnegative, at every level the sum of what is below.

    Mutants: a half's sum over the children not kept; the children of an empty parent left out; groups in the order of
    the tree taken for their numbers.
    """
    rng = np.random.default_rng(seed)
    rows = random_rows(rng)
    work = nested([rows[i] for i in rng.permutation(len(rows))], (2, 3), SETS[seed % 4], before=seed % 2)
    neighbours = ("add-remove", "replace-one")[seed % 3 == 0]
    x = rng.poisson(rng.gamma(0.3, 4, work.domain.shape))
    release = released(work, x, neighbours, ("auto", "gaussian", "marginals")[seed % 3])
    for whole in (release.project(body="spine", integer=True), release.project()):
        found = whole.projection
        assert found is not None
        assert (found.body, found.certified) == ("spine", True)
        counts = counts_of(whole)
        assert counts.min() >= 0
        assert np.allclose(whole.answers, work.answer(counts), rtol=0, atol=1e-8)
        ends = whole.intervals()
        assert (ends.low <= whole.answers).all()
        assert (whole.answers <= ends.high).all()
        if neighbours == "replace-one":
            assert counts.sum() == pytest.approx(x.sum())
        if found.rounded is not None:
            assert (whole.answers == np.rint(whole.answers)).all()
            assert len(whole.synthetic()) == counts.sum()


def problem(rng: np.random.Generator) -> tuple[TableCells, FloatArray, np.ndarray, FloatArray, FloatArray]:
    """Cells, coefficients, chosen cells, what is given, and sums of a family with few cells."""
    cells = TableCells((2, 3))
    weights = rng.gamma(0.5, 4, len(cells.sets)) + 0.05
    chosen = np.sort(rng.choice(6, int(rng.integers(1, 7)), replace=False))
    sums = (rng.poisson(3, len(chosen)) + 1).astype(np.float64)
    n = int(rng.integers(2, 6))
    given = rng.standard_normal((n, len(chosen))) * 4
    return cells, cells.coefficients(weights), chosen, given, sums


@pytest.mark.parametrize("seed", range(40))
def test_families_are_at_the_least_value_and_the_gap_proves_how_near(seed: int) -> None:
    """Against an active-set solver, at two tolerances. Mutants: the promise taken over the children together instead of
    cell by cell (it then proves less than nothing); the sums left out of it; the norm's columns without their weights.
    """
    rng = np.random.default_rng(seed)
    cells, coefficients, chosen, given, sums = problem(rng)
    form = QuadraticForm.of(cells, coefficients, chosen, 0.0)
    whole = sum(
        c * (cells.number(b, np.arange(6))[:, None] == cells.number(b, np.arange(6)))
        for b, c in zip(cells.sets, coefficients, strict=True)
    )
    matrix = np.asarray(whole, dtype=float)[np.ix_(chosen, chosen)]
    assert np.allclose(form.apply(np.eye(len(chosen))), matrix, rtol=0, atol=1e-9)
    n, k = given.shape
    root = np.linalg.cholesky(matrix).T
    heavy = 1e4
    left = np.vstack([np.kron(np.eye(n), root), heavy * np.kron(np.ones((1, n)), np.eye(k))])
    right = np.concatenate([np.linalg.solve(root.T, given.T).T.reshape(-1), heavy * sums])
    best = Simplices(sums).nearest(nnls(left, right, maxiter=10_000)[0].reshape(n, k))
    for tolerance in (1e-1, 1e-6):
        found = nearest_in_norm(form, given, Simplices(sums), np.ones((n, k)), tolerance, step=0.5)
        assert found.gap <= tolerance
        assert np.allclose(found.point.sum(axis=0), sums, rtol=1e-12, atol=0)
        assert found.point.min() >= 0
        away = found.point - best
        assert float((away * form.apply(away)).sum()) <= found.gap + 1e-5
    # a bound at any point, however far from the nearest
    start = Simplices(sums).nearest(rng.standard_normal((n, k)))
    values = [float((p * form.apply(p)).sum() / 2 - (given * p).sum()) for p in (start, best)]
    assert Simplices(sums).promised(start, form.apply(start) - given) >= values[0] - values[1] - 1e-6


@pytest.mark.parametrize("seed", range(10))
def test_norms_are_sums_over_residuals(seed: int) -> None:
    """Against projectors written out, also on fewer cells than columns. Mutant: signs of inclusion and exclusion."""
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(1, 4, 3))
    cells = TableCells(shape)
    weights = np.where(rng.random(len(cells.sets)) < 0.5, rng.random(len(cells.sets)), 0.0)
    matrix = np.zeros((cells.size, cells.size))
    for s, w in zip(cells.sets, weights, strict=True):
        own = np.ones((1, 1))
        for i, n in enumerate(shape):
            even = np.full((n, n), 1 / n)
            own = np.kron(own, np.eye(n) - even if i in s else even)
        matrix += w * own
    rows = rng.standard_normal((2, cells.size))
    assert np.allclose(cells.weigh(weights[None], rows), rows @ matrix, rtol=0, atol=1e-10)
    chosen = np.sort(rng.choice(cells.size, (cells.size + 1) // 2, replace=False))
    form = QuadraticForm.of(cells, cells.coefficients(weights), chosen, 0.5)
    wanted = matrix[np.ix_(chosen, chosen)] + 0.5 * np.eye(len(chosen))
    assert np.allclose(form.apply(np.eye(len(chosen))), wanted, rtol=0, atol=1e-9)
    shift = rng.random(len(chosen)) + 0.1
    assert np.allclose(form.solver(shift)(wanted + np.diag(shift)), np.eye(len(chosen)), rtol=0, atol=1e-8)


@pytest.mark.parametrize("seed", range(30))
def test_a_split_in_whole_numbers_is_the_nearest_there_is(seed: int) -> None:
    """Against all of them. Mutant: units given by fractions alone, without the room that is left."""
    rng = np.random.default_rng(seed)
    most = rng.integers(0, 4, (4, 1))
    wanted = most * rng.random((4, 1))
    total = int(rng.integers(0, most.sum() + 1))
    found = nearest_whole(wanted, most, np.array([total]))
    every = [v for v in itertools.product(*(range(int(m) + 1) for m in most[:, 0])) if sum(v) == total]
    least = min(float(((np.array(v) - wanted[:, 0]) ** 2).sum()) for v in every)
    assert tuple(found[:, 0].tolist()) in every
    assert float(((found - wanted) ** 2).sum()) <= least + 1e-9


@pytest.mark.parametrize("seed", range(20))
def test_whole_families_add_up_and_are_near(seed: int) -> None:
    """Every column exactly; every table along the chain, and every cell, within two of the real numbers. Mutants: the
    halves' sums from the children instead of the parent; what is on the right of a split not lessened by the left."""
    rng = np.random.default_rng(seed)
    cells = TableCells((3, 2, 4))
    steps = splitting_chain(cells, [(), (1,), (0, 2)])
    assert steps == ((1,), (0, 2))
    chosen = np.sort(rng.choice(24, int(rng.integers(1, 24)), replace=False))
    n = int(rng.integers(1, 9))
    sums = rng.integers(1, 30, len(chosen))
    real = rng.gamma(0.3, 1, (n, len(chosen))) + 1e-9
    real *= sums / real.sum(axis=0)
    halves = CellHalves.of(cells, chosen, steps)
    found = whole_family(real, sums, halves)
    assert (found.sum(axis=0) == sums).all()
    assert found.min() >= 0
    assert np.abs(found - real).max() < 2.5
    assert np.abs(found.sum(axis=1) - real.sum(axis=1)).max() < 1 + 1e-9
    for table in ((1,), (0, 1, 2)):
        where = cells.number(table, chosen)
        apart = np.array([np.bincount(where, row) for row in found - real])
        assert np.abs(apart).max() < 2.5
    parts = whole_parts(real[0], round(real[0].sum()), halves)
    assert parts.sum() == round(real[0].sum())
    assert parts.min() >= 0


@pytest.mark.parametrize(("around", "bent"), [(20.0, 0.0), (math.inf, 0.0), (math.inf, 0.8)])
def test_how_much_units_differ_is_what_they_were_drawn_by(around: float, bent: float) -> None:
    """Units of 60 records each, Dirichlet around their group's composition, or multiplied cell by cell by gamma.

    Mutants: the bend alone (it holds rare cells four times too near); records drawn one by one taken to vary by their
    mean, whatever the share of their cell; the noise not taken off; the slope not held at 1.
    """
    rng = np.random.default_rng(5)
    noise, units, size, cells = 4.0, 30, 60, 12
    samples = []
    for _ in range(200):
        share = rng.dirichlet(np.r_[8.0, np.full(cells - 1, 0.7)])
        own = rng.dirichlet(around * share + 1e-9, units) if math.isfinite(around) else np.tile(share, (units, 1))
        counts = rng.multinomial(size, own).astype(float)
        if bent:
            counts = rng.poisson(size * own * rng.gamma(1 / bent, bent, own.shape)).astype(float)
        mean = size * share
        squares = ((counts + rng.normal(0, math.sqrt(noise), counts.shape) - mean) ** 2).mean(axis=0)
        samples.append((mean, squares, noise))
    slope, bend = composition_strength(samples) or (0.0, 0.0)
    if bent:
        assert bend == pytest.approx(bent, rel=0.25)
    else:
        assert slope == pytest.approx(1 + (size - 1) / (around + 1), rel=0.1)
        assert bend < 0.05
    assert slope >= 1


def _given(said: FamilyEstimates, *_: object) -> FamilyEstimates:
    return said


def test_clipped_cells_do_not_push_the_totals_of_units() -> None:
    """Above the lowest level: children of 2,000, 150 and 10 records in 48 cells, many of them empty, totals known to 3.

    Mutant: a total of its own weight alone (the smallest child is pushed up by 1.1 records, all err more than before).
    """
    cells, rng = TableCells((8, 6)), np.random.default_rng(7)
    share = rng.dirichlet(np.full(48, 0.25))
    truth = np.stack([rng.multinomial(n, share) for n in (2000, 150, 10)]).astype(float)
    parent, known = truth.sum(axis=0), truth.sum(axis=1)
    where = np.flatnonzero(parent)
    weights = np.full(len(cells.sets), 1 / 6.0**2)
    weights[0] = 48 / 3.0**2
    off, before = [], []
    for _ in range(40):
        wanted = truth + rng.normal(0, 6, truth.shape)
        wanted += ((known + rng.normal(0, 3, 3) - wanted.sum(axis=1)) / 48)[:, None]
        wanted += (parent - wanted.sum(axis=0)) / 3
        said = FamilyEstimates(wanted, weights.copy())
        told: Any = SimpleNamespace(cells=cells, family=partial(_given, said))
        found = Run(told, [], None, whole=False).children(1, 0, where, parent[where], last=False)
        off.append(found.sum(axis=1) - known)
        before.append(wanted.sum(axis=1) - known)
    assert np.abs(np.mean(off, axis=0)).max() < 0.5
    assert np.mean(np.square(off)) <= 1.01 * np.mean(np.square(before))


@pytest.mark.parametrize("mechanism", ["marginals", "gaussian"])
def test_no_level_errs_more_than_before(mechanism: str) -> None:
    """In the mean over tables and draws, level by level, in real numbers; and in whole ones by half a count at most.

    Mutants: children nearest to their unprojected counts alone (the ladder's error on such a tree is six times that
    before at the root); the second look at every level.
    """
    rng = np.random.default_rng(11)
    rows = grown((3, 5, 12), rng, 0.4)
    work = nested(rows, (3, 4), [[], ["a0"], ["a0", "a1"]])
    x = rng.poisson(4 * rng.gamma(0.4, 2.5, (len(rows), 1, 1)) * rng.gamma(0.3, 3, (1, 3, 4)))
    truth = work.answer(x)
    ends = np.cumsum([q.rows for q in work.blocks])[:-1]
    parts = [q.part for q in work.blocks]
    errors: dict[str, list[FloatArray]] = {"before": [], "real": [], "whole": []}
    plan = sf.plan(work, sf.zcdp("0.5"), neighbours="add-remove", mechanism=mechanism)
    # a part that errs .93 of before errs more in the mean of six draws once in two hundred times, of so many never
    for draw in range(18):
        release = sf.release(plan, sf.Histogram(x), ledger=None, name=str(draw))
        for name, found in (("before", release), ("real", release.project()), ("whole", release.project(integer=True))):
            away = np.split(found.answers - truth, ends)
            errors[name].append(np.array([float((a**2).mean()) for a in away]))
    mean = {name: np.mean(each, axis=0) for name, each in errors.items()}
    for part in dict.fromkeys(parts):
        own = [i for i, p in enumerate(parts) if p == part]
        assert mean["real"][own].mean() <= mean["before"][own].mean() * 1.0001
        assert (np.sqrt(mean["whole"][own]) <= 1.01 * np.sqrt(mean["before"][own]) + 0.5).all()
    leaves = [i for i, p in enumerate(parts) if p == parts[-1]]
    assert mean["whole"][leaves[-1]] < 0.2 * mean["before"][leaves[-1]]


@pytest.mark.parametrize(
    ("sets", "alike"),
    [([[], ["a0"], ["a0", "a1"]], False), ([[], ["a0"], ["a1"]], False), ([["a0"], ["a1"]], True)],
    ids=["cells", "margins", "no total"],
)
def test_no_table_errs_more_than_before_where_units_are_large(sets: list[list[str]], alike: bool) -> None:
    """At every (level, table) by itself, in real numbers.

    Mutants: totals of units at their own weight in the last look (1.05 and 1.02 times the error before, at units);
    residuals of which nothing is known taken for none (2 to 4 times at the root, from margins alone).
    """
    rng = np.random.default_rng(1)
    rows = grown((3, 5, 60), rng, 0.4)
    work = nested(rows, (8, 6), sets)
    own = rng.gamma(0.5, 2, (1, 8, 6)) if alike else rng.gamma(0.3, 1 / 0.3, (len(rows), 8, 6))
    x = rng.poisson(3 * rng.gamma(0.5, 2, (len(rows), 1, 1)) * own)
    truth = work.answer(x)
    ends = np.cumsum([q.rows for q in work.blocks])[:-1]
    plan = sf.plan(work, sf.zcdp("0.5"), neighbours="add-remove", mechanism="marginals")
    squares = np.zeros((2, len(work.blocks)))
    for draw in range(4):
        release = sf.release(plan, sf.Histogram(x), ledger=None, name=str(draw))
        for i, found in enumerate((release, release.project())):
            squares[i] += [float((a**2).mean()) for a in np.split(found.answers - truth, ends)]
    assert (np.sqrt(squares[1]) <= 1.01 * np.sqrt(squares[0])).all()


def test_records_in_places_are_saved(tmp_path: Path) -> None:
    import duckdb

    rng = np.random.default_rng(3)
    work = nested(grown((2, 3)), (2, 3), SETS[0], before=1)
    x = rng.poisson(3.0, work.domain.shape)
    release = released(work, x, "replace-one", "auto")
    whole = release.project(integer=True)
    whole.synthetic().save(file := tmp_path / "microdata.parquet")
    rows = duckdb.connect().execute(f"SELECT place, a0, count(*) FROM '{file}' GROUP BY place, a0").fetchall()
    table = whole.table("place", "a0")
    wanted = {
        (p, a): table.values[i, j]
        for i, p in enumerate(work.domain["place"].labels)
        for j, a in enumerate(work.domain["a0"].labels)
        if table.values[i, j]
    }
    assert {(p, a): n for p, a, n in rows} == wanted
    # real numbers are settled again in whole ones, with the same total
    assert len(release.project().synthetic()) == x.sum() == len(release.synthetic())
    with pytest.raises(InvalidInput, match="leave records out"):
        whole.synthetic(3)
    asked = whole.ask("place in ('1.0', '1.4') and a0 == 1")
    assert asked.value == table.values[[0, 4], 1].sum()
    whole.save(tmp_path / "out")
    again = sf.load(tmp_path / "out")
    assert isinstance(again, sf.Release)
    assert np.array_equal(again.answers, whole.answers)


def test_what_is_no_tree_of_tables_is_refused() -> None:
    domain = sf.Domain({"place": sf.Hierarchy(grown((2, 3)), levels=["state", "county"]), "sex": 2})
    plain = released(sf.marginals(domain, order=1), np.ones((6, 2), dtype=int), "add-remove", "auto")
    with pytest.raises(PlanError, match="levels of one attribute"):
        plain.project(body="spine")
    with pytest.raises(InvalidInput, match="spine"):
        plain.project(body="tree")
    work = sf.marginals(domain, sets=[["state", "sex"], ["state"]])
    release = released(work, np.ones((6, 2), dtype=int), "add-remove", "auto")
    whole = release.project(integer=True)
    assert whole.answers.sum() == 2 * whole.ask("sex == 0 or sex == 1").value
    assert whole.synthetic().attributes == ("state", "sex")
    with pytest.raises(NotAnswerable):
        whole.table("county")
    assert isinstance(whole.projection, Projection)
    with pytest.raises(NotAnswerable, match="no table with age"):
        whole.projection.possible.table(["age"])
    with pytest.raises(PlanError, match="leave space"):
        release.project(body="spine", space="answers")


def test_what_cannot_be_is_nowhere() -> None:
    """Mutant: the root settled on all cells."""
    place = {"place": sf.Hierarchy(grown((2, 3, 3)), levels=["L0", "L1", "L2"])}
    domain = sf.Domain(place | {"a0": 2, "a1": 3}, impossible=["a0 == 1 and a1 == 2"])
    work = sf.marginals(domain, sets=[[], ["a0"], ["a0", "a1"]], factors={"place": "levels"})
    x = np.random.default_rng(0).poisson(1.0, domain.shape)
    x[:, 1, 2] = 0
    whole = released(work, x, "add-remove", "auto").project(integer=True)
    assert whole.projection is not None
    assert whole.projection.body == "spine"
    assert counts_of(whole)[:, 1, 2].sum() == 0
    tied = sf.Domain(place | {"a0": 2}, impossible=["place == '2.0' and a0 == 1"])
    other = sf.marginals(tied, sets=[[], ["a0"]], factors={"place": "levels"})
    with pytest.raises(PlanError, match="impossible by place"):
        released(other, np.ones((len(tied["place"].labels), 2), dtype=int), "add-remove", "auto").project(body="spine")
