"""What a plan accepts, a release answers: every golden plan and plans drawn at random, released and read.

    OPENBLAS_NUM_THREADS=1 python bench/released_drawn.py [golden | drawn] [FIRST [LAST]]

A plan that is refused before anything is paid counts as refused, with why. What fails after the debit is printed, with
the number of its draw, and must be nothing. Draws are those of `tests/support/drawn.py`, seeded with their number.
"""

from __future__ import annotations

import collections
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import sfumato as sf

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.drawn import draw, fulfil, releasable
from support.golden.cases import CASES
from support.words import plan_with

LONG = 20.0  # CPU seconds that are told
MOST = 60.0  # and those after which a plan is given up: nothing is known of it then


class TooLong(BaseException):
    """What ends a plan."""


def _end(*_: object) -> None:
    raise TooLong


def main(what: str, first: int, last: int) -> None:
    """Print what fails, and how many of each outcome there are."""
    cases: list[tuple[str, Any]] = []
    if what in ("golden", "all"):
        cases += [(name, make) for name, make in CASES.items()]
    if what in ("drawn", "all"):
        cases += [(f"draw {seed}", seed) for seed in range(first, last)]
    found: collections.Counter[str] = collections.Counter()
    signal.signal(signal.SIGPROF, _end)
    for name, make in cases:
        start = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, MOST)
        try:
            if isinstance(make, int):
                work, budget, options = draw(make)
                plan = plan_with(work, budget, **options)
            else:
                plan = make()
        except TooLong:
            found["too long to plan"] += 1
            print(f"{name}: too long to plan", flush=True)
            continue
        except sf.SfumatoError as error:
            found[f"refused: {type(error).__name__}"] += 1
            print(f"{name}: refused, {str(error)[:160]}", flush=True)
            continue
        planned = time.process_time() - start
        if not releasable(plan):
            found["not of a table"] += 1
            continue
        try:
            fulfil(plan)
            found["answered"] += 1
        except TooLong:
            found["too long to release and read"] += 1
            print(f"{name}: too long, {planned:.1f} CPU-s to plan", flush=True)
        except Exception as error:
            found[f"FAILED: {type(error).__name__}"] += 1
            print(f"{name}: FAILED after the plan, {type(error).__name__}: {str(error)[:300]}", flush=True)
            print("".join(traceback.format_tb(error.__traceback__)[-4:]), flush=True)
        spent = time.process_time() - start
        if spent > LONG:
            print(
                f"{name}: {planned:.1f} CPU-s to plan, {spent:.1f} in all, {len(plan.workload):,} queries", flush=True
            )
    print(dict(found))


if __name__ == "__main__":
    numbers = [int(n) for n in sys.argv[2:4]]
    main(sys.argv[1] if len(sys.argv) > 1 else "all", *(numbers + [0, 500][len(numbers) :]))
