"""How far an engine is: jobs that are done, of how many. Both hang on what is asked, and on no row."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

__all__ = ["Jobs", "heard", "told"]

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
    jobs = _hears.get()
    if jobs is not None:
        with suppress(Exception):
            jobs(what, done, of)
