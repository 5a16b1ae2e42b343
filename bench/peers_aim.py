"""AIM of its authors in repeated draws: all triples of five attributes of Adult, delta 1e-9, add-remove.

    python bench/peers_aim.py FOLDER FILE [--epsilons .1,1,10] [--draws 20]    # appends a line to FILE after each draw
    python bench/peers_aim.py FOLDER FILE --told                               # what FILE has, as a table

The environment of bench/peers.py and its checkout are used; the rows are those of bench/ladder.py ("adult"). Draw i
has the seed i. Mean over tables of sum |answer - truth| / n, of the ten triples and pairs, read off AIM's model;
standard errors in brackets. CPU-s of a draw hold its synthetic records, and those of the first what JAX compiles. Draws
that FILE has already are not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from peers import checkout, environment

DRAWS = """
import contextlib, io, itertools, json, sys, time, warnings
warnings.filterwarnings("ignore")
import numpy as np, pandas as pd
given, checkout, kept, epsilons, draws = sys.argv[1:]
sys.path[:0] = [checkout + "/mechanisms", checkout + "/src"]
import aim, mbi
codes = np.load(given)["codes"]
names = [f"a{i}" for i in range(codes.shape[1])]
data = mbi.Dataset(pd.DataFrame(codes, columns=names), mbi.Domain(names, (codes.max(axis=0) + 1).tolist()))
tables = {k: list(itertools.combinations(names, k)) for k in (2, 3)}
truth = {t: data.project(t).datavector() for k in tables for t in tables[k]}
try:
    done = {(r["epsilon"], r["draw"]) for r in map(json.loads, open(kept))}
except FileNotFoundError:
    done = set()
for epsilon, draw in itertools.product(epsilons.split(","), range(int(draws))):
    if (epsilon, draw) in done:
        continue
    np.random.seed(draw)
    start = time.process_time()
    with contextlib.redirect_stdout(io.StringIO()):
        model, _ = aim.AIM(float(epsilon), 1e-9).run(data, [(t, 1.0) for t in tables[3]])
    cpu = time.process_time() - start
    told = {"epsilon": epsilon, "draw": draw, "cpu": cpu}
    for name, order in (("triples", 3), ("pairs", 2)):
        off = [np.abs(model.project(t).datavector() - truth[t]).sum() for t in tables[order]]
        told[name] = float(np.mean(off)) / len(codes)
    with open(kept, "a") as file:
        print(json.dumps(told), file=file)
"""


def told(kept: Path) -> None:
    """Print means and their standard errors."""
    runs = [json.loads(line) for line in kept.read_text().splitlines()]
    print("| epsilon | draws | triples | pairs | CPU-s |\n|---|---|---|---|---|")
    for epsilon in dict.fromkeys(run["epsilon"] for run in runs):
        of = [run for run in runs if run["epsilon"] == epsilon]
        cells = []
        for what in ("triples", "pairs"):
            values = np.array([run[what] for run in of])
            spread = f" ({values.std(ddof=1) / len(of) ** 0.5:.2g})" if len(of) > 1 else ""
            cells.append(f"{values.mean():.3g}{spread}")
        print(f"| {epsilon} | {len(of)} | {cells[0]} | {cells[1]} | {np.mean([run['cpu'] for run in of]):.3g} |")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("kept", type=Path)
    parser.add_argument("--epsilons", default=".1,1,10")
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--told", action="store_true")
    chosen = parser.parse_args()
    folder, kept = chosen.folder.resolve(), chosen.kept.resolve()
    if not chosen.told:
        from adaptive_regimes import held_of

        held = held_of("adult")
        assert held is not None
        one = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        with tempfile.TemporaryDirectory() as place:
            path = Path(place) / "rows.npz"
            np.savez(path, codes=np.stack(list(held.values()), axis=1))
            run = [environment(folder, "aim"), "-c", DRAWS, path, checkout(folder, "AIM"), kept, chosen.epsilons]
            own = os.environ | {"XLA_FLAGS": one, "JAX_PLATFORMS": "cpu"}
            subprocess.run([*map(str, run), str(chosen.draws)], cwd=place, env=own, check=True)
    told(kept)


if __name__ == "__main__":
    main()
