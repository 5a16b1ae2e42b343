"""Tables of Spark against the same rows in one process: CPU seconds of all processes, memory, equal digests of counts.

    OPENBLAS_NUM_THREADS=1 python bench/spark.py [rows, 2,000,000]       # local[2]
    OPENBLAS_NUM_THREADS=1 python bench/spark.py --workers               # local-cluster of 1 and of 2 executors
    OPENBLAS_NUM_THREADS=1 python bench/spark.py --wide                  # memory at 161,700 tables of 1,000 cells

The rows are those of bench/engines.py. A road is taken three times in one session: the first time Java compiles.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from engines import OTHER, domain, triples

import sfumato as sf
from sfumato.plans.packing import pack
from sfumato.wall.rows.sources import open_source
from support.spark import SETTINGS

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


def spent() -> dict[str, float]:
    """CPU seconds so far: of this process, of Java, and of the workers that have not ended."""
    found: dict[int, tuple[int, str, float]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                head, _, tail = (entry / "stat").read_text().rpartition(")")
            except OSError:
                continue
            fields = tail.split()
            found[int(entry.name)] = int(fields[1]), head.partition("(")[2], sum(map(int, fields[11:13])) / TICKS
    sums = {"here": 0.0, "java": 0.0, "workers": 0.0}
    todo = [os.getpid()]
    while todo:
        number = todo.pop()
        if number in found:
            kind = "here" if number == os.getpid() else "java" if found[number][1] == "java" else "workers"
            sums[kind] += found[number][2]
        todo += [p for p, (above, _, _) in found.items() if above == number]
    return sums


def since(before: dict[str, float]) -> dict[str, float]:
    """CPU seconds by process."""
    return {name: round(value - before[name], 2) for name, value in spent().items()}


def session(master: str) -> Any:
    """A session that compiles for long runs."""
    warnings.simplefilter("ignore")
    import pyspark
    from pyspark.sql import SparkSession

    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_HOME": str(Path(pyspark.__file__).parent)}
    builder = SparkSession.builder.master(master)
    for key, value in (SETTINGS | {"spark.driver.extraJavaOptions": "-XX:+UseSerialGC"}).items():
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
        counts: Any = open_source(frame, whole, person=person, rows_per_person=2 if person else 1, packing=pack)
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
    counts = open_source(frame, sf.Domain({n: sf.Integers(0, 8, **OTHER) for n in names}), packing=pack)
    sets = [np.array(list(itertools.combinations(range(100), 3)), dtype=np.int32)]
    before, tables = spent(), 0
    for _, positions, _ in counts.stream(sets):
        tables += len(positions)
    peaks = {"here": "self", "java": str(spark.sparkContext._gateway.proc.pid)}  # noqa: SLF001
    for name, process in peaks.items():
        (line,) = [x for x in Path(f"/proc/{process}/status").read_text().splitlines() if x.startswith("VmHWM")]
        print(f"  {name}: peak {int(line.split()[1]) // 1024} MB")
    print(f"  {tables:,} tables, {since(before)} CPU-s")
    spark.stop()


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
        case ["--workers"]:
            main(2_000_000, ["local-cluster[1,1,1024]", "local-cluster[2,1,1024]"])
        case arguments:
            main(int(arguments[0]) if arguments else 2_000_000, ["local[2]"])
