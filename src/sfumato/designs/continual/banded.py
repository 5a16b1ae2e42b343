"""Strategies over time given entry by entry: bands, the tree as it is taught, the dense optimum. [CSS11, DNPR10]

A stream keeps as many past counts of a cell as there are entries below the diagonal. That is more than poles ask for,
and does what poles cannot: forget at once. A window of k periods has a break at lag k, which a band of 2 k + 1 follows;
and people whose periods are at least b apart meet a band of b once, so k of their periods cost k columns and no more.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from sfumato.designs.continual.bounds import optimal_gram
from sfumato.designs.continual.periods import Periods
from sfumato.designs.continual.questions import Question
from sfumato.designs.ordered.series import inverse_series
from sfumato.errors import PlanError
from sfumato.operators.base import FloatArray
from sfumato.privacy.filters import WindowFilter

__all__ = ["MOST_DENSE", "banded", "dense", "tree", "width_for"]

MOST_DENSE = 1_024  # periods of strategies without structure: as many counts a cell, and 8 MB of entries
_LISTED = 2**17  # entries up to which every column has its own: 1 MB of a plan
_LARGEST = 2**24  # an entry: what is weighed by 2^-10 keeps 14 bits
_STEPS = 200  # of a search, which ends before by its tolerance
_GROWING = ((160, (20, 60), 300), (512, (60,), 40), (1_024, (60,), 10))
"""Streams on which columns are found one by one, each from those of a shorter one: their periods, the power means that
stand for the largest error, and how often errors are looked at, for a CPU-second in all."""
_COLUMNS = 64  # of a gradient that are looked at together


def width_for(given: Periods) -> int | None:
    """The band that suits what is asked; None where no band of few entries does."""
    if any(asked.ranges for asked, _ in given.questions):
        return None
    if given.per_person > 1:
        return min(given.apart, given.count) if given.apart > 1 else None
    longest = [asked.last for asked, _ in given.questions if asked.last is not None]
    if len(longest) < len(given.questions):
        return None
    return min(2 * max(longest) + 1, given.count)


@functools.lru_cache(maxsize=2)
def banded(given: Periods, width: int) -> WindowFilter:
    """A band of so many entries. All columns are of one length where they are few, else all of them are alike."""
    n = given.count
    taps = _taps(given, width)
    if n * width > _LISTED:
        return WindowFilter(np.array([n]), np.rint(taps / abs(taps).max() * _LARGEST)[None].astype(np.int64))
    entries = np.repeat(taps[None], n, axis=0)
    if [asked for asked, _ in given.questions] == [Question()]:
        # what columns have beside those that are all alike, in shares of the stream and the band: from short streams on
        beside, done = np.ones((1, 1)), 0
        for most, peaks, steps in _GROWING:
            short = min(n, most)
            if short > done:
                own = Periods(short, ask=given.ask, objective=given.objective)
                narrow = max(1, round(width * short / n))
                model = _taps(own, narrow)
                beside = _stretched(beside, short, narrow)
                for peak in peaks if given.objective == "worst" else (1,):
                    beside = _entries(model * beside, peak, steps) / model
            done = short
        entries *= _stretched(beside, n, width)
    heard = np.add.outer(np.arange(n), np.arange(width)) < n
    entries = entries * heard
    return _filter(entries / np.sqrt((entries**2).sum(axis=1))[:, None])


def _stretched(table: FloatArray, n: int, width: int) -> FloatArray:
    """(n, width) of a smooth table, between its values."""
    for axis, size in enumerate((n, width)):
        places = (np.arange(size) + 0.5) * table.shape[axis] / size - 0.5
        low = np.clip(np.floor(places).astype(np.intp), 0, max(table.shape[axis] - 2, 0))
        share = np.clip(places - low, 0.0, 1.0).reshape(-1, *(1,) * (1 - axis))
        high = np.minimum(low + 1, table.shape[axis] - 1)
        table = (1 - share) * np.take(table, low, axis) + share * np.take(table, high, axis)
    return table


def _filter(entries: FloatArray) -> WindowFilter:
    """Integers of columns (n, w) that begin on the diagonal."""
    scale = (_LARGEST - 1) / abs(entries).max()
    return WindowFilter(np.ones(len(entries), dtype=np.int64), np.rint(entries * scale).astype(np.int64))


def _taps(given: Periods, width: int) -> FloatArray:
    """Coefficients of a Toeplitz band of least error, as a gradient finds them: of series, by fast convolutions."""
    from scipy.optimize import minimize  # noqa: PLC0415  (slow to import)

    n = given.count
    # errors of a Toeplitz strategy grow: the worst period is the last
    left = np.ones(n) if given.objective == "worst" else (n - np.arange(n)) / n
    asked = [(question.weights(n)[::-1], weight) for question, weight in given.questions]

    def value(taps: FloatArray) -> tuple[float, FloatArray]:
        from scipy.signal import fftconvolve  # noqa: PLC0415  (slow to import)

        inverse = inverse_series(np.append(taps, np.zeros(n - width)))
        error, slope = 0.0, np.zeros(width)
        for lags, weight in asked:
            answer = fftconvolve(lags, inverse)[:n]
            error += weight * float(left @ answer**2)
            back = fftconvolve(left * answer, fftconvolve(answer, inverse)[:n][::-1])
            slope -= 2 * weight * back[n - 1 : n - 1 + width]
        price = float(taps @ taps)
        return math.log(error * price) / 2, (slope / error + 2 * taps / price) / 2

    lags = np.arange(1, width)
    start = np.cumprod(np.concatenate([[1.0], (2 * lags - 1) / (2 * lags)]))  # the square root of sums
    found = minimize(
        value, start, jac=True, method="L-BFGS-B", options={"maxiter": _STEPS, "maxcor": 30, "ftol": 1e-12}
    )
    return np.asarray(found.x)


def _entries(start: FloatArray, power: int, steps: int) -> FloatArray:
    """(n, w) columns in a band whose totals err least for columns of length 1: a power mean of all periods' variances.

    From the inverse, in which totals are sums of rows; its gradient is wanted in the band alone.
    """
    from scipy.linalg.lapack import dlauum, dtrtri  # noqa: PLC0415  (as scipy.optimize)
    from scipy.optimize import minimize  # noqa: PLC0415  (slow to import)

    n, width = start.shape
    columns, lags = np.indices((n, width))
    inside = columns + lags < n
    at = (columns + lags)[inside], columns[inside]

    def value(vector: FloatArray) -> tuple[float, FloatArray]:
        matrix = np.zeros((n, n), order="F")
        matrix[at] = vector
        lengths = np.sqrt((matrix**2).sum(axis=0))
        matrix /= lengths
        inverse = np.tril(dtrtri(matrix, lower=1)[0])
        answers = np.cumsum(inverse, axis=0)
        variances = (answers**2).sum(axis=1)
        error = float(np.log((variances**power).sum())) / power
        share = variances ** (power - 1) / (variances**power).sum()
        gram = np.tril(dlauum(np.asfortranarray(np.sqrt(share)[:, None] * answers), lower=1)[0])
        gram += np.tril(gram, -1).T
        slope = np.empty((n, n), order="F")
        for u in range(0, n, _COLUMNS):
            some, rows = slice(u, u + _COLUMNS), slice(u, u + _COLUMNS + width)
            slope[rows, some] = -gram[rows, : some.stop] @ inverse[some, : some.stop].T
        found, unit = slope[at], matrix[at]
        along = np.bincount(at[1], weights=found * unit)
        return error / 2, (found - unit * along[at[1]]) / lengths[at[1]]

    found = minimize(value, start[inside], jac=True, method="L-BFGS-B", options={"maxfun": steps, "ftol": 1e-9})
    out = start.copy()
    out[inside] = found.x
    return out


def tree(given: Periods) -> WindowFilter:
    """The binary tree as it is taught: in period t, from 1, the sum of the last 2^j, of the largest such power in t.

    Of all nodes of a tree these are the ones that sums from the beginning are added up of, at most one for each binary
    digit of t; a record is in at most one for each level. Raises PlanError.
    """
    n = _few(given, "tree")
    ends = np.arange(1, n + 1)
    begins = ends - (ends & -ends)
    periods, lags = np.indices((n, n))
    later = np.minimum(periods + lags, n - 1)
    heard = (begins[later] <= periods) & (periods + lags < n)
    return _filter(heard.astype(np.float64))


def dense(given: Periods) -> WindowFilter:
    """The best of all strategies, in its lower-triangular form: any Gram matrix has one. Raises PlanError."""
    n = _few(given, "dense")
    if given.objective != "mean":
        raise PlanError("strategy='dense' is the best in the mean: sf.periods(..., objective='mean')")
    lower = np.linalg.cholesky(optimal_gram(given.questions, n)[::-1, ::-1])[::-1, ::-1].T
    entries = np.zeros((n, n))
    for u in range(n):
        entries[u, : n - u] = lower[u:, u]
    return _filter(entries)


def _few(given: Periods, name: str) -> int:
    if given.count > MOST_DENSE or given.per_person > 1:
        raise PlanError(
            f"strategy={name!r} keeps a count for every period: it is for up to {MOST_DENSE:,} periods, and people in "
            "one of them"
        )
    return given.count
