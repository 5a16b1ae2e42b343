"""What came of describing a table: of each column its kind, what is missing, scale, quartiles, histogram and labels.

Stored are the noisy counts of every look and the labels that were shown. All that is told is read off these, and costs
nothing; what noise hides is left blank.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from os import PathLike
from pathlib import Path
from typing import Any, cast

import numpy as np

from sfumato._util.codec import storable, value_fingerprint
from sfumato._util.description import Description, Facts, Sentences, TitledTable
from sfumato._util.documents import read_document
from sfumato._util.frames import Frame, safe_text
from sfumato.cells import Codes, Days, Edges, Grid, Kinds, Rule
from sfumato.domain import Attribute, Bins, Booleans, Categories, Dates, Domain
from sfumato.errors import InvalidInput
from sfumato.measurements import Measurement
from sfumato.operators import Scaled, Tree
from sfumato.operators.base import FloatArray
from sfumato.plans.planned import protection_lines
from sfumato.plans.profiles import ProfilePlan
from sfumato.postprocess.column_shapes import (
    ColumnCounts,
    clear_cells,
    counted_mean,
    found_range,
    quantile_cell,
    round_number,
    tree_counts,
    with_coarser,
)
from sfumato.postprocess.dependence import cramers_v, quarter_edges
from sfumato.privacy.labels import LabelLook
from sfumato.releases.files import check_facts
from sfumato.releases.released import Provenance, ReleaseBase

KINDS = ("number", "date", "text", "missing")
"""The cells of the first look."""
_POSSIBLE = {"": (0, 1, 2, 3), "integer": (0, 3), "number": (0, 3), "date": (1, 3), "boolean": (2, 3)}
"""Which of them a column of each type has."""
_PLAIN = {"integer": "number", "number": "number", "date": "date", "boolean": "boolean"}
_TOLD = 4.0  # standard errors: a kind that fewer records seem to have is noise
_RANKS = 0.125  # quartiles whose ranks may be further off are left blank: the next quartile is not much further
_TWO = 1.96  # standard errors of a 95 % interval
_QUARTERS = (0.25, 0.5, 0.75)  # the quartiles
_TENTHS = tuple(i / 10 for i in range(1, 10))  # between which a spec has its cells
_MOST_DATES = 60  # cells of dates in a spec: five years of months
_LABELS_SHOWN = 12  # in a line
_PAIRS_SHOWN = 20  # in words; all are in the JSON
_COMMON = 0.05  # of the records: labels of fewer are not counted in pairs
_MOST_COMMON = 6  # labels of a column that are
_MISS = 0.05  # the probability with which any interval of a pair may miss


@storable
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ProfileLook:
    """The noisy counts of one look at some columns, and the rule by which values of each were counted.

    Raises:
        InvalidInput: A column was measured that has no rule.
    """

    grid: Grid
    measured: Measurement

    def __post_init__(self) -> None:
        names = self.grid.names
        seen = [b.attributes for b in self.measured.blocks]  # pyright: ignore[reportAttributeAccessIssue]
        if any(len(s) not in (1, 2) or len(s) != len(seen[0]) or not {*s} <= {*names} for s in seen):
            raise InvalidInput("a look counts each column by itself, or all in pairs, by a rule for each")

    def noisy(self, name: str) -> tuple[Any, FloatArray, float] | None:
        """The sums that were taken over a column, the noisy values, and their variance; None where it was not seen."""
        for block, values in zip(self.measured.blocks, self.measured.values, strict=True):
            if block.attributes == (name,):  # pyright: ignore[reportAttributeAccessIssue]
                scaled = cast(Scaled, block.factors[0])  # pyright: ignore[reportAttributeAccessIssue]
                return scaled.operator, values / scaled.factor, self.measured.noise.variance / scaled.factor**2
        return None

    @property
    def paired(self) -> bool:
        """Whether columns were counted in pairs."""
        return any(len(b.attributes) > 1 for b in self.measured.blocks)  # pyright: ignore[reportAttributeAccessIssue]

    def rule(self, name: str) -> Any:
        """How values of a column were counted."""
        return self.grid.rules[self.grid.axis(name)]


@dataclass(frozen=True, slots=True)
class _Kinds:
    """Counts of the kinds of a column, and the standard error of each."""

    counts: tuple[float, ...]
    error: float


@dataclass(frozen=True, slots=True)
class KindCounts:
    """What the first look counted: the number of records, its variance, and of each column its kinds."""

    total: float
    variance: float
    kinds: Mapping[str, _Kinds]


def column_kinds(plan: ProfilePlan, look: ProfileLook) -> KindCounts:
    """What the first look counted, from all columns together.

    Every column counts the same records, so the counts of each are moved to one number, by least squares.
    """
    found: dict[str, tuple[FloatArray, float]] = {}
    possible = {name: list(_POSSIBLE[kind]) for name, kind in zip(plan.names, plan.types, strict=True)}
    for name in plan.names:
        seen = look.noisy(name)
        assert seen is not None
        found[name] = seen[1][possible[name]], seen[2]
    weights = {name: 1 / (len(values) * variance) for name, (values, variance) in found.items()}
    whole = sum(weights.values())
    total, spread = sum(weights[n] * float(v.sum()) for n, (v, _) in found.items()) / whole, 1 / whole
    if look.measured.total is not None:
        total, spread = float(look.measured.total), 0.0
    out: dict[str, _Kinds] = {}
    for name, (values, variance) in found.items():
        size = len(values)
        counts = np.zeros(len(KINDS))
        counts[possible[name]] = values + (total - float(values.sum())) / size
        out[name] = _Kinds(tuple(counts.tolist()), math.sqrt(variance * (1 - 1 / size) + spread / size**2))
    return KindCounts(total, spread, out)


def kind_of(kind: str, found: _Kinds) -> str:
    """What a column holds: the type says it, or most of its values do; "" where noise hides it."""
    most = max(range(3), key=lambda i: found.counts[i])
    if kind:
        return _PLAIN[kind]
    return KINDS[most] if found.counts[most] > _TOLD * found.error else ""


def column_counts(
    plan: ProfilePlan, looks: Sequence[ProfileLook], name: str, first: KindCounts
) -> tuple[Rule, ColumnCounts] | None:
    """How a column was counted last, and the counts by all looks together; None where its cells were not looked at."""
    seen = [look for look in looks[1:] if name in look.grid.names and not look.paired]
    if not seen:
        return None
    rule, counts = seen[-1].rule(name), _cells(seen[-1], name)
    if isinstance(rule, (Edges, Days)):
        if len(seen) > 1:
            counts = with_coarser(counts, rule.edges, _cells(seen[0], name), seen[0].rule(name).edges)
        if not plan.formats.get(name):  # of days in a declared format some may be numbers too, and count as these
            possible = _POSSIBLE[dict(zip(plan.names, plan.types, strict=True))[name]]
            counts = _with_kind(counts, first, name, 0 if isinstance(rule, Edges) else 1, possible)
    return rule, counts.with_total(first.total, first.variance)


def _cells(look: ProfileLook, name: str) -> ColumnCounts:
    """The counts of the cells of a column by one look."""
    seen = look.noisy(name)
    assert seen is not None
    operator, values, variance = seen
    tree = operator if isinstance(operator, Tree) else Tree(len(values), max(2, len(values)), root=False)
    return tree_counts(tree, values, variance)


def _with_kind(counts: ColumnCounts, first: KindCounts, name: str, kind: int, possible: Sequence[int]) -> ColumnCounts:
    """With the values that the first look counted: by how much they are more than the mean of the possible kinds.

    That is independent of the number of records, with which counts of kinds were made to agree.
    """
    found, share = first.kinds[name], 1 / len(possible)
    row = np.full((1, len(counts.values)), 1 - share)
    row[0, -1] = -share
    more, variance = found.counts[kind] - first.total * share, found.error**2 - first.variance * share**2
    return counts.with_sums(row, np.array([more]), np.array([[variance]]))


def paired_rule(plan: ProfilePlan, looks: Sequence[ProfileLook], name: str, first: KindCounts) -> Rule | None:
    """How a column is counted in pairs, after what was seen of it: quarters, or common labels; None for too little."""
    seen = column_counts(plan, looks, name, first)
    if seen is None or first.total <= 0:
        return None
    rule, counts = seen
    if isinstance(rule, Codes):
        often = [i for i in np.argsort(-counts.values[:-1]).tolist() if counts.values[i] >= _COMMON * first.total]
        return replace(rule, codes=tuple(rule.codes[i] for i in sorted(often[:_MOST_COMMON]))) if often else None
    if not isinstance(rule, (Edges, Days)):
        return rule
    upto = np.cumsum(counts.nonnegative[:-1])
    if _hidden(counts, float(upto[-1])):
        return None
    edges = quarter_edges(rule.edges, upto)
    return replace(rule, edges=edges) if len(edges) > 2 else None  # pyright: ignore[reportArgumentType]


def _hidden(counts: ColumnCounts, size: float) -> bool:
    """Whether noise hides the quartiles of so many values."""
    return size <= 0.0 or _TWO * float(counts.errors_upto.max()) > _RANKS * size


@dataclass(frozen=True, slots=True)
class ColumnPair:
    """How much two columns depend on each other.

    Args:
        first: The one column.
        second: The other.
        value: Cramér's V of their table, by quarters of numbers and dates and common labels: 0 where each says nothing
            of the other, 1 where one follows from the other.
        low: The lower end of an interval; those of all pairs hold together with 95 %.
        high: The upper end.
    """

    first: str
    second: str
    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Quartile:
    """A quantile of a column, and the cell that holds it, from `low` to below `high`; of dates days as texts."""

    probability: float
    value: float | str
    low: float | str
    high: float | str


@dataclass(frozen=True, slots=True)
class ColumnProfile:
    """What is told of one column. What noise hides is None or empty.

    Args:
        name: The column.
        kind: "number", "date", "text", "boolean", or "" where it cannot be told.
        shares: Of the records, the share that are numbers, dates, texts and missing, each from 0 to 1.
        share_error: Half of the 95 % interval of each.
        low: The lower end of where nearly all values lie; of dates a day.
        high: The upper end.
        beyond: The share of the values that lies below the lower end, and above the upper one, or less.
        quartiles: The three quartiles of the values.
        mean: The mean of the values, where values beyond the ends count as these.
        mean_error: Half of its 95 % interval for noise, and how far it may be off as middles of cells are counted.
        edges: The edges of the cells that were counted; of dates days by their number.
        counts: How many records each cell has: the nearest counts to the noisy ones of which none is below 0.
        labels: The labels that were shown, with the number of records of each, most frequent first.
        distinct: How many different values there are at least; None where none is sure.
    """

    name: str
    kind: str
    shares: Mapping[str, float]
    share_error: float
    low: float | str | None = None
    high: float | str | None = None
    beyond: float | None = None
    quartiles: tuple[Quartile, ...] = ()
    mean: float | None = None
    mean_error: float | None = None
    edges: tuple[float, ...] = field(default=(), repr=False)
    counts: tuple[float, ...] = field(default=(), repr=False)
    labels: tuple[tuple[str, float], ...] = ()
    distinct: int | None = None

    def facts(self) -> dict[str, Any]:
        """All of it as plain JSON values.

        Returns:
            The fields by name.
        """
        told = {
            "name": self.name,
            "kind": self.kind or None,
            "shares": {k: round(v, 6) for k, v in self.shares.items()},
            "share_error": round(self.share_error, 6),
            "low": self.low,
            "high": self.high,
            "beyond": self.beyond,
            "quartiles": [
                {"probability": q.probability, "value": q.value, "low": q.low, "high": q.high} for q in self.quartiles
            ],
            "mean": self.mean,
            "mean_error": self.mean_error,
            "edges": list(self.edges),
            "counts": [round(c, 2) for c in self.counts],
            "labels": [{"label": label, "records": round(count, 2)} for label, count in self.labels],
            "distinct_at_least": self.distinct,
        }
        return {key: value for key, value in told.items() if value not in (None, [])}


@storable
@dataclass(frozen=True, eq=False, repr=False)
class Profile(ReleaseBase):
    """A description of a table from noisy counts, which may be published.

    Args:
        plan: The plan that was carried out.
        looks: The counts of each look.
        labels: The labels that were shown of each column of texts.
        label_looks: The looks that found them: by which law, and at which price.
        provenance: When, by which versions and from which ledger it was made.

    Guarantee:
        The looks and labels together satisfy the plan's budget for the plan's privacy unit; everything else is
        post-processing.
    """

    plan: ProfilePlan
    looks: tuple[ProfileLook, ...]
    labels: dict[str, tuple[str, ...]]
    label_looks: tuple[LabelLook, ...]
    provenance: Provenance

    def agree(self) -> None:
        super().agree()
        first = self.looks[0].grid if self.looks else None
        if first is None or first.names != self.plan.names or not all(isinstance(r, Kinds) for r in first.rules):
            raise InvalidInput("its first look is not at the kinds of the columns that its plan names")
        if not {*self.labels} <= {k.attribute for k in self.label_looks}:
            raise InvalidInput("it has labels of columns in which none were looked for")

    @functools.cached_property
    def result_hash(self) -> str:
        """SHA-256 of everything that was measured and shown."""
        return value_fingerprint((self.looks, self.labels, self.label_looks))

    @property
    def records(self) -> float:
        """About how many records there are."""
        return self._kinds.total

    @functools.cached_property
    def _kinds(self) -> KindCounts:
        return column_kinds(self.plan, self.looks[0])

    @functools.cached_property
    def columns(self) -> dict[str, ColumnProfile]:
        """What is told of each column, by its name."""
        return {n: self._column(n, kind) for n, kind in zip(self.plan.names, self.plan.types, strict=True)}

    def _column(self, name: str, known: str) -> ColumnProfile:
        found, size = self._kinds.kinds[name], max(self._kinds.total, 1.0)
        shares = {k: min(1.0, max(0.0, c / size)) for k, c in zip(KINDS, found.counts, strict=True)}
        base = (name, kind_of(known, found), shares, _TWO * found.error / size)
        seen = column_counts(self.plan, self.looks, name, self._kinds)
        if seen is None:
            return self._labelled(base, None, self.labels.get(name, ()))
        rule, counts = seen
        if isinstance(rule, (Edges, Days)):
            return _measured(base, rule, counts)
        return self._labelled(base, counts, self.labels.get(name, ()) if isinstance(rule, Codes) else ("false", "true"))

    @functools.cached_property
    def pairs(self) -> tuple[ColumnPair, ...]:
        """How much columns depend on each other, those that depend most first; empty where pairs were not looked at."""
        look = self.looks[-1]
        if not look.paired:
            return ()
        shape, found = look.grid.sizes(), list[ColumnPair]()
        for block, values in zip(look.measured.blocks, look.measured.values, strict=True):
            a, b = block.attributes  # pyright: ignore[reportAttributeAccessIssue]
            table = values.reshape(shape[a], shape[b]).astype(float)
            told = cramers_v(table, look.measured.noise.variance, _MISS / len(look.measured.blocks))
            if told is not None:
                found.append(ColumnPair(a, b, told.value, told.low, told.high))
        return tuple(sorted(found, key=lambda p: -p.value))

    def _labelled(self, base: Any, counts: ColumnCounts | None, labels: Sequence[str]) -> ColumnProfile:
        numbers = [math.nan] * len(labels) if counts is None else counts.values[: len(labels)].tolist()
        pairs = sorted(zip(labels, numbers, strict=True), key=lambda p: (-p[1] if p[1] == p[1] else 0.0, p[0]))
        return ColumnProfile(*base, labels=tuple(pairs), distinct=len(labels) or None)

    # -- words ------------------------------------------------------------------------------------------

    def frame(self) -> Frame:
        """One row per column, as people read it.

        Returns:
            Name, kind, share missing, quartiles or labels, and how many different values there are at least.
        """
        rows = [column_text(c) for c in self.columns.values()]
        return Frame({key: [row[key] for row in rows] for key in rows[0]})

    def pair_frame(self) -> Frame:
        """The pairs of columns that depend most on each other.

        Returns:
            One row per pair, at most twenty: both names, Cramér's V, and the interval of it.
        """
        heads = ("column", "and", "V", "low", "high")
        names = [(safe_text(p.first), safe_text(p.second)) for p in self.pairs[:_PAIRS_SHOWN]]
        rows = [
            (*n, f"{p.value:.2f}", f"{p.low:.2f}", f"{p.high:.2f}") for n, p in zip(names, self.pairs, strict=False)
        ]
        return Frame({h: [row[i] for row in rows] for i, h in enumerate(heads)})

    def describe(self) -> Description:
        plan, n = self.plan, self.records
        facts = [
            ("guarantee", str(plan.budget)),
            *protection_lines(plan.unit, plan.price),
            ("records", f"about {max(0.0, n):,.0f}"),
            ("recorded", self.provenance.where),
        ]
        blank = [safe_text(c.name) for c in self.columns.values() if not c.quartiles and not c.labels]
        notes = [
            "Every number here is noisy: counts of records, and what follows from them. What noise hides is blank.",
            *([f"Blank: {', '.join(blank[:_LABELS_SHOWN])}{' …' * (len(blank) > _LABELS_SHOWN)}"] if blank else []),
        ]
        every = TitledTable("Columns", self.frame(), most=len(plan.names))
        pairs = [TitledTable("Pairs of columns that depend most", self.pair_frame())] if self.pairs else []
        headline = f"Description {self.provenance.name!r}: {len(plan.names):,} columns"
        return Description(headline, [Facts(facts), every, *pairs, Sentences(notes)])

    def brief(self) -> str:
        return f"{self.provenance.name!r}: {len(self.plan.names):,} columns"

    def facts(self) -> dict[str, Any]:
        """All that is told, for programs.

        Returns:
            Plain JSON values.
        """
        p, plan = self.provenance, self.plan
        return {
            "format": "sfumato description 1",
            "name": p.name,
            "created": p.created,
            "privacy": plan.privacy_facts(),
            "hashes": {"plan": plan.fingerprint, "result": self.result_hash},
            "ledger": {"one_shot": p.one_shot, "id": p.ledger_id, "sequence": p.sequence, "anchor": p.anchor},
            "table": p.table,
            "snapshot": p.snapshot,
            "versions": dict(p.versions),
            "expected": plan.promise,
            "records": round(self.records, 2),
            "columns": [c.facts() for c in self.columns.values()],
            "pairs": [
                {"columns": [p.first, p.second], **{k: round(getattr(p, k), 4) for k in ("value", "low", "high")}}
                for p in self.pairs
            ],
        }

    # -- the spec to go on with ----------------------------------------------------------------------------

    def domain(self) -> Domain | None:
        """A declaration of the columns that could be told: a proposal made from noisy answers, which is free to use.

        Returns:
            Numbers in some ten cells of about as many records, dates in periods, texts by the labels that were shown;
            None where the kinds of columns are all that was looked at, or no column could be told.
        """
        if not self.plan.whole:
            return None
        formats = self.plan.formats
        found = {
            c.name: a
            for c in self.columns.values()
            if (a := proposed_attribute(c, formats.get(c.name, ""))) is not None
        }
        return Domain(found) if found else None


def _measured(base: Any, rule: Edges | Days, counts: ColumnCounts) -> ColumnProfile:
    """A column of numbers or dates, as far as its cells tell."""
    told = counts.nonnegative[:-1]
    if _hidden(counts, float(told.sum())):
        return ColumnProfile(*base)
    edges = tuple(map(float, rule.edges))
    days = isinstance(rule, Days)

    def at(cell: int, along: float, probability: float) -> Quartile:
        low, high = edges[cell], edges[cell + 1]
        near = low + along * (high - low)
        if days:
            return Quartile(probability, *(date.fromordinal(int(d)).isoformat() for d in (near, low, high - 1)))
        return Quartile(probability, round_number(low, high, near), low, high)

    quartiles = tuple(at(*quantile_cell(told, p), p) for p in _QUARTERS)
    clear = int(clear_cells(counts).sum())
    shape: dict[str, Any] = {"quartiles": quartiles, "edges": edges, "counts": tuple(told.tolist())}
    shape["distinct"] = clear or None
    first, last, beyond = found_range(counts)
    shape["beyond"] = beyond
    if days:
        low, high = (date.fromordinal(int(d)).isoformat() for d in (edges[first], edges[last + 1] - 1))
        return ColumnProfile(*base, low=low, high=high, **shape)
    mean, error, within = counted_mean(counts, edges, first, last)
    shape |= {"mean": mean, "mean_error": _TWO * error + within}
    return ColumnProfile(*base, low=edges[first], high=edges[last + 1], **shape)


def proposed_attribute(column: ColumnProfile, format: str) -> Attribute | None:
    """A declaration of a column, from what is told of it; None where that is too little. `format` is that of days."""
    if column.kind == "boolean":
        return Booleans(outside="other", missing="other")
    if column.labels:
        return Categories([label for label, _ in column.labels], outside="other", missing="other")
    if not column.quartiles:
        return None
    if column.kind == "date":
        low, high = (date.fromisoformat(str(d)) for d in (column.low, column.high))
        for by in ("day", "week", "month", "quarter", "year"):
            made = Dates(low, high, cast(Any, by), format, outside="clamp", missing="other")
            if made.declared_size <= _MOST_DATES:
                return made
        return made
    return Bins(_proposed_edges(column), outside="clamp", missing="other")


def _proposed_edges(column: ColumnProfile) -> list[float]:
    """Round numbers near the tenths of a column, between its ends."""
    counts, edges = np.array(column.counts), column.edges
    first, last = float(column.low or 0.0), float(column.high or 0.0)

    def value(p: float) -> float:
        cell, along = quantile_cell(counts, p)
        return min(last, max(first, edges[cell] + along * (edges[cell + 1] - edges[cell])))

    found = [round_number(first - (value(_TENTHS[0]) - first) / 4, math.nextafter(first, math.inf), first)]
    end = round_number(last, last + max((last - value(_TENTHS[-1])) / 4, math.ulp(last)), last)
    for p in _TENTHS:
        low, high = value(p - 0.04), value(p + 0.04)
        cell, _ = quantile_cell(counts, p)
        if high <= edges[cell + 1]:  # many values are one, and its own cell begins with it
            low, high = edges[cell], edges[cell + 1]
        near = round_number(low, high, value(p)) if high > low else low
        if found[-1] < near < end:
            found.append(near)
    found.append(end)
    return [int(x) if x == int(x) and abs(x) < 2**53 else x for x in found]


def other_kinds(column: ColumnProfile) -> dict[str, float]:
    """The shares of records whose values are of another kind than the column, so that they cannot be read as its own.

    Those that are clearly more than noise.
    """
    least = _TOLD / _TWO * column.share_error
    skipped = (column.kind, "missing") if column.kind in KINDS else KINDS
    return {kind: share for kind, share in column.shares.items() if kind not in skipped and share > least}


def column_text(column: ColumnProfile) -> dict[str, str]:
    """A column as a row of words."""

    def shown(value: float | str | None) -> str:
        return "" if value is None else value if isinstance(value, str) else f"{value:,.6g}"

    missing = f"{100 * column.shares['missing']:.1f} % ± {100 * column.share_error:.1f}"
    lower, median, upper = (shown(q.value) for q in column.quartiles) if column.quartiles else ("", "", "")
    labels = ", ".join(safe_text(label) for label, _ in column.labels[:_LABELS_SHOWN])
    more = len(column.labels) - _LABELS_SHOWN
    others = other_kinds(column)
    kinds = {column.kind: column.shares[column.kind], **others} if others else {}
    return {
        "column": safe_text(column.name),
        "kind": ", ".join(f"{kind} {100 * share:.1f} %" for kind, share in kinds.items()) or column.kind,
        "missing": missing,
        "from": shown(column.low),
        "lower quartile": lower,
        "median": median,
        "upper quartile": upper,
        "to": shown(column.high),
        "mean": "" if column.mean is None else f"{column.mean:,.4g}",
        "labels": labels + (f" and {more:,} more" if more > 0 else ""),
        "distinct": "" if column.distinct is None else f"≥ {column.distinct:,}",
    }


PROFILE = "profile.sfumato"
"""The file that holds all of a description, in its folder."""


def load_profile(path: str | PathLike[str]) -> Profile:
    """Read a description that was stored: its file, or its folder with what profile.json says of it.

    Raises InvalidInput for any other file, and where profile.json says something else.
    """
    place = Path(path)
    if not place.is_dir():
        return read_document(place, Profile)
    found, said = read_document(place / PROFILE, Profile), place / "profile.json"
    try:
        facts = json.loads(said.read_text(encoding="utf-8")) if said.exists() else found.facts()
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{said} cannot be read: {error}") from error
    check_facts(said, facts, found.facts())
    return found
