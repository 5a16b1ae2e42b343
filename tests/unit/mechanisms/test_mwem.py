"""MWEM: its rule for rounds, what it measures, that it never asks twice, and that it comes near the table."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato._util.codec import decode_value, encode_value
from sfumato.measurements import Measurement, Selection
from sfumato.mechanisms import make_mechanism
from sfumato.planner.planning import compared
from sfumato.plans.iterative import IterativePlan
from sfumato.releases import ModelRelease
from support.words import plan_with

DOMAIN = sf.Domain({"a": sf.Categories(["x", "y"]), "b": sf.Integers(0, 2), "c": sf.Booleans()})
TABLE = np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8])
HUGE = sf.zcdp(10**6)


def planned(
    work: sf.Workload, budget: sf.Budget = HUGE, neighbours: str = "replace-one", **options: Any
) -> IterativePlan:
    options = {"records": 50} | options
    return plan_with(work, budget, neighbours=neighbours, mechanism="mwem", **options)


def released(plan: IterativePlan, counts: np.ndarray = TABLE) -> ModelRelease:
    return sf.release(plan, sf.Histogram(counts), ledger=None)


def chosen(release: ModelRelease) -> list[int]:
    return [m.chosen for m in release.measurement if isinstance(m, Selection)]


# ---- the rounds ------------------------------------------------------------------------------------------


def test_rounds_follow_a_public_rule() -> None:
    """2 sqrt(n sqrt(rho)), whatever the definition; for pure epsilon with rho = epsilon^2 / (8 T)."""
    many = sf.Domain({f"q{i}": sf.Booleans() for i in range(8)})
    work = sf.marginals(many, order=3)
    for n in (300, 1000, 5000):
        wanted = round(2 * math.sqrt(n * math.sqrt(0.0243560)))
        for budget in (sf.zcdp("0.0243560"), sf.gdp("0.220707")):
            assert planned(work, budget, records=n).course.rounds == wanted
            assert planned(work, budget, records=n, strategy="queries").course.rounds == wanted
        rounds = planned(work, sf.pure(1), records=n).course.rounds
        assert rounds == pytest.approx(2 * math.sqrt(n * math.sqrt(1 / (8 * rounds))), abs=1)
    assert planned(work, sf.zcdp("1e-9"), records=1).course.rounds == 1


def test_rounds_end_where_everything_is_measured() -> None:
    work = sf.marginals(DOMAIN, order=2)
    assert planned(work, rounds=1000).course.rounds == 3
    assert planned(work, rounds=1000, strategy="queries").course.rounds == 6 + 4 + 6
    assert planned(work, rounds=2).course.rounds == 2


# ---- what is chosen and measured -------------------------------------------------------------------------


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_no_query_is_chosen_twice(neighbours: str) -> None:
    """Also where the noise of the choice is large. Mutant: queries that may be chosen again."""
    plan = planned(sf.identity(DOMAIN), sf.zcdp("1e-4"), neighbours, rounds=12, strategy="queries")
    assert sorted(chosen(released(plan))) == list(range(12))
    tables = planned(sf.marginals(DOMAIN, upto=3), sf.zcdp("1e-4"), neighbours, rounds=12)
    ends = np.cumsum([q.rows for q in tables.workload.blocks])
    places = np.searchsorted(ends, chosen(released(tables)), side="right")
    assert len(places) == len(set(places.tolist())) == tables.course.rounds


def test_what_is_chosen_errs_most() -> None:
    """Not what is large: the cells of b hold more, but as many as was thought.

    Mutants: scores of answers, not of errors; the least error chosen; an index off by one.
    """
    work = sf.identity(DOMAIN, "b") + sf.identity(DOMAIN, "a", "c")
    counts = np.broadcast_to(np.array([[25, 25], [31, 19]])[:, None], (2, 3, 2)).reshape(-1)
    for _ in range(5):
        first, second = chosen(released(planned(work, rounds=2), counts))
        assert first in (5, 6)
        assert second < 3


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_a_table_is_measured_at_once_and_sums_of_its_cells_are_not(neighbours: str) -> None:
    """A record is in one cell of a table but in many ranges. Mutant: whole blocks, whatever their sensitivity."""
    plan = planned(sf.ranges(DOMAIN, "b") + sf.identity(DOMAIN, "a", "c"), sf.zcdp(1), neighbours, rounds=7)
    release = released(plan)
    looks = [m for m in release.measurement if isinstance(m, Measurement)][1:]
    sizes = [m.blocks[0].rows for m in looks]
    assert sorted(sizes) == [1] * 6 + [4]
    alone = released(planned(plan.workload, sf.zcdp(1), neighbours, rounds=7, strategy="queries"))
    assert [m.blocks[0].rows for m in alone.measurement if isinstance(m, Measurement)] == [1] * 8


def test_the_total_is_public_or_measured_first() -> None:
    work = sf.marginals(DOMAIN, order=1)
    known = released(planned(work, sf.zcdp(1)))
    assert known.measurement[0].total == known.total == 52  # type: ignore[union-attr]
    assert float(known.model.table(()).sum()) == pytest.approx(52)
    noisy = released(planned(work, sf.zcdp(1), "add-remove"))
    first = noisy.measurement[0]
    assert isinstance(first, Measurement)
    assert first.total is None
    assert noisy.total is None
    assert float(noisy.model.table(()).sum()) == pytest.approx(max(1, int(first.values[0][0])))
    person = sf.plan(work, sf.zcdp(1), neighbours="replace-one", person="who", mechanism="mwem", records=50)
    assert not person.course.total_known


def test_weights_turn_the_choice() -> None:
    """A part of great weight is chosen first, though others err more."""
    work = sf.stack(far=sf.identity(DOMAIN, "b"), near=sf.identity(DOMAIN, "c"), weights={"near": 10_000})
    counts = np.zeros((2, 3, 2), dtype=np.int64)
    counts[0, 0] = [400, 600]
    assert chosen(released(planned(work, rounds=1), counts.reshape(-1)))[0] >= 3


# ---- how near it comes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", [None, "queries"])
def test_without_noise_it_finds_the_answers(strategy: str | None) -> None:
    """Whatever the order of attributes. Mutants: axes of a table taken in another order; a step of the wrong sign."""
    work = sf.marginals(DOMAIN, sets=[("c", "a"), ("b", "c")]) + sf.prefix(DOMAIN, "b", by=["a"])
    work += sf.predicates(DOMAIN, ["a == 'x' and b >= 1", "b == 2 and c == 'true'"])
    for neighbours in ("add-remove", "replace-one"):
        for budget in (HUGE, sf.pure(10**6)):
            release = released(planned(work, budget, neighbours, rounds=1000, strategy=strategy))
            assert np.abs(release.answers - work.answer(TABLE)).max() < 0.5


def test_signed_and_large_coefficients() -> None:
    """Mutant: steps for values beyond 1 that overshoot."""
    rows = np.array([[5, 0, -3, 2, 1, 0, 0, 0, 0, 7, 0, -7], [0, -2, 0, 9, 0, 0, 1, 0, 0, 0, 3, 0]])
    work = sf.queries(rows, domain=DOMAIN)
    release = released(planned(work, rounds=5))
    assert np.abs(release.answers - rows @ TABLE).max() < 2


def test_it_meets_its_bar_and_beats_the_uniform_table() -> None:
    """3-way tables of ten correlated yes-no attributes, 300 records, the rho of (1, 1e-6)."""
    domain = sf.Domain({f"a{i}": sf.Booleans() for i in range(10)})
    work = sf.marginals(domain, order=3)
    draws = np.random.default_rng(5)
    pull, edge = draws.normal(0, 0.7, (10, 2)), draws.normal(0, 0.7, 10)
    records = draws.normal(size=(300, 2)) @ pull.T + draws.normal(size=(300, 10)) > edge
    counts = np.bincount(records @ (1 << np.arange(10)[::-1]), minlength=1024)
    exact = work.answer(counts)
    plan = planned(work, sf.zcdp("0.0243560"), records=300)
    errors = [np.sqrt(np.mean((released(plan, counts).answers - exact) ** 2)) / 300 for _ in range(3)]
    assert np.mean(errors) < 0.059
    assert np.sqrt(np.mean((300 / 8 - exact) ** 2)) / 300 > 0.07


# ---- what it says, and refuses ---------------------------------------------------------------------------


def test_a_bound_is_stated_of_what_it_holds_for() -> None:
    work = sf.marginals(DOMAIN, order=2)
    plan = planned(work, sf.zcdp(10**4), records=10**6, rounds=3)
    assert plan.bound is not None
    drift = 10**6 * math.sqrt(math.log(12) / 6)
    assert drift < plan.bound.largest < drift + 100
    assert "no answer of plain MWEM" in plan.explain()
    assert "says nothing here" not in plan.explain()
    assert "says nothing here" in planned(work, sf.zcdp("0.01"), records=30).explain()
    weighted = sf.stack(a=sf.identity(DOMAIN, "b"), b=sf.identity(DOMAIN, "c"), weights={"b": 2})
    for none in (
        planned(work, records=None, rounds=2),
        planned(work, neighbours="add-remove"),
        planned(weighted),
    ):
        assert none.bound is None
        assert "none is known" in none.explain()


@pytest.mark.parametrize("mechanism", ["mwem", "boosting"])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_what_a_file_says_of_the_number_of_records_is_checked_before_the_debit(mechanism: str, neighbours: str) -> None:
    """Mutant: a course believed about whether the total is public; it would spend the price and end in the middle."""
    plan: Any = sf.plan(
        sf.marginals(DOMAIN, order=2), HUGE, neighbours=neighbours, mechanism=make_mechanism(mechanism, rounds=2)
    )
    # looks that cost as much as those of the honest plan, so that the price alone does not tell
    free = type(plan.course.measurement)(0)
    forged = replace(plan.course, total_known=not plan.course.total_known, measurement=free)
    ledger = sf.Ledger.in_memory(HUGE)
    with pytest.raises(sf.errors.PlanError, match="whether the number of records is public"):
        sf.release(replace(plan, course=forged), sf.Histogram(TABLE), ledger=ledger)
    assert ledger.spent == 0


def test_a_bound_is_found_anew_and_never_read(tmp_path: Path) -> None:
    """Mutant: a bound among what is stored."""
    plan = planned(sf.marginals(DOMAIN, order=2), sf.zcdp(10**4), records=10**6, rounds=3)
    plan.save(tmp_path / "plan")
    read = sf.load(tmp_path / "plan")
    assert isinstance(read, IterativePlan)
    assert read.bound == plan.bound is not None
    assert "1,000,000 records" in read.bounded()
    tree, arrays = encode_value(plan)
    assert "bound" not in tree
    with pytest.raises(sf.errors.InvalidInput):
        decode_value(tree | {"bound": None}, arrays)


WORK = sf.marginals(DOMAIN, order=2)
REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "no records": (lambda: planned(WORK, records=None), "records="),
    "no rounds": (lambda: planned(WORK, rounds=0), "rounds must"),
    "many rounds": (lambda: planned(WORK, rounds=1001), "rounds must"),
    "rounds of another kind": (lambda: planned(WORK, rounds=True), "rounds must"),
    "a strategy": (lambda: planned(WORK, strategy=np.eye(12)), "strategy='queries'"),
    "noise": (lambda: planned(WORK, noise="laplace"), "noise="),
    "a lattice": (lambda: planned(WORK, lattice="unit"), "lattice="),
    "an objective": (lambda: planned(WORK, objective="max"), "objective="),
    "a reconstruction": (lambda: planned(WORK, reconstruction=np.eye(12)), "reconstruction="),
    "public tables": (lambda: planned(WORK, public={("a",): [20, 32]}), "public="),
    "fractions": (lambda: planned(sf.queries(np.full((1, 12), 0.5), domain=DOMAIN)), "whole coefficients"),
    "nothing to learn": (lambda: planned(sf.total(DOMAIN)), "depends on any one record"),
    "cells": (
        lambda: planned(sf.marginals(sf.Domain({f"a{i}": sf.Integers(0, 9) for i in range(8)}), order=1)),
        "100,000,000",
    ),
    "rounds elsewhere": (
        lambda: plan_with(WORK, HUGE, neighbours="add-remove", rounds=3),
        "rounds=",
    ),
}


@pytest.mark.parametrize("how", REFUSED)
def test_what_it_cannot_do_is_refused_in_words(how: str) -> None:
    make, words = REFUSED[how]
    with pytest.raises(sf.errors.PlanError, match=words):
        make()


def test_it_is_compared_only_where_it_is_asked_for() -> None:
    assert "mwem" not in set(compared(WORK, HUGE, neighbours="add-remove").candidates["mechanism"])
    assert planned(WORK).candidates["mechanism"] == ["mwem"]
    with pytest.raises(sf.errors.PlanError, match="several looks"):
        sf.budget_for(WORK, margin=5, kind="zcdp", neighbours="add-remove", mechanism="mwem")
    with pytest.raises(sf.errors.PlanError, match="several looks"):
        sf.simulate(planned(WORK), TABLE)  # type: ignore[arg-type]
