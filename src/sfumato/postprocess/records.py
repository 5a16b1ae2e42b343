"""Projection onto the answers of weighted records, over universes too large to list: fully corrective Frank-Wolfe.

Every answer of a workload is a sum over records of entries of small tables, one per block. So the record that
a gradient favours most is the largest of a sum of tables over few attributes each: an oracle finds it, and
says how much any record could be worth at most. What it finds joins the records held, whose weights are then
fitted by least squares. [Jag13, NTZ13]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sfumato._util.display import Progress
from sfumato.operators import LinearOperator
from sfumato.operators.base import FloatArray
from sfumato.postprocess.cones import minimise_quadratic, project_onto_simplex

Codes = NDArray[np.int32]

# steps between two calls of the oracle for further records: the next fit goes on from here; the gap says when to end
_FITTED = 60
_EXACT = 400  # records in use: their least squares are solved exactly in milliseconds
_DENSE = 2**23  # 64 MB of answers of single records
_ROUNDS, _GAINED = 5, 0.9  # of fits; a tenth of the squares is a twentieth of their root, which few would notice
_DROPPED = 1e-9  # of all weights: such a record is less than one of a thousand million


@dataclass(frozen=True, slots=True, eq=False)
class WorthFactor:
    """A table over some attributes (`axes`, positions), one term of a record's worth."""

    axes: tuple[int, ...]
    values: FloatArray

    def at(self, codes: Codes) -> FloatArray:
        """(r,) the term of every record."""
        return np.broadcast_to(self.values[tuple(codes[:, i] for i in self.axes)], len(codes))


class Oracle(Protocol):
    """Finds records of large worth, which is the sum of factors."""

    @property
    def exact(self) -> bool:
        """Whether the first record that is found is always the best there is."""
        ...

    def search(self, factors: Sequence[WorthFactor], known: Codes) -> Codes:
        """(r, d) good records, the best first; `known` are those held, from which a search may start."""
        ...

    def bound(self, factors: Sequence[WorthFactor]) -> float:
        """A proved bound on the worth of any record."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class RecordSolution:
    """Records (r, d) with weights (r,), their answers, and a proved bound on the squared distance to the projection."""

    codes: Codes
    weights: FloatArray
    fitted: FloatArray
    gap: float
    iterations: int


class _Answers:
    """Answers of weighted records to the blocks of a workload, and gradients as tables."""

    def __init__(self, blocks: Sequence[tuple[tuple[int, ...], LinearOperator]], sizes: Sequence[int]) -> None:
        self.sizes = tuple(sizes)
        self.axes = [a for a, _ in blocks]
        self.shapes = [tuple(sizes[i] for i in a) for a in self.axes]
        self.operators = [o for _, o in blocks]
        self.starts = np.cumsum([0, *(math.prod(s) for s in self.shapes)])
        self.rows = np.cumsum([0, *(o.shape[0] for o in self.operators)])

    def positions(self, codes: Codes) -> NDArray[np.int64]:
        """(r, blocks) where every record lies among the cells of all tables in a row."""
        out = np.empty((len(codes), len(self.axes)), dtype=np.int64)
        for b, (axes, shape) in enumerate(zip(self.axes, self.shapes, strict=True)):
            out[:, b] = self.starts[b]
            if axes:
                out[:, b] += np.ravel_multi_index(tuple(codes[:, i] for i in axes), shape)
        return out

    def answers(self, tables: FloatArray) -> FloatArray:
        """(k,) from the cells of all tables in a row."""
        return np.concatenate(
            [
                np.asarray(o.matvec(tables[a:b]), dtype=np.float64)
                for o, a, b in zip(self.operators, self.starts[:-1], self.starts[1:], strict=True)
            ]
        )

    def back(self, answers: FloatArray) -> FloatArray:
        """The transpose: cells of all tables in a row."""
        return np.concatenate(
            [
                np.asarray(o.rmatvec(answers[a:b]), dtype=np.float64)
                for o, a, b in zip(self.operators, self.rows[:-1], self.rows[1:], strict=True)
            ]
        )

    def factors(self, tables: FloatArray) -> list[WorthFactor]:
        """The cells of all tables as factors."""
        return [
            WorthFactor(x, tables[a:b].reshape(s))
            for x, s, a, b in zip(self.axes, self.shapes, self.starts[:-1], self.starts[1:], strict=True)
        ]


def fit_records(
    blocks: Sequence[tuple[tuple[int, ...], LinearOperator]],
    sizes: Sequence[int],
    answers: FloatArray,
    total: float | None,
    oracle: Oracle,
    start: Codes,
    *,
    white: FloatArray | None = None,
    lower: float = 0.0,
    tolerance: float = 1e-3,
    rounds: int = 60,
    progress: Progress | None = None,
) -> RecordSolution:
    """Weighted records, of `total` in all (None: any number), whose answers are nearest to the given ones.

    blocks: per block the positions of its attributes and its map from their cells; sizes: cells per attribute;
    start (r, d): records to begin with, at least one; white: (k,) one over the noise's deviation, or None.
    `lower` is a proved bound from below on the squared distance of the answers from the body, by a larger body.
    Stops where the gap is at most `tolerance` times the squared distance moved, or after `rounds`.
    """
    world = _Answers(blocks, sizes)
    scale = np.ones(len(answers)) if white is None else white
    codes = np.unique(start, axis=0)
    weights = np.full(len(codes), (1.0 if total is None else total) / len(codes))
    gap, done = math.inf, 0
    for done in range(1, rounds + 1):
        weights = _fit_record_weights(world, codes, weights, answers, scale, total)
        held = weights > _DROPPED * weights.sum()
        codes, weights = codes[held], weights[held]
        if total is not None:
            weights *= total / weights.sum()
        tables = _record_tables(world, codes, weights)
        away = scale * (answers - world.answers(tables))
        pull = world.back(scale * away)
        factors = world.factors(pull)
        found = oracle.search(factors, codes)
        worth = pull[world.positions(found)].sum(axis=1)
        inner, distance = float(pull @ tables), float(away @ away)
        most = _record_count_bound(world, answers, scale, distance) if total is None else total
        gap = most * max(float(worth.max()), 0.0 if total is None else -math.inf) - inner
        if progress is not None:
            progress(done, gap)
        new = found[worth > (inner / total if total else 0.0)]
        if gap <= tolerance * distance or len(new) == 0 or done == rounds:
            # what the answers' distance exceeds the body's by is a bound too
            top = float(worth.max()) if oracle.exact else oracle.bound(factors)
            gap = max(min(most * (top if total is not None else max(top, 0.0)) - inner, distance - lower), 0.0)
            break
        every = np.concatenate([codes, new])
        codes, first = np.unique(every, axis=0, return_index=True)
        weights = np.concatenate([weights, np.zeros(len(new))])[first]
    return RecordSolution(codes, weights, world.answers(_record_tables(world, codes, weights)), gap, done)


def fit_weights(
    blocks: Sequence[tuple[tuple[int, ...], LinearOperator]],
    sizes: Sequence[int],
    codes: Codes,
    weights: FloatArray,
    answers: FloatArray,
    total: float,
) -> FloatArray:
    """(r,) weights of records, not negative and `total` in all, whose answers are nearer to the given ones.

    blocks and sizes: as in `fit_records`; codes (r, d): distinct records; weights (r,): to start from. Goes on while
    the squares fall by a tenth in sixty steps, and for 300 at most.
    """
    world, scale = _Answers(blocks, sizes), np.ones(len(answers))
    squares = math.inf
    for _ in range(_ROUNDS):
        fitted = _fit_record_weights(world, codes, weights, answers, scale, total)
        before, squares = squares, float(np.sum((answers - world.answers(_record_tables(world, codes, fitted))) ** 2))
        weights = fitted if squares < before else weights
        if squares > _GAINED * before:
            break
    return weights


def _record_count_bound(world: _Answers, answers: FloatArray, scale: FloatArray, distance: float) -> float:
    """A bound on the number of records in the projection, which is as near to the answers as what is held.

    Where the rows of a block add up to the total, it is their answers' sum, up to that distance.
    """
    found = math.inf
    for o, a, b in zip(world.operators, world.rows[:-1], world.rows[1:], strict=True):
        if np.array_equal(o.rmatvec(np.ones(b - a)), np.ones(o.shape[1])):
            far = math.sqrt(distance) * float(np.linalg.norm(1 / scale[a:b]))
            found = min(found, float(answers[a:b].sum()) + far)
    return max(found, 0.0)


def _record_tables(world: _Answers, codes: Codes, weights: FloatArray) -> FloatArray:
    places = world.positions(codes)
    return np.bincount(places.reshape(-1), np.repeat(weights, places.shape[1]), minlength=int(world.starts[-1])).astype(
        np.float64
    )


def _fit_record_weights(
    world: _Answers, codes: Codes, weights: FloatArray, answers: FloatArray, scale: FloatArray, total: float | None
) -> FloatArray:
    """Weights of the records held, nearer to the least squares, by accelerated gradient. [BT09]"""
    from scipy.sparse import csr_array  # noqa: PLC0415  (heavy)

    places = world.positions(codes)
    count, terms = places.shape
    if count == 0:
        return weights
    held = csr_array(
        (np.ones(count * terms), places.reshape(-1), np.arange(0, count * terms + 1, terms)),
        shape=(count, int(world.starts[-1])),
    )
    across = held.T.tocsr()

    def fitted(w: FloatArray) -> FloatArray:
        return world.answers(np.asarray(across @ w, dtype=np.float64))

    def slope(w: FloatArray) -> FloatArray:
        return np.asarray(held @ world.back(scale**2 * (fitted(w) - answers)), dtype=np.float64)

    zero = slope(np.zeros(count))
    trial, curvature = np.abs(np.sin(np.arange(1, count + 1))) + 0.1, 1.0
    for _ in range(15):
        trial /= np.linalg.norm(trial)
        trial = slope(trial) - zero
        curvature = float(np.linalg.norm(trial))
    step = 1 / max(1.05 * curvature, 1e-300)
    w = point = weights
    momentum = 1.0
    for _ in range(_FITTED):
        new = project_onto_simplex(point - step * slope(point), total)
        if float((point - new) @ (new - w)) > 0:
            momentum, point = 1.0, w
            new = project_onto_simplex(point - step * slope(point), total)
        ahead = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        point, w, momentum = new + (momentum - 1) / ahead * (new - w), new, ahead
    used = np.flatnonzero(w)
    if not 0 < len(used) <= _EXACT or len(used) * len(answers) > _DENSE:
        return w
    units = np.eye(count)[used]
    columns = np.stack([scale * fitted(u) for u in units], axis=1)
    some = minimise_quadratic(columns.T @ columns, columns.T @ (scale * answers), total, w[used])
    w = np.zeros(count)
    w[used] = some
    return w


Pair = tuple[int, int]


def spanning_records(
    sizes: Sequence[int], axes: Sequence[tuple[int, ...]], tables: Sequence[FloatArray], count: int, seed: int = 0
) -> Codes:
    """(count, d) records, attributes on the tree as their pairs are, and otherwise independent.

    sizes: cells of every attribute; axes: positions of the attributes of each table; tables: not negative, shaped
    by them. Within each cell of an attribute the next one's counts are off by less than one from what its table's
    row says. Attributes in no table are drawn evenly. The seed makes public randomness: which records share their
    cells beyond the tree.
    """
    random = np.random.default_rng(seed)
    single, pairs = _small_margins(axes, tables)
    tree = _spanning_forest(len(sizes), pairs)
    codes = np.full((count, len(sizes)), -1, dtype=np.int32)
    alone = np.zeros(count, dtype=np.int32)
    drawn: set[int] = set()
    for root in range(len(sizes)):
        if root in drawn:
            continue
        shares = single.get(root, np.ones(sizes[root]))
        codes[:, root] = _draw_child_cells(alone, shares[None], random)
        drawn.add(root)
        waiting = [root]
        while waiting:
            above = waiting.pop()
            for below in tree[above]:
                if below in drawn:
                    continue
                pair = (above, below) if above < below else (below, above)
                table = pairs[pair] if above < below else pairs[pair].T
                codes[:, below] = _draw_child_cells(codes[:, above], table, random)
                drawn.add(below)
                waiting.append(below)
    return codes


def _small_margins(
    axes: Sequence[tuple[int, ...]], tables: Sequence[FloatArray]
) -> tuple[dict[int, FloatArray], dict[Pair, FloatArray]]:
    """Counts of single attributes and of pairs in ascending order, each from the first table that holds them."""
    single: dict[int, FloatArray] = {}
    pairs: dict[Pair, FloatArray] = {}
    for some, table in zip(axes, tables, strict=True):
        for p, a in enumerate(some):
            if a not in single:
                single[a] = table.sum(axis=tuple(i for i in range(len(some)) if i != p))
            for q, b in enumerate(some):
                if a < b and (a, b) not in pairs:
                    found = table.sum(axis=tuple(i for i in range(len(some)) if i not in (p, q)))
                    pairs[a, b] = found if p < q else found.T
    return single, pairs


def _spanning_forest(count: int, pairs: dict[Pair, FloatArray]) -> list[list[int]]:
    """The neighbours of every attribute in the forest of largest mutual information."""
    worth = {pair: _mutual_information(table) for pair, table in pairs.items()}
    part = list(range(count))
    near: list[list[int]] = [[] for _ in range(count)]
    for a, b in sorted(worth, key=lambda pair: (-worth[pair], pair)):
        if part[a] != part[b]:
            near[a].append(b)
            near[b].append(a)
            old, new = part[b], part[a]
            part = [new if p == old else p for p in part]
    return near


def _mutual_information(table: FloatArray) -> float:
    """Mutual information of the two attributes, in nats."""
    total = float(table.sum())
    if total <= 0:
        return 0.0
    share = table / total
    apart = np.outer(share.sum(axis=1), share.sum(axis=0))
    held = share > 0
    return float(share[held] @ np.log(share[held] / apart[held]))


def _draw_child_cells(above: Codes, table: FloatArray, random: np.random.Generator) -> Codes:
    """(count,) cells, spread within each cell of `above` as the row of the table is, in random order."""
    size = np.bincount(above, minlength=len(table))
    row, every = table.sum(axis=1, keepdims=True), table.sum(axis=0)
    spread = every / every.sum() if every.sum() > 0 else np.full(table.shape[1], 1 / table.shape[1])
    shares = np.where(row > 0, table / np.where(row > 0, row, 1.0), spread)
    # running sums: every cell is off by less than one, and the rows' sizes are met
    ends = np.rint(np.cumsum((shares * size[:, None]).reshape(-1))).astype(np.int64)
    ends[-1] = len(above)
    counts = np.diff(ends, prepend=0)
    out = np.empty(len(above), dtype=np.int32)
    order = np.lexsort((random.random(len(above)), above))
    out[order] = np.repeat(np.tile(np.arange(table.shape[1], dtype=np.int32), len(table)), counts)
    return out
