"""sfumato: large sets of linear queries under differential privacy, with errors known before any budget is spent."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sfumato import errors
from sfumato._util import codec, elsewhere
from sfumato.domain import Bins, Booleans, Categories, Dates, Domain, Hierarchy, Integers, Measure
from sfumato.errors import BudgetExceeded, NotAnswerable, SfumatoError
from sfumato.privacy.budget import Budget
from sfumato.privacy.unit import Neighbours
from sfumato.stored import import_stored_class

if TYPE_CHECKING:
    from sfumato import mechanisms
    from sfumato.curator import Histogram
    from sfumato.curator.keys import KeyCounts
    from sfumato.curator.people import joined, per_person, rows
    from sfumato.curator.rows.written import Source
    from sfumato.interactive.session import Session
    from sfumato.mechanisms.profiles import plan_profile
    from sfumato.planner.factorize import Factorization, factorization
    from sfumato.planner.inverse import budget_for, records_for
    from sfumato.planner.opening import load
    from sfumato.planner.opening import open_plan as open
    from sfumato.planner.planning import plan
    from sfumato.planner.preview import preview
    from sfumato.planner.rows import choose_rows
    from sfumato.planner.shares import share_budget
    from sfumato.planner.simulate import simulate
    from sfumato.plans.plan import Plan
    from sfumato.postprocess.bodies import project
    from sfumato.postprocess.projection import Projection
    from sfumato.postprocess.width import width
    from sfumato.privacy.ledger import Ledger
    from sfumato.releases import Answer, Release, Table, combine, difference
    from sfumato.releasing import describe, release
    from sfumato.sketches import Keys
    from sfumato.specs import Spec, read_spec
    from sfumato.strategies.periods import periods
    from sfumato.workloads import (
        Workload,
        conjunctions,
        disjunctions,
        gaps,
        hierarchy,
        identity,
        marginals,
        means,
        moments,
        parities,
        predicates,
        prefix,
        queries,
        ranges,
        stack,
        sums,
        total,
        windows,
    )
    from sfumato.workloads.sql import sql

pure = Budget.pure
approx = Budget.approx
zcdp = Budget.zcdp
gdp = Budget.gdp

__version__ = "0.3.0"

__all__ = [
    "Answer",
    "Bins",
    "Booleans",
    "Budget",
    "BudgetExceeded",
    "Categories",
    "Dates",
    "Domain",
    "Factorization",
    "Hierarchy",
    "Histogram",
    "Integers",
    "KeyCounts",
    "Keys",
    "Ledger",
    "Measure",
    "Neighbours",
    "NotAnswerable",
    "Plan",
    "Projection",
    "Release",
    "Session",
    "SfumatoError",
    "Source",
    "Spec",
    "Table",
    "Workload",
    "approx",
    "budget_for",
    "choose_rows",
    "combine",
    "conjunctions",
    "describe",
    "difference",
    "disjunctions",
    "errors",
    "factorization",
    "gaps",
    "gdp",
    "hierarchy",
    "identity",
    "joined",
    "load",
    "marginals",
    "means",
    "mechanisms",
    "moments",
    "open",
    "parities",
    "per_person",
    "periods",
    "plan",
    "plan_profile",
    "predicates",
    "prefix",
    "preview",
    "project",
    "pure",
    "queries",
    "ranges",
    "read_spec",
    "records_for",
    "release",
    "rows",
    "share_budget",
    "simulate",
    "sql",
    "stack",
    "sums",
    "total",
    "width",
    "windows",
    "zcdp",
]

# What is imported when it is first touched (PEP 562): of these files the numerical part of the library hangs.
_LATE = {
    "Answer": "sfumato.releases",
    "Factorization": "sfumato.planner.factorize",
    "Histogram": "sfumato.curator",
    "KeyCounts": "sfumato.curator.keys",
    "Keys": "sfumato.sketches",
    "Ledger": "sfumato.privacy.ledger",
    "Plan": "sfumato.plans.plan",
    "Projection": "sfumato.postprocess.projection",
    "Release": "sfumato.releases",
    "Session": "sfumato.interactive.session",
    "Source": "sfumato.curator.rows.written",
    "Spec": "sfumato.specs",
    "Table": "sfumato.releases",
    "Workload": "sfumato.workloads",
    "budget_for": "sfumato.planner.inverse",
    "choose_rows": "sfumato.planner.rows",
    "combine": "sfumato.releases",
    "conjunctions": "sfumato.workloads",
    "describe": "sfumato.releasing",
    "difference": "sfumato.releases",
    "disjunctions": "sfumato.workloads",
    "factorization": "sfumato.planner.factorize",
    "gaps": "sfumato.workloads",
    "hierarchy": "sfumato.workloads",
    "identity": "sfumato.workloads",
    "load": "sfumato.planner.opening",
    "marginals": "sfumato.workloads",
    "means": "sfumato.workloads",
    "moments": "sfumato.workloads",
    "open": "sfumato.planner.opening",
    "parities": "sfumato.workloads",
    "periods": "sfumato.strategies.periods",
    "plan": "sfumato.planner.planning",
    "preview": "sfumato.planner.preview",
    "plan_profile": "sfumato.mechanisms.profiles",
    "predicates": "sfumato.workloads",
    "prefix": "sfumato.workloads",
    "project": "sfumato.postprocess.bodies",
    "queries": "sfumato.workloads",
    "ranges": "sfumato.workloads",
    "read_spec": "sfumato.specs",
    "records_for": "sfumato.planner.inverse",
    "release": "sfumato.releasing",
    "share_budget": "sfumato.planner.shares",
    "simulate": "sfumato.planner.simulate",
    "sql": "sfumato.workloads.sql",
    "stack": "sfumato.workloads",
    "sums": "sfumato.workloads",
    "total": "sfumato.workloads",
    "joined": "sfumato.curator.people",
    "per_person": "sfumato.curator.people",
    "rows": "sfumato.curator.people",
    "width": "sfumato.postprocess.width",
    "windows": "sfumato.workloads",
}
_CALLED = {"open": "open_plan"}  # what shadows no builtin name where it is written

codec.absent.append(import_stored_class)
elsewhere.engines.append(lambda source: import_module("sfumato.curator.engines.registry").engine(source))
elsewhere.engines.append(lambda source: import_module("sfumato.curator.people.opening").person_source(source))


def __getattr__(name: str) -> Any:
    """The names that are imported when they are first touched."""
    if name == "mechanisms":
        return import_module("sfumato.mechanisms")
    if name not in _LATE:
        raise AttributeError(f"module 'sfumato' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_LATE[name]), _CALLED.get(name, name))
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
