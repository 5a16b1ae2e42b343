"""An audit of streams from outside: an adversary who chooses every table after what was published before.

A million streams of one cell, eight periods each, through the integers and the noise of the wall. In one world a person
is added, in a period that depends on answers too. Whoever watches knows both candidates, so the best statistic is the
likelihood ratio along the path; the audit bounds what it betrays. What must be accepted fails by chance with
probability 2 ALPHA, what must be rejected with about 1e-9.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from sfumato.curator.streams.measuring import filter_period
from sfumato.operators import Family, Identity
from sfumato.privacy.noise import RoundedGaussian
from sfumato.privacy.rounding import sqrt_up
from sfumato.privacy.stream_price import IntegerFilter, StreamTerms
from sfumato.privacy.unit import PrivacyUnit
from sfumato.strategies.periods import Periods
from sfumato.strategies.time_shapes import quantise_time_shape, shape_for
from support.audits import audit, gaussian

PERIODS, CELLS = 8, 1_000_000
TOTAL = (Family(("a",), (Identity(2),), np.zeros((1, 0), dtype=np.int32), np.array([1])).lowered(),)


class Filtered:
    """A million filters, and the counts they are given."""

    def __init__(self, used: IntegerFilter) -> None:
        self.used, self.at = used, 0
        self.high, self.low = (np.zeros((len(used.decays), CELLS), dtype=np.int64) for _ in range(2))

    def step(self, counts: np.ndarray) -> np.ndarray:
        factors = np.broadcast_to(self.used.coefficients(self.at, [1], 0), (1 + len(self.used.decays), CELLS))
        decays = [(int(e), int(g)) for e, g in self.used.decays]
        self.at += 1
        return filter_period(self.high, self.low, counts, factors, decays, self.used.row(self.at - 1), self.used.shift)


def betrayed(used: IntegerFilter, noise: RoundedGaussian, present: bool) -> np.ndarray:
    """(CELLS,) the logarithms of likelihood ratios along the paths of one world, up to a factor."""
    without, with_person = Filtered(used), Filtered(used)
    counts, waiting = np.full(CELLS, 3, dtype=np.int64), np.ones(CELLS, dtype=bool)
    out = np.zeros(CELLS)
    for t in range(PERIODS):
        # the person is in the first period whose answer before was high; in the last at the latest
        now = waiting & ((counts > 4) | (t == PERIODS - 1))
        waiting = waiting & ~now
        means = without.step(counts), with_person.step(counts + now)
        y = means[present] + noise.sample(CELLS)
        moved = (means[1] - means[0]).astype(np.float64)
        out += moved * (y - means[0]) - moved**2 / 2
        counts = np.where(y > np.median(y), 9, 2).astype(np.int64)
    return out[:, None]


def betrays(used: IntegerFilter, sigma: Fraction) -> float:
    worlds = betrayed(used, RoundedGaussian(sigma), False), betrayed(used, RoundedGaussian(sigma), True)
    return audit(worlds, gaussian, (lambda y: y[:, 0],))


@pytest.mark.parametrize("coarse", [False, True])
def test_an_adversary_who_chooses_the_tables_learns_no_more_than_is_paid_for(coarse: bool) -> None:
    """At mu = 1, with fine integers, and with coarse ones where rounding counts. The control: 5 % less noise.
    Mutants: a response without its diagonal, noise of the variance in place of the deviation."""
    used = quantise_time_shape(shape_for(Periods(PERIODS)), 1e-3 if coarse else 1.0)
    terms = StreamTerms(used, TOTAL, 0, RoundedGaussian(Fraction(1)), 1, 1, 100)
    sigma = sqrt_up(terms.squared_shift({"a": 2}, PrivacyUnit("add-remove")))
    assert betrays(used, sigma) <= 1
    if not coarse:
        assert betrays(used, sigma * Fraction(95, 100)) > 1
