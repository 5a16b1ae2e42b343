"""Arithmetic with answers beyond sums and one ratio: constants, differences of shares, ratios of ratios."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import NotAnswerable, PlanError
from sfumato.releases.answers import Answer, Nonlinear, Ratio

COUNTS = np.array([[3_000, 2_000], [2_500, 2_600], [4_000, 3_800], [900, 800], [600, 550], [400, 450]])


@pytest.fixture(scope="module")
def release() -> sf.Release:
    domain = sf.Domain({"age": 6, "sex": sf.Categories(["f", "m"])})
    plan = sf.plan(sf.marginals(domain, upto=2), sf.gdp(1), neighbours="add-remove")
    return sf.release(plan, sf.Histogram(COUNTS), ledger=None, name="arithmetic")


def test_constants_move_an_answer_and_its_interval(release: sf.Release) -> None:
    """Mutants: a constant that joins the variance; one that is lost when a difference is multiplied."""
    old = release.ask("age >= 4")
    for made, value in (
        (old - 100, old.value - 100),
        (100 - old, 100 - old.value),
        (2 * (old + 5), 2 * old.value + 10),
    ):
        assert made.value == pytest.approx(value)
        assert made.high - made.low == pytest.approx((old.high - old.low) * (2 if value == 2 * old.value + 10 else 1))
    assert (old - 100).standard_error == old.standard_error
    share = old / release.ask("sex in ('f', 'm')")
    rest = 1 - share
    assert rest.value == pytest.approx(1 - share.value)
    assert (rest.low, rest.high) == pytest.approx((1 - share.high, 1 - share.low))
    assert sum([old, old]).value == pytest.approx(2 * old.value)
    for wrong in (math.nan, math.inf, True, "1", None):
        with pytest.raises(TypeError):
            old - wrong  # type: ignore[operator]


def test_numbers_and_names(release: sf.Release) -> None:
    """Mutant: an interval's end in place of the value."""
    old = release.ask("age >= 4", confidence=0.9)
    assert float(old) == old.value
    assert json.loads(json.dumps(old.to_dict())) == {
        "value": old.value,
        "standard_error": old.standard_error,
        "low": old.low,
        "high": old.high,
        "confidence": 0.9,
        "unit": "records",
    }
    assert (old / release.ask("age <= 5", confidence=0.9)).to_dict()["unit"] == ""


def test_differences_of_shares_and_ratios_of_ratios(release: sf.Release) -> None:
    """Mutant: shares of one release taken as independent. What is subtracted from itself is 0, exactly."""
    f, m = release.ask("sex == 'f'"), release.ask("sex == 'm'")
    one, other = release.ask("age <= 1 and sex == 'f'") / f, release.ask("age <= 1 and sex == 'm'") / m
    gap = one - other
    assert gap.value == pytest.approx(one.value - other.value)
    assert gap.low < gap.value < gap.high
    assert gap.standard_error is not None
    assert gap.high - gap.low == pytest.approx(2 * 1.96 * gap.standard_error, rel=0.02)
    assert gap.unit == ""
    relative = one / other
    assert relative.low < one.value / other.value < relative.high
    same = one - one
    assert (same.value, same.low, same.high, same.standard_error) == (0.0, 0.0, 0.0, 0.0)
    assert (one / one).low == pytest.approx(1.0)
    assert "interval" in str(gap)
    with pytest.raises(PlanError, match="do not add"):
        one - f
    with pytest.raises(NotAnswerable, match="ratios of ratios"):
        relative - one
    with pytest.raises(PlanError, match="confidence"):
        one - release.ask("sex == 'm'", 0.9) / release.ask("age <= 5", 0.9)
    projected = release.project()
    shares = [projected.ask(f"age == 2 and sex == '{s}'") / projected.ask(f"sex == '{s}'") for s in "fm"]
    told = shares[0] - shares[1]
    assert told.standard_error is None
    assert told.low <= told.value <= told.high


def test_small_denominators_are_refused() -> None:
    """Below 20 standard errors the interval of a difference may hold in 86 %. Mutant: no such refusal."""
    domain = sf.Domain({"age": 6, "sex": sf.Categories(["f", "m"])})
    plan = sf.plan(sf.identity(domain), sf.gdp(1), neighbours="add-remove")
    few = sf.release(plan, sf.Histogram(COUNTS // 500), ledger=None, name="few")
    shares = [few.ask(f"age <= 2 and sex == '{s}'") / few.ask(f"age <= 3 and sex == '{s}'") for s in "fm"]
    with pytest.raises(NotAnswerable, match="it needs 20"):
        shares[0] - shares[1]
    with pytest.raises(NotAnswerable, match="it needs 20"):
        shares[0] / shares[1]


class Sum:
    """A weighted sum of Gaussians, as `LinearAnswer` is one of answers."""

    projected = False
    reach = None

    def __init__(self, weights: Any, values: Any, covariances: Any) -> None:
        self.weights, self.values, self.covariances = np.asarray(weights), values, covariances

    def value(self, *, raw: bool = False) -> float:
        return float(self.weights @ self.values) + 0 * raw

    def covariance(self, other: Sum) -> float:
        return float(self.weights @ self.covariances @ other.weights)

    def times(self, factor: float) -> Sum:
        return Sum(self.weights * factor, self.values, self.covariances)

    def __add__(self, other: Sum) -> Sum:
        return Sum(self.weights + other.weights, self.values, self.covariances)

    def multiplier(self, level: float) -> float:
        return 1.959963984540054 + 0 * level


def test_their_intervals_hold() -> None:
    """Four correlated counts, drawn (seed 7): a share minus a share, and one over another. Mutants: no correlation;
    the ends of one operand taken for those of the other."""
    rng = np.random.default_rng(7)
    for _ in range(8):
        mix = rng.normal(size=(4, 4)) * rng.choice([0.2, 1.0], size=(4, 1))
        covariances = mix @ mix.T
        errors = np.sqrt(np.diag(covariances))
        truth = errors * np.array([rng.choice([0.5, 3, 15, 60]), *(rng.choice([25, 40]) for _ in range(3))])
        first, second = truth[0] / truth[1], truth[2] / truth[3]
        held = np.zeros(2)
        for values in rng.multivariate_normal(truth, covariances, size=400):
            sums: list[Any] = [Sum(row, values, covariances) for row in np.eye(4)]
            one, other = Ratio(sums[0], sums[1]).bent(0.95), Ratio(sums[2], sums[3]).bent(0.95)
            made: tuple[tuple[Nonlinear, float], ...] = (
                (one.plus(other.times(-1)), first - second),
                (one.over(other), first / second),
            )
            held += [low <= exact <= high for (low, high), exact in ((m.ends(), e) for m, e in made)]
        assert (held >= 0.91 * 400).all(), held / 400


def test_answers_of_models_are_refused() -> None:
    """They have no known covariances."""
    bare = Answer(3.0, None, 1.0, 5.0)
    for work in (lambda: bare - 1, lambda: bare * 2, lambda: bare / bare):
        with pytest.raises(PlanError, match="model or a sketch"):
            work()
