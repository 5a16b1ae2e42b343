"""The dense strategy of least largest error: Newton steps in the logarithms of row and column weights.

The least ||R||_{2->inf} ||A||_{1->2} over R A = F is the norm gamma_2 of F [LMSS07], and

    gamma_2(F) = max  t(l, v),  t(l, v) = || diag(l)^(1/2) F diag(v)^(1/2) ||_*,

over weights l on the queries and v on the cells, each nonnegative of sum 1. With U diag(s) V^T the singular value
decomposition of the scaled matrix, row i of diag(l)^(-1/2) U diag(s)^(1/2) has the square p_i / l_i and column j
of diag(s)^(1/2) V^T diag(v)^(-1/2) has q_j / v_j, where

    p = diag(U diag(s) U^T),  q = diag(V diag(s) V^T)

are twice the gradient of t in (log l, log v). Both sum to t, and the weights are optimal when p = t l and q = t v
wherever these are positive. t is concave, and its Hessian acts on directions by a few matrix products.

The dense strategy of least largest error where one record is replaced by another, certified.

Where a record is replaced, what is sought is gamma_2 of the differences F D of columns of the queries F:

    max || diag(l)^(1/2) F D diag(w)^(1/2) ||_*   over weights l on the queries and w on the pairs of cells.

With G(l) = F^T diag(l) F, L(w) the Laplacian of the pairs and H^T H the centred G(l), its singular values are the roots
of the eigenvalues of H L(w) H^T = U diag(s^2) U^T. The long singular vectors are diag(l)^(1/2) F K and
diag(w)^(1/2) D^T B with K = L(w) H^T U diag(s)^(-2) and B = H^T U diag(s)^(-1), of m rows each.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from sfumato._util.display import Progress
from sfumato.errors import WorkloadError
from sfumato.operators.base import FloatArray, real_array, single_thread
from sfumato.strategies.dense_blocks import (
    CellChanges,
    Changes,
    PairChanges,
    Queries,
    rounding_units,
    spectrum_of_square,
)
from sfumato.strategies.dense_dual import BoundedOptimum, conjugate_gradients, step_log_weights
from sfumato.strategies.dense_optimal import DenseProblem

_EPS = float(np.finfo(np.float64).eps)
_SINGLE = 1e-5  # distance from the maximum down to which single precision finds the way
_REST = 1e-20  # distance below which rounding is all that is left
_PATIENCE = 20  # iterations without progress after which the search ends
_CONJUGATE = 100  # steps towards one Newton direction
_EVEN = 0.1  # part of the weights that is even at first
_NEAR = 0.05  # energy, as a part of that, from which it shrinks
_IDLE = 1e-3  # share of a row, relative to the mean share, below which it bends nothing


@dataclass(frozen=True, slots=True)
class LargestErrorOptimum(BoundedOptimum):
    """A strategy A and a proof of how close its largest error is to the least.

    The largest weighted standard error of the queries F x answered by least squares from A x + z, z of standard
    deviation ||A||_{1->2}, lies between `lower_bound` and `upper_bound` for the best strategy, and is at most
    `upper_bound` for this one.

    strategy     A, (l, m): column norms at most 1; a zero column of F has a zero column here
    rows         weights l on the queries, (k,), of sum 1, and
    cells        weights v on the cells, (m,), of sum 1: ||diag(l w)^(1/2) F diag(v)^(1/2)||_* >= lower_bound,
                 w the weights of the queries
    lower_bound  proved for every strategy, rounded down by a bound on the floating point error
    upper_bound  attained by `strategy` with R = F A^+, rounded up likewise
    iterations   singular value decompositions (of the connected component that took most)
    """

    strategy: FloatArray
    rows: FloatArray
    cells: FloatArray
    lower_bound: float
    upper_bound: float
    iterations: int


def optimize_largest(
    matrix: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    tolerance: float = 1e-5,
    max_iterations: int = 60,
    progress: Progress | None = None,
) -> LargestErrorOptimum:
    """The strategy of least largest variance for the queries `matrix` (k, m), to a relative gap of `tolerance`.

    `weights` (k,), positive, multiply the variances of the queries. Unconnected cells are separate problems, of
    which the worst counts and all are solved. A search that ends above `tolerance` is no error: read `gap`. One
    iteration takes time k m min(k, m), on one thread.

    Raises WorkloadError for arrays that are not finite numbers of these shapes.
    """
    if not 0.0 <= tolerance < math.inf:
        raise WorkloadError(f"tolerance is {tolerance!r}; allowed are finite numbers >= 0, such as 1e-5")
    if max_iterations < 1:
        raise WorkloadError(f"max_iterations is {max_iterations}; allowed are integers >= 1")
    scaled = _read_weighted_matrix(matrix, weights)
    k, m = scaled.shape
    scale = float(np.ldexp(1.0, int(np.frexp(np.abs(scaled).max(initial=0.0))[1])))
    scaled = scaled / scale
    asked = np.flatnonzero(scaled.any(axis=0))
    if not len(asked):
        return LargestErrorOptimum(np.zeros((0, m)), np.full(k, 1 / k), np.full(m, 1 / m), 0.0, 0.0, 0)
    found: list[LargestErrorOptimum] = []
    with single_thread():
        for part in DenseProblem(None, scaled[:, asked]).components():
            columns = asked[part]
            rows = np.flatnonzero(scaled[:, columns].any(axis=1))
            one = _optimize_largest_component(scaled[np.ix_(rows, columns)], tolerance, max_iterations, progress)
            strategy, on_rows, on_cells = np.zeros((len(one.strategy), m)), np.zeros(k), np.zeros(m)
            strategy[:, columns], on_rows[rows], on_cells[columns] = one.strategy, one.rows, one.cells
            lower, upper = one.lower_bound * scale, one.upper_bound * scale
            found.append(LargestErrorOptimum(strategy, on_rows, on_cells, lower, upper, one.iterations))
    worst = max(found, key=lambda one: one.lower_bound)
    return LargestErrorOptimum(
        np.concatenate([one.strategy for one in found]),
        worst.rows,
        worst.cells,
        worst.lower_bound,
        max(one.upper_bound for one in found),
        max(one.iterations for one in found),
    )


def _read_weighted_matrix(matrix: ArrayLike, weights: ArrayLike | None) -> FloatArray:
    """F with every row times the root of its weight."""
    out = np.asarray(real_array(matrix, "matrix"), dtype=np.float64)
    if out.ndim != 2 or 0 in out.shape or not np.isfinite(out).all():
        raise WorkloadError(f"matrix has shape {out.shape}; it must be (k, m) of finite numbers, k and m at least 1")
    if weights is None:
        return out
    given = np.asarray(real_array(weights, "weights"), dtype=np.float64)
    if given.shape != out.shape[:1] or not (np.isfinite(given) & (given > 0.0)).all():
        raise WorkloadError(f"weights takes {len(out)} positive numbers, one per query, not shape {given.shape}")
    return out * np.sqrt(given)[:, None]


@dataclass(frozen=True, slots=True)
class SaddlePoint(ABC):
    """The scaled matrix U diag(s) V^T at weights l and v, and the shares p / t and q / t; `even` is as for `search`."""

    even: float
    rows: FloatArray
    cells: FloatArray
    roots: FloatArray
    right: FloatArray
    p: FloatArray
    q: FloatArray

    @abstractmethod
    def bend(self, kind: type[np.floating]) -> Callable[[FloatArray], FloatArray]:
        """How the shares bend along a step of (log l, log v), beside their growth, in products of the type `kind`."""

    @property
    def total(self) -> float:
        return float(self.roots.sum())

    @property
    def crude(self) -> float:
        """The largest error at one scale for all rows and one for all columns, relative to t."""
        return math.sqrt(float((self.p / self.rows).max()) * float((self.q / self.cells).max()))

    @property
    def weights(self) -> FloatArray:
        return np.concatenate([self.rows, self.cells])

    @property
    def merit(self) -> float:
        """What is maximised: the logarithm of t, with a part `even` of the mean logarithms of the weights."""
        logarithms = float(np.log(self.rows).mean() + np.log(self.cells).mean())
        return (1 - self.even) * math.log(self.total) + self.even * logarithms / 2

    @property
    def shares(self) -> FloatArray:
        """What the weights are at the maximum: p / t and q / t, each with an even part."""
        k, m = len(self.p), len(self.q)
        return np.concatenate([(1 - self.even) * self.p + self.even / k, (1 - self.even) * self.q + self.even / m])

    @property
    def excess(self) -> FloatArray:
        return np.maximum(self.weights - (1 - self.even) * np.concatenate([self.p, self.q]), 0.0)

    @property
    def metric(self) -> FloatArray:
        """A diagonal as large as the Hessian's."""
        return self.shares / 2 + self.excess

    @property
    def energy(self) -> float:
        """About the relative distance of t from its maximum."""
        return 0.25 * float(np.sum((self.shares - self.weights) ** 2 / self.metric))

    def kernel(self) -> FloatArray:
        """s_i s_j / (s_i + s_j), of s / t."""
        s = self.roots / self.total
        return s[:, None] * s / (s[:, None] + s)


@dataclass(frozen=True, slots=True)
class _DensePoint(SaddlePoint):
    """A point of a matrix that is written out."""

    left: FloatArray

    def bend(self, kind: type[np.floating]) -> Callable[[FloatArray], FloatArray]:
        k, kernel = len(self.rows), self.kernel().astype(kind)
        bends = self.p > _IDLE / k
        left, right = self.left[bends].astype(kind, copy=False), self.right.astype(kind, copy=False)
        idle = np.where(bends, 0.0, self.p / 2)

        def image(x: FloatArray) -> FloatArray:
            inner = (left.T * x[:k][bends].astype(kind)) @ left
            inner -= (right.T * x[k:].astype(kind)) @ right
            inner *= kernel
            out = np.empty_like(x)
            out[:k] = idle * x[:k]
            out[:k][bends] += np.einsum("ij,ij->i", left @ inner, left).astype(np.float64)
            out[k:] = -np.einsum("ij,ij->i", right @ inner, right).astype(np.float64)
            return out

        return image


Evaluate = Callable[[float, FloatArray, FloatArray], SaddlePoint]


def floor_weights(rows: FloatArray, cells: FloatArray, even: float) -> tuple[FloatArray, FloatArray]:
    """Weights of sum 1, none much below the least that the even part leaves."""
    rows, cells = (np.maximum(w / w.sum(), even / 10 / len(w)) for w in (rows, cells))
    return rows / rows.sum(), cells / cells.sum()


def _evaluate_largest_error(
    matrix: FloatArray, rank: int, even: float, rows: FloatArray, cells: FloatArray
) -> SaddlePoint:
    from scipy.linalg import svd  # noqa: PLC0415  (slow to import)

    rows, cells = floor_weights(rows, cells, even)
    u, s, vt = svd(np.sqrt(rows)[:, None] * matrix * np.sqrt(cells), full_matrices=False, check_finite=False)
    u, s, right = u[:, :rank], np.maximum(s[:rank], _EPS * s[0]), np.ascontiguousarray(vt[:rank].T)
    p, q = (np.einsum("ij,ij->i", side * (s / s.sum()), side) for side in (u, right))
    return _DensePoint(even, rows, cells, s, right, p, q, np.ascontiguousarray(u))


def _largest_newton_direction(point: SaddlePoint, target: float, slack: float) -> FloatArray:
    """The Newton direction in (log l, log v) by conjugate gradients.

    t grows in proportion to l and v together, so along that direction its Hessian says nothing; a square of the
    sum is added there. Products are in single precision until late: an error of 1e-6 in the direction is repaired by
    the next step.
    """
    kind = np.float32 if point.energy > _SINGLE else np.float64
    flat = 10 * float(np.finfo(kind).eps)
    bend, diagonal, metric, weights = point.bend(kind), point.excess, point.metric, point.weights

    def hessian(x: FloatArray) -> FloatArray:
        return (1 - point.even) * bend(x) + diagonal * x + weights * (weights @ x)

    return conjugate_gradients(hessian, point.shares - weights, metric, weights, target, slack, _CONJUGATE, flat)


def minimize_duality_gap(
    evaluate: Evaluate, rows: FloatArray, cells: FloatArray, tolerance: float, most: int, progress: Progress | None
) -> tuple[SaddlePoint, int]:
    """The point of least gap that Newton steps from these weights find.

    With an even part e the maximum has l_i = (1 - e) p_i / t + e / k, so that p_i / l_i <= t / (1 - e) for every i,
    also where l_i would vanish and p_i / l_i without it is anything: the gap is e, and the Hessian is not singular.
    It shrinks on the way, since weights that vanish too early are long in coming back.
    Where a step does not ascend, l and then v take the step l <- p^2 / l of their own, which always does: with the
    polar factor at (l, v) fixed, t is bounded below by a sum over sqrt(l_i) that is largest there.
    """
    k = len(rows)
    even, least = _EVEN, max(0.4 * tolerance, 1e-30)
    point = evaluate(even, rows, cells)
    best, iterations, length, idle = point, 1, 1.0, 0
    while True:
        energy, crude = point.energy, point.crude
        idle = 0 if crude - 1 < 0.9 * (best.crude - 1) else idle + 1
        best = point if crude < best.crude else best
        if progress is not None:
            progress(iterations, best.crude - 1)
        if crude <= 1 + 0.9 * tolerance or idle > _PATIENCE or iterations >= most or energy < _REST:
            return best, iterations
        if energy <= _NEAR * even > _NEAR * least:
            even, idle = max(even / 10, least), 0
            point = replace(point, even=even)
            energy = point.energy
        target = max(min(0.0025, 10 * energy) * energy, tolerance**2 / 1000)
        step = length * _largest_newton_direction(point, target, max(tolerance / 2, 0.03 * (crude - 1)))
        grown = step_log_weights(point.weights, step)
        moved, iterations, length = evaluate(even, grown[:k], grown[k:]), iterations + 1, 2 * length
        if moved.merit < point.merit - tolerance / 1000 and iterations < most:
            moved = evaluate(even, point.shares[:k] ** 2 / point.rows, point.cells)
            moved = evaluate(even, moved.rows, moved.shares[k:] ** 2 / moved.cells)
            iterations, length = iterations + 2, length / 8
        point, length = moved, min(length, 1.0)


def _optimize_largest_component(
    matrix: FloatArray, tolerance: float, most: int, progress: Progress | None
) -> LargestErrorOptimum:
    """The optimum where all cells are connected and no row or column is zero."""
    k, m = matrix.shape
    norms = np.linalg.norm(matrix, axis=0)
    rank = int(np.linalg.matrix_rank(matrix / norms))
    evaluate = functools.partial(_evaluate_largest_error, matrix, rank)
    point, iterations = minimize_duality_gap(evaluate, np.ones(k), norms**2, tolerance, most, progress)
    s, width = point.roots, np.sqrt(point.cells)[:, None]
    strategy = (point.right / width * np.sqrt(s)).T
    back = matrix @ (point.right * width / np.sqrt(s))
    # what rounding left of R A = F goes through a right inverse of A, of norm at most s^(-1/2)
    unit = 16 * math.sqrt(k + m) * _EPS
    left = np.linalg.norm(matrix - back @ strategy, axis=1) + unit * np.linalg.norm(matrix, axis=1)
    upper = float((np.linalg.norm(back, axis=1) + left / math.sqrt(float(s[-1]))).max())
    # the longest column is taken out of the strategy and put into R
    size = math.sqrt(float(np.einsum("ij,ij->j", strategy, strategy).max()))
    strategy /= size * (1 + 4 * _EPS)
    upper *= size * (1 + unit)
    lower = max(point.total * (1 - (k + m) * _EPS) - math.sqrt(rank) * unit * float(np.linalg.norm(s)), 0.0)
    return LargestErrorOptimum(strategy, point.rows, point.cells, lower, upper, iterations)


_CLEAR = 1e-8  # least eigenvalue of the correlations of the cells below which digits would be lost


@dataclass(frozen=True, slots=True)
class _ImplicitPoint(SaddlePoint):
    """A point of queries that are not written out, over any changes of a record: `cells` are the weights of these.

    With H any matrix with HᵀH the Gram of the weighted queries and L the weighted changes, H L Hᵀ = U diag(s^2) Uᵀ;
    `right` is Hᵀ U diag(1 / s), and `left` L Hᵀ U diag(1 / s^2). `proved` is at most the true t.
    """

    queries: Queries
    changes: Changes
    left: FloatArray
    proved: float

    def bend(self, kind: type[np.floating]) -> Callable[[FloatArray], FloatArray]:
        k, kernel = len(self.rows), self.kernel().astype(kind)
        left, right = self.left.astype(kind, copy=False), self.right.astype(kind, copy=False)

        def image(x: FloatArray) -> FloatArray:
            inner = left.T @ self.queries.gram(self.rows * x[:k]).astype(kind) @ left
            inner -= self.changes.gather(self.cells * x[k:], right)
            inner *= kernel
            rows = self.queries.forms((left @ inner @ left.T).astype(np.float64))
            return np.concatenate([self.rows * rows, -self.cells * self.changes.forms(right, inner)])

        return image


def _evaluate_implicit(
    queries: Queries, changes: Changes, basis: FloatArray, even: float, rows: FloatArray, weights: FloatArray
) -> _ImplicitPoint:
    rows, weights = floor_weights(rows, weights, even)
    inside = basis.T @ queries.gram(rows) @ basis
    values, columns = np.linalg.eigh(inside)
    values = np.maximum(values, len(values) * _EPS * float(values[-1]))
    factor = (np.sqrt(values) * columns).T @ basis.T
    image, degree = changes.weigh(weights, factor)
    inner, size = image @ factor.T, float(np.linalg.norm(factor)) ** 2
    found = spectrum_of_square(
        inner, 8 * rounding_units(len(basis)) * degree * size / float(np.trace(inner)) + rounding_units(len(rows))
    )
    s = found.roots
    left, right = image.T @ (found.vectors / s**2), factor.T @ (found.vectors / s)
    p = rows * queries.forms((left * s) @ left.T)
    q = weights * np.maximum(changes.lengths((right * s) @ right.T), 0.0)
    total = float(s.sum())
    return _ImplicitPoint(even, rows, weights, s, right, p / total, q / total, queries, changes, left, found.proved)


def _optimize_implicit(
    queries: Queries,
    changes: Changes,
    basis: FloatArray,
    start: FloatArray,
    tolerance: float,
    most: int,
    progress: Progress | None,
    *,
    centred: bool,
) -> LargestErrorOptimum:
    """The optimum of queries over changes of a record; `basis` (m, r) is orthonormal and spans what is asked."""
    evaluate = functools.partial(_evaluate_implicit, queries, changes, basis)
    found, iterations = minimize_duality_gap(evaluate, np.ones(queries.shape[0]), start, tolerance, most, progress)
    assert isinstance(found, _ImplicitPoint)
    strategy = (found.right * np.sqrt(found.roots)).T
    if centred:
        strategy -= strategy.mean(axis=1, keepdims=True)
    strategy /= math.sqrt(float(changes.lengths(strategy.T @ strategy).max())) * (1 + 4 * _EPS)
    # from the strategy alone: however inexact the roots are, this is what it attains
    inverse = np.linalg.pinv(strategy)
    attained = math.sqrt(float(queries.forms(inverse @ inverse.T).max()))
    singular = np.linalg.svd(strategy, compute_uv=False)
    doubt = rounding_units(len(basis)) * _EPS * float(singular[0] / singular[-1])
    return LargestErrorOptimum(strategy, found.rows, found.cells, found.proved, attained * (1 + doubt), iterations)


def optimize_largest_rows(
    queries: Queries, *, tolerance: float = 1e-5, max_iterations: int = 60, progress: Progress | None = None
) -> LargestErrorOptimum | None:
    """The strategy of least largest variance, as `optimize_largest`; None where cells are alike, unasked or apart.

    One iteration takes some tens of products of (m, m) matrices and of passes over the queries.
    """
    k, m = queries.shape
    gram = queries.gram(np.full(k, 1 / k))
    norms = np.sqrt(np.maximum(np.diagonal(gram), 0.0))
    if not norms.all() or len(DenseProblem(gram, None).components()) > 1:
        return None
    with single_thread():
        if float(np.linalg.eigvalsh(gram / norms / norms[:, None])[0]) < _CLEAR:
            return None
        return _optimize_implicit(
            queries, CellChanges(), np.eye(m), norms**2, tolerance, max_iterations, progress, centred=False
        )


def swap_largest(
    queries: ArrayLike | Queries,
    *,
    tolerance: float = 8e-5,
    max_iterations: int = 100,
    progress: Progress | None = None,
) -> LargestErrorOptimum:
    """The strategy M of least largest standard error of the queries (k, m) at noise diam(M), as in `swap_optimum`.

    The columns of the strategy sum to zero and lie at most 1 apart; `cells` are the weights on the pairs of cells in
    the order of np.triu_indices(m, 1). A search that ends above `tolerance` is no error: read `gap`. One iteration
    takes some tens of products of (m, m) matrices. Raises WorkloadError for arrays that are not finite matrices.
    """
    if not isinstance(queries, Queries):
        matrix = _read_weighted_matrix(queries, None)
        queries = Queries.of(matrix - matrix.mean(axis=1, keepdims=True))
    k, m = queries.shape
    pairs, alike = PairChanges.of(m), np.full(k, 1 / k)
    with single_thread():
        gram = queries.gram(alike)
        means = gram.mean(axis=0)
        basis = _span_basis(gram - means - means[:, None] + means.mean())
        if not basis.shape[1]:
            even = np.full(len(pairs.first), 1 / max(len(pairs.first), 1))
            return LargestErrorOptimum(np.zeros((0, m)), alike, even, 0.0, 0.0, 0)
        start = np.maximum(pairs.lengths(basis @ basis.T), 0.0)
        return _optimize_implicit(queries, pairs, basis, start, tolerance, max_iterations, progress, centred=True)


def _span_basis(gram: FloatArray) -> FloatArray:
    """(m, r) orthonormal: what the centred queries span, which no weights on them change."""
    values, columns = np.linalg.eigh(gram)
    largest = max(float(values[-1]), float(np.finfo(np.float64).tiny))
    return columns[:, values > 64 * len(gram) * _EPS * largest]
