"""Where a plan or a release stands: its price, its ledger entry, what made it, and how to go on."""

from __future__ import annotations

from collections.abc import Iterator

from sfumato._util.codec import value_fingerprint
from sfumato._util.description import CodeLines, Description, Facts, Sentences
from sfumato._util.frames import safe_text
from sfumato.domain import Attribute
from sfumato.errors import BudgetError, SfumatoError
from sfumato.plans.planned import WorkloadPlan
from sfumato.plans.streams import StreamPlan
from sfumato.present.words import budget_statement
from sfumato.privacy.accounting import event_price
from sfumato.privacy.amounts import Currency, readable_number
from sfumato.privacy.ledger.words import export_events
from sfumato.releases import Provenance
from sfumato.releases.released import WorkloadRelease
from sfumato.releases.streams import StreamRelease
from sfumato.workloads import predicates

_OVER_TIME = "the filter run backwards over what was published, and sums over periods"

Rows = list[tuple[str, str]]


def provenance_sections(plan: WorkloadPlan, release: WorkloadRelease | StreamRelease | None) -> list[Description]:
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
        _stream_steps(opened=release is not None) if more is None or isinstance(plan, StreamPlan) else more,
    ]


def provenance_facts(plan: WorkloadPlan, release: WorkloadRelease | StreamRelease | None) -> Rows:
    """What made a plan or a release, and the hashes that tell it apart."""
    measured, value = plan.measures
    hashes = [
        ("Plan", plan.fingerprint),
        ("Queries", value_fingerprint(plan.workload)),
        (measured, value_fingerprint(value)),
        ("Declared domain", value_fingerprint(plan.workload.domain)),
    ]
    made: Rows = []
    if release is not None:
        p = release.provenance
        made = [("Release", safe_text(p.name)), ("Made", p.created)]
        made += [("Table", safe_text(p.table))] if p.table is not None else []
        made += [("Snapshot of the table", safe_text(p.snapshot))] if p.snapshot is not None else []
        made.append(("Software", ", ".join(f"{name} {version}" for name, version in p.versions)))
        made.append(("Random numbers", "exact integer noise from the operating system's generator; there is no seed"))
        done = _OVER_TIME if isinstance(release, StreamRelease) else release.facts()["post_processing"]
        made.append(("Post-processing", done))
        hashes.append(("Measured values", release.result_hash))
    return [*made, *((f"{name}, SHA-256", value) for name, value in hashes)]


def _price_facts(plan: WorkloadPlan) -> Rows:
    """What a plan promises and costs, in every ledger that would take it."""
    (event,) = export_events([plan.price])
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
            yield title, f"{readable_number(event_price(plan.price, currency))} of {currency}"
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
        question = f"{_quote_attribute(name)} {_example_condition(domain[name])}"
        try:
            predicates(domain, [question])
            release.ask(question)
        except SfumatoError:
            continue
        return name, question
    return None


def _quote_attribute(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else f"`{name}`"


def _example_condition(attribute: Attribute) -> str:
    if attribute.intervals is not None:
        return f">= {attribute.intervals[len(attribute.intervals) // 2][0]}"
    if attribute.kind == "boolean":
        return "== true"
    return f"== {attribute.declared_labels[0]!r}"
