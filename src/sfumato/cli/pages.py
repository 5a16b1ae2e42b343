"""Publishing: a release as a static site for its readers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sfumato.cli.options import Folder, Language, Told, chosen_publication
from sfumato.errors import InvalidInput, MissingExtra, how_to_install
from sfumato.terminal import refuse_write_errors

commands = typer.Typer()


@commands.command()
def publish(
    folder: Folder,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="A new folder for the site.")],
    earlier: Annotated[
        Path | None, typer.Option(metavar="DIR", help="An earlier release of the same queries, for changes and growth.")
    ] = None,
    publication: Told = None,
    language: Language = None,
) -> None:
    """Write a static site of a release for its readers: tables, curves and a calculator. It costs nothing.

    Any web server hosts it; it loads nothing from elsewhere.

    \b
    Example:
      sfumato publish releases/2026-11 -o site
    """
    from sfumato.publishing import Publication, publish
    from sfumato.releases import Release, load_release

    def whole(place: Path) -> Release:
        found = load_release(place)
        if not isinstance(found, Release):
            raise InvalidInput(f"a site needs errors that are known; of {place}, sfumato report makes a page")
        return found

    found, before = whole(folder), None if earlier is None else whole(earlier)
    with refuse_write_errors(out):
        told = chosen_publication(folder, publication, language)
        place = publish(found, out, earlier=before, publication=None if told == Publication() else told)
    size = sum(f.stat().st_size for f in place.rglob("*") if f.is_file())
    typer.echo(f"Written to {place}: {size / 1e6:.1f} MB for any web server. Look at it:")
    typer.echo(f"  python -m http.server 8000 --bind 127.0.0.1 --directory {place}")


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
        from sfumato.studio.serving import prepare_spec, serve_studio
        from sfumato.studio.workspace import Places
    except ImportError as error:
        raise MissingExtra(f"{error.name} is not installed; {how_to_install('ui')}") from error
    with refuse_write_errors(Path.cwd()):
        spec, header = prepare_spec(given, Path.cwd(), demo=demo)
    beside = spec.parent
    places = Places(spec, ledger or beside / "budget.db", out or beside / "releases", sessions or beside / "sessions")
    serve_studio(places, header, opens=not no_browser)
