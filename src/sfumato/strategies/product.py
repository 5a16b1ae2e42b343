"""Products of factors over groups of attributes: direct noise, cell counts, trees, dense optima and their products."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from sfumato._util.codec import storable, value_fingerprint
from sfumato.errors import NotAnswerable
from sfumato.operators import Block, Dense, Identity, Kronecker, LinearOperator, OnMarginal, Scaled, Total
from sfumato.operators.base import FloatArray, Numbers
from sfumato.strategies.covariance import (
    FactorPart,
    bilinear_form,
    by_agreement,
    check_covariance_size,
    combine_kronecker_terms,
)
from sfumato.strategies.factors import Cells, Matrix, StrategyFactor, TotalOnly
from sfumato.strategies.range_bounds import OrderedStrategy
from sfumato.strategies.strategy import Estimate, Strategy, marginalise, row_shape

_LISTED = 2**24  # queries: 128 MB of errors; of more ranges, their sums in closed form


@storable
@dataclass(frozen=True, eq=False)
class Product(Strategy):
    """`multiple` times the Kronecker product of integer factors, one per group of attributes.

    Queries are answered by least squares. With `raw` set, that very block is answered by its own
    noisy values instead (the textbook direct mechanism), or by `reconstruction` (rows, l) times the
    normalised values. With `public_total` the known number of records enters as an exact
    measurement of the total. `bias` bounds |R B - W| per record, where rounding left the row space.
    """

    groups: tuple[tuple[str, ...], ...]
    sizes: tuple[tuple[int, ...], ...]
    factors: tuple[StrategyFactor, ...]
    multiple: int = 1
    public_total: bool = False
    raw: Block | None = None
    reconstruction: FloatArray | None = None
    bias: float = 0.0
    title: str = ""

    @property
    def blocks(self) -> tuple[Block, ...]:
        return self._blocks

    @functools.cached_property
    def _blocks(self) -> tuple[Block, ...]:
        """What is measured, made once: pieces of a stack are asked for it with every query."""
        scalar = Scaled(Identity(1), self.multiple)
        return (Block(((), *self.groups), (scalar, *(f.measured for f in self.factors))),)

    @functools.cached_property
    def attributes(self) -> tuple[str, ...]:
        """The attributes whose joint table is measured."""
        return tuple(a for g in self.groups for a in g)

    @functools.cached_property
    def divisor(self) -> float:
        """What one unit of the noise is divided by in normalised answers."""
        return self.multiple * math.prod(f.scale for f in self.factors)

    @property
    def summary(self) -> str:
        return self.title or f"a product strategy over {', '.join(self.attributes) or 'the total'}"

    @functools.cached_property
    def _raw_print(self) -> str:
        return "" if self.raw is None else value_fingerprint(self.raw)

    def _is_raw(self, query: Block) -> bool:
        raw = self.raw
        if raw is None or raw.groups != query.groups or row_shape(raw) != row_shape(query):
            return False
        # equal operators have equal fingerprints, which take longer to tell
        return query == raw or value_fingerprint(query) == self._raw_print

    # -- errors ----------------------------------------------------------------------------------

    def check(self, query: Block) -> None:
        if not self._is_raw(query):
            self._answering(query)

    def _answering(self, query: Block) -> list[_Component]:
        """The components that answer a query. Raises NotAnswerable."""
        missing = [a for a in query.attributes if a not in self.attributes]
        if missing:
            raise NotAnswerable(f"nothing about {', '.join(missing)} was measured together with the rest of the query")
        parts = self._components(query)
        for part in parts:
            what = ", ".join(a for i in part.mine for a in self.groups[i])
            if len(part.mine) == 1:
                self.factors[part.mine[0]].check(part.operator, what)
            else:
                self._check_joint(part, what)
        return parts

    def _check_joint(self, part: _Component, what: str) -> None:
        for a, b in part.operator.row_chunks():
            rows = part.operator.rows(a, b)
            back = rows
            for axis, factor in enumerate(self._axis_factors(part)):
                back = _map_along_axis(back, part.sizes, axis, functools.partial(_project_on_row_space, factor))
            if np.abs(back - rows).max(initial=0.0) > 1e-7 * max(np.abs(rows).max(initial=0.0), 1e-300):
                raise NotAnswerable(f"a query over {what} lies outside the span of what was measured")

    def _axis_factors(self, part: _Component) -> list[StrategyFactor]:
        return [self.factors[i] for i in part.mine]

    @functools.cached_property
    def _cells(self) -> dict[str, int] | None:
        """The attributes and their cells where the joint table itself is measured, and no total known; else None."""
        if self.public_total or not all(isinstance(f, Cells) for f in self.factors):
            return None
        return {a: n for g, s in zip(self.groups, self.sizes, strict=True) for a, n in zip(g, s, strict=True)}

    def row_powers(self, query: Block, power: int) -> FloatArray:
        if self._is_raw(query):
            if self.reconstruction is None:
                return np.full((1,) * len(query.factors), self.divisor ** (-power))
            return (self.reconstruction**power).sum(axis=1).reshape(row_shape(query)) * self.divisor ** (-power)
        cells, asked = self._cells, query.attributes
        if cells is not None and cells.keys() >= {*asked} and all(isinstance(f, Identity) for f in query.factors):
            # every cell of a marginal table sums as many measured ones
            summed = math.prod(n for a, n in cells.items() if a not in asked)
            return np.full((1,) * len(query.factors), float(summed) * self.divisor ** (-power))
        parts, shape = self._answering(query), row_shape(query)
        sums, lines = np.ones((1,) * len(shape)), np.ones((1,) * len(shape))
        ones = self._spread_ones() if power == 2 else None
        for part in parts:
            if len(part.mine) == 1:
                own = self.factors[part.mine[0]].row_powers(part.operator, power)
            else:
                own = self._joint_powers(part, power)
            sums = sums * part.place(own, shape)
            if ones is not None:
                lines = lines * part.place(part.operator.matvec(self._ones_of(part, ones)), shape)
        if ones is not None:
            sums = np.maximum(sums - lines**2 / math.prod(float(o.sum()) for o in ones), 0.0)
        return sums * self.divisor ** (-power)

    def row_errors(self, query: Block) -> tuple[float, float] | None:
        factor = self.factors[0] if len(self.factors) == 1 else None
        if query.rows <= _LISTED or not isinstance(factor, OrderedStrategy) or query.groups != self.groups:
            return None
        ones = self._spread_ones()
        mean, largest = factor.range_errors(query.factors[0], None if ones is None else ones[0])
        return mean * self.divisor**-2, largest * self.divisor**-2

    def _joint_powers(self, part: _Component, power: int) -> FloatArray:
        out = np.empty(part.operator.shape[0])
        for a, b in part.operator.row_chunks():
            out[a:b] = (self._spread(part, part.operator.rows(a, b)) ** power).sum(axis=1)
        return out

    def _spread(self, part: _Component, rows: FloatArray) -> FloatArray:
        """(c, cells of a component) rows times A^+, (c, measured)."""
        shape = list(part.sizes)
        for axis, factor in enumerate(self._axis_factors(part)):
            rows = _map_along_axis(rows, shape, axis, factor.spread)
            shape[axis] = factor.measured.shape[0]
        return rows

    def covariance(self, first: Block, second: Block) -> FloatArray:
        check_covariance_size(first.rows, second.rows)
        if self._is_raw(first):
            return self._raw_covariance(second)
        if self._is_raw(second):
            return self._raw_covariance(first).T
        pairs = list(zip(self._components(first, second), self._components(second, first), strict=True))

        def joined(weight: float, terms: list[FloatArray]) -> FloatArray:
            parts = [FactorPart(a.theirs, b.theirs, [t]) for (a, b), t in zip(pairs, terms, strict=True)]
            return combine_kronecker_terms(np.full((1,) * len(parts), weight), parts, first, second)

        out = joined(self.divisor**-2, [self._between(a, b) for a, b in pairs])
        ones = self._spread_ones()
        if ones is not None:
            lines = [[p.operator.matvec(self._ones_of(p, ones)) for p in pair] for pair in pairs]
            known = self.divisor**-2 / math.prod(float(o.sum()) for o in ones)
            taken = joined(known, [np.multiply.outer(a, b) for a, b in lines])
            out -= taken
            # what is known has no error, not one of rounding that may be negative
            out[np.abs(out) <= 1e-13 * np.abs(taken)] = 0.0
        return out

    def table_covariance(self, first: Block, second: Block) -> FloatArray | None:
        # of tables that are not answered there are none
        for table in (first, second):
            self.check(table)
        alike = all(isinstance(f, (Cells, TotalOnly)) for f in self.factors) and self.reconstruction is None
        return by_agreement(self, first, second) if alike else None

    def _between(self, first: _Component, second: _Component) -> FloatArray:
        """W_1 (AᵀA)^+ W_2ᵀ."""
        if second.operator.shape[0] > first.operator.shape[0]:
            return self._between(second, first).T

        def back(rows: FloatArray) -> FloatArray:
            for axis, factor in enumerate(self._axis_factors(second)):
                rows = _map_along_axis(rows, second.sizes, axis, factor.cells_of_rows)
            return rows

        return bilinear_form(first.operator, second.operator, back)

    def _ones_of(self, part: _Component, ones: Sequence[FloatArray]) -> FloatArray:
        """(AᵀA)^-1 1 over the cells of a component."""
        return reduce(np.multiply.outer, [ones[i] for i in part.mine]).reshape(-1)

    def _raw_covariance(self, second: Block) -> FloatArray:
        """Covariances of the raw answers with those to another block, or to the raw one itself."""
        measured = math.prod(f.measured.shape[0] for f in self.factors)
        own = Identity(measured) if self.reconstruction is None else Dense(self.reconstruction)
        if self._is_raw(second):
            return np.asarray(own.matvec(own.dense().T), dtype=np.float64) * self.divisor**-2
        whole = self._component(second, tuple(range(len(self.groups))), set(self.attributes))
        ones = self._spread_ones()
        held = None if ones is None else self._ones_of(whole, ones)

        def spread(rows: FloatArray) -> FloatArray:
            # the public total takes the place of what was measured of it
            return self._spread(whole, rows if held is None else rows - (rows @ held / held.sum())[:, None])

        return bilinear_form(own, whole.operator, spread) * self.divisor**-2

    def _spread_ones(self) -> list[FloatArray] | None:
        """Per factor (AᵀA)^-1 1, where the public total adds knowledge."""
        if not self.public_total:
            return None
        spread = [f.spread_ones() for f in self.factors]
        return [s for s in spread if s is not None] if all(s is not None for s in spread) else None

    def _components(self, query: Block, *others: Block) -> list[_Component]:
        """The finest partition into which both the strategy's and the queries' groups fit."""
        if all(len(g) == 1 for g in self.groups) and all(len(g) < 2 for q in (query, *others) for g in q.groups):
            # of single attributes each is a part by itself
            return [self._component(query, (i,), set(g)) for i, g in enumerate(self.groups)]
        asked = [set(g) for q in (query, *others) for g in q.groups]
        left = list(range(len(self.groups)))
        parts: list[_Component] = []
        while left:
            mine, names = [left[0]], set(self.groups[left[0]])
            grown = True
            while grown:
                grown = False
                for group in asked:
                    if group & names and not group <= names:
                        names |= group
                        grown = True
                for i in left:
                    if i not in mine and set(self.groups[i]) & names:
                        mine.append(i)
                        names |= set(self.groups[i])
                        grown = True
            left = [i for i in left if i not in mine]
            parts.append(self._component(query, tuple(sorted(mine)), names))
        return parts

    def _component(self, query: Block, mine: tuple[int, ...], names: set[str]) -> _Component:
        attributes = tuple(a for i in mine for a in self.groups[i])
        sizes = tuple(n for i in mine for n in self.sizes[i])
        theirs = tuple(j for j, g in enumerate(query.groups) if g and set(g) <= names)
        asked = tuple(a for j in theirs for a in query.groups[j])
        if not theirs:
            operator: LinearOperator = Total(math.prod(sizes))
        else:
            chosen = tuple(query.factors[j] for j in theirs)
            operator = chosen[0] if len(chosen) == 1 else Kronecker(chosen)
            if asked != attributes:
                operator = OnMarginal(sizes, tuple(attributes.index(a) for a in asked), operator)
        return _Component(mine, theirs, tuple(math.prod(self.sizes[i]) for i in mine), operator)

    # -- answers -----------------------------------------------------------------------------------

    def estimate(self, values: Sequence[Numbers], total: int | None) -> Estimate:
        raw = np.asarray(values[0], dtype=np.float64) / self.multiple
        return _ReadMeasurements(
            raw / math.prod(f.scale for f in self.factors), functools.partial(self._table, raw, total)
        )

    def _table(self, raw: FloatArray, total: int | None) -> FloatArray:
        """The least-squares cells, one axis for every attribute."""
        table = raw
        for factor in self.factors:
            flat = table.reshape(factor.measured.shape[0], -1)
            table = np.ascontiguousarray(factor.cells(flat / factor.scale).T)
        table = table.reshape(-1)
        ones = self._spread_ones()
        if ones is not None and total is not None:
            spread = reduce(np.multiply.outer, ones).reshape(-1) if ones else np.ones(1)
            table = table + spread * ((total - table.sum()) / spread.sum())
        return table.reshape(tuple(n for group in self.sizes for n in group))

    def answer(self, estimate: Estimate, query: Block) -> FloatArray:
        if self._is_raw(query):
            raw = estimate.raw.reshape(-1)
            return raw if self.reconstruction is None else self.reconstruction @ raw
        parts = self._answering(query)
        found = self._answer_by_rows(estimate.raw, parts, query)
        if found is not None:
            return found
        return np.asarray(marginalise(estimate.table, self.attributes, query), dtype=np.float64)

    def _answer_by_rows(self, raw: FloatArray, parts: Sequence[_Component], query: Block) -> FloatArray | None:
        """R y, where some factor has few rows over so many cells that their table is not written; else None."""
        few = any(isinstance(f, Matrix) and f.few for f in self.factors)
        apart = all(len(p.mine) == 1 and len(p.theirs) <= 1 for p in parts)
        if not few or not apart or self._spread_ones() is not None:
            return None
        table = raw.reshape(tuple(f.measured.shape[0] for f in self.factors))
        for part in parts:
            axis, factor = part.mine[0], self.factors[part.mine[0]]
            flat = np.moveaxis(table, axis, 0)
            own = part.operator
            if isinstance(factor, Cells):
                done = np.asarray(own.matvec(flat.reshape(len(flat), -1)), dtype=np.float64)
            else:
                chunks = [factor.spread(own.rows(a, b)) for a, b in own.row_chunks()]
                done = np.concatenate(chunks) @ flat.reshape(len(flat), -1)
            table = np.moveaxis(done.reshape(-1, *flat.shape[1:]), 0, axis)
        asked = {part.theirs[0]: part.mine[0] for part in parts if part.theirs}
        order = [asked[j] for j in range(len(query.groups)) if j in asked]
        return table.transpose(order + [i for i in range(table.ndim) if i not in order]).reshape(-1)

    def bias_bound(self, query: Block) -> float:
        return self.bias


@dataclass(frozen=True)
class _ReadMeasurements:
    """What was measured, normalised, and the cells that explain it, which queries answered by themselves never need."""

    raw: FloatArray
    cells: Callable[[], FloatArray]

    @functools.cached_property
    def table(self) -> FloatArray:
        return self.cells()


@dataclass(frozen=True, slots=True)
class _Component:
    """Some of the strategy's factors (`mine`), the query's factors over them (`theirs`), and their operator."""

    mine: tuple[int, ...]
    theirs: tuple[int, ...]
    sizes: tuple[int, ...]
    operator: LinearOperator

    def place(self, values: Numbers, shape: tuple[int, ...]) -> FloatArray:
        """Values over the rows of `operator` as an array that broadcasts over the query's axes."""
        values = np.asarray(values, dtype=np.float64)
        if len(values) > 1 and np.ptp(values) <= 1e-14 * np.abs(values).max(initial=0.0):
            values = values[:1]
        if len(values) == 1:
            return values.reshape((1,) * len(shape))
        return values.reshape(tuple(n if j in self.theirs else 1 for j, n in enumerate(shape)))


def _map_along_axis(
    rows: FloatArray, sizes: Sequence[int], axis: int, run: Callable[[FloatArray], FloatArray]
) -> FloatArray:
    """Apply a map of row vectors along one axis of (c, prod sizes) tables."""
    table = np.moveaxis(rows.reshape(len(rows), *sizes), axis + 1, -1)
    done = run(np.ascontiguousarray(table).reshape(-1, sizes[axis]))
    return np.moveaxis(done.reshape(*table.shape[:-1], -1), -1, axis + 1).reshape(len(rows), -1)


def _project_on_row_space(factor: StrategyFactor, rows: FloatArray) -> FloatArray:
    """Rows projected onto the factor's row space."""
    if isinstance(factor, Cells):
        return rows
    dense = np.asarray(factor.measured.dense(), dtype=np.float64) / factor.scale
    return factor.spread(rows) @ dense
