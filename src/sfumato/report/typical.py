"""What is read first: the median and the mean of every numeric attribute, for everybody and by a few groups."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from sfumato.domain.reading import is_year
from sfumato.errors import NotAnswerable, PlanError
from sfumato.ground.frames import safe_text
from sfumato.releases import Release
from sfumato.report.words import show

__all__ = ["CONFIDENCE", "groupings", "numeric", "typical"]

CONFIDENCE = 0.95  # the convention of official statistics; `intervals` takes any other
# groups whose lines an eye takes in together, the extra cell included; and attributes on one screen
_MAX_GROUPS, _MAX_ATTRIBUTES = 8, 12
_MAX_CELLS = 4_096  # every interval of a quantile is a row of that length
_ENDS = ("low", "high")

Row = dict[str, Any]


def numeric(release: Release) -> list[str]:
    """Attributes that have medians and means, in the order they were declared."""
    domain = release.plan.workload.domain
    found = (n for n in domain.names if domain[n].intervals is not None and domain[n].midpoints is not None)
    return [n for n in found if domain[n].size <= _MAX_CELLS]


def groupings(release: Release, attribute: str) -> Iterator[tuple[str, ...]]:
    """By what an attribute may be looked at: by nothing, then by others of few cells, the fewest first."""
    domain = release.plan.workload.domain
    yield ()
    others = [n for n in (*domain.names, *domain.levels) if domain.owner(n) != attribute]
    for name in sorted(others, key=lambda n: domain[n].size):
        if domain[name].size <= _MAX_GROUPS:
            yield (name,)


def typical(release: Release) -> list[Row]:
    """One row for each numeric attribute and group: median and mean with 95 % intervals, as texts, and what is said of
    the mean: of which values it is, and the cell that widens it. Years have no mean: its texts are empty.

    Groups are those of the one attribute of fewest cells that was measured together with it; what cannot be told from
    noise is left out.
    """
    if not release.errors_known:
        return []
    rows: list[Row] = []
    for attribute in numeric(release)[:_MAX_ATTRIBUTES]:
        grouped = 0
        for by in groupings(release, attribute):
            found = _rows(release, attribute, by)
            rows += found
            grouped += bool(found and by)
            if grouped:
                break
    return rows


def _rows(release: Release, attribute: str, by: tuple[str, ...]) -> list[Row]:
    try:
        medians = release.quantiles(attribute, [0.5], by=by, confidence=CONFIDENCE).rows()
        means = release.mean(attribute, by=by, confidence=CONFIDENCE).rows()
    except (NotAnswerable, PlanError):
        return []
    out, year = list[Row](), is_year(release.plan.workload.domain, attribute)
    for median, mean in zip(medians, means, strict=True):
        value, centre = median["quantile"], mean[f"mean {attribute}"]
        ends = [row[end] for row in (median, mean) for end in ("low", "high")]
        if any(v is None or not math.isfinite(v) for v in (value, centre, *ends)):
            continue  # too few records, or an error that is not known
        group = " · ".join(f"{b} = {safe_text(str(median.get(b, median.get(f'{b} (attribute)'))))}" for b in by)
        step = (mean["high"] - mean["low"]) / 4
        middle = {k: _plain(v, year=year) for k, v in (("median", value), *(("median_" + e, median[e]) for e in _ENDS))}
        centred = {k: _figures(v, step) for k, v in (("mean", centre), *(("mean_" + e, mean[e]) for e in _ENDS))}
        out.append(
            {"attribute": safe_text(attribute), "group": group or "everybody", "first": not by}
            | {"note": "" if year else safe_text(mean["note"])}
            | middle
            | (dict.fromkeys(centred, "") if year else centred)  # nobody asks for the mean of a year
        )
    return out


def _plain(value: float, *, year: bool) -> str:
    if year:
        return f"{value:.0f}"
    return f"{value:,.0f}" if float(value).is_integer() else show(value, 4)


def _figures(value: float, error: float) -> str:
    """As many decimals as show two figures of the error."""
    decimals = 0 if not 0 < error < math.inf else max(0, min(6, 1 - math.floor(math.log10(error))))
    return f"{value:,.{decimals}f}"
