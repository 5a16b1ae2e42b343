"""The least mean squared error over very many distinct columns, few entries of which are not zero. [ENU20]

The dual of `dense.dual` in the space of the queries: with W = `columns` scaled by the roots of the weights, v on the
columns, M = W diag(v) Wᵀ and g_c = w_cᵀ M^(-1/2) w_c, tr M^(1/2) bounds the root of the summed errors from below, and
M^(-1/4) W attains (tr M^(1/2) max g)^(1/2). Tables and sets of cells touch few entries of a column, so M and g take as
many operations as W has entries, and a step is one eigendecomposition of M, however many the columns are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.designs.dense.blocks import squared, units
from sfumato.designs.dense.dual import relative_gap
from sfumato.ground.progress import Progress
from sfumato.operators.base import FloatArray
from sfumato.operators.blas import single_thread

__all__ = ["MAX_ROWS", "Sparse", "affordable", "independent", "optimize_sparse"]

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
class Sparse:
    """Coefficients (l, k) of the unweighted rows, no column longer than 1, and what its error lies between."""

    coefficients: FloatArray
    lower_bound: float
    upper_bound: float

    @property
    def gap(self) -> float:
        """upper_bound / lower_bound - 1."""
        return relative_gap(self.lower_bound, self.upper_bound)


def affordable(columns: NDArray[np.int64]) -> bool:
    """Whether a search over these columns (k, c) takes seconds."""
    rows = len(columns)
    return rows <= MAX_ROWS and columns.size <= _MOST_ENTRIES and rows * int(np.count_nonzero(columns)) <= _MOST_WORK


def optimize_sparse(
    columns: NDArray[np.int64], root: FloatArray, *, tolerance: float, progress: Progress | None = None
) -> Sparse:
    """The strategy of least error for the queries rootᵀ columns, to a gap of `tolerance`.

    `columns` (k, c); `root` (k,) the roots of the weights of the rows, or (k, s). Steps v <- v (g / t)^4, or ^2 after
    one that did not ascend. A search that ends above is no error: read `gap`.
    """
    from scipy.sparse import csc_matrix  # noqa: PLC0415  (slow to import)

    plain = root.ndim == 1
    scaled = csc_matrix(columns * root[:, None] if plain else columns.astype(np.float64))
    across = scaled.T.tocsr()
    v = _lengths(across, None if plain else root @ root.T)
    v, power, lower, best = v / v.sum(), _POWER, 0.0, (math.inf, np.zeros((0, len(columns))))
    reached, before, roundings = 0.0, v, units(len(v)) if plain else units(len(v)) + 2 * units(len(columns))
    with single_thread():
        for step in range(_STEPS):
            moment = np.asarray((scaled.multiply(v) @ across).todense(), dtype=np.float64)
            found = squared(moment if plain else root.T @ moment @ root, roundings)
            kept = found.roots > math.sqrt(_RANK) * found.roots.max()
            roots, vectors = found.roots[kept], found.vectors[:, kept]
            total = float(roots.sum())
            if total < reached:
                v, power, reached = before, _LEAST_POWER, 0.0
                continue
            reached, before, lower = total, v, max(lower, found.proved)
            turned = vectors if plain else root @ vectors
            lengths = _lengths(across, (turned / roots) @ turned.T)
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
    return Sparse(best[1], lower, best[0])


def _lengths(across: object, form: FloatArray | None) -> FloatArray:
    """(c,) w_cᵀ form w_c of every column, of its squared length without a form."""
    rows: int = across.shape[0]  # pyright: ignore[reportAttributeAccessIssue]
    out = np.empty(rows)
    for a in range(0, rows, _CHUNK):
        some = across[a : a + _CHUNK]  # pyright: ignore[reportIndexIssue]
        out[a : a + _CHUNK] = np.asarray(some.multiply(some if form is None else some @ form).sum(axis=1)).reshape(-1)
    return out


def independent(columns: NDArray[np.int64]) -> tuple[NDArray[np.intp], FloatArray]:
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
