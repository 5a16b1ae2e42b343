"""How far a computation is: what is called as it goes on, and the line that a notebook shows meanwhile."""

from __future__ import annotations

import html
import importlib
import math
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any

Progress = Callable[[int, float], None]
"""Called with the number of steps so far and the proved relative distance from the optimum, nan if none is proved.

Where an engine counts a table (docs/spark.md), its method `jobs(what, done, of)` is called, if it has one.
"""


EMPTY = ""
"""What is left of the line in the end."""
_AFTER = 1.0  # second: what is done by then needs no line
_EVERY = 0.2  # seconds between two states of it: the eye wants no more, and each is a message to the browser


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook. Imports nothing."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


@contextmanager
def show_progress(text: str, progress: Progress | None) -> Generator[Progress | None]:
    """The progress that was given; in a notebook, where none was, one that draws a line and takes it away again."""
    if progress is not None or not in_notebook():
        yield progress
        return
    line = _NotebookLine(text)
    try:
        yield line
    finally:
        line.end()


class _NotebookLine:
    """Steps of a computation, or jobs of an engine, below the cell."""

    __slots__ = ("_handle", "_next", "_text")

    def __init__(self, text: str) -> None:
        self._text, self._handle = text, None
        self._next = time.monotonic() + _AFTER

    def __call__(self, steps: int, gap: float) -> None:
        how = "" if math.isnan(gap) else f", within {gap:.1%} of the proved bound"
        self._show("", f"step {steps:,}{how}")

    def jobs(self, what: str, done: int, of: int) -> None:
        """Jobs done, of how many."""
        self._show(f' value="{done}" max="{max(of, 1)}"', f"{what}, {done} of {of} jobs done")

    def end(self) -> None:
        """Take the line away."""
        if self._handle is not None:
            self._draw(EMPTY)

    def _show(self, bar: str, said: str) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _EVERY
            text = html.escape(f"{self._text}: {said}")
            self._draw(f'<div><progress{bar} aria-label="{html.escape(self._text)}"></progress> {text}</div>')

    def _draw(self, text: str) -> None:
        with suppress(Exception):  # nothing that is computed, or paid for, may fail for its picture
            shown: Any = importlib.import_module("IPython.display")
            if self._handle is None:
                self._handle = shown.display(shown.HTML(text), display_id=True)
            else:
                self._handle.update(shown.HTML(text))
