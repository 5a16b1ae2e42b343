"""The spec as a page shows it, and what its plan will err: under this budget and under others. No data are read.

A page gets the spec's tables, what every column declares, what is still wrong, and in which question. Errors of
additive noise are proportional to its standard deviation, so one plan answers for all budgets; other weights or
questions are planned anew.
"""

from __future__ import annotations

import itertools
import math
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from sfumato._util.codec import value_fingerprint
from sfumato._util.frames import Frame, safe_text
from sfumato.domain import Measure
from sfumato.errors import InvalidInput, PlanError, SfumatoError, SpecError
from sfumato.mechanisms.labels import label_looks
from sfumato.planner.preview import budget_error_factor, errors_scale, preview
from sfumato.plans.explain import objective_text
from sfumato.plans.iterative import IterativePlan
from sfumato.plans.labels import LabelPlan, least_occurrence
from sfumato.plans.plan import Plan
from sfumato.plans.streams import StreamPlan
from sfumato.present.sections import cell_count_text
from sfumato.present.words import above_bound, budget_statement, guarantee_sentence, predicted_families, show_figures
from sfumato.privacy import budget as conversions
from sfumato.privacy.accounting import GaussianEvent, PureEvent, ZcdpEvent
from sfumato.privacy.budget import Budget
from sfumato.privacy.labels import LabelLook
from sfumato.privacy.ledger import Ledger
from sfumato.privacy.ledger.words import attack_success, percent_up
from sfumato.privacy.rounding import sqrt_up
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.releasing import plan_from_spec
from sfumato.specs import Spec
from sfumato.studio import drafts
from sfumato.studio.drafts import still_to_do
from sfumato.studio.workspace import Workspace
from sfumato.terminal import csv_text
from sfumato.workloads import RECORDS, QueryBlock, Workload

_LISTED = 2_000  # tables listed one by one: all of forty attributes' pairs and singles, and a page that still scrolls
_TOGETHER = (
    1.0  # second of planning for one request: the page asks again for the rest, and other requests get their turn
)
_FIFTH = 5  # a count is known to a fifth where it is five standard errors


@dataclass(frozen=True, slots=True)
class ScaledErrors:
    """How many times the planned errors are under another budget, and what that budget promises."""

    factor: float
    guarantee: str
    statement: str
    attack: str


def plan_figures(plan: Plan | IterativePlan | LabelPlan | StreamPlan) -> dict[str, Any]:
    """A plan for the page: lines by part and order, every table, the bound, words. Plain JSON values."""
    if isinstance(plan, IterativePlan):
        return {"lines": [], "tables": [], "note": _UNKNOWN} | _promise_facts(plan.budget)
    if isinstance(plan, LabelPlan):
        return {"lines": [], "tables": [], "note": _labels_note(plan)} | _promise_facts(plan.budget)
    one = plan.at() if isinstance(plan, StreamPlan) else plan
    rows = one.errors_by_order().rows()
    units = Counter((row["part"], row["attributes"]) for row in rows)
    lines = [_error_line(row, _line_subject(one, row, units)) for row in rows]
    found = predicted_families(one)
    tables = [
        {
            "name": f.name,
            "part": f.part,
            "cells": f.queries,
            "unit": f.unit,
            "margin": _finite_or_none(f.margin),
            "rmse": _finite_or_none(f.rmse),
        }
        | {"fifth": f.smallest if f.unit == RECORDS else None}
        for f in found[:_LISTED]
    ]
    above = above_bound(one)
    about = {
        "mechanism": one.mechanism,
        "typical": show_figures(one.mean_error),
        "alike": objective_text(one) or "every query alike",
        "bound": _finite_or_none(one.lower_bound),
        "above": None if above is None else above,
        "unit": safe_text(one.main_unit),
        "queries": len(one.workload),
        "scales": errors_scale(one),
        "notes": [safe_text(n) for n in one.notes],
        "omitted": max(0, len(found) - _LISTED),
        "means": _mean_margins(one, rows),
    }
    note = _STREAM if isinstance(plan, StreamPlan) else ""
    return {"lines": lines, "tables": tables, "note": note} | about | _promise_facts(one.budget)


def search_sentences(looks: Sequence[LabelLook], whole: Fraction) -> dict[str, str]:
    """By attribute what finding its labels costs, and how many persons must have one for it to be shown."""
    told: dict[str, str] = {}
    for name in dict.fromkeys(k.attribute for k in looks):
        own = [k for k in looks if k.attribute == name]
        laws = [k.selection for k in own if not k.letters]
        half, sure = (least_occurrence(laws, chance, 1) for chance in (0.5, 0.99))
        share = float(sum(k.price.mu_squared for k in own) / whole)
        told[name] = (
            f"{share:.0%} of the budget looks which labels occur; one that {half:,} have is shown with 50 %, one that "
            f"{sure:,} have with 99 %."
        )
        most = laws[0].per_person
        if most > 1:
            half, sure = (least_occurrence(laws, chance, most) for chance in (0.5, 0.99))
            told[name] += f" Of persons with {most:,} labels each it takes {half:,} and {sure:,}."
    return told


def _labels_note(plan: LabelPlan) -> str:
    """What finding labels costs, how often one must occur, and what the tables then err."""
    told = search_sentences(plan.looks, plan.price.mu_squared)
    found = " ".join(f"{safe_text(name)}: {sentence}" for name, sentence in told.items())
    errors = ", ".join(f"{show_figures(e.largest)} with {e.labels:,} labels" for e in plan.expected)
    return f"Two looks, both paid for before the first. {found} The largest standard error of a count is then {errors}."


_NO_THRESHOLDS = (
    "To find labels, an epsilon and a delta are needed of which a part is set aside: thresholds in the spec."
)
_UNKNOWN = (
    "This mechanism looks at the data several times and promises no useful error before that. Its price is known: it "
    "is the budget."
)
_STREAM = "These are the totals after the last period of the stream that is declared; sfumato plan SPEC shows all."


def _promise_facts(budget: Budget) -> dict[str, Any]:
    return {
        "guarantee": guarantee_sentence(budget),
        "statement": budget_statement(budget),
        "budget": budget_numbers(budget),
    }


def budget_numbers(budget: Budget) -> dict[str, str]:
    """The numbers of a budget as a person types them."""
    given = {"delta": budget.delta, "thresholds": budget.thresholds}
    numbers = {"parameter": budget.parameter} | {k: v for k, v in given.items() if v is not None}
    return {"kind": budget.kind} | {k: f"{float(v):.10g}" for k, v in numbers.items()}


def _finite_or_none(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _error_line(row: Mapping[str, Any], subject: str) -> dict[str, Any]:
    alone = row.get("alone")
    known = {k: _finite_or_none(row[k]) for k in ("rmse", "margin")} | {"alone": _finite_or_none(alone)}
    fifth = math.ceil(row["worst_standard_error"] * _FIFTH) if row["unit"] == RECORDS else None
    return {
        "part": safe_text(row["part"]),
        "what": subject,
        "key": row["part"],
        "order": row["attributes"],
        "tables": row["tables"],
        "queries": row["queries"],
        "unit": safe_text(row["unit"]),
        "fifth": fifth,
        **known,
    }


def _line_subject(plan: Plan, row: Mapping[str, Any], units: Mapping[tuple[str, int], int]) -> str:
    """What a line is about where others have its part and number of attributes; else nothing."""
    if units[row["part"], row["attributes"]] < 2:
        return ""
    of = "" if row["unit"] == RECORDS else "sums of "
    texts = _measured_texts(plan, row["part"], row["unit"])
    return safe_text(of + (texts[0] if len(texts) == 1 else row["unit"]))


def _measured_texts(plan: Plan, part: str, unit: str) -> list[str]:
    """What the single rows of a part say that they measure in a unit."""
    items = (e.item for e in plan.entries if isinstance(e.item, QueryBlock))
    found = (t for i in items if (i.part, i.unit) == (part, unit) for axis in i.labels for t in axis or () if t)
    return list(dict.fromkeys(found))


def _mean_margins(plan: Plan, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What the means of a measure err, times the records of a group: at the middle of its range, and at its ends.

    What is measured are counts and sums of numbers less the middle. A mean m of n records errs by the sum's error and
    by (m - middle) times the count's, both over n.
    """
    domain, margins = plan.workload.domain, dict[tuple[str, str], float]()
    for row in rows:
        key = row["part"], row["unit"]
        margins[key] = max(margins.get(key, 0.0), row["margin"])
    found: list[dict[str, Any]] = []
    for (part, unit), sums in margins.items():
        measure, counts = domain[unit] if unit in domain.measures else None, margins.get((part, RECORDS))
        if not isinstance(measure, Measure) or counts is None or len(_measured_texts(plan, part, unit)) != 1:
            continue
        half = (float(measure.high) - float(measure.low)) / 2
        middle = show_figures(float(measure.low) + half)
        ends = math.hypot(sums, half * counts)
        found.append({"part": safe_text(part), "name": safe_text(unit), "about": middle, "least": sums, "most": ends})
    return found


Alone = dict[str, float | None]
"""Typical errors of tables that had the whole budget of a spec, by what they measure."""


def errors_alone(spec: Spec, numbers: Sequence[int], known: Alone) -> dict[int, float | None]:
    """The typical error of tables, by their number in the spec's order, if each had the whole budget to itself.

    None where no plan of it alone is made. As many as are planned in a second, and at least one; `known` keeps them.
    """
    listed = list(itertools.islice((b for i in spec.workload.items for b in i.blocks()), _LISTED))
    found: dict[int, float | None] = {}
    until = time.monotonic() + _TOGETHER
    for number in numbers:
        if not 0 <= number < len(listed):
            raise InvalidInput("the plan has no table of that number")
        block = listed[number]
        key = _alone_key(spec, block)
        if key not in known:
            if found and time.monotonic() > until:
                break
            known[key] = _planned_alone(spec, block)
        found[number] = known[key]
    return found


def _alone_key(spec: Spec, query: QueryBlock) -> str:
    """What tells tables apart that err differently alone.

    Whole tables of counts do not, whatever their cells, where a record is in one cell of each: no noise of another
    shape errs less on all cells than independent noise does. Under replace-one, with cells that cannot be, with tables
    that are known, or with rows that are counted once per group, it does.
    """
    plain = not (spec.domain.impossible or spec.public or spec.once_per)
    alike = spec.neighbours is Neighbours.ADD_REMOVE and plain
    return "a table" if alike and query.is_marginal else value_fingerprint((query.block, query.unit))


def _planned_alone(spec: Spec, query: QueryBlock) -> float | None:
    try:
        plan = plan_from_spec(replace(spec, workload=Workload(spec.domain, (query,)), margins={}))
    except SfumatoError:
        return None
    return _finite_or_none(plan.mean_error) if isinstance(plan, Plan) else None


def scale_errors(plan: Plan, budget: Budget) -> ScaledErrors:
    """The plan under another budget. Raises PlanError where errors do not scale."""
    factor = budget_error_factor(plan, budget)
    if isinstance(plan.price, GaussianEvent):
        right = attack_success(GaussianEvent(budget.mu_squared))
    elif isinstance(plan.price, PureEvent):
        right = attack_success(PureEvent(budget.laplace_epsilon))
    else:
        right = attack_success(ZcdpEvent(budget.rho))
    return ScaledErrors(factor, guarantee_sentence(budget), budget_statement(budget), percent_up(right))


def budget_for_margin(plan: Plan, margin: float, part: str, order: int, unit: str = RECORDS) -> Budget:
    """The least budget of the plan's kind and delta at which the margins of a line are at most `margin`.

    By scaling, rounded up to four digits; the noise's grid can leave a difference of some thousandths.
    """
    if not errors_scale(plan):
        raise PlanError("the errors of this mechanism do not scale with the budget; sfumato plan --margin finds it")
    if not 0 < margin < math.inf:
        raise InvalidInput("a margin is a positive number, in the unit of the answers")
    wanted = (part, order, unit)
    rows = plan.errors_by_order().rows()
    now = next((r["margin"] for r in rows if (r["part"], r["attributes"], safe_text(r["unit"])) == wanted), 0)
    if not now:
        raise InvalidInput("no line of the plan is of that part and number of attributes")
    return _budget_of_smaller_errors(plan, Fraction(now) / Fraction(margin))


def known_of_group(plan: Plan, condition: str, count: float, within: float, budget: Budget) -> dict[str, Any]:
    """How well a group of about `count` records would be known under a budget, and what `within` of it would take.

    `within` is a share of the count. Raises SfumatoError as `preview` does.
    """
    if not 0 < within < math.inf:
        raise InvalidInput("how exactly is a per cent of the group, such as 50")
    group = preview(plan, {condition: count}).expected[0]
    margin = float(group.margins[0])
    enough = _budget_of_smaller_errors(plan, Fraction(margin) / Fraction(within * count))
    now = margin * budget_error_factor(plan, budget)
    said = f"{safe_text(condition)}, about {count:,.6g}: ± {show_figures(now)}, which is ± {100 * now / count:,.3g} %."
    takes = f"To know it to ± {100 * within:.3g} % takes {str(enough).partition(';')[0]}."
    return {"margin": now, "share": now / count, "text": f"{said} {takes}", "budget": budget_numbers(enough)}


def _budget_of_smaller_errors(plan: Plan, times: Fraction) -> Budget:
    """The budget of the plan's kind and delta under which its errors are so many times smaller."""
    if not errors_scale(plan):
        raise PlanError("the errors of this mechanism do not scale with the budget; sfumato plan --margin finds it")
    budget = plan.budget
    if isinstance(plan.price, PureEvent):
        wanted = budget.laplace_epsilon * times
        if budget.kind == "gdp":
            raise PlanError("Laplace noise under a budget in mu: state the budget as epsilon to ask for a margin")
        if budget.kind == "zcdp":
            return Budget("zcdp", _four_digits_up(wanted**2 / 2))
        return Budget(budget.kind, _four_digits_up(wanted), budget.delta)
    if budget.kind == "zcdp":
        return Budget("zcdp", _four_digits_up(budget.parameter * times**2))
    if budget.kind == "gdp":
        return Budget("gdp", _four_digits_up(budget.parameter * times))
    assert budget.delta is not None
    if not isinstance(plan.price, GaussianEvent):
        return Budget(
            "approx", _four_digits_up(conversions.epsilon_of_rho(budget.rho * times**2, budget.delta)), budget.delta
        )
    mu = sqrt_up(budget.mu_squared * times**2)
    return Budget("approx", _four_digits_up(conversions.epsilon_of_mu(mu, budget.delta)), budget.delta)


_MOST_RELEASES = 10_000  # of one ledger: one a day for a generation


def year_total(one: Budget, releases: object) -> dict[str, Any]:
    """What so many releases of one budget take together: the total of a ledger that pays for them.

    Gaussian noise adds up by squares, pure epsilon and rho as they are. Raises InvalidInput.
    """
    if isinstance(releases, bool) or not isinstance(releases, int) or not 1 <= releases <= _MOST_RELEASES:
        raise InvalidInput(f"releases in all are a whole number from 1 to {_MOST_RELEASES:,}")
    if one.kind in ("pure", "zcdp"):
        total = replace(one, parameter=one.parameter * releases)
    else:
        mu = sqrt_up(one.mu_squared * releases)
        total = Budget.gdp(_four_digits_up(mu))
        if one.delta is not None:
            total = Budget.approx(_four_digits_up(conversions.epsilon_of_mu(mu, one.delta)), one.delta)
    together = budget_statement(total)
    text = f"{releases:,} releases of {budget_statement(one)} each take {together} in all: {guarantee_sentence(total)}."
    return {"budget": budget_numbers(total), "text": text}


def _four_digits_up(value: Fraction) -> Fraction:
    """Four digits, rounded up."""
    step = Fraction(10) ** (math.floor(math.log10(float(value))) - 3)
    return math.ceil(value / step) * step


_LABELS = 500  # of an attribute, offered while one types
_QUERY = re.compile(r"^(?:line \d+: )?queries\.(\d+)\b[.\w]*:? ?")


def spec_state(desk: Workspace, text: str | None = None) -> dict[str, Any]:
    """Everything that the pages before the payment show, of the spec's file or of another text. No data are read."""
    given = desk.text if text is None else text
    version = drafts.text_version(given)
    try:
        drafts.spec_tables(given)
    except ValueError:
        return {"version": version, "broken": "the spec is not TOML; mend it in an editor"}
    found = desk.state(given, lambda: _declared_state(desk, given))
    header = None if desk.header is None else list(desk.header)
    known = {"header": header, "absent": list(desk.absent()), "undoable": desk.undoable}
    return {"version": version, "broken": None} | known | found


def _declared_state(desk: Workspace, text: str) -> dict[str, Any]:
    """What hangs on the text alone, and on the files that it names."""
    tables = drafts.spec_tables(text)
    declared = [t for kind in ("schema", "measures") if isinstance(t := tables.get(kind), dict)]
    columns = {name: _column_state(desk, tables, name) for table in declared for name in table}
    found: dict[str, Any] = {
        "spec": drafts.tables_for_page(text),
        "columns": columns,
        "problem": None,
        "todo": None,
        "at": None,
    }
    try:
        spec = desk.spec(text)
    except (InvalidInput, SpecError) as error:
        said = desk.said(error)
        place = _QUERY.match(said)
        found["problem"] = said if place is None else said[place.end() :]
        found["todo"] = desk.placeless(still_to_do(text, said)) if place is None else None
        found["at"] = None if place is None else int(place[1]) - 1
        return found
    domain = spec.domain
    found["cells"] = cell_count_text(math.prod(domain.sizes(domain.dimensions)))
    found["queries"] = f"{len(spec.workload):,}"
    found["stream"] = spec.periods is not None
    found["attributes"] = [
        {"name": n, "size": a.size, "ordered": a.ordered, "summed": a.intervals is not None}
        | {"labels": [safe_text(t) for t in a.declared_labels[:_LABELS]] if a.intervals is None else []}
        | {"other": a.has_other}
        | {"levels": [*(level.name for level in a.groupings), *([a.cell_level] if a.cell_level else [])]}
        for n, a in domain.attributes.items()
        if n not in domain.measures
    ]
    if domain.discovered:
        for name, said in _search_told(spec).items():
            columns[name] = columns.get(name, {}) | {"search": said}
    found["measures"] = [
        f"{safe_text(n)}, {drafts.range_text(m)}" for n, m in domain.attributes.items() if isinstance(m, Measure)
    ]
    found["groups"] = [
        {"name": n, "labels": [safe_text(t) for t in domain[n].declared_labels[:_LABELS]], "other": domain[n].has_other}
        for n in domain.levels
    ]
    return found


def _search_told(spec: Spec) -> dict[str, str]:
    """What finding the labels of its columns costs, or why it cannot be done."""
    try:
        unit = PrivacyUnit(Neighbours.parse(spec.neighbours), spec.person, spec.rows_per_person)
        if spec.budget.thresholds is None:
            return dict.fromkeys(spec.domain.discovered, _NO_THRESHOLDS)
        return search_sentences(label_looks(spec.domain, spec.budget, unit), spec.budget.mu_squared)
    except SfumatoError as error:
        return dict.fromkeys(spec.domain.discovered, str(error))


def _column_state(desk: Workspace, tables: dict[str, Any], name: str) -> dict[str, Any]:
    found = drafts.describe_column(tables, name, desk.places.spec.parent)
    return found | {"error": desk.placeless(found["error"])} if "error" in found else found


def ledger_csv(ledger: Ledger) -> str:
    """Every spend for an outside accountant."""
    rows = ledger.export()
    return csv_text(Frame({name: [row[name] for row in rows] for name in Ledger.EXPORTED}))
