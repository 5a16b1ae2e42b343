"""Choosing the questions for a workload: every reporter's predicted error, and the least."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from sfumato.errors import NotInRowSpace, PlanError
from sfumato.local.bound import Centred, centred_optimum
from sfumato.local.design import Effort, Table, design, simplex_code
from sfumato.local.plans import LocalCandidate, LocalPlan, dense_queries
from sfumato.local.questions import Questions
from sfumato.operators.base import FloatArray
from sfumato.privacy.amounts import exact
from sfumato.privacy.local import check_epsilon
from sfumato.workloads import Workload

__all__ = ["REPORTERS", "ball_constant", "effort", "plan_local"]

REPORTERS = ("auto", "randomized-response", "hadamard", "hashing", "designed")
"""What `reporter=` accepts."""

_MAX_FEATURES = 2**25  # 256 MB of code
_NEAR = 1.02  # of the bound: no search betters that by enough to be worth it
_ONE_SEARCH = 512  # cells above which one number of labels is tried
_SEED = 20  # the search is public and repeatable: equal workloads get equal questions
Maker = Callable[[], tuple[Table, int, FloatArray]]


def plan_local(work: Workload, epsilon: Any, *, records: int, reporter: str = "auto") -> LocalPlan:
    """The questions by which persons who report with local epsilon tell most about the queries.

    records: a public (approximate) number of reports, one for each person, for predictions. Reporters:
    "randomized-response" (which cell, one question), "hadamard" and "hashing" (questions alike for all pairs of cells,
    with two and with about e^epsilon + 1 labels), "designed" (questions searched for this workload, with two and more
    labels); "auto" takes the least predicted rmse.

    Guarantee: each report is epsilon-DP for any two records of its person [KLNRS11]; see `sfumato.privacy.local`.
    Raises PlanError for more than 2,048 cells, and for what is not offered.
    """
    if not isinstance(work, Workload):
        raise PlanError("plan_local needs a workload, made by sf.prefix, sf.marginals, sf.queries, ...")
    price = check_epsilon(exact(epsilon, "epsilon"))
    if reporter not in REPORTERS:
        raise PlanError(f"reporter must be one of {', '.join(REPORTERS)}, not {reporter!r}")
    queries = dense_queries(work)
    weights = np.concatenate([np.full(i.rows, float(i.weight)) for i in work.items])
    gram = (queries.T * weights) @ queries
    cells = len(gram)
    centre = centred_optimum(gram, rounds=60 if cells <= 512 else 12 if cells <= 1024 else 5)
    plain = bool((weights == weights[0]).all())
    bound = centre.bound(float(price)) / float(weights[0]) if plain else None

    best: LocalPlan | None = None
    lines: list[LocalCandidate] = []
    for name, make in _makers(gram, centre, float(price), reporter):
        near = best is not None and best.lower_bound is not None and best.rmse <= _NEAR * best.lower_bound
        if name == "designed" and near:
            continue
        table, labels, shares = make()
        try:
            found = LocalPlan(work, price, records, name, Questions.of(table, labels, shares), bound)
            value = found.rmse
        except NotInRowSpace:
            continue
        lines.append(LocalCandidate(name, labels, value))
        if best is None or value < best.rmse:
            best = found
    if best is None:
        raise PlanError(f"the questions of {reporter!r} do not tell these queries; take reporter='designed' or 'auto'")
    if plain:
        lines.append(_ball(centre, float(price), best, float(weights[0])))
    chosen = replace(best, considered=tuple(lines))
    vars(chosen).update({k: v for k, v in vars(best).items() if k in ("reading", "_spread")})
    return chosen


def _makers(gram: FloatArray, centre: Centred, epsilon: float, reporter: str) -> list[tuple[str, Maker]]:
    """The reporters to compare, none made yet."""
    m = len(gram)
    out: list[tuple[str, Maker]] = []

    def code(labels: int) -> Maker:
        def make() -> tuple[Table, int, FloatArray]:
            table = simplex_code(m, labels)
            return table, labels, np.full(len(table), 1 / len(table))

        return make

    def searched(labels: int) -> Maker:
        return lambda: _designed(gram, centre, labels)

    if reporter in ("auto", "randomized-response"):
        out.append(("randomized-response", code(m)))
    if reporter in ("auto", "hadamard") and m > 2:
        out.append(("hadamard", code(2)))
    prime = _prime_near(round(math.exp(min(epsilon, 12.0))) + 1)
    if reporter in ("auto", "hashing") and 2 < prime < m:
        out.append(("hashing", code(prime)))
    if reporter in ("auto", "designed") and m > 2:
        out += [("designed", searched(g)) for g in _label_counts(epsilon, m)]
    if not out:
        raise PlanError(f"reporter {reporter!r} has as many labels as cells at this epsilon; take 'auto'")
    return out


def _designed(gram: FloatArray, centre: Centred, labels: int) -> tuple[Table, int, FloatArray]:
    m = len(gram)
    code = simplex_code(m, labels) if _is_prime(labels) else None
    extra = [] if code is None or len(code) * labels * m > _MAX_FEATURES or m > _ONE_SEARCH else [code]
    rng = np.random.default_rng(_SEED)
    table, shares = design(gram, labels, centre.strategy, extra, rng, effort(m))
    return table, labels, shares


def effort(cells: int) -> Effort:
    """What takes some ten CPU-s for each number of labels, about two minutes and 1.2 GB at the largest."""
    if cells <= 256:
        return Effort(4, 12, 6 if cells <= 128 else 3, 60 if cells <= 128 else 24)
    return Effort(4, 12, 1, 8) if cells <= 512 else Effort(4, 8, 0, 4) if cells <= 1024 else Effort(2, 2, 0, 0)


def _label_counts(epsilon: float, cells: int) -> list[int]:
    """Two, about e^(epsilon/2) + 1 and about e^epsilon + 1: the last is best where all pairs of cells are alike."""
    most = max(2, min(cells, _MAX_FEATURES // (effort(cells).start * cells * cells)))
    found = sorted({min(most, round(math.exp(min(e, 12.0))) + 1) for e in (0.0, epsilon / 2, epsilon)})
    return found if cells <= _ONE_SEARCH else found[(len(found) - 1) // 2 :][:1]


def _is_prime(n: int) -> bool:
    return n > 1 and all(n % d for d in range(2, math.isqrt(n) + 1))


def _prime_near(n: int) -> int:
    return min((p for p in range(2, 2 * n + 2) if _is_prime(p)), key=lambda p: abs(p - n))


def ball_constant(epsilon: float, dimension: int) -> float:
    """B^2 / d: variance per coordinate of the reporter of Duchi, Jordan and Wainwright on the unit ball [DJW18].

    B = (e^epsilon + 1) / (e^epsilon - 1) (sqrt(pi) / 2) d Gamma((d + 1) / 2) / Gamma(d / 2 + 1).
    """
    d = dimension
    log = math.lgamma((d + 1) / 2) - math.lgamma(d / 2 + 1) + 0.5 * math.log(math.pi) + math.log(d / 2)
    return (math.exp(log) / math.tanh(epsilon / 2)) ** 2 / d


def _ball(centre: Centred, epsilon: float, plan: LocalPlan, weight: float) -> LocalCandidate:
    """The l2-ball reporter on the same optimum, as [ENU20] have it: shown, not built."""
    per_report = centre.upper**2 / weight * ball_constant(epsilon, len(centre.strategy))
    rmse = math.sqrt(per_report / plan.workload.shape[0] * plan.records)
    return LocalCandidate("l2-ball", 0, rmse, "shown only: its reports are real vectors")
