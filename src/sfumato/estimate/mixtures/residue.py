"""What a fitted model leaves in the data, given back in the part that is not noise. [Rob56, Efr10]

Cells alike in what the model says of them, against their noise, form a bin. With r1 and r2 what the two independent
halves say beyond the model, sum r1 r2 has the mean of the squared bias of the model alone, and b = sum r1 r2 / sum r1^2
is the multiple of r1 that errs least. Over M members whose thinning adds up to nothing, with noise e of the measurement
and z of the thinning, sum r1 r2 of pure noise is M e^2 - sum z^2, of variance 2 (M^2 + M^2 / (M - 1)) sigma^4.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sfumato.operators.base import FloatArray

__all__ = ["CLEAR", "alike", "kept_shares"]

CLEAR = 3.0
"""Standard deviations of a bin's sum that noise alone passes once in some 700 bins."""
_LOWEST, _HIGHEST = -10, 12  # log2 of a cell over its noise: the ends take what is all noise, and what is hardly any


def alike(model: FloatArray, deviations: FloatArray) -> tuple[NDArray[np.intp], int]:
    """((c,) the bin of every cell, their number): by what the model says of it, over its noise, in powers of two."""
    with np.errstate(divide="ignore"):
        place = np.floor(np.log2(np.maximum(model / deviations, 0.0)))
    return (np.clip(place, _LOWEST, _HIGHEST) - _LOWEST).astype(np.intp), _HIGHEST - _LOWEST + 1


def kept_shares(
    model: FloatArray, deviations: FloatArray, first: list[FloatArray], second: list[FloatArray]
) -> FloatArray:
    """(c,) in [0, 1]: how much of each cell's rest in the first half to add.

    model: (c,) its cells; deviations: (c,) of the measurement's noise. first and second: what the halves of at least
    two members say beyond the model, (c,) each. 0 where noise alone could have given the numerator.
    """
    bins, size = alike(model, deviations)
    members = len(first)
    both = sum((np.bincount(bins, a * b, size) for a, b in zip(first, second, strict=True)), np.zeros(size))
    own = sum((np.bincount(bins, a * a, size) for a in first), np.zeros(size))
    noise = 2 * members**2 * (1 + 1 / (members - 1)) * np.bincount(bins, deviations**4, size)
    found = np.divide(both, own, out=np.zeros(size), where=own > 0)
    found[both <= CLEAR * np.sqrt(noise)] = 0.0
    return np.clip(found, 0.0, 1.0)[bins]
