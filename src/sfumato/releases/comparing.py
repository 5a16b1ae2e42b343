"""Sums of the answers of two releases of one workload, with the noise of both. Of projected ones the unprojected."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from sfumato._util.codec import value_fingerprint
from sfumato._util.frames import Frame
from sfumato.errors import NotAnswerable, PlanError
from sfumato.operators.base import FloatArray
from sfumato.plans.predictions import (
    check_confidence,
    entry_biases,
    expand_to_queries,
    interval_margins,
    simultaneous_confidence,
)
from sfumato.postprocess.consistency import ResidualNoise
from sfumato.postprocess.noisy_pairs import NoisyPairs, read_noisy
from sfumato.postprocess.projection import joint_attributes, largest_tables
from sfumato.privacy.noise import DiscreteLaplace
from sfumato.releases.linear import value_sum_bounds
from sfumato.releases.tables import Intervals, answers_frame, part_and_label
from sfumato.strategies.attribute_sets import Sets, subset_columns
from sfumato.strategies.impossible_cells import Allowed
from sfumato.strategies.residuals import Residuals
from sfumato.strategies.strategy import Strategy
from sfumato.workloads import QueryBlock

if TYPE_CHECKING:
    from sfumato.releases.release import Release


@dataclass(frozen=True, slots=True, repr=False)
class Comparison:
    """Answers from two releases of one workload, with their standard errors and intervals.

    `sf.combine` and `sf.difference` make comparisons.

    Args:
        what: "pooled" or "difference".
        labels: One text per answer.
        answers: (k,) answers.
        errors: (k,) standard errors.
    """

    what: str
    labels: list[str]
    answers: FloatArray
    errors: FloatArray
    _second: FloatArray
    _fourth: FloatArray | None
    _first: Release
    _bias: FloatArray
    _second_release: Release
    _factors: tuple[FloatArray, FloatArray]

    def standard_errors(self) -> FloatArray:
        """Standard errors of the answers.

        Returns:
            (k,) standard errors.
        """
        return self.errors

    def intervals(self, confidence: float = 0.95, *, simultaneous: bool = False) -> Intervals:
        """Intervals from the actual noise of both releases.

        Intervals of sums over cells of several numbers hold the sums of the values: they go from the cells' lower ends
        to their upper ends in each release.

        Args:
            confidence: The probability, strictly between 0 and 1, with which an interval holds.
            simultaneous: Whether all intervals hold together with that confidence; otherwise each one does.

        Returns:
            `low` and `high`, (k,) each, the confidence, and whether it is that of all intervals together.

        Raises:
            PlanError: The confidence is no such probability.
        """
        level = check_confidence(confidence)
        if simultaneous:
            level = _simultaneous_level(level, len(self.answers), self._first, biased=bool(self._bias.any()))
        width = interval_margins(level, self._second, self._fourth, self._first.measurement.noise, self._bias)
        low, high = self.answers - width, self.answers + width
        start = 0
        for item in self._first.workload.items:
            here = slice(start, start := start + item.rows)
            if isinstance(item, QueryBlock) and value_sum_bounds(self._first, item) is not None:
                low[here] = np.minimum(self._end(item, here, level, -1), self.answers[here])
                high[here] = np.maximum(self._end(item, here, level, 1), self.answers[here])
        return Intervals(low, high, confidence, simultaneous)

    def _end(self, query: QueryBlock, here: slice, level: float, side: int) -> FloatArray:
        """The lower (-1) or upper (1) ends of a sum's intervals; NaN where one measured nothing that bounds it."""
        noise = self._first.measurement.noise
        value, second, fourth, bias = (np.zeros(query.rows) for _ in range(4))
        for release, factors in zip((self._first, self._second_release), self._factors, strict=True):
            factor, found = factors[here], value_sum_bounds(release, query)
            assert found is not None
            # what counts against the other is least where its values are most
            block = found.upper if (side > 0) == bool((factor >= 0).all()) else found.lower
            if block is None:
                return np.full(query.rows, np.nan)
            shaped, strategy = replace(query, block=block), release.plan.strategy
            value += factor * release.raw.answer_block(block)
            unit = release.measurement.noise.variance / noise.variance
            second += factor**2 * expand_to_queries(strategy.row_powers(block, 2), shaped) * unit
            if self._fourth is not None:
                fourth += factor**4 * expand_to_queries(strategy.row_powers(block, 4), shaped) * unit**2
            if (off := entry_biases(strategy, block)[0]) is not None:
                bias += np.abs(factor) * expand_to_queries(off, shaped)
        return value + side * interval_margins(level, second, None if self._fourth is None else fourth, noise, bias)

    def frame(self, confidence: float = 0.95) -> Frame:
        """The answers as a frame.

        Args:
            confidence: The probability, strictly between 0 and 1, with which each interval holds.

        Returns:
            One row per query: label, answer, standard_error, low, high.

        Raises:
            PlanError: The confidence is no such probability.
        """
        ends, where = self.intervals(confidence), {"label": self.labels}
        return answers_frame(where, answer=self.answers, standard_error=self.errors, low=ends.low, high=ends.high)

    def __repr__(self) -> str:
        return f"<{self.what}: {len(self.answers):,} answers>\n{self.frame()}"


def _simultaneous_level(level: float, count: int, release: Release, *, biased: bool) -> float:
    return simultaneous_confidence(level, count, release.measurement.noise, biased=biased)


def check_comparable(first: Release, second: Release) -> None:
    """Refuse releases of different queries, of noises that cannot be joined, or one release twice."""
    if value_fingerprint(first.workload) != value_fingerprint(second.workload):
        raise PlanError("the two releases answer different workloads; plan both with the same queries")
    if isinstance(first.measurement.noise, DiscreteLaplace) != isinstance(second.measurement.noise, DiscreteLaplace):
        raise PlanError("one release has Laplace and the other Gaussian noise; their intervals cannot be joined")
    one, other = first.provenance, second.provenance
    if one.anchor == other.anchor and one.ledger_id == other.ledger_id:
        raise PlanError("these are the same release; combining it with itself adds no knowledge")


def check_snapshots(first: Release, second: Release) -> None:
    """Refuse releases that do not declare one snapshot of the table: what is pooled of two tables is biased."""
    snapshots = {first.provenance.snapshot, second.provenance.snapshot}
    if len(snapshots) > 1 or None in snapshots:
        raise PlanError(
            "only releases of one declared snapshot can be pooled; give both the same snapshot= when releasing "
            f"(given: {sorted(map(str, snapshots))})"
        )


def coefficient_powers(release: Release, power: int) -> FloatArray:
    """Per answer, sums of |coefficient|^power of the noise, in units of the noise's scale."""
    unit = release.measurement.noise.variance ** (power / 2)
    plan, out = release.plan, []
    for e in plan.entries:
        if release.part not in (None, e.item.part):
            continue
        powers = e.powers if power == 2 else plan.fourth_powers(e.item)
        assert powers is not None
        out.append(e.expand(powers * unit))
    return np.concatenate(out)


def combine_answers(what: str, first: Release, second: Release, a: FloatArray, b: FloatArray) -> Comparison:
    """a * first + b * second, unprojected, with the noise of both."""
    answers = a * first.raw.answers + b * second.raw.answers
    noise = first.measurement.noise
    variance = a**2 * coefficient_powers(first, 2) + b**2 * coefficient_powers(second, 2)
    fourth = None
    if isinstance(noise, DiscreteLaplace):
        fourth = (a**4 * coefficient_powers(first, 4) + b**4 * coefficient_powers(second, 4)) / noise.variance**2
    bias = np.abs(a) * first.plan.bias_bounds(first.part) + np.abs(b) * second.plan.bias_bounds(second.part)
    return Comparison(
        what, first.labels(), answers, np.sqrt(variance), variance / noise.variance, fourth, first, bias, second, (a, b)
    )


def answer_changes(later: Release, earlier: Release) -> Comparison:
    """later - earlier for every query. Raises PlanError where they cannot be compared."""
    check_comparable(later, earlier)
    ones = np.ones(len(later.workload))
    return combine_answers("difference", later, earlier, ones, -ones)


def comparison_frame(later: Release, earlier: Release, confidence: float, *, together: bool) -> Frame:
    """Both answers of every query beside their difference; see `Release.compare`."""
    change = answer_changes(later, earlier)
    ends = change.intervals(confidence, simultaneous=together)
    both = {"earlier": earlier.raw.answers, "later": later.raw.answers, "difference": change.answers}
    return answers_frame(
        part_and_label(later.workload), **both, standard_error=change.errors, low=ends.low, high=ends.high
    )


Axes = tuple[int, ...]


def residual_strategy(release: Release) -> Residuals:
    """The strategy of a release of marginal tables by residuals, under Gaussian noise. Raises NotAnswerable."""
    strategy = _measured_strategy(release)
    plain = isinstance(strategy, Residuals) and not strategy.known and all(lift is None for lift in strategy.lifts)
    if not isinstance(strategy, Residuals) or not plain or isinstance(release.measurement.noise, DiscreteLaplace):
        raise NotAnswerable(
            "body='mixtures' needs marginal tables measured by residuals with Gaussian noise: mechanism='adaptive', or "
            "mechanism='marginals' under a budget that is not pure epsilon; for others take body='local'"
        )
    return strategy


def check_earlier(release: Release, earlier: Release) -> None:
    """Refuse what is no release of the same queries about the same declared snapshot. Raises PlanError."""
    check_comparable(earlier, release)
    check_snapshots(earlier, release)
    if earlier.plan.workload.domain != release.plan.workload.domain:
        raise PlanError("the two releases are over different domains; plan both over the same")


def measured_pairs(release: Release, places: Sequence[int]) -> list[Axes]:
    """Pairs that were measured among the attributes at these positions."""
    sets = residual_strategy(release).sets
    return [(a, b) for a, b in (sets[2].tolist() if len(sets) > 2 else []) if {a, b} <= set(places)]


def measured_triples(release: Release) -> list[Axes]:
    """Those with more than one cell along each axis that are asked, or inside a table that is."""
    strategy, work = residual_strategy(release), release.plan.workload
    if len(strategy.sets) < 4:
        return []
    several = {i for i, n in enumerate(strategy.shape) if n > 1}
    asked = {frozenset(work.domain.axis(a) for a in b.attributes) for b in largest_tables(work)}
    found = [(a, b, c) for a, b, c in strategy.sets[3].tolist()]
    return [t for t in found if set(t) <= several and any(set(t) <= a for a in asked)]


def residual_noise(releases: Sequence[Release], places: Sequence[int]) -> ResidualNoise:
    """Of the sets among the attributes at these ascending positions of the domain, by their positions among these."""
    found = [strategy_noise(_measured_residuals(r), r.measurement.noise.variance, places) for r in releases]
    if len(found) == 1:
        return found[0]
    sets, variances = list[Sets](), list[FloatArray]()
    for k in range(max(len(f.sets) for f in found)):
        precision: dict[Axes, float] = {}
        for each in found:
            if k < len(each.sets):
                for axes, v in zip(map(tuple, each.sets[k].tolist()), each.variances[k].tolist(), strict=True):
                    precision[axes] = precision.get(axes, 0.0) + 1 / v
        every = sorted(precision)
        sets.append(np.array(every, dtype=np.int32).reshape(len(every), k))
        variances.append(1 / np.array([precision[axes] for axes in every], dtype=np.float64))
    return ResidualNoise(tuple(sets), tuple(variances))


def strategy_noise(strategy: Residuals, variance: float, places: Sequence[int]) -> ResidualNoise:
    """Of a strategy's sets among these attributes, at that variance of the law."""
    order = np.full(len(strategy.shape), -1, dtype=np.int32)
    order[list(places)] = np.arange(len(places))
    held = zip(strategy.sets, strategy.divisors, strict=True)
    kept = [(order[s], d, np.isfinite(d) & np.all(order[s] >= 0, axis=1)) for s, d in held]
    # what a set's noise is divided by turns (n I - J) of a table into what it has beyond its means
    return ResidualNoise(tuple(s[k] for s, _, k in kept), tuple(variance / d[k] ** 2 for _, d, k in kept))


def _measured_strategy(release: Release) -> Strategy:
    """What was measured, before it knew of zeros: they are taken in again, for two releases at once."""
    strategy = release.plan.strategy
    return strategy.measured if isinstance(strategy, Allowed) else strategy


def _residual_component(release: Release, axes: Axes) -> FloatArray:
    estimate = release.estimate[0] if isinstance(release.plan.strategy, Allowed) else release.estimate
    return residual_strategy(release).component(estimate, axes)


def _measured_residuals(release: Release) -> Residuals:
    strategy = _measured_strategy(release)
    assert isinstance(strategy, Residuals)
    return strategy


def noisy_table(releases: Sequence[Release], axes: Axes) -> FloatArray:
    """The table over ascending positions, the residual of every subset weighed by its precision in each release."""
    shape = [residual_strategy(releases[0]).shape[a] for a in axes]
    out = np.zeros(shape)
    for columns in subset_columns(len(axes)):
        part = _pooled_residual(releases, tuple(axes[c] for c in columns))
        rest = math.prod(n for c, n in enumerate(shape) if c not in columns)
        out += part.reshape([n if c in columns else 1 for c, n in enumerate(shape)]) / rest
    return out


def _pooled_residual(releases: Sequence[Release], axes: Axes) -> FloatArray:
    """The part that varies along exactly these attributes; what is known without noise from the first."""
    weights, parts = list[float](), list[FloatArray]()
    for release in releases:
        strategy = residual_strategy(release)
        variance = strategy.set_variance(axes) * release.measurement.noise.variance
        if variance > 0:
            weights.append(1 / variance)
            parts.append(_residual_component(release, axes))
    if not parts:
        return _residual_component(releases[0], axes)
    return np.average(parts, axis=0, weights=weights)


def noisy_pairs(release: Release) -> NoisyPairs:
    """What a release measured of the attributes that are asked and of their pairs. Raises NotAnswerable."""
    domain = release.plan.workload.domain
    places = [domain.axis(a) for a in joint_attributes(release.plan.workload)]
    pairs = measured_pairs(release, places)
    held = [*([i] for i in places if not any(i in p for p in pairs)), *pairs]
    tables = [noisy_table([release], tuple(axes)) for axes in held]
    order = {place: i for i, place in enumerate(places)}
    sizes = [domain.shape[i] for i in places]
    total = release.measurement.total
    return read_noisy(
        sizes,
        [[order[a] for a in axes] for axes in held],
        tables,
        residual_noise([release], places),
        None if total is None else float(total),
    )
