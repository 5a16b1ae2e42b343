"""The factorization mechanism where one record is replaced by another: the certified optimum of one dense table.

The number of records is public there, so that only differences of columns are priced, and the answers are those of
least squares from what was measured and the known total: see `swap`.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from sfumato.designs.dense.dual import titled
from sfumato.designs.dense.largest_swap import swap_largest
from sfumato.designs.dense.rows import Queries
from sfumato.designs.dense.swap import SwapOptimum, swap_levels, swap_near, swap_optimum
from sfumato.designs.design import Design, Problem
from sfumato.designs.factors import coefficients, quantise, row_basis
from sfumato.designs.ordered.hierarchical import is_ordered
from sfumato.designs.product import Product
from sfumato.domain import Domain
from sfumato.ground.progress import Progress
from sfumato.operators import Identity, LinearOperator, Stack, Total
from sfumato.operators.base import FloatArray
from sfumato.workloads.core import on_domain

__all__ = ["MAX_SWAP", "design"]

MAX_SWAP = 256  # cells: the search over all pairs of them stays within seconds
MAX_ALONE = 1_024  # the same for one table and the mean error: 4 CPU-s at 512, 20 at 1,024
MAX_NEAR = 2_048  # likewise, not the optimum but 2 to 3 % above it
MAX_LEVELS = 4_096  # of an ordered attribute, by way of fewer cells: within 1 %
_TOLERANCE = 1e-5  # relative gap of proved sides: far below what a plan shows
_ROUGH = 1e-4  # above MAX_SWAP cells
_GAP = 1e-3  # above, the search has failed and the ordinary optimum is no worse a choice
_BITS = 24  # of an entry: rounding moves errors by less than is shown
_MAX_ENTRIES = 2**22  # 32 MB of queries; above, their Gram matrix alone is used
_MAX_WORK = 2**29  # operations of one pass over all queries


def design(problem: Problem, progress: Progress | None = None) -> Design | None:
    """The optimum over the joint table of all that is asked; None where it does not apply.

    It does under Gaussian noise and a public total, for at most MAX_SWAP cells, or MAX_ALONE of a table that is asked
    for as a whole (with a strategy near the optimum up to MAX_NEAR, of an ordered attribute MAX_LEVELS), that are not
    simply asked for one by one: noise on every cell is then the optimum, and its integers are small. No strategy for
    parts of the table errs less.
    """
    names = _table(problem)
    blocks = problem.workload.blocks
    if names is None or (len(blocks) == 1 and all(isinstance(f, Identity) for f in blocks[0].block.factors)):
        return None
    domain = Domain({a: problem.workload.domain[a] for a in names})
    operators = [(on_domain(domain, q.block), problem.objective_weight(q)) for q in blocks]
    gram = np.zeros((domain.size, domain.size))
    for operator, weight in operators:
        gram += weight * np.asarray(operator.gram().dense(), dtype=np.float64)
    if problem.largest:
        queries = Queries(tuple(operators))
        if queries.work > _MAX_WORK:
            return None
        found = swap_largest(queries, progress=progress)
    else:
        found = _least_mean(operators, gram, progress)
    rank = len(found.strategy)
    # what is measured and the total span the workload; either may have a part of the total
    whole = Stack((*(operator for operator, _ in operators), Total(domain.size)))
    basis = row_basis(gram + float(np.trace(gram)) / domain.size, whole, rank + 1)
    failed = found.gap > _GAP and domain.size <= MAX_ALONE
    if rank == 0 or failed or (basis is None and rank + 1 < domain.size):
        return None
    title = f"{titled('factorization', found.gap)} over {', '.join(names)} for a known total"
    build = functools.partial(_build, title, names, domain.shape, coefficients(found.strategy, basis), basis)
    return Design("factorization", build, 2.0**_BITS, found.lower_bound)


def _least_mean(
    operators: list[tuple[LinearOperator, float]], gram: FloatArray, progress: Progress | None
) -> SwapOptimum:
    matrix = None
    if sum(operator.shape[0] for operator, _ in operators) * len(gram) <= _MAX_ENTRIES:
        matrix = np.vstack([np.asarray(o.dense(), dtype=np.float64) * math.sqrt(w) for o, w in operators])
    if len(gram) > MAX_ALONE:
        ordered = all(is_ordered(operator) for operator, _ in operators)
        return (swap_levels if ordered else swap_near)(gram, progress=progress)
    tolerance = _TOLERANCE if len(gram) <= MAX_SWAP else _ROUGH
    return swap_optimum(None if matrix is not None else gram, matrix=matrix, tolerance=tolerance, progress=progress)


def _table(problem: Problem) -> tuple[str, ...] | None:
    """The attributes of the joint table of all queries, where its optimum is offered."""
    if not problem.unit.total_is_public or problem.noise != "gaussian":
        return None
    names = {a for q in problem.workload.blocks for a in q.attributes}
    cells = math.prod(problem.sizes[a] for a in names)
    blocks = [q.block for q in problem.workload.blocks]
    whole = not problem.largest and any(names == set(b.attributes) for b in blocks)
    ordered = len(names) == 1 and all(b.factors and is_ordered(b.factors[0]) for b in blocks)
    most = (MAX_LEVELS if ordered else MAX_NEAR) if whole else MAX_SWAP
    return problem.workload.domain.ordered(frozenset(names)) if 1 < cells <= most else None


def _build(
    title: str, names: tuple[str, ...], shape: tuple[int, ...], real: FloatArray, basis: LinearOperator | None, s: float
) -> Product:
    return Product((names,), (shape,), (quantise(real, basis, s, known_total=True),), 1, True, title=title)
