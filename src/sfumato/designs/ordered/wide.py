"""A lower bound for windows that take half of the cells or more, from the waves of a matrix that turns its sign.

Of `rows` windows, cells that all of them hold are alike, and one stands for all: cell j of the first `rows` lies in
windows 0 to j, and cell rows + j in the others. With d_j = 1/2 in rows up to j and -1/2 below these are the columns
1/2 + d_j and 1/2 - d_j of F. D = (d_0, ..., d_(rows - 1)) is negacyclic: its eigenvectors are waves of angles
a_p = (2p + 1) pi / rows, its eigenvalues 1 / (1 - exp(i a_p)), and D = |D| U. As d_(rows - 1) is 1/2,
F Fᵀ = 2 D Dᵀ + rows / 2 1 1ᵀ.

A contraction P and weights v of sum 1 on the cells prove that no factorization errs less than sum_j q_j v_j^(1/2),
q_j = <P_j, F_j>; the best v makes it the length of q. P is (Q F Fᵀ Q)^(-1/2) Q F on the slowest waves, projector Q,
in which 1 has most of its length, and (1 - Q) U (1, -1) / sqrt 2 on the others, where 1 1ᵀ adds nothing. They have
orthogonal rows.
"""

from __future__ import annotations

import math

import numpy as np

from sfumato.operators.base import FloatArray
from sfumato.operators.blas import single_thread

__all__ = ["wide_bound"]

_WAVES = 24  # of them and their conjugates: with twice as many the bound is .1 % higher
_CHUNK = 2**16  # cells at a time: 50 MB of waves


def wide_bound(rows: int) -> float:
    """A lower bound of the root of the sum of variances of `rows` windows that are at least as wide, at unit noise and
    columns of length at most 1; 3 to 4 % below the optimum."""
    few = min(_WAVES, rows // 2)
    turns = np.asarray((2 * np.arange(rows) + 1) * (math.pi / rows), dtype=np.float64)
    values = 1 / (1 - np.exp(1j * turns))
    phases = values / np.abs(values)
    phases[:few] = phases[rows - few :] = 0.0
    # entry (k, j) of (1 - Q) U is kernel (k - j), which turns its sign with every turn
    kernel = (np.fft.ifft(phases) * np.exp(1j * turns[0] * np.arange(rows))).real
    sums = np.append(0.0, np.cumsum(kernel))
    cell = np.arange(rows)
    first = (kernel[0] - sums[rows] + sums[rows - cell]) / math.sqrt(2)
    second = (sums[1] - sums[rows - cell]) / math.sqrt(2)
    if few:
        turned, weights = _slow(turns[:few], np.abs(values[:few]), rows)
        for a in range(0, rows, _CHUNK):
            some = _partial(turns[:few], cell[a : a + _CHUNK], rows)
            first[a : a + _CHUNK] += (some @ turned) ** 2 @ weights
            second[a : a + _CHUNK] += ((some - _partial(turns[:few], cell[-1:], rows)) @ turned) ** 2 @ weights
    # all windows hold the middle cell: it is one of the first alone
    return math.sqrt(float(first @ first) + float(second[:-1] @ second[:-1])) * (1 - 1e-9)


def _partial(turns: FloatArray, cells: np.ndarray[tuple[int], np.dtype[np.intp]], rows: int) -> FloatArray:
    """(cells, 2 few) sums of the normalised slow waves, cosines and sines, over rows 0 to j."""
    found = (1 - np.exp(1j * turns * (cells[:, None] + 1))) / (1 - np.exp(1j * turns)) * math.sqrt(2 / rows)
    return np.concatenate([found.real, found.imag], axis=1)


def _slow(turns: FloatArray, sizes: FloatArray, rows: int) -> tuple[FloatArray, FloatArray]:
    """Eigenvectors of F Fᵀ on the slow waves, and the inverse roots of its eigenvalues."""
    ones = _partial(turns, np.array([rows - 1]), rows)[0]
    gram = np.diag(np.concatenate([2 * sizes**2] * 2)) + rows / 2 * np.multiply.outer(ones, ones)
    with single_thread():
        squares, vectors = np.linalg.eigh(gram)
    return vectors, 1 / np.sqrt(squares)
