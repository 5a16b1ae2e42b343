"""Ledgers: made, read, verified."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.cli.options import Json, LedgerPath
from sfumato.terminal import print_json

if TYPE_CHECKING:
    from sfumato.privacy.ledger import Ledger

__all__ = ["commands"]

commands = typer.Typer(no_args_is_help=True, help="A durable privacy budget that no release can overspend.")


@commands.command()
def create(
    path: LedgerPath,
    epsilon: Annotated[str | None, typer.Option(help="Pure, or with --delta approximate.")] = None,
    delta: Annotated[str | None, typer.Option(help="Such as 1e-6.")] = None,
    rho: Annotated[str | None, typer.Option(help="Zero-concentrated differential privacy.")] = None,
    mu: Annotated[str | None, typer.Option(help="Gaussian differential privacy.")] = None,
    currency: Annotated[
        str | None, typer.Option(help="With --epsilon and --delta: keep sums of both (epsilon), or rho; default: mu^2.")
    ] = None,
) -> None:
    """Make a ledger with a total that it will never exceed.

    \b
    Example:
      sfumato ledger create budget.db --rho 1.5
      sfumato ledger create budget.db --epsilon 1 --delta 1e-6
      sfumato ledger create keys.db --epsilon 1 --delta 1e-6 --currency epsilon
    """
    from sfumato.privacy.budget import Budget
    from sfumato.privacy.ledger import Ledger

    given = {"epsilon": epsilon, "delta": delta, "rho": rho, "mu": mu}
    total = Budget.from_json({name: text for name, text in given.items() if text is not None})
    made = Ledger.create(path, total=total, currency=currency)
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
    if as_json:
        print_json(_ledger_facts(found))
        return
    typer.echo(_ledger_text(found))


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
    from sfumato.privacy.budget import readable
    from sfumato.privacy.ledger import Ledger

    opened = Ledger(path)
    found = opened.verify(anchor)
    if as_json:
        unreleased = list(found.unreleased)
        facts = {"id": found.ledger_id, "lines": found.entries, "spent": str(found.spent), "unreleased": unreleased}
        print_json(facts | {"remaining": str(found.remaining), "anchor": found.anchor, "anchor_checked": anchor})
        return
    typer.echo(f"{path}: {found.entries:,} lines, unbroken" + (", and continues from the anchor" if anchor else ""))
    typer.echo(f"remaining {readable(found.remaining)} of {opened.currency}; anchor {found.anchor}")


def _ledger_facts(found: Ledger) -> dict[str, Any]:
    spends = [e for e in found.entries() if e.kind == "spend"]
    return {
        "id": found.ledger_id,
        "total": found.total.to_json(),
        "currency": str(found.currency),
        "spent": str(found.spent),
        "remaining": str(found.remaining),
        "anchor": found.anchor,
        "entries": [
            {"line": e.sequence, "name": e.name, "price": str(e.price), "time": e.time}
            | {"plan": e.plan_hash, "released": e.released}
            for e in spends
        ],
        "unreleased": [e.name for e in found.unreleased()],
    }


def _room(found: Ledger) -> str:
    """What is left as people think of it, for (epsilon, delta) totals: the largest release that still fits."""
    if found.total.kind != "approx" or found.currency == "rho" or found.remaining <= 0:
        return ""
    left, delta = float(found.epsilon_left()), float(found.total.delta or 0)
    return f": one more release of up to about ({left:.4g}, {delta:g})-DP"


def _ledger_text(found: Ledger) -> str:
    from sfumato.frames import Frame
    from sfumato.privacy.budget import readable

    spends = [e for e in found.entries() if e.kind == "spend"]
    lines = [
        f"Ledger {found.ledger_id}",
        f"  total      {found.total}",
        f"  spent      {readable(found.spent)} of {found.currency}",
        f"  remaining  {readable(found.remaining)} of {found.currency}{_room(found)}",
        f"  anchor     {found.anchor}",
    ]
    if waiting := [e.name for e in found.unreleased()]:
        lines.append(f"  unreleased {', '.join(waiting)}: paid for, but no stored release is known; there is no refund")
    if spends:
        columns = {
            "line": [e.sequence for e in spends],
            "name": [e.name for e in spends],
            "price": [readable(e.price) for e in spends],
            "time": [e.time for e in spends],
            "stored": ["yes" if e.released else "no" for e in spends],
        }
        lines += ["", str(Frame(columns))]
    return "\n".join(lines)
