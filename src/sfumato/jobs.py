"""A job that comes again each month: several tables, one ledger, releases, projections, sites and files in one folder.

A job file says what is published; a run does what of it is not there yet. It is refused before the first debit where
any of its tables could not be paid for, and a run that was ended goes on where it stood: the same name again is free.
What it logs follows from the job, the specs and the ledger, never from rows.
"""

from __future__ import annotations

import difflib
import json
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from fractions import Fraction
from os import PathLike
from pathlib import Path
from typing import Any

from sfumato._util.catalogue import read_catalogue
from sfumato._util.documents import write_text_atomically
from sfumato._util.files import lock_folder
from sfumato.curator.rows.samples import column_names, named_or_spec_table
from sfumato.curator.rows.written import source_of
from sfumato.errors import BudgetExceeded, InvalidInput, LedgerMismatch, NotWritten, SfumatoError, SourceError
from sfumato.plans.iterative import IterativePlan
from sfumato.plans.labels import LabelPlan
from sfumato.plans.plan import Plan
from sfumato.postprocess.values import check_values
from sfumato.present import write_report
from sfumato.privacy.accounting import event_delta, event_price
from sfumato.privacy.debits import State
from sfumato.privacy.ledger import Ledger
from sfumato.privacy.ledger.words import remaining_text, spend_entries
from sfumato.publishing import publish, write_formats
from sfumato.publishing.formats import FORMATS
from sfumato.releases import Release, load_release
from sfumato.releases.publication import (
    Publication,
    folder_publication,
    publication_from_root,
    write_publication,
)
from sfumato.releasing import PageWarning, plan_or_spec, release
from sfumato.workloads.reading import Section, read_toml

SUMMARY = "job.json"
_NAMES = 60  # characters of a name: with the period a folder's name that all systems take
_EVERY: dict[str, Callable[[date], str]] = {
    "year": lambda day: f"{day.year}",
    "quarter": lambda day: f"{day.year}-Q{(day.month + 2) // 3}",
    "month": lambda day: f"{day:%Y-%m}",
    "week": lambda day: "{}-W{:02d}".format(*day.isocalendar()[:2]),
    "day": lambda day: f"{day:%Y-%m-%d}",
}
Log = Callable[[str, str, dict[str, Any]], object]
"""Takes a level ("info" or "warning"), what happened, and its facts."""


@dataclass(frozen=True, slots=True)
class JobTable:
    """One table of a job.

    Args:
        name: Its name; the release is called NAME-PERIOD.
        spec: The spec's file.
        source: Where the table is, or None for what the spec says; {period} in it stands for the period.
        project: Whether the nearest possible answers are published beside.
        site: Whether a site is made.
        formats: The formats of files, as `write_formats` takes them.
        languages: Of reports and sites; none stands for the publication's own alone.
        leave_out: Whether files lack the numbers that are flagged "suppress".
    """

    name: str
    spec: Path
    source: str | None = None
    project: bool = False
    site: bool = True
    formats: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()
    leave_out: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """What is published each period.

    Args:
        tables: The tables, in their order.
        ledger: The ledger that pays for all of them.
        out: The folder that has one folder for each period.
        every: "year", "quarter", "month", "week" or "day".
    """

    tables: tuple[JobTable, ...]
    ledger: Path
    out: Path
    every: str = "month"

    def period(self, day: date | None = None) -> str:
        """The name of the period in which a day lies.

        Args:
            day: Today unless given.

        Returns:
            Such as 2026-11, 2026-Q4 or 2026-W48.
        """
        return _EVERY[self.every](date.today() if day is None else day)


@dataclass(slots=True)
class JobResult:
    """What a run came to.

    Args:
        period: The period.
        folder: Its folder.
        done: What was done in this run, as "NAME: step"; nothing where all was there.
        spent: Names that were paid for in this run.
        changed: For each table whose declaration is not that of the period before, the lines that differ.
    """

    period: str
    folder: Path
    done: list[str] = field(default_factory=list[str])
    spent: list[str] = field(default_factory=list[str])
    changed: dict[str, list[str]] = field(default_factory=dict[str, list[str]])


def read_job(path: str | PathLike[str]) -> Job:
    """Read a job file; paths in it are relative to it.

    Args:
        path: A TOML file with [job] and one [[tables]] for each table.

    Returns:
        The job.

    Raises:
        SpecError: The file cannot be read or states what is not allowed; the message has the line where there is one.
    """
    root = read_toml(path)
    root.allow("job", "tables")
    root.refuse_blanks()
    about, beside = root.section("job"), Path(path).parent
    about.allow("ledger", "out", "every")
    for key, why in (("ledger", "the ledger that pays"), ("out", "the folder that gets one folder for each period")):
        about.need(key, f"it is {why}")
    every = about.text("every") or "month"
    if every not in _EVERY:
        raise about.refuse(f"must be one of {', '.join(_EVERY)}, not {every!r}", "every")
    entries = root.sections("tables")
    if not entries:
        raise root.refuse("a job has at least one [[tables]], with a name and a spec")
    tables = tuple(_read_job_table(entry, beside) for entry in entries)
    for at, one in enumerate(tables):
        if one.name in {t.name for t in tables[:at]}:
            raise entries[at].refuse(f"two tables are called {one.name!r}", "name")
    return Job(tables, beside / (about.text("ledger") or ""), beside / (about.text("out") or ""), every)


def _read_job_table(entry: Section, beside: Path) -> JobTable:
    entry.allow("name", "spec", "source", "project", "site", "formats", "languages", "leave_out")
    entry.need("name", "the release is called so, with the period behind it")
    entry.need("spec", "it is the spec's file")
    name = entry.text("name") or ""
    if not name or len(name) > _NAMES or not name[0].isalnum() or not all(c.isalnum() or c in "_-" for c in name):
        raise entry.refuse(
            f"must be at most {_NAMES} letters, digits, dashes and underscores, and begin with a letter or digit, "
            f"not {name!r}",
            "name",
        )
    formats, languages = tuple(entry.texts("formats") or ()), tuple(entry.texts("languages") or ())
    for i, one in enumerate(formats):
        if one not in FORMATS:
            raise entry.refuse(f"must be some of {', '.join(FORMATS)}, not {one!r}", "formats", i)
    for i, one in enumerate(languages):
        with entry.guard("languages", i):
            read_catalogue(one)
    switches = {key: _read_switch(entry, key) for key in ("project", "site", "leave_out") if key in entry}
    source = entry.text("source")
    if source is not None and "://" not in source:
        source = str(beside / source)
    return JobTable(name, beside / (entry.text("spec") or ""), source, formats=formats, languages=languages, **switches)


def _read_switch(entry: Section, key: str) -> bool:
    value = entry.raw(key)
    if not isinstance(value, bool):
        raise entry.refuse(f"must be true or false, not {value!r}", key)
    return value


@dataclass(frozen=True, slots=True)
class _Planned:
    """A table of a run with all that is known of it before the payment."""

    table: JobTable
    plan: Plan | IterativePlan | LabelPlan
    source: Any
    public: str | None
    told: Publication | None
    text: str
    name: str
    folder: Path

    @property
    def place(self) -> Path:
        return self.folder / "release"


def run_job(job: Job, period: str | None = None, *, dry_run: bool = False, log: Log | None = None) -> JobResult:
    """Do what of a job is not there yet for a period: release, project, publish, write files.

    Args:
        job: The job.
        period: Such as 2026-11; that of today unless given.
        dry_run: Whether to plan, compare and ask the ledger alone: nothing is spent, read or written.
        log: Called with a level, what happened and its facts, which follow from what is public.

    Returns:
        What was done.

    Raises:
        InvalidInput: The period is no name of a folder; or a spec, a plan or a table's header cannot be used. Nothing
            was spent.
        BudgetExceeded: The ledger cannot pay for all tables that are not there yet. Nothing was spent.
        NotWritten: Something was spent in this run, and the job is not complete; the same run again goes on. Or another
            run of the job is at work on the period, and this one did nothing.

    Guarantee:
        Each table is paid for once a period, however often the job is run; all of a run's debits fit into the ledger,
        as it was when the run began, before the first is made.
    """
    when = job.period() if period is None else period
    if not when or not all(c.isalnum() or c in "-_" for c in when):
        raise InvalidInput(f"a period is a name such as {job.period()}, of letters, digits and dashes, not {when!r}")
    log = log or (lambda _level, _event, _facts: None)
    result = JobResult(when, job.out / when)
    log("info", "begin", {"period": when, "tables": len(job.tables)})
    planned = [_plan_table(job, table, when, log) for table in job.tables]
    result.changed = {p.table.name: lines for p in planned if (lines := _declaration_changes(job, p, when))}
    for name, lines in result.changed.items():
        log("warning", "declaration changed", {"table": name, "lines": lines})
    _ask_ledger(job, planned, log)
    if dry_run:
        log("info", "dry run", {"period": when})
        return result
    try:
        with lock_folder(result.folder):
            for one in planned:
                _carry_out(job, one, result, log)
            _write_summary(job, planned, result)
    except BlockingIOError as error:
        raise NotWritten(
            f"another run of this job is at work on {when}; this one did nothing. Run it again when that has ended"
        ) from error
    except (SfumatoError, OSError) as error:
        if not result.spent and not isinstance(error, OSError):
            raise
        paid = ", ".join(result.spent) or "nothing"
        raise NotWritten(
            f"the job is not complete: {error}. Paid for in this run: {paid}. The same run again goes on, and what was "
            "paid for is free"
        ) from error
    log("info", "end", {"period": when, "done": len(result.done), "paid": len(result.spent)})
    return result


def _plan_table(job: Job, table: JobTable, period: str, log: Log) -> _Planned:
    """A table's plan and source, its header looked at: all that can be refused is refused before the first debit."""
    with _naming(table):
        plan, declared, public = plan_or_spec(table.spec)
        told = publication_from_root(read_toml(table.spec))
        source = named_or_spec_table(
            declared, None if table.source is None else table.source.replace("{period}", period)
        )
        if source is None:
            raise InvalidInput("which table? Name it as source in the job, or under [data] in the spec")
        if table.source is None and "{period}" in str(source_of(source).table):
            raise InvalidInput(
                "{period} is filled in where the job names the source: write it as source under [[tables]], "
                "and under [data] of the spec a table that is there"
            )
        one = _Planned(
            table,
            plan,
            source,
            public,
            told,
            table.spec.read_text(encoding="utf-8"),
            f"{table.name}-{period}",
            job.out / period / table.name,
        )
        if not _is_stored(one.place) and isinstance(source_of(source).table, (str, Path)):
            column_names(source)
        if told is not None:
            told.check_names(plan.workload.domain)
        if table.project and isinstance(plan, Plan) and plan.workload.measures:
            check_values(plan.workload)
        log("info", "planned", {"table": table.name, "mechanism": plan.mechanism, "guarantee": str(plan.budget)})
        return one


@contextmanager
def _naming(table: JobTable) -> Generator[None]:
    """Refusals with the name of the table that they are about."""
    try:
        yield
    except InvalidInput as error:
        raise InvalidInput(f"table {table.name}: {error}") from error
    except SourceError as error:
        raise SourceError(f"table {table.name}: {error}") from error
    except OSError as error:
        raise InvalidInput(f"table {table.name}: {error.strerror or error}") from error


def _is_stored(place: Path) -> bool:
    return (place / "release.json").is_file()


def _declaration_changes(job: Job, one: _Planned, period: str) -> list[str]:
    """The lines by which a spec differs from its copy of the latest period before this one."""
    copies = {
        p.stem.removeprefix(f"{one.table.name}-"): p for p in declared_folder(job).glob(f"{one.table.name}-*.toml")
    }
    earlier = sorted(name for name in copies if name < period)
    if not earlier:
        return []
    before = copies[earlier[-1]].read_text(encoding="utf-8").splitlines()
    return list(difflib.unified_diff(before, one.text.splitlines(), earlier[-1], period, lineterm="", n=0))


def declared_folder(job: Job) -> Path:
    """Where copies of specs are: beside the ledger, since a spec says where the table is and what nobody else needs."""
    return job.ledger.with_name(f"{job.ledger.name}.declared")


def _ask_ledger(job: Job, planned: Sequence[_Planned], log: Log) -> None:
    """Refuse a run whose debits do not all fit into what is left."""
    ledger = Ledger(job.ledger)
    state, paid = ledger.state(), _paid_names(job)
    due = [one for one in planned if one.name not in paid and not _is_stored(one.place)]
    for one in planned:
        stands = "there" if _is_stored(one.place) else "to be paid for" if one in due else "paid for before"
        log("info", "ledger", {"table": one.table.name, "release": one.name, "state": stands})
    _refuse_mismatch(job, due, state)
    cost = sum((event_price(one.plan.price, ledger.currency) for one in due), Fraction(0))
    delta = sum((event_delta(one.plan.price) for one in due), Fraction(0))
    if cost > state.remaining or delta > state.delta_remaining:
        raise BudgetExceeded(
            f"{job.ledger} cannot pay for {', '.join(one.name for one in due)} together: {remaining_text(state)}. "
            "Nothing was spent",
            requested=cost,
            remaining=state.remaining,
        )


def _refuse_mismatch(job: Job, due: Sequence[_Planned], state: State) -> None:
    """A ledger is of one unit and one table: what it would refuse of the last is refused before the first is paid."""
    units = {one.plan.unit for one in due} | ({state.unit} if state.unit is not None else set())
    tables = {name for name in (*(one.public for one in due), state.table) if name is not None}
    if due and len(units) > 1:
        told = "; ".join(sorted(unit.describe() for unit in units))
        raise LedgerMismatch(f"{job.ledger} is of one privacy unit, and the job has several: {told}. Nothing was spent")
    if due and len(tables) > 1:
        raise LedgerMismatch(
            f"{job.ledger} is of one table, and the job names several: {', '.join(sorted(tables))}. Give all specs one "
            "name as table under [data], where the same persons are in all. Nothing was spent"
        )


def _paid_names(job: Job) -> set[str]:
    return {entry.name for entry in spend_entries(Ledger(job.ledger).state())}


def _carry_out(job: Job, one: _Planned, result: JobResult, log: Log) -> None:
    """All of one table: its release, the projection, pages and files; what is there is left as it is."""
    there, paid_before = _is_stored(one.place), _paid_names(job)
    options: dict[str, Any] = {"table": one.public, "snapshot": one.name, "publication": one.told}

    def note(step: str) -> None:
        result.done.append(f"{one.table.name}: {step}")
        log("info", step, {"table": one.table.name, "release": one.name})

    if not there:
        with warnings.catch_warnings(record=True) as caught:
            # numerical warnings could depend on the data: only what is said about the page is passed on
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", PageWarning)
            try:
                release(one.plan, one.source, ledger=job.ledger, name=one.name, out=one.place, **options)  # type: ignore[call-overload]
            finally:
                if one.name not in paid_before and one.name in _paid_names(job):
                    result.spent.append(one.name)
        for warning in caught:
            log("warning", str(warning.message), {"table": one.table.name})
        note("released")
    _copy_declaration(job, one)
    found: Any = load_release(one.place)
    if one.table.project and not _is_stored(one.folder / "projected"):
        found.project().save(one.folder / "projected")
        if one.told is not None:
            write_publication(one.told, one.folder / "projected")
        note("projected")
    shown = one.folder / "projected" if one.table.project else one.place
    found = load_release(shown)
    told = one.told or folder_publication(one.place) or Publication()
    for language in one.table.languages or (told.language,):
        spoken = told.spoken(language)
        suffix = f"-{language}" if one.table.languages else ""
        page = one.folder / f"report{suffix}.html"
        if (one.table.languages or one.table.project) and not page.exists():
            write_report(found, page, publication=spoken)
            note(f"report{suffix}")
        site = one.folder / f"site{suffix}"
        if one.table.site and isinstance(found, Release) and not (site / "site.json").is_file():
            publish(found, site, publication=spoken)
            note(f"site{suffix}")
    files = one.folder / "files"
    if one.table.formats and not files.is_dir():
        write_formats(found, files, one.table.formats, publication=told, leave_out=one.table.leave_out)
        note("files")


def _copy_declaration(job: Job, one: _Planned) -> None:
    place = declared_folder(job) / f"{one.name}.toml"
    if not place.exists():
        place.parent.mkdir(exist_ok=True)
        write_text_atomically(place, one.text)


def _write_summary(job: Job, planned: Sequence[_Planned], result: JobResult) -> None:
    """job.json of the period's folder: what there is, for whoever picks it up. It is written where it is not there."""
    place = result.folder / SUMMARY
    if place.exists() and not result.done:
        return
    tables = [
        {
            "name": one.table.name,
            "release": one.name,
            "guarantee": str(one.plan.budget),
            "unit": one.plan.unit.describe(),
            "there": sorted(p.name for p in one.folder.iterdir() if not p.name.startswith(".")),
        }
        for one in planned
    ]
    facts = {"period": result.period, "tables": tables, "ledger": {"left": remaining_text(Ledger(job.ledger).state())}}
    write_text_atomically(place, json.dumps(facts, indent=2) + "\n")
