"""Attributes as if independent: the one-way shares that fit attributes and pairs together, and whether pairs deny it.

Where attributes are independent every pair tells of them too: its component is u_i u_j', u the shares less their mean.
Given all u_j, what is left of the fit in u_i is the squared distance from one point, so the nearest shares are exact.
"""

from __future__ import annotations

import numpy as np

from sfumato.estimate.mixtures.stacked import Components, Noisy
from sfumato.estimate.simplex import onto_simplex
from sfumato.operators.base import FloatArray

__all__ = ["disbelief", "fit_product"]

_SWEEPS, _SETTLED = 50, 1e-6  # over the attributes; of the sum of shares, below what anyone reads of noisy counts


def fit_product(noisy: Noisy, target: Components) -> FloatArray:
    """(M,) shares of every attribute whose products are near `target`, in the norm of the noise.

    Attribute by attribute the nearest, given those of the others, until nothing moves: a stationary point, which is the
    maximum of the likelihood where noise is small. Starts from the attributes' own shares.
    """
    stack, first = noisy.stack, noisy.stack.starts[:-1]
    u = stack.simplex(target.ones) - stack.even
    squares = np.add.reduceat(u * u, first)
    for _ in range(_SWEEPS):
        moved = 0.0
        for i, own in enumerate(noisy.one.tolist()):
            at, weights = stack.slice(i), noisy.pair[i]
            precision = own + float(weights @ squares)
            if precision <= 0:
                continue
            point = own * target.ones[at] + target.pairs[at] @ (weights[stack.owner] * u)
            new = onto_simplex(point / precision + stack.even[at], 1.0) - stack.even[at]
            moved += float(np.abs(new - u[at]).sum())
            u[at], squares[i] = new, float(new @ new)
        if moved <= _SETTLED:
            break
    return u + stack.even


def disbelief(noisy: Noisy) -> float:
    """How probable what pairs say beyond independent attributes would be, at most, if there were nothing: in [0, 1].

    The smaller of two tests, doubled: all pairs together, and the clearest alone times their number. Noise of what is
    fitted makes it larger, not smaller, so independence is denied no more often than that.
    """
    stack = noisy.stack
    u = fit_product(noisy, noisy.values) - stack.even
    rest = noisy.values.pairs - np.outer(u, u)
    squares, freedom = list[float](), list[float]()
    for a, b in stack.places:
        if noisy.pair[a, b] > 0:
            found = rest[stack.slice(a), stack.slice(b)]
            squares.append(float(noisy.pair[a, b] * np.vdot(found, found)))
            freedom.append(float((stack.sizes[a] - 1) * (stack.sizes[b] - 1)))
    if not squares:
        return 1.0
    from scipy.special import chdtrc  # noqa: PLC0415  (slow to import)

    together = float(chdtrc(sum(freedom), sum(squares)))
    alone = float(chdtrc(np.array(freedom), np.array(squares)).min()) * len(squares)
    return min(2 * together, 2 * alone, 1.0)
