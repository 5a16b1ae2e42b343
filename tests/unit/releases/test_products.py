"""Conditions with `or` over several attributes, asked of strategies that answer products alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import NotAnswerable
from sfumato.operators import Block, Dense
from sfumato.releases.linear import _row_products, split_into_products
from sfumato.workloads import QueryBlock

SIZES = {"age": 6, "sex": 2, "region": 3}
DOMAIN = sf.Domain(
    {"age": sf.Integers(0, 5), "sex": sf.Categories(["f", "m"]), "region": sf.Categories(["n", "s", "w"])}
)
COUNTS = np.random.default_rng(0).integers(0, 200, (6, 2, 3))
AGE, SEX, REGION = np.meshgrid(np.arange(6), np.arange(2), np.arange(3), indexing="ij")
CONDITIONS = {
    "age >= 2 or sex == 'f'": (AGE >= 2) | (SEX == 0),
    "sex == 'f' or region == 'n'": (SEX == 0) | (REGION == 0),
    "(age >= 4 and sex == 'f') or (age < 1 and sex == 'm')": ((AGE >= 4) & (SEX == 0)) | ((AGE < 1) & (SEX == 1)),
}


def released(budget: Any, order: int = 2, public: bool = False) -> sf.Release:
    work = sf.stack(tables=sf.marginals(DOMAIN, upto=order), cdf=sf.prefix(DOMAIN, "age", by=["sex"]))
    plan = sf.plan(work, budget, neighbours="replace-one" if public else "add-remove")
    return sf.release(plan, sf.Histogram(COUNTS), ledger=None)


@pytest.mark.parametrize("seed", range(20))
def test_products_add_up_to_the_table(seed: int) -> None:
    """And exclude each other. Mutants: a slice that is zero; an attribute that does not vary, taken at its first cell
    twice; the slice of another attribute."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 5, size=int(rng.integers(1, 4))).tolist()
    names = [f"a{i}" for i in range(len(sizes))]
    table = (rng.random(sizes) < rng.random()).astype(float)
    if seed % 3 == 0 and len(sizes) > 1:
        table = np.broadcast_to(table.take([0], axis=0), sizes).copy()
    parts = [
        np.array(
            np.broadcast_to(
                np.einsum("i,j,k->ijk", *(p.get(n, np.ones(1)) for n in (*names, "", "")[:3])).reshape(
                    [len(p[n]) if n in p else 1 for n in names]
                ),
                sizes,
            )
        )
        for p in _row_products(names, table)
    ]
    assert np.array_equal(sum(parts, np.zeros(sizes)), table)
    assert all(np.isin(p, (0, 1)).all() for p in parts)


@pytest.mark.parametrize("budget", [sf.gdp(1), sf.pure(1)])
@pytest.mark.parametrize("condition", list(CONDITIONS))
def test_or_is_answered_with_its_error(budget: Any, condition: str) -> None:
    """The error is that of the cells of the table it lies in, added up: a linear query of the same unbiased answers."""
    found = released(budget)
    names = [a for a in SIZES if a in condition]
    axes = tuple(i for i, a in enumerate(SIZES) if a not in names)
    mask = CONDITIONS[condition].max(axis=axes).reshape(-1).astype(float)
    answer = found.ask(condition)
    assert answer.value == pytest.approx(mask @ found.table(*names).values.reshape(-1))
    covariance = found.covariance(tuple(names))
    assert answer.standard_error == pytest.approx(np.sqrt(mask @ covariance @ mask))
    assert answer.low < answer.value < answer.high
    rows = found.ask(sf.predicates(DOMAIN, [condition, "age >= 3"]))
    numbers = [rows[n][0] for n in ("answer", "standard_error", "low", "high")]
    assert numbers == pytest.approx([answer.value, answer.standard_error, answer.low, answer.high])
    assert rows["answer"][1] == pytest.approx(found.ask("age >= 3").value)


def test_it_holds_as_often_as_it_says() -> None:
    """100 draws. Mutant: the variances of the products added without their covariances."""
    truth = int(COUNTS[CONDITIONS["age >= 2 or sex == 'f'"]].sum())
    plan = released(sf.gdp(1)).plan
    answers = [sf.release(plan, sf.Histogram(COUNTS), ledger=None).ask("age >= 2 or sex == 'f'") for _ in range(100)]
    assert np.std([a.value for a in answers]) == pytest.approx(answers[0].standard_error, rel=0.3)
    assert abs(np.mean([a.low <= truth <= a.high for a in answers]) - 0.95) < 0.09


def test_means_of_records_of_such_a_condition() -> None:
    found = released(sf.gdp(1))
    mask = CONDITIONS["age >= 2 or sex == 'f'"]
    mean = found.mean("age", where="age >= 2 or sex == 'f'")
    assert mean.low < (COUNTS * AGE)[mask].sum() / COUNTS[mask].sum() < mean.high or mean.standard_error < 0.2
    assert mean.value == pytest.approx((COUNTS * AGE)[mask].sum() / COUNTS[mask].sum(), abs=6 * mean.standard_error)


def test_a_projected_release_answers_from_its_table() -> None:
    found = released(sf.gdp(1)).project()
    answer = found.ask("age >= 2 or sex == 'f'")
    assert answer.standard_error is None
    mask = CONDITIONS["age >= 2 or sex == 'f'"].max(axis=2)
    assert answer.value == pytest.approx(found.table("age", "sex").values[mask].sum())


def test_what_is_missing_is_said() -> None:
    """Of three attributes of which pairs alone were measured."""
    with pytest.raises(NotAnswerable, match="age"):
        released(sf.gdp(1)).ask("age >= 2 or sex == 'f' or region == 'n'")


def test_too_many_products_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sfumato.releases.linear._MOST", 1)
    with pytest.raises(NotAnswerable, match="ask for such, joined by 'and'"):
        released(sf.gdp(1)).ask("age >= 2 or sex == 'f'")


def test_blocks_of_several_joint_groups_are_left_alone() -> None:
    two = Block((("age", "sex"), ("region",)), (Dense(np.eye(2, 12)), Dense(np.eye(1, 3))))
    assert split_into_products(released(sf.gdp(1)), two) is None


def test_several_rows_are_answered_as_each_by_itself() -> None:
    """Queries over joined attributes, and within the cells of another. Mutants: the block refused as a whole; rows in
    another order than the block's."""
    wide = sf.Domain({**DOMAIN.attributes, "more": sf.Categories(["x", "y"])})
    asked_for = sf.stack(tables=sf.marginals(wide, upto=3), cdf=sf.prefix(wide, "age", by=["sex"]))
    plan = sf.plan(asked_for, sf.gdp(1), neighbours="add-remove")
    found = sf.release(plan, sf.Histogram(np.stack([COUNTS, COUNTS], axis=-1)), ledger=None)
    masks = [CONDITIONS[c].max(axis=2) for c in list(CONDITIONS)[::2]]
    rows = Dense(np.stack([m.reshape(-1) for m in masks]).astype(float))
    texts = list(CONDITIONS)[::2]
    for block, asked in (
        (Block((("age", "sex"),), (rows,)), texts),
        (
            Block((("age", "sex"), ("region",)), (rows, Dense(np.eye(3)))),
            [f"({t}) and region == '{r}'" for t in texts for r in "nsw"],
        ),
    ):
        with pytest.raises(NotAnswerable):
            plan.strategy.check(block)
        work = sf.Workload(wide, (QueryBlock("more", block),))
        told = found.ask(work)
        each = [found.ask(text) for text in asked]
        assert told["answer"] == pytest.approx([e.value for e in each])
        assert told["standard_error"] == pytest.approx([e.standard_error for e in each])
        assert told["low"] == pytest.approx([e.low for e in each])
