"""Arguments that several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["Folder", "Json", "LedgerPath", "Out", "Source", "Table"]

Json = Annotated[bool, typer.Option("--json", help="Print JSON for a program.")]
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a release.")]
LedgerPath = Annotated[Path, typer.Argument(metavar="LEDGER", help="The ledger's file.")]
Source = Annotated[str | None, typer.Option(metavar="TABLE", help="A file or address; default: the spec's source.")]
Table = Annotated[
    str | None,
    typer.Option("--table", metavar="NAME", help="The table's public name, fixed by the ledger at its first spend."),
]
Out = Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The file to write; it must not exist.")]
