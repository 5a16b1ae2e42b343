"""A proved bound for tables at the levels of a tree, on any unbiased linear mechanism with Gaussian noise. [ENU20]

For weights q over the cells that add up to 1, the root of the sum of weighted variances is at least the nuclear norm of
W diag(sqrt q), with W the weighted queries. With equal q over the cells of one finest group it is
sum_S sqrt(p_S) tr sqrt(M_S), M_S = sum_l c_l sqrt(Q) H_lᵀ H_l sqrt(Q) over the groups of the deepest level of S, where
H_l adds up the groups of level l. sqrt x is bounded from below by sum_j w_j x / (x + t_j²), the trapezoidal rule of
(2/pi) int x / (x + t²) dt less what it can be off by, and tr M (M + t²)^-1 = sum_l c_l tr Cov_l of least squares with
precisions c_l, and t² / Q more at the deepest level: two passes over the tree.
"""

from __future__ import annotations

import math

import numpy as np

from sfumato.designs.spine.allocation import Allocation
from sfumato.designs.spine.asked import Asked, Sets
from sfumato.designs.spine.passes import Passes, slopes
from sfumato.designs.spine.tree import Tree
from sfumato.operators.base import FloatArray

__all__ = ["bound"]

_STEP = 0.5  # of log t: the rule is off by less than 4 exp(-pi² / step) = 1.1e-8
_OFF = 4 * math.exp(-(math.pi**2) / _STEP) * 1.01  # further terms are smaller by as much again
_TAIL = 17.0  # of log t beyond the roots of the eigenvalues: exp(-17) = 4e-8 is cut off there
_DIGITS, _ROUNDING = 12, 1e-11  # of an effect relative to the largest, and what that and doubles can be off by
_TOGETHER = 2**21  # numbers of one array of a pass: 16 MB
_ROUNDS = 3  # of weights: each is multiplied by what it was worth; the largest bound counts


def bound(asked: Asked, tree: Tree, found: Allocation) -> float:
    """On the root of the sum of weighted variances at unit price, one record more or less; `tree` may be a merged one.

    The weights start as the allocation's own: what each group's column is worth to the error.
    """
    effects = {s: c for s, c in asked.residuals().items() if s in found.precisions}
    weights = _worth(asked, tree, found, effects)
    best = 0.0
    for _ in range(_ROUNDS):
        weights = weights / float(weights @ tree.counts[-1])
        total, after = 0.0, np.zeros(len(weights))
        known: dict[bytes, tuple[float, FloatArray]] = {}
        for s, effect in effects.items():
            # sets asked alike differ by a factor
            top = float(effect.max())
            key = np.round(effect / top, _DIGITS).tobytes()
            if key not in known:
                known[key] = _root_trace(tree, np.frombuffer(key), weights)
            norm, each = known[key]
            share = math.sqrt(asked.price(s) * top)
            total += share * norm
            after += share * each
        best = max(best, total * (1 - _ROUNDING))
        weights = after
    return best


def _worth(asked: Asked, tree: Tree, found: Allocation, effects: dict[Sets, FloatArray]) -> FloatArray:
    """(finest groups,) by how much a unit of precision at one of its cells would lower the error."""
    out = np.zeros(len(tree.counts[-1]))
    known: dict[bytes, FloatArray] = {}
    for s, effect in effects.items():
        depth = int(np.flatnonzero(effect).max())
        cut = tree.cut(depth)
        top, unit = float(effect.max()), float(found.precisions[s].max())
        key = np.round(np.concatenate([effect / top, found.precisions[s] / unit]), 9).tobytes()
        if key not in known:
            passes = Passes.of(cut, [np.array([[a]]) for a in found.precisions[s][: depth + 1] / unit])
            sides = [np.array([[c]]) * n[:, None] for c, n in zip(effect / top, cut.counts, strict=False)]
            slope = slopes(passes, sides)[depth][:, 0] / cut.counts[depth]
            # of a group, in equal parts to all that is finer
            known[key] = _down(tree, depth, slope / _finer(tree, depth))
        out += known[key] * (top / unit**2 * asked.cells(s))
    return out


def _down(tree: Tree, depth: int, values: FloatArray) -> FloatArray:
    for level in range(depth, tree.depth):
        values = values[tree.parents[level]]
    return values


def _up(tree: Tree, depth: int, values: FloatArray) -> FloatArray:
    """(groups of a level,) sums over all finest groups in each."""
    for level in range(tree.depth, depth, -1):
        values = tree.sums(level, tree.kids[level - 1] * values)
    return values


def _finer(tree: Tree, depth: int) -> FloatArray:
    return _up(tree, depth, np.ones(len(tree.counts[-1])))


def _root_trace(tree: Tree, effect: FloatArray, weights: FloatArray) -> tuple[float, FloatArray]:
    """tr sqrt(M), or a hair less, and (finest groups,) what each is worth in it: its share of the diagonal."""
    depth = int(np.flatnonzero(effect).max())
    cut, inside = tree.cut(depth), _up(tree, depth, weights)
    levels = [_up(tree, level, weights) for level in range(depth + 1)]
    high = 0.5 * math.log(sum(c * float(q.max()) for c, q in zip(effect, levels, strict=False)))
    low = 0.5 * math.log(effect[depth] * float(inside.min()))
    nodes = np.arange(low - _TAIL, high + _TAIL + _STEP, _STEP)
    total, diagonal = 0.0, np.zeros(len(inside))
    step = max(1, _TOGETHER // len(inside))
    for start in range(0, len(nodes), step):
        t = np.exp(nodes[start : start + step])
        share = 2 * _STEP / math.pi * t / (1 + _OFF)
        rows = [np.full((1, len(t)), c) for c in effect[:depth]]
        passes = Passes.of(cut, [*rows, effect[depth] + t**2 / inside[:, None]])
        for c, v, n in zip(effect, passes.variances, cut.counts, strict=False):
            total += c * float((n @ v) @ share)
        diagonal += np.maximum(1.0 - t**2 * passes.variances[depth] / inside[:, None], 0.0) @ share
    # a group's diagonal belongs to all finer ones by their weights
    return total, _down(tree, depth, diagonal / inside) * weights
