"""Products of whole matrices are exact whether they go by way of floating point or not."""

from __future__ import annotations

import numpy as np
import pytest

from sfumato.operators.explicit import Dense


@pytest.mark.parametrize("bits", [3, 24, 48, 51, 52, 53, 60])
def test_products_of_whole_matrices_are_exact(bits: int) -> None:
    top = 2**bits
    matrix = np.array([[top - 1, 1, -2], [-top + 3, 2, 5], [7, -top + 1, 1], [1, 0, top - 5]], dtype=np.int64)
    vectors = np.array([[1, 2], [0, -1], [1, 3]], dtype=np.int64)
    across = np.array([[1, 0], [2, 1], [0, 0], [-1, 1]], dtype=np.int64)
    found, turned = Dense(matrix).apply(vectors), Dense(matrix).apply_transpose(across)
    assert found.dtype.kind == turned.dtype.kind == "i"
    assert found.tolist() == (matrix.astype(object) @ vectors.astype(object)).tolist()
    assert turned.tolist() == (matrix.T.astype(object) @ across.astype(object)).tolist()
