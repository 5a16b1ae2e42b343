"""How many rows of persons may be left out, given a noisy look at how many rows persons have: draws of a posterior."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.special import log_ndtr, ndtr, ndtri

from sfumato.operators.base import FloatArray

IntArray = NDArray[np.int_]

# Numbers above the plan's own are asked in bands, each to twice the one before, and told apart inside them by quarters.
BANDS, QUARTERS = 3, 4
_FAR = 8  # halves of bands beyond these, of which nothing is asked but that persons have so many rows at least

# A tail falls at the rate b (k/L)^c for each part that k grows by, L the number it begins with: c = 0 is a power of k,
# 1 a constant ratio from one number to the next, 2 a normal law. So far the logarithm of the rate is a straight line in
# that of k; it also wanders, by so much for each doubling. Means and deviations, before anything is seen.
_RATE, _CURVE, _WANDER = (1.3, 1.2), (0.3, 0.5), 0.4
_DOUBLINGS = 9  # after so many it goes straight on
_POWERS = 2.0 ** (np.arange(-3, 12) / 2)  # half of all tails are taken to be powers, each as likely
_NEAR = 1.2  # persons who have "about" a number have up to so many times it
_STEPS, _EACH, _TAILS = 8, 6, 400  # to the likeliest tail; tails drawn of each first number, and more where likely
_DRAWS = 200  # with four times as many the number that is chosen hardly moves
_GUESSES = 60  # of how unevenly a table's rows lie, and as many that they lie evenly


def numbers_asked(most: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """What is asked of a number of rows, the numbers, and how many numbers each stands for.

    Asked are the rows beyond each number of counted ones, from 0, up to the largest; then those in each band. Each is a
    part of as many as there can be: where few rows are counted more are left out, and err more. Numbers are single ones
    up to the largest, then the middles of quarters of bands, then of what is above all bands, which are asked alike.
    """
    ends = np.unique(np.round(most * 2.0 ** (np.arange(QUARTERS * BANDS + 1) / QUARTERS)))
    far = ends[-1] * 2.0 ** (np.arange(_FAR + 1) / 2)
    sizes = np.concatenate([np.arange(most + 1.0), (ends[:-1] + 1 + ends[1:]) / 2, (far[:-1] + far[1:]) / 2])
    widths = np.concatenate([np.ones(most + 1), np.diff(ends), np.diff(far)])
    starts = most * 2 ** np.arange(BANDS)
    first = np.concatenate([np.arange(most), starts])[:, None]
    end = np.concatenate([np.full(most, most), 2 * starts])[:, None]
    return np.clip(np.minimum(sizes, end) - first, 0, None) / (end - first), sizes, widths


def draw_left_out(answers: FloatArray, covariance: FloatArray, most: int) -> FloatArray:
    """Tables that may be the one that was looked at, each by how many rows it leaves out.

    A priori any number up to the largest is as likely to be the last one of which nothing is known: of persons who
    have k rows there are 0, give or take a kth of all persons. Above it is nobody, or a tail, or persons of one number
    or about one, each as likely, and half of tails are powers; of such persons there are 0, give or take a kth of all,
    k their mean number. All of this is linear and the noise normal, so how likely each is afterwards is known in closed
    form, and one triangle serves them all. Only how a tail falls is not: of each last number tails are drawn around the
    likeliest, and weighed.

    Args:
        answers: (most + 3,) how `numbers_asked` was answered.
        covariance: Of these answers.
        most: The largest number of rows that is compared.

    Returns:
        (draws, most + 1) rows left out by how many of each person are counted, from 0. The same for the same answers.
    """
    rng = np.random.default_rng(_DRAWS)
    asked, every, widths = numbers_asked(most)
    sizes = every[1:]
    look = _look(answers, covariance, asked[:, 1:], sizes, most)
    tails = _Tails(sizes, widths[1:], look.last)
    which, falls, weight = _drawn_tails(look, tails, rng)
    ones, over = _persons_of_one(sizes, look.last)
    # nobody, tails, persons of one number
    count = len(look.last)
    every_last = np.arange(count)
    likely = np.concatenate([np.zeros(count), weight, over.ravel()])
    last = np.concatenate([every_last, which, np.repeat(every_last, len(ones))])
    shape = np.concatenate([np.zeros((1, len(sizes))), falls, ones])
    of = np.concatenate(
        [np.zeros(count, int), 1 + np.arange(len(falls)), np.tile(1 + len(falls) + np.arange(len(ones)), count)]
    )
    added = shape @ look.seen.T
    middle, error, above = look.persons(added, shape @ sizes, last, of)
    logs = look.numbers[last] + above + likely
    weights = np.cumsum(np.exp(logs - logs.max()))
    # evenly through all of them, in proportion to their weights
    taken = np.searchsorted(weights, (np.arange(_DRAWS) + 0.5) / _DRAWS * weights[-1])
    lowest = ndtr(-middle[taken] / error[taken])
    place = np.clip(lowest + (1 - lowest) * rng.random(_DRAWS), 1e-12, 1 - 1e-12)
    persons = np.maximum(middle[taken] + error[taken] * ndtri(place), 0.0)
    drawn = shape[of[taken]] * persons[:, None]
    rest = look.turned + rng.normal(size=(_DRAWS, most)) - drawn @ (look.onto @ look.seen).T
    for end in np.unique(look.last[last[taken]]):
        rows = look.last[last[taken]] == end
        corner = look.triangle[:end, :end]
        drawn[rows, :end] = solve_triangular(corner, rest[rows, :end].T).T
    return np.maximum(drawn @ np.maximum(sizes - np.arange(most + 1)[:, None], 0).T, 0.0)


@dataclass(frozen=True)
class _Look:
    """What was seen, in units of its noise, and numbers up to any last one, each with its guess, taken out of it.

    These are the first columns of one orthogonal base, so that what each explains is a sum over the columns before.
    """

    seen: FloatArray  # (answers, numbers) what a person adds
    noisy: FloatArray  # (answers,)
    wide: float  # persons, and the noise
    last: IntArray  # last numbers that are compared
    onto: FloatArray  # (most, answers) the base
    triangle: FloatArray  # (most, most)
    turned: FloatArray  # (most,) what was seen, by the base
    numbers: FloatArray  # (last,) how likely each last number is by numbers up to it

    def persons(
        self, added: FloatArray, mean: FloatArray, last: IntArray, of: IntArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """How many persons are above a last number if they have a shape, give or take, and how likely that makes it.

        Args:
            added: (shapes, answers) what one person of a shape adds.
            mean: (shapes,) rows of such a person.
            last: (pairs,) index of a last number.
            of: (pairs,) index of a shape.
        """
        known, upto = added @ self.onto.T, self.last[last] - 1
        squares = np.square(added).sum(axis=1)[of] - np.cumsum(np.square(known), axis=1)[of, upto]
        precision = np.maximum(squares, 0.0) + self.wide**-2
        middle = ((added @ self.noisy)[of] - np.cumsum(known * self.turned, axis=1)[of, upto]) / precision
        error = 1 / np.sqrt(precision)
        # The guess of how many persons are above is few / (few + persons)²: its end is long, and it varies so slowly
        # that its density in the middle stands for all of it, where the noise does not reach further than the guess.
        few = (self.wide / np.maximum(mean, 1.0))[of]
        room = math.sqrt(2 * math.pi) * error * few / (np.maximum(middle, 0.0) + few) ** 2
        above = np.square(middle / error) / 2 + np.log(room / (1 + room)) + log_ndtr(middle / error)
        return middle, error, above


def _look(answers: FloatArray, covariance: FloatArray, asked: FloatArray, sizes: FloatArray, most: int) -> _Look:
    parts = np.linalg.eigh(covariance)
    roots = np.sqrt(np.maximum(parts.eigenvalues, 1e-12 * parts.eigenvalues.max()))
    white = parts.eigenvectors.T / roots[:, None]
    seen, noisy = white @ asked, white @ answers
    # rows beyond none and beyond one tell how many persons there are
    total = np.zeros(len(answers))
    total[:2] = most, 1 - most
    wide = math.hypot(float(total @ answers), math.sqrt(float(total @ covariance @ total)))
    base, triangle = np.linalg.qr(np.vstack([seen[:, :most], np.diag(sizes[:most] / wide)]))
    onto = base[: len(noisy)].T
    turned = onto @ noisy
    # one by one where they are few, then in steps of an eighth: a tail that begins one number later is nearly the same
    steps = np.round(8 * 1.125 ** np.arange(1, 40)).astype(int)
    last = np.unique(np.concatenate([np.arange(1, 9), steps]))
    last = last[last <= most]
    stands_for = np.diff(np.append(last, most + 1))
    numbers = np.cumsum(np.square(turned) / 2 - np.log(wide / sizes[:most] * np.abs(np.diag(triangle))))
    return _Look(seen, noisy, wide, last, onto, triangle, turned, numbers[last - 1] + np.log(stands_for))


class _Tails:
    """Tails above each last number, by how their rates differ from the mean one, in standard deviations."""

    def __init__(self, sizes: FloatArray, widths: FloatArray, last: IntArray) -> None:
        logs = np.log(sizes / last[:, None])
        self.above, self.widths = logs > 1e-9, widths
        logs = np.maximum(logs, 0.0)
        turns = math.log(2) * np.arange(_DOUBLINGS)
        wander = [_WANDER * np.clip(logs / math.log(2) - j, 0, 1) for j in range(len(turns))]
        self.basis = np.stack([np.full_like(logs, _RATE[1]), _CURVE[1] * logs, *wander], axis=-1)
        self.mean = _RATE[0] + _CURVE[0] * logs
        self.steps = np.diff(logs, axis=1, prepend=0.0) / 2
        self.size = self.basis.shape[-1]

    def falls(self, by: FloatArray, last: IntArray) -> tuple[FloatArray, FloatArray]:
        """(tails, numbers) how one person of a tail has rows; and the rate at each number, (tails, numbers)."""
        rates = np.exp(np.clip(self.mean[last] + np.einsum("tq,tnq->tn", by, self.basis[last]), -6, 8))
        before = np.concatenate([rates[:, :1], rates[:, :-1]], axis=1)
        fallen = np.cumsum(self.steps[last] * (rates + before), axis=1)
        shape = np.where(self.above[last], np.exp(-np.minimum(fallen, 600.0)) * self.widths, 0.0)
        return shape / shape.sum(axis=1, keepdims=True), rates

    def slopes(self, by: FloatArray, last: IntArray) -> tuple[FloatArray, FloatArray]:
        """The same, and its derivatives (tails, numbers, parameters)."""
        shape, rates = self.falls(by, last)
        grown = rates[..., None] * self.basis[last]
        earlier = np.concatenate([grown[:, :1], grown[:, :-1]], axis=1)
        change = -shape[..., None] * np.cumsum(self.steps[last][..., None] * (grown + earlier), axis=1)
        return shape, change - shape[..., None] * change.sum(axis=1, keepdims=True)


def _likeliest(look: _Look, tails: _Tails) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Of each last number the likeliest tail, how likely, and the curvature there: Gauss's steps, damped."""
    count, every = len(look.last), np.arange(len(look.last))
    used = np.arange(look.onto.shape[0]) < look.last[:, None]
    turned = look.turned * used

    def loss(by: FloatArray, last: IntArray) -> FloatArray:
        shape = tails.falls(by, last)[0]
        middle, error, _ = look.persons(shape @ look.seen.T, np.ones(len(shape)), last, np.arange(len(shape)))
        return np.square(by).sum(axis=1) / 2 - np.square(np.maximum(middle / error, 0.0)) / 2

    starts = np.zeros((6, tails.size))
    starts[:, :2] = [(rate, curve) for rate in (-1.2, 0, 1.2) for curve in (-1, 1)]
    tried = loss(np.tile(starts, (count, 1)), np.repeat(every, 6)).reshape(count, 6)
    by, least = starts[tried.argmin(axis=1)], tried.min(axis=1)
    damping, same = np.full(count, 0.1), np.eye(tails.size)
    curvature = np.tile(same, (count, 1, 1))
    for _ in range(_STEPS):
        shape, change = tails.slopes(by, every)
        added = shape @ look.seen.T
        known = (added @ look.onto.T) * used
        middle, error, _ = look.persons(added, np.ones(count), every, every)
        persons = np.maximum(middle, 0.0)[:, None]
        moves = look.seen @ change
        turns = (look.onto @ moves) * used[..., None]
        # what a change of the number of persons does as well is taken out
        alike = (np.einsum("lo,loq->lq", added, moves) - np.einsum("lm,lmq->lq", known, turns)) * error[:, None] ** 2
        moves = persons[..., None] * (moves - added[..., None] * alike[:, None])
        turns = persons[..., None] * (turns - known[..., None] * alike[:, None])
        curvature = same + moves.transpose(0, 2, 1) @ moves - turns.transpose(0, 2, 1) @ turns
        down = np.einsum("loq,lo->lq", moves, look.noisy - persons * added)
        down -= np.einsum("lmq,lm->lq", turns, turned - persons * known) + by
        damped = curvature * (1 + damping[:, None, None] * same)
        step = np.linalg.solve(damped, down[..., None])[..., 0]
        moved = by + np.clip(step, -1.5, 1.5)
        now = loss(moved, every)
        better = now < least
        by, least = np.where(better[:, None], moved, by), np.where(better, now, least)
        damping = np.where(better, damping / 5, damping * 5)
    return by, least, curvature


def _drawn_tails(look: _Look, tails: _Tails, rng: np.random.Generator) -> tuple[IntArray, FloatArray, FloatArray]:
    """Tails drawn around the likeliest, and before anything is seen, and powers: last numbers, shapes, log weights."""
    by, least, curvature = _likeliest(look, tails)
    size = np.linalg.slogdet(curvature)[1] / 2
    likely = look.numbers - least - size
    share = np.exp(likely - likely.max())
    each = _EACH + np.round(_TAILS * share / share.sum()).astype(int)
    which = np.repeat(np.arange(len(each)), each)
    wide = np.linalg.cholesky(np.linalg.inv(curvature) * 1.3)
    normal = rng.normal(size=(len(which), tails.size))
    # every third without regard to what was seen, so that no tail's weight is more than three times the mean's
    free = np.arange(len(which)) % 3 == 2
    drawn = np.where(free[:, None], normal, by[which] + np.einsum("tpq,tq->tp", wide[which], normal))
    prior = -np.square(drawn).sum(axis=1) / 2
    apart = drawn - by[which]
    near = -np.einsum("tp,tpq,tq->t", apart, curvature[which], apart) / 2.6
    near += size[which] - tails.size * math.log(1.3) / 2
    weight = prior - np.logaddexp(prior - math.log(3), near + math.log(2 / 3)) - np.log(2 * each[which])
    powers = np.zeros((len(_POWERS), tails.size))
    powers[:, 0], powers[:, 1] = (np.log(_POWERS) - _RATE[0]) / _RATE[1], -_CURVE[0] / _CURVE[1]
    drawn = np.concatenate([drawn, np.tile(powers, (len(each), 1))])
    which = np.concatenate([which, np.repeat(np.arange(len(each)), len(powers))])
    weight = np.concatenate([weight, np.full(len(which) - len(weight), -math.log(2 * len(powers)))])
    return which, tails.falls(drawn, which)[0], weight


def _persons_of_one(sizes: FloatArray, last: IntArray) -> tuple[FloatArray, FloatArray]:
    """Each number by itself, and with those near above it; and how likely each is above each last number, in logs.

    The larger the less likely.
    """
    near = (sizes[:, None] >= sizes) & (sizes[:, None] <= np.maximum(_NEAR * sizes, sizes + 1))
    over = np.tile(np.where(sizes > last[:, None], 1 / sizes, 0.0), 2)
    with np.errstate(divide="ignore"):
        likely = np.log(over / over.sum(axis=1, keepdims=True))
    return np.hstack([np.eye(len(sizes)), near / near.sum(axis=0)]).T, likely


def draw_uneven(
    squares: FloatArray, noise: FloatArray, sizes: IntArray, known: IntArray, rows: FloatArray
) -> FloatArray:
    """How much more a table's mean square may be than if its rows lay evenly, in parts of the latter.

    Half of all tables are taken to be even, of the others half by less than 1, a third by less than a half. A cell
    differs from the mean by a normal law, so that what was seen has a chi-square law.

    Args:
        squares: (tables,) mean squares of noisy cells, of tables whose mean is known of what differs from it.
        noise: (tables,) mean variances of a cell's noise.
        sizes: (tables,) numbers of cells.
        known: (tables,) 1 if the mean is known, else 0.
        rows: (draws,) rows that were counted.

    Returns:
        (draws, tables) one for each draw. The same for the same squares.
    """
    odds = (np.arange(_GUESSES) + 0.5) / _GUESSES
    rng = np.random.default_rng(_GUESSES)
    drawn = np.zeros((len(rows), len(sizes)))
    for j, size in enumerate(sizes):
        guesses = np.append(np.zeros(_GUESSES), np.minimum(odds / (1 - odds), size - 1))
        wide = 1 + (guesses + 1 - known[j]) * np.square(rows[:, None] / size) / noise[j]
        logs = -(size - known[j]) / 2 * np.log(wide) - squares[j] * size / noise[j] / 2 / wide
        weights = np.cumsum(np.exp(logs - logs.max(axis=1, keepdims=True)), axis=1)
        place = rng.permutation((np.arange(len(rows)) + 0.5) / len(rows)) * weights[:, -1]
        drawn[:, j] = guesses[(weights < place[:, None]).sum(axis=1)]
    return drawn
