"""Features of persons: that nobody changes anybody else, and what making them takes.

    OPENBLAS_NUM_THREADS=1 python bench/features.py fuzz [5000] | speed [3000000]

fuzz: tables that are hard to read in a hundred worlds, whose keys begin with the world's name and nothing else parts
them; of every world one person is removed and all rows are shuffled. Whoever is left must have the same features, to
the bit, and no table may be refused. speed: visits of a sixth as many patients, ten features, beside the same by
DuckDB's own GROUP BY. Seeds are those printed.
"""

from __future__ import annotations

import random
import resource
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd

import sfumato as sf
from sfumato.curator.people import PerPerson
from sfumato.curator.people.opening import PersonTable

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.features import EXPRESSIONS, KEYS, drawn_tables

WORLDS = 100


def features(made: PerPerson, *own: str) -> dict[str, str]:
    """The features of every person, as their texts."""
    opened = PersonTable(made).opened([made.key, *own, *made.features])
    try:
        chosen = ", ".join(column.sql for column in opened.columns.values())
        return {str(row[0]): repr(row[1:]) for row in opened.session.rows(f"SELECT {chosen} FROM {opened.sql}")}
    finally:
        opened.session.close()


def told(tables: Mapping[str, Sequence[Mapping[str, Any]]], said: Mapping[str, str]) -> dict[str, str]:
    """What is said of these tables."""
    frames = {name: pd.DataFrame(list(rows), dtype=object) for name, rows in tables.items()}
    span = (-1000, 1000, "0.01")
    visits = sf.rows(frames["visits"], numbers={"cost": span, "nights": span}, dates=["day"], booleans=["urgent"])
    people = sf.rows(frames["people"], dates=["born"], booleans=["known"])
    drugs = sf.rows(frames["drugs"], numbers={"dose": span})
    return features(sf.per_person(people, key="key", visits=visits, drugs=drugs, columns=said), "area", "born")


def named(world: int, key: str | None) -> str | None:
    """A key of a world; now and then with blanks, quotes and other marks in it."""
    return key and f"{('', chr(39), ' ', ';--', '%')[world % 5]}{world}:{key}"


def fuzz(pairs: int) -> None:
    """Count who changed because somebody else was removed, and tables that were refused."""
    changed = refused = done = seed = 0
    said = {f"f{i}": text for i, text in enumerate(EXPRESSIONS)}
    started = time.process_time()
    while done < pairs:
        drawn = random.Random(seed)
        worlds = [drawn_tables(seed * WORLDS + w, 60) for w in range(WORLDS)]
        present = [sorted({KEYS[r["key"]] for r in world["people"] if r["key"]}) for world in worlds]
        gone = [drawn.choice(names) for names in present]
        whole: dict[str, list[Any]] = {name: [] for name in worlds[0]}
        less: dict[str, list[Any]] = {name: [] for name in worlds[0]}
        for w, world in enumerate(worlds):
            for name, rows in world.items():
                for row in rows:
                    # of a key written in two ways one is kept: after a world's name "1.0" is no number
                    key = None if row["key"] is None else named(w, KEYS[row["key"]])
                    whole[name].append({**row, "key": key})
                    if key != named(w, gone[w]):
                        less[name].append(whole[name][-1])
        for rows in less.values():
            drawn.shuffle(rows)
        try:
            before, after = told(whole, said), told(less, said)
        except sf.SfumatoError as error:
            refused += 1
            print(f"seed {seed}: {error}")
            before, after = {}, {}
        left = {p: v for p, v in before.items() if p not in {named(w, g) for w, g in enumerate(gone)}}
        changed += sum(after.get(p) != v for p, v in left.items()) + abs(len(after) - len(left))
        done, seed = done + WORLDS, seed + 1
        print(
            f"{done:6,} persons removed, {WORLDS} at a time, seeds 0 to {seed - 1}: {changed} others changed, "
            f"{refused} tables refused; {time.process_time() - started:.0f} CPU s",
            flush=True,
        )


COLUMNS = {
    "n_visits": "count(visits)",
    "cost": "sum(visits.cost)",
    "mean": "mean(visits.cost)",
    "most": "max(visits.cost)",
    "least": "min(visits.cost)",
    "emergency": "any(visits.department = 'd0')",
    "emergencies": "count(visits where visits.department = 'd0')",
    "departments": "count(distinct visits.department)",
    "last": "max(visits.date)",
    "readmitted": "any(days(visits.date, previous(visits.date)) <= 30)",
}
BY_HAND = """
SELECT patient, count(*), sum(cost), avg(cost), max(cost), min(cost), bool_or(department = 'd0'),
    count(*) FILTER (department = 'd0'), count(DISTINCT department), max(date), bool_or(date - before <= 30)
FROM (SELECT *, lag(date) OVER (PARTITION BY patient ORDER BY date) AS before FROM '{path}') GROUP BY patient
"""


def speed(count: int) -> None:
    """Ten features of visits in a Parquet file, beside DuckDB's own statement; wall and CPU seconds, and memory."""
    rng = np.random.default_rng(157)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "visits.parquet"
        frame = {
            "patient": rng.integers(0, count // 6, count),
            "date": np.datetime64("2020-01-01") + rng.integers(0, 2_000, count).astype("m8[D]"),
            "department": np.char.add("d", rng.integers(0, 30, count).astype(str)),
            "cost": rng.gamma(2, 400, count).round(2),
        }
        pd.DataFrame(frame).to_parquet(path)
        del frame
        span = (0, 10_000, "0.01")
        visits = sf.rows(str(path), numbers={"cost": span}, dates=["date"])
        for columns in (COLUMNS, {k: v for k, v in COLUMNS.items() if k != "readmitted"}):
            made = sf.per_person(None, key="patient", visits=visits, columns=columns)
            start = time.perf_counter(), time.process_time()
            opened = PersonTable(made).opened(["patient", *columns])
            wall, cpu = time.perf_counter() - start[0], time.process_time() - start[1]
            opened.session.close()
            print(f"{count:,} visits, {len(columns)} features: {wall:.1f} s, {cpu:.1f} CPU s", flush=True)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"peak {peak:.2f} GiB")
        sql = BY_HAND.format(path=path).replace("date - before", "date_diff('day', before, date)")
        start = time.perf_counter(), time.process_time()
        duckdb.connect().execute(f"CREATE TEMP TABLE found AS {sql}")
        print(f"DuckDB's own: {time.perf_counter() - start[0]:.1f} s, {time.process_time() - start[1]:.1f} CPU s")


if __name__ == "__main__":
    what, *size = sys.argv[1:]
    {"fuzz": fuzz, "speed": speed}[what](*(int(n) for n in size or (["5000"] if what == "fuzz" else ["3000000"])))
