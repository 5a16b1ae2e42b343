"""Draws lies about a release of every kind until each was told so many kinds of lies, and counts who believed them.

    PYTHONPATH=tests python bench/lies.py [--each 200] [--seed 118] [--part 0/1]

A kind of lie is a field and a change of what stands there; see `tests/support/grammar.py`. Bar: the checker accepts
none that is not free, and the library loads none in another form.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support import grammar
from support.released import PLANS, PROFILES, SKETCHES, STREAMS, made


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--each", type=int, default=200)
    parser.add_argument("--seed", type=int, default=118)
    parser.add_argument("--part", default="0/1", help="every how manieth kind of release, from which on")
    asked = parser.parse_args()
    first, step = map(int, asked.part.split("/"))
    counts, believed = Counter[str](), 0
    for kind in [*PLANS, *SKETCHES, *STREAMS, *PROFILES][first::step]:
        with tempfile.TemporaryDirectory() as folder:
            place, begun = Path(folder), time.perf_counter()
            release, ledger = made(kind, place)
            told_of, draws = set[tuple[str, str]](), 0
            while len(told_of) < asked.each and draws < 20 * asked.each:
                rng = np.random.default_rng([asked.seed, draws])
                draws += 1
                lie = (grammar.files if draws % 6 == 0 else grammar.tell)(release, ledger, place / "lie", rng)
                if lie is not None:
                    found, loads = grammar.judged(lie)
                    free = lie.free or grammar.said_alone(lie)
                    told_of |= set() if free else {(lie.field, lie.change)}
                    counts[f"{lie.form}, {'free, ' if free else ''}{found}, {'loaded' if loads else 'not loaded'}"] += 1
                    if grammar.accepted(lie, found) or (loads and lie.form == grammar.FORM):
                        believed += 1
                        print("believed:", kind, *lie[:5], found, loads, flush=True)
                shutil.rmtree(place / "lie", ignore_errors=True)
            print(f"{kind}: {len(told_of)} kinds of lies, {time.perf_counter() - begun:.0f} s", flush=True)
    print(*(f"{n:6} {what}" for what, n in sorted(counts.items())), f"believed: {believed}", sep="\n")
    return int(believed > 0)


if __name__ == "__main__":
    sys.exit(main())
