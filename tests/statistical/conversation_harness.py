"""Conversations that are killed in the middle, resumed, and asked by several processes at once.

Run as `python conversation_harness.py EXPERIMENT JSON`: a process of one thread, so that forking is safe. It prints the
figures of one experiment as JSON; the tests judge them. Half of the questions are positive and half are not, but for
an accident of probability below e^-400 each.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

# Run as a script, this folder is on the path, and the one above is not.
sys.path.append(str(Path(__file__).parents[1]))

from ledger_harness import child, statuses

import sfumato as sf
from sfumato.curator import Curator
from sfumato.curator.conversations import Conversation, open_conversation, resume_conversation
from sfumato.curator.conversations.stored import read_transcript
from sfumato.operators import Block, Dense
from sfumato.privacy import files
from sfumato.privacy.accounting import ZcdpEvent
from sfumato.privacy.conversation_price import Step, Terms
from sfumato.privacy.noise import RoundedGaussian
from sfumato.privacy.selection import Candidates, Epochs
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from support.boundaries import At, counted, killed
from support.experiments import carry_out

Figures = dict[str, Any]
CELLS = 16
DOMAIN = sf.Domain({"a": sf.Integers(0, CELLS - 1)})
TABLE = sf.Histogram(np.arange(CELLS) * 1000)
UNIT = PrivacyUnit(Neighbours.ADD_REMOVE)
HASH = "0" * 64
FAR = 10**7


def terms(count: int) -> Terms:
    return Terms(Epochs(count, Fraction(1)), RoundedGaussian(Fraction(1)))


def curator(folder: Path) -> Curator:
    return Curator(TABLE, DOMAIN, UNIT, sf.Ledger(folder / "l.db"))


def question(number: int) -> Candidates:
    """The cells from `number` on, of those there are; odd numbers are positive, and each is told by its estimate."""
    row = np.zeros((1, CELLS), dtype=np.int64)
    row[0, number % CELLS :] = 1
    public = (np.array([v], dtype=np.int64) for v in (number, 1, -FAR if number % 2 else FAR))
    return Candidates((Block((("a",),), (Dense(row),)),), *public)


def forming(steps: Sequence[Step]) -> Candidates:
    return question(len(steps))


def opened(folder: Path, count: int) -> None:
    """A ledger and a conversation in a new folder."""
    folder.mkdir()
    sf.Ledger.create(folder / "l.db", total=sf.zcdp(10**9))
    cost = terms(count).cost(ZcdpEvent)
    open_conversation(curator(folder), terms(count), cost, name="c", plan_hash=HASH, store=folder / "c.db", about=count)


def warm_up(folder: Path) -> None:
    """Two steps of another conversation: tables of noise are then built, and children that are forked have them."""
    opened(folder / "warm", 2)
    go_on(resume_conversation(curator(folder / "warm"), folder / "warm" / "c.db"), folder / "warm" / "log", 2)


def text(number: int, step: Step) -> str:
    return f"{number} {step.above} {step.answer}\n"


def go_on(asked: Conversation, log: Path, most: int = 10**9, beat: int | None = None) -> None:
    """Ask, tell the world, and again, until the last positive; each step is a beat."""
    told = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    with suppress(sf.BudgetExceeded):
        for _ in range(most):
            step = asked.ask(forming)
            os.write(told, text(int(step.question.estimates[0]), step).encode())
            if beat is not None:
                os.write(beat, b"1")


def judge(folder: Path, count: int) -> Figures:
    """What a conversation's file shows against what was told: all of them are to be 0 but `steps` and `told`."""
    found, ledger = read_transcript(folder / "c.db"), sf.Ledger(folder / "l.db")
    log = folder / "log"
    told = log.read_text().splitlines(keepends=True) if log.exists() else []
    kept = [text(i, s) for i, s in enumerate(found.steps)]
    order = [int(s.question.estimates[0]) for s in found.steps]
    positives = sum(s.above for s in found.steps)
    return {
        "steps": len(kept),
        "told": len(told),
        "told_twice": len(told) - len(set(told)),
        "told_not_kept": len(set(told) - set(kept)),
        "out_of_order": int(order != list(range(len(order)))),
        "wrong": sum(s.above != bool(i % 2) for i, s in enumerate(found.steps)),
        "too_many": max(0, positives - count),
        "miscounted": int(found.remaining != count - positives),
        "debits": len(ledger.entries()) - 1,
        "readable": int((folder / "c.db").stat().st_mode & 0o077 != 0),
    }


def add(figures: Figures, more: Figures) -> None:
    for name, value in more.items():
        figures[name] = figures.get(name, 0) + value


def struck(worker: Callable[[int], None], beats: int | None) -> bool:
    """Whether a child comes to its end that is killed a random moment after some beats, or, with None, is not."""
    heard, told = os.pipe()
    pid = child(partial(worker, told))
    os.close(told)
    if beats is not None:
        for _ in range(beats):
            os.read(heard, 1)
        time.sleep(random.uniform(0, 0.02))
        os.kill(pid, signal.SIGKILL)
    done = statuses([pid]) == [0]
    os.close(heard)
    return done


def kills(folder: Path, kills: int) -> Figures:
    """kill -9 of a child that resumes and goes on, at a random moment after none, one or two steps in turn.

    When nothing is left to ask, a new conversation is opened.
    """
    figures: Figures = {"kills": 0, "conversations": 0, "worst_untold": 0}
    count, found = 40, Figures()
    warm_up(folder)
    while figures["kills"] < kills:
        place, done, untold = folder / str(figures["conversations"]), False, 0
        opened(place, count)
        while not done:

            def worker(beat: int, place: Path = place) -> None:
                asked = resume_conversation(curator(place), place / "c.db")
                os.write(beat, b"1")
                go_on(asked, place / "log", beat=beat)

            done = struck(worker, 1 + figures["kills"] % 3 if figures["kills"] < kills else None)
            figures["kills"] += not done
            found = judge(place, count)
            figures["worst_untold"] = max(figures["worst_untold"], found["steps"] - found["told"] - untold)
            untold = found["steps"] - found["told"]
            add(figures, {k: v for k, v in found.items() if k not in ("steps", "told")})
        add(figures, {"conversations": 1, "steps": found["steps"], "unfinished": int(found["steps"] != 2 * count)})
    return figures


def boundaries(folder: Path, opening: bool, lossy: bool = False) -> Figures:
    """kill -9 before and after every statement that reaches SQLite, in an opening or in two questions and answers,
    wherever the files have changed since.

    `lossy` is the control: a transaction that is undone where it should be committed.
    """
    figures: Figures = {"kills": 0, "unpaid": 0, "usable": 0}
    warm_up(folder)
    if opening:
        (folder / "before").mkdir()
        sf.Ledger.create(folder / "before" / "l.db", total=sf.zcdp(10**9))
    else:
        opened(folder / "before", 2)

    def act(place: Path, at: At) -> None:
        made = curator(place)
        resumed = resume_conversation(made, place / "c.db") if lossy else None

        class Watched(sqlite3.Connection):
            def execute(self, *args: Any) -> sqlite3.Cursor:
                return counted(at, super().execute, *(("ROLLBACK",) if lossy and args[0] == "COMMIT" else args))

        files.sqlite3.connect = partial(sqlite3.connect, factory=Watched)
        if opening:
            open_conversation(made, terms(2), terms(2).cost(ZcdpEvent), name="c", plan_hash=HASH, store=place / "c.db")
        else:
            go_on(resumed or resume_conversation(made, place / "c.db"), place / "log", 2)

    for place, moments in killed(folder, child, act, figures):
        if opening and moments:
            add(figures, {k: moments * v for k, v in _left(place).items()})
        if not opening:
            add(figures, {k: v for k, v in judge(place, 2).items() if k not in ("steps", "told")})
        if lossy and figures["told_not_kept"]:
            break
        if not opening:
            go_on(resume_conversation(curator(place), place / "c.db"), place / "log")
            add(figures, {"unfinished": int(judge(place, 2)["steps"] != 4)})
    return figures


def _left(place: Path) -> Figures:
    """What an opening that was killed has left: unpaid, or paid and usable; the same call goes on, and pays once."""
    spent = len(sf.Ledger(place / "l.db").entries())
    try:
        usable = resume_conversation(curator(place), place / "c.db").remaining == 2
    except sf.errors.LedgerError:
        usable = False
    opened_again = (
        open_conversation(
            curator(place), terms(2), terms(2).cost(ZcdpEvent), name="c", plan_hash=HASH, store=place / "c.db"
        )[0].remaining
        == 2
    )
    paid = len(sf.Ledger(place / "l.db").entries())
    wrong = int(paid != 1 or not opened_again or usable != bool(spent))
    return {"usable" if spent else "unpaid": 1, "wrong": wrong}


def race(folder: Path, processes: int, count: int) -> Figures:
    """Processes ask until the last positive is given; each question is formed from all steps before it."""
    place = folder / "race"
    warm_up(folder)
    opened(place, count)

    def worker() -> None:
        go_on(resume_conversation(curator(place), place / "c.db"), place / "log")

    pids = [child(worker) for _ in range(processes)]
    failures = sum(status != 0 for status in statuses(pids))
    return {**judge(place, count), "failures": failures}


EXPERIMENTS = {experiment.__name__: experiment for experiment in (kills, boundaries, race)}


if __name__ == "__main__":
    carry_out(EXPERIMENTS)
