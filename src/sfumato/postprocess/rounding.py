"""Whole counts near fractional ones: every answer of a table that was rounded is that of a table of whole counts.

[Cox87]
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sfumato.operators import Identity, LinearOperator
from sfumato.operators.base import FloatArray
from sfumato.postprocess.records import fit_weights, spanning_records

_CONTROLLED = 4_000  # cells, each a whole number to be decided in the time below
_ROWS = 20_000  # answers, each with two constraints
_SECONDS = 5.0  # of a search that may have no end; then the nearest of other roundings is taken


def round_to_total(values: FloatArray, total: int) -> NDArray[np.int64]:
    """(m,) whole numbers that sum to `total`, each the floor or the ceiling of a share of it: largest remainders."""
    share = values / values.sum() * total if values.sum() > 0 else np.full(len(values), total / len(values))
    whole = np.floor(share + 1e-9).astype(np.int64)
    missing = total - int(whole.sum())
    if missing:
        order = np.argsort(whole - share, kind="stable")
        whole[order[:missing]] += 1
    return whole


def round_records(weights: FloatArray, total: int) -> NDArray[np.int64]:
    """(r,) whole numbers of records, by rounding running sums: neighbours in the order share their rounding.

    Records that are ordered by their codes are rounded so that every group of neighbours is off by at most one.
    """
    if weights.sum() <= 0:
        return round_to_total(weights, total)
    ends = np.rint(np.cumsum(weights) / weights.sum() * total).astype(np.int64)
    ends[-1] = total
    return np.diff(ends, prepend=0)


def controlled_rounding(cells: FloatArray, operator: LinearOperator, total: int) -> NDArray[np.int64] | None:
    """(m,) cells of sum `total`, every answer the floor or the ceiling of what it was; None where none is found.

    The queries are sums of cells (entries 0 and 1). Always possible for one table with its margins along two
    attributes; from three on there need not be such a rounding, and the search has a limit of a few seconds.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415  (heavy)
    from scipy.sparse import csr_array  # noqa: PLC0415  (heavy)

    rows, m = operator.shape
    if m > _CONTROLLED or rows > _ROWS or rows * m > 2**25 or not operator.binary:
        return None
    snapped = np.where(np.abs(cells - np.rint(cells)) < 1e-7, np.rint(cells), cells)
    whole = np.floor(snapped)
    free = np.flatnonzero(snapped > whole)
    if len(free) == 0:
        return whole.astype(np.int64) if whole.sum() == total else None
    matrix = np.asarray(operator.dense(), dtype=np.float64)
    asked, base = matrix @ snapped, matrix @ whole
    low, high = np.floor(asked + 1e-6) - base, np.ceil(asked - 1e-6) - base
    # most of what is nearly up goes up
    reward = 1 - 2 * (snapped - whole)[free]
    found = milp(
        reward,
        integrality=np.ones(len(free), dtype=np.int64),
        bounds=Bounds(0, 1),
        constraints=[
            LinearConstraint(csr_array(matrix[:, free]), low, high),
            LinearConstraint(np.ones((1, len(free))), total - whole.sum(), total - whole.sum()),
        ],
        options={"time_limit": _SECONDS},
    )
    if found.x is None:
        return None
    whole[free] += np.rint(found.x)
    return whole.astype(np.int64)


Codes = NDArray[np.int32]
Allowed = tuple[tuple[int, ...], NDArray[np.bool_]]
"""Positions of some attributes, and which of their joint cells a record can be in, shaped by them."""

FITTED = 2**16
"""Records that are moved; more are copies of these."""
_SWEEPS = 40  # the fall of the squares ends most searches long before
_PATIENT, _EVALUATIONS = 100, 2**34  # sweeps, and changes evaluated, where more is asked for
_FALL = 0.03  # of the squares in one sweep: less is not worth the time, and fits the noise rather than the table
_MOVED, _LEAST_MOVED = 1e-3, 1e-4  # of all cells of records: a sweep that moves fewer gains next to nothing
_PARTS = 8  # records that move at once see the same tables, so several parts a sweep; each costs a pass over the tables
_WEIGHED = 2**23  # cells of tables that records lie in: 130 MB, and some seconds; beyond, all have as many copies
_HELD = 2**22  # gains evaluated at once: some tens of MB


def whole_records(
    sizes: Sequence[int],
    axes: Sequence[tuple[int, ...]],
    tables: Sequence[FloatArray],
    count: int,
    *,
    start: Codes | None = None,
    seed: int = 0,
    enough: float | None = None,
    allowed: Sequence[Allowed] = (),
) -> tuple[Codes, NDArray[np.int64]]:
    """Distinct records (r, d) and how many there are of each, `count` in all, with tables near the given ones.

    sizes: cells of every attribute; axes: positions of the attributes of each table; tables: not negative, shaped
    by them, which are scaled to `count`. Lowers the sum of squares over the cells of all tables until a sweep
    over all records gains little: a local optimum without a certificate. start: `count` records to change, by
    default drawn along a tree of pairs. Above 65,536 records, copies of so many, as many of each as brings their tables
    nearest. enough: go on, for up to a hundred
    sweeps, until the sum of squares is that or hardly a record moves; for tables that have little noise left. allowed:
    no record moves where one of these masks is false.
    The seed makes public randomness: the same input gives the same records.
    """
    codes = spanning_records(sizes, axes, tables, min(count, FITTED), seed) if start is None else start
    fitted = len(codes)
    if fitted == 0:
        return codes, np.empty(0, dtype=np.int64)
    moves = _Moves(sizes, axes, tables, codes, np.random.default_rng(seed), allowed)
    moves.run(None if enough is None else enough * (fitted / max(count, 1)) ** 2)
    codes, counts = np.unique(moves.codes, axis=0, return_counts=True)
    if fitted == count:
        return codes, counts.astype(np.int64)
    weights = np.asarray(counts * (count / fitted), dtype=np.float64)
    if len(codes) * len(axes) <= _WEIGHED:
        weights = _copies_per_record(sizes, axes, tables, codes, weights, count)
    # neighbours share their rounding, so groups of like records keep their shares
    whole = round_records(weights, count)
    return codes[whole > 0], whole[whole > 0]


def _copies_per_record(
    sizes: Sequence[int],
    axes: Sequence[tuple[int, ...]],
    tables: Sequence[FloatArray],
    codes: Codes,
    weights: FloatArray,
    count: int,
) -> FloatArray:
    """How many copies of each record, in parts of one, bring their tables nearest."""
    wanted = [np.asarray(t, dtype=np.float64).reshape(-1) for t in tables]
    scaled = [t * (count / t.sum()) if t.sum() > 0 else np.full(t.size, count / t.size) for t in wanted]
    blocks = [(tuple(a), Identity(t.size)) for a, t in zip(axes, wanted, strict=True)]
    return fit_weights(blocks, sizes, codes, weights, np.concatenate(scaled), float(count))


class _Side:
    """The tables that hold an attribute, its cells as columns and all others' as rows below each other."""

    def __init__(self, attribute: int, cells: int, axes: Sequence[tuple[int, ...]], away: Sequence[FloatArray]) -> None:
        held = [(a, t) for a, t in zip(axes, away, strict=True) if attribute in a]
        self.cells, self.count = cells, len(held)
        self.tables = [np.moveaxis(t, a.index(attribute), -1) for a, t in held]
        rows = [t.size // cells for t in self.tables]
        self.starts = np.cumsum([0, *rows], dtype=np.int32)
        width = max((len(a) for a, _ in held), default=1) - 1
        self.others = np.zeros((width, self.count), dtype=np.intp)
        self.strides = np.zeros((width, self.count), dtype=np.int32)
        for t, (a, _) in enumerate(held):
            rest = [j for j in a if j != attribute]
            self.others[: len(rest), t] = rest
            steps = np.cumprod([1, *reversed(self.tables[t].shape[1:-1])])[::-1]
            self.strides[: len(rest), t] = steps[: len(rest)]

    def rows(self, codes: Codes) -> Codes:
        """(r, tables) the row of every record in every table."""
        out = np.zeros((len(codes), self.count), dtype=np.int32)
        for other, stride in zip(self.others, self.strides, strict=True):
            out += codes.take(other, axis=1) * stride
        out += self.starts[:-1]
        return out

    def read(self) -> FloatArray:
        """(rows, cells) of all tables."""
        return np.concatenate([t.reshape(-1, self.cells) for t in self.tables])

    def write(self, stacked: FloatArray) -> None:
        """Put them back."""
        for t, a, b in zip(self.tables, self.starts[:-1], self.starts[1:], strict=True):
            t[...] = stacked[a:b].reshape(t.shape)


class _Moves:
    """Records and the differences between their tables and those wanted."""

    def __init__(
        self,
        sizes: Sequence[int],
        axes: Sequence[tuple[int, ...]],
        tables: Sequence[FloatArray],
        codes: Codes,
        random: np.random.Generator,
        allowed: Sequence[Allowed] = (),
    ) -> None:
        # parts of records that are alike would all see the same gaps
        self.codes, self.random = codes[random.permutation(len(codes))], random
        self.away: list[FloatArray] = []
        for a, wanted in zip(axes, tables, strict=True):
            total = float(wanted.sum())
            share = wanted / total if total > 0 else np.full(wanted.shape, 1 / wanted.size)
            self.away.append(_table_of_records(codes, a, wanted.shape) - len(codes) * share)
        self.sides = [_Side(i, n, axes, self.away) for i, n in enumerate(sizes)]
        # per attribute the masks that hold it, its cells last
        self.held = [
            [([j for j in a if j != i], np.moveaxis(m, a.index(i), -1)) for a, m in allowed if i in a]
            for i in range(len(sizes))
        ]

    def run(self, enough: float | None = None) -> None:
        """Sweep over all attributes until little is gained; or until squares are enough, or hardly a record moves."""
        squares, sweeps, least, fall = self._squares(), _SWEEPS, _MOVED * self.codes.size, _FALL
        if enough is not None:
            evaluations = len(self.codes) * sum(side.count * side.cells for side in self.sides)
            sweeps = min(max(_EVALUATIONS // max(evaluations, 1), _SWEEPS // 2), _PATIENT)
            least, fall = _LEAST_MOVED * self.codes.size, 0.0
        for _ in range(sweeps):
            moved = sum(self._sweep(i) for i in self.random.permutation(len(self.sides)).tolist())
            before, squares = squares, self._squares()
            if moved <= least or squares > (1 - fall) * before or (enough is not None and squares <= enough):
                break

    def _squares(self) -> float:
        return sum(float(np.vdot(t, t)) for t in self.away)

    def _sweep(self, attribute: int) -> int:
        """Every record once, a part of them at a time; how many moved."""
        side, count = self.sides[attribute], len(self.codes)
        if side.count == 0 or side.cells == 1:
            return 0
        stacked, moved = side.read(), 0
        parts = max(min(_PARTS, count // 64), math.ceil(count * (side.cells + side.count) / _HELD), 1)
        for part in np.array_split(self.codes, parts):
            records, cells = self._moved(side, stacked, part, attribute)
            part[records, attribute] = cells
            moved += len(records)
        side.write(stacked)
        return moved

    def _moved(
        self, side: _Side, stacked: FloatArray, codes: Codes, attribute: int
    ) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Which of these records move and to which cell; the tables follow, in place."""
        from scipy.sparse import csr_array  # noqa: PLC0415  (heavy)

        rows, now, each = side.rows(codes), codes[:, attribute], np.arange(len(codes))
        ends = np.arange(0, rows.size + 1, side.count, dtype=np.int32)
        across = csr_array((np.ones(rows.size), rows.reshape(-1), ends), shape=(len(codes), len(stacked)))
        # half of what the squares grow by: moving a record adds 1 to a cell of each table and takes 1 from another
        growth = np.zeros((len(codes), side.cells))
        growth[:, 1:] = np.asarray(across @ (stacked[:, 1:] - stacked[:, :1]), dtype=np.float64)
        growth += side.count - growth[each, now][:, None]
        for others, mask in self.held[attribute]:
            growth[~np.broadcast_to(mask[tuple(codes[:, others].T)], growth.shape)] = np.inf
        best = growth.argmin(axis=1)
        gain = np.flatnonzero(growth[each, best] < -1e-9)

        def change(records: NDArray[np.intp]) -> FloatArray:
            at = rows[records].astype(np.intp) * side.cells
            into, out = (np.bincount((at + x[records, None]).reshape(-1), minlength=stacked.size) for x in (best, now))
            return (into - out).astype(np.float64)

        if len(gain) == 0:
            return gain, best[gain]
        moves, own = change(gain), len(gain) * side.count
        # for a random share s of them the squares grow by 2 (slope s + bend s^2 / 2) in expectation
        slope, bend = float(stacked.reshape(-1) @ moves) + own, float(moves @ moves) - 2 * own
        share = 1.0 if bend <= 0 else min(1.0, -slope / bend)
        if share < 1:
            gain = gain[self.random.random(len(gain)) < share]
            moves = change(gain)
        stacked += moves.reshape(stacked.shape)
        return gain, best[gain]


def _table_of_records(codes: Codes, axes: tuple[int, ...], shape: tuple[int, ...]) -> FloatArray:
    """The table of the records."""
    places = np.ravel_multi_index(tuple(codes[:, i] for i in axes), shape) if axes else np.zeros(len(codes), np.intp)
    return np.bincount(places, minlength=math.prod(shape)).astype(np.float64).reshape(shape)
