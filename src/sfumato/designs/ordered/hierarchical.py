"""Trees of block sums over ordered attributes with least-squares reconstruction. [HRMS10]"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from sfumato.designs.design import Design, Problem
from sfumato.designs.factors import Cells, Factor, Matrix
from sfumato.designs.ordered.trees import TreeSums
from sfumato.designs.pieces import FINE, Piece, column_price, largest_error, levelled, share_design, total_error
from sfumato.designs.product import Product
from sfumato.errors import PlanError
from sfumato.operators import AllRange, LinearOperator, Padded, Prefix, Tree, Window
from sfumato.workloads import QueryBlock

__all__ = ["branchings", "designs", "is_ordered"]

WIDE = 1_024  # cells up to which a dense tree of 8 MB a copy is solved in a fraction of a second; beyond, sums along it


def is_ordered(operator: LinearOperator) -> bool:
    """Whether the rows are prefixes, ranges or windows of an order of the cells."""
    inner = operator.operator if isinstance(operator, Padded) else operator
    return isinstance(inner, (Prefix, AllRange, Window))


def designs(problem: Problem, branching: int | None = None) -> list[Design]:
    """One stack of trees, with the branching that errs least unless it is given; refused where nothing is ordered."""
    ordered = {
        g[0]: f
        for q in problem.workload.blocks
        for g, f in zip(q.block.groups, q.block.factors, strict=True)
        if len(g) == 1 and is_ordered(f) and f.shape[1] > 2
    }
    if not ordered:
        raise PlanError("a tree helps prefixes, ranges and windows of an ordered attribute; none is asked")
    families: dict[tuple[str, ...], list[int]] = {}
    for i, q in enumerate(problem.workload.blocks):
        families.setdefault(problem.workload.domain.ordered(q.attributes), []).append(i)
    power = 1 if problem.noise == "laplace" else 2
    alone = len(families) == 1
    pieces = [_piece(problem, names, members, power, branching, alone=alone) for names, members in families.items()]
    title = "trees of block sums" if branching is None else f"trees of branching {branching}"
    return [share_design("tree", title, pieces, power, None)]


def _piece(
    problem: Problem, names: tuple[str, ...], members: list[int], power: int, given: int | None, *, alone: bool
) -> Piece:
    """The best tree of a family; `alone` says that it takes the whole budget."""
    blocks = [problem.workload.blocks[i] for i in members]
    known = len(names) == 1 and problem.unit.total_is_public
    sizes = tuple((problem.sizes[a],) for a in names)
    best: tuple[float, Product, float] | None = None
    tried = branchings([problem.sizes[a] for a in names], power) if given is None else (given,)
    for branching in tried:
        factors = tuple(_factor(a, problem.sizes[a], blocks, branching, root=not known) for a in names)
        title = f"trees of branching {branching} over {', '.join(names)}" if names else "the total"
        unit = Product(tuple((a,) for a in names), sizes, factors, 1, problem.unit.total_is_public, title=title)
        price = column_price(unit, power)
        if alone and len(tried) == 1:
            # what takes the whole budget, and is compared with no other, need not be judged yet
            return Piece(functools.partial(_build, unit), 1.0, price, FINE)
        judge = largest_error if problem.largest and not _wide(problem, names) else total_error
        error = judge(problem, unit, members)
        if best is None or error * price ** (2 / power) < best[0]:
            best = (error * price ** (2 / power), unit, error)
        if not any(isinstance(f, (Matrix, TreeSums)) for f in factors):
            break
    assert best is not None
    _, chosen, error = best
    price = column_price(chosen, power)
    if problem.largest and not _wide(problem, names):
        error = levelled(error, price, power)
    return Piece(functools.partial(_build, chosen), error, price, FINE)


def _wide(problem: Problem, names: tuple[str, ...]) -> bool:
    """Whether the errors of single queries may be too many to list: they are judged by their mean there."""
    return any(problem.sizes[a] > WIDE for a in names)


def branchings(sizes: Sequence[int], power: int) -> tuple[int, ...]:
    """What is worth trying over attributes of so many cells: of every depth the least that reaches all, and one more.

    A wider tree of the same depth has as many nodes above a cell, each with more siblings; one more helps where a
    cell would be left over. On wide domains, where a comparison costs more, binary trees for L2 and 7 to 20 children
    a node for L1: others lost there, but for three children under L2 a little above some powers of two (1.3 % less on
    prefixes of 2,049 cells), which is not worth up to twice the time.
    """
    found = {2}
    for n in sizes:
        least = {next(b for b in range(2, n + 2) if b**d >= n) for d in range(1, max(n - 1, 1).bit_length() + 1)}
        found |= least | {b + 1 for b in least if b < n}
    if max(sizes, default=1) <= WIDE:
        return tuple(sorted(found))
    return (2,) if power == 2 else tuple(b for b in sorted(found) if 7 <= b <= 20)


def _factor(name: str, n: int, blocks: list[QueryBlock], branching: int, *, root: bool) -> Factor:
    asked = (f for q in blocks for g, f in zip(q.block.groups, q.block.factors, strict=True) if g == (name,))
    if n > 2 and any(is_ordered(f) for f in asked):
        tree = Tree(n, branching, root)
        return Matrix(tree) if n <= WIDE else TreeSums(tree)
    return Cells(n)


def _build(unit: Product, s: float) -> Product:
    return Product(unit.groups, unit.sizes, unit.factors, max(1, round(s)), unit.public_total, title=unit.title)
