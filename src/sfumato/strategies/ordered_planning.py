"""One ordered attribute beyond dense optimisation: buffered and square-root Toeplitz strategies. [DMPST24, FHU23]"""

from __future__ import annotations

import functools
import math

import numpy as np

from sfumato.operators import AllRange, Identity, LinearOperator, Padded, Prefix, Toeplitz, Total, Window
from sfumato.privacy.unit import Neighbours
from sfumato.strategies.buffered_toeplitz import FINE_COLUMN, Asked, UnscaledStrategy, best_buffered_strategy
from sfumato.strategies.design import Design, Problem
from sfumato.strategies.product import Product
from sfumato.strategies.ranges import as_contiguous_ranges
from sfumato.strategies.toeplitz import (
    FINE_ROOT,
    Roots,
    all_range_bound,
    prefix_bound,
    replaced_prefix_bound,
    square_root_strategy,
    window_bound,
)
from sfumato.strategies.trees import is_ordered

__all__ = ["asks_long_ranges", "design_toeplitz", "square_root"]


def asks_long_ranges(problem: Problem, limit: int) -> bool:
    """Whether all that is asked are ranges of one attribute of more than `limit` cells, under Gaussian noise.

    Where windows alone are asked half as many are enough: their dense optimum takes minutes, and gains little.
    """
    asked = {a for i in problem.workload.items for a in i.attributes}
    if problem.noise == "laplace" or len(asked) != 1:
        return False
    name = tuple(asked)
    blocks = [q.block for q in problem.workload.blocks]
    if not all(b.groups == (name,) and as_contiguous_ranges(b.factors[0]) is not None for b in blocks):
        return False
    if all(isinstance(f, Window) for f in _asked_factors(problem)):
        limit //= 2
    return any(is_ordered(b.factors[0]) for b in blocks) and problem.sizes[name[0]] > limit


def design_toeplitz(problem: Problem) -> list[Design]:
    """The buffered strategies of prefixes and of ranges that are asked, and square roots where others may err less.

    Where prefixes or all ranges of all cells alone are asked and records come or go, buffers err less at every size.
    """
    bound = _ordered_lower_bound(problem)
    asked = _buffer_targets(problem)
    found = [_design_buffered(problem, what, bound) for what in asked]
    kinds = {type(f) for f in _asked_factors(problem)}
    whole = all(f.shape[1] == problem.sizes[a] for f in _asked_factors(problem) for a in _asked_attribute(problem))
    alone = kinds in ({Prefix}, {AllRange}) and whole and (kinds == {Prefix} or not problem.largest)
    if alone and problem.unit.neighbours is Neighbours.ADD_REMOVE:
        return found
    widths = sorted({f.width for f in _asked_factors(problem) if isinstance(f, Window)})
    return found + [_design_square_root(problem, w, bound) for w in dict.fromkeys([None, *widths[:1], *widths[-1:]])]


def square_root(problem: Problem, *, normalised: bool) -> Design:
    """The root of the prefix sums; not `normalised` it is as it is, its first column the longest."""
    return _design_square_root(problem, None, _ordered_lower_bound(problem), normalised=normalised)


def _asked_attribute(problem: Problem) -> tuple[str, ...]:
    """The one attribute that is asked about."""
    return tuple({a for i in problem.workload.items for a in i.attributes})


def _buffer_targets(problem: Problem) -> list[Asked]:
    """What the buffers are to be found for."""
    factors = _asked_factors(problem)
    asked: list[Asked] = []
    if any(isinstance(f, Prefix) for f in factors):
        asked.append("largest" if problem.largest else "prefixes")
    if any(isinstance(f, AllRange) for f in factors):
        asked.append("ranges")
        if problem.largest:
            asked.append("largest")
    return list(dict.fromkeys(asked))


def _design_buffered(problem: Problem, asked: Asked, bound: float | None) -> Design:
    (name,) = _asked_attribute(problem)
    n = problem.sizes[name]
    what = {"prefixes": "prefixes", "ranges": "all ranges", "largest": "the worst prefix"}[asked]

    @functools.cache
    def found() -> UnscaledStrategy:
        return best_buffered_strategy(n, asked)

    def build(s: float) -> Product:
        title = f"a scaled buffered Toeplitz matrix over {name}, for {what}"
        return Product(((name,),), ((n,),), (found().at(s),), 1, problem.unit.total_is_public, title=title)

    return Design("factorization", build, FINE_COLUMN, bound)


def _asked_factors(problem: Problem) -> list[LinearOperator]:
    """What each block asks of the attribute, without the cells that no query counts."""
    asked = (q.block.factors[0] for q in problem.workload.blocks)
    return [f.operator if isinstance(f, Padded) else f for f in asked]


def _design_square_root(problem: Problem, width: int | None, bound: float | None, *, normalised: bool = True) -> Design:
    (name,) = _asked_attribute(problem)
    n = problem.sizes[name]
    coefficients, weights = square_root_strategy(n, width)
    weights = weights if normalised else np.ones(n)
    of = "the prefix sums" if width is None else f"windows of {width:,} cells"
    kind = ", all columns of one length" if normalised else ""

    def build(s: float) -> Product:
        multiples = np.maximum(np.floor(s * weights), 1).astype(np.int64)
        factor = Roots(Toeplitz(coefficients, multiples))
        title = f"the square root of {of} over {name}{kind}"
        return Product(((name,),), ((n,),), (factor,), 1, problem.unit.total_is_public, title=title)

    return Design("factorization", build, FINE_ROOT, bound)


def _ordered_lower_bound(problem: Problem) -> float | None:
    """The bound by weights on cells, or on pairs of them where a record is replaced: of prefixes alone.

    Errors of several blocks add up, and so do the squares of their bounds.
    """
    asked = list(zip(problem.workload.blocks, _asked_factors(problem), strict=True))
    if problem.unit.total_is_public and all(isinstance(f, Prefix) and f.n > 1 for _, f in asked):
        squared = sum(problem.objective_weight(q) * replaced_prefix_bound(f.shape[1]) ** 2 for q, f in asked)
    elif problem.unit.neighbours is not Neighbours.ADD_REMOVE:
        return None
    else:
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
            return all_range_bound(n)
        case Window(n=n, width=width):
            return window_bound(n, width)
        case Identity(n=n):
            return math.sqrt(n)
        case _:
            return 1.0 if isinstance(operator, Total) else 0.0
