"""Exact sums in int64 pieces against Python integers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.designs.pricing.exact import Weights, dot, number_rows, products, split

laws = settings(deadline=None, max_examples=50)


@laws
@given(st.lists(st.tuples(st.integers(-(2**62), 2**62), st.integers(-(2**62), 2**62)), max_size=20))
def test_dot(pairs: list[tuple[int, int]]) -> None:
    """Mutants: int64 wrap; float sums; the carry between pieces."""
    a, b = (np.array([p[k] for p in pairs], dtype=np.int64) for k in (0, 1))
    assert dot(a, b) == sum(x * y for x, y in pairs)


@laws
@given(st.lists(st.integers(0, 2**62 - 1), min_size=1, max_size=9), st.lists(st.integers(0, 2**200), min_size=1))
def test_weights(multiples: list[int], large: list[int]) -> None:
    for power in (1, 2):
        weights = Weights.powers(np.array(multiples), power)
        assert weights.objects().tolist() == [m**power for m in multiples]
        values = np.arange(len(multiples)) - 2
        assert weights.dot(values) == sum(m**power * (i - 2) for i, m in enumerate(multiples))
        assert weights.times(values**2).objects().tolist() == [m**power * (i - 2) ** 2 for i, m in enumerate(multiples)]
        assert weights.real().tolist() == pytest.approx([float(m**power) for m in multiples], rel=1e-12)
        assert weights.alike(np.zeros(len(multiples), dtype=np.intp)) == (len(set(multiples)) == 1)
    assert Weights.of(large).objects().tolist() == large
    for bits in (8, 61):
        signed = np.array([*large, *(-v for v in large)], dtype=object)
        pieces = split(signed, bits)
        assert sum(p.astype(object) * 2 ** (bits * i) for i, p in enumerate(pieces)).tolist() == signed.tolist()


@laws
@given(st.integers(0, 4), st.integers(1, 6), st.data())
def test_products_and_numbers_of_rows(order: int, base: int, data: st.DataObject) -> None:
    row = st.lists(st.integers(0, base - 1), min_size=order, max_size=order)
    rows = data.draw(st.lists(row, min_size=1, max_size=12))
    sets = np.array(rows, dtype=np.intp).reshape(len(rows), order)
    values = data.draw(st.lists(st.integers(-(2**70), 2**70) | st.integers(-9, 9), min_size=base, max_size=base))
    assert products(values, sets).tolist() == [math.prod(values[i] for i in r) for r in rows]
    for limit in (base, 2**20, 2**40):
        number, first = number_rows(sets, limit)
        assert sorted(set(number.tolist())) == list(range(len(first)))
        assert [rows[first[k]] for k in number.tolist()] == rows
        assert len(first) == len(set(map(tuple, rows)))
