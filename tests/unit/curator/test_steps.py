"""Several looks from one debit: what was spent stands in a file before noise is drawn, and adds up over processes."""

from __future__ import annotations

import shutil
from fractions import Fraction
from pathlib import Path

import pytest

import sfumato as sf
from sfumato.curator.steps import StepBudget, StepOpening, StepStore
from sfumato.errors import BudgetExceeded, InvalidInput, LedgerCorrupted, LedgerError, NameTaken
from sfumato.privacy.accounting import ApproxGaussianEvent, GaussianEvent
from sfumato.privacy.unit import PrivacyUnit

UNIT = PrivacyUnit("add-remove")
HASH = "a" * 64
PRICE = ApproxGaussianEvent(Fraction(1, 4), "1e-6")
HALF = GaussianEvent(Fraction(1, 8))


def made(folder: Path) -> tuple[sf.Ledger, StepOpening, StepStore]:
    ledger = sf.Ledger.create(folder / "l.db", total=sf.approx(3, "1e-5", thresholds="5e-6"))
    opening = StepOpening(HASH, ledger.ledger_id, "a", PRICE)
    return ledger, opening, StepStore.create(folder / "a.looks", opening)


def spend(budget: StepBudget, event: GaussianEvent | ApproxGaussianEvent, came: StepStore | None = None) -> None:
    budget.debit("a", HASH, event, UNIT)
    if came is not None:
        came.keep(b"this")


def test_the_first_look_pays_for_all(tmp_path: Path) -> None:
    """Mutant: each look debited by itself, so that later ones may find the ledger empty."""
    ledger, opening, store = made(tmp_path)
    budget = StepBudget(opening, ledger, store)
    budget.expect("a", HASH, HALF, UNIT)
    assert ledger.spent == 0
    spend(budget, HALF, store)
    assert ledger.spent == PRICE.mu_squared
    spend(budget, ApproxGaussianEvent(Fraction(1, 16), "1e-6"), store)
    spend(budget, GaussianEvent(Fraction(1, 16)), store)
    assert ledger.spent == PRICE.mu_squared
    assert [e.name for e in ledger.entries()] == ["a"]
    for event in (GaussianEvent(Fraction(1, 10**9)), ApproxGaussianEvent(Fraction(0), "1e-9")):
        with pytest.raises(BudgetExceeded):
            spend(budget, event)
        with pytest.raises(BudgetExceeded):
            budget.expect("a", HASH, event, UNIT)


def test_what_a_look_was_to_cost_is_spent_by_all_processes_together(tmp_path: Path) -> None:
    """Mutant: a look is written down when it is over; an account in memory, which two processes have each."""
    ledger, opening, store = made(tmp_path)
    first, second = (StepBudget(opening, ledger, StepStore.at(tmp_path / "a.looks")) for _ in range(2))
    spend(first, HALF, store)
    spend(second, HALF, store)
    for budget in (first, second, StepBudget(opening, ledger, StepStore.at(tmp_path / "a.looks"))):
        with pytest.raises(BudgetExceeded):
            spend(budget, GaussianEvent(Fraction(1, 100)))
    assert store.spent == (HALF, HALF)


def test_a_look_of_which_nothing_came_is_the_last(tmp_path: Path) -> None:
    """Mutant: a look that another process takes now is taken by this one too, from what was meant for later ones."""
    ledger, opening, store = made(tmp_path)
    spend(StepBudget(opening, ledger, store), HALF)
    budget = StepBudget(opening, ledger, StepStore.at(tmp_path / "a.looks"))
    assert store.lost
    for take in (budget.expect, budget.debit):
        with pytest.raises(LedgerError, match="nothing is known yet"):
            take("a", HASH, GaussianEvent(Fraction(1, 100)), UNIT)
    assert store.spent == (HALF,)
    store.keep(b"what came")
    assert not store.lost
    with pytest.raises(ValueError, match="follow"):
        store.keep(b"what came once more")
    budget.debit("a", HASH, GaussianEvent(Fraction(1, 100)), UNIT)


def test_a_look_that_costs_more_than_all_spends_nothing(tmp_path: Path) -> None:
    ledger, opening, store = made(tmp_path)
    budget = StepBudget(opening, ledger, store)
    with pytest.raises(BudgetExceeded):
        spend(budget, GaussianEvent(Fraction(1)))
    assert (ledger.spent, store.spent, store.paid) == (0, (), None)
    poor = sf.Ledger.create(tmp_path / "p.db", total=sf.gdp("0.1"))
    other = StepOpening(HASH, poor.ledger_id, "a", PRICE)
    with pytest.raises(BudgetExceeded):
        spend(StepBudget(other, poor, StepStore.create(None, other)), HALF)
    assert poor.spent == 0


def test_looks_of_another_ledger_name_plan_or_price_are_refused(tmp_path: Path) -> None:
    """Mutant: a file of looks is believed whose debit no ledger holds."""
    ledger, opening, store = made(tmp_path)
    spend(StepBudget(opening, ledger, store), HALF, store)
    for other in (
        StepOpening("b" * 64, ledger.ledger_id, "a", PRICE),
        StepOpening(HASH, ledger.ledger_id, "b", PRICE),
        StepOpening(HASH, "c" * 32, "a", PRICE),
        StepOpening(HASH, ledger.ledger_id, "a", HALF),
    ):
        with pytest.raises(LedgerError, match="of another plan, ledger, name or price"):
            StepBudget(other, ledger, store)
    empty = sf.Ledger.create(tmp_path / "m.db", total=sf.approx(3, "1e-5", thresholds="5e-6"))
    with pytest.raises(LedgerError, match="not the one that paid"):
        StepBudget(opening, empty, store).debit("a", HASH, GaussianEvent(Fraction(1, 100)), UNIT)
    # a name that was paid for without looks pays for none
    fresh = StepStore.create(tmp_path / "b.looks", opening)
    with pytest.raises((NameTaken, InvalidInput)):
        spend(StepBudget(opening, ledger, fresh), HALF)


def test_lines_that_do_not_follow_are_refused(tmp_path: Path) -> None:
    ledger, opening, store = made(tmp_path)
    with pytest.raises(ValueError, match="follow"):
        store.keep(b"came of nothing")
    with pytest.raises(ValueError, match="follow"):
        store.spend(HALF)  # before a debit
    spend(StepBudget(opening, ledger, store), HALF)
    store.keep(b"one")
    shutil.copy(tmp_path / "a.looks", tmp_path / "old")
    spend(StepBudget(opening, ledger, store), HALF)
    store.keep(b"two")
    assert StepStore.at(tmp_path / "a.looks").came == (b"one", b"two")
    # a file that was put back is seen by whoever saw it grow
    shutil.copy(tmp_path / "old", tmp_path / "a.looks")
    with pytest.raises(LedgerCorrupted):
        store.spend(GaussianEvent(Fraction(1, 10**6)))
    with pytest.raises(LedgerError):
        StepStore.at(tmp_path / "l.db")


def test_in_memory_there_is_one_process() -> None:
    ledger = sf.Ledger.in_memory(sf.approx(1, "1e-6", thresholds="5e-7"))
    opening = StepOpening(HASH, ledger.ledger_id, "a", HALF)
    store = StepStore.create(None, opening)
    budget = StepBudget(opening, ledger, store)
    assert not budget.durable
    assert "StepBudget" in repr(budget)
    with pytest.raises(BudgetExceeded):
        spend(budget, HALF)
    store.remove()
