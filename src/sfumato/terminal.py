"""What the command line prints, writes and shows while it works."""

from __future__ import annotations

import csv
import io
import json
import math
import shlex
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from sfumato._util.frames import Frame, safe_text
from sfumato.errors import InvalidInput


def use_utf8_output() -> None:
    """Print UTF-8 with plain line ends whatever the locale says."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", newline="\n")


def shell_word(word: object) -> str:
    """A word as one types it in a shell: in quotes where it has blanks or marks."""
    return shlex.quote(str(word))


def print_json(value: Any) -> None:
    """One JSON value on stdout, in ASCII."""
    typer.echo(json.dumps(replace_nonfinite(value), indent=2, ensure_ascii=True, allow_nan=False))


def show_result(facts: Any, text: object, *, as_json: bool) -> None:
    """What a command found: JSON values for a program, else text for people, which may be what describes itself."""
    if as_json:
        print_json(facts)
    else:
        typer.echo(str(text))


def show_answer(question: object, numbers: dict[str, Any], *, as_json: bool, **more: Any) -> None:
    """An answer with its numbers; what is `more` is for programs alone."""
    asked = ", ".join(map(str, question)) if isinstance(question, list) else question
    row = Frame({"question": [asked], **{name: [value] for name, value in numbers.items()}})
    show_result({"question": question, **numbers, **more}, row, as_json=as_json)


def show_rows(
    frame: Frame, facts: dict[str, Any], after: str, *, as_csv: bool, as_json: bool, before: str = ""
) -> None:
    """Rows with what is said around them: as CSV the rows alone, as JSON the facts and the rows."""
    more = " (--csv prints all)" if str(frame).endswith("more rows") else ""
    if as_csv:
        print_csv(frame)
    else:
        show_result({**facts, "rows": frame.rows()}, f"{before}{frame}{more}\n\n{after}", as_json=as_json)


def print_csv(frame: Frame) -> None:
    """Every row as CSV."""
    typer.echo(csv_text(frame), nl=False)


def csv_text(frame: Frame, delimiter: str = ",") -> str:
    """RFC 4180 with plain line ends; what is not known is empty, and texts cannot act as formulas."""
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    writer.writerow(map(safe_text, frame.columns))
    for row in zip(*frame.columns.values(), strict=True):
        writer.writerow([safe_text(v) if isinstance(v, str) else v for v in map(replace_nonfinite, row)])
    return text.getvalue()


def replace_nonfinite(value: Any) -> Any:
    """JSON has no infinity: what is not finite becomes null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(k): replace_nonfinite(v) for k, v in value.items()}
    return [replace_nonfinite(v) for v in value] if isinstance(value, (list, tuple)) else value


def write_new(path: Path, text: str, encoding: str = "utf-8") -> None:
    """Write a file that must not exist."""
    with refuse_write_errors(path):
        try:
            with path.open("xb") as handle:
                handle.write(text.encode(encoding, "replace"))
        except FileExistsError:
            raise InvalidInput(f"{path} exists; choose another name with -o, or remove it") from None


@contextmanager
def refuse_write_errors(path: Path) -> Generator[None]:
    """A file that cannot be written is a refusal: nothing was spent on it."""
    try:
        yield
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error.strerror or error}") from error


@contextmanager
def show_activity(text: str) -> Generator[Callable[[int, float], None] | None]:
    """A moving line on a terminal; what it shows depends on the plan alone, never on data."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console  # noqa: PLC0415  (only on a terminal)
    from rich.progress import Progress, SpinnerColumn, TextColumn  # noqa: PLC0415

    columns = SpinnerColumn(), TextColumn("{task.description}")
    console = Console(stderr=True)
    # rich would otherwise send stdout to its own console, out of the file it is meant for
    with Progress(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False) as bar:
        task = bar.add_task(text, total=None)

        yield TerminalLine(text, lambda said: bar.update(task, description=said))


@dataclass(frozen=True, slots=True)
class TerminalLine:
    """What moves on a terminal: steps of a computation, or jobs of an engine."""

    text: str
    show: Callable[[str], None]

    def __call__(self, steps: int, gap: float) -> None:
        how = "" if math.isnan(gap) else f", within {gap:.1%} of the proved bound"
        self.show(f"{self.text}: step {steps}{how}")

    def jobs(self, what: str, done: int, of: int) -> None:
        """Jobs done, of how many."""
        self.show(f"{self.text}: {what}, {done} of {of} jobs done")
