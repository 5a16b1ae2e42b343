"""Questions one by one: a session opened, asked, looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sfumato.cli.keys import parse_key_arguments
from sfumato.cli.options import Json, Source, Table
from sfumato.errors import InvalidInput
from sfumato.terminal import shell_word, show_activity, show_answer, show_result

commands = typer.Typer(no_args_is_help=True, help="Questions that are not known in advance, under one budget.")

Store = Annotated[Path, typer.Argument(metavar="STORE", help="The file (or folder) of the session.")]


@commands.command("open")
def open_session_command(
    spec: Annotated[Path, typer.Argument(metavar="SPEC", help="A spec file; its queries are not asked.")],
    ledger: Annotated[Path, typer.Option(metavar="LEDGER", help="The ledger that pays, now and in full.")],
    name: Annotated[str, typer.Option(metavar="NAME", help="The session's name; it is paid for once.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="STORE", help="Where the session is kept.")],
    source: Source = None,
    table: Table = None,
    records: Annotated[int | None, typer.Option(help="About how many there are; default: as the spec says.")] = None,
    mechanism: Annotated[str, typer.Option(help="pmw, or histogram: all cells measured now.")] = "pmw",
    updates: Annotated[int | None, typer.Option(help="Hard questions to pay for; default: by size and budget.")] = None,
    threshold: Annotated[int | None, typer.Option(help="Records by which the hypothesis may err.")] = None,
    alpha: Annotated[str | None, typer.Option(help="A promise in fractions of the records, or least.")] = None,
    beta: Annotated[float | None, typer.Option(help="The probability that a bound fails; default: 0.05.")] = None,
    questions: Annotated[int | None, typer.Option(help="How many questions the bounds are for.")] = None,
    as_json: Json = False,
) -> None:
    """Pay for a session and begin it: of the spec its columns, budget and table are used.

    \b
    Example:
      sfumato session open people.toml --ledger budget.db --name desk -o desk.session
      sfumato session ask desk.session "age >= 65 and sex == 'female'" --ledger budget.db
    """
    from sfumato.curator.rows.samples import named_or_spec_table
    from sfumato.mechanisms.registry import make_mechanism
    from sfumato.planner.opening import plan_and_open
    from sfumato.privacy.ledger import Ledger
    from sfumato.specs import read_spec

    found = read_spec(spec)
    if found.periods is not None:
        raise InvalidInput(
            f"{spec} declares a stream; open it with: sfumato stream open {shell_word(spec)}, or take [stream] out"
        )
    data = named_or_spec_table(found.source, source)
    if data is None:
        raise InvalidInput("which table? Name it with --source, or as source under [data] in the spec")
    given = {
        "updates": updates,
        "threshold": threshold,
        "alpha": _read_alpha(alpha),
        "beta": beta,
        "questions": questions,
    }
    before = out.is_file() and Ledger(ledger).find(name) is not None
    with show_activity("opening"):
        account = Ledger(ledger)
        options = {name: value for name, value in given.items() if value is not None}
        opened = plan_and_open(
            data,
            found.domain,
            found.budget,
            mechanism=make_mechanism(mechanism, **options, currency=account.currency.value),
            records=found.records if records is None else records,
            ledger=account,
            table=table or found.table,
            name=name,
            store=out,
            neighbours=found.neighbours,
            person=found.person,
            rows_per_person=found.rows_per_person,
            once_per=found.once_per,
            rows_per_group=found.rows_per_group,
        )
    paid = "" if out.is_dir() else f" --ledger {shell_word(ledger)}"
    kept = f"Read back from {out}: it was paid for before, and nothing was spent." if before else f"Kept in {out}."
    text = f'{opened.explain()}\n\n{kept} To ask: sfumato session ask {shell_word(out)} "PREDICATE"{paid}'
    show_result(opened.status() | {"store": str(out)}, text, as_json=as_json)


@commands.command()
def ask(
    store: Store,
    predicate: Annotated[
        str | None, typer.Argument(metavar="PREDICATE", help="A condition on the declared columns.")
    ] = None,
    key: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="In a session over keys: one of the keys; repeat it.")
    ] = None,
    source: Annotated[str | None, typer.Option(metavar="TABLE", help="Default: the one it was opened on.")] = None,
    ledger: Annotated[
        Path | None,
        typer.Option(metavar="LEDGER", help="The one that paid; required but for a folder, which is public."),
    ] = None,
    anchor: Annotated[
        str | None, typer.Option(metavar="ANCHOR", help="As an earlier answer or status had it: finds a file put back.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Answer one question. The budget was paid at the opening; a hard question uses up one update.

    \b
    Example:
      sfumato session ask desk.session "age >= 65" --ledger budget.db
      sfumato session ask urls.session --key example.org --ledger keys.db
    """
    from sfumato.interactive import KeySession, resume_session

    with show_activity("asking"):
        opened = resume_session(store, ledger, source, anchor=anchor)
        over_keys = isinstance(opened, KeySession)
        if not (predicate if key is None else key) or (key is not None) != over_keys or (predicate and key):
            raise InvalidInput(f"this session is asked {'for its keys, with --key' if over_keys else 'a PREDICATE'}")
        answer = (
            opened.ask(parse_key_arguments(key or [], opened.plan.keys)) if over_keys else opened.ask(predicate or "")
        )
    numbers = {"answer": answer.value, "low": answer.low, "high": answer.high}
    numbers |= {"how": answer.how, "guaranteed": answer.guaranteed}
    more = {"standard_error": answer.standard_error, "anchor": opened.anchor}
    show_answer(key or predicate, numbers, **more, as_json=as_json)


@commands.command()
def status(store: Store, as_json: Json = False) -> None:
    """What a session was asked and what is left of it. Reads only; neither table nor ledger is touched.

    \b
    Example:
      sfumato session status desk.session
    """
    from sfumato._util.description import Description
    from sfumato.interactive import session_status
    from sfumato.interactive.session import status_facts

    found = session_status(store)
    show_result(found, Description(f"Session {store}", [status_facts(found)]), as_json=as_json)


def _read_alpha(given: str | None) -> float | str | None:
    if given is None or given == "least":
        return given
    try:
        return float(given)
    except ValueError:
        raise InvalidInput(f"--alpha is a fraction of the records, or least, not {given!r}") from None
