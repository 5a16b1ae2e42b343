"""Streams: tables appended period after period, shown as running totals, single periods and sums of periods."""

from __future__ import annotations

import warnings
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.cli.options import Decimal, Delimiter, Encoding, Json, Language, Sheet, Table, Thousands
from sfumato.errors import InvalidInput
from sfumato.terminal import refuse_write_errors, shell_word, show_activity, show_result, show_rows

if TYPE_CHECKING:
    from sfumato.plans.streams import StreamPlan
    from sfumato.releases.streams import StreamAnswer, StreamRelease


_ZIP = b"PK\x03\x04"  # what the file of a release begins with; a store is a database

commands = typer.Typer(no_args_is_help=True, help="Tables that go on: one budget for all periods.")

Store = Annotated[Path, typer.Argument(metavar="STORE", help="The file of the stream.")]
Either = Annotated[Path, typer.Argument(metavar="STORE|FILE", help="The file of a stream, or its release.")]
Paying = Annotated[Path, typer.Option("--ledger", metavar="LEDGER", help="The ledger that paid.")]
Anchor = Annotated[
    str | None, typer.Option(metavar="ANCHOR", help="As an earlier answer or status had it: finds a store put back.")
]
People = Annotated[
    int | None, typer.Option(help="Where a person's periods are limited: room in the files; default: 1,000,000 people.")
]
Confidence = Annotated[float, typer.Option(help="Of the intervals.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print CSV: every line, every digit.")]


@commands.command("open")
def open_stream_command(
    spec: Annotated[Path, typer.Argument(metavar="SPEC|PLAN", help="A spec with a table [stream], or a saved plan.")],
    ledger: Annotated[Path, typer.Option(metavar="LEDGER", help="The ledger that pays, now and in full.")],
    name: Annotated[str, typer.Option(metavar="NAME", help="The stream's name; it is paid for once.")],
    store: Annotated[Path, typer.Option("--store", "-o", metavar="STORE", help="Where the stream is kept, in secret.")],
    table: Table = None,
    people: People = None,
    anchor: Anchor = None,
    as_json: Json = False,
) -> None:
    """Pay for all periods and begin the stream. No table is read; the same again goes on, and is free.

    \b
    Example:
      sfumato stream open deaths.toml --ledger budget.db --name deaths --store deaths.stream
      sfumato stream append deaths.stream week-01.csv --period 2026-W01 --ledger budget.db
    """
    from sfumato.planner.opening import open_plan
    from sfumato.privacy.ledger import Ledger

    with show_activity("planning"):
        plan, named = _load_stream_plan(spec)
    before = store.exists() and Ledger(ledger).find(name) is not None
    with show_activity("opening"):
        opened = open_plan(
            plan, ledger=ledger, name=name, store=store, table=table or named, anchor=anchor, people=people
        )
    kept = f"Kept in {store}, with two files beside it; all three are as secret as the tables."
    if before:
        kept = f"Read back from {store}: it was paid for before, and nothing was spent."
    going = f"sfumato stream append {shell_word(store)} TABLE --period LABEL --ledger {shell_word(ledger)}"
    facts = {"name": name, **opened.status(), "anchor": opened.anchor, "store": str(store)}
    show_result(facts, f"{opened.explain()}\n\n{kept} To go on: {going}", as_json=as_json)


@commands.command()
def append(
    store: Store,
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The period's records: a file or address.")],
    period: Annotated[str, typer.Option(metavar="LABEL", help="The period's label, which is public.")],
    ledger: Paying,
    people: People = None,
    anchor: Anchor = None,
    decimal: Decimal = None,
    thousands: Thousands = None,
    encoding: Encoding = None,
    delimiter: Delimiter = None,
    sheet: Sheet = None,
    as_json: Json = False,
) -> None:
    """Publish the next period. A label that was published before changes nothing, and its table is not read.

    \b
    Example:
      sfumato stream append deaths.stream week-02.csv --period 2026-W02 --ledger budget.db
    """
    from sfumato.curator.rows.samples import named_or_spec_table
    from sfumato.interactive.streams import resume_stored
    from sfumato.privacy.ledger import Ledger

    written = {"decimal": decimal, "thousands": thousands, "encoding": encoding, "delimiter": delimiter}
    data = named_or_spec_table(None, table, **written, sheet=sheet)
    with show_activity("appending"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is numerical could depend on the data
        opened = resume_stored(store, Ledger(ledger), anchor, people)
        before = opened.periods
        opened.publish(data, period)
        done, most = len(opened.periods), opened.plan.periods.count
    facts = {**opened.status(), "period": period, "published_before": period in before, "anchor": opened.anchor}
    standing = f"{done:,} of {most:,} periods"
    shown = f"sfumato stream show {shell_word(store)}"
    text = f"{period} is published ({standing}). To see it: {shown} --between {shell_word(period)} {shell_word(period)}"
    if period in before:
        text = f"{period} was published before: nothing was read or changed ({standing})."
    show_result(facts, text, as_json=as_json)


@commands.command()
def show(
    store: Either,
    between: Annotated[
        tuple[str, str] | None, typer.Option(metavar="FIRST LAST", help="The sum of the periods from one to another.")
    ] = None,
    last: Annotated[int | None, typer.Option(metavar="COUNT", help="The sum of the last periods.")] = None,
    ask: Annotated[str | None, typer.Option(metavar="PREDICATE", help="One condition, not all queries.")] = None,
    over_time: Annotated[
        bool, typer.Option("--over-time", help="A line a period: of all records, or of PREDICATE.")
    ] = False,
    increments: Annotated[
        bool, typer.Option("--increments", help="With --over-time: each period by itself, not totals.")
    ] = False,
    decayed: Annotated[
        str | None, typer.Option(metavar="RATE", help="All periods, each so much less than the one after it: 0.99.")
    ] = None,
    together: Annotated[
        bool, typer.Option("--simultaneous", help="Intervals that hold all together, not each by itself.")
    ] = False,
    confidence: Confidence = 0.95,
    anchor: Anchor = None,
    as_csv: Csv = False,
    as_json: Json = False,
) -> None:
    """Answers over time, by default the running totals. They cost nothing; no ledger and no table is read.

    \b
    Example:
      sfumato stream show deaths.stream
      sfumato stream show deaths.stream --between 2026-W05 2026-W08 --csv
      sfumato stream show deaths.stream --over-time --ask "age >= 60" --last 12 --simultaneous
      sfumato stream show deaths.stream --decayed 0.99
    """
    from sfumato._util.frames import Frame

    found = _load_stream_release(store, anchor)
    if increments and not over_time:
        raise InvalidInput("--increments goes with --over-time; one period alone is --last 1")
    sums = {"--between": between, "--decayed": decayed, "--last": None if over_time else last}
    named = [name for name, given in sums.items() if given is not None]
    if len(named) + over_time > 1:
        raise InvalidInput(
            f"{named[0]} is a sum of its own; leave {' and '.join([*named[1:], *['--over-time'] * over_time])} out"
        )
    if over_time:
        frame = found.over_time(ask, increments=increments, confidence=confidence, simultaneous=together)
        if last is not None:
            if last < 1:
                raise InvalidInput(f"--last is a number of periods from 1, not {last}")
            frame = Frame({name: list(column)[-last:] for name, column in frame.columns.items()})
        what = "each period by itself" if increments else "the totals up to each period"
    else:
        answer, what = _sum_of_periods(found, between, last, decayed)
        frame = answer.frame(confidence, simultaneous=together)
        if ask is not None:
            if together:
                raise InvalidInput("--simultaneous is about several intervals, and this is one; leave it out")
            one = answer.ask(ask, confidence)
            numbers = {"answer": one.value, "standard_error": one.standard_error, "low": one.low, "high": one.high}
            frame = Frame({"question": [ask], **{k: [v] for k, v in numbers.items()}})
    facts: dict[str, Any] = {"stream": found.provenance.name, "periods": len(found.periods), "of": what}
    facts |= {"confidence": confidence, "simultaneous": together}
    holds = "intervals that hold together" if together else "an interval that holds"
    text = f"low and high: {holds} with a confidence of {confidence:.3g}{'' if together else ', each by itself'}."
    before = f"{found.describe().headline}\n\nOf {what}:\n"
    show_rows(frame, facts, text, before=before, as_csv=as_csv, as_json=as_json)


@commands.command()
def report(
    store: Either,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="PAGE", help="The page to write.")],
    anchor: Anchor = None,
    language: Language = None,
) -> None:
    """Write the page of a stream: running totals and periods with their bands, tables, the plan. One file.

    \b
    Example:
      sfumato stream report deaths.stream -o deaths.html
    """
    from sfumato.present import write_report
    from sfumato.releases.publication import Publication

    found = _load_stream_release(store, anchor)
    with show_activity("drawing"), refuse_write_errors(out):
        page = write_report(found, out, publication=Publication().spoken(language))
        typer.echo(f"Written to {page}")


@commands.command()
def release(
    store: Store,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The file to write; it may be published.")],
    anchor: Anchor = None,
    as_json: Json = False,
) -> None:
    """Write all that is public of a stream to one file, to be handed on; a file that is there is replaced.

    \b
    Example:
      sfumato stream release deaths.stream -o deaths.release
      sfumato stream show deaths.release --last 12
    """
    found = _load_stream_release(store, anchor)
    with refuse_write_errors(out):
        found.save(out)
    facts = {"name": found.provenance.name, "periods": len(found.periods), "hash": found.result_hash}
    text = (
        f"{found.explain()}\n\nWritten to {out}. It holds no state; to read it: sfumato stream show {shell_word(out)}"
    )
    show_result(facts, text, as_json=as_json)


@commands.command()
def status(store: Store, anchor: Anchor = None, as_json: Json = False) -> None:
    """How a stream stands: its periods, what is left, its anchor. Reads only; neither table nor ledger is touched.

    \b
    Example:
      sfumato stream status deaths.stream
    """
    from sfumato._util.description import Description
    from sfumato.interactive.session import status_facts
    from sfumato.interactive.streams import read_status

    found = read_status(store, anchor)
    show_result(found, Description(f"Stream {store}", [status_facts(found)]), as_json=as_json)


def _load_stream_plan(path: Path) -> tuple[StreamPlan, str | None]:
    """The plan of a stream, saved or of a spec, and its table's public name."""
    from sfumato.planner.opening import read_stored
    from sfumato.plans.streams import StreamPlan
    from sfumato.releasing import plan_from_spec
    from sfumato.specs import read_spec

    if path.is_file() and zipfile.is_zipfile(path):
        return read_stored(path, StreamPlan), None
    spec = read_spec(path)
    found = plan_from_spec(spec)
    if not isinstance(found, StreamPlan):
        raise InvalidInput(f"{path} declares no stream: say how many periods under [stream], as periods = 104")
    return found, spec.table


def _load_stream_release(path: Path, anchor: str | None) -> StreamRelease:
    """All that is public of a stream: from its store, or from the file of its release."""
    from sfumato.interactive.streams import stored_release
    from sfumato.planner.opening import read_stored
    from sfumato.releases.streams import StreamRelease

    if not path.is_file():
        raise InvalidInput(f"{path} is no file; name the store of a stream, or the file of its release")
    # a store ends like a zip too, for it holds some: what it begins with tells
    with path.open("rb") as handle:
        document = handle.read(len(_ZIP)) == _ZIP
    if not document:
        return stored_release(path, anchor)
    if anchor is not None:
        raise InvalidInput("an anchor is of a store; a release never changes, so leave it out")
    return read_stored(path, StreamRelease)


def _sum_of_periods(
    found: StreamRelease, between: tuple[str, str] | None, last: int | None, decayed: str | None
) -> tuple[StreamAnswer, str]:
    """The sum of some periods, and which they are."""
    if decayed is not None:
        return found.decayed(decayed), f"all periods so far, each {decayed} times as much as the one after it"
    if between is not None:
        return found.between(*between), f"the periods {between[0]} to {between[1]}"
    if last is not None:
        return found.last(last), f"the last {last:,} periods" if last != 1 else "the last period"
    return found.totals, "the totals of all periods so far"
