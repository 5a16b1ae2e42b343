"""What many pure mechanisms cost together: against enumeration, against the binomial law, against the sum of parts."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import pytest
from scipy.special import ndtr, ndtri
from scipy.stats import binom

from sfumato.privacy.accounting import mu_of_pure
from sfumato.privacy.conversation_price import mu_squared_of_pures

EPSILONS = [Fraction(1, 1000), Fraction(1, 20), Fraction(1, 2), Fraction(3), Fraction(4)]


def _responses(epsilon: float, count: int) -> list[tuple[float, float]]:
    """(P, Q) of every outcome of `count` randomised responses, the most telling first."""
    p = 1 / (1 + math.exp(epsilon))
    outcomes = itertools.product((0, 1), repeat=count)
    law = [(p ** sum(o) * (1 - p) ** (count - sum(o)), (1 - p) ** sum(o) * p ** (count - sum(o))) for o in outcomes]
    return sorted(law, key=lambda pq: pq[0] / pq[1])


@pytest.mark.parametrize("epsilon", EPSILONS[1:], ids=str)
@pytest.mark.parametrize("count", [1, 2, 3, 6])
def test_it_is_the_least_mu_by_enumeration(epsilon: Fraction, count: int) -> None:
    first = second = 0.0
    least = 0.0
    for p, q in _responses(float(epsilon), count)[:-1]:
        first, second = first + p, second + q
        least = max(least, float(ndtri(1 - first) - ndtri(1 - second)))
    assert math.sqrt(mu_squared_of_pures(epsilon, count)) == pytest.approx(least, rel=1e-9)


@pytest.mark.parametrize("epsilon", EPSILONS, ids=str)
@pytest.mark.parametrize("count", [1, 2, 5, 40, 256, 300, 1000])
def test_its_deltas_are_nowhere_below_those_of_randomised_responses(epsilon: Fraction, count: int) -> None:
    mu = math.sqrt(mu_squared_of_pures(epsilon, count))
    p = 1 / (1 + math.exp(epsilon))
    for kept in {0, 1, count // 4, count // 3, count // 2}:
        # the answers that all but `kept` responses agree on betray this epsilon or more
        at = min(float(epsilon) * (count - 2 * kept), 600.0)
        delta = binom.cdf(kept, count, p) - math.exp(at) * binom.sf(count - kept - 1, count, p)
        gaussian = ndtr(mu / 2 - at / mu) - math.exp(at) * ndtr(-mu / 2 - at / mu)
        assert delta <= gaussian + 1e-12


@pytest.mark.parametrize("epsilon", EPSILONS, ids=str)
def test_together_they_cost_no_more_than_one_by_one_and_no_less_than_one(epsilon: Fraction) -> None:
    alone = mu_of_pure(epsilon) ** 2
    costs = [mu_squared_of_pures(epsilon, count) for count in range(1, 9)]
    assert costs[0] == pytest.approx(alone, rel=1e-15)
    assert costs[0] >= alone
    assert all(b > a for a, b in itertools.pairwise(costs))
    assert all(cost < count * alone for count, cost in enumerate(costs[1:], 2))
    # groups add up
    assert mu_squared_of_pures(epsilon, 520) == 2 * mu_squared_of_pures(epsilon, 256) + costs[7]


def test_the_edges() -> None:
    assert mu_squared_of_pures(Fraction(0), 40) == 0
    assert mu_squared_of_pures(Fraction(100), 7) >= 7 * mu_of_pure(Fraction(100)) ** 2
    tiny = Fraction(10) ** -30
    assert float(mu_squared_of_pures(tiny, 40) / (40 * tiny**2)) == pytest.approx(1.01247, rel=1e-4)
