"""How far an engine is: jobs that are done, of how many. Both hang on what is asked, and on no row. And their end."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from threading import Timer

__all__ = ["Jobs", "end_what_comes", "heard", "told"]

Jobs = Callable[[str, int, int], None]
"""Called with what is done ("encoding" or "counting"), the jobs of it that are done, and how many there are."""

_hears: ContextVar[Jobs | None] = ContextVar("hears", default=None)


@contextmanager
def heard(jobs: Jobs | None) -> Generator[None]:
    """While it lasts, engines tell `jobs` how far they are."""
    before = _hears.set(jobs)
    try:
        yield
    finally:
        _hears.reset(before)


def told(what: str, done: int, of: int) -> None:
    """Tell whoever hears; what fails there must not fail what is paid for."""
    if jobs := _hears.get():
        with suppress(Exception):
            jobs(what, done, of)


def end_what_comes(end: Callable[[], object], times: int = 240) -> None:
    """End an engine's jobs, and go on ending them for a minute without being waited for.

    An engine begins what it was just asked to do though nobody waits for it any more.
    """
    with suppress(Exception):
        end()
    later = Timer(0.25, end_what_comes, (end, times - 1))
    later.daemon = True
    if times > 1:
        later.start()
