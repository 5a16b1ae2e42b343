"""The command line refuses in its own words, and says what a stored sketch is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sfumato import cli
from sfumato.cli.options import message_for_command, typed_command
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
    assert message_for_command(text, typed_command(cli.command(), [*command.split(), "x"])) == expected


def _commands(group: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield words, group
    for name, inner in getattr(group, "commands", {}).items():
        yield from _commands(inner, (*words, name))


def test_help_loses_no_words(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every word of every help text is shown. Mutant: [publication] taken for a mark of a style."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERMINAL_WIDTH", "200")
    bracketed = 0
    for words, command in _commands(cli.command()):
        shown = " ".join(re.sub(r"[│╭╮╰╯─]", " ", run(*words, "--help").out).split())
        for told in (command, *command.params):
            text = (getattr(told, "help", None) or "").split("\f")[0].replace("\\[", "[").replace("\b", "")
            if getattr(told, "hidden", False):
                continue
            for sentence in text.split("\n\n"):
                assert " ".join(sentence.split()) in shown, (words, sentence)
            bracketed += "[" in text
    assert bracketed >= 8


def test_a_name_that_was_paid_for_says_where_to_look(run: Run) -> None:
    """Mutant: the message as Python has it."""
    assert release(run).code == 0
    again = run("release", "spec.toml", "--ledger", "budget.db", "--name", "first", "-o", "elsewhere")
    refused(again, "give --out, its folder", "sfumato show")
    assert not Path("elsewhere").exists()


def test_a_sketch_is_shown_and_asked_and_other_files_say_what_they_are(run: Run) -> None:
    """Mutants: a file taken for a folder; names of classes."""
    Path("items.csv").write_text("item\n" + "5\n" * 90 + "17\n" * 9, encoding="utf-8")
    kept = ("--column", "item", "--neighbours", "add-remove", "--epsilon", "1")
    assert run("keys", "plan", *kept, "--records", "100", "-o", "items.plan").code == 0
    assert run("ledger", "create", "keys.db", "--epsilon", "3").code == 0
    paid = ("--ledger", "keys.db", "--name", "keys")
    assert run("keys", "sketch", "items.plan", "items.csv", *paid, "-o", "items.sketch").code == 0
    shown = run("show", "items.sketch")
    assert shown.code == 0
    assert "Sketch 'keys'" in shown.out
    assert run("show", "items.plan").code == 0
    assert run("keys", "ask", "items.sketch", "5").code == 0
    refused(run("keys", "ask", "items.plan", "5"), "holds a plan for keys; asked for is a sketch", "keys sketch")
    refused(run("keys", "ask", "budget.db", "5"), "holds a ledger", "ledger status")
    refused(run("show", "budget.db"), "sfumato ledger status budget.db")
    refused(run("show", "nowhere"), "nothing is at nowhere")
    assert run("keys", "open", "items.csv", *kept, "--ledger", "keys.db", "--name", "desk", "-o", "desk.db").code == 0
    refused(run("keys", "ask", "desk.db", "5"), "sfumato session ask desk.db --key 5")
    refused(run("show", "desk.db"), "sfumato session status desk.db")
