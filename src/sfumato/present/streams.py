"""What a page says of a stream: answers over time with their bands, and the plan's figures by period."""

from __future__ import annotations

from typing import Any

import numpy as np

from sfumato._util.frames import Frame, safe_text
from sfumato.plans.intervals import margins
from sfumato.plans.intervals import simultaneous as together
from sfumato.plans.streams import StreamPlan
from sfumato.present.charts import over_time_chart
from sfumato.present.sections import plural, short, table_text
from sfumato.present.words import share, show, statement
from sfumato.releases.streams import StreamRelease

__all__ = ["next_steps", "open_text", "stream_sections"]


_DRAWN = 1_000  # periods of a chart: about as many as it has pixels
_CONFIDENCE = 0.95  # of all intervals of a page
_BANDS = "with the 95 % interval of each, and paler intervals that hold all together."
_LISTED = 30  # lines of the last periods: what a screen holds

Section = dict[str, Any]
Specs = dict[str, Any]


def stream_sections(plan: StreamPlan, release: StreamRelease | None, specs: Specs) -> Section:
    """The sections of such a page that other pages have otherwise, or have not."""
    done = 0 if release is None else len(release.published)
    over: Section = {"planned": _planned(plan), "charts": (), "lines": (), "confidence": "95 %"}
    over["note"] = (
        "Known before the first period. One: the half-width of a 95 % interval of the query that is known least. All: "
        "of intervals that hold together, for all queries and all periods up to that one."
    )
    if release is not None and done:
        over |= _drawn(release, specs)
    return {
        "lead": _lead(plan, release),
        "figures": _figures(plan, done),
        "heading": f"What {'is' if done else 'will be'} measured, and why",
        "measured": _measured(plan),
        "choice": "Typical error of the running totals: of the worst period, and what no unbiased answers are below on "
        "the mean over all periods:"
        if plan.bound is not None
        else "Typical error of the running totals in the worst period:",
        "candidates": _bars(plan),
        "distance": _distance(plan),
        "refused": (),
        "mechanism": _mechanism(plan),
        "over": over,
    }


def _lead(plan: StreamPlan, release: StreamRelease | None) -> str:
    table, count = table_text(plan), plural(plan.periods.count, "period")
    promise = f"{statement(plan.budget)} for all of them together"
    if release is None:
        return (
            f"A plan to publish {table} for {count}, one after another, under {promise}. No data were read, and "
            "nothing was spent."
        )
    return (
        f"{table[0].upper()}{table[1:]}, published period after period: {len(release.published):,} of {count} so far, "
        f"under {promise}."
    )


def _figures(plan: StreamPlan, done: int) -> list[tuple[str, str, str]]:
    unit = safe_text(plan.main_unit)
    at = plan.at("totals", done or None)
    once = plan.at("increments", done or None)
    when = f"of the totals up to period {done or plan.periods.count:,}"
    return [
        ("Periods", f"{done:,} of {plan.periods.count:,}" if done else f"{plan.periods.count:,}", "paid for, once"),
        ("Guarantee", short(plan), plan.unit.describe()),
        ("Typical error", show(at.mean_error), f"{unit}, {when}"),
        ("Of one period", show(once.mean_error), f"{unit}, root mean squared"),
        ("Worst period", show(plan.objective_value), f"{unit}, of the totals up to it"),
    ]


def _planned(plan: StreamPlan) -> list[Section]:
    """The errors of totals and of single periods, by period."""
    totals, single = (plan.errors(0.95, question).rows() for question in plan.QUESTIONS)
    keys = ("rmse", "half_width", "simultaneous")
    return [
        {"period": f"{a['period']:,}", "totals": [show(a[k]) for k in keys], "single": [show(b[k]) for k in keys]}
        for a, b in zip(totals, single, strict=True)
    ]


def _drawn(release: StreamRelease, specs: Specs) -> Section:
    """The number of records over time, with bands, as charts and as lines of the last periods."""
    totals, single = (release.over_time(increments=alone, most=_DRAWN) for alone in (False, True))
    noise, one = release.plan.terms.noise, np.ones(1)
    level = together(_CONFIDENCE, len(release.published), noise)
    wider = float((margins(level, one, None, noise) / margins(_CONFIDENCE, one, None, noise))[0])
    counted = "Records" if release.plan.unit.person is None else "Counted rows"
    missing = " Bands reach up to what may be missing of persons who are left out." if release.plan.terms.cut else ""
    charts: list[tuple[str, str]] = []
    for name, frame, caption in (
        ("over-totals", totals, f"{counted} so far, after every period, {_BANDS}{missing}"),
        ("over-single", single, f"{counted} of every period by itself, {_BANDS}{missing}"),
    ):
        specs[name] = over_time_chart(_rows(frame, wider))
        charts.append((name, caption))
    listed = [
        {"period": safe_text(a["period"])}
        | {
            kind: (f"{row['value']:,.1f}", show(row["standard_error"]), f"{row['low']:,.1f}", f"{row['high']:,.1f}")
            for kind, row in (("totals", a), ("single", b))
        }
        for a, b in zip(totals.rows()[-_LISTED:], single.rows()[-_LISTED:], strict=True)
    ]
    thinned = len(release.published) > _DRAWN
    what = "The number of records" if counted == "Records" else counted
    return {
        "charts": charts,
        "lines": listed,
        "caption": f"{what}: the last {plural(len(listed), 'period')}"
        + (f" of the {_DRAWN:,} that are drawn" if thinned else ""),
    }


def _rows(frame: Frame, wider: float) -> list[Section]:
    """With the ends of intervals so much wider, rounded to what a chart can show: it keeps the page small."""
    out: list[Section] = []
    for row in frame.rows():
        shown = {name: row[name] for name in ("value", "low", "high")}
        middles = {"low": row["value"], "high": row["value"] + row.get("missing", 0.0)}
        shown |= {f"all_{end}": mid + wider * (row[end] - mid) for end, mid in middles.items()}
        out.append({"period": safe_text(row["period"])} | {name: float(f"{v:.7g}") for name, v in shown.items()})
    return out


def _measured(plan: StreamPlan) -> str:
    values = sum(f.rows for f in plan.terms.families)
    states = plan.terms.filter.kept[1]
    return (
        f"In every period {plural(values, 'noisy integer')} are measured: {safe_text(plan.strategy.summary)}, filtered "
        f"over time by {plural(states, 'number')} kept for every cell. Totals, periods and sums of periods all follow "
        "from these, so they agree with each other, and further questions cost nothing."
    )


def _bars(plan: StreamPlan) -> list[Section]:
    ours, tree, bound = plan.objective_value, plan.tree_error, plan.bound
    given = [
        ("this plan", "the worst period", ours, True, False),
        ("binary tree", "as it is taught, at the same price", tree, False, False),
    ]
    if bound is not None:
        given.append(("proved for Gaussian noise", "of the mean over all periods", bound, False, True))
    widest = max(value for _, _, value, _, _ in given)
    return [
        {"name": n, "note": t, "value": show(v, 4), "width": f"{62 * v / widest:.2f}", "chosen": c, "bound": b}
        for n, t, v, c, b in given
    ]


def _distance(plan: StreamPlan) -> str:
    if plan.bound is None:
        return "No lower bound is known for this relation and number of periods per person."
    mean = float(np.sqrt((plan.curve() ** 2).mean()))
    return (
        f"No unbiased answers made from Gaussian noise of any shape can have a smaller mean over the periods than "
        f"{show(plan.bound, 4)} at this price: this is proved. The plan's is at {show(mean, 4)}, at most "
        f"{share(mean / plan.bound - 1)} above it."
    )


def _mechanism(plan: StreamPlan) -> list[tuple[str, str]]:
    most = f"{plan.terms.most:,} records in a cell of one period"
    beyond = "a period of more is refused" if plan.unit.total_is_public else "of more, that many are counted"
    return [
        ("Mechanism", plan.mechanism),
        ("Over time", plan.periods.describe()),
        ("Participation", plan.participation),
        *((("Left out", plan.missing),) if plan.missing else ()),
        ("Noise", f"rounded Gaussian of one law, deviation {float(plan.terms.noise.sigma):.6g} on the integer lattice"),
        ("Rounding", f"what the integers round adds {plan.rounding:.2g} of the noise, which is paid for"),
        ("Counts", f"up to {most}; {beyond}"),
        ("Secret state", f"{plan.state_bytes:,} bytes between periods, held by the custodian alone"),
        *(("Note", safe_text(n)) for n in plan.notes),
    ]


def open_text() -> Section:
    """How a planned stream is opened."""
    code = (
        "import sfumato as sf\n\n"
        'plan = sf.load("PLAN")\n'
        'stream = sf.open(plan, ledger="budget.db", name="first", store="first.stream")\n'
        'stream.append("TABLE.csv", period="2026-W01")'
    )
    shell = (
        "sfumato stream open PLAN --ledger budget.db --name first --store first.stream\n"
        "sfumato stream append first.stream TABLE.csv --period 2026-W01 --ledger budget.db"
    )
    return {
        "title": "How to open it",
        "text": "The opening spends the whole price; every period then reads one table.",
        "code": [shell, code],
    }


def next_steps() -> Section:
    """How to ask a stream's release further questions."""
    code = (
        "import sfumato as sf\n\n"
        'stream = sf.load("FILE")\n'
        "stream.totals.answers, stream.increments.answers\n"
        'stream.between("FIRST", "LAST").intervals(0.95)\n'
        "stream.over_time()"
    )
    shell = "sfumato stream show FILE --over-time\nsfumato stream show FILE --last 4 --csv"
    return {
        "title": "Ask more",
        "text": "Totals, single periods, and sums of any periods all follow from what is published, at no cost. "
        "FILE is the stream's release: sfumato stream release STORE -o FILE.",
        "code": [shell, code],
    }
