"""The projection mechanism: noisy answers, then the nearest that some table could have given. [NTZ13, DNT15]

Any other mechanism's plan is measured; projecting its answers is free. In the norm that is projected in the result is
never farther from the truth than they were: the plain one over the answers, or, for many tables, one that weighs
each by its noise. Its expected error in the plain norm is at most what the width of the body says, however many
queries there are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sfumato.errors import InvalidInput, PlanError, SfumatoError
from sfumato.estimate.bodies import suits
from sfumato.estimate.elliptope import parity_matrix
from sfumato.estimate.elliptope.scaling import product_scale
from sfumato.estimate.projection import joint_operator
from sfumato.estimate.widths import Forecast, Width, forecast_of_hull
from sfumato.operators.base import FloatArray
from sfumato.plans import Plan
from sfumato.workloads import QueryBlock

__all__ = ["forecast", "projected"]

_DRAWS, _DRAWS_PAIRS, _SCALED = 256, 48, 16
_MOST_ANSWERS, _MOST_CELLS = 2**20, 2**20


def projected(plans: Sequence[Plan], body: str = "auto") -> Plan:
    """The plan whose projected answers are predicted to err least, its release projected at once.

    Raises PlanError where no body takes the workload.
    """
    total = 1.0 if plans[0].unit.total_is_public else None
    try:
        chosen = suits(plans[0].workload, total) if body == "auto" else body
    except InvalidInput as reason:
        raise PlanError(f"mechanism='projection': {reason}") from reason
    if chosen == "hull" and total is None:
        chosen = "cone"
    found = [replace(p, mechanism="projection", body=chosen, forecast=forecast(p, chosen), bound=None) for p in plans]
    return min(found, key=lambda p: (p.mean_error, p.objective_value))


def forecast(plan: Plan, body: str) -> Forecast:
    """What is known before data of projecting a plan's answers; only their own error where that is costly."""
    rows = len(plan.workload)
    raw = math.sqrt(sum(e.sum() for e in plan.entries) * plan.noise.variance / rows)
    known = Forecast(body, rows, raw, records=plan.records)
    if rows > _MOST_ANSWERS or any(e.mean is not None for e in plan.entries):
        return known
    try:
        if body in ("simplex", "isotonic", "hull", "cone", "exact"):
            operator = joint_operator(plan.workload)
            if operator.shape[1] > _MOST_CELLS or rows * _DRAWS > 2**28:
                return known
            public = plan.unit.total_is_public
            return forecast_of_hull(
                body, operator, lambda c: _noise(plan, c), raw, plan.records, total_known=public, count=_DRAWS
            )
        if body in ("sdp", "sdp+local") and plan.unit.total_is_public:
            width = _pairs_width(plan)
            return replace(known, width=width.mean, square=width.square)
    except SfumatoError:
        # a bound that cannot be computed is none
        return known
    return known


def _noise(plan: Plan, count: int) -> FloatArray:
    """(k, count) errors of the plan's answers, with Gaussian noise of its variance in place of its own law."""
    random = np.random.default_rng(0)
    deviation = math.sqrt(plan.noise.variance)
    sizes = [b.rows for b in plan.strategy.blocks]
    out = np.empty((len(plan.workload), count))
    total = 0 if plan.unit.total_is_public else None
    for c in range(count):
        values = [np.rint(random.normal(0.0, deviation, n)).astype(np.int64) for n in sizes]
        estimate = plan.strategy.estimate(values, total)
        start = 0
        for item in plan.workload.items:
            into = out[start : start + item.rows, c]
            start += item.rows
            if isinstance(item, QueryBlock):
                into[:] = plan.strategy.answer(estimate, item.block)
                continue
            some = np.empty(item.rows)
            for chosen, rows in plan.strategy.answer_family(estimate, item.family):
                item.family.place(chosen, rows, some)
            into[:] = some
    return out


def _pairs_width(plan: Plan) -> Width:
    """E max of <noise, Y> over correlation matrices: at most half the largest eigenvalue times sum s_i^2, scaled."""
    work = plan.workload
    zero, weight = parity_matrix(work, np.zeros(len(work)), 1.0)
    draws = _noise(plan, _DRAWS_PAIRS)
    pulls = np.stack([(parity_matrix(work, z, 1.0)[0] - zero) * weight for z in draws.T])
    # the scale may be any, but not that of the draws it is used on
    first, rest = pulls[:_SCALED], pulls[_SCALED:]
    scale, _ = product_scale(_smoothed((first**2).mean(axis=0), weight))
    tops = [float(np.linalg.eigvalsh(p / np.multiply.outer(scale, scale))[-1]) for p in rest]
    return Width.of(np.array(tops) * float(scale @ scale) / 2)


def _smoothed(squares: FloatArray, weight: FloatArray) -> FloatArray:
    """Deviations from mean squares: one for all means of single attributes, one for all pairs."""
    means = np.zeros(len(weight), dtype=bool)
    means[0] = True
    of_means = np.logical_xor.outer(means, means)
    out = np.zeros_like(squares)
    for chosen in ((weight > 0) & of_means, (weight > 0) & ~of_means):
        if chosen.any():
            out[chosen] = math.sqrt(float(squares[chosen].mean()))
    return out
