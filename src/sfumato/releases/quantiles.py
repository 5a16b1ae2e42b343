"""Ratios of linear answers: quantiles, distributions and shares, with intervals by inversion. Means: `means`.

A ratio A / B of two unbiased linear answers has no simple error, but A - p B is linear for every p, so
the values of p that are consistent with A - p B = 0 form an interval (Fieller) that holds with the
stated confidence exactly, also where B is small. The quantile at p is where prefix - p total crosses 0.
Projected, values are those of the possible table; their intervals are the unprojected ones, extended to them.

A group whose size B is less than `SIZE_ERRORS` standard errors gets blanks and the reason, never numbers:
the rule looks at B and its noise alone. `quantiles`, `cdf` and `share` are methods of `Release`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sfumato._util.frames import Frame, safe_text
from sfumato.domain import Attribute, Dates
from sfumato.domain.ordered import format_day as day_shown
from sfumato.errors import NotAnswerable, PlanError
from sfumato.operators import Block, Dense
from sfumato.operators.base import FloatArray, LinearOperator
from sfumato.operators.structured import CellSums
from sfumato.plans.planned import is_answered
from sfumato.plans.predictions import check_confidence, entry_biases, interval_margins, widest_sum_margin
from sfumato.privacy.noise import DiscreteLaplace
from sfumato.releases.answers import SIZE_ERRORS, fieller_interval, too_few_note
from sfumato.releases.ends import column_heading
from sfumato.workloads.levels import lift_to_attribute, table_block

if TYPE_CHECKING:
    from sfumato.releases.release import Release

Numbers = tuple[FloatArray, FloatArray, FloatArray, FloatArray]
"""Values, standard errors, lower and upper ends: (rows, groups) each, NaN where nothing is known."""

_ROUNDING = 1e-9  # of a share: far above what double precision leaves of a ratio, far below what anybody reads
_MOST_CELLS = 10_000  # rows of as many numbers each take 0.8 GB, and their margins a few such arrays
_FALLS = "noise makes it fall somewhere"
_INSTEAD = "; that of release.project() never does"


def by_names(by: str | Sequence[str]) -> tuple[str, ...]:
    """One name or several as a tuple."""
    return (by,) if isinstance(by, str) else tuple(by)


def rows_block(release: Release, attribute: str, rows: FloatArray | LinearOperator, by: tuple[str, ...]) -> Block:
    """Rows over one attribute's cells, within each cell of `by`."""
    (domain := release.plan.workload.domain).columns((attribute, *by))
    table = table_block(domain, by)
    if not isinstance(rows, LinearOperator) and len(rows) == 1 and (rows == 1).all():
        return table  # the records of a group, measured with the attribute or without
    owner, factor = lift_to_attribute(domain, attribute, rows if isinstance(rows, LinearOperator) else Dense(rows))
    found = Block(((owner,), *table.groups), (factor, *table.factors))
    if owner in domain.measures and not is_answered(release.plan.strategy, found):
        # of the records that have a number in other measures too, where nothing else was measured
        for others in measures_beside(release, (owner,)):
            there = [Dense(np.arange(domain[m].size)[None, :] < domain[m].declared_size) for m in others]
            joint = Block((*found.groups, *((m,) for m in others)), (*found.factors, *there))
            if is_answered(release.plan.strategy, joint):
                return joint
    return found


def measures_beside(release: Release, names: Sequence[str]) -> list[tuple[str, ...]]:
    """The measures that some query joins with all of these, fewest first: sums of these are told of records that have
    a number in those too."""
    measures = release.plan.workload.domain.measures
    joined = {
        tuple(m for m in measures if m in query.attributes and m not in names)
        for query in release.plan.workload.blocks
        if set(names) <= set(query.attributes)
    }
    return sorted((j for j in joined if j), key=lambda j: (len(j), j))


def beside_note(others: Sequence[str]) -> str:
    """Of which records sums of a measure are told, where these need a number in other measures too; else ""."""
    return f"of records with a number in {', '.join(map(safe_text, others))} too" if others else ""


def others_joined(release: Release, measure: str, block: Block) -> list[str]:
    """The other measures in which a record needs a number to be counted in a block."""
    return [m for m in release.plan.workload.domain.measures if m in block.attributes and m != measure]


def _shape_rows(values: FloatArray, rows: int, groups: int, block: Block) -> FloatArray:
    """A compact or flat array of a block as (rows, groups)."""
    shape = tuple(f.shape[0] for f in block.factors)
    return np.broadcast_to(values.reshape(values.shape if values.ndim == len(shape) else shape), shape).reshape(
        rows, groups
    )


def _half_widths(release: Release, attribute: str, rows: FloatArray, by: tuple[str, ...], level: float) -> FloatArray:
    """Half-widths of intervals of the unbiased answers, (rows, groups)."""
    block = rows_block(release, attribute, rows, by)
    found = release.margins(block, level)
    return _shape_rows(found, len(rows), math.prod(release.plan.workload.domain.sizes(by)), block)


@dataclass(frozen=True, slots=True)
class RowsWithin:
    """Rows over an attribute's cells, within groups, as some of those of a block: `rows` in all, ours `at`."""

    block: Block
    rows: int
    groups: int
    at: slice

    def shaped(self, what: Callable[[Block], FloatArray]) -> FloatArray:
        """What is told of each row of the block, of our rows: (rows, groups)."""
        return _shape_rows(what(self.block), self.rows, self.groups, self.block)[self.at]


def _rows_within(release: Release, attribute: str, rows: FloatArray, by: tuple[str, ...]) -> RowsWithin:
    groups = math.prod(release.plan.workload.domain.sizes(by))
    return RowsWithin(rows_block(release, attribute, rows, by), len(rows), groups, slice(len(rows)))


def _ratio_rows(
    raw: Release, attribute: str, top: FloatArray, bottom: FloatArray, by: tuple[str, ...]
) -> list[RowsWithin]:
    """Both rows of a ratio, and their difference where noise is common to them.

    All of one block where it can be: then they are of the same records, and of the same noise. Where only each by
    itself was measured, as counts beside sums of a column, their noise is of two measurements, and independent.
    """
    each = (top, bottom, top - bottom)
    whole = _rows_within(raw, attribute, np.concatenate(each), by)
    strategy = raw.plan.strategy
    if is_answered(strategy, whole.block):
        ends = np.cumsum([0, *map(len, each)]).tolist()
        return [replace(whole, at=slice(*ends[i : i + 2])) for i in range(3)]
    if attribute in raw.plan.workload.domain.measures:
        strategy.check(whole.block)  # of other records one would be: those with a number in several measures
    found = [_rows_within(raw, attribute, r, by) for r in each]
    common = strategy.source(found[0].block) is strategy.source(found[1].block)
    return found if common else found[:2]


@dataclass(frozen=True, slots=True)
class GroupSizes:
    """Sizes of groups, unprojected: which can be told from noise, what is said of the others, and `beside_note`."""

    told: NDArray[np.bool_]
    notes: list[str]
    beside: str = ""


def _group_sizes(release: Release, counts: RowsWithin, level: float, alone: RowsWithin | None = None) -> GroupSizes:
    """`counts`: the records of each group; `alone`: the same as a block of their own, where theirs is long."""
    raw = release.raw

    def margins(block: Block) -> FloatArray:
        return raw.margins(block, level)

    size, variance = (counts.shaped(what)[0] for what in (raw.answer_block, raw.variances))
    half = (alone or counts).shaped(margins)[0]
    error = np.sqrt(variance)
    bias = entry_biases(raw.plan.strategy, counts.block)[0]
    off = 0.0 if bias is None else float(bias.max())
    # half a record: what rounding leaves of a size that is known to be 0
    told = size > np.maximum(max(SIZE_ERRORS, widest_sum_margin(level, raw.measurement.noise)) * error + off, 0.5)
    pairs = zip(told, size, half, strict=True)
    return GroupSizes(told, ["" if t else too_few_note(float(b), float(h)) for t, b, h in pairs])


def _group_columns(release: Release, by: tuple[str, ...], repeat: int) -> dict[str, list[str]]:
    domain = release.plan.workload.domain
    cells = list(itertools.product(*(domain[b].labels for b in by)))
    return {column_heading(b): [c[i] for c in cells for _ in range(repeat)] for i, b in enumerate(by)}


def ratio_interval(
    release: Release,
    attribute: str,
    rows: tuple[FloatArray, FloatArray],
    by: tuple[str, ...],
    level: float,
    clip: tuple[float | FloatArray, float | FloatArray],
) -> tuple[GroupSizes, Numbers]:
    """(value, standard error, low, high) of rows[0] / rows[1], each (rows, groups), NaN where nothing is known.

    clip: two numbers, or of each row two, (rows, 1).
    The standard error is NaN for projected values, where none is known. Values and ends are within `clip`.
    """
    raw = release.raw
    for row in (*rows, rows[0] - rows[1]):
        if raw.plan.strategy.deviations(rows_block(raw, attribute, row, by)) is not None:
            raise NotAnswerable("ratios need unbiased answers, and this release answers these very queries with a bias")
    # around the middle where 0 is far off: of numbers near a million half of the digits of an error would be lost
    middle = (np.asarray(clip[0]) + np.asarray(clip[1])) / 2
    middle = np.where(np.abs(middle) > np.asarray(clip[1]) - np.asarray(clip[0]), middle, 0.0)
    if middle.any():
        around = rows[0] - middle * rows[1], rows[1]
        sizes, numbers = ratio_interval(release, attribute, around, by, level, (clip[0] - middle, clip[1] - middle))
        value, error, low, high = numbers
        return sizes, (value + middle, error, low + middle, high + middle)
    parts = _ratio_rows(raw, attribute, *rows, by)
    top, bottom = parts[:2]
    first = slice(bottom.at.start or 0, (bottom.at.start or 0) + 1)
    sizes = _group_sizes(release, replace(bottom, at=first), level)
    sizes = replace(sizes, beside=beside_note(others_joined(release, attribute, bottom.block)))
    numbers = _fieller_arrays(raw, parts, level, sizes.told)
    return sizes, _shown_ratio(release, (top, bottom), sizes, numbers, clip)


def _shown_ratio(
    release: Release,
    parts: tuple[RowsWithin, RowsWithin],
    sizes: GroupSizes,
    numbers: Numbers,
    clip: tuple[float | FloatArray, float | FloatArray],
) -> Numbers:
    """A ratio within `clip`; projected, that of the possible table, to which its interval goes."""
    value, error, low, high = clip_interval(numbers, clip)
    if release.projection is not None:
        a, b = (part.shaped(release.answer_block) for part in parts)
        value = np.clip(np.divide(a, b, out=np.full_like(a, np.nan), where=(b > 0) & sizes.told), *clip)
        error, low, high = np.full_like(a, np.nan), np.minimum(low, value), np.maximum(high, value)
    return value, error, low, high


@dataclass(frozen=True, slots=True)
class RunsWithin:
    """Of the first cells of an attribute, within groups: each cell, those up to it, those after it, and all of them.

    They are runs of cells, so that no row is written out, and of one block, so that their noise is of one measurement.
    """

    cells: RowsWithin
    upto: RowsWithin
    whole: RowsWithin
    after: RowsWithin
    alone: RowsWithin  # `whole` by itself, of which margins are found without those of all other rows

    def run_variances(self, raw: Release) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """(of cells, of those up to them, of all, covariances of those up to a cell with all), by row and group."""
        every = replace(self.whole, at=slice(None)).shaped(raw.variances)
        every = np.where(np.isfinite(every), every, np.nan)
        cells, upto, whole, after = (every[part.at] for part in (self.cells, self.upto, self.whole, self.after))
        return cells, upto, whole, (whole + upto - after) / 2


def _runs_within(release: Release, attribute: str, n: int, by: tuple[str, ...]) -> RunsWithin:
    """Those of the first n cells. Raises NotAnswerable where only runs are told, each by noise of its own."""
    domain = release.plan.workload.domain
    size, groups = domain[attribute].size, math.prod(domain.sizes(by))
    sums, weights = CellSums(n, size), np.pad(np.arange(1.0, n + 1), (0, size - n))[None]
    release.plan.strategy.check(rows_block(release, attribute, Dense(weights), by))
    block = rows_block(release, attribute, sums, by)
    alone = rows_block(release, attribute, Dense(sums.rows(2 * n, 2 * n + 1)), by)
    places = (slice(n), slice(n, 2 * n), slice(2 * n, 2 * n + 1), slice(2 * n + 1, 3 * n + 1))
    cells, upto, whole, after = (RowsWithin(block, 3 * n + 1, groups, at) for at in places)
    return RunsWithin(cells, upto, whole, after, RowsWithin(alone, 1, groups, slice(1)))


def _shares_of_runs(
    release: Release, attribute: str, n: int, by: tuple[str, ...], level: float, *, upto: bool
) -> tuple[GroupSizes, Numbers]:
    """The share of each of the first n cells, or of those up to it, in all of them."""
    raw = release.raw
    runs = _runs_within(raw, attribute, n, by)
    sizes = _group_sizes(release, runs.whole, level, runs.alone)
    top = runs.upto if upto else runs.cells
    a, b = (part.shaped(raw.answer_block) for part in (top, runs.whole))
    cells, below, whole, both = runs.run_variances(raw)
    if not upto:  # a cell is what it adds to those before it
        both = np.diff(both, axis=0, prepend=0.0)
    z = widest_sum_margin(level, raw.measurement.noise)
    found = fieller_interval(a, np.where(sizes.told, b, np.nan), below if upto else cells, whole, both, z)
    return sizes, _shown_ratio(release, (top, runs.whole), sizes, found, (0.0, 1.0))


def _fieller_arrays(raw: Release, parts: Sequence[RowsWithin], level: float, told: NDArray[np.bool_]) -> Numbers:
    """(value, standard error, low, high) of a ratio, each (rows, groups); NaN where the group is not `told`.

    A denominator that is told is clearly above 0, so no division here is by 0 and every interval is bounded.
    """
    a, b = (part.shaped(raw.answer_block) for part in parts[:2])
    b = np.where(told, b, np.nan)
    found = (part.shaped(raw.variances) for part in parts)
    va, vb, *vd = (np.where(np.isfinite(v), v, np.nan) for v in found)  # an error that is not known is infinite there
    both = (va + vb - vd[0]) / 2 if vd else np.zeros_like(va)
    return fieller_interval(a, b, va, vb, both, widest_sum_margin(level, raw.measurement.noise))


def clip_interval(numbers: Numbers, clip: tuple[float | FloatArray, float | FloatArray]) -> Numbers:
    """Values that a table could have: a value beyond takes its interval along, which so never shrinks to a point.

    The interval still contains all that is possible of the unmoved one, so it holds as before.
    """
    value, error, low, high = numbers
    moved = np.clip(value, *clip)
    return (
        moved,
        error,
        np.clip(np.minimum(low, low + moved - value), *clip),
        np.clip(np.maximum(high, high + moved - value), *clip),
    )


def numeric_attribute(release: Release, attribute: str, *, measures: bool = False) -> tuple[Attribute, FloatArray]:
    """An attribute of numbers, and what each of its cells counts in a sum; a measure only where it may be one."""
    domain = release.plan.workload.domain
    declared = domain[attribute]
    if attribute in domain.measures and declared.midpoints is not None:
        if not measures:
            raise PlanError(f"{attribute} is a measure, which is summed; quantiles need sf.Bins of the same column")
        return declared, np.asarray(declared.midpoints, dtype=np.float64)
    if declared.intervals is None or declared.midpoints is None:
        raise PlanError(
            f"{attribute} is not numeric; quantiles and means need sf.Integers or sf.Bins "
            "(in a spec type integer or number)"
        )
    return declared, np.asarray(declared.midpoints, dtype=np.float64)


def declared_rows(declared: Attribute, rows: FloatArray) -> FloatArray:
    """Rows over the declared cells, with zeros for the extra cell."""
    return np.pad(rows, ((0, 0), (0, declared.size - rows.shape[1])))


def _flatten_or_none(values: FloatArray) -> list[float | None]:
    """Group by group; what is not known is None."""
    return [None if math.isnan(v) else v for v in values.T.reshape(-1).tolist()]


def group_shares(release: Release, attribute: str, within: str | Sequence[str] = (), confidence: float = 0.95) -> Frame:
    """Share of each cell of an attribute within each cell of others.

    Args:
        attribute: The attribute or level.
        within: Attributes or levels; shares are of the records in each of their cells.
        confidence: The probability, strictly between 0 and 1, with which each interval holds.

    Returns:
        One row per group and cell: share, standard_error, low, high and a note. Numbers are None in groups of fewer
        than 5 standard errors of their size.

    Raises:
        NotAnswerable: What it needs was not measured.
        DomainError: A name is unknown, or two names belong to one attribute.
        PlanError: The confidence is no such probability.
    """
    level, by = check_confidence(confidence), by_names(within)
    domain = release.plan.workload.domain
    domain.columns((attribute, *by))
    found = _shares_of_runs(release, attribute, domain[attribute].size, by, level, upto=False)
    groups = math.prod(domain.sizes(by))
    return group_frame(release, by, {column_heading(attribute): list(domain[attribute].labels) * groups}, found)


def cumulative_shares(
    release: Release, attribute: str, by: str | Sequence[str] = (), confidence: float = 0.95
) -> Frame:
    """Shares of records up to each cell of an ordered attribute; of the records in declared cells.

    Where the release is projected onto tables they never fall. Otherwise each is the ratio of unbiased answers, so that
    noise may have one fall below the one before; then `note` says so.

    Args:
        attribute: An ordered attribute: sf.Integers, sf.Bins or sf.Dates.
        by: Attributes or levels; shares are of the records in each of their cells.
        confidence: The probability, strictly between 0 and 1, with which each interval holds.

    Returns:
        One row per group and declared cell: share, standard_error, low, high and a note. Numbers are None in groups of
        fewer than 5 standard errors of their size.

    Raises:
        PlanError: The attribute has no order, or the confidence is no such probability.
        NotAnswerable: What it needs was not measured.
        DomainError: A name is unknown, or two names belong to one attribute.
    """
    level, names = check_confidence(confidence), by_names(by)
    domain = release.plan.workload.domain
    domain.columns((attribute, *names))
    declared = domain[attribute]
    if not declared.ordered:
        raise PlanError(
            f"{attribute} has no order; a CDF needs sf.Integers, sf.Bins or sf.Dates (in a spec type integer, number "
            "or date)"
        )
    sizes, numbers = _shares_of_runs(release, attribute, len(declared.declared_labels), names, level, upto=True)
    found = _warn_falling(release, sizes, numbers[0]), numbers
    groups = math.prod(domain.sizes(names))
    label = [f"up to {t}" for t in declared.declared_labels]
    return group_frame(release, names, {column_heading(attribute): label * groups}, found)


def _warn_falling(release: Release, sizes: GroupSizes, shares: FloatArray) -> GroupSizes:
    """The same, with a word for each group whose shares fall somewhere."""
    word = _FALLS + ("" if release.projection is not None else _INSTEAD)
    falls: NDArray[np.bool_] = np.any(np.diff(shares, axis=0) < -_ROUNDING, axis=0)
    return replace(sizes, notes=[word if f else n for f, n in zip(falls.tolist(), sizes.notes, strict=True)])


def group_frame(
    release: Release,
    by: tuple[str, ...],
    labels: dict[str, list[str]],
    found: tuple[GroupSizes, Numbers],
    name: str = "share",
) -> Frame:
    sizes, numbers = found
    rows = len(numbers[0])
    named = zip((name, "standard_error", "low", "high"), numbers, strict=True)
    notes = [note for note in sizes.notes for _ in range(rows)]
    return Frame(
        {**_group_columns(release, by, rows), **labels, **{n: _flatten_or_none(v) for n, v in named}, "note": notes}
    )


def attribute_quantiles(
    release: Release,
    attribute: str,
    probabilities: Sequence[float],
    by: str | Sequence[str] = (),
    confidence: float = 0.95,
) -> Frame:
    """Quantiles of a numeric attribute or of dates, all from one measurement.

    The quantile at p is the least value up to which a share of at least p of the records goes; of the records in
    declared cells. It is rounded to a tenth of its cell or coarser, for where in the cell it lies is not known.
    Intervals go out to the edges of cells. Quantiles never decrease in their probabilities.

    Args:
        attribute: A numeric attribute, or one of dates.
        probabilities: Probabilities, such as [0.25, 0.5, 0.75].
        by: Attributes or levels; quantiles are taken within each of their cells.
        confidence: The probability, strictly between 0 and 1, with which each interval holds.

    Returns:
        One row per group and probability, with an interval and a note; of dates days, as year-month-day. Numbers are
        None in groups of fewer than 5 standard errors of their size, with the reason under `note`.

    Raises:
        PlanError: The attribute is neither numeric nor of dates, or a probability does not lie strictly between 0 and
            1.
        NotAnswerable: What it needs was not measured, or no probability is given.
        DomainError: A name is unknown, or two names belong to one attribute.
    """
    level, names = check_confidence(confidence), by_names(by)
    declared = release.plan.workload.domain[attribute]
    days = itertools.pairwise(declared.edges) if isinstance(declared, Dates) else None
    intervals = numeric_attribute(release, attribute)[0].intervals if days is None else list(days)
    wanted = read_probabilities(probabilities)
    edges, whole = np.asarray(intervals, dtype=np.float64), declared.kind in ("integer", "date")
    everybody = declared_rows(declared, np.ones((1, len(edges))))
    sizes = _group_sizes(release, _rows_within(release, attribute, everybody, names), level)
    runs = _runs_within(release.raw, attribute, len(edges), names)
    upto = runs.upto.shaped(release.raw.answer_block)
    shown = upto if release.projection is None else runs.upto.shaped(release.answer_block)
    found: list[tuple[FloatArray, ...]] = []
    for p, half in zip(wanted, _threshold_margins(release.raw, attribute, runs, names, wanted, level), strict=True):
        low, high = _quantile_brackets(upto - p * upto[-1], half, edges, whole=whole)
        value = _quantile_crossing(shown, p, edges, whole=whole)
        found.append((value, np.minimum(low, value), np.maximum(high, value)))
    groups = len(sizes.told)
    columns: dict[str, Any] = _group_columns(release, names, len(wanted))
    columns["probability"] = wanted * groups
    for i, key in enumerate(("quantile", "low", "high")):
        values = [float(f[i][g]) if sizes.told[g] else None for g in range(groups) for f in found]
        columns[key] = [v if v is None else day_shown(int(v)) for v in values] if days is not None else values
    columns["note"] = [note for note in sizes.notes for _ in wanted]
    return Frame(columns)


def _threshold_margins(
    raw: Release, attribute: str, runs: RunsWithin, by: tuple[str, ...], wanted: Sequence[float], level: float
) -> Iterator[FloatArray]:
    """For each p half-widths of the intervals of the counts up to each cell less p times all, (cells, groups)."""
    noise, n = raw.measurement.noise, runs.upto.at.stop - runs.upto.at.start
    laplace = isinstance(noise, DiscreteLaplace)
    if laplace and n <= _MOST_CELLS:  # sums of few draws reach farther than of many: rows tell how many there are
        declared = raw.plan.workload.domain[attribute]
        for p in wanted:
            yield _half_widths(raw, attribute, declared_rows(declared, np.tri(n) - p), by, level)
        return
    _, upto, whole, both = runs.run_variances(raw)
    for p in wanted:
        second = np.maximum(upto - 2 * p * both + p**2 * whole, 0.0) / noise.variance
        second = np.where(np.isnan(second), np.inf, second)
        yield interval_margins(level, second, np.full_like(second, np.nan) if laplace else None, noise)


def read_probabilities(given: Sequence[float]) -> list[float]:
    """Probabilities strictly between 0 and 1, one at least."""
    wanted = [given] if isinstance(given, (int, float)) else list(given)
    for p in wanted:
        if isinstance(p, bool) or not isinstance(p, (int, float)) or not 0 < p < 1:
            raise PlanError(f"a quantile's probability must lie strictly between 0 and 1, not {p!r}")
    if not wanted:
        raise NotAnswerable("name at least one probability")
    return [float(p) for p in wanted]


def _quantile_brackets(
    answers: FloatArray, half: FloatArray, intervals: FloatArray, *, whole: bool
) -> tuple[FloatArray, FloatArray]:
    """Per group (low, high) of a quantile, edges of cells, from answers whose exact values rise through 0.

    The lower end is the first cell at whose end the answer could already be 0 or more; the upper end the first
    from which on it must be. Of all cells only the quantile's own, and the one before, can make them wrong: were
    the upper end the first cell where the answer must be, any of those before could.
    """
    n = len(answers)
    could, need_not = answers + half >= 0, answers - half < 0
    first = np.where(could.any(axis=0), np.argmax(could, axis=0), n - 1)
    last = np.where(need_not.any(axis=0), n - np.argmax(need_not[::-1], axis=0), 0)
    return intervals[first, 0], _upper_values(intervals, whole=whole)[np.minimum(last, n - 1)]


def _upper_values(intervals: FloatArray, *, whole: bool) -> FloatArray:
    """The largest value of each cell: of whole numbers the last, else the edge."""
    return intervals[:, 1] - (1 if whole else 0)


def _quantile_crossing(upto: FloatArray, p: float, intervals: FloatArray, *, whole: bool) -> FloatArray:
    """Per group the quantile, from noisy counts up to each cell (cells, groups).

    Counts are made to rise by the mean of the largest so far and the least to come: the largest so far alone
    rises too soon where cells are small, which shifted quantiles down.
    """
    n, groups = upto.shape
    ahead = np.minimum.accumulate(upto[::-1], axis=0)[::-1]
    rising = (np.maximum.accumulate(upto, axis=0) + ahead) / 2
    total = np.maximum(upto[-1], 0.0)
    rising = np.clip(rising, 0.0, total)
    reached = rising >= p * total
    cell = np.where(reached.any(axis=0), np.argmax(reached, axis=0), n - 1)
    after = rising[cell, np.arange(groups)]
    before = np.where(cell > 0, rising[np.maximum(cell - 1, 0), np.arange(groups)], 0.0)
    along = np.divide(p * total - before, after - before, out=np.full(groups, 0.5), where=after > before)
    low, high = intervals[cell, 0], _upper_values(intervals, whole=whole)[cell]
    value = low + np.clip(along, 0.0, 1.0) * (high - low)
    decimals = _quantile_decimals(intervals[:, 1] - intervals[:, 0], whole=whole)[cell]
    rounded = [float(np.round(v, d)) for v, d in zip(value.tolist(), decimals.tolist(), strict=True)]
    return np.clip(np.array(rounded), low, high)


def _quantile_decimals(widths: FloatArray, *, whole: bool) -> NDArray[np.int64]:
    """How a quantile in a cell of each width is rounded: at most ten numbers a cell, for no more is known of it."""
    found = 1 - np.ceil(np.log10(widths) - 1e-9).astype(np.int64)
    return np.minimum(found, 0) if whole else found
