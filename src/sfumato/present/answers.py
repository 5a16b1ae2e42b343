"""The answers a page shows: small tables, distributions and single numbers, each with its interval."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, cast

import numpy as np

from sfumato._util.catalogue import called_attribute, local_number, say_note, say_text, say_words
from sfumato._util.description import TitledTable
from sfumato._util.frames import Frame, safe_text
from sfumato.domain import Attribute, Dates, Domain, Measure
from sfumato.domain.core import has_unequal_widths, is_year
from sfumato.errors import NotAnswerable
from sfumato.operators import Identity, Padded, Prefix
from sfumato.operators.base import FloatArray
from sfumato.plans.predictions import expand_to_queries
from sfumato.present.words import round_to_error, show_figures
from sfumato.releases import Release, Table
from sfumato.releases.ends import shown_cells, shown_places
from sfumato.releases.measure_tables import asked_measures, measure_statistics, measure_table
from sfumato.releases.moments import read_moments
from sfumato.releases.reliability import SUPPRESS, WITHHELD, Reliability, read_reliability
from sfumato.workloads import RECORDS, QueryBlock, Workload
from sfumato.workloads.levels import family_names, is_table_family, table_names

_EPOCH = date(1970, 1, 1).toordinal()
CONFIDENCE = 0.95  # the convention of official statistics; `intervals` takes any other
_MAX_TABLES = 30  # tables on a page that can still be scrolled through; the folder has all
# bars of one attribute and of a pair, and colours that an eye tells apart
_MAX_CELLS, _MAX_PAIR_CELLS, _MAX_GROUPS = 400, 72, 8
_LARGEST = 100_000  # cells of a table of which the largest are shown, and nothing is drawn of the rest
_MAX_POINTS = 4_096  # steps of a CDF: more than a page has pixels
_MAX_SINGLES = 200  # named counts on a page; the folder has all
_MAX_PAIRED = 30  # groups: an interval of a correlation is searched for, a tenth of a second each
_GINI = "Gini index"
# how columns begin that hold a statistic of a measure
_VALUES = ("answer", "value", "mean", "variance", "covariance", "correlation", "gini", "lorenz")
_TOO_WIDE = 0.5  # a CDF known to half of its range on average says nothing that can be drawn

Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class SmallTable:
    """A table: `rows` hold cell, answer, low, high, other (whether it is what was not declared) and, for pairs, group.

    Where the release is projected they hold `before` too, the unprojected answer, and the errors are its. Classes of
    `unequal` widths hold start, end and middle besides, and what a unit of their width holds: per_unit, per_low,
    per_high and per_before. Of a table of more attributes or of many cells a row's cell names all of them.
    """

    names: tuple[str, ...]
    rows: Rows
    ordered: bool
    derived: bool
    error_low: float
    error_high: float
    cells: int
    unequal: bool = False


@dataclass(frozen=True, slots=True)
class Distribution:
    """A cumulative distribution: `rows` hold x (a number), cell, share, low, high and group.

    Of `days` x is the last of the cell, in milliseconds since 1970; of `years` it has no thousands marks.
    """

    attribute: str
    by: tuple[str, ...]
    rows: Rows
    omitted: int
    days: bool = False
    years: bool = False


@dataclass(frozen=True, slots=True)
class Single:
    """One answer with its interval. `before` and `error` are those of the unprojected answer."""

    part: str
    label: str
    unit: str
    value: float
    before: float
    error: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Agreement:
    """Predicted against actual errors of a public table: `rows` hold name, order, predicted and actual."""

    rows: Rows
    predicted: float
    actual: float
    inside: float
    answers: int


def _shown_tables(release: Release) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Names of tables worth showing, each with whether it was asked: those that were asked come before those that
    only follow from them; among them single attributes first, then small pairs, then what only its largest cells show.
    """
    domain = release.plan.workload.domain
    asked = list(dict.fromkeys(asked_table_names(release)))
    places = {name: i for i, name in enumerate((*domain.names, *domain.levels))}
    sizes = {names: math.prod(domain.sizes(names)) for names in asked}
    drawn = [names for names in asked if _fits_chart(domain, names)]
    for names in sorted(drawn, key=lambda s: (len(s), sizes[s] * (len(s) > 1), [places[a] for a in s])):
        # the longer attribute of a pair runs down the chart, the shorter one is told apart by colour
        yield tuple(sorted(names, key=lambda a: -domain[a].size)), True
    rest = (names for names in asked if not _fits_chart(domain, names) and sizes[names] <= _LARGEST)
    for names in sorted(rest, key=lambda s: (len(s), sizes[s])):
        yield names, True
    inside = {a for names in asked for a in names}
    for name in places:
        if name in inside and (name,) not in sizes and _fits_chart(domain, (name,)):
            yield (name,), False


def _fits_chart(domain: Domain, names: tuple[str, ...]) -> bool:
    """Whether every cell of a table has its place in a picture."""
    sizes = domain.sizes(names)
    if len(names) == 1:
        return sizes[0] <= _MAX_CELLS
    return len(names) == 2 and math.prod(sizes) <= _MAX_PAIR_CELLS and min(sizes) <= _MAX_GROUPS


def asked_table_names(release: Release) -> list[tuple[str, ...]]:
    """The names of every table among the queries, of families of few tables those of any number of attributes."""
    domain = release.plan.workload.domain
    found: list[tuple[str, ...]] = []
    for item in release.workload.items:
        if isinstance(item, QueryBlock):
            found.append(_table_names(release, item))
        elif is_table_family(domain, item.family) and (item.family.order < 3 or len(item.family.sets) <= _MAX_TABLES):
            found += family_names(domain, item.family)
    return [names for names in found if names]


def _other_blocks(release: Release) -> Iterator[QueryBlock]:
    """Blocks that ask for something else than a table."""
    domain = release.plan.workload.domain
    for item in release.workload.items:
        if isinstance(item, QueryBlock):
            blocks = [item]
        else:
            blocks = [] if item.family.order and is_table_family(domain, item.family) else item.blocks()
        yield from (q for q in blocks if not _table_names(release, q))


def _table_names(release: Release, query: QueryBlock) -> tuple[str, ...]:
    """The names of the table that a block asks for; none where it asks something else, or the total."""
    names = table_names(release.plan.workload.domain, query.block) if query.unit == RECORDS else None
    return names or ()


def small_tables(release: Release) -> list[SmallTable]:
    """At most 30 tables that follow from what was measured; of large ones the largest cells, in one list."""
    found: list[SmallTable] = []
    for names, asked in _shown_tables(release):
        if len(found) == _MAX_TABLES:
            break
        try:
            table = release.table(*names, confidence=CONFIDENCE)
        except NotAnswerable:
            continue
        found.append(small_table(release, table, asked=asked))
    return found


def small_table(release: Release, table: Table, *, asked: bool) -> SmallTable:
    """The rows of a table as charts take them."""
    domain, shape = release.plan.workload.domain, table.values.shape
    projected = release.projection is not None
    raw = release.raw.table(*table.attributes, confidence=CONFIDENCE) if projected else table
    errors = raw.standard_errors
    assert errors is not None
    texts = [shown_cells(domain, name) for name in table.attributes]
    extra = [domain[name].size - 1 if domain[name].has_other else -1 for name in table.attributes]
    paired = len(shape) == 2 and _fits_chart(domain, table.attributes)
    places = shown_places(domain, table.attributes)
    if len(shape) > 1 and not paired:
        places = np.argsort(-table.values.reshape(-1), kind="stable")[:_MAX_CELLS].tolist()
    rows: Rows = []
    for i in places:
        cell = tuple(int(j) for j in np.unravel_index(i, shape))
        names = [found[j] for found, j in zip(texts, cell, strict=True)]
        row = {"i": i, "cell": names[0] if paired else " · ".join(names), "answer": _chart_number(table.values[cell])}
        row |= {"low": _chart_number(table.low[cell]), "high": _chart_number(table.high[cell])}
        row |= {"before": _chart_number(raw.values[cell])} if projected else {}
        row |= {"other": any(j == last for j, last in zip(cell, extra, strict=True))}
        rows.append(row | {"group": names[1]} if paired else row)
    first = domain[table.attributes[0]]
    classes = len(shape) == 1 and has_unequal_widths(first)
    if classes:
        _divide_by_width(rows, first)
    shown = tuple(safe_text(called_attribute(a)) for a in table.attributes)
    ordered = first.ordered and len(shape) == 1
    ends, cells = (float(errors.min()), float(errors.max())), table.values.size - (len(shape) == 1 and first.has_other)
    return SmallTable(shown, rows, ordered, not asked, *ends, cells, unequal=classes)


def _divide_by_width(rows: Rows, attribute: Attribute) -> None:
    """What a unit of each class's width holds; the extra cell has no width."""
    for row, (low, high) in zip(rows, attribute.intervals or (), strict=False):
        width = float(high - low)
        row |= {"start": float(low), "end": float(high), "middle": float(low) + width / 2}
        for name, given in (("unit", "answer"), ("low", "low"), ("high", "high"), ("before", "before")):
            if given in row:
                row[f"per_{name}"] = _chart_number(row[given] / width)


def _chart_number(value: Any) -> float:
    """Rounded to what a chart can show: it keeps the page small."""
    return float(f"{float(value):.7g}")


def _distribution_of(query: QueryBlock) -> tuple[str, tuple[str, ...]] | None:
    """(attribute, by) where the block is a cumulative count along one attribute."""
    along, by = "", []
    for group, factor in zip(query.block.groups, query.block.factors, strict=True):
        inner = factor.operator if isinstance(factor, Padded) else factor
        if isinstance(inner, Prefix) and not along and len(group) == 1:
            along = group[0]
        elif isinstance(factor, Identity):
            by.extend(group)
        else:
            return None
    return (along, tuple(by)) if along else None


def asked_distributions(release: Release) -> list[Distribution]:
    """A distribution for every part that asks for cumulative counts."""
    asked = dict.fromkeys(filter(None, map(_distribution_of, _other_blocks(release))))
    return [d for d in (attribute_distribution(release, attribute, by) for attribute, by in asked) if d is not None]


def attribute_distribution(release: Release, attribute: str, by: tuple[str, ...]) -> Distribution | None:
    """The distribution of an ordered attribute within groups, those that can be told; None where there is none."""
    domain = release.plan.workload.domain
    declared = domain[attribute]
    # prefixes of categories are in the order in which they were listed; of more cells than a picture has points every
    # interval of a share is a row of that length
    if not declared.ordered or declared.size > _MAX_POINTS:
        return None
    ends = [float(high) - (declared.kind == "integer") for _, high in declared.intervals or ()]
    if isinstance(declared, Dates):
        ends = [(day - 1 - _EPOCH) * 86_400_000.0 for day in declared.edges[1:]]
    try:
        frame = release.cdf(attribute, by=by, confidence=CONFIDENCE)
    except NotAnswerable:
        return None
    groups = [", ".join(cell) for cell in itertools.product(*(shown_cells(domain, b) for b in by))]
    labels = shown_cells(domain, attribute)[: domain[attribute].declared_size]
    shape = (len(groups), len(labels))
    share, low, high = (np.array(frame[c], dtype=np.float64).reshape(shape) for c in ("share", "low", "high"))
    # where a group's total cannot be told from zero, nothing is known of its distribution
    drawn = [g for g in range(len(groups)) if np.isfinite(share[g]).all() and (high[g] - low[g]).mean() < _TOO_WIDE]
    kept = sorted(_largest_groups(release, by, drawn)[:_MAX_GROUPS])
    rows: Rows = [
        {"x": ends[i], "cell": labels[i], "group": groups[g], "share": _chart_number(share[g, i])}
        | {"low": _chart_number(low[g, i]), "high": _chart_number(high[g, i])}
        for g in kept
        for i in range(len(labels))
    ]
    names = tuple(safe_text(called_attribute(b)) for b in by)
    omitted = len(groups) - len(kept)
    if not rows:
        return None
    kinds = isinstance(declared, Dates), is_year(domain, attribute)
    return Distribution(safe_text(called_attribute(attribute)), names, rows, omitted, *kinds)


def _largest_groups(release: Release, by: tuple[str, ...], groups: list[int]) -> list[int]:
    """Groups by their number of records, the largest first; as they come where that does not follow."""
    try:
        sizes = release.table(*by).values.reshape(-1)
    except NotAnswerable:
        return groups
    return sorted(groups, key=lambda g: -sizes[g])


def measures_asked_first(release: Release) -> bool:
    """Whether sums of measures were asked before single queries."""
    measures = set(release.plan.workload.domain.measures)
    for query in _other_blocks(release):
        if measures & set(query.block.attributes):
            return True
        if _distribution_of(query) is None:
            return False
    return False


def measures_table(release: Release, flags: Mapping[str, float] | None = None) -> list[TitledTable]:
    """Sums, means, variances, gaps, inequality and what pairs have of measures, one line each, where they follow.

    With marks of an office means, sums and gaps have theirs, and a number that is flagged "suppress" is two dots.
    """
    domain, marks = release.plan.workload.domain, read_reliability(flags)
    columns: dict[str, list[str]] = {
        n: [] for n in ("Measure", "Group", "Statistic", "Answer", "95 % from", "to", "Flag", "Note")
    }
    omitted, told_of = 0, set[str]()
    asked = asked_measures(release)
    told = [(m, by, _statistics_of(release, m, by)) for m, by in asked]
    for (one, by), (other, same) in itertools.combinations(asked, 2):
        groups_of_pair = math.prod(domain.sizes(by))
        if by == same and one != other and groups_of_pair > _MAX_PAIRED:
            with contextlib.suppress(NotAnswerable):
                omitted += 2 * len(read_moments(release, [one, other], by).values)
        elif by == same and one != other:
            told.append((f"{one} and {other}", by, _pair_statistics_of(release, one, other, by)))
    for measure, by, found in told:
        cells = itertools.product(*(shown_cells(domain, b) for b in by))
        groups = [safe_text(" · ".join(c)) or say_words("all") for c in cells]
        flagged = _measure_flags(release, measure, by, marks)
        for statistic, frame in found:
            told_of.add(statistic)
            value = next(n for n in frame.columns if n.startswith(_VALUES))
            notes = frame.columns.get("note", [""] * len(frame))
            set_flags = flagged.get(statistic, [""] * len(frame))
            lines = zip(groups, frame[value], frame["low"], frame["high"], set_flags, notes, strict=True)
            for group, v, low, high, flag, note in lines:
                if len(columns["Group"]) == _MAX_SINGLES:
                    omitted += 1
                    continue
                error = 0.0 if v is None else (high - low) / 4
                shown = ["–" if x is None else round_to_error(x, error) for x in (v, low, high)]
                if flag == SUPPRESS:
                    shown = [WITHHELD] * 3
                row = (safe_text(called_attribute(measure)), group, say_text(statistic), *shown)
                mark = "" if flag == SUPPRESS else flag
                for column, text in zip(columns.values(), (*row, mark, say_note(note or "")), strict=True):
                    column.append(text)
    if not columns["Group"]:
        return []
    if not marks.classes:
        del columns["Flag"]
    caption = say_words("Sums, means and variances of measures with 95 % intervals")
    caption += say_words(", and covariances and correlations of pairs") if "correlation" in told_of else ""
    caption += say_words(", and how unequal they are") if _GINI in told_of else ""
    caption += say_words("; {number} more are in the release", number=local_number(f"{omitted:,}")) if omitted else ""
    frame = Frame({say_words(n): column for n, column in columns.items()})
    numbers = [say_words(n) for n in ("Answer", "95 % from", "to")]
    return [TitledTable(caption, frame, numbers, say_words("Measures"), _MAX_SINGLES)]


def _measure_flags(release: Release, measure: str, by: tuple[str, ...], marks: Reliability) -> dict[str, list[str]]:
    """The flags of each statistic that is in the unit of a measure, group by group."""
    measures = release.plan.workload.domain.measures
    held = measure_table(release, measure, by, CONFIDENCE) if marks.classes and measure in measures else None
    if held is None:
        return {}
    pairs = zip(held.labels[0], held.sizes(), held.noise_errors(), strict=True)
    return {statistic: marks.flags(sizes, errors) for statistic, sizes, errors in pairs}


def _statistics_of(release: Release, measure: str, by: tuple[str, ...]) -> Iterator[tuple[str, Frame]]:
    """What can be told of a measure by some attributes."""
    declared = cast("Measure", release.plan.workload.domain[measure])
    level: dict[str, Any] = {"by": by, "confidence": CONFIDENCE}
    tell: dict[str, Callable[[], Frame]] = {
        name: (lambda find=find: find(release))
        for name, find in measure_statistics(release, measure, by, CONFIDENCE).items()
    }
    tell["variance"] = lambda: release.variance(measure, **level)
    if declared.knots and declared.low >= 0:
        tell[_GINI] = lambda: release.gini(measure, **level)
        for share, words in ((0.5, "lower half"), (0.9, "lower nine tenths")):
            tell[f"what the {words} have"] = lambda share=share: release.lorenz(measure, [share], **level)
    for statistic, find in tell.items():
        with contextlib.suppress(NotAnswerable):
            yield statistic, find()


def _pair_statistics_of(release: Release, one: str, other: str, by: tuple[str, ...]) -> Iterator[tuple[str, Frame]]:
    """How two measures vary together by some attributes, where their products were measured."""
    with contextlib.suppress(NotAnswerable):
        yield "covariance", release.covariance_between(one, other, by=by, confidence=CONFIDENCE)
        yield "correlation", release.correlation(one, other, by=by, confidence=CONFIDENCE)


def single_answers(release: Release) -> tuple[list[Single], int]:
    """Answers that belong to no table and no distribution, at most 200, and how many were left out."""
    shown: list[Single] = []
    omitted = 0
    measures = set(release.plan.workload.domain.measures)  # their sums have a table of their own
    for query in _other_blocks(release):
        if _distribution_of(query) is not None or measures & set(query.block.attributes):
            continue
        if len(shown) + query.rows > _MAX_SINGLES:
            omitted += query.rows
            continue
        found = release.ask(Workload(release.plan.workload.domain, (query,)), CONFIDENCE)
        before = release.raw.answer_block(query.block)
        errors = expand_to_queries(np.sqrt(release.variances(query.block)), query)
        labels = release.plan.workload.block_labels(query)
        part, unit = safe_text(query.part), safe_text(query.unit)
        numbers = zip(found["answer"], before, errors, found["low"], found["high"], strict=True)
        shown += [
            Single(part, safe_text(label), unit, *(math.nan if x is None else float(x) for x in row))
            for label, row in zip(labels, numbers, strict=True)
        ]
    return shown, omitted


def given_text(text: str) -> str:
    """A label or a part: those that sfumato gives by itself in the language that is spoken, others as they are."""
    return say_words(text) if text in _GIVEN else text


_GIVEN = ("total", "people", "counts")


def singles_table(release: Release, flags: Mapping[str, float] | None = None) -> list[TitledTable]:
    """Answers that belong to no table and no distribution, one line each; nothing where there are none."""
    found, omitted = single_answers(release)
    if not found:
        return []
    before, marks = release.projection is not None, read_reliability(flags)
    flagged = marks.flags([s.value for s in found], [s.error for s in found])
    hidden = [flag == SUPPRESS for flag in flagged]

    def shown(numbers: Iterable[tuple[float, float]]) -> list[str]:
        pairs = zip(hidden, numbers, strict=True)
        return [WITHHELD if left_out else round_to_error(*number) for left_out, number in pairs]

    columns = {
        say_words("Query"): [given_text(s.label) for s in found],
        say_words("Part"): [given_text(s.part) for s in found],
        say_words("Answer"): shown((s.value, s.error) for s in found),
        **({say_words("Before projection"): shown((s.before, s.error) for s in found)} if before else {}),
        say_words("Standard error before" if before else "Standard error"): [show_figures(s.error) for s in found],
        say_words("95 % from"): shown((s.low, s.error) for s in found),
        say_words("to"): shown((s.high, s.error) for s in found),
        **({say_words("Flag"): ["" if f == SUPPRESS else f for f in flagged]} if marks.classes else {}),
        say_words("Unit"): [say_words(s.unit) for s in found],
    }
    caption = say_words("Single queries with 95 % intervals")
    caption += say_words("; {number} more are in the release", number=local_number(f"{omitted:,}")) if omitted else ""
    numbers = [n for n in columns if n not in map(say_words, ("Query", "Part", "Unit", "Flag"))]
    return [TitledTable(caption, Frame(columns), numbers, say_words("Answers to single queries"), _MAX_SINGLES)]


def error_agreement(release: Release, names: list[str], exact: FloatArray) -> Agreement:
    """How the errors that were predicted compare with those that came out, for a table that is public.

    `exact` holds the exact answers, (k,), in the order of the workload; `names` one text per block.
    """
    if exact.shape != (len(release.workload),):
        raise NotAnswerable(f"{len(release.workload):,} exact answers are needed, not an array of shape {exact.shape}")
    rows: Rows = []
    ends = release.intervals(CONFIDENCE)
    inside = int(((ends.low <= exact) & (exact <= ends.high)).sum())
    start, counted, squares, expected = 0, 0, 0.0, 0.0
    for name, query in zip(names, release.workload.blocks, strict=True):
        errors = release.answer_block(query.block) - exact[start : start + query.rows]
        start += query.rows
        variances = release.variances(query.block)
        total, mean = float((errors**2).sum()), float(variances.mean())
        if not math.isfinite(mean):
            continue  # beyond what was measured: no error was predicted
        if query.unit == release.plan.main_unit:
            squares, expected, counted = squares + total, expected + mean * query.rows, counted + query.rows
        numbers = {"predicted": _chart_number(math.sqrt(mean)), "actual": _chart_number(math.sqrt(total / query.rows))}
        rows.append({"name": name, "order": len(query.attributes), "queries": query.rows} | numbers)
    rms = (math.sqrt(expected / max(counted, 1)), math.sqrt(squares / max(counted, 1)))
    return Agreement(rows, *rms, inside / start, start)
