"""A list of integer maps as what it costs: which factor stands where, without an object per block.

A block is a Kronecker product of factors over groups of attributes. What one record adds to it, summed to a power,
is its weight times a number for each of its factors; attributes that some factor joins are one group everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import PlanError
from sfumato.maps import AlikeMap, BlockMap, DenseMap, FamilyMap, Map, MergedMap, MultipleMap, TotalMap
from sfumato.maps.base import INT64, LinearMap, Numbers
from sfumato.privacy.sums import Bundle, Feature, SumOfProducts, set_products
from sfumato.privacy.unit import Within

Group = tuple[str, ...]
Inside = tuple[tuple[Group, Map], ...]
Sizes = Mapping[str, int]
Tables = BlockMap | FamilyMap


@dataclass(frozen=True, slots=True)
class Slot:
    """What some blocks have on one joint group of attributes: a factor, or several over its parts.

    alike: the pairs of entries in two columns, where it is one map over the whole group whose columns are alike.
    """

    group: int
    inside: Inside
    alike: tuple[tuple[int, int, int], ...] | None

    @property
    def ends(self) -> tuple[int, int]:
        """(squared norm of a column, inner product of two), where columns are alike."""
        pairs = self.alike or ()
        return sum(n * a * a for n, a, _ in pairs), sum(n * a * b for n, a, b in pairs)

    def top(self, power: int) -> int:
        """The largest sum of |entries|^power of a column, as a product over its factors."""
        return math.prod(int(max(f.column_sums(power))) for _, f in self.inside)


@dataclass(frozen=True, slots=True)
class MapTerms:
    """All blocks, for one power of the sensitivity.

    groups: the attributes, merged where some factor joins them, as a partition; cells: of each group; near: of each,
    if records are replaced within groups of its cells, which of these groups a cell is in, else None.
    bundles: sets of slots. The sum of |entries|^power of a block is its weight times what its slots have.
    """

    power: int
    groups: tuple[Group, ...]
    cells: tuple[int, ...]
    near: tuple[Numbers | None, ...]
    slots: tuple[Slot, ...]
    bundles: tuple[Bundle, ...]

    @classmethod
    def of(cls, blocks: Sequence[Tables], sizes: Sizes, power: int, within: Within | None = None) -> MapTerms:
        """Raises WorkloadError for factors that do not fit, PlanError for groups of other cells than there are."""
        for block in blocks:
            block.check(sizes)
        groups = joint_groups(blocks)
        near: list[Numbers | None] = [None] * len(groups)
        if within is not None:
            if within.codes is None or within.codes.shape != (sizes.get(within.attribute, 0),):
                raise PlanError(
                    f"records are replaced within groups of {within.attribute}, and their codes are not of its cells"
                )
            for i in (i for i, g in enumerate(groups) if within.attribute in g):
                table = broadcast_on_axes(within.codes, (within.attribute,), groups[i], sizes)
                near[i] = np.broadcast_to(table, [sizes[a] for a in groups[i]]).reshape(-1)
        builder = _Builder(groups, near, power)
        for block in blocks:
            if isinstance(block, FamilyMap):
                builder.add_family(block)
            else:
                builder.add(block.groups, block.factors)
        cells = tuple(math.prod(sizes[a] for a in g) for g in groups)
        return cls(power, groups, cells, tuple(near), tuple(builder.slots), builder.bundles())

    @property
    def binary(self) -> bool:
        """Whether all entries are 0 or 1, but for the multiples."""
        return all(f.binary for s in self.slots for _, f in s.inside)

    @property
    def nonnegative(self) -> bool:
        """Whether no entry is negative, or none positive, in every block."""
        return all(f.nonnegative for s in self.slots for _, f in s.inside)

    def pairs(self, group: int) -> NDArray[np.bool_]:
        """(cells, cells) which records of a group of attributes may stand in each other's place."""
        near = self.near[group]
        near = np.zeros(self.cells[group]) if near is None else near
        return near[:, None] == near

    def of_group(self, group: int) -> list[int]:
        """The slots of a group."""
        return [i for i, s in enumerate(self.slots) if s.group == group]

    def dot(self, values: Sequence[int]) -> int:
        """The sum over blocks of weight times the product of a value for each of its slots."""
        return sum(int((b.weights * set_products(values, b.sets)).sum()) for b in self.bundles)


class _Builder:
    """Collects slots and blocks."""

    def __init__(self, groups: Sequence[Group], near: Sequence[Numbers | None], power: int) -> None:
        self.slots: list[Slot] = []
        self._groups, self._near, self._power = groups, near, power
        self._home = {a: i for i, g in enumerate(groups) for a in g}
        self._known: dict[object, int] = {}
        self._single: dict[int, list[tuple[tuple[int, ...], int]]] = {}
        self._bundles: list[Bundle] = []

    def _slot(self, group: int, inside: Inside) -> int:
        key = (group, *((g, _factor_identity(f)) for g, f in inside))
        if key not in self._known:
            self._known[key] = len(self.slots)
            own, factor = inside[0]
            # cells of which some pairs alone count are not alike
            whole = len(own) == len(self._groups[group]) and self._near[group] is None
            alike = factor.pairs() if whole and isinstance(factor, AlikeMap | TotalMap) else None
            self.slots.append(Slot(group, inside, alike))
        return self._known[key]

    def add(self, groups: Sequence[Group], factors: Sequence[LinearMap], multiple: int = 1) -> None:
        constant, insides = 1, dict[int, Inside]()
        for group, given in zip(groups, factors, strict=True):
            times, factor = _split_scale(given)
            multiple *= times
            if group:
                joint = self._home[group[0]]
                insides[joint] = (*insides.get(joint, ()), (group, factor))
            else:
                constant *= int(factor.column_sums(self._power)[0])
        weight = multiple**self._power * constant
        if weight:
            slots = tuple(self._slot(g, inside) for g, inside in insides.items())
            self._single.setdefault(len(slots), []).append((slots, weight))

    def add_family(self, family: FamilyMap) -> None:
        used = family.used.tolist()
        slots, group = (np.zeros(len(family.names), dtype=np.intp) for _ in range(2))
        times = [1] * len(family.names)
        for i in used:
            times[i], factor = _split_scale(family.factors[i])
            group[i] = self._home[family.names[i]]
            slots[i] = self._slot(int(group[i]), (((family.names[i],), factor),))
        multiples = np.ones(len(family), dtype=np.int64) if family.multiples is None else family.multiples
        kept = np.ones(len(family), dtype=bool)
        if len(np.unique(group[used])) < len(used):
            # attributes that some other factor joins
            kept = (np.diff(np.sort(group[family.sets], axis=1), axis=1) > 0).all(axis=1)
            for i in np.flatnonzero(~kept).tolist():
                own = family.sets[i].tolist()
                self.add([(family.names[a],) for a in own], [family.factors[a] for a in own], int(multiples[i]))
        if kept.any():
            sets = family.sets[kept]
            scale = set_products(times, sets)
            fits = (int(multiples.max()) * int(scale.max())) ** self._power < INT64
            own, scale = (v.astype(np.int64 if fits else object) for v in (multiples[kept], scale))
            self._bundles.append(Bundle(slots[sets], ((own * scale) ** self._power).astype(object)))

    def bundles(self) -> tuple[Bundle, ...]:
        single = (Bundle.of([s for s, _ in b], [w for _, w in b]) for b in self._single.values())
        return (*self._bundles, *single)


def _factor_identity(factor: Map) -> object:
    """What is equal of equal factors. Matrices and levels of a tree, made anew for every block, are told by entries."""
    entries = (factor.shape, factor.matrix.tobytes()) if isinstance(factor, DenseMap) else id(factor)
    # one slot for a level of all blocks: two cells lie together there in all of them, or in none
    alike = factor if factor.exchangeable else entries
    return (_factor_identity(factor.map), factor.codes.tobytes()) if isinstance(factor, MergedMap) else alike


def _split_scale(factor: LinearMap) -> tuple[int, Map]:
    """(multiple, factor) with the size of integer multiples taken out."""
    multiple = 1
    while isinstance(factor, MultipleMap):
        multiple, factor = multiple * abs(factor.factor), factor.map
    if not isinstance(factor, Map):
        raise PlanError(f"{factor!r} is no map of the closed set")
    return multiple, factor


def joint_groups(blocks: Sequence[Tables]) -> tuple[Group, ...]:
    """The attributes, merged where some factor joins them, as a partition."""
    given = [b.groups if isinstance(b, BlockMap) else tuple((a,) for a in b.attributes) for b in blocks]
    partition: list[set[str]] = []
    place: dict[str, set[str]] = {}
    for group in dict.fromkeys(g for groups in given for g in groups if g):
        touching = {id(place[a]): place[a] for a in group if a in place}
        joined = set(group).union(*touching.values())
        partition = [p for p in partition if id(p) not in touching] + [joined]
        place.update(dict.fromkeys(joined, joined))
    order = {a: i for i, a in enumerate(dict.fromkeys(a for groups in given for g in groups for a in g))}
    return tuple(tuple(sorted(p, key=order.__getitem__)) for p in partition)


def broadcast_on_axes(values: Numbers, names: Group, group: Group, sizes: Sizes) -> Numbers:
    """Values over the cells of `names` as an array that broadcasts over the cells of `group`."""
    table = values.reshape(tuple(sizes[a] for a in names))
    table = table.transpose(sorted(range(len(names)), key=lambda i: group.index(names[i])))
    return table.reshape(tuple(sizes[a] if a in names else 1 for a in group))


def group_patterns(terms: MapTerms, tables: Sequence[Numbers], signs: Sequence[int]) -> SumOfProducts:
    """The sum of blocks over patterns: per group (patterns, its slots, parts), and the sign of each part."""
    parts: list[tuple[dict[int, Feature], list[int], int]] = []
    for k, sign in enumerate(signs):
        features, constants = dict[int, Feature](), [1] * len(terms.slots)
        for group, table in enumerate(tables):
            for slot, values in zip(terms.of_group(group), table[:, :, k].T, strict=True):
                constants[slot] = int(values[0])
                if (values != values[0]).any():
                    features[slot] = (group, values)
        parts.append((features, constants, sign))
    return SumOfProducts.of([len(t) for t in tables], parts, terms.bundles)
