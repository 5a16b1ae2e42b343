"""What an office sends on: cross-tables with its marks, charts to print, the method in words, files of its formats."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.cli.options import Folder, Json, Language, Told, chosen_publication
from sfumato.errors import InvalidInput
from sfumato.terminal import print_csv, refuse_write_errors, show_result

if TYPE_CHECKING:
    from collections.abc import Mapping

commands = typer.Typer()


class Base(StrEnum):
    """Of what per cents are."""

    ROW = "row"
    COLUMN = "column"
    ALL = "all"
    NONE = "none"


Flags = Annotated[
    str | None,
    typer.Option(
        metavar="MARK=SHARE,…",
        help='Marks by relative standard error, such as "*=.15,**=.30,suppress=.50"; default: the publication\'s.',
    ),
]


def read_flags(text: str) -> Mapping[str, float]:
    """Marks as they are typed: "*=.15,**=.30,suppress=.50". Raises InvalidInput."""
    pairs = [part.rpartition("=") for part in text.split(",")]
    try:
        return {mark.strip(): float(share) for mark, _, share in pairs}
    except ValueError:
        raise InvalidInput(
            f"--flags lists marks with shares, such as '*=.15,**=.30,suppress=.50', not {text!r}"
        ) from None


@commands.command()
def crosstab(
    folder: Folder,
    rows: Annotated[list[str], typer.Option("--rows", metavar="ATTRIBUTE", help="Runs down; may be repeated.")],
    columns: Annotated[list[str], typer.Option("--columns", metavar="ATTRIBUTE", help="Runs across; may be repeated.")],
    per: Annotated[Base, typer.Option(help="Of what per cents are.")] = Base.ROW,
    sort: Annotated[
        str | None, typer.Option(metavar="COLUMN", help='"total", or a column by whose answers rows are sorted.')
    ] = None,
    top: Annotated[int | None, typer.Option(metavar="N", help="How many rows are shown, the largest first.")] = None,
    flags: Flags = None,
    confidence: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    publication: Told = None,
    language: Language = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV: every cell, every digit.")] = False,
    as_json: Json = False,
) -> None:
    """A table in rows and columns with totals and per cents, each with its interval. It costs nothing.

    \b
    Example:
      sfumato crosstab releases/2026-11 --rows age --columns sex --per row --top 10
      sfumato crosstab releases/2026-11 --rows age --columns sex --flags "*=.15,**=.30,suppress=.50"
    """
    from sfumato._util.catalogue import speak
    from sfumato.releases import load_release

    found, told = load_release(folder).with_errors(), chosen_publication(folder, publication, language)
    table = found.table(*rows, *columns, confidence=confidence)
    marks = told.flags if flags is None else read_flags(flags)
    of = None if per is Base.NONE else per.value
    with speak(told.language, told.called()):
        made = table.crosstab(rows, columns, per=of, sort=sort, top=top, flags=marks).labelled(told)
        if as_csv:
            print_csv(made.frame())
            return
        owners = {found.plan.workload.domain.owner(a) for a in (*rows, *columns)}
        doubts = [c for c in found.cautions if c.attribute is None or c.attribute in owners]
        facts = {"release": found.provenance.name, "confidence": confidence, "per": of}
        facts |= {"rule": made.reliability.statement() if made.reliability.classes else None}
        facts |= {"cautions": [c.facts() for c in doubts], "rows": made.frame().rows()}
        text = "\n".join([made.explain(), *(f"caution: {c.text}" for c in doubts)])
        show_result(facts, text, as_json=as_json)


@commands.command()
def chart(
    folder: Folder,
    attributes: Annotated[list[str], typer.Argument(metavar="ATTRIBUTE…", help="One to three attributes or levels.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="A new .svg, .png or .pdf.")],
    title: Annotated[str | None, typer.Option(help="What stands above it; default: the publication's.")] = None,
    per: Annotated[
        Base, typer.Option(help="Draw per cents instead of counts; the first attribute runs down.")
    ] = Base.NONE,
    publication: Told = None,
    language: Language = None,
) -> None:
    """Draw a table for print: bars with their intervals, a title and a source line. It costs nothing.

    \b
    Example:
      sfumato chart releases/2026-11 age sex -o chart.pdf
    """
    from sfumato._util.catalogue import speak
    from sfumato.present.crosstab import print_chart, save_chart
    from sfumato.releases import load_release

    found, told = load_release(folder).with_errors(), chosen_publication(folder, publication, language)
    of = None if per is Base.NONE else per.value
    with speak(told.language, told.called()), refuse_write_errors(out):
        save_chart(print_chart(found, tuple(attributes), told, title=title, per=of), out)
    typer.echo(f"Written to {out}")


@commands.command()
def methods(folder: Folder, publication: Told = None, language: Language = None, as_json: Json = False) -> None:
    """The paragraph on method that a publication prints, and what it cites as BibTeX.

    \b
    Example:
      sfumato methods releases/2026-11 --language de
    """
    from sfumato._util.catalogue import speak
    from sfumato.releases import load_release
    from sfumato.releases.methods import bibliography, method_paragraph

    found, told = load_release(folder).with_errors(), chosen_publication(folder, publication, language)
    with speak(told.language, told.called()):
        paragraph, cited = method_paragraph(found), bibliography(found)
    show_result({"paragraph": paragraph, "bibtex": cited}, f"{paragraph}\n\n{cited}", as_json=as_json)


@commands.command()
def export(
    folder: Folder,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="A new folder for the files.")],
    formats: Annotated[
        list[str] | None,
        typer.Option(
            "--format", metavar="NAME", help="csv, csvw, frictionless, sdmx, px, parquet, xlsx, dcat; all unless named."
        ),
    ] = None,
    leave_out: Annotated[
        bool, typer.Option("--leave-out", help='Leave out numbers that are flagged "suppress"; the release keeps them.')
    ] = False,
    publication: Told = None,
    language: Language = None,
) -> None:
    """Write the tables of a release in the formats of offices: PX, SDMX-CSV, CSVW, a workbook. It costs nothing.

    \b
    Example:
      sfumato export releases/2026-11 -o files
      sfumato export releases/2026-11 -o files --format px --format xlsx --language de
    """
    from sfumato.publishing import write_formats
    from sfumato.releases import load_release

    found, told = load_release(folder).with_errors(), chosen_publication(folder, publication, language)
    with refuse_write_errors(out):
        place = write_formats(found, out, formats, publication=told, leave_out=leave_out)
    written = sorted(p for p in place.rglob("*") if p.is_file())
    typer.echo(f"Written to {place}: {len(written)} files.")
