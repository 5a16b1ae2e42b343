"""The factorization itself, for researchers: R M = F with the least error, certified."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from sfumato.errors import PlanError
from sfumato.operators.base import FloatArray
from sfumato.operators.blas import single_thread
from sfumato.privacy.unit import Neighbours
from sfumato.strategies.optimum.optimal import optimize
from sfumato.workloads.builders import as_operator

__all__ = ["Factorization", "factorization", "pair_bound"]


@dataclass(frozen=True, slots=True, repr=False)
class Factorization:
    """R M = F + offset 1ᵀ with its certificate; bounds are the rmse at noise multiplier 1.

    `strategy` M (l, m), `reconstruction` R (k, l), `offset` (k,), `row_variances` (k,) at noise equal to
    the sensitivity of M, `bias_bound` the largest |R M - F - offset|.
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
        """upper / lower - 1."""
        return self.upper_bound / self.lower_bound - 1

    def __repr__(self) -> str:
        return (
            f"<Factorization {self.reconstruction.shape} x {self.strategy.shape}: "
            f"rmse {self.upper_bound:.7g}, proved at least {self.lower_bound:.7g}>"
        )


def factorization(
    F: Any,
    neighbours: str | Neighbours = "add-remove",
    norm: str = "l2",
    objective: str = "mean",
    approximate: float | None = None,
    approximate_norm: str = "column",
) -> Factorization:
    """The factorization of F (k, m) of least mean squared error, certified. [NTZ13, ENU20]

    Add-remove: the optimum, min ||R||_F ||M||_{1->2} / sqrt(k). Replace-one: the same M with the exact
    largest distance between its columns as sensitivity, and the pair bound beside it.
    Raises PlanError for what is not offered and WorkloadError for what is no matrix.
    """
    relation = Neighbours.parse(neighbours)
    if norm != "l2" or objective != "mean" or approximate is not None:
        raise PlanError(
            "sf.factorization offers norm='l2', objective='mean' and exact factorizations "
            f"(approximate=None); asked: norm={norm!r}, objective={objective!r}, approximate={approximate!r}"
        )
    operator = as_operator(F)
    dense = np.asarray(operator.dense(), dtype=np.float64)
    found = optimize(matrix=dense)
    strategy = found.strategy
    with single_thread():
        reconstruction = dense @ np.linalg.pinv(strategy)
    rows = (reconstruction**2).sum(axis=1)
    root = math.sqrt(len(dense))
    size, lower = 1.0, found.lower_bound / root
    if relation is Neighbours.REPLACE_ONE:
        gram = strategy.T @ strategy
        norms = np.diagonal(gram)
        size = math.sqrt(float((norms[:, None] + norms[None, :] - 2 * gram).max()))
        lower = pair_bound(dense.T @ dense) / root
    upper = math.sqrt(float(rows.sum())) * size / root
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


def pair_bound(gram: FloatArray) -> float:
    """Replace-one: sqrt(2 / (m - 1)) ||F C||_*, the pair bound with equal weights on all pairs of cells.

    With the dual point L = sum over pairs of w_uv (e_u - e_v)(e_u - e_v)ᵀ, sum w = 1, every unbiased
    strategy whose columns lie at most 1 apart has ||R||_F >= ||F L^(1/2)||_*.
    """
    cells = len(gram)
    if cells < 2:
        return 0.0
    centred = gram - gram.mean(axis=0)[None, :] - gram.mean(axis=1)[:, None] + gram.mean()
    with single_thread():
        values = np.linalg.eigvalsh(centred)
    positive = values[values > values[-1] * cells * 1e-14]
    return float(np.sqrt(positive).sum()) * math.sqrt(2 / (cells - 1)) * (1 - 1e-9)
