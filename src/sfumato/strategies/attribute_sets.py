"""Many attribute sets at once, as arrays of ascending positions: what lies below them, and where a set is found.

A hundred attributes have 166,751 sets of at most three. One row of an array each, compared by integer keys.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from sfumato.operators.base import FloatArray

Sets = NDArray[np.int32]
Keys = NDArray[np.int64]

_MOST = 2**62  # numbers of sets are 63-bit integers
_DENSE = 16  # a table of 16 places a set is faster than sorting, and at most 128 bytes a set


def downward_closure(families: Sequence[Sets], attributes: int) -> tuple[Sets, ...]:
    """All subsets of the given sets, as one array (count, order) for every order from 0 to the largest.

    families: arrays (count, order) of positions below `attributes`, ascending within a row; several may have
    the same order and rows may come twice. The rows of the result are distinct and sorted lexicographically.
    Positions may repeat within a row, which then stands for a set of so many attributes of a kind.
    """
    top = max((f.shape[1] for f in families if len(f)), default=-1)
    out: list[Sets] = []
    for order in range(top, -1, -1):
        found = [f for f in families if f.shape[1] == order and len(f)]
        if out:
            found += [np.delete(out[-1], c, axis=1) for c in range(order + 1)]
        out.append(distinct_sets(np.concatenate(found).astype(np.int32, copy=False), attributes))
    return tuple(reversed(out))


def locate_sets(known: Sets, wanted: Sets, attributes: int) -> NDArray[np.intp]:
    """Where each row of `wanted` (m, order) stands in the sorted, distinct rows of `known`; -1 where it does not."""
    if known.shape[1] != wanted.shape[1]:
        raise ValueError(f"sets of {wanted.shape[1]} attributes are not among sets of {known.shape[1]}")
    if not len(known):
        return np.full(len(wanted), -1, dtype=np.intp)
    (places, keys), span = _integer_keys((known, wanted), attributes)
    if span <= _DENSE * (len(known) + len(wanted)):
        table = np.full(span, -1, dtype=np.intp)
        table[places] = np.arange(len(known))
        return table[keys]
    found = np.minimum(np.searchsorted(places, keys), len(known) - 1)
    return np.where(places[found] == keys, found, -1)


def subset_columns(order: int) -> Iterator[tuple[int, ...]]:
    """The columns of every subset of an array of sets of that order: 2^order tuples, by length."""
    return itertools.chain.from_iterable(itertools.combinations(range(order), r) for r in range(order + 1))


def distinct_sets(sets: Sets, attributes: int) -> Sets:
    """The rows, each once, in lexicographic order."""
    (keys,), span = _integer_keys((sets,), attributes)
    if span <= _DENSE * len(sets):
        first = np.full(span, -1, dtype=np.intp)
        first[keys] = np.arange(len(sets))
        return sets[first[first >= 0]]
    return sets[np.unique(keys, return_index=True)[1]]


def _integer_keys(arrays: Sequence[Sets], attributes: int) -> tuple[list[Keys], int]:
    """(one integer per row, the number above them all): in the order of the rows, equal only where rows are.

    Positions are digits in base `attributes`; where they would not fit 63 bits, the keys so far are replaced by
    their ranks among all arrays.
    """
    keys = [np.zeros(len(a), dtype=np.int64) for a in arrays]
    span = 1
    for column in range(arrays[0].shape[1]):
        if span * attributes > _MOST:
            distinct, ranks = np.unique(np.concatenate(keys), return_inverse=True)
            keys = np.split(ranks.astype(np.int64), np.cumsum([len(k) for k in keys])[:-1])
            span = len(distinct)
        for k, sets in zip(keys, arrays, strict=True):
            k *= attributes
            k += sets[:, column]
        span *= attributes
    return keys, span


# a hash: the multiplier of C's rand modulo a prime: products fit 63 bits; `_inconsistent_kinds` checks kinds exactly
_MULTIPLIER, _MODULUS = 1_103_515_245, 2**31 - 1


def exchangeable_kinds(
    families: Sequence[Sets], weights: Sequence[FloatArray], sizes: Sequence[int]
) -> NDArray[np.int32]:
    """(attributes,) numbers from 0: attributes of one kind can be exchanged without changing sizes or weights.

    families: distinct sets, one array per order. Kinds are proposed by size and by how often an attribute occurs
    in which tables, and accepted where every multiset of kinds has all its sets or none, with one weight; kinds
    that fail come apart into single attributes. Always valid, though not always the coarsest.
    """
    labels = np.unique(np.asarray(sizes, dtype=np.float64), return_inverse=True)[1]
    while True:
        refined = _refine_kinds(families, weights, labels)
        done = refined.max(initial=0) == labels.max(initial=0)
        labels = refined
        if done or labels.max(initial=0) == len(labels) - 1:
            break
    while len(labels) and (failed := _inconsistent_kinds(families, weights, labels)).any():
        apart = failed[labels]
        labels = np.unique(np.where(apart, len(labels) + np.arange(len(labels)), labels), return_inverse=True)[1]
    return labels.astype(np.int32)


def sorted_kinds(sets: Sets, labels: NDArray[np.integer]) -> Sets:
    """(count, order) the kinds of every set's attributes, ascending."""
    return np.sort(labels.astype(np.int32)[sets], axis=1)


def _kind_multisets(families: Sequence[Sets], labels: NDArray[np.intp]) -> Iterator[tuple[Sets, NDArray[np.intp]]]:
    """Per order (distinct multisets of kinds, which one each set has)."""
    for sets in families:
        tuples = sorted_kinds(sets, labels)
        found = distinct_sets(tuples, len(labels))
        yield found, locate_sets(found, tuples, len(labels))


def _refine_kinds(
    families: Sequence[Sets], weights: Sequence[FloatArray], labels: NDArray[np.intp]
) -> NDArray[np.intp]:
    """Kinds told apart by the multisets and weights of the tables their attributes are in, summed as hashes."""
    columns = [labels.astype(np.float64)]
    for sets, weight, (_, which) in zip(families, weights, _kind_multisets(families, labels), strict=True):
        if not sets.size:
            continue
        ranks = np.unique(weight, return_inverse=True)[1] if (weight != weight[0]).any() else np.zeros_like(which)
        code = (which * (int(ranks.max()) + 1) + ranks + 1) % _MODULUS * _MULTIPLIER % _MODULUS
        sums = np.bincount(sets.reshape(-1), np.repeat(code, sets.shape[1]), len(labels))
        columns.append(np.asarray(sums, dtype=np.float64))
    return np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)[1].reshape(-1)


def _inconsistent_kinds(
    families: Sequence[Sets], weights: Sequence[FloatArray], labels: NDArray[np.intp]
) -> NDArray[np.bool_]:
    """Which kinds are in a multiset that misses some of its sets or has several weights."""
    members = np.bincount(labels).astype(np.float64)
    out = np.zeros(len(members), dtype=np.bool_)
    for weight, (found, which) in zip(weights, _kind_multisets(families, labels), strict=True):
        one = np.empty(len(found))
        one[which] = weight
        bad = np.bincount(which, minlength=len(found)) != _count_possible_sets(found, members)
        bad[which[one[which] != weight]] = True
        out[found[bad]] = True
    return out


def _count_possible_sets(multisets: Sets, members: FloatArray) -> FloatArray:
    """How many sets have these kinds: a product of binomials, built up along ascending rows."""
    out = np.ones(len(multisets))
    run = np.zeros(len(multisets))
    for c in range(multisets.shape[1]):
        again = multisets[:, c] == multisets[:, c - 1] if c else np.zeros(len(multisets), dtype=np.bool_)
        run = np.where(again, run + 1, 0)
        out = np.rint(out * (members[multisets[:, c]] - run) / (run + 1))
    return out
