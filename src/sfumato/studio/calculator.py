"""Ratios, shares, differences and growth of two answers, with intervals from the covariances of what was measured.

A and B are linear answers, so A - r B is linear for every r, and the r at which it cannot be told from 0 form an
interval (Fieller) that holds with the stated confidence, also where B is small. Unprojected answers are taken: the
covariances are theirs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from sfumato.errors import InvalidInput, PlanError
from sfumato.plans.intervals import check_confidence, widest
from sfumato.releases import Release
from sfumato.workloads import Workload, predicates, stack, total

__all__ = ["OPERATIONS", "Ranked", "Result", "calculate", "ranks"]

OPERATIONS = {
    "share": "A as a share of B",
    "ratio": "A divided by B",
    "difference": "A minus B",
    "growth": "growth from B to A",
    "sum": "A plus B",
}


@dataclass(frozen=True, slots=True)
class Result:
    """A number with its interval; `low` and `high` are None where B cannot be told from 0, so nothing is known."""

    value: float | None
    low: float | None
    high: float | None
    first: float
    second: float


@dataclass(frozen=True, slots=True)
class Ranked:
    """A cell with its answer, and the places it can have from the largest on; all hold together."""

    cell: str
    value: float
    first: int
    last: int


def calculate(operation: str, one: tuple[Release, str], other: tuple[Release, str], confidence: float = 0.95) -> Result:
    """An operation on two answers: each a release and a condition, "" for all records.

    Raises InvalidInput, or NotAnswerable for what was not measured.
    """
    if operation not in OPERATIONS:
        raise InvalidInput(f"there are {', '.join(OPERATIONS)}")
    level = check_confidence(confidence)
    (first, a), (second, b) = one, other
    if any(r.plan.bias_records is not None for r in (first, second)):
        raise PlanError("these answers are biased on purpose; ask for single ones, whose intervals say by how much")
    questions = _question(first, a), _question(second, b)
    values = np.array([_value(first, questions[0]), _value(second, questions[1])])
    covariances = _covariances(first, second, *questions)
    z = max(_multiplier(first, level), _multiplier(second, level))
    if operation in ("difference", "sum"):
        sign = np.array([1.0, 1.0 if operation == "sum" else -1.0])
        value, half = float(values @ sign), z * math.sqrt(max(0.0, float(sign @ covariances @ sign)))
        return Result(value, value - half, value + half, *values.tolist())
    found = _fieller(values, covariances, z)
    if found is None:
        return Result(None, None, None, *values.tolist())
    shift = 1.0 if operation == "growth" else 0.0
    value, low, high = (x - shift for x in found)
    if operation == "share":  # a share of some records is no more than all of them, whatever the noise says
        value, low, high = (min(1.0, max(0.0, x)) for x in (value, low, high))
    return Result(value, low, high, *values.tolist())


def _question(release: Release, condition: str) -> Workload:
    domain = release.plan.workload.domain
    return predicates(domain, [condition]) if condition.strip() else total(domain)


def _value(release: Release, question: Workload) -> float:
    return float(release.raw.answer_block(question.blocks[0].block)[0])


def _covariances(
    first: Release, second: Release, a: Workload, b: Workload
) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """(2, 2): of one release with itself as stored; two releases have independent noise."""
    if _same(first, second):
        return np.asarray(first.covariance(stack(a.named("a"), b.named("b"))), dtype=np.float64)
    return np.diag([float(r.covariance(q)[0, 0]) for r, q in ((first, a), (second, b))])


def _same(first: Release, second: Release) -> bool:
    one, other = first.provenance, second.provenance
    return (one.ledger_id, one.sequence, one.anchor) == (other.ledger_id, other.sequence, other.anchor)


def _multiplier(release: Release, level: float) -> float:
    """Standard errors to either side: of one draw of the noise or of a normal, whichever is wider."""
    noise = release.measurement.noise
    single = float(widest(level, np.ones(1), noise)[0]) / math.sqrt(noise.variance)
    return max(single, NormalDist().inv_cdf((1 + level) / 2))


def _fieller(
    values: np.ndarray[tuple[int], np.dtype[np.float64]],
    covariances: np.ndarray[tuple[int, int], np.dtype[np.float64]],
    z: float,
) -> tuple[float, float, float] | None:
    """A / B with the r at which |A - r B| <= z sd(A - r B); None where these are not an interval."""
    a, b = values.tolist()
    va, vb, c = covariances[0, 0], covariances[1, 1], covariances[0, 1]
    q2, q1, q0 = b * b - z * z * vb, a * b - z * z * c, a * a - z * z * va
    if q2 <= 0:
        return None
    root = math.sqrt(max(0.0, float(q1 * q1 - q2 * q0)))
    return a / b, float((q1 - root) / q2), float((q1 + root) / q2)


def ranks(release: Release, attribute: str, confidence: float = 0.95) -> list[Ranked]:
    """The places of an attribute's cells by their counts, the largest first; all places hold together.

    From intervals that hold together: a cell is surely before another where its interval lies above the other's.
    """
    table = release.raw.table(attribute, confidence=confidence, simultaneous=True)
    values, low, high = (np.asarray(x, dtype=np.float64).reshape(-1) for x in (table.values, table.low, table.high))
    above = (low[None, :] > high[:, None]).sum(axis=1)
    below = (high[None, :] < low[:, None]).sum(axis=1)
    order: Sequence[int] = np.argsort(-values, kind="stable").tolist()
    cells = table.labels[0]
    return [Ranked(cells[i], float(values[i]), int(above[i]) + 1, len(values) - int(below[i])) for i in order]
