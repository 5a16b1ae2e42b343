"""Variances of the cells of marginal tables, summed from those of the residuals that were measured."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sfumato.errors import NotAnswerable
from sfumato.operators.base import FloatArray
from sfumato.strategies.attribute_sets import Sets, downward_closure, locate_sets
from sfumato.strategies.residual_tables import Lattice, _drop_one_cell_attributes


def variances(tables: Sets, sets: Sequence[Sets], squares: Sequence[FloatArray], sizes: Sequence[int]) -> FloatArray:
    """(count,) the variance of a cell of every table (count, order), where residual `sets` have variances `squares`.

    Residuals and variances are given per order, as in an Allocation; a total that is not among them is known
    exactly. Raises NotAnswerable where another residual of a table is missing.
    """
    if not len(tables):
        return np.empty(0)
    reduced, places = _drop_one_cell_attributes(tables, sizes)
    lattice = Lattice(downward_closure(reduced, len(sizes)), len(sizes))
    n = np.asarray(sizes, dtype=np.float64)
    found: list[FloatArray] = []
    for k, wanted in enumerate(lattice.sets):
        known = sets[k] if k < len(sets) else wanted[:0]
        where = locate_sets(known, wanted, len(sizes))
        if k and (where < 0).any():
            raise NotAnswerable(f"the residual of attributes {wanted[where < 0][0].tolist()} was not measured")
        given = np.append(squares[k] if k < len(sets) else [], 0.0)
        found.append(given[where])
    all_of = lattice.products(n**-2.0) * lattice.down(lattice.products(n * (n - 1)) * np.concatenate(found))
    out = np.empty(len(tables))
    for part, known, asked, rows in zip(lattice.split(all_of), lattice.sets, reduced, places, strict=True):
        out[rows] = part[locate_sets(known, asked, len(sizes))]
    return out
