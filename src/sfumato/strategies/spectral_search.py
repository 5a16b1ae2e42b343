"""Unions of products over few joint cells, each product of basis vectors with noise of its own. [MMHM18]

Tilted residuals have one shape for every set of attributes that vary. Where several attributes are ordered that costs
some per cent: the best noise on slow waves of one attribute depends on how fast the others' are. Here it may.

Bases of attributes and levels of products of their vectors: the least error of a union of products found.

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

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import PlanError
from sfumato.operators import LinearOperator
from sfumato.operators.base import FloatArray, single_thread
from sfumato.privacy.unit import Neighbours
from sfumato.strategies.design import Design, Problem
from sfumato.strategies.spectral import Spectral
from sfumato.strategies.stacked import planned_jointly
from sfumato.strategies.tilted import Product, Union, contrast_basis, is_plain, optimise_shapes
from sfumato.strategies.tilted_bounds import number_among

_FLOOR = (
    1e-5  # of the mean g: vectors that nobody asks about are measured a little, so that rounding leaves nothing out
)
_CORRECTIONS = 20  # pairs that a quasi-Newton step remembers: more gain nothing
_EVEN_STEPS = 40  # of the levels alone, which only start what moves the bases too
_POWER = 1.5  # of cost / error in these: the plain step doubled would do, and overshoots where few cells bind

Bins = tuple[NDArray[np.intp], ...]
"""Per axis (vectors,) the bin of every vector: those of one bin share their levels."""


@dataclass(frozen=True, eq=False, slots=True)
class GramAxis:
    """The Grams (n, n) of an attribute's factors; or, of a plain one, (mean, contrast) of each.

    `whole` says that some product sums the attribute out, or that it is plain: its first vector is the ones. `cells`
    are its own.
    """

    grams: tuple[FloatArray, ...]
    plain: bool
    whole: bool
    cells: int


@dataclass(frozen=True, eq=False, slots=True)
class AxisProducts:
    """Products: (weight, per axis the number of its Gram, -1 where summed out)."""

    axes: tuple[GramAxis, ...]
    products: tuple[tuple[float, tuple[int, ...]], ...]

    def inside(self, shape: Sequence[int]) -> NDArray[np.bool_]:
        """Which products of vectors some query may need."""
        out = np.zeros(shape, dtype=np.bool_)
        for _, kinds in self.products:
            out[_kind_slices(kinds)] = True
        return out


@dataclass(frozen=True, eq=False, slots=True)
class ProductLevels:
    """Bases T (n, n) of the axes, of a plain one (1, 2); and the levels x of their products, zero where none is needed.

    `error` is the root of the sum of squared errors at unit price.
    """

    bases: tuple[FloatArray, ...]
    levels: FloatArray
    error: float


def _kind_slices(kinds: Sequence[int]) -> tuple[slice | int, ...]:
    return tuple(slice(None) if k >= 0 else 0 for k in kinds)


def _apply_along_axes(matrices: Sequence[FloatArray], table: FloatArray) -> FloatArray:
    """A matrix applied along every axis."""
    for axis, matrix in enumerate(matrices):
        table = np.moveaxis(np.tensordot(matrix, table, axes=(1, axis)), 0, axis)
    return table


def _squared_query_lengths(axis: GramAxis, back: FloatArray) -> list[FloatArray]:
    """Per Gram the squared lengths that the queries have along every vector."""
    if axis.plain:
        return list(axis.grams)
    return [np.einsum("ai,ai->a", back @ gram, back) for gram in axis.grams]


def _product_effects(
    asked: AxisProducts, parts: Sequence[Sequence[FloatArray]], inside: NDArray[np.bool_]
) -> tuple[FloatArray, float]:
    """g of every product of vectors, and what was added so that none that is inside is zero."""
    out = np.zeros(inside.shape)
    for weight, kinds in asked.products:
        own = (p[k] for p, k in zip(parts, kinds, strict=True) if k >= 0)
        out[_kind_slices(kinds)] += reduce(np.multiply.outer, own, np.array(weight))
    floor = _FLOOR * float(out.sum()) / float(inside.sum())
    return out + floor * inside, floor


def _axis_inverse(axis: GramAxis, base: FloatArray) -> FloatArray:
    """Z of an axis; of a plain one nothing is read."""
    return base if axis.plain else np.asarray(np.linalg.inv(base), dtype=np.float64)


def _squared_bases(bases: Sequence[FloatArray]) -> list[FloatArray]:
    return [b**2 for b in bases]


def initial_levels(asked: AxisProducts, bases: Sequence[FloatArray]) -> ProductLevels:
    """The best levels for given bases, nearly: by turns the weights of cells that bind, and levels for these."""
    inside = asked.inside([b.shape[1] for b in bases])
    parts = [_squared_query_lengths(a, _axis_inverse(a, b)) for a, b in zip(asked.axes, bases, strict=True)]
    effects, _ = _product_effects(asked, parts, inside)
    costs = _squared_bases(bases)
    v = np.full([len(b) for b in bases], 1.0)
    levels, best = inside.astype(np.float64), np.inf
    for _ in range(_EVEN_STEPS):
        v /= v.sum()
        seen = np.maximum(_apply_along_axes([c.T for c in costs], v), 1e-300)
        x = np.sqrt(effects / seen)
        cost, error = _apply_along_axes(costs, x), float(np.sqrt(effects * seen).sum())
        reached = float(cost.max()) * error
        if reached < best:
            best, levels = reached, x / float(cost.max())
        v = v * (cost / error) ** _POWER
    return ProductLevels(tuple(bases), levels, float(np.sqrt(best)))


def bin_levels(found: ProductLevels, bins: Bins) -> tuple[ProductLevels, FloatArray]:
    """The same with levels that are alike within bins, and these levels by bin; their error is not that of `found`."""
    inside = found.levels > 0.0
    logs = np.log(np.where(inside, found.levels, 1.0))
    sums, counts = logs * inside, inside.astype(np.float64)
    for axis, own in enumerate(bins):
        gather = (own == np.arange(own.max() + 1)[:, None]).astype(np.float64)
        sums, counts = (np.moveaxis(np.tensordot(gather, t, axes=(1, axis)), 0, axis) for t in (sums, counts))
    short = np.where(counts > 0, np.exp(sums / np.maximum(counts, 1.0)), 0.0)
    return ProductLevels(found.bases, short[np.ix_(*bins)] * inside, found.error), short


def descend_levels(
    asked: AxisProducts, start: ProductLevels, bins: Bins, schedule: Sequence[tuple[float, int]]
) -> ProductLevels:
    """Bases and levels, alike within bins, after so many quasi-Newton steps with each power p of the costs."""
    from scipy.optimize import minimize  # noqa: PLC0415  (slow to import)

    with single_thread():
        search = _LevelSearch(asked, start, bins)
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


class _LevelSearch:
    """What moves: all entries of the bases but those that stay, and the logarithms of the levels by bin."""

    def __init__(self, asked: AxisProducts, start: ProductLevels, bins: Bins) -> None:
        self._asked, self._bins = asked, bins
        self._inside = start.levels > 0.0
        self._start = start
        _, short = bin_levels(start, bins)
        self._kept = short > 0.0
        # bins hold products that are needed and others only where these have a level of zero anyway
        self._free = [i for i, a in enumerate(asked.axes) if not a.plain]
        self._gather = [(b == np.arange(b.max() + 1)[:, None]).astype(np.float64) for b in bins]

    def packed(self, start: ProductLevels) -> FloatArray:
        _, short = bin_levels(start, self._bins)
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

    def found(self, at: FloatArray) -> ProductLevels:
        bases, levels = self._spread(at)
        parts = [_squared_query_lengths(a, _axis_inverse(a, b)) for a, b in zip(self._asked.axes, bases, strict=True)]
        effects, _ = _product_effects(self._asked, parts, self._inside)
        top = float(_apply_along_axes(_squared_bases(bases), levels).max())
        error = float(np.divide(effects, levels, out=np.zeros_like(effects), where=self._inside).sum()) * top
        return ProductLevels(tuple(bases), levels / top, float(np.sqrt(error)))

    def value(self, power: float) -> Callable[[FloatArray], tuple[float, FloatArray]]:
        def of(at: FloatArray) -> tuple[float, FloatArray]:
            bases, x = self._spread(at)
            backs = [_axis_inverse(a, b) for a, b in zip(self._asked.axes, bases, strict=True)]
            parts = [_squared_query_lengths(a, b) for a, b in zip(self._asked.axes, backs, strict=True)]
            effects, _ = _product_effects(self._asked, parts, self._inside)
            inverse = np.divide(1.0, x, out=np.zeros_like(x), where=self._inside)
            costs = _squared_bases(bases)
            cost = _apply_along_axes(costs, x)
            top, error = float(cost.max()), float((effects * inverse).sum())
            grown = (cost / top) ** (power - 1)
            whole = float((grown * cost).sum()) / top
            v = grown / (whole * top)
            by_level = (_apply_along_axes([c.T for c in costs], v) - effects * inverse**2 / error) * x
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
            table = pull[_kind_slices(kinds)]
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
        reached = np.moveaxis(_apply_along_axes(own, x), i, 0).reshape(bases[i].shape[1], -1)
        spent = np.moveaxis(v, i, 0).reshape(len(bases[i]), -1) @ reached.T
        slope = 2 * spent * bases[i] - 2 * back.T @ toward @ back.T
        return slope[:, int(self._asked.axes[i].whole) :].reshape(-1)


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


def design_spectral(problem: Problem, best: float) -> Design:
    """The best bases and levels found. Raises PlanError where it does not apply, or does not undercut `best`.

    `best` is an error, the root of the sum of weighted variances at unit price.
    """
    return planned_jointly(problem, lambda p: _design_for_products(p, best))


def _design_for_products(problem: Problem, best: float) -> Design:
    products = applicable_products(problem)
    union = Union(products, problem.sizes)
    if not union.tilted or max(union.sizes[i] for i in union.tilted) > _MOST_SIDE:
        raise PlanError(f"no attribute of at most {_MOST_SIDE} cells has a basis of its own")
    asked = products_on_axes(union, products)
    if _estimate_search_work(asked) > _MOST_WORK:
        raise PlanError("its search over so many joint cells and products would take minutes")
    try:
        with single_thread():
            made = _search_levels(asked, initial_bases(union), best)
    except np.linalg.LinAlgError:
        raise PlanError("what is asked along an attribute is too nearly singular") from None
    if made is None:
        raise PlanError("its search did not undercut the other plans")
    return _design_from_levels(union.names, asked, *made)


def _search_levels(asked: AxisProducts, bases: Sequence[FloatArray], best: float) -> tuple[ProductLevels, Bins] | None:
    found = initial_levels(asked, bases)
    if found.error > best / _WORTH:
        return None
    every = tuple(np.arange(n) for n in found.levels.shape)
    found = _sort_basis_vectors(asked, descend_levels(asked, found, every, _FIRST))
    bins = _choose_bins(asked, found)
    found = descend_levels(asked, bin_levels(found, bins)[0], bins, _LAST)
    return (found, bins) if found.error < best else None


def applicable_products(problem: Problem) -> list[Product]:
    plain = problem.noise == "gaussian" and not problem.largest and not problem.known and not problem.unit_lattice
    if not plain or problem.unit.neighbours is not Neighbours.ADD_REMOVE:
        raise PlanError("it is for the mean squared error under Gaussian noise, of a record more or less")
    if problem.is_marginal:
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


def products_on_axes(union: Union, products: Sequence[Product]) -> AxisProducts:
    """The products in terms of axes; plain attributes by their means and contrasts."""
    kinds: list[list[LinearOperator]] = [[] for _ in union.names]
    rows: list[tuple[float, tuple[int, ...]]] = []
    for weight, factors in products:
        row = [number_among(kinds[i], factors[name]) if name in factors else -1 for i, name in enumerate(union.names)]
        rows.append((weight, tuple(row)))
    axes: list[GramAxis] = []
    for i, own in enumerate(kinds):
        plain = all(is_plain(f) for f in own) or union.sizes[i] == 1
        summed = any(row[i] < 0 for _, row in rows)
        grams = [_plain_factor_squares(f) if plain else np.asarray(f.gram().dense(), dtype=np.float64) for f in own]
        axes.append(GramAxis(tuple(grams), plain, plain or summed, union.sizes[i]))
    return AxisProducts(tuple(axes), tuple(rows))


def _plain_factor_squares(factor: LinearOperator) -> FloatArray:
    """Squared lengths of a factor's rows along the mean and the contrasts, whose columns have length 1."""
    n, first, second = factor.shape[1], factor.row_sums(1), factor.row_sums(2)
    mean = float((first**2).sum()) / n
    return np.array([mean / n, max(float(second.sum()) - mean, 0.0) * (n - 1) / n][:n])


def _estimate_search_work(asked: AxisProducts) -> float:
    """About the multiplications of all steps."""
    sides = [2 if a.plain else a.cells for a in asked.axes]
    steps = sum(n for _, n in (*_FIRST, *_LAST))
    return steps * math.prod(sides) * (4.0 * sum(sides) + 3.0 * len(asked.products))


def initial_bases(union: Union) -> list[FloatArray]:
    """The ones and the contrasts of the best tilted residuals, turned to where what is asked of them is diagonal."""
    shapes, out = optimise_shapes(union), list[FloatArray]()
    for i, n in enumerate(union.sizes):
        if i not in union.tilted:
            out.append(np.ones((1, 2 if n > 1 else 1)))
            continue
        pull, _ = union.linearised(shapes, i)
        basis = contrast_basis(n)
        root = basis @ np.linalg.cholesky(basis.T @ shapes[i].covariance @ basis)
        turn = np.linalg.eigh(root.T @ pull @ root)[1]
        back = np.vstack([shapes[i].tilt, (root @ turn[:, ::-1]).T])
        out.append(np.asarray(np.linalg.inv(back), dtype=np.float64))
    return out


def _sort_basis_vectors(asked: AxisProducts, found: ProductLevels) -> ProductLevels:
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
    return ProductLevels(tuple(bases), np.where(inside, levels, 0.0), found.error)


def _choose_bins(asked: AxisProducts, found: ProductLevels) -> Bins:
    """Bins of neighbours that make few blocks: as many on all axes, then more where that helps most."""

    def few(counts: Sequence[int]) -> Bins | None:
        bins = tuple(_axis_bins(*each) for each in zip(asked.axes, found.bases, counts, strict=True))
        return bins if np.count_nonzero(bin_levels(found, bins)[1]) <= _MOST_BLOCKS else None

    def off(counts: Sequence[int]) -> float:
        bins = few(counts)
        return math.inf if bins is None else descend_levels(asked, bin_levels(found, bins)[0], bins, ()).error

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


def _axis_bins(axis: GramAxis, base: FloatArray, most: int) -> NDArray[np.intp]:
    """The bin of every vector; the ones have one of their own."""
    first, count = int(axis.whole), base.shape[1]
    # finer where vectors are longest: there levels change most from one to the next
    place = (np.arange(count - first) / max(count - first, 1)) ** _CROWDED * min(most, max(count - first, 1))
    own = np.unique(place.astype(np.intp), return_inverse=True)[1].reshape(-1)
    return np.concatenate([np.zeros(first, dtype=np.intp), own + first])


def _design_from_levels(names: tuple[str, ...], asked: AxisProducts, found: ProductLevels, bins: Bins) -> Design:
    _, levels = bin_levels(found, bins)
    measured = levels > 0.0
    ordered = [sum(k >= 0 and not a.plain for k, a in zip(ks, asked.axes, strict=True)) for _, ks in asked.products]
    most = max(_MOST_FACTOR_BITS - 2 * (max(ordered) - 1), _LEAST_FACTOR_BITS)
    bits = [0 if a.plain else most for a in asked.axes]
    while True:
        parts = [
            _integer_basis_rows(a, b, own, n) for a, b, own, n in zip(asked.axes, found.bases, bins, bits, strict=True)
        ]
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


def _integer_basis_rows(
    axis: GramAxis, base: FloatArray, bins: NDArray[np.intp], bits: int
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
    rows = [_round_preserving_columns(base[:, bins == b].T * scales[b]) for b in range(count)]
    return np.concatenate(rows), tuple(np.cumsum(np.bincount(bins)).tolist()), scales


def _round_preserving_columns(rows: FloatArray) -> NDArray[np.int64]:
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
