"""Streams that are killed in the middle, resumed, and appended to by several processes at once.

Run as `python stream_harness.py EXPERIMENT JSON`: a process of one thread, so that forking is safe. It prints the
figures of one experiment as JSON; the tests judge them. The state of a stream holds no noise, so at its end it must be,
to the last bit, that of a stream that was never killed; two draws for one period agree with probability below 2^-100.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import sys
from fractions import Fraction
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

# Run as a script, this folder is on the path, and the one above is not.
sys.path.append(str(Path(__file__).parents[1]))

from conversation_harness import add, struck
from ledger_harness import child, statuses

import sfumato as sf
from sfumato.curator import Curator
from sfumato.curator.streams import PublicStream, open_public_stream, resume_stream
from sfumato.curator.streams import state as states
from sfumato.curator.streams.measuring import filter_period
from sfumato.operators import Family, Residual
from sfumato.privacy import files
from sfumato.privacy.accounting import GaussianEvent
from sfumato.privacy.noise import RoundedGaussian
from sfumato.privacy.stream_price import IntegerFilter, Published, StreamTerms
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from support.boundaries import At, counted, killed
from support.experiments import carry_out
from support.patching import put

Figures = dict[str, Any]
PERIODS = 8
SHORT = 3  # periods of a stream that is killed at every statement of its first two
DOMAIN = sf.Domain(
    {
        "a": sf.Categories(["0", "1"], outside="drop", missing="drop"),
        "b": sf.Categories(["0", "1", "2"], outside="drop", missing="drop"),
    }
)
RESIDUALS = (Residual(2), Residual(3))
TABLES = np.random.default_rng(1).integers(0, 50, size=(PERIODS, 2, 3))
ALONE, PERSON = PrivacyUnit(Neighbours.ADD_REMOVE), PrivacyUnit(Neighbours.ADD_REMOVE, "id")
PRICE = GaussianEvent(Fraction(1))
HASH = "0" * 64
# of streams that see to it that nobody is in more than three periods, each two after the one before
TIMES, APART, NAMES = 3, 2, 20
ROOM = 50
GOING = np.random.default_rng(2).random((PERIODS, NAMES)) < 0.7
CELLS = np.random.default_rng(3).integers(0, 6, size=(PERIODS, NAMES))


def of_people(folder: Path) -> bool:
    """Whether the stream of a folder is of records of people: these lie there."""
    return (folder / "p0.csv").exists()


def source(folder: Path, t: int) -> Any:
    """The table of a period."""
    return str(folder / f"p{t}.csv") if of_people(folder) else sf.Histogram(TABLES[t])


def admitted() -> tuple[np.ndarray, np.ndarray]:
    """What is counted of people, and of each in how many periods, and the last; in Python."""
    tables, known = np.zeros((PERIODS, 2, 3), dtype=np.int64), np.zeros((NAMES, 2), dtype=np.int64)
    for t, i in zip(*np.nonzero(GOING), strict=True):
        times, last = known[i]
        if not times or (times < TIMES and last + APART <= t):
            known[i] = times + 1, t
            tables[t].reshape(-1)[CELLS[t, i]] += 1
    return tables, known[known[:, 0] > 0]


def terms(periods: int = PERIODS, *, people: bool = False) -> StreamTerms:
    used = IntegerFilter([[3000, 13], [2500, 16]], 10, [periods], [2000], [2**30], [[2**27, 2**24]])
    sets = ([[]], [[0], [1]], [[0, 1]])
    families = tuple(
        Family(
            ("a", "b"), (Residual(2), Residual(3)), np.array(s, dtype=np.int32).reshape(len(s), -1), [2**k] * len(s)
        ).lowered()
        for k, s in enumerate(sets)
    )
    times = (TIMES, APART) if people else (1, 1)
    return StreamTerms(used, families, 3, RoundedGaussian(Fraction(2**40)), *times, 1000, enforced=people)


def curator(folder: Path) -> Curator:
    return Curator(None, DOMAIN, PERSON if of_people(folder) else ALONE, sf.Ledger(folder / "l.db"))


def opened(folder: Path, periods: int = PERIODS, *, people: bool = False) -> None:
    """A ledger and a stream in a new folder, with its tables where they are of people."""
    folder.mkdir()
    for t in range(PERIODS if people else 0):
        rows = [f"name {i},{CELLS[t, i] // 3},{CELLS[t, i] % 3}\n" for i in np.flatnonzero(GOING[t])]
        (folder / f"p{t}.csv").write_text("id,a,b\n" + "".join(rows))
    sf.Ledger.create(folder / "l.db", total=sf.gdp(10))
    given = terms(periods, people=people)
    open_public_stream(curator(folder), given, PRICE, name="s", plan_hash=HASH, store=folder / "s.db", people=ROOM)


def warm_up(folder: Path) -> None:
    """One period of another stream: the table of its noise is then built, and children that are forked have it."""
    opened(folder / "warm")
    go_on(resume_stream(curator(folder / "warm"), folder / "warm" / "s.db"), folder / "warm", 1)


@cache
def reference(periods: int, *, people: bool) -> np.ndarray:
    """The state after so many periods, from the tables alone."""
    all_ = (admitted()[0] if people else TABLES)[:periods]
    found = terms(periods)
    tables = (all_.sum(axis=(1, 2))[:, None], all_.sum(axis=2), all_.sum(axis=1), all_.reshape(periods, -1))
    multiples = (1, 2, 2, 4)
    parts = []
    for table, multiple in zip(tables, multiples, strict=True):
        high, low = (np.zeros((2, table.shape[1]), dtype=np.int64) for _ in range(2))
        for t in range(periods):
            factors = np.repeat(found.filter.coefficients(t, [multiple], 3), table.shape[1], axis=1)
            decays = [(int(e), int(g)) for e, g in found.filter.decays]
            filter_period(high, low, table[t], factors, decays, found.filter.row(t), found.filter.shift)
        parts.append(np.stack([high, low]))
    return np.concatenate(parts, axis=2)


def text(period: Published) -> str:
    return f"{period.label} {hashlib.sha256(np.concatenate(period.values).tobytes()).hexdigest()}\n"


def go_on(appended: PublicStream, place: Path, most: int = PERIODS, beat: int | None = None) -> None:
    """Append, tell the world, and again, until the last period; each is a beat. What was published is asked again."""
    told = os.open(place / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    before = appended.published
    for period in before[-1:]:
        os.write(told, text(appended.append("gone", period.label)).encode())
    for t in range(len(before), min(len(before) + most, appended.terms.filter.periods)):
        os.write(told, text(appended.append(source(place, t), f"p{t}")).encode())
        if beat is not None:
            os.write(beat, b"1")


def judge(folder: Path) -> Figures:
    """What a store shows against what was told: all of them are to be 0 but `periods`."""
    kept_stream = resume_stream(curator(folder), folder / "s.db")
    kept, ledger = [text(p) for p in kept_stream.published], sf.Ledger(folder / "l.db")
    log = folder / "log"
    told = set(log.read_text().splitlines(keepends=True) if log.exists() else [])
    private = ("s.db", "s.db.even", "s.db.odd")
    return {
        "periods": len(kept),
        "told_twice": len(told) - len({line.split()[0] for line in told}),
        "told_not_kept": len(told - set(kept)),
        "out_of_order": int([line.split()[0] for line in kept] != [f"p{t}" for t in range(len(kept))]),
        "debits": len(ledger.entries()) - 1,
        "readable": sum((folder / n).exists() and bool((folder / n).stat().st_mode & 0o077) for n in private),
        "other_state": int(len(kept) == kept_stream.terms.filter.periods and not _as_it_should_be(folder, kept_stream)),
    }


def _as_it_should_be(folder: Path, found: PublicStream) -> bool:
    """Whether the state is that of a stream that was never killed; digests of people are of a key of its own."""
    name = "s.db.odd" if len(found.published) % 2 else "s.db.even"
    people = of_people(folder)
    known = admitted()[1] if people else np.zeros((0, 2), dtype=np.int64)
    wanted = reference(len(found.published), people=people)
    state = np.fromfile(folder / name, dtype="<i8")
    sums, stored = state[: wanted.size].reshape(wanted.shape), state[wanted.size :].reshape(-1, 4)
    stored = stored[stored[:, 2] > 0]  # the others take up room
    who = stored[:, 2:] & (2**32 - 1)  # above stands when somebody was left out for the first time
    return bool((sums == wanted).all()) and sorted(who.tolist()) == sorted(known.tolist())


def kills(folder: Path, kills: int, *, people: bool = False) -> Figures:
    """kill -9 of a child that resumes and goes on, at a random moment after none, one or two periods in turn."""
    figures: Figures = {"kills": 0, "streams": 0, "unfinished": 0}
    warm_up(folder)
    while figures["kills"] < kills:
        place, done, found = folder / str(figures["streams"]), False, Figures()
        opened(place, people=people)
        while not done:

            def worker(beat: int, place: Path = place) -> None:
                appended = resume_stream(curator(place), place / "s.db")
                os.write(beat, b"1")
                go_on(appended, place, beat=beat)

            done = struck(worker, 1 + figures["kills"] % 3 if figures["kills"] < kills else None)
            figures["kills"] += not done
            found = judge(place)
            add(figures, {k: v for k, v in found.items() if k != "periods"})
        add(figures, {"streams": 1, "unfinished": int(found["periods"] != PERIODS)})
    return figures


def boundaries(folder: Path, opening: bool, lossy: str = "") -> Figures:
    """kill -9 before and after every statement that reaches SQLite or the files of state, in an opening or two periods,
    wherever the files have changed since.

    `lossy` names the control: "commit", a transaction that is undone in place of committed; "state", one that is
    committed before its state is written.
    """
    figures: Figures = {"kills": 0, "unpaid": 0, "usable": 0}
    warm_up(folder)
    if opening:
        (folder / "before").mkdir()
        sf.Ledger.create(folder / "before" / "l.db", total=sf.gdp(10))
    else:
        opened(folder / "before", SHORT)

    def act(place: Path, at: At) -> None:
        made = curator(place)
        if opening:
            _watch(at)
            open_public_stream(made, terms(), PRICE, name="s", plan_hash=HASH, store=place / "s.db")
        elif lossy:  # the control has nothing to show before it appends
            appended = resume_stream(made, place / "s.db")
            _watch(at, lossy)
            go_on(appended, place, 2)
        else:
            _watch(at)
            go_on(resume_stream(made, place / "s.db"), place, 2)

    for place, moments in killed(folder, child, act, figures):
        if opening and moments:
            add(figures, {k: moments * v for k, v in _left(place).items()})
        if not opening:
            try:
                go_on(resume_stream(curator(place), place / "s.db"), place)
                found = judge(place)
                add(figures, found | {"unfinished": int(found["periods"] != SHORT)})
            except sf.errors.LedgerError:
                add(figures, {"stuck": 1})
        if lossy and (figures.get("told_not_kept") or figures.get("stuck") or figures["other_state"]):
            break
    return figures


def _watch(at: At, lossy: str = "") -> None:
    """Have this process come past a moment before each statement and after it."""

    class Watched(sqlite3.Connection):
        def execute(self, *args: Any) -> sqlite3.Cursor:
            swap = lossy == "commit" and args[0] == "COMMIT"
            return counted(at, super().execute, *(("ROLLBACK",) if swap else args))

    class Counting:
        """The module `os`, counted where it changes files."""

        def __getattr__(self, name: str) -> Any:
            found = getattr(os, name)
            return partial(counted, at, found) if name in ("open", "fsync", "fchmod") else found

    files.sqlite3.connect = partial(sqlite3.connect, factory=Watched)
    put(states, "os", Counting())
    if lossy == "state":
        put(states.FileStates, "write", lambda self, _, state: self._digest(state))


def _left(place: Path) -> Figures:
    """What an opening that was killed has left: unpaid, or paid and usable; the same call goes on, and pays once."""
    spent = len(sf.Ledger(place / "l.db").entries())
    try:
        usable = resume_stream(curator(place), place / "s.db").published == ()
    except sf.errors.LedgerError:
        usable = False
    opened_again = (
        open_public_stream(curator(place), terms(), PRICE, name="s", plan_hash=HASH, store=place / "s.db")[0].published
        == ()
    )
    paid = len(sf.Ledger(place / "l.db").entries())
    wrong = int(paid != 1 or not opened_again or usable != bool(spent))
    return {"usable" if spent else "unpaid": 1, "wrong": wrong}


def race(folder: Path, processes: int) -> Figures:
    """Processes append the same periods at once; each is drawn by one of them."""
    place = folder / "race"
    warm_up(folder)
    opened(place)

    def worker() -> None:
        appended = resume_stream(curator(place), place / "s.db")
        told = os.open(place / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        for t in range(PERIODS):
            os.write(told, text(appended.append(sf.Histogram(TABLES[t]), f"p{t}")).encode())

    pids = [child(worker) for _ in range(processes)]
    failures = sum(status != 0 for status in statuses(pids))
    told = (place / "log").read_text().splitlines()
    return {**judge(place), "failures": failures, "told": len(told)}


EXPERIMENTS = {experiment.__name__: experiment for experiment in (kills, boundaries, race)}


if __name__ == "__main__":
    carry_out(EXPERIMENTS)
