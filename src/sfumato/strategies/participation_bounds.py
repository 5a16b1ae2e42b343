"""What no unbiased answers over time can beat where a person is in several periods, whatever they measure.

Let Q ask about n periods, G = Q'Q, and let a person change what is measured along u: 1 in each of some periods, where
these may be. A strategy whose Gram matrix X makes u'Xu <= 1 for all u errs at least what one does for which this holds
in the mean, tr X E[uu'] <= 1; and that is sum of the singular values of Q E[uu']^(1/2), for any law of u.

A person's rows lie in other cells in other periods, or in the same. So the periods of u are parted into classes: in one
class the rows are alike, those of another are of cells drawn by themselves. What tables have beside their total feels
no product of two classes: E[uu'] without these. The total feels all of them. The law is found by weighing patterns by
what they cost the strategy that is best against the law so far, and by adding the ones that cost it most.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.operators.base import FloatArray, single_thread
from sfumato.strategies.periods import Periods, TimeQuestion

Places = NDArray[np.int64]

_STEPS = 30  # of a year of days 1.2 CPU-seconds, and half a percent below what 300 find
_EVERY = 2  # steps before patterns are added
_PATTERNS, _ADDED = 1_500, 100  # at the beginning, and each time
_PAIRS = 2**19  # of periods in all patterns: what one step gathers
_CLASSES = 3  # as many sorts of rows as a person has in all: a choice, not tuned
_SWEEPS = 4  # of a search for a pattern
_NEW, _FEWER = 0.1, 10  # of the law that is given to what is added, and steps after which it is half of that
_POWER = 1.5  # of what a pattern costs, by which its share grows
_RANK = 1e-8  # of the largest eigenvalue: below, they are taken for 0, which lowers the bound
_LOST = 1e-12  # of the largest eigenvalue, by which rounding may move one
_CARE = 1e-6  # relative: what kept eigenvalues may be off


@dataclass(frozen=True, slots=True)
class ParticipationBound:
    """The least root mean squared errors over time, at unit noise: of the total, and of all else in tables."""

    total: float
    rest: float


def participation_bound(given: Periods, share: float, steps: int = _STEPS) -> ParticipationBound:
    """Bounds that hold together, for one law of a person's periods.

    Args:
        given: The periods, what is asked over time, and how often a person may come.
        share: Of the tables' error the part that is due to the total; the law is found for what is larger.
        steps: How often the law is improved.

    Returns:
        Both bounds.
    """
    return _bounds(given.questions, given.count, given.per_person, given.apart, share > 1 / 2, steps)


@functools.lru_cache(maxsize=4)
def _bounds(
    asked: Sequence[tuple[TimeQuestion, float]], n: int, k: int, apart: int, whole: bool, steps: int
) -> ParticipationBound:
    gram = sum((weight * question.gram(n) for question, weight in asked), np.zeros((n, n)))
    slack = n - 1 - (k - 1) * apart
    first = apart * np.arange(k)
    delays, classes = _first_patterns(k, slack, max(16, min(_PATTERNS, _PAIRS // k**2)))
    if whole:
        classes = np.zeros_like(classes)
    law = np.full(len(delays), 1 / len(delays))
    best, least = (delays, classes, law), -math.inf
    with single_thread():
        for step in range(steps):
            alike = classes[:, :, None] == classes[:, None, :]
            value, found = _against(gram, _second_moments(delays + first, alike, law, n))
            if value > least:
                best, least = (delays, classes, law), value
            costs = _costs(found, delays + first, alike)
            law = law * costs**_POWER
            law /= law.sum()
            if step % _EVERY == _EVERY - 1:
                few = max(4, min(_ADDED, 4 * _PAIRS // (k**2 * (slack + 1))))
                top = np.argsort(-costs)[:few]
                more = _dearest_patterns(found, delays[top], classes[top], apart, 1 if whole else _CLASSES)
                delays, classes = np.concatenate([delays, more[0]]), np.concatenate([classes, more[1]])
                new = _NEW * _FEWER / (_FEWER + step)
                law = np.append(law * (1 - new), np.full(len(top), new / len(top)))
        delays, classes, law = best
        alike = classes[:, :, None] == classes[:, None, :]
        values = [
            _against(gram, _second_moments(delays + first, some, law, n))[0] for some in (np.ones_like(alike), alike)
        ]
    total, rest = (v * (1 - _CARE) for v in values)
    return ParticipationBound(total, rest)


def _second_moments(places: Places, alike: NDArray[np.bool_], law: FloatArray, n: int) -> FloatArray:
    """(n, n) E[uu'] of patterns (patterns, k), of which only some pairs of periods count."""
    pairs = (places[:, :, None] * n + places[:, None, :])[alike]
    each = np.repeat(law, alike.sum(axis=(1, 2)))
    return np.asarray(np.bincount(pairs, each, n * n), dtype=np.float64).reshape(n, n)


def _costs(gram: FloatArray, places: Places, alike: NDArray[np.bool_]) -> FloatArray:
    """(patterns,) u'Xu."""
    return np.asarray((gram[places[:, :, None], places[:, None, :]] * alike).sum(axis=(1, 2)))


def _against(gram: FloatArray, moments: FloatArray) -> tuple[float, FloatArray]:
    """The sum of the singular values, from below, and the X that is best against these moments, tr X E[uu'] = 1."""
    values, vectors = np.linalg.eigh(moments)
    kept = values > _RANK * values[-1]
    values, vectors = values[kept], vectors[:, kept]
    root = vectors * np.sqrt(values)
    squares, turns = np.linalg.eigh(root.T @ gram @ root)
    lengths = np.sqrt(np.maximum(squares - _LOST * squares[-1], 0.0))
    total = float(lengths.sum())
    back = (vectors / np.sqrt(values)) @ turns
    return total, (back * lengths) @ back.T / total


def _first_patterns(k: int, slack: int, count: int) -> tuple[Places, Places]:
    """How much later than as early as can be a person comes each time, and in which class: few steps, spread evenly."""
    turns = np.arange(1, count + 1)[:, None]
    # fractions of multiples of powers of one number: points that are spread evenly in some dimensions
    spread = (turns * (1 / 1.17) ** np.arange(1, 12)) % 1.0
    steps, heights, breaks = spread[:, :3], np.sort(spread[:, 3:7], axis=1), spread[:, 7:11]
    runs = turns[:, 0] % 4
    place = (np.arange(k) + 0.5) / k
    passed = ((place > np.sort(steps, axis=1)[:, :, None]) & (np.arange(3) < runs[:, None])[:, :, None]).sum(axis=1)
    delays = np.rint(np.take_along_axis(heights, passed, axis=1) * slack).astype(np.int64)
    # half of them are one class, the others change it once or twice
    changed = (place > np.sort(breaks[:, :2], axis=1)[:, :, None]) & (breaks[:, 2:] > 1 / 2)[:, :, None]
    classes = changed.sum(axis=1).astype(np.int64)
    same = min(slack + 1, count)
    delays[:same] = np.rint(np.linspace(0, slack, same)).astype(np.int64)[:, None]
    return delays, classes % _CLASSES


def _dearest_patterns(
    gram: FloatArray, delays: Places, classes: Places, apart: int, most: int
) -> tuple[Places, Places]:
    """Patterns that cost more, each period at its best while the others stay, from some on."""
    delays, classes = delays.copy(), classes.copy()
    k, slack = delays.shape[1], len(gram) - 1 - (delays.shape[1] - 1) * apart
    first, every = apart * np.arange(k), np.arange(slack + 1)
    for _ in range(_SWEEPS):
        for i in range(k):
            own = every + first[i]
            heard = gram[own[:, None, None], (delays + first)[None]]  # (delays, patterns, k)
            heard[:, :, i] = 0.0
            low = delays[:, i - 1] if i else np.zeros(len(delays), dtype=np.int64)
            high = delays[:, i + 1] if i < k - 1 else np.full(len(delays), slack)
            allowed = (every[:, None] >= low) & (every[:, None] <= high)
            costs = np.stack([(heard * (classes == c)).sum(axis=2) for c in range(most)])
            costs = np.where(allowed, 2 * costs + gram[own, own][:, None], -math.inf).reshape(-1, len(delays))
            chosen = costs.argmax(axis=0)
            classes[:, i], delays[:, i] = chosen // (slack + 1), chosen % (slack + 1)
    return delays, classes
