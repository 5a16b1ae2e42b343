"""Few whole rows that span what very many queries ask for: the classes of cells that their factors tell apart.

All ranges of 24 cells times all ranges of 16 are 40,800 queries over 384 cells. What is measured may be any whole rows
of the same span, so a block is replaced by one of the classes of cells that are equal in each of its factors, or, where
a factor has fewer dimensions than that, by independent rows of it; a block within the span of another one needs none.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from sfumato._util.display import Progress
from sfumato.operators import Block, Dense, Grouping, Identity, LinearOperator
from sfumato.operators.base import FloatArray, kron, single_thread
from sfumato.strategies.dense_blocks import rounding_units, spectrum_of_square
from sfumato.strategies.dense_dual import BoundedOptimum, relative_gap
from sfumato.strategies.design import Problem

_MOST_CELLS = 1_024  # of one factor, whose Gram is looked at: 8 MB; of more, its rows, where these are no more
_LISTED = 2**22  # entries of a factor whose rows are written out
_SPAN = 1e-9  # relative: entries of Grams are whole numbers, so what lies in a span is off by rounding alone


@dataclass(frozen=True, slots=True)
class Spanned:
    """Whole rows Q of `blocks`, (r, cells), and `root` (r, s): WᵀW = Qᵀ root rootᵀ Q for the weighted queries W."""

    blocks: tuple[Block, ...]
    root: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class _RowSpan:
    """Rows B (k, n) that span a factor's, and P (n, k) with B P = I: of any C B, C = (C B) P."""

    operator: LinearOperator
    rows: FloatArray
    pick: FloatArray

    def inner(self, factor: LinearOperator | None) -> FloatArray | None:
        """CᵀC of a factor C B, or of the total where it is None; None where the factor has no such rows."""
        cells = self.rows.shape[1]
        if cells > _MOST_CELLS:
            asked = np.ones((1, cells)) if factor is None else np.asarray(factor.dense(), dtype=np.float64)
            found = asked @ self.pick
            return found.T @ found if np.abs(found @ self.rows - asked).max() <= _SPAN * np.abs(asked).max() else None
        gram = np.ones((cells, cells)) if factor is None else _dense_gram(factor)
        held = self.pick.T @ gram @ self.pick
        off = float(np.abs(self.rows.T @ held @ self.rows - gram).max())
        return held if off <= _SPAN * float(np.abs(gram).max()) else None


Groups = dict[tuple[str, ...], LinearOperator]


def span_queries(problem: Problem, most: int) -> Spanned | None:
    """At most `most` rows; None where there would be more, or some factor is too large to be looked through."""
    blocks = [(problem.objective_weight(q), q.block) for q in problem.workload.blocks]
    if any(b.rows > most and all(isinstance(f, Identity) for f in b.factors) for _, b in blocks):
        return None
    known: list[tuple[LinearOperator, _RowSpan]] = []
    asked: list[tuple[float, Groups]] = []
    spans: list[dict[tuple[str, ...], _RowSpan]] = []
    for weight, block in blocks:
        own = dict[tuple[str, ...], _RowSpan]()
        for group, factor in zip(block.groups, block.factors, strict=True):
            found = next((s for f, s in known if f is factor or f == factor), None) or _factor_span(factor)
            if found is None:
                return None
            known.append((factor, found))
            own[group] = found
        asked.append((weight, dict(zip(block.groups, block.factors, strict=True))))
        spans.append(own)
    moments: list[tuple[dict[tuple[str, ...], _RowSpan], FloatArray]] = []
    with single_thread():
        for i in sorted(range(len(spans)), key=lambda i: -_count_span_rows(spans[i])):
            weight, factors = asked[i]
            inside = ((at, _span_inner_grams(s, factors)) for at, (s, _) in enumerate(moments))
            at, parts = next((m for m in inside if m[1] is not None), (len(moments), None))
            if parts is None:
                parts = _span_inner_grams(spans[i], factors)
                if parts is None or sum(len(m) for _, m in moments) + _count_span_rows(spans[i]) > most:
                    return None
                moments.append((spans[i], np.zeros((_count_span_rows(spans[i]),) * 2)))
            moments[at][1][...] += weight * reduce(kron, parts, np.ones((1, 1)))
        return Spanned(tuple(_span_block(s) for s, _ in moments), _moment_roots([m for _, m in moments]))


def _count_span_rows(span: dict[tuple[str, ...], _RowSpan]) -> int:
    return math.prod(len(s.rows) for s in span.values())


def _span_block(span: dict[tuple[str, ...], _RowSpan]) -> Block:
    return Block(tuple(span), tuple(s.operator for s in span.values()))


def _span_inner_grams(span: dict[tuple[str, ...], _RowSpan], factors: Groups) -> list[FloatArray] | None:
    """Per group the Gram of a product's coefficients over the span's rows; None where it is not in the span."""
    if not factors.keys() <= span.keys():
        return None
    out: list[FloatArray] = []
    for group, own in span.items():
        inner = own.inner(factors.get(group))
        if inner is None:
            return None
        out.append(inner)
    return out


def _dense_gram(factor: LinearOperator) -> FloatArray:
    return np.asarray(factor.gram().dense(), dtype=np.float64)


def _factor_span(factor: LinearOperator) -> _RowSpan | None:
    """Sums over classes of equal cells, or rows of its own where these are more than it has dimensions."""
    cells = factor.shape[1]
    if cells > _MOST_CELLS:
        few = factor.shape[0] <= _MOST_CELLS and not isinstance(factor, Identity)
        return _independent_factor_rows(factor) if few else None
    gram = _dense_gram(factor)
    first, codes = np.unique(gram, axis=1, return_index=True, return_inverse=True)[1:]
    codes = codes.reshape(-1)
    kept = first[np.diagonal(gram)[first] > 0.0]
    if not len(kept):
        return None
    if np.linalg.matrix_rank(gram[np.ix_(kept, kept)], hermitian=True) == len(kept):
        kept = np.sort(kept)
        number = np.full(len(first), -1, dtype=np.int64)
        number[codes[kept]] = np.arange(len(kept))
        classes = number[codes]
        operator = Identity(cells) if len(kept) == cells else Grouping(classes, len(kept))
        return _RowSpan(operator, (classes == np.arange(len(kept))[:, None]).astype(np.float64), np.eye(cells)[:, kept])
    return _independent_factor_rows(factor)


def _independent_factor_rows(factor: LinearOperator) -> _RowSpan | None:
    """Independent rows of a factor; None where it is too large to be written out."""
    if factor.shape[0] * factor.shape[1] > _LISTED:
        return None
    whole = np.asarray(factor.dense(), dtype=np.float64)
    rows = whole[independent_rows(whole)]
    return _RowSpan(Dense(np.rint(rows).astype(np.int64)), rows, np.asarray(np.linalg.pinv(rows), dtype=np.float64))


def _moment_roots(moments: Sequence[FloatArray]) -> FloatArray:
    """Block by block a root of each; directions of which nothing is asked have none."""
    roots: list[FloatArray] = []
    for moment in moments:
        values, vectors = np.linalg.eigh(moment)
        kept = values > len(values) * np.finfo(np.float64).eps * values[-1]
        roots.append(vectors[:, kept] * np.sqrt(values[kept]))
    out = np.zeros((sum(len(r) for r in roots), sum(r.shape[1] for r in roots)))
    row = column = 0
    for root in roots:
        out[row : row + len(root), column : column + root.shape[1]] = root
        row, column = row + len(root), column + root.shape[1]
    return out


def independent_rows(rows: FloatArray) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """Numbers of linearly independent rows that span all, ascending."""
    from scipy.linalg import qr  # noqa: PLC0415  (slow to import)

    norms = np.linalg.norm(rows, axis=1)
    with single_thread():
        factor, pivots = qr((rows / np.maximum(norms, 1e-300)[:, None]).T, mode="r", pivoting=True)
    pivot = np.abs(np.diagonal(factor))
    rank = int((pivot > pivot[0] * max(rows.shape) * float(np.finfo(np.float64).eps)).sum())
    return np.sort(np.asarray(pivots[:rank], dtype=np.intp))


def nearly_known(blocks: Sequence[Block]) -> set[frozenset[str]]:
    """The attributes of the marginal tables that some block of several tells but for a cell of each attribute."""
    out: set[frozenset[str]] = set()
    for block in blocks:
        found = {g: _factor_span(f) for g, f in zip(block.groups, block.factors, strict=True)}
        known = [
            g[0] for g, s in found.items() if len(g) == 1 and s is not None and 1 < s.rows.shape[1] <= len(s.rows) + 1
        ]
        for size in range(len(known) + 1):
            out |= set(map(frozenset, itertools.combinations(known, size)))
    return out


MAX_ROWS = 1_536  # of M, which is factored in every step: a second
_MOST_ENTRIES = 2**25  # of all columns, which the price looks at, zero or not: 256 MB, as many as it takes
_MOST_WORK = 800_000_000  # rows times entries that are not zero: a step of about a second
_STEPS = 60  # of the unions in bench/unions_drawn.py, the gap is a thousandth or two by then
_POWER, _LEAST_POWER = (
    4.0,
    2.0,
)  # of g / t: the square always ascends, the fourth power does so twice as fast nearly always
_CHUNK = 4_096  # columns whose g is found together: 32 MB at most
_RANK = 1e-12  # of an eigenvalue, relative: those of counts are 0 or far above, and rounding is below 1e-13
_MARGIN = 1e-10  # relative, of an upper bound that is a sum of positive numbers


@dataclass(frozen=True, slots=True)
class SparseOptimum(BoundedOptimum):
    """Coefficients (l, k) of the unweighted rows, no column longer than 1, and what its error lies between."""

    coefficients: FloatArray
    lower_bound: float
    upper_bound: float


def sparse_search_fits(columns: NDArray[np.int64]) -> bool:
    """Whether a search over these columns (k, c) takes seconds."""
    rows = len(columns)
    return rows <= MAX_ROWS and columns.size <= _MOST_ENTRIES and rows * int(np.count_nonzero(columns)) <= _MOST_WORK


def optimize_sparse(
    columns: NDArray[np.int64], root: FloatArray, *, tolerance: float, progress: Progress | None = None
) -> SparseOptimum:
    """The strategy of least error for the queries rootᵀ columns, to a gap of `tolerance`.

    `columns` (k, c); `root` (k,) the roots of the weights of the rows, or (k, s). Steps v <- v (g / t)^4, or ^2 after
    one that did not ascend. A search that ends above is no error: read `gap`.
    """
    from scipy.sparse import csc_matrix  # noqa: PLC0415  (slow to import)

    plain = root.ndim == 1
    scaled = csc_matrix(columns * root[:, None] if plain else columns.astype(np.float64))
    across = scaled.T.tocsr()
    v = _column_form_lengths(across, None if plain else root @ root.T)
    v, power, lower, best = v / v.sum(), _POWER, 0.0, (math.inf, np.zeros((0, len(columns))))
    reached, before, roundings = (
        0.0,
        v,
        rounding_units(len(v)) if plain else rounding_units(len(v)) + 2 * rounding_units(len(columns)),
    )
    with single_thread():
        for step in range(_STEPS):
            moment = np.asarray((scaled.multiply(v) @ across).todense(), dtype=np.float64)
            found = spectrum_of_square(moment if plain else root.T @ moment @ root, roundings)
            kept = found.roots > math.sqrt(_RANK) * found.roots.max()
            roots, vectors = found.roots[kept], found.vectors[:, kept]
            total = float(roots.sum())
            if total < reached:
                v, power, reached = before, _LEAST_POWER, 0.0
                continue
            reached, before, lower = total, v, max(lower, found.proved)
            turned = vectors if plain else root @ vectors
            lengths = _column_form_lengths(across, (turned / roots) @ turned.T)
            upper = math.sqrt(total * float(lengths.max())) * (1 + _MARGIN)
            if upper < best[0]:
                scale = np.sqrt(roots * float(lengths.max()))
                best = upper, (turned / scale).T * root if plain else (turned / scale).T
            if progress is not None:
                progress(step + 1, relative_gap(lower, best[0]))
            if best[0] <= lower * (1 + tolerance):
                break
            v = v * (lengths / total) ** power
            v /= v.sum()
    return SparseOptimum(best[1], lower, best[0])


def _column_form_lengths(across: object, form: FloatArray | None) -> FloatArray:
    """(c,) w_cᵀ form w_c of every column, of its squared length without a form."""
    rows: int = across.shape[0]  # pyright: ignore[reportAttributeAccessIssue]
    out = np.empty(rows)
    for a in range(0, rows, _CHUNK):
        some = across[a : a + _CHUNK]  # pyright: ignore[reportIndexIssue]
        out[a : a + _CHUNK] = np.asarray(some.multiply(some if form is None else some @ form).sum(axis=1)).reshape(-1)
    return out


def independent_row_basis(columns: NDArray[np.int64]) -> tuple[NDArray[np.intp], FloatArray]:
    """(numbers of independent rows that span all, ascending; (k, r) all rows as combinations of these).

    From the Gram of the rows: whole numbers, so exact where it matters.
    """
    from scipy.linalg.lapack import dpstrf  # noqa: PLC0415  (slow to import)

    real = columns.astype(np.float64)
    with single_thread():
        gram = real @ real.T
        norms = np.sqrt(np.maximum(np.diagonal(gram), 1e-300))
        _, pivots, rank, _ = dpstrf(gram / norms / norms[:, None], tol=math.sqrt(_RANK))
        kept = np.sort(np.asarray(pivots[:rank], dtype=np.intp) - 1)
        back = np.asarray(np.linalg.solve(gram[np.ix_(kept, kept)], gram[kept]).T, dtype=np.float64)
    return kept, back
