"""Sums of measures under Laplace noise: tables of cells, which cost a record once each."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.check_release import Check
from sfumato.privacy.measures import WHOLE_BITS
from sfumato.strategies.moment_parts import MomentTables

GROUP = sf.Categories(["a", "b", "c"], outside="other", missing="other")
DOMAIN = sf.Domain(
    {"g": GROUP, "h": sf.Integers(0, 1, outside="clamp", missing="other")},
    measures={"pay": sf.Measure(0, 100, outside="clamp", missing="absent")},
)
WORKS = {
    "means": sf.means(DOMAIN, "pay", by=["g"]),
    "moments": sf.moments(DOMAIN, "pay", by=["g"]),
    "two sets": sf.stack(a=sf.means(DOMAIN, "pay", by=["g"]), b=sf.sums(DOMAIN, "pay", by=["h"])),
    "nested": sf.stack(
        a=sf.means(DOMAIN, "pay", by=["g", "h"]), b=sf.means(DOMAIN, "pay"), c=sf.marginals(DOMAIN, upto=1)
    ),
}


def planned(name: str, **options: object) -> sf.Plan:
    plan = sf.plan(WORKS[name], sf.pure(1), neighbours="add-remove", **options)  # type: ignore[call-overload]
    assert isinstance(plan.strategy, MomentTables)
    return plan


def drawn(rng: np.random.Generator, size: int) -> pd.DataFrame:
    return pd.DataFrame(
        {"g": rng.choice(list("abc"), size), "h": rng.integers(0, 2, size), "pay": rng.gamma(2, 15, size)}
    )


def rebuilt(plan: sf.Plan) -> np.ndarray:
    """R, (queries, values): the answers to one value at a time."""
    strategy = plan.strategy
    shapes = [b.rows for b in strategy.blocks]
    columns: list[np.ndarray] = []
    for i, length in enumerate(shapes):
        for j in range(length):
            values = [np.zeros(n) for n in shapes]
            values[i][j] = 1.0
            found = strategy.estimate(values, None)
            columns.append(np.concatenate([strategy.answer(found, q.block) for q in plan.workload.blocks]))
    return np.array(columns).T


@pytest.mark.parametrize("name", WORKS)
def test_errors_and_covariances_are_those_of_what_answers(name: str) -> None:
    """Mutants: cells beside a query's attributes not summed, or their noise not counted; a query's axes left in the
    order of the table; covariances of queries that share a table left out."""
    plan = planned(name)
    back = rebuilt(plan)
    blocks = [q.block for q in plan.workload.blocks]
    for power in (2, 4):
        powers = [np.broadcast_to(plan.strategy.row_powers(b, power), [f.shape[0] for f in b.factors]) for b in blocks]
        np.testing.assert_allclose(np.concatenate([p.ravel() for p in powers]), (back**power).sum(axis=1), rtol=1e-9)
    found = np.block([[plan.strategy.covariance(one, other) for other in blocks] for one in blocks])
    np.testing.assert_allclose(found, back @ back.T, rtol=1e-9, atol=1e-12 * np.abs(found).max())


@pytest.mark.parametrize("name", WORKS)
def test_no_record_costs_more_than_is_paid(name: str) -> None:
    """Mutants: a table left out of the price; the price at the ends of the range alone."""
    plan = planned(name)
    # two neighbours: of a record of any number, or none, in any cell; the entries of its columns, in whole numbers
    t = np.linspace(0, 1, 201)
    shares = np.vstack([np.stack([(1 - t) ** 2, 2 * t * (1 - t), t**2, 0 * t], axis=1), [[0, 0, 0, 1]]])
    costs = np.zeros(len(shares))
    for part in plan.strategy.parts:  # type: ignore[attr-defined]
        costs += np.abs(shares @ part.matrix.T).sum(axis=1) * 2.0**WHOLE_BITS
    assert costs.max() <= plan.sensitivity.value
    assert costs.max() >= plan.sensitivity.value * 0.99


def test_means_under_pure_epsilon_err_as_the_ends_of_the_range_do() -> None:
    """A record is 1 - t and t of two counts: a sum errs as the root of (2 + 2) / 4 of the range, a count as that of 4.

    Mutant: residuals alone, whose count and sum cost a record twice in every set (5.5).
    """
    plan = planned("means")
    assert plan.objective_value == pytest.approx(2.0, rel=1e-3)
    assert planned("moments").objective_value <= 2.32


def test_released_stored_checked_and_read_back(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    table = pd.DataFrame(
        {"g": rng.choice(list("abc"), 900), "h": rng.integers(0, 2, 900), "pay": rng.gamma(2, 15, 900)}
    )
    ledger = sf.Ledger.create(tmp_path / "l.db", total=sf.pure(2))
    found = sf.release(planned("nested"), table, ledger=ledger, name="one", out=tmp_path / "one")
    again = sf.load(tmp_path / "one")
    np.testing.assert_array_equal(again.answers, found.answers)
    judged = Check(tmp_path / "one", tmp_path / "l.db")
    assert judged.wrong == []
    assert judged.verdict == "accepted", judged.unknown
    with pytest.raises(sf.NotAnswerable, match="were not measured"):
        found.variance("pay", by="h")


@pytest.mark.parametrize(("name", "size"), [*itertools.product(["means", "two sets"], [40, 2_000])])
def test_errors_are_as_predicted(name: str, size: int) -> None:
    """Squared errors over predicted variances, 60 releases: within four standard errors of 1."""
    plan = planned(name)
    rng = np.random.default_rng(size)
    table = pd.DataFrame(
        {"g": rng.choice(list("abc"), size), "h": rng.integers(0, 2, size), "pay": rng.random(size) * 100}
    )
    whole = sf.plan(WORKS[name], sf.pure(10**6), neighbours="add-remove")
    truth = sf.release(whole, table, ledger=None).answers
    off = np.array([sf.release(plan, table, ledger=None).answers - truth for _ in range(60)]) / plan.standard_errors()
    each = (off**2).mean(axis=1)
    assert abs(each.mean() - 1) <= 4 * each.std() / np.sqrt(len(each))
