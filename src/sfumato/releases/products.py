"""Conditions that join attributes, as sums of products of conditions on one attribute each.

Some strategies answer products alone, which `or` makes none of: `A or B` is A plus (not A) B, and so on for every
attribute. The products exclude each other, so their sum is the condition, exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sfumato.operators import Block, Dense
from sfumato.operators.base import DENSE_LIMIT, FloatArray, LinearOperator
from sfumato.releases.answers import Linear

if TYPE_CHECKING:
    from sfumato.releases.core import Release

__all__ = ["by_products", "single_rows"]

_MOST = 32  # products: the variance of their sum takes the covariances of all pairs, some milliseconds each
_ROWS = 1_000  # queries of one block that are answered one by one, each some milliseconds

Product = dict[str, FloatArray]


def by_products(release: Release, condition: Block, form: Callable[[Block], Block] = lambda b: b) -> Linear | None:
    """A condition, (1, cells), as a sum over products, each put into a `form`; None where these are too many, or it
    is a product already. Raises NotAnswerable for a product that what was measured does not answer."""
    joint = [(g, f) for g, f in zip(condition.groups, condition.factors, strict=True) if len(g) > 1]
    if len(joint) != 1 or condition.rows != 1 or joint[0][1].shape[1] > DENSE_LIMIT:
        return None
    (names, factor), found = joint[0], list[Block]()
    table = np.asarray(factor.dense(), dtype=np.float64).reshape(release.plan.workload.domain.sizes(names))
    rest = [(g, f) for g, f in zip(condition.groups, condition.factors, strict=True) if len(g) < 2]
    for product in _products(names, table):
        own: list[tuple[tuple[str, ...], LinearOperator]] = [((n,), Dense(row[None])) for n, row in product.items()]
        pairs = [*rest, *own]
        found.append(form(Block(tuple(g for g, _ in pairs), tuple(f for _, f in pairs))))
        if len(found) > _MOST:
            return None
    for block in found:
        release.plan.strategy.check(block)
    return Linear(tuple((1.0, release, block) for block in found))


def single_rows(block: Block) -> list[Block] | None:
    """The rows of a block, one block each, where one of its groups joins attributes, so that a row may be a sum of
    products; None for other blocks, and for more rows than are answered one by one."""
    if sum(len(g) > 1 for g in block.groups) != 1 or block.rows > _ROWS:
        return None
    return [
        Block(block.groups, tuple(Dense(f.rows(i, i + 1)) for f, i in zip(block.factors, at, strict=True)))
        for at in np.ndindex(*(f.shape[0] for f in block.factors))
    ]


def _products(names: Sequence[str], table: FloatArray) -> Iterator[Product]:
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
        for product in _products(left, kind.reshape([n for i, n in enumerate(table.shape) if i != axis])):
            yield {names[axis]: (which.reshape(-1) == k).astype(np.float64)} | product
