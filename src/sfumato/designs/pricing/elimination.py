"""The largest change by eliminating one attribute after another, exact where blocks join few of them at a time.

To maximise a sum of tables over attributes that change or do not, all tables that hold one attribute are added and
maximised over it, which leaves a table over its neighbours. Where that table would be too large, its parts are
maximised apart, which can only give more (mini-buckets [DR03]).
"""

from __future__ import annotations

from functools import reduce

import numpy as np

from sfumato.designs.pricing.changes import Changes
from sfumato.operators.base import INT64, Numbers

__all__ = ["MAX_TABLES", "buckets_of", "eliminated", "next_of", "width_for"]

_WORK = 28  # bits of the work: a quarter of a thousand million additions
_WIDTHS = (8, 18)  # attributes of one table at least, for thousands of blocks, and at most, for few
MAX_TABLES = 5_000  # blocks: each is a table by itself

Scope = tuple[int, ...]
Function = tuple[Scope, Numbers]


def eliminated(changes: Changes) -> tuple[int, bool] | None:
    """(the largest F, True), or (a bound of it, False); None for too many blocks."""
    count = sum(len(p.weights) for p in changes.parts)
    width = width_for(count)
    if count > MAX_TABLES or max(p.places.shape[1] for p in changes.parts) > width:
        return None
    functions, shift = _functions(changes)
    exact = shift == 0
    total = 0
    while functions:
        chosen = next_of(functions)
        buckets, functions = buckets_of(chosen, functions, width)
        exact = exact and len(buckets) == 1
        for bucket in buckets:
            scope = tuple(sorted(set().union(*(s for s, _ in bucket))))
            table = reduce(np.add, (_over(f, scope) for f in bucket)).max(axis=scope.index(chosen))
            rest = tuple(i for i in scope if i != chosen)
            if rest:
                functions.append((rest, table))
            else:
                total += int(table)
    return total << shift, exact


def width_for(count: int) -> int:
    """How many neighbours an attribute may have where so many tables are added up."""
    return max(_WIDTHS[0], min(_WIDTHS[1], _WORK - count.bit_length()))


def _functions(changes: Changes) -> tuple[list[Function], int]:
    """Every block's weighted table (2, 2, ...) in int64, divided by 2^shift and rounded up."""
    rows: list[tuple[Scope, Numbers]] = []
    for part in changes.parts:
        tables = changes.table.tables(part.kinds).astype(object) * part.weights.objects()[:, None]
        shape = (2,) * part.places.shape[1]
        # the first position is the lowest bit
        rows += [(tuple(s), t.reshape(shape).T) for s, t in zip(part.places.tolist(), tables, strict=True)]
    # no partial sum of any choice is larger; rounding up adds one to every table
    top = sum(int(abs(t).max()) for _, t in rows) + len(rows)
    shift = max(0, top.bit_length() - INT64.bit_length() + 2)
    return [(s, (-(-t >> shift)).astype(np.int64)) for s, t in rows], shift


def next_of(functions: list[Function]) -> int:
    """The attribute with the fewest neighbours."""
    around: dict[int, set[int]] = {}
    for scope, _ in functions:
        for i in scope:
            around.setdefault(i, set()).update(scope)
    return min(around, key=lambda i: (len(around[i]), i))


def buckets_of(chosen: int, functions: list[Function], width: int) -> tuple[list[list[Function]], list[Function]]:
    """Functions that hold the chosen attribute, in groups over at most width + 1 attributes, and the others."""
    mine = sorted((f for f in functions if chosen in f[0]), key=lambda f: (-len(f[0]), f[0]))
    buckets: list[tuple[set[int], list[Function]]] = []
    for f in mine:
        for scope, bucket in buckets:
            if len(scope.union(f[0])) <= width + 1:
                scope.update(f[0])
                bucket.append(f)
                break
        else:
            buckets.append((set(f[0]), [f]))
    return [b for _, b in buckets], [f for f in functions if chosen not in f[0]]


def _over(function: Function, scope: Scope) -> Numbers:
    """A table that broadcasts over a larger scope."""
    own, table = function
    return table.reshape(tuple(2 if i in own else 1 for i in scope))
