"""Drawn maps over measures, what drawn records add to them, and whether they are priced too low."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from sfumato.cells import POINTS
from sfumato.curator.rows.shares import SHARES, shares
from sfumato.maps import AlikeMap, BlockMap, DenseMap, Map, TotalMap
from sfumato.privacy.sensitivity import certified_bound
from sfumato.privacy.unit import Neighbours, PrivacyUnit

__all__ = ["ADD", "REPLACE", "errs", "errs_of_persons"]

ADD = PrivacyUnit(Neighbours.ADD_REMOVE)
REPLACE = PrivacyUnit(Neighbours.REPLACE_ONE)


def _codes(rng: np.random.Generator, count: int) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    """Places of records: both ends, corners of pieces, anything between, and no number."""
    special = [0, POINTS, POINTS // 2, POINTS // 16, POINTS + 1, 1, POINTS - 1]
    return np.concatenate([special, rng.integers(0, POINTS + 1, count)]).astype(np.uint32)


def _drawn(rng: np.random.Generator, pieces: int = 1) -> tuple[list[BlockMap], dict[str, int], tuple[str, ...]]:
    """Blocks over up to two attributes and up to two measures, of any integer factors."""
    sizes = {"a": int(rng.integers(1, 4)), "b": int(rng.integers(1, 3)), "m": 2 * pieces + 2, "k": 4}
    blocks: list[BlockMap] = []
    for _ in range(int(rng.integers(1, 4))):
        names = [n for n in sizes if rng.random() < 0.6]
        factors: list[Map] = []
        for name in names:
            n = sizes[name]
            kind = rng.integers(3) if name in "ab" else 2
            dense = DenseMap(rng.integers(-9, 10, (int(rng.integers(1, 4)), n)) * int(rng.integers(1, 40)))
            factors.append([AlikeMap(n, n, -1), TotalMap(n), dense][int(kind)])
        blocks.append(BlockMap(tuple((n,) for n in names), tuple(factors)))
    return blocks, sizes, ("m", "k")


def _ends(rng: np.random.Generator, pieces: int) -> tuple[int, ...]:
    """The steps at which pieces end: some close together, some far apart."""
    inner = rng.choice([2**12, 2**20, 2**27, POINTS // 3, POINTS // 2 + 1, POINTS - 2**11], pieces - 1, replace=False)
    return 0, *sorted(int(k) for k in inner), POINTS


def _added(
    blocks: list[BlockMap],
    sizes: dict[str, int],
    measures: tuple[str, ...],
    rng: np.random.Generator,
    pieces: int = 1,
) -> Any:
    """(records, rows): what each of some records adds to all rows, as it is counted."""
    codes = {m: _codes(rng, 12) for m in measures}
    ends: dict[str, tuple[int, ...]] = {"m": (0, POINTS), "k": (0, POINTS)}
    if pieces > 1:
        ends["m"] = own_ends = _ends(rng, pieces)
        inside = [a + int(rng.integers(0, b - a + 1)) for a, b in itertools.pairwise(own_ends)]
        codes["m"] = np.array([*own_ends, *inside, *inside, POINTS + 1, *codes["m"].tolist()], dtype=np.uint32)
    joint = list(itertools.product(range(len(codes["m"])), range(len(codes["k"]))))
    chosen = rng.choice(len(joint), 40, replace=False)
    out: list[list[int]] = []
    here = any(set(b.attributes) & set(measures) for b in blocks)
    for i in chosen.tolist():
        place: dict[str, int] = dict(zip(("m", "k"), joint[i], strict=True))
        for cells in itertools.product(range(sizes["a"]), range(sizes["b"])):
            own = dict(zip("ab", cells, strict=True))
            row: list[int] = []
            for block in blocks:
                mine = [n for n in block.attributes if n in measures]
                unit = 1 if mine or not here else SHARES
                part = np.array([unit], dtype=object)
                if mine:
                    found = shares(
                        [codes[n][place[n] : place[n] + 1] for n in mine],
                        [sizes[n] for n in mine],
                        [ends[n] for n in mine],
                    )
                    part = found[:, 0].astype(object)
                table = part.reshape([sizes[n] if n in mine else 1 for n in block.attributes])
                full = np.zeros([sizes[n] for n in block.attributes], dtype=object)
                full[tuple(slice(None) if n in mine else own[n] for n in block.attributes)] = table.reshape(
                    [sizes[n] for n in mine]
                )
                row += [int(v) for v in block.apply(full.astype(np.int64))]
            out.append(row)
    return np.array(out, dtype=object)


def _largest(added: Any, power: int, *, replaced: bool) -> int:
    if not replaced:
        return int((np.abs(added) ** power).sum(axis=1).max())
    return max(int((np.abs(added - row) ** power).sum(axis=1).max()) for row in added)


def errs(count: int, first: int, *, knots: bool = False, enough: float = math.inf) -> tuple[int, float]:
    """(how many prices are too low, the largest price over what is found), of so many draws, or until there are enough.

    knots: whether one of the two measures has up to three of them.
    """
    low, most = 0, 0.0
    for seed in range(first, first + count):
        if low >= enough:
            break
        rng = np.random.default_rng([152 if knots else 136, seed])
        pieces = int(rng.integers(2, 5)) if knots else 1
        blocks, sizes, measures = _drawn(rng, pieces)
        added = _added(blocks, sizes, measures, rng, pieces)
        for power, unit in itertools.product((1, 2), (ADD, REPLACE)):
            named = [m for m in measures if any(m in b.attributes for b in blocks)]
            price = certified_bound(blocks, sizes, unit, power, None, named)
            found = _largest(added, power, replaced=unit is REPLACE)
            low += price < found
            if unit is ADD and found:
                most = max(most, price / found)
    return low, most


def _bodies(
    added: Any, cells: np.ndarray[Any, Any], unit: PrivacyUnit, sizes: dict[str, int], rng: np.random.Generator
) -> Any:
    """(bodies, rows) what persons add who have drawn records, within what is counted of them; then their longest.

    From each drawn body records are taken one after another in whose place another adds to its length.
    """
    group = np.zeros(len(cells), dtype=int)
    for a in unit.once_per:
        group = group * sizes[a] + cells[:, "ab".index(a)]
    plain = added.astype(float)
    out: list[Any] = []
    for _ in range(12):
        body: list[int] = []
        for i in rng.permutation(len(added)).tolist():
            held = sum(group[j] == group[i] for j in body)
            if len(body) < unit.rows_per_person and held < unit.rows_per_group:
                body.append(i)
        out.append(added[body].sum(axis=0))
        for k in [*range(len(body))] * 2:
            rest = body[:k] + body[k + 1 :]
            full = [g for g in {*group[rest].tolist()} if (group[rest] == g).sum() >= unit.rows_per_group]
            may = np.flatnonzero(~np.isin(group, full))
            lengths = np.square(plain[rest].sum(axis=0) + plain[may]).sum(axis=1)
            body[k] = int(may[np.argmax(lengths)])
        out.append(added[body].sum(axis=0))
        out.append(added[body[: int(rng.integers(1, len(body) + 1))]].sum(axis=0))
    return np.array(out, dtype=object)


def errs_of_persons(count: int, first: int, *, enough: float = math.inf) -> tuple[int, float]:
    """The same for persons with several records, of whom few are counted in each cell of "a", "b" or both."""
    low, most = 0, 0.0
    for seed in range(first, first + count):
        if low >= enough:
            break
        rng = np.random.default_rng([191, seed])
        pieces = int(rng.integers(1, 4))
        blocks, sizes, measures = _drawn(rng, pieces)
        added = _added(blocks, sizes, measures, rng, pieces)
        here = itertools.product(range(sizes["a"]), range(sizes["b"]))
        cells = np.tile(np.array([*here]), (len(added) // (sizes["a"] * sizes["b"]), 1))
        rows = int(rng.integers(2, 7))
        each = int(rng.integers(1, rows))
        once_per = (("a",), ("b",), ("a", "b"))[int(rng.integers(3))]
        named = [m for m in measures if any(m in b.attributes for b in blocks)]
        for power, relation in itertools.product((1, 2), Neighbours):
            unit = PrivacyUnit(relation, "who", rows, once_per=once_per, rows_per_group=each)
            bodies = _bodies(added, cells, unit, sizes, rng)
            found = _largest(bodies, power, replaced=relation is Neighbours.REPLACE_ONE)
            price = certified_bound(blocks, sizes, unit, power, None, named)
            low += price < found
            if relation is Neighbours.ADD_REMOVE and found:
                most = max(most, price / found)
    return low, most
