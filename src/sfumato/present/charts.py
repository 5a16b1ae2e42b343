"""The charts of a page as Vega-Lite specifications in plain dicts. Colours are the page's own CSS variables."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sfumato._util.catalogue import say_words
from sfumato.domain import OTHER

if TYPE_CHECKING:
    from sfumato.present.answers import Agreement, Distribution, SmallTable
    from sfumato.present.projected import MovedAnswers
    from sfumato.present.words import FamilyErrors

Spec = dict[str, Any]

_NAMED = 40  # parts with a line and a label each; more become strips without labels
_DOTS = 3_000  # more hide one another, and each has its size in the page
LONGEST = 20  # bars that fit a screen without scrolling
_STEP = 20  # pixels from one bar to the next: a line of text
# squares of a map, of 4 attributes and of 55: fewer are a list, more too small to see
_LEAST_PAIRS, _MOST_PAIRS = 6, 1_500
_NARROW, _WIDE = 360, 900  # pixels of a legend: beside another chart, and of the page
_HEIGHT = 340  # pixels: about a square beside the text
_COLOURS = [f"var(--series-{i})" for i in range(1, 9)]
_ACCENT, _MUTED, _INK, _LINE = "var(--series-1)", "var(--muted)", "var(--ink)", "var(--line)"
# an irrational step spreads neighbours evenly over a band without randomness
_GOLDEN = (math.sqrt(5) - 1) / 2
_FONT = "system-ui, -apple-system, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif"

_SIZES = {"labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal"}
_LABELS = {"labelLimit": 240, "labelOverlap": "greedy", "labelSeparation": 8, "titlePadding": 8, "labelPadding": 6}
_LINES = {"gridColor": _LINE, "domainColor": _LINE, "tickColor": _LINE}
_LEGEND = {"labelColor": _INK, "titleColor": _MUTED, "orient": "top", "labelLimit": 200, "symbolOpacity": 1}
CONFIG: Spec = {
    "background": "transparent",
    "font": _FONT,
    "view": {"stroke": None},
    "axis": {"labelColor": _MUTED, "titleColor": _MUTED} | _SIZES | _LABELS | _LINES,
    "axisQuantitative": {"labelFlush": False},
    "legend": _SIZES | _LEGEND,
    "range": {"category": _COLOURS},
}


def _tip(field: str, title: str, form: str | None = None) -> Spec:
    number = {} if form is None else {"format": form}
    return {"field": field, "title": title, "type": "nominal" if form is None else "quantitative"} | number


def _tips(form: str, **titles: str) -> list[Spec]:
    return [_tip(field, title, form) for field, title in titles.items()]


def _legend_spec(title: str | None, groups: Sequence[str], width: int) -> Spec:
    """A legend in as many columns as fit a width in pixels."""
    widest = max(map(len, groups), default=1)
    return {"title": title, "columns": max(1, min(6, width // (8 * min(widest, 26) + 26)))}


def _framed(rows: list[dict[str, Any]], height: Any, **more: Any) -> Spec:
    return {"data": {"values": rows}, "width": "container", "height": height} | more


def _numbers(field: str, title: str | None, ticks: int = 5, form: str = ",.6~r", **more: Any) -> Spec:
    """An encoding of numbers, with an axis without a line."""
    axis = {"tickCount": ticks, "format": form, "domain": False}
    return {"field": field, "type": "quantitative", "title": title, "axis": axis} | more


def _names(field: str, **axis: Any) -> Spec:
    """An encoding of names, with an axis without ticks and a line."""
    return {"field": field, "type": "nominal", "title": None, "axis": {"ticks": False, "domain": False} | axis}


def _size_scale(values: Sequence[float]) -> Spec:
    """Logarithmic where sizes differ by more than a factor of 20, else from zero."""
    if max(values) > 20 * min(values):
        return {"type": "log", "nice": False, "domain": [min(values) / 1.2, max(values) * 1.2]}
    return {"zero": True, "nice": True}


# -- errors --------------------------------------------------------------------------------------------


def family_chart(found: Sequence[FamilyErrors]) -> Spec | None:
    """Predicted errors of families of one unit: named up to 40 of them, else as strips by part and order."""
    positive = sorted((f for f in found if 0 < f.rmse < math.inf), key=lambda f: f.rmse)
    if not positive:
        return None
    parts = list(dict.fromkeys(f.part for f in found))
    return _named_families_chart(positive, parts) if len(positive) <= _NAMED else _strip_chart(positive, parts)


def _family_rows(found: Sequence[FamilyErrors]) -> list[dict[str, Any]]:
    named = [{"name": f.name, "part": f.part, "queries": f.queries} for f in found]
    sizes = ("rmse", "worst", "margin")
    return [n | {k: float(f"{getattr(f, k):.5g}") for k in sizes} for n, f in zip(named, found, strict=True)]


_FAMILY_TIPS = [
    *(_tip("name", "table"), _tip("part", "part"), _tip("queries", "queries", ",d")),
    *_tips(",.4~r", rmse="typical error", worst="largest standard error", margin="95 % margin"),
]


def _errors(found: Sequence[FamilyErrors], shown: Sequence[FamilyErrors], ticks: int) -> Spec:
    return _numbers("rmse", f"typical error, {found[0].unit}", ticks, scale=_size_scale([f.rmse for f in shown]))


def _named_families_chart(found: Sequence[FamilyErrors], parts: list[str]) -> Spec:
    rows = _family_rows(found)
    seen: dict[str, int] = {}
    for row in rows:
        seen[row["name"]] = seen.get(row["name"], 0) + 1
        # two families may share a name: each needs a line of its own
        row["line"] = row["name"] if seen[row["name"]] == 1 else f"{row['name']} ({seen[row['name']]})"
    y = _names("line", grid=True, labelLimit=320) | {"sort": None}
    mark = {"type": "circle", "size": 90, "opacity": 1, "color": _ACCENT}
    encoding = {"y": y, "x": _errors(found, found, 6), "tooltip": _FAMILY_TIPS}
    return _colour_by_part(_framed(rows, {"step": _STEP}, encoding=encoding, mark=mark), parts)


def _strip_chart(found: Sequence[FamilyErrors], parts: list[str]) -> Spec:
    step = max(1, math.ceil(len(found) / _DOTS))
    kept = [*found[:-1:step], found[-1]]
    rows = _family_rows(kept)
    for i, (row, family) in enumerate(zip(rows, kept, strict=True)):
        ways = f"{family.order} attribute{'' if family.order == 1 else 's'}" if family.order else "total"
        row |= {"strip": ways, "jitter": round((i * _GOLDEN) % 1, 3), "order": family.order}
    # what is rare is drawn last, above the crowd
    often = Counter(row["part"] for row in rows)
    rows.sort(key=lambda row: -often[row["part"]])
    y = _names("strip", labelFontSize=13, labelColor=_INK) | {"type": "ordinal", "sort": {"field": "order"}}
    offset = {"field": "jitter", "type": "quantitative", "scale": {"domain": [-0.15, 1.15]}}
    mark = {"type": "circle", "size": 36, "opacity": 0.7, "color": _ACCENT}
    encoding = {"y": y, "yOffset": offset, "x": _errors(found, kept, 8), "tooltip": _FAMILY_TIPS}
    return _colour_by_part(_framed(rows, {"step": 84}, encoding=encoding, mark=mark), parts)


def pair_map(found: Sequence[FamilyErrors]) -> Spec | None:
    """The typical error of every table over two attributes, one down and one across; for a picture of 6 to 1,500."""
    pairs = {f.attributes: f for f in found if len(f.attributes) == 2 and 0 < f.rmse < math.inf}
    if not _LEAST_PAIRS <= len(pairs) <= _MOST_PAIRS:
        return None
    listed = list(pairs.values())
    named = [{"across": f.attributes[1], "down": f.attributes[0]} for f in listed]
    rows = [r | n for r, n in zip(_family_rows(listed), named, strict=True)]
    order = {"sort": list(dict.fromkeys(a for names in pairs for a in names))}
    # a scale between colours of the page's theme cannot be drawn, one of opacity can
    depth: Spec = {"type": _size_scale([f.rmse for f in listed]).get("type", "linear"), "range": [0.15, 1.0]}
    encoding = {
        "x": _names("across", labelLimit=160, labelAngle=-45, labelOverlap=False) | order,
        "y": _names("down", labelLimit=160) | order,
        "opacity": {"field": "rmse", "type": "quantitative", "title": "typical error", "scale": depth},
        "tooltip": _FAMILY_TIPS,
    }
    return _framed(rows, {"step": _STEP}, encoding=encoding, mark={"type": "rect", "color": _ACCENT})


def _colour_by_part(spec: Spec, parts: list[str]) -> Spec:
    """Tell parts apart by colour where there are several, but not too many."""
    if 1 < len(parts) <= len(_COLOURS):
        colour: Spec = {"field": "part", "type": "nominal", "sort": parts, "legend": _legend_spec(None, parts, _WIDE)}
        spec["encoding"]["color"] = colour
    return spec


# -- answers -------------------------------------------------------------------------------------------

_ANSWER_TIPS = [_tip("cell", "cell"), *_tips(",.6~r", answer="answer", low="95 % from", high="95 % to")]
_BEFORE = "before"  # the field of unprojected answers
_GREY: Spec = {"condition": {"test": "datum.other", "value": _MUTED}, "value": _ACCENT}


def table_chart(table: SmallTable) -> Spec:
    """Answers with 95 % intervals; where they are projected, circles for the unprojected ones."""
    paired = "group" in table.rows[0]
    along = table.unequal or (table.ordered and len(table.rows) > 12)
    drawn = _pair_chart if paired else _histogram_chart if table.unequal else _bars_across if along else _bars_down
    spec = drawn(table)
    if _BEFORE in table.rows[0]:
        # around the dot of a pair, on the bar of a single attribute
        ring: Spec = {"type": "point", "size": 110 if paired else 30, "filled": False, "strokeWidth": 1.2, "opacity": 1}
        ring |= {} if paired else {"color": "var(--series-2)"}
        place = _per_unit("per_before", table) if table.unequal else _count_axis(_BEFORE)
        at = {"x": spec["layer"][1]["encoding"]["x"]} if table.unequal else {}
        spec["layer"].append({"mark": ring, "encoding": {"y" if along else "x": place} | at})
        spec["encoding"]["tooltip"] = [*spec["encoding"]["tooltip"], _tip(_BEFORE, "before projection", ",.6~r")]
    return spec


def _bars_down(table: SmallTable) -> Spec:
    rows, apart = _split_other_cells(table) if len(table.names) == 1 else (table.rows, [])
    if len(rows) > LONGEST:
        rows = sorted(rows, key=lambda r: -r["answer"])[:LONGEST]
    encoding = {"y": _names("cell") | _cell_scale(rows, apart), "tooltip": _ANSWER_TIPS}
    layer = _bar_layers("x", {"height": {"band": 0.62}}, 1.5)
    return _framed([*rows, *apart], {"step": _STEP}, encoding=encoding, layer=layer)


def _split_other_cells(table: SmallTable) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The declared cells, and the one that holds what was not declared."""
    return [r for r in table.rows if not r["other"]], [r for r in table.rows if r["other"]]


def _cell_scale(rows: list[dict[str, Any]], apart: list[dict[str, Any]]) -> Spec:
    """Cells in their order, and after a gap the one that holds what was not declared."""
    gap = [" "] if rows and apart else []
    return {"sort": None, "scale": {"domain": [*(r["cell"] for r in rows), *gap, *(r["cell"] for r in apart)]}}


def _bar_layers(along: str, size: Spec, stroke: float) -> list[Spec]:
    """Answers as bars, each with the line of its interval; what was not declared is grey."""
    bar = {"type": "bar", **size, "opacity": 0.55}
    rule = {"type": "rule", "strokeWidth": stroke, "color": _INK}
    return [
        {"mark": bar, "encoding": {along: _count_axis("answer"), "color": _GREY}},
        {"mark": rule, "encoding": {along: _count_axis("low"), f"{along}2": {"field": "high"}}},
    ]


def _count_axis(field: str) -> Spec:
    return _numbers(field, "records")


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


def _bars_across(table: SmallTable) -> Spec:
    axis = {"labelAngle": 0, "ticks": False, "labelOverlap": "greedy", "labelSeparation": 6}
    x = {"field": "cell", "type": "nominal", "title": None, "axis": axis} | _cell_scale(*_split_other_cells(table))
    layer = _bar_layers("y", {"width": {"band": 0.8}}, 1.2)
    return _framed(table.rows, 170, encoding={"x": x, "tooltip": _ANSWER_TIPS}, layer=layer)


def _histogram_chart(table: SmallTable) -> Spec:
    """Classes of several widths: areas are counts, so heights are counts by width; what was not declared has none."""
    axis: Spec = {"grid": False, "tickCount": 10, "format": ",.6~r"}
    x: Spec = {"type": "quantitative", "title": table.names[0], "scale": {"zero": False, "nice": False}, "axis": axis}
    bar: Spec = {"type": "rect", "color": _ACCENT, "opacity": 0.55, "stroke": "var(--paper)"}
    rule: Spec = {"type": "rule", "strokeWidth": 1.2, "color": _INK}
    high = _per_unit("per_unit", table) | {"scale": {"zero": True}}
    ends: Spec = {"x": x | {"field": "start"}, "x2": {"field": "end"}, "y": high, "y2": {"datum": 0}}
    between: Spec = {"y": _per_unit("per_low", table), "y2": {"field": "per_high"}}
    middle: Spec = {"x": x | {"field": "middle"}} | between
    tips = [*_ANSWER_TIPS, _tip("per_unit", f"per unit of {table.names[0]}", ",.4~r")]
    layer = [{"mark": bar, "encoding": ends}, {"mark": rule, "encoding": middle}]
    return _framed([r for r in table.rows if "start" in r], 200, encoding={"tooltip": tips}, layer=layer)


def _per_unit(field: str, table: SmallTable) -> Spec:
    return _count_axis(field) | {"title": f"records per unit of {table.names[0]}"}


def _grouped(title: str, groups: list[str], width: int) -> Spec:
    """Groups told apart by colour; what was not declared is grey."""
    colours = [_MUTED if g == say_words(OTHER) else _COLOURS[i % len(_COLOURS)] for i, g in enumerate(groups)]
    coded = {"scale": {"range": colours}, "legend": _legend_spec(title, groups, width)}
    return {"field": "group", "type": "nominal", "sort": groups} | coded


def _pair_chart(table: SmallTable) -> Spec:
    groups = list(dict.fromkeys(r["group"] for r in table.rows))
    offset = {"field": "group", "type": "nominal", "sort": groups, "scale": {"paddingOuter": 0.5}}
    encoding = {
        "y": _names("cell", grid=True) | {"sort": None},
        "yOffset": offset,
        "color": _grouped(table.names[1], groups, _NARROW),
        "tooltip": [_ANSWER_TIPS[0], _tip("group", table.names[1]), *_ANSWER_TIPS[1:]],
    }
    interval = {"x": _count_axis("low"), "x2": {"field": "high"}}
    layer = [
        {"mark": {"type": "rule", "strokeWidth": 1.5}, "encoding": interval},
        {"mark": {"type": "circle", "size": 44, "opacity": 1}, "encoding": {"x": _count_axis("answer")}},
    ]
    height = {"step": max(_STEP, 8 * len(groups)), "for": "position"}
    return _framed(table.rows, height, encoding=encoding, layer=layer)


def column_chart(rows: list[dict[str, Any]], *, dates: bool) -> Spec:
    """Noisy counts of the values of one column: each row from `start` to `end`, so high that areas are counts."""
    axis: Spec = {"grid": False, "tickCount": 6} | ({} if dates else {"format": ",.6~r"})
    x: Spec = {"type": "temporal" if dates else "quantitative", "title": None, "axis": axis}
    x |= {"scale": {"type": "utc" if dates else "linear", "zero": False, "nice": False}}
    high: Spec = {"field": "height", "type": "quantitative", "title": None, "axis": None, "scale": {"zero": True}}
    bar: Spec = {"type": "rect", "color": _ACCENT, "opacity": 0.55, "stroke": "var(--paper)"}
    tips = [_tip("cell", "values"), _tip("records", "records", ",.0f")]
    ends: Spec = {"x": x | {"field": "start"}, "x2": {"field": "end"}, "y": high, "y2": {"datum": 0}, "tooltip": tips}
    return _framed(rows, 120, mark=bar, encoding=ends)


def label_chart(rows: list[dict[str, Any]]) -> Spec:
    """Noisy counts of labels, most frequent first."""
    bar: Spec = {"type": "bar", "color": _ACCENT, "opacity": 0.55, "height": {"band": 0.62}}
    tips = [_tip("cell", "label"), _tip("records", "records", ",.0f")]
    x = _numbers("records", "records") | {"scale": {"domainMin": 0}}
    encoding: Spec = {"y": _names("cell") | {"sort": None}, "x": x, "tooltip": tips}
    return _framed(rows[:LONGEST], {"step": _STEP}, mark=bar, encoding=encoding)


def distribution_chart(found: Distribution) -> Spec:
    """Cumulative shares with 95 % bands."""
    share = _numbers("share", "share of records", form="%", scale={"domain": [0, 1]})
    tips = [_tip("cell", "up to"), *_tips(".2%", share="share", low="95 % from", high="95 % to")]
    tips += [_tip("group", ", ".join(found.by))] if found.by else []
    axis = {"grid": False, "tickCount": 10} | ({} if found.days else {"format": "d" if found.years else ",.6~r"})
    scale = {"type": "utc", "nice": False} if found.days else {"zero": False, "nice": False}
    kind = "temporal" if found.days else "quantitative"
    x: Spec = {"field": "x", "type": kind, "title": found.attribute, "scale": scale, "axis": axis}
    colour: Spec = {"value": _ACCENT}
    if found.by:
        colour = _grouped(", ".join(found.by), list(dict.fromkeys(r["group"] for r in found.rows)), _WIDE)
    band = {"y": share | {"field": "low"}, "y2": {"field": "high"}}
    layer = [
        {"mark": {"type": "area", "opacity": 0.22}, "encoding": band},
        {"mark": {"type": "line", "strokeWidth": 2}, "encoding": {"y": share}},
    ]
    return _framed(found.rows, 260, encoding={"x": x, "tooltip": tips, "color": colour}, layer=layer)


def over_time_chart(rows: list[dict[str, Any]]) -> Spec:
    """One query after every period, as a line in two bands, each by itself and all together; where few, with dots."""
    axis = {"labelAngle": 0, "ticks": False, "labelOverlap": "greedy", "labelSeparation": 12}
    x: Spec = {"field": "period", "type": "ordinal", "sort": None, "title": None, "axis": axis}
    tips = [_tip("period", "period"), *_tips(",.6~r", value="records", low="95 % from", high="95 % to")]
    layer: list[Spec] = [
        {
            "mark": {"type": "area", "opacity": opacity, "color": _ACCENT},
            "encoding": {"y": _count_axis(low), "y2": {"field": high}},
        }
        for low, high, opacity in (("all_low", "all_high", 0.12), ("low", "high", 0.22))
    ]
    line: Spec = {"type": "line", "strokeWidth": 2, "color": _ACCENT, "point": len(rows) <= _NAMED}
    layer.append({"mark": line, "encoding": {"y": _count_axis("value")}})
    return _framed(rows, 220, encoding={"x": x, "tooltip": tips}, layer=layer)


def _scatter_on_diagonal(rows: list[dict[str, Any]], x: Spec, y: Spec, ends: tuple[float, float], dots: Spec) -> Spec:
    """Dots with the line of equality from end to end; `dots` holds their mark and further encodings."""
    line = [{x["field"]: v, y["field"]: v} for v in ends]
    dashed = {"type": "line", "color": _MUTED, "strokeDash": [4, 4], "strokeWidth": 1.2}
    encoding = {"x": x, "y": y}
    layer = [
        {"data": {"values": line}, "mark": dashed, "encoding": encoding},
        {"mark": dots["mark"], "encoding": encoding | dots["encoding"]},
    ]
    return _framed(rows, _HEIGHT, layer=layer)


def agreement_chart(found: Agreement) -> Spec | None:
    """Actual against predicted errors on equal logarithmic axes."""
    rows = [r for r in found.rows if r["predicted"] > 0 and r["actual"] > 0]
    if not rows:
        return None
    values = [v for r in rows for v in (r["predicted"], r["actual"])]
    ends = min(values) / 1.2, max(values) * 1.2
    x = _numbers("predicted", "predicted error", 6, scale={"type": "log", "domain": list(ends), "nice": False})
    tips = [_tip("name", "table"), _tip("queries", "queries", ",d")]
    tips += _tips(",.4~r", predicted="predicted", actual="actual")
    colour = {"field": "order", "type": "ordinal", "title": "attributes", "scale": {"range": _COLOURS}}
    dots = {"mark": {"type": "circle", "size": 42, "opacity": 0.65}, "encoding": {"color": colour, "tooltip": tips}}
    return _scatter_on_diagonal(rows, x, x | {"field": "actual", "title": "actual error"}, ends, dots)


def moved_chart(found: MovedAnswers) -> Spec | None:
    """Projected against unprojected answers: linear up to the noise, logarithmic beyond where counts are large."""
    if len(found.rows) < 2 or found.noise <= 0:
        return None
    values = [v for r in found.rows for v in (r["before"], r["after"])]
    ends = min(values), max(values)
    x = _numbers("before", "before projection", 6, scale={"zero": True, "nice": True})
    if max(map(abs, ends)) > 30 * found.noise:
        x["scale"] = {"type": "symlog", "constant": found.noise, "nice": False}
        # the scale's own ticks are those of a linear one: name powers of ten above the noise
        first = math.ceil(math.log10(found.noise))
        powers = [s * 10.0**i for i in range(first, first + 12) for s in (1, -1)]
        x["axis"]["values"] = sorted(v for v in (0.0, *powers) if ends[0] <= v <= ends[1])
    tips = [_tip("name", "query"), *_tips(",.6~r", before="before", after="projected")]
    mark = {"type": "circle", "size": 30, "opacity": 0.5, "color": _ACCENT}
    return _scatter_on_diagonal(
        found.rows, x, x | {"field": "after", "title": "projected"}, ends, {"mark": mark, "encoding": {"tooltip": tips}}
    )
