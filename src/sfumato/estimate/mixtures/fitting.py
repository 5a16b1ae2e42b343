"""A mixture of products fitted to noisy pairs by gradient, kept from the noise by early stopping and a penalty.

q = sum_k w_k prod_i P_ki. Minimises half the squared distance in the noise's norm plus
lambda sum_k w_k sum_i KL(P_ki || p_i), p the one-way shares: what records would say for the product. Adam [KB15].
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.estimate.mixtures.stacked import Components, Noisy, Stack
from sfumato.ground.codec import storable
from sfumato.operators.base import FloatArray

__all__ = ["Mixture", "Objective", "fit_mixture"]

_Some = NDArray[np.floating]
# Adam, its rate falling to 0 in the second half; the held-out half picks the step on the way, so any descent will do.
# Curvatures change on the way: squares remembered over a hundred steps leave up to three times the distance where noise
# is small
_STEPS, _RATE, _MEAN, _SQUARE = 500, 0.1, 0.9, 0.9
# the held-out loss costs about a step; after twenty without gain the way goes on from the best, slower, three times
_EVERY, _PATIENCE, _SLOWER, _SLOWED = 10, 2, 3.0, 3
_START = 0.3  # of logits: components that start alike would stay alike; a factor of 1.35 forgets no share
# cells of all attributes, above which pairs of a mixture are not made at every step: with 914 in 50 attributes a step
# takes a tenth less, with 1,889 in 100 a third; with 50 in 5 it would take twice as long
_MANY = 512
_LEAST = 1e-6  # a share whose logarithm is taken: below one record of a million


@storable
@dataclass(frozen=True, slots=True, eq=False)
class Mixture:
    """weights: (K,) summing to 1; shares: (K, M), of every attribute summing to 1."""

    weights: FloatArray
    shares: FloatArray


class Objective:
    """The function minimised, and its gradient."""

    def __init__(self, noisy: Noisy, target: Components, base: FloatArray, penalty: float, kind: type = np.float32):
        self.noisy, self.stack, self.target, self.penalty = noisy, noisy.stack, target, penalty
        self.one, self.pair = noisy.weights.ones.astype(kind), noisy.weights.pairs.astype(kind)
        self.ones, self.held = target.ones.astype(kind), (noisy.weights.pairs * target.pairs).astype(kind)
        self.base = np.log(np.maximum(base, _LEAST)).astype(kind)
        self.even = self.stack.even.astype(kind)
        self.blocks = _Blocks(self.stack, noisy.pair.astype(kind)) if self.stack.count > _MANY else None

    def mixture(self, logits: _Some, weights: _Some) -> tuple[_Some, _Some]:
        """(K,) weights and (K, M) shares of the logits."""
        first, owner = self.stack.starts[:-1], self.stack.owner
        shares = np.exp(logits - np.maximum.reduceat(logits, first, axis=1)[:, owner])
        shares /= np.add.reduceat(shares, first, axis=1)[:, owner]
        w = np.exp(weights - weights.max())
        return w / w.sum(), shares

    def components(self, logits: _Some, weights: _Some) -> Components:
        """Of the mixture's tables."""
        w, shares = self.mixture(logits, weights)
        centred = shares - self.even
        weighted = w[:, None] * centred
        pairs = np.multiply(centred.T @ weighted, self.stack.apart, dtype=np.float64)
        return Components(weighted.sum(axis=0).astype(np.float64), pairs)

    def value(self, logits: _Some, weights: _Some) -> float:
        """What is minimised."""
        away = self.components(logits, weights).plus(self.target, -1.0)
        w, shares = self.mixture(logits, weights)
        return self.noisy.inner(away, away) / 2 + self.penalty * float(w @ (shares * self._says(shares)).sum(axis=1))

    def __call__(self, logits: _Some, weights: _Some) -> tuple[_Some, _Some]:
        """The gradient, of the logits and of the weights' logits."""
        w, shares = self.mixture(logits, weights)
        centred, says = shares - self.even, self._says(shares)
        away = self.one * (w @ centred - self.ones)
        pulled = self._pulled(centred, w)
        cost = np.einsum("km,km->k", shares, says)
        by_weight = np.einsum("km,km->k", pulled, centred) / 2 + centred @ away + self.penalty * cost
        pulled += away + self.penalty * (says + 1)
        pulled *= w[:, None] * shares
        first, owner = self.stack.starts[:-1], self.stack.owner
        pulled -= shares * np.add.reduceat(pulled, first, axis=1)[:, owner]
        return pulled, w * (by_weight - w @ by_weight)

    def _says(self, shares: _Some) -> _Some:
        return np.log(np.maximum(shares, 1e-12)) - self.base

    def _pulled(self, centred: _Some, w: _Some) -> _Some:
        """(K, M) the shares times what the mixture's pairs are away from the target, weighed by their precision."""
        if self.blocks is not None:
            return self.blocks.times(centred, w) - centred @ self.held
        # within an attribute the precision is zero
        away = centred.T @ (w[:, None] * centred)
        away *= self.pair
        away -= self.held
        return centred @ away


class _Blocks:
    """The shares times the weighed pairs of their mixture, without these pairs.

    Pair (a, b) of a mixture is C_a' diag(w) C_b, C the shares less their mean, and its precision W_ab is one number. So
    what comes out for attribute a is (sum_b W_ab C_b C_b') diag(w) C_a: one K x K matrix for each attribute in place of
    the M x M cells of all pairs.
    """

    def __init__(self, stack: Stack, between: _Some) -> None:
        size = int(stack.sizes.max())
        # the cells of every attribute side by side, with zeros up to the largest: one product for all attributes
        self.at = np.minimum(stack.starts[:-1, None] + np.arange(size), stack.count - 1)
        self.inside = (np.arange(size) < stack.sizes[:, None]).astype(between.dtype)
        self.back = stack.owner * size + np.arange(stack.count) - stack.starts[stack.owner]
        self.between = between

    def times(self, centred: _Some, w: _Some) -> _Some:
        """(K, M)"""
        blocks = centred[:, self.at].transpose(1, 0, 2) * self.inside[:, None, :]
        grams = blocks @ blocks.transpose(0, 2, 1)
        d, k = grams.shape[:2]
        around = (self.between @ grams.reshape(d, k * k)).reshape(d, k, k)
        found = around @ (blocks * w[:, None])
        return np.ascontiguousarray(found.transpose(1, 0, 2).reshape(k, -1)[:, self.back])


def fit_mixture(
    noisy: Noisy,
    target: Components,
    base: FloatArray,
    penalty: float,
    products: int,
    seed: int,
    loss: Callable[[Components], float],
) -> tuple[float, Components, Mixture, bool]:
    """(least loss, the components there, the mixture there, whether noise held it back), over the way to the minimum.

    target: what is fitted, in the norm of `noisy`; base: (M,) one-way shares; loss: of the held-out half, asked every
    ten steps. Where two in a row are no better the way goes back to the best and on by shorter steps, until that has
    been done three times. The seed makes the public randomness of the start.
    """
    goal = Objective(noisy, target, base, penalty)
    random = np.random.default_rng(seed)
    x = (goal.base + _START * random.standard_normal((products, len(base)))).astype(np.float32)
    at: list[_Some] = [x, np.zeros(products, dtype=np.float32)]
    mean, square = [np.zeros_like(a) for a in at], [np.zeros_like(a) for a in at]
    best: tuple[float, Components, list[_Some]] | None = None
    worse, slowed, taken = 0, 0, 0
    for step in range(_STEPS + 1):
        if step % _EVERY == 0:
            found = goal.components(at[0], at[1])
            value = loss(found)
            worse = 0 if best is None or value < best[0] else worse + 1
            if best is None or worse == 0:
                best = value, found, [a.copy() for a in at]
            elif worse == _PATIENCE:
                if slowed == _SLOWED:
                    break
                at, worse, slowed = [a.copy() for a in best[2]], 0, slowed + 1
                continue
        slopes = goal(at[0], at[1])
        taken += 1
        rate = _RATE / _SLOWER**slowed * min(1.0, 2 - 2 * step / _STEPS)
        rate *= math.sqrt(1 - _SQUARE**taken) / (1 - _MEAN**taken)
        for a, m, s, slope in zip(at, mean, square, slopes, strict=True):
            m += (1 - _MEAN) * (slope - m)
            s += (1 - _SQUARE) * (slope * slope - s)
            a -= rate * m / (np.sqrt(s) + 1e-8)
    assert best is not None
    w, shares = goal.mixture(*best[2])
    return best[0], best[1], Mixture(w.astype(np.float64), shares.astype(np.float64)), slowed > 0 or worse > 0
