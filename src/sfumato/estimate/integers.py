"""A projection in whole counts, and the records that have them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from sfumato.estimate.bodies import project
from sfumato.estimate.possible import CellCounts, Possible, RecordCounts
from sfumato.estimate.projection import Projection, joint_operator
from sfumato.estimate.rounding import controlled, round_records, round_to_total
from sfumato.operators.base import FloatArray
from sfumato.workloads import Workload

__all__ = ["as_records", "to_integers"]

_LISTED = 2**20


def to_integers(found: Projection, work: Workload, total: int | None) -> Projection:
    """The projection with whole counts that sum to `total` (None: the nearest whole number to its own sum).

    One table is rounded so that every asked count is rounded up or down, where that is possible; records by
    largest remainders. Tables that merely agree are first fitted by records. `rounded` says how far answers moved.
    """
    held = found.possible
    wanted = round(float(held.table(()))) if total is None else total
    whole: Possible
    if isinstance(held, CellCounts):
        whole = CellCounts(held.attributes, _cells(held, work, wanted).reshape(held.values.shape))
    else:
        whole = as_records(found, work, wanted)
    answers = np.concatenate([whole.answer(q.block) for q in work.blocks])
    change = math.sqrt(float(np.mean((answers - found.answers) ** 2)))
    return replace(found, answers=answers, possible=whole, realisable=True, rounded=change)


def _cells(held: CellCounts, work: Workload, total: int) -> FloatArray:
    operator, flat = joint_operator(work), held.values.reshape(-1)
    best = controlled(flat, operator, total)
    if best is not None:
        return best.astype(np.float64)
    asked = np.asarray(operator.matvec(flat), dtype=np.float64)
    tried = [f(flat, total).astype(np.float64) for f in (round_to_total, round_records)]
    errors = [float(np.sum((np.asarray(operator.matvec(t), dtype=np.float64) - asked) ** 2)) for t in tried]
    return tried[int(np.argmin(errors))]


def as_records(found: Projection, work: Workload, total: int) -> RecordCounts:
    """Whole records, `total` in all, whose answers are near those of the projection."""
    held = found.possible
    if isinstance(held, CellCounts) and held.values.size <= _LISTED:
        codes = np.argwhere(held.values > 0).astype(np.int32)
        fitted = RecordCounts(held.attributes, held.values.shape, codes, held.values[held.values > 0])
    elif isinstance(held, RecordCounts):
        fitted = held
    else:
        # what merely agrees: records whose answers are nearest
        again = project(found.answers, work, body="exact", total=float(held.table(())))
        assert isinstance(again.possible, RecordCounts)
        fitted = again.possible
    counts = round_records(fitted.weights, total)
    kept = counts > 0
    return RecordCounts(fitted.attributes, fitted.sizes, fitted.codes[kept], counts[kept].astype(np.float64))
