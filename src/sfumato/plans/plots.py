"""Altair charts of plans, tables and distributions (extra: plots)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sfumato._util.frames import Frame, optional_package

__all__ = ["chart_cells", "chart_cumulative_shares", "chart_errors", "chart_shares"]

_NAMED = 40  # lines that an eye can read one by one; of more tables the numbers of attributes stand for the names
_TOLD = ("share", "standard_error", "low", "high", "note")


def _load_altair() -> Any:
    return optional_package("altair", "plots")


def _base_chart(altair: Any, frame: Frame) -> Any:
    return altair.Chart(altair.Data(values=frame.rows()))


def chart_cells(frame: Frame, names: Sequence[str], of: str = "records") -> Any:
    """Bars of a table over one or two attributes, with their intervals."""
    altair = _load_altair()
    first, *second = names
    # in words: layers that share a scale sort what is left to the order of the rows
    order = {name: list(dict.fromkeys(frame[name])) for name in names}
    base = _base_chart(altair, frame).encode(x=altair.X(field=first, type="nominal", sort=order[first], title=first))
    if second:
        name = second[0]
        base = base.encode(
            color=altair.Color(field=name, type="nominal", sort=order[name]),
            xOffset=altair.XOffset(field=name, type="nominal", sort=order[name]),
        )
    bars = base.mark_bar(opacity=0.6).encode(y=altair.Y(field="answer", type="quantitative", title=of))
    return bars + _interval_rule(altair, base)


def _interval_rule(altair: Any, base: Any) -> Any:
    """The line of an interval."""
    return base.mark_rule().encode(
        y=altair.Y(field="low", type="quantitative"), y2=altair.Y2(field="high"), color=altair.value("black")
    )


def _shares_by_group(frame: Frame, attribute: str) -> tuple[Frame, bool]:
    """What is told of a frame by groups, the group in one column; whether there are several."""
    names = [n for n in frame.columns if n not in _TOLD]
    along, by = names[-1], names[:-1]
    rows = [r for r in frame.rows() if r["share"] is not None]
    columns: dict[str, list[Any]] = {"cell": [str(r[along]).removeprefix("up to ") for r in rows]}
    columns["group"] = [" · ".join(str(r[b]) for b in by) for r in rows]
    return Frame(columns | {k: [r[k] for r in rows] for k in ("share", "low", "high")}), bool(by)


def chart_cumulative_shares(frame: Frame, attribute: str, of: str = "records") -> Any:
    """Cumulative shares with bands, one line for each group."""
    altair = _load_altair()
    told, several = _shares_by_group(frame, attribute)
    base = _base_chart(altair, told).encode(x=altair.X(field="cell", type="ordinal", sort=None, title=attribute))
    if several:
        base = base.encode(color=altair.Color(field="group", type="nominal", sort=None, title=None))
    share = altair.Y(field="low", type="quantitative", title=f"share of {of}", axis=altair.Axis(format="%"))
    band = base.mark_area(opacity=0.2).encode(y=share, y2=altair.Y2(field="high"))
    return band + base.mark_line().encode(y=altair.Y(field="share", type="quantitative"))


def chart_shares(frame: Frame, attribute: str, of: str = "records") -> Any:
    """Shares with intervals, the groups side by side."""
    altair = _load_altair()
    told, several = _shares_by_group(frame, attribute)
    base = _base_chart(altair, told).encode(x=altair.X(field="cell", type="nominal", sort=None, title=attribute))
    if several:
        base = base.encode(
            color=altair.Color(field="group", type="nominal", sort=None, title=None),
            xOffset=altair.XOffset(field="group", type="nominal", sort=None),
        )
    axis = altair.Axis(format="%")
    bars = base.mark_bar(opacity=0.6).encode(
        y=altair.Y(field="share", type="quantitative", title=f"share of {of}", axis=axis)
    )
    return bars + _interval_rule(altair, base)


def chart_errors(frame: Frame) -> Any:
    """Predicted errors: a dot for each table, coloured by its part; one scale for each unit."""
    altair = _load_altair()
    rows = frame.rows()
    line = "attributes" if len(rows) <= _NAMED else "order"
    for row in rows:
        row["order"] = (
            "the total" if row["attributes"] == "(total)" else f"{row['attributes'].count(', ') + 1} attributes"
        )
    tips = [altair.Tooltip(field=k, type="nominal") for k in ("part", "attributes", "cells", "unit")]
    tips += [altair.Tooltip(field=k, type="quantitative", format=",.4~r") for k in ("rmse", "margin")]
    base = altair.Chart(altair.Data(values=rows)).mark_circle(size=60, opacity=0.7)
    encoded = base.encode(
        x=altair.X(field="rmse", type="quantitative", title="typical error", scale=altair.Scale(zero=False)),
        y=altair.Y(field=line, type="nominal", sort=None, title=None),
        color=altair.Color(field="part", type="nominal", sort=None),
        tooltip=tips,
    )
    units = list(dict.fromkeys(frame["unit"]))
    row_of_unit = altair.Row(field="unit", type="nominal", sort=units, title=None)
    return encoded if len(units) == 1 else encoded.encode(row=row_of_unit).resolve_scale(x="independent")
