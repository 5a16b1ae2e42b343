"""Ledgers: made, named, read, verified, exported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from sfumato.cli.options import Json, LedgerPath, Table
from sfumato.terminal import csv_text, show_result, write_new

commands = typer.Typer(no_args_is_help=True, help="A durable privacy budget that no release can overspend.")


@commands.command()
def create(
    path: LedgerPath,
    epsilon: Annotated[str | None, typer.Option(help="Pure, or with --delta approximate.")] = None,
    delta: Annotated[str | None, typer.Option(help="Such as 1e-6.")] = None,
    thresholds: Annotated[
        str | None, typer.Option(help="The part of --delta that is set aside for finding labels, such as 5e-7.")
    ] = None,
    rho: Annotated[str | None, typer.Option(help="Zero-concentrated differential privacy.")] = None,
    mu: Annotated[str | None, typer.Option(help="Gaussian differential privacy.")] = None,
    currency: Annotated[
        str | None, typer.Option(help="With --epsilon and --delta: keep sums of both (epsilon), or rho; default: mu^2.")
    ] = None,
    table: Table = None,
) -> None:
    """Make a ledger with a total that it will never exceed.

    \b
    Example:
      sfumato ledger create budget.db --rho 1.5 --table people
      sfumato ledger create budget.db --epsilon 1 --delta 1e-6
      sfumato ledger create visits.db --epsilon 1 --delta 1e-6 --thresholds 5e-7
      sfumato ledger create keys.db --epsilon 1 --delta 1e-6 --currency epsilon
    """
    from sfumato.privacy.budget import Budget
    from sfumato.privacy.ledger import Ledger

    given = {"epsilon": epsilon, "delta": delta, "thresholds": thresholds, "rho": rho, "mu": mu}
    total = Budget.from_json({name: text for name, text in given.items() if text is not None})
    made = Ledger.create(path, total=total, currency=currency, table=table)
    typer.echo(f"{path}: ledger {made.ledger_id} with a total of {total}")


@commands.command()
def status(path: LedgerPath, as_json: Json = False) -> None:
    """What a ledger has spent, on what, and what is left. Reads only.

    \b
    Example:
      sfumato ledger status budget.db
    """
    from sfumato.privacy.ledger import Ledger

    found = Ledger(path)
    show_result(found.facts(), found.explain(), as_json=as_json)


@commands.command()
def verify(
    path: LedgerPath,
    anchor: Annotated[str | None, typer.Option(help="An anchor kept from an earlier receipt or report.")] = None,
    as_json: Json = False,
) -> None:
    """Check every line of a ledger; with an anchor also that it was not rolled back or made anew.

    \b
    Example:
      sfumato ledger verify budget.db --anchor 17:9f86d0...
    """
    from sfumato.privacy.amounts import readable_number
    from sfumato.privacy.ledger import Ledger

    opened = Ledger(path)
    found = opened.verify(anchor)
    unreleased = list(found.unreleased)
    facts = {"id": found.ledger_id, "lines": found.entries, "spent": str(found.spent), "unreleased": unreleased}
    facts |= {"remaining": str(found.remaining), "anchor": found.anchor, "anchor_checked": anchor}
    text = f"{path}: {found.entries:,} lines, unbroken{', and continues from the anchor' if anchor else ''}\n"
    text += f"remaining {readable_number(found.remaining)} of {opened.currency}; anchor {found.anchor}"
    show_result(facts, text, as_json=as_json)


@commands.command()
def export(
    path: LedgerPath,
    as_csv: Annotated[bool, typer.Option("--csv", help="A table instead of JSON.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="A new file; default: the screen.")
    ] = None,
) -> None:
    """Every spend for an outside accountant or auditor: guarantee, privacy unit, table, exact price, in words.

    \b
    Example:
      sfumato ledger export budget.db --csv -o spends.csv
    """
    from sfumato._util.frames import Frame
    from sfumato.privacy.ledger import Ledger

    rows = Ledger(path).export()
    if as_csv:
        found = csv_text(Frame({name: [row[name] for row in rows] for name in Ledger.EXPORTED}))
    else:
        found = json.dumps(rows, indent=2) + "\n"
    if out is None:
        typer.echo(found, nl=False)
        return
    write_new(out, found)
    typer.echo(f"Written to {out}: {len(rows):,} spends")


@commands.command()
def name(
    path: LedgerPath, table: Annotated[str, typer.Argument(metavar="NAME", help="The table's public name.")]
) -> None:
    """Say of which table a ledger is that was used without naming one. A name stays for good.

    \b
    Example:
      sfumato ledger name budget.db people
    """
    from sfumato.privacy.ledger import Ledger

    Ledger(path).name(table)
    typer.echo(f"{path}: the ledger of the table {table!r}")
