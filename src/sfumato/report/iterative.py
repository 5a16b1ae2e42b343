"""What a page says of a mechanism of several looks, of its plan and of its release, in place of errors and charts."""

from __future__ import annotations

from typing import Any

from sfumato.ground.frames import safe_text
from sfumato.plans.iterative import IterativePlan
from sfumato.plans.planned import event_text
from sfumato.releases import ModelRelease
from sfumato.report.sections import plural, table_text
from sfumato.report.words import statement

__all__ = ["iterative_sections"]

_LISTED = 200  # answers on a page; the folder has all


def iterative_sections(plan: IterativePlan, release: ModelRelease | None) -> dict[str, Any]:
    """The sections of such a page that other pages have otherwise, or have not."""
    released, k = release is not None, len(plan.workload if release is None else release.workload)
    answers, omitted = ([], 0) if release is None else _answers(release)
    return {
        "lead": _lead(plan, k, released=released),
        "figures": (),
        "reading": _reading(),
        "asked": f"{plural(k, 'query', 'queries')} over "
        f"{plural(len(plan.workload.domain.names), 'declared attribute')}.",
        "parts": (),
        "heading": f"How it {'was' if released else 'will be'} made",
        "measured": f"{safe_text(plan.course.summary)}.",
        "looks": [{"purpose": x.purpose, "count": f"{x.count:,}", "price": event_text(x.price)} for x in plan.looks],
        "candidates": (),
        "distance": f"Bound on errors: {plan.bounded()}.",
        "refused": (),
        "mechanism": [("Mechanism", plan.mechanism), *(("Note", safe_text(n)) for n in plan.notes)],
        "answers": "All of them are in the files beside this page; shown here are the first.",
        "singles": answers,
        "singles_caption": "Answers of the model",
        "omitted": f"{omitted:,}" if omitted else "",
    }


def _lead(plan: IterativePlan, queries: int, *, released: bool) -> str:
    table = table_text(plan)
    if released:
        return f"{plural(queries, 'answer')} of a model of {table}, released under {statement(plan.budget)}."
    asked = plural(queries, "query", "queries")
    promise = f"It promises {statement(plan.budget)}"
    return f"A plan to answer {asked} about {table} by a model. {promise}. No data were read, and nothing was spent."


def _reading() -> list[str]:
    return [
        "All answers are those of one model of the table, so they agree with each other and none is negative where a "
        "count cannot be.",
        "There are no standard errors and no intervals: what is measured is chosen by looking at the table, and what "
        "the model says of the rest is a guess. Where errors must be known, plan with another mechanism.",
        "What was measured of the table, and what was chosen, is in the release's files.",
    ]


def _answers(release: ModelRelease) -> tuple[list[dict[str, str]], int]:
    """The first answers, table by table, and how many more there are."""
    rows: list[dict[str, str]] = []
    for query in release.workload.blocks:
        if len(rows) >= _LISTED:
            break
        named = {"part": safe_text(query.part), "unit": safe_text(query.unit)}
        values = zip(release.workload.block_labels(query), release.answer_block(query.block).tolist(), strict=True)
        rows += [named | {"label": safe_text(t), "value": f"{v:,.1f}"} for t, v in values]
    return rows[:_LISTED], len(release.workload) - min(_LISTED, len(rows))
