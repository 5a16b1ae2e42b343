"""Means of numbers: of those counted in cells, by their edges; and of a measure, below, above and cut at its knots.

A mean of middles errs by its noise, and by what the middles are off: nobody who knows the counts alone knows more of
the mean of the values than that it lies between that of the cells' lower ends and that of their upper ends. Its
interval goes from the lower end of the one's interval to the upper end of the other's, so that it holds the mean of
the values with the confidence that is asked, wherever in their cells these are.

Of a measure, sums of min(v, z) at every knot z come from one look, whatever is chosen among them. All intervals of
their means hold together, so the intervals say nothing wrong whatever is chosen: as min(v, z) is never above v, the
mean of the numbers lies above the lower end of each, and below the upper end of that which cuts nothing.
docs/decisions/0152. `gap` is a method of `Release`.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from sfumato._util.checks import show_number
from sfumato._util.frames import Frame, safe_text
from sfumato.domain import Attribute, Domain, Measure
from sfumato.domain.core import format_with_thousands, range_restriction
from sfumato.domain.impossible import cell_value_ranges
from sfumato.errors import NotAnswerable, PlanError
from sfumato.operators import Block, Dense
from sfumato.operators.base import FloatArray
from sfumato.plans.planned import counted_as_zero, is_answered
from sfumato.plans.predictions import check_confidence, simultaneous_confidence
from sfumato.releases.answers import Answer, LinearAnswer, Ratio
from sfumato.releases.linear import split_into_products
from sfumato.releases.quantiles import (
    GroupSizes,
    Numbers,
    by_names,
    declared_rows,
    group_frame,
    numeric_attribute,
    ratio_interval,
    rows_block,
)
from sfumato.releases.reliability import chart_flagged, read_reliability
from sfumato.workloads import predicates
from sfumato.workloads.levels import lift_to_attribute, table_block

if TYPE_CHECKING:
    from sfumato.releases.release import Release

# Two means differ, and not by noise alone, beyond so many squared standard errors, and so many more where the higher
# knot's error is e times as large: noise passes c by a chance like exp(-c c / 2), and costs the square of that ratio
_DIFFER, _MORE = 9.0, 9.0
_STEEP = 3  # the power of a cut's estimated squared error by which it counts less


def _with_knots(release: Release, name: str, at: object = None) -> Measure:
    """A measure with knots, `at` among them where it is given."""
    domain = release.plan.workload.domain
    measure = domain[name]
    if not isinstance(measure, Measure) or not measure.knots:
        raise PlanError(f"{name} has no knots; declare them before the plan: sf.Measure(low, high, knots=[...])")
    if at is not None and at not in measure.knots:
        known = ", ".join(map(show_number, measure.knots))
        shown = show_number(at) if isinstance(at, (int, float)) else repr(at)
        raise PlanError(f"{shown} is no knot of {name}; its knots are {known}")
    return measure


def _show_knot(measure: Measure, at: float) -> str:
    """A knot as it was declared: 2000 for 2000.0."""
    return show_number(next(k for k in measure.knots if k == at))


def _said(release: Release, name: str, *also: str) -> str:
    return "; ".join(t for t in (*also, range_restriction(release.plan.workload.domain, name)) if t)


def sums_not_measured(name: str, by: Sequence[str], asked: str) -> NotAnswerable:
    """What is said where sums of a measure are missing, with the query that a plan would have had to ask."""
    return NotAnswerable(
        f"sums of {name}{' by ' + ', '.join(by) if by else ''} were not measured; ask {asked} in the plan"
    )


def means_query(name: str, by: Sequence[str], clip: str = "") -> str:
    """The query of means of a measure, as one writes it."""
    return f"sf.means(domain, {name!r}{f', by={list(by)!r}' if by else ''}{clip})"


@contextmanager
def _asked_of(measure: object, name: str, by: Sequence[str], asked: str) -> Generator[None]:
    """Say of a measure what would have to be asked: the strategy knows its own coefficients, not the question."""
    try:
        yield
    except NotAnswerable as error:
        if not isinstance(measure, Measure):
            raise
        raise sums_not_measured(name, by, asked) from error


def gap(
    release: Release,
    measure: str,
    at: float,
    by: str | Sequence[str] = (),
    confidence: float = 0.95,
    *,
    side: Literal["below", "above"] = "below",
) -> Frame:
    """How far the numbers of a measure are below a knot on average, or above it, within each cell of `by`.

    The mean is over all records with a number; one that is not below the knot counts with 0. Of incomes at a poverty
    line it is the poverty gap in money; over the line it is the index.

    Args:
        measure: The name of a measure with knots.
        at: One of its knots.
        by: Attributes or levels; the mean is taken within each of their cells.
        confidence: The probability, strictly between 0 and 1, with which each interval holds.
        side: "below", the mean of max(at - v, 0), or "above", that of max(v - at, 0).

    Returns:
        One row per group: the mean gap, standard_error, low, high and a note. Numbers are None in groups of fewer than
        5 standard errors of their size.

    Raises:
        NotAnswerable: The gaps were not measured: ask `sf.gaps` in the plan.
        PlanError: The name is not that of a measure with knots, `at` is none of them, the side is another, or the
            confidence is no such probability.
        DomainError: A name is unknown, or two names belong to one attribute.

    Guarantee:
        The interval holds the mean gap of the numbers, cut to the declared range, with at least the confidence.
    """
    level, names = check_confidence(confidence), by_names(by)
    declared = _with_knots(release, measure, at)
    if side not in ("below", "above"):
        raise PlanError(f'a gap is on the side "below" or "above" of a knot, not {side!r}')
    cut, z = np.array(declared.clipped(float(at))), float(at)
    row = z - cut if side == "below" else np.array(declared.midpoints) - cut
    most = z - declared.ends[0] if side == "below" else declared.ends[-1] - z
    top, bottom = (declared_rows(declared, r[None, :]) for r in (row, np.ones(len(row))))
    beyond = f', side="{side}"' if side != "below" else ""
    asked = (
        f"sf.gaps(domain, {measure!r}, at={_show_knot(declared, at)}{f', by={list(names)!r}' if names else ''}{beyond})"
    )
    with _asked_of(declared, measure, names, asked):
        sizes, numbers = ratio_interval(release, measure, (top, bottom), names, level, (0.0, most))
    note = _said(release, measure, sizes.beside)
    sizes = replace(sizes, notes=[note if t else n for t, n in zip(sizes.told.tolist(), sizes.notes, strict=True)])
    title = f"mean of {measure} {side} {_show_knot(declared, at)}"
    return group_frame(release, names, {}, (sizes, numbers), name=title)


def clipped_mean(release: Release, name: str, cut: float, by: tuple[str, ...], level: float) -> Frame:
    """The mean of the numbers of a measure cut at a knot, within each cell of `by`."""
    measure = _with_knots(release, name, cut)
    row = np.array(measure.clipped(float(cut)))
    top, bottom = (declared_rows(measure, r[None, :]) for r in (row, np.ones(len(row))))
    clip = (measure.ends[0], float(cut))
    with _asked_of(measure, name, by, means_query(name, by, ', clip="best"')):
        sizes, numbers = ratio_interval(release, name, (top, bottom), by, level, clip)
    note = _said(release, name, f"of values cut at {_show_knot(measure, cut)}", sizes.beside)
    sizes = replace(sizes, notes=[note if t else n for t, n in zip(sizes.told.tolist(), sizes.notes, strict=True)])
    return group_frame(release, by, {}, (sizes, numbers), name=f"mean {name}")


def cut_weights(z: FloatArray, error: FloatArray, far: FloatArray, doubt: FloatArray) -> FloatArray:
    """(cuts, groups) how much of each cut's mean is in that of least error, as far as noisy means tell; adds up to 1.

    What is cut off is estimated as if numbers beyond z were as many as 1 / z^2 says: from those between this cut and
    the one below it, and from those between it and the one above, whichever says less; and where a higher cut's mean is
    farther off than noise explains, as at least so far. That and the noise are the squared error of each cut.

    Args:
        z: (cuts,) how far each lies above the lower end, rising; the last cuts nothing.
        error: (cuts, groups) standard errors of the means cut there.
        far: (cuts, cuts, groups) by how much the second's mean is larger.
        doubt: (cuts, cuts, groups) the standard error of that.
    """
    count = len(z)
    rest = 1 / z - 1 / z[-1]
    between = 1 / z[:-1] - 1 / z[1:]
    step = np.maximum(far[np.arange(count - 1), np.arange(1, count)], 0.0)
    lost = np.zeros(error.shape)
    lost[:-1] = step * (rest[:-1] / between)[:, None]
    lost[1:] = np.minimum(lost[1:], step * (rest[1:] / between)[:, None])
    noisier = np.maximum(error[None] / np.maximum(error[:, None], 1e-300), 1.0)
    differ = far > np.sqrt(_DIFFER + _MORE * np.log(noisier)) * doubt
    higher = np.triu(np.ones((count, count), dtype=bool), 1)[:, :, None]
    lost = np.maximum(lost, np.where(differ & higher, far, 0.0).max(axis=1))
    square = error**2 + lost**2
    weight = (square.min(axis=0) / square) ** _STEEP
    return np.asarray(weight / weight.sum(axis=0))


def best_clipped_mean(release: Release, name: str, by: tuple[str, ...], level: float) -> Frame:
    """The mean of the numbers of a measure, each cut at a knot weighed by how little it errs, within each cell of `by`.

    low and high are of the mean of the numbers that nothing cuts but the declared range.
    """
    measure = _with_knots(release, name)
    cuts = [*measure.knots, measure.high]
    count = len(cuts)
    rows = np.array([measure.clipped(float(z)) for z in cuts])
    one, other = np.triu_indices(count, 1)
    bottom = declared_rows(measure, np.ones((1, rows.shape[1])))
    together = simultaneous_confidence(level, count, release.raw.measurement.noise)
    z = np.array(cuts, dtype=np.float64)
    with _asked_of(measure, name, by, means_query(name, by, ', clip="best"')):
        sizes, (value, error, low, high) = ratio_interval(
            release, name, (declared_rows(measure, rows), bottom), by, together, (measure.ends[0], z[:, None])
        )
    # a number is cut by what it is cut by more, or by nothing: differences are not negative
    top, differences = measure.ends[-1] - measure.ends[0], declared_rows(measure, rows[other] - rows[one])
    between = ratio_interval(release, name, (differences, bottom), by, together, (0.0, top))[1]
    far, doubt = np.zeros((2, count, count, value.shape[1]))
    far[one, other], far[other, one] = between[0], -between[0]
    doubt[one, other] = doubt[other, one] = between[1]
    weight = cut_weights(z - measure.ends[0], error, far, doubt)
    joint = (error[:, None] ** 2 + error[None] ** 2 - doubt**2) / 2  # covariances of means
    told = (weight * value).sum(axis=0), np.sqrt(np.maximum(np.einsum("kg,kjg,jg->g", weight, joint, weight), 0.0))
    least = np.minimum(low.max(axis=0), told[0])
    most = np.maximum(high[-1], told[0])
    chosen, groups = np.argmax(weight, axis=0), np.arange(value.shape[1])
    notes = [
        _said(
            release,
            name,
            f"mostly cut at {format_with_thousands(cuts[k])}, where its mean is {a:,.6g} to {b:,.6g}",
            sizes.beside,
        )
        if t
        else n
        for t, n, k, a, b in zip(
            sizes.told.tolist(),
            sizes.notes,
            chosen.tolist(),
            low[chosen, groups].tolist(),
            high[chosen, groups].tolist(),
            strict=True,
        )
    ]
    found = told[0][None, :], told[1][None, :], least[None, :], most[None, :]
    return group_frame(release, by, {}, (replace(sizes, notes=notes), found), name=f"mean {name}")


def mean_where(
    release: Release,
    attribute: str,
    rows: tuple[FloatArray, FloatArray],
    where: str,
    level: float,
    reach: tuple[FloatArray, FloatArray],
    off: tuple[float, float],
) -> Answer:
    """The ratio of two rows over an attribute's cells, of the records that satisfy a condition.

    reach: rows of the cells' lower and upper ends; off: how far these are from the first row's values at most, which
    is what the interval reaches down and up where sums of the ends were not measured.
    """
    domain = release.plan.workload.domain
    condition = predicates(domain, [where]).blocks[0].block

    def form(row: FloatArray) -> LinearAnswer:
        def weighted(block: Block) -> Block:
            return _weight_condition(domain, block, attribute, row)

        try:
            release.plan.strategy.check(whole := weighted(condition))
        except NotAnswerable:
            found = split_into_products(release, condition, weighted)
            if found is None:
                raise
            return found
        return LinearAnswer(((1.0, release, whole),))

    top, bottom = map(form, rows)
    unit = f"(mean {safe_text(attribute)})"
    if not any(off):
        return Answer.of(Ratio(top, bottom, unit), level)
    try:
        low, high = map(form, reach)
    except NotAnswerable:
        low, high = top + bottom.times(-off[0]), top + bottom.times(off[1])
    return Answer.of(Ratio(replace(top, reach=(low, high)), bottom, unit), level)


def _weight_condition(domain: Domain, condition: Block, attribute: str, row: FloatArray) -> Block:
    """The one row of a condition, each cell multiplied by the weight of its cell of an attribute."""
    owner, factor = lift_to_attribute(domain, attribute, Dense(row[None, :]))
    weights = np.asarray(factor.dense(), dtype=np.float64)[0]
    groups, factors = list(condition.groups), list(condition.factors)
    at = next((i for i, g in enumerate(groups) if owner in g), None)
    if at is None:
        return Block((*groups, (owner,)), (*factors, Dense(weights[None, :])))
    shape = [-1 if n == owner else 1 for n in groups[at]]
    held = np.asarray(factors[at].dense(), dtype=np.float64).reshape(domain.sizes(groups[at]))
    factors[at] = Dense((held * weights.reshape(shape)).reshape(1, -1))
    return Block(tuple(groups), tuple(factors))


@dataclass(frozen=True, slots=True, repr=False)
class Means(Frame):
    """Means of groups, one row each: the groups, the mean, standard_error, low, high and a note.

    Args:
        columns: The values of each column.
    """

    def plot(self, *, title: str = "", source: str = "", flags: Mapping[str, float] | None = None) -> Any:
        """An Altair chart of the means with their intervals, for one to three attributes (extra: plots).

        Groups of which too little is known have no bar.

        Args:
            title: What stands above it.
            source: The line below it, such as the office and the year.
            flags: Marks of an office with the relative standard errors above which each is set; a mean that is flagged
                "suppress" has no bar.

        Returns:
            The chart; `.save("chart.svg")`, or .png or .pdf, writes it to a file (extra: charts).

        Raises:
            PlanError: There is no attribute, or there are more than three.
            InvalidInput: The flags are no marks with thresholds.
            MissingExtra: Altair is not installed.
        """
        heads = list(self.columns)
        at = heads.index("standard_error") - 1
        names, marks = heads[:at], read_reliability(flags)
        if len(names) not in (1, 2, 3):
            raise PlanError(f"means by {len(names)} attributes have no simple picture; take by= of one to three")
        numbers = [np.array([math.nan if v is None else v for v in self[n]]) for n in (*heads[at : at + 2], *_ENDS)]
        flagged = marks.flags(np.abs(numbers[0]), numbers[1])
        cells = zip(*(self[n] for n in names), strict=True)
        rows = [
            {f"axis{k}": safe_text(text) for k, text in enumerate(cell)}
            | {"answer": value, "low": low, "high": high, "flag": flag}
            for cell, value, _, low, high, flag in zip(cells, *(n.tolist() for n in numbers), flagged, strict=True)
        ]
        return chart_flagged(rows, names, heads[at], title, source, marks)


_ENDS = ("low", "high")
Clip = float | Literal["best"] | None
"""Where the numbers of a measure are cut: at a knot, at one that is chosen, or at the ends of the range alone."""
_WORTH_SAYING = 0.05  # of an interval's width: what cells add below that nobody would narrow them for


@overload
def attribute_mean(
    release: Release,
    attribute: str,
    by: str | Sequence[str] = (),
    values: Sequence[float] | None = None,
    confidence: float = 0.95,
    *,
    where: None = None,
    clip: Clip = None,
) -> Means: ...
@overload
def attribute_mean(
    release: Release,
    attribute: str,
    by: str | Sequence[str] = (),
    values: Sequence[float] | None = None,
    confidence: float = 0.95,
    *,
    where: str,
) -> Answer: ...
def attribute_mean(
    release: Release,
    attribute: str,
    by: str | Sequence[str] = (),
    values: Sequence[float] | None = None,
    confidence: float = 0.95,
    *,
    where: str | None = None,
    clip: Clip = None,
) -> Means | Answer:
    """Mean of a numeric attribute within each cell of `by`, or among the records of a condition.

    Of a measure it is the mean of the numbers themselves, otherwise that of the cells' middles, with an interval for
    the mean of the values: from the mean of the cells' lower ends to that of their upper ends, widened by the noise. So
    the interval holds the mean wherever in their cells the values are; of whole numbers one by one the noise is all.
    Standard errors are of the noise. Where the records of a group were counted, but not those with a declared value,
    the mean is over all of them, with 0 for the extra cell, and the note says so.

    Args:
        attribute: A numeric attribute or a measure, or any attribute with `values`.
        by: Attributes or levels; the mean is taken within each of their cells.
        values: One finite number per declared cell, whose mean is taken in place of the middles.
        confidence: The probability, strictly between 0 and 1, with which each interval holds.
        where: A predicate, instead of `by`: the mean of the records that satisfy it.
        clip: Of a measure with knots, a knot at which its numbers are cut; or "best", which chooses after the release:
            the means at all knots, each weighed by how little it errs, by its noise and by what seems to be cut off.
            The plan must have asked `sf.means` with `clip="best"`, or `sf.gaps`. low and high are then, with "best", of
            the mean of the numbers in the declared range, whatever was chosen; the note says where they were mostly
            cut, and between what the mean of the cut numbers lies.

    Returns:
        One row per group: the mean, standard_error, low, high and a note, which names the cell that widens the interval
        most, and says of which values it is where some may lie outside the declared range, and of which records where
        only those with a number in other measures too were measured. Numbers are None in groups of fewer than 5
        standard errors of their size. With `where` an Answer, with the standard error and the interval
        of a ratio.

    Raises:
        PlanError: Both `by` and `where` are given, the attribute is not numeric, `values` are not one finite number
            per declared cell, or `clip` is no knot of the measure or beside `where` or `values`.
        NotAnswerable: What it needs was not measured, or the condition holds for fewer records than 5 standard errors.
    """
    level, names = check_confidence(confidence), by_names(by)
    if clip is not None:
        if where is not None or values is not None:
            raise PlanError("numbers are cut with clip= in the cells of by=, not beside where= or values=")
        if clip == "best":
            return Means(best_clipped_mean(release, attribute, names, level).columns)
        return Means(clipped_mean(release, attribute, clip, names, level).columns)
    if values is None:
        declared, row = numeric_attribute(release, attribute, measures=True)
        reach = cell_value_ranges(declared)
        assert reach is not None
    else:
        declared, row = release.plan.workload.domain[attribute], np.asarray(values, dtype=np.float64)
        if row.shape != (len(declared.declared_labels),) or not np.isfinite(row).all():
            raise PlanError(f"values must be one finite number per declared cell of {attribute}")
        reach = np.stack([row, row], axis=1)
    rows = [declared_rows(declared, r[None, :]) for r in (row, np.ones(len(row)), reach[:, 0], reach[:, 1])]
    if where is not None:
        if names:
            raise PlanError("a mean is asked within the cells of by=, or of one condition where=, not of both")
        off = float((row - reach[:, 0]).max()), float((reach[:, 1] - row).max())
        top, bottom, lower, upper = (r[0] for r in rows)
        return mean_where(release, attribute, (top, bottom), where, level, (lower, upper), off)
    top, bottom, lower, upper = rows
    span, middles = (float(reach[:, 0].min()), float(reach[:, 1].max())), (float(row.min()), float(row.max()))
    everybody = np.ones((1, declared.size))
    known, every = (
        is_answered(release.plan.strategy, rows_block(release, attribute, r, names)) for r in (bottom, everybody)
    )
    whole = declared.has_other and every and not known
    if whole:
        bottom = everybody
        span, middles = ((min(a, 0.0), max(b, 0.0)) for a, b in (span, middles))
    with _asked_of(declared, attribute, names, means_query(attribute, names)):
        sizes, numbers = ratio_interval(release, attribute, (top, bottom), names, level, middles)
    if (reach[:, 0] < reach[:, 1]).any():
        numbers = _widen_means(release, attribute, (lower, bottom, upper), names, level, numbers, row, reach, span)
    said = "; ".join(
        t
        for t in (
            "" if values is not None else range_restriction(release.plan.workload.domain, attribute),
            counted_as_zero(attribute) if whole else "",
            sizes.beside,
        )
        if t
    )
    sizes = replace(sizes, notes=_mean_notes(release, attribute, declared, reach, names, sizes, numbers, said))
    return Means(group_frame(release, names, {}, (sizes, numbers), name=f"mean {attribute}").columns)


def _widen_means(
    release: Release,
    attribute: str,
    rows: tuple[FloatArray, FloatArray, FloatArray],
    by: tuple[str, ...],
    level: float,
    numbers: Numbers,
    row: FloatArray,
    reach: FloatArray,
    clip: tuple[float, float],
) -> Numbers:
    """The same means with intervals from the lower ends' mean to the upper ends'.

    Where the ends' own sums were not measured, as in a table of sums and counts, no value is off its middle by more
    than the widest cell allows.
    """
    value, error, low, high = numbers
    lower, bottom, upper = rows
    try:
        low = np.minimum(value, ratio_interval(release, attribute, (lower, bottom), by, level, clip)[1][2])
        high = np.maximum(value, ratio_interval(release, attribute, (upper, bottom), by, level, clip)[1][3])
    except NotAnswerable:
        low = np.maximum(low - (row - reach[:, 0]).max(), clip[0])
        high = np.minimum(high + (reach[:, 1] - row).max(), clip[1])
    return value, error, low, high


def _mean_notes(
    release: Release,
    attribute: str,
    declared: Attribute,
    reach: FloatArray,
    by: tuple[str, ...],
    sizes: GroupSizes,
    numbers: Numbers,
    said: str,
) -> list[str]:
    """What is said beside each mean that is told: of which values it is, and which cell its width comes from."""
    widest = _dominating_cells(release, attribute, declared, reach, by, numbers)
    told = ["; ".join(t for t in (said, w) if t) for w in widest]
    return [t if known else note for t, known, note in zip(told, sizes.told.tolist(), sizes.notes, strict=True)]


def _dominating_cells(
    release: Release,
    attribute: str,
    declared: Attribute,
    reach: FloatArray,
    by: tuple[str, ...],
    numbers: Numbers,
) -> list[str]:
    """Per group how much of the interval the cells' width is, and the cell that is most of that; "" if it is little."""
    _, _, low, high = (x[0] for x in numbers)
    width = reach[:, 1] - reach[:, 0]
    if not width.any():
        return [""] * len(low)
    try:
        domain = release.plan.workload.domain
        found = release.answer_block(table_block(domain, (attribute, *by))).reshape(declared.size, -1)
        counts = np.maximum(found[: len(reach)], 0.0)
    except NotAnswerable:  # sums alone: which cell holds the records is not known
        counts = np.broadcast_to((width == width.max())[:, None], (len(width), len(low))).astype(np.float64)
    parts = width[:, None] * counts / np.maximum(counts.sum(axis=0), 1e-300)
    shares = np.divide(parts.sum(axis=0), high - low, out=np.zeros(len(low)), where=high > low)
    most = np.argmax(parts, axis=0)
    cells = declared.declared_labels
    return [
        f"{100 * min(s, 1.0):.0f} % of the interval is the width of cells, most of it that of {cells[m]}"
        if s >= _WORTH_SAYING
        else ""
        for s, m in zip(shares.tolist(), most.tolist(), strict=True)
    ]
