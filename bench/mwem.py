"""MWEM and boosting for queries beside the projection mechanism, through the public interface.

    python bench/mwem.py [marginals] [intervals] [boosting] [speed] [bound]

3-way tables of ten yes-no attributes (960 queries over 1,024 cells), rho of (1, 1e-6), replace-one unless it says
otherwise. Laws of the records, a fresh one and fresh records for every run:

threshold  x_i = 1 if <l_i, z> + e_i > t_i: z standard normal in the plane, l_i normal with deviation .7 in both
           directions, e_i standard normal, t_i normal with deviation .7
mixture    four products of independent attributes with Beta(1/2, 1/2) shares, weights Dirichlet(1)
sparse     cells Dirichlet(.05): a few dozen cells hold nearly everything, without structure
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sfumato as sf
from sfumato.mechanisms import make_mechanism

Counts = NDArray[np.int64]
RHO, RUNS, D = "0.0243560", 5, 10
SIZES = (300, 1000, 5000)


def domain(d: int = D) -> sf.Domain:
    return sf.Domain({f"a{i}": sf.Booleans() for i in range(d)})


def threshold(n: int, d: int, draws: np.random.Generator) -> Counts:
    pull, edge = draws.normal(0, 0.7, (d, 2)), draws.normal(0, 0.7, d)
    return _cells(draws.normal(size=(n, 2)) @ pull.T + draws.normal(size=(n, d)) > edge)


def mixture(n: int, d: int, draws: np.random.Generator) -> Counts:
    weights, shares = draws.dirichlet(np.ones(4)), draws.beta(0.5, 0.5, (4, d))
    return _cells(draws.random((n, d)) < shares[draws.choice(4, n, p=weights)])


def sparse(n: int, d: int, draws: np.random.Generator) -> Counts:
    return np.bincount(draws.choice(2**d, n, p=draws.dirichlet(np.full(2**d, 0.05))), minlength=2**d)


def _cells(records: NDArray[np.bool_]) -> Counts:
    d = records.shape[1]
    return np.bincount(records @ (1 << np.arange(d)[::-1]), minlength=2**d)


LAWS: dict[str, Callable[[int, int, np.random.Generator], Counts]] = {
    "threshold": threshold,
    "mixture": mixture,
    "sparse": sparse,
}


def planned(work: sf.Workload, n: int, **options: Any) -> Any:
    budget = options.pop("budget", sf.zcdp(RHO))
    own = {name: options.pop(name) for name in ("rounds",) if name in options}
    mechanism = make_mechanism(options.pop("mechanism", "auto"), **own)
    return sf.plan(work, budget, mechanism=mechanism, **({"neighbours": "replace-one", "records": n} | options))


def errors(plan: Any, counts: Counts, n: int) -> tuple[float, float, float]:
    """rmse and largest error as shares of the records, and CPU seconds of the release."""
    began = time.process_time()
    release = sf.release(plan, sf.Histogram(counts), ledger=None)
    spent = time.process_time() - began
    miss = np.abs(release.answers - plan.workload.answer(counts))
    return math.sqrt(float(np.mean(miss**2))) / n, float(miss.max()) / n, spent


def mean(runs: list[tuple[float, float, float]]) -> str:
    rmse, largest, spent = np.mean(runs, axis=0)
    spread = np.std([r[0] for r in runs], ddof=1)
    return f"{rmse:.4f} ± {spread:.4f}  largest {largest:.3f}  {spent:5.1f} CPU-s"


KINDS: dict[str, dict[str, Any]] = {
    "projection": {"mechanism": "projection"},
    "mwem": {"mechanism": "mwem"},
    "mwem, queries alone": {"mechanism": "mwem", "strategy": "queries"},
    "mwem, add-remove": {"mechanism": "mwem", "neighbours": "add-remove"},
    "mwem, sf.approx(1, 1e-6)": {"mechanism": "mwem", "budget": sf.approx(1, "1e-6")},
    "mwem, sf.pure(1)": {"mechanism": "mwem", "budget": sf.pure(1)},
}


def marginals() -> None:
    work = sf.marginals(domain(), order=3)
    plans = {(name, n): planned(work, n, **options) for name, options in KINDS.items() for n in SIZES}
    for law, make in LAWS.items():
        for n in SIZES:
            tables = [make(n, D, np.random.default_rng((7, i))) for i in range(RUNS)]
            uniform = np.mean([np.sqrt(np.mean((n / 8 - work.answer(t)) ** 2)) / n for t in tables])
            print(f"{law}, n = {n:,}: uniform {uniform:.4f}")
            for name in KINDS:
                runs = [errors(plans[name, n], t, n) for t in tables]
                print(f"  {name:26} {mean(runs)}", flush=True)


def intervals() -> None:
    """2,000 intervals of 1,024 cells, records beta(2, 5)."""
    draws = np.random.default_rng(3)
    ends = np.sort(draws.integers(0, 1024, (2000, 2)), axis=1)
    rows = ((np.arange(1024) >= ends[:, :1]) & (np.arange(1024) <= ends[:, 1:])).astype(int)
    line = sf.Domain({"x": sf.Integers(0, 1023)})
    work = sf.queries(rows, domain=line)
    for n in SIZES:
        print(f"intervals, n = {n:,}")
        tables = [np.bincount((draws.beta(2, 5, n) * 1024).astype(int), minlength=1024) for _ in range(RUNS)]
        for name in ("projection", "mwem"):
            plan = planned(work, n, mechanism=name)
            print(f"  {name:26} {mean([errors(plan, t, n) for t in tables])}", flush=True)


def boosting() -> None:
    """Nine attributes (672 queries over 512 cells)."""
    work = sf.marginals(domain(9), order=3)
    for n in (2000, 20000):
        print(f"threshold, nine attributes, n = {n:,}")
        tables = [threshold(n, 9, np.random.default_rng((8, i))) for i in range(RUNS)]
        for name, options in (
            ("projection", {}),
            ("mwem", {}),
            ("boosting", {"rounds": 2}),
            ("boosting", {"rounds": 5}),
            ("boosting", {"rounds": 10}),
        ):
            plan = planned(work, n, mechanism=name, **options)
            runs = [errors(plan, t, n) for t in tables]
            print(f"  {name} {options.get('rounds', ''):>4} {mean(runs)}", flush=True)


def speed() -> None:
    """One release of forty rounds, and what of it are choices."""
    from sfumato.curator import Curator

    work, table = sf.marginals(domain(), order=3), threshold(5000, D, np.random.default_rng(1))
    inside = {"select": 0.0, "measure": 0.0}

    def timed(name: str) -> None:
        real = getattr(Curator, name)

        def run(self: Curator, *args: Any, **kwargs: Any) -> Any:
            began = time.process_time()
            try:
                return real(self, *args, **kwargs)
            finally:
                inside[name] += time.process_time() - began

        setattr(Curator, name, run)

    errors(planned(work, 5000, mechanism="mwem", rounds=2), table, 5000)
    for name in inside:
        timed(name)
    _, _, spent = errors(planned(work, 5000, mechanism="mwem", rounds=40), table, 5000)
    print(f"40 rounds: {spent:.2f} CPU-s, select {inside['select']:.2f}, measure {inside['measure']:.2f}")


def bound() -> None:
    """What is proved of plain MWEM before data, over the records: the least of some numbers of rounds."""
    for d in (4, 8, 10):
        work = sf.marginals(sf.Domain({f"q{i}": 2 for i in range(d)}), order=3)
        for n in (10**3, 10**4, 10**5, 10**6, 10**7):
            found = []
            for rounds in (None, 1, 5, 40, 200, 1000):
                plan = sf.plan(
                    work,
                    sf.approx(1, "1e-6"),
                    neighbours="replace-one",
                    mechanism=sf.mechanisms.mwem(rounds=rounds),
                    records=n,
                )
                assert plan.bound is not None
                found.append(plan.bound.largest / n)
            print(f"{d} attributes, {n:,} records: {min(found):.2f}", flush=True)


if __name__ == "__main__":
    every = {f.__name__: f for f in (marginals, intervals, boosting, speed, bound)}
    for chosen in sys.argv[1:] or every:
        every[chosen]()
