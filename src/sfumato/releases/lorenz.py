"""Lorenz curves and Gini indices of a measure, from sums of its numbers cut at knots.

Let H(z) be the mean of min(v, z). It is concave, and its slope at z is the share of the records above z. The Gini index
is 1 - (low + the integral of the squared slope) / mean, and the lower share p of the records has max over z of
H(z) - (1 - p) z, over the mean. Sums cut at knots fix H there and no more. So the index is largest where H is straight
between knots, and least where it is bent most: each is a quadratic form of the mean slopes of pieces, over the mean.

At the true slopes that form is linear in the sums, and so is what noise does to it: one normal number, as for a ratio.
The true slopes are not known. They lie, with most of the confidence, in intervals of their own, and the widest interval
of the index over all of these holds. As the form is stationary there, that costs squares of noise and no more.
`lorenz` and `gini` are methods of `Release`. docs/decisions/0161.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sfumato._util.frames import Frame, safe_text
from sfumato.domain import Measure
from sfumato.domain.core import range_restriction
from sfumato.errors import NotAnswerable, PlanError
from sfumato.operators.base import FloatArray
from sfumato.plans.planned import is_answered
from sfumato.plans.predictions import check_confidence, simultaneous_confidence, widest_sum_margin
from sfumato.releases.answers import SIZE_ERRORS, fieller_interval, too_few_note
from sfumato.releases.ends import column_heading
from sfumato.releases.means import means_query, sums_not_measured
from sfumato.releases.moments import joint_noise, shown_answers
from sfumato.releases.quantiles import (
    beside_note,
    by_names,
    declared_rows,
    others_joined,
    read_probabilities,
    rows_block,
)

if TYPE_CHECKING:
    from sfumato.releases.release import Release

_FOR_SLOPES = 0.1  # of what may go wrong: slopes matter by squares of noise, so wide intervals of them cost little
_HALVINGS = 50  # of an interval from 0 to 1, down to what double precision tells apart
_STEPS = 64  # of each piece, on which the curve's upper end is looked for: it is rounded up to the worse end of a step

Ends = tuple[float, float]


@dataclass(frozen=True, slots=True)
class _Sums:
    """Noisy sums of each group: how many records, and what of their numbers lies in each piece between cuts.

    cuts: (pieces + 1,) from the lower end of the range to the upper; values: (groups, 1 + pieces); noise: their
    covariances; shown: the same sums of a projected release, as they are projected; said: of which values and records.
    """

    cuts: FloatArray
    values: FloatArray
    noise: FloatArray
    shown: FloatArray
    said: str


def _read_sums(release: Release, name: str, by: tuple[str, ...], what: str) -> _Sums:
    """The sums between those knots at which sums were measured. Raises NotAnswerable."""
    raw, domain = release.raw, release.plan.workload.domain
    measure = domain[name]
    if not isinstance(measure, Measure):
        others = ", ".join(domain.measures) or "none is declared"
        raise PlanError(f"{name} is no measure of this release; measures: {others}")
    if measure.ends[0] < 0:
        raise PlanError(f"a {what} is of numbers that are not negative, and the range of {name} begins below 0")
    strategy = raw.plan.strategy
    cut = {z: np.array([measure.clipped(z)]) for z in measure.ends[1:]}
    everybody = np.ones((1, len(measure.midpoints)))

    def known(rows: FloatArray) -> bool:
        return is_answered(strategy, rows_block(raw, name, declared_rows(measure, rows), by))

    cuts = [z for z in cut if known(np.concatenate([everybody, cut[z]]))]
    if measure.ends[-1] not in cuts:
        clip = ', clip="best"' if measure.knots else ""
        raise sums_not_measured(name, by, means_query(name, by, clip))
    lower = np.array([measure.ends[0] * everybody[0], *(cut[z][0] for z in cuts[:-1])])
    pieces = np.concatenate([cut[z] for z in cuts]) - lower
    rows = declared_rows(measure, np.concatenate([everybody, pieces]))
    if strategy.deviations(rows_block(raw, name, rows, by)) is not None:
        raise NotAnswerable(f"a {what} needs unbiased answers, and this release answers these queries with a bias")
    values, noise = joint_noise(raw, rows, lambda r: rows_block(raw, name, r, by))
    block = rows_block(raw, name, rows, by)
    notes = range_restriction(domain, name), beside_note(others_joined(raw, name, block))
    said = "; ".join(t for t in notes if t)
    return _Sums(np.array([measure.ends[0], *cuts]), values, noise, shown_answers(release, block, values), said)


def _error(row: FloatArray, noise: FloatArray) -> FloatArray:
    """Standard errors of sums (..., numbers) of what has this noise."""
    return np.sqrt(np.maximum(np.einsum("...i,ij,...j->...", row, noise, row), 0.0))


@dataclass(frozen=True, slots=True)
class _Group:
    """The sums of one group, and between what the mean slopes of H on its pieces lie.

    width: (pieces,) of each; slopes: the noisy ones; least, most: the ends of intervals that hold together; seen: the
    slopes of a projected release, as they are projected.
    """

    low: float
    width: FloatArray
    values: FloatArray
    noise: FloatArray
    slopes: FloatArray
    least: FloatArray
    most: FloatArray
    seen: FloatArray

    @property
    def whole(self) -> FloatArray:
        """The coefficients of the sum of all numbers."""
        return np.append(self.low, np.ones(len(self.width)))

    def possible(self) -> FloatArray:
        """The nearest slopes that numbers in the range can have: from 1 down to 0, none above the one before."""
        from scipy.optimize import isotonic_regression  # noqa: PLC0415  (slow to import)

        return np.clip(-isotonic_regression(-self.seen, weights=self.width).x, 0.0, 1.0)


def _group(
    cuts: FloatArray, values: FloatArray, noise: FloatArray, margin: float, shown: FloatArray | None = None
) -> _Group:
    width, spread = np.diff(cuts), np.diagonal(noise)
    n = np.full(len(width), values[0])
    slopes, _, least, most = (
        v / width for v in fieller_interval(values[1:], n, spread[1:], spread[:1], noise[0, 1:], margin)
    )
    # true slopes fall from 1 to 0, so each lies above all lower ends to come and below all upper ends before
    least = np.maximum.accumulate(np.clip(least, 0.0, 1.0)[::-1])[::-1]
    most = np.maximum(np.minimum.accumulate(np.clip(most, 0.0, 1.0)), least)
    seen = shown[1:] / (shown[0] * width) if shown is not None and shown[0] > 0 else slopes
    return _Group(float(cuts[0]), width, values, noise, slopes, least, most, seen)


# ---- the Gini index --------------------------------------------------------------------------------------


def _best_apart(gains: Sequence[float]) -> list[int]:
    """The pieces with the largest sum of gains, no two of them side by side."""
    without: tuple[float, list[int]] = (0.0, [])
    with_last = without
    for k, gain in enumerate(gains):
        best = max(without, with_last, key=lambda t: t[0])
        with_last, without = (without[0] + gain, [*without[1], k]), best
    return max(without, with_last, key=lambda t: t[0])[1]


def _beside(slopes: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The slopes before and after each: 1 below the range, where nobody is, and 0 above it."""
    return np.append(1.0, slopes[:-1]), np.append(slopes[1:], 0.0)


def _possible_indices(low: float, width: FloatArray, slopes: FloatArray) -> Ends:
    """The least and the largest Gini index of numbers with these mean slopes on pieces."""
    mean = low + float(width @ slopes)
    if mean <= 0:
        return 0.0, 1.0
    before, after = _beside(slopes)
    straight = low + float(width @ slopes**2)
    gains = (width * (before - slopes) * (slopes - after)).tolist()
    bent = straight + sum(gains[k] for k in _best_apart(gains))
    return 1 - bent / mean, 1 - straight / mean


def _crossing(negative_at: float, other: float, distance: Callable[[float], float]) -> float:
    """Where a function of a number from 0 to 1 is 0, between where it is below and where it is not."""
    for _ in range(_HALVINGS):
        middle = (negative_at + other) / 2
        if distance(middle) < 0:
            negative_at = middle
        else:
            other = middle
    return other


def _largest_index(group: _Group, z: float) -> float:
    """The upper end: that of the index of straight pieces, at the true slopes wherever these are.

    (1 - index) (sum of all) = low n + sum_k (2 s_k D_k - s_k^2 width_k n) at the true slopes s, D what lies in pieces.
    """
    width, n = group.width, group.values[0]
    ends = np.stack([group.least, group.most])
    # concave in each slope, so least at an end
    top = n * (group.low + float((width * (2 * ends * group.slopes - ends**2)).min(axis=0).sum()))
    middle, off = (group.least + group.most) / 2, (group.most - group.least) / 2
    row = np.append(group.low - width @ middle**2, 2 * middle)
    each = np.column_stack([-middle * width, np.eye(len(width))])  # what lies in a piece beyond its slope's share
    moved = float((2 * off * _error(each, group.noise) + width * off**2 * np.sqrt(group.noise[0, 0])).sum())
    total = float(group.whole @ group.values)

    def inside(g: float) -> float:
        """Below 0 where 1 - index may be g."""
        return top - g * total - z * (float(_error(row - g * group.whole, group.noise)) + moved)

    return 1.0 if inside(0.0) < 0 else 1 - _crossing(1.0, 0.0, inside) if inside(1.0) < 0 else 0.0


def _least_index(group: _Group, z: float) -> float:
    """The lower end: that of the index of pieces bent as far as their neighbours' slopes allow.

    Such a piece is straight on both sides of one bend, with the slopes of its neighbours, which then are straight. So
    which pieces are bent is to be chosen, no two side by side; any choice that may be the best bounds the end.
    """
    width, n, noise = group.width, group.values[0], group.noise
    count = len(width)
    near = np.clip(group.slopes, group.least, group.most)
    straight = width * (2 * near * group.slopes - near**2)
    middle, off = (group.least + group.most) / 2, (group.most - group.least) / 2
    outer = np.append(0.0, np.append(off, 0.0))
    # what lies in pieces beyond their slopes' shares, of a width of 1, with none at both ends
    each = np.zeros((count + 2, 1 + count))
    each[1:-1] = np.column_stack([-middle, np.diag(1 / width)])
    alone = 2 * off * _error(each[1:-1], noise) + off**2 * np.sqrt(noise[0, 0])
    before, after = outer[:-2], outer[2:]
    joined = (
        off * _error(each[:-2] + each[2:], noise)
        + before * _error(each[1:-1] - each[2:], noise)
        + after * _error(each[1:-1] - each[:-2], noise)
        + ((before + after) * off + before * after) * np.sqrt(noise[0, 0])
    )
    told = np.append(1.0, np.append(group.slopes, 0.0))
    corners = np.stack([np.append(1.0, np.append(e, 0.0)) for e in (group.least, group.most)])
    bent = np.full(count, -np.inf)
    for i, j, k in itertools.product((0, 1), repeat=3):  # linear in each of three slopes, so largest at a corner
        a, b, c = corners[i, :-2], corners[j, 1:-1], corners[k, 2:]
        ta, tb, tc = told[:-2], told[1:-1], told[2:]
        form = (a + c) * tb + (ta + tc) * b - a * tc - ta * c - (a + c) * b + a * c
        bent = np.maximum(bent, width * form)
    gains = n * (bent - straight) + z * width * (joined - alone)
    a, c = _beside(middle)
    bends = np.zeros((count, 1 + count))  # what bending a piece adds to the coefficients of the sums
    for k in range(count):
        s = middle[k]
        parts = np.zeros(count)
        parts[k] = a[k] + c[k] - 2 * s
        if k:
            parts[k - 1] = s - c[k]
        if k + 1 < count:
            parts[k + 1] = s - a[k]
        bends[k, 1:] = width[k] * parts / width
        bends[k, 0] = width[k] * (a[k] - s) * (s - c[k]) - float(width[k] * parts @ middle)
    chosen = _best_apart(gains.tolist())
    row = np.append(group.low - width @ middle**2, 2 * middle) + bends[chosen].sum(axis=0)
    # another choice has another error, by no more than that of what it bends otherwise
    doubt = z * _error(bends, noise)
    has = np.isin(np.arange(count), chosen)
    moved = gains + np.where(has, -doubt, doubt)
    best = float(sum(moved[k] for k in _best_apart(moved.tolist()))) + float(doubt[has].sum())
    top = n * (group.low + float(straight.sum())) + z * float((width * alone).sum()) + best
    total = float(group.whole @ group.values)

    def beyond(g: float) -> float:
        """Below 0 where 1 - index cannot be g."""
        return top - g * total + z * float(_error(row - g * group.whole, noise))

    return 1 - _crossing(1.0, 0.0, beyond) if beyond(1.0) < 0 else 0.0


# ---- the curve -------------------------------------------------------------------------------------------


def _above_rows(group: _Group, p: float) -> FloatArray:
    """(2, pieces, places, 1 + pieces) what the lower share p has at most, if H - (1 - p) z is largest at the place.

    Between knots H is below both neighbouring pieces drawn on: the one on the left, and the one on the right.
    """
    count = len(group.width)
    along = np.linspace(0, 1, _STEPS + 1)[None, :] * group.width[:, None]
    z = group.low + (np.cumsum(group.width) - group.width)[:, None] + along
    rows = np.zeros((2, count, _STEPS + 1, 1 + count))
    rows[..., 0] = group.low - (1 - p) * z
    for k in range(count):
        rows[0, k, :, 1 : 1 + k] += 1
        rows[1, k, :, 1 : 2 + k] += 1
        if k:
            rows[0, k, :, k] += along[k] / group.width[k - 1]
        else:
            rows[0, k, :, 0] += along[k]
        if k + 1 < count:
            rows[1, k, :, k + 2] -= (group.width[k] - along[k]) / group.width[k + 1]
    return rows


def _ratio_ends(group: _Group, rows: FloatArray, z: float) -> tuple[FloatArray, FloatArray]:
    """Intervals of sums (..., numbers) over the sum of all numbers, where that is above z standard errors."""
    whole = group.whole
    a, b = rows @ group.values, float(whole @ group.values)
    both = rows @ group.noise @ whole
    top, bottom = _error(rows, group.noise) ** 2, np.float64(_error(whole, group.noise) ** 2)
    return fieller_interval(a, np.asarray(b), top, np.asarray(bottom), both, z)[2:]


def _below_rows(group: _Group, p: float) -> FloatArray:
    """(cuts, 1 + pieces) what the lower share p has at least: H - (1 - p) z at every cut z."""
    count = len(group.width)
    z = group.low + np.append(0.0, np.cumsum(group.width))
    return np.column_stack([group.low - (1 - p) * z, np.tri(count + 1, count, -1)])


def _possible_shares(group: _Group, p: float, slopes: FloatArray) -> Ends:
    """The least and the largest share of the whole that the lower share p has, with these mean slopes on pieces."""
    x = np.append(1.0, slopes * group.width)
    total = float(group.whole @ x)
    if total <= 0:
        return 0.0, p
    least = float((_below_rows(group, p) @ x).max())
    # straight along a piece, so the lower of both is largest at an end or where they meet
    first, last = (_above_rows(group, p) @ x)[..., [0, -1]].transpose(2, 0, 1)
    closer = (first[0] - first[1]) - (last[0] - last[1])
    meet = np.clip(np.divide(first[0] - first[1], closer, out=np.zeros_like(closer), where=closer != 0), 0.0, 1.0)
    most = float(max((first + t * (last - first)).min(axis=0).max() for t in (0.0, 1.0, meet)))
    return (max(least, 0.0) / total, min(max(most, least, 0.0) / total, p))


def _share_interval(group: _Group, p: float, below: float, above: float) -> Ends:
    """What the lower share p may have: both ends hold for every table, whichever place of H its own is."""
    total = float(group.whole @ group.values)
    if total <= max(below, above) * float(_error(group.whole, group.noise)):
        return 0.0, p
    least = float(_ratio_ends(group, _below_rows(group, p), below)[0].max())
    most = _ratio_ends(group, _above_rows(group, p), above)[1]
    # each is convex along a piece, so on a step no more than at an end of it
    steps = np.maximum(most[..., :-1], most[..., 1:]).min(axis=0)
    return min(max(least, 0.0), p), min(max(float(steps.max()), 0.0), p)


# ---- answers ---------------------------------------------------------------------------------------------


def _told(held: _Sums, margin: float) -> list[_Group | str]:
    """Each group, or what is said of one too small to tell."""
    found: list[_Group | str] = []
    for values, noise, shown in zip(held.values, held.noise, held.shown, strict=True):
        error = float(np.sqrt(max(noise[0, 0], 0.0)))
        if values[0] <= max(SIZE_ERRORS, margin) * error or values[0] < 1:
            found.append(too_few_note(float(values[0]), margin * error))
        else:
            found.append(_group(held.cuts, values, noise, margin, shown))
    return found


def _cells(release: Release, by: tuple[str, ...], repeat: int) -> dict[str, list[str]]:
    domain = release.plan.workload.domain
    cells = list(itertools.product(*(domain[b].labels for b in by)))
    return {column_heading(b): [c[i] for c in cells for _ in range(repeat)] for i, b in enumerate(by)}


def _line(possible: Ends, ends: Ends, said: str, *, projected: bool) -> tuple[float, float, float, str]:
    """A value in the middle of what is possible, its interval, and between what the exact sums would leave it.

    Of a projected release the interval is that of the raw one, extended to the value.
    """
    middle = sum(possible) / 2
    value = middle if projected else min(max(middle, ends[0]), ends[1])
    left = f"sums at the knots leave {possible[0]:.3g} to {possible[1]:.3g} possible"
    return value, min(ends[0], value), max(ends[1], value), "; ".join(t for t in (said, left) if t)


def gini(release: Release, measure: str, by: str | Sequence[str] = (), confidence: float = 0.95) -> Frame:
    """The Gini index of a measure's numbers, from 0 where all are equal to 1, within each cell of `by`.

    Sums cut at knots do not fix it: numbers between two knots may be equal or at the knots. The interval is of all that
    is possible, widened by the noise; the more knots, the narrower. The plan must have asked `sf.means` of the measure
    with `clip="best"`, or `sf.gaps`. The numbers are those of records that have one, cut to the declared range, and the
    index is half of the mean difference of all pairs of records (each with itself too) over the mean.

    Args:
        measure: The name of a measure whose range does not begin below 0; knots make the interval narrow.
        by: Attributes or levels; the index is taken within each of their cells.
        confidence: The probability, strictly between 0 and 1, with which each interval holds.

    Returns:
        One row per group: the middle of what is possible, low, high and a note, which says between what the sums leave
        the index, without their noise. Numbers are None in groups with too few records.

    Raises:
        NotAnswerable: The sums were not measured.
        PlanError: The name is not that of a measure, its range begins below 0, or the confidence is no such
            probability.
        DomainError: A name is unknown, or two names belong to one attribute.

    Guarantee:
        The interval holds the index with at least the confidence, wherever between the knots the numbers are.

    Source:
        docs/decisions/0161 for the bounds and for what noise does to them.
    """
    level, within = check_confidence(confidence), by_names(by)
    held = _read_sums(release, measure, within, "Gini index")
    law, projected = release.measurement.noise, release.projection is not None
    apart = simultaneous_confidence(1 - (1 - level) * _FOR_SLOPES, held.values.shape[1] - 1, law)
    z = widest_sum_margin(1 - (1 - level) * (1 - _FOR_SLOPES), law)
    rows: list[tuple[float | None, float | None, float | None, str]] = []
    for group in _told(held, widest_sum_margin(apart, law)):
        if isinstance(group, str):
            rows.append((None, None, None, group))
            continue
        possible = _possible_indices(group.low, group.width, group.possible())
        most = _largest_index(group, z)
        rows.append(_line(possible, (min(_least_index(group, z), most), most), held.said, projected=projected))
    names = (f"gini {safe_text(measure)}", "low", "high", "note")
    return Frame(_cells(release, within, 1) | dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))


def lorenz(
    release: Release,
    measure: str,
    probabilities: Sequence[float] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
    by: str | Sequence[str] = (),
    confidence: float = 0.95,
) -> Frame:
    """What share of the sum of all numbers the records with the smallest numbers have: the Lorenz curve.

    At .4 it is the share that the lower 40 % of the records have; what is left of 1 is that of the upper 60 %. As for
    `gini`, sums cut at knots do not fix it, and the interval is of all that is possible, widened by the noise.

    Args:
        measure: The name of a measure whose range does not begin below 0; knots make the intervals narrow.
        probabilities: Shares of the records, such as [0.5, 0.9, 0.99].
        by: Attributes or levels; the curve is taken within each of their cells.
        confidence: The probability, strictly between 0 and 1, with which each interval holds.

    Returns:
        One row per group and probability: the middle of what is possible, low, high and a note, which says between what
        the sums leave the share, without their noise. Numbers are None in groups with too few records.

    Raises:
        NotAnswerable: The sums were not measured, or no probability is given.
        PlanError: The name is not that of a measure, its range begins below 0, a probability does not lie strictly
            between 0 and 1, or the confidence is no such probability.
        DomainError: A name is unknown, or two names belong to one attribute.

    Guarantee:
        Each interval holds the share with at least the confidence, wherever between the knots the numbers are.

    Source:
        docs/decisions/0161 for the bounds and for what noise does to them.
    """
    level, within = check_confidence(confidence), by_names(by)
    wanted = read_probabilities(probabilities)
    held = _read_sums(release, measure, within, "Lorenz curve")
    law, projected = release.measurement.noise, release.projection is not None
    # the lower end is the best of as many as there are cuts, the upper end takes two at the place that is the table's
    below = widest_sum_margin(1 - (1 - level) / len(held.cuts), law)
    above = widest_sum_margin(1 - (1 - level) / 2, law)
    rows: list[tuple[float | None, float | None, float | None, str]] = []
    for group in _told(held, widest_sum_margin(level, law)):
        if isinstance(group, str):
            rows += [(None, None, None, group)] * len(wanted)
            continue
        slopes = group.possible()
        for p in wanted:
            low, high = _share_interval(group, p, below, above)
            rows.append(
                _line(_possible_shares(group, p, slopes), (min(low, high), high), held.said, projected=projected)
            )
    columns = dict(zip(("share", "low", "high", "note"), map(list, zip(*rows, strict=True)), strict=True))
    groups = _cells(release, within, len(wanted))
    return Frame(
        {
            **groups,
            "probability": wanted * len(held.values),
            f"lorenz {safe_text(measure)}": columns.pop("share"),
            **columns,
        }
    )
