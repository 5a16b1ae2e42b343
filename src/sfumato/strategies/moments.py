"""Sums of measures within the cells of other attributes, with their counts: residuals, each with a small matrix.

A table over the attributes S that asks for the rows Q of the measures' cells is the sum over the sets U within S of
what it adds to coarser tables. Of each U the integers (⊗_(i in U) (n_i I - J) ⊗ A_U) x_U are measured, with few rows
A_U over the measures' joint cells. All cells of an attribute are alike, so A_U can be chosen for all of them at once:

    the least  sum_U tr(G_U M_U^-1)  with  sum_U c_U v' M_U v <= 1  for every corner v of the measures' hull,

M_U = A_U' A_U, G_U what the workload asks of U, and c_U the squared length of a column of ⊗ (n_i I - J). For weights w
on the corners with sum 1 and D = sum_v w_v v v', the root of that is at least sum_U tr (D^1/2 c_U G_U D^1/2)^1/2; the
weights at which this is largest give the best M_U. With points of the curve itself in place of corners it bounds
whatever is done with Gaussian noise. [NTZ13] for the duality of factorizations, [XZK23] for residuals;
docs/decisions/0136.

Cells of an attribute that no query tells apart, such as all ages from 65 on, or all places of one state, are one cell
here: they are merged before anything is measured, so that their noise does not add up.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from sfumato._util.codec import deferred_field, storable
from sfumato.cells import MAX_MEASURES
from sfumato.domain.measures import Measure, rounding_per_record
from sfumato.errors import NotAnswerable, PlanError
from sfumato.operators import Block, Compose, Dense, Grouping, Identity, Residual, Total
from sfumato.operators.base import FloatArray, LinearOperator, Numbers
from sfumato.privacy.measures import PIECES, WHOLE_BITS, corners
from sfumato.privacy.unit import Neighbours
from sfumato.strategies.covariance import centred_cross_product, check_covariance_size, component_powers
from sfumato.strategies.design import Design, Problem
from sfumato.strategies.grouped_residuals import weigh_parts
from sfumato.strategies.moment_cells import WITHOUT_KNOTS, JointCells, powers_in_use, whole_basis
from sfumato.strategies.moment_search import AMONG, RANK, ROUNDS, AskedRows, RecordChanges, best_matrices
from sfumato.strategies.same_column import SameColumn
from sfumato.strategies.strategy import Estimate, Strategy

_WHOLE = 2.0**WHOLE_BITS
# Bits of the largest coefficient of a row: by 12 rounding costs less than a part in 2,000. With 24 of a record's whole
# and those of residuals' n there is room for the records of a large hospital, or of a small country, in 63.
_MOST_BITS, _LEAST_BITS, _RECORDS_BITS = 12, 8, 22
_MOST_TABLE = 2**26  # cells: 512 MB, which is what the curator counts at once
# Corners, or pairs of places, times the square of what is asked at most, with knots: a tenth of a second a round
_MOST_SEARCHED = 2**26
_MOST_SETS = 4_096  # of attributes, each with a matrix of its own
_BESIDE = 3e-4  # of the budget for rows that are measured because whole rows ask for them


@storable
@dataclass(frozen=True, slots=True, eq=False)
class MomentPart:
    """What is measured of one set of attributes: `matrix` (rows, joint cells of the measures), whole numbers."""

    attributes: tuple[str, ...]
    matrix: NDArray[np.int64]


@storable
@dataclass(frozen=True, eq=False)
class Moments(Strategy):
    """Residuals of attributes, each with sums of measures.

    sizes: cells of every attribute that some part names, and of `measures`, which are joined in every part. Where the
    number of records is public, nothing is measured of it. merged: of an attribute whose cells are merged, which of
    `sizes` each declared cell counts in. An attribute that reads the column of a measure may be one of `measures`;
    `cells` then has those joint cells, rising, in which a record can have a share.
    """

    sizes: Mapping[str, int]
    measures: tuple[str, ...]
    parts: tuple[MomentPart, ...]
    public_total: bool = False
    merged: Mapping[str, NDArray[np.int64]] | None = deferred_field(None)
    cells: NDArray[np.int64] | None = deferred_field(None)  # noqa: RUF009  (as dataclasses.field is)

    @functools.cached_property
    def blocks(self) -> tuple[Block, ...]:  # type: ignore[override]
        return tuple(
            Block((*((a,) for a in p.attributes), self.measures), (*map(self._residual, p.attributes), Dense(p.matrix)))
            for p in self.parts
        )

    def _residual(self, name: str) -> LinearOperator:
        return self._over_declared(name, Residual(self.sizes[name]))

    def _over_declared(self, name: str, operator: LinearOperator) -> LinearOperator:
        """What is measured of an attribute's cells here, as a map of its declared cells."""
        if self.merged is None or name not in self.merged:
            return operator
        merging = Grouping(self.merged[name], self.sizes[name])
        return merging if isinstance(operator, Identity) else Compose(operator, merging)

    def _over_merged(self, group: tuple[str, ...], factor: LinearOperator) -> LinearOperator:
        """A query's factor over the cells that are measured. Raises NotAnswerable where it divides one of them."""
        if self.merged is None or not any(a in self.merged for a in group):
            return factor
        sizes = [self.sizes[a] for a in group]
        if isinstance(factor, Total):
            return Total(math.prod(sizes))
        declared = [len(self.merged[a]) if a in self.merged else self.sizes[a] for a in group]
        table = factor.dense().reshape(-1, *declared)
        for axis, a in enumerate(group, 1):
            if a in self.merged:
                few = table.take(np.unique(self.merged[a], return_index=True)[1], axis)
                if not np.array_equal(few.take(self.merged[a], axis), table):
                    raise NotAnswerable(
                        f"cells of {a} were measured together that this question tells apart; ask it in the plan"
                    )
                table = few
        found = table.reshape(len(table), -1)
        plain = found.shape[0] == found.shape[1] and np.array_equal(found, np.eye(len(found)))
        return Identity(len(found)) if plain else Dense(found)

    @property
    def summary(self) -> str:
        rows = sum(len(p.matrix) for p in self.parts)
        named = list(self.measures)
        what = "counts" if self.cells is None else f"counts, jointly with {named.pop(0)} of the same column"
        return f"sums of {', '.join(named)} and {what}: {rows:,} rows over {len(self.parts):,} attribute sets"

    @property
    def max_abs(self) -> int:
        return math.ceil(max(b.operator.max_abs for b in self.blocks) * _WHOLE)

    @functools.cached_property
    def _places(self) -> dict[frozenset[str], int]:
        return {frozenset(p.attributes): i for i, p in enumerate(self.parts)}

    @functools.cached_property
    def _matrices(self) -> tuple[FloatArray, ...]:
        """Per part what is measured of the joint cells in which records can have a share."""
        kept = slice(None) if self.cells is None else self.cells
        return tuple(p.matrix[:, kept].astype(np.float64) for p in self.parts)

    @functools.cached_property
    def _ways_back(self) -> tuple[FloatArray, ...]:
        """Per part A^+, at the scale in which a record is 1; but for the mean over cells where the total is public."""
        out: list[FloatArray] = []
        for p, matrix in zip(self.parts, self._matrices, strict=True):
            scale = _WHOLE * math.prod(float(self.sizes[a]) for a in p.attributes)
            if self._is_known(p.attributes):
                matrix = matrix - matrix.mean(axis=1, keepdims=True)
            out.append(np.asarray(np.linalg.pinv(matrix, rcond=RANK) / scale, dtype=np.float64))
        return tuple(out)

    def _is_known(self, attributes: Sequence[str]) -> bool:
        """Whether the sum over all cells of the measures is public: of all records, where their number is."""
        return self.public_total and not attributes

    def _of_total(self, rows: FloatArray) -> FloatArray:
        """(rows,) how much of the public total is in each row, beside what is measured of all records."""
        place = self._places.get(frozenset())
        if place is None:
            return rows.mean(axis=1)
        return (rows - rows @ self._ways_back[place] @ self._matrices[place] * _WHOLE).mean(axis=1)

    # -- what a query asks -----------------------------------------------------------------------------------

    def _split(self, query: Block) -> tuple[Block, FloatArray, list[int]]:
        """What a query asks of attributes, of the measures (rows, joint cells), and the axes of its rows in the order
        attributes, measures."""
        ours = [j for j, g in enumerate(query.groups) if not any(a in self.measures for a in g)]
        theirs = [j for j in range(len(query.groups)) if j not in ours]
        unknown = [a for j in ours for a in query.groups[j] if a not in self.sizes]
        if unknown:
            raise NotAnswerable(f"nothing about {', '.join(unknown)} was measured beside {', '.join(self.measures)}")
        if any(a not in self.measures for j in theirs for a in query.groups[j]):
            raise NotAnswerable("a query that joins a measure and an attribute in one condition was not measured")
        names = [a for j in theirs for a in query.groups[j]]
        rows: FloatArray = np.ones((1, 1))
        for j in theirs:
            rows = np.asarray(np.kron(rows, query.factors[j].dense()), dtype=np.float64)
        table = rows.reshape(-1, *(self.sizes[a] for a in names))
        summed = [a for a in self.measures if a in names]
        table = table.transpose([0, *(1 + names.index(a) for a in summed)])
        for axis, a in enumerate(self.measures, 1):
            if a not in summed:  # summed over all its cells: a record's shares add up to 1
                table = np.repeat(np.expand_dims(table, axis), self.sizes[a], axis=axis)
        held = [(query.groups[j], self._over_merged(query.groups[j], query.factors[j])) for j in ours]
        dims = Block(tuple(g for g, _ in held), tuple(f for _, f in held))
        found = table.reshape(len(rows), -1)
        return dims, found if self.cells is None else found[:, self.cells], [*ours, *theirs]

    def _needed(self, dims: Block, rows: FloatArray, power: int) -> Iterator[tuple[int, list[FloatArray]]]:
        """(part, per factor of the attributes the power sums of its component there), what is zero left out."""
        sizes = [tuple(self.sizes[a] for a in g) for g in dims.groups]
        found = [component_powers(f, n, power) for f, n in zip(dims.factors, sizes, strict=True)]
        for choice in itertools.product(*found):
            sums = [p[t] for p, t in zip(found, choice, strict=True)]
            if any(not s.any() for s in sums):
                continue
            names = [g[i] for g, t in zip(dims.groups, choice, strict=True) for i in t]
            i = self._places.get(frozenset(names))
            what = f"{', '.join([*names, *self.measures])} together"
            known = self._is_known(names)
            left = rows
            if i is not None:
                scale = _WHOLE * math.prod(float(self.sizes[a]) for a in names)
                left = rows - rows @ self._ways_back[i] @ self._matrices[i] * scale
            if known:
                left = left - left.mean(axis=1, keepdims=True)
            if np.abs(left).max() > 1e-6 * np.abs(rows).max(initial=1e-300):
                if np.ptp(rows) == 0:  # whole records, whatever their numbers
                    by = f" by {', '.join(a for g in dims.groups for a in g)}" if dims.groups else ""
                    raise NotAnswerable(
                        f"the number of records{by} was not measured, only what was asked of "
                        f"{', '.join(self.measures)}; ask for these counts in the plan"
                    )
                raise NotAnswerable(f"these sums and counts of {what} were not measured")
            if i is not None:
                yield i, sums

    def check(self, query: Block) -> None:
        dims, rows, _ = self._split(query)
        for _ in self._needed(dims, rows, 2):
            pass

    # -- errors --------------------------------------------------------------------------------------------

    def row_powers(self, query: Block, power: int) -> FloatArray:
        dims, rows, order = self._split(query)
        lengths = [f.shape[0] for f in query.factors]
        measured = [lengths[j] for j in order[len(dims.groups) :]]
        out = np.zeros((1,) * len(lengths))
        for i, sums in self._needed(dims, rows, power):
            own = (np.abs(rows @ self._ways_back[i]) ** power).sum(axis=1).reshape(measured)
            table = reduce(np.multiply.outer, sums, np.ones(()))
            out = out + np.multiply.outer(table, own)
        return np.transpose(out.reshape(out.shape), np.argsort(order))

    def rounding(self, query: Block, measures: Mapping[str, Measure]) -> FloatArray:
        dims, rows, order = self._split(query)
        summed = [m for m in self.measures if m in measures]
        if self.cells is None:
            whole = rows
        else:
            whole = np.zeros((len(rows), math.prod(self.sizes[m] for m in self.measures)))
            whole[:, self.cells] = rows
        # a record lies in one cell of an attribute that is joined with them
        each = whole.reshape(len(rows), -1, math.prod(self.sizes[m] for m in summed)).swapaxes(0, 1)
        own = np.max([rounding_per_record(some, [measures[m] for m in summed]) for some in each], axis=0)
        measured = [query.factors[j].shape[0] for j in order[len(dims.groups) :]]
        largest = math.prod(float(f.max_abs) for f in dims.factors)  # of a record's cell of other attributes
        table = (own * largest).reshape([*(1 for _ in dims.groups), *measured])
        return np.transpose(table, np.argsort(order))

    def covariance(self, first: Block, second: Block) -> FloatArray:
        check_covariance_size(first.rows, second.rows)
        one, other = self._split(first), self._split(second)
        common = [a for a in one[0].attributes if a in other[0].attributes]
        self.check(first)
        self.check(second)
        total = np.zeros((one[0].rows * len(one[1]), other[0].rows * len(other[1])))
        for p, back in zip(self.parts, self._ways_back, strict=True):
            if set(p.attributes) <= set(common):
                middle = (one[1] @ back) @ (other[1] @ back).T
                total += np.kron(centred_cross_product(one[0], other[0], self.sizes, p.attributes), middle)
        return self._ordered(self._ordered(total, first, one[2]).T, second, other[2]).T

    @staticmethod
    def _ordered(rows: FloatArray, query: Block, order: Sequence[int]) -> FloatArray:
        """Rows in the order attributes, measures, (rows, ...), in that of the query."""
        lengths = [query.factors[j].shape[0] for j in order]
        table = rows.reshape((*lengths, *rows.shape[1:]))
        axes = [order.index(j) for j in range(len(order))]
        return table.transpose([*axes, *range(len(order), table.ndim)]).reshape(rows.shape)

    # -- answers -------------------------------------------------------------------------------------------

    def estimate(self, values: Sequence[Numbers], total: int | None) -> Estimate:
        out: list[FloatArray] = []
        for p, noisy, back in zip(self.parts, values, self._ways_back, strict=True):
            sizes = [self.sizes[a] for a in p.attributes]
            # the rows of a residual add up to 0 along each of its attributes: noise that does not is left out
            table = np.asarray(noisy, dtype=np.float64).reshape(*sizes, len(p.matrix))
            for axis in range(len(sizes)):
                table = table - table.mean(axis=axis, keepdims=True)
            out.append(table @ back.T)
        return (total, *out)

    def answer(self, estimate: Estimate, query: Block) -> FloatArray:
        dims, rows, order = self._split(query)
        names = dims.attributes
        table = np.zeros((*(self.sizes[a] for a in names), len(rows)))
        if self.public_total:
            cells = math.prod(self.sizes[a] for a in names)
            table = table + self._of_total(rows) * (estimate[0] / cells)
        for i, _ in self._needed(dims, rows, 2):
            p = self.parts[i]
            own = estimate[i + 1] @ rows.T
            held = [a for a in names if a in p.attributes]
            own = own.transpose([*(p.attributes.index(a) for a in held), len(held)])
            own = own.reshape(*(self.sizes[a] if a in held else 1 for a in names), len(rows))
            table = table + own / math.prod(self.sizes[a] for a in names if a not in held)
        flat = table.reshape(-1, len(rows))
        done = np.asarray(dims.operator.matvec(flat), dtype=np.float64) if names else flat
        return self._ordered(done.reshape(-1), query, order)


# ---- the best matrices ---------------------------------------------------------------------------------------


_FAINT = 1e-6  # of the weight of what is asked: rows beside it that are measured because whole rows ask for them


def merge_cells(problem: Problem) -> Moments:
    """A strategy that measures nothing yet, over the cells of attributes that queries tell apart."""
    merged = problem.merged_cells
    sizes = problem.sizes | {a: int(codes.max()) + 1 for a, codes in merged.items()}
    return Moments(sizes, problem.measures, (), problem.unit.total_is_public, merged or None)


def _joint_cells(problem: Problem, same: SameColumn | None = None) -> JointCells:
    return JointCells({m: problem.sizes[m] for m in problem.measures}, same)


def _unmeasured(problem: Problem, joint: JointCells) -> Moments:
    """A strategy that measures nothing yet, of these joint cells."""
    whole = merge_cells(problem)
    if joint.same is None:
        return whole
    a = joint.same.attribute
    merged = {n: c for n, c in (whole.merged or {}).items() if n != a} or None
    sizes = {**whole.sizes, a: problem.sizes[a]}
    return replace(whole, sizes=sizes, measures=(a, *problem.measures), merged=merged, cells=joint.possible)


def _asked(problem: Problem, joint: JointCells, faint: float = _FAINT) -> tuple[Moments, list[AskedRows]]:
    """A strategy that measures nothing yet, and what is asked by set of attributes. Raises PlanError for too many.

    faint: the weight of rows that are measured beside what is asked, of which it is 1.
    """
    if len(problem.measures) > MAX_MEASURES:
        raise PlanError("sums of up to three measures are planned together; release others by a plan of their own")
    whole, powers = _unmeasured(problem, joint), joint.powers()
    measures, sizes = whole.measures, whole.sizes
    asked: dict[frozenset[str], tuple[FloatArray, list[FloatArray]]] = {}
    for query in problem.workload.blocks:
        dims, rows, _ = whole._split(query.block)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        weight = problem.objective_weight(query)
        gram = rows.T @ rows * weight
        groups = [tuple(sizes[a] for a in g) for g in dims.groups]
        found = [component_powers(f, n, 2) for f, n in zip(dims.factors, groups, strict=True)]
        lengths = [f.shape[0] for f in dims.factors]
        for choice in itertools.product(*found):
            sums = [p[t] for p, t in zip(found, choice, strict=True)]
            ratio = math.prod(float(s.mean()) * n for s, n in zip(sums, lengths, strict=True))
            if ratio == 0.0:
                continue
            names = frozenset(g[i] for g, t in zip(dims.groups, choice, strict=True) for i in t)
            before, each = asked.get(names, (np.zeros_like(gram), []))
            asked[names] = before + gram * ratio, [*each, rows]
    if len(asked) > _MOST_SETS:
        raise PlanError(f"sums of measures are planned for up to {_MOST_SETS:,} sets of attributes, not {len(asked):,}")
    out: list[AskedRows] = []
    cells = [sizes[m] for m in measures]
    for names, (gram, each) in asked.items():
        table = math.prod(cells) * math.prod(sizes[a] for a in names)
        if table > _MOST_TABLE:
            raise PlanError(
                f"sums of {', '.join(measures)} by {', '.join(sorted(names))} take a table of {table:,} cells; at most "
                f"{_MOST_TABLE:,} are counted at once: ask fewer attributes together"
            )
        rows = np.unique(np.concatenate(each), axis=0)
        rows = rows[rows.any(axis=1)]  # others ask of cells in which no record can be
        if not len(rows):
            continue
        known = joint.same is not None and problem.unit.total_is_public and not names
        if joint.same is None:
            basis, more = whole_basis(rows, powers)
        else:  # how wide a cell is may matter so little to what is asked that it would be rounded away
            basis, more = powers_in_use(np.concatenate([rows, np.ones_like(rows[:known])]), powers), True
        if more:
            gram = gram + basis.T @ basis * (faint * np.trace(gram) / np.trace(basis.T @ basis))
        if known:  # of many cells the number of all records would be nearly, not exactly, what no change tells apart
            gram = gram - gram.mean(axis=0)
            gram = gram - gram.mean(axis=1, keepdims=True)
        ordered = tuple(a for a in sizes if a in names)
        # of n I - J: the rows are divided by n, so that its noise counts 1 / n^2; and a column has n^2 - n
        length = math.prod(1 - 1 / sizes[a] for a in ordered)
        values, vectors = np.linalg.eigh(gram * length)
        kept = values > RANK * values.max(initial=1e-300)
        if kept.any():
            out.append(AskedRows(ordered, (vectors[:, kept] * np.sqrt(values[kept])).T, length, basis, more))
    return whole, sorted(out, key=lambda a: (len(a.attributes), a.attributes))


def _middles(
    problem: Problem, joint: JointCells, asked: Sequence[AskedRows], changes: RecordChanges
) -> list[FloatArray]:
    """Per set the W of M = C' W C, C its rows: the best for what is asked, a little for what its basis spans beside.

    What is asked alone is soon found: with faint rows beside it the search takes thousands of steps. A mean of two
    matrices costs no more than they do, and of (1 - e) M + e N the inverse is at most that of M over 1 - e.
    """
    if not any(a.beside for a in asked):
        return best_matrices(asked, changes)[0]
    alone = _asked(problem, joint, 0.0)[1]
    every = [replace(a, rows=a.basis * math.sqrt(a.length)) for a in asked]
    out = [np.zeros((len(a.rows), len(a.rows))) for a in asked]
    back = [np.linalg.pinv(a.rows) for a in asked]
    for few, share, rounds in ((alone, 1 - _BESIDE, ROUNDS), (every, _BESIDE, AMONG)):
        for middle, own, other, w in zip(out, few, back, best_matrices(few, changes, rounds)[0], strict=True):
            rows = own.rows @ other
            middle += share * (rows.T @ w @ rows)
    return out


# of each measure, by how many there are: a bound holds whichever places are taken
_PLACES = {Neighbours.ADD_REMOVE: {1: 257, 2: 33, 3: 9}, Neighbours.REPLACE_ONE: {1: 65, 2: 9, 3: 3}}


# in place of pairs of corners, of each measure: at least 3 of each piece, and with knots between most pieces no more
_FEW_PLACES = {1: 33, 2: 3, 3: 3}


def _have_knots(problem: Problem) -> bool:
    return any(problem.sizes[m] > WITHOUT_KNOTS for m in problem.measures)


@dataclass(frozen=True, slots=True)
class CurveProof:
    """What proves a bound over the curve: of each set of attributes the rows that are asked, (rows, joint cells), and
    weights (ways, changes) of what records may change. `merged`: the cells that are one here, by attribute."""

    rows: Mapping[tuple[str, ...], FloatArray]
    changes: RecordChanges
    weights: FloatArray
    bound: float
    merged: Mapping[str, NDArray[np.int64]]


def curve_bound(problem: Problem) -> float | None:
    """What the root of the summed weighted variances is at least at noise multiplier 1; None where it is not known.

    That is where all cells of an attribute are asked about alike, and records are replaced by any other.
    """
    found = curve_proof(problem)
    return None if found is None else found.bound


def curve_proof(problem: Problem) -> CurveProof | None:
    """What proves `curve_bound`; None where that is None."""
    joint = _joint_cells(problem, problem.same[0] if problem.same else None)
    if len(problem.same) > 1 or not all(s.is_small and s.is_exact for s in problem.same):
        return None  # not all that would be looked at can be
    try:
        whole, asked = _asked(problem, joint, 0.0)  # nobody asks what is measured beside
    except NotAnswerable:  # cells that are joined with those of other attributes
        return None
    of_attributes = [whole._split(q.block)[0] for q in problem.workload.blocks]  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    alike = all(isinstance(f, Identity | Total) for dims in of_attributes for f in dims.factors)
    if not alike or problem.unit.within is not None or problem.unit.person is not None or problem.largest:
        return None
    count = _PLACES[problem.unit.neighbours][len(problem.measures)]
    if problem.unit.neighbours is Neighbours.REPLACE_ONE and _have_knots(problem):
        count = _FEW_PLACES[len(problem.measures)]
    changes = RecordChanges.of(problem, joint.places(count), _named(asked), whole.sizes)
    _, bound, _, weights = best_matrices(asked, changes, ROUNDS // 10)
    return CurveProof({a.attributes: a.rows for a in asked}, changes, weights, bound, whole.merged or {})


def joint_curve_bound(proofs: Sequence[CurveProof]) -> float:
    """`curve_bound` of parts that share no measure, all of one workload, where a record is added or removed.

    A record has a number of each measure, whatever it has of others. So weights of parts make weights of records, their
    products: D has the parts' own matrices on its diagonal and products of mean shares elsewhere. Any weights prove a
    bound, and these are best for each part alone.
    """
    total = 0.0
    for names in dict.fromkeys(n for p in proofs for n in p.rows):
        own = [(p.changes.vectors[0] @ p.rows[names].T, p.weights[0]) for p in proofs if names in p.rows]
        means = [w @ x for x, w in own]
        table = np.multiply.outer(np.concatenate(means), np.concatenate(means))
        end = 0
        for x, w in own:
            start, end = end, end + x.shape[1]
            table[start:end, start:end] = (x * w[:, None]).T @ x
        values = np.linalg.eigvalsh(table)
        total += float(np.sqrt(values[values > RANK * values.max(initial=1e-300)]).sum())
    return total


def _check_searchable(problem: Problem) -> None:
    """Raise PlanError where knots of several measures together are more than weights are looked for."""
    cells = [problem.sizes[m] for m in problem.measures]
    if not _have_knots(problem) or len(cells) > MAX_MEASURES:
        return
    if problem.unit.neighbours is Neighbours.REPLACE_ONE:
        each = (max(3, -(-(_FEW_PLACES[len(cells)] - 1) // ((n - 1) // 2)) + 1) * ((n - 1) // 2) for n in cells)
        many = math.prod(each) ** 2
    else:
        many = math.prod(corners(n).shape[1] for n in cells)
    if many * math.prod(cells) ** 2 > _MOST_SEARCHED:
        raise PlanError(
            f"sums of {', '.join(problem.measures)} together have too many knots: declare fewer, or plan these "
            "measures apart"
        )


def _check_few(points: FloatArray, problem: Problem) -> None:
    """Raise PlanError where an attribute joined with measures takes more than weights are looked for."""
    # half of the pairs are the other half turned round
    many = len(points) ** 2 // 2 if problem.unit.neighbours is Neighbours.REPLACE_ONE else len(points)
    if many * points.shape[1] ** 2 > _MOST_SEARCHED:
        raise PlanError("too many cells of an attribute are joined with measures of its column")


def _named(asked: Sequence[AskedRows]) -> list[str]:
    return list(dict.fromkeys(n for a in asked for n in a.attributes))


def designs(problem: Problem) -> list[Design]:
    """The design of least mean error by attributes, with its bound over the curve.

    An attribute that reads the column of a measure is joined with it, unless it has too many cells or a query joins it
    with other attributes. Raises PlanError for more measures, or more sets of attributes, than are planned together.
    """
    _check_searchable(problem)
    found: list[Design] = []
    same = problem.same[0] if problem.same else None
    if same is not None and same.is_small:
        with contextlib.suppress(PlanError, NotAnswerable):
            made = _designs(problem, _joint_cells(problem, same))
            whole = made[0].build(made[0].fine)
            for query in problem.workload.blocks:  # where numbers are wide apart, rounding may lose some
                whole.check(query.block)
            found = made
    # what is best for summed squares need not be for other errors, nor where pairs of records are too many to be priced
    if found and problem.power == 2 and not problem.largest and problem.unit.neighbours is Neighbours.ADD_REMOVE:
        return found
    return [*found, *_designs(problem, _joint_cells(problem))]


def _designs(problem: Problem, joint: JointCells) -> list[Design]:
    whole, asked = _asked(problem, joint)
    measures, sizes = whole.measures, whole.sizes
    if problem.unit.neighbours is Neighbours.REPLACE_ONE and (
        len(problem.measures) == MAX_MEASURES or _have_knots(problem)
    ):
        # pairs of all corners would be too many; the strategy is priced at corners all the same
        points = joint.places(_FEW_PLACES[len(problem.measures)])
    else:
        points = joint.shares({m: corners(n).T / PIECES**2 for m, n in joint.sizes.items()})
    if joint.same is not None:
        _check_few(points, problem)
    middles = _middles(problem, joint, asked, RecordChanges.of(problem, points, _named(asked), sizes))
    found: list[tuple[AskedRows, FloatArray]] = []
    measured: list[tuple[AskedRows, FloatArray]] = []
    for a, middle in zip(asked, middles, strict=True):
        values, vectors = np.linalg.eigh(middle)
        kept = values > RANK * values.max(initial=1e-300)
        matrix = (vectors[:, kept] * np.sqrt(values[kept])).T @ a.rows / math.sqrt(a.length)
        # A at unit price; over n I - J, whose columns are n times as long as those of I - J / n
        own = matrix / math.prod(sizes[n] for n in a.attributes)
        if own.size:
            found.append((a, own @ np.linalg.pinv(a.basis.astype(np.float64))))
            measured.append((a, middle))
    if not found:
        raise PlanError("nothing private is asked: what is public under this relation needs no measurement")
    # an attribute that a query names and none tells apart is measured in no part, and summed
    used = {n for q in problem.workload.blocks for n in q.attributes}
    sizes = {n: s for n, s in sizes.items() if n in used or n in measures}
    merged = {n: c for n, c in (whole.merged or {}).items() if n in used} or None
    smallest = min(float(np.abs(m).max()) for _, m in found)
    widest = max(math.prod(sizes[n] for n in a.attributes) for a, _ in found)
    bits = min(_MOST_BITS, max(_LEAST_BITS, 62 - WHOLE_BITS - _RECORDS_BITS - math.ceil(math.log2(widest))))
    fine = 2.0 ** (WHOLE_BITS + bits) / smallest
    public = problem.unit.total_is_public

    def over_all(matrix: NDArray[np.int64]) -> NDArray[np.int64]:
        if whole.cells is None:
            return matrix
        table = np.zeros((len(matrix), math.prod(sizes[m] for m in measures)), dtype=np.int64)
        table[:, whole.cells] = matrix
        return table

    def build(s: float, times: FloatArray) -> Moments:
        scales = zip(found, times.tolist(), strict=True)
        parts = [
            MomentPart(a.attributes, over_all(np.rint(m * (t * s / _WHOLE)).astype(np.int64) @ a.basis))
            for (a, m), t in scales
        ]
        return Moments(sizes, measures, tuple(p for p in parts if p.matrix.any()), public, merged, cells=whole.cells)

    bound = curve_bound(problem) if problem.noise == "gaussian" else None
    made = [Design("factorization", functools.partial(build, times=np.ones(len(found))), fine, bound)]
    if problem.unit.once_per and problem.noise == "gaussian" and not problem.largest:
        with contextlib.suppress(PlanError):
            for w in _times_of_groups(problem, measured, points, sizes):
                times = np.sqrt(w)
                made.append(Design("factorization", functools.partial(build, times=times), fine / float(times.min())))
    return made


def _times_of_groups(
    problem: Problem, parts: Sequence[tuple[AskedRows, FloatArray]], points: FloatArray, sizes: Mapping[str, int]
) -> list[FloatArray]:
    """By what each part's inverse variances are multiplied where few rows of a person lie in each group.

    Matrices stay: how dear a part is for several rows hangs on its attributes, and on the measures as for one row.
    """
    errors = [float(np.trace(np.linalg.pinv(m, rcond=RANK, hermitian=True))) for _, m in parts]
    costs = [(points @ a.rows.T @ m * (points @ a.rows.T)).sum(axis=1) for a, m in parts]
    sets = [a.attributes for a, _ in parts]
    return weigh_parts(np.array(errors), np.stack(costs, axis=1), sets, sizes, problem.unit)
