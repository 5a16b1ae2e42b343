"""Whole records fitted to projected tables: how near to the truth, beside the noisy and the projected answers.

    OPENBLAS_NUM_THREADS=1 python bench/synthetic.py /path/to/adult.csv

adult.csv: 14 integer columns, coarsened as in projection_local.py: 91 pairs of 31,066 cells, 48,842 rows; all pairs
released under add-remove by the optimal plan, the number of records not known. Then all 56 3-way tables of its first 8
attributes. Then 60 binary attributes of 10,000 rows x = sign(L z + e), L a random 60 x 5 normal matrix: all 1,770
pairs, onto "local", and onto "sdp" with the total given. Error: mean over tables of sum |answer - truth| / n; "apart":
that of the records against the projected answers scaled to as many. Means of 3 releases, CPU seconds of project() and
of synthetic().
"""

from __future__ import annotations

import itertools
import sys
import time

import duckdb
import numpy as np
from numpy.typing import NDArray
from projection_local import coarsened

import sfumato as sf

RUNS = 3
Floats = NDArray[np.float64]


def tables_of(codes: NDArray[np.int64], sizes: list[int], order: int) -> list[Floats]:
    """Every table over `order` attributes, in the order of sf.marginals."""
    out: list[Floats] = []
    for some in itertools.combinations(range(len(sizes)), order):
        shape = [sizes[i] for i in some]
        places = np.ravel_multi_index(tuple(codes[:, i] for i in some), shape)
        out.append(np.bincount(places, minlength=int(np.prod(shape))).astype(np.float64))
    return out


def measure(rows: NDArray[np.int64], sizes: list[int], order: int, rho: str, body: str = "local") -> list[float]:
    """Errors of raw, projected and records; the records' from the projected; CPU-s of both steps."""
    domain = sf.Domain(
        {f"a{i:02}": sf.Integers(0, k - 1, outside="clamp", missing="drop") for i, k in enumerate(sizes)}
    )
    connection = duckdb.connect()
    connection.register("people", {a: rows[:, i] for i, a in enumerate(domain.names)})
    plan = sf.plan(
        sf.marginals(domain, order=order),
        sf.zcdp(rho),
        neighbours="add-remove",
        mechanism="marginals",
        objective="cells",
    )
    exact = tables_of(rows, sizes, order)
    ends = np.cumsum([len(t) for t in exact])[:-1]

    def error(tables: list[Floats]) -> float:
        return float(np.mean([np.abs(a - b).sum() for a, b in zip(tables, exact, strict=True)])) / len(rows)

    found: list[list[float]] = []
    for _ in range(RUNS):
        raw = sf.release(plan, connection.sql("SELECT * FROM people"), ledger=None)
        start = time.process_time()
        projected = raw.project(body, total=len(rows) if body == "sdp" else None)
        middle = time.process_time()
        made = projected.synthetic()
        end = time.process_time()
        records = tables_of(made.codes.astype(np.int64), sizes, order)
        errors = [error(np.split(r.answers, ends)) for r in (raw, projected)]
        found.append([*errors, error(records), made.table_error or 0.0, middle - start, end - middle])
    return np.mean(found, axis=0).tolist()


def line(what: str, rho: str, numbers: list[float]) -> None:
    raw, projected, records, apart, first, second = numbers
    print(f"{what:24}{rho:>6}{raw:12.4f}{projected:12.4f}{records:12.4f}{apart:12.4f}{first:12.2f}{second:12.2f}")


def main(path: str) -> None:
    rows, sizes = coarsened(path)
    heads = ("raw", "projected", "records", "apart", "project s", "records s")
    print(f"{'tables':24}{'rho':>6}" + "".join(f"{h:>12}" for h in heads))
    for rho in ("0.005", "0.05", "0.5"):
        line("adult32 pairs", rho, measure(rows, sizes, 2, rho))
    for rho in ("0.05", "0.5"):
        line("adult32 3-way of 8", rho, measure(rows[:, :8], sizes[:8], 3, rho))
    rng = np.random.default_rng(0)
    loadings = rng.standard_normal((60, 5))
    signs = (rng.standard_normal((10_000, 5)) @ loadings.T + rng.standard_normal((10_000, 60)) > 0).astype(np.int64)
    for body in ("local", "sdp"):
        for rho in ("0.005", "0.05"):
            line(f"60 binary, pairs, {body}", rho, measure(signs, [2] * 60, 2, rho, body))


if __name__ == "__main__":
    main(sys.argv[1])
