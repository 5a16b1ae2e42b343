"""The answers a page shows: small tables, distributions and single numbers, each with its interval."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np

from sfumato.domain import Dates
from sfumato.errors import NotAnswerable
from sfumato.ground.frames import safe_text
from sfumato.operators import Identity, Padded, Prefix
from sfumato.operators.base import FloatArray
from sfumato.plans.predictions import expand
from sfumato.releases import Release, Table
from sfumato.workloads import RECORDS, QueryBlock, Workload
from sfumato.workloads.levels import family_names, is_table, table_names

__all__ = [
    "Agreement",
    "Distribution",
    "Single",
    "SmallTable",
    "agreement",
    "distribution",
    "distributions",
    "singles",
    "small_table",
    "small_tables",
]

_EPOCH = date(1970, 1, 1).toordinal()
CONFIDENCE = 0.95  # the convention of official statistics; `intervals` takes any other
_MAX_TABLES = 30  # tables on a page that can still be scrolled through; the folder has all
# bars of one attribute and of a pair, and colours that an eye tells apart
_MAX_CELLS, _MAX_PAIR_CELLS, _MAX_GROUPS = 400, 72, 8
_MAX_POINTS = 4_096  # steps of a CDF: more than a page has pixels
_MAX_SINGLES = 200  # named counts on a page; the folder has all
_TOO_WIDE = 0.5  # a CDF known to half of its range on average says nothing that can be drawn

Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class SmallTable:
    """A table with one or two attributes: `rows` hold cell, answer, low, high and, for pairs, group.

    Where the release is projected they hold `before` too, the unprojected answer, and the errors are its.
    """

    names: tuple[str, ...]
    rows: Rows
    ordered: bool
    derived: bool
    error_low: float
    error_high: float


@dataclass(frozen=True, slots=True)
class Distribution:
    """A cumulative distribution: `rows` hold x (a number), cell, share, low, high and group.

    Of `days` x is the last of the cell, in milliseconds since 1970.
    """

    attribute: str
    by: tuple[str, ...]
    rows: Rows
    omitted: int
    days: bool = False


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


def _tables(release: Release) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Names of tables worth showing, each with whether it was asked: single attributes first, then small pairs."""
    domain = release.plan.workload.domain
    asked = _asked(release)
    inside = {a for names in asked for a in names}
    for name in (*domain.names, *domain.levels):
        if name in inside and domain[name].size <= _MAX_CELLS:
            yield (name,), (name,) in asked
    pairs = {s for s in asked if len(s) == 2}
    sizes = {s: domain.sizes(s) for s in pairs}
    fitting = [s for s in pairs if math.prod(sizes[s]) <= _MAX_PAIR_CELLS and min(sizes[s]) <= _MAX_GROUPS]
    for names in sorted(fitting, key=lambda s: (math.prod(sizes[s]), [domain.axis(domain.owner(a)) for a in s])):
        # the longer attribute runs down the chart, the shorter one is told apart by colour
        yield tuple(sorted(names, key=lambda a: -domain[a].size)), True


def _asked(release: Release) -> list[tuple[str, ...]]:
    """The names of every table over one or two attributes among the queries."""
    domain = release.plan.workload.domain
    found: list[tuple[str, ...]] = []
    for item in release.workload.items:
        if isinstance(item, QueryBlock):
            found.append(_table_names(release, item))
        elif item.family.order in (1, 2) and is_table(domain, item.family):
            found += family_names(domain, item.family)
    return [names for names in found if len(names) in (1, 2)]


def _others(release: Release) -> Iterator[QueryBlock]:
    """Blocks that ask for something else than a table."""
    domain = release.plan.workload.domain
    for item in release.workload.items:
        if isinstance(item, QueryBlock):
            blocks = [item]
        else:
            blocks = [] if item.family.order and is_table(domain, item.family) else item.blocks()
        yield from (q for q in blocks if not _table_names(release, q))


def _table_names(release: Release, query: QueryBlock) -> tuple[str, ...]:
    """The names of the table that a block asks for; none where it asks something else, or the total."""
    names = table_names(release.plan.workload.domain, query.block) if query.unit == RECORDS else None
    return names or ()


def small_tables(release: Release) -> list[SmallTable]:
    """At most 30 tables over one attribute, or over two with few cells, that follow from what was measured."""
    found: list[SmallTable] = []
    for names, asked in _tables(release):
        if len(found) == _MAX_TABLES:
            break
        try:
            table = release.table(*names, confidence=CONFIDENCE)
        except NotAnswerable:
            continue
        found.append(small_table(release, table, asked=asked))
    return found


def small_table(release: Release, table: Table, *, asked: bool) -> SmallTable:
    """The rows of a table over one or two attributes as charts take them."""
    cells = np.ndindex(*table.values.shape)
    projected = release.projection is not None
    raw = release.raw.table(*table.attributes, confidence=CONFIDENCE) if projected else table
    errors = raw.standard_errors
    assert errors is not None
    rows: Rows = []
    for i, cell in enumerate(cells):
        texts = [safe_text(labels[j]) for labels, j in zip(table.labels, cell, strict=True)]
        row = {"i": i, "cell": texts[0], "answer": _number(table.values[cell])}
        row |= {"low": _number(table.low[cell]), "high": _number(table.high[cell])}
        row |= {"before": _number(raw.values[cell])} if projected else {}
        rows.append(row if len(texts) == 1 else row | {"group": texts[1]})
    ordered = release.plan.workload.domain[table.attributes[0]].ordered
    names = tuple(safe_text(a) for a in table.attributes)
    return SmallTable(names, rows, ordered, not asked, float(errors.min()), float(errors.max()))


def _number(value: Any) -> float:
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


def distributions(release: Release) -> list[Distribution]:
    """A distribution for every part that asks for cumulative counts."""
    asked = dict.fromkeys(filter(None, map(_distribution_of, _others(release))))
    return [d for d in (distribution(release, attribute, by) for attribute, by in asked) if d is not None]


def distribution(release: Release, attribute: str, by: tuple[str, ...]) -> Distribution | None:
    """The distribution of an ordered attribute within groups, those that can be told; None where there is none."""
    domain = release.plan.workload.domain
    if domain[attribute].size > _MAX_POINTS:
        return None  # more points than a picture has, and every interval of a share is a row of that length
    declared = domain[attribute]
    ends = [float(high) - (declared.kind == "integer") for _, high in declared.intervals or ()]
    if isinstance(declared, Dates):
        ends = [(day - 1 - _EPOCH) * 86_400_000.0 for day in declared.edges[1:]]
    try:
        frame = release.cdf(attribute, by=by, confidence=CONFIDENCE)
    except NotAnswerable:
        return None
    groups = [safe_text(", ".join(cell)) for cell in itertools.product(*(domain[b].labels for b in by))]
    labels = [safe_text(t) for t in domain[attribute].declared_labels]
    shape = (len(groups), len(labels))
    share, low, high = (np.array(frame[c], dtype=np.float64).reshape(shape) for c in ("share", "low", "high"))
    # where a group's total cannot be told from zero, nothing is known of its distribution
    drawn = [g for g in range(len(groups)) if np.isfinite(share[g]).all() and (high[g] - low[g]).mean() < _TOO_WIDE]
    kept = sorted(_largest(release, by, drawn)[:_MAX_GROUPS])
    rows: Rows = [
        {"x": ends[i], "cell": labels[i], "group": groups[g], "share": _number(share[g, i])}
        | {"low": _number(low[g, i]), "high": _number(high[g, i])}
        for g in kept
        for i in range(len(labels))
    ]
    names = tuple(safe_text(b) for b in by)
    omitted = len(groups) - len(kept)
    return Distribution(safe_text(attribute), names, rows, omitted, isinstance(declared, Dates)) if rows else None


def _largest(release: Release, by: tuple[str, ...], groups: list[int]) -> list[int]:
    """Groups by their number of records, the largest first; as they come where that does not follow."""
    try:
        sizes = release.table(*by).values.reshape(-1)
    except NotAnswerable:
        return groups
    return sorted(groups, key=lambda g: -sizes[g])


def singles(release: Release) -> tuple[list[Single], int]:
    """Answers that belong to no table and no distribution, at most 200, and how many were left out."""
    shown: list[Single] = []
    omitted = 0
    for query in _others(release):
        if _distribution_of(query) is not None:
            continue
        if len(shown) + query.rows > _MAX_SINGLES:
            omitted += query.rows
            continue
        found = release.ask(Workload(release.plan.workload.domain, (query,)), CONFIDENCE)
        before = release.raw.answer_block(query.block)
        errors = expand(np.sqrt(release.variances(query.block)), query)
        labels = release.plan.workload.block_labels(query)
        part, unit = safe_text(query.part), safe_text(query.unit)
        numbers = zip(found["answer"], before, errors, found["low"], found["high"], strict=True)
        shown += [
            Single(part, safe_text(label), unit, *(math.nan if x is None else float(x) for x in row))
            for label, row in zip(labels, numbers, strict=True)
        ]
    return shown, omitted


def agreement(release: Release, names: list[str], exact: FloatArray) -> Agreement:
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
        numbers = {"predicted": _number(math.sqrt(mean)), "actual": _number(math.sqrt(total / query.rows))}
        rows.append({"name": name, "order": len(query.attributes), "queries": query.rows} | numbers)
    rms = (math.sqrt(expected / max(counted, 1)), math.sqrt(squares / max(counted, 1)))
    return Agreement(rows, *rms, inside / start, start)
