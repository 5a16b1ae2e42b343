"""The least mean or largest squared error where one record is replaced by another, for few queries over many columns.

With D the differences of pairs of columns, what is sought is the factorization norm of W D, as in `dense.swap`, or its
gamma_2, as in `dense.largest_swap`. Of the pairs only as many bind as the queries' rank bears, so they are found as
they are needed: the optimum for some pairs proves a bound for all, and its strategy shows which others lie too far
apart. Of many queries about the square of their number bind, and all pairs are weighed at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.designs.dense.dual import relative_gap
from sfumato.designs.dense.largest import Largest, optimize_largest
from sfumato.designs.dense.optimal import optimize
from sfumato.designs.dense.swap import swap_near, swap_optimum
from sfumato.ground.progress import Progress
from sfumato.operators.base import FloatArray
from sfumato.operators.blas import single_thread

__all__ = ["Paired", "optimize_all_pairs", "optimize_pairs"]

_ROUNDS = 20  # each is a search; the bound holds wherever it ends
_ADDED = 4_000  # pairs that join in a round: as many as a search takes in a second
_FIRST = 1e-2  # tolerance of the first search, whose pairs are not those of the last
_IDLE = 1e-3  # share of the mean weight below which a pair leaves
_CHUNK = 2**22  # distances looked at together: 32 MB
_ALL_WORK = 12_000_000_000  # columns² times queries, over all steps that weigh all pairs: some twenty seconds
_ALL_STEPS = 40  # of these: the gap falls below a hundredth before


@dataclass(frozen=True, slots=True)
class Paired:
    """A strategy (l, c), no two columns more than 1 apart, and what its error lies between, as in `swap`."""

    strategy: FloatArray
    lower_bound: float
    upper_bound: float

    @property
    def gap(self) -> float:
        """upper_bound / lower_bound - 1."""
        return relative_gap(self.lower_bound, self.upper_bound)


def optimize_pairs(
    matrix: FloatArray, *, largest: bool = False, tolerance: float, progress: Progress | None = None
) -> Paired | None:
    """The strategy of least ||R||_F diam(M) over R M = W + b 1ᵀ for W = `matrix` (k, c), to a gap of `tolerance`.

    With `largest` the longest row of R counts in place of all together. None where all columns are equal. A search that
    ends above `tolerance` is no error: read `gap`.
    """
    rows = _rows(matrix, whole=largest)
    if not len(rows):
        return None
    first, second = _spanning(rows)
    kept = len(first)
    strategy, best, lower, goal = rows, None, 0.0, _FIRST
    for _ in range(_ROUNDS):
        reach, far = _farthest(strategy)
        some = np.flatnonzero(reach > (1 + tolerance / 2) ** 2) if best is not None else np.arange(len(reach))
        some = some[np.argsort(-reach[some], kind="stable")[:_ADDED]]
        first, second, added = _joined(first, second, some, far[some])
        if best is not None and not added and goal <= tolerance / 2:
            break
        apart = rows[:, first] - rows[:, second]
        solved = (optimize_largest if largest else optimize)(matrix=apart, tolerance=goal, progress=progress)
        weights = solved.cells if isinstance(solved, Largest) else solved.dual
        with single_thread():
            strategy = np.linalg.lstsq(apart.T, solved.strategy.T, rcond=None)[0].T @ rows
        lower = max(lower, solved.lower_bound * (1 - 1e-9))
        reached = math.sqrt(float(_farthest(strategy)[0].max())) * (1 + 1e-12)
        if best is None or solved.upper_bound * reached < best.upper_bound:
            best = Paired(strategy / reached, lower, solved.upper_bound * reached)
        if best.upper_bound <= lower * (1 + tolerance):
            break
        idle = weights < _IDLE / len(weights)
        idle[:kept] = False
        first, second, goal = first[~idle], second[~idle], max(tolerance / 2, goal / 5)
    return None if best is None else Paired(best.strategy, lower, best.upper_bound)


def optimize_all_pairs(matrix: FloatArray, *, tolerance: float, progress: Progress | None = None) -> Paired | None:
    """The same for the mean error of many queries, to a gap of `tolerance` unless that takes too many steps.

    Begins with pairs whose weights are products, the best of which are those of a record more or less; often they do.
    """
    rows = _rows(matrix, whole=False)
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
    return Paired(best.strategy, max(f.lower_bound for f in found), best.upper_bound)


def _rows(matrix: FloatArray, *, whole: bool) -> FloatArray:
    """The queries less their means, or (r, c) of full row rank with the same Gram; no rows where all are zero."""
    centred = matrix - matrix.mean(axis=1, keepdims=True)
    with single_thread():
        _, roots, across = np.linalg.svd(centred, full_matrices=False)
    kept = roots > max(centred.shape) * float(np.finfo(np.float64).eps) * max(float(np.linalg.norm(matrix)), 1e-300)
    return centred if whole and kept.any() else roots[kept][:, None] * across[kept]


def _spanning(rows: FloatArray) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Pairs whose differences span those of all: what is zero along all pairs would never be seen to be missing."""
    from scipy.linalg import qr  # noqa: PLC0415  (slow to import)

    with single_thread():
        pivots = qr(rows - rows[:, :1], mode="r", pivoting=True)[1]
    first = np.asarray(pivots[: len(rows)], dtype=np.intp)
    return np.maximum(first, 0), np.zeros(len(first), dtype=np.intp)


def _farthest(strategy: FloatArray) -> tuple[FloatArray, NDArray[np.intp]]:
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


def _joined(
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
