"""The largest of a sum over all choices, one for each variable, against Python integers."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sfumato.privacy import sums
from sfumato.privacy.sums import Bundle, SumOfProducts

laws = settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])


small_or_large = st.integers(-9, 9) | st.integers(-(2**40), 2**40) | st.sampled_from([2**40, 2**40 + 1, 2**40 - 1])
Patterns = tuple[list[list[list[int]]], list[int]]
"""(patterns, kinds, parts) values, and the kind that each block has."""


@st.composite
def searches(draw: st.DrawFn) -> tuple[list[Patterns], list[int], tuple[int, ...]]:
    blocks, parts = draw(st.integers(1, 4)), draw(st.sampled_from([1, 3]))
    patterns: list[Patterns] = []
    for _ in range(draw(st.integers(0, 4))):
        kinds = draw(st.integers(1, blocks))
        value = st.lists(small_or_large.map(abs) if parts == 1 else small_or_large, min_size=parts, max_size=parts)
        rows = draw(st.lists(st.lists(value, min_size=kinds, max_size=kinds), min_size=1, max_size=4))
        if parts == 3:
            # pairs of a cell with itself and with others: u.u + v.v - 2 u.v is never negative
            rows = [[[u * u, v * v, u * v] for u, v, _ in row] for row in rows]
        patterns.append((rows, draw(st.lists(st.integers(0, kinds - 1), min_size=blocks, max_size=blocks))))
    scale = draw(st.lists(st.integers(0, 2**30) | st.just(2**90), min_size=blocks, max_size=blocks))
    return patterns, scale, (1,) if parts == 1 else (1, 1, -2)


def total_of(patterns: list[Patterns], scale: list[int], signs: tuple[int, ...]) -> SumOfProducts:
    """sum_b scale_b sum_k signs_k prod_g of pattern g's value for the kind of block b: every kind is a position."""
    starts = [0, *itertools.accumulate(len(rows[0]) for rows, _ in patterns)]
    sets = [[s + kinds[b] for s, (_, kinds) in zip(starts, patterns, strict=False)] for b in range(len(scale))]
    parts = [
        (
            {
                start + j: (g, np.array([row[j][k] for row in rows], dtype=object))
                for g, (start, (rows, _)) in enumerate(zip(starts, patterns, strict=False))
                for j in range(len(rows[0]))
            },
            [1] * starts[-1],
            sign,
        )
        for k, sign in enumerate(signs)
    ]
    return SumOfProducts.of([len(rows) for rows, _ in patterns], parts, [Bundle.of(sets, scale)])


@laws
@given(searches(), st.sampled_from([1, 7, 2**21]))
def test_the_search_finds_the_largest_combination(case: Any, chunk: int) -> None:
    """Mutants: the largest float taken for the largest integer; a slack too small; the order of choices mixed up."""
    patterns, scale, signs = case
    best = -math.inf
    for chosen in itertools.product(*(range(len(rows)) for rows, _ in patterns)):
        total = 0
        for b, s in enumerate(scale):
            own = [rows[i][kinds[b]] for (rows, kinds), i in zip(patterns, chosen, strict=True)]
            total += s * sum(sign * math.prod(r[k] for r in own) for k, sign in enumerate(signs))
        best = max(best, total)
    found = total_of(patterns, scale, signs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sums, "_CHUNK", chunk)
        assert found.largest() == (best, True)
        patch.setattr(sums, "_MOST_NEAR", 1)
        value, exact = found.largest()
        assert value == best if exact else value >= best


def test_values_that_float64_cannot_tell_apart() -> None:
    """Mutant: candidates ranked in float64, or compared modulo 2^64 though they differ by more."""
    for top in (2**60, 2**80, 2**200):
        patterns: list[Patterns] = [([[[top]], [[top + 1]], [[top - 1]]], [0]), ([[[3]]], [0])]
        assert total_of(patterns, [1], (1,)).largest() == (3 * (top + 1), True)
    two: list[Patterns] = [([[[2**70], [k]] for k in range(50)], [0, 1])]
    assert total_of(two, [2**10, 1], (1,)).largest() == (2**80 + 49, True)
