"""From a table's names to a spec and a plan: nothing here reads a row, but for the demo."""

from __future__ import annotations

import os
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato._util.frames import safe_text
from sfumato.cli.options import Decimal, Delimiter, Encoding, Json, Out, Sheet, Thousands
from sfumato.errors import InvalidInput
from sfumato.terminal import csv_text, print_json, refuse_write_errors, shell_word, show_activity, write_new

if TYPE_CHECKING:
    from sfumato.curator.rows.samples import OddRows, PlacedRows
    from sfumato.domain import Attribute
    from sfumato.specs import Spec


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
        with show_activity("working"), refuse_write_errors(out or Path()):
            text = next(steps, None)
        if text is None:
            return
        typer.echo(text)


@commands.command()
def init(
    table: Annotated[
        str, typer.Argument(metavar="TABLE", help="A file, or an address such as postgresql:///db?table=t.")
    ],
    out: Out,
    decimal: Decimal = None,
    thousands: Thousands = None,
    encoding: Encoding = None,
    delimiter: Delimiter = None,
    sheet: Sheet = None,
    summed: Annotated[
        list[str] | None,
        typer.Option("--measure", metavar="NAME", help="A column of numbers to add up, as money; may be repeated."),
    ] = None,
) -> None:
    """Begin a spec from the names and types of a table's columns; what people must decide is left blank.

    Names and types alone are read, and taken for public. A column whose type
    is a number becomes a measure, of which sums and means are asked; where
    there are no types, as in CSV, --measure says which columns these are. The
    file refuses to run until it is filled in.

    \b
    Example:
      sfumato init people.csv -o people.toml --measure income
      sfumato init leute.csv -o leute.toml --decimal , --thousands . --encoding cp1252
    """
    from sfumato.curator.rows.samples import (
        column_names,
        column_types,
        named_or_spec_table,
        undeclared_notation,
    )
    from sfumato.curator.rows.written import source_of
    from sfumato.workloads.schema import spec_template

    written = {"decimal": decimal, "thousands": thousands, "encoding": encoding, "delimiter": delimiter}
    given = named_or_spec_table(None, table, **written, sheet=sheet)
    names = column_names(given)
    if lacking := [name for name in summed or () if name not in names]:
        raise InvalidInput(
            f"--measure {lacking[0]!r} names no column of the table (names are matched exactly, capitals included); "
            "nothing was written"
        )
    # whole numbers and others alike: in files of pandas the type of a column hangs on whether a value is missing
    numbers = {*(summed or ()), *(n for n, kind in column_types(given).items() if kind in ("integer", "number"))}
    place = table if "://" in table else os.path.relpath(table, out.parent)
    write_new(out, spec_template(names, place, source_of(given).declared(), numbers))
    odd = sum(map(_looks_like_data, names))
    if odd:
        typer.echo(
            f"sfumato: {odd} of the {len(names)} names look like numbers or dates. If the first line of the table is a "
            f"record and no header, {out} now holds what that record says: delete it and add a header",
            err=True,
        )
    if (said := undeclared_notation(given)) in _DOUBTS:
        typer.echo(f"sfumato: {_DOUBTS[said]}", err=True)
    typer.echo(f"{out} holds the names of the columns; fill in what is blank, then: sfumato plan {shell_word(out)}")
    typer.echo(f"To see rows as they are declared, drawn without the table: sfumato mock {shell_word(out)}")


_DOUBTS = {
    "decimal": "semicolons stand between the names, as where numbers have decimal commas. If they have (1.234,5), begin"
    " again with --decimal , and, for points between thousands, --thousands . : otherwise they are read as missing",
    "sheet": "the workbook has several sheets, and these are the names of the first; for another one: --sheet NAME",
}


def _looks_like_data(name: str) -> bool:
    """Whether a column's name is one that a value would have."""
    text = name.strip()
    try:
        float(text.replace(",", "."))
    except ValueError:
        pass
    else:
        return True
    try:
        date.fromisoformat(text[:10])
    except ValueError:
        return not text
    return True


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
    typer.echo(f"{out} holds the declared columns; fill in what is blank, then: sfumato plan {shell_word(out)}")


@commands.command()
def plan(
    spec: Annotated[Path, typer.Argument(metavar="SPEC", help="A spec file.")],
    margin: Annotated[float | None, typer.Option(help="The least budget for 95 % margins of at most this.")] = None,
    margins: Annotated[bool, typer.Option("--margins", help="Keep to the spec's margins at the least budget.")] = False,
    every: Annotated[bool, typer.Option("--all", help="Compare with every mechanism, the textbooks' too.")] = False,
    what_if: Annotated[
        list[str] | None,
        typer.Option("--what-if", metavar="NAME=V,V,…", help="Plans side by side, by budget or weight.PART."),
    ] = None,
    as_json: Json = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="PLAN", help="Save the plan to a file.")] = None,
) -> None:
    """EXPLAIN: what would be measured, its price and the error of every answer. No data are read.

    Every part, every table of a part and every cell of a table count alike.
    In the spec, weight = 16 in a part's table of queries about halves the
    error of a part with little budget, and objective = "cells" or "max" in
    the table plan asks for another goal. The column alone is the error that
    a line would have with the whole budget, ratio how many times that it
    has, share what it has of the weighted squared error.

    \b
    Example:
      sfumato plan people.toml -o people.plan
      sfumato plan people.toml --margin 50
      sfumato plan people.toml --all
      sfumato plan people.toml --what-if epsilon=0.5,1,2 --what-if weight.main=1,10
    """
    from dataclasses import replace

    from sfumato.present.words import plan_as_json
    from sfumato.releasing import budget_of_margin, plan_from_spec, plan_of_margins
    from sfumato.specs import read_spec

    if margins and margin:
        raise InvalidInput("give --margin for one margin or --margins for those in the spec")
    if margins and every:
        raise InvalidInput("--all compares plans of one budget; --margins finds the budget of one plan: leave one out")
    read = read_spec(spec)
    if what_if:
        if margins or margin is not None or every or out is not None:
            raise InvalidInput("--what-if plans several variants and keeps none; leave the other options out")
        _compare_variants(read, what_if, as_json=as_json)
        return
    with show_activity("planning") as progress:
        if margin is not None:
            read = replace(read, budget=budget_of_margin(read, margin))
        found = plan_of_margins(read) if margins else plan_from_spec(read, progress, compare=every)
    if out is not None:
        with refuse_write_errors(out):
            found.save(out)
    if as_json:
        print_json(plan_as_json(found) | ({} if margin is None else {"margin": margin}))
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
        how = f"release it: sfumato release {shell_word(out)} --source TABLE --ledger L --name N -o DIR"
        if read.periods is not None:
            how = f"open it: sfumato stream open {shell_word(out)} --ledger L --name N --store F"
        typer.echo(f"\nSaved to {out}. To {how}")


def _compare_variants(spec: Spec, changes: list[str], *, as_json: bool) -> None:
    """The margins of every part and number of attributes under each variant of a spec."""
    from sfumato._util.frames import Frame
    from sfumato.plans.planned import WorkloadPlan
    from sfumato.releasing import plan_from_spec, spec_variants

    plans, orders = list[tuple[dict[str, str], WorkloadPlan]](), list[Frame]()
    for variant in spec_variants(spec, changes):
        with show_activity(f"planning {variant.name}") as progress:
            found = plan_from_spec(variant.spec, progress)
        known = found.error_tables()
        if not known:
            raise InvalidInput(f"with {variant.name} nothing is known of the errors before data: nothing to compare")
        plans.append((dict(variant.settings), found))
        orders.append(known["orders"])
    if as_json:
        rows = zip(plans, orders, strict=True)
        print_json([{"settings": s, "guarantee": str(p.budget), "errors": o.rows()} for (s, p), o in rows])
        return
    single = len(plans[0][0]) == 1
    names = (
        [f"{k}={v}" for s, _ in plans for k, v in s.items()] if single else [f"({i + 1})" for i in range(len(plans))]
    )
    if not single:
        columns = {key: [s[key] for s, _ in plans] for key in plans[0][0]}
        typer.echo(f"{Frame({'variant': names, **columns})}\n")
    first = orders[0]
    margins = {name: list(o["margin"]) for name, o in zip(names, orders, strict=True)}
    typer.echo("Widest 95 % margin (half-width of an interval) by part and number of attributes:")
    typer.echo(str(Frame({key: first[key] for key in ("part", "attributes", "unit")} | margins)))
    typer.echo("\nNo data were read, nothing was spent. With the values you choose in the spec: sfumato plan SPEC")


Spec_ = Annotated[Path, typer.Argument(metavar="SPEC", help="A spec file.")]


@commands.command()
def mock(
    spec: Spec_,
    rows: Annotated[int, typer.Option("--rows", "-n", metavar="N", help="How many rows.")] = 20,
    seed: Annotated[int, typer.Option(metavar="N", help="Another number draws other rows.")] = 0,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="A new CSV file; default: print.")
    ] = None,
) -> None:
    """Rows drawn from a spec's declaration alone, as CSV: how a table's values have to be written. No data are read.

    It takes the columns alone: questions and the budget may still be blank.

    \b
    Example:
      sfumato mock people.toml -n 20 -o mock.csv
    """
    from sfumato._util.frames import Frame
    from sfumato.curator.rows.samples import spec_table_source
    from sfumato.curator.rows.written import source_of
    from sfumato.domain import Measure
    from sfumato.domain.mock import mock_columns, number_in_notation
    from sfumato.workloads.reading import read_toml
    from sfumato.workloads.schema import read_schema

    root = read_toml(spec)
    for part in ("schema", "schema_defaults", "domain"):
        root.section(part).refuse_blanks()
    domain, privacy = read_schema(root, spec.parent), root.section("privacy")
    columns = mock_columns(domain, rows, seed)
    person, most = privacy.text("person"), max(1, privacy.whole("rows_per_person") or 1)
    if person and person not in columns:
        columns = {person: [f"p{i // most + 1}" for i in range(rows)]} | columns
    how = source_of(spec_table_source(root.section("data"), spec.parent))
    numeric = [n for n, a in domain.attributes.items() if a.intervals is not None or isinstance(a, Measure)]
    columns |= {n: [number_in_notation(v, how.decimal, how.thousands) for v in columns[n]] for n in numeric}
    text = csv_text(Frame(columns), how.delimiter or ("," if how.decimal == "." else ";"))
    if out is None:
        typer.echo(text, nl=False)
        return
    write_new(out, text, how.encoding)
    typer.echo(
        f"{out} holds {rows:,} rows drawn from the declaration alone; nothing in them comes from a table.\n"
        "Does your table write its values like these? Capitals and blanks count."
    )


@commands.command()
def check(
    spec: Spec_,
    sample: Annotated[str, typer.Option(metavar="TABLE", help="Public or mock rows: a file or an address.")],
    public: Annotated[
        bool, typer.Option("--public", help="I state that anybody may see every row of the sample.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Where the rows of a PUBLIC sample would go, exactly: declared cells, (other), dropped. Never for sensitive rows.

    What is shown has no noise and is charged to no budget. The spec's own source is refused.

    \b
    Example:
      sfumato check people.toml --sample mock.csv --public
    """
    from dataclasses import asdict, replace

    from sfumato.curator.rows.samples import named_or_spec_table, place_sample, refuse_protected_sample
    from sfumato.specs import read_spec
    from sfumato.strategies.geography_tree import read_unit

    read = read_spec(spec)
    refuse_protected_sample(sample, read.source)
    if not public:
        raise InvalidInput(
            "a check shows values and exact counts, without noise and without a charge: it is for public or mock rows "
            "alone, never for the table to be protected. If anybody may see every row of the sample, add --public; "
            "sfumato mock draws rows that anybody may see. Nothing was read"
        )
    unit = read_unit(read.neighbours, read.person, read.rows_per_person, read.domain)
    unit = replace(unit, once_per=read.once_per, rows_per_group=read.rows_per_group)
    found = place_sample(named_or_spec_table(read.source, sample) or sample, read.domain, unit)
    if as_json:
        print_json({"sample": sample} | asdict(found))
        return
    typer.echo(
        f"Exact counts of {sample}, which was stated to be public: {found.rows:,} rows, {found.counted:,} counted."
    )
    typer.echo(f"\n{_placement_table(read, found.attributes)}")
    remarks = [r for p in found.attributes for r in _sample_remarks(p, read.domain[p.attribute])]
    typer.echo("\n" + ("\n".join(remarks) or "Every value lies in a declared cell."))


def _placement_table(read: Spec, placed: tuple[PlacedRows, ...]) -> str:
    from sfumato._util.frames import Frame

    columns: dict[str, list[object]] = {"attribute": [], "in declared cells": [], "cells used": []}
    columns |= {"outside": [], "they go": [], "missing": [], "these go": []}
    for p in placed:
        attribute = read.domain[p.attribute]
        row = (
            p.attribute,
            p.inside,
            f"{p.used:,} of {attribute.declared_size:,}",
            p.outside.rows,
            _policy_text(attribute.outside) if p.outside.rows else "",
            p.missing,
            _policy_text(attribute.missing) if p.missing else "",
        )
        for column, value in zip(columns.values(), row, strict=True):
            column.append(value)
    return str(Frame(columns))


def _policy_text(policy: str | None) -> str:
    return {"other": "to (other)", "clamp": "to an end cell", "drop": "nowhere"}[policy or "drop"]


def _sample_remarks(placed: PlacedRows, attribute: Attribute) -> list[str]:
    """What is strange, with the values: the sample is public."""
    name, out = safe_text(placed.attribute), list[str]()
    if placed.outside.rows:
        what = "outside the range" if attribute.rule.numeric else "of no declared value"
        out.append(f"{name}: {placed.outside.rows:,} rows are {what}: {_odd_values_text(placed.outside)}")
        out += [f"  {v.text!r} is {v.hint}" for v in placed.outside.values if v.hint is not None]
    if placed.unread.rows:
        what = "date" if attribute.kind == "date" else "number"
        out.append(f"{name}: {placed.unread.rows:,} rows are no {what}, so missing: {_odd_values_text(placed.unread)}")
    if placed.inside == 0:
        out.append(f"{name}: no row lies in a declared cell")
    return out


def _odd_values_text(odd: OddRows) -> str:
    more = f", and {odd.kinds - len(odd.values):,} more values" if odd.kinds > len(odd.values) else ""
    return ", ".join(f"{v.text!r} ({v.count:,})" for v in odd.values) + more
