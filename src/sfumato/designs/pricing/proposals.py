"""How to bound the largest distance of two columns: what is worth a try, the cheapest first.

Floats, colours and heuristics propose, for whatever is proposed is checked in integers (see privacy/sensitivity).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from sfumato.designs.pricing.fits import fit
from sfumato.maps.linear import INT64, Numbers
from sfumato.privacy.sensitivity import Certificate, Pairs
from sfumato.privacy.sums import Clique, Sum

__all__ = ["MOST_PATTERNS", "of_changes", "proposals"]

_MAX_PATTERNS = 2**22  # numbers of changed attributes that are looked at: half a second
MOST_PATTERNS = 2**28  # where nothing quicker proves as much: some two seconds
_FEW_CELLS = 400  # of which the wall looks at all pairs with Python's integers
_ROUNDS = 20  # of telling attributes apart: classes that need more are not small
_WORK = 28  # bits of the work of cliques: a quarter of a thousand million additions
_WIDTHS = (8, 18)  # attributes of one table at least, for thousands of blocks, and at most, for few
_MAX_TABLES = 5_000  # blocks: each is a table by itself

Variables = NDArray[np.intp]


def proposals(pairs: Pairs) -> Iterator[Certificate]:
    """The cheapest first. Where all cells of every attribute are alike, it is enough to say which attributes change."""
    alike = all(s.alike for s in pairs.terms.slots)
    if not alike:
        if not _refused(pairs):
            yield Certificate("cells")
        if pairs.squared:
            yield Certificate("pairs")
    yield from of_changes(pairs.changes.sum)
    if alike and not pairs.squared:
        yield Certificate("cells")


def _refused(pairs: Pairs) -> bool:
    """Whether looking at all pairs of cells would end, after long, with inner products that int64 does not hold."""
    terms = pairs.ends[0]
    alone = [f for s in terms.slots if len(s.inside) == 1 for _, f in s.inside]
    many = pairs.squared and len(terms.groups) == 1 and terms.cells[0] > _FEW_CELLS
    return many and any(int(max(f.column_sums(2))) >= INT64 for f in alone)


def of_changes(total: Sum) -> Iterator[Certificate]:
    """Those that say which attributes change."""
    yield Certificate("apart")
    used = np.array(total.scope(), dtype=np.intp)
    if not len(used):
        return
    alike = _classes(total, used)
    for classes in (alike, np.arange(len(used))):
        if classes is not None and _patterns(classes) <= _MAX_PATTERNS:
            yield _permuted(total, used, classes)
    cliques = _cliques(total)
    if cliques is not None:
        yield Certificate("cliques", cliques=cliques)
    if alike is not None and _MAX_PATTERNS < _patterns(alike) <= MOST_PATTERNS:
        yield _permuted(total, used, alike)
    fitted = fit(total)
    if fitted is not None:
        yield Certificate("products", products=fitted)


# ---- attributes that may be permuted ---------------------------------------------------------------------


def _permuted(total: Sum, used: Variables, classes: Variables) -> Certificate:
    # what no product holds is a class of its own
    every = np.full(len(total.states), int(classes.max()) + 1)
    every[used] = classes
    return Certificate("classes", tuple(every.tolist()))


def _patterns(classes: Variables) -> int:
    return math.prod(n + 1 for n in np.bincount(classes).tolist())


def _classes(total: Sum, used: Variables) -> Variables | None:
    """Classes of the used variables that look alike from the products around them; None where there are too many.

    A product is seen as its weight and the classes and values of its features; variables are told apart by the
    products they are in, until that makes no difference. Colours are numbers that may agree by accident.
    """
    known: dict[tuple[int, ...], int] = {}
    kind = np.array([known.setdefault(tuple(v.tolist()), len(known)) for _, v in total.features], dtype=np.uint64)
    # features that no product holds are coloured too, and counted nowhere
    place = np.searchsorted(used, [v for v, _ in total.features]).clip(max=len(used) - 1)
    marks = [_mark(b.weights) for b in total.bundles]
    classes, found = np.zeros(len(used), dtype=np.intp), 1
    for _ in range(_ROUNDS):
        sums = np.zeros(len(used), dtype=np.uint64)
        colours = _mixed(classes[place].astype(np.uint64) * np.uint64(len(known)) + kind + np.uint64(1))
        for (sets, _), mark in zip(total.bundles, marks, strict=True):
            block = _mixed(colours[sets].sum(axis=1, dtype=np.uint64) + mark)
            for column in sets.T:
                np.add.at(sums, place[column], _mixed(block ^ colours[column]))
        seen = np.stack([classes.astype(np.uint64), sums], axis=1)
        classes = np.unique(seen, axis=0, return_inverse=True)[1].reshape(-1)
        before, found = found, int(classes.max()) + 1
        if found == before:
            return classes
        if _patterns(classes) > MOST_PATTERNS:
            return None
    return None


def _mark(weights: Numbers) -> NDArray[np.uint64]:
    """Numbers that are equal where the sizes of weights are, and differ where they differ but by accident."""
    sizes: Numbers = np.abs(weights)
    low = (sizes & (2**64 - 1)).astype(np.uint64)
    return low ^ (low >> np.uint64(29))


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A fixed random-looking permutation of the numbers of 64 bits."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


# ---- one attribute after another -------------------------------------------------------------------------


def _cliques(total: Sum) -> tuple[Clique, ...] | None:
    """The variable with the fewest neighbours first; what is too wide is split. None for too many products."""
    count = sum(len(b.sets) for b in total.bundles if b.sets.shape[1])
    width = max(_WIDTHS[0], min(_WIDTHS[1], _WORK - count.bit_length()))
    if count > _MAX_TABLES or max(b.sets.shape[1] for b in total.bundles) > width:
        return None
    rows = [s for b in total.bundles for s in b.sets.tolist() if s]
    scopes: list[tuple[int, ...]] = [tuple(sorted(total.features[f][0] for f in row)) for row in rows]
    found: list[Clique] = []
    while scopes:
        chosen = _next_of(scopes)
        mine = sorted((s for s in scopes if chosen in s), key=lambda s: (-len(s), s))
        scopes = [s for s in scopes if chosen not in s]
        buckets: list[set[int]] = []
        for scope in mine:
            fits = next((b for b in buckets if len(b.union(scope)) <= width + 1), None)
            if fits is None:
                buckets.append(set(scope))
            else:
                fits.update(scope)
        for bucket in buckets:
            rest = tuple(sorted(bucket - {chosen}))
            found.append((tuple(sorted(bucket)), rest))
            scopes += [rest] if rest else []
    return tuple(found)


def _next_of(scopes: list[tuple[int, ...]]) -> int:
    """The variable with the fewest neighbours."""
    around: dict[int, set[int]] = {}
    for scope in scopes:
        for i in scope:
            around.setdefault(i, set()).update(scope)
    return min(around, key=lambda i: (len(around[i]), i))
