"""Residual marginals: one orthogonal measurement per set of attributes, in closed form.

For a set S the integers (⊗_{i in S} (n_i I - J)) v_S are measured, v_S the marginal table, times a
multiple a_S that says how much noise S deserves. All tables whose subsets are measured follow by
telescoping sums, consistent by construction. [XZK23]
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from sfumato.codec import storable
from sfumato.errors import NotAnswerable
from sfumato.operators import Block, Identity, Residual, Scaled
from sfumato.operators.base import FloatArray, LinearOperator, Numbers
from sfumato.strategies.base import Estimate, Strategy

__all__ = ["Residuals", "closure", "component_powers"]

Names = tuple[str, ...]


def closure(sets: Iterable[Names], order: Sequence[str]) -> tuple[Names, ...]:
    """All subsets of the given sets, by size and then in the domain's order."""
    found = {tuple(sorted(s, key=order.index)) for given in sets for s in _subsets(given)}
    return tuple(sorted(found, key=lambda s: (len(s), [order.index(a) for a in s])))


def _subsets(names: Names) -> Iterator[Names]:
    return itertools.chain.from_iterable(itertools.combinations(names, r) for r in range(len(names) + 1))


def component_powers(factor: LinearOperator, sizes: Sequence[int], power: int) -> dict[tuple[int, ...], FloatArray]:
    """For every subset T of a factor's attributes: sums of |entry|^power (2 or 4) of each row's component on T.

    The component on T of a row w is (⊗_T C ⊗_rest 1ᵀ/n) w, over the cells of T. (rows,) or (1,) arrays.
    """
    if isinstance(factor, Identity):
        # a unit vector: (1 - 1/n)^p + (n - 1) / n^p on the contrasts, 1/n^p on the mean
        own = [(float(n) ** -power, (1 - 1 / n) ** power + (n - 1) * float(n) ** -power) for n in sizes]
        return {
            t: np.array([math.prod(c if i in t else m for i, (m, c) in enumerate(own))])
            for t in _index_subsets(len(sizes))
        }
    if len(sizes) == 1:
        n = sizes[0]
        mean = factor.row_sums(1) / n
        second = factor.row_sums(2)
        contrast = second - n * mean**2
        if power == 4:
            third, fourth = factor.row_sums(3), factor.row_sums(4)
            contrast = fourth - 4 * mean * third + 6 * mean**2 * second - 3 * n * mean**4
        noise = 1e-13 * (second if power == 2 else second**2)
        return {(): mean**power, (0,): np.where(contrast <= noise, 0.0, contrast)}
    out = {t: np.empty(factor.shape[0]) for t in _index_subsets(len(sizes))}
    for a, b in factor.row_chunks():
        table = factor.rows(a, b).reshape(b - a, *sizes)
        for t in out:
            part = table
            for axis in range(len(sizes)):
                mean = part.mean(axis=axis + 1, keepdims=True)
                part = part - mean if axis in t else mean
            flat = part.reshape(b - a, -1)
            powers = (np.abs(flat) ** power).sum(axis=1)
            powers[np.abs(flat).max(axis=1) <= 1e-12 * np.abs(table).reshape(b - a, -1).max(axis=1)] = 0.0
            out[t][a:b] = powers
    return out


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
        sizes = self._sizes
        return tuple(
            Block(((), *((a,) for a in s)), (Scaled(Identity(1), m), *(Residual(sizes[a]) for a in s)))
            for s, m in self.measured_sets
        )

    @property
    def max_abs(self) -> int:
        sizes = self._sizes
        return max(m * math.prod(sizes[a] for a in s) for s, m in self.measured_sets)

    @property
    def summary(self) -> str:
        return f"residuals of {len(self.measured_sets):,} attribute sets in closed form"

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
            component_powers(f, tuple(sizes[a] for a in g), power)
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
        count, sizes = len(query.factors), self._sizes
        out = np.zeros((1,) * count)
        for i, sums in self._needed(query, power):
            multiple = self.multiples[i]
            if multiple == 0:
                continue
            scale = (multiple * math.prod(float(sizes[a]) for a in self.sets[i])) ** -float(power)
            placed = [s.reshape(tuple(-1 if j == k else 1 for k in range(count))) for j, s in enumerate(sums)]
            out = out + scale * reduce(np.multiply, placed, np.ones((1,) * count))
        return out

    def estimate(self, values: Sequence[Numbers], total: int | None) -> Estimate:
        sizes = self._sizes
        out: list[FloatArray] = []
        noisy = iter(values)
        for s, multiple in zip(self.sets, self.multiples, strict=True):
            if multiple == 0:
                out.append(np.array(float(total or 0)))
                continue
            shape = tuple(sizes[a] for a in s)
            table = np.asarray(next(noisy), dtype=np.float64).reshape(shape) / (multiple * math.prod(map(float, shape)))
            for axis in range(len(s)):
                # the noise may leave the space of contrasts; what was measured lies in it
                table = table - table.mean(axis=axis, keepdims=True)
            out.append(table)
        return tuple(out)

    def table(self, estimate: Estimate, names: Names) -> FloatArray:
        """The estimated table over `names` from the residuals of the measured subsets."""
        index, sizes = self._index(), self._sizes
        out = np.zeros(tuple(sizes[a] for a in names))
        for subset in _subsets(names):
            i = index.get(frozenset(subset))
            if i is None:
                continue
            stored = self.sets[i]
            order = [stored.index(a) for a in subset]
            part = estimate[i].transpose(order) if order else estimate[i]
            part = part.reshape(tuple(sizes[a] if a in subset else 1 for a in names))
            out += part / math.prod(sizes[a] for a in names if a not in subset)
        return out

    def answer(self, estimate: Estimate, query: Block) -> FloatArray:
        self.check(query)
        table = self.table(estimate, query.attributes).reshape(-1)
        return np.asarray(query.operator.matvec(table), dtype=np.float64)
