"""Beside its peers, several rows a person: one table of 100 cells, at most ten rows of each person, one in each cell.

    python bench/peers_persons.py FOLDER [releases, 10 by default]

FOLDER has the environments of bench/peers.py (`opendp`, `tmlt`), made where they are not there. 20,000 persons with ten
rows in ten different cells (seed 7), so that no bound has to leave any out; 0.5-zCDP for an added or removed person.
rmse is over the cells, against what is in the table; CPU-s are those of one release, of Tumult seconds of the clock.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from peers import environment

DRAWN = """
import json, sys, time, os
import numpy as np, pandas as pd
persons, size, most, releases = 20_000, 100, 10, int(sys.argv[1])
cells = np.argsort(np.random.default_rng(7).random((persons, size)), axis=1)[:, :most].ravel()
frame = pd.DataFrame({"who": np.repeat(np.arange(persons), most), "cell": cells})
true = np.bincount(cells, minlength=size)
def told(release, clock=time.process_time):
    errors, counted = [], []
    for _ in range(releases):
        start = clock()
        found = np.asarray(release(), dtype=float)
        seconds = clock() - start
        errors.append(np.mean((found - true) ** 2))
        counted.append(found.sum() / len(cells))
    print(json.dumps([float(np.sqrt(np.mean(errors))), float(np.mean(counted)), seconds]))
"""
OURS = """
import sfumato as sf
domain = sf.Domain({"cell": sf.Integers(0, size - 1, outside="drop", missing="drop")})
how = {"once_per": ["cell"]} if sys.argv[2] == "once" else {}
plan = sf.plan(
    sf.marginals(domain, order=1), sf.zcdp("0.5"), neighbours="add-remove", person="who", rows_per_person=most, **how
)
told(lambda: sf.release(plan, frame, ledger=None).answers)
"""
OPENDP = """
import polars as pl, opendp.prelude as dp
dp.enable_features("contrib")
rows, groups = pl.DataFrame(frame.to_dict("list")).lazy(), int(sys.argv[2])
def release():
    context = dp.Context.compositor(
        data=rows,
        privacy_unit=dp.unit_of(contributions=1, identifier=pl.col("who")),
        privacy_loss=dp.loss_of(rho=0.5),
        split_evenly_over=1,
    )
    query = context.query().truncate_per_group(1, by=["cell"]).truncate_num_groups(groups, by=["cell"], keep="first")
    query = query.group_by("cell").agg(dp.len()).with_keys(pl.LazyFrame({"cell": np.arange(size)}))
    return query.release().collect().sort("cell")["len"].to_numpy()
told(release)
"""
TUMULT = """
from pyspark.sql import SparkSession
from tmlt.analytics import AddRowsWithID, CountMechanism, KeySet, MaxGroupsPerID, MaxRowsPerGroupPerID
from tmlt.analytics import QueryBuilder, RhoZCDPBudget, Session
os.environ["PYSPARK_PYTHON"] = sys.executable
given = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
given = given.config("spark.sql.shuffle.partitions", "1").config("spark.driver.memory", "2g")
rows = given.getOrCreate().createDataFrame(frame.astype(str)).cache()
rows.count()
keys = KeySet.from_dict({"cell": [str(i) for i in range(size)]})
def release():
    session = Session.from_dataframe(
        RhoZCDPBudget(0.5), "rows", rows, protected_change=AddRowsWithID(id_column="who")
    )
    query = QueryBuilder("rows").enforce(MaxGroupsPerID("cell", most)).enforce(MaxRowsPerGroupPerID("cell", 1))
    query = query.groupby(keys).count(name="n", mechanism=CountMechanism.GAUSSIAN)
    answered = session.evaluate(query, RhoZCDPBudget(0.5)).toPandas()
    out = np.zeros(size)
    out[answered["cell"].astype(int)] = answered["n"]
    return out
told(release, time.time)
"""


def main(folder: str, releases: str = "10") -> None:
    """Print the table."""
    place = Path(folder).resolve()
    print("| | rmse | rows counted | s |\n|---|---|---|---|")
    for title, where, code, how in [
        ("sfumato, `once_per`", "", OURS, "once"),
        ("sfumato, rows anywhere", "", OURS, "any"),
        ("OpenDP, ten groups", "opendp", OPENDP, "10"),
        ("OpenDP, eleven groups", "opendp", OPENDP, "11"),
        ("Tumult Analytics", "tmlt", TUMULT, ""),
    ]:
        python = environment(place, where) if where else Path(sys.executable)
        with tempfile.TemporaryDirectory() as own:
            done = subprocess.run(
                [str(python), "-c", DRAWN + code, releases, how], cwd=own, capture_output=True, text=True, check=False
            )
        try:
            rmse, counted, seconds = json.loads(done.stdout.splitlines()[-1])
            print(f"| {title} | {rmse:.3g} | {counted:.1%} | {seconds:.2f} |", flush=True)
        except (ValueError, IndexError):
            reason = (done.stderr.strip().splitlines() or ["no output"])[-1]
            print(f"| {title} | could not be run: {reason[:160]} | | |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
