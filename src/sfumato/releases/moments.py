"""Variances, covariances and correlations of measures, with intervals from all that a table could have held.

Counts, sums, sums of squares and products come with Gaussian (or Laplace) noise of known covariance. A set of numbers
in a range has a mean in it, and a variance and a covariance that go with each other. Of all such moments, those that
make a statistic be some value have a least distance from the noisy ones, in units of the noise; the interval holds the
values whose distance is beyond the least of all by no more than a normal number's square is, with the confidence asked.
So it stays within what is possible, and needs no division by a noisy count. `variance`, `std`, `covariance_between` and
`correlation` are methods of `Release`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from sfumato._util.frames import Frame, safe_text
from sfumato.domain import Attribute, Measure
from sfumato.domain.core import range_restriction
from sfumato.errors import NotAnswerable, PlanError
from sfumato.operators import Block, Dense
from sfumato.operators.base import FloatArray
from sfumato.plans.planned import is_answered
from sfumato.plans.predictions import check_confidence, widest_sum_margin
from sfumato.releases.answers import SIZE_ERRORS, too_few_note
from sfumato.releases.ends import column_heading
from sfumato.releases.nearest import Statistic, interval_within, nearest_pairs, with_neighbours
from sfumato.releases.quantiles import beside_note, by_names, measures_beside
from sfumato.workloads.levels import table_block

if TYPE_CHECKING:
    from sfumato.releases.release import Release

_GRID = 81  # places of a mean, and values of a variance, near the noisy ones and in the whole range
_REACH = 8.0  # standard errors around the noisy ones
_FINER = 3  # times the grid is laid anew around an end
# standard errors from the estimate, where ends mostly lie
_PLACES = (-12.0, -5.0, -3.0, -2.5, -2.0, -1.5, -1.0, 0.0, 1.0, 1.5, 2.0, 2.5, 3.0, 5.0, 12.0)


@dataclass(frozen=True, slots=True)
class _Moments:
    """Noisy moments of each group, of numbers between -1 and 1, and their covariance.

    values: (groups, moments), 1, x, x^2 and so on; noise: (groups, moments, moments); shown: the same moments of a
    projected release, as they are projected; said: of which values and records they are.
    """

    values: FloatArray
    noise: FloatArray
    shown: FloatArray
    said: str


def moment_powers(count: int) -> list[tuple[int, ...]]:
    """Powers of each of so many measures: 1, x, x^2, y, y^2, x y."""
    one = [tuple(int(i == j) for j in range(count)) for i in range(count)]
    two = [tuple(2 * int(i == j) for j in range(count)) for i in range(count)]
    both = [tuple(int(k in pair) for k in range(count)) for pair in itertools.combinations(range(count), 2)]
    return [(0,) * count, *(p for pair in zip(one, two, strict=True) for p in pair), *both]


# of a measure without knots: 1, x and x^2 at its ends, and in the middle as _shares has them
_SHARES = {0: (1.0, 1.0, 1.0), 1: (-1.0, 0.0, 1.0), 2: (1.0, -1.0, 1.0)}


def _shares(measure: Attribute, power: int) -> Sequence[float]:
    """What a share of 1 in the cells of a measure adds to sums of powers of x, from -1 at its lower end to 1."""
    if not isinstance(measure, Measure) or not measure.knots:
        return _SHARES[power]
    low, *_, high = measure.ends
    x = [(2 * v - low - high) / (high - low) for v in measure.ends]
    pairs = list(itertools.pairwise(x))
    middles = [[1.0] * len(pairs), [(a + b) / 2 for a, b in pairs], [a * b for a, b in pairs]]
    return measure.sums_of([v**power for v in x], middles[power])


def _padded(row: Sequence[float], size: int) -> FloatArray:
    return np.asarray([*row, *[0.0] * (size - len(row))], dtype=np.float64)


def joint_noise(raw: Release, rows: FloatArray, block: Callable[[FloatArray], Block]) -> tuple[FloatArray, FloatArray]:
    """Answers to rows over one axis (groups, rows), and the covariances of their noise (groups, rows, rows).

    block: the rows within each group, as the first factor.
    """
    k = len(rows)
    pairs = list(itertools.combinations(range(k), 2))
    every = np.concatenate([rows, *(rows[i : i + 1] + rows[j : j + 1] for i, j in pairs)])
    found = block(every)
    spread = np.broadcast_to(raw.variances(found), [f.shape[0] for f in found.factors]).reshape(len(every), -1)
    values = np.asarray(raw.answer_block(block(rows))).reshape(k, -1)
    noise = np.zeros((spread.shape[1], k, k))
    for i in range(k):
        noise[:, i, i] = spread[i]
    for n, (i, j) in enumerate(pairs):
        noise[:, i, j] = noise[:, j, i] = (spread[k + n] - spread[i] - spread[j]) / 2
    return values.T, noise


def read_moments(release: Release, names: Sequence[str], by: tuple[str, ...]) -> _Moments:
    """The moments of some measures within the cells of `by`. Raises NotAnswerable."""
    raw = release.raw
    domain = raw.plan.workload.domain
    for name in names:
        if name not in domain.measures:
            known = ", ".join(domain.measures) or "none is declared"
            raise PlanError(f"{name} is no measure of this release; measures: {known}")
    table = table_block(domain, by)

    def block(rows: FloatArray, joined: Sequence[str]) -> Block:
        return Block((tuple(joined), *table.groups), (Dense(rows), *table.factors))

    powers = moment_powers(len(names))
    for extra in ((), *measures_beside(release, names)):
        joined = [*names, *extra]
        sides = [
            [_padded(_shares(domain[n], p), domain[n].size) for n, p in zip(names, own, strict=True)] for own in powers
        ]
        there = [_padded(_shares(domain[m], 0), domain[m].size) for m in extra]
        rows = np.asarray([reduce(np.kron, [*side, *there]) for side in sides], dtype=np.float64)
        if is_answered(raw.plan.strategy, block(rows, joined)):
            break
    else:
        what = ", ".join(names)
        raise NotAnswerable(
            f"sums, squares and products of {what}{' by ' + ', '.join(by) if by else ''} were not measured; "
            f"ask sf.moments(domain, {list(names)!r}{f', by={list(by)!r}' if by else ''}) in the plan"
        )
    values, noise = joint_noise(raw, rows, lambda r: block(r, joined))
    notes = [range_restriction(domain, n) for n in names]
    if extra:
        notes.append(beside_note(extra))
    said = "; ".join(dict.fromkeys(t for t in notes if t))
    return _Moments(values, noise, shown_answers(release, block(rows, joined), values), said)


def shown_answers(release: Release, block: Block, values: FloatArray) -> FloatArray:
    """The answers (groups, rows) of which the raw ones are given; the projected ones where the release is projected."""
    if release.projection is None:
        return values
    return np.asarray(release.answer_block(block)).reshape(values.shape[::-1]).T


def _statistics(
    release: Release,
    names: Sequence[str],
    by: str | Sequence[str],
    confidence: float,
    title: str,
    scale: float,
    estimate: Callable[[FloatArray], float],
    interval: Callable[[FloatArray, FloatArray, float], tuple[float, float]],
    root: bool = False,
) -> Frame:
    """One line per group: the statistic, its interval, and why it is blank where the group is too small."""
    level, within = check_confidence(confidence), by_names(by)
    domain = release.plan.workload.domain
    held = read_moments(release, names, within)
    width = widest_sum_margin(level, release.raw.measurement.noise)
    columns: dict[str, list[float | None]] = {"value": [], "low": [], "high": []}
    notes: list[str] = []
    for values, noise, shown in zip(held.values, held.noise, held.shown, strict=True):
        error = math.sqrt(max(noise[0, 0], 0.0))
        if values[0] <= max(SIZE_ERRORS, width) * error or values[0] < 1:
            found: tuple[float | None, ...] = (None, None, None)
            notes.append(too_few_note(float(values[0]), width * error))
        else:
            low, high = interval(values, noise, width)
            middle = min(max(estimate(values), low), high)
            if release.projection is not None:
                middle = estimate(shown) if shown[0] > 0 else middle
                low, high = min(low, middle), max(high, middle)
            found = tuple((math.sqrt(max(v, 0.0)) if root else v) * scale for v in (middle, low, high))
            notes.append(held.said)
        for column, v in zip(columns.values(), found, strict=True):
            column.append(v)
    cells = list(itertools.product(*(domain[b].labels for b in within)))
    groups = {column_heading(b): [c[i] for c in cells] for i, b in enumerate(within)}
    name = f"{title} {' and '.join(map(safe_text, names))}"
    return Frame({**groups, name: columns["value"], "low": columns["low"], "high": columns["high"], "note": notes})


# ---- one measure -----------------------------------------------------------------------------------------


def _variance_of(values: FloatArray) -> float:
    return float(np.clip(values[2] / values[0] - (values[1] / values[0]) ** 2, 0.0, 1.0))


def _variance_interval(values: FloatArray, noise: FloatArray, width: float) -> tuple[float, float]:
    """The variances of numbers from -1 to 1 that are near enough."""
    weight = inverse_covariance(noise)
    whole = float(values @ weight @ values)
    n, x, xx = values
    mean, middle = float(np.clip(x / n, -1, 1)), _variance_of(values)
    slopes = np.array([[-mean / n, 1 / n, 0], [(2 * mean * mean - xx / n) / n, -2 * mean / n, 1 / n]])
    spread, error = np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", slopes, noise, slopes), 0.0)).tolist()
    reach = np.linspace(-_REACH, _REACH, _GRID)
    means = np.unique(np.clip(np.concatenate([mean + spread * reach, np.linspace(-1, 1, _GRID)]), -1, 1))

    def distances(variance: FloatArray) -> FloatArray:
        """(variances,) the least over means, and over counts."""
        v, m = np.meshgrid(variance, means, indexing="ij")
        ray = np.stack([np.ones_like(v), m, m * m + v], axis=-1)
        along = np.maximum(ray @ weight @ values, 0.0)
        length = np.einsum("...i,ij,...j->...", ray, weight, ray)
        return np.where(v <= 1 - m * m + 1e-12, whole - along**2 / length, np.inf).min(axis=1)

    grid = np.unique(np.clip(np.concatenate([middle + error * reach, np.linspace(0, 1, _GRID)]), 0, 1))
    found = distances(grid)
    best = int(found.argmin())
    limit = float(found.min()) + width**2
    inside = np.flatnonzero(found <= limit)
    ends: list[float] = []
    for inner, step in ((int(inside[0]), -1), (int(inside[-1]), 1)):
        near, far = float(grid[inner]), float(grid[min(max(inner + step, 0), len(grid) - 1)])
        for _ in range(_FINER):
            between = np.linspace(near, far, 17)
            last = int(np.flatnonzero(distances(between) <= limit)[-1])
            near, far = float(between[last]), float(between[min(last + 1, 16)])
        ends.append(far)
    return min(ends[0], float(grid[best])), max(ends[1], float(grid[best]))


def inverse_covariance(noise: FloatArray) -> FloatArray:
    """The inverse of a covariance; what is known without noise, as a public number of records, weighs very much."""
    scale = np.sqrt(np.maximum(np.diagonal(noise), np.diagonal(noise).max() * 1e-9))
    return np.asarray(
        np.linalg.inv(noise / np.outer(scale, scale) + 1e-9 * np.eye(len(noise))) / np.outer(scale, scale)
    )


def _half(release: Release, name: str) -> float:
    declared = release.plan.workload.domain[name]
    points = declared.midpoints
    if points is None or name not in release.plan.workload.domain.measures:
        raise PlanError(f"{name} is no measure of this release; declare it by measures={{...}} of sf.Domain")
    return (points[-1] - points[0]) / 2


def variance(release: Release, measure: str, by: str | Sequence[str] = (), confidence: float = 0.95) -> Frame:
    """The variance of a measure's numbers (over n), within each cell of `by`.

    The plan must have asked `sf.moments` of the measure.

    Args:
        measure: The name of the measure.
        by: Attributes or levels; the variance is taken within each of their cells.
        confidence: The probability, strictly between 0 and 1, with which each interval holds.

    Returns:
        One row per group: the variance, low, high and a note. Numbers are None in groups with too few records.

    Raises:
        NotAnswerable: The sums and squares were not measured.
        PlanError: The name is not that of a measure, or the confidence is no such probability.

    Guarantee:
        The interval holds the variance of the numbers, cut to the declared range, with at least the confidence where
        the noise is Gaussian and the group is not tiny (docs/money.md).
    """
    half = _half(release, measure)
    return _statistics(release, [measure], by, confidence, "variance", half**2, _variance_of, _variance_interval)


def std(release: Release, measure: str, by: str | Sequence[str] = (), confidence: float = 0.95) -> Frame:
    """The standard deviation of a measure's numbers, within each cell of `by`: the root of `variance`.

    Args:
        measure: The name of the measure.
        by: Attributes or levels; the standard deviation is taken within each of their cells.
        confidence: The probability, strictly between 0 and 1, with which each interval holds.

    Returns:
        One row per group: the standard deviation, low, high and a note. Numbers are None in groups with too few
        records.

    Raises:
        NotAnswerable: The sums and squares were not measured.
        PlanError: The name is not that of a measure, or the confidence is no such probability.
    """
    half = _half(release, measure)
    return _statistics(
        release, [measure], by, confidence, "standard deviation", half, _variance_of, _variance_interval, root=True
    )


# ---- two measures ----------------------------------------------------------------------------------------


def _pair_of(values: FloatArray, kind: Statistic) -> float:
    n, x, xx, y, yy, xy = values
    a, b = x / n, y / n
    both = xy / n - a * b
    if kind == "covariance":
        return float(np.clip(both, -1, 1))
    spread = max(xx / n - a * a, 0.0) * max(yy / n - b * b, 0.0)
    return float(np.clip(both / math.sqrt(spread), -1, 1)) if spread > 0 else 0.0


def _pair_interval(values: FloatArray, noise: FloatArray, width: float, kind: Statistic) -> tuple[float, float]:
    """The covariances or correlations that are near enough, of numbers from -1 to 1."""
    weight = inverse_covariance(noise)
    n, x, xx, y, yy, _ = values
    a, b = (float(np.clip(v / n, -1, 1)) for v in (x, y))
    spread = [math.sqrt(float(np.clip(s / n - m * m, 1e-4, 1.0))) for s, m in ((xx, a), (yy, b))]
    middle, change = _pair_of(values, kind), np.sqrt(np.maximum(np.diagonal(noise), 0.0)) / 1_000
    slopes = [(_pair_of(values + d, kind) - _pair_of(values - d, kind)) / 2 for d in np.diag(change)]
    scale = np.divide(slopes, change, out=np.zeros(6), where=change > 0)
    error = math.sqrt(max(float(scale @ noise @ scale), 0.0))
    grid = np.unique(np.clip(np.append(np.linspace(-1, 1, 17), middle + error * np.array(_PLACES)), -1, 1))

    def distances(theta: FloatArray, near: FloatArray | None = None) -> tuple[FloatArray, FloatArray]:
        if near is not None:
            return nearest_pairs(kind, theta, near, values, weight)
        first, second = (np.full(len(theta), v) for v in spread)
        if kind == "covariance":  # as near to what is seen as the one or the other lets it be
            room = np.sqrt(np.maximum(second**2 - (theta / first) ** 2, 1e-4))
            tight = np.maximum(np.abs(theta) / second, 1e-3)
            ways = (
                (first, room),
                (tight, np.full_like(first, 0.01)),
                (np.sqrt(np.abs(theta) + 1e-6), first * 0 + 0.01),
            )
        else:
            ways = ((first, second), (first, first * 0 + 0.03), (first * 0 + 0.03, second))
        begun = np.stack([np.column_stack([np.tile([1.0, a, b], (len(theta), 1)), *w]) for w in ways])
        return nearest_pairs(kind, theta, begun, values, weight)

    found, places = with_neighbours(*distances(grid), lambda near: distances(grid, near))
    low, high = interval_within(grid, found, places, float(found.min()) + width**2, distances)
    return low, high


def _pair(
    release: Release, measures: tuple[str, str], by: str | Sequence[str], confidence: float, kind: Statistic
) -> Frame:
    one, other = measures
    if one == other:
        raise PlanError(f"a {kind} is of two measures; the variance is of one")
    scale = _half(release, one) * _half(release, other) if kind == "covariance" else 1.0
    return _statistics(
        release,
        [one, other],
        by,
        confidence,
        kind,
        scale,
        lambda values: _pair_of(values, kind),
        lambda values, noise, width: _pair_interval(values, noise, width, kind),
    )


def covariance_between(
    release: Release, one: str, other: str, by: str | Sequence[str] = (), confidence: float = 0.95
) -> Frame:
    """The covariance of two measures (over n), of the records that have a number in both, within each cell of `by`.

    The plan must have asked `sf.moments` of both together.

    Args:
        one: The name of a measure.
        other: The name of another.
        by: Attributes or levels; the covariance is taken within each of their cells.
        confidence: The probability, strictly between 0 and 1, with which each interval holds.

    Returns:
        One row per group: the covariance, low, high and a note. Numbers are None in groups with too few records.

    Raises:
        NotAnswerable: The sums, squares and products were not measured.
        PlanError: The names are not those of two measures, or the confidence is no such probability.
    """
    return _pair(release, (one, other), by, confidence, "covariance")


def correlation(
    release: Release, one: str, other: str, by: str | Sequence[str] = (), confidence: float = 0.95
) -> Frame:
    """The correlation of two measures, from -1 to 1, within each cell of `by`.

    It is of the records that have a number in both. The plan must have asked `sf.moments` of both together.

    Args:
        one: The name of a measure.
        other: The name of another.
        by: Attributes or levels; the correlation is taken within each of their cells.
        confidence: The probability, strictly between 0 and 1, with which each interval holds.

    Returns:
        One row per group: the correlation, low, high and a note. Numbers are None in groups with too few records.

    Raises:
        NotAnswerable: The sums, squares and products were not measured.
        PlanError: The names are not those of two measures, or the confidence is no such probability.
    """
    return _pair(release, (one, other), by, confidence, "correlation")
