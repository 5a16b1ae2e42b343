"""Making a release, what is asked of it afterwards, its statistics, and what changed between two.

Whatever follows from what was measured is free.
"""

from __future__ import annotations

import shutil
import warnings
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from sfumato.cli.options import (
    Decimal,
    Delimiter,
    Encoding,
    Folder,
    Json,
    Language,
    Out,
    Sheet,
    Source,
    Table,
    Thousands,
    Told,
    chosen_publication,
)
from sfumato.errors import InvalidInput
from sfumato.terminal import (
    print_json,
    refuse_write_errors,
    shell_word,
    show_activity,
    show_answer,
    show_result,
    show_rows,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sfumato._util.frames import Frame
    from sfumato.domain import Domain
    from sfumato.releases import Release


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
    from sfumato.releases.publication import publication_from_root
    from sfumato.releasing import REPORT, PageWarning, plan_or_spec
    from sfumato.releasing import release as carry_out
    from sfumato.workloads.reading import read_toml

    with show_activity("planning") as progress:
        found, declared, named = plan_or_spec(spec, progress)
        told = None if zipfile.is_zipfile(spec) else publication_from_root(read_toml(spec))
    written = {"decimal": decimal, "thousands": thousands, "encoding": encoding, "delimiter": delimiter}
    data = named_or_spec_table(declared, source, **written, sheet=sheet)
    if data is None:
        raise InvalidInput("which table? Name it with --source, or as source under [data] in the spec")
    before = (out / "release.json").exists()
    with show_activity("releasing") as progress, warnings.catch_warnings(record=True) as caught:
        # numerical warnings could depend on the data: only what is said about the page is passed on
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", PageWarning)
        options: dict[str, Any] = {"table": table or named, "snapshot": snapshot, "publication": told}
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
        more = f" (sfumato show {shell_word(folder)} --json has all)" if tables.endswith("more rows") else ""
        typer.echo(f"\nErrors by table, as they were planned:\n{tables}{more}")


def _load_stored(path: Path) -> Any:
    """What is at a path. Of a session or a stream that goes on, which take their ledger, how it is asked instead."""
    from sfumato.curator.streams.stored import is_stream
    from sfumato.interactive.opening import keeps_session
    from sfumato.planner.opening import load
    from sfumato.privacy.ledger import Ledger

    if path.is_file() and keeps_session(path):
        raise InvalidInput(f"{path} keeps a session: sfumato session status {shell_word(path)} says how it stands")
    if path.is_file() and is_stream(path):
        raise InvalidInput(f"{path} keeps a stream: sfumato stream show {shell_word(path)} reads it")
    found = load(path)
    if isinstance(found, Ledger):
        raise InvalidInput(f"{path} is a ledger: sfumato ledger status {shell_word(path)} says how it stands")
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
    from sfumato.releases.publication import folder_publication, write_publication
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
        told = folder_publication(folder)
        if told is not None:
            write_publication(told, out)
        write_report(done, out / REPORT, publication=told)
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
    body: Annotated[str, typer.Option(help="As of sfumato project, where the release is not projected.")] = "auto",
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
        held = load_release(folder)
        done = (held if body == "auto" else held.project(body)).synthetic(records)
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
    publication: Told = None,
    language: Language = None,
) -> None:
    """Write the page about a release, or about a plan before any data are read: one file that works offline.

    \b
    Example:
      sfumato report releases/2026-11
    """
    from sfumato.planner.opening import load
    from sfumato.present import write_report
    from sfumato.releasing import REPORT

    found, place = load(thing), thing / REPORT if thing.is_dir() else Path(f"{thing}.html")
    with refuse_write_errors(out or place):
        told = chosen_publication(thing, publication, language)
        typer.echo(f"Written to {write_report(found, out or place, publication=told)}")


Attribute = Annotated[str, typer.Argument(metavar="ATTRIBUTE", help="A declared attribute, or a level of one.")]
By = Annotated[list[str] | None, typer.Option("--by", metavar="ATTRIBUTE", help="Groups; may be repeated.")]
Confidence = Annotated[float, typer.Option(help="Of the intervals.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print CSV: every line, every digit.")]


@commands.command()
def quantiles(
    folder: Folder,
    attribute: Attribute,
    at: Annotated[str, typer.Option(metavar="P,P,…", help="Probabilities between 0 and 1.")] = "0.25,0.5,0.75",
    by: By = None,
    confidence: Confidence = 0.95,
    as_csv: Csv = False,
    as_json: Json = False,
) -> None:
    """Quantiles of a numeric attribute, told to its cells, each with its interval. They cost nothing.

    \b
    Example:
      sfumato quantiles releases/2026-11 age --at 0.1,0.5,0.9 --by sex
    """
    wanted, groups, found = parse_probabilities(at), by or [], load_measured(folder)
    frame = found.quantiles(attribute, wanted, by=groups, confidence=confidence)
    print_frame(found, frame, [attribute, *groups], confidence, as_csv=as_csv, as_json=as_json)


@commands.command()
def mean(
    folder: Folder,
    attribute: Attribute,
    by: By = None,
    clip: Annotated[
        str | None,
        typer.Option(metavar="KNOT|best", help="Where numbers of a measure are cut; best weighs all knots."),
    ] = None,
    confidence: Confidence = 0.95,
    as_csv: Csv = False,
    as_json: Json = False,
) -> None:
    """The mean of a measure, or of a numeric attribute from the middles of its declared cells. It costs nothing.

    Its interval holds the mean of the values, wherever in their cells these are; the note names the widest cell. Of a
    measure it is the mean of the numbers, cut to the declared range.

    \b
    Example:
      sfumato mean releases/2026-11 age --by sex
      sfumato mean releases/2026-11 cost --by ward
      sfumato mean releases/2026-11 income --clip best
    """
    cut: float | Literal["best"] | None = None
    if clip is not None:
        cut = "best" if clip == "best" else _parse_knot(clip)
    groups, found = by or [], load_measured(folder)
    frame = found.mean(attribute, by=groups, confidence=confidence, clip=cut)
    print_frame(found, frame, [attribute, *groups], confidence, as_csv=as_csv, as_json=as_json)


@commands.command()
def share(
    folder: Folder,
    attribute: Attribute,
    within: Annotated[
        list[str] | None, typer.Option("--within", metavar="ATTRIBUTE", help="Groups; may be repeated.")
    ] = None,
    confidence: Confidence = 0.95,
    as_csv: Csv = False,
    as_json: Json = False,
) -> None:
    """The share of records in each cell of an attribute, within groups. It costs nothing.

    \b
    Example:
      sfumato share releases/2026-11 sex --within age
    """
    groups, found = within or [], load_measured(folder)
    frame = found.share(attribute, within=groups, confidence=confidence)
    print_frame(found, frame, [attribute, *groups], confidence, as_csv=as_csv, as_json=as_json, without_other=False)


@commands.command()
def cdf(
    folder: Folder,
    attribute: Attribute,
    by: By = None,
    confidence: Confidence = 0.95,
    as_csv: Csv = False,
    as_json: Json = False,
) -> None:
    """The share of records up to each cell of an ordered attribute. It costs nothing.

    \b
    Example:
      sfumato cdf releases/2026-11 age --by sex --csv
    """
    groups, found = by or [], load_measured(folder)
    frame = found.cdf(attribute, by=groups, confidence=confidence)
    print_frame(found, frame, [attribute, *groups], confidence, as_csv=as_csv, as_json=as_json)


@commands.command()
def compare(
    later: Annotated[Path, typer.Argument(metavar="LATER", help="The folder of a release.")],
    earlier: Annotated[Path, typer.Argument(metavar="EARLIER", help="The folder of one of the same queries.")],
    part: Annotated[str | None, typer.Option(metavar="PART", help="One part of the queries; default: all.")] = None,
    together: Annotated[bool, typer.Option("--together", help="Let all intervals hold together.")] = False,
    confidence: Confidence = 0.95,
    as_csv: Csv = False,
    as_json: Json = False,
) -> None:
    """What changed between two releases of the same queries, with intervals. It costs nothing.

    \b
    Example:
      sfumato compare releases/2026-12 releases/2026-11 --part main
    """
    new, old = load_measured(later), load_measured(earlier)
    if part is not None:
        new, old = new[part], old[part]
    frame = new.compare(old, confidence, simultaneous=together)
    changed = sum(not low <= 0 <= high for low, high in zip(frame["low"], frame["high"], strict=True))
    by_chance = f"about {(1 - confidence) * len(frame):,.3g} would"
    if together:
        by_chance = f"none would in {confidence:.3g} of all comparisons"
    text = f"{changed:,} of {len(frame):,} intervals leave out 0; if nothing had changed, {by_chance}."
    facts = {"confidence": confidence, "together": together, "changed": changed}
    show_rows(frame, facts, text, as_csv=as_csv, as_json=as_json)


def parse_probabilities(text: str) -> list[float]:
    try:
        return [float(p) for p in text.split(",")]
    except ValueError:
        raise InvalidInput(f"--at lists probabilities such as 0.1,0.5,0.9, not {text!r}") from None


def _parse_knot(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(f"--clip is a knot of the measure, such as 20000, or best, not {text!r}") from None


def load_measured(folder: Path) -> Release:
    from sfumato.releases import load_release

    return load_release(folder).with_errors()


def print_frame(
    release: Release,
    frame: Frame,
    attributes: list[str],
    confidence: float,
    *,
    as_csv: bool,
    as_json: bool,
    without_other: bool = True,
) -> None:
    """The rows; on a screen also what they rest on, and reasons to doubt the attributes that are asked about."""
    from sfumato.domain.attributes import OTHER

    domain = release.plan.workload.domain
    owners = {domain.owner(a) for a in attributes}
    doubts = [c for c in release.cautions if c.attribute is None or c.attribute in owners] if not as_csv else []
    lines = [f"low and high: an interval that holds with a confidence of {confidence:.3g}."]
    if without_other and any(c.attribute == domain.owner(attributes[0]) and OTHER in c.text for c in doubts):
        lines.append(f"Records whose {attributes[0]} is in {OTHER} are left out: these numbers are of the others.")
    lines += [f"caution: {c.text}" for c in doubts]
    facts = {"release": release.provenance.name, "confidence": confidence, "cautions": [c.facts() for c in doubts]}
    show_rows(frame, facts, "\n".join(lines), as_csv=as_csv, as_json=as_json)
