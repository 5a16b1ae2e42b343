"""Unions of products over few joint cells, each product of basis vectors with noise of its own. [MMHM18]

Tilted residuals have one shape for every set of attributes that vary. Where several attributes are ordered that costs
some per cent: the best noise on slow waves of one attribute depends on how fast the others' are. Here it may.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from sfumato.designs.compound import planned_jointly
from sfumato.designs.design import Design, Problem
from sfumato.designs.marginals.tilts.bounds import number_among
from sfumato.designs.marginals.tilts.tilted import Product, Union, basis_of, is_plain, optimise
from sfumato.designs.spectral.search import Asked, Axis, Bins, Levels, binned, descend, started
from sfumato.designs.spectral.strategy import Spectral
from sfumato.errors import PlanError
from sfumato.operators import LinearOperator
from sfumato.operators.base import FloatArray
from sfumato.operators.blas import single_thread
from sfumato.privacy.unit import Neighbours

__all__ = ["design"]

_MOST_CELLS = 200_000  # joint ones: some arrays of that length are made in every step
_MOST_WORK = 6e10  # multiplications of all steps: some twenty seconds
_MOST_SIDE = 200  # cells of an attribute whose basis moves: the square of it are unknowns
_MOST_BLOCKS = 500  # products of bins, each measured as a block
_MOST_BINS = 10  # of an axis: levels are smooth, and more gain nothing
_WORTH = 0.98  # of the error to be undercut: what the levels alone must come down to, at least, for the bases to move
_FIRST = ((30.0, 60),)  # powers of the costs and steps: with every product of vectors its own level
_LAST = ((30.0, 150), (100.0, 250), (400.0, 300), (1_000.0, 150), (3_000.0, 150))  # with levels by bin
_CROWDED = 0.5  # power of the share of vectors that come before: a bin of the first, longest ones holds fewer
_LEVEL_BITS = 4  # of the least multiple: rounded by a 32nd at the worst
_ROOM = 2.0**33  # the largest entry before scaling: leaves room for half a billion records
_MOST_FACTOR_BITS, _LEAST_FACTOR_BITS = 13, 5  # of a vector: one factor alone, and of several that share the room


def design(problem: Problem, best: float) -> Design:
    """The best bases and levels found. Raises PlanError where it does not apply, or does not undercut `best`.

    `best` is an error, the root of the sum of weighted variances at unit price.
    """
    return planned_jointly(problem, lambda p: _design(p, best))


def _design(problem: Problem, best: float) -> Design:
    products = _applying(problem)
    union = Union(products, problem.sizes)
    if not union.tilted or max(union.sizes[i] for i in union.tilted) > _MOST_SIDE:
        raise PlanError(f"no attribute of at most {_MOST_SIDE} cells has a basis of its own")
    asked = _asked(union, products)
    if _work(asked) > _MOST_WORK:
        raise PlanError("its search over so many joint cells and products would take minutes")
    try:
        with single_thread():
            made = _searched(asked, _bases(union), best)
    except np.linalg.LinAlgError:
        raise PlanError("what is asked along an attribute is too nearly singular") from None
    if made is None:
        raise PlanError("its search did not undercut the other plans")
    return _designed(union.names, asked, *made)


def _searched(asked: Asked, bases: Sequence[FloatArray], best: float) -> tuple[Levels, Bins] | None:
    found = started(asked, bases)
    if found.error > best / _WORTH:
        return None
    every = tuple(np.arange(n) for n in found.levels.shape)
    found = _sorted(asked, descend(asked, found, every, _FIRST))
    bins = _bins(asked, found)
    found = descend(asked, binned(found, bins)[0], bins, _LAST)
    return (found, bins) if found.error < best else None


def _applying(problem: Problem) -> list[Product]:
    plain = problem.noise == "gaussian" and not problem.largest and not problem.known and not problem.unit_lattice
    if not plain or problem.unit.neighbours is not Neighbours.ADD_REMOVE:
        raise PlanError("it is for the mean squared error under Gaussian noise, of a record more or less")
    if all(i.is_marginal for i in problem.workload.items):
        raise PlanError("of marginal tables alone residuals are the optimum")
    if problem.workload.tables > _MOST_BLOCKS:
        raise PlanError(f"{problem.workload.tables:,} tables, above {_MOST_BLOCKS}")
    products = problem.products
    assert products is not None  # attributes that a query joins are one here
    names = {a for _, factors in products for a in factors}
    cells = math.prod(problem.sizes[a] for a in names)
    if len(names) < 2 or cells > _MOST_CELLS:
        one = "all queries are about one attribute"
        raise PlanError(one if len(names) < 2 else f"{cells:,} joint cells, above {_MOST_CELLS:,}")
    return list[Product](products)


def _asked(union: Union, products: Sequence[Product]) -> Asked:
    """The products in terms of axes; plain attributes by their means and contrasts."""
    kinds: list[list[LinearOperator]] = [[] for _ in union.names]
    rows: list[tuple[float, tuple[int, ...]]] = []
    for weight, factors in products:
        row = [number_among(kinds[i], factors[name]) if name in factors else -1 for i, name in enumerate(union.names)]
        rows.append((weight, tuple(row)))
    axes: list[Axis] = []
    for i, own in enumerate(kinds):
        plain = all(is_plain(f) for f in own) or union.sizes[i] == 1
        summed = any(row[i] < 0 for _, row in rows)
        grams = [_plain(f) if plain else np.asarray(f.gram().dense(), dtype=np.float64) for f in own]
        axes.append(Axis(tuple(grams), plain, plain or summed, union.sizes[i]))
    return Asked(tuple(axes), tuple(rows))


def _plain(factor: LinearOperator) -> FloatArray:
    """Squared lengths of a factor's rows along the mean and the contrasts, whose columns have length 1."""
    n, first, second = factor.shape[1], factor.row_sums(1), factor.row_sums(2)
    mean = float((first**2).sum()) / n
    return np.array([mean / n, max(float(second.sum()) - mean, 0.0) * (n - 1) / n][:n])


def _work(asked: Asked) -> float:
    """About the multiplications of all steps."""
    sides = [2 if a.plain else a.cells for a in asked.axes]
    steps = sum(n for _, n in (*_FIRST, *_LAST))
    return steps * math.prod(sides) * (4.0 * sum(sides) + 3.0 * len(asked.products))


def _bases(union: Union) -> list[FloatArray]:
    """The ones and the contrasts of the best tilted residuals, turned to where what is asked of them is diagonal."""
    shapes, out = optimise(union), list[FloatArray]()
    for i, n in enumerate(union.sizes):
        if i not in union.tilted:
            out.append(np.ones((1, 2 if n > 1 else 1)))
            continue
        pull, _ = union.linearised(shapes, i)
        basis = basis_of(n)
        root = basis @ np.linalg.cholesky(basis.T @ shapes[i].covariance @ basis)
        turn = np.linalg.eigh(root.T @ pull @ root)[1]
        back = np.vstack([shapes[i].tilt, (root @ turn[:, ::-1]).T])
        out.append(np.asarray(np.linalg.inv(back), dtype=np.float64))
    return out


def _sorted(asked: Asked, found: Levels) -> Levels:
    """The same with every vector as long as its mean level says, the most precise first; the ones stay first."""
    bases, levels, inside = list(found.bases), found.levels, found.levels > 0.0
    for i, axis in enumerate(asked.axes):
        if axis.plain:
            continue
        others = tuple(j for j in range(levels.ndim) if j != i)
        logs = np.log(np.where(inside, levels, 1.0)).sum(axis=others) / np.maximum(inside.sum(axis=others), 1)
        logs[: int(axis.whole)] = 0.0
        order = np.argsort(-logs[int(axis.whole) :], kind="stable") + int(axis.whole)
        order = np.concatenate([np.arange(int(axis.whole)), order])
        shape = [-1 if j == i else 1 for j in range(levels.ndim)]
        levels = np.take(levels * np.exp(-logs).reshape(shape), order, axis=i)
        inside = np.take(inside, order, axis=i)
        bases[i] = (found.bases[i] * np.exp(logs / 2))[:, order]
    return Levels(tuple(bases), np.where(inside, levels, 0.0), found.error)


def _bins(asked: Asked, found: Levels) -> Bins:
    """Bins of neighbours that make few blocks: as many on all axes, then more where that helps most."""

    def few(counts: Sequence[int]) -> Bins | None:
        bins = tuple(_parted(*each) for each in zip(asked.axes, found.bases, counts, strict=True))
        return bins if np.count_nonzero(binned(found, bins)[1]) <= _MOST_BLOCKS else None

    def off(counts: Sequence[int]) -> float:
        bins = few(counts)
        return math.inf if bins is None else descend(asked, binned(found, bins)[0], bins, ()).error

    axes = range(len(asked.axes))
    alike = ([most] * len(axes) for most in range(_MOST_BINS, 0, -1))
    counts = next((c for c in alike if few(c) is not None), None)
    if counts is None:
        raise PlanError("the products vary together in too many sets of attributes to be measured apart")
    reached = off(counts)
    while True:
        more = [[n + (i == j) for j, n in enumerate(counts)] for i in axes]
        errors = [off(c) for c in more]
        if min(errors) >= reached:
            break
        reached, counts = min(errors), more[int(np.argmin(errors))]
    bins = few(counts)
    assert bins is not None
    return bins


def _parted(axis: Axis, base: FloatArray, most: int) -> NDArray[np.intp]:
    """The bin of every vector; the ones have one of their own."""
    first, count = int(axis.whole), base.shape[1]
    # finer where vectors are longest: there levels change most from one to the next
    place = (np.arange(count - first) / max(count - first, 1)) ** _CROWDED * min(most, max(count - first, 1))
    own = np.unique(place.astype(np.intp), return_inverse=True)[1].reshape(-1)
    return np.concatenate([np.zeros(first, dtype=np.intp), own + first])


def _designed(names: tuple[str, ...], asked: Asked, found: Levels, bins: Bins) -> Design:
    _, levels = binned(found, bins)
    measured = levels > 0.0
    ordered = [sum(k >= 0 and not a.plain for k, a in zip(ks, asked.axes, strict=True)) for _, ks in asked.products]
    most = max(_MOST_FACTOR_BITS - 2 * (max(ordered) - 1), _LEAST_FACTOR_BITS)
    bits = [0 if a.plain else most for a in asked.axes]
    while True:
        parts = [_whole(a, b, own, n) for a, b, own, n in zip(asked.axes, found.bases, bins, bits, strict=True)]
        tops = [np.array([p.max() for p in np.split(np.abs(r).max(axis=1), e[:-1])]) for r, e, _ in parts]
        multiples = np.sqrt(levels) / reduce(np.multiply.outer, [scales for _, _, scales in parts])
        fine = 2.0**_LEVEL_BITS / float(multiples[measured].min())
        largest = fine * float((multiples * reduce(np.multiply.outer, tops)).max())
        if largest <= _ROOM or max(bits) <= _LEAST_FACTOR_BITS:
            break
        # of the longest bases first, where what rounding does to one vector others make up for
        longest = max(range(len(bits)), key=lambda i: (bits[i], len(bins[i])))
        bits[longest] -= 1

    def build(s: float) -> Spectral:
        whole = np.where(measured, np.maximum(1, np.rint(s * multiples)), 0).astype(np.int64)
        return Spectral(names, tuple(r for r, _, _ in parts), tuple(e for _, e, _ in parts), whole)

    return Design("factorization", build, fine)


def _whole(
    axis: Axis, base: FloatArray, bins: NDArray[np.intp], bits: int
) -> tuple[NDArray[np.int64], tuple[int, ...], FloatArray]:
    """(rows, where the bins end, by how much the rows of each are longer than the vectors)."""
    cells = axis.cells
    if axis.plain:
        ones = np.ones((1, cells), dtype=np.int64)
        if cells == 1:
            return ones, (1,), np.ones(1)
        # contrasts whose columns have length 1 are the centring times the root of n / (n - 1)
        rest = cells * np.eye(cells, dtype=np.int64) - 1
        return np.concatenate([ones, rest]), (1, cells + 1), np.array([1.0, math.sqrt(cells * (cells - 1.0))])
    count = int(bins.max()) + 1
    tops = np.array([float(np.abs(base[:, bins == b]).max()) for b in range(count)])
    scales = 2.0**bits / tops
    scales[: int(axis.whole)] = 1.0
    rows = [_rounded(base[:, bins == b].T * scales[b]) for b in range(count)]
    return np.concatenate(rows), tuple(np.cumsum(np.bincount(bins)).tolist()), scales


def _rounded(rows: FloatArray) -> NDArray[np.int64]:
    """Whole numbers (k, n) next to these, with columns of nearly the same lengths.

    Those are what the cells cost: the price is the largest, so that it would rise with what rounding adds to each.
    """
    whole, every = np.rint(rows), np.arange(rows.shape[1])
    other = np.where(rows >= whole, 1.0, -1.0)
    left = (rows**2 - whole**2).sum(axis=0)
    for _ in range(len(rows)):
        change = 2 * other * whole + 1
        chosen = np.abs(left - np.where(other == 0.0, np.inf, change)).argmin(axis=0)
        gained = change[chosen, every]
        better = (np.abs(left - gained) < np.abs(left)) & (other[chosen, every] != 0.0)
        if not better.any():
            break
        place = chosen[better], every[better]
        left[better] -= gained[better]
        whole[place] += other[place]
        other[place] = 0.0  # each is rounded the other way once at most
    return whole.astype(np.int64)
