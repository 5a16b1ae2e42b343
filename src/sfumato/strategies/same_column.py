"""Attributes and measures that read the same column: which numbers the records in each cell can have.

Classes of pay beside pay itself: whoever is in the class from 20,000 to 30,000 has a number between these. So of a cell
and a number not every pair can be, and a plan need not look at the others. No privacy rests on it: `moment_cells.py`.
docs/decisions/0186.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.cells import POINTS, Amounts, Edges, Grid, Rule, Wholes

Steps = tuple[int, int]
"""Codes of a measure from one to another, both of them among these: steps of its range, or that of no number."""

_NONE = (POINTS + 1, POINTS + 1)
_MOST_CELLS = 2**10  # that are looked at one by one, each with all corners: a tenth of a second


@dataclass(frozen=True)
class SameColumn:
    """An attribute and a measure that read the same column, by name and by rule.

    Both read one number v of a row. What is in a cell is at least its edge, and at most the next: closed at both ends,
    so that it does not matter how an edge is rounded to a double. The step of v never falls as v rises, since doubles
    are subtracted, multiplied, added and rounded in order. So the steps of a cell's numbers lie between those of its
    edges.
    """

    attribute: str
    measure: str
    cells: Rule
    amounts: Amounts

    @property
    def is_small(self) -> bool:
        """Whether the attribute has few cells: of others every pair is taken to be possible."""
        return self.cells.size <= _MOST_CELLS

    @functools.cached_property
    def steps(self) -> tuple[tuple[Steps, ...], ...]:
        """For each cell of the attribute, the codes that the measure can have there."""
        return tuple(map(tuple, _cell_steps(self.cells, self.amounts)))

    @property
    def is_exact(self) -> bool:
        """Whether each cell ends where a piece of the measure does, so that no piece holds numbers of two cells."""
        known = {*self.amounts.ends, *_NONE}
        return all(code in known for cell in self.steps for some in cell for code in some)

    def reaches(self, shares: NDArray[np.int64] | NDArray[np.float64]) -> NDArray[np.bool_]:
        """(cells, n) in which cells of the attribute such shares of the measure (its cells, n) can be.

        They can be where all that is not 0 lies in one piece, or end of a piece, that the cell reaches.
        """
        there = shares != 0
        found = np.zeros((len(self.steps), there.shape[1]), dtype=np.bool_)
        for line, cell in zip(found, self.steps, strict=True):
            for some in set(itertools.chain.from_iterable(map(self._reached, cell))):
                line |= there[slice(*some)].sum(axis=0) == there.sum(axis=0)
        return found

    def _reached(self, codes: Steps) -> Iterator[tuple[int, int]]:
        """The measure's cells (from, to) of each piece that some codes reach, or of one end alone."""
        ends, (first, last) = self.amounts.ends, codes
        if codes == _NONE:
            yield 2 * len(ends) - 1, 2 * len(ends)
        elif first == last and first in ends:
            yield 2 * ends.index(first), 2 * ends.index(first) + 1
        else:
            for p, (low, high) in enumerate(itertools.pairwise(ends)):
                if max(first, low) < min(last, high) or low < first == last < high:
                    yield 2 * p, 2 * p + 3


def same_columns(grid: Grid) -> tuple[SameColumn, ...]:
    """Attributes of numbers and measures that read the same column: of each attribute the first such measure."""
    moved = {grid.names[a] for m in grid.moves for a in m.axes}  # some records of impossible cells count in others
    each = zip(grid.columns, grid.names, grid.rules, strict=True)
    read = [(columns[0], name, rule) for columns, name, rule in each if len(columns) == 1]
    numbers = {column: (name, rule) for column, name, rule in read if _keeps_order(rule) and name not in moved}
    found: dict[str, SameColumn] = {}
    for column, name, rule in read:
        if type(rule) is Amounts and column in numbers:
            attribute, cells = numbers[column]
            found.setdefault(attribute, SameColumn(attribute, name, cells, rule))
    return tuple(found.values())


def _keeps_order(rule: Rule) -> bool:
    """Whether the numbers of each declared cell lie between two edges; of whole numbers fractions may be outside."""
    return type(rule) is Edges or (type(rule) is Wholes and (rule.edition > 1 or rule.outside == "clamp"))


def _cell_steps(rule: Rule, measure: Amounts) -> Iterator[Iterable[Steps]]:
    """The codes of a measure in each cell of an attribute that reads the same column."""
    if isinstance(rule, Wholes):  # a fraction counts with the whole number below it
        edges = [*map(float, range(rule.low, rule.high + 1, rule.width)), float(rule.high)]
    else:
        assert isinstance(rule, Edges)
        edges = list(map(float, rule.edges))
    first, last = edges[0], edges[-1]
    if rule.outside == "clamp":
        edges[0], edges[-1] = -math.inf, math.inf
    for low, high in itertools.pairwise(edges):
        yield _steps_between(measure, low, high)
    if rule.size > rule.declared:
        beyond = [*_steps_between(measure, -math.inf, first), *_steps_between(measure, last, math.inf)]
        yield {*(beyond if rule.outside == "other" else []), *([_NONE] if rule.missing == "other" else [])}


def _steps_between(measure: Amounts, low: float, high: float) -> Iterator[Steps]:
    """The codes of all numbers from one to another, by the rule that rows are read by."""
    clamps = measure.outside == "clamp"
    if clamps or (low <= measure.high and high >= measure.low):
        yield _step(measure, low), _step(measure, high)
    if not clamps and (low < measure.low or high > measure.high):
        yield _NONE


def _step(measure: Amounts, number: float) -> int:
    inside = min(max(number, measure.low), measure.high)
    return min(math.floor((inside - measure.low) * (POINTS / (measure.high - measure.low)) + 0.5), POINTS)
