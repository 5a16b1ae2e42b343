"""Blocks of a dense factorization problem: a Gram or a factor of it, and its decomposition at weights v.

For a block with Gram G, (p, p), and D = diag(v at its index), everything the dual needs is read from

    S = D^(1/2) G D^(1/2) = V diag(s^2) V^T.

Three ways lead there: the eigendecomposition of S; in r < p dimensions that of B D B^T for G = B^T B; and, where the
roots s spread so widely that squares lose their digits, the singular values of B D^(1/2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, eigh, svd

from sfumato.errors import WorkloadError
from sfumato.operators.base import FloatArray

__all__ = ["Block", "FactorBlock", "GramBlock", "IntArray", "Spectrum", "factor_block", "gram_block"]

IntArray = NDArray[np.intp]

_EPS = float(np.finfo(np.float64).eps)
_SPREAD = 1e-10  # ratio of eigenvalues below which their roots lose too many digits


@dataclass(frozen=True, slots=True)
class Spectrum:
    """S_b = V diag(s^2) V^T: `vectors` V is (p, r), `roots` s is (r,) and positive; tr S_b^(1/2) >= `proved`."""

    vectors: FloatArray
    roots: FloatArray
    proved: float

    def diagonal(self) -> FloatArray:
        """The diagonal of S_b^(1/2), (p,)."""
        return np.einsum("ij,ij->i", self.vectors * self.roots, self.vectors)


def _positive(values: FloatArray) -> FloatArray:
    """Values below rounding are raised to it: any positive numbers give a valid strategy."""
    largest = max(float(values.max()), float(np.finfo(np.float64).tiny))
    return np.maximum(values, len(values) * _EPS * largest)


def _proved_sum(roots: FloatArray, doubts: FloatArray) -> float:
    """The best of the bounds sum of the first j roots - doubts[j - 1], over j."""
    return max(float((np.cumsum(roots) - doubts).max()), 0.0)


def _from_square(eigenvalues: FloatArray, trace: float, size: int) -> tuple[FloatArray, float]:
    """Roots of eigenvalues, ascending, and a proved bound on the sum of the true ones.

    True eigenvalues differ by some delta of norm at most `size` roundings of the trace (backward error of the matrix
    and of its decomposition, with Hoffman and Wielandt), and sqrt(s^2 - delta) >= s - delta / s.
    """
    roots = np.sqrt(_positive(eigenvalues))
    falling = roots[::-1]
    return roots, _proved_sum(falling, size * _EPS * trace * np.sqrt(np.cumsum(falling**-2.0)))


def _accurate(scaled: FloatArray) -> Spectrum:
    """The spectrum of scaled^T scaled, (r, p) with r <= p, without squaring: for widely spread roots."""
    _, singular, rows = svd(scaled, full_matrices=False, overwrite_a=True, check_finite=False)
    doubt = sum(scaled.shape) * _EPS * float(np.sqrt(np.sum(singular**2)))
    proved = _proved_sum(singular, doubt * np.sqrt(np.arange(1, len(singular) + 1)))
    return Spectrum(rows.T, _positive(singular), proved)


class Block(Protocol):
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
        """tr(G X^-1), X = E V diag(s) V^T E and E = diag(squares)^(-1/2), from G whatever V and s are; if full."""
        ...

    def every_second(self) -> Block:
        """The block on dual variables 0, 2, 4, ..., renumbered 0, 1, 2, ..."""
        ...


@dataclass(frozen=True, slots=True)
class GramBlock:
    """A Gram matrix (p, p) whose correlations are positive definite beyond rounding.

    Every entry is within `roundings` units of rounding of the trace.
    """

    gram: FloatArray
    index: IntArray
    roundings: int

    @property
    def full(self) -> bool:
        return True

    @property
    def squares(self) -> FloatArray:
        return np.diagonal(self.gram)

    def decompose(self, v: FloatArray) -> Spectrum:
        root = np.sqrt(v[self.index])
        scaled = self.gram * root
        scaled *= root[:, None]
        trace = float(np.trace(scaled))
        eigenvalues, vectors = eigh(scaled, overwrite_a=True, check_finite=False, driver="evd")
        if eigenvalues[0] < _SPREAD * eigenvalues[-1]:
            norms = np.sqrt(self.squares)
            return _accurate(cholesky(self.gram / norms / norms[:, None], check_finite=False) * (norms * root))
        return Spectrum(vectors, *_from_square(eigenvalues, trace, self.roundings + 2 * len(root)))

    def cost(self, spectrum: Spectrum, squares: FloatArray) -> float:
        left = np.sqrt(squares[self.index])[:, None] * (spectrum.vectors / np.sqrt(spectrum.roots))
        return float(np.einsum("ij,ij->", self.gram @ left, left))

    def every_second(self) -> Block:
        kept = np.flatnonzero(self.index % 2 == 0)
        return gram_block(self.gram[np.ix_(kept, kept)], self.index[kept] // 2)


@dataclass(frozen=True, slots=True)
class FactorBlock:
    """A Gram given by a factor B (r, p) of full row rank: everything is done in r dimensions."""

    factor: FloatArray
    index: IntArray

    @property
    def full(self) -> bool:
        return len(self.factor) == len(self.index)

    @property
    def squares(self) -> FloatArray:
        return np.einsum("ij,ij->j", self.factor, self.factor)

    def decompose(self, v: FloatArray) -> Spectrum:
        scaled = self.factor * np.sqrt(v[self.index])
        matrix = scaled @ scaled.T
        trace = float(np.trace(matrix))
        eigenvalues, rotation = eigh(matrix, overwrite_a=True, check_finite=False, driver="evd")
        if eigenvalues[0] < _SPREAD * eigenvalues[-1]:
            return _accurate(scaled)
        roots, proved = _from_square(eigenvalues, trace, sum(scaled.shape))
        return Spectrum((scaled.T @ rotation) / roots, roots, proved)

    def cost(self, spectrum: Spectrum, squares: FloatArray) -> float:
        left = np.sqrt(squares[self.index])[:, None] * (spectrum.vectors / np.sqrt(spectrum.roots))
        return float(np.sum((self.factor @ left) ** 2))

    def every_second(self) -> Block:
        kept = np.flatnonzero(self.index % 2 == 0)
        return factor_block(self.factor[:, kept], self.index[kept] // 2)


def gram_block(gram: FloatArray, index: IntArray, factor: FloatArray | None = None) -> Block:
    """The block of a Gram of any rank; `factor`, with gram = factor^T factor, makes a deficient one more accurate.

    The rank is that of the matrix of correlations, so it does not depend on the scale of any column.
    """
    p = len(gram)
    norms = np.sqrt(np.maximum(np.diagonal(gram), 0.0))
    norms[norms == 0.0] = 1.0
    correlations = gram / norms
    correlations /= norms[:, None]
    least = _least_pivot(correlations)
    if factor is not None and least < 1e-6:
        return _reduced(factor, index)
    if least > 100 * p * _EPS:
        return GramBlock(gram, index, 0 if factor is None else len(factor))
    eigenvalues, vectors = eigh(correlations, check_finite=False, driver="evd")
    if eigenvalues[0] < -1e-8 * eigenvalues[-1]:
        raise WorkloadError(
            "the gram is not positive semidefinite: its correlations have the eigenvalue "
            f"{eigenvalues[0]:.3g} (largest {eigenvalues[-1]:.3g}); give F^T F of a workload F"
        )
    kept = eigenvalues > p * _EPS * eigenvalues[-1]
    return FactorBlock(np.sqrt(eigenvalues[kept])[:, None] * vectors[:, kept].T * norms, index)


def factor_block(factor: FloatArray, index: IntArray) -> Block:
    """The block of the Gram factor^T factor, factor (k, p): in k dimensions where k is at most half of p."""
    k, p = factor.shape
    if 2 * k > p:
        return gram_block(factor.T @ factor, index, factor)
    norms = np.sqrt(np.einsum("ij,ij->i", factor, factor))
    rows = factor[norms > 0.0] / norms[norms > 0.0][:, None]
    if len(rows) == k and _least_pivot(rows @ rows.T) > 100 * p * _EPS:
        return FactorBlock(factor, index)
    return _reduced(factor, index)


def _least_pivot(correlations: FloatArray) -> float:
    """The smallest pivot of a matrix with unit diagonal: near zero where its rank is deficient."""
    try:
        return float(np.diagonal(cholesky(correlations, check_finite=False)).min()) ** 2
    except np.linalg.LinAlgError:
        return 0.0


def _reduced(factor: FloatArray, index: IntArray) -> Block:
    """The same Gram from a factor of full row rank."""
    norms = np.sqrt(np.einsum("ij,ij->j", factor, factor))
    norms[norms == 0.0] = 1.0
    _, singular, rows = svd(factor / norms, full_matrices=False, check_finite=False)
    kept = singular > max(factor.shape) * _EPS * singular[0]
    return FactorBlock(singular[kept][:, None] * rows[kept] * norms, index)
