"""How a budget is split between parts: the closed forms against shares drawn at random, and roots that add up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.strategies.budget_split import least_deviations, relative_scales, root_error
from sfumato.strategies.design import Problem
from sfumato.workloads import Workload

POSITIVE = st.floats(0.05, 20)
PARTS = st.lists(st.tuples(POSITIVE, POSITIVE), min_size=1, max_size=6)


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("power", [1, 2])
@settings(max_examples=60, deadline=None)
@given(parts=PARTS, seed=st.integers(0, 2**32 - 1))
def test_no_other_split_errs_less_and_roots_add_up(
    parts: list[tuple[float, float]], seed: int, power: int, largest: bool
) -> None:
    """Mutants: the power of the other noise; prices left out; the largest error split as a sum; a root of another
    power; scales that are deviations."""
    errors, prices = np.array(parts).T
    deviations = least_deviations(errors, prices, power, largest=largest)
    assert (prices / deviations**power).sum() == pytest.approx(1.0)
    judge = np.max if largest else np.sum
    least = float(judge(errors * deviations**2))
    shares = np.random.default_rng(seed).dirichlet(np.ones(len(parts)), size=50)
    others = judge(errors * (prices / np.maximum(shares, 1e-300)) ** (2 / power), axis=1)
    assert least <= others.min() * (1 + 1e-9)
    # the best share of a part is its root
    roots = root_error(errors, prices, power, largest=largest)
    assert roots / roots.sum() == pytest.approx(prices / deviations**power)
    assert roots.sum() ** (2 / power if largest else (2 + power) / power) == pytest.approx(least)
    scales = relative_scales(errors, prices, power, largest=largest)
    assert scales * deviations == pytest.approx(np.full(len(parts), float((scales * deviations)[0])))
    assert scales.min() == 1.0


def test_what_is_public_gets_no_share() -> None:
    """Mutants: a division by zero; a scale of its own for what has no error; noise on what costs nothing."""
    assert relative_scales(np.array([0.0, 0.0]), np.array([1.0, 2.0]), 2).tolist() == [1.0, 1.0]
    assert relative_scales(np.array([16.0, 0.0, 1.0]), np.ones(3), 2).tolist() == [2.0, 1.0, 1.0]
    assert least_deviations(np.array([4.0, 1.0]), np.array([0.0, 1.0]), 2).tolist() == [0.0, 1.0]


def test_tables_of_a_part_weigh_as_in_the_whole() -> None:
    """Also where some of its tables have gone to another part. Mutants: weights of the part as if it were alone; those
    of its remaining tables only; the whole forgotten for a part of a part."""
    domain = sf.Domain({"a": 3, "b": 4, "c": 5})
    work = sf.stack(main=sf.marginals(domain, upto=2), cdf=sf.prefix(domain, "c"), weights={"cdf": 3})
    whole = Problem(work, sf.gdp(1), PrivacyUnit(Neighbours.ADD_REMOVE), "gaussian")
    blocks = [q for item in work.items for q in item.blocks()]
    some = [q for q in blocks if len(q.attributes) < 2]
    part = whole.part(some)
    assert [part.objective_weight(q) for q in some] == [whole.objective_weight(q) for q in some]
    assert part.part(some[:1]).objective_weight(some[0]) == whole.objective_weight(some[0])
    alone = replace(whole, workload=Workload(domain, tuple(some)))
    assert alone.objective_weight(some[0]) != whole.objective_weight(some[0])
