"""The strategy of least mean squared error for a dense workload, with a certificate of optimality."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from sfumato.designs.dense.blocks import IntArray
from sfumato.designs.dense.dual import Bounded, cold_start, solve, warm_start
from sfumato.designs.dense.reductions import Columns, Problem, distinct_columns, read_problem
from sfumato.errors import WorkloadError
from sfumato.ground.progress import Progress
from sfumato.operators.base import FloatArray
from sfumato.operators.blas import single_thread

__all__ = ["Optimum", "optimize"]

_MANY = 4_096  # columns: fewer are all looked at in a second
_FEW = 16  # times as many columns as rows, of which then few bind
_MOST_ROUNDS = 24  # each adds the columns that stick out most; curves of degree two take some ten
_NOTHING = 1e-24  # of a squared length: what rounding leaves of columns in the span of others


@dataclass(frozen=True, slots=True)
class Optimum(Bounded):
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


def optimize(
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
    if problem.factor is not None and problem.size > _MANY and _FEW * len(problem.factor) <= problem.size:
        return _of_few_rows(problem.factor, scale, tolerance, max_iterations, progress)
    columns = distinct_columns(problem)
    with single_thread():
        reduced = problem.on(columns.cells)
        found = [
            (cells, _component(reduced.on(cells), ordered, tolerance, max_iterations, progress))
            for cells in reduced.components()
        ]
    return _joined(found, columns, scale)


def _of_few_rows(
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
    chosen = np.unique(np.concatenate([rows.argmax(axis=1), rows.argmin(axis=1), _spanning(rows)]))
    best: Optimum | None = None
    for _ in range(_MOST_ROUNDS):
        found = optimize(
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


def _spanning(rows: FloatArray) -> IntArray:
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


def _component(
    problem: Problem, ordered: bool, tolerance: float, max_iterations: int, progress: Progress | None
) -> Optimum:
    """The optimum where all cells are connected and no two columns are equal up to sign."""
    parts = problem.parts()
    blocks = [part.block for part in parts]
    start = warm_start(blocks) if ordered else cold_start(blocks)
    solution = solve(blocks, start, tolerance=tolerance, max_iterations=max_iterations, progress=progress)
    rows: list[FloatArray] = []
    for part, spectrum in zip(parts, solution.spectra, strict=True):
        scaled = spectrum.vectors * np.sqrt(spectrum.roots)
        scaled /= np.sqrt(solution.squares[part.block.index])[:, None]
        scaled = np.take(scaled.T, part.coordinate, axis=1)
        scaled *= part.sign
        rows.append(scaled)
    place = parts[0].coordinate
    dual = (solution.v / np.bincount(place))[place]
    return Optimum(
        np.concatenate(rows) if len(rows) > 1 else rows[0], dual, solution.lower, solution.upper, solution.iterations
    )


def _joined(found: list[tuple[IntArray, Optimum]], columns: Columns, scale: float) -> Optimum:
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
