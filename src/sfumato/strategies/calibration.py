"""From a budget to integers: scale a strategy to the noise so that it just fits the price, checked exactly."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from sfumato.errors import PlanError
from sfumato.privacy.accounting import Event, GaussianEvent, PureEvent, ZcdpEvent
from sfumato.privacy.amounts import Currency
from sfumato.privacy.budget import Budget
from sfumato.privacy.noise import DiscreteGaussian, DiscreteLaplace, NoiseLaw, RoundedGaussian
from sfumato.privacy.rounding import sqrt_up
from sfumato.privacy.sensitivity import Sensitivity, noise_fits_price
from sfumato.privacy.unit import PrivacyUnit
from sfumato.strategies.certificates import exact_sensitivity
from sfumato.strategies.strategy import Strategy


def spend_in(budget: Budget, currency: Currency) -> Event:
    """The dearest event that adds up exactly in a currency and keeps the budget.

    Raises BudgetError where none does: Gaussian noise under a pure budget, zCDP under another that it does not imply.
    """
    if currency is Currency.EPSILON:
        return PureEvent(budget.laplace_epsilon)
    return ZcdpEvent(budget.rho) if currency is Currency.RHO else GaussianEvent(budget.mu_squared)


def price_of(budget: Budget, currency: Currency | None = None) -> Event:
    """The whole budget as one event that a ledger of this currency (by default the budget's own) can pay."""
    wanted = Currency.EPSILON if budget.kind == "pure" else currency or budget.currency
    return spend_in(budget, Currency.MU_SQUARED if wanted is Currency.RHO and budget.kind == "gdp" else wanted)


def noise_of(price: Event, sensitivity: Fraction | int, least: Fraction = Fraction(0)) -> NoiseLaw:
    """The least noise, of scale `least` at least, that a price pays for at a sensitivity: L1 for a PureEvent, squared
    L2 for the others.

    Discrete Laplace for a PureEvent, the discrete Gaussian for a ZcdpEvent, the rounded one for a GaussianEvent; sigmas
    are rounded up. Raises PlanError for prices of other kinds.
    """
    match price:
        case PureEvent(epsilon=total):
            return DiscreteLaplace(max(_ratio_or_zero(sensitivity, total), least))
        case ZcdpEvent(rho=total):
            return DiscreteGaussian(max(sqrt_up(_ratio_or_zero(sensitivity, 2 * total)), least))
        case GaussianEvent(mu_squared=total):
            return RoundedGaussian(max(sqrt_up(_ratio_or_zero(sensitivity, total)), least))
        case _:
            raise PlanError("noise is priced as a PureEvent, ZcdpEvent or GaussianEvent")


def _ratio_or_zero(sensitivity: Fraction | int, total: Fraction) -> Fraction:
    """What does not change needs no noise, and may be free."""
    return sensitivity / total if sensitivity else Fraction(0)


def cheapest_noise(
    budget: Budget, laplace: Fraction | int, squared: Fraction | int, currency: Currency | None = None
) -> tuple[NoiseLaw, Event]:
    """The noise of less variance that spends a budget, and its price: Laplace at an L1 sensitivity, or Gaussian at a
    squared L2 one where the budget has any; with `currency` one that such a ledger takes."""
    prices: list[tuple[Event, Fraction | int]] = []
    if currency in (None, Currency.EPSILON) or budget.kind == "pure":
        prices.append((spend_in(budget, Currency.EPSILON), laplace))
    if currency is not Currency.EPSILON and budget.kind != "pure":
        prices.append((spend_in(budget, Currency.MU_SQUARED), squared))
    return min(((noise_of(price, change), price) for price, change in prices), key=lambda found: found[0].variance)


NoiseName = Literal["gaussian", "laplace", "discrete-gaussian"]
NOISES: tuple[NoiseName, ...] = ("gaussian", "laplace", "discrete-gaussian")
_CURRENCIES = dict(zip(NOISES, (Currency.MU_SQUARED, Currency.EPSILON, Currency.RHO), strict=True))

# of the noise on the lattice: rounded to a millionth of it, and below 2^55, where noise laws end
_LEAST_EXPONENT, _MOST_EXPONENT = 20, 54
# What counting those who had more rows than are counted costs of a squared L2 sensitivity, and of an L1 one: all other
# errors grow by half a percent, and by two. A few dozen persons are then seen where the tables err by a few records.
_CUT_SHARES = {2: Fraction(1, 101), 1: Fraction(1, 51)}
# A quarter of that where rows are counted once per group: whoever comes twice to one is cut there, as is meant, so that
# they are many, and known well enough with twice the noise.
_GROUPED_CUT_SHARES = {2: Fraction(1, 401), 1: Fraction(1, 201)}
_RECORDS = 2**32  # for which integers do not wrap where the lattice is made coarser, as it is where there would be
_TOO_FEW = 2**29  # less room than this at its finest: a country has half as many people
_ROWS = 512  # measured at most where the lattice is made coarser: long filters need every digit that they have
_LATTICE = 2**12  # of the noise: rounding to whole numbers then adds less than a hundred-millionth to its variance
_COARSEST = 2.0**-12  # of the finest scale: multiples of a row are then off by a thousandth at most, errors by less
_LEAST_SCALE = Fraction(1, 512)  # of noise on a unit lattice: where noise laws begin
_ATTEMPTS = 60  # the scale falls by 2^-30, 2^-29, ... a time, so by more than any rounding long before


@dataclass(frozen=True, slots=True)
class CalibratedStrategy:
    """An integer strategy with the noise law under which it costs exactly `price` or a hair less.

    `cut` is how many times it is counted who had more rows than are counted; `sensitivity` is of both together.
    """

    strategy: Strategy
    noise: NoiseLaw
    price: Event
    sensitivity: Sensitivity
    cut: int = 0


def noise_for(budget: Budget, asked: str | None) -> NoiseName:
    """The noise that a budget is best spent on, or the one asked for where the budget allows it."""
    if asked is None:
        return "laplace" if budget.kind == "pure" else "gaussian"
    for name in NOISES:
        if asked == name:
            _sensitivity_limit(budget, name)  # refuses what the budget cannot pay
            return name
    raise PlanError(f"noise must be one of {', '.join(NOISES)}, not {asked!r}")


def share_for_tables(unit: PrivacyUnit, power: int) -> Fraction:
    """The share of a sensitivity that is left for tables beside the count of those who had more rows than counted."""
    if unit.person is None:
        return Fraction(1)
    return 1 - (_GROUPED_CUT_SHARES if unit.once_per else _CUT_SHARES)[power]


def _sensitivity_limit(budget: Budget, noise: NoiseName) -> tuple[int, Fraction, Event]:
    """(power of the sensitivity, largest sensitivity per unit scale to that power, price)."""
    price = spend_in(budget, _CURRENCIES[noise])
    match price:
        case GaussianEvent(mu_squared=most):
            return 2, most, price
        case ZcdpEvent(rho=rho):
            return 2, 2 * rho, price
        case _:
            return 1, budget.laplace_epsilon, price


def _noise_law(noise: NoiseName, scale: Fraction) -> NoiseLaw:
    if noise == "gaussian":
        return RoundedGaussian(scale)
    return DiscreteLaplace(scale) if noise == "laplace" else DiscreteGaussian(scale)


def calibrate(
    build: Callable[[float], Strategy],
    fine: float,
    sizes: Mapping[str, int],
    unit: PrivacyUnit,
    budget: Budget,
    noise: NoiseName,
    *,
    unit_lattice: bool = False,
    measures: Sequence[str] = (),
) -> CalibratedStrategy:
    """Choose the lattice and the integer strategy for a budget.

    `build(s)` is the strategy with its real coefficients multiplied by s and rounded; from s = `fine`
    on, rounding does no harm. The noise has scale 2^j and the strategy is scaled to it; with
    `unit_lattice` the strategy is build(1) and the noise is scaled instead. So it is where values are so large that the
    fine lattice leaves no room for the records of a country: there the strategy is as coarse as that takes. Where
    persons are named, how many had more rows than are counted is counted too, for a percent or two of the sensitivity;
    on a unit lattice where that is a whole number.
    Raises PlanError where no lattice fits.
    """
    power, limit, price = _sensitivity_limit(budget, noise)
    share = 1 - share_for_tables(unit, power)

    def found(strategy: Strategy) -> Sensitivity:
        return exact_sensitivity(strategy.blocks, sizes, unit, power, measures)

    def fitted(strategy: Strategy) -> CalibratedStrategy:
        """A strategy as it is, with noise of the scale that it needs."""
        change = found(strategy)
        cut = _integer_root(change.value * share / (1 - share), power)
        ratio = Fraction(change.value + cut**power) / limit
        law = _noise_law(noise, max(_sqrt_up(ratio) if power == 2 else ratio, _LEAST_SCALE))
        return _check_calibrated(strategy, law, price, change, cut)

    if unit_lattice:
        return fitted(build(1.0))
    first = build(fine)
    change = found(first)
    if not measures and first.max_abs * _TOO_FEW > 2**62 and sum(b.rows for b in first.blocks) <= _ROWS:
        scale = max(fine * 2**61 / (first.max_abs * _RECORDS), fine * _COARSEST)
        # where it is far too coarse, which the sensitivity in proportion tells, it is not even looked at
        if 2 * change.value * (scale / fine) ** power > limit * _LATTICE**power:
            coarse = fitted(build(scale))
            if coarse.sensitivity.value > limit * _LATTICE**power:
                return coarse
    if change.value == 0:
        raise PlanError("nothing private is asked: what is public under this relation needs no measurement")
    norm = max(float(change.value) ** (1 / power) / fine, 1e-300)
    per_scale = float(limit) ** (1 / power)
    exponent = math.ceil(math.log2(fine * norm / per_scale))
    exponent = max(_LEAST_EXPONENT, exponent)
    if exponent > _MOST_EXPONENT:
        raise PlanError(
            f"the noise would need a scale of 2^{exponent} on the integer lattice, above 2^{_MOST_EXPONENT}; "
            "ask for fewer queries or a larger budget"
        )
    law = _noise_law(noise, Fraction(2**exponent))
    allowed = limit * Fraction(2**exponent) ** power
    most = allowed * (1 - share)
    scale = float(most) ** (1 / power) / norm * (1 - 2.0**-30)
    for attempt in range(_ATTEMPTS):
        strategy = build(scale)
        change = found(strategy)
        if change.value <= most:
            return _check_calibrated(
                strategy, law, price, change, _integer_root(allowed - change.value, power) if share else 0
            )
        excess = (float(change.value) / float(most)) ** (1 / power)
        scale *= (1 - 2.0 ** (attempt - 30)) / max(excess, 1.0)
    raise PlanError("the strategy does not fit the budget at any scale")


def _check_calibrated(
    strategy: Strategy, law: NoiseLaw, price: Event, change: Sensitivity, cut: int
) -> CalibratedStrategy:
    whole = replace(change, value=change.value + cut**change.power)
    if not noise_fits_price(whole, law, price):
        raise PlanError("internal error: the calibrated noise does not reach its price")
    return CalibratedStrategy(strategy, law, price, whole, cut)


def _integer_root(value: Fraction, power: int) -> int:
    """The largest whole number whose power is at most this."""
    return math.isqrt(math.floor(value)) if power == 2 else math.floor(value)


def _sqrt_up(value: Fraction) -> Fraction:
    """A rational at most 2^-60 relative above the square root, never below it."""
    shift = max(0, 128 - value.numerator.bit_length() + value.denominator.bit_length())
    shift += shift % 2
    root = math.isqrt((value.numerator << shift) // value.denominator) + 1
    return Fraction(root, 2 ** (shift // 2))
