"""Where a plan or a release stands: its price, its ledger entry, what made it, and how to go on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sfumato._util.codec import fingerprint
from sfumato._util.frames import safe_text
from sfumato.domain import Attribute
from sfumato.errors import BudgetError, SfumatoError
from sfumato.plans.planned import WorkloadPlan
from sfumato.plans.streams import StreamPlan
from sfumato.present.streams import next_steps, open_text
from sfumato.present.words import price_text, statement
from sfumato.privacy.accounting import price
from sfumato.privacy.amounts import Currency, readable
from sfumato.privacy.ledger.words import events_export
from sfumato.releases import Provenance
from sfumato.releases.released import WorkloadRelease
from sfumato.releases.streams import StreamRelease
from sfumato.workloads import predicates

__all__ = ["standing"]


Facts = list[tuple[str, str]]
_OVER_TIME = "the filter run backwards over what was published, and sums over periods"


def standing(plan: WorkloadPlan, release: WorkloadRelease | StreamRelease | None) -> dict[str, Any]:
    """The sections on budget, provenance and further questions."""
    measured, value = plan.measures
    hashes = [
        ("Plan", plan.fingerprint),
        ("Queries", fingerprint(plan.workload)),
        (measured, fingerprint(value)),
        ("Declared domain", fingerprint(plan.workload.domain)),
    ]
    facts = _price_facts(plan)
    if release is None:
        text = (
            "Nothing is spent yet. A release of this plan debits its whole price from a ledger before the table is "
            "looked at; a ledger that holds less refuses it and stays as it is."
        )
        more = open_text() if isinstance(plan, StreamPlan) else _next_step()
        return {"budget": text, "ledger": facts, "provenance": _hashed(hashes), "more": more}
    p = release.provenance
    processing = _OVER_TIME if isinstance(release, StreamRelease) else release.facts()["post_processing"]
    made = [*_made_facts(p), ("Post-processing", processing)]
    made += _hashed([*hashes, ("Measured values", release.result_hash)])
    return {
        "budget": _account_text(p),
        "ledger": [*_entry_facts(p), *facts],
        "provenance": made,
        "more": next_steps() if isinstance(release, StreamRelease) else _more(release),
    }


def _price_facts(plan: WorkloadPlan) -> Facts:
    """What a plan promises and costs, in every ledger that would take it."""
    facts: Facts = [("Promised in all", statement(plan.budget)), ("In other terms", str(plan.budget))]
    return [*facts, ("Price", price_text(plan.price)), *_prices(plan), ("For an outside accountant", _event(plan))]


def _made_facts(p: Provenance) -> Facts:
    """What made a release, and when."""
    made: Facts = [("Release", safe_text(p.name)), ("Made", p.created)]
    if p.table is not None:
        made.append(("Table", safe_text(p.table)))
    if p.snapshot is not None:
        made.append(("Snapshot of the table", safe_text(p.snapshot)))
    made.append(("Software", ", ".join(f"{name} {version}" for name, version in p.versions)))
    made.append(("Random numbers", "exact integer noise from the operating system's generator; there is no seed"))
    return made


def _hashed(hashes: list[tuple[str, str]]) -> Facts:
    return [(f"{name}, SHA-256", value) for name, value in hashes]


def _prices(plan: WorkloadPlan) -> Iterator[tuple[str, str]]:
    """What the price is in the ledgers that would take it."""
    kinds = {
        Currency.EPSILON: "Debit in a pure ε ledger",
        Currency.RHO: "Debit in a zCDP ledger",
        Currency.MU_SQUARED: "Debit in a GDP or (ε, δ) ledger",
    }
    for currency, title in kinds.items():
        try:
            yield title, f"{readable(price(plan.price, currency))} of {currency}"
        except BudgetError:
            continue


def _event(plan: WorkloadPlan) -> str:
    (event,) = events_export([plan.price])
    return f"{event['mechanism']} mechanism, sensitivity {event['sensitivity']}, scale {event['scale']}"


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


def _entry_facts(p: Provenance) -> Facts:
    """The entry of the ledger that paid."""
    if p.one_shot:
        return [("Ledger", "none (one-shot)")]
    return [("Ledger", p.ledger_id), ("Entry", f"{p.sequence:,}"), ("Anchor", p.anchor)]


def _next_step() -> dict[str, Any]:
    """How a plan is released."""
    code = (
        "import sfumato as sf\n\n"
        'plan = sf.load("PLAN")\n'
        'release = sf.release(plan, "TABLE.csv", ledger="budget.db", name="first", out="releases/first")'
    )
    shell = "sfumato release PLAN --source TABLE.csv --ledger budget.db --name first -o releases/first"
    return {
        "title": "How to release it",
        "text": "This is the step that reads the table and spends.",
        "code": [shell, code],
    }


def _more(release: WorkloadRelease) -> dict[str, Any]:
    """How to ask further questions, with an example where errors say which can be answered."""
    domain = release.plan.workload.domain
    lines = ["import sfumato as sf", "", 'release = sf.load("FOLDER")']
    shell, source = "sfumato show FOLDER", "the model"
    if release.errors_known:
        lines.append("release.answers, release.intervals(0.95)")
        source = "the measured values"
    else:
        lines.append("release.answers")
    found = _example(release)
    if found is not None:
        name, question = found
        shell = f"sfumato ask FOLDER {_shell(question)}"
        lines += [f"release.ask({question!r})", f"release.table({name!r}).to_pandas()"]
        if domain[name].intervals is not None and release.errors_known:
            lines.append(f"release.quantiles({name!r}, [0.1, 0.5, 0.9])")
    text = (
        f"Whatever follows from {source} is free: it costs no budget and agrees with the answers above. "
        "What does not is refused, with the reason. FOLDER is where this page lies."
    )
    return {"title": "Ask more", "text": text, "code": [shell, "\n".join(lines)]}


def _shell(text: str) -> str:
    """One argument for a POSIX shell."""
    return "'" + text.replace("'", "'\\''") + "'" if '"' in text or "`" in text or "$" in text else f'"{text}"'


def _example(release: WorkloadRelease) -> tuple[str, str] | None:
    """An attribute and a predicate on it that this release can answer."""
    domain = release.plan.workload.domain
    measured = {a for i in release.workload.items for a in i.attributes}
    ordered = sorted((n for n in domain.names if n in measured), key=lambda n: domain[n].intervals is None)
    for name in ordered:
        question = f"{_quoted(name)} {_condition(domain[name])}"
        try:
            predicates(domain, [question])
            release.ask(question)
        except SfumatoError:
            continue
        return name, question
    return None


def _quoted(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else f"`{name}`"


def _condition(attribute: Attribute) -> str:
    if attribute.intervals is not None:
        return f">= {attribute.intervals[len(attribute.intervals) // 2][0]}"
    if attribute.kind == "boolean":
        return "== true"
    return f"== {attribute.declared_labels[0]!r}"
