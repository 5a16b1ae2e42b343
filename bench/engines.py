"""Tables on a server against the same rows in a file: CPU seconds of both sides, memory, and equal digests of counts.

    OPENBLAS_NUM_THREADS=1 python bench/engines.py [rows of the large table, 0 for none]

It starts a Postgres of its own (tests/support/postgres.py) and makes 1,000,000 rows of fifteen attributes. Every road
runs in a process of its own. Of the server, CPU seconds are those of its processes that ended.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import sfumato as sf
from sfumato.curator.rows.sources import open_source
from sfumato.plans.packing import pack_tables
from support.postgres import Server, missing, server

ROWS = 1_000_000
OTHER: dict[str, Any] = {"outside": "other", "missing": "other"}
TABLE = """CREATE UNLOGGED TABLE {name} AS SELECT
 CASE WHEN random() < .02 THEN NULL ELSE (random() * 99)::int2 END AS age,
 CASE WHEN random() < .02 THEN NULL ELSE (ARRAY['1','2','3','4','5','6'])[1 + floor(random() * 6)::int] END AS class,
 CASE WHEN random() < .02 THEN 'NaN'::float8 ELSE random() * 1.1e5 END AS wages,
 (ARRAY['female','male','x'])[1 + floor(random() * 3)::int] AS sex,
 lpad(floor(random() * 53)::text, 2, '0') AS state, floor(random() * 10)::int AS i6, floor(random() * 7)::int AS i7,
 floor(random() * 5)::bigint AS i8, random() < .5 AS b9,
 (ARRAY['a','b','c','d','e','f','g'])[1 + floor(random() * 7)::int] AS c10, (random() * 50)::float4 AS f11,
 (ARRAY['never','married','widowed','divorced'])[1 + floor(random() * 4)::int] AS c12, floor(random() * 15)::int AS i13,
 (ARRAY['u','v','w'])[1 + floor(random() * 3)::int] AS c14, floor(random() * 30)::int AS i15,
 'person ' || floor(random() * {rows} / 3)::int AS who
 FROM generate_series(1, {rows})"""


def domain() -> sf.Domain:
    """Fifteen attributes of 3 to 52 cells."""
    return sf.Domain(
        {
            "age": sf.Integers(0, 99, width=5, **OTHER),
            "class": sf.Categories(list("123456"), **OTHER),
            "wages": sf.Bins([0, 10_000, 25_000, 50_000, 100_000], **OTHER),
            "sex": sf.Categories(["female", "male"], **OTHER),
            "state": sf.Categories([f"{i:02d}" for i in range(51)], **OTHER),
            "i6": sf.Integers(0, 8, **OTHER),
            "i7": sf.Integers(0, 5, **OTHER),
            "i8": sf.Integers(0, 4, **OTHER),
            "b9": sf.Booleans(**OTHER),
            "c10": sf.Categories(list("abcdef"), **OTHER),
            "f11": sf.Bins([0, 10, 20, 30, 40], **OTHER),
            "c12": sf.Categories(["never", "married", "widowed"], **OTHER),
            "i13": sf.Integers(0, 13, **OTHER),
            "c14": sf.Categories(["u", "v"], **OTHER),
            "i15": sf.Integers(0, 28, **OTHER),
        }
    )


def triples(source: str, person: str | None) -> None:
    """Count all tables of three attributes; say CPU seconds, peak MB and a digest of the counts."""
    if "://" in source:
        import adbc_driver_postgresql  # noqa: F401  # imports are no reading
        import pyarrow  # noqa: F401
    whole = domain()
    names = [n for n in whole.names if n != person]
    before = time.process_time()
    counts = open_source(source, whole, person=person, rows_per_person=2 if person else 1, packing=pack_tables)
    sets = [np.array(list(itertools.combinations(range(len(names)), 3)), dtype=np.int32)]
    found: dict[int, bytes] = {}
    for _, positions, tables in counts.stream(sets):
        for i, table in zip(positions.tolist(), tables, strict=True):
            found[i] = hashlib.sha256(np.ascontiguousarray(table).data).digest()
    spent = time.process_time() - before
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    digest = hashlib.sha256(b"".join(found[i] for i in sorted(found))).hexdigest()[:16]
    print(f"{spent:.2f} {peak} {len(found)} {digest}")


def road(of: Server, source: str, *more: str) -> tuple[float, float, int, str]:
    """(CPU seconds here, of the server, peak MB here, digest) of one road in a process of its own."""
    before = served(of)
    command = [sys.executable, __file__, "--road", source, *more]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    time.sleep(1)
    return float(said[0]), served(of) - before, int(said[1]), said[3]


def served(of: Server) -> float:
    """CPU seconds of the server and its children that ended."""
    process = (of.folder / "data" / "postmaster.pid").read_text().split()[0]
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def grouped(of: Server) -> float:
    """CPU seconds of one GROUP BY for each of the blocks that are counted together, on a table of cell numbers."""
    whole = domain()
    sets = [np.array(list(itertools.combinations(range(len(whole.names)), 3)), dtype=np.int32)]
    blocks, _ = pack_tables([a.size for a in whole.attributes.values()], sets, ROWS)
    cells = [
        f"(hashtext({n}::text) & 2147483647) % {a.size} AS a{i}" for i, (n, a) in enumerate(whole.attributes.items())
    ]
    of.run("DROP TABLE IF EXISTS cells", f"CREATE UNLOGGED TABLE cells AS SELECT {', '.join(cells)} FROM people")
    before = served(of)
    here = time.process_time()
    for block in blocks.tolist():
        kept = ", ".join(f"a{i}" for i in block if i < len(whole.names))
        of.run(f"SELECT {kept}, count(*) FROM cells GROUP BY {kept}")
    here = time.process_time() - here
    time.sleep(1)
    print(f"GROUP BY, {len(blocks)} blocks: server {served(of) - before:.1f} and client {here:.1f} CPU-s")
    return served(of) - before + here


def export(of: Server, path: Path) -> None:
    """The same rows as Parquet."""
    import adbc_driver_postgresql.dbapi as driver
    import pyarrow.parquet as pq

    with driver.connect(of.uri()) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT * FROM people")
        reader = cursor.fetch_record_batch()
        with pq.ParquetWriter(path, reader.schema) as writer:
            for batch in reader:
                writer.write_batch(batch)


def main(large: int) -> None:
    """All roads once."""
    with server() as of, tempfile.TemporaryDirectory() as folder:
        of.run(TABLE.format(name="people", rows=ROWS))
        file = Path(folder) / "people.parquet"
        export(of, file)
        for person in ([], ["who"]):
            local, remote = road(of, str(file), *person), road(of, of.address("people"), *person)
            total = remote[0] + remote[1]
            print(
                f"{ROWS:,} rows, 455 tables{', persons' if person else ''}: Parquet {local[0]:.2f} CPU-s, {local[2]} MB"
            )
            print(
                f"  Postgres: client {remote[0]:.2f}, server {remote[1]:.2f}, {total / local[0]:.2f} x, {remote[2]} MB"
            )
            print(f"  digests {'equal' if local[3] == remote[3] else 'DIFFER'}: {local[3]}")
            if not person:
                print(f"  against one GROUP BY a block: 1/{grouped(of) / total:.1f}")
        if large:
            of.run("DROP TABLE people", TABLE.format(name="people", rows=large))
            start = time.monotonic()
            here, there, peak, _ = road(of, of.address("people"))
            wall = time.monotonic() - start
            print(f"{large:,} rows: client {here:.0f}, server {there:.0f} CPU-s, {peak} MB, {wall:.0f} s of the clock")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--road"]:
        triples(sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else None)
    elif missing() is not None:
        print(missing())
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
