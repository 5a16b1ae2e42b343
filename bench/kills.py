"""kill -9 at every operation on files: what the same command makes of what is left.

    OPENBLAS_NUM_THREADS=1 python bench/kills.py [EXPERIMENT ...] [--every 1] [--first 1]

Experiments: ledger (made), release (into a folder), sketch (into a file), labels (of codes that nest), session,
histogram, stream (opened), append (a period), publish (a site). Each is killed before and after every open, write,
sync, rename, removal and new folder that it does, SQLite's and DuckDB's included, and halfway through every write;
then the same command is given again. Outcomes: "anew" nothing was paid and all was done; "finished" it was paid, and
came out; "said" it was paid, nothing was shown, and it says so. Anything else is broken. Linux with a C compiler; a
release takes some seconds a kill.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from support.kills import GOOD, struck

ALL = ("ledger", "stream", "session", "histogram", "append", "sketch", "labels", "publish", "release")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("experiments", nargs="*", default=ALL)
    options.add_argument("--every", type=int, default=1)
    options.add_argument("--first", type=int, default=1)
    given = options.parse_args()
    for name in given.experiments:
        found = struck(name, given.every, given.first)
        found.pop("ended")
        kept = {k: found.pop(k, 0) for k in GOOD}
        print(
            f"{name:<10} {sum(kept.values()) + sum(found.values()):>5} kills: {kept}, broken: {found or 0}", flush=True
        )


if __name__ == "__main__":
    main()
