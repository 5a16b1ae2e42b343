"""How far sums may be off because numbers lie on a grid, said before any data; and sums of powers about a centre."""

from __future__ import annotations

import functools
import math
from typing import Any, cast

import numpy as np
import pytest

import sfumato as sf
from sfumato.cells import POINTS
from sfumato.curator.rows.shares import SHARES, shares
from sfumato.domain.measures import rounding_per_record
from sfumato.errors import InvalidInput, WorkloadError


def _real_shares(measure: sf.Measure, v: Any) -> Any:
    """(cells, numbers) shares of numbers, none of which is rounded, in extended precision."""
    ends = np.array(measure.ends, dtype=np.longdouble)
    piece = np.clip(np.searchsorted(ends, v, side="right") - 1, 0, len(ends) - 2)
    u = (v - ends[piece]) / (ends[piece + 1] - ends[piece])
    found = np.zeros((measure.size, len(v)), dtype=np.longdouble)
    for i, part in enumerate(((1 - u) ** 2, 2 * u * (1 - u), u * u)):
        found[2 * piece + i, np.arange(len(v))] += part
    return found


def _off(measures: list[sf.Measure], rows: Any, rng: np.random.Generator) -> Any:
    """(rows,) by how much some number among many, knots and those beside them too, is off."""
    codes: list[Any] = []
    real: list[Any] = []
    for m in measures:
        near = np.multiply.outer(m.ends, [1, 1 - 1e-10, 1 + 1e-10, 1 + 3e-10]).reshape(-1)
        v = np.clip(np.concatenate([rng.choice(near, 500), rng.uniform(m.low, m.high, 3_500)]), m.low, m.high)
        rng.shuffle(v)
        codes.append(np.floor((v - m.low) * (POINTS / (float(m.high) - float(m.low))) + 0.5).astype(np.uint32))
        real.append(_real_shares(m, v.astype(np.longdouble)))
    joint = functools.reduce(lambda a, b: (a[:, None] * b[None]).reshape(-1, a.shape[1]), real)
    found = shares(codes, [m.size for m in measures], [m.rule.ends for m in measures])
    return np.abs(rows.astype(np.longdouble) @ (found / np.longdouble(SHARES) - joint)).max(axis=1)


@pytest.mark.parametrize("seed", range(12))
def test_no_record_is_off_by_more(seed: int) -> None:
    """Mutants: knots that move nothing; shares of several measures that add up to the whole; no bend."""
    rng = np.random.default_rng([187, seed])
    measures = [
        sf.Measure(-7, 93, knots=[[], [3, 3.0002, 40], [], [-6.9998, 90]][int(rng.integers(4))])
        for _ in range(1 + seed % 3)
    ]
    rows = rng.normal(size=(6, *(m.size for m in measures)))
    rows[0] = functools.reduce(np.multiply.outer, [[*m.midpoints, 0.0] for m in measures])
    flat = rows.reshape(6, -1)
    bound = rounding_per_record(flat, measures)
    off = _off(measures, flat, rng)
    assert (off <= bound).all()
    assert len(measures) > 1 or off[0] >= 0.6 * bound[0]  # a sum is nearly as far off as is said


@pytest.mark.parametrize("knots", [[], [3, 3.0002, 40]])
def test_sums_of_powers_are_of_the_numbers_themselves(knots: list[float]) -> None:
    """About any centre, within rounding of doubles, and planned as well as is possible. Mutants: squares about 0; a
    middle cell with the square of the middle; a centre that is added."""
    rng = np.random.default_rng([187, 99])
    domain = sf.Domain({"g": 3}, measures={"x": sf.Measure(-7, 93, knots=knots)})
    measure = cast(sf.Measure, domain["x"])
    v = rng.uniform(-7, 93, 300)
    for power, centre in ((1, 12.34), (2, 0), (2, -3), (2, 43), (2, 4e4)):
        work = sf.sums(domain, "x", by="g", power=power, centre=centre)
        block = work.blocks[0].block
        (row,) = block.factors[block.groups.index(("x",))].dense()
        exact = (v - centre) ** power
        assert np.allclose((row @ _real_shares(measure, v)).astype(float), exact, rtol=1e-12, atol=1e-9)
        plan = sf.plan(work, sf.gdp(1), neighbours="add-remove")
        assert plan.lower_bound is not None
        assert plan.objective_value <= 1.001 * plan.lower_bound
    assert sf.sums(domain, "x", power=2, centre=43).units == ("x squared",)
    assert sf.sums(domain, "x", power=2, centre=-0.5).labels() == ["sum of (x plus 0.5) squared"]
    for bad in ({"power": 3}, {"power": True}, {"power": 0}, {"centre": math.nan}, {"power": 2, "values": [1] * 3}):
        with pytest.raises(InvalidInput, match=r"power|centre"):
            sf.sums(domain, "x", **bad)
    with pytest.raises(WorkloadError, match="as g is here"):
        sf.sums(domain, "g", power=2)


def test_plans_say_it_in_standard_errors() -> None:
    """Of one measure 2^-25 of the range for a sum; a plan of counts has none. Mutant: in units of the answers."""
    domain = sf.Domain({"g": 2}, measures={"x": sf.Measure(0, 1_000)})
    plan = sf.plan(sf.sums(domain, "x"), sf.gdp(1), neighbours="add-remove")
    least = 1_000 / plan.standard_errors()[0] / 2**25
    assert least <= plan.rounding <= least * 1.02
    assert f"rounding   moves no answer by more than {plan.rounding:.2g} of its standard error" in str(plan)
    assert sf.plan(sf.marginals(domain, upto=1), sf.gdp(1), neighbours="add-remove").rounding == 0
