"""Noisy residuals of one release, or of two of one table: each set of attributes weighed by its precision."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from sfumato.designs.allowed import Allowed
from sfumato.designs.marginals.incidence import Sets, patterns
from sfumato.designs.marginals.residuals import Residuals
from sfumato.designs.strategy import Strategy
from sfumato.errors import NotAnswerable, PlanError
from sfumato.estimate.local import ResidualNoise
from sfumato.estimate.mixtures.stacked import Noisy, read_noisy
from sfumato.estimate.projection import joint_attributes, largest_tables
from sfumato.operators.base import FloatArray
from sfumato.privacy.noise import DiscreteLaplace
from sfumato.releases.comparing import check_pair, check_snapshots

if TYPE_CHECKING:
    from sfumato.releases.core import Release

__all__ = [
    "check_earlier",
    "measured_pairs",
    "measured_triples",
    "noisy_pairs",
    "noisy_table",
    "residual_noise",
    "residuals_of",
    "strategy_noise",
]

Axes = tuple[int, ...]


def residuals_of(release: Release) -> Residuals:
    """The strategy of a release of marginal tables by residuals, under Gaussian noise. Raises NotAnswerable."""
    strategy = _strategy(release)
    plain = isinstance(strategy, Residuals) and not strategy.known and all(lift is None for lift in strategy.lifts)
    if not isinstance(strategy, Residuals) or not plain or isinstance(release.measurement.noise, DiscreteLaplace):
        raise NotAnswerable(
            "body='mixtures' needs marginal tables measured by residuals with Gaussian noise: mechanism='adaptive', or "
            "mechanism='marginals' under a budget that is not pure epsilon; for others take body='local'"
        )
    return strategy


def check_earlier(release: Release, earlier: Release) -> None:
    """Refuse what is no release of the same queries about the same declared snapshot. Raises PlanError."""
    check_pair(earlier, release)
    check_snapshots(earlier, release)
    if earlier.plan.workload.domain != release.plan.workload.domain:
        raise PlanError("the two releases are over different domains; plan both over the same")


def measured_pairs(release: Release, places: Sequence[int]) -> list[Axes]:
    """Pairs that were measured among the attributes at these positions."""
    sets = residuals_of(release).sets
    return [(a, b) for a, b in (sets[2].tolist() if len(sets) > 2 else []) if {a, b} <= set(places)]


def measured_triples(release: Release) -> list[Axes]:
    """Those with more than one cell along each axis that are asked, or inside a table that is."""
    strategy, work = residuals_of(release), release.plan.workload
    if len(strategy.sets) < 4:
        return []
    several = {i for i, n in enumerate(strategy.shape) if n > 1}
    asked = {frozenset(work.domain.axis(a) for a in b.attributes) for b in largest_tables(work)}
    found = [(a, b, c) for a, b, c in strategy.sets[3].tolist()]
    return [t for t in found if set(t) <= several and any(set(t) <= a for a in asked)]


def residual_noise(releases: Sequence[Release], places: Sequence[int]) -> ResidualNoise:
    """Of the sets among the attributes at these ascending positions of the domain, by their positions among these."""
    found = [strategy_noise(_residuals(r), r.measurement.noise.variance, places) for r in releases]
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


def _strategy(release: Release) -> Strategy:
    """What was measured, before it knew of zeros: they are taken in again, for two releases at once."""
    strategy = release.plan.strategy
    return strategy.measured if isinstance(strategy, Allowed) else strategy


def _component(release: Release, axes: Axes) -> FloatArray:
    estimate = release.estimate[0] if isinstance(release.plan.strategy, Allowed) else release.estimate
    return residuals_of(release).component(estimate, axes)


def _residuals(release: Release) -> Residuals:
    strategy = _strategy(release)
    assert isinstance(strategy, Residuals)
    return strategy


def noisy_table(releases: Sequence[Release], axes: Axes) -> FloatArray:
    """The table over ascending positions, the residual of every subset weighed by its precision in each release."""
    shape = [residuals_of(releases[0]).shape[a] for a in axes]
    out = np.zeros(shape)
    for columns in patterns(len(axes)):
        part = _residual(releases, tuple(axes[c] for c in columns))
        rest = math.prod(n for c, n in enumerate(shape) if c not in columns)
        out += part.reshape([n if c in columns else 1 for c, n in enumerate(shape)]) / rest
    return out


def _residual(releases: Sequence[Release], axes: Axes) -> FloatArray:
    """The part that varies along exactly these attributes; what is known without noise from the first."""
    weights, parts = list[float](), list[FloatArray]()
    for release in releases:
        strategy = residuals_of(release)
        variance = strategy.set_variance(axes) * release.measurement.noise.variance
        if variance > 0:
            weights.append(1 / variance)
            parts.append(_component(release, axes))
    if not parts:
        return _component(releases[0], axes)
    return np.average(parts, axis=0, weights=weights)


def noisy_pairs(release: Release) -> Noisy:
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
