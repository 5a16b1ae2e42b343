"""What brute force says of covariances: R_1 R_2ᵀ of reconstructions found by feeding unit vectors."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from sfumato.operators import Block
from sfumato.operators.base import FloatArray
from sfumato.strategies.strategy import Strategy

__all__ = ["check_covariances", "reconstruction", "reconstructions"]


_UNIT = 2.0**40


def reconstruction(strategy: Strategy, block: Block) -> FloatArray:
    """R: the answers to a block as a linear map of what is measured, (rows, measured)."""
    return reconstructions(strategy, [block])[0]


def reconstructions(strategy: Strategy, blocks: Sequence[Block]) -> list[FloatArray]:
    """R of every block; each unit vector is estimated once for all of them."""
    sizes = [b.rows for b in strategy.blocks]

    def answers(values: FloatArray) -> list[FloatArray]:
        estimate = strategy.estimate(np.split(values, np.cumsum(sizes)[:-1]), 0)
        return [strategy.answer(estimate, block) for block in blocks]

    # what is known from elsewhere moves the answers, not their errors; large units drown its rounding
    known = answers(np.zeros(sum(sizes)))
    columns = [answers(unit) for unit in _UNIT * np.eye(sum(sizes))]
    return [np.stack([c[i] - k for c in columns], axis=1) / _UNIT for i, k in enumerate(known)]


def check_covariances(strategy: Strategy, blocks: Sequence[Block], found: Sequence[FloatArray]) -> None:
    """Every covariance within and between the blocks is that of their reconstructions, to 1e-9 of its deviations."""
    deviations = [np.sqrt((r**2).sum(axis=1)) for r in found]
    # what is known shows as rounding of the rest
    least = 1e-12 * max(float(strategy.max_abs) ** -1, *(float(d.max()) for d in deviations)) ** 2
    for (i, a), (j, b) in itertools.product(enumerate(blocks), repeat=2):
        brute = found[i] @ found[j].T
        size = np.multiply.outer(deviations[i], deviations[j])
        covariance = strategy.covariance(a, b)
        assert covariance.shape == brute.shape
        assert np.all(np.abs(covariance - brute) <= 1e-9 * size + least)
