"""What the planner hands to the wall with a replace-one price: how to bound the largest distance.

The search has found the price; here the shortest way is found by which the wall's own arithmetic proves it.
Floats and heuristics propose, for whatever is proposed is checked in integers (see privacy/sensitivity.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from sfumato.designs.pricing import bounds, changes, elimination
from sfumato.designs.pricing.exact import Weights
from sfumato.designs.pricing.sensitivity import sensitivity
from sfumato.errors import PlanError, WorkloadError
from sfumato.maps import BlockMap, CombinationMap, FamilyMap
from sfumato.operators import Block, Family
from sfumato.privacy.products import Products, scaled_ends
from sfumato.privacy.sensitivity import Certificate, Sensitivity, largest_column, largest_distance
from sfumato.privacy.sensitivity import changes as price_changes
from sfumato.privacy.sums import Clique, Sum
from sfumato.privacy.terms import Terms
from sfumato.privacy.unit import Neighbours, PrivacyUnit

__all__ = ["certificate"]


def certificate(
    blocks: Sequence[BlockMap | FamilyMap | CombinationMap],
    sizes: Mapping[str, int],
    unit: PrivacyUnit,
    found: Sensitivity,
) -> Certificate | None:
    """A certificate of `found`, or what proves most of it; None where none is needed. Blocks may be operators."""
    if unit.neighbours is not Neighbours.REPLACE_ONE:
        return None
    lowered = [b.lowered() for b in blocks if not isinstance(b, CombinationMap)]
    if not lowered:
        return None
    if len(lowered) < len(blocks):
        # combinations are priced by themselves
        found = sensitivity([b for b in blocks if isinstance(b, Block | Family)], sizes, unit, found.power)
    terms = Terms.of(lowered, sizes, found.power)
    column = largest_column(terms, sizes)
    wanted = -(-found.value // unit.rows_per_person**found.power)
    best: tuple[int, Certificate] | None = None
    for proposed in _proposals(terms, sizes, column):
        try:
            value = largest_distance(terms, sizes, column, proposed)
        except (PlanError, WorkloadError):
            continue
        if value <= wanted:
            return proposed
        best = min(best or (value, proposed), (value, proposed), key=lambda b: b[0])
    return None if best is None else best[1]


def _proposals(terms: Terms, sizes: Mapping[str, int], column: int) -> Iterator[Certificate]:
    """The cheapest first."""
    yield Certificate()
    squared = terms.power == 2 or terms.binary
    if not squared:
        yield from _classes(price_changes(terms, sizes, column).sum)
        yield Certificate("cells")
    elif not all(s.alike for s in terms.slots):
        yield Certificate("cells")
        yield Certificate("pairs")
    total = price_changes(terms, sizes, column).sum
    if squared:
        yield from _classes(total)
        yield from _products(total)
    yield from _cliques(total)


def _used(total: Sum) -> NDArray[np.intp]:
    """The variables that some product holds."""
    features = np.unique(np.concatenate([np.unique(b.sets) for b in total.bundles] or [np.empty(0, dtype=np.intp)]))
    return np.unique([total.features[int(f)][0] for f in features]).astype(np.intp)


def _parts(total: Sum, place: NDArray[np.intp]) -> list[changes.Part]:
    """The products as places, a number of their own for every pair of values, and weights."""
    known: dict[tuple[int, ...], int] = {}
    kind = np.array([known.setdefault(tuple(v.tolist()), len(known)) for _, v in total.features], dtype=np.intp)
    return [
        changes.Part(place[b.sets], kind[b.sets], Weights.of(abs(b.weights))) for b in total.bundles if b.sets.shape[1]
    ]


def _classes(total: Sum) -> Iterator[Certificate]:
    """Attributes that look alike are one class; what no product holds is a class of its own."""
    used = _used(total)
    place = np.searchsorted(used, [v for v, _ in total.features]).astype(np.intp)
    parts = _parts(total, place)
    if not parts:
        return
    found = changes.classes_of(changes.Changes(len(used), tuple(parts), changes.Inner((1,), (1,))))
    for classes in (found, np.arange(len(used))):
        if classes is None or changes.patterns_of(classes) > changes.MAX_PATTERNS:
            continue
        count = int(classes.max()) + 1
        every = np.full(len(total.states), count)
        every[used] = classes
        yield Certificate("classes", tuple(every.tolist()))


def _cliques(total: Sum) -> Iterator[Certificate]:
    """One attribute after the other, that with the fewest neighbours first; cliques that are too wide are split."""
    rows = [s for b in total.bundles for s in b.sets.tolist() if s]
    width = elimination.width_for(len(rows))
    if not rows or len(rows) > elimination.MAX_TABLES or max(map(len, rows)) > width:
        return
    nothing = np.zeros(0)
    functions = [(tuple(sorted(total.features[f][0] for f in row)), nothing) for row in rows]
    found: list[Clique] = []
    while functions:
        chosen = elimination.next_of(functions)
        buckets, functions = elimination.buckets_of(chosen, functions, width)
        for bucket in buckets:
            scope = tuple(sorted(set().union(*(s for s, _ in bucket))))
            rest = tuple(i for i in scope if i != chosen)
            found.append((scope, rest))
            if rest:
                functions.append((rest, nothing))
    yield Certificate("cliques", cliques=tuple(found))


def _products(total: Sum) -> Iterator[Certificate]:
    """Weights close to products, fitted in floating point."""
    try:
        scale, low, high = scaled_ends(total)
    except PlanError:
        return
    variables = bounds.Variables(scale, low, high)
    parts = [changes.Part(b.sets, b.sets, Weights.of(abs(b.weights))) for b in total.bundles if b.sets.size]
    if not parts or not bounds.fits_floats(variables, parts):
        return
    fitted = bounds.fit(variables, parts)
    if fitted is not None:
        units, costs, shift = fitted
        yield Certificate("products", products=Products(tuple(map(int, units.tolist())), tuple(costs), shift))
