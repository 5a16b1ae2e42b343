"""A proved lower bound on the error of any answer to a weighted union of products, from its nuclear norm.

W stacks sqrt(w_p) (⊗_i W_pi) over products p; attributes that a product does not name are summed out. Under
add-remove and at noise multiplier 1 no unbiased reconstruction from additive Gaussian noise has a sum of weighted
variances below ||W D^(1/2)||_*^2, D the diagonal of any probability weights on the cells [ENU20]. With product
weights v = ⊗ v_i this norm is that of a union with factors A_pi = W_pi diag(v_i)^(1/2), and u_iᵀ, of length one,
where i is summed out, u_i = v_i^(1/2). Its size is the number of cells; what follows is a bound from below.

Per attribute the cells' space is split in two, L_i, which holds u_i, and its complement H_i, and every factor has
a polar decomposition A_pi = U_pi R_pi (R_pi = (A_piᵀ A_pi)^(1/2), U_pi an isometry after rows of zeros are added to
A_pi). For a set T of attributes let K_T = ⊗_{i in T} H_i ⊗_{i not in T} L_i. The spaces K_T are orthogonal, and so
are their images under ⊗_i U_pi. Keeping of every product only what leads from K_T to its own image, for products
that name all of T (others vanish on K_T), is a pinching on both sides, which no nuclear norm survives larger. On T
the norm is at least the inner product with any contraction, here with the identity on H:

    ||W D^(1/2)||_*  >=  sum_T || stack_p sqrt(w_p) prod_{i in T} tr(R_pi on H_i) ⊗_{i not in T} (R_pi on L_i) ||_*.

It is an equality where every L_i is invariant under all R_pi (cells of equal weights: L_i is u_i alone), and close
to one where L_i is the space that a few products of R_pi and its inverse with u_i span: five vectors do for
prefixes and ranges, so three of them in one product make blocks of some hundred rows, whatever the domain.

Where one record replaces another the dual has weights on pairs of cells. Weights v_a v_b have the Laplacian
D - v vᵀ = D^(1/2) (I - q qᵀ) D^(1/2), q = ⊗ u_i, and the sum (1 - |v|^2) / 2. So

    ||W D^(1/2) (I - q qᵀ)||_* (2 / (1 - |v|^2))^(1/2)

bounds the same root where no two columns are more than 1 apart, whatever is said of the total; and q is a vector of
K_∅, the first of its basis, which is left out there.

Tilted residuals for the least largest weighted variance over unions of prefixes, ranges and other matrices.

For weights l on the queries (l >= 0, sum 1) the weighted sum of variances is at most the largest one; the weights
for which the least weighted sum is greatest make the two meet. The search plays both sides: every product p has a
share l_p and, per attribute, a distribution rho_pi over the rows of its factor, so that its Gram matrices become
W_piᵀ diag(rho_pi) W_pi and all closed forms of the sum stay. Shapes take a step towards the least weighted sum;
shares and rows gain weight by how far their variances are above the average. With one tilted attribute in every
product nothing is lost, for the problem is then convex and all weights are of this form. Otherwise the variances at
the end say what was lost; whatever the weights are, shapes are feasible and their variances exact.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato._util.codec import distinct_rows
from sfumato.errors import PlanError
from sfumato.operators import Dense, Identity, LinearOperator
from sfumato.operators.base import FloatArray, kron, single_thread
from sfumato.operators.structured import Contiguous
from sfumato.strategies.dense_blocks import row_weighted_gram
from sfumato.strategies.tilted import (
    Product,
    TiltedUnion,
    TiltShape,
    centre_gram,
    contrast_basis,
    even_shape,
    improve_shape,
    is_plain,
)

_MAX_TERMS = 2_000_000  # products times the sets T in them
_MAX_FACTOR_WORK = 2e9  # sum of the cubes of the sizes of the factors that are made dense
_MAX_BLOCK_WORK = 4e9  # sum of the cubes of the sizes of the blocks, and what each product in them costs beside
_PRODUCT_WORK = 1e6  # operations that the Python about a product takes as long as
# blocks from the best bound to the cheapest; the first within _MAX_BLOCK_WORK is taken, each gives a bound
_WIDTHS = (24, 16, 12, 10, 8, 7, 6, 5, 4, 3, 2, 1)
_INVARIANT = 1e-9  # relative length below which a vector is taken to be in the space already
_LEAST_ROOT = 1e-7  # relative size below which a root is not inverted
_EPS = float(np.finfo(np.float64).eps)
_MARGIN = 5e-10  # what rounding may take from sums of that many terms

_Flat = NDArray[np.int64]
_Names = tuple[int, ...]
_Orders = Mapping[int, tuple[list[float], list[list[int]]]]


def union_bound(
    products: Sequence[Product],
    sizes: Mapping[str, int],
    *,
    weights: Mapping[str, FloatArray] | None = None,
    replaced: bool = False,
) -> float | None:
    """A proved lower bound on the root of the sum of weighted variances at noise multiplier 1, add-remove.

    With `replaced` where one record takes the place of another, at columns no more than 1 apart.

    `weights` are the v_i, (n_i,), nonnegative, of any positive sum; uniform where none are given, and always where
    the factors of an attribute treat all cells alike. The bound holds for all of them and is as good as they are:
    the dual weights of the shapes of tilted residuals are near the best. Rows scaled by the roots of numbers
    lambda that sum to 1 over all queries make it a bound on the root of the largest weighted variance.

    None where it would take too long: by sizes, not by the clock. Raises PlanError for weights of wrong shape or sign.
    """
    if not products:
        return 0.0
    if sum(2.0 ** len(f) for _, f in products) > _MAX_TERMS:
        return None
    used = {a for _, factors in products for a in factors}
    kinds: dict[str, list[LinearOperator]] = {a: [] for a in sizes if a in used}
    chosen = [(w, [(a, number_among(kinds[a], f)) for a, f in factors.items()]) for w, factors in products]
    plain = {a: all(is_plain(f) for f in k) for a, k in kinds.items()}
    if sum(len(k) * float(sizes[a]) ** 3 for a, k in kinds.items() if not plain[a]) > _MAX_FACTOR_WORK:
        return None
    first = dict(zip(kinds, itertools.accumulate((len(k) for k in kinds.values()), initial=0), strict=False))
    orders: dict[int, tuple[list[float], list[list[int]]]] = {}
    for weight, pairs in chosen:
        known = orders.setdefault(len(pairs), ([], []))
        known[0].append(weight)
        known[1].append(sorted(first[a] + k for a, k in pairs))
    with single_thread():
        uniform = {a: np.full(sizes[a], 1 / sizes[a]) for a in kinds}
        each = {a: uniform[a] if plain[a] else _read_cell_weights(a, sizes[a], weights or {}) for a in kinds}
        splits = [
            [_split_plain_factor(f) for f in k] if plain[a] else _split_dense_factors(k, each[a])
            for a, k in kinds.items()
        ]
        found = _pinched_nuclear_norm(splits, orders, replaced=replaced) * (1 - _MARGIN)
    if not replaced:
        return found
    alike = math.prod(float(v @ v) for v in each.values())
    return found * math.sqrt(2 / (1 - alike)) if alike < 1.0 else 0.0


def number_among(known: list[LinearOperator], factor: LinearOperator) -> int:
    """The place of a factor among those that are known, which it joins where none equals it."""
    for k, other in enumerate(known):
        if other is factor or other == factor:
            return k
    known.append(factor)
    return len(known) - 1


def _read_cell_weights(name: str, n: int, given: Mapping[str, FloatArray]) -> FloatArray:
    v = np.asarray(given.get(name, np.ones(n)), dtype=np.float64)
    if v.shape != (n,) or not (np.isfinite(v).all() and (v >= 0.0).all() and v.any()):
        raise PlanError(f"weights of {name} must be {n} nonnegative numbers, not all 0")
    return v / v.sum()


@dataclass(frozen=True, slots=True)
class _RootSplit:
    """R of one factor: its trace, and R in an orthonormal basis, (l, l), whose first vector is u.

    Any leading part of the basis may be L; the rest is H.
    """

    trace: float
    kept: FloatArray

    def low(self, width: int) -> FloatArray:
        """The square of R on L, (width + 1, width + 1)."""
        root = self.kept[: width + 1, : width + 1]
        return root @ root

    def high(self, width: int) -> float:
        """The trace of R on H."""
        left = self.trace * (1 - 4 * _EPS * len(self.kept)) - float(np.trace(self.kept[: width + 1, : width + 1]))
        return max(left, 0.0)


def _split_plain_factor(factor: LinearOperator) -> _RootSplit:
    """Under uniform weights: cells have R = n^(-1/2) I, rows that are constant have R = |A u| u uᵀ, A u = W 1 / n."""
    n = factor.shape[1]
    if isinstance(factor, Identity):
        return _RootSplit(math.sqrt(n), np.full((1, 1), 1 / math.sqrt(n)))
    length = float(np.linalg.norm(factor.row_sums(1))) / n
    return _RootSplit(length, np.full((1, 1), length))


def _split_dense_factors(kinds: Sequence[LinearOperator], v: FloatArray) -> list[_RootSplit]:
    """The roots of an attribute's factors and the space that they make of u."""
    from scipy.linalg import eigh  # noqa: PLC0415  (slow to import)

    u = np.sqrt(v)
    spectra: list[tuple[FloatArray, FloatArray]] = []
    for factor in kinds:
        gram = np.asarray(factor.gram().dense(), dtype=np.float64) * u * u[:, None]
        squares, vectors = eigh(gram, check_finite=False, driver="evd")
        spectra.append((lowered_roots(squares), vectors))
    basis = _krylov_basis(u, spectra)
    turned = [vectors.T @ basis for _, vectors in spectra]
    return [_RootSplit(float(s.sum()), (t.T * s) @ t) for (s, _), t in zip(spectra, turned, strict=True)]


def lowered_roots(squares: FloatArray) -> FloatArray:
    """Roots of eigenvalues less what rounding may have added: R^2 <= AᵀA, so that the norm only falls.

    The size of a backward error of an eigendecomposition, of the products before it and of the squares after it.
    """
    doubt = 32.0 * math.sqrt(len(squares)) * _EPS * float(np.abs(squares).max(initial=0.0))
    return np.sqrt(np.maximum(squares - doubt, 0.0))


def _krylov_basis(u: FloatArray, spectra: Sequence[tuple[FloatArray, FloatArray]]) -> FloatArray:
    """Orthonormal columns: u, and the vectors that R and R^+ of every kind make of it in turn."""
    most = min(_WIDTHS[0], len(u) - 1) + 1
    basis, count, waiting = np.empty((most, len(u))), 1, [u]
    basis[0] = u
    both = [
        (s, np.divide(1.0, s, out=np.zeros_like(s), where=s > _LEAST_ROOT * s.max(initial=0.0))) for s, _ in spectra
    ]
    while waiting and count < most:
        before, waiting = waiting, list[FloatArray]()
        for x, (scales, (_, vectors)) in itertools.product(before, zip(both, spectra, strict=True)):
            turned = vectors.T @ x
            for scale in scales if count < most else ():
                y = vectors @ (scale * turned)
                length = float(np.linalg.norm(y))
                for _ in range(2):
                    y = y - basis[:count].T @ (basis[:count] @ y)
                left = float(np.linalg.norm(y))
                if left > _INVARIANT * length and count < most:
                    basis[count] = y / left
                    waiting.append(basis[count])
                    count += 1
    return basis[:count].T


def _pinched_nuclear_norm(splits: Sequence[Sequence[_RootSplit]], orders: _Orders, *, replaced: bool) -> float:
    """The sum over T, with L as wide as may be afforded; without q where a record is replaced."""
    rooms = [max(len(s.kept) for s in kinds) - 1 for kinds in splits]
    largest, widths = max(rooms, default=0), [0] * len(rooms)
    terms = _NormTerms(splits, orders, [room > 0 for room in rooms])
    for width in sorted({min(w, largest) for w in _WIDTHS}):
        wider = [min(width, room) for room in rooms]
        if terms.work(wider) > _MAX_BLOCK_WORK:
            break
        widths = wider
    if largest and not any(widths):
        terms = _NormTerms(splits, orders, [False] * len(rooms))
    return terms.norm(widths, replaced=replaced)


class _NormTerms:
    """The products on every K_T, gathered by T and by their factors outside T.

    Only factors of `wide` attributes, where L has more than one dimension, count for this: others are numbers there.
    `widths` below are the dimensions of every L less one.
    """

    def __init__(self, splits: Sequence[Sequence[_RootSplit]], orders: _Orders, wide: Sequence[bool]) -> None:
        self._factors = [(i, s) for i, kinds in enumerate(splits) for s in kinds]
        self._attribute = np.array([i for i, _ in self._factors], dtype=np.int64)
        self._wide = np.array([wide[i] for i, _ in self._factors], dtype=np.bool_)
        varies = np.array([s.high(0) > 0.0 for _, s in self._factors], dtype=np.bool_)
        # of every term: the weight of its product, the factors inside T, those outside
        self._parts: list[tuple[FloatArray, _Flat, _Flat]] = []
        top, keys = max(orders), list[_Flat]()
        for order, (weights, rows) in orders.items():
            table = np.array(rows, dtype=np.int64).reshape(len(rows), order)
            for chosen in itertools.product((False, True), repeat=order):
                mask = np.array(chosen, dtype=np.bool_)
                here = varies[table[:, mask]].all(axis=1)
                inside, outside = table[here][:, mask], table[here][:, ~mask]
                self._parts.append((np.array(weights)[here], inside, outside))
                key = np.zeros((len(inside), 2 * top), dtype=np.int64)
                key[:, : inside.shape[1]] = 1 + self._attribute[inside]
                key[:, 2 * top - outside.shape[1] :] = np.sort((1 + outside) * self._wide[outside], axis=1)
                keys.append(key)
        every = np.concatenate(keys)
        first, self._row = distinct_rows(every, 1 + len(self._factors))
        rows = every[first]
        first, self._set = distinct_rows(rows[:, :top], 1 + len(self._factors))
        sets = rows[first]
        self._rest = [tuple(f - 1 for f in row if f) for row in rows[:, top:].tolist()]
        wider = np.zeros(len(sets), dtype=np.bool_)
        wider[self._set[[bool(r) for r in self._rest]]] = True
        self._number = ~wider  # the sets where every product is a number
        self._empty: NDArray[np.bool_] = sets[:, :top].sum(axis=1) == 0  # T = ∅
        self._blocks = self._gathered(wider)

    def _gathered(self, wider: NDArray[np.bool_]) -> dict[frozenset[_Names], list[list[int]]]:
        """The rows of every T that makes a matrix, by the sets of attributes that its products have outside T."""
        order = np.argsort(self._set, kind="stable")
        order = order[wider[self._set[order]]]
        found: dict[frozenset[_Names], list[list[int]]] = {}
        if len(order):
            for rows in np.split(order, np.flatnonzero(np.diff(self._set[order])) + 1):
                found.setdefault(frozenset(self._names(r) for r in rows), []).append(rows.tolist())
        return found

    def _names(self, row: int) -> _Names:
        return tuple(self._factors[f][0] for f in self._rest[row])

    def work(self, widths: Sequence[int]) -> float:
        """About the operations that `norm` takes."""
        return sum(
            len(blocks) * float(_coordinate_starts(shapes, widths)[1]) ** 3
            + _PRODUCT_WORK * sum(len(rows) for rows in blocks)
            for shapes, blocks in self._blocks.items()
        )

    def norm(self, widths: Sequence[int], *, replaced: bool) -> float:
        """The sum of the nuclear norms on every T; without the first vector of K_∅ where a record is replaced."""
        high = np.array([s.high(widths[i]) ** 2 for i, s in self._factors])
        low = [s.low(widths[i]) for i, s in self._factors]
        number = np.array([1.0 if w else float(m[0, 0]) for w, m in zip(self._wide, low, strict=True)])
        terms = np.concatenate([w * high[i].prod(axis=1) * number[o].prod(axis=1) for w, i, o in self._parts])
        weights = np.bincount(self._row, terms, len(self._rest))
        counted = self._number & ~self._empty if replaced else self._number
        total = float(np.sqrt(np.bincount(self._set, weights, len(counted))[counted]).sum())
        for shapes, blocks in self._blocks.items():
            starts, size = _coordinate_starts(shapes, widths)
            places = {shape: _product_coordinates(shape, starts, widths) for shape in shapes}
            for rows in blocks:
                gram = np.zeros((size, size))
                for r in rows:
                    place = places[self._names(r)]
                    part = functools.reduce(kron, (low[f] for f in self._rest[r]), np.ones((1, 1)))
                    gram[np.ix_(place, place)] += weights[r] * part
                # all at u comes first
                kept = gram[1:, 1:] if replaced and self._empty[self._set[rows[0]]] else gram
                squares = np.asarray(np.linalg.eigvalsh(kept), dtype=np.float64)
                total += float(lowered_roots(squares).sum())
        return total


def _coordinate_starts(shapes: frozenset[_Names], widths: Sequence[int]) -> tuple[dict[_Names, int], int]:
    """Where the coordinates begin that are off u on exactly some attributes, and how many there are in all.

    An attribute that a product sums out is at u, so products share what is off u on what they share.
    """
    starts: dict[_Names, int] = {}
    size = 0
    for shape in shapes:
        for away in (s for r in range(len(shape) + 1) for s in itertools.combinations(shape, r)):
            if away not in starts:
                starts[away] = size
                size += math.prod(widths[i] for i in away)
    return starts, size


def _product_coordinates(shape: _Names, starts: Mapping[_Names, int], widths: Sequence[int]) -> _Flat:
    """The coordinates of ⊗ L over the attributes of a product, in C order."""
    place = np.zeros([widths[i] + 1 for i in shape], dtype=np.int64)
    for chosen in itertools.product((False, True), repeat=len(shape)):
        away = tuple(i for i, c in zip(shape, chosen, strict=True) if c)
        lengths = [widths[i] for i in away]
        cells = starts[away] + np.arange(math.prod(lengths)).reshape(lengths)
        place[tuple(slice(1, None) if c else 0 for c in chosen)] = cells
    return place.reshape(-1)


_MAX_WORK = 5e8  # operations of one pass over the rows of all factors
_ROUNDS = 100  # a round is one step of every attribute; the bound says how far what ends here is
_TOLERANCE = 1e-4  # of the largest variance above the weighted sum
_EXPONENT = 2.0  # weights follow ratios twice as fast as they ask for: any positive power has the same fixed point
_WITNESS_ROWS = 4  # per cell
_LEAST_WEIGHT = 1e-12  # of a row, relative to the heaviest, so that it may come back


@dataclass(slots=True)
class _FactorRows:
    """A factor, the products' kinds that have it, and the distribution of each over its rows: (kinds, rows)."""

    factor: LinearOperator
    kinds: NDArray[np.int64]
    weights: FloatArray


class LargestErrorUnion(TiltedUnion):
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
        self._rows = {i: _distinct_weighted_rows(self._kinds[i]) for i in self.tilted}
        work = sum(
            float(r.weights.size) + r.factor.shape[0] * float(self.sizes[i]) ** _row_power(r.factor)
            for i, rows in self._rows.items()
            for r in rows
        )
        if work > _MAX_WORK:
            raise PlanError("too many different rows to tilt the residuals for the largest of them")
        self._seen: dict[int, tuple[TiltShape, list[tuple[FloatArray, FloatArray]]]] = {}

    def _row_values(self, i: int, shape: TiltShape) -> list[tuple[FloatArray, FloatArray]]:
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

    def _values(self, shapes: Mapping[int, TiltShape]) -> list[FloatArray]:
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
            pull += centre_gram(row_weighted_gram(r.factor, inside[r.kinds] @ r.weights))
            spread += row_weighted_gram(r.factor, outside[r.kinds] @ r.weights)
        return pull, spread

    def witness(self, shapes: Mapping[int, TiltShape]) -> tuple[list[Product], dict[str, FloatArray]]:
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
                    chosen[a], part = _heaviest_row(factors[a])
                    share *= part
            out.append((weight * share, chosen))
        return out, {self.names[i]: shape.dual for i, shape in shapes.items()}

    def reweigh(self, shapes: Mapping[int, TiltShape]) -> float:
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
                r.weights = _rescale_weights(r.weights, ratio)
        value = float(self._shares @ found)
        self._shares = _rescale_weights(self._shares[None], found[None] / value)[0]
        self._weights = self._asked * self._shares
        return float((found * largest).max()) / value - 1

    def _owners(self, i: int) -> NDArray[np.int64]:
        """The product of every kind of an attribute."""
        codes = self._codes[:, i]
        out = np.zeros(len(self._kinds[i]), dtype=np.int64)
        out[(codes[codes > 0] - 1) // 2] = self._owner[codes > 0]
        return out


def optimise_largest(union: LargestErrorUnion, *, tilt: bool = True) -> dict[int, TiltShape]:
    """The best shapes found per tilted attribute for the largest weighted variance; `tilt=False` keeps t = 1/n.

    Raises PlanError where some attribute makes no difference to any query.
    """
    shapes = {i: even_shape(union.sizes[i]) for i in union.tilted}
    bases = {i: contrast_basis(union.sizes[i]) for i in union.tilted}
    with single_thread():
        for _ in range(_ROUNDS):
            before = dict(shapes)
            try:
                for i in union.tilted:
                    shapes[i] = improve_shape(shapes[i], bases[i], *union.linearised(shapes, i), tilt=tilt, steps=1)
            except np.linalg.LinAlgError:
                return before  # the search has left what rounding allows
            if union.reweigh(shapes) <= _TOLERANCE:
                break
    return shapes


def _distinct_weighted_rows(kinds: Sequence[LinearOperator]) -> list[_FactorRows]:
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
        _FactorRows(f, np.array(k, dtype=np.int64), np.full((len(k), f.shape[0]), 1 / f.shape[0]))
        for f, k in zip(different, members, strict=True)
    ]


def _rescale_weights(weights: FloatArray, ratio: FloatArray) -> FloatArray:
    """Weights times a power of the ratios, of sum 1 along the last axis."""
    out = weights * ratio**_EXPONENT
    out = np.maximum(out, _LEAST_WEIGHT * out.max(axis=-1, keepdims=True))
    return out / out.sum(axis=-1, keepdims=True)


def _plain_largest(factor: LinearOperator) -> tuple[float, float]:
    """The largest variance of a row that the residual of marginals leaves at unit price, and its squared mean."""
    n = factor.shape[1]
    first, second = factor.row_sums(1), factor.row_sums(2)
    return max(float((second - first**2 / n).max()), 0.0) * (n - 1) / n, float((first**2).max()) / n**2


def _heaviest_row(factor: LinearOperator) -> tuple[LinearOperator, float]:
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
