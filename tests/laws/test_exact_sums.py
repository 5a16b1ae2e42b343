"""Products and numbers of rows, and Gram matrices, against Python integers."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato._util.codec import distinct_rows
from sfumato.operators import AllRange, Prefix, Residual, Sparse, Stack, Total, Tree
from sfumato.privacy.sums import set_products
from support.operators import dense, written_out

laws = settings(deadline=None, max_examples=50)


@laws
@given(st.integers(0, 4), st.integers(1, 6), st.data())
def test_products_and_numbers_of_rows(order: int, base: int, data: st.DataObject) -> None:
    """Mutants: int64 wrap; rows that rise taken for rows that are never the same; numbers in another order."""
    row = st.lists(st.integers(0, base - 1), min_size=order, max_size=order)
    rows = data.draw(st.lists(row, min_size=1, max_size=12).map(lambda r: sorted(r) if data.draw(st.booleans()) else r))
    sets = np.array(rows, dtype=np.intp).reshape(len(rows), order)
    values = data.draw(st.lists(st.integers(-(2**70), 2**70) | st.integers(-9, 9), min_size=base, max_size=base))
    assert set_products(values, sets).tolist() == [math.prod(values[i] for i in r) for r in rows]
    for limit in (base, 2**20, 2**40):
        first, number = distinct_rows(sets, limit)
        assert [rows[k] for k in first.tolist()] == sorted(map(list, set(map(tuple, rows))))
        assert [rows[first[k]] for k in number.tolist()] == rows


@settings(deadline=None, max_examples=150)
@given(st.integers(1, 5), st.integers(1, 4), st.integers(0, 62), st.data())
def test_exact_gram(rows: int, columns: int, bits: int, data: st.DataObject) -> None:
    """Mutants: float64 products of entries above 2^26; a limb without its sign; objects where int64 would do."""
    top = 2**bits
    entry = st.integers(-top, top) | st.sampled_from([top, -top, top - 1])
    operator = data.draw(dense(rows, columns, entry))
    matrix = written_out(operator)
    wanted = matrix.T @ matrix
    found = operator.lowered().gram()
    assert found.tolist() == wanted.tolist()
    assert (found.dtype == np.int64) == (max(np.diagonal(wanted)) < 2**63)


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
        assert factor.lowered().gram().tolist() == (matrix.T @ matrix).tolist()
