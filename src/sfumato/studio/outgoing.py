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
from dataclasses import replace
from pathlib import Path
from typing import Any

from sfumato._util.catalogue import known_languages, speak
from sfumato.errors import InvalidInput
from sfumato.present import write_report
from sfumato.present.crosstab import print_chart, save_chart
from sfumato.publishing import publish, write_formats
from sfumato.releases import Release
from sfumato.releases.publication import Publication, folder_publication, write_publication
from sfumato.releases.reliability import parse_flags
from sfumato.releasing import REPORT
from sfumato.studio.workspace import Workspace, checked_name

TEXTS = ("title", "subtitle", "institution", "contact", "period", "notes", "licence")
"""What a reader is told that is one text."""
_LONGEST = 20_000  # characters of the list of labels
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
    told = folder_publication(place) or Publication()
    flags = ", ".join(f"{mark}={share:g}" for mark, share in told.flags.items())
    labels = "\n".join(f"{name} = {told.heading(name)}" for name in dict.fromkeys((*told.labels, *told.units)))
    texts = {name: told.text(name) for name in TEXTS}
    return texts | {"language": told.language, "flags": flags, "labels": labels, "languages": list(known_languages())}


def keep_publication(release: Release, place: Path, given: object) -> dict[str, Any]:
    """Keep the fields of the page in a release's folder, with the report made anew. Raises SfumatoError.

    A text in several languages is replaced by the one typed only where the field was changed.
    """
    if not isinstance(given, Mapping) or not all(isinstance(v, str) for v in given.values()):
        raise InvalidInput("what readers are told are texts")
    before, shown = folder_publication(place) or Publication(), publication_fields(place)
    changed: dict[str, Any] = {n: given[n].strip() for n in (*TEXTS, "language") if given.get(n, shown[n]) != shown[n]}
    if (flags := given.get("flags", shown["flags"])) != shown["flags"]:
        changed["flags"] = parse_flags(flags) if flags.strip() else {}
    if (labels := given.get("labels", shown["labels"])) != shown["labels"]:
        if len(labels) > _LONGEST:
            raise InvalidInput(f"labels are at most {_LONGEST:,} characters")
        pairs = [line.partition("=") for line in labels.splitlines() if line.strip()]
        changed |= {"labels": {name.strip(): text.strip() for name, _, text in pairs if text.strip()}, "units": {}}
    told = replace(before, **changed)
    told.check_names(release.plan.workload.domain)
    write_publication(told, place)
    write_report(release, place / REPORT, publication=told)
    return publication_fields(place)


def keep_projected(desk: Workspace, release: Release, name: str) -> str:
    """Put the projected release on the shelf, as NAME-projected, and say its name. Raises SfumatoError."""
    new = checked_name(f"{name}-projected")
    place = desk.place(new)
    if not place.exists():
        release.project().save(place)
        told = folder_publication(desk.stored(name))
        if told is not None:
            write_publication(told, place)
        write_report(desk.release(new), place / REPORT, publication=told)
    return new


def outgoing_file(release: Release, place: Path, what: str, names: tuple[str, ...]) -> bytes:
    """One of `KINDS` as bytes. Raises SfumatoError."""
    told = folder_publication(place) or Publication()
    if what == "records.csv":
        return _written(lambda folder: release.synthetic().save(folder / what), what)
    if what.startswith("chart."):

        def draw(folder: Path) -> None:
            with speak(told.language, told.called()):
                save_chart(print_chart(release, names, told), folder / what)

        return _written(draw, what)
    if what == "site.zip":
        return _zipped(lambda folder: publish(release, folder / "site", publication=told))
    return _zipped(lambda folder: write_formats(release, folder / "files", publication=told))


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


def job_text(desk: Workspace) -> str:
    """A job file that does each month what was done here; it lies beside the spec."""
    spec, ledger = desk.places.spec, desk.places.ledger
    same = ledger.parent == spec.parent
    return f"""\
# sfumato run office.toml releases, projects and publishes this table each month. Keep it beside {spec.name}.

[job]
ledger = {_toml_string(ledger.name if same else ledger.as_posix())}
out = "published"
every = "month"

[[tables]]
name = "{"".join(c if c.isalnum() or c in "-_" else "-" for c in spec.stem).strip("-_") or "table"}"
spec = {_toml_string(spec.name)}
# source = "table-{{period}}.csv"    # where the table of the month is, if the spec's own is another
project = false
formats = ["csvw", "px", "xlsx"]
"""


def _toml_string(text: str) -> str:
    """A text as TOML writes it, whose escapes are those of JSON."""
    return json.dumps(text, ensure_ascii=False)
