"""The projection mechanism: its forecast against what repeated releases show, and releases that are projected."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import sfumato as sf
from sfumato.mechanisms import carry_out as run
from sfumato.mechanisms import projected as projection
from sfumato.operators import Block
from sfumato.planner.planning import compared
from sfumato.postprocess import width as widths
from sfumato.workloads.levels import table_block

BUDGET = sf.approx(1, "1e-6")
SIGNS = np.random.default_rng(7).choice([-1, 1], size=(128, 96))
CUBE = sf.Domain({f"x{i}": sf.Booleans() for i in range(5)})
AGES = sf.Domain({"age": sf.Integers(0, 19), "sex": sf.Booleans()})


def _point(m: int, n: int, atoms: int) -> np.ndarray:
    x = np.zeros(m, dtype=np.int64)
    x[np.random.default_rng(m).choice(m, atoms, replace=False)] = n // atoms
    return x


CASES = [
    (sf.queries(SIGNS), _point(96, 60, 3), "hull"),
    (sf.marginals(CUBE, order=2), _point(32, 60, 2), "hull"),
    (sf.prefix(AGES, "age"), _point(40, 60, 2), "isotonic"),
    (sf.identity(AGES, "age", "sex"), _point(40, 60, 2), "simplex"),
]


@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
@pytest.mark.parametrize(("work", "x", "body"), CASES, ids=["signs", "pairs", "prefix", "cells"])
def test_errors_are_at_most_what_was_forecast(work: sf.Workload, x: np.ndarray, body: str, neighbours: str) -> None:
    """Mutants: the width without the number of records; raw errors of one block; the lever left out."""
    n = int(x.sum())
    plan = sf.plan(work, BUDGET, neighbours=neighbours, mechanism="projection", records=n)
    assert plan.body == ("cone" if body == "hull" and neighbours == "add-remove" else body)
    assert plan.forecast is not None
    truth, raw, after = work.answer(x), [], []
    for _ in range(25):
        release = sf.release(plan, sf.Histogram(x.reshape(work.domain.shape)), ledger=None)
        assert release.projection is not None
        raw.append(np.mean((release.raw.answers - truth) ** 2))
        after.append(np.mean((release.answers - truth) ** 2))
        assert after[-1] <= raw[-1] * (1 + 1e-9)
    # the noise of few answers varies: five standard errors
    slack = 5 * np.std(raw) / np.sqrt(len(raw))
    assert abs(np.mean(raw) - plan.forecast.raw**2) <= slack
    assert np.mean(after) <= plan.rmse**2 + slack
    if plan.forecast.bound is not None:
        assert np.mean(after) <= plan.forecast.bound**2 + 5 * np.std(after) / np.sqrt(len(after))
    assert plan.lower_bound is None
    assert "projects" in str(plan)
    assert plan.candidates["mechanism"][0] == "projection"


def test_others_are_compared_with_what_is_predicted_after_projection() -> None:
    """Mutant: the unprojected objective of the plan in place of its forecast, which says that others err less."""
    work = sf.marginals(sf.Domain({"age": 20, "sex": 2, "place": 12}), order=2)
    plan = sf.plan(work, BUDGET, neighbours="replace-one", mechanism="projection", records=300)
    forecast, *others = plan.candidates.rows()
    assert forecast["rmse"] == plan.rmse < plan.objective_value
    ratios = [row["rmse"] / plan.rmse for row in others if row["rmse"] is not None]
    assert len(ratios) >= 3
    assert min(ratios) > 1.1
    for row, ratio in zip(others, ratios, strict=False):
        assert row["note"] == f"errs {ratio:.3g} times as much"


def test_fewer_records_are_predicted_to_help_more() -> None:
    """Mutant: crossover by the noise without its square."""
    plan = sf.plan(sf.queries(SIGNS), BUDGET, neighbours="replace-one", mechanism="projection", records=10)
    found = plan.forecast
    assert found is not None
    assert found.crossover is not None
    assert found.at(1).rmse < found.at(10).rmse
    found = replace(found, span=None)  # the width's bound alone
    assert found.crossover is not None
    here = round(found.crossover)
    assert found.at(here // 2).bound < found.raw < found.at(2 * here).bound
    assert found.at(here).bound == pytest.approx(found.raw, rel=0.01)
    assert "predicted to help" in found.at(max(1, here // 50)).verdict


def test_the_crossover_is_where_the_verdict_turns() -> None:
    """They contradicted each other, 95 against "helps at 1,000", where the span helps whatever the number is. Seed 8.
    Mutant: a crossover of the noise within the span."""
    rng = np.random.default_rng(8)
    both = set[bool]()
    for _ in range(200):
        span = None if rng.random() < 0.4 else float(rng.uniform(0.5, 1.0))
        lever = 0.0 if rng.random() < 0.5 else float(rng.uniform(0, 0.2))
        found = widths.Forecast("hull", 50, 1.0, float(rng.uniform(0.01, 2)), float(rng.uniform(0, 1)), lever, span)
        assert found.crossover is not None
        for n in (1, 10, 95, 1_000, 10**6):
            helps = found.at(n).verdict.startswith("predicted to help")
            assert helps == (n < found.crossover and found.crossover >= 1), (found, n)
            assert not helps or found.at(n).rmse < found.raw
            both.add(helps)
    assert both == {True, False}


@pytest.mark.parametrize("known", [True, False])
def test_width_bounds_hold_for_the_worst_tables(known: bool) -> None:
    """On every corner and on mixtures, for the simplex and the cone. Mutant: the cone's lever left out."""
    rng = np.random.default_rng(3)
    matrix = np.vstack([np.ones(6), rng.integers(0, 2, size=(5, 6))]).astype(float)
    from sfumato.operators import Dense
    from sfumato.postprocess.cones import project_onto_hull

    operator, sigma, n = Dense(matrix), 4.0, 5

    def draws(count: int) -> np.ndarray:
        return sigma * rng.normal(size=(6, count))

    found = widths.forecast_of_hull("hull", widths.HullCells(operator, total_known=known), draws, sigma, n, count=4096)
    assert found.bound is not None
    worst = 0.0
    for h in (*np.eye(6) * n, np.full(6, n / 6)):
        errors = []
        for z in draws(60).T:
            fitted = project_onto_hull(operator, matrix @ h + z, n if known else None).fitted
            errors.append(np.mean((fitted - matrix @ h) ** 2))
        worst = max(worst, np.mean(errors))
    assert worst <= found.bound**2
    if known:
        assert worst > found.bound**2 / 8, "the bound is no bound to speak of"


def test_binary_pairs_are_forecast_by_the_elliptope() -> None:
    d, n = 26, 40  # above 2^20 cells, up to which the hull serves, and above those on which noise is tried
    public = sf.Domain({f"x{i}": sf.Booleans() for i in range(d)})
    plan = sf.plan(sf.marginals(public, order=2), BUDGET, neighbours="replace-one", mechanism="projection", records=n)
    assert plan.body == "sdp"
    assert plan.forecast is not None
    assert plan.forecast.bound < plan.forecast.raw


def test_plans_are_stored_and_told_apart(tmp_path: Path) -> None:
    work = sf.marginals(CUBE, order=2)
    plan = sf.plan(work, BUDGET, neighbours="replace-one", mechanism="projection", records=50)
    plain = replace(plan, body=None)
    assert plan.fingerprint != plain.fingerprint
    plan.save(tmp_path / "plan")
    again = sf.load(tmp_path / "plan")
    assert again.fingerprint == plan.fingerprint
    assert again.forecast == plan.forecast
    x = _point(32, 50, 2).reshape(CUBE.shape)
    made = sf.release(again, sf.Histogram(x), ledger=None, out=tmp_path / "release")
    stored = sf.load(tmp_path / "release")
    assert stored.answers.tolist() == made.answers.tolist()
    assert stored.projection is not None


def test_what_was_paid_for_is_kept_if_the_projection_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = sf.plan(sf.marginals(CUBE, order=2), BUDGET, neighbours="replace-one", mechanism="projection")

    def fails(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(run.Release, "project", fails)
    made = sf.release(plan, sf.Histogram(_point(32, 50, 2).reshape(CUBE.shape)), ledger=None)
    assert made.projection is None
    assert np.isfinite(made.answers).all()


def test_queries_inside_large_tables_are_left_to_the_release() -> None:
    """Their tables can be made to agree, but in the tables' norm; nothing is proved of the queries then."""
    wide = sf.Domain({f"x{i}": sf.Integers(0, 9, outside="drop", missing="drop") for i in range(8)})
    work = sf.stack(*(sf.prefix(wide, f"x{i}", by=[f"x{(i + 1) % 8}"]) for i in range(8)))
    with pytest.raises(sf.errors.PlanError, match="mechanism='projection'"):
        sf.plan(work, BUDGET, neighbours="add-remove", mechanism="projection")
    plan = sf.plan(work, BUDGET, neighbours="add-remove")
    rows = np.random.default_rng(0).integers(0, 3, size=(200, 8))
    pandas = pytest.importorskip("pandas")
    made = sf.release(plan, pandas.DataFrame(rows, columns=list(wide.names)), ledger=None).project()
    assert made.projection is not None
    assert made.projection.body == "local"
    tables = [made.table(f"x{i}") for i in range(8)]
    assert min(t.values.min() for t in tables) >= -1e-9
    assert np.ptp([t.values.sum() for t in tables]) < 1e-6
    # in the norm of the tables, the total as one more that weighs as all cells: nearer the truth in every release
    pairs = [(i, (i + 1) % 8) for i in range(8)]
    cells = np.concatenate([np.bincount(rows[:, i] * 10 + rows[:, j], minlength=100) for i, j in pairs])
    total, table = Block((), ()), table_block(wide, ("x0", "x1"))
    weight = 800 * np.mean(made.raw.variances(table)) / np.mean(made.raw.variances(total))
    far = [
        sum(((_pair(r, i, j) - c) ** 2).sum() for (i, j), c in zip(pairs, cells.reshape(8, 100), strict=True))
        + weight * (float(r.answer_block(total)[0]) - 200) ** 2
        for r in (made, made.raw)
    ]
    assert far[0] < far[1]


def _pair(release: sf.Release, i: int, j: int) -> np.ndarray:
    return np.asarray(release.table(f"x{i}", f"x{j}").values).reshape(-1)


def test_many_tables_are_projected_together() -> None:
    wide = sf.Domain({f"x{i}": sf.Integers(0, 3, outside="drop", missing="drop") for i in range(12)})
    plan = sf.plan(sf.marginals(wide, order=2), BUDGET, neighbours="add-remove", mechanism="projection", records=150)
    assert plan.body == "local"
    rows = np.random.default_rng(1).integers(0, 2, size=(150, 12))
    pandas = pytest.importorskip("pandas")
    made = sf.release(plan, pandas.DataFrame(rows, columns=list(wide.names)), ledger=None)
    pairs = [(i, j) for i in range(12) for j in range(i + 1, 12)]
    truth = np.concatenate([np.bincount(rows[:, i] * 4 + rows[:, j], minlength=16) for i, j in pairs])
    assert np.linalg.norm(made.answers - truth) < np.linalg.norm(made.raw.answers - truth)
    assert made.answers.min() >= -1e-9


def test_simulated_releases_are_projected_too() -> None:
    work, x, _ = CASES[1]
    plan = sf.plan(work, BUDGET, neighbours="replace-one", mechanism="projection", records=60)
    seen = sf.simulate(plan, x, 40, 1)
    assert seen.rmse < 0.8 * plan.forecast.raw
    assert seen.rmse <= plan.rmse * 1.1
    assert seen.coverage > 0.93


@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
@pytest.mark.parametrize("mechanism", ["gaussian", "factorization", "marginals"])
def test_errors_drawn_from_their_covariance_are_those_of_releases(
    monkeypatch: pytest.MonkeyPatch, mechanism: str, neighbours: str
) -> None:
    """Mutants: deviations in place of the covariance; the same draws in every call; pivots not undone."""
    work = sf.stack(sf.marginals(CUBE, order=1), sf.marginals(CUBE, sets=[("x0", "x1", "x4"), ("x2", "x3")]))
    plan = sf.plan(work, BUDGET, neighbours=neighbours, mechanism=mechanism)
    draw = projection._error_sampler(plan)
    found = np.concatenate([draw(2_000) for _ in range(4)], axis=1)
    assert not np.array_equal(found[:, :2_000], found[:, 2_000:4_000])
    monkeypatch.setattr(projection, "_ROOT_ANSWERS", 0)
    release = projection._error_sampler(plan)
    made = np.concatenate([release(100), release(100)], axis=1)
    assert not np.array_equal(made[:, :100], made[:, 100:])
    blocks = [q.block for q in work.blocks]
    exact = np.block([[plan.strategy.covariance(a, b) for b in blocks] for a in blocks]) * plan.noise.variance
    deviation = np.sqrt(np.maximum(np.diag(exact), 1e-9))
    scale = np.multiply.outer(deviation, deviation)
    for drawn in (found, made):
        # entries of a sample covariance have deviations of at most sqrt(2 / draws)
        apart = np.abs(drawn @ drawn.T / drawn.shape[1] - exact) / scale
        assert apart.max() < 6 * np.sqrt(2 / drawn.shape[1])


def test_the_projection_mechanism_as_taught_measures_the_queries() -> None:
    """strategy= under mechanism='projection' is what is measured. Mutant: it is dropped for the best plan."""
    work = sf.prefix(AGES, "age")
    taught = compared(work, BUDGET, neighbours="replace-one", mechanism="projection", strategy="queries", records=60)
    plain = sf.plan(work, BUDGET, neighbours="replace-one", strategy="queries")
    best = sf.plan(work, BUDGET, neighbours="replace-one", mechanism="projection", records=60)
    assert (taught.mechanism, taught.body, taught.strategy.summary) == (
        "projection",
        "isotonic",
        plain.strategy.summary,
    )
    assert taught.forecast is not None
    assert best.forecast is not None
    assert taught.forecast.raw == pytest.approx(plain.rmse)
    assert best.forecast.raw < 0.9 * taught.forecast.raw
    assert taught.candidates["mechanism"][0] == "projection"
    assert "factorization" in taught.candidates["mechanism"]
    own = sf.plan(work, BUDGET, neighbours="replace-one", mechanism="projection", strategy=np.eye(40), records=60)
    assert own.strategy.summary == "a given strategy"
    x = _point(40, 60, 2)
    made = sf.release(taught, sf.Histogram(x.reshape(AGES.shape)), ledger=None)
    assert made.projection is not None
    assert np.all(np.diff(made.answers) >= -1e-9)
