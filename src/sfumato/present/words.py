"""Numbers and guarantees for readers who do not know the theory, and where a plan or a release stands.

The latter is its price, its ledger entry, what made it, and how to go on.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from sfumato._util.catalogue import (
    called_attribute,
    local_number,
    page_language,
    say_note,
    say_words,
    superscript_exponent,
)
from sfumato._util.codec import value_fingerprint
from sfumato._util.description import CodeLines, Description, Facts, Sentences, TitledTable
from sfumato._util.frames import Frame, safe_text
from sfumato.domain import Attribute, Domain
from sfumato.domain.core import is_year
from sfumato.domain.predicates import written_name
from sfumato.errors import BudgetError, NotAnswerable, PlanError, SfumatoError
from sfumato.plans.iterative import IterativePlan
from sfumato.plans.labels import LabelPlan
from sfumato.plans.plan import Plan
from sfumato.plans.planned import WorkloadPlan
from sfumato.privacy.accounting import event_price
from sfumato.privacy.amounts import Currency, readable_number
from sfumato.privacy.budget import Budget
from sfumato.privacy.ledger.words import export_events
from sfumato.releases import Provenance, Release
from sfumato.releases.ends import shown_cells
from sfumato.releases.released import WorkloadRelease
from sfumato.workloads import RECORDS, QueryBlock, QueryFamily, Workload, predicates
from sfumato.workloads.levels import family_names, names_asked, table_names


def show_figures(value: float | None, figures: int = 3) -> str:
    """An error or another size for people: three figures unless more are asked, thousands apart."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return _with_sign(value, "∞")
    size = abs(value)
    if size == 0 or size >= 1e-3:
        return _with_sign(value, local_number(f"{size:,.{_decimals_of_figures(size, figures)}f}"))
    return _with_sign(value, superscript_exponent(f"{size:.2e}"))


def _decimals_of_figures(size: float, figures: int) -> int:
    """Decimals that show so many figures of a size."""
    return 0 if size == 0 else max(0, figures - 1 - math.floor(math.log10(size)))


def _with_sign(value: float, text: str) -> str:
    return f"−{text}" if value < 0 and any(c in "123456789∞" for c in text) else text


def round_to_error(value: float, error: float) -> str:
    """An answer with as many decimals as show two figures of its standard error; a dash where none is known."""
    if math.isnan(value):
        return "–"
    if not math.isfinite(value) or not 0 < error < math.inf:
        return (
            show_figures(value)
            if not float(value).is_integer()
            else _with_sign(value, local_number(f"{abs(value):,.0f}"))
        )
    return _with_sign(value, local_number(f"{abs(value):,.{min(9, _decimals_of_figures(error, 2))}f}"))


def parameter_text(value: Fraction) -> str:
    """A privacy parameter for people."""
    return superscript_exponent(local_number(readable_number(value)))


def percentage_text(value: float) -> str:
    """A share as a percentage."""
    if value == 0:
        return "0 %"
    shown = local_number(f"{100 * value:.2f}")
    return f"{shown} %" if value >= 0.0001 else say_words("less than {share} %", share=local_number("0.01"))


def budget_statement(budget: Budget) -> str:
    """The definition's name with its parameters."""
    value = parameter_text(budget.parameter)
    if budget.delta is not None:
        delta = parameter_text(budget.delta)
        return say_words("({epsilon}, {delta})-differential privacy", epsilon=value, delta=delta)
    told = {
        "pure": "{value}-differential privacy (pure)",
        "zcdp": "{value}-zero-concentrated differential privacy",
        "gdp": "{value}-Gaussian differential privacy",
    }[budget.kind]
    return say_words(told, value=value)


def guarantee_sentence(budget: Budget) -> str:
    """What the definition says, in one sentence."""
    if budget.kind == "gdp":
        return say_words(
            "to tell the two cases apart is at least as hard as to tell one draw of a standard normal "
            "variable from one of the same variable shifted by {mu}",
            mu=parameter_text(budget.parameter),
        )
    if budget.kind == "zcdp":
        return say_words(
            "the Rényi divergence of order α between the two cases is at most {rho} α, for every α above 1",
            rho=parameter_text(budget.parameter),
        )
    factor = math.exp(min(700.0, float(budget.parameter)))
    text = say_words(
        "no result is more than {factor} times as likely in one case as in the other", factor=show_figures(factor)
    )
    if budget.delta is None:
        return text
    # as one text, so that a page which says it anew knows it again
    return say_words(
        "{statement}, apart from an excess of probability of at most {delta}",
        statement=text,
        delta=parameter_text(budget.delta),
    )


@dataclass(frozen=True, slots=True)
class FamilyErrors:
    """One table or family of queries with its predicted errors; `order` is its number of attributes.

    `attributes` are the names of a table's axes, none for queries that are no table.
    """

    name: str
    part: str
    order: int
    queries: int
    unit: str
    rmse: float
    worst: float
    margin: float
    attributes: tuple[str, ...] = ()

    @property
    def smallest(self) -> int | None:
        """The smallest count whose standard error is at most a fifth of it; None where no error is known."""
        return math.ceil(self.worst * 5) if math.isfinite(self.worst) else None


def family_name(query: QueryBlock, workload: Workload) -> str:
    """A short name for a table, or the text of a single query."""
    names = table_names(workload.domain, query.block)
    if names and query.unit == RECORDS:
        return safe_text(" × ".join(names))
    if query.rows == 1:
        return safe_text(next(iter(workload.block_labels(query))))
    return safe_text(f"{query.part}: {' × '.join(names_asked(workload.domain, query.block))}")


def predicted_families(plan: Plan, part: str | None = None) -> list[FamilyErrors]:
    """Every block of queries with its errors, in the order of the workload."""
    table = plan.errors(0.95)
    numbers = iter(zip(table["rmse"], table["worst_standard_error"], table["margin"], strict=True))
    found: list[FamilyErrors] = []
    for e in plan.entries:
        item = e.item
        named = _named_tables(plan, item)
        shared = safe_text(item.part), e.order
        errors = itertools.islice(numbers, len(named))
        for (name, axes), queries, own in zip(named, e.cells().tolist(), errors, strict=True):
            if part in (None, item.part):
                found.append(FamilyErrors(name, *shared, queries, safe_text(item.unit), *own, axes))
    return found


def _named_tables(plan: Plan, item: QueryBlock | QueryFamily) -> list[tuple[str, tuple[str, ...]]]:
    """The name of every table or block of queries, and of a table's axes."""
    domain = plan.workload.domain
    if isinstance(item, QueryBlock):
        axes = (table_names(domain, item.block) or ()) if item.unit == RECORDS else ()
        return [(family_name(item, plan.workload), tuple(map(safe_text, axes)))]
    tables = [tuple(map(safe_text, names)) for names in family_names(domain, item.family)]
    return [(" × ".join(names) or "total", names) for names in tables]


def above_bound(plan: Plan) -> float | None:
    """How far the plan's objective lies above the proved lower bound, as a share; None where none is known."""
    if plan.lower_bound is None or plan.lower_bound <= 0:
        return None
    return max(0.0, plan.objective_value / plan.lower_bound - 1)


def plan_as_json(plan: Any) -> dict[str, Any]:
    """A plan as JSON values: what is asked, measured and paid, and every predicted error."""
    k, m = plan.workload.shape
    known = plan.facts()
    asked = {"format": "sfumato plan 1", "queries": k, "cells": str(m)}
    if isinstance(plan, IterativePlan):
        return {**asked, **known, "candidates": plan.candidates.rows()}
    if isinstance(plan, LabelPlan):
        return {**asked, **known, "shown": plan.shown_frame().rows()}
    if plan.runs_over_time:
        over = {question: plan.errors(0.95, question).rows() for question in plan.QUESTIONS}
        return {**asked, **known, "over_time": over, "families": plan.at().errors(0.95).rows()}
    known["mechanism"] |= {"values": sum(b.rows for b in plan.strategy.blocks), "notes": list(plan.notes)}
    known["error"]["above_bound"] = above_bound(plan)
    return {
        **asked,
        **known,
        "families": plan.errors(0.95).rows(),
        "candidates": plan.candidates.rows(),
    }


CONFIDENCE = 0.95  # the convention of official statistics; `intervals` takes any other
# groups whose lines an eye takes in together, the extra cell included; and attributes on one screen
_MAX_GROUPS, _MAX_ATTRIBUTES = 8, 12
_MAX_CELLS = 4_096  # every interval of a quantile is a row of that length
_ENDS = ("low", "high")

Row = dict[str, Any]


def numeric_names(release: Release) -> list[str]:
    """Attributes that have medians and means, in the order they were declared."""
    domain = release.plan.workload.domain
    found = (n for n in domain.names if domain[n].intervals is not None and domain[n].midpoints is not None)
    return [n for n in found if domain[n].size <= _MAX_CELLS]


def small_groupings(release: Release, attribute: str) -> Iterator[tuple[str, ...]]:
    """By what an attribute may be looked at: by nothing, then by others of few cells, the fewest first."""
    domain = release.plan.workload.domain
    yield ()
    others = [n for n in (*domain.dimensions, *domain.levels) if domain.owner(n) != attribute]
    for name in sorted(others, key=lambda n: domain[n].size):
        if domain[name].size <= _MAX_GROUPS:
            yield (name,)


def typical_values(release: Release) -> list[Row]:
    """One row for each numeric attribute and group: median and mean with 95 % intervals, as texts, and what is said of
    the mean: of which values it is, and the cell that widens it. Years have no mean: its texts are empty.

    Groups are those of the one attribute of fewest cells that was measured together with it; what cannot be told from
    noise is left out.
    """
    if not release.errors_known:
        return []
    rows: list[Row] = []
    for attribute in numeric_names(release)[:_MAX_ATTRIBUTES]:
        grouped = 0
        for by in small_groupings(release, attribute):
            found = _typical_value_rows(release, attribute, by)
            rows += found
            grouped += bool(found and by)
            if grouped:
                break
    return rows


def typical_table(release: Release) -> list[TitledTable]:
    """Medians and means as a table; nothing where none can be told."""
    rows = typical_values(release)
    if not rows:
        return []
    columns = {
        say_words("Attribute"): [r["attribute"] if r["first"] else "" for r in rows],
        say_words("Of"): [r["group"] for r in rows],
        say_words("Median"): [r["median"] for r in rows],
        say_words("its 95 % interval"): [_range_text(r["median_low"], r["median_high"]) for r in rows],
        say_words("Mean"): [r["mean"] for r in rows],
        say_words("its interval"): [_range_text(r["mean_low"], r["mean_high"]) if r["mean"] else "" for r in rows],
        say_words("note"): [r["note"] for r in rows],
    }
    caption = say_words(
        "Medians and means with 95 % intervals, for everybody and by the attribute of fewest cells. Means are of the "
        "middles of the declared cells, their intervals go from the cells' lower to their upper ends; medians are told "
        "to their cells."
    )
    numbers = [say_words(n) for n in ("Median", "its 95 % interval", "Mean", "its interval")]
    return [TitledTable(caption, Frame(columns), numbers, say_words("Medians and means"), len(rows))]


def _range_text(low: str, high: str) -> str:
    return say_words("{low} to {high}", low=low, high=high)


def _typical_value_rows(release: Release, attribute: str, by: tuple[str, ...]) -> list[Row]:
    try:
        medians = release.quantiles(attribute, [0.5], by=by, confidence=CONFIDENCE).rows()
        means = release.mean(attribute, by=by, confidence=CONFIDENCE).rows()
    except (NotAnswerable, PlanError):
        return []
    domain = release.plan.workload.domain
    out, year = list[Row](), is_year(domain, attribute)
    for median, mean in zip(medians, means, strict=True):
        value, centre = median["quantile"], mean[f"mean {attribute}"]
        ends = [row[end] for row in (median, mean) for end in ("low", "high")]
        if any(v is None or not math.isfinite(v) for v in (value, centre, *ends)):
            continue  # too few records, or an error that is not known
        group = " · ".join(f"{safe_text(called_attribute(b))} = {_group_text(domain, b, median)}" for b in by)
        step = (mean["high"] - mean["low"]) / 4
        middle = {
            k: _plain_value(v, year=year) for k, v in (("median", value), *(("median_" + e, median[e]) for e in _ENDS))
        }
        centred = {
            k: _figures_of_error(v, step) for k, v in (("mean", centre), *(("mean_" + e, mean[e]) for e in _ENDS))
        }
        out.append(
            {
                "attribute": safe_text(called_attribute(attribute)),
                "group": group or say_words("everybody"),
                "first": not by,
            }
            | {"note": "" if year else safe_text(say_note(mean["note"]))}
            | middle
            | (dict.fromkeys(centred, "") if year else centred)  # nobody asks for the mean of a year
        )
    return out


def _group_text(domain: Domain, name: str, row: Row) -> str:
    """What readers call a cell of a group."""
    label = str(row.get(name, row.get(f"{name} (attribute)")))
    return dict(zip(domain[name].labels, shown_cells(domain, name), strict=True))[label]


def _plain_value(value: float, *, year: bool) -> str:
    if year:
        return f"{value:.0f}"
    if float(value).is_integer():
        return local_number(f"{value:,.0f}")
    size = abs(value)
    decimals = _decimals_of_figures(size, 4)
    text = f"{size:,.{decimals}f}"
    return _with_sign(value, local_number(text.rstrip("0").rstrip(".") if decimals else text))


def _figures_of_error(value: float, error: float) -> str:
    """As many decimals as show two figures of the error."""
    decimals = 0 if not 0 < error < math.inf else max(0, min(6, 1 - math.floor(math.log10(error))))
    return local_number(f"{value:,.{decimals}f}")


_OVER_TIME = "the filter run backwards over what was published, and sums over periods"

Rows = list[tuple[str, str]]


def provenance_sections(plan: WorkloadPlan, release: Any) -> list[Description]:
    """The sections on budget, provenance and further questions."""
    text = (
        "Nothing is spent yet. A release of this plan debits its whole price from a ledger before the table is "
        "looked at; a ledger that holds less refuses it and stays as it is."
    )
    facts = _price_facts(plan)
    if release is not None:
        text = _account_text(release.provenance)
        # what the plan says as well stands in the section on what is measured
        said = {row for b in plan.describe().blocks if isinstance(b, Facts) for row in b.rows}
        own = next(b.rows for b in release.describe().blocks if isinstance(b, Facts))
        facts = [*(row for row in own if row not in said), *facts]
    more = (
        _how_to_release()
        if release is None
        else _further_questions(release)
        if isinstance(release, WorkloadRelease)
        else None
    )
    return [
        Description("Budget and ledger", [Sentences([text]), Facts(facts)], "budget", "Budget"),
        Description("Provenance", [Facts(provenance_facts(plan, release))], "provenance", "Provenance"),
        _stream_steps(opened=release is not None) if more is None or plan.runs_over_time else more,
    ]


def provenance_facts(plan: WorkloadPlan, release: Any) -> Rows:
    """What made a plan or a release, and the hashes that tell it apart."""
    measured, value = plan.measures
    hashes = [
        (say_words("Plan"), plan.fingerprint),
        (say_words("Queries"), value_fingerprint(plan.workload)),
        (say_words(measured), value_fingerprint(value)),
        (say_words("Declared domain"), value_fingerprint(plan.workload.domain)),
    ]
    made: Rows = []
    if release is not None:
        p = release.provenance
        made = [(say_words("Release"), safe_text(p.name)), (say_words("Made"), p.created)]
        made += [(say_words("Table"), safe_text(p.table))] if p.table is not None else []
        made += [(say_words("Snapshot of the table"), safe_text(p.snapshot))] if p.snapshot is not None else []
        made += [(say_words("Column {name}", name=safe_text(name)), safe_text(text)) for name, text in p.features]
        made.append((say_words("Software"), ", ".join(f"{name} {version}" for name, version in p.versions)))
        noise = say_words("exact integer noise from the operating system's generator; there is no seed")
        made.append((say_words("Random numbers"), noise))
        done = _OVER_TIME if plan.runs_over_time else release.facts()["post_processing"]
        made.append((say_words("Post-processing"), _processing_text(done)))
        hashes.append((say_words("Measured values"), release.result_hash))
    return [*made, *((f"{name}, SHA-256", value) for name, value in hashes)]


def _processing_text(done: str) -> str:
    """What was done to the answers; of a projection in other languages without its figures."""
    if page_language() != "en" and "projected" in done:
        return say_words("projected onto answers that a table could have given; the release's files say how")
    return say_words(done)


def _price_facts(plan: WorkloadPlan) -> Rows:
    """What a plan promises and costs, in every ledger that would take it."""
    (event,) = export_events([plan.whole_price])
    outside = f"{event['mechanism']} mechanism, sensitivity {event['sensitivity']}, scale {event['scale']}"
    return [
        ("Promised in all", budget_statement(plan.budget)),
        *_price_by_currency(plan),
        ("For an outside accountant", outside),
    ]


def _price_by_currency(plan: WorkloadPlan) -> Iterator[tuple[str, str]]:
    """What the price is in the ledgers that would take it."""
    kinds = {
        Currency.EPSILON: "Debit in a pure ε ledger",
        Currency.RHO: "Debit in a zCDP ledger",
        Currency.MU_SQUARED: "Debit in a GDP or (ε, δ) ledger",
    }
    for currency, title in kinds.items():
        try:
            yield title, f"{readable_number(event_price(plan.whole_price, currency))} of {currency}"
        except BudgetError:
            continue


def _account_text(p: Provenance) -> str:
    """Where the price was debited."""
    if p.one_shot:
        return (
            "This is a one-shot account: no ledger remembers the spend. Whoever releases more about the same people "
            "must add the guarantees by hand."
        )
    return (
        "The price was debited from the ledger, durably, before any noise was drawn. The ledger refuses whatever would "
        "exceed its total, so its total is the guarantee of all its releases together. Keep the anchor outside the "
        "ledger: with it, a ledger that was rolled back or made anew is found."
    )


def _how_to_release() -> Description:
    """How a plan is released."""
    code = (
        "import sfumato as sf\n\n"
        'plan = sf.load("PLAN")\n'
        'release = sf.release(plan, "TABLE.csv", ledger="budget.db", name="first", out="releases/first")'
    )
    shell = "sfumato release PLAN --source TABLE.csv --ledger budget.db --name first -o releases/first"
    return _steps("How to release it", "This is the step that reads the table and spends.", shell, code)


def _steps(title: str, text: str, *code: str) -> Description:
    return Description(title, [Sentences([text]), *map(CodeLines, code)], "more", "Next")


def _stream_steps(*, opened: bool) -> Description:
    """How a planned stream is opened, or its release is asked further questions."""
    if opened:
        code = (
            "import sfumato as sf\n\n"
            'stream = sf.load("FILE")\n'
            "stream.totals.answers, stream.increments.answers\n"
            'stream.between("FIRST", "LAST").intervals(0.95)\n'
            "stream.over_time()"
        )
        shell = "sfumato stream show FILE --over-time\nsfumato stream show FILE --last 4 --csv"
        text = (
            "Totals, single periods, and sums of any periods all follow from what is published, at no cost. FILE is "
            "the stream's release: sfumato stream release STORE -o FILE."
        )
        return _steps("Ask more", text, shell, code)
    code = (
        "import sfumato as sf\n\n"
        'plan = sf.load("PLAN")\n'
        'stream = sf.open(plan, ledger="budget.db", name="first", store="first.stream")\n'
        'stream.append("TABLE.csv", period="2026-W01")'
    )
    shell = (
        "sfumato stream open PLAN --ledger budget.db --name first --store first.stream\n"
        "sfumato stream append first.stream TABLE.csv --period 2026-W01 --ledger budget.db"
    )
    text = "The opening spends the whole price; every period then reads one table."
    return _steps("How to open it", text, shell, code)


def _further_questions(release: WorkloadRelease) -> Description:
    """How to ask further questions, with an example where errors say which can be answered."""
    domain = release.plan.workload.domain
    lines = ["import sfumato as sf", "", 'release = sf.load("FOLDER")']
    shell, source = "sfumato show FOLDER", "the model"
    if release.errors_known:
        lines.append("release.answers, release.intervals(0.95)")
        source = "the measured values"
    else:
        lines.append("release.answers")
    found = _answerable_example(release)
    if found is not None:
        name, question = found
        shell = f"sfumato ask FOLDER {_shell_argument(question)}"
        lines += [f"release.ask({question!r})", f"release.table({name!r}).to_pandas()"]
        if domain[name].intervals is not None and release.errors_known:
            lines.append(f"release.quantiles({name!r}, [0.1, 0.5, 0.9])")
    text = (
        f"Whatever follows from {source} is free: it costs no budget and agrees with the answers above. "
        "What does not is refused, with the reason. FOLDER is where this page lies."
    )
    return _steps("Ask more", text, shell, "\n".join(lines))


def _shell_argument(text: str) -> str:
    """One argument for a POSIX shell."""
    return "'" + text.replace("'", "'\\''") + "'" if '"' in text or "`" in text or "$" in text else f'"{text}"'


def _answerable_example(release: WorkloadRelease) -> tuple[str, str] | None:
    """An attribute and a predicate on it that this release can answer."""
    domain = release.plan.workload.domain
    measured = {a for i in release.workload.items for a in i.attributes}
    ordered = sorted((n for n in domain.names if n in measured), key=lambda n: domain[n].intervals is None)
    for name in ordered:
        question = f"{written_name(name)} {_example_condition(domain[name])}"
        try:
            predicates(domain, [question])
            release.ask(question)
        except SfumatoError:
            continue
        return name, question
    return None


def _example_condition(attribute: Attribute) -> str:
    if attribute.intervals is not None:
        return f">= {attribute.intervals[len(attribute.intervals) // 2][0]}"
    if attribute.kind == "boolean":
        return "== true"
    return f"== {attribute.declared_labels[0]!r}"
