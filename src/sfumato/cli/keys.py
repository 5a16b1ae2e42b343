"""Universes of keys too large to list: planned, sketched, asked, and opened for questions as they come."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from sfumato.cli.options import Json, Out
from sfumato.cli.options import Table as Named
from sfumato.errors import InvalidInput
from sfumato.terminal import refuse_write_errors, shell_word, show_activity, show_answer

if TYPE_CHECKING:
    from sfumato.planner.planning import Name
    from sfumato.privacy.budget import Budget
    from sfumato.sketches import Keys


commands = typer.Typer(no_args_is_help=True, help="Sparse queries over keys too many to list.")

Column = Annotated[str, typer.Option(help="The column of keys.")]
Text = Annotated[bool, typer.Option("--text", help="Keys are texts; default: whole numbers below 2^60.")]
Related = Annotated[str, typer.Option(help="add-remove or replace-one.")]
Epsilon = Annotated[str | None, typer.Option(help="Pure, or with --delta approximate.")]
Delta = Annotated[str | None, typer.Option(help="Such as 1e-6.")]
Rho = Annotated[str | None, typer.Option(help="Zero-concentrated differential privacy.")]
Person = Annotated[str | None, typer.Option(help="The column that says whose record it is.")]
Rows = Annotated[int, typer.Option(help="Records of a person that are counted.")]
Paying = Annotated[Path, typer.Option("--ledger", metavar="LEDGER", help="The ledger that pays.")]
Table = Annotated[str, typer.Argument(metavar="TABLE", help="A file or address.")]


@commands.command()
def plan(
    column: Column,
    neighbours: Related,
    epsilon: Epsilon = None,
    delta: Delta = None,
    thresholds: Annotated[
        str | None, typer.Option(help="The part of delta that shows heavy keys, where the ledger adds mu^2.")
    ] = None,
    rho: Rho = None,
    text: Text = False,
    records: Annotated[int | None, typer.Option(help="A public (approximate) number of records.")] = None,
    mechanism: Annotated[str, typer.Option(help="auto, hybrid, count-sketch or sparse-project.")] = "auto",
    person: Person = None,
    rows_per_person: Rows = 1,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="PLAN", help="Save the plan to a file.")] = None,
) -> None:
    """EXPLAIN: what would be measured of the keys, its price and errors. No data are read.

    \b
    Example:
      sfumato keys plan --column item --neighbours add-remove --epsilon 1 --delta 1e-6 -o items.plan
    """
    from sfumato.planner.planning import plan as decide

    found = decide(
        _key_universe(column, text),
        _budget_of_options(epsilon, delta, rho, thresholds),
        neighbours=neighbours,
        records=records,
        mechanism=cast("Name", mechanism),  # refused there, with all names
        person=person,
        rows_per_person=rows_per_person,
    )
    if out is not None:
        with refuse_write_errors(out):
            found.save(out)
    typer.echo(str(found))


@commands.command()
def sketch(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="A plan saved by sfumato keys plan.")],
    table: Table,
    ledger: Paying,
    name: Annotated[str, typer.Option(metavar="NAME", help="The sketch's name; it is paid for once.")],
    out: Out,
    named: Named = None,
) -> None:
    """Pay for a plan, measure once, and write a file that answers any later query. The same name again is free.

    \b
    Example:
      sfumato keys sketch items.plan items.csv --ledger keys.db --name 2026-11 -o items.sketch
    """
    from sfumato.planner.opening import read_stored
    from sfumato.plans.keys import KeyPlan
    from sfumato.releasing import release

    with show_activity("sketching"):
        done = release(read_stored(plan, KeyPlan), table, ledger=ledger, name=name, out=out, table=named)
    typer.echo(f"{done.plan}\n\nWritten to {out}. To ask: sfumato keys ask {shell_word(out)} KEY [KEY ...]")


@commands.command()
def ask(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A sketch.")],
    keys: Annotated[list[str], typer.Argument(metavar="KEY...", help="The keys of the query, each once.")],
    confidence: Annotated[float, typer.Option(help="Of the interval.")] = 0.95,
    as_json: Json = False,
) -> None:
    """How many records have one of the keys, from a sketch. It costs nothing.

    \b
    Example:
      sfumato keys ask items.sketch 5 17 4711
    """
    from sfumato.interactive.opening import keeps_session
    from sfumato.planner.opening import read_stored
    from sfumato.releases.sketches import SketchRelease

    if file.is_file() and keeps_session(file):
        raise InvalidInput(
            f"{file} keeps a session, which is asked with the ledger that paid: "
            f"sfumato session ask {shell_word(file)} --key {shell_word(keys[0])} --ledger LEDGER"
        )
    found = read_stored(file, SketchRelease)
    answer = found.ask(parse_key_arguments(keys, found.plan.keys), confidence=confidence)
    numbers = {"answer": answer.value, "standard_error": answer.standard_error, "low": answer.low, "high": answer.high}
    show_answer(keys, numbers, confidence=confidence, as_json=as_json)


@commands.command("open")
def open_histogram_command(
    table: Table,
    column: Column,
    neighbours: Related,
    ledger: Paying,
    name: Annotated[str, typer.Option(metavar="NAME", help="The session's name; it is paid for once.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="STORE", help="Where the session is kept.")],
    epsilon: Epsilon = None,
    delta: Delta = None,
    rho: Rho = None,
    text: Text = False,
    person: Person = None,
    rows_per_person: Rows = 1,
    named: Named = None,
) -> None:
    """Pay for a histogram of all keys that is drawn as they are asked for: any number of questions.

    \b
    Example:
      sfumato keys open items.csv --column item --neighbours add-remove --epsilon 1 --ledger l.db --name desk -o desk.db
      sfumato session ask desk.db --key 5 --key 17 --ledger l.db
    """
    from sfumato.mechanisms.registry import make_mechanism
    from sfumato.planner.opening import plan_and_open
    from sfumato.privacy.ledger import Ledger

    if out.exists():
        raise InvalidInput(
            f"{out} exists; choose another path, or go on with it by: sfumato session ask {shell_word(out)}"
        )
    with show_activity("opening"):
        account = Ledger(ledger)
        opened = plan_and_open(
            table,
            _key_universe(column, text),
            _budget_of_options(epsilon, delta, rho),
            mechanism=make_mechanism("histogram", currency=account.currency.value),
            records=None,
            ledger=account,
            table=named,
            name=name,
            store=out,
            neighbours=neighbours,
            person=person,
            rows_per_person=rows_per_person,
        )
    asking = f"sfumato session ask {shell_word(out)} --ledger {shell_word(ledger)} --key KEY [--key KEY ...]"
    typer.echo(f"{opened.explain()}\n\nKept in {out}. To ask: {asking}")


def parse_key_arguments(given: list[str], keys: Keys) -> list[str] | list[int]:
    """Keys as a universe has them: texts, or whole numbers."""
    if keys.kind == "text":
        return given
    if not all(text.isascii() and text.isdigit() and len(text) < 20 for text in given):
        raise InvalidInput(f"these keys are whole numbers, not {', '.join(given)[:80]!r}")
    return [int(text) for text in given]


def _key_universe(column: str, text: bool) -> Keys:
    from sfumato.sketches import Keys

    return Keys(column, "text" if text else "integer")


def _budget_of_options(
    epsilon: str | None, delta: str | None, rho: str | None, thresholds: str | None = None
) -> Budget:
    from sfumato.privacy.budget import Budget

    given = {"epsilon": epsilon, "delta": delta, "thresholds": thresholds, "rho": rho}
    return Budget.from_json({name: text for name, text in given.items() if text is not None})
