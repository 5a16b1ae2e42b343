"""Exact integer sensitivities of integer strategies; the one home of the neighbour relation.

A strategy is a list of blocks, each a Kronecker product of integer factors. The column of the whole
strategy that belongs to a cell u = (u_1, u_2, ...) has, summed over blocks b,

    sum of |entries|^p         = sum_b prod_g c_bg(u_g)
    squared distance to v      = sum_b [ prod_g G_bg(u_g, u_g) + prod_g G_bg(v_g, v_g) - 2 prod_g G_bg(u_g, v_g) ]

with c the column sums and G the Gram matrix of factor g. Cells (or pairs) of an attribute that agree in
every block are one pattern, so only the distinct patterns of each attribute are combined; `search` finds
their best combination. Everything that decides is a Python integer.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.codec import storable
from sfumato.errors import PlanError
from sfumato.operators import Block, Identity, Kronecker, LinearOperator, OnMarginal, Residual, Scaled, Total
from sfumato.operators.base import DENSE_LIMIT, INT64, Numbers
from sfumato.operators.explicit import integer_products, sum_objects
from sfumato.privacy.search import Patterns, largest_combination
from sfumato.privacy.unit import Neighbours, PrivacyUnit

__all__ = ["Sensitivity", "exact_gram", "sensitivity"]

_MAX_CELLS_ALONE = 5_000
_MAX_CELLS_JOINT = 1_000
_MAX_CELLS_HUGE = 400
_MAX_ADDITIONS = 100_000_000
_MAX_DOMINANCE = 2_000
_MAX_FACTORS = 6

Group = tuple[str, ...]
Inside = tuple[tuple[Group, LinearOperator], ...]


@storable
@dataclass(frozen=True, slots=True)
class Sensitivity:
    """The largest sum of |change|^power over neighbours: L1 for power 1, squared L2 for power 2.

    `exact` is False where `value` is a proved upper bound that need not be attained.
    """

    power: int
    value: int
    exact: bool


def sensitivity(blocks: Sequence[Block], sizes: Mapping[str, int], unit: PrivacyUnit, power: int) -> Sensitivity:
    """The sensitivity of measuring all blocks together, in exact integers.

    power 1: max ||B(x - x')||_1; power 2: max ||B(x - x')||_2^2; over neighbouring tables x, x'.
    Raises PlanError for another power or a strategy that is not integral, WorkloadError for factors that
    do not fit `sizes`.
    """
    if type(power) is not int or power not in (1, 2):
        raise PlanError(f"a sensitivity is L1 (power 1) or L2 (power 2), not {power!r}")
    for block in blocks:
        block.check(sizes)
        if not all(f.integral for f in block.factors):
            raise PlanError("only integer strategies are measured; quantise it first")
    terms = [_Term.of(block) for block in blocks]
    groups = _joint_groups(blocks)
    one_row = unit.rows_per_person**power
    if unit.neighbours is Neighbours.ADD_REMOVE:
        column, exact = _largest_column(terms, groups, sizes, power)
        return Sensitivity(power, column * one_row, exact)
    distance, exact = _largest_distance(terms, groups, sizes, power)
    if not unit.total_is_public:
        # a row may vanish without another taking its place: a zero column joins the pairs
        column, column_exact = _largest_column(terms, groups, sizes, power)
        distance, exact = max((distance, exact), (column, column_exact))
    return Sensitivity(power, distance * one_row, exact)


@dataclass(frozen=True, slots=True)
class _Term:
    """A block with its integer multiples taken out of the factors."""

    multiple: int
    groups: tuple[Group, ...]
    factors: tuple[LinearOperator, ...]

    @classmethod
    def of(cls, block: Block) -> _Term:
        multiple = 1
        kept: Inside = ()
        for group, given in zip(block.groups, block.factors, strict=True):
            factor = given
            while isinstance(factor, Scaled) and isinstance(factor.factor, int):
                multiple, factor = multiple * abs(factor.factor), factor.operator
            if group or not isinstance(factor, Identity):
                kept += ((group, factor),)
        return cls(multiple, tuple(g for g, _ in kept), tuple(f for _, f in kept))

    def inside(self, group: Group) -> Inside:
        """The factors over attributes of one joint group."""
        return tuple((g, f) for g, f in zip(self.groups, self.factors, strict=True) if g and set(g) <= set(group))

    def outside(self, power: int) -> int:
        """The multiple, and what factors over no attribute contribute."""
        constants = (f.column_sums(power)[0] for g, f in zip(self.groups, self.factors, strict=True) if not g)
        return math.prod(map(int, constants)) * self.multiple**power


def _joint_groups(blocks: Sequence[Block]) -> list[Group]:
    """The attributes, merged where some factor joins them, as a partition."""
    partition: list[set[str]] = []
    for group in dict.fromkeys(g for b in blocks for g in b.groups):
        touching = [p for p in partition if p & set(group)]
        partition = [p for p in partition if not p & set(group)] + [set(group).union(*touching)]
    order = list(dict.fromkeys(a for b in blocks for a in b.attributes))
    return [tuple(a for a in order if a in p) for p in partition if p]


def _kinds(terms: list[_Term], group: Group) -> tuple[list[Inside], NDArray[np.intp]]:
    """What the terms do on a group, each kind once, and the kind of every term."""
    kinds: dict[object, int] = {}
    found: list[Inside] = []
    index: list[int] = []
    for term in terms:
        inside = term.inside(group)
        key = tuple((g, f if f.exchangeable else id(f)) for g, f in inside)
        if key not in kinds:
            kinds[key] = len(found)
            found.append(inside)
        index.append(kinds[key])
    return found, np.array(index, dtype=np.intp)


def _on_axes(values: Numbers, names: Group, group: Group, sizes: Mapping[str, int]) -> Numbers:
    """Values over the cells of `names` as an array that broadcasts over the cells of `group`."""
    table = values.reshape(tuple(sizes[a] for a in names))
    table = table.transpose(sorted(range(len(names)), key=lambda i: group.index(names[i])))
    return table.reshape(tuple(sizes[a] if a in names else 1 for a in group))


# ---- columns -----------------------------------------------------------------------------------------


def _largest_column(terms: list[_Term], groups: list[Group], sizes: Mapping[str, int], power: int) -> tuple[int, bool]:
    patterns = [_column_patterns(terms, g, sizes, power) for g in groups]
    scale = [t.outside(power) for t in terms]
    found = largest_combination(patterns, scale, (1,))
    if found is not None:
        return found
    tops = [p.tops()[:, 0] for p in patterns]
    return sum(s * math.prod(int(t[b]) for t in tops) for b, s in enumerate(scale)), False


def _column_patterns(terms: list[_Term], group: Group, sizes: Mapping[str, int], power: int) -> Patterns:
    """The distinct column sums, one per kind of factor, over the cells of a group."""
    kinds, index = _kinds(terms, group)
    columns: list[Numbers] = []
    for inside in kinds:
        table: Numbers = np.ones((1,) * len(group), dtype=object)
        for names, factor in inside:
            sums = factor.column_sums(power)
            table = table * (sums[0] if factor.exchangeable else _on_axes(sums, names, group, sizes))
        columns.append(table)
    if len(columns) == 1:
        return Patterns.of([[(max(columns[0].flat),)]], index)
    full = np.broadcast_shapes(*(c.shape for c in columns))
    rows = set(zip(*(np.broadcast_to(c, full).reshape(-1).tolist() for c in columns), strict=True))
    return Patterns.of([[(v,) for v in row] for row in _undominated(rows)], index)


def _undominated(rows: set[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Rows that no other row reaches in every entry; a maximum of products of non-negative numbers needs no others."""
    ordered = sorted(rows, reverse=True)
    if len(ordered) > _MAX_DOMINANCE:
        return ordered
    kept: list[tuple[int, ...]] = []
    for row in ordered:
        if not any(all(a >= b for a, b in zip(k, row, strict=True)) for k in kept):
            kept.append(row)
    return kept


# ---- pairs of columns ----------------------------------------------------------------------------------


def _largest_distance(
    terms: list[_Term], groups: list[Group], sizes: Mapping[str, int], power: int
) -> tuple[int, bool]:
    """The largest sum of |difference|^power over pairs of columns, or a bound of it."""
    if power == 1 and not all(f.binary for t in terms for f in t.factors):
        found = _subsets_l1(terms, groups, sizes) or _dense_l1(terms, groups, sizes)
    else:
        # between entries 0 and a, |difference| = difference^2 / a, so power 1 has the scale of power 1
        scale = [t.outside(power) for t in terms]
        found = _one_group(terms, groups[0], sizes, scale) if len(groups) == 1 else None
        patterns = [] if found else [_pair_patterns(terms, g, sizes) for g in groups]
        if found is None and all(p is not None for p in patterns):
            found = largest_combination([p for p in patterns if p is not None], scale, (1, 1, -2))
    if found is not None:
        return found
    # no pair is farther apart than the sum of what every block's own farthest pair is
    return min(_twice(terms, groups, sizes, power), sum(_farthest(t, groups, sizes, power) for t in terms)), False


def _twice(terms: list[_Term], groups: list[Group], sizes: Mapping[str, int], power: int) -> int:
    """A bound from the largest column: |a - b|^p <= 2^(p - 1) (|a|^p + |b|^p), without 2^(p - 1) for signs alike."""
    alike = all(f.binary for t in terms for f in t.factors)
    return (2 if alike else 2**power) * _largest_column(terms, groups, sizes, power)[0]


def _farthest(term: _Term, groups: list[Group], sizes: Mapping[str, int], power: int) -> int:
    """A bound of the largest distance in one block, tight where its factors are exchangeable."""
    if all(f.exchangeable for f in term.factors) and len(term.factors) <= _MAX_FACTORS:
        return int(_by_changed(term, power).max())
    return _twice([term], [g for g in groups if term.inside(g)], sizes, power)


def _is_simple(kinds: list[Inside], group: Group) -> bool:
    """Whether all cells of a group are alike, so that pairs are only equal or different."""
    return all(len(i) == 0 or (len(i) == 1 and len(i[0][0]) == len(group) and i[0][1].exchangeable) for i in kinds)


def _pair_patterns(terms: list[_Term], group: Group, sizes: Mapping[str, int]) -> Patterns | None:
    """G(u,u), G(v,v), G(u,v) of every kind of factor for every distinct ordered pair; None for too many cells."""
    kinds, index = _kinds(terms, group)
    cells = math.prod(sizes[a] for a in group)
    if _is_simple(kinds, group):
        columns = [_two_columns(inside[0][1]) if inside else {(1, 1): 1} for inside in kinds]
        same = [sum(n * a * a for (a, _), n in c.items()) for c in columns]
        other = [sum(n * a * b for (a, b), n in c.items()) for c in columns]
        pairs = [[(s, s, s) for s in same]]
        if cells > 1 and same != other:
            pairs.append([(s, s, o) for s, o in zip(same, other, strict=True)])
        return Patterns.of(pairs, index)
    if cells > _MAX_CELLS_JOINT:
        return None
    grams: list[Numbers] = []
    for inside in kinds:
        gram = _joint_gram(inside, group, sizes)
        if gram is None:
            return None
        grams.append(gram)
    # in several groups at once the two cells of a pair may stand in either order
    u, v = (i.reshape(-1) for i in np.indices((cells, cells)))
    triples = np.stack([np.stack([g[u, u], g[v, v], g[u, v]], axis=1) for g in grams], axis=1)
    if triples.dtype.kind == "O":
        return Patterns.of(list(dict.fromkeys(tuple(map(tuple, row)) for row in triples.tolist())), index)
    return Patterns(np.unique(triples, axis=0), index)


def _two_columns(factor: LinearOperator) -> dict[tuple[int, int], int]:
    """How often each pair of entries stands in the first two columns of an exchangeable factor (a zero pair may miss).

    Of a factor with one column, that column twice.
    """
    n = factor.shape[1]
    if n > 1 and isinstance(factor, Identity):
        return {(1, 0): 1, (0, 1): 1}
    if isinstance(factor, Total):
        return {(1, 1): 1}
    if n > 1 and isinstance(factor, Residual):
        return {(n - 1, -1): 1, (-1, n - 1): 1, (-1, -1): n - 2}
    columns = factor.apply(np.eye(n, min(2, n), dtype=np.int64))
    counted: dict[tuple[int, int], int] = {}
    for row in columns.tolist():
        key = (row[0], row[-1])
        counted[key] = counted.get(key, 0) + 1
    return counted


def _joint_gram(inside: Inside, group: Group, sizes: Mapping[str, int]) -> Numbers | None:
    """The Gram matrix over the cells of a group: int64, or Python integers for few cells, or None."""
    cells = math.prod(sizes[a] for a in group)
    gram: Numbers = np.ones((cells, cells), dtype=np.int64)
    for names, factor in inside:
        part = exact_gram(factor)
        if part is None and (cells > _MAX_CELLS_HUGE or math.prod(factor.shape) > DENSE_LIMIT):
            return None
        if part is None:
            part = sum_objects(integer_products(factor.dense()))
        if gram.dtype.kind == "i" and int(np.abs(gram).max()) * int(np.abs(part).max()) >= INT64:
            if cells > _MAX_CELLS_HUGE:
                return None
            gram = gram.astype(object)
        position = np.arange(math.prod(sizes[a] for a in names))
        place = np.broadcast_to(_on_axes(position, names, group, sizes), tuple(sizes[a] for a in group)).reshape(-1)
        gram = gram * part[np.ix_(place, place)]
    return gram


def exact_gram(factor: LinearOperator) -> NDArray[np.int64] | None:
    """BᵀB of an integral factor in exact int64, or None if it does not fit."""
    if max(factor.column_sums(2)) >= INT64:
        return None
    gram = factor.gram().dense()
    return gram if gram.dtype.kind == "i" else None


def _one_group(terms: list[_Term], group: Group, sizes: Mapping[str, int], scale: list[int]) -> tuple[int, bool] | None:
    """The largest distance where one group holds all attributes; None where int64 does not do or cells are too many."""
    kinds, index = _kinds(terms, group)
    cells = math.prod(sizes[a] for a in group)
    if cells > _MAX_CELLS_ALONE or _is_simple(kinds, group):
        return None
    common = math.gcd(*scale) or 1
    total = np.zeros((cells, cells), dtype=np.int64)
    bound = 0
    for kind, inside in enumerate(kinds):
        weight = sum(s // common for s, i in zip(scale, index.tolist(), strict=True) if i == kind)
        gram = _joint_gram(inside, group, sizes)
        if gram is None:
            return None
        top = int(np.abs(gram).max())
        bound += 4 * weight * top
        if bound >= INT64:
            return None
        if weight and top:
            total += weight * gram.astype(np.int64)
    norms = np.diagonal(total)
    return max(int((norms + norms[u] - 2 * total[u]).max()) for u in range(cells)) * common, True


# ---- L1 distances of signed strategies -------------------------------------------------------------------


def _by_changed(term: _Term, power: int) -> Numbers:
    """Distances in a block of exchangeable factors, by which of its axes the two cells differ in: (2, 2, ...)."""
    kinds: dict[tuple[int, ...], dict[tuple[int, int], int]] = {(): {(1, 1): 1}}
    for group, factor in zip(term.groups, term.factors, strict=True):
        counted = _two_columns(factor)
        longer: dict[tuple[int, ...], dict[tuple[int, int], int]] = {}
        for (differ, pairs), changed in itertools.product(kinds.items(), (0, 1)):
            merged: dict[tuple[int, int], int] = {}
            for ((a, b), n), ((c, d), k) in itertools.product(pairs.items(), counted.items()):
                key = (a * c, b * (d if changed and group else c))
                merged[key] = merged.get(key, 0) + n * k
            longer[(*differ, changed)] = merged
        kinds = longer
    out = np.zeros((2,) * len(term.factors), dtype=object)
    for differ, pairs in kinds.items():
        out[differ] = term.multiple**power * sum(n * abs(a - b) ** power for (a, b), n in pairs.items())
    return out


def _subsets_l1(terms: list[_Term], groups: list[Group], sizes: Mapping[str, int]) -> tuple[int, bool] | None:
    """The largest L1 distance of exchangeable factors, by which groups the two cells differ in."""
    if 2 ** len(groups) * len(terms) > _MAX_ADDITIONS or max(len(t.factors) for t in terms) > _MAX_FACTORS:
        return None
    simple = all(_is_simple(_kinds(terms, g)[0], g) for g in groups)
    if not simple or not all(f.exchangeable for t in terms for f in t.factors):
        return None
    place = {a: i for i, g in enumerate(groups) for a in g}
    tables = [_by_changed(t, 1) for t in terms]
    fits = sum(int(t.max()) for t in tables) < INT64
    total = np.zeros((2,) * len(groups), dtype=np.int64 if fits else object)
    for term, table in zip(terms, tables, strict=True):
        # factors over no attribute never differ; the others stand in the order of `groups`
        table = table[tuple(slice(None) if own else 0 for own in term.groups)]
        places = [place[own[0]] for own in term.groups if own]
        table = np.asarray(table).transpose(np.argsort(places))
        total += table.reshape(tuple(2 if i in places else 1 for i in range(len(groups)))).astype(total.dtype)
    return int(total.max()), True


def _dense_l1(terms: list[_Term], groups: list[Group], sizes: Mapping[str, int]) -> tuple[int, bool] | None:
    """The largest L1 distance from the whole matrix; None where that is too large."""
    names = [a for g in groups for a in g]
    shape = tuple(sizes[a] for a in names)
    cells, rows = math.prod(shape), sum(math.prod(f.shape[0] for f in t.factors) for t in terms)
    top = 2 * sum(t.multiple * math.prod(int(max(f.column_sums(1))) for f in t.factors) for t in terms)
    if cells * cells * rows > (2**30 if top < INT64 else 2**22) or cells * rows > DENSE_LIMIT:
        return None
    parts: list[Numbers] = []
    for term in terms:
        axes = tuple(names.index(a) for g in term.groups for a in g)
        dense = OnMarginal(shape, axes, Kronecker((Identity(1), *term.factors))).dense()
        if dense.dtype.kind != "i":
            return None
        parts.append((dense if top < INT64 else dense.astype(object)) * term.multiple)
    matrix = np.vstack(parts)
    return max(int(np.abs(matrix - matrix[:, [j]]).sum(axis=0).max()) for j in range(cells)), True
