"""Sums of more than three measures: parts, each planned by itself, priced apart and added."""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.check_release import Check
from sfumato.errors import PlanError
from sfumato.privacy.measures import WHOLE_BITS
from sfumato.privacy.unit import PrivacyUnit
from sfumato.strategies.design import Problem
from sfumato.strategies.moments import curve_bound, curve_proof, joint_curve_bound

NAMES = [f"m{i}" for i in range(5)]
GROUP = sf.Categories(["x", "y", "z"], outside="other", missing="other")
DOMAIN = sf.Domain({"g": GROUP}, measures={n: sf.Measure(0, 10 * (i + 1)) for i, n in enumerate(NAMES)})
WORKS = {
    "means": sf.stack(*(sf.means(DOMAIN, n, by="g") for n in NAMES), sf.marginals(DOMAIN, upto=1)),
    "pairs": sf.stack(
        sf.moments(DOMAIN, ["m0", "m1"], by="g"), sf.moments(DOMAIN, ["m1", "m2"]), sf.moments(DOMAIN, ["m3", "m4"])
    ),
}


@functools.cache
def _plan(name: str, unit: str, law: str = "gdp") -> sf.Plan:
    budget = sf.gdp(1) if law == "gdp" else sf.pure(1)
    return sf.plan(WORKS[name], budget, neighbours=unit)  # type: ignore[call-overload]


def _frame(seed: int, n: int) -> pd.DataFrame:
    rng = np.random.default_rng([189, 1, seed])
    numbers = {name: rng.beta(1 + i, 3, n) * 10 * (i + 1) for i, name in enumerate(NAMES)}
    return pd.DataFrame({"g": rng.choice(["x", "y", "z"], n)} | numbers)


def _shares(rng: np.random.Generator) -> Any:
    t = rng.choice([0.0, 1.0, 0.5, float(rng.random())])
    return np.array([(1 - t) ** 2, 2 * t * (1 - t), t**2, 0.0]) if rng.random() < 0.9 else np.array([0, 0, 0, 1.0])


@pytest.mark.parametrize("law", ["gdp", "pure"])
@pytest.mark.parametrize("unit", ["add-remove", "replace-one"])
@pytest.mark.parametrize("name", WORKS)
def test_no_record_changes_more_than_is_paid(name: str, unit: str, law: str) -> None:
    """Of 200 drawn records, or pairs of them, in whole units of all blocks. Mutant: the mean of the parts' prices in
    place of their sum."""
    plan = _plan(name, unit, law)
    rng = np.random.default_rng([189, 2])

    def column(cell: int, shares: dict[str, Any]) -> Any:
        rows: list[Any] = []
        for block in plan.strategy.blocks:
            own = np.ones(1)
            for group, factor in zip(block.groups, block.factors, strict=True):
                parts = [np.eye(4)[cell] if a == "g" else shares[a] for a in group]
                own = np.kron(own, np.asarray(factor.dense()) @ functools.reduce(np.kron, parts))
            rows.append(own * 2.0**WHOLE_BITS)
        return np.concatenate(rows)

    most, power = 0.0, 1 if law == "pure" else 2
    for _ in range(200):
        one, other = (column(int(rng.integers(4)), {n: _shares(rng) for n in NAMES}) for _ in range(2))
        most = max(most, float((np.abs(one - (other if unit == "replace-one" else 0)) ** power).sum()))
    assert most <= plan.sensitivity.value
    assert most >= 0.2 * plan.sensitivity.value


@pytest.mark.parametrize("name", WORKS)
def test_errors_are_as_predicted(name: str) -> None:
    """Squared errors over predicted variances of 40 releases: within four standard errors of 1. Mutant: a query read
    from the noise of another part."""
    plan, table = _plan(name, "add-remove"), _frame(1, 500)
    whole = sf.plan(WORKS[name], sf.gdp(10**5), neighbours="add-remove")
    truth = sf.release(whole, table, ledger=None).answers
    off = np.array([sf.release(plan, table, ledger=None).answers - truth for _ in range(40)]) / plan.standard_errors()
    each = (off**2).mean(axis=1)
    assert abs(each.mean() - 1) <= 4 * each.std() / np.sqrt(len(each))
    assert "priced apart and added" in plan.explain()
    assert plan.lower_bound is not None
    assert plan.objective_value >= plan.lower_bound


@pytest.mark.parametrize("what", ["means", "moments"])
def test_the_bound_of_parts_is_below_what_a_joint_plan_errs(what: str) -> None:
    """Three measures are planned jointly, within a thousandth of their bound; taken as parts they must not prove more.

    Mutant: nothing but the parts' own matrices in D, as if parts cost nothing of each other.
    """
    ask = sf.means if what == "means" else lambda domain, name, by: sf.moments(domain, [name], by=by)
    works = [ask(DOMAIN, n, by="g") for n in NAMES[:3]]
    plan = sf.plan(sf.stack(*works), sf.gdp(1), neighbours="add-remove")
    assert plan.lower_bound is not None
    unit = PrivacyUnit(sf.Neighbours.ADD_REMOVE)
    whole = Problem(sf.stack(*works), sf.gdp(1), unit, "gaussian")
    proofs = [curve_proof(whole.part([q for q in whole.workload.blocks if n in q.attributes])) for n in NAMES[:3]]
    joint = joint_curve_bound([p for p in proofs if p is not None])
    scale = plan.lower_bound / curve_bound(whole)  # type: ignore[operator]
    assert math.hypot(*(p.bound for p in proofs if p is not None)) * scale < joint * scale <= plan.objective_value
    assert joint * scale >= 0.85 * plan.lower_bound


def test_parts_with_cells_of_their_own_prove_less() -> None:
    """Of merged cells that differ no joint table is known. Mutant: numbers of cells compared in place of cells."""
    age = sf.Integers(0, 9, outside="other", missing="other", levels={"half": [0, 5, 10], "low": [0, 2, 10]})
    domain = sf.Domain({"age": age}, measures={n: sf.Measure(0, 1) for n in NAMES[:4]})
    found: list[float] = []
    for levels in (["half"] * 4, ["half", "low", "half", "half"]):
        work = sf.stack(*(sf.means(domain, n, by=by) for n, by in zip(NAMES, levels, strict=False)))
        plan = sf.plan(work, sf.gdp(1), neighbours="add-remove")
        assert plan.lower_bound is not None
        assert plan.lower_bound <= plan.objective_value
        found.append(plan.lower_bound / plan.objective_value)
    assert found[0] > 0.9
    assert found[1] < 0.6


def test_released_stored_checked_and_asked(tmp_path: Path) -> None:
    """The stranger's checker prices parts as the curator does. Mutant: statistics over all measures of the domain
    joined, which no part has."""
    ledger = sf.Ledger.create(tmp_path / "l.db", total=sf.gdp(3))
    found = sf.release(_plan("pairs", "add-remove"), _frame(2, 3_000), ledger=ledger, name="one", out=tmp_path / "one")
    judged = Check(tmp_path / "one", tmp_path / "l.db")
    assert judged.wrong == []
    assert judged.verdict == "accepted", judged.unknown
    again = sf.load(tmp_path / "one")
    for release in (found, again):
        for one, other, by in (("m0", "m1", "g"), ("m1", "m2", ()), ("m3", "m4", ())):
            assert None not in release.correlation(one, other, by=by)["correlation " + f"{one} and {other}"][:3]
            assert None not in release.mean(other, by=by)[f"mean {other}"][:3]
            assert None not in release.regression(one, other, by=by)["low"][:3]
        with pytest.raises(sf.NotAnswerable):
            release.correlation("m0", "m3")


def test_what_is_not_planned_says_what_to_do() -> None:
    """Mutants: four measures in one table; all pairs of six, of which a price would look at millions of corners."""
    with pytest.raises(PlanError, match=r"joins 4 measures .*sf\.moments of pairs"):
        sf.plan(sf.moments(DOMAIN, NAMES[:4]), sf.gdp(1), neighbours="add-remove")
    pairs = [sf.moments(DOMAIN, [a, b]) for a in NAMES for b in NAMES if a < b]
    with pytest.raises(PlanError, match="plan some of the pairs apart"):
        sf.plan(sf.stack(*pairs), sf.gdp(1), neighbours="add-remove")


def test_parts_err_less_where_a_joint_price_is_a_simple_bound() -> None:
    """Three means under replaced records: 2.14 apart, 3.84 joined. And two measures with twelve knots each, which are
    too many together. Mutant: parts tried of more than three measures alone."""
    work = sf.stack(*(sf.means(DOMAIN, n, by="g") for n in NAMES[:3]))
    assert sf.plan(work, sf.gdp(1), neighbours="replace-one").objective_value < 2.2
    wide = sf.Measure(0, 2**14, knots=[2**k for k in range(1, 13)])
    two = sf.Domain({}, measures={"a": wide, "b": wide})
    work = sf.stack(*(sf.means(two, n, clip="best") for n in "ab"))
    plan = sf.plan(work, sf.gdp(1), neighbours="add-remove")
    rng = np.random.default_rng([189, 3])
    table = pd.DataFrame({n: np.exp(rng.normal(4, 1, 5_000)) for n in "ab"})
    release = sf.release(plan, table, ledger=None)
    for n in "ab":
        (low,), (high,) = (release.mean(n, clip="best")[c] for c in ("low", "high"))
        assert low < float(table[n].mean()) < high + 1
