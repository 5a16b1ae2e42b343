"""The page of a description of a table, and the spec to go on with."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import date
from fractions import Fraction
from typing import Any

import numpy as np

from sfumato._util.description import Chart, Description, DescriptionBlock, Facts, Figures, Sentences, TitledTable
from sfumato._util.frames import safe_text
from sfumato.domain import Attribute, Bins, Booleans, Categories, Domain, Measure
from sfumato.plans.planned import rows_text
from sfumato.present.charts import column_chart, label_chart
from sfumato.present.page import page_text
from sfumato.present.words import budget_statement
from sfumato.releases.profiles import ColumnProfile, Profile, other_kinds
from sfumato.workloads.schema import spec_text, toml_text

_BARS = 20  # of a histogram; where noise hides more, fewer
_DISCOVER = Fraction(1, 5)  # of the budget, as specs have it unless they say something else
_MOST_PAIRED = 12  # columns of which a spec asks for tables of two as well: 66 of them


def profile_page(profile: Profile) -> str:
    """The page: one file that works offline.

    Args:
        profile: The description.

    Returns:
        HTML.
    """
    plan, n = profile.plan, max(0.0, profile.records)
    told = sum(bool(c.quartiles or c.labels) for c in profile.columns.values())
    lead = (
        f"A first look at {len(plan.names):,} columns that nobody had described, under differential privacy. Every "
        "number is noisy, and what noise hides is blank. The spec beside this page declares what was found, to go on "
        "with."
    )
    figures = Figures(
        [
            ("Records", f"{n:,.0f}", "about"),
            ("Columns", f"{len(plan.names):,}", f"{told:,} with quartiles or labels"),
            (
                "Shares",
                f"± {100 * plan.share_error / max(n, 1.0):.2g} %",
                "of numbers, dates, texts and missing values",
            ),
        ]
    )
    facts = next(b for b in profile.describe().blocks if isinstance(b, Facts))
    reading = Sentences(
        [
            "Quartiles are told to the cell that holds them, by its roundest number. The ends are those between which "
            "nearly all values lie, as far as noise lets tell; in the mean, values beyond count as these. Distinct is "
            "how many cells or labels surely hold records, so there are at least as many different values.",
            "A label that is not shown may be there all the same: few records have it, or it is longer than 256 bytes.",
        ]
    )
    every = TitledTable("", profile.frame(), most=len(plan.names), label="Columns")
    charts: list[DescriptionBlock] = []
    for i, column in enumerate(profile.columns.values()):
        if (drawn := _column_drawing(column)) is not None:
            charts.append(Chart(f"column-{i}", safe_text(column.name), _caption(column), drawn, beside=True))
    pairs = Sentences(
        [
            "V is Cramér's: 0 where each column says nothing of the other, 1 where one follows from the other, by "
            "quarters of numbers and dates and common labels. What noise adds is taken off. The intervals hold "
            "together with 95 %; where the lower end is 0 the two may not depend on each other at all."
        ]
    )
    most = TitledTable("", profile.pair_frame(), label="Pairs of columns")
    sections = [
        Description("Columns", [reading, every], "columns", "Columns"),
        *([Description("Pairs that depend most", [pairs, most], "pairs", "Pairs")] if profile.pairs else []),
        *([Description("Values", charts, "values", "Values")] if charts else []),
        Description("Budget and provenance", [Sentences([budget_statement(plan.budget)]), facts], "budget", "Budget"),
    ]
    page = Description(safe_text(profile.provenance.name), [Sentences([lead]), figures, *sections])
    return page_text(page, "Description of a table with differential privacy", rows_text(plan.unit))


def _caption(column: ColumnProfile) -> str:
    missing = f"{100 * column.shares['missing']:.1f} % missing."
    if column.labels:
        return f"Labels that were shown, with about how many records; {missing}"
    return f"About how many records have which values; the outermost bars hold what lies beyond; {missing}"


def _column_drawing(column: ColumnProfile) -> Any:
    """A chart of a column; None where nothing is told of it."""
    if column.labels:
        rows = [{"cell": safe_text(t), "records": max(0.0, n)} for t, n in column.labels if math.isfinite(n)]
        return label_chart(rows) if rows else None
    if not column.quartiles:
        return None
    dates = column.kind == "date"
    rows = histogram_rows(column)
    for row in rows:
        start, end = row["start"], row["end"]
        row["height"] = row["records"] / max(end - start, 1e-300)
        if dates:
            row["start"], row["end"] = (date.fromordinal(int(d)).isoformat() for d in (start, end))
        row["cell"] = f"{row['start']} to {row['end']}" if dates else f"{start:,.6g} to {end:,.6g}"
    return column_chart(rows, dates=dates)


def histogram_rows(column: ColumnProfile) -> list[dict[str, Any]]:
    """Bars of about equal width between the ends of a column; the first and last hold what lies beyond."""
    edges, counts = np.asarray(column.edges), np.asarray(column.counts)
    low, high = (
        float(date.fromisoformat(str(x)).toordinal()) if isinstance(x, str) else float(x or 0.0)
        for x in (column.low, column.high)
    )
    inner = [i for i in range(1, len(edges) - 1) if low < edges[i] < high]
    wanted = np.linspace(low, high, _BARS + 1)[1:-1]
    cuts = sorted({min(inner, key=lambda i: abs(edges[i] - w)) for w in wanted}) if inner else []
    sums = np.add.reduceat(counts, [0, *cuts])
    ends = [low, *(float(edges[i]) for i in cuts), high]
    return [
        {"start": a, "end": b, "records": max(0.0, float(c))}
        for a, b, c in zip(ends, ends[1:], sums.tolist(), strict=False)
        if b > a
    ]


def profile_spec(profile: Profile, source: str, written: Mapping[str, str] | None = None) -> str:
    """A spec that declares what was found and runs as it is; or, where nothing was, one with blanks.

    Args:
        profile: The description.
        source: The table, as the spec names it; "" where it has no name.
        written: How the table is written, as the keys of [data] do.

    Returns:
        TOML.
    """
    plan, domain = profile.plan, profile.domain()
    declared: Domain | dict[str, Attribute | None] = _blanks(profile) if domain is None else domain
    left = [] if domain is None else [c for n, c in profile.columns.items() if n not in domain.names]
    mixed = [] if domain is None else [c for n, c in profile.columns.items() if n in domain.names and other_kinds(c)]
    data = {"source": source} if source else {}
    data |= {"table": profile.provenance.table} if profile.provenance.table else {}
    data |= written or {}
    privacy = {**plan.budget.to_json(), "neighbours": plan.unit.neighbours.value}
    privacy |= {} if plan.unit.person is None else {"person": plan.unit.person}
    rows = [] if plan.unit.person is None else [f"rows_per_person = {plan.unit.rows_per_person}"]
    pairs = domain is not None and 1 < len(domain.names) <= _MOST_PAIRED
    blank = 'fill in every "", which is what could not be told: the file refuses to run until then'
    lines = [
        "# A proposal, made from the noisy answers of a description: using and changing it costs nothing.",
        "# The budget is that of the description; a release pays it once more.",
        *([f"# {blank[0].upper()}{blank[1:]}."] if domain is None else []),
        *(f"# not declared: {_comment(c)}" for c in left),
        *(f"# of several kinds: {_kinds_comment(c)}" for c in mixed),
        "",
        *(["[data]", *_keys(data), ""] if data else []),
        spec_text(declared),
        *([] if domain is None else _measure_comments(domain)),
        "[privacy]",
        *_keys(privacy),
        *rows,
        "",
        "[[queries]]",
        'name = "main"',
        "upto = 2" if pairs else "marginals = 1",
        "",
        "[[queries]]",
        'name = "people"',
        "total = true",
        "",
    ]
    return "\n".join(lines)


def _measure_comments(domain: Domain) -> list[str]:
    """How each column of numbers is declared where it is added up, with the range that was found."""
    numbers = {name: a for name, a in domain.attributes.items() if isinstance(a, Bins)}
    if not numbers:
        return []
    lines = ["# A number whose sums and means are asked, in place of its cells above (then ask means = NAME):"]
    for name, bins in numbers.items():
        declared = spec_text({name: Measure(bins.edges[0], bins.edges[-1])})
        lines += [f"# {line}" for line in declared.splitlines() if line]
    return [*lines, ""]


def _keys(values: Mapping[str, str]) -> list[str]:
    return [f"{name} = {toml_text(value)}" for name, value in values.items()]


def _blanks(profile: Profile) -> dict[str, Attribute | None]:
    """What the kinds of columns say alone."""
    found: dict[str, Attribute | None] = {}
    for name, column in profile.columns.items():
        discovered = column.kind == "text" and profile.plan.budget.thresholds is not None
        text = Categories(discover=_DISCOVER, missing="other") if discovered else None
        found[name] = Booleans(outside="other", missing="other") if column.kind == "boolean" else text
    return found


def _kinds_comment(column: ColumnProfile) -> str:
    """What of a column its declaration does not read."""
    shares = {k: f"{100 * share:.0f} %" for k, share in other_kinds(column).items()}
    others = " and ".join(f"{kind}s, {share} of all records," for kind, share in shares.items())
    return f"{safe_text(column.name)} is declared as {column.kind}s; {others} count as (other)"


def _comment(column: ColumnProfile) -> str:
    """Why a column is not declared."""
    kind = {"": "its kind cannot be told", "text": "texts of which no label was shown"}.get(column.kind)
    return f"{safe_text(column.name)} ({kind or f'{column.kind}s of which too little can be told'})"
