"""The folder that `sfumato publish` writes: pages and data for any web server, which load nothing from elsewhere.

Tables are small files for a browser, with what it takes to know how any two sums of cells err together. Cells of tables
that rest on residuals, or on agreement alone, have covariances in closed form [XZK23]: those of the tables A and B are

    sum over sets S of attributes within both of u_S · (⊗_S M ⊗_rest t tᵀ),

where an attribute that only one table holds meets its t. One number u_S for every set says it for all tables together;
M is I - J/n and t is 1/n, but for attributes whose residuals are tilted: these have a file of their own. Other tables
of few cells carry their matrix; of the rest single cells are told alone.
"""

from __future__ import annotations

import gzip
import itertools
import json
import math
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import resources
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from sfumato._util.catalogue import page_language, page_locale, read_catalogue, say_note, say_text, say_words, speak
from sfumato._util.description import Description, DescriptionBlock, Facts, Sentences, Warnings, page_html
from sfumato._util.frames import Frame, safe_text
from sfumato.domain import Domain
from sfumato.errors import NotAnswerable, PlanError
from sfumato.operators import Block, Identity
from sfumato.operators.base import FloatArray
from sfumato.plans.predictions import expand_to_queries, widest_sum_margin
from sfumato.present import charts, sections
from sfumato.present.page import asset_text, glance_tables, template_environment
from sfumato.present.words import CONFIDENCE, numeric_names, provenance_facts, small_groupings
from sfumato.releases import Release
from sfumato.releases.comparing import check_comparable
from sfumato.releases.ends import answer_range, shown_cells, shown_places
from sfumato.releases.files import Draft
from sfumato.releases.methods import method_description
from sfumato.releases.publication import Publication
from sfumato.releases.reliability import read_reliability
from sfumato.releases.warnings import reader_lines
from sfumato.strategies.residuals import Residuals
from sfumato.workloads import RECORDS, QueryBlock, Workload
from sfumato.workloads.levels import table_block, table_names

# The smallest tables, so many cells together, as they are: 8 bytes each, of which one is noise that compresses to none.
_EXACT = 150_000
# Larger ones to a 256th of their standard errors, or less: that adds a millionth to their variance.
_STEPS = 8
_MOST_CELLS = 20_000_000  # in one site: some 40 MB
_DENSE = 200  # cells of a table that carries its matrix: 160 kB
_LISTED = 120  # named queries that carry their matrix together
_TILTED = 300  # cells of an attribute with residuals of its own: its file has the square of that, 720 kB
_AGREE = 1e-9  # rounding of a sum of some dozens of covariances; what is told otherwise differs by far more


@dataclass(slots=True)
class Shelf:
    """What a page must know of the tables before it loads one: their names, and how they err together."""

    tables: list[dict[str, Any]] = field(default_factory=list)
    agree: dict[str, float] = field(default_factory=dict)
    tilts: dict[str, str] = field(default_factory=dict)
    left_out: int = 0


def tables_to_publish(release: Release) -> list[tuple[str, ...]]:
    """The names of every marginal table that was asked for, each once, the smallest first."""
    domain = release.plan.workload.domain
    names: dict[tuple[str, ...], None] = {}
    for item in release.workload.items:
        for query in item.blocks():
            found = table_names(domain, query.block)
            if found and item.unit == RECORDS:
                names.setdefault(found)
    return sorted(names, key=lambda n: (math.prod(domain.sizes(n)), len(n), n))


def write_tables(release: Release, folder: Path, start: int = 0) -> Shelf:
    """Write one file for every table that was asked for, and one for what was asked besides."""
    shelf, domain = Shelf(), release.plan.workload.domain
    folder.mkdir(exist_ok=True)
    written = 0
    for names in tables_to_publish(release):
        cells = math.prod(domain.sizes(names))
        if written + cells > _MOST_CELLS:
            shelf.left_out += 1
            continue
        written += cells
        place = f"{folder.name}/{start + len(shelf.tables)}.bin"
        entry = _write_table(release, names, folder.parent / place, exact=written <= _EXACT, shelf=shelf)
        if entry is None:
            shelf.left_out += 1
        else:
            shelf.tables.append(entry | {"file": place})
    named = list(_named_queries(release))
    if named:
        place = f"{folder.name}/named.bin"
        shelf.tables.append(_write_named(release, named, folder.parent / place) | {"file": place})
    return shelf


def _write_table(
    release: Release, names: tuple[str, ...], path: Path, *, exact: bool, shelf: Shelf
) -> dict[str, Any] | None:
    """One table; None where its errors are not known."""
    block = table_block(release.plan.workload.domain, names)
    error, margin = np.sqrt(release.variances(block)), release.margins(block, 0.95)
    if not np.isfinite(error).all():
        return None
    parts = _published_values(release, block, None if exact else float(error.max(initial=0.0)))
    source, how = _noise_source(release, block), "single"
    if _in_closed_form(release, names, block, shelf, source, path.parent):
        how = "agree"
    elif block.rows <= _DENSE:
        how = "dense"
        matrix = release.plan.covariance(names)
        parts["covariance"] = matrix[np.triu_indices(len(matrix))]
    least, most = answer_range(block.operator, release.measurement.total)
    shape = list(error.shape) or [1]
    _pack_arrays(
        path, parts | {"error": error, "margin": margin}, {"shape": shape, "range": [least, _finite_or_null(most)]}
    )
    return {"names": list(names), "how": how, "source": source}


def _published_values(release: Release, block: Block, error: float | None) -> dict[str, Any]:
    """Answers, and the unprojected ones; rounded where the largest standard error is given."""
    found = {"value": release.answer_block(block)}
    if release.projection is not None:
        found["raw"] = release.raw.answer_block(block)
    if not error:
        return found
    step = 2.0 ** (math.floor(math.log2(error)) - _STEPS)
    if max(float(np.abs(v).max(initial=0.0)) for v in found.values()) / step >= 2**31:
        return found
    return {name: (np.rint(v / step).astype("<i4"), step) for name, v in found.items()}


def _noise_source(release: Release, block: Block) -> str:
    """What answers a block: the noise of two sources is independent."""
    strategy = release.plan.strategy
    found = strategy.source(block)
    pieces = getattr(strategy, "pieces", ())
    return str(next((i for i, piece in enumerate(pieces) if piece is found), 0))


def _in_closed_form(
    release: Release, names: tuple[str, ...], block: Block, shelf: Shelf, source: str, folder: Path
) -> bool:
    """Whether the numbers u_S say the covariances of a table; new ones are noted, and tilts written."""
    if not all(isinstance(f, Identity) for f in block.factors):
        return False
    strategy, variance = release.plan.strategy.source(block), release.measurement.noise.variance
    if not isinstance(strategy, Residuals):
        found = release.plan.strategy.table_covariance(block, block)
        return found is not None and _covariances_follow(names, release, found * variance, shelf.agree, source)
    places = {n: i for i, n in enumerate(strategy.names)}
    lifts = {n: strategy.lifts[places[n]] for n in names}
    if any(lift is not None and len(lift.tilt) > _TILTED for lift in lifts.values()):
        return False
    for name, lift in lifts.items():
        key = _attribute_set_key(source, [name])
        if lift is not None and key not in shelf.tilts:
            shelf.tilts[key] = f"{folder.name}/tilt-{len(shelf.tilts)}.bin"
            parts = {"tilt": lift.tilt, "form": lift.spread @ lift.spread.T}
            _pack_arrays(folder.parent / shelf.tilts[key], parts, {"shape": [len(lift.tilt)], "range": [None, None]})
    for size in range(len(names) + 1):
        for chosen in itertools.combinations(names, size):
            axes = tuple(sorted(places[n] for n in chosen))
            shelf.agree[_attribute_set_key(source, chosen)] = strategy.set_variance(axes) * variance
    return True


def _attribute_set_key(source: str, names: Sequence[str]) -> str:
    """How a page calls a set of attributes."""
    return json.dumps([source, *sorted(names)], separators=(",", ":"), ensure_ascii=False)


def _covariances_follow(
    names: Sequence[str], release: Release, patterns: FloatArray, agree: dict[str, float], source: str
) -> bool:
    """Whether the numbers of the sets of attributes say the covariances of a table; new ones are noted."""
    sizes = release.plan.workload.domain.sizes(names)
    new: dict[str, float] = {}
    for chosen in itertools.product((False, True), repeat=len(names)):
        value = patterns
        for axis, (inside, size) in enumerate(zip(chosen, sizes, strict=True)):
            same = value.take([0], axis=axis)
            different = value.take([1], axis=axis) if value.shape[axis] > 1 else np.zeros_like(same)
            # what the attribute's differences err, or its sum
            value = same - different if inside else same + (size - 1) * different
        rest = math.prod(n for n, inside in zip(sizes, chosen, strict=True) if not inside)
        key = _attribute_set_key(source, list(itertools.compress(names, chosen)))
        found = float(value.reshape(-1)[0]) * rest
        if any(inside and size == 1 for inside, size in zip(chosen, sizes, strict=True)):
            found = 0.0  # a single cell has no differences
        if abs(agree.get(key, found) - found) > _AGREE * abs(found):
            return False
        new[key] = found
    agree.update(new)
    return True


def _named_queries(release: Release) -> Iterator[QueryBlock]:
    """What was asked besides tables and long lists: named counts, sums, the total."""
    domain = release.plan.workload.domain
    rows, total = 0, False
    for item in release.workload.items:
        if not isinstance(item, QueryBlock) or (item.unit == RECORDS and table_names(domain, item.block)):
            continue
        if item.rows == 1 and rows < _LISTED and release.plan.strategy.deviations(item.block) is None:
            if not item.attributes and item.unit == RECORDS:
                if total:  # the same number asked twice
                    continue
                total = True
            rows += 1
            yield item


def _write_named(release: Release, queries: Sequence[QueryBlock], path: Path) -> dict[str, Any]:
    work = Workload(release.plan.workload.domain, tuple(queries))
    found = release.ask(work)
    error = np.concatenate([expand_to_queries(np.sqrt(release.variances(q.block)), q) for q in queries])
    margin = np.concatenate([expand_to_queries(release.margins(q.block, 0.95), q) for q in queries])
    if not np.isfinite(error).all():
        raise NotAnswerable("named queries beyond what was measured have no errors to publish")
    matrix = release.plan.covariance(work)
    parts = {"value": np.array(found["answer"]), "covariance": matrix[np.triu_indices(len(matrix))]}
    if release.projection is not None:
        parts["raw"] = np.concatenate([release.raw.answer_block(q.block) for q in queries])
    parts |= {"error": error, "margin": margin, "low": np.array(found["low"]), "high": np.array(found["high"])}
    _pack_arrays(path, parts, {"shape": [len(queries)], "range": [None, None]})
    labels, units = list(found["label"]), [q.unit for q in queries]
    return {"queries": labels, "units": units, "names": [], "how": "dense", "source": "named"}


def _finite_or_null(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _pack_arrays(path: Path, parts: dict[str, Any], header: dict[str, Any]) -> None:
    """A line of JSON, then the arrays one after the other: doubles, or integers of a step by planes of bytes."""
    payload, told = b"", list[Any]()
    for name, part in parts.items():
        if isinstance(part, tuple):
            whole, step = part
            # the high bytes of neighbours are alike: apart from the noisy low ones they compress to nothing
            payload += np.ascontiguousarray(whole.reshape(-1, 1).view(np.uint8).T).tobytes()
            told.append([name, int(whole.size), step])
        else:
            flat = np.ascontiguousarray(part, dtype="<f8").reshape(-1)
            payload += flat.tobytes()
            told.append([name, int(flat.size), 0])
    head = json.dumps(header | {"parts": told}, separators=(",", ":"), allow_nan=False).encode() + b"\n"
    path.write_bytes(gzip.compress(head + payload, compresslevel=6, mtime=0))


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
    found = {str(i): [_seven_figures(v) for v in column] for i, column in enumerate(frame.columns.values())}
    return found | ({str(len(found) - 1): [*map(say_note, frame["note"])]} if "note" in frame.columns else {})


def _seven_figures(value: Any) -> Any:
    """Seven figures: more than an interval has, and small files."""
    return float(f"{value:.7g}") if isinstance(value, float) else value


_QUOTED = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_CONFIDENCES = (0.8, 0.9, 0.95, 0.99)  # what readers choose from
_MOST_RANKED = 200  # cells that are ranked, every one against every other
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; img-src 'self' data:"
)


def publish(
    release: Release,
    folder: str | PathLike[str],
    *,
    earlier: Release | None = None,
    publication: Publication | None = None,
) -> Path:
    """Write a static site about a release to a new folder, for any web server to host, and return its path.

    Tables are small files that the page loads when they are asked for; the calculator computes shares, ratios,
    differences and ranks from them in the browser, by the arithmetic of `Answer`. The 150,000 cells of the smallest
    tables are exact, those of larger ones are rounded to a 256th of their standard error. With an `earlier` release
    of the same queries, changes and growth are told too. A `publication` says title, institution, labels, marks and the
    language. It costs nothing. Raises PlanError for what has no known errors and for a label of what is not declared,
    InvalidInput for a folder that is neither new or empty nor the site of that very release.

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
    told = publication or Publication()
    told.check_names(release.plan.workload.domain)
    of = [r.result_hash for r in (release, *(() if earlier is None else (earlier,)))]
    of += [] if publication is None else [told.fingerprint()]
    with suppress(AttributeError, OSError, TypeError, ValueError):
        # it appeared at once and complete, and whoever wrote it ended before it could say so
        if json.loads((Path(folder) / "site.json").read_text(encoding="utf-8")).get("of") == of:
            return Path(folder)
    with Draft(folder) as draft, speak(told.language, told.called()):
        _write_site(release, earlier, draft.partial, of, told)
        if hasattr(os, "sync"):
            os.sync()  # its files are many, and free to write again
        draft.publish()
    return draft.folder


def _write_site(release: Release, earlier: Release | None, folder: Path, of: list[str], told: Publication) -> None:
    shelves = [(release, write_tables(release, folder / "tables"))]
    if earlier is not None:
        shelves.append((earlier, write_tables(earlier, folder / "earlier")))
    own = resources.files("sfumato.publishing")
    for name in ("calc.js", "app.js"):
        lines = (own / name).read_text(encoding="utf-8").splitlines(keepends=True)
        _write_site_text(folder / name, "".join(line.lstrip(" ") for line in lines))  # a phone loads no indentation
    _write_site_text(folder / "style.css", asset_text("style.css") + (own / "style.css").read_text(encoding="utf-8"))
    for name, text in (("charts.js", "vendor/vega-bundle.js"), ("LICENSES.txt", "vendor/LICENSES.txt")):
        _write_site_text(folder / name, asset_text(text))
    facts = _site_facts(shelves, told) | {"of": of, "curves": write_curves(release, folder / "curves")}
    _write_site_text(
        folder / "site.json", json.dumps(facts, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    )
    _write_site_text(folder / "index.html", _site_page(release, earlier, shelves[0][1], told))


def _write_site_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")  # the folder appears at once and complete


def _script_words() -> dict[str, str]:
    """The texts of the page's program in the language that is spoken, by the English ones."""
    program = (resources.files("sfumato.publishing") / "app.js").read_text(encoding="utf-8")
    program += (resources.files("sfumato.publishing") / "calc.js").read_text(encoding="utf-8")
    known = read_catalogue(page_language()).words
    return {text: known[text] for text in script_texts(program) if text in known}


def script_texts(program: str) -> list[str]:
    """Every text between quotes that a program may say: those given to `say`, and reasons for which it refuses."""
    return list(dict.fromkeys(json.loads(f'"{t}"') for t in _QUOTED.findall(program)))


def _site_facts(shelves: list[tuple[Release, Shelf]], told: Publication) -> dict[str, Any]:
    """What the page reads first."""
    release = shelves[0][0]
    domain = release.plan.workload.domain
    used = sorted({n for _, shelf in shelves for t in shelf.tables for n in t["names"]})
    laws = {r.measurement.noise for r, _ in shelves}
    widest = {str(c): max(widest_sum_margin(c, law) for law in laws) for c in _CONFIDENCES}
    others = sorted({domain[n].size - 1 for n in used if 1 < domain[n].size <= _MOST_RANKED})
    return {
        "format": "sfumato site 1",
        "language": told.language,
        "source": told.source_line(release),
        "locale": page_locale(),
        "words": _script_words(),
        "flags": [list(c) for c in read_reliability(told.flags).classes],
        "attributes": {n: _attribute_facts(domain, n, told) for n in used},
        "releases": [
            {"name": r.provenance.name, "tables": shelf.tables, "agree": shelf.agree, "tilts": shelf.tilts}
            for r, shelf in shelves
        ],
        "multipliers": widest,
        # all comparisons of a cell hold together: the union bound
        "together": {str(m): max(widest_sum_margin(1 - 0.05 / m, law) for law in laws) for m in others},
        "config": charts.CONFIG,
    }


def _attribute_facts(domain: Domain, name: str, told: Publication) -> dict[str, Any]:
    """How an attribute is called, and its cells."""
    found: dict[str, Any] = {"labels": shown_cells(domain, name), "ordered": domain[name].ordered}
    places = shown_places(domain, [name])
    if places != sorted(places):
        found["places"] = np.argsort(places).tolist()  # of each cell, where readers see it
    return found if told.heading(name) == name else found | {"heading": told.heading(name)}


def _site_page(release: Release, earlier: Release | None, shelf: Shelf, told: Publication) -> str:
    plan, projected = release.plan, release.projection is not None
    glance = glance_tables(release, told)
    reading = sections.reading_advice(plan, projected=projected)
    rounding = say_words(
        "Cells of large tables are rounded here to less than a two-hundredth of their standard error; the release's "
        "own files are exact."
    )
    rule = read_reliability(told.flags)
    return (
        template_environment("sfumato.publishing")
        .get_template("page.html")
        .render(
            policy=POLICY,
            title=safe_text(told.text("title") or release.provenance.name),
            language=told.language,
            subtitle=safe_text(told.text("subtitle")),
            about=told.facts(),
            rule=rule.statement() if rule.classes else "",
            earlier="" if earlier is None else safe_text(earlier.provenance.name),
            lead=sections.lead_sentences(plan, len(release.workload), released=True, projected=projected),
            warnings=_markup(Warnings([say_text(text) for text in reader_lines(release)])),
            glance=_markup(*glance or [Sentences([say_words("This release holds tables; choose one below.")])]),
            read=_markup(replace(reading, title=""), Sentences([rounding], quiet=True)),
            protects=_markup(sections.guarantee_sentences(plan, released=True)),
            method=_markup(*method_description(release).blocks),
            provenance=_markup(Facts(provenance_facts(plan, release))),
            left_out=shelf.left_out,
        )
    )


def _markup(*blocks: DescriptionBlock) -> Markup:
    """Blocks as the page has them."""
    return Markup(page_html(Description("", blocks).blocks))
