"""What measuring a universe of keys costs and what comes out: sensitivities of key maps, a stability histogram's delta.

A stability histogram [KKMN09] adds discrete Laplace noise to the count of every key that occurs and shows those whose
noisy count reaches a threshold. With scale s it is (D / s, delta)-DP, where D = 1 key changes by one (add-remove) or
D = 2 keys do (replace-one), and delta is the chance that a count of one is shown, the same for both relations:

Let P_c be the law of what is shown of a key of count c: P_0 shows nothing; P_1 shows something with probability d; and
P_b and P_(b+1), b >= 1, are e1-close, e1 = 1 / s. Add-remove is one such step, and P_0 and P_1 are (0, d)-close.
Replace-one has x fall from a to a - 1 and y rise from b to b + 1. If a > 1 and b > 0, the pair is 2 e1-close. If a = 1
and b = 0, either table shows something with probability d, else nothing: (0, d)-close. If a = 1 and b > 0, an event E
has in one direction at most d + P_b(E, x hidden) <= d + e^e1 P_(b+1)(E). In the other let p = P_b(E, x hidden) and
q = P_(b+1)(E, x hidden) <= min(1, e^e1 p): then e^(2 e1) (1 - d) p + d >= q (1 - d) + d >= q.

With rounded Gaussian noise it is (D / sigma^2, delta)-approximately Gaussian: the claim of decision 0163 for a weight
of 1 and one label a person, whose proof lets the noisy sums of labels that others have come out too.

A lazy histogram has noise on the count of every key of the universe, whether it occurs or not, and draws it when the
key is first asked for. The draws are independent, so their law is the same as if all had been made at opening, and
what is asked next depends only on what was shown. All answers ever given are then read off one noisy histogram: a
record changes one of its counts by one (add-remove) or two of them (replace-one), L1 1 or 2, squared L2 likewise.

A person with at most c records is c such steps, of which the sum is c times as long: L1 times c, squared L2 times c^2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sfumato._util.codec import deferred_field, storable
from sfumato.errors import InvalidInput, PlanError
from sfumato.privacy.accounting import ApproxEvent, ApproxGaussianEvent, Event, GaussianEvent, PureEvent
from sfumato.privacy.amounts import exp_bounds, normal_cdf_bounds
from sfumato.privacy.noise import DiscreteLaplace, NoiseLaw, RoundedGaussian
from sfumato.privacy.sensitivity import Sensitivity, noise_fits_price, sensitivity_power
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.sketches import KeyMap
from sfumato.sketches.maps import PRIME, Words

MAX_THRESHOLD = 2**40  # above any number of records, so that one more would show nothing
_BITS = 256  # of the chance that Gaussian noise shows a key: to a part of 2^200 of any delta that is asked
_MAX_KEYS = 2**22  # 32 MB: what one question may hold


@storable
@dataclass(frozen=True, slots=True)
class Stability:
    """Keys whose count plus `noise` is at least `threshold` are shown, with that noisy count."""

    noise: DiscreteLaplace | RoundedGaussian
    threshold: int

    def __post_init__(self) -> None:
        if type(self.noise) not in (DiscreteLaplace, RoundedGaussian):
            raise PlanError("a stability histogram has discrete Laplace or rounded Gaussian noise")
        if type(self.threshold) is not int or not 1 <= self.threshold <= MAX_THRESHOLD:
            raise PlanError("the threshold of a stability histogram is a whole number from 1 to 2^40")

    @property
    def delta(self) -> Fraction:
        """The chance that a count of one is shown, rounded up."""
        return noise_tail(self.noise, self.threshold - 1)

    def event(self, unit: PrivacyUnit) -> PureEvent | GaussianEvent:
        """What it costs besides its delta. Raises PlanError for persons with several records."""
        if unit.rows_per_person != 1:
            raise PlanError(
                "heavy keys are shown of one record a person; with more rows_per_person take a count-sketch"
            )
        if isinstance(self.noise, DiscreteLaplace):
            return PureEvent(_changed_keys(unit) / self.noise.scale)
        return GaussianEvent(_changed_keys(unit) / self.noise.sigma**2)


@storable
@dataclass(frozen=True, slots=True, eq=False)
class KeyQuestion:
    """How many records have one of some keys? Its score is |q - estimate| - penalty, all in records; for conversations.

    `elements` are sorted and distinct, so a record is counted once at most and a score moves by no more than one for
    each record of a person, under either relation. Raises PlanError for anything else.
    """

    elements: Words
    estimate: int
    penalty: int

    def __post_init__(self) -> None:
        e = self.elements
        if not isinstance(e, np.ndarray) or e.dtype != np.uint64 or e.ndim != 1 or not 1 <= e.size <= _MAX_KEYS:
            raise PlanError(f"a question names 1 to {_MAX_KEYS:,} keys as field elements")
        if (e[1:] <= e[:-1]).any() or e[-1] > PRIME:
            raise PlanError("the keys of a question are sorted, each once")
        if type(self.estimate) is not int or type(self.penalty) is not int:
            raise PlanError("estimate and penalty of a question are whole numbers")
        object.__setattr__(self, "elements", e.copy())
        self.elements.flags.writeable = False

    def scores(self, answers: Sequence[int]) -> list[int]:
        """The score of an exact answer."""
        return [abs(q - self.estimate) - self.penalty for q in answers]


@storable
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class KeyMeasurement:
    """A map of the counts by key with one draw of noise per row, after the keys that a stability histogram showed.

    `heavy` are those keys as sorted field elements, `heavy_counts` their noisy counts; the map was applied to what
    these leave over. `heavy_texts` are the texts that they are, "" for those that no name can be; empty for numbers.
    Publishable.
    """

    map: KeyMap
    values: NDArray[np.int64]
    noise: NoiseLaw
    heavy: Words
    heavy_counts: NDArray[np.int64]
    heavy_texts: tuple[str, ...] = deferred_field(())

    def __post_init__(self) -> None:
        if self.heavy_texts and len(self.heavy_texts) != len(self.heavy):
            raise InvalidInput("shown keys have one text each, or none has any")
        if self.values.dtype != np.int64 or self.values.shape != (self.map.rows,):
            raise InvalidInput("measured values are int64, one per row of their map")
        if self.heavy.dtype != np.uint64 or self.heavy_counts.dtype != np.int64:
            raise InvalidInput("shown keys are field elements with int64 counts")
        if (
            self.heavy.ndim != 1
            or self.heavy.shape != self.heavy_counts.shape
            or (self.heavy[1:] <= self.heavy[:-1]).any()
        ):
            raise InvalidInput("shown keys are sorted, each once, with one count each")

    def __repr__(self) -> str:
        return f"<KeyMeasurement of {len(self.values):,} noisy integers and {len(self.heavy):,} shown keys>"


def noise_tail(noise: DiscreteLaplace | RoundedGaussian, k: int) -> Fraction:
    """P(Z >= k) for k >= 0, rounded up."""
    if isinstance(noise, DiscreteLaplace):
        return laplace_tail(noise.scale, k)
    # rounded noise is k or more where what was rounded is k - 1/2 or more; bits for whatever delta may be asked
    return 1 - normal_cdf_bounds((k - Fraction(1, 2)) / noise.sigma, _BITS)[0]


def laplace_tail(scale: Fraction, k: int) -> Fraction:
    """P(Z >= k) = q^k / (1 + q) with q = exp(-1 / scale), for k >= 0, rounded up."""
    return exp_bounds(-k / scale)[1] / (1 + exp_bounds(-1 / scale)[0])


def _changed_keys(unit: PrivacyUnit) -> int:
    """How many keys' counts one record changes between neighbours."""
    return 1 if unit.neighbours is Neighbours.ADD_REMOVE else 2


def key_sensitivity(key_map: KeyMap, unit: PrivacyUnit, power: int) -> Sensitivity:
    """The sensitivity of measuring a map, in exact integers; a record whose key is not counted has a zero column.

    power 1: L1; power 2: squared L2. Under replace-one a bound, whatever the hash is.
    """
    if type(power) is not int or power not in (1, 2):
        raise PlanError(f"a sensitivity is L1 (power 1) or L2 (power 2), not {power!r}")
    times = unit.rows_per_person**power
    column = key_map.largest(power)
    if unit.neighbours is Neighbours.ADD_REMOVE:
        return Sensitivity(power, times * column, True)
    return Sensitivity(power, times * max(column, key_map.farthest(power)), False)


def histogram_sensitivity(unit: PrivacyUnit, power: int) -> Sensitivity:
    """The sensitivity of the counts of all keys of the universe, of which a lazy histogram shows some; exact."""
    return Sensitivity(power, unit.rows_per_person**power * _changed_keys(unit), True)


def costs_at_most(
    key_map: KeyMap, noise: NoiseLaw, stability: Stability | None, unit: PrivacyUnit, price: Event
) -> bool:
    """Whether measuring the map, after a stability histogram if there is one, costs at most `price`; exactly.

    What the histogram shows is subtracted from the counts before the map is applied, which changes no difference
    between neighbours, so the two compose: their epsilons add up, or their mu^2.
    """
    found = key_sensitivity(key_map, unit, sensitivity_power(noise))
    if stability is None:
        return noise_fits_price(found, noise, price)
    match price, stability.event(unit):
        case ApproxEvent(epsilon=whole, delta=delta), PureEvent(epsilon=shown):
            left = PureEvent(max(whole - shown, Fraction(0)))
        case ApproxGaussianEvent(mu_squared=whole, delta=delta), GaussianEvent(mu_squared=shown):
            left = GaussianEvent(max(whole - shown, Fraction(0)))
        case _:
            return False
    return stability.delta <= delta and shown < whole and noise_fits_price(found, noise, left)
