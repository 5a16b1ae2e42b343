"""What tables would look like: flags and margins follow from counts that are given and from the plan alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.errors import InvalidInput, NotAnswerable, PlanError
from sfumato.planner.preview import USUAL_FLAGS, budget_error_factor
from sfumato.privacy.accounting import GaussianEvent
from sfumato.privacy.ledger.words import attack_success, percent_up
from sfumato.privacy.practice import PRACTICE
from sfumato.releases.reliability import read_reliability

DOMAIN = sf.Domain({"age": sf.Integers(0, 99, width=20), "sex": sf.Categories(["female", "male"])})
WORK = sf.marginals(DOMAIN, upto=2)
COUNTS = np.random.default_rng(3).poisson(30, DOMAIN.shape)
BUDGETS = {
    "approx": (sf.approx(1, "1e-6"), ["0.25", "0.5", 1, 2]),
    "pure": (sf.pure(1), ["0.25", 1, 3]),
    "zcdp": (sf.zcdp("0.1"), ["0.01", "0.1"]),
    "gdp": (sf.gdp(1), ["0.2", 1]),
}


def made(budget: sf.Budget, neighbours: str = "add-remove") -> sf.Plan:
    return sf.plan(WORK, budget, neighbours=neighbours)  # type: ignore[call-overload, no-any-return]


@pytest.mark.parametrize("kind", BUDGETS)
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_margins_at_other_budgets_are_those_of_plans_with_them(kind: str, neighbours: str) -> None:
    """Mutants: scaling by the parameter for Gaussian noise; by its root for Laplace noise."""
    budget, values = BUDGETS[kind]
    plan = made(budget, neighbours)
    found = sf.preview(plan, COUNTS, budgets=values).frame()
    for value in values:
        other = made(type(budget)(budget.kind, sf.Budget.pure(value).parameter, budget.delta), neighbours)
        rows = [r for r in found.rows() if r["budget"] == f"{float(sf.Budget.pure(value).parameter):.6g}"]
        for row in rows:
            named = {r["attributes"]: r["margin"] for r in other.errors().rows()}
            # a public total has a margin of nothing but rounding
            assert row["margin"] == pytest.approx(named[row["table"]], rel=0.02, abs=1e-5)


def test_flags_are_those_of_a_release_with_these_answers() -> None:
    """Mutants: errors of one table taken for another's; empty cells counted among the flagged ones."""
    plan, rule = made(sf.approx(1, "1e-6")), read_reliability(USUAL_FLAGS)
    counts = COUNTS.copy()
    counts[0, 0] = 0
    found = sf.preview(plan, counts, budgets=["0.5"])
    factor = budget_error_factor(plan, sf.approx("0.5", "1e-6"))
    row = next(r for r in found.frame().rows() if r["table"] == "age, sex")
    error = plan.standard_errors()[-1] * factor
    flags = rule.flags(counts.reshape(-1)[1:], np.full(counts.size - 1, error))
    assert row["none expected"] == 1 / counts.size
    for flag in ("*", "**", "suppress"):
        assert row[flag] == flags.count(flag) / counts.size
    whole = found.by_budget().rows()[0]
    assert sum(whole[c] for c in ("no flag", "*", "**", "suppress", "none expected")) == pytest.approx(1)


def test_of_a_table_the_widest_margin_is_told() -> None:
    """Mutant: the narrowest. Ranges of ages err unlike each other."""
    plan = sf.plan(sf.ranges(DOMAIN, "age"), sf.gdp(1), neighbours="add-remove")
    margins = plan.half_widths()
    assert margins.max() > 1.05 * margins.min()
    (row,) = sf.preview(plan, COUNTS, budgets=[1]).frame().rows()
    assert row["margin"] == pytest.approx(margins.max(), rel=1e-9)


def test_last_years_release_stands_for_the_counts() -> None:
    plan = made(sf.approx(1, "1e-6"))
    last = sf.release(plan, sf.Histogram(COUNTS), ledger=None)
    found = sf.preview(made(sf.approx("0.5", "1e-6")), last)
    row = next(r for r in found.frame().rows() if r["table"] == "(total)")
    assert row["expected"] == pytest.approx(last.ask(sf.total(DOMAIN))["answer"][0])
    # a plan that measures otherwise is previewed where what it measures follows
    other = sf.preview(made(sf.pure(1), "replace-one"), last)
    assert other.total == round(float(last.ask(sf.total(DOMAIN))["answer"][0]))
    assert len(other.table("age", "sex").values.reshape(-1)) == COUNTS.size


def test_drawn_tables_err_as_the_plan_says() -> None:
    """Mutants: noise left out; the noise of another law."""
    for budget in (sf.approx(1, "1e-6"), sf.pure(1)):
        plan = made(budget)
        off = [
            sf.preview(plan, COUNTS, seed=seed).table("age", "sex").values - COUNTS  # type: ignore[operator]
            for seed in range(60)
        ]
        assert np.std(off) == pytest.approx(plan.standard_errors()[-1], rel=0.15)
        assert sf.preview(plan, COUNTS, seed=4).table("age").values.tolist() == (
            sf.preview(plan, COUNTS, seed=4).table("age").values.tolist()
        )


def test_medians_means_and_shares_are_shown_with_their_intervals() -> None:
    seen = sf.preview(made(sf.approx(1, "1e-6")), COUNTS)
    middle = seen.quantiles("age", [0.5], by=["sex"]).rows()
    assert all(r["low"] <= r["quantile"] <= r["high"] for r in middle)
    assert len(seen.mean("age", by=["sex"])) == 2
    assert sum(seen.share("sex")["share"]) == pytest.approx(1, abs=0.1)


def test_a_guessed_group_has_its_margin_as_a_share() -> None:
    plan = made(sf.approx("0.5", "1e-6"))
    row = sf.preview(plan, {"age >= 80 and sex == 'male'": 23}).frame().rows()[0]
    assert row["margin"] == pytest.approx(plan.half_widths()[-1])
    assert row["relative_margin"] == pytest.approx(row["margin"] / 23)
    assert sf.preview(plan, {"sex == 'male'": 0.5}).frame().rows()[0]["expected"] == 0.5
    with pytest.raises(PlanError, match="no whole table follows"):
        sf.preview(plan, {"sex == 'male'": 23}).table("age")


def test_what_is_no_preview_is_refused() -> None:
    plan = made(sf.approx(1, "1e-6"))
    with pytest.raises(PlanError, match="whole, of an integer type"):
        sf.preview(plan, COUNTS / 1)
    with pytest.raises(PlanError, match="whole, of an integer type"):
        sf.preview(plan, COUNTS[:2])
    for guesses in ({}, {"sex == 'male'": 0}, {"sex == 'male'": True}, {"sex == 'male'": float("nan")}):
        with pytest.raises(PlanError, match="guess"):
            sf.preview(plan, guesses)  # type: ignore[arg-type]
    elsewhere = sf.plan(sf.total(sf.Domain({"a": 2})), sf.pure(1), neighbours="add-remove")
    released = sf.release(plan, sf.Histogram(COUNTS), ledger=None)
    with pytest.raises(sf.SfumatoError, match="other attributes"):
        sf.preview(elsewhere, released)
    with pytest.raises(InvalidInput, match="flag"):
        sf.preview(plan, COUNTS, flags={"": 0.1})
    with pytest.raises(sf.SfumatoError, match="epsilon must not be negative"):
        sf.preview(plan, COUNTS, budgets=[-1])
    with pytest.raises(NotAnswerable):
        sf.preview(sf.plan(sf.identity(DOMAIN, "age"), sf.pure(1), neighbours="add-remove"), {"sex == 'male'": 9})
    biased = sf.plan(sf.queries(np.eye(64)), sf.pure(1), neighbours="replace-one", mechanism="projection", records=9)
    with pytest.raises(PlanError, match="do not scale"):
        sf.preview(biased, np.ones(64, dtype=np.int64))


def test_the_page_has_the_published_budgets() -> None:
    """Mutant: a line of the guide that says another number than the studio."""
    page = (Path(__file__).parents[2] / "docs" / "epsilon.md").read_text(encoding="utf-8")
    for one in PRACTICE:
        said = f"{one.epsilon}, {one.delta}" if one.delta else one.epsilon
        assert f"| {said} | {one.year} | {one.what} | {one.unit} | {one.source} |" in page
    odds = [
        percent_up(attack_success(GaussianEvent(sf.approx(e, "1e-6").mu_squared))) for e in ("0.1", "0.5", 1, 2, 5, 10)
    ]
    assert f"| right at most | {' | '.join(odds)} |" in page


def test_of_sums_the_margin_alone_is_told() -> None:
    """Mutant: sums from the middle of their range taken for expected answers."""
    domain = sf.Domain(
        {"sex": sf.Categories(["f", "m"], outside="other", missing="other")}, measures={"pay": sf.Measure(0, 9000)}
    )
    plan = sf.plan(sf.means(domain, ["pay"], by=["sex"]), sf.approx(1, "1e-6"), neighbours="add-remove")
    people = {"sex": ["f", "m"] * 400, "pay": list(range(800))}
    seen = sf.preview(plan, sf.release(plan, pd.DataFrame(people), ledger=None))
    sums = [r for r in seen.frame().rows() if r["unit"] == "pay"]
    assert sums
    assert all(r["relative_margin"] is None and r["no flag"] is None and r["margin"] > 0 for r in sums)
    assert seen.by_budget().rows()[0]["cells"] == 3
    with pytest.raises(NotAnswerable, match="not measured"):
        seen.table("sex")  # of means only records with a number are counted


@pytest.mark.parametrize("budget", [sf.gdp(1), sf.pure(1)])
def test_means_of_measures_are_shown_as_a_release_would(budget: sf.Budget) -> None:
    """Mutants: what is measured of a record taken for 1; noise left out."""
    domain = sf.Domain(
        {"sex": sf.Categories(["f", "m"], outside="other", missing="other")}, measures={"pay": sf.Measure(0, 9000)}
    )
    people = pd.DataFrame({"sex": ["f", "m"] * 400, "pay": [3000 + i for i in range(800)]})
    work = sf.means(domain, ["pay"], by=["sex"])
    public = sf.release(sf.plan(work, sf.gdp(1000), neighbours="add-remove"), people, ledger=None)
    plan = sf.plan(work, budget, neighbours="add-remove")
    told = [sf.preview(plan, public, seed=seed).mean("pay", by=["sex"]) for seed in range(40)]
    means = np.array([t["mean pay"][:2] for t in told], dtype=float)
    errors = np.array([t["standard_error"][:2] for t in told], dtype=float)
    truth = people.groupby("sex")["pay"].mean().to_numpy()
    assert np.abs(means.mean(axis=0) - truth).max() < 5 * errors.mean() / np.sqrt(40)
    assert np.sqrt(((means - truth) ** 2).mean()) == pytest.approx(errors.mean(), rel=0.25)
    paid = sf.release(plan, people, ledger=None).mean("pay", by=["sex"])
    assert np.array(paid["standard_error"][:2], dtype=float) == pytest.approx(errors.mean(axis=0), rel=0.1)
