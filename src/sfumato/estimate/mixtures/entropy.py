"""The table of several attributes that is most even given tables of some of them. [DS40, Csi75]"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from sfumato.operators.base import FloatArray

__all__ = ["most_even"]


def most_even(
    shape: Sequence[int],
    given: Mapping[tuple[int, ...], FloatArray],
    start: FloatArray | None = None,
    *,
    tolerance: float = 1e-4,
    rounds: int = 100,
) -> FloatArray:
    """The table with these tables (axes ascending) of largest entropy, or of least divergence from `start`.

    Scales to them in turn until one round changes none by more than `tolerance` times the total, summed over
    cells, or `rounds` are done: tables that none has make it turn in a circle, near all of them.
    """
    whole = np.ones(tuple(shape)) if start is None else start.copy()
    total = float(next(iter(given.values())).sum()) if given else 0.0
    if total <= 0:
        return np.zeros(tuple(shape))
    for _ in range(rounds):
        away = 0.0
        for axes, table in given.items():
            rest = tuple(i for i in range(len(shape)) if i not in axes)
            found = whole.sum(axis=rest, keepdims=True)
            wanted = table.reshape(found.shape)
            away = max(away, float(np.abs(found - wanted).sum()))
            whole *= np.divide(wanted, found, out=np.zeros_like(found), where=found > 0)
        if away <= tolerance * total:
            break
    return whole
