"""The best strategy for unions whose symmetries leave too many joint orbits, but few rows of queries over them.

All tables of two attributes beside a few counts: thousands of joint orbits (see reduced.py), of which all queries ask
no more than some hundred sums. With Q_t independent 0/1 rows that span what is asked of kind t, H_t = L_t L_tᵀ the
Gram of the queries over these, and M_t = L_tᵀ Q_t diag(v) Q_tᵀ L_t, weights v of sum 1 on the joint orbits prove

    sum_t tr M_t^(1/2),      and M_t^(-1/4) L_tᵀ Q_t attains      (sum_t tr M_t^(1/2) max_o g_o)^(1/2),

g_o = sum_t q_oᵀ L_t M_t^(-1/2) L_tᵀ q_o. Nothing has more rows than the queries leave, and v <- v (g / t)^4 climbs,
or ^2 after a step that did not, as in `merged.sparse`. What is measured are whole combinations of the rows of Q.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.designs.dense.blocks import Spectrum, squared, units
from sfumato.designs.dense.dual import relative_gap
from sfumato.designs.merged.sparse import independent
from sfumato.designs.unions.axes import Reduced, reduce_axis
from sfumato.designs.unions.orbit_bound import shares
from sfumato.designs.unions.reduced import Piece, Product, SmallUnion, classes_of_orbits, number
from sfumato.errors import PlanError
from sfumato.ground.progress import Progress
from sfumato.operators import LinearOperator, Sparse, Total
from sfumato.operators.base import FloatArray
from sfumato.operators.blas import single_thread

__all__ = ["solve_rows"]

_MOST_SIDE = 400  # cells of an attribute that is looked through for symmetries
_MOST_CELLS = 100_000  # joint ones: the price is the longest of their columns
_MOST_ORBITS = 12_000  # joint ones: a matrix of all rows at each of them is measured
_MOST_ROWS = 1_024  # of one kind: a step decomposes a matrix of that size
_MOST_ENTRIES = 2**23  # of what is measured, over joint orbits: 64 MB
_MOST_KINDS = 400  # each is decomposed by itself in every step
_TOLERANCE = 2e-3  # gap at which the search ends
_WORK = 1e11  # operations of all steps, about: ten seconds
_MOST_STEPS = 300  # a tenth of these is the rule; what ends there says its gap
_POWER, _LEAST_POWER = 4.0, 2.0  # of g / t: the square always ascends
_LEAST = 1e-9  # weight of all orbits that hardly count: they may count again
_MARGIN = 1e-10  # relative, of an upper bound that is a sum of positive numbers


@dataclass(frozen=True, slots=True)
class _Kind:
    """Rows Q (r, l), sparse, at the joint orbits `at`, and L (r, r) with L Lᵀ the Gram of what is asked over them."""

    kinds: tuple[int, ...]
    rows: Any
    at: NDArray[np.intp]
    root: FloatArray

    def moment(self, v: FloatArray) -> FloatArray:
        held = np.asarray((self.rows.multiply(v[self.at]) @ self.rows.T).todense(), dtype=np.float64)
        return self.root.T @ held @ self.root

    def lengths(self, spectrum: Spectrum) -> FloatArray:
        """q_oᵀ L M^(-1/2) Lᵀ q_o of every orbit."""
        turned = self.root @ spectrum.vectors
        across = self.rows.T.tocsr()
        form = (turned / spectrum.roots) @ turned.T
        return np.asarray(across.multiply(across @ form).sum(axis=1)).reshape(-1)


def solve_rows(
    products: Sequence[Product], sizes: Mapping[str, int], *, progress: Progress | None = None
) -> tuple[SmallUnion, ...]:
    """Near the optimum under add-remove, over all attributes together; `lower` and `upper` say how near.

    Raises PlanError where there are too many orbits, rows or kinds, or rows are no sums over classes of orbits.
    """
    names = tuple(a for a in sizes if any(a in factors for _, factors in products))
    if not names or max(sizes[a] for a in names) > _MOST_SIDE or math.prod(sizes[a] for a in names) > _MOST_CELLS:
        raise PlanError("too many cells to look for symmetries in")
    known: dict[str, list[LinearOperator]] = {a: [] for a in names}
    numbers = [tuple(number(known[a], factors.get(a) or Total(sizes[a])) for a in names) for _, factors in products]
    axes = [reduce_axis(known[a]) for a in names]
    if math.prod(len(r.axis.sizes) for r in axes) > _MOST_ORBITS:
        raise PlanError("symmetries leave too many joint orbits")
    with single_thread():
        kinds = _kinds(axes, numbers, [w for w, _ in products])
        return (_searched(names, axes, kinds, progress),)


def _kinds(axes: Sequence[Reduced], numbers: Sequence[tuple[int, ...]], weights: Sequence[float]) -> list[_Kind]:
    from scipy.sparse import csr_matrix, kron, vstack  # noqa: PLC0415  (slow to import)

    given = shares(axes, numbers, weights)
    if len(given) > _MOST_KINDS:
        raise PlanError("symmetries leave too many kinds")
    asked = {(i, k) for parts in given.values() for wide in parts for i, k in enumerate(wide) if k >= 0}
    known = {(i, k): classes_of_orbits(axes[i].means[k]) for i, k in sorted(asked)}
    orbits = [len(r.axis.sizes) for r in axes]
    entries = 0
    for kind, parts in given.items():  # told before any is built
        count = sum(math.prod(len(known[i, k][1]) for i, k in enumerate(wide) if k >= 0) for wide in parts)
        entries += count * math.prod(n for n, t in zip(orbits, kind, strict=True) if t < 0)
        if count > _MOST_ROWS or entries > _MOST_ENTRIES:
            raise PlanError("symmetries leave too many rows")
    every, out = np.arange(math.prod(orbits)).reshape(orbits), list[_Kind]()
    for kind, parts in given.items():
        place = [slice(None) if t < 0 else r.axis.contrasts[t].orbit for r, t in zip(axes, kind, strict=True)]
        at = np.ascontiguousarray(every[tuple(place)]).reshape(-1)
        rows, inner = list[Any](), list[FloatArray]()
        for wide, scale in parts.items():
            own: Any = csr_matrix(np.ones((1, 1), dtype=np.int64))
            moment: FloatArray = np.array([[scale]])
            for i, k in enumerate(wide):
                if k >= 0:
                    classes, means = known[i, k]
                    own, moment = kron(own, classes, format="csr"), np.asarray(np.kron(moment, means), dtype=np.float64)
            rows.append(own)
            inner.append(moment)
        stacked = vstack(rows).tocsr()
        kept, back = independent(np.asarray(stacked.todense(), dtype=np.int64))
        gram, start = np.zeros((len(kept),) * 2), 0
        for moment in inner:
            part = back[start : start + len(moment)]
            gram += part.T @ moment @ part
            start += len(moment)
        values, vectors = np.linalg.eigh(gram)
        if not values[0] > len(values) * np.finfo(np.float64).eps * values[-1]:
            raise PlanError("rows of which nothing is asked")
        out.append(_Kind(kind, stacked[kept], at, vectors * np.sqrt(values)))
    return out


def _searched(
    names: tuple[str, ...], axes: Sequence[Reduced], kinds: Sequence[_Kind], progress: Progress | None
) -> SmallUnion:
    each = np.asarray(reduce(np.multiply.outer, [r.axis.sizes for r in axes]), dtype=np.float64).reshape(-1)
    work = sum(len(k.root) ** 2 * (len(k.root) + k.rows.nnz / 8) for k in kinds)
    v, power, lower, reached = each / each.sum(), _POWER, 0.0, 0.0
    before, best, proof = v, (math.inf, list[FloatArray]()), v
    for step in range(int(min(_MOST_STEPS, max(_WORK / work, 1.0)))):
        spectra = [squared(k.moment(v), units(len(v)) + 2 * units(len(k.root))) for k in kinds]
        total = float(sum(s.roots.sum() for s in spectra))
        if total < reached:
            v, power, reached = before, _LEAST_POWER, 0.0
            continue
        reached, before, proved = total, v, sum(s.proved for s in spectra)
        if proved > lower:
            lower, proof = proved, v
        lengths = np.zeros(len(v))
        for kind, spectrum in zip(kinds, spectra, strict=True):
            lengths[kind.at] += kind.lengths(spectrum)
        top = float(lengths.max())
        upper = math.sqrt(total * top) * (1 + _MARGIN)
        if upper < best[0]:
            turned = zip(kinds, spectra, strict=True)
            best = upper, [(k.root @ s.vectors / np.sqrt(s.roots * top)).T for k, s in turned]
        if progress is not None:
            progress(step + 1, relative_gap(lower, best[0]))
        if best[0] <= lower * (1 + _TOLERANCE):
            break
        v = np.maximum(v * (lengths / total) ** power, _LEAST / len(v))
        v /= v.sum()
    whole = next((k for k in kinds if max(k.kinds) < 0), None)
    mean = 0.0 if whole is None else float(np.linalg.norm(whole.root.T @ (whole.rows @ proof)))
    pieces = tuple(_piece(axes, k, matrix) for k, matrix in zip(kinds, best[1], strict=True))
    return SmallUnion(names, tuple(r.axis for r in axes), pieces, lower, best[0], float((proof**2 / each).sum()), mean)


def _piece(axes: Sequence[Reduced], kind: _Kind, matrix: FloatArray) -> Piece:
    inside = [(r.axis, r.axis.contrasts[t]) for r, t in zip(axes, kind.kinds, strict=True) if t >= 0]
    # sums over an orbit are longer than isometries by the root of its size, contrasts are not
    square = math.prod(float(a.sizes[c.orbit]) / c.multiplicity for a, c in inside)
    return Piece(kind.kinds, matrix * math.sqrt(square), np.zeros((0, kind.rows.shape[1])), Sparse.of(kind.rows))
