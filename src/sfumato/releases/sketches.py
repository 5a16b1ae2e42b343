"""A released sketch: a publishable file that answers any later sparse query over its keys, at no further cost."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from sfumato._util.codec import storable, value_fingerprint
from sfumato._util.description import Description, Facts, TitledTable
from sfumato._util.documents import read_document
from sfumato._util.frames import Frame, safe_text
from sfumato.errors import InvalidInput, WorkloadError
from sfumato.plans.keys import KeyPlan
from sfumato.plans.planned import protection_lines
from sfumato.plans.predictions import check_confidence, interval_margins
from sfumato.privacy.keyed import KeyMeasurement, Stability
from sfumato.privacy.noise import DiscreteLaplace, RoundedGaussian
from sfumato.releases.answers import Answer
from sfumato.releases.released import Provenance, ReleaseBase
from sfumato.sketches.maps import Buckets, Words

_DRAWN = 4_096  # choices of buckets: their share of 95 % is then known to 0.35 %
_READ = 1_024  # buckets of one choice: a query of more takes tenths of a second to draw for, and a formula is near
_HEAVY_SHOWN = 20  # in words
_KEPT = 1_024  # widths that a release keeps: at most 8 MB of sizes


@storable
@dataclass(frozen=True, eq=False, repr=False)
class SketchRelease(ReleaseBase):
    """A noisy sketch of counts by key, which may be published and answers any later query about keys.

    Answers are unbiased over noise and hash, and may be negative or fractional.

    Args:
        plan: The plan that was carried out.
        measurement: The noisy integers that were measured, and the heavy keys that are shown.
        provenance: When, by which versions and from which ledger it was made.

    Guarantee:
        The measurement satisfies the plan's budget for the plan's privacy unit; everything else is post-processing.
    """

    plan: KeyPlan
    measurement: KeyMeasurement
    provenance: Provenance

    def agree(self) -> None:
        super().agree()
        plan, found = self.plan, self.measurement
        if value_fingerprint([found.map, found.noise]) != value_fingerprint([plan.map, plan.noise]):
            raise InvalidInput("its values are of another map, or of other noise, than its plan describes")
        least = found.heavy_counts.max(initial=0) + 1 if plan.stability is None else plan.stability.threshold
        if (found.heavy_counts < least).any():
            raise InvalidInput("it shows keys that its plan hides")

    def ask(
        self, keys: ArrayLike | Iterable[str], weights: ArrayLike | None = None, *, confidence: float = 0.95
    ) -> Answer:
        """The sum of weights times counts of some keys, in records.

        The standard error is that of the noise, exactly for this hash, and of what other keys put into the same rows of
        the sketch, from its own estimate of their squared counts. It is so on average over hashes: in one file a bucket
        with a heavy key is far off for every query that reads it, and all others are better than stated; a hybrid
        leaves no such key. The interval holds within the file: of a count sketch it is as wide as at least that share
        of all ways to read as many of its buckets are off, by what the buckets hold.

        Args:
            keys: The keys, each once.
            weights: One finite number per key; None takes 1 each.
            confidence: The probability, strictly between 0 and 1, of the interval.

        Returns:
            The answer, with its standard error and its interval.

        Raises:
            WorkloadError: A key is outside the universe or given twice, the weights are not such numbers, or, of a
                histogram, a key was not planned.
            PlanError: The confidence is no such probability.
        """
        level = check_confidence(confidence)
        elements, w = self.plan.keys.query(keys, weights)
        rows, reading = self.measurement.map.at(elements, w)
        sketched = float(reading @ self.measurement.values[rows])
        squares = reading * reading
        second, fourth = float(squares.sum()), float(squares @ squares)
        noise = second * self.measurement.noise.variance
        total, own = noise, 0.0
        shrinkage = self.measurement.map.shrinkage
        if shrinkage:
            own = max(0.0, sketched * sketched - noise) / shrinkage
            total += float(w @ w) * self.squared_norm / shrinkage + own
        value = sketched + self._shown(elements, w)
        error = math.sqrt(total)
        reach = self._reach(level, total, second, fourth)
        if isinstance(self.measurement.map, Buckets):
            # what the query's own keys do to one another comes on top of what others do
            others = total - own
            more = math.sqrt(total / others) if others > 0 else 1.0
            reach = max(reach, self._within(level, reading) * more)
        return Answer(value, error, value - reach, value + reach)

    def _reach(self, confidence: float, total: float, second: float, fourth: float) -> float:
        """Half-width of an interval, from the variance and the sums of squares and fourth powers of what was read."""
        law = self.measurement.noise
        if not self.measurement.map.shrinkage:
            return float(interval_margins(confidence, np.array([second]), np.array([fourth]), law)[0])
        if law.variance < 1:
            # on so coarse a lattice collisions are not smoothed by noise; Chebyshev needs no shape
            return math.sqrt(total / (1 - confidence))
        # what collides is taken to be shaped as the noise is
        equal = total / law.variance
        shape = fourth / second**2 if second else 1.0
        return float(interval_margins(confidence, np.array([equal]), np.array([shape * equal**2]), law)[0])

    def _within(self, confidence: float, reading: NDArray[np.float64]) -> float:
        """How far what is read is off in at least that share of all choices of as many buckets of this very file.

        A bucket that none of a query's keys puts anything into is off by all that it holds, noise included, and the
        hash leaves it open which those are. For one bucket the share is counted, for several it is that of drawn
        choices, with two standard errors of the drawing; where too many are read for that, or a share so near 1 is
        wanted, Markov's inequality bounds it by the buckets' second and fourth moments.
        """
        # signs are drawn evenly and buckets alike, so sizes alone count: queries of as many keys mostly share them
        sizes = np.sort(np.abs(reading))
        key = (confidence, sizes.tobytes())
        if key not in self._widths:
            if len(self._widths) >= _KEPT:
                self._widths.clear()
            self._widths[key] = self._width_within(confidence, sizes)
        return self._widths[key]

    @functools.cached_property
    def _widths(self) -> dict[tuple[float, bytes], float]:
        """What `_within` found, by its share and the sizes of what is read."""
        return {}

    def _width_within(self, confidence: float, reading: NDArray[np.float64]) -> float:
        held = self._held
        if len(reading) == 1:
            at = math.ceil(confidence * (held.size + 1))
            if at <= held.size:
                return abs(float(reading[0])) * float(held[at - 1])
        elif len(reading) <= _READ:
            spread = 2 * math.sqrt(confidence * (1 - confidence) * _DRAWN)
            if (at := math.ceil(confidence * (_DRAWN + 1) + spread)) <= _DRAWN:
                rng = np.random.default_rng(0)  # always the same choices: the interval is a function of the file
                shape = (_DRAWN, len(reading))
                off = (held[rng.integers(held.size, size=shape)] * rng.choice((-1.0, 1.0), shape)) @ reading
                return float(np.partition(np.abs(off), at - 1)[at - 1])
        second, fourth = (float(np.mean(held**k)) for k in (2, 4))
        squares = reading * reading
        variance = float(squares.sum()) * second
        last = 3 * variance**2 + float(squares @ squares) * (fourth - 3 * second**2)
        return min(math.sqrt(variance / (1 - confidence)), (max(last, 0.0) / (1 - confidence)) ** 0.25)

    @functools.cached_property
    def _held(self) -> NDArray[np.float64]:
        """What the buckets hold, by size, smallest first."""
        return np.sort(np.abs(self.measurement.values.astype(np.float64)))

    def _shown(self, elements: Words, weights: NDArray[np.float64]) -> float:
        """What shown keys contribute to a query."""
        heavy = self.measurement.heavy
        if not heavy.size:
            return 0.0
        place = np.minimum(np.searchsorted(heavy, elements), heavy.size - 1)
        known = heavy[place] == elements
        return float(weights[known] @ self.measurement.heavy_counts[place[known]])

    @functools.cached_property
    def squared_norm(self) -> float:
        """The sum of squared counts of what was sketched, estimated from the sketch itself; at least 0.

        Unbiased before it is cut off at 0: the noise adds its known variance to every row.
        """
        values = self.measurement.values.astype(np.float64)
        excess = float(values @ values) - values.size * self.measurement.noise.variance
        return max(0.0, excess) * self.measurement.map.squared_weights()

    def error(self, size: float) -> float:
        """The root mean squared error of a query, from what was planned and what came out.

        Args:
            size: The number of keys of the query, each of weight 1.

        Returns:
            The error, in records.

        Raises:
            PlanError: The size is not allowed.
        """
        return self.plan.error(size, self.squared_norm)

    @property
    def heavy(self) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Keys shown by the stability histogram, and their noisy counts.

        Numbers are sorted; texts come by their counts, the largest first, but for those of more than 256 bytes or with
        characters that cannot be seen.

        Raises:
            WorkloadError: The texts of the keys were not stored, as in files of version 0.2: ask for those of interest.
        """
        found = self.measurement
        if self.plan.keys.kind != "text":
            return found.heavy.astype(np.int64), found.heavy_counts.copy()
        if len(found.heavy) and not found.heavy_texts:
            raise WorkloadError("text keys are stored as hashes in this file; ask() for the texts of interest")
        texts, order = np.array(found.heavy_texts, dtype=object), np.argsort(-found.heavy_counts, kind="stable")
        order = order[[bool(found.heavy_texts[i]) for i in order]] if len(order) else order
        return texts[order], found.heavy_counts[order]

    def top(self, count: int = _HEAVY_SHOWN, *, confidence: float = 0.95, simultaneous: bool = False) -> Frame:
        """The keys that were shown with the largest noisy counts, with intervals that hold given that they were shown.

        Keys are shown where their noisy count reaches a threshold, so counts near it are too large on average. The
        intervals know that: they are those of the noise, cut off at the threshold. Of a key near it the lower end is 1,
        for keys that are much rarer come out as it did.

        Args:
            count: How many keys, from 1 on.
            confidence: The probability, strictly between 0 and 1, with which each interval holds.
            simultaneous: Whether all of them hold together with that probability.

        Returns:
            One row per key: its noisy count in records, and the ends of its interval.

        Raises:
            InvalidInput: The number is none, or the sketch shows no keys.
            PlanError: The confidence is no such probability.
            WorkloadError: The texts of the keys were not stored, as in files of version 0.2.

        Guarantee: given that a key was shown, its interval holds its count with at least that probability, whatever
            other keys were shown. It does not hold of two texts with one hash, whose counts are added up.

        Source:
            [FST14]
        """
        level = check_confidence(confidence)
        law = self.plan.stability
        if type(count) is not int or count < 1 or law is None:
            raise InvalidInput(f"a hybrid shows keys, and a number of them is a whole number from 1 on, not {count!r}")
        keys, counts = self.heavy
        first = np.argsort(-counts, kind="stable")[:count]
        miss = (1 - level) / max(1, len(self.measurement.heavy)) if simultaneous else 1 - level
        low, high = count_ends(counts[first], law, miss)
        columns = {"key": keys[first], "records": counts[first], "low": low, "high": high}
        return Frame({name: column.tolist() for name, column in columns.items()})

    def describe(self) -> Description:
        facts = [
            ("guarantee", str(self.plan.budget)),
            *protection_lines(self.plan.unit, self.plan.price),
            ("measured", f"{self.plan.mechanism} over {self.plan.keys.describe()}"),
            ("recorded", self.provenance.where),
        ]
        headline = f"Sketch {self.provenance.name!r}: {self.plan.map.rows:,} noisy integers{self._heavy()}"
        return Description(headline, [Facts(facts), *self._shown_table()])

    def _shown_table(self) -> Iterator[TitledTable]:
        """The heavy keys, where they can be named: shown and measured already, so to print them costs nothing."""
        if not self.measurement.heavy.size or (self.plan.keys.kind == "text" and not self.measurement.heavy_texts):
            return
        found = self.top()
        columns = {name: list(found[name]) for name in found.columns}
        yield TitledTable("Heavy keys", Frame(columns | {"key": [safe_text(str(key)) for key in columns["key"]]}))

    def brief(self) -> str:
        return f"{self.plan.mechanism}: {self.plan.map.rows:,} noisy integers{self._heavy()}"

    def _heavy(self) -> str:
        return f", {self.measurement.heavy.size:,} heavy keys" if self.plan.stability else ""


def count_ends(counts: NDArray[np.int64], law: Stability, miss: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The ends of intervals of counts that are known with noise, given that they reach a threshold.

    counts: (keys,) noisy counts, in records, each at least the threshold. miss: half of it is the probability with
    which a key that was shown has a noisy count as large, if it has fewer records than the lower end; and as small, if
    it has more than the upper end. Both only fall as a count moves away, so the ends are found by halving. A key that
    occurs has one record. An interval holds the noisy count itself, which makes it no smaller.
    """
    tail, threshold = partial(_noise_tail, law.noise), law.threshold

    def as_large(n: NDArray[np.int64]) -> NDArray[np.bool_]:
        return tail(counts - n) / tail(threshold - n) > miss / 2

    def as_small(n: NDArray[np.int64]) -> NDArray[np.bool_]:
        # n is the noisy count or more: what lies between is below the middle of the noise, whose law is even
        between = tail(n - counts) - tail(n - threshold + 1)
        return between / tail(threshold - n) > miss / 2

    far, noise = math.log(2 / miss), law.noise  # beyond as many units of the law there is less than half the miss
    units = float(noise.scale) * far if isinstance(noise, DiscreteLaplace) else float(noise.sigma) * math.sqrt(2 * far)
    reach = math.ceil(units) + 2
    low = _halved(np.ones_like(counts) - 1, counts, as_large)
    high = _halved(counts + reach, counts, as_small)
    return low, high


def _noise_tail(noise: DiscreteLaplace | RoundedGaussian, k: NDArray[np.int64]) -> NDArray[np.float64]:
    """P(Z >= k)."""
    if isinstance(noise, RoundedGaussian):
        return np.asarray(ndtr((0.5 - k) / float(noise.sigma)), dtype=np.float64)
    distance = np.where(k > 0, k, 1 - k).astype(np.float64) / float(noise.scale)
    far = np.exp(-distance) / (math.exp(-1 / float(noise.scale)) + 1)
    return np.where(k > 0, far, 1 - far)


def _halved(
    without: NDArray[np.int64], within: NDArray[np.int64], holds: Callable[[NDArray[np.int64]], NDArray[np.bool_]]
) -> NDArray[np.int64]:
    """The last whole numbers from `within` towards `without`, which is left out, for which something holds."""
    out, into = without.copy(), within.copy()
    while (np.abs(out - into) > 1).any():
        middle = (out + into) // 2
        # where both are neighbours the middle is one of them
        middle = np.where(np.abs(out - into) > 1, middle, into)
        found = holds(middle)
        into, out = np.where(found, middle, into), np.where(found, out, middle)
    return into


def load_sketch(path: str | PathLike[str]) -> SketchRelease:
    """Read a sketch that `SketchRelease.save` wrote. Raises InvalidInput for any other file."""
    return read_document(path, SketchRelease)
