"""Laws of sets as arrays: what lies below them, where they are found, sums over them, attributes of one kind."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.strategies.attribute_sets import (
    Sets,
    distinct_sets,
    downward_closure,
    exchangeable_kinds,
    locate_sets,
    sorted_kinds,
    subset_columns,
)
from sfumato.strategies.residual_tables import Lattice


def _combinations(attributes: int, order: int) -> Sets:
    rows = list(itertools.combinations(range(attributes), order))
    return np.array(rows, dtype=np.int32).reshape(len(rows), order)


def _random_sets(rng: np.random.Generator, names: Sets, order: int, count: int) -> Sets:
    rows = [np.sort(rng.choice(names, order, replace=False)) for _ in range(count)]
    return np.array(rows, dtype=np.int32).reshape(count, order)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9), st.sampled_from([9, 10**6, 2**31 - 1]))
def test_closure_and_places_are_those_of_a_plain_search(seed: int, attributes: int) -> None:
    """Positions so large that no 63 bits hold a row must come out alike. Mutants: ranks of one array alone."""
    rng = np.random.default_rng(seed)
    names = np.sort(rng.choice(attributes, 9, replace=False)).astype(np.int32)
    families = [_random_sets(rng, names, k, m) for k, m in rng.integers(0, 7, (3, 2)).tolist()]
    expected = {
        c for f in families for r in f.tolist() for k in range(len(r) + 1) for c in itertools.combinations(r, k)
    }
    found = downward_closure(families, attributes)
    assert [tuple(r) for s in found for r in s.tolist()] == sorted(expected, key=lambda s: (len(s), s))
    for k, known in enumerate(found):
        wanted = _random_sets(rng, names, k, 5)
        place = {tuple(r): i for i, r in enumerate(known.tolist())}
        assert locate_sets(known, wanted, attributes).tolist() == [place.get(tuple(r), -1) for r in wanted.tolist()]


def test_many_sets_and_long_sets_are_within_reach() -> None:
    assert [len(s) for s in downward_closure([_combinations(100, 3)], 100)] == [1, 100, 4950, 161_700]
    long = downward_closure([np.arange(0, 400, 25, dtype=np.int32)[None]], 400)
    assert [len(s) for s in long] == [math.comb(16, k) for k in range(17)]
    assert len(list(subset_columns(5))) == 32
    assert locate_sets(np.empty((0, 2), dtype=np.int32), _combinations(3, 2), 3).tolist() == [-1, -1, -1]
    with pytest.raises(ValueError, match="sets of 1 attributes are not among sets of 2"):
        locate_sets(_combinations(3, 2), _combinations(3, 1), 3)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**9))
def test_sums_over_the_lattice(seed: int) -> None:
    """Mutants: small orders before large ones, which counts some subsets twice; a column missed."""
    rng = np.random.default_rng(seed)
    given_sets = [s[rng.random(len(s)) < 0.3] for s in (_combinations(6, k) for k in range(7))]
    lattice = Lattice(downward_closure([*given_sets, _combinations(6, 1)], 6), 6)
    rows = [set(r) for s in lattice.sets for r in s.tolist()]
    below = np.array([[float(s <= a) for s in rows] for a in rows])
    values = rng.normal(size=len(rows))
    np.testing.assert_allclose(lattice.down(values), below @ values, atol=1e-12)
    np.testing.assert_allclose(lattice.up(values), below.T @ values, atol=1e-12)


@pytest.mark.parametrize(
    ("sets", "weight", "sizes", "expected"),
    [
        ([_combinations(7, 2), _combinations(7, 3)], 1.0, [4, 2, 4, 3, 2, 4, 4], 3),
        ([_combinations(7, 2)[1:], _combinations(7, 3)], 1.0, [4, 2, 4, 3, 2, 4, 4], 5),
        ([_combinations(7, 2)], [3.0] * 6 + [1.0] * 15, [4, 2, 4, 3, 2, 4, 4], 4),
        ([np.array([[0, 1], [0, 2], [1, 2], [3, 4], [3, 5], [4, 5]], dtype=np.int32)], 1.0, [3] * 6, 6),
        ([np.array([[0, 1], [1, 2], [2, 3], [3, 4], [0, 4]], dtype=np.int32)], 1.0, [3] * 5, 5),
        ([_combinations(4, 2)], [2.0, 1.0, 1.0, 1.0, 1.0, 2.0], [3] * 4, 4),
        ([_combinations(4, 2)], 1.0, [3] * 6, 2),
        ([_combinations(2, 0)], 1.0, [3, 4], 2),
    ],
    ids=[
        "all",
        "all but one",
        "one attribute heavier",
        "two groups",
        "a ring",
        "heavier pairs",
        "unused attributes",
        "total",
    ],
)
def test_kinds_hold_what_can_be_exchanged(
    sets: list[Sets], weight: float | list[float], sizes: list[int], expected: int
) -> None:
    """Mutants: kinds by size alone; sets of a kind counted with repetition; weights not looked at."""
    weights = [np.ones(len(s)) * weight for s in sets]
    labels = exchangeable_kinds(sets, weights, sizes)
    assert len(np.unique(labels)) == expected
    tables = [
        {tuple(r): w for r, w in zip(s.tolist(), v.tolist(), strict=True)} for s, v in zip(sets, weights, strict=True)
    ]
    for a, b in itertools.combinations(range(len(sizes)), 2):
        if labels[a] != labels[b]:
            continue
        assert sizes[a] == sizes[b]
        swapped = list(range(len(sizes)))
        swapped[a], swapped[b] = b, a
        for table in tables:
            assert {tuple(sorted(swapped[i] for i in r)): w for r, w in table.items()} == table


def test_sixty_attributes_of_a_kind_are_one() -> None:
    triples = _combinations(60, 3)
    labels = exchangeable_kinds([triples], [np.ones(len(triples))], [10] * 60)
    assert distinct_sets(sorted_kinds(triples, labels), 60).tolist() == [[0, 0, 0]]
