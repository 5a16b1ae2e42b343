"""The command line refuses in its own words, and says what a stored sketch is."""

from __future__ import annotations

from pathlib import Path

import pytest

from sfumato.cli import app
from sfumato.cli.saying import called, spoken
from support.typed import Run, refused, release


@pytest.mark.parametrize(
    ("command", "text", "expected"),
    [
        ("release", "give out=, its folder, or sf.load.", "give --out, its folder, or read it with sfumato show."),
        (
            "release",
            "leave out objective='max', or records=",
            "leave out objective = 'max' under [plan], or records under [plan]",
        ),
        ("keys plan", "give neighbours=: 'add-remove'", "give --neighbours: 'add-remove'"),
        ("project", "take body='auto'; total=, bounds= or", "take --body auto; --total, --bounds or"),
        ("session ask", "Name it with ledger=: a store", "Name it with --ledger: a store"),
        ("plan", "age == 'x' and a=b; factors={1: 2}", "age == 'x' and a=b; factors={1: 2}"),
        ("unknown", "give out=,", "give out=,"),
        ("ledger", "give out=,", "give out=,"),
    ],
)
def test_keywords_are_said_as_options(command: str, text: str, expected: str) -> None:
    assert spoken(text, called(app, [*command.split(), "x"])) == expected


def test_a_name_that_was_paid_for_says_where_to_look(run: Run) -> None:
    """Mutant: the message as Python has it."""
    assert release(run).code == 0
    again = run("release", "spec.toml", "--ledger", "budget.db", "--name", "first", "-o", "elsewhere")
    refused(again, "give --out, its folder", "sfumato show")
    assert not Path("elsewhere").exists()
