"""The integer filter in Python's integers, as it is written in the page, and filters to try it on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.privacy.filters import IntegerFilter

Objects = NDArray[Any]


def floored(number: Objects, bits: int) -> Objects:
    """floor(number / 2^bits) of Python integers."""
    return number >> bits


def truncated(number: Objects, bits: int) -> Objects:
    """The same towards zero: the mutant."""
    return np.where(number < 0, -((-number) >> bits), number >> bits)


def filtered(
    used: IntegerFilter,
    counts: NDArray[Any],
    multiple: int = 1,
    grain: int = 0,
    floor: Callable[[Objects, int], Objects] = floored,
) -> Objects:
    """(periods, cells) y of counts (periods, cells), in Python's integers."""
    counts = counts.astype(object)
    states = [np.zeros(counts.shape[1], dtype=object) for _ in used.decays]
    out: list[Objects] = []
    for t, x in enumerate(counts):
        direct, *carried = used.coefficients(t, [multiple], grain)[:, 0].tolist()
        total = sum(states, direct * x)
        out.append(floor(total * used.row(t), used.shift))
        for i, (e, g) in enumerate(used.decays.tolist()):
            states[i] = states[i] - floor(states[i] * e, g) + carried[i] * x
    return np.array(out, dtype=object)


def drawn(rng: np.random.Generator, *, alike: bool = False, bits: int = 10) -> IntegerFilter:
    """A filter at random, of about `bits` bits: coarse ones have the larger roundings."""
    d, m = int(rng.integers(1, 4)), 1 if alike else int(rng.integers(1, 5))
    g = rng.integers(2, 9, size=d)
    e = np.array([rng.integers(1, min(2 ** int(k), 4095) + 1) for k in g])
    carried = rng.integers(0, 2**bits, size=(m, d))
    direct = rng.integers(1, 2**bits, size=m)
    if alike:
        direct = direct + carried.sum(axis=1)
    rows = rng.integers(1, 2048, size=m)
    runs = rng.integers(1, 12 // m + 1, size=m)
    return IntegerFilter(np.column_stack([e, g]), int(rng.integers(0, bits + 8)), runs, rows, direct, carried)
