"""Upper bounds of a sum of products over all choices: the arithmetic that prices are checked with.

A `Sum` is  sum_k weight_k prod_{f in set_k} f(x_v(f)):  features f are integers over the states of one variable
each. How to bound it is proposed by whoever likes; whatever is proposed, what comes out is an upper bound.

*Cliques* are a scope each and the part of it that is kept, in the order of their elimination: all tables inside the
scope that hold a variable which is not kept, and that no earlier clique took, are added up; the largest over what
is not kept is a table over what is kept. Any sequence bounds the sum, for the maximum of a sum is at most the sum of
maxima [DR03]; what no clique takes is refused. *Classes* are variables that may be permuted, which is looked at.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sfumato._util.codec import distinct_rows, storable
from sfumato.errors import PlanError
from sfumato.maps.base import INT64, Numbers

Feature = tuple[int, Numbers]
"""A variable, and the value at each of its states: int64 or Python integers."""
Clique = tuple[tuple[int, ...], tuple[int, ...]]
Row = tuple[tuple[int, ...], int]
Bound = tuple[int, bool]
"""An upper bound, and whether it is known to be reached."""

_CHUNK = 2**21  # states looked at together: 16 MB for each table
_MOST_WORK = 10**9  # numbers multiplied and added over all states: some seconds
_MOST_STATES = 2**20  # of a clique
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
        return cls(tuple(states), tuple(found), tuple(_merge_bundles(out, len(found))))

    def _rows(self) -> Iterator[Row]:
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
        rows = list(self._rows())
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

    # ---- cliques, one after the other --------------------------------------------------------------------

    def eliminated(self, cliques: Sequence[Clique]) -> Bound:
        """The bound that cliques give, in int64: tables are rounded up to units of a power of two where they must.

        It is reached where none is rounded, and every variable leaves with all tables that hold it. Raises PlanError
        where what is proposed does not fit.
        """
        tables: dict[tuple[int, ...], Numbers] = {}
        for features, weight in self._rows():
            scope = tuple(self.features[f][0] for f in features)
            self._check_states(scope)
            own = reduce(
                np.multiply.outer, (self.features[f][1].astype(object) for f in features), np.array(weight, object)
            )
            tables[scope] = tables[scope] + own if scope in tables else own
        # what the first states of all have is added exactly
        constant = sum(int(t.flat[0]) for t in tables.values())
        rest = [(s, t - t.flat[0]) for s, t in tables.items() if s]
        # no partial sum of any choice is larger
        top = sum(int(np.abs(t).max()) for _, t in rest) + len(rest)
        shift = max(0, top.bit_length() - INT64.bit_length() + 2)
        waiting = [(s, (-(-t >> shift)).astype(np.int64)) for s, t in rest]
        total, exact = 0, shift == 0
        for scope, kept in cliques:
            inside, gone = set(scope), set(scope).difference(kept)
            if len(inside) != len(scope) or not inside.issuperset(kept) or not inside <= set(range(len(self.states))):
                raise PlanError("a certificate's clique is a scope of distinct variables and a part of it that is kept")
            self._check_states(scope)
            taken = [inside.issuperset(s) and not gone.isdisjoint(s) for s, _ in waiting]
            mine = [t for t, ours in zip(waiting, taken, strict=True) if ours]
            waiting = [t for t, ours in zip(waiting, taken, strict=True) if not ours]
            order = sorted(inside)
            joint = np.zeros([self.states[v] for v in order], dtype=np.int64)
            for s, t in mine:
                joint += t.reshape([self.states[v] if v in s else 1 for v in order])
            found = joint.max(axis=tuple(i for i, v in enumerate(order) if v in gone))
            exact = exact and all(gone.isdisjoint(s) for s, _ in waiting)
            if mine and kept:
                waiting.append((tuple(sorted(kept)), found))
            elif mine:
                total += int(found)
        if waiting:
            raise PlanError("a certificate's cliques leave one out; what is there is not bounded")
        return constant + (total << shift), exact

    def _check_states(self, scope: Sequence[int]) -> None:
        if math.prod(self.states[v] for v in scope) > _MOST_STATES:
            raise PlanError("a certificate's clique has too many states to look at")

    # ---- variables that may be permuted ------------------------------------------------------------------

    def in_classes(self, classes: Sequence[int]) -> SumOfProducts:
        """The same sum with one variable for each class of variables of two states: how many are in the second.

        Classes are numbers from 0 on, one per variable. They are not believed: in one class, sets whose features
        look alike must have one weight and be all there can be. Raises PlanError where they do not.
        """
        sizes = [Counter(classes)[c] for c in range(max(classes, default=0) + 1)]
        if len(classes) != len(self.states) or not all(sizes) or any(n != 2 for n in self.states):
            raise PlanError("a certificate's classes are a number for every attribute, and none is left out")
        # features that are the same stand for one: a set must not count as two
        own = [(v, tuple(values.tolist())) for v, values in self.features]
        same = {feature: i for i, feature in enumerate(own)}
        place = np.array([same[feature] for feature in own], dtype=np.intp)
        kinds = list(dict.fromkeys((classes[v], values) for v, values in own))
        number = {kind: i for i, kind in enumerate(kinds)}
        label = np.array([number[classes[v], values] for v, values in own], dtype=np.intp)
        made: dict[tuple[int, tuple[int, ...]], int] = {}
        out: list[Bundle] = []
        for sets, weights in _merge_bundles([Bundle(place[sets], weights) for sets, weights in self.bundles], len(own)):
            labels = np.sort(label[sets], axis=1)
            first, kind = distinct_rows(labels, len(kinds) + 1)
            if (weights != weights[first][kind]).any():
                raise PlanError("a certificate takes attributes for alike that weights tell apart")
            for row, count, weight in zip(
                labels[first].tolist(), np.bincount(kind).tolist(), weights[first], strict=True
            ):
                alike: dict[int, Counter[tuple[int, ...]]] = {}
                for k in row:
                    alike.setdefault(kinds[k][0], Counter())[kinds[k][1]] += 1
                if count != math.prod(_count_selections(sizes[c], m.values()) for c, m in alike.items()):
                    raise PlanError("a certificate takes attributes for alike that the sets tell apart")
                found = [made.setdefault((c, _symmetric_sums(sizes[c], m)), len(made)) for c, m in alike.items()]
                out.append(Bundle.of([found], [weight]))
        features = tuple((c, np.array(values, dtype=object)) for c, values in made)
        return SumOfProducts(tuple(n + 1 for n in sizes), features, tuple(_merge_bundles(out, len(made))))


def _merge_bundles(bundles: Sequence[Bundle], count: int) -> Iterator[Bundle]:
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


def _count_selections(n: int, chosen: Iterable[int]) -> int:
    """In how many ways disjoint groups of so many are chosen from n."""
    out = 1
    for m in chosen:
        out, n = out * math.comb(n, m), max(n - m, 0)
    return out


def _symmetric_sums(n: int, features: Counter[tuple[int, ...]]) -> tuple[int, ...]:
    """Over t = 0 to n, of n variables t in the second state: the sum over all choices of a variable per feature."""
    kinds, counts = list(features), list(features.values())
    out = [0] * (n + 1)
    for second in itertools.product(*(range(m + 1) for m in counts)):
        first = [m - j for m, j in zip(counts, second, strict=True)]
        value = math.prod(f[1] ** j * f[0] ** i for f, j, i in zip(kinds, second, first, strict=True))
        for t in range(n + 1):
            out[t] += value * _count_selections(t, second) * _count_selections(n - t, first)
    return tuple(out)


_SLICES = 200  # of the range of p_1: twice as many tighten the bound by less than 1 %
_BREAKS = 64  # slopes that are tried: all of them for few attributes

Interval = tuple[Numbers, Numbers]


@storable
@dataclass(frozen=True, slots=True)
class Products:
    """weight 2^shift is about c_order prod u: `units` u per feature, at least 1, and `costs` c per order from 0 on."""

    units: tuple[int, ...]
    costs: tuple[int, ...]
    shift: int

    def __post_init__(self) -> None:
        numbers = (*self.units, *self.costs, self.shift)
        if not all(type(v) is int for v in numbers) or min(self.units, default=1) < 1 or min(numbers) < 0:
            raise PlanError("products of weights are proposed in whole numbers of at least 0, units of at least 1")


def scaled_ends(total: SumOfProducts) -> tuple[Numbers, Numbers, Numbers]:
    """Per feature (scale, low, high): its two values are scale low and scale high, coprime, |low| <= high."""
    ends = [sorted(map(int, values.tolist())) for _, values in total.features]
    scale = [math.gcd(*e) for e in ends]
    if not all(len(e) == 2 and -high <= low < high for e in ends for low, high in [e]):
        raise PlanError("products are proposed where every attribute changes or does not")
    low, high = ([e[k] // s for e, s in zip(ends, scale, strict=True)] for k in (0, 1))
    return tuple(np.array(v, dtype=object) for v in (scale, low, high))  # type: ignore[return-value]


def least_symmetric(total: SumOfProducts, given: Products) -> int:
    """A lower bound of minus the sum, whose weights must not be positive; every feature chooses for itself.

    Raises PlanError where the proposal does not fit.
    """
    top = max((b.sets.shape[1] for b in total.bundles), default=0)
    if not total.features or len(given.units) != len(total.features) or top >= len(given.costs):
        raise PlanError("products have a unit for every feature and a cost for every order")
    scale, low, high = scaled_ends(total)
    units = np.array(given.units, dtype=object)
    whole = elementary_symmetric(units * high, len(given.costs) - 1)
    used = [0] * len(given.costs)
    paid = 0
    for sets, negative in total.bundles:
        order = sets.shape[1]
        weights = -negative * set_products(scale, sets)
        if (weights < 0).any():
            raise PlanError("weights of one sign alone are bounded by products")
        norms, least = product_extremes(low, high, sets)
        unit = set_products(units, sets).astype(object)
        rest = weights * 2**given.shift - given.costs[order] * unit
        paid -= int((rest * np.where(rest > 0, least, norms)).sum())
        used[order] += int((unit * norms).sum())
    # the products also stand for sets that the sum lacks
    paid += sum(c * (w - u) for c, w, u in zip(given.costs[1:], whole[1:], used[1:], strict=True))
    return -((paid - _least_combination(units * low, units * high, given.costs)) >> given.shift)


def product_extremes(low: Numbers, high: Numbers, sets: NDArray[np.integer]) -> tuple[Numbers, Numbers]:
    """(largest, least) product of every set, of numbers low or high, |low| <= high.

    A change shrinks the product; one that makes it negative is best alone, and otherwise all are.
    """
    ends, most = np.concatenate([high, low]), set_products(high, sets)
    least = np.minimum(most, set_products(low, sets))
    for i in range(sets.shape[1]):
        least = np.minimum(least, set_products(ends, sets + len(high) * (np.arange(sets.shape[1]) == i)))
    return most, least


def elementary_symmetric(values: Numbers, top: int) -> list[int]:
    """Elementary symmetric polynomials of orders 0 to top."""
    out = [1] + [0] * top
    for v in values.tolist():
        for k in range(top, 0, -1):
            out[k] += out[k - 1] * v
    return out


def _least_combination(low: Numbers, high: Numbers, costs: tuple[int, ...]) -> int:
    """A lower bound of sum_k costs_k e_k(y) over y_i = low_i or high_i, for costs of at least 0."""
    least, most = int(low.sum()), int(high.sum())
    near = min(most, -2 * least)
    steps = range(_SLICES + 1)
    edges = {start + (stop - start) * i // _SLICES for start, stop in ((least, most), (least, near)) for i in steps}
    ends = np.array(sorted(edges), dtype=object)
    first = (ends[:-1], ends[1:])
    sums = [first, *(_power_sums(low, high, j, first) for j in range(2, len(costs)))]
    one = np.ones(len(ends) - 1, dtype=object)
    # intervals of k! e_k
    scaled: list[Interval] = [(one, one)]
    value = one * 0
    for k in range(1, len(costs)):
        down, up = one * 0, one * 0
        for i in range(1, k + 1):
            factor = math.factorial(k - 1) // math.factorial(k - i)
            d, u = _interval_square(first) if k == 2 and i == 1 else _interval_product(scaled[k - i], sums[i - 1])
            down, up = (down + factor * d, up + factor * u) if i % 2 else (down - factor * u, up - factor * d)
        scaled.append((down, up))
        value = value + costs[k] * -(-down // math.factorial(k))
    return int(value.min())


def _power_sums(low: Numbers, high: Numbers, power: int, first: Interval) -> Interval:
    """Bounds of sum_i y_i^power where sum_i y_i lies in an interval: f <= sum_i max(f_i - m y_i) + m sum_i y_i."""
    ends: list[Numbers] = []
    for sign in (1, -1):
        f, g = sign * low**power, sign * high**power
        kinks = np.sort((g - f) // (high - low))
        # any choice of slopes bounds the sum
        some = np.linspace(0, len(kinks) - 1, min(len(kinks), _BREAKS)).astype(np.intp)
        bounds = [
            int(np.maximum(f - m * low, g - m * high).sum()) + np.maximum(m * first[0], m * first[1])
            for m in (0, *kinks[some].tolist())
        ]
        ends.append(sign * np.minimum.reduce(bounds))
    return ends[1], ends[0]


def _interval_product(a: Interval, b: Interval) -> Interval:
    corners = [x * y for x in a for y in b]
    return np.minimum.reduce(corners), np.maximum.reduce(corners)


def _interval_square(a: Interval) -> Interval:
    low, high = a[0] ** 2, a[1] ** 2
    return np.where((a[0] <= 0) & (a[1] >= 0), 0, np.minimum(low, high)), np.maximum(low, high)
