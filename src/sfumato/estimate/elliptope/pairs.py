"""Pairs of attributes: of a matrix of parities the entries (0i, 0j, ij), which are possible within a tetrahedron."""

from __future__ import annotations

import numpy as np

from sfumato.operators.base import FloatArray

__all__ = ["coordinates", "nearest_tetrahedra", "pair_tables", "spread", "support"]


def coordinates(matrix: FloatArray) -> FloatArray:
    """(pairs, 3) the entries (0i, 0j, ij) of every pair i < j of attributes, row 0 being no attribute."""
    first, second = np.triu_indices(len(matrix) - 1, 1)
    return np.stack([matrix[0, first + 1], matrix[0, second + 1], matrix[first + 1, second + 1]], axis=1)


def spread(size: int, values: FloatArray) -> FloatArray:
    """The transpose: a symmetric matrix whose entries add up the coordinates they are. No pairs: zeros."""
    out = np.zeros((size, size))
    if len(values):
        first, second = np.triu_indices(size - 1, 1)
        out[first + 1, second + 1] = values[:, 2]
        out[0, 1:] = np.bincount(first, values[:, 0], size - 1) + np.bincount(second, values[:, 1], size - 1)
    return out + out.T


def support(normals: FloatArray) -> FloatArray:
    """(pairs,) the largest product of a normal (pairs, 3) with a vertex (s, t, st) of the tetrahedron."""
    a, b, c = normals.T
    return np.maximum(np.abs(a + b) + c, np.abs(a - b) - c)


def pair_tables(points: FloatArray) -> FloatArray:
    """(pairs, 4) the tables of pairs as shares, given (pairs, 3) parities: cells (+, +), (+, -), (-, +), (-, -)."""
    a, b, c = points.T
    return 0.25 * np.stack([1 + a + b + c, 1 + a - b - c, 1 - a + b - c, 1 - a - b + c], axis=1)


def nearest_tetrahedra(points: FloatArray) -> FloatArray:
    """(pairs, 3) the nearest points whose pair tables are nonnegative.

    Parities are twice an orthogonal map of the table, so the nearest point is that of the nearest table whose four
    shares are nonnegative and add up to 1.
    """
    shares = pair_tables(points)
    falling = -np.sort(-shares, axis=1)
    level = (np.cumsum(falling, axis=1) - 1) / np.arange(1, 5)
    kept = np.count_nonzero(falling > level, axis=1)
    chosen = np.take_along_axis(level, kept[:, None] - 1, axis=1)
    p, q, r, s = np.maximum(shares - chosen, 0).T
    return np.stack([p + q - r - s, p - q + r - s, p - q - r + s], axis=1)
