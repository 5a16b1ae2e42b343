"""What makes a dense factorization problem smaller without changing its optimum.

Zero columns ask for nothing. Equal columns, or opposite ones, are one column whose weight they share. Unconnected
cells are separate problems. A Gram that is unchanged by reversing the cells splits into two of half the size.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from sfumato.designs.dense.blocks import Block, IntArray, factor_block, gram_block
from sfumato.errors import WorkloadError
from sfumato.operators.base import FloatArray

__all__ = ["Columns", "Part", "Problem", "distinct_columns", "read_problem"]


@dataclass(frozen=True, slots=True)
class Part:
    """A block of the dual, and how the columns of its strategy become those of the cells.

    Cell j gets column `coordinate[j]` times `sign[j]`; both are (m,).
    """

    block: Block
    coordinate: IntArray
    sign: FloatArray


@dataclass(frozen=True, slots=True)
class Problem:
    """A workload F by its Gram (m, m), or by F itself (k, m), or by both: then the Gram leads."""

    gram: FloatArray | None
    factor: FloatArray | None

    @property
    def size(self) -> int:
        """m, the number of cells."""
        return self._leading.shape[1]

    @property
    def _leading(self) -> FloatArray:
        array = self.factor if self.gram is None else self.gram
        assert array is not None
        return array

    def squares(self) -> FloatArray:
        """The squared column norms of F, (m,)."""
        if self.gram is not None:
            return np.diagonal(self.gram)
        return np.einsum("ij,ij->j", self._leading, self._leading)

    def column(self, j: int) -> FloatArray:
        """Numbers that are equal, or opposite, for two cells exactly where their columns of F are."""
        return self._leading[j] if self.factor is None else self.factor[:, j]

    def on(self, cells: IntArray) -> Problem:
        """The same on some of the cells."""
        if np.array_equal(cells, np.arange(self.size)):
            return self
        factor = self.factor
        if factor is not None:
            factor = factor[:, cells]
            factor = factor[factor.any(axis=1)]
        return Problem(None if self.gram is None else self.gram[np.ix_(cells, cells)], factor)

    def components(self) -> list[IntArray]:
        """The cells, parted so that no query touches two parts."""
        linked = self._leading != 0.0
        waiting = np.ones(self.size, dtype=np.bool_)
        parts: list[IntArray] = []
        while waiting.any():
            frontier = np.flatnonzero(waiting)[:1]
            reached = np.zeros(self.size, dtype=np.bool_)
            while len(frontier):
                reached[frontier] = True
                near = linked[linked[:, frontier].any(axis=1)].any(axis=0)
                frontier = np.flatnonzero(near & ~reached)
            waiting &= ~reached
            parts.append(np.flatnonzero(reached))
        return parts

    def parts(self) -> tuple[Part, ...]:
        """The blocks of the dual: one, or two halves where the Gram is unchanged by reversing the cells."""
        every = np.arange(self.size)
        if self.gram is None and self.factor is not None and 2 * len(self.factor) <= self.size:
            block = factor_block(self.factor, every)
        else:
            gram = self._leading.T @ self._leading if self.gram is None else self.gram
            halves = _halves(gram, self.factor) if np.array_equal(gram, gram[::-1, ::-1]) else ()
            if halves:
                return halves
            block = gram_block(gram, every, self.factor)
        return (Part(block, every, np.ones(self.size)),)


def _halves(gram: FloatArray, factor: FloatArray | None) -> tuple[Part, ...]:
    """The two halves of a Gram that is unchanged by reversing the cells.

    In the basis (e_j + e_j') / 2 and (e_j - e_j') / 2 of a cell j and its mirror j' (e_j for the middle one)
    the dual weight of a pair is that of its two cells together. Empty where a cell is nearly its own mirror, up to
    sign: rounding would then decide whether the halves are separate.
    """
    m = len(gram)
    half, low = (m + 1) // 2, m // 2
    near, far = gram[:half, :half] / 2, gram[:half, ::-1][:, :half] / 2
    even, odd = near + far, (near - far)[:low, :low]
    least = 1e-6 * np.diagonal(near)
    if low == 0 or (np.diagonal(even) < least).any() or (np.diagonal(odd) < least[:low]).any():
        return ()
    roots: tuple[FloatArray | None, FloatArray | None] = (None, None)
    if factor is not None:
        front, back = factor[:, :half] / 2, factor[:, ::-1][:, :half] / 2
        roots = (front + back, (front - back)[:, :low])
    every = np.arange(m)
    place = np.minimum(every, m - 1 - every)
    sign = np.concatenate([np.ones(low), np.zeros(m - 2 * low), -np.ones(low)])
    return (
        Part(gram_block(even, every[:half], roots[0]), place, np.ones(m)),
        Part(gram_block(odd, every[:low], roots[1]), np.minimum(place, low - 1), sign),
    )


@dataclass(frozen=True, slots=True)
class Columns:
    """The distinct nonzero columns: `cells` represent them; cell j is `sign[j]` times number `kind[j]`, -1 if zero."""

    cells: IntArray
    kind: IntArray
    sign: FloatArray


def distinct_columns(problem: Problem) -> Columns:
    """Find zero columns and columns equal up to sign, exactly."""
    squares = problem.squares()
    _, group, counts = np.unique(squares, return_inverse=True, return_counts=True)
    kind, sign = np.full(problem.size, -1, dtype=np.intp), np.ones(problem.size)
    cells: list[int] = []
    seen: dict[bytes, int] = {}
    for j in np.flatnonzero(squares > 0.0).tolist():
        kind[j] = len(cells)
        if counts[group[j]] > 1:
            column = problem.column(j)
            sign[j] = np.sign(column[np.argmax(column != 0.0)])
            kind[j] = seen.setdefault((column * sign[j] + 0.0).tobytes(), len(cells))
        if kind[j] == len(cells):
            cells.append(j)
    represented = np.array(cells, dtype=np.intp)
    nonzero = kind >= 0
    sign[nonzero] *= sign[represented[kind[nonzero]]]
    return Columns(represented, kind, sign)


def read_problem(gram: ArrayLike | None, matrix: ArrayLike | None) -> tuple[Problem, float]:
    """The problem divided by a power of two near the norm of its largest column, and that power.

    Raises WorkloadError for arrays that are not finite, not of the right shapes, not a Gram, or not of one workload.
    """
    square = None if gram is None else _symmetric(_finite(gram, "gram"))
    factor = None if matrix is None else _finite(matrix, "matrix")
    if factor is not None:
        largest, asked = float(np.abs(factor).max(initial=0.0)), factor.any(axis=0)
    elif square is not None:
        largest, asked = float(np.sqrt(np.diagonal(square).max())), np.diagonal(square) > 0.0
    else:
        raise WorkloadError("nothing to optimize: give gram (m, m), or matrix (k, m), or both")
    exponent = int(np.frexp(largest)[1])
    if square is not None:
        square = np.ldexp(square, -2 * exponent)
    if factor is not None:
        factor = np.ldexp(factor, -exponent)
        norms = np.einsum("ij,ij->j", factor, factor)
        if square is not None and len(square) != len(norms):
            raise WorkloadError(f"gram has {len(square)} cells and matrix {len(norms)}; they must be of one workload")
        if square is not None and not np.allclose(norms, np.diagonal(square), rtol=1e-8, atol=1e-12):
            raise WorkloadError("gram and matrix are of different workloads: gram must be matrix^T matrix")
        if 2 * len(factor) <= len(norms):
            square = None
        elif square is None:
            square = factor.T @ factor
    problem = Problem(square, factor)
    if not np.array_equal(problem.squares() > 0.0, asked):
        raise WorkloadError("columns of the workload differ in size by more than 1e150; drop or rescale the smallest")
    return problem, float(np.ldexp(1.0, exponent))


def _finite(array: ArrayLike, name: str) -> FloatArray:
    try:
        out = np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError) as problem:
        raise WorkloadError(f"{name} is not an array of real numbers: {problem}") from problem
    if out.ndim != 2 or out.shape[1] == 0:
        raise WorkloadError(f"{name} has shape {out.shape}; it must be a matrix with at least one column")
    if not np.isfinite(out).all():
        raise WorkloadError(
            f"{name} holds {int((~np.isfinite(out)).sum())} entries that are NaN or infinite; all must be finite"
        )
    return out


def _symmetric(gram: FloatArray) -> FloatArray:
    if gram.shape[0] != gram.shape[1]:
        raise WorkloadError(f"gram has shape {gram.shape}; it must be square, (m, m): F^T F of a workload F (k, m)")
    diagonal = np.diagonal(gram)
    if (diagonal < 0.0).any() or gram[diagonal == 0.0].any():
        raise WorkloadError(
            "gram is not positive semidefinite: it has a negative diagonal entry, or a zero one in a row that is "
            "not zero; give F^T F of a workload F"
        )
    if np.array_equal(gram, gram.T):
        return gram
    if not np.allclose(gram, gram.T, rtol=1e-9, atol=1e-9 * float(diagonal.max())):
        raise WorkloadError("gram is not symmetric; give F^T F of a workload F")
    return gram / 2 + gram.T / 2
