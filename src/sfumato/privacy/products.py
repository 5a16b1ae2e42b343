"""A lower bound of a sum over very many attributes whose weights are close to products, in integers.

G = sum_S w_S prod_{i in S} x_i, where each x_i is one of two numbers, is to be bounded from below; no order of
elimination is short enough where all attributes meet. Weights close to c_|S| prod_{i in S} u_i make of G a
combination of elementary symmetric polynomials of y_i = u_i x_i, and these are polynomials in the power sums
p_j = sum_i y_i^j. The range of p_1 is cut into slices. In a slice the other power sums lie between bounds that
are linear programs with one constraint, and Newton's identities k e_k = sum_i (-1)^(i-1) e_(k-i) p_i carry
intervals from power sums to e_k. What the weights deviate from products is paid for set by set. u and c are
proposed; the bound holds whatever they are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import PlanError
from sfumato.ground.codec import storable
from sfumato.maps.linear import Numbers
from sfumato.privacy.sums import Sum, products

__all__ = ["Products", "elementary", "extremes", "least_symmetric", "scaled_ends"]

_SLICES = 200  # of the range of p_1: twice as many tighten the bound by less than 1 %
_BREAKS = 64  # slopes that are tried: all of them for few attributes

Interval = tuple[Numbers, Numbers]


@storable
@dataclass(frozen=True, slots=True)
class Products:
    """weight 2^shift is about c_order prod u: `units` u per feature, at least 1, and `costs` c per order from 0 on."""

    units: tuple[int, ...]
    costs: tuple[int, ...]
    shift: int

    def __post_init__(self) -> None:
        numbers = (*self.units, *self.costs, self.shift)
        if not all(type(v) is int for v in numbers) or min(self.units, default=1) < 1 or min(numbers) < 0:
            raise PlanError("products of weights are proposed in whole numbers of at least 0, units of at least 1")


def scaled_ends(total: Sum) -> tuple[Numbers, Numbers, Numbers]:
    """Per feature (scale, low, high): its two values are scale low and scale high, coprime, |low| <= high."""
    ends = [sorted(map(int, values.tolist())) for _, values in total.features]
    scale = [math.gcd(*e) for e in ends]
    if not all(len(e) == 2 and -high <= low < high for e in ends for low, high in [e]):
        raise PlanError("products are proposed where every attribute changes or does not")
    low, high = ([e[k] // s for e, s in zip(ends, scale, strict=True)] for k in (0, 1))
    return tuple(np.array(v, dtype=object) for v in (scale, low, high))  # type: ignore[return-value]


def least_symmetric(total: Sum, given: Products) -> int:
    """A lower bound of minus the sum, whose weights must not be positive; every feature chooses for itself.

    Raises PlanError where the proposal does not fit.
    """
    top = max((b.sets.shape[1] for b in total.bundles), default=0)
    if not total.features or len(given.units) != len(total.features) or top >= len(given.costs):
        raise PlanError("products have a unit for every feature and a cost for every order")
    scale, low, high = scaled_ends(total)
    units = np.array(given.units, dtype=object)
    whole = elementary(units * high, len(given.costs) - 1)
    used = [0] * len(given.costs)
    paid = 0
    for sets, negative in total.bundles:
        order = sets.shape[1]
        weights = -negative * products(scale, sets)
        if (weights < 0).any():
            raise PlanError("weights of one sign alone are bounded by products")
        norms, least = extremes(low, high, sets)
        unit = products(units, sets).astype(object)
        rest = weights * 2**given.shift - given.costs[order] * unit
        paid -= int((rest * np.where(rest > 0, least, norms)).sum())
        used[order] += int((unit * norms).sum())
    # the products also stand for sets that the sum lacks
    paid += sum(c * (w - u) for c, w, u in zip(given.costs[1:], whole[1:], used[1:], strict=True))
    return -((paid - _least_combination(units * low, units * high, given.costs)) >> given.shift)


def extremes(low: Numbers, high: Numbers, sets: NDArray[np.integer]) -> tuple[Numbers, Numbers]:
    """(largest, least) product of every set, of numbers low or high, |low| <= high.

    A change shrinks the product; one that makes it negative is best alone, and otherwise all are.
    """
    ends, most = np.concatenate([high, low]), products(high, sets)
    least = np.minimum(most, products(low, sets))
    for i in range(sets.shape[1]):
        least = np.minimum(least, products(ends, sets + len(high) * (np.arange(sets.shape[1]) == i)))
    return most, least


def elementary(values: Numbers, top: int) -> list[int]:
    """Elementary symmetric polynomials of orders 0 to top."""
    out = [1] + [0] * top
    for v in values.tolist():
        for k in range(top, 0, -1):
            out[k] += out[k - 1] * v
    return out


def _least_combination(low: Numbers, high: Numbers, costs: tuple[int, ...]) -> int:
    """A lower bound of sum_k costs_k e_k(y) over y_i = low_i or high_i, for costs of at least 0."""
    least, most = int(low.sum()), int(high.sum())
    near = min(most, -2 * least)
    steps = range(_SLICES + 1)
    edges = {start + (stop - start) * i // _SLICES for start, stop in ((least, most), (least, near)) for i in steps}
    ends = np.array(sorted(edges), dtype=object)
    first = (ends[:-1], ends[1:])
    sums = [first, *(_power_sums(low, high, j, first) for j in range(2, len(costs)))]
    one = np.ones(len(ends) - 1, dtype=object)
    # intervals of k! e_k
    scaled: list[Interval] = [(one, one)]
    value = one * 0
    for k in range(1, len(costs)):
        down, up = one * 0, one * 0
        for i in range(1, k + 1):
            factor = math.factorial(k - 1) // math.factorial(k - i)
            d, u = _square(first) if k == 2 and i == 1 else _times(scaled[k - i], sums[i - 1])
            down, up = (down + factor * d, up + factor * u) if i % 2 else (down - factor * u, up - factor * d)
        scaled.append((down, up))
        value = value + costs[k] * -(-down // math.factorial(k))
    return int(value.min())


def _power_sums(low: Numbers, high: Numbers, power: int, first: Interval) -> Interval:
    """Bounds of sum_i y_i^power where sum_i y_i lies in an interval: f <= sum_i max(f_i - m y_i) + m sum_i y_i."""
    ends: list[Numbers] = []
    for sign in (1, -1):
        f, g = sign * low**power, sign * high**power
        kinks = np.sort((g - f) // (high - low))
        # any choice of slopes bounds the sum
        some = np.linspace(0, len(kinks) - 1, min(len(kinks), _BREAKS)).astype(np.intp)
        bounds = [
            int(np.maximum(f - m * low, g - m * high).sum()) + np.maximum(m * first[0], m * first[1])
            for m in (0, *kinks[some].tolist())
        ]
        ends.append(sign * np.minimum.reduce(bounds))
    return ends[1], ends[0]


def _times(a: Interval, b: Interval) -> Interval:
    corners = [x * y for x in a for y in b]
    return np.minimum.reduce(corners), np.maximum.reduce(corners)


def _square(a: Interval) -> Interval:
    low, high = a[0] ** 2, a[1] ** 2
    return np.where((a[0] <= 0) & (a[1] >= 0), 0, np.minimum(low, high)), np.maximum(low, high)
