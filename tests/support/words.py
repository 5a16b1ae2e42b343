"""Plans and sessions from options in a mapping: those of the mechanism are those that `sf.plan` does not have."""

from __future__ import annotations

import inspect
from typing import Any

import sfumato as sf
from sfumato.mechanisms import make_mechanism
from sfumato.mechanisms.registry import mechanism_class
from sfumato.planner.opening import plan_and_open
from sfumato.releases.released import as_ledger

__all__ = ["open_with", "plan_with"]

_UNIT = ("neighbours", "person", "rows_per_person")
_PLAN = set(inspect.signature(sf.plan).parameters)


def plan_with(what: Any, budget: Any, *, mechanism: str = "auto", queries: Any = None, **options: Any) -> Any:
    """`sf.plan` with the options of `sf.plan` and of the mechanism together; of known queries, where they are given."""
    if queries is not None:
        what = what.queries(queries)
    own = {name: options.pop(name) for name in list(options) if name not in _PLAN}
    return sf.plan(what, budget, mechanism=make_mechanism(mechanism, **own), **options)


def open_with(source: Any, what: Any, budget: Any, *, mechanism: str = "pmw", **options: Any) -> Any:
    """A session, planned for its ledger and, where the number of records is public, for what the table has."""
    opening: dict[str, Any] = {"name": "session", "store": None, "table": None, "records": None, "ledger": None}
    opening |= {name: options.pop(name) for name in list(options) if name in (*opening, *_UNIT)}
    account = opening["ledger"] = as_ledger(opening["ledger"])
    currency = mechanism_class(mechanism).alone if account is None else account.currency.value
    value = make_mechanism(mechanism, **options, currency=currency)
    return plan_and_open(source, what, budget, mechanism=value, **opening)
