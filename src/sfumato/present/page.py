"""One self-contained page about a plan or a release: it works from a file and loads nothing."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from importlib import resources
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup
from numpy.typing import ArrayLike

from sfumato._util.documents import write_atomically
from sfumato._util.frames import safe_text
from sfumato.errors import PlanError
from sfumato.plans.iterative import IterativePlan
from sfumato.plans.plan import Plan
from sfumato.plans.planned import WorkloadPlan, rows_text
from sfumato.plans.streams import StreamPlan
from sfumato.present import charts, sections
from sfumato.present import charts as scatter
from sfumato.present.answers import Distribution, SmallTable, agreement, distributions, singles, small_tables
from sfumato.present.projected import before_and_after, iterative_sections
from sfumato.present.provenance import standing
from sfumato.present.streams import stream_sections
from sfumato.present.words import families, rounded, show, typical
from sfumato.releases import Release
from sfumato.releases.released import WorkloadRelease
from sfumato.releases.streams import StreamRelease
from sfumato.releases.warnings import caution_lines, cut_text, other_line

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["asset", "environment", "render", "write_report"]


@cache
def environment(package: str = "sfumato.present", folder: str = ".") -> Environment:
    """Templates of a folder, by default this one: all text is escaped, and a missing value is an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415  (only where a page is made)

    return Environment(
        loader=PackageLoader(package, folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


@cache
def asset(name: str) -> str:
    """The text of a file of this folder."""
    return (resources.files("sfumato.present") / name).read_text(encoding="utf-8")


Reported = WorkloadPlan | WorkloadRelease | StreamRelease
Context = dict[str, Any]
Specs = dict[str, Any]


def write_report(thing: Reported, path: str | PathLike[str], *, actual: ArrayLike | None = None) -> Path:
    """Write the page about a plan or a release to one HTML file, and return its path.

    `actual`, the exact answers (k,), adds a comparison of predicted with actual errors; it is for tables
    that are public. Raises OSError where the file cannot be written.
    """
    page = render(thing, actual=actual)
    target = Path(path)
    write_atomically(target, lambda partial: _write(partial, page))
    return target


def _write(path: Path, page: str) -> None:
    path.write_text(page, encoding="utf-8", newline="\n")


def render(thing: Reported, *, actual: ArrayLike | None = None) -> str:
    """The page as text; see `write_report`."""
    release: Any = thing if isinstance(thing, WorkloadRelease | StreamRelease) else None
    plan: Any = thing if release is None else release.plan
    if not isinstance(plan, Plan if actual is not None else WorkloadPlan):
        raise PlanError(f"a report is made from a plan or a release, not from {type(thing).__name__}")
    if actual is not None and release is None:
        raise PlanError("actual= compares a release with exact answers; a plan has no answers yet")
    specs: Specs = {}
    context: Context = dict.fromkeys(_SOMETIMES, ())
    context |= _shared(plan, release) | standing(plan, release)
    if isinstance(plan, Plan):
        context |= _one_look(plan, release, actual, specs)
    elif isinstance(plan, IterativePlan):
        context |= iterative_sections(plan, release)
    elif isinstance(plan, StreamPlan):
        context |= _over_time(plan, release, specs)
    charts.name_counts(specs, rows_text(plan.unit))
    return _fill(context, specs)


# sections that not every page has
_SOMETIMES = ("agreement", "cautions", "curves", "errors", "looks", "moved", "over", "singles", "tables", "typical")


def _one_look(plan: Plan, release: Release | None, actual: ArrayLike | None, specs: Specs) -> Context:
    """Errors, and the answers with their intervals."""
    context = _planned(plan, release, specs)
    if release is None:
        return context
    context |= _answered(release, specs)
    context |= {"moved": _moved(release, specs), "cautions": caution_lines(release.cautions)}
    if told := cut_text(release):
        context["answers"] += f" All are of counted rows; {told}."
    if shares := other_line(release):
        context["answers"] += f" Records that are in (other), with two standard errors: {shares}."
    return context if actual is None else context | {"agreement": _agreed(release, actual, specs)}


def _over_time(plan: StreamPlan, release: StreamRelease | None, specs: Specs) -> Context:
    """Errors and answers of the totals, of the last period there is or that is planned, and what is of time alone."""
    totals = release.totals if release is not None and release.published else None
    context = _planned(plan.at() if totals is None else totals.plan, totals, specs)
    if totals is not None:
        context |= _answered(totals, specs)
        text = f"The totals up to {safe_text(release.periods[-1]) if release is not None else ''}, each answer"
        context["answers"] = context["answers"].replace("Each answer", text, 1)
        context["cautions"] = caution_lines(totals.cautions)
    return context | stream_sections(plan, release, specs)


def _shared(plan: WorkloadPlan, release: WorkloadRelease | StreamRelease | None) -> Context:
    """What every page says."""
    released = release is not None
    name = f"Plan: {plan.mechanism}" if release is None else safe_text(release.provenance.name)
    if isinstance(release, WorkloadRelease) and release.part is not None:
        name = f"{name}: {safe_text(release.part)}"
    return {
        "title": name,
        "kind": f"{'Release' if released else 'Plan of a release'} with differential privacy",
        "protects": sections.protects(plan, released=released),
        "cells": sections.cells_text(plan.workload.domain.size),
        "attributes": sections.attributes(plan),
    }


def _planned(plan: Plan, release: Release | None, specs: Specs) -> Context:
    """What is known before any data of errors: the sections that plans and releases of one look share."""
    released = release is not None
    projected = release is not None and release.projection is not None
    found = families(plan, None if release is None else release.part)
    queries = sum(f.queries for f in found)
    error_charts: list[tuple[str, str, str]] = []
    for i, unit in enumerate(dict.fromkeys(f.unit for f in found)):
        spec = charts.family_chart([f for f in found if f.unit == unit])
        if spec is not None:
            specs[f"errors-{i}"] = spec
            label = f"Typical error of each table or family, in {unit}; point at one for its name and margin."
            error_charts.append((unit, f"errors-{i}", label))
    spec = charts.pair_map(found)
    if spec is not None:
        specs["pairs"] = spec
        error_charts.append(("", "pairs", "Typical error of the table over every two attributes."))
    caption, worst = sections.worst(found)
    return {
        "heading": f"What {'was' if released else 'will be'} measured, and why",
        "lead": sections.lead(plan, queries, released=released, projected=projected),
        "figures": sections.figures(plan, queries, projected=projected),
        "reading": sections.reading(plan, projected=projected),
        "asked": sections.asked(plan, found),
        "parts": sections.parts(plan, None if release is None else release.part),
        "split": sections.split(plan),
        "errors": sections.errors(found, projected=projected or plan.forecast is not None),
        "error_charts": error_charts,
        "worst_caption": caption,
        "worst": worst,
    } | sections.measured(plan)


def _answered(release: Release, specs: Specs) -> Context:
    """The answers themselves."""
    tables: list[dict[str, str]] = []
    for i, table in enumerate(small_tables(release)):
        specs[f"table-{i}"] = charts.table_chart(table)
        tables.append({"id": f"table-{i}", "title": " × ".join(table.names), "caption": _table_caption(table)})
    curves: list[dict[str, str]] = []
    for i, curve in enumerate(distributions(release)):
        specs[f"curve-{i}"] = charts.distribution_chart(curve)
        by = f" by {', '.join(curve.by)}" if curve.by else ""
        title = f"Distribution of {curve.attribute}{by}"
        curves.append({"id": f"curve-{i}", "title": title, "caption": _curve_caption(curve)})
    single, omitted = singles(release)
    rows = [
        {"part": s.part, "label": s.label, "unit": s.unit, "error": show(s.error)}
        | {key: rounded(getattr(s, key), s.error) for key in ("value", "before", "low", "high")}
        for s in single
    ]
    text = (
        "Each answer with its 95 % interval: the thin lines, which for large counts can be too short to see. "
        "All answers are in the files beside this page; shown here are distributions, single queries, and tables: "
        "those that were asked first, and of large ones the largest cells."
    )
    return {
        "answers": text,
        "tables": tables,
        "curves": curves,
        "typical": typical(release),
        "singles": rows,
        "singles_caption": "Single queries with 95 % intervals",
        "omitted": f"{omitted:,}" if omitted else "",
    }


def _moved(release: Release, specs: Specs) -> Context | None:
    """The section on a projection."""
    found = before_and_after(release)
    if found is None:
        return None
    spec = scatter.moved_chart(found)
    if spec is not None:
        specs["moved"] = spec
    few = f" Shown are {len(found.rows):,} answers, evenly spread over the order." if found.omitted else ""
    caption = (
        "Projected against unprojected answers; on the dashed line nothing changed. Near zero the scale is linear, "
        f"beyond the noise logarithmic where counts are large.{few}"
    )
    return {"texts": found.texts, "facts": found.facts, "most": found.most, "drawn": spec is not None} | {
        "caption": caption
    }


def _table_caption(table: SmallTable) -> str:
    low, high = show(table.error_low), show(table.error_high)
    text = f"Standard error {low}." if low == high else f"Standard errors {low} to {high}."
    if "before" in table.rows[0]:
        text = f"Open circles: before projection, {text[0].lower()}{text[1:]}"
    if table.derived:
        text += " Follows from larger tables."
    shown = [r for r in table.rows if len(table.names) > 1 or not r["other"]]
    if "group" not in table.rows[0] and not table.ordered and len(shown) > charts.LONGEST:
        text += f" The {charts.LONGEST} largest of {table.cells:,} cells."
    if table.unequal:
        text += " Classes differ in width: areas are records, and heights are records per unit."
        text += "".join(f" In {r['cell']}: {_told(r)}." for r in table.rows if r["other"])
    return text


def _told(row: dict[str, Any]) -> str:
    """A count with its interval."""
    low, value, high = (rounded(row[k], (row["high"] - row["low"]) / 4) for k in ("low", "answer", "high"))
    return f"{value} ({low} to {high})"


def _curve_caption(curve: Distribution) -> str:
    text = "Share of records up to each value, with 95 % bands for each point."
    if curve.omitted:
        few = "one group" if curve.omitted == 1 else f"{curve.omitted:,} groups"
        text += f" Not drawn: {few} with too few records to tell, or smaller than the eight largest."
    return text


def _agreed(release: Release, actual: ArrayLike, specs: Specs) -> Context:
    names = [f.name for f in families(release.plan, release.part)]
    found = agreement(release, names, np.asarray(actual, dtype=np.float64))
    spec = scatter.agreement_chart(found)
    if spec is not None:
        specs["agreement"] = spec
    return {
        "warning": "This section exists only because the table is public. Exact answers to a sensitive table are never "
        "computed outside the curator, and a report of one cannot have it.",
        "text": f"Predicted typical error {show(found.predicted)}, actual {show(found.actual)}. "
        f"{found.inside:.1%} of the {found.answers:,} intervals at 95 % hold the exact answer. A table of few cells "
        "lies off the line by chance: its actual error is one draw, not a mean.",
    }


def _fill(context: Context, specs: Specs) -> str:
    """The page with its style, data and programs inline, and a policy that lets nothing else run or load."""
    programs = {"bundle": asset("vendor/vega-bundle.js"), "draw": asset("draw.js")}
    hashes = " ".join(f"'sha256-{_digest(text)}'" for text in programs.values())
    # only the two hashed programs run, and neither may make text into a program: draw.js has expressions interpreted
    drawn = f" script-src {hashes};" if specs else ""
    policy = f"default-src 'none';{drawn} style-src 'unsafe-inline'{'; img-src data:' if specs else ''}"
    inline = {name: Markup(text) for name, text in programs.items()}
    return (
        environment()
        .get_template("page.html")
        .render(
            context,
            charts=_embedded({"config": charts.CONFIG, "specs": specs}) if specs else "",
            style=Markup(asset("style.css")),
            policy=Markup(policy),
            **inline,
        )
    )


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _embedded(value: object) -> Markup:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for char in "<>&":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return Markup(text)
