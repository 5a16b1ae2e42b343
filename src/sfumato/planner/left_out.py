"""How many rows of persons may be left out, given a noisy look at how many rows persons have: draws of a posterior."""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import log_ndtr, ndtr, ndtri

from sfumato.operators.base import FloatArray

# Numbers above the plan's own, each to twice the one before: whoever has more has rows left out by any number.
BANDS = 3
# How tails fall: by which power of the number where they begin, and how that goes on. Of curves 0 is a power, 1 a
# constant ratio from one number to the next, 2 a normal law; between them are most tails of real tables. Slopes are so
# wide that their ends are not taken.
_SLOPES, _CURVES = 2.0 ** (np.arange(-6, 24) / 4), (0, 0.25, 0.5, 0.75, 1, 1.5, 2)
_NEAR = 1.2  # persons who have "about" a number have up to so many times it
_DRAWS = 200  # with four times as many the number that is chosen hardly moves


def numbers_asked(most: int) -> tuple[FloatArray, FloatArray]:
    """What is asked of a number of rows, and the numbers: up to the largest one by one, then the middles of bands.

    Asked are the rows beyond each number of counted ones, from 0, up to the largest; then those in each band. Each is a
    part of as many as there can be: where few rows are counted more are left out, and err more.
    """
    starts = most * 2 ** np.arange(BANDS)
    sizes = np.concatenate([np.arange(most + 1), 1.5 * starts]).astype(np.float64)
    first = np.concatenate([np.arange(most), starts])[:, None]
    end = np.concatenate([np.full(most, most), 2 * starts])[:, None]
    return np.clip(np.minimum(sizes, end) - first, 0, None) / (end - first), sizes


def draw_left_out(answers: FloatArray, covariance: FloatArray, most: int) -> FloatArray:
    """Tables that may be the one that was looked at, each by how many rows it leaves out.

    A priori any number up to the largest is as likely to be the last one of which nothing is known: of persons who
    have k rows there are 0, give or take a kth of all persons. Above it is nobody, or a tail, or persons of one number
    or about one, each as likely; these are 0, give or take a kth of all, k their mean number. All of this is linear and
    the noise normal, so how likely each is afterwards is known in closed form, and one triangle serves them all.

    Args:
        answers: (most + 3,) how `numbers_asked` was answered.
        covariance: Of these answers.
        most: The largest number of rows that is compared.

    Returns:
        (draws, most + 1) rows left out by how many of each person are counted, from 0. The same for the same answers.
    """
    beyond, every = numbers_asked(most)
    sizes = every[1:]
    parts = np.linalg.eigh(covariance)
    roots = np.sqrt(np.maximum(parts.eigenvalues, 1e-12 * parts.eigenvalues.max()))
    white = parts.eigenvectors.T / roots[:, None]
    seen, noisy = white @ beyond[:, 1:], white @ answers
    back = np.linalg.inv(seen)
    wide = math.hypot(float((back @ noisy).sum()), float(np.linalg.norm(back.sum(axis=0))))  # persons, and the noise
    # Numbers up to any last one, each with its guess, are the first columns of one orthogonal base.
    base, triangle = np.linalg.qr(np.vstack([seen, np.diag(sizes / wide)]))
    onto = base[: len(noisy)].T
    turned = onto @ noisy
    shapes, likely = _above(sizes, most)
    added = np.tensordot(seen, shapes, 1)  # what a person above the last number adds to what was measured
    known = np.tensordot(onto, added, 1) * (np.arange(len(sizes))[:, None] <= np.arange(most))[:, :, None]
    precision = np.maximum(np.square(added).sum(axis=0) - np.square(known).sum(axis=0), 0.0) + wide**-2
    middle = (np.tensordot(noisy, added, 1) - np.tensordot(turned, known, 1)) / precision
    error = 1 / np.sqrt(precision)
    numbers = np.cumsum(np.square(turned) / 2 - np.log(wide / sizes * np.abs(np.diag(triangle))))[:most, None]
    # The guess of how many persons are above is few / (few + persons)²: its end is long, and it varies so slowly that
    # its density in the middle stands for all of it, where the noise does not reach further than the guess.
    few = wide / np.maximum(np.tensordot(sizes, shapes, 1), 1.0)
    room = math.sqrt(2 * math.pi) * error * few / (np.maximum(middle, 0.0) + few) ** 2
    above = np.square(middle / error) / 2 + np.log(room / (1 + room)) + log_ndtr(middle / error)
    logs = (numbers + above + likely).ravel()
    weights = np.cumsum(np.exp(logs - logs.max()))
    # evenly through all of them, in proportion to their weights
    taken = np.searchsorted(weights, (np.arange(_DRAWS) + 0.5) / _DRAWS * weights[-1])
    last, shape = np.unravel_index(taken, likely.shape)
    rng = np.random.default_rng(_DRAWS)
    lowest = ndtr(-middle[last, shape] / error[last, shape])
    place = np.clip(lowest + (1 - lowest) * rng.random(_DRAWS), 1e-12, 1 - 1e-12)
    persons = np.maximum(middle[last, shape] + error[last, shape] * ndtri(place), 0.0)
    drawn = shapes[:, last, shape].T * persons[:, None]
    rest = turned + rng.normal(size=drawn.shape) - drawn @ (onto @ seen).T
    for end in np.unique(last):
        rows = last == end
        corner = triangle[: end + 1, : end + 1]
        drawn[rows, : end + 1] = solve_triangular(corner, rest[rows, : end + 1].T).T
    return np.maximum(drawn @ np.maximum(sizes - np.arange(most + 1)[:, None], 0).T, 0.0)


def _above(sizes: FloatArray, most: int) -> tuple[FloatArray, FloatArray]:
    """(numbers, last number, shapes) how one person above a last number may have rows, and how likely each shape is.

    The first is nobody; then tails of every slope and curve; then each number by itself, and with those near above it,
    the larger the less likely.
    """
    ratio = sizes[:, None] / np.arange(1, most + 1)
    width = np.where(sizes > most, sizes / 1.5, 1.0)  # of a band as many numbers as it begins with
    bent = np.array([np.log(ratio) if curve == 0 else (ratio**curve - 1) / curve for curve in _CURVES])
    # 600: what falls further is still a double
    falls = np.exp(-np.minimum(_SLOPES[:, None, None, None] * np.maximum(bent, 0), 600.0)) * width[:, None]
    tails = np.where(ratio > 1, falls, 0.0).reshape(-1, len(sizes), most)
    tails = np.moveaxis(tails / tails.sum(axis=1, keepdims=True), 0, 2)
    near = (sizes[:, None] >= sizes) & (sizes[:, None] <= np.maximum(_NEAR * sizes, sizes + 1))
    ones = np.hstack([np.eye(len(sizes)), near / near.sum(axis=0)])
    over = np.tile(np.where(ratio > 1, 1 / sizes[:, None], 0.0).T, 2)
    kinds = [np.ones((most, 1)), np.ones((most, tails.shape[2])), over]
    likely = np.hstack([each / each.sum(axis=1, keepdims=True) for each in kinds])
    shapes = [np.zeros((len(sizes), most, 1)), tails, np.repeat(ones[:, None, :], most, axis=1)]
    with np.errstate(divide="ignore"):
        return np.concatenate(shapes, axis=2), np.log(likely)
