"""A job that comes again: one file says what is published each period, one command does it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from sfumato.cli.options import Json
from sfumato.terminal import show_result

commands = typer.Typer()


@commands.command()
def run(
    job: Annotated[Path, typer.Argument(metavar="JOB", help="A job file, such as office.toml.")],
    period: Annotated[
        str | None, typer.Option(metavar="NAME", help="Such as 2026-11; default: that of today, as the job has it.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Plan, compare with last time, ask the ledger: read and spend nothing.")
    ] = False,
    log_json: Annotated[bool, typer.Option("--log-json", help="Log lines as JSON objects.")] = False,
    as_json: Json = False,
) -> None:
    """Publish what is due: release, project, site and files of several tables, paid by one ledger. Run it twice, or
    again after it was ended: what is there stays, and what was paid for is free.

    It is refused before the first payment where one of its tables cannot be paid for. Ends with 0 where all is there,
    2 where it was refused and nothing was spent, 3 where something was spent and the job is not complete. The log, on
    stderr, says nothing of what is in the tables.

    \b
    Example:
      sfumato run office.toml --dry-run
      sfumato run office.toml --period 2026-11 --log-json
    """
    from sfumato.jobs import read_job, run_job

    def log(level: str, event: str, facts: dict[str, Any]) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        if log_json:
            line = json.dumps({"time": now, "level": level, "event": event, **facts}, ensure_ascii=True)
        else:
            told = " ".join(f"{key}={_log_value(value)}" for key, value in facts.items())
            line = f"{now} {level} {event}{' ' * bool(told)}{told}"
        typer.echo(line, err=True)

    done = run_job(read_job(job), period, dry_run=dry_run, log=log)
    facts = {"period": done.period, "folder": str(done.folder), "done": done.done, "paid": done.spent}
    facts |= {"changed": done.changed, "dry_run": dry_run}
    steps = "nothing was to do" if not done.done else f"{len(done.done)} steps done, {len(done.spent)} tables paid for"
    if dry_run:
        steps = "a dry run: nothing was read, spent or written"
    changes = "".join(
        f"\n{name} is declared otherwise than before:\n" + "\n".join(lines) for name, lines in done.changed.items()
    )
    show_result(facts, f"{done.period}: {steps}. {done.folder}{changes}", as_json=as_json)


def _log_value(value: object) -> str:
    """A value on one line; with blanks in it, in quotes."""
    text = str(value) if isinstance(value, (str, int)) else json.dumps(value)
    return json.dumps(text) if " " in text or "\n" in text else text
