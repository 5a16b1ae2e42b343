"""Signals that end a process, held back while what was paid for is written down."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

__all__ = ["ENDINGS", "held"]

ENDINGS = (KeyboardInterrupt, SystemExit)
"""What a signal that ends a process is raised as: Ctrl-C by Python itself, others by whoever handles them so."""


@contextmanager
def held() -> Generator[None]:
    """Have SIGINT and SIGTERM, in the main thread, act at the end of the block in place of within it."""
    noted, before = list[int](), dict[int, object]()

    def note(number: int, frame: FrameType | None) -> None:
        del frame
        noted.append(number)

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            handler = signal.getsignal(number)
            # one that is ignored stays so, and of one that Python did not set (None) nothing could be put back
            if handler not in (signal.SIG_IGN, None):
                before[number] = signal.signal(number, note)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)  # type: ignore[reportArgumentType]  (it is what `signal` returned)
        for number in noted[:1]:
            signal.raise_signal(number)
