"""Plans that know of impossible cells: least squares under zeros, predicted before data, and who refuses them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import PlanError
from sfumato.postprocess.projection import joint_operator
from sfumato.strategies.impossible_cells import Allowed
from sfumato.strategies.residuals import Residuals
from sfumato.strategies.strategy import marginalise
from support.impossible import drawn

PEOPLE = {
    "age": sf.Integers(0, 49, width=10),
    "marital": sf.Categories(["never", "married", "widowed"]),
    "role": sf.Categories(["husband", "wife", "child"]),
    "sex": sf.Categories(["f", "m"]),
}
TOLD = [
    "role == 'husband' and sex == 'f'",
    "role == 'wife' and sex == 'm'",
    "role != 'child' and marital != 'married'",
    "age < 10 and marital != 'never'",
]


def people(impossible: list[str] | None = None) -> sf.Domain:
    return sf.Domain(PEOPLE, TOLD if impossible is None else impossible)


def works(domain: sf.Domain) -> list[sf.Workload]:
    one, *_, last = domain.names
    return [
        sf.marginals(domain, order=2),
        sf.marginals(domain, upto=3),
        sf.stack(tables=sf.marginals(domain, sets=[domain.names[:3]]), cdf=sf.prefix(domain, one, by=[last])),
        sf.predicates(domain, [f"{domain.names[0]} >= {20 if domain.names[0] == 'age' else 2}"])
        + sf.marginals(domain, order=2),
    ]


def measured(plan: sf.Plan) -> np.ndarray[Any, Any]:
    """B over all cells of the domain, (values, cells)."""
    domain = plan.workload.domain
    units = np.eye(domain.size, dtype=np.int64)
    columns = [
        np.concatenate([marginalise(u.reshape(domain.shape), domain.names, b) for b in plan.strategy.blocks])
        for u in units
    ]
    return np.stack(columns, axis=1).astype(float)


def rows_of(plan: sf.Plan, blocks: Any) -> np.ndarray[Any, Any]:
    """R of the strategy itself, column by column: answers to measured values of which one is 1."""
    strategy = plan.strategy
    sizes = [b.rows for b in strategy.blocks]
    ends = np.cumsum(sizes)[:-1]
    columns: list[np.ndarray[Any, Any]] = []
    zero = strategy.estimate(np.split(np.zeros(sum(sizes), dtype=np.int64), ends), None)
    start = np.concatenate([strategy.answer(zero, b) for b in blocks])
    for unit in np.eye(sum(sizes), dtype=np.int64):
        found = strategy.estimate(np.split(unit, ends), None)
        columns.append(np.concatenate([strategy.answer(found, b) for b in blocks]) - start)
    return np.stack(columns, axis=1)


@pytest.mark.parametrize("number", range(4))
def test_errors_are_those_of_least_squares_over_possible_cells(number: int) -> None:
    """Against the dense least squares with the impossible columns left out; and R itself, built column by column.

    Mutants: zeros taken one by one; covariances of the tables left as they were; a variance without its zeros.
    """
    domain = people() if number % 2 else drawn(number)
    work = works(domain)[number]
    plan = sf.plan(work, sf.gdp(1), neighbours="add-remove", mechanism="marginals" if number < 2 else "auto")
    assert isinstance(plan.strategy, Allowed)
    assert plan.bound is None
    possible = domain.possible(domain.names)
    assert possible is not None
    kept = np.flatnonzero(possible)
    queries = np.concatenate([marginalise_all(domain, q.block) for q in work.blocks])[:, kept]
    back = rows_of(plan, [q.block for q in work.blocks])
    spread = back @ back.T * plan.noise.variance
    scale = float(np.sqrt(np.diag(spread)).max())
    np.testing.assert_allclose(plan.standard_errors(), np.sqrt(np.diag(spread)), rtol=1e-6, atol=1e-7 * scale)
    np.testing.assert_allclose(plan.covariance(work), spread, rtol=1e-6, atol=1e-7 * scale**2)
    whole = measured(plan)[:, kept]
    # unbiased for every table of possible records
    np.testing.assert_allclose(back @ whole, queries, atol=1e-7)
    best = queries @ np.linalg.pinv(whole, rcond=1e-12)
    errors = np.sqrt((best**2).sum(axis=1) * plan.noise.variance)
    if isinstance(plan.strategy.measured, Residuals):
        np.testing.assert_allclose(plan.standard_errors(), errors, rtol=1e-6, atol=1e-7 * scale)
    assert (plan.standard_errors() >= errors - 1e-7 * scale).all()


@pytest.mark.parametrize("seed", range(3))
def test_laplace_noise_too(seed: int) -> None:
    """What is sure whatever the fourth powers are: intervals hold, and no error is larger than without the zeros."""
    domain = drawn(seed)
    knows, free = (
        sf.plan(sf.marginals(d, order=2), sf.pure(1), neighbours="add-remove")
        for d in (domain, sf.Domain(domain.attributes))
    )
    assert (knows.standard_errors() <= free.standard_errors() * (1 + 1e-9)).all()
    found = sf.simulate(knows, np.full(domain.shape, 5), repetitions=200, rng=seed)
    assert found.coverage > 0.94


def marginalise_all(domain: sf.Domain, block: Any) -> np.ndarray[Any, Any]:
    units = np.eye(domain.size).reshape(-1, *domain.shape)
    return np.stack([marginalise(u, domain.names, block) for u in units], axis=1)


@pytest.mark.parametrize("order", [2, 3])
def test_what_is_known_to_be_zero_lowers_every_error(order: int) -> None:
    """At the same price; impossible answers are 0 with no error, and no other is worse."""
    knows, free = (
        sf.plan(sf.marginals(people(texts), order=order), sf.gdp(1), neighbours="add-remove") for texts in (None, [])
    )
    assert knows.price == free.price
    assert knows.sensitivity == free.sensitivity
    assert (knows.standard_errors() <= free.standard_errors() * (1 + 1e-9)).all()
    dead = np.concatenate(
        [
            ~m.reshape(-1) if (m := people().possible(b.attributes)) is not None else np.zeros(b.rows, dtype=bool)
            for b in knows.workload.blocks
        ]
    )
    assert dead.any()
    assert not knows.standard_errors()[dead].any()
    alive = np.sqrt(np.mean(knows.standard_errors()[~dead] ** 2) / np.mean(free.standard_errors()[~dead] ** 2))
    assert alive < 0.98
    assert "impossible cells are known to be 0: errors are" in str(knows)


def test_what_is_predicted_is_observed() -> None:
    """300 simulated releases of a table with impossible records, which are counted where they are said to be."""
    domain = people()
    plan = sf.plan(sf.marginals(domain, order=2), sf.gdp(1), neighbours="add-remove")
    counts = np.random.default_rng(1).integers(0, 20, domain.shape)
    found = sf.simulate(plan, counts, repetitions=300, rng=2)
    predicted, seen = plan.standard_errors(), found.per_query_rmse
    assert not seen[predicted == 0].any()
    ratio = seen[predicted > 0] / predicted[predicted > 0]
    assert abs(ratio.mean() - 1) < 0.02
    assert np.abs(ratio - 1).max() < 5 / np.sqrt(600)
    assert 0.94 < found.coverage < 0.97


def test_too_many_zeros_are_left_to_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Impossible answers are 0 still; others as without them."""
    monkeypatch.setattr("sfumato.strategies.impossible_cells._MOST_ZEROS", 0)
    knows, free = (
        sf.plan(sf.marginals(people(texts), order=2), sf.gdp(1), neighbours="add-remove") for texts in (None, [])
    )
    release = sf.release(knows, sf.Histogram(np.full(knows.workload.domain.shape, 3)), ledger=None)
    dead = knows.standard_errors() == 0
    assert not release.answers[dead].any()
    np.testing.assert_allclose(knows.standard_errors()[~dead], free.standard_errors()[~dead], rtol=1e-12)


def test_only_the_attributes_of_predicates_where_all_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the two: never worse than without, never better than with all."""
    domain = sf.Domain({**PEOPLE, "pay": 6}, TOLD)
    work = sf.marginals(domain, order=3)
    full = sf.plan(work, sf.gdp(1), neighbours="add-remove").standard_errors()
    # along "pay" too: 12,410 covariances
    monkeypatch.setattr("sfumato.strategies.impossible_cells._MOST_ENTRIES", 12_000)
    plan = sf.plan(work, sf.gdp(1), neighbours="add-remove")
    assert isinstance(plan.strategy, Allowed)
    assert {a for b in plan.strategy.zeros for a in b.attributes} == set(PEOPLE)
    some = plan.standard_errors()
    free = sf.plan(sf.marginals(sf.Domain({**PEOPLE, "pay": 6}), order=3), sf.gdp(1), neighbours="add-remove")
    assert (full <= some * (1 + 1e-9)).all()
    assert (some <= free.standard_errors() * (1 + 1e-9)).all()
    assert some.mean() < 0.99 * free.standard_errors().mean()


def test_public_tables_may_not_contradict_them() -> None:
    counts = np.ones((3, 2))
    with pytest.raises(PlanError, match="counts 1 where role = husband, sex = f, and the domain declares that imposs"):
        sf.plan(sf.marginals(people(), order=2), sf.gdp(1), neighbours="add-remove", public={("role", "sex"): counts})
    counts[0, 0] = counts[1, 1] = 0
    plan = sf.plan(
        sf.marginals(people(), order=2), sf.gdp(1), neighbours="add-remove", public={("role", "sex"): counts}
    )
    assert not plan.standard_errors()[plan.workload.part_rows if False else slice(0, 0)].any()


@pytest.mark.parametrize("mechanism", ["approximate"])
def test_mechanisms_that_do_not_know_of_them_refuse(mechanism: str) -> None:
    with pytest.raises(PlanError, match="does not know of cells that are declared impossible"):
        sf.plan(sf.marginals(people(), order=2), sf.gdp(1), neighbours="add-remove", mechanism=mechanism, records=1000)


@pytest.mark.parametrize("mechanism", ["mwem", "boosting"])
def test_models_hold_no_impossible_record(mechanism: str) -> None:
    """Mutants: a uniform start over all cells; a prior; what is spread along attributes that were not measured."""
    domain = people()
    possible = domain.possible(domain.names)
    assert possible is not None
    options: dict[str, Any] = {"records": 3000} if mechanism == "mwem" else {}
    plan = sf.plan(sf.marginals(domain, order=2), sf.gdp(1), neighbours="replace-one", mechanism=mechanism, **options)
    release = sf.release(plan, sf.Histogram(np.full(domain.shape, 30)), ledger=None)
    assert abs(release.model.table(domain.names)[~possible].sum()) < 1e-9
    codes = release.synthetic().codes
    assert possible[tuple(codes.T)].all()


def test_sessions_believe_in_no_impossible_record() -> None:
    domain = people()
    plan = sf.plan(domain, sf.gdp(1), neighbours="replace-one", records=5000)
    with sf.open(plan, sf.Histogram(np.full(domain.shape, 50)), ledger=None) as session:
        assert session.ask("role == 'husband' and sex == 'f'").value == 0


def test_the_local_model_moves_records_on_the_device() -> None:
    """Mutants: a report of the record as it is; answers about impossible cells left to noise."""
    domain = sf.Domain({"role": PEOPLE["role"], "sex": PEOPLE["sex"]}, TOLD[:2])
    plan = sf.plan(sf.marginals(domain, order=2), sf.pure(8), trust="local", records=400)
    reports = [plan.respond({"role": "husband", "sex": "f"}) for _ in range(400)]
    release = plan.collect(reports)
    table = release.answers.reshape(3, 2)
    assert table[0, 0] == table[1, 1] == 0
    assert release.standard_errors().reshape(3, 2)[0, 0] == 0
    assert table[0, 1] > 300
    assert release.project().answers.reshape(3, 2)[0, 0] == 0


def test_a_stream_knows_of_them() -> None:
    domain = people()
    work = sf.marginals(domain, order=2)
    plan, free = (
        sf.plan(sf.marginals(people(t), order=2), sf.gdp(1), neighbours="add-remove", periods=4) for t in (None, [])
    )
    assert plan.rmse < 0.98 * free.rmse
    assert plan.price == free.price
    stream = sf.open(plan, ledger=None)
    stream.append(sf.Histogram(np.full(domain.shape, 9)), "one")
    release = stream.totals
    dead = [~m.reshape(-1) if (m := domain.possible(b.attributes)) is not None else None for b in work.blocks]
    at = 0
    for mask, block in zip(dead, work.blocks, strict=True):
        if mask is not None:
            assert not release.answers[at : at + block.rows][mask].any()
        at += block.rows


def test_the_projection_mechanism_predicts_over_possible_cells() -> None:
    """Fewer cells are a smaller body. Mutant: the widths of all cells."""
    knows, free = (
        sf.plan(
            sf.marginals(people(t), upto=2),
            sf.gdp("0.01"),
            neighbours="replace-one",
            mechanism="projection",
            records=500,
        )
        for t in (None, [])
    )
    assert knows.mean_error < free.mean_error
    assert joint_operator(knows.workload).shape[1] == people().size
    value = sf.mechanisms.projection(body="sdp")
    two = sf.Domain({"p": 2, "q": 2, "r": 2}, ["p == 0 and q == 0"])
    with pytest.raises(PlanError, match="does not know of cells that are declared impossible"):
        sf.plan(sf.marginals(two, order=2), sf.gdp(1), neighbours="replace-one", mechanism=value)
