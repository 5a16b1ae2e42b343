"""Raking: nonnegative cells are multiplied until their sums are what coarser rungs say. [DS40]

One sum after another meets what it should, and where tables alone are held that ends soon. A group of cells that nearly
fills a held row is undone by the row in every sweep, so with groups all multipliers move together: the factors exp(A'u)
minimise the convex sum of x exp(A'u) - w'u + g'u^2 / 2, A the sums, w what they should be, g how much they give. Its
Newton steps need A diag(x) A' alone, which conjugate gradients solve by sums there and back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sfumato.operators.base import FloatArray

__all__ = ["Sums", "independent", "rake"]

_SWEEPS = 200  # raking converges geometrically where sums agree; what is left then is missed
_FIRST = 10  # sweeps of tables before groups join
_EXACT = 1e-9  # of the mass: far below one record
_NEAR = 1e-8  # of the mass; the sweeps that follow meet what is left
_STEPS = 60  # Newton converges quadratically in the end; what is left then is missed
_INNER = 200  # an inexact step is a step of descent still; more products cost more than another step
_SOLVED = 1e-4  # relative: full accuracy of a step is wasted far from the end, near it the next step mends it
_EASE = 1e-8  # on a diagonal of ones: sums that say the same twice make the system singular
_HALVINGS = 20  # 2^-20 of a step: where that does not descend, rounding decides
_ARMIJO = 1e-4  # the usual small share of the promised descent; any below 1/2 keeps full steps near the end
_NOTHING = 1e-200  # positive, and below any share of a record: what is 0 divides nothing


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """Sums of a table's cells that are to have these values.

    axes: positions of the attributes summed over to; wanted: their table, or, with `groups` (the group of every
    cell of that table), one value per group. give: 0 where they are held whatever others say; else a sum that others
    exclude is missed, at the least squared misses divided by these.
    """

    axes: tuple[int, ...]
    wanted: FloatArray
    groups: NDArray[np.intp] | None = None
    give: FloatArray | None = None

    def met_by(self, cells: FloatArray) -> Sums:
        """The same sums with the values that these cells have, which hold."""
        return replace(self, wanted=self.of(cells), give=None)

    def of(self, cells: FloatArray) -> FloatArray:
        """These sums of some cells."""
        now = cells.sum(axis=tuple(a for a in range(cells.ndim) if a not in self.axes))
        if self.groups is None:
            return now
        return np.bincount(self.groups.reshape(-1), now.reshape(-1), len(self.wanted)).astype(np.float64)

    def spread(self, each: FloatArray, shape: tuple[int, ...]) -> FloatArray:
        """A value of every sum, at each of its cells: shaped to broadcast over a table of this shape."""
        told = each.reshape(self.wanted.shape) if self.groups is None else each[self.groups]
        return told.reshape([n if a in self.axes else 1 for a, n in enumerate(shape)])


def independent(
    axes: Sequence[int], held: Mapping[tuple[int, ...], FloatArray], possible: NDArray[np.bool_] | None = None
) -> FloatArray:
    """The table of these attributes with the total and the counts that are held, each independent of the others.

    0 where not `possible`, which raking leaves as it is (None: all cells are).
    """
    total = float(held[()])
    cells = np.array(total)
    for i in axes:
        cells = np.multiply.outer(cells, held[i,] / max(total, _NOTHING))
    return cells if possible is None else np.where(possible, cells, 0.0)


def rake(cells: FloatArray, sums: Sequence[Sums], *, sweeps: int = _SWEEPS) -> FloatArray:
    """Nonnegative cells near the given ones, multiplicatively, whose sums are the wanted ones.

    Zero cells stay zero. Sums that no such cells have together are met as nearly as the order allows: those that give
    are missed, and of the others the last ones given are met last.
    """
    firm = [s for s in sums if s.give is None]
    if any(s.groups is not None for s in sums):
        cells = _balanced(_swept(cells, [s for s in firm if s.groups is None], _FIRST), sums)
    return _swept(cells, firm, sweeps)


def _swept(cells: FloatArray, sums: Sequence[Sums], sweeps: int) -> FloatArray:
    """Each sum in turn is met exactly, until all are."""
    out = cells
    mass = max((float(s.wanted.sum()) for s in sums), default=0.0)
    for _ in range(sweeps):
        worst = 0.0
        for s in sums:
            now = s.of(out)
            worst = max(worst, float(np.abs(s.wanted - now).max(initial=0.0)))
            ratio = np.divide(s.wanted, now, out=np.zeros_like(now), where=now > 0)
            out = out * s.spread(ratio, cells.shape)
        if worst <= _EXACT * mass or math.isnan(worst):
            break
    return out


def _balanced(cells: FloatArray, sums: Sequence[Sums]) -> FloatArray:
    """All sums together, by Newton steps on their multipliers; as near as it came where no cells have them all."""
    ends = np.cumsum([s.wanted.size for s in sums])[:-1]
    wanted = np.concatenate([s.wanted.reshape(-1) for s in sums])
    give = np.concatenate([np.zeros(s.wanted.size) if s.give is None else s.give.reshape(-1) for s in sums])

    def summed(x: FloatArray) -> FloatArray:
        return np.concatenate([s.of(x).reshape(-1) for s in sums])

    def spread(u: FloatArray) -> FloatArray:
        out = np.zeros(cells.shape)
        for s, each in zip(sums, np.split(u, ends), strict=True):
            out += s.spread(each, cells.shape)
        return out

    x, u = cells, np.zeros(len(wanted))
    mass = max(float(np.abs(s.wanted).sum()) for s in sums)
    for _ in range(_STEPS):
        now = summed(x)
        reached = now > _NOTHING
        missing = np.where(reached, wanted - now - give * u, 0.0)
        if float(np.abs(missing).max(initial=0.0)) <= _NEAR * mass:
            break
        scale = np.where(reached, now + give, 1.0)
        step = _solved(lambda v, x=x: summed(x * spread(v)) + give * v, missing, scale)
        length, x_next = _length(x, spread(step), float(missing @ step), float(give @ step**2))
        if length == 0:
            break
        x, u = x_next, u + length * step
    return x


def _length(x: FloatArray, along: FloatArray, slope: float, curve: float) -> tuple[float, FloatArray]:
    """(how much of a step to take so that the convex function falls, the cells there); (0, the same cells) if none."""
    length = 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(_HALVINGS):
            # x (exp(t) - 1 - t), what the function bends up by, loses no digits near the end
            bent = float(np.sum(x * (np.expm1(length * along) - length * along))) + curve * length**2 / 2
            if bent <= (1 - _ARMIJO) * length * slope:
                return length, x * np.exp(length * along)
            length /= 2
    return 0.0, x


def _solved(apply: Callable[[FloatArray], FloatArray], right: FloatArray, scale: FloatArray) -> FloatArray:
    """Conjugate gradients, in units of `scale`; a little is added, as sums that repeat each other are no equations."""
    from scipy.sparse.linalg import LinearOperator as Product  # noqa: PLC0415  (heavy)
    from scipy.sparse.linalg import cg  # noqa: PLC0415

    count, root = len(right), np.sqrt(scale)

    def matvec(v: FloatArray) -> FloatArray:
        flat = v.reshape(-1)
        return apply(flat / root) / root + _EASE * flat

    hessian = Product((count, count), matvec=matvec, dtype=np.float64)
    return cg(hessian, right / root, rtol=_SOLVED, atol=0.0, maxiter=_INNER)[0] / root
