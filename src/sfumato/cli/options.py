"""Arguments that several commands take."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from sfumato.releases.publication import Publication

Json = Annotated[bool, typer.Option("--json", help="Print JSON for a program.")]
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a release.")]
LedgerPath = Annotated[Path, typer.Argument(metavar="LEDGER", help="The ledger's file.")]
Source = Annotated[str | None, typer.Option(metavar="TABLE", help="A file or address; default: the spec's source.")]
Table = Annotated[
    str | None,
    typer.Option("--table", metavar="NAME", help="The table's public name, fixed by the ledger at its first spend."),
]
Decimal = Annotated[str | None, typer.Option(metavar="MARK", help="Before decimals in texts: . or a comma.")]
Thousands = Annotated[str | None, typer.Option(metavar="MARK", help="Between thousands in texts; default: nothing.")]
Encoding = Annotated[str | None, typer.Option(metavar="NAME", help="Of a text file, such as cp1252; default: utf-8.")]
Delimiter = Annotated[str | None, typer.Option(metavar="MARK", help="Between fields; default: as the header has it.")]
Sheet = Annotated[str | None, typer.Option(metavar="NAME", help="Of a spreadsheet; default: its first.")]
Told = Annotated[
    Path | None,
    typer.Option(
        "--publication",
        metavar="SPEC",
        help="A spec or TOML file with [publication] and labels; default: publication.toml of the release.",
    ),
]
Language = Annotated[str | None, typer.Option(metavar="en|de|fr", help="Of pages; default: the publication's.")]
Out = Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The file to write; it must not exist.")]


def chosen_publication(folder: Path, given: Path | None, language: str | None) -> Publication:
    """The publication that is named, else that of the release's folder, else an empty one; in a language."""
    from sfumato.releases.publication import Publication, folder_publication, read_publication

    found = folder_publication(folder) if given is None else read_publication(given)
    return (found or Publication()).spoken(language)


SPEC = {
    "neighbours": "privacy",
    "person": "privacy",
    "rows_per_person": "privacy",
    "once_per": "privacy",
    "rows_per_group": "privacy",
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


def message_for_command(text: str, command: Any) -> str:
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


def typed_command(command: Any, arguments: Sequence[str]) -> Any:
    """The command of a group that was typed; None where there is none."""
    for word in arguments:
        if not hasattr(command, "commands"):
            return command
        if word in command.commands:
            command = command.commands[word]
    return None if hasattr(command, "commands") else command
