"""A strategy as arrays: which factor stands where, without an object per block."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.designs.pricing.exact import Weights, products
from sfumato.errors import PlanError
from sfumato.operators import Block, Family, LinearOperator, Scaled
from sfumato.privacy.terms import Group, joint_groups

__all__ = ["Bundle", "Group", "Inside", "Slot", "Terms"]

Inside = tuple[tuple[Group, LinearOperator], ...]


@dataclass(frozen=True, slots=True)
class Slot:
    """What some blocks have on one joint group of attributes: a factor, or several over its parts."""

    group: int
    inside: Inside

    @property
    def factors(self) -> tuple[LinearOperator, ...]:
        """The factors by themselves."""
        return tuple(f for _, f in self.inside)

    def covers(self, group: Group) -> bool:
        """Whether it is one exchangeable factor over the whole group, so that its cells are all alike."""
        return len(self.inside) == 1 and len(self.inside[0][0]) == len(group) and self.inside[0][1].exchangeable


@dataclass(frozen=True, slots=True)
class Bundle:
    """Blocks of equally many slots: sets (count, order) of slots, and weights (count,)."""

    sets: NDArray[np.intp]
    weights: Weights


@dataclass(frozen=True, slots=True)
class Terms:
    """All blocks of a strategy, for one power of the sensitivity.

    groups: the attributes, merged where some factor joins them, as a partition. The sum of |entries|^power
    of a block is its weight times what its slots have.
    """

    power: int
    groups: tuple[Group, ...]
    cells: tuple[int, ...]
    slots: tuple[Slot, ...]
    bundles: tuple[Bundle, ...]

    @classmethod
    def of(cls, blocks: Sequence[Block | Family], sizes: Mapping[str, int], power: int) -> Terms:
        """Raises PlanError for a strategy that is not integral, WorkloadError for factors that do not fit."""
        for block in blocks:
            block.check(sizes)
            if not all(f.integral for f in _used(block)):
                raise PlanError("only integer strategies are measured; quantise it first")
        groups = joint_groups(blocks)
        builder = _Builder({a: i for i, g in enumerate(groups) for a in g}, power)
        for block in blocks:
            if isinstance(block, Family):
                builder.add_family(block)
            else:
                builder.add(block)
        cells = tuple(math.prod(sizes[a] for a in g) for g in groups)
        return cls(power, groups, cells, tuple(builder.slots), builder.bundles())

    def __len__(self) -> int:
        return sum(len(b.weights) for b in self.bundles)

    @property
    def binary(self) -> bool:
        """Whether all entries are 0 or 1, but for the multiples."""
        return all(f.binary for s in self.slots for f in s.factors)

    @property
    def nonnegative(self) -> bool:
        """Whether no entry is negative."""
        return all(f.nonnegative for s in self.slots for f in s.factors)

    def of_group(self, group: int) -> list[int]:
        """The slots of a group."""
        return [i for i, s in enumerate(self.slots) if s.group == group]

    def kinds(self, group: int) -> NDArray[np.intp]:
        """(blocks,) which of the group's slots every block has; their number where it has none."""
        own = self.of_group(group)
        place = np.full(len(self.slots) + 1, -1, dtype=np.intp)
        place[own] = np.arange(len(own))
        out: list[NDArray[np.intp]] = []
        for bundle in self.bundles:
            # a block has at most one slot in a group
            found = place[bundle.sets].max(axis=1, initial=-1)
            out.append(np.where(found < 0, len(own), found))
        return np.concatenate([*out, np.empty(0, dtype=np.intp)])

    def dot(self, values: Sequence[int]) -> int:
        """The sum over blocks of weight times the product of a value for each of its slots."""
        return sum(b.weights.dot(products(values, b.sets)) for b in self.bundles)

    def scaled(self, values: Sequence[int]) -> list[int]:
        """What `dot` sums, block by block."""
        return [v for b in self.bundles for v in (b.weights.objects() * products(values, b.sets)).tolist()]


class _Builder:
    """Collects slots and blocks."""

    def __init__(self, group_of: Mapping[str, int], power: int) -> None:
        self.slots: list[Slot] = []
        self._group_of = group_of
        self._power = power
        self._known: dict[object, int] = {}
        self._single: dict[int, list[tuple[tuple[int, ...], int]]] = {}
        self._bundles: list[Bundle] = []

    def _slot(self, group: int, inside: Inside) -> int:
        key = (group, *((g, f if f.exchangeable else id(f)) for g, f in inside))
        if key not in self._known:
            self._known[key] = len(self.slots)
            self.slots.append(Slot(group, inside))
        return self._known[key]

    def add(self, block: Block) -> None:
        multiple, constant = 1, 1
        insides: dict[int, Inside] = {}
        for group, given in zip(block.groups, block.factors, strict=True):
            times, factor = _unscaled(given)
            multiple *= times
            if group:
                joint = self._group_of[group[0]]
                insides[joint] = (*insides.get(joint, ()), (group, factor))
            else:
                constant *= int(factor.column_sums(self._power)[0])
        weight = multiple**self._power * constant
        if weight:
            slots = tuple(self._slot(g, inside) for g, inside in insides.items())
            self._single.setdefault(len(slots), []).append((slots, weight))

    def add_family(self, family: Family) -> None:
        used = np.unique(family.sets).tolist()
        slots = np.zeros(len(family.names), dtype=np.intp)
        group = np.zeros(len(family.names), dtype=np.intp)
        times = [1] * len(family.names)
        for i in used:
            times[i], factor = _unscaled(family.factors[i])
            group[i] = self._group_of[family.names[i]]
            slots[i] = self._slot(int(group[i]), (((family.names[i],), factor),))
        kept = np.ones(len(family), dtype=bool)
        if len(np.unique(group[used])) < len(used):
            # attributes that some other factor joins
            kept = (np.diff(np.sort(group[family.sets], axis=1), axis=1) > 0).all(axis=1)
            for i in np.flatnonzero(~kept).tolist():
                self.add(family.block(i))
        sets = family.sets[kept]
        multiples = np.ones(len(sets), dtype=np.int64) if family.multiples is None else family.multiples[kept]
        weights = Weights.powers(multiples, self._power)
        if any(t != 1 for t in times):
            weights = weights.times(products([t**self._power for t in times], sets.astype(np.intp)))
        if len(sets):
            self._bundles.append(Bundle(slots[sets], weights))

    def bundles(self) -> tuple[Bundle, ...]:
        out = list(self._bundles)
        for order, blocks in self._single.items():
            sets = np.array([s for s, _ in blocks], dtype=np.intp).reshape(len(blocks), order)
            out.append(Bundle(sets, Weights.of([w for _, w in blocks])))
        return tuple(out)


def _used(block: Block | Family) -> tuple[LinearOperator, ...]:
    if isinstance(block, Block):
        return block.factors
    return tuple(block.factors[i] for i in np.unique(block.sets).tolist())


def _unscaled(factor: LinearOperator) -> tuple[int, LinearOperator]:
    """(multiple, factor) with integer multiples taken out."""
    multiple = 1
    while isinstance(factor, Scaled) and isinstance(factor.factor, int):
        multiple, factor = multiple * abs(factor.factor), factor.operator
    return multiple, factor
