"""What each section of a page says of a plan, beside the facts by which the plan describes itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal

from sfumato._util.catalogue import local_number, page_language, say_amount, say_words, superscript_exponent
from sfumato._util.description import Bar, Bars, Chart, Description, Facts, Figures, Sentences, TitledTable
from sfumato._util.frames import Frame, safe_text
from sfumato.plans.explain import bias_text, errors_by_part, noise_name, objective_text
from sfumato.plans.plan import Plan
from sfumato.plans.planned import WorkloadPlan, counted_rows_text
from sfumato.present import charts
from sfumato.present.words import (
    FamilyErrors,
    above_bound,
    budget_statement,
    guarantee_sentence,
    parameter_text,
    percentage_text,
    show_figures,
)
from sfumato.privacy.ledger.words import attack_success, percent_up, secrecy_clause
from sfumato.privacy.unit import PrivacyUnit
from sfumato.releases.ends import shown_cells

_WORST = 20  # a table that fits a screen
_REASON = 160  # characters: two lines of a cell of a table


def plural(count: int, one: str, many: str | None = None) -> str:
    """A count with its noun."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def cell_count_text(cells: int) -> str:
    """A number of cells, however large."""
    return f"{cells:,}" if cells < 10**9 else superscript_exponent(f"{Decimal(cells):.1e}")


def table_text(plan: WorkloadPlan) -> str:
    """The table that a plan is about."""
    return f"a table of {plural(len(plan.workload.domain.names), 'attribute')}"


def lead_sentences(plan: Plan, queries: int, *, released: bool, projected: bool = False) -> str:
    """The page in two sentences."""
    table = table_text(plan)
    typical = say_amount(show_figures(plan.mean_error), _error_unit(plan))
    if plan.forecast is not None and plan.forecast.proved:
        typical = f"at most {typical} once projected, {show_figures(plan.forecast.raw)} before"
    if released:
        text = "{queries} answers about a table of {attributes} attributes, with a typical error of {error}"
        if projected and plan.forecast is None:
            text += " before they were projected onto what is possible"
        elif plan.forecast is not None and not plan.forecast.proved:
            text += " for pairs of attributes, before models denoised them"
        text += ". They were released under {guarantee}."
        if queries == 1 or len(plan.workload.domain.names) == 1:
            text = text.replace("{queries} answers", "{queries} answer" + "s" * (queries > 1))
            text = text.replace(
                "{attributes} attributes", "{attributes} attribute" + "s" * (len(plan.workload.domain.names) > 1)
            )
        counts = {
            "queries": local_number(f"{queries:,}"),
            "attributes": local_number(f"{len(plan.workload.domain.names):,}"),
        }
        return say_words(text, **counts, error=typical, guarantee=budget_statement(plan.budget))
    first = f"A plan to answer {plural(queries, 'query', 'queries')} about {table} with a typical error of {typical}."
    return f"{first} It promises {budget_statement(plan.budget)}. No data were read, and nothing was spent."


def key_figures(plan: Plan, queries: int, *, projected: bool = False) -> Figures:
    """The strip of key figures."""
    above = above_bound(plan)
    unit = safe_text(plan.main_unit)
    when = ", before projection" if projected or plan.forecast is not None else ""
    over = f", {alike}" if (alike := objective_text(plan)) else ""
    typical = f"{_error_unit(plan)}, root mean squared{over}{when}"
    if plan.forecast is not None:
        typical = f"{unit} at most, once projected" if plan.forecast.proved else f"{unit}, of pairs before denoising"
    return Figures(
        [
            ("Queries", f"{queries:,}", f"in {plural(len(plan.workload.parts), 'part')}"),
            ("Guarantee", guarantee_equation(plan), plan.unit.describe()),
            ("Typical error", show_figures(plan.mean_error), typical),
            ("Largest standard error", show_figures(plan.max_standard_error), f"{unit}{when}"),
            ("Above the lower bound", "–", "no lower bound is known")
            if above is None
            else ("Above the lower bound", percentage_text(above), "at most; the best possible may be closer"),
        ]
    )


def _error_unit(plan: Plan) -> str:
    """The unit of the typical error."""
    return safe_text(plan.workload.units[0]) if len(plan.workload.units) == 1 else "records"


def guarantee_equation(plan: WorkloadPlan) -> str:
    """The guarantee as an equation."""
    b = plan.budget
    value = parameter_text(b.parameter)
    if b.delta is not None:
        # no line break inside an equation
        return f"ε = {value}, δ = {parameter_text(b.delta)}".replace(" = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}")
    return {"pure": "ε", "zcdp": "ρ", "gdp": "μ"}[b.kind] + f" = {value}"


def guarantee_sentences(plan: WorkloadPlan, *, released: bool) -> Sentences:
    """The guarantee in plain language."""
    what = "this release" if released else "a release of this plan"
    right = percent_up(attack_success(plan.whole_price))
    unit = plan.unit
    given = say_words(
        "The guarantee is {guarantee} for {unit}: {meaning}.",
        guarantee=budget_statement(plan.budget),
        unit=_unit_text(unit),
        meaning=guarantee_sentence(plan.budget),
    )
    if unit.total_is_public:
        own = f"that of every {safe_text(unit.within.name)}, in which every record stays" if unit.within else ""
        plain = "The number of records is treated as public."
        given += " " + (f"{plain[:-1]}, and so is {own}." if own else say_words(plain))
    attacker = (
        "Take an attacker who knows everything about the table except one thing: they want to tell {secret}. If they "
        "would be right half of the time by guessing, then with this release they are right at most {right} of the "
        "time, whatever they compute and whatever else they know or come to know."
    )
    attacker = attacker if released else attacker.replace("this release", what)
    out = [say_words(attacker, secret=_secret_text(unit), right=local_number(right)), given]
    if told := counted_rows_text(unit):
        out.append(
            f"Counted are {told}. Of a person with more, any rows are as likely to be kept as any others. "
            "Exact answers are those of the rows that are counted."
        )
    patterns = (
        "This release does not hide what is true of many people at once: such patterns are its "
        "purpose. Guarantees of several releases about the same people add up, which is what the ledger is for."
    )
    out.append(say_words(patterns if released else patterns.replace("This release", "A release of this plan")))
    return Sentences(out)


def _unit_text(unit: PrivacyUnit) -> str:
    """Who is protected; in other languages without the name of a column and the numbers of rows."""
    told = safe_text(unit.describe())
    known = page_language() == "en" or (unit.person is None and not unit.within)
    return say_words(told) if known else say_words("one person with all counted rows")


def _secret_text(unit: PrivacyUnit) -> str:
    """What an attacker cannot tell."""
    known = page_language() == "en" or (unit.person is None and not unit.within)
    return say_words(secrecy_clause(unit)) if known else say_words("what the counted rows of one given person are")


READING = "How to read the numbers"


def reading_advice(plan: Plan, *, projected: bool = False) -> Sentences:
    """How to read an answer."""
    projected = projected or plan.forecast is not None
    law = noise_name(plan)
    on_purpose = plan.bias_records is not None
    first = (
        "Every answer is the exact one plus random error of mean zero, made from {noise}. The standard error is "
        "the typical size of that error: it was known before the data were read and is part of the release. It does "
        "not include errors of the table itself, such as sampling or non-response."
    )
    first = first.replace("the exact one plus", "near the exact one, with") if on_purpose else first
    first = first.replace("Every answer", "Every unprojected answer") if projected else first
    often = "A 95 % interval contains the exact answer in 95 of 100 releases. Of many intervals, some miss."
    often = often.replace("in 95", "in at least 95") if projected else often
    whole = say_words(
        "Projected answers are possible ones: none is negative where a count cannot be. They are biased where that "
        "binds, so they have no standard error; add up the unprojected answers instead, which are in the files too."
        if projected
        else "Small counts can come out negative or fractional. That is no mistake: setting them to zero or rounding "
        "them would make every sum of them wrong on average. As they are, answers may be added up."
    )
    out = [say_words(first, noise=say_words(law)), say_words(often), whole]
    bias = plan.bias_bound
    if on_purpose:
        out.append(f"{bias_text(plan).capitalize()}.")
    elif bias > 0:
        out.append(f"Rounding of coefficients can shift an answer by at most {bias:.1e} per record of the table.")
    return Sentences(out, say_words(READING), listed=True)


def asked_text(plan: Plan, found: Sequence[FamilyErrors], part: str | None) -> Description:
    """What was asked, how the budget is split, and the declared attributes."""
    queries, tables = sum(f.queries for f in found), len(found)
    text = (
        f"{plural(queries, 'query', 'queries')} in {plural(tables, 'table or family', 'tables and families')} over "
        f"{plural(len(plan.workload.domain.names), 'declared attribute')}."
    )
    return asked_section(text, plan, errors_by_part(plan, part))


def asked_section(text: str, plan: WorkloadPlan, *errors: TitledTable) -> Description:
    """What was asked, and the declared attributes."""
    domain = plan.workload.domain
    columns: dict[str, list[str]] = {"Attribute": [], "Type": [], "Cells": [], "First and last": []}
    rows: list[tuple[str, str, str, Sequence[str]]] = []
    for name, a in domain.attributes.items():
        cells = a.labels if page_language() == "en" else tuple(shown_cells(domain, name))
        rows.append((name, a.kind, f"{a.size:,}", cells if len(cells) <= 6 else (*cells[:3], "…", *cells[-2:])))
    rows += [("declared impossible", "predicates", "", (said,)) for _, said in domain.told()]
    for row in rows:
        shown = (*row[:3], ", ".join(t if t == "…" else safe_text(t) for t in row[3]))
        for column, value in zip(columns.values(), shown, strict=True):
            column.append(value)
    caption = (
        f"The declared attributes: {cell_count_text(domain.size)} cells in all. Nothing of this was read from the data"
    )
    table = TitledTable(caption, Frame(columns), ("Cells",), "Declared attributes", len(rows))
    return Description("What was asked", [Sentences([text]), *errors, table], "asked", "Asked")


def measured_section(plan: Plan, *, released: bool) -> Description:
    """What is measured, the candidates as bars, and the facts of the plan."""
    values = sum(b.rows for b in plan.strategy.blocks)
    agree = ", so all answers agree with each other" if plan.bias_records is None else ""
    text = (
        f"Instead of the queries themselves, {plural(values, 'noisy integer')} "
        f"{'is' if values == 1 else 'are'} measured: {safe_text(plan.strategy.summary)}. "
        f"Every answer is computed from these{agree}, and further ones cost nothing."
    )
    applied = [(c, c.value) for c in plan.considered if c.value is not None]
    refused = [f"{c.mechanism} ({_shorten_reason(safe_text(c.note))})" for c in plan.considered if c.value is None]
    bars = [
        Bar(c.mechanism, safe_text(c.strategy), value, show_figures(value, 4), "chosen" if c.note == "chosen" else "")
        for c, value in applied
    ]
    bound = plan.lower_bound
    if bars and bound is not None:
        note = "no unbiased answers with it err less"
        bars.append(Bar("proved for Gaussian noise", note, bound, show_figures(bound, 4), "bound"))
    unapplied = [f"Not applicable here: {'; '.join(refused)}."] if refused else []
    blocks = [
        Sentences([text, *([_choice_text(plan, len(applied))] if bars else [])]),
        Bars(bars),
        Sentences(unapplied, quiet=True),
    ]
    return measured_facts_section(plan, blocks, f"What {'was' if released else 'will be'} measured, and why")


def measured_facts_section(plan: WorkloadPlan, blocks: Sequence[Sentences | Bars], heading: str) -> Description:
    """Blocks about what is measured, and before them all facts of the plan."""
    told = plan.describe()
    facts = [Facts(b.rows, told.headline) for b in told.blocks if isinstance(b, Facts)]
    return Description(heading, [*blocks, *facts], "measured", "Measured")


def _shorten_reason(text: str) -> str:
    return text if len(text) <= _REASON else text[: _REASON - 1] + "…"


def _comparison_measure(plan: Plan) -> str:
    """What plans are compared by."""
    if plan.forecast is not None:
        when = ", once projected" if plan.forecast.proved else " of pairs, before denoising"
        return f"root mean squared error{when}"
    largest = plan.objective == "max"
    plain = plan.max_standard_error if largest else plan.mean_error
    weighted = "" if math.isclose(plan.objective_value, plain, rel_tol=1e-6) else "weighted "
    return f"largest {weighted}standard error" if largest else f"{weighted}root mean squared error"


def _choice_text(plan: Plan, count: int) -> str:
    what = f"{_comparison_measure(plan)} ({_error_unit(plan)})"
    if count == 1:
        return f"One way to measure was considered. Its predicted {what}:"
    return (
        f"{plural(count, 'way')} to measure were compared without any data, and the one with the least was taken. "
        f"Predicted {what} of each:"
    )


def errors_text(found: Sequence[FamilyErrors], *, projected: bool = False) -> Description:
    """The error of every table and family: charts, and those that err most."""
    exact = sum(f.rmse == 0 for f in found)
    many = "needs no noise and is exact" if exact == 1 else "need no noise and are exact"
    text = (
        "Predicted before the data were read, from the noise alone. The typical error of a table is the root mean "
        f"squared error of its cells.{f' {exact:,} of them {many}.' if exact else ''}"
        + (" All of this is about the unprojected answers." if projected else "")
    )
    drawn: list[Chart] = []
    for i, unit in enumerate(dict.fromkeys(f.unit for f in found)):
        spec = charts.family_chart([f for f in found if f.unit == unit])
        if spec is not None:
            label = f"Typical error of each table or family, in {unit}; point at one for its name and margin."
            drawn.append(Chart(f"errors-{i}", "", label, spec))
    pairs = charts.pair_map(found)
    if pairs is not None:
        drawn.append(Chart("pairs", "", "Typical error of the table over every two attributes.", pairs))
    text_below = "Count known to 20 %: the smallest count whose standard error is at most a fifth of it."
    blocks = [Sentences([text]), *drawn, _worst(found), Sentences([text_below], quiet=True)]
    return Description("The error of every table and family of queries", blocks, "errors", "Errors")


def _worst(found: Sequence[FamilyErrors]) -> TitledTable:
    """The families with the largest standard errors, those of one unit after another."""
    units = list(dict.fromkeys(f.unit for f in found))
    ranked = sorted(found, key=lambda f: (units.index(f.unit), -f.worst))[:_WORST]
    frame = Frame(
        {
            "Table or family": [f.name for f in ranked],
            "Part": [f.part for f in ranked],
            "Queries": [f.queries for f in ranked],
            "Unit": [f.unit for f in ranked],
            "Typical error": [show_figures(f.rmse) for f in ranked],
            "Largest standard error": [show_figures(f.worst) for f in ranked],
            "95 % margin": [f"±{show_figures(f.margin)}" for f in ranked],
            "Count known to 20 %": ["–" if f.smallest is None else f"{f.smallest:,}" for f in ranked],
        }
    )
    caption = "All of them, the largest standard error first"
    if len(found) > _WORST:
        caption = f"The {_WORST} with the largest standard errors, of {len(found):,}"
    numbers = ("Typical error", "Largest standard error", "95 % margin", "Count known to 20 %")
    return TitledTable(caption, frame, numbers, "Tables with the largest errors")
