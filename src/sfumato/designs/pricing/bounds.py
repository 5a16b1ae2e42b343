"""A proved bound of the largest change, where attributes are many and no two are alike.

The distance is 2 (sum_S w_S prod same - G), and G = sum_S w_S prod_{i in S} x_i with x_i = same_i or other_i is to
be bounded from below. Plans for many tables have weights close to c_|S| prod_{i in S} u_i; how these are bounded is
told in privacy/products. Floats propose u and c; what is added up is integers, so the bound holds whatever they are.
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
from sfumato.privacy.products import elementary, least_combination

__all__ = ["largest_change", "product_bound"]

_MOST_ORDER = 8  # tables of more attributes have other mechanisms, and bounds of power sums grow loose
_BITS = 24  # of a unit: what a double can propose, with room for products
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
    symmetric = elementary(high, len(costs) - 1)
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
    least = least_combination(low, high, tuple(costs)) - paid
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
    symmetric = elementary(units * variables.high, top)
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
