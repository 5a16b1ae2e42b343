"""Ratios, shares, differences and growth of two answers, and places of groups: the arithmetic of answers, asked for.

Unprojected answers are taken: the covariances are theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sfumato.errors import InvalidInput
from sfumato.plans.intervals import check_confidence
from sfumato.releases import Release
from sfumato.releases.answers import Answer, Linear
from sfumato.workloads import predicates, total

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
    """A number with its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Ranked:
    """A cell with its answer, and the places it can have from the largest on; all hold together."""

    cell: str
    value: float
    first: int
    last: int


def calculate(operation: str, one: tuple[Release, str], other: tuple[Release, str], confidence: float = 0.95) -> Result:
    """An operation on two answers: each a release and a condition, "" for all records.

    Raises InvalidInput, or NotAnswerable for what was not measured and where B cannot be told from 0.
    """
    if operation not in OPERATIONS:
        raise InvalidInput(f"there are {', '.join(OPERATIONS)}")
    level = check_confidence(confidence)
    a, b = _answer(*one, level), _answer(*other, level)
    if operation in ("difference", "sum"):
        found = a - b if operation == "difference" else a + b
        return Result(found.value, found.low, found.high)
    found = a / b
    numbers = (found.value, found.low, found.high)
    if operation == "growth":
        return Result(*(x - 1.0 for x in numbers))
    if operation == "share":  # a share of some records is no more than all of them, whatever the noise says
        return Result(*(min(1.0, max(0.0, x)) for x in numbers))
    return Result(*numbers)


def _answer(release: Release, condition: str, level: float) -> Answer:
    """The unprojected answer to a condition, or the number of records."""
    domain = release.plan.workload.domain
    question = predicates(domain, [condition]) if condition.strip() else total(domain)
    return Answer.of(Linear(((1.0, release.raw, question.blocks[0].block),)), level)


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
