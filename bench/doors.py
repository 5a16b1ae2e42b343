"""What the doors `select` and `above` cost: CPU seconds of one selection and of one question.

python bench/doors.py
"""

from __future__ import annotations

import itertools
import time
from fractions import Fraction

import numpy as np

import sfumato as sf
from sfumato.curator import Curator
from sfumato.operators import Block, Dense, Identity
from sfumato.privacy.accountant import BoundedRangeEvent, ZcdpEvent
from sfumato.privacy.selection import Candidates, Epochs
from sfumato.privacy.unit import Neighbours, PrivacyUnit

HASH = "0" * 64
UNIT = PrivacyUnit(Neighbours.REPLACE_ONE)


def _curator(counts: np.ndarray, domain: sf.Domain) -> Curator:
    return Curator(sf.Histogram(counts), domain, UNIT, sf.Ledger.in_memory(sf.zcdp(10**6)))


def selection() -> None:
    """All cells of the 3-way tables of ten binary attributes, and of one table of 10,000 cells."""
    rng = np.random.default_rng(0)
    ten = sf.Domain({f"a{i}": sf.Integers(0, 1) for i in range(10)})
    wide = sf.Domain({"a": sf.Integers(0, 9_999)})
    triples = tuple(
        Block(tuple((f"a{i}",) for i in s), (Identity(2),) * 3) for s in itertools.combinations(range(10), 3)
    )
    for name, domain, blocks in (("triples", ten, triples), ("cells", wide, (Block((("a",),), (Identity(10_000),)),))):
        rows = sum(b.rows for b in blocks)
        given = Candidates(blocks, *(np.full(rows, v, dtype=np.int64) for v in (0, 1, 0)))
        opened = _curator(rng.integers(0, 20, domain.size), domain)
        start = time.process_time()
        for i in range(5):
            opened.select(given, BoundedRangeEvent(Fraction(1, 10)), name=f"n{i}", plan_hash=HASH)
        print(f"select {name:8} {rows:6,} candidates  {(time.process_time() - start) / 5:.3f} CPU-s")


def session() -> None:
    """2,000 intervals over 1,024 cells, 100,000 records."""
    rng = np.random.default_rng(0)
    domain = sf.Domain({"a": sf.Integers(0, 1023)})
    opened = _curator(rng.multinomial(100_000, np.full(1024, 1 / 1024)), domain)
    epochs = Epochs(100, Fraction(1, 50))
    asked, _ = opened.above(epochs, epochs.cost(ZcdpEvent), name="s", plan_hash=HASH)
    start = time.process_time()
    for _ in range(2000):
        a, b = sorted(rng.integers(0, 1025, 2).tolist())
        row = np.zeros((1, 1024), dtype=np.int64)
        row[0, a : max(b, a + 1)] = 1
        public = (np.array([v], dtype=np.int64) for v in (round((b - a) * 100_000 / 1024), 1, 10_000))
        asked.ask(Candidates((Block((("a",),), (Dense(row),)),), *public))
    print(f"above: 2,000 intervals  {(time.process_time() - start) / 2:.3f} ms of CPU each, {asked.remaining} left")


if __name__ == "__main__":
    selection()
    session()
