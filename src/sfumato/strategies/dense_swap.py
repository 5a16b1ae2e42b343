"""The dense strategy of least mean squared error where one record is replaced by another, certified.

The number of records is then public: R M = F + b 1^T serves for any b, and what is priced is the largest distance
between two columns of M. With D = (e_i - e_j) over all pairs i < j of the m cells, the columns of M D are these
differences and R (M D) = F D, so that

    min ||R||_F diam(M)  over  R M = F + b 1^T     is     min ||R||_F ||A||_{1->2}  over  R A = F D :

the factorization norm of F D [ENU20]. Its dual puts weights w on the pairs,

    max_w || F D diag(w)^(1/2) ||_* = tr (H L(w) H^T)^(1/2),    L(w) = D diag(w) D^T,  sum w = 1,

L(w) the Laplacian of the weighted graph and H any matrix with H^T H the Gram of the centred F. Everything the solver
of `dual` asks of the m (m - 1) / 2 columns is read from matrices of m columns.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from sfumato._util.display import Progress
from sfumato.domain import Domain
from sfumato.errors import WorkloadError
from sfumato.operators import Identity, LinearOperator, Stack, Total
from sfumato.operators.base import FloatArray, single_thread
from sfumato.strategies.dense_blocks import (
    DenseBlock,
    IntArray,
    PairChanges,
    Queries,
    Spectrum,
    rounding_units,
    spectrum_of_square,
)
from sfumato.strategies.dense_dual import BoundedOptimum, cold_start, optimality_title, solve_dual
from sfumato.strategies.dense_largest import swap_largest
from sfumato.strategies.dense_optimal import DenseProblem, optimize_dense, read_problem
from sfumato.strategies.design import Design, Problem
from sfumato.strategies.factors import basis_coefficients, quantise, row_basis
from sfumato.strategies.product import Product
from sfumato.strategies.trees import is_ordered
from sfumato.workloads.core import block_on_domain

_EPS = float(np.finfo(np.float64).eps)
_COARSEST = 128  # cells of which the optimum takes a quarter of a second
_LEVEL = 1e-4  # relative gap at every level: what interpolation adds is more
_STEPS = 2  # eigendecompositions of a level: the second, and the way to it, take the gap from 1 % to 0.05 %
_ONCE = 1_024  # cells beyond which one has to do: the way to the second takes ten times as long as the first


@dataclass(frozen=True, slots=True)
class SwapOptimum(BoundedOptimum):
    """A strategy M for replace-one and a proof of how close to the best it is.

    With z of standard deviation diam(M), the answers R (M x + z) - b n have, summed over the queries, the variance
    (||R||_F diam(M))^2. Its root lies between `lower_bound` and `upper_bound` for the best M; divide by sqrt(k)
    for the root mean squared error of k queries.

    strategy     M, (l, m), l the rank of the centred F: distances between columns at most 1, the largest 1; the
                 columns sum to zero, so that R M = F + b 1^T has b = -(row means of F), R = F M^+
    pairs        weights on the pairs of cells, (m, m), symmetric: each pair i < j once, of sum 1
    lower_bound  proved for every strategy, rounded down by a bound on the floating point error
    upper_bound  attained by `strategy`, rounded up likewise
    iterations   eigendecompositions
    """

    strategy: FloatArray
    pairs: FloatArray
    lower_bound: float
    upper_bound: float
    iterations: int


@dataclass(frozen=True, slots=True)
class _PairSpectrum(Spectrum):
    """The spectrum of diag(w)^(1/2) D^T H^T H D diag(w)^(1/2).

    `vectors` here is N^T, (m, r), N = diag(s)^(-1/2) U^T H for H L(w) H^T = U diag(s^2) U^T: the long eigenvectors are
    diag(w)^(1/2) D^T N^T diag(s)^(-1/2), and are never formed.
    """

    pairs: PairChanges
    weights: FloatArray

    def diagonal(self) -> FloatArray:
        return self.weights * np.maximum(self.pairs.lengths(self.vectors @ self.vectors.T), 0.0)

    def bend(self, kind: type[np.floating]) -> Callable[[FloatArray], FloatArray]:
        vectors = self.vectors.astype(kind, copy=False)
        kernel = (1 / (self.roots[:, None] + self.roots)).astype(kind)

        def image(x: FloatArray) -> FloatArray:
            inner = self.pairs.gather(self.weights * x, vectors)
            inner *= kernel
            return self.weights * self.pairs.forms(vectors, inner)

        return image


@dataclass(frozen=True, slots=True)
class PairBlock:
    """The Gram of F D over pairs of cells, by a factor H (r, m) of the centred Gram of F."""

    factor: FloatArray
    pairs: PairChanges

    @property
    def index(self) -> IntArray:
        return np.arange(len(self.pairs.first))

    @property
    def full(self) -> bool:
        return len(self.factor) == len(self.pairs.first)

    @property
    def squares(self) -> FloatArray:
        return np.maximum(self.pairs.lengths(self.factor.T @ self.factor), 0.0)

    def decompose(self, v: FloatArray) -> Spectrum:
        image, degree = self.pairs.weigh(v, self.factor)
        inner, size = image @ self.factor.T, self.pairs.cells
        # what forming the factor and the products may be off by, in units of the trace
        doubt = 8 * rounding_units(size) * degree * float(np.linalg.norm(self.factor)) ** 2 / float(np.trace(inner))
        found = spectrum_of_square(inner, doubt)
        vectors = self.factor.T @ (found.vectors / np.sqrt(found.roots))
        return _PairSpectrum(vectors, found.roots, found.proved, self.pairs, v)

    def cost(self, spectrum: Spectrum, squares: FloatArray) -> float:
        assert isinstance(spectrum, _PairSpectrum)
        # R = U diag(s)^(1/2) has R N = H however inexact U and s are; the squares are a multiple of the weights
        return float((squares / spectrum.weights).max()) * float(spectrum.roots.sum())

    def every_second(self) -> DenseBlock:
        few = PairChanges(self.pairs.cells, self.pairs.first[::2], self.pairs.second[::2])
        return PairBlock(self.factor, few)


def swap_optimum(
    gram: ArrayLike | None = None,
    *,
    matrix: ArrayLike | None = None,
    tolerance: float = 1e-6,
    max_iterations: int = 100,
    start: ArrayLike | None = None,
    progress: Progress | None = None,
) -> SwapOptimum:
    """The strategy of least ||R||_F diam(M) over R M = F + b 1^T, to a relative gap of `tolerance`.

    `gram` is F^T F, (m, m); `matrix` is F, (k, m). One is enough; with both, the matrix serves. `start` is a guess of
    the pairs' weights, (m, m). `progress` is called with (eigendecompositions, gap so far). A search that ends above
    `tolerance` is no error: read `gap`. Each step takes some tens of products of (m, m) matrices; memory is some tens
    of arrays of that size.

    Raises WorkloadError for arrays that are not finite, not of these shapes, not a Gram, or not of one workload.
    """
    if not 0.0 <= tolerance < float("inf"):
        raise WorkloadError(f"tolerance is {tolerance!r}; allowed are finite numbers >= 0, such as 1e-6")
    if max_iterations < 1:
        raise WorkloadError(f"max_iterations is {max_iterations}; allowed are integers >= 1")
    problem, scale = read_problem(gram, matrix)
    size = problem.size
    with single_thread():
        factor = _centred_factor(problem)
        if not len(factor):
            even = 2 / (size * (size - 1)) if size > 1 else 0.0
            return SwapOptimum(np.zeros((0, size)), even * (1 - np.eye(size)), 0.0, 0.0, 0)
        pairs = PairChanges.of(size)
        block, at = PairBlock(factor, pairs), (pairs.first, pairs.second)
        begin = cold_start([block]) if start is None else np.asarray(start, dtype=np.float64)[at]
        found = solve_dual([block], begin, tolerance=tolerance, max_iterations=max_iterations, progress=progress)
        strategy = found.spectra[0].vectors.T
        largest = float(pairs.lengths(strategy.T @ strategy).max())
    weights = np.zeros((size, size))
    weights[at] = found.v
    return SwapOptimum(
        strategy / (np.sqrt(largest) * (1 + 4 * _EPS)),
        weights + weights.T,
        found.lower * scale,
        found.upper * scale,
        found.iterations,
    )


def _centred_factor(problem: DenseProblem) -> FloatArray:
    """H (r, m) of full row rank with H^T H the Gram of F less its row means; no rows where all columns are equal."""
    from scipy.linalg import eigh, svd  # noqa: PLC0415  (slow to import)

    if problem.factor is not None:
        rows = problem.factor - problem.factor.mean(axis=1, keepdims=True)
        _, roots, vectors = svd(rows, full_matrices=False, check_finite=False)
        kept = roots > max(rows.shape) * _EPS * max(float(roots[0]), float(np.linalg.norm(problem.factor)) * _EPS)
        return roots[kept][:, None] * vectors[kept]
    assert problem.gram is not None
    gram = problem.gram
    means = gram.mean(axis=0)
    centred = gram - means - means[:, None] + means.mean()
    values, columns = eigh(centred, check_finite=False)
    largest = float(np.trace(gram))
    if values[0] < -1e-8 * largest:
        raise WorkloadError(
            f"the gram is not positive semidefinite: centred, it has the eigenvalue {values[0]:.3g} (largest "
            f"{values[-1]:.3g}); give F^T F of a workload F"
        )
    kept = values > 4 * len(gram) * _EPS * max(float(values[-1]), largest * 1e-2)
    return np.sqrt(values[kept])[:, None] * columns[:, kept].T


def swap_levels(gram: FloatArray, *, progress: Progress | None = None) -> SwapOptimum:
    """The same for cells of which neighbours are alike, as for prefixes and ranges, by way of every second cell.

    Weights on pairs of these are interpolated to all pairs, which alone is within 1 or 2 % of the optimum, and a step
    from there within 0.2 %; beyond 1,024 cells none is taken. `gram` is F^T F, (m, m).
    """
    size = len(gram)
    if size <= _COARSEST:
        return swap_optimum(gram, tolerance=_LEVEL, progress=progress)
    pairs = swap_levels(np.ascontiguousarray(gram[::2, ::2]), progress=progress).pairs
    # both are cells of one line, of which the ends are alike
    between = np.clip((np.arange(size) + 0.5) * (len(pairs) / size) - 0.5, 0, len(pairs) - 1)
    low = np.minimum(between.astype(np.intp), len(pairs) - 2)
    share = (between - low)[:, None]
    rows = (1 - share) * pairs[low] + share * pairs[low + 1]
    finer = (1 - share.T) * rows[:, low] + share.T * rows[:, low + 1]
    steps = _STEPS if size <= _ONCE else 1
    return swap_optimum(gram, tolerance=_LEVEL, max_iterations=steps, start=finer, progress=progress)


def swap_near(gram: FloatArray, *, ordered: bool = True, progress: Progress | None = None) -> SwapOptimum:
    """A strategy near the optimum of larger domains, and a bound: that of the centred queries for add-remove.

    Any offset of the queries is free, so F may be replaced by F - (row means) 1^T, whose optimum has columns of nearly
    equal length; the longest distance between them is then what counts. The bound takes a pair u, v with weight in
    proportion to v_u v_v, v the dual weights of that optimum: L = D_v - v v^T scaled, whose root is that of D_v
    after a projection. `gram` is F^T F, (m, m); `ordered` says that neighbouring cells are alike.
    """
    means = gram.mean(axis=0)
    found = optimize_dense(gram - means - means[:, None] + means.mean(), ordered=ordered, progress=progress)
    strategy, root = found.strategy - found.strategy.mean(axis=1)[:, None], np.sqrt(found.dual)
    with single_thread():
        product = strategy.T @ strategy
        lengths = np.diag(product)
        largest = float((lengths[:, None] + lengths[None, :] - 2 * product).max()) * (1 + 4 * _EPS)
        whitened = gram * np.multiply.outer(root, root)
        inner = whitened @ root
        whitened -= np.multiply.outer(root, inner) + np.multiply.outer(inner, root)
        whitened += np.multiply.outer(root, root) * float(root @ inner)
        values = np.linalg.eigvalsh(whitened)
    pairs = np.multiply.outer(found.dual, found.dual) * (2 / (1 - float(found.dual @ found.dual)))
    np.fill_diagonal(pairs, 0.0)
    kept = values[values > values[-1] * len(gram) * _EPS]
    lower = math.sqrt(2 / (1 - float(found.dual @ found.dual))) * float(np.sqrt(kept).sum()) * (1 - 1e-9)
    reach = math.sqrt(largest)
    return SwapOptimum(strategy / reach, pairs, lower, found.upper_bound * reach * (1 + 1e-12), found.iterations)


MAX_SWAP = 256  # cells: the search over all pairs of them stays within seconds
MAX_ALONE = 1_024  # the same for one table and the mean error: 4 CPU-s at 512, 20 at 1,024
MAX_NEAR = 2_048  # likewise, not the optimum but 2 to 3 % above it
MAX_LEVELS = 4_096  # of an ordered attribute, by way of fewer cells: within 1 %
_TOLERANCE = 1e-5  # relative gap of proved sides: far below what a plan shows
_ROUGH = 1e-4  # above MAX_SWAP cells
_GAP = 1e-3  # above, the search has failed and the ordinary optimum is no worse a choice
_BITS = 24  # of an entry: rounding moves errors by less than is shown
_MAX_ENTRIES = 2**22  # 32 MB of queries; above, their Gram matrix alone is used
_MAX_WORK = 2**29  # operations of one pass over all queries


def design_swap_optimum(problem: Problem, progress: Progress | None = None) -> Design | None:
    """The optimum over the joint table of all that is asked; None where it does not apply.

    It does under Gaussian noise and a public total, for at most MAX_SWAP cells, or MAX_ALONE of a table that is asked
    for as a whole (with a strategy near the optimum up to MAX_NEAR, of an ordered attribute MAX_LEVELS), that are not
    simply asked for one by one: noise on every cell is then the optimum, and its integers are small. No strategy for
    parts of the table errs less.
    """
    names = _joint_table_attributes(problem)
    blocks = problem.workload.blocks
    if names is None or (len(blocks) == 1 and all(isinstance(f, Identity) for f in blocks[0].block.factors)):
        return None
    domain = Domain({a: problem.workload.domain[a] for a in names})
    queries = Queries(tuple((block_on_domain(domain, q.block), problem.objective_weight(q)) for q in blocks))
    gram = queries.whole_gram()
    if problem.largest:
        if queries.work > _MAX_WORK:
            return None
        found = swap_largest(queries, progress=progress)
    else:
        found = _least_mean(queries, gram, progress)
    rank = len(found.strategy)
    # what is measured and the total span the workload; either may have a part of the total
    whole = Stack((*(operator for operator, _ in queries.blocks), Total(domain.size)))
    basis = row_basis(gram + float(np.trace(gram)) / domain.size, whole, rank + 1)
    failed = found.gap > _GAP and domain.size <= MAX_ALONE
    if rank == 0 or failed or (basis is None and rank + 1 < domain.size):
        return None
    title = f"{optimality_title('factorization', found.gap)} over {', '.join(names)} for a known total"
    build = functools.partial(
        _build_swap_product, title, names, domain.shape, basis_coefficients(found.strategy, basis), basis
    )
    return Design("factorization", build, 2.0**_BITS, found.lower_bound)


def _least_mean(queries: Queries, gram: FloatArray, progress: Progress | None) -> SwapOptimum:
    if len(gram) > MAX_ALONE:
        ordered = all(is_ordered(operator) for operator, _ in queries.blocks)
        return (swap_levels if ordered else swap_near)(gram, progress=progress)
    tolerance = _TOLERANCE if len(gram) <= MAX_SWAP else _ROUGH
    matrix = queries.listed(_MAX_ENTRIES)
    return swap_optimum(None if matrix is not None else gram, matrix=matrix, tolerance=tolerance, progress=progress)


def _joint_table_attributes(problem: Problem) -> tuple[str, ...] | None:
    """The attributes of the joint table of all queries, where its optimum is offered."""
    if not problem.unit.total_is_public or problem.noise != "gaussian":
        return None
    names = {a for q in problem.workload.blocks for a in q.attributes}
    cells = math.prod(problem.sizes[a] for a in names)
    blocks = [q.block for q in problem.workload.blocks]
    whole = not problem.largest and any(names == set(b.attributes) for b in blocks)
    ordered = len(names) == 1 and all(b.factors and is_ordered(b.factors[0]) for b in blocks)
    most = (MAX_LEVELS if ordered else MAX_NEAR) if whole else MAX_SWAP
    return problem.workload.domain.ordered(frozenset(names)) if 1 < cells <= most else None


def _build_swap_product(
    title: str, names: tuple[str, ...], shape: tuple[int, ...], real: FloatArray, basis: LinearOperator | None, s: float
) -> Product:
    return Product((names,), (shape,), (quantise(real, basis, s, known_total=True),), 1, True, title=title)
