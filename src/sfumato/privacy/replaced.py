"""How far two columns of integer maps are apart: what a record that is replaced by another changes.

The squared distance of the columns of two cells u and v is, summed over blocks b with Gram matrices G_bg of factors,

    sum_b [ prod_g G_bg(u_g, u_g) + prod_g G_bg(v_g, v_g) - 2 prod_g G_bg(u_g, v_g) ]

Its maximum over pairs of cells is hard in general. It is not searched here. Whoever plans searches, and hands over a
`Certificate` that says how to bound it; this module does what it says, in integers. A wrong certificate is refused or
proves less; none can prove too little.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from sfumato._util.codec import storable
from sfumato.errors import PlanError, WorkloadError
from sfumato.maps import BlockMap, DenseMap, MergedMap
from sfumato.maps.base import DENSE_LIMIT, INT64, Numbers
from sfumato.privacy.certified_sums import Clique, Products, eliminate_cliques, least_symmetric, merge_classes
from sfumato.privacy.columns import distinct_columns, joint_gram
from sfumato.privacy.joined_pairs import longest_difference
from sfumato.privacy.sums import Bound, Bundle, Feature, SumOfProducts, set_products
from sfumato.privacy.terms import Inside, MapTerms, Sizes, group_patterns

Method = Literal["apart", "cells", "pairs", "joined", "classes", "cliques", "products"]

# What is looked at where all pairs of cells are: cells of one group, and of several; all entries.
_MOST_CELLS_ALONE, _MOST_CELLS_JOINT, _MOST_PAIRED = 5_000, 1_000, 2**30
_MOST_ABSOLUTE = 2**20  # entries of one block's table of L1 distances
_FEW_ROWS = 8  # of all factors of a group whose cells are held against each other: more seldom have few ends
_FEW_CELLS = 64  # of the whole table, of which all pairs are looked at unasked


@storable
@dataclass(frozen=True, slots=True)
class Certificate:
    """How to bound the largest distance of two columns; proposed in public, believed in nothing.

    method: "apart" adds up what every block has at most; "cells" looks at all pairs of cells of one group, or of
    the whole matrix for L1; "pairs" at all combinations of pairs of cells, one per group, and "joined" at those of
    classes of pairs, one per attribute. The others look at which
    attributes change, where only that matters or as if only that did; the variables are the groups, in the order of
    `Terms`, then the slots: "classes" has a class per variable, "cliques" cliques in the order of their elimination,
    "products" weights close to products (both in sums.py).
    """

    method: Method = "apart"
    classes: tuple[int, ...] = ()
    cliques: tuple[Clique, ...] = ()
    products: Products | None = None


def default_certificates(pairs: ColumnPairs) -> Iterable[Certificate]:
    few = math.prod(pairs.terms.cells) <= _FEW_CELLS
    return map(Certificate, ("cells", "pairs", "apart") if few else ("apart",))


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
            return group_patterns(terms, tables, (1, 1, -2)).largest()
        if certificate.method == "joined" and terms.power == 2:
            return longest_difference(terms, sizes), True
        return self.changes.bound(certificate)


# ---- all pairs of cells of every group -------------------------------------------------------------------


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
                value, reached = merge_classes(self.sum, classes).largest()
            case Certificate("cliques", _, cliques):
                value, reached = eliminate_cliques(self.sum, cliques)
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
