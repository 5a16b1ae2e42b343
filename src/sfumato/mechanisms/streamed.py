"""Marginal tables period after period: residuals of the tables, each filtered over time, noise of one law."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar

import numpy as np

from sfumato.designs.continual.integers import filter_of
from sfumato.designs.continual.periods import Periods
from sfumato.designs.continual.shapes import shape_for
from sfumato.designs.design import Design
from sfumato.designs.marginals import planning as marginals
from sfumato.designs.marginals.residuals import Residuals
from sfumato.designs.pricing.sensitivity import certificate
from sfumato.designs.spending import noise_of, spend_in
from sfumato.errors import BudgetError, InvalidInput, PlanError
from sfumato.mechanisms.mechanism import STREAMS, Mechanism, Request, whole
from sfumato.mechanisms.tables import problem_of
from sfumato.plans.streams import StreamPlan
from sfumato.privacy.accountant import Event, GaussianEvent
from sfumato.privacy.amounts import Currency
from sfumato.privacy.continual import StreamTerms
from sfumato.privacy.filters import MOST_COUNT, IntegerFilter
from sfumato.privacy.noise import RoundedGaussian
from sfumato.privacy.sensitivity import Certificate
from sfumato.privacy.unit import Neighbours, PrivacyUnit

__all__ = ["Continual"]

_GRAIN = (
    20  # bits of the largest multiple: rounding moves the split of the budget by less than 2^-12 for shares of 2^-8
)
_MOST_BITS = 30  # of counts in one cell and period unless `most` says so: a thousand million records
_LEAST_BITS = 10  # where even a thousand records find no room the integers are too coarse to be of use
_ROOM = 64  # standard deviations of noise above which no value is thought of
_FINE = 2**10  # deviations are near 2^20: rounded up to as many parts of 1 they cost nothing
_UNIT = RoundedGaussian(Fraction(1))  # stands in until the noise is known


@dataclass(frozen=True, repr=False, kw_only=True)
class Continual(Mechanism[StreamPlan]):
    """Residuals of marginal tables in every period, filtered over time in integers, with Gaussian noise.

    most: the most records of one cell and period that are counted; by default up to 2^30.
    """

    most: int | None = None

    name: ClassVar[str] = "continual"
    serves: ClassVar[tuple[str, ...]] = (STREAMS,)
    takes: ClassVar[tuple[str, ...]] = ("objective", "records", "periods")
    unknown: ClassVar[str] = "its errors are those of many periods; plan, and look at plan.errors()"
    unscaled: ClassVar[str] = "its errors are those of many periods; plan, and look at plan.errors()"

    def __post_init__(self) -> None:
        whole("most", self.most, 1, MOST_COUNT)

    def plan(self, asked: Request) -> StreamPlan:
        try:
            price = spend_in(asked.budget, Currency.MU_SQUARED)
        except BudgetError as error:
            raise PlanError(
                "a stream has Gaussian noise, which no pure epsilon allows: plan with sf.approx, sf.zcdp or sf.gdp, or "
                "release every period by itself under a pure budget of its own"
            ) from error
        assert isinstance(price, GaussianEvent)
        given = asked.periods
        assert given is not None
        if given.per_person > 1 and asked.unit.person is None:
            raise PlanError("per_person above 1 needs person=, the column that says whose record a row is")
        if given.promised and asked.unit.person is None:
            raise PlanError(
                "promised= says who sees to it that a person is in few periods; without person= there is nothing to "
                "see to: leave it out"
            )
        problem = problem_of(asked, "gaussian", "fine", takes_public=False, name=self.name)
        if not all(i.is_marginal for i in asked.what.items):
            raise PlanError("a stream answers marginal tables; ranges and sums of them follow from cells")
        (design,) = marginals.designs(problem)
        fine = design.build(design.fine)
        assert isinstance(fine, Residuals)
        strategy = _scaled(fine, design)
        sizes = problem.sizes
        proof = certificate(strategy.blocks, sizes, asked.unit, 2)
        shape = shape_for(given.count, given.per_person, given.apart)
        # once for what the rounding of a cell counts beside a response, and with integers as fine as that needs
        rough = self._terms(filter_of(shape), strategy, given, proof)
        ratio = max(1.0, _rounding_ratio(rough, sizes, asked.unit))
        terms = rough if ratio == 1.0 else self._terms(filter_of(shape, ratio), strategy, given, proof)
        enforced = asked.unit.person is not None and not given.promised
        terms = replace(terms, noise=_noise(terms, price, sizes, asked.unit), enforced=enforced)
        _check_values(terms, strategy)
        bound = None
        if design.bound is not None and asked.unit.neighbours is Neighbours.ADD_REMOVE and given.per_person == 1:
            mu = math.sqrt(float(price.mu_squared))
            over = math.sqrt(problem.total_weight) * mu / asked.unit.rows_per_person
            bound = design.bound / over * _prefix_bound(given.count) * (1 - 1e-12)
        return StreamPlan(
            asked.what,
            asked.budget,
            asked.unit,
            self.name,
            problem.objective,
            strategy,
            terms,
            price,
            given,
            bound if problem.objective != "max" else None,
            asked.records,
        )

    def _terms(
        self, used: IntegerFilter, strategy: Residuals, given: Periods, proof: Certificate | None
    ) -> StreamTerms:
        """With the largest counts that there is room for."""
        maps = tuple(b.lowered() for b in strategy.blocks)
        for bits in range(_MOST_BITS, _LEAST_BITS - 1, -1):
            most = 2**bits if self.most is None else self.most
            try:
                found = StreamTerms(used, maps, _GRAIN, _UNIT, given.per_person, given.apart, most, proof)
                _check_values(found, strategy)
                return found
            except PlanError:
                if self.most is not None or bits == _LEAST_BITS:
                    raise
        raise AssertionError


def _scaled(fine: Residuals, design: Design) -> Residuals:
    """The residuals with multiples of at most 2^20, which stand for 1."""
    largest = max(int(np.max(m)) for m in fine.multiples if len(m))
    found = design.build(design.fine * 2**_GRAIN / (largest + 1))  # above what was rounded to it
    assert isinstance(found, Residuals)
    return found


def _rounding_ratio(terms: StreamTerms, sizes: dict[str, int], unit: PrivacyUnit) -> float:
    """How much more the rounding of the cells that a person changes counts than a response of length 1."""
    change = math.sqrt(terms.change(sizes, unit)) / 2.0**terms.grain
    return terms.cells(unit) * math.sqrt(terms.columns()) / change


def _check_values(terms: StreamTerms, strategy: Residuals) -> None:
    """Refuse what could outgrow 63 bits: a measured value. It would be wrong, though no less private."""
    used = terms.filter
    carried = (used.carried.max(axis=0) / (1 - used.decay_rates)).sum()
    filtered = (float(used.direct.max()) + carried) * terms.most * float(used.rows.max()) / 2.0**used.shift
    spread = max(
        float(np.array([float(f.row_sums(1).max()) for f in family.factors])[family.sets].prod(axis=1).max())
        for family in strategy.blocks
    )
    if filtered * spread + _ROOM * float(terms.noise.sigma) >= 2.0**63:
        raise PlanError("a measured value could outgrow 63 bits; plan with a smaller number of records")


def _noise(terms: StreamTerms, price: Event, sizes: dict[str, int], unit: PrivacyUnit) -> RoundedGaussian:
    """The least noise that the price pays for, up to a 2^-10."""
    try:
        found = noise_of(price, terms.squared_shift(sizes, unit))
        assert isinstance(found, RoundedGaussian)
        return RoundedGaussian(Fraction(math.ceil(found.sigma * _FINE), _FINE))
    except InvalidInput as error:
        raise PlanError(
            f"the noise that this budget asks for is out of range ({error}); give a larger budget"
        ) from error


def _prefix_bound(n: int) -> float:
    """The sum of the singular values of the n x n matrix of prefix sums, over n: no mean error over time is less."""
    return float((1 / (2 * np.sin((2 * np.arange(1, n + 1) - 1) * np.pi / (4 * n + 2)))).sum() / n)
