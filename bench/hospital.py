"""A hospital that is drawn: 50,000 patients in patients.csv and their 300,000 visits of 2025 in visits.csv.

    python bench/hospital.py draw [folder, the current one by default] [seed, 2026 by default]
    OPENBLAS_NUM_THREADS=1 python bench/hospital.py coverage [releases, 40 by default]

Nobody in it lives. How often somebody comes, to which department and at what cost goes by age and sex; some come back
soon after a visit, 0.5 % of the visits name no department, and 0.1 % a patient who is not in patients.csv.

coverage: the page docs/hospital.md, whose code is run as it stands, makes its three plans; each is released so many
times, and how often the intervals of its tables hold is counted, beside how much their errors are of what was stated.
True are the counts of the rows that a release counts, which a release with next to no noise has.
"""

from __future__ import annotations

import contextlib
import csv
import io
import os
import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import sfumato as sf

PATIENTS, VISITS, SEED = 50_000, 300_000, 2026
DEPARTMENTS = np.array(["children", "emergency", "heart", "maternity", "medicine", "surgery"])
# how often those below 18, 18 to 49, 50 to 69 and older go to each of them
GOES = np.array(
    [
        [0.55, 0.30, 0.01, 0.00, 0.06, 0.08],
        [0.00, 0.38, 0.03, 0.14, 0.24, 0.21],
        [0.00, 0.26, 0.15, 0.00, 0.33, 0.26],
        [0.00, 0.29, 0.24, 0.00, 0.30, 0.17],
    ]
)
COSTS = np.array([380, 260, 2_100, 2_600, 1_100, 3_400])  # the median of a visit, in euros


def draw(seed: int = SEED) -> tuple[dict[str, Any], dict[str, Any]]:
    """The columns of both tables."""
    rng = np.random.default_rng(seed)
    age = np.clip(rng.normal(46, 23, PATIENTS).round(), 0, 101).astype(int)
    woman = rng.random(PATIENTS) < 0.53
    group = np.searchsorted([18, 50, 70], age, side="right")
    # some are never ill and some always: numbers of visits are gamma mixtures of Poisson numbers, 6 on average
    ill = rng.gamma(2, np.array([0.7, 0.7, 1.2, 1.9])[group])
    who = np.sort(rng.choice(PATIENTS, VISITS, p=ill / ill.sum()))
    goes = GOES[group[who]]
    goes[:, 3] *= np.where(woman[who], 1.7, 0)
    department = (rng.random((VISITS, 1)) * goes.sum(1, keepdims=True) > goes.cumsum(1)).sum(1)
    # one visit in five follows the one before within two months
    day = rng.integers(0, 365, VISITS)
    follows = np.flatnonzero((rng.random(VISITS) < 0.2) & (np.r_[-1, who[:-1]] == who))
    for i in follows:
        day[i] = min(364, day[i - 1] + 1 + rng.integers(60))
    cost = rng.lognormal(np.log(COSTS[department]), 0.8).round(2)
    born = np.datetime64("2025-12-31") - (age * 365.25 + rng.integers(0, 365, PATIENTS)).astype(int)
    patients = {
        "patient": np.arange(PATIENTS),
        "sex": np.where(woman, "woman", "man"),
        "born": born.astype(str),
        "district": rng.choice(["centre", "harbour", "hills", "north"], PATIENTS, p=[0.35, 0.2, 0.15, 0.3]),
    }
    visits = {
        "patient": np.where(rng.random(VISITS) < 0.001, PATIENTS + who, who),
        "date": (np.datetime64("2025-01-01") + day).astype(str),
        "department": np.where(rng.random(VISITS) < 0.005, "", DEPARTMENTS[department]),
        "cost": np.minimum(cost, 60_000),
    }
    shuffled = rng.permutation(VISITS)
    return patients, {name: column[shuffled] for name, column in visits.items()}


def write(path: Path, columns: Mapping[str, Any]) -> None:
    """A table as a CSV file."""
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(columns)
        rows.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))


def write_tables(folder: str = ".", seed: str = str(SEED)) -> None:
    """Write both tables."""
    for name, columns in zip(["patients", "visits"], draw(int(seed)), strict=True):
        write(Path(folder) / f"{name}.csv", columns)


def coverage(releases: str = "40") -> None:
    """How often the intervals of the page's releases hold what is counted."""
    page = Path(__file__).parents[1] / "docs" / "hospital.md"
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE))
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        write_tables()
        scope: dict[str, Any] = {}
        with contextlib.redirect_stdout(io.StringIO()):
            exec(code, scope)
        for called, source in [("of_patients", "people"), ("in_departments", "by_visit"), ("of_visits", "by_visit")]:
            plan = scope[called].plan
            u = plan.unit
            exact = sf.plan(
                plan.workload,
                sf.zcdp(10**6),
                neighbours=u.neighbours,
                person=u.person,
                rows_per_person=u.rows_per_person,
                once_per=list(u.once_per),
            )
            true = sf.release(exact, scope[source], ledger=None).answers
            held, off = [], []
            for _ in range(int(releases)):
                found = sf.release(plan, scope[source], ledger=None)
                low, high = found.intervals()[:2]
                held.append((low <= true) & (true <= high))
                off.append((found.answers - true) / found.standard_errors())
            size, hold = np.size(held), np.mean(held)
            print(
                f"{called}: {size:,} intervals, {hold:.2%} ± {np.sqrt(0.95 * 0.05 / size):.2%} hold; errors are "
                f"{np.sqrt(np.mean(np.square(off))):.3f} times the standard errors",
                flush=True,
            )


if __name__ == "__main__":
    what, *given = sys.argv[1:]
    {"draw": write_tables, "coverage": coverage}[what](*given)
