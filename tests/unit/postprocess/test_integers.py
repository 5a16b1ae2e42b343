"""Projections in whole counts, for every body."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

import sfumato as sf
from sfumato.postprocess import integers
from sfumato.postprocess.bodies import project
from sfumato.postprocess.integers import to_integers, whole_counts, workload_answers
from sfumato.postprocess.possible import CellCounts, PairMoments, RecordCounts, TableCounts
from sfumato.postprocess.projection import Projection
from sfumato.postprocess.rounding import round_records, round_to_total

MIXED = sf.Domain({"a": sf.Integers(0, 4), "b": sf.Categories(list("xyz")), "c": sf.Booleans(), "d": sf.Integers(0, 2)})
BINARY = sf.Domain({f"x{i}": sf.Booleans() for i in range(5)})
BODIES = [
    ("hull", CellCounts, MIXED, 2),
    ("exact", RecordCounts, MIXED, 2),
    ("local", TableCounts, MIXED, 2),
    ("local", TableCounts, MIXED, 3),
    ("sdp", PairMoments, BINARY, 2),
    ("sdp+local", PairMoments, BINARY, 2),
]


def noisy(work: sf.Workload, n: int = 150, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(true answers, noisy ones)"""
    rng = np.random.default_rng(seed)
    truth = work.answer(rng.multinomial(n, rng.dirichlet(np.full(work.domain.size, 0.2))))
    return np.asarray(truth, dtype=np.float64), truth + rng.normal(0, 5, len(work))


def up_or_down(whole: np.ndarray, real: np.ndarray) -> bool:
    return bool((whole >= np.floor(real - 1e-6)).all() and (whole <= np.ceil(real + 1e-6)).all())


@pytest.mark.parametrize(("body", "kind", "domain", "order"), BODIES)
def test_every_body_in_whole_counts(body: str, kind: type, domain: sf.Domain, order: int) -> None:
    """Mutants: `rounded` a sum or without its root; `possible` kept; the total not the known one."""
    work = sf.marginals(domain, order=order)
    found = project(noisy(work)[1], work, body=body, total=150)
    assert isinstance(found.possible, kind)
    whole = to_integers(found, work, 150)
    assert isinstance(whole.possible, (CellCounts, RecordCounts))
    assert np.array_equal(whole.answers, np.rint(whole.answers))
    assert whole.answers.min() >= 0
    assert whole.answers.tolist() == workload_answers(whole.possible, work).tolist()
    assert {float(t.sum()) for t in np.split(whole.answers, np.cumsum([q.rows for q in work.blocks])[:-1])} == {150.0}
    assert whole.possible.table(()) == 150
    assert whole.realisable
    assert whole.rounded == pytest.approx(np.sqrt(((whole.answers - found.answers) ** 2).mean()))
    assert (whole.body, whole.gap, whole.moved) == (found.body, found.gap, found.moved)
    assert to_integers(found, work, 157).possible.table(()) == 157


@pytest.mark.parametrize("body", ["hull", "exact"])
def test_a_total_that_is_not_known_is_the_nearest(body: str) -> None:
    work = sf.marginals(MIXED, order=2)
    found = project(noisy(work)[1], work, body=body)
    mass = float(found.possible.table(()))
    assert mass != round(mass)
    assert to_integers(found, work, None).possible.table(()) == round(mass)


@pytest.mark.parametrize("body", ["hull", "local"])
def test_counts_of_one_table_with_its_margins_go_up_or_down(body: str) -> None:
    """Mutant: tables of the local body always fitted by records."""
    work = sf.marginals(MIXED, sets=[("a", "b"), ("a",), ("b",), ()])
    for seed in range(4):
        found = project(noisy(work, seed=seed)[1], work, body=body, total=150)
        whole = to_integers(found, work, 150)
        assert isinstance(whole.possible, CellCounts)
        assert up_or_down(whole.answers, found.answers)
        more = whole_counts(found, work, 403)
        assert up_or_down(workload_answers(more, work), found.answers * 403 / 150)


def test_where_no_rounding_is_found_the_nearest_of_several_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutants: the farthest, or the first, taken; records changed without tables being asked."""
    work = sf.marginals(sf.Domain({f"x{i}": 2 for i in range(8)}), order=2)
    found = project(noisy(work)[1], work, body="hull", total=150)
    monkeypatch.setattr(integers, "controlled_rounding", lambda *_: None)

    def away(cells: np.ndarray) -> float:
        return float(((work.answer(cells.reshape(-1)) - found.answers) ** 2).sum())

    def taken() -> float:
        whole = whole_counts(found, work, 150)
        assert isinstance(whole, CellCounts)
        assert whole.values.sum() == 150
        return away(whole.values)

    assert found.cells is not None
    simple = min(away(f(found.cells.reshape(-1), 150)) for f in (round_to_total, round_records))
    assert taken() < 0.5 * simple
    monkeypatch.setattr(integers, "_improve_cells", lambda _held, _work, counts: np.roll(counts, 1))
    assert taken() == pytest.approx(simple)


def test_queries_that_are_not_tables_are_rounded_too() -> None:
    work = sf.prefix(MIXED, "a", by=["b"]) + sf.predicates(MIXED, ["c and d == 1", "a >= 3 or b == 'y'"])
    for body in ("hull", "exact"):
        found = project(noisy(work)[1], work, body=body, total=150)
        whole = to_integers(found, work, 150)
        assert np.array_equal(whole.answers, np.rint(whole.answers))
        assert whole.possible.table(()) == 150
        assert whole.rounded is not None
        assert whole.rounded < 1.5
    tables = sf.marginals(MIXED, order=2)
    found = project(noisy(tables)[1], tables, body="exact", total=150)
    # records are changed towards the tables, which rounding alone leaves farther off
    assert isinstance(found.possible, RecordCounts)
    simple = replace(found.possible, weights=round_records(found.possible.weights, 150).astype(np.float64))
    away = workload_answers(simple, tables) - found.answers
    whole = to_integers(found, tables, 150)
    assert whole.rounded is not None
    assert whole.rounded < 0.8 * np.sqrt((away**2).mean())


def test_records_are_as_near_as_the_tables_allow() -> None:
    """Tables that some table has are met but for rounding; others as nearly as the hull of all records."""
    for seed, order in itertools.product(range(3), (1, 2, 3)):
        work = sf.marginals(MIXED, order=order)
        truth, answers = noisy(work, 1_000, seed)
        for given in (truth, answers):
            found = project(given, work, body="local", total=1_000)
            nearest = project(found.answers, work, body="hull", total=1_000)
            least = np.sqrt(((nearest.answers - found.answers) ** 2).mean())
            whole = to_integers(found, work, 1_000)
            assert whole.rounded is not None
            assert whole.rounded < 1.1 * least + 1


def test_moments_of_pairs_are_fitted_by_records() -> None:
    """Mutant: cells in the wrong order."""
    work = sf.marginals(BINARY, order=2) + sf.marginals(BINARY, order=1)
    truth = noisy(work, 400)[0]
    found = project(truth, work, body="sdp", total=400)
    whole = to_integers(found, work, 400)
    assert np.abs(whole.answers - truth).mean() < 1


def test_no_records_at_all() -> None:
    for body in ("hull", "exact", "local"):
        work = sf.marginals(MIXED, order=2)
        found: Projection = project(noisy(work)[1], work, body=body, total=150)
        none = whole_counts(found, work, 0)
        assert none.table(()) == 0
        assert not workload_answers(none, work).any()
