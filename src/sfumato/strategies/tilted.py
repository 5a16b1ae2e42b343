"""Tilted residuals: residuals for unions of products with prefixes, ranges or any small matrices.

A residual strategy measures contrasts on the attributes of a set S and sums all others out. Per attribute it
rests on a tilt t (1ᵀt = 1), by which a table over fewer attributes is spread over this one's cells, and on a
covariance Y of the contrasts (Y 1 = 0), such that (e_j - t)ᵀ Y^+ (e_j - t) <= 1 for every cell j. Residuals of
marginals have t = 1/n and Y the centring. Over products p of weight w_p with Gram matrices G_pi, a unit of
variance on S adds

    v_S = sum_p w_p prod_{i in S} tr(Y_i G_pi) prod_{i not in S} t_iᵀ G_pi t_i

to the sum of weighted variances; the best allocation at unit price makes it (sum_S sqrt(v_S))^2. [XZK23] has
t = 1/n throughout. Every product strategy lies in the family, so its optimum is no worse than either.
"""

from __future__ import annotations

import contextlib
import itertools
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sfumato.errors import PlanError
from sfumato.operators import Identity, LinearOperator, Total
from sfumato.operators.base import FloatArray, single_thread
from sfumato.strategies.dense_optimal import optimize_dense
from sfumato.strategies.factors import quantise

_MAX_TERMS = 20_000_000  # entries of the table of terms
_MAX_CELLS = 400  # of an attribute: every step takes an eigendecomposition of this size
_FLOOR = 1e-8  # of H, relative to its Frobenius norm: contrasts that nobody asks about are measured a little
_ROUNDING = 1e-13  # relative to what a matrix was made from
_LEAST_WEIGHT = 1e-12  # of a cell in the dual, so that M stays invertible
_ROUNDS = 40  # the fall of the error ends most searches before; the bound says how far what ends here is
_STEPS = 3  # on one attribute before the others' turn: the optimum of one moves when the others do
_TOLERANCE = 3e-6  # relative, of the error: far below what a plan shows; the bound beside it is proved by itself
_ROUGH = 1e-3  # the same where what is found is but a start: the search from there mends it in as many rounds
_PRODUCT_ROUNDS = 2  # of a start alone: what follows mends it

Product = tuple[float, Mapping[str, LinearOperator]]
"""A weight and one factor per attribute that is not summed out."""


@dataclass(frozen=True, slots=True)
class TiltShape:
    """Tilt (n,), contrast covariance Y (n, n) and its pseudo-inverse; the weights of the cells in the dual (n,)."""

    tilt: FloatArray
    covariance: FloatArray
    precision: FloatArray
    dual: FloatArray


def is_plain(factor: LinearOperator) -> bool:
    """Whether the residual of marginals is the best contrast for a factor, or the factor has none."""
    if isinstance(factor, (Identity, Total)):
        return True
    first, second = factor.row_sums(1), factor.row_sums(2)
    return bool(np.all(factor.shape[1] * second - first**2 <= 1e-12 * first**2))


def contrast_basis(n: int) -> FloatArray:
    """Orthonormal columns (n, n - 1) that sum to zero."""
    ones = np.full((n, n), 1.0)
    upper = np.triu(ones, 1)[:, 1:] - np.diag(np.arange(n, dtype=np.float64))[:, 1:]
    return upper / np.sqrt((upper**2).sum(axis=0))


class TiltedUnion(ABC):
    """Weighted products, and what residuals of given shapes do to their error. Plain attributes have fixed shapes.

    Every set of attributes below every product is a term, with a code per attribute: 0 where the attribute is summed
    out, 1 + 2 k where factor k meets it inside the set, 2 + 2 k outside. Products share equal factors, unless
    `apart`. `free_total` says that the total is public: its set counts for nothing.
    """

    def __init__(
        self, products: Sequence[Product], sizes: Mapping[str, int], *, free_total: bool = False, apart: bool = False
    ) -> None:
        self.given = tuple(products)
        used = {a for _, factors in products for a in factors}
        self.names = tuple(a for a in sizes if a in used)
        self.sizes = tuple(sizes[a] for a in self.names)
        if sum(2 ** len(f) for _, f in products) * len(self.names) > _MAX_TERMS:
            raise PlanError("too many products to tilt the residuals of")
        self._kinds: list[list[LinearOperator]] = [[] for _ in self.names]
        sets: dict[tuple[int, ...], int] = {}
        codes: list[list[int]] = []
        owner: list[int] = []
        place: list[int] = []
        for number, (_, factors) in enumerate(products):
            mine = [
                (i, 1 + 2 * _number_factor_kind(self._kinds[i], factors[a], apart=apart))
                for i, a in enumerate(self.names)
                if a in factors
            ]
            free = [i for i, _ in mine if self.sizes[i] > 1]
            for chosen in (c for r in range(free_total, len(free) + 1) for c in itertools.combinations(free, r)):
                row = [0] * len(self.names)
                for i, code in mine:
                    row[i] = code + (i not in chosen)
                codes.append(row)
                owner.append(number)
                place.append(sets.setdefault(chosen, len(sets)))
        self._codes = np.array(codes, dtype=np.int32).reshape(len(codes), len(self.names))
        self._owner, self._place = np.array(owner, dtype=np.int64), np.array(place, dtype=np.int64)
        self._weights = np.array([w for w, _ in products], dtype=np.float64)
        self.sets = tuple(frozenset(self.names[i] for i in s) for s in sets)
        self.tilted = tuple(
            i for i, k in enumerate(self._kinds) if self.sizes[i] > 1 and not all(is_plain(f) for f in k)
        )
        self._fixed: FloatArray | None = None  # products of what plain attributes have, which no shape changes
        if max((self.sizes[i] for i in self.tilted), default=0) > _MAX_CELLS:
            raise PlanError(f"attributes of more than {_MAX_CELLS} cells are not tilted")

    @abstractmethod
    def _values(self, shapes: Mapping[int, TiltShape]) -> list[FloatArray]:
        """Per attribute and code: 1 where it is summed out, then tr(Y G) and tᵀ G t of each of its factors."""

    @abstractmethod
    def _mixed(self, i: int, inside: FloatArray, outside: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Sums of the centred Grams of attribute i's factors with weights `inside`, of the Grams with `outside`."""

    @abstractmethod
    def witness(self, shapes: Mapping[int, TiltShape]) -> tuple[list[Product], dict[str, FloatArray]]:
        """Products and weights of the cells whose nuclear norm bounds the root of the error of any mechanism."""

    def _products(self, values: Sequence[FloatArray], skipped: int | None = None) -> FloatArray:
        """(terms,) products of the attributes' values, of all but a tilted one where one is skipped."""
        if self._fixed is None:
            self._fixed = np.ones(len(self._codes))
            for i in set(range(len(values))).difference(self.tilted):
                self._fixed *= values[i][self._codes[:, i]]
        out = self._fixed.copy()
        for i in self.tilted:
            if i != skipped:
                out *= values[i][self._codes[:, i]]
        return out

    def _by_kind(self, terms: FloatArray, i: int) -> tuple[FloatArray, FloatArray]:
        """(kinds,) sums of the terms with each factor of an attribute inside the set, and outside it."""
        share = np.asarray(np.bincount(self._codes[:, i], terms, 1 + 2 * len(self._kinds[i])), dtype=np.float64)
        return share[1::2], share[2::2]

    def effects(self, shapes: Mapping[int, TiltShape]) -> FloatArray:
        """v_S of every set in `sets`."""
        terms = self._weights[self._owner] * self._products(self._values(shapes))
        return np.asarray(np.bincount(self._place, terms, len(self.sets)), dtype=np.float64)

    def error(self, shapes: Mapping[int, TiltShape]) -> float:
        """The least sum of weighted variances with these shapes at unit price."""
        return float(np.sqrt(self.effects(shapes)).sum()) ** 2

    def linearised(self, shapes: Mapping[int, TiltShape], i: int) -> tuple[FloatArray, FloatArray]:
        """(H, K) of attribute i, divided by tr(Y H): the part of the error that its shape decides, linearised.

        sqrt(v) <= (sqrt(u) + v / sqrt(u)) / 2 with u the present value of v.
        """
        effects = self.effects(shapes)
        root = np.sqrt(np.maximum(effects, effects.max() * 1e-30))
        others = self._weights[self._owner] / root[self._place] * self._products(self._values(shapes), i)
        pull, spread = self._mixed(i, *self._by_kind(others, i))
        unit = float((shapes[i].covariance * pull).sum())
        if not unit > 0.0:
            raise PlanError(f"no query depends on how {self.names[i]} varies")
        return pull / unit, spread / unit


class Union(TiltedUnion):
    """The sum of the weighted variances of all queries."""

    def __init__(self, products: Sequence[Product], sizes: Mapping[str, int], *, free_total: bool = False) -> None:
        super().__init__(products, sizes, free_total=free_total)
        self._grams = {
            i: np.stack([np.asarray(f.gram().dense(), dtype=np.float64) for f in self._kinds[i]]) for i in self.tilted
        }
        self._centred = {i: np.stack([centre_gram(g) for g in grams]) for i, grams in self._grams.items()}
        self._plain = {i: _plain_values(k, self.sizes[i]) for i, k in enumerate(self._kinds) if i not in self.tilted}
        self._seen: dict[int, tuple[TiltShape, FloatArray]] = {}

    def _values(self, shapes: Mapping[int, TiltShape]) -> list[FloatArray]:
        out: list[FloatArray] = []
        for i in range(len(self.names)):
            if i in self._plain:
                out.append(self._plain[i])
                continue
            shape, seen = shapes[i], self._seen.get(i)
            # one shape changes at a time
            if seen is None or seen[0] is not shape:
                values = [1.0]
                for g, c in zip(self._grams[i], self._centred[i], strict=True):
                    inside, outside = float((shape.covariance * c).sum()), float(shape.tilt @ g @ shape.tilt)
                    values += [max(inside, 0.0), max(outside, 0.0)]
                seen = self._seen[i] = shape, np.array(values)
            out.append(seen[1])
        return out

    def _mixed(self, i: int, inside: FloatArray, outside: FloatArray) -> tuple[FloatArray, FloatArray]:
        return np.tensordot(inside, self._centred[i], 1), np.tensordot(outside, self._grams[i], 1)

    def witness(self, shapes: Mapping[int, TiltShape]) -> tuple[list[Product], dict[str, FloatArray]]:
        return list(self.given), {self.names[i]: shape.dual for i, shape in shapes.items()}

    def product_gram(self, shapes: Mapping[int, TiltShape], i: int) -> FloatArray:
        """What a product strategy is to answer on attribute i when all others keep X^-1 = 2 (Y + t tᵀ)."""
        others = self._weights[self._owner] * self._products(self._values(shapes), i)
        inside, _ = self._by_kind(others, i)
        summed_out = float(others[self._codes[:, i] == 0].sum())
        gram = np.tensordot(inside, self._grams[i], 1) + summed_out
        return _add_to_diagonal(gram, _FLOOR * float(np.linalg.norm(gram)))


def centre_gram(gram: FloatArray) -> FloatArray:
    """C G C, exactly zero where the rows are constant up to rounding."""
    out = gram - gram.mean(axis=0)
    out = out - out.mean(axis=1, keepdims=True)
    out[np.abs(out) <= 1e-13 * np.abs(gram).max()] = 0.0
    return out


def _add_to_diagonal(matrix: FloatArray, least: float) -> FloatArray:
    return matrix + np.eye(len(matrix)) * least


def _number_factor_kind(known: list[LinearOperator], factor: LinearOperator, *, apart: bool) -> int:
    for k, other in enumerate(known):
        if not apart and (other is factor or other == factor):
            return k
    known.append(factor)
    return len(known) - 1


def _plain_values(kinds: Sequence[LinearOperator], n: int) -> FloatArray:
    values = [1.0]
    for f in kinds:
        first, second = f.row_sums(1), f.row_sums(2)
        mean = float((first**2).sum()) / n
        values += [max(float(second.sum()) - mean, 0.0) * (n - 1) / n, mean / n]
    return np.array(values)


def optimise_shapes(union: Union, *, tilt: bool = True) -> dict[int, TiltShape]:
    """The best shapes found per tilted attribute; `tilt=False` keeps t = 1/n.

    The problem is not convex across attributes: both the split and the product solution are starts.
    Raises PlanError where some attribute makes no difference to any query.
    """
    with single_thread():
        even = {i: even_shape(union.sizes[i]) for i in union.tilted}
        split = _descend_shapes(union, even, tilt=False, tolerance=_ROUGH if tilt else _TOLERANCE)
        if not tilt:
            return split
        found = [split, _descend_shapes(union, split, tilt=True)]
        # without a product strategy of full rank there is nothing to start from
        with contextlib.suppress(np.linalg.LinAlgError):
            found.append(_descend_shapes(union, _product_start(union), tilt=True))
    return min(found, key=union.error)


def even_shape(n: int) -> TiltShape:
    centring = np.eye(n) - 1 / n
    return TiltShape(np.full(n, 1 / n), centring * ((n - 1) / n), centring * (n / (n - 1)), np.full(n, 1 / n))


def _descend_shapes(
    union: Union, start: Mapping[int, TiltShape], *, tilt: bool, tolerance: float = _TOLERANCE
) -> dict[int, TiltShape]:
    shapes = dict(start)
    best, error = dict(start), union.error(start)
    bases = {i: contrast_basis(union.sizes[i]) for i in union.tilted}
    before = error
    for _ in range(_ROUNDS):
        try:
            for i in union.tilted:
                pull, spread = union.linearised(shapes, i)
                shapes[i] = improve_shape(shapes[i], bases[i], pull, spread, tilt=tilt)
        except np.linalg.LinAlgError:
            break  # the search has left what rounding allows; the best so far stands
        now = union.error(shapes)
        if now < error:
            best, error = dict(shapes), now
        if abs(now - before) <= tolerance * now:
            break
        before = now
    return best


def improve_shape(
    shape: TiltShape, basis: FloatArray, pull: FloatArray, spread: FloatArray, *, tilt: bool, steps: int = _STEPS
) -> TiltShape:
    """A few steps towards min tr(Y H) + tᵀ K t: for dual weights mu on the cells Y and t are in closed form.

    Y H Y = M = sum_j mu_j (e_j - t)(e_j - t)ᵀ, and (K + mu Y^+) t balances; cells that are too far gain weight.
    """
    from scipy.linalg import cho_solve, cholesky, eigh, solve_triangular  # noqa: PLC0415  (slow to import)

    n = len(shape.tilt)
    h = basis.T @ pull @ basis
    h = _add_to_diagonal(h, _FLOOR * float(np.linalg.norm(h)))
    lower = cholesky(h, lower=True)
    k, even = basis.T @ spread @ basis, np.full(n, 1 / n)
    steep = basis.T @ spread @ even
    t, mu = shape.tilt, shape.dual
    roots, vectors, d = np.ones(n - 1), np.eye(n - 1), np.ones(n)
    for _ in range(steps):
        away = basis.T - (basis.T @ t)[:, None]
        half = lower.T @ (away * np.sqrt(mu))
        squares, vectors = eigh(half @ half.T, driver="evd")
        roots = np.sqrt(np.maximum(squares, squares[-1] * 1e-24))
        turned = lower @ vectors
        if tilt:
            mass = float(mu.sum())
            precision = (turned / roots) @ turned.T * mass
            toward = precision @ (basis.T @ (mu / mass)) - steep
            balance = k + precision
            balance = _add_to_diagonal(balance, _ROUNDING * float(np.linalg.norm(balance)))
            t = even + basis @ cho_solve((cholesky(balance, lower=True), True), toward)
            away = basis.T - (basis.T @ t)[:, None]
        d = ((turned.T @ away) ** 2 / roots[:, None]).sum(axis=0)
        mu = np.maximum(mu * d, _LEAST_WEIGHT * mu.max())
    top = float(d.max())
    inverse = basis @ lower @ vectors
    covariance = basis @ solve_triangular(lower.T, vectors, lower=False)
    return TiltShape(t, (covariance * (roots * top)) @ covariance.T, (inverse / (roots * top)) @ inverse.T, mu)


def _product_start(union: Union) -> dict[int, TiltShape]:
    """Shapes of a product strategy, by turns the best for every attribute: X = theta 1 1ᵀ + Y^+ with t ~ X^-1 1."""
    shapes = {i: even_shape(union.sizes[i]) for i in union.tilted}
    for _ in range(_PRODUCT_ROUNDS):
        for i in union.tilted:
            optimum = optimize_dense(union.product_gram(shapes, i), tolerance=1e-3)
            shapes[i] = _shape_of_product(optimum.strategy.T @ optimum.strategy, optimum.dual)
    return shapes


def _shape_of_product(x: FloatArray, dual: FloatArray) -> TiltShape:
    n = len(x)
    spread = np.linalg.solve(x, np.ones(n))
    tilt = spread / spread.sum()
    precision = x - 1 / spread.sum()
    precision = (precision + precision.T) / 2
    top = float(np.diagonal(precision).max())
    projected = contrast_basis(n)
    inner = projected.T @ precision @ projected
    return TiltShape(tilt, projected @ np.linalg.inv(inner) @ projected.T * top, precision / top, dual)


def integer_contrast(shape: TiltShape, scale: float) -> LinearOperator:
    """An integer B, (n - 1, n), about scale A (I - t 1ᵀ) with AᵀA = Y^+ on contrasts: columns of length at most scale.

    Whatever rounding does, B with the total determines the cells; its own tilt is its null vector.
    """
    basis = contrast_basis(len(shape.tilt))
    values, vectors = np.linalg.eigh(basis.T @ shape.precision @ basis)
    # rows along the axes of Y: no entry is much larger than the others, so counts have room
    root = np.sqrt(np.maximum(values, 0.0))[:, None] * (vectors.T @ basis.T)
    return quantise(root - (root @ shape.tilt)[:, None], None, scale).measured
