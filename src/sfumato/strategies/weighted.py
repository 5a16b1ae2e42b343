"""Weighted tables: integer multiples of tables over sets of attributes, read back by least squares over all of them.

Along attribute i a table has a factor A_i (the cells, or an integer matrix), and the total where the table leaves the
attribute out. With G = A_iᵀA_i, c = 1ᵀG^+ 1 and t = G^+ 1 / c, least squares separates: cells and total have no
correlation in what the contrasts w - (w t) 1 and the mean w t of a query see. So each residual S is the mean of what
the tables that contain S say about it, by their precision w_A^2 / prod_{A - S} c, and of variance v_S its inverse sum.
Nothing is ever formed over more cells than a table has. [MMHM18, XZK23]
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from sfumato._util.codec import storable
from sfumato.errors import NotAnswerable, PlanError
from sfumato.operators import Block, Identity, LinearOperator, Scaled, Total
from sfumato.operators.base import FloatArray, Numbers
from sfumato.strategies.covariance import check_covariance_size
from sfumato.strategies.factors import Cells, StrategyFactor
from sfumato.strategies.strategy import SINGLE_ATTRIBUTES, Estimate, Strategy, order_by_queries

_ZERO = 1e-13  # relative, some hundreds of roundings: what is constant along an axis is exactly so


@dataclass(frozen=True, eq=False, slots=True)
class TableAxis:
    """cells n; tilt t = G^+ 1 / c and total c = 1ᵀG^+ 1, for G the Gram of the factor; `fourth` that of 1ᵀA^+."""

    factor: StrategyFactor
    cells: int
    tilt: FloatArray
    total: float
    ones: FloatArray
    fourth: float

    @classmethod
    def of(cls, factor: StrategyFactor) -> TableAxis:
        n = factor.measured.shape[1]
        ones = factor.spread(np.ones((1, n)))[0] if not isinstance(factor, Cells) else np.ones(n)
        back = factor.cells_of_rows(np.ones((1, n)))[0]
        total = float(back.sum())
        return cls(factor, n, back / total, total, ones, float((ones**4).sum()))

    def squares(self, query: LinearOperator) -> tuple[FloatArray, FloatArray]:
        """((w t)^2, (w G^+ wᵀ) - c (w t)^2) of every row w, (rows,) or (1,) where all are alike."""
        if isinstance(self.factor, Cells) and isinstance(query, Identity):
            n = self.cells
            return np.array([1 / n**2]), np.array([1 - 1 / n])
        mean = np.asarray(query.matvec(self.tilt), dtype=np.float64)
        whole = np.broadcast_to(self.factor.row_powers(query, 2), mean.shape)
        rest = whole - self.total * mean**2
        return mean**2, np.where(rest <= _ZERO * whole, 0.0, rest)

    def moments(self, query: LinearOperator) -> tuple[list[FloatArray], FloatArray]:
        """([sum_j a_j^k b_j^(4 - k) for k of 0 to 4], (w t)^4) of every row.

        a = w A^+ - b are the contrasts of a row over what is measured, b = (w t) 1ᵀA^+ its mean.
        """
        if isinstance(self.factor, Cells) and isinstance(query, Identity):
            n = self.cells
            own, other = 1 - 1 / n, -1 / n
            found = [np.array([(own**k + (n - 1) * other**k) / n ** (4 - k)]) for k in range(5)]
            return found, np.array([n**-4.0])
        mean = np.asarray(query.matvec(self.tilt), dtype=np.float64)
        out = [np.empty(len(mean)) for _ in range(5)]
        for a, b in query.row_chunks():
            part = np.multiply.outer(mean[a:b], self.ones)
            contrast = self.factor.spread(query.rows(a, b)) - part
            for k in range(5):
                out[k][a:b] = (contrast**k * part ** (4 - k)).sum(axis=1)
        return out, mean**4

    def between(self, first: LinearOperator, second: LinearOperator) -> tuple[FloatArray, FloatArray]:
        """(w t tᵀ zᵀ, w (G^+ - c t tᵀ) zᵀ) of all rows w and z."""
        one = np.asarray(first.matvec(self.tilt), dtype=np.float64)
        other = np.asarray(second.matvec(self.tilt), dtype=np.float64)
        means = np.multiply.outer(one, other)
        rows = self.factor.cells_of_rows(np.asarray(second.dense(), dtype=np.float64))
        whole = np.asarray(first.matvec(np.ascontiguousarray(rows.T)), dtype=np.float64)
        return means, whole - self.total * means


Sets = tuple[int, ...]


@storable
@dataclass(frozen=True, eq=False)
class WeightedTables(Strategy):
    """`multiples[k]` times the table over the attributes at positions `sets[k]` (ascending), measured by `factors`.

    Queries need one factor for each attribute. With `public_total` the number of records is known exactly.
    """

    names: tuple[str, ...]
    factors: tuple[StrategyFactor, ...]
    sets: tuple[tuple[int, ...], ...]
    multiples: tuple[int, ...]
    public_total: bool = False

    def __post_init__(self) -> None:
        if len(self.sets) != len(self.multiples) or not all(m > 0 for m in self.multiples):
            raise PlanError("weighted tables need one positive multiple for every set")
        if any(list(s) != sorted(set(s)) for s in self.sets):
            raise PlanError("the positions of a set are ascending")

    @property
    def blocks(self) -> tuple[Block, ...]:
        return self._blocks

    @functools.cached_property
    def _blocks(self) -> tuple[Block, ...]:
        return tuple(
            Block(
                ((), *((self.names[i],) for i in s)),
                (Scaled(Identity(1), m), *(self.factors[i].measured for i in s)),
            )
            for s, m in zip(self.sets, self.multiples, strict=True)
        )

    @property
    def summary(self) -> str:
        own = any(not isinstance(f, Cells) for f in self.factors)
        return f"{len(self.sets):,} weighted tables{' of trees and cells' if own else ''}, by least squares"

    # -- the lattice of sets ----------------------------------------------------------------------

    @functools.cached_property
    def _axes(self) -> tuple[TableAxis, ...]:
        return tuple(TableAxis.of(f) for f in self.factors)

    @functools.cached_property
    def _weights(self) -> tuple[float, ...]:
        """Per table what a unit of the noise is divided by."""
        pairs = zip(self.sets, self.multiples, strict=True)
        return tuple(m * math.prod(self.factors[i].scale for i in s) for s, m in pairs)

    def _spread(self, members: Sequence[int]) -> float:
        return math.prod(self._axes[i].total for i in members)

    @functools.cached_property
    def _precisions(self) -> dict[Sets, float]:
        """Per residual below a table its precision, 1 / v_S."""
        out: dict[Sets, float] = {}
        for s, w in zip(self.sets, self._weights, strict=True):
            whole = self._spread(s)
            for inside in _subsets_by_size(s):
                out[inside] = out.get(inside, 0.0) + w**2 * self._spread(inside) / whole
        if self.public_total:
            out[()] = math.inf
        return out

    def _asked(self, query: Block) -> tuple[Sets, list[LinearOperator]]:
        """Positions of a query's attributes, ascending, and their factors; refuses what cannot be answered."""
        factors: dict[str, LinearOperator] = {}
        for group, operator in zip(query.groups, query.factors, strict=True):
            if len(group) == 1:
                factors[group[0]] = operator
            elif isinstance(operator, Identity):
                known = [a for a in group if a in self.names]
                factors |= {a: Identity(self._axes[self.names.index(a)].cells) for a in known}
                factors |= {a: operator for a in group if a not in self.names}
            else:
                raise NotAnswerable(SINGLE_ATTRIBUTES)
        unknown = [a for a in factors if a not in self.names]
        if unknown:
            raise NotAnswerable(f"nothing about {', '.join(unknown)} was measured")
        axes = tuple(sorted(self.names.index(a) for a in factors))
        operators = [factors[self.names[i]] for i in axes]
        for i, operator in zip(axes, operators, strict=True):
            self.factors[i].check(operator, self.names[i])
        return axes, operators

    def _needed(self, axes: Sets, parts: Sequence[tuple[FloatArray, FloatArray]]) -> Iterator[tuple[Sets, float]]:
        """(S, v_S) of the residuals that queries need; parts: sizes of (means, contrasts) of every row, per axis."""
        for inside in _subsets_by_size(axes):
            if any(not p[i in inside].any() for i, p in zip(axes, parts, strict=True)):
                continue
            if inside not in self._precisions:
                held = ", ".join(self.names[i] for i in inside) or "all records"
                raise NotAnswerable(f"the joint table of {held} was not measured")
            yield inside, 1.0 / self._precisions[inside]

    def check(self, query: Block) -> None:
        axes, operators = self._asked(query)
        for _ in self._needed(axes, self._squares(axes, operators)):
            pass

    # -- errors -----------------------------------------------------------------------------------

    def _squares(self, axes: Sets, operators: Sequence[LinearOperator]) -> list[tuple[FloatArray, FloatArray]]:
        return [self._axes[i].squares(f) for i, f in zip(axes, operators, strict=True)]

    def row_powers(self, query: Block, power: int) -> FloatArray:
        axes, operators = self._asked(query)
        squares = self._squares(axes, operators)
        needed = dict(self._needed(axes, squares))
        if power == 2:
            terms = (
                v * _outer_product([p[i in s] for i, p in zip(axes, squares, strict=True)]) for s, v in needed.items()
            )
            out = sum(terms, np.zeros((1,) * len(axes)))
        else:
            out = self._fourth(axes, operators, needed)
        return self._in_order(out, axes, query)

    def _fourth(self, axes: Sets, operators: Sequence[LinearOperator], needed: dict[Sets, float]) -> FloatArray:
        """Fourth powers. R over table A is w_A / k_A times sum_{S in A} v_S k_S of products of contrasts and means.

        The sum is a polynomial in one unknown per attribute that A and the query share; its fourth power has five
        terms per attribute, whose moments over the measured values are known.
        """
        outside: dict[Sets, float] = {}
        for s, w in zip(self.sets, self._weights, strict=True):
            shared = tuple(i for i in s if i in axes)
            rest = math.prod(self._axes[i].fourth for i in s if i not in axes)
            outside[shared] = outside.get(shared, 0.0) + (w / self._spread(s)) ** 4 * rest
        moments = {i: self._axes[i].moments(f) for i, f in zip(axes, operators, strict=True)}
        out = np.zeros((1,) * len(axes))
        for shared, factor in outside.items():
            table = np.zeros((2,) * len(shared))
            for s, v in needed.items():
                if set(s) <= set(shared):
                    table[tuple(int(i in s) for i in shared)] = v * self._spread(s)
            terms = _square_polynomial(_square_polynomial(table))
            for at in itertools.product(range(5), repeat=len(shared)):
                if terms[at]:
                    chosen = dict(zip(shared, at, strict=True))
                    parts = [moments[i][0][chosen[i]] if i in chosen else moments[i][1] for i in axes]
                    out = out + factor * terms[at] * _outer_product(parts)
        return np.maximum(out, 0.0)

    def _in_order(self, table: FloatArray, axes: Sets, query: Block) -> FloatArray:
        """One axis per attribute as one per factor of the query."""
        kept = [self.names[i] for i in axes]
        table = table.transpose([kept.index(a) for a in query.attributes])
        joint = {a for g in query.groups if len(g) > 1 for a in g}
        sizes = [
            self._axes[self.names.index(a)].cells if a in joint else n
            for a, n in zip(query.attributes, table.shape, strict=True)
        ]
        table = np.broadcast_to(table, sizes)
        counts = iter(table.shape)
        return table.reshape(
            [next(counts) if len(g) == 1 else (math.prod(next(counts) for _ in g)) for g in query.groups]
        )

    def covariance(self, first: Block, second: Block) -> FloatArray:
        check_covariance_size(first.rows, second.rows)
        (ours, one), (theirs, other) = self._asked(first), self._asked(second)
        self.check(first)
        self.check(second)
        left, right = dict(zip(ours, one, strict=True)), dict(zip(theirs, other, strict=True))
        every = sorted({*ours, *theirs})
        terms: dict[int, tuple[FloatArray, FloatArray]] = {}
        for i in every:
            n = self._axes[i].cells
            terms[i] = self._axes[i].between(left.get(i, Total(n)), right.get(i, Total(n)))
        common = tuple(i for i in ours if i in theirs)
        shape = [terms[i][0].shape for i in every]
        out = np.zeros([n for pair in shape for n in pair])
        for s in _subsets_by_size(common):
            if s in self._precisions:
                out += _outer_product([terms[i][i in s] for i in every]) / self._precisions[s]
        return order_by_queries(out, first, second, [self.names[i] for i in every])

    # -- answers ----------------------------------------------------------------------------------

    def estimate(self, values: Sequence[Numbers], total: int | None) -> Estimate:
        parts: dict[Sets, FloatArray] = {}
        for s, w, m, y in zip(self.sets, self._weights, self.multiples, values, strict=True):
            table = np.asarray(y, dtype=np.float64).reshape([self.factors[i].measured.shape[0] for i in s]) / m
            for axis, i in enumerate(s):
                factor = self.factors[i]
                moved = np.moveaxis(table, axis, 0)
                found = factor.cells(np.ascontiguousarray(moved).reshape(len(moved), -1) / factor.scale)
                table = np.moveaxis(found.reshape(-1, *moved.shape[1:]), 0, axis)
            whole = self._spread(s)
            for inside in _subsets_by_size(s):
                share = w**2 * self._spread(inside) / whole / self._precisions[inside]
                part = share * table.sum(axis=tuple(k for k, i in enumerate(s) if i not in inside))
                parts[inside] = parts[inside] + part if inside in parts else np.asarray(part)
        if self.public_total:
            parts[()] = np.array(float(total or 0))
        return {s: self._contrasts(s, part) for s, part in parts.items()}

    def _contrasts(self, s: Sets, table: FloatArray) -> FloatArray:
        for axis, i in enumerate(s):
            place = [-1 if k == axis else 1 for k in range(len(s))]
            table = table - table.sum(axis=axis, keepdims=True) * self._axes[i].tilt.reshape(place)
        return table

    def answer(self, estimate: Estimate, query: Block) -> FloatArray:
        axes, _ = self._asked(query)
        self.check(query)
        given = [self.names.index(a) for a in query.attributes]
        out = np.zeros([self._axes[i].cells for i in given])
        for s in _subsets_by_size(axes):
            if s not in estimate:
                continue
            part = estimate[s].transpose([s.index(i) for i in given if i in s])
            part = part.reshape([self._axes[i].cells if i in s else 1 for i in given])
            for k, i in enumerate(given):
                if i not in s:
                    part = part * self._axes[i].tilt.reshape([-1 if j == k else 1 for j in range(len(given))])
            out += part
        return np.asarray(query.operator.matvec(out.reshape(-1)), dtype=np.float64)


def _subsets_by_size(members: Sequence[int]) -> Iterator[Sets]:
    return itertools.chain.from_iterable(itertools.combinations(members, r) for r in range(len(members) + 1))


def _outer_product(parts: Sequence[FloatArray]) -> FloatArray:
    return reduce(np.multiply.outer, parts, np.ones(()))


def _square_polynomial(table: FloatArray) -> FloatArray:
    """The coefficients of the square of a polynomial in several unknowns."""
    out = np.zeros([2 * n - 1 for n in table.shape])
    for at in np.ndindex(table.shape):
        if table[at]:
            out[tuple(slice(k, k + n) for k, n in zip(at, table.shape, strict=True))] += table[at] * table
    return out
