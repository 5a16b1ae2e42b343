"""Workers that race for a ledger, are killed in the middle, fork, meet a full disk, or find a damaged file.

Run as `python ledger_harness.py EXPERIMENT JSON`: a process of one thread, so that forking is safe. It prints the
figures of one experiment as JSON; the tests judge them and bench/ledger.py tabulates them.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

# Run as a script, this folder is on the path, and the one above is not.
sys.path.append(str(Path(__file__).parents[1]))

from ledger_damage import PLAN, RESULT, UNIT, Figures, corruptions, facts, hot_copy, sample_ledger

from sfumato.errors import BudgetExceeded, LedgerError, LedgerMismatch
from sfumato.privacy import files
from sfumato.privacy.accounting import PureEvent
from sfumato.privacy.budget import Budget
from sfumato.privacy.ledger import Ledger
from sfumato.privacy.unit import PrivacyUnit
from support.boundaries import At, counted, killed


def child(body: Callable[[], None]) -> int:
    """Run the body in a fork; its exit status is 0 unless it raises, and a hang ends after four minutes."""
    pid = os.fork()
    if pid:
        return pid
    signal.alarm(240)
    status = 1
    try:
        body()
        status = 0
    finally:
        os._exit(status)


def statuses(pids: list[int]) -> list[int]:
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]


# Race ----------------------------------------------------------------------------------------------------------------


def race(folder: Path, processes: int, units: int) -> Figures:
    """Processes debit one unit each until refused; what they were granted must be the total exactly."""
    path = folder / "race.db"
    Ledger.create(path, total=Budget.pure(units))
    start_read, start_write = os.pipe()
    granted_read, granted_write = os.pipe()

    def worker() -> None:
        os.close(start_write)
        os.read(start_read, 1)
        ledger, count = Ledger(path), 0
        with suppress(BudgetExceeded):
            while True:
                ledger.debit(f"{os.getpid()}.{count}", PLAN, PureEvent(1), UNIT)
                count += 1
        os.write(granted_write, f"{count}\n".encode())

    began = time.perf_counter()
    pids = [child(worker) for _ in range(processes)]
    os.close(start_write)
    failures = sum(status != 0 for status in statuses(pids))
    os.close(granted_write)
    with os.fdopen(granted_read) as lines:
        granted = [int(line) for line in lines]
    check = Ledger(path).verify()
    return {
        "granted": sum(granted),
        "winners": sum(count > 0 for count in granted),
        "recorded": check.entries,
        "remaining": str(check.remaining),
        "failures": failures,
        "seconds": time.perf_counter() - began,
    }


def first_spends(folder: Path, processes: int, rounds: int) -> Figures:
    """Processes of several units and tables race for the first spend of new ledgers: one of them is to be held to."""
    figures = dict.fromkeys(("ledgers", "mixed", "spends", "lost", "failures"), 0)
    for number in range(rounds):
        path, log = folder / f"{number}.db", folder / f"{number}.log"
        Ledger.create(path, total=Budget.pure(processes))
        start_read, start_write = os.pipe()
        pids: list[int] = []
        for i in range(processes):

            def worker(
                i: int = i, path: Path = path, log: Path = log, ends: tuple[int, int] = (start_read, start_write)
            ) -> None:
                os.close(ends[1])
                os.read(ends[0], 1)
                unit = PrivacyUnit(UNIT.neighbours, ("who", "patient", "owner")[i % 3], 1 + i // 6)
                with suppress(LedgerMismatch):
                    name = Ledger(path).debit(f"n{i}", PLAN, PureEvent(1), unit, ("people", None)[i % 2]).name
                    with log.open("a") as granted:
                        granted.write(f"{name}\n")

            pids.append(child(worker))
        os.close(start_read)
        os.close(start_write)
        figures["failures"] += sum(status != 0 for status in statuses(pids))
        entries = Ledger(path).entries()
        figures["ledgers"] += 1
        figures["mixed"] += len({(e.unit.protected, e.table) for e in entries if e.unit is not None}) != 1
        figures["spends"] += len(entries)
        figures["lost"] += {e.name for e in entries} != set(log.read_text().split())
    return figures


# Kills ---------------------------------------------------------------------------------------------------------------


def release_loop(path: Path, log: Path, prefix: str, mutant: bool, rounds: int = 10**9) -> None:
    """Debit, then publish (a line in the log), then mark, and again. The mutant publishes before it debits."""
    ledger = Ledger(path)
    published = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for number in range(rounds):
        name = f"{prefix}.{number}"
        if mutant:
            os.write(published, f"{name}\n".encode())
        receipt = ledger.debit(name, PLAN, PureEvent(1), UNIT)
        if not mutant:
            os.write(published, f"{name}\n".encode())
        ledger.mark_released(receipt, RESULT)


class Tally:
    """What an observer finds after kills: released but not recorded, recorded but not released, all of it listed."""

    def __init__(self) -> None:
        self.figures = dict.fromkeys(("kills", "debits", "unrecorded", "unlisted", "miscounted", "worst_overcount"), 0)

    def start(self, path: Path, log: Path) -> None:
        self.path, self.log, self.lost, self.count = path, log, 0, 0
        self.anchor = Ledger.create(path, total=Budget.pure(10**6)).anchor

    def add(self, kills: int) -> None:
        ledger = Ledger(self.path)
        self.anchor = ledger.verify(self.anchor).anchor
        published = set(self.log.read_text().split()) if self.log.exists() else set[str]()
        names = {entry.name for entry in ledger.entries() if entry.kind == "spend"}
        listed = {entry.name for entry in ledger.unreleased()}
        figures, before, self.lost = self.figures, self.lost, len(names - published)
        figures["kills"] += kills
        figures["debits"] += len(names) - self.count
        figures["unrecorded"] += len(published - names)
        figures["unlisted"] += len((names - published) - listed)
        figures["miscounted"] += int(ledger.spent != len(names))
        figures["worst_overcount"] = max(figures["worst_overcount"], self.lost - before)
        self.count = len(names)


def kills(folder: Path, kills: int, workers: int, mutant: bool = False) -> Figures:
    """kill -9 at random moments, several workers at a time; a new ledger every ten rounds."""
    tally = Tally()
    for number in range(-(-kills // workers)):
        if number % 10 == 0:
            tally.start(folder / f"{number}.db", folder / f"{number}.log")
        pids: list[int] = []
        for i in range(workers):

            def worker(who: str = f"{number}.{i}") -> None:
                release_loop(tally.path, tally.log, who, mutant)

            pids.append(child(worker))
        time.sleep(random.uniform(0.002, 0.12))
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        statuses(pids)
        tally.add(workers)
    return tally.figures


def boundaries(folder: Path, mutant: bool = False) -> Figures:
    """kill -9 just before and just after every statement that reaches SQLite in one debit, publish and mark, wherever
    the files have changed since."""
    tally, figures = Tally(), Figures(kills=0)
    (folder / "before").mkdir()
    tally.start(folder / "before" / "l.db", folder / "before" / "log")
    begun = vars(tally).copy()

    def act(place: Path, at: At) -> None:
        class Watched(sqlite3.Connection):
            def execute(self, *args: Any) -> sqlite3.Cursor:
                return counted(at, super().execute, *args)

        files.sqlite3.connect = partial(sqlite3.connect, factory=Watched)
        release_loop(place / "l.db", place / "log", "x", mutant, rounds=1)

    for place, moments in killed(folder, child, act, figures):
        if moments:
            vars(tally).update(begun, path=place / "l.db", log=place / "log")
            tally.add(1)
            Ledger(tally.path).debit("afterwards", PLAN, PureEvent(1), UNIT)
    return figures | tally.figures


# Forks ---------------------------------------------------------------------------------------------------------------


def forks(folder: Path, children: int, units: int) -> Figures:
    """Forks of a process whose threads are inside transactions, all on one inherited Ledger object."""
    path = folder / "fork.db"
    ledger = Ledger.create(path, total=Budget.pure(units))
    ledger.debit("before", PLAN, PureEvent(1), UNIT)
    errors: list[str] = []

    def spend(prefix: str) -> None:
        try:
            with suppress(BudgetExceeded):
                for number in range(units + 1):
                    ledger.debit(f"{prefix}.{number}", PLAN, PureEvent(1), UNIT)
        except Exception as error:
            errors.append(repr(error))

    threads = [threading.Thread(target=spend, args=(f"thread{i}",)) for i in range(3)]
    for thread in threads:
        thread.start()
    pids: list[int] = []
    for i in range(children):

        def body(i: int = i) -> None:
            spend(f"child{i}")
            os._exit(len(errors))

        pids.append(child(body))
        time.sleep(0.002)
    failures = sum(status != 0 for status in statuses(pids))
    for thread in threads:
        thread.join()
    check = Ledger(path).verify()
    owners = {entry.name.split(".")[0] for entry in ledger.entries()}
    return {
        "recorded": check.entries,
        "remaining": str(check.remaining),
        "failures": failures,
        "errors": errors,
        "owners": len(owners),
    }


# Disk full and read-only ---------------------------------------------------------------------------------------------


def full(folder: Path) -> Figures:
    """Debits until the disk is full: every receipt stays recorded, and spending resumes when there is room."""
    path = folder / "full.db"
    ledger = Ledger.create(path, total=Budget.pure(10**6))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    receipts: list[str] = []
    message = ""
    for room in (0, 512, 5000, 9000, 20000):
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + room, limits[1]))
        try:
            for _ in range(40):
                receipts.append(ledger.debit(f"n{room}.{len(receipts)}", PLAN, PureEvent(1), UNIT).name)
        except LedgerError as error:
            message = str(error)
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        ledger.debit(f"room{room}", PLAN, PureEvent(1), UNIT)
        receipts.append(f"room{room}")
    names = [entry.name for entry in ledger.entries()]
    return {"receipts": len(receipts), "lost": len(set(receipts) - set(names)), "kept": names == receipts} | {
        "message": message
    }


def torn(folder: Path) -> Figures:
    """A commit interrupted in the middle is undone by whoever opens the ledger next."""
    path, copy = folder / "whole.db", folder / "torn.db"
    ledger = sample_ledger(path)
    hot_copy(path, copy)
    is_torn = copy.read_bytes() != path.read_bytes() and Path(f"{copy}-journal").stat().st_size > 0
    repaired = Ledger(copy)
    same = facts(repaired) == facts(ledger)
    repaired.debit("afterwards", PLAN, PureEvent(1), UNIT)
    return {"torn": is_torn, "same": same, "spends_on": repaired.spent == ledger.spent + 1}


def read_only(folder: Path) -> Figures:
    """Reading works and changes nothing where nothing may be written; a debit and a repair are refused."""
    path, torn = folder / "ro" / "ro.db", folder / "ro" / "torn.db"
    path.parent.mkdir()
    ledger = Ledger.create(path, total=Budget.approx(1, "1e-6"))
    ledger.mark_released(ledger.debit("n", PLAN, PureEvent("0.01"), UNIT), RESULT)
    expected = str((ledger.entries(), ledger.verify(), ledger.export(), ledger.epsilon_left()))
    hot_copy(path, torn)
    for file in path.parent.iterdir():
        file.chmod(0o444)
    path.parent.chmod(0o555)
    if os.getuid() == 0:
        os.setresuid(65534, 65534, 65534)

    def content() -> dict[str, bytes]:
        return {file.name: file.read_bytes() for file in path.parent.iterdir()}

    before, refusals = content(), []
    ledger = Ledger(path)
    found = str((ledger.entries(), ledger.verify(), ledger.export(), ledger.epsilon_left()))
    for attempt in (
        lambda: ledger.debit("m", PLAN, PureEvent("0.01"), UNIT),
        lambda: Ledger(torn),
        lambda: Ledger.create(folder / "ro" / "new.db", total=Budget.pure(1)),
    ):
        try:
            attempt()
        except LedgerError as error:
            refusals.append(f"{type(error).__name__}: {error}")
    return {"same": found == expected, "untouched": content() == before, "refusals": refusals}


EXPERIMENTS: dict[str, Callable[..., Figures]] = {
    experiment.__name__: experiment
    for experiment in (race, first_spends, kills, boundaries, forks, full, torn, read_only, corruptions)
}


def main() -> None:
    name, arguments = sys.argv[1], json.loads(sys.argv[2])
    # Damage is judged by what is read, not by what survives a power cut: memory is quicker than a disk.
    memory = "/dev/shm" if name == "corruptions" and os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        Path(folder).chmod(0o755)
        figures = EXPERIMENTS[name](Path(folder), **arguments)
        sys.stdout.write(json.dumps(figures))
        sys.stdout.flush()
        # After dropping privileges the folder may be out of reach; its owner removes it.
        with suppress(OSError):
            shutil.rmtree(folder)
        os._exit(0)


if __name__ == "__main__":
    main()
