"""One ordered attribute beyond dense optimisation: square-root Toeplitz strategies. [FHU23]"""

from __future__ import annotations

import math

import numpy as np

from sfumato.designs.design import Design, Problem
from sfumato.designs.ordered.hierarchical import is_ordered
from sfumato.designs.ordered.roots import FINE_ROOT, Roots, rooted
from sfumato.designs.ordered.series import prefix_bound, range_bound, window_bound
from sfumato.designs.product import Product
from sfumato.designs.ranges import contiguous
from sfumato.operators import AllRange, Identity, LinearOperator, Padded, Prefix, Toeplitz, Total, Window
from sfumato.privacy.unit import Neighbours

__all__ = ["applies", "designs"]


def applies(problem: Problem, limit: int) -> bool:
    """Whether all that is asked are ranges of one attribute of more than `limit` cells, under Gaussian noise.

    Where windows alone are asked half as many are enough: their dense optimum takes minutes, and gains little.
    """
    asked = {a for i in problem.workload.items for a in i.attributes}
    if problem.noise == "laplace" or len(asked) != 1:
        return False
    name = tuple(asked)
    blocks = [q.block for q in problem.workload.blocks]
    if not all(b.groups == (name,) and contiguous(b.factors[0]) is not None for b in blocks):
        return False
    if all(isinstance(f, Window) for f in _factors(problem)):
        limit //= 2
    return any(is_ordered(b.factors[0]) for b in blocks) and problem.sizes[name[0]] > limit


def designs(problem: Problem, *, normalised: bool = True) -> list[Design]:
    """The root of the prefix sums, and those of the narrowest and the widest windows that are asked.

    Columns have one length; errors are exact, and within a few percent of the lower bound in most cases.
    Without `normalised` it is the root of the prefix sums as it is, whose first column is the longest.
    """
    widths = sorted({f.width for f in _factors(problem) if isinstance(f, Window)})
    asked = dict.fromkeys([None, *widths[:1], *widths[-1:]] if normalised else [None])
    bound = _bound(problem)
    return [_design(problem, width, bound, normalised=normalised) for width in asked]


def _factors(problem: Problem) -> list[LinearOperator]:
    """What each block asks of the attribute, without the cells that no query counts."""
    asked = (q.block.factors[0] for q in problem.workload.blocks)
    return [f.operator if isinstance(f, Padded) else f for f in asked]


def _design(problem: Problem, width: int | None, bound: float | None, *, normalised: bool) -> Design:
    (name,) = problem.workload.blocks[0].attributes
    n = problem.sizes[name]
    coefficients, weights = rooted(n, width)
    weights = weights if normalised else np.ones(n)
    of = "the prefix sums" if width is None else f"windows of {width:,} cells"
    kind = ", all columns of one length" if normalised else ""

    def build(s: float) -> Product:
        multiples = np.maximum(np.floor(s * weights), 1).astype(np.int64)
        factor = Roots(Toeplitz(coefficients, multiples))
        title = f"the square root of {of} over {name}{kind}"
        return Product(((name,),), ((n,),), (factor,), 1, problem.unit.total_is_public, title=title)

    return Design("factorization", build, FINE_ROOT, bound)


def _bound(problem: Problem) -> float | None:
    """The bound by weights on cells; errors of several blocks add up, and so do the squares of their bounds."""
    if problem.unit.neighbours is not Neighbours.ADD_REMOVE:
        return None
    asked = zip(problem.workload.blocks, _factors(problem), strict=True)
    squared = sum(problem.objective_weight(q) * _block_bound(f) ** 2 for q, f in asked)
    if problem.largest:
        # the largest weighted variance is at least their mean over all queries
        squared /= len(problem.workload)
    return math.sqrt(squared) or None


def _block_bound(operator: LinearOperator) -> float:
    match operator:
        case Prefix(n=n):
            return prefix_bound(n)
        case AllRange(n=n):
            return range_bound(n)
        case Window(n=n, width=width):
            return window_bound(n, width)
        case Identity(n=n):
            return math.sqrt(n)
        case _:
            return 1.0 if isinstance(operator, Total) else 0.0
