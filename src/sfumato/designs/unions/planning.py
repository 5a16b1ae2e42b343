"""The optimum for unions of Kronecker products whose factors repeat themselves. [ENU20, MMHM18]"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from sfumato.designs.compound import joined_attributes, planned_jointly
from sfumato.designs.dense.dual import relative_gap
from sfumato.designs.design import Design, Problem
from sfumato.designs.factors import quantise
from sfumato.designs.unions.axes import Axis
from sfumato.designs.unions.groups import Group, Measured
from sfumato.designs.unions.reduced import LARGE, QUICK, Piece, SmallUnion, Solver, solve_union
from sfumato.designs.unions.rowwise import solve_rows
from sfumato.designs.unions.strategy import Orbits
from sfumato.errors import PlanError
from sfumato.ground.progress import Progress
from sfumato.operators.base import FloatArray
from sfumato.privacy.unit import Neighbours

__all__ = ["design", "few_rows"]

MAX_CELLS = 4_000_000  # 32 MB a vector over all cells
_BITS = 18  # of the largest number of a piece, where there is room
_FILL_BITS = 6  # of the least singular value of a matrix
_MOST_BITS = 33  # leaves room for half a billion records
_SIDE_BITS = 10  # of the largest number of a piece of other groups than the first
_NUMBER_BITS = 4  # by which the numbers of a group of numbers may exceed the least that tell them from zero
_TRIALS = 2_000  # scales over four octaves, some hundred for each step of the least number


def design(problem: Problem, progress: Progress | None = None) -> Design:
    """The least mean squared error under add-remove, proved. Raises PlanError where that is no small problem.

    Under replace-one the same strategy, with the known total used and its own exact price, and a bound of its own.
    """
    # other planners know products of maps of single attributes, so that large problems are left to them
    limits = LARGE if joined_attributes(problem.workload) else QUICK
    solver = functools.partial(solve_union, limits=limits)
    return planned_jointly(problem, lambda p: _designed(p, solver, progress))


def few_rows(problem: Problem, progress: Progress | None = None) -> Design:
    """The same to some thousandths for unions of too many joint orbits but few rows of queries: tables beside counts.

    Of a record more or less alone: where one is replaced, what it would cost is bounded too loosely.
    """
    if problem.unit.neighbours is not Neighbours.ADD_REMOVE:
        raise PlanError("its price is not known where one record replaces another")
    return planned_jointly(problem, lambda p: _designed(p, solve_rows, progress))


def _designed(problem: Problem, solver: Solver, progress: Progress | None) -> Design:
    if problem.noise == "laplace" or problem.largest:
        raise PlanError("it is for the mean squared error under Gaussian noise")
    if all(i.is_marginal for i in problem.workload.items):
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
    if _scale(found[0], _SIDE_BITS, fill=0) * math.prod(fixed) > 2.0**_MOST_BITS:
        raise PlanError("its integers would leave no room for large counts")
    fine = min(_scale(found[0], _BITS) * math.prod(fixed), 2.0**_MOST_BITS)

    # where the total is known more is possible
    near = math.inf if public else relative_gap(math.prod(u.lower for u in found), math.prod(u.upper for u in found))

    def build(s: float) -> Orbits:
        scales = [s / math.prod(fixed), *fixed]
        return Orbits(tuple(_group(u, scale) for u, scale in zip(found, scales, strict=True)), public, near)

    return Design("factorization", build, fine, _swap_bound(found) if public else math.prod(u.lower for u in found))


def _swap_bound(found: Sequence[SmallUnion]) -> float:
    """What the weights that prove the optimum under add-remove prove where one record replaces another.

    Weights v_u v_w on all pairs of cells have the Laplacian D - v vᵀ = D^(1/2) (I - q qᵀ) D^(1/2), D = diag(v), q the
    root of v, and the sum (1 - |v|²) / 2; taking q away costs a nuclear norm at most |W D^(1/2) q| = |W v|.
    """
    lower, square, mean = (math.prod(each) for each in zip(*((u.lower, u.square, u.mean) for u in found), strict=True))
    return max(lower - mean * (1 + 1e-9), 0.0) * math.sqrt(2 / (1 - square)) * (1 - 1e-9) if square < 1.0 else 0.0


def _group(union: SmallUnion, scale: float) -> Group:
    return Group(union.names, union.axes, tuple(_rounded(union.axes, p, scale) for p in union.pieces))


def _rounded(axes: Sequence[Axis], piece: Piece, scale: float) -> Measured:
    real = piece.matrix * (scale / _length(axes, piece))
    # columns of combinations of rows are none of what is measured
    rounded = np.rint(real).astype(np.int64) if piece.rows else quantise(real, None, 1.0).measured.dense()
    if len(rounded) == 1:
        rounded = np.maximum(rounded, 1) if real[0, 0] > 0 else np.minimum(rounded, -1)
    return Measured(piece.kinds, rounded, piece.beyond, piece.rows)


def _length(axes: Sequence[Axis], piece: Piece) -> float:
    """How much longer the integer contrasts are than isometries."""
    return math.sqrt(math.prod(a.square(k) for a, k in zip(axes, piece.kinds, strict=True)))


def _scale(union: SmallUnion, bits: int, fill: int = _FILL_BITS) -> float:
    """The scale at which the largest number of every piece has `bits`, and its least singular value has `fill`."""
    out = 0.0
    for piece in union.pieces:
        largest = 2.0**bits / float(np.abs(piece.matrix).max())
        out = max(out, _length(union.axes, piece) * max(largest, 2.0**fill / _least_length(piece.matrix)))
    return out


def _least_length(matrix: FloatArray) -> float:
    """The least singular value; of a large matrix from its Gram, which is eight times as fast and near enough."""
    if len(matrix) <= QUICK.orbits:
        return float(np.linalg.svd(matrix, compute_uv=False)[-1])
    return math.sqrt(max(float(np.linalg.eigvalsh(matrix @ matrix.T)[0]), np.finfo(np.float64).tiny))


def _side_scale(union: SmallUnion) -> float:
    """A scale for a group beside the first one; where all pieces are numbers, one that rounds them well at few bits."""
    if not union.numbers:
        return _scale(union, _SIDE_BITS)
    least = _scale(union, 0, fill=0)
    real = np.array([abs(p.matrix[0, 0]) / _length(union.axes, p) for p in union.pieces])
    trials = least * np.linspace(1.0, 2.0**_NUMBER_BITS, _TRIALS)
    values = trials[:, None] * real
    off = np.abs(np.rint(values) / values - 1).max(axis=1)
    return float(trials[off.argmin()])
