"""One ordered attribute beyond dense optimisation: the square-root Toeplitz strategy. [FHU23]"""

from __future__ import annotations

import math

import numpy as np

from sfumato.mechanisms.tree import is_ordered
from sfumato.operators import AllRange, LinearOperator, Padded, Prefix
from sfumato.operators.toeplitz import Toeplitz
from sfumato.plans import Design, Problem
from sfumato.privacy.unit import Neighbours
from sfumato.strategies.ordered.ranges import contiguous
from sfumato.strategies.ordered.roots import FINE_ROOT, Roots, rooted
from sfumato.strategies.ordered.series import prefix_bound, range_bound
from sfumato.strategies.product import Product

__all__ = ["applies", "designs"]


def applies(problem: Problem, limit: int) -> bool:
    """Whether all that is asked are ranges of one attribute of more than `limit` cells, under Gaussian noise."""
    asked = {a for i in problem.workload.items for a in i.attributes}
    if problem.noise == "laplace" or len(asked) != 1:
        return False
    name = tuple(asked)
    blocks = [q.block for q in problem.workload.blocks]
    return (
        all(b.groups == (name,) and contiguous(b.factors[0]) is not None for b in blocks)
        and any(is_ordered(b.factors[0]) for b in blocks)
        and problem.sizes[name[0]] > limit
    )


def designs(problem: Problem) -> list[Design]:
    """One design: columns of one length, the errors exact, within a few percent of the lower bound."""
    (name,) = problem.workload.blocks[0].attributes
    n = problem.sizes[name]
    coefficients, weights = rooted(n)

    def build(s: float) -> Product:
        multiples = np.maximum(np.floor(s * weights), 1).astype(np.int64)
        factor = Roots(Toeplitz(coefficients, multiples))
        title = f"the square root of the prefix sums over {name}, all columns of one length"
        return Product(((name,),), ((n,),), (factor,), 1, problem.unit.total_is_public, title=title)

    return [Design("factorization", build, FINE_ROOT, _bound(problem))]


def _bound(problem: Problem) -> float | None:
    """The singular values' bound; errors of several blocks add up, and so do the squares of their bounds."""
    if problem.unit.neighbours is not Neighbours.ADD_REMOVE:
        return None
    squared = sum(problem.objective_weight(q) * _block_bound(q.block.factors[0]) ** 2 for q in problem.workload.blocks)
    if problem.objective == "max":
        # the largest weighted variance is at least their mean over all queries
        squared /= len(problem.workload)
    return math.sqrt(squared) or None


def _block_bound(operator: LinearOperator) -> float:
    inner = operator.operator if isinstance(operator, Padded) else operator
    if isinstance(inner, Prefix):
        return prefix_bound(inner.n)
    return range_bound(inner.n) if isinstance(inner, AllRange) else 0.0
