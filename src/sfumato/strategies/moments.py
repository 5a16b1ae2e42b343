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
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from sfumato._util.codec import storable
from sfumato.errors import NotAnswerable, PlanError
from sfumato.operators import Block, Dense, Residual
from sfumato.operators.base import FloatArray, LinearOperator, Numbers
from sfumato.privacy.measures import PIECES, WHOLE_BITS, corners
from sfumato.strategies.covariance import between, check_size, component_powers
from sfumato.strategies.design import Design, Problem
from sfumato.strategies.merged_rows import independent_rows
from sfumato.strategies.strategy import Estimate, Strategy

__all__ = ["MomentPart", "Moments", "curve_bound", "designs"]


_WHOLE = 2.0**WHOLE_BITS
_BITS = 8  # of the largest coefficient of a row: rounding then costs less than a hundred-thousandth
_MOST_CORNERS = 2**14  # of the measures that some table joins: 11 of one, 1,331 of three
_MOST_SETS = 4_096  # of attributes, each with a matrix of its own
_ROUNDS, _NEAR = 4_000, 1e-5  # of reweighting corners, and how near to its bound the plan is then
_RANK = 1e-11  # of the largest eigenvalue: what is below is rounding


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

    sizes: cells of every attribute that some part names, and of `measures`, which are joined in every part.
    """

    sizes: Mapping[str, int]
    measures: tuple[str, ...]
    parts: tuple[MomentPart, ...]

    @functools.cached_property
    def blocks(self) -> tuple[Block, ...]:  # type: ignore[override]
        return tuple(
            Block((*((a,) for a in p.attributes), self.measures), (*map(self._residual, p.attributes), Dense(p.matrix)))
            for p in self.parts
        )

    def _residual(self, name: str) -> LinearOperator:
        return Residual(self.sizes[name])

    @property
    def summary(self) -> str:
        rows = sum(len(p.matrix) for p in self.parts)
        return f"sums of {', '.join(self.measures)} and counts: {rows:,} rows over {len(self.parts):,} attribute sets"

    @property
    def max_abs(self) -> int:
        return math.ceil(max(b.operator.max_abs for b in self.blocks) * _WHOLE)

    @functools.cached_property
    def _places(self) -> dict[frozenset[str], int]:
        return {frozenset(p.attributes): i for i, p in enumerate(self.parts)}

    @functools.cached_property
    def _ways_back(self) -> tuple[FloatArray, ...]:
        """Per part A^+, at the scale in which a record is 1."""
        out: list[FloatArray] = []
        for p in self.parts:
            scale = _WHOLE * math.prod(float(self.sizes[a]) for a in p.attributes)
            out.append(np.asarray(np.linalg.pinv(p.matrix.astype(np.float64), rcond=_RANK) / scale, dtype=np.float64))
        return tuple(out)

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
        held = [a for a in self.measures if a in names]
        table = table.transpose([0, *(1 + names.index(a) for a in held)])
        for axis, a in enumerate(self.measures, 1):
            if a not in held:  # summed over all its cells: a record's shares add up to 1
                table = np.repeat(np.expand_dims(table, axis), self.sizes[a], axis=axis)
        dims = Block(tuple(query.groups[j] for j in ours), tuple(query.factors[j] for j in ours))
        return dims, table.reshape(len(rows), -1), [*ours, *theirs]

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
            if i is None:
                raise NotAnswerable(f"sums and counts of {what} were not measured")
            matrix = self.parts[i].matrix
            back = rows @ self._ways_back[i] @ matrix
            scale = _WHOLE * math.prod(float(self.sizes[a]) for a in names)
            if np.abs(back * scale - rows).max() > 1e-6 * np.abs(rows).max(initial=1e-300):
                raise NotAnswerable(f"these sums of {what} were not measured")
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

    def covariance(self, first: Block, second: Block) -> FloatArray:
        check_size(first.rows, second.rows)
        one, other = self._split(first), self._split(second)
        common = [a for a in one[0].attributes if a in other[0].attributes]
        self.check(first)
        self.check(second)
        total = np.zeros((one[0].rows * len(one[1]), other[0].rows * len(other[1])))
        for p, back in zip(self.parts, self._ways_back, strict=True):
            if set(p.attributes) <= set(common):
                middle = (one[1] @ back) @ (other[1] @ back).T
                total += np.kron(between(one[0], other[0], self.sizes, p.attributes), middle)
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
        return tuple(out)

    def answer(self, estimate: Estimate, query: Block) -> FloatArray:
        dims, rows, order = self._split(query)
        names = dims.attributes
        table = np.zeros((*(self.sizes[a] for a in names), len(rows)))
        for i, _ in self._needed(dims, rows, 2):
            p = self.parts[i]
            own = estimate[i] @ rows.T
            held = [a for a in names if a in p.attributes]
            own = own.transpose([*(p.attributes.index(a) for a in held), len(held)])
            own = own.reshape(*(self.sizes[a] if a in held else 1 for a in names), len(rows))
            table = table + own / math.prod(self.sizes[a] for a in names if a not in held)
        flat = table.reshape(-1, len(rows))
        done = np.asarray(dims.operator.matvec(flat), dtype=np.float64) if names else flat
        return self._ordered(done.reshape(-1), query, order)


# ---- the best matrices ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a workload asks of one set of attributes: rows C with C' C = G c, and the squared length c of a column.

    basis: whole numbers, (rank, joint cells), which span the rows: what is measured are whole combinations of them, so
    that rounding a strategy takes nothing out of it.
    """

    attributes: tuple[str, ...]
    rows: FloatArray
    length: float
    basis: NDArray[np.int64]


# Sums of 1, x and x^2 of the records with a number, x from -1 to 1, and how many have none, over a measure's cells.
_POWERS = np.array([[1, 1, 1, 0], [-1, 0, 1, 0], [1, -1, 1, 0], [0, 0, 0, 1]])
_LARGEST = 64  # coefficient of a whole row: more would take room from records
_FAINT = 1e-6  # of the weight of what is asked: rows beside it that are measured because whole rows ask for them


def _whole_basis(rows: FloatArray, cells: Sequence[int]) -> tuple[NDArray[np.int64], bool]:
    """Whole rows that span the rows, and whether these span more."""
    powers = reduce(np.kron, [_POWERS[[*range(3), *range(3, n)], :n] for n in cells])
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


def _joint(table: Sequence[FloatArray]) -> FloatArray:
    return np.asarray(reduce(np.kron, table), dtype=np.float64)


def _asked(problem: Problem) -> tuple[tuple[str, ...], list[_Asked]]:
    """The measures, and what is asked by set of attributes. Raises PlanError where these are too many."""
    sizes, measures = problem.sizes, problem.measures
    corner = math.prod(corners(sizes[m]).shape[1] for m in measures)
    if len(measures) > 3 or corner > _MOST_CORNERS:
        raise PlanError("sums of up to three measures are planned together; release others by a plan of their own")
    whole = Moments(sizes, measures, ())
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
    out: list[_Asked] = []
    cells = [sizes[m] for m in measures]
    for names, (gram, each) in asked.items():
        basis, more = _whole_basis(np.unique(np.concatenate(each), axis=0), cells)
        if more:
            gram = gram + basis.T @ basis * (_FAINT * np.trace(gram) / np.trace(basis.T @ basis))
        ordered = tuple(a for a in sizes if a in names)
        # of n I - J: the rows are divided by n, so that its noise counts 1 / n^2; and a column has n^2 - n
        length = math.prod(1 - 1 / sizes[a] for a in ordered)
        values, vectors = np.linalg.eigh(gram * length)
        kept = values > _RANK * values.max(initial=1e-300)
        if kept.any():
            out.append(_Asked(ordered, (vectors[:, kept] * np.sqrt(values[kept])).T, length, basis))
    return measures, sorted(out, key=lambda a: (len(a.attributes), a.attributes))


def _best(asked: Sequence[_Asked], points: FloatArray, rounds: int = _ROUNDS) -> tuple[list[FloatArray], float, float]:
    """(per set the W of M = C' W C, the root of the least error at unit price as proved, and as found).

    points: (points, joint cells). Weights that are proportional to what each point costs come ever nearer to the best.
    """
    weights = np.full(len(points), 1 / len(points))
    images = [points @ a.rows.T for a in asked]
    # of a part in 2^20 of the best bound so far: points of no weight could not come back
    best: tuple[float, list[FloatArray], float] | None = None
    proved = 0.0
    for _ in range(rounds):
        middles: list[FloatArray] = []
        cost, bound = np.zeros(len(points)), 0.0
        for image in images:
            values, vectors = np.linalg.eigh((image * weights[:, None]).T @ image)
            values = np.maximum(values, _RANK**2 * values.max())
            bound += float(np.sqrt(values).sum())
            half = vectors * values**-0.25
            middles.append(vectors * values**-0.5 @ vectors.T)
            cost += ((image @ half) ** 2).sum(axis=1)
        proved = max(proved, bound)
        # sum of weights times cost is the bound; scaled so that no point costs more than 1
        found = math.sqrt(float(cost.max()) * bound)
        if best is None or found < best[0]:
            best = (found, middles, float(cost.max()))
        if best[0] <= proved * (1 + _NEAR):
            break
        weights = weights * cost / bound
        weights = weights / weights.sum()
    assert best is not None
    return [m / best[2] for m in best[1]], proved, best[0]


def _points(problem: Problem, count: int) -> FloatArray:
    """(points, joint cells) shares of records at so many places of each measure, and of those without a number."""
    sides: list[FloatArray] = []
    for name in problem.measures:
        t = np.linspace(0, 1, count)
        cells = problem.sizes[name]
        side = np.zeros((count + cells - 3, cells))
        side[:count, :3] = np.stack([(1 - t) ** 2, 2 * t * (1 - t), t**2], axis=1)
        side[count:, 3:] = np.eye(cells - 3)
        sides.append(side)
    return _joint(sides)


_PLACES = {1: 257, 2: 33, 3: 9}  # of each measure, by how many there are: a bound holds whichever points are taken


def curve_bound(problem: Problem) -> float:
    """What the root of the summed weighted variances is at least at noise multiplier 1, by added or removed records."""
    measures, asked = _asked(problem)
    return _best(asked, _points(problem, _PLACES[len(measures)]), 400)[1]


def designs(problem: Problem) -> list[Design]:
    """The design of least mean error by attributes, with its bound over the curve.

    Raises PlanError for more measures, or more sets of attributes, than are planned together.
    """
    measures, asked = _asked(problem)
    sides = [corners(problem.sizes[m]).T / PIECES**2 for m in measures]
    middles, _, _ = _best(asked, _joint(sides))
    found: list[tuple[_Asked, FloatArray]] = []
    for a, middle in zip(asked, middles, strict=True):
        values, vectors = np.linalg.eigh(middle)
        matrix = (vectors * np.sqrt(values)).T @ a.rows / math.sqrt(a.length)
        # A at unit price; over n I - J, whose columns are n times as long as those of I - J / n
        own = matrix / math.prod(problem.sizes[n] for n in a.attributes)
        found.append((a, own @ np.linalg.pinv(a.basis.astype(np.float64))))
    used = {n for a in asked for n in a.attributes}
    sizes = {n: s for n, s in problem.sizes.items() if n in used or n in measures}
    smallest = min(float(np.abs(m).max()) for _, m in found)
    fine = 2.0 ** (WHOLE_BITS + _BITS) / smallest

    def build(s: float) -> Moments:
        parts = [MomentPart(a.attributes, np.rint(m * (s / _WHOLE)).astype(np.int64) @ a.basis) for a, m in found]
        return Moments(sizes, measures, tuple(p for p in parts if p.matrix.any()))

    gaussian = problem.noise == "gaussian" and not problem.largest and not problem.unit.total_is_public
    bound = curve_bound(problem) if gaussian and problem.unit.neighbours.value == "add-remove" else None
    return [Design("factorization", build, fine, bound)]
