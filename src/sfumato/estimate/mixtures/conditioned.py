"""What was measured, given that impossible cells hold nobody: the nearest in the norm of its noise with zeros there.

A projection onto what has these zeros, linear and the same for the measurement and for noise of its law, so halves that
were independent stay so, and every cell errs less or as much. With A the impossible cells of measured tables as
functions of the components and P their precision: y - P^-1 A' (A P^-1 A')^+ A y.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sfumato.estimate.mixtures.stacked import Components, Noisy, Stack
from sfumato.estimate.zeros import Zeros
from sfumato.operators.base import FloatArray
from sfumato.operators.blas import single_thread

__all__ = ["Emptying", "conditioned"]

_MOST = 2_000  # cells whose covariance is held and inverted, four seconds; beyond, tables have zeros when they agree
_PSEUDO = 1e-10  # of the largest eigenvalue: cells of several tables say the same twice, which leaves rounding


class Emptying:
    """Takes components to the nearest with zeros. first, second: (z,) stacked cells of each impossible pair."""

    def __init__(self, noisy: Noisy, first: NDArray[np.intp], second: NDArray[np.intp]) -> None:
        self.stack, self.first, self.second = noisy.stack, first, second
        one, pair = (np.divide(1.0, w, out=np.zeros_like(w), where=w > 0) for w in (noisy.one, noisy.pair))
        self.one, self.pair = self.stack.spread(one), self.stack.spread(pair)
        with single_thread():
            values, vectors = np.linalg.eigh(self._covariance())
        kept = values > _PSEUDO * float(values[-1])
        self.root = vectors[:, kept] / np.sqrt(values[kept])

    def _covariance(self) -> FloatArray:
        """(z, z) of the impossible cells, of the noise."""
        a, b, stack = self.first, self.second, self.stack
        row, column = stack.owner[a], stack.owner[b]
        same = (row[:, None] == row) & (column[:, None] == column)
        along = (a[:, None] == a) - stack.even[a][:, None]
        across = (b[:, None] == b) - stack.even[b][:, None]
        load, each = np.zeros((len(a), stack.count)), np.arange(len(a))
        load[each, a] = stack.even[b]
        load[each, b] = stack.even[a]
        load = stack.centred(load)
        return np.where(same, along * across * self.pair[a, b][:, None], 0.0) + (load * self.one) @ load.T

    def __call__(self, found: Components, even: float = 1.0) -> Components:
        """The nearest; even: how much of the even table is in the tables, 1 in all shares and 0 in noise."""
        stack, e = self.stack, self.stack.even
        said = stack.tables(found)[self.first, self.second] + (even - 1.0) * e[self.first] * e[self.second]
        pull = np.zeros((stack.count, stack.count))
        pull[self.first, self.second] = pull[self.second, self.first] = self.root @ (self.root.T @ said)
        ones = found.ones - self.one * stack.centred(pull @ e)
        return Components(ones, found.pairs - self.pair * stack.centred_pairs(pull))


def conditioned(noisy: Noisy, zeros: Zeros | None) -> Noisy:
    """The same with zeros that are known; unchanged where none are, or too many to condition on."""
    if zeros is None:
        return noisy
    dead = _impossible(noisy.stack, zeros)
    first, second = np.nonzero(np.triu(dead & (noisy.stack.spread(noisy.pair) > 0)))
    if not 0 < len(first) <= _MOST:
        return replace(noisy, dead=dead)
    emptying = Emptying(noisy, first, second)
    return replace(noisy, values=emptying(noisy.values), dead=dead, emptying=emptying)


def _impossible(stack: Stack, zeros: Zeros) -> NDArray[np.bool_]:
    """(M, M) which cells of the pairs of different attributes no record can be in."""
    dead = np.zeros((stack.count, stack.count), dtype=bool)
    for a, b in stack.places:
        mask = zeros.possible((a, b))
        if mask is not None:
            dead[stack.slice(a), stack.slice(b)], dead[stack.slice(b), stack.slice(a)] = ~mask, ~mask.T
    return dead
