"""A strategy that reversing the cells leaves as it is, up to signs of rows, is worked with in halves."""

from __future__ import annotations

import numpy as np
import pytest

from sfumato.operators.base import FloatArray
from sfumato.strategies import factors
from sfumato.strategies import factors as inverses

pytestmark = pytest.mark.usefixtures("halved")


@pytest.fixture
def halved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factors, "SOLVED", 2)
    monkeypatch.setattr(inverses, "SOLVED", 2)


def mirrored(n: int, rows: tuple[int, int], seed: int) -> FloatArray:
    """Rows that stay and rows that change their sign, mixed."""
    rng = np.random.default_rng(seed)
    even, odd = (rng.standard_normal((k, n)) for k in rows)
    return rng.permutation(np.concatenate([even + even[:, ::-1], odd - odd[:, ::-1]]))


@pytest.mark.parametrize("n", [3, 4, 9, 16, 31])
@pytest.mark.parametrize("seed", range(4))
def test_gram_inverse_and_rounding_are_those_of_the_whole(n: int, seed: int) -> None:
    """Mutants: the middle cell weighed as a pair; the halves' difference for their sum; signs of rows left out."""
    outer, inner = -(-n // 2), n // 2
    for rows in ((2 * outer, 2 * inner), (2 * outer, inner // 2), (outer // 2, 2 * inner), (0, 2 * inner)):
        matrix = mirrored(n, rows, seed)
        gram = inverses.gram_of(matrix)
        np.testing.assert_array_equal(gram, gram[::-1, ::-1])
        np.testing.assert_allclose(gram, matrix.T @ matrix, atol=1e-12 * len(matrix) * n)
        inverse, projector = inverses.pseudo_inverse(gram)
        wanted, onto = inverses.invert_whole_gram(matrix.T @ matrix)
        np.testing.assert_allclose(inverse, wanted, atol=1e-7 * np.abs(wanted).max())
        assert (projector is None) == (onto is None) == (rows == (2 * outer, 2 * inner))
        if projector is not None and onto is not None:
            np.testing.assert_allclose(projector, onto, atol=1e-7)
        real = 100 * matrix
        np.testing.assert_array_equal(factors._round_columns(real), factors._round_column_chunk(real))


@pytest.mark.parametrize("seed", range(4))
def test_a_row_that_changes_otherwise_is_seen(seed: int) -> None:
    """Mutant: the sign by the first cell alone."""
    matrix = mirrored(8, (5, 4), seed)
    matrix[3, 2] += 1.0
    assert inverses.reversal_signs(matrix) is None
    np.testing.assert_array_equal(inverses.gram_of(matrix), matrix.T @ matrix)
    np.testing.assert_array_equal(factors._round_columns(9 * matrix), factors._round_column_chunk(9 * matrix))
