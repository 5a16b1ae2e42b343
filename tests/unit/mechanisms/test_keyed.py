"""Plans for keys: which mechanism, which noise, and what is refused before anything is drawn or read."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtr, ndtri
from typer.testing import CliRunner

import sfumato as sf
from sfumato.check_release import Check
from sfumato.cli import app
from sfumato.curator.keys.counts import KeyTable, NamedKeys
from sfumato.curator.keys.curator import _heavy_hitters
from sfumato.errors import BudgetError, InvalidInput, PlanError
from sfumato.plans.keys import KeyPlan
from sfumato.privacy.accounting import (
    ApproxEvent,
    ApproxGaussianEvent,
    GaussianEvent,
    PureEvent,
    event_from_text,
    event_to_text,
)
from sfumato.privacy.keyed import Stability, costs_at_most
from sfumato.privacy.noise import DiscreteLaplace, RoundedGaussian
from sfumato.privacy.unit import PrivacyUnit
from sfumato.releases.sketches import count_ends
from sfumato.sketches import Buckets
from support.words import plan_with

KEYS = sf.Keys()
APPROX = sf.approx(1, "1e-6")


def plan(budget: sf.Budget = APPROX, **options: Any) -> KeyPlan:
    return plan_with(KEYS, budget, **({"neighbours": "add-remove"} | options))


def test_the_default_is_a_hybrid_where_there_is_a_delta() -> None:
    assert plan().mechanism == "hybrid"
    assert plan(sf.pure(1)).mechanism == plan(sf.zcdp("0.5")).mechanism == "count-sketch"
    assert "takes an (epsilon, delta) budget" in plan(sf.pure(1)).candidates["note"][0]


def test_known_queries_are_counted_where_that_is_best() -> None:
    """S12.7: the union histogram has the sketch's noise without its collisions."""
    found = plan(records=10**5, queries=[[1, 2], [2, 3, 4]])
    assert found.mechanism == "histogram"
    assert found.map.rows == 4
    errors = dict(zip(found.candidates["mechanism"], found.candidates["error"], strict=True))
    assert min(errors, key=lambda name: errors[name]) == "histogram"
    assert errors["count-sketch"] == pytest.approx(found.error(2.5) * (1 + 0.1 / 1.84 / 2), rel=0.01)
    assert plan(queries=[[1]]).mechanism == "histogram"


def test_the_smaller_noise_is_taken() -> None:
    """Laplace at a pure epsilon of 1, Gaussian where the budget is stated in rho."""
    laws = [(sf.pure(1), DiscreteLaplace(1)), (APPROX, DiscreteLaplace(1)), (sf.gdp(1), RoundedGaussian(1))]
    for budget, law in laws:
        found = plan(budget, mechanism="count-sketch")
        assert found.noise == law
        assert type(found.price) is (PureEvent if isinstance(law, DiscreteLaplace) else GaussianEvent)
    doubled = plan(sf.pure(1), mechanism="count-sketch", neighbours="replace-one")
    assert doubled.noise == DiscreteLaplace(2)


def test_predictions_of_the_specification() -> None:
    """S12.5, 100,000 distinct records: SparseProject 23.9 / 47.8 / 95.6 / 191, CountSketch below 5.7 / 11.3 / 23."""
    projected = plan(mechanism="sparse-project", records=100_000)
    assert projected.map.rows == 5603
    assert [projected.error(m) for m in (16, 64, 256, 1024)] == pytest.approx([23.9, 47.8, 95.6, 191.2], abs=0.05)
    sketched = plan(sf.pure(1), records=100_000)
    assert sketched.map.rows == 2**20
    assert [sketched.error(m) for m in (16, 64, 256, 1024)] == pytest.approx([5.57, 11.1, 22.3, 44.5], rel=0.01)
    assert sketched.worst_error(1) == pytest.approx(1e5 / 1024, rel=0.01)


def test_a_hybrid_shares_its_budget() -> None:
    found = plan(mechanism="hybrid", share="0.5", neighbours="replace-one", records=1000)
    assert found.stability is not None
    assert (found.stability.noise, found.noise) == (DiscreteLaplace(4), DiscreteLaplace(4))
    assert found.price == ApproxEvent(Fraction(1), Fraction(1, 10**6))
    assert found.error(4) < found.worst_error(4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mechanism": "pmw"}, "'hybrid', 'count-sketch'"),
        ({"queries": []}, "no keys"),
        ({"queries": [[]]}, "no keys"),
        ({"queries": [5]}, "list of queries"),
        ({"queries": [[-1]]}, "outside the universe"),
        ({"records": 0}, "records"),
        ({"records": 1.5}, "records"),
        ({"records": 2**53}, "records"),
        ({"mechanism": "count-sketch", "width": 1000}, "power of two"),
        ({"mechanism": "sparse-project", "dimension": 0}, "dimension"),
        ({"mechanism": "sparse-project", "records": 10**9}, "would need"),
        ({"mechanism": "sparse-project", "budget": sf.pure(1)}, "Gaussian"),
        ({"mechanism": "hybrid", "budget": sf.gdp(1)}, "delta"),
        ({"mechanism": "count-sketch", "independence": 3}, "independence is a whole number"),
        ({"mechanism": "hybrid", "share": 0}, "share is the part"),
        ({"mechanism": "hybrid", "share": 1}, "share is the part"),
        ({"mechanism": "hybrid", "share": "nan"}, "share"),
        ({"neighbours": "both"}, "neighbours"),
        ({"budget": 1}, "budget"),
    ],
)
def test_what_cannot_be_planned_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(sf.errors.InvalidInput, match=message):
        plan(**options)


def test_a_plan_explains_itself() -> None:
    text = str(plan(records=1000, queries=[[1]], mechanism="auto"))
    assert "considered hybrid" in text
    assert "delta" in str(plan())
    assert "known with records=" in str(plan())
    assert "at worst" in str(plan(records=1000))
    with pytest.raises(sf.errors.PlanError, match="records="):
        plan().error(1)
    for size in (-1, True, "1", float("nan")):
        with pytest.raises(sf.errors.PlanError):
            plan(records=5).error(size)  # type: ignore[arg-type]


def test_a_histogram_answers_what_was_planned_alone() -> None:
    found = sf.release(plan(queries=[[1, 5]]), sf.KeyCounts([1, 1, 9]), ledger=None)
    assert abs(found.ask([1]).value - 2) < 60
    with pytest.raises(sf.errors.WorkloadError, match="not among"):
        found.ask([1, 9])


def test_texts_are_asked_as_texts() -> None:
    keys = sf.Keys("url", "text")
    made = sf.plan(keys, APPROX, neighbours="add-remove")
    found = sf.release(made, sf.KeyCounts(["a"] * 500 + ["b"]), ledger=None)
    assert abs(found.ask(["a"]).value - 500) < 60
    assert abs(found.ask(["b", "c"], [1, -1]).value) < 80
    names, counts = found.heavy
    assert names.tolist() == ["a"]
    assert abs(int(counts[0]) - 500) < 150


def test_heavy_texts_are_shown_as_texts(tmp_path: Path) -> None:
    """Mutants: shown by their hashes; a text of a single record named for a hash that others reached; strangers' text
    that is alive."""
    odd = {"=1+1": 900, "</td>": 800, "a\u202eb": 700, "x" * 300: 600, "1.0": 450, "1": 50, "rare": 1}
    keys = sf.Keys("url", "text")
    found = sf.release(
        sf.plan(keys, APPROX, neighbours="add-remove"), sf.KeyCounts([*odd], counts=[*odd.values()]), ledger=None
    )
    names, counts = found.heavy
    assert names.tolist() == ["=1+1", "</td>", "1"]
    assert counts[2] == pytest.approx(500, abs=150)
    assert found.measurement.heavy_texts.count("") == 2
    assert "'=1+1" in found.explain()
    assert "rare" not in found.explain()
    found.save(tmp_path / "s")
    assert sf.load(tmp_path / "s").heavy[0].tolist() == names.tolist()
    told = CliRunner().invoke(app, ["show", str(tmp_path / "s")])
    assert "</td>" in told.output
    asked = CliRunner().invoke(app, ["keys", "ask", str(tmp_path / "s"), "1"])
    assert asked.exit_code == 0, asked.output


@pytest.mark.parametrize("aside", [None, "5e-7"])
@pytest.mark.parametrize("share", ["31/32", "1/8"])
@pytest.mark.parametrize("miss", [0.05, 0.001])
def test_intervals_of_shown_counts_hold_given_that_they_were_shown(share: str, miss: float, aside: str | None) -> None:
    """Every true count, every noisy count: the exact probability, given the threshold was reached.

    Mutants: intervals of the noise alone, which hold of a count of 1 in none; a threshold off by one.
    """
    asked = sf.Keys("k", kind="text"), sf.approx(1, "1e-6", thresholds=aside)
    law = sf.plan(*asked, neighbours="add-remove", mechanism=sf.mechanisms.hybrid(share=share)).stability
    scale = float(law.noise.scale if aside is None else law.noise.sigma)
    noisy = law.threshold + np.arange(int(60 * scale))
    low, high = count_ends(noisy, law, miss)
    assert (low <= noisy).all()
    assert (noisy <= high).all()
    assert (np.diff(low) >= 0).all()
    assert (np.diff(high) >= 0).all()
    true = np.arange(1, law.threshold + int(20 * scale))[:, None]
    far = np.abs(noisy - true)
    chance = np.exp(-far / scale) if aside is None else ndtr((0.5 - far) / scale) - ndtr((-0.5 - far) / scale)
    chance /= chance.sum(axis=1, keepdims=True)
    held = (chance * ((low <= true) & (true <= high))).sum(axis=1)
    assert held.min() >= 1 - miss - 1e-9
    # as wide as they must be: some are hardly above, but for the steps of whole numbers
    assert held.min() <= 1 - miss * (0.3 if scale < 2 else 0.7)
    assert low[0] == 1
    plain = far <= scale * (np.log(1 / miss) if aside is None else -ndtri(miss / 2)) + 1
    assert (chance * plain).sum(axis=1).min() < 0.1
    # far from the threshold they are those of the noise
    assert abs(high[-1] - noisy[-1] - (noisy[-1] - low[-1])) <= 1


def test_heavy_keys_under_gaussian_noise_keep_their_bound_exactly() -> None:
    """Every event of what is shown of one key, as counts rise by one, at delta .05; and prices to the last digit.

    Mutants: a threshold one lower; noise that is divided by mu^2; a replaced record priced as an added one.
    """
    budget = sf.approx(1, "0.1", thresholds="0.05")
    plan = sf.plan(sf.Keys("k"), budget, neighbours="add-remove", mechanism=sf.mechanisms.hybrid(share="1/2", width=16))
    law, unit = plan.stability, plan.unit
    assert law is not None
    assert plan.price == ApproxGaussianEvent(budget.mu_squared, "0.05")
    sigma, mu, delta = float(law.noise.sigma), float(budget.mu_squared / 2) ** 0.5, 0.05
    values = law.threshold + np.arange(200)

    def shown(n: int) -> np.ndarray:
        """The law of what comes out: nothing, or a noisy count."""
        p = ndtr((values + 0.5 - n) / sigma) - ndtr((values - 0.5 - n) / sigma)
        return np.append(p, 1 - p.sum()) if n else np.append(0 * p, 1.0)

    worst = -1.0
    for n in range(30):
        for p, q in ((shown(n), shown(n + 1)), (shown(n + 1), shown(n))):
            order = np.argsort(-np.divide(q, p, out=np.full_like(p, np.inf), where=p > 0), kind="stable")
            most = delta + (1 - delta) * ndtr(ndtri(np.minimum(1, np.cumsum(p[order]) / (1 - delta))) + mu)
            worst = max(worst, float((np.cumsum(q[order]) - most).max()))
    assert -0.02 < worst <= 1e-9
    assert law.delta <= Fraction(1, 20) < replace(law, threshold=law.threshold - 1).delta
    fits = partial(costs_at_most, plan.map, plan.noise, law)
    assert fits(unit, plan.price)
    assert law.event(PrivacyUnit("replace-one")) == GaussianEvent(2 / law.noise.sigma**2)
    assert not fits(PrivacyUnit("replace-one"), plan.price)
    assert not fits(unit, ApproxGaussianEvent(budget.mu_squared * Fraction(999, 1000), "0.05"))
    assert not fits(unit, ApproxGaussianEvent(budget.mu_squared, law.delta * Fraction(999, 1000)))
    assert not fits(unit, ApproxEvent(1, "0.05"))


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_heavy_keys_are_paid_from_a_ledger_of_mu_squared(tmp_path: Path, neighbours: Any) -> None:
    """By the budget that sets delta aside for thresholds, and a stranger finds their price."""
    budget = sf.approx(1, "1e-6", thresholds="5e-7")
    ledger = sf.Ledger.create(tmp_path / "l.db", total=budget)
    plan = sf.plan(sf.Keys("k", kind="text"), budget, neighbours=neighbours, mechanism=sf.mechanisms.hybrid(width=64))
    frame = pd.DataFrame({"k": ["flu"] * 900 + ["cold"] * 700 + ["rare"] * 2})
    release = sf.release(plan, frame, ledger=ledger, name="a", out=tmp_path / "a.sketch")
    found = release.top(2, confidence=1 - 1e-8)
    assert list(found["key"]) == ["flu", "cold"]
    assert all(low <= n <= high for n, low, high in zip([900, 700], found["low"], found["high"], strict=True))
    assert ledger.remaining < budget.mu_squared / 10**9
    seen = Check(tmp_path / "a.sketch", tmp_path / "l.db", None, None)
    assert (seen.verdict, seen.wrong) == ("accepted", [])
    lie = replace(plan.stability, threshold=plan.stability.threshold - 1)
    with pytest.raises(PlanError):
        replace(plan, stability=lie).agree()


def test_the_largest_of_shown_keys_come_with_intervals() -> None:
    texts = ["flu"] * 400 + ["cold"] * 300 + ["rare"] * 3 + ["gout"] * 200
    asked = {"mechanism": "hybrid", "share": "31/32", "neighbours": "add-remove"}
    plan = plan_with(sf.Keys("k", kind="text"), sf.approx(1, "1e-6"), width=16, **asked)
    release = sf.release(plan, pd.DataFrame({"k": texts}), ledger=None)
    found = release.top(2, confidence=1 - 1e-8)
    assert list(found["key"]) == ["flu", "cold"]
    assert all(low <= n <= high for n, low, high in zip([400, 300], found["low"], found["high"], strict=True))
    together = release.top(9, confidence=1 - 1e-8, simultaneous=True)
    assert len(together["key"]) == 3
    assert together["high"][0] - together["low"][0] > found["high"][0] - found["low"][0]
    assert "low" in str(release)
    with pytest.raises(InvalidInput, match="whole number"):
        release.top(0)
    sketch = plan_with(sf.Keys("k", kind="text"), sf.pure(1), mechanism="count-sketch", neighbours="add-remove")
    with pytest.raises(InvalidInput, match="hybrid"):
        sf.release(sketch, pd.DataFrame({"k": texts}), ledger=None).top()


def test_a_hash_that_texts_share_tells_nothing_of_one_record() -> None:
    """Mutant: texts found again by the hash of what was shown."""
    stability = Stability(DiscreteLaplace(Fraction(1)), 40)
    hashes = np.array([5, 5, 7], dtype=np.uint64)
    named = NamedKeys(np.array(["z", "alone", "y"], dtype=object), hashes, np.array([500, 1, 900]))
    table = KeyTable.of(hashes, named.counts, named)
    heavy, counts, texts = _heavy_hitters(table, stability)
    assert (heavy.tolist(), texts) == ([5, 7], ("z", "y"))
    assert counts[0] == pytest.approx(500, abs=30)
    both = NamedKeys(named.texts, hashes, np.array([500, 600, 900]))
    heavy, counts, texts = _heavy_hitters(KeyTable.of(hashes, both.counts, both), stability)
    assert (heavy.tolist(), texts) == ([5, 7], ("alone", "y"))
    assert counts[0] == pytest.approx(1100, abs=60)


def test_weights_that_cancel_keep_their_intervals() -> None:
    """Keys of one bucket with opposite weights read nothing off the sketch, and still may be anything."""
    made = plan(sf.pure(1), mechanism="count-sketch", width=1)
    found = sf.release(made, sf.KeyCounts([1] * 900), ledger=None)
    signs = [made.map.at(np.array([k], dtype=np.uint64), np.ones(1))[1][0] for k in (1, 2)]
    answer = found.ask([1, 2], [1, -signs[0] * signs[1]])
    assert answer.value == 0
    assert answer.low < -900 < 900 < answer.high
    assert tuple(found.ask([1], [0])) == (0, 0, 0, 0) == tuple(found.ask([]))


def test_hashes_are_drawn_with_each_plan() -> None:
    one, other = plan(), plan()
    assert isinstance(one.map, Buckets)
    assert isinstance(other.map, Buckets)
    assert one.map.coefficients.tolist() != other.map.coefficients.tolist()
    assert one.fingerprint != other.fingerprint


def test_an_approximate_event_is_one_line() -> None:
    event = ApproxEvent(Fraction(1, 2), Fraction(1, 10**6))
    assert event_from_text(event_to_text(event)) == event
    for text in ("approx 1", "approx 1 2", "approx 1 0", "pure 1 1", "approx 1 1/2 1/2", "approx 1  1/2"):
        with pytest.raises(BudgetError):
            event_from_text(text)


def test_persons_with_several_records() -> None:
    """Mutants: noise of a single record; a hybrid planned for several, which the curator would refuse when paid."""
    options: dict[str, Any] = {"neighbours": "add-remove", "person": "who", "records": 1000}
    several = plan_with(sf.Keys(), sf.approx(1, "1e-6"), rows_per_person=3, **options)
    assert several.mechanism == "count-sketch"
    assert several.noise == DiscreteLaplace(3)
    with pytest.raises(sf.errors.PlanError, match="one record a person"):
        plan_with(sf.Keys(), sf.approx(1, "1e-6"), rows_per_person=3, mechanism="hybrid", **options)
    assert plan_with(sf.Keys(), sf.approx(1, "1e-6"), **options).mechanism == "hybrid"
    gauss = sf.plan(
        sf.Keys(), sf.zcdp("0.5"), neighbours="replace-one", person="who", rows_per_person=3, mechanism="count-sketch"
    )
    assert gauss.noise == RoundedGaussian(6)


def test_a_histogram_in_a_session_stands_among_the_candidates_and_no_sketch_errs_less() -> None:
    """Mutants: priced for add-remove under replace-one; left out."""
    for budget in (sf.pure(1), sf.approx(1, "1e-6"), sf.zcdp("0.5")):
        for neighbours, changed in (("add-remove", 1), ("replace-one", 2)):
            found = sf.plan(sf.Keys(), budget, neighbours=neighbours, records=100_000)
            errors = {c.mechanism: c.error for c in found.considered if c.error is not None}
            own = errors.pop("histogram in a session")
            assert own <= min(errors.values())
            assert found.mechanism in errors
            if budget.kind == "pure":
                assert own == pytest.approx(DiscreteLaplace(changed).variance ** 0.5)
            queries = [[1, 2, 3]]
            known = sf.plan(sf.Keys().queries(queries), budget, neighbours=neighbours, records=100_000)
            assert known.mechanism == "histogram"
