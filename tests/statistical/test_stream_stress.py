"""Streams under kills and races. The experiments are in stream_harness.py.

Nothing here is judged by chance: whatever the moment of a kill, the promises must hold.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from support.experiments import experiment_of
from support.seeded import draws

experiment = partial(experiment_of, Path(__file__).with_name("stream_harness.py"))
BROKEN = ("told_twice", "told_not_kept", "out_of_order", "debits", "readable", "other_state")


def test_kills_draw_no_period_twice_and_lose_none() -> None:
    """Mutants: a period told before its commit; a state kept in place; a debit at each resumption."""
    found = experiment("kills", kills=draws(50))
    assert found["kills"] == draws(50)
    assert {k: found[k] for k in BROKEN} == dict.fromkeys(BROKEN, 0)
    assert found["unfinished"] == 0
    assert found["streams"] >= 2


def test_kills_count_nobody_more_often_than_is_priced() -> None:
    """Mutants: people kept apart from the sums, in a file or a transaction of their own."""
    found = experiment("kills", kills=draws(10), people=True)
    assert {k: found[k] for k in BROKEN} == dict.fromkeys(BROKEN, 0)
    assert (found["kills"], found["unfinished"]) == (draws(10), 0)


def test_a_kill_at_every_boundary_of_a_period_loses_nothing() -> None:
    """Mutants: as above, at every statement that reaches SQLite or a file of state; the stream goes on to its end."""
    found = experiment("boundaries", opening=False)
    assert found["moments"] > 60
    assert found["kills"] >= 10  # of two periods: a state, its commit and a file that goes, and what is told of them
    wanted = dict.fromkeys((*BROKEN, "unfinished", "stuck", "failed"), 0)
    assert {k: found.get(k, 0) for k in wanted} == wanted


def test_the_kills_catch_a_period_before_its_commit() -> None:
    """The control: the same kills must find what is told and not kept."""
    assert experiment("boundaries", opening=False, lossy="commit")["told_not_kept"] > 0


def test_the_kills_catch_a_state_that_is_not_written() -> None:
    """The other control: a store that names a state which is not there, or another, is not gone on with."""
    assert experiment("boundaries", opening=False, lossy="state")["stuck"] > 0


def test_a_kill_at_every_boundary_of_an_opening_leaves_what_the_same_call_opens() -> None:
    """Mutants: a receipt before the debit; a debit that the same call makes twice; a paid store that it cannot open."""
    found = experiment("boundaries", opening=True)
    assert (found["wrong"], found["failed"]) == (0, False)
    assert min(found["unpaid"], found["usable"]) > 10


def test_a_stream_that_was_killed_is_one_that_never_was_in_all_but_its_noise() -> None:
    """Through the command line. Mutants: a period counted twice; a state of before the kill; noise of a seed."""
    found = experiment_of(
        Path(__file__).with_name("stream_long_harness.py"), "long", weeks=10, side=5, rows=200, share=0.5
    )
    wanted = ("other_labels", "other_plan", "other_values", "other_state", "same_noise")
    assert {k: found[k] for k in wanted} == dict.fromkeys(wanted, 0)
    assert (found["periods"], found["debits"]) == (10, 2)
    assert found["kills"] >= 3
    assert found["worst"] < 8


@pytest.mark.parametrize("processes", [2, 5])
def test_processes_that_append_the_same_periods_publish_each_once(processes: int) -> None:
    """Mutants: BEGIN for BEGIN IMMEDIATE; the period looked for before the turn alone; a state removed out of turn; a
    state that was replaced between two looks of who resumes, called damage."""
    found = experiment("race", processes=processes)
    assert (found["periods"], found["told"], found["failures"]) == (8, 8 * processes, 0)
    assert {k: found[k] for k in BROKEN} == dict.fromkeys(BROKEN, 0)
