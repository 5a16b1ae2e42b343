"""Sums of measures projected onto those of records with values: nearer, possible, and with records from them."""

from __future__ import annotations

import functools
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import nnls

import sfumato as sf
from sfumato.errors import InvalidInput, PlanError
from sfumato.postprocess.projection import Projection
from sfumato.postprocess.values import ValueCounts, project_values

GROUP = sf.Integers(0, 4, outside="clamp", missing="other")
ENDS = {"v": (0, 20, 100), "w": (-5, 5)}


def _domain() -> sf.Domain:
    return sf.Domain({"g": GROUP}, measures={"v": sf.Measure(0, 100, knots=[20]), "w": sf.Measure(-5, 5)})


def _frame(seed: int, n: int = 400) -> pd.DataFrame:
    rng = np.random.default_rng([157, seed])
    g = rng.integers(0, 5, n)
    v = rng.lognormal(2 + 0.4 * g, 0.8)
    frame = pd.DataFrame({"g": g, "v": v, "w": 0.05 * v + rng.normal(-1, 0.5 + g % 2, n)})
    frame.loc[rng.random(n) < 0.04, "w"] = np.nan
    return frame


def _work(what: str) -> sf.Workload:
    domain = _domain()
    asked = {
        "means": lambda: sf.means(domain, "v", by="g"),
        "moments": lambda: sf.stack(
            sf.moments(domain, "w", by="g"), sf.moments(domain, "w"), sf.marginals(domain, upto=1)
        ),
        "pair": lambda: sf.moments(domain, ["v", "w"], by="g"),
        "gaps": lambda: sf.stack(sf.gaps(domain, "v", at=20, by="g"), sf.moments(domain, "v", by="g")),
    }
    return asked[what]()


@functools.cache
def _plan(what: str, unit: str) -> sf.Plan:
    return sf.plan(_work(what), sf.approx("1/2", "1e-6"), neighbours=unit)


def _released(what: str, seed: int, n: int = 400, unit: str = "add-remove") -> sf.Release:
    return sf.release(_plan(what, unit), _frame(seed, n), ledger=None)


def _shares(name: str, numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """(records, cells) shares as decisions 136 and 152 define them, in doubles."""
    ends = np.array(ENDS[name], dtype=float)
    out = np.zeros((len(numbers), 2 * len(ends)))
    for row, v in zip(out, numbers, strict=True):
        if np.isnan(v):
            row[-1] = 1
            continue
        v = min(max(v, ends[0]), ends[-1])
        p = min(int(np.searchsorted(ends, v, side="right")) - 1, len(ends) - 2)
        u = (v - ends[p]) / (ends[p + 1] - ends[p])
        row[2 * p : 2 * p + 3] = (1 - u) ** 2, 2 * u * (1 - u), u * u
    return out


def _columns(work: sf.Workload, each: pd.DataFrame) -> np.ndarray[Any, Any]:
    """(queries, records) the answers of every record by itself."""
    out = []
    for q in work.blocks:
        cells = np.ones((len(each), 1))
        for name in q.attributes:
            column = each[name].to_numpy()
            side = np.eye(work.domain[name].size)[column] if name == "g" else _shares(name, column)
            cells = (cells[:, :, None] * side[:, None, :]).reshape(len(each), -1)
        out.append(np.asarray(q.block.operator.matvec(cells.T), dtype=float))
    return np.concatenate(out)


def _answers(work: sf.Workload, frame: pd.DataFrame) -> np.ndarray[Any, Any]:
    """What the queries of a workload are of all records."""
    return _columns(work, frame).sum(axis=1)


def _variances(release: sf.Release) -> np.ndarray[Any, Any]:
    """(queries,) of a release; what the number of records alone tells weighs nothing, as it is right."""
    blocks = [q.block for q in release.plan.workload.blocks]
    shaped = [np.broadcast_to(release.variances(b), [f.shape[0] for f in b.factors]).reshape(-1) for b in blocks]
    found = np.concatenate(shaped)
    return np.where(found > 1e-12, found, 1.0)


def _found(release: sf.Release) -> Projection:
    assert release.projection is not None
    return release.projection


@pytest.mark.parametrize("what", ["means", "moments", "pair", "gaps"])
@pytest.mark.parametrize("unit", ["add-remove", "replace-one"])
def test_projected_sums_err_less(what: str, unit: str) -> None:
    """Never more in all, in units of the noise and in units of the ranges. Mutants: places without the upper end;
    answers that are not weighed by their errors; shares of the next piece."""
    before, after = np.zeros(2), np.zeros(2)
    for seed in range(6 if what == "pair" else 20):
        release = _released(what, seed, unit=unit)
        truth, variances = _answers(_work(what), _frame(seed)), _variances(release)
        largest = [np.full(q.rows, q.block.operator.max_abs) for q in release.plan.workload.blocks]
        scales = np.stack([variances, np.concatenate(largest) ** 2])
        projected = release.project()
        raw, near = (((r.answers - truth) ** 2 / scales).sum(axis=1) for r in (release, projected))
        assert near[0] <= 1.01 * raw[0]
        before, after = before + raw, after + near
        assert _found(projected).gap <= 0.05 * len(truth)
    assert (after <= 0.98 * before).all()


@pytest.mark.parametrize("seed", range(6))
def test_moments_are_possible(seed: int) -> None:
    """No variance is negative and no correlation beyond 1, though the raw ones are. Mutant: the raw answers."""
    release = _released("pair", seed, n=60)
    impossible = 0
    for found in (release, release.project()):
        n, x, xx, y, yy, xy = _by_name(found)
        held = n > 1e-6
        m = np.where(held, n, 1.0)
        vx, vy, c = (np.where(held, s / m - a * b / m**2, 0.0) for s, a, b in ((xx, x, x), (yy, y, y), (xy, x, y)))
        wrong = (vx < -1e-6) | (vy < -1e-8) | (c**2 > vx * vy + 1e-6) | (n < -1e-9)
        if found is release:
            impossible = int(wrong.sum())
        else:
            assert not wrong.any()
    assert impossible > 0


def test_statistics_of_a_projected_release_are_of_what_is_shown() -> None:
    """Their intervals are the raw ones, extended to them. Mutants: the raw value; the interval of the projected one."""
    release = _released("pair", 1, n=500)
    projected = release.project()
    by = list(release.plan.workload.domain.dimensions)
    one, other = release.plan.workload.domain.measures
    n, x, xx, *_ = _by_name(projected)
    for ask in (
        lambda r: r.variance(one, by=by),
        lambda r: r.std(one, by=by),
        lambda r: r.correlation(one, other, by=by),
        lambda r: r.covariance_between(one, other, by=by),
    ):
        raw, shown = ask(release), ask(projected)
        (name,) = [c for c in raw.columns if one in c]
        moved = 0
        for k, value in enumerate(shown[name]):
            if value is None:
                continue
            moved += value != raw[name][k]
            assert shown["low"][k] == pytest.approx(min(raw["low"][k], value))
            assert shown["high"][k] == pytest.approx(max(raw["high"][k], value))
            if name.startswith("variance"):
                unit = xx[k] / n[k] - (x[k] / n[k]) ** 2
                assert value == pytest.approx(unit, rel=1e-6, abs=1e-9)
        assert moved


def test_curves_of_a_projected_release_are_of_what_is_shown() -> None:
    """The same of Gini indices and Lorenz curves. Mutant: the raw value."""
    release = _released("gaps", 2, n=500)
    projected = release.project()
    moved = 0
    for ask, name in ((lambda r: r.gini("v", by="g"), "gini v"), (lambda r: r.lorenz("v", [0.5], by="g"), "lorenz v")):
        raw, shown = ask(release), ask(projected)
        for k, value in enumerate(shown[name]):
            if value is not None:
                moved += value != raw[name][k]
                assert shown["low"][k] == pytest.approx(min(raw["low"][k], value))
                assert shown["high"][k] == pytest.approx(max(raw["high"][k], value))
    assert moved


def _by_name(release: sf.Release) -> list[np.ndarray[Any, Any]]:
    """n, x, x^2, y, y^2 and xy, each (groups,), in the order of the workload's parts."""
    return [np.asarray(release.answer_block(q.block)) for q in release.plan.workload.blocks]


@pytest.mark.parametrize("unit", ["add-remove", "replace-one"])
def test_nothing_possible_is_nearer_than_the_gap_says(unit: str) -> None:
    """Held against least squares over 800 places in each piece. Mutant: the gap of 17 places by themselves."""
    for seed in range(4):
        release = _released("gaps", seed, unit=unit)
        work, found = release.plan.workload, _found(release.project())
        ends = ENDS["v"]
        places = np.unique(np.concatenate([np.linspace(a, b, 801) for a, b in itertools.pairwise(ends)]))
        numbers = np.append(places, np.nan)
        each = pd.DataFrame({"g": np.repeat(np.arange(6), len(numbers)), "v": np.tile(numbers, 6)})
        columns = _columns(work, each)
        scale = 1 / np.sqrt(_variances(release))
        matrix, target = scale[:, None] * columns, scale * release.answers
        total = release.measurement.total
        if total is not None:  # held by a heavy row
            matrix = np.vstack([matrix, np.full(matrix.shape[1], 1e3)])
            target = np.append(target, 1e3 * total)
        cells, _ = nnls(matrix, target, maxiter=100_000)
        best = scale * (columns @ cells)
        assert float(np.sum((best - scale * found.answers) ** 2)) <= found.gap + 1e-3
        least = float(np.sum((best - scale * release.answers) ** 2))
        assert least <= found.moved**2 + 1e-3


def test_values_between_places_count() -> None:
    """A table of one value between two places: what 17 places lack is found by halving. Mutant: no halving."""
    domain = sf.Domain({}, measures={"w": sf.Measure(-5, 5)})
    work = sf.moments(domain, "w")
    n, t = 100_000, (1.234 + 5) / 10
    shares = np.array([(1 - t) ** 2, 2 * t * (1 - t), t * t, 0.0]) * n
    truth = np.concatenate([np.asarray(q.block.operator.matvec(shares), dtype=float) for q in work.blocks])
    for total in (None, float(n)):
        found, table = project_values(work, truth, np.array([1.0, 25.0, 625.0]), total)
        assert found.gap < 0.01
        assert np.abs(table.restored(found).answers - truth).max() < 1


def test_a_projection_is_kept_and_rounded(tmp_path: Path) -> None:
    """Everything comes back from a folder; whole counts are whole. Mutants: places that are not stored; rounding of
    shares in place of records."""
    release = _released("pair", 1)
    projected = release.project()
    held = _found(projected).possible
    assert isinstance(held, ValueCounts)
    projected.save(tmp_path / "r")
    again = sf.load(tmp_path / "r")
    assert again.answers.tolist() == projected.answers.tolist()
    assert again.synthetic().frame().to_pandas().equals(projected.synthetic().frame().to_pandas())
    whole = _found(release.project(integer=True)).possible
    assert isinstance(whole, ValueCounts)
    counts = whole.held.table(("g",))
    assert np.array_equal(counts, np.rint(counts))
    ends = projected.intervals()
    assert ((ends.low <= projected.answers + 1e-9) & (projected.answers <= ends.high + 1e-9)).all()


@pytest.mark.parametrize("what", ["means", "moments", "pair", "gaps"])
def test_records_have_the_means_and_spreads_that_were_released(what: str, tmp_path: Path) -> None:
    """Of a table of 2,000 records. Mutants: records at the cells of a measure in place of values; places numbered from
    the wrong end."""
    release = _released(what, 2, n=2_000).project()
    records = release.synthetic()
    table = records.frame().to_pandas()
    name = "w" if what == "moments" else "v"
    assert table[name].between(ENDS[name][0], ENDS[name][-1]).sum() + table[name].isna().sum() == len(table)
    means = release.mean(name, by="g").to_pandas()[f"mean {name}"].to_numpy(dtype=float)
    both = table.dropna(subset=[c for c in ("v", "w") if c in table])
    own = both.groupby("g")[name].mean()
    span = ENDS[name][-1] - ENDS[name][0]
    for g in range(5):
        assert abs(own[str(g)] - means[g]) <= 0.01 * span
    if what == "pair":
        found = dict(zip(["n", "v", "vv", "w", "ww", "vw"], _by_name(release), strict=True))
        for g in range(5):
            n = found["n"][g]
            variance = found["vv"][g] / n - (found["v"][g] / n) ** 2
            assert both[both.g == str(g)].v.var(ddof=0) == pytest.approx(variance, abs=0.01 * span**2)
    for path in (tmp_path / "r.csv", tmp_path / "r.parquet"):
        records.save(path)
        read = pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path)
        assert read[name].dtype == np.float64
        assert np.allclose(read[name], table[name], equal_nan=True)
    assert len(release.synthetic(100)) == 100


def test_what_is_not_projected_is_refused_in_words() -> None:
    """Mutants: a norm that weighs counts and money alike; a table too large that is tried all the same."""
    release = _released("means", 0)
    for body in ("local", "simplex", "sdp", "mixtures"):
        with pytest.raises(InvalidInput, match="sums of measures"):
            release.project(body)
    with pytest.raises(PlanError, match="weighed by its own error"):
        release.project(space="answers")
    names = [f"a{i}" for i in range(4)]
    wide = sf.Domain(
        {n: sf.Integers(0, 30, outside="clamp", missing="other") for n in names}, measures={"v": sf.Measure(0, 1)}
    )
    work = sf.stack(*(sf.means(wide, "v", by=n) for n in names))
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({n: rng.integers(0, 31, 50) for n in names} | {"v": rng.random(50)})
    many = sf.release(sf.plan(work, sf.gdp(1), neighbours="add-remove"), frame, ledger=None)
    with pytest.raises(InvalidInput, match="above the limit"):
        many.project()


def test_a_regression_of_a_projected_release_is_of_its_sums() -> None:
    """The slope is the projected covariance over the projected variance, R² the square of the correlation, and the
    constant goes with the projected means; intervals hold these and all of the raw ones'. Mutants: coefficients of the
    raw moments; intervals of the projected ones, as if these had their noise; shown values in units of ranges.
    Of one release all groups may be blank, by chance; of four hardly ever."""
    assert sum(map(_compared_regressions, range(4)))


def _compared_regressions(seed: int) -> int:
    """In how many groups a projected release told a regression, each held against its sums."""
    release = _released("pair", seed, n=1_500)
    projected = release.project()
    raw, own = (r.regression("v", "w", by="g").to_pandas() for r in (release, projected))
    within = projected.covariance_between("v", "w", by="g").to_pandas()
    r = projected.correlation("v", "w", by="g").to_pandas()["correlation v and w"]
    of_pair = dict(zip(["n", "v", "vv", "w", "ww", "vw"], _by_name(projected), strict=True))
    told = 0
    for g in range(5):
        at = own[own.g == str(g)].reset_index(drop=True)
        before = raw[raw.g == str(g)].reset_index(drop=True)
        if at.value.isna().any():
            continue
        told += 1
        n = of_pair["n"][g]
        variance = of_pair["ww"][g] / n - (of_pair["w"][g] / n) ** 2
        slope = float(within["covariance v and w"][g]) / variance
        constant = 50 + of_pair["v"][g] / n - slope * of_pair["w"][g] / n
        assert list(at.value.astype(float)) == pytest.approx([constant, slope, float(r[g]) ** 2], rel=1e-6, abs=1e-6)
        assert (at.low <= np.minimum(at.value, before.low) + 1e-9).all()
        assert (at.high >= np.maximum(at.value, before.high) - 1e-9).all()
    return told
