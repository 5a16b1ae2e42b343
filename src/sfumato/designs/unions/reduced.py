"""The best strategy for a union of Kronecker products, from the small problem that its symmetries leave.

W stacks sqrt(w_p) (⊗_i W_pi), (k, n). In the bases of axes.py WᵀW falls into blocks, one for each choice t of the
orbits or one contrast on every attribute:

    K_t = sum_p w_p ⊗_(orbits) Gram ⊗_(contrasts) number,   met prod (dimensions of the contrasts) times.

By convexity the best strategy may be taken with the same symmetries: A_t = M_t ⊗ (sums over orbits) ⊗ (contrasts).
The dual weights of cells are constant on orbits. With v_o the weight of a joint orbit o, s_o its cells and c_t the
multiplicity, the problem is that of dual.py with blocks c_t² K_t / (s_o s_o')^(1/2), and X_t = c_t M_tᵀM_t.

Attributes on which all products have one Gram, up to a factor, are apart: the optimum of ⊗ is the product.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sfumato.designs.dense.blocks import Block, IntArray, Spectrum, gram_block
from sfumato.designs.dense.dual import Solution, cold_start, solve
from sfumato.designs.merged.sparse import independent
from sfumato.designs.unions.axes import Axis, Reduced, reduce_axis
from sfumato.errors import PlanError
from sfumato.ground.progress import Progress
from sfumato.operators import LinearOperator, Sparse, Total
from sfumato.operators.base import FloatArray
from sfumato.operators.blas import single_thread

__all__ = [
    "LARGE",
    "QUICK",
    "Limits",
    "Piece",
    "Product",
    "SmallUnion",
    "Solver",
    "classes_of_orbits",
    "number",
    "solve_union",
]

Product = tuple[float, Mapping[str, LinearOperator]]
"""A weight of squared errors, and a factor per attribute; others are summed out."""


class Limits(NamedTuple):
    """Up to which size a problem is solved, and to which gap.

    cells: of an attribute that is looked through for symmetries; orbits: joint ones, which are dual variables and rows
    of the largest block; work: the sum of the cubes of the sizes of the blocks.
    """

    cells: int
    orbits: int
    work: float
    tolerance: float


QUICK = Limits(1_500, 600, 2e8, 1e-7)  # a second at most
LARGE = Limits(2_048, 2_048, 2e10, 1e-3)  # a step takes seconds, of which there are some seven; plans show no more
_MAX_TUPLES = 20_000  # joint kinds are Python tuples, listed and compared
_MAX_MEASURED = 4_096  # blocks to measure, each with arrays of its own
_MAX_TERMS = 2_000_000  # blocks times products
_DIGITS = 12  # of means: equal but for rounding
_FILL = 2e-7  # price of what only makes blocks invertible, over all of them


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
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
    pieces: tuple[Piece, ...]
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
    limits: Limits = QUICK,
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
    chosen = [[number(known[a], factors.get(a) or Total(sizes[a])) for a in names] for _, factors in products]
    numbers, weights = np.array(chosen, dtype=np.int64), np.array([w for w, _ in products])
    reduced = [reduce_axis(known[a]) for a in names]
    together: list[int] = []
    alone: list[int] = []
    for i, r in enumerate(reduced):
        factor = _common(r)
        if factor is None:
            together.append(i)
            continue
        weights = weights * factor[numbers[:, i]]
        reduced[i], numbers[:, i] = Reduced(r.axis, r.means[:1], r.numbers[:1]), 0
        alone.append(i)
    if not together:
        together.append(alone.pop(0))
    with single_thread():
        found = [
            _solve(
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
    return (*(u for u in found if not u.numbers), *([reduce(_times, numbers_alone)] if numbers_alone else []))


def _times(first: SmallUnion, second: SmallUnion) -> SmallUnion:
    """The same over the attributes of both, all of whose pieces are numbers."""
    pairs = itertools.product(first.pieces, second.pieces)
    return SmallUnion(
        first.names + second.names,
        first.axes + second.axes,
        tuple(Piece(a.kinds + b.kinds, a.matrix * b.matrix, a.beyond) for a, b in pairs),
        first.lower * second.lower,
        first.upper * second.upper,
        first.square * second.square,
        first.mean * second.mean,
    )


def number(known: list[LinearOperator], factor: LinearOperator) -> int:
    for k, other in enumerate(known):
        if other is factor or (type(other) is type(factor) and other == factor):
            return k
    known.append(factor)
    return len(known) - 1


def _common(r: Reduced) -> FloatArray | None:
    """(r,) what the Grams are of the first one, where they all are multiples of it; exactly."""
    every = np.concatenate([r.means.reshape(len(r.means), -1), r.numbers], axis=1)
    place = int(np.argmax(np.abs(every[0])))
    if every[0, place] == 0.0:
        return None
    factor = every[:, place] / every[0, place]
    return factor if np.array_equal(every, factor[:, None] * every[0]) and (factor > 0.0).all() else None


def _solve(
    names: tuple[str, ...],
    reduced: Sequence[Reduced],
    numbers: NDArray[np.int64],
    weights: FloatArray,
    limits: Limits,
    progress: Progress | None,
) -> SmallUnion:
    orbits = [len(r.axis.sizes) for r in reduced]
    kinds = list(itertools.product(*(r.axis.kinds for r in reduced))) if _tuples(reduced) <= _MAX_TUPLES else []
    if not kinds or math.prod(orbits) > limits.orbits:
        raise PlanError(
            f"symmetries leave {math.prod(orbits):,} joint orbits of the cells and {_tuples(reduced):,} blocks, above "
            f"the limits of {limits.orbits:,} and {_MAX_TUPLES:,}"
        )
    work = sum(float(_rows(orbits, k)) ** 3 for k in kinds)
    if work > limits.work or len(kinds) * len(weights) > _MAX_TERMS:
        raise PlanError("the blocks that symmetries leave are too many and too large to optimise")
    held: list[tuple[int, ...]] = []
    blocks: list[Block] = []
    every = np.arange(math.prod(orbits)).reshape(orbits)
    for kind in kinds:
        gram = _gram(reduced, numbers, weights, kind)
        if gram.any():
            place = [slice(None) if k < 0 else r.axis.contrasts[k].orbit for r, k in zip(reduced, kind, strict=True)]
            held.append(kind)
            blocks.append(gram_block(gram, np.ascontiguousarray(every[tuple(place)]).reshape(-1)))
    if not blocks:
        raise PlanError("queries that count no cell have no optimum")
    found = solve(blocks, cold_start(blocks), tolerance=limits.tolerance, max_iterations=100, progress=progress)
    axes = tuple(r.axis for r in reduced)
    fill = _FILL / len(blocks)
    pieces: list[Piece] = []
    for kind, block, spectrum in zip(held, blocks, found.spectra, strict=True):
        few = limits is not QUICK and 2 * len(spectrum.roots) <= len(block.index)
        whole = _whole_rows(reduced, numbers, kind, len(spectrum.roots)) if few else None
        pieces.append(_piece(axes, kind, block.index, spectrum, found, fill, whole))
    each = reduce(np.multiply.outer, [a.sizes for a in axes]).reshape(-1)
    whole = _gram(reduced, numbers, weights, (-1,) * len(axes))
    mean = math.sqrt(max(float(found.v @ whole @ found.v), 0.0))
    return SmallUnion(names, axes, tuple(pieces), found.lower, found.upper, float((found.v**2 / each).sum()), mean)


def _tuples(reduced: Sequence[Reduced]) -> int:
    return math.prod(1 + len(r.axis.contrasts) for r in reduced)


def _rows(orbits: Sequence[int], kind: Sequence[int]) -> int:
    return math.prod(m for m, k in zip(orbits, kind, strict=True) if k < 0)


def _gram(
    reduced: Sequence[Reduced], numbers: NDArray[np.int64], weights: FloatArray, kind: Sequence[int]
) -> FloatArray:
    """c_t² K_t / (s_o s_o')^(1/2) of one block."""
    scale, wide = weights.copy(), list[int]()
    for i, (r, k) in enumerate(zip(reduced, kind, strict=True)):
        if k < 0:
            wide.append(i)
        else:
            contrast = r.axis.contrasts[k]
            scale *= r.numbers[numbers[:, i], k] * (contrast.multiplicity**2 / r.axis.sizes[contrast.orbit])
    out = np.zeros((_rows([len(r.axis.sizes) for r in reduced], kind),) * 2)
    used, which = np.unique(numbers[:, wide], axis=0, return_inverse=True)
    totals = np.bincount(which.reshape(-1), scale, len(used))
    for row, total in zip(used.tolist(), totals.tolist(), strict=True):
        if total != 0.0:
            means = [reduced[i].means[k] for i, k in zip(wide, row, strict=True)]
            out += total * reduce(np.kron, means, np.ones((1, 1)))
    return out


def _whole_rows(
    reduced: Sequence[Reduced], numbers: NDArray[np.int64], kind: Sequence[int], rank: int
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
    kept = independent(np.asarray(rows.todense(), dtype=np.int64))[0]
    return Sparse.of(rows[kept]) if len(kept) == rank else None


def _piece(
    axes: Sequence[Axis],
    kind: tuple[int, ...],
    index: IntArray,
    spectrum: Spectrum,
    found: Solution,
    fill: float,
    whole: Sparse | None,
) -> Piece:
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
    return Piece(kind, rows * math.sqrt(square), rest, whole)


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
