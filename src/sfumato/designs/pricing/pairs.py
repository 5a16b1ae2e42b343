"""The largest distance between two columns of a strategy: replace-one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sfumato.designs.pricing.bounds import largest_change
from sfumato.designs.pricing.changes import Absolute, Changes, Columns, Inner, Part, Table
from sfumato.designs.pricing.exact import number_rows, products
from sfumato.designs.pricing.search import MAX_WORK, Patterns, largest_combination
from sfumato.designs.pricing.terms import Bundle, Inside, Terms
from sfumato.maps.linear import integer_products, sum_objects
from sfumato.operators import Identity, Kronecker, LinearOperator, OnMarginal, Residual, Total
from sfumato.operators.base import DENSE_LIMIT, INT64, Numbers
from sfumato.privacy.terms import on_axes

__all__ = ["exact_gram", "largest_distance"]

_MAX_CELLS_ALONE = 5_000  # of one group: 25 million pairs, in half a second
_MAX_CELLS_JOINT = 1_000  # of a group beside others: its pairs are sorted
_MAX_CELLS_HUGE = 400  # where pairs are Python integers
_MAX_KINDS = 100_000_000  # entries of the kinds of blocks by groups: memory

Sizes = Mapping[str, int]


def largest_distance(terms: Terms, sizes: Sizes, column: int) -> tuple[int, bool]:
    """The largest sum of |difference|^power over pairs of columns, or a bound of it; `column` bounds one column."""
    alike = [s.covers(terms.groups[s.group]) for s in terms.slots]
    found: list[tuple[int, bool]] = []
    for method in _methods(terms, sizes, alike, column):
        value = method()
        if value is not None and value[1]:
            return value
        found += [value] if value is not None else []
    # |a - b|^p <= 2^(p - 1) (|a|^p + |b|^p), without 2^(p - 1) for entries that are not negative
    return min((2 if terms.nonnegative else 2**terms.power) * column, *(v for v, _ in found)), False


def _methods(
    terms: Terms, sizes: Sizes, alike: Sequence[bool], column: int
) -> list[Callable[[], tuple[int, bool] | None]]:
    """What finds the distance or a bound of it, the cheapest first."""
    if terms.power == 1 and not terms.binary:
        return [lambda: _changed_l1(terms, alike), lambda: _dense_l1(terms, sizes)]
    # between entries 0 and a, |difference| = difference^2 / a, so power 1 has the scale of power 1
    changed = [lambda: _changed_l2(terms, sizes, alike, column)]
    if all(alike):
        return [*changed]
    return [lambda: _one_group(terms, sizes), lambda: _combined(terms, sizes, alike), *changed]


# ---- which attributes change -----------------------------------------------------------------------------


def _changed_l2(terms: Terms, sizes: Sizes, alike: Sequence[bool], column: int) -> tuple[int, bool]:
    """The largest squared distance where all cells of every group are alike, otherwise a bound of it.

    A factor with other cells has norms up to its largest and inner products down to its least; the sum of
    products of inner products is least where each is at an end of its range, and each factor may choose.
    """
    same: list[int] = []
    other: list[int] = []
    for slot, simple in zip(terms.slots, alike, strict=True):
        if simple:
            columns = _two_columns(slot.factors[0])
            same.append(sum(n * a * a for n, a, _ in columns))
            other.append(sum(n * a * b for n, a, b in columns))
        else:
            same.append(math.prod(int(max(f.column_sums(2))) for f in slot.factors))
            other.append(_least_inner(slot.inside, terms.groups[slot.group], sizes, same[-1]))
    known: dict[tuple[int, int], int] = {}
    kinds = [known.setdefault(pair, len(known)) for pair in zip(same, other, strict=True)]
    places = [s.group if a else len(terms.groups) + i for i, (s, a) in enumerate(zip(terms.slots, alike, strict=True))]
    active = [a != b for a, b in zip(same, other, strict=True)]
    table = Inner(tuple(a for a, _ in known), tuple(b for _, b in known))
    value, exact = largest_change(_changes(terms, active, same, places, kinds, table))
    return (value, exact) if all(alike) else (value + 2 * (column - terms.dot(same)), False)


def _least_inner(inside: Inside, group: tuple[str, ...], sizes: Sizes, top: int) -> int:
    """The least inner product of two columns, or less."""
    floor = 0 if all(f.nonnegative for _, f in inside) else -top
    cells = math.prod(sizes[a] for a in group)
    gram = _joint_gram(inside, group, sizes) if cells <= _MAX_CELLS_JOINT else None
    return floor if gram is None else int(gram.min())


def _changed_l1(terms: Terms, alike: Sequence[bool]) -> tuple[int, bool]:
    """The largest L1 distance of blocks whose cells are all alike, and for other blocks twice their columns."""
    tops = [math.prod(int(max(f.column_sums(1))) for f in s.factors) for s in terms.slots]
    columns = [_two_columns(s.factors[0]) if a else () for s, a in zip(terms.slots, alike, strict=True)]
    simple = _only(terms, np.array(alike, dtype=bool))
    rest = 2 * (terms.dot(tops) - simple.dot(tops))
    known: dict[Columns, int] = {}
    kinds = [known.setdefault(c, len(known)) for c in columns]
    active = [any(a != b for _, a, b in c) for c in columns]
    table = Absolute(tuple(known))
    changes = _changes(simple, active, tops, [s.group for s in terms.slots], kinds, table)
    fits = [table.fits(p.kinds) for p in changes.parts]
    large = [p for p, f in zip(changes.parts, fits, strict=True) if not f]
    rest += 2 * sum(p.weights.dot(products(table.sums(), p.kinds)) for p in large)
    small = tuple(p for p, f in zip(changes.parts, fits, strict=True) if f)
    value, exact = largest_change(replace(changes, parts=small))
    return value + rest, exact and rest == 0


def _only(terms: Terms, allowed: NDArray[np.bool_]) -> Terms:
    """The blocks whose slots are all allowed."""
    kept = [(b, np.flatnonzero(allowed[b.sets].all(axis=1))) for b in terms.bundles]
    return replace(terms, bundles=tuple(Bundle(b.sets[k], b.weights.take(k)) for b, k in kept if len(k)))


def _changes(
    terms: Terms,
    active: Sequence[bool],
    constants: Sequence[int],
    places: Sequence[int],
    kinds: Sequence[int],
    table: Table,
) -> Changes:
    """The blocks over what can change; slots that cannot are factors of the weights."""
    number = {p: i for i, p in enumerate(dict.fromkeys(p for p, a in zip(places, active, strict=True) if a))}
    place = np.array([number.get(p, 0) for p in places], dtype=np.intp)
    kind, can = np.array(kinds, dtype=np.intp), np.array(active, dtype=bool)
    parts: list[Part] = []
    for bundle in terms.bundles:
        on = can[bundle.sets]
        if on.all():
            parts.append(Part(place[bundle.sets], kind[bundle.sets], bundle.weights))
            continue
        shape, first = number_rows(on.astype(np.intp), 2)
        for k, i in enumerate(first.tolist()):
            chosen = np.flatnonzero(shape == k)
            sets, weights = bundle.sets[chosen], bundle.weights.take(chosen)
            if not on[i].all():
                weights = weights.times(products(constants, sets[:, ~on[i]]))
            sets = sets[:, on[i]]
            parts.append(Part(place[sets], kind[sets], weights))
    return Changes.of(len(number), parts, table)


def _two_columns(factor: LinearOperator) -> Columns:
    """How often each pair of entries stands in the first two columns of an exchangeable factor (a zero pair may miss).

    Of a factor with one column, that column twice.
    """
    n = factor.shape[1]
    if n > 1 and isinstance(factor, Identity):
        return ((1, 1, 0), (1, 0, 1))
    if isinstance(factor, Total):
        return ((1, 1, 1),)
    if n > 1 and isinstance(factor, Residual):
        return ((1, n - 1, -1), (1, -1, n - 1), (n - 2, -1, -1))
    columns = factor.apply(np.eye(n, min(2, n), dtype=np.int64))
    counted: dict[tuple[int, int], int] = {}
    for row in columns.tolist():
        key = (row[0], row[-1])
        counted[key] = counted.get(key, 0) + 1
    return tuple((count, a, b) for (a, b), count in counted.items())


# ---- all pairs of cells ----------------------------------------------------------------------------------


def _combined(terms: Terms, sizes: Sizes, alike: Sequence[bool]) -> tuple[int, bool] | None:
    """The best combination of pairs of cells, one pair per group; None for too many."""
    simple = [all(alike[i] for i in terms.of_group(g)) for g in range(len(terms.groups))]
    least = math.prod(2 for g, s in enumerate(simple) if not s or terms.cells[g] > 1)
    if least * len(terms) * 3 > MAX_WORK or len(terms) * len(terms.groups) > _MAX_KINDS:
        return None
    patterns: list[Patterns] = []
    for g, only_equal in enumerate(simple):
        found = _equal_or_not(terms, g) if only_equal else _pair_patterns(terms, g, sizes)
        if found is None:
            return None
        patterns.append(found)
        if math.prod(map(len, patterns)) * len(terms) * 3 > MAX_WORK:
            return None
    return largest_combination(patterns, terms.scaled([1] * len(terms.slots)), (1, 1, -2))


def _equal_or_not(terms: Terms, group: int) -> Patterns:
    """(G(u,u), G(v,v), G(u,v)) of every slot for u = v and for two other cells."""
    columns = [_two_columns(terms.slots[i].factors[0]) for i in terms.of_group(group)]
    same = [*(sum(n * a * a for n, a, _ in c) for c in columns), 1]
    other = [*(sum(n * a * b for n, a, b in c) for c in columns), 1]
    pairs = [[(s, s, s) for s in same]]
    if terms.cells[group] > 1 and same != other:
        pairs.append([(s, s, o) for s, o in zip(same, other, strict=True)])
    return Patterns.of(pairs, terms.kinds(group))


def _pair_patterns(terms: Terms, group: int, sizes: Sizes) -> Patterns | None:
    """(G(u,u), G(v,v), G(u,v)) of every slot for every distinct ordered pair; None for too many cells."""
    cells = terms.cells[group]
    if cells > _MAX_CELLS_JOINT:
        return None
    grams: list[Numbers] = []
    for slot in terms.of_group(group):
        gram = _joint_gram(terms.slots[slot].inside, terms.groups[group], sizes)
        if gram is None:
            return None
        grams.append(gram)
    grams.append(np.ones((cells, cells), dtype=np.int64))
    # in several groups at once the two cells of a pair may stand in either order
    u, v = (i.reshape(-1) for i in np.indices((cells, cells)))
    triples = np.stack([np.stack([g[u, u], g[v, v], g[u, v]], axis=1) for g in grams], axis=1)
    if triples.dtype.kind == "O":
        return Patterns.of(list(dict.fromkeys(tuple(map(tuple, row)) for row in triples.tolist())), terms.kinds(group))
    return Patterns(np.unique(triples, axis=0), terms.kinds(group))


def _joint_gram(inside: Inside, group: tuple[str, ...], sizes: Sizes) -> Numbers | None:
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
        place = np.broadcast_to(on_axes(position, names, group, sizes), tuple(sizes[a] for a in group)).reshape(-1)
        gram = gram * part[np.ix_(place, place)]
    return gram


def exact_gram(factor: LinearOperator) -> NDArray[np.int64] | None:
    """BᵀB of an integral factor in exact int64, or None if it does not fit."""
    if max(factor.column_sums(2)) >= INT64:
        return None
    gram = factor.gram().dense()
    return gram if gram.dtype.kind == "i" else None


def _one_group(terms: Terms, sizes: Sizes) -> tuple[int, bool] | None:
    """The largest distance where one group holds all attributes; None where int64 does not do or cells are too many."""
    if len(terms.groups) != 1 or terms.cells[0] > _MAX_CELLS_ALONE:
        return None
    kinds, scale = terms.kinds(0), np.array(terms.scaled([1] * len(terms.slots)), dtype=object)
    weights = [int(scale[kinds == k].sum()) for k in range(len(terms.slots))]
    common = math.gcd(*weights) or 1
    total = np.zeros((terms.cells[0],) * 2, dtype=np.int64)
    bound = 0
    for slot, weight in zip(terms.slots, weights, strict=True):
        gram = _joint_gram(slot.inside, terms.groups[0], sizes)
        if gram is None:
            return None
        top = int(np.abs(gram).max())
        bound += 4 * (weight // common) * top
        if bound >= INT64:
            return None
        if weight and top:
            total += (weight // common) * gram.astype(np.int64)
    norms = np.diagonal(total)
    return max(int((norms + norms[u] - 2 * total[u]).max()) for u in range(len(total))) * common, True


def _dense_l1(terms: Terms, sizes: Sizes) -> tuple[int, bool] | None:
    """The largest L1 distance from the whole matrix; None where that is too large."""
    names = [a for g in terms.groups for a in g]
    shape = tuple(sizes[a] for a in names)
    cells = math.prod(shape)
    heights = [math.prod(f.shape[0] for f in s.factors) for s in terms.slots]
    rows = sum(int(products(heights, b.sets).sum()) for b in terms.bundles)
    top = 2 * terms.dot([math.prod(int(max(f.column_sums(1))) for f in s.factors) for s in terms.slots])
    # a weight may be large where a block is 0
    fits = max(top, *(max(b.weights.objects()) for b in terms.bundles)) < INT64
    if cells * cells * rows > (2**30 if fits else 2**22) or cells * rows > DENSE_LIMIT:
        return None
    parts: list[Numbers] = []
    for bundle in terms.bundles:
        for slots, weight in zip(bundle.sets.tolist(), bundle.weights.objects().tolist(), strict=True):
            inside = [pair for i in slots for pair in terms.slots[i].inside]
            axes = tuple(names.index(a) for some, _ in inside for a in some)
            factors = (Identity(1), *(f for _, f in inside))
            dense = OnMarginal(shape, axes, Kronecker(factors)).dense()
            if dense.dtype.kind != "i":
                return None
            parts.append((dense if fits else dense.astype(object)) * weight)
    matrix = np.vstack(parts)
    return max(int(np.abs(matrix - matrix[:, [j]]).sum(axis=0).max()) for j in range(cells)), True
