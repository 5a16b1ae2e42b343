"""Conversations under kills and races. The experiments are in conversation_harness.py.

Nothing here is judged by chance: whatever the moment of a kill, the promises must hold.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from support.experiments import experiment_of
from support.seeded import draws

experiment = partial(experiment_of, Path(__file__).with_name("conversation_harness.py"))
BROKEN = ("told_twice", "told_not_kept", "out_of_order", "wrong", "too_many", "miscounted", "debits", "readable")


def test_kills_lose_no_step_and_give_none_away() -> None:
    """Mutants: a step told before its commit; an epoch that a kill gives back; a debit at each resumption."""
    found = experiment("kills", kills=draws(50))
    assert found["kills"] == draws(50)
    assert {k: found[k] for k in BROKEN} == dict.fromkeys(BROKEN, 0)
    assert found["unfinished"] == 0
    assert found["worst_untold"] <= 1
    assert found["conversations"] >= 2


def test_a_kill_at_every_boundary_of_an_answer_loses_nothing() -> None:
    """Mutants: as above, at every statement that reaches SQLite; and the conversation goes on to its end afterwards."""
    found = experiment("boundaries", opening=False)
    assert found["moments"] > 40
    assert found["kills"] >= 6
    assert {k: found[k] for k in (*BROKEN, "unfinished", "failed")} == dict.fromkeys(
        (*BROKEN, "unfinished", "failed"), 0
    )


def test_the_kills_catch_an_answer_before_its_commit() -> None:
    """The control: the same kills must find what is told and not kept."""
    assert experiment("boundaries", opening=False, lossy=True)["told_not_kept"] > 0


def test_a_kill_at_every_boundary_of_an_opening_leaves_what_the_same_call_opens() -> None:
    """Mutants: a threshold before the debit; a debit that the same call makes twice; a paid file it cannot open."""
    found = experiment("boundaries", opening=True)
    assert (found["wrong"], found["failed"]) == (0, False)
    assert min(found["unpaid"], found["usable"]) > 10


@pytest.mark.parametrize("processes", [2, 6])
def test_processes_that_ask_at_once_share_the_positive_answers(processes: int) -> None:
    """Mutants: BEGIN for BEGIN IMMEDIATE; `form` called outside the turn; steps read before it."""
    found = experiment("race", processes=processes, count=40)
    assert (found["steps"], found["told"], found["failures"]) == (80, 80, 0)
    assert {k: found[k] for k in BROKEN} == dict.fromkeys(BROKEN, 0)
