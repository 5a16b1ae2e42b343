"""The mean of an attribute over the records that satisfy a condition, as an Answer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from sfumato.domain import Domain
from sfumato.errors import NotAnswerable
from sfumato.ground.frames import safe_text
from sfumato.operators import Block, Dense
from sfumato.operators.base import FloatArray
from sfumato.releases.answers import Answer, Linear, Ratio
from sfumato.releases.products import by_products
from sfumato.workloads import predicates
from sfumato.workloads.levels import over

if TYPE_CHECKING:
    from sfumato.releases.core import Release

__all__ = ["mean_where"]


def mean_where(
    release: Release,
    attribute: str,
    rows: tuple[FloatArray, FloatArray],
    where: str,
    level: float,
    reach: tuple[FloatArray, FloatArray],
    off: tuple[float, float],
) -> Answer:
    """The ratio of two rows over an attribute's cells, of the records that satisfy a condition.

    reach: rows of the cells' lower and upper ends; off: how far these are from the first row's values at most, which
    is what the interval reaches down and up where sums of the ends were not measured.
    """
    domain = release.plan.workload.domain
    condition = predicates(domain, [where]).blocks[0].block

    def form(row: FloatArray) -> Linear:
        def weighted(block: Block) -> Block:
            return _weighted(domain, block, attribute, row)

        try:
            release.plan.strategy.check(whole := weighted(condition))
        except NotAnswerable:
            found = by_products(release, condition, weighted)
            if found is None:
                raise
            return found
        return Linear(((1.0, release, whole),))

    top, bottom = map(form, rows)
    unit = f"(mean {safe_text(attribute)})"
    if not any(off):
        return Answer.of(Ratio(top, bottom, unit), level)
    try:
        low, high = map(form, reach)
    except NotAnswerable:
        low, high = top + bottom.times(-off[0]), top + bottom.times(off[1])
    return Answer.of(Ratio(replace(top, reach=(low, high)), bottom, unit), level)


def _weighted(domain: Domain, condition: Block, attribute: str, row: FloatArray) -> Block:
    """The one row of a condition, each cell multiplied by the weight of its cell of an attribute."""
    owner, factor = over(domain, attribute, Dense(row[None, :]))
    weights = np.asarray(factor.dense(), dtype=np.float64)[0]
    groups, factors = list(condition.groups), list(condition.factors)
    at = next((i for i, g in enumerate(groups) if owner in g), None)
    if at is None:
        return Block((*groups, (owner,)), (*factors, Dense(weights[None, :])))
    shape = [-1 if n == owner else 1 for n in groups[at]]
    held = np.asarray(factors[at].dense(), dtype=np.float64).reshape(domain.sizes(groups[at]))
    factors[at] = Dense((held * weights.reshape(shape)).reshape(1, -1))
    return Block(tuple(groups), tuple(factors))
