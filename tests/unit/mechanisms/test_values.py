"""Mechanisms are values: options checked at birth, refused where they do nothing; a new one is a file and a line."""

from __future__ import annotations

import inspect
from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato import specs
from sfumato.errors import PlanError
from sfumato.interactive.plan import SessionPlan
from sfumato.mechanisms import MECHANISMS, make_mechanism, mechanism_class, mechanisms_serving
from sfumato.mechanisms.registry import ASKED_FOR, KEYS, LOCAL, QUESTIONS, STREAMS, TABLES
from sfumato.mechanisms.sketches import read_key_request
from sfumato.mechanisms.tables import Designed
from sfumato.planner.planning import make_request
from support.toy import Plain, every_other, read_every_other
from support.words import plan_with

DOMAIN = sf.Domain({"a": sf.Integers(0, 7), "b": 2})
WORK = sf.prefix(DOMAIN, "a")
BUDGET = sf.approx(1, "1e-6")
TABLE = sf.Histogram(np.arange(16).reshape(8, 2))
ADD: dict[str, Any] = {"neighbours": "add-remove"}


def test_what_is_not_tried_for_tables_is_what_need_not_be_imported() -> None:
    """Mutants: a mechanism that "auto" is to try left out; one that it never tries imported for nothing."""
    tried = {n for n in MECHANISMS if issubclass(mechanism_class(n), Designed) and mechanism_class(n).automatic}
    assert set(MECHANISMS) - ASKED_FOR == tried


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_name_stands_for_its_defaults(name: str) -> None:
    """Mutants: a line that names another class; a value that can be changed; options that repr does not say."""
    value = make_mechanism(name)
    assert type(value) is mechanism_class(name) is getattr(sf.mechanisms, name.replace("-", "_"))
    assert value.name == name
    assert value.options == {}
    assert repr(value) == f"sf.mechanisms.{name.replace('-', '_')}()"
    assert set(value.serves) <= {TABLES, QUESTIONS, KEYS, LOCAL, STREAMS}
    assert name.replace("-", "_") in sf.mechanisms.__all__
    for option in fields(type(value)):  # type: ignore[arg-type]
        with pytest.raises(FrozenInstanceError):
            setattr(value, option.name, None)


def test_the_value_and_the_name_plan_the_same() -> None:
    """Mutant: defaults of a value that differ from what its name did."""
    for name in (c.name for c in mechanisms_serving(TABLES) if c.name not in ("approximate", "adaptive")):
        pair = [sf.plan(WORK, BUDGET, records=90, mechanism=m, **ADD) for m in (name, make_mechanism(name))]  # type: ignore[call-overload]
        assert pair[0].fingerprint == pair[1].fingerprint


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: sf.mechanisms.tree(branching=1), "from 2 to"),
        (lambda: sf.mechanisms.auto(noise="cauchy"), "gaussian, laplace, discrete-gaussian"),
        (lambda: sf.mechanisms.auto(lattice="coarse"), "'fine' or 'unit'"),
        (lambda: sf.mechanisms.laplace(noise="gaussian"), "another"),
        (lambda: sf.mechanisms.projection(body="ball"), "body must be"),
        (lambda: sf.mechanisms.mwem(rounds=0), "from 1 to 1,000"),
        (lambda: sf.mechanisms.pmw(alpha=0.1, updates=3), "alpha sets the updates"),
        (lambda: sf.mechanisms.pmw(currency="gold"), "adds up"),
        (lambda: sf.mechanisms.count_sketch(independence=3), "from 4"),
        (lambda: sf.mechanisms.hybrid(share=2), "between 0 and 1"),
        (lambda: sf.mechanisms.local(reporter="prio"), "randomized-response"),
        (lambda: make_mechanism("tree", width=3), "width= belongs to"),
        (lambda: make_mechanism("magic"), "auto, laplace.*local"),
        (lambda: make_mechanism(sf.mechanisms.tree(), rounds=3), "has its options already"),
        (lambda: make_mechanism(sf.mechanisms.tree), r"sf\.mechanisms\.tree\(\)"),
    ],
)
def test_options_are_refused_at_birth(make: Any, words: str) -> None:
    """Mutant: an option that nobody checks, or that is dropped."""
    with pytest.raises(PlanError, match=words):
        make()


@pytest.mark.parametrize(
    ("what", "options", "words"),
    [
        (WORK, {"mechanism": "count-sketch"}, "plans queries over sf.Keys, not a workload"),
        (WORK, {"mechanism": "local"}, "trust='local'"),
        (WORK, {"mechanism": "tree", "trust": "local"}, "not the local model"),
        (DOMAIN, {"mechanism": "mwem"}, "not questions to come"),
        (DOMAIN, {"mechanism": "pmw"}, "give records="),
        (DOMAIN, {"mechanism": "pmw", "records": 9, "public": {}}, "no use of public="),
        (DOMAIN, {"strategy": "cells"}, "make no use of strategy="),
        (DOMAIN, {"mechanism": sf.mechanisms.auto(noise="laplace")}, "noise="),
        (sf.Keys(), {"mechanism": "pmw"}, "not queries over sf.Keys"),
        (sf.Keys(), {"objective": "max"}, "make no use of objective="),
        (sf.Keys().queries([[1]]), {"mechanism": "sparse-mw"}, "for questions to come"),
        (sf.Keys().queries([[1]]), {"mechanism": sf.mechanisms.histogram(currency="rho")}, "currency="),
        (sf.Keys(), {"trust": "local"}, "need a curator"),
        (WORK, {"trust": "nobody"}, "'curator'.*'local'"),
        (WORK, {"trust": "local", "records": 9}, "pure epsilon"),
        (3, {}, "needs a workload"),
        (WORK, {"neighbours": None}, "give neighbours="),
    ],
)
def test_what_a_mechanism_does_not_serve_is_refused(what: Any, options: dict[str, Any], words: str) -> None:
    """Mutant: served by another, or an option dropped."""
    with pytest.raises(PlanError, match=words):
        sf.plan(what, BUDGET, **(ADD | options))


def test_questions_to_come_take_what_promises_less_error() -> None:
    """Mutants: always multiplicative weights; always a histogram."""
    few, many = sf.Domain({"a": 16}), sf.Domain({"a": 256, "b": 256, "c": 16})
    assert sf.plan(few, BUDGET, records=100, **ADD).mechanism in ("laplace", "gaussian")
    assert sf.plan(few, BUDGET, **ADD).mechanism in ("laplace", "gaussian")
    wide = sf.plan(many, sf.zcdp(1), records=1000, **ADD)
    assert isinstance(wide, SessionPlan)
    ours, cells, _ = wide.compared["bound"]
    assert ours < cells


def test_a_workload_is_asked_one_by_one_with_its_own_numbers() -> None:
    """Mutants: the usual number of questions; a span of 1."""
    work = sf.queries(np.array([[3, -1, 0, 2]]), domain=sf.Domain({"a": 4}), attribute="a")
    plan = sf.plan(work, BUDGET, records=90, mechanism=sf.mechanisms.pmw(updates=3, threshold=9), **ADD)
    assert (plan.questions, plan.span) == (1, 6)


def test_plans_for_questions_to_come_are_opened_and_others_released() -> None:
    """Nothing is spent by the wrong verb. Mutants: a session's plan measured; sketches opened."""
    ledger = sf.Ledger.in_memory(sf.pure(1))
    coming: Any = sf.plan(sf.Keys(), sf.pure(1), mechanism="histogram", **ADD)
    with pytest.raises(PlanError, match=r"opened by sf\.open"):
        sf.release(coming, sf.KeyCounts([1]), ledger=ledger)
    known: Any = sf.plan(sf.Keys().queries([[1, 2]]), sf.pure(1), **ADD)
    assert known.mechanism == "histogram"
    with pytest.raises(PlanError, match=r"released by sf\.release"):
        sf.open(known, sf.KeyCounts([1]), ledger=ledger)
    with pytest.raises(PlanError, match="known queries"):
        mechanism_class("histogram")().sketch(read_key_request(make_request(sf.Keys(), sf.pure(1), **ADD)))  # type: ignore[attr-defined]
    assert ledger.spent == 0


# -- a file and a line ------------------------------------------------------------------------------------


def test_a_mechanism_is_one_file_and_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """tests/support/toy.py and the line below. Mutant: a second list that it would have to stand in."""
    monkeypatch.setitem(MECHANISMS, "plain-cells", "support.toy.Plain")
    assert sf.mechanisms.plain_cells is Plain
    plan = sf.plan(WORK, BUDGET, mechanism="plain-cells", **ADD)
    assert sf.plan(WORK, BUDGET, mechanism=Plain(sums=True), **ADD).fingerprint == plan.fingerprint
    assert "noise on every cell of a, each query a plain sum" in plan.explain()
    found = sf.release(plan, TABLE, ledger=None)
    assert np.isfinite(found.answers).all()
    assert plan_with(WORK, BUDGET, mechanism="plain-cells", sums=False, **ADD).mechanism == "gaussian"
    assert sf.records_for(WORK, BUDGET, error=0.1, mechanism="plain-cells", **ADD) > 1
    assert sf.budget_for(WORK, margin=50, delta="1e-6", mechanism="plain-cells", **ADD).kind == "approx"
    # of one name or another, it errs less than none that it is compared with
    assert "noise on every cell" in str(sf.plan(WORK, BUDGET, **ADD).candidates)


def test_a_builder_of_workloads_is_one_file_and_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In Python a function; in specs the line below. Mutant: a list of kinds besides."""
    found = sf.release(sf.plan(every_other(DOMAIN, "a"), BUDGET, **ADD), TABLE, ledger=None)
    assert found.answers.shape == (1,)
    monkeypatch.setitem(specs.QUERIES, "every_other", (read_every_other, ()))
    path = tmp_path / "spec.toml"
    path.write_text(
        '[schema_defaults]\noutside = "other"\nmissing = "other"\n[schema.a]\ntype = "integer"\nmin = 0\nmax = 7\n'
        '[privacy]\nepsilon = 1\nneighbours = "add-remove"\n[[queries]]\nevery_other = "a"\n'
    )
    assert sf.read_spec(path).workload.labels() == every_other(sf.read_spec(path).domain, "a").labels()


def test_the_inverses_take_the_options_of_plan() -> None:
    """As they are declared there, all but those whose errors are no intervals of one look. Mutants: an option left out,
    a default of its own, another type."""
    plan = inspect.signature(sf.plan).parameters
    for inverse, without in ((sf.budget_for, {"periods", "trust"}), (sf.records_for, {"periods"})):
        own = inspect.signature(inverse).parameters
        shared = plan.keys() - without - {"what", "budget", "neighbours"}
        assert shared <= own.keys()
        assert not without & own.keys()
        assert {name: own[name] for name in shared} == {name: plan[name] for name in shared}


# -- the page -----------------------------------------------------------------------------------------------


def test_the_page_is_short() -> None:
    """Mutants: a name too many; a parameter too many; a loader of one kind."""
    assert len(sf.__all__) <= 73  # share_budget, describe, plan_profile, sql and preview came last
    assert len(set(sf.__all__)) == len(sf.__all__)
    assert not [name for name in sf.__all__ if name.startswith("load_")]
    called = {name: getattr(sf, name) for name in sf.__all__ if callable(getattr(sf, name))}
    # the inverses of `plan` take its options, too, which are counted once
    options = set(inspect.signature(sf.plan).parameters)
    twice = {"budget_for": options, "records_for": options}
    longest = {
        name: len(inspect.signature(f).parameters.keys() - twice.get(name, set()))
        for name, f in called.items()
        if not isinstance(f, type)
    }
    longest |= {name: len(inspect.signature(mechanism_class(name)).parameters) for name in MECHANISMS}
    assert max(longest.values()) <= 16, longest
    assert longest["plan"] == 16  # with once_per and rows_per_group
