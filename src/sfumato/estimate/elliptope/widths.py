"""How far the projection onto the elliptope can leave the answers from the truth, before any data."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from sfumato.errors import InvalidInput
from sfumato.estimate.elliptope.scaling import product_scale
from sfumato.operators.base import real_array

__all__ = ["elliptope_bound", "elliptope_width"]


def elliptope_width(deviations: ArrayLike) -> float:
    """A bound on E max over correlation matrices Y of sum over i < j of z_ij Y_ij, with z independent Gaussian noise.

    deviations: (D, D) symmetric, those of z; the diagonal is ignored. Where they are s_i s_j the sum is half the
    trace of G S Y S, at most half the largest eigenvalue of a standard Gaussian matrix G times the sum of s_i^2,
    and E of that eigenvalue is at most 2 sqrt(D): sqrt(D) sum s_i^2 in all, D^1.5 for standard noise. Others
    are raised to that form, as more noise makes no smaller maximum.
    """
    given = real_array(deviations, "deviations").astype(np.float64)
    if given.ndim != 2 or given.shape[0] != given.shape[1] or len(given) < 2:
        raise InvalidInput(f"deviations must be square, of 2 rows or more, not of shape {given.shape}")
    off = ~np.eye(len(given), dtype=bool)
    if not (np.isfinite(given[off]).all() and given[off].min() >= 0 and np.array_equal(given[off], given.T[off])):
        raise InvalidInput("deviations must be symmetric, finite and not negative")
    largest = float(given[off].max())
    if largest == 0:
        return 0.0
    relative = np.where(off, given / largest, 0.0)
    scale, product = product_scale(relative)
    if not product:
        scale = scale * math.sqrt(float((relative / np.multiply.outer(scale, scale)).max()))
    return math.sqrt(len(given)) * float(scale @ scale) * largest


def elliptope_bound(size: int, sigma: float) -> float:
    """A bound on the root mean squared error of the projected parities, shares of the total, under equal noise.

    size: D, one more than the attributes. sigma: the deviation of the noise. The least of sigma and
    sqrt(sigma D^1.5 / pairs), as the expected squared error is at most E max over Y of <noise, Y> [NTZ13].
    """
    if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 2:
        raise InvalidInput(f"size counts the attributes and one more, a whole number from 2, not {size!r}")
    if isinstance(sigma, bool) or not isinstance(sigma, (int, float)) or not 0 <= sigma < math.inf:
        raise InvalidInput(f"sigma is the deviation of the noise of a parity, a number from 0, not {sigma!r}")
    return min(float(sigma), math.sqrt(2 * sigma * math.sqrt(size) / (size - 1)))
