"""Weights close to products, fitted in floating point: a proposal for the bound of privacy/products.

Plans for many tables have weights close to c_|S| prod_{i in S} u_i. Floats propose u and c; what is added up is
integers, so the bound holds whatever they are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import PlanError
from sfumato.operators.base import FloatArray, Numbers
from sfumato.privacy.products import Products, elementary, extremes, scaled_ends
from sfumato.privacy.sums import Sum

__all__ = ["fit"]

_MOST_ORDER = 8  # tables of more attributes have other mechanisms, and bounds of power sums grow loose
_BITS = 24  # of a unit: what a double can propose, with room for products
_MOST_FEATURES = 1_000  # the fit solves a system of so many
_WIDEST = 20.0  # logarithm of a unit: more is fit to noise
_MOST_BITS = 960  # of the largest number of a proposal, which must not leave float64


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """Products of one order: their sets of features, logarithms of their weights, largest and least product."""

    sets: NDArray[np.intp]
    logs: FloatArray
    norms: Numbers
    least: Numbers


def fit(total: Sum) -> Products | None:
    """u, c per order and a shift with |weight| scale 2^shift about c prod u; None where products say nothing."""
    bundles = [b for b in total.bundles if b.sets.size]
    if not bundles or any((b.weights > 0).any() for b in bundles):
        return None
    try:
        scale, low, high = scaled_ends(total)
    except PlanError:
        return None
    count, top = len(scale), max(b.sets.shape[1] for b in bundles)
    weight, *bits = (
        int(abs(v).max()).bit_length() for v in (np.concatenate([b.weights for b in bundles]), scale, high)
    )
    unit = _BITS + math.ceil(2 * _WIDEST / math.log(2)) + count.bit_length()
    if count > _MOST_FEATURES or top > _MOST_ORDER or max(weight, top * unit) + top * sum(bits) >= _MOST_BITS:
        return None
    logs = np.log(scale.astype(np.float64))
    parts = [
        _Part(sets, np.log(np.maximum(abs(weights).astype(np.float64), 0.5)) + logs[sets].sum(axis=1), most, least)
        for sets, weights in bundles
        for most, least in [extremes(low, high, sets)]
    ]
    units = _units(parts, np.log(high.astype(np.float64)), count, top)
    symmetric = elementary(units * high, top)
    levels = [0.0] * (top + 1)
    for part in parts:
        order = part.sets.shape[1]
        levels[order] = _level(units, part, symmetric[order])
    if not any(levels):
        return None
    shift = max(0, _BITS + 8 - math.floor(math.log2(min(k for k in levels if k))))
    return Products(tuple(map(int, units)), tuple(int(Fraction(k) * 2**shift) for k in levels), shift)


def _units(parts: list[_Part], high: FloatArray, count: int, top: int) -> Numbers:
    """Weights' logarithms as sums of one number per feature and one per order, by least squares; then whole numbers."""
    mass = [p.logs + high[p.sets].sum(axis=1) for p in parts]
    largest = max(float(m.max()) for m in mass)
    matrix = np.zeros((count + top + 1) ** 2)
    right = np.zeros(count + top + 1)
    for part, m in zip(parts, mass, strict=True):
        columns = [*part.sets.T, np.full(len(m), count + part.sets.shape[1])]
        share = np.exp(m - largest)
        for i in columns:
            right += np.bincount(i, share * part.logs, len(right))
            for j in columns:
                matrix += np.bincount(i * len(right) + j, share, len(matrix))
    found = np.linalg.lstsq(matrix.reshape(len(right), -1), right, rcond=1e-12)[0][:count]
    found = np.clip(found - np.median(found), -_WIDEST, _WIDEST)
    return np.array([round(v) for v in np.exp2(_BITS) * np.exp(found - found.min())], dtype=object)


def _level(units: Numbers, part: _Part, whole: int) -> float:
    """The c at which the deviations of the weights from c prod u cost least.

    A weight that is too small costs its whole deviation, one too large what the product can fall below 0.
    """
    product = np.log(units.astype(np.float64))[part.sets].sum(axis=1)
    mass = np.exp(product) * part.norms.astype(np.float64)
    fall = mass * -(part.least / part.norms).astype(np.float64)
    ratio = np.exp(part.logs - product)
    order = np.argsort(ratio)
    below = max(float(whole) - float(mass.sum()), 0.0) + np.cumsum(mass[order])
    above = float(fall.sum()) - np.cumsum(fall[order])
    return 0.0 if below[0] - mass[order[0]] >= fall.sum() else float(ratio[order[np.argmax(below >= above)]])
