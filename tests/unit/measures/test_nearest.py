"""Ends of intervals held against a dense scan, where a search finds the nearest only from near where it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sfumato.releases.nearest import interval_within, with_neighbours

_LIMIT = 4.0


def _drawn(rng: np.random.Generator) -> Any:
    """A distance that is 0 somewhere and rises on either side, here and there by a wall, by pieces of random slopes."""
    middle = float(rng.uniform(-1, 1))
    knots = [np.append(0.0, np.sort(rng.uniform(0.02, 3, 5))) for _ in range(2)]
    rises = [np.append(0.0, np.cumsum(rng.choice([0.1, 0.5, 30.0], 5, p=[0.5, 0.3, 0.2]))) for _ in range(2)]

    def distance(x: Any) -> Any:
        off = np.asarray(x) - middle
        sides = [
            np.interp(np.abs(off), k, r) + 2 * np.maximum(np.abs(off) - k[-1], 0)
            for k, r in zip(knots, rises, strict=True)
        ]
        return np.where(off < 0, sides[0], sides[1])

    return middle, distance


@pytest.mark.parametrize("seed", range(80))
def test_ends_are_those_of_a_dense_scan(seed: int) -> None:
    """The search stands for Newton's method: it finds the distance from a start that was found within its reach, which
    is a sixth to all of the grid's step, and beyond that something 10 farther. An end is at most a 64th of a step too
    wide and never too narrow. Mutants: not begun again from the end that was found (`_AGAIN` 1): some of 80; starts of
    the far side alone; an end at the inner side of its step; the lower end on the upper's side."""
    rng = np.random.default_rng([189, seed])
    middle, distance = _drawn(rng)
    step = float(rng.uniform(0.05, 3))
    grid = middle + step * np.arange(-150, 151)
    reach = step * float(rng.uniform(1 / 6, 1))

    def search(x: Any, starts: Any = None) -> tuple[Any, Any]:
        begun = np.full((1, len(x)), middle) if starts is None else starts[..., 0]
        good = (np.abs(begun - x) <= reach).any(axis=0)
        return distance(x) + np.where(good, 0.0, 10.0), np.where(good, x, np.inf)[:, None]

    found, places = with_neighbours(*search(grid), lambda near: search(grid, near))
    low, high = interval_within(grid, found, places, _LIMIT, search)
    dense = np.linspace(middle - 20, middle + 20, 100_001)
    inside = dense[distance(dense) <= _LIMIT]
    for end, true, way in ((low, inside[0], -1), (high, inside[-1], 1)):
        assert -5e-4 <= way * (end - true) <= step / 64 + 5e-4
