"""The nearest moments that have a statistic, and between which of its values they are near enough."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from sfumato.operators.base import FloatArray

_FINER, _BETWEEN = 2, 7  # times the grid is laid anew around an end: that is then known to 1/64 of a step
_AGAIN = 4  # times that is done from the end that was found, while it moves
_PASSES = 4  # of starts from neighbours, each of which hands a better place on to the next
NEAR = 1e-7  # how much nearer the next step would come, in squared standard errors: intervals have 4 of them
_ROUNDS = 60  # of the search for the nearest moments, which mostly takes ten
_TINY = 1e-7  # of half a range: no standard deviation is smaller, so none is divided by

Statistic = Literal["covariance", "correlation"]
Distances = Callable[[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]


def nearest_pairs(
    kind: Statistic, theta: FloatArray, starts: FloatArray, values: FloatArray, weight: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """(values of the statistic,) the distance of the nearest moments that have it, and where these are (.., 5).

    By Levenberg and Marquardt's method from each start (ways, values, 5): the count in units of the noisy one, both
    means, and two numbers from which the variances follow. These are squares; of a covariance c the second variance is
    at least c^2 over the first.
    """
    ways, count, _ = starts.shape
    place, at = starts.reshape(-1, 5).copy(), np.tile(theta, ways)
    half = np.linalg.cholesky(weight)
    size, target = float(values[0]), values @ half

    def look(p: FloatArray, t: FloatArray) -> tuple[FloatArray, FloatArray]:
        """What is left, (places, 6), and its slopes (places, 6, 5)."""
        n, a, b = size * p[:, 0], p[:, 1], p[:, 2]
        first, second = np.maximum(np.abs(p[:, 3]), _TINY), np.maximum(np.abs(p[:, 4]), _TINY)
        zero, one = np.zeros_like(n), np.ones_like(n)
        if kind == "covariance":
            other, both = (t / first) ** 2 + second**2, t
            by_first, of_both = -2 * t**2 / first**3, (zero, zero)
        else:
            other, both = second**2, t * first * second
            by_first, of_both = zero, (t * second, t * first)
        ray = np.stack([one, a, a * a + first**2, b, b * b + other, a * b + both], axis=1)
        slopes = np.stack(
            [
                size * ray,
                n[:, None] * np.stack([zero, one, 2 * a, zero, zero, b], axis=1),
                n[:, None] * np.stack([zero, zero, zero, one, 2 * b, a], axis=1),
                (n * np.sign(p[:, 3]))[:, None] * np.stack([zero, zero, 2 * first, zero, by_first, of_both[0]], axis=1),
                (n * np.sign(p[:, 4]))[:, None] * np.stack([zero, zero, zero, zero, 2 * second, of_both[1]], axis=1),
            ],
            axis=2,
        )
        return target - (n[:, None] * ray) @ half, half.T @ slopes

    left, slopes = look(place, at)
    found, damping = (left**2).sum(axis=1), np.full(len(place), 1e-3)
    going = np.arange(len(place))
    for _ in range(_ROUNDS):
        square = slopes.transpose(0, 2, 1) @ slopes
        toward = np.einsum("bki,bk->bi", slopes, left)
        diagonal = np.maximum(np.einsum("bii->bi", square), _TINY)
        step = np.linalg.solve(square + np.eye(5) * ((damping[going, None] * diagonal)[:, None]), toward[..., None])[
            ..., 0
        ]
        trial, steeper = look(place[going] + step, at[going])
        reached = (trial**2).sum(axis=1)
        better = reached < found[going]
        done = better & (found[going] - reached < NEAR)
        place[going[better]] += step[better]
        found[going[better]] = reached[better]
        damping[going] *= np.where(better, 0.1, 10.0)
        left, slopes = np.where(better[:, None], trial, left), np.where(better[:, None, None], steeper, slopes)
        more = ~done & (damping[going] < 1e8)
        left, slopes, going = left[more], slopes[more], going[more]
        if not len(going):
            break
    best = found.reshape(ways, count).argmin(axis=0)
    return found.reshape(ways, count)[best, np.arange(count)], place.reshape(starts.shape)[best, np.arange(count)]


def with_neighbours(
    found: FloatArray, places: FloatArray, from_starts: Callable[[FloatArray], tuple[FloatArray, FloatArray]]
) -> tuple[FloatArray, FloatArray]:
    """The same, begun again at what neighbours found: a search that ended beside the nearest is mostly alone."""
    for _ in range(_PASSES):
        again, near = from_starts(np.stack([np.roll(places, 1, axis=0), np.roll(places, -1, axis=0)]))
        better = again < found - NEAR
        if not better.any():
            break
        found, places = np.where(better, again, found), np.where(better[:, None], near, places)
    return found, places


def interval_within(
    grid: FloatArray, found: FloatArray, places: FloatArray, limit: float, distances: Distances
) -> tuple[float, float]:
    """The least and the largest value within the limit, and a little beyond: each found between two of the grid.

    Where all up to the next of the grid turn out to be near, it goes on from there: a distance that was found without
    a place nearby may be too large.
    """
    inside = np.flatnonzero(found <= limit)
    out: list[float] = []
    for inner, way in ((int(inside[0]), -1), (int(inside[-1]), 1)):
        end, place = float(grid[inner]), places[inner]
        while 0 <= inner + way < len(grid):
            outer = inner + way
            starts = np.stack([place, places[outer]])
            end, place = _end_between(float(grid[inner]), float(grid[outer]), starts, limit, distances)
            if end != grid[outer]:
                break
            reached, at = distances(grid[[outer]], place[None, None])
            if reached[0] > limit:
                break
            inner, place = outer, at[0]
        out.append(end)
    return out[0], out[1]


def _end_between(
    near: float, beyond: float, ends: FloatArray, limit: float, distances: Distances
) -> tuple[float, FloatArray]:
    """A little more than the last value within the limit, from one that is up to `beyond`, and where the nearest
    moments of the last value looked at are. ends: where those of the two values are."""
    far = beyond
    for _ in range(_AGAIN):  # from where the last one ended: what looked too far may be near from there
        begun, far = near, beyond
        for _ in range(_FINER):
            between = np.linspace(near, far, _BETWEEN + 2)

            def along(starts: FloatArray, inner: FloatArray = between[1:-1]) -> tuple[FloatArray, FloatArray]:
                return distances(inner, starts)

            values, at = with_neighbours(*along(np.repeat(ends[:, None, :], _BETWEEN, axis=1)), along)
            last = int(np.flatnonzero([True, *(values <= limit)])[-1])
            near, far = float(between[last]), float(between[last + 1])
            ends = np.concatenate([ends[:1], at, ends[1:]])[[last, last + 1]]
        if abs(near - begun) <= abs(far - near):
            break
        ends = ends[[0, 0]]
    return far, ends[0]
