"""Bases of attributes and levels of products of their vectors: the least error of a union of products found.

Attribute i has a basis, the columns of T_i, and X = (⊗ T_i) diag(x) (⊗ T_i)ᵀ is what is measured: the product of
vectors a, b, ... has the precision x_ab.... With Z_i = T_i^-1 a query of factors W_i errs by

    sum_ab... (W_1 Z_1ᵀ)_a^2 (W_2 Z_2ᵀ)_b^2 ... / x_ab...,

so the error of all is sum g / x, g a sum over products p of w_p ⊗ diag(Z_i G_pi Z_iᵀ), and a cell costs
((⊗ T_i∘T_i) x)_cell. Residuals with tilts are the case of x that depends on nothing but which attributes vary. They are
where the search starts; it moves all levels and all bases together, by quasi-Newton steps on

    log sum g / x  +  log |cost|_p,   p rising to what is nearly the largest cost.

The problem is not convex, and nothing is proved here: the bound of tilted residuals is one for this too.

Where some product sums an attribute out, the first vector of its basis stays the ones, and products of vectors that no
query needs stay at level zero. An attribute whose factors treat all cells alike keeps two levels, mean and contrast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from sfumato.operators.base import FloatArray
from sfumato.operators.blas import single_thread

__all__ = ["Asked", "Axis", "Levels", "binned", "descend", "started"]

_FLOOR = (
    1e-5  # of the mean g: vectors that nobody asks about are measured a little, so that rounding leaves nothing out
)
_CORRECTIONS = 20  # pairs that a quasi-Newton step remembers: more gain nothing
_EVEN_STEPS = 40  # of the levels alone, which only start what moves the bases too
_POWER = 1.5  # of cost / error in these: the plain step doubled would do, and overshoots where few cells bind

Bins = tuple[NDArray[np.intp], ...]
"""Per axis (vectors,) the bin of every vector: those of one bin share their levels."""


@dataclass(frozen=True, eq=False, slots=True)
class Axis:
    """The Grams (n, n) of an attribute's factors; or, of a plain one, (mean, contrast) of each.

    `whole` says that some product sums the attribute out, or that it is plain: its first vector is the ones. `cells`
    are its own.
    """

    grams: tuple[FloatArray, ...]
    plain: bool
    whole: bool
    cells: int


@dataclass(frozen=True, eq=False, slots=True)
class Asked:
    """Products: (weight, per axis the number of its Gram, -1 where summed out)."""

    axes: tuple[Axis, ...]
    products: tuple[tuple[float, tuple[int, ...]], ...]

    def inside(self, shape: Sequence[int]) -> NDArray[np.bool_]:
        """Which products of vectors some query may need."""
        out = np.zeros(shape, dtype=np.bool_)
        for _, kinds in self.products:
            out[_corner(kinds)] = True
        return out


@dataclass(frozen=True, eq=False, slots=True)
class Levels:
    """Bases T (n, n) of the axes, of a plain one (1, 2); and the levels x of their products, zero where none is needed.

    `error` is the root of the sum of squared errors at unit price.
    """

    bases: tuple[FloatArray, ...]
    levels: FloatArray
    error: float


def _corner(kinds: Sequence[int]) -> tuple[slice | int, ...]:
    return tuple(slice(None) if k >= 0 else 0 for k in kinds)


def _along(matrices: Sequence[FloatArray], table: FloatArray) -> FloatArray:
    """A matrix applied along every axis."""
    for axis, matrix in enumerate(matrices):
        table = np.moveaxis(np.tensordot(matrix, table, axes=(1, axis)), 0, axis)
    return table


def _parts(axis: Axis, back: FloatArray) -> list[FloatArray]:
    """Per Gram the squared lengths that the queries have along every vector."""
    if axis.plain:
        return list(axis.grams)
    return [np.einsum("ai,ai->a", back @ gram, back) for gram in axis.grams]


def _effects(
    asked: Asked, parts: Sequence[Sequence[FloatArray]], inside: NDArray[np.bool_]
) -> tuple[FloatArray, float]:
    """g of every product of vectors, and what was added so that none that is inside is zero."""
    out = np.zeros(inside.shape)
    for weight, kinds in asked.products:
        own = (p[k] for p, k in zip(parts, kinds, strict=True) if k >= 0)
        out[_corner(kinds)] += reduce(np.multiply.outer, own, np.array(weight))
    floor = _FLOOR * float(out.sum()) / float(inside.sum())
    return out + floor * inside, floor


def _inverse(axis: Axis, base: FloatArray) -> FloatArray:
    """Z of an axis; of a plain one nothing is read."""
    return base if axis.plain else np.asarray(np.linalg.inv(base), dtype=np.float64)


def _costs(bases: Sequence[FloatArray]) -> list[FloatArray]:
    return [b**2 for b in bases]


def started(asked: Asked, bases: Sequence[FloatArray]) -> Levels:
    """The best levels for given bases, nearly: by turns the weights of cells that bind, and levels for these."""
    inside = asked.inside([b.shape[1] for b in bases])
    parts = [_parts(a, _inverse(a, b)) for a, b in zip(asked.axes, bases, strict=True)]
    effects, _ = _effects(asked, parts, inside)
    costs = _costs(bases)
    v = np.full([len(b) for b in bases], 1.0)
    levels, best = inside.astype(np.float64), np.inf
    for _ in range(_EVEN_STEPS):
        v /= v.sum()
        seen = np.maximum(_along([c.T for c in costs], v), 1e-300)
        x = np.sqrt(effects / seen)
        cost, error = _along(costs, x), float(np.sqrt(effects * seen).sum())
        reached = float(cost.max()) * error
        if reached < best:
            best, levels = reached, x / float(cost.max())
        v = v * (cost / error) ** _POWER
    return Levels(tuple(bases), levels, float(np.sqrt(best)))


def binned(found: Levels, bins: Bins) -> tuple[Levels, FloatArray]:
    """The same with levels that are alike within bins, and these levels by bin; their error is not that of `found`."""
    inside = found.levels > 0.0
    logs = np.log(np.where(inside, found.levels, 1.0))
    sums, counts = logs * inside, inside.astype(np.float64)
    for axis, own in enumerate(bins):
        gather = (own == np.arange(own.max() + 1)[:, None]).astype(np.float64)
        sums, counts = (np.moveaxis(np.tensordot(gather, t, axes=(1, axis)), 0, axis) for t in (sums, counts))
    short = np.where(counts > 0, np.exp(sums / np.maximum(counts, 1.0)), 0.0)
    return Levels(found.bases, short[np.ix_(*bins)] * inside, found.error), short


def descend(asked: Asked, start: Levels, bins: Bins, schedule: Sequence[tuple[float, int]]) -> Levels:
    """Bases and levels, alike within bins, after so many quasi-Newton steps with each power p of the costs."""
    from scipy.optimize import minimize  # noqa: PLC0415  (slow to import)

    with single_thread():
        search = _Search(asked, start, bins)
        at = search.packed(start)
        for power, steps in schedule:
            done = minimize(
                search.value(power),
                at,
                jac=True,
                method="L-BFGS-B",
                options={"maxiter": steps, "maxcor": _CORRECTIONS},
            )
            at = np.asarray(done.x, dtype=np.float64)
        return search.found(at)


class _Search:
    """What moves: all entries of the bases but those that stay, and the logarithms of the levels by bin."""

    def __init__(self, asked: Asked, start: Levels, bins: Bins) -> None:
        self._asked, self._bins = asked, bins
        self._inside = start.levels > 0.0
        self._start = start
        _, short = binned(start, bins)
        self._kept = short > 0.0
        # bins hold products that are needed and others only where these have a level of zero anyway
        self._free = [i for i, a in enumerate(asked.axes) if not a.plain]
        self._gather = [(b == np.arange(b.max() + 1)[:, None]).astype(np.float64) for b in bins]

    def packed(self, start: Levels) -> FloatArray:
        _, short = binned(start, self._bins)
        moved = [start.bases[i][:, int(self._asked.axes[i].whole) :].reshape(-1) for i in self._free]
        return np.concatenate([*moved, np.log(short[self._kept])])

    def _spread(self, at: FloatArray) -> tuple[list[FloatArray], FloatArray]:
        bases, done = list(self._start.bases), 0
        for i in self._free:
            n, first = len(bases[i]), int(self._asked.axes[i].whole)
            own = at[done : done + n * (n - first)].reshape(n, n - first)
            bases[i] = np.concatenate([bases[i][:, :first], own], axis=1)
            done += own.size
        short = np.zeros(self._kept.shape)
        short[self._kept] = np.exp(at[done:])
        return bases, short[np.ix_(*self._bins)] * self._inside

    def found(self, at: FloatArray) -> Levels:
        bases, levels = self._spread(at)
        parts = [_parts(a, _inverse(a, b)) for a, b in zip(self._asked.axes, bases, strict=True)]
        effects, _ = _effects(self._asked, parts, self._inside)
        top = float(_along(_costs(bases), levels).max())
        error = float(np.divide(effects, levels, out=np.zeros_like(effects), where=self._inside).sum()) * top
        return Levels(tuple(bases), levels / top, float(np.sqrt(error)))

    def value(self, power: float) -> Callable[[FloatArray], tuple[float, FloatArray]]:
        def of(at: FloatArray) -> tuple[float, FloatArray]:
            bases, x = self._spread(at)
            backs = [_inverse(a, b) for a, b in zip(self._asked.axes, bases, strict=True)]
            parts = [_parts(a, b) for a, b in zip(self._asked.axes, backs, strict=True)]
            effects, _ = _effects(self._asked, parts, self._inside)
            inverse = np.divide(1.0, x, out=np.zeros_like(x), where=self._inside)
            costs = _costs(bases)
            cost = _along(costs, x)
            top, error = float(cost.max()), float((effects * inverse).sum())
            grown = (cost / top) ** (power - 1)
            whole = float((grown * cost).sum()) / top
            v = grown / (whole * top)
            by_level = (_along([c.T for c in costs], v) - effects * inverse**2 / error) * x
            for axis, gather in enumerate(self._gather):
                by_level = np.moveaxis(np.tensordot(gather, by_level, axes=(1, axis)), 0, axis)
            moved = [self._by_basis(i, bases, backs[i], parts, inverse / error, v, x) for i in self._free]
            value = np.log(error) + np.log(top) + np.log(whole) / power
            return float(value), np.concatenate([*moved, by_level[self._kept]])

        return of

    def _by_basis(
        self,
        i: int,
        bases: Sequence[FloatArray],
        back: FloatArray,
        parts: Sequence[Sequence[FloatArray]],
        pull: FloatArray,
        v: FloatArray,
        x: FloatArray,
    ) -> FloatArray:
        """The slope in the basis of axis i: through what queries need of its vectors, and what these cost."""
        shares = np.zeros((len(self._asked.axes[i].grams), len(back)))
        for weight, kinds in self._asked.products:
            if kinds[i] < 0:
                continue
            table = pull[_corner(kinds)]
            held = [j for j, k in enumerate(kinds) if k >= 0]
            # the last axis first: what is left keeps its place
            for j in reversed(held):
                if j != i:
                    table = np.tensordot(table, parts[j][kinds[j]], axes=(held.index(j), 0))
            shares[kinds[i]] += weight * table
        toward = sum(
            (s[:, None] * (back @ g) for s, g in zip(shares, self._asked.axes[i].grams, strict=True)),
            np.zeros_like(back),
        )
        own = [b**2 for b in bases]
        own[i] = np.eye(bases[i].shape[1])
        reached = np.moveaxis(_along(own, x), i, 0).reshape(bases[i].shape[1], -1)
        spent = np.moveaxis(v, i, 0).reshape(len(bases[i]), -1) @ reached.T
        slope = 2 * spent * bases[i] - 2 * back.T @ toward @ back.T
        return slope[:, int(self._asked.axes[i].whole) :].reshape(-1)
