"""The verb: which method a problem takes, and what may be asked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from sfumato.errors import InvalidInput
from sfumato.estimate.elliptope.certificate import EPS, NearestCorrelation, Problem
from sfumato.estimate.elliptope.newton import newton
from sfumato.estimate.elliptope.pairs import coordinates, pair_tables
from sfumato.estimate.elliptope.scaling import product_scale
from sfumato.estimate.elliptope.tetrahedra import split
from sfumato.ground.progress import Progress
from sfumato.operators.base import FloatArray, real_array
from sfumato.operators.blas import single_thread

__all__ = ["elliptope"]

_MAX_SIZE = 3000  # 72 MB a matrix, and an eigendecomposition of it at every step: n^3 takes many seconds there


def elliptope(
    matrix: ArrayLike,
    weights: ArrayLike | None = None,
    *,
    local: bool = False,
    tolerance: float = 1e-3,
    progress: Progress | None = None,
) -> NearestCorrelation:
    """The correlation matrix Y nearest to a symmetric (D, D) matrix A in the sum over i < j of weight (Y - A)^2.

    Diagonals are ignored: that of a correlation matrix is 1. weights: (D, D) symmetric and nonnegative, 0 where
    nothing is known (A may be NaN there, and Y is then one completion of several); equal if not given. With `local`
    the table of every two attributes is nonnegative too: 1 + s Y_0i + t Y_0j + s t Y_ij >= 0 for all signs s and t,
    where row 0 holds the means of single attributes.

    The distance from the result to the true projection is proved to be at most `tolerance` times the distance
    moved (or 1e-7 per entry, which is no distance), or `certified` is False. Weights of the form w_i w_j (equal
    ones, or one weight for the row of the means and one for the rest) take some Newton steps on the dual [QS06];
    other weights and `local` an accelerated splitting method. `progress` is called with the iteration and the gap
    proved by it. Raises InvalidInput.
    """
    given, weight = _checked(matrix, weights)
    if isinstance(tolerance, bool) or not isinstance(tolerance, (int, float)) or not 0 < tolerance < 1:
        raise InvalidInput(f"tolerance is a share of the distance moved, between 0 and 1, not {tolerance!r}")
    unit = float(weight[weight > 0].mean())
    weight /= unit
    scale, product = product_scale(weight)
    problem = Problem(given, weight, scale, float(tolerance), progress)
    with single_thread():
        found = _solve(problem, local and len(given) > 2, product)
    return replace(found, gap=found.gap * unit, target=found.target * unit, moved=found.moved * float(np.sqrt(unit)))


def _solve(problem: Problem, local: bool, product: bool) -> NearestCorrelation:
    if _possible(problem.given, local):
        return problem.proof(problem.given, 0)
    start = newton(problem) if product else None
    if start is not None and (not local or _possible(start.matrix, local)):
        # nearest among more matrices, and one of the fewer
        return start
    return split(problem, local, start)


def _possible(matrix: FloatArray, local: bool) -> bool:
    """Whether a matrix is in the body up to rounding."""
    if float(np.linalg.eigvalsh(matrix)[0]) < -len(matrix) * EPS * float(np.linalg.norm(matrix)):
        return False
    return not local or float(pair_tables(coordinates(matrix)).min()) >= -4 * EPS


def _checked(matrix: ArrayLike, weights: ArrayLike | None) -> tuple[FloatArray, FloatArray]:
    given = _square(matrix, "the matrix of parities")
    size = len(given)
    if weights is None:
        weight = np.ones((size, size))
    else:
        weight = _square(weights, "weights")
        if len(weight) != size:
            raise InvalidInput(f"weights are of shape {weight.shape}; the matrix is of shape {given.shape}")
        if not (np.isfinite(weight).all() and weight.min() >= 0):
            raise InvalidInput("weights are finite and not negative: one over the variance of an entry, 0 if unknown")
    np.fill_diagonal(weight, 0.0)
    if not weight.any():
        raise InvalidInput("every weight is 0; give a positive one wherever an entry is known")
    # what has no weight is only a hint where to start
    given = np.where((weight > 0) | (np.abs(given) <= 1), given, 0.0)
    np.fill_diagonal(given, 1.0)
    if not np.isfinite(given).all():
        raise InvalidInput("the matrix has entries that are not finite; give them weight 0 to leave them out")
    if float(np.abs(given).max()) > 1e100:
        raise InvalidInput("the matrix has entries above 1e100; parities are given as shares of the total")
    return given, weight


def _square(given: ArrayLike, what: str) -> FloatArray:
    array = real_array(given, what).astype(np.float64)
    if array.ndim != 2 or array.shape[0] != array.shape[1] or not 2 <= len(array) <= _MAX_SIZE:
        raise InvalidInput(f"{what} must be square, of 2 to {_MAX_SIZE:,} rows, not of shape {array.shape}")
    off = ~np.eye(len(array), dtype=bool)
    if not np.allclose(array[off], array.T[off], rtol=1e-9, atol=0, equal_nan=True):
        raise InvalidInput(f"{what} must be symmetric; give (A + A.T) / 2 of what is not")
    return 0.5 * (array + array.T)
