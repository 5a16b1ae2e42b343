"""What is read off a release: tables, distributions, statistics, single answers, before and after a projection.

Everything is Python's own answer, rounded to what its error allows; nothing is computed in the browser.
"""

from __future__ import annotations

import itertools
import math
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from sfumato._util.description import Chart, Description, Facts, Figures, TitledTable, Warnings
from sfumato._util.frames import Frame, safe_text
from sfumato.errors import InvalidInput, NotAnswerable, SfumatoError
from sfumato.plans.planned import is_answered
from sfumato.plans.predictions import check_confidence
from sfumato.present import charts
from sfumato.present.answers import attribute_distribution, measures_table, singles_table, small_table
from sfumato.present.projected import moved_section
from sfumato.present.sections import errors_text, guarantee_equation, guarantee_sentences, reading_advice
from sfumato.present.words import predicted_families, round_to_error, show_figures
from sfumato.releases import ModelRelease, Release
from sfumato.releases.answers import Answer, LinearAnswer
from sfumato.releases.streams import StreamRelease
from sfumato.terminal import csv_text
from sfumato.workloads import predicates, total
from sfumato.workloads.levels import table_block

OPERATIONS = {
    "share": "A as a share of B",
    "ratio": "A divided by B",
    "difference": "A minus B",
    "growth": "growth from B to A",
    "sum": "A plus B",
}


@dataclass(frozen=True, slots=True)
class Result:
    """A number with its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class RankedCell:
    """A cell with its answer, and the places it can have from the largest on; all hold together."""

    cell: str
    value: float
    first: int
    last: int


def calculate(operation: str, one: tuple[Release, str], other: tuple[Release, str], confidence: float = 0.95) -> Result:
    """An operation on two answers: each a release and a condition, "" for all records.

    Raises InvalidInput, or NotAnswerable for what was not measured and where B cannot be told from 0.
    """
    if operation not in OPERATIONS:
        raise InvalidInput(f"there are {', '.join(OPERATIONS)}")
    level = check_confidence(confidence)
    a, b = _answer_condition(*one, level), _answer_condition(*other, level)
    if operation in ("difference", "sum"):
        found = a - b if operation == "difference" else a + b
        return Result(found.value, found.low, found.high)
    found = a / b
    numbers = (found.value, found.low, found.high)
    if operation == "growth":
        return Result(*(x - 1.0 for x in numbers))
    if operation == "share":  # a share of some records is no more than all of them, whatever the noise says
        return Result(*(min(1.0, max(0.0, x)) for x in numbers))
    return Result(*numbers)


def _answer_condition(release: Release, condition: str, level: float) -> Answer:
    """The unprojected answer to a condition, or the number of records."""
    domain = release.plan.workload.domain
    question = predicates(domain, [condition]) if condition.strip() else total(domain)
    return Answer.of(LinearAnswer(((1.0, release.raw, question.blocks[0].block),)), level)


def cell_ranks(release: Release, attribute: str, confidence: float = 0.95) -> list[RankedCell]:
    """The places of an attribute's cells by their counts, the largest first; all places hold together.

    From intervals that hold together: a cell is surely before another where its interval lies above the other's.
    """
    table = release.raw.table(attribute, confidence=confidence, simultaneous=True)
    values, low, high = (np.asarray(x, dtype=np.float64).reshape(-1) for x in (table.values, table.low, table.high))
    above = (low[None, :] > high[:, None]).sum(axis=1)
    below = (high[None, :] < low[:, None]).sum(axis=1)
    order: Sequence[int] = np.argsort(-values, kind="stable").tolist()
    cells = table.labels[0]
    return [RankedCell(cells[i], float(values[i]), int(above[i]) + 1, len(values) - int(below[i])) for i in order]


_ROWS = 400  # of a table on a page; the downloads have all
_DRAWN = 400  # bars of one attribute, and 72 of a pair: what an eye takes in
_DRAWN_PAIR, _GROUPS = 72, 8  # as in the report
_CHOSEN = 3  # attributes of a table that the page has fields for
_TRIED = 24  # attributes of which it is tried whether a distribution follows, each a millisecond or so
_POINTS = 4_096  # cells of an attribute that is tried
_ALONE, _PAIRED = 200, 24  # attributes of which tables are tried, and all tables of two
_TITLE = 48  # characters below a picture on a phone
_OFFERED = 500  # labels, while one types
_PROJECTED = 4_000_000  # answers; above, a projection takes minutes, which a page does not wait for
_NUMBERS = ("answer", "unprojected", "standard_error", "low", "high", "share", "quantile")

Json = dict[str, Any]


def readable_release(stored: Any) -> Release | None:
    """The release of one look that pages can read; of a stream the totals of its last period. None for others."""
    if isinstance(stored, StreamRelease):
        return stored.totals if stored.published else None
    return stored if isinstance(stored, Release) else None


def release_overview(stored: Any, name: str) -> Json:
    """What is said of a release at first, and what may be asked of it."""
    release = readable_release(stored)
    if release is None:
        told = stored if isinstance(stored, Description) else stored.describe()
        return {"name": name, "kind": "told", "note": _release_note(stored), "about": told.to_dict()}
    domain = release.plan.workload.domain
    attributes = [
        {"name": n, "shown": safe_text(n), "size": domain[n].size, "ordered": domain[n].ordered}
        | {"labels": list(domain[n].declared_labels[:_OFFERED]) if domain[n].intervals is None else []}
        | {"other": domain[n].has_other}
        for n in (*domain.dimensions, *domain.levels)
    ]
    _offer_questions(release, attributes)
    return {
        "name": name,
        "kind": "tables",
        "note": _release_note(stored),
        "about": _about_release(release).to_dict(),
        "attributes": attributes,
        "first": _first_choice(release, attributes),
        "operations": OPERATIONS,
        "projected": release.projection is not None,
        "projectable": len(release.workload) <= _PROJECTED and release.projection is None,
    }


def _about_release(release: Release) -> Description:
    """Reasons for doubt, key figures, what is promised, the facts of the release, and its single answers."""
    plan, told = release.plan, release.describe()
    figures = [
        ("Answers", f"{len(release.workload):,}", ""),
        ("Guarantee", guarantee_equation(plan), ""),
        ("Protects", plan.unit.describe(), ""),
        ("Made", release.provenance.created[:10], ""),
    ]
    reads = reading_advice(plan, projected=release.projection is not None)
    promise = [guarantee_sentences(plan, released=True), reads, *(b for b in told.blocks if isinstance(b, Facts))]
    blocks = [
        *(b for b in told.blocks if isinstance(b, Warnings)),
        Figures(figures),
        Description("What is promised, and how to read an answer", promise),
        *measures_table(release),
        *singles_table(release),
    ]
    return Description(told.headline, blocks)


def _offer_questions(release: Release, attributes: list[Json]) -> None:
    """Say of every attribute what can be answered of it: its table, its distribution, and tables with others.

    `beside` lists the others; it is None where there are too many attributes to try all pairs, and all are offered.
    """
    names = [a["name"] for a in attributes]
    tried = len(names) <= _PAIRED
    for i, one in enumerate(attributes):
        one["table"] = _is_table_answered(release, (one["name"],)) if i < _ALONE else True
        # to try more numbers, or longer ones, would take longer than a page may: a refusal says what is missing
        long = i >= _TRIED or one["size"] > _POINTS
        one["distribution"] = one["ordered"] and (one["table"] if long else _has_distribution(release, one["name"]))
        one["beside"] = [] if tried else None
    for one, other in itertools.combinations(attributes, 2) if tried else ():
        if _is_table_answered(release, (one["name"], other["name"])):
            one["beside"].append(other["name"])
            other["beside"].append(one["name"])


def _is_table_answered(release: Release, names: tuple[str, ...]) -> bool:
    """Whether the table over some attributes follows from what was measured."""
    domain = release.plan.workload.domain
    if len({domain.owner(n) for n in names}) < len(names):
        return False
    return is_answered(release.plan.strategy, table_block(domain, names))


def _first_choice(release: Release, attributes: list[Json]) -> Json:
    """What is shown before anybody chose: a table that was asked for, and a number whose distribution is known."""
    asked = (t.attributes for t in predicted_families(release.plan, release.part))
    table = next((names for names in asked if 0 < len(names) <= _CHOSEN), ())
    numbers = (a["name"] for a in attributes[:_TRIED] if a["distribution"])
    return {"table": list(table), "of": next(numbers, None)}


def _has_distribution(release: Release, name: str) -> bool:
    try:
        release.cdf(name)
    except SfumatoError:
        return False
    return True


def _release_note(stored: Any) -> str:
    if isinstance(stored, StreamRelease):
        if not stored.periods:
            return "A stream without a period so far. Its totals are read here once the first is added."
        return f"A stream: these are its totals up to {safe_text(stored.periods[-1])}."
    if isinstance(stored, ModelRelease):
        return (
            "These are answers of a model, without standard errors or intervals: sfumato show and sfumato ask read "
            "them. Charts, the calculator and projections need errors, and do not apply."
        )
    if isinstance(stored, Description):
        return "A session, which was paid for when it was opened; what follows is how it stands."
    return "" if isinstance(stored, Release) else "What this page can do does not apply to it; it is told in words."


def _read_chosen_names(release: Release, given: object, most: int) -> tuple[str, ...]:
    domain = release.plan.workload.domain
    if not isinstance(given, list) or len(given) > most or not all(isinstance(n, str) for n in given):
        raise InvalidInput(f"name at most {most} attributes")
    known = {*domain.dimensions, *domain.levels}
    if strange := [n for n in given if n not in known]:
        raise InvalidInput(f"no attribute is called {strange[0][:80]!r}")
    return tuple(given)


def table_for_page(release: Release, given: object) -> Description:
    """A marginal table: the first rows in words, and a chart where it has one or two attributes and few cells."""
    names = _read_chosen_names(release, given, 6)
    if not names:
        raise InvalidInput("choose at least one attribute")
    table = release.table(*names)
    shape = table.values.shape
    errors = table.standard_errors
    spec: Json | None = None
    few = table.values.size <= (_DRAWN if len(names) == 1 else _DRAWN_PAIR)
    if len(names) == 1 and few:
        spec = charts.table_chart(small_table(release, table, asked=True))
    elif len(names) == 2 and few and min(shape) <= _GROUPS:
        # the longer attribute runs down the chart
        turned = table if shape[0] >= shape[1] else release.table(*reversed(names))
        spec = charts.table_chart(small_table(release, turned, asked=True))
    rows: list[list[str]] = []
    for place in itertools.islice(np.ndindex(*shape), _ROWS):
        error = math.nan if errors is None else float(errors[place])
        cells = [table.labels[i][j] for i, j in enumerate(place)]
        width = float(table.high[place]) - float(table.low[place])
        scale = error if math.isfinite(error) else width / 4
        numbers = [round_to_error(float(x[place]), scale) for x in (table.values, table.low, table.high)]
        rows.append([*cells, *numbers, show_figures(error)])
    columns = ["answer", "from", "to", "standard error"]
    return _shown([*names, *columns], rows, columns, table.values.size, spec)


def _shown(
    columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[str], count: int, spec: Json | None = None
) -> Description:
    """The first rows in words, below a chart where there is one."""
    # attributes come first, and one may be called like a column of ours
    named = [safe_text(f"{c} (attribute)" if c in columns[i + 1 :] else c) for i, c in enumerate(columns)]
    frame = Frame({name: [safe_text(row[i]) for row in rows] for i, name in enumerate(named)})
    title = f"The first {len(rows):,} of {count:,}; the files have all" if count > len(rows) else ""
    drawing = [] if spec is None else [Chart("shown", "", "", spec)]
    return Description("", [*drawing, TitledTable(title, frame, numbers)])


def statistic_for_page(release: Release, what: object, attribute: object, by: object, at: object = None) -> Description:
    """Quantiles, means, shares or the distribution of an attribute within groups."""
    (name,), groups = _read_chosen_names(release, [attribute], 1), _read_chosen_names(release, by, 3)
    spec: Json | None = None
    if what == "quantiles":
        if not isinstance(at, list) or not 0 < len(at) <= 99 or not all(isinstance(p, (int, float)) for p in at):
            raise InvalidInput("quantiles are asked at numbers between 0 and 1, such as 0.1, 0.5, 0.9")
        frame = release.quantiles(name, [float(p) for p in at], by=groups)
    elif what == "mean":
        frame = release.mean(name, by=groups)
    elif what == "share":
        frame = release.share(name, within=groups)
    elif what == "cdf":
        frame = release.cdf(name, by=groups)
        drawn = attribute_distribution(release, name, groups)
        if drawn is not None:  # an axis as long as a name may be leaves no room for the picture
            spec = charts.distribution_chart(replace(drawn, attribute=_short_title(drawn.attribute)))
    else:
        raise InvalidInput("there are quantiles, mean, share and cdf")
    names = [n for n in frame.columns if n != "note" or any(frame["note"])]
    texts = [n for n in names if n == "note" or not all(isinstance(v, (int, float)) or v is None for v in frame[n])]
    rows = [[_cell_text(n, row) for n in names] for row in itertools.islice(frame.rows(), _ROWS)]
    columns = [n.replace("_", " ") for n in names]
    return _shown(columns, rows, [c for c, n in zip(columns, names, strict=True) if n not in texts], len(frame), spec)


def _short_title(name: str) -> str:
    return name if len(name) <= _TITLE else f"{name[: _TITLE - 1]}…"


def _cell_text(name: str, row: Json) -> str:
    value = row[name]
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    if name == "probability":
        return f"{value:g}"
    error = row.get("standard_error")
    if error is None and "quantile" in row:  # of quantiles the ends are cells' edges
        return f"{value:,.6g}"
    if name == "standard_error" or not error:
        return show_figures(value)
    low, high = row.get("low"), row.get("high")  # of a mean the cells' width besides the noise
    return round_to_error(value, error if low is None or high is None else max(error, (high - low) / 4))


def answer_question(release: Release, question: object) -> Json:
    """The answer to a condition, with its interval."""
    if not isinstance(question, str) or not question.strip():
        raise InvalidInput("ask with a condition, such as age >= 65")
    found = release.ask(question)
    error = found.standard_error
    scale = (found.high - found.low) / 4 if error is None else error
    numbers = {k: round_to_error(getattr(found, k), scale) for k in ("value", "low", "high")}
    return {"question": safe_text(question), "error": show_figures(error), "exact": found.value} | numbers


def calculation_for_page(operation: object, one: tuple[Release, object], other: tuple[Release, object]) -> Json:
    """The calculator's answer in words and numbers."""
    if not isinstance(one[1], str) or not isinstance(other[1], str) or not isinstance(operation, str):
        raise InvalidInput("the calculator takes an operation and two conditions")
    found = calculate(operation, (one[0], one[1]), (other[0], other[1]))
    percent, error = operation in ("share", "growth"), (found.high - found.low) / 4
    numbers = (found.value, found.low, found.high)
    shown = [f"{round_to_error(100 * x, 100 * error)} %" if percent else round_to_error(x, error) for x in numbers]
    return asdict(found) | {"shown": shown}


def ranks_for_page(release: Release, attribute: object) -> Description:
    """The places of an attribute's cells."""
    (name,) = _read_chosen_names(release, [attribute], 1)
    found = cell_ranks(release, name)[:_ROWS]
    rows = [[r.cell, show_figures(r.value, 6), f"{r.first}", f"{r.last}"] for r in found]
    numbers = ["answer", "place from", "place to"]
    return _shown([name, *numbers], rows, numbers, len(found))


def error_maps(release: Release) -> Description:
    """The error of every table as a strip, and of every pair of attributes as a map."""
    found = [f for f in predicted_families(release.plan, release.part) if math.isfinite(f.rmse)]
    return Description("", [b for b in errors_text(found).blocks if isinstance(b, Chart)])


def projection_for_page(release: Release) -> Description:
    """Before and after a projection onto what some table could have given."""
    if len(release.workload) > _PROJECTED:
        raise NotAnswerable(f"above {_PROJECTED:,} answers a projection is made by a program: release.project()")
    result = release if release.projection is not None else release.project()
    (moved,) = moved_section(result)
    return Description(moved.headline, [*moved.blocks, *singles_table(result)])


STREAM = "stream.release"
"""What a page calls the public file of a stream."""

FILES = {
    "answers.parquet": "application/vnd.apache.parquet",
    "release.json": "application/json",
    "report.html": "text/html; charset=utf-8",
    "measurements.npz": "application/octet-stream",
}
"""Files of a release's folder that pages hand out."""


def stored_file(folder: Path, name: str) -> Path:
    """One of the files above. Raises InvalidInput for every other, and where it was not written."""
    place = folder / name
    if name not in FILES or place.is_symlink() or not place.is_file():
        raise InvalidInput("the release holds no such file: large ones hold their measurements alone")
    return place


def available_files(place: Path) -> list[str]:
    """Which of the files above are there; of a stream what may be published of it."""
    if not place.is_dir():
        return ["tables.xlsx", STREAM]
    return ["tables.xlsx", *(name for name in FILES if (place / name).is_file())]


def stream_file(found: object) -> bytes:
    """All that is public of a stream, as a file to be handed on. Raises InvalidInput for what is none."""
    if not isinstance(found, StreamRelease):
        raise InvalidInput("this is no stream")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "stream"
        found.save(place)
        return place.read_bytes()


def table_csv(release: Release, names: tuple[str, ...]) -> str:
    """A marginal table with every digit."""
    return csv_text(release.table(*names).frame())
