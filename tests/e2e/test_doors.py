"""The doors `select` and `converse` in the wall: paid before the look, prices derived, an index or a bit comes out.

Mutants named were seen to fail.
"""

from __future__ import annotations

import copy
import os
import pickle
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.curator import Curator, selecting
from sfumato.curator.conversations import open_conversation
from sfumato.curator.rows import counting
from sfumato.curator.selecting import select
from sfumato.operators import Block, Identity, Prefix, Total
from sfumato.privacy.accounting import BoundedRangeEvent, Event, PureEvent, ZcdpEvent
from sfumato.privacy.conversation_price import Terms
from sfumato.privacy.selection import Candidates, Epochs
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from support.insecure_bits import InsecureTestBits
from support.wall import COUNTS, DOMAIN, TABLE, Touched, Untouchable

ADD_REMOVE = PrivacyUnit(Neighbours.ADD_REMOVE)
HASH = "0" * 64
A, B = Block((("a",),), (Identity(5),)), Block((("b", "a"),), (Identity(15),))
PREFIX = Block((("a",),), (Prefix(5),))
BITS = Terms(Epochs(2, Fraction(1)))
RHO = sf.zcdp(1000)


def candidates(*blocks: Block, estimate: int = 0, weight: int = 1, penalty: int = 0) -> Candidates:
    rows = sum(b.rows for b in blocks)
    return Candidates(blocks, *(np.full(rows, v, dtype=np.int64) for v in (estimate, weight, penalty)))


def question(**public: int) -> Candidates:
    """One query: the total, from the table of one attribute."""
    return candidates(Block((("a",),), (Total(5),)), **public)


def curator(ledger: sf.Ledger | None = None, unit: PrivacyUnit = ADD_REMOVE, source: Any = TABLE) -> Curator:
    return Curator(source, DOMAIN, unit, ledger or sf.Ledger.in_memory(RHO))


def test_the_index_counts_the_rows_of_the_tables_asked() -> None:
    """Mutant: the sign of the score turned. Both tables, one of them asked in another order of its axes."""
    exact = np.array(COUNTS).reshape(5, 3)
    answers = [*exact.sum(axis=1).tolist(), *exact.T.reshape(-1).tolist()]
    opened = curator(sf.Ledger.in_memory(sf.zcdp(10**6)))
    for i, odd in enumerate(answers):
        given = candidates(A, B)
        estimates = np.array(answers, dtype=np.int64)
        estimates[i] = odd + 3 if i % 2 else odd - 3
        given = Candidates(given.blocks, estimates, given.weights, given.penalties)
        assert select(opened, given, BoundedRangeEvent(Fraction(40)), name=f"n{i}", plan_hash=HASH)[0] == i


def chosen(given: Any = None, price: Event | None = None, name: str = "n") -> Callable[[Curator], Any]:
    given, price = given or candidates(A), price or BoundedRangeEvent(Fraction(1))
    return lambda c: select(c, given, price, name=name, plan_hash=HASH)


def opening(terms: Any, price: Event) -> Callable[[Curator], Any]:
    return lambda c: open_conversation(c, terms, price, name="n", plan_hash=HASH)


ONE = PureEvent(Fraction(1))
REFUSED: dict[str, tuple[Callable[[Curator], Any], type[Exception]]] = {
    "above the budget": (chosen(price=BoundedRangeEvent(Fraction(90))), sf.BudgetExceeded),
    "another kind of price": (chosen(price=ONE), sf.errors.PlanError),
    "no candidates": (chosen(A), sf.errors.PlanError),
    "not of this table": (chosen(candidates(Block((("z",),), (Identity(5),)))), sf.errors.WorkloadError),
    "no name": (chosen(name=""), sf.errors.InvalidInput),
    "a session above the budget": (
        opening(Terms(Epochs(2001, Fraction(1))), ZcdpEvent(Fraction(2001, 2))),
        sf.BudgetExceeded,
    ),
    "a session below its price": (opening(BITS, ZcdpEvent(Fraction(999, 1000))), sf.errors.PlanError),
    "the price of one epoch": (opening(BITS, ONE), sf.errors.PlanError),
    "no session": (opening(ONE, ONE), sf.errors.PlanError),
}


@pytest.mark.parametrize("how", REFUSED)
def test_what_is_not_paid_for_is_refused_before_the_source_is_touched(how: str) -> None:
    """Mutants: the price of a session believed; the ledger asked at the debit alone; epsilon^2/8 for it."""
    run, error = REFUSED[how]
    ledger = sf.Ledger.in_memory(RHO)
    with pytest.raises(error):
        run(curator(ledger, source=Untouchable()))
    assert ledger.entries() == ()


def test_honest_requests_reach_the_source_and_spend_nothing_where_it_cannot_be_read() -> None:
    """The control of the test above."""
    ledger = sf.Ledger.in_memory(RHO)
    opened = curator(ledger, source=Untouchable())
    with pytest.raises(Touched):
        select(opened, candidates(A), BoundedRangeEvent(Fraction(1)), name="n", plan_hash=HASH)
    with pytest.raises(Touched):
        open_conversation(opened, BITS, ZcdpEvent(Fraction(1)), name="n", plan_hash=HASH)
    assert ledger.entries() == ()


def test_candidates_altered_after_their_birth_are_refused() -> None:
    """Mutant: candidates not built anew."""
    given = candidates(A)
    object.__setattr__(given, "weights", np.array([1, 1, 1, 1, 0], dtype=np.int64))
    with pytest.raises(sf.errors.PlanError):
        select(curator(source=Untouchable()), given, BoundedRangeEvent(Fraction(1)), name="n", plan_hash=HASH)


def test_the_rate_is_that_of_the_sensitivity_derived(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutants: epsilon over D; twice the norm under replace-one; rows of a person, or weights, forgotten."""
    from sfumato.curator import selecting as module

    rates: list[Fraction] = []

    def note(_scores: object, rate: Fraction, _bits: object) -> int:
        rates.append(rate)
        return 0

    monkeypatch.setattr(module, "exponential_mechanism", note)
    import pandas as pd

    persons = PrivacyUnit(Neighbours.REPLACE_ONE, "who", 3)
    people = {"who": ["p"], "a": [1], "b": ["x"]}
    for unit, source, moves in (
        (ADD_REMOVE, TABLE, 1),
        (PrivacyUnit(Neighbours.REPLACE_ONE), TABLE, 1),
        (persons, pd.DataFrame(people), 3),
    ):
        opened = curator(unit=unit, source=source)
        select(opened, candidates(PREFIX, weight=7), BoundedRangeEvent(Fraction(1)), name="n", plan_hash=HASH)
        assert rates.pop() == Fraction(1, 2 * 7 * moves)
    total = candidates(question().blocks[0])
    with pytest.raises(sf.errors.PlanError, match="depends on any"):
        select(
            curator(unit=PrivacyUnit(Neighbours.REPLACE_ONE)),
            total,
            BoundedRangeEvent(Fraction(1)),
            name="n",
            plan_hash=HASH,
        )


@pytest.mark.parametrize("door", ["select", "converse"])
def test_a_debit_stands_before_the_look_and_failures_say_nothing(
    door: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Mutants: the debit after the look; what failed passed on; a session that goes on after it."""

    def explode(*_: Any) -> Any:
        seen.append([e.name for e in sf.Ledger(tmp_path / "l.db").unreleased()])
        raise RuntimeError("7 persons of 4321")

    seen: list[list[str]] = []
    monkeypatch.setattr(counting.TensorCounts, "_tables", explode)
    ledger = sf.Ledger.create(tmp_path / "l.db", total=RHO)
    opened = curator(ledger)
    if door == "select":
        with pytest.raises(sf.errors.NotWritten) as failure:
            select(opened, candidates(A), BoundedRangeEvent(Fraction(2)), name="n", plan_hash=HASH)
    else:
        session, _ = open_conversation(opened, BITS, ZcdpEvent(Fraction(1)), name="n", plan_hash=HASH)
        with pytest.raises(sf.errors.NotWritten) as failure:
            session.ask(lambda _: question())
        assert session.remaining == 0
        with pytest.raises(sf.BudgetExceeded):
            session.ask(lambda _: question())
    assert seen == [["n"]]
    assert "4321" not in str(failure.value)
    assert failure.value.__context__ is None


def test_budgets_are_met_exactly_and_not_passed() -> None:
    """Mutant: a selection that is not charged."""
    ledger = sf.Ledger.in_memory(sf.zcdp("1.125"))
    opened = curator(ledger)
    session, receipt = open_conversation(opened, BITS, BITS.cost(ZcdpEvent), name="s", plan_hash=HASH)
    assert receipt.price == 1 == ledger.spent
    session.ask(lambda _: question())
    select(opened, candidates(A), BoundedRangeEvent(Fraction(1)), name="n", plan_hash=HASH)
    assert ledger.remaining == 0
    with pytest.raises(sf.BudgetExceeded):
        select(opened, candidates(A), BoundedRangeEvent(Fraction(1, 10**9)), name="m", plan_hash=HASH)


def test_a_session_answers_bits_until_its_last_positive() -> None:
    """Mutant: a session that never closes."""
    ledger = sf.Ledger.in_memory(sf.pure(80))
    session, _ = open_conversation(
        curator(ledger), Terms(Epochs(2, Fraction(40))), PureEvent(Fraction(80)), name="s", plan_hash=HASH
    )
    n = sum(COUNTS)
    bits = [session.ask(lambda _, d=d: question(estimate=n + d, penalty=10)).above for d in (1, -1, 20, 2, -20)]
    assert bits == [False, False, True, False, True]
    assert session.remaining == 0
    with pytest.raises(sf.BudgetExceeded, match="closed for good"):
        session.ask(lambda _: question())
    for shown in (repr(session), str(session.remaining)):
        assert str(n) not in shown


def test_a_question_that_moves_too_far_or_is_several_is_refused_without_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: the session's sensitivity believed. The session goes on."""
    looks: list[int] = []
    session, _ = open_conversation(curator(), BITS, ZcdpEvent(Fraction(1)), name="s", plan_hash=HASH)

    def look(*_: object) -> list[int]:
        looks.append(1)
        return [0]

    monkeypatch.setattr(selecting.Candidates, "scores", look)
    for bad in (question(weight=2), candidates(A), A):
        with pytest.raises(sf.errors.PlanError):
            session.ask(lambda _, bad=bad: bad)
    assert not looks
    assert session.remaining == 2


def test_a_session_has_no_twin() -> None:
    """Mutants: a copy or a forked child that answers with the same noise."""
    session, _ = open_conversation(curator(), BITS, ZcdpEvent(Fraction(1)), name="s", plan_hash=HASH)
    for twin in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(sf.errors.BudgetError):
            twin(session)
    child = os.fork()
    if child == 0:  # no test framework in the child
        try:
            session.ask(lambda _: question())
        except sf.errors.BudgetError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_neighbours_look_alike_beside_the_answer() -> None:
    """With the same bits and public input, what comes out differs in the index or bit alone."""

    def shown(counts: list[int], event: Event) -> tuple[str, ...]:
        opened = Curator(
            sf.Histogram(counts), DOMAIN, ADD_REMOVE, sf.Ledger.in_memory(RHO), insecure_bits=InsecureTestBits(1)
        )
        index, receipt = select(opened, candidates(A), event, name="n", plan_hash=HASH)
        session, _ = open_conversation(opened, BITS, ZcdpEvent(Fraction(1)), name="s", plan_hash=HASH)
        kinds = type(index).__name__, type(session.ask(lambda _: question(estimate=10**6)).above).__name__
        return *kinds, repr(receipt.price), repr(session), repr(opened)

    one = shown(COUNTS, BoundedRangeEvent(Fraction(1)))
    assert one == shown([COUNTS[0] + 1, *COUNTS[1:]], BoundedRangeEvent(Fraction(1)))
