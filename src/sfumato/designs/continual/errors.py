"""What answers over time err, from the integers of a filter: variances for noise of variance 1 in each value."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sfumato.designs.continual.curves import Curves, Every
from sfumato.designs.continual.questions import Question
from sfumato.designs.ordered.series import inverse_series
from sfumato.operators.base import FloatArray
from sfumato.privacy.filters import IntegerFilter, WindowFilter

__all__ = ["TimeErrors", "errors_of"]


class TimeErrors(ABC):
    """Variances of answers over time at unit noise."""

    @functools.cached_property
    def _found(self) -> dict[Question, FloatArray]:
        return {}

    def of(self, asked: Question) -> FloatArray:
        """(periods,) of a question at every period; of ranges the mean of those that end there."""
        if asked not in self._found:
            self._found[asked] = self._of(asked)
        return self._found[asked]

    @property
    def totals(self) -> FloatArray:
        """(periods,) of the sum of all periods up to each."""
        return self.of(Question())

    @property
    def increments(self) -> FloatArray:
        """(periods,) of every period by itself."""
        return self.of(Question(rate=0.0))

    def together(self, questions: Sequence[tuple[Question, float]]) -> FloatArray:
        """(periods,) of several questions, by their weights."""
        return np.sum([weight * self.of(asked) for asked, weight in questions], axis=0)

    def mean(self, questions: Sequence[tuple[Question, float]]) -> float:
        """Over all that is asked of all periods together."""
        out = 0.0
        for asked, weight in questions:
            found = self.of(asked)
            # as many ranges end at a period as there were
            ends = np.arange(1, len(found) + 1) * 2 / (len(found) + 1) if asked.ranges else np.ones(len(found))
            out += weight * float((found * ends).mean())
        return out

    @abstractmethod
    def _of(self, asked: Question) -> FloatArray: ...

    @abstractmethod
    def variance(self, weights: FloatArray) -> float:
        """Of sum_t weights_t x_t; (m,) weights of the first m periods."""


def errors_of(used: IntegerFilter | WindowFilter) -> TimeErrors:
    """Of either filter."""
    return FilterErrors(used) if isinstance(used, IntegerFilter) else WindowErrors(used)


@dataclass(frozen=True, eq=False)
class FilterErrors(TimeErrors):
    """By linear recursions.

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
    def _curves(self) -> Curves:
        poles, gains = (list(a) for a in self._inverse)
        return Curves(Every(self.filter.periods), poles, gains, 1 / self._direct, self._noise)

    def _of(self, asked: Question) -> FloatArray:
        return self._curves.of(asked)

    def variance(self, weights: FloatArray) -> float:
        from scipy.signal import lfilter  # noqa: PLC0415  (slow to import)

        poles, gains = self._inverse
        given = weights / self._direct[: len(weights)]
        out = given.copy()
        for pole, gain in zip(poles, gains, strict=True):
            later = lfilter([1.0], [1.0, -pole], given[::-1])[::-1]
            out[:-1] -= gain * later[1:]
        return float(self._noise[: len(weights)] @ out**2)


@dataclass(frozen=True, eq=False)
class WindowErrors(TimeErrors):
    """From the inverse of a filter without states: a matrix, or a series where all columns are alike."""

    filter: WindowFilter

    @functools.cached_property
    def _series(self) -> FloatArray:
        """(periods,) coefficients of the inverse."""
        n, taps = self.filter.periods, self.filter.taps[0].astype(np.float64)
        return inverse_series(np.append(taps, np.zeros(n))[:n])

    @functools.cached_property
    def _matrix(self) -> FloatArray:
        """(periods, periods) the inverse."""
        from scipy.linalg import solve_triangular  # noqa: PLC0415  (slow to import)

        n, taps = self.filter.periods, np.repeat(self.filter.taps, self.filter.runs, axis=0)
        found = np.zeros((n, n))
        for lag in range(min(n, taps.shape[1])):
            found[np.arange(lag, n), np.arange(n - lag)] = taps[: n - lag, lag]
        return np.asarray(solve_triangular(found, np.eye(n), lower=True))

    def _of(self, asked: Question) -> FloatArray:
        from scipy.signal import fftconvolve  # noqa: PLC0415  (slow to import)

        n = self.filter.periods
        if len(self.filter.runs) > 1:
            return self._of_matrix(asked)
        lags = Question().weights(n) if asked.ranges else asked.weights(n)[::-1]
        answer = fftconvolve(lags, self._series)[:n]
        out = np.cumsum(answer**2)
        if not asked.ranges:
            return out
        # of H_j - H_(j-m), H the answer of totals, over all m up to t + 1
        both = np.cumsum(answer * (np.cumsum(answer) - answer))
        return out + (np.cumsum(out) - out - 2 * both) / np.arange(1, n + 1)

    def _of_matrix(self, asked: Question) -> FloatArray:
        from scipy.signal import lfilter  # noqa: PLC0415  (slow to import)

        inverse = self._matrix
        if not asked.ranges and asked.last is None:
            return (lfilter([1.0], [1.0, -asked.rate], inverse, axis=0) ** 2).sum(axis=1)
        sums = np.cumsum(inverse, axis=0)
        before = np.concatenate([np.zeros_like(sums[:1]), sums[:-1]])
        if asked.last is not None:
            earlier = np.concatenate([np.zeros((asked.last, len(sums))), sums])[: len(sums)]
            return ((sums - earlier) ** 2).sum(axis=1)
        count = np.arange(1, len(sums) + 1)
        squares = np.cumsum((before**2).sum(axis=1))
        return (sums**2).sum(axis=1) + (squares - 2 * (sums * np.cumsum(before, axis=0)).sum(axis=1)) / count

    def variance(self, weights: FloatArray) -> float:
        from scipy.signal import fftconvolve  # noqa: PLC0415  (slow to import)

        m = len(weights)
        if len(self.filter.runs) > 1:
            return float(((weights @ self._matrix[:m]) ** 2).sum())
        return float((fftconvolve(weights[::-1], self._series[:m])[:m] ** 2).sum())
