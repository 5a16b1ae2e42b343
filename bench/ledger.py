"""Figures of the ledger: races, kills, damage, exact spends, debits per second.

Run: python bench/ledger.py [--kills 1000] [--corruptions 5000]. `--corruptions 0` flips every single bit of a ledger.
The experiments are those of tests/statistical/ledger_harness.py; here they run longer and are tabulated.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

from sfumato.errors import BudgetExceeded
from sfumato.privacy.accounting import Account, ZcdpEvent
from sfumato.privacy.budget import Budget
from sfumato.privacy.ledger import Ledger
from sfumato.privacy.unit import Neighbours, PrivacyUnit

UNIT = PrivacyUnit(Neighbours.ADD_REMOVE)
HARNESS = Path(__file__).parents[1] / "tests" / "statistical" / "ledger_harness.py"


def experiment(name: str, **arguments: object) -> dict[str, Any]:
    done = subprocess.run([sys.executable, str(HARNESS), name, json.dumps(arguments)], capture_output=True, check=True)
    return json.loads(done.stdout)


def row(what: str, figures: dict[str, Any]) -> None:
    print(f"{what:<28}" + "  ".join(f"{key} {value}" for key, value in figures.items()))


def refused(spend: Any) -> bool:
    try:
        spend()
    except BudgetExceeded:
        return True
    return False


def in_memory(spends: int) -> dict[str, Any]:
    account, event, began = Account(Budget.zcdp(1)), ZcdpEvent(Fraction(1, spends)), time.process_time()
    for _ in range(spends):
        account.spend(event)
    seconds = time.process_time() - began
    next_refused = refused(lambda: account.spend(ZcdpEvent(Fraction(1, 10**300))))
    return {"left": account.remaining, "next_refused": next_refused, "cpu_s": round(seconds, 2)}


def on_disk(folder: Path, spends: int) -> dict[str, Any]:
    ledger, event = Ledger.create(folder / f"{spends}.db", total=Budget.zcdp(1)), ZcdpEvent(Fraction(1, spends))
    cpu, wall = time.process_time(), time.perf_counter()
    for number in range(spends):
        ledger.debit(f"n{number}", "a" * 64, event, UNIT)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    next_refused = refused(lambda: ledger.debit("more", "a" * 64, ZcdpEvent(Fraction(1, 10**300)), UNIT))
    began = time.process_time()
    ledger.verify()
    return {
        "left": ledger.remaining,
        "next_refused": next_refused,
        "debits_per_s": round(spends / wall),
        "cpu_ms_per_debit": round(1000 * cpu / spends, 2),
        "verify_cpu_ms": round(1000 * (time.process_time() - began), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--corruptions", type=int, default=5000)
    options = parser.parse_args()
    row("1e6 spends in memory", in_memory(10**6))
    with tempfile.TemporaryDirectory() as folder:
        for spends in (100, 1000, 3000):
            row(f"{spends} spends on disk", on_disk(Path(folder), spends))
    for processes in (2, 8, 64):
        row(f"race of {processes} for 300 units", experiment("race", processes=processes, units=300))
    row("kill -9 at random", experiment("kills", kills=options.kills, workers=4))
    row("kill -9 at every boundary", experiment("boundaries"))
    row("damage to the file", experiment("corruptions", count=options.corruptions))


if __name__ == "__main__":
    main()
