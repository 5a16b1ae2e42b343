"""Audits from outside of persons with several rows: rows once per group, and features of a person.

A table of many persons is many copies of one small mechanism: in one world nobody has a row, in the other each has
many, in cells of its own. What is counted, truncated and measured is what `sf.release` does with rows. The bounds and
how seldom they are wrong are those of `test_audit.py`. Of small laws and maps all outcomes are gone through instead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import norm

import sfumato as sf
from sfumato.curator.rows import loading
from sfumato.operators import Block, Dense
from sfumato.privacy.budget import Budget
from sfumato.privacy.noise import DiscreteGaussian, DiscreteLaplace, NoiseLaw, RoundedGaussian
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.strategies.certificates import exact_sensitivity
from support.audits import Worlds, audit, gaussian, pure
from support.grouped import changes_of_persons

COPIES, WARDS = 100_000, 4
WHO: dict[str, Any] = {"neighbours": "add-remove", "person": "who"}
WARD = sf.Integers(0, WARDS - 1, outside="clamp", missing="drop")
COPY = sf.Integers(0, COPIES - 1, outside="clamp", missing="drop")


def visits(times: int) -> pd.DataFrame:
    """So many rows of each person in each ward."""
    who = np.repeat(np.arange(COPIES), WARDS * times)
    return pd.DataFrame({"who": who, "copy": who, "ward": np.tile(np.arange(WARDS), COPIES * times)})


def rows_once_per_ward(budget: sf.Budget, mechanism: str) -> Worlds:
    """What is measured of nobody, and of persons with three rows in each of four wards: one of each is counted."""
    domain = sf.Domain({"copy": COPY, "ward": WARD})
    plan = sf.plan(sf.identity(domain), budget, mechanism=mechanism, rows_per_person=WARDS, once_per=["ward"], **WHO)  # type: ignore[call-overload]
    tables = (visits(1).iloc[:0], visits(3))
    zero, one = (sf.release(plan, t, ledger=None).measurement.values[0].reshape(COPIES, WARDS) for t in tables)
    return zero / plan_scale(plan), one / plan_scale(plan)


def plan_scale(plan: sf.Plan) -> float:
    """By what counts are multiplied where they are measured."""
    (block,) = plan.strategy.blocks
    return float(block.operator.max_abs)


def features_of_persons(budget: sf.Budget, mechanism: str) -> Worlds:
    """What is measured of nobody, and of persons whose ten visits make one row."""
    frame = visits(1)
    people = sf.per_person(
        None,
        key="who",
        visits=sf.rows(frame, numbers={"copy": (0, COPIES, 1), "ward": (0, WARDS, 1)}),
        columns={"copy": "min(visits.copy)", "ward": "count(visits)"},
    )
    none = sf.per_person(
        None,
        key="who",
        visits=sf.rows(frame.iloc[:0], numbers={"copy": (0, COPIES, 1), "ward": (0, WARDS, 1)}),
        columns={"copy": "min(visits.copy)", "ward": "count(visits)"},
    )
    domain = sf.Domain({"copy": COPY, "ward": WARD})
    plan = sf.plan(sf.identity(domain), budget, mechanism=mechanism, **WHO)  # type: ignore[call-overload]
    zero, one = (sf.release(plan, t, ledger=None).measurement.values[0].reshape(COPIES, WARDS) for t in (none, people))
    return zero / plan_scale(plan), one / plan_scale(plan)


def total(y: NDArray[Any]) -> NDArray[Any]:
    return y.sum(axis=1)


def last(y: NDArray[Any]) -> NDArray[Any]:
    return y[:, -1]


def near_one(y: NDArray[Any]) -> NDArray[Any]:
    """By how much nearer values are to 1 than to 0: what Laplace noise betrays."""
    return (np.abs(y) - np.abs(y - 1)).sum(axis=1)


BUDGETS = [("gdp", sf.gdp, gaussian, "gaussian"), ("pure", sf.pure, pure, "laplace")]


@pytest.mark.parametrize(("_", "budget", "loss", "mechanism"), BUDGETS, ids=["gdp", "pure"])
@pytest.mark.parametrize("made", [rows_once_per_ward, features_of_persons])
def test_a_person_with_many_rows_is_hidden_and_no_better(
    made: Any, _: str, budget: Any, loss: Any, mechanism: str
) -> None:
    """Mutants: a person priced as one row; a tenth more than the budget."""
    features = (total, last, near_one)
    least = 0.85 if mechanism == "gaussian" else 0.4
    assert least < audit(made(budget(1), mechanism), loss, features) <= 1
    if mechanism == "gaussian":
        assert audit(made(budget("1.15"), mechanism), loss, features) > 1


def test_rows_that_are_not_cut_are_betrayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the audit could fail: with three rows in each ward counted, as if nothing were cut."""

    class Uncut(loading.Truncation):
        def __init__(self, rows: int, groups: Sequence[int], each: int) -> None:
            super().__init__(10**6, (), 1)

    monkeypatch.setattr(loading, "Truncation", Uncut)
    assert audit(rows_once_per_ward(sf.gdp(1), "gaussian"), gaussian, (total,)) > 1.5


# ---- small laws exactly --------------------------------------------------------------------------------------

REACH = 60


def probabilities(law: NoiseLaw) -> NDArray[np.float64]:
    """Of the whole numbers from -REACH to REACH; what is beyond is less than a double tells."""
    weights = np.array([float(law.weight(k).mid()) for k in range(-REACH, REACH + 1)])
    return weights / weights.sum()


def moved(p: NDArray[np.float64], by: Sequence[int]) -> NDArray[np.float64]:
    """The joint law of as many values, each moved."""
    parts = [np.concatenate([np.zeros(max(0, b)), p, np.zeros(max(0, -b))]) for b in by]
    cut = [q[: len(p)] if b >= 0 else q[-len(p) :] for q, b in zip(parts, by, strict=True)]
    return np.multiply.outer(cut[0], cut[1])


def exceeded(law: NoiseLaw, changes: NDArray[Any], epsilon: float) -> float:
    """The largest delta of all changes at an epsilon, both ways, outcome by outcome."""
    p, worst = probabilities(law), 0.0
    base = moved(p, [0, 0])
    for change in np.unique(changes.astype(int), axis=0).tolist():
        other = moved(p, change)
        for one, two in ((base, other), (other, base)):
            worst = max(worst, float(np.maximum(one - math.exp(epsilon) * two, 0).sum()))
    return worst


MAPS = {"prefix": [[1, 1, 1], [1, 1, 0]], "contrast": [[1, 1, 1], [2, -1, -1]], "cells": [[1, 0, 0], [0, 1, 0]]}


@pytest.mark.parametrize("rows", [[*m] for m in MAPS.values()], ids=[*MAPS])
@pytest.mark.parametrize("kind", [DiscreteGaussian, RoundedGaussian, DiscreteLaplace])
def test_all_outcomes_of_small_laws_keep_their_promise(kind: Any, rows: list[list[int]]) -> None:
    """At delta .05, of every body of rows that there is. Mutants: the price of one row; the root of two for two."""
    blocks, sizes = [Block((("ward",),), (Dense(np.array(rows)),))], {"ward": 3}
    changes = changes_of_persons(blocks, sizes, ("ward",), 2, 1)
    unit = PrivacyUnit(Neighbours.ADD_REMOVE, "who", 2, once_per=("ward",))
    power = 1 if kind is DiscreteLaplace else 2
    value = exact_sensitivity(blocks, sizes, unit, power).value
    law = kind(4)
    if power == 1:
        assert exceeded(law, changes, value / 4) < 1e-6  # what is cut beyond REACH
        # a price of one row would not do
        one = exact_sensitivity(blocks, sizes, PrivacyUnit(Neighbours.ADD_REMOVE), power).value
        assert exceeded(law, changes, one / 4) > 1e-3
        return

    def epsilon(squared: int) -> float:
        mu = math.sqrt(squared) / 4
        if kind is DiscreteGaussian:
            return float(Budget.zcdp(mu**2 / 2).epsilon("0.05"))
        return float(
            brentq(lambda e: norm.cdf(mu / 2 - e / mu) - math.exp(e) * norm.cdf(-mu / 2 - e / mu) - 0.05, 0, 9)
        )

    assert exceeded(law, changes, epsilon(value)) <= 0.05
    if kind is RoundedGaussian:
        one = exact_sensitivity(blocks, sizes, PrivacyUnit(Neighbours.ADD_REMOVE), power).value
        assert exceeded(law, changes, epsilon(one)) > 0.05
