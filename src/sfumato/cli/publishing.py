"""Publishing: a release as a static site for its readers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sfumato.cli.options import Folder
from sfumato.errors import InvalidInput
from sfumato.terminal import writing

__all__ = ["commands"]

commands = typer.Typer()


@commands.command()
def publish(
    folder: Folder,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="A new folder for the site.")],
    earlier: Annotated[
        Path | None, typer.Option(metavar="DIR", help="An earlier release of the same queries, for changes and growth.")
    ] = None,
) -> None:
    """Write a static site of a release for its readers: tables, curves and a calculator. It costs nothing.

    Any web server hosts it; it loads nothing from elsewhere.

    \b
    Example:
      sfumato publish releases/2026-11 -o site
    """
    from sfumato.publishing import publish
    from sfumato.releases import Release, load_release

    def whole(place: Path) -> Release:
        found = load_release(place)
        if not isinstance(found, Release):
            raise InvalidInput(f"a site needs errors that are known; of {place}, sfumato report makes a page")
        return found

    found, before = whole(folder), None if earlier is None else whole(earlier)
    with writing(out):
        place = publish(found, out, earlier=before)
    size = sum(f.stat().st_size for f in place.rglob("*") if f.is_file())
    typer.echo(f"Written to {place}: {size / 1e6:.1f} MB for any web server. Look at it:")
    typer.echo(f"  python -m http.server 8000 --bind 127.0.0.1 --directory {place}")
