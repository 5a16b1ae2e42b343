"""Residual marginals: one orthogonal measurement per set of attributes, in closed form.

For a set S the integers (⊗_{i in S} (n_i I - J)) v_S are measured, v_S the marginal table, times a
multiple a_S that says how much noise S deserves. All tables whose subsets are measured follow by
telescoping sums, consistent by construction. [XZK23]

An attribute may have integer contrasts B of its own instead of n I - J: any n - 1 rows that with the total
determine its cells. With [1ᵀ; B]^-1 = [t | P] every table is exactly sum_S (⊗_{i in S} P_i) y_S ⊗ t_rest, so
whatever rounding made of B, its tilt t is what the integers say.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from sfumato.codec import storable
from sfumato.errors import NotAnswerable, PlanError
from sfumato.operators import Block, Identity, Residual, Scaled
from sfumato.operators.base import FloatArray, LinearOperator, Numbers
from sfumato.strategies.base import Estimate, Strategy

__all__ = ["Lift", "Residuals", "closure", "component_powers"]

_MAX_CONDITION = 1e8
_SQUARED_ZERO = 1e-26

Names = tuple[str, ...]


def closure(sets: Iterable[Names], order: Sequence[str]) -> tuple[Names, ...]:
    """All subsets of the given sets, by size and then in the domain's order."""
    found = {tuple(sorted(s, key=order.index)) for given in sets for s in _subsets(given)}
    return tuple(sorted(found, key=lambda s: (len(s), [order.index(a) for a in s])))


def _subsets(names: Names) -> Iterator[Names]:
    return itertools.chain.from_iterable(itertools.combinations(names, r) for r in range(len(names) + 1))


@dataclass(frozen=True, slots=True)
class Lift:
    """The way back from the integer contrasts B of one attribute: [1ᵀ; B]^-1 = [t | P / scale].

    `scale` is the length of B's longest column, so that the contrasts B / scale have unit price. t: (n,);
    P: (n, n - 1). Without a lift the contrasts are n I - J, t is 1/n and P the centring, scale n.
    """

    tilt: FloatArray
    spread: FloatArray
    scale: float

    @classmethod
    def of(cls, contrast: LinearOperator) -> Lift:
        """Raises PlanError where the contrasts and the total do not determine the cells."""
        rows, n = contrast.shape
        if rows != n - 1 or not contrast.integral:
            raise PlanError(f"{n} cells need {n - 1} integer contrasts, not {contrast!r}")
        dense = np.asarray(contrast.dense(), dtype=np.float64)
        scale = math.sqrt(float((dense**2).sum(axis=0).max()))
        # the row of ones at the scale of the rest
        square = np.concatenate([np.ones((1, n)), dense / max(scale, 1.0)])
        if np.linalg.cond(square) > _MAX_CONDITION:
            raise PlanError("the contrasts and the total do not determine the cells well enough")
        inverse = np.asarray(np.linalg.inv(square), dtype=np.float64)
        return cls(inverse[:, 0], inverse[:, 1:], max(scale, 1.0))


def component_powers(
    factor: LinearOperator, sizes: Sequence[int], power: int, lifts: Sequence[Lift | None] | None = None
) -> dict[tuple[int, ...], FloatArray]:
    """For every subset T of a factor's attributes: sums of |entry|^power (2 or 4) of each row's component on T.

    The component on T of a row w is w (⊗_T P ⊗_rest t), over the contrasts of T. (rows,) or (1,) arrays.
    """
    lifts = (None,) * len(sizes) if lifts is None else lifts
    if isinstance(factor, Identity):
        own = [_unit_powers(n, lift, power) for n, lift in zip(sizes, lifts, strict=True)]
        alike = all(len(v) == 1 for pair in own for v in pair)
        out: dict[tuple[int, ...], FloatArray] = {}
        for t in _index_subsets(len(sizes)):
            chosen = [pair[i in t] for i, pair in enumerate(own)]
            if not alike:
                chosen = [np.broadcast_to(v, (n,)) for v, n in zip(chosen, sizes, strict=True)]
            out[t] = reduce(np.multiply.outer, chosen, np.ones(())).reshape(-1)
        return out
    if len(sizes) == 1:
        return _single_powers(factor, sizes[0], power, lifts[0])
    return _joint_powers(factor, sizes, power, lifts)


def _unit_powers(n: int, lift: Lift | None, power: int) -> tuple[FloatArray, FloatArray]:
    """Of every cell's unit vector: the power of its mean, and of its contrasts."""
    if lift is not None:
        return np.abs(lift.tilt) ** power, (np.abs(lift.spread) ** power).sum(axis=1)
    mean = float(n) ** -power
    return np.array([mean]), np.array([(1 - 1 / n) ** power + (n - 1) * mean])


def _single_powers(factor: LinearOperator, n: int, power: int, lift: Lift | None) -> dict[tuple[int, ...], FloatArray]:
    mean = factor.row_sums(1) / n
    second = factor.row_sums(2)
    variation = second - n * mean**2
    if lift is not None:
        tilted = np.asarray(factor.matvec(lift.tilt), dtype=np.float64)
        tilted[tilted**2 <= _SQUARED_ZERO * second * float(lift.tilt @ lift.tilt)] = 0.0
        contrast = np.empty(len(second))
        if power == 2:
            contrast = np.maximum(factor.row_forms(lift.spread @ lift.spread.T), 0.0)
        else:
            for a, b in factor.row_chunks():
                contrast[a:b] = ((factor.rows(a, b) @ lift.spread) ** power).sum(axis=1)
        # a row has no contrasts where it is constant, whatever the tilt
        return {(): tilted**power, (0,): np.where(variation <= 1e-13 * second, 0.0, contrast)}
    contrast = variation
    if power == 4:
        third, fourth = factor.row_sums(3), factor.row_sums(4)
        contrast = fourth - 4 * mean * third + 6 * mean**2 * second - 3 * n * mean**4
    noise = 1e-13 * (second if power == 2 else second**2)
    return {(): mean**power, (0,): np.where(contrast <= noise, 0.0, contrast)}


def _joint_powers(
    factor: LinearOperator, sizes: Sequence[int], power: int, lifts: Sequence[Lift | None]
) -> dict[tuple[int, ...], FloatArray]:
    out = {t: np.empty(factor.shape[0]) for t in _index_subsets(len(sizes))}
    for a, b in factor.row_chunks():
        table = factor.rows(a, b).reshape(b - a, *sizes)
        largest = np.abs(table).reshape(b - a, -1).max(axis=1)
        for t in out:
            part = table
            for axis, lift in enumerate(lifts):
                part = _component(part, axis + 1, lift, contrast=axis in t)
            flat = np.abs(part.reshape(b - a, -1))
            powers = (flat**power).sum(axis=1)
            powers[flat.max(axis=1) <= 1e-12 * largest] = 0.0
            out[t][a:b] = powers
    return out


def _component(table: FloatArray, axis: int, lift: Lift | None, *, contrast: bool) -> FloatArray:
    if lift is None:
        mean = table.mean(axis=axis, keepdims=True)
        return table - mean if contrast else mean
    return _along(table, axis, lift.spread.T if contrast else lift.tilt[None, :])


def _along(table: FloatArray, axis: int, matrix: FloatArray) -> FloatArray:
    """A matrix applied along one axis."""
    return np.moveaxis(np.tensordot(matrix, table, axes=(1, axis)), 0, axis)


def _index_subsets(count: int) -> Iterator[tuple[int, ...]]:
    return itertools.chain.from_iterable(itertools.combinations(range(count), r) for r in range(count + 1))


@storable
@dataclass(frozen=True, eq=False)
class Residuals(Strategy):
    """Residual measurements of `sets` with integer `multiples`; a multiple of 0 marks the public total."""

    names: Names
    shape: tuple[int, ...]
    sets: tuple[Names, ...]
    multiples: tuple[int, ...]
    contrasts: tuple[LinearOperator | None, ...] = ()

    def __post_init__(self) -> None:
        if self.contrasts and len(self.contrasts) != len(self.names):
            raise PlanError("residuals need one contrast matrix, or None, per attribute")
        for name, n, contrast in zip(self.names, self.shape, self.contrasts, strict=False):
            if contrast is not None and contrast.shape[1] != n:
                raise PlanError(f"{name} has {n} cells; its contrasts have {contrast.shape[1]} columns")

    @functools.cached_property
    def lifts(self) -> dict[str, Lift]:
        """The ways back of the attributes with contrasts of their own."""
        pairs = zip(self.names, self.contrasts, strict=False)
        return {a: Lift.of(c) for a, c in pairs if c is not None}

    @functools.cached_property
    def _factors(self) -> dict[str, LinearOperator]:
        """What is measured along an attribute of a set."""
        given = self.contrasts or (None,) * len(self.names)
        return {a: Residual(n) if c is None else c for a, n, c in zip(self.names, self.shape, given, strict=True)}

    def _divisor(self, i: int) -> float:
        """What one unit of the noise on a set's values is divided by."""
        lifts, sizes = self.lifts, self._sizes
        own = (lifts[a].scale if a in lifts else float(sizes[a]) for a in self.sets[i])
        return self.multiples[i] * math.prod(own)

    @property
    def _sizes(self) -> dict[str, int]:
        return dict(zip(self.names, self.shape, strict=True))

    def _index(self) -> dict[frozenset[str], int]:
        return {frozenset(s): i for i, s in enumerate(self.sets)}

    @property
    def measured_sets(self) -> tuple[tuple[Names, int], ...]:
        """(set, multiple) of what is measured with noise, in the order of the values."""
        return tuple((s, a) for s, a in zip(self.sets, self.multiples, strict=True) if a > 0)

    @property
    def blocks(self) -> tuple[Block, ...]:
        factors = self._factors
        return tuple(
            Block(((), *((a,) for a in s)), (Scaled(Identity(1), m), *(factors[a] for a in s)))
            for s, m in self.measured_sets
        )

    @property
    def max_abs(self) -> int:
        tops = {a: math.ceil(f.max_abs) for a, f in self._factors.items()}
        return max(m * math.prod(tops[a] for a in s) for s, m in self.measured_sets)

    @property
    def summary(self) -> str:
        kind = "tilted residuals" if self.lifts else "residuals"
        return f"{kind} of {len(self.measured_sets):,} attribute sets in closed form"

    def check(self, query: Block) -> None:
        for _ in self._needed(query, 2):
            pass

    def _needed(self, query: Block, power: int) -> Iterator[tuple[int, tuple[FloatArray, ...]]]:
        """(index of a set, per query factor the power sums of its component there), zero components left out."""
        index, sizes = self._index(), self._sizes
        unknown = [a for a in query.attributes if a not in sizes]
        if unknown:
            raise NotAnswerable(f"nothing about {', '.join(unknown)} was measured")
        parts = [
            component_powers(f, tuple(sizes[a] for a in g), power, tuple(self.lifts.get(a) for a in g))
            for g, f in zip(query.groups, query.factors, strict=True)
        ]
        for choice in itertools.product(*parts):
            sums = tuple(p[t] for p, t in zip(parts, choice, strict=True))
            if any(not s.any() for s in sums):
                continue
            names = frozenset(g[i] for g, t in zip(query.groups, choice, strict=True) for i in t)
            if names not in index:
                raise NotAnswerable(
                    f"the joint table of {', '.join(sorted(names))} was not measured; "
                    "what was measured holds only tables over fewer of these attributes"
                )
            yield index[names], sums

    def row_powers(self, query: Block, power: int) -> FloatArray:
        count = len(query.factors)
        out = np.zeros((1,) * count)
        for i, sums in self._needed(query, power):
            if self.multiples[i] == 0:
                continue
            scale = self._divisor(i) ** -float(power)
            placed = [s.reshape(tuple(-1 if j == k else 1 for k in range(count))) for j, s in enumerate(sums)]
            out = out + scale * reduce(np.multiply, placed, np.ones((1,) * count))
        return out

    def estimate(self, values: Sequence[Numbers], total: int | None) -> Estimate:
        sizes, lifts = self._sizes, self.lifts
        out: list[FloatArray] = []
        noisy = iter(values)
        for i, (s, multiple) in enumerate(zip(self.sets, self.multiples, strict=True)):
            if multiple == 0:
                out.append(np.array(float(total or 0)))
                continue
            shape = tuple(sizes[a] - (a in lifts) for a in s)
            table = np.asarray(next(noisy), dtype=np.float64).reshape(shape) / self._divisor(i)
            for axis, a in enumerate(s):
                if a in lifts:
                    table = _along(table, axis, lifts[a].spread)
                else:
                    # the noise may leave the space of contrasts; what was measured lies in it
                    table = table - table.mean(axis=axis, keepdims=True)
            out.append(table)
        return tuple(out)

    def table(self, estimate: Estimate, names: Names) -> FloatArray:
        """The estimated table over `names` from the residuals of the measured subsets."""
        index, sizes, lifts = self._index(), self._sizes, self.lifts
        out = np.zeros(tuple(sizes[a] for a in names))
        for subset in _subsets(names):
            i = index.get(frozenset(subset))
            if i is None:
                continue
            stored = self.sets[i]
            order = [stored.index(a) for a in subset]
            part = estimate[i].transpose(order) if order else estimate[i]
            part = part.reshape(tuple(sizes[a] if a in subset else 1 for a in names))
            for axis, a in enumerate(names):
                if a in lifts and a not in subset:
                    part = part * lifts[a].tilt.reshape(tuple(-1 if k == axis else 1 for k in range(len(names))))
            out += part / math.prod(sizes[a] for a in names if a not in subset and a not in lifts)
        return out

    def answer(self, estimate: Estimate, query: Block) -> FloatArray:
        self.check(query)
        table = self.table(estimate, query.attributes).reshape(-1)
        return np.asarray(query.operator.matvec(table), dtype=np.float64)
