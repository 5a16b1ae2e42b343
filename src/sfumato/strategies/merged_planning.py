"""The optimum for queries over different attributes together, over the columns that they tell apart. [ENU20]

Queries over tables of their own would share the budget between optima for each. Together they are one matrix whose
columns are few where the queries are few, whatever the joint cells: the certified optimum for its distinct columns is
that for all cells. Its strategy is A = M^(-1/4) W, M = W diag(v) Wᵀ for the weights v that prove it, so it is measured
as whole combinations of the exact sums that the queries ask for, and k queries over c columns cost k² c a step.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato._util.display import Progress
from sfumato.errors import PlanError, WorkloadError
from sfumato.operators import Block, Combination, Dense
from sfumato.operators.base import FloatArray, single_thread
from sfumato.privacy.columns import distinct_columns
from sfumato.privacy.unit import Neighbours
from sfumato.strategies.dense_dual import BoundedOptimum, nuclear_bound, optimality_title
from sfumato.strategies.dense_largest import LargestErrorOptimum, optimize_largest
from sfumato.strategies.dense_optimal import optimize_dense, rotate_to_least_l1
from sfumato.strategies.dense_swap import swap_near, swap_optimum
from sfumato.strategies.design import Design, Problem
from sfumato.strategies.merged import Merged, columns_by_class
from sfumato.strategies.merged_rows import independent_row_basis, independent_rows, optimize_sparse, sparse_search_fits
from sfumato.workloads import QueryBlock, QueryFamily

_ROUNDS = 20  # each is a search; the bound holds wherever it ends
_ADDED = 4_000  # pairs that join in a round: as many as a search takes in a second
_FIRST = 1e-2  # tolerance of the first search, whose pairs are not those of the last
_IDLE = 1e-3  # share of the mean weight below which a pair leaves
_CHUNK = 2**22  # distances looked at together: 32 MB
_ALL_WORK = 12_000_000_000  # columns² times queries, over all steps that weigh all pairs: some twenty seconds
_ALL_STEPS = 40  # of these: the gap falls below a hundredth before


@dataclass(frozen=True, slots=True)
class PairedOptimum(BoundedOptimum):
    """A strategy (l, c), no two columns more than 1 apart, and what its error lies between, as in `swap`."""

    strategy: FloatArray
    lower_bound: float
    upper_bound: float


def optimize_pairs(
    matrix: FloatArray, *, largest: bool = False, tolerance: float, progress: Progress | None = None
) -> PairedOptimum | None:
    """The strategy of least ||R||_F diam(M) over R M = W + b 1ᵀ for W = `matrix` (k, c), to a gap of `tolerance`.

    With `largest` the longest row of R counts in place of all together. None where all columns are equal. A search that
    ends above `tolerance` is no error: read `gap`.
    """
    rows = _centred_query_rows(matrix, whole=largest)
    if not len(rows):
        return None
    first, second = _spanning_pairs(rows)
    kept = len(first)
    strategy, best, lower, goal = rows, None, 0.0, _FIRST
    for _ in range(_ROUNDS):
        reach, far = _farthest_columns(strategy)
        some = np.flatnonzero(reach > (1 + tolerance / 2) ** 2) if best is not None else np.arange(len(reach))
        some = some[np.argsort(-reach[some], kind="stable")[:_ADDED]]
        first, second, added = _join_pairs(first, second, some, far[some])
        if best is not None and not added and goal <= tolerance / 2:
            break
        apart = rows[:, first] - rows[:, second]
        solved = (optimize_largest if largest else optimize_dense)(matrix=apart, tolerance=goal, progress=progress)
        weights = solved.cells if isinstance(solved, LargestErrorOptimum) else solved.dual
        with single_thread():
            strategy = np.linalg.lstsq(apart.T, solved.strategy.T, rcond=None)[0].T @ rows
        lower = max(lower, solved.lower_bound * (1 - 1e-9))
        reached = math.sqrt(float(_farthest_columns(strategy)[0].max())) * (1 + 1e-12)
        if best is None or solved.upper_bound * reached < best.upper_bound:
            best = PairedOptimum(strategy / reached, lower, solved.upper_bound * reached)
        if best.upper_bound <= lower * (1 + tolerance):
            break
        idle = weights < _IDLE / len(weights)
        idle[:kept] = False
        first, second, goal = first[~idle], second[~idle], max(tolerance / 2, goal / 5)
    return None if best is None else PairedOptimum(best.strategy, lower, best.upper_bound)


def optimize_all_pairs(
    matrix: FloatArray, *, tolerance: float, progress: Progress | None = None
) -> PairedOptimum | None:
    """The same for the mean error of many queries, to a gap of `tolerance` unless that takes too many steps.

    Begins with pairs whose weights are products, the best of which are those of a record more or less; often they do.
    """
    rows = _centred_query_rows(matrix, whole=False)
    if not len(rows):
        return None
    near = swap_near(rows.T @ rows, ordered=False, progress=progress)
    found = [near]
    steps = min(_ALL_STEPS, int(_ALL_WORK / (rows.size * rows.shape[1])))
    if near.gap > tolerance and steps > 0:
        found.append(
            swap_optimum(matrix=rows, tolerance=tolerance, max_iterations=steps, start=near.pairs, progress=progress)
        )
    best = min(found, key=lambda f: f.upper_bound)
    return PairedOptimum(best.strategy, max(f.lower_bound for f in found), best.upper_bound)


def _centred_query_rows(matrix: FloatArray, *, whole: bool) -> FloatArray:
    """The queries less their means, or (r, c) of full row rank with the same Gram; no rows where all are zero."""
    centred = matrix - matrix.mean(axis=1, keepdims=True)
    with single_thread():
        _, roots, across = np.linalg.svd(centred, full_matrices=False)
    kept = roots > max(centred.shape) * float(np.finfo(np.float64).eps) * max(float(np.linalg.norm(matrix)), 1e-300)
    return centred if whole and kept.any() else roots[kept][:, None] * across[kept]


def _spanning_pairs(rows: FloatArray) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Pairs whose differences span those of all: what is zero along all pairs would never be seen to be missing."""
    from scipy.linalg import qr  # noqa: PLC0415  (slow to import)

    with single_thread():
        pivots = qr(rows - rows[:, :1], mode="r", pivoting=True)[1]
    first = np.asarray(pivots[: len(rows)], dtype=np.intp)
    return np.maximum(first, 0), np.zeros(len(first), dtype=np.intp)


def _farthest_columns(strategy: FloatArray) -> tuple[FloatArray, NDArray[np.intp]]:
    """(c,) the squared distance of every column from the one that lies farthest from it, and which that is."""
    squares = np.einsum("ij,ij->j", strategy, strategy)
    count = len(squares)
    reach, far = np.empty(count), np.empty(count, dtype=np.intp)
    step = max(1, _CHUNK // count)
    with single_thread():
        for a in range(0, count, step):
            apart = squares - 2 * (strategy[:, a : a + step].T @ strategy)
            far[a : a + step] = apart.argmax(axis=1)
            reach[a : a + step] = apart.max(axis=1) + squares[a : a + step]
    return reach, far


def _join_pairs(
    first: NDArray[np.intp], second: NDArray[np.intp], more: NDArray[np.intp], far: NDArray[np.intp]
) -> tuple[NDArray[np.intp], NDArray[np.intp], bool]:
    """The pairs and those of `more` and `far` that are not among them, each once; whether there are any."""
    known = {frozenset(p) for p in zip(first.tolist(), second.tolist(), strict=True)}
    new: list[tuple[int, int]] = []
    for u, v in zip(more.tolist(), far.tolist(), strict=True):
        if u != v and frozenset((u, v)) not in known:
            known.add(frozenset((u, v)))
            new.append((u, v))
    added = np.array(new, dtype=np.intp).reshape(-1, 2)
    return np.concatenate([first, added[:, 0]]), np.concatenate([second, added[:, 1]]), bool(new)


MAX_COLUMNS = 2_048  # distinct ones, of any number of queries: n³ operations a step
MAX_WORK = 1_000_000_000  # queries² times distinct columns, above that: operations of a step
MAX_FAR = 5_000  # columns up to which the largest distance of two is found exactly: a matrix of 200 MB
MAX_PAIRED = 128  # queries up to which pairs of columns are searched in seconds: about the square of them bind
_BOUND = 1.5  # columns for each independent query, up to which about all pairs of columns bind and are weighed at once
_NEAR = 1e-2  # gap of more queries, all pairs of whose columns are weighed: a tenth of it takes ten times as long
_MAX_BLOCKS = 512  # each is a Python value, counted by itself
_MAX_QUERIES = 4_096  # rows of matrices that are factored
_TOLERANCE = 1e-4  # relative gap of proved sides: what a plan shows
_ROUGH, _LONG = 1e-3, 100_000_000  # the same from this many operations a step on, where the last digit takes seconds
_QUICK = 5  # as many times as long is not long yet, for the mean error where a record comes or goes
_ROUGHEST = 3e-2  # the same where a bound alone is asked for, which is a thousandth off by then
_BITS = 24  # of an entry: rounding moves errors by less than is shown, and keeps the span exactly
_PAIRS = 30  # times as much as one search takes that for pairs, over the differences that join one by one
_MAX_LARGEST = 2**30  # operations of one search for the largest error, as for one table


@dataclass(frozen=True, slots=True)
class _MergedOptimum:
    """A strategy over the distinct columns, (l, c); a bound as designs have it; how far from the best it may be."""

    strategy: FloatArray
    bound: float | None
    gap: float


def design_merged(problem: Problem, progress: Progress | None = None) -> Design:
    """The optimum over the distinct columns of all queries. Raises PlanError where it does not apply.

    For real numbers that are no whole ones, very many tables or columns it does not; nor, where the number of records
    is known, above MAX_FAR columns, whose largest distance would only be bounded. Above MAX_PAIRED queries it is then
    near the optimum, for the mean error of at most MAX_COLUMNS columns.
    """
    blocks = [q.block for q in problem.workload.blocks] if problem.workload.tables <= _MAX_BLOCKS else []
    rows = sum(b.rows for b in blocks)
    if not 0 < rows <= _MAX_QUERIES:
        raise PlanError(f"{problem.workload.tables:,} tables, or their queries, are too many to be one matrix")
    if not all(f.integral for b in blocks for f in b.factors):
        raise PlanError("coefficients are no whole numbers")
    try:
        # in whose convex hull the others lie: no other is longer, or farther from one, whatever the strategy
        columns = distinct_columns([b.lowered() for b in blocks], problem.sizes, ends=True)
    except WorkloadError as error:
        raise PlanError(str(error)) from error
    count, public = columns.shape[1], problem.unit.total_is_public
    if count < 2:
        raise PlanError("the queries tell no cells apart")
    if count > MAX_COLUMNS and rows**2 * count > MAX_WORK:
        return _design_sparse(problem, blocks, columns, progress)
    paired = min(rows, count) <= MAX_PAIRED
    if public and (count > MAX_FAR if paired else problem.largest or count > MAX_COLUMNS):
        raise PlanError(f"{count:,} distinct columns are too many to compare all pairs of them")
    weights = np.repeat([problem.objective_weight(q) for q in problem.workload.blocks], [b.rows for b in blocks])
    real = columns.astype(np.float64)
    # rows of large blocks first, whose span holds most of the others: few blocks are then combined
    order = np.argsort(-np.repeat([b.rows for b in blocks], [b.rows for b in blocks]), kind="stable")
    kept = np.sort(order[independent_rows(real[order])])
    found = _optimize_merged(problem, real * np.sqrt(weights)[:, None], len(kept), progress)
    if found is None or not len(found.strategy):
        raise PlanError("the search over pairs of columns did not end")
    over = real[kept] - (real[kept].mean(axis=1, keepdims=True) if public else 0.0)
    with single_thread():
        coefficients = np.asarray(np.linalg.lstsq(over.T, found.strategy.T, rcond=None)[0].T, dtype=np.float64)
    if problem.noise == "laplace":
        coefficients = rotate_to_least_l1(coefficients, Dense(over))[0]
    kind = "an L1 factorization" if problem.noise == "laplace" else optimality_title("factorization", found.gap)
    return _design_from_matrix(
        problem, _restrict_to_used_blocks(blocks, kept, coefficients), f"{kind} over {count:,}", found.bound
    )


def least_error(
    problem: Problem, queries: Sequence[QueryBlock | QueryFamily], wanted: float = math.inf
) -> float | None:
    """What the root of the summed weighted squared errors of some queries cannot fall below at unit price; None where
    it is not known.

    For the mean error where a record comes or goes, by the weights of the whole problem: a search that ends at 3 %. A
    bound above `wanted` is enough, and most are found without a search.
    """
    blocks = [q.block for q in queries if isinstance(q, QueryBlock)]
    rows = sum(b.rows for b in blocks)
    plain = _is_plain_mean_error(problem) and problem.unit.neighbours is Neighbours.ADD_REMOVE
    if not plain or problem.known or len(blocks) < len(queries) or not 0 < rows <= _MAX_QUERIES:
        return None
    try:
        columns = columns_by_class(blocks, problem.sizes)
    except PlanError:
        return None
    if not 1 < columns.shape[1] <= MAX_COLUMNS:
        return None
    weights = np.repeat(
        [problem.objective_weight(q) for q in queries if isinstance(q, QueryBlock)], [b.rows for b in blocks]
    )
    matrix = columns * np.sqrt(weights)[:, None]
    at_once = nuclear_bound(matrix) * problem.unit.rows_per_person
    if at_once > wanted:
        return at_once
    return optimize_dense(matrix=matrix, tolerance=_ROUGHEST).lower_bound * problem.unit.rows_per_person


def _design_sparse(
    problem: Problem, blocks: Sequence[Block], columns: NDArray[np.int64], progress: Progress | None
) -> Design:
    """The same over many columns with few entries: the mean error alone, and a record more or less."""
    if not _is_plain_mean_error(problem) or not sparse_search_fits(columns):
        raise PlanError(f"{len(columns):,} queries tell {columns.shape[1]:,} cells apart, too many for one matrix")
    weights = np.repeat([problem.objective_weight(q) for q in problem.workload.blocks], [b.rows for b in blocks])
    found = optimize_sparse(columns, np.sqrt(weights), tolerance=_ROUGH, progress=progress)
    kept, back = independent_row_basis(columns)
    held = _restrict_to_used_blocks(blocks, kept, found.coefficients @ back)
    # of persons who may vanish nothing is proved
    proved = problem.unit.neighbours is Neighbours.ADD_REMOVE
    kind = optimality_title("factorization", found.gap if proved else math.inf)
    bound = found.lower_bound if proved else None
    return _design_from_matrix(problem, held, f"{kind} over {columns.shape[1]:,}", bound)


def _is_plain_mean_error(problem: Problem) -> bool:
    """Whether the mean error under Gaussian noise is asked for, and a record more or less."""
    return problem.noise == "gaussian" and not problem.largest and not problem.unit.total_is_public


def _design_from_matrix(
    problem: Problem, found: tuple[tuple[Block, ...], FloatArray], kind: str, bound: float | None
) -> Design:
    """Integers at every scale. Raises PlanError where they cannot be read back."""
    (held, matrix), public = found, problem.unit.total_is_public
    title = f"{kind} distinct columns of all queries"
    names = tuple(dict.fromkeys(a for b in held for a in b.attributes))
    sizes = tuple(problem.sizes[a] for a in names)
    build = functools.partial(_build_merged, held, matrix, sizes, public, title)
    if not build(2.0**_BITS).sound:
        raise PlanError("its integers could not be read back")
    return Design("factorization", build, 2.0**_BITS, bound)


def _build_merged(
    blocks: tuple[Block, ...], matrix: FloatArray, sizes: tuple[int, ...], public: bool, title: str, s: float
) -> Merged:
    return Merged(Combination(blocks, np.rint(matrix * s).astype(np.int64)), sizes, public, title)


def _optimize_merged(
    problem: Problem, matrix: FloatArray, rank: int, progress: Progress | None
) -> _MergedOptimum | None:
    """The strategy for weighted queries (k, c) by the objective and the relation of the problem."""
    public, largest = problem.unit.total_is_public, problem.largest and matrix.size * min(matrix.shape) <= _MAX_LARGEST
    work = matrix.size * min(matrix.shape) * (_PAIRS if public else 1)
    if not (public or largest):
        work = matrix.shape[1] * rank**2 // _QUICK
    tolerance = _ROUGH if work > _LONG else _TOLERANCE
    if public and min(matrix.shape) > MAX_PAIRED:
        found = optimize_all_pairs(matrix, tolerance=_NEAR, progress=progress)
    elif public:
        found = None
        if not largest and matrix.shape[1] <= _BOUND * rank:
            found = optimize_all_pairs(matrix, tolerance=tolerance, progress=progress)
        if found is None or found.gap > tolerance:
            other = optimize_pairs(matrix, largest=largest, tolerance=tolerance, progress=progress)
            found = other if found is None or (other and other.upper_bound < found.upper_bound) else found
    else:
        found = (optimize_largest if largest else optimize_dense)(matrix=matrix, tolerance=tolerance, progress=progress)
    if found is None:
        return None
    if problem.unit.neighbours is Neighbours.REPLACE_ONE and not public:
        # of persons who may vanish: the same strategy, and nothing proved
        return _MergedOptimum(found.strategy, None, math.inf)
    if problem.largest and not largest:
        # the largest variance is at least their mean
        return _MergedOptimum(found.strategy, found.lower_bound / math.sqrt(len(matrix)), math.inf)
    return _MergedOptimum(found.strategy, found.lower_bound, found.gap)


def _restrict_to_used_blocks(
    blocks: Sequence[Block], kept: NDArray[np.intp], coefficients: FloatArray
) -> tuple[tuple[Block, ...], FloatArray]:
    """The blocks that hold some kept row, and the coefficients over all rows of theirs."""
    ends = np.cumsum([0, *(b.rows for b in blocks)])
    whole = np.zeros((len(coefficients), int(ends[-1])))
    whole[:, kept] = coefficients
    used = [i for i in range(len(blocks)) if whole[:, ends[i] : ends[i + 1]].any()]
    return tuple(blocks[i] for i in used), np.concatenate([whole[:, ends[i] : ends[i + 1]] for i in used], axis=1)
