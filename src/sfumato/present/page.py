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

from sfumato._util.catalogue import page_locale, say_words, speak
from sfumato._util.description import (
    Chart,
    Description,
    DescriptionBlock,
    Figures,
    Sentences,
    Warnings,
    drawn,
    page_html,
)
from sfumato._util.documents import write_text_atomically
from sfumato._util.frames import safe_text
from sfumato.errors import PlanError
from sfumato.mechanisms.registry import import_named
from sfumato.plans.plan import Plan
from sfumato.plans.planned import WorkloadPlan, rows_text
from sfumato.present import charts, sections
from sfumato.present.answers import (
    Distribution,
    SmallTable,
    asked_distributions,
    error_agreement,
    measures_asked_first,
    measures_table,
    singles_table,
    small_tables,
)
from sfumato.present.crosstab import crosstab_section
from sfumato.present.projected import MODEL_READING, model_answers, model_lead, moved_section
from sfumato.present.translated import translated_page
from sfumato.present.words import predicted_families, provenance_sections, round_to_error, show_figures, typical_table
from sfumato.releases import Release
from sfumato.releases.methods import method_description
from sfumato.releases.publication import Publication
from sfumato.releases.released import WorkloadRelease
from sfumato.releases.reliability import read_reliability
from sfumato.releases.warnings import doubts

if TYPE_CHECKING:
    from jinja2 import Environment

    from sfumato.releases.streams import StreamRelease

    Reported = WorkloadPlan | WorkloadRelease | StreamRelease


@cache
def template_environment(package: str = "sfumato.present", folder: str = ".") -> Environment:
    """Templates of a folder, by default this one: all text is escaped, and a missing value is an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415  (only where a page is made)

    made = Environment(
        loader=PackageLoader(package, folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    known: dict[str, Any] = made.globals
    known["say"] = say_words
    return made


@cache
def asset_text(name: str) -> str:
    """The text of a file of this folder."""
    return (resources.files("sfumato.present") / name).read_text(encoding="utf-8")


_PAGES: dict[str, str] = {
    "StreamPlan": "sfumato.present.streams.stream_blocks",
    "StreamRelease": "sfumato.present.streams.stream_blocks",
}
"""What says the middle of a page of an extension's plan or release, by its class."""


def write_report(
    thing: Reported,
    path: str | PathLike[str],
    *,
    actual: ArrayLike | None = None,
    publication: Publication | None = None,
) -> Path:
    """Write the page about a plan or a release to one HTML file, and return its path.

    `actual`, the exact answers (k,), adds a comparison of predicted with actual errors; it is for tables
    that are public. `publication` says what readers are told besides. Raises OSError where the file cannot be written.
    """
    page = render(thing, actual=actual, publication=publication)
    target = Path(path)
    write_text_atomically(target, page)
    return target


def render(thing: Reported, *, actual: ArrayLike | None = None, publication: Publication | None = None) -> str:
    """The page as text; see `write_report`."""
    told = publication or Publication()
    with speak(told.language, told.called()):
        return _render_spoken(thing, actual, told)


def _render_spoken(thing: Reported, actual: ArrayLike | None, told: Publication) -> str:
    page = translated_page(describe_page(thing, actual=actual, publication=told))
    plan: Any = thing if isinstance(thing, WorkloadPlan) else thing.plan
    planned = isinstance(thing, WorkloadPlan)
    kind = say_words("Plan of a release with differential privacy" if planned else "Release with differential privacy")
    return page_text(page, kind, rows_text(plan.unit), told)


def page_text(page: Description, kind: str, counted: str, publication: Publication | None = None) -> str:
    """A page with its programs and styles: its headline, a lead, and its sections.

    Args:
        page: What it says; the first block is the lead.
        kind: The line above its title.
        counted: What counts are of, on the axes of charts.
        publication: What readers are told besides.

    Returns:
        HTML that loads nothing.
    """
    told = publication or Publication()
    specs = {c.name: c.spec for c in drawn(page.blocks)}
    charts.name_counts(specs, counted)
    programs = {"bundle": asset_text("vendor/vega-bundle.js"), "draw": asset_text("draw.js")}
    hashes = " ".join(f"'sha256-{_sha256_base64(text)}'" for text in programs.values())
    # only the two hashed programs run, and neither may make text into a program: draw.js has expressions interpreted
    allowed = f" script-src {hashes};" if specs else ""
    policy = f"default-src 'none';{allowed} style-src 'unsafe-inline'{'; img-src data:' if specs else ''}"
    lead, *rest = page.blocks
    inside = [b for b in rest if isinstance(b, Description)]
    return (
        template_environment()
        .get_template("page.html")
        .render(
            title=page.headline,
            kind=kind,
            language=told.language,
            subtitle=safe_text(told.text("subtitle")),
            about=told.facts(),
            lead=Markup(page_html([lead])),
            warnings=Markup(page_html([b for b in rest if isinstance(b, Warnings)])),
            figures=Markup(page_html([b for b in rest if isinstance(b, Figures)])),
            menu=[(d.name, d.menu) for d in inside],
            sections=Markup(page_html(inside)),
            charts=_embed_json({"config": charts.CONFIG, "specs": specs, "locale": page_locale()}) if specs else "",
            style=Markup(asset_text("style.css")),
            policy=Markup(policy),
            **{name: Markup(text) for name, text in programs.items()},
        )
    )


def describe_page(
    thing: Reported, *, actual: ArrayLike | None = None, publication: Publication | None = None
) -> Description:
    """All that the page says: what a plan or a release says of itself, its answers and errors, and how to read them.

    Args:
        thing: A plan of a workload, or a release of it.
        actual: The exact answers, (k,), of a public table, to compare errors with; None for all others.
        publication: What readers are told besides.

    Returns:
        A sentence, warnings, the key figures, and the sections of the page.

    Raises:
        PlanError: for anything else, and where there are no answers to compare.
    """
    extension = _PAGES.get(type(thing).__name__)
    release: Any = None if isinstance(thing, WorkloadPlan) else thing
    if release is not None and extension is None and not isinstance(thing, WorkloadRelease):
        raise PlanError(f"a report is made from a plan or a release, not from {type(thing).__name__}")
    plan: Any = thing if release is None else release.plan
    if not isinstance(plan, Plan if actual is not None else WorkloadPlan):
        raise PlanError(f"a report is made from a plan or a release, not from {type(thing).__name__}")
    if actual is not None and release is None:
        raise PlanError("actual= compares a release with exact answers; a plan has no answers yet")
    title = f"Plan: {plan.mechanism}" if release is None else safe_text(release.provenance.name)
    if part := getattr(release, "part", None):
        title = f"{title}: {safe_text(part)}"
    told = publication or Publication()
    title = safe_text(told.text("title")) or title
    if isinstance(plan, Plan):
        blocks = _one_look_context(plan, release, actual, told)
    elif extension is not None:
        blocks = import_named(extension)(plan, release)
    else:
        blocks = _model(plan, release)
    method = [method_description(release)] if isinstance(release, Release) else []
    return Description(title, [*blocks, *method, *provenance_sections(plan, release)])


def _one_look_context(
    plan: Plan, release: Release | None, actual: ArrayLike | None, told: Publication
) -> list[DescriptionBlock]:
    """Errors, and the answers with their intervals."""
    projected = release is not None and release.projection is not None
    part = None if release is None else release.part
    found = predicted_families(plan, part)
    queries = sum(f.queries for f in found)
    return [
        Sentences([sections.lead_sentences(plan, queries, released=release is not None, projected=projected)]),
        *([] if release is None else [*answer_blocks(release, told=told), *crosstab_section(release, told)]),
        sections.key_figures(plan, queries, projected=projected),
        protection_section(plan, sections.reading_advice(plan, projected=projected), released=release is not None),
        sections.asked_text(plan, found, part),
        sections.measured_section(plan, released=release is not None),
        sections.errors_text(found, projected=projected or plan.forecast is not None),
        *([] if release is None else moved_section(release)),
        *([] if release is None or actual is None else [_agreement_context(release, actual)]),
    ]


def _model(plan: WorkloadPlan, release: Any) -> list[DescriptionBlock]:
    """A plan of several looks, or answers of its model."""
    queries = len(plan.workload if release is None else release.workload)
    names = len(plan.workload.domain.names)
    text = f"{sections.plural(queries, 'query', 'queries')} over {sections.plural(names, 'declared attribute')}."
    return [
        Sentences([model_lead(plan, queries, released=release is not None)]),
        *([] if release is None else [model_answers(release)]),
        protection_section(plan, MODEL_READING, released=release is not None),
        sections.asked_section(text, plan),
        sections.measured_facts_section(plan, [], f"How it {'was' if release is not None else 'will be'} made"),
    ]


def protection_section(plan: WorkloadPlan, reading: Sentences, *, released: bool) -> Description:
    blocks = [sections.guarantee_sentences(plan, released=released), reading]
    return Description("What it protects", blocks, "protects", "Protection")


def glance_tables(release: Release, told: Publication) -> list[DescriptionBlock]:
    """Single answers and measures, as they were asked, and typical values, with the marks of a publication."""
    marks = read_reliability(told.flags)
    asked = [measures_table, singles_table] if measures_asked_first(release) else [singles_table, measures_table]
    flagged = [block for made in asked for block in made(release, told.flags)]
    rule = [Sentences([marks.statement()], quiet=True)] if flagged and marks.classes else []
    return [*flagged, *rule, *typical_table(release)]


def answer_blocks(release: Release, each: str = "Each", told: Publication | None = None) -> list[DescriptionBlock]:
    """Reasons for doubt, and the answers themselves."""
    text = (
        f"{each} answer with its 95 % interval: the thin lines, which for large counts can be too short to see. "
        "All answers are in the files beside this page; shown here are distributions, single queries, and tables: "
        "those that were asked first, and of large ones the largest cells."
    )
    tables: list[DescriptionBlock] = [
        Chart(f"table-{i}", " × ".join(t.names), _table_caption(t), charts.table_chart(t), beside=True)
        for i, t in enumerate(small_tables(release))
    ]
    curves: list[DescriptionBlock] = [
        Chart(f"curve-{i}", _curve_title(curve), _curve_caption(curve), charts.distribution_chart(curve))
        for i, curve in enumerate(asked_distributions(release))
    ]
    single = glance_tables(release, told or Publication())
    out: list[DescriptionBlock] = [doubts(release)]
    if single or curves or tables:
        out.append(Description("Answers", [Sentences([text]), *single, *curves, *tables], "answers", "Answers"))
    return out


def _curve_title(curve: Distribution) -> str:
    by = f" by {', '.join(curve.by)}" if curve.by else ""
    return f"Distribution of {curve.attribute}{by}"


def _table_caption(table: SmallTable) -> str:
    low, high = show_figures(table.error_low), show_figures(table.error_high)
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
        text += "".join(f" In {r['cell']}: {_count_with_interval(r)}." for r in table.rows if r["other"])
    return text


def _count_with_interval(row: dict[str, Any]) -> str:
    """A count with its interval."""
    low, value, high = (round_to_error(row[k], (row["high"] - row["low"]) / 4) for k in ("low", "answer", "high"))
    return f"{value} ({low} to {high})"


def _curve_caption(curve: Distribution) -> str:
    text = "Share of records up to each value, with 95 % bands for each point."
    if curve.omitted:
        few = "one group" if curve.omitted == 1 else f"{curve.omitted:,} groups"
        text += f" Not drawn: {few} with too few records to tell, or smaller than the eight largest."
    return text


def _agreement_context(release: Release, actual: ArrayLike) -> Description:
    names = [f.name for f in predicted_families(release.plan, release.part)]
    found = error_agreement(release, names, np.asarray(actual, dtype=np.float64))
    spec = charts.agreement_chart(found)
    warning = (
        "This section exists only because the table is public. Exact answers to a sensitive table are never computed "
        "outside the curator, and a report of one cannot have it."
    )
    text = (
        f"Predicted typical error {show_figures(found.predicted)}, actual {show_figures(found.actual)}. "
        f"{found.inside:.1%} of the {found.answers:,} intervals at 95 % hold the exact answer. A table of few cells "
        "lies off the line by chance: its actual error is one draw, not a mean."
    )
    caption = "Actual against predicted error of every table and family; the dashed line is equality."
    drawing = [] if spec is None else [Chart("agreement", "", caption, spec)]
    blocks = [Warnings([warning]), Sentences([text]), *drawing]
    return Description("Predicted and actual errors", blocks, "agreement", "Predicted and actual")


def _sha256_base64(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _embed_json(value: object) -> Markup:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for char in "<>&":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return Markup(text)
