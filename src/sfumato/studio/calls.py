"""What pages ask of the server: each call takes what a page sent, checks it, and returns JSON values.

Whatever comes from a page is of any type until it was looked at. Refusals are SfumatoError, and spend nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from sfumato._util.description import Description
from sfumato.errors import InvalidInput
from sfumato.interactive.plan import SessionPlan
from sfumato.plans.plan import Plan
from sfumato.present.sections import protects
from sfumato.privacy.budget import Budget
from sfumato.releases import Release
from sfumato.studio import conversations, drafts, paying, reading, what_if
from sfumato.studio.page_state import state
from sfumato.studio.workspace import Desk

Json = dict[str, Any]
Asked = Callable[[Desk, paying.Payments, Json], Any]


def _names(desk: Desk, _payments: paying.Payments, _given: Json) -> Any:
    desk.names()
    return state(desk) | {"doubt": desk.doubt()}


def _change(desk: Desk, _payments: paying.Payments, given: Json) -> Any:
    about, conditions = given.get("about", ""), given.get("conditions", [])
    if (
        not isinstance(about, str)
        or not isinstance(conditions, list)
        or not all(isinstance(c, str) for c in conditions)
    ):
        raise InvalidInput("a change is about a place, with a list of conditions")
    ready = functools.partial(state, desk)
    return state(desk, desk.change(given.get("version"), given.get("changes"), about, conditions, ready))


def _import(desk: Desk, _payments: paying.Payments, given: Json) -> Any:
    text = given.get("text")
    if not isinstance(text, str):
        raise InvalidInput("a schema is a text file")
    changes = [
        {"place": ["schema", name], "value": _typed(table)} for name, table in drafts.imported(text)["schema"].items()
    ]
    return state(desk, desk.change(given.get("version"), changes, ready=functools.partial(state, desk)))


def _typed(value: Any) -> Any:
    """Numbers as the page sends them."""
    if isinstance(value, dict):
        return {
            k: [{"number": v} if k == "edges" else v for v in x] if isinstance(x, list) else x for k, x in value.items()
        }
    return value


def _plan(desk: Desk, _payments: paying.Payments, given: Json) -> Any:
    """The plan of the spec, or of a variant that is not written: changes as for the file; or of a session over it."""
    text = desk.seen(given.get("version"))
    if given.get("changes"):
        text = drafts.change(text, given["changes"])
    plan = desk.plan(text, _what(given))
    about = {"variant": drafts.version_of(text), "fingerprint": plan.fingerprint}
    if isinstance(plan, SessionPlan):
        return about | {"described": conversations.promise(plan).to_dict()}
    told = Description("", [protects(plan, released=False), plan.describe()])
    return what_if.figures(plan) | about | {"described": told.to_dict()}


def _what(given: Json) -> str:
    """What is to be paid for."""
    what = given.get("what", conversations.RELEASE)
    if what not in conversations.WAYS:
        raise InvalidInput(f"what is paid for is one of {', '.join(conversations.WAYS)}")
    return str(what)


def _one_look(desk: Desk, given: Json) -> Plan:
    text = desk.seen(given.get("version"))
    if given.get("changes"):
        text = drafts.change(text, given["changes"])
    plan = desk.plan(text)
    if not isinstance(plan, Plan):
        raise InvalidInput("the errors of this kind of plan are not known for other budgets; plan anew")
    return plan


def _budget(given: Json) -> Budget:
    """A budget as a page states it."""
    numbers = given.get("budget")
    if not isinstance(numbers, dict) or not all(isinstance(v, str) for v in numbers.values()):
        raise InvalidInput("a budget is epsilon, epsilon and delta, rho, or mu")
    return Budget.from_json(numbers)


def _scale(desk: Desk, _payments: paying.Payments, given: Json) -> Any:
    found = what_if.scaled(_one_look(desk, given), _budget(given))
    return {"factor": found.factor, "guarantee": found.guarantee, "statement": found.statement, "attack": found.attack}


def _margin(desk: Desk, _payments: paying.Payments, given: Json) -> Any:
    margin, part, order = given.get("margin"), given.get("part"), given.get("order")
    if not isinstance(margin, (int, float)) or not isinstance(part, str) or not isinstance(order, int):
        raise InvalidInput("a margin is a number, of a line of the plan")
    budget = what_if.budget_for_margin(_one_look(desk, given), float(margin), part, order)
    return {"budget": what_if.typed(budget), "statement": str(budget).partition(";")[0]}


def _alone(desk: Desk, _payments: paying.Payments, given: Json) -> Any:
    """What tables would have with the whole budget to themselves; the page asks again for those that are left."""
    numbers = given.get("tables")
    if not isinstance(numbers, list) or not all(isinstance(n, int) for n in numbers):
        raise InvalidInput("tables are asked for by their numbers")
    text = desk.seen(given.get("version"))
    spec = desk.spec(text)
    if spec.periods is not None:
        raise InvalidInput("a stream's tables are planned together")
    found = what_if.alone(spec, numbers, desk.alone(text))
    return {"alone": [[n, error] for n, error in found.items()]}


def _account(desk: Desk, _payments: paying.Payments, given: Json) -> Any:
    found = desk.ledger()
    if found is None:
        return {"ledger": None}
    return {"ledger": paying.account(found, desk.plan(desk.seen(given.get("version")), _what(given)))}


def _open_ledger(desk: Desk, _payments: paying.Payments, given: Json) -> Any:
    table = given.get("table")
    if table is not None and not isinstance(table, str):
        raise InvalidInput("the table's public name is a text")
    paying.open_ledger(desk.places.ledger, _budget(given), table or None)
    return {"ledger": True}


def _pay(desk: Desk, payments: paying.Payments, given: Json) -> Any:
    return payments.begin(given.get("version"), given.get("fingerprint"), given.get("name"), _what(given))


def release_of(desk: Desk, name: object) -> Release:
    """The release of a name, if pages can read it. Raises InvalidInput."""
    release = reading.measured(desk.release(name))
    if release is None:
        raise InvalidInput("this is no release of tables with known errors; it is told in words above")
    return release


def _verify(desk: Desk, _payments: paying.Payments, given: Json) -> Any:
    found, anchor = desk.ledger(), given.get("anchor") or None
    if found is None:
        raise InvalidInput("there is no ledger yet")
    if anchor is not None and not isinstance(anchor, str):
        raise InvalidInput("an anchor is a text such as 17:9f86d0…")
    checked = found.verify(anchor)
    more = ", and continues from the anchor" if anchor else ""
    return {"text": f"{checked.entries:,} lines, unbroken{more}.", "anchor": checked.anchor}


CALLS: dict[str, Asked] = {
    "names": _names,
    "change": _change,
    "import": _import,
    "plan": _plan,
    "scale": _scale,
    "margin": _margin,
    "alone": _alone,
    "account": _account,
    "ledger": _open_ledger,
    "pay": _pay,
    "table": lambda d, _, g: reading.placed(release_of(d, g.get("name")), g.get("attributes")),
    "statistic": lambda d, _, g: reading.statistic(
        release_of(d, g.get("name")), g.get("what"), g.get("attribute"), g.get("by"), g.get("at")
    ),
    "ask": lambda d, _, g: reading.asked(release_of(d, g.get("name")), g.get("question")),
    "calculate": lambda d, _, g: reading.calculated(
        g.get("operation"),
        (release_of(d, g.get("name")), g.get("a")),
        (release_of(d, g.get("other") or g.get("name")), g.get("b")),
    ),
    "ranks": lambda d, _, g: reading.ranked(release_of(d, g.get("name")), g.get("attribute")),
    "maps": lambda d, _, g: reading.maps(release_of(d, g.get("name"))),
    "project": lambda d, _, g: reading.projected(release_of(d, g.get("name"))),
    "verify": _verify,
    "append": lambda _, p, g: p.append(g.get("version"), g.get("name"), g.get("seen"), g.get("period")),
    "put": lambda _, p, g: p.ask(g.get("name"), g.get("seen"), g.get("question")),
}
