"""Weighted records against the listed hull; oracles against every record."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.errors import InvalidInput, NotAnswerable
from sfumato.operators import Identity, Prefix
from sfumato.postprocess.bodies import project
from sfumato.postprocess.oracles import Elimination, Enumeration, Search, find_oracle, starting_records
from sfumato.postprocess.possible import CellCounts, PairMoments, RecordCounts, TableCounts
from sfumato.postprocess.records import WorthFactor, fit_records

cases = st.integers(0, 10**9).map(np.random.default_rng)


def instance(rng: np.random.Generator) -> tuple[list[int], list[WorthFactor]]:
    sizes = rng.integers(1, 4, size=int(rng.integers(2, 5))).tolist()
    factors = []
    for _ in range(int(rng.integers(1, 6))):
        axes = tuple(rng.permutation(len(sizes))[: int(rng.integers(0, 4))].tolist())
        factors.append(WorthFactor(axes, rng.normal(size=[sizes[i] for i in axes])))
    return sizes, factors


@settings(max_examples=100, deadline=None)
@given(rng=cases)
def test_oracles_against_every_record(rng: np.random.Generator) -> None:
    sizes, factors = instance(rng)
    every = np.array(list(itertools.product(*map(range, sizes))), dtype=np.int32)
    worth = np.sum([np.broadcast_to(f.at(every), len(every)) for f in factors], axis=0)
    exact = [Enumeration(sizes), Elimination.plan(sizes, [f.axes for f in factors])]
    for oracle in exact:
        assert oracle is not None
        assert oracle.exact
        best = oracle.search(factors, every[:0])[:1]
        assert worth[np.flatnonzero((every == best).all(axis=1))[0]] == pytest.approx(worth.max())
        assert oracle.bound(factors) == pytest.approx(worth.max())
    search = Search(sizes, starts=16)
    found = search.search(factors, every[:1])
    at = [np.flatnonzero((every == f).all(axis=1))[0] for f in found]
    assert (np.diff(worth[at]) <= 1e-12).all()
    assert search.bound(factors) >= worth.max() - 1e-9


def test_elimination_knows_when_overlaps_are_too_thick() -> None:
    chain = [(i, i + 1) for i in range(13)]
    assert isinstance(find_oracle([50] * 14, chain), Elimination)
    assert isinstance(find_oracle([50] * 14, list(itertools.combinations(range(14), 2))), Search)
    assert isinstance(find_oracle([2] * 14, chain), Enumeration)


@pytest.mark.parametrize("total", [120, None])
@pytest.mark.parametrize("weighted", [False, True])
def test_records_reach_the_hull(total: int | None, weighted: bool) -> None:
    rng = np.random.default_rng(4)
    domain = sf.Domain({f"x{i}": sf.Integers(0, 2) for i in range(5)})
    work = sf.marginals(domain, order=2) + sf.prefix(domain, "x0", by=["x1"])
    x = rng.multinomial(120, rng.dirichlet(np.ones(3**5) * 0.02))
    answers = work.answer(x) + rng.normal(size=len(work)) * 9
    spread = rng.uniform(1, 90, size=len(work)) if weighted else None
    white = 1 / np.sqrt(np.ones(len(work)) if spread is None else spread)
    listed = project(answers, work, body="hull", covariance=spread, total=total)
    names = domain.names
    blocks = [(tuple(names.index(a) for a in q.attributes), q.block.operator) for q in work.blocks]
    start = starting_records([3] * 5, [None] * 5, 4)
    for oracle in (Enumeration([3] * 5), Search([3] * 5, starts=64)):
        found = fit_records(blocks, [3] * 5, answers, total, oracle, start, white=white, tolerance=1e-10, rounds=200)
        assert np.linalg.norm(white * (found.fitted - listed.answers)) ** 2 <= found.gap + listed.gap + 1e-6
        assert np.linalg.norm(white * (found.fitted - listed.answers)) < 1e-3 * listed.moved
    public = project(answers, work, body="exact", covariance=spread, total=total)
    assert public.certified
    assert public.realisable
    assert public.weights is not None
    assert public.moved == pytest.approx(listed.moved, rel=1e-5)


@settings(max_examples=25, deadline=None)
@given(rng=cases, known=st.booleans(), rounds=st.sampled_from([1, 3]))
def test_gap_of_few_rounds_is_never_too_small(rng: np.random.Generator, known: bool, rounds: int) -> None:
    sizes = [3, 2, 3]
    blocks = [((0, 1), Identity(6)), ((2, 1), Identity(6)), ((0,), Prefix(3))]
    answers = rng.normal(size=15) * 6 + 4
    total = 12.0 if known else None
    domain = sf.Domain({"a": sf.Integers(0, 2), "b": sf.Booleans(), "c": sf.Integers(0, 2)})
    work = sf.marginals(domain, sets=[("a", "b")]) + sf.marginals(domain, sets=[("b", "c")]) + sf.prefix(domain, "a")
    # the second table lies with its axes turned
    turned = np.concatenate([answers[:6], answers[6:12].reshape(3, 2).T.reshape(-1), answers[12:]])
    best = project(turned, work, body="hull", total=total)
    start = starting_records(sizes, [None] * 3, 1)
    found = fit_records(blocks, sizes, answers, total, Search(sizes, starts=2), start, rounds=rounds)
    order = np.concatenate([found.fitted[:6], found.fitted[6:12].reshape(3, 2).T.reshape(-1), found.fitted[12:]])
    assert float(np.sum((order - best.answers) ** 2)) <= found.gap + best.gap + 1e-6


def test_what_is_possible_answers_by_summing() -> None:
    rng = np.random.default_rng(1)
    codes = rng.integers(0, [2, 3, 2], size=(50, 3)).astype(np.int32)
    weights = rng.uniform(size=50)
    held = RecordCounts(("a", "b", "c"), (2, 3, 2), codes, weights)
    cells = CellCounts(("a", "b", "c"), held.table(("a", "b", "c")))
    tables = TableCounts((("a", "b"), ("b", "c")), (held.table(("a", "b")), held.table(("b", "c"))))
    for names in ((), ("b",), ("b", "a"), ("a", "b")):
        for other in (cells, tables):
            assert np.allclose(other.table(names), held.table(names))
    assert np.allclose(cells.table(("c", "a")), held.table(("c", "a")))
    with pytest.raises(NotAnswerable, match="holds no table with a, c"):
        tables.table(("a", "c"))
    signs = np.where(codes == 1, 1.0, -1.0)[:, [0, 2]]
    y = np.column_stack([np.ones(50), signs])
    pairs = PairMoments(("a", "c"), (y.T * weights) @ y)
    for names in ((), ("c",), ("a",), ("c", "a"), ("a", "c")):
        assert np.allclose(pairs.table(names), held.table(names))
    assert math.isclose(float(pairs.table(())), weights.sum())


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"body": "ball"}, "body must be one of"),
        ({"total": -1}, "total is the known number"),
        ({"total": math.nan}, "total is the known number"),
        ({"space": "cells"}, "space must be"),
        ({"space": "measurements"}, "give covariance="),
        ({"body": "simplex"}, "one table"),
        ({"body": "isotonic"}, "sf.prefix"),
        ({"body": "cone", "total": 3}, "any total"),
        ({"covariance": np.ones(2)}, "covariance"),
        ({"covariance": np.arange(1.0, 9), "body": "local"}, "alike within each table"),
        ({"total": "20"}, "total is the known number"),
        ({"answers": ["a"] * 8}, "real numbers"),
        ({"answers": np.ones(8) * 1j}, "real numbers"),
        ({"answers": np.ones(3)}, "queries"),
        ({"answers": np.full(8, np.inf)}, "finite"),
    ],
)
def test_bad_input_is_refused(change: dict[str, object], text: str) -> None:
    domain = sf.Domain({"a": sf.Booleans(), "b": sf.Booleans(), "c": sf.Booleans()})
    work = sf.marginals(domain, sets=[("a", "b"), ("b", "c")])
    given: dict[str, object] = {"answers": np.ones(8), "body": "hull", **change}
    with pytest.raises(InvalidInput, match=text):
        project(given.pop("answers"), work, **given)


def test_a_diagonal_matrix_is_variances() -> None:
    domain = sf.Domain({"a": sf.Booleans(), "b": sf.Booleans(), "c": sf.Booleans()})
    work, spread = sf.marginals(domain, sets=[("a", "b"), ("b", "c")]), np.repeat([2.0, 3.0], 4)
    answers = np.arange(8.0)
    for body in ("local", "exact", "hull"):
        one = project(answers, work, body=body, covariance=spread, total=20)
        two = project(answers, work, body=body, covariance=np.diag(spread), total=20)
        assert np.allclose(one.answers, two.answers)
