"""A proved bound for unions whose symmetries leave too many joint orbits for their optimum, but few rows of queries.

All tables of two attributes beside a few counts of sets of cells: cells of an attribute that every count treats alike
may be exchanged, so the best weights v of the cells are constant on joint orbits (see reduced.py), and the root of the
summed errors is at least

    sum over kinds t of ||F_t diag(v)^(1/2)||_*,      F_tᵀF_t = c_t² K_t / (s_o s_o')^(1/2) on joint orbits.

K_t sums Kronecker products, so F_t stacks products of their roots: as many rows as queries leave, however many joint
orbits there are, and a step costs an eigendecomposition of that size. Any v proves a bound; v_o <- v_o (g_o / t)^2
climbs to the best one, g_o = sum_t f_oᵀ (F_t V F_tᵀ)^(-1/2) f_o. Product weights, which tilted residuals prove theirs
by, cannot follow counts: they leave 12 to 28 % on such unions.

Where one record replaces another, weights v_u v_w on pairs of cells make it

    ||W D^(1/2) (I - q qᵀ)||_* (2 / (1 - |v|²))^(1/2),      q = D^(1/2) 1

(see `marginals.tilts.bounds`); q lies in the kind of all orbits, whose columns are then centred.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import PlanError
from sfumato.operators import LinearOperator, Total
from sfumato.operators.base import FloatArray, single_thread
from sfumato.strategies.dense_blocks import rounding_units, spectrum_of_square
from sfumato.strategies.union import Product, factor_number
from sfumato.strategies.union_symmetry import ReducedAxis, reduce_axis

__all__ = ["orbit_bound", "shares_by_kind"]


_MOST_SIDE = 400  # cells of an attribute that is looked through for symmetries
_MOST_ORBITS = 50_000  # joint ones, of which every row has one number
_MOST_ROWS = 1_024  # of one kind: a step decomposes a matrix of that size, a third of a second
_MOST_KINDS = 4_000  # each is a Python value
_MOST_ENTRIES = 2**22  # of all rows that are not zero: every step goes through them several times
_STEPS = 12  # the bound is within a tenth of a per cent by then, the weights are not
_PAIR_STEPS = 15  # of weights of pairs, which swing about the best ones after that
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
    for _ in range(_PAIR_STEPS):
        mass = inside @ a
        degrees = a * (between @ mass)[groups]
        each = [_kind_nuclear_norm(k, degrees[k.at], (inside * a, between) if k.whole else None) for k in kinds]
        pairs = float(mass @ between @ mass - np.diagonal(between)[groups] @ (a**2 / cells)) / 2
        if not pairs > 0.0:
            break
        best = max(best, sum(n.proved for n in each) / math.sqrt(pairs))
        far = _bound_slope(kinds, each, len(a))
        # (f_u - f_v)ᵀ M^(-1/2) (f_u - f_v) and what other kinds have of u and v, summed over the pairs of a group
        across = next(n.across for n, k in zip(each, kinds, strict=True) if k.whole)
        toward = far[:, None] * mass + inside @ (a * far) - 2 * across
        by_group = (inside * a) @ toward
        a = a * np.maximum((toward * between[groups]).sum(axis=1), 0.0)
        between = between * np.maximum(by_group, 0.0) / np.maximum(np.multiply.outer(mass, mass), 1e-300)
        a, between = a / a.sum(), between / between.max()
    return best


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
