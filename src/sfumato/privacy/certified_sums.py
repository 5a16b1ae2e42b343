"""Upper bounds of a sum of products that somebody proposes: by cliques, classes of variables, products of weights.

*Cliques* are a scope each and the part of it that is kept, in the order of their elimination: all tables inside the
scope that hold a variable which is not kept, and that no earlier clique took, are added up; the largest over what
is not kept is a table over what is kept. Any sequence bounds the sum, for the maximum of a sum is at most the sum of
maxima [DR03]; what no clique takes is refused. *Classes* are variables that may be permuted, which is looked at.

A lower bound of a sum over very many attributes whose weights are close to products, in integers.

G = sum_S w_S prod_{i in S} x_i, where each x_i is one of two numbers, is to be bounded from below; no order of
elimination is short enough where all attributes meet. Weights close to c_|S| prod_{i in S} u_i make of G a
combination of elementary symmetric polynomials of y_i = u_i x_i, and these are polynomials in the power sums
p_j = sum_i y_i^j. The range of p_1 is cut into slices. In a slice the other power sums lie between bounds that
are linear programs with one constraint, and Newton's identities k e_k = sum_i (-1)^(i-1) e_(k-i) p_i carry
intervals from power sums to e_k. What the weights deviate from products is paid for set by set: by the most that a
set's product may be wherever some x_i of it is the larger number, which in a slice few can be, for each adds to p_1.
u and c are proposed; the bound holds whatever they are.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from sfumato._util.codec import distinct_rows, storable
from sfumato.errors import PlanError
from sfumato.maps.base import INT64, Numbers
from sfumato.privacy.sums import Bound, Bundle, SumOfProducts, merge_bundles, set_products

Clique = tuple[tuple[int, ...], tuple[int, ...]]

_MOST_STATES = 2**20  # of a clique


def eliminate_cliques(total: SumOfProducts, cliques: Sequence[Clique]) -> Bound:
    """The bound of a sum that cliques give, in int64: tables are rounded up to units of a power of two where they must.

    It is reached where none is rounded, and every variable leaves with all tables that hold it. Raises PlanError
    where what is proposed does not fit.
    """
    tables: dict[tuple[int, ...], Numbers] = {}
    for features, weight in total.rows():
        scope = tuple(total.features[f][0] for f in features)
        _check_states(total, scope)
        own = reduce(
            np.multiply.outer, (total.features[f][1].astype(object) for f in features), np.array(weight, object)
        )
        tables[scope] = tables[scope] + own if scope in tables else own
    # what the first states of all have is added exactly
    constant = sum(int(t.flat[0]) for t in tables.values())
    rest = [(s, t - t.flat[0]) for s, t in tables.items() if s]
    # no partial sum of any choice is larger
    top = sum(int(np.abs(t).max()) for _, t in rest) + len(rest)
    shift = max(0, top.bit_length() - INT64.bit_length() + 2)
    waiting = [(s, (-(-t >> shift)).astype(np.int64)) for s, t in rest]
    bound, exact = 0, shift == 0
    for scope, kept in cliques:
        inside, gone = set(scope), set(scope).difference(kept)
        if len(inside) != len(scope) or not inside.issuperset(kept) or not inside <= set(range(len(total.states))):
            raise PlanError("a certificate's clique is a scope of distinct variables and a part of it that is kept")
        _check_states(total, scope)
        taken = [inside.issuperset(s) and not gone.isdisjoint(s) for s, _ in waiting]
        mine = [t for t, ours in zip(waiting, taken, strict=True) if ours]
        waiting = [t for t, ours in zip(waiting, taken, strict=True) if not ours]
        order = sorted(inside)
        joint = np.zeros([total.states[v] for v in order], dtype=np.int64)
        for s, t in mine:
            joint += t.reshape([total.states[v] if v in s else 1 for v in order])
        found = joint.max(axis=tuple(i for i, v in enumerate(order) if v in gone))
        exact = exact and all(gone.isdisjoint(s) for s, _ in waiting)
        if mine and kept:
            waiting.append((tuple(sorted(kept)), found))
        elif mine:
            bound += int(found)
    if waiting:
        raise PlanError("a certificate's cliques leave one out; what is there is not bounded")
    return constant + (bound << shift), exact


def _check_states(total: SumOfProducts, scope: Sequence[int]) -> None:
    if math.prod(total.states[v] for v in scope) > _MOST_STATES:
        raise PlanError("a certificate's clique has too many states to look at")


def merge_classes(total: SumOfProducts, classes: Sequence[int]) -> SumOfProducts:
    """The same sum with one variable for each class of variables of two states: how many are in the second.

    Classes are numbers from 0 on, one per variable. They are not believed: in one class, sets whose features
    look alike must have one weight and be all there can be. Raises PlanError where they do not.
    """
    sizes = [Counter(classes)[c] for c in range(max(classes, default=0) + 1)]
    if len(classes) != len(total.states) or not all(sizes) or any(n != 2 for n in total.states):
        raise PlanError("a certificate's classes are a number for every attribute, and none is left out")
    # features that are the same stand for one: a set must not count as two
    own = [(v, tuple(values.tolist())) for v, values in total.features]
    same = {feature: i for i, feature in enumerate(own)}
    place = np.array([same[feature] for feature in own], dtype=np.intp)
    kinds = list(dict.fromkeys((classes[v], values) for v, values in own))
    number = {kind: i for i, kind in enumerate(kinds)}
    label = np.array([number[classes[v], values] for v, values in own], dtype=np.intp)
    made: dict[tuple[int, tuple[int, ...]], int] = {}
    out: list[Bundle] = []
    for sets, weights in merge_bundles([Bundle(place[sets], weights) for sets, weights in total.bundles], len(own)):
        labels = np.sort(label[sets], axis=1)
        first, kind = distinct_rows(labels, len(kinds) + 1)
        if (weights != weights[first][kind]).any():
            raise PlanError("a certificate takes attributes for alike that weights tell apart")
        for row, count, weight in zip(labels[first].tolist(), np.bincount(kind).tolist(), weights[first], strict=True):
            alike: dict[int, Counter[tuple[int, ...]]] = {}
            for k in row:
                alike.setdefault(kinds[k][0], Counter())[kinds[k][1]] += 1
            if count != math.prod(_count_selections(sizes[c], m.values()) for c, m in alike.items()):
                raise PlanError("a certificate takes attributes for alike that the sets tell apart")
            found = [made.setdefault((c, _symmetric_sums(sizes[c], m)), len(made)) for c, m in alike.items()]
            out.append(Bundle.of([found], [weight]))
    features = tuple((c, np.array(values, dtype=object)) for c, values in made)
    return SumOfProducts(tuple(n + 1 for n in sizes), features, tuple(merge_bundles(out, len(made))))


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
    # what sets deviate by costs at most, and where all numbers are low; more for every feature whose number is high
    paid, least_paid, more = 0, 0, np.zeros(len(units), dtype=object)
    for sets, negative in total.bundles:
        order = sets.shape[1]
        weights = -negative * set_products(scale, sets)
        if (weights < 0).any():
            raise PlanError("weights of one sign alone are bounded by products")
        norms, least = product_extremes(low, high, sets)
        unit = set_products(units, sets).astype(object)
        rest = weights * 2**given.shift - given.costs[order] * unit
        most, last = -rest * np.where(rest > 0, least, norms), -rest * set_products(low, sets)
        paid, least_paid = paid + int(most.sum()), least_paid + int(last.sum())
        for column in sets.T:
            np.add.at(more, column, most - last)
        used[order] += int((unit * norms).sum())
    # the products also stand for sets that the sum lacks
    lacking = sum(c * (w - u) for c, w, u in zip(given.costs[1:], whole[1:], used[1:], strict=True))
    tops, values = _least_combinations(units * low, units * high, given.costs)
    # how much the high numbers add to p_1 is known in a slice, so that few features have theirs where it is small
    gain = units * (high - low)
    room = tops - int((units * low).sum())
    slopes = np.sort(more // gain)[np.linspace(0, len(gain) - 1, min(len(gain), _BREAKS)).astype(np.intp)]
    highs = [m * room + int(np.maximum(more - m * gain, 0).sum()) for m in (0, *slopes.tolist())]
    deviation = np.minimum(least_paid + np.minimum.reduce(highs), paid)
    return -(int((deviation - values).max() + lacking) >> given.shift)


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


def _least_combinations(low: Numbers, high: Numbers, costs: tuple[int, ...]) -> tuple[Numbers, Numbers]:
    """Slices of p_1 by their ends, and in each a lower bound of sum_k costs_k e_k(y) over y_i = low_i or high_i.

    For costs of at least 0.
    """
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
    return first[1], value


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
