"""Strategies for pure epsilon: little noise at unit L1 sensitivity, by a search over weighted sums of cells.

The strategy is A = [I; T] diag(1 / s), T (p, n) >= 0 and s = 1 + Tᵀ1: every cell by itself and p weighted sums, with
columns whose L1 norms are all 1 [MMHM18]. Its error tr(G (AᵀA)^-1) for a workload of Gram G is, with E = s sᵀ o G,

    f(T) = tr(E) - tr((I + T Tᵀ)^-1 T E Tᵀ),

and f and its gradient cost one product of T with G. The problem is not convex. The search starts from a tree: the
strategy of a domain sixteen times coarser, found likewise, and on small domains also blocks of cells.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from sfumato.operators import LinearOperator, Sparse
from sfumato.operators.base import FloatArray, single_thread
from sfumato.strategies.dense_blocks import IntArray
from sfumato.strategies.dense_optimal import find_distinct_columns, read_problem

__all__ = ["PureStrategy", "optimize_pure", "pure_error_and_gradient", "rotate_to_least_l1"]


_BRANCHING = 16  # cells of a block
# (cells up to which another start is cheap, sizes of its blocks)
_STARTS = ((400, (16, 64)), (64, (8,)), (130, (12,)), (130, (25,)))
_ITERATIONS, _COARSE_ITERATIONS = 500, 300  # of a search without a certificate: its best is priced as it is
_WORK = 250_000_000  # cells squared times steps: large domains gain little after the first hundred
_WEIGHTS = (0.5, 1.0, 2.0, 4.0)  # of sums beside single cells, to begin with
_NEGLIGIBLE, _LARGEST = 1e-9, 1e3  # weights of sums beside single cells; above, digits would be lost
_KEPT = 128  # cells up to which what a search found is remembered: at most 10 MB of the last 32
_TURNED = 512  # rows above which no rotation of a strategy comes near single cells and sums
_ALIKE, _TIED = 1e-8, 1e-7  # eigenvalues that are one but for rounding; places of cells that are


@dataclass(frozen=True, slots=True)
class PureStrategy:
    """A strategy C Q with columns of L1 norm 1, for independent Laplace noise.

    coefficients  C, (l, c), nonnegative, of full column rank; one row of zeros where nothing is asked
    basis         Q, (c, n), 0/1: the classes of cells that every query treats alike; None where it is the identity.
                  A cell that no query asks about is in no class, and has a zero column
    value         ||F (C Q)^+||_F, the root of the summed variance of the answers at unit noise variance
    iterations    steps of all searches together
    """

    coefficients: FloatArray
    basis: LinearOperator | None
    value: float
    iterations: int


def optimize_pure(gram: ArrayLike, *, ordered: bool = False, tolerance: float = 1e-7) -> PureStrategy:
    """A strategy of small ||F A^+||_F at max column L1 norm 1, for the workload F of Gram F^T F = `gram`, (n, n).

    A local optimum from fixed starts: no randomness and no certificate. (||A||_{1->1} >= ||A||_{1->2}, so the
    factorization norm of F bounds it from below.) `ordered` says that neighbouring cells are alike, as for prefixes
    and ranges; without it cells are put in the order of the second eigenvector of their correlations. The search
    ends where a step gains less than `tolerance`, relatively.

    Raises WorkloadError for a gram that is not a finite, symmetric, positive semidefinite matrix.
    """
    columns = find_distinct_columns(read_problem(gram, None)[0])
    n = len(columns.kind)
    # opposite columns ask for different sums, so they stay apart
    keys = np.where(columns.kind < 0, -1, 2 * columns.kind + (columns.sign < 0))
    found, first = np.unique(keys, return_index=True)
    first = np.sort(first[found >= 0])
    if not len(first):
        return PureStrategy(np.zeros((1, n)), None, 0.0, 0)
    whole = np.asarray(gram, dtype=np.float64)
    largest = float(np.diagonal(whole).max())
    with single_thread():
        reduced = whole[np.ix_(first, first)] / largest
        order = np.arange(len(first)) if ordered else _spectral_order(reduced)
        ready = reduced[np.ix_(order, order)]
        found = _best_pure_sums(ready, tolerance) if len(ready) > _KEPT else _known(ready.tobytes(), tolerance)
        sums, iterations = found[0], found[2]
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        sums = sums[(sums > _NEGLIGIBLE).any(axis=1)][:, back]
        value, _ = pure_error_and_gradient(reduced, sums) if len(sums) else (float(np.trace(reduced)), sums)
    coefficients = np.concatenate([np.eye(len(first)), sums]) / (1 + sums.sum(axis=0))
    basis = None
    if len(first) < n:
        basis = Sparse.from_cells([np.flatnonzero(keys == keys[cell]) for cell in first], n)
    return PureStrategy(coefficients, basis, float(np.sqrt(max(value, 0.0) * largest)), iterations)


def rotate_to_least_l1(coefficients: FloatArray, basis: LinearOperator | None) -> tuple[FloatArray, float]:
    """(O C, the largest L1 norm of a column of O C Q) for C = `coefficients`, (l, c), Q = `basis` and a rotation O.

    With equal independent noise every O C Q has the error of C Q, but their columns differ in L1 norm. The optimum for
    columns of L2 norm 1 is found up to a rotation that nothing but rounding decides; so from the one rotation that
    makes C symmetric and positive (nearest to a fixed map where it is not square) a fixed list is tried. More than 512
    rows are left as they are, and their norm is said to be infinite.
    """
    from scipy.fft import dct, dst  # noqa: PLC0415  (slow to import)
    from scipy.linalg import svd  # noqa: PLC0415

    rows, columns = coefficients.shape
    if not 0 < rows <= _TURNED:
        return coefficients, 0.0 if rows == 0 else np.inf
    with single_thread():
        near = np.eye(columns) if rows == columns else dct(np.eye(columns), axis=0, norm="ortho")[:rows]
        left, _, right = svd(near @ coefficients.T, full_matrices=False)
        first = left @ right @ coefficients
        tried = [first, *(f(first, type=t, axis=0, norm="ortho") for f in (dct, dst) for t in (2, 3, 4))]
        across = None if basis is None else np.asarray(basis.dense(), dtype=np.float64)
        lengths = [float(np.abs(c if across is None else c @ across).sum(axis=0).max()) for c in tried]
    # alike but for rounding, the first
    best = next(i for i, x in enumerate(lengths) if x <= min(lengths) * (1 + _ALIKE))
    return tried[best], lengths[best]


def pure_error_and_gradient(gram: FloatArray, sums: FloatArray) -> tuple[float, FloatArray]:
    """f(T) and its gradient (p, n) for a Gram (n, n) and T = `sums`, (p, n): see the top of this file.

    With K = (I + TᵀT)^-1 the gradient is 2 (1 ((K o G) s)ᵀ - T K E K), and T K = (I + T Tᵀ)^-1 T.
    """
    from scipy.linalg.lapack import dpotrf, dpotrs  # noqa: PLC0415  (slow to import)

    diagonal = np.diagonal(gram)
    stretch = 1 + sums.sum(axis=0)
    against = (sums * stretch) @ gram
    inner = sums @ sums.T
    inner.flat[:: len(inner) + 1] += 1
    # not cho_factor: around matrices of a few rows it takes twice as long as what it calls
    factor, bad = dpotrf(inner, lower=True, clean=False)
    if bad:
        raise np.linalg.LinAlgError("I + TTᵀ is not positive definite")
    thinned, _ = dpotrs(factor, sums, lower=True)
    squared = against * stretch
    error = float(diagonal @ stretch**2) - float(np.vdot(thinned, squared))
    slope = diagonal * stretch - np.einsum("ij,ij->j", thinned, against)
    turned, _ = dpotrs(factor, squared, lower=True)
    turned -= (turned @ sums.T) @ thinned
    return error, 2 * (slope - turned)


@functools.lru_cache(maxsize=32)
def _known(gram: bytes, tolerance: float) -> tuple[FloatArray, float, int]:
    """What `_best` found of a small Gram, once.

    The table by itself and the tables beside others ask for the same, and so does every budget.
    """
    whole = np.frombuffer(gram)
    n = math.isqrt(len(whole))
    return _best_pure_sums(whole.reshape(n, n).copy(), tolerance)


def _best_pure_sums(gram: FloatArray, tolerance: float) -> tuple[FloatArray, float, int]:
    """(T, error, steps): the best of the cells alone and the searches from a coarser domain and from blocks."""
    n = len(gram)
    parts, limit = round(n / _BRANCHING), min(_ITERATIONS, max(1, _WORK // n**2))
    runs = [(np.zeros((0, n)), float(np.trace(gram)), 0)]
    if parts >= _BRANCHING // 2:
        start, spent = _coarse_pure_start(gram, parts, tolerance)
        sums, error, steps = _minimize_pure_error(gram, start, tolerance, limit)
        runs.append((sums, error, steps + spent))
    for largest, sizes in _STARTS:
        if n <= largest:
            runs.append(_minimize_pure_error(gram, _block_sums(n, sizes), tolerance, limit))
    best = min(runs, key=lambda run: run[1])
    return best[0], best[1], sum(run[2] for run in runs)


def _coarse_pure_start(gram: FloatArray, parts: int, tolerance: float) -> tuple[FloatArray, int]:
    """A start whose sums are those of a good strategy for `parts` blocks of cells; and the steps that took."""
    edges = _block_edges(len(gram), parts)
    sizes = np.diff(np.append(edges, len(gram)))
    coarse = np.add.reduceat(np.add.reduceat(gram, edges, axis=0), edges, axis=1) / np.outer(sizes, sizes)
    sums, _, spent = _minimize_pure_error(coarse, _block_sums(parts, (_BRANCHING // 2,)), tolerance, _COARSE_ITERATIONS)
    strategy = np.concatenate([np.eye(parts), sums]) / (1 + sums.sum(axis=0))
    tree = np.repeat(strategy, sizes, axis=1)
    return min((w * tree for w in _WEIGHTS), key=lambda t: pure_error_and_gradient(gram, t)[0]), spent


def _block_edges(n: int, parts: int) -> IntArray:
    """Where blocks of nearly equal size begin."""
    return np.arange(parts) * n // parts


def _block_sums(n: int, sizes: tuple[int, ...]) -> FloatArray:
    """Sums of adjacent cells, in blocks of about every given size that is smaller than n, and the total."""
    cells, rows = np.arange(n), [np.full(n, True)]
    for size in sizes:
        if size < n:
            parts = -(-n // size)
            block = np.searchsorted(_block_edges(n, parts), cells, side="right") - 1
            rows += [block == k for k in range(parts)]
    return np.array(rows, dtype=np.float64)


def _minimize_pure_error(
    gram: FloatArray, start: FloatArray, tolerance: float, limit: int
) -> tuple[FloatArray, float, int]:
    """A local minimum of f over T >= 0 by projected quasi-Newton steps: (T, f(T), steps)."""
    from scipy.optimize import Bounds, minimize  # noqa: PLC0415  (slow to import)

    shape = start.shape

    def value(flat: FloatArray) -> tuple[float, FloatArray]:
        error, gradient = pure_error_and_gradient(gram, flat.reshape(shape))
        return error, gradient.reshape(-1)

    done = minimize(
        value,
        start.reshape(-1),
        jac=True,
        method="L-BFGS-B",
        bounds=Bounds(0.0, _LARGEST),
        options={"maxiter": limit, "maxfun": 2 * limit, "ftol": tolerance, "gtol": 0.0},
    )
    sums = np.maximum(np.asarray(done.x, dtype=np.float64).reshape(shape), 0.0)
    return sums, float(done.fun), int(done.nit)


def _spectral_order(gram: FloatArray) -> IntArray:
    """The cells by the second eigenvector of their correlations: the order of any relabelled prefixes or ranges.

    Where that eigenvalue is not single, or for its sign, nothing but rounding would choose: of its eigenvectors the one
    nearest to a cell is taken, the first of the cells that are nearest to any.
    """
    from scipy.linalg import eigh  # noqa: PLC0415  (slow to import)

    n = len(gram)
    if n < 3:
        return np.arange(n)
    length = np.sqrt(np.diagonal(gram))
    values, vectors = eigh(gram / np.outer(length, length))
    same = vectors[:, np.abs(values - values[-2]) <= _ALIKE * values[-1]]
    share = np.einsum("ij,ij->i", same, same)
    along = same @ same[int(np.argmax(share >= share.max() * (1 - _ALIKE)))]
    # places apart by rounding alone are one, and their cells keep their order
    return np.argsort(np.rint(along / (np.abs(along).max() * _TIED)), kind="stable")
