"""Ordered attributes: trees of block sums with least-squares reconstruction [HRMS10], and what is tried beyond them.

Where an attribute is too long for dense optimisation, buffered and square-root Toeplitz strategies are tried beside the
trees [DMPST24, FHU23].

Least squares on a tree of block sums in two passes over its nodes, at any size. [HRMS10]

Let z_v be the best estimate of node v from the measurements below it, in units of the noise, with variance u_v.
A leaf has u = 1. The children of a node sum to S with variance s = sum u_c; a node that is measured itself as y
has z = (s y + S) / (s + 1) and u = s / (s + 1), any other has z = S and u = s. Downwards, the final estimate of
a child is x_c = z_c + (u_c / s) (x_parent - S): the residual of the parent is shared by variance.

A query with weight a_c on node c puts a_v = sum a_c u_c / s on its parent, and what is left, a_c - a_v, on z_c
itself. So the entries of R follow downwards: z_v has the coefficient k_v = a_v - a_p + k_p g_p with g = 1 / (s + 1)
where the parent is measured, else 1, and the measurement y_v has k_v s / (s + 1). Below a node of which the query
takes all or nothing no such differences are left, so only the nodes at a range's two ends are walked.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from sfumato._util.codec import storable
from sfumato.errors import NotAnswerable, PlanError
from sfumato.operators import (
    AllRange,
    Block,
    Identity,
    LinearOperator,
    Padded,
    Prefix,
    Scaled,
    Toeplitz,
    Total,
    Tree,
    Window,
)
from sfumato.operators.base import FloatArray, Numbers, check_dense
from sfumato.operators.structured import Contiguous
from sfumato.privacy.unit import Neighbours
from sfumato.strategies.budget_split import root_error
from sfumato.strategies.buffered_toeplitz import FINE_COLUMN, Asked, UnscaledStrategy, best_buffered_strategy
from sfumato.strategies.covariance import check_covariance_size
from sfumato.strategies.design import Design, Problem
from sfumato.strategies.factors import Cells, Matrix, StrategyFactor
from sfumato.strategies.product import Product
from sfumato.strategies.range_bounds import OrderedStrategy, as_contiguous_ranges, largest_in_tree
from sfumato.strategies.stacked import FINE, StackedPiece, column_price, share_design, weighted_error
from sfumato.strategies.strategy import Estimate, Strategy, row_shape
from sfumato.strategies.toeplitz import (
    FINE_ROOT,
    Roots,
    all_range_bound,
    prefix_bound,
    replaced_prefix_bound,
    square_root_strategy,
    window_bound,
)
from sfumato.workloads import QueryBlock

_ROWS = 2**16  # ranges at a time: 512 kB a level stay in the cache of a core


@dataclass(frozen=True, slots=True)
class _NodeLevel:
    """One level over `cut` of the nodes below: which nodes are measured, s, u, g and the share of a measurement."""

    cut: Numbers
    measured: Numbers
    below: FloatArray
    variance: FloatArray
    gain: FloatArray
    own: FloatArray


@storable
@dataclass(frozen=True, eq=False)
class TreeSums(OrderedStrategy):
    """A tree of block sums, reconstructed by least squares in time proportional to its nodes."""

    tree: Tree

    @property
    def measured(self) -> LinearOperator:
        return self.tree

    @functools.cached_property
    def _levels(self) -> list[_NodeLevel]:
        """Upwards from the leaves to the one node over all cells, measured or not."""
        n, b = self.tree.n, self.tree.branching
        kept = {width: starts // width for width, starts in self.tree.levels()}
        ones = np.ones(n)
        out = [_NodeLevel(np.arange(n), np.ones(n, dtype=bool), np.full(n, np.inf), ones, 0 * ones, ones)]
        width = 1
        while len(out[-1].variance) > 1:
            width *= b
            cut = np.arange(0, len(out[-1].variance), b)
            below = np.add.reduceat(out[-1].variance, cut)
            measured = np.zeros(len(cut), dtype=bool)
            measured[kept.get(width, np.zeros(0, dtype=np.int64))] = True
            gain = np.where(measured, 1 / (below + 1), 1.0)
            out.append(_NodeLevel(cut, measured, below, below * gain, gain, np.where(measured, 1 - gain, 0.0)))
        return out

    def _values(self, values: FloatArray) -> list[FloatArray]:
        """(l, c) measured values by level upwards, 0 for nodes that are not measured."""
        out: list[FloatArray] = []
        end = len(values)
        for level in self._levels:
            own = np.zeros((len(level.measured), values.shape[1]))
            start = end - int(level.measured.sum())
            own[level.measured] = values[start:end]
            out.append(own)
            end = start
        return out

    def cells(self, values: FloatArray) -> FloatArray:
        levels, given = self._levels, self._values(values)
        best, sums = [given[0]], [given[0]]
        for level, own in zip(levels[1:], given[1:], strict=True):
            total = np.add.reduceat(best[-1], level.cut, axis=0)
            sums.append(total)
            best.append(level.own[:, None] * own + level.gain[:, None] * total)
        final = best[-1]
        for i in range(len(levels) - 1, 0, -1):
            residual = (final - sums[i]) / levels[i].below[:, None]
            parent = np.arange(len(levels[i - 1].variance)) // self.tree.branching
            final = best[i - 1] + levels[i - 1].variance[:, None] * residual[parent]
        return final

    def spread(self, rows: FloatArray) -> FloatArray:
        levels = self._levels
        weights = [rows]
        for below, level in itertools.pairwise(levels):
            weights.append(np.add.reduceat(weights[-1] * below.variance, level.cut, axis=1) / level.below)
        held = weights[-1]
        out = [(held * levels[-1].own)[:, levels[-1].measured]]
        for i in range(len(levels) - 2, -1, -1):
            parent = np.arange(rows.shape[1] if i == 0 else len(levels[i].variance)) // self.tree.branching
            held = weights[i] + (held * levels[i + 1].gain - weights[i + 1])[:, parent]
            out.append((held * levels[i].own)[:, levels[i].measured])
        return np.concatenate(out, axis=1)

    def cells_of_rows(self, rows: FloatArray) -> FloatArray:
        return self.cells(self.spread(rows).T).T

    def spread_ones(self) -> FloatArray:
        return self.cells_of_rows(np.ones((1, self.tree.n)))[0]

    def prefix_powers(self, count: int, power: int) -> FloatArray:
        return self.span_powers(np.zeros(count, dtype=np.int64), np.arange(1, count + 1), power)

    def range_bound(self, known: FloatArray, found: float) -> float:
        return largest_in_tree(self._levels, self.tree.branching, len(known) - 1, found, total_known=bool(known.any()))

    def span_powers(self, first: Numbers, last: Numbers, power: int) -> FloatArray:
        sums = self._sums(power)
        chunks = range(0, len(first), _ROWS)
        parts = [self._walk(first[a : a + _ROWS], last[a : a + _ROWS] - 1, sums, power) for a in chunks]
        return np.concatenate(parts) if parts else np.zeros(0)

    def _sums(self, power: int) -> list[tuple[FloatArray, FloatArray]]:
        """Per level sums from the left, one longer than its nodes: of u, and of sum |entry|^power below z_v."""
        out: list[tuple[FloatArray, FloatArray]] = []
        below = np.zeros(0)
        for i, level in enumerate(self._levels):
            inner = np.add.reduceat(below, level.cut) if i else np.zeros(len(level.own))
            below = level.own**power + level.gain**power * inner
            pair = (np.cumsum(level.variance), np.cumsum(below))
            out.append((np.append(0.0, pair[0]), np.append(0.0, pair[1])))
        return out

    def _walk(self, left: Numbers, right: Numbers, sums: list[tuple[FloatArray, FloatArray]], power: int) -> FloatArray:
        """The same for ranges from cell `left` to cell `right`, along the nodes above these two."""
        levels, b = self._levels, self.tree.branching
        ends = [(left, right)]
        weights = [(np.ones(len(left)), np.ones(len(left)))]
        for i in range(1, len(levels)):
            (low, high), (a, c) = ends[-1], weights[-1]
            u, total = levels[i - 1].variance, sums[i - 1][0]
            up, over = low // b, high // b
            one = up == over
            stop = np.where(one, high, np.minimum((up + 1) * b, len(u)))
            start = np.where(one, low + 1, over * b)
            # what both ends hold where they are under one parent, else each by itself
            mine = a * u[low] + total[np.maximum(stop, low + 1)] - total[low + 1]
            mine += np.where(one & (low < high), c * u[high], 0.0)
            theirs = np.where(one, mine, c * u[high] + total[np.maximum(high, start)] - total[start])
            ends.append((up, over))
            weights.append((mine / levels[i].below[up], theirs / levels[i].below[over]))
        held = weights[-1]
        top = levels[-1]
        out = np.abs(held[0] * top.own[0]) ** power
        for i in range(len(levels) - 2, -1, -1):
            out += self._step(i, ends, weights, held, sums[i][1], power)
            held = self._down(i, ends, weights, held)
            low, high = ends[i]
            out += np.abs(held[0] * levels[i].own[low]) ** power
            out += np.where(low < high, np.abs(held[1] * levels[i].own[high]) ** power, 0.0)
        return out

    def _down(
        self,
        i: int,
        ends: list[tuple[Numbers, Numbers]],
        weights: list[tuple[FloatArray, FloatArray]],
        held: tuple[FloatArray, FloatArray],
    ) -> tuple[FloatArray, FloatArray]:
        """Coefficients of the two end nodes of level i from those of level i + 1."""
        gain, above = self._levels[i + 1].gain, ends[i + 1]
        found = [weights[i][e] - weights[i + 1][e] + held[e] * gain[above[e]] for e in (0, 1)]
        return found[0], found[1]

    def _step(
        self,
        i: int,
        ends: list[tuple[Numbers, Numbers]],
        weights: list[tuple[FloatArray, FloatArray]],
        held: tuple[FloatArray, FloatArray],
        total: FloatArray,
        power: int,
    ) -> FloatArray:
        """What the children of the two end nodes of level i + 1 add that hold all or nothing of the range."""
        gain, b = self._levels[i + 1].gain, self.tree.branching
        (low, high), (up, over) = ends[i], ends[i + 1]
        one = up == over
        base = [held[e] * gain[(up, over)[e]] - weights[i + 1][e] for e in (0, 1)]
        none, every = (np.abs(base[0]) ** power, np.abs(base[0] + 1) ** power)
        end = np.minimum((up + 1) * b, len(total) - 1)
        stop = np.maximum(np.where(one, high, end), low + 1)
        out = none * (total[low] - total[up * b]) + every * (total[stop] - total[low + 1])
        out += np.where(one, none * (total[end] - total[np.maximum(high, low) + 1]), 0.0)
        none, every = (np.abs(base[1]) ** power, np.abs(base[1] + 1) ** power)
        final = np.minimum((over + 1) * b, len(total) - 1)
        theirs = every * (total[high] - total[np.minimum(over * b, high)]) + none * (total[final] - total[high + 1])
        return out + np.where(one, 0.0, theirs)


WIDE = 1_024  # cells up to which a dense tree of 8 MB a copy is solved in a fraction of a second; beyond, sums along it


def is_ordered(operator: LinearOperator) -> bool:
    """Whether the rows are prefixes, ranges or windows of an order of the cells."""
    inner = operator.operator if isinstance(operator, Padded) else operator
    return isinstance(inner, (Prefix, AllRange, Window))


def design_trees(problem: Problem, branching: int | None = None) -> list[Design]:
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
    power = problem.power
    alone = len(families) == 1
    pieces = [
        _tree_piece(problem, names, members, power, branching, alone=alone) for names, members in families.items()
    ]
    title = "trees of block sums" if branching is None else f"trees of branching {branching}"
    return [share_design("tree", title, pieces, power, None, largest=problem.largest)]


def _tree_piece(
    problem: Problem, names: tuple[str, ...], members: list[int], power: int, given: int | None, *, alone: bool
) -> StackedPiece:
    """The best tree of a family; `alone` says that it takes the whole budget."""
    blocks = [problem.workload.blocks[i] for i in members]
    known = len(names) == 1 and problem.unit.total_is_public
    sizes = tuple((problem.sizes[a],) for a in names)
    best: tuple[float, StackedPiece] | None = None
    tried = branchings_to_try([problem.sizes[a] for a in names], power) if given is None else (given,)
    for branching in tried:
        factors = tuple(_tree_factor(a, problem.sizes[a], blocks, branching, root=not known) for a in names)
        title = f"trees of branching {branching} over {', '.join(names)}" if names else "the total"
        unit = Product(tuple((a,) for a in names), sizes, factors, 1, problem.unit.total_is_public, title=title)
        price = column_price(unit, power)
        if alone and len(tried) == 1:
            # what takes the whole budget, and is compared with no other, need not be judged yet
            return StackedPiece(functools.partial(_scale_tree_product, unit), 1.0, price, FINE)
        error = weighted_error(problem, unit, members)
        alone_it_errs = root_error(error, price, power, largest=problem.largest)
        if best is None or alone_it_errs < best[0]:
            best = alone_it_errs, StackedPiece(functools.partial(_scale_tree_product, unit), error, price, FINE)
        if not any(isinstance(f, (Matrix, TreeSums)) for f in factors):
            break
    assert best is not None
    return best[1]


def branchings_to_try(sizes: Sequence[int], power: int) -> tuple[int, ...]:
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


def _tree_factor(name: str, n: int, blocks: list[QueryBlock], branching: int, *, root: bool) -> StrategyFactor:
    asked = (f for q in blocks for g, f in zip(q.block.groups, q.block.factors, strict=True) if g == (name,))
    if n > 2 and any(is_ordered(f) for f in asked):
        tree = Tree(n, branching, root)
        return Matrix(tree) if n <= WIDE else TreeSums(tree)
    return Cells(n)


def _scale_tree_product(unit: Product, s: float) -> Product:
    return Product(unit.groups, unit.sizes, unit.factors, max(1, round(s)), unit.public_total, title=unit.title)


_LISTED = 2**22  # queries: 32 MB of errors, one by one; of more ranges, sums over the nodes
_ROWS_CANONICAL = 2**18  # ranges at a time: some MB for each level of the tree


@storable
@dataclass(frozen=True, eq=False)
class Canonical(Strategy):
    """`multiple` times a tree over one attribute; ranges of its cells are answered by sums of the fewest nodes."""

    attribute: str
    tree: Tree
    multiple: int = 1

    @property
    def blocks(self) -> tuple[Block, ...]:
        return (Block(((), (self.attribute,)), (Scaled(Identity(1), self.multiple), self.tree)),)

    @property
    def summary(self) -> str:
        return f"a tree of branching {self.tree.branching} over {self.attribute}, each query a sum of fewest nodes"

    @functools.cached_property
    def _levels(self) -> list[Numbers]:
        """Per level upwards where the values of its blocks are: a block of one child alone is that child."""
        tree, b = self.tree, self.tree.branching
        end, width = tree.shape[0], 1
        out: list[Numbers] = []
        for size, kept in reversed(tree.levels()):
            assert size == width
            count = -(-tree.n // width)
            # what is left out repeats its first child
            place = np.arange(count) if not out else out[-1][::b].copy()
            place[kept // width] = np.arange(end - len(kept), end)
            out.append(place)
            end, width = end - len(kept), width * b
        return out

    def _ranges(self, query: Block) -> Contiguous:
        """The ranges of cells that are asked. Raises NotAnswerable for what is no range."""
        if not query.attributes and query.rows == 1:
            return Window(self.tree.n, self.tree.n)
        ranges = as_contiguous_ranges(query.factors[0]) if query.groups == ((self.attribute,),) else None
        if ranges is None:
            raise NotAnswerable(
                f"sums of fewest nodes answer ranges of {self.attribute} alone; least squares answer the rest"
            )
        return ranges

    def _walk(self, first: Numbers, last: Numbers) -> Iterator[tuple[int, Numbers, Numbers, Numbers, Numbers]]:
        """Per level upwards the blocks of every range: those from a to b - 1 and those from c to d - 1."""
        low, high = first, last
        for i, place in enumerate(self._levels):
            if i + 1 == len(self._levels):
                yield i, low, high, high, high
                return
            above = len(self._levels[i + 1])
            up = -(-low // self.tree.branching)
            # the last block is whole where the domain ends
            over = np.where(high == len(place), above, high // self.tree.branching)
            whole = up < over
            stop = np.where(whole, up * self.tree.branching, high)
            start = np.where(whole, np.minimum(over * self.tree.branching, high), high)
            yield i, low, stop, start, high
            low, high = np.where(whole, up, 0), np.where(whole, over, 0)

    def _counts(self, first: Numbers, last: Numbers) -> FloatArray:
        """Number of blocks of every range."""
        out = np.zeros(len(first))
        for _, a, b, c, d in self._walk(first, last):
            out += (b - a) + (d - c)
        return out

    def _rows(self, query: Block) -> FloatArray:
        """R for a block of queries, (rows, measured) of 0 and 1."""
        first, last = self._ranges(query).spans()
        check_dense(len(first), self.tree.shape[0])
        out = np.zeros((len(first), self.tree.shape[0]))
        for i, *ends in self._walk(first, last):
            a, b, c, d = (e[:, None] for e in ends)
            node = np.arange(len(self._levels[i]))
            out[:, self._levels[i]] += ((a <= node) & (node < b)) | ((c <= node) & (node < d))
        return out

    def check(self, query: Block) -> None:
        self._ranges(query)

    def row_powers(self, query: Block, power: int) -> FloatArray:
        first, last = self._ranges(query).spans()
        chunks = (slice(a, a + _ROWS_CANONICAL) for a in range(0, len(first), _ROWS_CANONICAL))
        counts = np.concatenate([self._counts(first[c], last[c]) for c in chunks])
        return counts.reshape(row_shape(query)) / float(self.multiple) ** power

    def row_errors(self, query: Block) -> tuple[float, float] | None:
        asked = self._ranges(query)
        if query.rows <= _LISTED or not isinstance(asked, AllRange):
            return None
        return self._sum(asked.n) / query.rows / self.multiple**2, self._largest(asked.n) / self.multiple**2

    def _sum(self, n: int) -> float:
        """The number of blocks of all ranges of the first n cells: a block counts where its parent does not fit."""
        total, below = 0.0, None
        width = 1
        for place in self._levels:
            start = np.arange(len(place)) * width
            end = np.minimum(start + width, self.tree.n)
            # ranges that hold a block begin at its first cell or before, and end at its last or after
            holding = (start + 1.0) * np.maximum(n - end + 1.0, 0.0)
            if below is not None:
                total -= float(np.repeat(holding, self.tree.branching)[:below].sum())
            total += float(holding.sum())
            below, width = len(place), width * self.tree.branching
        return total

    def _largest(self, n: int) -> float:
        """The most blocks of a range of the first n cells, by the children of a block in which it begins and ends.

        Per block the most for ranges that leave out something on the left, or on the right, and for any range in it.
        """
        b, count, width = self.tree.branching, n, 1
        left = right = np.full(count, -np.inf)
        inside = np.ones(count)
        child = np.arange(b)
        for i in range(len(self._levels)):
            above = -(-count // b)
            padded = np.full((3, above * b), -np.inf)
            padded[:, :count] = left, right, inside
            begin, end, within = padded.reshape(3, above, b)
            last = np.minimum(count - np.arange(above) * b, b) - 1
            there = child <= last[:, None]
            starts, ends = (np.where(there, np.maximum(e, 1.0), -np.inf) for e in (begin, end))
            short_starts, short_ends = starts.copy(), ends.copy()
            width *= b
            if i + 1 < len(self._levels):
                # what reaches both edges is the block itself, where that lies in the first n cells
                row = np.flatnonzero(np.minimum((np.arange(above) + 1) * width, self.tree.n) <= n)
                short_starts[row, 0], short_ends[row, last[row]] = begin[row, 0], end[row, last[row]]
            found = within.max(axis=1)
            for one, other in ((starts, short_ends), (short_starts, ends)):
                pairs = np.maximum.accumulate(one - child, axis=1)[:, :-1] + (other + child)[:, 1:] - 1
                found = np.maximum(found, pairs.max(axis=1, initial=-np.inf))
            left, right = (short_starts - child).max(axis=1) + last, (short_ends + child).max(axis=1)
            inside, count = found, above
        return float(inside.max())

    def covariance(self, first: Block, second: Block) -> FloatArray:
        check_covariance_size(first.rows, second.rows)
        return self._rows(first) @ self._rows(second).T / float(self.multiple) ** 2

    def estimate(self, values: Sequence[Numbers], total: int | None) -> Estimate:
        # sums from the left: exact in integers, and differences of them too
        return tuple(np.append(values[0][:1] * 0, np.cumsum(values[0][place])) for place in self._levels)

    def answer(self, estimate: Estimate, query: Block) -> FloatArray:
        first, last = self._ranges(query).spans()
        out = np.zeros(len(first), dtype=estimate[0].dtype)
        for i, a, b, c, d in self._walk(first, last):
            sums = estimate[i]
            out += sums[b] - sums[a] + sums[d] - sums[c]
        return out / self.multiple


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
