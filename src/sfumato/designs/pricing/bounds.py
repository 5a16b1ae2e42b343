"""A proved bound of the largest change, where attributes are many and no two are alike.

The distance is 2 (sum_S w_S prod same - G), and G = sum_S w_S prod_{i in S} x_i with x_i = same_i or other_i is to
be bounded from below. Plans for many tables have weights close to c_|S| prod_{i in S} u_i, for which G is
a combination of elementary symmetric polynomials of y_i = u_i x_i, and these are polynomials in the power sums
p_j = sum_i y_i^j. The range of p_1 is cut into slices. In a slice the other power sums lie between bounds that
are linear programs with one constraint, and Newton's identities k e_k = sum_i (-1)^(i-1) e_(k-i) p_i carry
intervals from power sums to e_k. What the weights deviate from products is paid for set by set. Floats propose
u and c; what is added up is integers, so the bound holds whatever they propose.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from sfumato.designs.pricing.changes import Changes, Inner, Part, Positions, orbit_maximum
from sfumato.designs.pricing.elimination import eliminated
from sfumato.designs.pricing.exact import products
from sfumato.operators.base import FloatArray, Numbers

__all__ = ["largest_change", "product_bound"]

_MOST_ORDER = 8  # tables of more attributes have other mechanisms, and bounds of power sums grow loose
_BITS = 24  # of a unit: what a double can propose, with room for products
_SLICES = 200  # of the range of p_1: twice as many tighten the bound by less than 1 %
_STEPS = range(_SLICES + 1)
_BREAKS = 64  # slopes that are tried: all of them for few attributes
_CHUNK = 2**17  # blocks at a time, as Python integers some 10 MB
_MOST_VARIABLES = 1_000  # the fit solves a system of so many
_WIDEST = 20.0  # logarithm of a unit: more is fit to noise

Interval = tuple[Numbers, Numbers]


def largest_change(changes: Changes) -> tuple[int, bool]:
    """(F at its largest, True), or (a bound of it, False)."""
    bound = changes.bound()
    if changes.reached() == bound:
        return bound, True
    found = orbit_maximum(changes)
    if found is not None:
        return found, True
    reduced = eliminated(changes)
    if reduced is not None:
        if reduced[1]:
            return reduced
        bound = min(bound, reduced[0])
    found = product_bound(changes)
    return (bound if found is None else min(bound, found)), False


def product_bound(changes: Changes) -> int | None:
    """A bound of F from weights close to products; None for other distances than squared ones."""
    if not isinstance(changes.table, Inner):
        return None
    variables, parts = _separate(changes, changes.table)
    if not fits_floats(variables, parts):
        return None
    fitted = fit(variables, parts)
    if fitted is None:
        return None
    units, costs, shift = fitted
    low, high = units * variables.low, units * variables.high
    symmetric = _elementary(high, len(costs) - 1)
    total = paid = 0
    for part in parts:
        cost, used = costs[part.places.shape[1]], 0
        for start in range(0, len(part.weights), _CHUNK):
            chunk = part.take(np.arange(start, min(start + _CHUNK, len(part.weights))))
            norms, least = variables.extremes(chunk.places)
            unit = np.multiply.reduce(units[chunk.places], axis=1)
            weights = chunk.weights.objects() * np.multiply.reduce(variables.scale[chunk.places], axis=1)
            total += int((weights * norms).sum())
            rest = weights * 2**shift - cost * unit
            paid += int(np.maximum(-rest * least, -rest * norms).sum())
            used += int((unit * norms).sum())
        # the products also stand for sets that the strategy lacks
        paid += cost * (symmetric[part.places.shape[1]] - used)
    least = _least_symmetric(low, high, costs) - paid
    return 2 * (total + (-least >> shift))


@dataclass(frozen=True, slots=True)
class Variables:
    """x = scale y with y either `low` or `high`, coprime Python integers; |low| <= high."""

    scale: Numbers
    low: Numbers
    high: Numbers

    def extremes(self, places: Positions) -> Interval:
        """(largest, least) product of y in every block."""
        inner = Inner(tuple(self.high.tolist()), tuple(self.low.tolist()))
        norms = products(inner.same, places)
        return norms, norms - inner.tops(places) // 2


def _separate(changes: Changes, table: Inner) -> tuple[Variables, list[Part]]:
    """Every kind of factor of an attribute as a variable of its own."""
    base = changes.base
    keys = np.unique(np.concatenate([np.unique(p.places * base + p.kinds) for p in changes.parts]))
    parts = [Part(np.searchsorted(keys, p.places * base + p.kinds), p.kinds, p.weights) for p in changes.parts]
    same = np.array([table.same[k] for k in (keys % base).tolist()], dtype=object)
    other = np.array([table.other[k] for k in (keys % base).tolist()], dtype=object)
    scale = np.gcd(same, other)
    return Variables(scale, other // scale, same // scale), parts


# ---- floats propose ---------------------------------------------------------------------------------------


def fits_floats(variables: Variables, parts: list[Part]) -> bool:
    """Whether no number of a proposal leaves float64."""
    count, order = len(variables.scale), max(p.places.shape[1] for p in parts)
    scale, high = (int(max(v)).bit_length() for v in (variables.scale, variables.high))
    unit = _BITS + math.ceil(2 * _WIDEST / math.log(2)) + count.bit_length()
    weight = max(p.weights.pieces[-1][0] for p in parts) + 64
    return (
        count <= _MOST_VARIABLES and order <= _MOST_ORDER and max(weight, order * unit) + order * (scale + high) < 960
    )


def fit(variables: Variables, parts: list[Part]) -> tuple[Numbers, list[int], int] | None:
    """(u, c per order, shift) with weight scale 2^shift about c prod u, or None where products say nothing."""
    count, top = len(variables.scale), max(p.places.shape[1] for p in parts)
    scale, high = (np.log(v.astype(np.float64)) for v in (variables.scale, variables.high))
    logs = [np.log(np.maximum(p.weights.real(), 0.5)) + scale[p.places].sum(axis=1) for p in parts]
    mass = [y + high[p.places].sum(axis=1) for y, p in zip(logs, parts, strict=True)]
    largest = max(float(m.max()) for m in mass)
    matrix = np.zeros((count + top + 1) ** 2)
    right = np.zeros(count + top + 1)
    for part, y, m in zip(parts, logs, mass, strict=True):
        order = part.places.shape[1]
        columns = [*part.places.T, np.full(len(y), count + order)]
        share = np.exp(m - largest)
        for i in columns:
            right += np.bincount(i, share * y, len(right))
            for j in columns:
                matrix += np.bincount(i * len(right) + j, share, len(matrix))
    found = np.linalg.lstsq(matrix.reshape(len(right), -1), right, rcond=1e-12)[0][:count]
    found = np.clip(found - np.median(found), -_WIDEST, _WIDEST)
    units = np.array([round(v) for v in np.exp2(_BITS) * np.exp(found - found.min())], dtype=object)
    kappa = [0.0] * (top + 1)
    symmetric = _elementary(units * variables.high, top)
    for part, y in zip(parts, logs, strict=True):
        order = part.places.shape[1]
        kappa[order] = _level(variables, units, part, y, symmetric[order])
    if not any(kappa):
        return None
    shift = max(0, _BITS + 8 - math.floor(math.log2(min(k for k in kappa if k))))
    return units, [int(Fraction(k) * 2**shift) for k in kappa], shift


def _level(variables: Variables, units: Numbers, part: Part, logs: FloatArray, whole: int) -> float:
    """The c at which the deviations of the weights from c prod u cost least.

    A weight that is too small costs its whole deviation, one too large what the product can fall below 0.
    """
    norms, least = variables.extremes(part.places)
    product = np.log(units.astype(np.float64))[part.places].sum(axis=1)
    mass = np.exp(product) * norms.astype(np.float64)
    fall = mass * -(least / norms).astype(np.float64)
    ratio = np.exp(logs - product)
    order = np.argsort(ratio)
    below = max(float(whole) - float(mass.sum()), 0.0) + np.cumsum(mass[order])
    above = float(fall.sum()) - np.cumsum(fall[order])
    return 0.0 if below[0] - mass[order[0]] >= fall.sum() else float(ratio[order[np.argmax(below >= above)]])


# ---- integers decide --------------------------------------------------------------------------------------


def _elementary(values: Numbers, top: int) -> list[int]:
    """Elementary symmetric polynomials of orders 0 to top."""
    out = [1] + [0] * top
    for v in values.tolist():
        for k in range(top, 0, -1):
            out[k] += out[k - 1] * v
    return out


def _least_symmetric(low: Numbers, high: Numbers, costs: list[int]) -> int:
    """A lower bound of sum_k costs_k e_k(y) over y_i = low_i or high_i, for costs of at least 0."""
    least, most = int(low.sum()), int(high.sum())
    near = min(most, -2 * least)
    edges = {start + (stop - start) * i // _SLICES for start, stop in ((least, most), (least, near)) for i in _STEPS}
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
        some = np.linspace(0, len(kinks) - 1, min(len(kinks), _BREAKS)).astype(np.intp)
        bounds = [
            int(np.maximum(f - m * low, g - m * high).sum()) + np.maximum(m * first[0], m * first[1])
            for m in [0, *kinks[some].tolist()]
        ]
        ends.append(sign * np.minimum.reduce(bounds))
    return ends[1], ends[0]


def _times(a: Interval, b: Interval) -> Interval:
    corners = [x * y for x in a for y in b]
    return np.minimum.reduce(corners), np.maximum.reduce(corners)


def _square(a: Interval) -> Interval:
    low, high = a[0] ** 2, a[1] ** 2
    return np.where((a[0] <= 0) & (a[1] >= 0), 0, np.minimum(low, high)), np.maximum(low, high)
