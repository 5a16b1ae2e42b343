"""The ledger under races, kills, forks, full disks and damage. The experiments are in ledger_harness.py.

Nothing here is judged by chance: whatever the moment of a kill, the promises must hold.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from support.experiments import experiment_of
from support.seeded import draws

experiment = partial(experiment_of, Path(__file__).with_name("ledger_harness.py"))


@pytest.mark.parametrize("processes", [2, 8, 64])
def test_processes_racing_for_300_units_are_granted_300(processes: int) -> None:
    """Mutants: BEGIN for BEGIN IMMEDIATE; the state read before the transaction."""
    found = experiment("race", processes=processes, units=300)
    assert (found["granted"], found["recorded"], found["remaining"], found["failures"]) == (300, 300, "0", 0)


def test_units_racing_for_the_first_spend_are_one_in_the_end() -> None:
    """Mutant: unit and table compared with what was read before the transaction."""
    found = experiment("first_spends", processes=12, rounds=5)
    assert (found["ledgers"], found["mixed"], found["lost"], found["failures"]) == (5, 0, 0, 0)
    assert found["spends"] == 10  # those of one unit and table are two of twelve


def test_kills_lose_no_debit() -> None:
    """Mutants: release before debit (the control below); a debit that returns before COMMIT."""
    found = experiment("kills", kills=draws(51), workers=3)
    assert found["kills"] == draws(51)
    assert found["unrecorded"] == found["unlisted"] == found["miscounted"] == 0
    assert found["worst_overcount"] <= 3
    assert found["debits"] > 0


def test_a_kill_at_every_boundary_loses_no_debit() -> None:
    """Mutants: as above, at every statement that reaches SQLite, and the ledger works on afterwards."""
    found = experiment("boundaries")
    assert (found["moments"] > 40, found["failed"]) == (True, False)
    assert found["kills"] >= 4  # before and after the debit, the line that is published, and the mark
    assert found["unrecorded"] == found["unlisted"] == found["miscounted"] == 0
    assert found["worst_overcount"] == 1


def test_the_kills_catch_a_release_before_its_debit() -> None:
    """The control: the same kills must find what a curator that publishes first would lose."""
    assert experiment("boundaries", mutant=True)["unrecorded"] > 0


def test_forks_inside_transactions_share_one_total() -> None:
    """Mutants: a connection kept across the fork; a fork while another thread holds the lock."""
    found = experiment("forks", children=6, units=90)
    assert found["errors"] == []
    assert (found["recorded"], found["remaining"], found["failures"]) == (90, "0", 0)


def test_a_full_disk_loses_nothing() -> None:
    """Mutant: a receipt for a debit that was not written."""
    found = experiment("full")
    assert found["kept"]
    assert found["lost"] == 0
    assert found["receipts"] > 5
    assert "disk is full" in found["message"]


def test_a_read_only_ledger_can_be_read_and_stays_as_it_is() -> None:
    """Mutants: reading through a writing connection; a repair that pretends to have happened."""
    found = experiment("read_only")
    assert found["same"]
    assert found["untouched"]
    assert [text.split(":")[0] for text in found["refusals"]] == ["LedgerError"] * 3
    assert all("read-only" in text for text in found["refusals"][:2])


def test_a_torn_commit_is_undone() -> None:
    """Mutant: reading a file whose commit was interrupted as if it were whole."""
    found = experiment("torn")
    assert found["torn"]
    assert found["same"]
    assert found["spends_on"]


def test_corruptions_change_no_fact_unnoticed() -> None:
    """Mutant: a chain whose hashes are read and not computed.

    A change that SQLite ignores and that no reading can see is harmless; it must stay so after one more debit.
    """
    found = experiment("corruptions", count=draws(1250))
    assert found["UNDETECTED"] == 0
    assert found["detected"] > draws(500)
    assert found["detected"] + found["harmless"] + found["refuses to spend"] == draws(1250)
