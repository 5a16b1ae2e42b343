"""The optimum for unions of Kronecker products whose factors repeat themselves, and a bound beyond it. [ENU20, MMHM18]

Some unions have symmetries that leave too many joint orbits for their optimum, but few rows of queries: all tables of
two attributes beside a few counts of sets of cells. Cells of an attribute that every count treats alike may be
exchanged, so the best weights v of the cells are constant on joint orbits, and the root of the summed errors is at
least

    sum over kinds t of ||F_t diag(v)^(1/2)||_*,      F_tᵀF_t = c_t² K_t / (s_o s_o')^(1/2) on joint orbits.

K_t sums Kronecker products, so F_t stacks products of their roots: as many rows as queries leave, however many joint
orbits there are, and a step costs an eigendecomposition of that size. Any v proves a bound; v_o <- v_o (g_o / t)^2
climbs to the best one, g_o = sum_t f_oᵀ (F_t V F_tᵀ)^(-1/2) f_o. Product weights, which tilted residuals prove theirs
by, cannot follow counts: they leave 12 to 28 % on such unions.

Where one record replaces another, weights v_u v_w on pairs of cells make it

    ||W D^(1/2) (I - q qᵀ)||_* (2 / (1 - |v|²))^(1/2),      q = D^(1/2) 1

(see `strategies/tilted_bounds.py`); q lies in the kind of all orbits, whose columns are then centred.

The best strategy for unions whose symmetries leave too many joint orbits, but few rows of queries over them.

All tables of two attributes beside a few counts: thousands of joint orbits (see union.py), of which all queries ask
no more than some hundred sums. With Q_t independent 0/1 rows that span what is asked of kind t, H_t = L_t L_tᵀ the
Gram of the queries over these, and M_t = L_tᵀ Q_t diag(v) Q_tᵀ L_t, weights v of sum 1 on the joint orbits prove

    sum_t tr M_t^(1/2),      and M_t^(-1/4) L_tᵀ Q_t attains      (sum_t tr M_t^(1/2) max_o g_o)^(1/2),

g_o = sum_t q_oᵀ L_t M_t^(-1/2) L_tᵀ q_o. Nothing has more rows than the queries leave, and v <- v (g / t)^4 climbs,
or ^2 after a step that did not, as in `merged_rows`. What is measured are whole combinations of the rows of Q.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato._util.display import Progress
from sfumato.errors import PlanError
from sfumato.operators import LinearOperator, Sparse, Total
from sfumato.operators.base import FloatArray, single_thread
from sfumato.privacy.unit import Neighbours
from sfumato.strategies.dense_blocks import rounding_units, spectrum_of_square
from sfumato.strategies.dense_dual import relative_gap
from sfumato.strategies.design import Design, Problem
from sfumato.strategies.factors import quantise
from sfumato.strategies.merged_rows import MAX_ROWS, SparseRows, climb_row_weights, independent_row_basis
from sfumato.strategies.stacked import joined_attributes, planned_jointly
from sfumato.strategies.union import (
    LARGE,
    QUICK,
    Orbits,
    Product,
    SmallUnion,
    Solver,
    UnionPiece,
    classes_of_orbits,
    factor_number,
    solve_union,
)
from sfumato.strategies.union_symmetry import Axis, Group, Measured, ReducedAxis, reduce_axis

_MOST_SIDE = 400  # cells of an attribute that is looked through for symmetries
_MOST_ORBITS = 50_000  # joint ones, of which every row has one number
_MOST_ROWS = 1_024  # of one kind: a step decomposes a matrix of that size, a third of a second
_MOST_KINDS = 4_000  # each is a Python value
_MOST_ENTRIES = 2**22  # of all rows that are not zero: every step goes through them several times
_STEPS = 12  # the bound is within a tenth of a per cent by then, the weights are not
_PAIR_STEPS = 15  # of weights of pairs, which swing about the best ones after that
_ORBIT_PAIR_STEPS = 16  # of weights of all pairs of orbits, from there
_MOST_PAIR_WORK = 1.6e11  # orbits squared times rows, of all of these: some ten seconds
_EXACT_ROOT = 1e-8  # relative: roots below are those of sums that are the same for all cells
_GAIN = 3e-4  # of a step, relative: what follows gains less than is shown
_MARGIN = 1e-12  # relative, of sums of positive numbers
_DOUBT = 4  # sums that an entry of M goes through: roots, columns, groups, and their difference
_MOST_GROUPS = 300  # of orbits that counts tell apart: pairs of these have weights of their own
_EXACT = 1e-13  # relative: rows of a root that are shorter are rounding


@dataclass(frozen=True, slots=True)
class _SparseEntries:
    """Entries of a sparse matrix that are not zero, row by row."""

    values: FloatArray
    row: NDArray[np.intp]
    column: NDArray[np.intp]
    shape: tuple[int, ...]

    def times(self, other: _SparseEntries) -> _SparseEntries:
        """The Kronecker product."""
        return _SparseEntries(
            np.multiply.outer(self.values, other.values).reshape(-1),
            np.add.outer(self.row * other.shape[0], other.row).reshape(-1),
            np.add.outer(self.column * other.shape[1], other.column).reshape(-1),
            tuple(a * b for a, b in zip(self.shape, other.shape, strict=True)),
        )


@dataclass(frozen=True, slots=True)
class _OrbitKind:
    """Rows F (r, columns) at the joint orbits `at`.

    Whether it is the `whole`, of all orbits, which holds the total; or many kinds of a `single` row each.
    """

    rows: Any
    at: NDArray[np.intp]
    whole: bool = False
    single: bool = False


def orbit_bound(products: Sequence[Product], sizes: Mapping[str, int], *, replaced: bool = False) -> float | None:
    """A lower bound on the root of the summed weighted variances at unit price, of a record more or less.

    With `replaced` where one record takes the place of another. None where there are too many orbits, rows or kinds,
    or no query counts any cell.
    """
    products = [(w, factors) for w, factors in products if all(f.max_abs for f in factors.values())]
    names = [a for a in sizes if any(a in factors for _, factors in products)]
    if not names or max(sizes[a] for a in names) > _MOST_SIDE:
        return None
    known: dict[str, list[LinearOperator]] = {a: [] for a in names}
    numbers = [
        tuple(factor_number(known[a], factors.get(a) or Total(sizes[a])) for a in names) for _, factors in products
    ]
    axes, orbits = list[ReducedAxis](), 1
    for name in names:
        axes.append(reduce_axis(known[name]))
        orbits *= len(axes[-1].axis.sizes)
        if orbits > _MOST_ORBITS:
            return None
    with single_thread():
        try:
            kinds, counts = _collect_kinds(axes, numbers, [w for w, _ in products])
        except PlanError:
            return None
        return _climbed_pairs(axes, kinds, _orbit_groups(counts)) if replaced else _climb_cell_bound(axes, kinds)


def shares_by_kind(
    axes: Sequence[ReducedAxis], numbers: Sequence[tuple[int, ...]], weights: Sequence[float]
) -> dict[tuple[int, ...], dict[tuple[int, ...], float]]:
    """By kind, what products have there: a weight by their numbers on the axes of all orbits, -1 on the others.

    Raises PlanError where there are too many kinds.
    """
    scales: dict[tuple[int, ...], dict[tuple[int, ...], float]] = {}
    for own, weight in zip(numbers, weights, strict=True):
        # a factor has no part in contrasts on which its number is zero
        choices = [[-1, *np.flatnonzero(r.numbers[k]).tolist()] for r, k in zip(axes, own, strict=True)]
        if math.prod(map(len, choices)) > _MOST_KINDS:
            raise PlanError("symmetries leave too many kinds")
        for kind in itertools.product(*choices):
            scale = weight
            for r, k, t in zip(axes, own, kind, strict=True):
                if t >= 0:
                    contrast = r.axis.contrasts[t]
                    scale *= float(r.numbers[k, t]) * contrast.multiplicity**2 / float(r.axis.sizes[contrast.orbit])
            wide = tuple(k if t < 0 else -1 for k, t in zip(own, kind, strict=True))
            parts = scales.setdefault(kind, {})
            parts[wide] = parts.get(wide, 0.0) + scale
    if len(scales) > _MOST_KINDS:
        raise PlanError("symmetries leave too many kinds")
    return scales


def _collect_kinds(
    axes: Sequence[ReducedAxis], numbers: Sequence[tuple[int, ...]], weights: Sequence[float]
) -> tuple[list[_OrbitKind], FloatArray]:
    """All kinds, those of one row each together, and (rows, orbits) the products of one row. Raises PlanError."""
    from scipy.sparse import csr_matrix  # noqa: PLC0415  (slow to import)

    scales = shares_by_kind(axes, numbers, weights)
    roots = [[_gram_root(m) for m in r.means] for r in axes]
    every = np.arange(math.prod(len(r.axis.sizes) for r in axes)).reshape([len(r.axis.sizes) for r in axes])
    if _too_many(roots, scales.values()):  # told before any is built
        raise PlanError("symmetries leave too many rows")
    out, single = list[_OrbitKind](), list[tuple[FloatArray, NDArray[np.intp]]]()
    counts = [np.zeros((1, every.size))]
    for kind, parts in scales.items():
        place = [slice(None) if t < 0 else r.axis.contrasts[t].orbit for r, t in zip(axes, kind, strict=True)]
        at = np.ascontiguousarray(every[tuple(place)]).reshape(-1)
        each = [_kronecker_rows(roots, wide, scale) for wide, scale in parts.items()]
        if max(kind) < 0:
            counts += [_stack_entries([r]).toarray() for r in each if r.shape[0] == 1]
        rows = _stack_entries(each)
        if rows.shape[0] == 1 and max(kind) >= 0:
            single.append((rows.data, at[rows.indices]))
        else:
            out.append(_OrbitKind(rows, at, whole=max(kind) < 0))
    if single:
        ends = np.cumsum([0, *(len(values) for values, _ in single)])
        entries_at = np.concatenate([v for v, _ in single]), np.concatenate([c for _, c in single]), ends
        rows = csr_matrix(entries_at, shape=(len(single), every.size))
        out.append(_OrbitKind(rows, every.reshape(-1), single=True))
    return out, np.concatenate(counts)


def _too_many(roots: Sequence[Sequence[_SparseEntries]], kinds: Iterable[Iterable[tuple[int, ...]]]) -> bool:
    """Whether a kind has too many rows, or all of them too many entries."""
    entries = 0
    for each in kinds:
        used = [[own[k] for own, k in zip(roots, wide, strict=True) if k >= 0] for wide in each]
        entries += sum(math.prod(len(r.values) for r in own) for own in used)
        if entries > _MOST_ENTRIES or sum(math.prod(r.shape[0] for r in own) for own in used) > _MOST_ROWS:
            return True
    return False


def _orbit_groups(counts: FloatArray) -> NDArray[np.intp]:
    """(orbits,) which of the counts, (rows, orbits), hold an orbit; all alike where that tells too many apart."""
    found = np.unique(np.sign(counts), axis=1, return_inverse=True)[1].reshape(-1)
    return found if int(found.max()) < _MOST_GROUPS else np.zeros(counts.shape[1], dtype=np.intp)


def _gram_root(gram: FloatArray) -> _SparseEntries:
    """Rows R with RᵀR a Gram."""
    diagonal = np.diagonal(gram)
    if not (gram - np.diag(diagonal)).any():
        return _sparse_entries(np.diag(np.sqrt(diagonal))[diagonal > 0.0])
    values, vectors = np.linalg.eigh(gram)
    kept = values > _EXACT * values[-1]
    return _sparse_entries((vectors[:, kept] * np.sqrt(values[kept])).T)


def _sparse_entries(rows: FloatArray) -> _SparseEntries:
    row, column = np.nonzero(rows)
    return _SparseEntries(rows[row, column], row, column, rows.shape)


def _kronecker_rows(roots: Sequence[Sequence[_SparseEntries]], wide: tuple[int, ...], scale: float) -> _SparseEntries:
    """The Kronecker product of some roots: there are thousands, and checks took nine tenths of the time of scipy's."""
    out = _sparse_entries(np.array([[math.sqrt(scale)]]))
    for own, k in zip(roots, wide, strict=True):
        if k >= 0:
            out = out.times(own[k])
    return out


def _stack_entries(each: Sequence[_SparseEntries]) -> Any:
    """These rows one below the other, as scipy's compressed ones."""
    from scipy.sparse import csr_matrix  # noqa: PLC0415  (slow to import)

    starts = np.cumsum([0, *(r.shape[0] for r in each)])
    row = np.concatenate([r.row + start for r, start in zip(each, starts[:-1], strict=True)])
    values, column = np.concatenate([r.values for r in each]), np.concatenate([r.column for r in each])
    return csr_matrix((values, (row, column)), shape=(int(starts[-1]), each[0].shape[1]))


def _climb_cell_bound(axes: Sequence[ReducedAxis], kinds: list[_OrbitKind]) -> float:
    """The best bound of a record more or less on the way of the weights v."""
    cells = _joint_orbit_cells(axes)
    v, best = cells / cells.sum(), 0.0
    for _ in range(_STEPS):
        each = [_kind_nuclear_norm(k, v[k.at]) for k in kinds]
        proved = sum(n.proved for n in each)
        gained, best = proved > best * (1 + _GAIN), max(best, proved)
        if not gained:
            break
        v = v * (_bound_slope(kinds, each, len(v)) / sum(n.found for n in each)) ** 2
        v /= v.sum()
    return best


def _climbed_pairs(axes: Sequence[ReducedAxis], kinds: list[_OrbitKind], groups: NDArray[np.intp]) -> float:
    """The same where a record is replaced: of the weights a of orbits, and those of pairs of groups."""
    cells = _joint_orbit_cells(axes)
    inside = (groups == np.arange(groups.max() + 1)[:, None]).astype(np.float64)
    a, between, best = cells / cells.sum(), np.ones((len(inside),) * 2), 0.0
    start = a, between
    for _ in range(_PAIR_STEPS):
        mass = inside @ a
        degrees = a * (between @ mass)[groups]
        each = [_kind_nuclear_norm(k, degrees[k.at], (inside * a, between) if k.whole else None) for k in kinds]
        pairs = float(mass @ between @ mass - np.diagonal(between)[groups] @ (a**2 / cells)) / 2
        if not pairs > 0.0:
            break
        reached = sum(n.proved for n in each) / math.sqrt(pairs)
        if reached > best:
            best, start = reached, (a, between)
        far = _bound_slope(kinds, each, len(a))
        # (f_u - f_v)ᵀ M^(-1/2) (f_u - f_v) and what other kinds have of u and v, summed over the pairs of a group
        across = next(n.across for n, k in zip(each, kinds, strict=True) if k.whole)
        toward = far[:, None] * mass + inside @ (a * far) - 2 * across
        by_group = (inside * a) @ toward
        a = a * np.maximum((toward * between[groups]).sum(axis=1), 0.0)
        between = between * np.maximum(by_group, 0.0) / np.maximum(np.multiply.outer(mass, mass), 1e-300)
        a, between = a / a.sum(), between / between.max()
    whole = next(k for k in kinds if k.whole)
    a, between = start
    steps = int(min(_ORBIT_PAIR_STEPS, _MOST_PAIR_WORK / (max(whole.rows.shape[0], 1) * float(len(a)) ** 2)))
    return _climb_orbit_pairs(kinds, cells, np.multiply.outer(a, a) * between[np.ix_(groups, groups)], best, steps)


def _climb_orbit_pairs(
    kinds: Sequence[_OrbitKind], cells: FloatArray, weights: FloatArray, best: float, steps: int
) -> float:
    """The same with a weight for every pair of orbits, (orbits, orbits): as many steps as time allows."""
    for step in range(steps):
        weights /= weights.sum()
        degrees = weights.sum(axis=1)
        # a pair of a cell and itself proves nothing
        pairs = (1.0 - float((np.diagonal(weights) / cells).sum())) / 2
        if not pairs > 0.0:
            break
        far, across, found, proved = np.zeros(len(cells)), np.zeros((0, 0)), 0.0, 0.0
        for kind in kinds:
            if kind.whole:
                own, across = _pair_nuclear_norm(kind, degrees, weights)
            else:
                own = _kind_nuclear_norm(kind, degrees[kind.at])
            far[kind.at] += own.lengths
            found, proved = found + own.found, proved + own.proved
        reached = proved / math.sqrt(pairs)
        gained, best = reached > best * (1 + _GAIN), max(best, reached)
        if step > 2 and not gained:
            break
        slope = (far[:, None] + far - 2 * across) * (pairs / found)
        weights *= np.maximum(slope, 0.0) ** 2
    return best


def _pair_nuclear_norm(kind: _OrbitKind, degrees: FloatArray, weights: FloatArray) -> tuple[_NuclearNorm, FloatArray]:
    """That of F (diag(degrees) - weights)^(1/2), and f_oᵀ M^(-1/2) f_o' of all columns."""
    rows, dense = kind.rows, np.asarray(kind.rows.todense(), dtype=np.float64)
    moment = np.asarray((rows.multiply(degrees) @ rows.T).todense(), dtype=np.float64) - (rows @ weights) @ dense.T
    found = spectrum_of_square((moment + moment.T) / 2, _DOUBT * rounding_units(len(degrees)))
    kept = found.roots > _EXACT_ROOT * found.roots.max(initial=1e-300)
    vectors = found.vectors[:, kept]
    across = np.asarray(rows.T @ ((vectors / found.roots[kept]) @ (vectors.T @ dense)), dtype=np.float64)
    lengths = np.diagonal(across).copy()
    return _NuclearNorm(float(found.roots.sum()), found.proved, lengths, np.zeros((0, 0))), across


def _joint_orbit_cells(axes: Sequence[ReducedAxis]) -> FloatArray:
    """The joint cells of every joint orbit; equal ones of an attribute are one, to which their weights go."""
    return np.asarray(reduce(np.multiply.outer, [r.axis.sizes for r in axes]), dtype=np.float64).reshape(-1)


@dataclass(frozen=True, slots=True)
class _NuclearNorm:
    """A nuclear norm, a proved part of it, f_oᵀ M^(-1/2) f_o of every column, and f_oᵀ M^(-1/2) of the groups' sums."""

    found: float
    proved: float
    lengths: FloatArray
    across: FloatArray


def _bound_slope(kinds: Sequence[_OrbitKind], each: Sequence[_NuclearNorm], count: int) -> FloatArray:
    out = np.zeros(count)
    for kind, own in zip(kinds, each, strict=True):
        out[kind.at] += own.lengths
    return out


def _kind_nuclear_norm(
    kind: _OrbitKind, v: FloatArray, pairs: tuple[FloatArray, FloatArray] | None = None
) -> _NuclearNorm:
    """That of F diag(v)^(1/2); less U B Uᵀ, U (groups, columns) and B of `pairs`, where records are replaced."""
    rows, none = kind.rows, np.zeros((0, 0))
    if kind.single:
        squares = rows.multiply(rows).tocsr()
        norms = np.sqrt(squares @ v)
        total = float(norms.sum())
        return _NuclearNorm(total, total * (1 - _MARGIN), squares.T @ (1 / np.maximum(norms, 1e-300)), none)
    moment = np.asarray((rows.multiply(v) @ rows.T).todense(), dtype=np.float64)
    sums = none if pairs is None else np.asarray(rows @ pairs[0].T, dtype=np.float64)
    if pairs is not None:
        moment -= sums @ pairs[1] @ sums.T
        moment = (moment + moment.T) / 2
    found = spectrum_of_square(moment, _DOUBT * rounding_units(len(v)))
    inverse = (found.vectors / np.maximum(found.roots, 1e-300)) @ found.vectors.T
    columns = rows.T.tocsr()
    lengths = np.asarray(columns.multiply(columns @ inverse).sum(axis=1)).reshape(-1)
    across = none if pairs is None else np.asarray(columns @ (inverse @ sums), dtype=np.float64)
    return _NuclearNorm(float(found.roots.sum()), found.proved, lengths, across)


_MOST_CELLS = 100_000  # joint ones: the price is the longest of their columns
_MOST_ORBITS_UNION_PLANNING = 2**15  # joint ones: a matrix of all rows at each of them is measured
_MOST_ENTRIES_UNION_PLANNING = 2**24  # of what is measured, over joint orbits: 128 MB
_MOST_STACKED = 4_096  # rows of one kind, of which those are taken that are independent: their Gram is 128 MB
_MOST_KINDS_UNION_PLANNING = 400  # each is decomposed by itself in every step
_TOLERANCE = 1.5e-3  # gap at which the search ends
_WORK = 1e11  # operations of all steps, about: ten seconds
_MOST_STEPS = 300  # a tenth of these is the rule; what ends there says its gap
_LEAST = 1e-9  # weight of all orbits that hardly count: they may count again


@dataclass(frozen=True, eq=False)
class RowKind(SparseRows):
    """Whole rows at the joint orbits of a choice of kinds; what is asked of each is of as many dimensions as rows."""

    kinds: tuple[int, ...] = ()


def solve_rows(
    products: Sequence[Product], sizes: Mapping[str, int], *, progress: Progress | None = None
) -> tuple[SmallUnion, ...]:
    """Near the optimum under add-remove, over all attributes together; `lower` and `upper` say how near.

    Raises PlanError where there are too many orbits, rows or kinds, or rows are no sums over classes of orbits.
    """
    names, axes, collect = collect_row_problem(products, sizes)
    with single_thread():
        return (_search_row_solution(names, axes, collect(), progress),)


def collect_row_problem(
    products: Sequence[Product], sizes: Mapping[str, int]
) -> tuple[tuple[str, ...], list[ReducedAxis], Callable[[], list[RowKind]]]:
    """(the attributes, their symmetries, what collects the kinds of rows). Raises PlanError, as that does."""
    names = tuple(a for a in sizes if any(a in factors for _, factors in products))
    if not names or max(sizes[a] for a in names) > _MOST_SIDE or math.prod(sizes[a] for a in names) > _MOST_CELLS:
        raise PlanError("too many cells to look for symmetries in")
    known: dict[str, list[LinearOperator]] = {a: [] for a in names}
    numbers = [
        tuple(factor_number(known[a], factors.get(a) or Total(sizes[a])) for a in names) for _, factors in products
    ]
    axes = [reduce_axis(known[a]) for a in names]
    if math.prod(len(r.axis.sizes) for r in axes) > _MOST_ORBITS_UNION_PLANNING:
        raise PlanError("symmetries leave too many joint orbits")
    return names, axes, functools.partial(_collect_row_kinds, axes, numbers, [w for w, _ in products])


def _collect_row_kinds(
    axes: Sequence[ReducedAxis], numbers: Sequence[tuple[int, ...]], weights: Sequence[float]
) -> list[RowKind]:
    from scipy.sparse import csr_matrix, kron, vstack  # noqa: PLC0415  (slow to import)

    given = shares_by_kind(axes, numbers, weights)
    if len(given) > _MOST_KINDS_UNION_PLANNING:
        raise PlanError("symmetries leave too many kinds")
    asked = {(i, k) for parts in given.values() for wide in parts for i, k in enumerate(wide) if k >= 0}
    known = {(i, k): classes_of_orbits(axes[i].means[k]) for i, k in sorted(asked)}
    # factors whose classes are the same, such as cells and prefixes of them, have the same rows
    first: dict[tuple[int, bytes], int] = {}
    alike = {(i, k): first.setdefault((i, c.toarray().tobytes()), k) for (i, k), (c, _) in known.items()}
    orbits = [len(r.axis.sizes) for r in axes]
    entries = 0
    for kind, parts in given.items():  # told before any is built
        keys = {tuple(alike.get((i, k), -1) for i, k in enumerate(wide)) for wide in parts}
        count = sum(math.prod(len(known[i, k][1]) for i, k in enumerate(key) if k >= 0) for key in keys)
        entries += count * math.prod(n for n, t in zip(orbits, kind, strict=True) if t < 0)
        if count > _MOST_STACKED or entries > _MOST_ENTRIES_UNION_PLANNING:
            raise PlanError("symmetries leave too many rows")
    every, out = np.arange(math.prod(orbits)).reshape(orbits), list[RowKind]()
    for kind, parts in given.items():
        moments = _moments_by_rows(parts, known, alike)
        place = [slice(None) if t < 0 else r.axis.contrasts[t].orbit for r, t in zip(axes, kind, strict=True)]
        at = np.ascontiguousarray(every[tuple(place)]).reshape(-1)
        rows = list[Any]()
        for wide in moments:
            factors = [known[i, k][0] for i, k in enumerate(wide) if k >= 0]
            rows.append(reduce(functools.partial(kron, format="csr"), factors, csr_matrix(np.ones((1, 1), np.int64))))
        stacked = vstack(rows).tocsr()
        kept, back = independent_row_basis(np.asarray(stacked.todense(), dtype=np.int64))
        if len(kept) > MAX_ROWS:
            raise PlanError("symmetries leave too many independent rows")
        gram, start = np.zeros((len(kept),) * 2), 0
        for moment in moments.values():
            part = back[start : start + len(moment)]
            gram += part.T @ moment @ part
            start += len(moment)
        values, vectors = np.linalg.eigh(gram)
        if not values[0] > len(values) * np.finfo(np.float64).eps * values[-1]:
            raise PlanError("rows of which nothing is asked")
        out.append(RowKind(stacked[kept], at, vectors * np.sqrt(values), kind))
    return out


def _moments_by_rows(
    parts: Mapping[tuple[int, ...], float],
    known: Mapping[tuple[int, int], tuple[Any, FloatArray]],
    alike: Mapping[tuple[int, int], int],
) -> dict[tuple[int, ...], FloatArray]:
    """By the factors that give the rows of a kind, the Gram of what is asked of these, of all that have the same."""
    out: dict[tuple[int, ...], FloatArray] = {}
    for wide, scale in parts.items():
        key = tuple(alike.get((i, k), -1) for i, k in enumerate(wide))
        factors = [known[i, k][1] for i, k in enumerate(wide) if k >= 0]
        moment = np.asarray(scale * reduce(np.kron, factors, np.ones((1, 1))), dtype=np.float64)
        out[key] = out[key] + moment if key in out else moment
    return out


def _search_row_solution(
    names: tuple[str, ...], axes: Sequence[ReducedAxis], kinds: Sequence[RowKind], progress: Progress | None
) -> SmallUnion:
    each = _joint_orbit_cells(axes)
    work = sum(k.rows.shape[0] ** 2 * (k.rows.shape[0] + k.rows.nnz / 8) for k in kinds)
    steps = int(min(_MOST_STEPS, max(_WORK / work, 1.0)))
    found = climb_row_weights(kinds, each, tolerance=_TOLERANCE, steps=steps, least=_LEAST, progress=progress)
    whole = next((k for k in kinds if max(k.kinds) < 0), None)
    mean = 0.0
    if whole is not None and whole.root is not None:
        mean = float(np.linalg.norm(whole.root.T @ (whole.rows @ found.proof)))
    pieces = tuple(union_row_piece(axes, k, matrix) for k, matrix in zip(kinds, found.strategies, strict=True))
    square = float((found.proof**2 / each).sum())
    return SmallUnion(names, tuple(r.axis for r in axes), pieces, found.lower, found.upper, square, mean)


def union_row_piece(axes: Sequence[ReducedAxis], kind: RowKind, matrix: FloatArray) -> UnionPiece:
    inside = [(r.axis, r.axis.contrasts[t]) for r, t in zip(axes, kind.kinds, strict=True) if t >= 0]
    # sums over an orbit are longer than isometries by the root of its size, contrasts are not
    square = math.prod(float(a.sizes[c.orbit]) / c.multiplicity for a, c in inside)
    return UnionPiece(kind.kinds, matrix * math.sqrt(square), np.zeros((0, kind.rows.shape[1])), Sparse.of(kind.rows))


MAX_CELLS = 4_000_000  # 32 MB a vector over all cells
_BITS = 18  # of the largest number of a piece, where there is room
_FILL_BITS = 6  # of the least singular value of a matrix
_MOST_BITS = 33  # leaves room for half a billion records
_SIDE_BITS = 10  # of the largest number of a piece of other groups than the first
_NUMBER_BITS = 4  # by which the numbers of a group of numbers may exceed the least that tell them from zero
_TRIALS = 2_000  # scales over four octaves, some hundred for each step of the least number


def design_union(problem: Problem, progress: Progress | None = None) -> Design:
    """The least mean squared error under add-remove, proved. Raises PlanError where that is no small problem.

    Under replace-one the same strategy, with the known total used and its own exact price, and a bound of its own.
    """
    # other planners know products of maps of single attributes, so that large problems are left to them
    limits = LARGE if joined_attributes(problem.workload) else QUICK
    solver = functools.partial(solve_union, limits=limits)
    return planned_jointly(problem, lambda p: design_with_solver(p, solver, progress))


def few_rows(problem: Problem, progress: Progress | None = None) -> Design:
    """The same to a thousandth for unions of too many joint orbits but few rows of queries: tables beside counts.

    Of persons whose rows are replaced, and may vanish, nothing is proved. Raises PlanError, too, for a known total:
    `union_pairs` weighs what changes then.
    """
    if problem.unit.total_is_public:
        raise PlanError("where one record replaces another pairs of cells have weights")
    found = planned_jointly(problem, lambda p: design_with_solver(p, solve_rows, progress))
    return found if problem.unit.neighbours is Neighbours.ADD_REMOVE else replace(found, bound=None)


def design_with_solver(
    problem: Problem, solver: Solver, progress: Progress | None, *, paired: bool = False, most: float = math.inf
) -> Design:
    """What a solver finds, as whole numbers at scale `most` at the finest; `paired` if its bounds are of pairs."""
    if problem.noise == "laplace" or problem.largest:
        raise PlanError("it is for the mean squared error under Gaussian noise")
    if problem.is_marginal:
        raise PlanError("of marginal tables alone residuals are the optimum")
    products = problem.products
    assert products is not None  # attributes that a query joins are one here
    names = {a for _, factors in products for a in factors}
    cells = math.prod(problem.sizes[a] for a in names)
    if len(names) < 2 or cells > MAX_CELLS:
        one = "all queries are about one attribute"
        raise PlanError(one if len(names) < 2 else f"{cells:,} joint cells, above {MAX_CELLS:,}")
    found = solver(products, problem.sizes, progress=progress)
    public = problem.unit.total_is_public
    if public and not all(any(p.of_orbits for p in u.pieces) for u in found):
        raise PlanError("the known total is no sum of what would be measured")
    fixed = [_side_scale(u) for u in found[1:]]
    if _piece_scale(found[0], _SIDE_BITS, fill=0) * math.prod(fixed) > 2.0**_MOST_BITS:
        raise PlanError("its integers would leave no room for large counts")
    fine = min(_piece_scale(found[0], _BITS) * math.prod(fixed), 2.0**_MOST_BITS, most)

    # where the total is known more is possible, unless pairs were looked at
    lower, upper, free = math.prod(u.lower for u in found), math.prod(u.upper for u in found), public and not paired
    near = math.inf if free else relative_gap(lower, upper)

    def build(s: float) -> Orbits:
        scales = [s / math.prod(fixed), *fixed]
        return Orbits(tuple(_integer_group(u, scale) for u, scale in zip(found, scales, strict=True)), public, near)

    return Design("factorization", build, fine, _swap_bound(found) if free else lower)


def _swap_bound(found: Sequence[SmallUnion]) -> float:
    """What the weights that prove the optimum under add-remove prove where one record replaces another.

    Weights v_u v_w on all pairs of cells have the Laplacian D - v vᵀ = D^(1/2) (I - q qᵀ) D^(1/2), D = diag(v), q the
    root of v, and the sum (1 - |v|²) / 2; taking q away costs a nuclear norm at most |W D^(1/2) q| = |W v|.
    """
    lower, square, mean = (math.prod(each) for each in zip(*((u.lower, u.square, u.mean) for u in found), strict=True))
    return max(lower - mean * (1 + 1e-9), 0.0) * math.sqrt(2 / (1 - square)) * (1 - 1e-9) if square < 1.0 else 0.0


def _integer_group(union: SmallUnion, scale: float) -> Group:
    return Group(union.names, union.axes, tuple(_round_piece(union.axes, p, scale) for p in union.pieces))


def _round_piece(axes: Sequence[Axis], piece: UnionPiece, scale: float) -> Measured:
    real = piece.matrix * (scale / _contrast_length(axes, piece))
    # columns of combinations of rows are none of what is measured
    rounded = np.rint(real).astype(np.int64) if piece.rows else quantise(real, None, 1.0).measured.dense()
    if len(rounded) == 1:
        rounded = np.maximum(rounded, 1) if real[0, 0] > 0 else np.minimum(rounded, -1)
    return Measured(piece.kinds, rounded, piece.beyond, piece.rows)


def _contrast_length(axes: Sequence[Axis], piece: UnionPiece) -> float:
    """How much longer the integer contrasts are than isometries."""
    return math.sqrt(math.prod(a.square(k) for a, k in zip(axes, piece.kinds, strict=True)))


def _piece_scale(union: SmallUnion, bits: int, fill: int = _FILL_BITS) -> float:
    """The scale at which the largest number of every piece has `bits`, and its least singular value has `fill`."""
    out = 0.0
    for piece in union.pieces:
        largest = 2.0**bits / float(np.abs(piece.matrix).max())
        out = max(out, _contrast_length(union.axes, piece) * max(largest, 2.0**fill / _least_length(piece.matrix)))
    return out


def _least_length(matrix: FloatArray) -> float:
    """The least singular value; of a large matrix from its Gram, which is eight times as fast and near enough."""
    if len(matrix) <= QUICK.orbits:
        return float(np.linalg.svd(matrix, compute_uv=False)[-1])
    return math.sqrt(max(float(np.linalg.eigvalsh(matrix @ matrix.T)[0]), np.finfo(np.float64).tiny))


def _side_scale(union: SmallUnion) -> float:
    """A scale for a group beside the first one; where all pieces are numbers, one that rounds them well at few bits."""
    if not union.numbers:
        return _piece_scale(union, _SIDE_BITS)
    least = _piece_scale(union, 0, fill=0)
    real = np.array([abs(p.matrix[0, 0]) / _contrast_length(union.axes, p) for p in union.pieces])
    trials = least * np.linspace(1.0, 2.0**_NUMBER_BITS, _TRIALS)
    values = trials[:, None] * real
    off = np.abs(np.rint(values) / values - 1).max(axis=1)
    return float(trials[off.argmin()])
