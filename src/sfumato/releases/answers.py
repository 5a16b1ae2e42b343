"""One answer of a release, and arithmetic with several: sums and differences, and ratios by Fieller's theorem.

Two answers of one release err together, and their covariance follows from the plan; those of two releases err
independently. A sum or difference of answers is a linear answer again, with the interval of its own variance. A ratio
A / B has the interval of all p for which A - p B could be 0 (Fieller), as in `statistics`: it holds with the stated
confidence however B errs. What is made of ratios, such as the difference of two shares, has an interval that is put
together from those of its operands and their correlation ([ZD08]; a quotient as all p for which X - p Y could be 0).
Answers that come without a release behind them (of models and sketches) are refused.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sfumato.errors import NotAnswerable, PlanError
from sfumato.operators import Block
from sfumato.operators.base import FloatArray
from sfumato.plans.planned import rows_text
from sfumato.plans.predictions import widest_sum_margin

if TYPE_CHECKING:
    from sfumato.releases.release import Release

SIZE_ERRORS = 5.0
"""Least size of a group, in standard errors, of which quantiles, means, shares and ratios are told: its size is then
known to 20 %, as in `plan.smallest_count()`, and a group of nobody passes once in 3.5 million times."""


_PART_ERRORS = 20.0
"""Least size of the denominators of ratios that are put together, in standard errors. The interval of what they make
holds then: in 80 drawn cases of four correlated counts, at least 93.5 % of 1,000 draws each, where chance alone takes
95 % to 93.7 %; with denominators of 7 standard errors one case of 60 held in 86 %."""


class _Numbers(NamedTuple):
    value: float
    standard_error: float | None
    low: float
    high: float


class Answer(_Numbers):
    """One answer: its value, its standard error, and the ends of its interval.

    Answers of releases add, subtract, and are multiplied by numbers; the quotient of two is a ratio with the interval
    of Fieller's theorem, and ratios add, subtract and are divided in turn. Answers of one release are taken with their
    covariance, those of two as independent. `float(answer)` is the value. Arithmetic raises PlanError for an answer of
    a model or a sketch, and NotAnswerable where a denominator is less than 5 standard errors.

    Args:
        value: The answer, in `unit`.
        standard_error: Its standard error, or None where the answer is projected.
        low: The lower end of the interval.
        high: The upper end of the interval.

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
    >>> rest = 1 - share
    >>> round(float(share) + float(rest), 9), round(rest.standard_error / share.standard_error, 9)
    (1.0, 1.0)
    """

    form: LinearAnswer | Nonlinear | None = None
    confidence: float = 0.95
    """What the interval holds with; 1 where its ends are only what is possible at all."""
    unit: str = "records"
    """What the value counts; empty for a share or ratio of counts."""

    __array_ufunc__ = (
        None  # numpy's own numbers leave arithmetic to this class, and its functions refuse: no logarithms of ends
    )

    @classmethod
    def of(cls, form: LinearAnswer | Nonlinear | Ratio, confidence: float) -> Answer:
        """The answer that a form of a release's answers gives.

        Args:
            form: A sum, a ratio, or what is made of ratios.
            confidence: The probability, strictly between 0 and 1, with which the interval holds.

        Returns:
            The answer, which knows its form and its unit.
        """
        if isinstance(form, Nonlinear):
            return cls(*form.numbers()).told_by(form, confidence)
        kept = form if isinstance(form, LinearAnswer) else form.bent(confidence)
        return cls(*form.numbers(confidence)).told_by(kept, confidence)

    def told_by(self, form: LinearAnswer | Nonlinear, confidence: float) -> Answer:
        """The same numbers, with their form and the unit that follows from it.

        Args:
            form: Which sum or ratio of a release's answers they are.
            confidence: The probability with which the interval holds.

        Returns:
            This answer.
        """
        self.form, self.confidence = form, confidence
        self.unit = "records" if isinstance(form, LinearAnswer) else form.unit
        return self

    def known(self, form: LinearAnswer, confidence: float) -> Answer:
        """The same numbers, with their form; the unit stays.

        Args:
            form: Which sum of a release's answers they are.
            confidence: The probability with which the interval holds.

        Returns:
            This answer.
        """
        self.form, self.confidence = form, confidence
        return self

    def __str__(self) -> str:
        """The value with its unit, its interval and its standard error, to two figures of that error."""
        error = self.standard_error
        scale = (self.high - self.low) / 4 if error is None else error
        value, low, high = (_format_with_error(x, scale) for x in (self.value, self.low, self.high))
        terms = self.form.terms if isinstance(self.form, LinearAnswer) and self.unit == "records" else ()
        whose = next((r.plan.unit for _, r, _ in terms if r.plan.unit.person is not None), None)
        text = f"{value} {self.unit if whose is None else rows_text(whose)}".rstrip()
        if self.confidence == 1:
            return f"{text}, of {low} to {high} that are possible at all; its error is not known"
        told = "" if error is None else f", standard error {_format_with_error(error, error)}"
        return f"{text}, {100 * self.confidence:.6g} % interval {low} to {high}{told}"

    def to_dict(self) -> dict[str, Any]:
        """The numbers by their names, with the confidence and the unit.

        Returns:
            JSON values.
        """
        return self._asdict() | {"confidence": self.confidence, "unit": self.unit}

    def __float__(self) -> float:
        return self.value

    def known_form(self) -> LinearAnswer | Nonlinear:
        """The form of the answer: which sum or ratio of a release's answers it is.

        Returns:
            The form.

        Raises:
            PlanError: The answer comes from a model or a sketch, which has none.
        """
        if self.form is None:
            raise PlanError(
                "arithmetic needs answers of a release whose errors are known, from release.ask; this one comes from a "
                "model or a sketch"
            )
        return self.form

    def linear(self) -> LinearAnswer:
        """The form of the answer, which must be a sum.

        Returns:
            The sum.

        Raises:
            PlanError: The answer is a ratio, or comes from a model or a sketch.
        """
        form = self.known_form()
        if isinstance(form, Nonlinear):
            raise PlanError("this takes counts and their sums; the answer given is a ratio, or made of ratios")
        return form

    def _joined(self, other: object, sign: float) -> Answer:
        if isinstance(other, Answer):
            one, two = self.known_form(), other.known_form()
            level = _common_confidence(self.confidence, other.confidence)
            if isinstance(one, LinearAnswer) and isinstance(two, LinearAnswer):
                return Answer.of(one + two.times(sign), level)
            if self.unit != other.unit:
                raise PlanError(f"{self.unit or 'a ratio'} and {other.unit or 'a ratio'} do not add; divide them")
            return Answer.of(_as_nonlinear(one, level).plus(_as_nonlinear(two, level).times(sign)).checked(), level)
        if isinstance(other, bool) or not isinstance(other, (int, float)) or not math.isfinite(other):
            return NotImplemented
        form, moved = self.known_form(), sign * float(other)
        if isinstance(form, LinearAnswer):
            return Answer.of(form + LinearAnswer((), moved), self.confidence)
        return Answer.of(replace(form, constant=form.constant + moved), self.confidence)

    def __add__(self, other: object) -> Answer:  # type: ignore[override]  (two answers are no longer tuple)
        return self._joined(other, 1.0)

    __radd__ = __add__

    def __sub__(self, other: object) -> Answer:
        return self._joined(other, -1.0)

    def __rsub__(self, other: object) -> Answer:
        return (-self)._joined(other, 1.0)

    def __neg__(self) -> Answer:
        return self * -1

    def _ordered(self, other: object) -> bool:
        """Which of two is larger the noise decides too."""
        raise TypeError("answers have no order; compare their .value, or ask whether the interval of a - b holds 0")

    __lt__ = __le__ = __gt__ = __ge__ = _ordered

    def __mul__(self, other: object) -> Answer:  # type: ignore[override]
        if isinstance(other, bool) or not isinstance(other, (int, float)) or not math.isfinite(other):
            return NotImplemented
        return Answer.of(self.known_form().times(float(other)), self.confidence)

    __rmul__ = __mul__  # type: ignore[assignment]

    def __truediv__(self, other: object) -> Answer:
        if isinstance(other, Answer):
            one, two = self.known_form(), other.known_form()
            level = _common_confidence(self.confidence, other.confidence)
            if isinstance(one, LinearAnswer) and isinstance(two, LinearAnswer):
                return Answer.of(Ratio(one, two), level)
            top, bottom = _as_nonlinear(one, level), _as_nonlinear(two, level)
            return Answer.of(top.over(bottom), level)
        return self * (1 / other) if isinstance(other, (int, float)) and other else NotImplemented


def _format_with_error(value: float, error: float) -> str:
    """A number with as many decimals as show two figures of its error."""
    if not (math.isfinite(value) and 0 < error < math.inf):
        return f"{value:,.10g}"
    decimals = min(max(1 - math.floor(math.log10(error)), 0), 9)
    return f"{value:,.{decimals}f}"


def _common_confidence(one: float, other: float) -> float:
    if one != other:
        raise PlanError(f"the answers have intervals of {one:g} and of {other:g}; ask both with one confidence")
    return one


@dataclass(frozen=True, slots=True)
class LinearAnswer:
    """A weighted sum of single answers of releases, (coefficient, release, block of one row) each, and a constant.

    Where it holds sums of the middles of cells, `reach` is two sums between which that of the values lies, each None
    where nothing measured bounds it; where it holds none, `reach` is None.
    """

    terms: tuple[tuple[float, Release, Block], ...]
    constant: float = 0.0
    reach: tuple[LinearAnswer | None, LinearAnswer | None] | None = None

    @property
    def sides(self) -> tuple[LinearAnswer | None, LinearAnswer | None]:
        """What the values' sum is no less than, and no more than."""
        return (self, self) if self.reach is None else self.reach

    def __add__(self, other: LinearAnswer) -> LinearAnswer:
        terms, constant = self.terms + other.terms, self.constant + other.constant
        if self.reach is None and other.reach is None:
            return LinearAnswer(terms, constant)
        low, high = (
            None if a is None or b is None else LinearAnswer(a.terms + b.terms, a.constant + b.constant)
            for a, b in zip(self.sides, other.sides, strict=True)
        )
        return LinearAnswer(terms, constant, (low, high))

    def times(self, factor: float) -> LinearAnswer:
        """The same sum, multiplied."""
        terms, constant = tuple((c * factor, r, b) for c, r, b in self.terms), self.constant * factor
        if self.reach is None:
            return LinearAnswer(terms, constant)
        low, high = (None if side is None else side.times(factor) for side in self.reach)
        return LinearAnswer(terms, constant, (high, low) if factor < 0 else (low, high))

    @property
    def projected(self) -> bool:
        """Whether a term comes from a projected release, of which no standard error is known."""
        return any(r.projection is not None for _, r, _ in self.terms)

    def value(self, *, raw: bool = False) -> float:
        """The sum, of the unprojected answers if wanted."""
        found = ((r.raw if raw else r).answer_block(b)[0] for _, r, b in self.terms)
        return math.fsum([self.constant, *(c * float(v) for (c, _, _), v in zip(self.terms, found, strict=True))])

    def covariance(self, other: LinearAnswer) -> float:
        """Covariance with another sum: of terms of one release what the plan predicts, of others none."""
        for _, r, b in (*self.terms, *other.terms):
            if r.plan.strategy.deviations(b) is not None:
                raise NotAnswerable("arithmetic needs unbiased answers, and this release gives these with a bias")
        pairs = itertools.product(self.terms, other.terms)
        return math.fsum(c * d * _answer_covariance(r, a, s, b) for (c, r, a), (d, s, b) in pairs)

    def multiplier(self, level: float) -> float:
        """Half of an interval in standard errors, whichever draws the sum averages."""
        return max(widest_sum_margin(level, r.measurement.noise) for _, r, _ in self.terms)

    def numbers(self, level: float) -> tuple[float, float | None, float, float]:
        """(value, standard error, low, high)."""
        centre, error = self.value(raw=True), math.sqrt(max(self.covariance(self), 0.0))
        half = self.multiplier(level) * error
        low, high = centre - half, centre + half
        if self.reach is not None:
            low, high = (_interval_end(s, level, e) for s, e in zip(self.reach, (0, 1), strict=True))
            low, high = float(np.minimum(low, self.value())), float(np.maximum(high, self.value()))
        return _extend_interval(self.value(), error, low, high, projected=self.projected)


@dataclass(frozen=True, slots=True)
class Ratio:
    """A linear answer divided by another; of a mean `unit` says of what."""

    top: LinearAnswer
    bottom: LinearAnswer
    unit: str = ""

    def bent(self, level: float) -> Nonlinear:
        """The same as an operand of further arithmetic."""
        a, b = self.top.value(raw=True), self.bottom.value(raw=True)
        value, _, low, high = self._told(level)
        projected = self.top.projected or self.bottom.projected
        gradient = self.top.times(1 / b) + self.bottom.times(-a / b**2)
        shown = self.top.value() / self.bottom.value() if self.bottom.value() else math.nan
        error = math.sqrt(max(self.bottom.covariance(self.bottom), 0.0))
        reach = None
        if self.top.reach is not None or self.bottom.reach is not None:
            reach = tuple(None if r is None else r.bent(level).parts[0][1] for r in self._corners(level))
        made = Quotient(value, shown, low, high, gradient, abs(b) / error if error else math.inf, reach=reach)
        return Nonlinear(((1.0, made),), 0.0, self.unit, projected)

    def numbers(self, level: float) -> tuple[float, float | None, float, float]:
        """(value, standard error, low, high). Raises NotAnswerable where the denominator may be 0."""
        _, error, low, high = self._told(level)
        value = self.top.value() / self.bottom.value() if self.bottom.value() else math.nan
        if self.top.reach is not None or self.bottom.reach is not None:
            low, high = (_interval_end(r, level, e) for r, e in zip(self._corners(level), (0, 1), strict=True))
            low, high = float(np.minimum(low, value)), float(np.maximum(high, value))
        return _extend_interval(value, error, low, high, projected=self.top.projected or self.bottom.projected)

    def _told(self, level: float) -> tuple[float, float, float, float]:
        """(value, standard error, low, high) of the unprojected answers."""
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
        value, error, low, high = (
            float(x) for x in fieller_interval(np.array(a), np.array(b), np.array(va), np.array(vb), np.array(c), z)
        )
        return value, error, low, high

    def _corners(self, level: float) -> tuple[Ratio | None, Ratio | None]:
        """The ratios that end lowest and highest, where numerator and denominator lie between sums.

        A ratio is least and largest at their ends. Each end is then that of one of four ratios, whichever it is, so
        both hold with the confidence of each. None where nothing measured bounds one of them. Raises NotAnswerable
        where the denominator may be 0.
        """
        signs = {math.copysign(1.0, b.value(raw=True)) for b in self.bottom.sides if b is not None}
        if len(signs) > 1:
            raise NotAnswerable("the denominator lies between sums of different signs, so it may be 0")
        pairs = itertools.product(self.top.sides, self.bottom.sides)
        found = [Ratio(a, b, self.unit) for a, b in pairs if a is not None and b is not None]
        if len(found) < 4:
            return None, None
        ends = [r.numbers(level)[2:] for r in found]
        return found[min(range(4), key=lambda i: ends[i][0])], found[max(range(4), key=lambda i: ends[i][1])]


@dataclass(frozen=True, slots=True, eq=False)
class Quotient:
    """A quotient as part of a sum: of the unprojected answers its value, its interval, and its first-order change.

    Where it holds sums of the middles of cells, `reach` is two quotients between which that of the values lies.
    """

    centre: float
    shown: float
    low: float
    high: float
    gradient: LinearAnswer
    size: float
    """Of the denominator, in standard errors; infinite where there is none."""
    nested: bool = False
    reach: tuple[Quotient | None, ...] | None = None


@dataclass(frozen=True, slots=True)
class Nonlinear:
    """A weighted sum of quotients and a constant, such as the difference of two shares."""

    parts: tuple[tuple[float, Quotient], ...]
    constant: float
    unit: str
    projected: bool

    @property
    def centre(self) -> float:
        """The value, of the unprojected answers."""
        return math.fsum([self.constant, *(w * q.centre for w, q in self.parts)])

    @property
    def gradient(self) -> LinearAnswer:
        """How the value changes with single answers, to first order."""
        return functools.reduce(operator.add, (q.gradient.times(w) for w, q in self.parts))

    def times(self, factor: float) -> Nonlinear:
        """The same, multiplied."""
        parts = tuple((w * factor, q) for w, q in self.parts)
        return replace(self, parts=parts, constant=self.constant * factor)

    def plus(self, other: Nonlinear) -> Nonlinear:
        """The sum; a quotient that stands in both is one, with the sum of its weights."""
        weights: dict[Quotient, float] = {}
        for w, q in (*self.parts, *other.parts):
            weights[q] = weights.get(q, 0.0) + w
        parts = tuple((w, q) for q, w in weights.items())
        return Nonlinear(parts, self.constant + other.constant, self.unit, self.projected or other.projected)

    def checked(self) -> Nonlinear:
        """The same, where an interval that holds is known. Raises NotAnswerable."""
        least = min(q.size for _, q in self.parts)
        if len(self.parts) > 1 and least < _PART_ERRORS:
            raise NotAnswerable(
                f"a denominator of {least:.3g} standard errors is too small for arithmetic of ratios, whose interval "
                f"would not hold: it needs {_PART_ERRORS:g}. Each ratio by itself needs {SIZE_ERRORS:g}"
            )
        if len(self.parts) > 1 and any(q.nested for _, q in self.parts):
            raise NotAnswerable("of sums with ratios of ratios no interval is known that holds; ask for each by itself")
        if any(side is None for _, q in self.parts for side in q.reach or ()):
            raise NotAnswerable("nothing measured bounds the values in an open cell, so no interval of this holds")
        return self

    def ends(self) -> tuple[float, float]:
        """The interval of the unprojected answers: distances to the ends of the parts' own intervals, put together
        as standard errors are, with the correlations of the parts [ZD08]; where values lie between sums, from the
        side on which that end is."""
        if any(q.reach for _, q in self.parts):
            low, high = (self._side(end).ends()[end] for end in (0, 1))
            return low, high
        down = [w * (q.centre - q.low) if w > 0 else w * (q.high - q.centre) for w, q in self.parts]
        up = [w * (q.high - q.centre) if w > 0 else w * (q.centre - q.low) for w, q in self.parts]
        gradients = [q.gradient for _, q in self.parts]
        covariances = np.array([[g.covariance(h) for h in gradients] for g in gradients])
        errors = np.sqrt(np.maximum(np.diag(covariances), 0.0))
        scale = np.where(errors > 0, errors, 1.0)
        correlations = np.clip(covariances / np.outer(scale, scale), -1.0, 1.0)
        below, above = (math.sqrt(max(float(np.array(d) @ correlations @ np.array(d)), 0.0)) for d in (down, up))
        return self.centre - below, self.centre + above

    def _side(self, end: int) -> Nonlinear:
        """The sum of what the parts are no less than (end 0), or no more than."""
        sides = ((w, q if q.reach is None else q.reach[end if w > 0 else 1 - end]) for w, q in self.parts)
        known = tuple((w, replace(q, reach=None)) for w, q in sides if q is not None)
        if len(known) < len(self.parts):
            unknown = replace(self.parts[0][1], low=math.nan, high=math.nan, reach=None)
            return replace(self, parts=((1.0, unknown),))
        return replace(self, parts=known)

    def numbers(self) -> tuple[float, float | None, float, float]:
        """(value, standard error to first order, low, high)."""
        gradient = self.gradient
        error = math.sqrt(max(gradient.covariance(gradient), 0.0))
        value = math.fsum([self.constant, *(w * q.shown for w, q in self.parts)])
        return _extend_interval(value, error, *self.ends(), projected=self.projected)

    def over(self, other: Nonlinear) -> Nonlinear:
        """The quotient: all p for which this minus p times the other could be 0."""
        Nonlinear((*self.parts, *other.parts), 0.0, "", projected=False).checked()
        if other.centre < 0:
            return self.times(-1).over(other.times(-1))
        error = math.sqrt(max(other.gradient.covariance(other.gradient), 0.0))
        least = other.ends()[0]
        if least <= 0 or other.centre <= SIZE_ERRORS * error:
            raise NotAnswerable(
                f"the denominator, {other.centre:,.4g} ± {other.centre - least:,.4g}, is too near 0 for a ratio: it "
                f"needs {SIZE_ERRORS:g} standard errors"
            )
        centre = self.centre / other.centre
        gradient = self.gradient.times(1 / other.centre) + other.gradient.times(-centre / other.centre)
        low, high = (self._root(other, centre, side) for side in (0, 1))
        value, below = self.numbers()[0], other.numbers()[0]
        sizes = [q.size for _, q in (*self.parts, *other.parts)]
        size = min([*sizes, other.centre / error if error else math.inf])
        made = Quotient(centre, value / below if below else math.nan, low, high, gradient, size, nested=True)
        return Nonlinear(((1.0, made),), 0.0, "", self.projected or other.projected)

    def _root(self, other: Nonlinear, centre: float, side: int) -> float:
        """The least (side 0) or the largest p for which the interval of this minus p times the other still holds 0.

        There it ends at 0 itself; farther out the sign of the other decides, whose interval excludes 0.
        """

        def end(p: float) -> float:
            return self.plus(other.times(-p)).ends()[side]

        sign = 1.0 if side else -1.0
        if sign * end(centre) <= 0:  # nothing errs
            return centre
        low, high = self.ends()
        step = max((high - low) / other.ends()[0], abs(centre) * 1e-9, 1e-300)
        while sign * end(centre + sign * step) > 0:
            step *= 2
        from scipy.optimize import brentq  # noqa: PLC0415  (slow to import)

        near, far = sorted((centre, centre + sign * step))
        return float(brentq(end, near, far, xtol=1e-12 * step, rtol=1e-13))


def _as_nonlinear(form: LinearAnswer | Nonlinear, level: float) -> Nonlinear:
    """Any operand as a sum of quotients: one that is linear stands for itself, with its own interval."""
    if isinstance(form, Nonlinear):
        return form
    centre, error = form.value(raw=True), math.sqrt(max(form.covariance(form), 0.0))
    half = form.multiplier(level) * error
    reach = None
    if form.reach is not None:
        reach = tuple(None if side is None else _as_nonlinear(side, level).parts[0][1] for side in form.reach)
    made = Quotient(centre, form.value(), centre - half, centre + half, form, math.inf, reach=reach)
    return Nonlinear(((1.0, made),), 0.0, "records", form.projected)


def _interval_end(side: LinearAnswer | Ratio | None, level: float, end: int) -> float:
    """The lower (0) or upper (1) end of an interval; NaN where nothing measured bounds what is asked."""
    return math.nan if side is None else side.numbers(level)[2:][end]


def fieller_interval(
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


def _answer_covariance(one: Release, a: Block, other: Release, b: Block) -> float:
    """The covariance of two answers."""
    same = one.measurement is other.measurement or one.result_hash == other.result_hash
    if not same:
        return 0.0
    strategy: Any = one.plan.strategy
    source = strategy.source(a)
    if source is not strategy.source(b):  # the noise of different pieces is independent
        return 0.0
    return float(source.covariance(a, b)[0, 0]) * one.measurement.noise.variance


def _extend_interval(
    value: float, error: float, low: float, high: float, *, projected: bool
) -> tuple[float, float | None, float, float]:
    """Of a projected value no standard error is known; its interval is the unprojected one, extended to it."""
    if not projected:
        return value, error, low, high
    # numpy's own keep an end that is not known
    return value, None, float(np.minimum(low, value)), float(np.maximum(high, value))


def too_few_note(size: float, half: float) -> str:
    """What is said of a group whose size is not told from noise."""
    if half < 0.05:
        return "no records"
    digits = 0 if half >= 10 else 1
    return f"too few to tell: {size:z,.{digits}f} ± {half:,.{digits}f} records"  # z: no minus before 0
