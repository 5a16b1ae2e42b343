"""Errors of sketches before any data, and the parameters that the paper of SparseProject would take.

A query with weights w over counts D is answered with variance, over noise and hash,

    ||w||^2 v + (||w||^2 ||D||^2 + <w, D>^2 - 2 sum w_x^2 D_x^2) / W

with v the noise's share per key and W the number of buckets or signs, for hashes of independence 4 or more.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from sfumato.errors import PlanError


class PaperParameters(NamedTuple):
    """What the analysis of SparseProject asks for [BR11]: shown for comparison, never used."""

    dimension: float
    independence: int
    laplace_scale: float


def paper_parameters(
    size: int, records: int, queries: int, epsilon: float, delta: float, beta: float = 0.05
) -> PaperParameters:
    """The paper's dimension, independence and Laplace scale for queries of `size` keys over `records` records.

    Its dimension, 4 64^2 ln(1/tau) (m + n^2)^2 / (2 sqrt m) with tau = beta / (4 queries), is beyond any memory; the
    practical one is `dimension`.
    """
    for name, value in (("size", size), ("records", records), ("queries", queries)):
        if type(value) is not int or value < 1:
            raise PlanError(f"{name} is a whole number of at least 1, not {value!r}")
    if not (0 < epsilon < math.inf and 0 < delta < 1 and 0 < beta < 1):
        raise PlanError("epsilon must be positive, delta and beta between 0 and 1")
    rows = 4 * 64**2 * math.log(4 * queries / beta) * (size + float(records) ** 2) ** 2 / (2 * math.sqrt(size))
    return PaperParameters(rows, independence(queries, rows, beta), math.sqrt(8 * math.log(1 / delta)) / epsilon)


def independence(queries: int, rows: float, beta: float) -> int:
    """The independence with which the paper's tail bound holds for all queries: max(4, ceil(2 ln(k T / (2 beta))))."""
    return max(4, math.ceil(2 * math.log(queries * rows / (2 * beta))))


def projection_dimension(
    squared_norm: float, noise_variance: float, queries: int = 1, beta: float = 0.05, balance: float = 1
) -> int:
    """Signs with which the projection adds 1 / `balance` of the noise's variance, and never too few for its tails.

    `noise_variance` is per key of a query; with balance 4 and full independence no query errs by more than
    2 sqrt(2 size noise_variance ln(4 queries / beta)) but with probability beta.
    """
    return max(math.ceil(balance * squared_norm / noise_variance), math.ceil(32 * math.log(4 * queries / beta)))


def gaussian_residual_rate(sigma: float, threshold: int) -> float:
    """The same of a stability histogram with Gaussian noise; see `residual_rate`."""
    counts = np.unique(np.geomspace(1, threshold + 50 * sigma, 4000).astype(np.int64)).astype(np.float64)
    k = (threshold - counts) / sigma
    shown = ndtr(-k)
    squared = sigma**2 * (k * np.exp(-k * k / 2) / math.sqrt(2 * math.pi) + shown)
    return float(((squared + (1 - shown) * counts**2) / counts).max())


def residual_rate(scale: float, threshold: int) -> float:
    """The largest expected squared residual per record that a stability histogram leaves, whatever the counts are.

    A key of count c is shown when c + Z >= threshold and leaves Z^2, else c^2; the largest ratio to c bounds the
    expected squared norm of the residual by this rate times the number of records.
    """
    q = math.exp(-1 / scale)
    spread = q / -math.expm1(-1 / scale)
    second = spread * (1 + q) / -math.expm1(-1 / scale)  # E of a squared geometric count
    variance = 2 * second / (1 + q)

    counts = np.unique(np.geomspace(1, threshold + 50 * scale + 50, 4000).astype(np.int64)).astype(np.float64)
    k = threshold - counts
    a = np.where(k > 0, k, 1 - k)  # Z >= k, or Z <= -a mirrored
    tail = np.exp(-a / scale) / (1 + q)
    beyond = tail * (a * a + 2 * a * spread + second)
    shown = np.where(k > 0, tail, 1 - tail)
    squared = np.where(k > 0, beyond, variance - beyond)
    return float(((squared + (1 - shown) * counts**2) / counts).max())
