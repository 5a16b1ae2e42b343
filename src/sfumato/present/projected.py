"""Before and after a projection: how far answers moved, what made them move, and what is proved of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sfumato._util.description import Chart, Description, Facts, Sentences, TitledTable
from sfumato._util.frames import Frame, safe_text
from sfumato.errors import NotAnswerable
from sfumato.operators.base import FloatArray
from sfumato.plans.planned import WorkloadPlan
from sfumato.postprocess.projection import Projection
from sfumato.present.charts import moved_chart
from sfumato.present.sections import READING, plural, table_text
from sfumato.present.words import budget_statement, percentage_text, round_to_error, show_figures
from sfumato.releases import ModelRelease, Release
from sfumato.releases.ends import answer_range
from sfumato.releases.tables import moved_facts
from sfumato.workloads import RECORDS
from sfumato.workloads.levels import table_names

_MOST = 20  # the largest moves alone: a table that fits a screen
_DOTS = 2_000  # more hide one another, and each has its size in the page
_LABELLED = 1_000_000  # labels are Python texts, of some 100 bytes; beyond, numbers stand for them
_COMPARED = 200  # queries: each table costs a pass, and the page shows the largest moves alone
_ZERO = 1e-3  # of the noise: what is called zero

_BODIES = {
    "simplex": "the cells of a table, none negative",
    "isotonic": "cumulative counts, which never fall",
    "hull": "the answers of one table of nonnegative cells with that number of records",
    "cone": "the answers of one table of nonnegative cells, whatever its number of records",
    "exact": "the answers of weighted records",
    "local": "tables without negative cells that agree wherever they share attributes",
    "spine": "one table of counts for every unit, each group of a level the sum of those in it",
    "sdp": "pairs of two-valued attributes whose correlations form a possible matrix",
    "sdp+local": "tables over pairs without negative cells whose correlations form a possible matrix",
}
_DENOISED = (
    "The noisy pairs were denoised together: independence, a forest of pairs and mixtures of products were fitted to "
    "one half of the noise and judged by the other, blended as that says, and what they missed beyond noise was added "
    "back. The tables agree wherever they share attributes, none is negative, and those over more than two attributes "
    "are the most even that have their pairs. How near they are to the truth is not proved. This cost no budget."
)
_LARGER = (
    "Whether one table could have given all of them at once is not decided: this body is somewhat larger than that."
)
_NORMS = {
    "answers": "All answers counted alike.",
    "noise": "Deviations counted in units of the noise: what was measured precisely moved least.",
    "families": "The tree of groups was settled from the root down, every group's parts together and given their sum, "
    "in units of the noise of all that was measured within them.",
    "ladder": "Coarse counts came first: the total, then every attribute by itself, then what was asked for itself; "
    "each was held while finer tables moved, in units of their noise.",
}


@dataclass(frozen=True, slots=True)
class MovedAnswers:
    """What the section says: paragraphs, facts, the answers that moved most, and dots of before and after.

    `rows` hold name, before, after; `noise` is the typical noise of these, by which the chart is scaled.
    """

    texts: list[str]
    facts: list[tuple[str, str]]
    most: list[dict[str, str]]
    rows: list[dict[str, Any]]
    noise: float
    omitted: int


def projection_section(release: Release) -> MovedAnswers | None:
    """The section about the projection; None for a release that is not projected."""
    found = release.projection
    if found is None:
        return None
    units = np.concatenate([np.full(q.rows, q.unit == release.plan.main_unit) for q in release.workload.blocks])
    raw, errors = release.raw.answers, release.plan.standard_errors(release.part)
    known = np.isfinite(errors) & (units if units.any() else True)
    noise = float(np.sqrt(np.mean(errors[known] ** 2))) if known.any() else 0.0
    labels = [safe_text(t) for t in release.labels()] if len(raw) <= _LABELLED else [f"{i:,}" for i in range(len(raw))]
    rows = _projection_dots(labels, raw, release.answers, units)
    texts = [_projection_text(found), _errors_withdrawn_text(many=len(raw) > 1)]
    facts = [
        *_distance_facts(release, found, raw, units, noise),
        *_constraint_facts(release, raw, noise),
        ("Certificate", _certificate_text(found)),
    ]
    return MovedAnswers(
        texts, facts, _most_moved(release, labels, raw, errors), rows, noise, int(units.sum()) - len(rows)
    )


def _projection_text(found: Projection) -> str:
    if found.body == "mixtures":
        return _DENOISED
    text = (
        "The noisy answers were replaced by the nearest ones that some table could have given: "
        f"{_BODIES[found.body]}. {_NORMS[found.norm]} This cost no budget."
    )
    if not found.realisable:
        text += f" {_LARGER}"
    if found.left_out:
        text += f" Answers that no table it holds has stay as they were measured: {', '.join(found.left_out)}."
    if found.rounded is not None:
        text += (
            f" Counts were then made whole, which moved answers by {show_figures(found.rounded)} (root mean squared)."
        )
    return text


def _errors_withdrawn_text(*, many: bool) -> str:
    """What became of standard errors and intervals."""
    return (
        "Standard errors are withdrawn. Where a constraint binds, a projected answer is biased, by an amount that "
        "depends on the unknown table, so no number known beforehand describes its error. Intervals stay: each is that "
        "of the unprojected answer, cut to what is possible and extended to the projected answer, and holds at least "
        f"as often as before. The unprojected {'answers stay' if many else 'answer stays'} in the files beside the "
        "projected: take unbiased answers for sums of many small counts, and for means over releases."
    )


def _distance_facts(
    release: Release, found: Projection, raw: FloatArray, units: Any, noise: float
) -> Iterator[tuple[str, str]]:
    """How far answers moved, and what that says of their error."""
    chosen = units if units.any() else ~units
    change = float(np.sqrt(np.mean((release.answers - raw)[chosen] ** 2)))
    unit = safe_text(release.plan.main_unit)
    ratio = f", {change / noise:.2f} of the typical noise of {show_figures(noise)}" if noise > 0 else ""
    yield "Moved by", f"{show_figures(change)} {unit} (root mean squared){ratio}"
    whole = release.part is None and bool(chosen.all()) and found.rounded is None
    if not (whole and found.certified and found.norm == "answers") or release.plan.bias_records is not None:
        return
    left = noise**2 - change**2
    size = f"about {show_figures(math.sqrt(max(left, 0.0)))} {unit} at most, from this one draw of the noise"
    text = "no larger than before where the table lies in the body; in square smaller by at least what answers moved"
    yield "Error now", f"{text}: {size if left > 0 else 'far below the noise before'}"


def _constraint_facts(release: Release, raw: FloatArray, noise: float) -> Iterator[tuple[str, str]]:
    """What was impossible before."""
    ends = np.array([answer_range(q.block.operator, release.measurement.total) for q in release.workload.blocks])
    least, most = (np.repeat(ends[:, i], [q.rows for q in release.workload.blocks]) for i in (0, 1))
    low, high = int((raw < np.minimum(least, 0)).sum()), int((raw > most).sum())
    yield (
        "Below zero or the least possible, before",
        f"{low:,} of {len(raw):,} answers ({percentage_text(low / len(raw))})",
    )
    if high or release.measurement.total is not None:
        yield "Above the number of records, before", f"{high:,} of {len(raw):,} answers"
    zero = int(((release.answers <= _ZERO * noise) & (least == 0)).sum())
    yield "At zero now", f"{zero:,} of {len(raw):,} answers"
    totals = _totals_before_after(release)
    if totals is not None:
        public = release.measurement.total is not None
        before, after = (round_to_error(t, 0.0 if public else noise) for t in totals)
        yield "Number of records", f"{before} before, {after} after ({'public' if public else 'measured with noise'})"
    apart, left = _disagreement(release.raw), _disagreement(release)
    if apart is not None and left is not None:
        agreed = "none before either: least squares sees to that"
        text = f"up to {show_figures(apart)} before, {show_figures(left)} after" if apart > 1e-6 * noise else agreed
        yield "Differences between tables on counts they share", text


def _totals_before_after(release: Release) -> tuple[float, float] | None:
    try:
        before, after = (float(replace(r, part=None).table().values) for r in (release.raw, release))
    except NotAnswerable:
        return None
    return before, after


def _disagreement(release: Release) -> float | None:
    """The largest difference between two tables' counts of one cell of an attribute; None where none share one."""
    domain = release.plan.workload.domain
    found: dict[str, list[FloatArray]] = {}
    blocks = (q for q in release.workload.blocks if q.unit == RECORDS)
    named = ((q, names) for q in blocks if (names := table_names(domain, q.block)))
    for query, names in itertools.islice(named, _COMPARED):
        if any(a not in domain.names for a in names):
            continue
        values = release.answer_block(query.block).reshape(domain.sizes(names))
        for i, a in enumerate(names):
            found.setdefault(a, []).append(values.sum(axis=tuple(j for j in range(values.ndim) if j != i)))
    apart = [float(np.ptp(np.array(each), axis=0).max()) for each in found.values() if len(each) > 1]
    return max(apart, default=None)


def _certificate_text(found: Projection) -> str:
    if not found.certified:
        return "none: the search ended without a proof of how near to the nearest it came"
    if found.norm == "ladder":
        return f"{found.describe()}. A rung that cannot be held exactly with those before it states its gap"
    near = math.sqrt(max(found.gap, 0.0))
    ratio = near / found.moved if found.moved > 0 else 0.0
    text = (
        f"proved to be within {show_figures(near)} of the nearest point of the body, in the distance that was minimised"
    )
    return f"{text}; answers moved by {show_figures(found.moved)} in it, so this is {percentage_text(ratio)} of the way"


def _most_moved(release: Release, labels: list[str], raw: FloatArray, errors: FloatArray) -> list[dict[str, str]]:
    """The answers that moved most, in units of their own standard error."""
    after, ends = release.answers, release.raw.intervals()
    steps = np.divide(after - raw, errors, out=np.zeros_like(raw), where=errors > 0)
    order = np.argsort(-np.abs(steps), kind="stable")[:_MOST]
    owner = np.repeat(np.arange(len(release.workload.blocks)), [q.rows for q in release.workload.blocks])
    out: list[dict[str, str]] = []
    for i in order.tolist():
        query = release.workload.blocks[int(owner[i])]
        values = {"before": raw[i], "after": after[i], "low": ends.low[i], "high": ends.high[i]}
        numbers = {name: round_to_error(float(v), float(errors[i])) for name, v in values.items()}
        out.append(
            {"label": labels[i], "part": safe_text(query.part), "steps": show_figures(float(steps[i])), **numbers}
        )
    return out


def _projection_dots(labels: list[str], raw: FloatArray, after: FloatArray, units: Any) -> list[dict[str, Any]]:
    """Answers of the main unit, evenly spread over their order; no more than a picture can show."""
    chosen = np.flatnonzero(units)
    chosen = chosen[np.argsort(raw[chosen], kind="stable")][:: max(1, math.ceil(len(chosen) / _DOTS))]
    return [
        {"name": labels[i], "before": float(f"{raw[i]:.6g}"), "after": float(f"{after[i]:.6g}")}
        for i in chosen.tolist()
    ]


_LISTED = 200  # answers on a page; the folder has all


def moved_section(release: Release) -> list[Description]:
    """The section about the projection; none for a release that is not projected."""
    found = projection_section(release)
    if found is None:
        return []
    spec = moved_chart(found)
    few = f" Shown are {len(found.rows):,} answers, evenly spread over the order." if found.omitted else ""
    caption = (
        "Projected against unprojected answers; on the dashed line nothing changed. Near zero the scale is linear, "
        f"beyond the noise logarithmic where counts are large.{few}"
    )
    names = {"label": "Query", "part": "Part", "before": "Before", "low": "95 % from", "high": "to"}
    names |= {"after": "Projected", "steps": "Standard errors moved"}
    frame = Frame({title: [row[name] for row in found.most] for name, title in names.items()})
    most = "What moved most, in units of its standard error, with the interval before projection"
    blocks = [
        Sentences(found.texts),
        Facts(found.facts),
        moved_facts(release),
        *([Chart("moved", "", caption, spec)] if spec is not None else []),
        TitledTable(most, frame, list(names.values())[2:], "What moved most"),
    ]
    return [Description("Before and after the projection", blocks, "moved", "Before and after")]


def model_lead(plan: WorkloadPlan, queries: int, *, released: bool) -> str:
    """The page of a model in two sentences."""
    table = table_text(plan)
    if released:
        return f"{plural(queries, 'answer')} of a model of {table}, released under {budget_statement(plan.budget)}."
    asked = plural(queries, "query", "queries")
    promise = f"It promises {budget_statement(plan.budget)}"
    return f"A plan to answer {asked} about {table} by a model. {promise}. No data were read, and nothing was spent."


MODEL_READING = Sentences(
    [
        "All answers are those of one model of the table, so they agree with each other and none is negative where a "
        "count cannot be.",
        "There are no standard errors and no intervals: what is measured is chosen by looking at the table, and what "
        "the model says of the rest is a guess. Where errors must be known, plan with another mechanism.",
        "What was measured of the table, and what was chosen, is in the release's files.",
    ],
    READING,
    listed=True,
)


def model_answers(release: ModelRelease) -> Description:
    """The first answers, table by table."""
    rows: list[tuple[str, str, str, str]] = []
    for query in release.workload.blocks:
        if len(rows) >= _LISTED:
            break
        values = zip(release.workload.block_labels(query), release.answer_block(query.block).tolist(), strict=True)
        rows += [(safe_text(t), safe_text(query.part), f"{v:,.1f}", safe_text(query.unit)) for t, v in values]
    shown = list(zip(*rows[:_LISTED], strict=True)) or [(), (), (), ()]
    frame = Frame(dict(zip(("Query", "Part", "Answer", "Unit"), shown, strict=True)))
    left = len(release.workload) - min(_LISTED, len(rows))
    caption = f"Answers of the model{f'; {left:,} more are in the release' if left else ''}"
    text = "All of them are in the files beside this page; shown here are the first."
    blocks = [Sentences([text]), TitledTable(caption, frame, ("Answer",), most=_LISTED)]
    return Description("Answers", blocks, "answers", "Answers")
