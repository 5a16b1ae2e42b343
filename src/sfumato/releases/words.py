"""A release of one look in words, and what was done with its values."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from sfumato.ground.frames import safe_text
from sfumato.plans.explain import error_text
from sfumato.releases.middles import reach
from sfumato.workloads import RECORDS, QueryBlock

if TYPE_CHECKING:
    from sfumato.estimate.projection import Projection
    from sfumato.releases.core import Release

__all__ = ["processing", "reading", "release_headline"]


def release_headline(release: Release) -> str:
    """How many answers, how far off."""
    p, plan = release.provenance, release.plan
    error = error_text(plan) if plan.forecast is None else f"{plan.forecast.raw:,.4g} {plan.main_unit}"
    before = "" if release.projection is None else ", before projection"
    of = " of counted rows" if plan.unit.person is not None else ""
    return f"Release {p.name!r}: {len(release.workload):,} answers{of}, rmse {error}{before}"


def reading(release: Release) -> str:
    """How to read its answers, in one sentence."""
    if release.projection is not None:
        return f"answers are projected: {release.projection.describe()}"
    records, total = release.plan.bias_records, release.measurement.total
    if records is None:
        of = ", of the rows that are counted" if release.plan.unit.person is not None else ""
        return f"answers are unbiased{of}: small counts may come out negative{_of_sums(release)}"
    more = f"; it holds {total:,}, so here they do not" if total is not None and total > records else ""
    return f"answers are biased; intervals hold for tables of at most {records:,} records{more}"


def _of_sums(release: Release) -> str:
    """What the intervals of sums of middles hold, and which have none."""
    asked = [i for i in release.workload.items if isinstance(i, QueryBlock) and i.unit != RECORDS]
    found = [(i, r) for i in asked if (r := reach(release, i)) is not None]
    if not found:
        return ""
    blank = sorted({safe_text(i.unit) for i, r in found if None in r})
    text = "; a sum counts the middles of cells, and its interval holds the sum of the values themselves"
    if not blank:
        return text
    return f"{text}; of {', '.join(blank)} no interval is known: ask besides for its table, which bounds the sum"


def processing(release: Release) -> dict[str, Any]:
    """What was done with the measured values, in words, and what a projection did, as plain JSON values."""
    unbiased = release.plan.bias_records is None
    how = "least squares" if unbiased else "linear"
    if release.projection is None:
        return {"post_processing": f"{how}; answers are {'unbiased and ' if unbiased else ''}not rounded or clipped"}
    done = (
        f"{how}, then projected {release.projection.describe()}; errors stated are those of the unprojected "
        "answers, which stand beside the projected ones; intervals hold for these"
    )
    return {"post_processing": done, "projection": _projected(release.projection)}


def _projected(found: Projection) -> dict[str, Any]:
    """What a projection did and what is proved of it."""
    return {
        "body": found.body,
        "norm": found.norm,
        "moved": found.moved,
        "gap": found.gap if math.isfinite(found.gap) else None,
        "certified": found.certified,
        "realisable": found.realisable,
        "rounded": found.rounded,
        "iterations": found.iterations,
        "rungs": [{"name": r.name, "queries": r.queries, "moved": r.moved, "gap": r.gap} for r in found.rungs],
    } | ({"left_out": list(found.left_out)} if found.left_out else {})
