"""How much each table deserves: weights of small error at unit L1 sensitivity.

Table A, measured with weight w_A, tells every residual S inside it w_A^2 / prod_{A - S} c, c_i the variance of the
total of attribute i (its cells, where cells are measured). So residual S has the variance

    v_S = 1 / (k_S sum_{A >= S} w_A^2 / k_A),   k_A = prod_A c,

and the error sum_S e_S v_S at the price sum_A w_A is a smooth function, with sums over the lattice of sets for itself
and its gradient. It is not convex: the search starts from tables of one order each. [MMHM18]
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from sfumato.operators.base import FloatArray

__all__ = ["cover", "error_and_gradient", "subset_sums", "superset_sums", "weigh"]

_STEPS, _TOLERANCE = 400, 1e-9  # relative, of the error; a search without a certificate, its best is priced as it is
_NEGLIGIBLE = 1e-4  # of the largest weight
_BACKGROUND = 0.02  # what every table has to begin with: a weight of zero would stay zero
_MOST_STARTS = 6  # the best of at most two an order: each is a whole search
_LEAST = 1e-100  # positive, where no table tells: the error is then as good as infinite, its square still a double
_ALIKE = 1e-9  # the first of tables that are worth as much: by symmetry these make perfect covers


def superset_sums(values: FloatArray) -> FloatArray:
    """For every set, by its bits, the sum of the values of the sets that contain it; (2^d,)."""
    out = values.copy()
    for i in range(len(values).bit_length() - 1):
        pairs = out.reshape(-1, 2, 1 << i)
        pairs[:, 0] += pairs[:, 1]
    return out


def subset_sums(values: FloatArray) -> FloatArray:
    """For every set, by its bits, the sum of the values of its subsets; (2^d,)."""
    out = values.copy()
    for i in range(len(values).bit_length() - 1):
        pairs = out.reshape(-1, 2, 1 << i)
        pairs[:, 1] += pairs[:, 0]
    return out


def error_and_gradient(weights: FloatArray, effects: FloatArray, scales: FloatArray) -> tuple[float, FloatArray]:
    """log of sum e v, and its gradient in w; all (2^d,), `scales` the products k_A."""
    told = np.maximum(superset_sums(weights**2 / scales), _LEAST)
    asked = effects > 0
    variances = np.divide(effects, scales * told, out=np.zeros_like(told), where=asked)
    error = float(variances.sum())
    slope = np.divide(-variances, told, out=np.zeros_like(told), where=asked)
    gradient = 2 * weights / scales * subset_sums(slope) / error
    return math.log(error), gradient


def cover(effects: FloatArray, scales: FloatArray, allowed: NDArray[np.bool_]) -> FloatArray | None:
    """Weights of few tables that hold all that is asked, each residual read from one of them; None without such.

    Tables A that err by a_A / w_A^2 do best at w_A in proportion to a_A^(1/3), and the error is (sum a_A^(1/3))^3. So
    tables are taken greedily, by the least a_A^(1/3) for what they add, compared with a table for each residual.
    """
    left = effects.copy()
    weights = np.zeros(len(effects))
    while left.any():
        own = np.cbrt(scales * subset_sums(left / scales))
        added = subset_sums(np.cbrt(left))
        worth = np.divide(added, own, out=np.zeros_like(own), where=allowed & (own > 0))
        chosen = int(np.argmax(worth * (1 + _ALIKE) >= worth.max()))
        if worth[chosen] == 0.0 or weights[chosen] > 0.0:
            return None
        weights[chosen] = own[chosen]
        within = np.zeros(len(effects))
        within[chosen] = 1.0
        left[superset_sums(within) > 0] = 0.0
    return weights


def weigh(effects: FloatArray, scales: FloatArray, allowed: NDArray[np.bool_]) -> tuple[FloatArray, float]:
    """(w, root of the error at unit price): a local optimum over the `allowed` tables, from fixed starts. (2^d,)."""
    from scipy.optimize import Bounds, minimize  # noqa: PLC0415  (slow to import)

    free = np.flatnonzero(allowed)
    orders = np.bitwise_count(free.astype(np.uint64)).astype(np.int64)

    def spread(some: FloatArray) -> FloatArray:
        out = np.zeros(len(effects))
        out[free] = some
        return out

    def value(some: FloatArray) -> tuple[float, FloatArray]:
        # least where the price is 1, and there the log of the error at unit price: the scale does not drift
        found, gradient = error_and_gradient(spread(some), effects, scales)
        return found + 2 * (float(some.sum()) / unit - 1), gradient[free] + 2 / unit

    unit = 1.0

    starts = [np.full(len(free), 1.0 / len(free))]
    for order in range(1, int(orders.max()) + 1):
        own = orders == order
        if own.any():
            starts.append(own / own.sum() + _BACKGROUND / len(free))
        covered = cover(effects, scales, spread((orders <= order).astype(np.float64)) > 0)
        if covered is not None:
            starts.append(covered[free] / covered.sum() + _BACKGROUND / len(free))
    starts.sort(key=lambda s: value(s)[0])
    best, least = starts[0], math.inf
    for start in starts[:_MOST_STARTS]:
        unit = 1.0 / float(start.max())
        done = minimize(
            value,
            start * unit,
            jac=True,
            method="L-BFGS-B",
            bounds=Bounds(0.0, np.inf),
            options={"maxiter": _STEPS, "maxfun": 2 * _STEPS, "ftol": _TOLERANCE, "gtol": 0.0},
        )
        found = np.maximum(np.asarray(done.x, dtype=np.float64), 0.0)
        kept = np.where(found > _NEGLIGIBLE * float(found.max()), found, 0.0)
        told = superset_sums(spread(kept))
        if not (told[effects > 0] > 0).all():
            kept = found  # what is asked must stay measured, however little
        kept = kept / float(kept.sum())
        reached = error_and_gradient(spread(kept), effects, scales)[0]
        if reached < least:
            best, least = kept, reached
    weights = spread(best)
    return weights / float(weights.sum()), math.exp(least / 2)
