"""Workers that ask one stored histogram for keys and are killed in the middle: no key may ever be shown two counts.

Run as `python histogram_harness.py EXPERIMENT JSON`: a process of one thread, so that forking is safe. It prints the
figures of one experiment as JSON; the test judges them.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

# Run as a script, this folder is on the path.
from ledger_harness import child, statuses

from sfumato.curator.keys import KeyCounts, KeyCurator
from sfumato.privacy.accounting import PureEvent
from sfumato.privacy.budget import Budget
from sfumato.privacy.ledger import Ledger
from sfumato.privacy.noise import DiscreteLaplace
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.sketches import Keys

Figures = dict[str, Any]
UNIVERSE = [7 * 2**50 + i for i in range(4000)]
WIDE = DiscreteLaplace(10**6)  # two draws of one key hardly ever agree


def curator(folder: Path) -> KeyCurator:
    return KeyCurator(KeyCounts(UNIVERSE[::3]), Keys(), PrivacyUnit(Neighbours.ADD_REMOVE), Ledger(folder / "l.db"))


def start(folder: Path) -> None:
    folder.mkdir()
    Ledger.create(folder / "l.db", total=Budget.pure(1))
    curator(folder).histogram(WIDE, PureEvent(1), name="n", plan_hash="h", store=folder / "s.db")


def ask(folder: Path, rounds: int = 10**9, resumed: Callable[[], None] = lambda: None) -> None:
    """Ask for a few keys, publish what came (a line in the log), and again."""
    histogram = curator(folder).resume_histogram(folder / "s.db")
    resumed()
    published = os.open(folder / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for number in range(rounds):
        keys = random.sample(UNIVERSE, 5) if rounds > 1 else UNIVERSE[number : number + 5]
        values = histogram.counts(np.array(keys, dtype=np.uint64)).tolist()
        line = " ".join(f"{k}:{v}" for k, v in zip(keys, values, strict=True))
        os.write(published, f"{line}\n".encode())


def judge(folder: Path) -> Figures:
    """How many keys were shown, how many with more than one count, and how many with another than the file's."""
    shown: dict[int, set[int]] = defaultdict(set)
    log = folder / "log"
    for pair in log.read_text().split() if log.exists() else ():
        key, _, value = pair.partition(":")
        shown[int(key)].add(int(value))
    histogram = curator(folder).resume_histogram(folder / "s.db")
    keys = sorted(shown)
    stored = dict(zip(*(a.tolist() for a in histogram.shown), strict=True))
    again = histogram.counts(np.array(keys, dtype=np.uint64)).tolist()
    return {
        "shown": len(shown),
        "redrawn": sum(len(values) > 1 for values in shown.values()),
        "lost": sum(stored.get(key) not in values for key, values in shown.items()),
        "changed": sum(a not in shown[k] for k, a in zip(keys, again, strict=True)),
        "spent": str(Ledger(folder / "l.db").spent),
    }


def kills(folder: Path, kills: int, workers: int) -> Figures:
    """kill -9 at random moments, several workers at a time, on one file."""
    home = folder / "kills"
    start(home)
    WIDE.sample(1)  # its table is built before the forks
    for _ in range(-(-kills // workers)):
        pids = [child(lambda: ask(home)) for _ in range(workers)]
        time.sleep(random.uniform(0.02, 0.3))
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        statuses(pids)
    return judge(home) | {"kills": kills}


def race(folder: Path, workers: int, rounds: int) -> Figures:
    """Workers ask for the same few keys at once, undisturbed: all must be answered."""
    home = folder / "race"
    start(home)
    WIDE.sample(1)
    pids = [child(lambda: ask(home, rounds)) for _ in range(workers)]
    return {"failures": sum(status != 0 for status in statuses(pids))} | judge(home)


def boundaries(folder: Path) -> Figures:
    """kill -9 just before and just after every statement that reaches SQLite in one answer; then it is asked again."""
    totals: dict[str, int] = defaultdict(int)
    for target in range(1, 1000):
        for after in (False, True):
            home = folder / f"{target}{after}"
            start(home)

            def worker(home: Path = home, target: int = target, after: bool = after) -> None:
                genuine, counter = sqlite3.connect, iter(range(1, 10**6))

                def step(real: Callable[..., Any], *given: Any) -> Any:
                    now = next(counter) == target
                    if now and not after:
                        os.kill(os.getpid(), signal.SIGKILL)
                    found = real(*given)
                    if now:
                        os.kill(os.getpid(), signal.SIGKILL)
                    return found

                class Killing(sqlite3.Connection):
                    def execute(self, *given: Any) -> Any:
                        return step(super().execute, *given)

                    def executemany(self, *given: Any) -> Any:
                        return step(super().executemany, *given)

                def arm() -> None:
                    sqlite3.connect = lambda *a, **k: genuine(*a, **k, factory=Killing)  # type: ignore[assignment]

                ask(home, 1, arm)

            finished = statuses([child(worker)]) == [0]
            ask(home, rounds=1)
            found = judge(home)
            for name in ("redrawn", "lost", "changed"):
                totals[name] += found[name]
            totals["answered"] += found["shown"] == 5
            if finished:
                return dict(totals) | {"statements": target}
    raise AssertionError("an answer never ends")


def main() -> None:
    name, arguments = sys.argv[1], json.loads(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        figures = {"kills": kills, "race": race, "boundaries": boundaries}[name](Path(folder), **arguments)
        sys.stdout.write(json.dumps(figures))


if __name__ == "__main__":
    main()
