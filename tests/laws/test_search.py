"""The search behind sensitivities, and the Gram matrices it starts from, against Python integers."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sfumato.designs.pricing import search as search_module
from sfumato.designs.pricing.pairs import exact_gram
from sfumato.designs.pricing.search import Patterns, largest_combination
from sfumato.operators import (
    AllRange,
    Prefix,
    Residual,
    Sparse,
    Stack,
    Total,
    Tree,
)
from support.operators import dense, written_out

laws = settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])


small_or_large = st.integers(-9, 9) | st.integers(-(2**40), 2**40) | st.sampled_from([2**40, 2**40 + 1, 2**40 - 1])


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
        kind = draw(st.lists(st.integers(0, kinds - 1), min_size=blocks, max_size=blocks))
        patterns.append(Patterns.of(rows, np.array(kind, dtype=np.intp)))
    scale = draw(st.lists(st.integers(0, 2**30) | st.just(2**90), min_size=blocks, max_size=blocks))
    return patterns, scale, (1,) if parts == 1 else (1, 1, -2)


@laws
@given(searches(), st.sampled_from([1, 7, 2**21]))
def test_the_search_finds_the_largest_combination(case: Any, chunk: int) -> None:
    """Mutants: the largest float taken for the largest integer; a slack too small; the order of choices mixed up."""
    patterns, scale, signs = case
    best = -math.inf
    for chosen in itertools.product(*(range(len(p)) for p in patterns)):
        total = 0
        for b, s in enumerate(scale):
            rows = [p.values[i, p.kind[b]].tolist() for p, i in zip(patterns, chosen, strict=True)]
            total += s * sum(sign * math.prod(r[k] for r in rows) for k, sign in enumerate(signs))
        best = max(best, total)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search_module, "_CHUNK", chunk)
        assert largest_combination(patterns, scale, signs) == (best, True)
        patch.setattr(search_module, "_MAX_TIES", 1)
        value, exact = largest_combination(patterns, scale, signs) or (math.inf, False)
        assert value == best if exact else value >= best


def test_values_that_float64_cannot_tell_apart() -> None:
    """Mutant: candidates ranked in float64, or compared modulo 2^64 though they differ by more."""
    one = np.zeros(1, dtype=np.intp)
    for top in (2**60, 2**80, 2**200):
        patterns = [Patterns.of([[(top,)], [(top + 1,)], [(top - 1,)]], one), Patterns.of([[(3,)]], one)]
        assert largest_combination(patterns, [1], (1,)) == (3 * (top + 1), True)
    two = [Patterns.of([[(2**70,), (k,)] for k in range(50)], np.array([0, 1]))]
    assert largest_combination(two, [2**10, 1], (1,)) == (2**80 + 49, True)


@laws
@given(st.integers(1, 5), st.integers(1, 4), st.integers(0, 62), st.data())
def test_exact_gram(rows: int, columns: int, bits: int, data: st.DataObject) -> None:
    """Mutants: float64 products of entries above 2^26; a limb without its sign; None where the result would fit."""
    top = 2**bits
    entry = st.integers(-top, top) | st.sampled_from([top, -top, top - 1])
    operator = data.draw(dense(rows, columns, entry))
    matrix = written_out(operator)
    wanted = matrix.T @ matrix
    found = exact_gram(operator)
    if max(np.diagonal(wanted)) < 2**63:
        assert found is not None
        assert found.dtype == np.int64
        assert found.tolist() == wanted.tolist()
    else:
        assert found is None


def test_exact_gram_of_structured_factors() -> None:
    for factor in (
        Prefix(5),
        AllRange(5),
        Tree(7, 3),
        Residual(4),
        Sparse([2**31], [0], [0, 1], 2),
        Stack((Total(3),) * 2),
    ):
        matrix = written_out(factor)
        found = exact_gram(factor)
        assert found is not None
        assert found.tolist() == (matrix.T @ matrix).tolist()
