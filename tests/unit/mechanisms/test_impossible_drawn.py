"""Impossible cells over attributes of every kind, with queries of every kind, drawn; and what such draws once found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import PlanError, SfumatoError
from sfumato.strategies.strategy import marginalise

Rng = np.random.Generator
MECHANISMS = ("auto", "auto", "laplace", "gaussian", "marginals", "tree", "factorization")


def attribute(rng: Rng, number: int) -> Any:
    """One of some kind, with another cell for what is not declared."""
    other: Any = {"outside": "other", "missing": "other"}
    places = {"06": ["1", "2"], "36": ["3"]}
    return (
        sf.Integers(0, int(rng.integers(1, 5)), **other),
        sf.Integers(0, 11, width=4, outside="clamp", missing="other"),
        sf.Bins([0, 1.5, 4, 9.25], outside="clamp", missing="other"),
        sf.Categories(["x", "y", "z"], **other),
        sf.Booleans(**other),
        sf.Hierarchy(places, [f"state{number}", f"county{number}"], **other),
    )[int(rng.integers(6))]


def predicate(rng: Rng, attributes: dict[str, Any]) -> str:
    """A conjunction of up to three tests, or such a one or another test."""

    def one() -> str:
        name = str(rng.choice(list(attributes)))
        of, number = attributes[name], int(rng.integers(10))
        choices = [f"{name} == '(other)'", f"not ({name} == '(other)')"]
        if isinstance(of, sf.Booleans):
            choices += [name, f"not {name}", f"{name} == true"]
        elif isinstance(of, sf.Hierarchy):
            state, county = of.groupings[0].name, f"county{of.groupings[0].name[5:]}"
            choices += [f"{state} == '06'", f"{state} != '36'", f"{county} == '2'", f"{name} in ('1', '3')"]
        elif isinstance(of, sf.Categories):
            choices += [f"{name} != 'y'", f"{name} in ('x', 'y')", f"{name} not in ('x')"]
        elif isinstance(of, sf.Bins):
            choices += [f"{name} >= 1.5", f"1.5 <= {name} < 9.25"]
        else:
            choices += [f"{name} >= {number}", f"{name} < {number}", f"{name} == {number}"]
        return str(rng.choice(choices))

    text = " and ".join(one() for _ in range(int(rng.integers(1, 4))))
    return f"({text}) or {one()}" if rng.random() < 0.2 else text


def drawn(rng: Rng) -> sf.Domain:
    while True:
        attributes = {n: attribute(rng, i) for i, n in enumerate("abcd"[: int(rng.integers(1, 5))])}
        texts = {predicate(rng, attributes) for _ in range(int(rng.integers(1, 5)))}
        try:
            found = sf.Domain(attributes, sorted(texts))
        except ValueError:
            continue
        if found.size <= 200:
            return found


def asked(domain: sf.Domain, rng: Rng) -> sf.Workload:
    """One or two parts; a predicate that is asked may hold for no cell."""
    names = domain.names

    def one() -> sf.Workload:
        name = str(rng.choice(names))
        by = [n for n in names if n != name and rng.random() < 0.3]
        kind = int(rng.integers(6))
        if kind < 2:
            return (sf.prefix, sf.ranges)[kind](domain, name, by=by)
        if kind == 2:
            return sf.marginals(domain, sets=[(name, *by)])
        if kind == 3:
            return sf.marginals(domain, upto=min(2, len(names)))
        return sf.identity(domain) if kind == 4 else sf.predicates(domain, [predicate(rng, dict(domain.attributes))])

    while True:
        try:
            return one() if rng.random() < 0.5 else sf.stack(first=one(), second=one())
        except SfumatoError:
            continue


def counting_nobody(work: sf.Workload) -> np.ndarray[Any, Any]:
    """Which queries count impossible cells alone."""
    found: list[np.ndarray[Any, Any]] = []
    for query in work.blocks:
        mask, cells = work.domain.possible(query.attributes), query.block.operator.shape[1]
        rows = np.asarray(query.block.operator.matvec(np.eye(cells)))
        found.append(~(rows[:, np.ones(cells, dtype=bool) if mask is None else mask.reshape(-1)] != 0).any(axis=1))
    return np.concatenate(found)


@pytest.mark.parametrize("seed", range(40))
def test_any_plan_over_any_domain(seed: int, tmp_path: Path) -> None:
    """Priced at no less than brute force over possible cells, exactly 0 where nobody can be, never worse than without
    the predicates, the same once loaded, and whole numbers keep the zeros.

    Mutants: covariances of attributes that are not measured; a union of nothing; zeros left out of answers.
    """
    rng = np.random.default_rng([seed, 96])
    domain, before = drawn(rng), rng.bit_generator.state
    work = asked(domain, rng)
    rng.bit_generator.state = before
    free = asked(sf.Domain(domain.attributes), rng)
    mechanism, relation = str(rng.choice(MECHANISMS)), str(rng.choice(["add-remove", "replace-one"]))
    budget = sf.pure(1) if mechanism == "laplace" else sf.gdp(1)
    try:
        plan, plain = (sf.plan(w, budget, neighbours=relation, mechanism=mechanism) for w in (work, free))
    except PlanError:
        # not a tree; nothing to measure
        assert mechanism != "auto"
        return
    errors, dead = plan.standard_errors(), counting_nobody(work)
    assert not errors[dead].any()
    assert (errors <= plain.standard_errors() * (1 + 1e-9) + 1e-9).all()
    units = np.eye(domain.size, dtype=np.int64).reshape(-1, *domain.shape)
    moved = np.stack([np.concatenate([marginalise(u, domain.names, b) for b in plan.strategy.blocks]) for u in units])
    possible = domain.possible(domain.names)
    moved = moved if possible is None else moved[possible.reshape(-1)]
    away = moved[None] if relation == "add-remove" else moved[:, None] - moved[None]
    power = plan.sensitivity.power
    assert int((np.abs(away).astype(object) ** power).sum(axis=-1).max()) <= plan.sensitivity.value
    found = sf.release(plan, sf.Histogram(rng.integers(0, 6, domain.shape)), ledger=None)
    assert not found.answers[dead].any()
    found.save(tmp_path / "first")
    np.testing.assert_array_equal(sf.load(tmp_path / "first").answers, found.answers)
    assert not found.project(integer=True).answers[dead].any()


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian", "factorization"])
def test_attributes_that_are_not_measured(mechanism: str) -> None:
    """Cells of `c` were asked for covariances all the same. Mutant: covariances of tables that are not answered."""
    domain = sf.Domain({"a": 3, "b": 4, "c": 2}, ["a == 2 and b == 1"])
    budget = sf.pure(1) if mechanism == "laplace" else sf.gdp(1)
    plan = sf.plan(sf.identity(domain, "a", "b"), budget, neighbours="add-remove", mechanism=mechanism)
    assert np.flatnonzero(plan.standard_errors() == 0).tolist() == [9]


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize(
    "texts", [["a == 0 and a == 1"], ["a == 0 and a == 1", "b == 0 and b == 1"], ["a == 0 and a == 1", "b == 1"]]
)
def test_predicates_that_hold_for_no_cell_are_planned(relation: str, texts: list[str]) -> None:
    """Their answer is 0 but for 1e-75. Mutants: spectra of no rows; an optimum over no blocks."""
    domain = sf.Domain({"a": 4, "b": 3})
    plan = sf.plan(sf.predicates(domain, texts), sf.gdp(1), neighbours=relation)
    empty = [" and " in t for t in texts]
    assert plan.standard_errors()[empty].max() < 1e-30
    found = sf.release(plan, sf.Histogram(np.full((4, 3), 5)), ledger=None)
    assert np.abs(found.answers[empty]).max() < 1e-30


def test_public_tables_that_contradict_them_together_are_refused() -> None:
    """Each is of possible cells, both are not: 5 records with a = 0 and b = 1. Mutant: every table by itself."""
    domain = sf.Domain({"a": 2, "b": 2, "c": 3}, ["a == 0 and b == 1"])
    work = sf.marginals(domain, order=2)
    with pytest.raises(PlanError, match="no records in cells that the domain declares possible have the public tables"):
        sf.plan(work, sf.gdp(1), neighbours="add-remove", public={"a": [5, 0], "b": [0, 5]})
    with pytest.raises(PlanError, match="of a; b together"):
        sf.plan(work, sf.gdp(1), neighbours="add-remove", public={("c", "a"): [[1, 0], [2, 0], [2, 1]], "b": [0, 6]})
    for b in ([5, 4], [9, 0]):
        assert sf.plan(work, sf.gdp(1), neighbours="add-remove", public={"a": [5, 4], "b": b}).standard_errors().any()
    # tenths do not add up exactly in doubles
    tenths = {"a": [0.1 + 0.2, 0.4], "b": [0.3, 0.1 + 0.3]}
    assert sf.plan(work, sf.gdp(1), neighbours="add-remove", public=tenths).standard_errors().any()
