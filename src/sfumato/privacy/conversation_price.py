"""What a conversation may spend and how it answers: a sparse vector whose positive questions get a noisy answer.

Questions arrive one by one. A question is one query q with a public integer estimate e, weight w and penalty p. It is
positive if its score w |q(table) - e| - p, with noise, reaches a noisy threshold; then q(table) is shown with noise.
Nothing here sees a table.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, Protocol

from sfumato._util.codec import storable
from sfumato.errors import BudgetError, BudgetExceeded, PlanError
from sfumato.privacy.accounting import (
    Event,
    GaussianEvent,
    PureEvent,
    ZcdpEvent,
    event_price,
    mu_of_pure,
    precision_for,
)
from sfumato.privacy.amounts import Currency, arb_ball, exact_rational
from sfumato.privacy.noise import BitSource, DiscreteGaussian, DiscreteLaplace, NoiseLaw, RoundedGaussian
from sfumato.privacy.rounding import round_up, sqrt_up
from sfumato.privacy.selection import Epochs

# Mechanisms whose binomial law is summed at once, up to an epsilon at which that gains nothing.
_TOGETHER = 256
_LARGEST_TOGETHER = 4  # one such mechanism gives nearly all away: telling them together gains nothing


def mu_squared_of_pures(epsilon: Fraction, count: int) -> Fraction:
    """A mu^2 that `count` epsilon-DP mechanisms, each chosen after earlier results, imply together; rounded up.

    Together they are at least as private as `count` randomised responses [KOV15, DRS22]: telling Bin(count, p) from
    Bin(count, 1 - p), p = 1/(1 + e^epsilon). Its trade-off curve is a chain of chords; the convex curve of mu-GDP lies
    below all of it if it lies below the vertices (a_i, b_i), so the least mu is the largest of
    Phi^-1(1 - a_i) - Phi^-1(b_i). For 40 mechanisms that is two thirds of the sum of their mu^2 one by one. More than
    256 are taken by groups, whose mu^2 add up.
    """
    groups, rest = divmod(count, _TOGETHER)
    whole = groups * _mu_of_pures(epsilon, _TOGETHER) ** 2 if groups else Fraction(0)
    return whole + (_mu_of_pures(epsilon, rest) ** 2 if rest else 0)


@lru_cache(maxsize=1024, typed=True)
def _mu_of_pures(epsilon: Fraction, count: int) -> Fraction:
    """The least mu of `count` mechanisms, rounded up."""
    if count == 1 or not epsilon or epsilon > _LARGEST_TOGETHER:
        return sqrt_up(count * mu_of_pure(epsilon) ** 2)
    from flint import arb, ctx  # noqa: PLC0415  (heavy)

    bits = precision_for(epsilon) + count
    while True:
        with ctx.workprec(bits):
            odds = arb_ball(-epsilon).exp()
            terms = [math.comb(count, j) * odds**j / (1 + odds) ** count for j in range(count + 1)]
            # under Bin(count, p): P(X >= j) and P(X <= j), each a sum of positive terms
            upper = list(itertools.accumulate(reversed(terms)))[::-1]
            lower = list(itertools.accumulate(terms))
            found = arb(0)
            # the vertices i and count + 1 - i mirror each other
            for i in range(1, count // 2 + 2):
                first, kept = upper[i], lower[count - i]
                # Phi^-1(b) of b = P(X > count - i), which may be next to 1, from 1 - b
                found = found.max((2 * first).erfcinv() - (2 * kept).erfcinv())
            found = found * arb_ball(Fraction(2)).sqrt()
            if found.is_finite() and found.rel_accuracy_bits() > 64:
                return round_up(exact_rational(found.upper()))
        bits *= 2


_CURRENCY: dict[type[Event], Currency] = {
    PureEvent: Currency.EPSILON,
    ZcdpEvent: Currency.RHO,
    GaussianEvent: Currency.MU_SQUARED,
}


class ConversationQuestion(Protocol):
    """A storable query of some kind, such as `Candidates` of one row."""

    def scores(self, answers: Sequence[int]) -> list[int]:
        """The score of an exact answer."""
        ...


@storable
@dataclass(frozen=True, slots=True)
class Step:
    """One question and its reply, public. `answer` is None below, and everywhere if bits alone are given."""

    question: Any
    answer: int | None
    above: bool

    def __post_init__(self) -> None:
        number = self.answer is None or type(self.answer) is int
        if type(self.above) is not bool or not number or (self.answer is not None and not self.above):
            raise PlanError("a step is a question with a whole number where it is above, and with None below")


@storable
@dataclass(frozen=True, slots=True)
class Terms:
    """What a conversation may spend: `epochs.count` positive questions, the noise of their scores and answers.

    `answer` is the noise of the answer to a positive question; None gives its bit alone. `move` bounds how far an exact
    answer moves between neighbours. Raises PlanError for anything else.
    """

    epochs: Epochs
    answer: NoiseLaw | None = None
    move: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.epochs, Epochs):
            raise PlanError(f"epochs of a conversation are Epochs, not {type(self.epochs).__name__}")
        if type(self.answer) not in (type(None), DiscreteLaplace, DiscreteGaussian, RoundedGaussian):
            raise PlanError("answers have discrete Laplace, rounded or discrete Gaussian noise, or None: bits alone")
        if type(self.move) is not int or not 1 <= self.move <= 2**40:
            raise PlanError(f"move of answers must be a whole number from 1 to 2^40, not {self.move!r}")

    def cost(self, kind: type[Event]) -> Event:
        """All epochs and all answers as one event of a kind. Exact, or for mu^2 rounded up.

        Epochs cost what so many PureEvents do, one by one [BS16], or for mu^2 together [KOV15, DRS22]; an answer what
        its noise does at sensitivity `move`. Raises PlanError where a part has no price in that kind.
        """
        amount = self._amount(kind)
        if kind is PureEvent:
            return PureEvent(amount)
        return ZcdpEvent(amount) if kind is ZcdpEvent else GaussianEvent(amount)

    def fits(self, price: Event) -> bool:
        """Whether the conversation costs at most `price`."""
        cost = self._amount(type(price))
        match price:
            case PureEvent(epsilon=most) | ZcdpEvent(rho=most) | GaussianEvent(mu_squared=most):
                return cost <= most
            case _:
                return False

    def _amount(self, kind: type[Event]) -> Fraction:
        """The parameter of `cost`."""
        if kind not in _CURRENCY:
            raise PlanError("a conversation is priced as a PureEvent, ZcdpEvent or GaussianEvent")
        try:
            answers = sum((event_price(event, _CURRENCY[kind]) for event in self._answering()), Fraction(0))
        except BudgetError as error:
            raise PlanError(f"the noise of the answers has no price as a {kind.__name__}: {error}") from None
        epsilon, count = self.epochs.epsilon, self.epochs.count
        if kind is GaussianEvent:
            # all epochs together cost less mu^2 than one by one
            return mu_squared_of_pures(epsilon, count) + count * answers
        return count * (event_price(PureEvent(epsilon), _CURRENCY[kind]) + answers)

    def _answering(self) -> tuple[Event, ...]:
        """What one answer costs."""
        match self.answer:
            case RoundedGaussian(sigma=sigma):
                return (GaussianEvent(self.move**2 / sigma**2),)
            case DiscreteGaussian(sigma=sigma):
                return (ZcdpEvent(self.move**2 / (2 * sigma**2)),)
            case DiscreteLaplace(scale=scale):
                return (PureEvent(self.move / scale),)
            case _:
                return ()


@dataclass(frozen=True, slots=True, repr=False)
class SparseVector:
    """Where a sparse vector stands: AboveThreshold [DR14, LSL17] over and over, then closed for good. Secret.

    An epoch draws noise t for the threshold; a question is positive if score + v >= t, v fresh; a positive ends the
    epoch and, where the terms say so, gets exact + z, z fresh.

    Guarantee: an epoch is epsilon-DP for scores that move by at most D = `sensitivity`, also when chosen after earlier
    replies. Fix all v but that of the positive question: moving t by D keeps every negative reply negative on the
    neighbour and costs e1; moving v of the positive one by 2 D keeps it positive and costs e2. Scores and noise
    are integers, so both shifts are bijections of the lattice. The answer is one more mechanism, composed.
    """

    terms: Terms
    threshold: int
    remaining: int

    @classmethod
    def begin(cls, terms: Terms, source: BitSource | None = None) -> SparseVector:
        """Before the first question."""
        return cls(terms, terms.epochs.threshold_noise.integer(source), terms.epochs.count)

    def check_open(self) -> None:
        """Raise BudgetExceeded once the last positive answer was given."""
        if self.remaining < 1:
            raise BudgetExceeded(
                "the conversation is closed for good: all its positive answers are spent; open another, with a new "
                "budget",
                Fraction(1),
                Fraction(0),
            )

    def ask(
        self, score: int, exact: int, source: BitSource | None = None
    ) -> tuple[tuple[bool, int | None], SparseVector]:
        """The reply (above, answer) to one score, and where it leaves the vector. Raises BudgetExceeded once closed."""
        self.check_open()
        # Python integers throughout: a number that wrapped before it is compared would be on the wrong side
        if score + self.terms.epochs.query_noise.integer(source) < self.threshold:
            return (False, None), self
        answer = None if self.terms.answer is None else exact + self.terms.answer.integer(source)
        threshold = self.terms.epochs.threshold_noise.integer(source)
        return (True, answer), replace(self, threshold=threshold, remaining=self.remaining - 1)

    def __repr__(self) -> str:
        return f"<SparseVector: {self.remaining} of {self.terms.epochs.count} positive answers left>"
