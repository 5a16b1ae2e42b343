"""mechanism="adaptive": what is measured and with which noise, what is denoised, and what stays of both."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import sfumato as sf
from sfumato.errors import InvalidInput, NotAnswerable, PlanError
from sfumato.present import write_report
from sfumato.privacy.noise import DiscreteLaplace
from sfumato.releases.comparing import strategy_noise
from sfumato.strategies.residuals import PairResiduals, Residuals
from support.words import plan_with

BUDGET = sf.zcdp("0.02")
SIZES = {"a": 6, "b": 5, "c": 4, "one": 1, "d": 3}
DOMAIN = sf.Domain({name: sf.Integers(0, n - 1) for name, n in SIZES.items()})
TRIPLES = sf.stack(
    sf.marginals(DOMAIN, sets=[["a", "b", "c"], ["b", "d"]]).named("tables"),
    sf.prefix(DOMAIN, "a", by=["c"]),
    sf.predicates(DOMAIN, ["a >= 3 and b == 1 and c == 0", "d == 1"]),
)
PAIRS = sf.marginals(DOMAIN, sets=list(itertools.combinations("abcd", 2)))


def chain(records: int = 5_000) -> NDArray[np.int64]:
    """Counts of records whose attributes hang together along a chain."""
    rng = np.random.default_rng(0)
    a = rng.integers(0, 6, records)
    b = np.where(rng.random(records) < 0.8, a % 5, rng.integers(0, 5, records))
    c = np.where(rng.random(records) < 0.7, b % 4, rng.integers(0, 4, records))
    d = np.where(rng.random(records) < 0.7, c % 3, rng.integers(0, 3, records))
    x = np.zeros(DOMAIN.shape, dtype=np.int64)
    np.add.at(x, (a, b, c, np.zeros(records, dtype=np.int64), d), 1)
    return x


def planned(work: sf.Workload = TRIPLES, neighbours: str = "add-remove", **more: Any) -> sf.Plan:
    given: dict[str, Any] = {"records": 2_000, **more}
    plan = plan_with(work, given.pop("budget", BUDGET), neighbours=neighbours, mechanism="adaptive", **given)
    assert isinstance(plan, sf.Plan)
    return plan


@pytest.fixture(scope="module")
def release() -> sf.Release:
    return sf.release(planned(), sf.Histogram(chain()), ledger=None)


def residual_variances(plan: sf.Plan) -> dict[tuple[str, ...], float]:
    assert isinstance(plan.strategy, PairResiduals)
    return residual_variances_of(plan)


def residual_variances_of(plan: sf.Plan) -> dict[tuple[str, ...], float]:
    strategy = plan.strategy
    assert isinstance(strategy, Residuals)
    found = zip(strategy.sets, strategy.divisors, strict=True)
    return {
        tuple(strategy.names[i] for i in axes): plan.noise.variance / float(d) ** 2
        for sets, divisors in found
        for axes, d in zip(sets.tolist(), divisors, strict=True)
        if d < np.inf
    }


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_the_budget_goes_to_attributes_and_pairs_as_the_rule_says(neighbours: str) -> None:
    """Mutants: the change of a replaced record forgotten; precision in place of its root; weights left out."""
    work = sf.stack(PAIRS.named("all"), sf.marginals(DOMAIN, sets=[["a", "b"]]).named("more", 3))
    plan = planned(work, neighbours, records=2_500)
    found = residual_variances(plan)
    assert (() in found) == (neighbours == "add-remove")
    change = 2.0 if neighbours == "replace-one" else 1.0
    rho = 0.02 / change
    sizes = np.array([6, 5, 4, 3])
    error = 1.6 * math.sqrt(4 / (2 * rho)) * sizes.mean() / 2_500
    odds = max((error / 0.136) ** 2, 0.8 * (error / 0.136) ** 0.5)
    share = odds / (1 + odds)
    cells = np.outer(sizes, sizes)[np.triu_indices(4, 1)]
    ratio = 0.8 * math.sqrt(6 / (2 * rho)) * cells.mean() / 2_500 / 0.136
    gain = (1 - ratio) / (1 + ratio)
    power = 2 * gain / (2 + gain)
    assert 0.05 < power < 2 / 3
    spent = {s: math.prod(1 - 1 / SIZES[a] for a in s) / v for s, v in found.items()}
    # two cells that differ everywhere are not quite at right angles
    assert sum(spent.values()) == pytest.approx(2 * rho, rel=1e-3 if change == 1 else 0.2)
    ones, twos = (sum(v for s, v in spent.items() if len(s) == k) for k in (1, 2))
    assert ones / (ones + twos) == pytest.approx(share, rel=1e-3)
    assert found["a", "c"] / found["c", "d"] == pytest.approx((12 / 24) ** power, rel=1e-3)
    assert found["a", "c"] / found["a", "b"] == pytest.approx((30 / 24) ** power * 4**0.5, rel=1e-3)
    assert not any("one" in s for s in found)


def test_few_records_give_more_to_attributes() -> None:
    def share(records: int) -> float:
        found = residual_variances(planned(records=records))
        spent = {s: math.prod(1 - 1 / SIZES[a] for a in s) / v for s, v in found.items()}
        return sum(v for s, v in spent.items() if len(s) == 1) / sum(spent.values())

    assert share(100) > 1.5 * share(1_000) > 2.25 * share(10**6)


def test_with_many_records_the_split_is_that_of_unprojected_pairs() -> None:
    """Attributes get what the least squared error of pairs gives them, and pairs that of the least sum of errors."""
    found = residual_variances(planned(PAIRS, records=10**9))
    spent = {s: math.prod(1 - 1 / SIZES[a] for a in s) / v for s, v in found.items()}
    plain = sf.plan(PAIRS, BUDGET, neighbours="add-remove", mechanism="marginals", objective="cells")
    least = residual_variances_of(plain)
    wanted = {s: math.prod(1 - 1 / SIZES[a] for a in s) / v for s, v in least.items()}
    ones, pairs = (sum(v for s, v in wanted.items() if len(s) == k) for k in (1, 2))
    have = [sum(v for s, v in spent.items() if len(s) == k) for k in (1, 2)]
    assert have[0] / sum(have) == pytest.approx(ones / (ones + pairs), rel=1e-2)
    assert found["c", "d"] / found["a", "b"] == pytest.approx((30 / 12) ** (2 / 3), rel=1e-2)


def test_auto_says_when_it_is_worth_asking_for() -> None:
    """Mutant: the errors of tables that share the budget, which no plan takes."""
    given: dict[str, Any] = {"neighbours": "add-remove", "objective": "tables"}
    found = sf.plan(PAIRS, BUDGET, records=2_000, **given)
    lines = dict(zip(found.candidates["mechanism"], found.candidates["note"], strict=True))
    # what this plan, unprojected, errs
    noise = 0.8 * float(found.standard_errors().sum()) / 6
    assert f"below some {round(noise / 0.034, -2):,.0f} records" in lines["adaptive"]
    each = noise / 2_000
    wanted = f"at 2,000 these are expected at {each / (1 + each / 0.136):.2g} of the records, {each:.2g} before"
    assert wanted in lines["adaptive"]
    assert found.mechanism != "adaptive"
    others: list[tuple[sf.Workload, dict[str, Any]]] = [
        (sf.marginals(DOMAIN, order=1), {}),
        (PAIRS, {"objective": "cells"}),
        (sf.prefix(DOMAIN, "a", by=["b"]), {}),
    ]
    for work, more in others:
        assert "adaptive" not in sf.plan(work, BUDGET, **{**given, **more}).candidates["mechanism"]
    assert "adaptive" not in sf.plan(PAIRS, sf.pure(1), neighbours="add-remove").candidates["mechanism"]


def test_only_pairs_inside_asked_tables_are_measured() -> None:
    strategy = planned().strategy
    assert isinstance(strategy, PairResiduals)
    held = {tuple(strategy.names[i] for i in s) for s in strategy.sets[2].tolist()}
    assert held == {("a", "b"), ("a", "c"), ("b", "c"), ("b", "d")}


def test_triples_are_measured_where_noise_leaves_something_of_them() -> None:
    """Mutants: the pairs' error left out; the noise of records forgotten; triples not paid for."""
    for records, borne in ((2_000, False), (20_000, True)):
        plan = planned(records=records)
        spent = {s: math.prod(1 - 1 / SIZES[a] for a in s) / v for s, v in residual_variances(plan).items()}
        triples = {s: x for s, x in spent.items() if len(s) == 3}
        assert set(triples) == ({("a", "b", "c")} if borne else set())
        assert sum(spent.values()) == pytest.approx(2 * 0.02, rel=1e-3)
        if borne:
            rho = 0.02
            noise = 0.8 / math.sqrt(2 * rho) * 120 / records
            cells = [30, 24, 20, 15]  # of the four pairs
            plain = 0.8 * math.sqrt(4 / (2 * rho)) * float(np.mean(cells)) / records
            inside = 0.136 * plain / (0.136 + plain) * math.sqrt(3 + 2 / 2)
            share = 0.8 * noise / (noise + inside) * (1 - inside * noise / 0.08**2)
            assert triples["a", "b", "c"] / (2 * rho) == pytest.approx(share / 1.02, rel=1e-2)
    assert np.isfinite(planned(records=20_000).standard_errors()).all()
    assert np.isinf(planned(records=2_000).standard_errors()).any()


def test_triples_get_little_where_all_together_tell_and_no_cell_does() -> None:
    """Mutants: a share that does not grow with the noise; pairs that are asked for themselves pay as much."""
    domain = sf.Domain({f"a{n}": sf.Integers(0, n - 1) for n in (2, 3, 4, 5, 6, 8, 10, 12)})
    three, every = sf.marginals(domain, order=3), list(itertools.combinations(domain.shape, 3))
    cells, free = (sum(math.prod(n - less for n in t) for t in every) for less in (0, 1))
    for records, told in ((26_000, True), (20_000, False)):
        plan = planned(three, budget=sf.zcdp("0.0166"), records=records)
        spent = {s: math.prod(1 - 1 / domain[a].size for a in s) / v for s, v in residual_variances(plan).items()}
        noise = 0.8 / math.sqrt(2 * 0.0166) * math.sqrt(56) * cells / 56 / records
        share = 16 / free * (noise / (0.8 * 0.08)) ** 2
        assert (share <= 0.05) == told
        found = sum(v for s, v in spent.items() if len(s) == 3) / sum(spent.values())
        assert found == pytest.approx(share / 1.02 if told else 0.0, rel=1e-2)
    both = sf.stack(sf.marginals(domain, order=2).named("pairs"), three.named("triples"))
    assert all(len(s) < 3 for s in residual_variances(planned(both, budget=sf.zcdp("0.0166"), records=26_000)))


def test_errors_within_pairs_are_those_of_residuals_and_infinite_beyond() -> None:
    strategy = planned().strategy
    assert isinstance(strategy, PairResiduals)
    plain = Residuals(strategy.names, strategy.shape, strategy.sets, strategy.multiples)
    for q in TRIPLES.blocks:
        if len(q.attributes) <= 2:
            np.testing.assert_array_equal(strategy.row_powers(q.block, 2), plain.row_powers(q.block, 2))
            continue
        assert np.isinf(strategy.row_powers(q.block, 2)).all()
        with pytest.raises(NotAnswerable):
            plain.row_powers(q.block, 2)
    families = sf.marginals(DOMAIN, order=2).items
    for item in families:
        powers = strategy.family_powers(item.family, 2)  # pyright: ignore[reportAttributeAccessIssue]
        each = [float(strategy.row_powers(b, 2).reshape(-1)[0]) for b in item.family.blocks()]  # pyright: ignore
        assert powers is not None
        np.testing.assert_allclose(powers, each)


def test_what_was_not_measured_has_no_covariance() -> None:
    plan = planned()
    assert plan.covariance(("a", "b")).shape == (30, 30)
    with pytest.raises(NotAnswerable, match="not measured"):
        plan.covariance(("a", "b", "c"))
    with pytest.raises(NotAnswerable, match="not measured"):
        plan.table_covariances(("a", "b"), ("a", "b", "c"))


def test_a_plan_says_what_it_does_not_know() -> None:
    plan = planned()
    text, facts = str(plan), plan.facts()["error"]
    assert "not guaranteed" in text
    assert "largest entropy" in text
    assert math.isfinite(facts["rmse"])
    assert math.isfinite(facts["max_standard_error"])
    assert plan.lower_bound is None
    tables = plan.standard_errors("tables")
    assert np.isinf(tables[: 6 * 5 * 4]).all()
    assert np.isfinite(tables[6 * 5 * 4 :]).all()
    assert plan.smallest_count()["smallest_count"][0] is None


def test_answers_are_those_of_tables_that_agree(release: sf.Release) -> None:
    three = release.table("a", "b", "c").values
    assert three.min() >= 0
    np.testing.assert_allclose(three.sum(axis=2), release.table("a", "b").values, atol=1e-3 * three.sum())
    np.testing.assert_allclose(release.table("c", "a").values.T, release.table("a", "c").values)
    np.testing.assert_allclose(release["tables"].answers[:120], three.reshape(-1))
    assert release.ask("a >= 3 and c == 0").value == pytest.approx(release.table("a", "c").values[3:, 0].sum())
    assert release.ask("a == 1 and d == 2").standard_error is None
    assert release.standard_errors() is None
    with pytest.raises(NotAnswerable, match="one"):
        release.table("one", "b")


def test_triples_that_were_measured_agree_with_pairs_and_are_stored(tmp_path: Path) -> None:
    made = sf.release(planned(records=50_000), sf.Histogram(10 * chain()), ledger=None)
    three, truth = made.table("a", "b", "c"), 10 * chain().sum(axis=(3, 4))
    assert three.values.min() >= 0
    np.testing.assert_allclose(three.values.sum(axis=2), made.table("a", "b").values, atol=1e-2 * 50_000**0.5)
    implied = sf.release(planned(PAIRS, records=50_000), sf.Histogram(10 * chain()), ledger=None).table("a", "b", "c")
    assert np.abs(three.values - truth).sum() < 0.8 * np.abs(implied.values - truth).sum()
    errors = made.raw.table("a", "b", "c").standard_errors
    assert errors is not None
    assert np.isfinite(errors).all()
    inside = (three.low <= truth) & (truth <= three.high)
    assert float(inside.mean()) > 0.85
    made.save(tmp_path / "r")
    again = sf.load(tmp_path / "r")
    np.testing.assert_array_equal(again.table("c", "b", "a").values, three.values.transpose(2, 1, 0))
    four = made.table("a", "b", "c", "d").values
    # noisy triples that no table of four has are missed by more than rounding: of one release in forty by 1 % in all
    assert np.abs(four.sum(axis=3) - three.values).sum() <= 0.05 * four.sum()
    codes = made.synthetic().codes[:, :3]
    table = np.zeros((6, 5, 4))
    np.add.at(table, tuple(codes.T), 1)
    assert float(np.abs(table - three.values).sum()) < 0.03 * table.sum()


def test_unprojected_answers_and_intervals_stay(release: sf.Release) -> None:
    """Mutant: a triple's interval from its own raw answer."""
    truth, raw = TRIPLES.answer(chain()), release.raw
    ends, errors = release.intervals(0.99), release.plan.standard_errors()
    inside = (ends.low <= truth) & (truth <= ends.high)
    assert float(inside.mean()) > 0.9
    assert np.isfinite(ends.high).all()
    assert (ends.low <= release.answers).all()
    assert (release.answers <= ends.high).all()
    known = np.isfinite(errors)
    assert float(np.abs((raw.answers - truth)[known] / errors[known]).max()) < 6
    three, pair = release.table("a", "b", "c", confidence=0.9), release.raw.table("a", "b", confidence=0.9)
    top = np.maximum(np.maximum(pair.high, 0.0)[:, :, None], three.values)
    np.testing.assert_allclose(three.high, np.broadcast_to(top, three.high.shape))
    np.testing.assert_array_equal(three.low, 0.0)


def test_two_releases_are_pooled_where_they_measured() -> None:
    first, second = (sf.release(planned(), sf.Histogram(chain()), ledger=None, snapshot="s") for _ in range(2))
    pooled = sf.combine(first, second)
    known = np.isfinite(first.plan.standard_errors())
    np.testing.assert_allclose(pooled.answers, (first.raw.answers + second.raw.answers) / 2)
    np.testing.assert_allclose(pooled.errors[known], first.plan.standard_errors()[known] / 2**0.5)
    assert np.isinf(pooled.errors[~known]).all()


def test_denoising_helps_where_attributes_hang_together() -> None:
    rng, domain = np.random.default_rng(1), sf.Domain({f"x{i}": sf.Integers(0, 4) for i in range(6)})
    shares, group = rng.dirichlet(np.full(5, 0.4), (3, 6)), rng.integers(0, 3, 5_000)
    truth = np.zeros(domain.shape, dtype=np.int64)
    np.add.at(truth, tuple(np.array([rng.choice(5, p=shares[g, i]) for g in group]) for i in range(6)), 1)
    work = sf.marginals(domain, order=2)
    exact, found = work.answer(truth), []
    for _ in range(2):
        release = sf.release(planned(work), sf.Histogram(truth), ledger=None)
        assert isinstance(release, sf.Release)
        near = release.raw.project("local")
        found.append([float(np.abs(r.answers - exact).sum()) for r in (release.raw, near, release)])
    raw, local, denoised = np.mean(found, axis=0)
    assert denoised < 0.85 * min(local, raw)


def test_a_stored_release_answers_alike(release: sf.Release, tmp_path: Path) -> None:
    release.save(tmp_path / "r")
    again = sf.load(tmp_path / "r")
    assert isinstance(again, sf.Release)
    np.testing.assert_array_equal(again.answers, release.answers)
    np.testing.assert_array_equal(again.table("b", "c", "d").values, release.table("b", "c", "d").values)
    np.testing.assert_array_equal(again.synthetic(300).codes, release.synthetic(300).codes)
    assert again.projection is not None
    assert again.projection.body == "mixtures"
    assert not again.projection.certified


def test_records_are_near_the_pairs(release: sf.Release) -> None:
    made = release.synthetic()
    assert abs(len(made) - 5_000) < 1_000
    pair = np.zeros((6, 5))
    np.add.at(pair, (made.codes[:, 0], made.codes[:, 1]), 1)
    assert float(np.abs(pair - release.table("a", "b").values).sum()) < 0.05 * len(made)
    whole = release.project("mixtures", integer=True)
    assert all(float(v).is_integer() for v in whole.answers)


def test_pages_and_frames_take_what_has_no_error(release: sf.Release, tmp_path: Path) -> None:
    page = write_report(release, tmp_path / "r.html", actual=TRIPLES.answer(chain())).read_text(encoding="utf-8")
    assert "denoised together" in page
    assert "before denoising" in write_report(planned(), tmp_path / "p.html").read_text(encoding="utf-8")
    assert len(release.frame().rows()) == len(TRIPLES)
    assert sum(b.values.size for b in release.batches()) == len(TRIPLES)


def test_any_release_of_pairs_can_be_denoised() -> None:
    told: list[int] = []
    for neighbours in ("add-remove", "replace-one"):
        plan = sf.plan(PAIRS, BUDGET, neighbours=neighbours, mechanism="marginals")
        release = sf.release(plan, sf.Histogram(chain()), ledger=None)
        found = release.project("mixtures", progress=lambda step, _: told.append(step))
        assert float(found.table("a", "b", "c").values.sum()) == pytest.approx(float(found.table().values), rel=1e-6)
    assert len(told) > 10
    with pytest.raises(PlanError, match="leave space= out"):
        release.project("mixtures", space="answers")
    direct = sf.plan(PAIRS, BUDGET, neighbours="add-remove", mechanism="gaussian")
    other = sf.release(direct, sf.Histogram(chain()), ledger=None)
    laplace = replace(release.measurement, noise=DiscreteLaplace(Fraction(100)))
    for refused in (other, replace(release, measurement=laplace)):
        with pytest.raises(NotAnswerable, match="Gaussian noise"):
            refused.project("mixtures")
    with pytest.raises(InvalidInput, match="noise of their residuals"):
        sf.project(release.raw.answers, PAIRS, body="mixtures")


def test_residual_noise_is_found_where_some_attributes_are_not_asked() -> None:
    """Mutant: positions in the domain taken for positions among the attributes that are asked."""
    plan = sf.plan(sf.marginals(DOMAIN, sets=[["b", "c"], ["c", "d"]]), BUDGET, neighbours="add-remove")
    strategy = plan.strategy
    assert isinstance(strategy, Residuals)
    found = strategy_noise(strategy, plan.noise.variance, [1, 2, 4])
    assert [s.tolist() for s in found.sets] == [[[]], [[0], [1], [2]], [[0, 1], [1, 2]]]
    release = sf.release(plan, sf.Histogram(chain()), ledger=None)
    assert release.project("local", space="measurements").answers.min() >= 0


@pytest.mark.parametrize(
    ("work", "more", "words"),
    [
        (TRIPLES, {"records": None}, "give records="),
        (TRIPLES, {"objective": "max"}, "leave objective= out"),
        (TRIPLES, {"noise": "laplace"}, "Gaussian noise"),
        (sf.marginals(DOMAIN, order=1), {}, "over two attributes"),
        (sf.marginals(DOMAIN, sets=[["a", "one"]]), {}, "over two attributes"),
        (TRIPLES, {"public": {("a",): [1] * 6}}, "by mechanism='marginals' alone"),
    ],
    ids=["records", "max", "laplace", "order", "one", "public"],
)
def test_what_it_cannot_plan_is_refused(work: sf.Workload, more: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        planned(work, **more)


def test_large_tables_and_many_cells_are_refused() -> None:
    wide = sf.Domain({f"x{i}": sf.Integers(0, 999) for i in range(5)})
    with pytest.raises(PlanError, match="4,194,304 cells"):
        planned(sf.marginals(wide, order=3))
    many = sf.Domain({f"x{i}": sf.Integers(0, 399) for i in range(5)})
    assert any("CPU-minutes" in n for n in planned(sf.marginals(many, order=2)).notes)
    with pytest.raises(PlanError, match="cells in all"):
        planned(sf.marginals(wide, order=2))
    with pytest.raises(PlanError, match="mechanism='marginals'"):
        sf.budget_for(PAIRS, margin=50, delta="1e-6", neighbours="add-remove", mechanism="adaptive", records=100)
