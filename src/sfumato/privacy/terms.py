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
from sfumato.maps import AlikeMap, BlockMap, CombinationMap, DenseMap, FamilyMap, Map, MergedMap, MultipleMap, TotalMap
from sfumato.maps.base import INT64, IntArray, LinearMap, Numbers, absolute_sums, exact_matmul
from sfumato.privacy.sums import Bundle, set_products
from sfumato.privacy.unit import Within

Group = tuple[str, ...]
Inside = tuple[tuple[Group, Map], ...]
Sizes = Mapping[str, int]
Tables = BlockMap | FamilyMap

_MOST_CELLS_HUGE = 400  # of which all pairs are looked at with Python integers


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


def joint_gram(inside: Inside, group: Group, sizes: Sizes) -> Numbers:
    """The Gram matrix over the cells of a group: int64, or Python integers for few cells. Raises PlanError for many."""
    shape = tuple(sizes[a] for a in group)
    cells = math.prod(shape)
    gram: Numbers = np.ones((cells, cells), dtype=np.int64)
    for names, factor in inside:
        part = factor.gram()
        if part.dtype.kind == "O" or int(np.abs(gram).max()) * int(np.abs(part).max()) >= INT64:
            if cells > _MOST_CELLS_HUGE:
                raise PlanError("the entries are too large to look at all pairs of cells")
            gram = gram.astype(object)
        position = np.arange(math.prod(sizes[a] for a in names))
        place = np.broadcast_to(broadcast_on_axes(position, names, group, sizes), shape).reshape(-1)
        gram = gram * part[np.ix_(place, place)]
    return gram


# of every factor its attributes, the rows of its block, which row of it stands in each, and its table (rows, cells of
# each attribute)
_Tables = list[tuple[tuple[str, ...], slice, NDArray[np.intp], Numbers]]

MAX_ENTRIES = 2**25
"""Numbers of all columns that are looked at together: 256 MB; above, they are refused."""

_MOST_POINTS = 2**16  # of a plane whose corners are looked for: a tenth of a second


def distinct_columns(blocks: Sequence[BlockMap], sizes: Mapping[str, int], *, ends: bool = False) -> IntArray:
    """(rows, c): each column that some joint cell of all attributes has in the blocks stacked, once.

    The joint cells are never listed. Cells of one attribute that no factor tells apart are one; then the groups of
    attributes that factors join are gone through: a column is an entry by entry product of one column of each, and
    those that coincide are dropped at once. None is missed, as privacy needs, and none is added.
    With `ends`, what is found are some of these columns, in whose convex hull all others lie: no norm of a column, and
    no distance of two, is larger elsewhere. For given cells of the others a column is linear in what the factors have
    at the cell of one attribute, so that a cell whose numbers are a mean of those of others can be left out.
    Raises PlanError where they are too many, or their entries too large, WorkloadError for factors that do not fit.
    """
    tables, height = _Tables(), 0
    for block in blocks:
        block.check(sizes)
        factors = [f for f in block.factors if isinstance(f, Map)]
        if len(factors) < len(block.factors):
            raise PlanError("the columns of maps of the closed set are looked at, and of no others")
        if math.prod(f.max_abs for f in factors) >= INT64:
            raise PlanError("the entries of a combined block may be above 2^63; scale them down")
        rows = slice(height, height := height + block.rows)
        places = np.indices([f.shape[0] for f in block.factors]).reshape(len(block.factors), block.rows)
        for group, factor, place in zip(block.groups, factors, places, strict=True):
            _check_entry_count(factor.shape[0] if ends else block.rows, factor.shape[1])
            tables.append((group, rows, place, factor.columns().reshape(-1, *(sizes[a] for a in group))))
    for name in {a for group, *_ in tables for a in group}:
        axes = [1 + group.index(name) if name in group else 0 for group, *_ in tables]
        slices = [np.moveaxis(t, i, 0).reshape(t.shape[i], -1) for (*_, t), i in zip(tables, axes, strict=True) if i]
        seen = np.concatenate(slices, axis=1)
        some = _hull_points(seen) if ends else np.arange(len(seen))
        kept = some[np.unique(seen[some], axis=0, return_index=True)[1]]
        tables = [(*t[:3], t[3].take(kept, axis=i) if i else t[3]) for t, i in zip(tables, axes, strict=True)]
    for _, _, place, table in tables:
        _check_entry_count(len(place), *table.shape[1:])
    tables = [(group, rows, place, table[place]) for group, rows, place, table in tables]
    cells = {a: n for group, _, _, table in tables for a, n in zip(group, table.shape[1:], strict=True)}
    found = np.ones((1, height), dtype=np.int64)
    for group in ((), *joint_groups(blocks)):
        _check_entry_count(height, *(cells[a] for a in group))
        grid = np.ones((height, *(cells[a] for a in group)), dtype=np.int64)
        for some, rows, _, table in tables:
            if set(some) <= set(group) and bool(some) == bool(group):
                order = [0, *(1 + some.index(a) for a in group if a in some)]
                grid[rows] *= table.transpose(order).reshape(-1, *(cells[a] if a in some else 1 for a in group))
        here = grid.reshape(height, -1).T if len(found) == 1 else _sorted_distinct_rows(grid.reshape(height, -1).T)
        _check_entry_count(len(found), *here.shape)
        found = _sorted_distinct_rows((found[:, None] * here).reshape(-1, height))
    return np.ascontiguousarray(found.T)


def _hull_points(points: IntArray) -> NDArray[np.intp]:
    """Which of n points, (n, f) numbers, hold all others in their convex hull; all of them where that takes long.

    Numbers that are told by each other, up to a factor and a term, have the same ends: one of them is looked at.
    """
    every = np.arange(len(points))
    if max(int(points.max()), -int(points.min())) >= INT64 // 2:  # differences are below 2^63
        return every
    moved = points - points[0]
    moved = moved[:, moved.any(axis=0)]
    moved //= np.gcd.reduce(moved, axis=0)
    moved *= np.sign(moved[(moved != 0).argmax(axis=0), np.arange(moved.shape[1])])
    told = [moved[:, i] for i in {moved[:, i].tobytes(): i for i in range(moved.shape[1])}.values()]
    if len(told) < 2:
        return np.array([t(told[0]) for t in (np.argmin, np.argmax)] if told else [0], dtype=np.intp)
    if len(told) > 2 or len(points) > _MOST_POINTS:
        return every
    x, y = (t.tolist() for t in told)
    order, found = np.lexsort(told).tolist(), list[int]()
    for way in (order, order[::-1]):
        hull = list[int]()
        for i in way:
            # what does not turn left is no corner; exact, in Python's integers
            while len(hull) > 1:
                a, b = hull[-2:]
                if (y[b] - y[a]) * (x[i] - x[a]) - (x[b] - x[a]) * (y[i] - y[a]) > 0:
                    break
                hull.pop()
            hull.append(i)
        found += hull
    return np.array(sorted({*found}), dtype=np.intp)


def _sorted_distinct_rows(rows: IntArray) -> IntArray:
    """The distinct rows, ascending: sorted by bytes, which compare as the numbers do. One left twice would not harm."""
    ordered = rows[np.argsort((rows ^ np.int64(-INT64)).astype(">i8", "C").view(f"V{8 * rows.shape[1]}").ravel())]
    return ordered[np.concatenate([[True], (ordered[1:] != ordered[:-1]).any(axis=1)])]


def combined_columns(combined: CombinationMap, sizes: Mapping[str, int]) -> DenseMap:
    """C Q over columns of Q in whose convex hull the others lie, in place of the joint cells: see `distinct_columns`.

    Raises what `distinct_columns` raises, and PlanError where entries may not fit int64.
    """
    held = distinct_columns(combined.blocks, sizes, ends=True)
    _check_entry_count(combined.rows, held.shape[1])
    if max(absolute_sums(np.ascontiguousarray(combined.matrix.T), 1)) * int(np.abs(held).max()) >= INT64:
        raise PlanError("the entries of a combination may be above 2^63; scale them down")
    return DenseMap(exact_matmul(combined.matrix, held))


def _check_entry_count(*sizes: int) -> None:
    if math.prod(sizes) > MAX_ENTRIES:
        raise PlanError(
            f"the queries tell too many cells apart to be combined: above {MAX_ENTRIES:,} entries of columns"
        )
