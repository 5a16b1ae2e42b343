"""Buffered linear Toeplitz matrices: few real poles in place of n coefficients. [DMPST24]

T has the generating function prod (1 - b_i z) / (1 - a_i z) with 1 > a_1 > b_1 > a_2 > ... > b_d > 0, so that

    T = 1 + sum w_i z / (1 - a_i z),    1 / T = 1 - sum u_i z / (1 - b_i z),    all w_i, u_i > 0 :

sums of d exponentials both ways, which a stream keeps in d numbers and errors are read from in closed form. Poles and
zeros are held as their distances from 1, whose differences keep their digits where memory is long.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from sfumato.errors import PlanError
from sfumato.ground.codec import storable
from sfumato.operators.base import FloatArray, Numbers

__all__ = ["Buffers", "decayed", "residues"]

_CHUNK = 64  # terms of a sum that are scaled together: far fewer than overflow, many enough for numpy
_SLOW = 1e-3  # decay below which a chunk's scales would leave float64; few terms of such sums matter
_REST = 1e-20  # what a term is scaled by at least to be seen in a double's digits


def residues(of: FloatArray, other: FloatArray) -> FloatArray:
    """prod_j (other_j - of_i) / prod_(j != i) (of_j - of_i) along the last axis: (..., d)."""
    top = other[..., None, :] - of[..., :, None]
    rest = of[..., None, :] - of[..., :, None] + np.eye(of.shape[-1])
    return np.asarray(top.prod(axis=-1) / rest.prod(axis=-1), dtype=np.float64)


def decayed(values: FloatArray, decay: float) -> FloatArray:
    """y_t = sum_(k <= t) decay^(t - k) values_k, (n,), for a decay in (0, 1)."""
    n = len(values)
    if decay < _SLOW or n <= _CHUNK:
        out, step, scale = values.copy(), 1, decay
        while step < n and scale > _REST:
            # every pass doubles the number of terms
            out[step:] += scale * out[:-step].copy()
            step, scale = 2 * step, scale * scale
        return out
    padded = np.zeros(-(-n // _CHUNK) * _CHUNK)
    padded[:n] = values
    table = padded.reshape(-1, _CHUNK)
    powers = decay ** np.arange(_CHUNK)
    table /= powers
    np.cumsum(table, axis=1, out=table)
    table *= powers
    carried = decayed(table[:, -1].copy(), decay**_CHUNK)
    table[1:] += np.multiply.outer(carried[:-1], decay * powers)
    return padded[:n]


@storable
@dataclass(frozen=True, eq=False)
class Buffers:
    """1 - a_i (d,) and 1 - b_i (d,), which interlace: poles_1 < zeros_1 < poles_2 < ... < zeros_d < 1."""

    poles: FloatArray
    zeros: FloatArray

    def __post_init__(self) -> None:
        both = [np.array(g, dtype=np.float64) for g in (self.poles, self.zeros)]
        if both[0].ndim != 1 or both[0].shape != both[1].shape or not len(both[0]):
            raise PlanError("buffers have one pole and one zero each, and there is at least one")
        every = np.stack(both, axis=1).reshape(-1)
        if not (np.diff(every, prepend=0.0) > 0).all() or every[-1] >= 1.0:
            raise PlanError("poles and zeros of buffers alternate and rise strictly between 0 and 1")
        for name, values in zip(("poles", "zeros"), both, strict=True):
            values.flags.writeable = False
            object.__setattr__(self, name, values)

    @functools.cached_property
    def outputs(self) -> FloatArray:
        """w_i, (d,)."""
        return residues(self.poles, self.zeros)

    @functools.cached_property
    def returns(self) -> FloatArray:
        """u_i, (d,)."""
        return -residues(self.zeros, self.poles)

    def coefficients(self, lags: Numbers) -> FloatArray:
        """Of T at some lags, (lags,), whole numbers of at least 0."""
        rates = np.log1p(-self.poles).tolist()
        later = sum(w * np.exp((lags - 1) * r) for w, r in zip(self.outputs.tolist(), rates, strict=True))
        return np.asarray(np.where(lags == 0, 1.0, later), dtype=np.float64)
