"""Blocks of a dense factorization problem: a Gram or a factor of it, and its decomposition at weights v.

For a block with Gram G, (p, p), and D = diag(v at its index), everything the dual needs is read from

    S = D^(1/2) G D^(1/2) = V diag(s^2) V^T.

Four ways lead there: the eigendecomposition of S; that of its inverse, where this is tridiagonal; in r < p dimensions
that of B D B^T for G = B^T B; and, where the roots s spread so widely that squares lose their digits, the singular
values of B D^(1/2).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import WorkloadError
from sfumato.operators import Dense, Identity, LinearOperator
from sfumato.operators.base import FloatArray
from sfumato.operators.structured import Contiguous

IntArray = NDArray[np.intp]

_EPS = float(np.finfo(np.float64).eps)
_LOSS = 2e-11  # part of a bound that rounding may take, per row, before a slower way is taken
_CLEAR = 1e-7  # smallest pivot of correlations whose rank is beyond doubt
_PANEL = 64  # rows that are eliminated together
_NOUGHT = 1e-11  # a pivot that rounding may leave of a row in the span of others: thousands of rows leave 1e-12
_BESIDE = 1e-12  # of the length of a row, outside the span of others: rounding leaves a hundredth of it
_TRIDIAGONAL = 256  # coordinates from which on it pays to ask whether the inverse is tridiagonal
_LARGEST_ROOTS = 32  # taken from the Gram itself: of the others its inverse tells ten digits
_WAVES = (math.sqrt(2), math.sqrt(3), math.sqrt(5), math.sqrt(7))  # any numbers unrelated to each other would do


def _load_lapack() -> ModuleType:
    """scipy.linalg, which costs a quarter of the library's import and is needed only to factor."""
    import scipy.linalg  # noqa: PLC0415

    return scipy.linalg


def rounding_units(size: int) -> float:
    """Units of rounding, of the trace or the norm, that a decomposition or a sum over `size` terms may be off by.

    Worst cases grow with the size and are not met; errors of random sign grow with its root. This takes the root
    with a factor that leaves twenty times what residuals of up to 1024 rows show.
    """
    return 16.0 * float(np.sqrt(size))


@dataclass(frozen=True, slots=True)
class Spectrum:
    """S = V diag(s^2) V^T: `vectors` V is (p, r), `roots` s is (r,) and positive; tr S^(1/2) >= `proved`."""

    vectors: FloatArray
    roots: FloatArray
    proved: float

    @property
    def clear(self) -> bool:
        """Whether rounding costs the sum of the roots next to nothing."""
        return self.proved > (1 - _LOSS * len(self.roots)) * float(self.roots.sum())

    def diagonal(self) -> FloatArray:
        """The diagonal of S^(1/2), (p,)."""
        return np.einsum("ij,ij->i", self.vectors * self.roots, self.vectors)

    def bend(self, kind: type[np.floating]) -> Callable[[FloatArray], FloatArray]:
        """The map x -> diag(V (K o V^T diag(x) V) V^T), K_kl = s_k s_l / (s_k + s_l), computed in the type `kind`.

        Minus twice this is how `diagonal` bends along a step x of log v, beside its growth in proportion.
        """
        vectors = self.vectors.astype(kind, copy=False)
        kernel = (self.roots[:, None] * self.roots / (self.roots[:, None] + self.roots)).astype(kind)

        def image(x: FloatArray) -> FloatArray:
            inner = (vectors.T * x.astype(kind)) @ vectors
            inner *= kernel
            return np.einsum("ij,ij->i", vectors @ inner, vectors).astype(np.float64)

        return image


def _raise_to_rounding(values: FloatArray) -> FloatArray:
    """Values below rounding are raised to it: any positive numbers give a valid strategy."""
    largest = max(float(values.max()), float(np.finfo(np.float64).tiny))
    return np.maximum(values, len(values) * _EPS * largest)


def _root_sum_bound(roots: FloatArray, squares: float, plain: float) -> float:
    """A bound on the sum of the true roots where those found are in doubt.

    By Hoffman and Wielandt the true s^2 differ by some delta of norm `squares` and the s themselves by one of norm
    `plain`, bounds on the backward errors. As sqrt(s^2 - delta) >= s - delta / s, the sum of any of the roots falls
    by no more than squares * norm(1 / s) + plain * sqrt(count); small roots that would lose by it are left out.
    """
    falling = np.sort(roots[roots > roots.max() * _EPS])[::-1]
    lost = squares * np.sqrt(np.cumsum(falling**-2.0)) + plain * np.sqrt(np.arange(1, len(falling) + 1))
    return max(float((np.cumsum(falling) - lost).max(initial=0.0)), 0.0)


def spectrum_of_square(square: FloatArray, roundings: float) -> Spectrum:
    """The spectrum of a matrix in doubt by `roundings` units of rounding, which is overwritten."""
    doubt = (roundings + rounding_units(len(square))) * _EPS * float(np.trace(square))
    eigenvalues, vectors = _load_lapack().eigh(square, overwrite_a=True, check_finite=False, driver="evd")
    proved = _root_sum_bound(np.sqrt(np.maximum(eigenvalues, 0.0)), doubt, 0.0)
    return Spectrum(vectors, np.sqrt(_raise_to_rounding(eigenvalues)), proved)


def _spectrum_of_factor(scaled: FloatArray, roundings: float) -> Spectrum:
    """The spectrum of scaled^T scaled, for scaled (k, p), without squaring."""
    _, singular, rows = _load_lapack().svd(scaled, full_matrices=False, check_finite=False)
    norm = float(np.linalg.norm(singular))
    proved = _root_sum_bound(singular, roundings * _EPS * norm**2, rounding_units(sum(scaled.shape)) * _EPS * norm)
    return Spectrum(rows.T, _raise_to_rounding(singular), proved)


class DenseBlock(Protocol):
    """One block of the problem."""

    @property
    def index(self) -> IntArray:
        """(p,): the dual variable of each coordinate."""
        ...

    @property
    def full(self) -> bool:
        """Whether the rank is p, so that columns may be scaled one by one."""
        ...

    @property
    def squares(self) -> FloatArray:
        """(p,): the diagonal of the Gram."""
        ...

    def decompose(self, v: FloatArray) -> Spectrum:
        """The spectrum at weights v, (number of dual variables,)."""
        ...

    def cost(self, spectrum: Spectrum, squares: FloatArray) -> float:
        """tr(G X^+), X = E V diag(s) V^T E and E = diag(squares)^(-1/2): from G, however inexact V and s are.

        `squares` is any positive multiple of v, or anything positive where the block is full.
        """
        ...

    def every_second(self) -> DenseBlock:
        """The block on dual variables 0, 2, 4, ..., renumbered 0, 1, 2, ..."""
        ...


@dataclass(frozen=True, slots=True)
class GramBlock:
    """A Gram matrix (p, p) of full rank; `factor` (k, p) is what it was computed from, where that is known."""

    gram: FloatArray
    index: IntArray
    factor: FloatArray | None = None

    @property
    def full(self) -> bool:
        return True

    @property
    def squares(self) -> FloatArray:
        return np.diagonal(self.gram)

    @property
    def roundings(self) -> float:
        return 0.0 if self.factor is None else rounding_units(len(self.factor))

    def decompose(self, v: FloatArray) -> Spectrum:
        root, p = np.sqrt(v[self.index]), len(self.index)
        scaled = self.gram * root
        scaled *= root[:, None]
        quick = spectrum_of_square(scaled, self.roundings)
        if quick.clear:
            return quick
        if self.factor is not None:
            return _spectrum_of_factor(self.factor * root, 0.0)
        norms = np.sqrt(self.squares)
        correlations = self.gram / norms / norms[:, None]
        found = _spectrum_of_factor(_load_lapack().cholesky(correlations, check_finite=False) * (norms * root), 0.0)
        # rounding of the correlations, relative to their least eigenvalue, is relative to every eigenvalue of S
        least = float(_load_lapack().eigvalsh(correlations, check_finite=False)[0]) / p - rounding_units(p) * _EPS
        relative = 2 * rounding_units(p) * _EPS / least if least > 0.0 else 1.0
        return Spectrum(found.vectors, found.roots, max(quick.proved, found.proved * (1 - relative)))

    def cost(self, spectrum: Spectrum, squares: FloatArray) -> float:
        chosen = squares[self.index]
        left = np.sqrt(chosen)[:, None] * (spectrum.vectors / np.sqrt(spectrum.roots))
        found = float(np.vdot(self.gram @ left, left))
        doubt = self.roundings * _EPS * float(chosen @ self.squares) * float(np.linalg.norm(1 / spectrum.roots))
        if self.factor is not None and doubt > _LOSS * len(left) * found:
            return float(np.linalg.norm(self.factor @ left)) ** 2
        return found + doubt

    def every_second(self) -> DenseBlock:
        kept = np.flatnonzero(self.index % 2 == 0)
        return gram_block(self.gram[np.ix_(kept, kept)], self.index[kept] // 2)


@dataclass(frozen=True, slots=True)
class GreenBlock:
    """A Green's matrix G_ij = b_i b_j (d_1 + ... + d_min(i,j)) with d > 0, as of prefixes and of all ranges.

    Its inverse is tridiagonal, diag(b)^-1 B^T diag(d)^-1 B diag(b)^-1 with B the differences of neighbours, so that its
    eigenvectors take a sixth of the time. `off` bounds how far an entry of the Gram is from this, relative to it.

    Attributes:
        whole: The block as any other.
        lengths: b, (p,).
        steps: d, (p,).
        off: At least |G_ij - b_i b_j r_min(i,j)| / G_ij, with r the running sums of d.
    """

    whole: GramBlock
    lengths: FloatArray
    steps: FloatArray
    off: float

    @property
    def index(self) -> IntArray:
        return self.whole.index

    @property
    def full(self) -> bool:
        return True

    @property
    def squares(self) -> FloatArray:
        return self.whole.squares

    @property
    def _doubt(self) -> float:
        """Of the norm of S, relative to its trace."""
        return self.off + self.whole.roundings * _EPS

    def decompose(self, v: FloatArray) -> Spectrum:
        root, p = np.sqrt(v[self.index]), len(self.index)
        scale, pulls = self.lengths * root, 1 / self.steps
        diagonal, beside = (pulls + np.append(pulls[1:], 0.0)) / scale**2, -pulls[1:] / (scale[1:] * scale[:-1])
        values, vectors = _load_lapack().eigh_tridiagonal(diagonal, beside, check_finite=False, lapack_driver="stevd")
        units = rounding_units(p) * _EPS
        # eigenvalues of S from below: rounding of its inverse, relative to the largest there, hides the largest of S.
        # These are at least those of S on any subspace
        least = 1 / np.maximum(values + units * values[-1], 0.0)
        some = vectors[:, :_LARGEST_ROOTS]
        among = some.T @ ((self.whole.gram @ (root[:, None] * some)) * root[:, None])
        trace = float(v[self.index] @ self.squares)
        near = np.linalg.eigvalsh(among)[::-1] - units * trace
        least[:_LARGEST_ROOTS] = np.maximum(least[:_LARGEST_ROOTS], near)
        proved = _root_sum_bound(np.sqrt(least), self._doubt * trace, 0.0)
        found = Spectrum(vectors, 1 / np.sqrt(_raise_to_rounding(values)), proved)
        # where weights spread so widely that the largest roots are lost, these are proved to be larger
        lost = _LOSS * p * float(found.roots.sum())
        return found if abs(proved - float(found.roots.sum())) <= lost else self.whole.decompose(v)

    def cost(self, spectrum: Spectrum, squares: FloatArray) -> float:
        chosen = squares[self.index]
        left = (self.lengths * np.sqrt(chosen))[:, None] * (spectrum.vectors / np.sqrt(spectrum.roots))
        found, below = 0.0, np.zeros(len(left))
        for step, row in zip(self.steps[::-1], left[::-1], strict=True):
            below += row
            found += float(step) * float(below @ below)
        doubt = self._doubt * float(chosen @ self.squares) * float(np.linalg.norm(1 / spectrum.roots))
        return found + doubt if doubt <= _LOSS * len(left) * found else self.whole.cost(spectrum, squares)

    def every_second(self) -> DenseBlock:
        return self.whole.every_second()


def _green_block(whole: GramBlock) -> GreenBlock | None:
    """The same block as a Green's matrix; None where it is none, or its rank is in doubt."""
    gram, p = whole.gram, len(whole.gram)
    if p < _TRIDIAGONAL or not (gram[0] > 0.0).all() or not (gram[:, -1] > 0.0).all():
        return None
    lengths = gram[0] / gram[0, 0]
    sums = gram[:, -1] / (lengths * lengths[-1])
    steps = np.diff(sums, prepend=0.0)
    # the least pivot of correlations, as below
    if not (steps > _CLEAR * sums).all():
        return None
    sums, off = np.cumsum(steps), 0.0
    for i in range(p):
        row = gram[i, i:]
        apart = np.abs(lengths[i] * sums[i] * lengths[i:] - row)
        if not (apart <= rounding_units(p) * _EPS * row).all():
            return None
        off = max(off, float((apart / row).max()))
    return GreenBlock(whole, lengths, steps, off + 4 * _EPS)


@dataclass(frozen=True, slots=True)
class FactorBlock:
    """A Gram given by a factor B (r, p) of full row rank: everything is done in r dimensions.

    `gram` is what B was computed from, where that is all there is; B^T B is then a little off.
    """

    factor: FloatArray
    index: IntArray
    gram: FloatArray | None = None

    @property
    def full(self) -> bool:
        return len(self.factor) == len(self.index)

    @property
    def squares(self) -> FloatArray:
        return np.einsum("ij,ij->j", self.factor, self.factor)

    def decompose(self, v: FloatArray) -> Spectrum:
        scaled = self.factor * np.sqrt(v[self.index])
        roundings = 0.0 if self.gram is None else 2 * rounding_units(len(self.gram))
        quick = spectrum_of_square(scaled @ scaled.T, roundings + rounding_units(sum(scaled.shape)))
        if quick.clear:
            return Spectrum(scaled.T @ (quick.vectors / quick.roots), quick.roots, quick.proved)
        return _spectrum_of_factor(scaled, roundings)

    def cost(self, spectrum: Spectrum, squares: FloatArray) -> float:
        left = np.sqrt(squares[self.index])[:, None] * (spectrum.vectors / np.sqrt(spectrum.roots))
        if self.gram is not None:
            return float(np.vdot(self.gram @ left, left))
        return float(np.linalg.norm(self.factor @ left)) ** 2

    def every_second(self) -> DenseBlock:
        kept = np.flatnonzero(self.index % 2 == 0)
        return factor_block(self.factor[:, kept], self.index[kept] // 2)


def gram_block(gram: FloatArray, index: IntArray, factor: FloatArray | None = None) -> DenseBlock:
    """The block of a Gram of any rank; `factor`, with gram = factor^T factor, serves where digits would be lost.

    The rank is that of the matrix of correlations, so it does not depend on the scale of any column.
    """
    whole = GramBlock(gram, index, factor)
    green = _green_block(whole)
    if green is not None:
        return green
    norms = np.sqrt(np.maximum(np.diagonal(gram), 0.0))
    norms[norms == 0.0] = 1.0
    correlations = gram / norms
    correlations /= norms[:, None]
    if _least_pivot(correlations) > _CLEAR:
        return whole
    if factor is not None:
        return _reduce_factor_rank(factor, index)
    eigenvalues, vectors = _load_lapack().eigh(correlations, check_finite=False, driver="evd")
    if eigenvalues[0] < -1e-8 * eigenvalues[-1]:
        raise WorkloadError(
            "the gram is not positive semidefinite: its correlations have the eigenvalue "
            f"{eigenvalues[0]:.3g} (largest {eigenvalues[-1]:.3g}); give F^T F of a workload F"
        )
    kept = eigenvalues > 4 * len(gram) * _EPS * eigenvalues[-1]
    return FactorBlock(np.sqrt(eigenvalues[kept])[:, None] * vectors[:, kept].T * norms, index, gram)


def factor_block(factor: FloatArray, index: IntArray) -> DenseBlock:
    """The block of the Gram factor^T factor, factor (k, p): in k dimensions where k is at most half of p."""
    k, p = factor.shape
    if 2 * k > p:
        return gram_block(factor.T @ factor, index, factor)
    norms = np.sqrt(np.einsum("ij,ij->i", factor, factor))
    norms[norms == 0.0] = 1.0
    rows = factor / norms[:, None]
    correlations = rows @ rows.T
    if _least_pivot(correlations) > _CLEAR:
        return FactorBlock(factor, index)
    clear = clear_basis(rows, correlations)
    if clear is None:
        return _reduce_factor_rank(factor, index)
    # a fifth of the time that singular values take
    within = _load_lapack().qr(factor @ clear.across, mode="r", check_finite=False)[0][: len(clear.kept)]
    return FactorBlock(within @ clear.across.T, index)


class ClearBasis(NamedTuple):
    """Numbers of independent rows that span all, ascending, and an orthonormal basis of what they span, (p, r)."""

    kept: IntArray
    across: FloatArray


def clear_basis(rows: FloatArray, correlations: FloatArray) -> ClearBasis | None:
    """The basis of rows (k, p) of length one or zero, by their inner products (k, k): each row that is not in the span
    of those before it.

    None where some row is neither clearly in that span nor clearly out of it.
    """
    kept = _eliminate_in_order(correlations)
    if kept is None:
        return None
    across = _load_lapack().qr(rows[kept].T, mode="economic", check_finite=False)[0]
    # squares lose half of the digits: what rows have beside the span is seen along a few directions of no meaning
    probe = np.cos(np.multiply.outer(np.arange(rows.shape[1]), _WAVES))
    beside = rows @ (probe - across @ (across.T @ probe))
    return ClearBasis(kept, across) if np.abs(beside).max() <= _BESIDE * math.sqrt(rows.shape[1]) else None


def _eliminate_in_order(correlations: FloatArray) -> IntArray | None:
    """Rows out of the span of those before them, by Cholesky's elimination; None where some distance is in doubt."""
    count = len(correlations)
    lower, kept = np.empty((count, count)), list[int]()
    for a in range(0, count, _PANEL):
        b = min(a + _PANEL, count)
        left = correlations[:, a:b] - lower[:, : len(kept)] @ lower[a:b, : len(kept)].T
        for j in range(a, b):
            pivot = float(left[j, j - a])
            if pivot <= _NOUGHT:
                continue
            if pivot < _CLEAR:
                return None
            column = lower[:, len(kept)] = left[:, j - a] / math.sqrt(pivot)
            left[:, j - a + 1 :] -= np.multiply.outer(column, column[j + 1 : b])
            kept.append(j)
    return np.array(kept, dtype=np.intp) if kept else None


def _least_pivot(correlations: FloatArray) -> float:
    """The smallest pivot of a matrix with unit diagonal: near zero where its rank is deficient."""
    try:
        return float(np.diagonal(_load_lapack().cholesky(correlations, check_finite=False)).min()) ** 2
    except np.linalg.LinAlgError:
        return 0.0


def _reduce_factor_rank(factor: FloatArray, index: IntArray) -> DenseBlock:
    """The same Gram from a factor of full row rank."""
    norms = np.sqrt(np.einsum("ij,ij->j", factor, factor))
    norms[norms == 0.0] = 1.0
    _, singular, rows = _load_lapack().svd(factor / norms, full_matrices=False, check_finite=False)
    kept = singular > max(factor.shape) * _EPS * singular[0]
    return FactorBlock(singular[kept][:, None] * rows[kept] * norms, index)


@dataclass(frozen=True, slots=True)
class Queries:
    """Rows f_i, stacked, of operators over the same m cells: each block's rows times the root of its weight."""

    blocks: tuple[tuple[LinearOperator, float], ...]

    @classmethod
    def of(cls, matrix: FloatArray) -> Queries:
        """Of a matrix (k, m)."""
        return cls(((Dense(matrix), 1.0),))

    @property
    def shape(self) -> tuple[int, int]:
        """(queries, cells)."""
        return sum(operator.shape[0] for operator, _ in self.blocks), self.blocks[0][0].shape[1]

    @property
    def work(self) -> int:
        """Operations of one pass over all rows, about."""
        m = self.shape[1]
        return sum(m * m * (1 if isinstance(o, Contiguous) else 2 * o.shape[0]) for o, _ in self.blocks)

    def listed(self, most: int) -> FloatArray | None:
        """(k, m) rows times the roots of their weights; None where they have more entries than that."""
        if math.prod(self.shape) > most:
            return None
        return np.vstack([np.asarray(o.dense(), dtype=np.float64) * math.sqrt(w) for o, w in self.blocks])

    def whole_gram(self) -> FloatArray:
        """The sum of f_iᵀ f_i, (m, m)."""
        first, *rest = self.blocks
        # of many cells a sum that begins with zeros takes as long as a step of a search
        out = np.multiply(first[0].gram().dense(), first[1], dtype=np.float64)
        for operator, weight in rest:
            out += weight * np.asarray(operator.gram().dense(), dtype=np.float64)
        return out

    def forms(self, matrix: FloatArray) -> FloatArray:
        """(k,) values of f_i S f_iᵀ for a symmetric S (m, m)."""
        return np.concatenate([weight * operator.row_forms(matrix) for operator, weight in self.blocks])

    def gram(self, weights: FloatArray) -> FloatArray:
        """The sum of weights[i] f_iᵀ f_i, (m, m)."""
        out, start = np.zeros((self.shape[1],) * 2), 0
        for operator, weight in self.blocks:
            stop = start + operator.shape[0]
            out += weight * row_weighted_gram(operator, weights[start:stop])
            start = stop
        return out


def row_weighted_gram(operator: LinearOperator, weights: FloatArray) -> FloatArray:
    """Aᵀ diag(weights) A."""
    if isinstance(operator, Identity):
        return np.diag(weights)
    if isinstance(operator, Contiguous):
        # each row adds its weight on a square: four corners, then sums along both axes
        n = operator.shape[1] + 1
        first, last = operator.spans()
        steps = np.zeros(n * n)
        for i, j, sign in ((first, first, 1), (last, last, 1), (first, last, -1), (last, first, -1)):
            steps += sign * np.bincount(i * n + j, weights=weights, minlength=n * n)
        return steps.reshape(n, n).cumsum(axis=0).cumsum(axis=1)[:-1, :-1]
    out = np.zeros((operator.shape[1],) * 2)
    for a, b in operator.row_chunks():
        rows = operator.rows(a, b)
        out += (rows.T * weights[a:b]) @ rows
    return out


@dataclass(frozen=True, slots=True)
class CellChanges:
    """What a record more or less changes: any cell by itself.

    A change is a vector e over the cells, here a unit vector, and L the sum of e eᵀ by their weights.
    """

    def lengths(self, gram: FloatArray) -> FloatArray:
        """(changes,) eᵀ gram e: squared lengths, for the Gram (m, m) of some columns."""
        return np.diagonal(gram)

    def weigh(self, weights: FloatArray, rows: FloatArray) -> tuple[FloatArray, float]:
        """Rows (r, m) times L, and the largest entry of its diagonal."""
        return rows * weights, float(weights.max())

    def gather(self, weights: FloatArray, columns: NDArray[np.floating]) -> NDArray[np.floating]:
        """columnsᵀ L columns, (r, r), for columns (m, r) and in their type."""
        return (columns.T * weights.astype(columns.dtype)) @ columns

    def forms(self, columns: NDArray[np.floating], inner: NDArray[np.floating]) -> FloatArray:
        """(changes,) eᵀ columns inner columnsᵀ e."""
        return np.einsum("ij,ij->i", columns @ inner, columns).astype(np.float64)


@dataclass(frozen=True, slots=True)
class PairChanges:
    """The same where a record takes the place of another: any pair of cells, of which e is the difference."""

    cells: int
    first: IntArray
    second: IntArray

    @classmethod
    def of(cls, cells: int) -> PairChanges:
        return cls(cells, *np.triu_indices(cells, 1))

    def lengths(self, gram: FloatArray) -> FloatArray:
        norms = np.diagonal(gram)
        return norms[self.first] + norms[self.second] - 2 * gram[self.first, self.second]

    def laplacian(self, weights: FloatArray) -> FloatArray:
        """L, (m, m)."""
        out = np.zeros((self.cells, self.cells))
        out[self.first, self.second] = -weights
        out += out.T
        out[np.diag_indices(self.cells)] = -out.sum(axis=1)
        return out

    def weigh(self, weights: FloatArray, rows: FloatArray) -> tuple[FloatArray, float]:
        graph = self.laplacian(weights)
        return rows @ graph, float(np.diagonal(graph).max())

    def gather(self, weights: FloatArray, columns: NDArray[np.floating]) -> NDArray[np.floating]:
        return columns.T @ self.laplacian(weights).astype(columns.dtype) @ columns

    def forms(self, columns: NDArray[np.floating], inner: NDArray[np.floating]) -> FloatArray:
        return self.lengths((columns @ inner @ columns.T).astype(np.float64))


Changes = CellChanges | PairChanges
