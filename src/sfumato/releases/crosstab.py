"""Cross-tables: a table in rows and columns with its totals, and per cent of them, each with its interval.

A per cent is a ratio A / B of a cell and a total of one release, which err together: its interval is Fieller's, from
both variances and their covariance, as for shares in `quantiles`. Totals are what the release answers of the smaller
tables, which can be known better than the sum of the cells.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato._util.catalogue import local_number, say_words
from sfumato._util.description import Describable, Description, DescriptionBlock, Sentences, TitledTable
from sfumato._util.frames import Frame, FrameConvertible, safe_text
from sfumato.errors import NotAnswerable, PlanError
from sfumato.operators.base import FloatArray
from sfumato.plans.predictions import check_confidence, widest_sum_margin
from sfumato.releases.answers import SIZE_ERRORS, fieller_interval
from sfumato.releases.ends import column_heading, interval_ends, shown_cells, told_order
from sfumato.releases.quantiles import Numbers, by_names, clip_interval
from sfumato.releases.reliability import (
    SUPPRESS,
    WITHHELD,
    Reliability,
    chart_flagged,
    read_reliability,
    relative_errors,
)
from sfumato.workloads.levels import table_block

if TYPE_CHECKING:
    from sfumato.releases.release import Release
    from sfumato.releases.tables import Table

BASES = {"row": "Per cent of the row", "column": "Per cent of the column", "all": "Per cent of all"}
"""What per cents may be of, with their headings."""
_MOST = 20_000  # cells: more than a person reads, and their covariances with totals stay small
_TOTAL = "Total"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class CrossTable(FrameConvertible, Describable):
    """A table in rows and columns: the last row and the last column are totals.

    Args:
        rows: Names of the attributes that run down.
        columns: Names of those that run across.
        row_labels: For each row but the total its labels, one per attribute.
        column_labels: The same for columns.
        numbers: Answers, standard errors, lower and upper ends, (rows + 1, columns + 1) each. Errors are those of
            the unprojected answers, NaN where none is known.
        per: Of what per cents are: "row", "column", "all", or None for none.
        shares: The same numbers of the shares, from 0 to 1, or None.
        confidence: The probability with which each interval holds.
        of: What is counted.
        projected: Whether answers are projected, so that their standard errors are those from before.
        reliability: The marks of an office.
        notes: What is said below: rows left out, totals that are too small for per cents.
        headings: What readers call an attribute, by its name; the name itself where it is not there.
        texts: What readers call a cell, by attribute and label; the label itself where it is not there.
        ranked: Whether rows are in the order of answers, which no publication changes.

    >>> domain = sf.Domain({"age": 3, "sex": sf.Categories(["f", "m"])})
    >>> made = sf.plan(sf.identity(domain), sf.gdp(1), neighbours="add-remove")
    >>> cells = sf.release(made, sf.Histogram(np.full((3, 2), 900)), ledger=None, name="cells")
    >>> found = cells.table("age", "sex").crosstab(rows="age", columns="sex")
    >>> found.numbers[0].shape, bool(found.shares[1][:2, :2].max() < 0.002)
    ((4, 3), True)
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    row_labels: tuple[tuple[str, ...], ...]
    column_labels: tuple[tuple[str, ...], ...]
    numbers: Numbers
    per: str | None
    shares: Numbers | None
    confidence: float
    of: str
    projected: bool
    reliability: Reliability
    notes: tuple[str, ...] = ()
    headings: Mapping[str, str] = field(default_factory=dict[str, str])
    texts: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])
    ranked: bool = False

    def frame(self) -> Frame:
        """The cells as a frame.

        Returns:
            One row per cell, totals included: the labels ("Total" where an attribute is summed over), answer,
            standard_error, low, high; with per cents share, share_standard_error, share_low and share_high, from 0 to
            1; with marks relative_standard_error and flag.
        """
        down, across = (
            [*labels, (say_words(_TOTAL),) * len(names)]
            for labels, names in ((self.row_labels, self.rows), (self.column_labels, self.columns))
        )
        cells = [(*r, *c) for r, c in itertools.product(down, across)]
        names = (*self.rows, *self.columns)
        columns: dict[str, Sequence[Any]] = {column_heading(n): [c[i] for c in cells] for i, n in enumerate(names)}
        for prefix, found in (("", self.numbers), ("share", self.shares)):
            if found is not None:
                heads = ("share" if prefix else "answer", *(f"{prefix}_{n}".strip("_") for n in _ENDS))
                columns |= dict(zip(heads, map(_known_list, found), strict=True))
        if self.reliability.classes:
            relative = relative_errors(*self.numbers[:2])
            columns["relative_standard_error"] = _known_list(np.where(np.isinf(relative), math.nan, relative))
            columns["flag"] = self.reliability.flags(*self.numbers[:2])
        return Frame(columns)

    def grid(self, *, per: bool = False) -> Frame:
        """The cells as readers see them, each a text with its interval and its flag.

        Args:
            per: Whether per cents are shown, instead of answers.

        Returns:
            One row per row of the table: its labels, then a column for each column of the table.

        Raises:
            PlanError: There are no per cents.
        """
        found, scale = (self.shares, 100.0) if per else (self.numbers, 1.0)
        if found is None:
            raise PlanError("this cross-table has no per cents; ask for them with per='row', 'column' or 'all'")
        value, error, low, high = (scale * x for x in found)
        decimals = _common_decimals(low, high)
        flags = np.array(self.reliability.flags(value, error), dtype=object).reshape(value.shape)
        total = say_words(_TOTAL)
        heads = [*(" · ".join(self.told_labels(self.columns, labels)) for labels in self.column_labels), total]
        lines = [
            *(self.told_labels(self.rows, labels) for labels in self.row_labels),
            [total, *[""] * (len(self.rows) - 1)],
        ]
        columns: dict[str, list[str]] = {}
        for i, name in enumerate(self.rows):
            columns[_free_head(self.called(name), columns)] = [line[i] for line in lines]
        for j, head in enumerate(heads):
            columns[_free_head(head, columns)] = [
                _cell_text(
                    float(value[i, j]),
                    float(error[i, j]),
                    float(low[i, j]),
                    float(high[i, j]),
                    str(flags[i, j]),
                    decimals,
                    " %" * per,
                )
                for i in range(len(lines))
            ]
        return Frame(columns)

    def called(self, name: str) -> str:
        """What readers call an attribute.

        Args:
            name: Its name.

        Returns:
            A text without control characters.
        """
        return safe_text(self.headings.get(name, name))

    def told_labels(self, names: Sequence[str], labels: Sequence[str]) -> list[str]:
        """Labels as readers see them.

        Args:
            names: The attributes.
            labels: A label of each.

        Returns:
            Texts without control characters.
        """
        return [safe_text(self.texts.get(n, {}).get(t, t)) for n, t in zip(names, labels, strict=True)]

    def describe(self) -> Description:
        down, across = (" × ".join(map(self.called, names)) for names in (self.rows, self.columns))
        many = len(self.row_labels) + 1
        title = say_words("{rows} by {columns}", rows=down, columns=across)
        level = local_number(f"{100 * self.confidence:.6g}")
        blocks: list[DescriptionBlock] = []
        for per, told in ((False, self.of[:1].upper() + self.of[1:]), *([(True, BASES[self.per])] if self.per else [])):
            frame = self.grid(per=per)
            caption = say_words(
                "{what}, {title}, with {level} % intervals", what=say_words(told), title=title, level=level
            )
            blocks.append(TitledTable(caption, frame, list(frame.columns)[len(self.rows) :], caption, many))
        said = list(self.notes)
        if self.projected:
            said.append(say_words("Standard errors are those of the answers before projection."))
        if self.reliability.classes:
            said.append(self.reliability.statement())
        return Description(title, [*blocks, Sentences(said, quiet=True)])

    def brief(self) -> str:
        return f"{len(self.row_labels)} x {len(self.column_labels)} of {', '.join((*self.rows, *self.columns))}"

    def __repr__(self) -> str:
        return str(self)

    def labelled(self, publication: Any) -> CrossTable:
        """The same in the words of a publication: labels of attributes and of their categories, and their order.

        Args:
            publication: What a reader is told, as `sfumato.publishing.Publication` has it.

        Returns:
            The cross-table; its rows and columns are in the order in which categories are told, where all are.
        """
        names = (*self.rows, *self.columns)
        headings = {n: publication.heading(n) for n in names}
        told = {n: publication.category_texts(n) for n in names}
        texts = {n: {**self.texts.get(n, {}), **told[n]} for n in names}
        down, across = (
            _told_lines(labels, [told[n] for n in given])
            for labels, given in ((self.row_labels, self.rows), (self.column_labels, self.columns))
        )
        if self.ranked:
            down = list(range(len(down)))
        cells = np.ix_([*down, len(down)], [*across, len(across)])
        return replace(
            self,
            headings=headings,
            texts=texts,
            row_labels=tuple(self.row_labels[i] for i in down),
            column_labels=tuple(self.column_labels[i] for i in across),
            numbers=_taken(self.numbers, cells),
            shares=None if self.shares is None else _taken(self.shares, cells),
        )

    def plot(self, *, title: str = "", source: str = "", per: bool = False) -> Any:
        """An Altair chart: grouped bars with intervals, and small multiples for a third attribute (extra: plots).

        Args:
            title: What stands above it.
            source: The line below it.
            per: Whether per cents are drawn, instead of answers.

        Returns:
            The chart; `.save("chart.svg")`, or .png or .pdf, writes it to a file (extra: charts).

        Raises:
            PlanError: There are more than three attributes, or no per cents.
            MissingExtra: Altair is not installed.
        """
        names = (*self.rows, *self.columns)
        if len(names) > 3:
            raise PlanError(f"a table over {len(names)} attributes has no simple picture; choose at most three")
        found = self.shares if per else self.numbers
        if found is None:
            raise PlanError("this cross-table has no per cents; ask for them with per='row', 'column' or 'all'")
        value, _, low, high = found
        flags = np.array(self.reliability.flags(*found[:2]), dtype=object).reshape(value.shape)
        rows: list[dict[str, Any]] = []
        for (i, down), (j, across) in itertools.product(enumerate(self.row_labels), enumerate(self.column_labels)):
            cells = {f"axis{k}": text for k, text in enumerate(self.told_labels(names, (*down, *across)))}
            drawn = {"answer": float(value[i, j]), "low": float(low[i, j]), "high": float(high[i, j])}
            rows.append(cells | drawn | {"flag": flags[i, j]})
        measured = say_words(BASES[self.per]) if per and self.per else say_words(self.of)
        return chart_flagged(
            rows, [self.called(n) for n in names], measured, title, source, self.reliability, share=per
        )


def _free_head(head: str, taken: Mapping[str, Any]) -> str:
    """A column's head: a label may be called like an attribute, or like the total."""
    while head in taken:
        head += " "
    return head


_ENDS = ("standard_error", "low", "high")


def _known_list(values: FloatArray) -> list[float | None]:
    return [v if math.isfinite(v) else None for v in values.reshape(-1).tolist()]


def _cell_text(value: float, error: float, low: float, high: float, flag: str, decimals: int, unit: str = "") -> str:
    """A number with its interval and its flag; a dash where nothing is known, and no interval where it is exact."""
    if flag == SUPPRESS:
        return WITHHELD
    if math.isnan(value):
        return "–"
    shown = f"{_shown_number(value, decimals)}{unit}{flag}"
    if not math.isfinite(error) or math.isnan(low + high):
        return shown
    if error == 0 and low == high:
        return f"{_shown_number(value, 0 if float(value).is_integer() else decimals)}{unit}{flag}"
    down, up = value - low, high - value
    if abs(up - down) <= _EVEN * max(up, down):
        return f"{shown} ± {_shown_number((up + down) / 2, decimals)}"
    return f"{shown} [{_shown_number(low, decimals)}; {_shown_number(high, decimals)}]"


_EVEN = 0.05  # of the longer arm of an interval: so little does not show in its rounded ends


def _common_decimals(low: FloatArray, high: FloatArray) -> int:
    """Decimals of all numbers of a table: the first figure of half of the middle interval is shown."""
    half = np.sort((high - low)[np.isfinite(high - low) & (high > low)] / 2)
    return 0 if not half.size else min(6, max(0, -math.floor(math.log10(float(half[half.size // 2])))))


def _shown_number(value: float, decimals: int) -> str:
    text = f"{value:,.{decimals}f}"
    return local_number(text.lstrip("-") if not text.strip("-0.,") else text).replace("-", "−")


def cross_table(
    table: Table,
    rows: str | Sequence[str],
    columns: str | Sequence[str] | None,
    *,
    per: str | None,
    sort: str | None,
    top: int | None,
    flags: Mapping[str, float] | Reliability | None,
) -> CrossTable:
    """See `Table.crosstab`."""
    down = by_names(rows)
    across = tuple(a for a in table.attributes if a not in down) if columns is None else by_names(columns)
    names, marks = (*down, *across), read_reliability(flags)
    if not down or not across or sorted(names) != sorted(table.attributes):
        raise PlanError(
            f"rows and columns share out the attributes {', '.join(table.attributes)} of the table, each once and at "
            f"least one to either; rows are {', '.join(down) or 'none'}, columns {', '.join(across) or 'none'}"
        )
    if per is not None and per not in BASES:
        raise PlanError(f"per cents are of the 'row', the 'column' or of 'all', or None for none, not {per!r}")
    if table.values.size > _MOST:
        raise PlanError(f"a cross-table has at most {_MOST:,} cells, not {table.values.size:,}; take fewer attributes")
    labels = dict(zip(table.attributes, table.labels, strict=True))
    row_labels, column_labels = (list(itertools.product(*(labels[n] for n in given))) for given in (down, across))
    numbers, shares, notes = _released_numbers(table, down, across, per)
    kept, left = _chosen_rows(numbers[0], [" · ".join(c) for c in column_labels], sort, top)
    if left:
        notes.append(say_words("{left} rows with smaller answers are not shown; totals are of all rows.", left=left))
    places = [*kept, len(row_labels)]
    return CrossTable(
        down,
        across,
        tuple(row_labels[i] for i in kept),
        tuple(column_labels),
        _taken(numbers, places),
        per,
        None if shares is None else _taken(shares, places),
        table.confidence,
        table.of,
        table.release is not None and table.release.projection is not None,
        marks,
        tuple(notes),
        texts={} if table.release is None else _cell_words(table.release, table),
        ranked=sort is not None or top is not None,
    )


def _cell_words(release: Release, table: Table) -> dict[str, dict[str, str]]:
    """Cells in words, by attribute and label: of numbers their ranges."""
    domain = release.plan.workload.domain
    return {
        n: dict(zip(t, shown_cells(domain, n), strict=True))
        for n, t in zip(table.attributes, table.labels, strict=True)
    }


def _told_lines(lines: Sequence[tuple[str, ...]], told: Sequence[Mapping[str, str]]) -> list[int]:
    """The places of rows or columns in the order in which readers are told their labels."""
    ranks: list[dict[str, int]] = []
    for axis, words in enumerate(told):
        labels = list(dict.fromkeys(line[axis] for line in lines))
        ranks.append({labels[i]: rank for rank, i in enumerate(told_order(labels, words))})
    return sorted(range(len(lines)), key=lambda i: [rank[t] for rank, t in zip(ranks, lines[i], strict=True)])


def _taken(numbers: Numbers, places: Any) -> Numbers:
    value, error, low, high = (x[places] for x in numbers)
    return value, error, low, high


def _chosen_rows(values: FloatArray, columns: list[str], sort: str | None, top: int | None) -> tuple[list[int], int]:
    """Which rows are shown, in order, and how many are not."""
    if top is not None and (isinstance(top, bool) or not isinstance(top, int) or top < 1):
        raise PlanError(f"top is a whole number of rows from 1 on, not {top!r}")
    count = len(values) - 1
    order = list(range(count))
    by = "total" if sort is None and top is not None else sort
    if by is not None:
        if by != "total" and by not in columns:
            raise PlanError(f"rows are sorted by 'total' or by a column, the largest first, not by {by!r}")
        column = values[:count, -1 if by == "total" else columns.index(by)]
        order = np.argsort(-column, kind="stable").tolist()
    kept = order if top is None else order[:top]
    return kept, count - len(kept)


def _released_numbers(
    table: Table, down: tuple[str, ...], across: tuple[str, ...], per: str | None
) -> tuple[Numbers, Numbers | None, list[str]]:
    """Answers and shares with totals, (rows + 1, columns + 1) each, and what is said of them."""
    sizes = {n: len(labels) for n, labels in zip(table.attributes, table.labels, strict=True)}
    shape = tuple(math.prod(sizes[n] for n in given) for given in (down, across))
    pieces = [[(down, across), (down, ())], [((), across), ((), ())]]
    if table.release is None:
        return _modelled_numbers(table, (*down, *across), shape, per)
    release, level = table.release, check_confidence(table.confidence)
    parts = [
        [_answered(release, r + c, (shape[0] if r else 1, shape[1] if c else 1), level) for r, c in line]
        for line in pieces
    ]
    answers = _assembled([[p.shown for p in line] for line in parts])
    if per is None:
        return answers, None, []
    found: list[list[Numbers]] = []
    notes: dict[str, None] = {}
    for i, line in enumerate(parts):
        found.append([])
        for j, piece in enumerate(line):
            k, m = {"row": (i, 1), "column": (1, j), "all": (1, 1)}[per]
            share, said = _share_numbers(release, piece, parts[k][m], level)
            found[-1].append(share)
            notes |= dict.fromkeys(said)
    return answers, _assembled(found), list(notes)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A table of the cross-table: its cells, its rows' totals, its columns' totals, or the total of all."""

    names: tuple[str, ...]
    shown: Numbers
    value: FloatArray
    variance: FloatArray


def _answered(release: Release, names: tuple[str, ...], shape: tuple[int, int], level: float) -> _Piece:
    block = table_block(release.plan.workload.domain, names)
    sizes = release.plan.workload.domain.sizes(names)
    widths = np.broadcast_to(release.margins(block, level), sizes).reshape(-1)
    value, low, high = (x.reshape(shape) for x in interval_ends(release, block, widths, level))
    variance = np.broadcast_to(release.variances(block), sizes).reshape(shape)
    raw = value if release.projection is None else release.raw.answer_block(block).reshape(shape)
    return _Piece(names, (value, np.sqrt(variance), low, high), raw, variance)


def _assembled(parts: list[list[Numbers]]) -> Numbers:
    value, error, low, high = (np.block([[p[i] for p in line] for line in parts]) for i in range(4))
    return value, error, low, high


def _share_numbers(release: Release, top: _Piece, bottom: _Piece, level: float) -> tuple[Numbers, list[str]]:
    """Shares of the cells of one table in the cells of a smaller one that they lie in."""
    shape = top.value.shape
    if top.names == bottom.names:
        told, said = _told_sizes(release, bottom, level)
        one = np.where(told, 1.0, math.nan)
        return (one, np.where(told, 0.0, math.nan), one, one), said
    for piece in (top, bottom):
        block = table_block(release.plan.workload.domain, piece.names)
        if release.plan.strategy.deviations(block) is not None:
            raise NotAnswerable(
                "per cents need unbiased answers, and this release answers these tables with a bias; per=None leaves "
                "them out"
            )
    told, said = _told_sizes(release, bottom, level)
    b = np.broadcast_to(np.where(told, bottom.value, math.nan), shape)
    va, vb = (np.where(np.isfinite(v), v, math.nan) for v in (top.variance, np.broadcast_to(bottom.variance, shape)))
    c = _cell_covariances(release, top, bottom)
    z = widest_sum_margin(level, release.measurement.noise)
    value, error, low, high = clip_interval(fieller_interval(top.value, b, va, vb, c, z), (0.0, 1.0))
    if release.projection is not None:
        over = np.broadcast_to(bottom.shown[0], shape)
        value = np.divide(top.shown[0], over, out=np.full(shape, math.nan), where=(over > 0) & ~np.isnan(b))
        value = np.clip(value, 0.0, 1.0)
        low, high = np.minimum(low, value), np.maximum(high, value)
    return (value, error, low, high), said


def _told_sizes(release: Release, bottom: _Piece, level: float) -> tuple[Any, list[str]]:
    """Which totals can be told from noise, as for shares, and what is said where one cannot."""
    z = widest_sum_margin(level, release.measurement.noise)
    error = np.sqrt(bottom.variance)
    told = bottom.value > np.maximum(max(SIZE_ERRORS, z) * error, 0.5)
    few = int((~told).sum())
    if not few:
        return told, []
    if few == 1:
        return told, [say_words("One total has no per cents: it is below 5 standard errors.")]
    return told, [say_words("{few} totals have no per cents: they are below 5 standard errors.", few=few)]


def _cell_covariances(release: Release, top: _Piece, bottom: _Piece) -> FloatArray:
    """The covariance of every cell with the total that it lies in, in the shape of the cells."""
    strategy, domain = release.plan.strategy, release.plan.workload.domain
    one, other = (table_block(domain, piece.names) for piece in (top, bottom))
    source = strategy.source(one)
    if source is not strategy.source(other):  # the noise of different pieces is independent
        return np.zeros(top.value.shape)
    sizes = domain.sizes(top.names)
    matrix = source.covariance(one, other)  # (cells, totals)
    places = np.indices(sizes).reshape(len(sizes), -1)
    chosen = [places[top.names.index(n)] for n in bottom.names]
    within = (
        np.ravel_multi_index(chosen, domain.sizes(bottom.names)) if chosen else np.zeros(len(matrix), dtype=np.intp)
    )
    found = matrix[np.arange(len(matrix)), within] * release.measurement.noise.variance
    return found.reshape(top.value.shape)


def _modelled_numbers(
    table: Table, names: tuple[str, ...], shape: tuple[int, ...], per: str | None
) -> tuple[Numbers, Numbers | None, list[str]]:
    """Of a model no error is known: sums and quotients of its answers."""
    cells = table.values.transpose([table.attributes.index(n) for n in names]).reshape(shape)
    value = np.block([[cells, cells.sum(axis=1, keepdims=True)], [cells.sum(axis=0, keepdims=True), cells.sum()]])
    unknown = np.full(value.shape, math.nan)
    said = [say_words("These are a model's answers: no error of them is known.")]
    if per is None:
        return (value, unknown, unknown, unknown), None, said
    base = {"row": value[:, -1:], "column": value[-1:, :], "all": value[-1:, -1:]}[per]
    share = np.divide(value, base, out=np.full(value.shape, math.nan), where=np.broadcast_to(base > 0, value.shape))
    return (value, unknown, unknown, unknown), (share, unknown, unknown, unknown), said
