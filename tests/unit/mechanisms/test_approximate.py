"""Plans and releases of biased answers: what they state of the bias, and intervals that hold on the worst tables."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

import sfumato as sf
from sfumato.errors import PlanError
from sfumato.operators.base import FloatArray
from sfumato.planner.inverse import plan_for
from sfumato.plans.predictions import interval_margins, simultaneous_confidence
from sfumato.present import write_report
from sfumato.privacy.noise import DiscreteLaplace, RoundedGaussian
from support.words import plan_with

BUDGET = sf.approx(1, "1e-6")
RELATIONS = pytest.mark.parametrize("relation", ["add-remove", "replace-one"])


def made(relation: str = "add-remove", records: int = 20, work: sf.Workload | None = None) -> sf.Plan:
    work = sf.disjunctions(3) if work is None else work
    return sf.plan(work, BUDGET, neighbours=relation, mechanism="approximate", records=records)


def deviations(plan: sf.Plan) -> FloatArray:
    off = plan.strategy.deviations(plan.workload.blocks[0].block)
    assert off is not None
    return off


@RELATIONS
def test_intervals_hold_on_the_worst_tables(relation: str) -> None:
    plan = made(relation)
    off = deviations(plan)
    for query in np.argsort(-off.max(axis=1))[:3]:
        table = np.zeros(8, dtype=np.int64)
        table[off[query].argmax()] = 20
        seen = sf.simulate(plan, table, repetitions=4000, confidence=0.9)
        error = plan.standard_errors()[query] / np.sqrt(4000)
        assert abs(abs(seen.mean_error[query]) - plan.bias_bounds()[query]) < 5 * error
        deviation = np.sqrt(seen.per_query_rmse[query] ** 2 - seen.mean_error[query] ** 2)
        assert deviation == pytest.approx(plan.standard_errors()[query], rel=0.06)
        # there the interval has no slack: what lies beyond it does so on one side
        width, bias = plan.half_widths(0.9)[query], plan.bias_bounds()[query]
        sigma = plan.standard_errors()[query]
        assert norm.cdf((width - bias) / sigma) - norm.cdf((-width - bias) / sigma) == pytest.approx(0.9, abs=1e-9)
        assert seen.coverage > 0.9 - 0.02


@RELATIONS
def test_the_rmse_is_reached_on_the_worst_table_and_nowhere_exceeded(relation: str) -> None:
    plan = made(relation)
    table = np.zeros(8, dtype=np.int64)
    table[(deviations(plan) ** 2).sum(axis=0).argmax()] = 20
    seen = sf.simulate(plan, table, repetitions=6000, rng=5)
    assert seen.rmse == pytest.approx(plan.rmse, rel=0.03)
    assert sf.simulate(plan, np.array([3, 2, 3, 2, 3, 2, 3, 2]), repetitions=2000).rmse < plan.rmse


def test_half_widths_under_a_bias() -> None:
    noise = RoundedGaussian(Fraction(2**20))
    second, bias = np.array([1.0, 1.0, 4.0, 0.0]) / 2**40, np.array([0.0, 2.0, 50.0, 3.0])
    found = interval_margins(0.95, second, None, noise, bias)
    assert found[0] == pytest.approx(interval_margins(0.95, second, None, noise)[0], rel=1e-12)
    # far off, one tail only is left
    assert found[2] == pytest.approx(50 + 2 * norm.ppf(0.95), rel=1e-9)
    assert found[3] == 3.0
    assert norm.cdf(found[1] - 2) - norm.cdf(-found[1] - 2) == pytest.approx(0.95, abs=1e-9)
    laplace = DiscreteLaplace(Fraction(2**20))
    plain = interval_margins(0.95, second, second**2, laplace)
    assert interval_margins(0.95, second, second**2, laplace, bias) == pytest.approx(plain + bias)
    # two answers with opposite noise and one bias each: more miss than independent ones would
    level = simultaneous_confidence(0.95, 2, noise, biased=True)
    assert level == pytest.approx(0.975)
    assert simultaneous_confidence(0.95, 2, noise) < level


@RELATIONS
def test_plan_and_release_state_the_bias(relation: str, tmp_path: Path) -> None:
    plan = made(relation)
    assert plan.lower_bound is None
    assert plan.rmse > np.sqrt((plan.standard_errors() ** 2).mean())
    text = plan.explain()
    for words in ("at most 20 records", "no lower bound: those that are known are for unbiased answers", "without any"):
        assert words in text
    assert plan.errors()["bias"] == plan.errors_by_order()["bias"] == [plan.bias_bounds().max()]
    assert plan.errors()["rmse"] == pytest.approx([plan.rmse])
    plan.save(tmp_path / "plan")
    again = sf.load(tmp_path / "plan")
    assert (again.rmse, again.fingerprint) == (plan.rmse, plan.fingerprint)
    table = np.array([20, 0, 0, 0, 0, 0, 0, 0])
    release = sf.release(again, sf.Histogram(table), ledger=None, out=tmp_path / "out", snapshot="s")
    facts = json.loads((tmp_path / "out" / "release.json").read_text())
    stated = facts["error"]["bias"]
    assert stated == {"records": 20, "largest": plan.bias_bounds().max(), "rmse": plan.bias_rmse}
    assert "unbiased" not in facts["post_processing"]
    for page in ((tmp_path / "out" / "report.html").read_text(), write_report_text(plan, tmp_path)):
        assert "tables of at most 20 records" in page
        assert "unbiased linear" not in page
    ends = sf.load(tmp_path / "out").intervals(0.9)
    assert ends.high - ends.low == pytest.approx(2 * plan.half_widths(0.9))
    assert "at most 20 records" in release.explain()
    assert ("here they do not" in release.explain()) is False
    together = release.intervals(0.9, simultaneous=True)
    assert together.high - together.low == pytest.approx(2 * plan.half_widths(1 - 0.1 / 8))
    # differences of two releases may be off by both biases
    other = sf.release(plan, sf.Histogram(table), ledger=None, snapshot="s")
    gap = sf.difference(release, other).intervals(0.9)
    width, bias, sigma = (gap.high - gap.low) / 2, 2 * plan.bias_bounds(), np.sqrt(2) * plan.standard_errors()
    held = norm.cdf((width - bias)[1:] / sigma[1:]) - norm.cdf((-width - bias)[1:] / sigma[1:])
    assert held == pytest.approx(0.9, abs=1e-9)
    # what was not asked is answered without bias
    asked = release.ask("x1 and x2", confidence=0.9)
    assert asked.high - asked.value == pytest.approx(norm.ppf(0.95) * asked.standard_error)


def write_report_text(plan: sf.Plan, folder: Path) -> str:
    write_report(plan, folder / "plan.html")
    return (folder / "plan.html").read_text()


def test_a_larger_table_is_said_to_void_the_bounds() -> None:
    release = sf.release(made("replace-one"), sf.Histogram(np.full(8, 3)), ledger=None)
    assert "it holds 24, so here they do not" in release.explain()


def test_ratios_are_of_unbiased_answers() -> None:
    """Of ten times the records that the bounds of what was asked are for."""
    domain, held = sf.Domain({"age": sf.Integers(0, 5)}), np.array([10, 20, 30, 40, 50, 50])
    plan = made(work=sf.queries(np.tri(6), domain, attribute="age"))
    true, covered = np.cumsum(held)[:-1] / held.sum(), np.zeros(5)
    for _ in range(100):
        found = sf.release(plan, sf.Histogram(held), ledger=None).cdf("age")
        low, high = (np.array(found[end][:-1], dtype=float) for end in ("low", "high"))
        covered += (low <= true) & (true <= high)
    assert len(sf.release(plan, sf.Histogram(held), ledger=None).share("age")) == 6
    # 95 of 100 are expected, of a share, less 4 deviations
    assert covered.min() >= 86


def test_nobody_gets_a_bias_unasked() -> None:
    tiny = sf.plan(sf.disjunctions(3), BUDGET, neighbours="add-remove", records=5)
    assert tiny.mechanism != "approximate"
    assert tiny.bias_records is None
    assert "bias" not in tiny.errors().columns
    assert not tiny.bias_bounds().any()
    assert made(records=5).rmse < tiny.rmse


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"records": None}, "needs records="),
        ({"objective": "max"}, "objective='tables' or 'cells'"),
        ({"budget": sf.pure(1)}, "Gaussian noise"),
        ({"lattice": "unit"}, "fine lattice"),
        ({"neighbours": "replace-one", "person": "who"}, "single records"),
        ({"workload": sf.disjunctions(10)}, "serves 2 to 512 cells"),
    ],
)
def test_what_is_not_offered_is_said(options: dict[str, object], message: str) -> None:
    given: dict[str, object] = {"workload": sf.disjunctions(3), "budget": BUDGET, "neighbours": "add-remove"}
    given |= {"records": 10, "mechanism": "approximate"} | options
    with pytest.raises(PlanError, match=message):
        plan_with(given.pop("workload"), given.pop("budget"), **given)  # type: ignore[arg-type]


def test_margins_are_not_bought_with_biased_answers() -> None:
    for ask in (sf.budget_for, plan_for):
        with pytest.raises(PlanError, match="biased"):
            ask(sf.disjunctions(3), margin=5, neighbours="add-remove", delta="1e-6", mechanism="approximate", records=9)
