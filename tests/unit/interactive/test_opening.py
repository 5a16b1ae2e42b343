"""How a session is opened, which one to take, and the histogram beside it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato._util.bundles import pack_value, unpack_value
from sfumato.interactive import session_status
from sfumato.interactive.plan import SessionPlan
from support.sessions import COUNTS, DOMAIN, GENEROUS, RECORDS, TABLE, opened
from support.words import open_with


@pytest.mark.parametrize(
    "options",
    [
        {"updates": 0},
        {"updates": 2.0},
        {"threshold": 0},
        {"alpha": 2},
        {"alpha": "most"},
        {"beta": 0},
        {"beta": True},
        {"questions": 0},
        {"span": 0},
        {"mechanism": "magic"},
        {"records": -1},
        {"neighbours": "none"},
    ],
    ids=str,
)
def test_options_that_cannot_be_are_refused_before_anything_is_spent(options: dict[str, Any]) -> None:
    ledger = sf.Ledger.in_memory(GENEROUS)
    given: dict[str, Any] = {"neighbours": "add-remove", "ledger": ledger}
    with pytest.raises(sf.SfumatoError):
        opened(**given | options)
    assert ledger.spent == 0


def test_the_plan_says_what_would_err_less() -> None:
    plan = sf.plan(DOMAIN, sf.approx(1, "1e-6"), neighbours="replace-one", records=RECORDS, mechanism="pmw")
    assert isinstance(plan, SessionPlan)
    assert plan.compared["mechanism"][1] == "histogram"
    # replace-one: sqrt 2 times the multiplier, times the root of half the cells
    assert plan.compared["standard_error"][1] == pytest.approx(4.2247 * math.sqrt(2 * 24), rel=0.01)
    assert "histogram" in plan.advice
    large = sf.plan(
        sf.Domain({"a": 2000, "b": 2000}),
        sf.approx(1, "1e-6"),
        neighbours="replace-one",
        records=RECORDS,
        mechanism=sf.mechanisms.pmw(questions=10**8),
    )
    assert "pmw errs least" in large.advice
    assert "Errors in records" in str(large)


def test_a_histogram_session_answers_everything_for_ever(tmp_path: Path) -> None:
    for store in (None, tmp_path / "cells"):
        if store is not None:
            sf.Ledger.create(tmp_path / "budget.db", total=sf.approx(1, "1e-6"))
        mechanism = sf.mechanisms.histogram(currency=None if store else "any")
        plan = sf.plan(DOMAIN, sf.approx(1, "1e-6"), neighbours="add-remove", mechanism=mechanism)
        asked = sf.open(
            plan,
            sf.Histogram(TABLE),
            ledger=None if store is None else tmp_path / "budget.db",
            store=store,
        )
        found = asked.ask("x < 8 and y == 'a'")
        assert found.how == "histogram"
        assert found.guaranteed
        # Laplace noise errs least where no ledger asks for mu^2; there Gaussian noise does
        deviation = 4.2257 if store else math.sqrt(2)
        assert found.standard_error is not None
        assert found.standard_error == pytest.approx(math.sqrt(8) * deviation, rel=0.02)
        assert abs(found.value - COUNTS[:8, 0].sum()) < 12 * found.standard_error
        mean = asked.ask(sf.queries(np.full((1, 16), 1 / 16), DOMAIN, "x"))[0]
        assert mean.standard_error is not None
        assert abs(mean.value - RECORDS / 16) < 12 * mean.standard_error
        assert not asked.status()["exhausted"]
    again: dict[str, Any] = {"ledger": tmp_path / "budget.db", "store": tmp_path / "cells"}
    assert sf.open(plan, **again).ask("x < 8 and y == 'a'") == found
    assert sf.load(tmp_path / "cells").ask("x < 8 and y == 'a'").value == found.value
    with pytest.raises(sf.errors.InvalidInput, match="no anchor"):
        sf.open(plan, **again, anchor=f"1:{'0' * 64}")
    with pytest.raises(sf.errors.InvalidInput, match="anchor belong to a session"):
        sf.load(tmp_path / "cells", anchor=f"1:{'0' * 64}")
    with pytest.raises(sf.errors.PlanError, match="belongs to"):
        opened(mechanism="histogram", updates=3)


def test_a_file_is_not_believed_about_who_paid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that was paid from another's ledger never meets the custodian's table. Mutant: a ledger of the file."""
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("x\n" + "3\n" * 9, encoding="utf-8")
    domain = sf.Domain({"x": sf.Integers(0, 9, outside="drop", missing="drop")})
    sf.Ledger.create("custodian.db", total=sf.pure(1))
    sf.Ledger.create("forger.db", total=sf.pure(2000))
    given: dict[str, Any] = {"neighbours": "add-remove", "records": 9, "updates": 3, "threshold": 1}
    open_with("t.csv", domain, sf.pure(200), ledger="forger.db", store="s.session", **given)
    Path("t.csv").unlink()  # whoever opens it fails otherwise than is expected here
    with pytest.raises(sf.errors.InvalidInput, match="which ledger paid"):
        sf.load("s.session", ledger=None)
    with pytest.raises(sf.errors.LedgerError, match="another ledger"):
        sf.load("s.session", ledger="custodian.db")
    with pytest.raises(sf.errors.InvalidInput, match="which ledger paid"):
        sf.load("s.session")
    assert "forger.db" not in str(session_status("s.session"))
    for kind, options in ((domain, given), (sf.Keys("x"), {"mechanism": "histogram"})):
        shared: dict[str, Any] = {"neighbours": "add-remove", "ledger": None, "store": "kept.session"}
        with pytest.raises(sf.errors.PlanError, match="paid from a ledger"):
            open_with("t.csv", kind, sf.pure(200), **shared | options)
    assert not Path("kept.session").exists()


@pytest.mark.parametrize("size", [None, 4])
def test_a_plan_cannot_state_a_promise_that_its_terms_do_not_make(size: int | None) -> None:
    """Mutant: what a file says of alpha or threshold, believed."""
    mechanism = sf.mechanisms.pmw(alpha="least") if size is None else sf.mechanisms.sparse_mw(alpha="least", size=size)
    what: Any = DOMAIN if size is None else sf.Keys()
    plan: Any = sf.plan(what, sf.gdp("0.5"), neighbours="replace-one", records=10_000, mechanism=mechanism)
    assert unpack_value(pack_value(plan)).fingerprint == plan.fingerprint
    for forged in ({"alpha": 1}, {"threshold": 1}):
        with pytest.raises(sf.errors.PlanError, match="do not promise"):
            replace(plan, **forged)


def test_the_same_call_again_goes_on_and_another_is_refused(tmp_path: Path) -> None:
    """Mutants: a second debit; a store of another plan or name gone on with; an anchor that is not looked at."""
    ledger = sf.Ledger.create(tmp_path / "l.db", total=sf.pure(2))
    keys, table = sf.Keys("k"), sf.KeyCounts([1, 2, 2])
    plan: Any = sf.plan(keys, sf.pure(1), neighbours="add-remove", mechanism="histogram")
    wider: Any = sf.plan(keys, sf.pure("1/2"), neighbours="add-remove", mechanism="histogram")
    place: dict[str, Any] = {"ledger": ledger, "name": "desk", "store": tmp_path / "s.db"}
    with pytest.raises(sf.errors.InvalidInput, match="there is none"):
        sf.open(plan, table, **place, anchor="1:0")
    with pytest.raises(sf.errors.InvalidInput, match="second argument"):
        sf.open(plan, **place)
    first = sf.open(plan, table, **place)
    told = first.ask([1, 2])
    again = sf.open(plan, table, **place, anchor=first.anchor)
    assert again.ask([1, 2]) == told == sf.load(tmp_path / "s.db", ledger=ledger, source=table).ask([1, 2])
    assert ledger.spent == 1
    with pytest.raises(sf.errors.InvalidInput, match="another plan"):
        sf.open(wider, table, **place)
    with pytest.raises(sf.errors.InvalidInput, match="the session 'desk', not 'other'"):
        sf.open(plan, table, **(place | {"name": "other"}))
    with pytest.raises(sf.errors.LedgerError):
        sf.open(plan, table, **place, anchor=f"1:{'0' * 64}")
    with pytest.raises(sf.errors.NameTaken):
        sf.open(plan, table, **(place | {"store": tmp_path / "t.db"}))
    assert ledger.spent == 1


def test_what_was_stored_is_loaded_as_it_was(tmp_path: Path) -> None:
    """Mutants: a kind of thing that load does not know; options of sessions dropped elsewhere."""
    ledger = sf.Ledger.create(tmp_path / "l.db", total=sf.pure(2))
    assert sf.load(tmp_path / "l.db").ledger_id == ledger.ledger_id
    plans: list[Any] = [
        sf.plan(sf.identity(DOMAIN), sf.pure(1), neighbours="add-remove"),
        sf.plan(sf.identity(DOMAIN), sf.pure(1), neighbours="add-remove", records=9, mechanism="mwem"),
        sf.plan(sf.Keys("k"), sf.pure(1), neighbours="add-remove"),
        sf.plan(sf.prefix(DOMAIN, "x"), sf.pure(1), trust="local", records=9),
    ]
    for number, plan in enumerate(plans):
        plan.save(tmp_path / f"{number}.plan")
        found = sf.load(tmp_path / f"{number}.plan")
        assert (type(found), found.fingerprint) == (type(plan), plan.fingerprint)
    for nothing in (tmp_path / "none", Path(__file__), 7):
        with pytest.raises(sf.errors.InvalidInput):
            sf.load(nothing)  # type: ignore[arg-type]
    for option in ({"ledger": ledger}, {"source": "t.csv"}, {"anchor": "1:0"}):
        with pytest.raises(sf.errors.InvalidInput, match="belong to a session"):
            sf.load(tmp_path / "0.plan", **option)  # type: ignore[arg-type]
