"""Queries over very many distinct columns of few entries: the optimum by steps of the columns' weights alone.

What is measured are rows of the queries that are independent; and which tables some queries nearly tell.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sfumato._util.display import Progress
from sfumato.operators import Block, Identity, LinearOperator
from sfumato.operators.base import FloatArray, single_thread
from sfumato.strategies.dense_blocks import Spectrum, clear_basis, rounding_units, spectrum_of_square
from sfumato.strategies.dense_dual import BoundedOptimum, relative_gap


def independent_rows(rows: FloatArray) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """Numbers of linearly independent rows that span all, ascending."""
    from scipy.linalg import qr  # noqa: PLC0415  (slow to import)

    norms = np.linalg.norm(rows, axis=1)
    rows = rows / np.maximum(norms, 1e-300)[:, None]
    with single_thread():
        # of counts nearly always, at half the time
        clear = clear_basis(rows, rows @ rows.T)
        if clear is not None:
            return clear.kept
        factor, pivots = qr(rows.T, mode="r", pivoting=True)
    pivot = np.abs(np.diagonal(factor))
    rank = int((pivot > pivot[0] * max(rows.shape) * float(np.finfo(np.float64).eps)).sum())
    return np.sort(np.asarray(pivots[:rank], dtype=np.intp))


_MOST_CELLS = 1_024  # of a factor whose Gram is looked at: 8 MB


def nearly_known(blocks: Sequence[Block]) -> set[frozenset[str]]:
    """The attributes of the marginal tables that some block of several tells but for a cell of each attribute."""
    out: set[frozenset[str]] = set()
    for block in blocks:
        pairs = zip(block.groups, block.factors, strict=True)
        known = [g[0] for g, f in pairs if len(g) == 1 and _tells_nearly_all(f)]
        for size in range(len(known) + 1):
            out |= set(map(frozenset, itertools.combinations(known, size)))
    return out


def _tells_nearly_all(factor: LinearOperator) -> bool:
    """Whether the rows of a factor tell all its cells, given one number more at most."""
    cells = factor.shape[1]
    if not 1 < cells <= _MOST_CELLS:
        return False
    gram = np.asarray(factor.gram().dense(), dtype=np.float64)
    return isinstance(factor, Identity) or int(np.linalg.matrix_rank(gram, hermitian=True)) >= cells - 1


MAX_ROWS = 1_536  # of M, which is factored in every step: a second
_MOST_ENTRIES = 2**25  # of all columns, which the price looks at, zero or not: 256 MB, as many as it takes
_MOST_WORK = 800_000_000  # rows times entries that are not zero: a step of about a second
_STEPS = 60  # of the unions in bench/unions_drawn.py, the gap is a thousandth or two by then
# of g / t: the square always ascends, the fourth power does so twice as fast nearly always
_POWER, _LEAST_POWER = 4.0, 2.0
_CHUNK = 4_096  # columns whose g is found together: 32 MB at most
_RANK = 1e-12  # of an eigenvalue, relative: those of counts are 0 or far above, and rounding is below 1e-13
_MARGIN = 1e-10  # relative, of an upper bound that is a sum of positive numbers


@dataclass(frozen=True, slots=True)
class SparseOptimum(BoundedOptimum):
    """Coefficients (l, k) of the unweighted rows, no column longer than 1, and what its error lies between."""

    coefficients: FloatArray
    lower_bound: float
    upper_bound: float


@dataclass(frozen=True, eq=False)
class SparseRows:
    """Rows Q (r, l), sparse, at the weights `at` of their columns, all of them where that is None.

    What is asked of them is Lᵀ Q, `root` L (r, s); Q itself where that is None.
    """

    rows: Any
    at: NDArray[np.intp] | None = None
    root: FloatArray | None = None

    @functools.cached_property
    def columns(self) -> Any:
        """Qᵀ, (l, r)."""
        return self.rows.T.tocsr()

    def spectrum(self, v: FloatArray, least: float) -> Spectrum:
        """That of M = Lᵀ Q diag(v) Qᵀ L, without roots below `least` of the largest."""
        own = v if self.at is None else v[self.at]
        moment = np.asarray((self.rows.multiply(own) @ self.columns).todense(), dtype=np.float64)
        roundings = rounding_units(len(v))
        if self.root is not None:
            moment = self.root.T @ moment @ self.root
            roundings += 2 * rounding_units(len(self.root))
        found = spectrum_of_square(moment, roundings)
        kept = found.roots > least * found.roots.max()
        return Spectrum(found.vectors[:, kept], found.roots[kept], found.proved)

    def across(self, spectrum: Spectrum) -> FloatArray:
        """L times the vectors."""
        return spectrum.vectors if self.root is None else self.root @ spectrum.vectors

    def lengths(self, spectrum: Spectrum) -> FloatArray:
        """q_oᵀ L M^(-1/2) Lᵀ q_o of every column."""
        turned = self.across(spectrum)
        form, out = (turned / spectrum.roots) @ turned.T, np.empty(self.rows.shape[1])
        for a in range(0, len(out), _CHUNK):
            some = self.columns[a : a + _CHUNK]
            out[a : a + _CHUNK] = np.asarray(some.multiply(some @ form).sum(axis=1)).reshape(-1)
        return out


class RowOptimum(NamedTuple):
    """Two bounds on the least error; the strategy (s, r) over each kind of rows; the weights that prove the lower."""

    lower: float
    upper: float
    strategies: list[FloatArray]
    proof: FloatArray


def climb_row_weights(
    kinds: Sequence[SparseRows],
    v: FloatArray,
    *,
    tolerance: float,
    steps: int,
    least: float = 0.0,
    rank: float = 0.0,
    progress: Progress | None = None,
) -> RowOptimum:
    """The optimum of kinds of rows whose squared columns add up, from weights v on, to a gap of `tolerance`.

    Steps v <- v (g / t)^4, or ^2 after one that did not ascend, t the sum of the nuclear norms and g the `lengths`.
    """
    v, power, lower, reached = v / v.sum(), _POWER, 0.0, 0.0
    before, proof, best = v, v, (math.inf, list[FloatArray]())
    for step in range(steps):
        spectra = [k.spectrum(v, rank) for k in kinds]
        total = float(sum(s.roots.sum() for s in spectra))
        if total < reached:
            v, power, reached = before, _LEAST_POWER, 0.0
            continue
        reached, before, proved = total, v, sum(s.proved for s in spectra)
        if proved > lower:
            lower, proof = proved, v
        lengths = np.zeros(len(v))
        for kind, spectrum in zip(kinds, spectra, strict=True):
            lengths[slice(None) if kind.at is None else kind.at] += kind.lengths(spectrum)
        top = float(lengths.max())
        upper = math.sqrt(total * top) * (1 + _MARGIN)
        if upper < best[0]:
            best = upper, rows_of_kinds(kinds, spectra, top)
        if progress is not None:
            progress(step + 1, relative_gap(lower, best[0]))
        if best[0] <= lower * (1 + tolerance):
            break
        v = np.maximum(v * (lengths / total) ** power, least / len(v))
        v /= v.sum()
    return RowOptimum(lower, best[0], best[1], proof)


def rows_of_kinds(kinds: Sequence[SparseRows], spectra: Sequence[Spectrum], top: float) -> list[FloatArray]:
    """What is measured of each kind, where the longest column is to be 1 and has the square `top`."""
    return [(k.across(s) / np.sqrt(s.roots * top)).T for k, s in zip(kinds, spectra, strict=True)]


def sparse_search_fits(columns: NDArray[np.int64]) -> bool:
    """Whether a search over these columns (k, c) takes seconds."""
    rows = len(columns)
    return rows <= MAX_ROWS and columns.size <= _MOST_ENTRIES and rows * int(np.count_nonzero(columns)) <= _MOST_WORK


def optimize_sparse(
    columns: NDArray[np.int64], root: FloatArray, *, tolerance: float, progress: Progress | None = None
) -> SparseOptimum:
    """The strategy of least error for the queries diag(root) columns, to a gap of `tolerance`.

    `columns` (k, c); `root` (k,) the roots of the weights of the rows. A search that ends above is no error: read
    `gap`.
    """
    from scipy.sparse import csc_matrix  # noqa: PLC0415  (slow to import)

    scaled = csc_matrix(columns * root[:, None])
    with single_thread():
        found = climb_row_weights(
            [SparseRows(scaled)],
            np.asarray(scaled.multiply(scaled).sum(axis=0)).reshape(-1),
            tolerance=tolerance,
            steps=_STEPS,
            rank=math.sqrt(_RANK),
            progress=progress,
        )
    return SparseOptimum(found.strategies[0] * root, found.lower, found.upper)


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
