"""What the doors `select` and `converse` cost: CPU time of one selection, whatever the scores, and questions a second.

python bench/doors.py
"""

from __future__ import annotations

import itertools
import tempfile
import time
import tracemalloc
from fractions import Fraction
from pathlib import Path

import numpy as np

import sfumato as sf
from sfumato.curator import Curator
from sfumato.curator.conversations import open_conversation, resume_conversation
from sfumato.curator.selecting import select
from sfumato.operators import Block, Dense, Identity
from sfumato.privacy.accounting import BoundedRangeEvent, ZcdpEvent
from sfumato.privacy.conversation_price import Terms
from sfumato.privacy.noise import RoundedGaussian
from sfumato.privacy.selection import Candidates, Epochs, exponential_mechanism
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
            select(opened, given, BoundedRangeEvent(Fraction(1, 10)), name=f"n{i}", plan_hash=HASH)
        print(f"select {name:8} {rows:6,} candidates  {(time.process_time() - start) / 5:.3f} CPU-s")


def channel() -> None:
    """131,072 candidates, all cells of 128 ten-way tables: by public estimates flat scores, one that dominates, random.

    In turns, 21 of each; medians.
    """
    rng = np.random.default_rng(0)
    domain = sf.Domain({f"a{i}": sf.Integers(0, 1) for i in range(13)})
    sets = itertools.islice(itertools.combinations(range(13), 10), 128)
    blocks = tuple(Block(tuple((f"a{i}",) for i in s), (Identity(2),) * 10) for s in sets)
    counts = rng.integers(0, 20, (2,) * 13)
    tables = [counts.sum(axis=tuple(i for i in range(13) if f"a{i}" not in b.attributes)).reshape(-1) for b in blocks]
    answers = np.concatenate(tables)
    off = {"flat": np.zeros_like(answers), "dominating": np.zeros_like(answers)}
    off["dominating"][len(answers) // 3] = 10**6
    off["random"] = rng.integers(0, 10**4, len(answers))
    ones, zeros = np.ones_like(answers), np.zeros_like(answers)
    for epsilon in (Fraction(1, 10), Fraction(1)):
        opened = _curator(counts, domain)
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in off}
        for i in range(21):
            for name, by in off.items():
                given, whole = Candidates(blocks, answers + by, ones, zeros), time.process_time()
                select(opened, given, BoundedRangeEvent(epsilon), name=f"{name}{i}", plan_hash=HASH)
                start = time.process_time()
                exponential_mechanism(given.lags(answers), epsilon / 2)
                times[name].append((start - whole, time.process_time() - start))
        found = {name: np.median(t, axis=0) * 1000 for name, t in times.items()}
        for name, (door, draw) in found.items():
            door_ratio, draw_ratio = door / found["flat"][0], draw / found["flat"][1]
            print(f"select {name:10} epsilon {epsilon!s:4}  {door:5.1f} CPU-ms, / flat {door_ratio:.3f};", end=" ")
            print(f"scores and draw alone {draw:4.1f}, / flat {draw_ratio:.3f}")
    tracemalloc.start()
    exponential_mechanism(Candidates(blocks, answers, ones, zeros).lags(answers), Fraction(1, 20))
    print(f"memory above the candidates and their answers: {tracemalloc.get_traced_memory()[1] / 2**20:.1f} MiB")
    tracemalloc.stop()


def conversations() -> None:
    """Intervals over 1,024 cells, 100,000 records, none or all of them positive; in memory and in a file."""
    rng = np.random.default_rng(0)
    domain = sf.Domain({"a": sf.Integers(0, 1023)})
    counts = rng.multinomial(100_000, np.full(1024, 1 / 1024))
    with tempfile.TemporaryDirectory() as folder:
        ledger = sf.Ledger.create(Path(folder) / "l.db", total=sf.zcdp(10**6))
        opened = Curator(sf.Histogram(counts), domain, UNIT, ledger)
        terms = Terms(Epochs(2001, Fraction(1, 50)), RoundedGaussian(100))
        for kept, far in itertools.product((False, True), (10_000, -(10**6))):
            name = f"{'file' if kept else 'memory'} {'below' if far > 0 else 'above'}"
            store = Path(folder) / f"{name}.db" if kept else None
            asked, _ = open_conversation(opened, terms, terms.cost(ZcdpEvent), name=name, plan_hash=HASH, store=store)
            wall, start = time.perf_counter(), time.process_time()
            for _ in range(1000):
                a, b = sorted(rng.integers(0, 1025, 2).tolist())
                row = np.zeros((1, 1024), dtype=np.int64)
                row[0, a : max(b, a + 1)] = 1
                public = (np.array([v], dtype=np.int64) for v in (round((b - a) * 100_000 / 1024), 1, far))
                question = Candidates((Block((("a",),), (Dense(row),)),), *public)
                asked.ask(lambda _, question=question: question)
            wall, start = time.perf_counter() - wall, time.process_time() - start
            print(f"converse {name:12} 1,000 questions  {start:.3f} CPU-ms each  {1000 / wall:,.0f} a second")
            if store is not None:
                start = time.process_time()
                resume_conversation(Curator(sf.Histogram(counts), domain, UNIT, ledger), store)
                size = store.stat().st_size / 2**20
                print(f"resume   {name:12} {time.process_time() - start:.3f} CPU-s, {size:.2f} MiB")


if __name__ == "__main__":
    selection()
    channel()
    conversations()
