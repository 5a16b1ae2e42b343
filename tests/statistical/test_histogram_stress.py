"""A stored histogram under kills: no key is ever shown two counts. The experiments are in histogram_harness.py.

Nothing here is judged by chance: whatever the moment of a kill, the promise must hold.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from support.experiments import experiment_of

experiment = partial(experiment_of, Path(__file__).with_name("histogram_harness.py"))


def test_30_kills_redraw_no_key() -> None:
    """Mutants: shown before it is committed; others' draws not read."""
    found = experiment("kills", kills=30, workers=3)
    assert found["shown"] > 50
    assert (found["redrawn"], found["lost"], found["changed"], found["spent"]) == (0, 0, 0, "1")


def test_processes_that_ask_at_once_are_all_answered_alike() -> None:
    """Mutant: BEGIN for BEGIN IMMEDIATE, with which two that have both read refuse each other."""
    found = experiment("race", workers=4, rounds=25)
    assert found["shown"] > 25
    assert (found["failures"], found["redrawn"], found["lost"]) == (0, 0, 0)


def test_a_kill_at_every_statement_redraws_no_key() -> None:
    """Mutants: as above, at every boundary; a lock or a half-written line left behind that stops the next process."""
    found = experiment("boundaries")
    assert found["statements"] > 10
    assert (found["redrawn"], found["lost"], found["changed"]) == (0, 0, 0)
    assert found["answered"] == 2 * found["statements"] - 1
