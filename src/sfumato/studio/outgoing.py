"""What leaves the page: a release with its title and marks as a site, files, a chart, records; a monthly job.

All of it follows from the release and costs nothing. Titles and marks are kept in the release's folder, as the commands
keep them.
"""

from __future__ import annotations

import io
import json
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from sfumato._util.catalogue import known_languages, speak
from sfumato.domain import Domain
from sfumato.domain.core import is_year
from sfumato.errors import InvalidInput, NotAnswerable, PlanError, SfumatoError
from sfumato.present import write_report
from sfumato.present.answers import asked_table_names
from sfumato.present.crosstab import print_chart, save_chart
from sfumato.present.words import numeric_names
from sfumato.publishing import publish, write_formats
from sfumato.releases import Release
from sfumato.releases.measure_tables import asked_measures
from sfumato.releases.publication import (
    Publication,
    Text,
    folder_publication,
    publication_from_root,
    write_publication,
)
from sfumato.releases.reliability import parse_flags
from sfumato.releasing import REPORT
from sfumato.studio import drafts
from sfumato.studio.workspace import Workspace, checked_name
from sfumato.workloads.reading import parse_toml

TEXTS = ("title", "subtitle", "institution", "contact", "period", "notes", "licence")
"""What a reader is told that is one text."""
_PROJECTED = "-projected"  # behind the name of a release, on the shelf
_LONGEST = 20_000  # characters of the list of labels
_CHART_AXES = 3  # attributes that a chart shows
KINDS = {
    "site.zip": "application/zip",
    "files.zip": "application/zip",
    "records.csv": "text/csv; charset=utf-8",
    "chart.svg": "image/svg+xml",
    "chart.png": "image/png",
    "chart.pdf": "application/pdf",
}
"""What is handed out of a release here, with its type."""


def publication_fields(place: Path) -> dict[str, Any]:
    """The publication of a release's folder as the page's fields have it."""
    kept = folder_publication(place)
    told = kept or Publication()
    # a share above 1 is typed as per cent alone
    flags = ", ".join(f"{m}={s:g}" if s <= 1 else f"{m}={100 * s:g} %" for m, s in told.flags.items())
    labels = [f"{name} = {told.heading(name)}" for name in dict.fromkeys((*told.labels, *told.units))]
    labels += [f"{n}.{cell} = {text}" for n in told.categories for cell, text in told.category_texts(n).items()]
    texts = {name: told.text(name) for name in TEXTS}
    return texts | {
        "kept": kept is not None,
        "language": told.language,
        "flags": flags,
        "labels": "\n".join(labels),
        "languages": list(known_languages()),
    }


def keep_publication(desk: Workspace, release: Release, place: Path, given: object) -> dict[str, Any]:
    """Keep the page's fields in a release's folder, with the report made anew, and in the spec. Raises SfumatoError.

    What was typed replaces the text of the page's language; texts in other languages stay.
    """
    if not isinstance(given, Mapping) or not all(isinstance(v, str) for v in given.values()):
        raise InvalidInput("what readers are told are texts")
    before, shown = folder_publication(place) or Publication(), publication_fields(place)
    spoken = given.get("language", before.language).strip()
    changed: dict[str, Any] = {"language": spoken}
    for name in TEXTS:
        typed = given.get(name, shown[name]).strip()
        if typed != shown[name]:
            changed[name] = _retold(getattr(before, name), typed, before.language, spoken)
    if (flags := given.get("flags", shown["flags"])) != shown["flags"]:
        changed["flags"] = parse_flags(flags) if flags.strip() else {}
    if (labels := given.get("labels", shown["labels"])) != shown["labels"]:
        if len(labels) > _LONGEST:
            raise InvalidInput(f"labels are at most {_LONGEST:,} characters")
        changed |= _changed_labels(before, shown["labels"], labels, spoken, release.plan.workload.domain)
    told = replace(before, **changed)
    told.check_names(release.plan.workload.domain)
    write_publication(told, place)
    write_report(release, place / REPORT, publication=told)
    try:
        note = _keep_in_spec(desk, told)
    except SfumatoError as error:
        note = f"The spec keeps what it had: {desk.said(error)}"
    return publication_fields(place) | {"spec": note}


_FEW = 30  # cells of an attribute whose lines a page offers


def labelled_cells(release: Release) -> list[str]:
    """What stands before = in lines that call cells something, of attributes with few of them."""
    domain = release.plan.workload.domain
    few = (n for n in domain.dimensions if domain[n].size <= _FEW and n not in domain.measures)
    return [f"{name}.{label}" for name in few for label in domain[name].labels]


def _retold(old: Text, typed: str, was: str, now: str) -> Text:
    """A text, or one by language, with what was typed for one language."""
    if isinstance(old, str):
        return typed if was == now or not old or not typed else {was: old, now: typed}
    if not typed and now not in old:
        return ""  # what stood in the field was another language's, and was taken out
    return {k: v for k, v in old.items() if k != now} | ({now: typed} if typed else {}) or ""


_Labelled = tuple[str, str | None]
"""An attribute, and which of its cells, or None for itself."""


def _parse_labels(text: str, domain: Domain) -> dict[_Labelled, str]:
    """Lines such as "sex = Geschlecht" and "sex.f = Frauen"."""
    found: dict[_Labelled, str] = {}
    for line in text.splitlines():
        name, _, said = (part.strip() for part in line.partition(" = " if " = " in line else "="))
        if name and said:
            found[_labelled_place(name, domain)] = said
    return found


def _labelled_place(name: str, domain: Domain) -> _Labelled:
    if name in domain:
        return name, None
    cuts = [(name[:i], name[i + 1 :]) for i, mark in enumerate(name) if mark == "."]
    known = [(head, cell) for head, cell in cuts if head in domain]
    exact = [(head, cell) for head, cell in known if cell in domain[head].labels]
    return next(iter(exact or known), (name, None))


def _changed_labels(before: Publication, shown: str, given: str, spoken: str, domain: Domain) -> dict[str, Any]:
    """Labels, units and texts of cells after an edit of their lines: lines that stayed keep all their languages."""
    labels, units = dict(before.labels), dict(before.units)
    categories = {name: dict(cells) for name, cells in before.categories.items()}
    was, now = _parse_labels(shown, domain), _parse_labels(given, domain)
    for (name, cell), said in now.items():
        if was.get((name, cell)) == said:
            continue
        if cell is not None:
            cells = categories.setdefault(name, {})
            cells[cell] = _retold(cells.get(cell, ""), said, before.language, spoken)
            continue
        unit = replace(before, title=units.get(name, "")).text("title")
        if unit and said.endswith(f"({unit})"):
            said = said.removesuffix(f"({unit})").strip() or name
        else:
            units.pop(name, None)
        labels[name] = _retold(labels.get(name, ""), said, before.language, spoken)
    for name, cell in was.keys() - now.keys():
        if cell is None:
            labels.pop(name, None)
            units.pop(name, None)
        else:
            categories[name].pop(cell)
    return {"labels": labels, "units": units, "categories": {n: cells for n, cells in categories.items() if cells}}


def _keep_in_spec(desk: Workspace, told: Publication) -> str:
    """Write what readers are told into the spec, for the next release and the monthly job, and say so."""
    text = desk.text
    tables = drafts.spec_tables(text)
    publication = tables.get("publication", {})
    changes = [
        {"place": ["publication", name], "value": getattr(told, name) or None}
        for name in (*TEXTS, "language")
        if getattr(told, name) != publication.get(name, "")
    ]
    flags = {mark: {"number": repr(share)} for mark, share in told.flags.items()}
    changes.append({"place": ["publication", "flags"], "value": flags or None})
    for kind in ("schema", "measures"):
        for name in tables.get(kind, {}):
            words: dict[str, Any] = {"label": told.labels.get(name), "unit": told.units.get(name)}
            words["categories"] = told.categories.get(name)
            changes += [{"place": [kind, name, key], "value": value} for key, value in words.items()]

    def kept(written: str) -> None:
        found = publication_from_root(parse_toml(written))
        if found is None or any(getattr(found, n) != getattr(told, n) for n in (*TEXTS, "language", "flags")):
            raise InvalidInput("this cannot be written into it; write it in an editor")
        found.check_names(drafts.parse_spec(written, desk.places.spec).domain)

    desk.change(drafts.text_version(text), changes, ready=kept)
    return "The spec has it too, for the next release and the monthly job."


def keep_projected(desk: Workspace, release: Release, name: str) -> str:
    """Put the projected release on the shelf, as NAME-projected, and say its name. Raises SfumatoError."""
    new = checked_name(f"{name}{_PROJECTED}")
    place = desk.place(new)
    if not place.exists():
        release.project().save(place)
        told = folder_publication(desk.stored(name))
        if told is not None:
            write_publication(told, place)
        write_report(desk.release(new), place / REPORT, publication=told)
    return new


_TRIED = 60  # means of which it is tried whether they follow, each a few milliseconds


def drawable_means(release: Release) -> list[dict[str, Any]]:
    """Of what a chart can show means, with the attributes by which: measures as asked, numbers within asked tables."""
    domain = release.plan.workload.domain
    numbers = [n for n in numeric_names(release) if not is_year(domain, n)]
    asked = list(asked_measures(release))
    for names in asked_table_names(release):
        asked += [(n, tuple(other for other in names if other != n)) for n in names if n in numbers]
    found = list[dict[str, Any]]()
    for mean, by in [one for one in dict.fromkeys(asked) if 1 <= len(one[1]) <= _CHART_AXES][:_TRIED]:
        with suppress(NotAnswerable, PlanError):
            release.mean(mean, by=by)
            found.append({"mean": mean, "by": list(by)})
    return found


def outgoing_file(
    release: Release,
    place: Path,
    what: str,
    names: tuple[str, ...] = (),
    *,
    mean: str | None = None,
    leave_out: bool = False,
) -> bytes:
    """One of `KINDS` as bytes; a chart of counts by some attributes, or of means by them. Raises SfumatoError.

    With `leave_out` formats for other programs lack the numbers that are flagged "suppress".
    """
    told = folder_publication(place) or Publication()
    if what == "records.csv":
        return _written(lambda folder: release.synthetic().save(folder / what), what)
    if what.startswith("chart."):

        def draw(folder: Path) -> None:
            with speak(told.language, told.called()):
                save_chart(print_chart(release, names, told, mean=mean), folder / what)

        return _written(draw, what)
    if what == "site.zip":
        return _zipped(lambda folder: publish(release, folder / "site", publication=told))
    return _zipped(lambda folder: write_formats(release, folder / "files", publication=told, leave_out=leave_out))


def _written(write: Callable[[Path], object], name: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        return (Path(folder) / name).read_bytes()


def _zipped(write: Callable[[Path], object]) -> bytes:
    """A folder that is written, as one file."""
    packed = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(p for p in Path(folder).rglob("*") if p.is_file()):
                archive.write(path, path.relative_to(folder).as_posix())
    return packed.getvalue()


def job_text(desk: Workspace, name: str = "", *, leave_out: bool = False) -> str:
    """A job file that does each month what was done here with a release; the spec beside it has its words."""
    spec, ledger = desk.places.spec, desk.places.ledger
    same = ledger.parent == spec.parent
    told = publication_from_root(parse_toml(desk.text)) or Publication()
    spoken = [told.language, *(told.title if isinstance(told.title, Mapping) else ())]
    languages = [one for one in dict.fromkeys(spoken) if one in known_languages()]
    project = bool(name) and (name.endswith(_PROJECTED) or f"{name}{_PROJECTED}" in desk.shelf())
    return f"""\
# sfumato run office.toml releases, projects and publishes this table each month. Keep it beside {spec.name}, which has
# titles, flags and labels.

[job]
ledger = {_toml_string(ledger.name if same else ledger.as_posix())}
out = "published"
every = "month"

[[tables]]
name = "{"".join(c if c.isalnum() or c in "-_" else "-" for c in spec.stem).strip("-_") or "table"}"
spec = {_toml_string(spec.name)}
# source = "table-{{period}}.csv"    # where the table of the month is, if the spec's own is another
project = {str(project).lower()}
formats = ["csvw", "px", "xlsx"]
leave_out = {str(leave_out).lower()}
languages = [{", ".join(map(_toml_string, languages))}]
"""


def _toml_string(text: str) -> str:
    """A text as TOML writes it, whose escapes are those of JSON."""
    return json.dumps(text, ensure_ascii=False)
