"""Every name and parameter of 0.1 warns, with the new words, and gives what the new words give."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato import deprecated, errors
from sfumato.recipes.choose import compared
from sfumato.recipes.inverse import plan_for
from sfumato.sessions import session_status

DOMAIN = sf.Domain({"a": sf.Integers(0, 7), "b": 2})
WORK = sf.prefix(DOMAIN, "a")
KEYS = sf.Keys("k")
BUDGET, PURE, KEYED = sf.approx(1, "1e-6"), sf.pure(1), sf.pure("1/2")
TABLE = sf.Histogram(np.arange(16).reshape(8, 2))
COUNTS = sf.KeyCounts([1, 2, 2, 9])
UNIT: dict[str, Any] = {"neighbours": "add-remove"}
old: Any = sf


def saved(value: Any, folder: Path) -> Path:
    value.save(folder / "it")
    return folder / "it"


def same_load(make: Callable[[], Any], name: str) -> Callable[[Path], tuple[Any, Any]]:
    def both(folder: Path) -> tuple[Any, Any]:
        place = saved(make(), folder)
        return getattr(old, name)(place), sf.load(place)

    return both


def local() -> Any:
    return sf.plan(sf.prefix(DOMAIN, "a"), PURE, trust="local", records=100, mechanism="local")


def sketch_plan() -> Any:
    return sf.plan(KEYS.queries([[1, 2]]), PURE, mechanism="histogram", **UNIT)


def sketched(folder: Path) -> tuple[Any, Any]:
    old.sketch(sketch_plan(), COUNTS, ledger=None, out=folder / "one")
    return sf.load(folder / "one").plan, sketch_plan()


def resumed(folder: Path) -> tuple[Any, Any]:
    ledger = sf.Ledger.create(folder / "l.db", total=PURE)
    plan = sf.plan(KEYS, PURE, mechanism="histogram", **UNIT)
    opened = sf.open(plan, COUNTS, ledger=ledger, store=folder / "s.db")
    first = opened.ask([1, 2]).value
    again = old.resume_session(folder / "s.db", ledger, COUNTS)
    assert again.ask([1, 2]).value == first
    return again.plan, sf.load(folder / "s.db", ledger=ledger, source=COUNTS).plan


def told(folder: Path) -> tuple[Any, Any]:
    sf.release(sf.plan(sf.identity(DOMAIN), PURE, **UNIT), TABLE, ledger=None, out=folder / "cells")
    return old.session_status(folder / "cells"), session_status(folder / "cells")


PMW: dict[str, Any] = {"updates": 3, "threshold": 30}
SAME: dict[str, Callable[[Path], tuple[Any, Any]]] = {
    "load_plan": same_load(lambda: sf.plan(WORK, BUDGET, **UNIT), "load_plan"),
    "load_release": same_load(lambda: sf.release(sf.plan(WORK, BUDGET, **UNIT), TABLE, ledger=None), "load_release"),
    "load_key_plan": same_load(sketch_plan, "load_key_plan"),
    "load_sketch": same_load(lambda: sf.release(sketch_plan(), COUNTS, ledger=None), "load_sketch"),
    "load_local_plan": same_load(local, "load_local_plan"),
    "load_local_release": same_load(lambda: local().collect([0, 1]), "load_local_release"),
    "plan_keys": lambda _: (
        old.plan_keys(KEYS, PURE, mechanism="histogram", queries=[[1, 2]], **UNIT),
        sketch_plan(),
    ),
    "plan_local": lambda _: (old.plan_local(WORK, 1, records=100, reporter="auto"), local()),
    "session_plan": lambda _: (
        old.session_plan(DOMAIN, BUDGET, records=500, **PMW, **UNIT),
        sf.plan(DOMAIN, BUDGET, records=500, mechanism=sf.mechanisms.pmw(**PMW), **UNIT),
    ),
    "session": lambda _: (
        old.session(TABLE, DOMAIN, BUDGET, ledger=None, records=500, **PMW, **UNIT).plan,
        sf.plan(DOMAIN, BUDGET, records=500, mechanism=sf.mechanisms.pmw(**PMW), **UNIT),
    ),
    "resume_session": resumed,
    "session_status": told,
    "sketch": sketched,
    "respond": lambda _: (old.respond(local(), {"a": 3}) >= 0, local().respond({"a": 3}) >= 0),
    "collect": lambda _: (old.collect(local(), [0, 5]), local().collect([0, 5])),
    "plan_for": lambda _: (
        old.plan_for(WORK, margin=50, delta="1e-6", **UNIT),
        plan_for(WORK, margin=50, delta="1e-6", **UNIT),
    ),
    "pmw_min_alpha": lambda _: (
        old.pmw_min_alpha(2**10, 10**4, 10**6, BUDGET),
        sf.mechanisms.pmw.least_alpha(2**10, 10**4, 10**6, BUDGET),
    ),
    "noise": lambda _: (
        sf.plan(WORK, BUDGET, noise="laplace", **UNIT),  # type: ignore[call-overload]
        sf.plan(WORK, BUDGET, mechanism=sf.mechanisms.auto(noise="laplace"), **UNIT),
    ),
    "workload": lambda _: (
        old.plan(workload=WORK, budget=BUDGET, **UNIT),
        sf.plan(WORK, BUDGET, **UNIT),
    ),
    "lattice": lambda _: (
        sf.plan(WORK, BUDGET, mechanism="gaussian", lattice="unit", **UNIT),  # type: ignore[call-overload]
        sf.plan(WORK, BUDGET, mechanism=sf.mechanisms.gaussian(lattice="unit"), **UNIT),
    ),
    "rounds": lambda _: (
        sf.plan(WORK, BUDGET, mechanism="mwem", records=90, rounds=3, **UNIT),  # type: ignore[call-overload]
        sf.plan(WORK, BUDGET, mechanism=sf.mechanisms.mwem(rounds=3), records=90, **UNIT),
    ),
    "compare": lambda _: (
        sf.plan(WORK, BUDGET, compare=True, **UNIT),  # type: ignore[call-overload]
        compared(WORK, BUDGET, **UNIT),
    ),
    "noise of budget_for": lambda _: (
        sf.budget_for(WORK, margin=9, delta="1e-6", noise="laplace", **UNIT),
        sf.budget_for(WORK, margin=9, delta="1e-6", mechanism=sf.mechanisms.auto(noise="laplace"), **UNIT),
    ),
    "noise of records_for": lambda _: (
        sf.records_for(WORK, BUDGET, error=0.1, noise="laplace", **UNIT),
        sf.records_for(WORK, BUDGET, error=0.1, mechanism=sf.mechanisms.auto(noise="laplace"), **UNIT),
    ),
}
WORDS = {
    "plan_keys": "keys.queries",
    "plan_local": "trust='local'",
    "session": "sf.open",
    "session_plan": "sf.plan",
    "resume_session": "sf.open.*sf.load",
    "sketch": "sf.release",
    "respond": "plan.respond",
    "collect": "plan.collect",
    "plan_for": "sfumato.recipes.inverse",
    "pmw_min_alpha": "sf.mechanisms.pmw.least_alpha",
    "session_status": "sfumato.sessions",
    "workload": "what=",
    "noise": r"sf\.mechanisms\.auto\(noise='laplace'\)",
    "lattice": r"sf\.mechanisms\.gaussian\(lattice='unit'\)",
    "rounds": r"sf\.mechanisms\.mwem\(rounds=3\)",
    "compare": "plan.candidates",
}


def identity_of(value: Any) -> Any:
    """What two values are compared by."""
    if type(value).__name__ == "SketchRelease":
        return value.plan.fingerprint, value.measurement.values.tolist()
    if hasattr(value, "candidates"):
        return value.fingerprint, str(value.candidates)
    if hasattr(value, "answers"):
        return value.plan.fingerprint, value.answers.tolist()
    return value.fingerprint if hasattr(value, "fingerprint") else value


@pytest.mark.parametrize("name", SAME)
def test_an_old_name_warns_and_gives_the_same(name: str, tmp_path: Path) -> None:
    """Mutants: a name without a warning; an option that is dropped on the way to the new words; other defaults."""
    words = WORDS.get(name, r"sf\.load\(" if name.startswith("load") else r"sf\.mechanisms\.")
    with pytest.warns(DeprecationWarning, match=words):
        before, now = SAME[name](tmp_path)
    assert identity_of(before) == identity_of(now)


def test_every_old_function_is_tried() -> None:
    """Mutant: a line without its test."""
    assert set(deprecated._FUNCTIONS) <= set(SAME)


@pytest.mark.parametrize("name", sorted({*deprecated._MOVED, *errors.__all__} - set(sf.__all__)))
def test_what_left_the_page_is_found_where_it_is_made(name: str) -> None:
    with pytest.warns(DeprecationWarning, match=r"sf\.errors\." if name in errors.__all__ else "import"):
        found = getattr(sf, name)
    assert found.__name__ == (deprecated._MOVED.get(name, "").partition(":")[2] or name)


def test_what_was_never_there_is_not() -> None:
    with pytest.raises(AttributeError, match="no attribute 'plans_for'"):
        _ = old.plans_for


def test_a_session_under_replace_one_may_be_planned_without_the_number_of_records() -> None:
    """It is public, and read for nothing. Mutants: another number; an entry that costs something."""
    ledger = sf.Ledger.in_memory(BUDGET)
    with pytest.warns(DeprecationWarning, match=r"sf\.open"):
        opened = old.session(TABLE, DOMAIN, BUDGET, neighbours="replace-one", ledger=ledger, **PMW)
    assert opened.plan.records == 120
    assert next(iter(ledger.entries())).price == 0
    assert [e.name for e in ledger.entries() if e.kind == "spend"] == ["session (records 1)", "session"]


def test_the_confidence_of_a_histogram_session_is_kept() -> None:
    """Mutant: beta dropped."""
    with pytest.warns(DeprecationWarning, match=r"sf\.open"):
        wide = old.session(TABLE, DOMAIN, BUDGET, mechanism="histogram", ledger=None, beta=0.001, **UNIT)
    assert wide.status()["confidence"] == 0.999


def test_options_of_keys_choose_among_those_that_take_them() -> None:
    """Mutant: a histogram chosen, and the width gone."""
    with pytest.warns(DeprecationWarning, match="keys.queries"):
        made = old.plan_keys(KEYS, BUDGET, queries=[[1, 2]], width=2**11, records=100, **UNIT)
    assert made.map.rows == 2**11


def test_an_old_option_that_does_not_apply_is_refused(tmp_path: Path) -> None:
    """Mutant: dropped."""
    with pytest.warns(DeprecationWarning, match="rounds"), pytest.raises(errors.PlanError, match="rounds= belongs to"):
        sf.plan(WORK, BUDGET, mechanism="tree", rounds=3, **UNIT)  # type: ignore[call-overload]
    with (
        pytest.warns(DeprecationWarning, match="compare"),
        pytest.raises(errors.PlanError, match=r"make it with sf\.plan"),
    ):
        sf.budget_for(WORK, margin=9, kind="pure", compare=True, **UNIT)
    with (
        pytest.warns(DeprecationWarning, match="load_plan"),
        pytest.raises(errors.InvalidInput, match="asked for is a plan"),
    ):
        old.load_plan(saved(sketch_plan(), tmp_path))


def test_a_sketch_is_of_keys_alone() -> None:
    """Mutant: any plan carried out, and its price spent under a name that nobody chose."""
    with pytest.warns(DeprecationWarning, match="sketch"), pytest.raises(errors.PlanError, match="a plan of keys"):
        old.sketch(sf.plan(WORK, BUDGET, **UNIT), COUNTS, ledger=None)


def test_the_rounds_of_a_spec_are_those_of_its_mechanism(tmp_path: Path) -> None:
    """Mutant: None."""
    path = tmp_path / "spec.toml"
    path.write_text(
        '[schema.a]\ntype = "integer"\nmin = 0\nmax = 7\noutside = "clamp"\nmissing = "other"\n[privacy]\nrho = 1\n'
        'neighbours = "add-remove"\n[plan]\nmechanism = "mwem"\nrounds = 7\n[[queries]]\nprefix = "a"\n'
    )
    spec = sf.read_spec(path)
    assert spec.mechanism == sf.mechanisms.mwem(rounds=7)
    with pytest.warns(DeprecationWarning, match=r"spec\.mechanism"):
        assert spec.rounds == 7


def test_looks_of_a_plan_had_another_name() -> None:
    """Mutant: other looks than the plan's."""
    made = sf.plan(WORK, sf.zcdp("0.5"), records=100, mechanism=sf.mechanisms.mwem(rounds=1), **UNIT)
    with pytest.warns(DeprecationWarning, match=r"plan\.looks"):
        assert made.knocks == made.looks
