"""Paying for several looks at once: one durable debit before any look, and an account that nothing outspends.

Mutants named were seen to fail.
"""

from __future__ import annotations

import copy
import os
import pickle
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.curator import Curator, selecting
from sfumato.curator.conversations import open_conversation
from sfumato.curator.rows import counting
from sfumato.operators import Block, Identity
from sfumato.privacy import accounting as accountant
from sfumato.privacy.accounting import ApproxEvent, BoundedRangeEvent, Event, GaussianEvent, PureEvent, ZcdpEvent
from sfumato.privacy.noise import DiscreteLaplace, RoundedGaussian
from sfumato.privacy.selection import Candidates
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from support.wall import DOMAIN, TABLE, Touched, Untouchable

ADD_REMOVE = PrivacyUnit(Neighbours.ADD_REMOVE)
HASH = "0" * 64
CELLS = Block((("a",),), (Identity(5),))
RHO = sf.zcdp(4)
ONE = ZcdpEvent(Fraction(1))


def curator(ledger: sf.Ledger, source: Any = TABLE) -> Curator:
    return Curator(source, DOMAIN, ADD_REMOVE, ledger)


def select(opened: Curator, epsilon: Fraction) -> int:
    whole = [np.full(5, v, dtype=np.int64) for v in (0, 1, 0)]
    price = BoundedRangeEvent(epsilon)
    return selecting.select(opened, Candidates((CELLS,), *whole), price, name="choice", plan_hash=HASH)[0]


def measure(opened: Curator, price: Event, sigma: int = 1) -> None:
    noise = DiscreteLaplace(Fraction(sigma)) if isinstance(price, PureEvent) else RoundedGaussian(Fraction(sigma))
    opened.measure([CELLS], noise, price, name="values", plan_hash=HASH)


# ---- the debit -------------------------------------------------------------------------------------------


def paying(price: Any, name: str = "n") -> Callable[[Curator], Any]:
    return lambda c: c.prepaid(price, name=name, plan_hash=HASH)


REFUSED: dict[str, tuple[Callable[[Curator], Any], type[Exception]]] = {
    "above the budget": (paying(ZcdpEvent(4 + Fraction(1, 10**30))), sf.BudgetExceeded),
    "bounded ranges do not add up": (paying(BoundedRangeEvent(Fraction(1))), sf.errors.BudgetError),
    "a delta of its own": (paying(ApproxEvent(Fraction(1), Fraction(1, 10))), sf.errors.BudgetError),
    "no price": (paying(sf.zcdp(1)), sf.errors.BudgetError),
    "no price of the library": (paying(1), sf.errors.BudgetError),
    "no name": (paying(ONE, ""), sf.errors.InvalidInput),
}


@pytest.mark.parametrize("how", REFUSED)
def test_what_cannot_be_paid_is_refused_before_the_source_is_touched(how: str) -> None:
    """Mutant: the ledger asked at the debit alone."""
    run, error = REFUSED[how]
    ledger = sf.Ledger.in_memory(RHO)
    with pytest.raises(error):
        run(curator(ledger, Untouchable()))
    assert ledger.entries() == ()


def test_a_source_that_cannot_be_read_costs_nothing() -> None:
    """The control of the test above."""
    ledger = sf.Ledger.in_memory(RHO)
    with pytest.raises(Touched):
        curator(ledger, Untouchable()).prepaid(ONE, name="n", plan_hash=HASH)
    assert ledger.entries() == ()


def test_the_whole_price_is_on_record_before_any_look(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Mutants: the debit after the first look; each look debited from the ledger. What failed says nothing."""
    seen: list[list[str]] = []

    def explode(*_: Any) -> Any:
        seen.append([e.name for e in sf.Ledger(tmp_path / "l.db").unreleased()])
        raise RuntimeError("7 persons of 4321")

    ledger = sf.Ledger.create(tmp_path / "l.db", total=RHO)
    paid, receipt = curator(ledger).prepaid(ONE, name="n", plan_hash=HASH)
    assert (receipt.price, ledger.spent) == (1, 1)
    monkeypatch.setattr(counting.TensorCounts, "_tables", explode)
    for look in (lambda: select(paid, Fraction(1)), lambda: measure(paid, GaussianEvent(Fraction(1)))):
        with pytest.raises(sf.errors.NotWritten) as failure:
            look()
        assert "4321" not in str(failure.value)
    assert seen == [["n"], ["n"]]
    assert [e.kind for e in ledger.entries()] == ["spend"]


# ---- the account -----------------------------------------------------------------------------------------


TINY = Fraction(1, 2**50)
SPENT: list[tuple[sf.Budget, Event, list[Event], list[Event]]] = [
    # whole price, looks that use it up exactly, looks that go beyond it by next to nothing
    (
        RHO,
        ONE,
        [BoundedRangeEvent(Fraction(2)), GaussianEvent(Fraction(1))],
        [BoundedRangeEvent(TINY), GaussianEvent(TINY)],
    ),
    (
        sf.pure(9),
        PureEvent(Fraction(2)),
        [BoundedRangeEvent(Fraction(1, 2)), PureEvent(Fraction(3, 2))],
        [BoundedRangeEvent(TINY), PureEvent(TINY)],
    ),
    (sf.gdp(9), GaussianEvent(Fraction(5)), [GaussianEvent(Fraction(2)), GaussianEvent(Fraction(3))], []),
    # a price in another currency than the ledger's: what comes out keeps what the price states
    (RHO, PureEvent(Fraction(2)), [PureEvent(Fraction(2))], [PureEvent(TINY), BoundedRangeEvent(TINY)]),
    (RHO, GaussianEvent(Fraction(5)), [GaussianEvent(Fraction(5))], [GaussianEvent(TINY)]),
]


@pytest.mark.parametrize("case", range(len(SPENT)))
def test_what_was_debited_can_be_spent_and_nothing_beyond(case: int) -> None:
    """Mutants: an account that is not enforced; one of more than the price; of the whole ledger."""
    budget, whole, exact, beyond = SPENT[case]
    ledger = sf.Ledger.in_memory(budget)
    paid, _ = curator(ledger).prepaid(whole, name="n", plan_hash=HASH)
    spent = ledger.spent
    for event in exact:
        look(paid, event)
    for event in [*beyond, *exact]:
        with pytest.raises(sf.BudgetExceeded):
            look(paid, event)
    assert ledger.spent == spent
    assert len(ledger.entries()) == 1


def look(paid: Curator, event: Event) -> None:
    if isinstance(event, BoundedRangeEvent):
        select(paid, event.epsilon)
    else:
        measure(paid, event, 2**50)


def test_a_look_that_costs_more_than_it_says_is_refused_as_ever() -> None:
    """Mutant: prices believed where they are paid already."""
    paid, _ = curator(sf.Ledger.in_memory(RHO)).prepaid(ONE, name="n", plan_hash=HASH)
    with pytest.raises(sf.errors.PlanError, match="costs more"):
        measure(paid, GaussianEvent(Fraction(1, 2)))
    measure(paid, GaussianEvent(Fraction(2)))


def test_a_look_of_another_kind_has_no_price_there() -> None:
    paid, _ = curator(sf.Ledger.in_memory(sf.pure(9))).prepaid(PureEvent(Fraction(1)), name="n", plan_hash=HASH)
    with pytest.raises(sf.errors.BudgetError, match="no price"):
        measure(paid, GaussianEvent(Fraction(1)))


def test_prepaid_within_prepaid_spends_what_is_left() -> None:
    paid, _ = curator(sf.Ledger.in_memory(RHO)).prepaid(ONE, name="n", plan_hash=HASH)
    inner, _ = paid.prepaid(ZcdpEvent(Fraction(3, 4)), name="m", plan_hash=HASH)
    measure(inner, GaussianEvent(Fraction(3, 2)))
    for opened in (inner, paid):
        with pytest.raises(sf.BudgetExceeded):
            measure(opened, GaussianEvent(Fraction(501, 1000)), 2)
    measure(paid, GaussianEvent(Fraction(1, 2)), 2)


def test_threads_share_one_account(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: an account without its lock, so that every thread passes the check before any pays."""
    paid, _ = curator(sf.Ledger.in_memory(RHO)).prepaid(ONE, name="n", plan_hash=HASH)
    refuse, granted = accountant.refuse_overspending, list[int]()

    def check_slowly(*given: Any) -> None:
        refuse(*given)
        time.sleep(0.01)

    def run() -> None:
        with suppress(sf.BudgetExceeded):
            granted.append(select(paid, Fraction(2)))

    monkeypatch.setattr(accountant, "refuse_overspending", check_slowly)
    threads = [threading.Thread(target=run) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(granted) == 2


def test_no_copy_and_no_child_spends_twice() -> None:
    """Mutants: an account that a fork, a copy or a pickle doubles."""
    paid, _ = curator(sf.Ledger.in_memory(RHO)).prepaid(ONE, name="n", plan_hash=HASH)
    twin = copy.copy(paid)
    select(twin, Fraction(2))
    for double in (copy.deepcopy, pickle.dumps):
        with pytest.raises(sf.errors.BudgetError, match="copied"):
            double(paid)
    child = os.fork()
    if child == 0:  # no test framework in the child
        try:
            select(paid, Fraction(1))
        except sf.errors.BudgetError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    select(paid, Fraction(2))
    for opened in (paid, twin):
        with pytest.raises(sf.BudgetExceeded):
            select(opened, Fraction(1))


def test_a_durable_conversation_is_not_paid_from_memory(tmp_path: Path) -> None:
    from sfumato.privacy.conversation_price import Terms
    from sfumato.privacy.selection import Epochs

    paid, _ = curator(sf.Ledger.create(tmp_path / "l.db", total=RHO)).prepaid(ONE, name="n", plan_hash=HASH)
    terms = Terms(Epochs(1, Fraction(1)), None)
    with pytest.raises(sf.errors.PlanError, match="kept in"):
        open_conversation(paid, terms, terms.cost(ZcdpEvent), name="m", plan_hash=HASH, store=tmp_path / "c")
    talk, _ = open_conversation(paid, terms, terms.cost(ZcdpEvent), name="m", plan_hash=HASH)
    assert talk.remaining == 1
    with pytest.raises(sf.BudgetExceeded):
        select(paid, Fraction(21, 10))
