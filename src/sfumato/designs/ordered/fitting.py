"""Buffers and scales of rows that err least, found on geometric blocks: the work does not grow with the cells.

The strategy is B = diag(r) T diag(w), T of `Buffers`, with w such that all columns have length 1. With u = 1 / w the
prefixes are answered by R = L diag(u) T^-1 diag(1 / r), whose rows are sums of exponentials,

    g_t(k) = A(k) + sum_i C_i(t) b_i^(t - k),    C_i(t) = u_i sum_(j > t) u(j) b_i^(j - t - 1),    A = u - sum_i C_i,

so that the variance of prefix t, sum_k g_t(k)^2 / r_k^2, is read from filters over pairs of poles. Rows and lengths of
columns are taken as constant on blocks that grow from both ends of the cells; then every filter has a closed form on
a block. What is found is measured exactly elsewhere: see `buffered`.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sfumato.designs.ordered.buffers import Buffers, residues
from sfumato.operators.base import FloatArray

__all__ = ["SHAPES", "Asked", "Geometric", "Parameters", "fit", "row_scale"]

Asked = Literal["prefixes", "ranges", "largest"]
"""What is to be small: the mean variance of all prefixes, of all ranges, or the largest variance of a prefix."""

SHAPES = 6  # functions of which rows are scaled: more gain less than 1e-4
_LEAST = 64  # rows, of which shapes are independent
_SINGLE = 8  # rows at each end that are blocks by themselves, where all changes fastest
_PER_OCTAVE = 6  # blocks: twice as many find parameters that err 1e-4 less
_PEAK = 40.0  # the power mean that stands for the largest: within 3 % of it, and smooth
_WIDEST = 0.3  # of a shape's coefficient: more gains 1e-4 at most, and blocks no longer tell what they average over
# what squared coefficients and squared differences of gaps cost, so that of parameters that err alike to a part in
# 10^5 the same are found at every n, and lie between those of near ones
_SMOOTH, _EVEN = 1e-4, 1e-5
_STEP = 1e-5  # of central differences: their errors are 1e-10 relative, below what is asked of the optimum
_STEPS = 400  # of the search: it ends before by its tolerance


@functools.cache
def _blocks(n: int) -> tuple[FloatArray, FloatArray]:
    """(lengths, middles) of blocks of n cells that grow geometrically from both ends."""
    half = n // 2
    octaves = np.arange(_PER_OCTAVE * n.bit_length()) / _PER_OCTAVE
    ends = np.unique(np.concatenate([np.arange(_SINGLE + 1.0), np.rint(_SINGLE * 2**octaves)]))
    ends = ends[ends <= half]
    edges = np.unique(np.concatenate([ends, n - ends]))
    return np.diff(edges), (edges[:-1] + edges[1:] - 1) / 2


def _shapes(places: FloatArray, n: int) -> FloatArray:
    """(places, SHAPES): what logarithms of row scales are made of, before they are made independent."""
    size = np.log(n)
    after, before, share = np.log(n - places) / size, np.log(places + 1) / size, (places + 0.5) / n
    return np.stack([after, before, after**2, before**2, share, share**2], axis=-1)


@functools.cache
def _basis(n: int) -> tuple[FloatArray, FloatArray]:
    """(mean, matrix) by which shapes become orthonormal over cells and blocks alike."""
    lengths, middles = _blocks(n)
    weights = lengths / n + 1 / len(lengths)
    weights /= weights.sum()
    shapes = _shapes(middles, n)
    mean = weights @ shapes
    upper = np.linalg.qr((shapes - mean) * np.sqrt(weights)[:, None])[1]
    return mean, np.linalg.inv(upper * np.sign(np.diagonal(upper))[:, None])


def row_scale(n: int, shape: FloatArray, places: FloatArray | None = None) -> FloatArray:
    """Positive scales r of the rows at some places (all n by default), for coefficients (SHAPES,) or (..., SHAPES).

    Fewer than 64 rows are the last of as many.
    """
    if n < _LEAST:
        return row_scale(_LEAST, shape)[_LEAST - n :]
    mean, matrix = _basis(n)
    where = np.arange(float(n)) if places is None else places
    return np.exp((_shapes(where, n) - mean) @ (matrix @ shape.T))


@dataclass(frozen=True, slots=True)
class Parameters:
    """Buffers by the logit of the first pole's distance from 1 and the logs of the gaps between all logits, and rows.

    `gaps` (2 d,) begins with that first logit; `shape` (SHAPES,).
    """

    gaps: FloatArray
    shape: FloatArray

    @classmethod
    def of(cls, vector: FloatArray) -> Parameters:
        """From one vector, or from several in rows."""
        return cls(vector[..., :-SHAPES], vector[..., -SHAPES:])

    @property
    def vector(self) -> FloatArray:
        return np.concatenate([self.gaps, self.shape], axis=-1)

    @property
    def decays(self) -> tuple[FloatArray, FloatArray]:
        """Distances from 1 of poles and of zeros."""
        logits = np.cumsum(np.concatenate([self.gaps[..., :1], np.exp(self.gaps[..., 1:])], axis=-1), axis=-1)
        distances = 1 / (1 + np.exp(-logits))
        return distances[..., 0::2], distances[..., 1::2]

    @property
    def buffers(self) -> Buffers:
        return Buffers(*self.decays)


@dataclass(frozen=True, slots=True)
class _Filter:
    """sum_k rate^(t - k) x_k over blocks, for several rates at once: (blocks, ..., rates)."""

    power: FloatArray  # rate^length
    sums: FloatArray  # 1 + rate + ... + rate^(length - 1)
    mean: FloatArray  # sums / length
    rest: FloatArray  # (1 - rate), inverted
    rate: FloatArray

    @classmethod
    def of(cls, logs: FloatArray, lengths: FloatArray) -> _Filter:
        long = lengths.reshape(-1, *(1,) * logs.ndim)
        sums = np.expm1(long * logs) / np.expm1(logs)
        return cls(np.exp(long * logs), sums, sums / long, -1 / np.expm1(logs), np.exp(logs))

    def forward(self, values: FloatArray) -> FloatArray:
        """Means over blocks of y_t = sum_(k <= t) rate^(t - k) x_k for x constant on blocks (blocks, ...)."""
        carried = np.zeros_like(self.rate)
        own = self.rate * self.mean
        out = np.empty_like(self.mean)
        for b, x in enumerate(values[..., None]):
            out[b] = x * (1 - own[b]) * self.rest + own[b] * carried
            carried = x * self.sums[b] + self.power[b] * carried
        return out

    def backward(self, values: FloatArray) -> FloatArray:
        """Means over blocks of y_t = sum_(k > t) rate^(k - t - 1) x_k."""
        carried = np.zeros_like(self.rate)
        out = np.empty_like(self.mean)
        for b in range(len(values) - 1, -1, -1):
            x = values[b][..., None]
            out[b] = x * (1 - self.mean[b]) * self.rest + self.mean[b] * carried
            carried = x * self.sums[b] + self.power[b] * carried
        return out


@dataclass(frozen=True, slots=True)
class Geometric:
    """n cells in geometric blocks, on which errors of a strategy are read whatever n is."""

    n: int

    def variances(self, given: Parameters) -> tuple[FloatArray, FloatArray]:
        """Variances of prefixes, and sums over k of (sum_t g_t(k))^2 / r_k^2, by block: (blocks, ...) each.

        `given` may hold several parameters in rows.
        """
        lengths, middles = _blocks(self.n)
        poles, zeros = given.decays
        first, second = np.triu_indices(poles.shape[-1])
        double = np.where(first == second, 1.0, 2.0)
        outputs, returns = residues(poles, zeros), -residues(zeros, poles)
        squares = row_scale(self.n, given.shape, middles) ** 2
        slow, fast = np.log1p(-poles), np.log1p(-zeros)
        pairs = _Filter.of(slow[..., first] + slow[..., second], lengths).backward(squares)
        columns = squares + (outputs[..., first] * outputs[..., second] * double * pairs).sum(axis=-1)
        cells = np.sqrt(columns)
        single = _Filter.of(fast, lengths)
        ahead = returns * single.backward(cells)
        base = cells - ahead.sum(axis=-1)
        left = (self.n - middles).reshape(-1, *(1,) * (cells.ndim - 1)) * cells
        every = left - (returns * single.backward(left)).sum(axis=-1)
        noise = 1 / squares
        long = lengths.reshape(-1, *(1,) * (cells.ndim - 1))
        steady = noise * base**2
        out = np.cumsum(long * steady, axis=0) - steady * (long - 1) / 2
        out += 2 * (ahead * single.forward(noise * base)).sum(axis=-1)
        pairs = _Filter.of(fast[..., first] + fast[..., second], lengths).forward(noise)
        out += (ahead[..., first] * ahead[..., second] * double * pairs).sum(axis=-1)
        return out, noise * every**2

    def error(self, given: Parameters, asked: Asked) -> FloatArray:
        """The standard error at unit noise and columns of length 1 of what is asked, about: shape (...)."""
        n, lengths = self.n, _blocks(self.n)[0]
        variances, sums = self.variances(given)
        if asked == "prefixes":
            return np.sqrt(lengths @ variances / n)
        if asked == "ranges":
            return np.sqrt(((n + 1) * (lengths @ variances) - lengths @ sums) / (n * (n + 1) / 2))
        share = (lengths / n + 1 / len(lengths)) / 2
        top = variances.max(axis=0)
        return np.sqrt(top * (share @ (variances / top) ** _PEAK) ** (1 / _PEAK))


def fit(n: int, asked: Asked, buffers: int = 8, start: Parameters | None = None) -> Parameters:
    """Parameters of least error for n cells: some CPU-seconds, whatever n is. `start` is what is known of a near n."""
    from scipy.optimize import minimize  # noqa: PLC0415  (slow to import)

    geometric = Geometric(n)
    if start is None:
        gap = np.log((np.log(n) + 2) / (2 * buffers))
        start = Parameters(np.append(-np.log(n), np.full(2 * buffers - 1, gap)), np.zeros(SHAPES))
    size = len(start.vector)
    around = np.concatenate([np.zeros((1, size)), _STEP * np.eye(size), -_STEP * np.eye(size)])

    def value(vector: FloatArray) -> tuple[float, FloatArray]:
        with np.errstate(all="ignore"):
            tried = Parameters.of(vector + around)
            found = np.log(geometric.error(tried, asked)) + _SMOOTH * (tried.shape**2).sum(axis=-1)
            found += _EVEN * (np.diff(tried.gaps[..., 1:]) ** 2).sum(axis=-1)
        if not np.isfinite(found).all():
            return 1e3, np.zeros(size)
        return float(found[0]), (found[1 : size + 1] - found[size + 1 :]) / (2 * _STEP)

    done = minimize(
        value,
        start.vector,
        jac=True,
        method="L-BFGS-B",
        bounds=[(None, None)] * (size - SHAPES) + [(-_WIDEST, _WIDEST)] * SHAPES,
        options={"maxiter": _STEPS, "maxcor": 30, "ftol": 1e-11},
    )
    return Parameters.of(np.asarray(done.x))
