"""Means of a measure below, above and cut at its knots, and the cut that is chosen after the release.

Sums of min(v, z) at every knot z come from one look, whatever is chosen among them. All intervals of their means hold
together, so that of the one that is chosen holds; and as min(v, z) is never above v, the mean of the numbers lies above
the lower end of each, and below the upper end of that which cuts nothing. docs/decisions/0152. `gap` is a method of
`Release`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from sfumato._util.checks import show_number
from sfumato._util.frames import Frame
from sfumato.domain import Measure
from sfumato.domain.core import range_restriction
from sfumato.errors import PlanError
from sfumato.plans.intervals import check_confidence, simultaneous_confidence
from sfumato.releases.quantiles import by_names, declared_rows, group_frame, ratio_interval

if TYPE_CHECKING:
    from sfumato.releases.release import Release

__all__ = ["best_clipped_mean", "clipped_mean", "gap"]

# In how many squared standard errors two means agree, and how many more where the higher knot's error is e times as
# large. Noise passes c by a chance like exp(-c c / 2), and costs the square of that ratio: more than 4 of these
_AGREE, _MORE = 4.0, 6.0


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


def _said(release: Release, name: str, also: str) -> str:
    return "; ".join(t for t in (also, range_restriction(release.plan.workload.domain, name)) if t)


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
    sizes, numbers = ratio_interval(release, measure, (top, bottom), names, level, (0.0, most))
    note = _said(release, measure, "")
    sizes = replace(sizes, notes=[note if t else n for t, n in zip(sizes.told.tolist(), sizes.notes, strict=True)])
    title = f"mean of {measure} {side} {show_number(at)}"
    return group_frame(release, names, {}, (sizes, numbers), name=title)


def clipped_mean(release: Release, name: str, cut: float, by: tuple[str, ...], level: float) -> Frame:
    """The mean of the numbers of a measure cut at a knot, within each cell of `by`."""
    measure = _with_knots(release, name, cut)
    row = np.array(measure.clipped(float(cut)))
    top, bottom = (declared_rows(measure, r[None, :]) for r in (row, np.ones(len(row))))
    clip = (measure.ends[0], float(cut))
    sizes, numbers = ratio_interval(release, name, (top, bottom), by, level, clip)
    note = _said(release, name, f"of values cut at {show_number(cut)}")
    sizes = replace(sizes, notes=[note if t else n for t, n in zip(sizes.told.tolist(), sizes.notes, strict=True)])
    return group_frame(release, by, {}, (sizes, numbers), name=f"mean {name}")


def best_clipped_mean(release: Release, name: str, by: tuple[str, ...], level: float) -> Frame:
    """The mean of the numbers of a measure cut at the least knot that agrees with all above, within each cell of `by`.

    low and high are of the mean of the numbers that nothing cuts but the declared range.
    """
    measure = _with_knots(release, name)
    cuts = [*measure.knots, measure.high]
    count = len(cuts)
    rows = np.array([measure.clipped(float(z)) for z in cuts])
    pairs = [(k, j) for k in range(count) for j in range(k + 1, count)]
    differences = np.array([rows[j] - rows[k] for k, j in pairs])
    bottom = declared_rows(measure, np.ones((1, rows.shape[1])))
    together = simultaneous_confidence(level, count, release.raw.measurement.noise)
    ends = np.array(cuts, dtype=np.float64)[:, None]
    sizes, (value, error, low, high) = ratio_interval(
        release, name, (declared_rows(measure, rows), bottom), by, together, (measure.ends[0], ends)
    )
    # a number is cut by what it is cut by more, or by nothing: differences are not negative
    top = measure.ends[-1] - measure.ends[0]
    between = ratio_interval(release, name, (declared_rows(measure, differences), bottom), by, together, (0.0, top))[1]
    agree = np.ones(value.shape, dtype=bool)
    for (k, j), far, doubt in zip(pairs, between[0], between[1], strict=True):
        noisier = np.maximum(error[j] / np.maximum(error[k], 1e-300), 1.0)
        agree[k] &= far <= np.sqrt(_AGREE + _MORE * np.log(noisier)) * doubt
    chosen = np.argmax(agree, axis=0)
    groups = np.arange(value.shape[1])
    told = value[chosen, groups], error[chosen, groups]
    least = np.minimum(low.max(axis=0), told[0])
    most = np.maximum(high[-1], told[0])
    found = tuple(v[None, :] for v in (*told, least, most))
    notes = [
        _said(release, name, f"cut at {show_number(cuts[k])}, where its mean is {a:,.6g} to {b:,.6g}") if t else n
        for t, n, k, a, b in zip(
            sizes.told.tolist(),
            sizes.notes,
            chosen.tolist(),
            low[chosen, groups].tolist(),
            high[chosen, groups].tolist(),
            strict=True,
        )
    ]
    one, two, three, four = found
    return group_frame(release, by, {}, (replace(sizes, notes=notes), (one, two, three, four)), name=f"mean {name}")
