"""What an office sends on: cross-tables with its marks, charts to print, the method in words, files of its formats."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from sfumato.cli.options import Folder, Json, Language, Told, chosen_publication
from sfumato.errors import InvalidInput
from sfumato.terminal import print_csv, refuse_write_errors, show_activity, show_result

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


def read_guesses(texts: list[str]) -> dict[str, float]:
    """Groups as they are typed: "state == 'Vermont' = 23". Raises InvalidInput."""
    found: dict[str, float] = {}
    for text in texts:
        condition, _, count = text.rpartition("=")
        try:
            found[condition.strip()] = float(count.replace("≈", ""))
        except ValueError:
            raise InvalidInput(
                "--guess is a condition, = and about how many records, such as \"state == 'Vermont' = 23\", "
                f"not {text!r}"
            ) from None
    return found


@commands.command()
def preview(
    spec: Annotated[Path, typer.Argument(metavar="SPEC|PLAN", help="A spec file or a saved plan.")],
    like: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A release whose counts are about those to come, as last year's.")
    ] = None,
    sample: Annotated[
        str | None, typer.Option(metavar="TABLE", help="Public or mock rows, as a file or an address; needs --public.")
    ] = None,
    public: Annotated[
        bool, typer.Option("--public", help="I state that anybody may see every row of the sample.")
    ] = False,
    guess: Annotated[
        list[str] | None,
        typer.Option(metavar="CONDITION=N", help="A group and about how many it is of; may be repeated."),
    ] = None,
    budgets: Annotated[
        str, typer.Option(metavar="V,V,…", help="Epsilons (or rhos, mus, as the spec states its budget).")
    ] = "",
    table: Annotated[
        list[str] | None,
        typer.Option("--table", metavar="ATTRIBUTE", help="Show this table as it might be released; may be repeated."),
    ] = None,
    flags: Flags = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Draw flags by budget: a new .svg, .png or .pdf.")
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV: every table, every digit.")] = False,
    as_json: Json = False,
) -> None:
    """What the tables would look like at several budgets, before anything is paid: of last year's release, of public
    rows, or of guesses. Never of the table to be protected: its source is refused.

    \b
    Example:
      sfumato preview people.toml --like releases/2026-10 --budgets 0.25,0.5,1,2
      sfumato preview people.toml --guess "age >= 80 and sex == 'male' = 23" --budgets 0.5,1
    """
    from sfumato.planner.preview import preview as foresee
    from sfumato.present.crosstab import save_chart
    from sfumato.releases.reliability import parse_flags
    from sfumato.releasing import plan_or_spec

    given = [name for name, value in (("--like", like), ("--sample", sample), ("--guess", guess)) if value]
    if len(given) != 1:
        raise InvalidInput(f"a preview is of --like, --sample or --guess, one of them; {len(given)} are given")
    if table and guess:
        raise InvalidInput("--table shows a whole table, which --guess does not tell; give --like or --sample")
    with show_activity("planning") as progress:
        found, source, _ = plan_or_spec(spec, progress)
    if guess:
        told: Any = read_guesses(guess)
    elif like is not None:
        from sfumato.releases import load_release

        told = load_release(like).with_errors()
    else:
        told = _sampled_release(found, str(sample), source, public=public)
    values = [text.strip() for text in budgets.split(",") if text.strip()]
    seen = foresee(found, told, budgets=values, flags=None if flags is None else parse_flags(flags))  # type: ignore[arg-type]
    if out is not None:
        with refuse_write_errors(out):
            save_chart(seen.plot(), out)
    if as_csv:
        print_csv(seen.frame())
        return
    shown: Any = seen.table(*table) if table else None
    if table and len(table) > 1:
        shown = shown.crosstab(table[:1], table[1:], per=None, flags=seen.reliability)
    text = str(seen) if shown is None else f"{seen}\n\nA table as it might be, of noise that is drawn anew:\n{shown}"
    facts = {"budgets": seen.by_budget().rows(), "tables": seen.frame().rows()}
    facts |= {"rule": seen.reliability.statement()} | ({} if shown is None else {"drawn": shown.frame().rows()})
    show_result(facts, text, as_json=as_json)


def _sampled_release(plan: Any, sample: str, source: Any, *, public: bool) -> Any:
    """A release of rows that anybody may see, at a budget at which noise does not count, and which no ledger pays."""
    from sfumato.curator.rows.samples import named_or_spec_table, refuse_protected_sample
    from sfumato.planner.planning import plan as replan
    from sfumato.privacy.budget import Budget
    from sfumato.releasing import release
    from sfumato.strategies.geography_tree import neighbour_relation

    refuse_protected_sample(sample, source)
    if not public:
        raise InvalidInput(
            "a sample is read without a charge: it is for public or mock rows alone, never for the table to be "
            "protected. If anybody may see every row of it, add --public; sfumato mock draws rows that anybody may "
            "see. Nothing was read"
        )
    unit = plan.unit
    near = replan(
        plan.workload,
        Budget.gdp(_EXACT),
        neighbours=neighbour_relation(unit) if unit.within else unit.neighbours,
        person=unit.person,
        rows_per_person=unit.rows_per_person,
        once_per=unit.once_per,
        rows_per_group=unit.rows_per_group,
    )
    return release(near, named_or_spec_table(source, sample) or sample, ledger=None, name="preview")


_EXACT = 10**5  # mu: noise of a hundred-thousandth of a record, which is 0 on the whole numbers


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
    from sfumato.releases.reliability import parse_flags

    found, told = load_release(folder).with_errors(), chosen_publication(folder, publication, language)
    table = found.table(*rows, *columns, confidence=confidence)
    marks = told.flags if flags is None else parse_flags(flags)
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
    mean: Annotated[
        str | None,
        typer.Option(
            metavar="MEASURE", help="Draw the means of a measure, or of a numeric attribute, within the cells."
        ),
    ] = None,
    publication: Told = None,
    language: Language = None,
) -> None:
    """Draw a table for print: bars with their intervals, a title and a source line. It costs nothing.

    \b
    Example:
      sfumato chart releases/2026-11 age sex -o chart.pdf
      sfumato chart releases/2026-11 region --mean income -o chart.svg
    """
    from sfumato._util.catalogue import speak
    from sfumato.present.crosstab import print_chart, save_chart
    from sfumato.releases import load_release

    found, told = load_release(folder).with_errors(), chosen_publication(folder, publication, language)
    of = None if per is Base.NONE else per.value
    with speak(told.language, told.called()), refuse_write_errors(out):
        save_chart(print_chart(found, tuple(attributes), told, title=title, per=of, mean=mean), out)
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
            "--format",
            metavar="NAME",
            help="csv, csvw, frictionless, sdmx, px, parquet, xlsx, dcat, plain; all but plain unless named.",
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
