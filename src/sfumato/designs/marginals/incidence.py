"""Many attribute sets at once, as arrays of ascending positions: what lies below them, and where a set is found.

A hundred attributes have 166,751 sets of at most three. One row of an array each, compared by integer keys.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["Sets", "closure", "distinct", "locate", "patterns"]

Sets = NDArray[np.int32]
Keys = NDArray[np.int64]

_MOST = 2**62  # numbers of sets are 63-bit integers
_DENSE = 16  # a table of 16 places a set is faster than sorting, and at most 128 bytes a set


def closure(families: Sequence[Sets], attributes: int) -> tuple[Sets, ...]:
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
        out.append(distinct(np.concatenate(found).astype(np.int32, copy=False), attributes))
    return tuple(reversed(out))


def locate(known: Sets, wanted: Sets, attributes: int) -> NDArray[np.intp]:
    """Where each row of `wanted` (m, order) stands in the sorted, distinct rows of `known`; -1 where it does not."""
    if known.shape[1] != wanted.shape[1]:
        raise ValueError(f"sets of {wanted.shape[1]} attributes are not among sets of {known.shape[1]}")
    if not len(known):
        return np.full(len(wanted), -1, dtype=np.intp)
    (places, keys), span = _keys((known, wanted), attributes)
    if span <= _DENSE * (len(known) + len(wanted)):
        table = np.full(span, -1, dtype=np.intp)
        table[places] = np.arange(len(known))
        return table[keys]
    found = np.minimum(np.searchsorted(places, keys), len(known) - 1)
    return np.where(places[found] == keys, found, -1)


def patterns(order: int) -> Iterator[tuple[int, ...]]:
    """The columns of every subset of an array of sets of that order: 2^order tuples, by length."""
    return itertools.chain.from_iterable(itertools.combinations(range(order), r) for r in range(order + 1))


def distinct(sets: Sets, attributes: int) -> Sets:
    """The rows, each once, in lexicographic order."""
    (keys,), span = _keys((sets,), attributes)
    if span <= _DENSE * len(sets):
        first = np.full(span, -1, dtype=np.intp)
        first[keys] = np.arange(len(sets))
        return sets[first[first >= 0]]
    return sets[np.unique(keys, return_index=True)[1]]


def _keys(arrays: Sequence[Sets], attributes: int) -> tuple[list[Keys], int]:
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
