"""Approximate factorizations: gamma_alpha with its certificate, and bias and noise balanced for a number of records.

Run: OPENBLAS_NUM_THREADS=1 python bench/approximate.py [alpha | records]
"""

from __future__ import annotations

import sys
import time

import numpy as np
from scipy.linalg import hadamard

import sfumato as sf
from sfumato.operators.base import FloatArray
from sfumato.postprocess.bodies import project
from sfumato.strategies.approximate import approximate_optimum
from sfumato.strategies.dense_optimal import optimize_dense

COLUMNS = (0.05, 0.1, 0.2, 0.3)
# mathematics.md S7: gamma, then the column norm at these alphas, then the entrywise norm at 0.1
S7: dict[str, tuple[float | None, ...]] = {
    "disj3": (1.468, 1.336, 1.204, 0.955, 0.737, 1.260),
    "disj4": (1.814, 1.621, 1.434, 1.099, 0.824, 1.524),
    "disj5": (2.167, 1.897, 1.645, 1.222, 0.890, 1.777),
    "disj6": (2.539, None, 1.847, 1.343, 0.98, None),
    "conj4": (1.714, 1.537, 1.371, 1.078, 0.848, 1.409),
    "parity4": (4.000, 3.8, 3.6, 3.2, 2.8, 3.6),
    "prefix16": (1.689, 1.499, 1.312, 0.983, 0.767, 1.440),
    "prefix32": (1.892, 1.622, 1.359, 0.986, 0.768, 1.600),
    "prefix64": (2.100, None, 1.374, None, None, None),
    "marg(4,2)": (1.570, 1.404, 1.238, 0.906, 0.575, 1.325),
    "0/1 16x16": (None,) * 6,
    "+-1 32x16": (None,) * 6,
}
ENTRIES = {
    ("prefix256", 0.1): 2.107,
    ("prefix256", 0.2): 1.696,
    ("prefix256", 0.3): 1.284,
    ("disj8 nonempty", 0.05): 2.9227,
    ("disj8 nonempty", 0.1): 2.5493,
    ("prefix512", 0.1): None,
}


def disjunctions(d: int) -> FloatArray:
    return np.asarray(sf.disjunctions(d).operator.dense(), dtype=np.float64)


def matrices() -> dict[str, FloatArray]:
    bits = sf.Domain({f"x{i}": sf.Booleans() for i in range(4)})
    draw = np.random.default_rng(0)
    found = {f"disj{d}": disjunctions(d) for d in (3, 4, 5, 6)} | {"disj8 nonempty": disjunctions(8)[1:]}
    found["conj4"] = np.asarray(sf.conjunctions(4).operator.dense(), dtype=np.float64)
    found["parity4"] = hadamard(16).astype(np.float64)
    found |= {f"prefix{n}": np.tri(n) for n in (16, 32, 64, 256, 512)}
    found["marg(4,2)"] = np.asarray(sf.marginals(bits, order=2).operator.dense(), dtype=np.float64)
    found["0/1 16x16"] = draw.integers(0, 2, (16, 16)).astype(np.float64)
    found["+-1 32x16"] = 2.0 * draw.integers(0, 2, (32, 16)) - 1
    return found


def one(F: FloatArray, alpha: float, norm: str, bar: float | None) -> str:
    start = time.process_time()
    found = approximate_optimum(F, alpha, norm)
    spent, root = time.process_time() - start, np.sqrt(len(F))
    upper, lower = found.upper_bound / root, found.lower_bound / root
    against = "" if bar is None else f" (design {bar:g})"
    return f"{upper:.4f} >= {lower:.4f}{against}, {spent:.2f} s"


def alphas() -> None:
    approximate_optimum(np.eye(3), 0.1)  # imports
    every = matrices()
    for name, bars in S7.items():
        F = every[name]
        exact = optimize_dense(matrix=F).upper_bound / np.sqrt(len(F))
        print(f"{name} {F.shape}: gamma {exact:.4f}" + ("" if bars[0] is None else f" (design {bars[0]:g})"))
        for alpha, bar in zip(COLUMNS, bars[1:5], strict=True):
            print(f"   column {alpha:4}: {one(F, alpha, 'column', bar)}")
        print(f"   entry   0.1: {one(F, 0.1, 'entry', bars[5])}")
    for (name, alpha), bar in ENTRIES.items():
        print(f"{name} entry {alpha}: {one(every[name], alpha, 'entry', bar)}")


def projected(plan: sf.Plan, records: int, draws: int = 60) -> float:
    """Worst rmse, as a share of the records, of unbiased answers projected on possible ones, over ten tables."""
    public = np.random.default_rng(1)
    cells = plan.workload.domain.size
    tables = [records * np.eye(cells)[i] for i in (0, 1, cells // 2, cells - 1)]
    tables += [public.multinomial(records, p) for p in public.dirichlet(np.full(cells, 0.2), 3)]
    tables += [public.multinomial(records, p) for p in public.dirichlet(np.ones(cells), 2)]
    tables.append(public.multinomial(records, np.full(cells, 1 / cells)))
    spread = np.linalg.cholesky(plan.covariance(plan.workload) + 1e-9 * np.eye(len(plan.workload)))
    worst = 0.0
    for x in tables:
        exact = np.asarray(plan.workload.answer(x.astype(np.int64)), dtype=np.float64)
        squares = 0.0
        for _ in range(draws):
            noisy = exact + spread @ public.standard_normal(len(exact))
            squares += float(((project(noisy, plan.workload, total=records).answers - exact) ** 2).mean())
        worst = max(worst, np.sqrt(squares / draws) / records)
    return worst


def balanced() -> None:
    print("disjunctions of 4 attributes at (1, 1e-6), rmse as a share of the records")
    for relation in ("add-remove", "replace-one"):
        for records in (10, 30, 100, 300, 1000):
            work, budget = sf.disjunctions(4), sf.approx(1, "1e-6")
            exact = sf.plan(work, budget, neighbours=relation, mechanism="factorization")
            start = time.process_time()
            found = sf.plan(work, budget, neighbours=relation, mechanism="approximate", records=records)
            spent = time.process_time() - start
            line = (
                f"{relation:11} n {records:5}: unbiased {exact.rmse / records:.4f}, approximate at most "
                f"{found.rmse / records:.4f} (bias {found.bias_rmse / records:.4f}), planned in {spent:.2f} CPU-s"
            )
            if exact.unit.total_is_public:
                line += f"; unbiased and projected, worst of ten tables {projected(exact, records):.4f}"
            print(line)


if __name__ == "__main__":
    asked = sys.argv[1:] or ["alpha", "records"]
    if "alpha" in asked:
        alphas()
    if "records" in asked:
        balanced()
