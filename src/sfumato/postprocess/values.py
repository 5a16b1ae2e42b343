"""Projection of sums of measures: the nearest that whole numbers of records with values in the declared range have.

A table is possible if records with values give it. Values are places of the range: ends, knots, and more between them,
so many that those in between would change little; a table over cells and places, none negative, gives counts, sums,
sums of squares and products at once, so no variance is negative and no correlation beyond 1.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import cast

import numpy as np
from numpy.typing import NDArray

from sfumato._util.codec import storable
from sfumato._util.display import Progress
from sfumato.domain import Domain, Integers, Measure
from sfumato.errors import InvalidInput
from sfumato.operators import Block, Dense, LinearOperator
from sfumato.operators.base import FloatArray, kron
from sfumato.postprocess.bodies import project
from sfumato.postprocess.cones import LeastSquares, gap_in_larger_body, minimise_quadratic, supporting_functional
from sfumato.postprocess.possible import CellCounts, Possible
from sfumato.postprocess.projection import Projection, joint_attributes, possible_operator
from sfumato.workloads import RECORDS, QueryBlock, Workload

VALUE_BODIES = ("auto", "hull", "cone", "exact")
"""Bodies of `project` that sums of measures have."""
_PARTS = 16  # of each piece of a range, to begin with
_LISTED = 2**20  # cells times places up to which all are listed
_FINER = 2**18  # up to which parts are halved where values inside matter
_KNOWN = 1e-9  # of the largest variance: rounding of none
_ROUNDS = 200  # of least squares; each takes in the best value of every cell
_SETTLED = 1e-6  # of a standard error squared, on average over the answers
_HALVED = 24  # times at most: to a millionth of a part
_MATTERS = 1e-3  # of a standard error squared, on average over the answers


@storable
@dataclass(frozen=True, slots=True, eq=False)
class ValueCounts(Possible):
    """Records in cells of attributes and at places of measures, none negative; they answer as cells of measures do.

    held: counts whose attributes have places in place of the cells of a measure. values: per measure the numbers at its
    places, of which one more, the last, is for records without a number. shares: per measure (cells, places), what a
    record at a place adds to each cell.
    """

    held: Possible
    measures: tuple[str, ...]
    values: tuple[FloatArray, ...]
    shares: tuple[FloatArray, ...]

    def table(self, attributes: Sequence[str]) -> FloatArray:
        found = self.held.table(attributes)
        for axis, name in enumerate(attributes):
            if name in self.measures:
                shares = self.shares[self.measures.index(name)]
                found = np.moveaxis(np.tensordot(shares, found, axes=(1, axis)), 0, axis)
        return found


Cuts = tuple[FloatArray, ...]
"""Of each piece of a measure's range rising places from 0 to 1, its ends among them."""


def _even_cuts(measure: Measure) -> Cuts:
    return (np.linspace(0.0, 1.0, _PARTS + 1),) * (len(measure.ends) - 1)


def _places(measure: Measure, cuts: Cuts) -> tuple[FloatArray, FloatArray]:
    """The numbers at the places, and (cells, places) their shares; no number comes last."""
    values: list[float] = []
    columns: list[FloatArray] = []
    for piece, ((a, b), own) in enumerate(zip(itertools.pairwise(measure.ends), cuts, strict=True)):
        for u in own[:-1].tolist():
            values.append(a + (b - a) * u)
            columns.append(_column(measure, piece, u, u))
    values.append(measure.ends[-1])
    columns.append(_column(measure, len(cuts) - 1, 1.0, 1.0))
    return np.array(values), np.stack([*columns, _absent(measure)], axis=1)


def _meeting_shares(measure: Measure, cuts: Cuts) -> FloatArray:
    """(cells, points) shares whose convex combinations hold those of all values, and a little more.

    Between two neighbouring places it is the point where the tangents of the curve meet (docs/decisions/0136); these
    come first, piece by piece.
    """
    between = [_column(measure, p, u, v) for p, own in enumerate(cuts) for u, v in itertools.pairwise(own.tolist())]
    ends = [_column(measure, p, 0.0, 0.0) for p in range(len(cuts))]
    return np.stack([*between, *ends, _column(measure, len(cuts) - 1, 1.0, 1.0), _absent(measure)], axis=1)


def _column(measure: Measure, piece: int, u: float, v: float) -> FloatArray:
    """Shares in the cells: where u = v those of a value in a piece, else where the tangents at u and v meet."""
    out = np.zeros(measure.size)
    out[2 * piece : 2 * piece + 3] = (1 - u) * (1 - v), u * (1 - v) + v * (1 - u), u * v
    return out


def _absent(measure: Measure) -> FloatArray:
    out = np.zeros(measure.size)
    out[-1] = 1.0
    return out


@dataclass(frozen=True, slots=True, eq=False)
class ValueTable:
    """Queries of measures as queries over places of their ranges.

    work: what is asked; asked: the same over places, each divided by its largest coefficient, so that sums of all
    units are rounded alike; scale: (k,) these divisors; values and shares: per measure, in
    the order of the domain, as of `ValueCounts`.
    """

    work: Workload
    asked: Workload
    scale: FloatArray
    values: tuple[FloatArray, ...]
    shares: tuple[FloatArray, ...]

    @staticmethod
    def of(work: Workload, cuts: Sequence[Cuts]) -> ValueTable:
        """With such places in the range of each measure."""
        found = [_places(m, c) for m, c in zip(_measures(work), cuts, strict=True)]
        values, shares = tuple(v for v, _ in found), tuple(s for _, s in found)
        asked, scale = _over_places(work, dict(zip(work.measures, shares, strict=True)))
        return ValueTable(work, asked, scale, values, shares)

    @staticmethod
    def of_counts(work: Workload, held: ValueCounts) -> ValueTable:
        """With the places of counts that were found for these queries, or for others of the same measures."""
        asked, scale = _over_places(work, dict(zip(held.measures, held.shares, strict=True)))
        return ValueTable(work, asked, scale, held.values, held.shares)

    def counts(self, held: Possible) -> ValueCounts:
        """What answers the queries of measures, from what answers those over places."""
        return ValueCounts(held, self.work.measures, self.values, self.shares)

    def restored(self, found: Projection) -> Projection:
        """A projection of the queries over places, as one of what is asked."""
        return replace(found, answers=found.answers * self.scale, possible=self.counts(found.possible))


def _measures(work: Workload) -> list[Measure]:
    return [cast(Measure, work.domain[m]) for m in work.measures]


def _over_places(work: Workload, shares: dict[str, FloatArray]) -> tuple[Workload, FloatArray]:
    """The queries over places with such shares, each divided by its largest coefficient; and these divisors."""
    domain = work.domain
    attributes = {
        n: Integers(0, shares[n].shape[1] - 1) if n in shares else a
        for n, a in domain.attributes.items()
        if n in shares or n not in domain.measures
    }
    items: list[QueryBlock] = []
    divisors: list[FloatArray] = []
    for q in work.blocks:
        factors: list[LinearOperator] = []
        most: list[FloatArray] = []
        for group, factor in zip(q.block.groups, q.block.factors, strict=True):
            if not any(a in shares for a in group):
                factors.append(factor)
                most.append(np.ones(factor.shape[0]))
                continue
            rows = np.asarray(factor.dense(), dtype=np.float64)
            largest = np.abs(rows).max(axis=1)
            largest[largest == 0] = 1.0
            sides = [shares[a] if a in shares else np.eye(domain[a].size) for a in group]
            factors.append(Dense((rows / largest[:, None]) @ reduce(kron, sides)))
            most.append(largest)
        items.append(QueryBlock(q.part, Block(q.block.groups, tuple(factors)), q.weight, q.unit))
        divisors.append(np.asarray(reduce(np.kron, most, np.ones(1)), dtype=np.float64))
    return Workload(Domain(attributes, impossible=domain.impossible), tuple(items)), np.concatenate(divisors)


def _outer_problem(table: ValueTable, cuts: Sequence[Cuts], given: FloatArray, white: FloatArray) -> _Fit:
    """The same queries over points whose convex combinations hold all that values in the ranges can give."""
    met = {n: _meeting_shares(m, c) for n, m, c in zip(table.work.measures, _measures(table.work), cuts, strict=True)}
    return _Fit.of(_over_places(table.work, met)[0], table.work.measures, given, white)


@dataclass(frozen=True, slots=True, eq=False)
class _Fit:
    """Least squares over records in possible cells and at places or points: cells, then those of each measure."""

    problem: LeastSquares
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    kept: NDArray[np.intp] | None
    measures: int

    @staticmethod
    def of(work: Workload, measures: Sequence[str], given: FloatArray, white: FloatArray) -> _Fit:
        names = joint_attributes(work)
        operator, kept = possible_operator(work)
        return _Fit(LeastSquares(operator, given, white), names, work.domain.sizes(names), kept, len(measures))

    @property
    def _points(self) -> int:
        return math.prod(self.sizes[len(self.sizes) - self.measures :])

    def steepest(self, slope: FloatArray) -> list[FloatArray]:
        """Per measure (points,) the least of a gradient at each."""
        table = slope.reshape(-1, *self.sizes[len(self.sizes) - self.measures :])
        every = range(table.ndim)
        return [table.min(axis=tuple(i for i in every if i != axis)) for axis in every[1:]]

    def cells(self, total: float | None) -> FloatArray:
        """The nearest cells: least squares over those in use, which the steepest of every group join round by round."""
        problem, h = self.problem, np.zeros(self.problem.cells)
        rows = np.arange(problem.cells // self._points) * self._points
        if total is not None:
            h[int(problem.gradient(h).argmin())] = total
        for _ in range(_ROUNDS):
            slope = problem.gradient(h)
            inward, mass = float(slope @ h), max(float(h.sum()), 1.0)
            least = inward / mass if total is not None else 0.0
            if mass * (least - float(slope.min())) <= _SETTLED * len(problem.target):
                break
            pull = rows + slope.reshape(-1, self._points).argmin(axis=1)
            chosen = np.union1d(np.flatnonzero(h), pull[slope[pull] < least])
            columns = problem.columns(chosen)
            some = minimise_quadratic(columns.T @ columns, columns.T @ problem.target, total, h[chosen])
            h = np.zeros_like(h)
            h[chosen] = some if total is None or some.sum() == 0 else some * (total / some.sum())
        return h

    def shaped(self, h: FloatArray) -> FloatArray:
        """As a table over all cells, the impossible ones with nothing."""
        every = np.zeros(math.prod(self.sizes))
        every[slice(None) if self.kept is None else self.kept] = h
        return every.reshape(self.sizes)


def _most_records(asked: Workload, outer: _Fit, white: FloatArray) -> FloatArray | None:
    """What bounds the records of a table with such answers: a block that counts all who matter, where there is one."""
    ends = np.cumsum([0, *(q.rows for q in asked.blocks)])
    matter = outer.problem.cells_that_matter()
    for q, a, b in zip(asked.blocks, ends[:-1], ends[1:], strict=True):
        if q.unit == RECORDS:
            counted = np.zeros(len(white))
            counted[a:b] = 1 / white[a:b]
            if (outer.problem.back(counted)[matter] > 0).all():
                return counted
    return supporting_functional(outer.problem)


def _cut_finer(cuts: Cuts, steepest: FloatArray, least: float) -> Cuts:
    """Halves in place of the parts in which a record would change answers by more than what matters."""
    out: list[FloatArray] = []
    start = 0
    for own in cuts:
        parts = len(own) - 1
        steep = steepest[start : start + parts] < least
        start += parts
        out.append(np.union1d(own, (own[:-1] + own[1:])[steep] / 2))
    return tuple(out)


def _count(cuts: Cuts) -> int:
    return sum(map(len, cuts))


def check_values(work: Workload) -> None:
    """Refuse sums of measures of which `project_values` would refuse any answers. Raises InvalidInput."""
    _cells_over_places(ValueTable.of(work, [_even_cuts(m) for m in _measures(work)]), "auto")


def _cells_over_places(table: ValueTable, body: str) -> int:
    names = joint_attributes(table.asked)
    cells = math.prod(table.asked.domain.sizes(names))
    if cells > _LISTED and body != "exact":
        raise InvalidInput(
            f"projecting takes records by {', '.join(names)}, with {_PARTS} places or more in each piece of a "
            f"measure: {cells:,} cells, above the limit of {_LISTED:,}. Release what is to be projected by a plan "
            "of its own, by fewer attributes or with fewer measures or knots, or project with body='exact'"
        )
    return cells


def project_values(
    work: Workload,
    answers: FloatArray,
    variances: FloatArray,
    total: float | None,
    *,
    body: str = "auto",
    progress: Progress | None = None,
) -> tuple[Projection, ValueTable]:
    """The nearest answers to sums of measures that records with values have, each weighed by its variance.

    Answers and possible counts of the projection are those of `ValueTable.asked`; `ValueTable.restored` has those of
    `work`. Parts of a range are halved while values inside could bring the answers nearer by what matters, as far as
    the number of cells allows. Raises InvalidInput for bodies that sums do not have, and for tables that are too large.
    """
    if body not in VALUE_BODIES:
        raise InvalidInput(f"sums of measures are projected onto body={', '.join(VALUE_BODIES)}, not {body!r}")
    cuts = [_even_cuts(m) for m in _measures(work)]
    matters, supporting = _MATTERS * len(answers), None
    for halved in itertools.count():
        table = ValueTable.of(work, cuts)
        cells = _cells_over_places(table, body)
        given, spread = answers / table.scale, variances / table.scale**2
        # what follows from the number of records alone is so of every table with as many
        spread[spread <= _KNOWN * spread.max()] = spread.max()
        if cells > _LISTED:
            return project(given, table.asked, body="exact", covariance=spread, total=total, progress=progress), table
        white = 1 / np.sqrt(spread)
        inner = _Fit.of(table.asked, work.measures, given, white)
        outer = _outer_problem(table, cuts, given, white)
        h = inner.cells(total)
        fitted = np.asarray(inner.problem.operator.matvec(h), dtype=np.float64)
        if total is None and not halved:
            supporting = _most_records(table.asked, outer, white)
        gap, slope = gap_in_larger_body(outer.problem, fitted, total, supporting)
        if progress is not None:
            progress(halved + 1, gap)
        mass = max(float(h.sum()), 1.0)
        finer = [_cut_finer(c, s, -matters / mass) for c, s in zip(cuts, outer.steepest(slope), strict=True)]
        growth = math.prod(_count(f) / _count(c) for f, c in zip(finer, cuts, strict=True))
        if gap <= matters or halved == _HALVED or growth == 1 or cells * growth > _FINER:
            held, name = CellCounts(inner.names, inner.shaped(h)), "cone" if total is None else "hull"
            moved = float(np.linalg.norm(white * (fitted - given)))
            return Projection(fitted, held, gap, True, moved, halved + 1, name, True, norm="noise"), table
        cuts = finer
    raise AssertionError
