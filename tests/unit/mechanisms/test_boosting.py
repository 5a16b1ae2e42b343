"""Boosting for queries: draws by misses, models of what was drawn, medians."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.measurements import Measurement, Selection
from sfumato.mechanisms.research import boosting
from sfumato.plans.iterative import IterativePlan
from sfumato.postprocess.possible import CellCounts, Medians
from sfumato.privacy.accounting import event_price
from sfumato.privacy.amounts import Currency
from support.words import plan_with

DOMAIN = sf.Domain({"a": sf.Categories(["x", "y"]), "b": sf.Integers(0, 2), "c": sf.Booleans()})
TABLE = np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]) * 10
WORK = sf.marginals(DOMAIN, order=2)


def planned(budget: sf.Budget, neighbours: str = "replace-one", **options: Any) -> IterativePlan:
    return plan_with(WORK, budget, neighbours=neighbours, mechanism="boosting", **options)


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_without_noise_what_is_drawn_is_found(neighbours: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every query is drawn once. Mutants: rows of a block in another order; answers of another table."""
    every = iter(range(16))
    monkeypatch.setattr(boosting, "draw_below", lambda _: next(every))
    release = sf.release(planned(sf.zcdp(10**6), neighbours, rounds=1), sf.Histogram(TABLE), ledger=None)
    assert np.abs(release.answers - WORK.answer(TABLE)).max() < 0.5


def test_answers_are_medians_of_the_rounds() -> None:
    release = sf.release(planned(sf.zcdp(1), rounds=3), sf.Histogram(TABLE), ledger=None)
    assert isinstance(release.model, Medians)
    each = [np.concatenate([m.answer(q.block) for q in WORK.blocks]) for m in release.model.members]
    assert release.answers == pytest.approx(np.median(each, axis=0))
    assert len(each) == 3


def test_the_first_round_is_drawn_without_looking_and_others_by_looks() -> None:
    release = sf.release(planned(sf.zcdp(1), rounds=3), sf.Histogram(TABLE), ledger=None)
    kinds = [type(m) for m in release.measurement]
    assert kinds == [Measurement, Measurement, *[Selection] * 16, Measurement, *[Selection] * 16, Measurement]


def test_draws_cost_what_the_weights_move_by() -> None:
    """c_t = 2 alpha t / ceiling for one record, rho = c_t^2 / 2 a draw [mathematics S11.4]. Mutant: t forgotten."""
    plan = planned(sf.zcdp("0.0243560"), rounds=5)
    course = plan.course
    alpha = math.log(3) / 2
    for t in range(1, 5):
        c = 2 * alpha * t / course.ceiling
        assert float(course.draw(t).epsilon) == pytest.approx(2 * c, rel=0.01)
        assert course.draw(t).epsilon == t * course.selection.epsilon
    drawn = sum((k.count * event_price(k.price, Currency.RHO) for k in plan.looks[1:-1]), start=Fraction(0))
    assert drawn == pytest.approx(0.0243560 / 2)


def test_what_is_missed_is_drawn_more_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one model that misses some queries alone, not those of large counts. Mutants: the sign of misses turned;
    answers drawn by, not how far a model is from them."""
    far = TABLE.reshape(2, 3, 2).astype(float)
    far[0, 0] = far[0, 0, ::-1]
    monkeypatch.setattr(boosting, "_project_measured", lambda *_: CellCounts(("a", "b", "c"), far))
    plan = planned(sf.zcdp(10**4), rounds=2)
    release = sf.release(plan, sf.Histogram(TABLE), ledger=None)
    drawn = np.bincount([m.chosen for m in release.measurement if isinstance(m, Selection)], minlength=16)
    misses = np.abs(WORK.answer(TABLE) - WORK.answer(far))
    assert plan.course.floor + plan.course.ceiling < 20
    assert set(misses.tolist()) == {0.0, 20.0}
    assert drawn[misses == 0].sum() <= 1


def test_attributes_that_were_not_drawn_are_taken_to_be_uniform() -> None:
    first = sf.identity(DOMAIN, "b").blocks[0].block
    measured = Measurement((first,), (np.array([10, 20, 30]),), sf.plan(WORK, sf.gdp(1), neighbours="add-remove").noise)
    from sfumato.mechanisms.iterative import AskedQueries
    from sfumato.privacy.accounting import GaussianEvent

    plan = planned(sf.zcdp(1))
    asked = AskedQueries(WORK, plan.unit, GaussianEvent(Fraction(1)))
    found = boosting._project_measured(WORK, asked, measured, 60.0)
    assert found.table(("b",)) == pytest.approx([10, 20, 30])
    assert found.values[0, 1, 1] == pytest.approx(5)


def test_medians_are_of_answers() -> None:
    members = tuple(CellCounts(("a",), np.array(v, dtype=float)) for v in ([0, 9], [1, 5], [5, 0]))
    held = Medians(members)
    assert held.table(("a",)).tolist() == [1, 5]
    assert float(held.table(())) == 6


@pytest.mark.parametrize(
    ("options", "words"),
    [({"strategy": "queries"}, "strategy="), ({"noise": "gaussian"}, "noise="), ({"rounds": 1.5}, "rounds must")],
)
def test_what_it_does_not_take_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(sf.errors.PlanError, match=words):
        planned(sf.zcdp(1), **options)


def test_sizes_beyond_explicit_cells_are_refused() -> None:
    big = sf.marginals(sf.Domain({f"a{i}": sf.Integers(0, 9) for i in range(5)}), order=1)
    with pytest.raises(sf.errors.PlanError, match="100,000"):
        sf.plan(big, sf.zcdp(1), neighbours="add-remove", mechanism="boosting")
    with pytest.raises(sf.errors.PlanError, match="depends on any one record"):
        sf.plan(sf.total(DOMAIN), sf.zcdp(1), neighbours="replace-one", mechanism="boosting")


@pytest.mark.parametrize(("k", "rounds"), [(2, 5), (16, 20), (1_000, 49)])
def test_rounds_turn_good_averages_into_good_answers(k: int, rounds: int) -> None:
    """[DRV10] with the weights in full: whoever spoils a quarter of each round's distribution, no median is spoilt.

    After so many rounds, where sqrt(3/4) each has shrunk the weights to below one query's; with a round less the sum
    allows it. Mutants: an eta of 1/8; the root forgotten.
    """
    assert boosting.rounds_for_all_queries(k) == rounds
    assert k * 0.75 ** (rounds / 2) < 1 <= k * 0.75 ** ((rounds - 1) / 2)
    alpha, rng = math.log(3) / 2, np.random.default_rng(k)
    spoilt, weights = np.zeros(k), np.ones(k)
    for _ in range(rounds):
        left = weights.sum() / 4
        # the most often spoilt first, of queries that still fit
        for q in np.lexsort((rng.random(k), weights, -spoilt)):
            if weights[q] <= left:
                left -= weights[q]
                spoilt[q] += 1
                weights[q] *= math.exp(2 * alpha)
        weights *= math.exp(-alpha)
    assert spoilt.max() < rounds / 2


def test_the_plan_prints_what_boosting_promises_of_good_models() -> None:
    text = str(planned(sf.zcdp(1), rounds=3))
    course = planned(sf.zcdp(1), rounds=3).course
    assert "once 20 rounds (here 3)" in text
    assert f"misses by more than {course.floor + course.ceiling + 1:,} [DRV10]" in text
