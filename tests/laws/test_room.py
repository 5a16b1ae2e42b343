"""Integers do not wrap for tables of as many records as the plan says, and that is enough for a country."""

from __future__ import annotations

import numpy as np
import pytest

import sfumato as sf

RECORDS = 2**28  # the least room where the lattice is not made coarser


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("budget", [sf.gdp(1), sf.pure("0.5"), sf.approx(4, "1e-6")], ids=str)
@pytest.mark.parametrize("high", [100, 10_000, 300_000])
def test_sums_of_large_values_leave_room_for_records(neighbours: str, budget: sf.Budget, high: int) -> None:
    """Mutants: a lattice as fine as for counts, on which 2^28 records of 10,000 wrap to a negative sum; noise that
    is not scaled to what the coarser lattice needs, which costs more than the price."""
    domain = sf.Domain({"cost": sf.Integers(0, high)})
    work = sf.stack(sums=sf.sums(domain, "cost"), counts=sf.total(domain))
    plan = sf.plan(work, budget, neighbours=neighbours)
    assert plan.record_limit >= RECORDS
    counts = np.zeros(high + 1, dtype=np.int64)
    counts[high // 2] = RECORDS
    release = sf.release(plan, sf.Histogram(counts), ledger=None, name="room")
    errors = release.standard_errors()
    assert errors is not None
    assert abs(release.answers[0] - RECORDS * (high // 2)) <= 12 * errors[0] + 1


def test_a_coarser_lattice_costs_no_error() -> None:
    """The optimum of sums beside counts, at 10,001 values, is the bound's. Mutant: multiples of a few."""
    domain = sf.Domain({"cost": sf.Integers(0, 10_000), "place": 5})
    work = sf.stack(sums=sf.sums(domain, "cost", by=["place"]), counts=sf.marginals(domain, sets=[("place",)]))
    plan = sf.plan(work, sf.gdp(1), neighbours="add-remove")
    assert plan.lower_bound is not None
    assert plan.objective_value <= plan.lower_bound * 1.0001
