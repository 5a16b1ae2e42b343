"""Labels that nobody listed: which of those that occur are shown, and what that costs; proved in decision 0163.

A person with t different labels adds floor(weight / sqrt(t)) to each, so at most `weight` in Euclidean norm whatever t
is. Shown is every label that occurs whose sum, with noise, reaches a threshold. A label that one person alone has is
seen to be theirs once it is shown, so the threshold is one that all labels of one person together reach with
probability `delta` at most, whatever their number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from sfumato._util.codec import deferred_field, storable
from sfumato.errors import PlanError
from sfumato.privacy.accounting import ApproxGaussianEvent, Event, precision_for
from sfumato.privacy.amounts import normal_cdf_bounds
from sfumato.privacy.noise import BitSource, RoundedGaussian
from sfumato.privacy.unit import Neighbours, PrivacyUnit

MOST_LABELS = 100_000  # shown at most: more cells of one attribute, and tables over it, fit no plan
MOST_PER_PERSON = 1_000  # of each number up to it the chance is bounded: seconds; who has more labels counts for few
_MOST_TIMES = 31  # of sums cut at 2^58, which then fit 64 bits
_MOST_SIGMA = 2**40  # no plan has as much; beyond, sums could be cut
CLIPPED_AT = 2**58
"""Sums with noise that are added up are cut here: 31 of them fit 64 bits. Below it lies noise of a sigma of 2^40 with a
probability of less than exp(-2^35), so `_CLIPPED` is more than enough for all labels of a person in all rounds."""
_CLIPPED = Fraction(1, 2**200)  # see above: a bound on the chance that any sum was cut
_MOST_WEIGHT = 2**16  # times 2^36 persons stays below the 2^53 to which noise can be added


@storable
@dataclass(frozen=True, slots=True)
class LabelSelection:
    """The law by which labels are shown. Whoever holds one holds the proof that `delta` is kept.

    Args:
        noise: The noise of each label's sum.
        weight: What a person with one label adds to it.
        per_person: How many different labels of one person count at most.
        threshold: The sum with noise from which on a label is shown.
        delta: The largest probability that a label is shown of those that one person alone has, however many.
        before: Of each round before, how many times its sums with noise are added, and the sigma of that noise. Persons
            leave out labels that were shown then, and take no others in their place.
        times: How many times this round's own sums are added, where there are rounds before.

    Raises:
        PlanError: A number is not allowed, or labels of one person may be shown with a larger probability.
    """

    noise: RoundedGaussian
    weight: int
    per_person: int
    threshold: int
    delta: Fraction
    before: tuple[tuple[int, Fraction], ...] = deferred_field(())
    times: int = deferred_field(1, before=1)

    def __post_init__(self) -> None:
        whole = type(self.weight) is int and type(self.per_person) is int and type(self.threshold) is int
        if type(self.noise) is not RoundedGaussian or not whole or type(self.delta) is not Fraction:
            raise PlanError("labels are shown by rounded Gaussian noise, whole numbers, and an exact delta")
        if not 1 <= self.weight <= _MOST_WEIGHT or not 1 <= self.per_person <= MOST_PER_PERSON:
            raise PlanError(
                f"a person adds 1 to 65,536 to a label, and 1 to {MOST_PER_PERSON:,} labels of one person count"
            )
        if not 1 <= self.threshold < 2**61 or not 0 < self.delta < 1:
            raise PlanError("the threshold of labels is a whole number from 1 to 2^61, and delta lies between 0 and 1")
        counted = [times for times, _ in self.rounds]
        right = all(type(n) is int and n >= 1 for n in counted) and (self.before or self.times == 1)
        if not right or sum(counted) > _MOST_TIMES:
            raise PlanError(f"sums of rounds are added 1 to {_MOST_TIMES} times in all")
        if self.before and not all(type(s) is Fraction and 0 < s <= _MOST_SIGMA for _, s in self.rounds):
            raise PlanError("the noise of rounds that are added up is of another class, or beyond what adds up exactly")
        if not _keeps_delta(self.rounds, self.weight, self.per_person, self.threshold, self.delta):
            raise PlanError("labels that one person alone has would be shown with a probability above delta")

    @property
    def rounds(self) -> tuple[tuple[int, Fraction], ...]:
        """How many times the sums of each round are added, and the sigma of their noise; this round last."""
        return (*self.before, (self.times, self.noise.sigma))

    @property
    def spread(self) -> Fraction:
        """At least the standard deviation of all noise that is compared with the threshold."""
        return _spread(self.rounds)

    @property
    def whole(self) -> int:
        """How many times sums are added, of all rounds."""
        return sum(n for n, _ in self.rounds)

    def added(self, count: int) -> int:
        """What a person with so many labels that count adds to each: floor(weight / sqrt(count)), exactly."""
        return added_weight(self.weight, count)

    def costs_at_most(self, unit: PrivacyUnit, price: Event) -> bool:
        """Whether showing labels costs at most a price, exactly.

        Replaced persons take their weights from some labels and add others: in squares at most twice as much.
        """
        if type(price) is not ApproxGaussianEvent or self.delta > price.delta:
            return False
        changed = self.weight**2 * (1 if unit.neighbours is Neighbours.ADD_REMOVE else 2)
        return changed <= price.mu_squared * self.noise.sigma**2

    def sums(self, labels: int, place: NDArray[np.int64], had: NDArray[np.int64], persons: NDArray[np.int64]) -> Sums:
        """The sum of each label, without noise. Private.

        labels: how many labels there are. Of each line `place` is the number of its label, `had` how many labels that
        count its persons have, and `persons` how many these are.
        """
        added = np.array([0, *map(self.added, range(1, self.per_person + 1))], dtype=np.int64)
        found = np.zeros(labels, dtype=np.int64)
        np.add.at(found, place, added[had] * persons)
        return found

    def shown(self, sums: Sums, most: int, source: BitSource | None = None) -> NDArray[np.intp]:
        """The places of labels whose sum with noise reaches the threshold, and of more than `most` those with the
        largest; in ascending order, so that none comes with its sum.

        Labels to which nobody adds are none that occur: noise alone shows no label.
        """
        return self.reached(sums, self.noisy(sums, source), most)

    def noisy(self, sums: Sums, source: BitSource | None = None) -> Sums:
        """The sums with noise, of labels that occur; 0 elsewhere. Private."""
        found = np.zeros_like(sums)
        occur = np.flatnonzero(sums > 0)
        found[occur] = sums[occur] + self.noise.saturated(len(occur), source)
        return found

    def reached(self, sums: Sums, noisy: Sums, most: int) -> NDArray[np.intp]:
        """The places of labels that occur and reach the threshold with `noisy`, which is of all rounds."""
        reached = np.flatnonzero((sums > 0) & (noisy >= self.threshold))
        return np.sort(reached[np.argsort(-noisy[reached], kind="stable")[:most]])


def added_weight(weight: int, count: int) -> int:
    """floor(weight / sqrt(count)) in whole numbers."""
    return math.isqrt(weight**2 // count)


def _spread(rounds: tuple[tuple[int, Fraction], ...]) -> Fraction:
    """At least the standard deviation of the noise of rounds, added up: of one exactly that."""
    if len(rounds) == 1:
        return rounds[0][1]
    square = sum(((n * s) ** 2 for n, s in rounds), Fraction(0))
    # sqrt(a / b) is sqrt(a b) / b, here to 2^-64 of a whole number and up
    return Fraction(math.isqrt(square.numerator * square.denominator * 2**128) + 1, square.denominator * 2**64)


@lru_cache(maxsize=64)  # plans are built anew wherever they are not trusted
def _keeps_delta(
    rounds: tuple[tuple[int, Fraction], ...], weight: int, per_person: int, threshold: int, delta: Fraction
) -> bool:
    """Whether all labels of one person stay below the threshold with probability 1 - delta, however many; proved.

    Rounded noise is at most 1/2 above Gaussian noise, in each of the sums that are added. Of more labels each has less
    weight, but there are more that may be shown: which number is worst depends on sigma, so every one is looked at. In
    later rounds a person has as many labels or fewer, so the weight of the last bounds those of all.
    """
    whole = sum(times for times, _ in rounds)
    sigma = _spread(rounds)
    kept = 1 - delta if len(rounds) == 1 else 1 - delta + _CLIPPED
    for count in range(1, per_person + 1):
        above = threshold - whole * (added_weight(weight, count) + Fraction(1, 2))
        if len(rounds) > 1 and above <= 0:  # a sigma that is too large errs to the right side above 0 alone
            return False
        # a lower bound of a probability: its powers are lower bounds too
        if normal_cdf_bounds(above / sigma, precision_for(delta))[0] ** count < kept:
            return False
    return True


Sums = NDArray[np.int64]


@storable
@dataclass(frozen=True, slots=True)
class LabelLook:
    """A look that finds the labels of one attribute, and its price.

    Args:
        attribute: The column.
        trim: Whether blanks around a label make no difference.
        most: How many labels are shown at most.
        selection: Which labels are shown.
        price: What the look costs.
        letters: The look is for prefixes of so many letters, of labels that have as many; 0 for whole labels. After a
            look for shorter ones those count that begin with one that was shown.
        columns: The columns whose texts together are the labels, if not the one that is called as the attribute.

    Raises:
        PlanError: The number is not allowed, or a part is of another class.
    """

    attribute: str
    trim: bool
    most: int
    selection: LabelSelection
    price: ApproxGaussianEvent
    letters: int = deferred_field(0)
    columns: tuple[str, ...] = deferred_field(())

    def __post_init__(self) -> None:
        parts = (self.attribute, self.trim, self.most, self.selection, self.price)
        if tuple(map(type, parts)) != (str, bool, int, LabelSelection, ApproxGaussianEvent):
            raise PlanError("a look for labels names its attribute, how many are shown, by which law, and its price")
        if type(self.columns) is not tuple or not all(type(name) is str for name in self.columns):
            raise PlanError("columns that are read together have names")
        if type(self.letters) is not int or self.letters < 0:
            raise PlanError("prefixes have a whole number of letters")
        if not 1 <= self.most <= MOST_LABELS:
            raise PlanError(f"most= is how many labels are shown, a whole number from 1 to {MOST_LABELS:,}")


def rounds_of(looks: Sequence[LabelLook]) -> dict[tuple[str, int], tuple[LabelLook, ...]]:
    """The looks at prefixes of so many letters of each attribute, or at labels (0), in their order."""
    found: dict[tuple[str, int], tuple[LabelLook, ...]] = {}
    for look in looks:
        key = (look.attribute, look.letters)
        found[key] = (*found.get(key, ()), look)
    return found


def are_rounds_whole(looks: Sequence[LabelLook]) -> bool:
    """Whether each round adds up none before it, or all of them as they were: delta is proved of their noise."""
    for rounds in rounds_of(looks).values():
        laws = [k.selection for k in rounds]
        if len({(law.weight, law.per_person) for law in laws}) > 1:
            return False
        drawn = tuple((law.times, law.noise.sigma) for law in laws)
        if any(law.before not in ((), drawn[:i]) for i, law in enumerate(laws)):
            return False
    return True
