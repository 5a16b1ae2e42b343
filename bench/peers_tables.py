"""Beside its peers: labels that nobody listed, and two tables joined.

    python bench/peers_tables.py FOLDER [--only labels|joins|diagnoses]

Environments are those of bench/peers.py. labels: 100,000 records with labels by Zipf's law of exponent 1 among 5,000
(generator 3), (1, 1e-6) for an added or removed record: how many labels are shown, and the rmse of the counts of those,
in records. joins: 20,000 patients in ten groups of age with three visits each, in different ones of 20 departments
(generator 5); visits by department and age, 0.5-zCDP for an added or removed patient, rmse over 200 cells. Means of
five releases, of Tumult two; seconds of the clock. diagnoses: the 3,000 diagnoses of bench/labels.py (50,000 patients,
six visits each, Zipf exponents .5 and 1, generator 2), all of (1, 1e-6) finding labels: how many Tumult shows where k
of a patient's visits count (1, 2, 3, 6), and in how many of five looks all of the true twenty.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from peers import environment

LABELS = """
import json, sys, time
import numpy as np, pandas as pd
rng = np.random.default_rng(3)
weights = 1 / np.arange(1, 5001)
codes = np.searchsorted(np.cumsum(weights) / weights.sum(), rng.random(100_000))
frame = pd.DataFrame({"d": np.char.add("D", codes.astype(str))})
true = frame["d"].value_counts().to_dict()
def told(release, times=5):
    many, off = [], []
    for _ in range(times):
        start = time.time()
        found = release()
        seconds = time.time() - start
        many.append(len(found))
        off.append(np.mean([(n - true[d]) ** 2 for d, n in found.items()]))
    print(json.dumps([float(np.mean(many)), float(np.sqrt(np.mean(off))), seconds]))
"""
SPARK = """
import os
from pyspark.sql import SparkSession
from tmlt.analytics import *
os.environ["PYSPARK_PYTHON"] = sys.executable
given = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
given = given.config("spark.sql.shuffle.partitions", "1").config("spark.driver.memory", "2g")
spark = given.getOrCreate()
"""
OF_KEYS = """
import sfumato as sf
plan = sf.plan(
    sf.Keys("d", kind="text"), BUDGET, neighbours="add-remove",
    mechanism=sf.mechanisms.hybrid(share="31/32", width=1024),
)
def release():
    found = sf.release(plan, frame, ledger=None).top(5_000)
    return dict(zip(found["key"], found["records"]))
told(release)
"""
OF_LABELS = {
    "sfumato, `discover=0.2`": (
        "",
        """
import sfumato as sf
domain = sf.Domain({"d": sf.Categories(discover=0.2, most=5_000, missing="other")})
plan = sf.plan(
    sf.marginals(domain, order=1), sf.approx(1, "1e-6", thresholds="5e-7"), neighbours="add-remove"
)
def release():
    table = sf.release(plan, frame, ledger=None).table("d").to_pandas().iloc[:-1]
    return dict(zip(table["d"], table["answer"]))
told(release)
""",
    ),
    "sfumato, `sf.Keys`, one look, Gaussian": (
        "",
        OF_KEYS.replace("BUDGET", 'sf.approx(1, "1e-6", thresholds="5e-7")'),
    ),
    "sfumato, `sf.Keys`, one look": ("", OF_KEYS.replace("BUDGET", 'sf.approx(1, "1e-6")')),
    "OpenDP": (
        "opendp",
        """
import polars as pl, opendp.prelude as dp
dp.enable_features("contrib")
rows = pl.DataFrame(frame.to_dict("list")).lazy()
def release():
    context = dp.Context.compositor(
        data=rows, privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(epsilon=1.0, delta=1e-6), split_evenly_over=1,
    )
    found = context.query().group_by("d").agg(dp.len()).release().collect()
    return dict(zip(found["d"], found["len"]))
told(release)
""",
    ),
    "Tumult Analytics": (
        "tmlt",
        SPARK
        + """
rows = spark.createDataFrame(frame)
def release():
    session = Session.from_dataframe(ApproxDPBudget(1, 1e-6), "rows", rows, protected_change=AddOneRow())
    keys = session.evaluate(QueryBuilder("rows").get_groups(["d"]), ApproxDPBudget(0.2, 1e-6))
    counts = QueryBuilder("rows").groupby(KeySet.from_dataframe(keys)).count(name="n")
    found = session.evaluate(counts, ApproxDPBudget(0.8, 0)).toPandas()
    return dict(zip(found["d"], found["n"]))
told(release, 2)
""",
    ),
    "Google's library": (
        "google",
        """
from pydp.algorithms.laplacian import Count
from pydp.algorithms.partition_selection import create_truncated_geometric_partition_strategy
find = create_truncated_geometric_partition_strategy(0.2, 1e-6, 1)
def release():
    kept = [d for d, n in true.items() if find.should_keep(n)]
    return {d: Count(epsilon=0.8, dtype="int").quick_result([1] * true[d]) for d in kept}
told(release)
""",
    ),
}
DIAGNOSES = """
import json, sys, time
import numpy as np, pandas as pd
exponent, k = float(sys.argv[1]), int(sys.argv[2])
weights = np.arange(1, 3001) ** -exponent
draws = np.random.default_rng(2).random(300_000)
codes = np.searchsorted(np.cumsum(weights) / weights.sum(), draws)
frame = pd.DataFrame({"who": np.repeat(np.arange(50_000), 6), "d": np.char.add("D", codes.astype(str))})
true = {f"D{i}" for i in np.argsort(-np.bincount(codes), kind="stable")[:20]}
"""
OF_DIAGNOSES = """
rows = spark.createDataFrame(frame)
shown, start = [], time.time()
for _ in range(5):
    session = Session.from_dataframe(
        ApproxDPBudget(1, 1e-6), "rows", rows, protected_change=AddRowsWithID("who")
    )
    found = session.evaluate(
        QueryBuilder("rows").enforce(MaxRowsPerID(k)).get_groups(["d"]), ApproxDPBudget(1, 1e-6)
    )
    shown.append(set(found.toPandas()["d"]))
print(json.dumps([float(np.mean([*map(len, shown)])), sum(true <= s for s in shown), (time.time() - start) / 5]))
"""
JOINS = """
import json, sys, time
import numpy as np, pandas as pd
rng = np.random.default_rng(5)
patients, ages, departments, most = 20_000, 10, 20, 3
age = rng.integers(0, ages, patients)
ward = np.argsort(rng.random((patients, departments)), axis=1)[:, :most].ravel()
who = np.repeat(np.arange(patients), most)
people = pd.DataFrame({"who": np.arange(patients), "age": age})
visits = pd.DataFrame({"who": who, "ward": ward})
true = np.bincount(ward * ages + age[who], minlength=departments * ages)
def told(release, times=5):
    off, seconds = [], 0.0
    for _ in range(times):
        start = time.time()
        found = release()
        seconds = time.time() - start
        off.append(np.mean((np.asarray(found, dtype=float) - true) ** 2))
    print(json.dumps([len(true), float(np.sqrt(np.mean(off))), seconds]))
"""
OF_JOINS = {
    "sfumato, `sf.joined`, `once_per`": (
        "",
        """
import sfumato as sf
exact = {"outside": "drop", "missing": "drop"}
domain = sf.Domain({"ward": sf.Integers(0, departments - 1, **exact), "age": sf.Integers(0, ages - 1, **exact)})
plan = sf.plan(
    sf.marginals(domain, order=2), sf.zcdp("0.5"), neighbours="add-remove", person="who", rows_per_person=most,
    once_per=["ward"],
)
def release():
    both = sf.joined(visits, people, key="who", columns=["age"])
    return sf.release(plan, both, ledger=None).table("ward", "age").values.reshape(-1)
told(release)
""",
    ),
    "Tumult Analytics, `join_private`": (
        "tmlt",
        SPARK
        + """
unit = AddRowsWithID(id_column="who")
held = {"people": spark.createDataFrame(people.astype(str)), "visits": spark.createDataFrame(visits.astype(str))}
keys = KeySet.from_dict({"ward": [str(i) for i in range(departments)], "age": [str(i) for i in range(ages)]})
def release():
    made = Session.Builder().with_privacy_budget(RhoZCDPBudget(0.5)).with_id_space("who")
    for name, rows in held.items():
        made = made.with_private_dataframe(name, rows, protected_change=AddRowsWithID(id_column="who", id_space="who"))
    query = QueryBuilder("visits").join_private("people").enforce(MaxGroupsPerID("ward", most))
    query = query.enforce(MaxRowsPerGroupPerID("ward", 1)).groupby(keys)
    query = query.count(name="n", mechanism=CountMechanism.GAUSSIAN)
    found = made.build().evaluate(query, RhoZCDPBudget(0.5)).toPandas()
    out = np.zeros((departments, ages))
    out[found["ward"].astype(int), found["age"].astype(int)] = found["n"]
    return out.reshape(-1)
told(release, 2)
""",
    ),
    "OpenDP, `join`": (
        "opendp",
        """
import polars as pl, opendp.prelude as dp
dp.enable_features("contrib")
left, right = (pl.DataFrame(t.to_dict("list")).lazy() for t in (visits, people))
keys = pl.LazyFrame({"ward": np.repeat(np.arange(departments), ages), "age": np.tile(np.arange(ages), departments)})
def release():
    context = dp.Context.compositor(
        data=left, privacy_unit=dp.unit_of(contributions=1, identifier=pl.col("who")),
        privacy_loss=dp.loss_of(rho=0.5), split_evenly_over=1,
    )
    query = context.query().join(right, on="who")
    query = query.truncate_per_group(1, by=["ward", "age"])
    query = query.truncate_num_groups(most + 1, by=["ward", "age"], keep="first")
    found = query.group_by("ward", "age").agg(dp.len()).with_keys(keys).release().collect().sort("ward", "age")
    return found["len"].to_numpy()
told(release)
""",
    ),
}


def table(folder: Path, head: str, shared: str, runs: dict[str, tuple[str, str]]) -> None:
    print(f"| | {head} | rmse | s |\n|---|---|---|---|")
    for title, (where, code) in runs.items():
        python = environment(folder, where) if where else Path(sys.executable)
        with tempfile.TemporaryDirectory() as own:
            run = [str(python), "-c", shared + code]
            done = subprocess.run(run, cwd=own, capture_output=True, text=True, check=False, timeout=600)
        try:
            many, rmse, seconds = json.loads(done.stdout.splitlines()[-1])
            print(f"| {title} | {many:,.0f} | {rmse:.3g} | {seconds:.2f} |", flush=True)
        except (ValueError, IndexError):
            reason = (done.stderr.strip().splitlines() or ["no output"])[-1]
            print(f"| {title} | could not be run: {reason[:300]} | | |", flush=True)


def diagnoses(folder: Path) -> None:
    """How many of 3,000 diagnoses Tumult shows, and in how many of five looks all of the true twenty."""
    python = environment(folder, "tmlt")
    print("| exponent, visits of a patient | labels shown | all of the true twenty, of 5 | s |\n|---|---|---|---|")
    for exponent in ("0.5", "1"):
        for visits in ("1", "2", "3", "6"):
            with tempfile.TemporaryDirectory() as own:
                run = [str(python), "-c", DIAGNOSES + SPARK + OF_DIAGNOSES, exponent, visits]
                try:
                    done = subprocess.run(run, cwd=own, capture_output=True, text=True, check=False, timeout=600)
                except subprocess.TimeoutExpired:  # the others are still worth a try
                    print(f"| {exponent}, {visits} | no five looks within 600 s | | |", flush=True)
                    continue
            if done.returncode:
                said = (done.stderr.strip().splitlines() or ["no output"])[-1][:300]
            else:
                many, whole, seconds = json.loads(done.stdout.splitlines()[-1])
                said = f"{many:,.0f} | {whole} | {seconds:.1f}"
            print(f"| {exponent}, {visits} | {said} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", choices=["labels", "joins", "diagnoses"])
    chosen = parser.parse_args()
    folder = chosen.folder.resolve()
    if chosen.only in (None, "labels"):
        table(folder, "labels shown", LABELS, OF_LABELS)
    if chosen.only in (None, "joins"):
        table(folder, "cells", JOINS, OF_JOINS)
    if chosen.only in (None, "diagnoses"):
        diagnoses(folder)


if __name__ == "__main__":
    main()
