"""The command line: parse, call, print. Heavy modules are imported by the command that needs them."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.errors import InvalidInput, NotWritten, SfumatoError
from sfumato.terminal import busy, print_json, same_bytes, write_new, writing

if TYPE_CHECKING:
    from sfumato.privacy.ledger import Ledger

__all__ = ["app", "main"]

DONE, BUG, REFUSED, NOT_WRITTEN = 0, 1, 2, 3

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, context_settings={"max_content_width": 100})
schema_app = typer.Typer(no_args_is_help=True, help="Declare columns from other tools' schemas.")
ledger_app = typer.Typer(no_args_is_help=True, help="A durable privacy budget that no release can overspend.")
app.add_typer(schema_app, name="schema")
app.add_typer(ledger_app, name="ledger")

Json = Annotated[bool, typer.Option("--json", help="Print JSON for a program.")]
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a release.")]
LedgerPath = Annotated[Path, typer.Argument(metavar="LEDGER", help="The ledger's file.")]
Source = Annotated[str | None, typer.Option(metavar="TABLE", help="A file or address; default: the spec's source.")]
Out = Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The file to write; it must not exist.")]


def main() -> None:
    """Run the command line. Exit codes: 0 done, 2 refused and nothing spent, 3 spent but not written, 1 a bug."""
    same_bytes()
    try:
        app(prog_name="sfumato")
    except NotWritten as error:
        _fail(error, NOT_WRITTEN)
    except SfumatoError as error:
        _fail(error, REFUSED)


def _fail(error: Exception, code: int) -> None:
    typer.echo(f"sfumato: {error}", err=True)
    raise SystemExit(code)


@app.callback()
def _about() -> None:
    """Answers to large sets of linear queries about a sensitive table, under differential privacy.

    Errors are known before any budget is spent. Start with: sfumato demo
    """


# -- from a table to a plan ------------------------------------------------------------------------------


@app.command()
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


@app.command()
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


@schema_app.command("import")
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


@app.command()
def plan(
    spec: Annotated[Path, typer.Argument(metavar="SPEC", help="A spec file.")],
    margin: Annotated[float | None, typer.Option(help="The least budget for 95 % margins of at most this.")] = None,
    margins: Annotated[bool, typer.Option("--margins", help="Keep to the spec's margins at the least budget.")] = False,
    every: Annotated[bool, typer.Option("--all", help="Show every candidate that was considered.")] = False,
    as_json: Json = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="PLAN", help="Save the plan to a file.")] = None,
) -> None:
    """EXPLAIN: what would be measured, its price and the error of every answer. No data are read.

    \b
    Example:
      sfumato plan people.toml -o people.plan
      sfumato plan people.toml --margin 50
    """
    from dataclasses import replace

    from sfumato.releasing import budget_of_margin, plan_of, plan_of_margins
    from sfumato.report.facts import plan_facts
    from sfumato.specs import read_spec

    if margins and margin:
        raise InvalidInput("give --margin for one margin or --margins for those in the spec")
    read = read_spec(spec)
    with busy("planning") as progress:
        if margin is not None:
            read = replace(read, budget=budget_of_margin(read, margin))
        found = plan_of_margins(read) if margins else plan_of(read, progress)
    if out is not None:
        with writing(out):
            found.save(out)
    if as_json:
        print_json(plan_facts(found) | ({} if margin is None else {"margin": margin}))
        return
    if margins or margin is not None:
        what = f"the margins of {spec}" if margin is None else f"a margin of {margin:,.6g} at 95 %"
        typer.echo(f"The least budget for {what}: {found.budget}\n")
    typer.echo(str(found if every else replace(found, considered=())))
    if out is not None:
        typer.echo(f"\nSaved to {out}. To release it: sfumato release {out} --source TABLE --ledger L --name N -o DIR")


# -- releases --------------------------------------------------------------------------------------------


@app.command()
def release(
    spec: Annotated[Path, typer.Argument(metavar="SPEC|PLAN", help="A spec file or a saved plan.")],
    ledger: Annotated[Path, typer.Option(metavar="LEDGER", help="The ledger that pays.")],
    name: Annotated[str, typer.Option(metavar="NAME", help="The release's name; it is paid for once.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="The folder for the release.")],
    source: Source = None,
    snapshot: Annotated[str | None, typer.Option(help="A name for the state of the table, to pool releases.")] = None,
    as_json: Json = False,
) -> None:
    """Pay for a plan, measure once, and write the release with its report. The same name again is free.

    \b
    Example:
      sfumato release people.toml --ledger budget.db --name 2026-11 -o releases/2026-11
    """
    from sfumato.releases.files import describe
    from sfumato.releasing import REPORT, PageWarning, plan_or_spec
    from sfumato.releasing import release as carry_out

    with busy("planning") as progress:
        found, declared = plan_or_spec(spec, progress)
    table = source or declared
    if table is None:
        raise InvalidInput("which table? Name it with --source, or as source under [data] in the spec")
    before = (out / "release.json").exists()
    with busy("releasing"), warnings.catch_warnings(record=True) as caught:
        # numerical warnings could depend on the data: only what is said about the page is passed on
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", PageWarning)
        done = carry_out(found, table, ledger=ledger, name=name, out=out, snapshot=snapshot)
    for warning in caught:
        typer.echo(f"sfumato: {warning.message}", err=True)
    if as_json:
        print_json(describe(done) | {"folder": str(out)})
        return
    if before:
        typer.echo(
            f"{done.explain()}\n\nRead back from {out}: it was paid for before. Nothing was measured or spent, "
            "and the table was not read."
        )
        return
    typer.echo(f"{done.explain()}\n\nWritten to {out}. Read {out / REPORT} first.")


@app.command()
def ask(
    folder: Folder,
    predicate: Annotated[str, typer.Argument(metavar="PREDICATE", help="A condition on the declared attributes.")],
    confidence: Annotated[float, typer.Option(help="Of the interval.")] = 0.95,
    as_json: Json = False,
) -> None:
    """Answer a further question from a release. It costs nothing.

    \b
    Example:
      sfumato ask releases/2026-11 "age >= 65 and sex == 'female'"
    """
    from sfumato.frames import Frame
    from sfumato.releases import load_release

    answer = load_release(folder).ask(predicate, confidence)
    numbers = {"answer": answer.value, "standard_error": answer.standard_error, "low": answer.low, "high": answer.high}
    if as_json:
        print_json({"question": predicate, **numbers, "confidence": confidence})
        return
    typer.echo(str(Frame({"question": [predicate], **{k: [v] for k, v in numbers.items()}})))


@app.command()
def show(folder: Folder, as_json: Json = False) -> None:
    """What a release holds: its guarantee, its place in the ledger, the error of every table.

    \b
    Example:
      sfumato show releases/2026-11
    """
    from sfumato.releases import load_release
    from sfumato.releases.files import describe

    found = load_release(folder)
    if as_json:
        print_json(describe(found) | {"families": found.plan.errors().rows()})
        return
    typer.echo(f"{found.explain()}\n\n{found.plan.errors()}")


@app.command()
def report(
    thing: Annotated[Path, typer.Argument(metavar="DIR|PLAN", help="The folder of a release, or a saved plan.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Default: report.html in the folder, PLAN.html.")
    ] = None,
) -> None:
    """Write the page about a release, or about a plan before any data are read: one file that works offline.

    \b
    Example:
      sfumato report releases/2026-11
    """
    from sfumato.plans import load_plan
    from sfumato.releases import load_release
    from sfumato.releasing import REPORT
    from sfumato.report import write_report

    found, place = (
        (load_release(thing), thing / REPORT) if thing.is_dir() else (load_plan(thing), Path(f"{thing}.html"))
    )
    with writing(out or place):
        typer.echo(f"Written to {write_report(found, out or place)}")


# -- ledgers ---------------------------------------------------------------------------------------------


@ledger_app.command()
def create(
    path: LedgerPath,
    epsilon: Annotated[str | None, typer.Option(help="Pure, or with --delta approximate.")] = None,
    delta: Annotated[str | None, typer.Option(help="Such as 1e-6.")] = None,
    rho: Annotated[str | None, typer.Option(help="Zero-concentrated differential privacy.")] = None,
    mu: Annotated[str | None, typer.Option(help="Gaussian differential privacy.")] = None,
) -> None:
    """Make a ledger with a total that it will never exceed.

    \b
    Example:
      sfumato ledger create budget.db --rho 1.5
      sfumato ledger create budget.db --epsilon 1 --delta 1e-6
    """
    from sfumato.privacy.budget import Budget
    from sfumato.privacy.ledger import Ledger

    given = {"epsilon": epsilon, "delta": delta, "rho": rho, "mu": mu}
    total = Budget.from_json({name: text for name, text in given.items() if text is not None})
    made = Ledger.create(path, total=total)
    typer.echo(f"{path}: ledger {made.ledger_id} with a total of {total}")


@ledger_app.command()
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


@ledger_app.command()
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
    if found.total.kind != "approx" or found.remaining <= 0:
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
