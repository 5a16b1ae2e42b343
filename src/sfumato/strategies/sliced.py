"""Vectors of one attribute, each with a matrix of its own over the joint cells of the others."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato._util.codec import storable
from sfumato.errors import PlanError
from sfumato.operators import Block, Dense, Kronecker, LinearOperator, Total
from sfumato.operators.base import FloatArray, Numbers, single_thread
from sfumato.strategies.covariance import check_covariance_size
from sfumato.strategies.strategy import (
    Estimate,
    Strategy,
    factors_by_attribute,
    marginalise,
    order_by_queries,
    order_by_query,
)

_MOST_FOURTH = 2**26  # entries of R that are written out for their fourth powers: a second


@storable
@dataclass(frozen=True, eq=False)
class Sliced(Strategy):
    """Row b of `vectors` over one attribute, times `matrices[b]` over the joint cells of all the others.

    Nothing is left out: as many vectors as cells, independent, and every matrix is triangular without zeros on its
    diagonal. Queries need one factor for each attribute.

    Attributes:
        names: All attributes.
        shape: Their cells.
        axis: The place of the attribute that is sliced.
        vectors: (n, n) whole numbers, n its cells.
        matrices: n upper triangular matrices (m, m) of whole numbers, m the joint cells of the others in their order.
    """

    names: tuple[str, ...]
    shape: tuple[int, ...]
    axis: int
    vectors: NDArray[np.int64]
    matrices: tuple[NDArray[np.int64], ...]

    def __post_init__(self) -> None:
        if len(self.names) != len(self.shape) or not 0 <= self.axis < len(self.shape):
            raise PlanError("slices are along one of several attributes, each with its number of cells")
        n, m = self.shape[self.axis], math.prod(self._others(self.shape))
        if self.vectors.shape != (n, n) or [a.shape for a in self.matrices] != [(m, m)] * n:
            raise PlanError("slices are as many vectors as cells, each with a square matrix over the other attributes")
        if any(np.tril(a, -1).any() or not np.diagonal(a).all() for a in self.matrices):
            raise PlanError("matrices of slices are upper triangular, without zeros on the diagonal")

    def _others(self, given: Sequence[int]) -> tuple[int, ...]:
        return tuple(given[: self.axis]) + tuple(given[self.axis + 1 :])

    @property
    def blocks(self) -> tuple[Block, ...]:
        return self._blocks

    @functools.cached_property
    def _blocks(self) -> tuple[Block, ...]:
        own = self.names[self.axis]
        groups = ((own,), tuple(a for a in self.names if a != own))
        rows = (self.vectors[b : b + 1] for b in range(len(self.vectors)))
        return tuple(Block(groups, (Dense(r), Dense(a))) for r, a in zip(rows, self.matrices, strict=True))

    @property
    def summary(self) -> str:
        own = self.names[self.axis]
        others = ", ".join(a for a in self.names if a != own)
        return f"{len(self.vectors):,} vectors of {own}, each with a matrix of its own over {others}"

    # -- errors ------------------------------------------------------------------------------------

    @functools.cached_property
    def _back(self) -> FloatArray:
        """(n, n) the way from vectors to cells of the attribute."""
        with single_thread():
            return np.asarray(np.linalg.inv(self.vectors.astype(np.float64)), dtype=np.float64)

    @functools.cached_property
    def _inverses(self) -> tuple[FloatArray, ...]:
        """The inverse of every matrix."""
        from scipy.linalg import solve_triangular  # noqa: PLC0415  (slow to import)

        with single_thread():
            one = np.eye(len(self.matrices[0]))
            return tuple(np.asarray(solve_triangular(a.astype(np.float64), one)) for a in self.matrices)

    @functools.cached_property
    def _covariances(self) -> tuple[FloatArray, ...]:
        with single_thread():
            return tuple(b @ b.T for b in self._inverses)

    def _split(self, query: Block) -> tuple[FloatArray, Kronecker]:
        """What a query reads of the vectors, (rows, n), and its factors on all others. Raises NotAnswerable."""
        factors: Mapping[str, LinearOperator] = factors_by_attribute(query, self.names)
        each = [factors.get(a) or Total(n) for a, n in zip(self.names, self.shape, strict=True)]
        with single_thread():
            read = np.asarray(each[self.axis].matvec(self._back), dtype=np.float64)
        return read.reshape(-1, len(self._back)), Kronecker((*each[: self.axis], *each[self.axis + 1 :]))

    def _in_order(self, table: FloatArray, read: FloatArray, others: Kronecker, query: Block) -> FloatArray:
        """(rows on the sliced attribute, rows on the others) with one axis per factor of the query."""
        rows = [f.shape[0] for f in others.factors]
        whole = np.moveaxis(table.reshape(len(read), *rows), 0, self.axis)
        return order_by_query(whole, query, self.names)

    def check(self, query: Block) -> None:
        factors_by_attribute(query, self.names)

    def row_powers(self, query: Block, power: int) -> FloatArray:
        read, others = self._split(query)
        with single_thread():
            if power == 2:
                forms = np.array([others.row_forms(c) for c in self._covariances])
            elif others.shape[0] * others.shape[1] * len(read.T) <= _MOST_FOURTH:
                rows = np.asarray(others.dense(), dtype=np.float64)
                forms = np.array([((rows @ b) ** power).sum(axis=1) for b in self._inverses])
            else:
                forms = np.full((len(self._back), others.shape[0]), math.nan)
            table = (read**power) @ forms
        return self._in_order(table, read, others, query)

    def covariance(self, first: Block, second: Block) -> FloatArray:
        check_covariance_size(first.rows, second.rows)
        (one, left), (other, right) = self._split(first), self._split(second)
        with single_thread():
            a, b = np.asarray(left.dense(), dtype=np.float64), np.asarray(right.dense(), dtype=np.float64)
            both = np.array([a @ c @ b.T for c in self._covariances])
            table = np.einsum("in,jn,nkl->ijkl", one, other, both, optimize=True)
        rows = [(f.shape[0], g.shape[0]) for f, g in zip(left.factors, right.factors, strict=True)]
        table = table.reshape(len(one), len(other), *(r for r, _ in rows), *(c for _, c in rows))
        count = len(rows)
        table = table.transpose(0, 1, *(k for i in range(count) for k in (2 + i, 2 + count + i)))
        table = np.moveaxis(table, (0, 1), (2 * self.axis, 2 * self.axis + 1))
        return order_by_queries(table, first, second, self.names)

    # -- answers -----------------------------------------------------------------------------------

    def estimate(self, values: Sequence[Numbers], total: int | None) -> Estimate:
        del total  # nothing rests on it where a record more or less is what is hidden
        with single_thread():
            each = zip(self._inverses, values, strict=True)
            table = self._back @ np.array([b @ np.asarray(v, dtype=np.float64) for b, v in each])
        return np.moveaxis(table.reshape(len(table), *self._others(self.shape)), 0, self.axis)

    def answer(self, estimate: Estimate, query: Block) -> FloatArray:
        self.check(query)
        return np.asarray(marginalise(estimate, self.names, query), dtype=np.float64)
