"""Describing a table that nobody described: what it would tell, and for a price what it tells."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.cli.options import Decimal, Delimiter, Encoding, Json, Sheet, Table, Thousands
from sfumato.errors import InvalidInput
from sfumato.terminal import refuse_write_errors, shell_word, show_activity, show_result

if TYPE_CHECKING:
    from sfumato.privacy.budget import Budget
    from sfumato.privacy.ledger import Ledger

commands = typer.Typer()


@commands.command()
def describe(
    source: Annotated[
        str, typer.Argument(metavar="TABLE", help="A file, or an address such as postgresql:///db?table=t.")
    ],
    ledger: Annotated[Path | None, typer.Option(metavar="LEDGER", help="The ledger that pays.")] = None,
    epsilon: Annotated[str | None, typer.Option(help="Pure, or with a delta approximate.")] = None,
    delta: Annotated[str | None, typer.Option(help="Such as 1e-6; default: the ledger's.")] = None,
    thresholds: Annotated[
        str | None, typer.Option(help="The part of delta for labels of texts; default: half of the ledger's.")
    ] = None,
    rho: Annotated[str | None, typer.Option(help="Zero-concentrated differential privacy.")] = None,
    mu: Annotated[str | None, typer.Option(help="Gaussian differential privacy.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="DIR", help="The folder that is written.")] = None,
    name: Annotated[str, typer.Option(metavar="NAME", help="The name under which it is paid for, once.")] = "describe",
    only_plan: Annotated[bool, typer.Option("--plan", help="Say what it would tell, and spend nothing.")] = False,
    columns: Annotated[
        list[str] | None, typer.Option("--column", metavar="NAME", help="A column; may be repeated. Default: all.")
    ] = None,
    records: Annotated[int, typer.Option(metavar="N", help="About how many there are, as far as is public.")] = 10_000,
    date_formats: Annotated[
        list[str] | None,
        typer.Option("--date-format", metavar="NAME=FORMAT", help="How a column writes days, as born=%d.%m.%Y."),
    ] = None,
    pairs: Annotated[
        str, typer.Option(metavar="SHARE", help="Of the budget, for a look at all pairs of columns, as 0.3.")
    ] = "0",
    neighbours: Annotated[str, typer.Option(help="add-remove or replace-one.")] = "add-remove",
    person: Annotated[str | None, typer.Option(metavar="COLUMN", help="Whose record a row is.")] = None,
    rows_per_person: Annotated[int, typer.Option(metavar="N", help="Rows of a person that are counted.")] = 1,
    table: Table = None,
    decimal: Decimal = None,
    thousands: Thousands = None,
    encoding: Encoding = None,
    delimiter: Delimiter = None,
    sheet: Sheet = None,
    as_json: Json = False,
) -> None:
    """Describe all columns of a table that nobody described: kinds, quartiles, labels, and a spec to go on with.

    Names and types of columns are read free. What is told of values is noisy,
    and one price is paid for all of it. With --plan it says how well columns
    would be known, and nothing is spent.

    \b
    Example:
      sfumato describe people.parquet --epsilon 1 --delta 1e-6 --thresholds 5e-7 --plan
      sfumato describe people.parquet --ledger budget.db --epsilon 0.5 -o profile
      sfumato plan profile/spec.toml
    """
    from sfumato.curator.rows.samples import named_or_spec_table
    from sfumato.mechanisms.profiles import plan_profile
    from sfumato.privacy.ledger import Ledger
    from sfumato.releasing import PROFILE, PageWarning
    from sfumato.releasing import describe as carry_out

    written = {"decimal": decimal, "thousands": thousands, "encoding": encoding, "delimiter": delimiter}
    given = named_or_spec_table(None, source, **written, sheet=sheet)
    pays = None if ledger is None else Ledger(ledger)
    budget = _budget_to_spend(
        {"epsilon": epsilon, "delta": delta, "thresholds": thresholds, "rho": rho, "mu": mu}, pays
    )
    options: dict[str, object] = {
        "neighbours": neighbours,
        "person": person,
        "rows_per_person": rows_per_person,
        "pairs": pairs,
    }
    options["date_formats"] = _named_formats(date_formats or [])
    if only_plan:
        made = plan_profile(given, budget, columns=columns, records=records, **options)  # type: ignore[arg-type]
        show_result(made.describe().to_dict(), f"{made}\n\nNothing was read but names and types.", as_json=as_json)
        return
    if pays is None or out is None:
        raise InvalidInput(
            "a description is paid for by a ledger and written to a folder: give --ledger and -o, or --plan"
        )
    before = (out / PROFILE).exists()
    with show_activity("describing"), refuse_write_errors(out), warnings.catch_warnings(record=True) as caught:
        # numerical warnings could depend on the data: only what is said about the page is passed on
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", PageWarning)
        done = carry_out(
            given,
            budget,
            ledger=pays,
            name=name,
            out=out,
            columns=columns,
            records=records,
            table=table,
            **options,  # type: ignore[arg-type]
        )
    for warning in caught:
        typer.echo(f"sfumato: {warning.message}", err=True)
    text = (
        f"Written to {out}. Read {out / 'profile.html'} first; go on with: sfumato plan {shell_word(out / 'spec.toml')}"
    )
    if before:
        text = f"Read back from {out}: it was paid for before. Nothing was measured or spent."
    show_result(done.facts() | {"folder": str(out)}, f"{done.explain()}\n\n{text}", as_json=as_json)


def _named_formats(given: list[str]) -> dict[str, str]:
    """Formats of days by column, as they are typed."""
    found = dict[str, str]()
    for text in given:
        name, _, written = text.rpartition("=")
        if not name or name in found:
            raise InvalidInput(f"--date-format is NAME=FORMAT, as born=%d.%m.%Y, once for each column; not {text!r}")
        found[name] = written
    return found


def _budget_to_spend(given: dict[str, str | None], pays: Ledger | None) -> Budget:
    """What is spent: as it is stated, and of an epsilon without a delta with that of the ledger."""
    from sfumato.privacy.budget import Budget

    stated = {name: text for name, text in given.items() if text is not None}
    if not stated:
        raise InvalidInput("say what may be spent: --epsilon, maybe with --delta; or --rho, or --mu")
    total = None if pays is None else pays.total
    if set(stated) == {"epsilon"} and total is not None and total.delta is not None:
        stated["delta"] = str(total.delta)
        if total.thresholds is not None:  # of the total: so that the same command again is the same budget
            stated["thresholds"] = str(total.thresholds / 2)
    return Budget.from_json(stated)
