"""The cross-tables of a page: pairs that were asked for, in rows and columns with per cents."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from sfumato._util.catalogue import say_words, speak
from sfumato._util.description import Description, DescriptionBlock, Sentences, TitledTable
from sfumato._util.documents import write_atomically
from sfumato._util.frames import optional_package
from sfumato.errors import InvalidInput, NotAnswerable, PlanError
from sfumato.present.answers import CONFIDENCE, asked_table_names
from sfumato.releases import Release
from sfumato.releases.crosstab import CrossTable
from sfumato.releases.ends import shown_cells, shown_places
from sfumato.releases.means import Means
from sfumato.releases.publication import Publication

_MOST = 4  # on a page: each is two tables of a screen; the commands and the workbook have all
_ROWS, _COLUMNS = 24, 7  # that stand side by side with their intervals on a sheet of paper


def page_crosstabs(release: Release, publication: Publication) -> Iterator[CrossTable]:
    """The first cross-tables of pairs that were asked for, the larger attribute down, in the publication's words."""
    domain, found = release.plan.workload.domain, 0
    for names in dict.fromkeys(asked_table_names(release)):
        sizes = domain.sizes(names)
        if len(names) != 2 or max(sizes) > _ROWS or min(sizes) > _COLUMNS or found == _MOST:
            continue
        down, across = sorted(names, key=lambda n: -domain[n].size)
        found += 1
        yield labelled_crosstab(release, (down,), (across,), publication)


def labelled_crosstab(
    release: Release, down: tuple[str, ...], across: tuple[str, ...], publication: Publication, per: str | None = "row"
) -> CrossTable:
    """A cross-table with an office's marks and labels; without per cents where answers have a bias."""
    table = release.table(*down, *across, confidence=CONFIDENCE)
    flags = publication.flags
    try:
        made = table.crosstab(down, across, per=per, flags=flags)
    except NotAnswerable:
        made = table.crosstab(down, across, per=None, flags=flags)
    return made.labelled(publication)


def crosstab_section(release: Release, publication: Publication) -> list[Description]:
    """The section on cross-tables; nothing where no pair fits a page."""
    shown = [made.describe() for made in page_crosstabs(release, publication)]
    if not shown:
        return []
    said = say_words(
        "Totals are answers of the smaller tables. A per cent is the ratio of two answers that err together; its "
        "interval reckons with that."
    )
    rules = list(dict.fromkeys(t for d in shown for b in d.blocks if isinstance(b, Sentences) for t in b.texts))
    tables: list[DescriptionBlock] = [b for d in shown for b in d.blocks if isinstance(b, TitledTable)]
    heading = say_words("Cross-tables")
    return [Description(heading, [Sentences([said]), *tables, Sentences(rules, quiet=True)], "crosstabs", heading)]


_CHARTS = (".svg", ".png", ".pdf")
_SHARP = 2  # pixels of a picture for one of the chart, as screens have them and paper at 150 dots an inch


def print_chart(
    release: Release,
    names: tuple[str, ...],
    publication: Publication,
    *,
    title: str | None = None,
    per: str | None = None,
    mean: str | None = None,
) -> Any:
    """An Altair chart of a table over one to three attributes, or of means by them, in the publication's words.

    It has the publication's source line.
    """
    said = publication.text("title") if title is None else title
    source, flags = publication.source_line(release), publication.flags
    if mean is not None:
        if per is not None:
            raise PlanError("per cents are of counts, not of means; ask for one of both")
        return _named_means(release, names, publication, mean).plot(title=said, source=source, flags=flags)
    if len(names) == 1:
        if per is not None:
            raise PlanError("per cents are drawn of two or three attributes; name another one")
        table = release.table(*names, confidence=CONFIDENCE)
        places, told = _told_places(release, names, publication), table.labelled(publication)
        shown = replace(
            told,
            labels=(tuple(told.labels[0][i] for i in places),),
            values=told.values[places],
            standard_errors=table.noise_errors()[places],
            low=told.low[places],
            high=told.high[places],
        )
        return shown.plot(title=said, source=source, flags=flags)
    table = release.table(*names, confidence=CONFIDENCE)
    made = table.crosstab(names[:1], names[1:], per=per, flags=flags).labelled(publication)
    return made.plot(title=said, source=source, per=per is not None)


def _told_places(release: Release, names: tuple[str, ...], publication: Publication) -> list[int]:
    """The places of a table's cells in the order of the publication."""
    with speak(publication.language, publication.called()):
        return shown_places(release.plan.workload.domain, names)


def _named_means(release: Release, names: tuple[str, ...], publication: Publication, mean: str) -> Means:
    """Means with their groups in the publication's words."""
    found, domain = release.mean(mean, by=names, confidence=CONFIDENCE), release.plan.workload.domain
    errors = found if release.projection is None else release.raw.mean(mean, by=names, confidence=CONFIDENCE)
    with speak(publication.language, publication.called()):
        cells = list(itertools.product(*(shown_cells(domain, n) for n in names)))
        head = say_words("mean of {measure}", measure=publication.heading(mean))
    columns: dict[str, Any] = {publication.heading(n): [c[i] for c in cells] for i, n in enumerate(names)}
    numbers = list(found.columns.values())[len(names) :]
    columns[head] = numbers[0]
    columns |= {"standard_error": errors["standard_error"], "low": found["low"], "high": found["high"]}
    places = _told_places(release, names, publication)
    return Means({name: [values[i] for i in places] for name, values in columns.items()})


def save_chart(chart: Any, path: str | PathLike[str]) -> Path:
    """Write an Altair chart to a new .svg, .png or .pdf, without a browser (extra: charts)."""
    place = Path(path)
    if place.suffix.lower() not in _CHARTS:
        raise InvalidInput(f"a chart is written as {', '.join(_CHARTS)}, not as {place.name!r}")
    if place.exists():
        raise InvalidInput(f"{place} exists; choose another name, or remove it")
    optional_package("vl_convert", "charts")
    kind = place.suffix.lower()[1:]
    sharper = {"scale_factor": _SHARP} if kind == "png" else {}
    write_atomically(place, lambda partial: chart.save(str(partial), format=kind, **sharper))
    return place
