"""The page about a mechanism of several looks: its plan, or its release. Plain tables, no charts."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from sfumato.ground.codec import fingerprint
from sfumato.ground.frames import safe_text
from sfumato.plans.courses import CoursePlan, event_text
from sfumato.releases import ModelRelease
from sfumato.report import sections
from sfumato.report.standing import account_text, entry_facts, made_facts, next_step, price_facts
from sfumato.report.template import asset, environment
from sfumato.report.words import statement

__all__ = ["render_course"]

_LISTED = 200  # answers on a page; the folder has all


def render_course(thing: CoursePlan | ModelRelease) -> str:
    """The page as text."""
    release = thing if isinstance(thing, ModelRelease) else None
    plan = thing.plan if isinstance(thing, ModelRelease) else thing
    released = release is not None
    k = len(plan.workload if release is None else release.workload)
    context: dict[str, Any] = {
        "title": f"Plan: {plan.mechanism}" if release is None else _title(release),
        "kind": f"{'Release' if released else 'Plan of a release'} with differential privacy",
        "was": "was" if released else "will be",
        "lead": _lead(plan, k, released=released),
        "protects": sections.protects(plan, released=released),
        "reading": _reading(),
        "asked": f"{sections.plural(k, 'query', 'queries')} over "
        f"{sections.plural(len(plan.workload.domain.names), 'declared attribute')}.",
        "cells": sections.cells_text(plan.workload.domain.size),
        "attributes": sections.attributes(plan),
        "course": safe_text(plan.course.summary),
        "looks": [{"purpose": x.purpose, "count": f"{x.count:,}", "price": event_text(x.price)} for x in plan.knocks],
        "bound": f"Bound on errors: {plan.bounded()}.",
        "mechanism": [("Mechanism", plan.mechanism), *(("Note", safe_text(n)) for n in plan.notes)],
    }
    context |= _standing(plan, release) | _answers(release)
    return environment().get_template("course.html").render(context, style=Markup(asset("style.css")))


def _title(release: ModelRelease) -> str:
    name = safe_text(release.provenance.name)
    return name if release.part is None else f"{name}: {safe_text(release.part)}"


def _lead(plan: CoursePlan, queries: int, *, released: bool) -> str:
    table = f"a table of {sections.plural(len(plan.workload.domain.names), 'attribute')}"
    if released:
        answers = sections.plural(queries, "answer")
        return f"{answers} of a model of {table}, released under {statement(plan.budget)}."
    asked = sections.plural(queries, "query", "queries")
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


def _standing(plan: CoursePlan, release: ModelRelease | None) -> dict[str, Any]:
    hashes = [
        ("Plan", plan.fingerprint),
        ("Queries", fingerprint(plan.workload)),
        ("Course", fingerprint(plan.course)),
        ("Declared domain", fingerprint(plan.workload.domain)),
    ]
    facts = price_facts(plan)
    if release is None:
        text = "Nothing is spent yet. A release of this plan debits its whole price from a ledger before it looks."
        provenance = [(f"{name}, SHA-256", value) for name, value in hashes]
        return {"budget": text, "ledger": facts, "provenance": provenance, "more": next_step()}
    p = release.provenance
    hashes.append(("All that came out", fingerprint(release.measurement)))
    made = [*made_facts(p), *((f"{name}, SHA-256", value) for name, value in hashes)]
    more = {
        "title": "Ask more",
        "text": "Further questions over the attributes that were asked about are answered by the model, free.",
        "code": ["sfumato show FOLDER", 'import sfumato as sf\n\nrelease = sf.load("FOLDER")\nrelease.answers'],
    }
    return {"budget": account_text(p), "ledger": [*entry_facts(p), *facts], "provenance": made, "more": more}


def _answers(release: ModelRelease | None) -> dict[str, Any]:
    """The first answers, table by table."""
    if release is None:
        return {"answers": [], "omitted": ""}
    rows: list[dict[str, str]] = []
    for query in release.workload.blocks:
        if len(rows) >= _LISTED:
            break
        labels = release.workload.block_labels(query)
        values = release.model.answer(query.block).tolist()
        rows += [
            {"label": safe_text(t), "part": safe_text(query.part), "value": f"{v:,.1f}"}
            for t, v in zip(labels, values, strict=True)
        ]
    left = len(release.workload) - min(_LISTED, len(rows))
    return {"answers": rows[:_LISTED], "omitted": f"{left:,}" if left else ""}
