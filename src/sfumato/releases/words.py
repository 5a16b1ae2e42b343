"""A release in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfumato.plans.explain import error_text
from sfumato.releases.cautions import caution_lines
from sfumato.releases.shifts import before_and_after

if TYPE_CHECKING:
    from sfumato.releases.core import Release

__all__ = ["explain_release"]


def explain_release(release: Release) -> str:
    """See `Release.explain`."""
    p, plan = release.provenance, release.plan
    where = (
        "one-shot account (no ledger): nothing remembers this spend"
        if p.one_shot
        else f"ledger {p.ledger_id}, entry {p.sequence}, anchor {p.anchor}"
    )
    error = error_text(plan) if plan.forecast is None else f"{plan.forecast.raw:,.4g} {plan.main_unit}"
    before = "" if release.projection is None else ", before projection"
    return "\n".join(
        [
            f"Release {p.name!r}: {len(release.workload):,} answers, rmse {error}{before}",
            *(f"  caution    {text}" for text in caution_lines(release.cautions)),
            f"  guarantee  {plan.budget}",
            f"  protects   {plan.unit.describe()}",
            f"  measured   {plan.strategy.summary}",
            f"  objective  {plan.objective!r}, decided before the data",
            f"  recorded   {where}",
            _unbiased(release)
            if release.projection is None
            else f"  answers are projected: {release.projection.describe()}",
            *([] if release.projection is None else before_and_after(release)),
        ]
    )


def _unbiased(release: Release) -> str:
    records, total = release.plan.bias_records, release.measurement.total
    if records is None:
        return "  answers are unbiased: small counts may come out negative"
    more = f"; it holds {total:,}, so here they do not" if total is not None and total > records else ""
    return f"  answers are biased; intervals hold for tables of at most {records:,} records{more}"
