"""Damage to a ledger's file, and the verdict on what became of it."""

from __future__ import annotations

import random
import shutil
import sqlite3
from pathlib import Path
from typing import Any

from sfumato.errors import LedgerError
from sfumato.privacy.accounting import PureEvent
from sfumato.privacy.budget import Budget
from sfumato.privacy.ledger import Ledger
from sfumato.privacy.unit import Neighbours, PrivacyUnit

Figures = dict[str, Any]
PLAN, RESULT = "a" * 64, "b" * 64
UNIT = PrivacyUnit(Neighbours.ADD_REMOVE)


def hot_copy(path: Path, target: Path) -> None:
    """A copy of the ledger as a crash in the middle of a commit leaves it: half the pages are new."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA cache_size=2")
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("CREATE TABLE later (text TEXT)")
    connection.executemany("INSERT INTO later VALUES (?)", [("x" * 4000,)] * 50)
    shutil.copy(path, target)
    shutil.copy(f"{path}-journal", f"{target}-journal")
    connection.execute("ROLLBACK")
    connection.close()


def sample_ledger(path: Path) -> Ledger:
    """A ledger of several pages with both kinds of lines."""
    ledger = Ledger.create(path, total=Budget.pure(100))
    for number in range(12):
        receipt = ledger.debit(f"release {number}", PLAN, PureEvent(f"{number + 1}/7"), UNIT)
        if number % 3:
            ledger.mark_released(receipt, RESULT)
    return ledger


def facts(ledger: Ledger) -> tuple[object, ...]:
    check = ledger.verify()
    return ledger.ledger_id, ledger.total, ledger.currency, check.spent, check.remaining, check.anchor, ledger.entries()


def damage(content: bytes, kind: int, rng: random.Random) -> bytes:
    """A flipped bit, a changed byte, a zeroed, cut, swapped, copied or inserted stretch."""
    data, size = bytearray(content), len(content)
    at, other, length = rng.randrange(size), rng.randrange(size), rng.choice((1, 8, 64, 512, 4096))
    if kind <= 5:
        data[at] ^= 1 << rng.randrange(8)
    elif kind == 6:
        data[at] = rng.randrange(256)
    elif kind == 7:
        data[rng.randrange(100)] = rng.randrange(256)
    elif kind == 8:
        data[at : at + length] = bytes(min(length, size - at))
    elif kind == 9:
        del data[at:]
    elif kind == 10:
        at, other = sorted((at, other))
        length = min(length, other - at, size - other)
        data[at : at + length], data[other : other + length] = data[other : other + length], data[at : at + length]
    elif kind == 11:
        length = min(length, size - max(at, other))
        data[at : at + length] = data[other : other + length]
    else:
        data[at:at] = rng.randbytes(length)
    return bytes(data)


def judge(content: bytes, path: Path, expected: tuple[object, ...]) -> str:
    """'detected' if every use is refused; 'harmless' if every fact stands, also after one more debit."""
    path.write_bytes(content)
    for suffix in ("-journal", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    try:
        verdict = "harmless" if facts(Ledger(path)) == expected else "UNDETECTED"
    except LedgerError:
        verdict = "detected"
    try:
        ledger = Ledger(path)
        ledger.debit("one more", PLAN, PureEvent(1), UNIT)
        entries = expected[-1]
        assert isinstance(entries, tuple)
        stands = facts(ledger)[-1][:-1] == entries and ledger.spent == expected[3] + 1
        return verdict if verdict == "harmless" and stands else "UNDETECTED"
    except LedgerError:
        return verdict if verdict == "detected" else "refuses to spend"


def corruptions(folder: Path, count: int, seed: int = 0) -> Figures:
    """Random damage to a ledger's file; `count` = 0 flips every bit of it in turn."""
    expected = facts(sample_ledger(folder / "sample.db"))
    content = (folder / "sample.db").read_bytes()
    rng = random.Random(seed)
    if count:
        cases = (damage(content, number % 13, rng) for number in range(count))
    else:
        cases = (flipped(content, bit) for bit in range(8 * len(content)))
    found: Figures = {"bytes": len(content), "detected": 0, "harmless": 0, "refuses to spend": 0, "UNDETECTED": 0}
    for case in cases:
        found[judge(case, folder / "damaged.db", expected)] += 1
    return found


def flipped(content: bytes, bit: int) -> bytes:
    data = bytearray(content)
    data[bit // 8] ^= 1 << bit % 8
    return bytes(data)
