"""Nothing asked is dropped: an option has effect, or is refused where it applies to nothing."""

from __future__ import annotations

import typing
from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import InvalidInput, PlanError, SfumatoError
from sfumato.mechanisms import MECHANISMS
from sfumato.mechanisms.sketches import choose_sketch
from sfumato.planner.planning import Name, Objective, compared, make_request
from sfumato.strategies.design import OBJECTIVES
from support.words import open_with, plan_with

APPROX, PURE = sf.approx(1, "1e-6"), sf.pure(1)
LINE = sf.Domain({"a": sf.Integers(0, 7), "b": 2})
WORK = sf.prefix(LINE, "a", by=["b"])
PAIRS = sf.marginals(sf.Domain({"a": 4, "b": 3}), order=1)
KEYS = sf.Keys("k")


def _plan(work: sf.Workload = WORK, budget: sf.Budget = APPROX, **options: Any) -> Any:
    return plan_with(work, budget, **({"neighbours": "add-remove"} | options))


def _session(domain: Any = LINE, **options: Any) -> Any:
    source = sf.KeyCounts([1, 2, 2]) if domain is KEYS else sf.Histogram(np.ones((8, 2), dtype=int))
    return open_with(source, domain, PURE, **({"neighbours": "add-remove", "ledger": None} | options))


def _sum_of(work: sf.Workload) -> dict[str, Any]:
    return {"answers": np.ones(len(work)), "work": work}


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    # sf.plan
    **{
        f"strategy under {m}": (lambda m=m: _plan(mechanism=m, strategy="cells", records=9), "would be dropped")
        for m in ("tree", "factorization", "marginals", "approximate", "adaptive")
    },
    "strategy and public": (
        lambda: _plan(strategy=np.eye(16), public={("b",): [3, 4]}),
        "leave out strategy= or public=",
    ),
    "named strategy and public": (lambda: _plan(strategy="cells", public={("b",): [3, 4]}), "leave out strategy="),
    "reconstruction alone": (lambda: _plan(mechanism="projection", reconstruction=np.eye(16)), "needs strategy="),
    "laplace of gaussian noise": (lambda: _plan(mechanism="laplace", noise="gaussian"), "leave one of them out"),
    "gaussian of laplace noise": (lambda: _plan(mechanism="gaussian", noise="laplace"), "leave one of them out"),
    "max under projection": (lambda: _plan(mechanism="projection", objective="max"), "an average error"),
    "max under adaptive": (
        lambda: _plan(sf.marginals(LINE, order=2), mechanism="adaptive", objective="max", records=9),
        "leave objective= out",
    ),
    "max under approximate": (
        lambda: _plan(mechanism="approximate", objective="max", records=9),
        "objective='tables' or 'cells'",
    ),
    "shares on the unit lattice": (
        lambda: _plan(sf.marginals(LINE, order=2), mechanism="adaptive", records=9, lattice="unit"),
        "round away",
    ),
    "real numbers on the unit lattice": (
        lambda: _plan(strategy=np.eye(16) * 0.37, lattice="unit"),
        "need the fine lattice",
    ),
    "compare under mwem": (
        lambda: compared(WORK, APPROX, neighbours="add-remove", mechanism="mwem", records=9),
        "plans of one look are compared",
    ),
    "compare under boosting": (
        lambda: compared(WORK, APPROX, neighbours="add-remove", mechanism="boosting"),
        "plans of one look are compared",
    ),
    "noise under mwem": (lambda: _plan(mechanism="mwem", records=9, noise="gaussian"), "noise= belongs to"),
    "rounds under tree": (lambda: _plan(mechanism="tree", rounds=3), "rounds= belongs to mwem, boosting"),
    "rounds under a strategy": (lambda: _plan(strategy="cells", rounds=3), "rounds= belongs to mwem, boosting"),
    # the inverse
    "delta of pure": (
        lambda: sf.budget_for(WORK, margin=9, kind="pure", delta="1e-6", neighbours="add-remove"),
        "belongs to kind='approx'",
    ),
    "rmse of projection": (
        lambda: sf.budget_for(
            WORK, margin=9, kind="zcdp", neighbours="add-remove", mechanism="projection", target="rmse"
        ),
        "sf.records_for",
    ),
    # sf.factorization, sf.project
    "a norm of nothing": (lambda: sf.factorization(np.eye(3), approximate_norm="entry"), "belongs to approximate="),
    "weights that do not weigh": (
        lambda: sf.project(**_sum_of(PAIRS), covariance=np.ones(7), space="answers"),
        "leave one of them out",
    ),
    "measurements without any": (lambda: sf.project(**_sum_of(PAIRS), space="measurements"), "give covariance="),
    # sessions
    "size over a domain": (lambda: _session(size=3, records=16), "size= belongs to sparse-mw"),
    **{
        f"{name} of a histogram": (lambda name=name, v=v: _session(mechanism="histogram", **{name: v}), name)
        for name, v in [("updates", 3), ("threshold", 3), ("alpha", 0.1), ("size", 3), ("questions", 9), ("span", 2)]
    },
    **{
        f"{name} of a histogram over keys": (
            lambda name=name, v=v: _session(KEYS, mechanism="histogram", **{name: v}),
            name,
        )
        for name, v in [("questions", 9), ("span", 2), ("records", 9), ("beta", 0.1), ("size", 3), ("alpha", 0.1)]
    },
    "span over keys": (
        lambda: _session(KEYS, mechanism="sparse-mw", size=2, records=3, span=2),
        "span= belongs to pmw",
    ),
    "size of a domain's plan": (
        lambda: plan_with(LINE, PURE, neighbours="add-remove", records=9, mechanism="pmw", size=3),
        "size= belongs to sparse-mw",
    ),
    "updates of a key histogram's plan": (
        lambda: plan_with(KEYS, PURE, neighbours="add-remove", mechanism="histogram", updates=3),
        "updates= belongs to pmw, sparse-mw",
    ),
    "beta of a key histogram's plan": (
        lambda: plan_with(KEYS, PURE, neighbours="add-remove", mechanism="histogram", beta=0.1),
        "beta= belongs to pmw, sparse-mw",
    ),
    # keys
    "records of a histogram of keys": (
        lambda: sf.plan(KEYS.queries([[1, 2]]), PURE, neighbours="add-remove", mechanism="histogram", records=10),
        "does not depend on it",
    ),
    **{
        f"{name} of {m}": (
            lambda name=name, v=v, m=m: plan_with(
                KEYS, APPROX, neighbours="add-remove", mechanism=m, queries=[[1, 2]], **{name: v}
            ),
            f"{name}= belongs to",
        )
        for name, v, m in [
            ("width", 2**10, "sparse-project"),
            ("width", 2**10, "histogram"),
            ("dimension", 100, "count-sketch"),
            ("dimension", 100, "hybrid"),
            ("independence", 6, "histogram"),
            ("share", "0.5", "count-sketch"),
        ]
    },
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_do_nothing_is_refused(case: str) -> None:
    """Each names where it applies. Mutant: the option dropped, as any of these was."""
    run, message = REFUSED[case]
    with pytest.raises((PlanError, InvalidInput), match=message):
        run()


def test_noise_and_projection_go_with_a_strategy() -> None:
    made = _plan(budget=APPROX, mechanism="laplace", strategy="tree")
    assert type(made.noise).__name__ == "DiscreteLaplace"
    assert "trees" in made.strategy.summary
    assert _plan(mechanism="gaussian", strategy="tree").strategy.summary == made.strategy.summary


def test_compare_lists_all_beside_a_given_strategy() -> None:
    """Mutant: compare= dropped where a strategy is given."""
    alone, beside = _plan(strategy="tree"), compared(WORK, APPROX, neighbours="add-remove", strategy="tree")
    assert len(alone.candidates["mechanism"]) == 0
    assert {"factorization", "tree"} <= set(beside.candidates["mechanism"])
    assert "chosen" in beside.candidates["note"]
    assert beside.fingerprint == alone.fingerprint


@pytest.mark.parametrize("mechanism", ["auto", "tree", "factorization"])
def test_records_say_what_errors_are_of_them(mechanism: str) -> None:
    """Where nothing depends on them, the plan still says the share."""
    made = _plan(mechanism=mechanism, records=1_000)
    assert f"{made.max_standard_error / 1000:.3g} of 1,000 records" in str(made)
    assert made.fingerprint == _plan(mechanism=mechanism).fingerprint


MAXIMA = {
    "ranges": sf.ranges(sf.Domain({"a": 12}), "a"),
    "prefix": sf.prefix(sf.Domain({"a": 16}), "a"),
    "disjunctions": sf.disjunctions(4),
    "stack": sf.stack(sf.prefix(LINE, "a"), sf.identity(LINE, "b"), sf.identity(LINE, "a", "b")),
}


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("work", MAXIMA)
@pytest.mark.parametrize("mechanism", ["auto", "laplace", "tree", "factorization"])
def test_the_largest_error_is_minimised_under_pure_budgets_too(work: str, mechanism: str, neighbours: str) -> None:
    """Never larger than with the objective of the mean. Mutant: the mean's strategy, whatever is asked."""
    options = {"budget": PURE, "neighbours": neighbours, "mechanism": mechanism}
    try:
        mean, most = (_plan(MAXIMA[work], objective=o, **options) for o in ("cells", "max"))
    except SfumatoError:
        assert mechanism == "tree", "a tree serves ordered attributes alone"
        return
    assert most.max_standard_error <= mean.max_standard_error * (1 + 1e-6)
    if neighbours == "add-remove" and mechanism in ("auto", "factorization") and work != "stack":
        assert most.max_standard_error < 0.98 * mean.max_standard_error


def test_direct_noise_is_shared_by_the_largest_error() -> None:
    """Blocks that are asked 24 and 1 times: equal errors for the largest, not for the mean."""
    work = sf.stack(sf.identity(LINE, "a", "b"), sf.total(LINE))
    mean, most = (_plan(work, mechanism="gaussian", strategy="queries", objective=o) for o in ("cells", "max"))
    assert np.ptp(most.standard_errors()) < 1e-3 * most.max_standard_error
    assert most.max_standard_error < 0.95 * mean.max_standard_error


def test_key_options_leave_those_alone_that_they_belong_to() -> None:
    """Mutant: auto takes a histogram, and the width is gone."""
    asked = make_request(KEYS.queries([[1, 2]]), APPROX, neighbours="add-remove", records=100)
    assert choose_sketch(asked).mechanism == "histogram"
    made = choose_sketch(asked, width=2**11)
    assert made.mechanism in ("hybrid", "count-sketch")
    assert made.map.rows == 2**11
    signs = choose_sketch(replace(asked, records=None), dimension=77)
    assert (signs.mechanism, signs.map.rows) == ("sparse-project", 77)


def test_type_checkers_know_every_mechanism_and_objective() -> None:
    """Mutant: a mechanism that the type does not have."""
    assert get_args(Name) == tuple(MECHANISMS)
    assert get_args(Objective) == OBJECTIVES
    assert typing.get_overloads(sf.Release.ask)[1].__annotations__["return"] == "Frame"
