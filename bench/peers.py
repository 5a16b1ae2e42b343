"""Beside its peers: the same work on the same rows under the same guarantee, each peer in an environment of its own.

python bench/peers.py FOLDER                # installs what installs into FOLDER/NAME, runs all, prints the table
python bench/peers.py FOLDER --only opendp  # one of them
python bench/peers.py FOLDER --means        # means of money by 50 groups, in place of the tables
Versions are pinned. Those that no registry has are cloned at a pinned commit into FOLDER/src/NAME, where they are not there;
where that cannot be, the row says which commit to put where, and the others go on. dpsynth wants a `python3.12`. Each peer has 10 minutes of CPU.

Work: all 10 tables over two of five attributes of the bundled Adult table (48,842 rows; 17, 8, 6, 7 and 3 cells), under
0.02-zCDP for added or removed records, and the mean of 5 releases. `rmse` is over all 679 cells, against the exact counts.
CPU-s are those of one release, without imports; MB the largest resident size of the process, imports included. Prefix sums of
256 cells are compared without data, by their exact expected errors at noise multiplier 1. Means are of 100,000 drawn
numbers from 0 to 50,000 (seed 1), some of which lie low and some anywhere, by 50 groups: their errors times the records
of a group over the range.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path

import numpy as np

RHO, REPEATED, CELLS = 0.02, 5, 256
LIMIT = 600  # CPU-s of a peer, compiling included: what takes longer is not waited for here
NAMES = ("education", "marital_status", "race", "relationship", "income")
REQUIRED = {
    "opendp": ["opendp[polars,mbi]==0.16.0", "polars==1.36.1", "pandas"],
    "mbi": ["mbi==2.0.0"],
    "aim": ["mbi==1.1.0", "jax==0.6.2", "pandas==2.2.3", "matplotlib", "networkx", "scipy", "attrs"],  # old as its code
    "smart": ["smartnoise-synth==1.0.8"],
    "tmlt": ["tmlt.analytics==0.21.0"],
    "diffp": ["diffprivlib==0.6.6", "scikit-learn==1.5.2"],  # a newer one lacks a name that it imports
    "jaxp": ["jax-privacy==2.0.0"],
    "rpenv": ["numpy", "scipy", "pandas", "cvxpy"],
    "rpplus": [
        "numpy==1.26.4",
        "scipy==1.13.1",
        "pandas==2.2.3",
        "cvxpy==1.6.5",
        "matplotlib==3.9.4",
        "tabulate",
        "tqdm",
    ],
    "qs": ["torch==2.13.0", "cvxpy==1.6.5"],
    "google": ["python-dp==1.1.5", "numpy<2", "pandas"],
    "hdmm": ["numpy", "scipy", "autograd", "future", "setuptools"],
    "dpsynth": [
        *("jax[cpu]==0.11.0", "dp-accounting", "attrs", "pandas", "pydantic>=2", "pyyaml"),
        *("more-itertools", "networkx", "scipy", "tqdm", "absl-py", "optax", "chex", "etils"),
    ],
}
PYTHONS = {"dpsynth": "python3.12"}  # the others take the one that runs this
CHECKOUTS = {
    "ResidualPlanner": ("dkifer/ResidualPlanner", "ef9c170"),
    "ResidualPlanner+": ("cmla-psu/ResidualPlannerPlus", "82a9a89"),
    "QuerySmasher": ("cmla-psu/QuerySmasherMatrixMechanism", "2210155"),
    "AIM": ("ryan112358/private-pgm", "4d2b3c5"),
    "HDMM": ("dpcomp-org/hdmm", "5aa9df9"),
    "dpsynth": ("google/dpsynth", "cf8075f"),
    "mbi": ("ryan112358/mbi", "361705d"),
}

SHARED = """
import sys, json, time, resource, itertools, warnings, math
warnings.filterwarnings("ignore")
import numpy as np
given = np.load(sys.argv[1]); codes, sizes = given["codes"], given["sizes"].tolist(); names = [str(n) for n in given["names"]]
rho, repeated = float(given["rho"]), int(given["repeated"])
pairs = list(itertools.combinations(range(len(sizes)), 2))
def exact(i, j):
    return np.bincount(codes[:, i] * sizes[j] + codes[:, j], minlength=sizes[i] * sizes[j]).reshape(sizes[i], sizes[j])
def finish(runs, versions, note=""):
    errors, seconds = [], []
    for _ in range(repeated):
        start = time.process_time()
        found = runs()
        seconds.append(time.process_time() - start)
        diff = np.concatenate([(np.asarray(found[p]).reshape(-1) - exact(*p).reshape(-1)) for p in pairs])
        errors.append(float((diff ** 2).mean()))
    told = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps({"rmse": math.sqrt(np.mean(errors)), "cpu": float(np.median(seconds)), "first": seconds[0], "mb": told, "versions": versions, "note": note}))
"""

THEIRS = {
    "mbi": (
        "mbi",
        """
import mbi
from mbi import estimation
from importlib.metadata import version
domain = mbi.Domain(names, sizes)
def runs():
    rng = np.random.default_rng()
    sigma = math.sqrt(len(pairs) / (2 * rho))  # each of the ten tables has a tenth of rho
    taken = [mbi.LinearMeasurement(exact(i, j).reshape(-1) + rng.normal(0, sigma, sizes[i] * sizes[j]), (names[i], names[j]), sigma) for i, j in pairs]
    model = estimation.MirrorDescent().estimate(domain, taken, iters=1000)
    return {(i, j): model.project((names[i], names[j])).datavector() for i, j in pairs}
finish(runs, {"mbi": version("mbi")}, "all ten tables measured alike, 1,000 steps of mirror descent")
""",
    ),
    "AIM": (
        "aim",
        """
import io, contextlib
checkout = sys.argv[2]
sys.path[:0] = [checkout + "/mechanisms", checkout + "/src"]
import pandas as pd, mbi, aim
domain = mbi.Domain(names, sizes)
data = mbi.Dataset(pd.DataFrame(codes, columns=names), domain)
repeated = 1  # minutes each
def runs():
    made = aim.AIM(1.0, 1e-9)
    made.rho = rho
    with contextlib.redirect_stdout(io.StringIO()):
        model, _ = made.run(data, [((names[i], names[j]), 1.0) for i, j in pairs])
    return {(i, j): model.project((names[i], names[j])).datavector() for i, j in pairs}
finish(runs, {"private-pgm": "4d2b3c5 (8 August 2025)"}, "its authors' AIM with its defaults; one release")
""",
    ),
    "HDMM": (
        "hdmm",
        """
sys.path.insert(0, sys.argv[2] + "/src")
from hdmm import workload, templates
start = time.process_time()
k = sum(sizes[i] * sizes[j] for i, j in pairs)
tables = [workload.Kronecker([workload.Identity(n) if a in pair else workload.Total(n) for a, n in enumerate(sizes)]) for pair in pairs]
W = workload.VStack(tables)
found = templates.Marginals(sizes, approx=True)
found.optimize(W)
A = found.strategy()
AtA = A.gram()
trace = (workload.MarginalsGram.approximate(W.gram()) @ AtA.pinv()).trace()
first = np.zeros(W.shape[1])
first[0] = 1.0
size = float((AtA @ first)[0])  # of a column's squares: those of marginals are alike
print(json.dumps({"rmse": math.sqrt(size * float(trace) / k / (2 * rho)), "cpu": time.process_time() - start, "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, "versions": {"hdmm": "5aa9df9 (6 October 2024)"}, "note": "OPT_M for Gaussian noise; expected error"}))
""",
    ),
    "tumult": (
        "tmlt",
        """
import os, pandas as pd
from importlib.metadata import version
from pyspark.sql import SparkSession
from tmlt.analytics import AddOneRow, CountMechanism, KeySet, QueryBuilder, RhoZCDPBudget, Session
os.environ["PYSPARK_PYTHON"] = sys.executable
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "1").config("spark.driver.memory", "2g").getOrCreate()
frame = spark.createDataFrame(pd.DataFrame(codes, columns=names).astype(str)).cache()
frame.count()
def used():  # of this process and the Java it started
    own, total = os.getpid(), 0
    for place in os.listdir("/proc"):
        if place.isdigit():
            try:
                parts = open(f"/proc/{place}/stat").read().rpartition(")")[2].split()
            except OSError:
                continue
            if int(place) == own or int(parts[1]) == own:
                total += int(parts[11]) + int(parts[12])
    return total / os.sysconf("SC_CLK_TCK")
time.process_time = used
repeated = 2
def runs():
    session = Session.from_dataframe(RhoZCDPBudget(rho), "people", frame, protected_change=AddOneRow())
    out = {}
    for i, j in pairs:
        keys = KeySet.from_dict({names[i]: [str(a) for a in range(sizes[i])], names[j]: [str(b) for b in range(sizes[j])]})
        query = QueryBuilder("people").groupby(keys).count(name="n", mechanism=CountMechanism.GAUSSIAN)
        found = session.evaluate(query, RhoZCDPBudget(rho / len(pairs))).toPandas()
        table = np.zeros((sizes[i], sizes[j]))
        table[found[names[i]].astype(int), found[names[j]].astype(int)] = found["n"]
        out[i, j] = table
    return out
finish(runs, {"tmlt.analytics": version("tmlt.analytics")}, "a tenth of rho for each table, exact noise; Spark's Java counted, its start not; mean of two")
""",
    ),
    "opendp": (
        "opendp",
        """
import polars as pl, opendp.prelude as dp, opendp.extras.mbi as m
from importlib.metadata import version
dp.enable_features("contrib")
frame = pl.LazyFrame({n: codes[:, i].astype(np.int32) for i, n in enumerate(names)})
keys = {n: list(range(s)) for n, s in zip(names, sizes)}
def runs():
    kind = m.Fixed(queries=[m.Count((names[i], names[j])) for i, j in pairs]) if "fixed" in sys.argv else m.AIM(queries=[m.Count((names[i], names[j])) for i, j in pairs])
    made, *_ = m.make_contingency_table(dp.lazyframe_domain([dp.series_domain(n, dp.atom_domain(T="i32")) for n in names]), dp.symmetric_distance(), dp.zero_concentrated_divergence(), d_in=1, d_out=rho, keys=keys, algorithm=kind)
    table = made(frame)
    # it adds a cell to every attribute, for what is none of the keys
    return {(i, j): np.asarray(table.project((names[i], names[j])))[:sizes[i], :sizes[j]] for i, j in pairs}
finish(runs, {"opendp": version("opendp"), "mbi": version("mbi")}, "make_contingency_table, " + ("Fixed" if "fixed" in sys.argv else "AIM"))
""",
    ),
    "diffprivlib": (
        "diffp",
        """
from diffprivlib.tools import histogramdd
from importlib.metadata import version
# it has no zCDP: epsilon-DP is epsilon^2 / 2-zCDP, so this much epsilon in all
epsilon = math.sqrt(2 * rho)
def runs():
    out = {}
    for i, j in pairs:
        edges = [np.arange(sizes[i] + 1) - 0.5, np.arange(sizes[j] + 1) - 0.5]
        out[i, j] = histogramdd(codes[:, [i, j]].astype(float), epsilon=epsilon / len(pairs), bins=edges, range=[(-0.5, sizes[i] - 0.5), (-0.5, sizes[j] - 0.5)])[0]
    return out
finish(runs, {"diffprivlib": version("diffprivlib")}, "histogramdd of each table, pure epsilon only")
""",
    ),
    "smartnoise": (
        "smart",
        """
import pandas as pd
from snsynth import Synthesizer
from importlib.metadata import version
frame = pd.DataFrame(codes, columns=names)
def cdp_eps(delta):  # the least epsilon whose rho is at least ours, by its own conversion
    from opendp.combinators import make_fix_delta
    return rho + 2 * math.sqrt(rho * math.log(1 / delta))
delta = 1e-6
def runs():
    made = Synthesizer.create(sys.argv[2], epsilon=cdp_eps(delta), delta=delta)
    made.fit(frame, preprocessor_eps=0.0, categorical_columns=names)
    drawn = made.sample(len(frame)).to_numpy().astype(int)
    return {(i, j): np.bincount(drawn[:, i] * sizes[j] + drawn[:, j], minlength=sizes[i] * sizes[j]) for i, j in pairs}
finish(runs, {"smartnoise-synth": version("smartnoise-synth")}, f"{sys.argv[2]}, records drawn; (epsilon, 1e-6) that rho implies")
""",
    ),
    "ResidualPlanner": (
        "rpenv",
        """
import pandas as pd
sys.path.insert(0, str(sys.argv[2]))
from class_resplan import ResidualPlanner
frame = pd.DataFrame(codes, columns=names)
def runs():
    system = ResidualPlanner(sizes)
    for pair in pairs:
        system.input_mech(pair)
    system.input_data(frame, names)
    system.selection(choice="sumvar", pcost=2 * rho)
    system.measurement()
    system.reconstruction()
    return {pair: np.asarray(system.mech_dict[pair].get_noisy_answer()) for pair in pairs}
finish(runs, {"ResidualPlanner": "ef9c170 (15 October 2024)"}, "sum of variances; noise of floats")
""",
    ),
    "ResidualPlanner+": (
        "rpplus",
        """
import types
for name, held in (("gurobipy", {"GRB": None}), ("resplan.parameter", {"options": {}})):  # a solver that is not asked here
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(held)
sys.path.insert(0, sys.argv[2])
sys.argv = sys.argv[:1]
from resplan import ResPlanSum
start = time.process_time()
planner = ResPlanSum(sizes, ["I"] * len(sizes))
for pair in pairs:
    planner.input_mech(pair)
found = planner.get_noise_level() / sum(sizes[i] * sizes[j] for i, j in pairs)  # at a privacy cost of 1, its only one
print(json.dumps({"rmse": math.sqrt(found / (2 * rho)), "cpu": time.process_time() - start, "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, "versions": {"ResidualPlanner+": "82a9a89 (11 March 2026)"}, "note": "sum of variances, cells; expected error"}))
""",
    ),
    "dpsynth": (
        "dpsynth",
        """
sys.path[:0] = [sys.argv[2], sys.argv[2] + "/../mbi/src"]
import jax, pandas as pd
jax.config.update("jax_enable_x64", True)
import mbi
from dpsynth import discrete_mechanisms as found
data = mbi.Dataset({n: codes[:, i] for i, n in enumerate(names)}, mbi.Domain(names, sizes))
tables = [(names[i], names[j]) for i, j in pairs]
how = {"direct": found.DirectConfig(prespecified_marginal_queries=tables), "swift": found.SWIFTConfig(workload=tables), "aim": found.AIMGDPConfig(workload=tables)}[sys.argv[3]]
made = how.configure(zcdp_rho=rho)
def runs():
    model = made(np.random.default_rng(), data).model
    return {(i, j): model.project((names[i], names[j])).datavector() for i, j in pairs}
repeated = 1 if sys.argv[3] == "aim" else repeated
finish(runs, {"dpsynth": "cf8075f (20 August 2026)", "mbi": "361705d (22 July 2026)"}, sys.argv[3])
""",
    ),
}

MATRIX = """
import sys, json, time, resource
import numpy as np
from jax_privacy.matrix_factorization import dense
from importlib.metadata import version
n = int(sys.argv[1]); start = time.process_time()
C = np.asarray(dense.optimize(n), dtype=float); seconds = time.process_time() - start
A = np.tril(np.ones((n, n))); B = A @ np.linalg.inv(C)
worst = float(np.sqrt((C ** 2).sum(axis=0).max()))
print(json.dumps({"rmse": worst * float(np.sqrt((B ** 2).sum() / n)), "cpu": seconds, "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, "versions": {"jax-privacy": version("jax-privacy")}, "note": "dense.optimize"}))
"""

OURS = """
import sfumato as sf
domain = sf.Domain({n: s for n, s in zip(names, sizes)})
work = sf.marginals(domain, order=2)
how = sys.argv[2]
counts = np.bincount(np.ravel_multi_index(codes.T, sizes), minlength=math.prod(sizes)).reshape(sizes)
def runs():
    told = {"mechanism": "adaptive", "records": 45_000} if how == "adaptive" else {"objective": "cells"}
    plan = sf.plan(work, sf.zcdp(str(rho)), neighbours="add-remove", **told)
    release = sf.release(plan, sf.Histogram(counts), ledger=None, name="run")
    if how == "projected":
        release = release.project()
    return {p: release.table(names[p[0]], names[p[1]]).values for p in pairs}
finish(runs, {"sfumato": sf.__version__}, {"auto": "unbiased, errors known before data", "projected": "projected", "adaptive": "denoised pairs"}[how])
"""

DRAWN = """
import sys, json, time, resource, warnings, math
warnings.filterwarnings("ignore")
import numpy as np
rng, n, groups, top, repeated = np.random.default_rng(1), 100_000, 50, 50_000.0, 20
g = rng.integers(0, groups, n)
values = {"low": rng.gamma(2, 5_000, n).clip(0, top), "anywhere": rng.uniform(0, top, n)}
def finish(runs, versions, note=""):
    told, start, count = {}, time.process_time(), 0
    for law, x in values.items():
        size = np.bincount(g, minlength=groups)
        exact = np.bincount(g, x, minlength=groups) / size
        off = [np.asarray(runs(x)) - exact for _ in range(repeated)]
        count += repeated
        told[law] = float(np.sqrt(np.mean((np.array(off) * size / top) ** 2)))
    cpu = (time.process_time() - start) / count
    mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    text = ", ".join(f"{k} {v:.3f}" for k, v in told.items())
    print(json.dumps({"rmse": told["low"], "cpu": cpu, "mb": mb, "versions": versions, "note": text + "; " + note}))
"""

MEANS = {
    "OpenDP, rho .5": (
        "opendp",
        """
import polars as pl, opendp.prelude as dp
from importlib.metadata import version
dp.enable_features("contrib")
def runs(x):
    frame = pl.LazyFrame({"g": g.astype(np.int32), "x": x})
    margin = dp.polars.Margin(by=["g"], invariant="keys", max_length=n, max_groups=groups)
    context = dp.Context.compositor(data=frame, privacy_unit=dp.unit_of(contributions=1), privacy_loss=dp.loss_of(rho=0.5),
                                    split_evenly_over=1, margins=[margin])
    centred = (pl.col("x") - top / 2).clip(-top / 2, top / 2).dp.sum((-top / 2, top / 2)).alias("s")
    found = context.query().group_by("g").agg(dp.len(), centred).release().collect().sort("g")
    return found["s"].to_numpy() / found["len"].to_numpy() + top / 2
finish(runs, {"opendp": version("opendp")}, "half each for counts and for sums, which we centred")
""",
    ),
    "Tumult Analytics, rho .5": (
        "tmlt",
        """
import os, pandas as pd
from importlib.metadata import version
from pyspark.sql import SparkSession
from tmlt.analytics import AddOneRow, AverageMechanism, KeySet, QueryBuilder, RhoZCDPBudget, Session
os.environ["PYSPARK_PYTHON"] = sys.executable
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "1").config("spark.driver.memory", "2g").getOrCreate()
repeated = 2
def runs(x):
    frame = spark.createDataFrame(pd.DataFrame({"g": g.astype(str), "x": x}))
    session = Session.from_dataframe(RhoZCDPBudget(0.5), "people", frame, protected_change=AddOneRow())
    keys = KeySet.from_dict({"g": [str(i) for i in range(groups)]})
    query = QueryBuilder("people").groupby(keys).average("x", low=0.0, high=top, name="m", mechanism=AverageMechanism.GAUSSIAN)
    found = session.evaluate(query, RhoZCDPBudget(0.5)).toPandas()
    return found.assign(g=found.g.astype(int)).sort_values("g").m
finish(runs, {"tmlt.analytics": version("tmlt.analytics")}, "its average, which it centres; CPU-s without Spark's Java; two releases")
""",
    ),
    "Google's library, epsilon 1": (
        "google",
        """
from importlib.metadata import version
from pydp.algorithms.laplacian import BoundedMean
def runs(x):
    mean = lambda k: BoundedMean(epsilon=1.0, lower_bound=0.0, upper_bound=top, dtype="float").quick_result(x[g == k].tolist())
    return [mean(k) for k in range(groups)]
finish(runs, {"python-dp": version("python-dp")}, "its bounded mean, which it centres")
""",
    ),
}

OUR_MEANS = """
import pandas as pd, sfumato as sf
domain = sf.Domain({"g": sf.Integers(0, groups - 1, outside="drop", missing="drop")}, measures={"x": sf.Measure(0, top)})
budget = sf.zcdp("0.5") if sys.argv[1] == "rho" else sf.pure(1)
plan = sf.plan(sf.means(domain, "x", by="g"), budget, neighbours="add-remove")
def runs(x):
    return sf.release(plan, pd.DataFrame({"g": g, "x": x}), ledger=None).mean("x", by="g")["mean x"]
finish(runs, {"sfumato": sf.__version__}, "`sf.means`; intervals, and errors before data")
"""


def rows(path: Path) -> None:
    """The table's codes, read around the curator because it is public."""
    from sfumato.demo import _read_cell_numbers
    from sfumato.specs import read_spec

    data = resources.files("sfumato.data")
    with resources.as_file(data / "adult.toml") as spec, resources.as_file(data / "adult.parquet") as table:
        domain = read_spec(spec).domain
        cells = _read_cell_numbers(domain, table)
    codes = np.stack([cells[n] for n in NAMES], axis=1)
    np.savez(path, codes=codes, sizes=domain.sizes(NAMES), names=NAMES, rho=RHO, repeated=REPEATED)


def environment(folder: Path, name: str) -> Path:
    """The Python of a peer's own environment, made where it is not there."""
    place = folder / name
    if not (place / "bin" / "python").exists():
        subprocess.run([PYTHONS.get(name, sys.executable), "-m", "venv", place], check=True)
        subprocess.run([place / "bin" / "pip", "install", "--quiet", *REQUIRED[name]], check=True)
    return place / "bin" / "python"


def checkout(folder: Path, name: str) -> Path:
    """The pinned commit of a peer that no registry has, cloned where it is not there.

    Raises:
        OSError: It cannot be cloned; the message says what to put where.
    """
    repository, commit = CHECKOUTS[name]
    place, address = source(folder, name), f"https://github.com/{repository}"
    if place.exists():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as part:  # a clone that ends halfway leaves none behind
        made = Path(part) / place.name
        for step in (["clone", "--quiet", address, made], ["-C", made, "checkout", "--quiet", commit]):
            # nobody is there to be asked for a password
            unasked = os.environ | {"GIT_TERMINAL_PROMPT": "0"}
            done = subprocess.run(["git", *step], env=unasked, capture_output=True, text=True, check=False)
            if done.returncode:
                why = (done.stderr.strip().splitlines() or [f"git returned {done.returncode}"])[-1]
                raise OSError(f"no clone: put commit {commit} of {address} into {place} yourself ({why})")
        made.rename(place)
    return place


def source(folder: Path, name: str) -> Path:
    """Where the checkout of a peer is."""
    return folder / "src" / CHECKOUTS[name][0].split("/")[1]


def told(title: str, python: Callable[[], Path | str], place: str, *arguments: str) -> None:
    """Run one of them in a folder of its own, for some leave files, and print its line; what cannot be run is said."""
    try:
        done = subprocess.run(
            [str(python()), "-c", *arguments],
            cwd=place,
            capture_output=True,
            text=True,
            timeout=4 * LIMIT,
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT)),
        )
        found = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None
        ended = f"it did not end within {LIMIT} CPU-s" if done.returncode < 0 else "no output"
        reason = "" if found else (done.stderr.strip().splitlines() or [ended])[-1]
    except (subprocess.SubprocessError, OSError, ValueError, IndexError) as error:
        found, reason = None, f"{type(error).__name__}: {error}"
    if found is None:
        print(f"| {title} | could not be run | | | {reason[:320]} |", flush=True)
        return
    what = ", ".join(f"{k} {v}" for k, v in found["versions"].items())
    print(
        f"| {title} | {found['rmse']:.4g} | {_seconds(found)} | {found['mb']} | {found['note']}; {what} |", flush=True
    )


def _seconds(found: dict[str, float]) -> str:
    """CPU-s of one release; of the first as well where that had programs to compile."""
    first = found.get("first", found["cpu"])
    return f"{found['cpu']:.2f}" + (f" (the first {first:.1f})" if first > 2 * found["cpu"] + 1 else "")


def means(folder: Path, only: str) -> None:
    """Means by groups: errors where numbers lie low in the range, and where they lie anywhere."""
    ours = {f"sfumato, {t}": ("", DRAWN + OUR_MEANS, (k,)) for k, t in (("rho", "rho .5"), ("pure", "epsilon 1"))}
    theirs = {title: (where, DRAWN + code, ()) for title, (where, code) in MEANS.items()}
    print("| | error, numbers low | CPU-s | MB | |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as place:
        for title, (where, code, given) in (ours | theirs).items():
            if only in title:
                told(title, lambda w=where: environment(folder, w) if w else sys.executable, place, code, *given)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--means", action="store_true")
    chosen = parser.parse_args()
    chosen.folder = chosen.folder.resolve()
    if chosen.means:
        means(chosen.folder, chosen.only)
        return
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "rows.npz"
        rows(path)
        runs: list[tuple[str, Callable[[], Path | str], str, tuple[str, ...]]] = [
            (f"sfumato, {how}", lambda: sys.executable, SHARED + OURS, (str(path), how))
            for how in ("auto", "projected", "adaptive")
        ]
        extra = {"opendp": ("fixed", "aim"), "smartnoise": ("mst", "aim"), "dpsynth": ("direct", "swift", "aim")}
        inside = {"ResidualPlanner": "residual_planner"}
        for name, (where, code) in THEIRS.items():
            titles = {f"{name}, {how}" if how else name: how for how in extra.get(name, ("",))}
            # mbi itself is in a registry, and in dpsynth of a commit
            cloned = [name, "mbi"] if name == "dpsynth" else [name] if name in CHECKOUTS and name != "mbi" else []

            def python(where: str = where, cloned: Sequence[str] = cloned) -> Path:
                for one in cloned:
                    checkout(chosen.folder, one)
                return environment(chosen.folder, where)

            places = [str(source(chosen.folder, one) / inside.get(one, ".")) for one in cloned[:1]]
            for title, how in titles.items():
                runs.append((title, python, SHARED + code, (str(path), *places, *filter(None, [how]))))
        prefixes = (lambda: environment(chosen.folder, "jaxp")), MATRIX, (str(CELLS),)
        runs.append(("jax-privacy, prefix sums", *prefixes))
        print("| | rmse | CPU-s | MB | |\n|---|---|---|---|---|")
        for title, python, code, given in runs:
            if chosen.only in title:
                told(title, python, place, code, *given)
    if chosen.only in "sfumato, prefix sums":
        import time

        import sfumato as sf

        start = time.process_time()
        plan = sf.plan(sf.prefix(sf.Domain({"t": CELLS}), "t"), sf.gdp(1), neighbours="add-remove")
        print(
            f"| sfumato, prefix sums | {plan.rmse:.5g} | {time.process_time() - start:.2f} | | sfumato {sf.__version__} |"
        )


if __name__ == "__main__":
    main()
