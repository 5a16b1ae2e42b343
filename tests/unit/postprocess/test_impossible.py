"""Projections onto tables in which impossible cells are 0, exactly, and the records made of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import InvalidInput
from sfumato.postprocess.cones import project_onto_simplex
from sfumato.postprocess.oracles import Elimination, Search, SkippingOracle, find_oracle
from sfumato.postprocess.projection import joint_operator
from sfumato.postprocess.records import WorthFactor
from sfumato.postprocess.weights import Hypothesis
from support.impossible import drawn, impossible_mass

BODIES: list[dict[str, Any]] = [
    {},
    {"body": "local"},
    {"body": "local", "space": "answers"},
    {"body": "local", "space": "measurements"},
    {"space": "answers", "body": "hull"},
    {"body": "exact"},
]


def release(seed: int, records: int, total: bool) -> tuple[sf.Domain, Any]:
    """A small table under much noise."""
    domain = drawn(seed)
    rng = np.random.default_rng(seed)
    neighbours = "replace-one" if total else "add-remove"
    plan = sf.plan(sf.marginals(domain, order=2), sf.gdp("0.3"), neighbours=neighbours)
    counts = rng.multinomial(records, rng.dirichlet(np.full(domain.size, 0.2))).reshape(domain.shape)
    return domain, sf.release(plan, sf.Histogram(counts), ledger=None)


@pytest.mark.parametrize("total", [False, True])
@pytest.mark.parametrize("options", BODIES, ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_no_projection_counts_them(seed: int, options: dict[str, Any], total: bool) -> None:
    """By the ladder over one table and over tables that agree, the hull, the cone and weighted records; whole records
    made of them too.

    Mutants: a mask that is left out of a rung's raking, of its start, or of the splitting; an oracle that finds
    impossible records; rounding that moves records there.
    """
    domain, raw = release(seed, 60, total)
    options = options if total or options.get("body") != "hull" else options | {"body": "cone"}
    found = raw.project(**options)
    assert impossible_mass(domain, found) == 0
    assert found.answers.min() >= 0
    possible = domain.possible(domain.names)
    assert possible is not None
    for made in (found.synthetic(), found.synthetic(500)):
        assert possible[tuple(made.codes.T)].all()
    whole = raw.project(**options, integer=True)
    assert impossible_mass(domain, whole) == 0
    assert np.array_equal(whole.answers, np.rint(whole.answers))


@pytest.mark.parametrize("seed", range(5))
def test_the_hull_is_that_of_possible_cells(seed: int) -> None:
    """Against least squares over the possible columns alone, by a solver that shares nothing with ours."""
    from scipy.optimize import nnls

    domain = drawn(seed)
    work = sf.marginals(domain, order=2)
    answers = np.random.default_rng(seed).normal(0, 5, len(work))
    possible = domain.possible(domain.names)
    assert possible is not None
    columns = np.asarray(joint_operator(work).dense(), dtype=float)[:, possible.reshape(-1)]
    cells, far = nnls(columns, answers)
    found = sf.project(answers, work, body="cone")
    np.testing.assert_allclose(found.answers, columns @ cells, atol=2e-2)
    assert found.moved == pytest.approx(far, rel=1e-4)
    exact = sf.project(answers, work, body="exact")
    assert exact.moved == pytest.approx(far, rel=1e-2)


def test_one_table_and_cumulative_counts() -> None:
    """Mutant: the simplex or monotone counts over all cells."""
    domain = sf.Domain({"age": 4}, ["age == 1"])
    found = sf.project([3.0, 2.0, 1.0, 0.5], sf.identity(domain), total=6)
    assert found.body == "simplex"
    np.testing.assert_allclose(found.answers, [3.5, 0, 1.5, 1.0])
    cdf = sf.project([3.0, 5.0, 6.0, 6.5], sf.prefix(domain, "age"))
    np.testing.assert_allclose(cdf.answers, [4.0, 4.0, 6.0, 6.5], atol=1e-6)
    named = sf.project([3.0, 5.0, 6.0, 6.5], sf.prefix(domain, "age"), body="isotonic")
    np.testing.assert_allclose(named.answers, cdf.answers, atol=1e-6)
    possible = np.array([True, False, True])
    np.testing.assert_allclose(project_onto_simplex(np.array([-1.0, 5.0, 2.0]), 3.0, np.ones(3), possible), [0, 0, 3.0])


@pytest.mark.parametrize("body", ["sdp", "sdp+local"])
def test_bodies_that_do_not_know_of_them_refuse(body: str) -> None:
    domain = sf.Domain({"p": 2, "q": 2, "r": 2}, ["p == 0 and q == 0"])
    work = sf.marginals(domain, order=2)
    with pytest.raises(InvalidInput, match="is about moments, which do not know of cells that are declared impossible"):
        sf.project(np.ones(len(work)), work, body=body, total=4)
    assert sf.project(np.ones(len(work)), work, total=4).body == "hull"


@pytest.mark.parametrize("kind", ["listed", "eliminated", "searched"])
def test_oracles_find_possible_records_alone(kind: str) -> None:
    """The best of them, where the oracle is exact, and never more than the bound."""
    domain = drawn(7)
    sizes, moves = domain.shape, domain.moves()
    possible = domain.possible(domain.names)
    assert possible is not None
    rng = np.random.default_rng(7)
    axes = [(0, 1), (1, 2), (2, 3)]
    factors = [WorthFactor(a, rng.normal(size=[sizes[i] for i in a])) for a in axes]
    worth = sum(f.values.reshape([n if i in f.axes else 1 for i, n in enumerate(sizes)]) for f in factors)
    best = float(np.where(possible, worth, -np.inf).max())
    whole = Elimination.plan(sizes, [*axes, *(m.axes for m in moves)])
    inner = {"listed": find_oracle(sizes, axes), "eliminated": whole, "searched": Search(sizes)}[kind]
    assert inner is not None
    oracle = SkippingOracle(inner, sizes, moves)
    found = oracle.search(factors, np.zeros((0, 4), dtype=np.int32))
    assert possible[tuple(found.T)].all()
    at = float(sum(f.at(found[:1])[0] for f in factors))
    assert at == pytest.approx(best)
    assert oracle.bound(factors) >= best - 1e-9


def test_weights_start_and_stay_on_possible_cells() -> None:
    mask = np.array([[True, False], [True, True]])
    model = Hypothesis((2, 2), 6, mask)
    assert model.cells.tolist() == [2, 0, 2, 2]
    model.update(np.array([0.0, 1.0, 0.0, 1.0]), 3.0)
    assert model.cells[1] == 0
    assert model.cells.sum() == pytest.approx(6)


def test_widths_are_those_of_possible_cells() -> None:
    """A smaller body. Mutants: the largest product over all columns; a linear program over all cells."""
    free = sf.Domain({"p": 2, "q": 3, "r": 2})
    knows = sf.Domain(free.attributes, ["p == 0 and q == 0", "r == 1 and q == 2"])
    for body in ("hull", "exact", "local"):
        wide, narrow = (sf.width(sf.marginals(d, order=2), body, draws=20) for d in (free, knows))
        assert narrow.gaussian < wide.gaussian
        point = narrow.farthest(np.ones(narrow.queries))
        assert point is not None
        assert point[0] == pytest.approx(0, abs=1e-9)
    with pytest.raises(InvalidInput, match="declared impossible"):
        sf.width(sf.marginals(sf.Domain({"p": 2, "q": 2}, ["p == 0 and q == 0"]), order=2), "sdp")
