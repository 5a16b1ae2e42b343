"""The table of several attributes that is most even given the tables of their pairs. [DS40, Csi75]"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from sfumato.operators.base import FloatArray

__all__ = ["most_even"]


def most_even(
    shape: Sequence[int],
    pairs: Mapping[tuple[int, int], FloatArray],
    start: FloatArray | None = None,
    *,
    tolerance: float = 1e-4,
    rounds: int = 100,
) -> FloatArray:
    """The table with these pairs (axes ascending) of largest entropy, or of least divergence from `start`.

    Scales the pairs in turn until one round changes no table by more than `tolerance` times the total, summed over
    cells, or `rounds` are done: pairs that no table has make it turn in a circle, near all of them.
    """
    whole = np.ones(tuple(shape)) if start is None else start.copy()
    axes = range(len(shape))
    total = float(next(iter(pairs.values())).sum()) if pairs else 0.0
    if total <= 0:
        return np.zeros(tuple(shape))
    for _ in range(rounds):
        away = 0.0
        for a, b in itertools.combinations(axes, 2):
            wanted = pairs[a, b]
            rest = tuple(i for i in axes if i not in (a, b))
            found = whole.sum(axis=rest, keepdims=True)
            wanted = wanted.reshape(found.shape)
            away = max(away, float(np.abs(found - wanted).sum()))
            whole *= np.divide(wanted, found, out=np.zeros_like(found), where=found > 0)
        if away <= tolerance * total:
            break
    return whole
