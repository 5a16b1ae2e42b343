"""What each section of a page says about a plan."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from sfumato._util.frames import safe_text
from sfumato.plans.explain import any_noise_text, bias_text, noise_name, objective_text, starving
from sfumato.plans.plan import Plan
from sfumato.plans.planned import WorkloadPlan, counted
from sfumato.present.words import (
    Family,
    above_bound,
    guarantee,
    parameter,
    scientific,
    sensitivity_text,
    share,
    show,
    statement,
)
from sfumato.privacy.ledger.words import attack_success, percent_up, secret

__all__ = [
    "asked",
    "attributes",
    "errors",
    "figures",
    "lead",
    "measured",
    "parts",
    "protects",
    "reading",
    "short",
    "split",
    "worst",
]


Section = dict[str, Any]
_WORST = 20  # a table that fits a screen
_REASON = 160  # characters: two lines of a cell of a table


def plural(count: int, one: str, many: str | None = None) -> str:
    """A count with its noun."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def cells_text(cells: int) -> str:
    """A number of cells, however large."""
    return f"{cells:,}" if cells < 10**9 else scientific(f"{Decimal(cells):.1e}")


def table_text(plan: WorkloadPlan) -> str:
    """The table that a plan is about."""
    return f"a table of {plural(len(plan.workload.domain.names), 'attribute')}"


def lead(plan: Plan, queries: int, *, released: bool, projected: bool = False) -> str:
    """The page in two sentences."""
    table = table_text(plan)
    typical = f"{show(plan.mean_error)} {_unit(plan)}"
    if plan.forecast is not None and plan.forecast.proved:
        typical = f"at most {typical} once projected, {show(plan.forecast.raw)} before"
    if released:
        first = f"{plural(queries, 'answer')} about {table}, with a typical error of {typical}."
        if projected and plan.forecast is None:
            first = f"{first[:-1]} before they were projected onto what is possible."
        elif plan.forecast is not None and not plan.forecast.proved:
            first = f"{first[:-1]} for pairs of attributes, before models denoised them."
        return f"{first} They were released under {statement(plan.budget)}."
    first = f"A plan to answer {plural(queries, 'query', 'queries')} about {table} with a typical error of {typical}."
    return f"{first} It promises {statement(plan.budget)}. No data were read, and nothing was spent."


def figures(plan: Plan, queries: int, *, projected: bool = False) -> list[tuple[str, str, str]]:
    """The strip of key figures: name, value, small print."""
    above = above_bound(plan)
    unit = safe_text(plan.main_unit)
    when = ", before projection" if projected or plan.forecast is not None else ""
    over = f", {alike}" if (alike := objective_text(plan)) else ""
    typical = f"{_unit(plan)}, root mean squared{over}{when}"
    if plan.forecast is not None:
        typical = f"{unit} at most, once projected" if plan.forecast.proved else f"{unit}, of pairs before denoising"
    return [
        ("Queries", f"{queries:,}", f"in {plural(len(plan.workload.parts), 'part')}"),
        ("Guarantee", short(plan), plan.unit.describe()),
        ("Typical error", show(plan.mean_error), typical),
        ("Largest standard error", show(plan.max_standard_error), f"{unit}{when}"),
        ("Above the lower bound", "–", "no lower bound is known")
        if above is None
        else ("Above the lower bound", share(above), "at most; the best possible may be closer"),
    ]


def _unit(plan: Plan) -> str:
    """The unit of the typical error."""
    return safe_text(plan.workload.units[0]) if len(plan.workload.units) == 1 else "records"


def short(plan: WorkloadPlan) -> str:
    """The guarantee as an equation."""
    b = plan.budget
    value = parameter(b.parameter)
    if b.delta is not None:
        # no line break inside an equation
        return f"ε = {value}, δ = {parameter(b.delta)}".replace(" = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}")
    return {"pure": "ε", "zcdp": "ρ", "gdp": "μ"}[b.kind] + f" = {value}"


def protects(plan: WorkloadPlan, *, released: bool) -> list[str]:
    """The guarantee in plain language."""
    what = "this release" if released else "a release of this plan"
    right = percent_up(attack_success(plan.price))
    unit = plan.unit
    given = f"The guarantee is {statement(plan.budget)} for {safe_text(unit.describe())}: {guarantee(plan.budget)}."
    if unit.total_is_public:
        own = f"that of every {safe_text(unit.within.name)}, in which every record stays" if unit.within else ""
        given += f" The number of records is treated as public{', and so is ' * bool(own)}{own}."
    out = [
        f"Take an attacker who knows everything about the table except one thing: they want to tell {secret(unit)}. "
        f"If they would be right half of the time by guessing, then with {what} they are right at most {right} of the "
        "time, whatever they compute and whatever else they know or come to know.",
        given,
    ]
    if told := counted(unit):
        out.append(
            f"Counted are {told}. Of a person with more, any rows are as likely to be kept as any others. "
            "Exact answers are those of the rows that are counted."
        )
    out.append(
        f"{what[0].upper()}{what[1:]} does not hide what is true of many people at once: such patterns are its "
        "purpose. Guarantees of several releases about the same people add up, which is what the ledger is for."
    )
    return out


def reading(plan: Plan, *, projected: bool = False) -> list[str]:
    """How to read an answer."""
    projected = projected or plan.forecast is not None
    law = noise_name(plan)
    on_purpose = plan.bias_records is not None
    near = "near the exact one, with" if on_purpose else "the exact one plus"
    every, often = ("unprojected answer", "at least 95") if projected else ("answer", "95")
    whole = (
        "Projected answers are possible ones: none is negative where a count cannot be. They are biased where that "
        "binds, so they have no standard error; add up the unprojected answers instead, which are in the files too."
        if projected
        else "Small counts can come out negative or fractional. That is no mistake: setting them to zero or rounding "
        "them would make every sum of them wrong on average. As they are, answers may be added up."
    )
    out = [
        f"Every {every} is {near} random error of mean zero, made from {law}. The standard error is "
        "the typical size of that error: it was known before the data were read and is part of the release. It does "
        "not include errors of the table itself, such as sampling or non-response.",
        f"A 95 % interval contains the exact answer in {often} of 100 releases. Of many intervals, some miss.",
        whole,
    ]
    bias = plan.bias_bound
    if on_purpose:
        out.append(f"{bias_text(plan).capitalize()}.")
    elif bias > 0:
        out.append(f"Rounding of coefficients can shift an answer by at most {bias:.1e} per record of the table.")
    return out


def asked(plan: Plan, found: Sequence[Family]) -> str:
    """How much was asked."""
    queries, tables = sum(f.queries for f in found), len(found)
    return (
        f"{plural(queries, 'query', 'queries')} in {plural(tables, 'table or family', 'tables and families')} over "
        f"{plural(len(plan.workload.domain.names), 'declared attribute')}."
    )


def parts(plan: Plan, part: str | None = None) -> list[Section]:
    """One line per part, unit and number of attributes."""
    rows = [r for r in plan.errors_by_order().rows() if part in (None, r["part"])]
    return [
        {
            "name": safe_text(r["part"]),
            "order": str(r["attributes"]),
            "families": f"{r['tables']:,}",
            "queries": f"{r['queries']:,}",
            "unit": safe_text(r["unit"]),
            "rmse": show(r["rmse"]),
            "worst": show(r["worst_standard_error"]),
            "margin": show(r["margin"]),
            "alone": "–" if r.get("alone") is None else show(r["alone"]),
            "ratio": "–" if r.get("ratio") is None else f"{r['ratio']:.3g}",
        }
        for r in rows
    ]


def split(plan: Plan) -> str:
    """How the budget is split, and how to change that."""
    text = (
        "The typical error is the root mean squared error"
        + (f", {alike}" if (alike := objective_text(plan)) else "")
        + ". Alone: what it would be if these queries had the whole budget."
    )
    starved = starving(plan)
    return f"{text} {safe_text(starved)}." if starved else text


def attributes(plan: WorkloadPlan) -> list[Section]:
    """The declared attributes."""
    out: list[Section] = []
    for name, attribute in plan.workload.domain.attributes.items():
        labels = attribute.labels
        few = labels if len(labels) <= 6 else (*labels[:3], "…", *labels[-2:])
        cells = ", ".join(t if t == "…" else safe_text(t) for t in few)
        out.append({"name": safe_text(name), "kind": attribute.kind, "size": f"{attribute.size:,}", "cells": cells})
    for _, said in plan.workload.domain.told():
        out.append({"name": "declared impossible", "kind": "predicates", "size": "", "cells": safe_text(said)})
    return out


def measured(plan: Plan) -> Section:
    """What is measured, the candidates as bars, the distance from the bound."""
    values = sum(b.rows for b in plan.strategy.blocks)
    agree = ", so all answers agree with each other" if plan.bias_records is None else ""
    text = (
        f"Instead of the queries themselves, {plural(values, 'noisy integer')} "
        f"{'is' if values == 1 else 'are'} measured: {safe_text(plan.strategy.summary)}. "
        f"Every answer is computed from these{agree}, and further ones cost nothing."
    )
    applied = [c for c in plan.considered if c.value is not None]
    refused = [c for c in plan.considered if c.value is None]
    bound = plan.lower_bound
    widest = max([c.value or 0.0 for c in applied] + [bound or 0.0, 1e-300])
    bars: list[Section] = [
        _bar(c.mechanism, safe_text(c.strategy), c.value or 0.0, widest, chosen=c.note == "chosen") for c in applied
    ]
    if bars and bound is not None:
        bars.append(
            _bar("proved for Gaussian noise", "no unbiased answers with it err less", bound, widest, bound=True)
        )
    return {
        "measured": text,
        "candidates": bars,
        "choice": _choice(plan, len(applied)),
        "distance": _distance(plan),
        "refused": [{"mechanism": c.mechanism, "note": _shortened(safe_text(c.note))} for c in refused],
        "mechanism": [
            ("Mechanism", plan.mechanism),
            ("Noise", noise_name(plan)),
            ("Sensitivity", sensitivity_text(plan)),
            ("Objective", _objective(plan)),
            ("Exact up to", f"{plan.record_limit:,} records: beyond that integers of 64 bits would not suffice"),
            *(() if plan.forecast is None else (("Projection", f"onto {plan.body!r}: {plan.forecast.verdict}"),)),
            *(("Note", safe_text(n)) for n in plan.notes),
        ],
    }


def _objective(plan: Plan) -> str:
    if plan.objective == "max":
        return "max: the largest standard error"
    alike = objective_text(plan) or "every query alike"
    return f"{plan.objective}: the mean squared error, {alike}; weights multiply it"


def _shortened(text: str) -> str:
    return text if len(text) <= _REASON else text[: _REASON - 1] + "…"


def _bar(name: str, note: str, value: float, widest: float, *, chosen: bool = False, bound: bool = False) -> Section:
    width = f"{max(0.0, 62 * value / widest):.2f}"
    return {"name": name, "note": note, "value": show(value, 4), "width": width, "chosen": chosen, "bound": bound}


def _compared(plan: Plan) -> str:
    """What plans are compared by, and bounded in."""
    if plan.forecast is not None:
        when = ", once projected" if plan.forecast.proved else " of pairs, before denoising"
        return f"root mean squared error{when}"
    largest = plan.objective == "max"
    plain = plan.max_standard_error if largest else plan.mean_error
    weighted = "" if math.isclose(plan.objective_value, plain, rel_tol=1e-6) else "weighted "
    return f"largest {weighted}standard error" if largest else f"{weighted}root mean squared error"


def _choice(plan: Plan, count: int) -> str:
    what = f"{_compared(plan)} ({_unit(plan)})"
    if count == 1:
        return f"One way to measure was considered. Its predicted {what}:"
    return (
        f"{plural(count, 'way')} to measure were compared without any data, and the one with the least was taken. "
        f"Predicted {what} of each:"
    )


def _distance(plan: Plan) -> str:
    above = above_bound(plan)
    if above is None:
        if plan.bias_records is not None or plan.forecast is not None:
            return "Lower bounds that are known are for unbiased answers, and these are not."
        return "For this noise and these queries no lower bound is known, so how far this is from the best is open."
    return (
        f"No unbiased answers made from additive Gaussian noise of any shape can have a smaller {_compared(plan)} than "
        f"{show(plan.lower_bound, 4)} at this price: this is proved. "
        f"The plan is {share(above)} above it, at {show(plan.objective_value, 4)}{any_noise_text(plan)}."
    )


def errors(found: Sequence[Family], *, projected: bool = False) -> str:
    """What the chart of errors shows."""
    exact = sum(f.rmse == 0 for f in found)
    many = "needs no noise and is exact" if exact == 1 else "need no noise and are exact"
    known = f" {exact:,} of them {many}." if exact else ""
    return (
        "Predicted before the data were read, from the noise alone. The typical error of a table is the root mean "
        f"squared error of its cells.{known}" + (" All of this is about the unprojected answers." if projected else "")
    )


def worst(found: Sequence[Family]) -> tuple[str, list[Section]]:
    """The families with the largest standard errors, those of one unit after another."""
    units = list(dict.fromkeys(f.unit for f in found))
    ranked = sorted(found, key=lambda f: (units.index(f.unit), -f.worst))[:_WORST]
    rows = [
        {"name": f.name, "part": f.part, "queries": f"{f.queries:,}", "unit": f.unit, "rmse": show(f.rmse)}
        | {
            "worst": show(f.worst),
            "margin": show(f.margin),
            "smallest": "–" if f.smallest is None else f"{f.smallest:,}",
        }
        for f in ranked
    ]
    if len(found) <= _WORST:
        return "All of them, the largest standard error first", rows
    return f"The {_WORST} with the largest standard errors, of {len(found):,}", rows
