"""What all counted rows of one person change, where few of them lie in each group: sharper than a row's change times r.

A person counts at most r rows, and at most g in each group, which is a joint cell of the attributes D (`once_per`). The
person changes a measurement by a sum of columns, whose squared length is quadratic in how many rows lie in which cell:
convex, so it is largest where q groups hold g rows in one cell each, and one more holds the rest. Products of columns
of different groups are bounded here, in integers, from which attributes of two cells differ; decision 0160 has the
proof.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from sfumato.errors import PlanError, WorkloadError
from sfumato.maps.base import INT64, FloatArray, Numbers
from sfumato.privacy.columns import joint_gram
from sfumato.privacy.sums import Feature, SumOfProducts
from sfumato.privacy.terms import MapTerms, Sizes, broadcast_on_axes
from sfumato.privacy.unit import Neighbours, PrivacyUnit

_MOST_CELLS = 1_000  # of a group of attributes, of which all pairs of cells are looked at
_MOST_STATES = 2**20  # patterns of which attributes differ that are gone through: a second
_MOST_PARTED = 6  # attributes of which all subsets are tried
_MOST_GROUPS = 64  # of one person, of which each number is looked at by pairs of cells
_MOST_PHANTOMS = 5  # attributes of which all subsets are phantoms: 32 in 32 patterns, a few milliseconds
_SWEEPS, _BITS = 4, 20  # over the phantoms, for each number of groups that costs most; of a phantom's weight


@dataclass(frozen=True, slots=True)
class ColumnProducts:
    """Bounds of inner products of columns.

    `norm` of one with itself; `apart` of two whose rows lie in different groups; `opposed` is how far below 0 the
    product of any two falls.
    """

    norm: int
    apart: int
    opposed: int

    def beside(self, norm: int) -> ColumnProducts:
        """With a measurement beside it of whose columns no more is known than their largest squared norm."""
        return ColumnProducts(self.norm + norm, self.apart + norm, self.opposed + norm)


def grouped_bounds(
    terms: MapTerms, norm: int, combined: int, unit: PrivacyUnit, sizes: Sizes, *, alone: bool
) -> list[int]:
    """Bounds of what a person changes whose rows lie few in each group: each holds, so the least does.

    `norm` is the largest of a column, `combined` that of combinations beside, of whose columns nobody knows which lie
    in different groups; `alone` says that there are none of these. Raises PlanError for attributes that are not there.
    """
    ways = coarser_groups(unit, sizes)
    if terms.power == 1:
        return [grouped_columns(terms, norm, combined, way, sizes) for way in ways]
    found = [grouped_change(column_products(terms, sizes, way, norm).beside(combined), way, sizes) for way in ways]
    times = 1 if unit.neighbours is Neighbours.ADD_REMOVE else 2 if terms.nonnegative else 4
    for way in ways if alone else ():
        for change in (paired_change, phantom_change):
            with suppress(PlanError, WorkloadError):
                found.append(times * change(terms, sizes, way))
    return found


def coarser_groups(unit: PrivacyUnit, sizes: Sizes) -> list[PrivacyUnit]:
    """The unit, and others that bound the same rows: in a joint cell of some of the attributes lie the rows of as many
    groups as the others have cells. Raises PlanError for attributes that are not there."""
    missing = [a for a in unit.once_per if a not in sizes]
    if missing:
        raise PlanError(f"once_per names {', '.join(missing)}; the domain has {', '.join(sizes)}")
    kept = [a for a in unit.once_per if sizes[a] > 1] or [unit.once_per[0]]
    orders = range(len(kept), 0, -1) if len(kept) <= _MOST_PARTED else (len(kept),)
    ways: list[PrivacyUnit] = []
    for some in itertools.chain.from_iterable(itertools.combinations(kept, k) for k in orders):
        each = unit.rows_per_group * math.prod(sizes[a] for a in kept if a not in some)
        if each < unit.rows_per_person:  # else any rows may lie there
            ways.append(replace(unit, once_per=some, rows_per_group=each))
    return ways


def full_groups(unit: PrivacyUnit, sizes: Sizes) -> tuple[int, int]:
    """How many groups one person may fill, and how many rows are left for one more."""
    groups = math.prod(sizes[a] for a in unit.once_per)
    full = min(unit.rows_per_person // unit.rows_per_group, groups)
    return full, unit.rows_per_person - full * unit.rows_per_group if full < groups else 0


def grouped_change(products: ColumnProducts, unit: PrivacyUnit, sizes: Sizes) -> int:
    """At most so large is the squared change that all counted rows of a person make, under the unit's relation."""
    norm, apart, groups = products.norm, min(products.apart, products.norm), full_groups(unit, sizes)
    one = _largest_over_rows(norm - apart, apart, unit, groups)
    if unit.neighbours is Neighbours.ADD_REMOVE:
        return one
    # |a - b|^2 <= 2 |a|^2 + 2 |b|^2, or less 2 <a, b>, which falls below 0 by m n times `opposed` at most
    return min(4 * one, 2 * _largest_over_rows(norm - apart, apart + products.opposed, unit, groups))


def _largest_over_rows(own: int, joint: int, unit: PrivacyUnit, groups: tuple[int, int]) -> int:
    """The largest of (sum of squares of the groups' rows) own + (number of rows)^2 joint.

    For q full groups it is concave in q or grows; in the rows of one more group it is convex: none of them or all.
    """
    each, (full, rest) = unit.rows_per_group, groups

    def change(q: int, more: int) -> int:
        return (q * each**2 + more**2) * own + (q * each + more) ** 2 * joint

    peak = full if joint >= 0 else own // (-2 * joint)
    return max(change(full, rest), *(change(min(max(q, 1), full), 0) for q in (peak, peak + 1, full)))


def grouped_columns(terms: MapTerms, largest: int, beside: int, unit: PrivacyUnit, sizes: Sizes) -> int:
    """At most so large is the L1 change of a person's rows: of the largest columns of so many groups.

    `largest` is that of one row, and `beside` that of one row in what stands beside the terms.
    """
    full, rest = full_groups(unit, sizes)
    each = _largest_in_groups(terms, sizes, unit.once_per)
    columns = [largest] * (full + 1) if each is None else sorted((min(c, largest) for c in each), reverse=True)
    one = unit.rows_per_group * sum(columns[:full]) + rest * (columns[full] if rest else 0)
    one += (full * unit.rows_per_group + rest) * beside
    return one if unit.neighbours is Neighbours.ADD_REMOVE else 2 * one


def _largest_in_groups(terms: MapTerms, sizes: Sizes, once_per: Sequence[str]) -> list[int] | None:
    """For each joint cell of some attributes a bound of the column sums there; None where all are alike, or too many.

    Each factor is taken at its largest over the other attributes.
    """
    shape = tuple(sizes[a] for a in once_per)
    if math.prod(shape) * sum(len(b.weights) for b in terms.bundles) > _MOST_STATES:
        return None
    if all(s.alike for s in terms.slots):
        return None
    tables: list[Numbers] = []
    for slot in terms.slots:
        table = np.ones((1,) * len(shape), dtype=object)
        for names, factor in slot.inside:
            sums = np.array(factor.column_sums(terms.power), dtype=object).reshape([sizes[a] for a in names])
            kept = [a for a in once_per if a in names]
            sums = sums.max(axis=tuple(i for i, a in enumerate(names) if a not in kept))
            order = [a for a in names if a in kept]
            sums = np.asarray(sums, dtype=object).transpose([order.index(a) for a in kept])
            table = table * sums.reshape([sizes[a] if a in kept else 1 for a in once_per])
        tables.append(table)
    total = np.zeros(shape, dtype=object)
    for sets, weights in terms.bundles:
        for some, weight in zip(sets.tolist(), weights.tolist(), strict=True):
            total = total + weight * math.prod((tables[i] for i in some), start=np.ones((), dtype=object))
    return np.broadcast_to(total, shape).reshape(-1).tolist()


def column_products(terms: MapTerms, sizes: Sizes, unit: PrivacyUnit, norm: int) -> ColumnProducts:
    """The bounds for some blocks, whose columns have squared norms of `norm` at most."""
    opposed = 0 if terms.nonnegative else max(0, _largest_product(terms, sizes, None, -1))
    # two groups differ in one of their attributes at least
    differing = [a for a in unit.once_per if sizes[a] > 1]
    apart = max((_largest_product(terms, sizes, a, 1) for a in differing), default=norm)
    return ColumnProducts(norm, min(apart, norm), min(opposed, norm))


def _largest_product(terms: MapTerms, sizes: Sizes, differ: str | None, sign: int) -> int:
    """A bound of `sign` times the product of the columns of any two cells, that differ in an attribute where one is
    named."""
    count, slots = len(terms.groups), len(terms.slots)
    states = [1] * (count + slots)
    features, constants = dict[int, Feature](), [0] * slots
    for group in range(count):
        own = terms.of_group(group)
        found = _cell_pair_products(terms, group, sizes, differ)
        for k, slot in enumerate(own):
            values, variable = (_product_ends(terms, slot), count + slot) if found is None else (found[:, k], group)
            constants[slot], states[variable] = int(values[0]), len(values)
            if (values != values[0]).any():
                features[slot] = (variable, values)
    total = SumOfProducts.of(states, [(features, constants, sign)], terms.bundles)
    if math.prod(states[v] for v in total.scope()) <= _MOST_STATES:
        with suppress(PlanError):
            return total.largest()[0]
    return total.apart()[0]


def _product_ends(terms: MapTerms, slot: int) -> Numbers:
    """What a factor's products lie between, whatever the cells: every factor by itself."""
    top = terms.slots[slot].top(2)
    nonnegative = all(f.nonnegative for _, f in terms.slots[slot].inside)
    return np.array([top, 0 if nonnegative else -top], dtype=object)


def _cell_pair_products(terms: MapTerms, group: int, sizes: Sizes, differ: str | None) -> Numbers | None:
    """(patterns, slots) products of two cells of a group of attributes, all that occur; None for too many cells."""
    own, names = [terms.slots[i] for i in terms.of_group(group)], terms.groups[group]
    if all(s.alike for s in own):
        ends = np.array([s.ends for s in own], dtype=object).reshape(-1, 2).T
        return ends[1:] if differ in names else ends[: min(terms.cells[group], 2)]
    if terms.cells[group] > _MOST_CELLS:
        return None
    with suppress(PlanError, WorkloadError):
        grams = [joint_gram(s.inside, names, sizes) for s in own]
        u, v = np.nonzero(_apart(names, sizes, (differ,) if differ in names else ()))
        rows = set(zip(*(gram[u, v].tolist() for gram in grams), strict=True))
        return np.array(sorted(rows), dtype=object).reshape(len(rows), len(own))
    return None


def _apart(names: tuple[str, ...], sizes: Sizes, differ: tuple[str, ...]) -> Numbers:
    """(cells, cells) whether two cells of a group of attributes differ in one of some of them; all, where none is."""
    shape = tuple(sizes[a] for a in names)
    found = np.full((math.prod(shape),) * 2, not differ)
    for a in differ:
        place = np.broadcast_to(broadcast_on_axes(np.arange(sizes[a]), (a,), names, sizes), shape).reshape(-1)
        found |= place[:, None] != place
    return found


def paired_change(terms: MapTerms, sizes: Sizes, unit: PrivacyUnit) -> int:
    """The same bound as `grouped_change` of a row more, from all pairs of columns where one group holds all attributes.

    The squared length of a sum of s columns is a sum over its pairs: at most s (s - 1) / 2 times what a pair has most,
    (|a|^2 + |b|^2) / (s - 1) + 2 <a, b>. Columns of different lengths then cost less than the longest. Raises PlanError
    where there are too many cells, rows or digits.
    """
    each, (full, rest) = unit.rows_per_group, full_groups(unit, sizes)
    if len(terms.groups) != 1 or terms.cells[0] > _MOST_CELLS or full + bool(rest) > _MOST_GROUPS:
        raise PlanError("pairs of columns are looked at of one group of few cells, for few rows")
    gram = np.zeros((terms.cells[0],) * 2, dtype=object)
    for i, slot in enumerate(terms.slots):
        weight = sum(int(b.weights[(b.sets == i).any(axis=1)].sum()) for b in terms.bundles)
        gram = gram + weight * joint_gram(slot.inside, terms.groups[0], sizes).astype(object)
    top = max(int(gram.max()), -int(gram.min()))
    if 4 * top * (full + 1) ** 2 >= INT64:
        raise PlanError("the entries are too large to look at all pairs of cells")
    gram = gram.astype(np.int64)
    # blocks over nothing are the same for all cells
    always = sum(int(b.weights.sum()) for b in terms.bundles if b.sets.shape[1] == 0)
    norms = np.diagonal(gram)
    inside = tuple(a for a in unit.once_per if a in terms.groups[0] and sizes[a] > 1)
    elsewhere = any(a not in terms.groups[0] and sizes[a] > 1 for a in unit.once_per)
    u, v = np.nonzero(_apart(terms.groups[0], sizes, () if elsewhere else inside))
    both, product = norms[u] + norms[v], gram[u, v]

    def twice(rows: int) -> int:  # of so many rows of different groups
        if rows == 1:
            return 2 * (int(norms.max()) + always)
        return int((rows * both + 2 * rows * (rows - 1) * product).max()) + 2 * rows**2 * always

    found = each**2 * max(twice(s) for s in range(1, full + 1))
    if rest:  # between none of the last group and all of it
        found = max(found, each * (each - rest) * twice(full) + each * rest * twice(full + 1))
    return found // 2


def phantom_change(terms: MapTerms, sizes: Sizes, unit: PrivacyUnit) -> int:
    """The same bound once more, where all cells of every attribute are alike, with blocks that are never measured.

    Not all pairs of rows can lie as the worst pair does. Residuals R_A with any weights y_A >= 0 add y_A |R_A x|^2,
    which is at least 0, so that the pairs' bound of the blocks with them is one of the blocks: it is less where weights
    pull the worst pairs down. For each number of groups they may be others. How they are found proves nothing.
    Raises PlanError where cells are not alike, or attributes or groups too many.
    """
    each, (full, rest) = unit.rows_per_group, full_groups(unit, sizes)
    names = [a for a in dict.fromkeys([*(a for g in terms.groups for a in g), *unit.once_per]) if sizes[a] > 1]
    alike = all(s.alike for s in terms.slots) and all(len(g) == 1 for g in terms.groups)
    if not alike or not 0 < len(names) <= _MOST_PHANTOMS or full > _MOST_GROUPS:
        raise PlanError("phantoms are for blocks whose cells are alike, over few attributes, for few rows")
    cells, tells = [sizes[a] for a in names], [a in unit.once_per for a in names]
    patterns = list(itertools.product((0, 1), repeat=len(cells)))  # which differ
    state = {g: names.index(some[0]) for g, some in enumerate(terms.groups) if some[0] in names}
    gram: list[int] = []
    for p in patterns:
        differs = [s.group in state and p[state[s.group]] for s in terms.slots]
        gram.append(terms.dot([s.ends[d] for s, d in zip(terms.slots, map(int, differs), strict=True)]))
    split = [i for i, p in enumerate(patterns) if any(d and t for d, t in zip(p, tells, strict=True))]
    if not split:
        raise PlanError("no two rows lie in different groups")
    # (phantoms, patterns), the first pattern that of one cell
    own = [[math.prod((n - 1, -1)[d] for n, d, a in zip(cells, p, some, strict=True) if a) for p in patterns]
           for some in patterns]  # fmt: skip
    # and all of one order at once: alone none of what is symmetric gets anywhere
    orders = [[k for k, some in zip(own, patterns, strict=True) if sum(some) == m] for m in range(1, len(cells))]
    own += [[sum(column) for column in zip(*alike, strict=True)] for alike in orders]
    bodies = [(q * each**2, q * each) for q in range(1, full + 1)]
    bodies += [(full * each**2 + rest**2, full * each + rest)] if rest else []

    def costs(weights: list[int]) -> list[int]:
        """Of each body at most, times 2^_BITS."""
        summed = [(g << _BITS) + sum(w * k[i] for w, k in zip(weights, own, strict=True)) for i, g in enumerate(gram)]
        apart = max(summed[i] for i in split)
        return [squares * summed[0] + (rows**2 - squares) * apart for squares, rows in bodies]

    best = costs([0] * len(own))
    top = max(map(abs, gram)) or 1
    scaled, table = np.array([g / top for g in gram]), np.array(own, dtype=np.float64)
    tried = set[int]()
    while (worst := max(range(len(best)), key=best.__getitem__)) not in tried:
        tried.add(worst)
        for order in (list(range(len(own))), list(range(len(own)))[::-1]):
            found = _phantom_weights(scaled, table, split, order, *bodies[worst])
            best = [min(a, b) for a, b in zip(best, costs([round(w * 2**_BITS) * top for w in found]), strict=True)]
    return max(best) >> _BITS


def _phantom_weights(
    gram: FloatArray, own: FloatArray, split: list[int], order: list[int], squares: int, rows: int
) -> list[float]:
    """Weights of phantoms, one after another at the least of what they bound: where two patterns cost the same."""
    weights, now = [0.0] * len(own), gram.copy()
    for _ in range(_SWEEPS):
        for i in order:
            k = own[i]
            values, slopes = now[split], k[split]
            with np.errstate(divide="ignore", invalid="ignore"):
                steps = ((values[:, None] - values) / (slopes - slopes[:, None])).reshape(-1)
            steps = np.append(steps[np.isfinite(steps) & (steps > -weights[i])], [0.0, -weights[i]])
            apart = (values + steps[:, None] * slopes).max(axis=1)
            step = float(steps[np.argmin(squares * (now[0] + steps * k[0]) + (rows**2 - squares) * apart)])
            weights[i], now = max(0.0, weights[i] + step), now + step * k
    return weights
