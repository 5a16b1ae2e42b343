"""One answer of a release, and arithmetic with several: sums and differences, and ratios by Fieller's theorem.

Two answers of one release err together, and their covariance follows from the plan; those of two releases err
independently. A sum or difference of answers is a linear answer again, with the interval of its own variance. A ratio
A / B has the interval of all p for which A - p B could be 0 (Fieller), as in `statistics`: it holds with the stated
confidence however B errs. Answers that come without a release behind them (of models and sketches) are refused.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sfumato.errors import NotAnswerable, PlanError
from sfumato.operators import Block
from sfumato.operators.base import FloatArray
from sfumato.plans.intervals import of_any_sum

if TYPE_CHECKING:
    from sfumato.releases.core import Release

__all__ = ["SIZE_ERRORS", "Answer", "Linear", "Ratio", "fieller", "too_few"]

SIZE_ERRORS = 5.0
"""Least size of a group, in standard errors, of which quantiles, means, shares and ratios are told: its size is then
known to 20 %, as in `plan.smallest_count()`, and a group of nobody passes once in 3.5 million times."""


class _Numbers(NamedTuple):
    value: float
    standard_error: float | None
    low: float
    high: float


class Answer(_Numbers):
    """One answer: its value, its standard error (None where it is projected), and the ends of its interval.

    Answers of releases add, subtract, and are multiplied by numbers; the quotient of two is a ratio with the interval
    of Fieller's theorem. Answers of one release are taken with their covariance, those of two as independent. Raises
    PlanError for an answer of a model or a sketch, NotAnswerable where a denominator is less than 5 standard errors.

    >>> made = sf.plan(sf.identity(sf.Domain({"age": 4})), sf.gdp(1), neighbours="add-remove")
    >>> ages = sf.release(made, sf.Histogram([30, 20, 10, 0]), ledger=None, name="ages")
    >>> young = ages.ask("age <= 1")
    >>> round(young.standard_error, 6), young.low < young.value < young.high
    (1.414214, True)
    >>> everybody = ages.ask("age <= 3")
    >>> print(everybody - everybody)
    0 records, 95 % interval 0 to 0, standard error 0
    >>> round((everybody - young).standard_error, 6)     # two cells are left, each with an error of 1
    1.414214
    >>> share = young / everybody
    >>> share.low < share.value < share.high < 1.1
    True
    """

    form: Linear | None = None
    confidence: float = 0.95
    """What the interval holds with; 1 where its ends are only what is possible at all."""
    unit: str = "records"
    """What the value counts; empty for a share or ratio of counts."""

    __array_ufunc__ = (
        None  # numpy's own numbers leave arithmetic to this class, and its functions refuse: no logarithms of ends
    )

    @classmethod
    def of(cls, form: Linear | Ratio, confidence: float) -> Answer:
        """The answer that a form of a release's answers gives."""
        found = cls(*form.numbers(confidence))
        found.form = form if isinstance(form, Linear) else None
        found.confidence = confidence
        found.unit = "records" if isinstance(form, Linear) else form.unit
        return found

    def known(self, form: Linear, confidence: float) -> Answer:
        """The same numbers, with what they answer."""
        self.form, self.confidence = form, confidence
        return self

    def __str__(self) -> str:
        """The value with its unit, its interval and its standard error, to two figures of that error."""
        error = self.standard_error
        scale = (self.high - self.low) / 4 if error is None else error
        value, low, high = (_shown(x, scale) for x in (self.value, self.low, self.high))
        text = f"{value} {self.unit}".rstrip()
        if self.confidence == 1:
            return f"{text}, of {low} to {high} that are possible at all; its error is not known"
        told = "" if error is None else f", standard error {_shown(error, error)}"
        return f"{text}, {100 * self.confidence:.6g} % interval {low} to {high}{told}"

    def linear(self) -> Linear:
        """What it answers, as a sum. Raises PlanError where that is not known."""
        if self.form is None:
            raise PlanError(
                "arithmetic needs answers of a release whose errors are known, from release.ask; this one is a ratio, "
                "or comes from a model or a sketch"
            )
        return self.form

    def _joined(self, other: object, sign: float) -> Answer:
        if not isinstance(other, Answer):
            return NotImplemented
        form = self.linear() + other.linear().times(sign)
        return Answer.of(form, _same(self.confidence, other.confidence))

    def __add__(self, other: object) -> Answer:  # type: ignore[override]  (two answers are no longer tuple)
        return self._joined(other, 1.0)

    def __radd__(self, other: object) -> Answer:
        # what the builtin sum starts with
        return self if other == 0 and not isinstance(other, Answer) else NotImplemented

    def __sub__(self, other: object) -> Answer:
        return self._joined(other, -1.0)

    def __neg__(self) -> Answer:
        return self * -1

    def _ordered(self, other: object) -> bool:
        """Which of two is larger the noise decides too."""
        raise TypeError("answers have no order; compare their .value, or ask whether the interval of a - b holds 0")

    __lt__ = __le__ = __gt__ = __ge__ = _ordered

    def __mul__(self, other: object) -> Answer:  # type: ignore[override]
        if isinstance(other, bool) or not isinstance(other, (int, float)) or not math.isfinite(other):
            return NotImplemented
        return Answer.of(self.linear().times(float(other)), self.confidence)

    __rmul__ = __mul__  # type: ignore[assignment]

    def __truediv__(self, other: object) -> Answer:
        if isinstance(other, Answer):
            form = Ratio(self.linear(), other.linear())
            return Answer.of(form, _same(self.confidence, other.confidence))
        return self * (1 / other) if isinstance(other, (int, float)) and other else NotImplemented


def _shown(value: float, error: float) -> str:
    """A number with as many decimals as show two figures of its error."""
    if not (math.isfinite(value) and 0 < error < math.inf):
        return f"{value:,.10g}"
    decimals = min(max(1 - math.floor(math.log10(error)), 0), 9)
    return f"{value:,.{decimals}f}"


def _same(one: float, other: float) -> float:
    if one != other:
        raise PlanError(f"the answers have intervals of {one:g} and of {other:g}; ask both with one confidence")
    return one


@dataclass(frozen=True, slots=True)
class Linear:
    """A weighted sum of single answers of releases: (coefficient, release, block of one row) each."""

    terms: tuple[tuple[float, Release, Block], ...]

    def __add__(self, other: Linear) -> Linear:
        return Linear(self.terms + other.terms)

    def times(self, factor: float) -> Linear:
        """The same sum, multiplied."""
        return Linear(tuple((c * factor, r, b) for c, r, b in self.terms))

    @property
    def projected(self) -> bool:
        """Whether a term comes from a projected release, of which no standard error is known."""
        return any(r.projection is not None for _, r, _ in self.terms)

    def value(self, *, raw: bool = False) -> float:
        """The sum, of the unprojected answers if wanted."""
        found = ((r.raw if raw else r).answer_block(b)[0] for _, r, b in self.terms)
        return math.fsum(c * float(v) for (c, _, _), v in zip(self.terms, found, strict=True))

    def covariance(self, other: Linear) -> float:
        """Covariance with another sum: of terms of one release what the plan predicts, of others none."""
        for _, r, b in (*self.terms, *other.terms):
            if r.plan.strategy.deviations(b) is not None:
                raise NotAnswerable("arithmetic needs unbiased answers, and this release gives these with a bias")
        pairs = itertools.product(self.terms, other.terms)
        return math.fsum(c * d * _between(r, a, s, b) for (c, r, a), (d, s, b) in pairs)

    def multiplier(self, level: float) -> float:
        """Half of an interval in standard errors, whichever draws the sum averages."""
        return max(of_any_sum(level, r.measurement.noise) for _, r, _ in self.terms)

    def numbers(self, level: float) -> tuple[float, float | None, float, float]:
        """(value, standard error, low, high)."""
        centre, error = self.value(raw=True), math.sqrt(max(self.covariance(self), 0.0))
        half = self.multiplier(level) * error
        return _ended(self.value(), error, centre - half, centre + half, projected=self.projected)


@dataclass(frozen=True, slots=True)
class Ratio:
    """A linear answer divided by another; of a mean `unit` says of what."""

    top: Linear
    bottom: Linear
    unit: str = ""

    def numbers(self, level: float) -> tuple[float, float | None, float, float]:
        """(value, standard error, low, high). Raises NotAnswerable where the denominator may be 0."""
        a, b, z = self.top.value(raw=True), self.bottom.value(raw=True), self.bottom.multiplier(level)
        z = max(z, self.top.multiplier(level))
        pairs = ((self.top, self.top), (self.bottom, self.bottom), (self.top, self.bottom))
        va, vb, c = (x.covariance(y) for x, y in pairs)
        size = math.sqrt(max(vb, 0.0))
        if abs(b) <= max(max(SIZE_ERRORS, z) * size, 0.5):
            raise NotAnswerable(
                f"the denominator, {b:,.4g} ± {z * size:,.4g}, is too near 0 for a ratio: it needs {SIZE_ERRORS:g} "
                "standard errors"
            )
        _, error, low, high = (
            float(x) for x in fieller(np.array(a), np.array(b), np.array(va), np.array(vb), np.array(c), z)
        )
        value = self.top.value() / self.bottom.value() if self.bottom.value() else math.nan
        return _ended(value, error, low, high, projected=self.top.projected or self.bottom.projected)


def fieller(
    a: FloatArray, b: FloatArray, va: FloatArray, vb: FloatArray, c: FloatArray, z: float
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """(a / b, its standard error, low, high) from variances and covariances, where |b| is above z standard errors.

    The ends are the roots p of (a - p b)² = z² (va - 2 p c + p² vb), a quadratic that is bounded there.
    """
    value = a / b
    error = np.sqrt(np.maximum(va - 2 * value * c + value**2 * vb, 0.0)) / np.abs(b)
    q2, q1, q0 = b**2 - z**2 * vb, a * b - z**2 * c, a**2 - z**2 * va
    root = np.sqrt(np.maximum(q1**2 - q2 * q0, 0.0))
    return value, error, (q1 - root) / q2, (q1 + root) / q2


def _between(one: Release, a: Block, other: Release, b: Block) -> float:
    """The covariance of two answers."""
    same = one.measurement is other.measurement or one.result_hash == other.result_hash
    if not same:
        return 0.0
    strategy: Any = one.plan.strategy
    source = strategy.source(a)
    if source is not strategy.source(b):  # the noise of different pieces is independent
        return 0.0
    return float(source.covariance(a, b)[0, 0]) * one.measurement.noise.variance


def _ended(
    value: float, error: float, low: float, high: float, *, projected: bool
) -> tuple[float, float | None, float, float]:
    """Of a projected value no standard error is known; its interval is the unprojected one, extended to it."""
    return (value, None, min(low, value), max(high, value)) if projected else (value, error, low, high)


def too_few(size: float, half: float) -> str:
    """What is said of a group whose size is not told from noise."""
    if half < 0.05:
        return "no records"
    digits = 0 if half >= 10 else 1
    return f"too few to tell: {size:,.{digits}f} ± {half:,.{digits}f} records"
