"""Two releases of one workload: pooled, or compared. Of projected releases the unprojected answers are taken."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sfumato.codec import fingerprint
from sfumato.errors import PlanError
from sfumato.frames import Frame
from sfumato.intervals import check_confidence, margins, simultaneous
from sfumato.operators.base import FloatArray
from sfumato.privacy.noise import DiscreteLaplace
from sfumato.releases.core import Intervals, Release

__all__ = ["Comparison", "combine", "difference"]


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

    def standard_errors(self) -> FloatArray:
        """(k,) standard errors."""
        return self.errors

    def intervals(self, confidence: float = 0.95, *, simultaneous: bool = False) -> Intervals:
        """Intervals from the actual noise of both releases."""
        level = check_confidence(confidence)
        if simultaneous:
            level = _together(level, len(self.answers), self._first, biased=bool(self._bias.any()))
        width = margins(level, self._second, self._fourth, self._first.measurement.noise, self._bias)
        return Intervals(self.answers - width, self.answers + width, confidence, simultaneous)

    def frame(self, confidence: float = 0.95) -> Frame:
        """label, answer, standard_error, low, high."""
        ends = self.intervals(confidence)
        return Frame(
            {
                "label": self.labels,
                "answer": self.answers.tolist(),
                "standard_error": self.errors.tolist(),
                "low": ends.low.tolist(),
                "high": ends.high.tolist(),
            }
        )

    def __repr__(self) -> str:
        return f"<{self.what}: {len(self.answers):,} answers>\n{self.frame()}"


def _together(level: float, count: int, release: Release, *, biased: bool) -> float:
    return simultaneous(level, count, release.measurement.noise, biased=biased)


def _check_pair(first: Release, second: Release) -> None:
    if not isinstance(first, Release) or not isinstance(second, Release):
        raise PlanError("two releases are needed")
    if fingerprint(first.workload) != fingerprint(second.workload):
        raise PlanError("the two releases answer different workloads; plan both with the same queries")
    if isinstance(first.measurement.noise, DiscreteLaplace) != isinstance(second.measurement.noise, DiscreteLaplace):
        raise PlanError("one release has Laplace and the other Gaussian noise; their intervals cannot be joined")
    one, other = first.provenance, second.provenance
    if one.anchor == other.anchor and one.ledger_id == other.ledger_id:
        raise PlanError("these are the same release; combining it with itself adds no knowledge")


def _powers(release: Release, power: int) -> FloatArray:
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


def _joined(what: str, first: Release, second: Release, a: FloatArray, b: FloatArray) -> Comparison:
    """a * first + b * second, unprojected, with the noise of both."""
    answers = a * first.raw.answers + b * second.raw.answers
    noise = first.measurement.noise
    variance = a**2 * _powers(first, 2) + b**2 * _powers(second, 2)
    fourth = None
    if isinstance(noise, DiscreteLaplace):
        fourth = (a**4 * _powers(first, 4) + b**4 * _powers(second, 4)) / noise.variance**2
    bias = np.abs(a) * first.plan.bias_bounds(first.part) + np.abs(b) * second.plan.bias_bounds(second.part)
    return Comparison(what, first.labels(), answers, np.sqrt(variance), variance / noise.variance, fourth, first, bias)


def combine(first: Release, second: Release) -> Comparison:
    """Pool two releases of one declared snapshot: each answer weighted by its precision.

    Both releases must name the same `snapshot=`; otherwise the tables may differ and pooling would be
    biased. Raises PlanError.
    """
    _check_pair(first, second)
    snapshots = {first.provenance.snapshot, second.provenance.snapshot}
    if len(snapshots) > 1 or None in snapshots:
        raise PlanError(
            "only releases of one declared snapshot can be pooled; give both the same snapshot= when releasing "
            f"(given: {sorted(map(str, snapshots))})"
        )
    one, other = _powers(first, 2), _powers(second, 2)
    total = one + other
    # what neither measured, and only models answered, has no weight of its own
    weight = np.divide(other, total, out=np.full_like(total, 0.5), where=(total > 0) & np.isfinite(total))
    return _joined("pooled", first, second, weight, 1 - weight)


def difference(later: Release, earlier: Release) -> Comparison:
    """later - earlier for every query, with intervals: the change between two snapshots."""
    _check_pair(later, earlier)
    ones = np.ones(len(later.workload))
    return _joined("difference", later, earlier, ones, -ones)
