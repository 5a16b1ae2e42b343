"""Beside its peers, prefixes inside tables: expected rmse of all tables of one, two or three attributes, without data.

    python bench/peers_unions.py FOLDER [--tables CPS,Loans,Adult] [--orders 1,2,3] [--limit 600]

The three domains of ResidualPlanner+ and QuerySmasher (sizes in bench/tilted.py): cumulative along the first ones,
which are numeric, cells of the others. Root mean squared error over all queries at noise multiplier 1, one record added
or removed; CPU-s of planning, imports left out. Checkouts and environments are those of bench/peers.py. Peers' numbers
are their own: what their classes say of the strategy that they found. `limit` is the CPU-s of one run of a peer.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import time
from pathlib import Path

from peers import checkout, environment
from tilted import TABLES, prefixes

import sfumato as sf

ASKED = """
import itertools, json, sys, time
import numpy as np
place, sizes, numeric, order = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
tables = list(itertools.combinations(range(len(sizes)), order))
queries = sum(int(np.prod([sizes[i] for i in table])) for table in tables)
def told(variance):
    print(json.dumps([(variance / queries) ** 0.5, time.process_time() - start]))
"""
PEERS = {
    "ResidualPlanner+": (
        "rpplus",
        """
import types
unused = {"gurobipy": {"GRB": None}, "resplan.parameter": {"options": {}}}  # a solver that is not asked here
for name, held in unused.items():
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(held)
sys.path.insert(0, place)
sys.argv = sys.argv[:1]
from resplan import ResPlanSum
start = time.process_time()
planner = ResPlanSum(sizes, ["P"] * numeric + ["I"] * (len(sizes) - numeric))
for table in tables:
    planner.input_mech(table)
told(planner.get_noise_level())
""",
    ),
    "QuerySmasher": (
        "qs",
        """
sys.path.insert(0, place)
from query import KronQuery
from smasher import Smasher
start = time.process_time()
smasher = Smasher(sizes, privacy_cost=1.0, default_solver="convex", verbose=False)
factors = [np.tril(np.ones((n, n))) if i < numeric else np.eye(n) for i, n in enumerate(sizes)]
for table in tables:
    smasher.add_queries_to_workload([KronQuery(sizes, table, [factors[i] for i in table])])
smasher.optimize()
told(smasher.workload_variance())
""",
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tables", default="CPS,Loans,Adult")
    parser.add_argument("--orders", default="1,2,3")
    parser.add_argument("--limit", type=int, default=600)
    chosen = parser.parse_args()
    folder = chosen.folder.resolve()
    print(f"| | sfumato (proved bound), CPU-s | {' | '.join(f'{n}, CPU-s' for n in PEERS)} |\n|---|---|---|---|")
    for table in chosen.tables.split(","):
        sizes, numeric = TABLES[table]
        for order in map(int, chosen.orders.split(",")):
            work, start = prefixes(sizes, numeric, [order]), time.process_time()
            plan = sf.plan(work, sf.gdp(1), neighbours="add-remove", mechanism="marginals", objective="cells")
            cells = [f"{plan.rmse:.4g} ({plan.lower_bound:.4g}), {time.process_time() - start:.1f}"]
            for name, (where, code) in PEERS.items():
                run = [environment(folder, where), "-c", ASKED + code, checkout(folder, name), json.dumps(sizes)]
                done = subprocess.run(
                    [*map(str, run), str(numeric), str(order)],
                    env=os.environ | {"OMP_NUM_THREADS": "1"},
                    capture_output=True,
                    text=True,
                    check=False,
                    preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (chosen.limit, chosen.limit)),
                )
                if done.returncode < 0:
                    cells.append(f"not within {chosen.limit} CPU-s")
                elif done.returncode:
                    cells.append("could not be run: " + (done.stderr.strip().splitlines() or ["no output"])[-1][:120])
                else:
                    rmse, seconds = json.loads(done.stdout.splitlines()[-1])
                    cells.append(f"{rmse:.4g}, {seconds:.1f}")
            print(f"| {table} {order} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
