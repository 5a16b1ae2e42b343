"""Upper bounds of a sum of products over all choices, in integers: the arithmetic that prices are checked with.

A `Sum` is  sum_k weight_k prod_{f in set_k} f(x_v(f)):  features f are integers over the states of one variable
each. How to bound it is proposed by whoever likes, as *classes* of variables and *buckets*; whatever is proposed,
what comes out is an upper bound of the sum, and its maximum where one bucket holds all variables.

Buckets are cliques in the order of their elimination. A bucket is a scope and the part of it that is kept: all
products and messages inside the scope that hold a variable which is not kept, and that no earlier bucket took, are
added up over the states of the scope; the largest over what is not kept is a message over what is kept. Any sequence
bounds the sum, for the maximum of a sum is at most the sum of maxima [DR03]; what no bucket takes is refused.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from sfumato.errors import PlanError
from sfumato.maps.linear import INT64, Numbers
from sfumato.privacy.terms import Bundle

__all__ = ["Bucket", "Feature", "Sum", "by_order"]

Feature = tuple[int, Numbers]
"""A variable, and the value at each of its states: int64 or Python integers."""
Bucket = tuple[tuple[int, ...], tuple[int, ...]]
Row = tuple[tuple[int, ...], int]
Message = tuple[tuple[int, ...], Numbers]

# States of a scope that are looked at together; and in all, as int64 and as Python integers.
_CHUNK, _MOST_STATES, _MOST_OBJECTS = 2**21, 2**30, 2**24
# Where more states than so many need Python integers, most are told apart in int64, by so many bits.
_FEW, _COARSE_BITS = 2**10, 58
# Products that buckets take one by one.
_MOST_PRODUCTS = 2**18


@dataclass(frozen=True, slots=True)
class Sum:
    """states: of every variable. features: as the module says. bundles: sets of features, any integers as weights.

    No set holds two features of one variable, and no feature is there twice.
    """

    states: tuple[int, ...]
    features: tuple[Feature, ...]
    bundles: tuple[Bundle, ...]

    def largest_apart(self) -> int:
        """The sum of what every product has at most: a bound that needs no proposal."""
        ends = [[int(e(values)) for _, values in self.features] for e in (max, min)]
        top = max((abs(v) for e in ends for v in e), default=1)
        total = 0
        for sets, weights in (c for b in self.bundles for c in b.chunks()):
            dtype = np.int64 if 4 * top ** sets.shape[1] < INT64 else object
            high = low = np.ones(len(sets), dtype=dtype)
            for column in sets.T:
                corners = [a * np.array(e, dtype=dtype)[column] for a in (high, low) for e in ends]
                high, low = np.maximum.reduce(corners), np.minimum.reduce(corners)
            total += int((weights * np.where(weights > 0, high, low)).sum())
        return total

    def largest(self, classes: Sequence[int], buckets: Sequence[Bucket]) -> int:
        """The bound that buckets give, over classes where there are any. Raises PlanError for what does not fit."""
        return self._in_classes(classes).largest((), buckets) if classes else self._eliminated(buckets)

    # ---- variables that may be permuted ------------------------------------------------------------------

    def _in_classes(self, classes: Sequence[int]) -> Sum:
        """The same sum with one variable for each class of variables of two states: how many are in the second.

        Classes are numbers from 0 on, one per variable. They are not believed: in one class, sets whose features
        look alike must have one weight and be all there can be.
        """
        sizes = [Counter(classes)[c] for c in range(max(classes) + 1)]
        if len(classes) != len(self.states) or not all(sizes) or any(n != 2 for n in self.states):
            raise PlanError("a certificate's classes are a number for every attribute, and none is left out")
        own = [(classes[v], tuple(values.tolist())) for v, values in self.features]
        kinds = list(dict.fromkeys(own))
        number = {kind: i for i, kind in enumerate(kinds)}
        label = np.array([number[kind] for kind in own], dtype=np.intp)
        made: dict[tuple[int, tuple[int, ...]], int] = {}
        rows: dict[int, list[Row]] = {}
        for bundle in by_order(self.bundles):
            labels = np.sort(label[bundle.sets], axis=1)
            _, first, kind, counts = np.unique(
                _codes(labels, len(kinds)), return_index=True, return_inverse=True, return_counts=True
            )
            if not np.array_equal(bundle.base, bundle.base[first][kind]):
                raise PlanError("a certificate takes attributes for alike that weights tell apart")
            weights = bundle.take(first).weights().tolist()
            for row, count, weight in zip(labels[first].tolist(), counts.tolist(), weights, strict=True):
                alike: dict[int, Counter[tuple[int, ...]]] = {}
                for k in row:
                    alike.setdefault(kinds[k][0], Counter())[kinds[k][1]] += 1
                if count != math.prod(_ways(sizes[c], m.values()) for c, m in alike.items()):
                    raise PlanError("a certificate takes attributes for alike that the sets tell apart")
                found = [made.setdefault((c, _symmetric(sizes[c], m)), len(made)) for c, m in alike.items()]
                rows.setdefault(len(found), []).append((tuple(found), weight))
        features = tuple((c, np.array(values, dtype=object)) for c, values in made)
        return Sum(tuple(n + 1 for n in sizes), features, tuple(Bundle.of(r, k) for k, r in rows.items()))

    # ---- cliques, one after the other --------------------------------------------------------------------

    def _eliminated(self, buckets: Sequence[Bucket]) -> int:
        if sum(map(len, self.bundles)) > _MOST_PRODUCTS:
            raise PlanError("a certificate's buckets would take too many products one by one")
        rows: list[Row] = []
        for sets, weights in (c for b in self.bundles for c in b.chunks()):
            rows += zip(map(tuple, sets.tolist()), weights.tolist(), strict=True)
        # no message and no sum of them is larger
        tops = [max(1, int(np.abs(values).max())) for _, values in self.features]
        dtype = np.int64 if 2 * sum(abs(w) * math.prod(tops[f] for f in s) for s, w in rows) < INT64 else object
        total = sum(w for s, w in rows if not s)
        scopes = [frozenset(self.features[f][0] for f in s) for s, _ in rows]
        waiting = [(v, r) for v, r in zip(scopes, rows, strict=True) if v]
        messages: list[Message] = []
        for scope, kept in buckets:
            inside, gone = set(scope), set(scope).difference(kept)
            if len(inside) != len(scope) or not inside.issuperset(kept) or not inside <= set(range(len(self.states))):
                raise PlanError("a certificate's bucket is a scope of distinct variables and a part of it that is kept")
            taken = [r for v, r in waiting if v <= inside and v & gone]
            waiting = [(v, r) for v, r in waiting if not (v <= inside and v & gone)]
            own = [m for m in messages if inside.issuperset(m[0]) and gone.intersection(m[0])]
            messages = [m for m in messages if not (inside.issuperset(m[0]) and gone.intersection(m[0]))]
            if dtype is object and not kept and not own and math.prod(self.states[v] for v in scope) > _FEW:
                total += self._largest_over(tuple(sorted(scope)), taken)
                continue
            found = self._message(tuple(sorted(scope)), set(kept), taken, own, dtype)
            if kept:
                messages.append((tuple(sorted(kept)), found))
            else:
                total += int(found)
        if waiting or messages:
            raise PlanError("a certificate's buckets leave out a clique; what is there is not bounded")
        return total

    def _message(
        self,
        scope: tuple[int, ...],
        kept: set[int],
        rows: list[Row],
        messages: Sequence[Message],
        dtype: type,
    ) -> Numbers:
        """The largest sum of some products and messages over what is not kept, for every state of what is kept."""
        shape = tuple(self.states[v] for v in scope)
        if math.prod(shape) > (_MOST_STATES if dtype is np.int64 else _MOST_OBJECTS):
            raise PlanError("a certificate's bucket has too many states to look at")
        gone = tuple(i for i, v in enumerate(scope) if v not in kept)
        if not scope:
            return np.zeros((), dtype=dtype)
        step = max(1, _CHUNK // math.prod(shape[1:]))
        found: list[Numbers] = []
        for start in range(0, shape[0], step):
            part = slice(start, start + step)
            table = self.table(scope, rows, part, dtype)
            for own, values in messages:
                cut = values[part] if scope[0] in own else values
                table = table + cut.reshape([n if v in own else 1 for v, n in zip(scope, table.shape, strict=True)])
            found.append(table.max(axis=gone) if gone else table)
        # with its type: a list of whole numbers on both sides of int64 would pass through float64
        return np.concatenate(found) if 0 not in gone else np.maximum.reduce(np.array(found, dtype=dtype))

    def _largest_over(self, scope: tuple[int, ...], rows: list[Row]) -> int:
        """The largest sum over all states of a scope where int64 is too short for it.

        Weights and features are rounded down to units of powers of two, and of the states, those whose rounded sum is
        within twice the error of the largest are compared exactly.
        """
        shape = tuple(self.states[v] for v in scope)
        if math.prod(shape) > _MOST_STATES:
            raise PlanError("a certificate's bucket has too many states to look at")
        coarse, rounded, slack = self._rounded(scope, rows)
        step = max(1, _CHUNK // math.prod(shape[1:]))
        top, near = -INT64, np.empty(0, dtype=np.int64)
        sums = np.empty(0, dtype=np.int64)
        for start in range(0, shape[0], step):
            table = coarse.table(scope, rounded, slice(start, start + step), np.int64).reshape(-1)
            top = max(top, int(table.max()))
            found = np.flatnonzero(table >= top - 2 * slack)
            sums, near = np.append(sums, table[found]), np.append(near, found + start * math.prod(shape[1:]))
            sums, near = sums[sums >= top - 2 * slack], near[sums >= top - 2 * slack]
            if len(near) * len(rows) > _MOST_OBJECTS:
                raise PlanError("a certificate's bucket has too many states that are nearly the largest")
        state = dict(zip(scope, np.unravel_index(near, shape), strict=True))
        exact = np.zeros(len(near), dtype=object)
        for features, weight in rows:
            exact += math.prod(
                (self.features[f][1].astype(object)[state[self.features[f][0]]] for f in features), start=weight
            )
        return int(exact.max())

    def _rounded(self, scope: tuple[int, ...], rows: list[Row]) -> tuple[Sum, list[Row], int]:
        """(a sum of rounded features, its rows, how far they are off at most): in units of 2^excess.

        Every row has its weight in its largest feature, which is cut by what the other ones of the row leave to cut.
        """
        tops = [int(np.abs(values).max()) for _, values in self.features]
        size = sum(abs(w) * math.prod(max(1, tops[f]) for f in s) for s, w in rows)
        excess = max(0, size.bit_length() - _COARSE_BITS)
        features: list[Feature] = []
        known: dict[tuple[int, int], int] = {}
        rounded: list[Row] = []
        slack = largest = 0
        for row, weight in rows:
            first, *others = sorted(row, key=lambda f: -tops[f])
            left, sizes, own = excess, list[tuple[int, int]](), list[int]()
            for f in others:
                cut = max(0, min(left, tops[f].bit_length() - _COARSE_BITS // len(row)))
                left -= cut
                if (f, cut) not in known:
                    known[f, cut] = len(features)
                    features.append((self.features[f][0], self.features[f][1].astype(object) >> cut))
                own.append(known[f, cut])
                sizes.append((int(np.abs(features[own[-1]][1]).max()), int(cut > 0)))
            v, values = self.features[first]
            own.append(len(features))
            features.append((v, values.astype(object) * weight >> left))
            sizes.append((int(np.abs(features[-1][1]).max()), int(left > 0)))
            rounded.append((tuple(own), 1))
            largest += math.prod(n for n, _ in sizes)
            # what was cut is off by less than 1
            slack += math.prod(n + e for n, e in sizes) - math.prod(n for n, _ in sizes)
        if 2 * largest + 4 * slack >= INT64:
            raise PlanError("the entries are too large to look at all states of a bucket")
        return Sum(self.states, tuple(features), ()), rounded, slack

    def table(self, scope: tuple[int, ...], rows: Iterable[Row], first: slice, dtype: type) -> Numbers:
        """Products added up over the states of a scope, of its first variable some alone: one variable at a time."""
        # what is left of a product -> the sum of weights over the states of the variables so far
        sums: dict[tuple[int, ...], Numbers] = {}
        for features, weight in rows:
            key = tuple(sorted(features, key=lambda f: self.features[f][0]))
            sums[key] = sums.get(key, 0) + np.array([weight], dtype=dtype)
        shape: list[int] = []
        for i, v in enumerate(scope):
            ones = np.ones(self.states[v], dtype=dtype)[first if i == 0 else slice(None)]
            shape.append(len(ones))
            after: dict[tuple[int, ...], Numbers] = {}
            for key, values in sums.items():
                ours = bool(key) and self.features[key[0]][0] == v
                own = self.features[key[0]][1][first if i == 0 else slice(None)].astype(dtype) if ours else ones
                more = np.multiply.outer(values, own).reshape(-1)
                rest = key[1:] if ours else key
                after[rest] = after[rest] + more if rest in after else more
            sums = after
        return sums.get((), np.zeros(math.prod(shape), dtype=dtype)).reshape(shape)


def by_order(bundles: Sequence[Bundle]) -> list[Bundle]:
    """One bundle for each order, every set once."""
    alike: dict[int, list[Bundle]] = {}
    for b in bundles:
        alike.setdefault(b.sets.shape[1], []).append(b)
    out: list[Bundle] = []
    for some in alike.values():
        sets = np.sort(np.concatenate([b.sets for b in some]), axis=1)
        codes = _codes(sets, int(sets.max(initial=0)) + 1)
        if len({(b.exponent, b.scale) for b in some}) == 1 and len(np.unique(codes)) == len(codes):
            out.append(Bundle(sets, np.concatenate([b.base for b in some]), some[0].exponent, some[0].scale))
            continue
        _, first, kind = np.unique(codes, return_index=True, return_inverse=True)
        weights = np.zeros(len(first), dtype=object)
        np.add.at(weights, kind, np.concatenate([b.weights() for b in some]))
        out.append(Bundle(sets[first], weights))
    return out


def _codes(rows: Numbers, base: int) -> Numbers:
    """(count,) one number per row of entries in [0, base), equal where rows are."""
    dtype = np.int64 if max(base, 2) ** rows.shape[1] < INT64 else object
    codes = np.zeros(len(rows), dtype=dtype)
    for column in rows.T:
        codes = codes * base + column
    return codes


def _ways(n: int, chosen: Iterable[int]) -> int:
    """In how many ways disjoint groups of so many are chosen from n."""
    out = 1
    for m in chosen:
        out, n = out * math.comb(n, m), max(n - m, 0)
    return out


def _symmetric(n: int, features: Counter[tuple[int, ...]]) -> tuple[int, ...]:
    """Over t = 0 to n, of n variables t in the second state: the sum over all choices of a variable per feature."""
    kinds, counts = list(features), list(features.values())
    out = [0] * (n + 1)
    for second in itertools.product(*(range(m + 1) for m in counts)):
        first = [m - j for m, j in zip(counts, second, strict=True)]
        value = math.prod(f[1] ** j * f[0] ** i for f, j, i in zip(kinds, second, first, strict=True))
        for t in range(n + 1):
            out[t] += value * _ways(t, second) * _ways(n - t, first)
    return tuple(out)
