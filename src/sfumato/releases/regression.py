"""Least squares of one measure on others, from noisy moments, with intervals that hold.

The moments of 1, x and y within a group are a matrix M = L L' that no direction makes negative. With the variables in
the order 1, other x, the x of a coefficient, y, and L lower triangular, that coefficient is L[y, x] / L[x, x]: a line
through 0 on which two entries lie, so that all matrices with that coefficient are quadratic in fewer numbers. R² is the
share of y's row that lies beside its last entry. Of all matrices with a coefficient, or an R², the one nearest to the
noisy moments, in units of their noise, has a distance; the interval holds what is beyond the least distance of all by
no more than a normal number's square is, with the confidence asked. Where x may not vary at all beside the others as
far as noise tells, every coefficient is as near as that, and the interval has no bounds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sfumato._util.frames import Frame, safe_text
from sfumato.cells import MAX_MEASURES
from sfumato.errors import PlanError
from sfumato.operators.base import FloatArray
from sfumato.plans.predictions import check_confidence, widest_sum_margin
from sfumato.releases.answers import SIZE_ERRORS, too_few_note
from sfumato.releases.ends import column_heading
from sfumato.releases.moments import inverse_covariance, moment_powers, read_moments
from sfumato.releases.nearest import NEAR, interval_within, with_neighbours
from sfumato.releases.quantiles import by_names

if TYPE_CHECKING:
    from sfumato.releases.release import Release

CONSTANT, R_SQUARED = "constant", "R²"
"""What the rows beside those of coefficients are called."""

_STEPS = (1.0, 1.5, 2.0, 2.5, 3.0, 5.0, 12.0)  # standard errors from the estimate, where ends mostly lie
_ROUNDS = 100  # of Newton's method, which mostly takes ten
_ASIDE = 0.1  # of the units in which all parameters are near 1: a step off a saddle, shorter where it leads up
_LEAST = 0.3  # standard errors of a square by which it is taken larger where it sets a scale
_FLAT = 1e-9  # of half a range squared: projected x that vary by less beside the others explain nothing
_NO_BOUNDS = "no bounds: as far as the noise tells, {} may not vary beside the others"
_ANY_SHARE = "no bounds: as far as the noise tells, it may be anything from 0 to 1"


def _places(count: int) -> NDArray[np.intp]:
    """(moments, 2) the row and column of 1, x, y's matrix in which each moment of so many measures lies."""
    found: list[tuple[int, int]] = []
    for powers in moment_powers(count):
        own = [i + 1 for i, p in enumerate(powers) for _ in range(p)]
        own = [0] * (2 - len(own)) + own
        found.append((own[0], own[1]))
    return np.array(found, dtype=np.intp)


def _forms(turns: FloatArray, places: NDArray[np.intp]) -> FloatArray:
    """(..., moments, parameters, parameters) quadratic forms: the moments of the sum over parameters of p times
    `turns` (..., parameters, variables, columns), multiplied by its transpose."""
    rows, columns = turns[..., places[:, 0], :], turns[..., places[:, 1], :]
    found = np.einsum("...pkc,...qkc->...kpq", rows, columns)
    return (found + np.swapaxes(found, -1, -2)) / 2


def _nearest(
    forms: FloatArray, values: FloatArray, weight: FloatArray, start: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """(distances, parameters) of the nearest moments p' Q p, by Newton's method from each start (starts, parameters).

    Directions along which the distance is curved downwards are walked down as if it were curved upwards, and at a
    saddle, where a column of the root vanished on the way, a step aside is made.
    """
    place, damping = start.copy(), np.full(len(start), 1e-3)

    def look(p: FloatArray, q: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        slopes = np.einsum("bkij,bj->bki", q, p)
        off = values - np.einsum("bki,bi->bk", slopes, p)
        return slopes, (pull := off @ weight), (off * pull).sum(axis=1)

    slopes, pull, found = look(place, forms)
    going = np.arange(len(start))
    for _ in range(_ROUNDS):
        slope = -4 * np.einsum("bki,bk->bi", slopes, pull)
        bent = 8 * slopes.transpose(0, 2, 1) @ (weight @ slopes)
        bent -= 4 * np.einsum("bk,bkij->bij", pull, forms[going])
        bends, axes = np.linalg.eigh(bent)
        curve = np.abs(bends)
        top = curve.max(axis=1, keepdims=True)
        along = np.einsum("bij,bi->bj", axes, slope)
        curve = np.maximum(curve, 1e-12 * top + 1e-300)
        step = -np.einsum("bij,bj->bi", axes, along / (curve + damping[going, None] * top))
        done = (along**2 / curve).sum(axis=1) <= NEAR
        saddle = done & (-bends[:, 0] * _ASIDE**2 > NEAR)
        step[saddle] = axes[saddle, :, 0] * np.minimum(_ASIDE, 1e-4 / damping[going[saddle], None])
        trial = look(place[going] + step, forms[going])
        better = trial[2] < found[going]
        place[going[better]] += step[better]
        found[going[better]] = trial[2][better]
        damping[going] = np.where(better, damping[going] / 10, np.maximum(damping[going] * 10, 1e-8))
        left = (~done | saddle) & (damping[going] < 1e6)
        slopes = np.where(better[:, None, None], trial[0], slopes)[left]
        pull = np.where(better[:, None], trial[1], pull)[left]
        going = going[left]
        if not len(going):
            break
    return found, place


def _nearest_of(
    forms: FloatArray, values: FloatArray, weight: FloatArray, starts: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """The nearest that several starts (ways, forms, parameters) of each of the forms find, and where these are."""
    ways, count, _ = starts.shape
    found, places = _nearest(np.tile(forms, (ways, 1, 1, 1)), values, weight, starts.reshape(ways * count, -1))
    best = found.reshape(ways, count).argmin(axis=0)
    return found.reshape(ways, count)[best, np.arange(count)], places.reshape(starts.shape)[best, np.arange(count)]


def _lower(size: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(size) for j in range(i + 1)]


def _unit(size: int, columns: int, i: int, j: int) -> FloatArray:
    found = np.zeros((size, columns))
    found[i, j] = 1.0
    return found


class _Group:
    """The moments of one group, and what they leave possible.

    values, noise: of 1, x and y between -1 and 1. shift: what is added to each of these to measure it from 0, so that
    the coefficient of 1 is that of the numbers themselves.
    """

    def __init__(self, values: FloatArray, noise: FloatArray, width: float, shift: FloatArray) -> None:
        self.values, self.noise, self.width = values, noise, width
        self.weight = inverse_covariance(noise)
        self.size = len(shift) + 1  # of 1, x and y
        self.places = _places(len(shift))
        self.shift = np.eye(self.size)
        self.shift[1:, 0] = shift
        self.base, self.matrix = self._project()

    def _matrix(self, values: FloatArray) -> FloatArray:
        found = np.zeros((self.size, self.size))
        for (i, j), v in zip(self.places.tolist(), values.tolist(), strict=True):
            found[i, j] = found[j, i] = v
        return found

    def _room(self) -> FloatArray:
        """Per variable some of the noise of its square: below that nothing is told apart, so it sets a scale."""
        return np.diag(self._matrix(np.sqrt(np.maximum(np.diagonal(self.noise), 0.0)))).copy() * _LEAST

    def _project(self) -> tuple[float, FloatArray]:
        """The least distance of all possible moments, and the matrix that has it."""
        raw = self._matrix(self.values)
        values, vectors = np.linalg.eigh(raw)
        if values[0] >= 0:
            return 0.0, raw
        scale = np.linalg.cholesky((vectors * np.maximum(values, 0.0)) @ vectors.T + np.diag(self._room()))
        turns = np.stack([_unit(self.size, self.size, i, j) for i, j in _lower(self.size)])
        forms = _forms(scale @ turns, self.places)[None]
        start = np.array([[float(i == j) for i, j in _lower(self.size)]])
        found, place = _nearest(forms, self.values, self.weight, start)
        root = scale @ np.tensordot(place[0], turns, 1)
        return float(found[0]), root @ root.T

    # -- estimates -----------------------------------------------------------------------------------------

    def estimates(self) -> tuple[FloatArray, FloatArray, float, float]:
        """Coefficients, their standard errors, and R² with its own, by the slopes at the nearest moments."""
        whole = self.shift @ self.matrix @ self.shift.T
        inner = np.linalg.pinv(whole[:-1, :-1], hermitian=True)
        beta = inner @ whole[:-1, -1]
        slopes = np.zeros((self.size, len(self.places)))  # of coefficients and, last, of R²
        mean = self.matrix[0, -1] / self.matrix[0, 0]
        total = max(self.matrix[-1, -1] - mean * self.matrix[0, -1], float(self._room()[-1]), 1e-300)
        ray = np.append(-beta, 1.0)
        rest = max(float(ray @ whole @ ray), 0.0)
        for k in range(len(self.places)):
            change = self._matrix(np.eye(len(self.places))[k])
            moved = self.shift @ change @ self.shift.T
            slopes[:-1, k] = inner @ (moved[:-1, -1] - moved[:-1, :-1] @ beta)
            spread = change[-1, -1] - 2 * mean * change[0, -1] + mean**2 * change[0, 0]
            slopes[-1, k] = -float(ray @ moved @ ray) / total + rest * spread / total**2
        errors = np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", slopes, self.noise, slopes), 0.0))
        return beta, errors[:-1], float(np.clip(1 - rest / total, 0.0, 1.0)), float(errors[-1])

    # -- intervals -----------------------------------------------------------------------------------------

    def coefficient_interval(self, j: int, error: float) -> tuple[float, float] | None:
        """The coefficients of variable j that are near enough; None where all are."""
        size = self.size
        order = [*(i for i in range(size - 1) if i != j), j, size - 1]
        turn = np.eye(size)[order] @ self.shift
        matrix = turn @ self.matrix @ turn.T
        scale = np.linalg.cholesky(matrix + turn @ np.diag(self._room()) @ turn.T)
        back = np.linalg.inv(turn) @ scale
        # the nearest of all, in these units: a root that is lower triangular
        values, vectors = np.linalg.eigh(matrix)
        half = np.linalg.solve(scale, vectors * np.sqrt(np.maximum(values, 0.0)))
        root = np.asarray(np.linalg.qr(half.T, mode="r"), dtype=np.float64).T
        x, y = size - 2, size - 1
        free = [(a, b) for a, b in _lower(size) if (a, b) not in ((x, x), (y, x))]
        fixed = np.stack([_unit(size, size, a, b) for a, b in free])
        own, other = _unit(size, size, x, x), _unit(size, size, y, x)
        first, second = np.array([root[p] for p in free]), np.array([float(a == b) for a, b in free])

        def distances(angles: FloatArray, near: FloatArray | None = None) -> tuple[FloatArray, FloatArray]:
            c, s = np.cos(angles), np.sin(angles)
            line = c[:, None, None] * own + s[:, None, None] * other
            turns = np.concatenate([np.broadcast_to(fixed, (len(c), *fixed.shape)), line[:, None]], axis=1)
            forms = _forms(back @ turns, self.places)
            if near is not None:
                return _nearest_of(forms, self.values, self.weight, near)
            own_line = root[x, x] * c + root[y, x] * s
            short = np.where(np.abs(own_line) < 0.1, 0.1, own_line)
            far = np.full(len(c), 2.0)
            begun = ((first, short), (second, short), (second, far))
            starts = np.stack([np.column_stack([np.tile(p, (len(c), 1)), r]) for p, r in begun])
            return _nearest_of(forms, self.values, self.weight, starts)

        # coefficient = (scale[y, x] + scale[y, y] tan a) / scale[x, x]
        ratio = scale[x, x] / scale[y, y]
        sign = 1.0 if root[x, x] >= 0 else -1.0
        middle = math.atan2(sign * root[y, x], sign * root[x, x])
        steps = math.tan(middle) + max(error * ratio, 1e-12) * np.array([*(-s for s in reversed(_STEPS)), 0.0, *_STEPS])
        angles = np.concatenate([[-math.pi / 2], np.arctan(steps)])
        angles[1 + len(_STEPS)] = middle
        found, places = with_neighbours(*distances(angles), lambda near: distances(angles, near))
        limit = min(self.base, float(found.min())) + self.width**2
        if found[0] <= limit or not np.isfinite(found).all():  # not finite: x lies millions of ranges off 0
            return None
        angles, found = np.append(angles, math.pi / 2), np.append(found, found[0])
        low, high = interval_within(angles, found, np.concatenate([places, places[:1]]), limit, distances)
        low, high = ((scale[y, x] + scale[y, y] * math.tan(a)) / scale[x, x] for a in (low, high))
        return low, high

    def r_squared_interval(self, middle: float, error: float) -> tuple[float, float]:
        """The shares of y's variance that are near enough."""
        size, y = self.size, self.size - 1
        count = size - 2  # of x
        matrix = self.matrix + np.diag(self._room())
        scale = np.zeros((size, size))
        scale[:y, :y] = np.linalg.cholesky(matrix[:y, :y])
        scale[y, y] = math.sqrt(max(matrix[y, y] - matrix[0, y] ** 2 / matrix[0, 0], 1e-300))
        columns = 1 + 2 * count
        free = [*_lower(y), (y, 0)]
        fixed = np.stack([_unit(size, columns, a, b) for a, b in free])
        toward = np.stack([_unit(size, columns, y, 1 + i) for i in range(count)])
        beside = np.stack([_unit(size, columns, y, 1 + count + i) for i in range(count)])
        beta = np.linalg.solve(scale[:y, :y], matrix[:y, y]) / scale[y, y]
        first = np.array([*(float(a == b) for a, b in free[:-1]), beta[0]])
        direction = beta[1:] / max(float(np.linalg.norm(beta[1:])), 1e-300)
        beyond = [np.array([-direction[1], direction[0]])] if count == 2 else []
        ways = [w for v in (direction, *beyond) for w in (v, -v)]

        def distances(shares: FloatArray, near: FloatArray | None = None) -> tuple[FloatArray, FloatArray]:
            to, off = np.sqrt(shares), np.sqrt(1 - shares)
            moved = to[:, None, None, None] * toward + off[:, None, None, None] * beside
            turns = np.concatenate([np.broadcast_to(fixed, (len(to), *fixed.shape)), moved], axis=1)
            forms = _forms(scale @ turns, self.places)
            if near is None:
                near = np.stack([np.tile(np.append(first, w), (len(to), 1)) for w in ways])
            return _nearest_of(forms, self.values, self.weight, near)

        steps = middle + max(error, 1e-9) * np.array([*(-s for s in _STEPS), 0.0, *_STEPS])
        grid = np.unique(np.clip(np.concatenate([steps, np.linspace(0, 1, 5)]), 0.0, 1.0))
        found, places = distances(grid)
        return interval_within(grid, found, places, min(self.base, float(found.min())) + self.width**2, distances)


def _projected(release: Release, shown: FloatArray, raw: _Group) -> tuple[FloatArray, float] | None:
    """Coefficients and R² of the projected moments; None where there are none, or none that are told apart."""
    if release.projection is None or shown[0] <= 0:
        return None
    own = _Group(shown, raw.noise, raw.width, raw.shift[1:, 0])
    if np.linalg.eigvalsh(own.matrix[:-1, :-1])[0] <= _FLAT * own.matrix[0, 0]:
        return None
    beta, _, share, _ = own.estimates()
    return beta, share


def _extended(value: float, ends: tuple[float, float], shown: float | None) -> tuple[float, float, float]:
    """A value within its interval; that of a projected release as it is, and the interval extended to it."""
    low, high = ends
    value = min(max(value, low), high) if shown is None else shown
    return value, min(low, value), max(high, value)


def regression(
    release: Release, y: str, x: str | Sequence[str], by: str | Sequence[str] = (), confidence: float = 0.95
) -> Frame:
    """Least squares of a measure on one or two others with a constant, within each cell of `by`.

    It is of the records that have a number in every measure named: what ordinary least squares over these would give,
    with intervals for that, which say nothing of records that are not in the table. The plan must have asked
    `sf.moments` of all of them together.

    Args:
        y: The name of the measure that is explained.
        x: The name of a measure that explains it, or of several.
        by: Attributes or levels; the regression is taken within each of their cells.
        confidence: The probability, strictly between 0 and 1, with which each interval holds.

    Returns:
        Per group one row for the constant, one per x, and one for R², the share of y's variance that they explain: its
        value, standard_error, low, high and a note. Numbers are None in groups with too few records. Of a coefficient
        to which the noise sets no bounds they are None too, and of such an R² the interval is from 0 to 1. Of a
        projected release values are of the projected sums; intervals are those of the release as it was, extended to
        these.

    Raises:
        NotAnswerable: The sums, squares and products were not measured.
        PlanError: The names are not those of different measures, or of too many, or the confidence is no such
            probability.

    Guarantee:
        The interval, which may have no bounds, holds the coefficient, or R², of the numbers, cut to the declared range,
        with at least the confidence where the noise is Gaussian and the group is not tiny (docs/money.md). Whether it
        has bounds depends on the noise, so of those that have, fewer hold where few have.
    """
    level, within = check_confidence(confidence), by_names(by)
    given = [x] if isinstance(x, str) else list(x)
    if not given or len({y, *given}) != len(given) + 1:
        raise PlanError("a regression is of one measure on others: name at least one x, and each measure once")
    if len(given) >= MAX_MEASURES:
        raise PlanError(f"a regression is of up to {MAX_MEASURES} measures, of which sums are planned together")
    domain = release.plan.workload.domain
    names = [*given, y]
    held = read_moments(release, names, within)
    ranges = np.array([(p[0], p[-1]) for n in names if (p := domain[n].midpoints)])
    middle, half = ranges.mean(axis=1), (ranges[:, 1] - ranges[:, 0]) / 2
    moved = np.append(middle[:-1] / half[:-1], 0.0)  # y stays around its middle, which the constant has back
    units = np.append(half[-1] / np.append(1.0, half[:-1]), 1.0)  # of coefficients, and R²
    width = widest_sum_margin(level, release.raw.measurement.noise)
    rows: list[tuple[float | None, float | None, float | None, float | None, str]] = []
    for values, noise, shown in zip(held.values, held.noise, held.shown, strict=True):
        error = math.sqrt(max(noise[0, 0], 0.0))
        if values[0] <= max(SIZE_ERRORS, width) * error or values[0] < 1:
            rows += [(None, None, None, None, too_few_note(float(values[0]), width * error))] * (len(names) + 1)
            continue
        group = _Group(values, noise, width, moved)
        beta, errors, share, share_error = group.estimates()
        own = _projected(release, shown, group)
        for j in range(len(names)):
            ends = group.coefficient_interval(j, float(errors[j]))
            if ends is None:
                what = " and ".join(map(safe_text, given)) if j == 0 else safe_text(given[j - 1])
                rows.append((None, None, None, None, _NO_BOUNDS.format(what)))
                continue
            value, low, high = _extended(float(beta[j]), ends, None if own is None else float(own[0][j]))
            value, error, low, high = (float(v * units[j]) for v in (value, errors[j], low, high))
            if j == 0:
                value, low, high = (v + float(middle[-1]) for v in (value, low, high))
            rows.append((value, error, low, high, held.said))
        low, high = group.r_squared_interval(share, share_error)
        if low <= 0 and high >= 1:
            rows.append((None, None, low, high, _ANY_SHARE))
        else:
            value, low, high = _extended(share, (low, high), None if own is None else own[1])
            rows.append((value, share_error, low, high, held.said))
    terms = [CONSTANT, *map(safe_text, given), R_SQUARED]
    cells = list(itertools.product(*(domain[b].labels for b in within)))
    groups = {column_heading(b): [c[i] for c in cells for _ in terms] for i, b in enumerate(within)}
    columns = zip(*rows, strict=True)
    told = dict(zip(("value", "standard_error", "low", "high", "note"), map(list, columns), strict=True))
    return Frame({**groups, f"regression {safe_text(y)}": terms * max(len(cells), 1), **told})
