"""Sums of numbers that were counted in cells: between which sums those of the values themselves lie.

A sum counts each record with the middle of its cell. What the values add up to lies between the sums that count the
cells' lower and their upper ends. Where these were not measured, nearby sums that were measured bound them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sfumato.domain import Attribute, Domain
from sfumato.domain.spans import lower_rows, spans, upper_rows
from sfumato.operators import Block, Dense
from sfumato.operators.base import FloatArray
from sfumato.plans.predictions import expand
from sfumato.plans.serving import is_answered
from sfumato.releases.answers import Linear
from sfumato.workloads import RECORDS, QueryBlock
from sfumato.workloads.levels import over

if TYPE_CHECKING:
    from sfumato.releases.core import Release

__all__ = ["Reach", "reach", "reaching", "summed", "widened", "widened_all"]


class Reach(NamedTuple):
    """Blocks shaped as that of a sum, nowhere above and nowhere below the sum of the values; None where none was
    measured."""

    lower: Block | None
    upper: Block | None


def summed(domain: Domain, query: QueryBlock) -> tuple[str, Attribute] | None:
    """The name and attribute, or level of one, whose cells' middles a query adds up; None where it is no such sum, or
    where each cell is one number and the sum that of the values."""
    if query.unit == RECORDS or query.unit not in domain.names or (query.unit,) not in query.block.groups:
        return None
    factor = query.block.factors[query.block.groups.index((query.unit,))]
    if factor.shape[0] != 1:
        return None
    given = np.asarray(factor.dense(), dtype=np.float64)[0]
    for name in (query.unit, *(level.name for level in domain.groupings(query.unit))):
        found = spans(domain[name])
        if found is None or not (found[:, 0] < found[:, 1]).any():
            continue
        if np.array_equal(given, _over(domain, name, np.asarray(domain[name].midpoints, dtype=np.float64))):
            return name, domain[name]
    return None


def _over(domain: Domain, name: str, row: FloatArray) -> FloatArray:
    """A row of declared cells as one of the attribute's, the extra cell 0."""
    padded = np.pad(row, (0, domain[name].size - len(row)))
    return np.asarray(over(domain, name, Dense(padded[None, :]))[1].dense(), dtype=np.float64)[0]


def reach(release: Release, query: QueryBlock) -> Reach | None:
    """Between which sums that were measured the values' lies; None where the answer is that of the values."""
    domain = release.plan.workload.domain
    found = summed(domain, query)
    if found is None:
        return None
    name, attribute = found
    return Reach(*(_answered(release, query, name, rows) for rows in (lower_rows(attribute), upper_rows(attribute))))


def _answered(release: Release, query: QueryBlock, name: str, rows: Sequence[FloatArray]) -> Block | None:
    """The first of some rows, in place of the middles, whose answers were measured."""
    domain, block = release.plan.workload.domain, query.block
    at = block.groups.index((query.unit,))
    for row in rows:
        factors = list(block.factors)
        factors[at] = Dense(_over(domain, name, row)[None, :])
        changed = Block(block.groups, tuple(factors))
        if is_answered(release.plan.strategy, changed):
            return changed
    return None


def widened(
    release: Release, query: QueryBlock, low: FloatArray, high: FloatArray, level: float
) -> tuple[FloatArray, FloatArray]:
    """The ends of a query's intervals; of a sum of middles those that hold the sum of the values, NaN where nothing
    that was measured bounds it."""
    found = reach(release, query)
    if found is None:
        return low, high
    answers = release.answer_block(query.block)
    ends: list[FloatArray] = []
    for block, sign, nearer in ((found.lower, -1.0, np.minimum), (found.upper, 1.0, np.maximum)):
        if block is None:
            ends.append(np.full(query.rows, np.nan))
            continue
        half = expand(release.raw.margins(block, level), replace(query, block=block))
        ends.append(nearer(release.raw.answer_block(block) + sign * half, answers))
    return ends[0], ends[1]


def widened_all(release: Release, low: FloatArray, high: FloatArray, level: float) -> tuple[FloatArray, FloatArray]:
    """The ends of all intervals of a workload, (k,) each, those of sums as `widened` has them."""
    start = 0
    for item in release.workload.items:
        here = slice(start, start := start + item.rows)
        if isinstance(item, QueryBlock) and item.unit != RECORDS:
            low[here], high[here] = widened(release, item, low[here], high[here], level)
    return low, high


def reaching(release: Release, query: QueryBlock, form: Linear) -> Linear:
    """The form of a query of one row, with between what the sum of the values lies."""
    found = reach(release, query)
    if found is None:
        return form
    sides = tuple(None if b is None else Linear(((1.0, release, b),)) for b in found)
    return replace(form, reach=(sides[0], sides[1]))
