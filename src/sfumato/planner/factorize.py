"""The factorization itself, for researchers: R M = F with the least error, certified."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from sfumato._util.display import Progress, show_progress
from sfumato.errors import PlanError
from sfumato.operators.base import FloatArray, single_thread
from sfumato.privacy.unit import Neighbours
from sfumato.strategies.approximate import approximate_optimum
from sfumato.strategies.dense_blocks import Queries
from sfumato.strategies.dense_dual import pair_bound
from sfumato.strategies.dense_largest import LargestErrorOptimum, optimize_largest, optimize_largest_rows, swap_largest
from sfumato.strategies.dense_optimal import optimize_dense
from sfumato.strategies.dense_swap import swap_optimum
from sfumato.workloads.builders import as_operator

MAX_SWAP = 1_024  # cells up to which the optimum under replace-one takes some 20 CPU-s
QUICK = 256  # cells above which it is certified to 1e-4 only
MAX_SWAP_LARGEST = 256  # the same for the largest error


@dataclass(frozen=True, slots=True, repr=False)
class Factorization:
    """R M = F + offset 1ᵀ, or nearly so, with its certificate. `sf.factorization` finds it.

    Args:
        strategy: M, (l, m).
        reconstruction: R, (k, l).
        offset: (k,), by how much the answers are shifted; 0 under add-remove.
        lower_bound: A proved bound on the least possible error: the rmse at noise multiplier 1, or the largest standard
            error where that was the objective.
        upper_bound: The error that this factorization has.
        iterations: The number of steps of the search.
        row_variances: (k,) variances of the answers at noise equal to the sensitivity of M.
        bias_bound: The largest |R M - F - offset|.

    >>> found = sf.factorization(np.tri(4))
    >>> np.allclose(found.reconstruction @ found.strategy, np.tri(4)), found.gap < 1e-3
    (True, True)
    """

    strategy: FloatArray
    reconstruction: FloatArray
    offset: FloatArray
    lower_bound: float
    upper_bound: float
    iterations: int
    row_variances: FloatArray
    bias_bound: float

    @property
    def gap(self) -> float:
        """By which share the error may be above the least possible one: upper_bound / lower_bound - 1."""
        return self.upper_bound / self.lower_bound - 1 if self.upper_bound > 0.0 else 0.0

    def __repr__(self) -> str:
        return (
            f"<Factorization {self.reconstruction.shape} x {self.strategy.shape}: "
            f"error {self.upper_bound:.7g}, proved at least {self.lower_bound:.7g}>"
        )


def factorization(
    F: Any,
    neighbours: str | Neighbours = "add-remove",
    objective: str = "mean",
    approximate: float | None = None,
    approximate_norm: str | None = None,
    progress: Progress | None = None,
) -> Factorization:
    """The factorization of F of least mean squared error, or of least largest error, certified.

    Add-remove: the optimum, min ||R||_F ||M||_{1->2} / sqrt(k) for the objective "mean" and min ||R||_{2->inf}
    ||M||_{1->2} for "max", which is gamma_2(F). Replace-one: up to 1,024 cells (256 for "max") the optimum too, with
    diam(M) for ||M||_{1->2} and R M = F + offset 1ᵀ; else the same M with the exact largest distance between its
    columns as sensitivity, and the pair bound beside it.

    Args:
        F: The queries: a (k, m) array, scipy sparse matrix or LinearOperator.
        neighbours: "add-remove" or "replace-one".
        objective: "mean", the root mean squared error, or "max", the largest standard error.
        approximate: alpha: the least mean squared noise over R M near F is found, to one per cent; errors exclude that
            bias. For "mean". At alpha = 0 it is the exact factorization.
        approximate_norm: How near: "entry", |R M - F| <= alpha in every entry, or "column", ||R M - F||_{1->2} <= alpha
            sqrt(k), which None takes.
        progress: Called with the number of steps done and the relative gap; None shows it in notebooks alone. The
            search of `approximate` does not call it.

    Returns:
        The factorization, with its error and a proved lower bound.

    Raises:
        PlanError: An option is not offered.
        WorkloadError: F is no matrix of finite numbers.

    Source:
        [NTZ13], [ENU20], [LMSS07] for gamma_2; definitions 2.2 and 2.5 of [SmithUllman]

    >>> sf.factorization(np.tri(4))
    <Factorization (4, 4) x (4, 4): error 1.31..., proved at least 1.31...>
    """
    relation = Neighbours.parse(neighbours)
    if objective not in ("mean", "max") or (approximate is not None and objective != "mean"):
        raise PlanError(
            "sf.factorization offers objective='mean' or 'max', and approximate= for the mean; asked: "
            f"objective={objective!r}, approximate={approximate!r}"
        )
    if approximate is None and approximate_norm is not None:
        raise PlanError(
            "approximate_norm= says how far R M may be from F: it belongs to approximate=, which is not given"
        )
    operator = as_operator(F)
    dense = np.asarray(operator.dense(), dtype=np.float64)
    if approximate_norm not in (None, "entry", "column"):
        raise PlanError(f"approximate_norm= is 'column' or 'entry', not {approximate_norm!r}")
    # alpha = 0 leaves nothing to approximate, in either norm
    if approximate is not None and (approximate != 0 or isinstance(approximate, bool)):
        return _factorize_approximately(dense, relation, approximate, approximate_norm or "column")
    with show_progress("factorizing", progress) as told:
        return _factorize_exactly(dense, relation, objective, told)


def _factorize_exactly(
    dense: FloatArray, relation: Neighbours, objective: str, progress: Progress | None
) -> Factorization:
    """R M = F, under either relation."""
    if relation is Neighbours.REPLACE_ONE and dense.shape[1] <= (MAX_SWAP if objective == "mean" else MAX_SWAP_LARGEST):
        return _factorize_swap(dense, objective, progress)
    found = (
        optimize_dense(matrix=dense, progress=progress)
        if objective == "mean"
        else _largest_error_optimum(dense, progress)
    )
    strategy = found.strategy
    with single_thread():
        reconstruction = dense @ np.linalg.pinv(strategy)
    rows = (reconstruction**2).sum(axis=1)
    # by the weights on the queries that make their mean the largest, or by equal ones
    weights = found.rows if isinstance(found, LargestErrorOptimum) else np.full(len(dense), 1 / len(dense))
    size, lower = 1.0, found.lower_bound / (math.sqrt(len(dense)) if objective == "mean" else 1.0)
    if relation is Neighbours.REPLACE_ONE:
        gram = strategy.T @ strategy
        norms = np.diagonal(gram)
        size = math.sqrt(float((norms[:, None] + norms[None, :] - 2 * gram).max()))
        lower = pair_bound((dense.T * weights) @ dense)
    upper = math.sqrt(float(rows.sum() / len(rows) if objective == "mean" else rows.max())) * size
    return Factorization(
        strategy,
        reconstruction,
        np.zeros(len(dense)),
        min(lower, upper),
        upper,
        found.iterations,
        rows * size**2,
        float(np.abs(reconstruction @ strategy - dense).max()),
    )


def _largest_error_optimum(dense: FloatArray, progress: Progress | None) -> LargestErrorOptimum:
    """The optimum of the largest error; where queries are many, by what they look like together."""
    many = len(dense) > 4 * dense.shape[1]
    found = optimize_largest_rows(Queries.of(dense), progress=progress) if many else None
    return optimize_largest(dense, progress=progress) if found is None else found


def _factorize_swap(dense: FloatArray, objective: str, progress: Progress | None) -> Factorization:
    """The optimum under replace-one; its columns sum to zero, so the offset is minus the mean of each row."""
    tolerance = 1e-6 if dense.shape[1] <= QUICK else 1e-4
    if objective == "mean":
        found = swap_optimum(matrix=dense, tolerance=tolerance, progress=progress)
    else:
        found = swap_largest(dense, progress=progress)
    offset = -dense.mean(axis=1)
    shifted = dense + offset[:, None]
    with single_thread():
        reconstruction = shifted @ np.linalg.pinv(found.strategy)
    root = math.sqrt(len(dense)) if objective == "mean" else 1.0
    return Factorization(
        found.strategy,
        reconstruction,
        offset,
        found.lower_bound / root,
        found.upper_bound / root,
        found.iterations,
        (reconstruction**2).sum(axis=1),
        float(np.abs(reconstruction @ found.strategy - shifted).max()),
    )


def _factorize_approximately(dense: FloatArray, relation: Neighbours, alpha: float, norm: str) -> Factorization:
    """R M within alpha of F, but for an offset where the number of records is known."""
    found = approximate_optimum(dense, alpha, norm, pairs=relation is Neighbours.REPLACE_ONE)
    root = math.sqrt(len(dense))
    off = found.reconstruction @ found.strategy - dense - found.offset[:, None]
    return Factorization(
        found.strategy,
        found.reconstruction,
        found.offset,
        found.lower_bound / root,
        found.upper_bound / root,
        found.iterations,
        (found.reconstruction**2).sum(axis=1),
        float(np.abs(off).max()),
    )
