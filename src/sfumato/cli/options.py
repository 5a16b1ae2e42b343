"""Arguments that several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["Decimal", "Delimiter", "Encoding", "Folder", "Json", "LedgerPath", "Out", "Sheet", "Source", "Table"]
__all__ += ["Thousands"]

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
Out = Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The file to write; it must not exist.")]
