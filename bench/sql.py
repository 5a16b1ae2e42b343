"""Statements of SQL drawn at random, beside DuckDB: answered alike at a huge budget, or refused.

    OPENBLAS_NUM_THREADS=1 python bench/sql.py [FIRST LAST]

The grammar and the comparison are those of tests/support/statements.py; statements are seeded by their number.
"""

from __future__ import annotations

import collections
import re
import sys
import time
from pathlib import Path

import sfumato as sf

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.statements import DOMAIN, drawn_statement, outcome, people


def main(first: int, last: int) -> None:
    """Print what is wrong, and how many statements ended how."""
    table, found = people(), collections.Counter[str]()
    start = time.process_time()
    for seed in range(first, last):
        statement = drawn_statement(seed)
        try:
            one = outcome(statement, table)
        except Exception as error:
            found["ended otherwise"] += 1
            print(f"{seed}: {statement}: {type(error).__name__}: {error}")
            continue
        if one.wrong is not None:
            found["wrong"] += 1
            print(f"{seed}: {statement}: {one.wrong}")
        elif one.refused is None:
            found["answered alike"] += 1
        else:
            nearest = re.search(r"the nearest that is answered: (SELECT .*)", one.refused)
            found["refused with the nearest" if nearest else "refused"] += 1
            if nearest:
                sf.sql(nearest[1], DOMAIN)
    told = ", ".join(f"{n} {what}" for what, n in sorted(found.items()))
    print(f"statements {first} to {last - 1}: {told}; {time.process_time() - start:.0f} CPU-s")


if __name__ == "__main__":
    main(*(int(a) for a in sys.argv[1:3] or (0, 2_000)))
