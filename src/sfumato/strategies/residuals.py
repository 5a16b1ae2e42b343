"""Residual marginals: one orthogonal measurement per set of attributes, in closed form.

For a set S the integers (⊗_{i in S} (n_i I - J)) v_S are measured, v_S the marginal table, times a
multiple a_S that says how much noise S deserves. All tables whose subsets are measured follow by
telescoping sums, consistent by construction. [XZK23]

An attribute may have integer contrasts B of its own instead of n I - J: any n - 1 rows that with the total
determine its cells. With [1ᵀ; B]^-1 = [t | P] every table is exactly sum_S (⊗_{i in S} P_i) y_S ⊗ t_rest, so
whatever rounding made of B, its tilt t is what the integers say.

Tables from noisy residuals by telescoping sums, many at a time and few in memory.

A table over A whose smaller tables q_S are known is z plus what brings its margins to theirs: with z the
noisy residual of A alone,

    q_A = z + sum_{S < A} (-1)^(|A| - |S| - 1) (q_S / n_{A - S} - mean of z over A - S),

which is the sum over all S of the centred residuals. For three attributes that is three additions a cell.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from sfumato._util.codec import storable
from sfumato._util.files import release_pages
from sfumato.errors import NotAnswerable, PlanError
from sfumato.operators import Block, Family, Identity, Residual
from sfumato.operators.base import FloatArray, LinearOperator, Numbers
from sfumato.strategies.attribute_sets import downward_closure, locate_sets, subset_columns
from sfumato.strategies.covariance import (
    Lift,
    apply_along_axis,
    check_covariance_size,
    component_powers,
    residual_agreement,
    residual_covariance,
    table_component,
    unit_powers,
)
from sfumato.strategies.strategy import Estimate, Known, Strategy

_BATCH_CELLS = 2**16  # 512 kB at a time stay in the cache of a core
_KEPT = 2**23  # values of a file that may stay in memory once read
_FEW = 2**14  # sets of one order: above, to number them takes longer than to look some up

Sets = NDArray[np.int32]
Columns = tuple[int, ...]
Batch = tuple[NDArray[np.intp], FloatArray]


@dataclass(frozen=True, slots=True)
class MeasuredResiduals:
    """The noisy integers of every order's residuals, one flat array each, and the total where it is public."""

    values: tuple[Numbers | None, ...]
    total: int | None


@dataclass(frozen=True, slots=True)
class _LowerTables:
    """All tables of one order that larger ones rest on, in one flat array."""

    sets: Sets
    starts: NDArray[np.int64]
    values: FloatArray

    def take(self, chosen: NDArray[np.intp], cells: int) -> FloatArray:
        """(c, cells) the chosen tables."""
        return self.values[self.starts[chosen][:, None] + np.arange(cells)]


def estimated_tables(residuals: Residuals, measured: MeasuredResiduals, sets: Sets) -> Iterator[Batch]:
    """(positions, (c, cells) estimated tables) of attribute sets of one order, ascending as far as sizes are alike."""
    count = len(residuals.names)
    below = downward_closure([sets], count)
    lower: list[_LowerTables] = []
    for level in below[: sets.shape[1]]:
        cells = np.array(residuals.shape, dtype=np.int64)[level].prod(axis=1, dtype=np.int64)
        starts = np.concatenate([[0], np.cumsum(cells)])
        found = _LowerTables(level, starts, np.empty(int(starts[-1])))
        for chosen, batch in _tables_from_lower(residuals, measured, level, lower):
            rows = batch.reshape(len(chosen), -1)
            found.values[starts[chosen][:, None] + np.arange(rows.shape[1])] = rows
        lower.append(found)
    for chosen, batch in _tables_from_lower(residuals, measured, sets, lower):
        yield chosen, batch.reshape(len(chosen), -1)


def _tables_from_lower(
    residuals: Residuals, measured: MeasuredResiduals, sets: Sets, lower: Sequence[_LowerTables]
) -> Iterator[Batch]:
    order, count = sets.shape[1], len(residuals.names)
    smaller = [c for c in subset_columns(order) if len(c) < order]
    places = {c: locate_sets(lower[len(c)].sets, sets[:, c], count) for c in smaller}
    read = _ResidualReader(residuals, measured, sets)
    sizes = np.array(residuals.shape, dtype=np.int64)[sets]
    for group in _group_by_shape(sizes):
        shape = tuple(sizes[group[0]].tolist())
        step = max(1, _BATCH_CELLS // math.prod(shape))
        for start in range(0, len(group), step):
            chosen = group[start : start + step]
            z = read.take(chosen, math.prod(shape)).reshape(len(chosen), *shape)
            below = {c: lower[len(c)].take(places[c][chosen], math.prod(shape[a] for a in c)) for c in smaller}
            _complete_margins(z, below)
            yield chosen, z
    release_pages(measured.values[order] if order < len(measured.values) else None)


def _group_by_shape(sizes: NDArray[np.int64]) -> list[NDArray[np.intp]]:
    """Positions of tables of equal shape, ascending."""
    if sizes.shape[1] == 0:
        return [np.arange(len(sizes))]
    _, group = np.unique(sizes, axis=0, return_inverse=True)
    order = np.argsort(group.reshape(-1), kind="stable")
    return np.split(order, np.flatnonzero(np.diff(group.reshape(-1)[order])) + 1)


class _ResidualReader:
    """The noisy residuals of sets, scaled; zero where nothing was measured."""

    def __init__(self, residuals: Residuals, measured: MeasuredResiduals, sets: Sets) -> None:
        order = sets.shape[1]
        self._residuals, self._sets = residuals, sets
        self._values = measured.values[order] if order < len(measured.values) else None
        self._total, self._read = measured.total, 0
        found = np.full(len(sets), -1)
        if order < len(residuals.sets):
            found = locate_sets(residuals.sets[order], sets, len(residuals.names))
        self._known = np.ones(len(sets), dtype=bool)
        family = residuals.families[order] if order < len(residuals.families) else None
        if family is not None:
            multiples = residuals.multiples[order]
            self._known = (found < 0) | (multiples[found] == 0)
            # where a set stands among those that are measured with noise
            noisy = np.cumsum(multiples > 0) - 1
            self._starts = family.starts[noisy[found]]
            self._scale = 1 / residuals.divisors[order][found]

    def take(self, chosen: NDArray[np.intp], cells: int) -> FloatArray:
        """(c, cells)"""
        if self._known[chosen].any():
            rows = [self._one(i, cells) for i in chosen.tolist()]
            return np.stack(rows)
        assert self._values is not None
        starts = self._starts[chosen]
        first, last = int(starts[0]), int(starts[-1])
        if last - first == (len(starts) - 1) * cells and np.all(np.diff(starts) == cells):
            values = np.asarray(self._values[first : last + cells]).reshape(len(chosen), cells)
        else:
            values = np.asarray(self._values)[starts[:, None] + np.arange(cells)]
        out = values * self._scale[chosen, None]
        self._read += out.size
        if self._read > _KEPT:
            release_pages(self._values)
            self._read = 0
        return out

    def _one(self, i: int, cells: int) -> FloatArray:
        if self._known[i]:
            axes = tuple(self._sets[i].tolist())
            return self._residuals.known_component(axes, self._total).reshape(cells)
        assert self._values is not None
        start = int(self._starts[i])
        return np.asarray(self._values[start : start + cells]) * self._scale[i]


def _complete_margins(z: FloatArray, below: dict[Columns, FloatArray]) -> None:
    """Bring the margins of residuals z (c, n_1, ..., n_k) to those of the smaller tables, in place."""
    order, shape = z.ndim - 1, z.shape[1:]
    axes = range(order)
    margins: dict[Columns, FloatArray] = {tuple(axes): z}
    changes: dict[Columns, FloatArray] = {}
    for columns in sorted(below, key=len, reverse=True):
        rest = math.prod(shape[a] for a in axes if a not in columns)
        held = next(c for c in margins if len(c) == len(columns) + 1 and set(columns) < set(c))
        axis = next(i for i, a in enumerate(held) if a not in columns)
        margins[columns] = _sum_along_axis(margins[held], axis + 1)
        sign = -1.0 if (order - len(columns)) % 2 == 0 else 1.0
        table = below[columns].reshape(margins[columns].shape)
        changes[columns] = (table - margins[columns]) * (sign / rest)
    for columns in sorted(changes, key=len):
        # small changes ride on larger ones, so that every cell is touched once per attribute
        if len(columns) == order - 1:
            target, names = z, tuple(axes)
        else:
            names = next(c for c in changes if len(c) == len(columns) + 1 and set(columns) < set(c))
            target = changes[names]
        target += changes[columns].reshape(len(z), *(shape[a] if a in columns else 1 for a in names))


def _sum_along_axis(table: FloatArray, axis: int) -> FloatArray:
    if axis == table.ndim - 1:
        # short rows are summed faster by a product with ones
        return table @ np.ones(table.shape[-1])
    return table.sum(axis=axis)


IntArray = NDArray[np.int64]


@storable
@dataclass(frozen=True, eq=False)
class Residuals(Strategy):
    """Residual measurements of attribute sets with integer multiples.

    sets: per order k the positions (m_k, k) of the attributes in `names`, in lexicographic order.
    multiples: per order (m_k,); 0 marks what is known without being measured: the public total, and what
    the `known` tables say.
    """

    names: tuple[str, ...]
    shape: tuple[int, ...]
    sets: tuple[Sets, ...]
    multiples: tuple[IntArray, ...]
    contrasts: tuple[LinearOperator | None, ...] = ()
    known: tuple[Known, ...] = ()

    def __post_init__(self) -> None:
        if self.contrasts and len(self.contrasts) != len(self.names):
            raise PlanError("residuals need one contrast matrix, or None, per attribute")
        for name, n, contrast in zip(self.names, self.shape, self.contrasts, strict=False):
            if contrast is not None and contrast.shape[1] != n:
                raise PlanError(f"{name} has {n} cells; its contrasts have {contrast.shape[1]} columns")
        for k, (sets, multiples) in enumerate(zip(self.sets, self.multiples, strict=True)):
            if sets.shape != (len(multiples), k) or (multiples.size and int(multiples.min()) < 0):
                raise PlanError("residuals need one multiple, not negative, for every set of every order")
        for table in self.known:
            if table.counts.shape != tuple(self.shape[a] for a in table.axes):
                raise PlanError("a known table is shaped by its attributes")

    @functools.cached_property
    def lifts(self) -> tuple[Lift | None, ...]:
        """The ways back of the attributes with contrasts of their own."""
        given = self.contrasts or (None,) * len(self.names)
        return tuple(None if c is None else Lift.of(c) for c in given)

    @functools.cached_property
    def _factors(self) -> tuple[LinearOperator, ...]:
        """What is measured along an attribute of a set."""
        given = self.contrasts or (None,) * len(self.names)
        return tuple(Residual(n) if c is None else c for n, c in zip(self.shape, given, strict=True))

    @functools.cached_property
    def families(self) -> tuple[Family | None, ...]:
        """Per order what is measured with noise."""
        out: list[Family | None] = []
        for sets, multiples in zip(self.sets, self.multiples, strict=True):
            noisy = multiples > 0
            family = Family(self.names, self._factors, sets[noisy], multiples[noisy]) if noisy.any() else None
            out.append(family)
        return tuple(out)

    @property
    def blocks(self) -> tuple[Family, ...]:
        return tuple(f for f in self.families if f is not None)

    @functools.cached_property
    def divisors(self) -> tuple[FloatArray, ...]:
        """Per order (m_k,): what a set's noise is divided by; infinite where there is none."""
        lifts = zip(self.lifts, self.shape, strict=True)
        own = np.array([float(n) if lift is None else lift.scale for lift, n in lifts])
        out: list[FloatArray] = []
        for sets, multiples in zip(self.sets, self.multiples, strict=True):
            units = multiples * own[sets].prod(axis=1)
            out.append(np.where(multiples > 0, units, np.inf))
        return tuple(out)

    @property
    def summary(self) -> str:
        kind = "residuals" if all(lift is None for lift in self.lifts) else "tilted residuals"
        return f"{kind} of {sum(map(len, self.blocks)):,} attribute sets in closed form"

    # -- which sets a query needs, and what their noise does to it -----------------------------------------

    @functools.cached_property
    def _places(self) -> dict[str, int]:
        return {a: i for i, a in enumerate(self.names)}

    @functools.cached_property
    def _numbers(self) -> tuple[dict[tuple[int, ...], int] | None, ...]:
        """Per order where each set stands; None where they are many, of which few are looked for by themselves."""
        return tuple({tuple(s): i for i, s in enumerate(k.tolist())} if len(k) <= _FEW else None for k in self.sets)

    def _find(self, axes: Sequence[int]) -> int:
        """Where a set stands among those of its order, or -1."""
        if len(axes) >= len(self.sets):
            return -1
        known = self._numbers[len(axes)]
        if known is not None:
            return known.get(tuple(sorted(axes)), -1)
        wanted = np.array([sorted(axes)], dtype=np.int32).reshape(1, len(axes))
        return int(locate_sets(self.sets[len(axes)], wanted, len(self.names))[0])

    def check(self, query: Block) -> None:
        for _ in self._needed(query, 2):
            pass

    def _needed(self, query: Block, power: int) -> Iterator[tuple[float, tuple[FloatArray, ...]]]:
        """(divisor of a set, per query factor the power sums of its component there), zero components left out."""
        places = self._places
        unknown = [a for a in query.attributes if a not in places]
        if unknown:
            raise NotAnswerable(f"nothing about {', '.join(unknown)} was measured")
        groups = [tuple(places[a] for a in g) for g in query.groups]
        parts = [
            component_powers(f, tuple(self.shape[i] for i in g), power, tuple(self.lifts[i] for i in g))
            for g, f in zip(groups, query.factors, strict=True)
        ]
        for choice in itertools.product(*parts):
            sums = tuple(p[t] for p, t in zip(parts, choice, strict=True))
            if any(not s.any() for s in sums):
                continue
            axes = [g[i] for g, t in zip(groups, choice, strict=True) for i in t]
            i = self._find(axes)
            if i < 0:
                raise NotAnswerable(
                    f"the joint table of {', '.join(sorted(self.names[a] for a in axes))} was not measured; "
                    "what was measured holds only tables over fewer of these attributes"
                )
            yield float(self.divisors[len(axes)][i]), sums

    def row_powers(self, query: Block, power: int) -> FloatArray:
        count = len(query.factors)
        out = np.zeros((1,) * count)
        for divisor, sums in self._needed(query, power):
            scale = divisor ** -float(power)
            placed = [s.reshape(tuple(-1 if j == k else 1 for k in range(count))) for j, s in enumerate(sums)]
            out = out + scale * reduce(np.multiply, placed, np.ones((1,) * count))
        return out

    def set_variance(self, axes: Sequence[int]) -> float:
        """Variance of the noise of a set at unit variance of the law; 0 where there is none."""
        i = self._find(axes)
        return 0.0 if i < 0 else float(self.divisors[len(axes)][i]) ** -2.0

    def covariance(self, first: Block, second: Block) -> FloatArray:
        check_covariance_size(first.rows, second.rows)
        return residual_covariance(self, first, second)

    def table_covariance(self, first: Block, second: Block) -> FloatArray | None:
        tilted = {a for a, lift in zip(self.names, self.lifts, strict=True) if lift is not None}
        alike = tilted.isdisjoint(first.attributes + second.attributes)
        return residual_agreement(self, first, second) if alike else None

    def _is_plain(self, family: Family) -> bool:
        """Whether the blocks of a family are marginal tables, of attributes that have no tilt."""
        used = np.unique(family.sets).tolist()
        return family.names == self.names and all(
            self.lifts[i] is None and isinstance(family.factors[i], Identity) for i in used
        )

    def family_powers(self, family: Family, power: int) -> FloatArray | None:
        if not self._is_plain(family):
            return None
        out, missing = self._table_powers(family, power)
        if missing.any():
            raise NotAnswerable("some of these tables hold attributes together that were not measured together")
        return out

    def _table_powers(self, family: Family, power: int) -> tuple[FloatArray, NDArray[np.bool_]]:
        """(sums of powers of every table, which of them rest on sets that were not measured)."""
        own = [unit_powers(n, None, power) for n in self.shape]
        mean, contrast = (np.array([float(pair[k][0]) for pair in own]) for k in (0, 1))
        out, missing = np.zeros(len(family)), np.zeros(len(family), dtype=bool)
        for columns in subset_columns(family.order):
            inside = family.sets[:, columns]
            outside = family.sets[:, [c for c in range(family.order) if c not in columns]]
            effect = contrast[inside].prod(axis=1) * mean[outside].prod(axis=1)
            k = len(columns)
            found = np.full(len(family), -1)
            if k < len(self.sets):
                found = locate_sets(self.sets[k], inside, len(self.names))
            missing |= (found < 0) & (effect > 0)
            if k < len(self.sets) and len(self.sets[k]):
                out += np.where(found < 0, 0.0, effect * self.divisors[k][found] ** -float(power))
        return out, missing

    # -- the way back -------------------------------------------------------------------------------------

    def estimate(self, values: Sequence[Numbers], total: int | None) -> Estimate:
        given = iter(values)
        return MeasuredResiduals(tuple(None if f is None else next(given) for f in self.families), total)

    def component(self, estimate: MeasuredResiduals, axes: tuple[int, ...]) -> FloatArray:
        """The part of the table that varies along exactly these attributes, shaped by them."""
        k, i = len(axes), self._find(axes)
        family = self.families[k] if i >= 0 else None
        if i < 0 or self.multiples[k][i] == 0:
            return self.known_component(axes, estimate.total)
        assert family is not None
        place = int(np.count_nonzero(self.multiples[k][:i]))
        start, stop = family.starts[place : place + 2].tolist()
        values = estimate.values[k]
        assert values is not None
        table = np.asarray(values[start:stop], dtype=np.float64)
        table = table.reshape(tuple(self._factors[a].shape[0] for a in axes)) / self.divisors[k][i]
        for axis, a in enumerate(axes):
            lift = self.lifts[a]
            # the noise may leave the space of contrasts; what was measured lies in it
            table = (
                table_component(table, axis, None, contrast=True)
                if lift is None
                else apply_along_axis(table, axis, lift.spread)
            )
        return table

    def known_component(self, axes: tuple[int, ...], total: int | None) -> FloatArray:
        """What is known without measuring: from a public table, or the total; zero for sets without contrasts."""
        if not axes and not self.known:
            return np.array(float(total or 0))
        for table in self.known:
            if set(axes) <= set(table.axes):
                out = table.counts.sum(axis=tuple(j for j, a in enumerate(table.axes) if a not in axes))
                for axis, a in enumerate(axes):
                    lift = self.lifts[a]
                    if lift is None:
                        out = table_component(out, axis, None, contrast=True)
                    else:
                        out = out - out.sum(axis=axis, keepdims=True) * _reshape_along_axis(lift.tilt, axis, len(axes))
                return out
        return np.zeros(tuple(self.shape[a] for a in axes))

    def table(self, estimate: MeasuredResiduals, axes: tuple[int, ...]) -> FloatArray:
        """The estimated table over attributes (ascending) from the residuals of all their subsets."""
        out = np.zeros(tuple(self.shape[a] for a in axes))
        for columns in subset_columns(len(axes)):
            subset = tuple(axes[c] for c in columns)
            part = self.component(estimate, subset)
            part = part.reshape(tuple(self.shape[a] if c in columns else 1 for c, a in enumerate(axes)))
            for c, a in enumerate(axes):
                lift = self.lifts[a]
                if c not in columns:
                    part = part / self.shape[a] if lift is None else part * _reshape_along_axis(lift.tilt, c, len(axes))
            out += part
        return out

    def answer(self, estimate: Estimate, query: Block) -> FloatArray:
        self.check(query)
        given = [self._places[a] for a in query.attributes]
        axes = tuple(sorted(given))
        table = self.table(estimate, axes).transpose([axes.index(a) for a in given])
        return np.asarray(query.operator.matvec(np.ascontiguousarray(table).reshape(-1)), dtype=np.float64)

    def answer_family(self, estimate: Estimate, family: Family) -> Iterator[tuple[NDArray[np.intp], FloatArray]]:
        self.family_powers(family, 2)  # refuses what was not measured
        if self._is_plain(family):
            yield from estimated_tables(self, estimate, family.sets)
        else:
            yield from super().answer_family(estimate, family)


def _reshape_along_axis(values: FloatArray, axis: int, axes: int) -> FloatArray:
    return values.reshape(tuple(-1 if k == axis else 1 for k in range(axes)))


@storable
@dataclass(frozen=True, eq=False)
class PairResiduals(Residuals):
    """Residuals of attributes, pairs and some triples. Of other questions about these they answer the part they hold.

    That part is no estimate of the whole, so its standard error is infinite; models make one of what was measured.
    """

    def check(self, query: Block) -> None:
        places = {a: i for i, a in enumerate(self.names)}
        measured = set(self.sets[1].reshape(-1).tolist()) if len(self.sets) > 1 else set[int]()
        unknown = [a for a in query.attributes if a not in places]
        unknown += [a for a, i in places.items() if a in query.attributes and self.shape[i] > 1 and i not in measured]
        if unknown:
            raise NotAnswerable(f"nothing about {', '.join(unknown)} was measured")

    def row_powers(self, query: Block, power: int) -> FloatArray:
        self.check(query)
        try:
            return super().row_powers(query, power)
        except NotAnswerable:
            return np.full((1,) * len(query.factors), math.inf)

    def family_powers(self, family: Family, power: int) -> FloatArray | None:
        if not self._is_plain(family):
            return None
        out, missing = self._table_powers(family, power)
        out[missing] = math.inf
        return out

    def source(self, query: Block) -> Strategy:
        super().check(query)
        return self

    def table_covariance(self, first: Block, second: Block) -> FloatArray | None:
        for query in (first, second):
            super().check(query)
        return super().table_covariance(first, second)
