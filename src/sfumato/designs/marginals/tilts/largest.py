"""Tilted residuals for the least largest weighted variance over unions of prefixes, ranges and other matrices.

For weights l on the queries (l >= 0, sum 1) the weighted sum of variances is at most the largest one; the weights
for which the least weighted sum is greatest make the two meet. The search plays both sides: every product p has a
share l_p and, per attribute, a distribution rho_pi over the rows of its factor, so that its Gram matrices become
W_piᵀ diag(rho_pi) W_pi and all closed forms of the sum stay. Shapes take a step towards the least weighted sum;
shares and rows gain weight by how far their variances are above the average. With one tilted attribute in every
product nothing is lost, for the problem is then convex and all weights are of this form. Otherwise the variances at
the end say what was lost; whatever the weights are, shapes are feasible and their variances exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.designs.marginals.tilts.tilted import Product, Shape, Tilted, basis_of, centred, even, improve
from sfumato.errors import PlanError
from sfumato.operators import Dense, Identity, LinearOperator
from sfumato.operators.base import FloatArray
from sfumato.operators.blas import single_thread
from sfumato.operators.ordered import Contiguous

__all__ = ["Largest", "optimise_largest", "weighted_gram"]

_MAX_WORK = 5e8  # operations of one look at the rows of all factors
_ROUNDS = 100  # a round is one step of every attribute; the bound says how far what ends here is
_TOLERANCE = 1e-4  # of the largest variance above the weighted sum
_EXPONENT = 2.0  # weights follow ratios twice as fast as they ask for: any positive power has the same fixed point
_WITNESS_ROWS = 4  # per cell
_LEAST_WEIGHT = 1e-12  # of a row, relative to the heaviest, so that it may come back


@dataclass(slots=True)
class _Rows:
    """A factor, the products' kinds that have it, and the distribution of each over its rows: (kinds, rows)."""

    factor: LinearOperator
    kinds: NDArray[np.int64]
    weights: FloatArray


class Largest(Tilted):
    """The sum of the variances of all queries with weights that make their largest count."""

    def __init__(self, products: Sequence[Product], sizes: Mapping[str, int], *, free_total: bool = False) -> None:
        super().__init__(products, sizes, free_total=free_total, apart=True)
        self._asked = self._weights
        self._shares = np.full(len(products), 1 / max(len(products), 1))
        self._weights = self._asked * self._shares
        self._plain = {
            i: np.array([1.0, *(v for f in k for v in _plain_largest(f))])
            for i, k in enumerate(self._kinds)
            if i not in self.tilted
        }
        self._rows = {i: _rows(self._kinds[i]) for i in self.tilted}
        work = sum(
            float(r.weights.size) + r.factor.shape[0] * float(self.sizes[i]) ** _row_power(r.factor)
            for i, rows in self._rows.items()
            for r in rows
        )
        if work > _MAX_WORK:
            raise PlanError("too many different rows to tilt the residuals for the largest of them")
        self._seen: dict[int, tuple[Shape, list[tuple[FloatArray, FloatArray]]]] = {}

    def _row_values(self, i: int, shape: Shape) -> list[tuple[FloatArray, FloatArray]]:
        """Per different factor w Y wᵀ and (w t)^2 of its rows w."""
        seen = self._seen.get(i)
        if seen is None or seen[0] is not shape:
            values = [
                (
                    np.maximum(r.factor.row_forms(shape.covariance), 0.0),
                    np.asarray(r.factor.matvec(shape.tilt), dtype=np.float64) ** 2,
                )
                for r in self._rows[i]
            ]
            seen = self._seen[i] = shape, values
        return seen[1]

    def _values(self, shapes: Mapping[int, Shape]) -> list[FloatArray]:
        out: list[FloatArray] = []
        for i in range(len(self.names)):
            if i in self._plain:
                out.append(self._plain[i])
                continue
            values = np.ones(1 + 2 * len(self._kinds[i]))
            for r, (inside, outside) in zip(self._rows[i], self._row_values(i, shapes[i]), strict=True):
                values[1 + 2 * r.kinds], values[2 + 2 * r.kinds] = r.weights @ inside, r.weights @ outside
            out.append(values)
        return out

    def _mixed(self, i: int, inside: FloatArray, outside: FloatArray) -> tuple[FloatArray, FloatArray]:
        n = self.sizes[i]
        pull, spread = np.zeros((n, n)), np.zeros((n, n))
        for r in self._rows[i]:
            # one by one: rows that are constant may outweigh the others by more than rounding allows
            pull += centred(weighted_gram(r.factor, inside[r.kinds] @ r.weights))
            spread += weighted_gram(r.factor, outside[r.kinds] @ r.weights)
        return pull, spread

    def witness(self, shapes: Mapping[int, Shape]) -> tuple[list[Product], dict[str, FloatArray]]:
        """As described there, for the root of the largest weighted variance: rows carry the roots of their weights.

        Products share one distribution over the rows of a factor, which makes a closer bound than many.
        """
        kinds: dict[tuple[int, int], LinearOperator] = {}
        for i in self.tilted:
            owner = self._owners(i)
            for r in self._rows[i]:
                common = _scaled_rows(r.factor, self._shares[owner[r.kinds]] @ r.weights)
                kinds.update({(i, int(owner[k])): common for k in r.kinds})
        out: list[Product] = []
        for p, (weight, factors) in enumerate(self.given):
            chosen = dict(factors)
            share = float(self._shares[p])
            for i, a in enumerate(self.names):
                if (i, p) in kinds:
                    chosen[a] = kinds[i, p]
                elif a in factors:
                    chosen[a], part = _heaviest(factors[a])
                    share *= part
            out.append((weight * share, chosen))
        return out, {self.names[i]: shape.dual for i, shape in shapes.items()}

    def reweigh(self, shapes: Mapping[int, Shape]) -> float:
        """Give weight to the queries of large variance; by how much the largest seen was above the weighted sum.

        Variances are those of the best allocation for the weights so far. A row's is its mean over the rows of the
        other attributes.
        """
        values = self._values(shapes)
        products = self._products(values)
        effects = np.bincount(self._place, self._weights[self._owner] * products, len(self.sets))
        root = np.sqrt(np.maximum(effects, effects.max() * 1e-30))
        squares = (root.sum() / root)[self._place]
        found = self._asked * np.bincount(self._owner, squares * products, len(self._asked))
        largest = np.ones(len(self._asked))
        for i in self.tilted:
            inside, outside = self._by_kind(squares * self._products(values, i), i)
            owner = self._owners(i)
            for r, (y, t) in zip(self._rows[i], self._row_values(i, shapes[i]), strict=True):
                rows = inside[r.kinds, None] * y + outside[r.kinds, None] * t
                mean = (r.weights * rows).sum(axis=1, keepdims=True)
                # a factor without effect keeps its weights
                ratio = np.divide(rows, mean, out=np.ones_like(rows), where=mean > 0.0)
                np.maximum.at(largest, owner[r.kinds], ratio.max(axis=1))
                r.weights = _scaled(r.weights, ratio)
        value = float(self._shares @ found)
        self._shares = _scaled(self._shares[None], found[None] / value)[0]
        self._weights = self._asked * self._shares
        return float((found * largest).max()) / value - 1

    def _owners(self, i: int) -> NDArray[np.int64]:
        """The product of every kind of an attribute."""
        codes = self._codes[:, i]
        out = np.zeros(len(self._kinds[i]), dtype=np.int64)
        out[(codes[codes > 0] - 1) // 2] = self._owner[codes > 0]
        return out


def optimise_largest(union: Largest, *, tilt: bool = True) -> dict[int, Shape]:
    """The best shapes found per tilted attribute for the largest weighted variance; `tilt=False` keeps t = 1/n.

    Raises PlanError where some attribute makes no difference to any query.
    """
    shapes = {i: even(union.sizes[i]) for i in union.tilted}
    bases = {i: basis_of(union.sizes[i]) for i in union.tilted}
    with single_thread():
        for _ in range(_ROUNDS):
            before = dict(shapes)
            try:
                for i in union.tilted:
                    shapes[i] = improve(shapes[i], bases[i], *union.pulls(shapes, i), tilt=tilt, steps=1)
            except np.linalg.LinAlgError:
                return before  # the search has left what rounding allows
            if union.reweigh(shapes) <= _TOLERANCE:
                break
    return shapes


def _rows(kinds: Sequence[LinearOperator]) -> list[_Rows]:
    """The different factors, their rows weighted alike."""
    different: list[LinearOperator] = []
    members: list[list[int]] = []
    for k, factor in enumerate(kinds):
        same = next((d for d, other in enumerate(different) if other is factor or other == factor), len(different))
        if same == len(different):
            different.append(factor)
            members.append([])
        members[same].append(k)
    return [
        _Rows(f, np.array(k, dtype=np.int64), np.full((len(k), f.shape[0]), 1 / f.shape[0]))
        for f, k in zip(different, members, strict=True)
    ]


def _scaled(weights: FloatArray, ratio: FloatArray) -> FloatArray:
    """Weights times a power of the ratios, of sum 1 along the last axis."""
    out = weights * ratio**_EXPONENT
    out = np.maximum(out, _LEAST_WEIGHT * out.max(axis=-1, keepdims=True))
    return out / out.sum(axis=-1, keepdims=True)


def _plain_largest(factor: LinearOperator) -> tuple[float, float]:
    """The largest variance of a row that the residual of marginals leaves at unit price, and its squared mean."""
    n = factor.shape[1]
    first, second = factor.row_sums(1), factor.row_sums(2)
    return max(float((second - first**2 / n).max()), 0.0) * (n - 1) / n, float((first**2).max()) / n**2


def _heaviest(factor: LinearOperator) -> tuple[LinearOperator, float]:
    """Of a plain factor (all its cells, or the heaviest of its constant rows) and the weight that each row has."""
    n = factor.shape[1]
    if isinstance(factor, Identity):
        return factor, 1 / n
    heaviest = int(np.abs(factor.row_sums(1)).argmax())
    return Dense(factor.rows(heaviest, heaviest + 1)), 1.0


def _scaled_rows(factor: LinearOperator, weights: FloatArray) -> LinearOperator:
    """Rows times the roots of their weights of sum at most 1: the heaviest, where there are many more than cells."""
    rows, n = factor.shape
    kept = np.zeros(rows, dtype=np.bool_)
    kept[np.argsort(weights)[-_WITNESS_ROWS * n :]] = True
    dense = np.concatenate([factor.rows(a, b)[kept[a:b]] for a, b in factor.row_chunks()])
    return Dense(dense * np.sqrt(weights[kept] / weights.sum() * (1 - 1e-12))[:, None])


def _row_power(factor: LinearOperator) -> int:
    """How the work on a row grows with its length."""
    return 0 if isinstance(factor, Contiguous | Identity) else 2


def weighted_gram(factor: LinearOperator, weights: FloatArray) -> FloatArray:
    """Aᵀ diag(weights) A."""
    n = factor.shape[1]
    if isinstance(factor, Identity):
        return np.diag(weights)
    if isinstance(factor, Contiguous):
        # each row adds its weight on a square: four corners, then sums along both axes
        first, last = factor.spans()
        steps = np.zeros((n + 1) ** 2)
        for i, j, sign in ((first, first, 1), (last, last, 1), (first, last, -1), (last, first, -1)):
            steps += sign * np.bincount(i * (n + 1) + j, weights, len(steps))
        return np.asarray(steps.reshape(n + 1, n + 1).cumsum(axis=0).cumsum(axis=1)[:-1, :-1], dtype=np.float64)
    out = np.zeros((n, n))
    for a, b in factor.row_chunks():
        rows = factor.rows(a, b)
        out += (rows * weights[a:b, None]).T @ rows
    return out
