"""Sums of the answers of two releases of one workload, with the noise of both. Of projected ones the unprojected."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from sfumato.errors import PlanError
from sfumato.ground.codec import fingerprint
from sfumato.ground.frames import Frame
from sfumato.operators.base import FloatArray
from sfumato.plans.intervals import check_confidence, margins, simultaneous
from sfumato.plans.predictions import biases, expand
from sfumato.privacy.noise import DiscreteLaplace
from sfumato.releases.middles import reach
from sfumato.releases.tables import Intervals, answered, rows_of
from sfumato.workloads import QueryBlock

if TYPE_CHECKING:
    from sfumato.releases.core import Release

__all__ = ["Comparison", "changed", "check_pair", "check_snapshots", "compared", "joined", "powers"]


@dataclass(frozen=True, slots=True, repr=False)
class Comparison:
    """Answers from two releases of one workload, with their standard errors and intervals."""

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
        """(k,) standard errors."""
        return self.errors

    def intervals(self, confidence: float = 0.95, *, simultaneous: bool = False) -> Intervals:
        """Intervals from the actual noise of both releases; of sums over cells of several numbers those that hold the
        values' own, from the cells' lower ends to their upper ends in each."""
        level = check_confidence(confidence)
        if simultaneous:
            level = _together(level, len(self.answers), self._first, biased=bool(self._bias.any()))
        width = margins(level, self._second, self._fourth, self._first.measurement.noise, self._bias)
        low, high = self.answers - width, self.answers + width
        start = 0
        for item in self._first.workload.items:
            here = slice(start, start := start + item.rows)
            if isinstance(item, QueryBlock) and reach(self._first, item) is not None:
                low[here] = np.minimum(self._end(item, here, level, -1), self.answers[here])
                high[here] = np.maximum(self._end(item, here, level, 1), self.answers[here])
        return Intervals(low, high, confidence, simultaneous)

    def _end(self, query: QueryBlock, here: slice, level: float, side: int) -> FloatArray:
        """The lower (-1) or upper (1) ends of a sum's intervals; NaN where one measured nothing that bounds it."""
        noise = self._first.measurement.noise
        value, second, fourth, bias = (np.zeros(query.rows) for _ in range(4))
        for release, factors in zip((self._first, self._second_release), self._factors, strict=True):
            factor, found = factors[here], reach(release, query)
            assert found is not None
            # what counts against the other is least where its values are most
            block = found.upper if (side > 0) == bool((factor >= 0).all()) else found.lower
            if block is None:
                return np.full(query.rows, np.nan)
            shaped, strategy = replace(query, block=block), release.plan.strategy
            value += factor * release.raw.answer_block(block)
            unit = release.measurement.noise.variance / noise.variance
            second += factor**2 * expand(strategy.row_powers(block, 2), shaped) * unit
            if self._fourth is not None:
                fourth += factor**4 * expand(strategy.row_powers(block, 4), shaped) * unit**2
            if (off := biases(strategy, block)[0]) is not None:
                bias += np.abs(factor) * expand(off, shaped)
        return value + side * margins(level, second, None if self._fourth is None else fourth, noise, bias)

    def frame(self, confidence: float = 0.95) -> Frame:
        """label, answer, standard_error, low, high."""
        ends, where = self.intervals(confidence), {"label": self.labels}
        return answered(where, answer=self.answers, standard_error=self.errors, low=ends.low, high=ends.high)

    def __repr__(self) -> str:
        return f"<{self.what}: {len(self.answers):,} answers>\n{self.frame()}"


def _together(level: float, count: int, release: Release, *, biased: bool) -> float:
    return simultaneous(level, count, release.measurement.noise, biased=biased)


def check_pair(first: Release, second: Release) -> None:
    """Refuse releases of different queries, of noises that cannot be joined, or one release twice."""
    if fingerprint(first.workload) != fingerprint(second.workload):
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


def powers(release: Release, power: int) -> FloatArray:
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


def joined(what: str, first: Release, second: Release, a: FloatArray, b: FloatArray) -> Comparison:
    """a * first + b * second, unprojected, with the noise of both."""
    answers = a * first.raw.answers + b * second.raw.answers
    noise = first.measurement.noise
    variance = a**2 * powers(first, 2) + b**2 * powers(second, 2)
    fourth = None
    if isinstance(noise, DiscreteLaplace):
        fourth = (a**4 * powers(first, 4) + b**4 * powers(second, 4)) / noise.variance**2
    bias = np.abs(a) * first.plan.bias_bounds(first.part) + np.abs(b) * second.plan.bias_bounds(second.part)
    return Comparison(
        what, first.labels(), answers, np.sqrt(variance), variance / noise.variance, fourth, first, bias, second, (a, b)
    )


def changed(later: Release, earlier: Release) -> Comparison:
    """later - earlier for every query. Raises PlanError where they cannot be compared."""
    check_pair(later, earlier)
    ones = np.ones(len(later.workload))
    return joined("difference", later, earlier, ones, -ones)


def compared(later: Release, earlier: Release, confidence: float, *, together: bool) -> Frame:
    """Both answers of every query beside their difference; see `Release.compare`."""
    change = changed(later, earlier)
    ends = change.intervals(confidence, simultaneous=together)
    both = {"earlier": earlier.raw.answers, "later": later.raw.answers, "difference": change.answers}
    return answered(rows_of(later.workload), **both, standard_error=change.errors, low=ends.low, high=ends.high)
