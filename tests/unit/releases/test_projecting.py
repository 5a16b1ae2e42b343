"""A projected release: possible answers everywhere, the raw ones beside them, intervals that still hold."""

from pathlib import Path

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import InvalidInput, PlanError

DOMAIN = sf.Domain({"age": sf.Integers(0, 9), "place": sf.Categories(list("xyz")), "sex": sf.Booleans()})
WORK = sf.stack(pairs=sf.marginals(DOMAIN, order=2), ages=sf.prefix(DOMAIN, "age"))
COUNTS = np.random.default_rng(1).multinomial(100, np.random.default_rng(2).dirichlet(np.ones(60) * 0.2))
TRUTH = WORK.answer(COUNTS)


def released(neighbours: str = "replace-one", mechanism: str = "auto", epsilon: object = 1) -> sf.Release:
    plan = sf.plan(WORK, sf.approx(epsilon, "1e-6"), neighbours=neighbours, mechanism=mechanism)
    return sf.release(plan, sf.Histogram(COUNTS.reshape(DOMAIN.shape)), ledger=None)


@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
@pytest.mark.parametrize("mechanism", ["auto", "gaussian"])
@pytest.mark.parametrize("space", ["answers", "measurements"])
def test_projected_answers_are_possible_and_no_farther(neighbours: str, mechanism: str, space: str) -> None:
    raw = released(neighbours, mechanism)
    projected = raw.project(space=space)
    found = projected.projection
    assert found is not None
    assert found.realisable
    assert found.cells is not None
    assert found.cells.min() >= 0
    assert np.allclose(WORK.answer(found.cells.reshape(-1)), projected.answers)
    if neighbours == "replace-one":
        assert found.cells.sum() == pytest.approx(100)
    if space == "answers":
        away, before = np.linalg.norm(projected.answers - TRUTH), np.linalg.norm(raw.answers - TRUTH)
        assert away <= before + np.sqrt(found.gap) + 1e-9
        assert found.moved == pytest.approx(np.linalg.norm(projected.answers - raw.answers), rel=1e-6)
    assert projected.raw.answers.tolist() == raw.answers.tolist()
    assert projected.standard_errors() is None


def test_every_question_is_answered_from_one_table() -> None:
    raw = released()
    projected = raw.project()
    table = projected.table("place", "age")
    assert table.standard_errors is None
    assert table.values.min() >= 0
    assert projected.ask("age <= 3").value == pytest.approx(table.values[:, :4].sum())
    assert projected.ask("age <= 3").standard_error is None
    assert projected["ages"].answers == pytest.approx(table.values.sum(axis=0).cumsum())
    assert projected["ages"].raw.answers.tolist() == raw["ages"].answers.tolist()
    frame = projected.ask(sf.identity(DOMAIN, "sex"))
    assert sum(frame["answer"]) == pytest.approx(100)
    assert frame["standard_error"] == [None, None]
    shares = projected.share("sex")
    assert sum(shares["share"]) == pytest.approx(1)
    listed = projected.frame()
    assert listed["unprojected"] == raw.answers.tolist()
    assert listed["standard_error"][0] is None
    batches = list(projected.batches())
    assert np.concatenate([b.values.reshape(-1) for b in batches]) == pytest.approx(projected.answers)
    median = projected.quantiles("age", [0.5])
    assert median["low"][0] <= median["quantile"][0] <= median["high"][0]
    assert "projected" in projected.explain()


@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
def test_intervals_hold_as_the_raw_ones_do(neighbours: str) -> None:
    held, raw_held, wide = [], [], []
    for _ in range(12):
        raw = released(neighbours, epsilon="0.5")
        projected = raw.project()
        ends, before = projected.intervals(0.9), raw.intervals(0.9)
        assert (ends.low <= projected.answers).all()
        assert (projected.answers <= ends.high).all()
        assert (ends.low >= np.minimum(0, projected.answers) - 1e-9).all()
        if neighbours == "replace-one":
            assert (ends.high <= 100 + 1e-9).all()
        inside, was = (ends.low <= TRUTH) & (ends.high >= TRUTH), (before.low <= TRUTH) & (before.high >= TRUTH)
        assert (inside | ~was).all(), "clipping to what is possible lost the truth"
        held.append(inside.mean())
        raw_held.append(was.mean())
        wide.append((ends.high - ends.low).mean() / (before.high - before.low).mean())
    assert np.mean(held) >= np.mean(raw_held)
    assert np.mean(held) > 0.8
    assert np.mean(wide) < 0.95, "what is possible should shorten intervals at so few records"


def test_a_projected_release_is_stored_whole(tmp_path: Path) -> None:
    projected = released().project()
    projected.save(tmp_path / "release")
    again = sf.load(tmp_path / "release")
    assert again.answers.tolist() == projected.answers.tolist()
    assert again.raw.answers.tolist() == projected.raw.answers.tolist()
    assert again.projection is not None
    assert again.projection.gap == projected.projection.gap
    assert again.table("sex").values.tolist() == projected.table("sex").values.tolist()


def test_bad_input_is_refused() -> None:
    raw = released()
    with pytest.raises(PlanError, match="public number of records"):
        raw.project(total=99)
    with pytest.raises(PlanError, match="space must be"):
        raw.project(space="cells")
    with pytest.raises(InvalidInput, match="body must be one of"):
        raw.project(body="ball")
    known = released("add-remove").project(total=100)
    assert known.projection.cells.sum() == pytest.approx(100)
