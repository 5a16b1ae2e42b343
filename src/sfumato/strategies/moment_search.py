"""The search for what is best measured of sums of measures, by weights on what records may change, and its proof.

Of each set U of attributes rows C are asked, and M_U = C' W C is measured. For weights w on the changes v with sum 1,
D = sum_v w_v v v', the root of the least error is at least sum_U tr (C D C')^1/2, and the weights at which this is
largest give the best W. docs/decisions/0136.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.operators.base import FloatArray
from sfumato.privacy.unit import Neighbours
from sfumato.strategies.design import Problem

_MOST_WAYS = 64  # in which attributes two records differ
ROUNDS, _NEAR = 4_000, 1e-5  # of reweighting corners, and how near to its bound the plan is then
AMONG = 40  # rounds among few corners, from one look at all to the next
_LITTLE = 1e-7  # of the largest weight: corners that have it are among the few
RANK = 1e-11  # of the largest eigenvalue: what is below is rounding


@dataclass(frozen=True, slots=True)
class AskedRows:
    """What a workload asks of one set of attributes: rows C with C' C = G c, and the squared length c of a column.

    basis: whole numbers, (rank, joint cells), which span the rows: what is measured are whole combinations of them, so
    that rounding a strategy takes nothing out of it. beside: whether they span more than is asked.
    """

    attributes: tuple[str, ...]
    rows: FloatArray
    length: float
    basis: NDArray[np.int64]
    beside: bool = False


@dataclass(frozen=True, slots=True)
class RecordChanges:
    """What records may change: for each of them a few vectors over the measures' joint cells, and by set of attributes
    how much each vector counts there.

    An added record changes a set by v v', v its shares. A record with v in place of one with w changes it by
    v v' + w w' - g (v w' + w v'), where g is a product: 1 for each of the set's attributes in which the two agree,
    -1 / (n - 1) for each other. That is (1 - g) / 2 of (v + w)(v + w)' and (1 + g) / 2 of (v - w)(v - w)'.
    """

    vectors: tuple[FloatArray, ...]
    differ: tuple[frozenset[str], ...] = ()
    sizes: Mapping[str, int] | None = None

    def counts(self, attributes: Sequence[str]) -> list[FloatArray]:
        """(ways,) for each kind of vectors how much they count in a set of attributes, by where two records differ."""
        if self.sizes is None:
            return [np.ones(1)]
        g = np.array([math.prod(-1 / (self.sizes[a] - 1) for a in attributes if a in some) for some in self.differ])
        return [(1 - g) / 2, (1 + g) / 2]

    @classmethod
    def of(
        cls, problem: Problem, places: FloatArray, attributes: Sequence[str], sizes: Mapping[str, int]
    ) -> RecordChanges:
        """Those of the privacy unit, of records at these places (places, joint cells)."""
        if problem.unit.neighbours is Neighbours.ADD_REMOVE:
            return cls((places,))
        ways = [frozenset(c) for k in range(len(attributes) + 1) for c in itertools.combinations(attributes, k)]
        if len(ways) > _MOST_WAYS:  # what is left out is priced all the same
            ways = [frozenset(), *(frozenset((a,)) for a in attributes), frozenset(attributes)]
        if not problem.unit.total_is_public:
            # of persons some have fewer rows than others: a record may vanish, without one in its place
            places = np.concatenate([places, np.zeros((1, places.shape[1]))])
        i, j = np.triu_indices(len(places))
        return cls((places[i] + places[j], places[i] - places[j]), tuple(ways), sizes)


_Found = tuple[list[FloatArray], float, float, FloatArray]
_KNOWN: dict[bytes, _Found] = {}
_MOST_KNOWN, _MOST_KEPT = 256, 2**15  # searches, and numbers of each: 64 MB in all


def best_matrices(asked: Sequence[AskedRows], changes: RecordChanges, rounds: int = ROUNDS) -> _Found:
    """What `_searched` finds, once: queries by themselves and beside others ask for the same, and so does every budget.

    It hangs on nothing but these arrays.
    """
    arrays = [*changes.vectors, *(part for a in asked for part in (a.rows, *changes.counts(a.attributes)))]
    key = hashlib.sha256(repr((rounds, len(changes.differ), [a.shape for a in arrays])).encode())
    for array in arrays:
        key.update(np.ascontiguousarray(array).data)
    known = _KNOWN.get(key.digest())
    if known is not None:
        return known
    found = _searched(asked, changes, rounds)
    for w in found[0]:
        w.flags.writeable = False
    if sum(w.size for w in found[0]) <= _MOST_KEPT:
        for oldest in list(_KNOWN)[: len(_KNOWN) + 1 - _MOST_KNOWN]:
            _KNOWN.pop(oldest, None)  # another thread may have been faster
        _KNOWN[key.digest()] = found
    return found


def _searched(asked: Sequence[AskedRows], changes: RecordChanges, rounds: int) -> _Found:
    """(per set the W of M = C' W C, the root of the least error at unit price as proved, and as found, and the weights
    of changes that prove it).

    Weights that are proportional to the square of what each change costs come ever nearer to the best: were changes
    orthogonal, in one step. What is proved holds at any weights, so steps are taken among the few changes that have
    weight, and all changes are looked at once in a while, for what is found.
    """
    weights = np.ones((max(1, len(changes.differ)), len(changes.vectors[0])))
    weights /= weights.size
    images: list[list[_Image]] = []
    told: list[FloatArray] = []  # per set the directions of its rows that some change tells apart: others are public
    for a in asked:
        own = zip(changes.vectors, changes.counts(a.attributes), strict=True)
        image = [(v @ a.rows.T, c) for v, c in own if c.any()]
        values, vectors = np.linalg.eigh(_gram(image, weights))
        told.append(vectors[:, values > RANK * values.max(initial=1e-300)])
        images.append([(x @ told[-1], c) for x, c in image])
    best: tuple[float, list[FloatArray], float] | None = None
    proved, proof = 0.0, weights
    for _ in range(rounds // AMONG):
        cost, bound, halves = _costs(images, weights)
        if bound > proved:
            proved, proof = bound, weights.copy()
        # sum of weights times cost is the bound; scaled so that no change costs more than 1
        found = math.sqrt(float(cost.max()) * bound)
        if best is None or found < best[0]:
            best = (found, [h @ h.T for h in halves], float(cost.max()))
        if best[0] <= proved * (1 + _NEAR) or not bound:
            break
        weights = weights * (cost / bound) ** 2
        # what costs more than the mean gains weight, however little it has
        weights = np.maximum(weights, np.where(cost > bound * (1 + _NEAR), _LITTLE * weights.max(), 0.0))
        weights = weights / weights.sum()
        kept = weights.max(axis=0) >= _LITTLE / 2 * weights.max()
        few = [[(x[kept], c) for x, c in image] for image in images]
        share = float(weights[:, kept].sum())
        among, bound = _reweighted(few, weights[:, kept] / share)
        if bound > proved:
            proved, proof = bound, np.zeros_like(weights)
            proof[:, kept] = among
        weights[:, kept] = among * share
    assert best is not None
    return [t @ (m / best[2]) @ t.T for m, t in zip(best[1], told, strict=True)], proved, best[0], proof


def _costs(images: Sequence[Sequence[_Image]], weights: FloatArray) -> tuple[FloatArray, float, list[FloatArray]]:
    """What each change costs at the matrices that are best for these weights, what they prove, and roots of these."""
    cost, bound, halves = np.zeros(weights.shape), 0.0, []
    for image in images:
        values, vectors = np.linalg.eigh(_gram(image, weights))
        values = np.maximum(values, RANK**2 * values.max(initial=1e-300))
        bound += float(np.sqrt(values).sum())
        halves.append(vectors * values**-0.25)
        for x, c in image:
            cost += np.multiply.outer(c, ((x @ halves[-1]) ** 2).sum(axis=1))
    return cost, bound, halves


def _reweighted(images: Sequence[Sequence[_Image]], weights: FloatArray) -> tuple[FloatArray, float]:
    """Weights that prove more, and the most that any of them proved.

    Of two steps in the logarithms the first and their difference say where they lead; so far is gone at once where
    that proves more than a step does.
    """
    tiny = math.log(_LITTLE / 100)  # what has next to nothing comes back in few steps

    def whole(logs: FloatArray) -> FloatArray:
        logs = logs - logs.max()
        logs = np.maximum(logs, tiny)
        return np.asarray(logs - math.log(float(np.exp(logs).sum())))

    def stepped(logs: FloatArray, cost: FloatArray, bound: float) -> FloatArray:
        return whole(logs + 2 * np.log(np.maximum(cost / bound, 1e-300)))

    logs, most = whole(np.log(np.maximum(weights, 1e-300))), 4.0
    cost, bound, _ = _costs(images, np.exp(logs))
    for _ in range(AMONG // 3):
        if not bound:
            break
        one = stepped(logs, cost, bound)
        cost, near, _ = _costs(images, np.exp(one))
        two = stepped(one, cost, near)
        step, turn = one - logs, two - 2 * one + logs
        size = np.exp(one)
        far = math.sqrt(float((size * step**2).sum()) / max(float((size * turn**2).sum()), 1e-300))
        far = min(max(far, 1.0), most)
        logs = whole(logs + 2 * far * step + far**2 * turn)
        cost, bound, _ = _costs(images, np.exp(logs))
        if bound >= near:
            most = most * 4 if far == most else most
            continue
        logs, most = two, max(4.0, most / 4)
        cost, bound, _ = _costs(images, np.exp(logs))
    return np.exp(logs), bound


_Image = tuple[FloatArray, FloatArray]
"""(changes, rows) vectors as a set's rows see them, and (ways,) how much they count there."""


def _gram(image: Sequence[_Image], weights: FloatArray) -> FloatArray:
    """The sum over changes of their weights (ways, changes) times x x'."""
    return np.asarray(sum((x * (c @ weights)[:, None]).T @ x for x, c in image), dtype=np.float64)
