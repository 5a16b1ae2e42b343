"""Carrying plans out: one-shot accounts for every kind of price, names, and what ledgers accept."""

from __future__ import annotations

from pathlib import Path

import pytest

import sfumato as sf

DOMAIN = sf.Domain({"a": sf.Integers(0, 3)})
TABLE = sf.Histogram([3, 1, 4, 1])
WORK = sf.identity(DOMAIN)
BUDGETS = [sf.pure(1), sf.approx(1, "1e-6"), sf.zcdp("0.5"), sf.gdp(1)]


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("noise", ["laplace", "gaussian", "discrete-gaussian"])
def test_a_one_shot_account_pays_for_every_plan_it_was_made_for(budget: sf.Budget, noise: str) -> None:
    try:
        plan = sf.plan(WORK, budget, neighbours="add-remove", mechanism=sf.mechanisms.auto(noise=noise))
    except sf.errors.BudgetError:
        assert (budget.kind, noise) in {
            ("pure", "gaussian"),
            ("pure", "discrete-gaussian"),
            ("gdp", "discrete-gaussian"),
        }
        return
    release = sf.release(plan, TABLE, ledger=None)
    assert release.provenance.one_shot
    assert len(release.answers) == 4


def test_a_ledger_takes_several_kinds_of_plans_until_it_is_empty(tmp_path: Path) -> None:
    ledger = sf.Ledger.create(tmp_path / "l.db", total=sf.zcdp("1.5"))
    gauss = sf.plan(WORK, sf.gdp(1), neighbours="add-remove")
    laplace = sf.plan(WORK, sf.pure(1), neighbours="add-remove")
    discrete = sf.plan(
        WORK, sf.zcdp("0.5"), neighbours="add-remove", mechanism=sf.mechanisms.auto(noise="discrete-gaussian")
    )
    for i, plan in enumerate((gauss, laplace, discrete)):
        sf.release(plan, TABLE, ledger=ledger, name=f"r{i}")
    assert ledger.remaining == 0
    with pytest.raises(sf.BudgetExceeded) as caught:
        sf.release(gauss, TABLE, ledger=ledger, name="one too many")
    assert caught.value.remaining == 0
    assert caught.value.requested > 0
    assert len(ledger.unreleased()) == 0
    assert [e.name for e in ledger.entries() if e.kind == "spend"] == ["r0", "r1", "r2"]


def test_gaussian_noise_cannot_be_paid_from_a_pure_ledger(tmp_path: Path) -> None:
    ledger = sf.Ledger.create(tmp_path / "l.db", total=sf.pure(5))
    with pytest.raises(sf.errors.BudgetError):
        sf.release(sf.plan(WORK, sf.gdp(1), neighbours="add-remove"), TABLE, ledger=ledger)
    assert ledger.remaining == 5


def test_a_name_belongs_to_one_plan(tmp_path: Path) -> None:
    ledger = sf.Ledger.create(tmp_path / "l.db", total=sf.gdp(5))
    one = sf.plan(WORK, sf.gdp(1), neighbours="add-remove")
    two = sf.plan(WORK, sf.gdp(2), neighbours="add-remove")
    first = sf.release(one, TABLE, ledger=ledger, name="n", out=tmp_path / "n")
    spent = ledger.spent
    again = sf.release(one, TABLE, ledger=ledger, name="n", out=tmp_path / "n")
    assert (again.answers == first.answers).all()
    assert ledger.spent == spent
    with pytest.raises(sf.errors.NameTaken, match="another plan"):
        sf.release(two, TABLE, ledger=ledger, name="n", out=tmp_path / "m")
    with pytest.raises(sf.errors.NameTaken, match="already paid"):
        sf.release(one, TABLE, ledger=ledger, name="n")
    assert ledger.spent == spent


def test_what_is_public_needs_no_release() -> None:
    """Under replace-one the number of records is public: nothing is measured, so nothing may be charged."""
    with pytest.raises(sf.errors.PlanError, match="public"):
        sf.plan(sf.total(DOMAIN), sf.gdp(1), neighbours="replace-one")


def test_a_name_of_something_else_says_what_differs(tmp_path: Path) -> None:
    """Mutant: every refusal says no more than that the plan is another."""
    ledger = sf.Ledger.create(tmp_path / "l.db", total=sf.gdp(9))
    paid = sf.plan(WORK, sf.gdp(1), neighbours="add-remove")
    sf.release(paid, TABLE, ledger=ledger, name="x", out=tmp_path / "x")
    dearer = sf.plan(WORK, sf.gdp(2), neighbours="add-remove")
    for out, words in ((None, "its price differs"), (tmp_path / "x", "the budget")):
        with pytest.raises(sf.errors.NameTaken, match=words):
            sf.release(dearer, TABLE, ledger=ledger, name="x", out=out)
    replaced = sf.plan(WORK, sf.gdp(1), neighbours="replace-one")
    with pytest.raises(sf.SfumatoError):
        sf.release(replaced, TABLE, ledger=ledger, name="x", out=tmp_path / "x")
    other = sf.plan(sf.total(DOMAIN), sf.gdp(1), neighbours="add-remove")
    with pytest.raises(sf.errors.NameTaken, match="the questions"):
        sf.release(other, TABLE, ledger=ledger, name="x", out=tmp_path / "x")
    sf.release(paid, TABLE, ledger=ledger, name="y", out=tmp_path / "y")
    with pytest.raises(sf.errors.InvalidInput, match=r"it is 'y', entry \d+, and 'x' is entry \d+ of this ledger"):
        sf.release(paid, TABLE, ledger=ledger, name="x", out=tmp_path / "y")
