"""From noisy filtered values back to tables: the filter run backwards, on what is public."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sfumato.operators.base import FloatArray, Numbers
from sfumato.privacy.continual import StreamTerms, multiples_of

__all__ = ["Decoder"]


class Decoder:
    """Unbiased estimates of every period's measurements, in the order of the periods.

    Float64: for counts up to 10^8 the sum of 2^16 periods is off by less than 1e-4 records, with what the floors leave.
    """

    __slots__ = ("_period", "_scales", "_states", "_terms")

    def __init__(self, terms: StreamTerms) -> None:
        self._terms, self._period = terms, 0
        self._states = [np.zeros((len(terms.filter.decays), f.rows)) for f in terms.families]
        self._scales = [np.repeat(multiples_of(f).astype(np.float64), f.rows_each) for f in terms.families]

    def step(self, values: Sequence[Numbers]) -> list[FloatArray]:
        """Per family what its blocks make of the tables of the next period, multiples included, with noise: (rows,)."""
        terms, out = self._terms, list[FloatArray]()
        used, rates = terms.filter, terms.filter.decay_rates[:, None]
        scale = 2.0**used.shift / used.row(self._period)
        for family, state, multiples, y in zip(terms.families, self._states, self._scales, values, strict=True):
            whole = multiples_of(family).tolist()
            direct, *carried = np.repeat(
                used.coefficients(self._period, whole, terms.grain).astype(np.float64), family.rows_each, axis=1
            )
            x = (y * scale - state.sum(axis=0)) / direct
            state *= rates
            state += np.array(carried) * x
            out.append(x * multiples)
        self._period += 1
        return out
