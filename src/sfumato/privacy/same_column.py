"""Attributes and measures that read the same column: which numbers the records in each cell can have.

Classes of pay beside pay itself: whoever is in the class from 20,000 to 30,000 has a number between these. So of a cell
and a number not every pair can be, and what no record can be is not priced. docs/decisions/0186.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.cells import POINTS, Amounts, Edges, Grid, Rule, Wholes

Steps = tuple[int, int]
"""Codes of a measure from one to another, both of them among these: steps of its range, or that of no number."""


@dataclass(frozen=True, slots=True)
class SameColumn:
    """An attribute and a measure that read the same column.

    steps: for each cell of the attribute, the codes that the measure can have there. ends: those at which its pieces
    end.
    """

    attribute: str
    measure: str
    steps: tuple[tuple[Steps, ...], ...]
    ends: tuple[int, ...]

    @property
    def is_exact(self) -> bool:
        """Whether each cell ends where a piece does, so that no piece holds numbers of two cells."""
        known = {*self.ends, POINTS + 1}
        return all(code in known for cell in self.steps for some in cell for code in some)

    def reaches(self, shares: NDArray[np.int64] | NDArray[np.float64]) -> NDArray[np.bool_]:
        """(cells, n) in which cells of the attribute such shares of the measure (its cells, n) can be.

        They can be where all that is not 0 lies in one piece, or end of a piece, that the cell reaches.
        """
        return np.array([_within_any(shares != 0, self._held(cell)) for cell in self.steps])

    def _held(self, cell: Iterable[Steps]) -> Iterator[slice]:
        """The measure's cells of each piece that some codes reach, or of one end alone."""
        for first, last in cell:
            if first > POINTS:
                yield slice(2 * len(self.ends) - 1, None)
            elif first == last and first in self.ends:
                yield slice(2 * self.ends.index(first), 2 * self.ends.index(first) + 1)
            else:
                for p in range(len(self.ends) - 1):
                    low, high = self.ends[p : p + 2]
                    if max(first, low) < min(last, high) or low < first == last < high:
                        yield slice(2 * p, 2 * p + 3)


def _within_any(there: NDArray[np.bool_], held: Iterable[slice]) -> NDArray[np.bool_]:
    found = np.zeros(there.shape[1], dtype=np.bool_)
    for some in held:
        found |= there[some].sum(axis=0) == there.sum(axis=0)
    return found


def same_columns(grid: Grid) -> tuple[SameColumn, ...]:
    """Attributes of numbers and measures that read the same column: of each attribute the first such measure.

    Both read one number v of a row, by one rule. Whatever is at least an edge and at most the next is in a cell, closed
    at both ends so that no rounding of an edge to a double matters; and the step of v rises with v, as doubles are
    subtracted, multiplied, added and rounded in order. So the steps of a cell's numbers lie between those of its edges.
    """
    found: list[SameColumn] = []
    moved = {grid.names[a] for m in grid.moves for a in m.axes}
    numbers = {c: (n, r) for c, n, r in _read(grid) if type(r) in (Edges, Wholes) and n not in moved}
    for column, name, rule in _read(grid):
        if type(rule) is Amounts and column in numbers and rule.edition > 1:
            attribute, cells = numbers[column]
            if cells.edition > 1 and attribute not in {s.attribute for s in found}:
                found.append(SameColumn(attribute, name, tuple(_cell_steps(cells, rule)), rule.ends))
    return tuple(found)


def _read(grid: Grid) -> list[tuple[str, str, Rule]]:
    return list(zip(grid.read_columns, grid.names, grid.rules, strict=True))


def _cell_steps(rule: Rule, measure: Amounts) -> Iterator[tuple[Steps, ...]]:
    """The codes of a measure in each cell of an attribute that reads the same column."""
    if isinstance(rule, Wholes):  # a fraction counts with the whole number below it, but for one beyond the last
        starts = range(rule.low, rule.high + 1, rule.width)
        edges = [*map(float, starts), float(rule.high + 1 if rule.outside == "clamp" else rule.high)]
    else:
        assert isinstance(rule, Edges)
        edges = list(map(float, rule.edges))
    first, last = edges[0], edges[-1]
    if rule.outside == "clamp":
        edges[0], edges[-1] = -math.inf, math.inf
    for low, high in itertools.pairwise(edges):
        yield tuple(_steps_between(measure, low, high))
    if rule.size > rule.declared:
        beyond = [*_steps_between(measure, -math.inf, first), *_steps_between(measure, last, math.inf)]
        none = [(POINTS + 1, POINTS + 1)] * (rule.missing == "other")
        yield tuple(dict.fromkeys([*(beyond if rule.outside == "other" else []), *none]))


def _steps_between(measure: Amounts, low: float, high: float) -> Iterator[Steps]:
    """The codes of all numbers from one to another, by the rule that rows are read by."""
    clamps = measure.outside == "clamp"
    if clamps or (low <= measure.high and high >= measure.low):
        yield _step(measure, low), _step(measure, high)
    if not clamps and (low < measure.low or high > measure.high):
        yield POINTS + 1, POINTS + 1


def _step(measure: Amounts, number: float) -> int:
    inside = min(max(number, measure.low), measure.high)
    return min(math.floor((inside - measure.low) * (POINTS / (measure.high - measure.low)) + 0.5), POINTS)
