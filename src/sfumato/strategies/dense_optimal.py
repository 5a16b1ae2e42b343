"""The strategy of least mean squared error for a dense workload, with a certificate; and one for pure epsilon.

For pure epsilon it has little noise at unit L1 sensitivity, by a search over weighted sums of cells. The strategy is
A = [I; T] diag(1 / s), T (p, n) >= 0 and s = 1 + Tᵀ1: every cell by itself and p weighted sums, with columns whose L1
norms are all 1 [MMHM18]. Its error tr(G (AᵀA)^-1) for a workload of Gram G is, with E = s sᵀ o G,

    f(T) = tr(E) - tr((I + T Tᵀ)^-1 T E Tᵀ),

and f and its gradient cost one product of T with G. The problem is not convex. The search starts from a tree: the
strategy of a domain sixteen times coarser, found likewise, and on small domains also blocks of cells.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from sfumato._util.display import Progress
from sfumato.errors import WorkloadError
from sfumato.operators import LinearOperator, Sparse
from sfumato.operators.base import FloatArray, single_thread
from sfumato.strategies.dense_blocks import DenseBlock, IntArray, factor_block, gram_block
from sfumato.strategies.dense_dual import BoundedOptimum, cold_start, solve_dual, warm_start


@dataclass(frozen=True, slots=True)
class DualPart:
    """A block of the dual, and how the columns of its strategy become those of the cells.

    Cell j gets column `coordinate[j]` times `sign[j]`; both are (m,).
    """

    block: DenseBlock
    coordinate: IntArray
    sign: FloatArray


@dataclass(frozen=True, slots=True)
class DenseProblem:
    """A workload F by its Gram (m, m), or by F itself (k, m), or by both: then the Gram leads."""

    gram: FloatArray | None
    factor: FloatArray | None

    @property
    def size(self) -> int:
        """m, the number of cells."""
        return self._leading.shape[1]

    @property
    def _leading(self) -> FloatArray:
        array = self.factor if self.gram is None else self.gram
        assert array is not None
        return array

    def squares(self) -> FloatArray:
        """The squared column norms of F, (m,)."""
        if self.gram is not None:
            return np.diagonal(self.gram)
        return np.einsum("ij,ij->j", self._leading, self._leading)

    def column(self, j: int) -> FloatArray:
        """Numbers that are equal, or opposite, for two cells exactly where their columns of F are."""
        return self._leading[j] if self.factor is None else self.factor[:, j]

    def on(self, cells: IntArray) -> DenseProblem:
        """The same on some of the cells."""
        if np.array_equal(cells, np.arange(self.size)):
            return self
        factor = self.factor
        if factor is not None:
            factor = factor[:, cells]
            factor = factor[factor.any(axis=1)]
        return DenseProblem(None if self.gram is None else self.gram[np.ix_(cells, cells)], factor)

    def components(self) -> list[IntArray]:
        """The cells, parted so that no query touches two parts."""
        if self._leading.size and self._leading[0].all():  # as of most: nothing is left to be looked at
            return [np.arange(self.size)]
        linked = self._leading != 0.0
        waiting = np.ones(self.size, dtype=np.bool_)
        parts: list[IntArray] = []
        while waiting.any():
            frontier = np.flatnonzero(waiting)[:1]
            reached = np.zeros(self.size, dtype=np.bool_)
            while len(frontier):
                reached[frontier] = True
                near = linked[linked[:, frontier].any(axis=1)].any(axis=0)
                frontier = np.flatnonzero(near & ~reached)
            waiting &= ~reached
            parts.append(np.flatnonzero(reached))
        return parts

    def parts(self) -> tuple[DualPart, ...]:
        """The blocks of the dual: one, or two halves where the Gram is unchanged by reversing the cells."""
        every = np.arange(self.size)
        if self.gram is None and self.factor is not None and 2 * len(self.factor) <= self.size:
            block = factor_block(self.factor, every)
        else:
            gram = self._leading.T @ self._leading if self.gram is None else self.gram
            halves = _mirror_halves(gram, self.factor) if np.array_equal(gram, gram[::-1, ::-1]) else ()
            if halves:
                return halves
            block = gram_block(gram, every, self.factor)
        return (DualPart(block, every, np.ones(self.size)),)


def _mirror_halves(gram: FloatArray, factor: FloatArray | None) -> tuple[DualPart, ...]:
    """The two halves of a Gram that is unchanged by reversing the cells.

    In the basis (e_j + e_j') / 2 and (e_j - e_j') / 2 of a cell j and its mirror j' (e_j for the middle one)
    the dual weight of a pair is that of its two cells together. Empty where a cell is nearly its own mirror, up to
    sign: rounding would then decide whether the halves are separate.
    """
    m = len(gram)
    half, low = (m + 1) // 2, m // 2
    near, far = gram[:half, :half], gram[:half, ::-1][:, :half]
    even, odd = near + far, near[:low, :low] - far[:low, :low]
    even /= 2
    odd /= 2
    least = 1e-6 * (np.diagonal(near) / 2)
    if low == 0 or (np.diagonal(even) < least).any() or (np.diagonal(odd) < least[:low]).any():
        return ()
    roots: tuple[FloatArray | None, FloatArray | None] = (None, None)
    if factor is not None:
        front, back = factor[:, :half] / 2, factor[:, ::-1][:, :half] / 2
        roots = (front + back, (front - back)[:, :low])
    every = np.arange(m)
    place = np.minimum(every, m - 1 - every)
    sign = np.concatenate([np.ones(low), np.zeros(m - 2 * low), -np.ones(low)])
    return (
        DualPart(gram_block(even, every[:half], roots[0]), place, np.ones(m)),
        DualPart(gram_block(odd, every[:low], roots[1]), np.minimum(place, low - 1), sign),
    )


@dataclass(frozen=True, slots=True)
class DistinctColumns:
    """The distinct nonzero columns: `cells` represent them; cell j is `sign[j]` times number `kind[j]`, -1 if zero."""

    cells: IntArray
    kind: IntArray
    sign: FloatArray


def find_distinct_columns(problem: DenseProblem) -> DistinctColumns:
    """Find zero columns and columns equal up to sign, exactly."""
    squares = problem.squares()
    _, group, counts = np.unique(squares, return_inverse=True, return_counts=True)
    kind, sign = np.full(problem.size, -1, dtype=np.intp), np.ones(problem.size)
    cells: list[int] = []
    seen: dict[bytes, int] = {}
    for j in np.flatnonzero(squares > 0.0).tolist():
        kind[j] = len(cells)
        if counts[group[j]] > 1:
            column = problem.column(j)
            sign[j] = np.sign(column[np.argmax(column != 0.0)])
            kind[j] = seen.setdefault((column * sign[j] + 0.0).tobytes(), len(cells))
        if kind[j] == len(cells):
            cells.append(j)
    represented = np.array(cells, dtype=np.intp)
    nonzero = kind >= 0
    sign[nonzero] *= sign[represented[kind[nonzero]]]
    return DistinctColumns(represented, kind, sign)


def read_problem(gram: ArrayLike | None, matrix: ArrayLike | None) -> tuple[DenseProblem, float]:
    """The problem divided by a power of two near the norm of its largest column, and that power.

    Raises WorkloadError for arrays that are not finite, not of the right shapes, not a Gram, or not of one workload.
    """
    square = None if gram is None else _check_symmetric_gram(_finite_matrix(gram, "gram"))
    factor = None if matrix is None else _finite_matrix(matrix, "matrix")
    if factor is not None:
        largest, asked = float(np.abs(factor).max(initial=0.0)), factor.any(axis=0)
    elif square is not None:
        largest, asked = float(np.sqrt(np.diagonal(square).max())), np.diagonal(square) > 0.0
    else:
        raise WorkloadError("nothing to optimize: give gram (m, m), or matrix (k, m), or both")
    exponent = int(np.frexp(largest)[1])
    if square is not None:
        square = np.ldexp(square, -2 * exponent)
    if factor is not None:
        factor = np.ldexp(factor, -exponent)
        norms = np.einsum("ij,ij->j", factor, factor)
        if square is not None and len(square) != len(norms):
            raise WorkloadError(f"gram has {len(square)} cells and matrix {len(norms)}; they must be of one workload")
        if square is not None and not np.allclose(norms, np.diagonal(square), rtol=1e-8, atol=1e-12):
            raise WorkloadError("gram and matrix are of different workloads: gram must be matrix^T matrix")
        if 2 * len(factor) <= len(norms):
            square = None
        elif square is None:
            square = factor.T @ factor
    problem = DenseProblem(square, factor)
    if not np.array_equal(problem.squares() > 0.0, asked):
        raise WorkloadError("columns of the workload differ in size by more than 1e150; drop or rescale the smallest")
    return problem, float(np.ldexp(1.0, exponent))


def _finite_matrix(array: ArrayLike, name: str) -> FloatArray:
    try:
        out = np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError) as problem:
        raise WorkloadError(f"{name} is not an array of real numbers: {problem}") from problem
    if out.ndim != 2 or out.shape[1] == 0:
        raise WorkloadError(f"{name} has shape {out.shape}; it must be a matrix with at least one column")
    if not np.isfinite(out).all():
        raise WorkloadError(
            f"{name} holds {int((~np.isfinite(out)).sum())} entries that are NaN or infinite; all must be finite"
        )
    return out


def _check_symmetric_gram(gram: FloatArray) -> FloatArray:
    if gram.shape[0] != gram.shape[1]:
        raise WorkloadError(f"gram has shape {gram.shape}; it must be square, (m, m): F^T F of a workload F (k, m)")
    diagonal = np.diagonal(gram)
    if (diagonal < 0.0).any() or gram[diagonal == 0.0].any():
        raise WorkloadError(
            "gram is not positive semidefinite: it has a negative diagonal entry, or a zero one in a row that is "
            "not zero; give F^T F of a workload F"
        )
    # a few rows at a time, as a whole transpose is read against the grain
    if all(np.array_equal(gram[a : a + _ROWS, a:], gram[a:, a : a + _ROWS].T) for a in range(0, len(gram), _ROWS)):
        return gram
    if not np.allclose(gram, gram.T, rtol=1e-9, atol=1e-9 * float(diagonal.max())):
        raise WorkloadError("gram is not symmetric; give F^T F of a workload F")
    return gram / 2 + gram.T / 2


_ROWS = 128  # of a Gram, which with as many columns a core keeps
_MANY = 4_096  # columns: fewer are all looked at in a second
_FEW = 16  # times as many columns as rows, of which then few bind
_MOST_WORK = 100_000_000  # rows squared times columns of a step of the search over all columns: a hundred take 5 CPU-s
_MOST_ROUNDS = 24  # each adds the columns that stick out most; curves of degree two take some ten
_NOTHING = 1e-24  # of a squared length: what rounding leaves of columns in the span of others


@dataclass(frozen=True, slots=True)
class Optimum(BoundedOptimum):
    """A strategy A and a proof of how close to the best it is.

    The factorization norm of a workload F, unnormalised, is the least ||R||_F ||A||_{1->2} over R A = F: the
    root of the summed variance of the answers R (A x + z) with z of standard deviation ||A||_{1->2}. It lies
    between `lower_bound` and `upper_bound`; divide by sqrt(k) for the root mean squared error of k queries.

    strategy     A, (l, m), l the rank of F where no direction is below rounding: column norms at most 1,
                 the largest 1; a zero column of F has a zero column here
    dual         weights v on the cells, (m,), nonnegative, of sum 1: ||F diag(v)^(1/2)||_* >= lower_bound
    lower_bound  proved for every strategy, rounded down by a bound on the floating point error
    upper_bound  attained by `strategy` with R = F A^+, rounded up likewise
    iterations   eigendecompositions at full size (of the connected component that took most)
    """

    strategy: FloatArray
    dual: FloatArray
    lower_bound: float
    upper_bound: float
    iterations: int


def optimize_dense(
    gram: ArrayLike | None = None,
    *,
    matrix: ArrayLike | None = None,
    ordered: bool = False,
    tolerance: float = 1e-7,
    max_iterations: int = 100,
    progress: Progress | None = None,
) -> Optimum:
    """The strategy of least ||F A^+||_F ||A||_{1->2} [ENU20], to a relative gap of `tolerance`.

    `gram` is F^T F, (m, m); `matrix` is F, (k, m). One is enough. With both, the matrix serves where it has few rows
    (each step then costs k^2 m) and where F has deficient rank (it keeps the digits that forming F^T F loses).
    `ordered` says that neighbouring cells are alike, as for prefixes and ranges: the search then starts from a
    coarser domain. Zero columns, columns equal up to sign, unconnected cells and workloads that are unchanged by
    reversing the cells are found and used. `progress` is called with (eigendecompositions, gap so far).

    A search that ends above `tolerance` is no error: read `gap`. Memory is a few (m, m) arrays; time some
    eigendecompositions of that size, on one thread.

    Raises WorkloadError for arrays that are not finite, not of these shapes, not a Gram, or not of one workload.
    """
    if not 0.0 <= tolerance < float("inf"):
        raise WorkloadError(f"tolerance is {tolerance!r}; allowed are finite numbers >= 0, such as 1e-7")
    if max_iterations < 1:
        raise WorkloadError(f"max_iterations is {max_iterations}; allowed are integers >= 1")
    problem, scale = read_problem(gram, matrix)
    few: Optimum | None = None
    if problem.factor is not None and problem.size > _MANY and _FEW * len(problem.factor) <= problem.size:
        few = _optimize_few_rows(problem.factor, scale, tolerance, max_iterations, progress)
        # where many columns bind, as of random rows, some rounds do not find them all: then all are looked at
        if few.gap <= tolerance or len(problem.factor) ** 2 * problem.size > _MOST_WORK:
            return few
    columns = find_distinct_columns(problem)
    with single_thread():
        reduced = problem.on(columns.cells)
        found = [
            (cells, _optimize_component(reduced.on(cells), ordered, tolerance, max_iterations, progress))
            for cells in reduced.components()
        ]
    whole = _join_components(found, columns, scale)
    if few is None:
        return whole
    better = min(whole, few, key=lambda one: one.upper_bound)
    return replace(better, lower_bound=max(whole.lower_bound, few.lower_bound))


def _optimize_few_rows(
    factor: FloatArray, scale: float, tolerance: float, max_iterations: int, progress: Progress | None
) -> Optimum:
    """The optimum of few rows over very many columns, of which few bind: those that stick out, found one after another.

    A strategy C F for some of the columns is one for all, as long as its longest column makes it; and what is proved
    for some is proved for all. Columns inside the hull of others never bind: of sums and counts two do.
    """
    m = factor.shape[1]
    norms = np.linalg.norm(factor, axis=1)
    kept = np.flatnonzero(norms > 0.0)
    rows = factor[kept] / norms[kept, None]
    chosen = np.unique(np.concatenate([rows.argmax(axis=1), rows.argmin(axis=1), _spanning_columns(rows)]))
    best: Optimum | None = None
    for _ in range(_MOST_ROUNDS):
        found = optimize_dense(
            matrix=factor[:, chosen], tolerance=tolerance / 2, max_iterations=max_iterations, progress=progress
        )
        with single_thread():
            coefficients = np.linalg.lstsq(rows[:, chosen].T, found.strategy.T, rcond=None)[0].T
            strategy = coefficients @ rows
        lengths = np.sqrt(np.einsum("ij,ij->j", strategy, strategy))
        longest = float(lengths.max()) * (1 + 4 * np.finfo(np.float64).eps)
        lower = max(found.lower_bound * scale, 0.0 if best is None else best.lower_bound)
        dual = np.zeros(m)
        dual[chosen] = found.dual
        made = Optimum(strategy / longest, dual, lower, found.upper_bound * longest * scale, found.iterations)
        if best is None or made.upper_bound < best.upper_bound:
            best = made
        best = replace(best, lower_bound=lower)
        if best.upper_bound <= lower * (1 + tolerance):
            break
        # of every row the longest column that it has a part in: unconnected cells are mended at once
        worst = np.unique([int(np.where(row != 0.0, lengths, 0.0).argmax()) for row in rows])
        more = np.setdiff1d(worst[lengths[worst] > 1 + tolerance / 8], chosen)
        if not len(more):
            break
        chosen = np.union1d(chosen, more)
    assert best is not None
    return best


def _spanning_columns(rows: FloatArray) -> IntArray:
    """Columns that span what all of them span: the longest of what those before leave over, one after another."""
    left, out = rows.copy(), list[int]()
    first = float(np.einsum("ij,ij->j", left, left).max())
    for _ in range(len(rows)):
        lengths = np.einsum("ij,ij->j", left, left)
        place = int(lengths.argmax())
        if lengths[place] <= _NOTHING * first:
            break
        out.append(place)
        unit = left[:, place] / np.sqrt(lengths[place])
        left -= np.multiply.outer(unit, unit @ left)
    return np.array(out, dtype=np.intp)


def _optimize_component(
    problem: DenseProblem, ordered: bool, tolerance: float, max_iterations: int, progress: Progress | None
) -> Optimum:
    """The optimum where all cells are connected and no two columns are equal up to sign."""
    parts = problem.parts()
    blocks = [part.block for part in parts]
    start = warm_start(blocks) if ordered else cold_start(blocks)
    solution = solve_dual(blocks, start, tolerance=tolerance, max_iterations=max_iterations, progress=progress)
    strategy = np.empty((sum(len(s.roots) for s in solution.spectra), problem.size))
    row = 0
    for part, spectrum in zip(parts, solution.spectra, strict=True):
        scaled = spectrum.vectors * np.sqrt(spectrum.roots)
        scaled /= np.sqrt(solution.squares[part.block.index])[:, None]
        here = strategy[row : row + len(spectrum.roots)]
        np.take(scaled.T, part.coordinate, axis=1, out=here, mode="clip")  # which needs no copy, as "raise" does
        if (part.sign != 1.0).any():
            here *= part.sign
        row += len(here)
    place = parts[0].coordinate
    dual = (solution.v / np.bincount(place))[place]
    return Optimum(strategy, dual, solution.lower, solution.upper, solution.iterations)


def _join_components(found: list[tuple[IntArray, Optimum]], columns: DistinctColumns, scale: float) -> Optimum:
    """The optimum of all cells from those of unconnected ones: squares of norms add up, and weights follow them."""
    m = len(columns.kind)
    lower = float(np.sqrt(sum(part.lower_bound**2 for _, part in found)))
    upper = float(np.sqrt(sum(part.upper_bound**2 for _, part in found)))
    if not found:
        return Optimum(np.zeros((0, m)), np.full(m, 1 / m), 0.0, 0.0, 0)
    plain = len(found) == 1 and len(columns.cells) == m and bool((columns.sign == 1).all())
    # a copy of many cells costs as much as a step
    strategy = found[0][1].strategy if plain else np.zeros((sum(len(part.strategy) for _, part in found), m))
    dual, row = np.zeros(m), 0
    copies = np.bincount(columns.kind[columns.kind >= 0])
    number = np.empty(len(columns.cells), dtype=np.intp)
    for cells, part in found:
        number[:] = -1
        number[cells] = np.arange(len(cells))
        here = np.flatnonzero(columns.kind >= 0)
        here = here[number[columns.kind[here]] >= 0]
        inside = number[columns.kind[here]]
        if not plain:
            strategy[row : row + len(part.strategy), here] = part.strategy[:, inside] * columns.sign[here]
        dual[here] = (part.lower_bound / lower) ** 2 * (part.dual / copies[cells])[inside]
        row += len(part.strategy)
    strategy /= np.sqrt(np.einsum("ij,ij->j", strategy, strategy).max()) * (1 + 4 * np.finfo(np.float64).eps)
    iterations = max(part.iterations for _, part in found)
    return Optimum(strategy, dual / dual.sum(), lower * scale, upper * scale, iterations)


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
