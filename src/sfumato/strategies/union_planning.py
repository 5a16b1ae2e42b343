"""The optimum for unions of Kronecker products whose factors repeat themselves. [ENU20, MMHM18]"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato._util.display import Progress
from sfumato.errors import PlanError
from sfumato.operators import LinearOperator, Sparse, Total
from sfumato.operators.base import FloatArray, single_thread
from sfumato.privacy.unit import Neighbours
from sfumato.strategies.compound import joined_attributes, planned_jointly
from sfumato.strategies.dense_blocks import Spectrum, rounding_units, spectrum_of_square
from sfumato.strategies.dense_dual import relative_gap
from sfumato.strategies.design import Design, Problem
from sfumato.strategies.factors import quantise
from sfumato.strategies.merged_rows import independent_row_basis
from sfumato.strategies.orbit_bound import shares_by_kind
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

__all__ = ["design_union", "few_rows", "solve_rows"]


_MOST_SIDE = 400  # cells of an attribute that is looked through for symmetries
_MOST_CELLS = 100_000  # joint ones: the price is the longest of their columns
_MOST_ORBITS = 12_000  # joint ones: a matrix of all rows at each of them is measured
_MOST_ROWS = 1_024  # of one kind: a step decomposes a matrix of that size
_MOST_ENTRIES = 2**23  # of what is measured, over joint orbits: 64 MB
_MOST_KINDS = 400  # each is decomposed by itself in every step
_TOLERANCE = 2e-3  # gap at which the search ends
_WORK = 1e11  # operations of all steps, about: ten seconds
_MOST_STEPS = 300  # a tenth of these is the rule; what ends there says its gap
_POWER, _LEAST_POWER = 4.0, 2.0  # of g / t: the square always ascends
_LEAST = 1e-9  # weight of all orbits that hardly count: they may count again
_MARGIN = 1e-10  # relative, of an upper bound that is a sum of positive numbers


@dataclass(frozen=True, slots=True)
class _RowKind:
    """Rows Q (r, l), sparse, at the joint orbits `at`, and L (r, r) with L Lᵀ the Gram of what is asked over them."""

    kinds: tuple[int, ...]
    rows: Any
    at: NDArray[np.intp]
    root: FloatArray

    def moment(self, v: FloatArray) -> FloatArray:
        held = np.asarray((self.rows.multiply(v[self.at]) @ self.rows.T).todense(), dtype=np.float64)
        return self.root.T @ held @ self.root

    def lengths(self, spectrum: Spectrum) -> FloatArray:
        """q_oᵀ L M^(-1/2) Lᵀ q_o of every orbit."""
        turned = self.root @ spectrum.vectors
        across = self.rows.T.tocsr()
        form = (turned / spectrum.roots) @ turned.T
        return np.asarray(across.multiply(across @ form).sum(axis=1)).reshape(-1)


def solve_rows(
    products: Sequence[Product], sizes: Mapping[str, int], *, progress: Progress | None = None
) -> tuple[SmallUnion, ...]:
    """Near the optimum under add-remove, over all attributes together; `lower` and `upper` say how near.

    Raises PlanError where there are too many orbits, rows or kinds, or rows are no sums over classes of orbits.
    """
    names = tuple(a for a in sizes if any(a in factors for _, factors in products))
    if not names or max(sizes[a] for a in names) > _MOST_SIDE or math.prod(sizes[a] for a in names) > _MOST_CELLS:
        raise PlanError("too many cells to look for symmetries in")
    known: dict[str, list[LinearOperator]] = {a: [] for a in names}
    numbers = [
        tuple(factor_number(known[a], factors.get(a) or Total(sizes[a])) for a in names) for _, factors in products
    ]
    axes = [reduce_axis(known[a]) for a in names]
    if math.prod(len(r.axis.sizes) for r in axes) > _MOST_ORBITS:
        raise PlanError("symmetries leave too many joint orbits")
    with single_thread():
        kinds = _collect_row_kinds(axes, numbers, [w for w, _ in products])
        return (_search_row_solution(names, axes, kinds, progress),)


def _collect_row_kinds(
    axes: Sequence[ReducedAxis], numbers: Sequence[tuple[int, ...]], weights: Sequence[float]
) -> list[_RowKind]:
    from scipy.sparse import csr_matrix, kron, vstack  # noqa: PLC0415  (slow to import)

    given = shares_by_kind(axes, numbers, weights)
    if len(given) > _MOST_KINDS:
        raise PlanError("symmetries leave too many kinds")
    asked = {(i, k) for parts in given.values() for wide in parts for i, k in enumerate(wide) if k >= 0}
    known = {(i, k): classes_of_orbits(axes[i].means[k]) for i, k in sorted(asked)}
    orbits = [len(r.axis.sizes) for r in axes]
    entries = 0
    for kind, parts in given.items():  # told before any is built
        count = sum(math.prod(len(known[i, k][1]) for i, k in enumerate(wide) if k >= 0) for wide in parts)
        entries += count * math.prod(n for n, t in zip(orbits, kind, strict=True) if t < 0)
        if count > _MOST_ROWS or entries > _MOST_ENTRIES:
            raise PlanError("symmetries leave too many rows")
    every, out = np.arange(math.prod(orbits)).reshape(orbits), list[_RowKind]()
    for kind, parts in given.items():
        place = [slice(None) if t < 0 else r.axis.contrasts[t].orbit for r, t in zip(axes, kind, strict=True)]
        at = np.ascontiguousarray(every[tuple(place)]).reshape(-1)
        rows, inner = list[Any](), list[FloatArray]()
        for wide, scale in parts.items():
            own: Any = csr_matrix(np.ones((1, 1), dtype=np.int64))
            moment: FloatArray = np.array([[scale]])
            for i, k in enumerate(wide):
                if k >= 0:
                    classes, means = known[i, k]
                    own, moment = kron(own, classes, format="csr"), np.asarray(np.kron(moment, means), dtype=np.float64)
            rows.append(own)
            inner.append(moment)
        stacked = vstack(rows).tocsr()
        kept, back = independent_row_basis(np.asarray(stacked.todense(), dtype=np.int64))
        gram, start = np.zeros((len(kept),) * 2), 0
        for moment in inner:
            part = back[start : start + len(moment)]
            gram += part.T @ moment @ part
            start += len(moment)
        values, vectors = np.linalg.eigh(gram)
        if not values[0] > len(values) * np.finfo(np.float64).eps * values[-1]:
            raise PlanError("rows of which nothing is asked")
        out.append(_RowKind(kind, stacked[kept], at, vectors * np.sqrt(values)))
    return out


def _search_row_solution(
    names: tuple[str, ...], axes: Sequence[ReducedAxis], kinds: Sequence[_RowKind], progress: Progress | None
) -> SmallUnion:
    each = np.asarray(reduce(np.multiply.outer, [r.axis.sizes for r in axes]), dtype=np.float64).reshape(-1)
    work = sum(len(k.root) ** 2 * (len(k.root) + k.rows.nnz / 8) for k in kinds)
    v, power, lower, reached = each / each.sum(), _POWER, 0.0, 0.0
    before, best, proof = v, (math.inf, list[FloatArray]()), v
    for step in range(int(min(_MOST_STEPS, max(_WORK / work, 1.0)))):
        spectra = [
            spectrum_of_square(k.moment(v), rounding_units(len(v)) + 2 * rounding_units(len(k.root))) for k in kinds
        ]
        total = float(sum(s.roots.sum() for s in spectra))
        if total < reached:
            v, power, reached = before, _LEAST_POWER, 0.0
            continue
        reached, before, proved = total, v, sum(s.proved for s in spectra)
        if proved > lower:
            lower, proof = proved, v
        lengths = np.zeros(len(v))
        for kind, spectrum in zip(kinds, spectra, strict=True):
            lengths[kind.at] += kind.lengths(spectrum)
        top = float(lengths.max())
        upper = math.sqrt(total * top) * (1 + _MARGIN)
        if upper < best[0]:
            turned = zip(kinds, spectra, strict=True)
            best = upper, [(k.root @ s.vectors / np.sqrt(s.roots * top)).T for k, s in turned]
        if progress is not None:
            progress(step + 1, relative_gap(lower, best[0]))
        if best[0] <= lower * (1 + _TOLERANCE):
            break
        v = np.maximum(v * (lengths / total) ** power, _LEAST / len(v))
        v /= v.sum()
    whole = next((k for k in kinds if max(k.kinds) < 0), None)
    mean = 0.0 if whole is None else float(np.linalg.norm(whole.root.T @ (whole.rows @ proof)))
    pieces = tuple(_union_row_piece(axes, k, matrix) for k, matrix in zip(kinds, best[1], strict=True))
    return SmallUnion(names, tuple(r.axis for r in axes), pieces, lower, best[0], float((proof**2 / each).sum()), mean)


def _union_row_piece(axes: Sequence[ReducedAxis], kind: _RowKind, matrix: FloatArray) -> UnionPiece:
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
    return planned_jointly(problem, lambda p: _design_with_solver(p, solver, progress))


def few_rows(problem: Problem, progress: Progress | None = None) -> Design:
    """The same to some thousandths for unions of too many joint orbits but few rows of queries: tables beside counts.

    Of a record more or less alone: where one is replaced, what it would cost is bounded too loosely.
    """
    if problem.unit.neighbours is not Neighbours.ADD_REMOVE:
        raise PlanError("its price is not known where one record replaces another")
    return planned_jointly(problem, lambda p: _design_with_solver(p, solve_rows, progress))


def _design_with_solver(problem: Problem, solver: Solver, progress: Progress | None) -> Design:
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
    fine = min(_piece_scale(found[0], _BITS) * math.prod(fixed), 2.0**_MOST_BITS)

    # where the total is known more is possible
    near = math.inf if public else relative_gap(math.prod(u.lower for u in found), math.prod(u.upper for u in found))

    def build(s: float) -> Orbits:
        scales = [s / math.prod(fixed), *fixed]
        return Orbits(tuple(_integer_group(u, scale) for u, scale in zip(found, scales, strict=True)), public, near)

    return Design("factorization", build, fine, _swap_bound(found) if public else math.prod(u.lower for u in found))


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
