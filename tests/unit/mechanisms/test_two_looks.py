"""mechanism="adaptive" after an earlier release: how the rest of the budget is divided, and both pooled."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import brentq

import sfumato as sf
from sfumato.errors import NotAnswerable, PlanError
from sfumato.measurements import Measurement
from sfumato.mechanisms import denoised_pairs as dividing
from sfumato.operators import Block
from sfumato.postprocess.consistency import ResidualNoise
from sfumato.privacy.accounting import GaussianEvent
from sfumato.releases.comparing import noisy_table, residual_noise, strategy_noise
from sfumato.strategies.residuals import Residuals
from sfumato.strategies.strategy import marginalise

Counts = NDArray[np.int64]
SIZES = {"a": 4, "b": 3, "c": 3, "d": 2}
DOMAIN = sf.Domain({name: sf.Integers(0, n - 1) for name, n in SIZES.items()})
PAIRS, TRIPLES = sf.marginals(DOMAIN, order=2), sf.marginals(DOMAIN, order=3)
FIRST, REST = Fraction(3, 500), Fraction(7, 500)  # of rho .02
WHERE = sf.release(
    sf.plan(PAIRS, sf.gdp(1), neighbours="add-remove"), sf.Histogram(np.ones(DOMAIN.shape, dtype=np.int64)), ledger=None
).provenance


def people(*, dependent: bool, records: int = 4_000) -> Counts:
    if not dependent:  # as evenly as whole records can be
        return np.bincount(np.arange(records) % DOMAIN.size, minlength=DOMAIN.size).reshape(DOMAIN.shape)
    rng = np.random.default_rng(0)
    a = rng.integers(0, 4, records)
    b = np.where(rng.random(records) < 0.8, a % 3, rng.integers(0, 3, records))
    out = np.zeros(DOMAIN.shape, dtype=np.int64)
    np.add.at(out, (a, b, rng.integers(0, 3, records), rng.integers(0, 2, records)), 1)
    return out


def planned(work: sf.Workload, rho: Fraction, after: sf.Release | None = None, **more: Any) -> sf.Plan:
    given: dict[str, Any] = {"neighbours": "add-remove", "records": 4_000, **more}
    made = sf.plan(work, sf.zcdp(rho), mechanism=sf.mechanisms.adaptive(after=after), **given)
    assert isinstance(made, sf.Plan)
    return made


def released(plan: sf.Plan, x: Counts, name: str, seed: int = 0) -> sf.Release:
    """By noise of the plan's law from a seed."""
    rng, deviation = np.random.default_rng([5, seed]), math.sqrt(plan.noise.variance)
    exact = [np.asarray(marginalise(x, DOMAIN.names, b)).reshape(-1) for b in plan.strategy.blocks]
    values = tuple(e + np.rint(rng.normal(0, deviation, len(e))).astype(np.int64) for e in exact)
    total = int(x.sum()) if plan.unit.total_is_public else None
    measured = Measurement(tuple(plan.strategy.blocks), values, plan.noise, total)
    return sf.Release(plan, measured, replace(WHERE, name=name, anchor=name, snapshot="2026"))


def noise_of(plan: sf.Plan) -> ResidualNoise:
    assert isinstance(plan.strategy, Residuals)
    return strategy_noise(plan.strategy, plan.noise.variance, range(4))


def precision(plan: sf.Plan) -> dict[tuple[int, ...], float]:
    found = noise_of(plan)
    return {
        tuple(s): 1 / v
        for sets, variances in zip(found.sets, found.variances, strict=True)
        for s, v in zip(sets.tolist(), variances.tolist(), strict=True)
    }


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize(("work", "records"), [(PAIRS, 400), (TRIPLES, 4_000)], ids=["pairs", "triples"])
def test_where_pairs_depend_both_measure_what_one_plan_would(
    work: sf.Workload, records: int, neighbours: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where each was seen to depend alike.

    Mutants: the earlier budget left out of the split; what it measured not taken off; the change forgotten.
    """
    monkeypatch.setattr(dividing, "_denoised_dependence", lambda _: np.full((4, 4), 0.2))
    first = planned(work, FIRST, neighbours=neighbours, records=records)
    found = released(first, people(dependent=True), "first")
    second = planned(work, REST, found, neighbours=neighbours, records=records)
    whole = precision(planned(work, FIRST + REST, neighbours=neighbours, records=records))
    one, other = precision(first), precision(second)
    assert any("saw that pairs depend" in n for n in second.notes)
    # by itself the first divides otherwise
    assert max(abs(one.get(s, 0.0) / whole[s] - 0.3) for s in whole) > 0.03
    # where records are replaced, some changes of one cost most together, of each release by itself others
    slack = 0.01 if neighbours == "add-remove" else 0.07
    assert {s: (one.get(s, 0.0) + other[s]) / whole[s] for s in whole} == pytest.approx(
        dict.fromkeys(whole, 1.0), abs=slack
    )


@pytest.mark.parametrize("records", [400, 4_000])
def test_pairs_are_measured_by_what_the_first_saw_of_each(records: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutants: nothing followed; the power not bounded; the bound where noise is small; attributes weighed as well."""
    seen = np.zeros((4, 4))
    seen[np.triu_indices(4, 1)] = (0.3, 0.2, 0.2, 0.25, 0.2, 0.2)
    monkeypatch.setattr(dividing, "_denoised_dependence", lambda _: seen)
    first = planned(PAIRS, FIRST, records=records)
    second = planned(PAIRS, REST, released(first, people(dependent=True), "first"), records=records)
    whole = planned(PAIRS, FIRST + REST, records=records)
    alone, one, other = (precision(p) for p in (whole, first, second))
    both = {s: one[s] + other[s] for s in alone}
    for s in ((), *((i,) for i in range(4))):
        assert both[s] == pytest.approx(alone[s], rel=0.01)
    cells = np.array([DOMAIN.shape[a] * DOMAIN.shape[b] for a, b in itertools.combinations(range(4), 2)])
    noise = 0.8 * math.sqrt(6 / (2 * float(FIRST + REST))) * float(cells.mean()) / records
    power = min(4 * noise / (3 * 0.136 + noise), 0.6)
    assert (power == 0.6) == (records == 400)
    gained = {s: both[s] / alone[s] for s in alone if len(s) == 2}
    assert gained[0, 1] / gained[0, 2] == pytest.approx(1.5**power, rel=0.01)
    assert gained[1, 2] / gained[1, 3] == pytest.approx(1.25**power, rel=0.01)
    price = sum((both[s] - alone[s]) * math.prod(1 - 1 / DOMAIN.shape[a] for a in s) for s in gained)
    assert price == pytest.approx(0.0, abs=0.01 * sum(alone.values()))


def test_pairs_denoised_one_by_one_would_follow_dependence_to_that_power() -> None:
    """Where the sum of errors e / (1 + e / D), e = cells / sqrt(w), is least at one price, all have one slope in w."""
    for ratio in (0.1, 1.0, 10.0):

        def slope(dependence: float, w: float, cells: float = ratio) -> float:
            low, high = (cells / math.sqrt(w + h) for h in (-1e-6, 1e-6))
            return (low / (1 + low / dependence) - high / (1 + high / dependence)) / 2e-6

        w = brentq(lambda w, f=slope: f(1.01, w) - f(1.0, 1.0), 0.5, 2.0)
        assert math.log(w) / math.log(1.01) == pytest.approx(4 * ratio / (3 + ratio), rel=0.02, abs=0.002)


def test_what_the_first_saw_of_a_pair_is_its_denoised_table() -> None:
    """However the release came: projected or not. Mutants: noisy tables; positions among the attributes asked."""
    work = sf.marginals(DOMAIN, sets=[("d", "b"), ("a", "b"), ("a", "d")])
    release = released(planned(work, FIRST), people(dependent=True), "first")
    done = release.project("mixtures")
    found = dividing._denoised_dependence(release)
    assert np.array_equal(found, dividing._denoised_dependence(done))
    for a, b in ((0, 1), (0, 3), (1, 3)):
        table = done.table(DOMAIN.names[a], DOMAIN.names[b]).values
        shares = table / table.sum()
        away = np.abs(shares - np.outer(shares.sum(axis=1), shares.sum(axis=0))).sum()
        assert found[a, b] == pytest.approx(away, abs=1e-6)
    assert found[0, 1] > 5 * found[0, 3]
    assert not found[2].any()
    assert not found[:, 2].any()


def test_where_nothing_is_seen_attributes_get_nearly_all() -> None:
    """Mutant: the split of a first look."""
    found = released(planned(TRIPLES, FIRST), people(dependent=False), "first", seed=3)
    second = planned(TRIPLES, REST, found)
    assert any("no pair depends" in n for n in second.notes)
    spent = {s: p * math.prod(1 - 1 / DOMAIN.shape[a] for a in s) for s, p in precision(second).items()}
    ones, pairs = (sum(v for s, v in spent.items() if len(s) == k) for k in (1, 2))
    assert 0.99 < ones / (ones + pairs) < 1
    assert {len(s) for s in spent} == {0, 1, 2}
    assert spent[()] / sum(spent.values()) == pytest.approx(0.02 / 1.02, rel=1e-2)


def test_the_second_costs_its_own_budget_whatever_the_first_saw() -> None:
    """Mutant: the second look priced at the budget of both, which its split is made for."""
    first = planned(PAIRS, FIRST)
    for dependent in (True, False):
        second = planned(PAIRS, REST, released(first, people(dependent=dependent), "first"))
        assert second.price == GaussianEvent(2 * REST)
        assert second.budget == sf.zcdp(REST)
        assert second.honest


def test_pooled_tables_are_those_of_least_squares() -> None:
    """Against dense least squares over all cells. Mutants: equal weights; the variance of the law left out."""
    x = people(dependent=True)
    one = released(planned(PAIRS, FIRST), x, "first", 1)
    other = released(planned(TRIPLES, REST, one), x, "second", 2)
    rows, values = list[Any](), list[Any]()
    for release in (one, other):
        deviation = math.sqrt(release.measurement.noise.variance)
        for family, held in zip(release.measurement.blocks, release.measurement.values, strict=True):
            assert not isinstance(family, Block)
            dense = np.array([marginalise(e, DOMAIN.names, family).reshape(-1) for e in units()]).T  # type: ignore[arg-type]
            rows.append(dense / deviation)
            values.append(held / deviation)
    best = np.linalg.lstsq(np.concatenate(rows), np.concatenate(values), rcond=None)[0].reshape(DOMAIN.shape)
    for axes in itertools.combinations(range(4), 2):
        wanted = best.sum(axis=tuple(i for i in range(4) if i not in axes))
        assert noisy_table([one, other], axes) == pytest.approx(wanted, abs=1e-4)
    pooled = residual_noise([one, other], range(4))
    both = [precision(one.plan), precision(other.plan)]
    for sets, variances in zip(pooled.sets, pooled.variances, strict=True):
        for s, v in zip(map(tuple, sets.tolist()), variances.tolist(), strict=True):
            assert 1 / v == pytest.approx(sum(p.get(s, 0.0) for p in both))


def units() -> list[Counts]:
    return list(np.eye(DOMAIN.size, dtype=np.int64).reshape(DOMAIN.size, *DOMAIN.shape))


def test_pooled_and_denoised_both_err_less_than_either() -> None:
    """Mutant: the earlier one left out of what is denoised."""
    x = people(dependent=True)
    exact, errors = PAIRS.answer(x), np.zeros(3)
    for seed in range(2):
        one = released(planned(PAIRS, FIRST), x, "first", 2 * seed)
        other = released(planned(PAIRS, REST, one), x, "second", 2 * seed + 1)
        made = [one.project("mixtures"), other.project("mixtures"), other.project("mixtures", earlier=one)]
        errors += [float(np.abs(m.answers - exact).sum()) for m in made]
        assert made[2].projection is not None
        ends = made[2].intervals()
        assert np.all((ends.low <= made[2].answers) & (made[2].answers <= ends.high))
    assert errors[2] < 0.9 * min(errors[0], errors[1])


def test_a_public_total_stays_what_it_is() -> None:
    x = people(dependent=True)
    one = released(planned(PAIRS, FIRST, neighbours="replace-one"), x, "first")
    other = released(planned(PAIRS, REST, one, neighbours="replace-one"), x, "second", 1)
    assert float(noisy_table([one, other], (0, 1)).sum()) == pytest.approx(4_000)
    assert float(other.project("mixtures", earlier=one).table("a", "b").values.sum()) == pytest.approx(4_000)


def test_what_cannot_be_followed_or_pooled_is_refused() -> None:
    x = people(dependent=True)
    one = released(planned(PAIRS, FIRST), x, "first")
    with pytest.raises(PlanError, match="an earlier release"):
        sf.mechanisms.adaptive(after="first")  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="another domain or for another unit"):
        planned(PAIRS, REST, one, neighbours="replace-one")
    direct = sf.release(
        sf.plan(PAIRS, sf.gdp(1), neighbours="add-remove", mechanism="gaussian"), sf.Histogram(x), ledger=None
    )
    with pytest.raises(PlanError, match="Gaussian noise"):
        planned(PAIRS, REST, direct)
    other = released(planned(PAIRS, REST, one), x, "second", 1)
    with pytest.raises(PlanError, match="is for body='mixtures'"):
        other.project("local", earlier=one)
    with pytest.raises(PlanError, match="the same release"):
        one.project("mixtures", earlier=one)
    # a model, a folder: refused in words by every body, before anything is read off them
    model = sf.plan(PAIRS, sf.zcdp(REST), neighbours="add-remove", mechanism="mwem", records=4_000)
    looked = sf.release(model, sf.Histogram(x), ledger=None)
    for given, body in itertools.product((looked, "out/first", one.plan), ("mixtures", "local", "auto")):
        with pytest.raises(PlanError, match="earlier= takes another release of noisy tables"):
            other.project(body, earlier=given)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="one declared snapshot"):
        other.project("mixtures", earlier=replace(one, provenance=replace(one.provenance, snapshot=None)))
    with pytest.raises(PlanError, match="different workloads"):
        released(planned(TRIPLES, REST, one), x, "third").project("mixtures", earlier=one)
    with pytest.raises((PlanError, NotAnswerable), match="Gaussian noise"):
        other.project("mixtures", earlier=replace(direct, provenance=replace(one.provenance, anchor="direct")))
