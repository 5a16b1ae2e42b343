"""What integer maps cost: exact integer bounds of how far neighbouring tables are apart.

A measurement is a list of blocks, each a Kronecker product of integer factors. The column of all blocks that belongs
to a cell u = (u_1, u_2, ...) has, summed over blocks b,

    sum of |entries|^p = sum_b prod_g c_bg(u_g)

with c the column sums of factor g. Where a row may come or go, this is what counts, and it is found here. What other
measurements and neighbours need is loaded when they are priced: `replaced.py` where a row is replaced,
`grouped_rows.py` where few rows of a person lie in each group, `measures.py` for sums of measures, `columns.py` for
combinations.

A person of r rows changes r^p times as much. A person's row may also vanish, so that a column of zeros joins the others
and the total is not public.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from sfumato._util.codec import storable
from sfumato.errors import PlanError, WorkloadError
from sfumato.maps import BlockMap, CombinationMap, FamilyMap
from sfumato.maps.base import INT64, Numbers
from sfumato.privacy.accounting import Event, GaussianEvent, PureEvent, ZcdpEvent
from sfumato.privacy.noise import DiscreteGaussian, DiscreteLaplace, NoiseLaw, RoundedGaussian
from sfumato.privacy.sums import Bound
from sfumato.privacy.terms import MapTerms, Sizes, broadcast_on_axes, group_patterns
from sfumato.privacy.unit import Neighbours, PrivacyUnit

if TYPE_CHECKING:
    from sfumato.privacy.replaced import Certificate, ColumnPairs

Blocks = BlockMap | FamilyMap | CombinationMap

_MOST_DOMINANCE = 2_000  # rows compared pair by pair: seconds


@storable
@dataclass(frozen=True, slots=True)
class Sensitivity:
    """The largest sum of |change|^power over neighbours: L1 for power 1, squared L2 for power 2.

    `exact` is False where `value` is a proved upper bound that need not be attained.
    """

    power: int
    value: int
    exact: bool


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
        return best_certified(blocks, sizes, unit, power, measures=measures)[0].value
    return best_certified(blocks, sizes, unit, power, lambda _: (certificate,), (), measures)[0].value


def best_certified(
    blocks: Sequence[Blocks],
    sizes: Sizes,
    unit: PrivacyUnit,
    power: int,
    propose: Callable[[ColumnPairs], Iterable[Certificate]] | None = None,
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
        from sfumato.privacy.measures import over_hull, widened  # noqa: PLC0415

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
        from sfumato.privacy.replaced import ColumnPairs, default_certificates  # noqa: PLC0415

        pairs = ColumnPairs(terms, sizes, column[0])
        # |a - b|^p <= 2^(p - 1) (|a|^p + |b|^p), without 2^(p - 1) for entries that are not negative
        bound = (2 if terms.nonnegative else 2**power) * column[0], False
        for proposed in (propose or default_certificates)(pairs):
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
    propose: Callable[[ColumnPairs], Iterable[Certificate]] | None,
    passed_over: tuple[type[Exception], ...],
) -> tuple[Sensitivity, Certificate | None]:
    """That of a person of whose rows few lie in each group: at most that of any rows, which a certificate may prove."""
    from sfumato.privacy.grouped_rows import grouped_bounds  # noqa: PLC0415

    alike = replace(unit, once_per=(), rows_per_group=1)
    anyhow, best = best_certified(blocks, sizes, alike, power, propose, passed_over)
    plain = [b for b in blocks if not isinstance(b, CombinationMap)]
    # of a combination nobody knows which of its columns lie in different groups: any two may be the same
    one = PrivacyUnit(Neighbours.ADD_REMOVE)
    combined = [_combination_sensitivity(b, sizes, one, power).value for b in blocks if isinstance(b, CombinationMap)]
    terms = MapTerms.of(plain, sizes, power)
    norm = largest_column_sum(terms, sizes)[0]
    found = grouped_bounds(terms, norm, sum(combined), unit, sizes, alone=bool(plain) and not combined)
    return Sensitivity(power, min([anyhow.value, *found]), exact=False), best


def _combination_sensitivity(combined: CombinationMap, sizes: Sizes, unit: PrivacyUnit, power: int) -> Sensitivity:
    """That of one matrix whose cells are the distinct columns, all pairs of which are looked at where they can be."""
    from sfumato.privacy.columns import combined_columns  # noqa: PLC0415

    def propose(pairs: ColumnPairs) -> Iterable[Certificate]:
        from sfumato.privacy.replaced import Certificate, default_certificates  # noqa: PLC0415

        return (Certificate("cells"), *default_certificates(pairs))

    over = combined_columns(combined, sizes)
    alone, cells = [BlockMap((("column",),), (over,))], {"column": over.shape[1]}
    return best_certified(alone, cells, unit, power, propose)[0]


def largest_column_sum(terms: MapTerms, sizes: Sizes) -> Bound:
    """The largest sum of |entries|^power of a column, or a bound of it where there are too many combinations."""
    total = group_patterns(terms, [_column_patterns(terms, g, sizes) for g in range(len(terms.groups))], (1,))
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
    rows = _distinct_entries(columns)
    kept: list[tuple[int, ...]] = rows if len(rows) > _MOST_DOMINANCE else []
    if not kept:
        # a maximum of products of numbers of at least 0 needs no row that another reaches in every entry
        for row in rows:
            if not any(all(a >= b for a, b in zip(k, row, strict=True)) for k in kept):
                kept.append(row)
    return np.array(kept, dtype=object)[:, :, None]


def _distinct_entries(tables: Sequence[Numbers]) -> list[tuple[int, ...]]:
    """What tables that are broadcast against each other have in one cell, each once, the largest first.

    Cells are told apart by small numbers, so that of millions none is a row of Python's integers.
    """
    place, many = np.zeros((1,) * tables[0].ndim, dtype=np.int64), 1
    for table in tables:
        values, own = np.unique(table, return_inverse=True)
        if many * len(values) >= INT64:
            left, place = np.unique(place, return_inverse=True)  # as many as there are cells at most
            many = len(left)
        place, many = place * len(values) + own.reshape(table.shape), many * len(values)
    cell = np.unravel_index(np.unique(place, return_index=True)[1], place.shape)
    found = [t[tuple(i * (n > 1) for i, n in zip(cell, t.shape, strict=True))].tolist() for t in tables]
    return sorted(zip(*found, strict=True), reverse=True)


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
