"""Plans of streams: what they refuse, what they say, what they are stored as."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import PlanError
from sfumato.plans.streams import StreamPlan
from sfumato.privacy.noise import RoundedGaussian
from sfumato.strategies.periods import Periods

DOMAIN = sf.Domain({"age": sf.Integers(0, 7, outside="clamp", missing="other"), "sex": 2})
WORK = sf.marginals(DOMAIN, upto=2)
ADD: dict[str, Any] = {"neighbours": "add-remove"}


def planned(**options: Any) -> StreamPlan:
    return sf.plan(WORK, options.pop("budget", sf.gdp(1)), **({"periods": 24} | ADD | options))


@pytest.mark.parametrize(
    ("what", "options", "words"),
    [
        (WORK, {"budget": sf.pure(1)}, "which no pure epsilon allows"),
        (sf.prefix(DOMAIN, "age"), {}, "answers marginal tables"),
        (DOMAIN, {}, "of a workload"),
        (WORK, {"trust": "local", "budget": sf.pure(1), "records": 9}, "of a workload"),
        (WORK, {"public": {("sex",): [1, 2]}}, "no use of public="),
        (WORK, {"strategy": "cells"}, "no use of strategy="),
        (WORK, {"mechanism": "tree"}, "plans a workload, not tables period after period"),
        (WORK, {"mechanism": "continual", "periods": None}, "not a workload"),
        (WORK, {"periods": 0}, "from 1 to"),
        (WORK, {"periods": True}, "from 1 to"),
        (WORK, {"periods": 2**20 + 1}, "from 1 to 1,048,576"),
        (WORK, {"periods": Periods(24, 3, 2)}, "person="),
        (WORK, {"periods": 2_400, "mechanism": sf.mechanisms.continual(most=2**36)}, "could outgrow"),
    ],
)
def test_what_a_stream_cannot_be_is_refused(what: Any, options: dict[str, Any], words: str) -> None:
    """Mutants: an option dropped, pure epsilon paid with Gaussian noise, k participations of nobody."""
    given = {"periods": 24} | ADD | options
    with pytest.raises(PlanError, match=words):
        sf.plan(what, given.pop("budget", sf.gdp(1)), **given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"count": 5, "per_person": 6}, "per_person"),
        ({"count": 5, "per_person": 3, "apart": 3}, "nobody can be"),
        ({"count": 5, "apart": 2}, "leave it out"),
        ({"count": 5, "per_person": 2, "apart": 0}, "apart"),
        ({"count": 5.0}, "count"),
    ],
)
def test_periods_refuse_what_makes_no_sense(given: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        sf.periods(**given)


def test_questions_over_time_have_the_errors_of_their_weights() -> None:
    """Mutants: weights of other periods; the largest error for all; a total of the last period alone."""
    plan = planned()
    by_hand = np.sqrt([plan.over_time.variance(np.ones(t)) for t in range(1, 25)])
    np.testing.assert_allclose(plan.curve() / plan.curve()[0], by_hand / by_hand[0], rtol=1e-6)
    assert plan.standard_errors("last 24", 24).tolist() == plan.standard_errors("totals").tolist()
    assert plan.standard_errors("last 1", 7).tolist() == plan.standard_errors("increments", 7).tolist()
    assert plan.between(3, 7).tolist() == [0, 0, 1, 1, 1, 1, 1]
    assert plan.of(plan.between(1, 7)).standard_errors().tolist() == plan.standard_errors("totals", 7).tolist()
    table = plan.errors()
    assert list(table["period"]) == [1, 2, 4, 8, 16, 24]
    assert all(a < b for a, b in zip(table["half_width"], table["simultaneous"], strict=True))
    for question, period in (("sums", 3), ("last 25", 3), ("last x", 3), ("totals", 25), ("totals", 0), (3, 3)):
        with pytest.raises(PlanError):
            plan.weights(question, period)
    for bad in ((0, 3), (4, 3), (3, 25)):
        with pytest.raises(PlanError):
            plan.between(*bad)


def test_a_plan_says_what_it_promises_and_on_whose_word() -> None:
    """Mutants: a promise that is not said to be one, or is taken for one; the state left out; tables cut in silence."""
    said = str(planned())
    for words in ("before the first period", "chosen after earlier answers", "as secret as the tables", "are counted"):
        assert words in said
    several = planned(periods=sf.periods(24, per_person=3, apart=6), person="id")
    assert "enforced: rows of a person in more periods" in str(several)
    assert "32 for every person" in str(several)
    assert several.facts()["mechanism"]["participation"] == several.participation
    promised = planned(periods=sf.periods(24, per_person=3, apart=6, promised=True), person="id")
    assert "promised by the custodian" in str(promised)
    assert (several.terms.enforced, promised.terms.enforced, planned().terms.enforced) == (True, False, False)
    # where rows are looked at, who is left out is counted beside, for a percent of the price
    assert promised.terms.noise.sigma < several.terms.noise.sigma < promised.terms.noise.sigma * Fraction(1006, 1000)
    assert planned(person="id").terms.enforced
    with pytest.raises(PlanError, match="leave it out"):
        planned(periods=sf.periods(24, promised=True))
    assert "refused" in str(planned(neighbours="replace-one"))
    assert several.objective_value > 2 * planned().objective_value


def test_a_stored_plan_is_the_same_and_a_changed_one_is_refused(tmp_path: Path) -> None:
    """Mutants: noise, participation or tables of a file believed."""
    plan = planned(periods=sf.periods(24, per_person=3, apart=6), person="id")
    plan.save(tmp_path / "plan")
    found = sf.load(tmp_path / "plan")
    assert found.fingerprint == plan.fingerprint
    found.check()
    terms = plan.terms
    quiet = RoundedGaussian(terms.noise.sigma * Fraction(999, 1000))
    for changed in (
        replace(plan, terms=replace(terms, noise=quiet)),
        replace(plan, terms=replace(terms, participations=2)),
        replace(plan, terms=replace(terms, apart=7)),
        replace(plan, terms=replace(terms, enforced=False, cut=0)),
        replace(plan, terms=replace(terms, families=terms.families[:2])),
        replace(plan, periods=sf.periods(24, per_person=2, apart=6)),
        replace(plan, unit=planned().unit),
    ):
        with pytest.raises(PlanError):
            changed.check()


def test_more_budget_errs_less_and_more_periods_more() -> None:
    assert np.isclose(planned(budget=sf.gdp(2)).rmse, planned().rmse / 2, rtol=1e-3)
    assert planned(periods=240).rmse > planned().rmse
    assert np.isclose(planned(budget=sf.zcdp("0.5")).rmse, planned().rmse, rtol=1e-6)


def test_a_budget_that_leaves_no_noise_is_refused_with_the_largest_that_does() -> None:
    """And that one plans, with some error. Mutant: a refusal that speaks of sigma, or asks for a larger budget."""
    for mu in (2**22, 10**9):
        with pytest.raises(PlanError, match="give a smaller one") as said:
            planned(budget=sf.gdp(mu))
    assert "sigma" not in str(said.value)
    most = int(str(said.value).partition("sf.gdp(")[2].partition(")")[0])
    assert planned(budget=sf.gdp(most)).rmse > 0
    with pytest.raises(PlanError, match="give a larger budget"):
        planned(budget=sf.gdp("1e-200"))
