"""Sums of more measures than are planned jointly, in parts; and cell by cell, which is what Laplace noise pays for.

Queries that join measures stay together. What a record changes of several parts is at most what it changes of each,
added up, so the roots of their errors add up too: fewer parts err less where measures are planned jointly.

Of Laplace noise the price adds up what a record changes. Residuals cost a record once for every set of attributes.
Tables of cells cost it once for each table, and a record's part in a cell's rows need not cost more than a count: the
shares of a record over some rows that sum up to one are one in all. Of a sum that is 1 - t and t, which give the count
as well; with squares the three cells of a measure.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato._util.codec import storable
from sfumato.cells import MAX_MEASURES
from sfumato.errors import NotAnswerable, PlanError, SfumatoError
from sfumato.operators import Block, Identity
from sfumato.operators.base import FloatArray, LinearOperator, Numbers
from sfumato.privacy.measures import WHOLE_BITS, corners
from sfumato.privacy.unit import Neighbours
from sfumato.strategies import moments
from sfumato.strategies.budget_split import relative_scales
from sfumato.strategies.certificates import exact_sensitivity
from sfumato.strategies.covariance import check_covariance_size
from sfumato.strategies.design import Design, Problem
from sfumato.strategies.moment_cells import end_shares
from sfumato.strategies.moments import MomentPart, Moments, merge_cells
from sfumato.strategies.stacked import StackedPiece, piece_at_unit_price, share_design, weighted_error
from sfumato.strategies.strategy import Estimate
from sfumato.workloads import QueryBlock

_WHOLE = 2.0**WHOLE_BITS
_BITS = 12  # of the smallest coefficient of a row: by so many rounding costs less than a part in 4,000
_MOST_CELLS = 2**24  # of a table and what is measured of each of its cells: 128 MB of noisy values
_MOST_TABLES = 64  # each with a share of the budget: more are better had from residuals
_SPANNED = 1e-6  # of a row: what is left outside the span of rows is rounding below this


@storable
@dataclass(frozen=True, eq=False)
class MomentTables(Moments):
    """Tables of cells, each with sums of measures; a query is answered from the table that errs least."""

    @property
    def summary(self) -> str:
        rows = sum(len(p.matrix) for p in self.parts)
        measures = ", ".join(self.measures)
        return f"sums of {measures} and counts, cell by cell: {rows:,} rows over {len(self.parts):,} attribute sets"

    def _residual(self, name: str) -> LinearOperator:
        return self._over_declared(name, Identity(self.sizes[name]))

    @functools.cached_property
    def _ways_back(self) -> tuple[FloatArray, ...]:
        backs = (np.linalg.pinv(p.matrix.astype(np.float64)) / _WHOLE for p in self.parts)
        return tuple(np.asarray(b, dtype=np.float64) for b in backs)

    def _cells_beside(self, part: MomentPart, names: Sequence[str]) -> float:
        """How many cells of a part lie in each cell of some of its attributes."""
        return math.prod(float(self.sizes[a]) for a in part.attributes if a not in names)

    def _from(self, dims: Block, rows: FloatArray) -> int:
        """The part whose table gives least noise. Raises NotAnswerable where there is none."""
        found: list[tuple[float, int]] = []
        for i, (p, back) in enumerate(zip(self.parts, self._ways_back, strict=True)):
            if set(dims.attributes) <= set(p.attributes):
                left = rows - rows @ back @ p.matrix * _WHOLE
                if np.abs(left).max() <= _SPANNED * np.abs(rows).max(initial=1e-300):
                    noise = float(((rows @ back) ** 2).sum())
                    found.append((noise * self._cells_beside(p, dims.attributes), i))
        if not found:
            what = ", ".join([*dims.attributes, *self.measures])
            raise NotAnswerable(
                f"the sums and counts that were measured of {what} do not give this; ask for it in the plan: "
                "sf.moments for further sums, sf.marginals for counts of all records, with a number or without"
            )
        return min(found)[1]

    def check(self, query: Block) -> None:
        dims, rows, _ = self._split(query)
        self._from(dims, rows)

    def row_powers(self, query: Block, power: int) -> FloatArray:
        dims, rows, order = self._split(query)
        i = self._from(dims, rows)
        lengths = [f.shape[0] for f in query.factors]
        measured = [lengths[j] for j in order[len(dims.groups) :]]
        table = np.array(self._cells_beside(self.parts[i], dims.attributes))
        for factor in dims.factors:
            table = np.multiply.outer(table, factor.row_sums(power))
        own = (np.abs(rows @ self._ways_back[i]) ** power).sum(axis=1).reshape(measured)
        out = np.multiply.outer(table, own)
        return np.transpose(out, np.argsort(order))

    def covariance(self, first: Block, second: Block) -> FloatArray:
        check_covariance_size(first.rows, second.rows)
        one, other = self._split(first), self._split(second)
        i, j = self._from(*one[:2]), self._from(*other[:2])
        total = np.zeros((one[0].rows * len(one[1]), other[0].rows * len(other[1])))
        if i == j:
            back = self._ways_back[i]
            names = {*one[0].attributes, *other[0].attributes}
            cross = self._cells_beside(self.parts[i], tuple(names)) * self._cross(one[0], other[0])
            total[:] = np.kron(cross, (one[1] @ back) @ (other[1] @ back).T)
        return self._ordered(self._ordered(total, first, one[2]).T, second, other[2]).T

    def _cross(self, one: Block, other: Block) -> FloatArray:
        """Products of two blocks' rows, summed over the cells of all attributes that either names."""
        tables: list[FloatArray] = []
        for block, theirs in ((one, other.attributes), (other, one.attributes)):
            rows = np.asarray(block.operator.dense(), dtype=np.float64) if block.groups else np.ones((1, 1))
            table = rows.reshape(len(rows), *(self.sizes[a] for a in block.attributes))
            summed = tuple(1 + k for k, a in enumerate(block.attributes) if a not in theirs)
            kept = [a for a in block.attributes if a in theirs]
            table = table.sum(axis=summed)
            table = table.transpose([0, *(1 + kept.index(a) for a in sorted(kept))])
            tables.append(table.reshape(len(rows), -1))
        return tables[0] @ tables[1].T

    def estimate(self, values: Sequence[Numbers], total: int | None) -> Estimate:
        out: list[FloatArray] = []
        for p, noisy, back in zip(self.parts, values, self._ways_back, strict=True):
            sizes = [self.sizes[a] for a in p.attributes]
            out.append(np.asarray(noisy, dtype=np.float64).reshape(*sizes, len(p.matrix)) @ back.T)
        return (total, *out)

    def answer(self, estimate: Estimate, query: Block) -> FloatArray:
        dims, rows, order = self._split(query)
        i = self._from(dims, rows)
        part, names = self.parts[i], dims.attributes
        table = estimate[i + 1] @ rows.T
        table = table.sum(axis=tuple(k for k, a in enumerate(part.attributes) if a not in names))
        held = [a for a in part.attributes if a in names]
        table = table.transpose([*(held.index(a) for a in names), len(held)]).reshape(-1, len(rows))
        done = np.asarray(dims.operator.matvec(table), dtype=np.float64) if names else table
        return self._ordered(done.reshape(-1), query, order)


# ---- which tables, and which rows of them ----------------------------------------------------------------------


def _shares(cells: int) -> Iterator[NDArray[np.int64]]:
    """Whole rows over a measure's cells that sum up to the same for every record: few rows first.

    Of a record with a number all, then its shares in the ends of its piece, then in the cells; and all without one.
    """
    with_number = cells - 1 + cells % 2
    all_of_them = np.zeros((1, cells), dtype=np.int64)
    all_of_them[0, :with_number] = 1
    without = np.zeros((cells - with_number, cells), dtype=np.int64)
    without[:, with_number:] = 1
    for rows, unit in ((all_of_them, 1), (end_shares(cells), 2), (np.eye(cells, dtype=np.int64)[:with_number], 1)):
        yield rows
        if len(without):
            yield np.concatenate([rows, unit * without])


def _rows_spanning(asked: FloatArray, cells: Sequence[int]) -> list[NDArray[np.int64]]:
    """Products of such rows of every measure that span what is asked."""
    asked = asked / np.maximum(np.abs(asked).max(axis=1, keepdims=True), 1e-300)  # as are counts beside squares
    found: list[NDArray[np.int64]] = []
    for choice in itertools.product(*(list(_shares(n)) for n in cells)):
        rows = functools.reduce(np.kron, choice)
        real = rows.astype(np.float64)
        left = asked - asked @ np.linalg.pinv(real) @ real
        if np.abs(left).max() <= _SPANNED:
            found.append(rows)
    return found


def table_designs(problem: Problem) -> list[Design]:
    """Tables of cells over the largest sets of attributes that are asked about, each with a share of the budget.

    For Laplace noise. No design where the number of records is public, which tables of cells do not use.
    """
    whole = merge_cells(problem)
    measures, sizes = whole.measures, whole.sizes
    if problem.unit.total_is_public or len(measures) > MAX_MEASURES:
        return []
    cells = [sizes[m] for m in measures]
    asked: dict[frozenset[str], list[FloatArray]] = {}
    for query in problem.workload.blocks:
        dims, rows, _ = whole._split(query.block)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        asked.setdefault(frozenset(dims.attributes), []).append(rows)
    largest = [s for s in asked if not any(s < other for other in asked)]
    ordered = [tuple(a for a in sizes if a in s) for s in sorted(largest, key=lambda s: (len(s), sorted(s)))]
    if len(ordered) > _MOST_TABLES:
        return []
    used = {a for names in ordered for a in names}
    kept = {n: s for n, s in sizes.items() if n in used or n in measures}
    merged = {n: c for n, c in (whole.merged or {}).items() if n in used} or None
    parts: list[MomentPart] = []
    errors: list[float] = []
    asked_of = [set(q.attributes) - set(measures) for q in problem.workload.blocks]
    homes = [next(j for j, names in enumerate(ordered) if a <= set(names)) for a in asked_of]
    for j, names in enumerate(ordered):
        rows = np.concatenate([r for s, each in asked.items() if s <= set(names) for r in each])
        mine = [i for i, home in enumerate(homes) if home == j]
        best: tuple[float, MomentPart] | None = None
        for matrix in _rows_spanning(np.unique(rows, axis=0), cells):
            if len(matrix) * math.prod(sizes[a] for a in names) > _MOST_CELLS:
                continue
            part = MomentPart(names, matrix)
            # at unit price: of every record the rows add up to what they are of the first cell
            unit = float(matrix.sum(axis=0).max()) * _WHOLE
            error = weighted_error(problem, MomentTables(kept, measures, (part,), merged=merged), mine) * unit**2
            if best is None or error < best[0] * (1 - 1e-9):
                best = (error, part)
        if best is None:
            return []
        errors.append(best[0])
        parts.append(best[1])
    scales = relative_scales(np.array(errors), np.ones(len(parts)), 1, largest=problem.largest).tolist()
    units = [float(p.matrix.sum(axis=0).max()) for p in parts]
    times = [r / u for r, u in zip(scales, units, strict=True)]

    def build(s: float) -> MomentTables:
        own = [
            MomentPart(p.attributes, max(1, round(t * s / _WHOLE)) * p.matrix)
            for p, t in zip(parts, times, strict=True)
        ]
        return MomentTables(kept, measures, tuple(own), merged=merged)

    return [Design("factorization", build, 2.0 ** (WHOLE_BITS + _BITS) / min(times))]


# Combinations of corners of measures that queries join, directly or through others: a price looks at each of them, in
# seconds. Four measures without knots have 14,641
_MOST_JOINED = 2**16

Names = frozenset[str]


def moment_designs(problem: Problem) -> list[Design]:
    """Designs of all sums together, and of parts of them where these are more than three measures, have too many knots
    together, or are three under replaced records, whose joint price is a simple bound.

    Raises PlanError for a query that joins more than three, and for more than can be searched or priced.
    """
    measures = problem.measures
    asked = list(dict.fromkeys(_summed_by(problem, q) for q in problem.workload.blocks))
    for names in asked:
        if len(names) > MAX_MEASURES:
            raise PlanError(
                f"a query joins {len(names)} measures ({', '.join(sorted(names))}), and up to {MAX_MEASURES} are "
                "summed together: ask sf.moments of pairs of them, or sf.means of each"
            )
    largest = [s for s in asked if s and not any(s < other for other in asked)]
    replaced = problem.unit.neighbours is Neighbours.REPLACE_ONE
    several = len(measures) >= MAX_MEASURES + (not replaced)
    found: list[Design] = []
    reasons: list[SfumatoError] = []
    for way in dict.fromkeys(tuple(_merged(largest, most)) for most in (MAX_MEASURES, 0)):
        if found and not several:
            break
        try:
            if len(way) == 1:
                found += _joint_designs(problem)
            else:
                _check_priced(problem, asked)
                found.append(_apart(problem, way))
        except SfumatoError as reason:
            reasons.append(reason)
    if not found:
        raise reasons[0]
    return found


def _joint_designs(problem: Problem) -> list[Design]:
    by_residuals = moments.designs(problem)
    return [*by_residuals, *table_designs(problem)] if problem.noise == "laplace" else by_residuals


def _summed_by(problem: Problem, query: QueryBlock) -> Names:
    return frozenset(a for a in query.attributes if a in problem.measures)


def _merged(sets: Iterable[Names], most: int) -> list[Names]:
    """Sets of measures, each put to the first with which it has no more than `most` in all; the largest first."""
    out: list[Names] = []
    for names in sorted(sets, key=lambda s: -len(s)):
        home = next((i for i, other in enumerate(out) if len(other | names) <= most), None)
        if home is None:
            out.append(names)
        else:
            out[home] |= names
    return out


def _check_priced(problem: Problem, asked: Iterable[Names]) -> None:
    """Raise PlanError where the measures that queries join hang together beyond what is priced."""
    clusters: list[Names] = []
    for names in asked:
        own = [c for c in clusters if c & names]
        clusters = [*(c for c in clusters if not c & names), names.union(*own)]
    for names in clusters:
        if math.prod(corners(problem.sizes[m]).shape[1] for m in names) > _MOST_JOINED:
            raise PlanError(
                f"queries join {', '.join(sorted(names))} with each other, two or three at a time, and the price of "
                "all these together is not looked for: plan some of the pairs apart, or declare fewer knots"
            )


def _apart(problem: Problem, parts: Iterable[Names]) -> Design:
    """Parts, each with a share of the budget; counts that sum no measure go with the first."""
    asked: dict[Names, list[QueryBlock]] = {names: [] for names in parts}
    for query in problem.workload.blocks:
        own = _summed_by(problem, query)
        asked[next(names for names in asked if own <= names)].append(query)
    pieces: list[StackedPiece] = []
    bounds: list[float | None] = []
    proofs: list[moments.CurveProof | None] = []
    for items in asked.values():
        part = problem.part(items)
        found = _joint_designs(part)
        pieces.append(min((_piece(part, d) for d in found), key=lambda p: p.error))
        bounds.append(found[0].bound)
        proofs.append(None if found[0].bound is None else moments.curve_proof(part))
    # no part errs less than it would with the whole budget
    known = [b for b in bounds if b is not None]
    bound = math.hypot(*known) if len(known) == len(bounds) and not problem.largest else None
    apart = sum(map(len, asked)) == len(frozenset().union(*asked))
    told = [p for p in proofs if p is not None]
    apart = apart and not problem.same  # whose attribute would have weights of its own in one part
    if bound is not None and apart and problem.unit.neighbours is Neighbours.ADD_REMOVE and _merged_alike(told):
        bound = max(bound, moments.joint_curve_bound(told))
    title = f"sums of measures in {len(pieces)} parts, priced apart and added: " + "; ".join(
        ", ".join(m for m in problem.measures if m in names) for names in asked
    )
    return share_design("factorization", title, pieces, problem.power, bound, largest=problem.largest)


def _merged_alike(proofs: Iterable[moments.CurveProof]) -> bool:
    """Whether all parts tell the same cells of each attribute apart."""
    none = np.zeros(0, dtype=np.int64)
    cells: dict[str, NDArray[np.int64]] = {}
    named = [(a, p.merged.get(a, none)) for p in proofs for names in p.rows for a in names]
    return all(np.array_equal(cells.setdefault(a, codes), codes) for a, codes in named)


def _piece(part: Problem, design: Design) -> StackedPiece:
    """A design at unit price."""
    strategy = design.build(design.fine)
    power = part.power
    price = exact_sensitivity(strategy.blocks, part.sizes, part.unit, power, part.measures)
    length = float(price.value) ** (1 / power)
    error = weighted_error(part, strategy, range(len(part.workload.blocks))) * length**2
    norm = length / design.fine
    return piece_at_unit_price(design, error, norm)
