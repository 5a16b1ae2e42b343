"""From a table's names to a spec and a plan: nothing here reads a row, but for the demo."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from sfumato.cli.options import Json, Out
from sfumato.errors import InvalidInput
from sfumato.terminal import busy, print_json, write_new, writing

__all__ = ["commands", "schema"]

commands = typer.Typer()
schema = typer.Typer(no_args_is_help=True, help="Declare columns from other tools' schemas.")


@commands.command()
def demo(
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="DIR", help="A new or empty folder.")] = None,
) -> None:
    """The whole road on a bundled public table: plan, release, report, questions.

    \b
    Example:
      sfumato demo --out demo
    """
    from sfumato.demo import run_demo

    steps = run_demo(out)
    while True:
        with busy("working"), writing(out or Path()):
            text = next(steps, None)
        if text is None:
            return
        typer.echo(text)


@commands.command()
def init(
    table: Annotated[
        str, typer.Argument(metavar="TABLE", help="A file, or an address such as duckdb:///f.db?table=t.")
    ],
    out: Out,
) -> None:
    """Begin a spec from the names of a table's columns; what people must decide is left blank.

    Only the names are read, and they are taken for public. The file refuses to run until it is filled in.

    \b
    Example:
      sfumato init people.csv -o people.toml
    """
    from sfumato.curator.headers import column_names
    from sfumato.workloads.schema import spec_template

    place = table if "://" in table else os.path.relpath(table, out.parent)
    write_new(out, spec_template(column_names(table), source=place))
    typer.echo(f"{out} holds the names of the columns; fill in what is blank, then: sfumato plan {out}")


@schema.command("import")
def import_(
    schema: Annotated[Path, typer.Argument(metavar="FILE", help="domain.json or a Table Schema.")],
    out: Out,
) -> None:
    """Begin a spec from a domain.json of sizes, or from a Frictionless Table Schema.

    \b
    Example:
      sfumato schema import domain.json -o people.toml
    """
    from sfumato.workloads.schema import import_schema, spec_template

    write_new(out, spec_template(import_schema(schema)))
    typer.echo(f"{out} holds the declared columns; fill in what is blank, then: sfumato plan {out}")


@commands.command()
def plan(
    spec: Annotated[Path, typer.Argument(metavar="SPEC", help="A spec file.")],
    margin: Annotated[float | None, typer.Option(help="The least budget for 95 % margins of at most this.")] = None,
    margins: Annotated[bool, typer.Option("--margins", help="Keep to the spec's margins at the least budget.")] = False,
    every: Annotated[bool, typer.Option("--all", help="Compare with every mechanism, the textbooks' too.")] = False,
    as_json: Json = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="PLAN", help="Save the plan to a file.")] = None,
) -> None:
    """EXPLAIN: what would be measured, its price and the error of every answer. No data are read.

    \b
    Example:
      sfumato plan people.toml -o people.plan
      sfumato plan people.toml --margin 50
      sfumato plan people.toml --all
    """
    from dataclasses import replace

    from sfumato.releasing import budget_of_margin, plan_of, plan_of_margins
    from sfumato.report.facts import plan_facts
    from sfumato.specs import read_spec

    if margins and margin:
        raise InvalidInput("give --margin for one margin or --margins for those in the spec")
    if margins and every:
        raise InvalidInput("--all compares plans of one budget; --margins finds the budget of one plan: leave one out")
    read = read_spec(spec)
    with busy("planning") as progress:
        if margin is not None:
            read = replace(read, budget=budget_of_margin(read, margin))
        found = plan_of_margins(read) if margins else plan_of(read, progress, compare=every)
    if out is not None:
        with writing(out):
            found.save(out)
    if as_json:
        print_json(plan_facts(found) | ({} if margin is None else {"margin": margin}))
        return
    if margins or margin is not None:
        what = f"the margins of {spec}" if margin is None else f"a margin of {margin:,.6g} at 95 %"
        typer.echo(f"The least budget for {what}: {found.budget}\n")
    elif read.margins:
        typer.echo(
            "The margins in the spec are not kept by this plan, which is of its budget; --margins keeps to them\n"
        )
    typer.echo(str(found if every else replace(found, considered=())))
    if out is not None:
        typer.echo(f"\nSaved to {out}. To release it: sfumato release {out} --source TABLE --ledger L --name N -o DIR")
