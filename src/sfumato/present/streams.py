"""What a page says of a stream: answers over time with their bands, and the plan's figures by period."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from sfumato._util.catalogue import local_number
from sfumato._util.description import Bar, Bars, Chart, Description, DescriptionBlock, Figures, Sentences, TitledTable
from sfumato._util.frames import Frame, safe_text
from sfumato.plans.predictions import interval_margins
from sfumato.plans.predictions import simultaneous_confidence as together
from sfumato.plans.streams import StreamPlan
from sfumato.present.charts import over_time_chart
from sfumato.present.page import answer_blocks, protection_section
from sfumato.present.sections import (
    asked_text,
    errors_text,
    guarantee_equation,
    measured_facts_section,
    plural,
    reading_advice,
    table_text,
)
from sfumato.present.words import budget_statement, predicted_families, show_figures
from sfumato.releases.streams import StreamRelease

_DRAWN = 1_000  # periods of a chart: about as many as it has pixels
_CONFIDENCE = 0.95  # of all intervals of a page
_BANDS = "with the 95 % interval of each, and paler intervals that hold all together."
_LISTED = 30  # lines of the last periods: what a screen holds


def stream_blocks(plan: StreamPlan, release: StreamRelease | None) -> list[DescriptionBlock]:
    """Errors and answers of the totals, of the last period there is or that is planned, and what is of time alone."""
    totals = release.totals if release is not None and release.published else None
    one = plan.at() if totals is None else totals.plan
    found = predicted_families(one)
    measured, over = stream_sections(plan, release)
    done = 0 if release is None else len(release.published)
    upto = "" if totals is None or release is None else f"The totals up to {safe_text(release.periods[-1])}, each"
    return [
        Sentences([stream_lead(plan, release)]),
        *([] if totals is None else answer_blocks(totals, upto)),
        stream_figures(plan, done),
        protection_section(plan, reading_advice(one), released=release is not None),
        asked_text(one, found, None),
        measured,
        errors_text(found),
        over,
    ]


def stream_sections(plan: StreamPlan, release: StreamRelease | None) -> list[Description]:
    """What is measured of a stream, and the section on time."""
    done = 0 if release is None else len(release.published)
    note = (
        "Known before the first period, below. half_width: of a 95 % interval of the query that is known least. "
        "simultaneous: of intervals that hold together, for all queries and all periods up to that one."
    )
    tables = [b for b in plan.describe().blocks if isinstance(b, TitledTable)]
    shown = [] if release is None or not done else _stream_charts(release)
    over = [*shown, Sentences([note]), *(replace(t, most=plan.periods.count) for t in tables[: len(plan.QUESTIONS)])]
    bound = "what no unbiased answers are below on the mean over all periods"
    choice = "Typical error of the running totals in the worst period:"
    if plan.bound is not None:
        choice = f"Typical error of the running totals: of the worst period, and {bound}:"
    blocks = [Sentences([_stream_measured_text(plan), choice]), _stream_bars(plan)]
    section = measured_facts_section(plan, blocks, f"What {'is' if done else 'will be'} measured, and why")
    return [section, Description("Over time", over, "over", "Over time")]


def stream_lead(plan: StreamPlan, release: StreamRelease | None) -> str:
    table, count = table_text(plan), plural(plan.periods.count, "period")
    promise = f"{budget_statement(plan.budget)} for all of them together"
    if release is None:
        return (
            f"A plan to publish {table} for {count}, one after another, under {promise}. No data were read, and "
            "nothing was spent."
        )
    return (
        f"{table[0].upper()}{table[1:]}, published period after period: {len(release.published):,} of {count} so far, "
        f"under {promise}."
    )


def stream_figures(plan: StreamPlan, done: int) -> Figures:
    """The strip of key figures."""
    unit = safe_text(plan.main_unit)
    at = plan.at("totals", done or None)
    once = plan.at("increments", done or None)
    when = f"of the totals up to period {done or plan.periods.count:,}"
    return Figures(
        [
            (
                "Periods",
                local_number(f"{done:,} / {plan.periods.count:,}" if done else f"{plan.periods.count:,}"),
                "paid for, once",
            ),
            ("Guarantee", guarantee_equation(plan), plan.unit.describe()),
            ("Typical error", show_figures(at.mean_error), f"{unit}, {when}"),
            ("Of one period", show_figures(once.mean_error), f"{unit}, root mean squared"),
            ("Worst period", show_figures(plan.objective_value), f"{unit}, of the totals up to it"),
        ]
    )


def _stream_charts(release: StreamRelease) -> list[Chart | TitledTable]:
    """The number of records over time, with bands, as charts and as lines of the last periods."""
    totals, single = (release.over_time(increments=alone, most=_DRAWN) for alone in (False, True))
    noise, one = release.plan.terms.noise, np.ones(1)
    level = together(_CONFIDENCE, len(release.published), noise)
    wider = float((interval_margins(level, one, None, noise) / interval_margins(_CONFIDENCE, one, None, noise))[0])
    counted = "Records" if release.plan.unit.person is None else "Counted rows"
    missing = " Bands reach up to what may be missing of persons who are left out." if release.plan.terms.cut else ""
    charts = [
        Chart(name, "", f"{counted} {when}, {_BANDS}{missing}", over_time_chart(_chart_rows(frame, wider)))
        for name, frame, when in (
            ("over-totals", totals, "so far, after every period"),
            ("over-single", single, "of every period by itself"),
        )
    ]
    columns: dict[str, list[str]] = {"Period": [safe_text(p) for p in totals["period"][-_LISTED:]]}
    for name, frame in (("Total so far", totals), ("This period", single)):
        rows = frame.rows()[-_LISTED:]
        columns |= {name: [f"{r['value']:,.1f}" for r in rows]}
        columns |= {f"{name}: standard error": [show_figures(r["standard_error"]) for r in rows]}
        columns |= {f"{name}: 95 % {end}": [f"{r[end]:,.1f}" for r in rows] for end in ("low", "high")}
    thinned = len(release.published) > _DRAWN
    what = "The number of records" if counted == "Records" else counted
    caption = f"{what}: the last {plural(len(columns['Period']), 'period')}"
    caption += f" of the {_DRAWN:,} that are drawn" if thinned else ""
    return [*charts, TitledTable(caption, Frame(columns), [n for n in columns if n != "Period"], "The last periods")]


def _chart_rows(frame: Frame, wider: float) -> list[dict[str, Any]]:
    """With the ends of intervals so much wider, rounded to what a chart can show: it keeps the page small."""
    out: list[dict[str, Any]] = []
    for row in frame.rows():
        shown = {name: row[name] for name in ("value", "low", "high")}
        middles = {"low": row["value"], "high": row["value"] + row.get("missing", 0.0)}
        shown |= {f"all_{end}": mid + wider * (row[end] - mid) for end, mid in middles.items()}
        out.append({"period": safe_text(row["period"])} | {name: float(f"{v:.7g}") for name, v in shown.items()})
    return out


def _stream_measured_text(plan: StreamPlan) -> str:
    values = sum(f.rows for f in plan.terms.families)
    states, own = plan.terms.filter.kept[1], plan.terms.total
    of_total = "" if own is None else f", and by {plural(own.kept[1], 'number')} of the total"
    return (
        f"In every period {plural(values, 'noisy integer')} are measured: {safe_text(plan.strategy.summary)}, filtered "
        f"over time by {plural(states, 'number')} kept for every cell{of_total}. Totals, periods and sums of periods "
        "all follow from these, so they agree with each other, and further questions cost nothing."
    )


def _stream_bars(plan: StreamPlan) -> Bars:
    rows = [
        Bar("this plan", "the worst period", plan.objective_value, show_figures(plan.objective_value, 4), "chosen"),
        Bar("binary tree", "as it is taught, at the same price", plan.tree_error, show_figures(plan.tree_error, 4)),
    ]
    if plan.lower_bound is not None:
        note = "of the mean over all periods" if plan.worst_bound is None else "of the worst period"
        shown = show_figures(plan.lower_bound, 4)
        rows.append(Bar("proved for Gaussian noise", note, plan.lower_bound, shown, "bound"))
    return Bars(rows)
