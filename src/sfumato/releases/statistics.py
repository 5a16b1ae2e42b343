"""Ratios of linear answers: quantiles, distributions, means and shares, with intervals by inversion.

A ratio A / B of two unbiased linear answers has no simple error, but A - p B is linear for every p, so
the values of p that are consistent with A - p B = 0 form an interval (Fieller) that holds with the
stated confidence exactly, also where B is small. The quantile at p is where prefix - p total crosses 0.
Where the release is projected, values are those of the possible table; their intervals are the unprojected
ones, extended to them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato.domain import Attribute
from sfumato.errors import NotAnswerable, PlanError
from sfumato.frames import Frame
from sfumato.intervals import check_confidence
from sfumato.operators import Block, Dense
from sfumato.operators.base import FloatArray
from sfumato.releases.tables import heading
from sfumato.workloads.levels import over, table_block

if TYPE_CHECKING:
    from sfumato.releases.core import Release

__all__ = ["cdf", "mean", "quantiles", "share"]


def by_names(by: str | Sequence[str]) -> tuple[str, ...]:
    """One name or several as a tuple."""
    return (by,) if isinstance(by, str) else tuple(by)


def _block(release: Release, attribute: str, rows: FloatArray, by: tuple[str, ...]) -> Block:
    """Rows over one attribute's cells, within each cell of `by`."""
    domain = release.plan.workload.domain
    domain.columns((attribute, *by))
    (owner, factor), table = over(domain, attribute, Dense(rows)), table_block(domain, by)
    return Block(((owner,), *table.groups), (factor, *table.factors))


def _shaped(values: FloatArray, rows: int, groups: int, block: Block) -> FloatArray:
    """A compact or flat array of a block as (rows, groups)."""
    shape = tuple(f.shape[0] for f in block.factors)
    return np.broadcast_to(values.reshape(values.shape if values.ndim == len(shape) else shape), shape).reshape(
        rows, groups
    )


def _linear(
    release: Release, attribute: str, rows: FloatArray, by: tuple[str, ...], level: float | None
) -> tuple[FloatArray, FloatArray]:
    """(answers, variances or half-widths), each (rows, groups)."""
    block = _block(release, attribute, rows, by)
    groups = math.prod(release.plan.workload.domain.sizes(by))
    spread = release.variances(block) if level is None else release.margins(block, level)
    answers = release.answer_block(block)
    return _shaped(answers, len(rows), groups, block), _shaped(np.asarray(spread), len(rows), groups, block)


def _groups(release: Release, by: tuple[str, ...], repeat: int) -> dict[str, list[str]]:
    domain = release.plan.workload.domain
    cells = list(itertools.product(*(domain[b].labels for b in by)))
    return {heading(b): [c[i] for c in cells for _ in range(repeat)] for i, b in enumerate(by)}


def _ratio(
    release: Release, attribute: str, top: FloatArray, bottom: FloatArray, by: tuple[str, ...], confidence: float
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """(value, standard error, low, high) of top / bottom, each (rows, groups). NaN where nothing is known.

    The standard error is infinite, or NaN for projected values, where none is known.
    """
    if release.projection is not None:
        _, _, low, high = _ratio(release.raw, attribute, top, bottom, by, confidence)
        a, b = (release.answer_block(_block(release, attribute, rows, by)).reshape(low.shape) for rows in (top, bottom))
        value = np.divide(a, b, out=np.full_like(a, np.nan), where=b > 0)
        return value, np.full_like(a, np.nan), np.fmin(low, value), np.fmax(high, value)
    for rows in (top, bottom, top - bottom):
        if release.plan.strategy.deviations(_block(release, attribute, rows, by)) is not None:
            raise NotAnswerable("ratios need unbiased answers, and this release answers these very queries with a bias")
    a, va = _linear(release, attribute, top, by, None)
    b, vb = _linear(release, attribute, bottom, by, None)
    _, vd = _linear(release, attribute, top - bottom, by, None)
    _, half = _linear(release, attribute, bottom, by, confidence)
    # the quantile of the noise in units of its deviation, from the denominators' own law
    z = np.max(np.divide(half, np.sqrt(vb), out=np.full_like(half, 0.0), where=vb > 0), initial=0.0)
    if z == 0.0:
        _, half = _linear(release, attribute, top, by, confidence)
        z = np.max(np.divide(half, np.sqrt(va), out=np.zeros_like(half), where=va > 0), initial=0.0)
    c = (va + vb - vd) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        value = a / b
        error = np.sqrt(np.maximum(va - 2 * value * c + value**2 * vb, 0.0)) / np.abs(b)
        # p with (a - p b)^2 <= z^2 (va - 2 p c + p^2 vb): a quadratic in p, bounded where b is clearly not 0
        q2, q1, q0 = b**2 - z**2 * vb, a * b - z**2 * c, a**2 - z**2 * va
        root = np.sqrt(np.maximum(q1**2 - q2 * q0, 0.0))
        low, high = (q1 - root) / q2, (q1 + root) / q2
    known = (b > 0) & (q2 > 0)
    return (
        np.where(b > 0, value, np.nan),
        np.where(known, error, np.inf),
        np.where(known, low, -np.inf),
        np.where(known, high, np.inf),
    )


def _numeric(release: Release, attribute: str) -> tuple[Attribute, FloatArray]:
    declared = release.plan.workload.domain[attribute]
    if declared.intervals is None or declared.midpoints is None:
        raise PlanError(f"{attribute} is not numeric; quantiles and means need sf.Integers or sf.Bins")
    return declared, np.asarray(declared.midpoints, dtype=np.float64)


def _declared_rows(declared: Attribute, rows: FloatArray) -> FloatArray:
    """Rows over the declared cells, with zeros for the extra cell."""
    return np.pad(rows, ((0, 0), (0, declared.size - rows.shape[1])))


def _flat(values: FloatArray) -> list[float]:
    return values.T.reshape(-1).tolist()


def share(release: Release, attribute: str, within: str | Sequence[str], confidence: float) -> Frame:
    """See `Release.share`."""
    level, by = check_confidence(confidence), by_names(within)
    domain = release.plan.workload.domain
    domain.columns((attribute, *by))
    n = domain[attribute].size
    numbers = _ratio(release, attribute, np.eye(n), np.ones((n, n)), by, level)
    groups = math.prod(domain.sizes(by))
    return _frame(
        release, by, {heading(attribute): list(domain[attribute].labels) * groups}, n, numbers, clip=(0.0, 1.0)
    )


def cdf(release: Release, attribute: str, by: str | Sequence[str], confidence: float) -> Frame:
    """See `Release.cdf`."""
    level, names = check_confidence(confidence), by_names(by)
    domain = release.plan.workload.domain
    domain.columns((attribute, *names))
    declared = domain[attribute]
    if not declared.ordered:
        raise PlanError(f"{attribute} has no order; a CDF needs sf.Integers or sf.Bins")
    n = len(declared.declared_labels)
    rows, ones = _declared_rows(declared, np.tri(n)), _declared_rows(declared, np.ones((n, n)))
    numbers = _ratio(release, attribute, rows, ones, names, level)
    groups = math.prod(domain.sizes(names))
    label = [f"up to {t}" for t in declared.declared_labels]
    return _frame(release, names, {heading(attribute): label * groups}, n, numbers, clip=(0.0, 1.0))


def mean(
    release: Release, attribute: str, by: str | Sequence[str], values: Sequence[float] | None, confidence: float
) -> Frame:
    """See `Release.mean`."""
    level, names = check_confidence(confidence), by_names(by)
    if values is None:
        declared, row = _numeric(release, attribute)
    else:
        declared, row = release.plan.workload.domain[attribute], np.asarray(values, dtype=np.float64)
        if row.shape != (len(declared.declared_labels),) or not np.isfinite(row).all():
            raise PlanError(f"values must be one finite number per declared cell of {attribute}")
    top = _declared_rows(declared, row[None, :])
    bottom = _declared_rows(declared, np.ones((1, len(row))))
    numbers = _ratio(release, attribute, top, bottom, names, level)
    return _frame(release, names, {}, 1, numbers, clip=(float(row.min()), float(row.max())), name=f"mean {attribute}")


def _frame(
    release: Release,
    by: tuple[str, ...],
    labels: dict[str, list[str]],
    rows: int,
    numbers: tuple[FloatArray, FloatArray, FloatArray, FloatArray],
    clip: tuple[float, float],
    name: str = "share",
) -> Frame:
    value, error, low, high = numbers
    return Frame(
        {
            **_groups(release, by, rows),
            **labels,
            name: _flat(value),
            "standard_error": [None if math.isnan(e) else e for e in _flat(error)],
            # only values that a table could have are possible
            "low": _flat(np.clip(low, *clip)),
            "high": _flat(np.clip(high, *clip)),
        }
    )


def quantiles(
    release: Release, attribute: str, probabilities: Sequence[float], by: str | Sequence[str], confidence: float
) -> Frame:
    """See `Release.quantiles`."""
    level, names = check_confidence(confidence), by_names(by)
    declared, _ = _numeric(release, attribute)
    wanted = _probabilities(probabilities)
    intervals = declared.intervals
    assert intervals is not None
    n = len(intervals)
    tri = np.tri(n)
    found: list[tuple[FloatArray, FloatArray, FloatArray]] = []
    for p in wanted:
        # row t: records up to cell t, less p times all records; it crosses 0 at the quantile
        rows = _declared_rows(declared, tri - p)
        answers, half = _linear(release.raw, attribute, rows, names, level)
        edges, whole = np.asarray(intervals, dtype=np.float64), declared.kind == "integer"
        value, low, high = _crossing(answers, half, edges, whole=whole)
        if release.projection is not None:
            answers = release.answer_block(_block(release, attribute, rows, names)).reshape(answers.shape)
            value, _, _ = _crossing(answers, np.zeros_like(answers), edges, whole=whole)
        found.append((value, np.minimum(low, value), np.maximum(high, value)))
    groups = found[0][0].shape[0]
    columns: dict[str, Any] = _groups(release, names, len(wanted))
    columns["probability"] = wanted * groups
    for i, key in enumerate(("quantile", "low", "high")):
        columns[key] = [float(found[j][i][g]) for g in range(groups) for j in range(len(wanted))]
    return Frame(columns)


def _probabilities(given: Sequence[float]) -> list[float]:
    wanted = [given] if isinstance(given, (int, float)) else list(given)
    for p in wanted:
        if isinstance(p, bool) or not isinstance(p, (int, float)) or not 0 < p < 1:
            raise PlanError(f"a quantile's probability must lie strictly between 0 and 1, not {p!r}")
    if not wanted:
        raise NotAnswerable("name at least one probability")
    return [float(p) for p in wanted]


def _crossing(
    answers: FloatArray, half: FloatArray, intervals: FloatArray, *, whole: bool
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Per group (quantile, low, high) from answers that should rise through 0; ends are edges of cells.

    The lower end is the first cell at whose end the answer could already be 0 or more; the upper end
    the first from which on it must be.
    """
    n, groups = answers.shape
    rising = np.maximum.accumulate(answers, axis=0)
    could = answers + half >= 0
    must = answers - half >= 0
    cell = np.where((rising >= 0).any(axis=0), np.argmax(rising >= 0, axis=0), n - 1)
    first = np.where(could.any(axis=0), np.argmax(could, axis=0), n - 1)
    last = np.where(must.any(axis=0), np.argmax(must, axis=0), n - 1)
    low_edge, high_edge = intervals[:, 0], intervals[:, 1] - (1 if whole else 0)
    before = np.where(cell > 0, rising[np.maximum(cell - 1, 0), np.arange(groups)], np.minimum(rising[0], 0.0))
    after = rising[cell, np.arange(groups)]
    share_of_cell = np.divide(-before, after - before, out=np.full(groups, 0.5), where=after > before)
    share_of_cell = np.clip(share_of_cell, 0.0, 1.0)
    value = low_edge[cell] + share_of_cell * (high_edge[cell] - low_edge[cell])
    return np.rint(value) if whole else value, low_edge[first], high_edge[last]
