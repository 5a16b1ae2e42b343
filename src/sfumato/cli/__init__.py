"""The command line: parse, call, print. Heavy modules are imported by the command that needs them."""

from __future__ import annotations

import re
import signal
import sys
from contextlib import suppress
from functools import cache
from typing import Annotated, Any, NoReturn

import typer
import typer.core
import typer.main

from sfumato.cli import (
    jobs,
    keys,
    ledgers,
    measures,
    office,
    pages,
    planning,
    profiles,
    releases,
    sessions,
    sql,
    streams,
)
from sfumato.cli.options import message_for_command, typed_command
from sfumato.errors import NotWritten, SfumatoError
from sfumato.terminal import use_utf8_output

__all__ = ["app", "command", "main"]

DONE, BUG, REFUSED, NOT_WRITTEN = 0, 1, 2, 3  # 1 is what Python ends with by itself

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, context_settings={"max_content_width": 100})


@cache
def command() -> typer.core.TyperGroup:
    """All commands as they are run: reading the signatures of so many takes longer than most of them do.

    Returns:
        the group `sfumato`, built once.
    """
    built = typer.main.get_command(app)
    assert isinstance(built, typer.core.TyperGroup)
    _keep_brackets(built)
    return built


def _keep_brackets(command: Any) -> None:
    """Keep the names of a spec's tables in help texts, such as [plan], which would be taken for marks of a style."""
    for told in (command, *command.params):
        if text := getattr(told, "help", None):
            told.help = _BRACKET.sub(r"\\[", text)
    for inner in getattr(command, "commands", {}).values():
        _keep_brackets(inner)


_BRACKET = re.compile(r"\[(?=[a-z#/@])")


def main() -> None:
    """Run the command line. Exit codes: 0 done, 2 refused and nothing spent, 3 spent but not written, 1 a bug.

    130 is Ctrl-C, 143 an end by SIGTERM: nothing was spent, or it says what was.
    """
    use_utf8_output()
    with suppress(ValueError):  # of a program that runs it in another thread
        signal.signal(signal.SIGTERM, _terminated)
    try:
        command()(prog_name="sfumato")
    except SystemExit as ended:
        # typer ends by itself after Ctrl-C, whatever was said
        cause = getattr(ended.__context__, "__cause__", None)
        if isinstance(cause, KeyboardInterrupt) and str(cause):
            typer.echo(f"sfumato: {cause}", err=True)
        raise
    except NotWritten as error:
        _exit_with_error(error, NOT_WRITTEN)
    except SfumatoError as error:
        _exit_with_error(error, REFUSED)
    except (MemoryError, ImportError) as error:
        # what fails after a debit is NotWritten; of a library, the system says so in words of its own
        if isinstance(error, ImportError) and not any(word in str(error) for word in ("map segment", "allocate")):
            raise
        _exit_with_error(
            MemoryError("memory is exhausted, before anything was spent; free some or raise the limit (ulimit -v)"),
            REFUSED,
        )


def _terminated(number: int, _: object) -> NoReturn:
    raise SystemExit(128 + number)


def _exit_with_error(error: Exception, code: int) -> None:
    typer.echo(f"sfumato: {message_for_command(str(error), typed_command(command(), sys.argv[1:]))}", err=True)
    raise SystemExit(code)


def _print_version(wanted: bool) -> None:
    if wanted:
        from sfumato import __version__

        typer.echo(f"sfumato {__version__}")
        raise typer.Exit


@app.callback()
def _about(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Answers to large sets of linear queries about a sensitive table, under differential privacy.

    Errors are known before any budget is spent. Start with: sfumato demo
    """


app.add_typer(planning.commands)
app.add_typer(profiles.commands)
app.add_typer(releases.commands)
app.add_typer(measures.commands)
app.add_typer(office.commands)
app.add_typer(jobs.commands)
app.add_typer(pages.commands)
app.add_typer(sql.commands)
app.add_typer(planning.schema, name="schema")
app.add_typer(ledgers.commands, name="ledger")
app.add_typer(sessions.commands, name="session")
app.add_typer(streams.commands, name="stream")
app.add_typer(keys.commands, name="keys")
