"""Conversations: what is asked and told, in memory and in a file.

Mutants named were seen to fail.
"""

from __future__ import annotations

import copy
import os
import pickle
import sqlite3
import threading
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import sfumato as sf
from sfumato.curator.conversations import Conversation, open_conversation, resume_conversation
from sfumato.curator.conversations.stored import read_transcript
from sfumato.curator.rows import counting
from sfumato.privacy import files
from sfumato.privacy.accounting import ZcdpEvent
from sfumato.privacy.conversation_price import Step, Terms
from sfumato.privacy.selection import Candidates, Epochs
from support.conversations import COST, HASH, TERMS, N, curator, high, lines, low, opened, question
from support.wall import DOMAIN


@pytest.fixture
def ledger(tmp_path: Path) -> sf.Ledger:
    return sf.Ledger.create(tmp_path / "l.db", total=sf.zcdp(10**6))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "c.db"


@pytest.mark.parametrize("kept", [False, True])
def test_replies_steps_and_what_remains(kept: bool, ledger: sf.Ledger, store: Path) -> None:
    """Mutants: one positive more, or fewer, than paid for; steps that `form` is not given; the score for the answer."""
    asked = opened(ledger, store if kept else None, about=(DOMAIN, "plan"))
    seen: list[int] = []

    def form(steps: Sequence[Step]) -> Candidates:
        seen.append(len(steps))
        assert [s.above for s in steps] == [s.above for s in asked.steps]
        return low(steps) if len(steps) % 2 else high(steps)

    steps = [asked.ask(form) for _ in range(5)]
    assert seen == [0, 1, 2, 3, 4]
    assert [s.above for s in steps] == [True, False, True, False, True]
    assert [s.answer for s in steps] == [N if s.above else None for s in steps]
    assert (asked.asked, asked.remaining, asked.terms, asked.about) == (5, 0, TERMS, (DOMAIN, "plan"))
    assert [int(s.question.estimates[0]) for s in asked.steps] == [0, N, 0, N, 0]
    with pytest.raises(sf.BudgetExceeded, match="closed for good"):
        asked.ask(form)
    assert seen == [0, 1, 2, 3, 4]
    assert len(ledger.entries()) == 1
    assert (asked.anchor is None) is not kept


def test_a_step_is_committed_and_synced_before_it_is_given(
    ledger: sf.Ledger, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutants: a step returned before COMMIT; `form` called before the write lock is held; synchronous=NORMAL."""
    asked, statements, genuine = opened(ledger, store), list[str](), sqlite3.connect

    def traced(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        connection = genuine(*args, **kwargs)
        connection.set_trace_callback(statements.append)
        return connection

    def form(steps: Sequence[Step]) -> Candidates:
        statements.append("FORM")
        return high(steps)

    monkeypatch.setattr(files.sqlite3, "connect", traced)
    asked.ask(form)
    at = {text: i for i, text in enumerate(statements)}
    assert at["PRAGMA synchronous=EXTRA"] < at["BEGIN IMMEDIATE"] < at["FORM"]
    assert [t.split()[0] for t in statements[-3:]] == ["INSERT", "PRAGMA", "COMMIT"]
    assert statements[-2] == "PRAGMA data_version"  # nobody else has written
    monkeypatch.undo()
    assert lines(store, "kind") == [("paid",), ("above",)]


def test_lines_have_one_length_whatever_the_reply(ledger: sf.Ledger, store: Path) -> None:
    """Mutant: an answer, or a threshold, written where the question was above alone: a full disk would tell."""
    asked = opened(ledger, store)
    for form in (low, high, low, high):
        asked.ask(form)
    parts = ("kind", "answer", "threshold", "hash", "body", "question")
    sizes = [[len(c) for c in row] for row in lines(store, *parts)[1:]]
    assert {(*size[:4], size[4] - size[5]) for size in sizes} == {(5, 24, 24, 64, 5 + 24 + 24 + 3)}


@pytest.mark.parametrize("kept", [False, True])
def test_a_question_that_is_not_formed_or_not_admitted_harms_nothing(
    kept: bool, ledger: sf.Ledger, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutants: a conversation closed by it; a look at it; a step in the file; a question within a question."""
    asked, looks = opened(ledger, store if kept else None), list[int]()
    monkeypatch.setattr(counting.TensorCounts, "_tables", lambda *_: looks.append(1))

    def fails(_: Sequence[Step]) -> Candidates:
        raise ZeroDivisionError

    for form, error in (
        (fails, ZeroDivisionError),
        (lambda _: question(weight=2), sf.errors.PlanError),
        (lambda _: question(coefficient=2), sf.errors.PlanError),
        (lambda _: None, sf.errors.PlanError),
        (lambda steps: asked.ask(high).question, sf.errors.BudgetError),
    ):
        with pytest.raises(error):
            asked.ask(form)
    monkeypatch.undo()
    assert not looks
    assert (asked.asked, asked.remaining) == (0, 3)
    assert asked.ask(high).answer == N


def test_a_question_may_move_further_than_its_answer_was_paid_for_only_as_bits(ledger: sf.Ledger) -> None:
    """Mutants: the move of answers believed; the weight of a score taken for a move of its answer."""
    epochs = Epochs(3, Fraction(20), 2)

    def ask(name: str, given: Candidates, noise: Any, move: int = 1) -> Step:
        terms = Terms(epochs, noise, move)
        asked, _ = open_conversation(curator(ledger), terms, terms.cost(ZcdpEvent), name=name, plan_hash=HASH)
        return asked.ask(lambda _: given)

    double = question(coefficient=2)
    with pytest.raises(sf.errors.PlanError, match="the answer moves by up to 2"):
        ask("a", double, TERMS.answer)
    assert ask("b", question(weight=2), TERMS.answer).answer == N
    bit = ask("c", double, None)
    assert (bit.above, bit.answer) == (True, None)
    assert ask("d", double, TERMS.answer, 2).answer == 2 * N


@pytest.mark.parametrize("kept", [False, True])
def test_a_look_that_fails_closes_for_good_and_says_nothing(
    kept: bool, ledger: sf.Ledger, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutants: what failed passed on; a conversation, or its file, that goes on after it."""

    def explode(*_: Any) -> Any:
        raise RuntimeError("7 persons of 4321")

    asked = opened(ledger, store if kept else None)
    asked.ask(low)
    with monkeypatch.context() as patch:
        patch.setattr(counting.TensorCounts, "_tables", explode)
        with pytest.raises(sf.errors.NotWritten) as failure:
            asked.ask(high)
    assert "4321" not in str(failure.value)
    assert failure.value.__context__ is None
    assert (asked.asked, asked.remaining) == (1, 0)
    with pytest.raises(sf.BudgetExceeded):
        asked.ask(high)
    if kept:
        assert read_transcript(store).remaining == 0
        with pytest.raises(sf.BudgetExceeded):
            resume_conversation(curator(ledger), store).ask(high)


@pytest.mark.parametrize("kept", [False, True])
def test_a_form_that_forks_gets_one_answer(kept: bool, ledger: sf.Ledger, store: Path) -> None:
    """Mutants: a child that answers, or writes, inside its parent's turn; twins of the object."""
    asked = opened(ledger, store if kept else None)
    children: list[int] = []

    def form(steps: Sequence[Step]) -> Candidates:
        children.append(os.fork())
        return high(steps)

    try:
        step = asked.ask(form)
    except sf.errors.BudgetError:
        if children == [0]:  # no test framework in the child
            os._exit(7)
        raise
    finally:
        if children == [0]:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 7
    assert step.answer == N
    assert asked.ask(high).answer == N
    assert (asked.asked, asked.remaining) == (2, 1)
    for twin in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(sf.errors.BudgetError):
            twin(asked)


def test_threads_take_turns(ledger: sf.Ledger, store: Path) -> None:
    """Mutant: a turn without a lock."""
    for kept in (None, store):
        asked = (
            opened(ledger, kept)
            if kept
            else open_conversation(curator(ledger), TERMS, COST, name="m", plan_hash=HASH)[0]
        )
        seen: list[int] = []

        def talk(asked: Conversation = asked, seen: list[int] = seen) -> None:
            for _ in range(5):
                asked.ask(lambda steps: seen.append(len(steps)) or low(steps))

        threads = [threading.Thread(target=talk) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert seen == list(range(20))
        assert asked.asked == 20


def test_shown_texts_hold_no_count_and_no_noise(ledger: sf.Ledger, store: Path) -> None:
    asked = opened(ledger, store)
    standing = asked._transcript.standing()
    assert repr(asked) == "<Conversation: 3 of 3 positive answers left>"
    assert repr(standing.vector) == "<SparseVector: 3 of 3 positive answers left>"
    assert "threshold" not in repr(standing)
