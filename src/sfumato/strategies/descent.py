"""One product strategy for a union of products, attribute by attribute the optimum of what the others leave. [MMHM18]

For X = ⊗ X_i the sum of the weighted variances is sum_p w_p prod_i tr(G_pi X_i^-1), and the largest column of the
product is the product of the largest columns: with all others held, attribute i is a dense factorization problem of its
own, whose Gram is a weighted sum of the G_pi. Every step solves one exactly, so the error only falls.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from sfumato.operators import LinearOperator, Total
from sfumato.operators.base import FloatArray, single_thread
from sfumato.privacy.unit import Neighbours
from sfumato.strategies.dense_optimal import optimize_dense
from sfumato.strategies.design import Design, Problem
from sfumato.strategies.factors import quantise
from sfumato.strategies.product import Product

MAX_SIZE = 512  # cells of one attribute
MAX_CELLS = 4_000_000  # 32 MB a vector over all cells
_MAX_TERMS = 64  # each product costs a dense contraction in every round
_BITS = 26  # of all attributes together
_LEAST_BITS = 11  # of one attribute: rounding to a two-thousandth
_ROUNDS = 10  # of all attributes by turns; it ends before, where a round gains less than the tolerance
_TOLERANCE = 1e-5  # relative, of the error: far below what a plan shows


def design_by_descent(problem: Problem) -> Design | None:
    """The product strategy, without a bound; None where it does not apply or some query would not be answered.

    It does for the mean squared error under add-remove and Gaussian noise, over two or three attributes.
    """
    if problem.unit.neighbours is not Neighbours.ADD_REMOVE or problem.noise == "laplace" or problem.largest:
        return None
    blocks = problem.workload.blocks
    given = [q.block.by_attribute() for q in blocks]
    products = [g for g in given if g is not None]
    names = problem.workload.domain.ordered({a for g in products for a in g})
    sizes = {a: problem.sizes[a] for a in names}
    fits = 2 <= len(names) <= 3 and 2 <= len(blocks) <= _MAX_TERMS and math.prod(sizes.values()) <= MAX_CELLS
    if not fits or len(products) < len(blocks) or max(sizes.values()) > MAX_SIZE:
        return None
    strategies = _descend_by_attribute(
        [_attribute_grams(g, sizes) for g in products], np.array([problem.objective_weight(q) for q in blocks])
    )
    if strategies is None:
        return None
    bits = max(_LEAST_BITS, _BITS // len(names))
    rest = [quantise(a, None, 2.0**bits) for a in strategies[1:]]
    groups, shape = tuple((a,) for a in names), tuple((sizes[a],) for a in names)

    def build(s: float) -> Product:
        first = quantise(strategies[0], None, s / 2.0 ** (bits * len(rest)))
        title = f"one product of strategies over {', '.join(names)}"
        return Product(groups, shape, (first, *rest), title=title)

    return Design("factorization", build, 2.0 ** (bits * len(names)))


def _attribute_grams(factors: Mapping[str, LinearOperator], sizes: Mapping[str, int]) -> list[FloatArray]:
    return [np.asarray((factors.get(a) or Total(n)).gram().dense(), dtype=np.float64) for a, n in sizes.items()]


def _descend_by_attribute(grams: list[list[FloatArray]], weights: FloatArray) -> list[FloatArray] | None:
    """Strategies A_i, (n_i, n_i), of unit columns; None where some attribute is not determined in full."""
    axes = range(len(grams[0]))
    inverses: list[FloatArray] = [np.eye(len(g)) for g in grams[0]]
    strategies = list(inverses)
    # traces[p, i] = tr(G_pi X_i^-1)
    traces = np.array([[float(np.trace(g)) for g in own] for own in grams])
    before = math.inf
    for _ in range(_ROUNDS):
        for i in axes:
            shares = weights * np.delete(traces, i, axis=1).prod(axis=1)
            gram = sum(s * own[i] for s, own in zip(shares, grams, strict=True))
            found = optimize_dense(gram / shares.sum(), tolerance=_TOLERANCE)
            if len(found.strategy) < len(inverses[i]):
                return None
            strategies[i] = found.strategy
            with single_thread():
                inverses[i] = np.asarray(np.linalg.inv(found.strategy.T @ found.strategy), dtype=np.float64)
            traces[:, i] = [float((own[i] * inverses[i]).sum()) for own in grams]
        now = float(weights @ traces.prod(axis=1))
        if now > before * (1 - _TOLERANCE):
            break
        before = now
    return strategies
