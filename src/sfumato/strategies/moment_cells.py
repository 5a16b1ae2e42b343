"""The joint cells of measures, and whole rows over them: what sums of measures are measured by.

An attribute that reads the column of a measure may be joined with it, as classes of pay with pay. Of its cells and the
measure's only some can hold a share of a record; rows are over these alone, and 0 elsewhere. So the price needs no word
of it: a column that is 0 costs nothing, and of a record that could not be nothing would be seen. docs/decisions/0186.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.operators.base import FloatArray
from sfumato.privacy.measures import corners
from sfumato.strategies.merged_rows import independent_rows
from sfumato.strategies.same_column import SameColumn

# Sums of 1, x and x^2 of the records with a number, x from -1 to 1, and how many have none, over a measure's cells.
_POWERS = np.array([[1, 1, 1, 0], [-1, 0, 1, 0], [1, -1, 1, 0], [0, 0, 0, 1]])
WITHOUT_KNOTS = len(_POWERS)
"""Cells of a measure that has none."""


def _whole_rows(cells: int) -> NDArray[np.int64]:
    """(cells, cells) whole rows that span all over a measure's cells: powers without knots, else hats and middles."""
    if cells <= len(_POWERS):
        return _POWERS[[*range(3), *range(3, cells)], :cells]
    table = np.eye(cells, dtype=np.int64)
    table[: cells - 1 + cells % 2 : 2] = end_shares(cells)
    return table


def end_shares(cells: int) -> NDArray[np.int64]:
    """(ends, cells) twice the shares of a record in the ends of its piece: a hat is 1 at an end, and half of it in the
    middles beside it."""
    last = cells - 1 + cells % 2  # what comes after are records without a number
    table = np.zeros(((last + 1) // 2, cells), dtype=np.int64)
    for row, end in zip(table, range(0, last, 2), strict=True):
        row[end] = 2
        row[[m for m in (end - 1, end + 1) if 0 <= m < last]] = 1
    return table


_LARGEST = 64  # coefficient of a whole row: more would take room from records


def whole_basis(rows: FloatArray, powers: NDArray[np.int64]) -> tuple[NDArray[np.int64], bool]:
    """Whole rows that span the rows, and whether these span more. powers: whole rows that span all."""
    found = rows @ np.linalg.inv(powers)
    found = found / np.abs(found).max(axis=1, keepdims=True)
    found[np.abs(found) < 1e-13] = 0.0
    whole: list[list[int]] = []
    for row in found.tolist():
        exact = [Fraction(v).limit_denominator(_LARGEST) for v in row]
        common = math.lcm(*(v.denominator for v in exact))
        near = all(abs(float(e) - v) <= 1e-12 for e, v in zip(exact, row, strict=True))
        if not near or common > _LARGEST:
            return powers[np.abs(found).max(axis=0) > 0], True
        whole.append([int(v * common) for v in exact])
    table = np.array(whole)
    return table[independent_rows(table.astype(np.float64))] @ powers, False


def powers_in_use(rows: FloatArray, powers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Those of the whole rows that take part in the rows, which they span with more.

    Where cells are many, combinations of rows of all of them lose by rounding what rows of one cell each do not.
    """
    found = np.abs(rows @ np.linalg.inv(powers))
    return powers[(found / found.max(axis=1, keepdims=True)).max(axis=0) >= 1e-13]


@dataclass(frozen=True, slots=True)
class JointCells:
    """The joint cells over which rows are measured: of measures, and with `same` of an attribute that reads the column
    of one of them, which comes first.

    sizes: cells by measure.
    """

    sizes: Mapping[str, int]
    same: SameColumn | None = None

    def _sides(self, tables: Mapping[str, Any]) -> Iterator[list[NDArray[Any]]]:
        """For every cell of the attribute, of each measure the lines (n, cells) of a table that can be in it."""
        if self.same is None:
            yield [tables[name] for name in self.sizes]
            return
        measure = self.same.measure
        for kept in self.same.reaches(tables[measure].T):
            yield [tables[name][kept] if name == measure else tables[name] for name in self.sizes]

    @property
    def possible(self) -> NDArray[np.int64]:
        """The joint cells in which a record can have a share."""
        found = [
            reduce(np.multiply.outer, [side.any(axis=0) for side in sides]).reshape(-1)
            for sides in self._sides({m: corners(n).T for m, n in self.sizes.items()})
        ]
        return np.flatnonzero(np.concatenate(found))

    def shares(self, tables: Mapping[str, FloatArray]) -> FloatArray:
        """(records, joint cells that can be) of records with a line (n, cells) of each measure's table, in any cell."""
        each = [reduce(np.kron, sides) for sides in self._sides(tables)]
        if self.same is None:
            return each[0]
        found = np.zeros((sum(map(len, each)), len(each), each[0].shape[1]))
        start = 0
        for cell, lines in enumerate(each):
            found[start : start + len(lines), cell] = lines
            start += len(lines)
        return found.reshape(len(found), -1)[:, self.possible]

    def places(self, count: int) -> FloatArray:
        """Those at so many places of each measure, and of records without a number."""
        sides: dict[str, FloatArray] = {}
        for name, cells in self.sizes.items():
            pieces = (cells - 1) // 2
            each = max(3, -(-(count - 1) // pieces) + 1)  # of a piece, both ends among them
            t = np.linspace(0, 1, each)
            step, last = each - 1, 2 * pieces + 1
            side = np.zeros((step * pieces + 1 + cells - last, cells))
            for p in range(pieces):
                side[step * p : step * (p + 1) + 1, 2 * p : 2 * p + 3] = np.stack(
                    [(1 - t) ** 2, 2 * t * (1 - t), t**2], axis=1
                )
            side[step * pieces + 1 :, last:] = np.eye(cells - last)
            sides[name] = side
        return self.shares(sides)

    def powers(self) -> NDArray[np.int64]:
        """Whole rows that span all over the joint cells that can be."""
        whole = {m: _whole_rows(n) for m, n in self.sizes.items()}
        if self.same is None:
            return reduce(np.kron, whole.values())
        parts: list[NDArray[np.int64]] = []
        for sides in self._sides({m: corners(n).T for m, n in self.sizes.items()}):
            own: list[NDArray[np.int64]] = []
            for rows, side in zip(whole.values(), sides, strict=True):
                kept = np.flatnonzero(side.any(axis=0))
                some = rows[np.ix_(kept, kept)]  # both ends of a range alone have no powers of their own
                own.append(some if np.linalg.matrix_rank(some) == len(kept) else np.eye(len(kept), dtype=np.int64))
            parts.append(reduce(np.kron, own))
        found = np.zeros((sum(map(len, parts)),) * 2, dtype=np.int64)
        start = 0
        for part in parts:
            found[start : start + len(part), start : start + len(part)] = part
            start += len(part)
        return found
