"""What pages ask of the server: each call takes what a page sent, checks it, and returns JSON values.

Whatever comes from a page is of any type until it was looked at. Refusals are SfumatoError, and spend nothing.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, cast

from sfumato._util.description import Description
from sfumato.errors import InvalidInput
from sfumato.interactive.plan import SessionPlan
from sfumato.plans.plan import Plan
from sfumato.present.sections import guarantee_sentences
from sfumato.privacy.budget import Budget
from sfumato.releases import Release
from sfumato.studio import conversations, drafts, outgoing, paying, reading, what_if
from sfumato.studio.what_if import spec_state
from sfumato.studio.workspace import Workspace
from sfumato.workloads import RECORDS

Json = dict[str, Any]
Asked = Callable[[Workspace, paying.Payments, Json], Any]


def _names_call(desk: Workspace, _payments: paying.Payments, _given: Json) -> Any:
    desk.names()
    return spec_state(desk) | {"doubt": desk.doubt()}


def _change_call(desk: Workspace, _payments: paying.Payments, given: Json) -> Any:
    about, conditions = given.get("about", ""), given.get("conditions", [])
    if (
        not isinstance(about, str)
        or not isinstance(conditions, list)
        or not all(isinstance(c, str) for c in conditions)
    ):
        raise InvalidInput("a change is about a place, with a list of conditions")
    ready = functools.partial(spec_state, desk)
    return spec_state(desk, desk.change(given.get("version"), given.get("changes"), about, conditions, ready))


def _undo_call(desk: Workspace, _payments: paying.Payments, given: Json) -> Any:
    return spec_state(desk, desk.undo(given.get("version")))


def _year_call(_desk: Workspace, _payments: paying.Payments, given: Json) -> Any:
    """What a year's releases take together."""
    return what_if.year_total(_budget_of_page(given), given.get("releases"))


def _told_call(desk: Workspace, _payments: paying.Payments, given: Json) -> Any:
    """What readers are told of a release: kept in its folder, and in the spec."""
    name = given.get("name")
    return outgoing.keep_publication(desk, _released(desk, name), desk.stored(name), given.get("told"))


def _released(desk: Workspace, name: object) -> Release:
    """A release in a folder of its own, which has room for what readers are told."""
    if not desk.stored(name).is_dir():
        raise InvalidInput("titles are kept in the folder of a release, and this is one file")
    return release_of(desk, name)


def _projected_call(desk: Workspace, _payments: paying.Payments, given: Json) -> Any:
    name = given.get("name")
    return {"name": outgoing.keep_projected(desk, _released(desk, name), str(name))}


def _import_call(desk: Workspace, _payments: paying.Payments, given: Json) -> Any:
    text = given.get("text")
    if not isinstance(text, str):
        raise InvalidInput("a schema is a text file")
    changes = [
        {"place": ["schema", name], "value": _numbers_of_page(table)}
        for name, table in drafts.import_columns(text)["schema"].items()
    ]
    return spec_state(desk, desk.change(given.get("version"), changes, ready=functools.partial(spec_state, desk)))


def _numbers_of_page(value: Any) -> Any:
    """Numbers as the page sends them."""
    if isinstance(value, dict):
        return {
            k: [{"number": v} if k == "edges" else v for v in x] if isinstance(x, list) else x for k, x in value.items()
        }
    return value


def _plan_call(desk: Workspace, _payments: paying.Payments, given: Json) -> Any:
    """The plan of the spec, or of a variant that is not written: changes as for the file; or of a session over it."""
    text = desk.seen(given.get("version"))
    if given.get("changes"):
        text = drafts.apply_changes(text, given["changes"])
    plan = desk.plan(text, _payment_kind(given))
    about = {"variant": drafts.text_version(text), "fingerprint": plan.fingerprint}
    if isinstance(plan, SessionPlan):
        return about | {"described": conversations.promise(plan).to_dict()}
    told = Description("", [guarantee_sentences(plan, released=False), plan.describe()])
    return what_if.plan_figures(plan) | about | {"described": told.to_dict()}


def _payment_kind(given: Json) -> str:
    """What is to be paid for."""
    what = given.get("what", conversations.RELEASE)
    if what not in conversations.WAYS:
        raise InvalidInput(f"what is paid for is one of {', '.join(conversations.WAYS)}")
    return str(what)


def _one_look_plan(desk: Workspace, given: Json) -> Plan:
    text = desk.seen(given.get("version"))
    if given.get("changes"):
        text = drafts.apply_changes(text, given["changes"])
    plan = desk.plan(text)
    if not isinstance(plan, Plan):
        raise InvalidInput("the errors of this kind of plan are not known for other budgets; plan anew")
    return plan


def _budget_of_page(given: Json) -> Budget:
    """A budget as a page states it."""
    numbers = given.get("budget")
    if not isinstance(numbers, dict) or not all(isinstance(v, str) for v in numbers.values()):
        raise InvalidInput("a budget is epsilon, epsilon and delta, rho, or mu")
    return Budget.from_json({key: _with_point(text) for key, text in numbers.items()})


# Three digits after a comma may be thousands, unless a 0 stands before it.
_DECIMAL_COMMA = re.compile(r"\s*(?:0*|\d*(?!,\d{3}\s*$)),\d+(?:[eE][+-]?\d+)?\s*")


def _with_point(text: str) -> str:
    """A number with a decimal comma as one with a point; what may be thousands, and all else, as it is."""
    return text.replace(",", ".") if _DECIMAL_COMMA.fullmatch(text) else text


def _scale_call(desk: Workspace, _payments: paying.Payments, given: Json) -> Any:
    found = what_if.scale_errors(_one_look_plan(desk, given), _budget_of_page(given))
    return {"factor": found.factor, "guarantee": found.guarantee, "statement": found.statement, "attack": found.attack}


def _margin_call(desk: Workspace, _payments: paying.Payments, given: Json) -> Any:
    margin, part, order = given.get("margin"), given.get("part"), given.get("order")
    unit = given.get("unit", RECORDS)
    texts = isinstance(part, str) and isinstance(unit, str)
    if not isinstance(margin, (int, float)) or not texts or not isinstance(order, int):
        raise InvalidInput("a margin is a number, of a line of the plan")
    budget = what_if.budget_for_margin(_one_look_plan(desk, given), float(margin), str(part), order, unit)
    return {"budget": what_if.budget_numbers(budget), "statement": str(budget).partition(";")[0]}


def _guess_call(desk: Workspace, _payments: paying.Payments, given: Json) -> Any:
    """How well a group that somebody has in mind would be known; its size is a guess, and no row is read."""
    condition, count, within = given.get("condition"), given.get("count"), given.get("within")
    numbers = all(isinstance(n, (int, float)) and not isinstance(n, bool) for n in (count, within))
    if not isinstance(condition, str) or not numbers:
        raise InvalidInput("a group is a condition, with about how many records it has and how exactly, in per cent")
    plan, budget = _one_look_plan(desk, given), _budget_of_page(given)
    return what_if.known_of_group(plan, condition, float(cast(float, count)), float(cast(float, within)) / 100, budget)


def _alone_call(desk: Workspace, _payments: paying.Payments, given: Json) -> Any:
    """What tables would have with the whole budget to themselves; the page asks again for those that are left."""
    numbers = given.get("tables")
    if not isinstance(numbers, list) or not all(isinstance(n, int) for n in numbers):
        raise InvalidInput("tables are asked for by their numbers")
    text = desk.seen(given.get("version"))
    spec = desk.spec(text)
    if spec.periods is not None:
        raise InvalidInput("a stream's tables are planned together")
    found = what_if.errors_alone(spec, numbers, desk.alone(text))
    return {"alone": [[n, error] for n, error in found.items()]}


def _account_call(desk: Workspace, _payments: paying.Payments, given: Json) -> Any:
    found = desk.ledger()
    if found is None:
        return {"ledger": None}
    return {"ledger": paying.ledger_account(found, desk.plan(desk.seen(given.get("version")), _payment_kind(given)))}


def _open_ledger_call(desk: Workspace, _payments: paying.Payments, given: Json) -> Any:
    table = given.get("table")
    if table is not None and not isinstance(table, str):
        raise InvalidInput("the table's public name is a text")
    paying.open_ledger(desk.places.ledger, _budget_of_page(given), table or None)
    return {"ledger": True}


def _pay_call(desk: Workspace, payments: paying.Payments, given: Json) -> Any:
    return payments.begin(given.get("version"), given.get("fingerprint"), given.get("name"), _payment_kind(given))


def release_of(desk: Workspace, name: object) -> Release:
    """The release of a name, if pages can read it. Raises InvalidInput."""
    release = reading.readable_release(desk.release(name))
    if release is None:
        raise InvalidInput("this is no release of tables with known errors; it is told in words above")
    return release


def _verify_call(desk: Workspace, _payments: paying.Payments, given: Json) -> Any:
    found, anchor = desk.ledger(), given.get("anchor") or None
    if found is None:
        raise InvalidInput("there is no ledger yet")
    if anchor is not None and not isinstance(anchor, str):
        raise InvalidInput("an anchor is a text such as 17:9f86d0…")
    checked = found.verify(anchor)
    more = ", and continues from the anchor" if anchor else ""
    return {"text": f"{checked.entries:,} lines, unbroken{more}.", "anchor": checked.anchor}


CALLS: dict[str, Asked] = {
    "names": _names_call,
    "change": _change_call,
    "undo": _undo_call,
    "year": _year_call,
    "told": _told_call,
    "keep-projected": _projected_call,
    "import": _import_call,
    "plan": _plan_call,
    "scale": _scale_call,
    "margin": _margin_call,
    "guess": _guess_call,
    "alone": _alone_call,
    "account": _account_call,
    "ledger": _open_ledger_call,
    "pay": _pay_call,
    "table": lambda d, _, g: reading.table_for_page(release_of(d, g.get("name")), g.get("attributes")),
    "statistic": lambda d, _, g: reading.statistic_for_page(
        release_of(d, g.get("name")), g.get("what"), g.get("attribute"), g.get("by"), g.get("at")
    ),
    "ask": lambda d, _, g: reading.answer_question(release_of(d, g.get("name")), g.get("question")),
    "calculate": lambda d, _, g: reading.calculation_for_page(
        g.get("operation"),
        (release_of(d, g.get("name")), g.get("a")),
        (release_of(d, g.get("other") or g.get("name")), g.get("b")),
    ),
    "ranks": lambda d, _, g: reading.ranks_for_page(release_of(d, g.get("name")), g.get("attribute")),
    "maps": lambda d, _, g: reading.error_maps(release_of(d, g.get("name"))),
    "project": lambda d, _, g: reading.projection_for_page(release_of(d, g.get("name"))),
    "verify": _verify_call,
    "append": lambda _, p, g: p.append(g.get("version"), g.get("name"), g.get("seen"), g.get("period")),
    "put": lambda _, p, g: p.ask(g.get("name"), g.get("seen"), g.get("question")),
}
