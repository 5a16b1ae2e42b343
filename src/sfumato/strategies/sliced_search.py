"""Unions of products sliced along one attribute: a strategy, and a proved bound beside it. [ENU20, MMHM18]

Products of basis vectors (`spectral_search`) have one basis per attribute. Where the factors of an attribute do not
nearly commute, no basis serves all products, and what that costs grows with the cells. Slices need a basis for one
attribute alone: with T its columns, one for each cell, and any matrices X_b over the m joint cells of all others,

    X = sum_b t_b t_bᵀ ⊗ X_b.

With Z = T^-1 and products p of weight w_p, Grams G_p on the sliced attribute and M_p on the others together,

    error = sum_b tr(K_b X_b^-1),  K_b = sum_p w_p (z_bᵀ G_p z_b) M_p,      cost of a cell = sum_b T_cb² (X_b)_rr.

Given T this is convex: with weights v of the cells and C_b = diag(sum_c T_cb² v_c),

    X_b = C_b^(-1/2) (C_b^(1/2) K_b C_b^(1/2))^(1/2) C_b^(-1/2),      v <- v (cost / error)^2.

Given the X_b, T moves by quasi-Newton steps on log error + log |cost|_p, whose slopes need no more than tr(M_p X_b^-1)
and the diagonals of X_b. The two take turns.

The bound. Under weights v = v_1 ⊗ v_2 of the cells, sum 1, v_1 on the sliced attribute and v_2 any on the others, the
root of the summed errors is at least ||W D^(1/2)||_*. A factor on the sliced attribute is A_p = U_p R_p, R_p =
(A_pᵀ A_p)^(1/2). For an orthonormal basis q_b what leads from q_b to U_p q_b, for every b, is a pinching on both sides,
which no nuclear norm survives larger, and what is left is

    sum_b tr (sum_p w_p (q_bᵀ R_p q_b)² D_2^(1/2) M_p D_2^(1/2))^(1/2).

It is a norm of numbers that are convex in Q, so that Q <- the polar factor of its slope never lowers it; v_2 climbs as
for a dense problem, and v_1 by its slope. With one sliced attribute only its own factors need to nearly commute.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sfumato.errors import PlanError
from sfumato.operators import Total
from sfumato.operators.base import FloatArray, kron, single_thread
from sfumato.strategies.design import Design, Problem
from sfumato.strategies.sliced import Sliced
from sfumato.strategies.spectral_search import (
    applicable_products,
    descend_levels,
    initial_bases,
    initial_levels,
    products_on_axes,
)
from sfumato.strategies.stacked import join_problem_attributes, planned_jointly
from sfumato.strategies.tilted import Product, Union, optimise_shapes
from sfumato.strategies.tilted_bounds import lowered_roots

_MOST_OTHERS = 1_000  # joint cells of the attributes that are not sliced: a matrix of that size for every slice
_MOST_ENTRIES = 2**23  # of all matrices: 64 MB
_MOST_ROUND = 3e9  # cells of the sliced attribute times cubes of the others' cells: a round of about a second
_MOST_WORK = 2e10  # the same over all rounds
_ROUNDS = (12, 40)  # of the search, at least and at most
_BOUND_ROUNDS = 12  # of the attribute whose bound is best after two; a round costs as much as one of the search
_TRIALS = 3  # rounds by which the attribute to be sliced is chosen
_LAST = 6  # rounds of the weights alone at the end
_GAIN = 2e-5  # of a round of the bound, relative: what follows gains less than is shown
_MOVES = 20  # quasi-Newton steps of the basis between two rounds
_POWERS = (100.0, 400.0)  # of the costs, before and after the middle of the search
_START = ((30.0, 60), (100.0, 100))  # powers and steps of the products of vectors from whose basis the search starts
_FLOOR = 1e-7  # of the mean diagonal: vectors that nobody asks about are measured a little
_VECTOR_BITS, _MATRIX_BITS = 12, 20  # of the largest numbers: together below half a billion records' room
_LEAST = 0.05  # of its own weight that a cell keeps in a step of the bound
_MARGIN = 1e-9  # relative, of sums of positive numbers of about the cells' square
_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False, slots=True)
class _SlicedUnion:
    """Products as Grams on one attribute, (p, n, n), and weighted ones on the others together, (p, m, m)."""

    axis: int
    own: FloatArray
    others: FloatArray

    @property
    def work(self) -> float:
        """Of a round: about its multiplications over ten."""
        return len(self.own[0]) * float(len(self.others[0])) ** 3

    def mixed(self, numbers: FloatArray) -> FloatArray:
        """The sum of the others' Grams times numbers (p,)."""
        return np.asarray(np.tensordot(numbers, self.others, axes=1), dtype=np.float64)


@dataclass(frozen=True, eq=False, slots=True)
class _Weights:
    """Weights of the cells of the sliced attribute, and of the joint cells of the others."""

    own: FloatArray
    others: FloatArray


def sliced_bound(problem: Problem) -> float | None:
    """A lower bound on the root of the summed weighted variances at unit price; None where nothing can be sliced.

    Raises PlanError where it does not apply.
    """
    whole, _ = join_problem_attributes(problem)
    union, products = _read_union(whole)
    duals = _cell_weights(union)
    with single_thread():
        best = 0.0
        found = [
            (_BoundSearch(one, _split_weights(duals, one.axis)), one) for one in _sliceable_unions(union, products)
        ]
        for search, _ in found:
            search.climb(2)
        if found:
            search, one = max(found, key=lambda f: f[0].best)
            search.climb(min(_BOUND_ROUNDS, int(_MOST_WORK / one.work)))
            best = search.best
    return best or None


def design_sliced(problem: Problem, best: float) -> Design:
    """The best slices found. Raises PlanError where they do not apply, or do not undercut `best`.

    `best` is an error, the root of the sum of weighted variances at unit price.
    """
    return planned_jointly(problem, lambda p: _design_union_slices(p, best))


def _design_union_slices(problem: Problem, best: float) -> Design:
    union, products = _read_union(problem)
    duals = _cell_weights(union)
    slices = _sliceable_unions(union, products)
    if not slices:
        raise PlanError("too many joint cells beside every attribute that could be sliced")
    try:
        with single_thread():
            bases = _starting_bases(union, products)
            found = [_SliceSearch(one, bases[one.axis], _split_weights(duals, one.axis)) for one in slices]
            for search in found:
                search.run(_TRIALS, moving=False)
            search = min(found, key=lambda f: f.error)
            rounds = int(np.clip(_MOST_WORK / search.union.work, *_ROUNDS))
            search.run(rounds, moving=True)
    except np.linalg.LinAlgError:
        raise PlanError("what is asked along an attribute is too nearly singular") from None
    if not search.error < best:
        raise PlanError("its search did not undercut the other plans")
    return _design_from_slices(union, search)


def _read_union(problem: Problem) -> tuple[Union, list[Product]]:
    products = applicable_products(problem)
    return Union(products, problem.sizes), products


def _cell_weights(union: Union) -> list[FloatArray]:
    """Per attribute the weights of its cells that tilted residuals prove their bound by."""
    shapes = optimise_shapes(union)
    each = [shapes[i].dual if i in shapes else np.ones(n) for i, n in enumerate(union.sizes)]
    return [v / v.sum() for v in each]


def _split_weights(duals: Sequence[FloatArray], axis: int) -> _Weights:
    others = functools.reduce(np.multiply.outer, [v for i, v in enumerate(duals) if i != axis])
    return _Weights(duals[axis], np.asarray(others, dtype=np.float64).reshape(-1))


def _sliceable_unions(union: Union, products: Sequence[Product]) -> list[_SlicedUnion]:
    """The attributes that may be sliced."""
    names, sizes, out = union.names, union.sizes, list[_SlicedUnion]()
    cells = math.prod(sizes)
    grams: list[list[FloatArray]] = []
    for axis, n in enumerate(sizes):
        m = cells // n
        fits = n > 1 and 1 < m <= _MOST_OTHERS and n * m**2 <= _MOST_ENTRIES and n * float(m) ** 3 <= _MOST_ROUND
        if not fits or len(products) * m**2 > _MOST_ENTRIES:
            continue
        grams = grams or [_factor_grams(names, sizes, factors) for _, factors in products]
        others = [
            weight * functools.reduce(kron, [g for i, g in enumerate(each) if i != axis])
            for (weight, _), each in zip(products, grams, strict=True)
        ]
        out.append(_SlicedUnion(axis, np.array([each[axis] for each in grams]), np.array(others)))
    return out


def _factor_grams(names: Sequence[str], sizes: Sequence[int], factors: Mapping[str, object]) -> list[FloatArray]:
    chosen = [factors.get(a) or Total(n) for a, n in zip(names, sizes, strict=True)]
    return [np.asarray(f.gram().dense(), dtype=np.float64) for f in chosen]  # pyright: ignore


# -- the bound --------------------------------------------------------------------------------------------------------


class _BoundSearch:
    """Weights and a basis of the sliced attribute, and the best that they have proved."""

    def __init__(self, union: _SlicedUnion, weights: _Weights) -> None:
        self.best = 0.0
        self._union, self._own, self._others = union, weights.own, weights.others
        self._basis: FloatArray | None = None
        self._turn = 0

    def climb(self, rounds: int) -> None:
        """So many steps of the basis, and of one of the weights by turns."""
        for _ in range(rounds):
            before, value = self.best, self._step()
            self._turn += 1
            if self._turn > 4 and value < before * (1 + _GAIN):
                break

    def _step(self) -> float:
        union, own, others = self._union, self._own, self._others
        spectra = [_root_of_weighted(g, own) for g in union.own]
        roots = [(v * s) @ v.T for s, v in spectra]
        if self._basis is None:
            self._basis = np.linalg.eigh(sum(r / max(np.trace(r), 1e-300) for r in roots))[1]
        q = self._basis
        seen = np.array([np.einsum("ab,ab->b", q, r @ q) for r in roots])
        # never above what they are
        doubt = 8 * len(q) * _EPS * np.array([float(s.max(initial=0.0)) for s, _ in spectra])
        seen = np.maximum(seen - doubt[:, None], 0.0)
        proved, found = 0.0, 0.0
        pulls, toward, root = np.zeros_like(seen), np.zeros_like(others), np.sqrt(others)
        for b in range(len(q)):
            squares, vectors = np.linalg.eigh(union.mixed(seen[:, b] ** 2) * root * root[:, None])
            proved += float(lowered_roots(squares).sum())
            r = np.sqrt(np.maximum(squares, 0.0))
            found += float(r.sum())
            toward += (vectors**2) @ r
            kept = r > 1e-9 * r.max(initial=1e-300)
            turned = vectors[:, kept] * root[:, None]
            inverse = (turned / r[kept]) @ turned.T
            pulls[:, b] = seen[:, b] * np.einsum("pij,ij->p", union.others, inverse)
        self.best = max(self.best, proved * (1 - _MARGIN))
        slope = sum(r @ (q * pull) for r, pull in zip(roots, pulls, strict=True))
        left, _, right = np.linalg.svd(slope)
        if self._turn % 2:
            # toward / others is the slope in the weights, whose mean by weight is what was found
            stepped = others * np.maximum(toward / np.maximum(others, 1e-300) / found, _LEAST) ** 2
            self._others = stepped / stepped.sum()
        else:
            slopes = sum(_weight_slope(s, (q * pull) @ q.T, own) for s, pull in zip(spectra, pulls, strict=True))
            stepped = own * np.maximum(slopes / float(slopes @ own), _LEAST)
            self._own = stepped / stepped.sum()
        self._basis = np.asarray(left @ right, dtype=np.float64)
        return proved


def _root_of_weighted(gram: FloatArray, v: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Eigenvalues and vectors of R, R² at most D^(1/2) G D^(1/2)."""
    u = np.sqrt(v)
    squares, vectors = np.linalg.eigh(gram * u * u[:, None])
    return lowered_roots(squares), np.asarray(vectors, dtype=np.float64)


def _weight_slope(spectrum: tuple[FloatArray, FloatArray], pull: FloatArray, v: FloatArray) -> FloatArray:
    """The slope of tr(H R) in the weights: with S R + R S = H it is that of tr(S R²)."""
    roots, vectors = spectrum
    roots = np.maximum(roots, 1e-9 * roots.max(initial=1e-300))
    solved = vectors @ ((vectors.T @ pull @ vectors) / (roots[:, None] + roots)) @ vectors.T
    square = (vectors * roots**2) @ vectors.T
    return np.asarray(np.einsum("ab,ab->a", solved, square) / np.maximum(v, 1e-300), dtype=np.float64)


# -- the strategy -----------------------------------------------------------------------------------------------------


class _SliceSearch:
    """A basis and weights of the cells, and the best slices that they have led to."""

    def __init__(self, union: _SlicedUnion, basis: FloatArray, weights: _Weights) -> None:
        self.union, self.error = union, math.inf
        self.basis = basis
        self.slices: list[FloatArray] = []
        self._at, self._v = basis, np.multiply.outer(weights.own, weights.others)
        self._turns = 0

    def run(self, rounds: int, *, moving: bool) -> None:
        """So many rounds; with `moving`, of the basis too, but for the last of them."""
        best = self._v
        for r in range(rounds):
            if moving and r == max(rounds - _LAST, 0):
                self._at, self._v = self.basis, best
            found, error, cost, pulls = self._solve()
            reached = math.sqrt(error * float(cost.max()))
            if reached < self.error:
                self.error, self.basis, best = reached, self._at, self._v
                self.slices = [x / float(cost.max()) for x in found]
            v = self._v * (cost / error) ** 2
            self._v = v / v.sum()
            self._turns += 1
            if moving and r < rounds - _LAST and self._turns % 2:
                diagonals = np.array([np.diagonal(x) for x in found])
                self._move(diagonals, pulls, _POWERS[2 * r > rounds])

    def _solve(self) -> tuple[list[FloatArray], float, FloatArray, FloatArray]:
        """The best X_b for basis and weights, their error, the cost of every cell, and tr(M_p X_b^-1), (p, n)."""
        union, t = self.union, self._at
        back = np.linalg.inv(t)
        needs = np.array([np.einsum("ai,ai->a", back @ g, back) for g in union.own])
        weights, error, out = (t**2).T @ self._v, 0.0, list[FloatArray]()
        pulls = np.empty_like(needs)
        for b, c in enumerate(np.sqrt(weights)):
            gram = union.mixed(needs[:, b])
            np.fill_diagonal(gram, np.diagonal(gram) + _FLOOR * float(np.trace(gram)) / len(gram))
            squares, vectors = np.linalg.eigh(gram * c * c[:, None])
            roots = np.sqrt(np.maximum(squares, _EPS * squares[-1]))
            error += float(roots.sum())
            down, up = vectors / c[:, None], vectors * c[:, None]
            out.append((down * roots) @ down.T)
            pulls[:, b] = np.einsum("pij,ij->p", union.others, (up / roots) @ up.T)
        return out, error, (t**2) @ np.array([np.diagonal(x) for x in out]), pulls

    def _move(self, diagonals: FloatArray, pulls: FloatArray, power: float) -> None:
        """Quasi-Newton steps of the basis at given X_b."""
        from scipy.optimize import minimize  # noqa: PLC0415  (slow to import)

        n, own = len(self._at), self.union.own

        def of(at: FloatArray) -> tuple[float, FloatArray]:
            t = at.reshape(n, n)
            back = np.linalg.inv(t)
            turned = [back @ g for g in own]
            error = float(sum(p @ np.einsum("ai,ai->a", z, back) for p, z in zip(pulls, turned, strict=True)))
            slope = 2 * sum(p[:, None] * z for p, z in zip(pulls, turned, strict=True))
            cost = t**2 @ diagonals
            top = float(cost.max())
            grown = (cost / top) ** (power - 1)
            whole = float((grown * cost).sum()) / top
            by_basis = 2 * t * (grown @ diagonals.T) / (whole * top) - back.T @ slope @ back.T / error
            return math.log(error) + math.log(top) + math.log(whole) / power, by_basis.reshape(-1)

        done = minimize(of, self._at.reshape(-1), jac=True, method="L-BFGS-B", options={"maxiter": _MOVES})
        self._at = np.asarray(done.x, dtype=np.float64).reshape(n, n)


def _starting_bases(union: Union, products: Sequence[Product]) -> list[FloatArray]:
    """The bases of products of basis vectors; of an attribute whose cells are all alike, the ones and contrasts."""
    asked = products_on_axes(union, products)
    found = initial_levels(asked, initial_bases(union))
    every = tuple(np.arange(n) for n in found.levels.shape)
    out = list(descend_levels(asked, found, every, _START).bases)
    for i, axis in enumerate(asked.axes):
        if axis.plain:
            n = axis.cells
            out[i] = np.linalg.qr(np.concatenate([np.ones((n, 1)), np.eye(n)[:, : n - 1]], axis=1))[0]
    return out


def _design_from_slices(union: Union, search: _SliceSearch) -> Design:
    vectors, lengths = _integer_vectors(search.basis)
    matrices = [np.linalg.cholesky(x).T / s for x, s in zip(search.slices, lengths, strict=True)]
    fine = 2.0**_MATRIX_BITS / max(float(np.abs(a).max()) for a in matrices)
    axis = search.union.axis

    def build(s: float) -> Sliced:
        whole = tuple(_integer_triangle(a * s) for a in matrices)
        return Sliced(union.names, union.sizes, axis, vectors, whole)

    return Design("factorization", build, fine)


def _integer_vectors(basis: FloatArray) -> tuple[np.ndarray, FloatArray]:
    """Whole rows next to the columns of a basis, and by how much they are longer."""
    lengths = 2.0**_VECTOR_BITS / np.abs(basis).max(axis=0)
    return np.rint(basis * lengths).T.astype(np.int64), lengths


def _integer_triangle(matrix: FloatArray) -> np.ndarray:
    """Whole numbers next to these, none on the diagonal zero."""
    out = np.rint(matrix).astype(np.int64)
    np.fill_diagonal(out, np.maximum(np.diagonal(out), 1))
    return out
