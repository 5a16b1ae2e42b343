"""The charts of a page as Vega-Lite specifications in plain dicts. Colours are the page's own CSS variables."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sfumato.domain import OTHER

if TYPE_CHECKING:
    from sfumato.present.answers import Agreement, Distribution, SmallTable
    from sfumato.present.projected import Moved
    from sfumato.present.words import Family

__all__ = [
    "ACCENT",
    "COLOURS",
    "CONFIG",
    "LONGEST",
    "agreement_chart",
    "distribution_chart",
    "family_chart",
    "framed",
    "moved_chart",
    "name_counts",
    "over_time_chart",
    "table_chart",
    "tip",
]


Spec = dict[str, Any]

_NAMED = 40  # parts with a line and a label each; more become strips without labels
_DOTS = 3_000  # more hide one another, and each has its size in the page
LONGEST = 20  # bars that fit a screen without scrolling
_STEP = 20  # pixels from one bar to the next: a line of text
# squares of a map, of 4 attributes and of 55: fewer are a list, more too small to see
_LEAST_PAIRS, _MOST_PAIRS = 6, 1_500
_NARROW, _WIDE = 360, 900  # pixels of a legend: beside another chart, and of the page
COLOURS = [f"var(--series-{i})" for i in range(1, 9)]
ACCENT = "var(--series-1)"
# an irrational step spreads neighbours evenly over a band without randomness
_GOLDEN = (math.sqrt(5) - 1) / 2

_FONT = "system-ui, -apple-system, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif"

CONFIG: Spec = {
    "background": "transparent",
    "font": _FONT,
    "view": {"stroke": None},
    "axis": {
        "labelColor": "var(--muted)",
        "titleColor": "var(--muted)",
        "gridColor": "var(--line)",
        "domainColor": "var(--line)",
        "tickColor": "var(--line)",
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "titlePadding": 8,
        "labelPadding": 6,
        "labelLimit": 240,
        "labelOverlap": "greedy",
        "labelSeparation": 8,
    },
    "axisQuantitative": {"labelFlush": False},
    "legend": {
        "labelColor": "var(--ink)",
        "titleColor": "var(--muted)",
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "orient": "top",
        "labelLimit": 200,
        "symbolOpacity": 1,
    },
    "range": {"category": COLOURS},
}


def tip(field: str, title: str, form: str | None = None) -> Spec:
    number = {} if form is None else {"format": form}
    return {"field": field, "title": title, "type": "nominal" if form is None else "quantitative"} | number


def _legend(title: str | None, groups: Sequence[str], width: int) -> Spec:
    """A legend in as many columns as fit a width in pixels."""
    widest = max(map(len, groups), default=1)
    return {"title": title, "columns": max(1, min(6, width // (8 * min(widest, 26) + 26)))}


def framed(rows: list[dict[str, Any]], height: Any) -> Spec:
    return {
        "data": {"values": rows},
        "width": "container",
        "height": height,
    }


def _size_scale(values: Sequence[float]) -> Spec:
    """Logarithmic where sizes differ by more than a factor of 20, else from zero."""
    wide = max(values) > 20 * min(values)
    if wide:
        return {"type": "log", "nice": False, "domain": [min(values) / 1.2, max(values) * 1.2]}
    return {"zero": True, "nice": True}


# -- errors --------------------------------------------------------------------------------------------


def family_chart(found: Sequence[Family]) -> Spec | None:
    """Predicted errors of families of one unit: named up to 40 of them, else as strips by part and order."""
    positive = sorted((f for f in found if 0 < f.rmse < math.inf), key=lambda f: f.rmse)
    if not positive:
        return None
    parts = list(dict.fromkeys(f.part for f in found))
    return _named(positive, parts) if len(positive) <= _NAMED else _strips(positive, parts)


def _rows(found: Sequence[Family]) -> list[dict[str, Any]]:
    return [
        {
            "name": f.name,
            "part": f.part,
            "queries": f.queries,
            "rmse": float(f"{f.rmse:.5g}"),
            "worst": float(f"{f.worst:.5g}"),
            "margin": float(f"{f.margin:.5g}"),
        }
        for f in found
    ]


_FAMILY_TIPS = [
    tip("name", "table"),
    tip("part", "part"),
    tip("queries", "queries", ",d"),
    tip("rmse", "typical error", ",.4~r"),
    tip("worst", "largest standard error", ",.4~r"),
    tip("margin", "95 % margin", ",.4~r"),
]


def _named(found: Sequence[Family], parts: list[str]) -> Spec:
    rows = _rows(found)
    x: Spec = {
        "type": "quantitative",
        "title": f"typical error, {found[0].unit}",
        "scale": _size_scale([f.rmse for f in found]),
        "axis": {"tickCount": 6, "format": ",.6~r", "domain": False},
    }
    seen: dict[str, int] = {}
    for row in rows:
        seen[row["name"]] = seen.get(row["name"], 0) + 1
        # two families may share a name: each needs a line of its own
        row["line"] = row["name"] if seen[row["name"]] == 1 else f"{row['name']} ({seen[row['name']]})"
    axis: Spec = {"ticks": False, "domain": False, "grid": True, "labelLimit": 320}
    spec = framed(rows, {"step": _STEP})
    spec["encoding"] = {
        "y": {"field": "line", "type": "nominal", "sort": None, "title": None, "axis": axis},
        "x": x | {"field": "rmse"},
        "tooltip": _FAMILY_TIPS,
    }
    spec["mark"] = {"type": "circle", "size": 90, "opacity": 1, "color": ACCENT}
    return _coloured(spec, parts)


def _strips(found: Sequence[Family], parts: list[str]) -> Spec:
    step = max(1, math.ceil(len(found) / _DOTS))
    kept = [*found[:-1:step], found[-1]]
    rows = _rows(kept)
    for i, (row, family) in enumerate(zip(rows, kept, strict=True)):
        ways = f"{family.order} attribute{'' if family.order == 1 else 's'}" if family.order else "total"
        row |= {"strip": ways, "jitter": round((i * _GOLDEN) % 1, 3), "order": family.order}
    # what is rare is drawn last, above the crowd
    often = Counter(row["part"] for row in rows)
    rows.sort(key=lambda row: -often[row["part"]])
    spec = framed(rows, {"step": 84})
    spec["encoding"] = {
        "y": {
            "field": "strip",
            "type": "ordinal",
            "title": None,
            "sort": {"field": "order"},
            "axis": {"ticks": False, "domain": False, "labelFontSize": 13, "labelColor": "var(--ink)"},
        },
        "yOffset": {"field": "jitter", "type": "quantitative", "scale": {"domain": [-0.15, 1.15]}},
        "x": {
            "field": "rmse",
            "type": "quantitative",
            "title": f"typical error, {found[0].unit}",
            "scale": _size_scale([f.rmse for f in kept]),
            "axis": {"tickCount": 8, "format": ",.6~r", "domain": False},
        },
        "tooltip": _FAMILY_TIPS,
    }
    spec["mark"] = {"type": "circle", "size": 36, "opacity": 0.7, "color": ACCENT}
    return _coloured(spec, parts)


def pair_map(found: Sequence[Family]) -> Spec | None:
    """The typical error of every table over two attributes, one down and one across; for a picture of 6 to 1,500."""
    pairs = {f.attributes: f for f in found if len(f.attributes) == 2 and 0 < f.rmse < math.inf}
    if not _LEAST_PAIRS <= len(pairs) <= _MOST_PAIRS:
        return None
    order = list(dict.fromkeys(a for names in pairs for a in names))
    rows = [
        r | {"across": f.attributes[1], "down": f.attributes[0]}
        for f, r in zip(pairs.values(), _rows(list(pairs.values())), strict=True)
    ]
    spec = framed(rows, {"step": _STEP})
    axis: Spec = {"ticks": False, "domain": False, "labelLimit": 160}
    # a scale between colours of the page's theme cannot be drawn, one of opacity can
    kind = _size_scale([f.rmse for f in pairs.values()]).get("type", "linear")
    depth: Spec = {"type": kind, "range": [0.15, 1.0]}
    spec["encoding"] = {
        "x": {
            "field": "across",
            "type": "nominal",
            "sort": order,
            "title": None,
            "axis": axis | {"labelAngle": -45, "labelOverlap": False},
        },
        "y": {"field": "down", "type": "nominal", "sort": order, "title": None, "axis": axis},
        "opacity": {"field": "rmse", "type": "quantitative", "title": "typical error", "scale": depth},
        "tooltip": _FAMILY_TIPS,
    }
    spec["mark"] = {"type": "rect", "color": ACCENT}
    return spec


def _coloured(spec: Spec, parts: list[str]) -> Spec:
    """Tell parts apart by colour where there are several, but not too many."""
    if 1 < len(parts) <= len(COLOURS):
        colour: Spec = {"field": "part", "type": "nominal", "sort": parts, "legend": _legend(None, parts, _WIDE)}
        spec["encoding"]["color"] = colour
    return spec


# -- answers -------------------------------------------------------------------------------------------

_ANSWER_TIPS = [
    tip("cell", "cell"),
    tip("answer", "answer", ",.6~r"),
    tip("low", "95 % from", ",.6~r"),
    tip("high", "95 % to", ",.6~r"),
]


_BEFORE = "before"  # the field of unprojected answers


def table_chart(table: SmallTable) -> Spec:
    """Answers with 95 % intervals; where they are projected, circles for the unprojected ones."""
    paired = "group" in table.rows[0]
    along = table.unequal or (table.ordered and len(table.rows) > 12)
    drawn = _pairs if paired else _classes if table.unequal else _along if along else _down
    spec = drawn(table)
    if _BEFORE in table.rows[0]:
        # around the dot of a pair, on the bar of a single attribute
        ring: Spec = {
            "type": "point",
            "size": 110 if paired else 30,
            "filled": False,
            "strokeWidth": 1.2,
            "opacity": 1,
        }
        ring |= {} if paired else {"color": "var(--series-2)"}
        place = _per_unit("per_before", table) if table.unequal else _count(_BEFORE)
        at = {"x": spec["layer"][1]["encoding"]["x"]} if table.unequal else {}
        spec["layer"].append({"mark": ring, "encoding": {"y" if along else "x": place} | at})
        spec["encoding"]["tooltip"] = [*spec["encoding"]["tooltip"], tip(_BEFORE, "before projection", ",.6~r")]
    return spec


def _down(table: SmallTable) -> Spec:
    rows, apart = _parted(table) if len(table.names) == 1 else (table.rows, [])
    if len(rows) > LONGEST:
        rows = sorted(rows, key=lambda r: -r["answer"])[:LONGEST]
    spec = framed([*rows, *apart], {"step": _STEP})
    y = {"field": "cell", "type": "nominal", "title": None, "axis": {"ticks": False, "domain": False}}
    spec["encoding"] = {"y": y | _places(rows, apart), "tooltip": _ANSWER_TIPS}
    spec["layer"] = _bars("x", {"height": {"band": 0.62}}, 1.5)
    return spec


def _parted(table: SmallTable) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The declared cells, and the one that holds what was not declared."""
    return [r for r in table.rows if not r["other"]], [r for r in table.rows if r["other"]]


def _places(rows: list[dict[str, Any]], apart: list[dict[str, Any]]) -> Spec:
    """Cells in their order, and after a gap the one that holds what was not declared."""
    gap = [" "] if rows and apart else []
    return {"sort": None, "scale": {"domain": [*(r["cell"] for r in rows), *gap, *(r["cell"] for r in apart)]}}


_GREY: Spec = {"condition": {"test": "datum.other", "value": "var(--muted)"}, "value": ACCENT}


def _bars(along: str, size: Spec, stroke: float) -> list[Spec]:
    """Answers as bars, each with the line of its interval; what was not declared is grey."""
    bar = {"type": "bar", **size, "opacity": 0.55}
    rule = {"type": "rule", "strokeWidth": stroke, "color": "var(--ink)"}
    return [
        {"mark": bar, "encoding": {along: _count("answer"), "color": _GREY}},
        {"mark": rule, "encoding": {along: _count("low"), f"{along}2": {"field": "high"}}},
    ]


def _count(field: str) -> Spec:
    axis = {"tickCount": 5, "format": ",.6~r", "domain": False}
    return {"field": field, "type": "quantitative", "title": "records", "axis": axis}


def name_counts(spec: Any, of: str) -> None:
    """Name what is counted on every axis and in every word of some charts, where these are not all records."""
    if isinstance(spec, dict):
        if spec.get("title") in ("records", "share of records"):
            spec["title"] = spec["title"].replace("records", of)
        for key, value in spec.items():
            if key != "values":
                name_counts(value, of)
    elif isinstance(spec, list):
        for value in spec:
            name_counts(value, of)


def _along(table: SmallTable) -> Spec:
    spec = framed(table.rows, 170)
    axis = {"labelAngle": 0, "ticks": False, "labelOverlap": "greedy", "labelSeparation": 6}
    rows, apart = _parted(table)
    x = {"field": "cell", "type": "nominal", "title": None, "axis": axis}
    spec["encoding"] = {"x": x | _places(rows, apart), "tooltip": _ANSWER_TIPS}
    spec["layer"] = _bars("y", {"width": {"band": 0.8}}, 1.2)
    return spec


def _classes(table: SmallTable) -> Spec:
    """Classes of several widths: areas are counts, so heights are counts by width; what was not declared has none."""
    spec = framed([r for r in table.rows if "start" in r], 200)
    axis: Spec = {"grid": False, "tickCount": 10, "format": ",.6~r"}
    x: Spec = {"type": "quantitative", "title": table.names[0], "scale": {"zero": False, "nice": False}, "axis": axis}
    spec["encoding"] = {"tooltip": [*_ANSWER_TIPS, tip("per_unit", f"per unit of {table.names[0]}", ",.4~r")]}
    bar: Spec = {"type": "rect", "color": ACCENT, "opacity": 0.55, "stroke": "var(--paper)"}
    rule: Spec = {"type": "rule", "strokeWidth": 1.2, "color": "var(--ink)"}
    high = _per_unit("per_unit", table) | {"scale": {"zero": True}}
    ends: Spec = {"x": x | {"field": "start"}, "x2": {"field": "end"}, "y": high, "y2": {"datum": 0}}
    middle: Spec = {"x": x | {"field": "middle"}}
    between: Spec = {"y": _per_unit("per_low", table), "y2": {"field": "per_high"}}
    spec["layer"] = [{"mark": bar, "encoding": ends}, {"mark": rule, "encoding": middle | between}]
    return spec


def _per_unit(field: str, table: SmallTable) -> Spec:
    return _count(field) | {"title": f"records per unit of {table.names[0]}"}


def _pairs(table: SmallTable) -> Spec:
    groups = list(dict.fromkeys(r["group"] for r in table.rows))
    spec = framed(table.rows, {"step": max(_STEP, 8 * len(groups)), "for": "position"})
    spec["encoding"] = {
        "y": {
            "field": "cell",
            "type": "nominal",
            "sort": None,
            "title": None,
            "axis": {"ticks": False, "domain": False, "grid": True},
        },
        "yOffset": {"field": "group", "type": "nominal", "sort": groups, "scale": {"paddingOuter": 0.5}},
        "color": {
            "field": "group",
            "type": "nominal",
            "sort": groups,
            "scale": {"range": _colours(groups)},
            "legend": _legend(table.names[1], groups, _NARROW),
        },
        "tooltip": [_ANSWER_TIPS[0], tip("group", table.names[1]), *_ANSWER_TIPS[1:]],
    }
    spec["layer"] = [
        {
            "mark": {"type": "rule", "strokeWidth": 1.5},
            "encoding": {"x": _count("low"), "x2": {"field": "high"}},
        },
        {"mark": {"type": "circle", "size": 44, "opacity": 1}, "encoding": {"x": _count("answer")}},
    ]
    return spec


def _colours(groups: Sequence[str]) -> list[str]:
    """A colour for every group; what was not declared is grey."""
    return ["var(--muted)" if g == OTHER else COLOURS[i % len(COLOURS)] for i, g in enumerate(groups)]


def distribution_chart(found: Distribution) -> Spec:
    """Cumulative shares with 95 % bands."""
    spec = framed(found.rows, 260)
    share: Spec = {"type": "quantitative", "title": "share of records", "scale": {"domain": [0, 1]}}
    share["axis"] = {"format": "%", "tickCount": 5, "domain": False}
    tips = [tip("cell", "up to"), tip("share", "share", ".2%"), tip("low", "95 % from", ".2%")]
    tips += [tip("high", "95 % to", ".2%")] + ([tip("group", ", ".join(found.by))] if found.by else [])
    x: Spec = {"field": "x", "type": "quantitative", "title": found.attribute}
    x |= {
        "scale": {"zero": False, "nice": False},
        "axis": {"grid": False, "tickCount": 10, "format": "d" if found.years else ",.6~r"},
    }
    if found.days:
        x |= {"type": "temporal", "scale": {"type": "utc", "nice": False}, "axis": {"grid": False, "tickCount": 10}}
    spec["encoding"] = {"x": x, "tooltip": tips}
    colour: Spec = {"value": ACCENT}
    if found.by:
        groups = list(dict.fromkeys(r["group"] for r in found.rows))
        colour = {"field": "group", "type": "nominal", "sort": groups}
        colour["legend"] = _legend(", ".join(found.by), groups, _WIDE)
        colour["scale"] = {"range": _colours(groups)}
    spec["encoding"]["color"] = colour
    spec["layer"] = [
        {
            "mark": {"type": "area", "opacity": 0.22},
            "encoding": {"y": share | {"field": "low"}, "y2": {"field": "high"}},
        },
        {"mark": {"type": "line", "strokeWidth": 2}, "encoding": {"y": share | {"field": "share"}}},
    ]
    return spec


def over_time_chart(rows: list[dict[str, Any]]) -> Spec:
    """One query after every period, as a line in two bands, each by itself and all together; where few, with dots."""
    spec = framed(rows, 220)
    axis = {"labelAngle": 0, "ticks": False, "labelOverlap": "greedy", "labelSeparation": 12}
    x: Spec = {"field": "period", "type": "ordinal", "sort": None, "title": None, "axis": axis}
    tips = [tip("period", "period"), tip("value", "records", ",.6~r")]
    spec["encoding"] = {"x": x, "tooltip": [*tips, tip("low", "95 % from", ",.6~r"), tip("high", "95 % to", ",.6~r")]}
    line: Spec = {"type": "line", "strokeWidth": 2, "color": ACCENT, "point": len(rows) <= _NAMED}
    bands = [("all_low", "all_high", 0.12), ("low", "high", 0.22)]
    spec["layer"] = [
        {
            "mark": {"type": "area", "opacity": opacity, "color": ACCENT},
            "encoding": {"y": _count(low), "y2": {"field": high}},
        }
        for low, high, opacity in bands
    ]
    spec["layer"].append({"mark": line, "encoding": {"y": _count("value")}})
    return spec


_HEIGHT = 340  # pixels: about a square beside the text


def _against(rows: list[dict[str, Any]], x: Spec, y: Spec, ends: tuple[float, float], dots: Spec) -> Spec:
    """Dots with the line of equality from end to end; `dots` holds their mark and further encodings."""
    line = [{x["field"]: v, y["field"]: v} for v in ends]
    dashed = {"type": "line", "color": "var(--muted)", "strokeDash": [4, 4], "strokeWidth": 1.2}
    encoding = {"x": x, "y": y}
    spec = framed(rows, _HEIGHT)
    spec["layer"] = [
        {"data": {"values": line}, "mark": dashed, "encoding": encoding},
        {"mark": dots["mark"], "encoding": encoding | dots["encoding"]},
    ]
    return spec


def agreement_chart(found: Agreement) -> Spec | None:
    """Actual against predicted errors on equal logarithmic axes."""
    rows = [r for r in found.rows if r["predicted"] > 0 and r["actual"] > 0]
    if not rows:
        return None
    values = [v for r in rows for v in (r["predicted"], r["actual"])]
    ends = min(values) / 1.2, max(values) * 1.2
    scale = {"type": "log", "domain": list(ends), "nice": False}
    axis = {"tickCount": 6, "format": ",.6~r", "domain": False}
    x = {"field": "predicted", "type": "quantitative", "scale": scale, "axis": axis, "title": "predicted error"}
    tips = [tip("name", "table"), tip("queries", "queries", ",d")]
    tips += [tip("predicted", "predicted", ",.4~r"), tip("actual", "actual", ",.4~r")]
    colour = {"field": "order", "type": "ordinal", "title": "attributes", "scale": {"range": COLOURS}}
    mark = {"type": "circle", "size": 42, "opacity": 0.65}
    dots = {"mark": mark, "encoding": {"color": colour, "tooltip": tips}}
    return _against(rows, x, x | {"field": "actual", "title": "actual error"}, ends, dots)


def moved_chart(found: Moved) -> Spec | None:
    """Projected against unprojected answers: linear up to the noise, logarithmic beyond where counts are large."""
    if len(found.rows) < 2 or found.noise <= 0:
        return None
    values = [v for r in found.rows for v in (r["before"], r["after"])]
    ends = min(values), max(values)
    axis: Spec = {"format": ",.6~r", "domain": False, "tickCount": 6}
    scale: Spec = {"zero": True, "nice": True}
    if max(map(abs, ends)) > 30 * found.noise:
        scale = {"type": "symlog", "constant": found.noise, "nice": False}
        # the scale's own ticks are those of a linear one: name powers of ten above the noise
        first = math.ceil(math.log10(found.noise))
        powers = [s * 10.0**i for i in range(first, first + 12) for s in (1, -1)]
        axis["values"] = sorted(v for v in (0.0, *powers) if ends[0] <= v <= ends[1])
    x: Spec = {"field": "before", "type": "quantitative", "scale": scale, "axis": axis, "title": "before projection"}
    tips = [tip("name", "query"), tip("before", "before", ",.6~r"), tip("after", "projected", ",.6~r")]
    mark = {"type": "circle", "size": 30, "opacity": 0.5, "color": ACCENT}
    dots = {"mark": mark, "encoding": {"tooltip": tips}}
    return _against(found.rows, x, x | {"field": "after", "title": "projected"}, ends, dots)
