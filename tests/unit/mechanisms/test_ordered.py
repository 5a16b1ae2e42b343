"""Plans and releases for one ordered attribute of more cells than dense algebra takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import PlanError
from sfumato.mechanisms import searches
from sfumato.strategies import trees

N = 9_000
BUDGET = sf.approx(1, "1e-6")


def domain(n: int = N, **kinds: Any) -> sf.Domain:
    return sf.Domain({"t": sf.Integers(0, n - 1, **kinds)})


def counts(n: int = N) -> Any:
    return np.random.default_rng().integers(0, 9, n)


def test_prefixes_are_planned_within_two_percent_of_the_bound() -> None:
    plan = sf.plan(sf.prefix(domain(), "t"), BUDGET, neighbours="add-remove")
    assert plan.mechanism == "factorization"
    assert plan.lower_bound is not None
    assert 1.0 < plan.rmse / plan.lower_bound < 1.025
    assert "tree" in plan.candidates["mechanism"]


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("mechanism", ["factorization", "tree"])
def test_released_prefixes_err_as_predicted(neighbours: str, mechanism: str) -> None:
    work, x = sf.prefix(domain(), "t"), counts()
    plan = sf.plan(work, BUDGET, neighbours=neighbours, mechanism=mechanism)
    total = np.zeros(3)
    for _ in range(3):
        made = sf.release(plan, sf.Histogram(x), ledger=None)
        errors = made.answers - work.answer(x)
        if neighbours == "replace-one":
            assert abs(errors[-1]) < 1e-6 * x.sum()
        total += [(np.diff(errors) ** 2).mean(), (errors**2).mean(), 1]
    # neighbouring prefixes share their noise, so the mean square over them is far less certain than over cells
    assert 0.2 < np.sqrt(total[1] / total[2]) / plan.rmse < 3
    steps = plan.strategy.row_powers(sf.identity(domain(), "t").blocks[0].block, 2)[1:].mean() * plan.noise.variance
    assert abs(total[0] / total[2] / steps - 1) < 0.1


def test_all_ranges_are_planned_and_asked_without_listing_them(tmp_path: Path) -> None:
    work, x = sf.ranges(domain(), "t"), counts()
    plan = sf.plan(work, BUDGET, neighbours="add-remove")
    assert plan.mechanism == "factorization"
    assert plan.lower_bound is not None
    assert 1.0 < plan.rmse / plan.lower_bound < 1.06
    assert plan.rmse < plan.max_standard_error < 1.2 * plan.rmse
    assert plan.objective_value == pytest.approx(plan.rmse)
    assert "ranges t" in plan.explain()
    frame = plan.errors()
    assert frame["rmse"] == [pytest.approx(plan.rmse)]
    assert frame["worst_standard_error"] == [pytest.approx(plan.max_standard_error)]
    plan.save(tmp_path / "p.plan")
    assert sf.load(tmp_path / "p.plan").fingerprint == plan.fingerprint
    made = sf.release(plan, sf.Histogram(x), ledger=None)
    found = made.ask("t >= 100 and t < 5000")
    assert abs(found.value - x[100:5000].sum()) < 6 * found.standard_error
    assert found.standard_error <= plan.max_standard_error
    windows = made.ask(sf.windows(domain(), "t", 500))
    assert len(windows["answer"]) == N - 499
    with pytest.raises(PlanError, match=r"release\.ask"):
        _ = made.answers


def test_errors_of_too_many_queries_are_not_listed() -> None:
    plan = sf.plan(sf.ranges(domain(), "t"), BUDGET, neighbours="add-remove")
    with pytest.raises(PlanError, match="too many"):
        plan.standard_errors()


def test_ranges_listed_and_summed_up_agree() -> None:
    """4,200 cells are listed; the same strategy sums them up to the same errors."""
    n = 4_200
    plan = sf.plan(sf.ranges(domain(n), "t"), BUDGET, neighbours="add-remove", mechanism="factorization")
    listed = plan.entries[0].powers
    assert plan.entries[0].mean is None
    strategy: Any = plan.strategy
    mean, largest = strategy.factors[0].range_errors(plan.workload.blocks[0].block.factors[0])
    assert listed.mean() == pytest.approx(mean, rel=1e-9)
    assert listed.max() <= largest <= 1.021 * listed.max()


@pytest.mark.parametrize("ask", [sf.prefix, sf.ranges])
def test_pure_budgets_are_spent_on_trees(ask: Any) -> None:
    plan = sf.plan(ask(domain(), "t"), sf.pure(1), neighbours="add-remove")
    assert plan.mechanism == "tree"
    assert plan.lower_bound is None
    assert plan.errors()["margin"][0] >= 1.9 * plan.max_standard_error


def test_replaced_records_cost_no_more_than_twice_the_square() -> None:
    one, other = (
        sf.plan(sf.ranges(domain(), "t"), BUDGET, neighbours=n, mechanism="factorization")
        for n in ("add-remove", "replace-one")
    )
    assert other.rmse < one.rmse * np.sqrt(2)
    assert other.lower_bound is None


def test_a_cell_for_everything_else_is_left_out_of_ranges() -> None:
    plain = domain(outside="other")
    plan = sf.plan(sf.ranges(plain, "t"), BUDGET, neighbours="add-remove", mechanism="factorization")
    assert plan.lower_bound is not None
    assert 1.0 < plan.rmse / plan.lower_bound < 1.06


@pytest.mark.parametrize(("width", "most"), [(1, 1.001), (30, 1.001), (900, 1.03), (3_000, 1.11)])
def test_windows_are_planned_by_their_own_root(width: int, most: float) -> None:
    work, x = sf.windows(domain(), "t", width), counts()
    plan = sf.plan(work, BUDGET, neighbours="add-remove", mechanism="factorization")
    assert f"windows of {width:,} cells" in plan.strategy.summary
    assert plan.lower_bound is not None
    assert 1.0 < plan.rmse / plan.lower_bound < most
    made = sf.release(plan, sf.Histogram(x), ledger=None)
    predicted = made.standard_errors()
    assert predicted is not None
    assert 0.5 < np.sqrt((((made.answers - work.answer(x)) / predicted) ** 2).mean()) < 1.6


def test_where_records_are_replaced_the_root_that_errs_least_is_taken() -> None:
    """Roots of windows have entries of both signs, so two columns differ by up to four squares, not two."""
    asked = sf.windows(domain(), "t", 3_000)
    plan = sf.plan(asked, BUDGET, neighbours="replace-one", mechanism="factorization")
    assert "prefix sums" in plan.strategy.summary
    assert plan.lower_bound is None
    others = [float(v) for v in plan.candidates["objective_value"] if v is not None]
    assert len(others) == 2
    assert plan.objective_value == pytest.approx(min(others))


def test_mixed_blocks_and_the_largest_error() -> None:
    work = sf.stack(sf.prefix(domain(), "t"), sf.windows(domain(), "t", 30))
    mean = sf.plan(work, BUDGET, neighbours="add-remove", mechanism="factorization")
    assert mean.lower_bound is not None
    assert mean.lower_bound < mean.objective_value
    largest = sf.plan(sf.prefix(domain(), "t"), BUDGET, neighbours="add-remove", objective="max")
    assert largest.lower_bound is not None
    assert 1.0 < largest.objective_value / largest.lower_bound < 1.2


@pytest.mark.parametrize("seed", range(12))
def test_no_branching_errs_less_than_those_that_are_tried(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all trees over one or two attributes at random, L1 and L2. Mutants: branchings 2, 3, 4, 8, 16 alone; depths
    from 2 on; the least branchings of the larger attribute alone."""
    rng = np.random.default_rng([57, seed])
    sizes = {name: int(rng.integers(3, 60 if seed < 8 else 14)) for name in ("a", "b")[: 1 if seed < 8 else 2]}
    domain = sf.Domain(sizes)
    work = sf.prefix(domain, "a") if len(sizes) == 1 else sf.prefix(domain, "a") * sf.prefix(domain, "b")
    budget = sf.gdp(1) if seed % 2 else sf.pure(1)
    best = sf.plan(work, budget, neighbours="add-remove", mechanism="tree").rmse
    monkeypatch.setattr(trees, "branchings_to_try", lambda sizes, power: tuple(range(2, max(sizes) + 1)))
    every = sf.plan(work, budget, neighbours="add-remove", mechanism="tree").rmse
    assert best <= every * (1 + 1e-3)  # multiples are whole numbers, rounded by themselves


def test_wide_trees_are_as_deep_as_their_cells_need() -> None:
    """4,198 cells: 9^4 cover them, 8^4 do not. Mutant: branchings 8 and 16 alone (rmse 18.08)."""
    plan = sf.plan(sf.prefix(domain(4_198), "t"), sf.pure(1), neighbours="add-remove", mechanism="tree")
    assert plan.rmse < 15.6


def test_of_very_many_queries_the_best_is_tried_first_and_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing else is priced. Mutants: a search that tells no progress; the others priced too."""
    work = sf.ranges(sf.Domain({"x": 40}), "x")
    given: dict[str, Any] = {"neighbours": "add-remove"}
    every = sf.plan(work, sf.gdp(1), **given)
    monkeypatch.setattr(searches, "_LONG_TABLE", 500)
    told: list[int] = []
    plan = sf.plan(work, sf.gdp(1), progress=lambda step, _: told.append(step), **given)
    assert told
    assert plan.rmse == every.rmse
    notes = dict(zip(plan.candidates["mechanism"], plan.candidates["note"], strict=True))
    assert {notes[m] for m in ("direct", "tree", "marginals")} == {
        "not tried: no unbiased answers with Gaussian noise err less than the chosen plan"
    }
