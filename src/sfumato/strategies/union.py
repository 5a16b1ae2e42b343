"""The strategy for a union of Kronecker products in the bases of its symmetries, as integers, and the way back.

The best strategy for a union of Kronecker products, from the small problem that its symmetries leave.

W stacks sqrt(w_p) (⊗_i W_pi), (k, n). In the bases of `union_symmetry` WᵀW falls into blocks, one for each choice t of
the orbits or one contrast on every attribute:

    K_t = sum_p w_p ⊗_(orbits) Gram ⊗_(contrasts) number,   met prod (dimensions of the contrasts) times.

By convexity the best strategy may be taken with the same symmetries: A_t = M_t ⊗ (sums over orbits) ⊗ (contrasts).
The dual weights of cells are constant on orbits. With v_o the weight of a joint orbit o, s_o its cells and c_t the
multiplicity, the problem is that of `dense_dual` with blocks c_t² K_t / (s_o s_o')^(1/2), and X_t = c_t M_tᵀM_t.

Attributes on which all products have one Gram, up to a factor, are apart: the optimum of ⊗ is the product.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sfumato._util.codec import deferred_field, storable
from sfumato._util.display import Progress
from sfumato.errors import NotAnswerable, PlanError
from sfumato.operators import Block, LinearOperator, Sparse, Total
from sfumato.operators.base import FloatArray, Numbers, kron, single_thread
from sfumato.strategies.covariance import check_covariance_size
from sfumato.strategies.dense_blocks import DenseBlock, IntArray, Spectrum, gram_block
from sfumato.strategies.dense_dual import Solution, cold_start, optimality_title, solve_dual
from sfumato.strategies.merged_rows import independent_row_basis
from sfumato.strategies.strategy import Estimate, Strategy, factors_by_attribute, marginalise, order_by_query
from sfumato.strategies.union_symmetry import SPAN, Axis, Group, ReducedAxis, reduce_axis


@storable
@dataclass(frozen=True, eq=False)
class Orbits(Strategy):
    """Kronecker products over groups of attributes of what each group measures: orbits, and contrasts inside them.

    Row spaces of different pieces are orthogonal, so each is read back by itself. Queries have one factor per
    attribute, treat cells alike that the workload cannot tell apart, and lie in its span.

    With `public_total` the number of records is known: the estimates are those of least squares that sum to it.
    `gap` says how far from the optimum it is at most, infinity where that is not known.
    """

    groups: tuple[Group, ...]
    public_total: bool = False
    gap: float = deferred_field(0.0)

    @property
    def names(self) -> tuple[str, ...]:
        """The attributes of what is measured, in its order."""
        return tuple(n for g in self.groups for n in g.names)

    @functools.cached_property
    def _axes(self) -> dict[str, Axis]:
        return {n: a for g in self.groups for n, a in zip(g.names, g.axes, strict=True)}

    @property
    def blocks(self) -> tuple[Block, ...]:
        return self._blocks

    @functools.cached_property
    def _blocks(self) -> tuple[Block, ...]:
        out: list[Block] = []
        for pieces in itertools.product(*(g.pieces for g in self.groups)):
            parts = [g.block(p) for g, p in zip(self.groups, pieces, strict=True)]
            names = [n for some, _ in parts for n in some]
            out.append(Block(tuple(names), tuple(f for _, some in parts for f in some)))
        return tuple(out)

    @property
    def summary(self) -> str:
        count = math.prod(len(g.pieces) for g in self.groups)
        return f"{optimality_title('strategy', self.gap)} in {count:,} blocks over {', '.join(self.names)}, by symmetry"

    # -- errors ----------------------------------------------------------------------------------

    def _folded(self, query: Block) -> list[list[FloatArray]]:
        """Per group and axis the query's rows over distinct cells, (k_i, n'_i). Raises NotAnswerable."""
        factors = factors_by_attribute(query, self._axes)
        out: list[list[FloatArray]] = []
        for group in self.groups:
            rows: list[FloatArray] = []
            for name, axis in zip(group.names, group.axes, strict=True):
                factor = factors.get(name) or Total(len(axis.cells))
                dense = np.asarray(factor.dense(), dtype=np.float64)
                folded = axis.fold(dense)
                if np.abs(folded[:, axis.cells] - dense).max() > SPAN * np.abs(dense).max(initial=0.0):
                    raise NotAnswerable(f"the queries tell cells of {name} apart that were measured only together")
                rows.append(folded)
            out.append(rows)
        return out

    def check(self, query: Block) -> None:
        folded = self._folded(query)
        if self.public_total and all((r == r[:, :1]).all() for rows in folded for r in rows):
            return  # multiples of the total
        for group, rows in zip(self.groups, folded, strict=True):
            if group.missing([_rows_with_equal_error(r, a)[0] for r, a in zip(rows, group.axes, strict=True)]):
                raise NotAnswerable(
                    f"a query over {', '.join(query.attributes) or 'all records'} is no combination of the workload's "
                    f"queries over {', '.join(group.names)}; add it, or its table, to the workload"
                )

    def row_powers(self, query: Block, power: int) -> FloatArray:
        self.check(query)
        few: list[list[FloatArray]] = []
        places: list[NDArray[np.intp]] = []
        for group, rows in zip(self.groups, self._folded(query), strict=True):
            told = [_rows_with_equal_error(r, a) for r, a in zip(rows, group.axes, strict=True)]
            few.append([f for f, _ in told])
            places += [i for _, i in told]
        table = reduce(np.multiply.outer, [g.powers(f, power) for g, f in zip(self.groups, few, strict=True)])
        if self.public_total:
            # what is known leaves zero, up to rounding
            table = np.maximum(table + self._known(few, power), 0.0)
        # an axis without change keeps length 1
        table = table[np.ix_(*(i if n > 1 else i[:1] for n, i in zip(table.shape, places, strict=True)))]
        return order_by_query(table, query, self.names)

    def _known(self, rows: Sequence[Sequence[FloatArray]], power: int) -> FloatArray:
        """What a known total changes of `row_powers`: its part of each row of R goes."""
        sides = [g.beside_total(r) for g, r in zip(self.groups, rows, strict=True)]
        share = reduce(np.multiply.outer, [joint @ one / (one @ one) for joint, one in sides])
        changes = [
            math.comb(power, k)
            * (-share) ** k
            * reduce(np.multiply.outer, [joint ** (power - k) @ one**k for joint, one in sides])
            for k in range(1, power + 1)
        ]
        return np.asarray(sum(changes), dtype=np.float64)

    def covariance(self, first: Block, second: Block) -> FloatArray:
        check_covariance_size(first.rows, second.rows)
        self.check(first)
        self.check(second)
        pairs = list(zip(self.groups, self._folded(first), self._folded(second), strict=True))
        table = reduce(np.multiply.outer, [g.covariance(a, b) for g, a, b in pairs])
        if self.public_total:
            known: list[FloatArray] = []
            for group, a, b in pairs:
                (ours, one), (theirs, _) = group.beside_total(a), group.beside_total(b)
                known.append(np.multiply.outer(ours @ one, theirs @ one) / (one @ one))
            table = table - reduce(np.multiply.outer, known)
        places: dict[tuple[int, str], int] = {}
        for group in self.groups:
            places |= {(side, n): len(places) + i for i, (side, n) in enumerate(itertools.product((0, 1), group.names))}
        wanted = [places[0, a] for a in first.attributes] + [places[1, a] for a in second.attributes]
        rest = [i for i in range(table.ndim) if i not in wanted]
        return table.transpose(wanted + rest).reshape(first.rows, second.rows)

    # -- answers -----------------------------------------------------------------------------------

    def estimate(self, values: Sequence[Numbers], total: int | None) -> Estimate:
        left = [np.asarray(v, dtype=np.float64).reshape(-1) for v in values]
        # the last group first: what other pieces measured of it stays beside
        done = 1
        for group in reversed(self.groups):
            step = len(group.pieces)
            tables: list[FloatArray] = []
            for a in range(0, len(left), step):
                some: list[FloatArray] = []
                for piece, value in zip(group.pieces, left[a : a + step], strict=True):
                    rows = group.rows(piece)
                    shaped = value.reshape(-1, rows, done).swapaxes(0, 1)
                    some.append(shaped.reshape(rows, -1))
                found = group.cells(some)
                count = len(found)
                tables.append(found.reshape(count, -1, done).swapaxes(0, 1).reshape(-1))
            left, done = tables, done * math.prod(len(a.orbits) for a in group.axes)
        table = left[0]
        if self.public_total:
            assert total is not None
            toward = reduce(np.kron, [g.toward_total() for g in self.groups])
            table = table + toward * ((total - table.sum()) / toward.sum())
        table = table.reshape([len(a.orbits) for a in self._axes.values()])
        for i, axis in enumerate(self._axes.values()):
            table = np.take(
                table / axis.counts.reshape([-1 if j == i else 1 for j in range(table.ndim)]), axis.cells, i
            )
        return table

    def answer(self, estimate: Estimate, query: Block) -> FloatArray:
        self.check(query)
        return np.asarray(marginalise(estimate, self.names, query), dtype=np.float64)


def _rows_with_equal_error(rows: FloatArray, axis: Axis) -> tuple[FloatArray, NDArray[np.intp]]:
    """(some of the rows, which of these has the error of each row): those of equal parts in every space."""
    told = [((rows @ b) ** p).sum(axis=1, keepdims=True) for b in axis.back[:-1] for p in (2, 4)]
    told.append(rows @ axis.back[-1])
    features = np.concatenate(told, axis=1)
    rounded = np.round(features / max(float(np.abs(features).max(initial=0.0)), 1e-300), 13)
    _, first, inverse = np.unique(rounded, axis=0, return_index=True, return_inverse=True)
    return rows[first], inverse.reshape(-1)


Product = tuple[float, Mapping[str, LinearOperator]]
"""A weight of squared errors, and a factor per attribute; others are summed out."""


class UnionLimits(NamedTuple):
    """Up to which size a problem is solved, and to which gap.

    cells: of an attribute that is looked through for symmetries; orbits: joint ones, which are dual variables and rows
    of the largest block; work: the sum of the cubes of the sizes of the blocks.
    """

    cells: int
    orbits: int
    work: float
    tolerance: float


QUICK = UnionLimits(1_500, 600, 2e8, 1e-7)  # a second at most
LARGE = UnionLimits(2_048, 2_048, 2e10, 1e-3)  # a step takes seconds, of which there are some seven; plans show no more
_MAX_TUPLES = 20_000  # joint kinds are Python tuples, listed and compared
_MAX_MEASURED = 4_096  # blocks to measure, each with arrays of its own
_MAX_TERMS = 2_000_000  # blocks times products
_DIGITS = 12  # of means: equal but for rounding
_FILL = 2e-7  # price of what only makes blocks invertible, over all of them


@dataclass(frozen=True, slots=True, eq=False)
class UnionPiece:
    """What is measured on one choice of kinds: `matrix` (l, l) of the sums over joint orbits, beside unit contrasts.

    `beyond` (q, l) has orthonormal rows: what the workload asks nothing about. Where `rows` (r, l) are given, whole
    numbers that span what it asks, the matrix is (r, r), of these.
    """

    kinds: tuple[int, ...]
    matrix: FloatArray
    beyond: FloatArray
    rows: Sparse | None = None

    @property
    def of_orbits(self) -> bool:
        """Whether it has no contrasts: the total lies in it."""
        return all(k < 0 for k in self.kinds)


@dataclass(frozen=True, slots=True, eq=False)
class SmallUnion:
    """The optimum over some attributes; `lower` and `upper` enclose the root of the summed weighted variances.

    The pieces have largest column norm 1, up to _FILL, and attain `upper`. Of the weights v of sum 1 on the cells
    that prove `lower`, `square` is the sum of squares and `mean` the length of W v.
    """

    names: tuple[str, ...]
    axes: tuple[Axis, ...]
    pieces: tuple[UnionPiece, ...]
    lower: float
    upper: float
    square: float
    mean: float

    @property
    def numbers(self) -> bool:
        """Whether every piece is a number."""
        return all(len(p.matrix) == 1 for p in self.pieces)


class Solver(Protocol):
    """A search for the optimum, as one small problem per group of attributes. Raises PlanError."""

    def __call__(
        self, products: Sequence[Product], sizes: Mapping[str, int], *, progress: Progress | None
    ) -> tuple[SmallUnion, ...]: ...


def solve_union(
    products: Sequence[Product],
    sizes: Mapping[str, int],
    *,
    limits: UnionLimits = QUICK,
    progress: Progress | None = None,
) -> tuple[SmallUnion, ...]:
    """The optimum under add-remove as one small problem per group of attributes; norms multiply over the groups.

    Raises PlanError where too little repeats itself for the problem to be small.
    """
    names = [a for a in sizes if any(a in factors for _, factors in products)]
    if not names:
        raise PlanError("the union names no attribute")
    large = [a for a in names if sizes[a] > limits.cells]
    if large:
        raise PlanError(f"{large[0]} has more than {limits.cells:,} cells to look for symmetries in")
    known: dict[str, list[LinearOperator]] = {a: [] for a in names}
    chosen = [[factor_number(known[a], factors.get(a) or Total(sizes[a])) for a in names] for _, factors in products]
    numbers, weights = np.array(chosen, dtype=np.int64), np.array([w for w, _ in products])
    reduced = [reduce_axis(known[a]) for a in names]
    together: list[int] = []
    alone: list[int] = []
    for i, r in enumerate(reduced):
        factor = _common_gram_ratios(r)
        if factor is None:
            together.append(i)
            continue
        weights = weights * factor[numbers[:, i]]
        reduced[i], numbers[:, i] = ReducedAxis(r.axis, r.means[:1], r.numbers[:1]), 0
        alone.append(i)
    if not together:
        together.append(alone.pop(0))
    with single_thread():
        found = [
            _solve_reduced_union(
                tuple(names[i] for i in some),
                [reduced[i] for i in some],
                numbers[:, some],
                weights if some is together else weights / weights.sum(),
                limits,
                progress,
            )
            for some in (together, *([i] for i in alone))
        ]
    # numbers multiply to numbers, which are rounded once
    numbers_alone = [u for u in found if u.numbers]
    if math.prod(len(u.pieces) for u in found) > _MAX_MEASURED:
        raise PlanError(f"symmetries leave more than {_MAX_MEASURED:,} blocks to measure")
    return (*(u for u in found if not u.numbers), *([reduce(_multiply_unions, numbers_alone)] if numbers_alone else []))


def _multiply_unions(first: SmallUnion, second: SmallUnion) -> SmallUnion:
    """The same over the attributes of both, all of whose pieces are numbers."""
    pairs = itertools.product(first.pieces, second.pieces)
    return SmallUnion(
        first.names + second.names,
        first.axes + second.axes,
        tuple(UnionPiece(a.kinds + b.kinds, a.matrix * b.matrix, a.beyond) for a, b in pairs),
        first.lower * second.lower,
        first.upper * second.upper,
        first.square * second.square,
        first.mean * second.mean,
    )


def factor_number(known: list[LinearOperator], factor: LinearOperator) -> int:
    for k, other in enumerate(known):
        if other is factor or (type(other) is type(factor) and other == factor):
            return k
    known.append(factor)
    return len(known) - 1


def _common_gram_ratios(r: ReducedAxis) -> FloatArray | None:
    """(r,) what the Grams are of the first one, where they all are multiples of it; exactly."""
    every = np.concatenate([r.means.reshape(len(r.means), -1), r.numbers], axis=1)
    place = int(np.argmax(np.abs(every[0])))
    if every[0, place] == 0.0:
        return None
    factor = every[:, place] / every[0, place]
    return factor if np.array_equal(every, factor[:, None] * every[0]) and (factor > 0.0).all() else None


def _solve_reduced_union(
    names: tuple[str, ...],
    reduced: Sequence[ReducedAxis],
    numbers: NDArray[np.int64],
    weights: FloatArray,
    limits: UnionLimits,
    progress: Progress | None,
) -> SmallUnion:
    orbits = [len(r.axis.sizes) for r in reduced]
    kinds = (
        list(itertools.product(*(r.axis.kinds for r in reduced))) if _count_kind_tuples(reduced) <= _MAX_TUPLES else []
    )
    if not kinds or math.prod(orbits) > limits.orbits:
        raise PlanError(
            f"symmetries leave {math.prod(orbits):,} joint orbits of the cells and "
            f"{_count_kind_tuples(reduced):,} blocks, above "
            f"the limits of {limits.orbits:,} and {_MAX_TUPLES:,}"
        )
    work = sum(float(_count_orbit_rows(orbits, k)) ** 3 for k in kinds)
    if work > limits.work or len(kinds) * len(weights) > _MAX_TERMS:
        raise PlanError("the blocks that symmetries leave are too many and too large to optimise")
    held: list[tuple[int, ...]] = []
    blocks: list[DenseBlock] = []
    every = np.arange(math.prod(orbits)).reshape(orbits)
    for kind in kinds:
        gram = _block_gram(reduced, numbers, weights, kind)
        if gram.any():
            place = [slice(None) if k < 0 else r.axis.contrasts[k].orbit for r, k in zip(reduced, kind, strict=True)]
            held.append(kind)
            blocks.append(gram_block(gram, np.ascontiguousarray(every[tuple(place)]).reshape(-1)))
    if not blocks:
        raise PlanError("queries that count no cell have no optimum")
    found = solve_dual(blocks, cold_start(blocks), tolerance=limits.tolerance, max_iterations=100, progress=progress)
    axes = tuple(r.axis for r in reduced)
    fill = _FILL / len(blocks)
    pieces: list[UnionPiece] = []
    for kind, block, spectrum in zip(held, blocks, found.spectra, strict=True):
        few = limits is not QUICK and 2 * len(spectrum.roots) <= len(block.index)
        whole = _whole_rows(reduced, numbers, kind, len(spectrum.roots)) if few else None
        pieces.append(_solved_piece(axes, kind, block.index, spectrum, found, fill, whole))
    each = reduce(np.multiply.outer, [a.sizes for a in axes]).reshape(-1)
    whole = _block_gram(reduced, numbers, weights, (-1,) * len(axes))
    mean = math.sqrt(max(float(found.v @ whole @ found.v), 0.0))
    return SmallUnion(names, axes, tuple(pieces), found.lower, found.upper, float((found.v**2 / each).sum()), mean)


def _count_kind_tuples(reduced: Sequence[ReducedAxis]) -> int:
    return math.prod(1 + len(r.axis.contrasts) for r in reduced)


def _count_orbit_rows(orbits: Sequence[int], kind: Sequence[int]) -> int:
    return math.prod(m for m, k in zip(orbits, kind, strict=True) if k < 0)


def _block_gram(
    reduced: Sequence[ReducedAxis], numbers: NDArray[np.int64], weights: FloatArray, kind: Sequence[int]
) -> FloatArray:
    """c_t² K_t / (s_o s_o')^(1/2) of one block."""
    scale, wide = weights.copy(), list[int]()
    for i, (r, k) in enumerate(zip(reduced, kind, strict=True)):
        if k < 0:
            wide.append(i)
        else:
            contrast = r.axis.contrasts[k]
            scale *= r.numbers[numbers[:, i], k] * (contrast.multiplicity**2 / r.axis.sizes[contrast.orbit])
    out = np.zeros((_count_orbit_rows([len(r.axis.sizes) for r in reduced], kind),) * 2)
    used, which = np.unique(numbers[:, wide], axis=0, return_inverse=True)
    totals = np.bincount(which.reshape(-1), scale, len(used))
    for row, total in zip(used.tolist(), totals.tolist(), strict=True):
        if total != 0.0:
            means = [reduced[i].means[k] for i, k in zip(wide, row, strict=True)]
            out += total * reduce(kron, means, np.ones((1, 1)))
    return out


def _whole_rows(
    reduced: Sequence[ReducedAxis], numbers: NDArray[np.int64], kind: Sequence[int], rank: int
) -> Sparse | None:
    """Whole numbers that span what is asked of a kind; None where classes of orbits do not give so many.

    For what is little of very many orbits: to make such a block invertible takes as long as to solve it.
    """
    from scipy.sparse import csr_matrix, kron, vstack  # noqa: PLC0415  (slow to import)

    wide = [i for i, k in enumerate(kind) if k < 0]
    asked = [i for i, k in enumerate(kind) if k >= 0]
    told = [all(reduced[i].numbers[row[i], kind[i]] for i in asked) for row in numbers]
    stacked: list[Any] = []
    for row in np.unique(numbers[told][:, wide], axis=0).tolist():
        own: Any = csr_matrix(np.ones((1, 1), dtype=np.int64))
        try:
            for i, k in zip(wide, row, strict=True):
                own = kron(own, classes_of_orbits(reduced[i].means[k])[0], format="csr")
        except PlanError:
            return None
        stacked.append(own)
    rows = vstack(stacked).tocsr()
    kept = independent_row_basis(np.asarray(rows.todense(), dtype=np.int64))[0]
    return Sparse.of(rows[kept]) if len(kept) == rank else None


def _solved_piece(
    axes: Sequence[Axis],
    kind: tuple[int, ...],
    index: IntArray,
    spectrum: Spectrum,
    found: Solution,
    fill: float,
    whole: Sparse | None,
) -> UnionPiece:
    rows = (spectrum.vectors * np.sqrt(spectrum.roots)).T / np.sqrt(found.squares[index])
    rest = np.zeros((0, rows.shape[1]))
    if whole is not None:
        dense = np.asarray(whole.dense(), dtype=np.float64)
        rows = np.asarray(np.linalg.solve(dense @ dense.T, dense @ rows.T).T, dtype=np.float64)
    elif len(rows) < rows.shape[1]:
        # any rows that make it invertible will do: queries are combinations of the others alone
        rest = np.linalg.svd(rows, full_matrices=True)[2][len(rows) :]
        rows = np.concatenate([rows, math.sqrt(fill) * rest])
    inside = [(a, a.contrasts[k]) for a, k in zip(axes, kind, strict=True) if k >= 0]
    # sums over an orbit are longer than isometries by the root of its size, contrasts are not
    square = math.prod(float(a.sizes[c.orbit]) / c.multiplicity for a, c in inside)
    return UnionPiece(kind, rows * math.sqrt(square), rest, whole)


def classes_of_orbits(mean: FloatArray) -> tuple[Any, FloatArray]:
    """0/1 rows (k, m) over classes of orbits that span what a factor asks, and its Gram over these, (k, k)."""
    from scipy.sparse import csr_matrix  # noqa: PLC0415  (slow to import)

    rounded = np.round(mean / np.abs(mean).max(initial=1e-300), _DIGITS)
    _, first, codes = np.unique(rounded, axis=1, return_index=True, return_inverse=True)
    codes = codes.reshape(-1)
    held = np.flatnonzero(np.diagonal(mean)[first] > 0.0)
    inner = mean[np.ix_(first[held], first[held])]
    if not len(held) or np.linalg.matrix_rank(inner, hermitian=True) < len(held):
        raise PlanError("a factor has fewer dimensions than classes of orbits")
    return csr_matrix((codes == held[:, None]).astype(np.int64)), inner
