"""The folder that `sfumato publish` writes: pages and data for any web server, which load nothing from elsewhere."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import replace
from importlib import resources
from os import PathLike
from pathlib import Path
from typing import Any

from markupsafe import Markup

from sfumato._util.description import Description, DescriptionBlock, Facts, Sentences, Warnings, page_html
from sfumato._util.frames import Frame, safe_text
from sfumato.errors import NotAnswerable, PlanError
from sfumato.plans.intervals import widest_sum_margin
from sfumato.present import charts, sections
from sfumato.present.answers import measures_table, singles_table
from sfumato.present.page import asset_text, template_environment
from sfumato.present.provenance import provenance_facts
from sfumato.present.words import CONFIDENCE, numeric_names, small_groupings, typical_table
from sfumato.publishing.tables import Shelf, write_tables
from sfumato.releases import Release
from sfumato.releases.comparing import check_comparable
from sfumato.releases.files import Draft
from sfumato.releases.warnings import reader_lines

_DECILES = [0.05, 0.1, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.9, 0.95]  # what official tables give
_MOST = 60  # files of some 20 kB each
_MOST_POINTS = 400  # steps of a curve: more than a phone has pixels


def write_curves(release: Release, folder: Path) -> list[dict[str, Any]]:
    """Write one file for every attribute and grouping that the release answers; say which."""
    folder.mkdir(exist_ok=True)
    out: list[dict[str, Any]] = []
    for attribute in numeric_names(release):
        for by in small_groupings(release, attribute):
            if len(out) == _MOST:
                return out
            try:
                found = _distribution_facts(release, attribute, by)
            except (NotAnswerable, PlanError):
                continue
            place = f"{folder.name}/{len(out)}.json"
            text = json.dumps(found, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
            (folder.parent / place).write_text(text, encoding="utf-8", newline="\n")
            out.append({"attribute": attribute, "by": list(by), "file": place})
    return out


def _distribution_facts(release: Release, attribute: str, by: tuple[str, ...]) -> dict[str, Any]:
    declared = release.plan.workload.domain[attribute]
    quantiles = release.quantiles(attribute, _DECILES, by=by, confidence=CONFIDENCE)
    means = release.mean(attribute, by=by, confidence=CONFIDENCE)
    whole = declared.kind == "integer"
    found: dict[str, Any] = {"quantiles": _columns_by_place(quantiles), "means": _columns_by_place(means), "ends": []}
    if len(declared.declared_labels) <= _MOST_POINTS:
        found["ends"] = [float(high) - whole for _, high in declared.intervals or ()]
        shares = release.cdf(attribute, by=by, confidence=CONFIDENCE)
        found["shares"] = {k: [_seven_figures(v) for v in shares[k]] for k in ("share", "low", "high")}
    return found


def _columns_by_place(frame: Frame) -> dict[str, list[Any]]:
    """Columns by place, for an attribute may be called like one of them: groups, then what is told."""
    return {str(i): [_seven_figures(v) for v in column] for i, column in enumerate(frame.columns.values())}


def _seven_figures(value: Any) -> Any:
    """Seven figures: more than an interval has, and small files."""
    return float(f"{value:.7g}") if isinstance(value, float) else value


_CONFIDENCES = (0.8, 0.9, 0.95, 0.99)  # what readers choose from
_MOST_RANKED = 200  # cells that are ranked, every one against every other
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; img-src 'self' data:"
)


def publish(release: Release, folder: str | PathLike[str], *, earlier: Release | None = None) -> Path:
    """Write a static site about a release to a new folder, for any web server to host, and return its path.

    Tables are small files that the page loads when they are asked for; the calculator computes shares, ratios,
    differences and ranks from them in the browser, by the arithmetic of `Answer`. The 150,000 cells of the smallest
    tables are exact, those of larger ones are rounded to a 256th of their standard error. With an `earlier` release
    of the same queries, changes and growth are told too. It costs nothing. Raises PlanError for what has no known
    errors, InvalidInput for a folder that is neither new or empty nor the site of that very release.

    >>> import tempfile, pathlib
    >>> from sfumato.publishing import publish
    >>> made = sf.plan(sf.marginals(sf.Domain({"age": 4, "sex": 2}), upto=2), sf.gdp(1), neighbours="add-remove")
    >>> ages = sf.release(made, sf.Histogram(np.full((4, 2), 9)), ledger=None, name="ages")
    >>> with tempfile.TemporaryDirectory() as place:
    ...     site = publish(ages, pathlib.Path(place) / "site")
    ...     sorted(p.name for p in site.iterdir())
    ['LICENSES.txt', 'app.js', 'calc.js', 'charts.js', 'curves', 'index.html', 'site.json', 'style.css', 'tables']
    """
    for given in (release, *(() if earlier is None else (earlier,))):
        if not isinstance(given, Release):
            raise PlanError(
                "a site is made of a release whose errors are known; of others `sfumato report` makes a page"
            )
    if earlier is not None:
        check_comparable(release, earlier)
    of = [r.result_hash for r in (release, *(() if earlier is None else (earlier,)))]
    with suppress(AttributeError, OSError, TypeError, ValueError):
        # it appeared at once and complete, and whoever wrote it ended before it could say so
        if json.loads((Path(folder) / "site.json").read_text(encoding="utf-8")).get("of") == of:
            return Path(folder)
    with Draft(folder) as draft:
        _write_site(release, earlier, draft.partial, of)
        if hasattr(os, "sync"):
            os.sync()  # its files are many, and free to write again
        draft.publish()
    return draft.folder


def _write_site(release: Release, earlier: Release | None, folder: Path, of: list[str]) -> None:
    shelves = [(release, write_tables(release, folder / "tables"))]
    if earlier is not None:
        shelves.append((earlier, write_tables(earlier, folder / "earlier")))
    own = resources.files("sfumato.publishing")
    for name in ("calc.js", "app.js"):
        _write_site_text(folder / name, (own / name).read_text(encoding="utf-8"))
    _write_site_text(folder / "style.css", asset_text("style.css") + (own / "style.css").read_text(encoding="utf-8"))
    for name, text in (("charts.js", "vendor/vega-bundle.js"), ("LICENSES.txt", "vendor/LICENSES.txt")):
        _write_site_text(folder / name, asset_text(text))
    facts = _site_facts(shelves) | {"of": of, "curves": write_curves(release, folder / "curves")}
    _write_site_text(
        folder / "site.json", json.dumps(facts, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    )
    _write_site_text(folder / "index.html", _site_page(release, earlier, shelves[0][1]))


def _write_site_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")  # the folder appears at once and complete


def _site_facts(shelves: list[tuple[Release, Shelf]]) -> dict[str, Any]:
    """What the page reads first."""
    release = shelves[0][0]
    domain = release.plan.workload.domain
    used = sorted({n for _, shelf in shelves for t in shelf.tables for n in t["names"]})
    laws = {r.measurement.noise for r, _ in shelves}
    widest = {str(c): max(widest_sum_margin(c, law) for law in laws) for c in _CONFIDENCES}
    others = sorted({domain[n].size - 1 for n in used if 1 < domain[n].size <= _MOST_RANKED})
    return {
        "format": "sfumato site 1",
        "attributes": {n: {"labels": list(domain[n].labels), "ordered": domain[n].ordered} for n in used},
        "releases": [
            {"name": r.provenance.name, "tables": shelf.tables, "agree": shelf.agree, "tilts": shelf.tilts}
            for r, shelf in shelves
        ],
        "multipliers": widest,
        # all comparisons of a cell hold together: the union bound
        "together": {str(m): max(widest_sum_margin(1 - 0.05 / m, law) for law in laws) for m in others},
        "config": charts.CONFIG,
    }


def _site_page(release: Release, earlier: Release | None, shelf: Shelf) -> str:
    plan, projected = release.plan, release.projection is not None
    glance = [*measures_table(release), *singles_table(release), *typical_table(release)]
    reading = sections.reading_advice(plan, projected=projected)
    rounding = (
        "Cells of large tables are rounded here to less than a two-hundredth of their standard error; the release's "
        "own files are exact."
    )
    return (
        template_environment("sfumato.publishing")
        .get_template("page.html")
        .render(
            policy=POLICY,
            title=safe_text(release.provenance.name),
            earlier="" if earlier is None else safe_text(earlier.provenance.name),
            lead=sections.lead_sentences(plan, len(release.workload), released=True, projected=projected),
            warnings=_markup(Warnings(reader_lines(release))),
            glance=_markup(*glance or [Sentences(["This release holds tables; choose one below."])]),
            read=_markup(replace(reading, title=""), Sentences([rounding], quiet=True)),
            protects=_markup(sections.guarantee_sentences(plan, released=True)),
            provenance=_markup(Facts(provenance_facts(plan, release))),
            left_out=shelf.left_out,
        )
    )


def _markup(*blocks: DescriptionBlock) -> Markup:
    """Blocks as the page has them."""
    return Markup(page_html(Description("", blocks).blocks))
