"""What no unbiased answers over time can beat where a person is in several periods, whatever they measure.

Let Q ask about n periods, G = Q'Q, and let a person change what is measured along u: 1 in each of some periods, where
these may be. A strategy whose Gram matrix X makes u'Xu <= 1 for all u errs at least what one does for which this holds
in the mean, tr X E[uu'] <= 1; and that is sum of the singular values of Q E[uu']^(1/2), for any law of u.

A person's rows lie in other cells in other periods, or in the same. So the periods of u are parted into classes: in one
class the rows are alike, those of another are of cells drawn by themselves. What tables have beside their total feels
no product of two classes: E[uu'] without these. The total feels all of them. The law is found by weighing patterns by
what they cost the strategies that are best against the law so far, one of the total and one of all else in tables, and
by adding patterns that cost these more.

The largest error over periods is at least any weighted mean of their squares. So there G weighs periods too, each time
by what it errs under these strategies.
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

_STEPS = 20  # of a year of days .5 CPU-seconds, twice that beside a total, and .3 percent below what 300 find
_PATTERNS, _ADDED = 600, 100  # at the beginning, and each time
_PAIRS = 2**19  # of periods in all patterns: what one step gathers
_TIGHT = 2  # distances of a person's periods below which there is little choice of them
_CLASSES = 3  # as many sorts of rows as a person has in all: a choice, not tuned
_NEW, _FEWER = 0.1, 10  # of the law that is given to what is added, and steps after which it is half of that
_POWER = 3.0  # of what a pattern costs, by which its share grows; with half of it bounds are .02 percent lower
_LATER = 1.0  # of the squared error of a period, by which its weight grows
_SHARES = 16  # parts of 1 to which the share of the total is rounded: bounds hold for any law, so near ones have one
_RIDGE = 1e-6  # of the mean eigenvalue, added while a law is looked for: periods that no pattern has yet
_RANK = 1e-8  # of the largest eigenvalue: below, they are taken for 0, which lowers the bound
_LOST = 1e-12  # of the largest eigenvalue, by which rounding may move one
_CARE = 1e-6  # relative: what kept eigenvalues may be off


@dataclass(frozen=True, slots=True)
class ParticipationBound:
    """The least root mean squared errors over time, at unit noise, of the total and of all else in tables: over all
    periods, and with such weights of periods as make it large, under which no mean is above the worst."""

    total: float
    rest: float
    worst_total: float
    worst_rest: float


def participation_bound(given: Periods, share: float, steps: int = _STEPS) -> ParticipationBound:
    """Bounds that hold together, for one law of a person's periods.

    Args:
        given: The periods, what is asked over time, and how often a person may come. Only with the objective "worst"
            are weights of periods looked for; elsewhere all are alike.
        share: Of the tables' error the part that is due to the total: for so much of its bound, and of the other the
            rest, the law is found.
        steps: How often the law is improved.

    Returns:
        The bounds.
    """
    known = min(round(share * _SHARES) / _SHARES, 1.0)
    worst = given.objective == "worst" and not any(question.ranges for question, _ in given.questions)
    return _bounds(given.questions, given.count, given.per_person, given.apart, known, worst, steps)


@functools.lru_cache(maxsize=4)
def _bounds(
    asked: Sequence[tuple[TimeQuestion, float]], n: int, k: int, apart: int, share: float, worst: bool, steps: int
) -> ParticipationBound:
    mean = sum((weight * question.gram(n) for question, weight in asked), np.zeros((n, n)))
    every = [math.sqrt(weight) * question.matrix(n) for question, weight in asked] if worst else []
    laws = _Laws(n, k, apart, share)
    best, least, gram, periods = laws.law, -math.inf, mean, np.full(n, 1 / n)
    found = best, gram
    with single_thread():
        for step in range(steps):
            value, variances = laws.judge(gram, every)
            if value > least:
                least, found = value, (laws.law, gram)
            laws.improve(step)
            if worst:
                periods = periods * variances**_LATER
                periods /= periods.sum()
                gram = sum(((each * periods[:, None]).T @ each for each in every), np.zeros((n, n)))
        moments = [laws.moments(found[0], alike) for alike in (False, True)]
        values = [_singular_values(g, m) for g in (mean, found[1]) for m in moments]
    return ParticipationBound(*(value * (1 - _CARE) for value in values))


class _Laws:
    """Patterns of a person's periods, with the classes of these, and a law of the patterns that is made better.

    A law found is of the first patterns: those that come later have no part in it.
    """

    def __init__(self, n: int, k: int, apart: int, share: float) -> None:
        self.n, self.apart, self.share = n, apart, share
        self.first, self.slack = apart * np.arange(k), n - 1 - (k - 1) * apart
        # Who comes most often has little choice where that is nearly all there is. So there are patterns of a period
        # less, whose last is after the end, where it counts for nothing.
        late = apart if self.slack < _TIGHT * apart else 0
        self.slack, self.padded = self.slack + late, n + late
        self.delays, classes = _first_patterns(k, self.slack, max(16, min(_PATTERNS, _PAIRS // k**2)))
        self.classes = np.zeros_like(classes) if share == 1 else classes
        self.law = np.full(len(self.delays), 1 / len(self.delays))
        # pairs of a person's periods, each once, and how often they count
        self.pairs = np.triu_indices(k)
        self.twice = np.where(self.pairs[0] == self.pairs[1], 1.0, 2.0)
        self.added = max(4, min(_ADDED, 4 * _PAIRS // (k**2 * (self.slack + 1))))

    def _places(self) -> tuple[Places, NDArray[np.bool_]]:
        """(patterns, pairs) where the products of two periods are, and whether these are of one class."""
        (i, j), places = self.pairs, self.delays + self.first
        return places[:, i] * self.padded + places[:, j], self.classes[:, i] == self.classes[:, j]

    def moments(self, law: FloatArray, alike: bool) -> FloatArray:
        """(n, n) E[uu'] of a law; with `alike` without the products of two classes."""
        n, (places, same) = self.padded, self._places()
        each = np.broadcast_to(law[:, None] * self.twice / 2, (len(law), len(self.twice)))
        each = each * same[: len(law)] if alike else each
        half = np.bincount(places[: len(law)].reshape(-1), each.reshape(-1), n * n).reshape(n, n)
        return np.asarray((half + half.T)[: self.n, : self.n], dtype=np.float64)

    def judge(self, gram: FloatArray, every: Sequence[FloatArray]) -> tuple[float, FloatArray]:
        """The bound of the law so far, and what periods err under the strategies that are best against it."""
        places, same = self._places()
        value, variances = 0.0, np.zeros(self.n)
        self.costs, self.heard = np.zeros(len(places)), []
        for alike, part in ((True, 1 - self.share), (False, self.share)):
            self.heard.append(np.zeros((0, 0)))
            if not part:
                continue
            total, found, back = _against(gram, self.moments(self.law, alike))
            found = np.pad(found, (0, self.padded - self.n))
            products = found.reshape(-1)[places] * self.twice
            self.costs += part * total * (products * same if alike else products).sum(axis=1)
            self.heard[-1] = part * total * found
            value += part * total
            for each in every:
                variances += part * ((each @ back) ** 2).sum(axis=1)
        return value, variances

    def improve(self, step: int) -> None:
        """What costs more has a larger share of the law, and patterns are added that cost yet more."""
        law = self.law * (self.costs / self.costs.max()) ** _POWER
        top = np.argsort(-self.costs)[: self.added]
        self._add(top)
        new = _NEW * _FEWER / (_FEWER + step)
        self.law = np.append(law / law.sum() * (1 - new), np.full(len(top), new / len(top)))

    def _add(self, chosen: Places) -> None:
        """Of some patterns such as cost more: one period after the other at its best while the others stay."""
        delays, classes = self.delays[chosen].copy(), self.classes[chosen].copy()
        k, many, every = delays.shape[1], len(delays), np.arange(self.slack + 1)
        (alike, whole), most = self.heard, 1 if self.share == 1 else _CLASSES
        for i in range(k):
            own, others = every + self.first[i], delays + self.first
            costs = np.zeros((most, self.slack + 1, many))
            if whole.size:
                heard = whole[own[:, None, None], others[None]]  # (delays, patterns, k)
                heard[:, :, i] = 0.0
                costs += 2 * heard.sum(axis=2) + whole[own, own][:, None]
            if alike.size:
                heard = alike[own[:, None, None], others[None]]
                heard[:, :, i] = 0.0
                costs += np.stack([2 * np.einsum("dpk,pk->dp", heard, (classes == c) * 1.0) for c in range(most)])
                costs += alike[own, own][:, None]
            low = delays[:, i - 1] if i else np.zeros(many, dtype=np.int64)
            high = delays[:, i + 1] if i < k - 1 else np.full(many, self.slack)
            allowed = (every[:, None] >= low) & (every[:, None] <= high)
            best = np.where(allowed, costs, -math.inf).reshape(-1, many).argmax(axis=0)
            classes[:, i], delays[:, i] = best // (self.slack + 1), best % (self.slack + 1)
        self.delays, self.classes = np.concatenate([self.delays, delays]), np.concatenate([self.classes, classes])


def _against(gram: FloatArray, moments: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    """The sum of the singular values, the X that is best against these moments, tr X E[uu'] = 1, and a root of the
    inverse of X at that error: its squares weigh what is asked."""
    from scipy.linalg.lapack import dtrtri  # noqa: PLC0415  (slow to import)

    n = len(gram)
    root = np.linalg.cholesky(moments + _RIDGE * float(np.trace(moments)) / n * np.eye(n))
    squares, turns = np.linalg.eigh(root.T @ gram @ root)
    lengths = np.sqrt(np.maximum(squares, _LOST * squares[-1]))
    total = float(lengths.sum())
    back = np.asarray(dtrtri(root, lower=1)[0]).T @ turns
    return total, (back * lengths) @ back.T / total, root @ turns / np.sqrt(lengths)


def _singular_values(gram: FloatArray, moments: FloatArray) -> float:
    """The sum of the singular values, from below."""
    values, vectors = np.linalg.eigh(moments)
    kept = values > _RANK * values[-1]
    root = vectors[:, kept] * np.sqrt(values[kept])
    squares = np.linalg.eigvalsh(root.T @ gram @ root)
    return float(np.sqrt(np.maximum(squares - _LOST * squares[-1], 0.0)).sum())


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
