"""Making a release, and what is asked of it afterwards."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.cli.options import Decimal, Delimiter, Encoding, Folder, Json, Out, Sheet, Source, Table, Thousands
from sfumato.errors import InvalidInput
from sfumato.terminal import print_json, refuse_write_errors, show_activity, show_answer, show_result

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sfumato.domain import Domain


commands = typer.Typer()


@commands.command()
def release(
    spec: Annotated[Path, typer.Argument(metavar="SPEC|PLAN", help="A spec file or a saved plan.")],
    ledger: Annotated[Path, typer.Option(metavar="LEDGER", help="The ledger that pays.")],
    name: Annotated[str, typer.Option(metavar="NAME", help="The release's name; it is paid for once.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="The folder for the release.")],
    source: Source = None,
    table: Table = None,
    snapshot: Annotated[str | None, typer.Option(help="A name for the state of the table, to pool releases.")] = None,
    with_checker: Annotated[
        bool, typer.Option("--with-checker", help="Put the checker, three files, beside the release.")
    ] = False,
    decimal: Decimal = None,
    thousands: Thousands = None,
    encoding: Encoding = None,
    delimiter: Delimiter = None,
    sheet: Sheet = None,
    as_json: Json = False,
) -> None:
    """Pay for a plan, measure once, and write the release with its report. The same name again is free.

    \b
    Example:
      sfumato release people.toml --ledger budget.db --name 2026-11 -o releases/2026-11
    """
    from sfumato.curator.rows.samples import named_or_spec_table
    from sfumato.releasing import REPORT, PageWarning, plan_or_spec
    from sfumato.releasing import release as carry_out

    with show_activity("planning") as progress:
        found, declared, named = plan_or_spec(spec, progress)
    written = {"decimal": decimal, "thousands": thousands, "encoding": encoding, "delimiter": delimiter}
    data = named_or_spec_table(declared, source, **written, sheet=sheet)
    if data is None:
        raise InvalidInput("which table? Name it with --source, or as source under [data] in the spec")
    before = (out / "release.json").exists()
    with show_activity("releasing") as progress, warnings.catch_warnings(record=True) as caught:
        # numerical warnings could depend on the data: only what is said about the page is passed on
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", PageWarning)
        options = {"table": table or named, "snapshot": snapshot}
        done = carry_out(found, data, ledger=ledger, name=name, out=out, **options, progress=progress)
    if with_checker:
        from sfumato import check_release

        for part in ("check_release.py", "check_maps.py", "check_forms.py"):
            shutil.copy(Path(check_release.__file__).with_name(part), out / part)
    for warning in caught:
        typer.echo(f"sfumato: {warning.message}", err=True)
    text = f"Written to {out}. Read {out / REPORT} first."
    if before:
        text = (
            f"Read back from {out}: it was paid for before. Nothing was measured or spent, and the table was not read."
        )
    show_result(done.facts() | {"folder": str(out)}, f"{done.explain()}\n\n{text}", as_json=as_json)


@commands.command(name="check-release")
def check_release_command(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR|FILE", help="The folder of a release, or the file of a sketch or a stream.")
    ],
    ledger: Annotated[Path, typer.Option(metavar="LEDGER", help="The ledger that paid.")],
    anchor: Annotated[
        str | None, typer.Option(help="A line of the ledger that was kept elsewhere, as 17:9f86d0…")
    ] = None,
    earlier: Annotated[
        Path | None,
        typer.Option(metavar="STREAM", help="An earlier release of the same stream, which it goes on from."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Derive what a release costs anew from its files and the ledger, as a stranger would: by three files alone.

    Ends with 0 where it is accepted, else with 2 and every reason.

    \b
    Example:
      sfumato check-release releases/2026-11 --ledger budget.db
    """
    from sfumato import check_release

    given = [] if anchor is None else ["--anchor", anchor]
    given += [] if earlier is None else ["--earlier", str(earlier)]
    asked = [str(folder), "--ledger", str(ledger), *given, *(["--json"] if as_json else [])]
    raise typer.Exit(check_release.main(asked))


@commands.command()
def ask(
    folder: Folder,
    predicate: Annotated[str, typer.Argument(metavar="PREDICATE", help="A condition on the declared attributes.")],
    confidence: Annotated[float | None, typer.Option(help="Of the interval; default: 0.95.")] = None,
    as_json: Json = False,
) -> None:
    """Answer a further question from a release. It costs nothing.

    \b
    Example:
      sfumato ask releases/2026-11 "age >= 65 and sex == 'female'"
    """
    from sfumato._util.frames import Frame
    from sfumato.releases import load_release
    from sfumato.workloads import predicates

    found = load_release(folder)
    if not found.errors_known:
        if confidence is not None:
            raise InvalidInput("a model's answers have no intervals, so no confidence; leave out --confidence")
        value = found.ask(predicate).value
        text = f"{Frame({'question': [predicate], 'answer': [value]})}\nNo standard error is known."
        show_result({"question": predicate, "answer": value, "standard_error": None}, text, as_json=as_json)
        return
    confidence = 0.95 if confidence is None else confidence
    found = found.with_errors()
    answer = found.ask(predicate, confidence)
    before = {} if found.projection is None else {"unprojected": found.raw.ask(predicate, confidence).value}
    numbers = {"answer": answer.value, **before, "standard_error": answer.standard_error}
    numbers |= {"low": answer.low, "high": answer.high}
    show_answer(predicate, numbers, confidence=confidence, as_json=as_json)
    if as_json:
        return
    asked = predicates(found.plan.workload.domain, [predicate]).blocks[0].attributes
    for caution in found.cautions:
        if caution.attribute is None or caution.attribute in asked:
            typer.echo(f"caution: {caution.text}")


@commands.command()
def show(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR|FILE", help="The folder of a release, or the file of a sketch or a plan.")
    ],
    as_json: Json = False,
) -> None:
    """What a release holds: its guarantee, its place in the ledger, the error of every table. Of a sketch, or a plan
    that was saved, what is promised.

    \b
    Example:
      sfumato show releases/2026-11
    """
    from sfumato.plans.explain import LISTED_TABLES
    from sfumato.releases.released import WorkloadRelease

    found = _load_stored(folder)
    if not isinstance(found, WorkloadRelease):
        show_result(found.describe().to_dict(), found, as_json=as_json)
        return
    known = found.plan.error_tables()
    if as_json:
        print_json(found.facts() | {name: table.rows() for name, table in known.items()})
        return
    typer.echo(found.explain() if known else f"{found.explain()}\n\n{found.plan.explain()}")
    if known and len(known["families"]) > LISTED_TABLES:
        tables = str(known["families"])
        more = f" (sfumato show {folder} --json has all)" if tables.endswith("more rows") else ""
        typer.echo(f"\nErrors by table, as they were planned:\n{tables}{more}")


def _load_stored(path: Path) -> Any:
    """What is at a path. Of a session or a stream that goes on, which take their ledger, how it is asked instead."""
    from sfumato.curator.streams.stored import is_stream
    from sfumato.interactive.opening import keeps_session
    from sfumato.planner.loading import load
    from sfumato.privacy.ledger import Ledger

    if path.is_file() and keeps_session(path):
        raise InvalidInput(f"{path} keeps a session: sfumato session status {path} says how it stands")
    if path.is_file() and is_stream(path):
        raise InvalidInput(f"{path} keeps a stream: sfumato stream show {path} reads it")
    found = load(path)
    if isinstance(found, Ledger):
        raise InvalidInput(f"{path} is a ledger: sfumato ledger status {path} says how it stands")
    return found


@commands.command()
def project(
    folder: Folder,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="A new folder for the projected release.")],
    body: Annotated[str, typer.Option(help="What answers must lie in; auto takes the one that fits.")] = "auto",
    space: Annotated[
        str | None, typer.Option(help="What is near: ladder (the default for tables), answers, measurements.")
    ] = None,
    total: Annotated[int | None, typer.Option(help="The number of records, where that is known.")] = None,
    integer: Annotated[bool, typer.Option("--integer", help="Round to whole counts.")] = False,
    kept: Annotated[
        Path | None,
        typer.Option("--folder", metavar="DIR", help="Finished parts of a tree; a killed run goes on there."),
    ] = None,
    bounds: Annotated[
        Path | None, typer.Option(metavar="SPEC", help="Keep to the floors and caps that a spec has as [[bounds]].")
    ] = None,
    earlier: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="With --body mixtures: an earlier release that this one's plan follows."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Replace the answers of a release by the nearest ones that some table could have given. It costs nothing.

    The new folder holds both, and its own page; the old one stays as it is.

    \b
    Example:
      sfumato project releases/2026-11 -o releases/2026-11-projected
    """
    from sfumato.present import write_report
    from sfumato.releases import ModelRelease, load_release
    from sfumato.releasing import REPORT

    with show_activity("projecting") as progress, refuse_write_errors(out):
        release = load_release(folder)
        before = None if earlier is None else load_release(earlier)
        if isinstance(before, ModelRelease):
            raise InvalidInput(
                f"{earlier} answers from a model, so there is nothing to pool; --earlier takes noisy tables"
            )
        done = release.project(
            body,
            space=space,
            total=total,
            integer=integer,
            earlier=before,
            folder=kept,
            bounds=None if bounds is None else _spec_bounds(bounds, release.plan.workload.domain),
            progress=progress,
        )
        done.save(out)
        write_report(done, out / REPORT)
    text = f"{done.explain()}\n\nWritten to {out}. Nothing was spent. Read {out / REPORT} first."
    show_result(done.facts() | {"folder": str(out)}, text, as_json=as_json)


def _spec_bounds(path: Path, released: Domain) -> Mapping[Any, Any]:
    """Those of a spec, which declares what was released. Raises InvalidInput."""
    from sfumato.specs import read_spec

    spec = read_spec(path)
    if not spec.bounds:
        raise InvalidInput(f"{path} has no tables [[bounds]], each with a level and least or most")
    if spec.domain != released:
        raise InvalidInput(f"{path} declares other attributes than those of the release; name the spec it was made of")
    return spec.bounds


@commands.command()
def synthetic(
    folder: Folder,
    out: Out,
    records: Annotated[int | None, typer.Option(metavar="N", help="How many; default: as many as released.")] = None,
    as_json: Json = False,
) -> None:
    """Write whole records with about the answers of a release, as CSV. It costs nothing.

    Over the attributes that were asked about. A release that is not projected is projected first.

    \b
    Example:
      sfumato synthetic releases/2026-11 -o people.csv
    """
    from sfumato.releases import load_release

    with show_activity("fitting records"), refuse_write_errors(out):
        done = load_release(folder).synthetic(records)
        done.save(out)
    found = {"records": len(done), "attributes": done.attributes, "left_out": done.left_out}
    found |= {"rmse": done.rmse, "table_error": done.table_error, "file": str(out)}
    show_result(found, f"{done.explain()}\n\nWritten to {out}. Nothing was spent.", as_json=as_json)


@commands.command()
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
    from sfumato.planner.loading import load
    from sfumato.present import write_report
    from sfumato.releasing import REPORT

    found, place = load(thing), thing / REPORT if thing.is_dir() else Path(f"{thing}.html")
    with refuse_write_errors(out or place):
        typer.echo(f"Written to {write_report(found, out or place)}")
