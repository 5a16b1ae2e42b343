"""The columns of few rows over many joint cells, one of every class of cells that their factors tell apart."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import PlanError
from sfumato.operators import Block
from sfumato.operators.base import FloatArray
from sfumato.operators.blas import single_thread
from sfumato.privacy.columns import MAX_ENTRIES

__all__ = ["at_cells", "columns_by_class"]

_RANK = 1e-12  # of the largest distance: what rounding of doubles leaves of none
_WAVES = (math.sqrt(2), math.sqrt(3))  # any two numbers unrelated to each other and to pi would do


def columns_by_class(blocks: Sequence[Block], sizes: Mapping[str, int], *, spanning: bool = False) -> FloatArray:
    """(r, c) all rows of the blocks, at cells that show every column there is, hardly any of them twice.

    With `spanning`, where these are too many, at cells whose columns have all others as affine combinations, up to
    rounding: what is affine in these is affine in all.
    For planning: what the price looks at is `privacy.columns.distinct_columns`, which takes nothing on trust.
    Raises PlanError where there would be too many entries.
    """
    names = tuple(dict.fromkeys(a for b in blocks for a in b.attributes))
    seen: dict[str, list[FloatArray]] = {a: [] for a in names}
    for block in blocks:
        for group, factor in zip(block.groups, block.factors, strict=True):
            table = np.asarray(factor.dense(), dtype=np.float64).reshape(-1, *(sizes[a] for a in group))
            for axis, name in enumerate(group, 1):
                seen[name].append(np.moveaxis(table, axis, 0).reshape(sizes[name], -1))
    slices = [np.concatenate(seen[a], axis=1) for a in names]
    kept = [np.unique(s, axis=0, return_index=True)[1] for s in slices]
    rows = sum(b.rows for b in blocks)
    if spanning and math.prod(len(k) for k in kept) * rows > MAX_ENTRIES:
        # a column is linear in what the factors have at the cell of one attribute, for given cells of the others
        kept = [k[_affine_basis(s[k])] for s, k in zip(slices, kept, strict=True)]
    if math.prod(len(k) for k in kept) * rows > MAX_ENTRIES:
        raise PlanError(f"the queries tell too many cells apart: above {MAX_ENTRIES:,} entries of columns")
    cells = dict(zip(names, (g.reshape(-1) for g in np.meshgrid(*kept, indexing="ij")), strict=True))
    columns = np.concatenate([at_cells(b, cells, sizes) for b in blocks])
    # irrational weights tell columns of whole numbers apart, but for chance
    keys = np.cos(np.multiply.outer(_WAVES, np.arange(rows))) @ columns
    return columns[:, np.sort(np.unique(keys, axis=1, return_index=True)[1])]


def _affine_basis(points: FloatArray) -> NDArray[np.intp]:
    """Which of n points, (n, f), have the others as affine combinations, up to rounding."""
    from scipy.linalg import qr  # noqa: PLC0415  (slow to import)

    apart = (points - points[0]).T
    with single_thread():
        upper, pivots = qr(apart, mode="r", pivoting=True, check_finite=False)
    sizes = np.abs(np.diagonal(upper))
    return np.append(0, pivots[: np.count_nonzero(sizes > _RANK * sizes[0])]).astype(np.intp)


def at_cells(block: Block, cells: Mapping[str, NDArray[np.int64]], sizes: Mapping[str, int]) -> FloatArray:
    """(rows, cells) the columns of a block at some joint cells, given by attribute."""
    out = np.ones((1, len(next(iter(cells.values())))))
    for group, factor in zip(block.groups, block.factors, strict=True):
        place = np.zeros(out.shape[1], dtype=np.int64)
        for name in group:
            place = place * sizes[name] + cells[name]
        columns = np.asarray(factor.dense(), dtype=np.float64)[:, place]
        out = (out[:, None] * columns).reshape(-1, out.shape[1])
    return out
