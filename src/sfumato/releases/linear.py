"""Sums of numbers that were counted in cells: between which sums those of the values themselves lie.

A sum counts each record with the middle of its cell. What the values add up to lies between the sums that count the
cells' lower and their upper ends. Where these were not measured, nearby sums that were measured bound them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sfumato.domain import Attribute, Domain
from sfumato.domain.impossible import cell_value_ranges, lower_rows, upper_rows
from sfumato.operators import Block, Dense
from sfumato.operators.base import DENSE_LIMIT, FloatArray, LinearOperator
from sfumato.plans.planned import is_answered
from sfumato.plans.predictions import expand_to_queries
from sfumato.releases.answers import LinearAnswer
from sfumato.workloads import RECORDS, QueryBlock
from sfumato.workloads.levels import lift_to_attribute

if TYPE_CHECKING:
    from sfumato.releases.release import Release


class ValueBounds(NamedTuple):
    """Blocks shaped as that of a sum, nowhere above and nowhere below the sum of the values; None where none was
    measured."""

    lower: Block | None
    upper: Block | None


def midpoint_sum_attribute(domain: Domain, query: QueryBlock) -> tuple[str, Attribute] | None:
    """The name and attribute, or level of one, whose cells' middles a query adds up; None where it is no such sum, or
    where each cell is one number and the sum that of the values."""
    if query.unit == RECORDS or query.unit not in domain.names or (query.unit,) not in query.block.groups:
        return None
    factor = query.block.factors[query.block.groups.index((query.unit,))]
    if factor.shape[0] != 1:
        return None
    given = np.asarray(factor.dense(), dtype=np.float64)[0]
    for name in (query.unit, *(level.name for level in domain.groupings(query.unit))):
        found = cell_value_ranges(domain[name])
        if found is None or not (found[:, 0] < found[:, 1]).any():
            continue
        if np.array_equal(
            given, _row_over_attribute(domain, name, np.asarray(domain[name].midpoints, dtype=np.float64))
        ):
            return name, domain[name]
    return None


def _row_over_attribute(domain: Domain, name: str, row: FloatArray) -> FloatArray:
    """A row of declared cells as one of the attribute's, the extra cell 0."""
    padded = np.pad(row, (0, domain[name].size - len(row)))
    return np.asarray(lift_to_attribute(domain, name, Dense(padded[None, :]))[1].dense(), dtype=np.float64)[0]


def value_sum_bounds(release: Release, query: QueryBlock) -> ValueBounds | None:
    """Between which sums that were measured the values' lies; None where the answer is that of the values."""
    domain = release.plan.workload.domain
    found = midpoint_sum_attribute(domain, query)
    if found is None:
        return None
    name, attribute = found
    return ValueBounds(
        *(_first_answered_row(release, query, name, rows) for rows in (lower_rows(attribute), upper_rows(attribute)))
    )


def _first_answered_row(release: Release, query: QueryBlock, name: str, rows: Sequence[FloatArray]) -> Block | None:
    """The first of some rows, in place of the middles, whose answers were measured."""
    domain, block = release.plan.workload.domain, query.block
    at = block.groups.index((query.unit,))
    for row in rows:
        factors = list(block.factors)
        factors[at] = Dense(_row_over_attribute(domain, name, row)[None, :])
        changed = Block(block.groups, tuple(factors))
        if is_answered(release.plan.strategy, changed):
            return changed
    return None


def widen_interval(
    release: Release, query: QueryBlock, low: FloatArray, high: FloatArray, level: float
) -> tuple[FloatArray, FloatArray]:
    """The ends of a query's intervals; of a sum of middles those that hold the sum of the values, NaN where nothing
    that was measured bounds it."""
    found = value_sum_bounds(release, query)
    if found is None:
        return low, high
    answers = release.answer_block(query.block)
    ends: list[FloatArray] = []
    for block, sign, nearer in ((found.lower, -1.0, np.minimum), (found.upper, 1.0, np.maximum)):
        if block is None:
            ends.append(np.full(query.rows, np.nan))
            continue
        half = expand_to_queries(release.raw.margins(block, level), replace(query, block=block))
        ends.append(nearer(release.raw.answer_block(block) + sign * half, answers))
    return ends[0], ends[1]


def widen_intervals(release: Release, low: FloatArray, high: FloatArray, level: float) -> tuple[FloatArray, FloatArray]:
    """The ends of all intervals of a workload, (k,) each, those of sums as `widened` has them."""
    start = 0
    for item in release.workload.items:
        here = slice(start, start := start + item.rows)
        if isinstance(item, QueryBlock) and item.unit != RECORDS:
            low[here], high[here] = widen_interval(release, item, low[here], high[here], level)
    return low, high


def bounded_linear_answer(release: Release, query: QueryBlock, form: LinearAnswer) -> LinearAnswer:
    """The form of a query of one row, with between what the sum of the values lies."""
    found = value_sum_bounds(release, query)
    if found is None:
        return form
    sides = tuple(None if b is None else LinearAnswer(((1.0, release, b),)) for b in found)
    return replace(form, reach=(sides[0], sides[1]))


_MOST = 32  # products: the variance of their sum takes the covariances of all pairs, some milliseconds each
_ROWS = 1_000  # queries of one block that are answered one by one, each some milliseconds

Product = dict[str, FloatArray]


def split_into_products(
    release: Release, condition: Block, form: Callable[[Block], Block] = lambda b: b
) -> LinearAnswer | None:
    """A condition, (1, cells), as a sum over products, each put into a `form`; None where these are too many, or it
    is a product already. Raises NotAnswerable for a product that what was measured does not answer."""
    joint = [(g, f) for g, f in zip(condition.groups, condition.factors, strict=True) if len(g) > 1]
    if len(joint) != 1 or condition.rows != 1 or joint[0][1].shape[1] > DENSE_LIMIT:
        return None
    (names, factor), found = joint[0], list[Block]()
    table = np.asarray(factor.dense(), dtype=np.float64).reshape(release.plan.workload.domain.sizes(names))
    rest = [(g, f) for g, f in zip(condition.groups, condition.factors, strict=True) if len(g) < 2]
    for product in _row_products(names, table):
        own: list[tuple[tuple[str, ...], LinearOperator]] = [((n,), Dense(row[None])) for n, row in product.items()]
        pairs = [*rest, *own]
        found.append(form(Block(tuple(g for g, _ in pairs), tuple(f for _, f in pairs))))
        if len(found) > _MOST:
            return None
    for block in found:
        release.plan.strategy.check(block)
    return LinearAnswer(tuple((1.0, release, block) for block in found))


def single_rows(block: Block) -> list[Block] | None:
    """The rows of a block, one block each, where one of its groups joins attributes, so that a row may be a sum of
    products; None for other blocks, and for more rows than are answered one by one."""
    if sum(len(g) > 1 for g in block.groups) != 1 or block.rows > _ROWS:
        return None
    return [
        Block(block.groups, tuple(Dense(f.rows(i, i + 1)) for f, i in zip(block.factors, at, strict=True)))
        for at in np.ndindex(*(f.shape[0] for f in block.factors))
    ]


def _row_products(names: Sequence[str], table: FloatArray) -> Iterator[Product]:
    """Rows of attributes whose products add up to a table; attributes along which one does not vary are left out."""
    varied = [i for i in range(table.ndim) if not (table == table.take([0], axis=i)).all()]
    if len(varied) < table.ndim:
        table = table[tuple(slice(None) if i in varied else 0 for i in range(table.ndim))]
        names = [names[i] for i in varied]
    if not table.any():
        return
    if table.ndim < 2:
        yield dict(zip(names, [table], strict=True)) if names else {}
        return
    slices = [
        np.unique(np.moveaxis(table, i, 0).reshape(n, -1), axis=0, return_inverse=True)
        for i, n in enumerate(table.shape)
    ]
    axis = min(range(table.ndim), key=lambda i: len(slices[i][0]))
    kinds, which = slices[axis]
    left = [n for i, n in enumerate(names) if i != axis]
    for k, kind in enumerate(kinds):
        for product in _row_products(left, kind.reshape([n for i, n in enumerate(table.shape) if i != axis])):
            yield {names[axis]: (which.reshape(-1) == k).astype(np.float64)} | product
