"""The strategy near the optimum for unions of few rows where one record replaces another: weights of pairs of cells.

As in `union_planning`, queries ask of each kind t left by symmetry no more than Lᵀ Q, Q few whole rows over joint
orbits. What a replaced record changes are pairs of cells, and symmetry leaves classes of these: of every attribute the
orbits of the two cells, and where these agree whether the cells do, or how near they are. With weights s of sum 1 on
the classes of ordered pairs, parted evenly among the pairs of a class,

    M_t = Lᵀ Q (D - S_t) Qᵀ L,      D the weights of cells of the first orbit,

S_t (orbits, orbits) the weights of pairs, each times <e_x, e_y> / <e_x, e_x> for every contrast of t, e_x what it has
of a cell: 1 for the same cell, -1 / (n - 1) for two of n twins, 0 for cells further apart. Then

    2^(1/2) sum_t tr M_t^(1/2)      bounds the root of the summed errors from below,
    A_t = M_t^(-1/4) Lᵀ Q           attains (sum_t tr M_t^(1/2) · max d)^(1/2),

d the squared distance of the columns of a pair. What all cells have alike changes with no pair: M of all orbits leaves
it out, and the known total stands for it. s <- s (d / mean d)^4 climbs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from sfumato._util.display import Progress
from sfumato.errors import PlanError
from sfumato.operators.base import FloatArray, single_thread
from sfumato.strategies.dense_blocks import Spectrum, rounding_units, spectrum_of_square
from sfumato.strategies.dense_dual import relative_gap
from sfumato.strategies.design import Design, Problem
from sfumato.strategies.merged_rows import rows_of_kinds
from sfumato.strategies.stacked import planned_jointly
from sfumato.strategies.union import Product, SmallUnion
from sfumato.strategies.union_planning import RowKind, collect_row_problem, design_with_solver, union_row_piece
from sfumato.strategies.union_symmetry import ReducedAxis

_MOST_CLASSES = 2**25  # of pairs of all attributes: 256 MB a table, of which there are about four
_WORK = 3.5e8  # classes looked at in all steps: some fifteen seconds
_MOST_STEPS = 40  # by then a gap of a per cent is reached, or steps gain little
_TOLERANCE = 1e-2  # gap at which the search ends
_POWER, _LEAST_POWER = 4, 2  # of the distances: the square always ascended, the fourth power is twice as fast
_MARGIN = 1e-10  # relative, of an upper bound that is a sum of positive numbers
_FINEST = 2.0**25  # of whole numbers: squares of columns are then exact as doubles, and products of columns are quick
_DOUBT = 4  # sums that an entry of M goes through: columns, pairs, rows, and their difference


@dataclass(frozen=True, slots=True)
class _PairClasses:
    """Classes of pairs of cells of one attribute: one of every pair of its `orbits`, then others within an orbit.

    more     (others,) the orbits in which these lie
    inside   (contrasts,) the orbit of every contrast
    ratio    (classes, contrasts) <e_x, e_y> / <e_x, e_x>, 0 outside the orbit of the contrast
    pairs    (classes,) how many ordered pairs of cells
    """

    orbits: int
    more: NDArray[np.intp]
    inside: NDArray[np.intp]
    ratio: FloatArray
    pairs: FloatArray

    @classmethod
    def of(cls, reduced: ReducedAxis) -> _PairClasses:
        axis, sizes = reduced.axis, reduced.axis.sizes
        orbits, contrasts = len(sizes), axis.contrasts
        ratio = np.zeros((orbits**2, len(contrasts)))
        pairs = np.multiply.outer(sizes, sizes).reshape(-1)
        more, others = list[int](), list[tuple[FloatArray, int]]()
        for orbit in range(orbits):
            cells = np.flatnonzero(axis.orbits == orbit)
            told = np.zeros((len(cells) ** 2, len(contrasts)))
            for j in (j for j, c in enumerate(contrasts) if c.orbit == orbit):
                child = contrasts[j].children[cells]
                parent = contrasts[j].parents[child]
                alike = np.where(child[:, None] == child, 1.0, -1 / (contrasts[j].count - 1))
                told[:, j] = np.where(parent[:, None] == parent, alike, 0.0).reshape(-1)
            kinds, counts = np.unique(told, axis=0, return_counts=True)
            ratio[orbit * (orbits + 1)], pairs[orbit * (orbits + 1)] = kinds[0], counts[0]
            more += [orbit] * (len(kinds) - 1)
            others += zip(kinds[1:], counts[1:].tolist(), strict=True)
        return cls(
            orbits,
            np.array(more, dtype=np.intp),
            np.array([c.orbit for c in contrasts], dtype=np.intp),
            np.concatenate([ratio, np.reshape([k for k, _ in others], (len(more), len(contrasts)))]),
            np.concatenate([pairs, [float(n) for _, n in others]]),
        )

    def places(self, contrast: int) -> NDArray[np.intp]:
        """The classes of pairs within the orbit of a contrast."""
        orbit = self.inside[contrast]
        return np.concatenate([[orbit * (self.orbits + 1)], self.orbits**2 + np.flatnonzero(self.more == orbit)])

    @property
    def between(self) -> NDArray[np.intp]:
        """(classes,) the pair of orbits of every class."""
        return np.concatenate([np.arange(self.orbits**2), self.more * (self.orbits + 1)])


@dataclass(frozen=True, slots=True)
class _PairWeights:
    """Which part of a table over classes of pairs of all attributes a kind of rows looks at."""

    classes: Sequence[_PairClasses]
    kinds: tuple[int, ...]
    """Of every attribute a contrast, or -1 for all its orbits."""

    @property
    def wide_classes(self) -> list[_PairClasses]:
        return [c for c, k in zip(self.classes, self.kinds, strict=True) if k < 0]

    @property
    def place(self) -> tuple[NDArray[np.intp], ...]:
        held = zip(self.classes, self.kinds, strict=True)
        return np.ix_(*(np.arange(len(c.pairs)) if k < 0 else c.places(k) for c, k in held))

    def folded(self, weights: FloatArray) -> FloatArray:
        """(l, l) weights of the pairs of joint orbits, those of contrasts times their ratios."""
        table = weights[self.place] if max(self.kinds) >= 0 else weights
        for i in reversed(range(len(self.kinds))):
            if self.kinds[i] >= 0:
                own = self.classes[i]
                table = np.tensordot(table, own.ratio[own.places(self.kinds[i]), self.kinds[i]], axes=(i, 0))
        for i, c in enumerate(self.wide_classes):
            if len(c.more):
                table, rest = np.split(np.moveaxis(table, i, 0), [c.orbits**2])
                table = table.copy()
                for orbit, own in zip(c.more, rest, strict=True):
                    table[orbit * (c.orbits + 1)] += own
                table = np.moveaxis(table, 0, i)
        orbits = [c.orbits for c in self.wide_classes]
        table = table.reshape([n for n in orbits for _ in range(2)])
        order = [*range(0, table.ndim, 2), *range(1, table.ndim, 2)]
        out = np.ascontiguousarray(table.transpose(order)).reshape(math.prod(orbits), -1)
        return np.asarray(out, dtype=np.float64)

    def spread(self, table: FloatArray) -> FloatArray:
        """Over the classes at `place` what (l, l) has at their orbits, times the ratios of contrasts."""
        orbits = [c.orbits for c in self.wide_classes]
        order = [i + side * len(orbits) for i in range(len(orbits)) for side in (0, 1)]
        table = table.reshape([*orbits, *orbits]).transpose(order).reshape([n**2 for n in orbits])
        for i, c in enumerate(self.wide_classes):
            if len(c.more):
                table = table.take(c.between, axis=i)
        for i, (c, k) in enumerate(zip(self.classes, self.kinds, strict=True)):
            if k >= 0:
                table = np.moveaxis(np.multiply.outer(c.ratio[c.places(k), k], table), 0, i)
        return table


def few_rows_replaced(problem: Problem, progress: Progress | None = None) -> Design:
    """A strategy near the least mean squared error, and a bound, where one record replaces another. Raises PlanError.

    For unions of tables beside counts, and others of few rows.
    """
    if not problem.unit.total_is_public:
        raise PlanError("weights of pairs are for a known total")

    def design(whole: Problem) -> Design:
        return design_with_solver(whole, solve_pairs, progress, paired=True, most=_FINEST)

    return planned_jointly(problem, design)


def solve_pairs(
    products: Sequence[Product], sizes: Mapping[str, int], *, progress: Progress | None = None
) -> tuple[SmallUnion, ...]:
    """Near the optimum where one record replaces another, over all attributes; `lower` and `upper` say how near.

    Raises PlanError where there are too many classes of pairs, rows or kinds, rows are no sums over classes of orbits,
    or the total is none of them.
    """
    names, axes, collect = collect_row_problem(products, sizes)
    classes = [_PairClasses.of(r) for r in axes]
    if math.prod(len(c.pairs) for c in classes) > _MOST_CLASSES:
        raise PlanError("symmetries leave too many classes of pairs of cells")
    with single_thread():
        kinds = collect()
        whole = next((i for i, k in enumerate(kinds) if max(k.kinds) < 0), None)
        total = None if whole is None else _total_row(kinds[whole])
        if whole is None or total is None:
            raise PlanError("the known total is no sum of what would be measured")
        # Lᵀ Q is the same for all cells along L⁻¹ of the total: the rest of the basis leaves it out
        root = kinds[whole].root
        assert root is not None
        turned = np.linalg.qr(np.linalg.solve(root, total)[:, None], mode="complete")[0]
        rest = replace(kinds[whole], root=root @ turned[:, 1:])
        kinds = [rest if i == whole else k for i, k in enumerate(kinds)]
        lower, upper, strategies = _climb_pairs(axes, classes, kinds, progress)
    # it changes nothing that any pair sees: a row as long as others are
    longest = max(float(np.abs(s).max(initial=0.0)) for s in strategies)
    strategies[whole] = np.vstack([strategies[whole], total * (longest / np.abs(total).max())])
    pieces = tuple(union_row_piece(axes, k, matrix) for k, matrix in zip(kinds, strategies, strict=True))
    return (SmallUnion(names, tuple(r.axis for r in axes), pieces, lower, upper, 1.0, 0.0),)


def _total_row(kind: RowKind) -> FloatArray | None:
    """The coefficients by which rows add up to the total; None where it is none of their sums."""
    inner = np.asarray((kind.rows @ kind.rows.T).todense(), dtype=np.float64)
    sums = np.asarray(kind.rows.sum(axis=1), dtype=np.float64).reshape(-1)
    found = np.asarray(np.linalg.solve(inner, sums), dtype=np.float64)
    off = np.abs(kind.rows.T @ found - 1.0).max()
    return found if off < 1e-6 else None


def _climb_pairs(
    axes: Sequence[ReducedAxis], classes: Sequence[_PairClasses], kinds: Sequence[RowKind], progress: Progress | None
) -> tuple[float, float, list[FloatArray]]:
    """(the best bound, what the best strategy attains, that strategy (s, r) over each kind of rows)."""
    whole = _PairWeights(classes, (-1,) * len(classes))
    parts = [_PairWeights(classes, k.kinds) for k in kinds]
    # a cell beside itself is no further than from itself, and loses its weight in the first step
    weights = reduce(np.multiply.outer, [c.pairs for c in classes])
    steps = int(min(_MOST_STEPS, max(_WORK / weights.size, 1.0)))
    lower, power, best = 0.0, _POWER, (math.inf, list[FloatArray]())
    for step in range(steps):
        weights /= weights.sum()
        degrees = whole.folded(weights).sum(axis=1)
        spectra = [_pair_spectrum(k, degrees[k.at], p.folded(weights)) for k, p in zip(kinds, parts, strict=True)]
        total = float(sum(s.roots.sum() for s in spectra))
        if not total > 0.0:
            raise PlanError("nothing is asked that a replaced record changes")
        proved = math.sqrt(2) * sum(s.proved for s in spectra)
        power = _POWER if proved > lower else _LEAST_POWER
        lower = max(lower, proved)
        far = _squared_distances(whole, kinds, parts, spectra)
        top = float(far.max())
        upper = math.sqrt(total * top) * (1 + _MARGIN)
        if upper < best[0]:
            best = upper, rows_of_kinds(kinds, spectra, top)
        if progress is not None:
            progress(step + 1, relative_gap(lower, best[0]))
        if best[0] <= lower * (1 + _TOLERANCE):
            break
        np.maximum(far, 0.0, out=far)
        far *= 0.5 / total
        far *= far
        for _ in range(power // 2):
            weights *= far
    return lower, best[0], best[1]


def _pair_spectrum(kind: RowKind, degrees: FloatArray, pairs: FloatArray) -> Spectrum:
    """That of M = Lᵀ Q (diag(degrees) - pairs) Qᵀ L."""
    assert kind.root is not None
    if not kind.root.size:  # of all orbits nothing but the total is asked
        return Spectrum(np.zeros((0, 0)), np.zeros(0), 0.0)
    first = np.asarray((kind.rows.multiply(degrees) @ kind.columns).todense(), dtype=np.float64)
    moment = kind.root.T @ (first - kind.rows @ (kind.rows @ pairs.T).T) @ kind.root
    lost = float(np.trace(kind.root.T @ first @ kind.root)) / max(float(np.trace(moment)), 1e-300)
    doubt = _DOUBT * rounding_units(len(degrees)) * max(lost, 1.0) + 2 * rounding_units(len(kind.root))
    return spectrum_of_square((moment + moment.T) / 2, doubt)


def _squared_distances(
    whole: _PairWeights, kinds: Sequence[RowKind], parts: Sequence[_PairWeights], spectra: Sequence[Spectrum]
) -> FloatArray:
    """(classes of every attribute) of the columns of M_t^(-1/4) Lᵀ Q, all t together."""
    forms = list[FloatArray]()
    far = np.zeros(math.prod(c.orbits for c in whole.classes))
    for kind, spectrum in zip(kinds, spectra, strict=True):
        turned = kind.across(spectrum)
        forms.append(np.asarray(kind.columns @ (((turned / spectrum.roots) @ turned.T) @ kind.rows)))
        far[kind.at] += np.diagonal(forms[-1])
    first = next(i for i, k in enumerate(kinds) if max(k.kinds) < 0)
    table = forms[first]
    table *= -2.0
    table += far
    table += far[:, None]
    out = whole.spread(table)
    for i, (part, form) in enumerate(zip(parts, forms, strict=True)):
        if i != first:
            out[part.place] -= 2 * part.spread(form)
    return out
