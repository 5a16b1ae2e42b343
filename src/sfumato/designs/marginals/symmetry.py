"""Attributes that a workload of marginal tables does not tell apart.

A problem that is convex has a best solution alike on all that can be exchanged: one unknown for every
multiset of kinds instead of one for every set. Ten-cell attributes, all tables of three: 4 unknowns, not 166,751.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from sfumato.designs.marginals.incidence import Sets, distinct, locate
from sfumato.operators.base import FloatArray

__all__ = ["kinds", "sorted_kinds"]

# a hash: the multiplier of C's rand, modulo a prime, so that products fit 63 bits; `_failed` checks the kinds exactly
_MULTIPLIER, _MODULUS = 1_103_515_245, 2**31 - 1


def kinds(families: Sequence[Sets], weights: Sequence[FloatArray], sizes: Sequence[int]) -> NDArray[np.int32]:
    """(attributes,) numbers from 0: attributes of one kind can be exchanged without changing sizes or weights.

    families: distinct sets, one array per order. Kinds are proposed by size and by how often an attribute occurs
    in which tables, and accepted where every multiset of kinds has all its sets or none, with one weight; kinds
    that fail come apart into single attributes. Always valid, though not always the coarsest.
    """
    labels = np.unique(np.asarray(sizes, dtype=np.float64), return_inverse=True)[1]
    while True:
        refined = _refined(families, weights, labels)
        done = refined.max(initial=0) == labels.max(initial=0)
        labels = refined
        if done or labels.max(initial=0) == len(labels) - 1:
            break
    while len(labels) and (failed := _failed(families, weights, labels)).any():
        apart = failed[labels]
        labels = np.unique(np.where(apart, len(labels) + np.arange(len(labels)), labels), return_inverse=True)[1]
    return labels.astype(np.int32)


def sorted_kinds(sets: Sets, labels: NDArray[np.integer]) -> Sets:
    """(count, order) the kinds of every set's attributes, ascending."""
    return np.sort(labels.astype(np.int32)[sets], axis=1)


def _types(families: Sequence[Sets], labels: NDArray[np.intp]) -> Iterator[tuple[Sets, NDArray[np.intp]]]:
    """Per order (distinct multisets of kinds, which one each set has)."""
    for sets in families:
        tuples = sorted_kinds(sets, labels)
        found = distinct(tuples, len(labels))
        yield found, locate(found, tuples, len(labels))


def _refined(families: Sequence[Sets], weights: Sequence[FloatArray], labels: NDArray[np.intp]) -> NDArray[np.intp]:
    """Kinds told apart by the multisets and weights of the tables their attributes are in, summed as hashes."""
    columns = [labels.astype(np.float64)]
    for sets, weight, (_, which) in zip(families, weights, _types(families, labels), strict=True):
        if not sets.size:
            continue
        ranks = np.unique(weight, return_inverse=True)[1] if (weight != weight[0]).any() else np.zeros_like(which)
        code = (which * (int(ranks.max()) + 1) + ranks + 1) % _MODULUS * _MULTIPLIER % _MODULUS
        sums = np.bincount(sets.reshape(-1), np.repeat(code, sets.shape[1]), len(labels))
        columns.append(np.asarray(sums, dtype=np.float64))
    return np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)[1].reshape(-1)


def _failed(families: Sequence[Sets], weights: Sequence[FloatArray], labels: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Which kinds are in a multiset that misses some of its sets or has several weights."""
    members = np.bincount(labels).astype(np.float64)
    out = np.zeros(len(members), dtype=np.bool_)
    for weight, (found, which) in zip(weights, _types(families, labels), strict=True):
        one = np.empty(len(found))
        one[which] = weight
        bad = np.bincount(which, minlength=len(found)) != _possible(found, members)
        bad[which[one[which] != weight]] = True
        out[found[bad]] = True
    return out


def _possible(multisets: Sets, members: FloatArray) -> FloatArray:
    """How many sets have these kinds: a product of binomials, built up along ascending rows."""
    out = np.ones(len(multisets))
    run = np.zeros(len(multisets))
    for c in range(multisets.shape[1]):
        again = multisets[:, c] == multisets[:, c - 1] if c else np.zeros(len(multisets), dtype=np.bool_)
        run = np.where(again, run + 1, 0)
        out = np.rint(out * (members[multisets[:, c]] - run) / (run + 1))
    return out
