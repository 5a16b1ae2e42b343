"""Weighted tables for pure epsilon: few tables, each worth its share, of cells or of L1 factors. [MMHM18]

How much each table deserves: weights of small error at unit L1 sensitivity.

Table A, measured with weight w_A, tells every residual S inside it w_A^2 / prod_{A - S} c, c_i the variance of the
total of attribute i (its cells, where cells are measured). So residual S has the variance

    v_S = 1 / (k_S sum_{A >= S} w_A^2 / k_A),   k_A = prod_A c,

and the error sum_S e_S v_S at the price sum_A w_A is a smooth function, with sums over the lattice of sets for itself
and its gradient. It is not convex: the search starts from tables of one order each. [MMHM18]
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sfumato.operators import Identity, LinearOperator, Total
from sfumato.operators.base import FloatArray
from sfumato.strategies.budget_split import root_error
from sfumato.strategies.dense_optimal import optimize_pure
from sfumato.strategies.dense_planning import laplace_note
from sfumato.strategies.design import Design, Problem
from sfumato.strategies.factors import Cells, StrategyFactor, quantise
from sfumato.strategies.residual_planning import tables_bound
from sfumato.strategies.trees import is_ordered
from sfumato.strategies.weighted import TableAxis, WeightedTables

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


def log_error_and_gradient(weights: FloatArray, effects: FloatArray, scales: FloatArray) -> tuple[float, FloatArray]:
    """log of sum e v, and its gradient in w; all (2^d,), `scales` the products k_A."""
    told = np.maximum(superset_sums(weights**2 / scales), _LEAST)
    asked = effects > 0
    variances = np.divide(effects, scales * told, out=np.zeros_like(told), where=asked)
    error = float(variances.sum())
    slope = np.divide(-variances, told, out=np.zeros_like(told), where=asked)
    gradient = 2 * weights / scales * subset_sums(slope) / error
    return math.log(error), gradient


def cover_with_tables(effects: FloatArray, scales: FloatArray, allowed: NDArray[np.bool_]) -> FloatArray | None:
    """Weights of few tables that hold all that is asked, each residual read from one of them; None without such.

    Tables A that err by a_A / w_A^2 do best at w_A in proportion to a_A^(1/3), and the error is (sum a_A^(1/3))^3. So
    tables are taken greedily, by the least a_A^(1/3) for what they add, compared with a table for each residual.
    """
    left = effects.copy()
    weights = np.zeros(len(effects))
    while left.any():
        own = root_error(scales * subset_sums(left / scales), 1.0, 1)
        added = subset_sums(root_error(left, 1.0, 1))
        worth = np.divide(added, own, out=np.zeros_like(own), where=allowed & (own > 0))
        chosen = int(np.argmax(worth * (1 + _ALIKE) >= worth.max()))
        if worth[chosen] == 0.0 or weights[chosen] > 0.0:
            return None
        weights[chosen] = own[chosen]
        within = np.zeros(len(effects))
        within[chosen] = 1.0
        left[superset_sums(within) > 0] = 0.0
    return weights


def optimize_table_weights(
    effects: FloatArray, scales: FloatArray, allowed: NDArray[np.bool_]
) -> tuple[FloatArray, float]:
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
        found, gradient = log_error_and_gradient(spread(some), effects, scales)
        return found + 2 * (float(some.sum()) / unit - 1), gradient[free] + 2 / unit

    unit = 1.0

    starts = [np.full(len(free), 1.0 / len(free))]
    for order in range(1, int(orders.max()) + 1):
        own = orders == order
        if own.any():
            starts.append(own / own.sum() + _BACKGROUND / len(free))
        covered = cover_with_tables(effects, scales, spread((orders <= order).astype(np.float64)) > 0)
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
        reached = log_error_and_gradient(spread(kept), effects, scales)[0]
        if reached < least:
            best, least = kept, reached
    weights = spread(best)
    return weights / float(weights.sum()), math.exp(least / 2)


_MOST_ATTRIBUTES = 14  # all 2^14 sets of them get a weight, in sums over subsets and a search over them
_MOST_SUBSETS = 2**17  # sets below the asked ones, gone through at every step of the search
_MOST_CELLS, _MOST_SIDE = 2**23, 1024  # 64 MB a joint table; 8 MB the Gram matrix of an attribute
# factors and weights by turns, until a round gains less than is shown; of a search that only has to descend
_ROUNDS, _GAIN, _TOLERANCE_WEIGHTED_PLANNING = 12, 3e-5, 1e-9
# of the least table's multiple, of one factor's entries, of those of all factors together: products stay in 63
_BITS, _FACTOR_BITS, _JOINT_BITS = 10, 18, 40
_TIE = 1e-6  # of the largest query of an attribute: what the total counts where nobody asks for it

Product = tuple[float, dict[int, LinearOperator]]


@dataclass(frozen=True, slots=True)
class _WeightedOptimum:
    factors: tuple[StrategyFactor, ...]
    weights: FloatArray
    error: float


def design_weighted_tables(problem: Problem) -> list[Design]:
    """The best weighted tables found for Laplace noise; none where attributes are too many or asked about jointly.

    They are those of the least mean error, also where the largest is to be small: a candidate there, no optimum.
    """
    if problem.noise != "laplace" or problem.known:
        return []
    names = problem.workload.domain.ordered({a for i in problem.workload.items for a in i.attributes})
    # of one attribute the L1 optimum is the whole answer
    if not 1 < len(names) <= _MOST_ATTRIBUTES:
        return []
    if sum(2 ** len(q.attributes) for q in problem.workload.blocks) > _MOST_SUBSETS:
        return []
    place = {a: i for i, a in enumerate(names)}
    named = problem.products
    if named is None:
        return []
    products: list[Product] = [(w, {place[a]: f for a, f in factors.items()}) for w, factors in named]
    sizes = [problem.sizes[a] for a in names]
    found = _best_weighted_tables(products, sizes, public=problem.unit.total_is_public)
    return [] if found is None else [_design_from_weights(problem, names, found)]


def _design_from_weights(problem: Problem, names: tuple[str, ...], found: _WeightedOptimum) -> Design:
    held = np.flatnonzero(found.weights)
    sets = tuple(tuple(i for i in range(len(names)) if s >> i & 1) for s in held.tolist())
    units = np.array([math.prod(found.factors[i].scale for i in s) for s in sets])
    real = found.weights[held] / units
    public = problem.unit.total_is_public

    def build(s: float) -> WeightedTables:
        multiples = tuple(int(m) for m in np.maximum(1, np.rint(s * real)))
        return WeightedTables(names, found.factors, sets, multiples, public)

    # what is proved of Gaussian noise is in closed form for tables; on a plain lattice noise may vary less than that
    bound = None if problem.unit_lattice else tables_bound(replace(problem, noise="gaussian"))
    notes = () if bound is None else (laplace_note(problem, bound),)
    return Design("marginals", build, 2.0**_BITS / float(real.min()), notes=notes)


def _best_weighted_tables(
    products: Sequence[Product], sizes: Sequence[int], *, public: bool
) -> _WeightedOptimum | None:
    """The least of cells alone, and of factors that take turns with the weights of their tables."""
    cells = tuple(Cells(n) for n in sizes)
    found = [_weigh_tables(products, sizes, cells, public=public)]
    grams = [{i: _operator_gram(o) for i, o in f.items() if not isinstance(o, Identity | Total)} for _, f in products]
    told = {i for some in grams for i, gram in some.items() if not _treats_cells_alike(gram)}
    own = sorted(i for i in told if 2 < sizes[i] <= _MOST_SIDE)
    if own:
        grams = [{i: _operator_gram(f[i]) for i in own if i in f} for _, f in products]
        joint = np.zeros(2 ** len(sizes))
        joint[-1] = 1.0
        scale = 2.0 ** min(_FACTOR_BITS, _JOINT_BITS // len(own))
        starts = [(None, False)] + ([(joint, True)] if math.prod(sizes) <= _MOST_CELLS else [])
        for start, totals in starts:
            factors: tuple[StrategyFactor, ...] = cells
            weights = start if start is not None else (found[0].weights if found[0] is not None else None)
            least = math.inf
            for _ in range(_ROUNDS):
                if weights is None:
                    break
                factors = _improve_factors(products, grams, factors, weights, own, scale, totals=totals)
                made = _weigh_tables(products, sizes, factors, public=public)
                found.append(made)
                if made is None or made.error > least * (1 - _GAIN):
                    break
                least = made.error
                if not totals:
                    weights = made.weights
    some = [f for f in found if f is not None]
    return min(some, key=lambda f: f.error) if some else None


def _treats_cells_alike(gram: FloatArray) -> bool:
    """Whether queries of this Gram treat all cells alike, as tables and totals do: then weights of tables suffice."""
    off = gram[~np.eye(len(gram), dtype=bool)]
    return bool(np.ptp(np.diagonal(gram)) == 0.0 and np.ptp(off) == 0.0) if off.size else True


def _operator_gram(operator: LinearOperator) -> FloatArray:
    return np.asarray(operator.gram().dense(), dtype=np.float64)


def _subset_scales(axes: Sequence[TableAxis]) -> FloatArray:
    out = np.ones(2 ** len(axes))
    for i, axis in enumerate(axes):
        out.reshape(-1, 2, 1 << i)[:, 1] *= axis.total
    return out


def _mean_and_contrast_squares(
    axes: Sequence[TableAxis], factors: dict[int, LinearOperator]
) -> dict[int, tuple[float, float]]:
    """Per attribute the squares of all rows: of their means, and of their contrasts."""
    out: dict[int, tuple[float, float]] = {}
    for i, f in factors.items():
        mean, rest = axes[i].squares(f)
        out[i] = float(mean.mean()) * f.shape[0], float(rest.mean()) * f.shape[0]
    return out


def _weigh_tables(
    products: Sequence[Product], sizes: Sequence[int], factors: Sequence[StrategyFactor], *, public: bool
) -> _WeightedOptimum | None:
    axes = [TableAxis.of(f) for f in factors]
    effects = np.zeros(2 ** len(sizes))
    for weight, asked in products:
        sums = _mean_and_contrast_squares(axes, asked)
        for choice in itertools.product((0, 1), repeat=len(sums)):
            effect = weight * math.prod(s[k] for s, k in zip(sums.values(), choice, strict=True))
            effects[sum(k << i for i, k in zip(sums, choice, strict=True))] += effect
    if public:
        effects[0] = 0.0
    if not effects.any():
        return None
    effects[effects < 1e-13 * effects.max()] = 0.0
    cells = np.ones(len(effects))
    for i, n in enumerate(sizes):
        cells.reshape(-1, 2, 1 << i)[:, 1] *= n
    asked_sets = superset_sums((effects > 0).astype(float)) > 0
    allowed = (cells <= _MOST_CELLS) | asked_sets
    weights, error = optimize_table_weights(effects, _subset_scales(axes), allowed)
    return _WeightedOptimum(tuple(factors), weights, error)


def _improve_factors(
    products: Sequence[Product],
    grams: Sequence[dict[int, FloatArray]],
    factors: Sequence[StrategyFactor],
    weights: FloatArray,
    own: Sequence[int],
    scale: float,
    *,
    totals: bool,
) -> tuple[StrategyFactor, ...]:
    """Factors for given weights of tables, one attribute after the other; with `totals` as in one joint table."""
    out = list(factors)
    for i in own:
        axes = [TableAxis.of(f) for f in out]
        scales = _subset_scales(axes)
        told = superset_sums(weights**2 / scales) * scales
        n = axes[i].cells
        gram = np.zeros((n, n))
        for (weight, asked), own_grams in zip(products, grams, strict=True):
            if i not in own_grams and not totals and i not in asked:
                continue
            sums = _mean_and_contrast_squares(axes, {j: f for j, f in asked.items() if j != i})
            share = 0.0
            for choice in itertools.product((0, 1), repeat=len(sums)):
                precision = told[sum(k << j for j, k in zip(sums, choice, strict=True)) | 1 << i]
                if precision > 0:
                    share += math.prod(s[k] for s, k in zip(sums.values(), choice, strict=True)) / precision
            gram += weight * share * own_grams.get(i, np.ones((n, n)))
        gram += _TIE * float(np.diagonal(gram).max()) * np.ones((n, n))
        ordered = all(is_ordered(f[i]) or isinstance(f[i], Identity | Total) for _, f in products if i in f)
        found = optimize_pure(gram, ordered=ordered, tolerance=_TOLERANCE_WEIGHTED_PLANNING)
        out[i] = quantise(found.coefficients, found.basis, scale)
    return tuple(out)
