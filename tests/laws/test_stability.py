"""One record, or one person, moves the counts by itself alone and never decides between a release and a refusal.

For every kind of source a few odd items are drawn (records, or the rows of one person) and counted alone. Then subsets
of k of them are loaded, each in an order of its own and beside others that stay, over a domain in which some of them
cannot be: the counts must be those of the others plus what each item counts alone, at most one record, or
`rows_per_person`. All 2^k subsets check all their k 2^(k-1) pairs of neighbours. All draws come from one stated seed.

By default k = 4, one cube for each kind of source, and of its subsets those of none, two and four items: each item
stands in half of them, and each pair of items in a quarter, which is enough to see an item count otherwise where
another is beside it. `make deep` takes all subsets, 1,408 pairs. SFUMATO_NEIGHBOURS=10000 python -m pytest
tests/laws/test_stability.py checks at least that many, with k = 6.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.curator.keys.counts import open_keys
from sfumato.curator.rows.sources import open_source
from sfumato.privacy.unit import PrivacyUnit
from support.neighbours import COLUMNS, Form, domain, forms, key_form, pick
from support.seeded import draws

SEED = 20261122
NEIGHBOURS = int(os.environ.get("SFUMATO_NEIGHBOURS", "0"))
NAMES = tuple(forms(np.random.default_rng(0)))
MOVING, STAYING = (6, 4) if NEIGHBOURS else (4, 2)
EVERY = bool(NEIGHBOURS) or draws(1) > 1
KEYED = ("list", "csv", "json lines", "parquet", "database", "pandas of objects")
Vector = dict[Any, int]
_OFTEN = {
    "x": "-2 <= x <= 6",
    "b": "b >= 0 and b < 7.5",
    "c": "c in ('a', '1', '0', 'true')",
    "f": "f",
    "h": "state == '1'",
}


def cube(
    rng: np.random.Generator, items: Sequence[Any], most: int | None, count: Callable[[list[Any]], Vector]
) -> None:
    """Check the law on all tables of some items, records or persons with `most` rows each, beside others that stay."""
    moving, staying = items[:MOVING], list(items[MOVING:])
    empty = count([])
    alone = [_sum([count([item]), {cell: -n for cell, n in empty.items()}]) for item in moving]
    assert all(sum(map(abs, vector.values())) <= (most or 1) for vector in alone)
    base = count(staying)
    for chosen in itertools.product([False, True], repeat=len(moving)):
        if sum(chosen) % 2 and not EVERY:
            continue
        held = [*staying, *itertools.compress(moving, chosen)]
        order = rng.permutation(len(held))
        assert count([held[i] for i in order]) == _sum([base, *itertools.compress(alone, chosen)])


def _sum(vectors: Sequence[Vector]) -> Vector:
    total = {cell: sum(v.get(cell, 0) for v in vectors) for cell in {c for v in vectors for c in v}}
    return {cell: n for cell, n in total.items() if n}


def cells(
    source: Any, names: Sequence[str], policies: tuple[str, str], most: int | None, impossible: Sequence[str]
) -> Vector:
    """Counts over all cells of those attributes."""
    whole = domain(*policies)
    chosen = sf.Domain({n: whole.attributes[n] for n in names}, impossible)
    found = open_source(source, chosen, person=None if most is None else "who", rows_per_person=most or 1)
    table = found.count([tuple(names)])[tuple(names)]
    assert table.sum() == found.rows
    possible = chosen.possible(names)
    assert possible is None or not table[~possible].any()
    return {tuple(int(i) for i in at): int(table[tuple(at)]) for at in np.argwhere(table)}


def rounds() -> range:
    """How many cubes over each kind of source, of records and of persons, make up all pairs."""
    pairs = MOVING * 2 ** (MOVING - 1) * (2 * len(NAMES) - 1 + 2 * len(KEYED) - 1)
    return range(max(1, -(-NEIGHBOURS // pairs)))


def drawn(form: Form, rng: np.random.Generator, persons: bool) -> list[list[Any]]:
    """Items of one record each, or of the rows of one person each."""
    return [
        [form.draw(rng, i + 1) for _ in range(int(rng.integers(1, 5)) if persons else 1)]
        for i in range(MOVING + STAYING)
    ]


@pytest.mark.parametrize("persons", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_a_record_or_a_person_moves_the_counts_by_itself(name: str, persons: bool, tmp_path: Path) -> None:
    """Mutants: types by pandas or numpy; NaN as a text; a row of another length, a NUL, broken bytes, a nested value or
    a timestamp beyond all years refused; names that cannot be read told apart; statistics of a Parquet file trusted;
    a record that cannot be counted where others are.
    """
    if persons and name == "csv of one column":
        return
    for number in rounds():
        rng = np.random.default_rng([SEED, NAMES.index(name), persons, number])
        form = forms(rng)[name]
        policies = pick(rng, ["other", "drop", "clamp"]), pick(rng, ["other", "drop"])
        items = drawn(form, rng, persons)
        # two attributes at a time: the cells of all are many, and one that drops would hide the others
        names = (
            ("c",) if name == "csv of one column" else tuple(c for c in COLUMNS[:-1] if rng.random() < 0.4) or ("x",)
        )
        most = int(rng.integers(1, 4)) if persons else None
        # most attributes can never be what they often are, two at a time where there are two
        tests = [_OFTEN[n] for n in names if rng.random() < 0.8]
        impossible = [" and ".join(tests[i : i + 2]) for i in range(0, len(tests), 2)]

        def count(chosen: list[Any]) -> Vector:
            source = form.make(tmp_path, [r for item in chosen for r in item])  # noqa: B023
            return cells(source, names, policies, most, impossible)  # noqa: B023

        cube(rng, items, most, count)


@pytest.mark.parametrize("persons", [False, True])
@pytest.mark.parametrize("name", KEYED)
def test_a_record_or_a_person_moves_the_counts_of_keys_by_itself(name: str, persons: bool, tmp_path: Path) -> None:
    """Mutants: numpy chooses one type for a list of keys; a list refused for one of its elements; a collation by which
    "a" is "A".
    """
    if persons and name == "list":
        return
    for number in rounds():
        rng = np.random.default_rng([SEED, 100 + KEYED.index(name), persons, number])
        form = key_form() if name == "list" else forms(rng)[name]
        kind = pick(rng, ["integer", "text"])
        keys = sf.Keys("c", kind, 12345 if kind == "text" else None)
        most = int(rng.integers(1, 4)) if persons else None
        unit = PrivacyUnit(sf.Neighbours.ADD_REMOVE, "who" if persons else None, most or 1)
        items = drawn(form, rng, persons)

        def count(chosen: list[Any]) -> Vector:
            source = form.make(tmp_path, [r for item in chosen for r in item])  # noqa: B023
            found = open_keys(source, keys, unit)  # noqa: B023
            return dict(zip(found.elements.tolist(), found.counts.tolist(), strict=True))

        try:
            count([])
        except (
            sf.errors.SourceError
        ):  # numbers are not read from a column that is declared to hold dates or truth values
            keys = sf.Keys("c", "text", 12345)
        cube(rng, items, most, count)
