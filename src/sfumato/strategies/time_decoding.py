"""From noisy filtered values back to tables: the filter run backwards, on what is public."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sfumato.operators.base import FloatArray, Numbers
from sfumato.privacy.stream_price import StreamTerms, WindowFilter, family_multiples

__all__ = ["Decoder"]


class Decoder:
    """Unbiased estimates of every period's measurements, in the order of the periods.

    Float64: for counts up to 10^8 the sum of 2^16 periods is off by less than 1e-4 records, with what the floors leave.
    """

    __slots__ = ("_period", "_scales", "_states", "_terms")

    def __init__(self, terms: StreamTerms) -> None:
        self._terms, self._period = terms, 0
        kept = terms.filter.kept[1]
        self._states = [np.zeros((kept, f.rows)) for f in terms.families]
        self._scales = [np.repeat(family_multiples(f).astype(np.float64), f.rows_each) for f in terms.families]

    def step(self, values: Sequence[Numbers]) -> list[FloatArray]:
        """Per family what its blocks make of the tables of the next period, multiples included, with noise: (rows,)."""
        terms, out, used = self._terms, list[FloatArray](), self._terms.filter
        for family, state, multiples, y in zip(terms.families, self._states, self._scales, values, strict=True):
            whole = family_multiples(family).tolist()
            given = used.coefficients(self._period, whole, terms.grain).astype(np.float64)
            first, carried = (
                np.repeat(given[:1], family.rows_each, axis=1)[0],
                np.repeat(given[1:], family.rows_each, axis=1),
            )
            if isinstance(used, WindowFilter):
                x = _decode_windowed(y, first, carried, state)
            else:
                x = _decode_decaying(
                    y * (2.0**used.shift / used.row(self._period)), first, carried, state, used.decay_rates
                )
            out.append(x * multiples)
        self._period += 1
        return out


def _decode_decaying(
    y: FloatArray, direct: FloatArray, carried: FloatArray, state: FloatArray, rates: FloatArray
) -> FloatArray:
    """x of one period; the state is that of the filter."""
    x = np.asarray((y - state.sum(axis=0)) / direct)
    state *= rates[:, None]
    state += carried * x
    return x


def _decode_windowed(y: Numbers, direct: FloatArray, carried: FloatArray, state: FloatArray) -> FloatArray:
    """x of one period; the state are those of the periods before, the last first."""
    x = np.asarray((y - (carried * state).sum(axis=0)) / direct)
    state[1:] = state[:-1].copy()
    state[:1] = x
    return x
