"""Two numbers of the same things against each other, with the line where they are equal."""

from __future__ import annotations

import math
from typing import Any

from sfumato.report.answers import Agreement
from sfumato.report.charts import ACCENT, COLOURS, Spec, framed, tip
from sfumato.report.projected import Moved

__all__ = ["agreement_chart", "moved_chart"]

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
