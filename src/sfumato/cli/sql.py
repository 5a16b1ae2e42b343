"""A question in SQL: how it is read and what it would cost, its release, and its answer from what was released."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.cli.options import Json, Source, Table
from sfumato.errors import InvalidInput
from sfumato.terminal import show_activity, show_result, show_rows

if TYPE_CHECKING:
    from sfumato.releases import Release
    from sfumato.workloads.sql import SqlQuestion

commands = typer.Typer()


@commands.command(name="sql")
def sql_command(
    statement: Annotated[str, typer.Argument(metavar="SELECT", help="A statement, in quotes.")],
    path: Annotated[
        Path, typer.Argument(metavar="SPEC|DIR", help="A spec, to plan or release; or the folder of a release, to ask.")
    ],
    ledger: Annotated[Path | None, typer.Option(metavar="LEDGER", help="The ledger that pays: release it.")] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="The release's name; it is paid for once.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="DIR", help="The folder for the release.")] = None,
    source: Source = None,
    table: Table = None,
    confidence: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the rows as CSV.")] = False,
    as_json: Json = False,
) -> None:
    """Ask in SQL. Of a spec it says how the statement is read and how well it would be answered, before anything is
    paid; with --ledger, --name and -o it is released. Of a release it is answered for nothing, where it follows.

    The spec's own queries are left out, its attributes, budget and table are used.

    \b
    Example:
      sfumato sql "SELECT region, COUNT(*), AVG(income) FROM people GROUP BY region" people.toml
      sfumato sql "SELECT COUNT(*) FROM people WHERE age >= 65" releases/2026-11
    """
    from sfumato.workloads.sql import sql

    if path.is_dir():
        from sfumato.releases import load_release

        given = [o for o, v in (("--ledger", ledger), ("--name", name), ("-o", out), ("--source", source)) if v]
        if given:
            raise InvalidInput(f"{path} is a release, which is asked for nothing; leave out {', '.join(given)}")
        release = load_release(path).with_errors()
        _show(sql(statement, release.plan.workload.domain), release, confidence, as_csv=as_csv, as_json=as_json)
        return
    from sfumato.releasing import plan_from_spec
    from sfumato.specs import read_spec

    spec = read_spec(path)
    asked = sql(statement, spec.domain)
    with show_activity("planning") as progress:
        plan = plan_from_spec(replace(spec, workload=asked.workload, margins={}, public={}), progress)
    wanting = [o for o, v in (("--ledger", ledger), ("--name", name), ("-o", out)) if v is None]
    if len(wanting) == 3:
        to_pay = "Nothing was read or paid. To release it add --ledger LEDGER --name NAME -o DIR"
        facts = {"statement": asked.statement, "read": str(asked), "plan": plan.describe().to_dict()}
        show_result(facts, f"{asked}\n\n{plan}\n\n{to_pay}", as_json=as_json)
        return
    if wanting:
        raise InvalidInput(f"a release is paid by a ledger, under a name, into a folder: add {', '.join(wanting)}")
    from sfumato.curator.rows.samples import named_or_spec_table
    from sfumato.releasing import release as carry_out

    data = named_or_spec_table(spec.source, source)
    if data is None:
        raise InvalidInput("which table? Name it with --source, or as source under [data] in the spec")
    with show_activity("releasing") as progress:
        named = table or spec.table
        done = carry_out(plan, data, ledger=ledger, name=str(name), out=out, table=named, progress=progress)  # type: ignore[call-overload, arg-type]
    _show(asked, done, confidence, as_csv=as_csv, as_json=as_json)


def _show(asked: SqlQuestion, release: Release, confidence: float, *, as_csv: bool, as_json: bool) -> None:
    frame = asked.answer(release, confidence)
    said = f"Intervals hold with {confidence:.0%} each. Blank numbers cannot be told from noise."
    show_rows(frame, {"statement": asked.statement, "confidence": confidence}, said, as_csv=as_csv, as_json=as_json)
