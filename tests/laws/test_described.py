"""What a description costs: every look by itself and all together, whatever came of those before; one cell a record."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.cells import Codes, Days, Edges, Grid, Kinds
from sfumato.curator.labels import check_looks, looks_price
from sfumato.curator.rows.sources import open_source
from sfumato.measurements import Measurement
from sfumato.mechanisms import profiles
from sfumato.plans.profiles import ProfilePlan
from sfumato.postprocess.column_shapes import scale_edges, year_edges
from sfumato.privacy.accounting import Account, ApproxGaussianEvent
from sfumato.privacy.sensitivity import Sensitivity, certified_bound, noise_fits_price, sensitivity_power
from sfumato.releases.profiles import ProfileLook

UNITS: list[dict[str, Any]] = [
    {},
    {"neighbours": "replace-one"},
    {"person": "who", "rows_per_person": 3},
    {"person": "who", "rows_per_person": 3, "neighbours": "replace-one"},
]
BUDGETS = [sf.approx(1, "1e-6", thresholds="5e-7"), sf.zcdp("0.1"), sf.pure(1)]
COLUMNS = ("n", "d", "t", "b", "x")


def planned(budget: sf.Budget, unit: dict[str, Any]) -> ProfilePlan:
    frame = pd.DataFrame({name: ["1", "2"] for name in (*COLUMNS, "who")})
    plan = sf.plan_profile(frame, budget, records=10**6, **unit)
    return replace(plan, types=tuple("boolean" if n == "b" else "" for n in plan.names))


def came(look: Any, random: np.random.Generator) -> ProfileLook:
    """Whatever may come of a look: any integers at all."""
    top = 2 ** int(random.integers(1, 40))
    values = tuple(random.integers(-top, top, b.rows) for b in look.blocks)
    return ProfileLook(look.grid, Measurement(look.blocks, values, look.noise))


def costs(look: Any, plan: ProfilePlan) -> bool:
    """Whether a look costs at most its price, by the arithmetic of the wall."""
    power = sensitivity_power(look.noise)
    maps = [b.lowered() for b in look.blocks]
    found = certified_bound(maps, look.grid.sizes(), plan.unit, power, look.certificate)
    return noise_fits_price(Sensitivity(power, found, exact=False), look.noise, look.price)


@pytest.mark.parametrize("unit", range(len(UNITS)))
@pytest.mark.parametrize("budget", range(len(BUDGETS)))
def test_looks_add_up_to_the_price_whatever_came_of_those_before(budget: int, unit: int) -> None:
    """Mutants: shares of the columns there are, not of all; labels at the whole delta each; a third look over what the
    second left."""
    plan = planned(BUDGETS[budget], UNITS[unit])
    assert plan.honest
    course = profiles._Course(plan)
    for seed in range(1 if plan.unit.neighbours.value == "replace-one" else 4):
        random = np.random.default_rng(seed)
        account = Account(plan.price)
        first_look = profiles._kinds_look(plan)
        assert costs(first_look, plan)
        account.spend(first_look.price)
        first = came(first_look, random)
        second_look, second = course.second(first), None
        if second_look is not None:
            assert costs(second_look, plan)
            account.spend(second_look.price)
            second = came(second_look, random)
        looks, labels = course.looks_for_labels(first), {}
        if looks:
            assert isinstance(plan.price, ApproxGaussianEvent)
            check_looks(looks, plan.unit)
            account.spend(looks_price(looks))
            labels = {k.attribute: ("a", "b", "é") for k in looks}
        third_look = course.third(first, second, labels)
        if third_look is not None:
            assert costs(third_look, plan)
            account.spend(third_look.price)
        # nothing is left where all of it was of use
        if seed == 0 and second_look is not None and third_look is not None and (looks or not course.labels):
            assert account.remaining < account.spent / 100


@pytest.mark.parametrize("unit", range(len(UNITS)))
def test_kinds_alone_cost_all_of_the_price_and_no_more(unit: int) -> None:
    plan = replace(planned(sf.gdp(1), UNITS[unit]), whole=False)
    look = profiles._kinds_look(plan)
    assert look.price == plan.price
    assert costs(look, plan)
    # less noise, and it would not be paid for. Mutant: kinds counted as three
    less = replace(look, noise=type(look.noise)(look.noise.sigma * Fraction(99, 100)))  # type: ignore[call-arg, union-attr]
    assert not costs(less, plan)
    assert look.variance("n") == pytest.approx(
        len(plan.names) / float(plan.price.mu_squared) * profiles_change(plan) ** 2, rel=1e-6
    )


def profiles_change(plan: ProfilePlan) -> float:
    """By how much a person moves one column, in Euclidean norm."""
    replaced = plan.unit.neighbours.value == "replace-one"
    return plan.unit.rows_per_person * (2**0.5 if replaced else 1)


ODD = [
    "",
    "1",
    "-7.5",
    "1e300",
    "-1e-300",
    "inf",
    "nan",
    "NULL",
    "2024-01-31",
    "0001-01-01",
    "9999-12-31",
    "a",
    "é",
    " ",
]


@pytest.mark.parametrize(
    "rule",
    [
        Kinds(kind="any", outside="other", missing="other"),
        Edges(kind="number", outside="clamp", missing="other", edges=scale_edges()),
        Edges(kind="number", outside="clamp", missing="other", edges=(-1.0, 0.0, 0.5, 3.0)),
        Days(kind="date", outside="clamp", missing="other", edges=year_edges()),
        Codes(kind="category", outside="other", missing="other", codes=("a", "1")),
    ],
    ids=lambda rule: f"{type(rule).__name__}-{rule.size}",
)
def test_a_record_is_in_one_cell_of_every_column(rule: Any) -> None:
    """By brute force: one record more changes one cell of each column, by one. Mutants: a rule that drops records, or
    of which a record has two cells; an edge that is in both cells around it."""
    grid = Grid(("x", "y"), (rule, rule))

    def counts(rows: list[str]) -> np.ndarray:
        frame = pd.DataFrame({"x": rows, "y": rows[::-1]}, dtype=object)
        found = open_source(frame, grid).count([("x",), ("y",)])
        return np.stack([found[("x",)], found[("y",)]])

    base = counts(ODD)
    for value in [
        *ODD,
        *(repr(e) for e in getattr(rule, "edges", ())[:: max(1, len(getattr(rule, "edges", ())) // 9)]),
    ]:
        change = counts([*ODD, value]) - base
        assert (np.abs(change).sum(axis=1) == 1).all()
        assert (change.sum(axis=1) == 1).all()


def test_what_is_looked_at_next_follows_from_noisy_counts_alone() -> None:
    """A course holds its plan and nothing else, and the same counts lead to the same cells."""
    assert list(profiles._Course.__dataclass_fields__) == ["plan"]
    plan = planned(BUDGETS[0], {})
    course = profiles._Course(plan)
    first = came(profiles._kinds_look(plan), np.random.default_rng(3))
    twice = [course.second(first) for _ in range(2)]
    assert twice[0] is not None
    assert twice[0].blocks == twice[1].blocks  # type: ignore[union-attr]
