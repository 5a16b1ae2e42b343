"""The local model: predicted and measured rmse of its reporters, bytes of a report, costs of device and server.

Epsilon 1, 100,000 persons of a Dirichlet(1) table; rmse in records over fresh reports. `python bench/local.py`
"""

from __future__ import annotations

import argparse
import math
import time
from typing import Any

import numpy as np

import sfumato as sf
from sfumato.local.collecting import answer_reports, report_cells
from sfumato.local.plan import LocalPlan, ball_constant
from sfumato.strategies.dense_optimal import optimize_dense

RECORDS, EPSILON = 100_000, 1.0
BITS = sf.Domain({f"b{i}": 2 for i in range(8)})
WORKLOADS = {
    "histogram, 64 cells": sf.identity(sf.Domain({"x": 64}), "x"),
    "prefixes, 256 cells": sf.prefix(sf.Domain({"x": 256}), "x"),
    "3-way marginals of 2^8": sf.marginals(BITS, order=3),
}


def unit_cap(epsilon: float) -> float:
    """The least variance per coordinate of a report from a half space at any threshold, in many dimensions."""
    from scipy.special import ndtr

    t = np.linspace(-1, 3, 4001)
    q = 1 - ndtr(t)
    density = np.exp(-(t**2) / 2) / math.sqrt(2 * math.pi)
    mean = density * math.expm1(epsilon) / (math.exp(epsilon) * q + 1 - q)
    return float((1 / mean**2).min())


def ball_reports(columns: Any, cells: Any, rng: np.random.Generator) -> Any:
    """Sum of l2-ball reports [DJW18] of columns of norm at most 1, in floats: what is compared with, not released."""
    d, total = len(columns), np.zeros(len(columns))
    for part in np.array_split(cells, max(1, len(cells) // 10_000)):
        v = columns[:, part].T
        size = np.linalg.norm(v, axis=1)
        pole = v / size[:, None] * np.where(rng.random(len(v)) < (1 + size) / 2, 1, -1)[:, None]
        u = rng.standard_normal(v.shape)
        u /= np.linalg.norm(u, axis=1)[:, None]
        toward = np.where(rng.random(len(v)) < 1 / (1 + math.exp(-EPSILON)), 1, -1)
        total += (u * (np.sign((u * pole).sum(axis=1)) * toward)[:, None]).sum(axis=0)
    return total * math.sqrt(d * ball_constant(EPSILON, d))


def ball(queries: Any, x: Any, runs: int, rng: np.random.Generator) -> tuple[float, float]:
    """(predicted, measured) rmse of the reporter of [ENU20] on the certified optimum."""
    found = optimize_dense(gram=queries.T @ queries)
    predicted = found.upper_bound * math.sqrt(ball_constant(EPSILON, len(found.strategy)) / len(queries) * RECORDS)
    cells = np.repeat(np.arange(len(x)), x)
    back = queries @ np.linalg.pinv(found.strategy)
    squared = [np.mean((back @ ball_reports(found.strategy, cells, rng) - queries @ x) ** 2) for _ in range(runs)]
    return predicted, math.sqrt(float(np.mean(squared)))


def measure(name: str, work: sf.Workload, runs: int, rng: np.random.Generator) -> None:
    """Lines of one workload."""
    start = time.process_time()
    auto = sf.plan(work, sf.pure(1), trust="local", records=RECORDS)
    planned = time.process_time() - start
    x = rng.multinomial(RECORDS, rng.dirichlet(np.ones(auto.questions.cells)))
    cells = np.repeat(np.arange(len(x)), x).astype(np.int64)
    truth = auto.reading.queries @ x
    low = auto.lower_bound or 0.0
    rivals = [r for r in ("hadamard", "hashing", "randomized-response") if r != auto.reporter]
    for plan in [
        auto,
        *(
            sf.plan(work, sf.pure(1), trust="local", records=RECORDS, mechanism=sf.mechanisms.local(reporter=r))
            for r in rivals
        ),
    ]:
        squared, projected = 0.0, 0.0
        for i in range(runs):
            release = answer_reports(plan, report_cells(plan, cells))
            squared += float(((release.answers - truth) ** 2).mean()) / runs
            if plan is auto and i < 5:
                projected += float(((release.project().answers - truth) ** 2).mean()) / min(5, runs)
        shown = f"{math.sqrt(projected):,.0f}" if plan is auto else ""
        print(
            f"| {name} | {plan.reporter}, {plan.questions.labels} labels, {len(plan.questions.table):,} questions "
            f"| {plan.rmse_on(x):,.0f} | {math.sqrt(squared):,.0f} | {plan.rmse:,.0f} ({plan.rmse / low - 1:.1%}) "
            f"| {shown} | {plan.report_bytes} | {device(plan):.0f} | {server(plan):.3f} "
            f"| {f'{planned:.1f}' if plan is auto else ''} |",
            flush=True,
        )
    predicted, seen = ball(auto.reading.queries, x, min(runs, 10), rng)
    cap = math.sqrt(unit_cap(EPSILON) / ball_constant(EPSILON, 10**6))
    print(f"| {name} | l2-ball on the optimum | {predicted:,.0f} | {seen:,.0f} | ({predicted / low - 1:.0%}) |")
    print(f"| {name} | best cap on the optimum | {predicted * cap:,.0f} | | ({predicted * cap / low - 1:.0%}) |")
    shifted = next(c.rmse for c in auto.considered if c.reporter == "l2-ball")
    print(f"| {name} | l2-ball on the shifted optimum | {shifted:,.0f} | | ({shifted / low - 1:.0%}) |")
    print(f"| {name} | best cap on the shifted optimum | {shifted * cap:,.0f} | | ({shifted * cap / low - 1:.0%}) |")


def device(plan: LocalPlan, count: int = 2_000) -> float:
    """CPU-microseconds of one report."""
    record = dict.fromkeys(plan.names, 1)
    plan.respond(record)
    start = time.process_time()
    for _ in range(count):
        plan.respond(record)
    return 1e6 * (time.process_time() - start) / count


def server(plan: LocalPlan) -> float:
    """CPU-seconds from a million reports to all answers."""
    reports = report_cells(plan, np.zeros(10**6, dtype=np.int64))
    start = time.process_time()
    answer_reports(plan, reports).answers  # noqa: B018
    return time.process_time() - start


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=50)
    given = parser.parse_args()
    rng = np.random.default_rng(2026)
    print(
        "| workload | reporter | predicted | measured | on the worst table (above the bound) | projected | bytes | "
        "device CPU-us | server CPU-s per million | plan CPU-s |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name, work in WORKLOADS.items():
        measure(name, work, given.runs, rng)


if __name__ == "__main__":
    main()
