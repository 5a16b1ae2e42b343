"""Before and after a projection, by what was asked: who is counted where, and when it is said loudly."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.operators.base import FloatArray
from sfumato.releases.tables import ProjectionChange, moved_facts, projection_changes

HOUR = sf.Integers(0, 23, levels={"part": [0, 6, 12, 24]}, outside="clamp", missing="drop")
DOMAIN = sf.Domain({"hour": HOUR, "place": 5, "sex": 2})
WORK = sf.stack(
    tables=sf.marginals(DOMAIN, sets=[(), ("sex",), ("place",), ("place", "sex"), ("part", "sex")]),
    curve=sf.prefix(DOMAIN, "hour", by=["sex"]),
    named=sf.predicates(DOMAIN, ["hour < 4 and sex == 1", "place == 2 and sex == 0", "hour >= 20 and place == 1"]),
)
KINDS = {
    "the total": range(1),
    "tables of one attribute": range(1, 8),
    "tables of 2 attributes": range(8, 24),
    "'curve'": range(24, 72),
    "'named'": range(72, 75),
}


@pytest.fixture(scope="module")
def projected() -> sf.Release:
    plan = sf.plan(WORK, sf.approx(1, "1e-6"), neighbours="add-remove")
    counts = np.random.default_rng(51).multinomial(4000, np.full(240, 1 / 240)).reshape(DOMAIN.shape)
    return sf.release(plan, sf.Histogram(counts), ledger=None).project()


def moved(release: sf.Release, steps: FloatArray) -> Any:
    """What is read of a release, with answers away from the unprojected ones by so many half-widths of 95 %."""
    answers = release.raw.answers + steps * release.plan.half_widths(0.95, release.part)
    read = {"plan": release.plan, "part": release.part, "workload": release.workload, "raw": release.raw}
    return SimpleNamespace(answers=answers, **read)


def test_every_query_is_of_one_kind(projected: sf.Release) -> None:
    """Mutant: the part of a table over levels taken for something else."""
    assert {s.name: s.queries for s in projection_changes(projected)} == {k: len(v) for k, v in KINDS.items()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("side", [-1, 1])
def test_those_count_that_left_their_own_interval(projected: sf.Release, kind: str, side: int) -> None:
    """All answers just inside but two or one of one kind just outside.

    Mutants: 90 or 99 % intervals; a rise alone counted; the counts of one kind in another's row.
    """
    steps = np.full(len(WORK), 0.999)
    out = list(KINDS[kind])[-2:]
    steps[out] = 1.001
    found = {s.name: s.outside for s in projection_changes(moved(projected, side * steps))}
    assert found == {k: len(out) if k == kind else 0 for k in KINDS}


def test_distances_are_in_standard_errors(projected: sf.Release) -> None:
    steps = np.random.default_rng(52).normal(0, 0.3, len(WORK))
    changed = moved(projected, steps)
    away = (changed.answers - projected.raw.answers) / projected.plan.standard_errors()
    for s in projection_changes(changed):
        assert s.moved == pytest.approx(float(np.sqrt(np.mean(away[list(KINDS[s.name])] ** 2))), rel=1e-9)


def test_of_one_part_alone(projected: sf.Release) -> None:
    found = projection_changes(moved(projected["curve"], np.where(np.arange(48) == 30, 2.0, 0.0)))
    assert [(s.name, s.queries, s.outside) for s in found] == [("'curve'", 48, 1)]


@pytest.mark.parametrize(
    ("queries", "outside", "many"),
    [(1000, 9, False), (1000, 10, True), (100, 1, True), (101, 1, False), (1, 0, False), (3, 1, True)],
)
def test_one_in_a_hundred_is_many(queries: int, outside: int, many: bool) -> None:
    """Mutants: more than one in a hundred; one in a hundred of all answers instead of those of the kind."""
    assert ProjectionChange("x", queries, 0.1, outside).many is many


def test_the_warning_stands_where_many_left(projected: sf.Release) -> None:
    calm = moved_facts(moved(projected, np.full(len(WORK), 0.5))).rows
    assert len(calm) == len(KINDS)
    assert "none left" in calm[0][1]
    assert not any("careful" in name for name, _ in calm)
    loud = moved_facts(moved(projected, np.where(np.arange(len(WORK)) == 74, 1.5, 0.0))).rows
    assert "1 of 3 left their intervals" in loud[-2][1]
    assert loud[-1][0] == "careful"
    assert loud[-1][1].startswith("one answer in a hundred or more left")
