"""What integer maps cost: exact integer bounds of how far neighbouring tables are apart.

A measurement is a list of blocks, each a Kronecker product of integer factors. The column of all blocks that belongs
to a cell u = (u_1, u_2, ...) has, summed over blocks b,

    sum of |entries|^p         = sum_b prod_g c_bg(u_g)
    squared distance to v      = sum_b [ prod_g G_bg(u_g, u_g) + prod_g G_bg(v_g, v_g) - 2 prod_g G_bg(u_g, v_g) ]

with c the column sums and G the Gram matrix of factor g. Where a row may come or go, the first is what counts, and
it is found here. Where a row is replaced, the second is: a maximum over pairs of cells, which is hard in general. It
is not searched here. Whoever plans searches, and hands over a `Certificate` that says how to bound it; this module
does what it says, in integers. A wrong certificate is refused or proves less; none can prove too little.

A person of r rows changes r^p times as much. A person's row may also vanish, so that a column of zeros joins the others
and the total is not public.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from sfumato._util.codec import storable
from sfumato.errors import PlanError, WorkloadError
from sfumato.maps import BlockMap, CombinationMap, DenseMap, FamilyMap, MergedMap
from sfumato.maps.base import DENSE_LIMIT, INT64, Numbers
from sfumato.privacy.accounting import Event, GaussianEvent, PureEvent, ZcdpEvent
from sfumato.privacy.grouped_rows import (
    coarser_groups,
    column_products,
    grouped_change,
    grouped_columns,
    paired_change,
    phantom_change,
)
from sfumato.privacy.measures import over_hull, widened
from sfumato.privacy.noise import DiscreteGaussian, DiscreteLaplace, NoiseLaw, RoundedGaussian
from sfumato.privacy.sums import Bound, Bundle, Clique, Feature, Products, SumOfProducts, least_symmetric, set_products
from sfumato.privacy.terms import (
    Inside,
    MapTerms,
    Sizes,
    broadcast_on_axes,
    combined_columns,
    distinct_columns,
    joint_gram,
)
from sfumato.privacy.unit import Neighbours, PrivacyUnit

Blocks = BlockMap | FamilyMap | CombinationMap
Method = Literal["apart", "cells", "pairs", "classes", "cliques", "products"]

# What is looked at where all pairs of cells are: cells of one group, and of several; all entries.
_MOST_CELLS_ALONE, _MOST_CELLS_JOINT, _MOST_PAIRED = 5_000, 1_000, 2**30
_MOST_DOMINANCE = 2_000  # rows compared pair by pair: seconds
_MOST_ABSOLUTE = 2**20  # entries of one block's table of L1 distances
_FEW_ROWS = 8  # of all factors of a group whose cells are held against each other: more seldom have few ends
_FEW_CELLS = 64  # of the whole table, of which all pairs are looked at unasked


@storable
@dataclass(frozen=True, slots=True)
class Sensitivity:
    """The largest sum of |change|^power over neighbours: L1 for power 1, squared L2 for power 2.

    `exact` is False where `value` is a proved upper bound that need not be attained.
    """

    power: int
    value: int
    exact: bool


@storable
@dataclass(frozen=True, slots=True)
class Certificate:
    """How to bound the largest distance of two columns; proposed in public, believed in nothing.

    method: "apart" adds up what every block has at most; "cells" looks at all pairs of cells of one group, or of
    the whole matrix for L1; "pairs" at all combinations of pairs of cells, one per group. The others look at which
    attributes change, where only that matters or as if only that did; the variables are the groups, in the order of
    `Terms`, then the slots: "classes" has a class per variable, "cliques" cliques in the order of their elimination,
    "products" weights close to products (both in sums.py).
    """

    method: Method = "apart"
    classes: tuple[int, ...] = ()
    cliques: tuple[Clique, ...] = ()
    products: Products | None = None


def certified_bound(
    blocks: Sequence[Blocks],
    sizes: Sizes,
    unit: PrivacyUnit,
    power: int,
    certificate: Certificate | None = None,
    measures: Sequence[str] = (),
) -> int:
    """An upper bound of max ||B(x - x')||_p^p over neighbouring tables x, x', for all blocks together.

    power 1 or 2. For replace-one without a certificate all pairs of few cells are looked at; of many, what every
    block has at most is added up. It is never above the largest column twice, or 2^power times with negative entries.
    Raises as `best_certified`, and PlanError for a certificate that does not fit.
    """
    if certificate is None:
        return best_certified(blocks, sizes, unit, power, _default_certificates, measures=measures)[0].value
    return best_certified(blocks, sizes, unit, power, lambda _: (certificate,), (), measures)[0].value


def best_certified(
    blocks: Sequence[Blocks],
    sizes: Sizes,
    unit: PrivacyUnit,
    power: int,
    propose: Callable[[ColumnPairs], Iterable[Certificate]],
    passed_over: tuple[type[Exception], ...] = (PlanError, WorkloadError),
    measures: Sequence[str] = (),
) -> tuple[Sensitivity, Certificate | None]:
    """The least that proposals prove, up to the first that is reached, and which it was: none for the simple bound.

    For replace-one; where a row may come or go, the largest column is it. Proposals that raise what is passed over
    are. Combinations are priced from their distinct columns, each by itself, and added; proposals are for the rest.
    `measures` are attributes whose cells a record shares; see `measures.py`.
    Raises PlanError for another power, WorkloadError for factors that do not fit.
    """
    if type(power) is not int or power not in (1, 2):
        raise PlanError(f"a sensitivity is L1 (power 1) or L2 (power 2), not {power!r}")
    if any(a in measures for a in unit.once_per):
        raise PlanError("once_per= groups rows by cells, and a measure has none; name other attributes")
    if any(a in measures for b in blocks for a in b.attributes):
        # of several rows, too: each is a mean of corners of its own cell, so all together one of corners' sums
        hull, cells, rounded = over_hull(blocks, sizes, measures, power)
        found, best = best_certified(hull, cells, unit, power, propose, passed_over)
        records = unit.rows_per_person * (2 if unit.neighbours is Neighbours.REPLACE_ONE else 1)
        return replace(found, value=widened(found.value, records * rounded, power), exact=False), best
    if unit.once_per:
        return _grouped_sensitivity(blocks, sizes, unit, power, propose, passed_over)
    plain = [b for b in blocks if not isinstance(b, CombinationMap)]
    if len(plain) < len(blocks):
        # no record changes all of them by more than each at its worst
        rest, best = best_certified(plain, sizes, unit, power, propose, passed_over) if plain else (None, None)
        # of its columns nobody knows in which groups they lie: any may be replaced by any
        whole = replace(unit, within=None)
        parts = [_combination_sensitivity(b, sizes, whole, power) for b in blocks if isinstance(b, CombinationMap)]
        parts += [rest] if rest else []
        exact = len(parts) == 1 and parts[0].exact and unit.within is None
        return Sensitivity(power, sum(p.value for p in parts), exact), best
    terms = MapTerms.of(plain, sizes, power, unit.within)
    column = largest_column_sum(terms, sizes)
    bound, best = column, None
    if unit.neighbours is Neighbours.REPLACE_ONE:
        pairs = ColumnPairs(terms, sizes, column[0])
        # |a - b|^p <= 2^(p - 1) (|a|^p + |b|^p), without 2^(p - 1) for entries that are not negative
        bound = (2 if terms.nonnegative else 2**power) * column[0], False
        for proposed in propose(pairs):
            with suppress(*passed_over):
                found = pairs.bound(proposed)
                if (found[0], not found[1]) < (bound[0], not bound[1]):
                    bound, best = found, proposed
            if bound[1]:
                break
        if not unit.total_is_public:
            # a row may vanish without another taking its place: a zero column joins the pairs
            bound = max(bound, column)
    return Sensitivity(power, bound[0] * unit.rows_per_person**power, bound[1]), best


def _grouped_sensitivity(
    blocks: Sequence[Blocks],
    sizes: Sizes,
    unit: PrivacyUnit,
    power: int,
    propose: Callable[[ColumnPairs], Iterable[Certificate]],
    passed_over: tuple[type[Exception], ...],
) -> tuple[Sensitivity, Certificate | None]:
    """That of a person of whose rows few lie in each group: at most that of any rows, which a certificate may prove."""
    alike = replace(unit, once_per=(), rows_per_group=1)
    anyhow, best = best_certified(blocks, sizes, alike, power, propose, passed_over)
    plain = [b for b in blocks if not isinstance(b, CombinationMap)]
    # of a combination nobody knows which of its columns lie in different groups: any two may be the same
    one = PrivacyUnit(Neighbours.ADD_REMOVE)
    combined = [_combination_sensitivity(b, sizes, one, power).value for b in blocks if isinstance(b, CombinationMap)]
    terms = MapTerms.of(plain, sizes, power)
    norm = largest_column_sum(terms, sizes)[0]
    ways = coarser_groups(unit, sizes)
    if power == 1:
        found = [grouped_columns(terms, norm, sum(combined), way, sizes) for way in ways]
    else:
        rest = sum(combined)
        found = [grouped_change(column_products(terms, sizes, way, norm).beside(rest), way, sizes) for way in ways]
        times = 1 if unit.neighbours is Neighbours.ADD_REMOVE else 2 if terms.nonnegative else 4
        for way in ways if plain and not combined else ():
            for change in (paired_change, phantom_change):
                with suppress(PlanError, WorkloadError):
                    found.append(times * change(terms, sizes, way))
    return Sensitivity(power, min([anyhow.value, *found]), exact=False), best


def _default_certificates(pairs: ColumnPairs) -> Iterable[Certificate]:
    few = math.prod(pairs.terms.cells) <= _FEW_CELLS
    return map(Certificate, ("cells", "pairs", "apart") if few else ("apart",))


def _combination_sensitivity(combined: CombinationMap, sizes: Sizes, unit: PrivacyUnit, power: int) -> Sensitivity:
    """That of one matrix whose cells are the distinct columns, all pairs of which are looked at where they can be."""
    over = combined_columns(combined, sizes)
    alone, cells = [BlockMap((("column",),), (over,))], {"column": over.shape[1]}
    return best_certified(
        alone, cells, unit, power, lambda pairs: (Certificate("cells"), *_default_certificates(pairs))
    )[0]


@dataclass(frozen=True)
class ColumnPairs:
    """All pairs of columns of a measurement; `column` bounds one column."""

    terms: MapTerms
    sizes: Sizes
    column: int

    @property
    def squared(self) -> bool:
        """Whether distances are squares: between entries 0 and a, |difference| = difference^2 / a, so power 1 has the
        scale of power 1."""
        return self.terms.power == 2 or self.terms.binary

    @cached_property
    def ends(self) -> tuple[MapTerms, Sizes]:
        """The same over some cells of every group of attributes, and as far apart: see `distinct_columns`.

        A distance is convex in what the slots of one group have at either of its cells. Of many rows, and where not
        every record may stand in each other's place, all cells stay.
        """
        terms, sizes = self.terms, dict(self.sizes)
        groups, cells, slots = list(terms.groups), list(terms.cells), list(terms.slots)
        for g, names in enumerate(terms.groups):
            own = terms.of_group(g)
            blocks = [BlockMap(*map(tuple, zip(*slots[i].inside, strict=True))) for i in own]
            heights = [b.rows for b in blocks]
            if all(slots[i].alike for i in own) or terms.near[g] is not None or sum(heights) > _FEW_ROWS:
                continue
            with suppress(PlanError, WorkloadError):
                found = distinct_columns(blocks, sizes, ends=True)
                groups[g], cells[g], sizes[names[0]] = names[:1], found.shape[1], found.shape[1]
                for i, rows in zip(own, np.split(found, np.cumsum(heights)[:-1]), strict=True):
                    slots[i] = replace(slots[i], inside=((names[:1], DenseMap(rows)),), alike=None)
        return replace(terms, groups=tuple(groups), cells=tuple(cells), slots=tuple(slots)), sizes

    @cached_property
    def changes(self) -> Changes:
        """The distance where all cells of every group are alike, otherwise a bound of it."""
        return (
            _squared_distance(self.terms, self.sizes, self.column) if self.squared else _absolute_distance(self.terms)
        )

    def bound(self, certificate: Certificate) -> Bound:
        """What a certificate proves of the largest distance. Raises PlanError where it does not fit."""
        terms, sizes = self.ends if certificate.method in ("cells", "pairs") else (self.terms, self.sizes)
        if certificate.method == "cells":
            # of the distinct columns of a whole matrix nobody knows the groups
            exact = self.squared or all(n is None for n in terms.near)
            return (_one_group_distance if self.squared else _whole_matrix_distance)(terms, sizes), exact
        if certificate.method == "pairs" and self.squared:
            tables = [_pairs_of_cells(terms, g, sizes) for g in range(len(terms.groups))]
            return _group_patterns(terms, tables, (1, 1, -2)).largest()
        return self.changes.bound(certificate)


# ---- all cells, or all pairs of cells, of every group ----------------------------------------------------


def _group_patterns(terms: MapTerms, tables: Sequence[Numbers], signs: Sequence[int]) -> SumOfProducts:
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


def largest_column_sum(terms: MapTerms, sizes: Sizes) -> Bound:
    """The largest sum of |entries|^power of a column, or a bound of it where there are too many combinations."""
    total = _group_patterns(terms, [_column_patterns(terms, g, sizes) for g in range(len(terms.groups))], (1,))
    with suppress(PlanError):
        return total.largest()
    return total.apart()


def _column_patterns(terms: MapTerms, group: int, sizes: Sizes) -> Numbers:
    """(patterns, slots, 1): the distinct column sums of a group's slots over its cells."""
    names = terms.groups[group]
    columns: list[Numbers] = []
    for slot in terms.of_group(group):
        table: Numbers = np.ones((1,) * len(names), dtype=object)
        for some, factor in terms.slots[slot].inside:
            sums = factor.column_sums(terms.power)
            table = table * (sums[0] if (sums == sums[0]).all() else broadcast_on_axes(sums, some, names, sizes))
        columns.append(table)
    if len(columns) < 2:
        return np.array([max(c.flat) for c in columns], dtype=object).reshape(1, len(columns), 1)
    full = np.broadcast_shapes(*(c.shape for c in columns))
    rows = sorted(set(zip(*(np.broadcast_to(c, full).reshape(-1).tolist() for c in columns), strict=True)))[::-1]
    kept: list[tuple[int, ...]] = rows if len(rows) > _MOST_DOMINANCE else []
    if not kept:
        # a maximum of products of numbers of at least 0 needs no row that another reaches in every entry
        for row in rows:
            if not any(all(a >= b for a, b in zip(k, row, strict=True)) for k in kept):
                kept.append(row)
    return np.array(kept, dtype=object)[:, :, None]


def _pairs_of_cells(terms: MapTerms, group: int, sizes: Sizes) -> Numbers:
    """(patterns, slots, 3): G(u,u), G(v,v), G(u,v) for every distinct ordered pair of cells.

    In several groups at once the two cells of a pair may stand in either order.
    """
    own = [terms.slots[i] for i in terms.of_group(group)]
    alike = [s.ends for s in own if s.alike]
    if len(alike) == len(own):
        # cells that agree, and two others
        triples = [[(s, s, s) for s, _ in alike], [(s, s, o) for s, o in alike]][: min(terms.cells[group], 2)]
        return np.array(triples, dtype=object).reshape(len(triples), len(own), 3)
    cells = terms.cells[group]
    if cells > _MOST_CELLS_JOINT:
        raise PlanError("there are too many cells to look at all pairs of them")
    u, v = np.nonzero(terms.pairs(group))
    grams = [joint_gram(s.inside, terms.groups[group], sizes) for s in own]
    columns = [c for gram in grams for c in (gram[u, u], gram[v, v], gram[u, v])]
    if any(c.dtype.kind == "O" for c in columns):
        rows = set(zip(*(c.tolist() for c in columns), strict=True))
        return np.array(sorted(rows), dtype=object).reshape(len(rows), -1, 3)
    found = np.unique(np.stack(columns, axis=1), axis=0)
    return found.reshape(len(found), -1, 3)


def _one_group_distance(terms: MapTerms, sizes: Sizes) -> int:
    """The largest squared distance where one group holds all attributes. Raises PlanError for too many cells."""
    if len(terms.groups) != 1 or terms.cells[0] > _MOST_CELLS_ALONE:
        raise PlanError("all pairs of cells are looked at of one group of few cells")
    # blocks over nothing are the same for all cells
    weights = [
        sum(int(b.weights[(b.sets == i).any(axis=1)].sum()) for b in terms.bundles) for i in range(len(terms.slots))
    ]
    common = math.gcd(*weights) or 1
    total = np.zeros((terms.cells[0],) * 2, dtype=np.int64)
    bound = 0
    for slot, weight in zip(terms.slots, weights, strict=True):
        gram = joint_gram(slot.inside, terms.groups[0], sizes)
        top = int(np.abs(gram).max())
        bound += 4 * (weight // common) * top
        if bound >= INT64:
            raise PlanError("the entries are too large to look at all pairs of cells")
        if weight and top:
            total += (weight // common) * gram.astype(np.int64)
    norms, pairs = np.diagonal(total), terms.pairs(0)
    return max(int((norms + norms[u] - 2 * total[u])[pairs[u]].max()) for u in range(len(total))) * common


def _whole_matrix_distance(terms: MapTerms, sizes: Sizes) -> int:
    """The largest L1 distance from the whole matrix. Raises PlanError where that is too large."""
    cells = math.prod(terms.cells)
    heights = [math.prod(f.shape[0] for _, f in s.inside) for s in terms.slots]
    height = sum(int(set_products(heights, b.sets).sum()) for b in terms.bundles)
    # a weight may be large where a block is 0
    top = max(2 * terms.dot([s.top(1) for s in terms.slots]), *(int(b.weights.max()) for b in terms.bundles), 0)
    if cells * cells * height > (_MOST_PAIRED if top < INT64 else _MOST_PAIRED >> 8) or cells * height > DENSE_LIMIT:
        raise PlanError("there are too many entries to compare all pairs of columns")
    rows = [row for sets, weights in terms.bundles for row in zip(sets.tolist(), weights.tolist(), strict=True)]
    insides = [[pair for i in own for pair in terms.slots[i].inside] for own, _ in rows]
    blocks = [BlockMap(tuple(g for g, _ in inside), tuple(f for _, f in inside)) for inside in insides]
    weights = np.repeat(np.array([w for _, w in rows], dtype=object), [b.rows for b in blocks])
    matrix = distinct_columns(blocks, sizes) * weights.astype(np.int64 if top < INT64 else object)[:, None]
    return max(int(np.abs(matrix - matrix[:, [j]]).sum(axis=0).max()) for j in range(matrix.shape[1]))


# ---- which attributes change -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Changes:
    """A distance as times (constant + sum), by which attributes change: state 0 agrees, state 1 does not.

    exact: whether some pair of cells is that far in every state.
    """

    times: int
    constant: int
    sum: SumOfProducts
    exact: bool

    def bound(self, certificate: Certificate) -> Bound:
        """The distance at most, by a bound of the sum."""
        match certificate:
            case Certificate("apart"):
                value, reached = self.sum.apart()
            case Certificate("classes", classes):
                value, reached = self.sum.in_classes(classes).largest()
            case Certificate("cliques", _, cliques):
                value, reached = self.sum.eliminated(cliques)
            case Certificate("products", products=Products() as given):
                value, reached = -least_symmetric(self.sum, given), False
            case _:
                raise PlanError(f"a certificate's method is not {certificate.method!r} for this measurement")
        return self.times * (self.constant + value), reached and self.exact


def _squared_distance(terms: MapTerms, sizes: Sizes, column: int) -> Changes:
    """Two norms, at most `column` each, less twice an inner product.

    A factor with other cells has norms up to its largest and inner products down to its least; the sum of
    products of inner products is least where each is at an end of its range, and each factor may choose: it has a
    variable of its own.
    """
    features: dict[int, Feature] = {}
    same: list[int] = []
    for i, slot in enumerate(terms.slots):
        top, other = (
            slot.ends if slot.alike else _least_inner_product(slot.inside, terms, slot.group, sizes, slot.top(2))
        )
        same.append(top)
        if top != other:
            features[i] = (slot.group if slot.alike else len(terms.groups) + i, np.array([top, other], dtype=object))
    total = SumOfProducts.of([2] * (len(terms.groups) + len(terms.slots)), [(features, same, -1)], terms.bundles)
    return Changes(2, column, total, all(s.alike for s in terms.slots))


def _least_inner_product(inside: Inside, terms: MapTerms, group: int, sizes: Sizes, top: int) -> tuple[int, int]:
    """(the largest norm, the least inner product of two columns that count, or less)."""
    near, factor = terms.near[group], inside[0][1]
    if terms.cells[group] <= _MOST_CELLS_JOINT:
        with suppress(PlanError, WorkloadError):
            return top, int(joint_gram(inside, terms.groups[group], sizes)[terms.pairs(group)].min())
    elif near is not None and inside[0][0] == terms.groups[group]:
        codes = factor.codes if isinstance(factor, MergedMap) else np.arange(len(near))
        _, first, number = np.unique(near, return_index=True, return_inverse=True)
        if np.array_equal(codes[first][number], codes):
            # two cells of one group have the same column
            return top, int(min(factor.column_sums(2)))
    return top, 0 if all(f.nonnegative for _, f in inside) else -top


def _absolute_distance(terms: MapTerms) -> Changes:
    """The L1 distance of blocks whose cells are all alike, and for other blocks twice their columns."""
    tops = [s.top(1) for s in terms.slots]
    kinds = list(dict.fromkeys(s.alike for s in terms.slots))
    kind = np.array([kinds.index(s.alike) for s in terms.slots], dtype=np.intp)
    group = np.array([s.group for s in terms.slots], dtype=np.intp)
    constant = 0
    parts: list[Bundle] = []
    for sets, weights in terms.bundles:
        found, which = np.unique(kind[sets], axis=0, return_inverse=True)
        for i, row in enumerate(found.tolist()):
            own = [kinds[k] or () for k in row]
            rows = np.flatnonzero(which.reshape(-1) == i)
            if () in own or (2 * max(map(len, own), default=0)) ** len(own) > _MOST_ABSOLUTE:
                constant += 2 * int((weights[rows] * set_products(tops, sets[rows])).sum())
                continue
            table = _absolute_distance_table(own)
            for index in np.argwhere(table):
                parts.append(Bundle(2 * group[sets[rows]] + index, weights[rows] * table[tuple(index)]))
    count = len(terms.groups)
    either = [np.array(e, dtype=object) for e in ([1, 0], [0, 1])]
    features = {2 * g + k: (g, either[k]) for g in range(count) for k in (0, 1)}
    return Changes(1, constant, SumOfProducts.of([2] * count, [(features, [1] * (2 * count), 1)], parts), constant == 0)


def _absolute_distance_table(columns: Sequence[Sequence[tuple[int, int, int]]]) -> Numbers:
    """(2, 2, ...) L1 distances by which factors change, from how often their pairs of entries stand there."""
    shape = (2,) * len(columns)
    count = first = np.ones((), dtype=object)
    second = np.ones(shape, dtype=object)[..., None]
    for axis, rows in enumerate(columns):
        n, a, b = (np.array(v, dtype=object) for v in zip(*rows, strict=True))
        count, first = (np.multiply.outer(x, v).reshape(-1) for x, v in ((count, n), (first, a)))
        ends = np.stack([a, b]).reshape(*(2 if i == axis else 1 for i in range(len(shape))), 1, -1)
        second = (second[..., None] * ends).reshape(*shape, -1)
    return np.asarray((count * np.abs(first - second)).sum(axis=-1), dtype=object)


def sensitivity_power(noise: NoiseLaw) -> int:
    """Which sensitivity prices a law: 1 (L1) for Laplace, 2 (squared L2) for Gaussian noise."""
    return 1 if isinstance(noise, DiscreteLaplace) else 2


def noise_fits_price(found: Sensitivity, noise: NoiseLaw, price: Event) -> bool:
    """Whether measuring at this sensitivity with this noise costs at most `price`; exact rationals decide."""
    # by the exact classes: one that derives from them may draw or state something else
    if type(noise) is RoundedGaussian and type(price) is GaussianEvent:
        return found.power == 2 and found.value <= price.mu_squared * noise.sigma**2
    if type(noise) is DiscreteGaussian and type(price) is ZcdpEvent:
        return found.power == 2 and found.value <= 2 * price.rho * noise.sigma**2
    if type(noise) is DiscreteLaplace and type(price) is PureEvent:
        return found.power == 1 and found.value <= price.epsilon * noise.scale
    return False
