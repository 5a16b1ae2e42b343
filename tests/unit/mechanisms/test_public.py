"""Tables known from elsewhere: exact in the reconstruction, never measured, at the same guarantee."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import DomainError, PlanError
from sfumato.strategies.strategy import marginalise

DOMAIN = sf.Domain({"a": 3, "b": 4, "c": 2})
X = np.random.default_rng(5).integers(0, 40, DOMAIN.shape)
PUBLIC = {("a",): X.sum((1, 2)), ("c", "b"): X.sum(0).T}
PREFIXED = sf.stack(p=sf.prefix(DOMAIN, "b", by=["a"]), t=sf.marginals(DOMAIN, order=2))
WORKS = {"tables": sf.marginals(DOMAIN, upto=3), "prefixes": PREFIXED}
RELATIONS = ["add-remove", "replace-one"]


def _plan(work: str, relation: str, objective: str = "cells", **options: object) -> sf.Plan:
    return sf.plan(WORKS[work], sf.gdp(1), neighbours=relation, mechanism="marginals", objective=objective, **options)


@pytest.mark.parametrize("work", list(WORKS))
@pytest.mark.parametrize(("relation", "objective"), list(itertools.product(RELATIONS, ["tables", "cells", "max"])))
def test_public_tables_are_used_and_not_measured(work: str, relation: str, objective: str) -> None:
    """Mutants: a known residual measured anyway; its effect left in the variance; known counts divided by n twice."""
    plan = _plan(work, relation, objective, public=PUBLIC)
    measured = {frozenset(b.set_names(i)) for b in plan.strategy.blocks for i in range(len(b))}
    assert measured.isdisjoint({frozenset(s) for s in [(), "a", "b", "c", "bc"]})
    exact = [marginalise(X, DOMAIN.names, b) for b in plan.strategy.blocks]
    estimate = plan.strategy.estimate(exact, int(X.sum()))
    sizes = [len(v) for v in exact]
    units = [np.split(u, np.cumsum(sizes)[:-1]) for u in np.eye(sum(sizes)) * 1e9]
    zero = plan.strategy.estimate([np.zeros(s) for s in sizes], int(X.sum()))
    for query in plan.workload.blocks:
        truth = marginalise(X, DOMAIN.names, query.block)
        np.testing.assert_allclose(plan.strategy.answer(estimate, query.block), truth, atol=1e-6)
        base = plan.strategy.answer(zero, query.block)
        own = [plan.strategy.answer(plan.strategy.estimate(u, int(X.sum())), query.block) - base for u in units]
        brute = (np.stack(own, axis=1) ** 2).sum(axis=1) / 1e18
        shape = tuple(f.shape[0] for f in query.block.factors)
        second = np.broadcast_to(plan.strategy.row_powers(query.block, 2), shape).reshape(-1)
        np.testing.assert_allclose(second, brute, rtol=1e-6, atol=1e-9 * max(brute.max(), 1e-300) + 1e-30)
    release = sf.release(plan, sf.Histogram(X), ledger=None)
    np.testing.assert_allclose(release.table("a").values, PUBLIC["a",])
    assert release.table("b", "c").standard_errors.max() == 0.0
    if objective != "tables":  # whose mean leaves out what is public
        assert plan.objective_value < _plan(work, relation, objective).objective_value


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_price_is_that_of_what_is_measured(relation: str) -> None:
    plan = _plan("tables", relation, public=PUBLIC)
    units = np.eye(DOMAIN.size, dtype=np.int64).reshape(-1, *DOMAIN.shape)
    columns = np.stack([np.concatenate([marginalise(u, DOMAIN.names, b) for b in plan.strategy.blocks]) for u in units])
    columns = columns.astype(object)
    if relation == "add-remove":
        brute = max((columns**2).sum(axis=1))
    else:
        brute = max(((columns - row) ** 2).sum(axis=1).max() for row in columns)
    assert plan.sensitivity.value == brute
    assert plan.sensitivity.exact


def test_the_bound_counts_what_is_unknown() -> None:
    """Under add-remove the closed form is the optimum, with public tables as without."""
    for objective in ("tables", "cells", "max"):
        plan = _plan("tables", "add-remove", objective, public=PUBLIC)
        assert plan.lower_bound is not None
        assert 0.999 < plan.lower_bound / plan.objective_value <= 1


def test_tables_inside_larger_ones_say_nothing_more() -> None:
    more = PUBLIC | {("b",): X.sum((0, 2)), (): X.sum()}
    assert _plan("tables", "add-remove", public=more).rmse == _plan("tables", "add-remove", public=PUBLIC).rmse


def test_a_plan_with_public_tables_is_stored(tmp_path) -> None:
    plan = _plan("tables", "add-remove", public=PUBLIC)
    plan.save(tmp_path / "plan")
    assert sf.load(tmp_path / "plan").fingerprint == plan.fingerprint
    assert plan.fingerprint != _plan("tables", "add-remove", public={("a",): PUBLIC["a",]}).fingerprint


@pytest.mark.parametrize(
    ("public", "message"),
    [
        ({("a",): [1, 2]}, r"shape \(3,\), not \(2,\)"),
        ({("a",): [1, 2, -1]}, "not negative"),
        ({("a",): [1, 2, float("nan")]}, "finite"),
        ({("a",): [1, 2, 3], ("b",): [1, 2, 3, 4]}, "disagree on the number of records"),
        ({("a",): [1, 2, 3], "a": [1, 2, 3]}, "twice"),
        ({("z",): [1]}, "no attribute is called"),
        ({("a",): [1, 2]}, "shape"),
        ([1], "maps sets of attributes"),
        (dict.fromkeys(itertools.chain.from_iterable(itertools.combinations("abc", r) for r in [3]), X), "public"),
    ],
)
def test_public_tables_that_cannot_be_are_refused(public: object, message: str) -> None:
    with pytest.raises((PlanError, DomainError), match=message):
        _plan("tables", "add-remove", public=public)
