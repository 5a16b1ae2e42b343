"""Names and parameters of 0.1: each works as it did, with a warning that says the new words. They go with 0.3."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from sfumato import errors
from sfumato.domain import Domain
from sfumato.errors import InvalidInput, PlanError
from sfumato.local.collecting import LocalRelease
from sfumato.local.plans import LocalPlan
from sfumato.mechanisms import sketched
from sfumato.mechanisms.online import Pmw
from sfumato.mechanisms.registry import made, planned
from sfumato.mechanisms.run import carry_out
from sfumato.plans.iterative import IterativePlan
from sfumato.plans.keys import KeyPlan
from sfumato.plans.plan import Plan
from sfumato.privacy.budget import Budget
from sfumato.recipes import choose, inverse, needs
from sfumato.recipes.loading import read
from sfumato.recipes.opening import currency_of, plan_and_open
from sfumato.releases import ModelRelease, Release
from sfumato.releases.accounts import opened
from sfumato.releases.sketched import SketchRelease
from sfumato.sessions.opening import resume_session, session_status
from sfumato.sketches import Keys

__all__ = ["accepting", "budget_for", "old", "plan", "records_for"]

P = ParamSpec("P")
R = TypeVar("R")

_OPTIONS = {"noise": None, "lattice": "fine", "rounds": None}
"""What were parameters of `sf.plan` and are options of mechanisms, with their defaults."""

_MOVED = {
    "Comparison": "sfumato.releases",
    "CoursePlan": "sfumato.plans.iterative:IterativePlan",
    "Intervals": "sfumato.releases",
    "KeyPlan": "sfumato.plans.keys",
    "KeySession": "sfumato.sessions",
    "LocalPlan": "sfumato.local.plans",
    "LocalRelease": "sfumato.local.collecting",
    "ModelRelease": "sfumato.releases",
    "SessionAnswer": "sfumato.sessions",
    "SessionPlan": "sfumato.sessions",
    "Simulation": "sfumato.recipes.simulate",
    "SketchRelease": "sfumato.releases.sketched",
    "Synthetic": "sfumato.releases",
}


def old(name: str) -> Any:
    """What 0.1 called so. Raises AttributeError for what it did not have."""
    if name in _CALLS:
        return _CALLS[name]
    place = "sfumato.errors" if name in errors.__all__ else _MOVED.get(name)
    if place is None:
        raise AttributeError(f"module 'sfumato' has no attribute {name!r}")
    place, _, renamed = place.partition(":")
    now = renamed or name
    words = f"sf.errors.{name}" if place == "sfumato.errors" else f"from {place} import {now}"
    warnings.warn(f"sf.{name} is no longer on the public page: {words}", DeprecationWarning, stacklevel=3)
    return getattr(import_module(place), now)


def accepting(function: Callable[P, R]) -> Callable[P, R]:
    """The same function, which also takes what were parameters of `sf.plan` and are options of mechanisms now."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if function is choose.plan and "workload" in kwargs:
            _warn("workload= of sf.plan", "what=, or the first argument", stacklevel=2)
            kwargs["what"] = kwargs.pop("workload")
        given = {k: kwargs.pop(k) for k in (*_OPTIONS, "compare") if k in kwargs}
        if not given:
            return function(*args, **kwargs)
        options = {k: v for k, v in given.items() if k in _OPTIONS and v != _OPTIONS[k]}
        name = kwargs.get("mechanism", "auto")
        if options:
            words = f"mechanism=sf.mechanisms.{str(name).replace('-', '_')}({_written(options)})"
        else:
            words = "plan.candidates is always there, and sfumato.recipes.choose.compared plans with all in it"
        _warn(f"{', '.join(given)} of sf.{function.__name__}", words, stacklevel=3)
        if options:
            kwargs["mechanism"] = made(name, **options)
        if not given.get("compare"):
            return function(*args, **kwargs)
        if function is not choose.plan:
            raise PlanError("compare= lists what was considered in a plan; make it with sf.plan from the budget found")
        compared: Callable[..., Any] = choose.compared
        return compared(*args, **kwargs)

    return call


plan = accepting(choose.plan)
budget_for = accepting(inverse.budget_for)
records_for = accepting(needs.records_for)


def _written(options: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in options.items())


def _warn(what: str, words: str, stacklevel: int) -> None:
    warnings.warn(f"{what} is of 0.1, and goes with 0.3: {words}", DeprecationWarning, stacklevel=stacklevel + 1)


def _loads(*kinds: type) -> Callable[[Any], Any]:
    """Reads a stored value of these classes alone."""

    def found(path: Any) -> Any:
        return read(path, *kinds)

    return found


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _plan_keys(
    keys: Keys,
    budget: Budget,
    *,
    mechanism: str = "auto",
    queries: Iterable[Any] | None = None,
    records: int | None = None,
    width: int | None = None,
    dimension: int | None = None,
    independence: int | None = None,
    share: Any = None,
    **unit: Any,
) -> Any:
    options = _given({"width": width, "dimension": dimension, "independence": independence, "share": share})
    if not isinstance(keys, Keys):
        raise PlanError("plan_keys needs sf.Keys and a budget, such as sf.pure(1)")
    if mechanism == "histogram" and queries is None:
        raise PlanError("a histogram counts the keys of known queries; give queries=, one list of keys each")
    asked = choose.request(keys if queries is None else keys.queries(queries), budget, records=records, **unit)
    if mechanism == "auto":
        return sketched.automatic(asked, **options)
    return planned(made(mechanism, **options), asked)


def _plan_local(work: Any, epsilon: Any, *, records: int, reporter: str = "auto") -> Any:
    value = made("local", reporter=reporter)
    return planned(value, choose.request(work, Budget.pure(epsilon), neighbours=None, trust="local", records=records))


def _session_plan(
    domain: Any, budget: Budget, *, neighbours: Any, ledger: Any = None, size: int | None = None, **options: Any
) -> Any:
    account = opened(ledger)
    own = {name: options.pop(name, None) for name in ("records", "person")} | {"neighbours": neighbours}
    own["rows_per_person"] = options.pop("rows_per_person", 1)
    name = "pmw" if isinstance(domain, Domain) else "histogram" if size is None else "sparse-mw"
    wanted = _given(options | {"size": size, "currency": currency_of(account, name)})
    return planned(made(name, **wanted), choose.request(domain, budget, **own))


def _session(
    source: Any,
    domain: Any,
    budget: Budget,
    *,
    neighbours: Any,
    ledger: Any,
    records: int | None = None,
    mechanism: str = "pmw",
    table: str | None = None,
    name: str = "session",
    store: Any = None,
    person: str | None = None,
    rows_per_person: int = 1,
    **options: Any,
) -> Any:
    account = opened(ledger)
    wanted = _given(options | {"currency": currency_of(account, mechanism)})
    over_cells = isinstance(domain, Domain) and mechanism == "histogram"
    beta = wanted.pop("beta", None) if over_cells else None
    unit = {"neighbours": neighbours, "person": person, "rows_per_person": rows_per_person}
    if store is not None and not over_cells and Path(store).exists():
        raise InvalidInput(f"{store} exists; choose another path, or go on with it by sf.open")
    begun: Any = plan_and_open(
        source,
        domain,
        budget,
        mechanism=made(mechanism, **wanted),
        records=records,
        ledger=account,
        name=name,
        store=store,
        table=table,
        **unit,
    )
    return begun if beta is None else replace(begun, beta=beta)


def _sketch(plan: Any, source: Any, *, name: str = "sketch", **options: Any) -> SketchRelease:
    if type(plan) is not KeyPlan:
        raise PlanError("sketch needs a plan of keys, made by sf.plan or read by sf.load")
    return carry_out(plan, source, name=name, **options)


def _respond(plan: Any, record: Any, *, most: Any = None) -> int:
    return plan.respond(record, most=most)


def _collect(plan: Any, reports: Any) -> Any:
    return plan.collect(reports)


_FUNCTIONS: dict[str, tuple[Callable[..., Any], str]] = {
    "collect": (_collect, "plan.collect(reports)"),
    "load_key_plan": (_loads(KeyPlan), "sf.load(path)"),
    "load_local_plan": (_loads(LocalPlan), "sf.load(path)"),
    "load_local_release": (_loads(LocalRelease), "sf.load(path)"),
    "load_plan": (_loads(Plan, IterativePlan), "sf.load(path)"),
    "load_release": (_loads(Release, ModelRelease), "sf.load(folder)"),
    "load_sketch": (_loads(SketchRelease), "sf.load(path)"),
    "plan_for": (accepting(inverse.plan_for), "from sfumato.recipes.inverse import plan_for"),
    "plan_keys": (
        _plan_keys,
        "sf.plan(keys, budget, ...), of keys.queries([...]) where they are known; its options are those of mechanisms, "
        "such as sf.mechanisms.count_sketch(width=...)",
    ),
    "plan_local": (
        _plan_local,
        "sf.plan(work, sf.pure(epsilon), trust='local', records=..., mechanism=sf.mechanisms.local(...))",
    ),
    "pmw_min_alpha": (Pmw.least_alpha, "sf.mechanisms.pmw.least_alpha(...)"),
    "respond": (_respond, "plan.respond(record, most=...)"),
    "resume_session": (
        resume_session,
        "the same call of sf.open again, or sf.load(store, ledger=..., source=..., anchor=...)",
    ),
    "session": (
        _session,
        "sf.open(sf.plan(domain, budget, mechanism=sf.mechanisms.pmw(...)), table, ledger=..., name=..., store=...)",
    ),
    "session_plan": (_session_plan, "sf.plan(domain, budget, mechanism=sf.mechanisms.pmw(...))"),
    "session_status": (session_status, "from sfumato.sessions import session_status"),
    "sketch": (_sketch, "sf.release(plan, table, ledger=..., name=..., out=...)"),
}


def _old_call(name: str, function: Callable[..., Any], words: str) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        _warn(f"sf.{name}", words, stacklevel=2)
        return function(*args, **kwargs)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"Of 0.1; now {words}."
    return call


_CALLS = {name: _old_call(name, *line) for name, line in _FUNCTIONS.items()}
