"""What noisy counts say of one column: where its values lie, how finely to look next, quartiles, mean and histogram.

A column is looked at coarsely and then finely. Here is what is read off either look, and off both together: functions
of noisy counts alone, so they cost nothing, and what the second look counts may follow from the first.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from typing import cast

import numpy as np
from numpy.typing import NDArray

from sfumato.domain.ordered import Dates, Period
from sfumato.operators import Tree
from sfumato.operators.base import FloatArray
from sfumato.postprocess.cones import minimise_quadratic

# An eighth of a look at a scale is a level of its tree, a fourth of one at cells: the least errors of quartiles among
# the branchings from 2 to 16, for some 500 and 256 cells
SCALE_BRANCHING, FINE_BRANCHING = 8, 4
_OCTAVES = (-14, 48)  # 0.00006 to 280 million millions: money, measures, and times in milliseconds since 1970
_PARTS = 4  # cells of an octave, so that the years since 1792 lie in one
_YEARS = (1700, 2200)  # what lies beyond counts in the first or last
_FINE_CELLS = 256  # of all values; a cell of the scale has as many of them as it has values
_JOINED = 1 / 128  # of all values: neighbours of fewer are one cell
_MOST_PERIODS = {"day": 740, "month": 480, "year": 500}  # two years, forty, all
_DAYS = {"day": 1, "month": 31, "year": 366}  # of the longest
_TAILS = 0.002  # of the values, at either end, that may lie beyond, and as many more as noise hides
_HIDDEN = 1.5  # standard errors of a count up to a cell
_MOST_TAIL = 0.1  # of the values: more would cut quartiles off
_DIGITS = 18  # of a double
_LOOSE = 1e-9  # of the mean variance, by which a number of records known exactly may move: so covariances are regular
_SURE = 4.0  # standard errors: of 256 cells without records, one in a hundred tables shows one


@functools.cache
def scale_edges() -> tuple[float, ...]:
    """Edges of cells by sign and power of two, four cells to each."""
    low, high = _OCTAVES
    above = [math.ldexp(1 + j / _PARTS, k) for k in range(low, high) for j in range(_PARTS)] + [math.ldexp(1.0, high)]
    return (*(-x for x in reversed(above)), 0.0, *above)


@functools.cache
def year_edges() -> tuple[int, ...]:
    """The days on which years begin, by their number."""
    return tuple(date(y, 1, 1).toordinal() for y in range(_YEARS[0], _YEARS[1] + 1))


@dataclass(frozen=True, eq=False)
class ColumnCounts:
    """Estimated counts of the cells of a column, the last of which holds what has no value, and their covariance.

    Args:
        values: (n,) counts.
        covariance: (n, n) of these.
    """

    values: FloatArray
    covariance: FloatArray

    @property
    def errors(self) -> FloatArray:
        """(n,) standard errors."""
        return np.sqrt(np.diagonal(self.covariance))

    def error_of(self, row: FloatArray) -> float:
        """The standard error of a sum of the counts with weights (n,)."""
        return math.sqrt(max(0.0, float(row @ self.covariance @ row)))

    @functools.cached_property
    def errors_upto(self) -> FloatArray:
        """(n - 1,) standard errors of the sums of the first cells, as far as there are values."""
        upto = np.cumsum(np.cumsum(self.covariance, axis=0), axis=1)
        return np.sqrt(np.maximum(np.diagonal(upto)[:-1], 0.0))

    def with_sums(self, rows: FloatArray, sums: FloatArray, covariance: FloatArray) -> ColumnCounts:
        """The counts of least variance where sums of them are known besides, whose noise is independent of theirs.

        Args:
            rows: (m, n) how the sums are made of the counts.
            sums: (m,) the sums, noisy.
            covariance: (m, m) of these.

        Returns:
            The counts.
        """
        ahead = rows @ self.covariance
        gain = np.linalg.solve(ahead @ rows.T + covariance, ahead).T
        return ColumnCounts(self.values + gain @ (sums - rows @ self.values), self.covariance - gain @ ahead)

    def with_total(self, total: float, variance: float) -> ColumnCounts:
        """The counts where the number of records is known besides, with so much variance."""
        ones = np.ones((1, len(self.values)))
        return self.with_sums(ones, np.array([total]), np.array([[variance]]))

    @functools.cached_property
    def nonnegative(self) -> FloatArray:
        """(n,) the nearest counts none of which is below 0, by the metric of the covariance: where cells are empty or
        hold much, that takes a fifth of the noise from quartiles. They are not unbiased."""
        loose = _LOOSE * float(np.trace(self.covariance)) / len(self.values)
        metric = np.linalg.inv(self.covariance + loose * np.eye(len(self.values))).astype(np.float64)
        return minimise_quadratic(metric, metric @ self.values, None, np.maximum(self.values, 0.0))


@functools.lru_cache(maxsize=8)  # some megabytes each
def _tree_inverse(tree: Tree) -> tuple[FloatArray, FloatArray]:
    """(n, l) the least squares of a tree, and (n, n) their covariance at noise of variance 1."""
    matrix = tree.rows(0, tree.shape[0])
    inverse = np.linalg.inv(matrix.T @ matrix).astype(np.float64)
    return inverse @ matrix.T, inverse


def tree_counts(tree: Tree, values: FloatArray, variance: float) -> ColumnCounts:
    """Counts of cells from the noisy sums of a tree.

    Args:
        tree: What was summed.
        values: (l,) the noisy sums.
        variance: That of their noise.

    Returns:
        The counts of least variance.
    """
    solve, inverse = _tree_inverse(tree)
    return ColumnCounts(solve @ values, variance * inverse)


def with_coarser(
    fine: ColumnCounts, edges: Sequence[float], coarse: ColumnCounts, coarse_edges: Sequence[float]
) -> ColumnCounts:
    """Counts of fine cells, where a coarser look of independent noise counted the same records.

    Of what the coarser one counted, all is used that lies between edges which both have: values beyond the first and
    last of them are together in one cell at either end.

    Args:
        fine: The counts of the fine cells, and of what has no value.
        edges: Their edges, one more than there are cells of values.
        coarse: The counts of the coarser look.
        coarse_edges: Their edges.

    Returns:
        The counts of least variance of the fine cells.
    """
    both = np.intersect1d(edges[1:-1], coarse_edges[1:-1])

    def cuts(own: Sequence[float]) -> FloatArray:
        """Which cells lie between two neighbours of the edges of both, and last what has no value."""
        first = np.array([0, *np.searchsorted(own, both), len(own) - 1])
        return np.add.reduceat(np.eye(len(own)), first, axis=0)

    rows, coarser = cuts(edges), cuts(coarse_edges)
    return fine.with_sums(rows, coarser @ coarse.values, coarser @ coarse.covariance @ coarser.T)


def smoothed_counts(counts: FloatArray) -> FloatArray:
    """(n,) counts up to each cell that rise from 0 to the whole: the middle of the largest so far and least to come."""
    upto = np.cumsum(counts)
    ahead = np.minimum.accumulate(upto[::-1])[::-1]
    rising = (np.maximum.accumulate(upto) + ahead) / 2
    return np.clip(rising, 0.0, max(0.0, float(upto[-1])) if len(upto) else 0.0)


def _crossed(upto: FloatArray, goal: float) -> int:
    """The first cell at whose end so many records were counted."""
    return min(int(np.searchsorted(upto, goal, side="left")), len(upto) - 1)


def found_range(found: ColumnCounts) -> tuple[int, int, float]:
    """First and last cell between which nearly all values lie, as far as noise lets tell.

    Args:
        found: The counts.

    Returns:
        The cells, and the share of the values that lies beyond at either end, or less.
    """
    upto = smoothed_counts(found.values[:-1])
    total = float(upto[-1])
    tail = min(_MOST_TAIL, _TAILS + _HIDDEN * float(found.errors_upto.max(initial=0.0)) / max(total, 1.0))
    return _crossed(upto, tail * total), _crossed(upto, (1 - tail) * total), tail


def fine_edges(found: ColumnCounts, *, whole: bool) -> tuple[float, ...]:
    """Edges of some 256 cells over the range that a look at the scale found, more of them where more values lie.

    Args:
        found: The counts of the cells of `scale_edges`.
        whole: Whether all values are whole numbers, so that no cell is narrower than 1.

    Returns:
        The edges; of one octave that holds everything, those of equal cells.
    """
    edges = scale_edges()
    upto = smoothed_counts(found.values[:-1])
    low, high, _ = found_range(found)
    low, high = max(0, low - 1), min(len(upto) - 1, high + 1)  # where tails go on
    share = np.diff(upto, prepend=0.0)[low : high + 1] / max(float(upto[-1]), 1e-9)
    out: list[float] = []
    joined = 1.0
    for a, b, part in zip(edges[low : high + 1], edges[low + 1 : high + 2], share.tolist(), strict=True):
        count = 2 ** round(math.log2(1 + _FINE_CELLS * part))
        if 0.0 in (a, b):
            count = 1  # nearly always it is 0 itself
        if whole:
            count = max(1, min(count, 2 ** int(math.log2(max(1.0, b - a)))))
        joined += part
        if count == 1 and joined < _JOINED and 0.0 not in (a, b) and 0.0 not in out[-1:]:
            continue  # a cell of few values goes on where the one before ended
        joined = part
        out += [a + (b - a) * j / count for j in range(count)]
    return (*out, edges[high + 1])


def date_edges(found: ColumnCounts) -> tuple[Period, tuple[int, ...]]:
    """The period and the edges of cells over the years that a look found, in days by their number."""
    low, high, _ = found_range(found)
    first, last = date(_YEARS[0] + low, 1, 1), date(_YEARS[0] + high, 12, 31)
    days = last.toordinal() - first.toordinal() + 1
    fitting = (by for by, most in _MOST_PERIODS.items() if days <= most * _DAYS[by])
    by = cast(Period, next(fitting, "year"))
    return by, Dates(first, last, by).edges


def quantile_cell(counts: FloatArray, probability: float) -> tuple[int, float]:
    """The cell that holds a quantile of values of which no count is below 0, and how far along in it, from 0 to 1."""
    upto = np.cumsum(counts)
    goal = probability * float(upto[-1])
    cell = _crossed(upto, goal)
    before = float(upto[cell - 1]) if cell else 0.0
    inside = float(upto[cell]) - before
    return cell, min(1.0, max(0.0, (goal - before) / inside)) if inside > 0 else 0.5


def round_number(low: float, high: float, near: float) -> float:
    """The roundest number in a cell, by which it is told: where many values are one number, it nearly always is that.

    Args:
        low: The lower edge of the cell.
        high: Its upper edge, which is not in it.
        near: Of numbers that are as round the nearest to this is taken.

    Returns:
        0 where it is in the cell, else a multiple of the largest of ..., 10, 5, 1, 0.5, 0.1, ... that is.
    """
    if low <= 0.0 < high:
        return 0.0
    a, b = Fraction(low), Fraction(high)
    largest = math.floor(math.log10(max(abs(low), abs(high)))) + 1
    for power in range(largest, largest - _DIGITS, -1):
        for step in (Fraction(10) ** power, Fraction(10) ** power / 2):
            first, last = math.ceil(a / step), math.ceil(b / step) - 1
            told = float(min(max(round(Fraction(near) / step), first), last) * step)
            if first <= last and low <= told < high:
                return told
    return low


def clear_cells(found: ColumnCounts) -> NDArray[np.bool_]:
    """Of each cell of values whether it surely holds records."""
    return found.values[:-1] > _SURE * found.errors[:-1]


def counted_mean(found: ColumnCounts, edges: Sequence[float], first: int, last: int) -> tuple[float, float, float]:
    """The mean of values at the middles of their cells, its standard error, and how far it may be off for the middles.

    Args:
        found: The counts.
        edges: The edges of the cells.
        first: The first of the cells that count as they are; values below count as its lower end.
        last: The last of them; values above count as its upper end.

    Returns:
        All three in the unit of the edges.
    """
    at = np.clip(np.asarray(edges), edges[first], edges[last + 1])
    middles, halves = (at[:-1] + at[1:]) / 2, np.diff(at) / 2
    size = float(found.values[:-1].sum())
    mean = float(found.values[:-1] @ middles) / size
    within = float(np.maximum(found.values[:-1], 0.0) @ halves) / size
    return mean, found.error_of(np.append((middles - mean) / size, 0.0)), within
