"""kill -9 before and after every operation of a process, wherever its files have changed since the moment before.

Between two moments at which all files are the same, to the byte, a kill leaves the same; one of them is killed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

__all__ = ["At", "counted", "killed"]

At = Callable[[], object]
"""What a process that is watched calls at each moment: before an operation, and after it."""


def counted(at: At, call: Callable[..., Any], *args: Any, **more: Any) -> Any:
    """An operation, between two moments."""
    at()
    found = call(*args, **more)
    at()
    return found


def _kills_at(moment: int) -> At:
    """Have the process killed at the moment of this number, from 0 on."""
    coming = iter(range(10**6))
    return lambda: next(coming) == moment and os.kill(os.getpid(), signal.SIGKILL)


def killed(
    folder: Path, start: Callable[[Callable[[], None]], int], act: Callable[[Path, At], None], figures: dict[str, Any]
) -> Iterator[tuple[Path, int]]:
    """What an act in a copy of the folder "before" leaves, and at how many moments a kill leaves that: killed at every
    change; at last, at no moment, not killed.

    Counted are moments, kills, and whether the act failed by itself. `start` gives the process of a fork.
    """
    watched = shutil.copytree(folder / "before", folder / "watched")
    seen = list(_changes(watched, start, partial(act, watched), figures))
    for (moment, names), (until, _) in zip(seen, [*seen[1:], (figures["moments"], None)], strict=True):
        place = shutil.copytree(folder / "before", folder / str(moment))
        assert _status(start(partial(act, place, _kills_at(moment)))) == -signal.SIGKILL
        assert _names(place) == names  # it has come as far as the one that was watched
        figures["kills"] += 1
        yield place, until - moment
    place = shutil.copytree(folder / "before", folder / "ended")
    assert (_status(start(partial(act, place, bool))) != 0) == figures["failed"]
    yield place, 0


def _changes(
    place: Path, start: Callable[[Callable[[], None]], int], act: Callable[[At], None], figures: dict[str, Any]
) -> Iterator[tuple[int, frozenset[str]]]:
    """Moments at which the files are not those of the moment before, with their names and modes.

    This process looks while the other waits: whoever closes a file of SQLite gives up all locks on it.
    """
    (heard, told), (asked, answered) = os.pipe(), os.pipe()

    def at() -> None:
        os.write(told, b"?")
        os.read(asked, 1)

    pid = start(partial(act, at))
    os.close(told)
    last, figures["moments"] = "", 0
    while os.read(heard, 1):
        now = _digest(place)
        if now != last:
            yield figures["moments"], _names(place)
        last = now
        figures["moments"] += 1
        os.write(answered, b"!")
    for end in (heard, asked, answered):
        os.close(end)
    figures["failed"] = _status(pid) != 0


def _status(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _names(place: Path) -> frozenset[str]:
    return frozenset(f"{p.relative_to(place)} {p.stat().st_mode:o}" for p in place.rglob("*"))


def _digest(place: Path) -> str:
    seen = hashlib.sha256()
    for p in sorted(p for p in place.rglob("*") if p.is_file()):
        content = p.read_bytes()
        seen.update(f"{p.relative_to(place)} {p.stat().st_mode:o} {len(content)} ".encode())
        seen.update(content)
    return seen.hexdigest()
