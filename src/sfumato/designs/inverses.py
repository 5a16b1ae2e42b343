"""Grams and their inverses, in half the cells where these may be reversed."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from sfumato.operators import LinearOperator
from sfumato.operators.base import FloatArray
from sfumato.operators.blas import single_thread

__all__ = ["BIAS_BITS", "SOLVED", "gram_of", "inverted", "mirrored", "pseudo_inverse", "rounding_bias"]

BIAS_BITS = 32  # finest without such a basis, as rounding there is a bias, which is bounded and said
SOLVED = 2_048  # cells up to which an inverse is solved for; beyond, its triangle takes a third of the operations


def gram_of(matrix: FloatArray) -> FloatArray:
    """AᵀA, of a large A in half the cells where these may be reversed, and then equal to its reverse to the bit."""
    n = matrix.shape[1]
    signs = mirrored(matrix) if n > SOLVED else None
    if signs is None:
        return matrix.T @ matrix
    inside = np.array(matrix[:, : -(-n // 2)])
    inside[:, n // 2 :] *= math.sqrt(0.5)  # the middle cell, where there is one
    halves = [part.T @ part for part in (inside[signs > 0], inside[signs < 0][:, : n // 2])]
    return _unfolded(2 * halves[0], 2 * halves[1], n)


def mirrored(matrix: FloatArray) -> NDArray[np.int64] | None:
    """The sign by which each row changes when the cells are reversed; None where one changes otherwise."""
    back = matrix[:, ::-1]
    even = (matrix == back).all(axis=1)
    return np.where(even, 1, -1) if (even | (matrix == -back).all(axis=1)).all() else None


def _unfolded(even: FloatArray, odd: FloatArray, n: int) -> FloatArray:
    """The (n, n) matrix that is `even` on (e_i + e_(n-1-i)) / sqrt 2 and the middle cell, `odd` on the differences."""
    half = n // 2
    out = np.empty((n, n))
    out[:half, :half] = even[:half, :half] + odd
    out[:half, n - half :] = (even[:half, :half] - odd)[:, ::-1]
    out[:half] /= 2
    if n % 2:
        out[:half, half] = even[:half, half] * math.sqrt(0.5)
        out[half, : half + 1] = np.append(out[:half, half], even[half, half])
        out[half, half + 1 :] = out[half, :half][::-1]
    out[n - half :] = out[:half, ::-1][::-1]
    return out


def pseudo_inverse(gram: FloatArray) -> tuple[FloatArray, FloatArray | None]:
    """(gram^+, projector onto its range or None where that is everything), in halves where it equals its reverse."""
    n = len(gram)
    if n <= SOLVED or not np.array_equal(gram, gram[::-1, ::-1]):
        return inverted(gram)
    outer, half = -(-n // 2), n // 2
    even = gram[:outer, :outer] + gram[:outer, half:][:, ::-1]
    even[half:] *= math.sqrt(0.5)
    even[:, half:] *= math.sqrt(0.5)
    odd = gram[:half, :half] - gram[:half, n - half :][:, ::-1]
    (first, one), (second, two) = inverted(even), inverted(odd)
    if one is None and two is None:
        return _unfolded(first, second, n), None
    onto = [np.eye(len(g)) if p is None else p for g, p in ((even, one), (odd, two))]
    return _unfolded(first, second, n), _unfolded(onto[0], onto[1], n)


def inverted(gram: FloatArray) -> tuple[FloatArray, FloatArray | None]:
    """As `pseudo_inverse`, in one piece."""
    from scipy.linalg import LinAlgError, cho_solve, cholesky, eigh  # noqa: PLC0415  (slow to import)
    from scipy.linalg.lapack import dpotri  # noqa: PLC0415

    n = len(gram)
    with single_thread():
        size = np.sqrt(np.maximum(np.diagonal(gram), 0.0))
        if (size > 0).all():
            # unit diagonal: a relative test of rank, whatever the scales of the columns
            scaled = gram / size[:, None] / size[None, :]
            try:
                lower = cholesky(scaled, lower=True)
                if np.diagonal(lower).min() > 1e-6:
                    if n <= SOLVED:
                        inverse = cho_solve((lower, True), np.eye(n))
                    else:
                        # the lower half alone is written
                        inverse = np.asarray(dpotri(lower, lower=True, overwrite_c=True)[0], dtype=np.float64)
                        inverse += np.tril(inverse, -1).T
                    return inverse / size[:, None] / size[None, :], None
            except LinAlgError:
                pass
        values, vectors = eigh(gram)
        keep = values > values[-1] * n * 1e-14
        kept = vectors[:, keep]
        inverse = (kept / values[keep]) @ kept.T
        return inverse, None if keep.all() else kept @ kept.T


def rounding_bias(strategy: FloatArray, whole: LinearOperator) -> float:
    """Largest row sum of |W - W B^+ B| once the strategy is rounded without an integer basis."""
    rounded = np.rint(strategy * 2.0**BIAS_BITS) / 2.0**BIAS_BITS
    with single_thread():
        inverse = np.linalg.pinv(rounded)
    worst = 0.0
    for a, b in whole.row_chunks():
        rows = whole.rows(a, b)
        worst = max(worst, float(np.abs(rows - (rows @ inverse) @ rounded).sum(axis=1).max()))
    return worst
