"""The numbers of an online session: how often it may look, from which threshold, and what can be promised of it.

A session of L paid updates asks a sparse vector whether the hypothesis errs by at least T on a question, with noises t
(threshold) and n (question), and answers with noise z where it does [HR10]. All numbers are in records. With
v the reach of max t + max n, and g that of max |z|, every easy answer errs by at most T + v and every hard one by at
most g, whatever the hypothesis is.

How many updates there can be follows from the hypothesis. A hard question of gap c, |c| >= T - v, whose coefficients
span s <= r, moves it by a step 4 d, d = (c + z) / (s N): KL(table, hypothesis) falls by at least
2 (c^2 - z^2) / (s N)^2. It starts at or below ln m and never gets below 0, so
L ((T - v)^2 - mean z^2) > (r N)^2 ln m / 2 leaves the L-th update unused. This asks of the noise z the sum of its
squares alone; the textbook's choice (T = 3/4 alpha, v and g at most alpha/4, L = 8/3 ln m / alpha^2) asks every z to be
small.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from sfumato.errors import PlanError
from sfumato.operators.base import FloatArray
from sfumato.plans.predictions import noise_quantile
from sfumato.privacy.accounting import Event, GaussianEvent, PureEvent, ZcdpEvent
from sfumato.privacy.budget import Budget
from sfumato.privacy.conversation_price import Terms, mu_squared_of_pures
from sfumato.privacy.noise import DiscreteGaussian, DiscreteLaplace, NoiseLaw, RoundedGaussian
from sfumato.privacy.rounding import round_down, sqrt_down
from sfumato.privacy.selection import Epochs
from sfumato.privacy.unit import Neighbours
from sfumato.strategies.calibration import noise_of, price_of

_STEPS = 2**13  # of the grid on which laws are summed: a bound is above the truth by one step at most
_BITS = 60  # 2^-60 of the mass is left outside, and counted as too much


def largest_sum(first: DiscreteLaplace, count: int, second: DiscreteLaplace, times: int, probability: float) -> int:
    """The least v (or slightly more) with P(max of `count` draws of one law + max of `times` of another > v) <= p.

    All draws are made in advance, as far as the law goes, so it holds for whatever pairs of them someone who sees the
    results picks. Laws with large scales are summed on a coarser grid, the first rounded up.
    """
    top = first.reach(_BITS)
    step = max(1, math.ceil(top / _STEPS))
    ends = math.ceil(top / step)
    grid: FloatArray = np.arange(-ends, ends + 1, dtype=np.float64) * step
    below = _all_below(first, grid, count)
    # what lies beyond the last point, 2^-60 of the mass of a draw, is counted as too much
    masses, beyond = np.diff(below, prepend=0.0), 1 - below[-1]

    def exceeded(v: int) -> float:
        return float(masses @ (1 - _all_below(second, v - grid, times))) + float(beyond)

    low, high = -1, 2 * (top + second.reach(_BITS))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if exceeded(middle) <= probability else (middle, high)
    return high


def _all_below(law: DiscreteLaplace, points: FloatArray, count: int) -> FloatArray:
    """P(all of `count` draws <= point)."""
    rate = 1 / float(law.scale)
    k = np.floor(points)
    outside = np.exp(-rate * np.where(k >= 0, k + 1, -k)) / (1 + math.exp(-rate))
    with np.errstate(divide="ignore"):
        return np.exp(count * np.where(k >= 0, np.log1p(-outside), np.log(outside)))


def farthest_draw(noise: NoiseLaw, count: int, probability: float) -> int:
    """A g with P(some of `count` draws is beyond g either way) <= p, by the union of all."""
    return int(noise_quantile(noise, 1 - probability / (2 * count)))


def noise_energy_bound(noise: NoiseLaw, count: int, probability: float) -> float:
    """An E with P(the squares of `count` draws add up to more than E) <= p.

    Gaussian laws are sub-Gaussian with sigma [CKS20], so the bound for chi-squares holds [LM00]; rounding adds at most
    a half to every draw.
    """
    crude = count * float(farthest_draw(noise, count, probability)) ** 2
    if not isinstance(noise, (DiscreteGaussian, RoundedGaussian)):
        return crude
    log = math.log(1 / probability)
    chi = math.sqrt(count + 2 * math.sqrt(count * log) + 2 * log) * float(noise.sigma)
    rounding = math.sqrt(count) / 2 if isinstance(noise, RoundedGaussian) else 0.0
    return min(crude, (chi + rounding) ** 2)


SHARE = Fraction(9, 10)
"""The part of the budget that asks whether; the rest answers."""
# A threshold of this part of the noises' reach rarely pays for an update that the hypothesis did not need.
_PART = 0.6
# Updates that a table is expected to take: this times ln m / threshold in fractions (decisions/0017).
_EXPECTED = 0.15
_FEWEST, _MOST = 5, 256  # updates by the rule: fewer stop at once, more share the budget so thin that none helps
_MOST_PROMISED = 10**5  # updates that are tried for a promise; each is an answer kept in the transcript
_SHARES = [Fraction(k, 40) for k in (12, 16, 20, 24, 28, 30, 32, 34, 36, 37, 38, 39)]


def session_terms(price: Event, updates: int, move: int, share: Fraction = SHARE) -> Terms:
    """The epochs and the noise of answers on which `updates` updates spend the whole price, at most 1e-12 less.

    Raises PlanError for a price so small or updates so many that the noise cannot be drawn.
    """
    if type(updates) is not int or not 1 <= updates <= 10**6:
        raise PlanError(f"updates must be a whole number from 1 to 1,000,000, not {updates!r}")
    match price:
        case PureEvent(epsilon=total):
            asking = share * total / updates
            left: Event = PureEvent(total - updates * asking)
        case ZcdpEvent(rho=total):
            asking = sqrt_down(2 * share * total / updates)
            left = ZcdpEvent(total - updates * asking**2 / 2)
        case GaussianEvent(mu_squared=total):
            asking = _epsilon_together(share * total, updates)
            left = GaussianEvent(total - mu_squared_of_pures(asking, updates))
        case _:
            raise PlanError("a session is priced as a PureEvent, ZcdpEvent or GaussianEvent")
    return Terms(Epochs(updates, asking, move), noise_of_answers(left, updates, move), move)


def noise_of_answers(price: Event, count: int, move: int) -> NoiseLaw:
    """The noise of `count` answers that cost `price` together. Raises PlanError for prices of other kinds."""
    return noise_of(price, (move if isinstance(price, PureEvent) else move**2) * count)


@lru_cache(maxsize=256)
def _epsilon_together(mu_squared: Fraction, count: int) -> Fraction:
    """An epsilon of which `count` epochs cost at most mu^2 together, within about 1e-9 of the largest."""
    guess = round_down(sqrt_down(mu_squared / count))
    # no epsilon costs more than pi/2 epsilon^2
    low, high, power = guess * Fraction(79, 100), None, 2.0
    before: tuple[float, float] | None = None
    for _ in range(60):
        cost = mu_squared_of_pures(guess, count)
        if cost <= mu_squared:
            low = guess
            if cost >= mu_squared * (1 - Fraction(1, 10**9)):
                break
        else:
            high = guess
        point = math.log(guess), math.log(cost)
        if before is not None and point[0] != before[0]:
            # costs grow as a power of epsilon, between 2 for small and 1 for large
            power = min(max((point[1] - before[1]) / (point[0] - before[0]), 0.5), 3.0)
        before = point
        aimed = float(guess) * math.exp((math.log(mu_squared) - 5e-10 - point[1]) / power)
        guess = round_down(Fraction(aimed))
        if not low < guess or (high is not None and guess >= high):
            guess = round_down((low + high) / 2 if high is not None else 2 * low)
    return low


@dataclass(frozen=True, slots=True)
class SessionBounds:
    """What holds together with probability 1 - beta: every easy answer errs by at most T + v, every hard one by g."""

    v: int
    g: int


def session_bounds(terms: Terms, questions: int, beta: float) -> SessionBounds:
    """The bounds of a session's first `questions` questions; half of beta each."""
    epochs, answer = terms.epochs, _answer_noise(terms)
    v = largest_sum(epochs.threshold_noise, epochs.count, epochs.query_noise, questions, beta / 2)
    return SessionBounds(v, farthest_draw(answer, epochs.count, beta / 2))


def _answer_noise(terms: Terms) -> NoiseLaw:
    if terms.answer is None:
        raise PlanError("these terms answer with bits alone")
    return terms.answer


@dataclass(frozen=True, slots=True)
class SessionShape:
    """What is public of a session: cells, questions, records, beta, and what questions are asked.

    `span` bounds how far apart a question's coefficients are, 0 among them; a person has at most `rows` records. `buys`
    says that the number of records is private: the first update buys it, and `records` is the most there are.
    """

    cells: int
    questions: int
    records: int
    beta: float
    buys: bool
    span: int = 1
    rows: int = 1

    @property
    def move(self) -> int:
        """How far one person moves an answer, at most."""
        return self.span * self.rows

    @property
    def asked(self) -> int:
        """Questions to the sparse vector."""
        return self.questions + self.buys


def promised_bounds(shape: SessionShape, terms: Terms) -> tuple[int, int, SessionBounds]:
    """(alpha, T, bounds): the least alpha, in records, that these terms promise for all questions, without exhaustion.

    A quarter of beta each for v above, v below, max |z| and the sum of squares. Where the total N is bought with an
    error of at most w, the table is compared after scaling to that total, which moves its answers by at most r w; the
    rounding of estimates moves them by a half.
    """
    epochs, answer, quarter = terms.epochs, _answer_noise(terms), shape.beta / 4
    v = largest_sum(epochs.threshold_noise, epochs.count, epochs.query_noise, shape.asked, quarter)
    g = farthest_draw(answer, epochs.count, quarter)
    used = epochs.count - shape.buys
    if used < 1:
        raise PlanError("the first update buys the number of records; a promise needs more than one")
    w = g if shape.buys else 0
    shift = shape.span * w
    noise = (math.sqrt(noise_energy_bound(answer, epochs.count, quarter)) + shift * math.sqrt(used)) ** 2
    start = (shape.span * (shape.records + w)) ** 2 * math.log(shape.cells) / 2
    threshold = math.ceil(v + 0.5 + shift + math.sqrt((noise + start) / used)) + 1
    return max(threshold + v, g), threshold, SessionBounds(v, g)


def search_least_alpha(shape: SessionShape, price: Event) -> tuple[int, Terms, int]:
    """(alpha, terms, T): the least alpha in records, over the number of updates and the share that asks."""
    best: tuple[int, Terms, int] | None = None
    for updates, share in _updates_and_shares_to_try(shape, price):
        try:
            terms = session_terms(price, updates, shape.move, share)
        except (PlanError, ValueError):
            continue  # no such noise can be drawn
        alpha, threshold, _ = promised_bounds(shape, terms)
        if best is None or alpha < best[0]:
            best = alpha, terms, threshold
    if best is None:
        raise PlanError("this budget promises nothing at any number of updates: its noise cannot be drawn")
    return best


def _updates_and_shares_to_try(shape: SessionShape, price: Event) -> Iterator[tuple[int, Fraction]]:
    """Numbers of updates and shares around the best by a rough search, in which noise is taken to be continuous."""
    grid = sorted({round(2 * 1.15**i) for i in range(85)})
    rough = {(u, s): _rough_alpha(shape, price, u, s) for u in grid if u <= _MOST_PROMISED for s in _SHARES}
    updates, share = min(rough, key=lambda key: rough[key])
    place = _SHARES.index(share)
    for more in range(-3, 4):
        for near in _SHARES[max(place - 1, 0) : place + 2]:
            yield max(2, round(updates * 1.15 ** (more / 3))), near


def _rough_alpha(shape: SessionShape, price: Event, updates: int, share: Fraction) -> float:
    """About the alpha of `promised`, in floating point and without certified conversions."""
    part, one = float(share), float(shape.move)
    match price:
        case PureEvent(epsilon=total):
            asking, sigma = part * float(total) / updates, math.sqrt(2) * one * updates / float(total) / (1 - part)
        case ZcdpEvent(rho=total):
            asking = math.sqrt(2 * part * float(total) / updates)
            sigma = one * math.sqrt(updates / (2 * float(total) * (1 - part)))
        case GaussianEvent(mu_squared=total):
            asking = math.sqrt(part * float(total) / updates)
            sigma = one * math.sqrt(updates / float(total) / (1 - part))
        case _:
            raise PlanError("a session is priced as a PureEvent, ZcdpEvent or GaussianEvent")
    v = _epoch_reach(updates, shape.asked, shape.beta) * one / asking
    w = sigma * math.sqrt(2 * math.log(8 * updates / shape.beta)) if shape.buys else 0.0
    used = updates - shape.buys
    log = math.log(4 / shape.beta)
    noise = sigma**2 * (updates + 2 * math.sqrt(updates * log) + 2 * log) / used
    shift = shape.span * w
    start = (shape.span * (shape.records + w)) ** 2 * math.log(shape.cells) / (2 * used)
    return 2 * v + shift + math.sqrt((math.sqrt(noise) + shift) ** 2 + start)


@lru_cache(maxsize=4096)
def _epoch_reach(updates: int, asked: int, beta: float) -> float:
    """The reach v of an epoch of epsilon 1, for noise that is nearly continuous."""
    epochs = Epochs(updates, Fraction(1, 1000))
    return largest_sum(epochs.threshold_noise, updates, epochs.query_noise, asked, beta / 4) / 1000


def practical_terms(shape: SessionShape, price: Event, updates: int | None, threshold: int | None) -> tuple[Terms, int]:
    """(terms, T) without a promise that updates last: as given, or by a rule from cells, records and the budget alone.

    The threshold is .6 of the noises' reach; the updates are as many as tables are expected to take at that threshold,
    from 5 to 256; where that is too many the threshold is raised.
    """
    if updates is None:
        low, updates = _FEWEST - 1, _MOST
        while updates - low > 1:
            middle = (low + updates) // 2
            enough = _expected_updates(shape, _usual_threshold(price, shape, middle)) <= middle
            low, updates = (low, middle) if enough else (middle, updates)
    terms = session_terms(price, updates, shape.move)
    if threshold is None:
        found = _usual_threshold(price, shape, updates)
        if updates == _MOST:
            found = max(found, _expected_updates(shape, 1.0) / _MOST)
        threshold = math.ceil(found)
    return terms, threshold


def _usual_threshold(price: Event, shape: SessionShape, updates: int) -> float:
    """The threshold of so many updates."""
    terms = session_terms(price, updates, shape.move)
    return max(1.0, _PART * _epoch_reach(updates, shape.asked, shape.beta) * shape.move / float(terms.epochs.epsilon))


def _expected_updates(shape: SessionShape, threshold: float) -> float:
    """Updates that a table is expected to take at a threshold."""
    return _EXPECTED * math.log(shape.cells) * shape.span * shape.records / threshold


def pmw_min_alpha(
    m: int, k: int, n: int, budget: Budget, beta: float = 0.05, neighbours: str | Neighbours = "replace-one"
) -> float:
    """The least alpha, as a fraction of n records, that private multiplicative weights can promise online.

    For k counting questions, chosen one by one, over m cells, with probability 1 - beta and without ever exhausting
    its updates. Under add-remove n is the most records there may be, and the session buys the number itself. Above 1
    nothing is promised. Raises PlanError for what is not a whole number of at least 2 cells, 1 question and 1 record.
    """
    for name, value, least in (("m", m, 2), ("k", k, 1), ("n", n, 1)):
        if type(value) is not int or not least <= value < 2**53:
            raise PlanError(f"{name} must be a whole number from {least} up, not {value!r}")
    if not isinstance(budget, Budget) or not 0 < beta < 1:
        raise PlanError("pmw_min_alpha needs a budget, such as sf.approx(1, '1e-6'), and a beta between 0 and 1")
    buys = Neighbours.parse(neighbours) is Neighbours.ADD_REMOVE
    return search_least_alpha(SessionShape(m, k, n, float(beta), buys), price_of(budget))[0] / n
