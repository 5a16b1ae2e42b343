"""Refusals in the words of the command line: `out=` of Python is `--out`, `neighbours=` stands under [privacy]."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import typer

__all__ = ["called", "spoken"]

SPEC = {
    "neighbours": "privacy",
    "person": "privacy",
    "rows_per_person": "privacy",
    "mechanism": "plan",
    "objective": "plan",
    "records": "plan",
    "public": "public",
    "bounds": "bounds",
    "periods": "stream",
    "factors": "queries",
}
"""What a spec says under which table, where no option of the command does."""
_WORDS = {"or sf.load": "or read it with sfumato show"}
# a keyword, alone or with a value in quotes; not a comparison, and no part of another word
_KEYWORD = re.compile(r"(?<![\w.\[=-])([a-z_]+)=(?:'([\w.-]+)'|(?![=\w'\"\[{(\\]))")


def spoken(text: str, command: Any) -> str:
    """A message about Python's keywords as the command has them: its options, or for those with a spec its tables."""
    if command is None:
        return text
    options = {p.name: max(p.opts, key=len) for p in command.params if p.opts[0].startswith("-")}
    specced = any(p.name == "spec" for p in command.params)

    def said(found: re.Match[str]) -> str:
        name, value = found[1], found[2]
        if name in options:
            return f"{options[name]}{'' if value is None else f' {value}'}"
        if specced and name in SPEC:
            return f"{name}{'' if value is None else f' = {value!r}'} under [{SPEC[name]}]"
        return found[0]

    for python, shell in _WORDS.items():
        text = text.replace(python, shell)
    return _KEYWORD.sub(said, text)


def called(app: typer.Typer, arguments: Sequence[str]) -> Any:
    """The command that was typed; None where there is none."""
    command: Any = typer.main.get_command(app)
    for word in arguments:
        if not hasattr(command, "commands"):
            return command
        if word in command.commands:
            command = command.commands[word]
    return None if hasattr(command, "commands") else command
