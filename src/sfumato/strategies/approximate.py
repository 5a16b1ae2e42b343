"""Answers with a small bias for less noise: given reconstructions of a dense strategy, which err by a stated bound.

The search behind `approximate`: answers near F and weights on what bounds the sensitivity, improved in turn.

Over answers Z near F and weights v on the cells, or on the pairs of cells,

    min_Z max_v || Z L(v)^(1/2) ||_*

is convex in Z and concave in v [ENU20]. L(v) is diag(v) where the sensitivity is the largest norm of a column, and the
Laplacian of the weighted graph where it is the largest distance between two columns; the latter
forgets what all columns have in common, which a known total answers. Both sides are improved in turn: v by the ratio
of its gradient to the mean, Z by accelerated projected steps on tr(Z X^-1 Z^T), X the optimum at v for the last Z with
the square of a width added to its squared singular values, without which X becomes singular and the search stalls.
The width follows the gap.

For any P of operator norm at most 1 and B = P L(v)^(1/2), every Z near F has <B, Z> >= <B, F> minus what moving Z by
`size` can take, which is `size` times the sum of |B_ij|, or of the norms of its columns: a line in `size`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from sfumato._util.codec import storable, value_fingerprint
from sfumato.errors import PlanError, WorkloadError
from sfumato.operators import Block, OnMarginal
from sfumato.operators.base import FloatArray, Numbers, real_array, single_thread
from sfumato.strategies.covariance import check_covariance_size
from sfumato.strategies.dense_blocks import PairChanges
from sfumato.strategies.dense_dual import BoundedOptimum
from sfumato.strategies.product import Product
from sfumato.strategies.strategy import Estimate, Strategy, row_shape

_EPS = float(np.finfo(np.float64).eps)


@storable
@dataclass(frozen=True, eq=False)
class Biased(Strategy):
    """`measured` B over one table; each block W of `answered` is answered by R B x + c n, near W x.

    R is the `reconstructions`' (rows, l), on the values divided by the strategy's scale, and c the `offsets`' (rows,),
    zero unless the number n of records is known. On a table of at most `limit` records answer i is off by at most
    limit * max_j |(R B + c 1ᵀ - W)_ij|. Every other query is answered without bias by least squares.
    """

    measured: Product
    answered: tuple[Block, ...]
    reconstructions: tuple[FloatArray, ...]
    offsets: tuple[FloatArray, ...]
    limit: int

    def __post_init__(self) -> None:
        rows = [b.rows for b in self.answered]
        width = sum(b.rows for b in self.measured.blocks)
        right = [(n, width) for n in rows] == [r.shape for r in self.reconstructions]
        if not right or [(n,) for n in rows] != [c.shape for c in self.offsets]:
            raise PlanError("every block needs a reconstruction (rows, measured values) and an offset (rows,)")
        if any(c.any() for c in self.offsets) and not self.measured.public_total:
            raise PlanError("offsets need a known number of records")
        if isinstance(self.limit, bool) or not isinstance(self.limit, int) or self.limit < 1:
            raise PlanError(f"the limit of records must be a positive whole number, not {self.limit!r}")

    @property
    def blocks(self) -> tuple[Block, ...]:
        return self.measured.blocks

    @property
    def records(self) -> int:
        return self.limit

    @property
    def summary(self) -> str:
        return self.measured.summary

    @functools.cached_property
    def _prints(self) -> tuple[str, ...]:
        return tuple(value_fingerprint(b) for b in self.answered)

    def _find(self, query: Block) -> int | None:
        """Which of the answered blocks a query is."""
        alike = [
            i for i, b in enumerate(self.answered) if b.groups == query.groups and row_shape(b) == row_shape(query)
        ]
        for i in alike:
            if self.answered[i] is query:
                return i
        own = value_fingerprint(query) if alike else ""
        return next((i for i in alike if self._prints[i] == own), None)

    def _raw(self, i: int) -> Product:
        """The same measurement with a block's reconstruction for its answers."""
        return replace(self.measured, raw=self.answered[i], reconstruction=self.reconstructions[i])

    def check(self, query: Block) -> None:
        if self._find(query) is None:
            self.measured.check(query)

    def row_powers(self, query: Block, power: int) -> FloatArray:
        i = self._find(query)
        return (self.measured if i is None else self._raw(i)).row_powers(query, power)

    def covariance(self, first: Block, second: Block) -> FloatArray:
        check_covariance_size(first.rows, second.rows)
        i, j = self._find(first), self._find(second)
        if i is not None and j is not None:
            return self.reconstructions[i] @ self.reconstructions[j].T * self.measured.divisor**-2
        known = j if i is None else i
        return (self.measured if known is None else self._raw(known)).covariance(first, second)

    def estimate(self, values: Sequence[Numbers], total: int | None) -> Estimate:
        return self.measured.estimate(values, total), 0 if total is None else total

    def answer(self, estimate: Estimate, query: Block) -> FloatArray:
        held, total = estimate
        i = self._find(query)
        if i is None:
            return self.measured.answer(held, query)
        return self._raw(i).answer(held, query) + total * self.offsets[i]

    @functools.cached_property
    def _deviations(self) -> tuple[FloatArray, ...]:
        """Per block |R B + c 1ᵀ - W| over the cells of the measured table, with what rounding may hide."""
        (factor,), names = self.measured.factors, self.measured.attributes
        sizes = tuple(n for group in self.measured.sizes for n in group)
        integers = np.asarray(factor.measured.dense(), dtype=np.float64) / factor.scale
        out: list[FloatArray] = []
        for block, back, offset in zip(self.answered, self.reconstructions, self.offsets, strict=True):
            axes = tuple(map(names.index, block.attributes))
            wanted = np.asarray(OnMarginal(sizes, axes, block.operator).dense(), dtype=np.float64)
            reached = back @ integers + offset[:, None]
            size = np.abs(back) @ np.abs(integers) + np.abs(offset)[:, None] + np.abs(wanted)
            found = np.abs(reached - wanted)
            out.append(found + 4 * (len(integers) + 2) * _EPS * size)
        return tuple(out)

    def deviations(self, query: Block) -> FloatArray | None:
        i = self._find(query)
        return None if i is None else self._deviations[i]

    def bias_bound(self, query: Block) -> float:
        off = self.deviations(query)
        return math.nextafter(float(off.max()), math.inf) if off is not None else self.measured.bias_bound(query)


_WIDTH = 0.3  # of the largest singular value, at the start
_NARROW = 0.7  # the width shrinks no faster than by this, so that the two sides keep pace
_STEPS = 15  # for Z between two decompositions
_PACE = 1.5  # power of the ratio by which v moves: 1 is safe, 2 the longest that settles
_LEAST = 1e-9  # of the mean weight
_BALL_STEPS = 1_000  # towards the centre of the least ball: its radius is then found to a thousandth or so
_FREE = 5  # iterations after which `size` moves half the way only


@dataclass(frozen=True, slots=True)
class NearbyAnswers:
    """The answers within `size` of F: in every entry, or in the norm of every column."""

    matrix: FloatArray
    size: float
    by_column: bool

    def project(self, answers: FloatArray) -> FloatArray:
        """The nearest such answers."""
        if not self.by_column:
            return np.clip(answers, self.matrix - self.size, self.matrix + self.size)
        off = answers - self.matrix
        norms = np.linalg.norm(off, axis=0)
        return self.matrix + off * np.minimum(1.0, self.size / np.maximum(norms, 1e-300))

    def distance(self, answers: FloatArray) -> float:
        """The least size at which these answers are near."""
        off = np.abs(answers - self.matrix)
        return float(np.linalg.norm(off, axis=0).max() if self.by_column else off.max())

    def line(self, directions: FloatArray) -> tuple[float, float]:
        """(a, b) with <B, Z> >= a - b size for all Z within any size; rounded so that it holds."""
        # P may exceed norm 1, and the sums their values, by rounding
        doubt = 32 * math.sqrt(directions.size) * _EPS
        taken = np.linalg.norm(directions, axis=0).sum() if self.by_column else np.abs(directions).sum()
        held = float(np.vdot(directions, self.matrix))
        return held - doubt * float(np.vdot(np.abs(directions), np.abs(self.matrix))), float(taken) * (1 + doubt)


@dataclass(frozen=True, slots=True)
class CellWeights:
    """Weights on the cells: the sensitivity is the largest norm of a column of M."""

    weights: FloatArray

    bend = 1.0
    """Bounds the norm of L(v) divided on both sides by the scale."""

    @classmethod
    def even(cls, cells: int) -> CellWeights:
        return cls(np.full(cells, 1 / cells))

    @property
    def scale(self) -> FloatArray:
        return np.sqrt(self.weights)

    def rooted(self, rows: FloatArray) -> FloatArray:
        """Rows times L(v)^(1/2)."""
        return rows * self.scale

    def scaled(self, inner: FloatArray) -> FloatArray:
        """L(v)^(1/2) inner L(v)^(1/2), divided on both sides by the scale."""
        return inner

    def attain(
        self, answers: FloatArray, rooted: FloatArray, vectors: FloatArray, s: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """M of sensitivity 1 and R with R M = Z, from X; and the gradients by which the weights move."""
        share = np.einsum("ij,ij->i", vectors * s, vectors)
        # X with its diagonal scaled to 1, and its factors
        lengths = np.sqrt(share / self.weights) * self.scale
        strategy = (vectors * np.sqrt(s)).T / lengths * (1 - 32 * _EPS)
        return strategy, (answers * lengths) @ vectors / np.sqrt(s), share / self.weights

    def moved(self, gradients: FloatArray) -> CellWeights:
        return CellWeights(_update_dual_weights(self.weights, gradients))


@dataclass(frozen=True, slots=True)
class PairWeights:
    """Weights on the pairs of cells: the sensitivity is the largest distance between two columns of M."""

    weights: FloatArray
    graph: FloatArray
    root: FloatArray
    inverse: FloatArray

    bend = 2.0

    @classmethod
    def even(cls, cells: int) -> PairWeights:
        count = cells * (cells - 1) // 2
        return cls.of(np.full(count, 1 / count), cells)

    @classmethod
    def of(cls, weights: FloatArray, cells: int) -> PairWeights:
        from scipy.linalg import eigh  # noqa: PLC0415  (slow to import)

        graph = PairChanges.of(cells).laplacian(weights)
        values, vectors = eigh(graph, check_finite=False, driver="evd")
        # the least is that of what all columns have in common
        roots, vectors = np.sqrt(np.maximum(values[1:], _EPS * values[-1])), vectors[:, 1:]
        return cls(weights, graph, (vectors * roots) @ vectors.T, (vectors / roots) @ vectors.T)

    @property
    def scale(self) -> FloatArray:
        return np.sqrt(np.diagonal(self.graph))

    def rooted(self, rows: FloatArray) -> FloatArray:
        return rows @ self.root

    def scaled(self, inner: FloatArray) -> FloatArray:
        return self.root @ inner @ self.root / self.scale / self.scale[:, None]

    def attain(
        self, answers: FloatArray, rooted: FloatArray, vectors: FloatArray, s: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        strategy = (vectors * np.sqrt(s)).T @ self.inverse
        squares = PairChanges.of(len(self.graph)).lengths(strategy.T @ strategy)
        size = math.sqrt(float(squares.max())) * (1 + 32 * _EPS)
        return strategy / size, rooted @ vectors / np.sqrt(s) * size, squares

    def moved(self, gradients: FloatArray) -> PairWeights:
        return PairWeights.of(_update_dual_weights(self.weights, np.maximum(gradients, 0.0)), len(self.graph))


def _update_dual_weights(weights: FloatArray, gradients: FloatArray) -> FloatArray:
    moved = weights * (gradients / (weights @ gradients)) ** _PACE
    moved = np.maximum(moved / moved.sum(), _LEAST / len(moved))
    return moved / moved.sum()


@dataclass(frozen=True, slots=True)
class NearOptimum:
    """R M = Z up to what all columns have in common, with `distance` of Z from F and bounds on the value sought."""

    strategy: FloatArray
    reconstruction: FloatArray
    answers: FloatArray
    distance: float
    lower: float
    upper: float
    iterations: int


def minimize_reconstruction_norm(
    near: NearbyAnswers, geometry: CellWeights | PairWeights, exchange: float | None, tolerance: float, most: int
) -> NearOptimum:
    """The least ||R||_F at sensitivity 1 over answers within near.size; or, with an exchange rate t, over all answers
    the least hypot(||R||_F, t * distance), the size then moving to the best for the last line."""
    from scipy.linalg import eigh  # noqa: PLC0415  (slow to import)

    answers, cells = near.matrix, near.matrix.shape[1]
    empty = np.zeros((0, cells))
    best, width, lower, iteration = NearOptimum(empty, empty.T, answers, 0.0, 0.0, math.inf, 0), math.inf, 0.0, 0
    while iteration < most:
        iteration += 1
        rooted = geometry.rooted(answers)
        squares, vectors = eigh(rooted.T @ rooted, check_finite=False, driver="evd")
        width = _WIDTH * math.sqrt(squares[-1]) if width == math.inf else width
        s = np.sqrt(np.maximum(squares, 0.0) + width**2)
        a, b = near.line(geometry.rooted((rooted @ vectors / s) @ vectors.T))
        lower = max(lower, a - b * near.size if exchange is None else a * exchange / math.hypot(exchange, b))
        strategy, reconstruction, gradients = geometry.attain(answers, rooted, vectors, s)
        reconstruction = reconstruction * (1 + 32 * _EPS)
        upper, distance = float(np.linalg.norm(reconstruction)) * (1 + 32 * math.sqrt(cells) * _EPS), near.size
        if exchange is not None:
            distance = near.distance(answers)
            upper = math.hypot(upper, exchange * distance)
        if upper < best.upper:
            best = NearOptimum(strategy, reconstruction, answers, distance, lower, upper, iteration)
        if best.upper <= lower * (1 + tolerance):
            break
        if exchange is not None:
            wanted = a * b / (exchange**2 + b**2)
            near = replace(near, size=wanted if iteration <= _FREE else (near.size + wanted) / 2)
        answers = _descend_near_answers(
            near, answers, geometry.scale, geometry.scaled((vectors / s) @ vectors.T), s[0] / geometry.bend
        )
        geometry = geometry.moved(gradients)
        width = max(_NARROW * width, min(width, (best.upper - lower) / cells))
    return replace(best, lower=lower, iterations=iteration)


def _descend_near_answers(
    near: NearbyAnswers, answers: FloatArray, scale: FloatArray, inverse: FloatArray, step: float
) -> FloatArray:
    """Answers of smaller tr(Y inverse Y^T), Y = Z diag(scale); 1 / `step` bounds the inverse."""
    current, ahead, t = answers * scale, answers * scale, 1.0
    for _ in range(_STEPS):
        moved = near.project((ahead - step * (ahead @ inverse)) / scale) * scale
        if float(np.vdot(ahead - moved, moved - current)) > 0.0:
            ahead, t = moved, 1.0  # momentum points uphill
        else:
            longer = (1 + math.sqrt(1 + 4 * t * t)) / 2
            ahead, t = moved + (t - 1) / longer * (moved - current), longer
        current = moved
    return near.project(current / scale)


@dataclass(frozen=True, slots=True)
class ApproximateOptimum(BoundedOptimum):
    """R M = Z + offset 1^T with Z near F, and a proof of how close ||R||_F ||M||_{1->2} is to the least.

    `strategy` M (m, m) has columns of norm at most 1, or with `pairs` of distance at most 1 to each other; only then
    may the offset (k,) differ from zero. `reconstruction` is R (k, m); the bounds are on ||R||_F, the root of the
    summed variances at noise of standard deviation 1. `iterations` counts eigendecompositions.
    """

    strategy: FloatArray
    reconstruction: FloatArray
    offset: FloatArray
    lower_bound: float
    upper_bound: float
    iterations: int


@dataclass(frozen=True, slots=True)
class BalancedOptimum:
    """R M = F + E - offset 1^T with the least hypot(||R||_F, exchange * distance), and a proof of how close.

    `distance` is the largest norm of a column of E. `strategy` M has columns of norm at most 1, or with `pairs` of
    distance at most 1 to each other; only then may the offset (k,) differ from zero. The bounds are on the hypot.
    """

    strategy: FloatArray
    reconstruction: FloatArray
    offset: FloatArray
    distance: float
    lower_bound: float
    upper_bound: float
    iterations: int


def approximate_optimum(
    matrix: ArrayLike,
    alpha: float,
    norm: str = "column",
    *,
    pairs: bool = False,
    tolerance: float = 1e-2,
    max_iterations: int = 500,
) -> ApproximateOptimum:
    """The best factorization of answers near `matrix` (k, m), to a relative gap of `tolerance`.

    `norm` "entry" bounds the bias of every answer by alpha times the largest count that a record can be part of;
    "column" bounds ||R M - F||_{1->2} by alpha sqrt(k): the root mean squared bias over queries, per record. `pairs` is
    for a known number of records, where only differences of columns are priced and R M may differ from what is near by
    an offset 1^T. A search that ends above `tolerance` is no error: read `gap`. One iteration takes time k m^2, on one
    thread.

    Raises WorkloadError for a matrix that is not finite or not (k, m), for alpha <= 0, for another norm, and where
    alpha is so large that answers which depend on nobody are near enough.
    """
    dense = _read_query_matrix(matrix)
    if norm not in ("column", "entry"):
        raise WorkloadError(f"the bias is bounded by 'column' or by 'entry', not by {norm!r}")
    if not 0.0 < alpha < math.inf:
        raise WorkloadError(f"a bias alpha must be a positive number, not {alpha!r}")
    by_column = norm == "column"
    near = NearbyAnswers(dense, float(alpha) * (math.sqrt(len(dense)) if by_column else 1.0), by_column)
    cells = dense.shape[1]
    if _constant_is_near(near, pairs=pairs):
        raise WorkloadError(f"a bias of {alpha:g} lets every query be answered without looking; take a smaller one")
    with single_thread():
        geometry = PairWeights.even(cells) if pairs else CellWeights.even(cells)
        found = minimize_reconstruction_norm(near, geometry, None, tolerance, max_iterations)
        offset = (found.reconstruction @ found.strategy - found.answers).mean(axis=1) if pairs else np.zeros(len(dense))
    return ApproximateOptimum(found.strategy, found.reconstruction, offset, found.lower, found.upper, found.iterations)


def _constant_is_near(near: NearbyAnswers, *, pairs: bool) -> bool:
    """Whether answers that are alike in all cells, or 0 where the number of records is not known, are near enough.

    By columns that asks for a ball of this size that holds them all; the centre of the least one is approached by
    shorter and shorter steps towards the farthest column.
    """
    if not pairs:
        return not near.project(np.zeros(near.matrix.shape)).any()
    if not near.by_column:
        return bool((np.ptp(near.matrix, axis=1) <= 2 * near.size).all())
    centre = near.matrix.mean(axis=1)
    for step in range(1, _BALL_STEPS):
        off = np.linalg.norm(near.matrix - centre[:, None], axis=0)
        farthest = int(off.argmax())
        if off[farthest] <= near.size:
            return True
        centre = centre + (near.matrix[:, farthest] - centre) / (step + 1)
    return False


def balanced_optimum(
    matrix: ArrayLike, exchange: float, *, pairs: bool = False, tolerance: float = 1e-2, max_iterations: int = 100
) -> BalancedOptimum:
    """The factorization of answers Z with the least hypot(||R||_F, exchange * max_j ||Z_j - F_j||).

    For n records and noise of standard deviation sigma at sensitivity 1, exchange = n / sigma makes it the least
    root of summed squared noise and worst squared bias, divided by sigma. `pairs` is for a known number of records,
    where only differences of columns are priced and R M may differ from Z by an offset 1^T.

    Raises WorkloadError for a matrix that is not finite or not (k, m), for an exchange <= 0, and where nothing
    but what is known is asked.
    """
    dense = _read_query_matrix(matrix)
    if not 0.0 < exchange < math.inf:
        raise WorkloadError(f"an exchange rate must be a positive number, not {exchange!r}")
    if not (dense - dense[:, :1] * pairs).any():
        raise WorkloadError("all cells count alike in every query; no strategy is needed")
    cells = dense.shape[1]
    with single_thread():
        # what of Z lies outside the columns' span adds to both sides and helps neither
        turn, dense = np.linalg.qr(dense) if len(dense) > cells else (None, dense)
        geometry = PairWeights.even(cells) if pairs else CellWeights.even(cells)
        found = minimize_reconstruction_norm(
            NearbyAnswers(dense, 0.0, by_column=True), geometry, exchange, tolerance, max_iterations
        )
        back = found.reconstruction
        offset = (found.answers - back @ found.strategy).mean(axis=1) if pairs else np.zeros(len(dense))
        if turn is not None:
            back, offset = turn @ back, turn @ offset
    return BalancedOptimum(found.strategy, back, offset, found.distance, found.lower, found.upper, found.iterations)


def _read_query_matrix(matrix: ArrayLike) -> FloatArray:
    dense = np.asarray(real_array(matrix, "matrix"), dtype=np.float64)
    if dense.ndim != 2 or 0 in dense.shape or not np.isfinite(dense).all():
        raise WorkloadError(f"matrix has shape {dense.shape}; it must be (k, m) of finite numbers, k and m at least 1")
    return dense
