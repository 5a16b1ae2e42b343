"""Empirical covariances of whole releases against the formula: mixed workloads, every kind of strategy.

The noise is of the plan's exact law, drawn from reproducible bits: a test passes always or never. Bounds are 5
standard deviations of each empirical covariance, over all pairs of answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.operators.base import FloatArray
from support.insecure_bits import InsecureTestBits
from support.moments import excess_kurtosis

REPETITIONS = 200_000
Z = 5.0
UNIT = 2**40
DOMAIN = sf.Domain(
    {
        "age": sf.Integers(0, 5, levels={"half": [0, 2, 6]}),
        "sex": sf.Categories(["f", "m"]),
        "place": sf.Integers(0, 3),
    }
)
COUNTS = (np.arange(DOMAIN.size).reshape(DOMAIN.shape) * 37) % 90


def _tables() -> sf.Workload:
    return sf.marginals(DOMAIN, upto=2, weights={2: 3})


def _cdf() -> sf.Workload:
    return sf.stack(cdf=sf.prefix(DOMAIN, "age", by=["sex"]), tables=sf.marginals(DOMAIN, sets=[("age", "place"), ()]))


def _ranges() -> sf.Workload:
    return sf.stack(ranges=sf.ranges(DOMAIN, "place", by=["age"]), cdf=sf.prefix(DOMAIN, "age", by=["sex"]))


def _grouped() -> sf.Workload:
    """Halves, and cells, of an age; and with the places."""
    return sf.stack(
        ages=sf.hierarchy(DOMAIN, "age", by=["sex"]),
        places=sf.marginals(DOMAIN, sets=[("half", "place"), ("sex", "place")]),
        rest=sf.queries([[1, 1, 2, 0], [0, 0, 1, -1]], DOMAIN, attribute="place"),
    )


def _joint() -> sf.Workload:
    rows = np.random.default_rng(5).integers(0, 2, (12, 48))
    return sf.stack(any=sf.queries(rows, DOMAIN), sexes=sf.marginals(DOMAIN, sets=[("sex",)]))


def _product() -> sf.Workload:
    return sf.stack(a=sf.prefix(DOMAIN, "age", by=["sex"]), b=sf.windows(DOMAIN, "age", width=3, by=["sex"]))


def _few() -> sf.Workload:
    """So little that each query is best measured by itself, those of one block together."""
    counts = sf.predicates(DOMAIN, ["age < 3 and place == 1"])
    return sf.stack(
        one=counts, sums=sf.queries([[1, 1, 1, 0], [1, 1, 0, 0]], DOMAIN, attribute="place"), n=sf.total(DOMAIN)
    )


PUBLIC = {("sex", "place"): COUNTS.sum(axis=0), ("age",): COUNTS.sum(axis=(1, 2))}
GAUSSIAN, LAPLACE = sf.gdp(1), sf.pure(1)
CASES: list[tuple[str, Callable[[], sf.Workload], str, dict[str, Any]]] = [
    ("marginals", _tables, "residuals", {}),
    ("marginals", _tables, "residuals", {"neighbours": "replace-one"}),
    ("marginals", _tables, "residuals", {"neighbours": "replace-one", "public": PUBLIC}),
    ("marginals", _tables, "weighted tables", {"budget": LAPLACE}),
    ("marginals", _tables, "weighted tables", {"budget": LAPLACE, "neighbours": "replace-one"}),
    ("marginals", _cdf, "tilted", {}),
    ("marginals", _cdf, "tilted", {"neighbours": "replace-one", "objective": "max"}),
    ("marginals", _cdf, "tilted", {"public": PUBLIC}),
    ("marginals", _ranges, "tilted", {}),
    ("marginals", _grouped, "tilted", {}),
    ("factorization", _joint, "", {}),
    ("factorization", _product, "", {"neighbours": "replace-one"}),
    ("gaussian", _cdf, "noise on every cell", {"neighbours": "replace-one"}),
    ("laplace", _grouped, "noise on every cell", {"budget": LAPLACE, "neighbours": "replace-one"}),
    ("gaussian", _few, "noise on every query", {"neighbours": "replace-one"}),
    ("tree", _product, "", {}),
]


class Replayed:
    """The answers of one plan to noise of our own, by the same road as those of a release."""

    def __init__(self, plan: sf.Plan) -> None:
        self._release = sf.release(plan, sf.Histogram(COUNTS), ledger=None)
        self._sizes = [len(v) for v in self._release.measurement.values]
        self.count = sum(self._sizes)
        self._offset = self.answers(np.zeros(self.count, dtype=np.int64))

    def answers(self, values: np.ndarray) -> FloatArray:
        """(k,) what is answered where `values` (count,) were measured."""
        parts = tuple(np.split(values, np.cumsum(self._sizes)[:-1]))
        return replace(self._release, measurement=replace(self._release.measurement, values=parts)).answers

    def errors(self, noise: np.ndarray) -> FloatArray:
        """(repetitions, k) what noise (repetitions, count) does to the answers.

        They are affine in what is measured: found on unit vectors, and held against the road itself for some draws.
        """
        units = UNIT * np.eye(self.count, dtype=np.int64)
        self.map = np.stack([self.answers(u) - self._offset for u in units], axis=1) / UNIT
        found = noise @ self.map.T
        scale = np.abs(found).max()
        for z, error in zip(noise[:20], found[:20], strict=True):
            np.testing.assert_allclose(self.answers(z) - self._offset, error, atol=1e-9 * scale)
        return found


def _worst(errors: FloatArray, covariance: FloatArray, fourth: FloatArray) -> float:
    """The largest distance between empirical and stated covariances, in standard deviations.

    A product of two answers' errors has the variance s_11 s_22 + s_12^2 plus the sum of the products' fourth
    cumulants, `fourth`.
    """
    empirical = errors.T @ errors / len(errors)
    variances = np.diag(covariance)
    # what is known has no error; rounding is allowed for
    spread = np.maximum(np.multiply.outer(variances, variances) + covariance**2 + fourth, 0.0)
    least = 1e-9 * variances.max()
    return float((np.abs(empirical - covariance) / (np.sqrt(spread / len(errors)) + least)).max())


def _name(value: object) -> str:
    if isinstance(value, dict):
        return " ".join("laplace" if k == "budget" else "public" if k == "public" else str(v) for k, v in value.items())
    return getattr(value, "__name__", str(value)).strip("_")


@pytest.mark.parametrize(("mechanism", "ask", "summary", "options"), CASES, ids=_name)
def test_empirical_covariances_are_those_of_the_formula(
    mechanism: str, ask: Callable[[], sf.Workload], summary: str, options: dict[str, Any]
) -> None:
    """Mutants: n^-1 for n^-2 outside a set; all sets for those of common attributes; 1[same] + 1/n; tilts of 1/n;
    pieces that are independent taken for one; the noise of public tables; the public total left out."""
    given = {"budget": GAUSSIAN, "neighbours": "add-remove", **options}
    plan = sf.plan(ask(), given.pop("budget"), mechanism=mechanism, **given)
    assert summary in plan.strategy.summary
    covariance = plan.covariance(plan.workload)
    road = Replayed(plan)
    noise = plan.noise.sample(REPETITIONS * road.count, InsecureTestBits(2026)).reshape(REPETITIONS, -1)
    errors = road.errors(noise)
    kurtosis = excess_kurtosis(plan.noise) * plan.noise.variance**2
    fourth = kurtosis * road.map**2 @ (road.map**2).T
    assert _worst(errors, covariance, fourth) < Z
    # the bounds are tight enough to tell
    assert _worst(errors, covariance * 1.03, fourth) > Z
    alone = np.diag(np.diag(covariance))
    assert _worst(errors, alone, fourth) > Z or np.array_equal(covariance, alone)
