"""Upper bounds of a sum of products over all choices: the arithmetic that prices are checked with.

A `Sum` is  sum_k weight_k prod_{f in set_k} f(x_v(f)):  features f are integers over the states of one variable
each.

Sums that are bounded by what somebody proposes are in `certified_sums.py`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sfumato._util.codec import distinct_rows
from sfumato.errors import PlanError
from sfumato.maps.base import INT64, Numbers

Feature = tuple[int, Numbers]
"""A variable, and the value at each of its states: int64 or Python integers."""
Row = tuple[tuple[int, ...], int]
Bound = tuple[int, bool]
"""An upper bound, and whether it is known to be reached."""

_CHUNK = 2**21  # states looked at together: 16 MB for each table
_MOST_WORK = 10**9  # numbers multiplied and added over all states: some seconds
_MOST_NEAR = 2**24  # products of Python integers for states that are nearly the largest: a second or two


class Bundle(NamedTuple):
    """Products of equally many numbers: sets (count, order) of positions, and weights (count,), Python integers."""

    sets: NDArray[np.intp]
    weights: Numbers

    @classmethod
    def of(cls, sets: Sequence[Sequence[int]], weights: Sequence[int]) -> Bundle:
        """From lists of one length."""
        # as objects at once: a list of whole numbers on both sides of int64 would pass through float64
        return cls(np.array(sets, dtype=np.intp).reshape(len(sets), -1), np.array(weights, dtype=object))


def set_products(values: Sequence[int] | Numbers, sets: NDArray[np.integer]) -> Numbers:
    """(count,) products of the values at the positions in every row of `sets`; int64 where all are below 2^62."""
    top = max((abs(int(v)) for v in values), default=0)
    fits = max(top, 1) ** max(sets.shape[1], 1) < INT64 // 2
    table = np.array(values, dtype=np.int64 if fits else object)
    return reduce(np.multiply, (table[column] for column in sets.T), np.ones(len(sets), dtype=table.dtype))


@dataclass(frozen=True, slots=True)
class SumOfProducts:
    """states: of every variable. features: as the module says. bundles: sets of features, any integers as weights.

    No set holds two features of one variable.
    """

    states: tuple[int, ...]
    features: tuple[Feature, ...]
    bundles: tuple[Bundle, ...]

    @classmethod
    def of(
        cls,
        states: Sequence[int],
        parts: Iterable[tuple[dict[int, Feature], Sequence[int], int]],
        bundles: Sequence[Bundle],
    ) -> SumOfProducts:
        """From sets of positions, once for every part: (features of some positions, numbers for the others, scale)."""
        found: list[Feature] = []
        out: list[Bundle] = []
        for features, constants, scale in parts:
            place = np.full(len(constants) + 1, -1, dtype=np.intp)
            place[list(features)] = np.arange(len(found), len(found) + len(features))
            found += features.values()
            for sets, weights in bundles:
                on = place[sets] >= 0
                for shape in on[distinct_rows(on.astype(np.int64), 2)[0]]:
                    rows = np.flatnonzero((on == shape).all(axis=1))
                    # below 2^62 where they are not Python integers; a scale is at most 2
                    fixed = scale * set_products(constants, sets[rows][:, ~shape])
                    own = weights[rows] if (fixed == 1).all() else weights[rows] * fixed
                    out.append(Bundle(place[sets[rows][:, shape]], own))
        return cls(tuple(states), tuple(found), tuple(merge_bundles(out, len(found))))

    def rows(self) -> Iterator[Row]:
        """Every product by itself: its features, by their variables, and its weight."""
        for sets, weights in self.bundles:
            for row, weight in zip(sets.tolist(), weights.tolist(), strict=True):
                yield tuple(sorted(row, key=lambda f: self.features[f][0])), weight

    def scope(self) -> list[int]:
        """The variables that some product holds, ascending."""
        held = (np.flatnonzero(np.bincount(sets.reshape(-1))).tolist() for sets, _ in self.bundles)
        return sorted({self.features[f][0] for features in held for f in features})

    def apart(self) -> Bound:
        """The sum of what every product has at most, reached where the last states of all are best for all.

        It needs no proposal.
        """
        ends = [[int(best(values)) for _, values in self.features] for best in (np.max, np.min)]
        last = [int(values[-1]) for _, values in self.features]
        top = max((abs(v) for e in ends for v in e), default=1)
        total, exact = 0, True
        for sets, weights in self.bundles:
            dtype = np.int64 if top ** sets.shape[1] < INT64 else object
            high = low = np.ones(len(sets), dtype=dtype)
            for column in sets.T:
                corners = [a * np.array(e, dtype=dtype)[column] for a in (high, low) for e in ends]
                high, low = reduce(np.maximum, corners), reduce(np.minimum, corners)
            most = np.where(weights > 0, high, low)
            total += int((weights * most).sum())
            exact = exact and bool((most == set_products(last, sets)).all())
        return total, exact

    # ---- all states --------------------------------------------------------------------------------------

    def largest(self) -> Bound:
        """The maximum over all states, reached; a hair above it where too many states are nearly the largest.

        A pass in float64 leaves the states within its own error of the largest; these are compared exactly. A product
        errs by less than its size times 2^-53 for each of its factors, numbers rounded to doubles, and additions: the
        slack is more than twice what all can come to. Raises PlanError for too many states.
        """
        scope = self.scope()
        if math.prod(self.states[v] for v in scope) > _MOST_WORK:
            raise PlanError("there are too many combinations to look at")
        rows = list(self.rows())
        tops = [max(1, int(np.abs(values).max())) for _, values in self.features]
        size = sum(abs(w) * math.prod(tops[f] for f in s) for s, w in rows)
        if self._work(scope, rows) > _MOST_WORK or size.bit_length() > 900:
            raise PlanError("there are too many combinations to look at, or their entries are too large")
        if not scope:
            return sum(w for _, w in rows), True
        # where all sums are below 2^53, doubles are exact
        slack = 0.0 if size < 2**53 else float(size) * (len(rows) + 2 * len(scope) + 8) * 2.0**-52
        top, crowded = -math.inf, False
        near, states = np.empty(0), np.empty((0, len(scope)), dtype=np.intp)
        for head, values in self._tables(scope, rows):
            top = max(top, float(values.max()))
            if slack and not crowded:
                places = np.flatnonzero(values >= top - 2 * slack)
                crowded = (len(near) + len(places)) * len(rows) > _MOST_NEAR
                tail = np.unravel_index(places, [self.states[v] for v in scope[len(head) :]])
                found = np.column_stack([*(np.full(len(places), h) for h in head), *tail])
                near, states = np.append(near, values[places]), np.append(states, found.reshape(-1, len(scope)), axis=0)
                near, states = near[kept := near >= top - 2 * slack], states[kept]
        if not slack:
            return int(top), True
        if crowded:
            return math.ceil(top + slack) + 1, False
        at = dict(zip(scope, states.T, strict=True))
        own = [values.astype(object)[at[v]] if v in at else values for v, values in self.features]
        exact = (reduce(np.multiply, (own[f] for f in s), w) for s, w in rows)
        return int(reduce(np.add, exact, np.zeros(len(near), dtype=object)).max()), True

    def _work(self, scope: Sequence[int], rows: Sequence[Row]) -> int:
        """How many numbers are multiplied where sums are formed one variable at a time."""
        total, states, left = 0, 1, {features for features, _ in rows}
        for v in scope:
            states *= self.states[v]
            left = {key[1:] if key and self.features[key[0]][0] == v else key for key in left}
            total += states * len(left)
        return total

    def _tables(self, scope: Sequence[int], rows: Sequence[Row]) -> Iterator[tuple[tuple[int, ...], Numbers]]:
        """(states of the first variables, the sum in float64 over those of all others): some at a time."""
        cut = next(
            (k for k in range(len(scope)) if math.prod(self.states[v] for v in scope[k:]) <= _CHUNK), len(scope) - 1
        )
        real = [values.astype(np.float64) for _, values in self.features]
        for head in itertools.product(*(range(self.states[v]) for v in scope[:cut])):
            at = dict(zip(scope, head, strict=False))
            # what is left of a product -> the sum of weights over the states of the variables so far
            sums: dict[tuple[int, ...], Numbers] = {}
            for features, weight in rows:
                fixed = [real[f][at[self.features[f][0]]] for f in features if self.features[f][0] in at]
                key = features[len(fixed) :]
                sums[key] = sums.get(key, 0.0) + np.array([math.prod(fixed, start=float(weight))])
            for v in scope[cut:]:
                after: dict[tuple[int, ...], Numbers] = {}
                for key, values in sums.items():
                    if key and self.features[key[0]][0] == v:
                        grown, rest = np.multiply.outer(values, real[key[0]]).reshape(-1), key[1:]
                    else:
                        grown, rest = np.repeat(values, self.states[v]), key
                    after[rest] = grown + after[rest] if rest in after else grown
                sums = after
            yield head, sums.get((), np.zeros(1))


def merge_bundles(bundles: Sequence[Bundle], count: int) -> Iterator[Bundle]:
    """One bundle for each order, every set of `count` positions once."""
    for order in sorted({b.sets.shape[1] for b in bundles}):
        some = [b for b in bundles if b.sets.shape[1] == order]
        sets = np.sort(np.concatenate([b.sets for b in some]), axis=1)
        weights = np.concatenate([b.weights for b in some])
        first, kind = distinct_rows(sets, count + 1)
        if len(first) == len(sets):
            yield Bundle(sets, weights)
            continue
        total = np.zeros(len(first), dtype=object)
        np.add.at(total, kind, weights)
        yield Bundle(sets[first], total)
