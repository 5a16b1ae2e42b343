"""The search for exact integer sensitivities of integer strategies.

A strategy is a list of blocks, each a Kronecker product of integer factors. The column of the whole
strategy that belongs to a cell u = (u_1, u_2, ...) has, summed over blocks b,

    sum of |entries|^p         = sum_b prod_g c_bg(u_g)
    squared distance to v      = sum_b [ prod_g G_bg(u_g, u_g) + prod_g G_bg(v_g, v_g) - 2 prod_g G_bg(u_g, v_g) ]

with c the column sums and G the Gram matrix of factor g. Cells (or pairs) of an attribute that agree in
every block are one pattern, so only the distinct patterns of each attribute are combined: `search` finds
their best combination, `changes` the best attributes to change where all cells of each are alike, and `bounds`
what neither can pass where they are too many. Everything that decides is an integer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from sfumato.designs.pricing.pairs import largest_distance
from sfumato.designs.pricing.search import Patterns, largest_combination
from sfumato.designs.pricing.terms import Terms
from sfumato.errors import PlanError
from sfumato.operators import Block, Combination, Dense, Family
from sfumato.operators.base import Numbers
from sfumato.privacy.columns import of_columns
from sfumato.privacy.sensitivity import Sensitivity
from sfumato.privacy.terms import on_axes
from sfumato.privacy.unit import Neighbours, PrivacyUnit

__all__ = ["sensitivity"]

_MAX_DOMINANCE = 2_000  # rows compared pair by pair
_MAX_KINDS = 100_000_000  # entries of the kinds of blocks by groups: memory


def sensitivity(
    blocks: Sequence[Block | Family | Combination], sizes: Mapping[str, int], unit: PrivacyUnit, power: int
) -> Sensitivity:
    """The sensitivity of measuring all blocks together, in exact integers.

    power 1: max ||B(x - x')||_1; power 2: max ||B(x - x')||_2^2; over neighbouring tables x, x'.
    Raises PlanError for another power or a strategy that is not integral, WorkloadError for factors that
    do not fit `sizes`.
    """
    if type(power) is not int or power not in (1, 2):
        raise PlanError(f"a sensitivity is L1 (power 1) or L2 (power 2), not {power!r}")
    plain = [b for b in blocks if not isinstance(b, Combination)]
    if len(plain) < len(blocks):
        found = [_of_combination(b, sizes, unit, power) for b in blocks if isinstance(b, Combination)]
        found += [sensitivity(plain, sizes, unit, power)] if plain else []
        # no record changes all of them by more than each at its worst
        return Sensitivity(power, sum(f.value for f in found), len(found) == 1 and found[0].exact)
    terms = Terms.of(plain, sizes, power)
    one_row = unit.rows_per_person**power
    column, column_exact = _largest_column(terms, sizes)
    if unit.neighbours is Neighbours.ADD_REMOVE:
        return Sensitivity(power, column * one_row, column_exact)
    distance, exact = largest_distance(terms, sizes, column)
    if not unit.total_is_public:
        # a row may vanish without another taking its place: a zero column joins the pairs
        distance, exact = max((distance, exact), (column, column_exact))
    return Sensitivity(power, distance * one_row, exact)


def _of_combination(combined: Combination, sizes: Mapping[str, int], unit: PrivacyUnit, power: int) -> Sensitivity:
    """That of one matrix whose cells are the distinct columns."""
    over = Dense(of_columns(combined.lowered(), sizes).matrix)
    return sensitivity([Block((("column",),), (over,))], {"column": over.shape[1]}, unit, power)


# ---- columns -----------------------------------------------------------------------------------------


def _largest_column(terms: Terms, sizes: Mapping[str, int]) -> tuple[int, bool]:
    """The largest column, or a bound of it. Where no group has a choice to make it is a sum over blocks."""
    tops = [1] * len(terms.slots)
    wide: list[tuple[int, list[tuple[int, ...]]]] = []
    for group in range(len(terms.groups)):
        own = terms.of_group(group)
        rows = _column_patterns(terms, group, sizes)
        for k, slot in enumerate(own):
            tops[slot] = max(row[k] for row in rows)
        if len(rows) > 1:
            wide.append((group, rows))
    if wide and len(terms) * len(wide) <= _MAX_KINDS:
        patterns = [Patterns.of([[*((v,) for v in row), (1,)] for row in rows], terms.kinds(g)) for g, rows in wide]
        fixed = [1 if any(terms.slots[i].group == g for g, _ in wide) else t for i, t in enumerate(tops)]
        found = largest_combination(patterns, terms.scaled(fixed), (1,))
        if found is not None:
            return found
    return terms.dot(tops), not wide


def _column_patterns(terms: Terms, group: int, sizes: Mapping[str, int]) -> list[tuple[int, ...]]:
    """The distinct column sums, one per slot of a group, over its cells."""
    names = terms.groups[group]
    columns: list[Numbers] = []
    for slot in terms.of_group(group):
        table: Numbers = np.ones((1,) * len(names), dtype=object)
        for some, factor in terms.slots[slot].inside:
            sums = factor.column_sums(terms.power)
            table = table * (sums[0] if (sums == sums[0]).all() else on_axes(sums, some, names, sizes))
        columns.append(table)
    if len(columns) == 1:
        return [(max(columns[0].flat),)]
    full = np.broadcast_shapes(*(c.shape for c in columns))
    return _undominated(set(zip(*(np.broadcast_to(c, full).reshape(-1).tolist() for c in columns), strict=True)))


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
