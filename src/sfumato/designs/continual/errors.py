"""What answers over time err, from the integers of the filter: variances at unit noise, by linear recursions."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from scipy.signal import lfilter

from sfumato.operators.base import FloatArray
from sfumato.privacy.filters import IntegerFilter

__all__ = ["TimeErrors"]


@dataclass(frozen=True, eq=False)
class TimeErrors:
    """Variances of answers over time where each measured value has noise of variance 1.

    x = C^-1 y is what a filter run backwards makes of the noise y: with zeta_t = 2^shift y_t / r_t,
    x_t = (zeta_t - sum_i u_i q_i) / c_t and q_i <- b_i q_i + zeta_t. Exact for the integers of the filter, up to what
    the floors of b_it / c_t differ by.
    """

    filter: IntegerFilter

    @functools.cached_property
    def _inverse(self) -> tuple[FloatArray, FloatArray]:
        """The poles b_i of the inverse and u_i."""
        f = self.filter
        top = int(np.argmax(f.direct))
        weights = f.carried[top] / float(f.direct[top])
        # the inverse of 1 + sum w_i z / (1 - a_i z) has the eigenvalues of its state matrix as poles
        values, vectors = np.linalg.eig(np.diag(f.decay_rates) - np.outer(weights, np.ones(len(weights))))
        gains = np.linalg.solve(vectors, weights.astype(vectors.dtype)) * vectors.sum(axis=0)
        return np.real(values), np.real(gains)

    @functools.cached_property
    def _noise(self) -> FloatArray:
        """(periods,) the variance of zeta."""
        f = self.filter
        return np.repeat((2.0**f.shift / f.rows) ** 2, f.runs)

    @functools.cached_property
    def _direct(self) -> FloatArray:
        """(periods,) c."""
        return np.repeat(self.filter.direct.astype(np.float64), self.filter.runs)

    @functools.cached_property
    def _curves(self) -> tuple[FloatArray, FloatArray]:
        poles, gains = self._inverse
        noise, c = self._noise, self._direct
        n, d = len(c), len(poles)
        single = noise.copy()
        mixed = [noise.copy() for _ in range(d)]
        for i in range(d):
            for j in range(i + 1):
                # of states i and j before period t
                both = np.concatenate([[0.0], lfilter([1.0], [1.0, -poles[i] * poles[j]], noise)[:-1]])
                single += (1 if i == j else 2) * gains[i] * gains[j] * both
                mixed[j] -= poles[j] * gains[i] * both
                if i != j:
                    mixed[i] -= poles[i] * gains[j] * both
        carried = np.zeros(n)
        for pole, gain, given in zip(poles, gains, mixed, strict=True):
            kept = lfilter([1.0], [1.0, -pole], given / c)
            carried[1:] -= gain * kept[:-1]
        return np.cumsum(single / c**2 + 2 * carried / c), single / c**2

    @property
    def totals(self) -> FloatArray:
        """(periods,) of the sum of all periods up to each."""
        return self._curves[0]

    @property
    def increments(self) -> FloatArray:
        """(periods,) of every period by itself."""
        return self._curves[1]

    def variance(self, weights: FloatArray) -> float:
        """Of sum_t weights_t x_t; (m,) weights of the first m periods."""
        poles, gains = self._inverse
        given = weights / self._direct[: len(weights)]
        out = given.copy()
        for pole, gain in zip(poles, gains, strict=True):
            later = lfilter([1.0], [1.0, -pole], given[::-1])[::-1]
            out[:-1] -= gain * later[1:]
        return float(self._noise[: len(weights)] @ out**2)
