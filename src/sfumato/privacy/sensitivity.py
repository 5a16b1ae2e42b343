"""What integer maps cost: exact integer bounds of how far neighbouring tables are apart; home of the relation.

A measurement is a list of blocks, each a Kronecker product of integer factors. The column of all blocks that belongs
to a cell u = (u_1, u_2, ...) has, summed over blocks b,

    sum of |entries|^p         = sum_b prod_g c_bg(u_g)
    squared distance to v      = sum_b [ prod_g G_bg(u_g, u_g) + prod_g G_bg(v_g, v_g) - 2 prod_g G_bg(u_g, v_g) ]

with c the column sums and G the Gram matrix of factor g. Where a row may come or go, the first is what counts, and
it is found here. Where a row is replaced, the second is: a maximum over pairs of cells, which is hard in general. It
is not searched here. Whoever plans searches, and hands over a `Certificate` that says how to bound it; this module
does what it says, in integers. A wrong certificate is refused or proves less; none can prove too little.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sfumato.errors import PlanError
from sfumato.ground.codec import storable
from sfumato.maps import AlikeMap, BlockMap, FamilyMap, KroneckerMap, MergedMap
from sfumato.maps.linear import DENSE_LIMIT, INT64, Numbers
from sfumato.privacy.maxima import Bucket, Feature, Sum
from sfumato.privacy.products import Products, least_symmetric
from sfumato.privacy.terms import Bundle, Inside, Terms, on_axes, products
from sfumato.privacy.unit import Neighbours, PrivacyUnit

__all__ = [
    "Certificate",
    "Sensitivity",
    "absolute_changes",
    "certified",
    "largest_column",
    "largest_distance",
    "price_changes",
]

Sizes = Mapping[str, int]
Method = Literal["apart", "cells", "pairs", "changes"]

# What is looked at where all pairs of cells are: cells of one group, of several, with Python integers; all entries.
MOST_CELLS_ALONE, MOST_CELLS_JOINT, MOST_CELLS_HUGE = 5_000, 1_000, 400
MOST_PAIRED_ENTRIES = 2**30
MOST_WORK = 1_000_000_000
_MOST_DOMINANCE = 2_000
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
    the whole matrix for L1; "pairs" at all combinations of pairs of cells, one per group; "changes" at which
    attributes change, where only that matters or as if only that did.
    For "changes", the variables are the groups, in the order of `Terms`, then the slots: `classes` is a class per
    variable (empty for none), `buckets` are cliques of classes (or variables) in the order of their elimination
    [DR03] (see maxima.py), and `products`, in their place, weights close to products (see products.py).
    """

    method: Method = "apart"
    classes: tuple[int, ...] = ()
    buckets: tuple[Bucket, ...] = ()
    products: Products | None = None


def certified(
    blocks: Sequence[BlockMap | FamilyMap],
    sizes: Sizes,
    unit: PrivacyUnit,
    power: int,
    certificate: Certificate | None = None,
) -> int:
    """An upper bound of max ||B(x - x')||_p^p over neighbouring tables x, x', for all blocks together.

    power 1 or 2. For replace-one without a certificate all pairs of few cells are looked at; of many, what every
    block has at most is added up. It is never above the largest column twice, or 2^power times with negative entries.
    Raises PlanError for another power or a certificate that does not fit, WorkloadError for factors that do not.
    """
    if type(power) is not int or power not in (1, 2):
        raise PlanError(f"a sensitivity is L1 (power 1) or L2 (power 2), not {power!r}")
    terms = Terms.of(blocks, sizes, power)
    found = column = largest_column(terms, sizes)[0]
    if unit.neighbours is Neighbours.REPLACE_ONE:
        # |a - b|^p <= 2^(p - 1) (|a|^p + |b|^p), without 2^(p - 1) for entries that are not negative
        found = (2 if all(f.nonnegative for f in terms.factors()) else 2**power) * column
        for proposed in (certificate,) if certificate else _usual(terms):
            with suppress(*() if certificate else (PlanError,)):
                found = min(found, largest_distance(terms, sizes, column, proposed))
        if not unit.total_is_public:
            # a row may vanish without another taking its place: a zero column joins the pairs
            found = max(found, column)
    return found * unit.rows_per_person**power


def _usual(terms: Terms) -> tuple[Certificate, ...]:
    """What is tried where nothing is proposed."""
    apart = Certificate()
    return (Certificate("cells"), Certificate("pairs"), apart) if math.prod(terms.cells) <= _FEW_CELLS else (apart,)


def largest_distance(terms: Terms, sizes: Sizes, column: int, certificate: Certificate) -> int:
    """What a certificate proves of the largest distance; `column` bounds one column.

    Raises PlanError where it does not fit.
    """
    # between entries 0 and a, |difference| = difference^2 / a, so power 1 has the scale of power 1
    squared = terms.power == 2 or all(f.binary for f in terms.factors())
    if certificate.method == "cells":
        return _one_group(terms, sizes) if squared else _whole_matrix(terms, sizes)
    if certificate.method == "pairs" and squared:
        pairs = combined_pairs(terms, sizes)
        return pairs.largest((), ((tuple(range(len(pairs.states))), ()),))
    found = price_changes(terms, sizes, column) if squared else absolute_changes(terms)
    if certificate.method == "changes" and certificate.products is not None and squared:
        return found.times * (found.constant - least_symmetric(found.sum, certificate.products))
    if certificate.method == "changes":
        return found.times * (found.constant + found.sum.largest(certificate.classes, certificate.buckets))
    if certificate.method == "apart":
        return found.apart
    raise PlanError(f"a certificate's method is not {certificate.method!r} for this measurement")


# ---- columns -----------------------------------------------------------------------------------------


def largest_column(terms: Terms, sizes: Sizes) -> tuple[int, bool]:
    """(the largest sum of |entries|^power of a column, or a bound of it; whether it is reached)."""
    tops = [1] * len(terms.slots)
    states: list[int] = []
    features: dict[int, Feature] = {}
    for group in range(len(terms.groups)):
        own, rows = terms.of_group(group), _column_patterns(terms, group, sizes)
        for k, slot in enumerate(own):
            tops[slot] = max(row[k] for row in rows)
            if len(rows) > 1:
                features[slot] = (len(states), np.array([row[k] for row in rows], dtype=object))
        states += [len(rows)] * (len(rows) > 1)
    if states and math.prod(states) * len(terms) <= MOST_WORK:
        total = Sum(tuple(states), tuple(features.values()), _rest(terms.bundles, list(features), tops))
        return total.largest((), ((tuple(range(len(states))), ()),)), True
    return terms.dot(tops), not states


def _column_patterns(terms: Terms, group: int, sizes: Sizes) -> list[tuple[int, ...]]:
    """The distinct column sums, one per slot of a group, over its cells."""
    names = terms.groups[group]
    columns: list[Numbers] = []
    for slot in terms.of_group(group):
        table: Numbers = np.ones((1,) * len(names), dtype=object)
        for some, factor in terms.slots[slot].inside:
            sums = factor.column_sums(terms.power)
            table = table * (sums[0] if factor.exchangeable else on_axes(sums, some, names, sizes))
        columns.append(table)
    if len(columns) == 1:
        return [(max(columns[0].flat),)]
    full = np.broadcast_shapes(*(c.shape for c in columns))
    rows = sorted(set(zip(*(np.broadcast_to(c, full).reshape(-1).tolist() for c in columns), strict=True)))[::-1]
    if len(rows) > _MOST_DOMINANCE:
        return rows
    # a maximum of products of numbers of at least 0 needs no row that another reaches in every entry
    kept: list[tuple[int, ...]] = []
    for row in rows:
        if not any(all(a >= b for a, b in zip(k, row, strict=True)) for k in kept):
            kept.append(row)
    return kept


def _rest(
    bundles: Sequence[Bundle], kept: Sequence[int], constants: Sequence[int], scale: int = 1
) -> tuple[Bundle, ...]:
    """Bundles over some of the positions, numbered anew; others are factors of the weights."""
    place = np.full(len(constants) + 1, -1, dtype=np.intp)
    place[kept] = np.arange(len(kept))
    out: list[Bundle] = []
    for b in bundles:
        on = place[b.sets] >= 0
        if on.all():
            out.append(Bundle(place[b.sets], b.base, b.exponent, scale))
            continue
        for shape in np.unique(on, axis=0):
            rows = np.flatnonzero((on == shape).all(axis=1))
            sets = b.sets[rows]
            weights = b.take(rows).weights() * products(constants, sets[:, ~shape])
            out.append(Bundle(place[sets[:, shape]], weights, 1, scale))
    return tuple(out)


# ---- which attributes change -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Changes:
    """A distance as times (constant + sum), by which attributes change; `apart`: a bound without any certificate."""

    times: int
    constant: int
    sum: Sum
    apart: int


def price_changes(terms: Terms, sizes: Sizes, column: int) -> Changes:
    """The squared distance where all cells of every group are alike, otherwise a bound of it.

    Two norms, at most `column` each, less twice an inner product. A factor with other cells has norms up to its
    largest and inner products down to its least; the sum of products of inner products is least where each is at an
    end of its range, and each factor may choose: it has a variable of its own.
    """
    features: dict[int, Feature] = {}
    same: list[int] = []
    for i, slot in enumerate(terms.slots):
        group = terms.groups[slot.group]
        alike = slot.covers(group)
        if alike:
            pairs = slot.inside[0][1].pairs()
            same.append(sum(n * a * a for n, a, _ in pairs))
            other = sum(n * a * b for n, a, b in pairs)
        else:
            same.append(slot.top(2))
            other = _least_inner(slot.inside, group, sizes, same[-1])
        if same[-1] != other:
            variable = slot.group if alike else len(terms.groups) + i
            features[i] = (variable, np.array([same[-1], other], dtype=object))
    states = (2,) * (len(terms.groups) + len(terms.slots))
    total = Sum(states, tuple(features.values()), _rest(terms.bundles, list(features), same, -1))
    return Changes(2, column, total, 2 * (column + total.largest_apart()))


def _least_inner(inside: Inside, group: tuple[str, ...], sizes: Sizes, top: int) -> int:
    """The least inner product of two columns, or less."""
    if math.prod(sizes[a] for a in group) <= MOST_CELLS_JOINT:
        gram = _joint_gram(inside, group, sizes)
        if gram is not None:
            return int(gram.min())
    return 0 if all(f.nonnegative for _, f in inside) else -top


def absolute_changes(terms: Terms) -> Changes:
    """The L1 distance of blocks whose cells are all alike, and for other blocks twice their columns."""
    tops = [s.top(1) for s in terms.slots]
    columns = [s.inside[0][1].pairs() if s.covers(terms.groups[s.group]) else () for s in terms.slots]
    kinds = list(dict.fromkeys(columns))
    kind = np.array([kinds.index(c) for c in columns], dtype=np.intp)
    place = np.array([s.group for s in terms.slots], dtype=np.intp)
    constant = apart = 0
    parts: list[Bundle] = []
    for bundle in terms.bundles:
        found, which = np.unique(kind[bundle.sets], axis=0, return_inverse=True)
        for i, own in enumerate([kinds[k] for k in row] for row in found.tolist()):
            some = bundle.take(np.flatnonzero(which.reshape(-1) == i))
            if () in own or (2 * max(map(len, own), default=0)) ** len(own) > _MOST_ABSOLUTE:
                constant += 2 * some.dot(tops)
                continue
            table = _absolute_table(own)
            apart += int(table.max()) * int(some.weights().sum())
            for index in np.argwhere(table):
                sets = 2 * place[some.sets] + index
                parts.append(Bundle(sets, some.base, some.exponent, int(table[tuple(index)])))
    either = (np.array([1, 0], dtype=object), np.array([0, 1], dtype=object))
    groups = range(len(terms.groups))
    total = Sum((2,) * len(groups), tuple((g, one) for g in groups for one in either), tuple(parts))
    return Changes(1, constant, total, constant + apart)


def _absolute_table(columns: Sequence[Sequence[tuple[int, int, int]]]) -> Numbers:
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


_MOST_ABSOLUTE = 2**20  # entries of one block's table


# ---- all pairs of cells ----------------------------------------------------------------------------------


def combined_pairs(terms: Terms, sizes: Sizes) -> Sum:
    """The squared distance over pairs of cells, one per group. Raises PlanError for too many."""
    states: list[int] = []
    features: list[Feature] = []
    place = np.empty((len(terms.slots), 3), dtype=np.intp)
    for group, cells in enumerate(terms.cells):
        own = terms.of_group(group)
        if all(terms.slots[i].covers(terms.groups[group]) for i in own):
            found = [terms.slots[i].inside[0][1].pairs() for i in own]
            ends = [(sum(n * a * a for n, a, _ in c), sum(n * a * b for n, a, b in c)) for c in found]
            different = cells > 1 and any(s != o for s, o in ends)
            triples = np.array(
                [[(s, s, s) for s, _ in ends], [(s, s, o) for s, o in ends]][: 1 + different], dtype=np.int64
            )
        else:
            triples = _pairs_of_cells(terms, group, sizes)
        for k, slot in enumerate(own):
            place[slot] = np.arange(len(features), len(features) + 3)
            features += [(len(states), triples[:, k, j]) for j in range(3)]
        states.append(len(triples))
    if math.prod(states) * len(terms) * 3 > MOST_WORK:
        raise PlanError("there are too many pairs of cells to look at")
    bundles = [Bundle(place[:, j][b.sets], b.base, b.exponent, s) for b in terms.bundles for j, s in _PARTS]
    return Sum(tuple(states), tuple(features), tuple(bundles))


_PARTS = ((0, 1), (1, 1), (2, -2))


def _pairs_of_cells(terms: Terms, group: int, sizes: Sizes) -> Numbers:
    """(patterns, slots, 3): G(u,u), G(v,v), G(u,v) for every distinct ordered pair of cells.

    In several groups at once the two cells of a pair may stand in either order.
    """
    cells = terms.cells[group]
    if cells > MOST_CELLS_JOINT:
        raise PlanError("there are too many cells to look at all pairs of them")
    u, v = (i.reshape(-1) for i in np.indices((cells, cells)))
    columns: list[Numbers] = []
    for slot in terms.of_group(group):
        gram = _joint_gram(terms.slots[slot].inside, terms.groups[group], sizes)
        if gram is None:
            raise PlanError("there are too many cells to look at all pairs of them")
        columns += [gram[u, u], gram[v, v], gram[u, v]]
    if any(c.dtype.kind == "O" for c in columns):
        rows = set(zip(*(c.tolist() for c in columns), strict=True))
        return np.array(sorted(rows), dtype=object).reshape(len(rows), -1, 3)
    found = np.unique(np.stack(columns, axis=1), axis=0)
    return found.reshape(len(found), -1, 3)


def _joint_gram(inside: Inside, group: tuple[str, ...], sizes: Sizes) -> Numbers | None:
    """The Gram matrix over the cells of a group: int64, or Python integers for few cells, or None."""
    shape = tuple(sizes[a] for a in group)
    cells = math.prod(shape)
    gram: Numbers = np.ones((cells, cells), dtype=np.int64)
    for names, factor in inside:
        if math.prod(factor.shape) > DENSE_LIMIT and max(factor.column_sums(2)) >= INT64:
            return None
        part = factor.gram()
        if part.dtype.kind == "O" or int(np.abs(gram).max()) * int(np.abs(part).max()) >= INT64:
            if cells > MOST_CELLS_HUGE:
                return None
            gram = gram.astype(object)
        position = np.arange(math.prod(sizes[a] for a in names))
        place = np.broadcast_to(on_axes(position, names, group, sizes), shape).reshape(-1)
        gram = gram * part[np.ix_(place, place)]
    return gram


def _one_group(terms: Terms, sizes: Sizes) -> int:
    """The largest squared distance where one group holds all attributes. Raises PlanError for too many cells."""
    if len(terms.groups) != 1 or terms.cells[0] > MOST_CELLS_ALONE:
        raise PlanError("all pairs of cells are looked at of one group of few cells")
    weights = [0] * len(terms.slots)
    for sets, found in (c for b in terms.bundles for c in b.chunks()):
        for row, weight in zip(sets.tolist(), found.tolist(), strict=True):
            for slot in row:
                weights[slot] += weight
    common = math.gcd(*weights) or 1
    total = np.zeros((terms.cells[0],) * 2, dtype=np.int64)
    bound = 0
    for slot, weight in zip(terms.slots, weights, strict=True):
        gram = _joint_gram(slot.inside, terms.groups[0], sizes)
        top = 0 if gram is None else int(np.abs(gram).max())
        bound += 4 * (weight // common) * top
        if gram is None or bound >= INT64:
            raise PlanError("the entries are too large to look at all pairs of cells")
        if weight and top:
            total += (weight // common) * gram.astype(np.int64)
    norms = np.diagonal(total)
    return max(int((norms + norms[u] - 2 * total[u]).max()) for u in range(len(total))) * common


def _whole_matrix(terms: Terms, sizes: Sizes) -> int:
    """The largest L1 distance from the whole matrix. Raises PlanError where that is too large."""
    names = [a for g in terms.groups for a in g]
    shape = tuple(sizes[a] for a in names)
    cells = math.prod(shape)
    heights = [math.prod(f.shape[0] for _, f in s.inside) for s in terms.slots]
    rows = sum(int(products(heights, b.sets).sum()) for b in terms.bundles)
    weights = [w for b in terms.bundles for w in b.weights().tolist()]
    # a weight may be large where a block is 0
    fits = max(2 * terms.dot([s.top(1) for s in terms.slots]), *weights, 0) < INT64
    if cells * cells * rows > (MOST_PAIRED_ENTRIES if fits else MOST_PAIRED_ENTRIES >> 8) or cells * rows > DENSE_LIMIT:
        raise PlanError("there are too many entries to compare all pairs of columns")
    parts: list[Numbers] = []
    for row, weight in zip((r for b in terms.bundles for r in b.sets.tolist()), weights, strict=True):
        inside = [pair for i in row for pair in terms.slots[i].inside]
        some = tuple(a for own, _ in inside for a in own)
        block = KroneckerMap((AlikeMap(1), *(f for _, f in inside)))
        codes = on_axes(np.arange(block.shape[1]), some, tuple(names), sizes)
        merged = MergedMap(block, np.broadcast_to(codes, shape).reshape(-1).astype(np.int64))
        parts.append(merged.columns().astype(np.int64 if fits else object) * weight)
    matrix = np.vstack(parts)
    return max(int(np.abs(matrix - matrix[:, [j]]).sum(axis=0).max()) for j in range(cells))
