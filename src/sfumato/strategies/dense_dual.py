"""The dual of the factorization norm: Newton steps in log v, with proved bounds on both sides.

Over blocks b, each with a Gram G_b and an index from its coordinates to the dual variables,

    primal   min  sum_b tr(G_b X_b^+)   with  sum_b (X_b)_oo <= 1 for every dual variable o,  X_b >= 0,
    dual     max  t(v)^2,  t(v) = sum_b tr S_b^(1/2),  S_b = D_b^(1/2) G_b D_b^(1/2),  D_b = diag(v at the index),

over weights v >= 0 of sum 1; the two are equal, the square of the factorization norm [ENU20]. One block with the
identity as its index is the plain problem; several blocks are what symmetries leave. A multiplicity c of a block
is absorbed by its Gram: c^2 G_b.

With S_b = V diag(s^2) V^T, the gradient in v_o is g_o / 2, g_o = sum_b (V diag(s) V^T)_oo / v_o, and v is optimal
when g = t wherever v > 0. The Hessian in log v acts on a vector by two matrix products.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sfumato._util.display import Progress
from sfumato.operators.base import FloatArray, single_thread
from sfumato.strategies.dense_blocks import DenseBlock, Spectrum, rounding_units, spectrum_of_square

_EPS = float(np.finfo(np.float64).eps)
_LONGEST = 30.0  # a step of log v beyond this goes where the Hessian is singular
_SINGLE = 1e-10  # energy down to which single precision finds the way
_REST = 1e-20  # energy below which rounding is all that is left
_PATIENCE = 15  # iterations without progress after which the search ends
_MOST_PRODUCTS = 60  # of one direction by conjugate gradients: rounding has the rest
_FEW_PRODUCTS = 8  # the same at first of long searches: on unions of 30 to 534 queries 8 to 12 end soonest
_STALLED = 4.0  # an energy that fell by less asks for directions of twice as many products: 2 to 8 end as soon
_LONG = 20_000_000  # operations of a product, about: below, a whole search takes a tenth of a second
_SMOOTHED = 1  # fixed-point steps after one of Newton's: these take the columns of least weight, which bound the error
_COARSEST = 64  # dual variables below which a cold start costs nothing
_OPTIMAL = 1e-3  # gap up to which what was found is called the optimum
_COARSE_TOLERANCE = 1e-6  # cheap at half the size, and no worse than what interpolation adds
_MANY_ORDERED = 2_048  # ordered dual variables of which an evaluation costs seconds
_FINER_TOLERANCE = 2e-8  # for these, so that what a step left is not lost in it
# weights at both ends that follow their distance from it, not their share of the whole: 2 leave twenty times more
_END = 8


class BoundedOptimum:
    """A strategy between two bounds."""

    __slots__ = ()
    lower_bound: float
    upper_bound: float

    @property
    def gap(self) -> float:
        """upper_bound / lower_bound - 1: how far from optimal the strategy can be at most."""
        return relative_gap(self.lower_bound, self.upper_bound)


def relative_gap(lower: float, upper: float) -> float:
    """upper / lower - 1: how far from optimal what attains `upper` can be at most; 0 where that is 0 itself."""
    if upper == 0.0:
        return 0.0
    return upper / lower - 1 if lower > 0.0 else math.inf


def optimality_title(what: str, gap: float) -> str:
    """What a search found, by how near to the best it is proved to be: the optimum to a thousandth, or how far off."""
    if gap <= _OPTIMAL:
        return f"the optimal {what}"
    return f"a {what} within {gap:.1%} of the optimal one" if gap < 1 else f"a {what}"


@dataclass(frozen=True, slots=True)
class Solution:
    """Weights v and what they prove.

    `lower` and `upper` enclose the factorization norm; X_b = E V diag(s) V^T E with E = diag(squares)^(-1/2) has
    sum_b (X_b)_oo <= 1 and attains `upper`. `iterations` counts eigendecompositions at full size.
    """

    v: FloatArray
    lower: float
    upper: float
    squares: FloatArray
    spectra: tuple[Spectrum, ...]
    iterations: int


@dataclass(frozen=True, slots=True)
class _DualPoint:
    v: FloatArray
    spectra: tuple[Spectrum, ...]
    total: float  # t(v)
    share: FloatArray  # v g / t: equal to v at the optimum

    @property
    def energy(self) -> float:
        """About the relative distance of t from its maximum."""
        return 0.25 * float(np.sum((self.share - self.v) ** 2 / self.metric))

    @property
    def excess(self) -> FloatArray:
        return np.maximum(self.v - self.share, 0.0)

    @property
    def metric(self) -> FloatArray:
        """A diagonal that bounds the Hessian; its step alone is about v <- v (g/t)^2."""
        return self.share / 2 + self.excess


def _evaluate_dual(blocks: Sequence[DenseBlock], v: FloatArray, least: float) -> _DualPoint:
    v = np.maximum(v / v.sum(), least)
    v /= v.sum()
    spectra = tuple(block.decompose(v) for block in blocks)
    diagonal = np.zeros(len(v))
    for block, spectrum in zip(blocks, spectra, strict=True):
        diagonal += np.bincount(block.index, weights=spectrum.diagonal(), minlength=len(v))
    total = float(diagonal.sum())
    return _DualPoint(v, spectra, total, diagonal / total)


def _duality_bounds(blocks: Sequence[DenseBlock], point: _DualPoint) -> tuple[float, float, FloatArray]:
    """Proved lower and upper bounds at v, and the column scaling that attains the upper one.

    One scale for all columns always serves. Where every block has full rank, columns may be scaled one by one to
    norm one without leaving the row space, and the upper bound is off by the square of the error in v.
    """

    def cost(squares: FloatArray) -> float:
        pairs = zip(blocks, point.spectra, strict=True)
        return sum(block.cost(spectrum, squares) for block, spectrum in pairs)

    worst = point.total * float((point.share / point.v).max())
    squares, square = point.share * point.total, np.inf
    if all(block.full for block in blocks):
        square = cost(squares)
    if worst * point.total < square:
        squares, square = point.v * worst, cost(point.v * worst)
    rounding = _EPS * (len(point.v) + max(len(spectrum.roots) for spectrum in point.spectra))
    spread = _EPS * point.total * sum(float(np.sum(1 / spectrum.roots)) for spectrum in point.spectra)
    lower = sum(spectrum.proved for spectrum in point.spectra) * (1 - rounding)
    return lower, float(np.sqrt(square)) * (1 + rounding * (2 + spread)), squares


def _dual_newton_direction(
    blocks: Sequence[DenseBlock], point: _DualPoint, target: float, slack: float, products: int
) -> FloatArray:
    """The Newton direction in log v by conjugate gradients, of at most so many `products` with the Hessian.

    The energy of what is left bounds the distance of t from its maximum, its largest part relative to v the gap of a
    strategy whose columns have one scale. Products are in single precision until late: an error of 1e-6 in the
    direction is repaired by the next step.
    """
    kind = np.float32 if point.energy > _SINGLE else np.float64
    bends = [(block.index, spectrum.bend(kind)) for block, spectrum in zip(blocks, point.spectra, strict=True)]
    excess, metric = point.excess, point.metric

    def hessian(x: FloatArray) -> FloatArray:
        out = excess * x
        for index, bend in bends:
            out += np.bincount(index, weights=bend(x[index]) / point.total, minlength=len(x))
        return out

    return conjugate_gradients(hessian, point.share - point.v, metric, point.v, target, slack, products)


def conjugate_gradients(
    hessian: Callable[[FloatArray], FloatArray],
    residual: FloatArray,
    metric: FloatArray,
    weights: FloatArray,
    target: float,
    slack: float,
    products: int,
    flat: float = 0.0,
) -> FloatArray:
    """About hessian^-1 residual, a step of the logarithms of weights, preconditioned by the diagonal `metric`.

    Ends when the residual has the energy `target` and no part above `slack` times its weight, where the curvature is
    below `flat` times that of the metric, or after so many products.
    """
    step = np.zeros_like(residual)
    preconditioned = residual / metric
    direction, energy = preconditioned, float(residual @ preconditioned)
    for _ in range(products):
        image = hessian(direction)
        curvature = float(direction @ image)
        if curvature <= flat * float(direction @ (metric * direction)):
            break
        step = step + energy / curvature * direction
        residual = residual - energy / curvature * image
        preconditioned = residual / metric
        previous, energy = energy, float(residual @ preconditioned)
        solved = energy <= 4 * target and float((residual / weights).max()) <= slack
        if solved or float(np.abs(step).max()) > _LONGEST:
            break
        direction = preconditioned + energy / previous * direction
    return step


def _fixed_point_steps(blocks: Sequence[DenseBlock], point: _DualPoint, least: float) -> _DualPoint:
    """After steps of the fixed point, which ascend but for rounding."""
    for _ in range(_SMOOTHED):
        further = _evaluate_dual(blocks, point.share**2 / point.v, least)
        if further.total < point.total:
            break
        point = further
    return point


def step_log_weights(v: FloatArray, step: FloatArray) -> FloatArray:
    """v moved along a step of log v; downward linearly, so that a weight that should vanish does at once."""
    return v * np.where(step < 0.0, np.maximum(1.0 + step, 0.01), np.exp(np.minimum(step, 2.0)))


def solve_dual(
    blocks: Sequence[DenseBlock],
    start: FloatArray,
    *,
    tolerance: float,
    max_iterations: int,
    progress: Progress | None = None,
    certify: bool = True,
) -> Solution:
    """Maximise t(v) from `start` until upper / lower - 1 <= tolerance.

    Newton steps; where one does not ascend, the fixed point v <- v (g/t)^2 and shorter steps after it. The fixed
    point always ascends: with the polar factor P at v, t(v') >= sum_j sqrt(v'_j) <P_j, F_j> for every v', and this
    is largest there. Where the rank is deficient the largest g bounds the error, at columns of hardly any weight: long
    searches there take directions of few products, as many as are needed, and smooth them by the fixed point. Ends
    early when rounding is all that is left, or nothing improves. With `certify` false only v is wanted, to a relative
    `tolerance` of t: the bounds are then 0 and infinity.
    """
    full = all(block.full for block in blocks)
    least = max(0.05 * tolerance / len(start), 1e-30)  # costs t a part tolerance / 40, and keeps S well conditioned
    point, iterations, length, idle = _evaluate_dual(blocks, start, least), 1, 1.0, 0
    best, best_v, lowest = np.inf, point.v, np.inf
    hasty = not full and sum(len(s.vectors) * len(s.roots) ** 2 for s in point.spectra) > _LONG
    products = _FEW_PRODUCTS if hasty else _MOST_PRODUCTS
    while True:
        energy, crude = point.energy, float((point.share / point.v).max())
        idle = 0 if crude - 1 < 0.9 * (best - 1) or energy < 0.9 * lowest else idle + 1
        lowest = min(lowest, energy)
        if crude < best:
            best, best_v = crude, point.v
        last = idle > _PATIENCE or iterations >= max_iterations or energy < _REST
        if last and certify and not full and crude > best:
            point = _evaluate_dual(blocks, best_v, least)
        lower, upper, squares = 0.0, np.inf, point.v
        # where columns have one scale their longest tells how far the bounds are apart, to the second order
        near = energy <= tolerance and (full or math.sqrt(crude) - 1 <= 2 * tolerance)
        if certify and (last or near):
            lower, upper, squares = _duality_bounds(blocks, point)
        if progress is not None:
            progress(iterations, min(float(np.sqrt(best)), upper / lower if lower > 0.0 else np.inf) - 1.0)
        if last or upper <= lower * (1 + tolerance) or (not certify and energy <= tolerance):
            return Solution(point.v, lower, upper, squares, point.spectra, iterations)
        second_order = full and energy > tolerance  # the gap will be about the energy, not its root
        target = max(min(0.0025, 10 * energy) * energy, tolerance / 100 if second_order else tolerance**2 / 1000)
        slack = np.inf if second_order else max(tolerance / 2, (0.1 if hasty else 0.03) * (crude - 1))
        moved = step_log_weights(point.v, length * _dual_newton_direction(blocks, point, target, slack, products))
        fixed = point.share**2 / point.v
        proved = min(sum(spectrum.proved for spectrum in point.spectra), point.total * (1 - tolerance / 1000))
        del point  # its vectors are not needed any more, and are as large as the Gram
        point, iterations, length = _evaluate_dual(blocks, moved, least), iterations + 1, min(1.0, 2 * length)
        if hasty:
            point, iterations = _fixed_point_steps(blocks, point, least), iterations + _SMOOTHED
            products = products if point.energy < energy / _STALLED else min(2 * products, _MOST_PRODUCTS)
        if point.total < proved and iterations < max_iterations:
            del point
            point, iterations, length = _evaluate_dual(blocks, fixed, least), iterations + 1, length / 8


def cold_start(blocks: Sequence[DenseBlock]) -> FloatArray:
    """Weights in proportion to the squared norms of the columns: right for a diagonal F and where all are alike."""
    size = 1 + max(int(block.index.max()) for block in blocks)
    weights = np.zeros(size)
    for block in blocks:
        weights += np.bincount(block.index, weights=block.squares, minlength=size)
    return weights


def warm_start(blocks: Sequence[DenseBlock]) -> FloatArray:
    """Weights for ordered dual variables, from those of every second one, solved roughly.

    Of many, what the step from a quarter to half the size left tells what the last one will: where each evaluation
    costs seconds, that saves one.
    """
    return np.exp(_coarse_to_fine_start(blocks, many=len(cold_start(blocks)) >= _MANY_ORDERED).start)


@dataclass(frozen=True, slots=True)
class _StretchedStart:
    """log v from half the size, stretched, and what that misses at the `ends`, as seen at half the size.

    left: what both missed there, stretched; share: of it, what they are expected to miss here.
    """

    middle: FloatArray
    ends: FloatArray
    left: FloatArray
    share: float = 0.0

    @property
    def start(self) -> FloatArray:
        return self.middle + self.ends + self.share * self.left


def _coarse_to_fine_start(blocks: Sequence[DenseBlock], *, many: bool) -> _StretchedStart:
    cold = cold_start(blocks)
    size = len(cold)
    if size <= _COARSEST:
        return _StretchedStart(np.log(cold), np.zeros(size), np.zeros(size))
    coarse = [block.every_second() for block in blocks]
    known = _coarse_to_fine_start(coarse, many=many)
    tolerance = _FINER_TOLERANCE if many else _COARSE_TOLERANCE
    v = solve_dual(coarse, np.exp(known.start), tolerance=tolerance, max_iterations=10, certify=False).v
    found, half, middle = np.log(v), len(v), len(v) // 2
    missed = found - known.middle if half > _COARSEST else np.zeros(half)
    ends = np.concatenate([missed[:middle], np.full(size - half, missed[middle]), missed[middle:]])
    places, whole = np.linspace(0, half - 1, size), np.arange(half)
    if not many or half <= _COARSEST:
        return _StretchedStart(np.interp(places, whole, found), ends, np.zeros(size))
    # a factor common to all weights says nothing
    left, before = (x - float(v @ x) for x in (missed - known.ends, known.left))
    square = float(v @ before**2)
    share = min(max(float(v @ (left * before)) / square, 0.0), 1.0) if square > 0.0 else 0.0
    further = np.interp(places, whole, left)
    further[:_END], further[-_END:] = left[:_END], left[-_END:]
    return _StretchedStart(np.interp(places, whole, found), ends, further, share)


def nuclear_bound(matrix: FloatArray) -> float:
    """What ||R||_F ||A||_{1->2} is at least for R A = `matrix`, (k, m), by weights at which a search would begin.

    ||F diag(v)^(1/2)||_* for v in proportion to the squared columns: within a few per cent of the optimum for counts.
    """
    squares = np.einsum("ij,ij->j", matrix, matrix)
    total = float(squares.sum())
    if total == 0.0:
        return 0.0
    scaled = matrix * np.sqrt(squares / total)
    with single_thread():
        found = spectrum_of_square(scaled @ scaled.T, rounding_units(sum(scaled.shape)))
    # as `_duality_bounds` rounds
    return found.proved * (1 - _EPS * sum(matrix.shape))


def pair_bound(gram: FloatArray) -> float:
    """Replace-one: sqrt(2 / (m - 1)) ||F C||_*, the pair bound with equal weights on all pairs of cells.

    With the dual point L = sum over pairs of w_uv (e_u - e_v)(e_u - e_v)ᵀ, sum w = 1, every unbiased
    strategy whose columns lie at most 1 apart has ||R||_F >= ||F L^(1/2)||_*.
    """
    cells = len(gram)
    if cells < 2:
        return 0.0
    centred = gram - gram.mean(axis=0)[None, :] - gram.mean(axis=1)[:, None] + gram.mean()
    with single_thread():
        values = np.linalg.eigvalsh(centred)
    positive = values[values > values[-1] * cells * 1e-14]
    return float(np.sqrt(positive).sum()) * math.sqrt(2 / (cells - 1)) * (1 - 1e-9)
