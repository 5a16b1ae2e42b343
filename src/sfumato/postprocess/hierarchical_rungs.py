"""What a release says, as the ladder takes it, and what it says of every rung."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sfumato._util.codec import storable
from sfumato.operators import Dense, Identity, Kronecker, Total
from sfumato.operators.base import FloatArray
from sfumato.postprocess.cones import project_onto_hull, project_onto_simplex

Axes = tuple[int, ...]
IsPossible = Callable[[Axes], NDArray[np.bool_] | None]


def every_cell(axes: Axes) -> None:
    """Of every table all cells can hold a record."""
    del axes


def proper_subsets(axes: Axes) -> list[Axes]:
    """The sets of fewer attributes, smallest first, without the empty one."""
    return [s for r in range(1, len(axes)) for s in itertools.combinations(axes, r)]


@dataclass(frozen=True, slots=True, eq=False)
class DerivedQueries:
    """Queries that are no cells of a table: cumulative counts, named counts, sums, levels.

    axes: ascending positions of their attributes. rows: (q, *cells along these) what each query counts every cell
    with. values, variances: (q,) noisy unbiased answers and the variance of their noise.
    """

    name: str
    axes: Axes
    rows: FloatArray
    values: FloatArray
    variances: FloatArray

    @property
    def groups(self) -> bool:
        """Whether every cell counts for at most one query, and then once: named counts, tables over levels."""
        return bool(((self.rows == 0) | (self.rows == 1)).all() and (self.rows.sum(axis=0) <= 1).all())


@dataclass(frozen=True, slots=True, eq=False)
class NoisyEstimates:
    """Unbiased noisy answers before any is moved.

    names, sizes: the attributes and their cells. tables: for every set of attributes under a table that is known, the
    empty one and single attributes among them, its noisy cells. spread: for each of them the variance of what its
    cells have beyond their means along every attribute. asked: the other queries. total: where it is public. possible:
    which cells of a table can hold a record, None where all can.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    tables: Mapping[Axes, FloatArray]
    variances: Mapping[Axes, float]
    spread: Mapping[Axes, float]
    asked: tuple[DerivedQueries, ...] = ()
    total: float | None = None
    possible: IsPossible = every_cell


@storable
@dataclass(frozen=True, slots=True)
class Rung:
    """One step of the ladder: what was held from there on, and how nearly that was possible.

    moved: root mean squared distance of its answers from the unprojected ones, in standard errors of these. gap: what
    its answers miss of the values that they were to be held to, root mean squared, in the same unit; 0 where a rung
    is held exactly.
    """

    name: str
    queries: int
    moved: float
    gap: float = 0.0


_SWEEPS = 200  # raking converges geometrically where sums agree; what is left then is missed
_FIRST = 10  # sweeps of tables before groups join
_EXACT = 1e-9  # of the mass: far below one record
_NEAR = 1e-8  # of the mass; the sweeps that follow meet what is left
_STEPS = 60  # Newton converges quadratically in the end; what is left then is missed
_INNER = 200  # an inexact step is a step of descent still; more products cost more than another step
_SOLVED = 1e-4  # relative: full accuracy of a step is wasted far from the end, near it the next step mends it
_EASE = 1e-8  # on a diagonal of ones: sums that say the same twice make the system singular
_HALVINGS = 20  # 2^-20 of a step: where that does not descend, rounding decides
_ARMIJO = 1e-4  # the usual small share of the promised descent; any below 1/2 keeps full steps near the end
_NOTHING = 1e-200  # positive, and below any share of a record: what is 0 divides nothing


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """Sums of a table's cells that are to have these values.

    axes: positions of the attributes summed over to; wanted: their table, or, with `groups` (the group of every
    cell of that table), one value per group. give: 0 where they are held whatever others say; else a sum that others
    exclude is missed, at the least squared misses divided by these.
    """

    axes: tuple[int, ...]
    wanted: FloatArray
    groups: NDArray[np.intp] | None = None
    give: FloatArray | None = None

    def met_by(self, cells: FloatArray) -> Sums:
        """The same sums with the values that these cells have, which hold."""
        return replace(self, wanted=self.of(cells), give=None)

    def of(self, cells: FloatArray) -> FloatArray:
        """These sums of some cells."""
        now = cells.sum(axis=tuple(a for a in range(cells.ndim) if a not in self.axes))
        if self.groups is None:
            return now
        return np.bincount(self.groups.reshape(-1), now.reshape(-1), len(self.wanted)).astype(np.float64)

    def spread(self, each: FloatArray, shape: tuple[int, ...]) -> FloatArray:
        """A value of every sum, at each of its cells: shaped to broadcast over a table of this shape."""
        told = each.reshape(self.wanted.shape) if self.groups is None else each[self.groups]
        return told.reshape([n if a in self.axes else 1 for a, n in enumerate(shape)])


def independence_table(
    axes: Sequence[int], held: Mapping[tuple[int, ...], FloatArray], possible: NDArray[np.bool_] | None = None
) -> FloatArray:
    """The table of these attributes with the total and the counts that are held, each independent of the others.

    0 where not `possible`, which raking leaves as it is (None: all cells are).
    """
    total = float(held[()])
    cells = np.array(total)
    for i in axes:
        cells = np.multiply.outer(cells, held[i,] / max(total, _NOTHING))
    return cells if possible is None else np.where(possible, cells, 0.0)


def rake_cells(cells: FloatArray, sums: Sequence[Sums], *, sweeps: int = _SWEEPS) -> FloatArray:
    """Nonnegative cells near the given ones, multiplicatively, whose sums are the wanted ones.

    Zero cells stay zero. Sums that no such cells have together are met as nearly as the order allows: those that give
    are missed, and of the others the last ones given are met last.
    """
    firm = [s for s in sums if s.give is None]
    if any(s.groups is not None for s in sums):
        cells = _balance_sums(_sweep_sums(cells, [s for s in firm if s.groups is None], _FIRST), sums)
    return _sweep_sums(cells, firm, sweeps)


def _sweep_sums(cells: FloatArray, sums: Sequence[Sums], sweeps: int) -> FloatArray:
    """Each sum in turn is met exactly, until all are."""
    out = cells
    mass = max((float(s.wanted.sum()) for s in sums), default=0.0)
    for _ in range(sweeps):
        worst = 0.0
        for s in sums:
            now = s.of(out)
            worst = max(worst, float(np.abs(s.wanted - now).max(initial=0.0)))
            ratio = np.divide(s.wanted, now, out=np.zeros_like(now), where=now > 0)
            out = out * s.spread(ratio, cells.shape)
        if worst <= _EXACT * mass or math.isnan(worst):
            break
    return out


def _balance_sums(cells: FloatArray, sums: Sequence[Sums]) -> FloatArray:
    """All sums together, by Newton steps on their multipliers; as near as it came where no cells have them all."""
    ends = np.cumsum([s.wanted.size for s in sums])[:-1]
    wanted = np.concatenate([s.wanted.reshape(-1) for s in sums])
    give = np.concatenate([np.zeros(s.wanted.size) if s.give is None else s.give.reshape(-1) for s in sums])

    def summed(x: FloatArray) -> FloatArray:
        return np.concatenate([s.of(x).reshape(-1) for s in sums])

    def spread(u: FloatArray) -> FloatArray:
        out = np.zeros(cells.shape)
        for s, each in zip(sums, np.split(u, ends), strict=True):
            out += s.spread(each, cells.shape)
        return out

    x, u = cells, np.zeros(len(wanted))
    mass = max(float(np.abs(s.wanted).sum()) for s in sums)
    for _ in range(_STEPS):
        now = summed(x)
        reached = now > _NOTHING
        missing = np.where(reached, wanted - now - give * u, 0.0)
        if float(np.abs(missing).max(initial=0.0)) <= _NEAR * mass:
            break
        scale = np.where(reached, now + give, 1.0)
        step = _conjugate_gradient_solve(lambda v, x=x: summed(x * spread(v)) + give * v, missing, scale)
        length, x_next = _step_length(x, spread(step), float(missing @ step), float(give @ step**2))
        if length == 0:
            break
        x, u = x_next, u + length * step
    return x


def _step_length(x: FloatArray, along: FloatArray, slope: float, curve: float) -> tuple[float, FloatArray]:
    """(how much of a step to take so that the convex function falls, the cells there); (0, the same cells) if none."""
    length = 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(_HALVINGS):
            # x (exp(t) - 1 - t), what the function bends up by, loses no digits near the end
            bent = float(np.sum(x * (np.expm1(length * along) - length * along))) + curve * length**2 / 2
            if bent <= (1 - _ARMIJO) * length * slope:
                return length, x * np.exp(length * along)
            length /= 2
    return 0.0, x


def _conjugate_gradient_solve(
    apply: Callable[[FloatArray], FloatArray], right: FloatArray, scale: FloatArray
) -> FloatArray:
    """Conjugate gradients, in units of `scale`; a little is added, as sums that repeat each other are no equations."""
    from scipy.sparse.linalg import LinearOperator as Product  # noqa: PLC0415  (heavy)
    from scipy.sparse.linalg import cg  # noqa: PLC0415

    count, root = len(right), np.sqrt(scale)

    def matvec(v: FloatArray) -> FloatArray:
        flat = v.reshape(-1)
        return apply(flat / root) / root + _EASE * flat

    hessian = Product((count, count), matvec=matvec, dtype=np.float64)
    return cg(hessian, right / root, rtol=_SOLVED, atol=0.0, maxiter=_INNER)[0] / root


LISTED = 2048
"""Cells of a table up to which queries over it are a rung of their own."""
_FIRST_LOW = 100.0  # how much more than cells the queries weigh
_MARGIN = 1e3  # and how much more than these what is held already
_CERTAIN = 1e-6  # of the largest variance: what is known exactly weighs a million times, and the system stays sound
_TOUCH = 1e-9  # of the independent table: no cell starts at zero, where raking could not move it
_NOTHING_LOW = 1e-100  # positive, where all variances are 0; squares of it do not matter


def hierarchical_total(told: NoisyEstimates) -> float:
    """The total that everything is held to: the public one, or the unbiased one where that is positive."""
    return max(float(told.tables[()]), 0.0) if told.total is None else told.total


def held_tables(told: NoisyEstimates, total: float) -> dict[Axes, FloatArray]:
    """Tables that are held: of every attribute, and those in which cumulative counts or sums were asked."""
    held: dict[Axes, FloatArray] = {(): np.array(total)}
    for i in range(len(told.sizes)):
        held[i,] = _fit_table(told, (i,), [a for a in told.asked if a.axes == (i,)], held, total)
    wider = {a.axes for a in told.asked if len(a.axes) > 1 and not a.groups}
    known = {s for s, v in told.variances.items() if v == 0 and len(s) > 1 and s in told.tables}
    for axes in sorted(wider | known, key=lambda s: (len(s), s)):
        if axes in known:
            held[axes] = _rake_to_margins(axes, np.maximum(told.tables[axes], 0.0), held, told.possible(axes))
        elif axes in told.tables and math.prod(told.sizes[i] for i in axes) <= LISTED:
            inside = [a for a in told.asked if a.axes == axes]
            held[axes] = _fit_table(told, axes, inside, held, total)
    return held


def _fit_table(
    told: NoisyEstimates, axes: Axes, asked: Sequence[DerivedQueries], held: Mapping[Axes, FloatArray], total: float
) -> FloatArray:
    """A table nearest to its cells and to the queries asked of it, with the margins that are held."""
    cells, possible = told.tables.get(axes), told.possible(axes)
    shape = tuple(told.sizes[i] for i in axes)
    if cells is not None and not asked and len(axes) == 1:
        return project_onto_simplex(cells, total, possible=possible)
    margins = [s for s in proper_subsets(axes) if s in held]
    rows, values = [], []
    if cells is not None:
        weight = 1 / math.sqrt(told.variances[axes] or 1.0)
        rows.append(np.eye(cells.size) * weight)
        values.append(cells.reshape(-1) * weight)
    for a in asked:
        # what is public has no noise: it counts as all but certain
        least = max(_CERTAIN * float(a.variances.max(initial=0.0)), _NOTHING_LOW)
        each = math.sqrt(_FIRST_LOW) / np.sqrt(np.maximum(a.variances, least))
        rows.append(a.rows.reshape(len(a.rows), -1) * each[:, None])
        values.append(a.values * each)
    top = max((float(np.abs(r).max(initial=0.0)) for r in rows), default=1.0) or 1.0
    for s in margins:
        summing = Kronecker(tuple(Identity(n) if i in s else Total(n) for i, n in zip(axes, shape, strict=True)))
        rows.append(summing.dense() * (math.sqrt(_MARGIN) * top))
        values.append(held[s].reshape(-1) * (math.sqrt(_MARGIN) * top))
    kept = np.ones(math.prod(shape), dtype=bool) if possible is None else possible.reshape(-1)
    found = np.zeros(len(kept))
    if not rows:
        found[kept] = total / kept.sum()
        return found.reshape(shape)
    found[kept] = project_onto_hull(Dense(np.vstack(rows)[:, kept]), np.concatenate(values), total).cells
    return _rake_to_margins(axes, found.reshape(shape), held, possible)


def _rake_to_margins(
    axes: Axes, cells: FloatArray, held: Mapping[Axes, FloatArray], possible: NDArray[np.bool_] | None
) -> FloatArray:
    """Nonnegative cells, raked to all tables below that are held."""
    margins = [s for s in proper_subsets(axes) if s in held]
    if possible is not None:
        cells = np.where(possible, cells, 0.0)
    if not margins:
        return cells
    # a touch of independence, so that no margin is out of reach
    return rake_cells(
        cells + _TOUCH * independence_table(axes, held, possible),
        [Sums(tuple(axes.index(i) for i in s), held[s]) for s in margins],
    )
