"""Before anything is paid: rows drawn from a declaration, and where the rows of a public sample would go."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.cli.options import Json
from sfumato.errors import InvalidInput
from sfumato.ground.frames import safe_text
from sfumato.terminal import csv_text, print_json, write_new

if TYPE_CHECKING:
    from sfumato.domain import Attribute
    from sfumato.specs import Spec
    from sfumato.wall.rows.samples import Odd, Placed

__all__ = ["commands"]

commands = typer.Typer()

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
    from sfumato.domain.mock import mock_columns
    from sfumato.ground.frames import Frame
    from sfumato.wall.rows.declared import table_of
    from sfumato.wall.rows.written import source_of
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
    how = source_of(table_of(root.section("data"), spec.parent))
    if how.decimal != ".":
        numeric = [n for n, a in domain.attributes.items() if a.intervals is not None]
        columns |= {n: [v.replace(".", how.decimal) for v in columns[n]] for n in numeric}
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
    from dataclasses import asdict

    from sfumato.designs.spine.totals import read_unit
    from sfumato.specs import read_spec
    from sfumato.wall.rows.declared import table_at
    from sfumato.wall.rows.samples import place_sample, refuse_source

    read = read_spec(spec)
    refuse_source(sample, read.source)
    if not public:
        raise InvalidInput(
            "a check shows values and exact counts, without noise and without a charge: it is for public or mock rows "
            "alone, never for the table to be protected. If anybody may see every row of the sample, add --public; "
            "sfumato mock draws rows that anybody may see. Nothing was read"
        )
    unit = read_unit(read.neighbours, read.person, read.rows_per_person, read.domain)
    found = place_sample(table_at(read.source, sample) or sample, read.domain, unit)
    if as_json:
        print_json({"sample": sample} | asdict(found))
        return
    typer.echo(
        f"Exact counts of {sample}, which was stated to be public: {found.rows:,} rows, {found.counted:,} counted."
    )
    typer.echo(f"\n{_table(read, found.attributes)}")
    remarks = [r for p in found.attributes for r in _remarks(p, read.domain[p.attribute])]
    typer.echo("\n" + ("\n".join(remarks) or "Every value lies in a declared cell."))


def _table(read: Spec, placed: tuple[Placed, ...]) -> str:
    from sfumato.ground.frames import Frame

    columns: dict[str, list[object]] = {"attribute": [], "in declared cells": [], "cells used": []}
    columns |= {"outside": [], "they go": [], "missing": [], "these go": []}
    for p in placed:
        attribute = read.domain[p.attribute]
        row = (
            p.attribute,
            p.inside,
            f"{p.used:,} of {attribute.declared_size:,}",
            p.outside.rows,
            _place(attribute.outside) if p.outside.rows else "",
            p.missing,
            _place(attribute.missing) if p.missing else "",
        )
        for column, value in zip(columns.values(), row, strict=True):
            column.append(value)
    return str(Frame(columns))


def _place(policy: str | None) -> str:
    return {"other": "to (other)", "clamp": "to an end cell", "drop": "nowhere"}[policy or "drop"]


def _remarks(placed: Placed, attribute: Attribute) -> list[str]:
    """What is strange, with the values: the sample is public."""
    name, out = safe_text(placed.attribute), list[str]()
    if placed.outside.rows:
        what = "outside the range" if attribute.rule.numeric else "of no declared value"
        out.append(f"{name}: {placed.outside.rows:,} rows are {what}: {_values(placed.outside)}")
        out += [f"  {v.text!r} is {v.hint}" for v in placed.outside.values if v.hint is not None]
    if placed.unread.rows:
        what = "date" if attribute.kind == "date" else "number"
        out.append(f"{name}: {placed.unread.rows:,} rows are no {what}, so missing: {_values(placed.unread)}")
    if placed.inside == 0:
        out.append(f"{name}: no row lies in a declared cell")
    return out


def _values(odd: Odd) -> str:
    more = f", and {odd.kinds - len(odd.values):,} more values" if odd.kinds > len(odd.values) else ""
    return ", ".join(f"{v.text!r} ({v.count:,})" for v in odd.values) + more
