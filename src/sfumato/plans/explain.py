"""A plan in words, in facts, and in Altair charts (extra: plots), which also show tables and distributions."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sfumato._util.catalogue import page_locale
from sfumato._util.description import TitledTable
from sfumato._util.frames import Frame, optional_package, safe_text
from sfumato.domain.impossible import cell_value_ranges
from sfumato.plans.planned import event_price_text, protection_lines, served_statistic_lines
from sfumato.privacy.noise import DiscreteGaussian, DiscreteLaplace

if TYPE_CHECKING:
    from sfumato.plans.plan import Plan
    from sfumato.workloads import Workload

LISTED_TABLES = 24  # lines of a table, with which a plan fits on a screen
_STARVES = 5.0  # times the error it would have alone: from there on the split of the budget is worth a word
_COLUMNS = ", error_share: of the weighted squared error, alone: the rmse with the whole budget"
_TELLING = 0.1  # of the error: a bound below it is proved, and says nothing of how good a plan is
_CELLS = 3  # attributes whose widest cell is named, in one line
_HALVES = 16  # the weight that halves the error of what has little of the budget: its share goes as weight^(1/2)


def noise_name(plan: Plan) -> str:
    """The noise law for people."""
    if isinstance(plan.noise, DiscreteLaplace):
        return "exact discrete Laplace noise"
    return (
        "exact discrete Gaussian noise" if isinstance(plan.noise, DiscreteGaussian) else "exact rounded Gaussian noise"
    )


def plan_lines(plan: Plan) -> Iterator[tuple[str, str]]:
    """What will be measured, the noise, the price, the predicted error, the distance from the best possible."""
    values = sum(b.rows for b in plan.strategy.blocks)
    yield from protection_lines(plan.unit, plan.whole_price)
    if told := cut_precision_text(plan):
        yield "", f"  {told}"
    yield from plan.workload.domain.told()
    yield "guarantee", str(plan.budget)
    yield "measures", f"{plan.strategy.summary} ({values:,} noisy values)"
    yield "noise", f"{noise_name(plan)}; sensitivity {_sensitivity_text(plan)}"
    if plan.found is None:
        yield "price", event_price_text(plan.price)
    else:
        yield (
            "price",
            f"{event_price_text(plan.found.price)}, of which {event_price_text(plan.price)} is for these tables",
        )
        yield "labels", "found by a look before, which was paid for with it"
    yield "objective", _objective(plan)
    yield "error", f"{_plan_error_text(plan)}, largest standard error {plan.max_standard_error:,.5g}"
    yield "best", _lower_bound_text(plan)
    yield from cell_span_lines(plan.workload)
    yield from (("serves", line) for line in served_statistic_lines(plan))
    yield "arithmetic", f"exact for tables of up to {plan.record_limit:,} records"
    if plan.forecast is not None:
        how, by = ("projects", "onto") if plan.forecast.proved else ("denoises", "by")
        yield how, f"{by} {plan.body!r}: {plan.forecast.verdict}"
    if plan.rounding > 0:
        many = f"{float(f'{0.1 / plan.rounding:.2g}'):,.0f}"
        text = f"moves no answer by more than {plan.rounding:.2g} of its standard error per record"
        yield "rounding", f"{text}: a tenth of it for {many} records"
    if plan.bias_records is not None:
        yield "bias", bias_text(plan)
    elif plan.bias_bound > 0:
        yield "bias", f"at most {plan.bias_bound:.2g} per record, from rounding real coefficients to integers"
    starved = starving_line_text(plan)
    yield from (("note", n) for n in (*plan.notes, *([starved] if starved else [])))


def cell_span_lines(work: Workload) -> Iterator[tuple[str, str]]:
    """How far cells of several numbers widen the intervals of means, and which cell does most; nothing without any."""
    found: list[str] = []
    asked = {n for item in work.items for n in item.attributes}
    for name in work.domain.names:
        attribute = work.domain[name]
        reach = cell_value_ranges(attribute) if name in asked else None
        if reach is None:
            continue
        widths = reach[:, 1] - reach[:, 0]
        if (widest := float(widths.max())) > 0:
            cell = attribute.declared_labels[int(widths.argmax())]
            found.append(f"{safe_text(name)} {cell} by {widest / 100:,.4g}")
    if found:
        more = f" and {len(found) - _CELLS:,} more" if len(found) > _CELLS else ""
        text = "intervals of means hold the values, so they are as wide as cells are; each 1 % of the records in"
        yield "cells", f"{text} {', '.join(found[:_CELLS])}{more} (the widest cells)"


def cut_precision_text(plan: Plan) -> str:
    """How well it will be known how many persons had more rows than are counted; nothing where none is named."""
    if plan.unit.person is None:
        return ""
    if not plan.cut:
        return "how many persons have more is not measured"
    error, share = math.sqrt(plan.noise.variance) / plan.cut, plan.cut**plan.sensitivity.power / plan.sensitivity.value
    cost = f"{share:.1%}".replace("%", " %")
    return (
        f"how many persons have more is measured beside, with a standard error of {error:,.3g}, for {cost} of the price"
    )


def predicted_errors(plan: Plan, before: str = "") -> Iterator[TitledTable]:
    """Errors by part and number of attributes, and by table where these are few; `before` says of which answers."""
    few = plan.workload.tables <= LISTED_TABLES
    if plan.alone or not few:
        yield errors_by_part(plan, before=before, more="" if few else "; plan.errors() has every table")
    if few:
        title = f"Errors{before} by table (margin: half-width of a 95 % interval)"
        yield TitledTable(title, plan.errors(), most=LISTED_TABLES)


def errors_by_part(plan: Plan, part: str | None = None, *, before: str = "", more: str = "") -> TitledTable:
    """Errors by part and number of attributes, of all parts or of one."""
    frame = plan.default_errors
    if part is not None:
        kept = [row for row in frame.rows() if row["part"] == part]
        frame = Frame({name: [row[name] for row in kept] for name in frame.columns})
    legend = f"(margin: half-width of a 95 % interval{_COLUMNS if plan.alone else ''})"
    title = f"Errors{before} by part and number of attributes {legend}{more}"
    return TitledTable(title, frame, label="Parts and their errors", most=LISTED_TABLES)


def table_plan_facts(plan: Plan) -> dict[str, dict[str, Any]]:
    """What is measured, and the errors that follow, as plain JSON values."""
    noise, found = plan.noise, plan.sensitivity
    return {
        "mechanism": {
            "name": plan.mechanism,
            "strategy": plan.strategy.summary,
            "noise": {
                "law": type(noise).__name__,
                "scale": str(getattr(noise, "sigma", None) or getattr(noise, "scale", None)),
            },
            "sensitivity": {
                "norm": "L1" if found.power == 1 else "L2 squared",
                "value": str(found.value),
                "exact": found.exact,
            },
            "record_limit": plan.record_limit,
            **({"cut": plan.cut} if plan.cut else {}),
        },
        "error": {
            "rmse": plan.rmse,
            "mean_error": plan.mean_error,
            "max_standard_error": plan.max_standard_error,
            "objective": plan.objective,
            "objective_value": plan.objective_value,
            "lower_bound": plan.lower_bound,
            "any_noise_bound": plan.any_noise_bound,
            "bias_bound_per_record": plan.bias_bound,
            **({"rounding_per_record": plan.rounding} if plan.rounding else {}),
            "bias": _bias_facts(plan),
            "projection": None if plan.forecast is None else {"body": plan.body, "rmse_before": plan.forecast.raw},
            "unit": plan.main_unit,
            "serves": list(served_statistic_lines(plan)),
        },
    }


def _bias_facts(plan: Plan) -> dict[str, Any] | None:
    """What is known of biases that answers have on purpose."""
    if plan.bias_records is None:
        return None
    return {"records": plan.bias_records, "largest": float(plan.bias_bounds().max()), "rmse": plan.bias_rmse}


def bias_text(plan: Plan) -> str:
    """How far answers may be off on purpose, and for which tables that is bounded."""
    largest = float(plan.bias_bounds().max())
    return (
        f"answers are off by up to {largest:,.4g} besides the noise, for tables of at most {plan.bias_records:,} "
        "records; errors and intervals include it and hold for those alone, standard errors are of the noise"
    )


def objective_text(plan: Plan) -> str:
    """Over what errors are averaged: nothing to say of one table, all of whose queries count alike."""
    single = plan.workload.tables == 1
    if plan.objective == "cells":
        return "" if single else "every query alike"
    several = len(plan.workload.parts) > 1
    return "" if single else "every part, table and query alike" if several else "every table and query alike"


def error_text(plan: Plan) -> str:
    """The plan's typical error: number, unit, and over what it is the mean."""
    units = plan.workload.units
    unit = units[0] if len(units) == 1 else "records, sums in their largest coefficient"
    return ", ".join(t for t in (f"{plan.mean_error:,.5g} {unit}", objective_text(plan)) if t)


def starving_line_text(plan: Plan) -> str | None:
    """What errs far more than it would alone, what takes the budget, and which weight changes that; None if nothing."""
    if not plan.alone:
        return None
    rows = plan.default_errors.rows()
    worst = max(rows, key=lambda r: r["ratio"] or 0.0)
    if (worst["ratio"] or 0.0) <= _STARVES or worst["error_share"] is None:
        return None
    takes = max(rows, key=lambda r: r["error_share"])
    several = sum(r["part"] == worst["part"] for r in rows) > 1
    return (
        f"{_line_text(worst, several)} errs {worst['ratio']:.2g} times what it would with the whole "
        "budget; most of that "
        f"goes to {_line_text(takes, True)}, {takes['error_share']:.0%} of the weighted squared error. "
        f"{_remedy_text(plan, worst, own=several and takes['part'] == worst['part'])}"
    )


def _remedy_text(plan: Plan, worst: Mapping[str, Any], *, own: bool) -> str:
    """What gives a line more of the budget. A weight of the whole part does not where the part itself takes it."""
    if not own:
        return (
            f"A weight multiplies squared errors; one of {_HALVES} about halves an error: "
            f"weights={{{worst['part']!r}: {_HALVES}}} in sf.stack, weight = {_HALVES} in a spec"
        )
    if not all(e.item.is_marginal for e in plan.entries if e.item.part == worst["part"]):
        return (
            f"What you need more exactly counts for more as a part of its own, with weight = {_HALVES} for still more"
        )
    order = worst["attributes"]
    call = "sf.total(domain)" if order == 0 else f"sf.marginals(domain, order={order})"
    key = "total = true" if order == 0 else f"marginals = {order}"
    # where cells count alike, another part is but a few more cells
    stack, spec = (
        ("", "") if plan.objective == "tables" else (f" with a weight of {_HALVES}", f" and weight = {_HALVES}")
    )
    return (
        f"It errs less as a part of its own: {call} in sf.stack{stack}, another [[queries]] with {key}{spec} in a "
        f"spec. Or by weights={{{order}: {_HALVES}}} in sf.marginals: a weight multiplies squared errors, {_HALVES} "
        "about halves an error"
    )


def _line_text(row: Mapping[str, Any], several: bool) -> str:
    count = row["attributes"]
    order = "the total" if count == 0 else f"tables of {count} attribute{'s' if count > 1 else ''}"
    return f"{row['part']!r} ({order})" if several else repr(row["part"])


def _plan_error_text(plan: Plan) -> str:
    if plan.forecast is not None and not plan.forecast.proved:
        return f"rmse {plan.forecast.raw:,.5g} {plan.main_unit} for the pairs that are measured, before denoising"
    if plan.forecast is not None:
        return f"rmse at most {plan.mean_error:,.5g} {plan.main_unit} once projected, {plan.forecast.raw:,.5g} before"
    if plan.bias_records is not None and plan.rmse is not None:
        noise = math.sqrt(max(0.0, plan.rmse**2 - plan.bias_rmse**2))
        return (
            f"rmse at most {plan.rmse:,.5g} {plan.main_unit} (noise {noise:,.5g}, bias at most {plan.bias_rmse:,.5g})"
        )
    cells = plan.rmse
    alike = cells is None or math.isclose(cells, plan.mean_error, rel_tol=1e-9)
    return f"rmse {error_text(plan)}{'' if alike else f' ({cells:,.5g} over all queries alike)'}"


def _objective(plan: Plan) -> str:
    if plan.objective == "max":
        return "'max': the largest standard error"
    alike = objective_text(plan) or "every query alike"
    return f"{plan.objective!r}: the mean squared error, {alike}; weights multiply it"


def _sensitivity_text(plan: Plan) -> str:
    found = plan.sensitivity
    size = float(found.value) if found.power == 1 else math.sqrt(float(found.value))
    norm = "L1" if found.power == 1 else "L2"
    proof = "exact" if found.exact else "proved upper bound"
    return f"{norm} {size:,.6g} on the integer lattice ({proof})"


def _lower_bound_text(plan: Plan) -> str:
    if plan.forecast is not None or plan.bias_records is not None:
        return "no lower bound: those that are known are for unbiased answers"
    if plan.lower_bound is None:
        return "no lower bound is known for this noise and workload"
    plain = plan.max_standard_error if plan.objective == "max" else plan.mean_error
    weighted = not math.isclose(plan.objective_value, plain, rel_tol=1e-9)
    kind = f"{'weighted ' if weighted else ''}{'largest standard error' if plan.objective == 'max' else 'error'}"
    what = "" if kind == "error" else f"{kind} {plan.objective_value:,.6g}: "
    return (
        f"{what}no unbiased answers with Gaussian noise err less than {plan.lower_bound:,.6g}, proved; this plan is "
        f"{max(0.0, plan.objective_value / plan.lower_bound - 1):.2%} above it{any_noise_text(plan)}"
    )


def any_noise_text(plan: Plan) -> str:
    """What is proved of all laws of noise, as the end of a sentence; nothing where nothing is, or next to nothing."""
    said = {
        f"noise of any law that costs a ledger of {plan.budget.currency} no more": plan.any_noise_bound,
        "that of any under epsilon and delta alone, whatever a ledger takes": plan.any_noise_bound_alone,
    }
    least = _TELLING * plan.objective_value
    telling = [f"; with {what}, none less than {bound:,.6g}" for what, bound in said.items() if (bound or 0.0) > least]
    return "".join(telling)


_NAMED = 40  # lines that an eye can read one by one; of more tables the numbers of attributes stand for the names
_TOLD = ("share", "standard_error", "low", "high", "note")


def _load_altair() -> Any:
    return optional_package("altair", "plots")


def _base_chart(altair: Any, frame: Frame) -> Any:
    return altair.Chart(altair.Data(values=frame.rows()))


def chart_cross_table(
    rows: Sequence[dict[str, Any]],
    names: Sequence[str],
    measured: str,
    title: str = "",
    below: Sequence[str] = (),
    *,
    share: bool = False,
) -> Any:
    """Bars with intervals: groups of them for a second attribute, one picture for each cell of a third.

    rows: the cell of each attribute as axis0, axis1, axis2, then answer, low, high and, where there are marks, flag.
    """
    altair = _load_altair()
    fields = [f"axis{k}" for k in range(len(names))]
    # in words: layers that share a scale sort what is left to the order of the rows
    order = {field: list(dict.fromkeys(row[field] for row in rows)) for field in fields}
    coded: dict[str, Any] = {"field": fields[0], "type": "nominal", "sort": order[fields[0]]}
    base = altair.Chart(altair.Data(values=list(rows))).encode(
        x=altair.X(**coded, title=names[0], axis=altair.Axis(titlePadding=_APART))
    )
    if len(names) > 1:
        coded = {"field": fields[1], "type": "nominal", "sort": order[fields[1]]}
        base = base.encode(color=altair.Color(**coded, title=names[1]), xOffset=altair.XOffset(**coded))
    axis = altair.Axis(format="%", titlePadding=_APART) if share else altair.Axis(titlePadding=_APART)
    bars = base.mark_bar(opacity=0.6).encode(y=altair.Y(field="answer", type="quantitative", title=measured, axis=axis))
    drawn = bars + _interval_rule(altair, base)
    if any(row.get("flag") for row in rows):
        above = altair.Y(field="high", type="quantitative")
        drawn += base.mark_text(dy=-6, color="black").encode(
            y=above, text=altair.Text(field="flag", type="nominal"), color=altair.value("black")
        )
    if len(names) > 2:
        each = altair.Facet(field=fields[2], type="nominal", sort=order[fields[2]], title=names[2])
        drawn = drawn.properties(width=220, height=160).facet(facet=each, columns=3)
    bars_wide = len(order[fields[0]]) * (len(order[fields[1]]) + 0.5 if len(fields) > 1 else 1)
    return chart_with_words(drawn, title, below, width=660 if len(names) > 2 else int(20 * bars_wide))


# pixels: between labels and the title of an axis, the least room to the right, the least width of lines
_APART, _ROOM, _NARROWEST = 12, 40, 360
# pixels of a letter: of small ones by a narrow font, as the picture is laid out, and by a wide one, as a reader may
# have; of large ones
_SMALL, _SMALL_WIDE, _LARGE_WIDE = 4.5, 6.5, 8.5
_FONT = "Liberation Sans, Arial, Helvetica, sans-serif"  # of the widths by which it is laid out


def chart_with_words(chart: Any, title: str, below: str | Sequence[str], *, width: int = 400) -> Any:
    """A chart with its title above and lines below, broken at about its width; numbers as the language has them.

    width: of what is drawn, in pixels.
    """
    altair = _load_altair()
    lines = [below] if isinstance(below, str) else list(below)
    told = [part for line in lines for part in textwrap.wrap(line, int(max(width, _NARROWEST) / _SMALL_WIDE))]
    if title:
        shown = textwrap.wrap(title, int(max(width, _NARROWEST) / _LARGE_WIDE))
        chart = chart.properties(title=altair.TitleParams(text=shown, anchor="start"))
    if told:
        source = altair.TitleParams(text=told, orient="bottom", anchor="start", fontWeight="normal", fontSize=10)
        longest = max(map(len, told))
        room = max(_ROOM, int(_SMALL_WIDE * longest - max(width, _SMALL * longest)))
        chart = altair.concat(chart, title=source, padding={"left": 5, "top": 5, "right": room, "bottom": 10})
        # it is finished; one without a source may still be put beside others, which takes no settings
        chart = chart.configure(font=_FONT, locale=page_locale())
    return chart


def chart_flags(rows: Sequence[dict[str, Any]], parameter: str, title: str) -> Any:
    """A bar for every budget, cut by the share of cells with each flag: rows of budget, flag, share and rank."""
    altair = _load_altair()
    budgets, flags = (list(dict.fromkeys(row[key] for row in rows)) for key in ("budget", "flag"))
    y = altair.Y(field="budget", type="nominal", sort=budgets, title=parameter)
    tips = [altair.Tooltip(field=k, type="nominal") for k in ("budget", "flag")]
    tips += [altair.Tooltip(field="share", type="quantitative", format=".1%")]
    bars = (
        altair.Chart(altair.Data(values=list(rows)))
        .mark_bar()
        .encode(
            x=altair.X(field="share", type="quantitative", title="share of cells", axis=altair.Axis(format="%")),
            y=y,
            color=altair.Color(
                field="flag", type="nominal", sort=flags, scale=altair.Scale(scheme="viridis"), title="flag"
            ),
            order=altair.Order(field="rank", type="ordinal"),
            tooltip=tips,
        )
    )
    return chart_with_words(bars, title, "")


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
