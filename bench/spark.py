"""Tables of Spark against the same rows in one process: CPU seconds of all processes, memory, equal digests of counts.

    OPENBLAS_NUM_THREADS=1 python bench/spark.py [rows, 2,000,000]       # local[2]
    OPENBLAS_NUM_THREADS=1 python bench/spark.py --workers               # local-cluster of 1 and of 2 executors
    OPENBLAS_NUM_THREADS=1 python bench/spark.py --wide                  # memory at 161,700 tables of 1,000 cells
    OPENBLAS_NUM_THREADS=1 python bench/spark.py --large [rows, 10^8]    # one release of generated rows, on local[2]
    OPENBLAS_NUM_THREADS=1 python bench/spark.py --first [rows, 300,000] # a process from its start to its first release

The rows are those of bench/engines.py. A road is taken three times in one session: the first time Java compiles.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from engines import OTHER, domain, triples

import sfumato as sf
from sfumato.curator.rows.sources import open_source
from sfumato.plans.packing import pack_tables
from support.spark import SETTINGS

STARTED = time.monotonic()
TICKS = os.sysconf("SC_CLK_TCK")
ROWS = """SELECT CASE WHEN random() < .02 THEN NULL ELSE (random() * 99)::smallint END AS age,
 CASE WHEN random() < .02 THEN NULL ELSE (1 + floor(random() * 6)::int)::varchar END AS class,
 CASE WHEN random() < .02 THEN 'NaN'::double ELSE random() * 1.1e5 END AS wages,
 (['female','male','x'])[1 + floor(random() * 3)::int] AS sex,
 lpad(floor(random() * 53)::int::text, 2, '0') AS state, floor(random() * 10)::int AS i6,
 floor(random() * 7)::int AS i7, floor(random() * 5)::bigint AS i8, random() < .5 AS b9,
 (['a','b','c','d','e','f','g'])[1 + floor(random() * 7)::int] AS c10, (random() * 50)::float AS f11,
 (['never','married','widowed','divorced'])[1 + floor(random() * 4)::int] AS c12, floor(random() * 15)::int AS i13,
 (['u','v','w'])[1 + floor(random() * 3)::int] AS c14, floor(random() * 30)::int AS i15,
 'person ' || floor(random() * {rows} / 3)::int AS who FROM range({rows})"""


def family() -> dict[int, tuple[str, float]]:
    """(name, CPU seconds) of this process and of those that it started."""
    found: dict[int, tuple[int, str, float]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                head, _, tail = (entry / "stat").read_text().rpartition(")")
            except OSError:
                continue
            fields = tail.split()
            found[int(entry.name)] = int(fields[1]), head.partition("(")[2], sum(map(int, fields[11:13])) / TICKS
    mine: dict[int, tuple[str, float]] = {}
    todo = [os.getpid()]
    while todo:
        number = todo.pop()
        if number in found:
            mine[number] = found[number][1:]
        todo += [p for p, (above, _, _) in found.items() if above == number]
    return mine


def workers() -> list[int]:
    """Processes that are neither this one nor Java."""
    return [p for p, (name, _) in family().items() if p != os.getpid() and name != "java"]


def spent() -> dict[str, float]:
    """CPU seconds so far: of this process, of Java, and of the workers that have not ended."""
    sums = {"here": 0.0, "java": 0.0, "workers": 0.0}
    for number, (name, seconds) in family().items():
        sums["here" if number == os.getpid() else "java" if name == "java" else "workers"] += seconds
    return sums


def since(before: dict[str, float]) -> dict[str, float]:
    """CPU seconds by process."""
    return {name: round(value - before[name], 2) for name, value in spent().items()}


def session(master: str, **settings: str) -> Any:
    """A session that compiles for long runs."""
    warnings.simplefilter("ignore")
    import pyspark
    from pyspark.sql import SparkSession

    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_HOME": str(Path(pyspark.__file__).parent)}
    builder = SparkSession.builder.master(master)
    for key, value in (SETTINGS | {"spark.driver.extraJavaOptions": "-XX:+UseSerialGC"} | settings).items():
        builder = builder.config(key, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("OFF")
    return made


def road(master: str, path: str, person: str | None) -> None:
    """Encode and count 455 tables, three times, and an empty pass over what was kept."""
    spark = session(master)
    frame = spark.read.parquet(path)
    whole = domain()
    sets = [np.array(list(itertools.combinations(range(len(whole.names)), 3)), dtype=np.int32)]
    for _ in range(3):
        before = spent()
        counts: Any = open_source(frame, whole, person=person, rows_per_person=2 if person else 1, packing=pack_tables)
        encoding, before = since(before), spent()
        found: dict[int, bytes] = {}
        for _, positions, tables in counts.stream(sets):
            for i, table in zip(positions.tolist(), tables, strict=True):
                found[i] = hashlib.sha256(np.ascontiguousarray(table).data).digest()
        counting, before = since(before), spent()
        digest = hashlib.sha256(b"".join(found[i] for i in sorted(found))).hexdigest()[:16]
        kept = counts.engine._kept[0]  # noqa: SLF001
        kept.mapInArrow(lambda batches: (b for b in batches if b.num_rows < 0), kept.schema).toArrow()
        print(f"  encode {encoding}, count {counting}, empty pass {since(before)}, {digest}", flush=True)
    spark.stop()


def wide() -> None:
    """Every table of three out of a hundred attributes of ten cells."""
    spark = session("local[2]")
    names = [f"a{i}" for i in range(100)]
    asked = (f"CAST(hash(id, {i}) & 7 AS INT) AS {n}" for i, n in enumerate(names))
    frame = spark.range(0, 20_000, 1, 2).selectExpr(*asked)
    counts = open_source(frame, sf.Domain({n: sf.Integers(0, 8, **OTHER) for n in names}), packing=pack_tables)
    sets = [np.array(list(itertools.combinations(range(100), 3)), dtype=np.int32)]
    before, tables = spent(), 0
    for _, positions, _ in counts.stream(sets):
        tables += len(positions)
    print(f"  {tables:,} tables, {since(before)} CPU-s, peaks {peaks(spark)} MB")
    spark.stop()


# The columns of ROWS, each row by its number, so that nothing is stored.
GENERATED = [
    "CAST(if(pmod(hash(id, 0), 50) = 0, NULL, pmod(hash(id, 1), 100)) AS SMALLINT) AS age",
    "if(pmod(hash(id, 2), 50) = 0, NULL, CAST(1 + pmod(hash(id, 3), 6) AS STRING)) AS class",
    "if(pmod(hash(id, 4), 50) = 0, double('NaN'), pmod(hash(id, 5), 110000) + 0.5D) AS wages",
    "element_at(array('female', 'male', 'x'), 1 + pmod(hash(id, 6), 3)) AS sex",
    "lpad(CAST(pmod(hash(id, 7), 53) AS STRING), 2, '0') AS state",
    *(f"pmod(hash(id, {k}), {n}) AS i{k}" for k, n in ((8, 10), (9, 7))),
    "CAST(pmod(hash(id, 10), 5) AS BIGINT) AS i10",
    "hash(id, 11) > 0 AS b11",
    "element_at(array('a', 'b', 'c', 'd', 'e', 'f', 'g'), 1 + pmod(hash(id, 12), 7)) AS c12",
    "CAST(pmod(hash(id, 13), 50) AS FLOAT) AS f13",
    "element_at(array('never', 'married', 'widowed', 'divorced'), 1 + pmod(hash(id, 14), 4)) AS c14",
    "pmod(hash(id, 15), 15) AS i15",
    "element_at(array('u', 'v', 'w'), 1 + pmod(hash(id, 16), 3)) AS c16",
    "pmod(hash(id, 17), 30) AS i17",
]


def large(rows: int) -> None:
    """One release of all tables of three; encoded records for which a heap of 3 GB has no room lie on disk."""
    spark = session("local[2]", **{"spark.driver.memory": "3g", "spark.sql.shuffle.partitions": "16"})
    attributes = domain().attributes.values()
    frame = spark.range(0, rows, 1, 16).selectExpr(*GENERATED)
    whole = sf.Domain(dict(zip(frame.columns, attributes, strict=True)))
    plan = sf.plan(sf.marginals(whole, order=3), sf.gdp(1), neighbours="add-remove", mechanism="marginals")
    frame.selectExpr("count(wages)", "count(state)").toArrow()  # Java and the workers have started
    before, start, steps = spent(), time.monotonic(), Steps()
    release = sf.release(plan, frame, ledger=None, progress=steps)
    total = release.answers.sum() / 455
    print(f"  {rows:,} rows, {len(release.answers):,} cells: {since(before)} CPU-s, {time.monotonic() - start:.0f} s")
    print(f"  within {abs(total - rows):.0f} of the number of rows; peaks {peaks(spark)}", flush=True)
    spark.stop()


def first(rows: int) -> None:
    """From the start of a process to its first release, and a second, with 200 partitions as Spark has by itself."""
    spark = session("local[2]", **{"spark.sql.shuffle.partitions": "200"})
    frame = spark.range(0, rows, 1, 2).selectExpr(*GENERATED)
    whole = sf.Domain(dict(zip(frame.columns, domain().attributes.values(), strict=True)))
    plan = sf.plan(sf.marginals(whole, order=3), sf.gdp(1), neighbours="add-remove", mechanism="marginals")
    for what in ("first", "second"):
        cells = len(sf.release(plan, frame, ledger=None).answers)
        print(
            f"  {what}: {cells:,} cells, {spent()} CPU-s, {time.monotonic() - STARTED:.1f} s of the clock", flush=True
        )
    spark.stop()


class Steps:
    """Says how far the engine is."""

    def __call__(self, steps: int, gap: float) -> None: ...

    def jobs(self, what: str, done: int, of: int) -> None:
        """Jobs done, of how many."""
        print(f"  {what}, {done} of {of} done: {spent()}", flush=True)


def peaks(spark: Any) -> dict[str, int]:
    """MB at most of this process, of Java, and of the largest worker."""
    named = {"here": [os.getpid()], "java": [spark.sparkContext._gateway.proc.pid], "worker": workers()}  # noqa: SLF001
    found: dict[str, int] = {}
    for name, processes in named.items():
        for process in processes:
            lines = Path(f"/proc/{process}/status").read_text().splitlines()
            found[name] = max(found.get(name, 0), *(int(x.split()[1]) // 1024 for x in lines if x.startswith("VmHWM")))
    return found


def main(rows: int, masters: list[str]) -> None:
    """One process, then Spark, with and without persons."""
    import duckdb

    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "people.parquet")
        duckdb.connect().execute(f"COPY ({ROWS.format(rows=rows)}) TO '{path}' (FORMAT parquet)")
        for person in [[], ["who"]] if len(masters) == 1 else [[]]:
            print(f"{rows:,} rows{', persons' if person else ''}; one process: CPU-s, MB, tables, digest", flush=True)
            subprocess.run([sys.executable, __file__, "--local", path, *person], check=True)
            for master in masters:
                print(master, flush=True)
                subprocess.run(
                    [sys.executable, __file__, "--road", master, path, *person], check=True, stderr=subprocess.DEVNULL
                )


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--local", path, *person]:
            triples(path, person[0] if person else None)
        case ["--road", master, path, *person]:
            road(master, path, person[0] if person else None)
        case ["--wide"]:
            wide()
        case ["--large", *rows]:
            large(int(rows[0]) if rows else 10**8)
        case ["--first", *rows]:
            first(int(rows[0]) if rows else 300_000)
        case ["--workers"]:
            main(2_000_000, ["local-cluster[1,1,1024]", "local-cluster[2,1,1024]"])
        case arguments:
            main(int(arguments[0]) if arguments else 2_000_000, ["local[2]"])
