"""The integer filter in Python's integers, as it is written in the page, filters to try it on, and streams without
noise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.operators import Family, Residual
from sfumato.privacy.accounting import GaussianEvent
from sfumato.privacy.noise import RoundedGaussian
from sfumato.privacy.stream_price import IntegerFilter, StreamTerms, WindowFilter, family_multiples
from sfumato.privacy.unit import PrivacyUnit

Objects = NDArray[Any]
PERIODS = 6
UNIT = PrivacyUnit("add-remove")


def floored(number: Objects, bits: int) -> Objects:
    """floor(number / 2^bits) of Python integers."""
    return number >> bits


def truncated(number: Objects, bits: int) -> Objects:
    """The same towards zero: the mutant."""
    return np.where(number < 0, -((-number) >> bits), number >> bits)


def filtered(
    used: IntegerFilter | WindowFilter,
    counts: NDArray[Any],
    multiple: int = 1,
    grain: int = 0,
    floor: Callable[[Objects, int], Objects] = floored,
) -> Objects:
    """(periods, cells) y of counts (periods, cells), in Python's integers."""
    counts = counts.astype(object)
    if isinstance(used, WindowFilter):
        return heard(used, multiple, grain) @ counts
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


def response(used: IntegerFilter, period: int, earlier: int) -> Fraction:
    """C[period, earlier] of a filter, exactly."""
    lag, run = period - earlier, used._run(earlier)
    if lag < 0:
        return Fraction(0)
    found = Fraction(int(used.direct[run]))
    if lag:
        rates = [1 - Fraction(e, 2**g) for e, g in used.decays.tolist()]
        found = sum((b * f ** (lag - 1) for b, f in zip(used.carried[run].tolist(), rates, strict=True)), Fraction())
    return found * used.row(period) / 2**used.shift


def heard(used: WindowFilter, multiple: int = 1, grain: int = 0) -> Objects:
    """(periods, periods) the matrix of a window filter for a table of some weight, in Python's integers."""
    n, taps = used.periods, np.repeat(used.taps, used.runs, axis=0).tolist()
    out = np.zeros((n, n), dtype=object)
    for u in range(n):
        for lag, tap in enumerate(taps[u][: n - u]):
            size = abs(tap) * multiple >> grain
            out[u + lag, u] = size if tap > 0 else -size
    return out


def drawn_window(rng: np.random.Generator, *, most: int = 8, bits: int = 10) -> WindowFilter:
    """A window filter at random, with taps of both signs, of about `bits` bits."""
    m, w = int(rng.integers(1, 5)), int(rng.integers(1, most + 1))
    taps = rng.integers(-(2**bits) + 1, 2**bits, size=(m, w))
    taps[taps[:, 0] == 0, 0] = 1
    return WindowFilter(rng.integers(1, 12 // m + 1, size=m), taps)


def terms(
    sigma: Fraction = Fraction(1, 1024), most: int = 1000, total: bool = True, k: int = 1, b: int = 1, **more: Any
) -> StreamTerms:
    """Of coarse integers, so that even noise of deviation 2^-10, which is always 0, has a price that can be stated."""
    used = IntegerFilter([[3, 4], [5, 8]], 4, [PERIODS], [3], [20], [[7, 2]])
    sets = ([[]], [[0], [1]], [[0, 1]])[0 if total else 1 :]
    families = tuple(
        Family(
            ("a", "b"), (Residual(2), Residual(3)), np.array(s, dtype=np.int32).reshape(len(s), -1), [4] * len(s)
        ).lowered()
        for s in sets
    )
    return StreamTerms(used, families, 2, RoundedGaussian(sigma), k, b, most, **more)


def own_total(of: StreamTerms) -> StreamTerms:
    """The same with a filter of its own for the total, of some past counts."""
    return replace(of, total=WindowFilter([PERIODS], [[21, -3, 8, 0, 5]]))


def price(of: StreamTerms, unit: PrivacyUnit = UNIT) -> GaussianEvent:
    return GaussianEvent(of.squared_shift({"a": 2, "b": 3}, unit) / of.noise.sigma**2)


def exact(of: StreamTerms, tables: np.ndarray) -> Iterator[np.ndarray]:
    """All values of every period without noise, in Python's integers."""
    parts = []
    for family in of.families:
        for i, axes in enumerate(family.sets.tolist()):
            table = tables.sum(axis=tuple(1 + a for a in range(2) if a not in axes)).reshape(len(tables), -1)
            table = np.minimum(table, of.most)
            matrix = np.ones((1, 1), dtype=np.int64)
            for a in axes:
                matrix = np.kron(matrix, Residual((2, 3)[a]).matvec(np.eye((2, 3)[a], dtype=np.int64)))
            y = filtered(of.filter_of(family), table, int(family_multiples(family)[i]), of.grain)
            parts.append(y @ matrix.T.astype(object))
    yield from np.concatenate(parts, axis=1)
