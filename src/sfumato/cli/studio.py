"""The page in a browser, on this machine alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sfumato.errors import MissingExtra, how_to_install
from sfumato.terminal import writing

__all__ = ["commands"]

commands = typer.Typer()


@commands.command()
def studio(
    given: Annotated[
        str | None,
        typer.Argument(metavar="SPEC|TABLE", help="A spec, or a table to begin one for; default: asked on the page."),
    ] = None,
    ledger: Annotated[
        Path | None, typer.Option(metavar="LEDGER", help="The ledger; default: budget.db beside the spec.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="DIR", help="Where releases are; default: releases beside it.")
    ] = None,
    sessions: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Where sessions and streams are kept, in secret; default: sessions beside it."
        ),
    ] = None,
    demo: Annotated[bool, typer.Option("--demo", help="Try it on the bundled public table, in a new folder.")] = False,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address instead of opening it.")] = False,
) -> None:
    """A page in your browser: declare a table, ask, plan, pay, read, audit. It is reached from this machine alone.

    What you do is written to the spec, which sfumato plan and sfumato release read as well.

    \b
    Example:
      sfumato studio people.csv
      sfumato studio --demo
    """
    try:
        from sfumato.studio.desk import Places
        from sfumato.studio.serving import prepared, serve
    except ImportError as error:
        raise MissingExtra(f"{error.name} is not installed; {how_to_install('ui')}") from error
    with writing(Path.cwd()):
        spec, header = prepared(given, Path.cwd(), demo=demo)
    beside = spec.parent
    places = Places(spec, ledger or beside / "budget.db", out or beside / "releases", sessions or beside / "sessions")
    serve(places, header, opens=not no_browser)
