"""What is measured of queries over different attributes answered together, and the way back.

With Q (r, cells) the stacked queries and C (l, r) whole numbers, y = C Q x + z. The sums s = Q x are read back by least
squares, R y with R = C^+, and a query W = S Q is answered by S R y. Where the number n of records is known and is one
of the sums, n = a s, the least squares are those that keep to it; where W = S Q + t 1ᵀ, the answer has t n besides.

Whether W is such a combination is decided on the distinct columns of Q and W together, never on the joint cells; and
where its factors are combinations of those of one block of Q, by these alone.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato._util.codec import storable
from sfumato.errors import NotAnswerable, PlanError
from sfumato.operators import Block, Combination, Compose, Dense, Identity
from sfumato.operators.base import FloatArray, Numbers, single_thread
from sfumato.privacy.columns import MAX_ENTRIES, distinct_columns
from sfumato.strategies.covariance import check_covariance_size
from sfumato.strategies.strategy import Estimate, Strategy, query_key, row_shape

_RANK = 1e-12  # of the largest distance: what rounding of doubles leaves of none
_WAVES = (math.sqrt(2), math.sqrt(3))  # any two numbers unrelated to each other and to pi would do


def columns_by_class(blocks: Sequence[Block], sizes: Mapping[str, int], *, spanning: bool = False) -> FloatArray:
    """(r, c) all rows of the blocks, at cells that show every column there is, hardly any of them twice.

    With `spanning`, where these are too many, at cells whose columns have all others as affine combinations, up to
    rounding: what is affine in these is affine in all.
    For planning: what the price looks at is `privacy.columns.distinct_columns`, which takes nothing on trust.
    Raises PlanError where there would be too many entries.
    """
    names = tuple(dict.fromkeys(a for b in blocks for a in b.attributes))
    seen: dict[str, list[FloatArray]] = {a: [] for a in names}
    for block in blocks:
        for group, factor in zip(block.groups, block.factors, strict=True):
            table = np.asarray(factor.dense(), dtype=np.float64).reshape(-1, *(sizes[a] for a in group))
            for axis, name in enumerate(group, 1):
                seen[name].append(np.moveaxis(table, axis, 0).reshape(sizes[name], -1))
    slices = [np.concatenate(seen[a], axis=1) for a in names]
    kept = [np.unique(s, axis=0, return_index=True)[1] for s in slices]
    rows = sum(b.rows for b in blocks)
    if spanning and math.prod(len(k) for k in kept) * rows > MAX_ENTRIES:
        # a column is linear in what the factors have at the cell of one attribute, for given cells of the others
        kept = [k[_affine_basis(s[k])] for s, k in zip(slices, kept, strict=True)]
    if math.prod(len(k) for k in kept) * rows > MAX_ENTRIES:
        raise PlanError(f"the queries tell too many cells apart: above {MAX_ENTRIES:,} entries of columns")
    cells = dict(zip(names, (g.reshape(-1) for g in np.meshgrid(*kept, indexing="ij")), strict=True))
    columns = np.concatenate([columns_at_cells(b, cells, sizes) for b in blocks])
    # irrational weights tell columns of whole numbers apart, but for chance
    keys = np.cos(np.multiply.outer(_WAVES, np.arange(rows))) @ columns
    return columns[:, np.sort(np.unique(keys, axis=1, return_index=True)[1])]


def _affine_basis(points: FloatArray) -> NDArray[np.intp]:
    """Which of n points, (n, f), have the others as affine combinations, up to rounding."""
    from scipy.linalg import qr  # noqa: PLC0415  (slow to import)

    apart = (points - points[0]).T
    with single_thread():
        upper, pivots = qr(apart, mode="r", pivoting=True, check_finite=False)
    sizes = np.abs(np.diagonal(upper))
    return np.append(0, pivots[: np.count_nonzero(sizes > _RANK * sizes[0])]).astype(np.intp)


def columns_at_cells(block: Block, cells: Mapping[str, NDArray[np.int64]], sizes: Mapping[str, int]) -> FloatArray:
    """(rows, cells) the columns of a block at some joint cells, given by attribute."""
    out = np.ones((1, len(next(iter(cells.values())))))
    for group, factor in zip(block.groups, block.factors, strict=True):
        place = np.zeros(out.shape[1], dtype=np.int64)
        for name in group:
            place = place * sizes[name] + cells[name]
        columns = np.asarray(factor.dense(), dtype=np.float64)[:, place]
        out = (out[:, None] * columns).reshape(-1, out.shape[1])
    return out


_SPAN = 1e-7  # relative: half of a double's digits, as least squares over whole numbers round
_BACK = 1e-6  # by which R C may differ from the identity: what doubles leave of well-conditioned maps
_BESIDE = 64  # cells looked at beside two for each sum: any would do, as what they leave open is decided
_LISTED = 2**22  # entries of a query that are written out to look at some of its cells
_WELL = 1e3  # of an inverse factor's entries: what normal equations lose is then far below _SPAN
_CLEAR = 1e-3  # relative: what is as far off lies outside the span, whatever rounding did
_LARGE = 256  # rows from which singular values take long
_RANK_MERGED_STRATEGY = 1e-10  # of a singular value: C is rounded from a map whose values differ by far less


@dataclass(frozen=True, slots=True, eq=False)
class _MergedSums:
    """W = S Q + t 1ᵀ: S by `factors` over the rows of Q from `start` on, as many as these have columns; `total` is t.

    `order` are the factors as the query has them.
    """

    start: int
    factors: tuple[FloatArray, ...]
    total: FloatArray
    order: tuple[int, ...] = (0,)

    def over(self, matrix: FloatArray) -> FloatArray:
        """S `matrix`, for (r, c) -> (rows, c)."""
        out = matrix[self.start : self.start + math.prod(f.shape[1] for f in self.factors)]
        out = out.reshape(*(f.shape[1] for f in self.factors), -1)
        for axis, factor in enumerate(self.factors):
            out = np.moveaxis(np.tensordot(factor, out, axes=(1, axis)), 0, axis)
        return out.transpose(*self.order, len(self.order)).reshape(len(self.total), -1)


@storable
@dataclass(frozen=True, eq=False)
class Merged(Strategy):
    """Whole combinations of the sums that the queries ask for, answered by least squares.

    `sizes` are the cells of the attributes of `measured`. With `public_total` the number of records is known.
    """

    measured: Combination
    sizes: tuple[int, ...]
    public_total: bool = False
    title: str = ""

    @property
    def blocks(self) -> tuple[Combination, ...]:
        return (self.measured,)

    @property
    def summary(self) -> str:
        return self.title or f"combined sums over {', '.join(self.measured.attributes)}"

    @property
    def max_abs(self) -> int:
        return max(1, int(np.abs(Compose(Dense(self.measured.matrix), Dense(self._columns(()))).dense()).max()))

    @functools.cached_property
    def _back(self) -> tuple[FloatArray, FloatArray | None]:
        """R (r, l), and what the known total is worth to every sum, (r,), where it is worth something."""
        matrix = self.measured.matrix.astype(np.float64)
        with single_thread():
            if self._whole is None:
                return _pseudo_inverse_of_used(matrix, self._used > 0), None
            # some measurement of the total as well, which the known one then takes the place of
            weight = float(np.linalg.norm(matrix)) / max(float(np.linalg.norm(self._whole)), 1e-300)
            stacked = np.vstack([matrix, weight * self._whole])
            both = np.asarray(np.linalg.pinv(stacked, rcond=_RANK_MERGED_STRATEGY), dtype=np.float64)
            spread = both @ (both.T @ self._whole)
            given = spread / float(self._whole @ spread)
            back = both[:, :-1] - np.multiply.outer(given, self._whole @ both[:, :-1])
            # read back what rounding left, which differs between processors: some lost the whole plan by it
            left = np.diag(self._used) - back @ matrix - np.multiply.outer(given, self._whole)
            return back + left @ back, given + left @ given

    @property
    def sound(self) -> bool:
        """Whether the sums are read back but for rounding: no rounding of C has lost one."""
        try:
            back, given = self._back
        except np.linalg.LinAlgError:
            return False
        matrix = self.measured.matrix.astype(np.float64)
        found = back @ matrix + (0.0 if given is None or self._whole is None else np.multiply.outer(given, self._whole))
        return bool(np.abs(found - np.diag(self._used)).max() < _BACK)

    @functools.cached_property
    def _whole(self) -> FloatArray | None:
        """a with a Q = 1ᵀ, where the total is known and is a combination of what is combined."""
        if not self.public_total:
            return None
        columns = self._used[:, None] * self._columns(()).astype(np.float64)
        found, off = _least_length_solution(columns, np.ones((1, columns.shape[1])))
        return found.reshape(-1) if off <= _SPAN else None

    @functools.cached_property
    def _used(self) -> FloatArray:
        """(r,) 1 for the sums that are combined, 0 for those that are not."""
        return (np.abs(self.measured.matrix).max(axis=0) > 0).astype(np.float64)

    @functools.cached_property
    def _known(self) -> dict[Hashable, _MergedSums | str]:
        """By key, S and t of the queries asked about so far, or why there are none."""
        return {}

    def _columns(self, queries: Sequence[Block]) -> Numbers:
        """Columns of Q, and of queries below, in whose convex hull all lie: what is affine in these is so in all."""
        held = dict(zip(self.measured.attributes, self.sizes, strict=True))
        return distinct_columns([b.lowered() for b in (*self.measured.blocks, *queries)], held, ends=True)

    def _of(self, query: Block) -> _MergedSums:
        """What of Q a query is."""
        missing = [a for a in query.attributes if a not in self.measured.attributes]
        if missing:
            raise NotAnswerable(f"nothing about {', '.join(missing)} was measured together with the rest of the query")
        key = query_key(query)
        known = self._known.get(key)
        if known is None:
            try:
                known = self._placed(query, key)
            except NotAnswerable as reason:
                known = str(reason)
            self._known[key] = known
        if isinstance(known, str):
            raise NotAnswerable(known)
        return known

    @functools.cached_property
    def _keys(self) -> tuple[Hashable, ...]:
        """Of the blocks that are combined, what `_known` would call them."""
        return tuple(map(query_key, self.measured.blocks))

    def _placed(self, query: Block, key: Hashable) -> _MergedSums:
        ends = np.cumsum([0, *(b.rows for b in self.measured.blocks)]).tolist()
        for i, own in enumerate(self._keys):
            if own == key and self._used[ends[i] : ends[i + 1]].all():
                # of a block that is combined itself, all rows of it
                return _MergedSums(ends[i], (np.eye(query.rows),), np.zeros(query.rows))
        for i, block in enumerate(self.measured.blocks):
            factors = self._inside(query, i)
            if factors is not None and (self._used[ends[i] : ends[i + 1]].all() or self._spread is not None):
                groups = list(block.groups)
                order = [*map(groups.index, query.groups), *(k for k, g in enumerate(groups) if g not in query.groups)]
                return _MergedSums(ends[i], factors, np.zeros(query.rows), tuple(order))
        found, total = self._found(query)
        return _MergedSums(0, (found,), total)

    @functools.cached_property
    def _bases(self) -> tuple[dict[tuple[str, ...], tuple[FloatArray, FloatArray]], ...]:
        """Per block by group the rows of its factor and their inverse; none of blocks too large to list."""
        out: list[dict[tuple[str, ...], tuple[FloatArray, FloatArray]]] = []
        for block in self.measured.blocks:
            own: dict[tuple[str, ...], tuple[FloatArray, FloatArray]] = {}
            if max((f.shape[0] * f.shape[1] for f in block.factors), default=1) <= _LISTED:
                for group, factor in zip(block.groups, block.factors, strict=True):
                    rows = np.asarray(factor.dense(), dtype=np.float64)
                    own[group] = rows, np.asarray(np.linalg.pinv(rows, rcond=_RANK_MERGED_STRATEGY), dtype=np.float64)
            out.append(own)
        return tuple(out)

    def _inside(self, query: Block, number: int) -> tuple[FloatArray, ...] | None:
        """A query as products of combinations of the factors of one block; None where it is none."""
        bases, factors = self._bases[number], dict(zip(query.groups, query.factors, strict=True))
        if not factors.keys() <= bases.keys() or any(f.shape[0] * f.shape[1] > _LISTED for f in query.factors):
            return None
        out: list[FloatArray] = []
        for group, (rows, inverse) in bases.items():
            asked = np.asarray(factors[group].dense()) if group in factors else np.ones((1, rows.shape[1]))
            found = asked.astype(np.float64) @ inverse
            if _relative_deviation(found, rows, asked) > _SPAN:
                return None
            out.append(found)
        return tuple(out)

    @functools.cached_property
    def _spread(self) -> FloatArray | None:
        """(r, r) all sums as combinations of those that are combined; None where these do not span them."""
        used = self._used > 0
        if used.all():
            return np.eye(len(used))
        held = dict(zip(self.measured.attributes, self.sizes, strict=True))
        columns = columns_by_class(self.measured.blocks, held, spanning=True)
        with single_thread():
            within = columns[used] @ columns[used].T
            found = np.linalg.solve(within, columns[used] @ columns[~used].T).T
            # tables have their totals as plain sums of cells
            found = np.where(np.abs(found - np.rint(found)) < _SPAN, np.rint(found), found)
            if _relative_deviation(found, columns[used], columns[~used]) > _SPAN:
                return None
        out = np.zeros((len(used), len(used)))
        out[np.ix_(used, used)] = np.eye(int(used.sum()))
        out[np.ix_(~used, used)] = found
        return out

    @functools.cached_property
    def _some(self) -> tuple[dict[str, NDArray[np.int64]], FloatArray, FloatArray]:
        """Some joint cells by attribute, what is combined of their columns (and the known total), and its inverse."""
        count, cells = 2 * len(self._used) + _BESIDE, dict[str, NDArray[np.int64]]()
        most = (len(self.sizes) + 1) ** 2
        primes = [n for n in range(2, most + 1) if all(n % k for k in range(2, math.isqrt(n) + 1))]
        for prime, name, size in zip(primes, self.measured.attributes, self.sizes, strict=False):
            # multiples of numbers of which none is a rational combination of others fill the joint cells evenly
            cells[name] = (np.arange(1, count + 1) * math.sqrt(prime) % 1.0 * size).astype(np.int64)
        below = self._used[:, None] * np.concatenate([self._at(b, cells) for b in self.measured.blocks])
        if self.public_total:
            below = np.vstack([below, np.ones(count)])
        # what is not combined is zero, and most of what there is
        held, inverse = below.any(axis=1), np.zeros(below.shape[::-1])
        with single_thread():
            inverse[:, held] = np.linalg.pinv(below[held], rcond=_RANK_MERGED_STRATEGY)
        return cells, below, inverse

    def _at(self, block: Block, cells: dict[str, NDArray[np.int64]]) -> FloatArray:
        return columns_at_cells(block, cells, dict(zip(self.measured.attributes, self.sizes, strict=True)))

    def _cannot(self, query: Block) -> bool:
        """Whether some cells show that a query is no combination; most are told so at once."""
        if all(isinstance(f, Identity) for f in query.factors) and query.rows > len(self._used) + 1:
            return True
        if max((f.shape[0] * f.shape[1] for f in query.factors), default=1) > _LISTED:
            return False
        cells, below, inverse = self._some
        if query.rows * below.shape[1] > _LISTED:
            return False
        wanted = self._at(query, cells)
        off = np.abs(wanted @ inverse @ below - wanted).max(initial=0.0)
        return bool(off > _SPAN * max(float(np.abs(wanted).max(initial=0.0)), 1e-300))

    def _found(self, query: Block) -> tuple[FloatArray, FloatArray]:
        if self._cannot(query):
            names = ", ".join(query.attributes) or "the total"
            raise NotAnswerable(f"a query over {names} lies outside the span of what was measured")
        try:
            held = dict(zip(self.measured.attributes, self.sizes, strict=True))
            columns = columns_by_class((*self.measured.blocks, query), held, spanning=True)
        except PlanError as reason:
            raise NotAnswerable(f"whether what was measured answers the query cannot be told: {reason}") from None
        r = len(self._used)
        below = self._used[:, None] * columns[:r]
        if self.public_total:
            below = np.vstack([below, np.ones(columns.shape[1])])
        found, off = self._at_some(query, below, columns[r:])
        if off > _SPAN:
            found, off = _least_length_solution(below, columns[r:])
        if off > _SPAN:
            names = ", ".join(query.attributes) or "the total"
            raise NotAnswerable(f"a query over {names} lies outside the span of what was measured")
        return found[:, :r], found[:, r] if self.public_total else np.zeros(len(found))

    def _at_some(self, query: Block, below: FloatArray, wanted: FloatArray) -> tuple[FloatArray, float]:
        """What some cells say of a query, and how far off that is on all columns: most queries are told by them."""
        if max((f.shape[0] * f.shape[1] for f in query.factors), default=1) > _LISTED:
            return wanted[:, :0], math.inf
        cells, some, inverse = self._some
        if query.rows * some.shape[1] > _LISTED:
            return wanted[:, :0], math.inf
        found = self._at(query, cells) @ inverse
        return found, _relative_deviation(found, below, wanted)

    @functools.cached_property
    def _every(self) -> tuple[FloatArray, FloatArray | None]:
        """`_back` for all sums, those too that are not combined but lie in the span of what is."""
        back, given = self._back
        spread = None if (self._used > 0).all() else self._spread
        if spread is None:
            return back, given
        with single_thread():
            return spread @ back, None if given is None else spread @ given

    def _rows(self, query: Block) -> FloatArray:
        """S R, (rows, l)."""
        return self._of(query).over(self._every[0])

    def check(self, query: Block) -> None:
        self._of(query)

    def row_powers(self, query: Block, power: int) -> FloatArray:
        return (self._rows(query) ** power).sum(axis=1).reshape(row_shape(query))

    def covariance(self, first: Block, second: Block) -> FloatArray:
        check_covariance_size(first.rows, second.rows)
        return self._rows(first) @ self._rows(second).T

    def estimate(self, values: Sequence[Numbers], total: int | None) -> Estimate:
        back, given = self._every
        sums = back @ values[0].astype(np.float64)
        if given is not None:
            assert total is not None
            sums = sums + given * total
        return sums, float(total or 0)

    def answer(self, estimate: Estimate, query: Block) -> FloatArray:
        sums, total = estimate
        found = self._of(query)
        return found.over(sums[:, None])[:, 0] + found.total * total


def _pseudo_inverse_of_used(matrix: FloatArray, used: NDArray[np.bool_]) -> FloatArray:
    """The pseudo-inverse of a matrix whose columns are zero but for those that are used."""
    square = matrix[:, used]
    if len(square) < _LARGE or square.shape[0] != square.shape[1]:
        return np.asarray(np.linalg.pinv(matrix, rcond=_RANK_MERGED_STRATEGY), dtype=np.float64)
    out = np.zeros(matrix.shape[::-1])
    out[used] = np.linalg.inv(square)  # a tenth of the time; whether it is one is looked at
    return out


def _least_length_solution(rows: FloatArray, wanted: FloatArray) -> tuple[FloatArray, float]:
    """X of least length with X rows nearest to `wanted`, and how far off it is, relative to the largest entry."""
    held = rows.any(axis=1)
    with single_thread():
        few = rows[held]
        quick = _solve_independent(few @ few.T, wanted @ few.T)
        if quick is not None:
            found = np.zeros((len(wanted), len(rows)))
            found[:, held] = quick
            off = _relative_deviation(found, rows, wanted)
            if not _SPAN < off < _CLEAR:
                return found, off
        found = np.asarray(np.linalg.lstsq(rows.T, wanted.T, rcond=None)[0].T, dtype=np.float64)
    return found, _relative_deviation(found, rows, wanted)


def _solve_independent(gram: FloatArray, right: FloatArray) -> FloatArray | None:
    """right gram^-1, by which the only X of independent rows is told; None where they are not clearly independent."""
    from scipy.linalg import cho_solve  # noqa: PLC0415  (slow to import)

    scale = np.sqrt(np.maximum(np.diagonal(gram), 1e-300))
    try:
        factor = np.linalg.cholesky(gram / scale / scale[:, None])
    except np.linalg.LinAlgError:
        return None
    if float(np.abs(np.linalg.inv(factor)).max(initial=0.0)) > _WELL:
        return None
    return np.asarray(cho_solve((factor, True), (right / scale).T).T / scale, dtype=np.float64)


def _relative_deviation(found: FloatArray, rows: FloatArray, wanted: FloatArray) -> float:
    off = float(np.abs(found @ rows - wanted).max(initial=0.0))
    return off / max(float(np.abs(wanted).max(initial=0.0)), 1e-300)
